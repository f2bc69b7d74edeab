//! The cache and its files, as users meet them.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock};

use refault_core::frames::Frame;
use refault_core::miniature::{Estimate, Miniatures, shift_for};
use refault_core::{Counters, PageId};
use refault_store::PAGE_SIZE;

use crate::backing::{Backing, DirectFile};
use crate::buffers::Buffers;
use crate::engine::{Engine, FileId};
use crate::error::{MakeError, OpenError, ReadError};
use crate::streams::Streams;

const PAGE: u64 = PAGE_SIZE as u64;

/// Frames a cache has at least.
const MIN_FRAMES: u64 = 64;

/// What [`refault_core::frames::CachedFrames`] can name.
const MAX_FRAMES: u64 = (1 << 31) - 1;

const UNBROKEN: &str = "invariant: a panic under this lock ends the program";

/// How a cache is made.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Bytes of file contents in memory at most, at least 256 KiB. Bookkeeping comes on top: see
    /// [`CacheReport::metadata_bytes`].
    pub memory: u64,
    /// The policy, `name{key=value,…}`: any that does not need to know the future
    /// ([`refault_core::policy::FrontEnd::PageCache`]).
    pub policy: String,
    /// Evicted pages stay cached in their free frame until it is reused. The share, up to 0.5, is what the policy
    /// leaves free for that; with 0 there are the frames that are free anyway, because a policy evicts several pages at
    /// once. `None`: evicted pages are gone, unless the policy keeps them itself (`freebsd`).
    pub keep_evicted: Option<f64>,
    /// Pages at most that are read along with a miss in a sequence of misses; an eighth of memory in any case. 0: none.
    pub read_ahead: u32,
    /// Policies and sizes of which [`PageCache::report`] says what they would have missed; none by default.
    pub what_if: WhatIf,
}

/// Questions that a cache answers while it runs, by simulating a sample of its pages
/// ([`refault_core::miniature`]). A miniature of each policy is kept for each size.
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
            policy: "mglru".to_owned(),
            keep_evicted: None,
            read_ahead: 32,
            what_if: WhatIf::default(),
        }
    }
}

/// A cache's state at one moment. Counts are pages since the start.
#[derive(Clone, Debug)]
pub struct CacheReport {
    /// Bytes of contents that may be in memory.
    pub memory_bytes: u64,
    /// Bytes in frames that are in use.
    pub resident_bytes: u64,
    /// Bytes of evicted pages that are cached in free frames.
    pub cached_bytes: u64,
    /// Bytes of bookkeeping: policy, page and frame tables.
    pub metadata_bytes: u64,
    /// Pages that were asked for and were in memory, reactivated ones included.
    pub hits: u64,
    /// Pages that were asked for and had to be read.
    pub misses: u64,
    /// Times a reader or writer waited for a page that was on its way.
    pub waits: u64,
    /// Pages that came along in sequences.
    pub read_ahead: u64,
    /// Pages written.
    pub written: u64,
    /// The policy's counters under their `/proc/vmstat` names, with what the cache counts: `file_reads`, `limit_hits`,
    /// `limit_overruns`, `pages_cached`, `pages_reactivated`.
    pub counters: Counters,
    /// Answers to [`CacheOptions::what_if`], policies first.
    pub would_miss: Vec<WouldMiss>,
}

pub(crate) struct Shared {
    engine: Mutex<Engine>,
    /// A busy page is waited for at its number modulo their count.
    changed: [Condvar; 64],
    /// A fill has ended, so that its frame can be evicted.
    room: Condvar,
    pub(crate) buffers: Buffers,
    pub(crate) read_ahead: u32,
}

impl Shared {
    pub(crate) fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().expect(UNBROKEN)
    }

    /// Gives the lock away until something about a busy page may have changed.
    pub(crate) fn wait<'a>(&self, mut engine: MutexGuard<'a, Engine>, page: PageId) -> MutexGuard<'a, Engine> {
        engine.counts.waits += 1;
        self.changed[page as usize % self.changed.len()].wait(engine).expect(UNBROKEN)
    }

    /// Gives the lock away until a fill has ended.
    pub(crate) fn wait_for_room<'a>(&self, mut engine: MutexGuard<'a, Engine>) -> MutexGuard<'a, Engine> {
        engine.counts.waits += 1;
        self.room.wait(engine).expect(UNBROKEN)
    }

    /// Pages are not busy any more.
    pub(crate) fn wake(&self, pages: impl Iterator<Item = PageId>) {
        pages.for_each(|page| self.changed[page as usize % self.changed.len()].notify_all());
        self.room.notify_all();
    }
}

