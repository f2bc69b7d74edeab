//! Frequencies over time and addresses, as text and as a picture: the truth beside what the monitor has.
//!
//! ```
//! use refault_sim::monitoring::heat_map::{HeatMap, text_one};
//!
//! let mut map = HeatMap::new(4);
//! map.push_pages(&[0, 0, 20, 20], 20); // accesses per page within a window of 20 checks
//! assert_eq!(map.rows(), [[0.0, 0.0, 1.0, 1.0]]);
//! assert_eq!(text_one(&map).lines().count(), 1);
//! ```

use std::fmt::Write;

use refault_core::monitor::Region;

/// Frequencies, 0..=1: a row for each moment, columns of equal spans of addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatMap {
    columns: usize,
    rows: Vec<Vec<f64>>,
}

impl HeatMap {
    /// An empty map of `columns` columns.
    pub fn new(columns: usize) -> HeatMap {
        HeatMap { columns: columns.max(1), rows: Vec::new() }
    }

    /// Rows, oldest first.
    pub fn rows(&self) -> &[Vec<f64>] {
        &self.rows
    }

    /// Adds a row from a value for each page.
    pub fn push_pages(&mut self, counts: &[u32], window: u32) {
        let columns = self.columns.min(counts.len().max(1));
        let row = (0..columns).map(|column| {
            let pages = &counts[column * counts.len() / columns..(column + 1) * counts.len() / columns];
            let sum: u64 = pages.iter().map(|&count| u64::from(count)).sum();
            sum as f64 / (pages.len().max(1) as f64 * f64::from(window.max(1)))
        });
        self.rows.push(row.collect());
    }

    /// Adds a row from regions of pages `0..pages` of `page_size` bytes.
    pub fn push_regions(&mut self, regions: &[Region], pages: usize, page_size: u64, window: u32) {
        let mut counts = vec![0; pages];
        for region in regions {
            let end = (region.end / page_size).min(pages as u64) as usize;
            let start = ((region.start / page_size) as usize).min(end);
            counts[start..end].fill(region.nr_accesses);
        }
        self.push_pages(&counts, window);
    }

    /// The map with at most `rows` rows, each the mean of the rows it stands for.
    pub fn shrunk(&self, rows: usize) -> HeatMap {
        let wanted = rows.max(1).min(self.rows.len().max(1));
        let mean = |index: usize| {
            let part = &self.rows[index * self.rows.len() / wanted..(index + 1) * self.rows.len() / wanted];
            let columns = part.first().map_or(0, Vec::len);
            (0..columns).map(|column| part.iter().map(|row| row[column]).sum::<f64>() / part.len() as f64).collect()
        };
        HeatMap { columns: self.columns, rows: (0..wanted).map(mean).collect() }
    }
}

/// One map, a digit a cell: 0 for no access, 9 for each check. Time runs downwards.
pub fn text_one(map: &HeatMap) -> String {
    map.rows.iter().map(|row| row.iter().map(|value| digit(*value)).collect::<String>() + "\n").collect()
}

/// Both maps side by side, a digit a cell: 0 for no access, 9 for each check. Time runs downwards.
pub fn text_pair(truth: &HeatMap, found: &HeatMap) -> String {
    let mut text = format!("{:<width$}  {}\n", "truth", "monitor", width = truth.columns);
    for (left, right) in truth.rows.iter().zip(&found.rows) {
        for (index, row) in [left, right].into_iter().enumerate() {
            if index == 1 {
                text.push_str("  ");
            }
            text.extend(row.iter().map(|value| digit(*value)));
        }
        text.push('\n');
    }
    text
}

/// 0: never, 9: in each check.
fn level(value: f64) -> u32 {
    (value * 9.0).ceil().clamp(0.0, 9.0) as u32
}

fn digit(value: f64) -> char {
    char::from_digit(level(value), 10).filter(|digit| *digit != '0').unwrap_or('.')
}

/// Both maps side by side as a picture that stands alone. Readable on light and dark pages: it brings its background.
pub fn svg_pair(title: &str, truth: &HeatMap, found: &HeatMap) -> String {
    const CELL: usize = 6;
    const TOP: usize = 44;
    const GAP: usize = 24;
    let width = truth.columns * CELL;
    let height = truth.rows.len() * CELL;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" shape-rendering=\"crispEdges\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        2 * width + 3 * GAP,
        TOP + height + 2 * GAP,
        title = escape(title),
    );
    let _ = writeln!(svg, "<text x=\"{GAP}\" y=\"16\" font-weight=\"bold\">{}</text>", escape(title));
    for (index, (name, map)) in [("truth", truth), ("monitor", found)].into_iter().enumerate() {
        let left = GAP + index * (width + GAP);
        let _ = writeln!(svg, "<text x=\"{left}\" y=\"36\">{name}</text>");
        let _ =
            writeln!(svg, "<rect x=\"{left}\" y=\"{TOP}\" width=\"{width}\" height=\"{height}\" fill=\"#fdf6e3\"/>");
        for (y, row) in map.rows.iter().enumerate() {
            // Neighbours of one level are one rectangle.
            let mut x = 0;
            for run in row.chunk_by(|left, right| level(*left) == level(*right)) {
                if level(run[0]) > 0 {
                    let _ = writeln!(
                        svg,
                        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{CELL}\" fill=\"{}\"/>",
                        left + x * CELL,
                        TOP + y * CELL,
                        run.len() * CELL,
                        colour(level(run[0]))
                    );
                }
                x += run.len();
            }
        }
    }
    let base = TOP + height + 18;
    let _ = writeln!(
        svg,
        "<text x=\"{GAP}\" y=\"{base}\">addresses from left to right, time downwards; dark: accessed in every check</text>\n</svg>"
    );
    svg
}

/// From light yellow to dark red.
fn colour(level: u32) -> String {
    let t = f64::from(level) / 9.0;
    let mix = |from: f64, to: f64| (from + (to - from) * t).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mix(254.0, 103.0), mix(224.0, 0.0), mix(139.0, 13.0))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_means_and_pictures_hold_both() {
        let mut truth = HeatMap::new(2);
        truth.push_pages(&[20, 20, 0, 10], 20);
        truth.push_pages(&[0, 0, 0, 0], 20);
        assert_eq!(truth.rows(), [vec![1.0, 0.25], vec![0.0, 0.0]]);
        let mut found = HeatMap::new(2);
        let regions =
            [Region { nr_accesses: 20, ..Region::new(0, 8192) }, Region { nr_accesses: 4, ..Region::new(8192, 16384) }];
        found.push_regions(&regions, 4, 4096, 20);
        found.push_regions(&[], 4, 4096, 20);
        assert_eq!(text_pair(&truth, &found), "truth  monitor\n93  92\n..  ..\n");
        assert_eq!(truth.shrunk(1).rows(), [vec![0.5, 0.125]]);
        let svg = svg_pair("a < b", &truth, &found);
        assert!(svg.starts_with("<svg") && svg.contains("a &lt; b") && svg.matches("<rect").count() == 3 + 4, "{svg}");
    }
}
