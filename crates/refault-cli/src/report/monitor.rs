//! The report of `refault monitor -- PROGRAM`: heat map over time, working set, hot and cold memory.

use maud::{Markup, html};
use refault_sim::monitoring::heat_map::HeatMap;

use super::chart::{Figure, Series, Shape};
use super::heat::Heat;
use super::scale::Axis;
use super::{page, write};
use crate::monitor::recording::{PERCENTILES, Process, Recording, percentile};
use refault_console::text::grouped;
use refault_console::text::number;
use refault_console::{Failure, Output};
use refault_lab::size::bytes_text;

/// Regions in the table.
const REGIONS: usize = 40;

/// Writes the report of a program that was monitored.
pub fn write_monitor(output: Output, recording: &Recording) -> Result<(), Failure> {
    let (command, kernel) = (&recording.program, recording.kernel.as_ref());
    let Some(process) = recording.processes.first() else { return Ok(()) };
    let cpu = process
        .monitor_cpu()
        .map_or(String::new(), |cpu| format!(" The monitor took {:.2} % of one processor.", cpu * 100.0));
    let body = html! {
        h1 { (command) }
        p.lead {
            "Process " (process.pid) ", " (grouped(process.snapshots.len() as u64)) " aggregations in "
            (format!("{:.1}", process.seconds())) " s, by " (recording.source) "." (cpu)
        }
        (heat("Accesses by address and time", "heat", process))
        @if let Some(kernel) = kernel { (heat("The same by the kernel's monitor (DAMON)", "kernel", kernel)) }
        div.grid2 { (working_set(process).markup()) (distribution(process)) }
        (regions(process))
    };
    write(output, page(&format!("refault: {command}"), 1, body))
}

fn heat(title: &str, id: &str, process: &Process) -> Markup {
    let map: HeatMap = process.heat_map();
    let places = process.places();
    let bytes: u64 = places.iter().map(|place| place.end - place.start).sum();
    // Places in the order of their addresses, the gaps between them left out; each is named where it begins.
    let mut below = 0;
    let rows = places.iter().map(|place| {
        let part = below as f64 / bytes.max(1) as f64;
        below += place.end - place.start;
        (part, format!("{:#x}", place.start))
    });
    let length = process.seconds();
    let moment = |quarter: u32| {
        let part = f64::from(quarter) / 4.0;
        (part, format!("{} s", number(length * part)))
    };
    Heat {
        id: id.into(),
        title: title.into(),
        description: "How often memory was accessed, by address, low at the top, and time, from left to right.".into(),
        caption: format!(
            "The {} in which some access was found, downwards in the order of addresses, each range named where it \
             begins, gaps left out. A shade is the part of the checks that found an access.",
            bytes_text(bytes)
        ),
        columns: map.rows().to_vec(),
        rows: rows.collect(),
        moments: (0..=4).map(moment).collect(),
        across: "time",
        key: ["seldom".into(), "in every check".into()],
    }
    .markup(html! {})
}

fn working_set(process: &Process) -> Figure {
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    let points: Vec<(f64, f64)> =
        process.working_set_over_time().into_iter().map(|(seconds, bytes)| (seconds, mib(bytes))).collect();
    let most = points.iter().fold(0.0f64, |most, (_, y)| most.max(*y));
    Figure {
        id: "wss".into(),
        title: "Working set over time".into(),
        description: format!("At most {} MiB.", number(most)),
        definition: if process.is_bounded() {
            "Bytes (MiB) in regions with at least one access in an aggregation, as far as they were ever touched."
        } else {
            "Bytes (MiB) in regions with at least one access in an aggregation."
        }
        .into(),
        x: Axis::exact("time (s)", process.seconds().max(0.001), 5, number),
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
                caption { "Size that the working set did not exceed in this percentage of the aggregations." }
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
