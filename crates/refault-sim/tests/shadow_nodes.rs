//! Shadow entries are taken back 64 at a time (spec: workingset §8): the replay's memory against a slow model, and what
//! policies have it do.

use std::collections::BTreeMap;

use proptest::prelude::*;
use refault_core::memory::ShadowNodes;
use refault_core::mglru::Version;
use refault_core::{Classic, ClassicParams, Counters, Memory, Mglru, MglruParams, PageId, Policy, Shadow};
use refault_sim::flat_memory::Swap;
use refault_sim::{Access, FlatMemory, Layout, LayoutBuilder, Limits, Replay};
use refault_trace::{Entry, Kind};

/// Pages that a node of the tree has slots for.
const SLOTS: u64 = 64;

/// What the slot of a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Empty,
    Page,
    Entry(u64),
}

/// The section again: what can be counted anew is counted anew.
struct Model {
    /// Slots by page id, and the node of each.
    slots: Vec<Slot>,
    node_of: Vec<u64>,
    /// The file pages of each node.
    nodes: BTreeMap<u64, Vec<usize>>,
    /// Nodes with entries and no page, those that became so first at the front.
    lonely: Vec<u64>,
    deferred: u64,
    freed: u64,
}

impl Model {
    fn new(layout: &Layout) -> Model {
        let node_of: Vec<u64> = (0..layout.ids() as PageId).map(|id| layout.address(id) / SLOTS).collect();
        let mut nodes: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (id, node) in node_of.iter().enumerate().skip(layout.file_base() as usize) {
            nodes.entry(*node).or_default().push(id);
        }
        Model { slots: vec![Slot::Empty; layout.ids()], node_of, nodes, lonely: Vec::new(), deferred: 0, freed: 0 }
    }

    fn set(&mut self, page: PageId, slot: Slot) {
        self.slots[page as usize] = slot;
        let node = self.node_of[page as usize];
        let Some(pages) = self.nodes.get(&node) else { return };
        let slots: Vec<Slot> = pages.iter().map(|page| self.slots[*page]).collect();
        let is_lonely = !slots.contains(&Slot::Page) && slots.iter().any(|slot| *slot != Slot::Empty);
        if !is_lonely {
            self.lonely.retain(|lonely| *lonely != node);
        } else if !self.lonely.contains(&node) {
            self.lonely.push(node);
        }
    }

