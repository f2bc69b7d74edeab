//! What a process counts, and how others read it while it runs: one set of figures from the fault path to `refault
//! top`.
//!
//! The engine counts in plain words ([`Statistics`], [`Usage`]) and copies them into its slot of the segment that the
//! tree shares ([`Published`]). A process that maps the segment reads them there, also after the counting process was
//! killed.
//!
//! Invariants: only the process whose slot it is writes to it; a reader sees each figure whole, but not all of one
//! moment. Cost: one store per figure.
//!
//! ```
//! use refault_paging::figures::Times;
//!
//! let times = Times::default();
//! (1..=100).for_each(|time| times.count(time * 1000));
//! assert_eq!(times.most(), 100_000);
//! assert!((50_000..=57_000).contains(&times.quantile(0.5))); // rounded up by an eighth at most
//! ```

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use refault_core::Counters;
use refault_core::adaptive::Way;
use refault_core::policy::GenerationSize;

macro_rules! figures {
    ($(#[$outer:meta])* $name:ident, $published:ident { $($(#[$doc:meta])* $figure:ident,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$doc])* pub $figure: u64,)* }

        impl $name {
            /// The names, in the order of [`Self::values`].
            pub const NAMES: &'static [&'static str] = &[$(stringify!($figure)),*];

            /// The values, in the order of [`Self::NAMES`].
            pub fn values(&self) -> [u64; Self::NAMES.len()] { [$(self.$figure),*] }

            /// Adds `other` to each figure.
            pub fn add(&mut self, other: &$name) { $(self.$figure += other.$figure;)* }
        }

        /// The same where others can read it.
        #[repr(C)]
        #[derive(Default)]
        pub struct $published { $($figure: AtomicU64,)* }

        impl $published {
            /// Makes the figures known.
            pub fn store(&self, figures: &$name) { $(self.$figure.store(figures.$figure, Ordering::Relaxed);)* }

            /// The figures.
            pub fn load(&self) -> $name { $name { $($figure: self.$figure.load(Ordering::Relaxed),)* } }

            /// Adds figures to these.
            pub fn add(&self, figures: &$name) { $(self.$figure.fetch_add(figures.$figure, Ordering::Relaxed);)* }
        }
    };
}

figures! {
    /// What happened so far. Pages unless said otherwise.
    Statistics, PublishedStatistics {
        /// Faults served: times, not pages.
        faults,
        /// Pages that were touched for the first time.
        first_touches,
        /// Pages moved back from the staging area.
        rescued,
        /// Pages read back from a store.
        read_back,
        /// Of those, pages that were brought in ahead of a sequence of faults.
        prefetched,
        /// Pages parked.
        parked,
        /// Pages stored.
        stored,
        /// Pages that could not be moved: pinned, or not writable.
        unmovable,
        /// Pages whose contents could not be brought back.
        lost,
        /// Nanoseconds that threads waited for pages.
        waited,
        /// Nanoseconds of those in which the page had been there before: not for first touches.
        waited_again,
    }
}

impl Statistics {
    /// Pages that came in, from wherever.
    pub fn brought_in(&self) -> u64 {
        self.first_touches + self.rescued + self.read_back
    }
}

figures! {
    /// Where the memory of a process is now.
    Usage, PublishedUsage {
        /// Bytes under management, touched or not.
        managed_bytes,
        /// Pages in memory, where they belong.
        resident_pages,
        /// Pages in the staging area.
        parked_pages,
        /// Pages stored as the value that fills them.
        same_filled_pages,
        /// Pages in the compressed pool.
        pool_pages,
        /// Bytes of memory of the pool.
        pool_bytes,
        /// Pages in the file.
        file_pages,
        /// Bytes of the agent's own heap.
        own_bytes,
        /// Bytes of it that are the policy's.
        policy_bytes,
    }
}

impl PublishedUsage {
    /// Makes known what changes with every fault.
    pub(crate) fn store_memory(&self, resident: u64, parked: u64, pool: u64) {
        self.resident_pages.store(resident, Ordering::Relaxed);
        self.parked_pages.store(parked, Ordering::Relaxed);
        self.pool_bytes.store(pool, Ordering::Relaxed);
    }
}

/// Counts by magnitude: `STEPS` buckets, a power of two, for each octave, so that a quantile is exact to one part in
/// `STEPS`.
#[repr(C)]
pub struct Histogram<const STEPS: usize, const BUCKETS: usize> {
    buckets: [AtomicU32; BUCKETS],
    most: AtomicU64,
}

/// How long something took, in nanoseconds, to an eighth.
pub type Times = Histogram<8, { 36 * 8 }>;
/// [`Times`] at one moment.
pub type TimeCounts = Counts<8, { 36 * 8 }>;
/// How much memory something needs, in pages, to a 32nd.
pub type Sizes = Histogram<32, { 32 * 32 }>;
/// [`Sizes`] at one moment.
pub type SizeCounts = Counts<32, { 32 * 32 }>;

