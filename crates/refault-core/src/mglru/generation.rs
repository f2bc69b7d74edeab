//! The generations of one lruvec: their window, lists, sizes and the controller's history (spec: mglru §1).
//!
//! Kernel: `struct lru_gen_folio` in `include/linux/mmzone.h`; `lru_gen_init_lruvec` in `mm/vmscan.c`.

use crate::lists::ring::Deque;
use crate::mglru::walk::Filter;
use crate::page::PageType;
use crate::policy::{GenerationDetails, GenerationSize, TierHistory, WalkStatistics};

/// The widest window that a page's record has room for.
pub(super) const MAX_WIDTH: u64 = 7;
/// Tiers of a generation.
pub(super) const MAX_TIERS: usize = 4;
/// Pages that one eviction step isolates.
pub(super) const MIN_BATCH: u64 = 64;
/// Pages that one eviction step looks at.
pub(super) const MAX_BATCH: u64 = 64 * MIN_BATCH;

/// How many generations there may be of a type (`MIN_NR_GENS` and `MAX_NR_GENS`, which a kernel is built with).
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// The narrowest: reclaim never evicts from the `min` youngest.
    pub min: u64,
    /// The widest.
    pub max: u64,
}

impl Window {
    /// The nearest window that there can be: at least one generation to evict from, and one more to merge into.
    pub fn new(min: u64, max: u64) -> Window {
        let min = min.clamp(2, MAX_WIDTH - 2);
        Window { min, max: max.clamp(min + 2, MAX_WIDTH) }
    }

    /// Index of a sequence number in every per-generation array.
    #[inline]
    pub const fn slot(self, seq: u64) -> usize {
        // A division is dear on the path of every insertion.
        if self.max == 4 { (seq % 4) as usize } else { (seq % self.max) as usize }
    }

    /// Index of the generation after the one at an index.
    #[inline]
    pub const fn next(self, slot: usize) -> usize {
        if slot + 1 == self.max as usize { 0 } else { slot + 1 }
    }
}

/// The state of one (memory cgroup, node) pair.
#[derive(Debug)]
pub(super) struct Lruvec {
    /// How many generations there may be.
    pub window: Window,
    /// The youngest generation, shared by both types.
    pub max_seq: u64,
    /// The oldest generation of each type.
    pub min_seq: [u64; 2],
    /// When each generation was created.
    pub birth: [u64; MAX_WIDTH as usize],
    /// Pages by generation and type; a promoted page stands on its old list until it is sorted.
    pub lists: [[Deque; 2]; MAX_WIDTH as usize],
    /// How many pages belong to each generation, wherever they stand.
    pub size: [[u64; 2]; MAX_WIDTH as usize],
    /// What the controller knows, by type.
    pub history: [History; 2],
    /// The last generation for which page tables were walked.
    pub walk_seq: u64,
    /// Regions worth walking, for the walk of even and of odd generations.
    pub filters: [Option<Filter>; 2],
    /// The clock of evictions by type ([`super::RefaultDistance::Evictions`]).
    pub evictions: [u64; 2],
    /// What walks have met.
    pub walks: WalkStatistics,
}

/// Refaults, evictions and protections by tier: of the generation being evicted, and averaged over those before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct History {
    pub avg_refaulted: [u64; MAX_TIERS],
    pub avg_total: [u64; MAX_TIERS],
    pub refaulted: [u64; MAX_TIERS],
    pub evicted: [u64; MAX_TIERS],
    /// Never counted for the base tier in 6.12.
    pub protected: [u64; MAX_TIERS],
}

impl History {
    /// The oldest generation is done: its counts join the averages and start anew (spec: mglru §10).
    pub fn fold(&mut self) {
        for tier in 0..MAX_TIERS {
            self.avg_refaulted[tier] = (self.avg_refaulted[tier] + self.refaulted[tier]) / 2;
            self.avg_total[tier] = (self.avg_total[tier] + self.evicted[tier] + self.protected[tier]) / 2;
        }
        self.refaulted = [0; MAX_TIERS];
        self.evicted = [0; MAX_TIERS];
        self.protected = [0; MAX_TIERS];
    }
}

impl Lruvec {
    pub fn new(window: Window, now: u64) -> Lruvec {
        Lruvec {
            window,
            max_seq: window.min + 1,
            min_seq: [0; 2],
            birth: [now; MAX_WIDTH as usize],
            lists: Default::default(),
            size: Default::default(),
            history: Default::default(),
            walk_seq: window.min,
            filters: [None, None],
            evictions: [0; 2],
            walks: WalkStatistics::default(),
        }
    }

    /// Index of a sequence number in every per-generation array.
    #[inline]
    pub fn slot(&self, seq: u64) -> usize {
        self.window.slot(seq)
    }

