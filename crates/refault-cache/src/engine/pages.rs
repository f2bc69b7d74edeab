//! What the policy sees of the cache's pages.
//!
//! Pages are never mapped: accesses reach the policy by a call, or as the accessed bit of those that want it so. A page
//! that is pinned, dirty, or not durable yet cannot go. Cost: 9 bytes per page number, and what
//! [`crate::engine::groups`] costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use refault_core::frames::Frame;
use refault_core::memory::{Eviction, IoState, Memory, References};
use refault_core::{PageId, Shadow};
use refault_store::Slot;

use crate::engine::buffers::Buffers;
use crate::engine::compressed::{Compressed, Leftover, Outcome};
use crate::engine::groups::Groups;
use crate::engine::pins::{FRAME, HIDDEN, MARKER, MARKS, NOWHERE, UNREAD};
use crate::engine::table::{GROUP, Table};
use crate::writeback::dirty::At;

/// In a frame, and the policy knows it.
const RESIDENT: u8 = 1;
/// Being filled or written: other users wait.
const BUSY: u8 = 2;
/// Accessed since the policy last looked.
const ACCESSED: u8 = 4;
/// Read ahead, and not asked for yet.
const AHEAD: u8 = 8;
/// Written to, and the file does not have it.
const DIRTY: u8 = 16;
/// Being written to the file: readers may read it, writers wait.
const WRITING: u8 = 32;
/// The file has it, but not for certain.
const UNSTABLE: u8 = 64;
/// Its frame has what was written through, and the device has that, but not for certain. It may go.
const THROUGH: u8 = 128;
/// Its number is its own.
const USED: u8 = RESIDENT | BUSY;
/// Cannot go.
const HELD: u8 = DIRTY | WRITING | UNSTABLE;

pub(crate) struct Pages {
    flags: Vec<u8>,
    shadows: Vec<u64>,
    /// The pages' numbers.
    pub(crate) groups: Groups,
    buffers: Arc<Buffers>,
    start: Instant,
    /// Evicted pages that are compressed, if any are to be.
    compressed: Option<Box<Compressed>>,
}

impl Pages {
    pub(crate) fn new(buffers: Arc<Buffers>, table: Arc<Table>, compressed: Option<Box<Compressed>>) -> Pages {
        let (flags, shadows, groups) = (Vec::new(), Vec::new(), Groups::new(table));
        Pages { flags, shadows, groups, buffers, start: Instant::now(), compressed }
    }

    pub(crate) fn grow(&mut self, pages: usize) {
        self.flags.resize(pages, 0);
        self.shadows.resize(pages, 0);
        self.groups.grow(pages);
        if let Some(compressed) = &mut self.compressed {
            compressed.grow(pages);
        }
    }

    #[inline]
    fn word(&self, page: PageId) -> &AtomicU32 {
        self.groups.table().group(page / GROUP).word(page % GROUP)
    }

    /// Where readers find a resident page.
    #[cfg(test)]
    pub(crate) fn frame(&self, page: PageId) -> Frame {
        self.word(page).load(Ordering::Relaxed) & FRAME
    }

    /// Changes a page's flags, and says whether its number is its own.
    #[inline]
    fn change(&mut self, page: PageId, change: impl FnOnce(u8) -> u8) -> u8 {
        let before = self.flags[page as usize];
        let after = change(before);
        self.flags[page as usize] = after;
        match (before & USED != 0, after & USED != 0) {
            (false, true) => self.groups.begin_use(page),
            (true, false) => self.groups.end_use(page),
            _ => {}
        }
        after
    }

    /// A number is to stand for another page.
    pub(crate) fn clear(&mut self, page: PageId) {
        self.change(page, |_| 0);
        self.shadows[page as usize] = 0;
    }

    pub(crate) fn is_resident(&self, page: PageId) -> bool {
        self.flags[page as usize] & RESIDENT != 0
    }

    pub(crate) fn is_busy(&self, page: PageId) -> bool {
        self.flags[page as usize] & BUSY != 0
    }

    /// Other users wait for the page from now on, or no longer. Readers without the lock find it only if it is not.
    pub(crate) fn set_busy(&mut self, page: PageId, busy: bool) {
        let flags = self.change(page, |flags| if busy { flags | BUSY } else { flags & !BUSY });
        if flags & RESIDENT != 0 {
            let word = self.word(page);
            if busy {
                word.fetch_or(HIDDEN, Ordering::SeqCst);
            } else {
                word.fetch_and(!HIDDEN, Ordering::SeqCst);
            }
        }
    }

