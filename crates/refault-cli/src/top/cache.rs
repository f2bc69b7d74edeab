//! A page cache of a running program, from the lines that it writes (`CacheOptions::statistics`, `REFAULT_CACHE_STATS`).

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table};
use refault_console::text::grouped;
use refault_lab::size::bytes_text;
use serde_json::Value;

use super::View;
use super::log_tail::SILENT_SECONDS;
use super::screen::{bar, block, bytes, draw_generations, has_ended, number};

/// Whether a line is a page cache's.
pub(super) fn is_cache(line: &Value) -> bool {
    line["cache"].is_u64()
}

/// Draws the view. Where there is no room for all, the curve goes first, then the generations.
pub(super) fn draw(frame: &mut Frame<'_>, view: &View<'_>) {
    let area = frame.area();
    let answers = view.line["would_miss"].as_array().map_or(0, Vec::len) as u16;
    let mut heights = [1, 7, 5, 4, 6, if answers > 0 { answers + 2 } else { 0 }, u16::from(!view.note.is_empty())];
    let missing = |heights: &[u16; 7]| heights.iter().sum::<u16>().saturating_sub(area.height);
    for part in [3, 4] {
        if missing(&heights) > 0 {
            heights[part] = 0;
        }
    }
    let areas = Layout::vertical(heights.map(Constraint::Length)).areas(area);
    let [title, memory, reads, curve, generations, sizes, note] = areas;
    draw_title(frame, title, view);
    draw_memory(frame, memory, &view.line);
    draw_reads(frame, reads, &view.line);
    draw_curve(frame, curve, view);
    if heights[4] > 0 {
        draw_generations(frame, generations, view);
    }
    draw_sizes(frame, sizes, &view.line);
    frame.render_widget(Paragraph::new(view.note.as_str()), note);
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let line = &view.line;
    let ended = match line[SILENT_SECONDS].as_u64() {
        Some(seconds) => format!(", silent for {seconds} s (killed, or stopped)"),
        None if has_ended(line) => ", closed".to_owned(),
        None => String::new(),
    };
    let others = if view.processes > 1 { format!(", {} caches", view.processes) } else { String::new() };
    let text = format!(
        "  process {}, page cache {}{ended}, {:.0} s{others}, {}, {}  {}",
        number(line, "pid"),
        number(line, "cache"),
        line["seconds"].as_f64().unwrap_or(0.0),
        line["policy"].as_str().unwrap_or("?"),
        line["io"].as_str().unwrap_or("?"),
        view.source
    );
    let name = Span::styled(view.command, Style::new().add_modifier(Modifier::BOLD));
    frame.render_widget(Paragraph::new(Line::from(vec![name, Span::raw(text)])), area);
}

fn draw_memory(frame: &mut Frame<'_>, area: Rect, line: &Value) {
    let (resident, whole) = (number(line, "resident_bytes"), number(line, "memory_bytes"));
    let (compressed, stored) =
        (number(line, "compressed_bytes"), number(line, "compressed_pages") * number(line, "page_bytes"));
    let width = usize::from(area.width).saturating_sub(48).clamp(10, 60);
    let row = |name: &'static str, amount: String, rest: String| {
        Row::new([Cell::from(name), Cell::from(Line::from(amount).right_aligned()), Cell::from(rest)])
    };
    let waiting = "wait to be written, or to become durable".to_owned();
    let rows = [
        row("pages", bytes_text(resident), format!("{} of {}", bar(resident, whole, width), bytes_text(whole))),
        row("  dirty", bytes(line, "dirty_bytes"), waiting),
        row("compressed", bytes_text(compressed), format!("for {}", bytes_text(stored))),
        row("evicted", bytes(line, "cached_bytes"), "cached in free frames".to_owned()),
        row("metadata", bytes(line, "metadata_bytes"), String::new()),
    ];
    let title = if has_ended(line) { "Memory when it was fullest" } else { "Memory" };
    let widths = [Constraint::Length(13), Constraint::Length(11), Constraint::Min(10)];
    frame.render_widget(Table::new(rows, widths).block(block(title)), area);
}

/// Hits of 100 pages asked for.
fn percent(hits: u64, misses: u64) -> String {
    match hits + misses {
        0 => "none asked for".to_owned(),
        asked => format!("{:.2} %", hits as f64 * 100.0 / asked as f64),
    }
}

