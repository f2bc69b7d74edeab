//! One number, one name: what front-ends say of one run is the same, to the last digit, and what the kernel says from
//! outside; and the page of statistics is that of the table.
//!
//! `REFAULT_WRITE_DOCS=1 cargo test -p refault-cli --test statistics` writes the page's table anew.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::{compiled, lines, skipped, stdout, text, wait_for};
use refault_core::statistics;
use serde_json::Value;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
/// What counts of a run are called everywhere.
const COUNTS: [&str; 8] =
    ["faults", "first_touches", "rescued", "stored", "refaults", "prefetched", "unmovable", "lost"];

/// A program that goes through memory and waits, where it ran, and what is told of it.
struct Run {
    directory: TempDir,
    child: Child,
    mib: u64,
}

impl Run {
    /// Starts it, and waits until it has gone through its memory.
    fn begin(directory: TempDir, mib: u64, passes: u32, options: &[&str]) -> Run {
        let program = compiled(&directory, "program", include_str!("c/goes_through_and_waits.c"));
        let file = |name: &str| directory.path().join(name).display().to_string();
        let child = refault_in(directory.path())
            .arg("run")
            .args(options)
            .args(["--stats", &file("run.jsonl"), "--stats-interval", "50ms", "--summary", &file("summary.json")])
            .args(["--", &program, &mib.to_string(), &passes.to_string(), &file("ready")])
            .stdin(Stdio::piped())
            .stderr(std::fs::File::create(file("said")).expect("a file"))
            .spawn()
            .expect("starts");
        let run = Run { directory, child, mib };
        wait_for("the program to have gone through its memory", || run.file("ready").exists());
        run
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The last whole line of the statistics.
    fn line(&self) -> Value {
        let text = std::fs::read_to_string(self.file("run.jsonl")).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default()
    }

    /// Lets it end: its last line and its summary.
    fn end(&mut self) -> (String, Value) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("it ends").success());
        let summary = std::fs::read_to_string(self.file("summary.json")).expect("a summary");
        let said = std::fs::read_to_string(self.file("said")).expect("what it said");
        (said, serde_json::from_str(&summary).expect("JSON"))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn refault_in(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refault"));
    command.env("XDG_RUNTIME_DIR", directory).current_dir(directory);
    command
}

fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("{name} of {of}"))
}

/// Anonymous memory of processes, as the kernel counts it.
fn anonymous_bytes(processes: &[u32]) -> u64 {
    let of = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    };
    processes.iter().map(of).sum()
}

