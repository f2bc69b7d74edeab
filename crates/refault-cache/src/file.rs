//! The cache and its files, as users meet them.

pub(crate) mod ahead;
pub(crate) mod buffered;
pub(crate) mod fill;
pub(crate) mod kept;
pub(crate) mod open;
pub(crate) mod place;
pub(crate) mod read;
pub(crate) mod read_async;
mod reload;
pub(crate) mod shared;
pub(crate) mod write;

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use refault_core::PageId;
use refault_store::PAGE_SIZE;

use crate::engine::Engine;
use crate::engine::buffers::Buffers;
use crate::engine::compressed::Pool;
use crate::engine::known::{Known, Left};
use crate::engine::references::References;
use crate::engine::streams::{Streams, Window};
use crate::engine::table::{GROUP, Table};
use crate::error::MakeError;
use crate::file::fill::{End, submit};
use crate::file::place::Place;
use crate::file::shared::Shared;
use crate::io::background::Background;
use crate::io::background::workers::Workers;
use crate::io::backing::Backing;
use crate::io::direct::{Fresh, Rights, Spare};
use crate::io::forks::Origin;
use crate::io::key::Key;
use crate::io::opened::{Opened, length_of, waits_for_others};
use crate::options::{CacheOptions, CacheReport};
use crate::report::statistics::{self, Statistics};
use crate::report::what_if::{asked, miniatures};
use crate::writeback::account::Account;
use crate::writeback::flusher::Flusher;

/// Threads that wait for the device where there is no io_uring: reads of one cache that are polled for and missed, at
/// once. More wait for a thread.
const MAX_READERS: usize = 32;
const PAGE: u64 = PAGE_SIZE as u64;

/// Frames a cache has at least.
const MIN_FRAMES: u64 = 64;

/// Share of memory that compressed pages may have.
const MAX_COMPRESSED: f64 = 0.75;

