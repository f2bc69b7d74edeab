//! Linux-grade page reclaim: which pages of memory stay, and which go.
//!
//! One policy core serves four kinds of use. Pick the one you have:
//!
//! | you have | you use |
//! |---|---|
//! | memory of your own (a buffer pool, an emulator) | [`policy`]: a policy by name, driven over your [`Memory`] |
//! | data larger than memory | `region`: plain memory that stays within a budget |
//! | files larger than memory | `cache`: a page cache over direct I/O |
//! | a trace and a question | `lab`: comparisons, miss-ratio curves, published experiments |
//!
//! # A policy over your own memory
//!
//! A policy is asked for victims and told what comes in; your [`Memory`] answers whether a page was accessed and
//! evicts. Two methods are required beside [`Memory::is_resident`]: one that reads an accessed bit and one that evicts.
//!
//! ```
//! use refault::memory::{Eviction, Memory, References};
//! use refault::policy::registry::build;
//! use refault::policy::room::{MAX_FRUITLESS_CALLS, make_room};
//! use refault::policy::{Admission, FrontEnd, ReclaimRequest};
//! use refault::{PageId, PageType, Shadow};
//!
//! const PAGES: usize = 1000;
//! const BUDGET: usize = 200;
//!
//! /// What each page holds is somewhere else; this is what reclaim must know of it.
//! #[derive(Default)]
//! struct Pool {
//!     accessed: Vec<bool>,
//!     resident: Vec<bool>,
//!     shadows: Vec<Option<Shadow>>,
//! }
//!
//! impl Pool {
//!     fn residents(&self) -> usize {
//!         self.resident.iter().filter(|resident| **resident).count()
//!     }
//! }
//!
//! impl Memory for Pool {
//!     fn take_references(&mut self, page: PageId) -> References {
//!         let accessed = std::mem::take(&mut self.accessed[page as usize]);
//!         References { mappings: u32::from(accessed), ..References::default() }
//!     }
//!
//!     fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
//!         self.resident[page as usize] = false;
//!         self.shadows[page as usize] = Some(shadow);
//!         Eviction::Freed { pages_written: 0 }
//!     }
//!
//!     fn is_resident(&self, page: PageId) -> bool {
//!         self.resident[page as usize]
//!     }
//! }
//!
//! let mut pool =
//!     Pool { accessed: vec![false; PAGES], resident: vec![false; PAGES], shadows: vec![None; PAGES] };
//! let mut policy = build::<Pool>("mglru{tiers=1}", FrontEnd::Pager)?; // any policy that needs only accessed bits
//! policy.grow(PAGES);
//! policy.set_capacity(BUDGET);
//!
//! let mut faults = 0;
//! for step in 0..10_000_u32 {
//!     let page = if step % 3 == 0 { 100 + step / 3 % 900 } else { step % 100 }; // 100 hot pages, a scan besides
//!     if !pool.is_resident(page) {
//!         faults += 1;
//!         if pool.residents() >= BUDGET {
//!             let request = ReclaimRequest { target: 0, goal: policy.reclaim_batch(), incoming: Some(page) };
//!             let room = make_room(&mut *policy, &request, &mut pool, MAX_FRUITLESS_CALLS, |pool: &Pool| {
//!                 pool.residents() < BUDGET
//!             });
//!             assert!(room.made);
//!         }
//!         let shadow = pool.shadows[page as usize].take(); // a refault, if there is one
//!         policy.admit(page, &Admission::fault(PageType::File).with_shadow(shadow), &mut pool);
//!         pool.resident[page as usize] = true;
//!     }
//!     pool.accessed[page as usize] = true;
//! }
//! assert!(policy.counters().workingset_refault_file <= faults);
//! # Ok::<(), refault::policy::PolicyError>(())
//! ```
//!
//! Pages of [`PageType::Anon`] are evicted only while [`Memory::swap`] has room for them.
//!
//! # Memory under a budget
//!
#![cfg_attr(feature = "region", doc = "```no_run")]
#![cfg_attr(not(feature = "region"), doc = "```ignore")]
//! // 1 GiB of plain memory of which 256 MiB stay resident; the rest is compressed. Needs userfaultfd.
//! let mut region = refault::region::Region::anonymous(1 << 30, 256 << 20)?;
//! region[12_345_678] = 7;
//! assert_eq!(region[12_345_678], 7);
//! # Ok::<(), refault::region::PagerError>(())
//! ```
//!
//! # A page cache
//!
#![cfg_attr(feature = "cache", doc = "```no_run")]
#![cfg_attr(not(feature = "cache"), doc = "```ignore")]
//! use refault::cache::{CacheOptions, PageCache};
//!
//! let options = CacheOptions { memory: 64 << 20, policy: "s3fifo".into(), ..CacheOptions::default() };
//! let cache = PageCache::new(&options)?;
//! let file = cache.open("table.db".as_ref())?;
//! let mut page = [0; 4096];
//! let bytes = file.read_at(&mut page, 8192)?;
//! println!("{bytes} bytes; {} hits, {} misses", cache.report().hits, cache.report().misses);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Cargo features
//!
//! `region`, `cache` and `lab` are on by default. Without them the crate is the policy core alone: one small dependency (libm), no
//! `unsafe`, no I/O, no clock, no threads.

#[cfg(feature = "cache")]
pub use refault_cache as cache;
pub use refault_core::{
    Counters, DynPolicy, LruvecId, Memory, PageId, PageType, Policy, Shadow, counters, estimate, frames, memory,
    monitor, policy, schemes, statistics,
};
#[cfg(feature = "lab")]
pub use refault_lab as lab;
#[cfg(feature = "region")]
pub use refault_pager as region;
#[cfg(feature = "lab")]
pub use refault_sim as sim;
#[cfg(feature = "lab")]
pub use refault_trace as trace;

/// The README's example compiles and runs.
#[cfg(all(doctest, feature = "lab"))]
#[doc = include_str!("../README.md")]
struct Readme;
