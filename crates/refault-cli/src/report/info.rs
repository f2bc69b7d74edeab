//! The report of `refault trace info`: reuse distances, footprint and heat map of one trace.

use maud::{Markup, html};
use refault_trace::heat_map::{HeatMap, HeatRow};
use refault_trace::statistics::TraceStatistics;

use super::chart::{Figure, Series, Shape};
use super::heat::Heat;
use super::scale::{Axis, tick};
use super::{mib, page, write};
use crate::source::memory_text;
use crate::trace::{bucket_range, heat_level};
use refault_console::text::grouped;
use refault_console::text::number;
use refault_console::{Failure, Output};
use refault_lab::size::{bytes_text, pages_text};

/// Columns of the table behind the heat map.
const TABLE_COLUMNS: usize = 8;
/// Shades of the heat map.
const SHADES: usize = 8;

/// Writes the report of a trace.
pub fn write_info(output: Output, name: &str, statistics: &TraceStatistics) -> Result<(), Failure> {
    let percent = |part: u64| format!("{:.2} %", 100.0 * part as f64 / statistics.accesses as f64);
    let body = html! {
        h1 { (name) }
        p.lead {
            (grouped(statistics.accesses)) " accesses to " (grouped(statistics.distinct_pages)) " distinct pages ("
            (memory_text(&statistics.reading, statistics.distinct_pages)) "): " (grouped(statistics.distinct_anon_pages)) " anonymous, "
            (grouped(statistics.distinct_file_pages)) " file. " (percent(statistics.reads())) " reads, "
            (percent(statistics.writes())) " writes."
        }
        (super::read_as(&statistics.reading))
        div.grid2 { (reuse_figure(statistics).markup()) (footprint_figure(statistics).markup()) }
        (heat_figure(&statistics.heat_map, statistics.accesses))
    };
    write(output, page(&format!("refault: {name}"), 2, body))
}

fn reuse_figure(statistics: &TraceStatistics) -> Figure {
    let percent = |count: u64| 100.0 * count as f64 / statistics.accesses as f64;
    let buckets = statistics.reuse.log2_buckets();
    // Distance d hits from a memory of d + 1 pages on, which makes the axis the same as that of the curves.
    let points: Vec<(f64, f64)> =
        buckets.iter().enumerate().map(|(at, count)| (mib(bucket_range(at).0 + 1), percent(*count))).collect();
    let highest = points.iter().fold(0.0f64, |high, (_, y)| high.max(*y));
    let last = mib(bucket_range(buckets.len()).0 + 1);
    Figure {
        id: "reuse".into(),
        title: "Reuse distances".into(),
        description: format!("{:.2} % of accesses are first accesses.", percent(statistics.reuse.cold())),
        definition: format!(
            "Accesses (%) by the memory an LRU would have needed to hit them: the distinct other pages since the last \
             access to the page, plus one. First accesses, {:.2} %, are not shown.",
            percent(statistics.reuse.cold())
        ),
        x: Axis::powers_of_two("memory (logarithmic)", mib(1), last, 6, |mib| {
            bytes_text((mib * (1 << 20) as f64) as u64)
        }),
        y: Axis::linear("accesses (%)", highest, 5, number),
        series: vec![Series { name: "accesses (%)".into(), look: 0, points }],
        x_label: |x| format!("from {}", bytes_text((x * (1 << 20) as f64) as u64)),
        y_label: |y| format!("{y:.2}"),
        shape: Shape::Bars,
        marks: Vec::new(),
    }
}

fn footprint_figure(statistics: &TraceStatistics) -> Figure {
    let line = |name: &str, look: usize, pages: fn(&refault_trace::statistics::FootprintPoint) -> u64| Series {
        name: name.into(),
        look,
        points: statistics.footprint.iter().map(|point| (point.accesses as f64 / 1e6, mib(pages(point)))).collect(),
    };
    Figure {
        id: "footprint".into(),
        title: "Footprint over time".into(),
        description: format!("{} at the end.", pages_text(statistics.distinct_pages)),
        definition: format!(
            "Distinct pages (MiB) since the start, and within each span of {} accesses.",
            grouped(statistics.heat_map.accesses_per_column)
        ),
        x: Axis::exact("time (million accesses)", statistics.accesses as f64 / 1e6, 5, number),
        y: Axis::linear("memory (MiB)", mib(statistics.distinct_pages), 5, number),
        series: vec![
            line("since the start", 0, |point| point.distinct_pages),
            line("in each span", 1, |point| point.window_pages),
        ],
        x_label: |x| format!("{x:.3}"),
        y_label: |y| format!("{y:.2}"),
        shape: Shape::Lines,
        marks: Vec::new(),
    }
}

fn heat_figure(heat: &HeatMap, accesses: u64) -> Markup {
    let columns = heat.rows.first().map_or(0, |row| row.counts.len());
    let most = heat.rows.iter().flat_map(|row| &row.counts).copied().max().unwrap_or(0);
    let name = |row: &HeatRow| {
        let kind = if row.file { "file" } else { "anon" };
        format!("{kind} {}–{}", row.first_page, row.last_page)
    };
    let hottest = heat.rows.iter().max_by_key(|row| row.counts.iter().sum::<u64>());
    let table = html! {
        details {
            summary { "The figures as a table" }
            div.scroll tabindex="0" {
                table {
                    caption { "Accesses to each range of page numbers, in " (TABLE_COLUMNS) " spans of time." }
                    thead {
                        tr {
                            th scope="col" { "pages" }
                            @for span in 1..=TABLE_COLUMNS { th scope="col" { "span " (span) } }
                        }
                    }
                    tbody {
                        @for row in &heat.rows {
                            tr {
                                th scope="row" { (name(row)) }
                                @for cells in row.counts.chunks(columns.div_ceil(TABLE_COLUMNS).max(1)) {
                                    td { (grouped(cells.iter().sum())) }
                                }
                            }
                        }
                    }
                }
            }
        }
    };
    let share = |count: u64| heat_level(count, most, SHADES) as f64 / SHADES as f64;
    let all = heat.rows.len().max(1) as f64;
    let mut hottest_text = String::new();
    if let Some(row) = hottest {
        hottest_text = format!(" Most accesses go to pages {}.", name(row));
    }
    let moment = |quarter: u64| {
        let part = quarter as f64 / 4.0;
        (part, tick(accesses as f64 * part))
    };
    Heat {
        id: "heat".into(),
        title: "Heat map".into(),
        description: format!(
            "Accesses by page number, low at the top, and time, from left to right.{hottest_text}"
        ),
        caption: format!(
            "Accesses by page number, downwards, and time, across; each range of pages is named where it begins. Shades \
             are equal factors, up to {} accesses.",
            grouped(most)
        ),
        columns: (0..columns).map(|x| heat.rows.iter().map(|row| share(row.counts[x])).collect()).collect(),
        rows: heat
            .rows
            .iter()
            .enumerate()
            .map(|(y, row)| (y as f64 / all, format!("{} {}", if row.file { "file" } else { "anon" }, row.first_page)))
            .collect(),
        moments: (0..=4).map(moment).collect(),
        across: "time (accesses)",
        key: ["1".into(), grouped(most)],
    }
    .markup(table)
}
