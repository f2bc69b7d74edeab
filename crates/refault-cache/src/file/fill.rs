//! Reading what is not there for everybody: from a frame under the lock, or from the file into frames.
//!
//! A page that is missing gets a frame and is busy until its contents are there; the lock is free meanwhile. The
//! missing pages of one call that follow each other are read together, and the first window of a stream with them;
//! later windows are read in the background ([`crate::file::ahead`]). If reading them together fails, the page that was
//! asked for is tried alone: what merely came along must not fail a read.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use refault_core::PageId;
use refault_core::frames::Frame;
use refault_store::{PAGE_SIZE, Page};

use crate::engine::Engine;
use crate::engine::compressed::{Leftover, MAX_RUN};
use crate::engine::streams::{Streams, Window};
use crate::error::ReadError;
use crate::file::CachedFile;
use crate::file::ahead::AheadRead;
use crate::file::shared::Pin;
use crate::io::run::{Fault, Run};
use crate::io::runs::{read_pages, read_run};

const PAGE: u64 = PAGE_SIZE as u64;

/// Pages that are read together at most where no call waits for them.
const MAX_TOGETHER: usize = 64;

/// Pages of one call that are read together at most: a call of some hundred KiB waits for the device once. Never more
/// than an eighth of memory, or [`MAX_TOGETHER`] if that is more.
const MAX_OF_CALL: usize = 256;

/// Pages of a window that exchange frames: the more, the fewer pieces, and the later the first of them is asked for.
const MAX_IN_ORDER: usize = 1024;

/// Where two windows are under way beside the one that is being read, each has at most one page per this many frames.
/// The three together have no more than a window of an eighth and the one before it.
const FRAMES_PER_PAGE_OF_TWO: u64 = 12;

/// One halving of windows excuses at most one lost page per this many frames, of all files' pages that wait for their
/// readers. In memory of 256 MiB that is a window of 2 MiB. Where memory is small, what is lost weighs more, and
/// windows give way at once.
const FRAMES_PER_EXCUSED: usize = 128;

/// Pages that one of the kernel's reads takes at most (`IOV_MAX`).
const MAX_AT_ONCE: usize = 1024;

