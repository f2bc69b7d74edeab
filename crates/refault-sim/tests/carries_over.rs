//! What "a result on a trace carries over" means: the same accesses are made through the replay and through a live
//! structure in this process. Both have the same victims, faults and counters, for every policy that both run.
//!
//! The structure is driven as a pager drives a policy, and shares no code with the replay but the core: it holds a
//! [`DynPolicy`], and tells it of pages that came in only when it next needs victims. It keeps shadows in slots of its
//! own, and its pages in a table of bytes that are really written and read back. One thread; accessed bits are read
//! exactly. Its limits are those of ARCHITECTURE.md: threads, background eviction and accessed bits that are found by
//! scanning are not in it.

use refault_core::memory::{Eviction, LookAround, Memory, Neighbourhood, PageTables, References, SwapSpace, Walk};
use refault_core::policy::registry::{self, BuildContext, FrontEnd, PolicySpec};
use refault_core::policy::room::{MAX_FRUITLESS_CALLS, make_room};
use refault_core::policy::{Admission, HitReport, ReclaimRequest};
use refault_core::{Counters, DynPolicy, LruvecId, PageId, PageType, Shadow};
use refault_sim::flat_memory::Swap;
use refault_sim::{Access, LayoutBuilder, Limits, Outcome, named};
use refault_testing::Random;
use refault_trace::{Entry, Kind};

const PAGES: usize = 1800;
const REGION: usize = 512;
const WINDOW: usize = 64;

#[derive(Clone, Default)]
struct Page {
    resident: bool,
    young: bool,
    shadow: Option<Shadow>,
    /// What the program has written, where it is: a frame or a store.
    frame: Option<u64>,
    stored: Option<u64>,
}

/// Memory of a program, all anonymous, at addresses 0 to [`PAGES`].
struct Live {
    pages: Vec<Page>,
    /// Accessed bits of the second level.
    region_young: Vec<bool>,
    ran: bool,
    walked: bool,
    resident: usize,
    evicted: Vec<PageId>,
}

impl Memory for Live {
    fn take_references(&mut self, page: PageId) -> References {
        let young = std::mem::take(&mut self.pages[page as usize].young);
        References { mappings: u32::from(young), ..References::default() }
    }

    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        let slot = &mut self.pages[page as usize];
        assert!(std::mem::take(&mut slot.resident), "page {page} is evicted twice");
        slot.young = false;
        slot.stored = slot.frame.take();
        slot.shadow = (shadow != Shadow::NONE).then_some(shadow);
        self.resident -= 1;
        self.evicted.push(page);
        Eviction::Freed { pages_written: 1 }
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.pages[page as usize].resident
    }

    fn is_mapped(&self, page: PageId) -> bool {
        self.is_resident(page)
    }

    fn page_tables(&mut self) -> Option<&mut impl PageTables> {
        Some(self)
    }

    fn swap(&mut self) -> Option<&mut impl SwapSpace> {
        Some(self)
    }
}

impl SwapSpace for Live {
    fn free_swap(&self, _lruvec: LruvecId) -> u64 {
        u64::from(u32::MAX)
    }
}

impl Live {
    /// Takes the accessed bits of a range that `eligible` wants, and reports them.
    fn harvest<V>(
        &mut self,
        range: std::ops::Range<usize>,
        visitor: &mut V,
        eligible: fn(&mut V, PageId) -> bool,
        young: fn(&mut V, PageId),
        but: Option<PageId>,
    ) -> u32 {
        let mut found = 0;
        for at in range {
            let page = at as PageId;
            if Some(page) != but && self.pages[at].young && eligible(visitor, page) {
                self.pages[at].young = false;
                young(visitor, page);
                found += 1;
            }
        }
        found
    }
}

impl PageTables for Live {
    fn look_around<V: LookAround>(&mut self, page: PageId, visitor: &mut V) -> Option<Neighbourhood> {
        let at = page as usize;
        let region = at / REGION;
        let (first, end) = (region * REGION, ((region + 1) * REGION).min(PAGES));
        let start = at.saturating_sub(WINDOW / 2).max(first).min(end.saturating_sub(WINDOW).max(first));
        let range = start..(start + WINDOW).min(end);
        let entries = range.len() as u32;
        let young = 1 + self.harvest(range, visitor, V::eligible, V::young, Some(page));
        Some(Neighbourhood { region: region as u64, entries, young })
    }

