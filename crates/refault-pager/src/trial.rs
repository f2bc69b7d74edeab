//! Whether something that may gain or lose is done: tried, and left alone for a while where it loses too often.
//!
//! - Pages that are read back from the pool keep their compressed copy ([`PagerOptions::keep_clean`]). Such a page is
//!   evicted again without being compressed, unless it was written meanwhile; its first write costs a fault, which is dearer than
//!   compressing.
//! - An instruction accesses pages in place ([`PagerOptions::in_place`]), which gains unless they are touched again at once.
//!
//! Cost: two or three relaxed atomics a time, no lock.
//!
//! [`PagerOptions::keep_clean`]: crate::PagerOptions::keep_clean
//! [`PagerOptions::in_place`]: crate::PagerOptions::in_place

use std::sync::atomic::{AtomicU32, Ordering};

/// Windows for which it is left alone before it is tried again.
const PAUSE: u32 = 16;

pub(crate) struct Trial {
    /// Times after which it is looked how many were losses.
    window: u32,
    /// Losses a window at most.
    most_losses: u32,
    tried: AtomicU32,
    losses: AtomicU32,
    pause: AtomicU32,
}

impl Trial {
    /// Of `window` times (a multiple of eight) so many eighths may be losses.
    pub(crate) fn new(window: u32, eighths: u32) -> Trial {
        let zero = || AtomicU32::new(0);
        Trial { window, most_losses: window / 8 * eighths, tried: zero(), losses: zero(), pause: zero() }
    }

    /// Whether to try this time.
    pub(crate) fn next(&self) -> bool {
        let one_less = |pause: u32| pause.checked_sub(1);
        if self.pause.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            return false;
        }
        if self.tried.fetch_add(1, Ordering::Relaxed) >= self.window {
            self.tried.store(0, Ordering::Relaxed);
            if self.losses.swap(0, Ordering::Relaxed) > self.most_losses {
                self.pause.store(PAUSE * self.window, Ordering::Relaxed);
            }
        }
        true
    }

    /// One that was tried was a loss.
    pub(crate) fn lost(&self) {
        self.losses.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u32 = 4096;
    const PAUSE: u32 = super::PAUSE * WINDOW;

    /// How many of so many are tried if one in `share` of those is a loss and three eighths may be.
    fn tried(times: u32, share: u32) -> u32 {
        let trial = Trial::new(WINDOW, 3);
        let mut tried = 0;
        for _ in 0..times {
            if trial.next() {
                tried += 1;
                if tried % share == 0 {
                    trial.lost();
                }
            }
        }
        tried
    }

    #[test]
    fn what_mostly_gains_goes_on_and_what_loses_pauses() {
        assert_eq!(tried(10 * PAUSE, 3), 10 * PAUSE);
        // A window in each pause.
        let few = tried(10 * PAUSE, 2);
        assert!((9 * WINDOW..12 * WINDOW).contains(&few), "{few}");
    }

    #[test]
    fn it_is_tried_again() {
        let trial = Trial::new(WINDOW, 3);
        (0..=WINDOW).for_each(|_| {
            trial.lost();
            trial.next();
        });
        assert_eq!((0..PAUSE).filter(|_| trial.next()).count(), 0);
        assert_eq!((0..PAUSE).filter(|_| trial.next()).count(), PAUSE as usize);
    }
}
