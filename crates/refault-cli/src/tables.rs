//! Runs as tables for people.

use std::io::Write;

use comfy_table::Table;
use refault_console::text::{align_numbers, grouped, percent_format, plain_table};
use refault_lab::results::{policies_of, sizes_of};
use refault_lab::size::pages_text;
use refault_lab::sweep::{Run, TraceRuns};
use refault_lab::verdict::{Best, Overall, Saved, Verdict};
use refault_trace::Reading;

use crate::source::kernels::Kernels;
use crate::source::memory_text;

/// Equally good policies named in a sentence, at most.
const MAX_NAMED: usize = 4;

/// Columns of a terminal that tables fit into, unless names are longer.
const MAX_WIDTH: usize = 100;
/// Letters of a trace's name that are shown.
const MAX_NAME: usize = 32;

/// A trace's name in short, with its place in the list if there are several: a generated workload without its parameters, a
/// file without its folder.
pub fn short_name(results: &[TraceRuns], trace: &str) -> String {
    let name = trace.split_once(':').map_or(trace, |(name, _)| name);
    let name = name.rsplit('/').next().unwrap_or(name);
    let name: String = match name.chars().count() {
        0..=MAX_NAME => name.to_owned(),
        _ => name.chars().take(MAX_NAME - 1).chain(['…']).collect(),
    };
    match results.iter().position(|runs| runs.trace == trace) {
        Some(place) if results.len() > 1 => format!("{} {name}", place + 1),
        _ => name,
    }
}

/// What is accessed how often. Objects that come and go whole are not counted in pages: what they fill together is said.
pub fn accesses_text(reading: &Reading, accesses: u64, distinct_pages: u64) -> String {
    let (accesses, memory) = (grouped(accesses), memory_text(reading, distinct_pages));
    match reading.objects.is_some_and(|objects| objects.whole) {
        true => format!("{accesses} accesses to objects of {memory} in all"),
        false => format!("{accesses} accesses to {} distinct pages ({memory})", grouped(distinct_pages)),
    }
}

/// Writes a table per trace: miss ratios by policy and size, or, where only one size was asked for, the counters.
pub fn write_table(out: &mut dyn Write, results: &[TraceRuns], timing: bool) -> std::io::Result<()> {
    for (index, trace) in results.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        let sizes = sizes_of(trace);
        writeln!(
            out,
            "{}: {}",
            short_name(results, &trace.trace),
            accesses_text(&trace.reading, trace.accesses, trace.distinct_pages)
        )?;
        if short_name(&[], &trace.trace) != trace.trace {
            writeln!(out, "  {}", trace.trace)?;
        }
        if let Some(note) = trace.reading.note() {
            writeln!(out, "{note}")?;
        }
        if sizes.len() == 1 {
            write_lines(out, &counter_table(trace, timing))?;
            continue;
        }
        for part in parts(trace, &sizes) {
            write_lines(out, &figure_table(trace, part, Run::miss_ratio, true))?;
        }
        if trace.runs.iter().any(|run| run.outcome.read_ahead.is_some()) {
            writeln!(out, "pages read from files, asked for or ahead, in % of accesses:")?;
            for part in parts(trace, &sizes) {
                write_lines(out, &figure_table(trace, part, read_ratio, false))?;
            }
        }
        if trace.runs.iter().any(|run| run.bytes.is_some()) {
            writeln!(out, "by bytes:")?;
            for part in parts(trace, &sizes) {
                write_lines(out, &figure_table(trace, part, byte_ratio, false))?;
            }
        }
    }
    let many = results.iter().any(|trace| sizes_of(trace).len() > 1);
    let legend = if many {
        "Figures are misses in % of accesses, first touches included.\n* fewest at that size without knowing the future."
    } else {
        "misses: accesses that did not find their page in memory, first touches included. Other columns:\n\
         pages, counted as /proc/vmstat counts them: refaults are pages that came back and that a kernel's\n\
         policy knew again. Policies that are no kernel's count none."
    };
    writeln!(out, "\n{legend}")
}

fn write_lines(out: &mut dyn Write, table: &Table) -> std::io::Result<()> {
    table.lines().try_for_each(|line| writeln!(out, "{}", line.trim_end()))
}

