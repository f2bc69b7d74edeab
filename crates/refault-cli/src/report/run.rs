//! The report of `refault report`: memory, refaults and waiting of a run over time, a group of pictures per process.

use maud::{Markup, html};

use super::chart::{Figure, Series, Shape};
use super::scale::{Axis, tick};
use super::{page, write};
use crate::history::{History, Life, Moment};
use refault_console::text::{grouped, number};
use refault_console::{Failure, Output};
use refault_core::statistics;
use refault_lab::size::bytes_text;

/// Processes that have pictures at most.
const DRAWN: usize = 8;
/// Processes whose peak is less than this part of the largest one's have none.
const SMALL: u64 = 100;

/// Writes the report.
///
/// # Errors
/// As [`Output::write`].
pub fn write_run(output: Output, source: &str, history: &History) -> Result<(), Failure> {
    let mut lives: Vec<&Life> = history.lives.iter().collect();
    lives.sort_by_key(|life| std::cmp::Reverse(life.peak_bytes()));
    let body = html! {
        h1 { "A run under a budget" }
        p.lead { "Statistics in " code { (source) } "." }
        @if let Some(totals) = history.totals() {
            p { "The run: " (totals.line(history.largest_budget())) "; " (totals.advice_text()) "." }
        }
        @let large = lives.iter().take_while(|life| life.peak_bytes() >= lives[0].peak_bytes() / SMALL).count();
        @let shown = large.clamp(1, DRAWN).min(lives.len());
        (table("Processes, the largest first. A process that executes another program begins again.", &lives[..shown]))
        @if shown < lives.len() {
            details {
                summary { (lives.len() - shown) " smaller processes" }
                (table("The others", &lives[shown..]))
            }
        }
        @for (index, life) in lives.iter().take(shown).enumerate() {
            h2 { "Process " (life.pid) }
            div.grid2 { @for figure in figures(index, life) { (figure.markup()) } }
        }
    };
    write(output, page(&format!("refault: {source}"), 4, body))
}

/// Heads of the table of processes. The lines of statistics are a while apart: between them a process may have had more.
const HEADS: [&str; 8] = [
    "process",
    statistics::SECONDS.word,
    statistics::BUDGET.word,
    "most resident in a line",
    statistics::FAULTS.word,
    statistics::STORED.word,
    statistics::REFAULTS.word,
    "waited (s)",
];

fn table(caption: &str, lives: &[&Life]) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table {
                caption { (caption) }
                thead { tr { @for head in HEADS {
                    th scope="col" { (head) }
                } } }
                tbody {
                    @for life in lives {
                        @let end = life.end();
                        tr {
                            th scope="row" { (life.pid) }
                            td { (format!("{:.1}", end.seconds)) }
                            td { (bytes_text(end.budget_bytes)) }
                            td { (bytes_text(life.peak_bytes())) }
                            td { (grouped(end.faults)) }
                            td { (grouped(end.stored)) }
                            td { (grouped(end.refaults)) }
                            @if life.counts_waiting() {
                                td { (format!("{:.2}", end.waited_seconds)) }
                            } @else {
                                td { "not counted" }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn figures(index: usize, life: &Life) -> Vec<Figure> {
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    let line = |name: &str, look: usize, of: &dyn Fn(&Moment) -> f64| Series {
        name: name.into(),
        look,
        points: life.moments.iter().map(|moment| (moment.seconds, of(moment))).collect(),
    };
    let memory = vec![
        line("resident", 0, &|moment| mib(moment.resident_bytes)),
        line("budget", 7, &|moment| mib(moment.budget_bytes)),
        line("contents stored", 1, &|moment| mib(moment.stored_bytes)),
        line("memory of the compressed pool", 3, &|moment| mib(moment.compressed_bytes)),
    ];
    let rates = vec![line("refaults", 1, &|moment| moment.refaults_per_second)];
    let waited = vec![line("waited", 4, &|moment| moment.waited_seconds)];
    let figure = |name: &str, title: &str, y: &str, definition: &str, series: Vec<Series>| {
        let most = series.iter().flat_map(|series| &series.points).fold(0.0f64, |most, (_, y)| most.max(*y));
        Figure {
            id: format!("{name}-{index}"),
            title: title.into(),
            description: format!("{title} of process {}: at most {}.", life.pid, number(most)),
            definition: definition.into(),
            x: Axis::exact("time (s)", life.end().seconds.max(0.001), 5, number),
            y: Axis::linear(y, most, 5, tick),
            series,
            x_label: |x| format!("{x:.1}"),
            y_label: number,
            shape: Shape::Lines,
            marks: Vec::new(),
        }
    };
    let mut figures = vec![
        figure(
            "memory",
            "Memory",
            "MiB",
            "Managed memory that is resident and may be; contents in the stores, and what these take.",
            memory,
        ),
        figure(
            "refaults",
            "Refaults",
            "pages per second",
            "Pages that came back, per second, in the last ten seconds.",
            rates,
        ),
    ];
    if life.counts_waiting() {
        let definition = "Time that threads waited for pages so far.";
        figures.push(figure("waited", "Waiting", "seconds in all", definition, waited));
    }
    figures
}
