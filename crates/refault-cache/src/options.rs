//! How a cache is made, and what it says about itself.

use std::path::PathBuf;
use std::time::Duration;

use refault_core::Counters;

use crate::error::MakeError;
use crate::writeback::limits::Limits;

/// The policy where none is named: the project's own, which finds out what suits. It may lose a quarter of memory's
/// pages to LRU once. For that it keeps a part of what is read again and again from the second pass on.
pub const DEFAULT_POLICY: &str = "adaptive{head_start=25%}";

/// How a cache is made.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Bytes of memory at most, at least 256 KiB. They hold contents of files, as they are and compressed. They also
    /// hold what the cache keeps of pages ([`CacheReport::metadata_bytes`]) beyond its first MiB. Frames give way to
    /// that, up to a quarter of them. What comes on top is 2 MiB at most (that first MiB, threads, rings), 256 KiB for
    /// each write under way, and what the simulations of [`CacheOptions::what_if`] take beyond that quarter.
    pub memory: u64,
    /// The policy, `name{key=value,…}`: any that does not need to know the future
    /// ([`refault_core::policy::FrontEnd::PageCache`]). [`DEFAULT_POLICY`] by default.
    pub policy: String,
    /// Evicted pages stay cached in their free frame until it is reused. The share, up to 0.5, is what the policy
    /// leaves free for that; with 0 there are the frames that are free anyway, because a policy evicts several pages at
    /// once. `None`: evicted pages are gone, unless the policy keeps them itself (`freebsd`).
    pub keep_evicted: Option<f64>,
    /// What calls evict stays in memory, compressed (LZ4); the share of [`CacheOptions::memory`], up to 0.75 and 16 KiB
    /// at least, that is for that and not for pages as they are. `None` or 0: evicted pages are gone. Pages that were
    /// pushed out by readahead in the background are not compressed.
    pub compressed: Option<f64>,
    /// Pages at most that a window of readahead has, whose size doubles as a stream goes on; an eighth of memory in any
    /// case. 0: nothing is read ahead. `None`: as many as the kernel reads ahead on the file's device
    /// ([`crate::Backing::read_ahead`]), 512 at least. A window then has no more than a 32nd of memory, or 8 pages if
    /// that is more.
    pub read_ahead: Option<u32>,
    /// Writes stay in memory until they are written in the background, or [`crate::CachedFile::sync`] asks for it.
    /// `None`, the default: each write waits for the device, because what is only in this cache is lost with the
    /// process. The kernel's page cache outlives a program that crashes.
    pub write_back: Option<WriteBack>,
    /// Policies and sizes of which [`crate::PageCache::report`] says what they would have missed; none by default. The
    /// environment variable `REFAULT_CACHE_WHAT_IF` names policies, with spaces between them, where this names none.
    pub what_if: WhatIf,
    /// How reads are done that no call waits for: readahead, prefetches, futures.
    pub io: IoEngine,
    /// A file that gets a line each second, for `refault top FILE`; the environment variable `REFAULT_CACHE_STATS`
    /// names one where this does not. What [`CacheOptions::what_if`] asks is answered in each line.
    pub statistics: Option<PathBuf>,
}

/// How reads are done that no call waits for. A read that a call waits for is `preadv` of its own thread,
/// which costs the same as io_uring for a single one. [`CacheReport::io`] says what is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoEngine {
    /// io_uring where the kernel gives it, threads otherwise. Where a program ends with reads under way, the kernel
    /// keeps their files open for a moment longer than the program.
    Auto,
    /// io_uring, or no cache.
    Uring,
    /// Threads that wait in `preadv`. Nothing of them outlives the program.
    #[default]
    Threads,
}

/// Questions that a cache answers while it runs, by simulating a sample of its pages
/// ([`refault_core::miniature`]). A miniature of each policy is kept for each size. It forgets pages whose records give
/// way to others, of which there are some 7 to 19 times as many as frames: larger sizes seem to miss more than they
/// would. Each page in the sample costs 20 to 60 bytes per miniature. A small cache, whose sample has all pages, may need as
/// much for them as it has: [`CacheReport::metadata_bytes`] counts them.
#[derive(Clone, Debug, Default)]
pub struct WhatIf {
    /// Policies, `name{key=value,…}`. None: there are no questions.
    pub policies: Vec<String>,
    /// Bytes of memory. None: half, once, twice and four times the cache's own.
    pub memory: Vec<u64>,
}

