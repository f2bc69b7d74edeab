//! How readers without a lock and those who take pages away agree: a word per page and a count of pins per frame.
//!
//! A page's word names the frame that it is in. Who reads a frame pins it first and then looks whether the word still
//! names it; who takes a page from its frame changes the word first and then looks for pins. One of the two sees the
//! other. So no thread reads a frame that is found without pins after its page's word has changed: a reader that comes
//! too late pins it for a moment, and leaves it without a look.
//!
//! A frame whose page goes although it is pinned becomes an *orphan*: it belongs to no page, and is free when its last
//! pin goes.
//!
//! Invariants: words are changed under the engine's lock, except that a reader takes [`MARKS`] off. Cost: 4 bytes per
//! frame; two additions per look. Checked with random schedules in `tests/pins_model.rs`, which compiles this file over
//! shuttle.

use crate::sync::{AtomicU32, Ordering};

/// Not for readers without the lock: the page is not resident, or is being written.
pub(crate) const HIDDEN: u32 = 1 << 31;
/// Who reads this page is to read ahead.
pub(crate) const MARKER: u32 = 1 << 30;
/// The page was read ahead, and no thread has read it.
pub(crate) const UNREAD: u32 = 1 << 29;
/// What the first reader takes off.
pub(crate) const MARKS: u32 = MARKER | UNREAD;
/// The frame's bits.
pub(crate) const FRAME: u32 = UNREAD - 1;
/// A page without a frame.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// The frame has no page any more, and goes with its last pin.
const ORPHAN: u32 = 1 << 31;

/// The pins of all frames.
pub(crate) struct Pins(Box<[AtomicU32]>);

impl Pins {
    pub(crate) fn new(frames: usize) -> Pins {
        Pins((0..frames).map(|_| AtomicU32::new(0)).collect())
    }

    /// Frames.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// One more reader. It may read only after it has seen that the frame is still its page's.
    #[inline]
    pub(crate) fn pin(&self, frame: u32) {
        self.0[frame as usize].fetch_add(1, Ordering::SeqCst);
    }

    /// One less. True if the frame is an orphan and no other thread reads it: see [`Pins::bury`].
    #[inline]
    pub(crate) fn unpin(&self, frame: u32) -> bool {
        self.0[frame as usize].fetch_sub(1, Ordering::AcqRel) == ORPHAN | 1
    }

    /// How many pin it.
    pub(crate) fn count(&self, frame: u32) -> u32 {
        self.0[frame as usize].load(Ordering::SeqCst) & !ORPHAN
    }

    /// The frame's page is gone while it is pinned. True if it no longer is.
    pub(crate) fn orphan(&self, frame: u32) -> bool {
        self.0[frame as usize].fetch_or(ORPHAN, Ordering::SeqCst) == 0
    }

    /// Whether an orphan without pins was this frame, which is an orphan no more: it can be freed, by the caller alone.
    pub(crate) fn bury(&self, frame: u32) -> bool {
        self.0[frame as usize].compare_exchange(ORPHAN, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// A reader's look: the word, whose frame is pinned now and holds the page's contents until it is unpinned. `None`
    /// if the page is not for readers without the lock; `last` is called if the frame has become free to be buried by
    /// that.
    #[inline]
    pub(crate) fn look(&self, word: &AtomicU32, last: impl FnOnce(u32)) -> Option<u32> {
        let before = word.load(Ordering::Acquire);
        if before & HIDDEN != 0 {
            return None;
        }
        let frame = before & FRAME;
        self.pin(frame);
        let now = word.load(Ordering::SeqCst);
        if (now ^ before) & !MARKS == 0 {
            return Some(now);
        }
        if self.unpin(frame) {
            last(frame);
        }
        None
    }

    /// Takes a page from its frame, unless that is pinned. The word that it had if it did: the frame belongs to no
    /// page.
    pub(crate) fn take(&self, word: &AtomicU32) -> Option<u32> {
        let before = word.swap(NOWHERE, Ordering::SeqCst);
        let free = self.count(before & FRAME) == 0;
        if !free {
            word.store(before, Ordering::SeqCst);
        }
        free.then_some(before)
    }
}
