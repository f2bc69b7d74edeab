//! The page daemon against a slow model that follows the specification line by line (spec: freebsd §1–§3, §6).

use std::collections::VecDeque;

use proptest::prelude::*;
use refault_core::freebsd::{DaemonLoop, DaemonStep, Freebsd, FreebsdParams, Queue, Targets, Version};
use refault_core::memory::{Eviction, IoState, Memory, PageTables, References, SwapSpace, Walk, Writeback};
use refault_core::policy::{Admission, Policy, ReclaimRequest};
use refault_core::{LruvecId, PageId, PageType, Shadow};

const PAGES: usize = 60;

/// What a page's contents and mappings are like; the same for the policy and for the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    resident: bool,
    young: u32,
    dirty: bool,
    busy: bool,
    held: bool,
    unused_object: bool,
    swapless: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pages {
    state: Vec<State>,
    /// Writes without eviction are possible.
    launders: bool,
    evicted: Vec<PageId>,
    written: Vec<PageId>,
}

impl Memory for Pages {
    fn is_resident(&self, page: PageId) -> bool {
        self.state[page as usize].resident
    }
    fn take_references(&mut self, page: PageId) -> References {
        References { mappings: std::mem::take(&mut self.state[page as usize].young), ..References::default() }
    }
    fn io_state(&self, page: PageId) -> IoState {
        let state = self.state[page as usize];
        let bit = |set: bool, bit: IoState| if set { bit } else { IoState::CLEAN };
        bit(state.busy, IoState::WRITEBACK).with(bit(state.held, IoState::UNEVICTABLE))
    }
    fn evict(&mut self, page: PageId, _shadow: Shadow) -> Eviction {
        let state = &mut self.state[page as usize];
        assert!(state.resident, "page {page} evicted twice");
        if state.dirty && state.swapless {
            return Eviction::Refused;
        }
        if state.dirty {
            self.written.push(page);
        }
        *state = State::default();
        self.evicted.push(page);
        Eviction::Freed { pages_written: 0 }
    }

    fn page_tables(&mut self) -> Option<&mut impl PageTables> {
        Some(self)
    }

    fn swap(&mut self) -> Option<&mut impl SwapSpace> {
        Some(self)
    }

    fn writeback(&mut self) -> Option<&mut impl Writeback> {
        Some(self)
    }
}

impl PageTables for Pages {
    fn walk<V: Walk>(&mut self, _lruvec: LruvecId, _visitor: &mut V) -> bool {
        false
    }

    fn take_references_up_to(&mut self, page: PageId, limit: u32) -> Option<References> {
        let young = &mut self.state[page as usize].young;
        let mappings = (*young).min(limit);
        *young -= mappings;
        Some(References { mappings, ..References::default() })
    }
}

/// Pages differ from what is stored of them without [`IoState::DIRTY`] to say so.
impl SwapSpace for Pages {
    fn free_swap(&self, _lruvec: LruvecId) -> u64 {
        u64::MAX
    }

    fn needs_write(&self, page: PageId) -> bool {
        self.state[page as usize].dirty
    }
}

impl Writeback for Pages {
    fn in_use(&self, page: PageId) -> bool {
        !self.state[page as usize].unused_object
    }

    fn launder(&mut self, page: PageId) -> Option<u32> {
        if !self.launders {
            return None;
        }
        let state = &mut self.state[page as usize];
        if state.swapless {
            return Some(0);
        }
        state.dirty = false;
        self.written.push(page);
        Some(1)
    }
}

/// Queues as deques, oldest first, and the rules one after the other.
struct Model {
    version: Version,
    sparing: bool,
    inactive: VecDeque<PageId>,
    active: VecDeque<PageId>,
    act_count: Vec<i64>,
    referenced: Vec<bool>,
    second: Vec<bool>,
    wired: Vec<u32>,
    frames: i64,
    resident: i64,
    deficit: i64,
    spare_count: u32,
    examined: u64,
    wakeups: u64,
}