/// What a page's word can name.
const MAX_FRAMES: u64 = crate::engine::pins::FRAME as u64;

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
        if let Some(share) = options.compressed.filter(|share| !(0.0..=MAX_COMPRESSED).contains(share)) {
            return Err(MakeError::BadCompressed(share));
        }
        let share = options.compressed.unwrap_or(0.0);
        let least_packed = if share > 0.0 { Pool::MIN_BYTES } else { 0 };
        let packed = ((options.memory as f64 * share) as u64).max(least_packed);
        let frames = options.memory.saturating_sub(packed) / PAGE;
        if frames < MIN_FRAMES {
            let least = ((MIN_FRAMES * PAGE) as f64 / (1.0 - share)).ceil() as u64;
            return Err(MakeError::TooSmall(options.memory, least.max(MIN_FRAMES * PAGE + least_packed)));
        }
        if frames > MAX_FRAMES {
            return Err(MakeError::TooLarge(options.memory, MAX_FRAMES * PAGE));
        }
        if let Some(share) = options.keep_evicted.filter(|share| !(0.0..=0.5).contains(share)) {
            return Err(MakeError::BadShare(share));
        }
        let limits = options.write_back.map(|write_back| write_back.limits(frames as u32)).transpose()?;
        let statistics = statistics::path(options.statistics.as_ref());
        let miniatures = miniatures(&asked(&options.what_if), frames)?;
        let failed = |path, error| MakeError::Statistics { path, error };
        let statistics = statistics
            .map(|path| Statistics::new(&path, &options.policy).map_err(|error| failed(path, error)))
            .transpose()?;
        let reserve = options.keep_evicted.map(|share| (frames as f64 * share) as u32);
        let buffers = Arc::new(Buffers::new(frames as usize).map_err(MakeError::Memory)?);
        let background = Arc::new(Background::new(options.io, buffers.clone())?);
        let pool = (packed > 0).then(|| Pool::new(packed).map(Arc::new)).transpose().map_err(MakeError::Memory)?;
        let mut engine = Engine::new(policy, frames as u32, reserve, buffers.clone(), background.clone(), pool.clone());
        engine.miniatures = miniatures;
        let shared = Arc::new(Shared {
            references: References::new(),
            changed: std::array::from_fn(|_| Place::default()),
            room: Place::default(),
            table: engine.pages.groups.shared_table(),
            engine: Mutex::new(engine),
            buffers,
            pool,
            background,
            readers: Workers::new("refault-read", MAX_READERS),
            read_ahead: options.read_ahead,
            limits,
            flusher: Flusher::default(),
            statistics,
            devices: Mutex::default(),
            known: Known::default(),
            files: AtomicU32::new(0),
            origin: Origin::here(),
        });
        if let Some(statistics) = &shared.statistics {
            statistics.start(&shared);
        }
        Ok(PageCache(shared))
    }

    /// Puts the cache above anything that can be read and written in pages.
    ///
    /// # Errors
    /// What asking for the length says, and if that is more than a file can have.
    pub fn attach(&self, backing: Box<dyn Backing>) -> std::io::Result<CachedFile> {
        self.check()?;
        let length = length_of(&*backing)?;
        let read_ahead = self.0.read_ahead(&*backing);
        let file = self.handle(self.opened(backing, length), Rights::Write, None, Spare::default());
        let _ = file.read_ahead.set(read_ahead);
        Ok(file)
    }

    /// Fails in a child of the process that made the cache.
    pub(crate) fn check(&self) -> std::io::Result<()> {
        self.0.origin.check()
    }

    /// A handle of a file of the system, which may be open already.
    pub(crate) fn open_known(&self, fresh: Fresh<'_>) -> std::io::Result<CachedFile> {
        let (key, rights) = (fresh.key(), fresh.rights());
        let (mut spare, mut may_differ) = (Spare::default(), false);
        // Whichever of the two is called takes it.
        let fresh = Cell::new(Some(fresh));
        let taken = || fresh.take().expect("invariant: one of the two is called, once");
        let joins = |opened: &Arc<Opened>| {
            if let Some(known) = opened.backing.direct() {
                (spare, may_differ) = known.join(taken());
            }
        };
        let opens = || {
            let direct = taken().direct();
            let length = direct.length_when_opened().map_or_else(|| length_of(&direct), Ok)?;
            Ok(self.opened(Box::new(direct), length))
        };
        let opened = self.0.known.open(key, joins, opens)?;
        let file = self.handle(opened, rights, Some(key), spare);
        Ok(if may_differ { file.finds_changes() } else { file })
    }

    /// What is below a file has a number of its own from now on.
    fn opened(&self, backing: Box<dyn Backing>, length: u64) -> Arc<Opened> {
        let mut engine = self.0.engine();
        // Numbers begin again after 2^32 files, of which some may be open still.
        let number = loop {
            let next = self.0.files.fetch_add(1, Ordering::Relaxed);
            if engine.dirty.file(next).is_none() {
                break next;
            }
        };
        let opened = Arc::new(Opened::new(number, backing, length));
        engine.open_file(opened.clone());
        drop(engine);
        if let Some(limits) = self.0.limits {
            self.0.flusher.start(&self.0, limits);
        }
        opened
    }

    fn handle(&self, opened: Arc<Opened>, rights: Rights, key: Option<Key>, spare: Spare) -> CachedFile {
        let seen = opened.changed.lock().expect("invariant: nothing panics under this lock").times;
        CachedFile {
            shared: self.0.clone(),
            number: opened.number,
            rights,
            key,
            _spare: spare,
            keeps: false,
            told: AtomicU64::new(opened.refusal.number()),
            seen: AtomicU64::new(seen),
            origin: self.0.origin,
            table: self.0.table.clone(),
            read_ahead: OnceLock::new(),
            opened,
            advice: AtomicU32::new(Advice::Normal as u32),
            writes_through: AtomicBool::new(self.0.limits.is_none()),
            streams: OnceLock::new(),
        }
    }

    /// The state now.
    pub fn report(&self) -> CacheReport {
        self.0.report()
    }
}

/// Whether the device has a page as it is, for certain or so that it may go.
fn is_clean(engine: &Engine, page: PageId) -> bool {
    !engine.pages.is_held(page)
}

/// An open file above the cache. Can be read and written by many threads at once. What waits to be written is written when it
/// is closed, but a failure is not reported: [`CachedFile::sync`] tells. A file's pages leave the cache with its last handle.
pub struct CachedFile {
    pub(crate) shared: Arc<Shared>,
    pub(crate) opened: Arc<Opened>,
    /// The file's, where readers have it at hand.
    pub(crate) number: u32,
    /// What may be done with it.
    pub(crate) rights: Rights,
    /// What the file is known by, if it may have other handles.
    pub(crate) key: Option<Key>,
    /// Descriptors that the file has no need of: closed with the handle that has opened them, as they would be without
    /// a cache, and not before (see [`crate::io::direct`]).
    _spare: Spare,
    /// It only keeps the pages.
    keeps: bool,
    /// The number of what it was told of refusals ([`crate::io::refusal`]).
    pub(crate) told: AtomicU64,
    /// Changes by others that it was told of.
    pub(crate) seen: AtomicU64,
    /// The process that has opened it.
    pub(crate) origin: Origin,
    /// Where pages are.
    pub(crate) table: Arc<Table>,
    /// Pages of a window of readahead at most: what is not read does not ask.
    read_ahead: OnceLock<u64>,
    /// The [`Advice`] that holds.
    advice: AtomicU32,
    writes_through: AtomicBool,
    /// Made when a read first misses: they are larger than all else, and most files that are opened are read from
    /// memory or not at all.
    streams: OnceLock<Box<Mutex<Streams>>>,
}

