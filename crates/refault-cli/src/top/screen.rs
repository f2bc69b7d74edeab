//! What `refault top` shows. Every figure has its unit; names are those of the statistics.

use ratatui::Frame;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};
use serde::Deserialize;
use serde_json::Value;

use super::log_tail::SEEN_AT_THE_END;
use super::{View, cache, what_if};
use crate::run::advice::Advice;
use refault_console::text::grouped;
use refault_core::statistics;
use refault_lab::size::bytes_text;

/// Lines of the text form: generations beyond the fifth are cut.
const HEIGHT: u16 = 28;

/// The view as text, for scripts and tests.
pub fn text(view: &View<'_>, width: u16) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, HEIGHT + what_if::rows(&view.line)));
    let Ok(_) = terminal.draw(|frame| draw(frame, Some(view)));
    lines(terminal.backend().buffer())
}

/// What was drawn, as text without blanks at the ends of lines and of all.
pub(super) fn lines(buffer: &Buffer) -> String {
    let line = |y: u16| {
        let cells = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    let text: String = (0..buffer.area.height).map(line).collect();
    text.trim_end().to_owned() + "\n"
}

/// Draws the view, or that there is nothing yet.
pub fn draw(frame: &mut Frame<'_>, view: Option<&View<'_>>) {
    let area = frame.area();
    let Some(view) = view else {
        frame.render_widget(Paragraph::new("no statistics yet"), area);
        return;
    };
    if cache::is_cache(&view.line) {
        return cache::draw(frame, view);
    }
    let lines = [!view.note.is_empty(), view.totals.is_some(), thrashing(&view.line).is_some()];
    let last = 1 + lines.map(u16::from).iter().sum::<u16>();
    let heights = heights(area.height, what_if::rows(&view.line), last, rows_of_generations(&view.line));
    let areas = Layout::vertical(heights.map(Constraint::Length)).areas(area);
    let [title, memory, faults, curve, generations, others, advice] = areas;
    draw_title(frame, title, view);
    draw_memory(frame, memory, &view.line);
    draw_faults(frame, faults, &view.line);
    draw_curve(frame, curve, view);
    draw_generations(frame, generations, view);
    what_if::draw(frame, others, &view.line);
    draw_advice(frame, advice, view);
}

/// Rows of title, memory, faults, curve, generations, other sizes and advice. Where there is no room for all, the
/// generations go first, then the curve, then faults but for their latency, then other sizes; memory stays longest, its
/// first line last of all. What is left goes to the generations, up to `generations` rows, and then to the curve.
fn heights(rows: u16, others: u16, last: u16, generations: u16) -> [u16; 7] {
    const LATENCY_ALONE: u16 = 3;
    let mut heights = [1, 7, 6, 4, 4, others, last];
    let missing = |heights: &[u16; 7]| heights.iter().sum::<u16>().saturating_sub(rows);
    for (box_of, least) in [(4, 0), (3, 0), (2, LATENCY_ALONE), (5, 0), (2, 0)] {
        if missing(&heights) > 0 {
            heights[box_of] = least.min(heights[box_of]);
        }
    }
    heights[1] -= missing(&heights).min(4);
    let left = rows.saturating_sub(heights.iter().sum());
    let wanted = if heights[4] > 0 { generations.saturating_sub(heights[4]).min(left) } else { 0 };
    heights[4] += wanted;
    if heights[3] > 0 {
        heights[3] += left - wanted;
    }
    heights
}

/// Rows in which all generations are seen, or what chooses in their place.
fn rows_of_generations(line: &Value) -> u16 {
    const BORDERS: u16 = 2;
    let generations = line["generations"].as_array().filter(|_| line["leader"].is_null());
    BORDERS + generations.map_or(1, |all| u16::try_from(all.len().max(1)).unwrap_or(u16::MAX - BORDERS))
}

pub(super) fn number(line: &Value, key: &str) -> u64 {
    line[key].as_u64().unwrap_or(0)
}

/// Said of what a backend does not count.
const NOT_COUNTED: &str = "not counted";

/// What is made of a figure, if it was counted.
fn counted(line: &Value, key: &str, text: impl FnOnce(u64) -> String) -> String {
    line[key].as_u64().map_or_else(|| NOT_COUNTED.to_owned(), text)
}

pub(super) fn bytes(line: &Value, key: &str) -> String {
    bytes_text(number(line, key))
}

pub(super) fn block(title: &str) -> Block<'_> {
    Block::bordered().title(title).border_style(Style::new().fg(Color::DarkGray))
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let line = &view.line;
    let ended = if has_ended(line) { ", ended" } else { "" };
    let others = if view.processes > 1 { format!(", {} processes", view.processes) } else { String::new() };
    let how = match (line["access_source"].as_str(), line[statistics::BACKEND_REASON.name].as_str()) {
        (Some(source), _) => format!("accesses by {source}"),
        (None, Some(_)) => "by the kernel".to_owned(),
        (None, None) => "accesses by unknown means".to_owned(),
    };
    let text = format!(
        "  process {}{ended}, {:.0} s{others}, {how}  {}",
        number(line, "pid"),
        line["seconds"].as_f64().unwrap_or(0.0),
        view.source
    );
    let name = Span::styled(view.command, Style::new().add_modifier(Modifier::BOLD));
    frame.render_widget(Paragraph::new(Line::from(vec![name, Span::raw(text)])), area);
}

