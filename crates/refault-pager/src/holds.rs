//! Who holds which pages: places for system calls that are using memory ([`crate::touched`]).
//!
//! Invariant: a page that is resident after its range was put into a place is not evicted while it stays there. The holder
//! puts the range and then reads the page's state; the evictor takes the page (`Evicting`) and then asks for the ranges, with
//! a full fence between the two on either side, so one of them sees the other. Checked with random schedules in
//! `tests/holds_model.rs`, which compiles this file over shuttle. Cost: some 20 ns a hold; the evictor looks at each place
//! that was ever used at once.

use super::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

/// Ranges of a hold.
pub(crate) const RANGES: usize = 8;

/// Bytes of stack that lie between a call and another one in a signal handler that interrupted it, at least. Frames of calls that
/// were made from the same place differ by less.
const SIGNAL_FRAME: usize = 1024;

/// Ranges of pages that are held together.
pub(crate) struct Place {
    taken: AtomicBool,
    /// Who has taken it.
    thread: AtomicUsize,
    /// An address in the holder's stack frame.
    frame: AtomicUsize,
    /// First page and the page after the last, in the upper and lower half; 0: none.
    ranges: [AtomicU64; RANGES],
}

/// All places.
pub(crate) struct Holds {
    places: Vec<Place>,
    /// Places from here on were never used.
    used: AtomicUsize,
}

impl Holds {
    /// Room for so many holds at once.
    pub(crate) fn new(places: usize) -> Holds {
        let place = || Place {
            taken: AtomicBool::new(false),
            thread: AtomicUsize::new(0),
            frame: AtomicUsize::new(0),
            ranges: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        Holds { places: (0..places).map(|_| place()).collect(), used: AtomicUsize::new(0) }
    }

    /// Takes a place, if there is one left, for `thread` (not 0), whose stack grows downwards and has reached `frame`. What the
    /// thread held in frames as deep or deeper is given back: a jump has left them (`siglongjmp` out of a signal handler).
    pub(crate) fn take(&self, thread: usize, frame: usize) -> Option<&Place> {
        for place in &self.places[..self.used.load(Ordering::Relaxed)] {
            if place.thread.load(Ordering::Relaxed) == thread
                && place.frame.load(Ordering::Relaxed) < frame + SIGNAL_FRAME
            {
                place.give_back();
            }
        }
        let index = self
            .places
            .iter()
            .position(|place| !place.taken.load(Ordering::Relaxed) && !place.taken.swap(true, Ordering::Acquire))?;
        if self.used.load(Ordering::Relaxed) <= index {
            self.used.fetch_max(index + 1, Ordering::SeqCst);
        }
        let place = &self.places[index];
        place.frame.store(frame, Ordering::Relaxed);
        place.thread.store(thread, Ordering::Relaxed);
        Some(place)
    }

    /// Whether nobody ever held anything.
    pub(crate) fn never_used(&self) -> bool {
        self.used.load(Ordering::SeqCst) == 0
    }

    /// Whether somebody holds a page that the caller owns as `Evicting`.
    pub(crate) fn has(&self, page: u32) -> bool {
        fence(Ordering::SeqCst);
        self.places[..self.used.load(Ordering::SeqCst)].iter().flat_map(|place| &place.ranges).any(|range| {
            let range = range.load(Ordering::SeqCst);
            (range >> 32) as u32 <= page && page < range as u32
        })
    }

    /// Gives all places back. In the child of a fork nobody is in a system call but the caller, which holds nothing.
    pub(crate) fn forget(&self) {
        self.places[..self.used.load(Ordering::SeqCst)].iter().for_each(Place::give_back);
    }
}

impl Place {
    /// Holds pages `first..end` from now on, as the hold's range `index`. Their states are to be read after that.
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
