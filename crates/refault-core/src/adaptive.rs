//! The project's own policy: finds out while it runs which way of choosing victims suits, and bounds what being wrong
//! costs.
//!
//! Three **directories** say what memory would hold if it were managed by recency (LRU), by reuse distance (LIRS) and
//! by frequency (LFU with aging). LIRS also keeps a part of what is scanned in a loop. All see every reference. The one
//! that missed least of late **leads**: a victim is a page that the leader does not hold. There always is one, since
//! the leader holds no more than memory does and also holds the page that comes in; so memory comes to hold what the
//! leader holds as pages come in, and a change of leader costs nothing at the moment it happens. A **guard** compares
//! the policy with LRU and stops it from following the leader where more would be at stake than was won (module
//! `choice`).
//!
//! All directories are exact and share one record per page (module `record`): recency and reuse distance need nothing
//! but the time of the last reference. Nothing is sampled and nothing is random.
//!
//! Two forms: [`Adaptive`] is told of each access (simulator, page cache). [`AdaptiveMapped`] sees accessed bits. A
//! page that comes in is one reference, and so is each accessed bit that is found set. The page tables are looked at
//! once per interval, a sixteenth at a time. A page's bit is also looked at when the page is about to leave memory or a
//! directory. Where memory has no accessed bits, it sees the pages that come in and no others.
//!
//! Invariants: every resident page that is not in a directory is queued as an outsider of that directory; a directory
//! holds at most the capacity once a reference was dealt with.
//! Cost: 12 bytes per page id. Per page of memory it is 4 to 5 for each of recency and reuse distance, and the same for
//! frequency with its window. Outsiders cost up to 4.5 per page id and way. A reference to a page that all hold is one
//! read and one write of its record; others are amortised O(1) but for the sorting in `oldest`.
//! Source: the parts name theirs. Experts that are followed by their misses: Ari et al., *ACME*, WDAS 2002. Others that
//! choose among ways: Megiddo and Modha, *ARC*, FAST 2003; Vietri et al., *LeCaR*, HotStorage 2018; Rodriguez et al.,
//! *CACHEUS*, FAST 2021. The guard and its bound are ours.
//!
//! ```
//! use refault_core::adaptive::Way;
//! use refault_core::{Adaptive, AdaptiveParams};
//!
//! let policy = <Adaptive>::new(AdaptiveParams::default());
//! assert_eq!((policy.leader(), policy.changes_of_leader()), (Way::ReuseDistance, 0)); // until another has missed less
//! ```

mod ahead;
mod choice;
mod frequency;
mod lists;
mod oldest;
mod outsiders;
mod params;
mod queue;
mod recency;
mod record;
mod reuse;

pub use params::AdaptiveParams;

use self::ahead::Ahead;
use self::choice::Choice;
use self::frequency::Frequency;
use self::outsiders::Common;
use self::queue::Strikable;
use self::recency::Recency;
use self::record::{CLOSE, HELD, QUEUED, RESIDENT, Record, SETTLED, Table};
use self::reuse::Reuse;
use crate::counters::Counters;
use crate::memory::{Eviction, Memory, PageTables, RegionKey, Walk};
use crate::page::{PageId, Shadow};
use crate::policy::{Admission, HitReport, Lists, Policy, ReclaimRequest};

/// Parts of an interval: in each a part of the page tables is looked at.
const PARTS: u32 = 16;
/// When times are renumbered.
const LAST_TIME: u32 = u32::MAX - 1;

/// A way of choosing victims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// What was used longest ago goes (LRU).
    Recency = 0,
    /// What was last used again after the longest time goes (LIRS).
    ReuseDistance = 1,
    /// What was used least often goes, older uses counting less (LFU).
    Frequency = 2,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 3] = [Way::Recency, Way::ReuseDistance, Way::Frequency];

    /// The way of this name.
    pub fn from_name(name: &str) -> Option<Way> {
        Way::ALL.into_iter().find(|way| way.name() == name)
    }

    /// As shown to people.
    pub fn name(self) -> &'static str {
        match self {
            Way::Recency => "recency",
            Way::ReuseDistance => "reuse distance",
            Way::Frequency => "frequency",
        }
    }
}

/// What memory would hold under one way of choosing.
trait Directory {
    /// Pages held.
    fn held(&self) -> usize;
    /// A reference to a page whose record already bears its time; `before` is the time of the reference before, 0 for
    /// none. The page is held from now on.
    fn refer(&mut self, page: PageId, before: u32, table: &mut Table);
    /// Lets the next victim go; `None` if nothing is held.
    fn shed(&mut self, table: &mut Table) -> Option<PageId>;
    /// Lets a page go for other reasons, if it is held.
    fn forget(&mut self, page: PageId, table: &mut Table);
    /// Memory has another size. A directory that holds too much is told to [`Directory::shed`] afterwards.
    fn resize(&mut self, capacity: usize, table: &mut Table);
    /// The times of all records were changed, but not their order.
    fn renumbered(&mut self, table: &Table);
    /// Bytes held.
    fn bytes(&self) -> usize;
}

