//! The textbook policies: one page is one unit, memory starts empty, nothing is known of kinds or mappings.
//!
//! The default of each is the variant that libCacheSim 0.3.5 runs for objects of size 1, so that miss counts compare;
//! where the paper's algorithm is another one, it is a named parameter. They ignore lruvecs and page types.
//!
//! A page that [`Memory::evict`] does not let go moves to the head of its list; in one call of
//! [`crate::Policy::reclaim`] pages are offered a bounded number of times, so a memory that refuses everything ends it.
//!
//! ```
//! use refault_core::Policy;
//! use refault_core::textbook::Lru;
//!
//! let mut policy = Lru::default();
//! policy.grow(100);
//! policy.set_capacity(10);
//! assert_eq!(policy.counters().pgsteal, 0);
//! ```

mod arc;
mod clock;
mod clock_pro;
mod fifo;
mod learning;
mod lfu;
mod lirs;
mod lrfu;
mod lru;
mod lru_k;
mod mq;
mod opt;
mod ranked;
mod s3fifo;
mod sampled;
mod sieve;
mod slot;
mod slru;
mod two_queue;
mod wtinylfu;

pub use arc::Arc;
pub use clock::Clock;
pub use clock_pro::ClockPro;
pub use fifo::Fifo;
pub use learning::{Cacheus, CacheusParams, LeCar, LeCarParams};
pub use lfu::{Gdsf, Lfu, LfuParams};
pub use lirs::{Lirs, LirsParams, LirsVariant};
pub use lrfu::{Lrfu, LrfuParams};
pub use lru::Lru;
pub use lru_k::{LruK, LruKParams};
pub use mq::{Mq, MqParams};
pub use opt::{NextUse, Opt, SequenceTooLong};
pub use s3fifo::{S3Fifo, S3FifoParams, S3FifoVariant};
pub use sampled::{Hyperbolic, HyperbolicParams, Lhd, LhdParams};
pub use sieve::Sieve;
pub use slru::{Slru, SlruParams};
pub use two_queue::{TwoQueue, TwoQueueParams};
pub use wtinylfu::{WTinyLfu, WTinyLfuParams, WTinyLfuVariant};

use crate::counters::Counters;
use crate::lists::linked::{Linked, List};
use crate::memory::{Eviction, Memory};
use crate::page::{PageId, Shadow};

/// Offers a page to [`Memory::evict`] and counts the scan; true if the page is gone. Most textbook policies leave no
/// shadow.
#[inline]
fn evict<M: Memory>(page: PageId, memory: &mut M, counters: &mut Counters) -> bool {
    evict_leaving(page, Shadow::NONE, memory, counters)
}

/// The same, leaving a shadow.
#[inline]
fn evict_leaving<M: Memory>(page: PageId, shadow: Shadow, memory: &mut M, counters: &mut Counters) -> bool {
    counters.pgscan += 1;
    // Counted in the arm, not by `u64::from` of a flag that is branched on later: rustc 1.95 optimises the flag's
    // assignment away and adds what was never written (0 mostly, so that nothing seems stolen).
    match memory.evict(page, shadow) {
        Eviction::Freed { .. } => {
            counters.pgsteal += 1;
            true
        }
        Eviction::WriteStarted | Eviction::Kept | Eviction::Refused => false,
    }
}

/// Evicts the page nearest to the tail that memory lets go and takes it off the list. Pages that it keeps move to the
/// head; each is offered once.
#[inline]
fn evict_oldest<R: Linked, M: Memory>(
    list: &mut List,
    records: &mut [R],
    memory: &mut M,
    counters: &mut Counters,
) -> Option<PageId> {
    for _ in 0..list.len() {
        let page = list.pop_tail(records)?;
        if evict(page, memory, counters) {
            return Some(page);
        }
        list.push_head(records, page);
    }
    None
}
