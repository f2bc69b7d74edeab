//! Hits: reading pages that are there, without the engine's lock.
//!
//! A reader finds the page's word in the cache's table, pins the frame that it names, and looks again: if the word is
//! the same, and still the page's, the frame is the page's for as long as it is pinned. Cost of a hit: two additions to
//! the frame's pins, one to a ring of [`crate::engine::references`], and the copy.

use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use refault_core::PageId;
use refault_store::PAGE_SIZE;

use crate::engine::pins::{FRAME, MARKER, MARKS, NOWHERE, UNREAD};
use crate::error::ReadError;
use crate::file::CachedFile;
use crate::file::shared::Pin;

const PAGE: u64 = PAGE_SIZE as u64;

/// Looks at a word that is away for a moment; if it stays away, the page is gone.
const MAX_LOOKS: u32 = 100;

/// Bytes of a file where they are in the cache, without a copy, from [`CachedFile::pin`]. Pages that are pinned cannot
/// be evicted: their memory is the cache's, so pin little and not for long. What is written to the file or cut off
/// meanwhile does not change what is seen here.
pub struct Pinned<'a> {
    pages: Pages<'a>,
    /// Where it begins in the first page, and how many bytes there are.
    within: usize,
    bytes: usize,
}

/// One page needs no memory of its own.
enum Pages<'a> {
    None,
    One(Pin<'a>),
    Many(Vec<Pin<'a>>),
}

impl Pinned<'_> {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The bytes in order, page by page: pages that follow each other in the file do not in memory.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let pins = match &self.pages {
            Pages::None => &[],
            Pages::One(pin) => std::slice::from_ref(pin),
            Pages::Many(pins) => &pins[..],
        };
        let end = self.within + self.bytes;
        pins.iter().enumerate().map(move |(place, pin)| {
            let (from, to) = ((place * PAGE_SIZE).max(self.within), ((place + 1) * PAGE_SIZE).min(end));
            &pin.page().0[from - place * PAGE_SIZE..to - place * PAGE_SIZE]
        })
    }

    /// All of it, if it lies in one page.
    pub fn as_slice(&self) -> Option<&[u8]> {
        match &self.pages {
            Pages::None => Some(&[]),
            Pages::One(pin) => Some(&pin.page().0[self.within..self.within + self.bytes]),
            Pages::Many(_) => None,
        }
    }
}