/// See the module. `MAPPED`: only accessed bits are seen.
#[derive(Clone, Debug)]
pub struct Adaptive<const MAPPED: bool = false> {
    params: AdaptiveParams,
    recency: Recency,
    reuse: Reuse,
    frequency: Frequency,
    common: Common,
    resident: usize,
    /// Whose directory the last victim was not in.
    chosen_by: Way,
    look: Look,
    ahead: Ahead,
    last_time: u32,
    counters: Counters,
}

/// The form for mapped memory, which sees accessed bits.
pub type AdaptiveMapped = Adaptive<true>;

/// When accessed bits are looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    part: u32,
    /// Pages evicted since this part of the interval began.
    evicted: usize,
    /// Some page that was looked at had no page-table entry that a walk could have found.
    has_unmapped: bool,
}

impl<const MAPPED: bool> Default for Adaptive<MAPPED> {
    fn default() -> Self {
        Adaptive::new(AdaptiveParams::default())
    }
}

impl<const MAPPED: bool> Adaptive<MAPPED> {
    /// Empty memory.
    pub fn new(params: AdaptiveParams) -> Self {
        let choice = Choice::new([params.recency, params.reuse, params.frequency], params.guard, params.head_start);
        let table = Table { records: Vec::new(), now: 1 };
        let mut policy = Adaptive {
            params,
            recency: Recency::default(),
            reuse: Reuse::default(),
            frequency: Frequency::default(),
            chosen_by: choice.chooser(),
            common: Common { table, choice, outsiders: Default::default(), capacity: 1 },
            resident: 0,
            look: Look::default(),
            ahead: Ahead::default(),
            last_time: LAST_TIME,
            counters: Counters::default(),
        };
        policy.set_capacity(1);
        policy
    }

    /// A policy for tests. It renumbers its times when they reach `last_time`, which must exceed the number of pages by
    /// two. Its clock of departures starts at `clock` (at least 2^16).
    #[doc(hidden)]
    pub fn renumbering_at(params: AdaptiveParams, last_time: u32, clock: u32) -> Self {
        let mut policy = Adaptive { last_time, ..Adaptive::new(params) };
        policy.frequency.start_clock_at(clock);
        policy
    }

    /// Which way of choosing leads now.
    pub fn leader(&self) -> Way {
        self.common.choice.leader
    }

    /// Which way of choosing the last victim was chosen by: the leader's, or recency where the guard held the policy
    /// back.
    pub fn chosen_by(&self) -> Way {
        self.chosen_by
    }

    /// How often the leader changed.
    pub fn changes_of_leader(&self) -> u64 {
        self.common.choice.changes
    }

    /// A reference: all directories see it. The page need not be resident.
    #[inline]
    fn refer(&mut self, page: PageId) {
        let table = &mut self.common.table;
        self.frequency.count(page, table);
        let Record { flags, used: before, .. } = table.at(page);
        table.touch(page);
        if flags & SETTLED != SETTLED {
            self.refer_unsettled(page, flags, before);
        }
        if self.common.table.now >= self.last_time {
            self.renumber();
        }
    }

    fn refer_unsettled(&mut self, page: PageId, flags: u32, before: u32) {
        let missed = HELD.map(|held| flags & held == 0);
        if flags & RESIDENT == 0 {
            self.common.choice.missed(!missed[Way::Recency as usize]);
            self.common.choice.absent += u64::from(missed[Way::Recency as usize]);
        }
        self.recency.refer(page, before, &mut self.common.table);
        self.reuse.refer(page, before, &mut self.common.table);
        self.frequency.refer(page, before, &mut self.common.table);
        if !MAPPED {
            self.shed_excess();
        }
        if missed != [false; 3] {
            self.common.choice.directories_missed(missed);
        }
    }

    /// Lets the directories give up what they hold above the capacity.
    #[inline]
    fn shed_excess(&mut self) {
        self.common.shed_excess(Way::Recency, &mut self.recency);
        self.common.shed_excess(Way::ReuseDistance, &mut self.reuse);
        self.common.shed_excess(Way::Frequency, &mut self.frequency);
    }

    /// The same where no access is reported: with a look at accessed bits, if memory has any.
    fn shed<M: Memory>(&mut self, memory: &mut M) {
        match (MAPPED, memory.has_accessed_bits()) {
            (false, _) => {}
            (true, true) => self.shed_unreferenced(memory),
            (true, false) => self.shed_excess(),
        }
    }

