//! Zipf-distributed draws from a table of cumulative integer weights.
//!
//! Rank i, from 0, has the weight floor(2^40 / (i+1)^theta). A draw is the smallest rank whose cumulative weight is
//! above a uniform number below the total. Where theta is a multiple of 1/5, the power is built from a fifth root by
//! Newton iteration and repeated multiplication. That takes only IEEE additions, multiplications and divisions, so the
//! table is the same on every machine. For other exponents it comes from `powf`, whose last bit may differ between
//! mathematical libraries.
//!
//! A guide table finds the rank: the range of draws is cut into equal buckets, each knows the first rank that reaches
//! into it. Most draws are decided by one look at the guide and one or two at the weights; the result is exactly that
//! of a binary search. Cost: 8 bytes per rank and 4 per bucket, with 2 to 4 buckets per rank.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::spec::Exponent;

const UNIT: f64 = (1u64 << 40) as f64;
/// Draws looked up together.
pub(crate) const BATCH: usize = 64;
/// Ranks weighed together.
const LANES: usize = 8;

/// Ranks below a number, drawn by their weight.
pub(crate) struct ZipfTable {
    /// Sum of the weights up to each rank.
    cumulative: Vec<u64>,
    /// First rank with a cumulative weight above the bucket's start; one more entry than buckets.
    guide: Vec<u32>,
    shift: u32,
}

/// Tables in use. Several tasks of one simulation draw from the same distribution with different seeds: one table for
/// all is built once and stays in the cache.
static SHARED: Mutex<Vec<(u32, Exponent, Weak<ZipfTable>)>> = Mutex::new(Vec::new());

impl ZipfTable {
    /// The table of that many ranks, the one in use if there is one. `None` as for [`ZipfTable::new`].
    pub(crate) fn shared(ranks: u32, theta: Exponent) -> Option<Arc<ZipfTable>> {
        let tables = || SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let in_use = |(r, t, table): &(u32, Exponent, Weak<ZipfTable>)| {
            if (*r, *t) == (ranks, theta) { table.upgrade() } else { None }
        };
        if let Some(table) = tables().iter().find_map(in_use) {
            return Some(table);
        }
        // Built without the lock: two of a kind do no harm, and others need not wait.
        let table = Arc::new(ZipfTable::new(ranks, theta)?);
        let mut tables = tables();
        tables.retain(|(_, _, table)| table.strong_count() > 0);
        tables.push((ranks, theta, Arc::downgrade(&table)));
        Some(table)
    }

    /// `None` if the weights add up to 2^64 or more, or none is positive.
    pub(crate) fn new(ranks: u32, theta: Exponent) -> Option<ZipfTable> {
        let mut cumulative = Vec::with_capacity(ranks as usize);
        let mut sum = 0u64;
        for first in (0..ranks).step_by(LANES) {
            for weight in weights(first, theta).into_iter().take((ranks - first) as usize) {
                sum = sum.checked_add(weight)?;
                cumulative.push(sum);
            }
        }
        if sum == 0 {
            return None;
        }
        let (guide, shift) = guide(&cumulative);
        Some(ZipfTable { cumulative, guide, shift })
    }

    /// Sum of all weights: draws are below it.
    #[inline]
    pub(crate) fn total(&self) -> u64 {
        self.cumulative[self.cumulative.len() - 1]
    }

    /// The rank of a draw below [`ZipfTable::total`].
    #[inline]
    pub(crate) fn rank(&self, draw: u64) -> u32 {
        let (low, high) = self.bounds(draw);
        self.rank_between(draw, low, high)
    }

    /// The ranks of many draws; faster than one by one because the look-ups of a step overlap.
    #[inline]
    pub(crate) fn ranks(&self, draws: &[u64; BATCH], ranks: &mut [u32; BATCH]) {
        let bounds = draws.map(|draw| self.bounds(draw));
        let touched = bounds.iter().fold(0, |touched, (low, _)| touched ^ self.cumulative[*low as usize]);
        std::hint::black_box(touched);
        for ((rank, draw), (low, high)) in ranks.iter_mut().zip(draws).zip(bounds) {
            *rank = self.rank_between(*draw, low, high);
        }
    }

    /// The lowest and the highest rank a draw can have, going by the guide.
    #[inline]
    fn bounds(&self, draw: u64) -> (u32, u32) {
        let bucket = (draw >> self.shift) as usize;
        (self.guide[bucket], self.guide[bucket + 1])
    }

