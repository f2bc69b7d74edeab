//! What a policy would miss with another amount of memory, asked while a front-end runs.
//!
//! A *miniature* is a replay of one policy in memory that is smaller by some power of two. It is fed with the accesses
//! to as small a part of the pages. One page is drawn of each group of neighbours. So a page is always in or never, and
//! a range has its share in the sample whatever is drawn. A miniature's misses, times that power, estimate the misses
//! of the whole. Nothing is stored but which pages a miniature holds, so asking costs little: [`Miniatures`] keeps
//! several, of different policies and sizes, over one sample.
//!
//! Hot pages are in the sample or not by chance, which is why misses are scaled and not miss ratios: what a hot page
//! adds to the ratio is hits, and those are known of the whole. The kernels' policies work in batches that do not
//! become smaller with memory: where they stand on an edge their miniatures may fall off it. Over accesses through
//! mappings that is so of all policies that look at accessed bits a part of memory at a time; pages are looked at one
//! by one there, as there are no page tables of the sample.
//!
//! Invariants: a page that is not in the sample changes nothing but the number of accesses; a miniature never holds
//! more than its share of pages by more than the policy would. Cost: a multiplication and a comparison per access, the
//! policies' own cost for one access in `2^shift`; about 30 bytes and the policies' metadata per page in the sample.
//!
//! Source: Waldspurger, Park, Garthwaite and Ahmad, *Efficient MRC Construction with SHARDS*, FAST 2015 (sampling
//! pages, and the correction that scales misses; it draws each page for itself); Waldspurger, Saemundsson, Ahmad and
//! Park, *Cache Modeling and Optimization using Miniature Simulations*, ATC 2017.
//!
//! ```
//! use refault_core::miniature::Miniatures;
//!
//! let mut miniatures = Miniatures::new(&["lru", "s3fifo"], &[500, 1000], 0)?;
//! for access in 0..10_000 {
//!     miniatures.accessed(access % 800, false);
//! }
//! let estimates: Vec<_> = miniatures.estimates().collect();
//! // 800 pages in turn do not fit in 500 under LRU, and do in 1000.
//! assert_eq!((estimates[0].misses, estimates[1].misses), (10_000, 800));
//! # Ok::<(), refault_core::policy::PolicyError>(())
//! ```

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use crate::memory::{Eviction, Memory, References, SwapSpace};
use crate::page::{LruvecId, PageId, PageType, Shadow};
use crate::policy::registry::{FrontEnd, build};
use crate::policy::room::{MAX_FRUITLESS_CALLS, make_room};
use crate::policy::{AccessReport, Admission, DescriptorReads, DynPolicy, HitReport, PolicyError, ReclaimRequest};

/// The smallest part of the pages that is sampled: one in `2^MAX_SHIFT`.
pub const MAX_SHIFT: u32 = 5;
/// Pages that a miniature has at least, where the memory that it stands for is that large: with fewer, chance decides.
pub const MIN_PAGES: u64 = 4096;

/// What a policy would have missed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate<'a> {
    /// The policy with its parameters, as it was asked for.
    pub policy: &'a str,
    /// The memory asked about, in pages.
    pub memory_pages: u64,
    /// Accesses since the beginning, those to pages outside the sample included.
    pub accesses: u64,
    /// Estimated misses among them, first touches included; at most `accesses`.
    pub misses: u64,
}

impl Estimate<'_> {
    /// Misses per access, 0 to 1; 0 before the first access.
    pub fn miss_ratio(&self) -> f64 {
        if self.accesses == 0 { 0.0 } else { self.misses as f64 / self.accesses as f64 }
    }
}

/// The largest shift that leaves a memory of `memory_pages` pages a miniature of [`MIN_PAGES`].
pub fn shift_for(memory_pages: u64) -> u32 {
    (0..=MAX_SHIFT).rev().find(|shift| memory_pages >> shift >= MIN_PAGES).unwrap_or(0)
}

