//! The directory of frequency: pages whose references, halved as they age, are worth most.
//!
//! A page that comes in passes a window, a FIFO of a tenth of memory; then the page whose references are worth least
//! goes. Each page has one reference at most in an *interval*, and the worth of pages that are not held is remembered.
//! So neither a burst nor an absence decides. References age by pages that leave: what fits forgets nothing.
//!
//! Worth is kept as the time at which one reference would be worth as much (the *rank*), which does not change while
//! time passes. A list holds the pages of a few ranks. A reference changes the rank only: a page that is found on a
//! lower list than its rank's moves on when its turn comes. So a list is an upper bound of what its pages are worth to
//! be let go.
//!
//! A page that is gone for good leaves its entry where it is, marked otherwise than the entry of the page that gets its
//! id: that one has a place of its own.
//!
//! Invariants: a held page has one entry, in the window or on a list not above its rank's; no list below `hand` has a
//! page; an id has one stale entry at most on the lists.
//! Cost: 4 bytes per page id, 4.4 per page on a list, 4 to 8 per page in the window. Stale entries cost as much at
//! most. A reference is O(1); a departure passes over the pages that gained rank since they were put on their list,
//! each once for each gain.
//! Source: Lee et al., *LRFU: A Spectrum of Policies that Subsumes the LRU and LFU Policies*, IEEE ToC 50(12), 2001;
//! the window in front is Einziger, Friedman and Manes, *TinyLFU*, ACM ToS 13(4), 2017.

use super::lists::{Blocks, List};
use super::queue::Strikable;
use super::record::{HELD, IN_WINDOW, MARK, ON_LIST, STALE, Table};
use super::{Directory, Way};
use crate::page::PageId;
use crate::ranks;

const FLAG: u32 = HELD[Way::Frequency as usize];
/// Steps of rank in which a reference loses half its worth.
const HALF_LIFE_STEPS: u32 = 64;
/// Memory sizes of departures in which a reference loses half its worth.
const HALF_LIFE: u64 = 8;
/// Steps of rank per list.
const STEPS_PER_LIST: u32 = 4;
/// Lists: a quarter for what lies behind the clock, the others for what lies before it.
const LISTS: u32 = 256;
/// One page in `WINDOW_SHARE` is in the window.
const WINDOW_SHARE: usize = 10;
/// Percent of memory that departs in an interval.
const INTERVAL_PERCENT: u64 = 15;
/// Parts in which an interval is counted.
const PARTS: u16 = 16;
/// Stale entries that are tolerated in any case.
const MIN_SLACK: usize = 1024;
/// Where the clock starts: no rank is below the lowest list then.
const FIRST_CLOCK: u32 = 1 << 16;
/// Where the clock is set back, together with all ranks.
const LAST_CLOCK: u32 = 1 << 30;

/// What a reference adds to a rank, by its distance in steps.
static SUMS: [u8; ranks::steps(HALF_LIFE_STEPS as usize)] = ranks::sums(HALF_LIFE_STEPS as usize);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Frequency {
    window: Strikable,
    window_limit: usize,
    /// The pages of each, oldest first.
    lists: Vec<List>,
    blocks: Blocks,
    /// The lowest list, as a rank divided by [`STEPS_PER_LIST`].
    bottom: u32,
    hand: u32,
    held: usize,
    /// Entries on lists of pages that are gone, whose ids may be others' by now.
    stale: usize,
    capacity: u64,
    /// The rank of a single reference now.
    clock: u32,
    /// Departures that the clock does not show yet, in parts of a step.
    behind: u64,
    /// Parts of intervals so far.
    part: u16,
    /// Departures that `part` does not show yet, in parts of a part.
    part_behind: u64,
}

impl Default for Frequency {
    fn default() -> Frequency {
        let bottom = FIRST_CLOCK / STEPS_PER_LIST - LISTS / 4;
        Frequency {
            window: Strikable::default(),
            window_limit: 1,
            lists: vec![List::EMPTY; LISTS as usize],
            blocks: Blocks::default(),
            bottom,
            hand: bottom,
            held: 0,
            stale: 0,
            capacity: 1,
            clock: FIRST_CLOCK,
            behind: 0,
            part: PARTS,
            part_behind: 0,
        }
    }
}

impl Frequency {
    /// Counts a reference, unless the page had one less than an interval ago.
    #[inline]
    pub fn count(&self, page: PageId, table: &mut Table) {
        if self.part.wrapping_sub(table.at(page).counted_at()) >= PARTS {
            self.count_now(page, table);
        }
    }

    fn count_now(&self, page: PageId, table: &mut Table) {
        let rank = table.rank_mut(page);
        let more = SUMS.get(rank.abs_diff(self.clock) as usize).copied().unwrap_or(0);
        *rank = (*rank).max(self.clock) + u32::from(more);
        table.at_mut(page).set_counted_at(self.part);
    }

    fn list_of(&self, page: PageId, table: &Table) -> u32 {
        (table.rank(page) / STEPS_PER_LIST).clamp(self.bottom, self.bottom + LISTS - 1)
    }

    fn push(&mut self, page: PageId, table: &mut Table) {
        let list = self.list_of(page, table);
        self.hand = self.hand.min(list);
        self.blocks.push(&mut self.lists[(list % LISTS) as usize], page, table.at(page).is(MARK));
        table.set(page, ON_LIST);
    }