    /// Generations of a type in the window.
    #[inline]
    pub fn generations(&self, page_type: PageType) -> u64 {
        self.max_seq - self.min_seq[page_type.index()] + 1
    }

    /// Whether a type has as few generations as there may be, so that none of them can be evicted from.
    #[inline]
    pub fn is_narrow(&self, page_type: PageType) -> bool {
        self.generations(page_type) == self.window.min
    }

    /// Index of the youngest generation.
    #[inline]
    pub fn youngest(&self) -> usize {
        self.slot(self.max_seq)
    }

    /// Index of a type's oldest generation.
    #[inline]
    pub fn oldest(&self, page_type: PageType) -> usize {
        self.slot(self.min_seq[page_type.index()])
    }

    /// Opens the window by one at the young end. The new generation takes over the memory of those that have drained.
    pub fn open_generation(&mut self, now: u64) {
        self.max_seq += 1;
        let youngest = self.youngest();
        self.birth[youngest] = now;
        for page_type in PageType::ALL {
            let t = page_type.index();
            for seq in self.max_seq.saturating_sub(self.window.max - 1)..self.min_seq[t] {
                let drained = self.slot(seq);
                let mut heir = std::mem::take(&mut self.lists[youngest][t]);
                if drained != youngest && heir.is_empty() && self.lists[drained][t].is_empty() {
                    self.lists[drained][t].hand_over(&mut heir);
                }
                self.lists[youngest][t] = heir;
            }
        }
    }

    /// Pages of a type.
    pub fn total(&self, page_type: PageType) -> u64 {
        self.size.iter().map(|by_type| by_type[page_type.index()]).sum()
    }

    /// Pages of a type in the generations of the window. A page that was promoted while its list could not be scanned
    /// may belong to a generation that has left the window since.
    pub fn in_window(&self, page_type: PageType) -> u64 {
        let t = page_type.index();
        (self.min_seq[t]..=self.max_seq).map(|seq| self.size[self.slot(seq)][t]).sum()
    }

    /// Pages of a type in the two youngest generations.
    pub fn active(&self, page_type: PageType) -> u64 {
        let t = page_type.index();
        self.size[self.slot(self.max_seq)][t] + self.size[self.slot(self.max_seq - 1)][t]
    }

    /// A page changes generation without changing lists.
    #[inline]
    pub fn move_size(&mut self, page_type: PageType, from: usize, to: usize) {
        self.size[from][page_type.index()] -= 1;
        self.size[to][page_type.index()] += 1;
    }

    /// Oldest first.
    pub fn listing(&self) -> Vec<GenerationSize> {
        let oldest = self.min_seq[0].min(self.min_seq[1]);
        (oldest..=self.max_seq)
            .map(|seq| GenerationSize {
                seq,
                birth: self.birth[self.slot(seq)],
                pages: PageType::ALL
                    .map(|t| if seq < self.min_seq[t.index()] { 0 } else { self.size[self.slot(seq)][t.index()] }),
            })
            .collect()
    }

    /// Oldest first, from as far back as there are slots (spec: mglru §15, `lru_gen_full`).
    pub fn details(&self) -> Vec<GenerationDetails> {
        (self.max_seq.saturating_sub(self.window.max - 1)..=self.max_seq)
            .map(|seq| {
                let tier = |tier: usize| {
                    PageType::ALL.map(|page_type| {
                        let (t, history) = (page_type.index(), &self.history[page_type.index()]);
                        if seq == self.max_seq {
                            let (refaulted, total) = (history.avg_refaulted[tier], history.avg_total[tier]);
                            TierHistory::Averages { refaulted, total }
                        } else if seq == self.min_seq[t] {
                            let (refaulted, evicted) = (history.refaulted[tier], history.evicted[tier]);
                            TierHistory::Current { refaulted, evicted, protected: history.protected[tier] }
                        } else {
                            TierHistory::None
                        }
                    })
                };
                let pages = PageType::ALL.map(|t| self.size[self.slot(seq)][t.index()]);
                GenerationDetails {
                    size: GenerationSize { seq, birth: self.birth[self.slot(seq)], pages },
                    gone: PageType::ALL.map(|t| seq < self.min_seq[t.index()]),
                    tiers: (0..MAX_TIERS).map(tier).collect(),
                    walks: (seq == self.max_seq).then_some(self.walks),
                }
            })
            .collect()
    }

    pub fn bytes(&self) -> usize {
        size_of::<Lruvec>()
            + self.lists.iter().flatten().map(Deque::bytes).sum::<usize>()
            + self.filters.iter().flatten().map(Filter::bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_halve() {
        let mut history = History::default();
        let averages = [1000, 200, 0].map(|refaulted| {
            history.refaulted[0] = refaulted;
            history.fold();
            history.avg_refaulted[0]
        });
        assert_eq!(averages, [500, 350, 175]);
    }
}
