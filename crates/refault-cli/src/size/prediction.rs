//! What is known before anything is tried: how many pages would come back under each budget, and what that would cost.
//!
//! The pages are those that LRU would miss beyond first touches. A recording has an exact curve (see
//! `refault_lab::curve`); several are averaged. Where there is little time, the run with ample memory has looked at a
//! sample (`run/advice/curve.rs`). The cost of a page is measured on this machine as
//! `refault doctor` measures it: a fault from the compressed pool and the eviction that makes room for it.

use std::time::Duration;

use refault_console::Failure;
use refault_lab::curve::{TraceCurves, lru_curve};
use refault_lab::size::PAGE_BYTES;
use refault_lab::sweep::jobs;
use refault_paging::MIN_PROGRAM_BYTES;
use refault_trace::{Options, Source};

use super::ladder::Ladder;
use super::trial::{How, Runner};
use crate::doctor;

/// Intervals that a recording should have.
const INTERVALS: f64 = 100.0;
/// Milliseconds between looks, at least and at most.
const INTERVAL_MS: (u64, u64) = (5, 200);
/// Programs that take less are recorded several times.
const QUICK_SECONDS: f64 = 5.0;
/// How often at most.
pub const RECORDINGS: u32 = 3;
/// Sizes at which curves are asked.
const STEPS: u64 = 512;

/// Where the pages are from.
#[derive(Debug)]
pub enum Pages {
    /// The curves of recordings; never empty.
    Recorded(Vec<TraceCurves>),
    /// Bytes, and pages that come back with them, the smallest first; never empty.
    Seen(Vec<[u64; 2]>),
}

/// Pages that come back, and the cost of one.
#[derive(Debug)]
pub struct Prediction {
    /// Milliseconds between looks.
    pub interval_ms: u64,
    /// Pages by budget.
    pub pages: Pages,
    /// Seconds per page that comes back; `None` if it cannot be measured here.
    pub seconds_per_page: Option<f64>,
}

impl Prediction {
    /// Records the program, which takes `alone` seconds by itself, `most` times at most.
    ///
    /// # Errors
    /// It cannot be recorded here.
    pub fn record(runner: &Runner, alone: f64, most: u32, mut progress: impl FnMut()) -> Result<Prediction, Failure> {
        let directory = tempfile::tempdir().map_err(|error| Failure::write(std::env::temp_dir().display(), &error))?;
        let interval_ms = ((alone * 1000.0 / INTERVALS) as u64).clamp(INTERVAL_MS.0, INTERVAL_MS.1);
        let mut curves = Vec::new();
        let recordings = if alone < QUICK_SECONDS { most } else { 1 };
        for number in 0..recordings {
            let trace = directory.path().join(format!("{number}.rft"));
            // A recording is unlimited, so it ends; its faults cost no more than a multiple.
            let limit = Duration::from_secs_f64(60.0 + alone * 20.0);
            if runner.run(How::Recorded(&trace, interval_ms), Some(limit))?.given_up {
                return Err(Failure::failed("it did not end", "recording", "it took twenty times as long as alone"));
            }
            curves.push(lru_curve(&Source::file(trace, Options::default()), jobs(None), &())?);
            progress();
        }
        let pages = Pages::Recorded(curves);
        Ok(Prediction { interval_ms, pages, seconds_per_page: doctor::seconds_per_page() })
    }

    /// Recordings.
    pub fn recordings(&self) -> &[TraceCurves] {
        match &self.pages {
            Pages::Recorded(curves) => curves,
            Pages::Seen(_) => &[],
        }
    }

    /// Bytes that were touched at all, on average.
    pub fn footprint_bytes(&self) -> u64 {
        match &self.pages {
            Pages::Recorded(curves) => {
                let pages: u64 = curves.iter().map(|curves| curves.distinct_pages).sum();
                pages * PAGE_BYTES / curves.len().max(1) as u64
            }
            Pages::Seen(points) => points.last().map_or(0, |[bytes, _]| *bytes),
        }
    }

    /// The smallest budget that is held to be enough, in bytes, but no more than the program has had: what comes back
    /// takes no longer than may be lost. None where what a page costs cannot be measured.
    pub fn need(&self, ladder: &Ladder) -> Option<u64> {
        let base = ladder.baseline().seconds().mean;
        let left = match ladder.is_looked_at() {
            // What looks took is nothing that may be lost.
            true => ladder.alone.seconds().mean * ladder.slowdown,
            false => base * (1.0 + ladder.slowdown) - ladder.unlimited().seconds().mean,
        };
        let pages = left.max(0.0) / self.seconds_per_page?;
        let bytes = self.bytes_for(pages, MIN_PROGRAM_BYTES);
        Some(ladder.peak_bytes().map_or(bytes, |peak| bytes.min(peak.max(MIN_PROGRAM_BYTES))))
    }

    /// Pages that come back under a budget, on average.
    pub fn read_back(&self, bytes: u64) -> f64 {
        let curves = match &self.pages {
            Pages::Recorded(curves) => curves,
            Pages::Seen(points) => {
                let known = points.partition_point(|[size, _]| *size <= bytes);
                return points[known.max(1) - 1][1] as f64;
            }
        };
        let pages = bytes / PAGE_BYTES;
        let one = |trace: &TraceCurves| {
            // Ratios are of whole accesses.
            let misses = trace.curves.first().map_or(0.0, |curve| (curve.at(pages) * trace.accesses as f64).round());
            (misses - trace.distinct_pages as f64).max(0.0)
        };
        curves.iter().map(one).sum::<f64>() / curves.len().max(1) as f64
    }

