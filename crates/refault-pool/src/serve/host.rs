//! Whether a request was meant for who listens here: by the address, or as localhost (RFC 9110 §7.4, RFC 3986 §3.2).
//!
//! ```
//! use refault_pool::serve::host;
//!
//! let ours = "127.0.0.1:80".parse()?;
//! assert!(host::is_of(ours, "LocalHost") && host::is_of(ours, "127.0.0.1:80"));
//! assert!(!host::is_of(ours, "localhost:8080") && !host::is_of(ours, "elsewhere.example"));
//! assert!(host::is_valid("elsewhere.example:1") && !host::is_valid("a host"));
//! # Ok::<(), std::net::AddrParseError>(())
//! ```

use std::net::{IpAddr, SocketAddr};

/// The port that clients leave out.
const DEFAULT_PORT: u16 = 80;

/// Whether this is a host, with or without a port.
pub fn is_valid(host: &str) -> bool {
    let (name, port) = split(host);
    let is_name = match name.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok()),
        None => name.chars().all(|c| c.is_ascii_alphanumeric() || "-._~!$&'()*+;=%".contains(c)),
    };
    is_name && !name.is_empty() && port.is_none_or(|port| port.chars().all(|c| c.is_ascii_digit()))
}

/// Whether a valid host is the one that listens at this address. Any of its addresses is, where it listens at all.
pub fn is_of(ours: SocketAddr, host: &str) -> bool {
    let (name, port) = split(host);
    let port = match port.unwrap_or_default() {
        "" => Some(DEFAULT_PORT),
        port => port.parse().ok(),
    };
    if port != Some(ours.port()) || !is_valid(host) {
        return false;
    }
    let (is_any, ours) = (ours.ip().is_unspecified(), ours.ip());
    let address = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(name) => name.parse().ok().map(IpAddr::V6),
        None => name.parse().ok().map(IpAddr::V4),
    };
    let is_here = |address: IpAddr| is_any || address == ours || address.is_loopback() && ours.is_loopback();
    name.eq_ignore_ascii_case("localhost") || address.is_some_and(is_here)
}

/// Name and port.
fn split(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    }
}

#[cfg(test)]
mod tests {
    use super::{is_of, is_valid};

    #[test]
    fn a_host_is_ours_by_address_and_port_and_80_may_be_left_out() {
        let ours = |address: &str, host: &str| is_of(address.parse().expect("an address"), host);
        for host in [
            "127.0.0.1",
            "127.0.0.1:80",
            "127.0.0.1:",
            "localhost",
            "localhost:80",
            "LOCALHOST:080",
            "[::1]",
            "[::1]:80",
            "[0:0:0:0:0:0:0:1]",
        ] {
            assert!(ours("127.0.0.1:80", host), "{host}");
            assert!(!ours("127.0.0.1:8080", host), "{host}");
        }
        assert!(ours("[::1]:80", "[::1]") && ours("[::1]:8080", "[::1]:8080") && ours("0.0.0.0:8080", "10.0.0.1:8080"));
        for host in [
            "evil.example",
            "evil.example:80",
            "10.0.0.1",
            "",
            ":",
            "::1",
            "[::1",
            "localhost:x",
            "localhost:+80",
            "localhost:65616",
            "localhost.evil.example",
            "localhost@evil.example",
            "127.0.0.1.evil.example",
        ] {
            assert!(!ours("127.0.0.1:80", host), "{host}");
        }
    }

    #[test]
    fn what_is_no_host_is_told_from_another_one() {
        for host in ["evil.example", "evil.example:80", "10.0.0.1", "[::1]:9", "a_b.example:", "%41"] {
            assert!(is_valid(host), "{host}");
        }
        for host in ["", ":80", "a b", "a/b", "a@b", "a,b", "a:b", "a:1:2", "[::1", "[x]", "[]", "a\tb", "a?b", "é"] {
            assert!(!is_valid(host), "{host}");
        }
    }
}
