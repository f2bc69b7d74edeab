//! Physical frames: a buddy allocator with free pools, and evicted pages that stay cached in free frames.
//!
//! [`FrameAllocator`] hands out frames (4 KiB each, named by a dense [`Frame`] number) in blocks of 2^order. Each
//! frame carries the label of a [`FreePool`]; free blocks are kept in one queue per pool and order. A request takes
//! from its own pool while that has a block that is large enough. Otherwise it takes the largest block of another pool
//! (spec: freebsd §4; the buddy system itself is K. C. Knowlton, "A fast storage allocator", CACM 8(10), 1965).
//!
//! [`CachedFrames`] remembers what free frames hold. The frame of an evicted clean page is returned to the allocator
//! with the page's name. A page that returns before its frame is reused needs no I/O (spec: freebsd §3.3, §3.4).
//!
//! [`Fragmentation`] says how usable the free frames are for large requests (spec: freebsd §8).
//!
//! ```
//! use refault_core::frames::{CachedFrames, FreePools};
//!
//! let mut frames = CachedFrames::new(16, FreePools::THREE);
//! frames.grow(100);
//! let frame = frames.allocate(7).expect("16 frames are free");
//! frames.cache(7); // evicted, but still cached
//! assert_eq!(frames.reactivate(7), Some(frame)); // back without I/O
//! ```

mod buddy;
mod cached;
mod fragmentation;
mod keep_evicted;
mod queue;
mod states;

pub use buddy::{Frame, FrameAllocator, FreePool, FreePools, MAX_ORDER, NO_FRAME, OrderStatistics, Placement};
pub use cached::{CachedCounters, CachedFrames};
pub use fragmentation::Fragmentation;
pub use keep_evicted::KeepEvicted;
