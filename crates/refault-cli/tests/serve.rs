//! `refault serve`: the page in a real browser, driven by its debugging pipe, and requests that mean harm.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::skipped;
use refault_testing::skip_required;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Goes round memory of which a part fits.
const GOES_ROUND: &str = include_str!("scripts/goes_round.py");

/// A pool with members, and the window on it.
struct Site {
    directory: TempDir,
    children: Vec<Child>,
    address: String,
    /// What `refault serve` printed behind the address.
    token: String,
}

impl Site {
    fn new(members: usize) -> Site {
        let directory = TempDir::new().expect("a directory");
        let mut site = Site { directory, children: Vec::new(), address: String::new(), token: String::new() };
        site.start(&["pool", "--memory", "256M", "--name", "web"]);
        let socket = site.directory.path().join("refault/web.sock");
        wait_for("the pool", || socket.exists());
        for _ in 0..members {
            site.start(&["run", "--quiet", "--pool", "web", "--", "sleep", "300"]);
        }
        site.serve(&["--listen", "127.0.0.1:0"]);
        site
    }

    /// Starts the window.
    fn serve(&mut self, arguments: &[&str]) {
        let mut command = self.command(&[&["serve"], arguments].concat());
        let mut serve = command.stderr(Stdio::piped()).spawn().expect("starts");
        let mut line = String::new();
        BufReader::new(serve.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let (_, printed) = line.trim().split_once("http://").expect("an address");
        let (address, token) = printed.split_once("/#token=").expect("a token");
        (self.address, self.token) = (address.replace("0.0.0.0", "127.0.0.1"), token.to_owned());
        self.children.push(serve);
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("refault"));
        command.env("XDG_RUNTIME_DIR", self.directory.path()).args(arguments).stdout(Stdio::null());
        command
    }

    fn start(&mut self, arguments: &[&str]) {
        let child = self.command(arguments).stderr(Stdio::null()).spawn().expect("it starts");
        self.children.push(child);
    }

    /// What is answered to these bytes.
    fn send(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        // It may be cut off while it sends.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get(&self, path: &str) -> String {
        self.send(format!("GET {path} HTTP/1.1\r\n{}\r\n", self.known()).as_bytes())
    }

    /// Headers of who knows the token.
    fn known(&self) -> String {
        format!("Host: {}\r\nAuthorization: Bearer {}\r\n", self.address, self.token)
    }

