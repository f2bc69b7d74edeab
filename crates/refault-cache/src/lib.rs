//! A page cache for files that are opened for direct I/O.
//!
//! The kernel's page cache decides for all programs; a [`PageCache`] decides for one, with a limit in bytes and any
//! policy of [`refault_core`] that does not need to know the future. Files are read and written with `preadv` and
//! `pwritev` on descriptors with `O_DIRECT`, so that nothing is cached twice.
//!
//! ```text
//! read_at ──▶ found without a lock? ──▶ pin, copy, unpin; the hit is noted for the policy
//!    │                                                                 │ in batches
//!    └─ no ─▶ engine (one lock): room, frames, "busy" ──▶ preadv, without the lock ──▶ admitted, waiters woken
//!                └─ a stream? its next window is read in the background
//! write_at ─▶ busy ──▶ pwritev ──▶ frames updated ──▶ waiters woken        (write-through)
//!                 └─ with write-back: frames updated, dirty ──▶ pwritev later ──▶ unstable ──▶ synced, clean
//! pin ──────▶ as read_at, without the copy
//! ```
//!
//! What it promises:
//!
//! - **The limit holds**: frames are cut from one mapping of the limit's size, and there are no others; what is known
//!   of pages counts too, and is bounded, however large the files are ([`CacheOptions::memory`]). A write in progress
//!   has private copies of at most 64 pages besides.
//! - **A hit takes no lock** that a miss holds, and no lock is held across I/O: a page being read is marked busy, and
//!   other readers wait for that page alone.
//! - **What is pinned stays as it is**: [`CachedFile::pin`] lends the cache's own memory; writes and changes of the
//!   length meanwhile give later readers the new contents, and the pin the old.
//! - **Writes go through**, unless [`CacheOptions::write_back`] is chosen: [`CachedFile::write_at`] returns when the
//!   device has the data, so there are no dirty pages, and an eviction costs nothing. [`CachedFile::sync`] makes them
//!   durable, or says as long as that is true that they are not. With write-back a page stays until a sync has
//!   succeeded, so that one that fails loses nothing.
//! - **A failure is told to whom it concerns**: a read that fails leaves nothing behind; a write that fails takes its
//!   pages out of the cache. So later reads see what the device has, old or new, page by page. Other pages, and writes
//!   that returned, lose nothing.
//! - Each page is read and written whole: a reader never sees half of a write within a page. Across pages there is no
//!   such promise, as with a plain file under `O_DIRECT`.
//!
//! With [`CacheOptions::compressed`] a share of the memory holds evicted pages compressed, as a second tier.
//!
//! With [`CacheOptions::keep_evicted`], or a policy that does so itself (`freebsd`), evicted pages stay *cached* in
//! their free frame until it is reused ([`refault_core::frames::CachedFrames`]): one that is asked for before comes
//! back without I/O.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use refault_cache::{CacheOptions, PageCache};
//!
//! let options = CacheOptions { memory: 64 << 20, policy: "s3fifo".into(), ..CacheOptions::default() };
//! let cache = PageCache::new(&options)?;
//! let file = cache.open(Path::new("data.bin"))?;
//! let mut block = vec![0; 8192];
//! file.read_at(&mut block, 1 << 20)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod engine;
mod error;
mod file;
mod io;
mod options;
mod report;
mod writeback;

pub(crate) mod sync {
    //! What pins are made of; the model in `tests` puts other atomics here.
    pub(crate) use std::sync::atomic::{AtomicU32, Ordering};
}

pub use error::{MakeError, OpenError, ReadError, WriteError};
pub use file::kept::KeptPages;
pub use file::open::OpenOptions;
pub use file::read::Pinned;
pub use file::read_async::Reading;
pub use file::{Advice, CachedFile, PageCache};
pub use io::backing::{Backing, Piece, ReadPiece};
pub use io::direct::DirectFile;
pub use options::{CacheOptions, CacheReport, DEFAULT_POLICY, IoEngine, WhatIf, WouldMiss, WriteBack};
pub use refault_core::policy::PolicyError;
