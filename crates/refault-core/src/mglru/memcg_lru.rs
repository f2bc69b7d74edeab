//! Reclaim of a whole node: the memcg LRU, the initial priority, thrashing prevention (spec: mglru §11–§14).
//!
//! The groups of a node stand in two live generations of their own, each with eight bins. A pass visits the old
//! generation. A group that was aged moves to the young one. So pressure goes round all groups and reclaim can stop as
//! soon as it has enough. Bins are chosen by a generator seeded with the node's root, so that runs repeat.
//!
//! Cost: O(1) per move; a pass is O(groups visited).
//!
//! Kernel: `lru_gen_shrink_node`, `set_initial_priority`, `shrink_many`, `shrink_one`, `lru_gen_rotate_memcg`,
//! `lru_gen_age_node`, `lruvec_is_reclaimable` in `mm/vmscan.c`.

use std::collections::VecDeque;

use crate::memory::{Memory, free_swap, low_event, node_frames, protection};
use crate::mglru::Mglru;
use crate::mglru::aging::usable;
use crate::page::{LruvecId, PageType};
use crate::policy::giving::{Standing, has_outlived};
use crate::reclaim::control::{DEFAULT_PRIORITY, ScanControl, shrink_shadows};

/// Generations of groups that there is room for; two are live.
const GENERATIONS: usize = 3;
/// Bins of a generation.
const BINS: usize = 8;
/// The hardest priority that background reclaim starts with by itself.
const HARDEST_START: u32 = 6;
/// Frames beyond the high watermark at which background reclaim stops early.
const ENOUGH: u64 = 64;

/// Where a group stands in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Segment {
    Default,
    Tail,
}

/// Where to a group moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// To the tail of the same generation: one more chance in this round.
    Tail,
    /// To the young generation: done for this round.
    Young,
}

/// The groups of one node.
#[derive(Clone, Debug)]
pub(super) struct MemcgLru {
    seq: usize,
    lists: [[VecDeque<LruvecId>; BINS]; GENERATIONS],
    /// Generation, bin and segment by lruvec; none for those of other nodes.
    places: Vec<Option<(usize, usize, Segment)>>,
    random: u64,
}

impl MemcgLru {
    pub fn new(root: LruvecId) -> MemcgLru {
        MemcgLru {
            seq: 0,
            lists: Default::default(),
            places: Vec::new(),
            random: u64::from(root).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        }
    }

    fn random_bin(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32) as usize % BINS
    }

    /// A group comes in at the old end.
    pub fn add(&mut self, lruvec: LruvecId) {
        if self.places.len() <= lruvec as usize {
            self.places.resize(lruvec as usize + 1, None);
        }
        let (generation, bin) = (self.seq % GENERATIONS, self.random_bin());
        self.lists[generation][bin].push_back(lruvec);
        self.places[lruvec as usize] = Some((generation, bin, Segment::Default));
    }

    /// Moves a group.
    pub fn rotate(&mut self, lruvec: LruvecId, to: Move) {
        let Some((generation, bin, _)) = self.places[lruvec as usize] else { return };
        self.lists[generation][bin].retain(|member| *member != lruvec);
        let (target, segment) = match to {
            Move::Tail => (generation, Segment::Tail),
            Move::Young => ((self.seq + 1) % GENERATIONS, Segment::Default),
        };
        let target_bin = self.random_bin();
        self.lists[target][target_bin].push_back(lruvec);
        self.places[lruvec as usize] = Some((target, target_bin, segment));
        // The old generation is used up: the young one becomes the old one.
        if self.lists[self.seq % GENERATIONS].iter().all(VecDeque::is_empty) {
            self.seq += 1;
        }
    }

    fn segment(&self, lruvec: LruvecId) -> Segment {
        self.places[lruvec as usize].map_or(Segment::Default, |place| place.2)
    }
}

impl Mglru {
    /// The root lruvec of a node.
    fn root_of(&self, lruvec: LruvecId) -> LruvecId {
        *self.hierarchy.ancestors(lruvec).last().expect("invariant: an lruvec is among its ancestors")
    }

    /// Puts a new lruvec into the memcg LRU of its node.
    pub(super) fn join_node(&mut self, lruvec: LruvecId) {
        let root = self.root_of(lruvec);
        while self.nodes.len() <= root as usize {
            self.nodes.push(None);
        }
        self.nodes[root as usize].get_or_insert_with(|| MemcgLru::new(root)).add(lruvec);
    }

    /// A group was aged by reclaim for a limit: its turn in global reclaim is over.
    pub(super) fn rotate_young(&mut self, lruvec: LruvecId) {
        let root = self.root_of(lruvec);
        if let Some(Some(node)) = self.nodes.get_mut(root as usize) {
            node.rotate(lruvec, Move::Young);
        }
    }

