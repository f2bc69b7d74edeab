//! Writing dirty pages to their files: in the background, when a writer has to, and on demand.
//!
//! Dirty pages that follow each other are one write, and many writes are under way at the same time
//! ([`crate::Backing::write_many`]). While a page is written, readers go on reading it and
//! writers wait for it. What the device refuses stays dirty; what it has taken can be evicted only after
//! [`crate::Backing::sync`] has succeeded ([`crate::dirty`]). One thread per cache writes in the background: when more
//! is dirty than the background ratio, and what has waited too long.
//!
//! Locks, in the order in which they are taken: a file's `resizing` (shared), its `tail`, its `settling`, the engine's.
//! No thread waits for a page while pages are being written on its account.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use refault_core::PageId;
use refault_core::frames::Frame;
use refault_store::{PAGE_SIZE, Page};

use crate::backing::Piece;
use crate::dirty::Limits;
use crate::file::{Opened, Shared};
use crate::refusal::PAUSE;
use crate::write::write_pages;

const PAGE: u64 = PAGE_SIZE as u64;

/// Pages that are written at the same time.
const MAX_TOGETHER: usize = 1024;
/// How often is looked for what has waited too long: the kernel's `dirty_writeback_centisecs`.
const INTERVAL: Duration = Duration::from_secs(5);

const UNBROKEN: &str = "invariant: nothing panics under this lock";

/// What to do about a dirty page that a writer is busy with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Busy {
    Wait,
    Skip,
}

/// Dirty pages that follow each other, being written.
struct Run {
    /// The first one's place in the file.
    start: u64,
    pages: Vec<(PageId, Frame)>,
}

/// What [`Shared::begin_runs`] has begun.
enum Begun {
    Nothing,
    Runs(Vec<Run>),
    /// The first run touches the end of the file.
    NeedsTail,
}

impl Shared {
    /// Writes the first runs of dirty pages of a file in a range whose last write has a number up to `until`, at the
    /// same time. Returns where to go on, or that there are none.
    fn write_runs(&self, file: &Opened, range: Range<u64>, until: u64, busy: Busy) -> io::Result<Option<u64>> {
        let _length = file.resizing.read().expect(UNBROKEN);
        let mut tail = None;
        let runs = loop {
            match self.begin_runs(file, range.clone(), until, busy, tail.is_some()) {
                Begun::Nothing => return Ok(None),
                Begun::Runs(runs) => break runs,
                // The end of the file must not change meanwhile.
                Begun::NeedsTail => tail = Some(file.tail.lock().expect(UNBROKEN)),
            }
        };
        let outcomes = self.write_begun(file, &runs);
        let next = runs.last().map(|run| run.start + run.pages.len() as u64);
        let mut engine = self.engine();
        for (run, outcome) in runs.iter().zip(&outcomes) {
            for (index, (page, _)) in (run.start..).zip(&run.pages) {
                engine.finish_write((file.number, index), *page, outcome.is_ok());
            }
        }
        drop(engine);
        self.wake(runs.iter().flat_map(|run| &run.pages).map(|(page, _)| *page));
        outcomes.into_iter().collect::<io::Result<()>>().map(|()| next)
    }

    fn write_begun(&self, file: &Opened, runs: &[Run]) -> Vec<io::Result<()>> {
        // SAFETY: the pages are being written: they are not evicted, and who wants to change one waits.
        let page = |(_, frame): &(PageId, Frame)| unsafe { self.buffers.page(*frame) };
        let pages: Vec<Vec<&Page>> = runs.iter().map(|run| run.pages.iter().map(page).collect()).collect();
        let pieces: Vec<Piece<'_>> =
            runs.iter().zip(&pages).map(|(run, pages)| (io_slices(pages), run.start * PAGE)).collect();
        let written = file.backing.write_many(&pieces);
        let finish = |((run, pages), outcome): ((&Run, &Vec<&Page>), io::Result<usize>)| {
            let whole = outcome? == pages.len() * PAGE_SIZE;
            // What fell short is written once more.
            if whole { Ok(()) } else { write_pages(&*file.backing, pages, run.start * PAGE) }?;
            let end = (run.start + pages.len() as u64) * PAGE;
            if end > file.len() { file.backing.set_len(file.len()) } else { Ok(()) }
        };
        runs.iter().zip(&pages).zip(written).map(finish).collect()
    }