pub(super) fn has_ended(line: &Value) -> bool {
    line["last"] == Value::Bool(true)
}

/// A bar of `width` cells, `part` of `whole` full.
pub(super) fn bar(part: u64, whole: u64, width: usize) -> String {
    let full = (part as f64 / whole.max(1) as f64 * width as f64).round() as usize;
    format!("{}{}", "█".repeat(full.min(width)), "·".repeat(width.saturating_sub(full)))
}

fn draw_memory(frame: &mut Frame<'_>, area: Rect, line: &Value) {
    let page = number(line, "page_bytes");
    let (resident, budget) = (number(line, "resident_bytes"), number(line, "budget_bytes"));
    let pool = number(line, "compressed_bytes");
    // The kernel says how much is swapped, which is all on devices that compress.
    let pool_stored = line["pool_pages"].as_u64().map_or_else(|| number(line, "stored_bytes"), |pages| pages * page);
    let ratio = if pool > 0 { format!(", {:.2} to 1", pool_stored as f64 / pool as f64) } else { String::new() };
    let width = usize::from(area.width).saturating_sub(48).clamp(10, 60);
    let row = |name: &'static str, amount: String, rest: String| {
        Row::new([Cell::from(name), Cell::from(Line::from(amount).right_aligned()), Cell::from(rest)])
    };
    let metadata = number(line, "metadata_bytes");
    // What a program has in any case says nothing of a page of which there are few.
    let a_page = |managed: u64| match metadata.checked_div(managed) {
        Some(each) if each < page => format!("{:.1} bytes a managed page", metadata as f64 / managed as f64),
        _ => format!("for {} managed pages", grouped(managed)),
    };
    let rows = [
        row("resident", bytes_text(resident), format!("{} of {}", bar(resident, budget, width), bytes_text(budget))),
        row(
            "stored",
            bytes(line, "stored_bytes"),
            format!("same-filled {}", counted(line, "same_filled_pages", |pages| bytes_text(pages * page))),
        ),
        row("  compressed", bytes_text(pool), format!("for {}{ratio}", bytes_text(pool_stored))),
        row("  file", bytes(line, "file_bytes"), format!("for {}", bytes_text(number(line, "file_pages") * page))),
        row("metadata", bytes_text(metadata), line["managed_pages"].as_u64().map_or_else(String::new, a_page)),
    ];
    let widths = [Constraint::Length(13), Constraint::Length(11), Constraint::Min(10)];
    let title = match (has_ended(line), line[SEEN_AT_THE_END] == true) {
        (false, _) => "Memory",
        (true, false) => "Memory when it was fullest",
        (true, true) => "Memory at its end, before which it was not looked at",
    };
    frame.render_widget(Table::new(rows, widths).block(block(title)), area);
}

fn microseconds(line: &Value, key: &str) -> String {
    counted(line, key, |ns| format!("{:.1} µs", ns as f64 / 1000.0))
}

