//! What is read: ranges of one object, made from a seed once, for all sides.

use std::ops::Range;

use refault_testing::Random;
use serde_json::{Value, json};

/// Ranges that are wanted at the same time.
pub type Step = Vec<Range<u64>>;

/// A piece of work: one step after the other.
pub struct Work {
    pub name: &'static str,
    pub steps: Vec<Step>,
    /// Whether it is done once more by a new process, for sides that keep something on disk.
    pub comes_again: bool,
    /// Whether it is the object from its beginning on.
    pub is_scan: bool,
}

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub object: u64,
    pub reads: u64,
    pub scanned: u64,
}

const SEED: u64 = 7;
/// Places of random reads: one per this many bytes.
const SPOT: u64 = 64 << 10;
/// Of Zipf's law.
const EXPONENT: f64 = 0.8;
/// Row groups and columns of the columnar file; what is left at its end is the footer.
const GROUPS: u64 = 16;
const COLUMNS: u64 = 32;
const FOOTER: u64 = 64 << 10;

impl Work {
    /// All pieces.
    pub fn all(size: Size) -> Vec<Work> {
        vec![random(size), columnar(size), scan(size)]
    }

    /// Bytes that are read, and those of them that are not the same.
    pub fn bytes(&self) -> (u64, u64) {
        let mut ranges: Vec<Range<u64>> = self.steps.iter().flatten().cloned().collect();
        let all = ranges.iter().map(|range| range.end - range.start).sum();
        ranges.sort_by_key(|range| range.start);
        let (mut different, mut end) = (0, 0);
        for range in ranges {
            different += range.end.saturating_sub(range.start.max(end));
            end = end.max(range.end);
        }
        (all, different)
    }

    /// For the other program.
    pub fn json(&self) -> Value {
        json!(
            self.steps
                .iter()
                .map(|step| step.iter().map(|range| [range.start, range.end]).collect())
                .collect::<Vec<Vec<_>>>()
        )
    }
}

/// Reads of 4 to 64 KiB, each place always the same, by Zipf's law.
fn random(size: Size) -> Work {
    let mut random = Random::new(SEED);
    let mut places: Vec<Range<u64>> = (0..size.object / SPOT)
        .map(|spot| {
            let length = 4096 + random.below(SPOT - 4096 + 1);
            let start = spot * SPOT + random.below(SPOT - length + 1);
            start..start + length
        })
        .collect();
    for place in (1..places.len()).rev() {
        places.swap(place, random.index(place + 1));
    }
    let mut sums = Vec::new();
    for rank in 1..=places.len() {
        sums.push(sums.last().unwrap_or(&0.0) + (rank as f64).powf(-EXPONENT));
    }
    let total = *sums.last().expect("an object has a place");
    let mut draw = || {
        let at = random.below(1 << 53) as f64 / (1u64 << 53) as f64 * total;
        vec![places[sums.partition_point(|sum| *sum <= at).min(places.len() - 1)].clone()]
    };
    Work { name: "random reads", steps: (0..size.reads).map(|_| draw()).collect(), comes_again: true, is_scan: false }
}

/// A file as Parquet lays it out, asked three times for the same row groups. Each query wants a column that the one
/// before did not. A query asks for the footer, then for each row group's columns together.
fn columnar(size: Size) -> Work {
    let footer = size.object - FOOTER..size.object;
    let chunk = footer.start / (GROUPS * COLUMNS);
    let mut steps = Vec::new();
    for columns in [[1, 4, 7, 9], [1, 4, 7, 12], [1, 4, 10, 12]] {
        steps.push(vec![footer.clone()]);
        for group in [2, 5, 9, 13] {
            let start = |column| (group * COLUMNS + column) * chunk;
            steps.push(columns.iter().map(|column| start(column)..start(column) + chunk).collect());
        }
    }
    Work { name: "three queries of columns", steps, comes_again: false, is_scan: false }
}

/// From the beginning, 64 KiB at a time.
fn scan(size: Size) -> Work {
    const READ: u64 = 64 << 10;
    let step = |number: u64| -> Step {
        let start = number * READ;
        std::iter::once(start..start + READ).collect()
    };
    let steps = (0..size.scanned / READ).map(step).collect();
    Work { name: "scan", steps, comes_again: false, is_scan: true }
}
