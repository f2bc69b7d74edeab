//! What a message advises works when it is followed, in the situation in which it was given; and no message of a command
//! names an option that the command does not have.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use common::{skipped, text, wait_for};
use tempfile::TempDir;

fn run_in(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refault"));
    command.env("XDG_RUNTIME_DIR", directory).current_dir(directory).stdin(Stdio::null());
    command.args(arguments).output().expect("it starts")
}

/// Is refused, in words that hold the advice.
fn refused(directory: &Path, arguments: &[&str], advice: &str) -> String {
    let output = run_in(directory, arguments);
    let said = text(&output.stderr);
    assert!(!output.status.success(), "{arguments:?} is taken: {said}");
    assert!(said.contains(advice), "{arguments:?}: no '{advice}' in: {said}");
    said
}

/// Is taken.
fn taken(directory: &Path, arguments: &[&str]) {
    let output = run_in(directory, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
}

/// A process that ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn columns_that_are_suggested_can_be_read() {
    let place = TempDir::new().expect("a directory");
    let files = [
        // SPC, Alibaba's and Tencent's block traces, a CDN's, and others whose first lines name columns.
        "0,303567,3584,w,0.026214\n1,55590,3072,w,0.026682\n",
        "101,R,126703644672,4096,1577808000000046\n102,W,1000,8192,1577808000000050\n",
        "1538323200,1047708880,8,1,1538\n1538323201,1047708888,8,0,1538\n",
        "17 301 4.5 x\n18 302 4.5 y\n",
        "when,what,lba of disk,len\n1,r,17,4\n2,w,18,4\n",
        "when,who,PageNo\n1,a,17\n2,b,18\n",
        "when;cache key;len\n1;17;4\n2;18;4\n",
        "a,a,block,block\n1,2,3,4\n5,6,7,8\n",
        "first,second\n1,2\n3,4\n",
    ];
    for (number, contents) in files.iter().enumerate() {
        let name = format!("{number}.csv");
        std::fs::write(place.path().join(&name), contents).expect("writes");
        let output = run_in(place.path(), &["trace", "info", &name]);
        let said = text(&output.stderr);
        if output.status.success() {
            continue;
        }
        let (_, advice) = said.split_once("--columns ").unwrap_or_else(|| panic!("{contents}: {said}"));
        let columns = advice.split([' ', ';', ':', '\n']).next().expect("a word");
        taken(place.path(), &["trace", "info", &name, "--columns", columns]);
    }
}

#[test]
fn an_option_that_is_named_instead_of_another_is_taken() {
    if skipped(&["true"]) {
        return;
    }
    let place = TempDir::new().expect("a directory");
    let zipf = "zipf:pages=100,accesses=1000";
    let cases: [&[&str]; 9] = [
        &["run", "--mem", "64M", "true"],
        &["run", "-m", "64M", "--", "true"],
        &["run", "--memory-max", "64M", "true"],
        &["run", "--memory", "64M", "--output", "s.json", "true"],
        &["run", "--memory", "64M", "--silent", "true"],
        &["mrc", "--workload", zipf, "--algorithm", "lru"],
        &["mrc", "--workload", zipf, "-o", "out.txt"],
        &["compare", "--workload", zipf, "--policy", "lru", "--cache-size", "10%"],
        &["compare", "--workload", zipf, "--polcy", "lru", "--memory", "10%"],
    ];
    for wrong in cases {
        let said = refused(place.path(), wrong, "a similar argument exists: '--");
        let meant = said.split("exists: '").nth(1).and_then(|rest| rest.split('\'').next()).expect("an option");
        let given = said.split("unexpected argument '").nth(1).and_then(|rest| rest.split('\'').next()).expect("one");
        let right: Vec<&str> = wrong.iter().map(|word| if *word == given { meant } else { *word }).collect();
        assert_ne!(right, wrong, "{said}");
        taken(place.path(), &right);
    }
}

