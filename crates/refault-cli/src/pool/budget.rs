//! `refault pool budget`: the most that a member may have, set by hand, or lifted.

use clap::Args;
use refault_console::{Failure, say};
use refault_lab::size::{Bytes, bytes_text};
use refault_pool::shared::protocol::{Request, Status};

use super::status::{ask, status};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault pool budget web redis-server 512M     at most 512 MiB from now on
  refault pool budget web 4711 --lift           what the member asked for when it joined holds again

A budget that was set by hand stays when the daemon is started again, and is marked in `refault pool status` and the page.")]
/// Set the most that a member of a pool may have, or lift it
pub struct BudgetArgs {
    /// The pool
    #[arg(value_name = "POOL")]
    pool: String,
    /// The member: its name, or its process
    #[arg(value_name = "MEMBER")]
    member: String,
    /// Bytes that it may have at most, such as 512M
    #[arg(value_name = "SIZE", required_unless_present = "lift", conflicts_with = "lift")]
    bytes: Option<Bytes>,
    /// Lift the budget that was set
    #[arg(long)]
    lift: bool,
}

/// Runs the command.
pub fn run(args: &BudgetArgs) -> Result<(), Failure> {
    let place = super::place(&args.pool)?;
    let status = status(&place)?;
    let pid = member(&status, &args.member)?;
    let bytes = args.bytes.as_ref().map(|Bytes(bytes)| *bytes);
    ask(&place, &Request::Budget { pid, bytes })?;
    let name = &status.members[&pid].name;
    match bytes {
        Some(bytes) => say(format_args!("{name} ({pid}) may have {} at most", bytes_text(bytes))),
        None => say(format_args!("{name} ({pid}) may have what it asked for")),
    }
    Ok(())
}

/// The process of the member of that name or number.
fn member(status: &Status, wanted: &str) -> Result<u64, Failure> {
    let number = wanted.parse().ok().filter(|pid| status.members.contains_key(pid));
    let found: Vec<u64> = match number {
        Some(pid) => vec![pid],
        None => status.members.iter().filter(|(_, member)| member.name == wanted).map(|(pid, _)| *pid).collect(),
    };
    let listed = |pids: &mut dyn Iterator<Item = &u64>| {
        pids.map(|pid| format!("{} ({pid})", status.members[pid].name)).collect::<Vec<_>>().join(", ")
    };
    match found[..] {
        [pid] => Ok(pid),
        [] if status.members.is_empty() => Err(Failure::failed("no such member", wanted, "the pool has none")),
        [] => {
            let members = listed(&mut status.members.keys());
            Err(Failure::failed("no such member", wanted, format!("the pool has {members}")))
        }
        _ => {
            let members = listed(&mut found.iter());
            Err(Failure::failed("several members of that name", wanted, format!("give the process: {members}")))
        }
    }
}
