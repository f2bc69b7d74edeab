//! One sequence of pages that come back: its passes, and whether the range that it goes over still looks scanned.
//!
//! [`super::scan_detector`] says what a cyclic range is and which sequences are followed; here is what one of them
//! counts.
//! Cost: some comparisons per page.

/// Where a page lies, in pages.
pub(super) type Place = u64;
/// Pages by which order may be violated: several threads bring pages in at once.
pub(super) const SLACK: Place = 128;
/// Share of a pass that must come back, in eighths.
const DENSE: u64 = 5;
/// Passes in order that bring back less than [`DENSE`] of the range, one behind the other, after which it must begin
/// anew.
pub(super) const MAX_THIN: u32 = 4;
/// Share of a clear pass that comes back, in eighths. One page in `CLEAR_BEHIND` may come behind one that lies further
/// on.
const CLEAR: u64 = 7;
const CLEAR_BEHIND: u32 = 4;
/// The last part of a range that is believed early: one page in `TOP`.
const TOP: Place = 16;
/// Of `WINDOW_EARLY` of its pages that come back, at most five eighths may come behind one that lies more than twice
/// [`SLACK`] further on. Else the program reads one block over and over, too small to be seen as going backwards.
const WINDOW_EARLY: u32 = 8192;
/// `CHAIN` pages elsewhere, each within `NEAR` of the one before, say where a scan has come to. A wrong guess reads
/// fewer ahead. At most `ELSEWHERE` pages of [`WINDOW`] may lie elsewhere and not near each other.
const CHAIN: u32 = 256;
const NEAR: Place = 64;
const ELSEWHERE: u32 = WINDOW / 2;
/// A cyclic range is judged whenever `WINDOW` of its pages have come back …
pub(super) const WINDOW: u32 = 64;
/// … and goes on to be one if no more of them went backwards: it is 1 in a pass, and half of all in random order.
const BACKWARDS: u32 = 8;

/// What a page that came back has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A range counts as cyclic now.
    Found,
    /// One is believed early: some pages between these two are to be evicted, so that it can be seen whether they are
    /// read.
    Early(Place, Place),
    /// A pass over such a range is over, and the same is to be done for the next. `confirmed`: it was the first, and
    /// the range counts as found.
    Passed { confirmed: bool, first: Place, last: Place },
    /// One does not any more.
    Lost,
}

/// One sequence.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tracker {
    /// When it was last continued; 0: free.
    pub(super) used: u32,
    pub(super) low: Place,
    /// The page that came back last, or the highest of late.
    pub(super) position: Place,
    /// Pages that came back in this pass.
    pub(super) returned: u32,
    /// Those of them that came behind one that lies further on.
    pub(super) behind: u32,
    /// Where the pass before ended.
    pub(super) high: Place,
    pub(super) passes: u32,
    /// Passes in order since the last of `passes` that brought back too little to count.
    pub(super) thin: u32,
    /// The range from `low` to `high` counts as cyclic.
    pub(super) cyclic: bool,
    /// It does by a single pass …
    pub(super) early: bool,
    /// … and another has followed.
    pub(super) confirmed: bool,
    /// Something of its last part has come back in this pass.
    pub(super) at_top: bool,
    /// The last page that lay elsewhere, and how many did near each other.
    pub(super) elsewhere: Place,
    pub(super) chain: u32,
    /// Pages that came back in this pass.
    pub(super) passed: u64,
    /// Pages that came late, of those that [`WINDOW_EARLY`] counts.
    pub(super) late: u32,
    pub(super) late_of: u32,
    /// Pages that were touched for the first time, in the only pass so far.
    pub(super) first: bool,
    pub(super) window: u32,
    pub(super) backwards: u32,
}

impl Tracker {
    pub(super) fn starting(page: Place, clock: u32) -> Tracker {
        Tracker { used: clock, low: page, position: page, returned: 1, ..Tracker::default() }
    }

    pub(super) fn holds(&self, page: Place) -> bool {
        self.cyclic && (self.low..=self.high).contains(&page)
    }

    pub(super) fn is_followed_by(&self, page: Place, gap: Place, slack: Place) -> bool {
        page.saturating_add(slack) >= self.position && page - self.position.min(page) <= gap
    }

    pub(super) fn is_started_again_by(&self, page: Place, gap: Place) -> bool {
        page.saturating_add(gap) >= self.low && page <= self.low.saturating_add(gap)
    }

    /// Pages from the first to the last that came back in this pass.
    pub(super) fn span(&self) -> u64 {
        self.position - self.low + 1
    }