    fn walk<V: Walk>(&mut self, _lruvec: LruvecId, visitor: &mut V) -> bool {
        if !std::mem::take(&mut self.ran) {
            return true;
        }
        visitor.starts();
        let forced = !std::mem::replace(&mut self.walked, true);
        self.ran = forced;
        for region in 0..PAGES.div_ceil(REGION) {
            let accessed = std::mem::take(&mut self.region_young[region]);
            if visitor.enters(region as u64, Some(accessed), forced) {
                let range = region * REGION..((region + 1) * REGION).min(PAGES);
                let entries = range.len() as u32;
                let young = self.harvest(range, visitor, V::eligible, V::young, None);
                visitor.leaves(region as u64, entries, young);
            }
        }
        true
    }
}

/// The structure: a policy without its type, and reports that wait.
struct Structure {
    policy: Box<dyn DynPolicy<Live> + Send>,
    memory: Live,
    reports: Vec<PageId>,
    capacity: usize,
    faults: u64,
    bypassed: u64,
    limit_hits: u64,
}

impl Structure {
    fn new(spec: &PolicySpec, capacity: usize) -> Structure {
        let mut policy = registry::build::<Live>(&spec.label, FrontEnd::Replay).expect("needs no future");
        policy.grow(PAGES);
        policy.set_capacity(capacity);
        let memory = Live {
            pages: vec![Page::default(); PAGES],
            region_young: vec![false; PAGES.div_ceil(REGION)],
            ran: true,
            walked: false,
            resident: 0,
            evicted: Vec::new(),
        };
        Structure { policy, memory, reports: Vec::new(), capacity, faults: 0, bypassed: 0, limit_hits: 0 }
    }

    /// The pages that came in since victims were last needed become the policy's.
    fn take_reports(&mut self) {
        for page in self.reports.drain(..) {
            let shadow = self.memory.pages[page as usize].shadow.take();
            self.policy.admit(page, &Admission::fault(PageType::Anon).with_shadow(shadow), &mut self.memory);
        }
    }

    /// What the program reads: the value it wrote last.
    fn access(&mut self, page: PageId, write: Option<u64>) -> u64 {
        let at = page as usize;
        if !self.memory.pages[at].resident {
            self.faults += 1;
            if self.memory.resident >= self.capacity {
                self.take_reports();
                if let Some(value) = self.served_outside(page, write) {
                    return value;
                }
                let goal = self.policy.reclaim_batch();
                let request = ReclaimRequest { target: 0, goal, incoming: Some(page) };
                self.memory.ran = true;
                let capacity = self.capacity;
                let (policy, memory) = (&mut *self.policy, &mut self.memory);
                let room =
                    make_room(policy, &request, memory, MAX_FRUITLESS_CALLS, |memory| memory.resident < capacity);
                assert!(room.made);
                self.limit_hits += u64::from(room.calls);
            }
            let slot = &mut self.memory.pages[at];
            slot.frame = slot.stored.take();
            slot.resident = true;
            self.memory.resident += 1;
            self.reports.push(page);
            // The access that brings a page in is no hit for policies that know nothing but hits.
            if self.policy.hits() != HitReport::Kernel {
                return self.contents(at, write);
            }
        }
        self.memory.pages[at].young = true;
        self.memory.region_young[at / REGION] = true;
        self.contents(at, write)
    }

    fn contents(&mut self, at: usize, write: Option<u64>) -> u64 {
        let frame = self.memory.pages[at].frame.get_or_insert(0);
        *frame = write.unwrap_or(*frame);
        *frame
    }

    fn served_outside(&mut self, page: PageId, write: Option<u64>) -> Option<u64> {
        let filter = self.policy.admission_filter()?;
        let threshold = self.policy.admission_threshold();
        let slot = &mut self.memory.pages[page as usize];
        slot.shadow = Some(filter(slot.shadow?, threshold)?);
        let stored = slot.stored.get_or_insert(0);
        *stored = write.unwrap_or(*stored);
        let value = *stored;
        self.policy.bypassed(1, &mut self.memory);
        self.bypassed += 1;
        Some(value)
    }
}