    /// The only pool, as scripts read it.
    fn pool(&self) -> Value {
        let answer = self.get("/api/pools");
        let (_, body) = answer.split_once("\r\n\r\n").expect("an answer");
        serde_json::from_str::<Value>(body).expect("JSON")["pools"][0].take()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < until, "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A browser at the other end of its debugging pipe.
struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    number: u64,
    _profile: TempDir,
}

impl Browser {
    /// At an address, with what stands behind it.
    fn open(address: &str, rest: &str) -> Option<Browser> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let Some(name) = names.iter().find(|name| std::env::split_paths(&path).any(|place| place.join(name).is_file()))
        else {
            skip_required(format_args!("no browser: none of {} is installed", names.join(", ")));
            return None;
        };
        let profile = TempDir::new().expect("a directory");
        let line = format!(
            "exec {name} --headless=new --no-sandbox --disable-gpu --hide-scrollbars --remote-debugging-pipe \
             --user-data-dir={} about:blank 3<&0 4>&1 >/dev/null 2>&1",
            profile.path().display()
        );
        let mut child = Command::new("sh")
            .args(["-c", &line])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let (to, from) = (child.stdin.take().expect("a pipe"), BufReader::new(child.stdout.take().expect("a pipe")));
        let mut browser = Browser { child, to, from, session: None, number: 0, _profile: profile };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}))["targetId"].clone();
        let session = browser.call("Target.attachToTarget", &json!({"targetId": target, "flatten": true}));
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        browser.call("Page.enable", &json!({}));
        browser.call("Page.navigate", &json!({"url": format!("http://{address}/{rest}")}));
        Some(browser)
    }

    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).expect("the browser reads");
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).expect("the browser writes");
            assert_eq!(bytes.pop(), Some(0), "the browser has ended");
            let answer: Value = serde_json::from_slice(&bytes).expect("JSON");
            if answer["id"].as_u64() == Some(self.number) {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// The value of an expression on the page.
    fn value(&mut self, expression: &str) -> Value {
        let result = self
            .call("Runtime.evaluate", &json!({"expression": expression, "returnByValue": true, "awaitPromise": true}));
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    fn wait_for(&mut self, expression: &str) {
        let until = Instant::now() + Duration::from_secs(30);
        while self.value(expression) != Value::Bool(true) {
            assert!(Instant::now() < until, "not within 30 s: {expression}; {}", self.value("document.body.innerText"));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn key(&mut self, key: &str, code: u32) {
        for kind in ["keyDown", "keyUp"] {
            let text = if key == "Enter" && kind == "keyDown" { "\r" } else { "" };
            let event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
            self.call("Input.dispatchKeyEvent", &event);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_page_is_live_and_changes_a_budget_by_keyboard_in_every_look() {
    if skipped(&["sleep", "python3"]) {
        return;
    }
    let mut site = Site::new(9);
    site.start(&["run", "--quiet", "--pool", "web", "--observe", "--max", "16M", "--", "python3", "-c", GOES_ROUND]);
    let Some(mut browser) = Browser::open(&site.address, "") else { return };
    // Without the token the page asks for it; what was given is kept, and not shown in the address.
    browser.wait_for("document.activeElement === document.getElementById('token')");
    assert_eq!(browser.value("document.querySelectorAll('#members tr').length"), 0);
    browser.value(&format!("document.getElementById('token').value = '{}'", site.token));
    browser.key("Enter", 13);
    browser.wait_for("document.querySelectorAll('#members tr').length === 10");
    browser.call("Page.navigate", &json!({"url": "about:blank"}));
    browser.call("Page.navigate", &json!({"url": format!("http://{}/#token={}", site.address, site.token)}));
    browser.wait_for("document.querySelectorAll('#members tr').length === 10");
    assert_eq!(browser.value("location.hash"), "", "the token does not stay in the address");
    assert_eq!(browser.value("document.getElementById('token-form').hidden"), true);
    browser.wait_for("document.getElementById('state').textContent === 'live'");
    browser.wait_for("document.querySelectorAll('.chart canvas').length === 4");
    // What is looked at is hot where it is accessed, and other policies are compared.
    browser.wait_for("!document.getElementById('heat').hidden");
    browser.wait_for("[...document.querySelectorAll('#policies td')].some((cell) => cell.textContent.endsWith(' ×'))");
    browser.wait_for("Number(document.getElementById('heat-note').textContent.match(/(\\d+) are hot/)[1]) > 0");
    let painted = "(() => { const c = document.getElementById('heat'); \
         return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((byte) => byte > 0); })()";
    browser.wait_for(painted);
    for (figure, of) in [("grant_bytes", "uses"), ("fault_p99_ns", "faults")] {
        browser.value(&format!(
            "(() => {{ const s = document.getElementById('{of}-figure'); s.value = '{figure}'; \
             s.dispatchEvent(new Event('change')); }})()"
        ));
    }
    for width in [1280, 400] {
        for scheme in ["light", "dark"] {
            let metrics = json!({"width": width, "height": 2600, "deviceScaleFactor": 1, "mobile": false});
            browser.call("Emulation.setDeviceMetricsOverride", &metrics);
            let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
            browser.call("Emulation.setEmulatedMedia", &media);
            std::thread::sleep(Duration::from_millis(1500));
            assert_eq!(browser.value("document.documentElement.scrollWidth"), width, "nothing reaches beyond the edge");
            assert_eq!(browser.value("matchMedia('(prefers-color-scheme: dark)').matches"), scheme == "dark");
            // For people: where it is asked for.
            if let Some(place) = std::env::var_os("REFAULT_PICTURES") {
                let picture = browser.call("Page.captureScreenshot", &json!({"format": "png"}));
                let file = std::path::Path::new(&place).join(format!("serve-{width}-{scheme}.base64"));
                std::fs::write(file, picture["data"].as_str().expect("a picture")).expect("room");
            }
        }
    }
    // By keyboard alone: to the first button, into the dialog, a number, Enter.
    browser.value("document.querySelector('#members button').focus()");
    let pid = browser.value("document.activeElement.dataset.pid").as_str().expect("a process").to_owned();
    browser.key("Enter", 13);
    browser.wait_for("document.getElementById('dialog').open");
    browser.value("document.getElementById('mib').focus(); document.getElementById('mib').value = '9'");
    browser.key("Enter", 13);
    browser.wait_for("!document.getElementById('dialog').open");
    browser.wait_for(&format!(
        "document.querySelector('[data-pid=\"{pid}\"]').closest('tr').cells[2].textContent === '9.0 MiB'"
    ));
    // The daemon goes and comes back: the page says so, and goes on.
    site.children[0].kill().expect("it runs");
    site.children[0].wait().expect("it ran");
    browser.wait_for("document.getElementById('state').textContent.startsWith('no pool')");
    site.start(&["pool", "--memory", "256M", "--name", "web"]);
    browser.wait_for("document.querySelectorAll('#members tr').length === 10");
    assert_eq!(
        browser.value("performance.getEntriesByType('resource').every((one) => one.name.startsWith(location.origin))"),
        true
    );
}

#[test]
fn requests_that_mean_harm_are_refused_and_others_go_on() {
    let site = Site::new(0);
    let (host, known) = (&site.address, site.known());
    let status = |answer: &str| answer.split(' ').nth(1).unwrap_or("none").to_owned();
    let send = |text: &str| status(&site.send(text.as_bytes()));
    assert_eq!(status(&site.get("/")), "200");
    for (request, code) in [
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), "421"),
        ("GET /metrics HTTP/1.1\r\n\r\n".to_owned(), "421"),
        (format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\n\r\n"), "421"),
        (format!("GET /../../../etc/passwd HTTP/1.1\r\nHost: {host}\r\n\r\n"), "404"),
        (format!("GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: {host}\r\n\r\n"), "404"),
        (format!("DELETE / HTTP/1.1\r\nHost: {host}\r\n\r\n"), "405"),
        (
            format!("POST /api/budget HTTP/1.1\r\n{known}Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{{}}"),
            "415",
        ),
        (format!("GET /{} HTTP/1.1\r\nHost: {host}\r\n\r\n", "a".repeat(100_000)), "413"),
        (format!("POST /api/budget HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000000000\r\n\r\n"), "413"),
        ("\u{1}\u{2}\u{3}\r\n\r\n".to_owned(), "400"),
    ] {
        let got = send(&request);
        // One that sends more than is read may be cut off before it reads why.
        assert!(
            got == code || code == "413" && got == "none",
            "{got}, not {code}: {:?}",
            &request[..request.len().min(80)]
        );
    }
    let upgrade = format!("GET /api/pools HTTP/1.1\r\n{known}Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n\u{1}");
    assert_eq!(send(&upgrade), "200", "an upgrade is not taken");
    let change = "{\"pool\":\"web\",\"pid\":1,\"bytes\":99999999}";
    let budget = format!(
        "POST /api/budget HTTP/1.1\r\n{known}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{change}",
        change.len()
    );
    assert_eq!(send(&budget), "409", "there is no such member");
    assert!(!site.get("/").to_lowercase().contains("access-control"), "no other site may read");
    // Slow ones take a thread each, for seconds, and do not keep others waiting.
    let slow: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(host).expect("it listens");
            stream.write_all(b"GET / HT").expect("it listens");
            stream
        })
        .collect();
    let begun = Instant::now();
    assert_eq!(status(&site.get("/api/pools")), "200");
    assert!(begun.elapsed() < Duration::from_secs(2));
    let mut first = &slow[0];
    first.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    let mut answer = String::new();
    first.read_to_string(&mut answer).expect("an answer");
    assert_eq!(status(&answer), "408");
    assert!(begun.elapsed() < Duration::from_secs(15));
}

/// Seconds of processor time that a process has taken.
fn cpu_seconds(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, rest) = text.rsplit_once(')').expect("a name");
    // User and system time, in hundredths of a second on all that Linux runs on here.
    rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().expect("a number")).sum::<f64>() / 100.0
}

#[test]
fn a_hundred_pages_cost_less_than_a_tenth_of_a_processor() {
    if skipped(&["sleep"]) {
        return;
    }
    let site = Site::new(10);
    let pages: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(&site.address).expect("it listens");
            let request = format!("GET /api/events HTTP/1.1\r\n{}\r\n", site.known());
            stream.write_all(request.as_bytes()).expect("it listens");
            stream
        })
        .collect();
    let readers: Vec<_> = pages
        .iter()
        .map(|stream| {
            let stream = stream.try_clone().expect("a descriptor");
            std::thread::spawn(move || {
                BufReader::new(stream).lines().map_while(Result::ok).filter(|line| line.starts_with("data: ")).count()
            })
        })
        .collect();
    std::thread::sleep(Duration::from_secs(2));
    let pids = [site.children[0].id(), site.children.last().expect("serve").id()];
    let before = pids.map(cpu_seconds);
    let seconds = std::env::var("REFAULT_PAGES_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6.0);
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let [daemon, serve] = std::array::from_fn(|index| (cpu_seconds(pids[index]) - before[index]) / seconds);
    pages.iter().for_each(|stream| drop(stream.shutdown(std::net::Shutdown::Both)));
    for reader in readers {
        let events = reader.join().expect("it reads");
        assert!(events as f64 >= seconds * 0.7, "a page heard {events} times in {seconds} s");
    }
    println!("of one processor: serve {:.2} %, the daemon {:.2} %", serve * 100.0, daemon * 100.0);
    assert!(serve + daemon < 0.1, "serve {serve}, the daemon {daemon}");
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

/// Tries as another user all that the window has, and the token's file. Prints a status and body for each.
const STRANGER: &str = "
exec 2>&1
cat \"$2\"
for path in metrics api/pools api/events; do curl -s -m 5 -w ' %{http_code}\\n' \"http://$1/$path\"; done
for body in '{\"pool\":\"web\",\"pid\":'$3',\"bytes\":8388608}' '{\"pool\":\"web\",\"pid\":'$3'}'; do
    for header in 'X-Refault: 1' 'Authorization: Bearer 0' 'Cookie: token=0'; do
        curl -s -m 5 -w ' %{http_code}\\n' -H \"$header\" -H 'Content-Type: application/json' -d \"$body\" \"http://$1/api/budget\"
    done
done
";

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
    stranger.args(["-c", STRANGER, "sh", &site.address, file, &pid]).uid(65534).gid(65534).current_dir("/");
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