impl Model {
    fn avail(&self) -> i64 {
        (self.frames - self.resident).max(0)
    }
    fn targets(&self) -> Targets {
        Targets::for_frames(self.frames as u64)
    }
    fn unqueue(&mut self, page: PageId) {
        self.inactive.retain(|p| *p != page);
        self.active.retain(|p| *p != page);
    }
    fn activate(&mut self, page: PageId) {
        let count = &mut self.act_count[page as usize];
        *count = (*count).max(5);
        if !self.active.contains(&page) && self.wired[page as usize] == 0 {
            self.unqueue(page);
            self.active.push_back(page);
        }
    }
    fn deactivate(&mut self, page: PageId) {
        if self.inactive.contains(&page) || self.wired[page as usize] > 0 {
            return;
        }
        self.second[page as usize] = false;
        self.unqueue(page);
        self.inactive.push_back(page);
    }
    fn references(&mut self, page: PageId, pages: &mut Pages) -> i64 {
        let mut refs = i64::from(std::mem::take(&mut self.referenced[page as usize]));
        if !pages.state[page as usize].unused_object {
            // freebsd §3.1: one reference for each mapping whose bit is set, until five; bits not reached stay set.
            let young = &mut pages.state[page as usize].young;
            for _ in 0..5 {
                if *young > 0 {
                    *young -= 1;
                    refs += 1;
                }
            }
        }
        refs
    }
    fn gone(&mut self, page: PageId, pages: &mut Pages) {
        self.unqueue(page);
        self.resident -= 1;
        pages.state[page as usize] = State::default();
        pages.evicted.push(page);
    }

    /// Returns pages freed and whether anything moved towards going.
    fn scan(&mut self, pass: u32, elapsed: u64, pages: &mut Pages) -> (u32, bool) {
        let target = self.targets().free_target as i64;
        let deficit = if pass > 0 { std::mem::take(&mut self.deficit) } else { 0 };
        let mut shortage = if pass > 0 { target - self.avail() + deficit } else { 0 };
        let mut launder = if pass > 1 { 10_000 } else { 32 };
        let (mut freed, mut progress, mut addl) = (0, false, 0);
        let snapshot: Vec<PageId> = self.inactive.iter().copied().collect();
        for page in snapshot {
            if shortage <= 0 {
                break;
            }
            self.examined += 1;
            let state = pages.state[page as usize];
            if state.busy {
                addl += 1;
                continue;
            }
            let refs = self.references(page, pages);
            if refs > 0 {
                progress = true;
                if state.unused_object {
                    self.unqueue(page);
                    self.inactive.push_back(page);
                } else {
                    self.activate(page);
                    self.act_count[page as usize] += refs + 3;
                }
            } else if state.held {
                addl += 1;
            } else if !state.dirty {
                self.gone(page, pages);
                (shortage, freed, progress) = (shortage - 1, freed + 1, true);
            } else if !self.second[page as usize] && pass < 2 {
                self.second[page as usize] = true;
                self.unqueue(page);
                self.inactive.push_back(page);
                progress = true;
            } else if launder == 0 {
                continue;
            } else if state.swapless {
                self.unqueue(page);
                self.inactive.push_back(page);
            } else {
                pages.written.push(page);
                pages.state[page as usize].dirty = false;
                (shortage, launder, progress) = (shortage - 1, launder - 1, true);
                if !pages.launders {
                    self.gone(page, pages);
                    freed += 1;
                }
            }
        }
        let active = self.active.len() as i64;
        let mut need =
            self.targets().inactive_target as i64 - self.inactive.len() as i64 + target - self.avail() + deficit + addl;
        let (mut least, mut limit) = (0, active);
        match self.version {
            Version::V10 => least = (active as u128 * u128::from(elapsed) / 600_000_000_000) as i64,
            Version::V2015 if pass == 0 => (limit, need) = (active / 600, active / 600),
            Version::V2015 => {}
            Version::V12 => unreachable!("the model has no laundry"),
        }
        let mut scanned = 0;
        while scanned < active && (scanned < least || (need > 0 && scanned < limit)) {
            scanned += 1;
            self.examined += 1;
            let page = self.active.pop_front().unwrap();
            let refs = self.references(page, pages);
            let count = &mut self.act_count[page as usize];
            if refs > 0 {
                *count = (*count + 3 + refs).min(64);
            } else {
                *count = (*count - 1).max(0);
                progress = true;
            }
            if *count == 0 {
                self.second[page as usize] = false;
                self.inactive.push_back(page);
                need -= 1;
            } else {
                self.active.push_back(page);
            }
        }
        (freed, progress)
    }