    fn visit(&mut self, priority: u8, pages: u64) {
        let is_there = |pages: &&Vec<usize>| pages.iter().any(|page| self.slots[*page] != Slot::Empty);
        let there = self.nodes.values().filter(is_there).count() as u64;
        let most = (pages + there * 584 / 4096) >> 3;
        let nodes = self.lonely.len() as u64;
        if nodes <= most {
            return;
        }
        let excess = nodes - most;
        let half = excess / 2;
        let mut want = std::cmp::min((self.deferred >> priority) + half, 2 * excess);
        let mut looked_for = 0;
        while want >= 128 || want >= excess {
            let some = std::cmp::min(128, want);
            for node in self.lonely.drain(..self.lonely.len().min(some as usize)) {
                self.freed += 1;
                self.nodes[&node].iter().for_each(|page| self.slots[*page] = Slot::Empty);
            }
            want -= some;
            looked_for += some;
        }
        self.deferred = std::cmp::min((self.deferred + half).saturating_sub(looked_for), 2 * excess);
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A page comes in, or is evicted if it is there, leaving an entry or none.
    Touch(prop::sample::Index, bool),
    /// A number of pages in a row are evicted, or come in.
    Stretch(prop::sample::Index, usize, bool),
    /// The entry of an evicted page is changed.
    Change(prop::sample::Index),
    Visit(u8, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let page = any::<prop::sample::Index>;
    let visit = (prop_oneof![2 => 0..=2u8, 1 => 0..=12u8], prop_oneof![2 => Just(0), 1 => 0..400u64]);
    let step = prop_oneof![
        4 => (page(), prop::bool::weighted(0.9)).prop_map(|(page, leaves)| Step::Touch(page, leaves)),
        3 => (page(), 1..2000usize, prop::bool::weighted(0.7)).prop_map(|(page, n, out)| Step::Stretch(page, n, out)),
        1 => page().prop_map(Step::Change),
        3 => visit.prop_map(|(priority, pages)| Step::Visit(priority, pages)),
    ];
    prop::collection::vec(step, 1..60)
}

/// Layouts whose file is dense, sparse with holes of all sizes, and behind anonymous memory.
fn layout(kind: usize) -> Layout {
    let file = |page| Entry::new(page, Kind::Fd, false);
    let entries: Vec<Entry> = match kind {
        0 => (0..20_000).map(file).collect(),
        1 => (0..9_000u64).map(|n| file(n / 30 * 1000 + n % 30)).collect(),
        _ => (0..700).map(|page| Entry::new(page, Kind::Anon, false)).chain((100..18_000).map(file)).collect(),
    };
    let mut builder = LayoutBuilder::new();
    builder.observe(&entries);
    builder.finish().expect("a small trace")
}

/// Both, step by step.
struct Pair {
    memory: FlatMemory,
    model: Model,
    evictions: u64,
}

impl Pair {
    fn comes_in(&mut self, page: PageId) {
        let theirs = self.model.slots[page as usize];
        let ours = self.memory.take_shadow(page).map_or(Slot::Empty, |shadow| Slot::Entry(shadow.0));
        assert_eq!(ours, theirs, "page {page}");
        self.memory.insert(page);
        self.model.set(page, Slot::Page);
    }

    fn goes(&mut self, page: PageId, leaves: bool) {
        self.evictions += 1;
        let shadow = if leaves { Shadow(self.evictions << 24 | 1) } else { Shadow::NONE };
        self.memory.evict(page, shadow);
        self.model.set(page, if leaves { Slot::Entry(shadow.0) } else { Slot::Empty });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn the_memory_keeps_the_entries_that_the_section_says(
        kind in 0..3usize,
        late in any::<bool>(),
        locked in prop_oneof![Just(0), Just(142), 0..2000u64],
        steps in steps(),
    ) {
        let layout = layout(kind);
        let mut memory = FlatMemory::new(&layout, Swap::default());
        memory.set_locked(locked);
        let mut pair = Pair { memory, model: Model::new(&layout), evictions: 0 };
        // Following may begin when there are pages, and entries beside them.
        if !late {
            pair.memory.follow();
        }
        for page in 0..layout.ids() as PageId {
            if page % 3 != 0 {
                pair.comes_in(page);
            }
            if page % 21 == 10 {
                pair.goes(page, true);
            }
        }
        pair.memory.follow();
        for step in steps {
            match step {
                Step::Touch(page, leaves) => {
                    let page = page.index(layout.ids()) as PageId;
                    if pair.memory.is_resident(page) { pair.goes(page, leaves) } else { pair.comes_in(page) }
                }
                Step::Stretch(first, count, out) => {
                    let first = first.index(layout.ids());
                    for page in first as PageId..(first + count).min(layout.ids()) as PageId {
                        match (pair.memory.is_resident(page), out) {
                            (true, true) => pair.goes(page, true),
                            (false, false) => pair.comes_in(page),
                            _ => {}
                        }
                    }
                }
                Step::Change(page) => {
                    let page = page.index(layout.ids()) as PageId;
                    if let Slot::Entry(word) = &mut pair.model.slots[page as usize] {
                        *word += 2 << 24;
                        pair.memory.set_shadow(page, Shadow(*word));
                    }
                }
                Step::Visit(priority, pages) => {
                    pair.memory.visited(0, priority, pages);
                    pair.model.visit(priority, pages + locked);
                }
            }
            prop_assert_eq!(pair.memory.counters().workingset_nodereclaim, pair.model.freed);
        }
        for page in 0..layout.ids() as PageId {
            let theirs = match pair.model.slots[page as usize] {
                Slot::Entry(word) => Some(Shadow(word)),
                _ => None,
            };
            prop_assert_eq!(pair.memory.shadow(page), theirs, "page {}", page);
        }
    }
}

/// Counters of a policy under which a file of `pages` pages is read in a row, twice.
fn read_twice<P: Policy>(policy: P, pages: u64, memory_pages: usize) -> Counters {
    let entries: Vec<Entry> = (0..2 * pages).map(|n| Entry::new(n % pages, Kind::Fd, false)).collect();
    let mut builder = LayoutBuilder::new();
    builder.observe(&entries);
    let layout = builder.finish().expect("a small trace");
    let mut accesses: Vec<Access> = Vec::new();
    layout.translate(&entries, &mut accesses);
    let mut replay = Replay::new(&layout, policy, Limits { memory_pages, swap: Swap::default() });
    replay.run(&accesses);
    let outcome = replay.outcome();
    assert_eq!(outcome.misses, 2 * pages, "a scan larger than memory misses everywhere");
    outcome.counters
}

fn classic(shadow_nodes: bool) -> Classic {
    Classic::new(ClassicParams { shadow_nodes, ..ClassicParams::default() })
}

fn mglru(version: Version, shadow_nodes: bool) -> Mglru {
    Mglru::new(MglruParams { version, shadow_nodes, ..MglruParams::default() })
}

/// 512 pages may keep 64 nodes, and a few for the nodes' own memory. Of what is beyond, 256 nodes lose half at once.
#[test]
fn a_file_of_many_times_memory_loses_the_entries_of_what_was_evicted_first() {
    let nodes = 2048;
    let file = nodes * SLOTS;
    for counters in [read_twice(classic(true), file, 512), read_twice(mglru(Version::V6_12, true), file, 512)] {
        let (kept, freed) = (counters.workingset_refault_file, counters.workingset_nodereclaim);
        assert_eq!(kept, 0, "a page comes back after its entry has gone");
        let came = 2 * nodes - 512 / SLOTS;
        assert!((came - 64 - 256 - 64..came).contains(&freed), "{freed} of {came}");
    }
    for counters in [read_twice(classic(false), file, 512), read_twice(mglru(Version::V6_12, false), file, 512)] {
        assert_eq!((counters.workingset_refault_file, counters.workingset_nodereclaim), (file, 0));
    }
}

/// Only 7.2's generations, whose pages do not count, lose entries of a file that is not larger than eight times memory.
#[test]
fn entries_of_a_file_of_a_few_times_memory_are_kept_but_by_7_2() {
    let file = 512 * SLOTS;
    for kept in [read_twice(classic(true), file, 8192), read_twice(mglru(Version::V6_12, true), file, 8192)] {
        assert_eq!((kept.workingset_refault_file, kept.workingset_nodereclaim), (file, 0));
    }
    let counters = read_twice(mglru(Version::V7_2, true), file, 8192);
    let lost = file - counters.workingset_refault_file;
    assert!(lost >= SLOTS * 128 && lost <= SLOTS * counters.workingset_nodereclaim, "{counters:?}");
    let without = read_twice(mglru(Version::V7_2, false), file, 8192);
    assert_eq!((without.workingset_refault_file, without.workingset_nodereclaim), (file, 0));
}
