//! Ranges that are scanned again and again, found out from what comes back.
//!
//! Some ranges do not fit and are read from beginning to end, again and again. Such a range brings nearly all of its
//! pages back in each pass, in order. Where the detector sees that in two passes over the same range, of more pages
//! than memory has, the range counts as cyclic. It does until what comes back of it is out of order. After that it must
//! show itself twice as often before it is believed again.
//!
//! Where pages are told by their places alone, a single pass is enough at first if it is clear
//! ([`CLEAR`](super::scan_tracker)) and the next one begins. That pass may be the one in which the pages were touched
//! for the first time. An example is a program that has filled its data in order and begins to read them, or has read
//! them once and begins again. To believe a pass later brings in once more all that would have stayed. Such a range is
//! believed only as long as what comes back of it reaches its last part ([`TOP`](super::scan_tracker)) before it goes
//! backwards. It may go backwards only to its beginning. A few pages of the last part are evicted when each pass begins
//! ([`Change::Early`], [`Change::Passed`]). So something of that part comes back if it is read. Programs that go on
//! with a part of their data, with blocks of them or in no order are found out by that at once; after [`MAX_MISTAKES`]
//! of them no range is believed early any more.
//!
//! Policies that sort by generations keep large parts of such a range now and then, whatever they keep it for. So up to
//! [`MAX_THIN`](super::scan_tracker) passes in between may bring back less, and what stayed may lie in one piece: the
//! sequences before and behind it count as one pass.
//!
//! The detector is told places of pages and knows nothing else. It follows [`TRACKERS`] sequences at once, so that
//! other accesses in between do not disturb it; one that is not continued is forgotten for a new one.
//!
//! Invariants: accesses in random order are hardly ever taken for a scan, because a pass must bring back
//! [`DENSE`](super::scan_tracker) of its pages in ascending order; nothing is allocated. Cost: some comparisons for
//! each page that comes back.

use super::scan_tracker::{Change, Place, SLACK, Tracker};

/// Sequences that are followed at once.
const TRACKERS: usize = 8;
/// Ranges that count as cyclic at once.
const MAX_CYCLIC: usize = 4;
/// The same at most, and a quarter of memory, where pages are read ahead: while one run of a window is late, all others
/// of two windows of 8 MiB may come in. A range that counts is larger than memory, so its beginning is never taken for
/// late.
const SLACK_AHEAD: Place = 4096;
/// Pages that may be missing in a pass at one place at least: they stayed in memory. With larger memories, an eighth of
/// it.
const GAP: Place = 256;
/// Passes at first, and at most, before a range is believed.
const PASSES: (u32, u32) = (2, 64);
/// Ranges that are believed early and turn out to be none, or to be none any more.
const MAX_MISTAKES: u32 = 3;
/// Sequences of first touches that are followed at once.
const MAX_FIRST: usize = 3;

/// The detector.
#[derive(Clone, Debug)]
pub(super) struct Detector {
    trackers: [Tracker; TRACKERS],
    clock: u32,
    needed: u32,
    /// Ranges that were believed early and are none.
    mistakes: u32,
}

impl Default for Detector {
    fn default() -> Detector {
        Detector { trackers: [Tracker::default(); TRACKERS], clock: 0, needed: PASSES.0, mistakes: 0 }
    }
}

impl Detector {
    /// A page was touched for the first time, in a range whose pages are told by their places.
    pub(super) fn touched_first(&mut self, page: Place) {
        if self.mistakes >= MAX_MISTAKES || self.trackers.iter().any(|tracker| tracker.holds(page)) {
            return;
        }
        self.clock = self.clock.wrapping_add(1).max(1);
        let clock = self.clock;
        let mut first = self.trackers.iter_mut().filter(|tracker| tracker.first);
        if let Some(tracker) = first.find(|tracker| tracker.is_followed_by(page, SLACK, SLACK)) {
            tracker.goes_on_with(page, clock);
            return;
        }
        let many = self.trackers.iter().filter(|tracker| tracker.first).count() >= MAX_FIRST;
        let gives_way = |tracker: &&mut Tracker| !tracker.cyclic && (tracker.first || !many);
        let oldest = self.trackers.iter_mut().filter(gives_way).min_by_key(|tracker| tracker.used);
        let begun = Tracker { first: true, ..Tracker::starting(page, clock) };
        *oldest.expect("invariant: fewer are cyclic than there are") = begun;
    }