    /// The same where accessed bits are seen: a resident page whose bit is set is not given up, but was referenced.
    fn shed_unreferenced<M: Memory>(&mut self, memory: &mut M) {
        while self.shed_or_refer(Way::Recency, memory)
            || self.shed_or_refer(Way::ReuseDistance, memory)
            || self.shed_or_refer(Way::Frequency, memory)
        {}
    }

    /// Deals with one page that a directory holds too many; false if there is none.
    fn shed_or_refer<M: Memory>(&mut self, way: Way, memory: &mut M) -> bool {
        let common = &mut self.common;
        let directory: &mut dyn Directory = match way {
            Way::Recency => &mut self.recency,
            Way::ReuseDistance => &mut self.reuse,
            Way::Frequency => &mut self.frequency,
        };
        if directory.held() <= common.capacity {
            return false;
        }
        let Some(page) = directory.shed(&mut common.table) else { return false };
        let record = common.table.at(page);
        if !record.is(RESIDENT) {
            common.note_shed(way, page);
            return true;
        }
        self.counters.reference_checks += 1;
        self.look.has_unmapped |= !memory.is_mapped(page);
        if memory.take_references(page).mappings > 0 {
            // As if it had been noticed in time: the directory has not missed it.
            directory.refer(page, record.used, &mut common.table);
            self.refer(page);
        } else {
            common.note_shed(way, page);
        }
        true
    }

    /// The page to offer for eviction.
    fn next_victim(&mut self) -> Option<PageId> {
        self.chosen_by = self.common.choice.chooser();
        loop {
            let outsider = match self.chosen_by != self.common.choice.leader {
                true => self.common.next_held_back(),
                false => self.common.next_outsider(self.chosen_by),
            };
            if outsider.is_some() {
                return outsider;
            }
            // More room is asked for than one page at the limit needs.
            let shed = match self.chosen_by {
                Way::Recency => self.common.shed(Way::Recency, &mut self.recency),
                Way::ReuseDistance => self.common.shed(Way::ReuseDistance, &mut self.reuse),
                Way::Frequency => self.common.shed(Way::Frequency, &mut self.frequency),
            };
            if !shed {
                return None;
            }
        }
    }

    /// Takes note that a page is no longer in memory.
    fn left(&mut self, page: PageId) {
        self.common.table.clear(page, RESIDENT);
        self.resident -= 1;
        self.common.choice.absent += u64::from(self.common.holds(Way::Recency, page));
    }

    #[cold]
    fn renumber(&mut self) {
        let table = &mut self.common.table;
        table.renumber();
        self.recency.renumbered(table);
        self.reuse.renumbered(table);
        self.frequency.renumbered(table);
    }

    /// Takes a part of the accessed bits, each of which is a reference, and begins the next part of an interval.
    fn look<M: Memory>(&mut self, memory: &mut M) {
        let part = self.look.part;
        self.look = Look { part: (part + 1) % PARTS, evicted: 0, has_unmapped: self.look.has_unmapped };
        let mut young = Young(Vec::new());
        let walked = memory.page_tables().is_some_and(|tables| tables.walk_part(0, part, PARTS, &mut young));
        if !walked || self.look.has_unmapped {
            let ids = self.common.table.records.len();
            let share = |part: u32| ids * part as usize / PARTS as usize;
            for page in share(part) as PageId..share(part + 1) as PageId {
                if self.common.table.at(page).is(RESIDENT) && !(walked && memory.is_mapped(page)) {
                    self.counters.reference_checks += 1;
                    if memory.take_references(page).mappings > 0 {
                        young.0.push(page);
                    }
                }
            }
        }
        young.0.into_iter().for_each(|page| self.refer(page));
    }

    fn is_time_to_look(&self) -> bool {
        (self.look.evicted * PARTS as usize) as f64 >= self.resident as f64 * self.params.interval
    }

    /// Whether the page was referenced since the last look. Deals with the reference.
    fn was_referenced<M: Memory>(&mut self, page: PageId, memory: &mut M) -> bool {
        self.counters.reference_checks += 1;
        self.look.has_unmapped |= !memory.is_mapped(page);
        let referenced = memory.take_references(page).mappings > 0;
        if referenced {
            self.refer(page);
        }
        referenced
    }
}

/// Pages found accessed by a walk.
struct Young(Vec<PageId>);

impl Walk for Young {
    fn starts(&mut self) {}
    fn enters(&mut self, _: RegionKey, _: Option<bool>, _: bool) -> bool {
        true
    }
    fn eligible(&mut self, _: PageId) -> bool {
        true
    }
    fn young(&mut self, page: PageId) {
        self.0.push(page);
    }
    fn leaves(&mut self, _: RegionKey, _: u32, _: u32) {}
}