fn draw_faults(frame: &mut Frame<'_>, area: Rect, line: &Value) {
    let faults = grouped(number(line, "faults"));
    let latency = match line["fault_p50_ns"].is_null() {
        true => format!("{NOT_COUNTED}; {faults} faults"),
        false => format!(
            "p50 {}   p99 {}   max {}   of {faults} faults",
            microseconds(line, "fault_p50_ns"),
            microseconds(line, "fault_p99_ns"),
            microseconds(line, "fault_max_ns"),
        ),
    };
    let pressure = |kind: &str| {
        let line = &line["pressure"][kind];
        if line.is_null() {
            return NOT_COUNTED.to_owned();
        }
        let percent = |key: &str| format!("{:>6.2} %", line[key].as_f64().unwrap_or(0.0));
        let total = number(line, "total_us") as f64 / 1e6;
        let averages = [percent("avg10"), percent("avg60"), percent("avg300")].join("  ");
        format!("{averages}   {total:.1} s in all")
    };
    let totals = format!(
        "{} in, {} out, {} major faults",
        grouped(number(line, "pswpin")),
        grouped(number(line, "pswpout")),
        grouped(number(line, "pgmajfault"))
    );
    let rows = [
        Row::new(["fault latency".to_owned(), latency]),
        Row::new(["pressure some".to_owned(), format!("{}   (10, 60, 300 s)", pressure("some"))]),
        Row::new(["pressure full".to_owned(), pressure("full")]),
        Row::new(["pages".to_owned(), totals]),
    ];
    let widths = [Constraint::Length(13), Constraint::Min(10)];
    frame.render_widget(Table::new(rows, widths).block(block("Faults")), area);
}

fn draw_curve(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let rate = view.line["refaults_per_second"].as_f64().unwrap_or(0.0);
    let most = view.rates.iter().copied().max().unwrap_or(0);
    let title =
        format!("Refaults: {} per second, at most {} in the window shown", grouped(rate.round() as u64), grouped(most));
    let block = Block::bordered().title(title).border_style(Style::new().fg(Color::DarkGray));
    let shown = usize::from(area.width.saturating_sub(2));
    let rates = &view.rates[view.rates.len().saturating_sub(shown)..];
    frame.render_widget(Sparkline::default().data(rates).style(Style::new().fg(Color::Red)).block(block), area);
}

pub(super) fn draw_generations(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let line: &Value = &view.line;
    let page = number(line, "page_bytes");
    let none = Vec::new();
    let generations = line["generations"].as_array().unwrap_or(&none);
    if let Some(leader) = line["leader"].as_str() {
        draw_leader(frame, area, leader, &view.leaders);
        return;
    }
    if generations.is_empty() {
        let text = "this policy has none";
        frame.render_widget(Paragraph::new(text).block(block("Generations")), area);
        return;
    }
    let most = generations.iter().map(|generation| number(generation, "pages")).max().unwrap_or(0);
    let width = usize::from(area.width).saturating_sub(46).clamp(10, 60);
    // The youngest are kept if there is no room for all.
    let shown = usize::from(area.height.saturating_sub(2));
    let rows = generations[generations.len().saturating_sub(shown)..].iter().map(|generation| {
        let pages = number(generation, "pages");
        let age = number(generation, "age_ms") as f64 / 1000.0;
        Row::new([
            Cell::from(format!("{}", number(generation, "seq"))),
            Cell::from(Line::from(format!("{age:.1} s")).right_aligned()),
            Cell::from(Line::from(bytes_text(pages * page)).right_aligned()),
            Cell::from(bar(pages, most, width)),
        ])
    });
    let widths = [Constraint::Length(8), Constraint::Length(11), Constraint::Length(11), Constraint::Min(10)];
    frame.render_widget(Table::new(rows, widths).block(block("Generations: number, age, size; oldest first")), area);
}

/// Which way of choosing victims leads, and for how much of the time each has led.
fn draw_leader(frame: &mut Frame<'_>, area: Rect, leader: &str, leaders: &[(&str, u64)]) {
    let lines = leaders.iter().map(|(_, lines)| lines).sum::<u64>().max(1);
    let share = |(way, led): &(&str, u64)| format!("{way} {:.0} %", *led as f64 * 100.0 / lines as f64);
    let so_far = leaders.iter().map(share).collect::<Vec<_>>().join(", ");
    let text = format!("{leader} leads; of the time so far: {so_far}");
    frame.render_widget(Paragraph::new(text).block(block("Way of choosing what goes")), area);
}

/// That the budget is far too small, in words.
fn thrashing(line: &Value) -> Option<&str> {
    line[statistics::THRASHING.name].as_str().filter(|_| !has_ended(line))
}

