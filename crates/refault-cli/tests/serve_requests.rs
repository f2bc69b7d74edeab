//! `refault serve`: who may ask for what, requests by the letter of HTTP and against it, and crowds of clients.

mod common;
#[path = "common/site.rs"]
mod site;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::skipped;
use refault_testing::skip_required;
use site::{Site, wait_for};

/// Tries as another user all that needs the token.
const STRANGER_ASKS: &str = include_str!("scripts/stranger_asks.sh");
/// Opens many connections and sends halves of requests.
const CROWDS: &str = include_str!("scripts/crowds.py");

/// Requests, and the code of the answer. `{host}` is where the window listens, `{known}` the headers of who knows the
/// token.
const REQUESTS: &[(&str, &str)] = &[
    // Methods.
    ("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n", "200"),
    ("HEAD / HTTP/1.1\r\nHost: {host}\r\n\r\n", "200"),
    ("HEAD /metrics HTTP/1.1\r\n{known}\r\n", "200"),
    ("HEAD /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n", "401"),
    ("HEAD /api/events HTTP/1.1\r\n{known}\r\n", "200"),
    ("HEAD /nothing HTTP/1.1\r\nHost: {host}\r\n\r\n", "404"),
    ("OPTIONS /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n", "204"),
    ("OPTIONS * HTTP/1.1\r\nHost: {host}\r\n\r\n", "204"),
    ("DELETE / HTTP/1.1\r\nHost: {host}\r\n\r\n", "405"),
    ("POST /metrics HTTP/1.1\r\n{known}\r\n", "405"),
    ("GET /api/budget HTTP/1.1\r\n{known}\r\n", "405"),
    ("TRACE / HTTP/1.1\r\nHost: {host}\r\nCookie: secret\r\n\r\n", "405"),
    ("PUT /page.js HTTP/1.1\r\nHost: {host}\r\n\r\n", "405"),
    ("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n", "405"),
    ("CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", "421"),
    ("get / HTTP/1.1\r\nHost: {host}\r\n\r\n", "501"),
    ("FETCH / HTTP/1.1\r\nHost: {host}\r\n\r\n", "501"),
    ("G\u{0}T / HTTP/1.1\r\nHost: {host}\r\n\r\n", "400"),
    // Targets.
    ("GET /metrics/ HTTP/1.1\r\n{known}\r\n", "200"),
    ("GET /metrics?debug=1 HTTP/1.1\r\n{known}\r\n", "200"),
    ("GET http://{host}/metrics HTTP/1.1\r\n{known}\r\n", "200"),
    ("GET HTTP://{host} HTTP/1.1\r\nHost: evil.example\r\n\r\n", "200"),
    ("GET http://evil.example/ HTTP/1.1\r\nHost: {host}\r\n\r\n", "421"),
    ("GET https://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n", "421"),
    ("GET http://user@{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n", "400"),
    ("GET http:///metrics HTTP/1.1\r\n{known}\r\n", "400"),
    ("GET ftp://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n", "400"),
    ("GET metrics HTTP/1.1\r\n{known}\r\n", "400"),
    ("GET * HTTP/1.1\r\nHost: {host}\r\n\r\n", "400"),
    ("GET /#token HTTP/1.1\r\nHost: {host}\r\n\r\n", "400"),
    ("GET / / HTTP/1.1\r\nHost: {host}\r\n\r\n", "400"),
    ("GET  HTTP/1.1\r\nHost: {host}\r\n\r\n", "400"),
    ("GET /../../../etc/passwd HTTP/1.1\r\nHost: {host}\r\n\r\n", "404"),
    ("GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: {host}\r\n\r\n", "404"),
    ("GET //{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n", "404"),
    ("GET /metrics//?token={token} HTTP/1.1\r\nHost: {host}\r\n\r\n", "404"),
    ("GET /%6detric%73 HTTP/1.1\r\n{known}\r\n", "200"),
    ("GET /metrics%2F HTTP/1.1\r\n{known}\r\n", "404"),
    ("GET /%00%zz% HTTP/1.1\r\n{known}\r\n", "404"),
    // Hosts.
    ("HEAD / HTTP/1.1\r\n\r\n", "400"),
    ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
    ("GET / HTTP/1.1\r\nHost: LocalHost:{port}\r\n\r\n", "200"),
    ("GET / HTTP/1.1\r\nhOST:\tlocalhost:{port} \r\n\r\n", "200"),
    ("GET / HTTP/1.1\r\nHost: [::1]:{port}\r\n\r\n", "200"),
    ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "421"),
    ("GET / HTTP/1.1\r\n\r\n", "400"),
    ("GET / HTTP/1.1\r\nHost: \r\n\r\n", "400"),
    ("GET / HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\n\r\n", "400"),
    ("GET / HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\n\r\n", "400"),
    ("GET / HTTP/1.1\r\nHost: {host}, evil.example\r\n\r\n", "400"),
    ("GET / HTTP/1.1\r\nHost: evil@{host}\r\n\r\n", "400"),
    ("GET / HTTP/1.1\r\nHost : {host}\r\n\r\n", "400"),
    ("GET / HTTP/1.0\r\n\r\n", "200"),
    ("GET / HTTP/1.0\r\nHost: evil.example\r\n\r\n", "421"),
    // Versions and lines.
    ("GET / HTTP/2.0\r\nHost: {host}\r\n\r\n", "505"),
    ("HEAD / HTTP/2.0\r\nHost: {host}\r\n\r\n", "505"),
    ("GET /healthz HTTP/0.9\r\nHost: {host}\r\n\r\n", "505"),
    ("GET / HTTP/1.2\r\nHost: {host}\r\n\r\n", "200"),
    ("HEAD /healthz HTTP/1.9\r\nHost: {host}\r\n\r\n", "200"),
    ("GET / HTTP/1.2\r\n\r\n", "400"),
    ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"),
    ("GET /\r\n\r\n", "400"),
    ("GET / HTTQ/1.1\r\nHost: {host}\r\n\r\n", "400"),
    ("\r\nGET / HTTP/1.1\r\nHost: {host}\r\n\r\n", "200"),
    ("GET / HTTP/1.1\r\nHost: {host}\r\nA: b\r\n c\r\n\r\n", "400"),
    ("GET / HTTP/1.1\r\nHost: {host}\r\nA\r\n\r\n", "400"),
    ("GET / HTTP/1.1\r\nHost: {host}\r\n: b\r\n\r\n", "400"),
    ("GET / HTTP/1.1\r\nHost: {host}\r\nA: b\u{0}c\r\n\r\n", "400"),
    ("GET / HTTP/1.1\r\nHost: {host}\r\nA: \u{e9}\r\n\r\n", "200"),
    ("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\u{fc}\u{3}\u{3}\r\n\r\n", "400"),
    ("\u{1}\u{2}\u{3}\r\n\r\n", "400"),
    // Lengths and bodies.
    ("GET /{long} HTTP/1.1\r\nHost: {host}\r\n\r\n", "414"),
    ("GET / HTTP/1.1\r\nHost: {host}\r\nA: {long}\r\n\r\n", "431"),
    ("GET / HTTP/1.1\r\nHost: {host}\r\n{many}\r\n", "431"),
    ("POST /api/budget HTTP/1.1\r\n{known}Content-Length: 1000000000\r\n\r\n{long}", "413"),
    ("POST /api/budget HTTP/1.1\r\n{known}Content-Length: 99999999999999999999999\r\n\r\n", "413"),
    ("POST /api/budget HTTP/1.1\r\n{known}Content-Length: -1\r\n\r\n", "400"),
    ("POST /api/budget HTTP/1.1\r\n{known}Content-Length: +2\r\n\r\n{}", "400"),
    ("POST /api/budget HTTP/1.1\r\n{known}Content-Length: 2, 2\r\n\r\n{}", "400"),
    ("POST /api/budget HTTP/1.1\r\n{known}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ", "400"),
    ("POST /api/budget HTTP/1.1\r\n{known}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", "400"),
    ("POST /api/budget HTTP/1.1\r\n{known}Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "411"),
    ("POST /api/budget HTTP/1.1\r\n{known}Transfer-Encoding: gzip, chunked\r\n\r\n", "501"),
    ("POST /api/budget HTTP/1.1\r\n{known}Expect: tea\r\nContent-Length: 2\r\n\r\n{}", "417"),
    ("POST /api/budget HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n\r\n{}", "401"),
    ("POST /api/budget HTTP/1.1\r\n{known}Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", "415"),
    ("POST /api/budget HTTP/1.1\r\n{known}{json}Content-Length: 2\r\n\r\n{}", "400"),
    ("POST /api/budget HTTP/1.1\r\n{known}{json}Content-Length: 0\r\n\r\n", "400"),
    (
        "POST /api/budget HTTP/1.1\r\n{known}{json}Content-Length: 38\r\n\r\n{\"pool\":\"web\",\"pid\":1,\"bytes\":9999999}",
        "409",
    ),
    // What others ask.
    ("GET /api/pools HTTP/1.1\r\n{known}Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n\u{1}", "200"),
    ("GET / HTTP/1.1\r\nHost: {host}\r\nRange: bytes=0-0\r\nIf-None-Match: *\r\nTE: trailers\r\n\r\n", "200"),
    ("GET /metrics HTTP/1.1\r\n{known}Accept: ;;,,/,\";q=\r\n\r\n", "200"),
    ("GET / HTTP/1.1\r\nHost: {host}\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n", "200"),
];

