//! Miss-ratio curves from a sample of the pages (SHARDS: Waldspurger, Park, Garthwaite and Ahmad, FAST 2015).
//!
//! A page is in the sample if the hash of its number is below a threshold, so either all its accesses are or none.
//! Among sampled pages, reuse distances are smaller by the sampling rate; so is the number of accesses, give or take
//! which pages the sample happens to hold. That last error is corrected as the paper does: accesses missing from the
//! expected number, or beyond it, are taken for hits at the smallest distance.
//!
//! How good the estimate is, is measured rather than assumed. Several samples are drawn in the same pass, by hashes
//! that do not depend on each other. Their spread gives the standard error of their mean.
//!
//! Cost: a hash per access and sample; the exact engine's cost for each sampled access; memory in proportion to the
//! rate.
//!
//! ```
//! use refault_trace::shards::PageSample;
//! use refault_trace::{Entry, Kind};
//!
//! let sample = PageSample::new(0.1, 1, 0);
//! let taken = (0..10_000).filter(|page| sample.contains(Entry::new(*page, Kind::Anon, false))).count();
//! assert!((800..1200).contains(&taken));
//! ```

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::page_ids::MAX_PAGES;
use crate::reuse::{DistanceHistogram, ReuseDistances};
use crate::{Entry, Kind};

/// An estimated LRU miss ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Misses by accesses, from 0 to 1: the mean over the samples.
    pub miss_ratio: f64,
    /// Standard error of the mean, from the samples' spread; `None` for a single sample.
    pub standard_error: Option<f64>,
}

/// Which pages are in a sample, by the hash of their number: all accesses to a page are, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSample {
    salt: u64,
    /// The sample holds the hashes from here on …
    lowest: u64,
    /// … up to `lowest` plus this, inclusive.
    threshold: u64,
}

impl PageSample {
    /// The sample of number `index` of about `rate` of the pages (above 0, at most 1). Samples of different numbers do
    /// not depend on each other; a seed gives the same ones every time.
    pub fn new(rate: f64, seed: u64, index: u64) -> PageSample {
        let rate = if rate > 0.0 { rate.min(1.0) } else { f64::MIN_POSITIVE };
        // The cast saturates: a rate of 1 takes every hash.
        PageSample { salt: hash(hash(seed) ^ index), lowest: 0, threshold: (rate * 2f64.powi(64)) as u64 }
    }

    /// A sample of about `rate` of the pages, cut by their hash into `parts` parts without a page in common: samples of
    /// `rate / parts` each that can be worked on by different machines. A seed gives the same ones every time.
    ///
    /// ```
    /// use refault_trace::shards::PageSample;
    /// use refault_trace::{Entry, Kind};
    ///
    /// let parts: Vec<PageSample> = PageSample::parts(1.0, 1, 4).collect();
    /// let holders = |page| parts.iter().filter(|part| part.contains(Entry::new(page, Kind::Anon, false))).count();
    /// assert!((0..1000).all(|page| holders(page) == 1));
    /// ```
    pub fn parts(rate: f64, seed: u64, parts: u32) -> impl Iterator<Item = PageSample> {
        let whole = PageSample::new(rate, seed, 0);
        let hashes = u128::from(whole.threshold) + 1;
        let from = move |part: u32| hashes * u128::from(part) / u128::from(parts.max(1));
        // A part without a hash holds none that occurs: there are 2^64 / parts, at least 2^32.
        (0..parts.max(1)).map(move |part| PageSample {
            lowest: from(part) as u64,
            threshold: (from(part + 1) - from(part)).saturating_sub(1) as u64,
            ..whole
        })
    }

    /// Whether an entry's page is in it.
    #[inline]
    pub fn contains(self, entry: Entry) -> bool {
        self.keeps(page_key(entry))
    }

    #[inline]
    fn keeps(self, key: u64) -> bool {
        hash(key ^ self.salt).wrapping_sub(self.lowest) <= self.threshold
    }
}

/// Page number and type.
#[inline]
fn page_key(entry: Entry) -> u64 {
    let file = u64::from(entry.kind() != Some(Kind::Anon));
    entry.page() | file << Entry::KIND_SHIFT
}

/// One sample of the pages.
struct Sample {
    pages: PageSample,
    ids: HashMap<u64, u32, FixedState>,
    reuse: ReuseDistances,
    histogram: DistanceHistogram,
}

/// Draws samples from a trace.
pub struct Shards {
    rate: f64,
    accesses: u64,
    samples: Vec<Sample>,
    /// Ids of the accesses of a block that are in a sample, and their distances.
    kept: Vec<u32>,
    distances: Vec<u32>,
}

