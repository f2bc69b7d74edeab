//! Sequences of operations: made at random, written as text, taken apart.
//!
//! The text is what `c/walker.c` reads: a name and numbers per line, blocks closed by `end`. Places are pages of its
//! window. A generator that took every place at random would mostly miss what is mapped. So places come from a few
//! recent ones most of the time.

use std::collections::BTreeSet;
use std::fmt;

/// Pages of the walker's window.
const WINDOW_PAGES: u64 = 2048;
/// Blocks within blocks.
const MAX_DEPTH: usize = 2;
/// Places that are remembered.
const RECENT: usize = 12;

/// Numbers that depend on a seed alone.
#[derive(Debug, Clone)]
pub struct Random(fastrand::Rng);

impl Random {
    /// From a seed. Neighbouring seeds give unrelated numbers.
    pub fn new(seed: u64) -> Random {
        Random(fastrand::Rng::with_seed(seed))
    }

    /// Below a bound above zero.
    fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound)
    }

    fn one_in(&mut self, number: u64) -> bool {
        self.below(number) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// One operation, with what it encloses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// As the walker calls it.
    pub name: &'static str,
    /// Its numbers.
    pub arguments: Vec<u64>,
    /// What a `fork` makes parent and child do, and a `thread`, a `vfork` or a `spawn` its one other side.
    pub blocks: Vec<Sequence>,
}

/// Operations one after another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sequence(pub Vec<Operation>);

impl fmt::Display for Sequence {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for operation in &self.0 {
            write!(to, "{}", operation.name)?;
            operation.arguments.iter().try_for_each(|argument| write!(to, " {argument}"))?;
            writeln!(to)?;
            for (index, block) in operation.blocks.iter().enumerate() {
                if index > 0 {
                    writeln!(to, "and")?;
                }
                write!(to, "{block}")?;
            }
            if !operation.blocks.is_empty() {
                writeln!(to, "end")?;
            }
        }
        Ok(())
    }
}

impl Sequence {
    /// How many operations, those in blocks included.
    pub fn len(&self) -> usize {
        self.0.iter().map(|operation| 1 + operation.blocks.iter().map(Sequence::len).sum::<usize>()).sum()
    }

    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A new one of at most `max_operations` operations, without those that are named.
    pub fn random(random: &mut Random, max_operations: usize, without: &BTreeSet<String>) -> Sequence {
        let length = 5 + random.below(max_operations as u64 - 5) as usize;
        let mut generator = Generator { random, recent: Vec::new(), without };
        generator.sequence(length, Place { depth: 0, inside: "" })
    }
}

/// Where a sequence stands.
#[derive(Clone, Copy)]
struct Place {
    depth: usize,
    /// The name of the block around, empty at the top.
    inside: &'static str,
}

struct Generator<'a> {
    random: &'a mut Random,
    /// Places, as first page and number of pages.
    recent: Vec<(u64, u64)>,
    without: &'a BTreeSet<String>,
}

/// Operations and how often each is taken.
const WEIGHTS: [(&str, u64); 45] = [
    ("map", 60),
    ("unmap", 14),
    ("remap", 16),
    ("protect", 16),
    ("advise", 40),
    ("free", 3),
    ("lock", 8),
    ("sync", 1),
    ("resident", 2),
    ("flags", 4),
    ("write", 60),
    ("read", 50),
    ("add", 10),
    ("churn", 8),
    ("pressure", 3),
    ("calm", 2),
    ("pipe", 10),
    ("vector", 5),
    ("packet", 6),
    ("fread", 6),
    ("fwrite", 6),
    ("direct", 6),
    ("splice", 3),
    ("across", 3),
    ("wait", 3),
    ("futex", 4),
    ("wake", 2),
    ("path", 2),
    ("bad_path", 1),
    ("name", 2),
    ("mask", 2),
    ("sleep", 1),
    ("poll", 2),
    ("select", 2),
    ("raise", 4),
    ("stack", 3),
    ("brk", 5),
    ("heap_write", 6),
    ("heap_read", 4),
    ("heap_past", 2),
    ("fork", 8),
    ("thread", 4),
    ("vfork", 4),
    ("spawn", 3),
    ("exec", 1),
];

