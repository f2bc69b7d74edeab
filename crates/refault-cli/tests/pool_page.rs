//! The guides to pools, hosts and watching: each block of commands runs as it stands there, and the metrics of the
//! reference are those that are served. The files of contrib/ load where the tools for them are installed.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{skipped, text};
use refault_testing::{skip, skip_required};
use tempfile::TempDir;

/// Goes round memory of which a part fits.
const GOES_ROUND: &str = include_str!("scripts/goes_round.py");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).expect("the page is there")
}

/// The first block of shell commands under a heading, or of a page.
fn block(name: &str, heading: &str) -> String {
    let page = page(name);
    let (_, rest) = page.split_once(&format!("# {heading}\n")).expect("the heading is there");
    let (_, block) = rest.split_once("\n```sh\n").expect("a block");
    block.split("\n```").next().expect("a first part").to_owned()
}

/// Runs a block; what it started in the background ends with it. All that it wrote to standard output.
fn run(block: &str) -> String {
    let directory = TempDir::new().expect("a directory");
    let programs = directory.path().join("bin");
    std::fs::create_dir(&programs).expect("creates");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_refault"), programs.join("refault")).expect("links");
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let path =
        std::env::join_paths(std::iter::once(programs).chain(std::env::split_paths(&inherited))).expect("a path");
    let out = directory.path().join("out");
    let script = format!(
        "trap 'kill $(jobs -p) 2>/dev/null || true; wait || true' EXIT\n{{\n{block}\n}} > {} < /dev/null\n",
        out.display()
    );
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .current_dir(directory.path())
        .env("PATH", path)
        .env("XDG_RUNTIME_DIR", directory.path())
        .output()
        .expect("bash starts");
    let said = std::fs::read_to_string(out).unwrap_or_default();
    assert!(output.status.success(), "{block}\n{said}{}", text(&output.stderr));
    said
}

#[test]
fn four_services_share_a_pool() {
    if skipped(&["bash", "redis-server", "memcached", "node", "python3"]) {
        return;
    }
    let said = run(&block("guide/pool.md", "Many services in one memory"));
    let status = said.split("pool web: ").nth(1).unwrap_or_else(|| panic!("{said}"));
    for program in ["redis-server", "memcached", "node", "python3"] {
        assert!(status.contains(program), "{program} is not in {said}");
    }
    assert!(!status.contains("does not answer"), "{said}");
}

#[test]
fn what_a_host_could_give_back_is_found() {
    if skipped(&["bash", "node"]) {
        return;
    }
    let said = run(&block("guide/host.md", "What a host could give back, and which hosts for which jobs"));
    assert!(said.contains("working set") && said.contains("would have gone in 3 s; nothing was changed"), "{said}");
}

#[test]
fn groups_files_and_kills_are_told() {
    if skipped(&["bash"]) {
        return;
    }
    let said = run(&block("guide/host.md", "What can this host give back"));
    assert!(said.contains(" usage ") && said.contains("accesses: ") && said.contains("of size"), "{said}");
    // A host on which nothing was killed says so.
    let said = run(&block("guide/host.md", "Why was it killed"));
    assert!(said.contains("was killed by") || said.contains("holds no kills"), "{said}");
}

#[test]
fn jobs_are_placed() {
    if skipped(&["bash", "awk", "sort", "python3"]) {
        return;
    }
    let said = run(&block("guide/host.md", "Which hosts for these jobs"));
    for name in ["\n sort ", "\n count ", "\n python ", " misses in all."] {
        assert!(said.contains(name), "{name} is not in {said}");
    }
}

#[test]
fn metrics_are_served_as_the_page_lists_them() {
    if skipped(&["bash", "curl", "python3"]) {
        return;
    }
    if std::net::TcpListener::bind("127.0.0.1:7077").is_err() {
        return skip("another program listens at port 7077");
    }
    let all = block("guide/watch.md", "Watch programs in a terminal, a browser or Grafana")
        .replace(" | grep refault_pool_memory_bytes", "")
        + &format!(
            "\nrefault run --quiet --pool watched --observe --max 8M -- python3 -c '{GOES_ROUND}' &
for i in $(seq 40); do
    curl -s -H \"Authorization: Bearer $(cat token)\" http://127.0.0.1:7077/metrics > metrics
    grep -q 'policy_faults_ratio{{' metrics && break
    sleep 0.5
done
cat metrics
"
        );
    let said = run(&all);
    assert!(said.contains("refault_pool_memory_bytes{pool=\"watched\"} 1073741824"), "{said}");
    let page = page("reference/metrics.md");
    let listed = page.lines().filter_map(|line| line.strip_prefix("| `refault_")?.split('`').next());
    let listed: Vec<String> = listed.map(|name| format!("refault_{name}")).collect();
    let served: std::collections::BTreeSet<&str> =
        said.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split('{').next()).collect();
    let served: Vec<&str> = served.into_iter().filter(|name| name.starts_with("refault_")).collect();
    assert!(served.len() >= 12, "{said}");
    for name in &served {
        assert!(listed.iter().any(|known| known == name), "{name} is not on the page");
    }
    for name in &listed {
        assert!(served.contains(&name.as_str()), "{name} is not served");
    }
    // What the dashboard and the alerts ask for is served.
    for file in ["contrib/grafana/refault-pools.json", "contrib/prometheus/refault-alerts.yml"] {
        let text = std::fs::read_to_string(root().join(file)).expect("the file is there");
        for part in text.split("refault_").skip(1) {
            let name: String = part.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            assert!(served.contains(&format!("refault_{name}").as_str()), "{file}: refault_{name}");
        }
    }
}