#[test]
fn a_name_that_was_meant_is_taken() {
    let place = TempDir::new().expect("a directory");
    let zipf = "zipf:pages=100,accesses=1000";
    let cases: [(&[&str], &str, &str); 4] = [
        (&["compare", "--workload", zipf, "--memory", "10%", "--policy", "mrglu"], "mrglu", "mglru"),
        (&["compare", "--workload", zipf, "--memory", "10%", "--policy", "mglru{tier=1}"], "mglru{tier=1}", "tiers"),
        (&["mrc", "--workload", "zpif:pages=100,accesses=1000"], "zpif:pages=100,accesses=1000", "zipf"),
        (&["mrc", "--workload", "zipf:pagse=100,accesses=1000"], "zipf:pagse=100,accesses=1000", "pages"),
    ];
    for (arguments, wrong, meant) in cases {
        refused(place.path(), arguments, &format!("did you mean '{meant}'?"));
        let right = match meant {
            "mglru" => "mglru".to_owned(),
            "tiers" => "mglru{tiers=1}".to_owned(),
            _ => zipf.to_owned(),
        };
        let right: Vec<&str> =
            arguments.iter().map(|word| if *word == wrong { right.as_str() } else { word }).collect();
        taken(place.path(), &right);
    }
}

#[test]
fn what_run_advises_can_be_done() {
    if skipped(&["true", "python3"]) {
        return;
    }
    let place = TempDir::new().expect("a directory");
    let place = place.path();
    std::fs::write(place.join("a.py"), "print(1)\n").expect("writes");
    std::fs::write(place.join("s.toml"), "[[schemes]]\naction = \"stat\"\n").expect("writes");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.join("a.py"), executable).expect("is ours");
    let cases: [(&[&str], &str, &[&str]); 10] = [
        (&["run", "--memory", "1M", "true"], "give at least 2M", &["run", "--memory", "2M", "true"]),
        (
            &["run", "--memory", "64M", "--slowdown", "5%", "true"],
            "give several budgets, or --runs",
            &["run", "--memory", "64M", "--slowdown", "100%", "--runs", "1", "true"],
        ),
        (
            &["run", "--memory", "64M", "--what-if", "true"],
            "give --stats FILE",
            &["run", "--memory", "64M", "--what-if", "--stats", "w.jsonl", "true"],
        ),
        (
            &["run", "--memory", "64M", "--set", "nr_regions.min=10", "true"],
            "name a configuration with --scheme FILE",
            &["run", "--memory", "64M", "--set", "nr_regions.min=10", "--scheme", "s.toml", "true"],
        ),
        (
            &["run", "--memory", "64M,32M", "--stats", "m.jsonl", "true"],
            "give one budget and no --runs",
            &["run", "--memory", "64M", "--stats", "m.jsonl", "true"],
        ),
        (
            &["run", "--memory", "64M", "--", "./a.py"],
            "name its interpreter before it",
            &["run", "--memory", "64M", "--", "python3", "./a.py"],
        ),
        (
            &["run", "--memory", "64M", "--what-if", "--children", "own", "--stats", "o.jsonl", "true"],
            "leave out --children own",
            &["run", "--memory", "64M", "--what-if", "--stats", "o.jsonl", "true"],
        ),
        (
            &["run", "--memory", "64M", "--store", "disk", "true"],
            "write pool (compressed memory alone) or file=DIR",
            &["run", "--memory", "64M", "--store", "pool", "true"],
        ),
        (
            &["size", "--load", "true", "--load-timeout", "5", "--", "true"],
            "write 5s or 5m",
            &["wss", "--ages", "5ms", "--", "sleep", "0.2"],
        ),
        (&["wss", "--ages", "0s", "--", "true"], "write 1s, 500ms", &["wss", "--ages", "500ms", "--", "sleep", "0.8"]),
    ];
    for (wrong, advice, right) in cases {
        refused(place, wrong, advice);
        taken(place, right);
    }
    // A program that cannot be managed: what says more says it.
    refused(place, &["run", "--memory", "64M", "--", "./a.py"], "refault doctor PROGRAM says more");
    let doctor = run_in(place, &["doctor", "./a.py"]);
    assert!(text(&doctor.stdout).contains("interpreter"), "{}{}", text(&doctor.stdout), text(&doctor.stderr));
    // A file that is there already.
    let line = "{\"pid\":1,\"seconds\":1.0,\"resident_bytes\":4096,\"budget_bytes\":8192,\"last\":true}\n";
    std::fs::write(place.join("run.jsonl"), line).expect("writes");
    std::fs::write(place.join("run.html"), "mine").expect("writes");
    refused(place, &["report", "run.jsonl"], "choose another name, or add --force");
    taken(place, &["report", "run.jsonl", "--out", "other.html"]);
    taken(place, &["report", "run.jsonl", "--force"]);
}