impl<const STEPS: usize, const BUCKETS: usize> Default for Histogram<STEPS, BUCKETS> {
    fn default() -> Self {
        Histogram { buckets: std::array::from_fn(|_| AtomicU32::new(0)), most: AtomicU64::new(0) }
    }
}

impl<const STEPS: usize, const BUCKETS: usize> Histogram<STEPS, BUCKETS> {
    fn bucket(value: u64) -> usize {
        let value = value.max(STEPS as u64);
        let above = (value.ilog2() - STEPS.ilog2()) as usize;
        (above * STEPS + (value >> above) as usize - STEPS).min(BUCKETS - 1)
    }

    /// Counts one. Only the owner of the slot does.
    pub fn count(&self, value: u64) {
        let bucket = &self.buckets[Self::bucket(value)];
        bucket.store(bucket.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        if value > self.most.load(Ordering::Relaxed) {
            self.most.store(value, Ordering::Relaxed);
        }
    }

    /// Counts one where other processes count too.
    pub(crate) fn count_among_others(&self, value: u64) {
        self.buckets[Self::bucket(value)].fetch_add(1, Ordering::Relaxed);
        self.most.fetch_max(value, Ordering::Relaxed);
    }

    /// Adds these counts to others, which many add to.
    pub(crate) fn add_to(&self, others: &Self) {
        for (from, to) in self.buckets.iter().zip(&others.buckets) {
            let count = from.load(Ordering::Relaxed);
            if count > 0 {
                to.fetch_add(count, Ordering::Relaxed);
            }
        }
        others.most.fetch_max(self.most.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn clear(&self) {
        self.buckets.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        self.most.store(0, Ordering::Relaxed);
    }

    /// The largest.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// The counts now.
    pub fn counts(&self) -> Counts<STEPS, BUCKETS> {
        Counts(self.buckets.each_ref().map(|count| count.load(Ordering::Relaxed)))
    }

    /// The value that a share (0 to 1) of all did not exceed, rounded up by one part in `STEPS` at most; 0 if there are
    /// none.
    pub fn quantile(&self, share: f64) -> u64 {
        self.counts().quantile(share).min(self.most())
    }
}

/// A [`Histogram`] at one moment.
#[derive(Clone, Debug)]
pub struct Counts<const STEPS: usize, const BUCKETS: usize>([u32; BUCKETS]);

impl<const STEPS: usize, const BUCKETS: usize> Counts<STEPS, BUCKETS> {
    /// The largest value of a bucket.
    fn upper_bound(bucket: usize) -> u64 {
        ((STEPS + bucket % STEPS + 1) as u64) << (bucket / STEPS)
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|count| u64::from(*count)).sum()
    }

    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Counts(std::array::from_fn(|index| self.0[index].wrapping_sub(earlier.0[index])))
    }

    /// The value that a share (0 to 1) of all did not exceed, rounded up by one part in `STEPS` at most; 0 if there are
    /// none.
    pub fn quantile(&self, share: f64) -> u64 {
        let total = self.count();
        let wanted = ((total as f64 * share).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        for (index, count) in self.0.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return Self::upper_bound(index);
            }
        }
        0
    }
}

/// Generations that are shown.
pub const MAX_GENERATIONS: usize = 8;

/// A process's figures where others can read them.
#[repr(C)]
pub struct Published {
    /// See [`Statistics`].
    pub statistics: PublishedStatistics,
    /// See [`Usage`].
    pub usage: PublishedUsage,
    /// How long faults took.
    pub times: Times,
    /// 1 while a thread waits for a page that was there before.
    pub(crate) stalled: AtomicU32,
    /// The policy's counters, in the order of [`Counters::NAMES`].
    counters: [AtomicU64; Counters::NAMES.len()],
    /// Sequence number, time of birth on the monotonic clock in nanoseconds, pages; no pages and no birth: none.
    generations: [[AtomicU64; 3]; MAX_GENERATIONS],
    /// The way of choosing that leads, as its place in [`Way::ALL`] from 1 on; 0: the policy has but one.
    leader: AtomicU32,
}

impl Default for Published {
    fn default() -> Published {
        Published {
            statistics: PublishedStatistics::default(),
            usage: PublishedUsage::default(),
            times: Times::default(),
            stalled: AtomicU32::default(),
            counters: [const { AtomicU64::new(0) }; Counters::NAMES.len()],
            generations: Default::default(),
            leader: AtomicU32::default(),
        }
    }
}

