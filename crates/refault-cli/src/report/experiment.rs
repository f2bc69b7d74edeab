//! The report of `refault reproduce`: the verdict, the figures, the pictures.

use maud::{Markup, html};
use refault_lab::Experiment;
use refault_lab::experiment::{self, Chart};

use super::chart::{COLOURS, Figure, Series, Shape};
use super::scale::{Axis, tick};
use super::{page, write};
use crate::reproduce::{EXPLANATION, HERE_HEADINGS, KERNELS_EXPLANATION, cells, here_cells, kernel_lines};
use refault_console::text::number;
use refault_console::{Failure, Output};

/// Writes the report.
pub fn write_experiment(output: Output, experiment: &Experiment, about: &str) -> Result<(), Failure> {
    let series = experiment.charts.iter().map(|chart| chart.series.len()).max().unwrap_or(0);
    let body = html! {
        h1 { (experiment.experiment) }
        p.lead {
            "refault " (env!("CARGO_PKG_VERSION")) ": " (about) ". Scale " (number(experiment.scale)) ", first seed "
            (experiment.seed) "."
        }
        p { (experiment.verdict) }
        div.scroll tabindex="0" {
            table.rows {
                caption { (EXPLANATION) }
                thead {
                    tr {
                        @for heading in [
                            "workload", "figure", "published before", "published after", "published ratio",
                            "ours before", "ours after", "our ratio", "spread", "null's ratio", "agrees",
                        ] { th scope="col" { (heading) } }
                    }
                }
                tbody {
                    @for row in &experiment.rows {
                        tr {
                            @let cells = cells(row);
                            th scope="row" { (breakable(&cells[0])) }
                            td.words {
                                (breakable(&cells[1]))
                                @if !cells[2].is_empty() { br; small { (cells[2]) } }
                            }
                            @for cell in &cells[3..] { td { (cell) } }
                        }
                    }
                }
            }
        }
        @if !experiment.here.is_empty() {
            h2 { "On this machine" }
            div.scroll tabindex="0" {
                table.rows {
                    caption { "Never judged: this is not the document's machine. Published and model: the ratio of the same row above." }
                    thead { tr { @for heading in HERE_HEADINGS { th scope="col" { (heading) } } } }
                    tbody {
                        @for row in &experiment.here {
                            tr {
                                @let cells = here_cells(row, experiment);
                                th scope="row" { (breakable(&cells[0])) }
                                td.words { (breakable(&cells[1])) }
                                @for cell in &cells[2..] { td { (cell) } }
                            }
                        }
                    }
                }
            }
        }
        @if !experiment.kernels.is_empty() {
            @let (headings, rows) = kernel_lines(&experiment.kernels);
            h2 { "Asked of real kernels" }
            div.scroll tabindex="0" {
                table.rows {
                    caption { (KERNELS_EXPLANATION) }
                    thead { tr { @for heading in headings { th scope="col" { (heading) } } } }
                    tbody {
                        @for cells in &rows {
                            tr {
                                th scope="row" { (breakable(&cells[0])) }
                                td.words { (breakable(&cells[1])) }
                                @for cell in &cells[2..] { td { (cell) } }
                            }
                        }
                    }
                }
            }
        }
        @if !experiment.remarks.is_empty() {
            h2 { "Remarks" }
            ul { @for remark in &experiment.remarks { li { (remark) } } }
        }
        div.grid2 {
            @for (index, chart) in experiment.charts.iter().enumerate() {
                (figure(index, chart, Some(common_height(&experiment.charts, chart))).markup())
            }
        }
    };
    write(output, page(&format!("refault: {}", experiment.experiment), series, body))
}

/// A name that may be broken after its underscores.
fn breakable(name: &str) -> Markup {
    html! { @for part in name.split_inclusive('_') { (part) wbr; } }
}

/// With a capital at its beginning.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or(String::new(), |first| first.to_uppercase().chain(characters).collect())
}

/// The highest value of all pictures that show the same figure of the same workload, so that those before and after can
/// be compared.
fn common_height(charts: &[Chart], of: &Chart) -> f64 {
    let is_alike =
        |chart: &&Chart| (subject(chart), &chart.y_axis, chart.stacked) == (subject(of), &of.y_axis, of.stacked);
    charts.iter().filter(is_alike).map(highest).fold(0.0, f64::max)
}

