//! `refault pool`: many programs, one memory.

mod budget;
mod config;
mod plan;
pub mod status;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use refault_console::{Failure, Share, say};
use refault_lab::size::{Bytes, bytes_text};
use refault_pool::shared::daemon::Daemon;
use refault_pool::shared::ledger::MIN_GRANT;
use refault_pool::shared::place::{DEFAULT_NAME, Place};

use crate::wss::{interrupts, time};

#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  refault pool --memory 8G --name web &             the daemon; members join with --pool
  refault run --pool web --low 1G -- redis-server --save ''
  refault run --pool web -- node server.js
  refault pool status web                           who has what
  refault pool budget web redis-server 512M         at most 512M, until it is lifted
  refault pool plan *.rft --hosts 2 --memory 4G     which of some recordings go onto which host

The member with the oldest generation gives way. Min and low are protected as memory.min and memory.low of the kernel's
groups. Generations younger than --min-ttl are a working set. The sum of what members use never exceeds the pool. A
member that does not answer within a second keeps what it has; so do all when the daemon ends, until it is started again.
The socket is in $XDG_RUNTIME_DIR/refault, or /run/refault for root; only the same user and root are heard."
)]
/// Share one memory among many programs
pub struct PoolArgs {
    #[command(subcommand)]
    command: Option<PoolCommand>,
    /// Bytes that the members may use together, such as 4G
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// The pool's name
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME)]
    name: String,
    /// Read memory, min_ttl, pressure and what programs ask for from a TOML file; options go first
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Generations younger than that are a working set, which only members below their protection take [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    min_ttl: Option<Duration>,
    /// Squeeze each member until it waits for memory for this share of the time
    #[arg(long, value_name = "PERCENT")]
    pressure: Option<Share>,
}

#[derive(Subcommand, Debug)]
enum PoolCommand {
    Budget(budget::BudgetArgs),
    Plan(Box<plan::PlanArgs>),
    Status(status::StatusArgs),
}

/// Runs the command.
pub fn run(args: &PoolArgs) -> Result<(), Failure> {
    match &args.command {
        Some(PoolCommand::Budget(args)) => budget::run(args),
        Some(PoolCommand::Plan(args)) => plan::run(args),
        Some(PoolCommand::Status(args)) => status::run(args),
        None => serve(args),
    }
}

/// The pool of a name.
///
/// # Errors
/// It is no name.
pub fn place(name: &str) -> Result<Place, Failure> {
    Place::new(name).map_err(|why| Failure::usage("wrong usage", "the pool's name", why))
}

fn serve(args: &PoolArgs) -> Result<(), Failure> {
    let mut options = config::read(args.config.as_deref())?;
    if let Some(Bytes(bytes)) = args.memory {
        options.memory = bytes;
    }
    options.min_ttl = args.min_ttl.unwrap_or(options.min_ttl);
    options.proactive = args.pressure.map(|Share(share)| share).or(options.proactive);
    if options.memory < MIN_GRANT {
        let remedy = "give --memory SIZE, at least 4M, or memory in --config FILE";
        return Err(Failure::usage("no memory to share", "refault pool", remedy));
    }
    let place = place(&args.name)?;
    let (memory, socket) = (options.memory, place.socket());
    let asked = interrupts();
    let daemon = Daemon::open(place, options).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => {
            Failure::failed("the pool has a daemon already", &args.name, "name another, or end that one")
        }
        _ => Failure::failed("cannot serve the pool", socket.display(), error),
    })?;
    say(format_args!("pool {} shares {} at {}", args.name, bytes_text(memory), socket.display()));
    let says = |line: &str| say(format_args!("pool {}: {line}", args.name));
    daemon.run(&asked, says).map_err(|error| Failure::failed("cannot serve the pool", socket.display(), error))
}
