//! What checkers, debuggers and tracers say of a program alone and under `refault run`, as a page of the reference.
//!
//! Each row is made anew: a program is compiled, and a tool runs it alone and under a budget of half of its memory.
//! What is said must be the same, or differ as [`DIFFERENT`] says in words. The page is compared for tools of the
//! versions that it names. `REFAULT_WRITE_DOCS=1 cargo test -p refault-cli --test programs checkers` writes it anew.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use refault_testing::skip_required;
use tempfile::TempDir;

use crate::common::{skipped, text};

/// The program fills twice as much.
const BUDGET: &str = "8M";
/// For tools that run the program as their child, which do not fit into that themselves.
const BUDGET_OF_TOOLS: &str = "64M";
/// No run takes as long, in seconds.
const MAX_SECONDS: &str = "120";
const SOURCE: &str = include_str!("c/for_checkers.c");
const PAGE: &str = "docs/reference/sanitizers.md";

/// A way to have a program checked.
enum Way {
    /// A compiler that is asked for a checker.
    Compiled(&'static str, &'static str),
    /// A program that runs it, with these arguments before it.
    Around(&'static [&'static str]),
    /// A program that is attached to it, by its number behind these arguments.
    Attached(&'static [&'static str]),
}

struct Tool {
    name: &'static str,
    way: Way,
    /// Arguments of the program.
    programs: &'static [&'static [&'static str]],
}

const LEAKS: &[&[&str]] = &[&["clean"], &["loses", "1"], &["loses", "1000"]];
const ALL: &[&[&str]] = &[&["clean"], &["loses", "1"], &["loses", "1000"], &["overflows"]];
const RACES: &[&[&str]] = &[&["clean"], &["races"]];
const SHIFTS: &[&[&str]] = &[&["clean"], &["shifts"]];
const CLEAN: &[&[&str]] = &[&["clean"]];
/// A local variable of a program that waits, and what lies at two ends of its memory.
const LOOKS: &[&str] =
    &["gdb", "-batch", "-nx", "-ex", "frame function main", "-ex", "print kept[7]", "-ex", "print kept[1999999]", "-p"];

const TOOLS: &[Tool] = &[
    Tool { name: "LeakSanitizer (gcc)", way: Way::Compiled("gcc", "leak"), programs: LEAKS },
    Tool { name: "LeakSanitizer (clang)", way: Way::Compiled("clang", "leak"), programs: LEAKS },
    Tool { name: "AddressSanitizer (gcc)", way: Way::Compiled("gcc", "address"), programs: ALL },
    Tool { name: "AddressSanitizer (clang)", way: Way::Compiled("clang", "address"), programs: ALL },
    Tool { name: "ThreadSanitizer (gcc)", way: Way::Compiled("gcc", "thread"), programs: RACES },
    Tool { name: "ThreadSanitizer (clang)", way: Way::Compiled("clang", "thread"), programs: RACES },
    Tool { name: "UndefinedBehaviorSanitizer (gcc)", way: Way::Compiled("gcc", "undefined"), programs: SHIFTS },
    Tool { name: "UndefinedBehaviorSanitizer (clang)", way: Way::Compiled("clang", "undefined"), programs: SHIFTS },
    Tool { name: "MemorySanitizer (clang)", way: Way::Compiled("clang", "memory"), programs: CLEAN },
    Tool { name: "memcheck", way: Way::Around(&["valgrind", "--leak-check=full"]), programs: ALL },
    Tool {
        name: "gdb, starting it",
        way: Way::Around(&["gdb", "-batch", "-nx", "-ex", "run", "--args"]),
        programs: CLEAN,
    },
    Tool { name: "gdb, attached", way: Way::Attached(LOOKS), programs: &[&["waits"]] },
    Tool { name: "strace", way: Way::Around(&["strace", "-f", "-e", "trace=exit_group"]), programs: CLEAN },
    Tool { name: "ltrace", way: Way::Around(&["ltrace", "-e", "puts"]), programs: CLEAN },
    Tool { name: "perf", way: Way::Around(&["perf", "stat", "-e", "task-clock"]), programs: CLEAN },
];

/// What need not be there: its rows are left out then.
const OPTIONAL: [&str; 3] = ["clang", "ltrace", "perf"];

/// What is not the same, by tool and program: a word of what is said under `refault run`, and why.
const DIFFERENT: &[(&str, &str, &str, &str)] = &[(
    "gdb, attached",
    "waits",
    "No frame",
    "sees the agent, in which a thread waits; memory that is out cannot be read",
)];

/// Programs, compiled once each.
struct Bench {
    directory: TempDir,
}

impl Bench {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `None`: there is no such compiler, or it has no such checker.
    fn build(&self, compiler: &str, checker: Option<&str>) -> Option<PathBuf> {
        let name = format!("{compiler}-{}", checker.unwrap_or("alone"));
        let (file, program) = (self.path("for_checkers.c"), self.path(&name));
        std::fs::write(&file, SOURCE).expect("writes");
        let mut command = Command::new(compiler);
        command.args(["-g", "-O0", "-w", "-pthread", "-o"]).arg(&program).arg("for_checkers.c");
        command.args(checker.map(|checker| format!("-fsanitize={checker}"))).current_dir(self.directory.path());
        let made = command.stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
        made.success().then_some(program)
    }
}

/// What a tool and the program say that means something, without numbers of processes, addresses and folders.
fn said(output: &Output) -> String {
    let all = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    const MEANING: [&str; 9] = [
        "SUMMARY: ",
        "ERROR SUMMARY",
        "definitely lost: ",
        "runtime error: ",
        "exited normally",
        "+++ exited",
        " wrong",
        "$1 = ",
        "No frame",
    ];
    let meaning: BTreeSet<String> = all
        .lines()
        .filter(|line| MEANING.iter().any(|meaning| line.contains(meaning)))
        .filter(|line| !line.contains("HEAP SUMMARY") && !line.contains("LEAK SUMMARY"))
        .map(short)
        .collect();
    let how = output.status.code().map_or("a signal".to_owned(), |status| status.to_string());
    let words: Vec<String> = meaning.into_iter().chain([format!("status {how}")]).collect();
    words.join("; ")
}

fn short(line: &str) -> String {
    // valgrind: `==1234== `.
    let line = line.rsplit_once("== ").map_or(line, |(_, rest)| rest);
    let words = line.split_whitespace().map(|word| word.rsplit_once('/').map_or(word, |(_, name)| name));
    let line = words.collect::<Vec<_>>().join(" ");
    let line = line.replace("SUMMARY: ", "").replace("ERROR ", "");
    // gdb: `[Inferior 1 (process 1234) exited normally]`.
    match line.split_once("(process ").and_then(|(before, rest)| Some((before, rest.split_once(") ")?.1))) {
        Some((before, rest)) => format!("{before}{rest}"),
        None => line,
    }
}

fn run(command: &[String]) -> Output {
    Command::new("timeout").args(["-k", "5", MAX_SECONDS]).args(command).output().expect("timeout starts")
}

fn under(budget: &str, command: &[String]) -> Vec<String> {
    let refault = env!("CARGO_BIN_EXE_refault");
    let mut all: Vec<String> = [refault, "run", "--memory", budget, "--"].map(str::to_owned).into();
    all.extend_from_slice(command);
    all
}

/// Starts a program that says when it waits.
fn waiting(command: &[String]) -> Child {
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it says so");
    assert_eq!(line, "waits\n");
    child
}

/// The only child of a process.
fn child_of(process: u32) -> u32 {
    let path = format!("/proc/{process}/task/{process}/children");
    let text = std::fs::read_to_string(path).expect("the kernel lists children");
    text.split_whitespace().next().expect("one").parse().expect("a number")
}

struct Row {
    tool: &'static str,
    version: String,
    program: String,
    alone: String,
    under: String,
    managed: &'static str,
}

impl Row {
    fn line(&self) -> String {
        let Row { tool, version, program, alone, managed, .. } = self;
        let under = if self.under == self.alone { "the same" } else { self.difference().unwrap_or(&self.under) };
        format!("| {tool} | {version} | {program} | {alone} | {under} | {managed} |")
    }