    /// Whether this pass brought back enough of more than memory has. `budget`: pages that may be resident.
    pub(super) fn is_whole(&self, budget: u64) -> bool {
        let span = self.span();
        span > budget && u64::from(self.returned) * 8 >= span.saturating_mul(DENSE)
    }

    /// Whether this pass brought back nearly all of more than memory has, in order. What is read ahead may come late;
    /// runs at random places that are taken for a pass leave gaps, or fill them afterwards.
    pub(super) fn is_clear(&self, budget: u64) -> bool {
        self.is_whole(budget)
            && u64::from(self.returned) * 8 >= self.span().saturating_mul(CLEAR)
            && self.behind <= self.returned / CLEAR_BEHIND
    }

    /// Whether `self` began where the pass of `before` had come to, behind pages that stayed in memory.
    pub(super) fn continues(&self, before: &Tracker) -> bool {
        !self.cyclic
            && !self.first
            && self.used != 0
            && self.low > before.position
            && (self.returned..1 << 31).contains(&self.used.wrapping_sub(before.used))
    }

    /// The last part of a range.
    pub(super) fn top(&self) -> Place {
        self.high - (self.high - self.low) / TOP
    }

    /// Counts a page that goes on with this sequence.
    pub(super) fn goes_on_with(&mut self, page: Place, clock: u32) {
        self.used = clock;
        self.behind += u32::from(page < self.position);
        self.position = self.position.max(page);
        // No more than there are: the same pages may come back over and over.
        self.returned = (self.returned + 1).min(u32::try_from(self.span()).unwrap_or(u32::MAX));
    }

    /// A pass is over. `budget`: pages that may be resident.
    pub(super) fn end_pass(&mut self, page: Place, budget: u64) {
        let span = self.span();
        let whole = self.is_whole(budget);
        let same = self.passes == 0 || self.position.abs_diff(self.high) <= span / 16;
        let thin = !whole && self.passes > 0 && self.position <= self.high && self.thin < MAX_THIN;
        if thin {
            self.thin += 1;
        } else {
            self.passes = if !whole {
                0
            } else if same {
                self.passes + 1
            } else {
                1
            };
            self.high = if self.passes > 1 { self.high.max(self.position) } else { self.position };
            self.thin = 0;
        }
        self.low = if self.passes > 0 { self.low.min(page) } else { page };
        (self.position, self.returned, self.behind, self.first) = (page, 1, 0, false);
    }

    /// What a page that came back says about a range that is believed early.
    pub(super) fn stays_early(&mut self, page: Place, budget: u64, slack: Place) -> Option<Change> {
        self.at_top |= page >= self.top();
        self.passed += 1;
        let goes_on = page <= self.position.saturating_add(2 * SLACK) && page.saturating_add(slack) >= self.position;
        let near = goes_on || std::mem::replace(&mut self.elsewhere, page).abs_diff(page) <= NEAR;
        self.late += u32::from(goes_on && page.saturating_add(2 * SLACK) < self.position);
        self.late_of += 1;
        self.backwards += u32::from(!near);
        self.window += 1;
        if self.late_of == WINDOW_EARLY {
            if self.late > WINDOW_EARLY / 8 * 5 {
                return Some(Change::Lost);
            }
            (self.late, self.late_of) = (0, 0);
        }
        if self.window == WINDOW {
            if self.backwards > ELSEWHERE {
                return Some(Change::Lost);
            }
            (self.window, self.backwards) = (0, 0);
        }
        if goes_on {
            self.position = self.position.max(page);
            return None;
        }
        self.chain = if near { self.chain + 1 } else { 1 };
        if self.chain < CHAIN {
            return None;
        }
        self.chain = 0;
        let position = std::mem::replace(&mut self.position, page);
        if page > position {
            return None;
        }
        // What fits and stays may lie at the beginning; what does not comes back in each pass.
        let beyond = (self.high - self.low + 1).saturating_sub(budget);
        if page > self.low.saturating_add(budget) || !self.at_top || self.passed < beyond / 2 {
            return Some(Change::Lost);
        }
        (self.at_top, self.passed) = (false, 0);
        let confirmed = !std::mem::replace(&mut self.confirmed, true);
        Some(Change::Passed { confirmed, first: self.top(), last: self.high })
    }

    /// Whether a page that came back leaves a cyclic range one.
    pub(super) fn stays_cyclic(&mut self, page: Place, slack: Place) -> bool {
        if page.saturating_add(slack) < self.position {
            self.backwards += 1;
            self.position = page;
        } else {
            self.position = self.position.max(page);
        }
        self.window += 1;
        if self.window < WINDOW {
            return true;
        }
        let stays = self.backwards <= BACKWARDS;
        (self.window, self.backwards) = (0, 0);
        stays
    }
}
