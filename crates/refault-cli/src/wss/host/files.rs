//! `refault host --files`: which files fill the page cache, and letting go of them or keeping them.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use refault_console::text::{align_numbers, plain_table};
use refault_console::{Failure, Format, Output, say, with_output};
use refault_host::files::pages::Kept;
use refault_host::files::{self, CachedFile, Found, Scan, change};
use refault_host::text::printable;
use refault_lab::size::bytes_text;

use crate::wss::{interrupts, sleep};

/// Columns of a terminal that the table fits into.
const MAX_COLUMNS: usize = 100;
/// Columns that a path has at least.
const MIN_PATH: usize = 20;
/// Between two looks for an interrupt.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// Shows the files of which most is cached, below these paths or of all mounts.
pub(super) fn show(paths: &[PathBuf], top: usize, format: Format, out: Option<Output>) -> Result<(), Failure> {
    let paths = if paths.is_empty() { files::mounts() } else { paths.to_vec() };
    let scan = Scan { paths, top, crosses_mounts: false };
    let mut found = files::scan(&scan)
        .map_err(|error| Failure::usage("cannot look at", error, "name files and directories that are there"))?;
    if let Err(error) = files::add_groups(&mut found) {
        say(format_args!("groups are left out: {error}"));
    }
    with_output(out, |out| match format {
        Format::Table => table(out, &found),
        Format::Csv => csv(out, &found),
        Format::Json => {
            serde_json::to_writer(&mut *out, &found)?;
            writeln!(out)
        }
    })
}

/// Lets go of what is cached of a path, or keeps it until an interrupt, once that is confirmed.
pub(super) fn change(drop: Option<&PathBuf>, keep: Option<&PathBuf>, yes: bool) -> Result<(), Failure> {
    let (path, verb) = match (drop, keep) {
        (Some(path), _) => (path, "let go of"),
        (None, Some(path)) => (path, "read and lock into memory"),
        (None, None) => return Ok(()),
    };
    let name = printable(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()));
    let missing = |error| Failure::usage("cannot look at", &name, format!("{error}; name a file or directory"));
    let all = change::below(path).map_err(missing)?;
    let scan = Scan { paths: vec![path.clone()], top: 0, crosses_mounts: false };
    let cached = files::scan(&scan).map_err(missing)?.cached_bytes;
    let what = if all == [path.clone()] { name.clone() } else { format!("{} below {name}", count_text(all.len())) };
    let question = format!("{verb} {what}, of which {} are cached", bytes_text(cached));
    confirm(&question, yes)?;
    if drop.is_some() {
        let dropped = change::drop_cached(&all).map_err(|error| Failure::failed("cannot let go of", &name, error))?;
        let files = count_text(usize::try_from(dropped.files).unwrap_or(usize::MAX));
        say(format_args!("let go of {} of {files}", bytes_text(dropped.bytes)));
        return Ok(());
    }
    keep_all(&all, &name)
}

fn count_text(files: usize) -> String {
    format!("{files} file{}", if files == 1 { "" } else { "s" })
}

fn keep_all(all: &[PathBuf], name: &str) -> Result<(), Failure> {
    let (mut kept, mut bytes) = (Kept::default(), 0);
    for path in all {
        bytes += kept.keep(path).map_err(|error| {
            let file = printable(std::os::unix::ffi::OsStrExt::as_bytes(Path::as_os_str(path)));
            Failure::failed("cannot keep", file, format!("{error}; be root, or raise ulimit -l"))
        })?;
    }
    let asked = interrupts();
    say(format_args!("{} of {name} stay in memory; Ctrl-C ends it", bytes_text(bytes)));
    while sleep(LOOK_EVERY, &asked) {}
    Ok(())
}

/// Asks at the terminal, unless it was confirmed already.
fn confirm(question: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    let refused = || Failure::usage("not confirmed", question, "add --yes");
    if !std::io::stdin().is_terminal() {
        return Err(refused());
    }
    eprint!("refault: {question}? [y/N] ");
    let mut answer = String::new();
    let _ = std::io::stdin().lock().read_line(&mut answer);
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(refused()) }
}

fn age(seconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let (length, unit) = UNITS.into_iter().find(|(length, _)| seconds >= *length).unwrap_or((1, "s"));
    format!("{}{unit}", seconds / length)
}

fn groups(file: &CachedFile) -> String {
    let first = file.groups.first().map(|share| format!("{} {} %", share.path, share.percent));
    first.unwrap_or_else(|| "–".to_owned())
}

fn table(out: &mut dyn Write, found: &Found) -> std::io::Result<()> {
    let mut table = plain_table();
    table.set_header(["file", "cached", "of size", "dirty", "age", "group"]);
    let wide = (MAX_COLUMNS - MIN_PATH) / 2;
    for file in &found.largest {
        let share = file.cached.cached_bytes as f64 / file.size_bytes.max(1) as f64 * 100.0;
        table.add_row([
            super::write::shortened(&file.path, wide),
            bytes_text(file.cached.cached_bytes),
            format!("{:.0} %", share.min(100.0)),
            file.cached.dirty_bytes.map_or("–".into(), bytes_text),
            age(file.age_seconds),
            super::write::shortened(&groups(file), MIN_PATH),
        ]);
    }
    align_numbers(&mut table);
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    let refused = if found.refused > 0 { format!(", {} could not be opened", found.refused) } else { String::new() };
    let dirty = found.dirty_bytes.map_or(String::new(), |dirty| format!(", {} of it dirty", bytes_text(dirty)));
    writeln!(
        out,
        "\n{}{refused}: {} cached{dirty}, by {}",
        count_text(usize::try_from(found.files).unwrap_or(usize::MAX)),
        bytes_text(found.cached_bytes),
        if found.source.is_empty() { "cachestat" } else { found.source }
    )
}

fn csv(out: &mut dyn Write, found: &Found) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record([
        "path",
        "size_bytes",
        "cached_bytes",
        "dirty_bytes",
        "recently_evicted_bytes",
        "age_seconds",
        "group",
        "percent",
    ])?;
    let text = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
    for file in &found.largest {
        let first = file.groups.first();
        csv.write_record([
            file.path.clone(),
            file.size_bytes.to_string(),
            file.cached.cached_bytes.to_string(),
            text(file.cached.dirty_bytes),
            text(file.cached.recently_evicted_bytes),
            file.age_seconds.to_string(),
            first.map_or(String::new(), |share| share.path.clone()),
            text(first.map(|share| share.percent)),
        ])?;
    }
    csv.flush()
}
