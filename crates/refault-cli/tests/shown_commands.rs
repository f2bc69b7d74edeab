//! The commands that README and the guides show, as they stand there, with the files that their text speaks of.
//!
//! Blocks marked `sh` are run; those that no test can run (docker, `kubectl`, an installation) are marked `console`.
//! README's first block is not among them: CI runs it, and it holds these tests.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{skipped, text};
use tempfile::TempDir;

/// What the table of commands calls `program`: uses some memory for a second.
const PROGRAM: &str = include_str!("c/one_second.c");

const MACHINE: &str = r#"[machine]
memory = "4M"
swap = "8M"
swap_device = "zram-lz4"
duration = "50ms"
[[task]]
name = "reader"
[[task.workload]]
spec = "zipf:theta=0.9,pages=2000,accesses=20000,kind=anon"
"#;

/// The beginnings of commands that measure for minutes, and options with which they take seconds. The options stand
/// before what is shown where a program follows, and behind it otherwise.
const MEASURES: [(&str, &str); 1] = [("refault size", "--runs 1 --budgets 16M --give-up 2")];

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The blocks of shell commands on a page.
fn blocks(page: &str) -> Vec<&str> {
    page.split("\n```sh\n").skip(1).map(|rest| rest.split("\n```").next().expect("a first part")).collect()
}

/// The commands in each row of the table under `| to | run |`.
fn table(page: &str) -> Vec<Vec<&str>> {
    let (_, rows) = page.split_once("\n| to | run |\n").expect("the table is there");
    rows.lines()
        .take_while(|line| line.starts_with('|'))
        .map(|row| row.split('`').skip(1).step_by(2).filter(|code| code.starts_with("refault ")).collect())
        .collect()
}

/// Pages whose blocks run here, with the programs that they need. `true`: takes a minute or more, which only CI spends.
const PAGES: [(&str, &[&str], bool); 11] = [
    ("README.md", &["python3"], true),
    ("docs/start.md", &["python3"], true),
    ("docs/guide/production.md", &["python3"], true),
    ("docs/guide/containers.md", &["python3"], false),
    ("docs/guide/heaps.md", &["node"], false),
    ("docs/guide/monitor.md", &["python3"], false),
    ("docs/guide/overhead.md", &[], false),
    ("docs/guide/privileges.md", &[], false),
    ("docs/guide/static.md", &["python3"], false),
    ("docs/guide/troubleshooting.md", &[], false),
    ("docs/explain/experiments.md", &[], false),
];

/// Pages whose blocks other tests run.
const ELSEWHERE: [&str; 4] =
    ["docs/guide/compare.md", "docs/guide/host.md", "docs/guide/pool.md", "docs/guide/watch.md"];

/// A block as it is shown, but for commands that measure for minutes.
fn lines_in_seconds(block: &str) -> String {
    block.lines().map(|line| in_seconds(line) + "\n").collect()
}

/// A command as it is shown, or, if it measures for minutes, with the options of [`MEASURES`].
fn in_seconds(command: &str) -> String {
    let Some((begins, options)) = MEASURES.iter().find(|(begins, _)| command.starts_with(begins)) else {
        return command.to_owned();
    };
    match command.contains(" -- ") {
        true => command.replacen(begins, &format!("{begins} {options}"), 1),
        false => format!("{command} {options}"),
    }
}

/// A directory in which commands run, with `refault` and `program` on the path.
struct Place {
    directory: TempDir,
    path: std::ffi::OsString,
}

impl Place {
    fn new() -> Place {
        let directory = TempDir::new().expect("a temporary directory");
        let programs = directory.path().join("bin");
        std::fs::create_dir(&programs).expect("creates");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_refault"), programs.join("refault")).expect("links");
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(programs).chain(std::env::split_paths(&inherited));
        let path = std::env::join_paths(all).expect("a path");
        Place { directory, path }
    }