/// What the run has come to, and the advice: of its last seconds, or, once it has ended, of all of it.
fn draw_advice(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let line = &view.line;
    let lately = || {
        let bytes = line[statistics::ADVICE_BYTES.name].as_u64();
        let state = Advice::deserialize(&line[statistics::ADVICE.name]).ok();
        state.unwrap_or(if bytes.is_some() { Advice::More } else { Advice::Enough }).text(bytes)
    };
    let ended = view.totals.filter(|_| has_ended(line));
    let advice = ended.map_or_else(lately, |totals| totals.advice_text());
    let advice = Line::styled(advice, Style::new().add_modifier(Modifier::BOLD));
    let run = view.totals.map(|totals| {
        let [peak, refaults, waited] = [statistics::PEAK, statistics::REFAULTS, statistics::WAITED].map(|one| one.word);
        let waited = match totals.missing.has(statistics::WAITED.name) {
            true => format!("{waited} {NOT_COUNTED}"),
            false => format!("{:.2} s {waited}", totals.waited_seconds),
        };
        let (most, count) = (bytes_text(totals.peak_bytes), grouped(totals.refaults));
        Line::raw(format!("the run: {peak} {most}, {count} {refaults}, {waited}"))
    });
    let thrashing = thrashing(line).map(Line::raw);
    let note = (!view.note.is_empty()).then(|| Line::raw(view.note.as_str()));
    frame.render_widget(
        Paragraph::new(run.into_iter().chain([advice]).chain(thrashing).chain(note).collect::<Vec<_>>()),
        area,
    );
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serde_json::json;

    use super::*;

    fn line() -> Value {
        json!({
            "pid": 4711, "seconds": 12.3, "last": false, "access_source": "drop-and-scan", "page_bytes": 4096,
            "budget_bytes": 536_870_912u64, "resident_bytes": 402_653_184u64, "compressed_bytes": 104_857_600u64,
            "stored_bytes": 272_629_760u64, "same_filled_pages": 2560, "pool_pages": 64_000, "file_pages": 0,
            "file_bytes": 0, "metadata_bytes": 5_242_880, "managed_pages": 262_144, "faults": 1_234_567,
            "fault_p50_ns": 3200, "fault_p99_ns": 14_000, "fault_max_ns": 812_000, "pswpin": 90_000, "pswpout": 160_000,
            "pgmajfault": 80_000, "refaults_per_second": 4321.0, "would_stop_refaulting_at_bytes": 671_088_640u64,
            "pressure": {
                "some": {"avg10": 12.5, "avg60": 3.25, "avg300": 0.8, "total_us": 2_500_000},
                "full": {"avg10": 4.0, "avg60": 1.0, "avg300": 0.25, "total_us": 900_000},
            },
            "generations": [
                {"seq": 7, "age_ms": 9200, "pages": 20_000}, {"seq": 8, "age_ms": 4100, "pages": 30_000},
                {"seq": 9, "age_ms": 800, "pages": 40_000}, {"seq": 10, "age_ms": 100, "pages": 8304},
            ],
        })
    }

    #[test]
    fn what_is_not_counted_is_no_zero() {
        let line = json!({
            "pid": 4711, "seconds": 12.3, "last": false, "page_bytes": 4096, "backend_reason": "asked for",
            "budget_bytes": 30 << 20, "resident_bytes": 20 << 20, "compressed_bytes": 5 << 20, "stored_bytes": 20 << 20,
            "metadata_bytes": 2 << 20, "faults": 332_634, "refaults_per_second": 4321.0,
            "thrashing": "the budget of 30 MiB is far too small",
        });
        let view = View {
            command: "refault run",
            source: "run.jsonl",
            line: Cow::Borrowed(&line),
            rates: vec![0, 4321],
            leaders: vec![],
            totals: None,
            processes: 1,
            note: String::new(),
        };
        let screen = text(&view, 100);
        for part in [
            "process 4711, 12 s, by the kernel  run.jsonl",
            "fault latency not counted; 332,634 faults",
            "pressure some not counted",
            "same-filled not counted",
            "for 20 MiB, 4.00 to 1",
            "\nthe budget of 30 MiB is far too small\n",
        ] {
            assert!(format!("{screen}\n").contains(part), "{part}\n{screen}");
        }
        assert!(!screen.contains("0.0 µs") && !screen.contains("managed page"), "{screen}");
    }

    #[test]
    fn the_screen_shows_every_figure_with_its_unit() {
        let line = line();
        let view = View {
            command: "refault run",
            source: "run.jsonl",
            line: Cow::Borrowed(&line),
            rates: vec![0, 4321, 2000],
            leaders: vec![],
            totals: None,
            processes: 1,
            note: "a note".to_owned(),
        };
        let screen = text(&view, 80);
        for part in [
            "refault run  process 4711, 12 s, accesses by drop-and-scan  run.jsonl",
            "\na note\n",
            "resident          384 MiB ████████████████████████········ of 512 MiB",
            "stored            260 MiB same-filled 10 MiB",
            "  compressed      100 MiB for 250 MiB, 2.50 to 1",
            "metadata            5 MiB 20.0 bytes a managed page",
            "p50 3.2 µs   p99 14.0 µs   max 812.0 µs   of 1,234,567 faults",
            "12.50 %    3.25 %    0.80 %   2.5 s in all",
            "4.00 %    1.00 %    0.25 %   0.9 s in all",
            "Refaults: 4,321 per second, at most 4,321",
            "7              9.2 s    78.1 MiB",
            "10             0.1 s    32.4 MiB",
            "advice: 640 MiB, with which",
        ] {
            assert!(screen.contains(part), "{part}\n{screen}");
        }
        assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
        assert!(screen.contains('█') && screen.contains('▆'), "{screen}");
        let mut few = line.clone();
        few["managed_pages"] = json!(33);
        let screen = text(&View { line: Cow::Borrowed(&few), ..view }, 80);
        assert!(screen.contains("5 MiB for 33 managed pages"), "a share of it says nothing of a page: {screen}");
    }

    #[test]
    fn a_small_terminal_shows_memory_first() {
        assert_eq!(heights(24, 0, 1, 40), [1, 7, 6, 4, 5, 0, 1]);
        // A terminal with room for more gives it to the curve.
        assert_eq!(heights(50, 0, 3, 3), [1, 7, 6, 29, 4, 0, 3]);
        assert_eq!(heights(27, 0, 2, 40), [1, 7, 6, 4, 7, 0, 2]);
        assert_eq!(heights(20, 0, 1, 40), [1, 7, 6, 5, 0, 0, 1]);
        assert_eq!(heights(14, 0, 2, 40), [1, 7, 3, 0, 0, 0, 2]);
        assert_eq!(heights(24, 6, 1, 40), [1, 7, 6, 0, 0, 6, 1]);
        assert_eq!(heights(14, 6, 1, 40), [1, 7, 3, 0, 0, 0, 1]);
        assert_eq!(heights(8, 0, 1, 40), [1, 6, 0, 0, 0, 0, 1]);
        assert_eq!(heights(5, 0, 1, 40), [1, 3, 0, 0, 0, 0, 1]);
        let line = line();
        let view = View {
            command: "refault top",
            source: "x",
            line: Cow::Borrowed(&line),
            rates: vec![],
            leaders: vec![],
            totals: None,
            processes: 1,
            note: String::new(),
        };
        let Ok(mut terminal) = Terminal::new(TestBackend::new(50, 14));
        let Ok(_) = terminal.draw(|frame| draw(frame, Some(&view)));
        let shown = format!("{:?}", terminal.backend().buffer());
        assert!(shown.contains("resident") && shown.contains("metadata"), "{shown}");
    }

    #[test]
    fn a_policy_without_generations_and_a_program_without_refaults() {
        let mut line = line();
        line["generations"] = json!([]);
        line["would_stop_refaulting_at_bytes"] = Value::Null;
        line["pswpin"] = json!(0);
        line["last"] = json!(true);
        let view = View {
            command: "refault top",
            source: "x",
            line: Cow::Borrowed(&line),
            rates: vec![],
            leaders: vec![],
            totals: None,
            processes: 3,
            note: String::new(),
        };
        let screen = text(&view, 100);
        let title = "process 4711, ended, 12 s, 3 processes, accesses by drop-and-scan";
        assert!(screen.contains(title), "{screen}");
        assert!(screen.contains("this policy has none") && screen.contains("advice: the budget is enough"), "{screen}");
    }

    #[test]
    fn a_policy_that_chooses_among_ways_says_which_leads() {
        let mut line = line();
        line["generations"] = json!([]);
        line["leader"] = json!("reuse distance");
        let view = View {
            command: "refault top",
            source: "x",
            line: Cow::Borrowed(&line),
            rates: vec![],
            leaders: vec![("recency", 1), ("reuse distance", 3)],
            totals: None,
            processes: 1,
            note: String::new(),
        };
        let screen = text(&view, 100);
        let shown = "reuse distance leads; of the time so far: recency 25 %, reuse distance 75 %";
        assert!(screen.contains(shown), "{screen}");
    }
}
