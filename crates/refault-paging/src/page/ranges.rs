//! Which addresses are managed, and what the program has said about them.
//!
//! Invariants: ranges are page-aligned, do not overlap, and neighbours with equal attributes are one. Cost: O(log n) a
//! look-up.

use std::collections::BTreeMap;

use refault_linux::flags::{PROT_READ, PROT_WRITE};

use super::marks::Marks;

/// What a range may be used for, and what becomes of it in children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The protection bits of `mmap` ([`PROT_READ`] and its like).
    pub protection: u8,
    /// `MADV_DONTFORK`: children do not have it.
    pub not_in_children: bool,
    /// `MADV_WIPEONFORK`: it is zeros in children.
    pub zeros_in_children: bool,
    /// `MADV_GUARD_INSTALL`: touching it is an error.
    pub guard: bool,
    /// Locked into memory by the program.
    pub locked: bool,
    /// All of it is in memory to stay: it is locked, and could be touched then or at some time since. Without rights it
    /// stays where it is.
    pub filled: bool,
    /// It is known to be of mappings to which something was written: see `unwritten`.
    pub written: bool,
    /// What the program has advised that keeps the kernel from joining it with others.
    pub marks: Marks,
}

impl Attributes {
    const READ: u8 = PROT_READ as u8;
    const WRITE: u8 = PROT_WRITE as u8;
    /// The protection of memory that can be read and written to.
    pub const READ_WRITE: u8 = Self::READ | Self::WRITE;

    /// Whether `UFFDIO_MOVE` takes pages from it.
    pub fn can_be_moved(self) -> bool {
        self.protection == Self::READ_WRITE && !self.locked
    }

    /// Whether its pages can go: moved, or copied where they can only be read.
    pub fn can_be_evicted(self) -> bool {
        self.protection & Self::READ != 0 && !self.locked
    }

    /// Whether its rights allow to write to it.
    pub fn can_be_written(self) -> bool {
        self.protection & Self::WRITE != 0
    }

    /// Whether its rights allow to touch it.
    pub fn can_be_touched(self) -> bool {
        self.protection & Self::READ_WRITE != 0
    }

    /// The program locks or unlocks it.
    pub fn lock(&mut self, locked: bool) {
        self.locked = locked;
        self.filled = locked && (self.filled || self.can_be_touched());
    }