    fn write(&self, name: &str, contents: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, contents).expect("writes");
        path
    }

    /// Runs lines of shell; all must succeed. Returns what they wrote to standard output.
    fn run(&self, lines: &str) -> String {
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", lines]).current_dir(self.directory.path()).env("PATH", &self.path);
        let output = shell.output().expect("bash starts");
        assert!(output.status.success(), "{lines}\n{}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }
}

#[test]
fn every_command_in_the_table_of_commands_runs() {
    if skipped(&["bash", "gcc"]) {
        return;
    }
    let page = page("docs/README.md");
    let rows = table(&page);
    assert!(rows.iter().flatten().count() >= 15, "only {rows:?}");
    let place = Place::new();
    place.write("machine.toml", MACHINE);
    place.write("program.c", PROGRAM);
    place.run("gcc -O1 -o bin/program program.c");
    place.run("refault trace generate zipf:theta=1,pages=20000,accesses=200000 app.u64.zst");
    place.run("refault trace generate zipf:theta=1,pages=200000,accesses=1000000 huge.rft");
    // Rows need nothing of each other.
    at_once(&rows, |commands| {
        for command in commands {
            place.run(&in_seconds(command));
        }
    });
    for made in ["run.jsonl", "app.rft", "app.html"] {
        assert!(place.directory.path().join(made).metadata().is_ok_and(|file| file.len() > 0), "{made} was written");
    }
}

/// True, with a skip, where live tests are not required: what follows takes a minute or more, which only CI spends.
fn too_long() -> bool {
    let required = std::env::var("REFAULT_REQUIRE").is_ok_and(|value| value == "1");
    if !required {
        refault_testing::skip("takes a minute or more; REFAULT_REQUIRE=1 runs it");
    }
    !required
}

/// Does this to each, two at a time: programs that are shown mostly wait, or keep one processor busy.
fn at_once<T: Sync>(all: &[T], act: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    act(one);
                }
            });
        }
    });
}

/// Runs the blocks of the pages of [`PAGES`] that take as long as this says.
fn run_pages(takes_long: bool) {
    let pages = Vec::from_iter(PAGES.iter().filter(|(_, _, long)| *long == takes_long));
    at_once(&pages, |(name, needs, _)| {
        if skipped(&[&["bash"], *needs].concat()) {
            return;
        }
        let page = page(name);
        let blocks = blocks(&page);
        let shown = blocks.iter().skip(usize::from(*name == "README.md"));
        let place = Place::new();
        place.write("analysis.py", "words = [str(n) for n in range(200_000)]\nfor _ in range(20): words.sort()\n");
        let mut count = 0;
        for block in shown {
            place.run(&lines_in_seconds(block));
            count += 1;
        }
        assert!(count > 0, "{name} shows no command any more: take it off the list");
    });
}

#[test]
fn what_the_guides_show_runs() {
    run_pages(false);
}

#[test]
fn what_readme_and_the_first_guides_show_runs() {
    if !too_long() {
        run_pages(true);
    }
}

#[test]
fn every_page_that_shows_commands_is_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let known: Vec<&str> = PAGES.iter().map(|page| page.0).chain(ELSEWHERE).collect();
    for folder in ["docs", "docs/guide", "docs/explain", "docs/reference", "docs/reference/policies"] {
        for entry in std::fs::read_dir(root.join(folder)).expect("the folder is there") {
            let name = format!("{folder}/{}", entry.expect("an entry").file_name().to_string_lossy());
            if name.ends_with(".md") {
                let shows = !blocks(&page(&name)).is_empty();
                assert_eq!(shows, known.contains(&name.as_str()), "{name}: shown commands and those that run differ");
            }
        }
    }
}

/// What the tutorial records, and what a test records in its place: the same program, doing a sixth of it.
const RECORDED: (&str, &str) = ("-quiet -O2 hello.i", "-quiet -E hello.i");

/// The longest of these tests: by its name the first.
#[test]
fn docs_tutorial_runs() {
    if too_long() || skipped(&["bash", "gcc", "valgrind"]) {
        return;
    }
    let tutorial = page("docs/guide/compare.md");
    let blocks = blocks(&tutorial);
    let [commands] = blocks[..] else { panic!("the tutorial has other blocks now: {blocks:?}") };
    let place = Place::new();
    assert!(commands.contains(RECORDED.0), "the tutorial records something else now");
    let said = place.run(&commands.replace(RECORDED.0, RECORDED.1));
    // Other versions of the compiler touch other pages, so no figure of the page's.
    assert!(said.contains("distinct pages") && said.contains("the knee is at") && said.contains(" mglru "), "{said}");
    assert!(place.directory.path().join("cc1.html").exists());
}