    /// Background reclaim with much to do starts harder (spec: mglru §12). Anonymous pages count if there is swap for
    /// them.
    pub(super) fn set_initial_priority<M: Memory>(&self, control: &mut ScanControl, memory: &mut M) {
        if control.priority != DEFAULT_PRIORITY || control.goal < 64 {
            return;
        }
        let types: &[PageType] = if free_swap(memory, control.target) > 0 { &PageType::ALL } else { &[PageType::File] };
        let inactive: u64 = (self.hierarchy.subtree(control.target).iter())
            .map(|id| {
                let lruvec = &self.lruvecs[*id as usize];
                types.iter().map(|t| lruvec.total(*t) - lruvec.active(*t)).sum::<u64>()
            })
            .sum();
        let fls = |value: u64| 64 - value.leading_zeros();
        let priority = fls(inactive).saturating_sub(1).saturating_sub(fls(control.goal - 1));
        control.priority = priority.clamp(HARDEST_START, u32::from(DEFAULT_PRIORITY)) as u8;
    }

    /// Whether enough was freed for a pass over a node to end. Reclaim for a limit finishes its budget.
    pub(super) fn should_abort<M: Memory>(&self, control: &ScanControl, memory: &mut M) -> bool {
        if control.targeted {
            return false;
        }
        if control.reclaimed >= control.goal.max(2) {
            return true;
        }
        if !control.background {
            return false;
        }
        let frames = node_frames(memory, control.target);
        frames.free > frames.high_watermark + ENOUGH
    }

    /// Pages that could be evicted.
    fn evictable<M: Memory>(&self, lruvec: LruvecId, memory: &mut M) -> u64 {
        let can_anon = free_swap(memory, lruvec) >= 64;
        usable(can_anon).map(|t| self.lruvecs[lruvec as usize].total(t)).sum()
    }

    /// One pass over the old generation of a node's groups.
    pub(super) fn shrink_groups<M: Memory>(&mut self, control: &mut ScanControl, memory: &mut M) {
        let root = control.target as usize;
        let Some(Some(mut node)) = self.nodes.get_mut(root).map(Option::take) else { return };
        let old = node.seq % GENERATIONS;
        let first = node.random_bin();
        'pass: for bin in (0..BINS).map(|i| (first + i) % BINS) {
            let mut at = 0;
            while let Some(&lruvec) = node.lists[old][bin].get(at) {
                let moved = self.shrink_group(lruvec, node.segment(lruvec), control, memory);
                match moved {
                    None => at += 1,
                    Some(to) => node.rotate(lruvec, to),
                }
                if self.should_abort(control, memory) || node.seq % GENERATIONS != old {
                    break 'pass;
                }
            }
        }
        self.nodes[root] = Some(node);
    }

    /// Visits one group; where it goes afterwards.
    fn shrink_group<M: Memory>(
        &mut self,
        lruvec: LruvecId,
        segment: Segment,
        control: &mut ScanControl,
        memory: &mut M,
    ) -> Option<Move> {
        if lruvec != control.target
            && let Some(protection) = protection(memory, lruvec)
        {
            match protection.standing() {
                Standing::Min => return Some(Move::Young),
                Standing::Low if segment != Segment::Tail => {
                    control.low_skipped = true;
                    return Some(Move::Tail);
                }
                Standing::Low => low_event(memory, lruvec),
                Standing::Open => {}
            }
        }
        self.walk_context = control.background;
        let aged = self.shrink(lruvec, control, memory);
        self.walk_context = false;
        shrink_shadows(self, lruvec, control, memory);
        if aged {
            return Some(Move::Young);
        }
        if self.evictable(lruvec, memory) >> control.priority != 0 {
            return None;
        }
        Some(if segment == Segment::Tail { Move::Young } else { Move::Tail })
    }

    /// Whether no group of the node has a generation that is older than `min_ttl` (spec: mglru §13).
    pub(super) fn is_starved<M: Memory>(&self, control: &ScanControl, min_ttl: u64, memory: &mut M) -> bool {
        !self.hierarchy.subtree(control.target).iter().any(|&id| {
            let lruvec = &self.lruvecs[id as usize];
            let birth = lruvec.birth[lruvec.oldest(PageType::File)];
            !is_below_min(id, control, memory)
                && self.evictable(id, memory) >> control.priority != 0
                && has_outlived(birth, min_ttl, memory.now())
        })
    }
}