/// What a picture shows, before or after the change.
fn subject(chart: &Chart) -> &str {
    let title = chart.title.as_str();
    [", before", ", after"].iter().find_map(|when| title.strip_suffix(when)).unwrap_or(title)
}

/// The highest value of a picture.
fn highest(chart: &Chart) -> f64 {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    if chart.stacked {
        let count = chart.series.first().map_or(0, |series| series.points.len());
        let sum = |at: usize| chart.series.iter().filter_map(|series| series.points.get(at)).map(|(_, y)| y).sum();
        (0..count).map(sum).fold(0.0, f64::max)
    } else {
        points().fold(0.0, |high: f64, (_, y)| high.max(*y))
    }
}

/// The look of a series: of areas, the uppermost has the first shade, as the youngest generation has everywhere; a line
/// that lies on an earlier one is dashed, so that both are seen.
fn look(chart: &Chart, index: usize) -> usize {
    if chart.stacked {
        return chart.series.len() - 1 - index;
    }
    let points = &chart.series[index].points;
    let lies_on = |earlier: &experiment::Series| {
        let same = earlier.points.iter().zip(points).filter(|(a, b)| a == b && a.1 != 0.0).count();
        same * 2 > points.len()
    };
    if chart.series[..index].iter().any(lies_on) { index + COLOURS } else { index }
}

/// A picture of an experiment or a scenario, ready to draw, at least so high; `index` must be unique in the document.
pub(super) fn figure(index: usize, chart: &Chart, height: Option<f64>) -> Figure {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let highest = height.unwrap_or_else(|| highest(chart));
    let widest = points().fold(0.0, |high: f64, (x, _)| high.max(*x));
    Figure {
        id: format!("chart-{index}"),
        title: chart.title.clone(),
        description: format!("{} over {}; the figures are in the table below.", chart.y_axis, chart.x_axis),
        definition: sentence(&format!("{} over {}.", chart.y_axis, chart.x_axis)),
        x: Axis::exact(&chart.x_axis, widest, 6, tick),
        y: Axis::linear(&chart.y_axis, highest, 5, tick),
        series: chart
            .series
            .iter()
            .enumerate()
            .map(|(index, series)| Series {
                name: series.name.clone(),
                look: look(chart, index),
                points: series.points.clone(),
            })
            .collect(),
        x_label: number,
        y_label: number,
        shape: if chart.stacked { Shape::Stacked } else { Shape::Lines },
        marks: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_on_each_other_and_areas_by_age_can_be_told_apart() {
        let line = |y: f64| experiment::Series { name: "a".to_owned(), points: vec![(0.0, 0.0), (1.0, y), (2.0, y)] };
        let mut chart = Chart {
            title: "pressure".to_owned(),
            x_axis: "s".to_owned(),
            y_axis: "%".to_owned(),
            stacked: false,
            series: vec![line(5.0), line(5.0), line(6.0), line(0.0), line(0.0)],
        };
        let looks = |chart: &Chart| (0..chart.series.len()).map(|index| look(chart, index)).collect::<Vec<_>>();
        assert_eq!(looks(&chart), [0, 1 + COLOURS, 2, 3, 4]);
        chart.stacked = true;
        assert_eq!(looks(&chart), [4, 3, 2, 1, 0]);
    }

    #[test]
    fn pictures_before_and_after_have_one_scale_and_others_their_own() {
        let chart = |title: &str, high: f64| Chart {
            title: title.to_owned(),
            x_axis: "s".to_owned(),
            y_axis: "pages".to_owned(),
            stacked: false,
            series: vec![experiment::Series { name: "a".to_owned(), points: vec![(0.0, 1.0), (1.0, high)] }],
        };
        let charts = [chart("free, before", 800.0), chart("free, after", 100.0), chart("tabs: refaults", 3.0)];
        let heights = charts.each_ref().map(|of| common_height(&charts, of));
        assert_eq!(heights, [800.0, 800.0, 3.0]);
    }
}
