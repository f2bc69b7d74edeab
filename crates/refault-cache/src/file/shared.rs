//! What the files of a cache share: the engine under its lock, the places where threads wait, and those who work in the
//! background.
//!
//! Invariant: who takes the engine's lock by [`Shared::engine`] finds the policy told of every hit until then. Cost:
//! one for each cache.

mod write_back;

use std::collections::HashMap;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard};

use refault_core::PageId;
use refault_core::frames::Frame;
use refault_store::{PAGE_SIZE, Page};

use crate::engine::Engine;
use crate::engine::buffers::Buffers;
use crate::engine::compressed::Pool;
use crate::engine::known::Known;
use crate::engine::lists::Lists;
use crate::engine::references::References;
use crate::engine::table::Table;
use crate::file::place::Place;
use crate::io::background::Background;
use crate::io::background::workers::{Job, Workers};
use crate::io::backing::Backing;
use crate::io::forks::Origin;
use crate::options::CacheReport;
use crate::report::statistics::{Reported, Statistics};
use crate::report::what_if::answers;
use crate::writeback::flusher::Flusher;
use crate::writeback::limits::Limits;

const PAGE: u64 = PAGE_SIZE as u64;

/// Pages of a window of readahead at most, where the device is given fewer by the kernel: what makes up for a system
/// call and an interrupt.
const MIN_READ_AHEAD: u64 = 512;

/// A window has at most one page per this many frames. Two windows of each stream wait for their reader, in memory that
/// pages which are read again would have. In the smallest caches it has up to [`MIN_OF_SHARE`] pages all the same.
const FRAMES_PER_PAGE_AHEAD: u64 = 32;
const MIN_OF_SHARE: u64 = 8;

const UNBROKEN: &str = "invariant: a panic under this lock ends the program";

/// See the module.
pub(crate) struct Shared {
    pub(crate) engine: Mutex<Engine>,
    /// Hits that the policy has not heard of yet.
    pub(crate) references: References,
    /// A busy page is waited for at its number modulo their count.
    pub(crate) changed: [Place; 64],
    /// A fill has ended, so that its frame can be evicted.
    pub(crate) room: Place,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) table: Arc<Table>,
    /// For evicted pages that stay compressed.
    pub(crate) pool: Option<Arc<Pool>>,
    /// Reads that no call waits for.
    pub(crate) background: Arc<Background>,
    /// Reads whose futures are waited for, where a thread has to wait for them; files that are closed.
    pub(crate) readers: Workers,
    /// Pages of a window of readahead at most, where the cache was told.
    pub(crate) read_ahead: Option<u32>,
    /// With write-back: how much may wait.
    pub(crate) limits: Option<Limits>,
    pub(crate) flusher: Flusher,
    pub(crate) statistics: Option<Arc<Statistics>>,
    /// What devices read ahead.
    pub(crate) devices: Mutex<HashMap<u64, Option<u32>>>,
    /// The files of the system that are open.
    pub(crate) known: Known,
    /// Files that were opened.
    pub(crate) files: AtomicU32,
    /// The process whose cache it is.
    pub(crate) origin: Origin,
}