impl Shards {
    /// `samples` samples (at least 1), each of about `rate` of the pages (above 0, at most 1). A seed gives the same
    /// samples every time.
    pub fn new(rate: f64, samples: usize, seed: u64) -> Shards {
        Shards::of(rate, (0..samples.max(1) as u64).map(|index| PageSample::new(rate, seed, index)))
    }

    /// These samples, each of about `rate` of the pages (above 0, at most 1).
    pub fn of(rate: f64, samples: impl IntoIterator<Item = PageSample>) -> Shards {
        let rate = if rate > 0.0 { rate.min(1.0) } else { f64::MIN_POSITIVE };
        let sample = |pages| Sample {
            pages,
            ids: HashMap::default(),
            reuse: ReuseDistances::new(0),
            histogram: DistanceHistogram::new(),
        };
        let samples = samples.into_iter().map(sample).collect();
        Shards { rate, accesses: 0, samples, kept: Vec::new(), distances: Vec::new() }
    }

    /// Looks at the next accesses. Pages of a sample beyond [`MAX_PAGES`] count as one.
    pub fn observe(&mut self, entries: &[Entry]) {
        self.accesses += entries.len() as u64;
        for sample in &mut self.samples {
            for entry in entries {
                let key = page_key(*entry);
                if sample.pages.keeps(key) {
                    let next = sample.ids.len().min(MAX_PAGES as usize - 1) as u32;
                    self.kept.push(*sample.ids.entry(key).or_insert(next));
                }
            }
            sample.reuse.access_all(&self.kept, &mut self.distances);
            self.distances.iter().for_each(|distance| sample.histogram.record(*distance));
            self.kept.clear();
        }
    }

    /// The curve.
    pub fn finish(self) -> SampledCurve {
        let histograms = self.samples.into_iter().map(|sample| sample.histogram).collect();
        SampledCurve { rate: self.rate, accesses: self.accesses, histograms }
    }
}

/// An LRU miss-ratio curve from samples.
pub struct SampledCurve {
    rate: f64,
    accesses: u64,
    histograms: Vec<DistanceHistogram>,
}

impl SampledCurve {
    /// Histograms of samples of `rate` each, of a trace of `accesses` accesses, wherever they were drawn.
    pub fn new(rate: f64, accesses: u64, histograms: Vec<DistanceHistogram>) -> SampledCurve {
        SampledCurve { rate, accesses, histograms }
    }

    /// The histograms, one per sample.
    pub fn into_histograms(self) -> Vec<DistanceHistogram> {
        self.histograms
    }

    /// Accesses of the whole trace.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Accesses in each sample.
    pub fn sampled_accesses(&self) -> Vec<u64> {
        self.histograms.iter().map(DistanceHistogram::accesses).collect()
    }

    /// The miss ratio of an LRU memory of each size, in pages; sizes must ascend. Sizes of few pages by the rate are
    /// coarse: a size of 1/rate pages is one page of the sample.
    pub fn miss_ratios(&self, memory_pages: &[u64]) -> Vec<Estimate> {
        let expected = self.accesses as f64 * self.rate;
        let scaled: Vec<u64> = memory_pages.iter().map(|pages| (*pages as f64 * self.rate).round() as u64).collect();
        let curves: Vec<Vec<f64>> = self
            .histograms
            .iter()
            .map(|histogram| {
                // The correction adds hits, so it changes the number of accesses but not that of misses.
                let misses = histogram.lru_misses(&scaled);
                misses.iter().map(|misses| (*misses as f64 / expected).clamp(0.0, 1.0)).collect()
            })
            .collect();
        let estimate = |size: usize| {
            let count = curves.len() as f64;
            let mean = curves.iter().map(|curve| curve[size]).sum::<f64>() / count;
            let squares: f64 = curves.iter().map(|curve| (curve[size] - mean).powi(2)).sum();
            let standard_error = (curves.len() > 1).then(|| (squares / (count - 1.0) / count).sqrt());
            Estimate { miss_ratio: if expected > 0.0 { mean } else { 0.0 }, standard_error }
        };
        (0..memory_pages.len()).map(estimate).collect()
    }
}

/// Spreads a number over 64 bits: the finaliser of MurmurHash3 (Appleby), in which every bit depends on every other.
#[inline]
const fn hash(x: u64) -> u64 {
    let x = (x ^ (x >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    let x = (x ^ (x >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    x ^ (x >> 33)
}