    #[inline]
    fn rank_between(&self, draw: u64, mut low: u32, mut high: u32) -> u32 {
        /// Beyond this many ranks in a bucket, halving beats walking.
        const WALK: u32 = 8;
        if high - low <= 1 {
            // The common case without a branch that depends on the draw.
            return low + u32::from(self.cumulative[low as usize] <= draw);
        }
        while high - low > WALK {
            let middle = low + (high - low) / 2;
            if self.cumulative[middle as usize] > draw {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        while low < high && self.cumulative[low as usize] <= draw {
            low += 1;
        }
        low
    }
}

/// The weights of ranks `first..first + LANES`.
fn weights(first: u32, theta: Exponent) -> [u64; LANES] {
    let k: [f64; LANES] = std::array::from_fn(|lane| f64::from(first) + lane as f64 + 1.0);
    let power = match theta {
        Exponent::Fifths(0) => [1.0; LANES],
        Exponent::Fifths(5) => k,
        Exponent::Fifths(fifths) => {
            let root = fifth_roots(k);
            (0..fifths).fold([1.0; LANES], |power, _| std::array::from_fn(|lane| power[lane] * root[lane]))
        }
        Exponent::Real(theta) => k.map(|k| k.powf(theta)),
    };
    power.map(|power| (UNIT / power) as u64)
}

/// Newton's iteration from above; each lane stops at its first step that does not decrease. The lanes do not depend on
/// each other, so that their long divisions overlap.
fn fifth_roots(x: [f64; LANES]) -> [f64; LANES] {
    let mut y = x;
    loop {
        let mut moved = false;
        for lane in 0..LANES {
            let y2 = y[lane] * y[lane];
            let y4 = y2 * y2;
            let next = y[lane] - (y4 * y[lane] - x[lane]) / (5.0 * y4);
            let decreases = next < y[lane];
            y[lane] = if decreases { next } else { y[lane] };
            moved |= decreases;
        }
        if !moved {
            return y;
        }
    }
}

/// For each bucket of draws the smallest rank whose cumulative weight is above the bucket's first draw.
fn guide(cumulative: &[u64]) -> (Vec<u32>, u32) {
    let last = cumulative[cumulative.len() - 1] - 1;
    let bits = (cumulative.len() as u64 * 2).next_power_of_two().trailing_zeros();
    let shift = (64 - last.leading_zeros()).saturating_sub(bits);
    let buckets = (last >> shift) + 1;
    let mut guide = Vec::with_capacity(buckets as usize + 1);
    let mut rank = 0u32;
    for bucket in 0..buckets {
        let start = bucket << shift;
        while cumulative[rank as usize] <= start {
            rank += 1;
        }
        guide.push(rank);
    }
    // The last bucket ends at the first rank that holds the last draw; later ones have no weight.
    while cumulative[rank as usize] <= last {
        rank += 1;
    }
    guide.push(rank);
    (guide, shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_binary_search(cumulative: &[u64], draw: u64) -> u32 {
        cumulative.partition_point(|sum| *sum <= draw) as u32
    }

    #[test]
    fn guide_agrees_with_binary_search_everywhere_it_matters() {
        for ranks in [1, 2, 3, 7, 100, 5000] {
            for theta in [0.0, 0.5, 0.8, 1.0, 1.2, 3.0, 9.9] {
                let table = ZipfTable::new(ranks, Exponent::new(theta)).expect("small enough");
                let around = |x: u64| [x.saturating_sub(1), x, x + 1];
                let step = (table.total() / 1009).max(1);
                let draws = table.cumulative.iter().flat_map(|sum| around(*sum)).chain((0..1009).map(|i| i * step));
                for draw in draws.filter(|draw| *draw < table.total()) {
                    assert_eq!(table.rank(draw), by_binary_search(&table.cumulative, draw), "{ranks} {theta} {draw}");
                }
            }
        }
    }

    #[test]
    fn tables_in_use_are_shared_and_others_are_not() {
        let theta = Exponent::new(0.7);
        let table = ZipfTable::shared(777, theta).expect("small enough");
        assert!(Arc::ptr_eq(&table, &ZipfTable::shared(777, theta).expect("in use")));
        let other = ZipfTable::shared(778, theta).expect("small enough");
        assert_eq!((table.cumulative.len(), other.cumulative.len()), (777, 778));
    }

    #[test]
    fn fifth_roots_are_roots() {
        let x = [1.0, 2.0, 31.0, 32.0, 243.0, 1e6, 4e9, 7.0];
        for (x, root) in x.into_iter().zip(fifth_roots(x)) {
            assert!((root.powi(5) / x - 1.0).abs() < 1e-14, "{x}: {root}");
        }
    }

    #[test]
    fn weights_that_do_not_fit_are_refused() {
        assert!(ZipfTable::new(1 << 24, Exponent::Fifths(0)).is_none());
        assert!(ZipfTable::new(1 << 20, Exponent::Fifths(0)).is_some());
    }
}
