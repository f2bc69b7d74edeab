//! The worked examples and check lists of the description of the kernels' behaviour, as far as they show from outside:
//! how many pages a limit hit frees (spec: overview §4.6), which refaults activate (spec: workingset §10), how the
//! window of generations moves (spec: mglru §18).

use refault_core::classic::RefaultRule;
use refault_core::memory::{Eviction, PageTables, References, SwapSpace, Walk};
use refault_core::mglru::Version;
use refault_core::policy::node::{self, add_lruvec};
use refault_core::policy::{Admission, GenerationSize, Lists, ReclaimRequest};
use refault_core::workingset::shadow::ShadowFields;
use refault_core::{Classic, ClassicParams, LruvecId, Memory, Mglru, MglruParams, PageId, PageType, Policy, Shadow};

/// One address space, synchronous swap or none, and, if told so, only one page that can be evicted.
struct Bench {
    resident: Vec<bool>,
    young: Vec<bool>,
    shadows: Vec<Option<Shadow>>,
    evicted: Vec<PageId>,
    only: Option<PageId>,
    swap: bool,
    anon: PageId,
    lruvec: fn(PageId) -> LruvecId,
}

impl Memory for Bench {
    fn take_references(&mut self, page: PageId) -> References {
        let young = std::mem::take(&mut self.young[page as usize]);
        References { mappings: u32::from(young), ..References::default() }
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.resident[page as usize]
    }

    fn is_mapped(&self, page: PageId) -> bool {
        page < self.anon
    }

    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        if self.only.is_some_and(|only| only != page) {
            return Eviction::Kept;
        }
        self.resident[page as usize] = false;
        self.shadows[page as usize] = Some(shadow);
        self.evicted.push(page);
        Eviction::Freed { pages_written: u32::from(page < self.anon) }
    }

    fn page_tables(&mut self) -> Option<&mut impl PageTables> {
        Some(self)
    }

    fn swap(&mut self) -> Option<&mut impl SwapSpace> {
        self.swap.then_some(self)
    }
}

impl SwapSpace for Bench {
    fn free_swap(&self, _lruvec: LruvecId) -> u64 {
        1 << 40
    }
}

impl PageTables for Bench {
    fn walk<V: Walk>(&mut self, _lruvec: LruvecId, visitor: &mut V) -> bool {
        visitor.starts();
        for first in (0..self.anon).step_by(512) {
            let region = first..(first + 512).min(self.anon);
            if visitor.enters(u64::from(first / 512), None, true) {
                let mut young = 0;
                for page in region.clone() {
                    if self.resident[page as usize]
                        && visitor.eligible(page)
                        && std::mem::take(&mut self.young[page as usize])
                    {
                        visitor.young(page);
                        young += 1;
                    }
                }
                visitor.leaves(u64::from(first / 512), region.len() as u32, young);
            }
        }
        true
    }
}

/// A policy on the bench. Page ids below `anon` are anonymous.
struct Lab<P> {
    policy: P,
    memory: Bench,
    resident: usize,
}

impl<P: Policy> Lab<P> {
    fn new(mut policy: P, anon: usize, file: usize, swap: bool) -> Lab<P> {
        let pages = anon + file;
        policy.grow(pages);
        let memory = Bench {
            resident: vec![false; pages],
            young: vec![false; pages],
            shadows: vec![None; pages],
            evicted: Vec::new(),
            only: None,
            swap,
            anon: anon as PageId,
            lruvec: |_| 0,
        };
        Lab { policy, memory, resident: 0 }
    }

    fn admit(&mut self, page: PageId, overwrites: bool) {
        let anon = page < self.memory.anon;
        let shadow = self.memory.shadows[page as usize].take().filter(|_| !overwrites);
        let admission = match (anon, overwrites) {
            (true, _) => Admission::fault(PageType::Anon),
            (false, false) => Admission::read(PageType::File),
            (false, true) => Admission::overwrite(PageType::File),
        };
        let admission = admission.in_lruvec((self.memory.lruvec)(page)).with_shadow(shadow);
        self.policy.admit(page, &admission, &mut self.memory);
        self.memory.resident[page as usize] = true;
        self.memory.young[page as usize] = anon;
        self.resident += 1;
    }