/// Whether a group below the target has come down to what is never reclaimed from it.
pub(super) fn is_below_min<M: Memory>(id: LruvecId, control: &ScanControl, memory: &mut M) -> bool {
    id != control.target && protection(memory, id).is_some_and(|protection| protection.standing() == Standing::Min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Eviction, Groups, NodeFrames, Protection, References, SwapSpace};
    use crate::mglru::{MglruParams, Version};
    use crate::page::{PageId, Shadow};
    use crate::policy::{Admission, NodeReclaim, Policy};

    #[test]
    fn a_round_visits_every_group_once() {
        let mut node = MemcgLru::new(0);
        (0..5).for_each(|lruvec| node.add(lruvec));
        let old = node.seq % GENERATIONS;
        for lruvec in 0..5 {
            assert_eq!(node.seq % GENERATIONS, old, "group {lruvec} is still to come");
            node.rotate(lruvec, Move::Young);
        }
        assert_eq!(node.seq, 1, "the young generation became the old one");
        assert!((0..5).all(|lruvec| node.places[lruvec].is_some_and(|place| place.0 == 1)));
    }

    #[test]
    fn a_second_chance_stays_in_the_same_generation() {
        let mut node = MemcgLru::new(7);
        node.add(7);
        node.add(8);
        node.rotate(8, Move::Tail);
        assert_eq!((node.seq, node.segment(8)), (0, Segment::Tail));
        node.rotate(8, Move::Young);
        assert_eq!(node.segment(8), Segment::Default);
    }

    /// A memory with or without swap, whose group 1 may not come below `min` and is charged what is resident.
    struct Guarded {
        swap: u64,
        min: u64,
        low: u64,
        resident: u64,
    }

    impl Memory for Guarded {
        fn take_references(&mut self, _: PageId) -> References {
            References::default()
        }
        fn evict(&mut self, _: PageId, _: Shadow) -> Eviction {
            self.resident -= 1;
            Eviction::Freed { pages_written: 0 }
        }
        fn is_resident(&self, _: PageId) -> bool {
            true
        }
        fn swap(&mut self) -> Option<&mut impl SwapSpace> {
            Some(self)
        }
        fn groups(&mut self) -> Option<&mut impl Groups> {
            Some(self)
        }
    }

    impl SwapSpace for Guarded {
        fn free_swap(&self, _: LruvecId) -> u64 {
            self.swap
        }
    }

    impl Groups for Guarded {
        fn protection(&self, lruvec: LruvecId) -> Option<Protection> {
            (lruvec == 1).then_some(Protection { usage: self.resident, min: self.min, low: self.low.max(self.min) })
        }
        fn node_frames(&self, _: LruvecId) -> NodeFrames {
            NodeFrames::default()
        }
    }

    /// A root and a group below it that has read this many pages.
    fn group_with(version: Version, pages: u32, memory: &mut Guarded) -> Mglru {
        let mut mglru = Mglru::new(MglruParams { batch: 0, version, ..MglruParams::default() });
        mglru.add_lruvec(Some(0));
        mglru.grow(pages as usize);
        for page in 0..pages {
            memory.resident += 1;
            let admission = Admission { lruvec: 1, ..Admission::read(PageType::File) };
            mglru.admit(page, &admission, memory);
        }
        mglru
    }

    #[test]
    fn a_visit_stops_where_the_group_has_come_down_to_its_min() {
        for version in [Version::V6_12, Version::V7_2] {
            let mut memory = Guarded { swap: 0, min: 900, low: 0, resident: 0 };
            let mut mglru = group_with(version, 1000, &mut memory);
            // A budget of 500 for each visit.
            let mut control = ScanControl::for_limit(0, 1 << 20);
            control.priority = 1;
            for _ in 0..4 {
                mglru.shrink(1, &mut control, &mut memory);
            }
            // A step of 64 may begin above it, none may begin below.
            assert!((900 - 64..=900).contains(&memory.resident), "{version:?}: {} are left", memory.resident);
        }
    }

    #[test]
    fn protection_makes_the_budget_of_7_2_smaller_and_that_of_6_12_not() {
        let left = |version| {
            let mut memory = Guarded { swap: 0, min: 0, low: 900, resident: 0 };
            let mut mglru = group_with(version, 1000, &mut memory);
            let mut control = ScanControl::for_limit(0, 1 << 20);
            control.priority = 0;
            mglru.shrink(1, &mut control, &mut memory);
            memory.resident
        };
        // 1000 pages of which 900 of 1001 parts are spared: 101 to scan, in steps of 64 (spec: mglru §16.3, classic
        // §9).
        assert_eq!((1000 - left(Version::V7_2)).div_ceil(64), 2);
        assert!(left(Version::V6_12) < 500, "6.12 tests protection before a visit only (spec: mglru §19)");
    }

    #[test]
    fn anonymous_pages_that_cannot_be_swapped_do_not_make_reclaim_start_gently() {
        let priority = |swap: u64| {
            let mut memory = Guarded { swap, min: 0, low: 0, resident: 0 };
            let mut mglru = Mglru::new(MglruParams::default());
            mglru.add_lruvec(Some(0));
            let oldest = mglru.lruvecs[1].oldest(PageType::Anon);
            mglru.lruvecs[1].size[oldest][PageType::Anon.index()] = 400_000;
            let mut control = ScanControl::for_limit(0, 64);
            mglru.set_initial_priority(&mut control, &mut memory);
            control.priority
        };
        // 400 000 pages for a goal of 64: 19 - 1 - 6; without swap there is nothing to reclaim (spec: mglru §12).
        assert_eq!((priority(1000), priority(0)), (12, 6));
    }
}
