//! Tests of [`Cyclic`] over memories that are made up.

use super::*;
use crate::memory::References;
use crate::page::PageType;
use crate::policy::room::{MAX_FRUITLESS_CALLS, make_room};
use crate::textbook::Fifo;

struct Resident(Vec<bool>);

impl Memory for Resident {
    fn take_references(&mut self, _page: PageId) -> References {
        References::default()
    }
    fn evict(&mut self, page: PageId, _shadow: Shadow) -> Eviction {
        assert!(std::mem::take(&mut self.0[page as usize]), "page {page} is evicted twice");
        Eviction::Freed { pages_written: 0 }
    }
    fn is_resident(&self, page: PageId) -> bool {
        self.0[page as usize]
    }
}

/// Misses of accesses under a limit of 1000 pages, and how many ranges were found.
fn misses(accesses: impl IntoIterator<Item = PageId>, detects: bool, pattern: AccessPattern) -> (usize, u64) {
    const CAPACITY: usize = 1000;
    let mut policy = Cyclic::new(Fifo::default(), detects);
    policy.grow(5000);
    policy.set_capacity(CAPACITY);
    let (mut memory, mut misses, mut resident) = (Resident(vec![false; 5000]), 0, 0);
    for page in accesses {
        if memory.is_resident(page) {
            continue;
        }
        misses += 1;
        if resident == CAPACITY {
            let request = ReclaimRequest { target: 0, goal: 1, incoming: Some(page) };
            let room = make_room(&mut policy, &request, &mut memory, MAX_FRUITLESS_CALLS, |_| true);
            assert_eq!((room.made, room.freed), (true, 1));
            resident -= 1;
        }
        policy.admit(page, &Admission::fault(PageType::Anon).with_pattern(pattern), &mut memory);
        memory.0[page as usize] = true;
        resident += 1;
    }
    (misses, policy.cyclic_scans().map_or(0, CyclicScans::found))
}

/// Pages that were on their way out come back without making room: those of the last part that do are among those that
/// came in last, too.
#[test]
fn pages_that_go_together_are_chosen_once() {
    let mut policy = Cyclic::new(Fifo::default(), true);
    policy.grow(5000);
    policy.set_capacity(1000);
    let mut memory = Pager { resident: vec![false; 5000], chosen: Vec::new() };
    let admit = |policy: &mut Cyclic<Fifo>, memory: &mut Pager, page: PageId| {
        policy.admit(page, &Admission::fault(PageType::Anon), memory);
        memory.resident[page as usize] = true;
    };
    let reclaim = |policy: &mut Cyclic<Fifo>, memory: &mut Pager, goal| {
        policy.reclaim(&ReclaimRequest { target: 0, goal, incoming: None }, memory);
        std::mem::take(&mut memory.chosen)
    };
    for page in 0..1500 {
        admit(&mut policy, &mut memory, page);
        if page >= 1000 {
            let goes = reclaim(&mut policy, &mut memory, 1);
            goes.into_iter().for_each(|page| memory.resident[page as usize] = false);
        }
    }
    admit(&mut policy, &mut memory, 0);
    assert_eq!(policy.cyclic_scans().expect("detects").ranges().count(), 1, "it is believed");
    for page in (1400..1500).chain(1250..1400) {
        policy.policy.freed(page);
        admit(&mut policy, &mut memory, page);
    }
    assert!(reclaim(&mut policy, &mut memory, 256).len() > 16);
}

/// What does not fit may lie at the beginning in one pass and the next: the scan is seen to end all the same.
#[test]
fn some_pages_of_the_last_part_come_back_in_every_pass() {
    let mut policy = Cyclic::new(Fifo::default(), true);
    policy.grow(5000);
    policy.set_capacity(1000);
    let mut memory = Pager { resident: vec![false; 5000], chosen: Vec::new() };
    for pass in 0..8 {
        for page in 0..1500 {
            if memory.resident[page as usize] {
                continue;
            }
            // Where a scan begins there is room.
            if page >= if pass > 0 { 200 } else { 1000 } {
                policy.reclaim(&ReclaimRequest { target: 0, goal: 1, incoming: None }, &mut memory);
                for chosen in std::mem::take(&mut memory.chosen) {
                    memory.resident[chosen as usize] = false;
                }
            }
            policy.admit(page, &Admission::fault(PageType::Anon), &mut memory);
            memory.resident[page as usize] = true;
        }
        let scans = policy.cyclic_scans().expect("detects");
        assert_eq!((scans.ranges().count(), scans.found()), (usize::from(pass > 0), u64::from(pass > 1)), "{pass}");
        for page in (0..500).filter(|_| pass > 0) {
            policy.policy.freed(page);
            memory.resident[page as usize] = false;
        }
        for page in (500..1500).filter(|_| pass > 0) {
            if !std::mem::replace(&mut memory.resident[page as usize], true) {
                policy.policy.admit(page, &Admission::fault(PageType::Anon), &mut memory);
            }
        }
    }
}

fn scans(pages: PageId, passes: usize) -> impl Iterator<Item = PageId> {
    (0..passes).flat_map(move |_| 0..pages)
}