/// A cache. Clones are the same.
#[derive(Clone)]
pub struct PageCache(Arc<Shared>);

impl PageCache {
    /// Makes an empty cache. Reserves addresses; memory is taken as pages come in.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn new(options: &CacheOptions) -> Result<PageCache, MakeError> {
        let policy = crate::engine::policy(&options.policy)?;
        let frames = options.memory / PAGE;
        if frames < MIN_FRAMES {
            return Err(MakeError::TooSmall(options.memory, MIN_FRAMES * PAGE));
        }
        if frames > MAX_FRAMES {
            return Err(MakeError::TooLarge(options.memory, MAX_FRAMES * PAGE));
        }
        if let Some(share) = options.keep_evicted.filter(|share| !(0.0..=0.5).contains(share)) {
            return Err(MakeError::BadShare(share));
        }
        let miniatures = miniatures(&options.what_if, frames)?;
        let reserve = options.keep_evicted.map(|share| (frames as f64 * share) as u32);
        let mut engine = Engine::new(policy, frames as u32, reserve);
        engine.miniatures = miniatures;
        Ok(PageCache(Arc::new(Shared {
            engine: Mutex::new(engine),
            changed: [const { Condvar::new() }; 64],
            room: Condvar::new(),
            buffers: Buffers::new(frames as usize).map_err(MakeError::Memory)?,
            read_ahead: options.read_ahead.min((frames / 8) as u32),
        })))
    }

    /// Opens a file, which must exist, with direct I/O: for reading and writing, or for reading only where writing is
    /// not allowed. While it is open, only this cache should write to it.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(&self, path: &Path) -> Result<CachedFile, OpenError> {
        let backing = DirectFile::open(path)?;
        self.attach(Box::new(backing)).map_err(|error| OpenError::Io { path: path.to_owned(), error })
    }

    /// Puts the cache above anything that can be read and written in pages.
    ///
    /// # Errors
    /// What asking for the length says.
    pub fn attach(&self, backing: Box<dyn Backing>) -> std::io::Result<CachedFile> {
        let length = AtomicU64::new(backing.len()?);
        let id = self.0.engine().add_file();
        Ok(CachedFile {
            shared: self.0.clone(),
            backing,
            id,
            length,
            streams: Mutex::default(),
            tail: Mutex::default(),
            resizing: RwLock::default(),
        })
    }

    /// The state now.
    pub fn report(&self) -> CacheReport {
        let engine = self.0.engine();
        let counts = engine.counts;
        CacheReport {
            memory_bytes: u64::from(engine.frames.allocator().frames()) * PAGE,
            resident_bytes: u64::from(engine.frames_in_use()) * PAGE,
            cached_bytes: u64::from(engine.frames.cached()) * PAGE,
            metadata_bytes: (engine.metadata_bytes() + self.0.buffers.metadata_bytes()) as u64,
            hits: counts.hits,
            misses: counts.misses,
            waits: counts.waits,
            read_ahead: counts.read_ahead,
            written: counts.written,
            counters: engine.counters(),
            would_miss: engine.miniatures.as_deref().map_or_else(Vec::new, answers),
        }
    }
}

/// Miniatures for the questions, over a sample that leaves the smallest memory enough pages.
fn miniatures(what_if: &WhatIf, frames: u64) -> Result<Option<Box<Miniatures>>, MakeError> {
    if what_if.policies.is_empty() {
        return Ok(None);
    }
    let own = [frames / 2, frames, frames * 2, frames * 4];
    let asked: Vec<u64> = what_if.memory.iter().map(|bytes| bytes / PAGE).collect();
    let pages = if asked.is_empty() { &own[..] } else { &asked };
    if let Some(small) = what_if.memory.iter().find(|bytes| **bytes < PAGE) {
        return Err(MakeError::TooSmall(*small, PAGE));
    }
    let policies: Vec<&str> = what_if.policies.iter().map(String::as_str).collect();
    let shift = shift_for(pages.iter().copied().min().unwrap_or(0));
    Ok(Some(Box::new(Miniatures::new(&policies, pages, shift)?)))
}