impl CachedFile {
    /// Bytes.
    pub fn len(&self) -> u64 {
        self.opened.len()
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
        let read_ahead = || *self.read_ahead.get_or_init(|| self.shared.read_ahead(&*self.opened.backing));
        match self.advice.load(Ordering::Relaxed) {
            advice if advice == Advice::Random as u32 => 0,
            advice if advice == Advice::Sequential as u32 => {
                (read_ahead() * 2).min(self.shared.buffers.pins.len() as u64 / 8)
            }
            _ => read_ahead(),
        }
    }

    /// Begins to read a range in the background, as far as there is room, and returns at once. What cannot be read is
    /// told to the thread that reads it.
    pub fn prefetch(&self, range: Range<u64>) {
        self.prefetch_ranges(std::slice::from_ref(&range));
    }

    /// As [`CachedFile::prefetch`], for several ranges that are wanted at the same time: a file of a store that is slow
    /// to answer is asked for all of them at once ([`Backing::reads_together`]).
    pub fn prefetch_ranges(&self, ranges: &[Range<u64>]) {
        if !self.origin.is_here() {
            return;
        }
        let end = self.len().div_ceil(PAGE);
        let mut jobs = Vec::new();
        // More cannot be in memory, and as many again are there already at most.
        let mut left = 2 * self.shared.buffers.pins.len() as u64;
        for range in ranges {
            let (mut first, end) = (range.start / PAGE, range.end.div_ceil(PAGE).min(end));
            while first < end && left > 0 {
                let pages = (end - first).min(64).min(left);
                let window = Window { first, step: 1, pages };
                let (begun, end) = self.window_jobs(&mut self.shared.engine(), window);
                jobs.extend(begun);
                left = if end == End::Full { 0 } else { left - pages };
                first += pages;
            }
        }
        submit(jobs);
    }

    /// Drops the pages that lie wholly in a range; waits for those on their way. Pages that wait to be written, or to
    /// become durable, stay.
    pub fn evict(&self, range: Range<u64>) {
        if !self.origin.is_here() {
            return;
        }
        let end = range.end.min(self.len().next_multiple_of(PAGE)) / PAGE;
        self.forget_clean(range.start.div_ceil(PAGE)..end);
    }

    /// Makes everything durable that was written before. What others write meanwhile may be or not.
    ///
    /// # Errors
    /// The device's, also what it refused in the background or a sync of another handle since the last call. Each
    /// handle is told of it once, though it may have been made good. What was written since the last success may not be
    /// durable; as far as it is still in the cache, which with [`CacheOptions::write_back`] is all of it, the next call
    /// tries it again. While anything is missing that is in the cache no more, each call fails: write it anew, or
    /// accept what the device has by [`CachedFile::reload`].
    pub fn sync(&self) -> std::io::Result<()> {
        self.sync_pages(0..u64::MAX)
    }

    /// Makes everything durable that was written to a range before. Data first, then what the device needs to find it.
    ///
    /// # Errors
    /// As of [`CachedFile::sync`].
    pub fn sync_range(&self, range: Range<u64>) -> std::io::Result<()> {
        self.sync_pages(range.start / PAGE..range.end.div_ceil(PAGE))
    }

    fn sync_pages(&self, range: Range<u64>) -> std::io::Result<()> {
        self.origin.check()?;
        self.shared.sync(&self.opened, range, &self.told)
    }

    /// From now on a sync that fails makes the cache forget what was written since the last one, as the kernel's page cache does:
    /// it says so once, and reads ask the device for what it has. Otherwise such pages are kept and written again
    /// later. That is wrong for a program with a journal of its own that others may take up meanwhile. With
    /// [`CacheOptions::write_back`] what the device has not been given yet stays dirty, and is written later all the same.
    pub fn forget_on_failure(&self) {
        self.opened.forgets.store(true, Ordering::Relaxed);
    }