/// Sizes whose columns fit beside each other.
fn parts<'a>(trace: &TraceRuns, sizes: &'a [u64]) -> Vec<&'a [u64]> {
    // A blank on both sides of each cell, and a figure such as `100.0000*`.
    const FIGURE: usize = 9;
    let policy = policies_of(trace).iter().map(|policy| policy.chars().count()).max().unwrap_or(0) + 2;
    let width = |pages: &u64| memory_text(&trace.reading, *pages).chars().count().max(FIGURE) + 2;
    let widest = sizes.iter().map(width).max().unwrap_or(1);
    sizes.chunks((MAX_WIDTH.saturating_sub(policy) / widest).max(1)).collect()
}

/// The part of the bytes accessed that missed; 0 if the trace does not say.
fn byte_ratio(run: &Run) -> f64 {
    run.bytes.map_or(0.0, |bytes| bytes.miss_ratio())
}

/// Pages read from files per access.
fn read_ratio(run: &Run) -> f64 {
    run.outcome.counters.file_reads as f64 / run.outcome.accesses.max(1) as f64
}

/// A figure from 0 to 1 of each run, by policy and size; `mark` puts a star at the fewest misses.
fn figure_table(trace: &TraceRuns, sizes: &[u64], figure: fn(&Run) -> f64, mark: bool) -> Table {
    let mut table = plain_table();
    let mut header = vec!["policy".to_string()];
    header.extend(sizes.iter().map(|pages| memory_text(&trace.reading, *pages)));
    table.set_header(header);
    let fewest = |pages: u64| {
        let runs = trace.runs.iter().filter(|run| run.memory_pages == pages && !run.needs_future);
        runs.map(|run| run.outcome.misses).min()
    };
    let policies = policies_of(trace);
    let mark = mark && trace.runs.iter().filter(|run| !run.needs_future).any(|run| run.policy != policies[0]);
    let percent = percent_format(trace.runs.iter().map(figure));
    for policy in policies {
        let mut row = vec![policy.to_string()];
        for pages in sizes {
            let run = trace.runs.iter().find(|run| run.policy == policy && run.memory_pages == *pages);
            let run = run.expect("invariant: a sweep runs every policy at every size");
            let best = mark && !run.needs_future && fewest(*pages) == Some(run.outcome.misses);
            row.push(format!("{}{}", percent(figure(run)), if best { '*' } else { ' ' }));
        }
        table.add_row(row);
    }
    align_numbers(&mut table);
    table
}

fn counter_table(trace: &TraceRuns, timing: bool) -> Table {
    let mut table = plain_table();
    let sized = trace.runs.iter().any(|run| run.bytes.is_some());
    let columns = ["policy", "memory", "misses", "miss %"].into_iter().chain(sized.then_some("byte miss %"));
    let ahead = trace.runs.iter().any(|run| run.outcome.read_ahead.is_some());
    let columns = columns.chain(["read", "unused"].into_iter().filter(|_| ahead));
    let counters = ["refaults", "pgscan", "pgsteal", "pgactivate", "pgdeactivate"];
    table.set_header(columns.chain(counters).chain(timing.then_some("M accesses/s")));
    let percent = percent_format(trace.runs.iter().map(Run::miss_ratio));
    for run in &trace.runs {
        let counters = &run.outcome.counters;
        let bytes = sized.then(|| run.bytes.map_or(String::new(), |bytes| percent(bytes.miss_ratio())));
        let misses = [
            run.policy.clone(),
            memory_text(&trace.reading, run.memory_pages),
            grouped(run.outcome.misses),
            percent(run.miss_ratio()),
        ];
        let read = run.outcome.read_ahead.filter(|_| ahead);
        let read = read.into_iter().flat_map(|read| [grouped(counters.file_reads), grouped(read.unused)]);
        let counted = [
            grouped(counters.workingset_refault_anon + counters.workingset_refault_file),
            grouped(counters.pgscan),
            grouped(counters.pgsteal),
            grouped(counters.pgactivate),
            grouped(counters.pgdeactivate),
        ];
        let speed = timing.then(|| format!("{:.1}", run.accesses_per_second() / 1e6));
        table.add_row(misses.into_iter().chain(bytes).chain(read).chain(counted).chain(speed));
    }
    align_numbers(&mut table);
    table
}