    /// The program changes its rights.
    pub fn protect(&mut self, protection: u8) {
        self.protection = protection;
        self.filled |= self.locked && self.can_be_touched();
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Ranges {
    by_start: BTreeMap<usize, (usize, Attributes)>,
    /// Bytes that are [filled](Attributes::filled), and those that are only locked.
    filled: usize,
    unfilled: usize,
    /// How many ranges are marked so, and which marks others may have that no range tells of.
    marked: [usize; Marks::ALL.len()],
    perhaps: [bool; Marks::ALL.len()],
}

impl Ranges {
    /// The range that an address lies in: start, end, attributes.
    pub fn find(&self, address: usize) -> Option<(usize, usize, Attributes)> {
        let (start, (end, attributes)) = self.by_start.range(..=address).next_back()?;
        (address < *end).then_some((*start, *end, *attributes))
    }

    /// The first range that ends behind an address.
    pub fn from(&self, address: usize) -> Option<(usize, usize, Attributes)> {
        let next = || self.by_start.range(address..).next().map(|(start, (end, a))| (*start, *end, *a));
        self.find(address).or_else(next)
    }

    /// Whether any part of a range is managed.
    pub fn any(&self, start: usize, end: usize) -> bool {
        self.by_start.range(..end).next_back().is_some_and(|(_, (last, _))| *last > start)
    }

    /// The managed parts of `start..end`, clipped.
    pub fn within(&self, start: usize, end: usize) -> Vec<(usize, usize, Attributes)> {
        let first = self.find(start).map_or(start, |(first, ..)| first);
        let clipped = self.by_start.range(first..end).map(|(from, (to, a))| ((*from).max(start), (*to).min(end), *a));
        clipped.filter(|(from, to, _)| from < to).collect()
    }

    /// All ranges.
    pub fn all(&self) -> impl Iterator<Item = (usize, usize, Attributes)> + '_ {
        self.by_start.iter().map(|(start, (end, attributes))| (*start, *end, *attributes))
    }

    /// Takes `start..end` out; returns the parts that were in.
    pub fn remove(&mut self, start: usize, end: usize) -> Vec<(usize, usize, Attributes)> {
        let parts = self.within(start, end);
        for (from, to, attributes) in &parts {
            let (first, last, _) = self.find(*from).expect("invariant: a part of a range");
            self.take(first);
            if first < *from {
                self.put(first, *from, *attributes);
            }
            if *to < last {
                self.put(*to, last, *attributes);
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
            self.take(from);
            start = from;
        }
        if let Some((_, to, same)) = self.find(end)
            && same == attributes
        {
            self.take(end);
            end = to;
        }
        self.put(start, end, attributes);
    }

    fn put(&mut self, start: usize, end: usize, attributes: Attributes) {
        if let Some(bytes) = self.count(attributes) {
            *bytes += end - start;
        }
        self.marked[attributes.marks.index()] += 1;
        self.by_start.insert(start, (end, attributes));
    }

    fn take(&mut self, start: usize) {
        let Some((end, attributes)) = self.by_start.remove(&start) else { return };
        if let Some(bytes) = self.count(attributes) {
            *bytes -= end - start;
        }
        self.marked[attributes.marks.index()] -= 1;
    }

    /// Marks that no range has. `None`: each is in use.
    pub fn unused_marks(&self) -> Option<Marks> {
        let is_unused = |marks: &&Marks| self.marked[marks.index()] == 0 && !self.perhaps[marks.index()];
        Marks::ALL.iter().find(is_unused).copied()
    }

    /// The kernel may have marked a part of some range so.
    pub fn may_be_marked(&mut self, marks: Marks) {
        self.perhaps[marks.index()] = true;
    }

    /// Where bytes of such a range are counted.
    fn count(&mut self, attributes: Attributes) -> Option<&mut usize> {
        match (attributes.filled, attributes.locked) {
            (true, _) => Some(&mut self.filled),
            (false, true) => Some(&mut self.unfilled),
            (false, false) => None,
        }
    }

    /// Bytes that are locked and [filled](Attributes::filled): those are in memory, and stay.
    pub fn locked_bytes(&self) -> usize {
        self.filled
    }

    /// Whether any range is locked.
    pub fn any_locked(&self) -> bool {
        self.filled + self.unfilled > 0
    }

    /// Whether any range is locked that never could be touched.
    pub fn any_unfilled(&self) -> bool {
        self.unfilled > 0
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
        self.by_start.iter().map(|(start, (end, _))| end - start).sum()
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
        assert_eq!((ranges.bytes(), ranges.locked_bytes()), (16, 0));
    }

    /// What was locked stays in memory when its rights go; what was locked without rights comes with them.
    #[test]
    fn rights_fill_what_is_locked_and_do_not_empty_it() {
        let mut range = of(0);
        range.lock(true);
        assert!(range.locked && !range.filled);
        range.protect(1);
        range.protect(0);
        assert!(range.locked && range.filled);
        range.lock(false);
        range.protect(3);
        assert!(!range.locked && !range.filled);
    }

    #[test]
    fn marks_that_may_be_in_use_are_not_given() {
        let mut ranges = Ranges::default();
        for marks in Marks::ALL {
            assert_eq!(ranges.unused_marks(), Some(marks));
            ranges.may_be_marked(marks);
        }
        assert_eq!(ranges.unused_marks(), None);
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
                3 => {
                    let locked = protection & 1 != 0;
                    ranges.change(start, end, |a| a.lock(locked));
                    model[start..end].iter_mut().flatten().for_each(|a| a.lock(locked));
                }
                4 => {
                    ranges.change(start, end, |a| a.protect(protection));
                    model[start..end].iter_mut().flatten().for_each(|a| a.protect(protection));
                }
                5 => {
                    let marks = Marks::ALL[a % Marks::ALL.len()];
                    ranges.change(start, end, |a| a.marks = marks);
                    model[start..end].iter_mut().flatten().for_each(|a| a.marks = marks);
                }
                _ => {
                    ranges.remove(start, end);
                    model[start..end].fill(None);
                }
            }
            for (at, wanted) in model.iter().enumerate() {
                assert_eq!(ranges.find(at).map(|(.., a)| a), *wanted, "at {at}");
            }
            assert_eq!(ranges.locked_bytes(), model.iter().flatten().filter(|a| a.filled).count());
            let has = |marks: &Marks| model.iter().flatten().any(|a| a.marks == *marks);
            assert_eq!(ranges.unused_marks(), Marks::ALL.into_iter().find(|marks| !has(marks)));
            assert_eq!(ranges.any_unfilled(), model.iter().flatten().any(|a| a.locked && !a.filled));
            let all: Vec<_> = ranges.all().collect();
            assert!(all.windows(2).all(|two| two[0].1 < two[1].0 || two[0].1 == two[1].0 && two[0].2 != two[1].2));
        }
    }
}