impl Published {
    /// Makes known what the policy says.
    pub fn store_policy(&self, counters: &Counters, generations: &[GenerationSize], leader: Option<&str>) {
        let place = Way::ALL.iter().position(|way| Some(way.name()) == leader);
        self.leader.store(place.map_or(0, |place| place as u32 + 1), Ordering::Relaxed);
        for (to, value) in self.counters.iter().zip(counters.values()) {
            to.store(value, Ordering::Relaxed);
        }
        let youngest = &generations[generations.len().saturating_sub(MAX_GENERATIONS)..];
        for (index, [seq, birth, pages]) in self.generations.iter().enumerate() {
            let generation = youngest.get(index);
            seq.store(generation.map_or(0, |generation| generation.seq), Ordering::Relaxed);
            birth.store(generation.map_or(0, |generation| generation.birth), Ordering::Relaxed);
            pages.store(generation.map_or(0, |generation| generation.pages.iter().sum()), Ordering::Relaxed);
        }
    }

    /// Whether a thread waits for a page that was there before.
    pub fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed) != 0
    }

    /// The policy's counters, in the order of [`Counters::NAMES`].
    pub fn counters(&self) -> [u64; Counters::NAMES.len()] {
        std::array::from_fn(|index| self.counters[index].load(Ordering::Relaxed))
    }

    /// The policy's generations, oldest first: sequence number, time of birth, pages.
    pub fn generations(&self) -> impl Iterator<Item = [u64; 3]> + '_ {
        let all = self.generations.iter().map(|words| words.each_ref().map(|word| word.load(Ordering::Relaxed)));
        all.filter(|[_, birth, pages]| *birth > 0 || *pages > 0)
    }

    /// The way of choosing victims that leads; none where the policy has but one.
    pub fn leader(&self) -> Option<Way> {
        let place = (self.leader.load(Ordering::Relaxed) as usize).checked_sub(1)?;
        Way::ALL.get(place).copied()
    }

    /// The process is gone: what it counted is added to `ended`, and the place is empty.
    pub(crate) fn end(&self, ended: &Ended) {
        ended.statistics.add(&self.statistics.load());
        self.times.add_to(&ended.times);
        self.statistics.store(&Statistics::default());
        self.usage.store(&Usage::default());
        self.times.clear();
        self.stalled.store(0, Ordering::Relaxed);
        self.counters.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        self.generations.iter().flatten().for_each(|word| word.store(0, Ordering::Relaxed));
        self.leader.store(0, Ordering::Relaxed);
    }
}

/// The figures of all processes that have ended.
#[repr(C)]
#[derive(Default)]
pub struct Ended {
    /// See [`Statistics`].
    pub statistics: PublishedStatistics,
    /// How long their faults took.
    pub times: Times,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_exact_to_an_eighth() {
        let times = Times::default();
        assert_eq!((times.quantile(0.5), times.most()), (0, 0));
        for value in 1..=100_000u64 {
            times.count(value);
        }
        for (share, exact) in [(0.01, 1000.0), (0.5, 50_000.0), (0.99, 99_000.0)] {
            let found = times.quantile(share) as f64;
            assert!((exact..=exact * 1.126).contains(&found), "{share}: {found}");
        }
        assert_eq!((times.quantile(1.0), times.most()), (100_000, 100_000));
        times.count(u64::MAX);
        assert_eq!(times.most(), u64::MAX);
    }

    #[test]
    fn a_size_is_exact_to_one_part_in_32() {
        let sizes = Sizes::default();
        (1..=100_000u64).for_each(|pages| sizes.count(pages));
        for (share, exact) in [(0.01, 1000.0), (0.5, 50_000.0), (0.99, 99_000.0)] {
            let found = sizes.quantile(share) as f64;
            assert!((exact..=exact * 1.032).contains(&found), "{share}: {found}");
        }
        let before = sizes.counts();
        (0..4).for_each(|_| sizes.count(7_000));
        assert!((7_000..=7_219).contains(&sizes.counts().since(&before).quantile(0.99)));
    }

    #[test]
    fn what_a_process_counted_outlives_it_once() {
        let (slot, ended) = (Published::default(), Ended::default());
        slot.statistics.store(&Statistics { faults: 3, waited: 50, ..Statistics::default() });
        slot.times.count(50);
        slot.end(&ended);
        slot.end(&ended);
        let sum = ended.statistics.load();
        assert_eq!(
            (sum.faults, sum.waited, ended.times.most(), slot.statistics.load()),
            (3, 50, 50, Statistics::default())
        );
    }

    #[test]
    fn generations_are_the_youngest_and_none_is_made_up() {
        let slot = Published::default();
        assert_eq!(slot.generations().count(), 0);
        let all: Vec<_> = (1..=10).map(|seq| GenerationSize { seq, birth: seq * 7, pages: [seq, 1] }).collect();
        slot.store_policy(&Counters { pgscan: 9, ..Counters::default() }, &all, Some("frequency"));
        assert_eq!(slot.leader(), Some(Way::Frequency));
        assert_eq!(slot.generations().next(), Some([3, 21, 4]));
        assert_eq!(slot.generations().last(), Some([10, 70, 11]));
        let scans = Counters::NAMES.iter().position(|name| *name == "pgscan").expect("a counter");
        assert_eq!(slot.counters()[scans], 9);
    }
}
