//! What `refault wss` writes: a table, CSV or JSON.

use std::io::Write;
use std::time::Duration;

use refault_console::text::{align_numbers, plain_table};
use refault_console::{Failure, Format, Output, with_output};
use refault_host::text::printable;
use refault_lab::size::bytes_text;
use refault_pool::reclaim::generations::{Generation, List};
use refault_pool::wss;
use serde_json::{Value, json};

use super::Measured;

const PAGE: u64 = refault_linux::PAGE as u64;

/// Whose working set it is.
pub(super) enum Subject {
    /// That of a process that ran already, each window measured once.
    Process(u32),
    /// That of a program that was started.
    Program {
        /// As it was called.
        words: String,
        /// How long it ran.
        seconds: f64,
    },
    /// That of a control group, each window measured once.
    Group {
        /// Its directory.
        path: String,
        /// Who knew, in words.
        source: String,
        /// The kernel's generations before anything was measured.
        lists: Vec<List>,
    },
}

/// Writes what was measured.
///
/// # Errors
/// It cannot be written.
pub(super) fn write(
    out: Option<Output>,
    format: Format,
    subject: &Subject,
    windows: &[Measured],
) -> Result<(), Failure> {
    with_output(out, |out| match format {
        Format::Table => write_table(out, subject, windows),
        Format::Csv => write_csv(out, subject, windows),
        Format::Json => write_json(out, subject, windows),
    })
}

/// A length as people write it.
pub(super) fn length_text(length: Duration) -> String {
    // The look itself takes some milliseconds.
    humantime::format_duration(Duration::from_millis((length.as_millis() as u64 + 50) / 100 * 100)).to_string()
}

fn write_table(out: &mut dyn Write, subject: &Subject, windows: &[Measured]) -> std::io::Result<()> {
    let mut table = plain_table();
    let again = matches!(subject, Subject::Program { .. });
    let largest = again.then_some("largest").into_iter();
    table.set_header(["age", "working set"].into_iter().chain(largest).chain(["idle longer", "of resident", ""]));
    for measured in windows {
        let window = measured.latest;
        let share = window.idle_bytes() as f64 / window.resident_bytes.max(1) as f64;
        let mut row = vec![length_text(window.length), bytes_text(window.accessed_bytes)];
        row.extend(again.then(|| bytes_text(measured.largest_bytes)));
        row.extend([
            bytes_text(window.idle_bytes()),
            format!("{:.0} %", share * 100.0),
            "▇".repeat((share * 30.0).round() as usize),
        ]);
        table.add_row(row);
    }
    align_numbers(&mut table);
    if let Some(bars) = table.column_mut(if again { 5 } else { 4 }) {
        bars.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    // The youngest look: the shortest windows are measured most often.
    let last = windows[if again { 0 } else { windows.len() - 1 }].latest;
    writeln!(
        out,
        "\nresident {}, of it anonymous {}; in swap {}",
        bytes_text(last.resident_bytes),
        bytes_text(last.anonymous_bytes),
        bytes_text(last.swap_bytes)
    )?;
    if let Subject::Program { words, seconds } = subject {
        writeln!(
            out,
            "{}: ran for {seconds:.1} s; windows measured: {}",
            printable(words.as_bytes()),
            counts(windows)
        )?;
    }
    match subject {
        Subject::Group { lists, .. } if !lists.is_empty() => write_generations(out, lists),
        _ => Ok(()),
    }
}

/// The generations that there were at first, oldest first, without those of no pages.
fn write_generations(out: &mut dyn Write, lists: &[List]) -> std::io::Result<()> {
    writeln!(out, "\ngenerations before that, as the kernel had made them:")?;
    let mut table = plain_table();
    table.set_header(["began before", "idle for at least", "anonymous", "of files", "node", "group"]);
    for list in lists {
        for (at, generation) in list.generations.iter().enumerate() {
            if generation.anonymous_pages + generation.file_pages > 0 {
                table.add_row([
                    length_text(generation.age),
                    length_text(list.idle(at)),
                    bytes_text(generation.anonymous_pages * PAGE),
                    bytes_text(generation.file_pages * PAGE),
                    list.node.to_string(),
                    list.path.clone(),
                ]);
            }
        }
    }
    align_numbers(&mut table);
    if let Some(paths) = table.column_mut(5) {
        paths.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn generations_json(list: &List) -> Vec<Value> {
    let one = |(at, generation): (usize, &Generation)| {
        json!({
            "cgroup": list.path,
            "node": list.node,
            "number": generation.number,
            "age_seconds": generation.age.as_secs_f64(),
            "idle_at_least_seconds": list.idle(at).as_secs_f64(),
            "anonymous_bytes": generation.anonymous_pages * PAGE,
            "file_bytes": generation.file_pages * PAGE,
        })
    };
    list.generations.iter().enumerate().map(one).collect()
}

/// How many windows of each length there were.
fn counts(windows: &[Measured]) -> String {
    let one = |measured: &Measured| format!("{} of {}", measured.count, length_text(measured.latest.length));
    windows.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn write_csv(out: &mut dyn Write, subject: &Subject, windows: &[Measured]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let again = matches!(subject, Subject::Program { .. });
    let more = if again { &["largest_working_set_bytes", "windows"][..] } else { &[] };
    let names = ["age_seconds", "working_set_bytes", "idle_bytes", "resident_bytes", "anonymous_bytes", "swap_bytes"];
    csv.write_record(names.iter().chain(more))?;
    for measured in windows {
        let window = measured.latest;
        let mut row = vec![format!("{:.3}", window.length.as_secs_f64())];
        let figures = [
            window.accessed_bytes,
            window.idle_bytes(),
            window.resident_bytes,
            window.anonymous_bytes,
            window.swap_bytes,
            measured.largest_bytes,
            measured.count,
        ];
        row.extend(figures[..names.len() - 1 + more.len()].iter().map(u64::to_string));
        csv.write_record(row)?;
    }
    csv.flush()
}

fn write_json(out: &mut dyn Write, subject: &Subject, windows: &[Measured]) -> std::io::Result<()> {
    let ages: Vec<Value> = windows
        .iter()
        .map(|measured| {
            let window = measured.latest;
            let mut age = json!({
                "age_seconds": (window.length.as_secs_f64() * 1000.0).round() / 1000.0,
                "working_set_bytes": window.accessed_bytes,
                "idle_bytes": window.idle_bytes(),
                "resident_bytes": window.resident_bytes,
                "anonymous_bytes": window.anonymous_bytes,
                "swap_bytes": window.swap_bytes,
            });
            if let Subject::Program { .. } = subject {
                age["largest_working_set_bytes"] = measured.largest_bytes.into();
                age["windows"] = measured.count.into();
            }
            age
        })
        .collect();
    let all = match subject {
        Subject::Process(pid) => json!({ "pid": pid, "source": wss::SOURCE, "ages": ages }),
        Subject::Group { path, source, lists } => {
            let generations: Vec<Value> = lists.iter().flat_map(generations_json).collect();
            json!({ "cgroup": path, "source": source, "ages": ages, "generations": generations })
        }
        Subject::Program { words, seconds } => {
            json!({ "program": words, "seconds": seconds, "source": wss::SOURCE, "ages": ages })
        }
    };
    serde_json::to_writer(&mut *out, &all)?;
    writeln!(out)
}
