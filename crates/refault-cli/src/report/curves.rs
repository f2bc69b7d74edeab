//! The report of `refault mrc`: one picture per trace, with the answers in words above it.

use maud::{Markup, html};

use super::chart::{Figure, Series, Shape};
use super::scale::Axis;
use super::{memory, memory_unit, name_parts, page, write};
use crate::mrc::{answer, goal_text, knee, sampling_text};
use crate::source::kernels::Kernels;
use crate::source::memory_text;
use refault_console::text::grouped;
use refault_console::text::number;
use refault_console::{Failure, Output};
use refault_lab::curve::{Curve, TraceCurves};

/// Points of a complete curve that are drawn, evenly over the footprint.
const DRAWN: u64 = 120;

/// Knees that are drawn; all are in the text.
const KNEES: usize = 4;

/// Writes the report; `sizes` are the sizes shown for a trace, `ratios` those that memory is found for.
pub fn write_curves(
    output: Output,
    traces: &[TraceCurves],
    kernels: &[Option<Kernels>],
    sizes: impl Fn(&TraceCurves) -> Vec<u64>,
    ratios: &[f64],
) -> Result<(), Failure> {
    let series = traces.iter().map(|trace| trace.curves.len()).max().unwrap_or(0);
    let body = html! {
        h1 { "How much memory is enough" }
        p.lead { "refault " (env!("CARGO_PKG_VERSION")) ": misses by memory size. A page is 4 KiB." }
        (definitions())
        @for (index, trace) in traces.iter().enumerate() {
            @let (name, parameters) = name_parts(&trace.trace);
            section {
                h2 { (name) @if !parameters.is_empty() { " " small { (parameters) } } }
                p.lead {
                    (grouped(trace.accesses)) " accesses to " (grouped(trace.distinct_pages)) " distinct pages ("
                    (memory_text(&trace.reading, trace.distinct_pages)) "); " (format!("{:.2}", trace.first_touches() * 100.0))
                    " % of accesses are first touches."
                }
                (super::read_as(&trace.reading))
                @if let Some(kernels) = &kernels[index] { (super::real_kernels(&kernels.text(&trace.reading))) }
                @if let Some(sampling) = trace.sampling { p.note { (sampling_text(sampling, trace)) } }
                p { "Memory for " (goal_text(trace, ratios)) ":" }
                ul { @for curve in &trace.curves { li { (curve.policy) ": " (answer(trace, curve, ratios).join("; ")) } } }
                (figure(index, trace, &sizes(trace), ratios).markup())
            }
        }
    };
    write(output, page("refault: miss-ratio curves", series, body))
}

fn definitions() -> Markup {
    html! {
        details {
            summary { "What the words and figures mean" }
            dl {
                dt { "miss ratio (%)" }
                dd { "Accesses in 100 that do not find their page in memory; the first access to a page is one." }
                dt { "memory (MiB)" } dd { "The limit on resident pages, times 4 KiB; metadata is not counted." }
                dt { "knee" }
                dd {
                    "Where more memory stops paying: with memory in parts of the footprint and the miss ratio scaled so \
                     that no memory is 1 and the whole footprint is 0, the point of the curve farthest below the \
                     straight line between the two."
                }
                dt { "opt" } dd { "Belady's bound: it knows the future, so no program can run it." }
            }
        }
    }
}

fn figure(index: usize, trace: &TraceCurves, sizes: &[u64], ratios: &[f64]) -> Figure {
    let footprint = trace.distinct_pages;
    let evenly: Vec<u64> = (0..=DRAWN).map(|step| (footprint * step / DRAWN).max(1)).collect();
    let series: Vec<Series> = trace
        .curves
        .iter()
        .enumerate()
        .map(|(look, curve)| {
            let mut at: Vec<u64> = sizes.to_vec();
            if curve.complete {
                at.extend(&evenly);
                at.sort_unstable();
                at.dedup();
            }
            let points = at.iter().map(|pages| (memory(&trace.reading, *pages), curve.at(*pages) * 100.0)).collect();
            Series { name: curve.policy.clone(), look, points }
        })
        .collect();
    let highest = series.iter().flat_map(|series| &series.points).fold(0.0f64, |high, (_, y)| high.max(*y));
    let knees = trace.curves.iter().take(KNEES).filter_map(|curve| {
        let knee = knee(trace, curve)?;
        let text = memory_text(&trace.reading, knee.memory_pages);
        Some((memory(&trace.reading, knee.memory_pages), format!("knee of {}: {text}", curve.policy)))
    });
    let errors = trace.curves.iter().flat_map(|curve| &curve.points).filter_map(|point| point.standard_error);
    let largest_error = errors.fold(0.0, f64::max);
    let widest = sizes.iter().copied().max().unwrap_or(1).max(footprint);
    Figure {
        id: format!("curve-{index}"),
        title: "Miss ratio by memory size".into(),
        description: described(trace, ratios),
        definition: match trace.sampling {
            None => "Misses in 100 accesses, first touches included, by memory limit.".into(),
            Some(_) => format!(
                "Misses in 100 accesses, first touches included, by memory limit; the standard error is at most {:.2} %.",
                largest_error * 100.0
            ),
        },
        x: Axis::exact(&format!("memory ({})", memory_unit(&trace.reading)), memory(&trace.reading, widest), 5, number),
        y: Axis::linear("miss ratio (%)", highest, 5, number),
        series,
        x_label: number,
        y_label: |y| format!("{y:.4}"),
        shape: Shape::Lines,
        marks: knees.collect(),
    }
}

/// The answers in one text, for those who do not see the picture.
fn described(trace: &TraceCurves, ratios: &[f64]) -> String {
    let curve = |curve: &Curve| format!("{}: {}.", curve.policy, answer(trace, curve, ratios).join("; "));
    let curves: Vec<String> = trace.curves.iter().map(curve).collect();
    format!("Memory for {}. {}", goal_text(trace, ratios), curves.join(" "))
}
