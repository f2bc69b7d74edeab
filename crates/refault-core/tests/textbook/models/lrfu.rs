//! LRFU without lists: all resident pages in one vector, and whatever is wanted is searched for.

use refault_core::PageId;

use crate::harness::Model;

/// Parts of an interval.
const PARTS: u64 = 16;
/// Steps of the clock in which a reference loses half its worth.
const HALF_LIFE: f64 = 52.0;

struct Resident {
    page: PageId,
    accessed: bool,
    /// The time at which a single reference would be worth as much as all of the page's.
    rank: u64,
    /// When the page was last referenced, in parts of an interval.
    referenced: u64,
}

/// At the defaults: a reference counts half after two memory sizes evicted, an interval is 15 % of memory.
pub struct Lrfu {
    bypasses: bool,
    last_gone: u64,
    capacity: usize,
    /// In the order of their last references.
    resident: Vec<Resident>,
    /// Ranks of evicted pages.
    evicted: Vec<(PageId, u64)>,
    evicted_in_part: usize,
    part: u64,
    clock: u64,
    behind: f64,
}

impl Lrfu {
    pub fn new(capacity: usize) -> Lrfu {
        Lrfu {
            bypasses: false,
            last_gone: 0,
            capacity,
            resident: Vec::new(),
            evicted: Vec::new(),
            evicted_in_part: 0,
            part: 0,
            clock: 1 << 20,
            behind: 0.0,
        }
    }

    /// A page that was evicted comes in only if it is worth twice as much as the one that went last.
    pub fn bypassing(self) -> Lrfu {
        Lrfu { bypasses: true, ..self }
    }

    /// A rank and a reference of now together: worths are powers of two with half-lives as exponents.
    fn with_reference(&self, rank: u64) -> u64 {
        let (old, new) = (rank.min(self.clock), rank.max(self.clock));
        let sum = 1.0 + 2f64.powf(-((new - old) as f64) / HALF_LIFE);
        new + (sum.log2() * HALF_LIFE).round() as u64
    }

    fn is_recent(&self, page: &Resident) -> bool {
        self.part - page.referenced < PARTS
    }

    fn refer(&mut self, page: PageId) {
        let at = self.resident.iter().position(|one| one.page == page).expect("resident");
        if !self.is_recent(&self.resident[at]) {
            let mut one = self.resident.remove(at);
            one.rank = self.with_reference(one.rank);
            one.referenced = self.part;
            self.resident.push(one);
        }
    }

    fn end_part(&mut self) {
        if self.part.is_multiple_of(PARTS) {
            let mut pages: Vec<_> = (0..self.resident.len()).collect();
            pages.sort_by_key(|at| std::cmp::Reverse(self.resident[*at].rank / 4));
            let pages: Vec<_> = pages.into_iter().map(|at| self.resident[at].page).collect();
            for page in pages {
                let one = self.resident.iter_mut().find(|one| one.page == page).expect("resident");
                if std::mem::take(&mut one.accessed) {
                    self.refer(page);
                }
            }
        }
        let memory_sizes = (self.evicted_in_part as f64 / self.resident.len().max(1) as f64).min(1.0);
        self.behind += memory_sizes / 2.0 * HALF_LIFE;
        self.clock += self.behind as u64;
        self.behind = self.behind.fract();
        self.evicted_in_part = 0;
        self.part += 1;
    }

    fn is_over(&self) -> bool {
        (self.evicted_in_part * PARTS as usize) as f64 >= self.resident.len() as f64 * 0.15
    }

    /// Serves a reference to an evicted page that stays out.
    fn stays_out(&mut self, page: PageId) -> bool {
        let Some(at) = self.evicted.iter().position(|(evicted, _)| *evicted == page) else { return false };
        let rank = self.with_reference(self.evicted[at].1);
        if !self.bypasses || rank >= self.last_gone + HALF_LIFE as u64 {
            return false;
        }
        self.evicted[at].1 = rank;
        self.evicted_in_part += 1;
        if self.is_over() {
            self.end_part();
        }
        true
    }

    fn evict(&mut self) -> PageId {
        loop {
            let over = self.is_over();
            let candidates = self.resident.iter().filter(|one| !over && !self.is_recent(one));
            // The first of several with the lowest: the one that was referenced longest ago.
            let Some(lowest) = candidates.min_by_key(|one| one.rank / 4) else {
                self.end_part();
                continue;
            };
            let page = lowest.page;
            let at = self.resident.iter().position(|one| one.page == page).expect("resident");
            if std::mem::take(&mut self.resident[at].accessed) {
                self.refer(page);
                continue;
            }
            let gone = self.resident.remove(at);
            self.evicted.push((page, gone.rank));
            self.last_gone = gone.rank;
            self.evicted_in_part += 1;
            return page;
        }
    }
}

impl Model for Lrfu {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        if let Some(one) = self.resident.iter_mut().find(|one| one.page == page) {
            one.accessed = true;
            return Vec::new();
        }
        if self.stays_out(page) {
            return Vec::new();
        }
        let victims = if self.resident.len() == self.capacity { vec![self.evict()] } else { Vec::new() };
        let before = self.evicted.iter().position(|(evicted, _)| *evicted == page);
        let rank = before.map_or(0, |at| self.evicted.remove(at).1);
        let rank = self.with_reference(rank);
        self.resident.push(Resident { page, accessed: false, rank, referenced: self.part });
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.resident.iter().any(|one| one.page == page)
    }

    fn free(&mut self, page: PageId) {
        self.resident.retain(|one| one.page != page);
    }
}
