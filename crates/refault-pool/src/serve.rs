//! A window on pools: one page in a browser, live, and `/metrics` for Prometheus.
//!
//! Loopback unless told otherwise. What the pools hold is shown and changed by the token alone ([`token`]), at loopback
//! too: any user of the machine can connect there. Without it a client gets the page's own parts, which are the same
//! everywhere, and a line that says that the window works. A request is served if its Host is the one that is listened
//! at. So a page of another site cannot reach it by a name of its own. No other site may read an answer (no CORS) or
//! send the token. The page and its charts are in the binary; it loads nothing from elsewhere.
//!
//! Invariants: a request takes at most [`http::WITHIN`] to arrive, and an answer [`answer::WITHIN`] to be read. One
//! client ([`peer`]) has a share of the places ([`traffic`]) and cannot take those of others. Cost: the pools are asked
//! once per second, however many look; a thread with a small stack for each connection.
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
//!     fn history(&self) -> String {
//!         "[]".into()
//!     }
//!     fn set_budget(&self, pool: &str, _: u64, _: Option<u64>) -> Result<(), String> {
//!         Err(format!("there is no pool '{pool}'"))
//!     }
//! }
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let window = Window::new(None, listener.local_addr()?, Token::draw()?);
//! window.run(listener, &AtomicBool::new(true))?; // it was asked to end already
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod accept;
pub mod answer;
pub mod farewell;
pub mod host;
pub mod http;
pub mod metrics;
pub mod peer;
pub mod problem;
pub mod target;
pub mod token;
pub mod traffic;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use accept::Text;
use answer::Answer;
use farewell::Farewell;
use http::Request;
use peer::Peer;
use problem::Problem;
use target::{METHODS, Target};
use token::Token;
use traffic::{Kind, Traffic};

use crate::connections::{Place, Threads, serve_each};
use crate::shared::protocol::Status;

/// Between two looks at the pools.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is shown and changed: the pools, as the caller reaches them.
pub trait Pools: Send + Sync + 'static {
    /// How all pools are.
    fn statuses(&self) -> Vec<Status>;
    /// The same as the page reads them.
    fn json(&self, statuses: &[Status]) -> String;
    /// How members were in the last minutes, as the page reads it.
    fn history(&self) -> String;
    /// The groups of the host, as their page reads them; none if they are not looked at.
    fn host(&self) -> Option<String> {
        None
    }
    /// The same for Prometheus.
    fn groups(&self) -> Vec<metrics::GroupFigures> {
        Vec::new()
    }
    /// Sets a member's budget in bytes, or lifts it.
    ///
    /// # Errors
    /// Says why not.
    fn set_budget(&self, pool: &str, pid: u64, bytes: Option<u64>) -> Result<(), String>;
}

/// What was seen last.
#[derive(Default)]
struct Seen {
    number: u64,
    json: Arc<str>,
    /// In Prometheus's own text, and as OpenMetrics.
    metrics: [Arc<str>; 2],
}

/// The window.
pub struct Window<P> {
    pools: P,
    address: SocketAddr,
    /// What requests must show that see or change a pool.
    token: Token,
    traffic: Traffic,
    seen: Mutex<Seen>,
    changed: Condvar,
}

impl<P: Pools> Window<P> {
    /// A window at an address, for who knows the token.
    pub fn new(pools: P, address: SocketAddr, token: Token) -> Arc<Window<P>> {
        let (traffic, seen, changed) = Default::default();
        Arc::new(Window { pools, address, token, traffic, seen, changed })
    }

