//! `refault serve`: the pools in a browser, and for Prometheus.

mod watched;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use clap::Args;
use refault_console::{Failure, say};
use refault_pool::serve::metrics::GroupFigures;
use refault_pool::serve::token::Token;
use refault_pool::serve::{Pools, Window};
use refault_pool::shared::place::Place;
use refault_pool::shared::processes::now;
use refault_pool::shared::protocol::{Answer, Request, Status};
use serde_json::{Value, json};

use self::watched::Watched;
use crate::pool::status::{ask, pool_json, status};
use crate::wss::interrupts;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault serve                            prints an address for a browser; /metrics is for Prometheus
  refault serve --listen 127.0.0.1:0       any free port
  refault serve --listen 192.0.2.7:7077    for other machines
  refault serve --token-file /etc/refault/token
  refault serve --host                     the control groups of this host too, at /host

The page shows the pools of this user: what members use and were granted, generations by age, and how long threads wait,
live. A member's budget can be changed there. All that shows or changes a pool needs the token, from this machine too.
The address that is printed holds it; scripts and Prometheus send it as `Authorization: Bearer TOKEN`.

docs/reference/metrics.md lists the metrics; contrib/ has a dashboard and alerts.")]
/// Show pools in a browser, and to Prometheus
pub struct ServeArgs {
    /// Address and port to listen at
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7077")]
    listen: SocketAddr,
    /// File with the token; it is made if it is not there. Default: serve.token beside the pools' sockets
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,
    /// Look at the host's control groups too, as refault host does: page /host, and metrics of the 100 that use most
    #[arg(long)]
    host: bool,
}

/// The pools of this user, and the host's groups if they are looked at.
struct Ours(Option<Watched>);

impl Pools for Ours {
    fn statuses(&self) -> Vec<Status> {
        // One that does not answer is left out until it does.
        Place::all().iter().filter_map(|name| Place::new(name).ok()).filter_map(|place| status(&place).ok()).collect()
    }

    fn json(&self, statuses: &[Status]) -> String {
        json!({"pools": statuses.iter().map(pool_json).collect::<Vec<_>>()}).to_string()
    }

    fn history(&self) -> String {
        let places = Place::all().into_iter().filter_map(|name| Place::new(&name).ok());
        let pools: Vec<Value> = places
            .filter_map(|place| match ask(&place, &Request::History) {
                Ok(Answer::History(looks)) => Some(json!({"pool": place.name(), "now": now(), "looks": looks})),
                // It does not answer, or is of a time before there was one.
                _ => None,
            })
            .collect();
        json!({"pools": pools}).to_string()
    }

    fn host(&self) -> Option<String> {
        self.0.as_ref().map(Watched::json)
    }

    fn groups(&self) -> Vec<GroupFigures> {
        self.0.as_ref().map_or_else(Vec::new, |watched| {
            watched.tick();
            watched.figures()
        })
    }

    fn set_budget(&self, pool: &str, pid: u64, bytes: Option<u64>) -> Result<(), String> {
        let answer = Place::new(pool).map(|place| ask(&place, &Request::Budget { pid, bytes }))?;
        answer.map(|_| ()).map_err(|failure| failure.line().to_owned())
    }
}

/// Runs the command.
pub fn run(args: &ServeArgs) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::failed("cannot listen", args.listen, format!("{error}; give another with --listen ADDRESS:PORT"))
    };
    let (path, token) = token(args)?;
    let listener = TcpListener::bind(args.listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    if is_journal() {
        // More users read the journal than may see the pools.
        say(format_args!("listening at http://{address}/; the token is in {}", path.display()));
    } else {
        // Browsers send nothing of what stands behind #.
        say(format_args!("listening at http://{address}/#token={}", token.text()));
    }
    let watched = match args.host {
        true => Some(Watched::begin().map_err(|error| Failure::failed("nothing to look at", "/sys/fs/cgroup", error))?),
        false => None,
    };
    let asked = interrupts();
    Window::new(Ours(watched), address, token).run(listener, &asked).map_err(failed)
}

/// The token, and the file that holds it.
fn token(args: &ServeArgs) -> Result<(PathBuf, Token), Failure> {
    let path = match &args.token_file {
        Some(path) => path.clone(),
        None => Place::token_file().map_err(|error| {
            Failure::failed(
                "no place for the token",
                "the pools' directory",
                format!("{error}; give --token-file PATH"),
            )
        })?,
    };
    let token = Token::in_file(&path).map_err(|error| Failure::failed("no token", path.display(), error))?;
    Ok((path, token))
}

/// Whether standard error is kept in the system's journal, as systemd tells its services.
fn is_journal() -> bool {
    let (Ok(journal), Ok(error)) = (std::env::var("JOURNAL_STREAM"), rustix::fs::fstat(std::io::stderr())) else {
        return false;
    };
    journal == format!("{}:{}", error.st_dev, error.st_ino)
}