#[test]
fn a_scan_that_does_not_fit_misses_only_what_does_not_fit() {
    let (plain, _) = misses(scans(1500, 20), false, AccessPattern::Unknown);
    assert_eq!(plain, 20 * 1500, "a queue misses everything");
    let (detected, found) = misses(scans(1500, 20), true, AccessPattern::Unknown);
    assert_eq!(found, 1);
    // A pass, then what does not fit, and what is left alone.
    assert!(detected < 1500 + 19 * (500 + 2 * LEFT_ALONE), "{detected}");
    let (told, found) = misses(scans(1500, 20), true, AccessPattern::Cyclic);
    assert_eq!(found, 0, "what is told need not be found out");
    assert!(told <= detected, "{told} against {detected}");
}

#[test]
fn other_orders_are_left_to_the_policy() {
    let random = |seed: u32| (0..40_000u32).map(move |n| (n ^ seed).wrapping_mul(2_654_435_761) % 4999);
    assert_eq!(
        misses(random(1), true, AccessPattern::Unknown),
        (misses(random(1), false, AccessPattern::Unknown).0, 0)
    );
    let (with, without) = (scans(1500, 20), scans(1500, 20));
    let (with, without) = (misses(with, true, AccessPattern::Other).0, misses(without, false, AccessPattern::Other).0);
    assert_eq!(with, without, "a hint of another order is believed");
}

/// As a pager is: pages that were chosen leave when the policy has returned, and it may be told to free any.
struct Pager {
    resident: Vec<bool>,
    chosen: Vec<PageId>,
}

impl Memory for Pager {
    fn take_references(&mut self, _page: PageId) -> References {
        References::default()
    }
    fn evict(&mut self, page: PageId, _shadow: Shadow) -> Eviction {
        assert!(self.resident[page as usize] && !self.chosen.contains(&page), "page {page} goes twice");
        self.chosen.push(page);
        Eviction::Freed { pages_written: 0 }
    }
    fn is_resident(&self, page: PageId) -> bool {
        self.resident[page as usize]
    }
}

/// What is remembered, slowly: a page has one entry at most, and none after it was freed or has gone.
#[derive(Default)]
struct Model(VecDeque<Option<PageId>>);

impl Model {
    fn forget(&mut self, page: PageId) {
        self.0.iter_mut().filter(|entry| **entry == Some(page)).for_each(|entry| *entry = None);
    }
    fn comes_in(&mut self, page: PageId) {
        self.forget(page);
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(Some(page));
    }
    fn victims(&mut self, goal: usize, resident: &[bool]) -> Vec<PageId> {
        let mut victims = Vec::new();
        while victims.len() < goal && self.0.len() > LEFT_ALONE {
            let entry = self.0.remove(self.0.len() - LEFT_ALONE - 1).expect("it is there");
            victims.extend(entry.filter(|page| resident[*page as usize]));
        }
        victims
    }
}

/// Pages come in, are freed, come in again, and are evicted here or by the policy, in random order.
#[test]
fn a_page_goes_once_for_each_time_that_it_came_in() {
    const PAGES: u32 = 400;
    let mut policy = Cyclic::new(Fifo::default(), true);
    policy.grow(PAGES as usize);
    let mut memory = Pager { resident: vec![false; PAGES as usize], chosen: Vec::new() };
    let (mut model, mut random, mut by_the_scan, mut by_the_policy) = (Model::default(), 7u64, 0, 0);
    let mut draw = |below: u32| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as u32 % below
    };
    for step in 0..6000 {
        let first = draw(PAGES);
        // By turns much is remembered, and all of it asked for.
        let actions = if step / 1000 % 2 == 0 { 6 } else { 9 };
        match draw(actions) {
            0..=3 => {
                for page in (first..PAGES)
                    .take(draw(64) as usize)
                    .filter(|page| !memory.resident[*page as usize])
                    .collect::<Vec<_>>()
                {
                    let admission = Admission::fault(PageType::Anon).with_pattern(AccessPattern::Cyclic);
                    policy.admit(page, &admission, &mut memory);
                    memory.resident[page as usize] = true;
                    model.comes_in(page);
                }
            }
            4..=5 => {
                for page in (first..PAGES).take(draw(64) as usize) {
                    if std::mem::take(&mut memory.resident[page as usize]) {
                        policy.freed(page);
                        model.forget(page);
                    }
                }
            }
            6..=7 => {
                let goal = 1 + draw(48);
                let expected = model.victims(goal as usize, &memory.resident);
                policy.reclaim(&ReclaimRequest { target: 0, goal, incoming: None }, &mut memory);
                if expected.is_empty() {
                    by_the_policy += memory.chosen.len();
                } else {
                    assert_eq!(memory.chosen, expected);
                    by_the_scan += expected.len();
                }
            }
            _ => {
                // The policy by itself, as where nothing is remembered.
                let request = ReclaimRequest { target: 0, goal: 1 + draw(32), incoming: None };
                policy.policy.reclaim(&request, &mut memory);
                by_the_policy += memory.chosen.len();
            }
        }
        for page in std::mem::take(&mut memory.chosen) {
            assert!(std::mem::take(&mut memory.resident[page as usize]));
        }
    }
    assert!(by_the_scan > 1000 && by_the_policy > 1000, "{by_the_scan} {by_the_policy}");
}
