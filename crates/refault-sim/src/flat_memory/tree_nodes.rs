//! Nodes of the file's tree, 64 neighbouring slots each, and which of them are given back (spec: workingset §8).
//!
//! A slot holds a page, or the shadow entry that an evicted page left. A node that holds entries and nothing else takes
//! room for the sake of refaults alone. Reclaim allows a group one such node for each eight of its pages; what is
//! beyond that is offered to every visit. The visit frees half of it, and never fewer than 128 nodes at once unless
//! that is all. Nodes that have held no page for longest are freed first. The entries of a freed node are lost: its
//! pages come back as if for the first time.
//!
//! Invariants: a node is in `order` if and only if it holds entries and no page; `there` counts the nodes that hold
//! anything. Cost: 10 bytes a node; O(1) as pages come and go, O(log nodes) where a node begins or ceases to hold
//! entries alone.
//!
//! Kernel: `workingset_update_node`, `count_shadow_nodes`, `scan_shadow_nodes` in `mm/workingset.c`; `do_shrink_slab` in
//! `mm/shrinker.c`.

use std::collections::BTreeMap;
use std::ops::Range;

use refault_core::memory::ShadowNodes;
use refault_core::{LruvecId, PageId};

use super::addresses::number_blocks;
use super::{FlatMemory, bits};

/// Slots of a node.
const SLOTS: u64 = 64;
/// Nodes that are freed at once.
const BATCH: u64 = 128;
/// Bytes that a group is charged for a node, and those of a page.
const NODE_BYTES: u64 = 584;
const PAGE_BYTES: u64 = 4096;

/// What the slots of a node hold.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    pages: u8,
    entries: u8,
}

/// See the module.
#[derive(Debug)]
pub(super) struct TreeNodes {
    /// The first file page.
    first: PageId,
    /// Node of each file page, where it is not a 64th of its number. Ascending.
    numbers: Option<Vec<u32>>,
    held: Vec<Held>,
    /// When a node came to hold entries alone, if it does; 0 otherwise.
    since: Vec<u64>,
    /// The nodes that hold entries alone, by when they came to.
    order: BTreeMap<u64, u32>,
    /// Nodes that came to hold entries alone so far.
    came: u64,
    /// Nodes that hold anything.
    there: u64,
    /// What earlier visits left undone.
    deferred: u64,
}

impl TreeNodes {
    /// Nodes of the pages from `first` on whose places in the file ascend.
    fn new(first: PageId, pages: usize, places: Option<&[u64]>) -> TreeNodes {
        let (numbers, nodes) = match places.map(|places| number_blocks(places, SLOTS)) {
            None => (None, pages.div_ceil(SLOTS as usize)),
            Some((numbers, nodes)) => (Some(numbers), nodes),
        };
        TreeNodes {
            first,
            numbers,
            held: vec![Held::default(); nodes],
            since: vec![0; nodes],
            order: BTreeMap::new(),
            came: 0,
            there: 0,
            deferred: 0,
        }
    }

    /// A page's node holds `pages` pages and `entries` entries more.
    fn change(&mut self, page: PageId, pages: i8, entries: i8) {
        let at = (page - self.first) as usize;
        let node = self.numbers.as_ref().map_or(at / SLOTS as usize, |numbers| numbers[at] as usize);
        let held = &mut self.held[node];
        let was_there = held.pages + held.entries > 0;
        held.pages = held.pages.strict_add_signed(pages);
        held.entries = held.entries.strict_add_signed(entries);
        let is_there = held.pages + held.entries > 0;
        self.there = self.there + u64::from(is_there) - u64::from(was_there);
        let is_alone = held.pages == 0 && held.entries > 0;
        let since = &mut self.since[node];
        match (*since > 0, is_alone) {
            (false, true) => {
                self.came += 1;
                *since = self.came;
                self.order.insert(self.came, node as u32);
            }
            (true, false) => {
                self.order.remove(since);
                *since = 0;
            }
            _ => {}
        }
    }