    /// Marks runs as being written.
    fn begin_runs(&self, file: &Opened, mut range: Range<u64>, until: u64, busy: Busy, has_tail: bool) -> Begun {
        let (mut runs, mut pages): (Vec<Run>, usize) = (Vec::new(), 0);
        let mut engine = self.engine();
        while pages < MAX_TOGETHER
            && let Some((start, entry)) = engine.dirty.first(file.number, range.clone())
        {
            if entry.number > until {
                range.start = start + 1;
            } else if engine.pages.is_busy(entry.page) {
                // No thread waits while pages are being written on its account.
                match busy {
                    Busy::Wait if !runs.is_empty() => break,
                    Busy::Wait => engine = self.wait(engine, entry.page),
                    Busy::Skip => range.start = start + 1,
                }
            } else {
                let mut run = Run { start, pages: Vec::new() };
                let mut next = start;
                while pages + run.pages.len() < MAX_TOGETHER
                    && next < range.end
                    && let Some((_, entry)) = engine.dirty.first(file.number, next..next + 1)
                    && !engine.pages.is_busy(entry.page)
                {
                    run.pages.push((entry.page, engine.frame(entry.page)));
                    next += 1;
                }
                if next * PAGE > file.len() && !has_tail {
                    if runs.is_empty() {
                        return Begun::NeedsTail;
                    }
                    break;
                }
                for (index, (page, _)) in (start..).zip(&run.pages) {
                    engine.begin_write((file.number, index), *page);
                }
                pages += run.pages.len();
                range.start = next;
                runs.push(run);
            }
        }
        if runs.is_empty() { Begun::Nothing } else { Begun::Runs(runs) }
    }

    /// Writes everything of a range of a file that was written to up to a number and is dirty, and waits for what
    /// others write of it.
    pub(crate) fn write_range(&self, file: &Opened, range: Range<u64>, until: u64) -> io::Result<()> {
        loop {
            let mut next = range.start;
            while let Some(end) = self.write_runs(file, next..range.end, until, Busy::Wait)? {
                next = end;
            }
            let engine = self.engine();
            match engine.dirty.being_written(file.number, range.clone(), until) {
                None => return Ok(()),
                // If that fails, it is dirty again, and the next turn tries it.
                Some(page) => drop(self.wait(engine, page)),
            }
        }
    }

    /// Has the device make durable what it has of a file. If it cannot, everything that it had and that was not durable
    /// before is dirty again.
    pub(crate) fn settle(&self, file: &Opened) -> io::Result<()> {
        let _one = file.settling.lock().expect(UNBROKEN);
        let until = self.engine().dirty.number();
        let outcome = file.backing.sync();
        let mut engine = self.engine();
        engine.settle(file.number, until, outcome.is_ok());
        drop(engine);
        self.room();
        outcome
    }

    /// When this returns, everything is durable that was written to the range before. What the device has refused since
    /// the last call on another's account is told now.
    pub(crate) fn sync(&self, file: &Opened, range: Range<u64>) -> io::Result<()> {
        let outcome = self.sync_now(file, range);
        let earlier = file.refusal.take();
        outcome.and(earlier.map_or(Ok(()), Err))
    }

    fn sync_now(&self, file: &Opened, range: Range<u64>) -> io::Result<()> {
        let until = self.engine().dirty.number();
        loop {
            self.write_range(file, range.clone(), until)?;
            if let Err(error) = self.settle(file) {
                self.engine().through.told(file.number);
                return Err(error);
            }
            // The failure of another write has made it dirty again, after it was written and before this one's turn.
            let mut engine = self.engine();
            if !engine.dirty.any(file.number, range.clone(), until) {
                return engine.through.check(file.number, range);
            }
        }
    }

    /// A writer of a file is about to make so many pages dirty: it writes others itself until there is room for them,
    /// its file's first. False if there is none, because devices of other files refuse: then it has to write through.
    ///
    /// # Errors
    /// What the file's own device says.
    pub(crate) fn balance(&self, own: &Arc<Opened>, limits: &Limits, pages: u32) -> io::Result<bool> {
        let mut refused = Vec::new();
        loop {
            let engine = self.engine();
            let total = engine.dirty.total();
            if total + pages > limits.background {
                self.flusher.wake();
            }
            if total == 0 || total + pages <= limits.most {
                return Ok(true);
            }
            let next = engine.dirty.after((own.number, 0), &refused).and_then(|(number, _)| engine.dirty.file(number));
            let unstable = engine.dirty.unstable_file(&refused);
            let is_writing = engine.dirty.is_writing();
            drop(engine);
            let outcome = match (&next, &unstable) {
                (Some(file), _) | (None, Some(file)) if file.number != own.number && file.refusal.is_recent() => {
                    refused.push(file.number);
                    continue;
                }
                (None, None) if !is_writing => return Ok(false),
                (Some(file), _) => self
                    .write_runs(file, 0..u64::MAX, u64::MAX, Busy::Skip)
                    .map(|end| end.is_some())
                    .map_err(|error| (file, error)),
                (None, _) => Ok(false),
            };
            let outcome = match (outcome, &unstable) {
                (Ok(false), Some(file)) => self.settle(file).map(|()| true).map_err(|error| (file, error)),
                (outcome, _) => outcome,
            };
            match outcome {
                Ok(true) => {}
                // All of it is being written or written to by others.
                Ok(false) => std::thread::sleep(Duration::from_micros(100)),
                Err((file, error)) if file.number == own.number => {
                    drop(file.refusal.take());
                    return Err(error);
                }
                Err((file, error)) => {
                    file.refusal.keep(error);
                    refused.push(file.number);
                }
            }
        }
    }