    /// A page came back after it was evicted. `budget`: pages that may be resident; `ahead`: pages are read ahead;
    /// `early`: a single pass may be enough.
    pub(super) fn returned(&mut self, page: Place, budget: u64, ahead: bool, early: bool) -> Option<Change> {
        let slack = if ahead { SLACK_AHEAD.min(budget / 4).max(SLACK) } else { SLACK };
        let early = early && self.mistakes < MAX_MISTAKES;
        self.clock = self.clock.wrapping_add(1).max(1);
        let clock = self.clock;
        if let Some(tracker) = self.trackers.iter_mut().find(|tracker| tracker.holds(page)) {
            tracker.used = clock;
            if tracker.early {
                let change = tracker.stays_early(page, budget, slack);
                if change == Some(Change::Lost) {
                    *tracker = Tracker::default();
                    self.mistakes += 1;
                }
                return change;
            }
            if tracker.stays_cyclic(page, slack) {
                return None;
            }
            *tracker = Tracker::default();
            self.needed = (self.needed * 2).min(PASSES.1);
            return Some(Change::Lost);
        }
        let gap = GAP.max(budget / 8);
        let followed = |tracker: &Tracker| tracker.used != 0 && !tracker.cyclic;
        let mut returning = self.trackers.iter_mut().filter(|tracker| followed(tracker) && !tracker.first);
        if let Some(tracker) = returning.find(|tracker| tracker.is_followed_by(page, gap, slack)) {
            tracker.goes_on_with(page, clock);
            return None;
        }
        let cyclic = self.trackers.iter().filter(|tracker| tracker.cyclic).count();
        let again = |tracker: &Tracker| {
            let counts = !tracker.first || early && tracker.is_clear(budget);
            followed(tracker) && counts && tracker.is_started_again_by(page, gap)
        };
        if let Some(started) = self.trackers.iter().position(again) {
            if !self.trackers[started].is_whole(budget) {
                self.join_what_continues(started, budget);
            }
            let tracker = &mut self.trackers[started];
            tracker.used = clock;
            let clear = early && tracker.is_clear(budget);
            tracker.end_pass(page, budget);
            let early = tracker.passes < self.needed;
            if early && !clear || cyclic == MAX_CYCLIC && !self.drop_idle(started) {
                return None;
            }
            let tracker = &mut self.trackers[started];
            (tracker.cyclic, tracker.early) = (true, early);
            (tracker.elsewhere, tracker.at_top) = (Place::MAX, false);
            return Some(if early { Change::Early(tracker.top(), tracker.high) } else { Change::Found });
        }
        let oldest = self.trackers.iter_mut().filter(|tracker| !tracker.cyclic).min_by_key(|tracker| tracker.used);
        *oldest.expect("invariant: fewer are cyclic than there are") = Tracker::starting(page, clock);
        None
    }

    /// All places for cyclic ranges are taken, and another has shown itself: one of which nothing has come back for as
    /// long as that took gives way. False if there is none.
    fn drop_idle(&mut self, found: usize) -> bool {
        let long = (self.trackers[found].high - self.trackers[found].low + 1).saturating_mul(u64::from(self.needed));
        let age = |tracker: &Tracker| u64::from(self.clock.wrapping_sub(tracker.used));
        let cyclic = (0..TRACKERS).filter(|at| self.trackers[*at].cyclic);
        let idle = cyclic.max_by_key(|at| age(&self.trackers[*at])).filter(|at| age(&self.trackers[*at]) > long);
        if let Some(idle) = idle {
            self.trackers[idle] = Tracker::default();
        }
        idle.is_some()
    }

