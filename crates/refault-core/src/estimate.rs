//! What a cache of objects would miss at other sizes and under other policies, asked while it runs.
//!
//! An [`Estimator`] is told of each access to a live cache: a number or hash of the object, and its size. It keeps
//! miniatures of the cache, one per policy and size, over a sample of the objects. It answers at any time which part of
//! the accesses, and of their bytes, each would have missed. It knows no clock, no threads and no I/O, and takes at
//! most 2 MiB whatever is asked for.
//!
//! Whether an object is in the sample is decided by its hash, so it is always in or never. All objects are, until they
//! or the work with them become too many: then a part of the hashes leaves, and the caches shrink with the sample. As
//! long as all are in, estimates are exact. Where objects are few, all stay in, and the miniatures rest part of the
//! time. Two corrections make a small sample good. First, caches are as small as the sample's share of *news* instead
//! of its share of hashes. News are accesses to what was not asked for a moment ago. Second, misses are corrected by
//! the news that the sample lacks. What an object is asked for while it is hot depends on chance in a sample, and
//! neither of them does.
//!
//! Objects stay until they are evicted: one that the live cache deletes stays in the miniatures. A size of 0 counts as
//! a byte. An object larger than a cache never comes into it.
//!
//! Cost: about 5 ns per access, and for those in the sample about 10 ns per policy and per cache that misses; less is
//! followed where that would exceed some 20 ns per access. Few objects may cost more at first, 0.3 s in all. How far
//! off estimates are is measured by `refault-bench estimate`.
//!
//! Source: Waldspurger, Park, Garthwaite and Ahmad, *Efficient MRC Construction with SHARDS*, FAST 2015 (sampling by
//! hash, a rate that adapts to a fixed size); Waldspurger, Saemundsson, Ahmad and Park, *Cache Modeling and
//! Optimization using Miniature Simulations*, ATC 2017. The corrections are not theirs.
//!
//! ```
//! use refault_core::estimate::Estimator;
//!
//! let mut estimator = Estimator::new(&["lru", "s3fifo"], &[50 << 10, 200 << 10])?;
//! for access in 0..10_000 {
//!     estimator.access(access % 100, 1 << 10); // 100 objects of 1 KiB in turn
//! }
//! let estimates = estimator.estimates();
//! assert_eq!((estimates[0].policy, estimates[0].cache_bytes, estimates[0].miss_ratio), ("lru", 50 << 10, 1.0));
//! assert_eq!((estimates[1].cache_bytes, estimates[1].miss_ratio), (200 << 10, 0.01)); // first touches
//! # Ok::<(), refault_core::estimate::EstimateError>(())
//! ```

mod clock;
mod correction;
mod error;
mod lists;
mod lru;
mod miniature;
mod recent;
mod s3fifo;
mod sample;
mod turns;
mod work;

pub use error::EstimateError;

use correction::{GROUPS, Sums};
use lists::{Id, STEP};
use miniature::{MAX_SIZES, Miniature, Room};
use recent::Recent;
use sample::Sample;
use turns::{Turn, Turns};
use work::{Verdict, Work};

/// Policies that can be asked about.
pub const POLICIES: [&str; 4] = ["lru", "fifo", "clock", "s3fifo"];
/// Sizes of the cache that can be asked about at once.
pub const MAX_CACHES: usize = MAX_SIZES;
/// Bytes of memory that an estimator takes at most, unless it is told.
pub const MEMORY_BYTES: usize = 2 << 20;

/// Objects below which a sample does not fall to save memory or work.
const MIN_OBJECTS: usize = 64;
/// Bytes that an object may take beside those in queues.
const BYTES_PER_OBJECT: usize = 64;
/// Checks between two looks at the work.
const WINDOW: u32 = 4;
/// News in the sample from which its share is better known than by the hashes.
const ENOUGH_NEWS: f64 = 2048.0;
/// News in the sample after which older news counts half.
const MUCH_NEWS: f64 = 40_000.0;

/// What a cache would have missed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The policy.
    pub policy: &'static str,
    /// The size of the cache, in bytes.
    pub cache_bytes: u64,
    /// Misses per access, 0 to 1, first touches included; 0 before the first access.
    pub miss_ratio: f64,
    /// Bytes missed per byte asked for, 0 to 1.
    pub byte_miss_ratio: f64,
}

/// See the module.
pub struct Estimator {
    sample: Sample,
    recent: Recent,
    room: Room,
    miniatures: Vec<(&'static str, Box<dyn Miniature>)>,
    accesses: Sums,
    bytes: Sums,
    /// What an access in the sample stands for.
    weight: f64,
    /// News in the sample, and of all accesses, with this rate.
    news: [f64; 2],
    work: Work,
    turns: Turns,
    until_check: usize,
    until_window: u32,
    limit_bytes: usize,
    seed: u64,
}

impl Estimator {
    /// An estimator for some of [`POLICIES`] and 1 to [`MAX_CACHES`] sizes of the cache in bytes, in [`MEMORY_BYTES`].
    ///
    /// # Errors
    /// A policy is not one of them, or there are too many sizes or none.
    pub fn new(policies: &[&str], cache_bytes: &[u64]) -> Result<Estimator, EstimateError> {
        Estimator::within(policies, cache_bytes, MEMORY_BYTES, 0)
    }

