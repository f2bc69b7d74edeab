//! A kernel's policy over its test memory, in the order of calls that a front-end keeps, and the generated scenarios.

use proptest::prelude::*;
use refault_core::memory::{Eviction, SwapSpace};
use refault_core::policy::{Admission, NodeReclaim, ProactiveRequest, ReclaimRequest, SortRule, Sorting, node};
use refault_core::{Counters, LruvecId, PageId, PageType, Policy};

use super::memory::{TestMemory, World};
use super::tree::Tree;

/// Fruitless reclaims after which a page is let in beyond the limit.
const RETRIES: u32 = 2;

/// What a policy and its model can be compared by beyond evictions and counters.
pub trait Inspect: Policy {
    /// Sizes of all lists or generations of an lruvec.
    fn sizes(&self, lruvec: LruvecId) -> Vec<u64>;
    /// Asserts what must hold at any time.
    fn check(&self) {}
}

#[derive(Clone, Debug)]
pub enum Step {
    /// `read()` of a file page; does nothing for anonymous ones.
    Read(PageId),
    /// `write()` of a whole file page that is not in memory, or over one that is.
    Write(PageId),
    /// A load or store through one of two mappings.
    Touch { page: PageId, mapping: usize, write: bool },
    /// The page and its contents go.
    Free(PageId),
    /// The page is locked or unlocked.
    Lock(PageId, bool),
    /// The page is made unevictable (mlock), or evictable again.
    Pin(PageId, bool),
    /// The flusher starts to write a dirty page.
    StartWrite(PageId),
    /// The write of a page ends; of all pages in flight if there is none.
    EndWrite(Option<PageId>),
    /// From now on evictions of the page are answered like this; `None` lets it go again.
    Refuse(PageId, Option<Eviction>),
    /// The same for all pages.
    RefuseAll(Option<Eviction>),
    /// Pages of a group are asked for.
    Reclaim(LruvecId, u32),
    /// A user asks for pages of a group, with a swappiness or the usual one.
    Proactive(LruvecId, u32, Option<u16>),
    /// A monitor says that a page is to go.
    PageOut(PageId),
    /// The limit of a group changes.
    Limit(LruvecId, usize),
    /// The monitor found the page hot, or cold.
    Sort { page: PageId, hot: bool, rule: SortRule },
}

pub struct Driver<P> {
    pub policy: P,
    pub memory: TestMemory,
    limits: Vec<usize>,
    tree: Tree,
}

impl<P: Inspect> Driver<P> {
    pub fn new(mut policy: P, world: &World, limit: usize) -> Driver<P> {
        policy.grow(world.pages() as usize);
        let mut tree = Tree(vec![None]);
        for group in 0..world.groups {
            // The second group is below the first: a small tree.
            let parent = if group == 1 { 1 } else { 0 };
            node::add_lruvec(&mut policy, Some(parent)).expect("the kernels' policies know groups");
            tree.0.push(Some(parent));
        }
        // The root is tight, the groups are loose until a step changes that.
        let mut limits = vec![usize::MAX; tree.0.len()];
        limits[0] = limit;
        Driver { policy, memory: TestMemory::new(world.clone()), limits, tree }
    }

    fn usage(&self, group: LruvecId) -> usize {
        self.memory.usage(&self.tree.subtree(group))
    }

    fn reclaim(&mut self, group: LruvecId, goal: u32, incoming: Option<PageId>) -> u32 {
        let before = self.memory.evicted.len();
        let freed = self.policy.reclaim(&ReclaimRequest { target: group, goal, incoming }, &mut self.memory);
        assert_eq!(freed as usize, self.memory.evicted.len() - before, "reclaim counts what it freed");
        freed
    }

    fn bring_in(&mut self, page: PageId, in_fault: bool, overwrites: bool) {
        let lruvec = self.memory.world.lruvec(page);
        let goal = P::RECLAIM_BATCH;
        for level in self.tree.ancestors(lruvec) {
            let mut fruitless = 0;
            while self.usage(level) >= self.limits[usize::from(level)] && fruitless < RETRIES {
                fruitless += u32::from(self.reclaim(level, goal, Some(page)) == 0);
            }
        }
        let keeps_slot = self.memory.world.keeps_slots && self.memory.slot(page).has_swap_slot;
        let shadow = self.memory.slot(page).shadow.take();
        let page_type = self.memory.world.page_type(page);
        let admission = match (in_fault, overwrites) {
            (true, _) => Admission::fault(page_type),
            (false, false) => Admission::read(page_type),
            (false, true) => Admission::overwrite(page_type),
        };
        let admission = admission.in_lruvec(lruvec).keeping_slot(keeps_slot).with_shadow(shadow);
        self.policy.admit(page, &admission, &mut self.memory);
        self.memory.bring_in(page);
    }

