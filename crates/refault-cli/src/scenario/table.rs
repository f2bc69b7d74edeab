//! What a scenario came to, as tables for people: tasks and groups first, then the counters.

use std::io::Write;

use comfy_table::{CellAlignment, Table};
use refault_console::text::{align_numbers, grouped, number, plain_table};
use refault_lab::scenarios::Case;
use refault_sim::machine::End;
use refault_sim::machine::report::{MonitorReport, Performance, Report};

use crate::monitor::{SCHEME_COLUMNS, scheme_cells};

/// Columns of the tables of tasks and groups, behind the first three.
pub const PERFORMANCE_COLUMNS: [&str; 9] =
    ["tasks", "operations/s", "p50", "p90", "p99", "p99.9", "max", "major faults", "stalled %"];

/// Writes all of it.
pub fn write(out: &mut dyn Write, cases: &[Case]) -> std::io::Result<()> {
    write_ends(out, cases)?;
    write_performances(out, cases, "task", |report| report.task_sets.iter().collect())?;
    if cases.iter().any(|case| case.first().groups.len() > 1) {
        writeln!(out)?;
        write_performances(out, cases, "group", |report| report.groups.iter().map(|g| &g.performance).collect())?;
    }
    writeln!(
        out,
        "\nLatency of an operation: from its beginning to the end of its last access, time without a CPU included, its\n\
         `think` not. Groups include those below them. Stalled: for lack of memory, of the tasks' time.\n"
    )?;
    write_counters(out, cases)?;
    cases.iter().try_for_each(|case| write_details(out, case))
}

fn write_ends(out: &mut dyn Write, cases: &[Case]) -> std::io::Result<()> {
    for case in cases {
        let why = match case.first().end {
            End::Finished => "all tasks did what they had to do",
            End::Duration => "the duration was over",
            End::OutOfMemory => "out of memory",
        };
        let seeds = case.runs.len();
        let of = if seeds > 1 { format!("; {seeds} seeds, mean ± standard deviation") } else { String::new() };
        let seconds = with_spread(case.over_seeds(|report| report.elapsed as f64 / 1e9), number);
        writeln!(out, "{}: {why} after {seconds} simulated seconds{of}", case.name())?;
    }
    writeln!(out)
}

/// A table of what sets of tasks did; `of` gives those of a report, the same ones for each run of the scenario.
fn write_performances(
    out: &mut dyn Write,
    cases: &[Case],
    kind: &str,
    of: impl Fn(&Report) -> Vec<&Performance>,
) -> std::io::Result<()> {
    let mut table = plain_table();
    table.set_header(["policy", "memory", kind].into_iter().chain(PERFORMANCE_COLUMNS));
    for case in cases {
        for (index, first) in of(case.first()).into_iter().enumerate() {
            let mut row = vec![case.policy.clone(), case.memory(), first.name.clone()];
            row.extend(performance_cells(case, first, |report| of(report)[index].clone()));
            table.add_row(row);
        }
    }
    align_numbers(&mut table);
    for words in [1, 2] {
        if let Some(column) = table.column_mut(words) {
            column.set_cell_alignment(CellAlignment::Left);
        }
    }
    write_trimmed(out, &table)
}

/// The cells under [`PERFORMANCE_COLUMNS`]; `of` finds the same tasks in the reports of other seeds.
pub fn performance_cells(case: &Case, first: &Performance, of: impl Fn(&Report) -> Performance) -> Vec<String> {
    let whole = |value: f64| grouped(value.round() as u64);
    let latency = |part: fn(&Performance) -> u64| with_spread(case.over_seeds(|r| part(&of(r)) as f64), time_text);
    vec![
        grouped(first.tasks),
        with_spread(case.over_seeds(|report| of(report).operations_per_second()), whole),
        latency(|tasks| tasks.latency.p50_ns),
        latency(|tasks| tasks.latency.p90_ns),
        latency(|tasks| tasks.latency.p99_ns),
        latency(|tasks| tasks.latency.p999_ns),
        latency(|tasks| tasks.latency.max_ns),
        with_spread(case.over_seeds(|report| of(report).major_faults as f64), whole),
        with_spread(case.over_seeds(|report| stalled_percent(&of(report))), |value| format!("{value:.1}")),
    ]
}

fn stalled_percent(tasks: &Performance) -> f64 {
    tasks.stalled_ns as f64 * 100.0 / (tasks.span_ns.max(1) as f64 * tasks.tasks.max(1) as f64)
}

