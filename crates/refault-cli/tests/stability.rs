//! The page that says which names stay: commands, options, columns, C functions and Python names, each made from where
//! it is defined. Statistics and metrics have a column for it in pages of their own.
//!
//! `REFAULT_WRITE_DOCS=1 cargo test -p refault-cli --test all stability` writes the page anew.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::Command;

use crate::docs::{GENERATED, help, is_made, root, subcommands};

/// Commands of which every option and line may change, and why.
const DETAILS: [(&str, &str); 4] = [
    ("ask", "the kernels that can be asked change"),
    ("bench", "it only names another program"),
    ("reproduce", "experiments are added and refined"),
    ("scenario", "it follows the kernels that it describes"),
];

/// Options that may change though their command stays.
const DETAIL_OPTIONS: [(&str, &str); 4] =
    [("host", "--apply"), ("host", "--park"), ("run", "--grow"), ("run", "--scheme")];

/// Names of Python that may change: they follow other libraries.
const PYTHON_DETAILS: [&str; 2] = ["PythonPolicy", "sweep_mrc"];

/// Every command that can be called, with its help.
fn commands() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for command in subcommands(&help(&[])) {
        let text = help(&[&command]);
        let below = subcommands(&text);
        for name in &below {
            found.push((format!("{command} {name}"), help(&[&command, name])));
        }
        found.push((command, text));
    }
    found.sort();
    found
}

/// The long options that a help describes.
fn options(help: &str) -> BTreeSet<String> {
    let described = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let long = described.filter_map(|line| line.split([' ', ',', '=', '[']).find(|word| word.starts_with("--")));
    long.filter(|name| *name != "--help" && name.len() > 2).map(str::to_owned).collect()
}

/// The first line of what a command writes as CSV.
fn columns(command: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let trace = directory.path().join("a.text");
    std::fs::write(&trace, "1\n2\n1\n").expect("writes");
    let output = Command::new(env!("CARGO_BIN_EXE_refault"))
        .args(command)
        .arg(&trace)
        .args(["--memory", "1p", "--format", "csv"])
        .output()
        .expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().next().expect("a line of names").replace(',', "`, `")
}

/// Functions that a header declares.
fn functions(header: &str) -> BTreeSet<&str> {
    let lines = header.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()));
    let called = lines.filter_map(|line| line.split_once('(')).map(|(before, _)| before);
    called.filter_map(|before| before.rsplit([' ', '*']).next()).filter(|name| name.starts_with("refault_")).collect()
}

/// The names that a Python module gives away, with the public methods of its classes.
fn python_names(module: &str) -> BTreeSet<String> {
    let (mut names, mut class) = (BTreeSet::new(), None);
    for line in module.lines() {
        let name = |text: &str| text.split(['(', ':']).next().unwrap_or_default().trim().to_owned();
        let (definition, inner) = (line.trim_start().trim_start_matches("async "), line.starts_with("    "));
        if let Some(rest) = definition.strip_prefix("class ") {
            class = (!inner && !rest.starts_with('_')).then(|| name(rest));
            names.extend(class.clone());
        } else if let Some(rest) = definition.strip_prefix("def ").filter(|rest| !rest.starts_with('_')) {
            match (&class, line.starts_with("    def ") || line.starts_with("    async def ")) {
                (Some(class), true) => drop(names.insert(format!("{class}.{}", name(rest)))),
                _ if !inner => drop(names.insert(name(rest))),
                _ => {}
            }
        } else if !inner && !line.is_empty() && !line.starts_with(['@', '#', ')', '"', ' ']) {
            class = None;
        }
    }
    names
}

