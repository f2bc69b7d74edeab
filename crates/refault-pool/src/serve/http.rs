//! As much of HTTP/1.1 as the window needs: one request for each connection, read within bounds of size and time.
//!
//! The header is parsed by a crate. Servers at hand either have no bounds on slow senders or bring a runtime with them
//! that would be larger than all of this command. What is refused is refused with the code that RFC 9110 and RFC 9112
//! name.
//!
//! ```
//! use refault_pool::serve::http::parse;
//! use refault_pool::serve::problem::Problem;
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

use super::host;
use super::problem::Problem;

/// Bytes of a request's header, and of its body.
pub const MAX_REQUEST: usize = 16 << 10;
/// How long a request may take to arrive.
pub const WITHIN: Duration = Duration::from_secs(5);
const MAX_HEADERS: usize = 64;
/// What is said to who asks before it sends a body.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// The path of a request that concerns the server as a whole.
pub const SERVER: &str = "*";

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// GET, POST and others.
    pub method: String,
    /// Without what follows `?`; [`SERVER`] if it names none.
    pub path: String,
    host: Option<String>,
    /// Names in small letters.
    headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// A request of which the header has arrived.
struct Head {
    request: Request,
    /// Bytes of the header.
    length: usize,
    /// Bytes of the body.
    body: usize,
    /// It sends the body when it was told to.
    waits: bool,
}

impl Request {
    /// A header that it has once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.values(name);
        values.next().filter(|_| values.next().is_none())
    }

    /// All headers of a name.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        self.headers.iter().filter(move |(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The host that it was meant for. A request by HTTP/1.0 may leave that out.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// The token that it shows: `Authorization: Bearer TOKEN`, once.
    pub fn bearer(&self) -> Option<&str> {
        let (scheme, token) = self.header("authorization")?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    }
}

/// Reads a request. What has arrived is left in `bytes`, of a request that is refused too. Who waits to be told before it
/// sends a body is told to go on unless `judge` finds a problem in the header (RFC 9110 §10.1.1).
///
/// # Errors
/// See [`Problem`].
pub fn read(
    stream: &mut TcpStream,
    bytes: &mut Vec<u8>,
    judge: impl Fn(&Request) -> Result<(), Problem>,
) -> Result<Request, Problem> {
    let until = Instant::now() + WITHIN;
    let mut was_told = false;
    loop {
        let head = Head::parse(bytes)?;
        if let Some(head) = head {
            if bytes.len() >= head.length + head.body {
                return Ok(head.with_body(bytes));
            }
            if head.waits && !was_told && bytes.len() == head.length {
                was_told = true;
                judge(&head.request)?;
                stream.write_all(CONTINUE).map_err(|_| Problem::Bad)?;
            }
        } else if bytes.len() >= MAX_REQUEST {
            let is_first_line = !bytes.trim_ascii_start().contains(&b'\n');
            return Err(if is_first_line { Problem::TargetTooLong } else { Problem::HeaderTooLong });
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

/// Whether what has arrived asks for the head alone, though it may be no request: its answer has no body (RFC 9110 §9.3.2).
pub fn asks_for_head(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().starts_with(b"HEAD ")
}

/// The request in these bytes, or that more are needed.
///
/// # Errors
/// See [`Problem`].
pub fn parse(bytes: &[u8]) -> Result<Option<Request>, Problem> {
    let head = Head::parse(bytes)?.filter(|head| bytes.len() >= head.length + head.body);
    Ok(head.map(|head| head.with_body(bytes)))
}

impl Head {
    fn parse(bytes: &[u8]) -> Result<Option<Head>, Problem> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        let length = match parsed.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err(Problem::HeaderTooLong),
            Err(httparse::Error::Version) => {
                return match version_at(bytes) {
                    // A later minor version is served as the latest that is known (RFC 9110 §2.5).
                    Some(at) if bytes[at] == b'1' && !matches!(bytes[at + 2], b'0' | b'1') => {
                        let mut known = bytes.to_vec();
                        known[at + 2] = b'1';
                        Head::parse(&known)
                    }
                    Some(_) => Err(Problem::UnknownVersion),
                    None => Err(Problem::Bad),
                };
            }
            Err(_) => return Err(Problem::Bad),
        };
        if length > MAX_REQUEST {
            return Err(Problem::HeaderTooLong);
        }
        let mut request = Request { method: parsed.method.ok_or(Problem::Bad)?.to_owned(), ..Request::default() };
        for header in parsed.headers.iter() {
            let value = String::from_utf8_lossy(header.value).into_owned();
            request.headers.push((header.name.to_ascii_lowercase(), value));
        }
        let is_1_1 = parsed.version == Some(1);
        let host = request.host_named(is_1_1)?;
        let (path, authority) = target(&request.method, parsed.path.ok_or(Problem::Bad)?)?;
        // What the target says goes before the header (RFC 9112 §3.2.2).
        (request.path, request.host) = (path, authority.or(host));
        let body = request.body_length(is_1_1)?;
        let mut expected = request.values("expect").filter(|_| is_1_1).peekable();
        let waits = expected.peek().is_some();
        if !expected.all(|what| what.eq_ignore_ascii_case("100-continue")) {
            return Err(Problem::UnknownExpectation);
        }
        drop(expected);
        Ok(Some(Head { request, length, body, waits }))
    }

    fn with_body(self, bytes: &[u8]) -> Request {
        Request { body: bytes[self.length..self.length + self.body].to_vec(), ..self.request }
    }
}

impl Request {
    /// What `Host` says: one, and a valid one (RFC 9112 §3.2).
    fn host_named(&self, is_needed: bool) -> Result<Option<String>, Problem> {
        let hosts: Vec<&str> = self.values("host").collect();
        match hosts[..] {
            [] if !is_needed => Ok(None),
            [one] if host::is_valid(one) => Ok(Some(one.to_owned())),
            _ => Err(Problem::Bad),
        }
    }

    /// Bytes of its body (RFC 9112 §6). Where two headers could be read in two ways, neither is.
    fn body_length(&self, is_1_1: bool) -> Result<usize, Problem> {
        let lengths: Vec<&str> = self.values("content-length").collect();
        let codings: Vec<&str> = self.values("transfer-encoding").collect();
        match (&lengths[..], &codings[..]) {
            ([], []) => Ok(0),
            ([], [coding]) if is_1_1 && coding.eq_ignore_ascii_case("chunked") => Err(Problem::NoLength),
            ([], [_]) if is_1_1 => Err(Problem::UnknownCoding),
            ([length], []) if !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit()) => {
                let length = length.parse().ok().filter(|length| *length <= MAX_REQUEST);
                length.ok_or(Problem::BodyTooLong)
            }
            _ => Err(Problem::Bad),
        }
    }
}

