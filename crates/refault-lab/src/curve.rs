//! Miss-ratio curves: how many accesses miss at each memory size, and the answers people read off them.
//!
//! LRU's curve is exact at every size from one pass (reuse distances); those of other policies are simulated at the
//! sizes asked for. The *knee* is where more memory stops paying. Memory is taken in parts of the footprint, and the
//! miss ratio scaled so that no memory is 1 and the whole footprint is 0. The knee is the point of the curve farthest
//! below the straight line between those two ends. (Satopää et al., *Finding a "Kneedle" in a Haystack*, ICDCS
//! Workshops 2011.)
//!
//! ```
//! use refault_lab::curve::lru_curve;
//! use refault_trace::Source;
//!
//! let source = Source::workload("cyclic:pages=100,accesses=1000".parse()?);
//! let curves = lru_curve(&source, 2, &())?;
//! assert_eq!(curves.curves[0].at(99), 1.0); // a loop over 100 pages: 99 never help
//! assert_eq!(curves.curves[0].at(100), 0.1);
//! # Ok::<(), refault_lab::LabError>(())
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use refault_trace::page_ids::LooseIds;
use refault_trace::reuse::{DistanceHistogram, ReuseDistances};
use refault_trace::reuse_parts::{JoinedParts, Part};
use refault_trace::shards::{PageSample, SampledCurve, Shards};
use refault_trace::{BLOCK_ENTRIES, Entry, Reading};

use crate::error::LabError;
use crate::progress::Progress;
use crate::size::Size;
use crate::source::{KeptSample, SampledSource, Source, TraceReader};
use crate::sweep::{Sweep, TraceRuns, run_all};
use refault_core::policy::registry::{Fact, PolicySpec};

/// The misses at one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Pages that may be resident.
    pub memory_pages: u64,
    /// Misses in accesses, 0 to 1.
    pub miss_ratio: f64,
    /// How far off the ratio may be, if it is an estimate: the standard error of the mean of several samples.
    pub standard_error: Option<f64>,
}

/// A sample of the pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The part of the pages in each sample, above 0 and at most 1.
    pub rate: f64,
    /// Chooses the samples.
    pub seed: u64,
}

/// The highest rate at which sampling LRU is faster than its exact curve.
pub const MAX_LRU_RATE: f64 = 0.05;

/// Accesses of a part of a trace, at least: 16 MiB of page ids.
const MIN_PART_ACCESSES: usize = 1 << 22;
/// Accesses of a part for each page id, at least.
const ACCESSES_PER_ID: usize = 2;

/// Sizes of a curve if none are named, see [`default_sizes`].
const SIZES: u32 = 32;
const MIN_SHARE: f64 = 1.0 / 128.0;

/// The sizes of a curve if none are named, in pages, ascending: from 1/128 of the footprint to all of it, in equal
/// factors.
pub fn default_sizes(footprint: u64) -> Vec<u64> {
    let factor = |step: u32| MIN_SHARE.powf(f64::from(SIZES - 1 - step) / f64::from(SIZES - 1));
    let mut sizes: Vec<u64> =
        (0..SIZES).map(|step| ((footprint as f64 * factor(step)).round() as u64).max(1)).collect();
    sizes.dedup();
    sizes
}

/// Samples drawn, whose spread gives the standard error.
pub const SAMPLES: u64 = 4;

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
    /// What was left out or assumed, and what objects were taken for.
    pub reading: Reading,
    /// How the pages were sampled; `None` if nothing is estimated.
    pub sampling: Option<Sampling>,
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

    /// The standard error at a size, if the curve is an estimate.
    pub fn standard_error_at(&self, memory_pages: u64) -> Option<f64> {
        let known = self.points.partition_point(|point| point.memory_pages <= memory_pages);
        known.checked_sub(1).and_then(|at| self.points[at].standard_error)
    }

    /// The ratio at a size: that of the largest known size which is not larger; 1 without memory.
    pub fn at(&self, memory_pages: u64) -> f64 {
        let known = self.points.partition_point(|point| point.memory_pages <= memory_pages);
        known.checked_sub(1).map_or(1.0, |at| self.points[at].miss_ratio)
    }
}

/// Which curves to draw of a trace.
#[derive(Clone, Debug)]
pub struct CurvePlan {
    /// The policies, in the order of the curves.
    pub policies: Vec<PolicySpec>,
    /// Estimate from samples instead of reading every access.
    pub sampling: Option<Sampling>,
    /// Threads for policies that are simulated.
    pub jobs: usize,
    /// Bytes that simulations running together may need.
    pub memory_budget: u64,
}

