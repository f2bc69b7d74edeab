//! CLOCK-Pro: LIRS by accessed bits. Hot pages, cold pages and evicted cold pages stand on one clock with three hands.
//!
//! A page comes in cold and in its test period. Found accessed in that period, in memory or by a fault after its
//! eviction, it becomes hot. The cold hand looks for a victim among the cold pages. The hot hand turns hot pages cold
//! while there are more of them than memory less the cold target. It also ends the test period of cold pages that it
//! passes. The test hand ends test periods while more evicted pages are remembered than memory has. The cold target
//! grows by one for each page accessed in its test period and shrinks by one for each whose period ends without.
//!
//! The clock is a list from the hot hand's page, the tail, to the page that came last, the head: to move the hot hand
//! on is to move the tail to the head. What the paper leaves open: the cold target is all of memory at first and stays
//! between 1 and that; a cold page found accessed after its test period begins another at the head; a hot page that
//! turns cold has none; the hot hand moves only when hot pages are too many, or when no page is cold; a page that turns
//! hot by a fault counts as accessed while it comes in.
//!
//! Cost: 12 bytes per page id; amortised O(1) for each eviction.
//! Source: Jiang, Chen and Zhang, *CLOCK-Pro: An Effective Improvement of the CLOCK Replacement*, USENIX ATC 2005,
//! section 4.

use super::evict;
use super::slot::Slot;
use crate::counters::Counters;
use crate::lists::linked::{Linked, List};
use crate::memory::Memory;
use crate::page::{NO_PAGE, PageId};
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Nowhere,
    Hot,
    /// Coming in as a hot page: its accessed bit is about to be set, and counts as set.
    Coming,
    /// In memory, its test period over.
    Cold,
    /// In memory, in its test period.
    Tested,
    /// Evicted, in its test period.
    Ghost,
}

impl State {
    fn is_hot(self) -> bool {
        matches!(self, State::Hot | State::Coming)
    }