    /// Takes the first page off the hand's list.
    fn pop(&mut self, table: &mut Table) -> Option<PageId> {
        let list = &mut self.lists[(self.hand % LISTS) as usize];
        loop {
            table.fetch(self.blocks.upcoming(list).iter().copied());
            let (page, mark) = self.blocks.pop(list)?;
            if table.at(page).is(MARK) == mark {
                table.clear(page, ON_LIST);
                return Some(page);
            }
            table.clear(page, STALE);
            self.stale -= 1;
        }
    }

    /// The entry of a page that is gone stays where it is, but is not that of the page which gets its id.
    #[cold]
    fn leave_stale(&mut self, page: PageId, table: &mut Table) {
        if table.at(page).is(STALE) {
            self.sweep(table);
        }
        table.clear(page, ON_LIST);
        table.set(page, STALE);
        table.flip(page, MARK);
        self.stale += 1;
        if self.stale > self.held + MIN_SLACK {
            self.sweep(table);
        }
    }

    /// Takes all stale entries off. O(entries), once a window of pages has come in or as many entries are stale as are
    /// not.
    fn sweep(&mut self, table: &mut Table) {
        for list in &mut self.lists {
            self.blocks.retain(list, |page, mark| {
                let stays = table.at(page).is(MARK) == mark;
                if !stays {
                    table.clear(page, STALE);
                }
                stays
            });
        }
        self.stale = 0;
    }

    /// The oldest page of the window, if it is still held, goes to the list of its rank.
    fn leave_window(&mut self, table: &mut Table) {
        if let Some(Some(page)) = self.window.pop(table) {
            table.clear(page, IN_WINDOW);
            self.push(page, table);
        }
    }

    /// A page has left: references age.
    fn age(&mut self, table: &mut Table) {
        self.part_behind += 100 * u64::from(PARTS);
        while self.part_behind >= INTERVAL_PERCENT * self.capacity {
            self.part_behind -= INTERVAL_PERCENT * self.capacity;
            self.part = self.part.wrapping_add(1);
        }
        self.behind += u64::from(HALF_LIFE_STEPS);
        while self.behind >= HALF_LIFE * self.capacity {
            self.behind -= HALF_LIFE * self.capacity;
            self.clock += 1;
        }
        while self.bottom < self.clock / STEPS_PER_LIST - LISTS / 4 {
            self.raise_bottom();
        }
        if self.clock >= LAST_CLOCK {
            self.set_back(table);
        }
    }

    /// The pages of the lowest list go before those of the next.
    fn raise_bottom(&mut self) {
        let low = std::mem::replace(&mut self.lists[(self.bottom % LISTS) as usize], List::EMPTY);
        self.bottom += 1;
        self.blocks.prepend(low, &mut self.lists[(self.bottom % LISTS) as usize]);
        self.hand = self.hand.max(self.bottom);
    }

    /// Sets the clock back to where it started, with all ranks, in whole turns of the lists. O(page ids).
    #[cold]
    fn set_back(&mut self, table: &mut Table) {
        let turn = LISTS * STEPS_PER_LIST;
        let by = (self.clock - FIRST_CLOCK) / turn * turn;
        for record in &mut table.records {
            record.rank = record.rank.saturating_sub(by);
        }
        self.clock -= by;
        self.bottom -= by / STEPS_PER_LIST;
        self.hand -= by / STEPS_PER_LIST;
    }

    #[doc(hidden)]
    pub fn start_clock_at(&mut self, clock: u32) {
        self.clock = clock;
        self.bottom = clock / STEPS_PER_LIST - LISTS / 4;
        self.hand = self.bottom;
    }
}

impl Directory for Frequency {
    fn held(&self) -> usize {
        self.held
    }

    fn refer(&mut self, page: PageId, _before: u32, table: &mut Table) {
        if table.at(page).is(FLAG) {
            return;
        }
        self.held += 1;
        if table.rank(page) == 0 {
            // A new page, which bears no time.
            self.count_now(page, table);
        }
        self.window.push(page);
        table.set(page, FLAG | IN_WINDOW);
        while self.window.len() > self.window_limit {
            self.leave_window(table);
        }
    }

    fn shed(&mut self, table: &mut Table) -> Option<PageId> {
        while self.held > 0 {
            if self.hand == self.bottom + LISTS {
                // All are in the window.
                self.hand = self.bottom;
                self.leave_window(table);
                continue;
            }
            let Some(page) = self.pop(table) else {
                self.hand += 1;
                continue;
            };
            if self.list_of(page, table) > self.hand {
                self.push(page, table);
                continue;
            }
            self.forget(page, table);
            self.age(table);
            return Some(page);
        }
        None
    }

    fn forget(&mut self, page: PageId, table: &mut Table) {
        let record = table.at(page);
        self.held -= usize::from(record.is(FLAG));
        table.clear(page, FLAG | IN_WINDOW);
        if record.is(IN_WINDOW) {
            self.window.strike(page);
        } else if record.is(ON_LIST) {
            self.leave_stale(page, table);
        }
    }

    fn resize(&mut self, capacity: usize, table: &mut Table) {
        self.capacity = capacity as u64;
        self.window_limit = (capacity / WINDOW_SHARE).max(1);
        while self.window.len() > self.window_limit {
            self.leave_window(table);
        }
    }

    fn renumbered(&mut self, _table: &Table) {}

    fn bytes(&self) -> usize {
        self.window.bytes() + self.blocks.bytes()
    }
}
