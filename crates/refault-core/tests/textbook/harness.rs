//! Drives a policy and its reference model with the same steps.

use proptest::prelude::*;
use refault_core::memory::{Eviction, References};
use refault_core::policy::{Admission, Bypass, HitReport, ReclaimRequest};
use refault_core::{Memory, PageId, PageType, Policy, Shadow};

/// Pages that the generated steps use.
pub const PAGES: u32 = 64;

/// A policy as its description says, in the slowest obvious way.
pub trait Model {
    /// One access; the pages evicted because of it, in order.
    fn access(&mut self, page: PageId) -> Vec<PageId>;
    /// Whether the page is in memory.
    fn is_resident(&self, page: PageId) -> bool;
    /// A resident page goes for other reasons.
    fn free(&mut self, page: PageId);
}

/// Memory that keeps books of everything and refuses what it is told to refuse.
pub struct TestMemory {
    pub resident: Vec<bool>,
    accessed: Vec<bool>,
    refusal: Vec<Option<Eviction>>,
    shadows: Vec<Shadow>,
    pub evicted: Vec<PageId>,
    /// No accessed bits: the policy may not ask for them.
    pub is_blind: bool,
}

impl TestMemory {
    pub fn count(&self) -> usize {
        self.resident.iter().filter(|r| **r).count()
    }
}

impl Memory for TestMemory {
    fn take_references(&mut self, page: PageId) -> References {
        assert!(self.resident[page as usize], "reference check of page {page}, which is not resident");
        assert!(!self.is_blind, "reference check of page {page}, where there are no accessed bits");
        let accessed = std::mem::take(&mut self.accessed[page as usize]);
        References { mappings: u32::from(accessed), executable: false, locked: false }
    }

    fn has_accessed_bits(&self) -> bool {
        !self.is_blind
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.resident[page as usize]
    }

    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        assert!(self.resident[page as usize], "eviction of page {page}, which is not resident");
        if let Some(refusal) = self.refusal[page as usize] {
            return refusal;
        }
        self.resident[page as usize] = false;
        self.accessed[page as usize] = false;
        self.shadows[page as usize] = shadow;
        self.evicted.push(page);
        Eviction::Freed { pages_written: 0 }
    }
}

/// A policy over a [`TestMemory`], in the order of calls that a front-end keeps.
pub struct Driver<P> {
    pub policy: P,
    pub memory: TestMemory,
    pub capacity: usize,
}

impl<P: Policy> Driver<P> {
    pub fn new(mut policy: P, capacity: usize) -> Driver<P> {
        policy.grow(PAGES as usize);
        policy.set_capacity(capacity);
        let memory = TestMemory {
            resident: vec![false; PAGES as usize],
            accessed: vec![false; PAGES as usize],
            refusal: vec![None; PAGES as usize],
            shadows: vec![Shadow::NONE; PAGES as usize],
            evicted: Vec::new(),
            is_blind: false,
        };
        Driver { policy, memory, capacity }
    }

    /// Whether the access hit. Lets a page in beyond the limit if nothing can be evicted.
    pub fn access(&mut self, page: PageId) -> bool {
        let hit = self.memory.resident[page as usize];
        if hit {
            match P::HITS {
                HitReport::EachAccess => self.policy.accessed(page, &mut self.memory),
                HitReport::AccessedBit => self.memory.accessed[page as usize] = true,
                HitReport::Never => {}
                HitReport::Kernel => unreachable!("not a textbook policy"),
            }
            return true;
        }
        let shadow = Some(self.memory.shadows[page as usize]).filter(|shadow| *shadow != Shadow::NONE);
        if let (Some(shadow), Some(bypass)) = (shadow, self.policy.bypass())
            && let Some(referenced) = bypass.admission_filter()(shadow, bypass.admission_threshold())
        {
            self.memory.shadows[page as usize] = referenced;
            bypass.bypassed(1, &mut self.memory);
            return false;
        }
        let request = ReclaimRequest { target: 0, goal: P::RECLAIM_BATCH, incoming: Some(page) };
        let mut fruitless = 0;
        while self.memory.count() >= self.capacity && fruitless < 3 {
            let before = self.memory.evicted.len();
            let freed = self.policy.reclaim(&request, &mut self.memory);
            assert_eq!(freed as usize, self.memory.evicted.len() - before, "reclaim counts what it freed");
            fruitless += usize::from(freed == 0);
        }
        let shadow = std::mem::replace(&mut self.memory.shadows[page as usize], Shadow::NONE);
        let shadow = (shadow != Shadow::NONE).then_some(shadow);
        let admission = Admission::fault(PageType::Anon).with_shadow(shadow);
        self.policy.admit(page, &admission, &mut self.memory);
        self.memory.resident[page as usize] = true;
        false
    }

    pub fn free(&mut self, page: PageId) {
        self.memory.resident[page as usize] = false;
        self.memory.accessed[page as usize] = false;
        self.policy.freed(page);
    }
}

#[derive(Clone, Debug)]
pub enum Step {
    Access(PageId),
    /// The page is freed if it is resident.
    Free(PageId),
    /// From now on evictions of the page are answered like this; `None` lets it go again.
    Refuse(PageId, Option<Eviction>),
    /// Everything may go again.
    RefuseNothing,
    /// The limit changes.
    Capacity(usize),
}

/// Pages of very different heat, so that every list of every policy is used.
fn page() -> impl Strategy<Value = PageId> {
    prop_oneof![3 => 0..4u32, 4 => 0..16u32, 3 => 0..PAGES]
}