    /// Adds the sequences that continue one to it where they make a whole pass together.
    fn join_what_continues(&mut self, started: usize, budget: u64) {
        let mut pass = self.trackers[started];
        let mut joined = [false; TRACKERS];
        while let Some(next) =
            (0..TRACKERS).filter(|&at| self.trackers[at].continues(&pass)).min_by_key(|&at| self.trackers[at].low)
        {
            let part = &self.trackers[next];
            (pass.used, pass.position) = (part.used, part.position);
            (pass.returned, pass.behind) = (pass.returned + part.returned, pass.behind + part.behind);
            joined[next] = true;
        }
        if pass.is_whole(budget) {
            self.trackers[started] = pass;
            let parts = self.trackers.iter_mut().zip(joined).filter(|(_, joined)| *joined);
            parts.for_each(|(part, _)| *part = Tracker::default());
        }
    }

    /// Pages that are given up. True if a cyclic range is among them.
    pub(super) fn forget(&mut self, first: Place, pages: u64) -> bool {
        let mut changed = false;
        for tracker in &mut self.trackers {
            let end = if tracker.cyclic { tracker.high } else { tracker.position };
            if tracker.used != 0 && tracker.low < first.saturating_add(pages) && first <= end {
                // Memory that is taken and given back while a large range is filled lies next to it more often than
                // not.
                if tracker.first && tracker.low < first {
                    tracker.position = first - 1;
                    tracker.returned = tracker.returned.min(u32::try_from(tracker.span()).unwrap_or(u32::MAX));
                    continue;
                }
                changed |= tracker.cyclic;
                *tracker = Tracker::default();
            }
        }
        changed
    }