    /// Whether the page was there, for accesses.
    pub fn apply(&mut self, step: &Step) -> Option<bool> {
        self.memory.evicted.clear();
        self.memory.asked.clear();
        match *step {
            Step::Read(page) if self.memory.world.page_type(page) == PageType::File => {
                let hit = self.memory.resident(page);
                if !hit {
                    self.bring_in(page, false, false);
                }
                self.policy.accessed(page, &mut self.memory);
                return Some(hit);
            }
            Step::Write(page) if self.memory.world.page_type(page) == PageType::File => {
                let hit = self.memory.resident(page);
                if !hit {
                    self.bring_in(page, false, true);
                }
                self.memory.slot(page).dirty = true;
                return Some(hit);
            }
            Step::Read(_) | Step::Write(_) => {}
            Step::Touch { page, mapping, write } => {
                let hit = self.memory.resident(page);
                if !hit {
                    self.bring_in(page, true, false);
                }
                self.memory.touch(page, mapping, write);
                return Some(hit);
            }
            Step::Free(page) if self.memory.resident(page) => {
                self.policy.freed(page);
                self.memory.drop_page(page);
            }
            Step::Free(page) => self.memory.slot(page).shadow = None,
            Step::Lock(page, locked) => self.memory.slot(page).locked = locked && self.memory.resident(page),
            Step::Pin(page, pinned) if self.memory.resident(page) && self.memory.slot(page).unevictable != pinned => {
                self.memory.slot(page).unevictable = pinned;
                if !pinned {
                    self.policy.nodes().expect("a kernel's").made_evictable(page);
                }
            }
            Step::Pin(..) => {}
            Step::StartWrite(page) => {
                let slot = self.memory.slot(page);
                slot.writeback |= slot.dirty && slot.resident;
            }
            Step::EndWrite(Some(page)) => self.end_write(page),
            Step::EndWrite(None) => (0..self.memory.world.pages()).for_each(|page| self.end_write(page)),
            Step::Refuse(page, refusal) => self.memory.slot(page).refusal = refusal,
            Step::RefuseAll(refusal) => self.memory.slots.iter_mut().for_each(|slot| slot.refusal = refusal),
            Step::Reclaim(group, goal) if usize::from(group) < self.limits.len() => {
                self.reclaim(group, goal, None);
            }
            Step::Reclaim(..) => {}
            Step::Proactive(target, goal, swappiness) if usize::from(target) < self.limits.len() => {
                let request = ProactiveRequest { target, goal, swappiness };
                let before = self.memory.evicted.len();
                let freed = node::reclaim_proactively(&mut self.policy, &request, &mut self.memory);
                assert_eq!(freed as usize, self.memory.evicted.len() - before, "reclaim counts what it freed");
            }
            Step::Proactive(..) => {}
            Step::PageOut(page) if self.memory.resident(page) => {
                let gone = node::page_out(&mut self.policy, page, &mut self.memory);
                assert_eq!(gone, !self.memory.resident(page));
            }
            Step::PageOut(_) => {}
            Step::Limit(group, limit) => {
                if let Some(of_group) = self.limits.get_mut(usize::from(group)) {
                    *of_group = limit;
                }
            }
            Step::Sort { page, hot: true, rule } if self.memory.resident(page) => {
                self.policy.sorting().expect("lists").prioritise(page, rule, &mut self.memory);
            }
            Step::Sort { page, hot: false, rule } if self.memory.resident(page) => {
                self.policy.sorting().expect("lists").deprioritise(page, rule, &mut self.memory);
            }
            Step::Sort { .. } => {}
        }
        None
    }

    fn end_write(&mut self, page: PageId) {
        let slot = self.memory.slot(page);
        if slot.resident && slot.writeback && !slot.locked {
            slot.writeback = false;
            slot.dirty = false;
            self.policy.nodes().expect("a kernel's").write_finished(page);
        }
    }

    /// The counters that both must agree on: events, not the cost of finding them.
    fn counters(&self) -> Counters {
        let c = self.policy.counters();
        Counters {
            nr_vmscan_write: 0,
            walk_promoted: 0,
            walk_entries: 0,
            look_around_entries: 0,
            reference_checks: 0,
            ..c
        }
    }
}

