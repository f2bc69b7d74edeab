//! Writing dirty pages to their files: in the background, when a writer has to, and on demand.
//!
//! Dirty pages that follow each other are one write, and many writes are under way at the same time
//! ([`crate::Backing::write_many`]). While a page is written, readers go on reading it and
//! writers wait for it. What the device refuses stays dirty; what it has taken can be evicted only after
//! [`crate::Backing::sync`] has succeeded ([`crate::writeback::dirty`]). One thread per cache writes in the background:
//! when more is dirty than the background ratio, and what has waited too long.
//!
//! Locks, in the order in which they are taken: a file's `resizing` (shared), its `tail`, its `settling`, the engine's.
//! No thread waits for a page while pages are being written on its account.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use refault_core::PageId;
use refault_core::frames::Frame;
use refault_store::{PAGE_SIZE, Page};

use crate::engine::Engine;
use crate::file::shared::Shared;
use crate::io::background::Background;
use crate::io::backing::Piece;
use crate::io::opened::Opened;
use crate::io::pieces::{io_slices, write_pages, write_part};
use crate::io::refusal::PAUSE;
use crate::writeback::account::Account;
use crate::writeback::flusher::WritesBack;
use crate::writeback::limits::Limits;
use crate::writeback::parts::Parts;

const PAGE: u64 = PAGE_SIZE as u64;

/// Pages that are written at the same time.
const MAX_TOGETHER: usize = 1024;
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
    /// What is to be written of each: of a page that is not written whole there is no other.
    parts: Parts,
}

impl Run {
    fn bytes(&self) -> usize {
        self.pages.len() * PAGE_SIZE
    }
}

/// What [`Shared::begin_runs`] has begun.
enum Begun {
    Nothing,
    Runs(Vec<Run>),
    /// The first run touches the end of the file.
    NeedsTail,
}

impl Shared {
    /// Writes the first runs of dirty pages of a file in a range, at the same time. A run has pages whose last write
    /// has a number up to `until`. Returns where to go on, or that there are none.
    fn write_runs(
        &self,
        file: &Opened,
        range: Range<u64>,
        until: u64,
        busy: Busy,
        account: Account,
    ) -> io::Result<Option<u64>> {
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
        let written: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
        // Before another thread can find the pages dirty and write them well: its sync then tells what was refused.
        let outcome = account.of(file, outcomes.into_iter().collect::<io::Result<()>>());
        let mut engine = self.engine();
        for (run, is_written) in runs.iter().zip(written) {
            for (index, (page, _)) in (run.start..).zip(&run.pages) {
                engine.finish_write((file.number, index), *page, is_written);
            }
        }
        drop(engine);
        self.wake(runs.iter().flat_map(|run| &run.pages).map(|(page, _)| *page));
        outcome.map(|()| next)
    }

    fn write_begun(&self, file: &Opened, runs: &[Run]) -> Vec<io::Result<()>> {
        // SAFETY: the pages are being written: they are not evicted, and who wants to change one waits.
        let page = |(_, frame): &(PageId, Frame)| unsafe { self.buffers.page(*frame) };
        let pages: Vec<Vec<&Page>> = runs.iter().map(|run| run.pages.iter().map(page).collect()).collect();
        let backing = &*file.backing;
        // The end of the file does not change meanwhile.
        let length = file.len();
        let whole = || runs.iter().zip(&pages).filter(|(run, _)| run.parts.is_whole());
        let pieces: Vec<Piece<'_>> = whole().map(|(run, pages)| (io_slices(pages), run.start * PAGE)).collect();
        let written = Background::write_many(backing, &pieces);
        let finish = |((run, pages), outcome): ((&Run, &Vec<&Page>), io::Result<usize>)| {
            let (start, bytes) = (run.start * PAGE, run.bytes());
            match outcome {
                Ok(written) if written == bytes => {}
                // What fell short is written once more, and what a signal has interrupted.
                Ok(_) => write_pages(backing, pages, start)?,
                Err(error) if is_momentary(&error) => write_pages(backing, pages, start)?,
                Err(error) => return Err(error),
            }
            let is_beyond = start + bytes as u64 > length && !backing.takes_any_bytes();
            if is_beyond { backing.set_len(length) } else { Ok(()) }
        };
        let mut finished = whole().zip(written).map(finish);
        let parts = |(run, pages): (&Run, &Vec<&Page>)| {
            let write = |span: Range<usize>| {
                write_part(backing, &pages[0].0[span.clone()], run.start * PAGE + span.start as u64)
            };
            run.parts.spans().try_for_each(write)
        };
        let mut outcomes = Vec::with_capacity(runs.len());
        for (run, pages) in runs.iter().zip(&pages) {
            outcomes.push(match run.parts.is_whole() {
                true => finished.next().expect("invariant: each whole run is a piece"),
                false => parts((run, pages)),
            });
        }
        outcomes
    }

