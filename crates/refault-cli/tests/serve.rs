//! `refault serve`: the page in a real browser, driven by its debugging pipe, and what it costs.

mod common;
#[path = "common/site.rs"]
mod site;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::skipped;
use refault_testing::skip_required;
use serde_json::{Value, json};
use site::{Site, wait_for};
use tempfile::TempDir;

/// Goes round memory of which a part fits.
const GOES_ROUND: &str = include_str!("scripts/goes_round.py");

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
    // Keys that are pressed before the page is first painted are lost.
    browser.wait_for("performance.getEntriesByType('paint').length > 0");
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
            // Charts follow the window a moment later; nothing reaches beyond the edge then.
            browser.wait_for(&format!("document.documentElement.scrollWidth === {width}"));
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

/// Whether each control that is shown lies on the screen, and nothing over it.
const CONTROLS: &str = "[...document.querySelectorAll('button, select, input')].filter((one) => one.checkVisibility()) \
    .every((one) => { one.scrollIntoView({ block: 'center' }); const r = one.getBoundingClientRect(); \
    const met = document.elementFromPoint(r.left + r.width / 2, r.top + r.height / 2); \
    return r.left >= 0 && r.right <= innerWidth && r.width > 0 && one.contains(met); })";
/// Whether each member's name is seen, however far the table is scrolled.
const NAMES: &str = "[...document.querySelectorAll('#members th')].every((one) => { \
    one.scrollIntoView({ block: 'center', inline: 'nearest' }); const r = one.firstChild.getBoundingClientRect(); \
    const met = document.elementFromPoint(r.left + 4, r.top + r.height / 2); \
    return r.left >= 0 && r.right <= innerWidth && one.contains(met); })";

#[test]
fn controls_and_names_are_on_screen_at_every_width() {
    if skipped(&["sleep"]) {
        return;
    }
    let mut site = Site::new(2);
    let long = "a service whose name is as long as the name of a member may be ..";
    site.start(&["run", "--quiet", "--pool", "web", "--name", &long[..64], "--", "sleep", "300"]);
    let Some(mut browser) = Browser::open(&site.address, &format!("#token={}", site.token)) else { return };
    browser.wait_for("document.querySelectorAll('#members button').length === 3");
    assert_eq!(
        browser.value(&format!(
            "[...document.querySelectorAll('.name')].some((one) => one.title.startsWith('{long}'))",
            long = &long[..64]
        )),
        true
    );
    for width in [390, 480, 768, 1024, 1280, 1440, 1920] {
        let metrics = json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false});
        browser.call("Emulation.setDeviceMetricsOverride", &metrics);
        browser.wait_for(&format!("innerWidth === {width} && document.querySelectorAll('.chart canvas').length === 4"));
        // Charts follow the window a moment later; nothing reaches beyond the edge then.
        browser.wait_for(&format!("document.documentElement.scrollWidth === {width}"));
        for scrolled in ["0", "one.scrollWidth"] {
            browser.value(&format!(
                "document.querySelectorAll('.wide').forEach((one) => {{ one.scrollLeft = {scrolled}; }})"
            ));
            // The table is made anew each second: what was found may have gone.
            browser.wait_for(CONTROLS);
            browser.wait_for(NAMES);
        }
        if width >= 1280 {
            assert_eq!(
                browser.value("(() => { const one = document.querySelector('.wide'); return one.scrollWidth <= one.clientWidth; })()"),
                true,
                "at {width} all of the table is seen"
            );
        }
    }
}

#[test]
fn a_budget_by_hand_is_marked_and_lifted_and_charts_begin_before_the_page() {
    if skipped(&["sleep"]) {
        return;
    }
    let mut site = Site::new(0);
    site.start(&["run", "--quiet", "--pool", "web", "--name", "orders", "--max", "100M", "--", "sleep", "300"]);
    wait_for("the member", || site.pool()["members"][0]["name"] == "orders");
    let run = |arguments: &[&str]| {
        let output = site.command(arguments).stdout(Stdio::piped()).output().expect("it starts");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let looks = || {
        let answer = site.get("/api/history");
        let (_, body) = answer.split_once("\r\n\r\n").expect("an answer");
        serde_json::from_str::<Value>(body).expect("JSON")["pools"][0]["looks"].as_array().map_or(0, Vec::len)
    };
    let (done, said) = run(&["pool", "budget", "web", "orders", "64M"]);
    assert!(done && said.contains("orders (") && said.contains("64 MiB at most"), "{said}");
    wait_for("the mark", || site.pool()["members"][0]["budget_bytes"] == 64 << 20);
    assert!(run(&["pool", "status", "web"]).1.contains("set by hand"));
    for wrong in [
        &["pool", "budget", "web", "order", "64M"][..],
        &["pool", "budget", "web", "orders"],
        &["pool", "budget", "web", "orders", "1"],
    ] {
        let (done, said) = run(wrong);
        assert!(!done && !said.is_empty(), "{wrong:?}: {said}");
    }
    wait_for("some history", || looks() >= 5);
    let Some(mut browser) = Browser::open(&site.address, &format!("#token={}", site.token)) else { return };
    browser.wait_for("document.querySelector('#members .mark')?.textContent === 'set by hand'");
    browser.wait_for("history.length > 5 && history[0].time < performance.timeOrigin / 1000 - 2");
    assert_eq!(browser.value("history.every((one, at) => !at || one.time > history[at - 1].time)"), true);
    browser.value("document.querySelector('#members button').click()");
    browser.wait_for("document.getElementById('dialog').open && !document.getElementById('lift').hidden");
    browser.value("document.getElementById('lift').click()");
    browser.wait_for("!document.getElementById('dialog').open && !document.querySelector('#members .mark')");
    let member = || site.pool()["members"][0].take();
    assert!(member()["budget_bytes"].is_null() && member()["max_bytes"] == 100 << 20, "what it asked for holds again");
    let (done, _) = run(&["pool", "budget", "web", &member()["pid"].to_string(), "32M"]);
    assert!(done);
    wait_for("the budget by process", || member()["max_bytes"] == 32 << 20);
    let (done, _) = run(&["pool", "budget", "web", "orders", "--lift"]);
    assert!(done);
    wait_for("the end of the budget", || member()["max_bytes"] == 100 << 20);
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