    /// The same in this many bytes of memory, with a sample that the seed draws. Less memory is a smaller sample.
    ///
    /// # Errors
    /// As of [`Estimator::new`], or the memory does not do for the smallest sample.
    pub fn within(
        policies: &[&str],
        cache_bytes: &[u64],
        memory_bytes: usize,
        seed: u64,
    ) -> Result<Estimator, EstimateError> {
        if cache_bytes.is_empty() || cache_bytes.len() > MAX_CACHES {
            return Err(EstimateError::Sizes(cache_bytes.len()));
        }
        if policies.is_empty() {
            return Err(EstimateError::UnknownPolicy(String::new()));
        }
        let caches = cache_bytes.len();
        let miniatures = policies.iter().map(|policy| start(policy, caches)).collect::<Result<Vec<_>, _>>()?;
        let runs = miniatures.len() * caches;
        let estimator = Estimator {
            sample: Sample::new(),
            recent: Recent::new(),
            room: Room::new(cache_bytes),
            miniatures,
            accesses: Sums::new(runs),
            bytes: Sums::new(runs),
            weight: 1.0,
            news: [0.0; 2],
            work: Work::default(),
            turns: Turns::ALWAYS,
            until_check: STEP,
            until_window: WINDOW,
            limit_bytes: memory_bytes,
            seed,
        };
        let least = estimator.memory_bytes() + estimator.headroom() + 2 * STEP * BYTES_PER_OBJECT;
        if least > memory_bytes {
            return Err(EstimateError::Memory { least, given: memory_bytes });
        }
        Ok(estimator)
    }

    /// An object was asked for, in the live cache or not: its number or hash, and its size in bytes.
    #[inline]
    pub fn access(&mut self, object: u64, size: u64) {
        let size = size.max(1);
        let hash = scatter(object ^ self.seed);
        let news = self.recent.is_news(hash);
        self.work.asked();
        let (turn, is_round) = self.turns.next();
        if is_round {
            self.end_round();
        }
        if turn == Turn::Rest {
            return;
        }
        if turn == Turn::Count {
            self.accesses.asked(1.0, news);
            self.bytes.asked(size as f64, news);
        }
        self.news[1] += f64::from(u8::from(news[1]));
        if self.sample.contains(hash) {
            self.access_sampled(hash, size, news, turn == Turn::Count);
        }
    }

    #[inline(never)]
    fn access_sampled(&mut self, hash: u64, size: u64, news: [bool; recent::TABLES], counts: bool) {
        self.until_check -= 1;
        if self.until_check == 0 {
            self.check();
        }
        let Some(id) = self.number(hash, size) else { return };
        let before = std::mem::replace(&mut self.sample.sizes[usize::from(id)], size);
        let group = (hash >> 13) as usize % GROUPS;
        let weight = if counts { self.weight } else { 0.0 };
        let bytes = weight * size as f64;
        self.news[0] += f64::from(u8::from(news[1]));
        self.accesses.sampled(group, weight, news);
        self.bytes.sampled(group, bytes, news);
        let caches = self.room.whole.len();
        for (policy, (_, miniature)) in self.miniatures.iter_mut().enumerate() {
            if before != size {
                miniature.resize(id, before, size);
            }
            let missed = miniature.access(id, &self.sample.sizes, &self.room);
            self.work.did(1 + missed.count_ones());
            if missed != 0 {
                self.accesses.missed(group, policy * caches, caches, missed, weight);
                self.bytes.missed(group, policy * caches, caches, missed, bytes);
            }
        }
    }

    /// The number of an object, which is given one if it has none; `None` if it has just left the sample.
    #[inline]
    fn number(&mut self, hash: u64, size: u64) -> Option<Id> {
        if let Some(id) = self.sample.find(hash) {
            return Some(id);
        }
        if self.sample.is_full() {
            self.make_room();
        }
        if self.sample.contains(hash) { self.sample.insert(hash, size) } else { None }
    }

    /// More numbers, or those of objects that no miniature knows any more, or a smaller sample.
    #[cold]
    fn make_room(&mut self) {
        let more = self.memory_bytes() + self.headroom() + STEP * BYTES_PER_OBJECT;
        if more < self.limit_bytes && self.sample.grow() {
            self.miniatures.iter_mut().for_each(|(_, miniature)| miniature.grow(self.sample.numbers()));
            return;
        }
        let miniatures = &self.miniatures;
        self.sample.retain(|id| miniatures.iter().any(|(_, miniature)| miniature.holds(id)));
        while self.sample.len() > self.sample.numbers() - self.sample.numbers() / 8 {
            self.lower_rate();
        }
    }