/// Hot pages, cold pages, phases and a scan that does not fit, twice over.
fn accesses() -> Vec<(PageId, bool)> {
    let mut random = Random::new(7);
    let mut random = |below| random.index(below);
    let mut accesses = Vec::new();
    // So that ids are addresses: all pages once, in order.
    accesses.extend((0..PAGES).map(|page| (page as PageId, true)));
    for phase in 0..2 {
        for _ in 0..6_000 {
            let page = match random(4) {
                0 => random(PAGES),
                1 => phase * 500 + random(400),
                _ => phase * 900 + random(100),
            };
            accesses.push((page as PageId, random(3) == 0));
        }
        accesses.extend((0..6 * 1000).map(|n| (300 + (n % 1000) as PageId, false)));
    }
    accesses
}

/// Follows the accesses through both, one by one.
fn follow(spec: &PolicySpec, capacity: usize) -> (Outcome, Structure) {
    let accesses = accesses();
    let entries: Vec<Entry> =
        accesses.iter().map(|(page, write)| Entry::new(u64::from(*page), Kind::Anon, *write)).collect();
    let mut builder = LayoutBuilder::new();
    builder.observe(&entries);
    let layout = builder.finish().expect("few pages");
    let mut block: Vec<Access> = Vec::new();
    layout.translate(&entries, &mut block);
    let limits = Limits { memory_pages: capacity, swap: Swap::default() };
    let mut replay = named::replay(spec, &BuildContext::default(), &layout, limits);
    let mut live = Structure::new(spec, capacity);
    let mut written = vec![0; PAGES];
    for (number, (access, (page, write))) in block.iter().zip(&accesses).enumerate() {
        assert_eq!(access.page(), *page, "ids are addresses");
        let misses = replay.outcome().misses;
        replay.run(std::slice::from_ref(access));
        let (faults, value) = (live.faults, if *write { Some(number as u64 + 1) } else { None });
        written[*page as usize] = value.unwrap_or(written[*page as usize]);
        let read = live.access(*page, value);
        let what = format!("{} at access {number}, page {page}", spec.label);
        assert_eq!(read, written[*page as usize], "contents: {what}");
        assert_eq!(live.faults - faults, replay.outcome().misses - misses, "fault or not: {what}");
        for victim in live.memory.evicted.drain(..) {
            assert!(!replay.memory().is_resident(victim), "victim {victim}: {what}");
        }
        assert_eq!(live.memory.resident, replay.memory().resident(), "number of victims: {what}");
    }
    (replay.outcome(), live)
}

#[test]
fn replay_and_live_structure_agree_on_victims_faults_and_counters() {
    let defaults = registry::all(FrontEnd::Pager);
    let decorated = ["mglru{cyclic=yes}", "fifo{cyclic=yes}", "lrfu{bypass=yes}", "lrfu{bypass=yes,cyclic=yes}"];
    // A structure that is read by calls can serve a reference and leave the page out, which the pager cannot.
    let decorated = decorated.map(|text| PolicySpec::parse_for(text, FrontEnd::Replay).expect("known"));
    for spec in defaults.chain(decorated) {
        let (outcome, mut live) = follow(&spec, 700);
        live.take_reports();
        let label = &spec.label;
        assert!(outcome.misses > 3000 && live.faults == outcome.misses, "{label}");
        assert_eq!(live.bypassed, outcome.counters.bypassed, "{label}");
        assert_eq!(live.bypassed > 0, spec.is_on("bypass"), "{label}");
        assert_eq!(live.limit_hits, outcome.counters.limit_hits, "{label}");
        // The policy's own counters; those of faults and I/O are the front-ends'.
        let ours = live.policy.counters();
        let expected =
            Counters { pgmajfault: 0, pswpin: 0, pswpout: 0, limit_hits: 0, bypassed: 0, ..outcome.counters };
        assert_eq!(ours, expected, "{label}");
    }
}
