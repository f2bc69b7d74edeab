//! LRFU on accessed bits: each reference counts, and counts less the longer it is ago; the page whose references count
//! least goes.
//!
//! What a page's references are worth together moves between how recently it was used (a short half-life) and how often
//! (a long one). The paper counts each reference; mapped memory does not report them. So here the page tables are
//! looked at once an *interval*, a part at a time. A page has at most one reference per interval: the one that brought
//! it in, or its accessed bit. A page that was referenced less than an interval ago does not go. An interval lasts
//! until a share of memory was evicted, or there is nothing else to evict; references age by evictions, so a program
//! that fits in memory forgets nothing. Worth is remembered for evicted pages in their shadow entry: a page that comes
//! back goes on where it was.
//!
//! Some front-ends can serve references of pages which stay evicted ([`Policy::bypass`]). These let in only pages that
//! are worth twice as much as the page that went last. Such a reference counts as if the page had come in and gone at
//! once: in its shadow entry and as an eviction.
//!
//! Worth is kept as the time at which one single reference would be worth as much. This time is the page's *rank*, in
//! steps of the clock. It does not change while time passes. Pages stand on lists by rank, newest at the head; the
//! oldest page of the lowest list goes, unless its bit says otherwise.
//!
//! Invariants: a resident page is on the list of its rank; on each list, pages referenced later are nearer the head;
//! below the hand there are only pages referenced less than an interval ago. Cost: 12 bytes per page id, O(1) per page
//! that comes in or is referenced; all resident pages are looked at once per interval. Source: Lee et al., *LRFU: A
//! Spectrum of Policies that Subsumes the LRU and LFU Policies*, IEEE ToC 50(12), 2001.

use super::evict_leaving;
use super::slot::Slot;
use crate::counters::Counters;
use crate::lists::linked::{Linked, List};
use crate::memory::{Memory, PageTables, RegionKey, Walk};
use crate::page::{NO_PAGE, PageId, Shadow};
use crate::parameter::{Parameter, ParameterError, Parameters, parse_share, parse_switch};
use crate::policy::{Admission, AdmissionFilter, AdmissionThreshold, Bypass, HitReport, Policy, ReclaimRequest};
use crate::ranks;
use crate::workingset::shadow::{ShadowFields, VALUE_BITS, VALUE_MASK};

/// Steps of the clock in which a reference loses half its worth.
const HALF_LIFE_STEPS: f64 = 52.0;
/// Steps of rank a list.
const STEPS_PER_LIST: u64 = 4;
/// Lists: a quarter for what lies behind the clock, the others for what lies before it.
const LISTS: u64 = 128;
/// Parts of an interval: in each a part of the page tables is looked at, so that no fault waits long for it.
const PARTS: u32 = 16;
/// Steps by which a page that could stay out must be ahead of the one that went last: worth twice as much. One that is
/// worth no more would go again before it was used often enough to pay for its coming and going.
const MARGIN: u64 = HALF_LIFE_STEPS as u64;
/// Low bits of a page's state that hold when it was last referenced, in parts of an interval; the others hold its rank.
const TIME_BITS: u32 = 10;

/// What a reference adds to a rank, by its distance in steps.
static SUMS: [u8; ranks::steps(HALF_LIFE_STEPS as usize)] = ranks::sums(HALF_LIFE_STEPS as usize);

/// What a page of some rank has after one reference more, at a time of the clock.
fn referenced(rank: u64, clock: u64) -> u64 {
    let more = SUMS.get(rank.abs_diff(clock) as usize).copied().unwrap_or(0);
    rank.max(clock) + u64::from(more)
}

/// What an evicted page leaves: its rank, of which the high bits do not matter.
fn leave(rank: u64) -> Shadow {
    ShadowFields { workingset: false, lruvec: 0, value: rank & VALUE_MASK }.pack()
}

