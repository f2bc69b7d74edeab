//! Exact reuse distances: how many other pages were accessed since a page was accessed last.
//!
//! An LRU memory of m pages hits exactly the accesses whose distance is below m (Mattson, Gecsei, Slutz and Traiger,
//! IBM Systems Journal 1970). So one pass gives the misses at every size.
//!
//! Every access takes the next *slot*; the slot of a page's last access is live, earlier ones are dead. The distance is
//! the number of live slots after the page's, which is the number of all slots after it less the dead ones. Only dead
//! slots are counted, and a slot dies exactly where a distance is asked for. A tree of fan-out 32 keeps, for each child
//! of a node, the dead slots in the children after it. A question is one load per level. A death is an addition to a
//! row of lanes per level, the same work wherever the slot lies. Leaves are words of 64 slots.
//!
//! Invariants: `last[page]` is live or `NEVER`; live slots are as many as pages seen. When slots run out, the live ones
//! move to the front in order, which happens once in three or more accesses per page.
//!
//! Cost: O(1) per access, about a dozen vector operations and two cache misses; 8 to 40 bytes per page.
//!
//! ```
//! use refault_trace::reuse::{DistanceHistogram, ReuseDistances};
//!
//! let mut distances = ReuseDistances::new(3);
//! let mut histogram = DistanceHistogram::new();
//! for page in [0, 1, 2, 0, 1, 2] {
//!     histogram.record(distances.access(page));
//! }
//! assert_eq!(histogram.lru_misses(&[2, 3]), [6, 3]); // three pages in turn: two frames never help
//! ```

/// The distance of a first access.
pub const COLD: u32 = u32::MAX;

const NEVER: u32 = u32::MAX;
const FAN_OUT: usize = 32;
const WORD_SLOTS: usize = 64;
const NODE1_SLOTS: usize = WORD_SLOTS * FAN_OUT;
const NODE2_SLOTS: usize = NODE1_SLOTS * FAN_OUT;
const NODE3_SLOTS: usize = NODE2_SLOTS * FAN_OUT;
/// Slots for each live page after a compaction, at least.
const SLACK: usize = 4;

/// `BEFORE[c]` adds one to each lane before lane `c`.
const BEFORE: [[u16; FAN_OUT]; FAN_OUT] = {
    let mut rows = [[0; FAN_OUT]; FAN_OUT];
    let mut row = 0;
    while row < FAN_OUT {
        let mut lane = 0;
        while lane < row {
            rows[row][lane] = 1;
            lane += 1;
        }
        row += 1;
    }
    rows
};

/// Dead slots after each child of a node that spans at most 2^16 slots.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Node([u16; FAN_OUT]);

/// The same for larger nodes.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct WideNode([u32; FAN_OUT]);

impl Node {
    const EMPTY: Node = Node([0; FAN_OUT]);

    /// Dead slots after `child`, one of which has just died in it.
    #[inline]
    fn count_and_mark(&mut self, child: usize) -> u32 {
        let after = self.0[child];
        for (lane, before) in self.0.iter_mut().zip(&BEFORE[child]) {
            *lane += before;
        }
        u32::from(after)
    }
}

impl WideNode {
    const EMPTY: WideNode = WideNode([0; FAN_OUT]);

    #[inline]
    fn count_and_mark(&mut self, child: usize) -> u32 {
        let after = self.0[child];
        for (lane, before) in self.0.iter_mut().zip(&BEFORE[child]) {
            *lane += u32::from(*before);
        }
        after
    }
}

/// The exact reuse distance of every access of a trace of dense page ids, which are below
/// [`MAX_PAGES`](crate::page_ids::MAX_PAGES) as [`PageIds`](crate::page_ids::PageIds) gives them.
pub struct ReuseDistances {
    /// Slot of each page's last access.
    last: Vec<u32>,
    /// Page that took each slot.
    pages: Vec<u32>,
    /// Bit set: the slot is dead.
    dead: Vec<u64>,
    nodes1: Vec<Node>,
    nodes2: Vec<Node>,
    nodes3: Vec<WideNode>,
    /// Dead slots after each node of the third level.
    top: Vec<u32>,
    next: usize,
    seen: usize,
}