    fn is_cold(self) -> bool {
        matches!(self, State::Cold | State::Tested)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct ClockPro {
    slots: Vec<Slot<State>>,
    clock: List,
    cold_hand: PageId,
    test_hand: PageId,
    capacity: usize,
    cold_target: usize,
    hot: usize,
    cold: usize,
    ghosts: usize,
    counters: Counters,
}

impl Default for ClockPro {
    fn default() -> ClockPro {
        ClockPro {
            slots: Vec::new(),
            clock: List::default(),
            cold_hand: NO_PAGE,
            test_hand: NO_PAGE,
            capacity: 0,
            cold_target: 0,
            hot: 0,
            cold: 0,
            ghosts: 0,
            counters: Counters::default(),
        }
    }
}

impl ClockPro {
    fn state(&self, page: PageId) -> State {
        self.slots[page as usize].state
    }

    /// Changes a page's state and the numbers of pages in each.
    fn turn(&mut self, page: PageId, to: State) {
        for (state, add) in [(self.state(page), false), (to, true)] {
            let count = match state {
                State::Nowhere => continue,
                State::Hot | State::Coming => &mut self.hot,
                State::Cold | State::Tested => &mut self.cold,
                State::Ghost => &mut self.ghosts,
            };
            *count = if add { *count + 1 } else { *count - 1 };
        }
        self.slots[page as usize].state = to;
    }

    /// The page after another, round the clock.
    fn next(&self, page: PageId) -> PageId {
        let newer = self.slots[page as usize].newer();
        if newer == NO_PAGE { self.clock.tail().unwrap_or(NO_PAGE) } else { newer }
    }

    /// Takes a page off the clock; hands that point to it move on.
    fn take_off(&mut self, page: PageId) {
        let next = if self.clock.len() == 1 { NO_PAGE } else { self.next(page) };
        for hand in [&mut self.cold_hand, &mut self.test_hand] {
            if *hand == page {
                *hand = next;
            }
        }
        self.clock.remove(&mut self.slots, page);
    }

    fn drop_page(&mut self, page: PageId) {
        if self.state(page) != State::Nowhere {
            self.take_off(page);
            self.turn(page, State::Nowhere);
        }
    }

    fn move_to_head(&mut self, page: PageId) {
        self.take_off(page);
        self.clock.push_head(&mut self.slots, page);
    }

    /// A page was accessed in its test period.
    fn promote(&mut self, page: PageId) {
        self.cold_target = (self.cold_target + 1).min(self.capacity);
        self.turn(page, if self.state(page) == State::Ghost { State::Coming } else { State::Hot });
    }

    /// A test period ends without an access.
    fn end_test(&mut self, page: PageId) {
        match self.state(page) {
            State::Tested => self.turn(page, State::Cold),
            State::Ghost => self.drop_page(page),
            State::Nowhere | State::Hot | State::Coming | State::Cold => return,
        }
        self.cold_target = (self.cold_target - 1).max(1);
    }

    /// One step of the hot hand, and whether it turned a page cold.
    fn step_hot<M: Memory>(&mut self, memory: &mut M) -> bool {
        let Some(page) = self.clock.tail() else { return false };
        let mut turned = false;
        match self.state(page) {
            State::Coming => {}
            State::Hot => {
                self.counters.reference_checks += 1;
                turned = memory.take_references(page).mappings == 0;
                if turned {
                    self.turn(page, State::Cold);
                }
            }
            State::Nowhere | State::Cold | State::Tested | State::Ghost => self.end_test(page),
        }
        if self.state(page) != State::Nowhere {
            self.clock.move_to_head(&mut self.slots, page);
        }
        turned
    }

    /// Moves the hot hand until hot pages are few enough, and on to the next of them.
    fn run_hot<M: Memory>(&mut self, memory: &mut M) {
        if self.hot + self.cold_target <= self.capacity {
            return;
        }
        // Twice around at most: once to clear bits.
        for _ in 0..2 * self.clock.len() {
            if self.hot + self.cold_target <= self.capacity {
                break;
            }
            self.step_hot(memory);
        }
        while self.hot > 0 && self.clock.tail().is_some_and(|page| !self.state(page).is_hot()) {
            self.step_hot(memory);
        }
    }

    /// Ends test periods while more evicted pages are remembered than memory has.
    fn run_test(&mut self) {
        while self.ghosts > self.capacity {
            if self.test_hand == NO_PAGE {
                self.test_hand = self.clock.tail().unwrap_or(NO_PAGE);
            }
            let page = self.test_hand;
            let next = self.next(page);
            self.end_test(page);
            if self.test_hand == page {
                self.test_hand = next;
            }
        }
        for _ in 0..self.clock.len() {
            if self.test_hand == NO_PAGE || !self.state(self.test_hand).is_hot() {
                break;
            }
            self.test_hand = self.next(self.test_hand);
        }
    }

    /// The next cold page in memory from the cold hand on.
    fn seek_cold(&mut self) -> Option<PageId> {
        if self.cold_hand == NO_PAGE {
            self.cold_hand = self.clock.tail()?;
        }
        for _ in 0..self.clock.len() {
            if self.state(self.cold_hand).is_cold() {
                return Some(self.cold_hand);
            }
            self.cold_hand = self.next(self.cold_hand);
        }
        None
    }

    /// One step of the cold hand, and whether it evicted its page.
    fn step_cold<M: Memory>(&mut self, page: PageId, memory: &mut M) -> bool {
        self.counters.reference_checks += 1;
        let (tested, accessed) = (self.state(page) == State::Tested, memory.take_references(page).mappings > 0);
        if accessed {
            self.move_to_head(page);
            if tested {
                self.promote(page);
                self.run_hot(memory);
            } else {
                self.turn(page, State::Tested);
            }
            return false;
        }
        if !evict(page, memory, &mut self.counters) {
            self.move_to_head(page);
            return false;
        }
        if tested {
            self.cold_hand = self.next(page);
            self.turn(page, State::Ghost);
            self.run_test();
        } else {
            self.drop_page(page);
        }
        true
    }

    /// A page is coming in: if it is remembered, it turns hot.
    fn expect<M: Memory>(&mut self, page: PageId, memory: &mut M) {
        if self.state(page) == State::Ghost {
            self.move_to_head(page);
            self.promote(page);
            self.run_hot(memory);
        }
    }

    fn evict_one<M: Memory>(&mut self, memory: &mut M) -> bool {
        // Each page is found accessed, turned cold and offered.
        for _ in 0..3 * (self.hot + self.cold) {
            match self.seek_cold() {
                Some(page) if self.step_cold(page, memory) => {
                    self.seek_cold();
                    return true;
                }
                Some(_) => {}
                // Twice around: once to clear bits.
                None => _ = (0..2 * self.clock.len()).any(|_| self.step_hot(memory)),
            }
        }
        false
    }
}

impl Policy for ClockPro {
    const HITS: HitReport = HitReport::AccessedBit;

    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, memory: &mut M) {
        self.expect(page, memory);
        if self.state(page) == State::Coming {
            self.turn(page, State::Hot);
        } else {
            self.clock.push_head(&mut self.slots, page);
            self.turn(page, State::Tested);
        }
    }

    fn freed(&mut self, page: PageId) {
        self.drop_page(page);
    }

    fn forgotten(&mut self, page: PageId) {
        self.drop_page(page);
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let mut freed = 0;
        while freed < request.goal && self.evict_one(memory) {
            freed += 1;
        }
        // Now, while the accessed bits are those of the fault: admissions may be reported later.
        if let Some(page) = request.incoming {
            self.expect(page, memory);
        }
        freed
    }

    fn grow(&mut self, pages: usize) {
        self.slots.resize(pages.max(self.slots.len()), Slot::default());
    }

    fn set_capacity(&mut self, pages: usize) {
        let is_full_cold = self.cold_target == self.capacity;
        self.capacity = pages;
        self.cold_target = if is_full_cold { pages } else { self.cold_target.min(pages) }.max(1);
        self.run_test();
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<State>>()
    }
}