/// The rank that an evicted page had.
fn remembered(shadow: Shadow, clock: u64) -> u64 {
    let unused = 64 - VALUE_BITS;
    let ahead = ShadowFields::unpack(shadow).value.wrapping_sub(clock) << unused;
    clock.saturating_add_signed(ahead as i64 >> unused)
}

/// The admission filter: a page that would be worth less than the threshold even with this reference stays evicted.
fn stays_evicted(shadow: Shadow, threshold: AdmissionThreshold) -> Option<Shadow> {
    let rank = referenced(remembered(shadow, threshold.clock), threshold.clock);
    (rank < threshold.min_rank).then(|| leave(rank))
}

/// How fast references age, and whether pages may stay evicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LrfuParams {
    /// Memory sizes evicted after which a reference counts half, 0.01 to 100.
    pub half_life: f64,
    /// Share of the resident pages that is evicted in an interval, above 0 and at most 1.
    pub interval: f64,
    /// References to evicted pages below the admission threshold are served without bringing the page in, where the
    /// front-end can do that.
    pub bypass: bool,
}

impl Default for LrfuParams {
    fn default() -> LrfuParams {
        LrfuParams { half_life: 2.0, interval: 0.15, bypass: false }
    }
}

impl Parameters for LrfuParams {
    const LIST: &'static [Parameter] = &[
        Parameter {
            name: "half_life",
            default: "2",
            values: "a number from 0.01 to 100",
            meaning: "memory sizes evicted after which a reference counts half",
        },
        Parameter {
            name: "interval",
            default: "15%",
            values: "a share above 0, up to 100% or 1",
            meaning: "share of the resident pages that is evicted between two looks at a page's accessed bit",
        },
        Parameter {
            name: "bypass",
            default: "no",
            values: "yes or no",
            meaning: "a reference to an evicted page worth less than twice the last victim is served while the page stays out",
        },
    ];

    fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        let invalid = || ParameterError::invalid(name, value, Self::LIST);
        match name {
            "half_life" => {
                let half_life = value.parse().ok().filter(|half_life| (0.01..=100.0).contains(half_life));
                self.half_life = half_life.ok_or_else(invalid)?;
            }
            "interval" => {
                self.interval = parse_share(value).filter(|share| *share > 0.0).ok_or_else(invalid)?;
            }
            "bypass" => self.bypass = parse_switch(value).ok_or_else(invalid)?,
            _ => return Err(ParameterError::unknown(name, Self::LIST)),
        }
        Ok(())
    }
}

/// Rank of a page and time of its last reference, both without their high bits.
#[derive(Clone, Copy, Debug, Default)]
struct Worth(u32);

impl Worth {
    fn new(rank: u64, time: u32) -> Worth {
        Worth((rank as u32) << TIME_BITS | time & ((1 << TIME_BITS) - 1))
    }

    /// The whole rank, which lies within half its range of `near`.
    fn rank(self, near: u64) -> u64 {
        let ahead = (self.0 >> TIME_BITS).wrapping_sub(near as u32) << TIME_BITS;
        near.wrapping_add_signed(i64::from(ahead as i32 >> TIME_BITS))
    }

    /// Whether the page was referenced less than an interval ago (or 64 intervals ago, which delays its eviction by
    /// one).
    fn is_recent(self, time: u32) -> bool {
        time.wrapping_sub(self.0) & ((1 << TIME_BITS) - 1) < PARTS
    }
}

/// Resident pages by rank.
#[derive(Clone, Debug)]
struct Ranks {
    slots: Vec<Slot<Worth>>,
    lists: Vec<List>,
    /// The list to evict from, as a rank divided by [`STEPS_PER_LIST`].
    hand: u64,
    /// Parts of intervals since the beginning.
    time: u32,
    /// What a reference's rank is now.
    clock: u64,
}

impl Ranks {
    fn new() -> Ranks {
        // Not when the first fault asks for it.
        // Far from 0, so that no rank is below it.
        let clock = 1 << 20;
        Ranks { slots: Vec::new(), lists: vec![List::default(); LISTS as usize], hand: 0, time: 0, clock }
    }

