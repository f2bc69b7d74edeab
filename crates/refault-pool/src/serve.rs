//! A window on pools: one page in a browser, live, and `/metrics` for Prometheus.
//!
//! Loopback unless told otherwise. What the pools hold is shown and changed by the token alone ([`token`]), at loopback
//! too: any user of the machine can connect there. Without it a client gets the page's own parts, which are the same
//! everywhere, and a line that says that the window works. A request is served if its Host is the one that is listened
//! at, so that a page of another site cannot reach it by a name of its own; no other site may read an answer (no CORS)
//! or send the token. The page and its charts are in the binary; it loads nothing from elsewhere.
//!
//! Invariants: a request takes at most [`http::MAX_REQUEST`] bytes and [`http::WITHIN`] to arrive; at most
//! [`MAX_CONNECTIONS`] are served at once. Cost: the pools are asked once per second, whoever looks; a thread with a
//! small stack for each connection.
//!
//! ```
//! use std::net::TcpListener;
//! use std::sync::atomic::AtomicBool;
//!
//! use refault_pool::serve::token::Token;
//! use refault_pool::serve::{Pools, Window};
//! use refault_pool::shared::protocol::Status;
//!
//! struct None;
//!
//! impl Pools for None {
//!     fn statuses(&self) -> Vec<Status> {
//!         Vec::new()
//!     }
//!     fn json(&self, _: &[Status]) -> String {
//!         "[]".into()
//!     }
//!     fn set_budget(&self, pool: &str, _: u64, _: u64) -> Result<(), String> {
//!         Err(format!("there is no pool '{pool}'"))
//!     }
//! }
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let window = Window::new(None, listener.local_addr()?, Token::draw()?);
//! window.run(listener, &AtomicBool::new(true))?; // it was asked to end already
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod http;
pub mod metrics;
pub mod token;

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use http::{Problem, Request, respond};

use crate::connections::{Bounds, serve_each};
use crate::shared::protocol::Status;
use token::Token;

/// Connections served at once.
pub const MAX_CONNECTIONS: usize = 256;
/// Between two looks at the pools.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A listener that reads nothing for so long is cut off.
const WRITE_WITHIN: Duration = Duration::from_secs(5);

const PAGE: &str = include_str!("serve/page/index.html");
const SCRIPT: &str = include_str!("serve/page/page.js");
const STYLE: &str = include_str!("serve/page/page.css");
const CHARTS: &str = include_str!("serve/page/uplot.js");
const CHART_STYLE: &str = include_str!("serve/page/uplot.css");

/// What is shown and changed: the pools, as the caller reaches them.
pub trait Pools: Send + Sync + 'static {
    /// How all pools are.
    fn statuses(&self) -> Vec<Status>;
    /// The same as the page reads them.
    fn json(&self, statuses: &[Status]) -> String;
    /// Sets a member's budget in bytes.
    ///
    /// # Errors
    /// Says why not.
    fn set_budget(&self, pool: &str, pid: u64, bytes: u64) -> Result<(), String>;
}

/// What was seen last.
#[derive(Default)]
struct Seen {
    number: u64,
    json: Arc<str>,
    metrics: Arc<str>,
}

/// The window.
pub struct Window<P> {
    pools: P,
    address: SocketAddr,
    /// What requests must show that see or change a pool.
    token: Token,
    seen: Mutex<Seen>,
    changed: Condvar,
}

impl<P: Pools> Window<P> {
    /// A window at an address, for who knows the token.
    pub fn new(pools: P, address: SocketAddr, token: Token) -> Arc<Window<P>> {
        let (seen, changed) = Default::default();
        Arc::new(Window { pools, address, token, seen, changed })
    }

