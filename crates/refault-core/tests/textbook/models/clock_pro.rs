//! CLOCK-Pro on a vector that is turned: the hot hand's page is always the first, the page that came last the last.

use refault_core::PageId;

use crate::harness::Model;

struct Entry {
    page: PageId,
    hot: bool,
    resident: bool,
    testing: bool,
    accessed: bool,
}

/// The hands are pages, `None` while there is nothing to point to.
pub struct ClockPro {
    capacity: usize,
    cold_target: usize,
    clock: Vec<Entry>,
    cold_hand: Option<PageId>,
    test_hand: Option<PageId>,
}

impl ClockPro {
    pub fn new(capacity: usize) -> ClockPro {
        ClockPro { capacity, cold_target: capacity, clock: Vec::new(), cold_hand: None, test_hand: None }
    }

    fn index(&self, page: PageId) -> Option<usize> {
        self.clock.iter().position(|entry| entry.page == page)
    }

    fn count(&self, what: impl Fn(&Entry) -> bool) -> usize {
        self.clock.iter().filter(|entry| what(entry)).count()
    }

    /// The first page that is as wanted, from a place on and once round.
    fn first_from(&self, index: usize, wanted: impl Fn(&Entry) -> bool) -> Option<PageId> {
        let mut round = self.clock[index..].iter().chain(&self.clock[..index]);
        round.find(|entry| wanted(entry)).map(|entry| entry.page)
    }

    fn take(&mut self, page: PageId) -> Entry {
        let index = self.index(page).expect("it is on the clock");
        let entry = self.clock.remove(index);
        let next = if self.clock.is_empty() { None } else { Some(self.clock[index % self.clock.len()].page) };
        if self.cold_hand == Some(page) {
            self.cold_hand = next;
        }
        if self.test_hand == Some(page) {
            self.test_hand = next;
        }
        entry
    }

    fn test_passed(&mut self) {
        self.cold_target = std::cmp::max(1, self.cold_target - 1);
    }

    /// Ends the test period of the page, which goes if it is not resident.
    fn end_test(&mut self, page: PageId) {
        let index = self.index(page).expect("it is on the clock");
        if !self.clock[index].testing {
            return;
        }
        if self.clock[index].resident {
            self.clock[index].testing = false;
        } else {
            self.take(page);
        }
        self.test_passed();
    }

    /// The hot hand passes a page; whether it turned cold.
    fn pass_hot_hand(&mut self, coming: Option<PageId>) -> bool {
        let (page, hot) = (self.clock[0].page, self.clock[0].hot);
        let mut turned = false;
        if hot && coming != Some(page) {
            turned = !std::mem::take(&mut self.clock[0].accessed);
            self.clock[0].hot = !turned;
        } else if !hot {
            self.end_test(page);
        }
        if self.clock.first().is_some_and(|entry| entry.page == page) {
            self.clock.rotate_left(1);
        }
        turned
    }

    fn run_hot_hand(&mut self, coming: Option<PageId>) {
        let allowed = |clock: &ClockPro| clock.capacity - clock.cold_target;
        if self.count(|entry| entry.hot) <= allowed(self) {
            return;
        }
        for _ in 0..2 * self.clock.len() {
            if self.count(|entry| entry.hot) <= allowed(self) {
                break;
            }
            self.pass_hot_hand(coming);
        }
        while self.count(|entry| entry.hot) > 0 && !self.clock[0].hot {
            self.pass_hot_hand(coming);
        }
    }

    fn run_test_hand(&mut self) {
        while self.count(|entry| !entry.resident) > self.capacity {
            let page = self.test_hand.unwrap_or(self.clock[0].page);
            self.test_hand = Some(page);
            let index = self.index(page).expect("hands point to pages on the clock");
            let next = self.clock[(index + 1) % self.clock.len()].page;
            self.end_test(page);
            self.test_hand = Some(next);
        }
        if let Some(index) = self.test_hand.and_then(|page| self.index(page)) {
            self.test_hand = self.first_from(index, |entry| !entry.hot).or(self.test_hand);
        }
    }

    fn next_cold(&mut self) -> Option<PageId> {
        let index = self.cold_hand.and_then(|page| self.index(page)).unwrap_or(0);
        let found = self.first_from(index, |entry| entry.resident && !entry.hot);
        self.cold_hand = found.or(self.cold_hand);
        found
    }

    fn evict(&mut self) -> PageId {
        loop {
            let Some(page) = self.next_cold() else {
                while !self.pass_hot_hand(None) {}
                continue;
            };
            let index = self.index(page).expect("it is on the clock");
            let (testing, accessed) = (self.clock[index].testing, self.clock[index].accessed);
            if accessed {
                let entry = self.take(page);
                self.clock.push(Entry { accessed: false, hot: testing, testing: !testing, ..entry });
                if testing {
                    self.cold_target = std::cmp::min(self.cold_target + 1, self.capacity);
                    self.run_hot_hand(None);
                }
            } else {
                if testing {
                    self.cold_hand = Some(self.clock[(index + 1) % self.clock.len()].page);
                    self.clock[index].resident = false;
                    self.run_test_hand();
                } else {
                    self.take(page);
                }
                self.next_cold();
                return page;
            }
        }
    }
}

impl Model for ClockPro {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        if let Some(entry) = self.clock.iter_mut().find(|entry| entry.page == page && entry.resident) {
            entry.accessed = true;
            return Vec::new();
        }
        let full = self.count(|entry| entry.resident) == self.capacity;
        let victims = if full { vec![self.evict()] } else { Vec::new() };
        let remembered = self.index(page).is_some();
        if remembered {
            self.take(page);
            self.cold_target = std::cmp::min(self.cold_target + 1, self.capacity);
        }
        self.clock.push(Entry { page, hot: remembered, resident: true, testing: !remembered, accessed: false });
        if remembered {
            self.run_hot_hand(Some(page));
        }
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.clock.iter().any(|entry| entry.page == page && entry.resident)
    }

    fn free(&mut self, page: PageId) {
        self.take(page);
    }
}