    /// The list of everything that lies far behind.
    fn bottom(&self) -> u64 {
        self.clock / STEPS_PER_LIST - LISTS / 4 + 1
    }

    fn top(&self) -> u64 {
        self.bottom() + LISTS - 1
    }

    fn list_of(&self, page: PageId) -> usize {
        let rank = self.slots[page as usize].state.rank(self.clock);
        ((rank / STEPS_PER_LIST).clamp(self.bottom(), self.top()) % LISTS) as usize
    }

    /// A page that counts as referenced now.
    fn push(&mut self, page: PageId, rank: u64) {
        self.slots[page as usize].state = Worth::new(rank, self.time);
        let list = self.list_of(page);
        self.lists[list].push_head(&mut self.slots, page);
    }

    fn remove(&mut self, page: PageId) {
        let list = self.list_of(page);
        self.lists[list].remove(&mut self.slots, page);
    }

    /// Notes a reference of a resident page, unless it had one less than an interval ago.
    fn refer(&mut self, page: PageId) {
        let worth = self.slots[page as usize].state;
        if !worth.is_recent(self.time) {
            let rank = referenced(worth.rank(self.clock), self.clock);
            self.remove(page);
            self.push(page, rank);
        }
    }

    /// The next part of an interval begins, some steps later. What would then lie below all lists moves to the lowest.
    fn next_part(&mut self, steps: u64) {
        let before = self.bottom();
        self.time = self.time.wrapping_add(1);
        self.clock += steps;
        // From the top down, so that each page is older than those that are put in front of it.
        for left in (before..self.bottom().min(before + LISTS)).rev() {
            let mut left = std::mem::take(&mut self.lists[(left % LISTS) as usize]);
            let mut pages = List::default();
            while let Some(page) = left.pop_tail(&mut self.slots) {
                pages.push_head(&mut self.slots, page);
            }
            while let Some(page) = pages.head() {
                pages.remove(&mut self.slots, page);
                let list = self.list_of(page);
                self.lists[list].push_tail(&mut self.slots, page);
            }
        }
        self.hand = self.bottom();
    }

    /// The page to go next, of those that were not referenced for an interval.
    fn next(&mut self) -> Option<PageId> {
        while self.hand <= self.top() {
            let oldest = self.lists[(self.hand % LISTS) as usize].tail();
            let old = oldest.filter(|page| !self.slots[*page as usize].state.is_recent(self.time));
            if old.is_some() {
                return old;
            }
            self.hand += 1;
        }
        None
    }
}

impl Walk for Ranks {
    fn starts(&mut self) {}
    fn enters(&mut self, _: RegionKey, _: Option<bool>, _: bool) -> bool {
        true
    }
    fn eligible(&mut self, _: PageId) -> bool {
        true
    }
    fn young(&mut self, page: PageId) {
        self.refer(page);
    }
    fn leaves(&mut self, _: RegionKey, _: u32, _: u32) {}
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Lrfu {
    params: LrfuParams,
    ranks: Ranks,
    resident: usize,
    /// Pages evicted since this part of the interval began.
    evicted: usize,
    /// Rank of the page that was evicted last.
    last_rank: u64,
    /// Part of a step by which the clock is behind.
    behind: f64,
    /// Some page that was looked at had no page-table entry that a walk could have found.
    has_unmapped: bool,
    counters: Counters,
}

impl Default for Lrfu {
    fn default() -> Lrfu {
        Lrfu::new(LrfuParams::default())
    }
}

impl Lrfu {
    /// Empty lists.
    pub fn new(params: LrfuParams) -> Lrfu {
        Lrfu {
            params,
            ranks: Ranks::new(),
            resident: 0,
            evicted: 0,
            last_rank: 0,
            behind: 0.0,
            has_unmapped: false,
            counters: Counters::default(),
        }
    }