    /// Brings the page in if it is not there; a file page is read, an anonymous one faulted.
    fn access(&mut self, page: PageId) {
        if !self.memory.resident[page as usize] {
            self.admit(page, false);
        }
        if page < self.memory.anon {
            self.memory.young[page as usize] = true;
        } else {
            self.policy.accessed(page, &mut self.memory);
        }
    }

    fn reclaim(&mut self, target: LruvecId) -> usize {
        let before = self.memory.evicted.len();
        self.policy.reclaim(&ReclaimRequest { target, goal: 32, incoming: None }, &mut self.memory);
        let freed = self.memory.evicted.len() - before;
        self.resident -= freed;
        freed
    }

    /// Evicts one page and no other, for the limit of a group.
    fn evict(&mut self, page: PageId, target: LruvecId) {
        self.memory.only = Some(page);
        self.reclaim(target);
        assert!(!self.memory.resident[page as usize], "page {page} should have been evicted");
        self.memory.only = None;
    }

    /// A monitor's scheme says that the page is to go.
    fn page_out(&mut self, page: PageId) -> ShadowFields {
        assert!(node::page_out(&mut self.policy, page, &mut self.memory), "page {page} should have gone");
        ShadowFields::unpack(self.memory.shadows[page as usize].expect("each eviction leaves an entry"))
    }

    /// Accesses fresh pages, each once, below a limit until it was hit `hits` times; what each hit freed.
    fn hits(&mut self, fresh: &mut std::ops::Range<PageId>, limit: usize, hits: usize) -> Vec<usize> {
        let mut freed = Vec::new();
        while freed.len() < hits {
            if self.resident >= limit {
                freed.push(self.reclaim(0));
            }
            self.access(fresh.next().expect("enough pages"));
        }
        freed
    }
}

/// Pages freed by each of some limit hits, all of clean file pages read once.
fn file_hits<P: Policy>(policy: P, limit: usize, hits: usize) -> Vec<usize> {
    let pages = limit + hits * 600;
    Lab::new(policy, 0, pages, false).hits(&mut (0..pages as PageId), limit, hits)
}

// --- spec: overview §4.6 ---

#[test]
fn classic_frees_what_the_table_says() {
    // Limit, pages that a hit frees if pages reach the lists at once, and with batches of 31.
    let table = [
        (4096, 58, 57),
        (16_384, 57, 56),
        (32_768, 54, 53),
        (65_536, 47, 46),
        (131_072, 32, 63),
        (262_144, 32, 32),
        (524_288, 32, 32),
    ];
    for (limit, exact, batched) in table {
        for (batch, expected) in [(0, exact), (31, batched)] {
            let freed = file_hits(Classic::new(ClassicParams { batch, ..ClassicParams::default() }), limit, 12);
            assert_eq!(freed[2..], [expected; 10], "limit {limit}, batch {batch}: {freed:?}");
        }
    }
}

#[test]
fn classic_scans_all_young_anonymous_pages_once() {
    let limit = 65_536;
    let pages = limit + 1000;
    let policy = Classic::new(ClassicParams { batch: 0, ..ClassicParams::default() });
    let mut lab = Lab::new(policy, pages, 0, true);
    let mut fresh = 0..pages as PageId;
    assert_eq!(lab.hits(&mut fresh, limit, 1), [53]);
    assert_eq!(lab.policy.counters().pgscan, 65_589);
    assert_eq!(lab.hits(&mut fresh, limit, 3), [40, 40, 40]);
}

#[test]
fn multi_gen_frees_in_lots_of_64() {
    for limit in [300, 4096, 65_536, 266_239] {
        let freed = file_hits(Mglru::new(MglruParams::default()), limit, 6);
        assert_eq!(freed, [64; 6], "limit {limit}");
    }
    assert_eq!(file_hits(Mglru::new(MglruParams::default()), 1_048_576, 3), [256; 3]);
}