fn draw_reads(frame: &mut Frame<'_>, area: Rect, line: &Value) {
    let (hits, misses) = (number(line, "hits"), number(line, "misses"));
    let (hits_now, misses_now) = (number(line, "hits_per_second"), number(line, "misses_per_second"));
    let rows = [
        Row::new([
            "hit ratio".to_owned(),
            format!("{} of {} pages", percent(hits, misses), grouped(hits + misses)),
            format!("now {}, {} pages/s", percent(hits_now, misses_now), grouped(hits_now + misses_now)),
        ]),
        Row::new([
            "from disk".to_owned(),
            format!("{} misses", grouped(misses)),
            format!(
                "{} read ahead, {} unpacked",
                grouped(number(line, "read_ahead")),
                grouped(number(line, "unpacked"))
            ),
        ]),
        Row::new([
            "written".to_owned(),
            format!("{} pages", grouped(number(line, "written"))),
            format!(
                "{} later, {} waits for pages",
                grouped(number(line, "written_back")),
                grouped(number(line, "waits"))
            ),
        ]),
    ];
    let widths = [Constraint::Length(13), Constraint::Min(10), Constraint::Min(10)];
    frame.render_widget(Table::new(rows, widths).block(block("Reads and writes")), area);
}

fn draw_curve(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let most = view.rates.iter().copied().max().unwrap_or(0);
    let title = format!("Misses: at most {} per second in the window shown", grouped(most));
    let shown = usize::from(area.width.saturating_sub(2));
    let rates = &view.rates[view.rates.len().saturating_sub(shown)..];
    let style = Style::new().fg(Color::Red);
    frame.render_widget(Sparkline::default().data(rates).style(style).block(block(&title)), area);
}

/// What other sizes and policies would have hit.
fn draw_sizes(frame: &mut Frame<'_>, area: Rect, line: &Value) {
    let none = Vec::new();
    let answers = line["would_miss"].as_array().unwrap_or(&none);
    let rows = answers.iter().map(|answer| {
        let (accesses, misses) = (number(answer, "accesses"), number(answer, "misses"));
        Row::new([
            format!("at {}", bytes_text(number(answer, "memory_bytes"))),
            format!("the ratio would be {}", percent(accesses.saturating_sub(misses), misses)),
            format!("under {}, without readahead", answer["policy"].as_str().unwrap_or("?")),
        ])
    });
    let widths = [Constraint::Length(13), Constraint::Length(30), Constraint::Min(10)];
    frame.render_widget(Table::new(rows, widths).block(block("Other sizes, from a sample of the pages")), area);
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serde_json::json;

    use super::super::screen::text;
    use super::*;

    fn line() -> Value {
        json!({"pid": 4711, "cache": 1, "seconds": 12.0, "last": false, "page_bytes": 4096, "policy": "mglru",
            "io": "io_uring", "memory_bytes": 64 << 20, "resident_bytes": 48 << 20, "dirty_bytes": 4 << 20,
            "compressed_bytes": 2 << 20, "compressed_pages": 1024, "metadata_bytes": 9 << 10, "hits": 75_000,
            "misses": 25_000, "hits_per_second": 999, "misses_per_second": 1, "read_ahead": 77, "written": 8,
            "generations": [{"seq": 3, "age_ms": 1500, "pages": 256}], "leader": null,
            "would_miss": [{"policy": "mglru", "memory_bytes": 128 << 20, "accesses": 100_000, "misses": 12_345}]})
    }

    fn view(line: &Value) -> View<'_> {
        View {
            command: "refault top",
            source: "cache.jsonl",
            line: Cow::Borrowed(line),
            rates: vec![3, 1],
            leaders: Vec::new(),
            totals: None,
            processes: 2,
            note: String::new(),
        }
    }

    #[test]
    fn a_cache_is_shown_with_its_ratio_memory_generations_and_other_sizes() {
        let line = line();
        let shown = text(&view(&line), 100);
        for part in [
            "process 4711, page cache 1, 12 s, 2 caches, mglru, io_uring  cache.jsonl",
            "75.00 % of 100,000 pages",
            "now 99.90 %, 1,000 pages/s",
            "48 MiB",
            "of 64 MiB",
            "for 4 MiB",
            "at 128 MiB    the ratio would be 87.66 %",
            "Generations",
            "1.5 s",
        ] {
            assert!(shown.contains(part), "{part} is not in\n{shown}");
        }
    }

    #[test]
    fn a_cache_that_writes_no_longer_is_not_shown_as_one_that_does() {
        let mut line = line();
        line[SILENT_SECONDS] = json!(61);
        let shown = text(&view(&line), 110);
        assert!(shown.contains("page cache 1, silent for 61 s (killed, or stopped), 12 s"), "{shown}");
    }

    #[test]
    fn a_line_that_lacks_all_but_its_cache_is_shown_too() {
        let shown = text(&view(&json!({"cache": 0, "resident_bytes": 0})), 80);
        assert!(shown.contains("none asked for"), "{shown}");
    }
}