    fn difference(&self) -> Option<&'static str> {
        let listed = DIFFERENT.iter().find(|(tool, program, word, _)| {
            *tool == self.tool && *program == self.program && self.under.contains(word)
        });
        listed.map(|(.., why)| *why)
    }
}

/// What a program is and says of its own version.
fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let said = text(&output.stdout);
    let is_number =
        |word: &&str| word.trim_start_matches("valgrind-").starts_with(|first: char| first.is_ascii_digit());
    let word = said.lines().next()?.split_whitespace().rev().find(is_number)?;
    Some(word.trim_start_matches("valgrind-").trim_end_matches('.').to_owned())
}

/// Why what was run is not managed, or that it is.
fn managed(output: &Output) -> &'static str {
    if text(&output.stderr).contains("it is not managed") { "no, which is said" } else { "yes" }
}

fn rows_of(tool: &Tool, bench: &Bench) -> Vec<Row> {
    let (program, needed) = match tool.way {
        Way::Compiled(compiler, checker) => (bench.build(compiler, Some(checker)), compiler),
        Way::Around(command) | Way::Attached(command) => (bench.build("gcc", None), command[0]),
    };
    let (Some(program), Some(version)) = (program, version(needed)) else {
        if !OPTIONAL.contains(&needed) {
            skip_required(format_args!("{}: {needed} is not installed, or has no such checker", tool.name));
        }
        return Vec::new();
    };
    let mut rows = Vec::new();
    for arguments in tool.programs {
        let mut command = vec![program.display().to_string()];
        command.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let (alone, with) = match tool.way {
            Way::Compiled(..) => (run(&command), run(&under(BUDGET, &command))),
            Way::Around(before) => {
                let all: Vec<String> = before.iter().map(|word| (*word).to_owned()).chain(command).collect();
                (run(&all), run(&under(BUDGET_OF_TOOLS, &all)))
            }
            Way::Attached(before) => {
                let look = |child: &mut Child, process: u32| {
                    let mut all: Vec<String> = before.iter().map(|word| (*word).to_owned()).collect();
                    all.push(process.to_string());
                    let output = run(&all);
                    let _ = Command::new("kill").arg(process.to_string()).status();
                    child.wait().expect("it ends");
                    output
                };
                let mut child = waiting(&command);
                let number = child.id();
                let alone = look(&mut child, number);
                let mut child = waiting(&under(BUDGET, &command));
                let number = child_of(child.id());
                (alone, look(&mut child, number))
            }
        };
        rows.push(Row {
            tool: tool.name,
            version: version.clone(),
            program: arguments.join(" "),
            alone: said(&alone),
            under: said(&with),
            managed: managed(&with),
        });
        assert!(!matches!(tool.way, Way::Compiled(..)) || managed(&with) == "yes", "{}", text(&with.stderr));
    }
    rows
}