/// See the module.
pub struct Miniatures {
    runs: Vec<Run>,
    /// Numbers of the pages in the sample.
    numbers: HashMap<PageId, PageId, BuildHasherDefault<Scattered>>,
    shift: u32,
    /// The bits of a page's number that say which of its group it is.
    outside: u64,
    accesses: u64,
    reads: DescriptorReads,
}

struct Run {
    policy: Box<dyn DynPolicy<Residents> + Send>,
    name: String,
    memory_pages: u64,
    limit: usize,
    memory: Residents,
    misses: u64,
}

impl Miniatures {
    /// Miniatures of each policy (`name{key=value,…}`) at each memory size in pages, policies first, over one page in
    /// `2^shift` with `shift` below 64; [`shift_for`] has a good one.
    ///
    /// # Errors
    /// The registry's, for policies that it does not know or that a page cache cannot run.
    pub fn new(policies: &[&str], memory_pages: &[u64], shift: u32) -> Result<Miniatures, PolicyError> {
        let mut runs = Vec::with_capacity(policies.len() * memory_pages.len());
        for name in policies {
            for &pages in memory_pages {
                let mut policy = build(name, FrontEnd::PageCache)?;
                let limit = (pages >> shift).max(1) as usize;
                policy.set_capacity(limit);
                let (name, memory) = ((*name).to_owned(), Residents::default());
                runs.push(Run { policy, name, memory_pages: pages, limit, memory, misses: 0 });
            }
        }
        let reads = DescriptorReads::default();
        let outside = (1 << shift) - 1;
        Ok(Miniatures { runs, numbers: HashMap::default(), shift, outside, accesses: 0, reads })
    }

    /// The same for accesses to anonymous memory through mappings. Policies learn of these by accessed bits, but for
    /// those that want to be told of each.
    ///
    /// # Errors
    /// As of [`Miniatures::new`].
    pub fn of_mappings(policies: &[&str], memory_pages: &[u64], shift: u32) -> Result<Miniatures, PolicyError> {
        let mut miniatures = Miniatures::new(policies, memory_pages, shift)?;
        miniatures.runs.iter_mut().for_each(|run| run.memory.mapped = true);
        Ok(miniatures)
    }

    /// A page was read or written, in memory or not.
    #[inline]
    pub fn accessed(&mut self, page: PageId, write: bool) {
        self.accesses += 1;
        // Which read repeats the one before is a matter of all accesses, not of those in the sample.
        let reads = self.reads;
        self.reads.counts(page, write);
        if self.is_sampled(page) {
            self.sampled(page, write, reads);
        }
    }

    /// Whether the page is the one that was drawn of its group of `2^shift` neighbours.
    #[inline]
    fn is_sampled(&self, page: PageId) -> bool {
        (u64::from(page) ^ scatter(page.checked_shr(self.shift).unwrap_or(0))) & self.outside == 0
    }