/// Accesses, loops and frees.
pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let chunk = prop_oneof![
        8 => prop::collection::vec(page().prop_map(Step::Access), 1..40),
        2 => (0..PAGES, 1..30u32, 1..4u32).prop_map(|(first, length, rounds)| {
            (0..length * rounds).map(|i| Step::Access((first + i % length) % PAGES)).collect()
        }),
        2 => page().prop_map(|page| vec![Step::Free(page)]),
    ];
    prop::collection::vec(chunk, 0..40).prop_map(|chunks| chunks.concat())
}

/// The same with evictions that are refused, and with a limit that changes.
pub fn hostile_steps() -> impl Strategy<Value = Vec<Step>> {
    let refusal = prop_oneof![
        Just(None),
        Just(Some(Eviction::Kept)),
        Just(Some(Eviction::Refused)),
        Just(Some(Eviction::WriteStarted))
    ];
    let step = prop_oneof![
        30 => page().prop_map(Step::Access),
        3 => page().prop_map(Step::Free),
        6 => (page(), refusal).prop_map(|(page, refusal)| Step::Refuse(page, refusal)),
        1 => Just(Step::RefuseNothing),
        1 => (1..50usize).prop_map(Step::Capacity),
    ];
    prop::collection::vec(step, 0..600)
}

/// Holds the policy to its model: the same hits and the same evictions at each step.
pub fn equals_model<P: Policy>(policy: P, model: impl Model, capacity: usize, steps: &[Step]) {
    follows_model(Driver::new(policy, capacity), model, steps);
}

/// The same for a driver that is there.
pub fn follows_model<P: Policy>(mut driver: Driver<P>, mut model: impl Model, steps: &[Step]) {
    let capacity = driver.capacity;
    for (index, step) in steps.iter().enumerate() {
        driver.memory.evicted.clear();
        match *step {
            Step::Access(page) => {
                let resident = model.is_resident(page);
                let evicted = model.access(page);
                let hit = driver.access(page);
                assert_eq!(hit, resident, "step {index}: whether page {page} is in memory");
                assert_eq!(driver.memory.evicted, evicted, "step {index}: what went for page {page}");
            }
            Step::Free(page) if driver.memory.resident[page as usize] => {
                driver.free(page);
                model.free(page);
            }
            _ => {}
        }
        assert!(driver.memory.count() <= capacity, "step {index}: over capacity");
    }
    for page in 0..PAGES {
        assert_eq!(driver.memory.resident[page as usize], model.is_resident(page), "page {page} at the end");
    }
}

/// Whatever memory refuses, the policy stays sane. Every page it offers is resident (the memory asserts it). All can be
/// evicted once nothing is refused any more, and then the limit holds again.
pub fn survives<P: Policy>(policy: P, steps: &[Step]) {
    let mut driver = Driver::new(policy, 12);
    for step in steps {
        let mut missed = false;
        match *step {
            Step::Access(page) => {
                missed = !driver.access(page);
                assert!(driver.memory.resident[page as usize], "page {page} was just brought in");
            }
            Step::Free(page) if driver.memory.resident[page as usize] => driver.free(page),
            Step::Free(page) => driver.policy.forgotten(page),
            Step::Refuse(page, refusal) => driver.memory.refusal[page as usize] = refusal,
            Step::RefuseNothing => driver.memory.refusal.fill(None),
            Step::Capacity(pages) => {
                driver.capacity = pages;
                driver.policy.set_capacity(pages);
            }
        }
        let refused = driver.memory.refusal.iter().filter(|r| r.is_some()).count();
        if missed && refused == 0 {
            assert!(driver.memory.count() <= driver.capacity, "over capacity with nothing refused");
        }
    }
    driver.memory.refusal.fill(None);
    let request = ReclaimRequest { target: 0, goal: PAGES, incoming: None };
    let mut calls = 0;
    while driver.memory.count() > 0 {
        assert!(driver.policy.reclaim(&request, &mut driver.memory) > 0, "pages are left but none is given up");
        calls += 1;
        assert!(calls <= PAGES, "one call per page is enough");
    }
    assert_eq!(driver.policy.reclaim(&request, &mut driver.memory), 0, "nothing is left");
}

/// A page that was freed or forgotten is a new one under its id, as under another that was never used.
pub fn forgets<P: Policy>(policy: impl Fn() -> P, steps: &[Step]) {
    const NAMES: u32 = 16;
    let (mut same, mut fresh) = (Driver::new(policy(), 6), Driver::new(policy(), 6));
    let mut names: Vec<PageId> = (0..NAMES).collect();
    let mut unused = NAMES..PAGES;
    for (index, step) in steps.iter().enumerate() {
        match *step {
            Step::Access(page) => {
                let page = page % NAMES;
                let hits = [same.access(page), fresh.access(names[page as usize])];
                assert_eq!(hits[0], hits[1], "step {index}: whether page {page} is in memory");
                let evicted = same.memory.evicted.drain(..).map(|page| names[page as usize]);
                assert!(evicted.eq(fresh.memory.evicted.drain(..)), "step {index}: what went for page {page}");
            }
            Step::Free(page) => {
                let Some(id) = unused.next() else { return };
                if same.memory.resident[(page % NAMES) as usize] {
                    same.free(page % NAMES);
                    fresh.free(names[(page % NAMES) as usize]);
                } else {
                    same.policy.forgotten(page % NAMES);
                    fresh.policy.forgotten(names[(page % NAMES) as usize]);
                }
                same.memory.shadows[(page % NAMES) as usize] = Shadow::NONE;
                names[(page % NAMES) as usize] = id;
            }
            _ => {}
        }
    }
}
