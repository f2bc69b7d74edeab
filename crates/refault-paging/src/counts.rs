//! Counts: what happened to the pages of a process, why the last one was lost, and when others were told last.
//!
//! Invariants: a page that comes in counts once, as touched first, rescued or read back; a page that comes in along
//! with another is read back, and prefetched too. Cost: an addition each.

use crate::figures::Statistics;

/// Nanoseconds between two times that what takes longer to find out is made known.
const PUBLISH_EVERY: u64 = 50_000_000;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    statistics: Statistics,
    /// The kernel's number; 0: contents that are not what was stored.
    last_error: isize,
    /// Nanoseconds.
    published: u64,
}

impl Counts {
    /// All figures.
    #[inline]
    pub(crate) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Why the last page was lost.
    pub(crate) fn last_error(&self) -> isize {
        self.last_error
    }

    /// Begins anew. Returns what was counted.
    pub(crate) fn take(&mut self) -> Statistics {
        core::mem::take(&mut self.statistics)
    }

    /// A fault has come.
    pub(crate) fn fault(&mut self) {
        self.statistics.faults += 1;
    }

    /// It was served in this time. `again`: its page had contents. Whether it is time to make more known.
    pub(crate) fn served(&mut self, nanoseconds: u64, again: bool, now: u64) -> bool {
        self.statistics.waited += nanoseconds;
        if again {
            self.statistics.waited_again += nanoseconds;
        }
        let is_due = now - self.published >= PUBLISH_EVERY;
        if is_due {
            self.published = now;
        }
        is_due
    }

    /// Pages were touched for the first time.
    pub(crate) fn first_touches(&mut self, pages: usize) {
        self.statistics.first_touches += pages as u64;
    }

    /// A page came back from where it waited.
    pub(crate) fn rescued(&mut self) {
        self.statistics.rescued += 1;
    }

    /// Pages came back from a store, `along` of them without being asked for.
    pub(crate) fn read_back(&mut self, pages: usize, along: usize) {
        self.statistics.read_back += pages as u64;
        self.statistics.prefetched += along as u64;
    }

    /// One of the pages that came back along was asked for.
    pub(crate) fn was_asked_for(&mut self) {
        self.statistics.prefetched -= 1;
    }

    /// Pages left for the staging area.
    pub(crate) fn parked(&mut self, pages: usize) {
        self.statistics.parked += pages as u64;
    }

    /// A page was to go and cannot be moved.
    pub(crate) fn unmovable(&mut self) {
        self.statistics.unmovable += 1;
    }

    /// A page was stored.
    pub(crate) fn stored(&mut self) {
        self.statistics.stored += 1;
    }

    /// The contents of a page are gone.
    pub(crate) fn lost(&mut self) {
        self.statistics.lost += 1;
    }

    /// A page cannot be had, for this reason.
    pub(crate) fn failed(&mut self, error: isize) {
        self.last_error = error;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Beside sums over the list of events.
        #[test]
        fn figures_are_the_sums_of_what_happened(
            events in proptest::collection::vec((0u8..7, 0usize..40, any::<bool>()), 0..200)
        ) {
            let (mut counts, mut now, mut told) = (Counts::default(), PUBLISH_EVERY, Vec::new());
            for (kind, many, again) in &events {
                match kind {
                    0 => counts.fault(),
                    1 => {
                        now += *many as u64 * 1_000_000;
                        if counts.served(*many as u64, *again, now) {
                            told.push(now);
                        }
                    }
                    2 => counts.first_touches(*many),
                    3 => counts.rescued(),
                    4 => counts.read_back(*many, many / 2),
                    5 => counts.parked(*many),
                    _ => counts.stored(),
                }
            }
            let of = |wanted: u8| events.iter().filter(move |(kind, ..)| *kind == wanted);
            let sum = |wanted: u8| of(wanted).map(|(_, many, _)| *many as u64).sum::<u64>();
            let again = of(1).filter(|(.., again)| *again).map(|(_, many, _)| *many as u64).sum::<u64>();
            let figures = counts.statistics();
            prop_assert_eq!((figures.faults, figures.waited, figures.waited_again), (of(0).count() as u64, sum(1), again));
            prop_assert_eq!((figures.first_touches, figures.rescued), (sum(2), of(3).count() as u64));
            prop_assert_eq!((figures.read_back, figures.parked, figures.stored), (sum(4), sum(5), of(6).count() as u64));
            prop_assert_eq!(figures.brought_in(), sum(2) + of(3).count() as u64 + sum(4));
            prop_assert!(told.windows(2).all(|pair| pair[1] - pair[0] >= PUBLISH_EVERY));
            prop_assert_eq!((counts.take().stored, counts.statistics().stored), (of(6).count() as u64, 0));
        }
    }
}