    /// Takes a part of the accessed bits and begins the next part of an interval.
    fn end_part<M: Memory>(&mut self, memory: &mut M) {
        let part = self.ranks.time % PARTS;
        let walked = memory.page_tables().is_some_and(|tables| tables.walk_part(0, part, PARTS, &mut self.ranks));
        // What page tables do not show, from the highest rank down: a page moves up or to the head of its list.
        let all = part == 0 && (!walked || self.has_unmapped);
        let lists = if all { self.ranks.bottom()..self.ranks.top() + 1 } else { 0..0 };
        for list in lists.rev() {
            let mut next = self.ranks.lists[(list % LISTS) as usize].tail();
            while let Some(page) = next {
                next = Some(self.ranks.slots[page as usize].newer()).filter(|page| *page != NO_PAGE);
                if !memory.is_mapped(page) {
                    self.counters.reference_checks += 1;
                    if memory.take_references(page).mappings > 0 {
                        self.ranks.refer(page);
                    }
                }
            }
        }
        // At most one, although most of memory may have been freed since: ranks hold no more than that.
        let memory_sizes = (self.evicted as f64 / self.resident.max(1) as f64).min(1.0);
        self.behind += memory_sizes / self.params.half_life * HALF_LIFE_STEPS;
        self.ranks.next_part(self.behind as u64);
        self.behind = self.behind.fract();
        self.evicted = 0;
    }

    /// Whether this part of the interval is over.
    fn is_over(&self) -> bool {
        (self.evicted * PARTS as usize) as f64 >= self.resident as f64 * self.params.interval
    }
}

impl Policy for Lrfu {
    const HITS: HitReport = HitReport::AccessedBit;

    fn admit<M: Memory>(&mut self, page: PageId, admission: &Admission, _memory: &mut M) {
        // Far behind if it left nothing.
        let before = admission.shadow.map_or(0, |shadow| remembered(shadow, self.ranks.clock));
        let rank = referenced(before, self.ranks.clock);
        self.ranks.push(page, rank);
        self.resident += 1;
    }

    fn freed(&mut self, page: PageId) {
        self.ranks.remove(page);
        self.resident -= 1;
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let mut freed = 0;
        // Each page twice, once to find it referenced and once to let it go, and time for all to cease to be recent.
        for _ in 0..2 * self.resident + 2 * PARTS as usize {
            if freed == request.goal {
                break;
            }
            let next = if self.is_over() { None } else { self.ranks.next() };
            let Some(page) = next else {
                self.end_part(memory);
                continue;
            };
            let rank = self.ranks.slots[page as usize].state.rank(self.ranks.clock);
            self.counters.reference_checks += 1;
            self.has_unmapped |= !memory.is_mapped(page);
            if memory.take_references(page).mappings > 0 {
                self.ranks.refer(page);
                continue;
            }
            self.ranks.remove(page);
            if evict_leaving(page, leave(rank), memory, &mut self.counters) {
                self.resident -= 1;
                self.evicted += 1;
                self.last_rank = rank;
                freed += 1;
            } else {
                // As if it had been referenced, but worth no more than one reference.
                self.ranks.push(page, rank.max(self.ranks.clock));
            }
        }
        freed
    }

    fn grow(&mut self, pages: usize) {
        self.ranks.slots.resize(pages.max(self.ranks.slots.len()), Slot::default());
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.ranks.slots.capacity() * size_of::<Slot<Worth>>() + self.ranks.lists.capacity() * size_of::<List>()
    }

    fn bypass(&mut self) -> Option<&mut impl Bypass> {
        if self.params.bypass { Some(self) } else { None }
    }
}

impl Bypass for Lrfu {
    fn admission_filter(&self) -> AdmissionFilter {
        stays_evicted
    }

    fn admission_threshold(&self) -> AdmissionThreshold {
        AdmissionThreshold { clock: self.ranks.clock, min_rank: self.last_rank + MARGIN }
    }

    // One part at most, however many references there were: in small memories intervals are longer then.
    fn bypassed<M: Memory>(&mut self, references: usize, memory: &mut M) {
        self.evicted += references;
        if self.is_over() {
            self.end_part(memory);
        }
    }
}