impl ReuseDistances {
    /// No accesses yet. `pages` is how many page ids are expected; more make it grow.
    pub fn new(pages: usize) -> ReuseDistances {
        let mut distances = ReuseDistances {
            last: vec![NEVER; pages],
            pages: Vec::new(),
            dead: Vec::new(),
            nodes1: Vec::new(),
            nodes2: Vec::new(),
            nodes3: Vec::new(),
            top: Vec::new(),
            next: 0,
            seen: 0,
        };
        distances.lay_out();
        distances
    }

    /// Distinct pages so far.
    pub fn distinct_pages(&self) -> usize {
        self.seen
    }

    /// Accesses a page and returns how many other pages were accessed since its last access, [`COLD`] if there was
    /// none.
    #[inline]
    pub fn access(&mut self, page: u32) -> u32 {
        if self.next == self.pages.len() {
            self.compact();
        }
        let index = page as usize;
        if index >= self.last.len() {
            self.last.resize((index + 1).next_power_of_two(), NEVER);
        }
        let now = self.next as u32;
        let last = std::mem::replace(&mut self.last[index], now);
        self.pages[self.next] = page;
        self.next += 1;
        if last == NEVER {
            self.seen += 1;
            return COLD;
        }
        now - last - 1 - self.bury(last as usize)
    }

    /// As [`ReuseDistances::access`] for each page in turn; replaces the contents of `out`.
    pub fn access_all(&mut self, pages: &[u32], out: &mut Vec<u32>) {
        /// Loads that the processor keeps under way together.
        const AHEAD: usize = 32;
        out.clear();
        for batch in pages.chunks(AHEAD) {
            // Brings what the batch needs into the cache: these loads overlap, those of dependent accesses do not.
            let touched = batch.iter().fold(0, |touched, page| touched ^ self.touch(*page));
            std::hint::black_box(touched);
            out.extend(batch.iter().map(|page| self.access(*page)));
        }
    }

    /// As [`ReuseDistances::access`], but the page counts as never accessed from now on: as long as it is not put back.
    #[inline]
    pub(crate) fn take(&mut self, page: u32) -> u32 {
        let Some(last) = self.last.get_mut(page as usize) else { return COLD };
        let last = std::mem::replace(last, NEVER);
        if last == NEVER {
            return COLD;
        }
        self.seen -= 1;
        self.next as u32 - last - 1 - self.bury(last as usize)
    }

    /// The pages seen, in the order of their last accesses.
    pub(crate) fn by_last_access(&self) -> impl Iterator<Item = u32> + '_ {
        let (pages, next) = (&self.pages, self.next);
        let words = self.dead[..next.div_ceil(WORD_SLOTS)].iter().enumerate();
        words.flat_map(move |(index, dead)| {
            // Slots that were never taken are not live.
            let taken = (next - index * WORD_SLOTS).min(WORD_SLOTS);
            let mut left = !dead & (u64::MAX >> (WORD_SLOTS - taken));
            std::iter::from_fn(move || {
                let slot = (left != 0).then(|| index * WORD_SLOTS + left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(pages[slot])
            })
        })
    }

    #[inline]
    pub(crate) fn touch(&self, page: u32) -> u64 {
        let last = self.last.get(page as usize).map_or(0, |last| *last as usize);
        let node1 = self.nodes1.get(last / NODE1_SLOTS).map_or(0, |node| node.0[0]);
        self.dead.get(last / WORD_SLOTS).map_or(0, |word| *word) ^ u64::from(node1)
    }

    /// Marks a live slot dead and returns how many dead slots lie after it.
    #[inline]
    fn bury(&mut self, slot: usize) -> u32 {
        let word = &mut self.dead[slot / WORD_SLOTS];
        let in_word = (*word >> (slot % WORD_SLOTS)).count_ones();
        *word |= 1 << (slot % WORD_SLOTS);
        let in_node1 = self.nodes1[slot / NODE1_SLOTS].count_and_mark(slot / WORD_SLOTS % FAN_OUT);
        let in_node2 = self.nodes2[slot / NODE2_SLOTS].count_and_mark(slot / NODE1_SLOTS % FAN_OUT);
        let in_node3 = self.nodes3[slot / NODE3_SLOTS].count_and_mark(slot / NODE2_SLOTS % FAN_OUT);
        let node3 = slot / NODE3_SLOTS;
        let beyond = self.top[node3];
        for after in &mut self.top[..node3] {
            *after += 1;
        }
        in_word + in_node1 + in_node2 + in_node3 + beyond
    }

