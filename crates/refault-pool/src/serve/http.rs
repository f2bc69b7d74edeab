//! As much of HTTP/1.1 as the window needs: one request for each connection, read within bounds of size and time.
//!
//! The header is parsed by a crate. Servers at hand either have no bounds on slow senders or bring a runtime with them
//! that would be larger than all of this command.
//!
//! ```
//! use refault_pool::serve::http::{Problem, parse};
//!
//! let bytes = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer abc\r\n\r\n";
//! let request = parse(bytes)?.expect("it is whole");
//! assert_eq!((request.path.as_str(), request.host()), ("/metrics", Some("localhost")));
//! assert_eq!(request.bearer(), Some("abc"));
//! assert_eq!(parse(b"GET / HT")?, None); // more is to come
//! # Ok::<(), Problem>(())
//! ```

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Bytes of a request, header and body.
pub const MAX_REQUEST: usize = 16 << 10;
/// How long a request may take to arrive.
pub const WITHIN: Duration = Duration::from_secs(5);
const MAX_HEADERS: usize = 64;

/// What every answer says besides: nothing of another site's, in no frame, kept nowhere.
const ALWAYS: &str = "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
    Referrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\nContent-Security-Policy: default-src 'none'; \
    script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'\r\n";

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// GET, POST and others.
    pub method: String,
    /// Without what follows `?`.
    pub path: String,
    /// Names in small letters.
    headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Why a request is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It is none.
    Bad,
    /// It did not arrive in time.
    Slow,
    /// It is too long.
    TooLong,
    /// There is nothing of that name.
    NotFound,
    /// It is not to be had that way.
    WrongMethod,
    /// It was meant for another host.
    WrongHost,
    /// The token is missing or wrong.
    NoToken,
    /// Its body is of another type than is taken.
    WrongType,
    /// The pool says no.
    Refused(String),
}

impl Problem {
    /// The status code.
    pub fn status(&self) -> u16 {
        match self {
            Problem::Bad => 400,
            Problem::Slow => 408,
            Problem::TooLong => 413,
            Problem::NotFound => 404,
            Problem::WrongMethod => 405,
            Problem::WrongHost => 421,
            Problem::NoToken => 401,
            Problem::WrongType => 415,
            Problem::Refused(_) => 409,
        }
    }

    /// The same for people.
    pub fn words(&self) -> String {
        let words = match self {
            Problem::Bad => "not a request\n",
            Problem::Slow => "the request took too long\n",
            Problem::TooLong => "the request is too long\n",
            Problem::NotFound => "there is nothing here\n",
            Problem::WrongMethod => "not this way\n",
            Problem::WrongHost => "the Host is not the one that is listened at\n",
            Problem::NoToken => {
                "the token is missing or wrong: open the address that refault serve printed, or send Authorization: \
                 Bearer and what its token file holds\n"
            }
            Problem::WrongType => "the body has to be application/json\n",
            Problem::Refused(why) => return format!("{why}\n"),
        };
        words.to_owned()
    }
}

impl Request {
    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The host that it was meant for; none if it names several.
    pub fn host(&self) -> Option<&str> {
        let hosts = self.headers.iter().filter(|(name, _)| name == "host").count();
        self.header("host").filter(|_| hosts == 1)
    }

    /// The token that it shows: `Authorization: Bearer TOKEN`, once.
    pub fn bearer(&self) -> Option<&str> {
        let mut shown = self.headers.iter().filter(|(name, _)| name == "authorization");
        let (Some((_, value)), None) = (shown.next(), shown.next()) else { return None };
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    }
}

/// Reads a request.
///
/// # Errors
/// See [`Problem`].
pub fn read(stream: &mut TcpStream) -> Result<Request, Problem> {
    let until = Instant::now() + WITHIN;
    let mut bytes = Vec::new();
    loop {
        if let Some(request) = parse(&bytes)? {
            return Ok(request);
        }
        if bytes.len() >= MAX_REQUEST {
            return Err(Problem::TooLong);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return Err(Problem::Slow);
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece) {
            Ok(0) => return Err(Problem::Bad),
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(Problem::Slow);
            }
            Err(_) => return Err(Problem::Bad),
        }
    }
}