/// A mean, with the deviation behind it where there is one.
fn with_spread((mean, deviation): (f64, Option<f64>), text: impl Fn(f64) -> String) -> String {
    match deviation {
        Some(deviation) => format!("{} ± {}", text(mean), text(deviation)),
        None => text(mean),
    }
}

/// Nanoseconds in the unit that suits them.
pub fn time_text(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns < 1e3 => format!("{} ns", number(ns)),
        ns if ns < 1e6 => format!("{} µs", number(ns / 1e3)),
        ns if ns < 1e9 => format!("{} ms", number(ns / 1e6)),
        ns => format!("{} s", number(ns / 1e9)),
    }
}

fn write_counters(out: &mut dyn Write, cases: &[Case]) -> std::io::Result<()> {
    let mut table = plain_table();
    let head = cases.iter().map(|case| format!("{} {}", case.policy, case.memory()));
    table.set_header(std::iter::once("counter".to_string()).chain(head));
    let mut zeros = 0;
    for (index, (name, _)) in cases[0].first().fields().iter().enumerate() {
        let values: Vec<_> = cases.iter().map(|case| case.over_seeds(|report| report.fields()[index].1)).collect();
        if values.iter().all(|(mean, _)| *mean == 0.0) {
            zeros += 1;
            continue;
        }
        table.add_row(std::iter::once(name.clone()).chain(values.into_iter().map(|value| with_spread(value, figure))));
    }
    align_numbers(&mut table);
    write_trimmed(out, &table)?;
    writeln!(out, "{zeros} counters are 0 everywhere and left out; --format csv and json have them all.")
}

/// A counter: whole numbers in groups of three digits.
pub fn figure(value: f64) -> String {
    if value >= 1000.0 || value.fract() == 0.0 { grouped(value.round() as u64) } else { number(value) }
}

fn write_trimmed(out: &mut dyn Write, table: &Table) -> std::io::Result<()> {
    table.lines().try_for_each(|line| writeln!(out, "{}", line.trim_end()))
}

/// What only some machines have, of the run with the file's own seeds.
fn write_details(out: &mut dyn Write, case: &Case) -> std::io::Result<()> {
    let (report, name) = (case.first(), case.name());
    for group in &report.groups[1..] {
        let e = group.events;
        writeln!(
            out,
            "{name} {}: {} pages, {} in swap, events low {} high {} max {} oom {} oom_kill {}",
            group.name, group.usage, group.swap_usage, e.low, e.high, e.max, e.oom, e.oom_kill
        )?;
    }
    if report.lruvecs.len() > 1 {
        writeln!(out, "{name}: coldest pages by group and node")?;
        for lruvec in &report.lruvecs {
            let age = number(lruvec.age as f64 / 1e9);
            writeln!(out, "  {} node {}: {} pages, {age} s", lruvec.group, lruvec.node, lruvec.pages)?;
        }
    }
    for kill in &report.kills {
        let at = number(kill.at as f64 / 1e9);
        writeln!(out, "{name}: at {at} s {} was killed ({} pages)", kill.task, kill.pages)?;
    }
    if let Some(monitor) = &report.monitor {
        write_monitor(out, &name, report, monitor)?;
    }
    for listing in &report.listings {
        writeln!(out, "{name}: at {} s\n{}", number(listing.at as f64 / 1e9), listing.text)?;
    }
    Ok(())
}

fn write_monitor(out: &mut dyn Write, name: &str, report: &Report, monitor: &MonitorReport) -> std::io::Result<()> {
    let elapsed = report.elapsed.max(1) as f64;
    writeln!(
        out,
        "{name}: monitor with {} regions, {:.2} % of one CPU; schemes {:.2} %",
        monitor.nr_regions,
        monitor.monitor_cpu as f64 / elapsed * 100.0,
        monitor.schemes_cpu as f64 / elapsed * 100.0,
    )?;
    if monitor.schemes.is_empty() {
        return Ok(());
    }
    let mut table = plain_table();
    table.set_header(SCHEME_COLUMNS);
    for (index, scheme) in monitor.schemes.iter().enumerate() {
        table.add_row(scheme_cells(index, scheme));
    }
    align_numbers(&mut table);
    write_trimmed(out, &table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_counters_have_groups_of_digits() {
        assert_eq!([0.0, 250.0, 1_500.0, 2.5e6, 3e9].map(time_text), ["0 ns", "250 ns", "1.5 µs", "2.5 ms", "3 s"]);
        assert_eq!([0.0, 0.25, 1234.4, 1e6].map(figure), ["0", "0.25", "1,234", "1,000,000"]);
        assert_eq!(with_spread((10.0, Some(2.5)), number), "10 ± 2.5");
    }
}
