//! README and the pages of `docs` are readable: bounded in words, without dead links, in sentences that end. Tests
//! exist behind their promises, and the entries of the notebook say what they must.
//!
//! `REFAULT_WRITE_DOCS=1 cargo test -p refault-cli --test all docs` writes the page of commands anew.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What users meet: README and docs, without the specification and what is generated.
const MAX_WORDS: usize = 32_000;
/// Of any such page.
const MAX_WORDS_PER_PAGE: usize = 2_500;
/// Of a sentence, code and link targets aside.
const MAX_WORDS_PER_SENTENCE: usize = 25;
/// Of an entry of the notebook, tables and code aside.
const MAX_WORDS_PER_ENTRY: usize = 400;
/// What a page begins with that is generated.
pub(crate) const GENERATED: &str = "<!-- generated";
/// Pages of commands, and of published figures.
const COMMANDS: &str = "docs/reference/cli.md";
const FIGURES: &str = "docs/reference/published.md";

/// The words that name no actor and no number.
const BANNED: [&str; 7] = ["somebody", "nobody", "whoever", "anybody", "so many", "so often", "so long"];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

fn read(name: &str) -> String {
    let path = root().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files below a folder with one of these extensions, as names from the root; build output and hidden folders left out.
fn files(folder: &str, extensions: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extensions.iter().any(|known| extension == *known)) {
                let name = path.strip_prefix(root()).expect("it lies below the root");
                found.push(name.to_str().expect("names are text").to_owned());
            }
        }
    }
    found.sort();
    found
}

/// Name and text of each page that users meet.
fn pages() -> Vec<(String, String)> {
    let mut names = files("docs", &["md"]);
    names.retain(|name| !name.starts_with("docs/spec/"));
    names.push("README.md".to_owned());
    let all = names.into_iter().map(|name| (read(&name), name)).filter(|(text, _)| !text.starts_with(GENERATED));
    all.map(|(text, name)| (name, by_hand(&text))).collect()
}

/// A page without its parts that are made from code, each of which a test compares.
fn by_hand(text: &str) -> String {
    let mut parts = text.split("<!-- made from ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.split_once("<!-- end -->").map_or("", |(_, rest)| rest))
}

/// A text without code: what stands between fences, or is indented by four columns after an empty line.
fn without_code(text: &str) -> String {
    let mut inside = false;
    let mut may_begin = true;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
            continue;
        }
        let is_indented = line.starts_with("    ") && may_begin;
        if !inside && !is_indented {
            prose.push_str(line);
            prose.push('\n');
        }
        may_begin = line.is_empty() || is_indented;
    }
    prose
}

fn words(text: &str) -> usize {
    without_code(text).split_whitespace().count()
}

/// Paragraphs and items of lists, each on one line; no headings, tables, pictures and comments.
fn paragraphs(text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for line in without_code(text).lines() {
        let line = line.trim();
        let is_other = ["|", "#", "<!--", "!["].iter().any(|mark| line.starts_with(mark));
        if line.is_empty() || is_other {
            found.push(String::new());
            continue;
        }
        let number = line.find(". ").filter(|at| line[..*at].chars().all(|c| c.is_ascii_digit()) && *at > 0);
        let item = line.strip_prefix("- ").or_else(|| number.map(|at| &line[at + 2..]));
        if item.is_some() {
            found.push(String::new());
        }
        let last = found.last_mut().expect("it begins with one");
        *last += item.unwrap_or(line);
        last.push(' ');
    }
    found.retain(|paragraph| !paragraph.is_empty());
    found
}

/// Code becomes `X`, and links lose their targets.
fn plain(paragraph: &str) -> String {
    let mut text = String::new();
    for (at, part) in paragraph.split('`').enumerate() {
        text += if at % 2 == 0 { part } else { "X" };
    }
    while let Some(start) = text.find("](") {
        let Some(length) = text[start..].find(')') else { break };
        text.replace_range(start..=start + length, "]");
    }
    text
}

