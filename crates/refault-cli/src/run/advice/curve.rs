//! `refault run --curve`: how many pages would come back with less memory, of a run that lacks none.
//!
//! The agents look at a sample of the pages ([`Looks`]). Of what they see accessed, LRU's misses at every size are exact
//! ([`refault_trace::reuse`]); those of first touches do not count. `refault size` reads it from `--summary`.
//!
//! Its error: a page counts once per look. Freed memory that is made anew counts as the same, so a size is rather too
//! large, and `refault size` bounds it by the peak. Invariant: the pages that are known are bounded; of more there is
//! no curve. Cost: in the program what [`MAX_CPU`] allows; here some fifty bytes per page of the sample.

use std::collections::HashMap;

use refault_console::Failure;
use refault_paging::{PAGE, Shared};
use refault_trace::reuse::{DistanceHistogram, ReuseDistances};

use super::super::looks::{Looks, Sample};
use crate::launch::Launch;

/// One page in sixteen is looked at: of 16 MiB that is enough for a 16th, and what looks cost is not felt.
const SHIFT: u32 = 4;
/// The share of one processor that looks may cost.
const MAX_CPU: f64 = 0.02;
/// Pages of the sample that are known: more than 64 GiB have.
const MAX_KNOWN: usize = 1 << 20;
/// Sizes that are told of.
const POINTS: u64 = 128;

/// See the module.
pub(crate) struct Curve {
    looks: Looks,
    reuse: Reuse,
    /// Bytes that are the tool's, at most.
    own_bytes: u64,
}

impl Curve {
    /// Has the agents of a program that is about to be started look, at least `interval_ms` apart.
    ///
    /// # Errors
    /// A file cannot be had.
    pub(crate) fn of(launch: &mut Launch, interval_ms: u64) -> Result<Curve, Failure> {
        let looks = Looks::of(launch, Sample { shift: SHIFT, interval_ms, most_cpu: MAX_CPU })?;
        Ok(Curve { looks, reuse: Reuse::default(), own_bytes: 0 })
    }

    /// Takes up what agents have said since the last call. The command has `own_bytes`.
    pub(crate) fn look(&mut self, shared: &Shared, own_bytes: u64) {
        let Curve { looks, reuse, .. } = self;
        looks.take(|piece| {
            piece.touches().for_each(|(page, _)| reuse.accessed((piece.pid, piece.birth, page)));
        });
        let agents: u64 = shared.living().map(|(_, figures)| figures.usage.load().own_bytes).sum();
        self.own_bytes = self.own_bytes.max(agents + own_bytes);
    }

    /// Bytes, and the pages that would come back with them; the smallest first.
    pub(crate) fn points(&self) -> Vec<[u64; 2]> {
        let own = self.own_bytes;
        self.reuse
            .points()
            .into_iter()
            .map(|[pages, back]| [own + (pages << SHIFT) * PAGE as u64, back << SHIFT])
            .collect()
    }
}

/// Distances of the sample's accesses.
struct Reuse {
    /// By process, its birth and the page's number.
    known: HashMap<(u64, u64, u64), u32>,
    distances: ReuseDistances,
    histogram: DistanceHistogram,
}

impl Default for Reuse {
    fn default() -> Reuse {
        Reuse { known: HashMap::new(), distances: ReuseDistances::new(0), histogram: DistanceHistogram::new() }
    }
}

impl Reuse {
    fn accessed(&mut self, page: (u64, u64, u64)) {
        if self.known.len() >= MAX_KNOWN {
            return;
        }
        let next = self.known.len() as u32;
        let id = *self.known.entry(page).or_insert(next);
        self.histogram.record(self.distances.access(id));
    }

    /// Sizes, and what LRU would miss beyond first touches.
    fn points(&self) -> Vec<[u64; 2]> {
        let pages = self.known.len() as u64;
        if self.known.len() >= MAX_KNOWN || pages == 0 {
            return Vec::new();
        }
        let mut sizes: Vec<u64> = (0..=POINTS).map(|point| pages * point / POINTS).collect();
        sizes.dedup();
        let back = self.histogram.lru_misses(&sizes).into_iter().map(|misses| misses - self.histogram.cold());
        sizes.iter().copied().zip(back).map(|(size, back)| [size, back]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_comes_back_until_all_of_it_fits() {
        let mut reuse = Reuse::default();
        assert!(reuse.points().is_empty());
        // 256 pages in turn five times, beside 256 that are touched once.
        (0..256).for_each(|page| reuse.accessed((8, 1, page)));
        (0..5 * 256).for_each(|access| reuse.accessed((7, 1, access % 256)));
        let points = reuse.points();
        let back = |pages: u64| points.iter().find(|[size, _]| *size >= pages).expect("a size")[1];
        assert_eq!((points[0], points.last()), ([0, 1024], Some(&[512, 0])));
        assert_eq!((back(252), back(256)), (1024, 0));
    }
}