/// The curves of a trace: LRU's from one pass of reuse distances, which also finds the footprint. The others come from
/// simulation at the sizes that `sizes` answers for a footprint (both in pages, ascending).
///
/// # Errors
/// The trace cannot be read or is empty, or a sample holds no page.
pub fn curves(
    source: &Source,
    plan: &CurvePlan,
    sizes: impl Fn(u64) -> Vec<u64>,
    progress: &dyn Progress,
) -> Result<TraceCurves, LabError> {
    // Four samples with a look-up for each access cost more than the exact curve above this rate.
    let sampled_lru = plan.sampling.filter(|sampling| sampling.rate <= MAX_LRU_RATE);
    let plan_sampling = plan.sampling.filter(|sampling| sampling.rate * (SAMPLES as f64) < 1.0);
    let mut curves = match sampled_lru {
        None => lru_curve(source, plan.jobs, progress)?,
        Some(sampling) => sampled_lru_curve(source, sampling, &sizes, progress)?,
    };
    let simulated: Vec<PolicySpec> = plan.policies.iter().filter(|spec| !spec.entry.is(Fact::Stack)).cloned().collect();
    if !simulated.is_empty() {
        let sizes = sizes(curves.distinct_pages);
        let scaled = |pages: u64| match plan_sampling {
            None => pages,
            Some(sampling) => ((pages as f64 * sampling.rate).round() as u64).max(1),
        };
        let policies = match plan_sampling {
            None => simulated,
            Some(sampling) => simulated.iter().map(|spec| spec.in_miniature(sampling.rate)).collect(),
        };
        let sweep = Sweep {
            jobs: plan.jobs,
            memory_budget: plan.memory_budget,
            ..Sweep::new(policies, sizes.iter().map(|pages| Size::Pages(scaled(*pages))).collect())
        };
        curves.sampling = curves.sampling.or(plan_sampling);
        let simulated = match plan_sampling {
            None => simulated_curves(&run_all(std::slice::from_ref(source), &sweep, progress)?[0]),
            Some(sampling) => {
                let sample = |index| PageSample::new(sampling.rate, sampling.seed, index);
                let samples: Vec<PageSample> = (0..SAMPLES).map(sample).collect();
                // One pass instead of two for each sample, where they fit.
                let runs = match KeptSample::of(source, &samples, plan.memory_budget / 4, progress)? {
                    Some(kept) => run_all(&kept, &sweep, progress)?,
                    None => {
                        let read = |sample| SampledSource { source: source.clone(), sample };
                        run_all(&samples.into_iter().map(read).collect::<Vec<_>>(), &sweep, progress)?
                    }
                };
                miniature_curves(&runs, &sizes, curves.accesses, sampling.rate)
            }
        };
        curves.curves.extend(simulated);
    }
    let order = |curve: &Curve| plan.policies.iter().position(|spec| spec.label == curve.policy);
    curves.curves.retain(|curve| order(curve).is_some());
    curves.curves.sort_by_key(|curve| order(curve));
    Ok(curves)
}

/// LRU's exact curve, and what the pass saw: accesses and distinct pages. With more than one of `jobs`, parts of the
/// trace are worked on side by side; the curve does not depend on it.
pub fn lru_curve(source: &Source, jobs: usize, progress: &dyn Progress) -> Result<TraceCurves, LabError> {
    let reader = source.open()?;
    progress.add(reader.total().unwrap_or(0));
    let mut pages = PageReader { reader, ids: LooseIds::new(), entries: Vec::new(), name: source.name() };
    let start = Instant::now();
    let histogram =
        if jobs > 1 { side_by_side(&mut pages, jobs, progress)? } else { one_after_the_other(&mut pages, progress)? };
    let wall = start.elapsed();
    let accesses = histogram.accesses();
    if accesses == 0 {
        return Err(LabError::request("trace is empty", source.name(), "a trace has at least one access"));
    }
    Ok(TraceCurves {
        trace: source.name(),
        accesses,
        distinct_pages: histogram.cold(),
        reading: Reading::of(&*pages.reader),
        sampling: None,
        curves: vec![Curve { policy: "lru".into(), points: points_of(&histogram), complete: true, wall }],
    })
}

/// The pages of a trace, by number.
struct PageReader {
    reader: Box<dyn TraceReader>,
    ids: LooseIds,
    entries: Vec<Entry>,
    /// Of the trace.
    name: String,
}