    /// Seconds more than with ample memory.
    pub fn extra_seconds(&self, bytes: u64) -> Option<f64> {
        Some(self.read_back(bytes) * self.seconds_per_page?)
    }

    /// The smallest budget with at most `read_back` pages that come back, from `least` on.
    pub fn bytes_for(&self, read_back: f64, least: u64) -> u64 {
        let footprint = self.footprint_bytes().max(least);
        let step = |step: u64| least + (footprint - least) * step / STEPS;
        // Fewer come back the more memory there is.
        let (mut low, mut high) = (0, STEPS);
        while low < high {
            let middle = (low + high) / 2;
            if self.read_back(step(middle)) <= read_back { high = middle } else { low = middle + 1 }
        }
        step(low)
    }

    /// The knee of the first recording, in bytes.
    pub fn knee_bytes(&self) -> Option<u64> {
        let trace = self.recordings().first()?;
        let knee = trace.curves.first()?.knee(trace.distinct_pages, trace.first_touches())?;
        Some(knee.memory_pages * PAGE_BYTES)
    }

    /// Pages that come back within `seconds`.
    pub fn pages_in(&self, seconds: f64) -> f64 {
        seconds / self.seconds_per_page.unwrap_or(ASSUMED_SECONDS_PER_PAGE)
    }

    /// Budgets worth a run, for a program that takes `alone` seconds and may take the part `slowdown` more: where the
    /// prediction is at a tenth of that, at it and at four times it, and the knee. None is below `least`.
    pub fn budgets(&self, alone: f64, slowdown: f64, least: u64) -> Vec<u64> {
        let allowed = self.pages_in(alone * slowdown);
        let mut budgets: Vec<u64> =
            [0.1, 1.0, 4.0].map(|times| self.bytes_for(allowed * times, least)).into_iter().collect();
        budgets.extend(self.knee_bytes());
        budgets.iter_mut().for_each(|bytes| *bytes = super::ladder::round_up((*bytes).max(least)));
        budgets.sort_unstable();
        budgets.dedup_by(|larger, smaller| (*larger as f64) < *smaller as f64 * 1.05);
        budgets
    }
}

/// Where the cost of a page cannot be measured, budgets are chosen as if it were this.
const ASSUMED_SECONDS_PER_PAGE: f64 = 20e-6;

#[cfg(test)]
mod tests {
    use super::*;

    fn prediction(specification: &str) -> Prediction {
        let source = Source::workload(specification.parse().expect("a workload"));
        let curves = vec![lru_curve(&source, jobs(None), &()).expect("a curve")];
        Prediction { interval_ms: 10, pages: Pages::Recorded(curves), seconds_per_page: Some(1e-3) }
    }

    #[test]
    fn a_loop_needs_all_of_it() {
        // 1000 pages, ten times: below 1000 pages each of the nine later passes misses all.
        let loops = prediction("cyclic:pages=1000,accesses=10000");
        assert_eq!(loops.footprint_bytes(), 1000 * 4096);
        assert_eq!((loops.read_back(999 * 4096), loops.read_back(1000 * 4096)), (9000.0, 0.0));
        assert_eq!(loops.extra_seconds(999 * 4096), Some(9.0));
        let needed = loops.bytes_for(10.0, 1 << 20);
        assert_eq!(needed, 1000 * 4096);
        assert_eq!(loops.bytes_for(9000.0, 1 << 20), 1 << 20);
    }

    #[test]
    fn what_looks_have_seen_is_a_curve_too() {
        let pages = Pages::Seen(vec![[4 << 20, 900], [8 << 20, 300], [16 << 20, 0]]);
        let seen = Prediction { interval_ms: 20, pages, seconds_per_page: Some(1e-3) };
        assert_eq!(
            [1, 4, 7, 8, 15, 16, 99].map(|mib| seen.read_back(mib << 20)),
            [900.0, 900.0, 900.0, 300.0, 300.0, 0.0, 0.0]
        );
        assert_eq!((seen.footprint_bytes(), seen.knee_bytes(), seen.recordings().len()), (16 << 20, None, 0));
        let needed = seen.bytes_for(300.0, 1 << 20);
        assert!((8 << 20..(8 << 20) + (64 << 10)).contains(&needed), "{needed}");
    }

    #[test]
    fn budgets_lie_around_what_may_be_lost() {
        let uniform = prediction("uniform:pages=4096,accesses=200000");
        let budgets = uniform.budgets(100.0, 0.05, 1 << 20);
        assert!(budgets.windows(2).all(|pair| pair[0] < pair[1]), "{budgets:?}");
        let allowed = 5.0;
        let extra = |bytes: &u64| uniform.extra_seconds(*bytes).expect("a cost");
        assert!(budgets.iter().any(|bytes| extra(bytes) <= allowed), "{budgets:?}");
        assert!(budgets.iter().any(|bytes| extra(bytes) > allowed), "{budgets:?}");
    }
}