fn page(lines: &[String]) -> String {
    let mut page = format!(
        "<!-- generated by REFAULT_WRITE_DOCS=1 cargo test -p refault-cli --test programs checkers -->\n# Checkers, debuggers and \
         tracers under `refault run`\n\nEach program fills 16 MiB and reads them at its end; `loses` leaves blocks behind, \
         `races` writes a word by two\nthreads, `shifts` shifts too far. The budget is {BUDGET}, and {BUDGET_OF_TOOLS} for \
         tools that start the program.\n\n| tool | version | program | says alone | under `refault run` | managed \
         |\n|---|---|---|---|---|---|\n"
    );
    lines.iter().for_each(|line| _ = writeln!(page, "{line}"));
    page
}

#[test]
fn checkers_say_what_they_say_alone() {
    if skipped(&["gcc", "timeout"]) {
        return;
    }
    let bench = Bench { directory: TempDir::new().expect("a directory") };
    let rows: Vec<Row> = TOOLS.iter().flat_map(|tool| rows_of(tool, &bench)).collect();
    let wrong: Vec<String> = rows
        .iter()
        .filter(|row| row.alone != row.under && row.difference().is_none())
        .map(|row| format!("{} {}: alone {:?}, under refault {:?}", row.tool, row.program, row.alone, row.under))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let lines: Vec<String> = rows.iter().map(Row::line).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    if std::env::var_os("REFAULT_WRITE_DOCS").is_some() {
        std::fs::write(&path, page(&lines)).expect("the page can be written");
        return;
    }
    let written = std::fs::read_to_string(&path).expect("the page");
    let is_known = |row: &Row| written.contains(&format!("| {} | {} |", row.tool, row.version));
    for (row, line) in rows.iter().zip(&lines).filter(|(row, _)| is_known(row)) {
        assert!(written.contains(line.as_str()), "{PAGE} lacks {line}: REFAULT_WRITE_DOCS=1 ({})", row.tool);
    }
}