#[test]
fn a_pool_that_is_not_there_can_be_started_as_advised() {
    if skipped(&["true"]) {
        return;
    }
    let place = TempDir::new().expect("a directory");
    let advice = "start it with refault pool --memory SIZE --name there";
    refused(place.path(), &["pool", "status", "there"], advice);
    refused(place.path(), &["run", "--pool", "there", "true"], advice);
    let words: Vec<&str> = advice.split(' ').skip(4).map(|word| if word == "SIZE" { "64M" } else { word }).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_refault"));
    let daemon = command.env("XDG_RUNTIME_DIR", place.path()).args(&words).stderr(Stdio::null()).spawn();
    let _daemon = Ends(daemon.expect("starts"));
    wait_for("the pool", || run_in(place.path(), &["pool", "status", "there"]).status.success());
    taken(place.path(), &["run", "--pool", "there", "true"]);
}

#[test]
fn the_id_that_a_shell_knows_is_the_programs() {
    if skipped(&["sleep"]) {
        return;
    }
    let place = TempDir::new().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_refault"));
    command.args(["run", "--memory", "64M", "--stats", "run.jsonl", "--stats-interval", "50ms", "--", "sleep", "100"]);
    let child = Ends(command.current_dir(place.path()).spawn().expect("starts"));
    let id = child.0.id().to_string();
    // At once: the program may not have begun.
    let output = run_in(place.path(), &["wss", "--pid", &id, "--ages", "100ms", "--format", "json"]);
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("its program is meant"), "{said}");
    wait_for("statistics", || std::fs::read(place.path().join("run.jsonl")).is_ok_and(|lines| !lines.is_empty()));
    let screen = run_in(place.path(), &["top", "--once", &id]);
    assert!(text(&screen.stdout).contains("refault top  process "), "{}", text(&screen.stderr));
    // It says as it goes what it has found, and how long it takes.
    assert!(said.contains("it takes 100ms") && said.contains("accessed of"), "{said}");
}

#[test]
fn the_kernels_monitor_is_not_named_to_those_who_did_not_ask_for_it() {
    if skipped(&["sleep"]) {
        return;
    }
    let place = TempDir::new().expect("a directory");
    let sleeps = Ends(Command::new("sleep").arg("100").spawn().expect("starts"));
    let id = sleeps.0.id().to_string();
    let short = ["--for", "200ms"];
    let reclaim = ["reclaim", "--pid", &id, "--dry-run", "--idle", "100ms"];
    let output = run_in(place.path(), &[&reclaim[..], &short].concat());
    let said = text(&output.stderr);
    assert!(output.status.success() && !said.contains("--source") && !said.contains("leave"), "{said}");
    let monitor = ["monitor", "--pid", &id];
    let said = text(&run_in(place.path(), &[&monitor[..], &short].concat()).stderr);
    assert!(!said.contains("--source"), "{said}");
    // Asked for, and refused where there is none: what is advised is taken.
    let kernel = run_in(place.path(), &[&reclaim[..], &["--ages", "kernel"], &short].concat());
    if !kernel.status.success() {
        assert!(text(&kernel.stderr).contains("use --ages mappings"), "{}", text(&kernel.stderr));
    }
    taken(place.path(), &[&reclaim[..], &["--ages", "mappings"], &short].concat());
    let kernel = run_in(place.path(), &[&monitor[..], &["--source", "kernel"], &short].concat());
    if !kernel.status.success() {
        assert!(text(&kernel.stderr).contains("use --source mappings"), "{}", text(&kernel.stderr));
    }
    let mappings = run_in(place.path(), &[&monitor[..], &["--source", "mappings", "--for", "1500ms"]].concat());
    assert!(mappings.status.success(), "{}", text(&mappings.stderr));
}

