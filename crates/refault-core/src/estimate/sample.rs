//! The objects in the sample: those whose hash is below a threshold that falls when they become too many.

use super::lists::{Id, MAX_OBJECTS, NONE, STEP, grow};

/// See the module.
pub(super) struct Sample {
    /// The largest hash that is in the sample.
    threshold: u64,
    hashes: Vec<u64>,
    /// By number.
    pub(super) sizes: Vec<u64>,
    /// Numbers without an object.
    free: Vec<Id>,
    /// Open addressing with linear probing: the numbers of objects by their hash.
    table: Vec<Id>,
}

impl Sample {
    pub(super) fn new() -> Sample {
        Sample { threshold: u64::MAX, hashes: Vec::new(), sizes: Vec::new(), free: Vec::new(), table: vec![NONE; STEP] }
    }

    /// Part of all objects that is in the sample, above 0 to 1.
    pub(super) fn rate(&self) -> f64 {
        (self.threshold as f64 + 1.0) / 2f64.powi(64)
    }

    #[inline]
    pub(super) fn contains(&self, hash: u64) -> bool {
        hash <= self.threshold
    }

    #[inline]
    pub(super) fn find(&self, hash: u64) -> Option<Id> {
        let mut at = self.home(hash);
        loop {
            match self.table[at] {
                NONE => return None,
                id if self.hashes[usize::from(id)] == hash => return Some(id),
                _ => at = self.after(at),
            }
        }
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        hash as usize & (self.table.len() - 1)
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.table.len() - 1)
    }

    fn enter(&mut self, id: Id) {
        let mut at = self.home(self.hashes[usize::from(id)]);
        while self.table[at] != NONE {
            at = self.after(at);
        }
        self.table[at] = id;
    }

    /// Gives an object that has none a number, if one is free.
    pub(super) fn insert(&mut self, hash: u64, size: u64) -> Option<Id> {
        let id = self.free.pop()?;
        (self.hashes[usize::from(id)], self.sizes[usize::from(id)]) = (hash, size);
        self.enter(id);
        Some(id)
    }

    /// Keeps some objects; the numbers of the others become free.
    pub(super) fn retain(&mut self, is_kept: impl Fn(Id) -> bool) {
        let ids = self.ids();
        self.table.fill(NONE);
        for id in ids {
            if is_kept(id) { self.enter(id) } else { self.free.push(id) }
        }
    }

    /// All numbers with an object.
    fn ids(&self) -> Vec<Id> {
        self.table.iter().copied().filter(|id| *id != NONE).collect()
    }

    /// The hashes of all numbers.
    pub(super) fn hashes(&self) -> impl Iterator<Item = u64> {
        self.hashes.iter().copied()
    }

    /// Whether a new object needs more numbers.
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Numbers there are.
    pub(super) fn numbers(&self) -> usize {
        self.hashes.len()
    }

    /// Objects in it.
    pub(super) fn len(&self) -> usize {
        self.numbers() - self.free.len()
    }

    /// Makes more numbers; false if there are none.
    pub(super) fn grow(&mut self) -> bool {
        let (from, to) = (self.numbers(), (self.numbers() + STEP).min(MAX_OBJECTS));
        grow(&mut self.hashes, to, 0);
        grow(&mut self.sizes, to, 0);
        self.free.reserve_exact(to - self.free.len());
        self.free.extend((from..to).rev().map(|id| id as Id));
        if to + to / 4 > self.table.len() {
            let ids = self.ids();
            self.table = vec![NONE; 2 * self.table.len()];
            ids.into_iter().for_each(|id| self.enter(id));
        }
        from < to
    }

    /// A part of the hashes leaves the sample. The caller has the objects removed that are not in it any more.
    pub(super) fn lower_rate(&mut self) {
        self.threshold -= self.threshold / 5;
    }

    /// Bytes of memory.
    pub(super) fn footprint(&self) -> usize {
        let ids = self.free.capacity() + self.table.capacity();
        (self.hashes.capacity() + self.sizes.capacity()) * size_of::<u64>() + ids * size_of::<Id>()
    }
}