    fn reclaim(&mut self, goal: u32, pages: &mut Pages) -> u32 {
        if self.avail() <= self.targets().free_reserved as i64 {
            self.deficit += i64::from(goal.max(1));
        }
        let (mut freed, mut pass) = (0, 0);
        loop {
            pass += 1;
            self.wakeups += 1;
            let (now, progress) = self.scan(pass, 0, pages);
            freed += now;
            let rests = freed > 0 && self.avail() >= self.targets().free_min as i64;
            if rests || (pass > 1 && !progress) {
                return freed;
            }
        }
    }

    fn dont_need(&mut self, page: PageId, pages: &mut Pages) {
        pages.state[page as usize].young = 0;
        let dirty = pages.state[page as usize].dirty;
        if self.sparing {
            let n = self.spare_count % 512;
            self.spare_count = self.spare_count.wrapping_add(1);
            if n < 16 || self.inactive.contains(&page) {
                if self.act_count[page as usize] >= 5 {
                    self.act_count[page as usize] -= 1;
                }
                return;
            }
            self.referenced[page as usize] = false;
            let newest = dirty || [128..144, 256..272, 384..400].iter().any(|run| run.contains(&n));
            self.deactivate(page);
            if !newest && self.inactive.back() == Some(&page) && self.wired[page as usize] == 0 {
                self.inactive.pop_back();
                self.inactive.push_front(page);
            }
            return;
        }
        self.referenced[page as usize] = false;
        self.deactivate(page);
        if !dirty && self.wired[page as usize] == 0 {
            self.unqueue(page);
            self.inactive.push_front(page);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Admit { page: PageId, fault: bool, anon: bool },
    Touch { page: PageId, mappings: u32 },
    Read(PageId),
    Set { page: PageId, which: u8, to: bool },
    Free(PageId),
    Reclaim(u32),
    Scan { pass: u32, seconds: u64 },
    DontNeed { page: PageId, times: u32 },
    Fault(PageId),
    Wire(PageId),
    Unwire(PageId),
    LetGo(PageId),
    Refused(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let page = 0..PAGES as PageId;
    let step = prop_oneof![
        10 => (page.clone(), any::<bool>(), any::<bool>()).prop_map(|(page, fault, anon)| Step::Admit { page, fault, anon }),
        4 => (page.clone(), 1..9u32).prop_map(|(page, mappings)| Step::Touch { page, mappings }),
        3 => page.clone().prop_map(Step::Read),
        4 => (page.clone(), 0..5u8, any::<bool>()).prop_map(|(page, which, to)| Step::Set { page, which, to }),
        1 => page.clone().prop_map(Step::Free),
        3 => (1..4u32).prop_map(Step::Reclaim),
        3 => (0..4u32, 0..900u64).prop_map(|(pass, seconds)| Step::Scan { pass, seconds }),
        2 => (page.clone(), 1..40u32).prop_map(|(page, times)| Step::DontNeed { page, times }),
        1 => page.clone().prop_map(Step::Fault),
        1 => page.clone().prop_map(Step::Wire),
        1 => page.clone().prop_map(Step::Unwire),
        1 => page.prop_map(Step::LetGo),
        1 => (1..5u64).prop_map(Step::Refused),
    ];
    prop::collection::vec(step, 1..300)
}

proptest! {
    #[test]
    fn policy_follows_the_model(
        steps in steps(), launders in any::<bool>(), v10 in any::<bool>(), sparing in any::<bool>(), frames in 20..70u32,
    ) {
        let version = if v10 { Version::V10 } else { Version::V2015 };
        let params = FreebsdParams { version, sparing_dont_need: sparing, ..FreebsdParams::default() };
        let mut policy = Freebsd::new(params);
        policy.grow(PAGES);
        policy.set_capacity(frames as usize);
        let mut model = Model {
            version, sparing,
            inactive: VecDeque::new(), active: VecDeque::new(),
            act_count: vec![0; PAGES], referenced: vec![false; PAGES], second: vec![false; PAGES], wired: vec![0; PAGES],
            frames: i64::from(frames), resident: 0, deficit: 0, spare_count: 0, examined: 0, wakeups: 0,
        };
        let mut ours = Pages { state: vec![State::default(); PAGES], launders, evicted: Vec::new(), written: Vec::new() };
        let mut theirs = ours.clone();
        for step in steps {
            let resident = |page: PageId| ours.state[page as usize].resident;
            match step {
                Step::Admit { page, fault, anon } if !resident(page) && model.resident < i64::from(frames) => {
                    let admission = {
                        let page_type = if anon { PageType::Anon } else { PageType::File };
                        if fault { Admission::fault(page_type) } else { Admission::read(page_type) }
                    };
                    policy.admit(page, &admission, &mut ours);
                    for pages in [&mut ours, &mut theirs] {
                        pages.state[page as usize] = State { resident: true, dirty: anon, ..State::default() };
                    }
                    let at = page as usize;
                    (model.act_count[at], model.referenced[at], model.second[at]) = (0, false, false);
                    model.resident += 1;
                    if fault { model.activate(page) } else { model.deactivate(page) }
                }
                Step::Touch { page, mappings } if resident(page) => {
                    ours.state[page as usize].young = mappings;
                    theirs.state[page as usize].young = mappings;
                }
                Step::Read(page) if resident(page) => {
                    policy.accessed(page, &mut ours);
                    model.referenced[page as usize] = true;
                }
                Step::Set { page, which, to } if resident(page) => for pages in [&mut ours, &mut theirs] {
                    let state = &mut pages.state[page as usize];
                    match which {
                        0 => state.dirty = to,
                        1 => state.busy = to,
                        2 => state.held = to,
                        3 => state.unused_object = to,
                        _ => state.swapless = to,
                    }
                },
                Step::Free(page) if resident(page) && model.wired[page as usize] == 0 => {
                    policy.freed(page);
                    ours.state[page as usize] = State::default();
                    theirs.state[page as usize] = State::default();
                    model.unqueue(page);
                    model.resident -= 1;
                }
                Step::Reclaim(goal) => {
                    let request = ReclaimRequest { target: 0, goal, incoming: None };
                    prop_assert_eq!(policy.reclaim(&request, &mut ours), model.reclaim(goal, &mut theirs));
                }
                Step::Scan { pass, seconds } => {
                    let elapsed = seconds * 1_000_000_000;
                    model.wakeups += u64::from(pass > 0);
                    prop_assert_eq!(policy.scan(pass, elapsed, &mut ours), model.scan(pass, elapsed, &mut theirs).0);
                }
                Step::DontNeed { page, times } if resident(page) => for _ in 0..times {
                    policy.dont_need(page, &mut ours);
                    model.dont_need(page, &mut theirs);
                },
                Step::Fault(page) if resident(page) => {
                    policy.faulted(page);
                    model.unqueue(page);
                    model.activate(page);
                }
                Step::Wire(page) if resident(page) => {
                    policy.wire(page);
                    model.unqueue(page);
                    model.wired[page as usize] += 1;
                }
                Step::Unwire(page) if resident(page) && model.wired[page as usize] > 0 => {
                    policy.unwire(page);
                    model.wired[page as usize] -= 1;
                    model.deactivate(page);
                }
                Step::LetGo(page) if resident(page) => {
                    let state = theirs.state[page as usize];
                    let goes = !state.dirty && !state.busy && !state.held && model.wired[page as usize] == 0;
                    prop_assert_eq!(policy.try_to_let_go(page, &mut ours), goes);
                    if goes { model.gone(page, &mut theirs) }
                }
                Step::Refused(frames) => {
                    policy.refused(frames);
                    model.deficit += frames as i64;
                }
                _ => {}
            }
            prop_assert_eq!(&ours, &theirs);
            prop_assert_eq!(policy.queue(Queue::Inactive).collect::<VecDeque<_>>(), model.inactive.clone());
            prop_assert_eq!(policy.queue(Queue::Active).collect::<VecDeque<_>>(), model.active.clone());
            for page in (0..PAGES).filter(|page| ours.state[*page].resident) {
                prop_assert_eq!(i64::from(policy.act_count(page as PageId)), model.act_count[page]);
            }
            prop_assert_eq!(policy.available() as i64, model.avail());
            prop_assert_eq!(policy.vm_counters().page_daemon_pages, model.examined);
            prop_assert_eq!(policy.vm_counters().page_daemon_wakeups, model.wakeups);
            prop_assert_eq!(policy.counters().pgscan + policy.counters().pgrefill, model.examined);
        }
    }
}

fn alone(capacity: usize) -> (Freebsd, Pages) {
    let mut policy = Freebsd::new(FreebsdParams::default());
    policy.grow(PAGES);
    policy.set_capacity(capacity);
    let pages =
        Pages { state: vec![State::default(); PAGES], launders: false, evicted: Vec::new(), written: Vec::new() };
    (policy, pages)
}

fn fault_in(policy: &mut Freebsd, pages: &mut Pages, page: PageId) {
    let admission = Admission::fault(PageType::File);
    policy.admit(page, &admission, pages);
    pages.state[page as usize].resident = true;
}

/// spec: freebsd §3.2, the worked lines.
#[test]
fn activation_counts_as_worked_out() {
    // Capacity so small that the inactive target is 0: a deficit makes the active scan look.
    let scan = |policy: &mut Freebsd, pages: &mut Pages| {
        policy.refused(1000);
        policy.scan(1, 0, pages);
    };
    let (mut policy, mut pages) = alone(50);
    fault_in(&mut policy, &mut pages, 0);
    let counts: Vec<_> = (0..5)
        .map(|_| {
            scan(&mut policy, &mut pages);
            policy.act_count(0)
        })
        .collect();
    assert_eq!(counts, [4, 3, 2, 1, 0]);
    assert_eq!(policy.queue_of(0), Some(Queue::Inactive), "deactivated at the fifth");

    for (at, then) in [(4, 6), (5, 5)] {
        let (mut policy, mut pages) = alone(50);
        fault_in(&mut policy, &mut pages, 0);
        for n in 1..=at {
            pages.state[0].young = u32::from(n == at);
            scan(&mut policy, &mut pages);
        }
        assert_eq!(policy.act_count(0), then, "referenced at scan {at}");
    }

    for (mappings, scans) in [(1, 15), (5, 8), (7, 8)] {
        let (mut policy, mut pages) = alone(50);
        fault_in(&mut policy, &mut pages, 0);
        let mut needed = 0;
        while policy.act_count(0) < 64 {
            pages.state[0].young = mappings;
            scan(&mut policy, &mut pages);
            needed += 1;
        }
        assert_eq!(needed, scans, "{mappings} mappings");
    }
}

/// spec: freebsd §3: in 2015 every wakeup from the quiet sleep starts at pass 1; in version 10 a new shortage within
/// the second goes on counting.
#[test]
fn the_daemon_rests_and_comes_back() {
    for (version, second_wakeup) in [(Version::V2015, 1), (Version::V10, 2)] {
        let mut daemon = DaemonLoop::new(version);
        assert_eq!(daemon.after_scan(false, false), DaemonStep::Rest(1_000_000_000));
        assert_eq!(daemon.begin_scan(), 0, "not woken: the idle pass");
        daemon.after_scan(false, false);
        daemon.wake();
        assert_eq!(daemon.begin_scan(), 1);
        daemon.page_freed(true);
        assert!(daemon.is_wanted(), "below the minimum it stays wanted");
        daemon.page_freed(false);
        assert_eq!(daemon.after_scan(false, true), DaemonStep::Rest(1_000_000_000));
        daemon.wake();
        assert_eq!(daemon.begin_scan(), second_wakeup, "{version:?}");
        assert_eq!(
            daemon.after_scan(true, true),
            if second_wakeup > 1 { DaemonStep::Pause(500_000_000) } else { DaemonStep::Scan }
        );
        daemon.begin_scan();
        assert_eq!(daemon.after_scan(true, true), DaemonStep::Pause(500_000_000));
        assert_eq!(daemon.after_scan(false, false), DaemonStep::Rest(1_000_000_000));
        assert_eq!(daemon.begin_scan(), 0);
        daemon.wake();
        assert_eq!(daemon.begin_scan(), 1, "a quiet second resets either");
    }
}

#[test]
fn nothing_evictable_ends() {
    let (mut policy, mut pages) = alone(PAGES);
    for page in 0..PAGES as PageId {
        fault_in(&mut policy, &mut pages, page);
        pages.state[page as usize].held = true;
    }
    let request = ReclaimRequest { target: 0, goal: 1, incoming: None };
    assert_eq!(policy.reclaim(&request, &mut pages), 0);
    assert_eq!(policy.reclaim(&request, &mut pages), 0);
}