    /// Whether [`CachedFile::write_at`] waits for the device from now on, as it does without
    /// [`CacheOptions::write_back`].
    pub fn set_write_through(&self, through: bool) {
        self.writes_through.store(through || self.shared.limits.is_none(), Ordering::Relaxed);
    }

    pub(crate) fn writes_through(&self) -> bool {
        self.writes_through.load(Ordering::Relaxed)
    }

    /// Cuts the file off, or adds zeros at its end. Writes wait meanwhile; a read beyond the new end finds the end, or,
    /// if it was under way already, [`crate::ReadError::Short`].
    ///
    /// # Errors
    /// The system's, and `EBADF` if the file was opened for reading only; the length is what it was then. Cost: every
    /// page from the lower of both lengths on leaves the cache.
    pub fn set_len(&self, bytes: u64) -> std::io::Result<()> {
        self.origin.check()?;
        self.for_writing()?;
        let last = |length: u64| length.min(bytes) / PAGE;
        let _alone = loop {
            let alone = self.opened.resizing.write().expect("invariant: nothing panics under this lock");
            let last = last(self.len());
            // A page that stays in part is dropped below: first it goes to the device for good.
            if self.len().min(bytes).is_multiple_of(PAGE) || !self.is_held(last) {
                break alone;
            }
            drop(alone);
            self.shared.sync_now(&self.opened, last..last + 1)?;
        };
        let before = self.len();
        // Who reads from now on stays below both lengths.
        self.opened.length.store(before.min(bytes), Ordering::Release);
        if let Err(error) = self.opened.backing.set_len(bytes) {
            // What was filled since has zeros from the lower one on.
            self.forget_clean(last(before)..u64::MAX);
            self.lengthen(before);
            return Err(error);
        }
        if !before.min(bytes).is_multiple_of(PAGE) {
            self.forget_cut(last(before));
        }
        // A fill that began before is waited for; one that begins now finds the new end.
        self.forget_from(last(before));
        self.shared.engine().through.cut(self.opened.number, bytes.div_ceil(PAGE));
        self.opened.length.store(bytes, Ordering::Release);
        Ok(())
    }

    /// Another program may have written to the file: writes what waits to be written and makes it durable, drops what is
    /// cached of it, and asks for its length. Reads that are under way may still answer what was there before; writes wait.
    ///
    /// # Errors
    /// What writing, or asking for the length, says. What could not be written stays in the cache. If the device has
    /// lost something that no sync has told of, this tells it and changes nothing; the next call accepts it.
    pub fn reload(&self) -> std::io::Result<()> {
        self.origin.check()?;
        self.shared.write_range(&self.opened, 0..u64::MAX, u64::MAX)?;
        let _alone = self.opened.resizing.write().expect("invariant: nothing panics under this lock");
        let is_unstable = self.shared.engine().dirty.is_unstable(self.opened.number);
        if is_unstable && let Err(error) = self.shared.settle(&self.opened, Account::Caller) {
            self.shared.engine().through.told(self.opened.number);
            return Err(error);
        }
        self.shared.engine().through.accept(self.opened.number)?;
        let length = length_of(&*self.opened.backing);
        let before = self.len();
        let after = *length.as_ref().unwrap_or(&before);
        // As for a new length.
        self.opened.length.store(before.min(after), Ordering::Release);
        self.forget_clean(0..u64::MAX);
        self.lengthen(after);
        length.map(|_| ())
    }

    /// Readers find a new length, not below the one that they find now. What was filled under that one has zeros behind
    /// it. Its last page is dropped, unless it waits to be written, and no thread fills it until the new length holds.
    fn lengthen(&self, bytes: u64) {
        let engine = self.forget_page(self.shared.engine(), self.len() / PAGE, &is_clean);
        self.opened.length.store(bytes, Ordering::Release);
        drop(engine);
    }

    /// Drops a page whose first part stays in the file. A sync that has failed since the page was looked at may have
    /// made it dirty again: then that part is lost, and is told.
    fn forget_cut(&self, index: u64) {
        let mut engine = self.forget_page(self.shared.engine(), index, &is_clean);
        if let Some(page) = engine.pages.groups.find(self.opened.number, index)
            && engine.pages.is_held(page)
        {
            engine.forget(page);
            engine.through.lose((self.opened.number, index));
        }
    }

