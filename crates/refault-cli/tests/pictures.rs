//! Every kind of report in a real browser, at the width of a desk and of a telephone, light and dark: no text is cut,
//! broken inside a word, on other text, outside its picture or too faint, and no two lines look alike.
//!
//! `pictures/audit.js` is the judge; [`finds_what_is_wrong`] judges the judge.

mod common;

use std::path::Path;
use std::process::Command;

use common::{refault, skipped, stdout, text};
use refault_testing::skip_required;
use serde_json::Value;
use tempfile::TempDir;

const AUDIT: &str = include_str!("pictures/audit.js");
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
const WIDTHS: [u32; 2] = [1280, 400];

fn browser() -> Option<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = BROWSERS.into_iter().find(|name| std::env::split_paths(&path).any(|place| place.join(name).is_file()));
    if found.is_none() {
        skip_required(format_args!("no browser: none of {} is installed", BROWSERS.join(", ")));
    }
    found
}

/// What a reader of these pages cannot read, each at its width.
fn findings(browser: &str, pages: &[(&str, u32)], dark: bool) -> Vec<Vec<String>> {
    let scratch = TempDir::new().expect("a directory");
    let frame = scratch.path().join("frame.html");
    // In a frame, because the window itself cannot be as narrow as a telephone.
    let frame_of = |(page, width): &(&str, u32)| {
        let source = page.replace('&', "&amp;").replace('"', "&quot;");
        format!("<iframe style=\"border:0;width:{width}px;height:3000px\" srcdoc=\"{source}\"></iframe>")
    };
    let frames: String = pages.iter().map(frame_of).collect();
    let document = format!(
        "<!DOCTYPE html><meta charset=utf-8><body style=margin:0>{frames}\
         <script>onload = () => setTimeout(() => {{ {AUDIT} }}, 50)</script>"
    );
    std::fs::write(&frame, document).expect("writes");
    let output = Command::new(browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1400,1000",
            "--virtual-time-budget=5000",
        ])
        .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
        .arg(format!("--user-data-dir={}", scratch.path().join("profile").display()))
        .arg("--dump-dom")
        .arg(format!("file://{}", frame.display()))
        .output()
        .expect("the browser starts");
    let shown = text(&output.stdout);
    let (_, rest) = shown.split_once("<pre id=\"audit\">").unwrap_or_else(|| panic!("{}", text(&output.stderr)));
    let json = rest.split("</pre>").next().expect("a first part");
    let json = json.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let results: Value = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"));
    let results = results.as_array().expect("a list");
    assert_eq!(results.len(), pages.len());
    let found_at = |(result, (_, width)): (&Value, &(&str, u32))| {
        assert_eq!(
            (&result["dark"], &result["width"]),
            (&Value::from(dark), &Value::from(*width)),
            "the browser obeys"
        );
        let found = result["found"].as_array().expect("a list").iter();
        found.map(|one| one.as_str().expect("text").to_owned()).collect()
    };
    results.iter().zip(pages).map(found_at).collect()
}

/// Reports and their names. A browser takes longer to start than to show one, so all are shown in one window.
fn are_readable(browser: &str, reports: &[(&str, &Path)]) {
    let read = |(name, path): &(&str, &Path)| {
        let page = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"));
        // What is shown on demand is to be readable too.
        let page = page.replace("<details class=\"trace\">", "<details class=\"trace\" open>");
        let made = "Made by refault";
        assert!(page.contains(made) && page.contains(" UTC by "), "{name} does not say when and by which command");
        page
    };
    let pages: Vec<String> = reports.iter().map(read).collect();
    let frames = || pages.iter().flat_map(|page| WIDTHS.map(|width| (page.as_str(), width)));
    let names = reports.iter().flat_map(|(name, _)| WIDTHS.map(|width| (name, width)));
    for dark in [false, true] {
        let scheme = if dark { "dark" } else { "light" };
        for (found, (name, width)) in findings(browser, &Vec::from_iter(frames()), dark).iter().zip(names.clone()) {
            assert!(found.is_empty(), "{name} at {width} px, {scheme}:\n{}", found.join("\n"));
        }
    }
}

/// A report in this directory, made by a command.
fn report(directory: &TempDir, name: &str, arguments: &[&str]) -> std::path::PathBuf {
    let path = directory.path().join(name);
    let mut arguments = arguments.to_vec();
    arguments.extend(["--report", path.to_str().expect("text")]);
    stdout(&arguments);
    path
}

