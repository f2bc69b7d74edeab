//! Miss-ratio curves: how many accesses miss at each memory size, and the answers people read off them.
//!
//! LRU's curve is exact at every size from one pass (reuse distances); those of other policies are simulated at the
//! sizes asked for. The *knee* is where more memory stops paying: with memory in parts of the footprint and the miss
//! ratio scaled so that no memory is 1 and the whole footprint is 0, the point of the curve farthest below the straight
//! line between those two ends (Satopää et al., *Finding a "Kneedle" in a Haystack*, ICDCS Workshops 2011).

use std::time::{Duration, Instant};

use refault_trace::page_ids::PageIds;
use refault_trace::reuse::{DistanceHistogram, ReuseDistances};

use crate::failure::Failure;
use crate::progress::Progress;
use crate::source::Source;
use crate::sweep::TraceRuns;

/// The misses at one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Pages that may be resident.
    pub memory_pages: u64,
    /// Misses in accesses, 0 to 1.
    pub miss_ratio: f64,
}

/// How the misses of a policy on a trace depend on memory.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The policy with its parameters.
    pub policy: String,
    /// Points by ascending memory.
    pub points: Vec<Point>,
    /// All sizes are in `points` between which the ratio changes: answers are exact, not among the sizes simulated.
    pub complete: bool,
    /// Time spent on it.
    pub wall: Duration,
}

/// The curves of one trace.
#[derive(Clone, Debug)]
pub struct TraceCurves {
    /// Its name.
    pub trace: String,
    /// Accesses in it.
    pub accesses: u64,
    /// Distinct pages in it; each is missed once at least.
    pub distinct_pages: u64,
    /// One a policy.
    pub curves: Vec<Curve>,
}

impl TraceCurves {
    /// Accesses that miss at any size, because they are the first to their page: 0 to 1.
    pub fn first_touches(&self) -> f64 {
        self.distinct_pages as f64 / self.accesses as f64
    }
}

impl Curve {
    /// The smallest known size with at most this miss ratio.
    pub fn memory_for(&self, miss_ratio: f64) -> Option<Point> {
        // A non-monotonic curve (Belady's anomaly) may rise again above: ask for a size from which it stays below.
        let worse = self.points.iter().rposition(|point| point.miss_ratio > miss_ratio);
        self.points.get(worse.map_or(0, |at| at + 1)).copied()
    }

    /// See the module; `None` if the curve is nowhere below the line.
    pub fn knee(&self, distinct_pages: u64, first_touches: f64) -> Option<Point> {
        let below = |point: &Point| {
            let memory = point.memory_pages as f64 / distinct_pages as f64;
            let misses = (point.miss_ratio - first_touches) / (1.0 - first_touches).max(f64::MIN_POSITIVE);
            1.0 - misses - memory
        };
        let inside = self.points.iter().filter(|point| point.memory_pages < distinct_pages);
        let best = inside.max_by(|a, b| below(a).total_cmp(&below(b)))?;
        (below(best) > 1e-9).then_some(*best)
    }

    /// The ratio at a size: that of the largest known size which is not larger; 1 without memory.
    pub fn at(&self, memory_pages: u64) -> f64 {
        let known = self.points.partition_point(|point| point.memory_pages <= memory_pages);
        known.checked_sub(1).map_or(1.0, |at| self.points[at].miss_ratio)
    }
}

/// LRU's exact curve, and what the pass saw: accesses and distinct pages.
pub fn lru_curve(source: &Source, progress: &Progress) -> Result<TraceCurves, Failure> {
    let mut reader = source.open()?;
    progress.add(reader.total().unwrap_or(0));
    let mut ids = PageIds::new();
    let mut distances = ReuseDistances::new(0);
    let mut histogram = DistanceHistogram::new();
    let (mut entries, mut pages, mut found) = (Vec::new(), Vec::new(), Vec::new());
    let start = Instant::now();
    loop {
        let block = reader.next_block(&mut entries)?;
        if block.is_empty() {
            break;
        }
        pages.clear();
        for entry in block {
            let id = ids.id(*entry).ok_or_else(|| {
                Failure::usage("trace too large", source.name(), "it has more than 4 billion pages; use --sample")
            })?;
            pages.push(id);
        }
        distances.access_all(&pages, &mut found);
        found.iter().for_each(|distance| histogram.record(*distance));
        progress.advance(pages.len() as u64);
    }
    let wall = start.elapsed();
    let accesses = histogram.accesses();
    if accesses == 0 {
        return Err(Failure::usage("trace is empty", source.name(), "a trace has at least one access"));
    }
    Ok(TraceCurves {
        trace: source.name(),
        accesses,
        distinct_pages: ids.len() as u64,
        curves: vec![Curve { policy: "lru".into(), points: points_of(&histogram), complete: true, wall }],
    })
}

/// Every size at which LRU's misses change, and size 1.
fn points_of(histogram: &DistanceHistogram) -> Vec<Point> {
    let accesses = histogram.accesses();
    let mut misses = accesses;
    let mut points = Vec::new();
    for (distance, hits) in histogram.counts().iter().enumerate() {
        misses -= hits;
        if *hits > 0 || distance == 0 {
            points.push(Point { memory_pages: distance as u64 + 1, miss_ratio: misses as f64 / accesses as f64 });
        }
    }
    if points.is_empty() {
        points.push(Point { memory_pages: 1, miss_ratio: 1.0 });
    }
    points
}

/// The curves of simulated policies.
pub fn simulated_curves(runs: &TraceRuns) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for run in &runs.runs {
        let point = Point { memory_pages: run.memory_pages, miss_ratio: run.miss_ratio() };
        match curves.last_mut().filter(|curve| curve.policy == run.policy) {
            Some(curve) => {
                curve.points.push(point);
                curve.wall += run.wall;
            }
            None => {
                curves.push(Curve { policy: run.policy.clone(), points: vec![point], complete: false, wall: run.wall })
            }
        }
    }
    for curve in &mut curves {
        curve.points.sort_by_key(|point| point.memory_pages);
        curve.points.dedup_by_key(|point| point.memory_pages);
    }
    curves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u64, f64)]) -> Curve {
        let points = points
            .iter()
            .map(|(memory_pages, miss_ratio)| Point { memory_pages: *memory_pages, miss_ratio: *miss_ratio });
        Curve { policy: "p".into(), points: points.collect(), complete: true, wall: Duration::ZERO }
    }

    #[test]
    fn the_knee_is_farthest_below_the_line() {
        // Footprint 100 pages, first touches 0.1: (20, 0.28) is scaled to (0.2, 0.2), 0.6 below the line.
        let curve = curve(&[(10, 0.7), (20, 0.28), (50, 0.2), (100, 0.1)]);
        assert_eq!(curve.knee(100, 0.1).map(|point| point.memory_pages), Some(20));
    }

    #[test]
    fn a_loop_has_no_knee() {
        assert_eq!(curve(&[(1, 1.0), (50, 1.0), (100, 0.01)]).knee(100, 0.01), None);
    }

    #[test]
    fn memory_for_a_ratio_stays_below_it() {
        let curve = curve(&[(1, 0.9), (2, 0.4), (3, 0.6), (4, 0.3)]);
        assert_eq!(curve.memory_for(0.5).map(|point| point.memory_pages), Some(4));
        assert_eq!(curve.memory_for(0.95).map(|point| point.memory_pages), Some(1));
        assert_eq!(curve.memory_for(0.1), None);
        assert_eq!((curve.at(0), curve.at(1), curve.at(99)), (1.0, 0.9, 0.3));
    }
}