#[test]
fn multi_gen_7_2_frees_what_classic_frees() {
    let params = MglruParams { version: Version::V7_2, ..MglruParams::default() };
    for (limit, expected) in [(4096, 58), (16_384, 57), (32_768, 54), (65_536, 47), (131_072, 32)] {
        let freed = file_hits(Mglru::new(params), limit, 6);
        assert_eq!(freed[2..], [expected; 4], "limit {limit}: {freed:?}");
    }
}

#[test]
fn multi_gen_ages_when_the_cold_generation_has_run_out() {
    let limit = 262_144;
    let mut lab = Lab::new(Mglru::new(MglruParams::default()), 3 * limit, 0, true);
    let mut fresh = 0..3 * limit as PageId;
    assert_eq!(lab.hits(&mut fresh, limit, 1), [512]);
    let window = seqs(&lab.policy.generations(0));
    assert_eq!(window, 3..=5);
    let small = lab.hits(&mut fresh, limit, 4088);
    assert!(small.iter().all(|freed| *freed == 64), "4088 hits free 64 each");
    assert_eq!(seqs(&lab.policy.generations(0)).end(), &5, "no generation was made meanwhile");
    assert_eq!(lab.hits(&mut fresh, limit, 1), [512]);
    assert_eq!(seqs(&lab.policy.generations(0)).end(), &7);
}

fn seqs(generations: &[GenerationSize]) -> std::ops::RangeInclusive<u64> {
    generations[0].seq..=generations[generations.len() - 1].seq
}

// --- spec: overview §4.4 ---

/// Two groups, large enough that the gentlest pass takes something; whose page goes first at the second hit of the
/// root's limit.
fn second_hit_starts_at<P: Policy>(policy: P) -> LruvecId {
    let mut lab = Lab::new(policy, 0, 16_384, false);
    add_lruvec(&mut lab.policy, Some(0));
    add_lruvec(&mut lab.policy, Some(0));
    lab.memory.lruvec = |page| if page < 8192 { 1 } else { 2 };
    (0..16_384).for_each(|page| lab.access(page));
    let first = lab.reclaim(0);
    assert_eq!((lab.memory.lruvec)(lab.memory.evicted[first - 1]), 1, "the goal was met in the first group");
    assert!(lab.reclaim(0) >= 32);
    (lab.memory.lruvec)(lab.memory.evicted[first])
}

#[test]
fn a_walk_goes_on_after_the_group_where_the_last_one_met_its_goal() {
    assert_eq!(second_hit_starts_at(Classic::new(ClassicParams { batch: 0, ..ClassicParams::default() })), 2);
    assert_eq!(second_hit_starts_at(Mglru::new(MglruParams { batch: 0, ..MglruParams::default() })), 2);
}

// --- spec: mglru §18 ---

#[test]
fn the_window_moves_as_worked_out() {
    let (anon, file) = (900, 601);
    let mut lab = Lab::new(Mglru::new(MglruParams { batch: 0, ..MglruParams::default() }), anon, file, true);
    (0..1500).for_each(|page| lab.access(page));
    let pages = |lab: &Lab<Mglru>| lab.policy.generations(0).iter().map(|g| (g.seq, g.pages)).collect::<Vec<_>>();
    assert_eq!(pages(&lab), [(0, [0, 0]), (1, [0, 600]), (2, [0, 0]), (3, [900, 0])]);
    // The empty oldest generation goes; then the young ones outweigh the rest and a generation is made; then eviction.
    assert_eq!(lab.reclaim(0), 64);
    assert_eq!(pages(&lab), [(1, [0, 536]), (2, [0, 0]), (3, [900, 0]), (4, [0, 0])]);
    // Four generations: a page that is read enters the second oldest.
    lab.access(1500);
    assert_eq!(pages(&lab)[1], (2, [0, 1]));
    for _ in 0..8 {
        assert_eq!(lab.reclaim(0), 64);
    }
    assert_eq!(pages(&lab), [(1, [0, 24]), (2, [0, 1]), (3, [900, 0]), (4, [0, 0])]);
}