impl Shared {
    /// The engine, which knows of every hit.
    pub(crate) fn engine(&self) -> MutexGuard<'_, Engine> {
        let mut engine = self.engine.lock().expect(UNBROKEN);
        self.references.drain(|page| engine.referenced(page));
        engine
    }

    /// Tells the policy of hits if the lock is free.
    pub(crate) fn drain(&self) {
        if let Ok(mut engine) = self.engine.try_lock() {
            self.references.tells();
            self.references.drain(|page| engine.referenced(page));
        }
    }

    /// Bytes of memory that compressed pages may take.
    pub(crate) fn pool_limit(&self) -> u64 {
        self.pool.as_ref().map_or(0, |pool| pool.limit())
    }

    /// Pages that a window of readahead of a file has at most.
    pub(crate) fn read_ahead(&self, backing: &dyn Backing) -> u64 {
        let frames = self.buffers.pins.len() as u64;
        let pages = match self.read_ahead {
            Some(pages) => u64::from(pages),
            None => {
                let device = self.device_reads_ahead(backing).map_or(0, u64::from);
                device.max(MIN_READ_AHEAD).min((frames / FRAMES_PER_PAGE_AHEAD).max(MIN_OF_SHARE))
            }
        };
        pages.min(frames / 8)
    }

    /// Pages that the kernel reads ahead on a file's device, which the system is asked once for each.
    fn device_reads_ahead(&self, backing: &dyn Backing) -> Option<u32> {
        let Some(direct) = backing.direct() else { return backing.read_ahead() };
        let mut devices = self.devices.lock().expect("invariant: nothing panics under this lock");
        *devices.entry(direct.device()).or_insert_with(|| backing.read_ahead())
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
        self.room();
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

    /// Has something go on in the background when a busy page has changed.
    pub(crate) fn park(&self, mut engine: MutexGuard<'_, Engine>, page: PageId, job: Job) {
        engine.counts.waits += 1;
        self.changed[page as usize % self.changed.len()].park(job);
    }

    /// The same when a fill has ended.
    pub(crate) fn park_for_room(&self, mut engine: MutexGuard<'_, Engine>, job: Job) {
        engine.counts.waits += 1;
        self.room.park(job);
    }

    /// Pages can be evicted that could not before.
    pub(crate) fn room(&self) {
        self.room.wake().into_iter().for_each(|job| self.background.run(job));
    }

    /// Pages are not busy any more.
    pub(crate) fn wake(&self, pages: impl Iterator<Item = PageId>) {
        for page in pages {
            let parked = self.changed[page as usize % self.changed.len()].wake();
            parked.into_iter().for_each(|job| self.background.run(job));
        }
        self.room();
    }

    pub(crate) fn report(&self) -> CacheReport {
        let engine = self.engine();
        let counts = engine.counts;
        CacheReport {
            memory_bytes: u64::from(engine.frames_for_pages()) * PAGE + self.pool_limit(),
            resident_bytes: u64::from(engine.frames_in_use()) * PAGE,
            cached_bytes: u64::from(engine.frames.cached()) * PAGE,
            compressed_bytes: self.pool.as_ref().map_or(0, |pool| pool.bytes()),
            compressed_pages: u64::from(engine.pages.packed()),
            unpacked: counts.unpacked,
            orphan_bytes: u64::from(engine.orphans) * PAGE,
            metadata_bytes: engine.metadata_bytes() as u64,
            hits: counts.hits + self.references.count(),
            misses: counts.misses,
            waits: counts.waits,
            read_ahead: counts.read_ahead,
            written: counts.written,
            written_back: counts.written_back,
            dirty_bytes: u64::from(engine.dirty.total()) * PAGE,
            counters: engine.counters(),
            io: self.background.name(),
            registered_bytes: self.background.registered_bytes(),
            would_miss: engine.miniatures.as_deref().map_or_else(Vec::new, answers),
        }
    }

    pub(crate) fn lists(&self) -> Lists {
        self.engine().lists()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            return;
        }
        if let Some(statistics) = self.statistics.take() {
            statistics.close(self);
        }
        self.background.close();
        self.readers.close();
        self.flusher.close();
    }
}

impl Reported for Shared {
    fn report(&self) -> CacheReport {
        Shared::report(self)
    }

    fn lists(&self) -> Lists {
        Shared::lists(self)
    }
}

/// A frame that stays as it is.
pub(crate) struct Pin<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) frame: Frame,
}

impl Pin<'_> {
    pub(crate) fn page(&self) -> &Page {
        // SAFETY: pinned; the maker of a `Pin` for a reader has seen the frame named by its page afterwards.
        unsafe { self.shared.buffers.page(self.frame) }
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.shared.buffers.pins.unpin(self.frame) {
            self.shared.bury(self.frame);
        }
    }
}
