//! Writing: through to the file first, then into the cache; or into the cache, from where it is written later
//! ([`crate::write_back`]).
//!
//! The pages of a write are taken busy in the order of the file, so that two writers never wait for each other in a
//! circle (readers wait for nothing while they hold a page). Their new contents are put together in private buffers,
//! because the frames belong to readers until the device has answered. A page that is written in part is taken from its
//! frame or read before. Written pages are admitted: what is written is likely to be read.
//!
//! A file that ends within a page is written in whole pages and cut to its length again; writes that touch its end
//! follow each other, so that none cuts off what another added.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::atomic::Ordering;

use refault_core::PageId;
use refault_core::frames::Frame;
use refault_store::{PAGE_SIZE, Page};

use crate::backing::Backing;
use crate::dirty::At;
use crate::engine::Engine;
use crate::error::{ReadError, WriteError};
use crate::file::CachedFile;
use crate::write_back::Account;

const PAGE: u64 = PAGE_SIZE as u64;

/// Pages that are written by one call.
const AT_ONCE: usize = 64;

/// How a page is written.
#[derive(Clone, Copy)]
struct New {
    /// All of it.
    whole: bool,
    /// All of it that is within the file.
    anew: bool,
    /// The device gets it later.
    waits: bool,
}

impl CachedFile {
    /// Writes at any offset and length; the file grows if need be. When this returns, the device has everything, and
    /// readers see it; [`CachedFile::sync`] makes it durable. Writes of more than 256 KiB are written in such parts, in
    /// order.
    ///
    /// # Errors
    /// See [`WriteError`]. Parts before the one that failed are written.
    pub fn write_at(&self, buffer: &[u8], offset: u64) -> Result<(), WriteError> {
        if buffer.is_empty() {
            return Ok(());
        }
        self.origin.check().map_err(|error| WriteError::Io { offset, error })?;
        if !self.is_writable() {
            return Err(WriteError::NotForWriting { offset });
        }
        self.for_writing().map_err(|error| WriteError::Io { offset, error })?;
        offset.checked_add(buffer.len() as u64).ok_or(ReadError::TooManyPages)?;
        let limits = self.shared.limits.as_ref().filter(|_| !self.writes_through());
        let at_once = limits.map_or(AT_ONCE, |limits| (limits.most as usize / 2).clamp(1, AT_ONCE));
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let part = (at_once * PAGE_SIZE - (at % PAGE) as usize).min(buffer.len() - done);
            let waits = match limits {
                None => false,
                // Before any lock is taken: this may write pages of the same file.
                Some(limits) => {
                    let balanced = self.shared.balance(&self.opened, limits, at_once as u32);
                    balanced.map_err(|error| WriteError::Io { offset: at, error })?
                }
            };
            self.write_part(&buffer[done..done + part], at, !waits)?;
            done += part;
        }
        Ok(())
    }

    fn write_part(&self, bytes: &[u8], offset: u64, through: bool) -> Result<(), WriteError> {
        let _length = self.opened.resizing.read().expect("invariant: nothing panics under this lock");
        // The file only grows meanwhile, so a write that does not touch the end now never will.
        let whole_pages = self.len() / PAGE * PAGE;
        let at_end = offset + bytes.len() as u64 > whole_pages;
        let _tail = at_end.then(|| self.opened.tail.lock().expect("invariant: nothing panics under this lock"));
        let (first, end) = (offset / PAGE, (offset + bytes.len() as u64).div_ceil(PAGE));
        let pages = self.take_busy(first, end)?;
        let outcome = self.write_busy(bytes, offset, first, &pages, through);
        let mut engine = self.shared.engine();
        pages.iter().for_each(|page| engine.pages.set_busy(*page, false));
        drop(engine);
        self.shared.wake(pages.iter().copied());
        outcome
    }

    fn take_busy(&self, first: u64, end: u64) -> Result<Vec<PageId>, ReadError> {
        let mut engine = self.shared.engine();
        let mut pages = Vec::with_capacity((end - first) as usize);
        for index in first..end {
            loop {
                match engine.page(self.opened.number, index) {
                    Ok(page) if engine.pages.is_busy(page) || engine.pages.is_writing(page) => {
                        // Its number may be another's after the wait.
                        engine = self.shared.wait(engine, page);
                    }
                    Ok(page) => {
                        engine.pages.set_busy(page, true);
                        pages.push(page);
                        break;
                    }
                    Err(error) => {
                        pages.iter().for_each(|page| engine.pages.set_busy(*page, false));
                        drop(engine);
                        self.shared.wake(pages.into_iter());
                        return Err(error);
                    }
                }
            }
        }
        Ok(pages)
    }

    /// Writes pages that are busy on this thread's account.
    fn write_busy(
        &self,
        bytes: &[u8],
        offset: u64,
        first: u64,
        pages: &[PageId],
        through: bool,
    ) -> Result<(), WriteError> {
        let mut contents = vec![Page::ZERO; pages.len()];
        let start = (offset - first * PAGE) as usize;
        let end = start + bytes.len();
        let last = pages.len() - 1;
        let partial = |place: usize| (place == 0 && start != 0) || (place == last && !end.is_multiple_of(PAGE_SIZE));
        for place in [0, last].into_iter().take(pages.len()).filter(|place| partial(*place)) {
            self.read_busy(first + place as u64, pages[place], &mut contents[place])?;
        }
        for (place, page) in contents.iter_mut().enumerate() {
            let (from, to) = (start.max(place * PAGE_SIZE), end.min((place + 1) * PAGE_SIZE));
            page.0[from - place * PAGE_SIZE..to - place * PAGE_SIZE].copy_from_slice(&bytes[from - start..to - start]);
        }
        let failed = |error| WriteError::Io { offset: first * PAGE, error };
        let file = self.opened.number;
        let failures = self.shared.engine().through.failures(file);
        let after = self.len().max(offset + bytes.len() as u64);
        if through {
            if let Err(error) = self.write_through(&contents, first, after) {
                self.refused(first, pages, failures);
                return Err(failed(error));
            }
        } else if after > self.len() {
            // The file has its length at once: what lies between is a hole until it is written.
            self.opened.backing.set_len(after).map_err(failed)?;
        }
        // Written anew as a whole; what lies beyond the end need not be.
        let written_to = offset + bytes.len() as u64;
        let ends = if written_to == after { after.div_ceil(PAGE) } else { written_to / PAGE };
        let anew = offset.div_ceil(PAGE)..ends;
        for (place, (page, contents)) in pages.iter().zip(&contents).enumerate() {
            let at = (file, first + place as u64);
            let new = New { whole: !partial(place), anew: anew.contains(&at.1), waits: !through };
            let put = self.put(at, *page, contents, new);
            if through {
                let mut engine = self.shared.engine();
                if new.anew {
                    engine.through.overwritten(at);
                }
                engine.wrote_through(at, *page, failures);
            } else if !put {
                self.write_at_once(at, *page, contents, new, after).map_err(failed)?;
            }
        }
        self.opened.length.fetch_max(after, Ordering::AcqRel);
        Ok(())
    }

    /// What the device has of pages is unknown: the next read will tell, and a device that loses it then will be told
    /// of. What waits to be written, or to become durable, is known, and is written again.
    fn refused(&self, first: u64, pages: &[PageId], failures: u64) {
        let mut engine = self.shared.engine();
        for (page, index) in pages.iter().zip(first..) {
            let at = (self.opened.number, index);
            if engine.pages.is_held(*page) {
                engine.write_failed(at, *page);
                continue;
            }
            engine.forget(*page);
            if index * PAGE < self.len() {
                engine.wrote_through(at, *page, failures);
            }
        }
    }

    /// There is no frame in which a page could wait, or be kept until it is durable: both are done now.
    fn write_at_once(&self, at: At, page: PageId, contents: &Page, new: New, length: u64) -> io::Result<()> {
        let failures = self.shared.engine().through.failures(at.0);
        let written = self.write_through(std::slice::from_ref(contents), at.1, length);
        let mut engine = self.shared.engine();
        if written.is_ok() {
            if new.anew {
                engine.through.overwritten(at);
            }
            engine.wrote_through(at, page, failures);
        } else if engine.dirty.resume(at).is_some() {
            // What it was before waited to be written.
            engine.through.lose(at);
        }
        drop(engine);
        written?;
        self.shared.settle(&self.opened, Account::Caller)?;
        self.shared.engine().through.check(at.0, at.1..at.1 + 1)
    }

    /// Writes whole pages to a file that is to have a length afterwards, or its old one if that fails.
    fn write_through(&self, contents: &[Page], first: u64, length: u64) -> io::Result<()> {
        let backing = &*self.opened.backing;
        let end = (first + contents.len() as u64) * PAGE;
        let end = if backing.takes_any_length() { end.min(length) } else { end };
        let bytes = (end - first * PAGE) as usize;
        let outcome = write_bytes(backing, &contents.iter().collect::<Vec<_>>(), bytes, first * PAGE);
        let after = if outcome.is_ok() { length } else { self.len() };
        let cut = if end > after { backing.set_len(after) } else { Ok(()) };
        outcome.and(cut)
    }

    /// The contents of a busy page, from wherever they are.
    fn read_busy(&self, index: u64, page: PageId, into: &mut Page) -> Result<(), ReadError> {
        let mut engine = self.shared.engine();
        let resident = engine.pages.is_resident(page);
        if let Some(frame) = if resident { Some(engine.frame(page)) } else { engine.reactivate(page, false) } {
            // SAFETY: the lock is held, and no other thread writes to the page; this one does not yet.
            into.0.copy_from_slice(&unsafe { self.shared.buffers.page(frame) }.0);
            return Ok(());
        }
        engine.counts.file_reads += 1;
        drop(engine);
        self.read_aside(index, into)
    }

    /// Puts the new contents of a busy page into its frame, or into a new one if there is any. Readers that have pinned
    /// the old contents go on seeing them. Returns whether it has a frame.
    ///
    /// A loss of what a page was before is mended as the page becomes dirty, under the same lock: a sync that comes
    /// between would find neither.
    fn put(&self, at: At, page: PageId, contents: &Page, new: New) -> bool {
        let New { whole: overwrites, anew, waits: dirty } = new;
        let make_dirty = |engine: &mut Engine| {
            if anew {
                engine.through.overwritten(at);
            }
            engine.make_dirty(at, page, overwrites);
        };
        let mut engine = self.shared.engine();
        engine.counts.written += 1;
        engine.asked(page, true);
        // What was evicted before is old.
        engine.pages.forget_packed(page);
        let resident = engine.pages.is_resident(page);
        // A cached page's frame is its own again, as when it is read; what it holds is old.
        let frame = if resident { Some(engine.frame(page)) } else { engine.reactivate(page, overwrites) };
        if let Some(frame) = frame.filter(|_| engine.pages.is_resident(page)) {
            // It stays from here on.
            let pin = self.shared.pin(frame);
            engine.accessed(page, true, resident);
            if dirty {
                make_dirty(&mut engine);
            }
            drop(engine);
            if self.is_alone(frame) {
                // SAFETY: the page is busy on this thread's account and the pin is its only one; readers do not find
                // it.
                unsafe { self.shared.buffers.page_mut(frame) }.0.copy_from_slice(&contents.0);
                return true;
            }
            engine = self.shared.engine();
            engine.dirty.suspend(at);
            engine.forget(page);
            // An orphan from here on, unless the others have gone.
            drop(engine);
            drop(pin);
            engine = self.shared.engine();
        } else {
            // No frame is to be had for the new contents, and what the old one holds is old, if the page came back to
            // it and had to go again at once.
            if engine.frames.is_cached(page) {
                engine.frames.discard(page);
            }
            engine.pages.forget_packed(page);
        }
        let Some((frame, _)) = engine.begin_fill(page, false) else { return false };
        drop(engine);
        // SAFETY: the page is busy on this thread's account, and the frame has no other.
        unsafe { self.shared.buffers.page_mut(frame) }.0.copy_from_slice(&contents.0);
        let mut engine = self.shared.engine();
        if dirty {
            // Before it is the policy's, which could evict it.
            make_dirty(&mut engine);
            if let Some(number) = engine.dirty.resume(at) {
                engine.dirty.again(at, page, number);
            }
        }
        engine.finish_fill(page, overwrites);
        // Busy still, on the write's account.
        engine.pages.set_busy(page, true);
        true
    }

    /// Whether this thread's pin of a busy page's frame is the only one, after those have gone that copy from it.
    fn is_alone(&self, frame: Frame) -> bool {
        for _ in 0..100 {
            if self.shared.buffers.pins.count(frame) == 1 {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }
}

/// What `wanted` bytes in all leave of a page for it.
fn part<'a>(pages: &[&'a Page], place: usize, wanted: usize) -> &'a [u8] {
    &pages[place].0[..PAGE_SIZE.min(wanted.saturating_sub(place * PAGE_SIZE))]
}

/// So many bytes of pages.
pub(crate) fn io_slices<'a>(pages: &[&'a Page], wanted: usize) -> Vec<IoSlice<'a>> {
    (0..wanted.div_ceil(PAGE_SIZE)).map(|place| IoSlice::new(part(pages, place, wanted))).collect()
}

/// Writes pages, of the last one as much as `wanted` bytes in all leave for it.
pub(crate) fn write_bytes(backing: &dyn Backing, pages: &[&Page], wanted: usize, offset: u64) -> io::Result<()> {
    let slices = io_slices(pages, wanted);
    let mut done = retried(|| backing.write(&slices, offset))?;
    let mut fruitless = 0;
    while done < wanted {
        let from = done / 512 * 512;
        let page = &part(pages, from / PAGE_SIZE, wanted)[from % PAGE_SIZE..];
        let written = retried(|| backing.write(&[IoSlice::new(page)], offset + from as u64))?;
        fruitless = if from + written > done { 0 } else { fruitless + 1 };
        if written == 0 || fruitless > 8 {
            return Err(ErrorKind::WriteZero.into());
        }
        done = from + written;
    }
    Ok(())
}

fn retried(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
