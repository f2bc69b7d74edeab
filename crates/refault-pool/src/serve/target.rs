//! What there is to ask for, by which methods, and by whom.
//!
//! ```
//! use refault_pool::serve::target::Target;
//!
//! let target = Target::of("/metrics/").expect("a slash more does not matter");
//! assert_eq!((target.allowed(), target.is_open()), ("GET, HEAD, OPTIONS", false));
//! ```

use super::http::SERVER;

const PAGE: &str = include_str!("page/index.html");
const SCRIPT: &str = include_str!("page/page.js");
const HOST: &str = include_str!("page/host.html");
const HOST_SCRIPT: &str = include_str!("page/host.js");
const STYLE: &str = include_str!("page/page.css");
const CHARTS: &str = include_str!("page/uplot.js");
const CHART_STYLE: &str = include_str!("page/uplot.css");

/// Methods that RFC 9110 and RFC 5789 name.
pub const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The server as a whole.
    Server,
    /// A part of the page: type and text.
    Part(&'static str, &'static str),
    /// That the window works.
    Health,
    /// Figures for Prometheus.
    Metrics,
    /// The pools.
    Pools,
    /// The same, as they change.
    Events,
    /// How their members were in the last minutes.
    History,
    /// The host's groups.
    Host,
    /// A member's budget.
    Budget,
}

impl Target {
    /// What is at a path.
    pub fn of(path: &str) -> Option<Target> {
        Some(match path.strip_suffix('/').unwrap_or(path) {
            SERVER => Target::Server,
            "" => Target::Part("text/html; charset=utf-8", PAGE),
            "/page.js" => Target::Part("text/javascript; charset=utf-8", SCRIPT),
            "/host" => Target::Part("text/html; charset=utf-8", HOST),
            "/host.js" => Target::Part("text/javascript; charset=utf-8", HOST_SCRIPT),
            "/page.css" => Target::Part("text/css; charset=utf-8", STYLE),
            "/uplot.js" => Target::Part("text/javascript; charset=utf-8", CHARTS),
            "/uplot.css" => Target::Part("text/css; charset=utf-8", CHART_STYLE),
            "/healthz" => Target::Health,
            "/metrics" => Target::Metrics,
            "/api/pools" => Target::Pools,
            "/api/events" => Target::Events,
            "/api/history" => Target::History,
            "/api/host" => Target::Host,
            "/api/budget" => Target::Budget,
            _ => return None,
        })
    }

    /// The methods that it takes, as `Allow` lists them.
    pub fn allowed(self) -> &'static str {
        match self {
            Target::Server => "GET, HEAD, OPTIONS, POST",
            Target::Budget => "OPTIONS, POST",
            _ => "GET, HEAD, OPTIONS",
        }
    }

    /// Whether it takes this one.
    pub fn allows(self, method: &str) -> bool {
        match self {
            Target::Server => method == "OPTIONS",
            _ => self.allowed().split(", ").any(|allowed| allowed == method),
        }
    }

    /// Whether it says nothing of the pools, so that any user may have it.
    pub fn is_open(self) -> bool {
        matches!(self, Target::Server | Target::Part(..) | Target::Health)
    }
}
