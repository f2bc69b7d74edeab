//! The report of `refault size` and of `refault run` under several budgets: the answer, the pictures, the table.

use maud::{Markup, html};

use super::chart::{Figure, Series, Shape};
use super::scale::Axis;
use super::{page, write};
use crate::size::Study;
use crate::size::ladder::{Row, Rung};
use crate::size::write::{HEADS, cells, rows, times};
use refault_console::text::number;
use refault_console::{Failure, Output};

/// Points of the predicted curve.
const DRAWN: u64 = 100;
/// Slow-downs beyond this many percent are cut off in the picture, not in the table.
const MAX_PERCENT: f64 = 400.0;

/// Writes the report.
///
/// # Errors
/// As [`Output::write`].
pub fn write_size(output: Output, study: &Study) -> Result<(), Failure> {
    let verdict = study.verdict();
    let body = html! {
        h1 { "How much memory does it need?" }
        p.lead { code { (study.program) } @if let Some(load) = &study.load { " under the load " code { (load) } } }
        @for line in &verdict { p { (line) } }
        div.grid2 {
            (slowdown(study, &verdict.join(" ")).markup())
            @if let Ok(_) = &study.prediction { (read_back(study).markup()) }
        }
        (table(study))
        h2 { "Prediction and measurement" }
        @for line in study.comparison() { p { (line) } }
    };
    write(output, page(&format!("refault: {}", study.program), 2, body))
}

/// Budgets with the value of each in it, ascending.
fn points(study: &Study, of: impl Fn(&Row) -> Option<f64>) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = study
        .ladder
        .budgets
        .iter()
        .filter_map(|row| match row.rung {
            Rung::Budget(bytes) => Some((in_mib(bytes), of(row)?)),
            Rung::Alone | Rung::Ample(_) => None,
        })
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

fn in_mib(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

/// The largest budget shown, in MiB.
fn widest(study: &Study) -> f64 {
    let budgets = points(study, |_| Some(0.0));
    let footprint = study.prediction.as_ref().map_or(0, |prediction| prediction.footprint_bytes());
    budgets.last().map_or(1.0, |(mib, _)| *mib).max(in_mib(footprint)) * 1.02
}

/// Budgets over which a predicted line is drawn.
fn drawn(study: &Study) -> impl Iterator<Item = u64> {
    let widest = (widest(study) * (1 << 20) as f64) as u64;
    let least = points(study, |_| Some(0.0)).first().map_or(1 << 20, |(mib, _)| (mib * (1 << 20) as f64) as u64);
    (0..=DRAWN).map(move |step| least + (widest - least.min(widest)) * step / DRAWN)
}

fn mark(study: &Study) -> Vec<(f64, String)> {
    match study.ladder.needs().map(|row| row.rung) {
        Some(Rung::Budget(bytes)) => vec![(in_mib(bytes), format!("needs {}", refault_lab::size::bytes_text(bytes)))],
        _ => Vec::new(),
    }
}

fn slowdown(study: &Study, verdict: &str) -> Figure {
    let base = study.ladder.baseline();
    let cut = |percent: f64| percent.clamp(0.0, MAX_PERCENT);
    let measured = points(study, |row| (!row.is_given_up()).then(|| cut(study.ladder.longer(row).part * 100.0)));
    let predicted: Vec<(f64, f64)> = drawn(study)
        .filter_map(|bytes| {
            let (_, part) = study.predicted(Rung::Budget(bytes))?;
            Some((in_mib(bytes), cut(part? * 100.0)))
        })
        .collect();
    let highest = measured.iter().fold(0.0f64, |most, (_, y)| most.max(*y)).max(study.ladder.slowdown * 400.0);
    let predicted = predicted.into_iter().filter(|(_, y)| *y <= highest).collect();
    let mut series = vec![Series { name: "measured".into(), look: 0, points: measured }];
    if study.prediction.is_ok() {
        series.push(Series { name: "predicted".into(), look: 9, points: predicted });
    }
    Figure {
        id: "longer".into(),
        title: "Time lost by memory".into(),
        description: verdict.to_owned(),
        definition: format!(
            "Percent longer than {}, by budget; runs that were given up are left out, and lines end above {} %.",
            match base.rung {
                Rung::Alone => "the program alone",
                _ if study.ladder.is_looked_at() => "without what threads waited",
                _ => "with ample memory",
            },
            number(MAX_PERCENT)
        ),
        x: Axis::exact("budget (MiB)", widest(study), 5, number),
        y: Axis::linear("longer (%)", highest, 5, number),
        series,
        x_label: number,
        y_label: |y| format!("{y:.1}"),
        shape: Shape::Lines,
        marks: mark(study),
    }
}

fn read_back(study: &Study) -> Figure {
    let measured =
        points(
            study,
            |row| {
                if row.is_given_up() { None } else { row.mean(|summary| summary.refaults as f64 / 1000.0) }
            },
        );
    let highest = measured.iter().fold(0.0f64, |most, (_, y)| most.max(*y));
    let predicted: Vec<(f64, f64)> = drawn(study)
        .filter_map(|bytes| Some((in_mib(bytes), study.predicted(Rung::Budget(bytes))?.0 / 1000.0)))
        .filter(|(_, y)| *y <= highest.max(1.0) * 1.5)
        .collect();
    let highest = predicted.iter().fold(highest, |most, (_, y)| most.max(*y));
    Figure {
        id: "back".into(),
        title: "Pages that come back".into(),
        description: "Pages read back from the stores in a run, by budget, measured and predicted.".into(),
        definition: "Thousands of pages of 4 KiB read back from the stores in a run, by budget.".into(),
        x: Axis::exact("budget (MiB)", widest(study), 5, number),
        y: Axis::linear("pages (thousands)", highest, 5, number),
        series: vec![
            Series { name: "measured".into(), look: 0, points: measured },
            Series { name: "predicted by the recording".into(), look: 9, points: predicted },
        ],
        x_label: number,
        y_label: |y| format!("{y:.2}"),
        shape: Shape::Lines,
        marks: mark(study),
    }
}

fn table(study: &Study) -> Markup {
    html! {
        h2 { "All runs" }
        div.scroll tabindex="0" {
            table {
                caption {
                    (times(study)) ". Refaults: pages brought back from the stores. Waited: seconds that threads waited for \
                     pages, those touched first included. Peak: the most that was used. * the smallest that is enough."
                }
                thead { tr { @for head in HEADS { th scope="col" { (head) } } } }
                tbody {
                    @for row in rows(study) {
                        @let cells = cells(study, row);
                        tr {
                            th scope="row" { (cells[0]) }
                            @for cell in &cells[1..] { td { (cell) } }
                        }
                    }
                }
            }
        }
    }
}
