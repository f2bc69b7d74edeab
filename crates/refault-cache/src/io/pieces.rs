//! Writing pages and parts of pages to what is below a file, to their ends.
//!
//! A write that falls short goes on from the last sector that is whole. If that gets no further, and any bytes are taken,
//! it goes on from the byte where it ended: so what is in the way there is told. One that was interrupted is made again.

use std::io::{self, ErrorKind, IoSlice};

use refault_store::{PAGE_SIZE, Page};

use crate::io::backing::Backing;

/// Pages as a call takes them.
pub(crate) fn io_slices<'a>(pages: &[&'a Page]) -> Vec<IoSlice<'a>> {
    pages.iter().map(|page| IoSlice::new(&page.0)).collect()
}

/// Writes whole pages.
pub(crate) fn write_pages(backing: &dyn Backing, pages: &[&Page], offset: u64) -> io::Result<()> {
    let (slices, wanted) = (io_slices(pages), pages.len() * PAGE_SIZE);
    let mut done = retried(|| backing.write(&slices, offset))?;
    let mut fruitless = 0;
    while done < wanted {
        let from = if fruitless > 0 && backing.takes_any_bytes() { done } else { done / 512 * 512 };
        let page = &pages[from / PAGE_SIZE].0[from % PAGE_SIZE..];
        let written = retried(|| backing.write(&[IoSlice::new(page)], offset + from as u64))?;
        fruitless = if from + written > done { 0 } else { fruitless + 1 };
        if written == 0 || fruitless > 8 {
            return Err(ErrorKind::WriteZero.into());
        }
        done = from + written;
    }
    Ok(())
}

/// Writes bytes to what takes them at any place.
pub(crate) fn write_part(backing: &dyn Backing, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match retried(|| backing.write(&[IoSlice::new(&bytes[done..])], offset + done as u64))? {
            0 => return Err(ErrorKind::WriteZero.into()),
            written => done += written,
        }
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