/// The request in these bytes, or that more are needed.
///
/// # Errors
/// See [`Problem`].
pub fn parse(bytes: &[u8]) -> Result<Option<Request>, Problem> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let length = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Problem::TooLong),
        Err(_) => return Err(Problem::Bad),
    };
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Problem::Bad);
    let target = parsed.path.ok_or(Problem::Bad)?;
    let (path, _) = target.split_once('?').unwrap_or((target, ""));
    let mut request =
        Request { method: parsed.method.ok_or(Problem::Bad)?.to_owned(), path: path.to_owned(), ..Request::default() };
    for header in parsed.headers.iter() {
        request.headers.push((header.name.to_ascii_lowercase(), text(header.value)?));
    }
    if request.header("transfer-encoding").is_some() {
        return Err(Problem::Bad);
    }
    let lengths: Vec<&str> =
        request.headers.iter().filter(|(name, _)| name == "content-length").map(|(_, value)| value.as_str()).collect();
    let body: usize = match lengths[..] {
        [] => 0,
        [length] => length.parse().map_err(|_| Problem::Bad)?,
        _ => return Err(Problem::Bad),
    };
    if body > MAX_REQUEST {
        return Err(Problem::TooLong);
    }
    if bytes.len() < length + body {
        return Ok(None);
    }
    request.body = bytes[length..length + body].to_vec();
    Ok(Some(request))
}

/// Writes an answer.
///
/// # Errors
/// Who asked is gone, or does not read.
pub fn respond(stream: &mut TcpStream, status: u16, kind: &str, body: &[u8]) -> io::Result<()> {
    // By RFC 9110 such an answer says how to be let in.
    let challenge = if status == 401 { "WWW-Authenticate: Bearer realm=\"refault\"\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{challenge}{ALWAYS}\r\n",
        reason(status),
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}

/// Begins an answer of server-sent events.
///
/// # Errors
/// As [`respond`].
pub fn begin_events(stream: &mut TcpStream) -> io::Result<()> {
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{ALWAYS}\r\nretry: 1000\n\n")
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        _ => "Misdirected Request",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_whole_or_awaited_or_refused() {
        let whole = b"POST /a?token=x&b=1 HTTP/1.1\r\nHost: localhost:1\r\nContent-Length: 3\r\n\r\nabc";
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length]), Ok(None), "{length}");
        }
        let request = parse(whole).expect("well-formed").expect("whole");
        assert_eq!((request.method.as_str(), request.path.as_str(), &request.body[..]), ("POST", "/a", &b"abc"[..]));
        assert_eq!(request.host(), Some("localhost:1"));
        assert_eq!(request.bearer(), None, "addresses are kept in logs and show no token");
        for (header, bearer) in [
            ("Authorization: Bearer x", Some("x")),
            ("authorization: BEARER  x ", Some("x")),
            ("Authorization: Basic x", None),
            ("Authorization: x", None),
            ("Authorization: Bearer x\r\nAuthorization: Bearer y", None),
        ] {
            let text = format!("GET / HTTP/1.1\r\n{header}\r\n\r\n");
            assert_eq!(parse(text.as_bytes()).expect("well-formed").expect("whole").bearer(), bearer, "{header}");
        }
        for (bad, problem) in [
            ("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", Problem::Bad),
            ("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", Problem::Bad),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", Problem::Bad),
            ("GET / HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n", Problem::TooLong),
            ("\0\u{1}nonsense\r\n\r\n", Problem::Bad),
        ] {
            assert_eq!(parse(bad.as_bytes()), Err(problem), "{bad:?}");
        }
        let twice = parse(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").expect("well-formed").expect("whole");
        assert_eq!(twice.host(), None);
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(65));
        assert_eq!(parse(many.as_bytes()), Err(Problem::TooLong));
    }
}
