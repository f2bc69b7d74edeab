//! The report of `refault scenario`: counters over time, a group of pictures for each policy.

use maud::{Markup, html};
use refault_lab::experiment::Chart;
use refault_lab::scenarios::{Case, charts};
use refault_sim::machine::report::{Happened, Report};

use super::chart::Figure;
use super::experiment::figure;
use super::{page, write};
use crate::scenario::{PERFORMANCE_COLUMNS, figure as counter_figure, performance_cells};
use refault_console::{Failure, Output};

/// Events that are marked in pictures: more would hide them.
const MAX_MARKS: usize = 4;

/// Writes the report.
pub fn write_scenario(output: Output, name: &str, cases: &[Case]) -> Result<(), Failure> {
    let charts: Vec<Vec<Chart>> = cases.iter().map(|case| charts(case.first())).collect();
    let series = charts.iter().flatten().map(|chart| chart.series.len()).max().unwrap_or(0);
    let fields: Vec<_> = cases.iter().map(|case| case.first().fields()).collect();
    let mut index = 0;
    let (times, seeds) = (cases.len(), cases[0].runs.len());
    let body = html! {
        h1 { "Scenario " (name) }
        p.lead {
            "refault " (env!("CARGO_PKG_VERSION")) ", a simulated machine, "
            @if times == 1 { "one policy with one size of memory" } @else { (times) " pairs of a policy and a size of memory" }
            @if seeds > 1 { ", " (seeds) " seeds each: figures of tasks are mean ± standard deviation, pictures and counters the first seed's" }
            "."
        }
        @for (case, charts) in cases.iter().zip(&charts) {
            h2 { (case.name()) }
            (performances(case))
            div.grid2 {
                @for chart in charts {
                    (Figure { marks: marks(case.first()), ..figure({ index += 1; index }, chart, None) }.markup())
                }
            }
        }
        div.scroll tabindex="0" {
            table {
                caption { "All counters at the end. Pages unless the name says otherwise." }
                thead { tr { th scope="col" { "counter" } @for case in cases { th scope="col" { (case.name()) } } } }
                tbody {
                    @for (row, (name, _)) in fields[0].iter().enumerate() {
                        tr { th scope="row" { (name) } @for fields in &fields { td { (counter_figure(fields[row].1)) } } }
                    }
                }
            }
        }
    };
    write(output, page(&format!("refault: {name}"), series, body))
}

/// The first things that were done to the machine, or that it did to tasks, as upright lines.
fn marks(report: &Report) -> Vec<(f64, String)> {
    let named = report.happenings.iter().filter_map(|happening| {
        let name = match &happening.what {
            Happened::LimitSet { group, setting, .. } => format!("{setting} of {group}"),
            Happened::Reclaimed { group, .. } => format!("reclaim from {group}"),
            Happened::Killed { task, .. } => format!("{task} killed"),
            Happened::Generations { command, .. } => format!("lru_gen {command}"),
            Happened::ListsSwitched { enabled } => format!("lru_gen/enabled {enabled}"),
            Happened::ModuleSet { file, value, .. } => format!("lru_sort {file}={value}"),
            Happened::Started { .. } | Happened::Finished { .. } | Happened::Listed { .. } => return None,
        };
        Some((happening.at as f64 / 1e9, name))
    });
    named.take(MAX_MARKS).collect()
}

/// What tasks and groups did.
fn performances(case: &Case) -> Markup {
    let report = case.first();
    html! {
        p.note {
            "Latency of an operation: from its beginning to the end of its last access, time without a CPU included. Stalled: \
             for lack of memory, of the tasks' time."
        }
        div.scroll tabindex="0" {
            table {
                caption { "Tasks and groups" }
                thead { tr { th scope="col" { "task or group" } @for name in PERFORMANCE_COLUMNS { th scope="col" { (name) } } } }
                tbody {
                    @for (index, tasks) in report.task_sets.iter().enumerate() {
                        tr {
                            th scope="row" { (tasks.name) }
                            @for cell in performance_cells(case, tasks, |report| report.task_sets[index].clone()) { td { (cell) } }
                        }
                    }
                    @if report.groups.len() > 1 {
                        @for (index, group) in report.groups.iter().enumerate() {
                            tr {
                                th scope="row" { (group.name) }
                                @for cell in performance_cells(case, &group.performance, |report| report.groups[index].performance.clone()) {
                                    td { (cell) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
