//! Runs as tables for people.

use std::io::Write;

use comfy_table::Table;
use refault_console::text::{align_numbers, grouped, percent_format, plain_table};
use refault_lab::results::{policies_of, sizes_of};
use refault_lab::size::pages_text;
use refault_lab::sweep::{Run, TraceRuns};

/// Writes a table a trace: miss ratios by policy and size, or, where only one size was asked for, the counters.
pub fn write_table(out: &mut dyn Write, results: &[TraceRuns]) -> std::io::Result<()> {
    for (index, trace) in results.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        let sizes = sizes_of(trace);
        writeln!(
            out,
            "{}: {} accesses to {} distinct pages ({})",
            trace.trace,
            grouped(trace.accesses),
            grouped(trace.distinct_pages),
            pages_text(trace.distinct_pages)
        )?;
        let table = if sizes.len() > 1 { ratio_table(trace, &sizes) } else { counter_table(trace) };
        for line in table.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
    }
    let many = results.iter().any(|trace| sizes_of(trace).len() > 1);
    let legend = if many {
        "Figures are misses in % of accesses, first touches included. * fewest at that size without knowing the future."
    } else {
        "misses: accesses that did not find their page in memory, first touches included. Other columns: pages, counted \
         as /proc/vmstat counts them."
    };
    writeln!(out, "\n{legend}")
}

fn ratio_table(trace: &TraceRuns, sizes: &[u64]) -> Table {
    let mut table = plain_table();
    let mut header = vec!["policy".to_string()];
    header.extend(sizes.iter().map(|pages| pages_text(*pages)));
    table.set_header(header);
    let fewest = |pages: u64| {
        let runs = trace.runs.iter().filter(|run| run.memory_pages == pages && !run.needs_future);
        runs.map(|run| run.outcome.misses).min()
    };
    let percent = percent_format(trace.runs.iter().map(Run::miss_ratio));
    for policy in policies_of(trace) {
        let mut row = vec![policy.to_string()];
        for pages in sizes {
            let run = trace.runs.iter().find(|run| run.policy == policy && run.memory_pages == *pages);
            let run = run.expect("invariant: a sweep runs every policy at every size");
            let best = !run.needs_future && fewest(*pages) == Some(run.outcome.misses);
            row.push(format!("{}{}", percent(run.miss_ratio()), if best { '*' } else { ' ' }));
        }
        table.add_row(row);
    }
    align_numbers(&mut table);
    table
}

fn counter_table(trace: &TraceRuns) -> Table {
    let mut table = plain_table();
    let header = [
        "policy",
        "memory",
        "misses",
        "miss %",
        "refaults",
        "pgscan",
        "pgsteal",
        "pgactivate",
        "pgdeactivate",
        "M accesses/s",
    ];
    table.set_header(header);
    let percent = percent_format(trace.runs.iter().map(Run::miss_ratio));
    for run in &trace.runs {
        let counters = &run.outcome.counters;
        table.add_row([
            run.policy.clone(),
            pages_text(run.memory_pages),
            grouped(run.outcome.misses),
            percent(run.miss_ratio()),
            grouped(counters.workingset_refault_anon + counters.workingset_refault_file),
            grouped(counters.pgscan),
            grouped(counters.pgsteal),
            grouped(counters.pgactivate),
            grouped(counters.pgdeactivate),
            format!("{:.1}", run.accesses_per_second() / 1e6),
        ]);
    }
    align_numbers(&mut table);
    table
}