// --- spec: workingset §10 ---

/// Lists of the wished lengths: `active` file pages from id 100 on, `inactive` ones from 200 on, all without references
/// left behind that the checks would notice.
fn lists(rule: RefaultRule, active: u32, inactive: u32, swap: bool) -> Lab<Classic> {
    let params = ClassicParams { rule, batch: 0, ..ClassicParams::default() };
    let mut lab = Lab::new(Classic::new(params), 100, 300, swap);
    for page in 100..100 + active {
        lab.access(page);
        lab.access(page);
    }
    (200..200 + inactive).for_each(|page| lab.access(page));
    assert_eq!(lab.policy.list_sizes(0, PageType::File), (u64::from(inactive), u64::from(active)));
    lab
}

/// Brings the page back; whether it was judged close.
fn activates(lab: &mut Lab<Classic>, page: PageId) -> bool {
    let before = lab.policy.counters();
    lab.admit(page, false);
    let events = lab.policy.counters().since(&before);
    assert_eq!(events.workingset_refault_file + events.workingset_refault_anon, 1);
    events.workingset_activate_file + events.workingset_activate_anon == 1
}

use RefaultRule::{Mainline, ShadowLru};

#[test]
fn one_eviction_is_a_distance_of_one() {
    for (rule, active, expected) in
        [(Mainline, 0, false), (Mainline, 1, true), (ShadowLru, 1, false), (ShadowLru, 2, true)]
    {
        let mut lab = lists(rule, active, 3, false);
        lab.evict(200, 0);
        assert_eq!(activates(&mut lab, 200), expected, "{rule:?} with {active} active pages");
    }
}

#[test]
fn only_the_mainline_clock_counts_activations() {
    for (rule, others, expected) in [(Mainline, 2, true), (Mainline, 3, false), (ShadowLru, 3, true)] {
        let mut lab = lists(rule, 3, 12, false);
        lab.evict(200, 0);
        for page in 205..205 + others {
            // The reference of the first read is gone: every check of an inactive page clears it.
            lab.access(page);
            lab.access(page);
            lab.policy.freed(page);
        }
        assert_eq!(lab.policy.list_sizes(0, PageType::File).1, 3);
        assert_eq!(activates(&mut lab, 200), expected, "{rule:?} after {others} activations");
    }
}

#[test]
fn the_shadow_lru_limit_is_strict() {
    let n = 5;
    for (more, expected) in [(n - 2, true), (n - 1, false)] {
        // `n` active pages, and `n` inactive ones left after the evictions.
        let mut lab = lists(ShadowLru, n, n + 1 + more, false);
        (200..=200 + more).for_each(|page| lab.evict(page, 0));
        assert_eq!(lab.policy.list_sizes(0, PageType::File), (u64::from(n), u64::from(n)));
        assert_eq!(activates(&mut lab, 200), expected, "{} evictions", more + 1);
    }
}

#[test]
fn without_an_active_list_shadow_lru_never_activates() {
    for (rule, expected) in [(Mainline, true), (ShadowLru, false)] {
        let mut lab = lists(rule, 0, 4, true);
        (0..4).for_each(|page| lab.access(page));
        lab.evict(200, 0);
        assert_eq!(activates(&mut lab, 200), expected, "{rule:?}");
    }
}

#[test]
fn the_group_whose_limit_it_was_measures_the_distance() {
    for (target, expected) in [(0, true), (1, false)] {
        let mut lab = lists(Mainline, 2, 6, false);
        add_lruvec(&mut lab.policy, Some(0));
        lab.memory.lruvec = |page| LruvecId::from(page >= 300);
        (300..303).for_each(|page| lab.access(page));
        lab.evict(300, target);
        let entry = ShadowFields::unpack(lab.memory.shadows[300].unwrap());
        assert_eq!(entry.lruvec, target);
        assert_eq!(activates(&mut lab, 300), expected, "two active pages are the parent's; limit of {target}");
    }
    // The multi-gen LRU's entry names the page's own group.
    let mut lab = Lab::new(Mglru::new(MglruParams { batch: 0, ..MglruParams::default() }), 0, 400, false);
    add_lruvec(&mut lab.policy, Some(0));
    lab.memory.lruvec = |_| 1;
    (0..300).for_each(|page| lab.access(page));
    assert!(lab.reclaim(0) > 0);
    let page = lab.memory.evicted[0];
    assert_eq!(ShadowFields::unpack(lab.memory.shadows[page as usize].unwrap()).lruvec, 1);
}