/// Holds the policy to its model: the same hits, evictions, reference checks, counters and sizes after each step.
pub fn equals_model(policy: impl Inspect, model: impl Inspect, world: &World, limit: usize, steps: &[Step]) {
    let mut fast = Driver::new(policy, world, limit);
    let mut slow = Driver::new(model, world, limit);
    for (index, step) in steps.iter().enumerate() {
        let expected = slow.apply(step);
        let hit = fast.apply(step);
        let at = || format!("step {index}: {step:?}");
        assert_eq!(hit, expected, "{}: hit or miss", at());
        assert_eq!(fast.memory.asked, slow.memory.asked, "{}: pages looked at, policy and model", at());
        assert_eq!(fast.memory.evicted, slow.memory.evicted, "{}: evictions, policy and model", at());
        for ((name, ours), theirs) in Counters::NAMES.iter().zip(fast.counters().values()).zip(slow.counters().values())
        {
            assert_eq!(ours, theirs, "{}: {name}, policy and model", at());
        }
        for group in 0..=world.groups {
            assert_eq!(fast.policy.sizes(group), slow.policy.sizes(group), "{}: sizes of {group}", at());
        }
        // Looking at everything is quadratic: long runs do it now and then.
        if index % (1 + world.pages() as usize / 100) == 0 {
            fast.policy.check();
            slow.policy.check();
        }
    }
}

/// Enough reads and faults of pages of different heat that the controller of the multi-gen LRU has something to decide:
/// it needs 64 refaults of a tier.
pub fn churn() -> impl Strategy<Value = (World, usize, Vec<Step>)> {
    let burst = (0..1000u32, 0..1000u32, 1..6usize, 0..20u32);
    let shape = (prop_oneof![Just(1u32), 100..500u32], 500..1000u32, 150..400usize);
    (shape, prop::collection::vec(burst, 500..2500)).prop_map(|((anon, file, limit), bursts)| {
        let world = World {
            anon,
            file,
            stride: 1,
            executable: 0,
            swap: 100_000,
            keeps_slots: false,
            slow_swap: false,
            walkable: true,
            region_bits: true,
            groups: 0,
        };
        let steps = bursts.into_iter().flat_map(|(one, other, times, kind)| {
            // The smaller of two draws: low pages are hot. Hot pages are read more often in a row.
            let page = one.min(other);
            let times = if page < 300 { times } else { 1 };
            let step = match kind {
                0..=2 if anon > 1 => Step::Touch { page: page % anon, mapping: 0, write: false },
                _ => Step::Read(page),
            };
            std::iter::repeat_n(step, times)
        });
        let steps = fit(steps.collect(), &world);
        (world, limit, steps)
    })
}

/// Memory of a scenario and its limit.
pub fn worlds() -> impl Strategy<Value = (World, usize)> {
    let shape = (0..200u32, 0..200u32, prop_oneof![Just(1u64), Just(3), Just(40)], prop_oneof![Just(0u32), 2..9u32]);
    let swap = prop_oneof![Just(0u64), 1..80u64, Just(100_000)];
    let switches = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.9), any::<bool>());
    let groups = prop_oneof![3 => Just(0u16), 2 => 1..4u16];
    (shape, swap, switches, groups, 8..200usize).prop_map(|(shape, swap, switches, groups, limit)| {
        let (anon, file, stride, executable) = shape;
        let (keeps_slots, slow_swap, walkable, region_bits) = switches;
        let (anon, file) = (anon + 1, file + 19);
        let world =
            World { anon, file, stride, executable, swap, keeps_slots, slow_swap, walkable, region_bits, groups };
        // Something must go now and then.
        let limit = limit.min((world.pages() as usize * 3 / 4).max(8));
        (world, limit)
    })
}

/// Pages as numbers that [`fit`] brings into the world.
fn page() -> impl Strategy<Value = PageId> {
    prop_oneof![2 => 0..6u32, 3 => 0..40u32, 2 => 200..240u32, 4 => 0..400u32]
}

fn access() -> impl Strategy<Value = Step> {
    let touch = (page(), prop::bool::weighted(0.1), prop::bool::weighted(0.3))
        .prop_map(|(page, second, write)| Step::Touch { page, mapping: usize::from(second), write });
    prop_oneof![5 => touch, 5 => page().prop_map(Step::Read), 1 => page().prop_map(Step::Write)]
}

/// A run over neighbouring pages, several times round: loops are what fills generations and active lists.
fn run() -> impl Strategy<Value = Vec<Step>> {
    (0..400u32, 1..120u32, 1..5u32, any::<bool>()).prop_map(|(first, length, rounds, read)| {
        (0..length * rounds)
            .map(|i| first + i % length)
            .map(|page| if read { Step::Read(page) } else { Step::Touch { page, mapping: 0, write: page % 3 == 0 } })
            .collect()
    })
}