    /// Moves the live slots to the front and makes room behind them.
    #[cold]
    #[inline(never)]
    fn compact(&mut self) {
        let mut live = 0;
        for (index, dead) in self.dead[..self.next.div_ceil(WORD_SLOTS)].iter().enumerate() {
            // Slots that were never taken are not live.
            let taken = (self.next - index * WORD_SLOTS).min(WORD_SLOTS);
            let mut left = !dead & (u64::MAX >> (WORD_SLOTS - taken));
            while left != 0 {
                let page = self.pages[index * WORD_SLOTS + left.trailing_zeros() as usize];
                left &= left - 1;
                self.last[page as usize] = live as u32;
                self.pages[live] = page;
                live += 1;
            }
        }
        debug_assert_eq!(live, self.seen);
        self.next = live;
        self.lay_out();
    }

    /// An empty tree with room for the live slots and as many again.
    fn lay_out(&mut self) {
        // Slots fit in 32 bits: beyond 2^30 pages there is less slack.
        let slots = (self.next.max(self.last.len() / SLACK) * SLACK).next_power_of_two();
        let slots = slots.clamp(NODE2_SLOTS, NEVER as usize / NODE3_SLOTS * NODE3_SLOTS);
        self.pages.resize(slots, 0);
        let clear = |nodes: &mut Vec<Node>, count: usize| {
            nodes.clear();
            nodes.resize(count, Node::EMPTY);
        };
        clear(&mut self.nodes1, slots.div_ceil(NODE1_SLOTS));
        clear(&mut self.nodes2, slots.div_ceil(NODE2_SLOTS));
        self.nodes3.clear();
        self.nodes3.resize(slots.div_ceil(NODE3_SLOTS), WideNode::EMPTY);
        self.top.clear();
        self.top.resize(slots.div_ceil(NODE3_SLOTS), 0);
        self.dead.clear();
        self.dead.resize(slots.div_ceil(WORD_SLOTS), 0);
    }
}

/// How often each reuse distance occurs: the LRU misses at every memory size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DistanceHistogram {
    /// Accesses with each distance.
    counts: Vec<u64>,
    cold: u64,
}

impl DistanceHistogram {
    /// No accesses.
    pub fn new() -> DistanceHistogram {
        DistanceHistogram::default()
    }

    /// `counts[distance]` accesses with each distance from 0 up, and `cold` first ones.
    pub fn from_counts(counts: Vec<u64>, cold: u64) -> DistanceHistogram {
        DistanceHistogram { counts, cold }
    }

    /// Counts a distance or [`COLD`].
    #[inline]
    pub fn record(&mut self, distance: u32) {
        if distance == COLD {
            self.cold += 1;
            return;
        }
        let index = distance as usize;
        if index >= self.counts.len() {
            self.counts.resize((index + 1).next_power_of_two(), 0);
        }
        self.counts[index] += 1;
    }

    /// First accesses, which miss at every size.
    pub fn cold(&self) -> u64 {
        self.cold
    }