    fn sampled(&mut self, page: PageId, write: bool, reads: DescriptorReads) {
        let next = self.numbers.len() as PageId;
        let number = match self.numbers.entry(page) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => *new.insert(next),
        };
        for run in &mut self.runs {
            let mapped = run.memory.mapped;
            // Each run has its own idea of what was a hit, and all the same one of what was read before.
            let mut reads = reads;
            let hit = run.memory.is_resident(number);
            if !hit {
                let admission = match (mapped, write) {
                    (true, _) => Admission::fault(PageType::Anon),
                    (false, true) => Admission::overwrite(PageType::File),
                    (false, false) => Admission::read(PageType::File),
                };
                run.miss(number, admission);
            }
            let report = match run.policy.hits() {
                // No kernel hears of accesses through mappings; that which brings a page in leaves its bit set.
                HitReport::Kernel if mapped => AccessReport::SetBit,
                hits => reads.report(hits, page, write, hit),
            };
            match report {
                AccessReport::Nothing => {}
                AccessReport::SetBit => run.memory.state[number as usize] |= ACCESSED,
                AccessReport::Tell if run.memory.is_resident(number) => run.policy.accessed(number, &mut run.memory),
                AccessReport::Tell => {}
            }
        }
    }

    /// A page is gone for good, and its number may be another page's from now on.
    pub fn forgotten(&mut self, page: PageId) {
        let Some(number) = self.numbers.get(&page).copied() else { return };
        for run in &mut self.runs {
            if run.memory.is_resident(number) {
                run.policy.freed(number);
                run.memory.gone(number, Shadow::NONE);
            } else if (number as usize) < run.memory.state.len() {
                run.policy.forgotten(number);
            }
            if let Some(shadow) = run.memory.shadows.get_mut(number as usize) {
                *shadow = Shadow::NONE;
            }
        }
    }

    /// Asks about another memory size from now on, the same one for all policies. What does not fit any more goes with
    /// the next miss.
    pub fn set_memory(&mut self, memory_pages: u64) {
        for run in &mut self.runs {
            (run.memory_pages, run.limit) = (memory_pages, (memory_pages >> self.shift).max(1) as usize);
            run.policy.set_capacity(run.limit);
        }
    }

    /// One page in `2^shift` is in the sample.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// What each policy would have missed at each size, policies first.
    pub fn estimates(&self) -> impl Iterator<Item = Estimate<'_>> {
        self.runs.iter().map(|run| Estimate {
            policy: &run.name,
            memory_pages: run.memory_pages,
            accesses: self.accesses,
            misses: (run.misses << self.shift).min(self.accesses),
        })
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let runs = self.runs.iter().map(|run| run.policy.metadata_bytes() + run.memory.bytes());
        runs.sum::<usize>() + self.numbers.capacity() * size_of::<(PageId, PageId)>()
    }
}

impl Run {
    fn miss(&mut self, number: PageId, admission: Admission) {
        self.misses += 1;
        if number as usize >= self.memory.state.len() {
            let pages = (number as usize + 1).next_power_of_two();
            self.memory.state.resize(pages, 0);
            self.memory.shadows.resize(pages, Shadow::NONE);
            self.policy.grow(pages);
        }
        if self.memory.resident >= self.limit {
            let limit = self.limit;
            let request = ReclaimRequest { target: 0, goal: self.policy.reclaim_batch(), incoming: Some(number) };
            let has_room = |memory: &Residents| memory.resident < limit;
            make_room(&mut *self.policy, &request, &mut self.memory, MAX_FRUITLESS_CALLS, has_room);
        }
        let shadow = std::mem::replace(&mut self.memory.shadows[number as usize], Shadow::NONE);
        let admission = admission.with_shadow((shadow != Shadow::NONE).then_some(shadow));
        self.memory.state[number as usize] = RESIDENT;
        self.memory.resident += 1;
        self.policy.admit(number, &admission, &mut self.memory);
    }
}

const RESIDENT: u8 = 1;
const ACCESSED: u8 = 2;

/// Which pages a miniature holds. Nothing else is known of them.
#[derive(Default)]
struct Residents {
    state: Vec<u8>,
    shadows: Vec<Shadow>,
    resident: usize,
    /// They are anonymous and reached through mappings.
    mapped: bool,
}

impl Residents {
    fn gone(&mut self, page: PageId, shadow: Shadow) {
        self.state[page as usize] = 0;
        self.shadows[page as usize] = shadow;
        self.resident -= 1;
    }

    fn bytes(&self) -> usize {
        self.state.capacity() + self.shadows.capacity() * size_of::<Shadow>()
    }
}

impl Memory for Residents {
    fn take_references(&mut self, page: PageId) -> References {
        let state = &mut self.state[page as usize];
        let accessed = *state & ACCESSED != 0;
        *state &= !ACCESSED;
        References { mappings: u32::from(accessed), ..References::default() }
    }

    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        self.gone(page, shadow);
        Eviction::Freed { pages_written: 0 }
    }

    #[inline]
    fn is_resident(&self, page: PageId) -> bool {
        self.state.get(page as usize).is_some_and(|state| state & RESIDENT != 0)
    }

    fn is_mapped(&self, page: PageId) -> bool {
        self.mapped && self.is_resident(page)
    }

    #[inline]
    fn swap(&mut self) -> Option<&mut impl SwapSpace> {
        self.mapped.then_some(self)
    }
}