/// Writes what a comparison comes to: a sentence per trace and size, and over several traces a table.
pub fn write_verdict(out: &mut dyn Write, verdict: &Verdict, results: &[TraceRuns]) -> std::io::Result<()> {
    let traces = results.len();
    let memory = |trace: &str, pages: u64| {
        let found = results.iter().find(|runs| runs.trace == trace);
        found.map_or_else(|| pages_text(pages), |runs| memory_text(&runs.reading, pages))
    };
    if verdict.best.iter().all(|best| best.compared < 2) {
        return Ok(());
    }
    writeln!(out, "\nVerdict, without knowing the future:")?;
    for best in &verdict.best {
        let place = if traces > 1 { format!("{}, ", short_name(results, &best.trace)) } else { String::new() };
        writeln!(out, "  {place}{}: {}", memory(&best.trace, best.memory_pages), sentence(best, &verdict.baseline))?;
    }
    if verdict.overall.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nOver {traces} traces, part of another's misses that a policy saves (negative: has more):")?;
    let references = widest(verdict);
    let mut table = plain_table();
    let columns = references.iter().flat_map(|name| [format!("{name}: mean %"), "worst %".into()]);
    let last = ["mean rank".to_owned(), format!("worst against {} at", verdict.baseline)];
    table.set_header(["policy".to_owned()].into_iter().chain(columns).chain(last));
    for Overall { policy, against, mean_rank } in &verdict.overall {
        let cells = references.iter().flat_map(|name| {
            let saved = against.iter().find(|saved| saved.baseline == *name);
            saved.map_or_else(Default::default, |Saved { mean_reduction, worst: (worst, ..), .. }| {
                [mean_reduction, worst].map(|part| format!("{:.1}", part * 100.0))
            })
        });
        let (_, trace, pages) = &against[0].worst;
        let last = [format!("{mean_rank:.1}"), format!("{} of {}", memory(trace, *pages), short_name(results, trace))];
        table.add_row([policy.clone()].into_iter().chain(cells).chain(last));
    }
    align_numbers(&mut table);
    write_lines(out, &table)
}

/// Writes what real kernels did with each trace, a line each.
pub fn write_kernels(out: &mut dyn Write, kernels: &[Kernels], results: &[TraceRuns]) -> std::io::Result<()> {
    let lines = kernels.iter().zip(results).map(|(kernels, trace)| {
        let text = kernels.text(&trace.reading);
        if results.len() > 1 { format!("{}: {text}", short_name(results, &trace.trace)) } else { text }
    });
    kernel_lines(out, lines)
}

/// Writes lines about real kernels.
pub fn kernel_lines(out: &mut dyn Write, lines: impl Iterator<Item = String>) -> std::io::Result<()> {
    let mut lines = lines.peekable();
    if lines.peek().is_some() {
        writeln!(out, "\nReal kernels:")?;
    }
    lines.try_for_each(|line| broken(&line).iter().try_for_each(|line| writeln!(out, "  {line}")))
}

/// A text in lines that fit into a terminal behind two blanks; commands between `` ` `` have lines of their own, which a
/// shell takes as one.
fn broken(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (at, part) in text.split('`').enumerate() {
        let (is_command, mut begins) = (at % 2 == 1, true);
        for word in part.split_whitespace() {
            let room = MAX_WIDTH - 2 - 2 * usize::from(is_command);
            match lines.last_mut() {
                Some(line) if !begins && line.chars().count() + 1 + word.chars().count() <= room => {
                    line.push(' ');
                    line.push_str(word);
                }
                last => {
                    if let Some(last) = last.filter(|_| is_command && !begins) {
                        last.push_str(" \\");
                    }
                    lines.push(word.to_owned());
                }
            }
            begins = false;
        }
    }
    lines
}

/// The policies that others are compared with in some row, the baseline first.
pub fn widest(verdict: &Verdict) -> Vec<&str> {
    let mut names = vec![verdict.baseline.as_str()];
    for saved in verdict.overall.iter().flat_map(|overall| &overall.against) {
        if !names.contains(&saved.baseline.as_str()) {
            names.push(&saved.baseline);
        }
    }
    names
}

/// "lirs misses least, 40.1 % fewer misses than lru".
fn sentence(best: &Best, baseline: &str) -> String {
    let names = match best.policies.as_slice() {
        [one] => format!("{one} misses least"),
        [some @ .., last] if best.policies.len() <= MAX_NAMED => format!("{} and {last} miss least", some.join(", ")),
        many => format!("{} policies miss least, {} among them", many.len(), many[0]),
    };
    match best.reduction {
        _ if best.policies.iter().any(|policy| policy == baseline) => names,
        None => names,
        Some(reduction) => format!("{names}, {:.1} % fewer misses than {baseline}", reduction * 100.0),
    }
}