    /// Serves until it is asked to end.
    ///
    /// # Errors
    /// The listener cannot be served.
    pub fn run(self: &Arc<Self>, listener: TcpListener, asked: &AtomicBool) -> io::Result<()> {
        self.look();
        let window = Arc::clone(self);
        std::thread::Builder::new().name("listener".into()).spawn(move || {
            let bounds = Bounds { most: MAX_CONNECTIONS, thread: "request", stack_bytes: 128 << 10 };
            serve_each(listener.incoming(), &bounds, move |stream| window.serve(stream));
        })?;
        while !asked.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK_EVERY);
            self.look();
        }
        Ok(())
    }

    fn look(&self) {
        let statuses = self.pools.statuses();
        let (json, metrics) = (self.pools.json(&statuses).into(), metrics::text(&statuses).into());
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = Seen { number: seen.number + 1, json, metrics };
        self.changed.notify_all();
    }

    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_write_timeout(Some(WRITE_WITHIN))?;
        let request = match http::read(&mut stream) {
            Ok(request) => request,
            Err(problem) => return respond(&mut stream, problem.status(), "text/plain", problem.words().as_bytes()),
        };
        match self.answer(&request) {
            Ok(Body::Text(kind, text)) => respond(&mut stream, 200, kind, text.as_bytes()),
            Ok(Body::Events) => self.events(&mut stream),
            Err(problem) => respond(&mut stream, problem.status(), "text/plain", problem.words().as_bytes()),
        }
    }

    fn answer(&self, request: &Request) -> Result<Body, Problem> {
        if !self.is_our_host(request.host()) {
            return Err(Problem::WrongHost);
        }
        let target = Target::of(&request.path).ok_or(Problem::NotFound)?;
        let is_allowed = match target {
            Target::Budget => request.method == "POST",
            _ => request.method == "GET",
        };
        if !is_allowed {
            return Err(Problem::WrongMethod);
        }
        if !target.is_open() && !request.bearer().is_some_and(|given| self.token.admits(given)) {
            return Err(Problem::NoToken);
        }
        match target {
            Target::Part(kind, text) => Ok(Body::Text(kind, Arc::from(text))),
            Target::Health => Ok(Body::Text("text/plain", Arc::from("ok\n"))),
            Target::Metrics => Ok(Body::Text(metrics::CONTENT_TYPE, Arc::clone(&self.seen().metrics))),
            Target::Pools => Ok(Body::Text("application/json", Arc::clone(&self.seen().json))),
            Target::Events => Ok(Body::Events),
            Target::Budget => self.budget(request),
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A change by hand: a JSON object with pool, pid and bytes.
    fn budget(&self, request: &Request) -> Result<Body, Problem> {
        #[derive(serde::Deserialize)]
        struct Change {
            pool: String,
            pid: u64,
            bytes: u64,
        }
        let kind = request.header("content-type").and_then(|kind| kind.split(';').next()).unwrap_or_default();
        if !kind.trim().eq_ignore_ascii_case("application/json") {
            return Err(Problem::WrongType);
        }
        let change: Change = serde_json::from_slice(&request.body).map_err(|_| Problem::Bad)?;
        self.pools.set_budget(&change.pool, change.pid, change.bytes).map_err(Problem::Refused)?;
        self.look();
        Ok(Body::Text("text/plain", Arc::from("done\n")))
    }

    /// Server-sent events: each look, as it comes, until the listener goes.
    fn events(&self, stream: &mut TcpStream) -> io::Result<()> {
        http::begin_events(stream)?;
        let mut number = 0;
        loop {
            let json = {
                let seen = self.seen();
                let wait = self.changed.wait_while(seen, |seen| seen.number == number);
                let seen = wait.unwrap_or_else(PoisonError::into_inner);
                number = seen.number;
                Arc::clone(&seen.json)
            };
            write!(stream, "data: {json}\n\n")?;
        }
    }

    fn is_our_host(&self, host: Option<&str>) -> bool {
        host.is_some_and(|host| is_of(self.address, host))
    }
}

/// Whether a request to `host` was meant for who listens at this address: by its address, or as localhost. Clients leave
/// out port 80.
fn is_of(ours: SocketAddr, host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()),
        _ => (host, Some(80)),
    };
    if port != Some(ours.port()) {
        return false;
    }
    let (is_any, ours) = (ours.ip().is_unspecified(), ours.ip());
    let address = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(name) => name.parse().ok().map(IpAddr::V6),
        None => name.parse().ok().map(IpAddr::V4),
    };
    name == "localhost" || address.is_some_and(|address| is_any || address == ours || both_loopback(address, ours))
}

fn both_loopback(one: IpAddr, other: IpAddr) -> bool {
    one.is_loopback() && other.is_loopback()
}

/// What there is to ask for.
enum Target {
    /// A part of the page: type and text.
    Part(&'static str, &'static str),
    Health,
    Metrics,
    Pools,
    Events,
    Budget,
}

impl Target {
    fn of(path: &str) -> Option<Target> {
        Some(match path {
            "/" => Target::Part("text/html; charset=utf-8", PAGE),
            "/page.js" => Target::Part("text/javascript; charset=utf-8", SCRIPT),
            "/page.css" => Target::Part("text/css; charset=utf-8", STYLE),
            "/uplot.js" => Target::Part("text/javascript; charset=utf-8", CHARTS),
            "/uplot.css" => Target::Part("text/css; charset=utf-8", CHART_STYLE),
            "/healthz" => Target::Health,
            "/metrics" => Target::Metrics,
            "/api/pools" => Target::Pools,
            "/api/events" => Target::Events,
            "/api/budget" => Target::Budget,
            _ => return None,
        })
    }

    /// Whether it says nothing of the pools, so that any user may have it.
    fn is_open(&self) -> bool {
        matches!(self, Target::Part(..) | Target::Health)
    }
}

/// What is answered.
enum Body {
    Text(&'static str, Arc<str>),
    Events,
}

#[cfg(test)]
mod tests {
    use super::is_of;

    #[test]
    fn a_host_is_ours_by_address_and_port_and_80_may_be_left_out() {
        let ours = |address: &str, host: &str| is_of(address.parse().expect("an address"), host);
        for host in ["127.0.0.1", "127.0.0.1:80", "localhost", "localhost:80", "[::1]", "[::1]:80"] {
            assert!(ours("127.0.0.1:80", host), "{host}");
            assert!(!ours("127.0.0.1:8080", host), "{host}");
        }
        assert!(ours("[::1]:80", "[::1]") && ours("[::1]:8080", "[::1]:8080") && ours("0.0.0.0:8080", "10.0.0.1:8080"));
        for host in ["evil.example", "evil.example:80", "10.0.0.1", "", ":", "::1", "[::1", "127.0.0.1:", "localhost:x"]
        {
            assert!(!ours("127.0.0.1:80", host), "{host}");
        }
    }
}
