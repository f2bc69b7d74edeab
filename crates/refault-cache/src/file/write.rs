//! Writing: through to the file first, then into the cache; or into the cache, from where it is written later
//! ([`crate::writeback`]).
//!
//! The pages of a write are taken busy in the order of the file. So two writers never wait for each other in a circle.
//! Readers wait for nothing while they hold a page. The pages' new contents are put together in private buffers,
//! because the frames belong to readers until the device has answered. A page that is written in part is taken from its
//! frame or read before. Written pages are admitted: what is written is likely to be read.
//!
//! Of a page that is written in part those bytes alone are written to the file ([`crate::writeback::parts`]). So what
//! another program has put beside them remains, and the file is never made shorter. Where what is below takes whole
//! pages only ([`Backing::takes_any_bytes`]), it is cut to its length again; writes that touch its end follow each
//! other, so that none cuts off what another added.

use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;

use refault_core::PageId;
use refault_core::frames::Frame;
use refault_store::{PAGE_SIZE, Page};

use crate::engine::Engine;
use crate::error::{ReadError, WriteError};
use crate::file::CachedFile;
use crate::io::backing::Backing;
use crate::io::pieces::{write_pages, write_part};
use crate::writeback::account::Account;
use crate::writeback::dirty::At;
use crate::writeback::parts::Parts;

const PAGE: u64 = PAGE_SIZE as u64;

/// Pages that are written by one call.
const AT_ONCE: usize = 64;

/// How a page is written.
#[derive(Clone, Copy)]
struct New {
    /// What of it.
    parts: Parts,
    /// All of it that is within the file.
    anew: bool,
    /// The device gets it later.
    waits: bool,
}

impl CachedFile {
    /// Writes at any offset and length; the file grows if need be. When this returns, the device has whole pages, and
    /// the kernel what is none, and readers see it; [`CachedFile::sync`] makes it durable. Writes of more than 256 KiB
    /// are written in such parts, in order.
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
                    let failed = |error| WriteError::Io { offset: at, error };
                    self.write_ragged(at / PAGE).and(self.write_ragged((at + part as u64) / PAGE)).map_err(failed)?;
                    balanced.map_err(failed)?
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

