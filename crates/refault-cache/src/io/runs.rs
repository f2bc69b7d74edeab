//! Runs of pages from a file into their frames: one by one, or several by one call.
//!
//! A short read goes on from the last sector that is whole, and zeros follow the end of the file. What fell short, or
//! failed for a moment, among several runs is read alone. Invariant: the pages of a run are busy on the account of the
//! thread that has it, so no other thread refers to their frames.

use std::io::{self, ErrorKind, IoSliceMut};

use refault_core::PageId;
use refault_core::frames::Frame;
use refault_store::{PAGE_SIZE, Page};

use crate::engine::buffers::Buffers;
use crate::io::backing::{Backing, ReadPiece};
use crate::io::opened::Opened;
use crate::io::run::{Fault, Run};

const PAGE: u64 = PAGE_SIZE as u64;

/// What direct I/O is aligned to at least.
const SECTOR: usize = 512;

/// Reads the pages of several runs of a file, by one call.
pub(crate) fn read_runs(file: &Opened, buffers: &Buffers, runs: &[&Run]) -> Vec<Result<(), Fault>> {
    // SAFETY: the pages are busy on the account of the thread that has the runs, each with a frame of its own.
    let slice = |(_, frame): &(PageId, Frame)| IoSliceMut::new(&mut unsafe { buffers.page_mut(*frame) }.0);
    let mut pieces: Vec<ReadPiece<'_>> =
        runs.iter().map(|run| (run.pages.iter().map(slice).collect(), run.index * PAGE)).collect();
    let read = file.backing.read_many(&mut pieces);
    drop(pieces);
    let whole = |(run, outcome): (&&Run, io::Result<usize>)| {
        let length = file.len().saturating_sub(run.index * PAGE).min((run.pages.len() * PAGE_SIZE) as u64) as usize;
        match outcome {
            // What fell short, or failed for a moment, is read alone.
            Ok(bytes) if bytes < length || length == 0 => read_run(file, buffers, run),
            Err(error) if error.kind() == ErrorKind::Interrupted => read_run(file, buffers, run),
            Ok(_) => {
                // SAFETY: as above; the pieces are gone.
                run.pages
                    .iter()
                    .enumerate()
                    .for_each(|(place, (_, frame))| zero_beyond(unsafe { buffers.page_mut(*frame) }, place, length));
                Ok(())
            }
            Err(error) => Err(Fault::Io(error)),
        }
    };
    runs.iter().zip(read).map(whole).collect()
}

/// Makes zeros of what a page has beyond the first `bytes` bytes of its run.
fn zero_beyond(page: &mut Page, place: usize, bytes: usize) {
    let valid = bytes.saturating_sub(place * PAGE_SIZE).min(PAGE_SIZE);
    page.0[valid..].fill(0);
}

/// Reads the pages of a run into their frames.
pub(crate) fn read_run(file: &Opened, buffers: &Buffers, run: &Run) -> Result<(), Fault> {
    // SAFETY: the pages are busy on the account of the thread that has the run, each with a frame of its own.
    let mut pages: Vec<&mut Page> = run.pages.iter().map(|(_, frame)| unsafe { buffers.page_mut(*frame) }).collect();
    read_pages(&*file.backing, &mut pages, run.index * PAGE, file.len())
}

/// Reads pages from `offset` on from a file of `length` bytes; zeros follow its end.
pub(crate) fn read_pages(
    backing: &dyn Backing,
    pages: &mut [&mut Page],
    offset: u64,
    length: u64,
) -> Result<(), Fault> {
    let wanted = length.saturating_sub(offset).min(pages.len() as u64 * PAGE) as usize;
    if wanted == 0 {
        // It was cut off meanwhile.
        return Err(Fault::Short);
    }
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
    pages.iter_mut().enumerate().for_each(|(place, page)| zero_beyond(page, place, wanted));
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