fn page() -> String {
    let mut page = format!(
        "{GENERATED} by REFAULT_WRITE_DOCS=1 cargo test -p refault-cli --test all stability -->\n# Which names stay\n\n\
         A *stable* name keeps its meaning in all releases with the same first two numbers, and none of them removes it. \
         A *detail* may change in each release. The [changelog](../../CHANGELOG.md) names every change of a stable name.\n\n\
         Statistics and metrics have a column for it: [statistics](statistics.md), [metrics](metrics.md). `host --json` \
         has a [schema](host.schema.json) with a version. Recordings in [`.rft`](rft.md) stay readable. Counters with \
         names of `/proc/vmstat` are stable. Of Rust, what the crate `refault-kit` exports is stable; items that its \
         pages mark as hidden are details. Names and parameters of policies and workloads are stable, and so are their \
         counts: a change of a count is named.\n\n## Commands and options\n\n| command | kept | options |\n|---|---|---|\n"
    );
    let commands = commands();
    for (command, text) in &commands {
        let first = command.split(' ').next().unwrap_or_default();
        let detail = DETAILS.iter().find(|(name, _)| *name == first);
        let options = options(text).into_iter().map(|option| {
            let may_change = detail.is_none() && DETAIL_OPTIONS.contains(&(command, &option));
            format!("`{option}`{}", if may_change { " (detail)" } else { "" })
        });
        let options = options.collect::<Vec<_>>().join(", ");
        let kept = detail.map_or("stable".to_owned(), |(_, why)| format!("detail: {why}"));
        let _ = writeln!(page, "| `{command}` | {kept} | {options} |");
    }
    let _ = writeln!(
        page,
        "\n## Columns of CSV, keys of JSON\n\nOf a row of `compare`: `{}`. Of `mrc`: `{}`. All are stable; \
         `wall_seconds` and `accesses_per_second` vary from run to run.",
        columns(&["compare"]),
        columns(&["mrc", "--trace"]),
    );
    page += "\n## C\n\nAll functions and types of `refault.h` are stable. Structures of options and of counts grow at \
             their ends only.\n\n";
    for name in functions(&read("crates/refault-c/include/refault.h")) {
        let _ = writeln!(page, "- `{name}`");
    }
    page += "\n## Python\n\nStable but for those named as details. Names that begin with `_` are details.\n";
    for (module, files) in PYTHON {
        let names: BTreeSet<String> =
            files.iter().flat_map(|file| python_names(&read(&format!("python/refault/{file}")))).collect();
        let _ = write!(page, "\n`{module}`: ");
        let given = module != "refault";
        let all = read("python/refault/__init__.py");
        let names = names.into_iter().filter(|name| {
            let outer = name.split('.').next().unwrap_or_default();
            given || all.contains(&format!("    \"{outer}\",\n")) || outer == "open"
        });
        let names = names.map(|name| {
            let outer = name.split('.').next().unwrap_or_default();
            format!("`{name}`{}", if PYTHON_DETAILS.contains(&outer) { " (detail)" } else { "" })
        });
        let _ = writeln!(page, "{}.", names.collect::<Vec<_>>().join(", "));
    }
    page
}

/// Modules that users import, and the files that define what they give.
const PYTHON: [(&str, &[&str]); 2] = [
    (
        "refault",
        &[
            "arrays.py",
            "estimate.py",
            "files.py",
            "lab.py",
            "results.py",
            "simulated.py",
            "sweep.py",
            "traces.py",
            "_refault.pyi",
        ],
    ),
    ("refault.fs", &["fs.py"]),
];

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).expect("a file of the repository")
}

#[test]
fn the_page_of_names_that_stay_is_what_is_defined() {
    is_made("docs/reference/stability.md", &page());
}

#[test]
fn what_may_change_exists() {
    let commands = commands();
    for (name, _) in DETAILS {
        assert!(commands.iter().any(|(command, _)| command == name), "no command is called {name}");
    }
    for (name, option) in DETAIL_OPTIONS {
        let has = commands.iter().any(|(command, text)| command == name && options(text).contains(option));
        assert!(has, "{name} has no option {option}");
    }
    let all = read("python/refault/__init__.py");
    for name in PYTHON_DETAILS {
        assert!(all.contains(&format!("\"{name}\"")), "Python has no {name}");
    }
}

#[test]
fn every_name_of_a_module_is_on_the_page() {
    let (page, all) = (page(), read("python/refault/__init__.py"));
    let listed = all.split("__all__ = [").nth(1).expect("a list of names");
    for name in
        listed.lines().filter_map(|line| line.trim().strip_prefix('"')).filter_map(|line| line.split('"').next())
    {
        assert!(name == "__version__" || page.contains(&format!("`{name}`")), "{name} is not on the page");
    }
    assert!(page.contains("`refault_budget_new`") && page.contains("`--memory`"));
}