/// Path and authority of a request's target (RFC 9112 §3.2).
fn target(method: &str, text: &str) -> Result<(String, Option<String>), Problem> {
    if !text.is_ascii() || text.contains('#') {
        return Err(Problem::Bad);
    }
    let path_of = |text: &str| unescaped(text.split('?').next().unwrap_or_default());
    if method == "CONNECT" {
        return host::is_valid(text).then(|| (SERVER.to_owned(), Some(text.to_owned()))).ok_or(Problem::Bad);
    }
    if text == SERVER {
        return if method == "OPTIONS" { Ok((SERVER.to_owned(), None)) } else { Err(Problem::Bad) };
    }
    if text.starts_with('/') {
        return Ok((path_of(text), None));
    }
    let (scheme, rest) = text.split_once("://").ok_or(Problem::Bad)?;
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if !host::is_valid(authority) {
        return Err(Problem::Bad);
    }
    if scheme.eq_ignore_ascii_case("https") {
        return Err(Problem::WrongHost);
    }
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(Problem::Bad);
    }
    let path = match path_of(path).as_str() {
        "" if method == "OPTIONS" && path.is_empty() => SERVER.to_owned(),
        "" => "/".to_owned(),
        path => path.to_owned(),
    };
    Ok((path, Some(authority.to_owned())))
}

/// Where the first line has its version, if it is one of HTTP: `1.1` begins there.
fn version_at(bytes: &[u8]) -> Option<usize> {
    let start = bytes.len() - bytes.trim_ascii_start().len();
    let line = bytes[start..].split(|byte| *byte == b'\n').next()?.trim_ascii_end();
    let parts: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let [_, _, version] = parts[..] else { return None };
    let number = version.strip_prefix(b"HTTP/")?;
    let is_number = matches!(number, [major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit());
    is_number.then_some(start + line.len() - number.len())
}

/// A path with what need not be escaped as itself: both are the same (RFC 9110 §4.2.3). All else stays.
fn unescaped(path: &str) -> String {
    let mut parts = path.split('%');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let byte = part.get(..2).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match byte.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                plain.push(char::from(byte));
                plain.push_str(&part[2..]);
            }
            _ => {
                plain.push('%');
                plain.push_str(part);
            }
        }
    }
    plain
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
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{header}\r\n\r\n");
            assert_eq!(parse(text.as_bytes()).expect("well-formed").expect("whole").bearer(), bearer, "{header}");
        }
        for (bad, problem) in [
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", Problem::Bad),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999\r\n\r\n", Problem::BodyTooLong),
            ("\0\u{1}nonsense\r\n\r\n", Problem::Bad),
        ] {
            assert_eq!(parse(bad.as_bytes()), Err(problem), "{bad:?}");
        }
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(64));
        assert_eq!(parse(many.as_bytes()), Err(Problem::HeaderTooLong));
    }

    #[test]
    fn the_target_goes_before_the_host() {
        for (line, path, host) in [
            ("GET http://b:1/x?y HTTP/1.1", "/x", "b:1"),
            ("GET HTTP://b HTTP/1.1", "/", "b"),
            ("GET http://b?x HTTP/1.1", "/", "b"),
            ("OPTIONS http://b HTTP/1.1", "*", "b"),
            ("OPTIONS * HTTP/1.1", "*", "a"),
            ("GET //b/x HTTP/1.1", "//b/x", "a"),
            ("CONNECT b:80 HTTP/1.1", "*", "b:80"),
            ("GET /%6detr%69cs%2Fx%zz%4?%61 HTTP/1.1", "/metrics%2Fx%zz%4", "a"),
            ("GET /x HTTP/1.2", "/x", "a"),
            ("\r\nGET /x HTTP/1.9", "/x", "a"),
        ] {
            let text = format!("{line}\r\nHost: a\r\n\r\n");
            let request = parse(text.as_bytes()).expect("well-formed").expect("whole");
            assert_eq!((request.path.as_str(), request.host()), (path, Some(host)), "{line}");
        }
    }
}
