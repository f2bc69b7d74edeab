//! Which addresses are managed, and what the program has said about them.
//!
//! Invariants: ranges are page-aligned, do not overlap, and neighbours with equal attributes are one. Cost: O(log n) a
//! look-up.

use std::collections::BTreeMap;

/// What a range may be used for, and what becomes of it in children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The protection bits of `mmap`: 1 read, 2 write, 4 execute.
    pub protection: u8,
    /// `MADV_DONTFORK`: children do not have it.
    pub not_in_children: bool,
    /// `MADV_WIPEONFORK`: it is zeros in children.
    pub zeros_in_children: bool,
    /// `MADV_GUARD_INSTALL`: touching it is an error.
    pub guard: bool,
    /// Locked into memory by the program.
    pub locked: bool,
}

impl Attributes {
    /// Whether `UFFDIO_MOVE` takes pages from it.
    pub fn can_be_evicted(self) -> bool {
        self.protection == 3 && !self.locked
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Ranges(BTreeMap<usize, (usize, Attributes)>);

impl Ranges {
    /// The range that an address lies in: start, end, attributes.
    pub fn find(&self, address: usize) -> Option<(usize, usize, Attributes)> {
        let (start, (end, attributes)) = self.0.range(..=address).next_back()?;
        (address < *end).then_some((*start, *end, *attributes))
    }

    /// Whether any part of a range is managed.
    pub fn any(&self, start: usize, end: usize) -> bool {
        self.0.range(..end).next_back().is_some_and(|(_, (last, _))| *last > start)
    }

    /// The managed parts of `start..end`, clipped.
    pub fn within(&self, start: usize, end: usize) -> Vec<(usize, usize, Attributes)> {
        let first = self.find(start).map_or(start, |(first, ..)| first);
        let clipped = self.0.range(first..end).map(|(from, (to, a))| ((*from).max(start), (*to).min(end), *a));
        clipped.filter(|(from, to, _)| from < to).collect()
    }

    /// All ranges.
    pub fn all(&self) -> impl Iterator<Item = (usize, usize, Attributes)> + '_ {
        self.0.iter().map(|(start, (end, attributes))| (*start, *end, *attributes))
    }

    /// Takes `start..end` out; returns the parts that were in.
    pub fn remove(&mut self, start: usize, end: usize) -> Vec<(usize, usize, Attributes)> {
        let parts = self.within(start, end);
        for (from, to, attributes) in &parts {
            let (first, last, _) = self.find(*from).expect("invariant: a part of a range");
            self.0.remove(&first);
            if first < *from {
                self.0.insert(first, (*from, *attributes));
            }
            if *to < last {
                self.0.insert(*to, (last, *attributes));
            }
        }
        parts
    }

    /// Puts `start..end` in, whatever was there before.
    pub fn insert(&mut self, start: usize, end: usize, attributes: Attributes) {
        self.remove(start, end);
        let (mut start, mut end) = (start, end);
        if let Some((from, to, same)) = start.checked_sub(1).and_then(|before| self.find(before))
            && to == start
            && same == attributes
        {
            self.0.remove(&from);
            start = from;
        }
        if let Some((_, to, same)) = self.find(end)
            && same == attributes
        {
            self.0.remove(&end);
            end = to;
        }
        self.0.insert(start, (end, attributes));
    }

    /// Changes the attributes of the managed parts of a range.
    pub fn change(&mut self, start: usize, end: usize, change: impl Fn(&mut Attributes)) {
        for (from, to, mut attributes) in self.within(start, end) {
            change(&mut attributes);
            self.insert(from, to, attributes);
        }
    }

    /// Bytes that are managed.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|(start, (end, _))| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(protection: u8) -> Attributes {
        Attributes { protection, ..Attributes::default() }
    }

    #[test]
    fn ranges_split_and_join() {
        let mut ranges = Ranges::default();
        ranges.insert(10, 20, of(3));
        ranges.insert(20, 30, of(3));
        assert_eq!(ranges.all().collect::<Vec<_>>(), [(10, 30, of(3))]);
        ranges.change(15, 18, |attributes| attributes.protection = 1);
        assert_eq!(ranges.all().collect::<Vec<_>>(), [(10, 15, of(3)), (15, 18, of(1)), (18, 30, of(3))]);
        ranges.change(0, 100, |attributes| attributes.protection = 3);
        assert_eq!(ranges.all().collect::<Vec<_>>(), [(10, 30, of(3))]);
        assert_eq!(ranges.remove(5, 12), [(10, 12, of(3))]);
        assert_eq!(ranges.remove(14, 16), [(14, 16, of(3))]);
        assert_eq!(ranges.within(0, 100), [(12, 14, of(3)), (16, 30, of(3))]);
        assert!(!ranges.any(14, 16) && ranges.any(13, 15) && !ranges.any(30, 40) && !ranges.any(0, 12));
        assert_eq!(ranges.bytes(), 16);
    }

    /// Against one attribute per unit.
    #[test]
    fn ranges_are_what_an_array_says() {
        let (mut ranges, mut model) = (Ranges::default(), [None; 64]);
        let mut state = 1u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (a, b) = ((state >> 33) as usize % 64, (state >> 43) as usize % 64);
            let (start, end) = (a.min(b), a.max(b) + 1);
            let protection = (state >> 53) as u8 & 3;
            match state >> 61 {
                0..=2 => {
                    ranges.insert(start, end, of(protection));
                    model[start..end].fill(Some(of(protection)));
                }
                3..=4 => {
                    ranges.change(start, end, |a| a.protection = protection);
                    model[start..end].iter_mut().flatten().for_each(|a| a.protection = protection);
                }
                _ => {
                    ranges.remove(start, end);
                    model[start..end].fill(None);
                }
            }
            for (at, wanted) in model.iter().enumerate() {
                assert_eq!(ranges.find(at).map(|(.., a)| a), *wanted, "at {at}");
            }
            let all: Vec<_> = ranges.all().collect();
            assert!(all.windows(2).all(|two| two[0].1 < two[1].0 || two[0].1 == two[1].0 && two[0].2 != two[1].2));
        }
    }
}