    /// The page is resident in a frame, and readers find it there, unless it is busy. `marks`: those of [`MARKS`] that
    /// the first of them takes off.
    pub(crate) fn arrives(&mut self, page: PageId, frame: Frame, marks: u32) {
        let ahead = if marks & UNREAD != 0 { AHEAD } else { 0 };
        let flags = self.change(page, |flags| flags | RESIDENT | ahead);
        let word = if flags & BUSY != 0 { frame | HIDDEN } else { frame };
        self.buffers.unread.fetch_add(u32::from(marks & UNREAD != 0), Ordering::Relaxed);
        self.word(page).store(word | marks, Ordering::SeqCst);
    }

    /// A resident page's contents move to another frame, unless it is busy, being written, or pinned. True if they did:
    /// its frame is read by no thread then. Under the engine's lock; the other frame belongs to no page.
    pub(crate) fn relocate(&mut self, page: PageId, to: Frame) -> bool {
        let flags = self.flags[page as usize];
        if flags & RESIDENT == 0 || flags & (BUSY | WRITING) != 0 {
            return false;
        }
        let Some(before) = self.buffers.pins.take(self.word(page)) else { return false };
        // SAFETY: no thread pins the page's frame and no word names it any more, so no thread writes it. Only this
        // thread has the other frame, which is not the same.
        unsafe { self.buffers.page_mut(to).0.copy_from_slice(&self.buffers.page(before & FRAME).0) };
        self.word(page).store(to | before & MARKS, Ordering::SeqCst);
        true
    }

    /// The page is resident no more. Whether its frame can be used again is seen by the frame's pins afterwards.
    pub(crate) fn goes(&mut self, page: PageId) {
        let before = self.word(page).swap(NOWHERE, Ordering::SeqCst);
        self.unread_goes(before);
        self.change(page, |flags| flags & !(RESIDENT | ACCESSED | AHEAD | HELD | THROUGH));
    }

    /// Whether the page's contents are in memory although it is not resident: compressed, or on their way to that.
    pub(crate) fn is_packed(&self, page: PageId) -> bool {
        self.compressed.as_ref().is_some_and(|compressed| compressed.has(page))
    }

    /// Where they are; the caller's from now on.
    pub(crate) fn take_packed(&mut self, page: PageId) -> Option<Slot> {
        self.compressed.as_mut().and_then(|compressed| compressed.take(page))
    }

    /// A compressed copy of the page is not to be used any more.
    pub(crate) fn forget_packed(&mut self, page: PageId) {
        if let Some(compressed) = &mut self.compressed {
            compressed.forget(page);
        }
    }

    /// A frame is taken to be filled: the evicted page whose bytes are in it.
    pub(crate) fn leftover(&mut self, frame: Frame) -> Option<Leftover> {
        self.compressed.as_mut().and_then(|compressed| compressed.leftover(frame))
    }

    /// Whether a free frame has an evicted page's bytes that are to be compressed.
    pub(crate) fn has_leftover(&self, frame: Frame) -> bool {
        self.compressed.as_ref().is_some_and(|compressed| compressed.has_leftover(frame))
    }

    /// The free frame that has an evicted page's bytes still.
    pub(crate) fn free_frame(&self, page: PageId) -> Option<Frame> {
        self.compressed.as_ref().and_then(|compressed| compressed.free_frame(page))
    }

    /// What came of that.
    pub(crate) fn keep(&mut self, outcomes: Vec<(Leftover, Outcome)>) {
        if let Some(compressed) = &mut self.compressed {
            outcomes.into_iter().for_each(|(leftover, outcome)| compressed.keep(leftover, outcome));
        }
    }

    /// Pages that are compressed.
    pub(crate) fn packed(&self) -> u32 {
        self.compressed.as_ref().map_or(0, |compressed| compressed.pages)
    }

    fn set(&mut self, page: PageId, flag: u8, on: bool) {
        let flags = &mut self.flags[page as usize];
        *flags = if on { *flags | flag } else { *flags & !flag };
    }

    pub(crate) fn set_dirty(&mut self, page: PageId, dirty: bool) {
        self.set(page, DIRTY, dirty);
    }

    pub(crate) fn set_writing(&mut self, page: PageId, writing: bool) {
        self.set(page, WRITING, writing);
    }