#[test]
fn a_real_prometheus_scrapes_and_its_tool_takes_the_rules() {
    if skipped(&["bash", "python3"]) {
        return;
    }
    let found = |name: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|place| place.join(name).is_file())
    };
    if !found("promtool") || !found("prometheus") || !found("curl") {
        return skip_required("prometheus is not installed");
    }
    let contrib = root().join("contrib/prometheus");
    // It looks for the token's file beside the configuration.
    let directory = TempDir::new().expect("a directory");
    for file in ["prometheus.yml", "refault-alerts.yml"] {
        std::fs::copy(contrib.join(file), directory.path().join(file)).expect("copies");
    }
    std::fs::write(directory.path().join("refault.token"), "0123456789abcdef\n").expect("writes");
    let checked =
        Command::new("promtool").args(["check", "config", "prometheus.yml"]).current_dir(directory.path()).output();
    let checked = checked.expect("promtool starts");
    assert!(checked.status.success(), "{}{}", text(&checked.stdout), text(&checked.stderr));
    // What the dashboard's panels ask, each as the real Prometheus understands it.
    let text_of_dashboard =
        std::fs::read_to_string(root().join("contrib/grafana/refault-pools.json")).expect("the file is there");
    let dashboard: serde_json::Value = serde_json::from_str(&text_of_dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let asked = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let asked: Vec<String> =
        asked.map(|one| one["expr"].as_str().expect("an expression").replace("$pool", "scraped")).collect();
    assert!(asked.len() >= 10, "{asked:?}");
    // Alerts' conditions hardly ever hold: with `bool` they answer whether they do.
    let alerts = std::fs::read_to_string(contrib.join("refault-alerts.yml")).expect("the file is there");
    let alerts = alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let alerts: Vec<String> =
        alerts.map(|expression| expression.replace(" > ", " > bool ").replace(" == ", " == bool ")).collect();
    assert!(alerts.len() >= 4 && alerts.iter().all(|expression| expression.contains("bool")), "{alerts:?}");
    let asked = [asked, alerts].concat();
    let said = run(&format!(
        "\
refault pool --memory 64M --name scraped 2> /dev/null &
refault serve --listen 127.0.0.1:0 2> at &
sleep 2
refault run --quiet --pool scraped -- sleep 100 &
refault run --quiet --pool scraped --observe --max 8M -- python3 -c '{GOES_ROUND}' &
target=$(sed 's,.*http://\\(.*\\)/#.*,\\1,' at)
cp $XDG_RUNTIME_DIR/refault/serve.token refault.token
sed \"s,127.0.0.1:7077,$target,; s,5s,1s,; /rule_files/,\\$d\" {}/prometheus.yml > p.yml
prometheus --config.file=p.yml --storage.tsdb.path=data --web.listen-address=127.0.0.1:7079 2> log &
for i in $(seq 80); do
    curl -sg 'http://127.0.0.1:7079/api/v1/query?query=refault_member_policy_faults_ratio' > answer || true
    grep -q scraped answer && break
    sleep 0.5
done
sleep 3
cat answer
echo
while read -r expression; do
    curl -s --data-urlencode \"query=$expression\" http://127.0.0.1:7079/api/v1/query
    echo
done <<'END'
{}
END",
        contrib.display(),
        asked.join("\n")
    ));
    let answers: Vec<&str> = said.lines().filter(|line| line.starts_with("{\"status\"")).collect();
    assert!(answers[0].contains("\"program\":\"python3\"") && answers[0].contains("\"policy\":\"lru\""), "{said}");
    assert_eq!(answers.len(), asked.len() + 1, "{said}");
    for (expression, answer) in asked.iter().zip(&answers[1..]) {
        let is_known = answer.starts_with("{\"status\":\"success\"") && !answer.contains("\"result\":[]");
        assert!(is_known, "{expression}: {answer}");
        let is_of_both = ["member_grant_bytes", "member_charge_bytes", "member_answers"];
        let is_of_both = is_of_both.iter().any(|name| expression.contains(name));
        assert!(!is_of_both || answer.contains("\"sleep\""), "{expression}: {answer}");
    }
}

#[test]
fn systemd_takes_the_units_without_a_word() {
    let directory = TempDir::new().expect("a directory");
    let binary = env!("CARGO_BIN_EXE_refault");
    // How exposed it may be at most, in tenths; what a user's manager cannot take away counts there too.
    for (unit, of, options, exposure) in [
        ("refault-serve.service", "refault-serve.service", &[][..], 15),
        ("refault-pool@web.service", "refault-pool@.service", &[], 10),
        ("refault-pool-user@web.service", "refault-pool-user@.service", &["--user"], 60),
    ] {
        let text = std::fs::read_to_string(root().join("contrib/systemd").join(of)).expect("the unit is there");
        let file = directory.path().join(unit);
        std::fs::write(&file, text.replace("ExecStart=refault", &format!("ExecStart={binary}"))).expect("writes");
        let mut command = Command::new("systemd-analyze");
        command.args(["verify", "--man=no"]).args(options).arg(&file).env("XDG_RUNTIME_DIR", directory.path());
        let Ok(output) = command.output() else { return skip("systemd is not installed") };
        // A key that it does not know is a warning to it.
        let said = text_of(&output);
        assert!(output.status.success() && said.is_empty(), "{unit}: {said}");
        let mut command = Command::new("systemd-analyze");
        command.args(["security", "--offline=true", "--no-pager"]).arg(format!("--threshold={exposure}")).arg(&file);
        let output = command.output().expect("it starts");
        let said = text_of(&output);
        // Before version 250 it looks at running units only.
        assert!(output.status.success() || said.contains("unrecognized option"), "{unit}: {said}");
    }
}

fn text_of(output: &std::process::Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}
