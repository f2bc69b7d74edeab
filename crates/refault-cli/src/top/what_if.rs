//! What other policies and sizes would have missed, of a program under `refault run --what-if`.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table};
use refault_console::text::grouped;
use refault_lab::size::bytes_text;
use serde_json::Value;

use super::screen::{block, number};

/// Columns of a policy's name and of a size.
const NAME: u16 = 20;
const SIZE: u16 = 14;

/// Rows that the answers of a line take; 0 if there are none.
pub(super) fn rows(line: &Value) -> u16 {
    // A page cache has answers of its own kind.
    match policies(line).len().min(20) as u16 {
        policies if policies > 0 && line["sampled_one_page_in"].is_u64() => policies + 3,
        _ => 0,
    }
}

fn answers(line: &Value) -> &[Value] {
    line["would_miss"].as_array().map_or(&[], Vec::as_slice)
}

/// In the order of their first answers.
fn policies(line: &Value) -> Vec<&str> {
    let mut policies: Vec<&str> = answers(line).iter().filter_map(|answer| answer["policy"].as_str()).collect();
    policies.dedup();
    policies
}

/// Draws a row per policy and a column per size.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, line: &Value) {
    let policies = policies(line);
    let Some(first) = policies.first() else { return };
    let of = |policy: &str| answers(line).iter().filter(move |answer| answer["policy"] == *policy).collect::<Vec<_>>();
    let right = |text: String| Cell::from(Line::from(text).right_aligned());
    let sizes = of(first).into_iter().map(|answer| right(bytes_text(number(answer, "memory_bytes"))));
    let head = Row::new(std::iter::once(Cell::from("with")).chain(sizes));
    let misses = |answer: &Value| grouped(number(answer, "misses"));
    let row = |policy: &&str| {
        let misses = of(policy).into_iter().map(|answer| right(misses(answer)));
        Row::new(std::iter::once(Cell::from((*policy).to_owned())).chain(misses))
    };
    let accesses = number(&answers(line)[0], "accesses");
    let title = format!(
        "Would have missed, of {} accesses (1 per page in {} ms; 1 page in {})",
        grouped(accesses),
        number(line, "look_ms"),
        number(line, "sampled_one_page_in")
    );
    let widths = std::iter::once(NAME).chain(std::iter::repeat_n(SIZE, of(first).len()));
    let table = Table::new(std::iter::once(head).chain(policies.iter().map(row)), widths.map(Constraint::Length));
    frame.render_widget(table.block(block(&title)), area);
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serde_json::json;

    use super::super::View;
    use super::super::screen::text;
    use super::*;

    fn shown(line: &Value) -> String {
        let (rates, leaders) = (Vec::new(), Vec::new());
        let (command, source, note) = ("refault top", "run.jsonl", String::new());
        let view =
            View { command, source, line: Cow::Borrowed(line), rates, leaders, totals: None, processes: 1, note };
        text(&view, 80)
    }

    #[test]
    fn each_policy_has_a_row_with_what_it_would_miss_at_each_size() {
        let answer = |policy: &str, mib: u64, misses: u64| json!({"policy": policy, "memory_bytes": mib << 20, "accesses": 1_200_000, "misses": misses});
        let answers =
            [("lru", 32, 600_000), ("lru", 64, 1_234_567_890), ("s3fifo", 32, 500_000), ("s3fifo", 64, 12_000)];
        let answers = answers.map(|(policy, mib, misses)| answer(policy, mib, misses));
        let mut line = json!({"pid": 1, "would_miss": answers, "sampled_one_page_in": 4, "look_ms": 203});
        let screen = shown(&line);
        for part in [
            "Would have missed, of 1,200,000 accesses (1 per page in 203 ms; 1 page in 4)",
            "with                         32 MiB         64 MiB",
            "lru                         600,000  1,234,567,890",
            "s3fifo                      500,000         12,000",
        ] {
            assert!(screen.contains(part), "{part}\n{screen}");
        }
        line["would_miss"] = json!([]);
        assert!(!shown(&line).contains("Would have missed"));
    }
}