#[test]
fn finds_what_is_wrong() {
    let Some(browser) = browser() else { return };
    let page = |body: &str| {
        format!(
            "<!DOCTYPE html><html><head><style>body{{margin:0;background:#fff}}</style></head><body>{body}</body></html>"
        )
    };
    let cases = [
        ("<p>fine</p>", ""),
        ("<p style='width:2em;overflow-wrap:anywhere'>Wonderful</p>", "broken word: Wonderful"),
        (
            "<p style='white-space:nowrap'>all of this stands on one line and reaches far beyond the edge of a telephone</p>",
            "beyond the edge",
        ),
        (
            "<div class=scroll style='overflow-x:auto'><table><caption style='white-space:nowrap'>what explains a table is read without scrolling sideways</caption><tr><td>1</table></div>",
            "beyond the edge",
        ),
        ("<div style='overflow:hidden;width:3em;white-space:nowrap'>much more text</div>", "cut: <div>"),
        (
            "<svg viewBox='0 0 100 50' width=400><text x=10 y=20>first</text><text x=14 y=20>second</text></svg>",
            "on each other: first | second",
        ),
        ("<svg viewBox='0 0 100 50' width=400><text x=90 y=20>a long label</text></svg>", "outside its picture"),
        ("<p style='color:#ccc'>faint</p>", "contrast"),
        (
            "<svg viewBox='0 0 9 9'><g class=series><title>a</title><path stroke=red d='M0 0h9'/></g><g class=series><title>b</title><path stroke=red d='M0 5h9'/></g></svg>",
            "the same look: a | b",
        ),
    ];
    let pages = cases.map(|(body, _)| page(body));
    let frames: Vec<(&str, u32)> = pages.iter().map(|page| (page.as_str(), 400)).collect();
    for (found, (body, expected)) in findings(browser, &frames, false).iter().zip(cases) {
        let found = found.join("\n");
        assert!(if expected.is_empty() { found.is_empty() } else { found.contains(expected) }, "{body}: {found}");
    }
}

#[test]
fn comparisons_curves_and_traces_are_readable() {
    let Some(browser) = browser() else { return };
    let directory = TempDir::new().expect("a directory");
    let workloads = [
        "--workload",
        "zipf:pages=2000,accesses=40000",
        "--workload",
        "twopass:pages=2000,accesses=40000,hot=300,kind=fd",
    ];
    let compare = [&["compare", "--memory", "10%,25%,50%"], &workloads[..]].concat();
    let compare = report(&directory, "compare.html", &compare);
    let mrc = [&["mrc", "--policy", "lru,mglru,opt"], &workloads[..]].concat();
    let mrc = report(&directory, "mrc.html", &mrc);
    let sampled = ["mrc", "--sample", "3%", "--workload", "zipf:pages=20000,accesses=400000"];
    let sampled = report(&directory, "sampled.html", &sampled);
    let trace = common::trace(&directory, "a.u64", (0..20_000).map(|n| n * n % 997));
    let info = report(&directory, "info.html", &["trace", "info", &trace]);
    are_readable(browser, &[("compare", &compare), ("mrc", &mrc), ("mrc --sample", &sampled), ("trace info", &info)]);
}