    /// Serves until it is asked to end.
    ///
    /// # Errors
    /// The listener cannot be served.
    pub fn run(self: &Arc<Self>, listener: TcpListener, asked: &AtomicBool) -> io::Result<()> {
        self.look();
        let (window, farewell) = (Arc::clone(self), Arc::new(Farewell::new()?));
        std::thread::Builder::new().name("listener".into()).spawn(move || {
            let threads = Threads { name: "request", stack_bytes: 128 << 10 };
            let (serving, last) = (Arc::clone(&window), Arc::clone(&farewell));
            let refuse = |mut stream: TcpStream, full| {
                let problem = window.traffic.refused(Kind::Request, full);
                // It fits into what the kernel holds for who has not read yet, so nothing waits for it.
                if window.say(&mut stream, &Answer::problem(&problem), false).is_ok() {
                    farewell.end(stream);
                }
            };
            serve_each(
                listener.incoming(),
                &threads,
                &window.traffic.requests,
                Peer::of,
                refuse,
                move |stream, place| serving.serve(stream, place, &last),
            );
        })?;
        while !asked.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK_EVERY);
            self.look();
        }
        Ok(())
    }

    fn look(&self) {
        let statuses = self.pools.statuses();
        let metrics = metrics::open(&statuses, &self.pools.groups(), &self.traffic.figures());
        let metrics = [metrics::plain(&metrics).into(), metrics.into()];
        let json = self.pools.json(&statuses).into();
        let mut seen = self.seen();
        *seen = Seen { number: seen.number + 1, json, metrics };
        self.changed.notify_all();
    }

    fn serve(&self, mut stream: TcpStream, place: Place<Peer>, farewell: &Farewell) -> io::Result<()> {
        let mut arrived = Vec::new();
        let request = http::read(&mut stream, &mut arrived, |request| self.target(request).map(drop));
        let is_head_alone = http::asks_for_head(&arrived);
        let mut answer =
            request.and_then(|request| self.answer(&request)).unwrap_or_else(|problem| Answer::problem(&problem));
        if answer.is_events() && !is_head_alone {
            match self.traffic.stream_for(place) {
                Ok(_place) => {
                    self.say(&mut stream, &answer, false)?;
                    return self.events(&mut stream);
                }
                Err(problem) => answer = Answer::problem(&problem),
            }
        }
        self.say(&mut stream, &answer, is_head_alone)?;
        // A further request, or what is left of this one, may be on its way.
        farewell.end(stream);
        Ok(())
    }

    fn say(&self, stream: &mut TcpStream, answer: &Answer, is_head_alone: bool) -> io::Result<()> {
        self.traffic.answered(answer.status);
        answer.write(stream, is_head_alone)
    }

    /// What a request asks for, if its header may ask for that.
    fn target(&self, request: &Request) -> Result<Target, Problem> {
        if request.host().is_some_and(|host| !host::is_of(self.address, host)) {
            return Err(Problem::WrongHost);
        }
        if !METHODS.contains(&request.method.as_str()) {
            return Err(Problem::UnknownMethod);
        }
        let target = Target::of(&request.path).ok_or(Problem::NotFound)?;
        if !target.allows(&request.method) {
            return Err(Problem::WrongMethod(target.allowed()));
        }
        let is_asked_about = request.method == "OPTIONS";
        let is_known = || request.bearer().is_some_and(|given| self.token.admits(given));
        if !is_asked_about && !target.is_open() && !is_known() {
            return Err(Problem::NoToken);
        }
        let kind = request.header("content-type").and_then(|kind| kind.split(';').next()).unwrap_or_default();
        if !is_asked_about && target == Target::Budget && !kind.trim().eq_ignore_ascii_case("application/json") {
            return Err(Problem::WrongType);
        }
        Ok(target)
    }

    fn answer(&self, request: &Request) -> Result<Answer, Problem> {
        let target = self.target(request)?;
        if request.method == "OPTIONS" {
            return Ok(Answer::empty(204).with("Allow", target.allowed()));
        }
        match target {
            // Of the server as a whole only its options are asked.
            Target::Server => Err(Problem::WrongMethod(target.allowed())),
            Target::Part(kind, text) => Ok(Answer::text(200, kind, text)),
            Target::Health => Ok(Answer::text(200, "text/plain", "ok\n")),
            Target::Metrics => Ok(self.metrics(request)),
            Target::Pools => Ok(Answer::text(200, "application/json", Arc::clone(&self.seen().json))),
            Target::History => Ok(Answer::text(200, "application/json", self.pools.history())),
            Target::Host => {
                let host = self.pools.host().ok_or(Problem::NotFound)?;
                Ok(Answer::text(200, "application/json", host))
            }
            Target::Events => Ok(Answer::events()),
            Target::Budget => self.budget(request),
        }
    }

    fn metrics(&self, request: &Request) -> Answer {
        let text = Text::asked_for(&request.values("accept").collect::<Vec<_>>().join(","));
        let [plain, open] = self.seen().metrics.clone();
        let body = if text == Text::Prometheus { plain } else { open };
        Answer::text(200, text.content_type(), body).with("Vary", "Accept")
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A change by hand: a JSON object with pool, pid and bytes, which are null to lift a budget.
    fn budget(&self, request: &Request) -> Result<Answer, Problem> {
        use serde::Deserialize;

        #[derive(Deserialize)]
        struct Change {
            pool: String,
            pid: u64,
            // Left out it is a mistake, not null.
            #[serde(deserialize_with = "Option::deserialize")]
            bytes: Option<u64>,
        }
        let change: Change = serde_json::from_slice(&request.body).map_err(|_| Problem::BadBody)?;
        self.pools.set_budget(&change.pool, change.pid, change.bytes).map_err(Problem::Refused)?;
        self.look();
        Ok(Answer::text(200, "text/plain", "done\n"))
    }

    /// Server-sent events: each look, as it comes, until the listener goes.
    fn events(&self, stream: &mut TcpStream) -> io::Result<()> {
        answer::write_in_time(stream, b"retry: 1000\n\n")?;
        let mut number = 0;
        loop {
            let json = {
                let seen = self.seen();
                let wait = self.changed.wait_while(seen, |seen| seen.number == number);
                let seen = wait.unwrap_or_else(PoisonError::into_inner);
                number = seen.number;
                Arc::clone(&seen.json)
            };
            answer::write_in_time(stream, format!("data: {json}\n\n").as_bytes())?;
        }
    }
}