impl<const MAPPED: bool> Policy for Adaptive<MAPPED> {
    const HITS: HitReport = if MAPPED { HitReport::AccessedBit } else { HitReport::EachAccess };

    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, memory: &mut M) {
        if !self.ahead.take(page, &mut self.common.table) {
            self.reuse.reserve(self.ahead.places(false, memory.unread() as usize, self.common.capacity));
            self.refer(page);
            self.shed(memory);
        }
        self.common.table.set(page, RESIDENT);
        self.resident += 1;
        self.common.choice.absent -= u64::from(self.common.holds(Way::Recency, page));
        for way in Way::ALL {
            // It was expected long ago.
            if !self.common.holds(way, page) {
                self.common.queue_outsider(way, page);
            }
        }
    }

    #[inline]
    fn accessed<M: Memory>(&mut self, page: PageId, _memory: &mut M) {
        self.refer(page);
    }

    fn freed(&mut self, page: PageId) {
        self.left(page);
        self.forgotten(page);
    }

    fn forgotten(&mut self, page: PageId) {
        self.ahead.take(page, &mut self.common.table);
        self.common.choice.absent -= u64::from(self.common.holds(Way::Recency, page));
        let table = &mut self.common.table;
        self.recency.forget(page, table);
        self.reuse.forget(page, table);
        self.frequency.forget(page, table);
        // What comes back under this id is another page, and has no place yet.
        for (queued, outsiders) in QUEUED.into_iter().zip(&mut self.common.outsiders) {
            if table.at(page).is(queued) {
                table.clear(page, queued);
                outsiders.strike(page);
            }
        }
        table.clear(page, CLOSE);
        table.at_mut(page).used = 0;
        *table.rank_mut(page) = 0;
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let incoming = request.incoming.filter(|page| !self.ahead.is_last(*page, &self.common.table));
        // Before anything is shed for the page that is asked for.
        let asked_again = request.incoming != incoming;
        self.reuse.reserve(self.ahead.places(asked_again, memory.unread() as usize, self.common.capacity));
        if let Some(page) = incoming {
            self.refer(page);
            self.ahead.expect(page, self.common.capacity, &mut self.common.table);
        }
        let has_bits = MAPPED && memory.has_accessed_bits();
        self.common.choice.sees_hits = has_bits || !MAPPED;
        let mut freed = 0;
        let mut kept = Vec::new();
        // Each page twice: once to find it referenced, once to let it go.
        for _ in 0..2 * self.resident + 2 {
            if freed == request.goal {
                break;
            }
            if has_bits && self.is_time_to_look() {
                self.look(memory);
            }
            self.shed(memory);
            let Some(page) = self.next_victim() else { break };
            if has_bits && self.was_referenced(page, memory) {
                continue;
            }
            self.counters.pgscan += 1;
            if matches!(memory.evict(page, Shadow::NONE), Eviction::Freed { .. }) {
                self.counters.pgsteal += 1;
                self.look.evicted += 1;
                self.ahead.evicted();
                self.left(page);
                freed += 1;
            } else {
                // Not offered again in this call.
                kept.push((self.chosen_by, page));
            }
        }
        for (way, page) in kept {
            self.common.queue_outsider(way, page);
        }
        freed
    }

    fn grow(&mut self, pages: usize) {
        self.common.table.grow(pages);
    }

    fn set_capacity(&mut self, pages: usize) {
        let capacity = pages.max(1);
        self.common.capacity = capacity;
        self.common.choice.resize(capacity);
        let table = &mut self.common.table;
        self.recency.resize(capacity, table);
        self.reuse.resize(capacity, table);
        self.frequency.resize(capacity, table);
        // What goes for want of room says nothing of what absent pages are worth.
        let outcomes = self.common.choice.outcomes();
        self.shed_excess();
        self.common.choice.set_outcomes(outcomes);
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    #[inline]
    fn prefetch_hint(&self, page: PageId) -> u64 {
        self.common.table.peek(page)
    }

    fn metadata_bytes(&self) -> usize {
        let directories = self.recency.bytes() + self.reuse.bytes() + self.frequency.bytes();
        let outsiders: usize = self.common.outsiders.iter().map(Strikable::bytes).sum();
        self.common.table.bytes() + directories + outsiders + self.ahead.bytes()
    }
    fn lists(&self) -> Option<&impl Lists> {
        Some(self)
    }
}

impl<const MAPPED: bool> Lists for Adaptive<MAPPED> {
    fn leader(&self) -> Option<&'static str> {
        Some(Adaptive::leader(self).name())
    }
}
