//! `refault serve --host`: the page and the metrics of control groups, and what is made for Prometheus and Grafana.

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use refault_testing::cgroup::Group;
use refault_testing::skip_required;
use serde_json::Value;
use tempfile::TempDir;

use common::text;

const HOSTILE: &str = "<img src=x onerror=alert(1)>\x1b[31m\"";

struct Window {
    child: Child,
    address: String,
    token: String,
    _directory: TempDir,
}

impl Window {
    fn open(more: &[&str]) -> Window {
        let directory = TempDir::new().expect("a directory");
        let mut child = Command::new(assert_cmd::cargo::cargo_bin("refault"))
            .args(["serve", "--listen", "127.0.0.1:0", "--token-file"])
            .arg(directory.path().join("token"))
            .args(more)
            .env("XDG_RUNTIME_DIR", directory.path())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains("http://") {
            line.clear();
            assert!(said.read_line(&mut line).expect("it says so") > 0, "it does not listen");
        }
        let (_, rest) = line.trim().split_once("http://").expect("an address");
        let (address, token) = rest.split_once("/#token=").expect("a token");
        Window { child, address: address.to_owned(), token: token.to_owned(), _directory: directory }
    }

    fn ask(&self, path: &str, with_token: bool) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let token = if with_token { format!("Authorization: Bearer {}\r\n", self.token) } else { String::new() };
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\n{token}\r\n", self.address).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
        (head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code"), body.to_owned())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn groups_are_shown_to_who_has_the_token_and_names_are_text() {
    let group = match Group::new(HOSTILE) {
        Ok(group) => group,
        Err(error) => return skip_required(format_args!("no memory cgroup can be made: {error}")),
    };
    let window = Window::open(&["--host"]);
    assert_eq!(window.ask("/api/host", false).0, 401);
    let (code, page) = window.ask("/host", false);
    assert!(code == 200 && page.contains("src=\"host.js\""), "{page}");
    let (code, script) = window.ask("/host.js", false);
    assert!(code == 200 && !script.contains("innerHTML") && script.contains("api/host"));
    let (code, body) = window.ask("/api/host", true);
    let all: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(code, 200);
    let ours = format!("refault-{}-", std::process::id());
    let groups = all["report"]["groups"].as_array().expect("groups");
    let found = groups.iter().find(|one| one["path"].as_str().is_some_and(|path| path.contains(&ours)));
    let path = found.expect("the group is there")["path"].as_str().expect("text");
    assert!(path.contains("<img src=x onerror=alert(1)>\\u{1b}[31m\""), "{path}");
    assert!(all["usage"][path].is_array(), "{all}");
    let (code, metrics) = window.ask("/metrics", true);
    assert!(code == 200 && metrics.contains("refault_host_usage_bytes{group=\"/\"}"), "{metrics}");
    assert!(!metrics.chars().any(|c| c.is_control() && c != '\n'), "{metrics:?}");
    // What the dashboard and the alerts ask for is served, but for the pressure that version 1 does not have.
    let mut served: BTreeSet<&str> = metrics.lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
    served.extend([
        "refault_host_pressure_ratio",
        "refault_host_working_set_bytes",
        "refault_host_proposed_high_bytes",
    ]);
    let listed = std::fs::read_to_string(root().join("docs/reference/metrics.md")).expect("the page is there");
    for file in ["contrib/grafana/refault-host.json", "contrib/prometheus/refault-host-alerts.yml"] {
        let text = std::fs::read_to_string(root().join(file)).expect("the file is there");
        let names: BTreeSet<String> = text
            .split("refault_")
            .skip(1)
            .map(|part| part.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect())
            .collect();
        assert!(names.len() >= 4, "{names:?}");
        for name in names {
            let name = format!("refault_{name}");
            assert!(served.contains(name.as_str()) && listed.contains(&name), "{file}: {name}");
        }
    }
    assert_eq!(Window::open(&[]).ask("/api/host", true).0, 404, "without --host there is nothing");
    drop(group);
}

#[test]
fn promtool_takes_the_rules_and_the_panels_questions() {
    if Command::new("promtool").arg("--version").output().is_err() {
        return skip_required("promtool is not installed");
    }
    let run = |arguments: &[&str]| {
        let output = Command::new("promtool").args(arguments).current_dir(root()).output().expect("it starts");
        assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    };
    let said = run(&["check", "rules", "contrib/prometheus/refault-host-alerts.yml"]);
    assert!(said.contains("3 rules found"), "{said}");
    // A panel's question as a rule: promtool knows whether it is one.
    let dashboard = std::fs::read_to_string(root().join("contrib/grafana/refault-host.json")).expect("it is there");
    let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let questions = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let rules: Vec<Value> = questions
        .enumerate()
        .map(|(at, target)| serde_json::json!({"record": format!("panel:{at}"), "expr": target["expr"]}))
        .collect();
    assert!(rules.len() >= 5);
    let directory = TempDir::new().expect("a directory");
    let file = directory.path().join("panels.yml");
    // JSON is YAML.
    let all = serde_json::json!({"groups": [{"name": "panels", "rules": rules}]});
    std::fs::write(&file, all.to_string()).expect("room");
    run(&["check", "rules", file.to_str().expect("UTF-8")]);
}