/// Two nodes: lruvec 0 is the root of the first and 2 that of the second, each with a group below it, 1 and 3; 4 is a
/// second group on the second node. Pages from id 100 are of group 1, from 200 of 3, from 300 of 4.
fn two_nodes<P: Policy>(policy: P) -> Lab<P> {
    let mut lab = Lab::new(policy, 0, 400, false);
    for (id, parent) in [(1, Some(0)), (2, None), (3, Some(2)), (4, Some(2))] {
        assert_eq!(add_lruvec(&mut lab.policy, parent), Some(id));
    }
    lab.memory.lruvec = |page| [0, 1, 3, 4][page as usize / 100];
    lab
}

#[test]
fn the_root_of_its_node_measures_a_page_that_went_by_request() {
    // Spec: workingset §1: root for what no limit caused; workingset §3: the target's clock advances, and the page
    // stores the reading before that.
    // Activations move Mainline's clock along too.
    for (rule, first) in [(Mainline, 3), (ShadowLru, 1)] {
        let mut lab = two_nodes(Classic::new(ClassicParams { rule, batch: 0, ..ClassicParams::default() }));
        (100..104).chain(200..210).for_each(|page| lab.access(page));
        // Limits before it leave nothing behind: neither the groups' nor the other node's.
        lab.evict(209, 3);
        lab.evict(103, 0);
        (300..302).for_each(|page| (0..2).for_each(|_| lab.access(page)));
        let entries = [lab.page_out(200), lab.page_out(201), lab.page_out(100)];
        assert_eq!(entries.map(|entry| entry.lruvec), [2, 2, 0], "{rule:?}");
        // The limit of a group moved its node's root along, and so did what another group activated.
        assert_eq!(entries.map(|entry| entry.value), [first, first + 1, 1], "{rule:?}");
        // One eviction ago: close, by the two active pages of the node, and far on the node that has none.
        assert!(activates(&mut lab, 201), "{rule:?}");
        assert!(!activates(&mut lab, 100), "{rule:?}");
    }
    // The multi-gen LRU's entry names the page's own group.
    let mut lab = two_nodes(Mglru::new(MglruParams { batch: 0, ..MglruParams::default() }));
    (200..210).for_each(|page| lab.access(page));
    assert_eq!(lab.page_out(200).lruvec, 3);
}

#[test]
fn overwriting_loses_the_entry() {
    let mut lab = lists(Mainline, 2, 4, false);
    lab.evict(200, 0);
    lab.admit(200, true);
    let events = lab.policy.counters();
    assert_eq!((events.workingset_refault_file, events.workingset_activate_file), (0, 0));
    lab.evict(200, 0);
    assert!(activates(&mut lab, 200), "a fresh entry, one eviction ago");
}

#[test]
fn each_page_of_a_batch_reads_a_clock_that_those_before_it_advanced() {
    // The tenth page of a batch stores the reading of the first plus nine (spec: workingset §4).
    let params = ClassicParams { batch: 0, ..ClassicParams::default() };
    let mut lab = Lab::new(Classic::new(params), 0, 400, false);
    (0..400).for_each(|page| lab.access(page));
    assert!(lab.reclaim(0) >= 32);
    let value = |page: PageId| ShadowFields::unpack(lab.memory.shadows[page as usize].unwrap()).value;
    assert_eq!(lab.memory.evicted[..10], (0..10).collect::<Vec<PageId>>());
    assert_eq!(value(9), value(0) + 9);
}
