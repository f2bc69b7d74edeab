//! The HTML report: one file that needs nothing else, for light and dark, phones and screen readers.
//!
//! [`comparison`] and [`curves`] say what a report holds, [`chart`] draws, [`scale`] finds round numbers. All text goes
//! through `maud`, which escapes it.

pub mod chart;
mod comparison;
mod curves;
mod experiment;
mod heat;
mod info;
mod made;
mod monitor;
mod run;
mod scale;
mod scenario;
mod size;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use refault_console::{Failure, Output};
use refault_lab::size::PAGE_BYTES;
use refault_trace::Reading;

pub use comparison::write_comparison;
pub use curves::write_curves;
pub use experiment::write_experiment;
pub use info::write_info;
pub use monitor::write_monitor;
pub use run::write_run;
pub use scenario::write_scenario;
pub use size::write_size;

/// Writes a document.
fn write(output: Output, document: Markup) -> Result<(), Failure> {
    output.write(|out| out.write_all(document.into_string().as_bytes()))
}

/// The page around a report's body. `series` is the highest number of series in one of its figures.
fn page(title: &str, series: usize, body: Markup) -> Markup {
    let mut style = include_str!("report/style.css").to_string();
    for index in 0..series {
        style.push_str(&format!("figure:has(.c{index}:not(:checked)) .n{index}{{display:none}}\n"));
    }
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content=(concat!("refault ", env!("CARGO_PKG_VERSION")));
                title { (title) }
                style { (PreEscaped(style)) }
            }
            body { main { (body) (made::made()) } }
        }
    }
}

/// A trace's name without, and with, the parameters of a generated workload; these may break at commas.
fn name_parts(trace: &str) -> (&str, String) {
    match trace.split_once(':') {
        Some((name, parameters)) => (name, parameters.replace(',', ", ")),
        None => (trace, String::new()),
    }
}

/// What was left out or assumed of a trace, and what its objects were taken for.
fn read_as(reading: &Reading) -> Markup {
    html! {
        @if let Some(note) = reading.note() { p.note { (note) } }
        @if !reading.remarks.is_empty() {
            ul.note { @for remark in &reading.remarks { li { (remark.to_string()) } } }
        }
    }
}

/// What real kernels did with a trace.
fn real_kernels(text: &str) -> Markup {
    html! {
        p.note {
            "Real kernels: "
            @for (at, part) in text.split('`').enumerate() { @if at % 2 == 0 { (part) } @else { code { (part) } } }
            "."
        }
    }
}

/// The unit of an axis of memory: MiB, or objects where each is a page whatever its size.
fn memory_unit(reading: &Reading) -> &'static str {
    if reading.counts_objects() { "objects" } else { "MiB" }
}

/// Pages in the unit of [`memory_unit`].
fn memory(reading: &Reading, pages: u64) -> f64 {
    if reading.counts_objects() { pages as f64 } else { mib(pages) }
}

/// Pages of 4 KiB as MiB.
fn mib(pages: u64) -> f64 {
    (pages * PAGE_BYTES) as f64 / (1 << 20) as f64
}
