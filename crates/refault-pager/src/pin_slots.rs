//! Pin slots: which pages the system calls that are under way are using ([`crate::user_buffer`]).
//!
//! Invariant: a page that is resident after its range was put into a slot is not evicted while it stays there. The
//! caller puts the range and then reads the page's state. The evictor takes the page (`Evicting`) and then asks for the
//! ranges. On either side a full fence lies between the two steps, so one side sees the other. Checked with random
//! schedules in `tests/pin_slots_model.rs`, which compiles this file over shuttle. Cost: some 20 ns per pin; the
//! evictor looks at each slot that was ever used at once.

use super::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

/// Ranges of a pin.
pub(crate) const RANGES: usize = 8;

/// Bytes of stack that lie between a call and another one in a signal handler that interrupted it, at least. Frames of
/// calls that were made from the same slot differ by less.
const SIGNAL_FRAME: usize = 1024;

/// Ranges of pages that are pinned together.
pub(crate) struct PinSlot {
    taken: AtomicBool,
    /// The thread that has taken it.
    thread: AtomicUsize,
    /// An address in the holder's stack frame.
    frame: AtomicUsize,
    /// First page and the page after the last, in the upper and lower half; 0: none.
    ranges: [AtomicU64; RANGES],
}

/// All slots.
pub(crate) struct PinSlots {
    slots: Vec<PinSlot>,
    /// Places from here on were never used.
    used: AtomicUsize,
}

impl PinSlots {
    /// Room for `slots` pins at once.
    pub(crate) fn new(slots: usize) -> PinSlots {
        let slot = || PinSlot {
            taken: AtomicBool::new(false),
            thread: AtomicUsize::new(0),
            frame: AtomicUsize::new(0),
            ranges: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        PinSlots { slots: (0..slots).map(|_| slot()).collect(), used: AtomicUsize::new(0) }
    }

    /// Takes a slot, if there is one left, for `thread` (not 0), whose stack grows downwards and has reached `frame`.
    /// What the thread held in frames as deep or deeper is given back: a jump has left them (`siglongjmp` out of a
    /// signal handler).
    pub(crate) fn take(&self, thread: usize, frame: usize) -> Option<&PinSlot> {
        for slot in &self.slots[..self.used.load(Ordering::Relaxed)] {
            if slot.thread.load(Ordering::Relaxed) == thread
                && slot.frame.load(Ordering::Relaxed) < frame + SIGNAL_FRAME
            {
                slot.give_back();
            }
        }
        let index = self
            .slots
            .iter()
            .position(|slot| !slot.taken.load(Ordering::Relaxed) && !slot.taken.swap(true, Ordering::Acquire))?;
        if self.used.load(Ordering::Relaxed) <= index {
            self.used.fetch_max(index + 1, Ordering::SeqCst);
        }
        let slot = &self.slots[index];
        slot.frame.store(frame, Ordering::Relaxed);
        slot.thread.store(thread, Ordering::Relaxed);
        Some(slot)
    }

    /// Whether no thread ever took a slot.
    pub(crate) fn never_used(&self) -> bool {
        self.used.load(Ordering::SeqCst) == 0
    }

    /// Whether a system call is using a page that the caller owns as `Evicting`.
    pub(crate) fn has(&self, page: u32) -> bool {
        fence(Ordering::SeqCst);
        self.slots[..self.used.load(Ordering::SeqCst)].iter().flat_map(|slot| &slot.ranges).any(|range| {
            let range = range.load(Ordering::SeqCst);
            (range >> 32) as u32 <= page && page < range as u32
        })
    }

    /// Gives all slots back. In the child of a fork only the caller runs, and it pins nothing.
    pub(crate) fn forget(&self) {
        self.slots[..self.used.load(Ordering::SeqCst)].iter().for_each(PinSlot::give_back);
    }
}

impl PinSlot {
    /// PinSlots pages `first..end` from now on, as the hold's range `index`. Their states are to be read after that.
    pub(crate) fn put(&self, index: usize, first: u32, end: u32) {
        self.ranges[index].store(u64::from(first) << 32 | u64::from(end), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Ends the hold.
    pub(crate) fn give_back(&self) {
        for range in &self.ranges {
            if range.load(Ordering::Relaxed) != 0 {
                range.store(0, Ordering::Release);
            }
        }
        self.thread.store(0, Ordering::Relaxed);
        self.taken.store(false, Ordering::Release);
    }
}
