//! Whether pages that are read back from the pool keep their compressed copy ([`PagerOptions::keep_clean`]).
//!
//! A page that keeps it is evicted again without being compressed, unless it was written meanwhile; its first write costs a
//! fault, which is dearer than compressing. So the pages that kept their copy and those of them that were written are
//! counted, and where too many are written none keeps its copy for a while. Cost: two or three relaxed atomics a fault, no lock.
//!
//! [`PagerOptions::keep_clean`]: crate::PagerOptions::keep_clean

use std::sync::atomic::{AtomicU32, Ordering};

/// Pages after which it is looked how many were written.
const WINDOW: u32 = 4096;

/// So many of them at most: a fault for a write costs some 7 µs, compressing and writing out some 5.
const MOST_WRITTEN: u32 = WINDOW / 8 * 3;

/// Pages that come back without keeping their copy before it is tried again.
const PAUSE: u32 = 16 * WINDOW;

#[derive(Default)]
pub(crate) struct KeepClean {
    kept: AtomicU32,
    written: AtomicU32,
    pause: AtomicU32,
}

impl KeepClean {
    /// Whether the page that comes back now is to keep its copy.
    pub(crate) fn next_keeps(&self) -> bool {
        let one_less = |pause: u32| pause.checked_sub(1);
        if self.pause.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            return false;
        }
        if self.kept.fetch_add(1, Ordering::Relaxed) == WINDOW {
            self.kept.store(0, Ordering::Relaxed);
            if self.written.swap(0, Ordering::Relaxed) > MOST_WRITTEN {
                self.pause.store(PAUSE, Ordering::Relaxed);
            }
        }
        true
    }

    /// A page that kept its copy is written.
    pub(crate) fn written(&self) {
        self.written.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of some pages keep their copy if one in `share` of these is written.
    fn kept(pages: u32, share: u32) -> u32 {
        let keep_clean = KeepClean::default();
        let mut kept = 0;
        for _ in 0..pages {
            if keep_clean.next_keeps() {
                kept += 1;
                if kept % share == 0 {
                    keep_clean.written();
                }
            }
        }
        kept
    }

    #[test]
    fn pages_that_are_mostly_read_keep_their_copies_and_those_that_are_written_do_not() {
        assert_eq!(kept(10 * PAUSE, 3), 10 * PAUSE);
        // A window in each pause.
        let few = kept(10 * PAUSE, 2);
        assert!((9 * WINDOW..12 * WINDOW).contains(&few), "{few}");
    }

    #[test]
    fn it_is_tried_again() {
        let keep_clean = KeepClean::default();
        (0..=WINDOW).for_each(|_| {
            keep_clean.written();
            keep_clean.next_keeps();
        });
        assert_eq!((0..PAUSE).filter(|_| keep_clean.next_keeps()).count(), 0);
        assert_eq!((0..PAUSE).filter(|_| keep_clean.next_keeps()).count(), PAUSE as usize);
    }
}