    /// Whether a page waits to be written, or to become durable.
    fn is_held(&self, index: u64) -> bool {
        let engine = self.shared.engine();
        engine.pages.groups.find(self.opened.number, index).is_some_and(|page| engine.pages.is_held(page))
    }

    /// Drops the pages from an index on, dirty ones too; waits for those on their way.
    fn forget_from(&self, index: u64) {
        self.forget_pages(index..u64::MAX, |_, _| true);
    }

    /// Drops pages that are as the device has them.
    fn forget_clean(&self, range: Range<u64>) {
        self.forget_pages(range, is_clean);
    }

    fn forget_pages(&self, range: Range<u64>, goes: impl Fn(&Engine, PageId) -> bool) {
        let file = self.opened.number;
        let mut engine = self.shared.engine();
        let mut walk = engine.pages.groups.walk(file, &range);
        while let Some(places) = engine.pages.groups.next(file, &range, &mut walk) {
            for place in places {
                let first = u64::from(place) * u64::from(GROUP);
                for index in first.max(range.start)..(first + u64::from(GROUP)).min(range.end) {
                    engine = self.forget_page(engine, index, &goes);
                }
            }
            // Others may want the lock.
            drop(engine);
            engine = self.shared.engine();
        }
    }

    fn forget_page<'a>(
        &'a self,
        mut engine: MutexGuard<'a, Engine>,
        index: u64,
        goes: &impl Fn(&Engine, PageId) -> bool,
    ) -> MutexGuard<'a, Engine> {
        // Its number may be another's after each wait.
        while let Some(page) = engine.pages.groups.find(self.opened.number, index) {
            if engine.pages.is_busy(page) || engine.pages.is_writing(page) {
                engine = self.shared.wait(engine, page);
                continue;
            }
            if goes(&engine, page) {
                engine.forget(page);
            }
            break;
        }
        engine
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            return;
        }
        // A file without a page has nothing to be written or forgotten. If only this handle, the list of open files and
        // the engine have it, it closes with this handle.
        let is_empty =
            |opened: &Arc<Opened>| Arc::strong_count(opened) <= 3 && self.shared.engine().close_empty(opened.number);
        let is_durable = |opened: &Arc<Opened>| !self.shared.engine().dirty.any(opened.number, 0..u64::MAX, u64::MAX);
        let known = &self.shared.known;
        let left = self.key.map_or(Left::None, |key| known.leave(key, self.keeps, is_empty, is_durable));
        if matches!(left, Left::Nothing) {
            return;
        }
        let is_last = matches!(left, Left::None);
        if is_last || self.is_writable() {
            let _ = self.shared.write_range(&self.opened, 0..u64::MAX, u64::MAX);
        }
        if let Left::Others(idle) = left {
            idle.iter().for_each(waits_for_others);
            return;
        }
        // What is read ahead is on its way still.
        self.forget_from(0);
        while self.shared.engine().close_some(self.opened.number) {}
        waits_for_others(&self.opened);
        if let Some(key) = self.key {
            self.shared.known.closed(key);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A file whose bytes all have one value.
    struct Filled(u8);

    impl Backing for Filled {
        fn read(&self, into: &mut [std::io::IoSliceMut<'_>], _: u64) -> std::io::Result<usize> {
            into.iter_mut().for_each(|slice| slice.fill(self.0));
            Ok(into.iter().map(|slice| slice.len()).sum())
        }
        fn write(&self, _: &[std::io::IoSlice<'_>], _: u64) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::ReadOnlyFilesystem.into())
        }
        fn sync(&self) -> std::io::Result<()> {
            Ok(())
        }
        fn len(&self) -> std::io::Result<u64> {
            Ok(1 << 20)
        }
        fn set_len(&self, _: u64) -> std::io::Result<()> {
            Err(std::io::ErrorKind::ReadOnlyFilesystem.into())
        }
    }

    #[test]
    fn no_file_gets_the_number_of_one_that_is_open() {
        let cache = PageCache::new(&CacheOptions::default()).expect("a cache");
        let files: Vec<CachedFile> = (0..8)
            .map(|value| {
                // As after four thousand million files that were opened and closed.
                cache.0.files.store(u32::MAX, Ordering::Relaxed);
                cache.attach(Box::new(Filled(value))).expect("opens")
            })
            .collect();
        for _ in 0..2 {
            for (file, value) in files.iter().zip(0..) {
                let mut byte = [0];
                file.read_at(&mut byte, 4096).expect("reads");
                assert_eq!(byte, [value], "another file's page");
            }
        }
    }
}