impl PageReader {
    /// Appends the pages of the next block to `pages`. False at the end.
    fn append(&mut self, pages: &mut Vec<u32>, progress: &dyn Progress) -> Result<bool, LabError> {
        let block = self.reader.next_block(&mut self.entries)?;
        for entry in block {
            let id = self.ids.id(*entry).ok_or_else(|| {
                LabError::request("trace too large", &self.name, "it has more than 4 billion pages; use --sample")
            })?;
            pages.push(id);
        }
        progress.advance(block.len() as u64);
        if progress.is_cancelled() {
            return Err(LabError::Cancelled);
        }
        Ok(!block.is_empty())
    }
}

fn one_after_the_other(reader: &mut PageReader, progress: &dyn Progress) -> Result<DistanceHistogram, LabError> {
    let (mut distances, mut histogram) = (ReuseDistances::new(0), DistanceHistogram::new());
    let (mut pages, mut found) = (Vec::new(), Vec::new());
    while reader.append(&mut pages, progress)? {
        distances.access_all(&pages, &mut found);
        found.iter().for_each(|distance| histogram.record(*distance));
        pages.clear();
    }
    Ok(histogram)
}

/// This thread reads parts and joins them; the work on each has a thread of its own, `jobs` at a time.
fn side_by_side(reader: &mut PageReader, jobs: usize, progress: &dyn Progress) -> Result<DistanceHistogram, LabError> {
    let mut joined = JoinedParts::default();
    std::thread::scope(|scope| {
        let mut under_way = VecDeque::new();
        let mut more = true;
        while more || !under_way.is_empty() {
            if more {
                let mut pages = Vec::with_capacity(MIN_PART_ACCESSES + BLOCK_ENTRIES);
                // A part has a table of all pages.
                let enough = |pages: &Vec<u32>, ids: usize| pages.len() >= MIN_PART_ACCESSES.max(ids * ACCESSES_PER_ID);
                while more && !enough(&pages, reader.ids.end()) {
                    more = reader.append(&mut pages, progress)?;
                }
                let ids = reader.ids.end();
                under_way.push_back(scope.spawn(move || Part::new(&pages, ids)));
            }
            if under_way.len() > jobs || !more {
                let part = under_way.pop_front().map(|part| part.join().expect("invariant: no part panics"));
                part.iter().for_each(|part| joined.append(part));
            }
        }
        Ok(joined.into_histogram())
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
            points.push(Point {
                memory_pages: distance as u64 + 1,
                miss_ratio: misses as f64 / accesses as f64,
                standard_error: None,
            });
        }
    }
    if points.is_empty() {
        points.push(Point { memory_pages: 1, miss_ratio: 1.0, standard_error: None });
    }
    points
}

/// LRU's curve estimated from samples (SHARDS), at sizes that are chosen when the footprint, an estimate too, is known.
pub fn sampled_lru_curve(
    source: &Source,
    sampling: Sampling,
    sizes: impl Fn(u64) -> Vec<u64>,
    progress: &dyn Progress,
) -> Result<TraceCurves, LabError> {
    let start = Instant::now();
    let (curve, reading) = draw(source, Shards::new(sampling.rate, SAMPLES as usize, sampling.seed), progress)?;
    let curves = curve_of_samples(source.name(), sampling, &curve, sizes, start.elapsed())?;
    Ok(TraceCurves { reading, ..curves })
}

/// One of `parts` parts, without a page in common, of a sample of a trace's pages: what a machine does whose fellows
/// draw the other parts. [`curve_of_samples`] makes a curve of all of them. Cost: a pass over the trace, and memory for this
/// part's pages only. With it comes what was left out or assumed.
///
/// # Errors
/// The trace cannot be read, or it was cancelled.
pub fn draw_part(
    source: &Source,
    sampling: Sampling,
    part: u32,
    parts: u32,
    progress: &dyn Progress,
) -> Result<(SampledCurve, Reading), LabError> {
    let sample = PageSample::parts(sampling.rate, sampling.seed, parts).nth(part as usize);
    draw(source, Shards::of(sampling.rate / f64::from(parts.max(1)), sample), progress)
}

fn draw(source: &Source, mut shards: Shards, progress: &dyn Progress) -> Result<(SampledCurve, Reading), LabError> {
    let mut reader = source.open()?;
    progress.add(reader.total().unwrap_or(0));
    let mut entries = Vec::new();
    loop {
        let block = reader.next_block(&mut entries)?;
        if block.is_empty() {
            return Ok((shards.finish(), Reading::of(&*reader)));
        }
        shards.observe(block);
        progress.advance(block.len() as u64);
        if progress.is_cancelled() {
            return Err(LabError::Cancelled);
        }
    }
}

