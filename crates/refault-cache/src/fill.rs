//! Reading a page: from its frame, or from the file into a frame.
//!
//! A page that is missing gets a frame and is busy until its contents are there; the lock is free meanwhile. Those that
//! follow in a sequence come along with the same call. If that call fails, the page that was asked for is tried alone:
//! what merely came along must not fail a read.

use std::io::{self, ErrorKind, IoSliceMut};
use std::sync::MutexGuard;

use refault_core::PageId;
use refault_core::frames::Frame;
use refault_store::{PAGE_SIZE, Page};

use crate::backing::Backing;
use crate::engine::Engine;
use crate::error::ReadError;
use crate::file::CachedFile;

const PAGE: u64 = PAGE_SIZE as u64;

/// What direct I/O is aligned to at least.
const SECTOR: usize = 512;

/// Why a run of pages was not read.
enum Fault {
    Io(io::Error),
    Short,
}

impl CachedFile {
    pub(crate) fn read_page(&self, index: u64, within: usize, out: &mut [u8]) -> Result<(), ReadError> {
        let mut engine = self.shared.engine();
        let page = engine.page(self.id, index)?;
        engine.asked(page, false);
        loop {
            if engine.pages.is_busy(page) {
                engine = self.shared.wait(engine, page);
            } else if engine.pages.is_resident(page) {
                let frame = engine.frame(page);
                engine.counts.hits += 1;
                engine.accessed(page, false, true);
                self.copy_out(engine, frame, within, out);
                return Ok(());
            } else if let Some(frame) = engine.reactivate(page, false) {
                engine.counts.hits += 1;
                engine.accessed(page, false, false);
                self.copy_out(engine, frame, within, out);
                return Ok(());
            } else if let Some(frame) = engine.begin_fill(page, false) {
                engine.counts.misses += 1;
                return self.fill(engine, index, (page, frame), within, out);
            } else if engine.filling == 0 {
                return Err(ReadError::NoRoom);
            } else {
                engine = self.shared.wait_for_room(engine);
            }
        }
    }

    fn fill(
        &self,
        mut engine: MutexGuard<'_, Engine>,
        index: u64,
        first: (PageId, Frame),
        within: usize,
        out: &mut [u8],
    ) -> Result<(), ReadError> {
        let mut run = vec![first];
        self.add_following(&mut engine, index, &mut run);
        drop(engine);
        let outcome = self.read_run(index, &run, within, out);
        // Failed reads of a run end with the first page alone.
        let (outcome, read) = match outcome {
            Err(_) if run.len() > 1 => {
                self.abandon(&run[1..]);
                (self.read_run(index, &run[..1], within, out), &run[..1])
            }
            outcome => (outcome, &run[..]),
        };
        let offset = index * PAGE;
        if let Err(fault) = outcome {
            self.abandon(read);
            return Err(match fault {
                Fault::Io(error) => ReadError::Io { offset, error },
                Fault::Short => ReadError::Short { offset },
            });
        }
        let mut engine = self.shared.engine();
        engine.counts.file_reads += read.len() as u64;
        engine.counts.read_ahead += read.len() as u64 - 1;
        for (page, _) in read {
            engine.finish_fill(*page, false);
        }
        engine.accessed(first.0, false, false);
        drop(engine);
        self.shared.wake(read.iter().map(|(page, _)| *page));
        Ok(())
    }

    /// Adds the pages that are to come along: missing ones, up to the end of the file, as far as there is room.
    fn add_following(&self, engine: &mut Engine, index: u64, run: &mut Vec<(PageId, Frame)>) {
        let most = self.shared.read_ahead;
        if most == 0 {
            return;
        }
        let window = self.streams.lock().expect("invariant: nothing panics under this lock").window(index, most);
        let end = (index + 1 + u64::from(window)).min(self.len().div_ceil(PAGE));
        for next in index + 1..end {
            let Ok(page) = engine.page(self.id, next) else { return };
            if engine.pages.is_resident(page) || engine.pages.is_busy(page) || engine.frames.is_cached(page) {
                return;
            }
            let Some(frame) = engine.begin_fill(page, true) else { return };
            run.push((page, frame));
        }
    }

    fn abandon(&self, run: &[(PageId, Frame)]) {
        let mut engine = self.shared.engine();
        run.iter().for_each(|(page, _)| engine.abandon_fill(*page));
        drop(engine);
        self.shared.wake(run.iter().map(|(page, _)| *page));
    }

    /// Reads pages into their frames and copies what was asked for out of the first.
    fn read_run(&self, index: u64, run: &[(PageId, Frame)], within: usize, out: &mut [u8]) -> Result<(), Fault> {
        let mut frames: Vec<_> = run.iter().map(|(_, frame)| self.shared.buffers.write(*frame)).collect();
        let mut pages: Vec<&mut Page> = frames.iter_mut().map(|frame| &mut **frame).collect();
        read_pages(&*self.backing, &mut pages, index * PAGE, self.len())?;
        out.copy_from_slice(&pages[0].0[within..within + out.len()]);
        Ok(())
    }

    /// Reads one page into memory that is not the cache's.
    pub(crate) fn read_aside(&self, index: u64, into: &mut Page) -> Result<(), ReadError> {
        let offset = index * PAGE;
        if offset >= self.len() {
            into.0.fill(0);
            return Ok(());
        }
        read_pages(&*self.backing, &mut [into], offset, self.len()).map_err(|fault| match fault {
            Fault::Io(error) => ReadError::Io { offset, error },
            Fault::Short => ReadError::Short { offset },
        })
    }
}

/// Reads pages from `offset` on from a file of `length` bytes; zeros follow its end.
fn read_pages(backing: &dyn Backing, pages: &mut [&mut Page], offset: u64, length: u64) -> Result<(), Fault> {
    let wanted = (length - offset).min(pages.len() as u64 * PAGE) as usize;
    let mut done = {
        let mut slices: Vec<IoSliceMut<'_>> = pages.iter_mut().map(|page| IoSliceMut::new(&mut page.0)).collect();
        retried(|| backing.read(&mut slices, offset))?
    };
    // What a short read left out, page by page, from the last sector that is whole.
    let mut fruitless = 0;
    while done < wanted {
        let from = done / SECTOR * SECTOR;
        let page = &mut pages[from / PAGE_SIZE].0[from % PAGE_SIZE..];
        let read = retried(|| backing.read(&mut [IoSliceMut::new(page)], offset + from as u64))?;
        fruitless = if from + read > done { 0 } else { fruitless + 1 };
        if read == 0 || fruitless > 8 {
            return Err(Fault::Short);
        }
        done = from + read;
    }
    for (number, page) in pages.iter_mut().enumerate() {
        let valid = wanted.saturating_sub(number * PAGE_SIZE).min(PAGE_SIZE);
        page.0[valid..].fill(0);
    }
    Ok(())
}

fn retried(mut call: impl FnMut() -> io::Result<usize>) -> Result<usize, Fault> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            outcome => return outcome.map_err(Fault::Io),
        }
    }
}