/// All that is to be said of it: it takes long, so it is compared once.
#[test]
fn a_comparison_of_the_built_in_set_fits_a_terminal_and_is_a_report_that_begins_with_the_answer_and_is_not_long() {
    let directory = TempDir::new().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_refault"));
    let output = command.arg("compare").current_dir(directory.path()).output().expect("it starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "refault: report written to refault-report.html\n");
    let table = text(&output.stdout);
    for workload in ["zipf:", "hotcold:", "scanhot:", "twopass:", "mixed:"] {
        assert!(table.contains(workload), "{workload}");
    }
    let long = |line: &&str| line.chars().count() > 100;
    assert_eq!(table.lines().filter(long).collect::<Vec<_>>(), Vec::<&str>::new());
    assert!(table.contains("\n3 hotcold: 400,000 accesses") && table.contains(" of 3 hotcold\n"), "{table}");
    let compare = directory.path().join("refault-report.html");
    let page = std::fs::read_to_string(&compare).expect("the report");
    assert!(page.starts_with("<!DOCTYPE html>"));
    for needs in ["http://", "https://", "<script", "src=", "@import", "url("] {
        assert!(!page.contains(needs), "the report must need nothing else, but has {needs}");
    }
    let pictures = page.matches("role=\"img\"").count();
    assert!(pictures >= 6, "{pictures} pictures");
    assert_eq!(page.matches("The figures as a table").count(), pictures);
    // The answer stands before what is shown on demand.
    let at = |words: &str| page.find(words).unwrap_or_else(|| panic!("no {words}"));
    assert!(at("Fewest misses without knowing the future") < at("Over all traces"));
    assert!(at("Over all traces") < at("<details class=\"trace\"><summary>"));
    assert_eq!(page.matches("<details class=\"trace\"><summary>").count(), 6, "closed");
    let Some(browser) = browser() else { return };
    let measured =
        "<script>onload = () => document.title = 'high: ' + document.documentElement.scrollHeight</script></body>";
    std::fs::write(&compare, page.replace("</body>", measured)).expect("writes");
    let output = Command::new(browser)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000"])
        .arg("--virtual-time-budget=5000")
        .arg(format!("--user-data-dir={}", directory.path().join("profile").display()))
        .arg("--dump-dom")
        .arg(format!("file://{}", compare.display()))
        .output()
        .expect("the browser starts");
    let shown = text(&output.stdout);
    let high = shown.split("high: ").nth(1).and_then(|rest| rest.split('<').next()).expect("a height");
    assert!(high.parse::<u32>().is_ok_and(|pixels| (500..4000).contains(&pixels)), "{high} pixels");
}

#[test]
fn scenarios_are_readable() {
    let Some(browser) = browser() else { return };
    let directory = TempDir::new().expect("a directory");
    let file = directory.path().join("machine.toml");
    let machine = "[machine]\nmemory = \"8M\"\nswap = \"16M\"\nswap_device = \"zram-lz4\"\nduration = \"2s\"\nsample = \"100ms\"\n\
                   [[task]]\nname = \"reader\"\n[[task.workload]]\nspec = \"zipf:theta=0.9,pages=4000,accesses=400000,kind=anon\"\n";
    std::fs::write(&file, machine).expect("writes");
    let arguments = ["scenario", file.to_str().expect("text"), "--policy", "mglru,classic"];
    are_readable(browser, &[("scenario", &report(&directory, "scenario.html", &arguments))]);
}

/// And their tables fit a wide terminal, below the verdict.
#[test]
fn experiments_are_readable() {
    let directory = TempDir::new().expect("a directory");
    let [first, second] = ["mglru-v1", "freepool"].map(|name| {
        let path = directory.path().join(name).with_extension("html");
        let output = refault(&["reproduce", name, "--small", "--report", path.to_str().expect("text")]);
        let (said, table) = (text(&output.stderr), text(&output.stdout));
        assert!(output.status.success(), "{said}");
        let long: Vec<&str> = table.lines().filter(|line| line.chars().count() > 120).collect();
        assert!(long.is_empty(), "{name}: {long:#?}");
        assert!(said.lines().next().is_some_and(|line| line.contains(&format!("running {name}"))), "{said}");
        path
    });
    let Some(browser) = browser() else { return };
    are_readable(browser, &[("mglru-v1", &first), ("freepool", &second)]);
}

/// The longest of these tests, though it waits for most of that: by its name the first.
#[test]
fn a_look_at_programs_is_readable() {
    let Some(browser) = browser() else { return };
    if skipped(&["python3"]) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let program = "import time\nb = bytearray(24 << 20)\nfor n in range(20):\n for i in range(0, len(b), 4096): b[i] = n\n time.sleep(0.05)";
    let monitor = directory.path().join("monitor.html");
    let stats = directory.path().join("run.jsonl");
    let stats = stats.to_str().expect("text");
    let size = directory.path().join("size.html");
    let size = size.to_str().expect("text");
    // Each mostly waits for the program.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stdout(&["monitor", "--report", monitor.to_str().expect("text"), "--", "python3", "-c", program]);
        });
        scope.spawn(|| {
            let run = ["run", "--memory", "16M", "--stats", stats, "--stats-interval", "100"];
            stdout(&[&run[..], &["--", "python3", "-c", program]].concat());
            stdout(&["report", stats]);
        });
        stdout(&["size", "--budgets", "16M,48M", "--runs", "2", "--report", size, "--", "python3", "-c", program]);
    });
    let run = directory.path().join("run.html");
    are_readable(browser, &[("monitor", &monitor), ("report", &run), ("size", Path::new(size))]);
}