/// Options that a file of sources names of other commands than its own, or that no help shows.
const OF_OTHERS: [(&str, &[&str]); 7] = [
    // What `size` asks of it.
    ("run", &["--curve"]),
    // Of refault-bench, which it starts.
    ("reproduce", &["--memory-mib", "--seconds"]),
    ("policies", &["--policy"]),
    ("doctor", &["--memory", "--source", "--security-opt"]),
    (
        "size",
        &[
            "--memory",
            "--quiet",
            "--summary",
            "--out",
            "--interval",
            "--policy",
            "--stats",
            "--stats-interval",
            "--curve",
        ],
    ),
    ("top", &["--stats", "--name", "--memory"]),
    ("pool", &["--name", "--memory"]),
];

/// Files that lie in the folder of another command than their own.
const BELOW_ANOTHER: [(&str, &str); 3] = [("reproduce/ask", "ask"), ("wss/host", "host"), ("wss/why", "why")];

/// Files below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Options that the help of a command shows, and of the commands below it.
fn options(words: &[&str]) -> BTreeSet<String> {
    let help = text(&run_in(Path::new("."), &[words, &["--help"]].concat()).stdout);
    let of = |text: &str| -> BTreeSet<String> {
        let names = text.split(|c: char| !c.is_ascii_lowercase() && c != '-').filter(|word| word.starts_with("--"));
        names.filter(|name| name.len() > 3).map(str::to_owned).collect()
    };
    let shown = help.split("Examples:").next().unwrap_or_default();
    let mut all = of(shown);
    let commands = shown.split("Commands:\n").nth(1).unwrap_or_default();
    for line in commands.lines().take_while(|line| line.starts_with("  ")) {
        let name = line.split_whitespace().next().unwrap_or_default();
        if line.starts_with("  ") && !line.starts_with("   ") && name != "help" {
            all.extend(options(&[words, &[name]].concat()));
        }
    }
    all
}

#[test]
fn no_message_of_a_command_names_an_option_that_it_does_not_have() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let (mut seen, mut wrong) = (0, Vec::new());
    for file in files {
        let name = file.strip_prefix(&root).expect("below").to_str().expect("text").trim_end_matches(".rs");
        let elsewhere = BELOW_ANOTHER.iter().find(|(folder, _)| name.starts_with(folder));
        let command = elsewhere.map_or_else(|| name.split('/').next().expect("a name"), |(_, command)| *command);
        let known = [
            "ask", "host", "why", "size", "run", "top", "pool", "serve", "wss", "reclaim", "record", "compare", "mrc",
            "trace",
        ];
        let known = known.iter().chain(&["monitor", "reproduce", "scenario", "policies", "workloads", "doctor"]);
        if !known.clone().any(|one| *one == command) {
            continue;
        }
        let own = options(&[command]);
        let of_others = OF_OTHERS.iter().filter(|(of, _)| *of == command).flat_map(|(_, options)| options.iter());
        let of_others: Vec<&str> = of_others.copied().collect();
        let source = std::fs::read_to_string(&file).expect("reads");
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
        // Between quotes: what may be said. Another command that is named has its own options.
        let literals =
            lines.flat_map(|line| line.split('"').skip(1).step_by(2)).filter(|text| !text.contains("refault "));
        for literal in literals {
            let words = literal.split(|c: char| !c.is_ascii_lowercase() && c != '-');
            for option in words.filter(|word| word.starts_with("--") && word.len() > 3) {
                seen += 1;
                if !own.contains(option) && !of_others.contains(&option) {
                    wrong.push(format!("{name}: {option} in: {literal}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 60, "{seen} options were looked at");
}