    /// First place and the place after the last of the ranges that count as cyclic.
    pub(super) fn cyclic(&self) -> impl Iterator<Item = (Place, Place)> {
        self.trackers.iter().filter(|tracker| tracker.cyclic).map(|tracker| (tracker.low, tracker.high + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::Random;
    use crate::policy::scan_tracker::{MAX_THIN, WINDOW};
    use proptest::prelude::*;

    const BUDGET: u64 = 1000;

    fn tell(detector: &mut Detector, pages: impl IntoIterator<Item = Place>) -> Vec<Change> {
        pages.into_iter().filter_map(|page| detector.returned(page, BUDGET, false, false)).collect()
    }

    /// What comes back when all that comes back of `range` is this share of it, in each of some passes.
    fn passes(range: std::ops::Range<Place>, count: usize) -> impl Iterator<Item = Place> {
        (0..count).flat_map(move |_| range.clone())
    }

    #[test]
    fn a_range_is_cyclic_after_two_passes() {
        let mut detector = Detector::default();
        assert_eq!(tell(&mut detector, passes(5000..6400, 2)), []);
        assert_eq!(tell(&mut detector, [5000]), [Change::Found]);
        assert_eq!(detector.cyclic().collect::<Vec<_>>(), [(5000, 6400)]);
        // What does not fit comes back, in order, pass by pass.
        assert_eq!(tell(&mut detector, passes(5600..6100, 200)), []);
    }

    /// Runs of 64 pages, of which four are under way at once and the last ends first.
    #[test]
    fn runs_that_are_read_ahead_come_back_in_any_order() {
        for ahead in [false, true] {
            let mut detector = Detector::default();
            let pass = (0..160u64).flat_map(|run| (0..64).map(move |page| (run / 4 * 4 + 3 - run % 4) * 64 + page));
            let changes: Vec<Change> = (0..4)
                .flat_map(|_| pass.clone())
                .filter_map(|page| detector.returned(page, 8192, ahead, false))
                .collect();
            assert_eq!(changes, if ahead { vec![Change::Found] } else { vec![] });
        }
    }

    #[test]
    fn what_fits_is_not_cyclic_nor_is_one_pass_nor_are_backward_passes() {
        assert_eq!(tell(&mut Detector::default(), passes(0..1000, 50)), []);
        assert_eq!(tell(&mut Detector::default(), 0..100_000), []);
        assert_eq!(tell(&mut Detector::default(), (0..20).flat_map(|_| (0..3000).rev())), []);
    }

    #[test]
    fn other_order_ends_it_soon_and_it_must_show_itself_twice_as_often_then() {
        let mut detector = Detector::default();
        assert_eq!(tell(&mut detector, passes(0..2000, 3)), [Change::Found]);
        let mut random = (0..).map(|n: u32| Place::from(n.wrapping_mul(2_654_435_761) % 2000));
        let until_lost = random.by_ref().take(2 * WINDOW as usize);
        assert_eq!(tell(&mut detector, until_lost), [Change::Lost]);
        assert_eq!(detector.cyclic().count(), 0);
        assert_eq!(tell(&mut detector, random.take(10_000)), []);
        assert_eq!(tell(&mut detector, passes(0..2000, 4)), []);
        assert_eq!(tell(&mut detector, passes(0..2000, 2)), [Change::Found]);
    }

    /// The same where a single pass is enough.
    fn tell_early(detector: &mut Detector, pages: impl IntoIterator<Item = Place>) -> Vec<Change> {
        pages.into_iter().filter_map(|page| detector.returned(page, BUDGET, true, true)).collect()
    }

    /// A range of 3000 pages that were read, or only touched for the first time, when the next pass begins.
    fn believed_early() -> [Detector; 2] {
        let (mut read, mut touched) = (Detector::default(), Detector::default());
        assert_eq!(tell_early(&mut read, 0..3000), []);
        (0..3000).for_each(|page| touched.touched_first(page));
        [read, touched].map(|mut detector| {
            assert_eq!(tell_early(&mut detector, [0]), [Change::Early(2812, 2999)]);
            assert_eq!(detector.cyclic().collect::<Vec<_>>(), [(0, 3000)]);
            detector
        })
    }

    #[test]
    fn one_clear_pass_is_enough_and_the_next_confirms_it() {
        for mut detector in believed_early() {
            // What fits stays, but for a few pages of the last part; windows come in one before the other.
            let pass = || (1..2000).map(|page| page ^ 64).chain([2850, 2999]);
            assert_eq!(tell_early(&mut detector, pass()), []);
            let passed = |confirmed| Change::Passed { confirmed, first: 2812, last: 2999 };
            assert_eq!(tell_early(&mut detector, 0..300), [passed(true)]);
            // What is read ahead by a wrong guess says nothing.
            let guessed = (300..2000).flat_map(|page| [Some(page), (page % 64 == 5).then_some((page + 640) / 64 * 64)]);
            assert_eq!(tell_early(&mut detector, guessed.flatten().chain([2999])), []);
            // What stays may lie anywhere.
            let others = (0..2000).chain([2900]).chain(700..3000).chain(0..1200).chain(2000..3000);
            assert_eq!(tell_early(&mut detector, others), [passed(false); 3]);
        }
        // A pass with gaps, or in no order, is not clear.
        let holes = (5000..6400).filter(|page| page % 5 > 0).collect::<Vec<_>>();
        let disorder = (5000..6400).map(|page| page / 64 * 64 + 63 - page % 64).collect();
        for pass in [holes, disorder] {
            let mut detector = Detector::default();
            pass.iter().for_each(|page| detector.touched_first(*page));
            assert_eq!(tell_early(&mut detector, pass.iter().chain(&pass).copied()), []);
            assert_eq!(tell_early(&mut detector, [5000]), [Change::Found]);
        }
    }

    #[test]
    fn who_goes_on_with_parts_is_found_out_at_once_and_early_belief_ends_with_some_mistakes() {
        let beginning = passes(1..900, 2).collect::<Vec<_>>();
        let in_no_order = |n: u32| Place::from(n.wrapping_mul(2_654_435_761) % 3000);
        let blocks = |pages: Place, times| {
            (0..8).flat_map(move |block| passes(block * pages..(block + 1) * pages, times)).collect()
        };
        for parts in [beginning, blocks(700, 2), (1..200).map(in_no_order).collect()] {
            for mut detector in believed_early() {
                let changes = tell_early(&mut detector, parts.iter().copied());
                assert!(changes.contains(&Change::Lost) && detector.cyclic().count() == 0, "{changes:?}");
                assert!(
                    changes.iter().filter(|change| matches!(change, Change::Passed { .. })).count() < 2,
                    "{changes:?}"
                );
            }
        }
        // Blocks that are smaller than order may be violated by, and who comes from both ends.
        let ends: Vec<Place> = (1..5000).flat_map(|page| [page, 59_999 - page]).collect();
        for parts in [passes(1..1000, 10).collect(), ends] {
            let (mut detector, budget) = (Detector::default(), 20_000);
            (0..60_000).for_each(|page| detector.touched_first(page));
            let mut tell = |page| detector.returned(page, budget, true, true);
            assert!(matches!(tell(0), Some(Change::Early(..))));
            assert_eq!(parts.into_iter().filter_map(tell).next(), Some(Change::Lost));
        }
        let mut detector = Detector::default();
        for number in 0..MAX_MISTAKES {
            let first = Place::from(number) << 20;
            (first..first + 3000).for_each(|page| detector.touched_first(page));
            let parts = [0].into_iter().chain((1..200).map(in_no_order));
            let changes: Vec<Change> = tell_early(&mut detector, parts.map(|page| first + page)).drain(..2).collect();
            assert!(matches!(changes[..], [Change::Early(..), Change::Lost]), "{changes:?}");
        }
        let first = 1 << 40;
        (first..first + 3000).for_each(|page| detector.touched_first(page));
        // As without.
        assert_eq!(tell_early(&mut detector, passes(first..first + 3000, 2)), []);
        assert_eq!(tell_early(&mut detector, [first]), [Change::Found]);
    }

    #[test]
    fn what_is_taken_and_given_back_beside_a_range_that_is_filled_hides_nothing() {
        let mut detector = Detector::default();
        for page in 0..3000 {
            detector.touched_first(page);
            if page % 10 == 9 {
                (3000..3100).for_each(|other| detector.touched_first(other));
                (3000..3100).for_each(|other| assert!(!detector.forget(other, 1)));
            }
        }
        let changes = tell_early(&mut detector, [0]);
        assert!(matches!(changes[..], [Change::Early(_, 2999)]), "{changes:?}");
    }

    #[test]
    fn scans_side_by_side_are_told_apart_and_noise_does_not_disturb() {
        let mut detector = Detector::default();
        let noise = |n: u32| Place::from(1_000_000 + n.wrapping_mul(2_654_435_761) % 100_000);
        let mixed = passes(0..1500, 4).zip(passes(10_000..12_000, 4)).zip(0u32..);
        let mixed = mixed.flat_map(|((a, b), n)| [a, b, noise(n)]);
        assert_eq!(tell(&mut detector, mixed), [Change::Found, Change::Found]);
        let found: Vec<_> = detector.cyclic().collect();
        assert!(found.contains(&(0, 1500)) && found.contains(&(10_000, 12_000)), "{found:?}");
    }

    #[test]
    fn what_stays_in_one_piece_or_for_some_passes_hides_no_scan() {
        // As the multi-gen LRU lets them come back beside other work: all, a part, all but a piece in the middle.
        let mut detector = Detector::default();
        let kept_in_one_piece = || (0..500).chain(1024..2048);
        assert_eq!(tell(&mut detector, (0..2048).chain(0..832).chain(kept_in_one_piece())), []);
        assert_eq!(tell(&mut detector, [0]), [Change::Found]);
        assert_eq!(detector.cyclic().collect::<Vec<_>>(), [(0, 2048)]);
        let mut detector = Detector::default();
        assert_eq!(tell(&mut detector, kept_in_one_piece().chain(kept_in_one_piece())), []);
        assert_eq!(tell(&mut detector, [0]), [Change::Found]);
        // More than `MAX_THIN` thin passes are no scan that thrashes: the detector begins anew.
        let mut detector = Detector::default();
        let thin = (0..=MAX_THIN).flat_map(|_| 0..832);
        assert_eq!(tell(&mut detector, (0..2048).chain(thin).chain(0..2048).chain([0])), []);
        // Pieces of which each fits and that are far apart are no range together.
        let mut detector = Detector::default();
        assert_eq!(tell(&mut detector, (0..20).flat_map(|_| (0..700).chain(5000..5700))), []);
    }

    #[test]
    fn what_is_given_up_is_forgotten() {
        let mut detector = Detector::default();
        tell(&mut detector, passes(0..2000, 3));
        assert!(!detector.forget(2000, 500) && detector.cyclic().count() == 1);
        assert!(detector.forget(1999, 1) && detector.cyclic().count() == 0);
    }

    #[test]
    fn a_range_that_nobody_scans_any_more_leaves_its_place_to_another() {
        let mut detector = Detector::default();
        let found = |detector: &Detector, first| detector.cyclic().any(|range| range.0 == first);
        for number in 0..2 * MAX_CYCLIC as Place {
            let first = number << 34;
            // Twice as long while the others' places are not free yet.
            tell(&mut detector, passes(first..first + 1500, 6));
            assert!(found(&detector, first), "{number}");
        }
        // Those that are scanned in turns stay.
        let kept: Vec<Place> = detector.cyclic().map(|(first, _)| first).collect();
        assert_eq!(kept.len(), MAX_CYCLIC);
        let another = 7 << 50;
        let mut turns = Vec::new();
        for turn in 0..400 {
            let part = |first: &Place| first + turn % 15 * 100..first + turn % 15 * 100 + 100;
            turns.extend(kept.iter().chain([&another]).flat_map(part));
        }
        assert_eq!(tell(&mut detector, turns), []);
        assert!(kept.iter().all(|first| found(&detector, *first)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Passes in which some pages stayed in memory and neighbours came out of order are passes all the same.
        #[test]
        fn holes_and_small_disorder_are_tolerated(first in 0..1u64 << 40, pages in 1200..5000u64, holes in 4..20u64, shift in 0..60u64) {
            let mut detector = Detector::default();
            let pass = (0..pages).filter(|page| page % holes != 1).map(|page| {
                // Pairs of threads bring in a little ahead and a little behind.
                first + if page % 2 == 0 { (page + shift).min(pages - 1) } else { page }
            });
            let passes = (0..3).flat_map(|_| pass.clone());
            prop_assert_eq!(tell(&mut detector, passes), vec![Change::Found]);
        }
    }

    /// Runs of neighbours in random order look like passes now and then. No more than one of some 300 such histories is
    /// taken for a scan, and goes on to be. Where all is read alike it makes no difference which page goes.
    #[test]
    fn random_order_is_hardly_ever_cyclic() {
        let mut believed = 0;
        for seed in 0..4000 {
            let mut random = Random::new(seed);
            let mut below = |bound: u64| (random.bits() >> 16) % bound;
            let (pages, skew, run, ahead) = (2 + below(20_000), below(4) as i32, 1 + below(63), below(2) == 1);
            let mut next = || (random.bits() >> 33) as f64 / (1u64 << 31) as f64;
            let mut detector = Detector::default();
            // Uniform, and more and more skewed to the first pages.
            let starts = (0..20_000 / run).map(|_| (next().powi(1 << skew) * pages as f64) as Place);
            let mut accesses = starts.flat_map(|start| start..start + run);
            believed += u32::from(accesses.any(|page| detector.returned(page, BUDGET, ahead, true).is_some()));
        }
        assert!(believed <= 20, "{believed} of 4000");
    }
}