impl SwapSpace for Residents {
    fn free_swap(&self, _lruvec: LruvecId) -> u64 {
        u64::MAX / 4
    }

    fn needs_write(&self, _page: PageId) -> bool {
        true
    }
}

/// Spreads page numbers over 64 bits (the finaliser of Steele, Lea and Flood's SplittableRandom, OOPSLA 2014).
#[inline]
fn scatter(page: PageId) -> u64 {
    let mut bits = u64::from(page).wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ bits >> 31
}

/// A hasher for page numbers.
#[derive(Default)]
struct Scattered(u64);

impl Hasher for Scattered {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = scatter(*byte as PageId) ^ self.0.rotate_left(8));
    }

    fn write_u32(&mut self, page: u32) {
        self.0 = scatter(page).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_outside_the_sample_is_counted_and_nothing_else() {
        let mut miniatures = Miniatures::new(&["lru"], &[64], 5).unwrap();
        let outside = (0..).find(|page| !miniatures.is_sampled(*page)).unwrap();
        (0..100).for_each(|_| miniatures.accessed(outside, false));
        let estimate = miniatures.estimates().next().unwrap();
        assert_eq!((estimate.accesses, estimate.misses, miniatures.numbers.len()), (100, 0, 0));
    }

    #[test]
    fn a_thirty_second_of_the_pages_is_sampled() {
        let mut miniatures = Miniatures::new(&["fifo"], &[1 << 20], MAX_SHIFT).unwrap();
        (0..1 << 17).for_each(|page| miniatures.accessed(page, false));
        // One of each group, and not always the same.
        assert_eq!(miniatures.numbers.len(), 1 << 12);
        let places: std::collections::HashSet<u32> = miniatures.numbers.keys().map(|page| page % 32).collect();
        assert_eq!(places.len(), 32);
        assert_eq!(miniatures.estimates().next().unwrap().misses, 1 << 17, "first touches are misses");
    }

    #[test]
    fn a_forgotten_page_is_missed_again() {
        for policy in ["lru", "classic", "adaptive", "clock"] {
            let mut miniatures = Miniatures::new(&[policy], &[100], 0).unwrap();
            for _ in 0..3 {
                (0..50).for_each(|page| miniatures.accessed(page, false));
            }
            miniatures.forgotten(7);
            miniatures.forgotten(1000);
            (0..50).for_each(|page| miniatures.accessed(page, false));
            assert_eq!(miniatures.estimates().next().unwrap().misses, 51, "{policy}");
        }
    }

    #[test]
    fn another_memory_size_counts_from_the_next_miss_on() {
        for policy in ["lru", "classic", "mglru", "s3fifo", "clock"] {
            let mut miniatures = Miniatures::new(&[policy], &[1000], 0).unwrap();
            let round = |miniatures: &mut Miniatures| {
                let before = miniatures.estimates().next().unwrap().misses;
                (0..800).for_each(|page| miniatures.accessed(page, false));
                miniatures.estimates().next().unwrap().misses - before
            };
            assert_eq!((round(&mut miniatures), round(&mut miniatures)), (800, 0), "{policy}");
            miniatures.set_memory(400);
            // A page outside makes it fit; then the loop is larger than memory.
            miniatures.accessed(800, false);
            assert!(miniatures.runs[0].memory.resident <= 400, "{policy}");
            assert!(round(&mut miniatures) >= 400, "{policy}");
            miniatures.set_memory(1000);
            round(&mut miniatures);
            assert_eq!(round(&mut miniatures), 0, "{policy}");
        }
    }

    #[test]
    fn the_sample_is_no_smaller_than_chance_allows() {
        assert_eq!([0, 4095, 8192, 131_071, 131_072, 1 << 30].map(shift_for), [0, 0, 1, 4, 5, 5]);
    }
}