fn answers(miniatures: &Miniatures) -> Vec<WouldMiss> {
    let answer = |estimate: Estimate<'_>| WouldMiss {
        policy: estimate.policy.to_owned(),
        memory_bytes: estimate.memory_pages * PAGE,
        accesses: estimate.accesses,
        misses: estimate.misses,
    };
    miniatures.estimates().map(answer).collect()
}

/// An open file above the cache. Can be read and written by many threads at once. Its pages leave the cache with it.
pub struct CachedFile {
    pub(crate) shared: Arc<Shared>,
    pub(crate) backing: Box<dyn Backing>,
    pub(crate) id: FileId,
    pub(crate) length: AtomicU64,
    pub(crate) streams: Mutex<Streams>,
    /// Held by writes that touch the end of the file, across their I/O: they follow each other.
    pub(crate) tail: Mutex<()>,
    /// Shared by writes; a change of the length has it alone.
    pub(crate) resizing: RwLock<()>,
}

impl CachedFile {
    /// Bytes.
    pub fn len(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads from `offset` on, up to the end of the file. Returns the bytes read: fewer than asked for only at the end.
    /// Any offset and length will do.
    ///
    /// # Errors
    /// See [`ReadError`]. The buffer may have been filled in part.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, ReadError> {
        let wanted = self.len().saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < wanted {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let part = (PAGE_SIZE - within).min(wanted - done);
            self.read_page(at / PAGE, within, &mut buffer[done..done + part])?;
            done += part;
        }
        Ok(done)
    }

    /// Makes everything durable that was written before.
    ///
    /// # Errors
    /// The device's: what was written since the last success may not be durable.
    pub fn sync(&self) -> std::io::Result<()> {
        self.backing.sync()
    }

    /// Cuts the file off, or adds zeros at its end. Writes wait meanwhile; a read beyond the new end finds the end, or, if
    /// it was under way already, [`ReadError::Short`].
    ///
    /// # Errors
    /// The system's; the length is what it was then. Cost: every page from the lower of both lengths on leaves the cache.
    pub fn set_len(&self, bytes: u64) -> std::io::Result<()> {
        let _alone = self.resizing.write().expect("invariant: nothing panics under this lock");
        let before = self.len();
        // Who reads from now on stays below both lengths.
        self.length.store(before.min(bytes), Ordering::Release);
        if let Err(error) = self.backing.set_len(bytes) {
            self.length.store(before, Ordering::Release);
            return Err(error);
        }
        // A fill that began before is waited for; one that begins now finds the new end.
        self.forget_from(before.min(bytes) / PAGE);
        self.length.store(bytes, Ordering::Release);
        Ok(())
    }

    /// Somebody else may have written to the file: drops what is cached of it, and asks for its length. Reads that are
    /// under way may still answer what was there before; writes wait.
    ///
    /// # Errors
    /// What asking for the length says; what was cached is dropped all the same.
    pub fn reload(&self) -> std::io::Result<()> {
        let _alone = self.resizing.write().expect("invariant: nothing panics under this lock");
        let length = self.backing.len();
        if let Ok(bytes) = length {
            self.length.store(bytes, Ordering::Release);
        }
        self.forget_from(0);
        length.map(|_| ())
    }

    /// Drops the pages from an index on; waits for those on their way.
    fn forget_from(&self, index: u64) {
        let mut engine = self.shared.engine();
        for page in engine.numbered_from(self.id, index) {
            while engine.pages.is_busy(page) {
                engine = self.shared.wait(engine, page);
            }
            engine.forget(page);
        }
    }

    /// Copies from the frame of a page that was resident when the lock was taken.
    pub(crate) fn copy_out(&self, engine: MutexGuard<'_, Engine>, frame: Frame, within: usize, out: &mut [u8]) {
        // Taken before the engine is given away: the next user of the frame, after an eviction, waits for the copy.
        let contents = self.shared.buffers.read(frame);
        drop(engine);
        out.copy_from_slice(&contents.0[within..within + out.len()]);
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        // After a panic elsewhere there is nothing to be kept in order.
        if let Ok(mut engine) = self.shared.engine.lock() {
            engine.remove_file(self.id);
        }
    }
}
