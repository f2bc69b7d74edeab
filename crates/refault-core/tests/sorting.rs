//! What prioritising and deprioritising do to the lists (spec: lru_sort §4).

use refault_core::classic::{Classic, ClassicParams};
use refault_core::memory::{Eviction, Memory, References, SwapSpace};
use refault_core::mglru::{Mglru, MglruParams, Version};
use refault_core::page::{PageId, PageType, Shadow};
use refault_core::policy::{Admission, Lists, Policy, ReclaimRequest, SortRule, Sorting};

/// Unmapped pages that all can be evicted.
#[derive(Default)]
struct Slots(Vec<PageId>);

impl Memory for Slots {
    fn take_references(&mut self, _: PageId) -> References {
        References::default()
    }
    fn evict(&mut self, page: PageId, _: Shadow) -> Eviction {
        self.0.push(page);
        Eviction::Freed { pages_written: 1 }
    }
    fn is_resident(&self, page: PageId) -> bool {
        !self.0.contains(&page)
    }
    fn swap(&mut self) -> Option<&mut impl SwapSpace> {
        Some(self)
    }
}

impl SwapSpace for Slots {
    fn free_swap(&self, _: u16) -> u64 {
        1000
    }
}

fn admit<P: Policy>(policy: &mut P, pages: std::ops::Range<PageId>, page_type: PageType, in_fault: bool) {
    let admission = if in_fault { Admission::fault(page_type) } else { Admission::read(page_type) };
    for page in pages {
        policy.admit(page, &admission, &mut Slots::default());
    }
}

fn victims<P: Policy>(policy: &mut P, goal: u32) -> Vec<PageId> {
    let mut memory = Slots::default();
    policy.reclaim(&ReclaimRequest { target: 0, goal, incoming: None }, &mut memory);
    memory.0
}

/// Pages 0 to 3 inactive (0 goes next), 4 and 5 active.
fn two_lists() -> Classic {
    let mut classic = Classic::new(ClassicParams { batch: 0, ..ClassicParams::default() });
    classic.grow(6);
    admit(&mut classic, 4..6, PageType::Anon, false);
    for page in [4, 4, 5, 5] {
        classic.accessed(page, &mut Slots::default());
    }
    admit(&mut classic, 0..4, PageType::Anon, false);
    assert_eq!(classic.active_inactive(), Some([2, 4]));
    classic
}

#[test]
fn two_hits_and_one_cold_page_change_the_victim() {
    assert_eq!(victims(&mut two_lists(), 1)[0], 0, "without sorting");
    let mut classic = two_lists();
    let memory = &mut Slots::default();
    classic.prioritise(0, SortRule::MarkAccessed, memory);
    assert_eq!(classic.list_sizes(0, PageType::Anon), (4, 2), "the first time leaves only a mark");
    classic.prioritise(0, SortRule::MarkAccessed, memory);
    classic.deprioritise(4, SortRule::MarkAccessed, memory);
    assert_eq!(classic.list_sizes(0, PageType::Anon), (4, 2), "one moved each way");
    let order = victims(&mut classic, 32);
    assert_eq!(order[..4], [1, 2, 3, 4], "a deprioritised page enters at the young end");
}

#[test]
fn since_7_0_one_hit_activates_and_active_pages_stay() {
    let mut classic = two_lists();
    let memory = &mut Slots::default();
    classic.prioritise(0, SortRule::Activate, memory);
    classic.prioritise(4, SortRule::Activate, memory);
    classic.deprioritise(1, SortRule::Activate, memory);
    assert_eq!(classic.list_sizes(0, PageType::Anon), (3, 3));
    assert_eq!((classic.counters().pgactivate, classic.counters().pgdeactivate), (3, 0));
    assert_eq!(victims(&mut classic, 1)[0], 1, "an inactive page is not moved by deprioritising");
}

fn generations(version: Version, page_type: PageType, in_fault: bool) -> Mglru {
    let mut mglru = Mglru::new(MglruParams { version, batch: 0, ..MglruParams::default() });
    mglru.grow(4);
    admit(&mut mglru, 0..4, page_type, in_fault);
    mglru
}

/// Pages of a type by generation, oldest first.
fn sizes(mglru: &Mglru, page_type: PageType) -> Vec<u64> {
    mglru.generations(0).iter().map(|generation| generation.pages[page_type.index()]).collect()
}

#[test]
fn generations_move_as_each_version_says() {
    let memory = &mut Slots::default();
    // Up to 6.12 prioritising only counts a reference.
    let mut mglru = generations(Version::V6_12, PageType::File, false);
    let before = sizes(&mglru, PageType::File);
    mglru.prioritise(0, SortRule::MarkAccessed, memory);
    assert_eq!(sizes(&mglru, PageType::File), before);
    // In 7.2 a file page goes to the second youngest, and deprioritising takes it to the oldest.
    let mut mglru = generations(Version::V7_2, PageType::File, false);
    let oldest = sizes(&mglru, PageType::File);
    mglru.prioritise(0, SortRule::Activate, memory);
    let raised = sizes(&mglru, PageType::File);
    assert_ne!(oldest, raised);
    assert_eq!(raised[raised.len() - 2], 1);
    mglru.deprioritise(0, SortRule::Activate, memory);
    assert_eq!(sizes(&mglru, PageType::File), oldest);
    assert_eq!(mglru.counters().pgdeactivate, 1);
    mglru.deprioritise(0, SortRule::Activate, memory);
    assert_eq!(mglru.counters().pgdeactivate, 1, "the oldest generation is left alone");
    // An anonymous page is never made old: it lands in the second youngest.
    for version in [Version::V6_12, Version::V7_2] {
        let mut mglru = generations(version, PageType::Anon, true);
        mglru.deprioritise(0, SortRule::Activate, memory);
        let found = sizes(&mglru, PageType::Anon);
        assert!(found[found.len() - 2] >= 1, "{version:?} {found:?}");
        assert!(mglru.active_inactive().unwrap()[0] > 0);
    }
}