/// What came of looking for a page under the lock.
pub(crate) enum Attempt<'a> {
    /// The number of bytes that were read.
    Read(usize),
    /// It is missing and has a frame now, to be filled.
    Fill(MutexGuard<'a, Engine>, Run),
    /// Another thread fills or writes it.
    Busy(MutexGuard<'a, Engine>),
    /// It is missing, and no frame is to be had before a fill that is under way ends, if any is.
    Full(MutexGuard<'a, Engine>),
}

/// What came of a page that is not asked for yet.
enum Along {
    /// It is in memory, or on its way.
    There,
    /// It is missing, and there is no room.
    Full,
    /// It is missing and has a frame now, to be filled.
    Begun((PageId, Frame), Option<Leftover>),
}

/// Missing pages with their places in the file, in the order in which they were looked for.
struct Missing {
    pages: Vec<(u64, (PageId, Frame))>,
    end: End,
}

/// Why no more pages were looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// That was all.
    All,
    /// What follows would push out what is there.
    There,
    /// There is no room for more.
    Full,
}

impl CachedFile {
    /// Reads from a page on that was not found without the lock, as much of what is wanted as one call brings. Returns
    /// the bytes.
    pub(crate) fn read_missing(&self, index: u64, within: usize, out: &mut [u8]) -> Result<usize, ReadError> {
        self.origin.check().map_err(|error| ReadError::Io { offset: index * PAGE, error })?;
        let mut engine = self.shared.engine();
        let (mut asked, mut waited) = (false, false);
        loop {
            // Anew after each wait: its number may be another's.
            let page = engine.page(self.opened.number, index)?;
            if !std::mem::replace(&mut asked, true) {
                engine.asked(page, false);
            }
            match self.attempt(engine, page, index, waited, within, out) {
                Attempt::Read(bytes) => return Ok(bytes),
                Attempt::Fill(engine, run) => return self.fill(engine, run, within, out),
                Attempt::Busy(held) => {
                    waited = true;
                    engine = self.shared.wait(held, page);
                }
                Attempt::Full(held) if held.filling > 0 => engine = self.shared.wait_for_room(held),
                Attempt::Full(held) => {
                    let waits_for_writes = held.dirty.total() > 0;
                    drop(held);
                    if !waits_for_writes || !self.shared.relieve() {
                        return Err(ReadError::NoRoom);
                    }
                    engine = self.shared.engine();
                }
            }
        }
    }

    /// Reads from a page that is there after all, or gives it a frame. `waited`: the caller waited for it to come.
    pub(crate) fn attempt<'a>(
        &'a self,
        mut engine: MutexGuard<'a, Engine>,
        page: PageId,
        index: u64,
        waited: bool,
        within: usize,
        out: &mut [u8],
    ) -> Attempt<'a> {
        let part = (PAGE_SIZE - within).min(out.len());
        if engine.pages.is_busy(page) {
            return Attempt::Busy(engine);
        }
        if engine.pages.is_resident(page) {
            engine.counts.hits += 1;
            let pin = self.shared.pin(engine.frame(page));
            engine.accessed(page, false, true);
            let marked = engine.pages.take_mark(page);
            drop(engine);
            if marked {
                self.arrived(index, waited);
            }
            out[..part].copy_from_slice(&pin.page().0[within..within + part]);
            return Attempt::Read(part);
        }
        if let Some(frame) = engine.reactivate(page, false) {
            engine.counts.hits += 1;
            engine.accessed(page, false, false);
            // SAFETY: the lock is held, and the frame was not handed out since: even if the page had to go again at
            // once, its contents are there.
            out[..part].copy_from_slice(&unsafe { self.shared.buffers.page(frame) }.0[within..within + part]);
            return Attempt::Read(part);
        }
        match engine.begin_fill(page, false) {
            Some((frame, leftover)) => {
                engine.counts.misses += 1;
                let mut run = Run::new(index, vec![(page, frame)]);
                if leftover.is_some_and(|leftover| leftover.page == page) {
                    run.unpacked = true;
                } else {
                    // SAFETY: the lock is held, and the frame is free with an evicted page's bytes.
                    let found = |from| Box::new(unsafe { self.shared.buffers.page(from) }.clone());
                    run.found = engine.pages.free_frame(page).map(found);
                    run.leftovers.extend(leftover);
                }
                Attempt::Fill(engine, run)
            }
            None => Attempt::Full(engine),
        }
    }

    /// The page, pinned, wherever it is. `None`: it went again at once.
    pub(crate) fn pin_missing(&self, index: u64) -> Result<Option<Pin<'_>>, ReadError> {
        self.read_missing(index, 0, &mut [0])?;
        let mut engine = self.shared.engine();
        let page = engine.page(self.opened.number, index)?;
        let there = engine.pages.is_resident(page) && !engine.pages.is_busy(page);
        Ok(there.then(|| self.shared.pin(engine.frame(page))))
    }

    fn fill(
        &self,
        mut engine: MutexGuard<'_, Engine>,
        mut run: Run,
        within: usize,
        out: &mut [u8],
    ) -> Result<usize, ReadError> {
        if run.is_in_memory(|page| engine.pages.is_packed(page)) {
            let together = self.unpack(engine, &mut run);
            return self.end_run(run, 1, together, within, out);
        }
        let (wanted, jobs) = self.begin_run(&mut engine, &mut run, within, out.len());
        drop(engine);
        submit(jobs);
        self.put_away(&mut run);
        let together = read_run(&self.opened, &self.shared.buffers, &run);
        self.end_run(run, wanted, together, within, out)
    }

    /// Fills the one page of a run from its compressed copy, unless it was found whole; from the file if memory has
    /// damaged that.
    pub(crate) fn unpack(&self, mut engine: MutexGuard<'_, Engine>, run: &mut Run) -> Result<(), Fault> {
        let slot = engine.pages.take_packed(run.pages[0].0);
        drop(engine);
        self.put_away(run);
        // SAFETY: the page is busy on this thread's account, which makes no other reference now.
        let into = unsafe { self.shared.buffers.page_mut(run.pages[0].1) };
        run.unpacked = match (run.found.take(), slot, &self.shared.pool) {
            (Some(found), _, _) => {
                into.0.copy_from_slice(&found.0);
                true
            }
            (None, Some(slot), Some(pool)) => pool.take(slot, into),
            _ => run.unpacked,
        };
        if run.unpacked { Ok(()) } else { read_run(&self.opened, &self.shared.buffers, run) }
    }

    /// Compresses what frames held that are about to be filled.
    pub(crate) fn put_away(&self, run: &mut Run) {
        let Some(pool) = &self.shared.pool else { return };
        if run.pages.len() > MAX_RUN {
            return;
        }
        let put = |leftover: Leftover| {
            // SAFETY: the page that is to be filled is busy on this thread's account, and no other thread has its
            // frame.
            (leftover, pool.put(unsafe { self.shared.buffers.page_mut(leftover.frame) }))
        };
        run.put_away = std::mem::take(&mut run.leftovers).into_iter().map(put).collect();
    }

    /// Extends a run of one page to what a call wants and what is read ahead with it. Returns how many pages are
    /// wanted, and what else is to be read: the call's other missing pages, and further windows.
    pub(crate) fn begin_run(
        &self,
        engine: &mut Engine,
        run: &mut Run,
        within: usize,
        bytes: usize,
    ) -> (usize, Vec<AheadRead>) {
        let frames = self.shared.buffers.pins.len();
        let most = (within + bytes).div_ceil(PAGE_SIZE).min(MAX_OF_CALL.min(frames / 8).max(MAX_TOGETHER));
        self.extend(engine, run, most);
        let wanted = run.pages.len();
        let mut jobs = Vec::new();
        if wanted < most {
            let others = run.index + wanted as u64..(run.index + most as u64).min(self.len().div_ceil(PAGE));
            let missing = self.missing(engine, others).pages;
            jobs = self.jobs_of(engine, missing, None);
        }
        jobs.extend(self.plan(engine, run));
        engine.in_few_pieces(run.pages.iter_mut());
        (wanted, jobs)
    }

    /// A run was read, or not: copies what is wanted and gives its pages to everybody. Waits for the device only if the
    /// run could not be read together. Returns the bytes.
    pub(crate) fn end_run(
        &self,
        mut run: Run,
        wanted: usize,
        together: Result<(), Fault>,
        within: usize,
        out: &mut [u8],
    ) -> Result<usize, ReadError> {
        let outcome = match together {
            Err(_) if run.pages.len() > 1 => {
                self.abandon(&run.pages.split_off(1));
                read_run(&self.opened, &self.shared.buffers, &run)
            }
            outcome => outcome,
        };
        let put_away = std::mem::take(&mut run.put_away);
        if let Err(fault) = outcome {
            if !put_away.is_empty() {
                self.shared.engine().pages.keep(put_away);
            }
            self.abandon(&run.pages);
            return Err(fault.at(run.index * PAGE));
        }
        let wanted = wanted.min(run.pages.len());
        let bytes = (wanted * PAGE_SIZE - within).min(out.len());
        self.copy_filled(&run.pages[..wanted], within, &mut out[..bytes]);
        let mut engine = self.shared.engine();
        engine.pages.keep(put_away);
        if run.unpacked {
            engine.counts.misses -= 1;
            engine.counts.hits += 1;
            engine.counts.unpacked += 1;
        } else {
            engine.counts.file_reads += run.pages.len() as u64;
        }
        engine.counts.misses += wanted as u64 - 1;
        engine.counts.read_ahead += (run.pages.len() - wanted) as u64;
        for (place, (page, _)) in run.pages.iter().enumerate() {
            if place >= wanted {
                engine.finish_ahead(*page, place == wanted);
                continue;
            }
            engine.finish_fill(*page, false);
            if place > 0 {
                engine.asked(*page, false);
            }
            engine.accessed(*page, false, false);
        }
        drop(engine);
        self.shared.wake(run.pages.iter().map(|(page, _)| *page));
        Ok(bytes)
    }

    /// Adds the missing pages that follow a run, until it has `pages` pages.
    fn extend(&self, engine: &mut Engine, run: &mut Run, pages: usize) {
        let end = self.len().div_ceil(PAGE);
        while run.pages.len() < pages {
            let next = run.index + run.pages.len() as u64;
            if next >= end {
                return;
            }
            let Along::Begun(missing, leftover) = self.begin_missing(engine, next) else { return };
            run.pages.push(missing);
            run.leftovers.extend(leftover);
        }
    }

    /// A page that comes along gets a frame, if it is missing and there is one. It gets a number only then: what cannot
    /// come in must not make the cache forget what it knows of others.
    fn begin_missing(&self, engine: &mut Engine, index: u64) -> Along {
        let page = match engine.pages.groups.find(self.opened.number, index) {
            Some(page) => page,
            None if !engine.has_room() => return Along::Full,
            None => match engine.page(self.opened.number, index) {
                Ok(page) => page,
                Err(_) => return Along::Full,
            },
        };
        if engine.pages.is_resident(page)
            || engine.pages.is_busy(page)
            || engine.frames.is_cached(page)
            || engine.pages.is_packed(page)
        {
            return Along::There;
        }
        match engine.begin_fill(page, true) {
            Some((frame, leftover)) => Along::Begun((page, frame), leftover),
            None => Along::Full,
        }
    }

    /// What is read ahead because of a run that was missed: with it, if it follows; otherwise by jobs.
    fn plan(&self, engine: &mut Engine, run: &mut Run) -> Vec<AheadRead> {
        let (index, length) = (run.index, run.pages.len());
        match self.window(|streams, most| streams.missed(index, length as u64, most)) {
            None => Vec::new(),
            Some(window) if window.step == 1 && window.first == index + length as u64 => {
                self.extend(engine, run, (length + window.pages as usize).min(MAX_AT_ONCE));
                if run.pages.len() < MAX_AT_ONCE {
                    return Vec::new();
                }
                let taken = (MAX_AT_ONCE - length) as u64;
                let rest = Window { first: window.first + taken, pages: window.pages - taken, ..window };
                let missing = self.missing(engine, rest.pages(self.len().div_ceil(PAGE)));
                self.jobs(engine, window, missing, &mut false)
            }
            Some(window) => self.window_jobs(engine, window).0,
        }
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.get_or_init(Box::default).lock().expect("invariant: nothing panics under this lock")
    }

    fn window(&self, find: impl FnOnce(&mut Streams, u64) -> Option<Window>) -> Option<Window> {
        let most = self.read_ahead();
        if most == 0 {
            return None;
        }
        let mut streams = self.streams();
        let buffers = &self.shared.buffers;
        let waiting = buffers.unread.load(Ordering::Relaxed).min((buffers.pins.len() / FRAMES_PER_EXCUSED) as u32);
        streams.unread(self.opened.unread.load(Ordering::Relaxed), waiting);
        find(&mut streams, most)
    }

    /// A read has arrived at a marked page, which it had to wait for, or not.
    #[cold]
    pub(crate) fn arrived(&self, index: u64, waited: bool) {
        let together = self.opened.backing.reads_together();
        let most_of_two = |most: u64| most.min(self.shared.buffers.pins.len() as u64 / FRAMES_PER_PAGE_OF_TWO);
        let window = self.window(|streams, most| streams.marked(index, most, most_of_two(most)));
        let Some(window) = window.filter(|window| self.read_window(*window) && waited && together) else { return };
        if let Some(further) = self.window(|streams, most| streams.further(window, most_of_two(most))) {
            self.read_window(further);
        }
    }

    /// Has a window read in the background. Whether there was room for all of it.
    fn read_window(&self, window: Window) -> bool {
        let mut marks = true;
        for stretch in window.parts(MAX_IN_ORDER as u64) {
            let mut missing = Missing { pages: Vec::new(), end: End::All };
            // In several holds of the lock, so that others are not kept waiting.
            for part in stretch.parts(MAX_OF_CALL as u64) {
                let mut engine = self.shared.engine();
                // Asked for under the lock: a length that is refused drops what was begun under it.
                let Missing { pages, end } = self.missing(&mut engine, part.pages(self.len().div_ceil(PAGE)));
                drop(engine);
                missing.pages.extend(pages);
                missing.end = end;
                if end != End::All {
                    break;
                }
            }
            let ended = missing.end != End::All;
            let jobs = self.jobs(&mut self.shared.engine(), window, missing, &mut marks);
            submit(jobs);
            if ended {
                return false;
            }
        }
        true
    }

    /// The missing pages of a window or a part of it, as jobs in the order in which they will be wanted. The first one
    /// carries the mark, if `marks`, which is false from then on.
    fn jobs(&self, engine: &mut Engine, window: Window, missing: Missing, marks: &mut bool) -> Vec<AheadRead> {
        let mut missing = missing.pages;
        let Some(&(first, (page, _))) = missing.first() else { return Vec::new() };
        let marked = std::mem::take(marks).then_some(page);
        if marked.is_some() && first != window.first {
            self.streams().begins(window, first);
        }
        let backward = window.step < 0;
        if backward {
            missing.reverse();
        }
        engine.make_one_place(missing.iter_mut().map(|(_, page)| page));
        let mut jobs = self.jobs_of(engine, missing, marked);
        if backward {
            jobs.reverse();
        }
        jobs
    }

    /// Jobs for the missing pages of a whole window, in one hold of the lock, and why there are no more.
    pub(crate) fn window_jobs(&self, engine: &mut Engine, window: Window) -> (Vec<AheadRead>, End) {
        let missing = self.missing(engine, window.pages(self.len().div_ceil(PAGE)));
        let end = missing.end;
        (self.jobs(engine, window, missing, &mut true), end)
    }

    /// Those of some pages that are missing, busy from here on, as far as there are frames.
    fn missing(&self, engine: &mut Engine, indices: impl Iterator<Item = u64>) -> Missing {
        let mut missing = Missing { pages: Vec::new(), end: End::All };
        for index in indices {
            match self.begin_missing(engine, index) {
                // What follows would push out what is there.
                Along::There if engine.frames.available() == 0 => {
                    missing.end = End::There;
                    break;
                }
                Along::There => {}
                Along::Begun(page, _) => missing.pages.push((index, page)),
                Along::Full => {
                    missing.end = End::Full;
                    break;
                }
            }
        }
        missing
    }

    /// Jobs for pages in ascending order, one for those that follow each other.
    fn jobs_of(
        &self,
        engine: &mut Engine,
        mut missing: Vec<(u64, (PageId, Frame))>,
        marked: Option<PageId>,
    ) -> Vec<AheadRead> {
        engine.in_few_pieces(missing.iter_mut().map(|(_, page)| page));
        let mut runs: Vec<Run> = Vec::new();
        for (index, page) in missing {
            match runs.last_mut() {
                Some(run) if run.index + run.pages.len() as u64 == index && run.pages.len() < MAX_TOGETHER => {
                    run.pages.push(page);
                }
                _ => runs.push(Run::new(index, vec![page])),
            }
        }
        let job = |run| AheadRead { shared: self.shared.clone(), file: self.opened.clone(), run, marked };
        runs.into_iter().map(job).collect()
    }

    fn abandon(&self, pages: &[(PageId, Frame)]) {
        let mut engine = self.shared.engine();
        pages.iter().for_each(|(page, _)| engine.abandon_fill(*page));
        drop(engine);
        self.shared.wake(pages.iter().map(|(page, _)| *page));
    }

    /// Copies from frames that were filled, before another thread may use them.
    fn copy_filled(&self, pages: &[(PageId, Frame)], mut within: usize, mut out: &mut [u8]) {
        for (_, frame) in pages {
            let (part, rest) = out.split_at_mut((PAGE_SIZE - within).min(out.len()));
            // SAFETY: the page is busy on this thread's account, which makes no other reference now.
            part.copy_from_slice(&unsafe { self.shared.buffers.page_mut(*frame) }.0[within..within + part.len()]);
            (out, within) = (rest, 0);
        }
    }

    /// Reads one page into memory that is not the cache's.
    pub(crate) fn read_aside(&self, index: u64, into: &mut Page) -> Result<(), ReadError> {
        let offset = index * PAGE;
        if offset >= self.len() {
            into.0.fill(0);
            return Ok(());
        }
        read_pages(&*self.opened.backing, &mut [into], offset, self.len()).map_err(|fault| fault.at(offset))
    }
}

/// Hands jobs of one file over; their runs are read at the same time. Never under the engine's lock.
pub(crate) fn submit(jobs: Vec<AheadRead>) {
    if jobs.len() > 1 && jobs[0].file.backing.reads_together() {
        AheadRead::submit_together(jobs);
    } else {
        jobs.into_iter().for_each(AheadRead::submit);
    }
}
