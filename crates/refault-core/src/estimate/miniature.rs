//! What a policy must answer for the estimator: one call per sampled access, for all sizes of the cache at once.
//!
//! Whether an object is in the cache of each size is one bit of a mask. So a hit at every size costs what a hit at one
//! costs. Room is made before an object comes in, as a cache makes it; an object that is larger than the whole cache
//! never comes in.

use super::lists::Id;

/// One bit per size of the cache.
pub(super) type Mask = u16;
/// Sizes that can be asked about.
pub(super) const MAX_SIZES: usize = Mask::BITS as usize;

/// The sizes of the cache.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// In bytes, as asked about.
    pub(super) whole: Vec<u64>,
    /// The share of the sample.
    pub(super) scaled: Vec<u64>,
    /// A bit for each.
    pub(super) all: Mask,
}

impl Room {
    pub(super) fn new(whole: &[u64]) -> Room {
        let all = whole.iter().fold(0, |all: Mask, _| all << 1 | 1);
        Room { whole: whole.to_vec(), scaled: whole.to_vec(), all }
    }

    /// Caches as much smaller as the sample is; one of a byte stays one of a byte.
    pub(super) fn scale(&mut self, rate: f64) {
        let scale = |whole: &u64| ((*whole as f64 * rate).round() as u64).clamp((*whole).min(1), *whole);
        self.scaled = self.whole.iter().map(scale).collect();
    }
}

/// A policy over the sample, at each size of the cache.
pub(super) trait Miniature: Send {
    /// Objects have numbers up to this one from now on.
    fn grow(&mut self, objects: usize);

    /// An object was asked for; the sizes at which it was not in the cache. `sizes` are the objects' by number.
    fn access(&mut self, id: Id, sizes: &[u64], room: &Room) -> Mask;

    /// Whether anything is known of an object.
    fn holds(&self, id: Id) -> bool;

    /// Forgets the objects that are not kept, by number. What is too much for smaller caches goes with the next miss.
    fn retain(&mut self, kept: &[bool], sizes: &[u64]);

    /// An object that may be held has another size from now on. What does not fit any more goes with the next miss.
    fn resize(&mut self, id: Id, from: u64, to: u64);

    /// Bytes of memory.
    fn footprint(&self) -> usize;
}

/// The numbers of the bits that are set.
#[inline]
pub(super) fn bits(mut mask: Mask) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (mask != 0).then(|| mask.trailing_zeros() as usize);
        mask &= mask.wrapping_sub(1);
        bit
    })
}
