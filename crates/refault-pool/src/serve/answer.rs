//! Answers: a head, and a body unless it was asked for the head alone.
//!
//! Each is the last of its connection, is kept in no cache, and may be shown in no frame nor load anything of another
//! site's. A client that does not read is cut off after [`WITHIN`].
//!
//! ```
//! use refault_pool::serve::answer::Answer;
//!
//! let answer = Answer::text(200, "text/plain", "ok\n");
//! let head = answer.head(std::time::UNIX_EPOCH);
//! assert!(head.starts_with("HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n"));
//! assert!(head.contains("\r\nContent-Length: 3\r\n") && head.ends_with("\r\n\r\n"));
//! ```

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::problem::Problem;

/// How long an answer may take to be read, an event of a stream too.
pub const WITHIN: Duration = Duration::from_secs(5);
/// The type of a stream of events.
const EVENTS: &str = "text/event-stream";

/// What every answer says besides.
const ALWAYS: &str = "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
    Referrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\nContent-Security-Policy: default-src 'none'; \
    script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'\r\n";

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its code.
    pub status: u16,
    /// Headers of its own, names and values.
    headers: Vec<(&'static str, String)>,
    body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Body {
    /// None, and none would be had otherwise.
    None,
    /// Type and text.
    Text(&'static str, Arc<str>),
    /// Events until one side goes.
    Events,
}

impl Answer {
    /// An answer with a body.
    pub fn text(status: u16, kind: &'static str, text: impl Into<Arc<str>>) -> Answer {
        Answer { status, headers: Vec::new(), body: Body::Text(kind, text.into()) }
    }

    /// An answer without one.
    pub fn empty(status: u16) -> Answer {
        Answer { status, headers: Vec::new(), body: Body::None }
    }

    /// The beginning of a stream of events.
    pub fn events() -> Answer {
        Answer { status: 200, headers: Vec::new(), body: Body::Events }
    }

    /// Says why a request is not served.
    pub fn problem(problem: &Problem) -> Answer {
        let answer = Answer::text(problem.status(), "text/plain; charset=utf-8", problem.words());
        problem.headers().into_iter().fold(answer, |answer, (name, value)| answer.with(name, value))
    }

    /// The same with a header.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        self.headers.push((name, value.into()));
        self
    }

    /// Whether events are to follow.
    pub fn is_events(&self) -> bool {
        self.body == Body::Events
    }

    /// Its head, at a time of day.
    pub fn head(&self, now: SystemTime) -> String {
        let date = httpdate::fmt_http_date(now);
        let mut head = format!("HTTP/1.1 {} {}\r\nDate: {date}\r\n", self.status, reason(self.status));
        // Writing to a string does not fail.
        let _ = match &self.body {
            Body::None => Ok(()),
            Body::Text(kind, text) => write!(head, "Content-Type: {kind}\r\nContent-Length: {}\r\n", text.len()),
            Body::Events => write!(head, "Content-Type: {EVENTS}\r\n"),
        };
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str(ALWAYS);
        head.push_str("\r\n");
        head
    }

    /// Writes it, without the body if it was asked for the head alone.
    ///
    /// # Errors
    /// Who asked is gone, or does not read in time.
    pub fn write(&self, stream: &mut TcpStream, is_head_alone: bool) -> io::Result<()> {
        let mut bytes = self.head(SystemTime::now()).into_bytes();
        if let (Body::Text(_, text), false) = (&self.body, is_head_alone) {
            bytes.extend_from_slice(text.as_bytes());
        }
        write_in_time(stream, &bytes)
    }
}

/// Writes all within [`WITHIN`], however slowly it is read.
///
/// # Errors
/// Who asked is gone, or does not read in time.
pub fn write_in_time(stream: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let until = Instant::now() + WITHIN;
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What a code is called.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_has_a_name_words_and_what_its_code_asks_for() {
        for problem in Problem::all() {
            let head = Answer::problem(&problem).head(SystemTime::now());
            let (first, rest) = head.split_once("\r\n").expect("lines");
            assert!(first.len() > "HTTP/1.1 400 ".len(), "{first}");
            let has = |name: &str| rest.contains(&format!("\r\n{name}: "));
            assert_eq!(problem.status() == 401, has("WWW-Authenticate"), "{head}");
            assert_eq!(problem.status() == 405, has("Allow"), "{head}");
            assert_eq!(problem.status() == 503, has("Retry-After"), "{head}");
            assert!(problem.words().ends_with('\n') && !problem.words().trim().contains('\n'));
        }
    }
}