impl CachedFile {
    /// Reads from `offset` on, up to the end of the file. Returns the bytes read: fewer than asked for only at the end.
    /// Any offset and length will do. Cost: of pages that are there a copy, without a lock; pages that are not and that
    /// follow each other are read from the file together, up to 1 MiB at a time.
    ///
    /// # Errors
    /// See [`ReadError`]. The buffer may have been filled in part.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, ReadError> {
        let wanted = self.len().saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < wanted {
            let at = offset + done as u64;
            let (index, within) = (at / PAGE, (at % PAGE) as usize);
            let part = (PAGE_SIZE - within).min(wanted - done);
            done += if self.copy_found(index, within, &mut buffer[done..done + part]) {
                part
            } else {
                self.read_missing(index, within, &mut buffer[done..wanted])?
            };
        }
        Ok(done)
    }

    /// Reads from `offset` on, up to the first page that is not in memory or the end of the file, and returns the
    /// bytes: what [`CachedFile::read_at`] would read without waiting for the device.
    pub fn read_found_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        let wanted = self.len().saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < wanted {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let part = (PAGE_SIZE - within).min(wanted - done);
            if !self.copy_found(at / PAGE, within, &mut buffer[done..done + part]) {
                break;
            }
            done += part;
        }
        done
    }

    /// Copies from a page that is there, and notes the hit. False if it is not there.
    #[inline]
    pub(crate) fn copy_found(&self, index: u64, within: usize, into: &mut [u8]) -> bool {
        let Some((pin, page)) = self.find(index, within) else { return false };
        into.copy_from_slice(&pin.page().0[within..within + into.len()]);
        drop(pin);
        self.note(page);
        true
    }

    /// Reads into several buffers, one after the other. Returns the bytes read: fewer than asked for only at the end.
    ///
    /// # Errors
    /// See [`ReadError`]. The buffers may have been filled in part.
    pub fn read_vectored_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, ReadError> {
        let mut done = 0;
        for buffer in buffers {
            let read = self.read_at(buffer, offset.saturating_add(done as u64))?;
            done += read;
            if read < buffer.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Bytes of the file where they are, for as long as the value lives; up to the end of the file.
    ///
    /// # Errors
    /// See [`ReadError`]; [`ReadError::NoRoom`] also if more is pinned than memory has room for.
    ///
    /// ```no_run
    /// # let cache = refault_cache::PageCache::new(&refault_cache::CacheOptions::default())?;
    /// let file = cache.open("data.bin".as_ref())?;
    /// let header = file.pin(0..64)?;
    /// assert_eq!(&header.as_slice().expect("within one page")[..4], b"DATA");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pin(&self, range: Range<u64>) -> Result<Pinned<'_>, ReadError> {
        let end = range.end.min(self.len());
        if range.start >= end {
            return Ok(Pinned { pages: Pages::None, within: 0, bytes: 0 });
        }
        let (first, last) = (range.start / PAGE, (end - 1) / PAGE);
        if last - first >= self.shared.buffers.pins.len() as u64 {
            // Found out in the end, after everything else had to go.
            return Err(ReadError::NoRoom);
        }
        let pages = if first == last {
            Pages::One(self.pin_page(first, (range.start % PAGE) as usize)?)
        } else {
            Pages::Many((first..=last).map(|index| self.pin_page(index, 0)).collect::<Result<_, _>>()?)
        };
        let bytes = usize::try_from(end - range.start).map_err(|_| ReadError::TooManyPages)?;
        Ok(Pinned { pages, within: (range.start % PAGE) as usize, bytes })
    }

    fn pin_page(&self, index: u64, within: usize) -> Result<Pin<'_>, ReadError> {
        loop {
            if let Some((pin, page)) = self.find(index, within) {
                self.note(page);
                return Ok(pin);
            }
            if let Some(pin) = self.pin_missing(index)? {
                return Ok(pin);
            }
        }
    }

    /// The page's frame, pinned, and its number, if it is there for everybody.
    #[inline]
    fn find(&self, index: u64, within: usize) -> Option<(Pin<'_>, PageId)> {
        if !self.origin.is_here() {
            return None;
        }
        let found = self.table.look_up(self.number, index)?;
        // What a pin does to memory keeps later reads waiting, so that of the contents begins before.
        self.shared.buffers.fetch(found.word.load(Ordering::Relaxed) & FRAME, within);
        let now = self.shared.buffers.pins.look(found.word, |frame| self.shared.bury(frame))?;
        let pin = Pin { shared: &self.shared, frame: now & FRAME };
        if !found.is_still(now) {
            return None;
        }
        if now & MARKS != 0 {
            self.unmark(found.word, now, index);
        }
        Some((pin, found.page))
    }

    /// A page that was read ahead has a reader, this thread or another that was first.
    fn unmark(&self, word: &AtomicU32, now: u32, index: u64) {
        let mut looks = 0;
        loop {
            match word.compare_exchange(now, now & !MARKS, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => break,
                // Who looks for pins takes the word away for a moment, and puts it back because of this reader's.
                Err(NOWHERE) if looks < MAX_LOOKS => {
                    looks += 1;
                    std::hint::spin_loop();
                }
                Err(_) => return,
            }
        }
        if now & UNREAD != 0 {
            self.shared.buffers.unread.fetch_sub(1, Ordering::Relaxed);
        }
        if now & MARKER != 0 {
            self.arrived(index, false);
        }
    }

    /// The policy is to hear of a hit.
    #[inline]
    fn note(&self, page: PageId) {
        if self.shared.references.note(page) {
            self.shared.drain();
        }
    }
}
