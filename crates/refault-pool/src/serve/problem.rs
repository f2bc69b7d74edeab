//! Why a request is not served: the code, words for people, and the headers that RFC 9110 asks for with the code.
//!
//! ```
//! use refault_pool::serve::problem::Problem;
//!
//! let problem = Problem::WrongMethod("GET, HEAD, OPTIONS");
//! assert_eq!((problem.status(), problem.headers()), (405, vec![("Allow", "GET, HEAD, OPTIONS")]));
//! ```

/// Seconds after which a client that found no place may try again.
const RETRY_AFTER: &str = "1";

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It is none.
    Bad,
    /// Its body does not say what is to be changed.
    BadBody,
    /// It did not arrive in time.
    Slow,
    /// Its first line is too long.
    TargetTooLong,
    /// Its header is too long.
    HeaderTooLong,
    /// Its body is too long.
    BodyTooLong,
    /// Its body has no length of its own.
    NoLength,
    /// Its body is coded in a way that is not known here.
    UnknownCoding,
    /// It expects what is not known here.
    UnknownExpectation,
    /// It is of another version of HTTP.
    UnknownVersion,
    /// Its method is none that is known.
    UnknownMethod,
    /// There is nothing of that name.
    NotFound,
    /// It is had by these methods alone.
    WrongMethod(&'static str),
    /// It was meant for another host.
    WrongHost,
    /// The token is missing or wrong.
    NoToken,
    /// Its body is of another type than is taken.
    WrongType,
    /// The pool says no.
    Refused(String),
    /// All places are taken.
    Full,
    /// This client has all the places that one may have.
    ClientFull,
}

impl Problem {
    /// The status code.
    pub fn status(&self) -> u16 {
        match self {
            Problem::Bad | Problem::BadBody => 400,
            Problem::NoToken => 401,
            Problem::NotFound => 404,
            Problem::WrongMethod(_) => 405,
            Problem::Slow => 408,
            Problem::Refused(_) => 409,
            Problem::NoLength => 411,
            Problem::BodyTooLong => 413,
            Problem::TargetTooLong => 414,
            Problem::WrongType => 415,
            Problem::UnknownExpectation => 417,
            Problem::WrongHost => 421,
            Problem::HeaderTooLong => 431,
            Problem::UnknownCoding | Problem::UnknownMethod => 501,
            Problem::Full | Problem::ClientFull => 503,
            Problem::UnknownVersion => 505,
        }
    }

    /// Headers that belong to the code.
    pub fn headers(&self) -> Vec<(&'static str, &'static str)> {
        match self {
            Problem::NoToken => vec![("WWW-Authenticate", "Bearer realm=\"refault\"")],
            Problem::WrongMethod(allowed) => vec![("Allow", allowed)],
            Problem::Full | Problem::ClientFull => vec![("Retry-After", RETRY_AFTER)],
            _ => Vec::new(),
        }
    }

    /// The same for people.
    pub fn words(&self) -> String {
        let words = match self {
            Problem::Bad => "this is no request of HTTP/1.1",
            Problem::BadBody => "the body has to be an object of pool, pid and bytes (null lifts a budget)",
            Problem::Slow => "the request took too long",
            Problem::TargetTooLong => "the address is too long",
            Problem::HeaderTooLong => "the header is too long",
            Problem::BodyTooLong => "the body is too long",
            Problem::NoLength => "the body needs a Content-Length",
            Problem::UnknownCoding => "the body's coding is not known here: send it as it is",
            Problem::UnknownExpectation => "nothing but 100-continue can be expected",
            Problem::UnknownVersion => "only HTTP/1.1 and 1.0 are spoken here",
            Problem::UnknownMethod => "the method is not known here",
            Problem::NotFound => "there is nothing here",
            Problem::WrongMethod(allowed) => return format!("this takes {allowed} alone\n"),
            Problem::WrongHost => "the Host is not the one that is listened at",
            Problem::NoToken => {
                "the token is missing or wrong: open the address that refault serve printed, or send Authorization: \
                 Bearer and what its token file holds"
            }
            Problem::WrongType => "the body has to be application/json",
            Problem::Refused(why) => return format!("{}\n", why.trim()),
            Problem::Full => "all connections are in use: try again in a second",
            Problem::ClientFull => "you have all the connections that one client may have: close one, or try again",
        };
        format!("{words}\n")
    }

    /// One of each kind.
    #[cfg(test)]
    pub(super) fn all() -> [Problem; 19] {
        use Problem::*;

        [
            Bad,
            BadBody,
            Slow,
            TargetTooLong,
            HeaderTooLong,
            BodyTooLong,
            NoLength,
            UnknownCoding,
            UnknownExpectation,
            UnknownVersion,
            UnknownMethod,
            NotFound,
            WrongMethod("GET"),
            WrongHost,
            NoToken,
            WrongType,
            Refused("no".into()),
            Full,
            ClientFull,
        ]
    }
}