    /// Adds the counts of another.
    pub fn add(&mut self, other: &DistanceHistogram) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.cold += other.cold;
    }

    /// All accesses counted.
    pub fn accesses(&self) -> u64 {
        self.cold + self.counts.iter().sum::<u64>()
    }

    /// Accesses with each distance, from 0 up; distances beyond the end did not occur.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Misses of an LRU memory at each of the given sizes in pages, which must ascend. Cost: one walk over the
    /// distances.
    pub fn lru_misses(&self, memory_pages: &[u64]) -> Vec<u64> {
        let mut misses = self.accesses();
        let mut distance = 0;
        let mut at = |memory: &u64| {
            let end = usize::try_from(*memory).unwrap_or(usize::MAX).min(self.counts.len());
            debug_assert!(end >= distance || end == self.counts.len(), "sizes ascend");
            misses -= self.counts[distance.min(end)..end].iter().sum::<u64>();
            distance = distance.max(end);
            misses
        };
        memory_pages.iter().map(&mut at).collect()
    }

    /// Accesses by the power of two of their distance: first those of distance 0, then 1, then 2-3, 4-7 and so on.
    pub fn log2_buckets(&self) -> Vec<u64> {
        let mut buckets = Vec::new();
        for (distance, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let bucket = (usize::BITS - distance.leading_zeros()) as usize;
            if buckets.len() <= bucket {
                buckets.resize(bucket + 1, 0);
            }
            buckets[bucket] += count;
        }
        buckets
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use refault_testing::Random;

    use super::*;

    /// The definition: a list of pages, the most recent first.
    fn by_list(pages: &[u32]) -> Vec<u32> {
        let mut recent: Vec<u32> = Vec::new();
        let distance = |page: &u32| {
            let position = recent.iter().position(|other| other == page);
            if let Some(position) = position {
                recent.remove(position);
            }
            recent.insert(0, *page);
            position.map_or(COLD, |position| position as u32)
        };
        pages.iter().map(distance).collect()
    }

    proptest! {
        #[test]
        fn distances_are_those_of_a_list(pages in prop::collection::vec(0..60u32, 0..600)) {
            let mut distances = Vec::new();
            ReuseDistances::new(1).access_all(&pages, &mut distances);
            prop_assert_eq!(distances, by_list(&pages));
        }
    }

    /// Counts by a binary indexed tree over all accesses: slower, but not too slow for long traces.
    fn by_fenwick_tree(pages: &[u32]) -> Vec<u32> {
        let mut tree = vec![0i64; pages.len() + 2];
        let add = |tree: &mut Vec<i64>, mut at: usize, value: i64| {
            while at < tree.len() {
                tree[at] += value;
                at += at & at.wrapping_neg();
            }
        };
        let sum = |tree: &Vec<i64>, mut at: usize| {
            let mut sum = 0;
            while at > 0 {
                sum += tree[at];
                at &= at - 1;
            }
            sum
        };
        let mut last = std::collections::HashMap::new();
        let mut distances = Vec::new();
        for (now, page) in pages.iter().enumerate() {
            let now = now + 1;
            distances.push(match last.insert(*page, now) {
                None => COLD,
                Some(then) => {
                    let distance = sum(&tree, now) - sum(&tree, then);
                    add(&mut tree, then, -1);
                    distance as u32
                }
            });
            add(&mut tree, now, 1);
        }
        distances
    }

    #[test]
    fn long_traces_compact_and_fill_every_level() {
        // Many pages for the upper levels, few for many compactions, and ids beyond the expectation.
        for (pages, accesses, expected) in [(700_000u64, 3_000_000, 700_000), (1000, 500_000, 10), (90_000, 400_000, 0)]
        {
            let mut random = Random::new(1);
            let trace: Vec<u32> = (0..accesses)
                .map(|i| {
                    let page = random.below(pages) as u32;
                    if i % 3 == 0 { page % 100 } else { page }
                })
                .collect();
            let (mut distances, mut out) = (ReuseDistances::new(expected), Vec::new());
            distances.access_all(&trace, &mut out);
            assert!(out == by_fenwick_tree(&trace), "{pages} pages");
        }
    }

    #[test]
    fn histogram_gives_lru_misses_and_buckets() {
        let mut histogram = DistanceHistogram::new();
        for distance in [COLD, COLD, 0, 0, 1, 2, 3, 4, 9] {
            histogram.record(distance);
        }
        assert_eq!(histogram.lru_misses(&[0, 1, 2, 5, 9, 10, 1000]), [9, 7, 6, 3, 3, 2, 2]);
        assert_eq!(histogram.log2_buckets(), [2, 1, 2, 1, 1]);
        assert_eq!((histogram.cold(), histogram.accesses()), (2, 9));
    }
}