    /// Nodes that hold entries alone beyond those that a group of `pages` pages, and its nodes, may have.
    fn excess(&self, pages: u64) -> u64 {
        let slab = self.there * NODE_BYTES / PAGE_BYTES;
        (self.order.len() as u64).saturating_sub((pages + slab) / 8)
    }

    /// One visit: the pages of the nodes that it frees.
    fn visit(&mut self, priority: u8, pages: u64) -> Vec<Range<PageId>> {
        let excess = self.excess(pages);
        if excess == 0 {
            return Vec::new();
        }
        let mut want = ((self.deferred >> priority) + excess / 2).min(2 * excess);
        let (mut looked_for, mut freed) = (0, Vec::new());
        while want >= BATCH || want >= excess {
            let some = want.min(BATCH);
            freed.extend((0..some).map_while(|_| self.free_oldest()));
            looked_for += some;
            want -= some;
        }
        self.deferred = (self.deferred + excess / 2).saturating_sub(looked_for).min(2 * excess);
        freed
    }

    /// Frees the node that has held entries alone for longest.
    fn free_oldest(&mut self) -> Option<Range<PageId>> {
        let (_, node) = self.order.pop_first()?;
        self.since[node as usize] = 0;
        self.held[node as usize] = Held::default();
        self.there -= 1;
        let places = match &self.numbers {
            None => node as usize * SLOTS as usize..(node as usize + 1) * SLOTS as usize,
            Some(numbers) => numbers.partition_point(|n| *n < node)..numbers.partition_point(|n| *n <= node),
        };
        Some(self.first + places.start as PageId..self.first + places.end as PageId)
    }

    pub fn bytes(&self) -> usize {
        self.held.capacity() * size_of::<Held>()
            + self.since.capacity() * size_of::<u64>()
            + self.numbers.as_ref().map_or(0, |numbers| numbers.capacity() * size_of::<u32>())
            + self.order.len() * size_of::<(u64, u32)>()
    }
}

/// What happens to a slot, as pages and entries that its node holds more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    PageCame,
    PageLeft,
    PageLeftEntry,
    EntryCame,
    EntryLeft,
}

impl FlatMemory {
    /// The group has `pages` locked pages that the layout does not. Reclaim never evicts them and no limit counts them,
    /// but they too allow the group to keep shadow entries.
    pub fn set_locked(&mut self, pages: u64) {
        self.locked = pages;
    }

    /// Notes what happens to the slot of a page, where nodes are followed.
    #[inline]
    pub(super) fn note_slot(&mut self, page: PageId, event: Event) {
        if self.nodes.is_some() {
            self.change_node(page, event);
        }
    }

    /// Apart, so that replays that follow no nodes pay for one look at whether they do.
    #[cold]
    #[inline(never)]
    fn change_node(&mut self, page: PageId, event: Event) {
        let Some(nodes) = self.nodes.as_mut().filter(|_| page >= self.file_base) else { return };
        let (pages, entries) = match event {
            Event::PageCame => (1, 0),
            Event::PageLeft => (-1, 0),
            Event::PageLeftEntry => (-1, 1),
            Event::EntryCame => (0, 1),
            Event::EntryLeft => (0, -1),
        };
        nodes.change(page, pages, entries);
    }
}

impl ShadowNodes for FlatMemory {
    fn follow(&mut self) {
        if self.nodes.is_some() {
            return;
        }
        let (first, ids) = (self.file_base, self.state.len());
        let places = self.addresses.as_ref().map(|addresses| &addresses[first as usize..]);
        let mut nodes = TreeNodes::new(first, ids - first as usize, places);
        for page in first..ids as PageId {
            if self.state[page as usize] & bits::RESIDENT != 0 {
                nodes.change(page, 1, 0);
            } else if self.shadows.get(page).is_some() {
                nodes.change(page, 0, 1);
            }
        }
        self.nodes = Some(Box::new(nodes));
    }

    fn visited(&mut self, _lruvec: LruvecId, priority: u8, pages: u64) {
        let Some(nodes) = &mut self.nodes else { return };
        let freed = nodes.visit(priority, pages + self.locked);
        self.counters.workingset_nodereclaim += freed.len() as u64;
        for page in freed.into_iter().flatten() {
            self.shadows.take(page);
        }
    }
}
