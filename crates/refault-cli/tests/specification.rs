//! Citations lead somewhere: every `page §n` in sources and docs is a section of `docs/spec`, and every relative link
//! of the docs is a file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Pages of the specification: name, and numbers of its sections.
type Sections = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

/// Files with one of the extensions below `directory`, build output and hidden folders left out.
fn files(directory: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a readable folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                files(&path, extensions, found);
            }
        } else if path.extension().is_some_and(|extension| extensions.iter().any(|known| extension == *known)) {
            found.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn sections() -> Sections {
    let mut pages = Vec::new();
    files(&root().join("docs/spec"), &["md"], &mut pages);
    pages.retain(|page| page.file_stem().is_some_and(|name| name != "README"));
    let numbers = |text: &str| {
        let headings = text.lines().filter(|line| line.starts_with("## ") || line.starts_with("### "));
        headings.filter_map(|line| section_number(line.trim_start_matches(['#', ' ']))).collect()
    };
    let name = |page: &Path| page.file_stem().expect("a name").to_string_lossy().into_owned();
    pages.iter().map(|page| (name(page), numbers(&read(page)))).collect()
}

/// The number at the start of a text: `4`, `4.1`, `1.1b`.
fn section_number(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let digits = text[..end].trim_end_matches('.');
    let letter = text[digits.len()..].chars().next().filter(|c| c.is_ascii_lowercase());
    (!digits.is_empty()).then(|| digits.chars().chain(letter).collect())
}

/// The text without the marks of comments and with lines joined, so that a citation may run over the end of a line.
fn joined(text: &str) -> String {
    let words = text.lines().flat_map(|line| line.trim_start().trim_start_matches(['/', '!', '#']).split_whitespace());
    words.collect::<Vec<_>>().join(" ")
}

/// The word before a citation: what is left when links to the page itself and quotes are taken off.
fn page_before(text: &str) -> &str {
    let text = text.trim_end();
    let text = match text.strip_suffix(')').and_then(|text| text.rsplit_once("](")) {
        Some((_, target)) => target,
        None => text,
    };
    let text = text.trim_end_matches('`');
    let text = text.strip_suffix(".md").unwrap_or(text);
    let start = text
        .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-')
        .map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
    &text[start..]
}

/// Each `§number` of a text with the page that it belongs to: the word before it, or before the `§` to which a comma, a
/// semicolon, a dash or "and" ties it; otherwise `own`.
fn citations<'a>(text: &'a str, own: &'a str) -> Vec<(&'a str, String)> {
    let mut found: Vec<(&str, String)> = Vec::new();
    let mut after_last = "";
    for (at, sign) in text.match_indices('§') {
        let Some(number) = section_number(&text[at + sign.len()..]) else { continue };
        let tied = !after_last.is_empty() && {
            let between = &text[text.len() - after_last.len()..at];
            matches!(between, ", " | "; " | "–" | "-" | " and " | " or " | ", and ")
        };
        let page = match found.last() {
            Some((page, _)) if tied => page,
            _ => match page_before(&text[..at]) {
                word if own.is_empty() || word_is_page(word) => word,
                _ => own,
            },
        };
        after_last = &text[at + sign.len() + number.len()..];
        found.push((page, number));
    }
    found
}

/// In a page of the specification a `§` without a page's name before it means the page itself.
fn word_is_page(word: &str) -> bool {
    root().join("docs/spec").join(format!("{word}.md")).is_file()
}

#[test]
fn every_citation_of_the_specification_is_a_section() {
    let sections = sections();
    assert!(sections.len() > 9 && sections["mglru"].contains("9.3"), "{:?}", sections.keys());
    let mut all = Vec::new();
    files(&root(), &["rs", "md", "toml", "c"], &mut all);
    all.retain(|path| !path.ends_with(file!()));
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in all {
        let own = match path.parent() == Some(&root().join("docs/spec")) {
            true => path.file_stem().expect("a name").to_string_lossy().into_owned(),
            false => String::new(),
        };
        for (page, number) in citations(&joined(&read(&path)), &own) {
            // Standards of the internet have numbers for names.
            if page.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            count += 1;
            if !sections.get(page).is_some_and(|numbers| numbers.contains(&number)) {
                wrong.push(format!("{}: {page} §{number}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "no such sections:\n{}", wrong.join("\n"));
    assert!(count > 300, "only {count} citations found");
}

#[test]
fn citations_are_read_as_they_are_written() {
    let read = |text: &'static str| -> Vec<String> {
        citations(text, "").into_iter().map(|(page, number)| format!("{page} {number}")).collect()
    };
    assert_eq!(read("(spec: mglru §2, §3; §16.4 for 7.2)"), ["mglru 2", "mglru 3", "mglru 16.4"]);
    assert_eq!(read("spec: overview §3–§7, §10."), ["overview 3", "overview 7", "overview 10"]);
    assert_eq!(read("overview §4; mglru §13 and `classic.md` §9"), ["overview 4", "mglru 13", "classic 9"]);
    assert_eq!(read("[numbers.md](spec/numbers.md) §1.1b)"), ["numbers 1.1b"]);
    assert_eq!(read("what a refault tells (§6) is"), [" 6"].map(str::to_owned));
    assert_eq!(citations("see §6", "damos"), [("damos", "6".to_owned())]);
}

#[test]
fn links_between_pages_lead_to_files() {
    let mut pages = Vec::new();
    files(&root(), &["md"], &mut pages);
    let mut wrong = Vec::new();
    for page in pages {
        let text = read(&page);
        let prose: String = text.split("```").step_by(2).collect();
        let text: String = prose.split('`').step_by(2).collect();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().expect("a part");
            let external = target.is_empty() || target.contains(':') || target.contains(char::is_whitespace);
            if !external && !page.parent().expect("a folder").join(target).exists() {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "links to nothing:\n{}", wrong.join("\n"));
}