/// `madvise`'s numbers: what they are called, and how often each is taken.
const ADVICE: [(u64, u64); 20] = [
    (0, 3),   // MADV_NORMAL
    (1, 5),   // MADV_RANDOM
    (2, 5),   // MADV_SEQUENTIAL
    (3, 2),   // MADV_WILLNEED
    (4, 10),  // MADV_DONTNEED
    (10, 2),  // MADV_DONTFORK
    (11, 2),  // MADV_DOFORK
    (14, 1),  // MADV_HUGEPAGE
    (15, 1),  // MADV_NOHUGEPAGE
    (16, 3),  // MADV_DONTDUMP
    (17, 2),  // MADV_DODUMP
    (18, 2),  // MADV_WIPEONFORK
    (19, 2),  // MADV_KEEPONFORK
    (20, 3),  // MADV_COLD
    (21, 30), // MADV_PAGEOUT
    (22, 3),  // MADV_POPULATE_READ
    (23, 3),  // MADV_POPULATE_WRITE
    (102, 3), // MADV_GUARD_INSTALL
    (103, 2), // MADV_GUARD_REMOVE
    (77, 1),  // none
];

impl Generator<'_> {
    fn sequence(&mut self, length: usize, place: Place) -> Sequence {
        let mut all = Vec::new();
        // Something to work on, most of the time.
        for _ in 0..self.random.below(4) {
            all.extend(self.operation("map", place));
        }
        while all.len() < length {
            let name = weighted(self.random, &WEIGHTS);
            if !self.without.contains(name) {
                all.extend(self.operation(name, place));
            }
        }
        Sequence(all)
    }

    /// None where the place does not allow it.
    fn operation(&mut self, name: &'static str, place: Place) -> Option<Operation> {
        let opens = matches!(name, "fork" | "thread" | "vfork" | "spawn");
        // A child that shares its parent's memory has no thread pointer of its own: it may not use what needs one.
        let forbidden_in_vfork = opens || matches!(name, "stack" | "raise" | "wait" | "brk" | "pressure" | "calm");
        if (opens && place.depth >= MAX_DEPTH)
            || (place.inside == "vfork" && forbidden_in_vfork)
            || (name == "exec" && place.depth > 0)
        {
            return None;
        }
        if opens {
            return Some(self.block(name, place));
        }
        let (page, pages) = self.range();
        let random = &mut *self.random;
        let away = random.below(2);
        let arguments = match name {
            "map" => {
                let kind = weighted(
                    random,
                    &[(0, 60), (1, 5), (2, 8), (3, 6), (4, 4), (5, 6), (6, 4), (7, 4), (8, 3), (9, 2)],
                );
                let protection = weighted(random, &[(0, 6), (1, 5), (2, 60), (4, 2)]);
                self.remember(page, pages);
                vec![page, pages, protection, kind]
            }
            "remap" => {
                let to = 1 + random.below(pages * 2);
                let elsewhere = random.below(WINDOW_PAGES - to.min(WINDOW_PAGES - 1));
                let how = random.below(4);
                self.remember(if how >= 1 { elsewhere } else { page }, to);
                vec![page, pages, if how == 3 { pages } else { to }, how, elsewhere]
            }
            "protect" => vec![page, pages, weighted(random, &[(0, 20), (1, 25), (2, 50), (4, 2)])],
            "advise" => vec![page, pages, weighted(random, &ADVICE)],
            "lock" => vec![page, pages.min(64), random.below(3)],
            "write" => {
                let offset = random.below(4096);
                let length = if random.one_in(3) { pages * 4096 - offset } else { 1 + random.below(9000) };
                vec![page, offset, length, random.below(1000)]
            }
            "churn" => vec![4 + random.below(12)],
            "pipe" | "packet" => {
                let (other, _) = self.range();
                let random = &mut *self.random;
                vec![page, other, random.below(4096), 1 + random.below(20000), random.below(4)]
            }
            "vector" => {
                let others = [self.range().0, self.range().0, self.range().0];
                vec![page, others[0], others[1], others[2], 1 + self.random.below(8192)]
            }
            "fread" | "fwrite" => {
                vec![page, 1 + random.below(40000), random.below(300_000), away, random.below(4096)]
            }
            "direct" => vec![page, pages.min(32), away, u64::from(random.one_in(4))],
            "splice" | "wake" => vec![page, away],
            "across" => vec![page, self.range().0, away, self.random.below(2)],
            "futex" => vec![page, random.below(3), away],
            "stack" => {
                let (other, _) = self.range();
                vec![page, other, away]
            }
            "wait" => vec![page, random.below(64)],
            "brk" => vec![random.below(60)],
            "heap_write" => vec![random.below(60), random.below(1000)],
            "heap_read" | "heap_past" | "exec" | "pressure" | "calm" => Vec::new(),
            _ => vec![page, pages],
        };
        Some(Operation { name, arguments, blocks: Vec::new() })
    }

    fn block(&mut self, name: &'static str, place: Place) -> Operation {
        let inside = Place { depth: place.depth + 1, inside: name };
        let part = |generator: &mut Self| {
            let length = 1 + generator.random.below(12) as usize;
            generator.sequence(length, inside)
        };
        let (arguments, blocks) = match name {
            "fork" => {
                let kept = self.recent.clone();
                let parent = part(self);
                let after = std::mem::replace(&mut self.recent, kept);
                let child = part(self);
                self.recent = after;
                (vec![self.random.below(2)], vec![parent, child])
            }
            "spawn" => {
                let kept = std::mem::take(&mut self.recent);
                let child = part(self);
                self.recent = kept;
                (vec![self.random.below(3)], vec![child])
            }
            _ => (Vec::new(), vec![part(self)]),
        };
        Operation { name, arguments, blocks }
    }

    /// Pages to work on: a recent place, a piece of one, one that overlaps its end, or any.
    fn range(&mut self) -> (u64, u64) {
        let random = &mut *self.random;
        if self.recent.is_empty() || random.one_in(12) {
            let pages = match random.below(4) {
                0 => 1 + random.below(4),
                1 => 1 + random.below(300),
                _ => 1 + random.below(48),
            };
            return (random.below(WINDOW_PAGES - pages), pages);
        }
        let (page, pages) = random.pick(&self.recent);
        match random.below(5) {
            0 => (page, pages),
            1 => (page + random.below(pages), 1),
            2 => {
                let skipped = random.below(pages);
                (page + skipped, 1 + random.below(pages - skipped))
            }
            3 => {
                let start = (page + pages / 2).min(WINDOW_PAGES - 2);
                (start, (1 + random.below(pages)).min(WINDOW_PAGES - start))
            }
            _ => (page, 1 + random.below(pages)),
        }
    }

    fn remember(&mut self, page: u64, pages: u64) {
        if self.recent.len() == RECENT {
            self.recent.remove(0);
        }
        self.recent.push((page, pages.min(WINDOW_PAGES - page).max(1)));
    }
}