/// LRU's curve from samples that were drawn, at sizes that are chosen when the footprint, an estimate too, is known.
///
/// # Errors
/// A sample holds no page.
pub fn curve_of_samples(
    trace: String,
    sampling: Sampling,
    drawn: &SampledCurve,
    sizes: impl Fn(u64) -> Vec<u64>,
    wall: Duration,
) -> Result<TraceCurves, LabError> {
    let accesses = drawn.accesses();
    // What misses at any size are the first touches, of which there is one per page.
    let distinct_pages = (drawn.miss_ratios(&[u64::MAX])[0].miss_ratio * accesses as f64).round() as u64;
    if drawn.sampled_accesses().contains(&0) || distinct_pages == 0 {
        let what = format!("{trace} at {}", sampling.rate);
        return Err(LabError::request("a sample has no page", what, "raise --sample"));
    }
    let sizes = sizes(distinct_pages);
    let points = sizes.iter().zip(drawn.miss_ratios(&sizes)).map(|(memory_pages, estimate)| Point {
        memory_pages: *memory_pages,
        miss_ratio: estimate.miss_ratio,
        standard_error: estimate.standard_error,
    });
    let curve = Curve { policy: "lru".into(), points: points.collect(), complete: false, wall };
    let reading = Reading::default();
    Ok(TraceCurves { trace, accesses, distinct_pages, reading, sampling: Some(sampling), curves: vec![curve] })
}

/// Curves of simulated policies from miniature simulations: each sample of the pages runs in memory as much smaller as
/// the sample is (Waldspurger, Saemundsson, Ahmad and Park, USENIX ATC 2017). `samples` has one sweep per sample, whose
/// sizes are those of `sizes` scaled down; misses are related to the accesses a sample should have had, as SHARDS does.
pub fn miniature_curves(samples: &[TraceRuns], sizes: &[u64], accesses: u64, rate: f64) -> Vec<Curve> {
    let expected = accesses as f64 * rate;
    let Some(first) = samples.first() else { return Vec::new() };
    let policies = first.runs.chunks(sizes.len());
    policies
        .enumerate()
        .map(|(policy, runs)| {
            let points = sizes.iter().enumerate().map(|(size, memory_pages)| {
                let run = |sample: &TraceRuns| sample.runs[policy * sizes.len() + size].outcome.misses as f64;
                let ratios: Vec<f64> = samples.iter().map(|sample| (run(sample) / expected).min(1.0)).collect();
                let (miss_ratio, standard_error) = mean_and_error(&ratios);
                Point { memory_pages: *memory_pages, miss_ratio, standard_error }
            });
            Curve {
                policy: runs[0].policy.clone(),
                points: points.collect(),
                complete: false,
                wall: samples
                    .iter()
                    .flat_map(|sample| &sample.runs[policy * sizes.len()..][..sizes.len()])
                    .map(|run| run.wall)
                    .sum(),
            }
        })
        .collect()
}

/// The mean, and its standard error if there is more than one value.
fn mean_and_error(values: &[f64]) -> (f64, Option<f64>) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (values.len() > 1).then(|| (squares / (count - 1.0) / count).sqrt()))
}

/// The curves of simulated policies.
pub fn simulated_curves(runs: &TraceRuns) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for run in &runs.runs {
        let point = Point { memory_pages: run.memory_pages, miss_ratio: run.miss_ratio(), standard_error: None };
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
        let points = points.iter().map(|(memory_pages, miss_ratio)| Point {
            memory_pages: *memory_pages,
            miss_ratio: *miss_ratio,
            standard_error: None,
        });
        Curve { policy: "p".into(), points: points.collect(), complete: true, wall: Duration::ZERO }
    }

    #[test]
    fn the_knee_is_farthest_below_the_line() {
        // Footprint 100 pages, first touches 0.1: (20, 0.28) is scaled to (0.2, 0.2), 0.6 below the line.
        let curve = curve(&[(10, 0.7), (20, 0.28), (50, 0.2), (100, 0.1)]);
        assert_eq!(curve.knee(100, 0.1).map(|point| point.memory_pages), Some(20));
    }

    #[test]
    fn the_error_of_a_mean_shrinks_with_the_root_of_the_count() {
        assert_eq!(mean_and_error(&[1.0]), (1.0, None));
        assert_eq!(mean_and_error(&[1.0, 3.0]), (2.0, Some(1.0)));
        assert_eq!(mean_and_error(&[1.0, 3.0, 1.0, 3.0]).1, Some((4.0f64 / 3.0 / 4.0).sqrt()));
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