/// What every front-end must say of a run that has ended, and of which these are last line and summary.
fn all_agree(run: &Run, said: &str, summary: &Value) {
    let stats = run.file("run.jsonl").display().to_string();
    let lines = lines(Path::new(&stats));
    let totals = &lines.last().expect("a line")["run"];
    for (name, figure) in totals.as_object().expect("an object") {
        assert_eq!(figure, &summary[name.as_str()], "{name}: the statistics, and the summary");
    }
    // Each process has a last line; a program that executes another begins again.
    let ended: Vec<&Value> = lines.iter().filter(|line| line["last"] == true).collect();
    for name in COUNTS {
        let sum: u64 = ended.iter().map(|line| number(line, name)).sum();
        assert_eq!(sum, number(summary, name), "{name}: the sum over processes, and the summary");
    }
    for line in &lines {
        assert_eq!(
            (number(line, "refaults"), number(line, "stored")),
            (number(line, "pswpin"), number(line, "pswpout"))
        );
    }
    let first = said.lines().next().expect("a line").trim_start_matches("refault: ");
    let (sums, advice) = first.split_once("; ").expect("refaults make an advice");
    let words = format!(
        ", {} faults, {} pages stored, {} refaults, {:.2} s waited",
        grouped(number(summary, "faults")),
        grouped(number(summary, "stored")),
        grouped(number(summary, "refaults")),
        summary["waited_seconds"].as_f64().expect("seconds")
    );
    assert!(sums.starts_with("peak ") && sums.ends_with(&words), "{sums}{words}");
    let bytes = number(summary, "would_stop_refaulting_at_bytes");
    assert_eq!(summary["advice"], "more");
    assert!(bytes <= number(summary, "peak_with_stored_bytes"), "{summary}");

    // `top` and `report` have the very words.
    let screen = stdout(&["top", "--once", "--width", "120", &stats]);
    let (peak, rest) = sums.split_once(" of ").expect("a budget");
    let refaults = rest.split(", ").find(|part| part.ends_with("refaults")).expect("refaults");
    let waited = rest.rsplit(", ").next().expect("a time");
    assert!(screen.contains(&format!("the run: {peak}, {refaults}, {waited}\n")), "{sums}\n{screen}");
    assert!(screen.contains(advice), "{advice}\n{screen}");
    let page = run.file("run.html").display().to_string();
    stdout(&["report", &stats, "--out", &page]);
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(page.contains(&format!("The run: {sums}; {advice}.")), "{sums}; {advice}");
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[test]
fn front_ends_say_the_same_of_a_run_under_each_default_policy() {
    if skipped(&["gcc"]) {
        return;
    }
    let scheme = "[[schemes]]\naction = \"stat\"\n";
    // What `run` takes by itself, and what it takes with --pool or --scheme.
    let choices: [&[&str]; 3] = [&[], &["--policy", "mglru{cyclic=yes}"], &["--scheme", "scheme.toml"]];
    for options in choices {
        let directory = TempDir::new().expect("a directory");
        std::fs::write(directory.path().join("scheme.toml"), scheme).expect("writes");
        let mut run = Run::begin(directory, 32, 4, &[&["--memory", "24M"], options].concat());
        let (said, summary) = run.end();
        assert!(number(&summary, "refaults") > 2000, "{options:?}: {summary}");
        assert!(number(&summary, "peak_bytes") <= 24 * MIB, "{options:?}: {summary}");
        all_agree(&run, &said, &summary);
        // A loop through 32 MiB needs them, and what the tool takes.
        let advice = number(&summary, "would_stop_refaulting_at_bytes");
        assert!((32 * MIB..=37 * MIB).contains(&advice), "{options:?}: {advice}");
    }
}

#[test]
fn the_kernel_says_the_same_from_outside() {
    if skipped(&["gcc"]) {
        return;
    }
    let mut run = Run::begin(TempDir::new().expect("a directory"), 64, 2, &["--memory", "1G"]);
    wait_for("a line of the fullest moment", || run.line()["run"]["peak_bytes"].as_u64() >= Some(run.mib * MIB));
    let line = run.line();
    let process = number(&line, "pid") as u32;
    let outside = anonymous_bytes(&[process, run.child.id()]);
    let (said, summary) = run.end();
    let peak = number(&summary, "peak_bytes");
    // Outside counts stacks and the data of libraries too.
    assert!(peak.abs_diff(outside) < 6 * MIB, "{peak} counted, {outside} in /proc: {said}");
    assert!(number(&line, "resident_bytes") <= outside, "{line} {outside}");
    assert_eq!((number(&summary, "refaults"), number(&summary, "stored")), (0, 0), "{summary}");
    assert_eq!(number(&summary, "peak_with_stored_bytes"), peak);
    assert_eq!((&summary["advice"], said.contains("advice")), (&Value::from("enough"), false), "{said}");
    // The program has one thread: it cannot have waited longer than it ran.
    assert!(summary["waited_seconds"].as_f64() <= summary["seconds"].as_f64(), "{summary}");

    // Under less, it would have had the same, and is advised no more than that.
    let mut run = Run::begin(TempDir::new().expect("a directory"), 64, 3, &["--memory", "48M"]);
    let (_, less) = run.end();
    let (advice, had) = (number(&less, "would_stop_refaulting_at_bytes"), number(&less, "peak_with_stored_bytes"));
    assert!(had.abs_diff(peak) < 2 * MIB && advice <= had, "{peak} with ample memory, {had} had, {advice} advised");
    assert!(less["waited_seconds"].as_f64() > Some(0.0) && less["waited_seconds"].as_f64() <= less["seconds"].as_f64());
}

#[test]
fn a_pool_says_of_a_member_what_the_member_says_itself() {
    if skipped(&["gcc"]) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let pool = refault_in(directory.path()).args(["pool", "--memory", "24M", "--name", "t"]).spawn();
    let _daemon = Ends(pool.expect("starts"));
    let place = directory.path().to_owned();
    wait_for("the daemon", || {
        let status = refault_in(&place).args(["pool", "status", "t", "--format", "json"]).output().expect("starts");
        status.status.success()
    });
    let address = place.join("address");
    let window = refault_in(&place)
        .args(["serve", "--listen", "127.0.0.1:0"])
        .stderr(std::fs::File::create(&address).expect("a file"))
        .spawn()
        .expect("starts");
    let _window = Ends(window);
    let at =
        || std::fs::read_to_string(&address).unwrap_or_default().split("http://").nth(1).map(|at| at.trim().to_owned());
    let written = || std::fs::read_to_string(&address).is_ok_and(|text| text.ends_with('\n'));
    wait_for("the window", written);
    let at = at().expect("an address");
    let (host, token) = at.split_once("/#token=").expect("a token");
    let ask = |path: &str| {
        let mut stream = std::net::TcpStream::connect(host).expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n");
        std::io::Write::write_all(&mut stream, request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).expect("it answers");
        answer.split_once("\r\n\r\n").expect("a head").1.to_owned()
    };
    let mut run = Run::begin(directory, 32, 4, &["--pool", "t"]);
    let pool = |format: &str| {
        let output = refault_in(&place).args(["pool", "status", "t", "--format", format]).output().expect("starts");
        text(&output.stdout)
    };
    // The program waits, so nothing changes any more: what each says comes to be the same.
    let names = ["faults", "refaults", "peak_bytes"];
    let of_metric = |metrics: &str, name: &str| {
        let name = match name {
            "peak_bytes" => "refault_member_peak_bytes".to_owned(),
            name => format!("refault_member_{name}_total"),
        };
        let line = metrics.lines().find(|line| line.starts_with(&format!("{name}{{"))).unwrap_or_default();
        line.rsplit(' ').next().and_then(|figure| figure.parse::<f64>().ok()).unwrap_or(-1.0)
    };
    wait_for("all to say the same", || {
        let line = run.line();
        let own = &line["run"];
        let json: Value = serde_json::from_str(&pool("json")).unwrap_or_default();
        let member = &json["members"][0];
        let served: Value = serde_json::from_str(&ask("/api/pools")).unwrap_or_default();
        let served = &served["pools"][0]["members"][0];
        let metrics = ask("/metrics");
        let table = csv_row(&pool("csv"));
        let same = |name: &&str| {
            let figure = own[*name].as_u64();
            figure.is_some()
                && [member, served].iter().all(|one| one[*name].as_u64() == figure)
                && table.get(*name).and_then(|text| text.parse().ok()) == figure
                && of_metric(&metrics, name) == figure.unwrap_or(0) as f64
        };
        let waited = [&own["waited_seconds"], &member["waited_seconds"], &served["waited_seconds"]].map(Value::as_f64);
        names.iter().all(same)
            && own["refaults"].as_u64() > Some(2000)
            && waited.iter().all(|seconds| seconds.zip(waited[0]).is_some_and(|(a, b)| (a - b).abs() < 1e-6))
    });
    let (said, summary) = run.end();
    all_agree(&run, &said, &summary);
}

/// A run of a program under `bytes` bytes: its summary.
fn summary_under(directory: &TempDir, bytes: u64, script: &str) -> Value {
    let file = directory.path().join("summary.json");
    let mut command = refault_in(directory.path());
    command.args(["run", "--quiet", "--memory", &bytes.to_string(), "--summary"]).arg(&file);
    assert!(command.args(["--", "python3", "-c", script]).status().expect("starts").success());
    serde_json::from_str(&std::fs::read_to_string(&file).expect("a summary")).expect("JSON")
}

#[test]
fn the_advice_is_near_the_budget_at_which_refaults_end() {
    if skipped(&["python3"]) {
        return;
    }
    let scripts = [
        include_str!("scripts/goes_through.py"),
        include_str!("scripts/touches_at_random.py"),
        include_str!("scripts/makes_anew.py"),
    ];
    let directory = TempDir::new().expect("a directory");
    for script in scripts {
        let peak = number(&summary_under(&directory, 1 << 30, script), "peak_bytes");
        let little = peak * 2 / 3;
        let summary = summary_under(&directory, little, script);
        let advice = number(&summary, "would_stop_refaulting_at_bytes");
        // What the tool keeps of each page is not the same to the byte.
        assert!(advice <= peak + peak / 50, "{advice} advised, {peak} with ample memory: {script}");
        // The budget at which one in a hundred of these refaults is left.
        let few = (number(&summary, "refaults") / 100).max(31);
        let (mut low, mut high) = (little, peak * 21 / 20);
        for _ in 0..5 {
            let middle = low.midpoint(high);
            let is_enough = number(&summary_under(&directory, middle, script), "refaults") <= few;
            *(if is_enough { &mut high } else { &mut low }) = middle;
        }
        let off = advice as f64 / high as f64;
        assert!((0.85..=1.15).contains(&off), "{advice} advised, {high} found by bisection: {script}");
    }
}

/// The first row of a table, by its heads.
fn csv_row(text: &str) -> std::collections::BTreeMap<String, String> {
    let rows = common::rows(text);
    let [heads, row, ..] = &rows[..] else { return Default::default() };
    heads.iter().cloned().zip(row.iter().cloned()).collect()
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
fn a_program_has_no_more_under_a_larger_budget() {
    if skipped(&["python3"]) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let file = directory.path().join("summary.json").display().to_string();
    let peak = |memory: &str| {
        let program = include_str!("scripts/goes_through.py");
        stdout(&["run", "--memory", memory, "--quiet", "--summary", &file, "--", "python3", "-c", program]);
        let summary: Value = serde_json::from_str(&std::fs::read_to_string(&file).expect("a summary")).expect("JSON");
        assert_eq!(number(&summary, "stored"), 0, "{summary}");
        number(&summary, "peak_bytes")
    };
    // Tables of the agent are made for the budget; what was never touched of them is no memory.
    let (little, much) = (peak("128M"), peak("64G"));
    assert!(much < little + 3 * MIB, "{little} {much}");
}

#[test]
fn what_a_fork_shares_is_counted_once() {
    if skipped(&["python3"]) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let file = directory.path().join("summary.json").display().to_string();
    let program = include_str!("scripts/reads_beside_a_child.py");
    stdout(&["run", "--memory", "1G", "--quiet", "--summary", &file, "--", "python3", "-c", program]);
    let summary: Value = serde_json::from_str(&std::fs::read_to_string(&file).expect("a summary")).expect("JSON");
    // 40 MiB that two processes share, and the two interpreters.
    assert!((40 * MIB..64 * MIB).contains(&number(&summary, "peak_bytes")), "{summary}");
}

/// The first of two such comments around the table, and the last.
const MARKS: [&str; 2] = ["<!-- made from refault_core::statistics -->\n", "<!-- end -->"];

#[test]
fn the_page_is_that_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/statistics.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let (before, rest) = page.split_once(MARKS[0]).expect("a mark");
    let (_, after) = rest.split_once(MARKS[1]).expect("an end");
    let mut table = "| name | in words | unit | of | kept | meaning |\n|---|---|---|---|---|---|\n".to_owned();
    for one in statistics::ALL {
        table += &format!(
            "| `{}` | {} | {} | {} | {} | {} |\n",
            one.name,
            one.word,
            one.unit.name(),
            one.scope.name(),
            one.stability.name(),
            one.meaning
        );
    }
    let made = format!("{before}{}{table}{}{after}", MARKS[0], MARKS[1]);
    if std::env::var_os("REFAULT_WRITE_DOCS").is_some() {
        std::fs::write(&path, &made).expect("the page can be written");
    }
    assert_eq!(std::fs::read_to_string(&path).expect("the page"), made, "write it anew with REFAULT_WRITE_DOCS=1");
}