/// The code of an answer.
fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

/// A request of the table, as it is sent.
fn filled(site: &Site, request: &str) -> String {
    let (_, port) = site.address.rsplit_once(':').expect("a port");
    request
        .replace("{host}", &site.address)
        .replace("{port}", port)
        .replace("{token}", &site.token)
        .replace("{known}", &site.known())
        .replace("{json}", "Content-Type: application/json\r\n")
        .replace("{long}", &"a".repeat(100_000))
        .replace("{many}", &"A: b\r\n".repeat(100))
}

#[test]
fn each_request_is_answered_by_the_letter_and_none_does_harm() {
    let site = Site::new(0);
    let before = site.pool();
    for (request, code) in REQUESTS {
        let answer = site.send(filled(&site, request).as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{request:?}: {answer:?}"));
        assert_eq!(status(&answer), *code, "{request:?}: {answer}");
        let (is_head, is_bodiless) = (request.starts_with("HEAD"), *code == "204");
        assert!(!(is_head || is_bodiless) || body.is_empty(), "{request:?}: {answer}");
        let has = |name: &str| head.contains(&format!("\r\n{name}: "));
        assert!(has("Date") && has("Connection") && !head.to_lowercase().contains("access-control"), "{answer}");
        assert_eq!(has("Allow"), matches!(*code, "405" | "204"), "{request:?}: {answer}");
        assert_eq!(has("WWW-Authenticate"), *code == "401", "{request:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count() - body.matches("HTTP/1.1 ").count(), 1, "{answer}");
    }
    assert!(REQUESTS.len() >= 60);
    assert_eq!(before["members"], site.pool()["members"], "nothing has changed, and it answers");
    // What ends in the middle is told so, where the other side still reads.
    for half in [
        "",
        "GET",
        "GET / HTTP/1.1\r\nHost: {host}\r\n",
        "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\n\r\na",
    ] {
        let mut stream = TcpStream::connect(&site.address).expect("it listens");
        stream.write_all(filled(&site, half).as_bytes()).expect("it listens");
        stream.shutdown(Shutdown::Write).expect("it is open");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert_eq!(status(&answer), "400", "{half:?}");
    }
}

#[test]
fn what_is_sent_behind_a_request_does_not_cost_its_answer() {
    let site = Site::new(0);
    for (line, headers, code) in [
        ("GET /uplot.js", "", "200"),
        ("GET /metrics", "{known}", "200"),
        ("GET /metrics", "Host: {host}\r\n", "401"),
        ("DELETE /", "Host: {host}\r\n", "405"),
        ("POST /api/budget", "{known}{json}Content-Length: 2\r\n", "400"),
    ] {
        let headers = if headers.is_empty() { "Host: {host}\r\n" } else { headers };
        let request = filled(&site, &format!("{line} HTTP/1.1\r\n{headers}\r\n"));
        let mut stream = TcpStream::connect(&site.address).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it listens");
        // Others that a client sends without waiting, more than is read at once.
        stream.write_all("GET /healthz HTTP/1.1\r\n\r\n".repeat(1000).as_bytes()).expect("it takes them");
        std::thread::sleep(Duration::from_millis(50));
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap_or_else(|error| panic!("{line}: {error} after {}", answer.len()));
        assert_eq!(status(&answer), code, "{line}");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{line}: {head}");
    }
}

#[test]
fn the_head_alone_is_that_of_the_whole_and_options_are_what_is_taken() {
    let site = Site::new(0);
    for path in ["/", "/page.js", "/healthz", "/metrics", "/api/pools"] {
        let ask = |method: &str| {
            let answer = site.send(format!("{method} {path} HTTP/1.1\r\n{}\r\n", site.known()).as_bytes());
            let (head, body) = answer.split_once("\r\n\r\n").expect("an answer").to_owned();
            // Figures differ in length from one second to the next.
            let lines =
                head.lines().filter(|line| !line.starts_with("Date: ") && !line.starts_with("Content-Length: "));
            (lines.map(str::to_owned).collect::<Vec<_>>(), head.contains("\r\nContent-Length: "), body.len())
        };
        let ((whole, whole_has_length, whole_body), (head, head_has_length, head_body)) = (ask("GET"), ask("HEAD"));
        assert_eq!(whole, head, "{path}");
        assert!(whole_has_length && head_has_length && whole_body > 0 && head_body == 0, "{path}");
        let options = site.send(format!("OPTIONS {path} HTTP/1.1\r\n{}\r\n", site.known()).as_bytes());
        assert!(options.contains("\r\nAllow: GET, HEAD, OPTIONS\r\n"), "{options}");
        let refused = site.send(format!("DELETE {path} HTTP/1.1\r\n{}\r\n", site.known()).as_bytes());
        assert!(refused.contains("\r\nAllow: GET, HEAD, OPTIONS\r\n"), "{refused}");
    }
}

#[test]
fn metrics_are_in_the_text_that_is_asked_for() {
    let site = Site::new(0);
    let ask = |accept: &str| site.send(format!("GET /metrics HTTP/1.1\r\n{}{accept}\r\n", site.known()).as_bytes());
    for (accept, kind) in [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("Accept: text/plain;version=0.0.4\r\n", "text/plain; version=0.0.4; charset=utf-8"),
        ("Accept: application/openmetrics-text\r\n", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        // Two headers are as one with both.
        (
            "Accept: text/plain;q=0.5\r\nAccept: application/openmetrics-text;version=1.0.0\r\n",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
        ("Accept: image/png\r\n", "text/plain; version=0.0.4; charset=utf-8"),
    ] {
        let answer = ask(accept);
        assert!(answer.contains(&format!("\r\nContent-Type: {kind}\r\n")), "{accept}: {answer}");
        assert!(answer.contains("\r\nVary: Accept\r\n"), "{answer}");
        assert_eq!(answer.ends_with("# EOF\n"), kind.starts_with("application"), "{answer}");
        assert!(answer.contains("\nrefault_pool_memory_bytes{pool=\"web\"} 268435456\n"), "{answer}");
    }
}

#[test]
fn who_waits_to_be_told_may_send_its_body() {
    let site = Site::new(0);
    let mut stream = TcpStream::connect(&site.address).expect("it listens");
    let head = format!(
        "POST /api/budget HTTP/1.1\r\n{}Content-Type: application/json\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n",
        site.known()
    );
    stream.write_all(head.as_bytes()).expect("it listens");
    let mut told = [0; 25];
    stream.read_exact(&mut told).expect("it says so");
    assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"{}").expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert_eq!(status(&answer), "400", "no budget, but it was read");
}

#[test]
fn who_waits_to_be_told_hears_at_once_what_the_header_is_refused_for() {
    let site = Site::new(0);
    for (line, headers, code) in [
        ("POST /api/budget", "Host: {host}\r\n", "401"),
        ("POST /api/budget", "{known}Content-Type: text/plain\r\n", "415"),
        ("POST /api/budget", "Host: evil.example\r\n", "421"),
        ("POST /nothing", "{known}", "404"),
        ("PUT /api/budget", "{known}", "405"),
        ("SEND /api/budget", "{known}", "501"),
    ] {
        let request = format!("{line} HTTP/1.1\r\n{headers}Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
        let answer = site.send(filled(&site, &request).as_bytes());
        assert_eq!(status(&answer), code, "{line}: {answer}");
    }
}

#[test]
fn half_requests_end_in_time_and_keep_no_other_waiting() {
    let site = Site::new(0);
    let host = &site.address;
    // Slow ones take a thread each, for seconds, and do not keep others waiting.
    let slow: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(host).expect("it listens");
            stream.write_all(b"GET / HT").expect("it listens");
            stream
        })
        .collect();
    assert_eq!(status(&site.get("/api/pools")), "200");
    let mut first = &slow[0];
    first.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    let mut answer = String::new();
    first.read_to_string(&mut answer).expect("an answer");
    assert_eq!(status(&answer), "408");
}

#[test]
fn one_user_of_the_machine_cannot_shut_out_another() {
    if skipped(&["python3"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skip_required("only root can become another user");
    }
    let site = Site::new(0);
    let (_, port) = site.address.rsplit_once(':').expect("a port");
    let mut crowd = Command::new("python3");
    crowd.args(["-c", CROWDS, port, "300"]).uid(65534).gid(65534).current_dir("/");
    let mut crowd = crowd.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    // Its connections come from 300 addresses, and are one user's all the same.
    let counted = |text: &str| -> u64 {
        let (_, rest) =
            text.split_once("refault_serve_refused_total{kind=\"request\",limit=\"client\"} ").expect("a count");
        rest.lines().next().expect("a number").parse().expect("a number")
    };
    wait_for("the crowd", || {
        let answer = site.get("/metrics");
        assert_eq!(status(&answer), "200", "who has no part in the crowd is served: {answer}");
        counted(&answer) >= 200
    });
    drop(crowd.stdin.take());
    let mut said = String::new();
    crowd.stdout.take().expect("a pipe").read_to_string(&mut said).expect("a number");
    crowd.wait().expect("it ran");
    assert!(said.trim().parse::<u64>().expect("a number") >= 200, "they are told, not cut off: {said}");
}

#[test]
fn pages_that_look_on_have_places_of_their_own() {
    let site = Site::new(0);
    let events = || {
        let mut stream = TcpStream::connect(&site.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        let request = format!("GET /api/events HTTP/1.1\r\n{}\r\n", site.known());
        stream.write_all(request.as_bytes()).expect("it listens");
        let mut first = [0; 512];
        let length = stream.read(&mut first).expect("an answer");
        (stream, String::from_utf8_lossy(&first[..length]).into_owned())
    };
    let mut held = Vec::new();
    let refused = loop {
        let (stream, answer) = events();
        match status(&answer) {
            "200" => held.push(stream),
            _ => break answer,
        }
    };
    assert!(held.len() == 128 && status(&refused) == "503" && refused.contains("\r\nRetry-After: 1\r\n"), "{refused}");
    assert_eq!(status(&site.get("/api/pools")), "200", "requests have other places");
    for line in [
        "refault_serve_connections{kind=\"stream\"} 128\n",
        "refault_serve_refused_total{kind=\"stream\",limit=\"client\"} 1\n",
        "refault_serve_answers_total{code=\"503\"} 1\n",
    ] {
        wait_for(line, || site.get("/metrics").contains(line));
    }
    held.truncate(100);
    wait_for("a place", || status(&events().1) == "200");
}

#[test]
fn all_that_shows_or_changes_a_pool_needs_the_token_at_every_address() {
    let mut site = Site::new(0);
    let token = std::fs::read_to_string(site.directory.path().join("refault/serve.token")).expect("the token's file");
    assert_eq!(token.trim(), site.token);
    for listen in ["127.0.0.1:0", "0.0.0.0:0"] {
        site.serve(&["--listen", listen]);
        assert_eq!(token.trim(), site.token, "one file, one token");
        let with = |method: &str, path: &str, header: &str| {
            let request = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n{header}\r\n", site.address);
            site.send(request.as_bytes())
        };
        for path in ["/metrics", "/api/pools", "/api/events", "/api/budget"] {
            let method = if path == "/api/budget" { "POST" } else { "GET" };
            for header in [
                String::new(),
                "Authorization: Bearer 0\r\n".to_owned(),
                "Authorization: Bearer \r\n".to_owned(),
                format!("Authorization: Basic {}\r\n", site.token),
                format!("Authorization: Bearer {}0\r\n", site.token),
                format!("Authorization: Bearer {0}\r\nAuthorization: Bearer {0}\r\n", site.token),
            ] {
                let answer = with(method, path, &header);
                assert!(answer.starts_with("HTTP/1.1 401"), "{path} {header}: {answer}");
                assert!(answer.contains("\r\nWWW-Authenticate: Bearer") && !answer.contains("web"), "{answer}");
            }
            // Addresses are logged: a token that stands there is none.
            let answer = with(method, &format!("{path}?token={}", site.token), "");
            assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        }
        for open in ["/", "/page.js", "/page.css", "/uplot.js", "/uplot.css", "/healthz"] {
            let answer = with("GET", open, "");
            assert!(answer.starts_with("HTTP/1.1 200"), "{open}: {answer}");
            let (_, body) = answer.split_once("\r\n\r\n").expect("an answer");
            assert!(!body.contains(&site.token) && !body.contains("\"web\""), "{open}");
        }
        assert!(site.get("/metrics").starts_with("HTTP/1.1 200"));
        assert!(site.get("/api/pools").contains("\"web\""));
    }
}

#[test]
fn a_token_of_ones_own_is_taken_and_one_that_others_may_read_is_refused() {
    let mut site = Site::new(0);
    let path = site.directory.path().join("own");
    let name = path.to_str().expect("UTF-8").to_owned();
    site.serve(&["--listen", "127.0.0.1:0", "--token-file", &name]);
    let drawn = std::fs::read_to_string(&path).expect("it is made");
    assert_eq!(drawn.trim(), site.token);
    std::fs::write(&path, "a-token-of-my-own\n").expect("writes");
    site.serve(&["--listen", "127.0.0.1:0", "--token-file", &name]);
    assert_eq!(site.token, "a-token-of-my-own");
    assert!(site.get("/metrics").starts_with("HTTP/1.1 200"));
    let refused = |why: &str| {
        let output = site.command(&["serve", "--listen", "127.0.0.1:0", "--token-file", &name]).output();
        let output = output.expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(why) && said.contains(&name), "{said}");
    };
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
    refused("others may read or write it (mode 0644)");
    std::fs::remove_file(&path).expect("it is there");
    std::fs::create_dir(&path).expect("creates");
    refused("no plain file");
}

#[test]
fn another_user_of_the_machine_sees_and_changes_nothing() {
    if skipped(&["sleep", "curl", "sh"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skip_required("only root can become another user");
    }
    let site = Site::new(1);
    wait_for("the member", || site.pool()["members"][0]["pid"].is_u64());
    let before = site.pool();
    let (pid, grant) = (before["members"][0]["pid"].to_string(), &before["members"][0]["max_bytes"]);
    let file = site.directory.path().join("refault/serve.token");
    let file = file.to_str().expect("UTF-8");
    let mut stranger = Command::new("sh");
    stranger.args(["-c", STRANGER_ASKS, "sh", &site.address, file, &pid]).uid(65534).gid(65534).current_dir("/");
    let output = stranger.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("Permission denied"), "the file is closed to others: {said}");
    assert_eq!(said.matches(" 401\n").count(), 9, "{said}");
    assert!(!said.contains(&site.token) && !said.contains("sleep") && !said.contains(&pid), "{said}");
    assert_eq!(&site.pool()["members"][0]["max_bytes"], grant, "nothing has changed");
    // Who knows the token may.
    let body = format!("{{\"pool\":\"web\",\"pid\":{pid},\"bytes\":8388608}}");
    let request = format!(
        "POST /api/budget HTTP/1.1\r\n{}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        site.known(),
        body.len()
    );
    assert!(site.send(request.as_bytes()).starts_with("HTTP/1.1 200"));
    wait_for("the budget", || site.pool()["members"][0]["max_bytes"] == 8 << 20);
}
