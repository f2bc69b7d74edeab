//! The cache and its files, as users meet them.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock};

use refault_core::PageId;
use refault_core::frames::Frame;
use refault_core::miniature::{Estimate, Miniatures, shift_for};
use refault_store::PAGE_SIZE;

use crate::ahead::Pool;
use crate::backing::{Backing, DirectFile};
use crate::buffers::Buffers;
use crate::engine::Engine;
use crate::error::{MakeError, OpenError};
use crate::options::{CacheOptions, CacheReport, WhatIf, WouldMiss};
use crate::read::Pin;
use crate::references::References;
use crate::streams::{Streams, Window};
use crate::table::Segments;

const PAGE: u64 = PAGE_SIZE as u64;

/// Frames a cache has at least.
const MIN_FRAMES: u64 = 64;

/// What a page's word can name.
const MAX_FRAMES: u64 = crate::pins::FRAME as u64;

const UNBROKEN: &str = "invariant: a panic under this lock ends the program";

pub(crate) struct Shared {
    engine: Mutex<Engine>,
    /// Hits that the policy has not heard of yet.
    pub(crate) references: References,
    /// A busy page is waited for at its number modulo their count.
    changed: [Place; 64],
    /// A fill has ended, so that its frame can be evicted.
    room: Place,
    pub(crate) buffers: Arc<Buffers>,
    /// Readahead in the background.
    pub(crate) ahead: Pool,
    read_ahead: u64,
}

/// Where threads wait. Nobody is woken by a system call where nobody waits.
#[derive(Default)]
struct Place {
    waiting: AtomicU32,
    changed: Condvar,
}

impl Place {
    /// Counted under the lock: who changes something under the lock later sees it.
    fn wait<'a>(&self, engine: MutexGuard<'a, Engine>) -> MutexGuard<'a, Engine> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let engine = self.changed.wait(engine).expect(UNBROKEN);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        engine
    }

    fn wake(&self) {
        if self.waiting.load(Ordering::SeqCst) != 0 {
            self.changed.notify_all();
        }
    }
}

impl Shared {
    /// The engine, which knows of every hit.
    pub(crate) fn engine(&self) -> MutexGuard<'_, Engine> {
        let mut engine = self.engine.lock().expect(UNBROKEN);
        self.references.drain(|page| engine.referenced(page));
        engine
    }

    /// Tells the policy of hits if nobody has the lock.
    pub(crate) fn drain(&self) {
        if let Ok(mut engine) = self.engine.try_lock() {
            self.references.drain(|page| engine.referenced(page));
        }
    }

    /// Pins the frame of a page that is resident and not busy. Only under the engine's lock.
    pub(crate) fn pin(&self, frame: Frame) -> Pin<'_> {
        self.buffers.pins.pin(frame);
        Pin { shared: self, frame }
    }

    /// The last pin of an orphan has gone.
    #[cold]
    pub(crate) fn bury(&self, frame: Frame) {
        self.engine().bury(frame);
        self.room.wake();
    }

    /// Gives the lock away until something about a busy page may have changed.
    pub(crate) fn wait<'a>(&self, mut engine: MutexGuard<'a, Engine>, page: PageId) -> MutexGuard<'a, Engine> {
        engine.counts.waits += 1;
        self.changed[page as usize % self.changed.len()].wait(engine)
    }

    /// Gives the lock away until a fill has ended.
    pub(crate) fn wait_for_room<'a>(&self, mut engine: MutexGuard<'a, Engine>) -> MutexGuard<'a, Engine> {
        engine.counts.waits += 1;
        self.room.wait(engine)
    }

    /// Pages are not busy any more.
    pub(crate) fn wake(&self, pages: impl Iterator<Item = PageId>) {
        pages.for_each(|page| self.changed[page as usize % self.changed.len()].wake());
        self.room.wake();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.ahead.close();
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
        let buffers = Arc::new(Buffers::new(frames as usize).map_err(MakeError::Memory)?);
        let mut engine = Engine::new(policy, frames as u32, reserve, buffers.clone());
        engine.miniatures = miniatures;
        Ok(PageCache(Arc::new(Shared {
            engine: Mutex::new(engine),
            references: References::new(),
            changed: std::array::from_fn(|_| Place::default()),
            room: Place::default(),
            buffers,
            ahead: Pool::default(),
            read_ahead: u64::from(options.read_ahead).min(frames / 8),
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
        Ok(CachedFile {
            shared: self.0.clone(),
            backing: backing.into(),
            pages: Segments::new(),
            length,
            advice: AtomicU32::new(Advice::Normal as u32),
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
            orphan_bytes: u64::from(engine.orphans) * PAGE,
            metadata_bytes: (engine.metadata_bytes() + self.0.buffers.metadata_bytes()) as u64,
            hits: counts.hits + self.0.references.count(),
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
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) pages: Segments,
    pub(crate) length: AtomicU64,
    /// The [`Advice`] that holds.
    advice: AtomicU32,
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

    /// Says how the file is going to be read, until something else is said. Advice about a range is
    /// [`CachedFile::prefetch`] and [`CachedFile::evict`].
    pub fn advise(&self, advice: Advice) {
        self.advice.store(advice as u32, Ordering::Relaxed);
    }

    /// Pages that a window of readahead has at most.
    pub(crate) fn read_ahead(&self) -> u64 {
        match self.advice.load(Ordering::Relaxed) {
            advice if advice == Advice::Random as u32 => 0,
            advice if advice == Advice::Sequential as u32 => self.shared.read_ahead * 2,
            _ => self.shared.read_ahead,
        }
    }

    /// Begins to read a range in the background, as far as there is room, and returns at once. What cannot be read is
    /// told to whoever reads it.
    pub fn prefetch(&self, range: Range<u64>) {
        let end = range.end.min(self.len()).div_ceil(PAGE);
        let mut first = range.start / PAGE;
        while first < end {
            let pages = (end - first).min(64);
            let jobs = self.jobs(&mut self.shared.engine(), Window { first, step: 1, pages });
            self.submit(jobs);
            first += pages;
        }
    }

    /// Drops the pages that lie wholly in a range; waits for those on their way. Nothing is lost: writes went through.
    pub fn evict(&self, range: Range<u64>) {
        let end = range.end.min(self.len().next_multiple_of(PAGE)) / PAGE;
        self.forget_pages(range.start.div_ceil(PAGE)..end);
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
        self.forget_pages(index..u64::MAX);
    }

    fn forget_pages(&self, range: Range<u64>) {
        let mut engine = self.shared.engine();
        for page in engine.numbered(&self.pages, range) {
            while engine.pages.is_busy(page) {
                engine = self.shared.wait(engine, page);
            }
            engine.forget(page);
        }
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        // What is read ahead is on its way still.
        self.forget_from(0);
        self.shared.engine().remove_file(&self.pages);
    }
}

/// How a file is going to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Advice {
    /// Nothing is known: streams are found out, and read ahead.
    #[default]
    Normal,
    /// In no order: nothing is read ahead.
    Random,
    /// From the beginning to the end: windows of readahead may be twice as large.
    Sequential,
}