/// Sentences of a paragraph: they end with a full stop, a question or exclamation mark before a capital letter.
fn sentences(paragraph: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut words = paragraph.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let last = found.last_mut().expect("it begins with one");
        last.push_str(word);
        last.push(' ');
        let ends = word.trim_end_matches([')', '"', '*', ']', '”']).ends_with(['.', '?', '!']);
        let begins = |next: &&str| {
            next.trim_start_matches(['(', '"', '*', '[']).starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit())
        };
        if ends && words.peek().is_some_and(begins) {
            found.push(String::new());
        }
    }
    found
}

/// A heading as the target of a link.
fn anchor(heading: &str) -> String {
    let heading = plain_heading(heading.trim_start_matches('#').trim()).to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn plain_heading(heading: &str) -> String {
    heading.replace(['`', '*'], "")
}

#[test]
fn pages_are_short() {
    let mut wrong = Vec::new();
    let mut all = 0;
    for (name, text) in pages() {
        let count = words(&text);
        all += count;
        let limit = match name.as_str() {
            name if name.starts_with("docs/guide/") || name == "docs/start.md" => 1_200,
            name if name.starts_with("docs/explain/") => 1_500,
            _ => MAX_WORDS_PER_PAGE,
        };
        if count > limit {
            wrong.push(format!("{name} has {count} words; {limit} is the most"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(all > 10_000, "only {all} words were found");
    assert!(all <= MAX_WORDS, "all pages have {all} words; {MAX_WORDS} is the most");
}

#[test]
fn sentences_are_short_and_name_actors() {
    assert_eq!(sentences(&plain("One `a. B` two. Three [x](y. Z). (Four?) five. ")).len(), 3);
    let mut wrong = Vec::new();
    let mut count = 0;
    for (name, text) in pages() {
        for paragraph in paragraphs(&text) {
            let paragraph = plain(&paragraph);
            for sentence in sentences(&paragraph) {
                count += 1;
                let length = sentence.split_whitespace().filter(|w| w.contains(|c: char| c.is_alphanumeric())).count();
                if length > MAX_WORDS_PER_SENTENCE {
                    wrong.push(format!("{name}: {length} words: {sentence}"));
                }
            }
            let padded = format!(" {} ", paragraph.to_lowercase().replace(|c: char| !c.is_alphanumeric(), " "));
            for banned in BANNED.iter().filter(|banned| padded.contains(&format!(" {banned} "))) {
                wrong.push(format!("{name}: \"{banned}\" in: {paragraph}"));
            }
        }
    }
    assert!(count > 1_000, "only {count} sentences were found");
    assert!(wrong.is_empty(), "{} sentences:\n{}", wrong.len(), wrong.join("\n"));
}

/// Comments of Rust sources, lines that follow each other as one text, with the number of the first.
fn comments(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.lines()) {
        let whole = line.trim_start().strip_prefix("//");
        let Some(comment) = whole.or_else(|| line.split_once(" // ").map(|(_, comment)| comment)) else {
            goes_on = false;
            continue;
        };
        match found.last_mut().filter(|_| goes_on && whole.is_some()) {
            Some((_, text)) => *text += &format!(" {comment}"),
            None => found.push((number, comment.to_owned())),
        }
        goes_on = whole.is_some();
    }
    found
}

/// What stands between `` ` `` is a name, as that of an account.
#[test]
fn comments_name_their_actor() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for name in files(".", &["rs"]) {
        for (number, comment) in comments(&read(&name)) {
            count += 1;
            let words: String = comment.split('`').step_by(2).collect::<Vec<_>>().join(" x ");
            let words = words.to_lowercase().replace(|c: char| !c.is_alphanumeric(), " ");
            let padded = format!(" {} ", words.split_whitespace().collect::<Vec<_>>().join(" "));
            for banned in BANNED.iter().chain(&["so much"]).filter(|banned| padded.contains(&format!(" {banned} "))) {
                wrong.push(format!("{name}:{number}: \"{banned}\" in: {comment}"));
            }
        }
    }
    assert!(count > 10_000, "only {count} comments were found");
    assert!(wrong.is_empty(), "{} comments:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn links_lead_to_sections() {
    let mut wrong = Vec::new();
    let mut count = 0;
    let all = files(".", &["md"]);
    for name in &all {
        let text = without_code(&read(name));
        let text: String = text.split('`').step_by(2).collect();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let Some((target, section)) = link.split_once('#') else { continue };
            if target.contains(':') || link.contains(char::is_whitespace) {
                continue;
            }
            count += 1;
            let path = match target {
                "" => root().join(name),
                _ => root().join(name).parent().expect("a folder").join(target),
            };
            let page = std::fs::read_to_string(&path).unwrap_or_default();
            let headings = without_code(&page);
            if !headings.lines().any(|line| line.starts_with('#') && anchor(line) == section) {
                wrong.push(format!("{name}: {link}"));
            }
        }
    }
    assert!(wrong.is_empty(), "links to no section:\n{}", wrong.join("\n"));
    assert!(count > 10, "only {count} links were found");
}

#[test]
fn each_page_is_listed() {
    let index = read("docs/README.md");
    for (name, _) in pages() {
        let Some(target) = name.strip_prefix("docs/") else { continue };
        assert!(
            target == "README.md" || index.contains(&format!("]({target})")),
            "docs/README.md does not list {name}"
        );
    }
}

/// Pages whose every promise names a test: what stands in backquotes and looks like a test's name is one.
#[test]
fn tests_that_pages_name_exist() {
    let sources = files(".", &["rs", "py", "c", "toml"]);
    let stems: BTreeSet<&str> =
        sources.iter().filter_map(|name| name.rsplit('/').next()).filter_map(|file| file.split('.').next()).collect();
    let mut functions = BTreeSet::new();
    for name in sources.iter().filter(|name| name.ends_with(".rs") || name.ends_with(".py")) {
        for line in read(name).lines() {
            let line = line.trim_start();
            let Some(rest) = line.strip_prefix("fn ").or_else(|| line.strip_prefix("def ")) else { continue };
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            functions.insert(rest[..end].to_owned());
        }
    }
    // Probes have their names in a table.
    let probes = read("crates/refault-proof/src/probe.rs");
    functions.extend(probes.split('"').skip(1).step_by(2).map(str::to_owned));
    let mut count = 0;
    let mut wrong = Vec::new();
    for page in ["docs/explain/threat-model.md", "docs/reference/limits.md", "docs/reference/semantics.md"] {
        for code in without_code(&read(page)).split('`').skip(1).step_by(2) {
            let is_name = code.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            if is_name && code.matches('_').count() >= 3 {
                count += 1;
                if !functions.contains(code) && !stems.contains(code) {
                    wrong.push(format!("{page}: {code}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "no such tests:\n{}", wrong.join("\n"));
    assert!(count > 40, "only {count} names were found");
}

/// Each promise with a number names what holds it: a test, or the benchmark that prints it.
#[test]
fn every_promise_names_what_holds_it() {
    let text = read("docs/reference/limits.md");
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| promise "));
    let mut count = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [promise, number, held] = cells[..] else { panic!("limits.md has a row without three cells: {row}") };
        count += 1;
        assert!(!number.is_empty(), "no number: {row}");
        let is_test = |code: &str| code.ends_with(".rs") || code.matches('_').count() >= 3;
        let is_measured = |code: &str| code.starts_with("refault-bench ");
        let named = held.split('`').skip(1).step_by(2).any(|code| is_test(code) || is_measured(code));
        assert!(named || held == "the same", "nothing is named that holds \"{promise}\"");
        for file in held.split('`').skip(1).step_by(2).filter(|code| code.ends_with(".rs")) {
            let there = files("crates", &["rs"]).iter().any(|name| name.ends_with(&format!("/tests/{file}")));
            assert!(there, "{file}, which holds \"{promise}\", is not there");
        }
    }
    assert!(count > 20, "only {count} promises were found");
}

/// Paths in backquotes on the pages for those who change refault.
#[test]
fn paths_that_pages_name_exist() {
    let mut count = 0;
    for page in ["HACKING.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "docs/explain/threat-model.md"] {
        for code in without_code(&read(page)).split('`').skip(1).step_by(2) {
            let begins = ["crates/", "docs/", "scripts/", "fuzz/", "python/", "lab/", "contrib/"];
            let is_path = begins.iter().any(|begin| code.starts_with(begin));
            if is_path && !code.contains("NAME") && !code.contains(['{', '*', ' ']) {
                count += 1;
                assert!(root().join(code).exists(), "{page} names {code}, which is not there");
            }
        }
    }
    assert!(count > 15, "only {count} paths were found");
}

#[test]
fn entries_of_the_notebook_are_whole() {
    let index = read("lab/README.md");
    let mut count = 0;
    for name in files("lab", &["md"]).iter().filter(|name| *name != "lab/README.md") {
        count += 1;
        let text = read(name);
        for field in ["Question", "Build", "Machine", "Command", "Verdict", "Superseded by"] {
            let value = text.lines().find_map(|line| line.strip_prefix(&format!("- {field}: ")));
            assert!(value.is_some_and(|value| !value.trim().is_empty()), "{name} does not say its {field}");
        }
        let table = |line: &&str| !line.starts_with('|');
        let prose = without_code(&text).lines().filter(table).flat_map(str::split_whitespace).count();
        assert!(prose <= MAX_WORDS_PER_ENTRY, "{name} has {prose} words; {MAX_WORDS_PER_ENTRY} is the most");
        let listed = name.strip_prefix("lab/").expect("it lies there");
        assert!(index.contains(&format!("]({listed})")), "lab/README.md does not list {name}");
    }
    assert!(count > 100, "only {count} entries were found");
}

/// Figures of the past have no place where users look something up.
#[test]
fn tables_have_no_column_for_the_past() {
    for (name, text) in pages() {
        for header in text.lines().filter(|line| line.starts_with('|')) {
            let past = header.split('|').map(str::trim).any(|cell| cell == "before" || cell == "now");
            assert!(!past, "{name} has a table with history, which belongs to lab: {header}");
        }
    }
}

#[test]
fn the_changelog_is_short() {
    let text = read("CHANGELOG.md");
    assert!(words(&text) <= 900, "CHANGELOG.md has {} words; 900 is the most", words(&text));
    for line in paragraphs(&text) {
        let count = plain(&line).split_whitespace().count();
        assert!(count <= 2 * MAX_WORDS_PER_SENTENCE, "{count} words in a line of the changelog: {line}");
    }
}

/// What `--help` says.
pub(crate) fn help(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_refault"))
        .args(arguments)
        .arg("--help")
        .env("COLUMNS", "100")
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{arguments:?} has no help");
    let text = String::from_utf8(output.stdout).expect("help is text");
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// The commands that a help lists.
pub(crate) fn subcommands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let named = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    named.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

fn page_of_commands() -> String {
    let mut page = format!(
        "{GENERATED} by REFAULT_WRITE_DOCS=1 cargo test -p refault-cli --test all docs -->\n# Commands\n\nWhat `--help` says \
         of each command. `refault man COMMAND | man -l -` shows the same as a manual page.\n\nExit codes: 0 done, 1 \
         failed, 2 wrong usage or unreadable input; `run` ends as its program does.\n"
    );
    let all = help(&[]);
    page += &format!("\n```text\n{all}```\n");
    for command in subcommands(&all) {
        let text = help(&[&command]);
        page += &format!("\n## refault {command}\n\n```text\n{text}```\n");
        for below in subcommands(&text) {
            page += &format!("\n### refault {command} {below}\n\n```text\n{}```\n", help(&[&command, &below]));
        }
    }
    page
}

/// What a help says of the command and of each option, without how it is called.
fn help_paragraphs(help: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let (mut before, mut is_left_out) = (None, false);
    for line in help.lines() {
        let text = line.trim();
        if text.is_empty() {
            (before, is_left_out) = (None, false);
            found.push(String::new());
            continue;
        }
        is_left_out |= text == "Examples:" || text.starts_with("Usage:");
        // Names stand in a column of their own, or on a line of their own.
        let prose = text.split_once("  ").map_or(text, |(_, rest)| rest.trim_start());
        let indent = line.len() - prose.len();
        if text.starts_with(['-', '<']) || prose != text || before.is_some_and(|before| before != indent) {
            found.push(String::new());
        }
        before = Some(indent);
        if !is_left_out {
            found.last_mut().expect("it begins with one").extend([prose, " "]);
        }
    }
    found
}

#[test]
fn sentences_of_help_are_short_and_name_actors() {
    let page = page_of_commands();
    let (mut count, mut wrong) = (0, Vec::new());
    for paragraph in
        page.split("```text\n").skip(1).flat_map(|help| help_paragraphs(&help[..help.find("```").unwrap_or(0)]))
    {
        let paragraph = plain(&paragraph);
        let words = |text: &str| {
            let words = text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric));
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        // What an option is without being given is no sentence.
        for sentence in sentences(paragraph.split(" [").next().unwrap_or_default()) {
            count += 1;
            let length = words(&sentence).len();
            if length > MAX_WORDS_PER_SENTENCE {
                wrong.push(format!("{length} words: {sentence}"));
            }
        }
        let padded =
            format!(" {} ", words(&paragraph.to_lowercase().replace(|c: char| !c.is_alphanumeric(), " ")).join(" "));
        for banned in BANNED.iter().chain(&["so much"]).filter(|banned| padded.contains(&format!(" {banned} "))) {
            wrong.push(format!("\"{banned}\" in: {paragraph}"));
        }
    }
    assert!(count > 300, "only {count} sentences were found");
    assert!(wrong.is_empty(), "{} sentences of --help:\n{}", wrong.len(), wrong.join("\n"));
}

/// What `refault reproduce published` says, a part per document.
fn page_of_figures() -> String {
    let of = |format: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_refault"))
            .args(["reproduce", "published", "--format", format])
            .output()
            .expect("it starts");
        String::from_utf8(output.stdout).expect("text")
    };
    let mut text = of("table");
    let json: serde_json::Value = serde_json::from_str(&of("json")).expect("JSON");
    for document in json["documents"].as_array().expect("documents") {
        let [name, title] = ["name", "title"].map(|key| document[key].as_str().expect("text"));
        let line = format!("\n{name}: {title}\n");
        assert!(text.contains(&line), "{line}");
        text = text.replacen(&line, &format!("```\n\n## {title}\n\n```text\n"), 1);
    }
    format!(
        "{GENERATED} by REFAULT_WRITE_DOCS=1 cargo test -p refault-cli --test all docs -->\n# Published figures\n\nWhat \
         `refault reproduce published` says. `--format csv` and `--format json` write the same. Shares of a profile are \
         those with what a function calls.\n\n```text\n{text}```\n"
    )
}

/// A page is what is made from the program; with `REFAULT_WRITE_DOCS` it is written.
pub(crate) fn is_made(name: &str, page: &str) {
    if std::env::var_os("REFAULT_WRITE_DOCS").is_some() {
        std::fs::write(root().join(name), page).expect("writes");
    }
    let shown = std::fs::read_to_string(root().join(name)).unwrap_or_default();
    let differs = page.lines().zip(shown.lines()).find(|(now, then)| now != then);
    assert!(
        page == shown,
        "{name} is not what the program says ({differs:?}): REFAULT_WRITE_DOCS=1 cargo test -p refault-cli --test all docs"
    );
}

#[test]
fn the_page_of_commands_is_what_the_program_says() {
    let page = page_of_commands();
    assert!(page.matches("\n## refault ").count() > 15, "{page}");
    is_made(COMMANDS, &page);
}

#[test]
fn the_page_of_published_figures_is_what_the_program_says() {
    let page = page_of_figures();
    assert!(page.matches("\n## ").count() >= 5, "{page}");
    is_made(FIGURES, &page);
    // Sentences are held to the same length as those of other pages.
    let beliefs: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# ")).collect();
    let all = beliefs.join(" ");
    let long: Vec<&str> =
        all.split(". ").filter(|sentence| sentence.split_whitespace().count() > MAX_WORDS_PER_SENTENCE).collect();
    assert!(long.is_empty(), "{long:#?}");
}