    /// Marks runs as being written.
    fn begin_runs(&self, file: &Opened, mut range: Range<u64>, until: u64, busy: Busy, has_tail: bool) -> Begun {
        let (mut runs, mut pages): (Vec<Run>, usize) = (Vec::new(), 0);
        let is_exact = file.backing.takes_any_bytes();
        // A write that was refused may have been to make the file longer.
        let within_file = |index: u64, parts: Parts| {
            let left = file.len().saturating_sub(index * PAGE);
            if left < PAGE { parts.up_to(left as usize) } else { parts }
        };
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
                let parts = if is_exact { within_file(start, entry.parts) } else { Parts::WHOLE };
                let mut run = Run { start, pages: Vec::new(), parts };
                let mut next = start;
                while pages + run.pages.len() < MAX_TOGETHER
                    && next < range.end
                    && (next == start || parts.is_whole())
                    && let Some((_, entry)) = engine.dirty.first(file.number, next..next + 1)
                    && !engine.pages.is_busy(entry.page)
                    && (next == start || !is_exact || within_file(next, entry.parts).is_whole())
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

    /// Writes everything of a range of a file that was written to up to a number and is dirty. Waits for what others
    /// write of it.
    pub(crate) fn write_range(&self, file: &Opened, range: Range<u64>, until: u64) -> io::Result<()> {
        loop {
            let mut next = range.start;
            while let Some(end) = self.write_runs(file, next..range.end, until, Busy::Wait, Account::Caller)? {
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
    pub(crate) fn settle(&self, file: &Opened, account: Account) -> io::Result<()> {
        let _one = file.settling.lock().expect(UNBROKEN);
        let until = self.engine().dirty.number();
        let outcome = account.of(file, file.backing.sync());
        let mut engine = self.engine();
        engine.settle(file, until, outcome.is_ok());
        // A region of it may be well while another goes on refusing.
        let is_well = outcome.is_ok() && !engine.dirty.may_be_given_up(file.number);
        drop(engine);
        if is_well {
            file.refusal.done();
        }
        self.room();
        outcome
    }

    /// When this returns, everything is durable that was written to the range before. What the device has refused on
    /// another's account, and the handle was not `told`, is told now.
    pub(crate) fn sync(&self, file: &Opened, range: Range<u64>, told: &AtomicU64) -> io::Result<()> {
        let whole = range == (0..u64::MAX);
        match self.sync_now(file, range) {
            Ok(()) => file.refusal.synced(told, whole).map_or(Ok(()), Err),
            Err(error) => {
                file.refusal.tells(&error, told);
                Err(error)
            }
        }
    }

    /// The same, and what was refused before is left to the next [`Shared::sync`].
    pub(crate) fn sync_now(&self, file: &Opened, range: Range<u64>) -> io::Result<()> {
        let state = |engine: &Engine| (engine.dirty.number(), engine.through.mended(file.number));
        let (mut until, mut mended) = state(&self.engine());
        loop {
            self.write_range(file, range.clone(), until)?;
            if let Err(error) = self.settle(file, Account::Caller) {
                self.engine().through.told(file.number);
                return Err(error);
            }
            let mut engine = self.engine();
            if engine.through.mended(file.number) != mended {
                // A page was lost, and is being written anew by a write that began later.
                (until, mended) = state(&engine);
            } else if !engine.dirty.any(file.number, range.clone(), until) {
                return engine.through.check(file.number, range);
            }
            // Or the failure of another write has made it dirty again, after it was written and before this one's turn.
        }
    }

    /// A writer of a file is about to make `pages` pages dirty. It writes others itself until there is room for them,
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
            let account = |file: &Opened| match file.number == own.number {
                true => Account::Caller,
                false => Account::NextSync,
            };
            let outcome = match (&next, &unstable) {
                (Some(file), _) | (None, Some(file)) if file.number != own.number && file.refusal.is_recent() => {
                    refused.push(file.number);
                    continue;
                }
                (None, None) if !is_writing => return Ok(false),
                (Some(file), _) => self
                    .write_runs(file, 0..u64::MAX, u64::MAX, Busy::Skip, account(file))
                    .map(|end| end.is_some())
                    .map_err(|error| (file, error)),
                (None, _) => Ok(false),
            };
            let outcome = match (outcome, &unstable) {
                (Ok(false), Some(file)) => {
                    self.settle(file, account(file)).map(|()| true).map_err(|error| (file, error))
                }
                (outcome, _) => outcome,
            };
            match outcome {
                Ok(true) => {}
                // All of it is being written or written to by others.
                Ok(false) => std::thread::sleep(Duration::from_micros(100)),
                // What was refused before, on another's account, is left to the sync that waits for it.
                Err((file, error)) if file.number == own.number => return Err(error),
                Err((file, _)) => refused.push(file.number),
            }
        }
    }

    /// Nothing can be evicted, and pages wait to be written or to become durable: does that for some of them. Where
    /// devices refuse, waits, and once one has refused for long, a page of it that a failed sync has made dirty goes
    /// ([`crate::engine::Engine::give_up`]): one, because what comes into its frame can go again. False if there is
    /// nothing to be done.
    pub(crate) fn relieve(&self) -> bool {
        let mut refused: Vec<Arc<Opened>> = Vec::new();
        loop {
            let numbers: Vec<u32> = refused.iter().map(|file| file.number).collect();
            let mut engine = self.engine();
            let file = engine.dirty.after((0, 0), &numbers).and_then(|(number, _)| engine.dirty.file(number));
            let Some(file) = file.or_else(|| engine.dirty.unstable_file(&numbers)) else {
                if engine.dirty.is_writing() {
                    drop(engine);
                    std::thread::sleep(Duration::from_micros(100));
                    return true;
                }
                let lasting = refused.iter().filter(|file| file.refusal.lasts());
                let gone = lasting.map(|file| file.number).any(|file| engine.give_up(file));
                let waits = !gone && numbers.iter().any(|file| engine.dirty.may_be_given_up(*file));
                drop(engine);
                if waits {
                    std::thread::sleep(PAUSE / 10);
                }
                self.room();
                return gone || waits;
            };
            drop(engine);
            // A device may take long to refuse: it is not asked again for each frame.
            if file.refusal.lasts() && file.refusal.is_recent() {
                refused.push(file);
                continue;
            }
            let written = self.write_runs(&file, 0..u64::MAX, u64::MAX, Busy::Skip, Account::NextSync);
            match written.and_then(|_| self.settle(&file, Account::NextSync)) {
                Ok(()) => return true,
                Err(_) => refused.push(file),
            }
        }
    }
}

impl WritesBack for Shared {
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
            match self.write_runs(&file, index..u64::MAX, u64::MAX, Busy::Skip, Account::NextSync) {
                Ok(Some(end)) => at = (file.number, end),
                // Writers are busy with all of it.
                Ok(None) => break,
                Err(_) => refused.push(file.number),
            }
        }
        loop {
            let engine = self.engine();
            let many = engine.dirty.total() > limits.background;
            let file = engine.dirty.unstable_file(&refused).filter(|_| many || tick);
            drop(engine);
            let Some(file) = file else { return refused.is_empty() };
            if self.settle(&file, Account::NextSync).is_err() {
                refused.push(file.number);
            }
        }
    }
}

/// Whether a write is worth another try at once, by a call that waits: io_uring may lack what such a call does not
/// need.
fn is_momentary(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ECANCELED | libc::ENOMEM))
        || error.kind() == ErrorKind::Interrupted
}