    /// Nothing can be evicted, and pages wait to be written or to become durable: does that for some of them; where
    /// devices refuse, pages of theirs go that a failed sync has made dirty ([`crate::engine::Engine::give_up`]). False
    /// if there is nothing to be done.
    pub(crate) fn relieve(&self) -> bool {
        let mut refused = Vec::new();
        loop {
            let mut engine = self.engine();
            let file = engine.dirty.after((0, 0), &refused).and_then(|(number, _)| engine.dirty.file(number));
            let Some(file) = file.or_else(|| engine.dirty.unstable_file(&refused)) else {
                if engine.dirty.is_writing() {
                    drop(engine);
                    std::thread::sleep(Duration::from_micros(100));
                    return true;
                }
                let gone = refused.iter().any(|file| engine.give_up(*file));
                drop(engine);
                self.room();
                return gone;
            };
            drop(engine);
            let written = self.write_runs(&file, 0..u64::MAX, u64::MAX, Busy::Skip);
            match written.and_then(|_| self.settle(&file)) {
                Ok(()) => return true,
                Err(error) => {
                    file.refusal.keep(error);
                    refused.push(file.number);
                }
            }
        }
    }

    /// One round of the background thread. False if a device refuses.
    fn write_in_background(&self, limits: &Limits, tick: bool) -> bool {
        let (mut at, mut refused) = ((0, 0), Vec::new());
        loop {
            let engine = self.engine();
            let next = if engine.dirty.len() > limits.background / 2 && engine.dirty.total() > limits.background {
                engine.dirty.after(at, &refused)
            } else {
                engine.dirty.expired(limits.expire, &refused)
            };
            let file = next.and_then(|(number, index)| Some((engine.dirty.file(number)?, index)));
            drop(engine);
            let Some((file, index)) = file else { break };
            match self.write_runs(&file, index..u64::MAX, u64::MAX, Busy::Skip) {
                Ok(Some(end)) => at = (file.number, end),
                // Writers are busy with all of it.
                Ok(None) => break,
                Err(error) => {
                    file.refusal.keep(error);
                    refused.push(file.number);
                }
            }
        }
        loop {
            let engine = self.engine();
            let many = engine.dirty.total() > limits.background;
            let file = engine.dirty.unstable_file(&refused).filter(|_| many || tick);
            drop(engine);
            let Some(file) = file else { return refused.is_empty() };
            if let Err(error) = self.settle(&file) {
                file.refusal.keep(error);
                refused.push(file.number);
            }
        }
    }
}

fn io_slices<'a>(pages: &[&'a Page]) -> Vec<IoSlice<'a>> {
    pages.iter().map(|page| IoSlice::new(&page.0)).collect()
}

#[derive(Default)]
struct State {
    wanted: bool,
    closed: bool,
    started: bool,
}

/// The thread that writes in the background, once there is something to write.
#[derive(Clone, Default)]
pub(crate) struct Flusher(Arc<(Mutex<State>, Condvar)>);

impl Flusher {
    /// Starts the thread. Without one, writers write when they reach the limit.
    pub(crate) fn start(&self, cache: &Arc<Shared>, limits: Limits) {
        let mut state = self.0.0.lock().expect(UNBROKEN);
        if !state.started {
            let (flusher, cache) = (self.clone(), Arc::downgrade(cache));
            let thread = std::thread::Builder::new().name("refault-write".into());
            state.started = thread.spawn(move || flusher.work(&cache, &limits)).is_ok();
        }
    }

    fn wake(&self) {
        let mut state = self.0.0.lock().expect(UNBROKEN);
        if !state.wanted {
            state.wanted = true;
            self.0.1.notify_one();
        }
    }

    fn work(&self, cache: &Weak<Shared>, limits: &Limits) {
        let (lock, wake) = &*self.0;
        let interval = INTERVAL.min(limits.expire.max(Duration::from_millis(10)));
        let mut state = lock.lock().expect(UNBROKEN);
        loop {
            let tick = if state.wanted {
                false
            } else {
                let (after, timeout) = wake.wait_timeout(state, interval).expect(UNBROKEN);
                state = after;
                timeout.timed_out()
            };
            if state.closed {
                return;
            }
            state.wanted = false;
            drop(state);
            let Some(cache) = cache.upgrade() else { return };
            let went_well = cache.write_in_background(limits, tick);
            drop(cache);
            if !went_well {
                // The device refuses: what is dirty stays so, and the next sync says so.
                std::thread::sleep(PAUSE);
            }
            state = lock.lock().expect(UNBROKEN);
        }
    }

    /// The cache is gone.
    pub(crate) fn close(&self) {
        if let Ok(mut state) = self.0.0.lock() {
            state.closed = true;
        }
        self.0.1.notify_one();
    }
}
