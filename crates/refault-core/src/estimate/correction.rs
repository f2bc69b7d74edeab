//! From the misses in the sample to the misses of all accesses.
//!
//! An access in the sample counts as many times as the sample is small. Beside misses, accesses are counted and those
//! that are news ([`super::recent`]), twice: in the sample, where they are estimates too, and of all, where they are
//! known. Where the sample is short of them it is short of misses, by as much as they go together; that is found by
//! least squares over groups of the sampled objects. It is the regression estimator of survey sampling. SHARDS-adj,
//! which adds accesses that are missing as hits, corrects for hot objects only.
//!
//! Source: Cochran, *Sampling Techniques*, 3rd edition 1977, chapter 7; Waldspurger, Park, Garthwaite and Ahmad,
//! *Efficient MRC Construction with SHARDS*, FAST 2015, section 3.3.

use super::miniature::Mask;
use super::recent::TABLES;

/// Groups of objects.
pub(super) const GROUPS: usize = 128;
/// Part of its spread that must be left of what is known when what others explain is taken away.
const NEGLIGIBLE: f64 = 1e-9;

/// What is known of all accesses: their number, and the news to each table.
const KNOWN: usize = 1 + TABLES;

/// Sums of one kind, accesses or bytes.
pub(super) struct Sums {
    all: [f64; KNOWN],
    /// Estimates of the same from the sample, by group.
    sampled: Vec<[f64; KNOWN]>,
    /// Misses, by group and miniature.
    missed: Vec<f64>,
    miniatures: usize,
}

impl Sums {
    pub(super) fn new(miniatures: usize) -> Sums {
        let missed = vec![0.0; GROUPS * miniatures];
        Sums { all: [0.0; KNOWN], sampled: vec![[0.0; KNOWN]; GROUPS], missed, miniatures }
    }

    /// This much was asked for, in the sample or not.
    #[inline]
    pub(super) fn asked(&mut self, amount: f64, news: [bool; TABLES]) {
        add(&mut self.all, amount, news);
    }

    /// The same of the sample, where it stands for more.
    #[inline]
    pub(super) fn sampled(&mut self, group: usize, amount: f64, news: [bool; TABLES]) {
        add(&mut self.sampled[group], amount, news);
    }

    /// The miniatures from `first` on of which a bit is set missed it.
    #[inline]
    pub(super) fn missed(&mut self, group: usize, first: usize, sizes: usize, missed: Mask, amount: f64) {
        let sums = &mut self.missed[group * self.miniatures + first..][..sizes];
        for (size, sum) in sums.iter_mut().enumerate() {
            *sum += f64::from(missed >> size & 1) * amount;
        }
    }

    /// The estimated part of all that a miniature missed, 0 to 1.
    pub(super) fn miss_ratio(&self, miniature: usize) -> f64 {
        if self.all[0] == 0.0 { 0.0 } else { (self.misses(miniature) / self.all[0]).clamp(0.0, 1.0) }
    }

    fn misses(&self, miniature: usize) -> f64 {
        let missed = |group: usize| self.missed[group * self.miniatures + miniature];
        let total: f64 = (0..GROUPS).map(missed).sum();
        let estimated: [f64; KNOWN] = std::array::from_fn(|known| self.sampled.iter().map(|group| group[known]).sum());
        let mut equations = [[0.0; KNOWN + 1]; KNOWN];
        for (group, sums) in self.sampled.iter().enumerate() {
            let deviation = |known: usize| match known {
                KNOWN => missed(group) - total / GROUPS as f64,
                known => sums[known] - estimated[known] / GROUPS as f64,
            };
            for (row, equation) in equations.iter_mut().enumerate() {
                equation.iter_mut().enumerate().for_each(|(column, sum)| *sum += deviation(row) * deviation(column));
            }
        }
        // What misses nearly always goes with accesses, which hot objects make a bad guide elsewhere.
        let by_accesses = solve(equations, |known| known == 0);
        let by_news = solve(equations, |known| known != 0);
        let explained =
            |slopes: &[f64; KNOWN]| (0..KNOWN).map(|known| slopes[known] * equations[known][KNOWN]).sum::<f64>();
        let slopes = if explained(&by_accesses) > explained(&by_news) { by_accesses } else { by_news };
        (0..KNOWN).fold(total, |misses, known| misses + slopes[known] * (self.all[known] - estimated[known]))
    }

    /// Bytes of memory.
    pub(super) fn footprint(&self) -> usize {
        self.sampled.capacity() * size_of::<[f64; KNOWN]>() + self.missed.capacity() * size_of::<f64>()
    }
}

#[inline]
fn add(sums: &mut [f64; KNOWN], amount: f64, news: [bool; TABLES]) {
    sums[0] += amount;
    for (sum, news) in sums[1..].iter_mut().zip(news) {
        *sum += f64::from(u8::from(news)) * amount;
    }
}

/// The slopes of least squares on some of what is known, from its normal equations. What does not vary, or only as
/// those before it do, gets 0.
fn solve(mut equations: [[f64; KNOWN + 1]; KNOWN], is_used: impl Fn(usize) -> bool) -> [f64; KNOWN] {
    let spread: [f64; KNOWN] = std::array::from_fn(|known| equations[known][known]);
    for pivot in 0..KNOWN {
        if !is_used(pivot) || equations[pivot][pivot] <= NEGLIGIBLE * spread[pivot] {
            equations[pivot] = [0.0; KNOWN + 1];
            continue;
        }
        let line = equations[pivot].map(|value| value / equations[pivot][pivot]);
        for (row, equation) in equations.iter_mut().enumerate() {
            let factor = equation[pivot];
            if row == pivot {
                *equation = line;
            } else {
                equation.iter_mut().zip(line).for_each(|(value, of_line)| *value -= factor * of_line);
            }
        }
    }
    equations.map(|equation| equation[KNOWN])
}
