//! The report of `refault monitor -- PROGRAM`: heat map over time, working set, hot and cold memory.

use maud::{Markup, html};
use refault_sim::monitoring::heat_map::{HeatMap, colour_of};

use super::chart::{Figure, Series, Shape};
use super::scale::Axis;
use super::{page, write};
use crate::monitor::live::{PERCENTILES, Process, percentile, seconds};
use refault_console::text::grouped;
use refault_console::text::number;
use refault_console::{Failure, Output};
use refault_lab::size::bytes_text;

/// Regions in the table.
const REGIONS: usize = 40;

/// Writes the report of a program that was monitored.
pub fn write_monitor(
    output: Output,
    command: &str,
    process: &Process,
    kernel: Option<&Process>,
) -> Result<(), Failure> {
    let cpu = process
        .monitor_cpu()
        .map_or(String::new(), |cpu| format!(" The monitor took {:.2} % of one processor.", cpu * 100.0));
    let body = html! {
        h1 { (command) }
        p.lead {
            "Process " (process.pid) ", " (grouped(process.snapshots.len() as u64)) " aggregations in "
            (format!("{:.1}", seconds(process))) " s." (cpu)
        }
        (heat("refault's monitor", "heat", process))
        @if let Some(kernel) = kernel { (heat("The kernel's monitor (DAMON)", "kernel", kernel)) }
        div.grid2 { (working_set(process).markup()) (distribution(process)) }
        (regions(process))
    };
    write(output, page(&format!("refault: {command}"), 1, body))
}

fn heat(title: &str, id: &str, process: &Process) -> Markup {
    let map: HeatMap = process.heat_map();
    let rows = map.rows();
    let columns = rows.first().map_or(0, Vec::len);
    let places = process.places();
    let bytes: u64 = places.iter().map(|place| place.end - place.start).sum();
    html! {
        figure.chart.wide aria-labelledby=(format!("{id}-h")) {
            h4 id=(format!("{id}-h")) { (title) }
            // Time to the right, as in the other pictures; addresses downwards.
            svg viewBox=(format!("0 0 {} {}", rows.len() * 8, columns * 6)) role="img"
                aria-labelledby=(format!("{id}-h {id}-d")) preserveAspectRatio="none" {
                desc id=(format!("{id}-d")) { "How often memory was accessed, by address, low at the top, and time, from left to right." }
                rect width="100%" height="100%" fill="#fdf6e3" {}
                @for (x, row) in rows.iter().enumerate() {
                    @for (y, value) in row.iter().enumerate().filter(|(_, value)| **value > 0.0) {
                        rect x=(x * 8) y=(y * 6) width="8" height="6" fill=(colour_of(*value)) {}
                    }
                }
            }
            figcaption {
                "Time from left to right, " (format!("{:.1}", seconds(process))) " s; downwards the " (bytes_text(bytes))
                " that were ever accessed, in order of address, gaps left out. From light (seldom) to dark red: accessed in "
                "every check."
            }
        }
    }
}

fn working_set(process: &Process) -> Figure {
    let first = process.snapshots.first().map_or(0, |snapshot| snapshot.now_ns);
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    let points: Vec<(f64, f64)> = process
        .snapshots
        .iter()
        .map(|snapshot| {
            let used = snapshot.regions.iter().filter(|region| region.nr_accesses > 0);
            let bytes = used.map(|region| region.end - region.start).sum();
            ((snapshot.now_ns - first) as f64 / 1e9, mib(bytes))
        })
        .collect();
    let most = points.iter().fold(0.0f64, |most, (_, y)| most.max(*y));
    Figure {
        id: "wss".into(),
        title: "Working set over time".into(),
        description: format!("At most {} MiB.", number(most)),
        definition: "Bytes (MiB) in regions with at least one access in an aggregation.".into(),
        x: Axis::exact("time (s)", seconds(process).max(0.001), 5, number),
        y: Axis::linear("working set (MiB)", most.max(0.001), 5, number),
        series: vec![Series { name: "working set (MiB)".into(), look: 0, points }],
        x_label: |x| format!("{x:.1}"),
        y_label: |y| format!("{y:.1}"),
        shape: Shape::Lines,
        marks: Vec::new(),
    }
}

fn distribution(process: &Process) -> Markup {
    let sizes = process.working_sets();
    html! {
        figure.chart {
            h4 { "Distribution of the working set" }
            table {
                caption { "Size that the working set did not exceed in so many percent of the aggregations." }
                thead { tr { th scope="col" { "percent" } th scope="col" { "size" } } }
                tbody {
                    @for percent in PERCENTILES {
                        tr { th scope="row" { (percent) } td { (bytes_text(percentile(&sizes, percent))) } }
                    }
                }
            }
        }
    }
}

fn regions(process: &Process) -> Markup {
    let (snapshot, regions) = process.hot_and_cold();
    let Some(snapshot) = snapshot else { return html! {} };
    let window = f64::from(snapshot.window);
    html! {
        h2 { "Hot and cold memory at the end" }
        div.scroll tabindex="0" {
            table {
                caption { "Regions, hottest first." @if regions.len() > REGIONS { " The first " (REGIONS) " of " (regions.len()) "." } }
                thead { tr {
                    th scope="col" { "start" } th scope="col" { "size" } th scope="col" { "accessed in % of checks" }
                    th scope="col" { "for (s)" }
                } }
                tbody {
                    @for region in regions.iter().take(REGIONS) {
                        tr {
                            th scope="row" { (format!("{:#x}", region.start)) }
                            td { (bytes_text(region.end - region.start)) }
                            td { (format!("{:.0}", f64::from(region.nr_accesses) * 100.0 / window)) }
                            td { (format!("{:.1}", f64::from(region.age) * window * snapshot.sample_us as f64 / 1e6)) }
                        }
                    }
                }
            }
        }
    }
}
