//! Tables and figures as people read them.
//!
//! ```
//! use refault_console::text::{grouped, number};
//!
//! assert_eq!(grouped(1_234_567), "1,234,567");
//! assert_eq!(number(3.14159), "3.14");
//! ```

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// A table without borders, for any width.
pub fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// Everything but the first column to the right.
pub fn align_numbers(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// A formatter of ratios (0 to 1) as percentages, with as many digits after the point as the smallest needs.
pub fn percent_format(ratios: impl Iterator<Item = f64>) -> impl Fn(f64) -> String + Copy {
    let smallest = ratios.filter(|ratio| *ratio > 0.0).fold(1.0, f64::min);
    let digits = match smallest {
        s if s < 0.001 => 4,
        s if s < 0.01 => 3,
        _ => 2,
    };
    move |ratio: f64| format!("{:.digits$}", ratio * 100.0)
}

/// Digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Columns of a wide terminal.
pub const WIDE: usize = 120;

/// A text in lines of `most` letters at most, broken at blanks.
pub fn broken(text: &str, most: usize) -> String {
    let mut lines = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let letters = word.chars().count();
        if length > 0 && length + 1 + letters > most {
            lines.push('\n');
            length = 0;
        } else if length > 0 {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(word);
        length += letters;
    }
    lines
}

/// Figures from here on are whole numbers in groups of digits.
const GROUPED_FROM: f64 = 10_000.0;

/// A figure of a table, a dash where there is none.
pub fn cell(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(large) if large >= GROUPED_FROM => grouped(large.round() as u64),
        Some(value) => number(value),
    }
}

/// A figure with as many digits as it needs.
pub fn number(value: f64) -> String {
    let text = match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_as_many_digits_as_it_needs() {
        let cells = [None, Some(12_345.4), Some(0.5), Some(9_999.4)].map(cell);
        assert_eq!(cells, ["–", "12,345", "0.5", "9999"]);
    }

    #[test]
    fn a_text_is_broken_at_blanks() {
        assert_eq!(broken("one  two three", 7), "one two\nthree");
        assert_eq!(broken("unbreakable on", 4), "unbreakable\non");
    }

    #[test]
    fn digits_are_grouped_by_three() {
        assert_eq!(["0", "999", "1,000", "1,234,567"], [0, 999, 1000, 1_234_567].map(grouped).map(String::leak));
    }
}