fn weighted<T: Copy>(random: &mut Random, table: &[(T, u64)]) -> T {
    let mut left = random.below(table.iter().map(|&(_, weight)| weight).sum());
    for &(value, weight) in table {
        if left < weight {
            return value;
        }
        left -= weight;
    }
    table[0].0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_depends_on_its_seed_alone_and_uses_every_operation() {
        let text = |seed| Sequence::random(&mut Random::new(seed), 160, &BTreeSet::new()).to_string();
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
        let all: String = (0..200).map(text).collect();
        for (name, _) in WEIGHTS {
            assert!(all.lines().any(|line| line.split(' ').next() == Some(name)), "{name} is never made");
        }
        let without = BTreeSet::from(["fork".to_owned()]);
        let all: String =
            (0..50).map(|seed| Sequence::random(&mut Random::new(seed), 160, &without).to_string()).collect();
        assert!(!all.contains("fork "), "what is left out is not made");
    }

    #[test]
    fn blocks_are_closed_and_places_lie_in_the_window() {
        for seed in 0..200 {
            let sequence = Sequence::random(&mut Random::new(seed), 160, &BTreeSet::new());
            let text = sequence.to_string();
            let first = |line: &str| line.split(' ').next().unwrap_or("").to_owned();
            let opened =
                text.lines().filter(|line| matches!(first(line).as_str(), "fork" | "thread" | "vfork" | "spawn"));
            assert_eq!(opened.count(), text.lines().filter(|&line| line == "end").count());
            for line in text.lines().filter(|line| line.starts_with("unmap ")) {
                let numbers: Vec<u64> = line.split(' ').skip(1).map(|word| word.parse().expect("a number")).collect();
                assert!(numbers[1] >= 1 && numbers[0] < WINDOW_PAGES, "{line}");
            }
        }
    }
}