    pub(crate) fn set_unstable(&mut self, page: PageId, unstable: bool) {
        self.set(page, UNSTABLE, unstable);
    }

    /// Whether the page's frame has what was written through and is not durable yet.
    pub(crate) fn set_through(&mut self, page: PageId, through: bool) {
        self.set(page, THROUGH, through);
    }

    pub(crate) fn is_through(&self, page: PageId) -> bool {
        self.flags[page as usize] & THROUGH != 0
    }

    /// The page of a place, if its frame has what was written through and is not durable yet.
    pub(crate) fn through(&self, (file, index): At) -> Option<PageId> {
        self.groups.find(file, index).filter(|page| self.is_through(*page))
    }

    /// Whether a thread writes the page to its file.
    pub(crate) fn is_writing(&self, page: PageId) -> bool {
        self.flags[page as usize] & WRITING != 0
    }

    /// Whether the page cannot go because of writes.
    pub(crate) fn is_held(&self, page: PageId) -> bool {
        self.flags[page as usize] & HELD != 0
    }

    /// File number and place of a page of an open file.
    pub(crate) fn place(&self, page: PageId) -> At {
        let (file, place) = self.groups.table().of(page / GROUP);
        (file, u64::from(place) * u64::from(GROUP) + u64::from(page % GROUP))
    }

    pub(crate) fn set_accessed(&mut self, page: PageId) {
        self.flags[page as usize] |= ACCESSED;
    }

    /// Takes the marks off a resident page that is read. True if its reader is to read ahead.
    pub(crate) fn take_mark(&mut self, page: PageId) -> bool {
        let marked = |word: u32| (word != NOWHERE && word & MARKS != 0).then_some(word & !MARKS);
        let taken = self.word(page).fetch_update(Ordering::SeqCst, Ordering::SeqCst, marked);
        taken.is_ok_and(|before| {
            self.unread_goes(before);
            before & MARKER != 0
        })
    }

    /// A page's word was this, and it was taken from readers.
    fn unread_goes(&self, before: u32) {
        if before != NOWHERE && before & UNREAD != 0 {
            self.buffers.unread.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A read has asked for the page. Returns whether it was read ahead and is asked for the first time.
    pub(crate) fn wanted(&mut self, page: PageId) -> bool {
        let flags = &mut self.flags[page as usize];
        let first = *flags & AHEAD != 0;
        *flags &= !AHEAD;
        first
    }

    pub(crate) fn take_shadow(&mut self, page: PageId) -> Option<Shadow> {
        let word = std::mem::take(&mut self.shadows[page as usize]);
        (word != 0).then_some(Shadow(word))
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        let compressed = self.compressed.as_ref().map_or(0, |compressed| compressed.metadata_bytes());
        self.flags.capacity() + self.shadows.capacity() * 8 + self.groups.metadata_bytes() + compressed
    }
}

impl Memory for Pages {
    fn take_references(&mut self, page: PageId) -> References {
        let flags = &mut self.flags[page as usize];
        let accessed = *flags & ACCESSED != 0;
        *flags &= !ACCESSED;
        References { mappings: u32::from(accessed), executable: false, locked: false }
    }

    #[inline]
    fn is_resident(&self, page: PageId) -> bool {
        Pages::is_resident(self, page)
    }

    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        debug_assert!(self.is_resident(page), "invariant: only what was admitted is evicted");
        if self.is_held(page) {
            return Eviction::Kept;
        }
        let Some(word) = self.buffers.pins.take(self.word(page)) else { return Eviction::Kept };
        if let Some(compressed) = &mut self.compressed {
            compressed.evicted(page, word & FRAME);
        }
        // That the policy has not heard of a reader does not mean that there was none.
        let unread = self.flags[page as usize] & AHEAD != 0 && word & UNREAD != 0;
        self.unread_goes(word);
        self.change(page, |flags| flags & !(RESIDENT | ACCESSED | AHEAD | THROUGH));
        self.shadows[page as usize] = shadow.0;
        if unread && let Some(count) = self.groups.unread(page) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Eviction::Freed { pages_written: 0 }
    }

    fn io_state(&self, page: PageId) -> IoState {
        match self.flags[page as usize] & HELD {
            0 => IoState::CLEAN,
            DIRTY => IoState::DIRTY,
            held if held & DIRTY == 0 => IoState::WRITEBACK,
            _ => IoState::DIRTY.with(IoState::WRITEBACK),
        }
    }

    fn unread(&self) -> u32 {
        self.buffers.unread.load(Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}