    /// Bytes by which queues may grow between two checks.
    fn headroom(&self) -> usize {
        let rings = 3 * self.room.whole.len() * self.miniatures.len();
        2 * STEP * size_of::<Id>() * rings
    }

    /// Whether the sample is small enough, and how large it really is.
    #[cold]
    fn check(&mut self) {
        self.until_check = STEP;
        while self.sample.len() > MIN_OBJECTS && self.memory_bytes() + self.headroom() > self.limit_bytes {
            self.lower_rate();
        }
        self.until_window -= 1;
        if self.until_window == 0 && self.turns.is_always() {
            self.end_window();
        }
        self.until_window = if self.until_window == 0 { WINDOW } else { self.until_window };
        if self.sample.rate() < 1.0 && self.news[0] > ENOUGH_NEWS {
            self.room.scale((self.news[0] / self.news[1]).min(1.0));
            if self.news[0] > MUCH_NEWS {
                self.news = self.news.map(|news| news / 2.0);
            }
        }
    }

    /// Too much work with many objects makes the sample smaller; with few, they rest.
    fn end_window(&mut self) {
        let objects = self.sample.len();
        if let Verdict::TooMuch = self.work.end_window(objects) {
            if Work::are_few(objects) { self.turns.rest_more(objects) } else { self.lower_rate() }
        }
    }

    #[cold]
    fn end_round(&mut self) {
        let objects = self.sample.len();
        match self.work.end_window(objects) {
            _ if !Work::are_few(objects) => self.turns = Turns::ALWAYS,
            Verdict::TooMuch => self.turns.rest_more(objects),
            Verdict::Little => self.turns.rest_less(),
            Verdict::Right => {}
        }
    }

    fn lower_rate(&mut self) {
        self.sample.lower_rate();
        let kept: Vec<bool> = self.sample.hashes().map(|hash| self.sample.contains(hash)).collect();
        self.miniatures.iter_mut().for_each(|(_, miniature)| miniature.retain(&kept, &self.sample.sizes));
        self.sample.retain(|id| kept[usize::from(id)]);
        self.weight = 1.0 / self.sample.rate();
        self.room.scale(self.sample.rate());
        self.news = [0.0; 2];
    }

    /// What each policy would have missed at each size, policies first, since the beginning or [`Estimator::restart`],
    /// of what was followed.
    pub fn estimates(&self) -> Vec<Estimate> {
        let caches = self.room.whole.iter();
        let runs = self.miniatures.iter().flat_map(|(policy, _)| caches.clone().map(|cache| (*policy, *cache)));
        let estimate = |(run, (policy, cache_bytes))| Estimate {
            policy,
            cache_bytes,
            miss_ratio: self.accesses.miss_ratio(run),
            byte_miss_ratio: self.bytes.miss_ratio(run),
        };
        runs.enumerate().map(estimate).collect()
    }

    /// Counts from now on, with the caches as they are: for what was missed in the last hour, say.
    pub fn restart(&mut self) {
        let runs = self.miniatures.len() * self.room.whole.len();
        (self.accesses, self.bytes) = (Sums::new(runs), Sums::new(runs));
    }

    /// The part of what is asked for that is followed, above 0 to 1: of the objects, or, where they are few, of the
    /// time. As long as it is 1, estimates are exact.
    pub fn rate(&self) -> f64 {
        self.sample.rate() * self.turns.share()
    }

    /// Bytes of memory that it takes now.
    pub fn memory_bytes(&self) -> usize {
        let sums = self.accesses.footprint() + self.bytes.footprint() + self.recent.footprint();
        let miniatures: usize = self.miniatures.iter().map(|(_, miniature)| miniature.footprint()).sum();
        size_of::<Estimator>() + self.sample.footprint() + miniatures + sums
    }
}

fn start(policy: &str, caches: usize) -> Result<(&'static str, Box<dyn Miniature>), EstimateError> {
    let unknown = || EstimateError::UnknownPolicy(policy.to_owned());
    let name = POLICIES.into_iter().find(|name| *name == policy).ok_or_else(unknown)?;
    let miniature: Box<dyn Miniature> = match name {
        "lru" => Box::new(lru::Lru::new(caches)),
        "fifo" => Box::new(clock::Clock::new(caches, false)),
        "clock" => Box::new(clock::Clock::new(caches, true)),
        _ => Box::new(s3fifo::S3Fifo::new(caches)),
    };
    Ok((name, miniature))
}

/// Spreads a number over 64 bits (the finaliser of Steele, Lea and Flood's SplittableRandom, OOPSLA 2014).
#[inline]
fn scatter(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ bits >> 31
}
