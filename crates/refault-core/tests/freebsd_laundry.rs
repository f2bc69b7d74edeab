//! FreeBSD 12's page daemon: the laundry queue and what is written when (spec: freebsd §0, §9).

use refault_core::freebsd::{Freebsd, FreebsdParams, Queue, Targets};
use refault_core::memory::{Eviction, IoState, Memory, References, Writeback};
use refault_core::policy::{Admission, Policy, ReclaimRequest};
use refault_core::{PageId, PageType, Shadow};

const FRAMES: usize = 2000;

/// Pages that no process references.
struct Pages {
    dirty: Vec<bool>,
    resident: Vec<bool>,
    /// Writes without eviction are possible.
    launders: bool,
    /// Writes are refused now.
    refuses: bool,
    evicted: Vec<PageId>,
    written: Vec<PageId>,
}

impl Memory for Pages {
    fn take_references(&mut self, _page: PageId) -> References {
        References::default()
    }
    fn evict(&mut self, page: PageId, _shadow: Shadow) -> Eviction {
        assert!(std::mem::take(&mut self.resident[page as usize]), "page {page} goes twice");
        if std::mem::take(&mut self.dirty[page as usize]) {
            self.written.push(page);
        }
        self.evicted.push(page);
        Eviction::Freed { pages_written: 0 }
    }
    fn is_resident(&self, page: PageId) -> bool {
        self.resident[page as usize]
    }
    fn io_state(&self, page: PageId) -> IoState {
        if self.dirty[page as usize] { IoState::DIRTY } else { IoState::CLEAN }
    }
    fn writeback(&mut self) -> Option<&mut impl Writeback> {
        Some(self)
    }
}

impl Writeback for Pages {
    fn launder(&mut self, page: PageId) -> Option<u32> {
        if !self.launders {
            return None;
        }
        if self.refuses {
            return Some(0);
        }
        self.dirty[page as usize] = false;
        self.written.push(page);
        Some(1)
    }
}

/// All frames but ten hold pages that were read in.
fn full(params: FreebsdParams, dirty: impl Fn(usize) -> bool) -> (Freebsd, Pages) {
    let mut policy = Freebsd::new(params);
    policy.grow(FRAMES);
    policy.set_capacity(FRAMES);
    let mut pages = Pages {
        dirty: (0..FRAMES).map(dirty).collect(),
        resident: vec![true; FRAMES],
        launders: true,
        refuses: false,
        evicted: Vec::new(),
        written: Vec::new(),
    };
    for page in 0..FRAMES as PageId - 10 {
        policy.admit(page, &Admission::read(PageType::Anon), &mut pages);
    }
    (policy, pages)
}

fn laundry(policy: &Freebsd) -> usize {
    policy.queue(Queue::Laundry).count()
}

#[test]
fn clean_pages_go_and_dirty_ones_wait_in_the_laundry() {
    let odd = |page: usize| page % 2 == 1;
    let (mut policy, mut pages) = full(FreebsdParams::laundry(), odd);
    let freed = policy.scan(1, 0, &mut pages) as usize;
    // Ten frames of a target of 84: a third of 74, a quarter and an eighth.
    assert_eq!(Targets::at_boot(FRAMES as u64).free_target, 84);
    assert_eq!((freed, pages.evicted.len()), (24 + 18 + 9, 51));
    assert!(pages.evicted.iter().all(|page| page % 2 == 0) && pages.written.is_empty());
    assert_eq!(laundry(&policy), 50, "the dirty ones that were met");
    let (mut older, mut pages) = full(FreebsdParams::no_cache(), odd);
    assert_eq!((older.scan(1, 0, &mut pages), laundry(&older)), (74, 0), "before, the distance to the target went");
}

#[test]
fn what_clean_pages_do_not_give_is_written() {
    let (mut policy, mut pages) = full(FreebsdParams::laundry(), |_| true);
    assert_eq!(policy.scan(1, 0, &mut pages), 0, "nothing is clean");
    assert_eq!(pages.written, (0..51).collect::<Vec<_>>(), "the oldest are written");
    assert_eq!(policy.queue(Queue::Inactive).collect::<Vec<_>>(), pages.written, "and are inactive again, clean");
    let freed = policy.scan(1, 0, &mut pages);
    assert_eq!((freed, &pages.evicted[..]), (51, &(0..51).collect::<Vec<_>>()[..]));
}

#[test]
fn dirty_pages_are_written_in_the_background_where_they_are_many() {
    for (dirty, elapsed, writes) in [(1990, 100_000_000, true), (1990, 0, false), (100, 100_000_000, false)] {
        let (mut policy, mut pages) = full(FreebsdParams::laundry(), |page| page < dirty);
        // A scan that is short of everything sends all of them there, but nothing can be written yet.
        pages.refuses = true;
        policy.refused(FRAMES as u64);
        policy.scan(1, 0, &mut pages);
        assert_eq!(laundry(&policy), dirty);
        // Four in ten go for other reasons: memory is short no more.
        for page in (0..dirty as PageId).filter(|page| page % 5 < 2) {
            policy.freed(page);
        }
        pages.refuses = false;
        (0..20).for_each(|_| _ = policy.scan(0, elapsed, &mut pages));
        assert_eq!(!pages.written.is_empty(), writes, "{dirty} dirty pages, {elapsed} ns per pass");
        assert!(pages.written.len() <= 40, "two at a time: {}", pages.written.len());
    }
}

#[test]
fn a_replay_gets_as_many_pages_as_it_is_told() {
    let (mut policy, mut pages) = full(FreebsdParams::laundry(), |page| page % 3 > 0);
    pages.launders = false;
    let told = policy.reclaim(&ReclaimRequest { target: 0, goal: 1, incoming: None }, &mut pages);
    assert_eq!(told as usize, pages.evicted.len());
    assert!(told >= 51 && policy.available() >= policy.targets().free_min, "{told}");
}
