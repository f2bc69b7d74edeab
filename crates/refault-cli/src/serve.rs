//! `refault serve`: the pools in a browser, and for Prometheus.

use std::fmt::Write;
use std::net::{SocketAddr, TcpListener};

use clap::Args;
use refault_console::{Failure, say};
use refault_pool::serve::{Pools, Window};
use refault_pool::shared::place::Place;
use refault_pool::shared::protocol::{Request, Status};
use serde_json::json;

use crate::pool::status::{ask, pool_json, status};
use crate::wss::interrupts;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault serve                            http://127.0.0.1:7077 in a browser, /metrics for Prometheus
  refault serve --listen 127.0.0.1:0       any free port
  refault serve --listen 192.0.2.7:7077    for others, who need the token in the address that is printed

The page shows the pools of this user: what members use and were granted, generations by age, and how long threads wait,
live. A member's budget can be changed there. docs/guide/pool.md lists the metrics; contrib/ has a dashboard and alerts.")]
/// Show pools in a browser, and to Prometheus
pub struct ServeArgs {
    /// Address and port to listen at
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7077")]
    listen: SocketAddr,
}

/// The pools of this user.
struct Ours;

impl Pools for Ours {
    fn statuses(&self) -> Vec<Status> {
        // One that does not answer is left out until it does.
        Place::all().iter().filter_map(|name| Place::new(name).ok()).filter_map(|place| status(&place).ok()).collect()
    }

    fn json(&self, statuses: &[Status]) -> String {
        json!({"pools": statuses.iter().map(pool_json).collect::<Vec<_>>()}).to_string()
    }

    fn set_budget(&self, pool: &str, pid: u64, bytes: u64) -> Result<(), String> {
        let answer = Place::new(pool).map(|place| ask(&place, &Request::Budget { pid, bytes }))?;
        answer.map(|_| ()).map_err(|failure| failure.line().to_owned())
    }
}

/// Runs the command.
pub fn run(args: &ServeArgs) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::failed("cannot listen", args.listen, format!("{error}; give another with --listen ADDRESS:PORT"))
    };
    let listener = TcpListener::bind(args.listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let token = if address.ip().is_loopback() { None } else { Some(token().map_err(failed)?) };
    let with_token = token.as_ref().map_or(String::new(), |token| format!("?token={token}"));
    say(format_args!("listening at http://{address}/{with_token}"));
    let asked = interrupts();
    Window::new(Ours, address, token).run(listener, &asked).map_err(failed)
}

/// A token that cannot be guessed.
fn token() -> std::io::Result<String> {
    let mut bytes = [0u8; 16];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if got < bytes.len() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