fn disturbance() -> impl Strategy<Value = Step> {
    let refusal = prop_oneof![
        3 => Just(None),
        1 => Just(Some(Eviction::Kept)),
        1 => Just(Some(Eviction::Refused)),
        1 => Just(Some(Eviction::WriteStarted))
    ];
    let rule = prop_oneof![Just(SortRule::MarkAccessed), Just(SortRule::Activate)];
    prop_oneof![
        4 => page().prop_map(Step::Free),
        2 => (page(), any::<bool>()).prop_map(|(page, locked)| Step::Lock(page, locked)),
        2 => (page(), any::<bool>()).prop_map(|(page, pinned)| Step::Pin(page, pinned)),
        2 => page().prop_map(Step::StartWrite),
        3 => prop::option::of(page()).prop_map(Step::EndWrite),
        2 => (page(), refusal.clone()).prop_map(|(page, refusal)| Step::Refuse(page, refusal)),
        1 => prop_oneof![4 => Just(None), 1 => refusal].prop_map(Step::RefuseAll),
        2 => (0..4u16, 1..100u32).prop_map(|(group, goal)| Step::Reclaim(group, goal)),
        2 => (0..4u16, 1..100u32, prop::option::of(0..=200u16))
            .prop_map(|(group, goal, swappiness)| Step::Proactive(group, goal, swappiness)),
        3 => page().prop_map(Step::PageOut),
        1 => (0..4u16, 8..200usize).prop_map(|(group, limit)| Step::Limit(group, limit)),
        3 => (page(), any::<bool>(), rule).prop_map(|(page, hot, rule)| Step::Sort { page, hot, rule }),
    ]
}

/// Accesses and loops, now and then with things that go wrong.
pub fn steps(calm: bool) -> impl Strategy<Value = Vec<Step>> {
    let trouble = if calm { 0 } else { 3 };
    let chunk = prop_oneof![
        8 => prop::collection::vec(access(), 1..60),
        4 => run(),
        1 => page().prop_map(|page| vec![Step::Free(page)]),
        trouble => prop::collection::vec(disturbance(), 1..6),
    ];
    prop::collection::vec(chunk, 0..25).prop_map(|chunks| chunks.concat())
}

/// Pages named in the steps that the world does not have are folded into it.
pub fn fit(steps: Vec<Step>, world: &World) -> Vec<Step> {
    let f = |page: PageId| page % world.pages();
    steps
        .into_iter()
        .map(|step| match step {
            Step::Read(p) => Step::Read(world.anon + p % world.file),
            Step::Write(p) => Step::Write(world.anon + p % world.file),
            Step::Touch { page, mapping, write } => Step::Touch { page: f(page), mapping, write },
            Step::Free(p) => Step::Free(f(p)),
            Step::Lock(p, locked) => Step::Lock(f(p), locked),
            Step::Pin(p, pinned) => Step::Pin(f(p), pinned),
            Step::StartWrite(p) => Step::StartWrite(f(p)),
            Step::EndWrite(p) => Step::EndWrite(p.map(f)),
            Step::Refuse(p, refusal) => Step::Refuse(f(p), refusal),
            Step::Sort { page, hot, rule } => Step::Sort { page: f(page), hot, rule },
            Step::PageOut(p) => Step::PageOut(f(p)),
            other => other,
        })
        .collect()
}

/// A scenario: memory, limit, steps.
pub fn scenario(calm: bool) -> impl Strategy<Value = (World, usize, Vec<Step>)> {
    (worlds(), steps(calm)).prop_map(|((world, limit), steps)| {
        let steps = fit(steps, &world);
        (world, limit, steps)
    })
}

/// What a policy leaves in memory even if nothing is in its way.
pub struct Leftover {
    /// Pages that wait in the batch of additions: one less than its size.
    pub batch: usize,
    /// Free swap slots from which on anonymous pages are evicted at all.
    pub swap: u64,
}

/// Whatever memory refuses, reclaim ends, and once nothing is refused any more all pages but the leftover can be
/// evicted.
pub fn survives(policy: impl Inspect, leftover: Leftover, world: &World, limit: usize, steps: &[Step]) {
    let mut driver = Driver::new(policy, world, limit);
    for step in steps {
        driver.apply(step);
        driver.policy.check();
    }
    driver.apply(&Step::RefuseAll(None));
    (0..world.pages()).for_each(|page| {
        driver.apply(&Step::Lock(page, false));
        driver.apply(&Step::Pin(page, false));
        driver.apply(&Step::StartWrite(page));
    });
    driver.apply(&Step::EndWrite(None));
    let mut calls = 0;
    while evictable(&driver.memory, &leftover) >= leftover.batch.max(1) as u64 {
        driver.apply(&Step::Reclaim(0, 32));
        driver.apply(&Step::EndWrite(None));
        calls += 1;
        assert!(calls <= 40 + 4 * world.pages(), "pages are left but none is given up");
    }
}

/// Pages that could go: file pages, and as many anonymous ones as swap has room for.
fn evictable(memory: &TestMemory, leftover: &Leftover) -> u64 {
    let pages = |page_type| {
        (0..memory.world.pages()).filter(|p| memory.resident(*p) && memory.world.page_type(*p) == page_type).count()
    };
    pages(PageType::File) as u64
        + (pages(PageType::Anon) as u64).min((memory.free_swap(0) + 1).saturating_sub(leftover.swap))
}