    /// Writes what waits of a page if it is in as many parts as can be told apart.
    fn write_ragged(&self, index: u64) -> io::Result<()> {
        let waits = self.shared.engine().dirty.parts((self.opened.number, index));
        match waits {
            Some(parts) if parts.is_full() => self.shared.write_range(&self.opened, index..index + 1, u64::MAX),
            _ => Ok(()),
        }
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
            if let Err(error) = self.write_through(&contents, first, start..end, after) {
                self.follow_length(after);
                self.refused(first, pages, start..end, failures);
                return Err(failed(error));
            }
        } else if after > self.len() {
            // The file has its length at once: what lies between is a hole until it is written.
            self.opened.backing.lengthen(offset.max(self.len())..after).map_err(failed)?;
        }
        // Written anew as a whole; what lies beyond the end need not be.
        let written_to = offset + bytes.len() as u64;
        let ends = if written_to == after { after.div_ceil(PAGE) } else { written_to / PAGE };
        let anew = offset.div_ceil(PAGE)..ends;
        for (place, (page, contents)) in pages.iter().zip(&contents).enumerate() {
            let at = (file, first + place as u64);
            let parts = parts_within(start..end, place);
            let new = New { parts, anew: anew.contains(&at.1), waits: !through };
            let put = self.put(at, *page, contents, new);
            let mut engine = self.shared.engine();
            // What waited of a page that has left its frame, and got no other, has to be written as well.
            if through && (put || engine.dirty.suspended(at).is_none()) {
                if new.anew {
                    engine.through.overwritten(at);
                }
                engine.wrote_through(at, *page, failures, parts);
            } else if !put {
                drop(engine);
                let written = self.write_at_once(at, *page, contents, new, after);
                written.inspect_err(|_| self.follow_length(after)).map_err(failed)?;
            }
        }
        self.opened.length.fetch_max(after, Ordering::AcqRel);
        Ok(())
    }

    /// A write that was to make the file longer has failed: as far as it came, the file is longer, where it is not cut
    /// off.
    fn follow_length(&self, after: u64) {
        if after > self.len()
            && self.opened.backing.takes_any_bytes()
            && let Ok(bytes) = self.opened.backing.len()
        {
            self.opened.length.fetch_max(bytes.min(after), Ordering::AcqRel);
        }
    }

    /// What the device has of pages is unknown: the next read will tell, and a device that loses it then will be told
    /// of. What waits to be written, or to become durable, is known, and is written again.
    fn refused(&self, first: u64, pages: &[PageId], range: Range<usize>, failures: u64) {
        let mut engine = self.shared.engine();
        for (place, (page, index)) in pages.iter().zip(first..).enumerate() {
            let at = (self.opened.number, index);
            if engine.pages.is_held(*page) {
                engine.write_failed(at, *page, parts_within(range.clone(), place));
                continue;
            }
            engine.forget(*page);
            if index * PAGE < self.len() {
                engine.wrote_through(at, *page, failures, Parts::WHOLE);
            }
        }
    }

    /// There is no frame in which a page could wait, or be kept until it is durable: both are done now.
    fn write_at_once(&self, at: At, page: PageId, contents: &Page, new: New, length: u64) -> io::Result<()> {
        let engine = self.shared.engine();
        let failures = engine.through.failures(at.0);
        let parts = engine.dirty.suspended(at).map_or(new.parts, |waits| waits.and(new.parts));
        drop(engine);
        let mut spans = parts.spans();
        let written = spans.try_for_each(|span| self.write_through(std::slice::from_ref(contents), at.1, span, length));
        let mut engine = self.shared.engine();
        if written.is_ok() {
            if new.anew {
                engine.through.overwritten(at);
            }
            engine.wrote_through(at, page, failures, parts);
        } else if engine.dirty.resume(at).is_some() {
            // What it was before waited to be written.
            engine.through.lose(at);
        }
        drop(engine);
        written?;
        self.shared.settle(&self.opened, Account::Caller)?;
        self.shared.engine().through.check(at.0, at.1..at.1 + 1)
    }

    /// Writes a range of pages' bytes to the file. Where the file takes whole pages only, writes the pages as they are.
    /// Then the file is to have a length afterwards, or its old one if that fails.
    fn write_through(&self, contents: &[Page], first: u64, range: Range<usize>, length: u64) -> io::Result<()> {
        let backing = &*self.opened.backing;
        if backing.takes_any_bytes() {
            return write_range(backing, contents, first * PAGE, range);
        }
        let end = (first + contents.len() as u64) * PAGE;
        let outcome = write_pages(backing, &contents.iter().collect::<Vec<_>>(), first * PAGE);
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
        let New { parts, anew, waits: dirty } = new;
        let overwrites = parts.is_whole();
        let make_dirty = |engine: &mut Engine| {
            if anew {
                engine.through.overwritten(at);
            }
            engine.make_dirty(at, page, parts);
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
            // No frame is to be had for the new contents. What the old one holds is old, if the page returned to it and
            // was evicted again at once.
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
            if let Some((number, waits)) = engine.dirty.resume(at) {
                engine.dirty.again(at, page, number, waits);
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

/// What a range of the bytes of pages has of one of them, which it touches.
fn parts_within(range: Range<usize>, place: usize) -> Parts {
    let start = place * PAGE_SIZE;
    Parts::of(range.start.saturating_sub(start)..(range.end - start).min(PAGE_SIZE))
}

/// Writes a range of the bytes of pages that begin at an offset, and no others: whole pages together, and before and
/// after them parts of pages.
fn write_range(backing: &dyn Backing, pages: &[Page], offset: u64, range: Range<usize>) -> io::Result<()> {
    let (first, end) = (range.start.div_ceil(PAGE_SIZE), range.end / PAGE_SIZE);
    let part = |page: usize, span: Range<usize>| {
        write_part(backing, &pages[page].0[span.clone()], offset + (page * PAGE_SIZE + span.start) as u64)
    };
    if first > end {
        return part(end, range.start % PAGE_SIZE..range.end % PAGE_SIZE);
    }
    if !range.start.is_multiple_of(PAGE_SIZE) {
        part(first - 1, range.start % PAGE_SIZE..PAGE_SIZE)?;
    }
    if first < end {
        write_pages(backing, &pages[first..end].iter().collect::<Vec<_>>(), offset + (first * PAGE_SIZE) as u64)?;
    }
    if range.end.is_multiple_of(PAGE_SIZE) { Ok(()) } else { part(end, 0..range.end % PAGE_SIZE) }
}