/// What a policy would have missed with some memory. Readahead is not simulated: a page that came along in a sequence
/// is a miss here.
#[derive(Clone, Debug, PartialEq)]
pub struct WouldMiss {
    /// The policy.
    pub policy: String,
    /// Bytes of contents that it would have had.
    pub memory_bytes: u64,
    /// Pages asked for since the start.
    pub accesses: u64,
    /// Estimated misses among them.
    pub misses: u64,
}

impl Default for CacheOptions {
    fn default() -> CacheOptions {
        CacheOptions {
            memory: 64 << 20,
            policy: DEFAULT_POLICY.to_owned(),
            keep_evicted: None,
            compressed: None,
            read_ahead: None,
            write_back: None,
            what_if: WhatIf::default(),
            io: IoEngine::default(),
            statistics: None,
        }
    }
}

/// How much may wait to be written, and how long. What was written to a device that has not been told to make it
/// durable counts too. The defaults are the kernel's (`vm.dirty_background_ratio`, `vm.dirty_ratio`,
/// `vm.dirty_expire_centisecs`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriteBack {
    /// The share of memory from which on pages are written in the background; 0.1 by default.
    pub background_ratio: f64,
    /// The share of memory that writers never exceed: they write back themselves before; 0.2 by default, at most 0.5.
    pub ratio: f64,
    /// Pages are written after this time in any case; 30 s by default.
    pub expire: Duration,
}

impl Default for WriteBack {
    fn default() -> WriteBack {
        WriteBack { background_ratio: 0.1, ratio: 0.2, expire: Duration::from_secs(30) }
    }
}

impl WriteBack {
    pub(crate) fn limits(self, frames: u32) -> Result<Limits, MakeError> {
        let (low, high) = (self.background_ratio, self.ratio);
        if !(0.0..=0.5).contains(&high) || !(0.0..=high).contains(&low) {
            return Err(MakeError::BadRatios(low, high));
        }
        let pages = |share: f64| ((f64::from(frames) * share) as u32).max(MIN_DIRTY);
        Ok(Limits { background: pages(low), most: pages(high), expire: self.expire })
    }
}

/// Pages that may be dirty whatever the ratios say.
const MIN_DIRTY: u32 = 4;

/// A cache's state at one moment. Counts are pages since the start.
#[derive(Clone, Debug)]
pub struct CacheReport {
    /// Bytes of contents that may be in memory now, as they are and compressed: what records take is taken off.
    pub memory_bytes: u64,
    /// Bytes in frames that are in use.
    pub resident_bytes: u64,
    /// Bytes of evicted pages that are cached in free frames.
    pub cached_bytes: u64,
    /// Bytes of memory that compressed pages take.
    pub compressed_bytes: u64,
    /// Pages that are compressed.
    pub compressed_pages: u64,
    /// Pages that were asked for and unpacked; among the hits.
    pub unpacked: u64,
    /// Bytes of what pins still show although it was overwritten or dropped; among the resident ones.
    pub orphan_bytes: u64,
    /// Bytes of records: those of the policy, of pages and frames, of writes that wait, and of
    /// [`CacheOptions::what_if`]. They count in [`CacheOptions::memory`] beyond the first MiB.
    pub metadata_bytes: u64,
    /// Pages that were asked for and were in memory, reactivated ones included.
    pub hits: u64,
    /// Pages that were asked for and had to be read.
    pub misses: u64,
    /// Times a reader or writer waited for a page that was on its way.
    pub waits: u64,
    /// Pages that came along in sequences.
    pub read_ahead: u64,
    /// Pages written by [`crate::CachedFile::write_at`].
    pub written: u64,
    /// Pages that were written to their files later than that.
    pub written_back: u64,
    /// Bytes that wait to be written, or to become durable.
    pub dirty_bytes: u64,
    /// The policy's counters under their `/proc/vmstat` names, with what the cache counts: `file_reads`, `limit_hits`,
    /// `limit_overruns`, `pages_cached`, `pages_reactivated`.
    pub counters: Counters,
    /// How reads are done that no call waits for: `io_uring` or `preadv`, with the reason in parentheses where
    /// the other was wanted.
    pub io: String,
    /// Bytes of frames that are registered with io_uring; they are resident from then on.
    pub registered_bytes: u64,
    /// Answers to [`CacheOptions::what_if`], policies first.
    pub would_miss: Vec<WouldMiss>,
}
