//! Hits on their way to the policy.
//!
//! A hit takes no lock: its page is noted in one of some rings, which threads share as little as they can, and the
//! thread that holds the engine's lock next tells the policy of all of them, in each ring's order. With one thread the
//! policy hears of every hit before it decides anything, as if there were no rings. With several, a ring that is not
//! emptied in time forgets its oldest hits: the policy then knows of fewer than there were.
//!
//! Invariants: rings are emptied under the engine's lock; the count of hits is exact. Cost: one addition and one store
//! per hit; 640 bytes per ring.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use refault_core::PageId;
use refault_core::page::NO_PAGE;

const RINGS: usize = 16;
const SLOTS: u64 = 64;
/// Hits of a ring after which it should be emptied.
const BATCH: u64 = 32;

#[repr(align(128))]
struct Ring {
    /// Hits noted.
    noted: AtomicU64,
    /// Hits told; changed under the engine's lock.
    told: AtomicU64,
    slots: [AtomicU32; SLOTS as usize],
}

pub(crate) struct References([Ring; RINGS]);

thread_local! {
    static RING: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The ring of this thread.
fn ring() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    RING.with(|ring| {
        if ring.get() == usize::MAX {
            ring.set(NEXT.fetch_add(1, Ordering::Relaxed) % RINGS);
        }
        ring.get()
    })
}

impl References {
    pub(crate) fn new() -> References {
        References(
            [const {
                Ring {
                    noted: AtomicU64::new(0),
                    told: AtomicU64::new(0),
                    slots: [const { AtomicU32::new(NO_PAGE) }; SLOTS as usize],
                }
            }; RINGS],
        )
    }

    /// A hit. True if it is time to empty the rings.
    #[inline]
    pub(crate) fn note(&self, page: PageId) -> bool {
        let ring = &self.0[ring()];
        let number = ring.noted.fetch_add(1, Ordering::Relaxed);
        ring.slots[(number % SLOTS) as usize].store(page, Ordering::Release);
        number % BATCH == BATCH - 1
    }

    /// Empties the rings. Only under the engine's lock.
    pub(crate) fn drain(&self, mut tell: impl FnMut(PageId)) {
        for ring in &self.0 {
            let (noted, told) = (ring.noted.load(Ordering::Acquire), ring.told.load(Ordering::Relaxed));
            if noted == told {
                continue;
            }
            for number in told.max(noted.saturating_sub(SLOTS))..noted {
                // A slot whose hit is counted but not yet there is skipped, and told a round later.
                let page = ring.slots[(number % SLOTS) as usize].swap(NO_PAGE, Ordering::Acquire);
                if page != NO_PAGE {
                    tell(page);
                }
            }
            ring.told.store(noted, Ordering::Relaxed);
        }
    }

    /// Hits so far.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|ring| ring.noted.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_is_heard_in_order_and_whole() {
        let references = References::new();
        let mut told = Vec::new();
        for page in 0..1000 {
            if references.note(page) {
                references.drain(|page| told.push(page));
            }
        }
        references.drain(|page| told.push(page));
        assert_eq!(told, (0..1000).collect::<Vec<_>>());
        references.drain(|_| panic!("nothing is left"));
        assert_eq!(references.count(), 1000);
    }

    #[test]
    fn a_ring_that_is_not_emptied_keeps_the_newest() {
        let references = References::new();
        for page in 0..1000 {
            references.note(page);
        }
        let mut told = Vec::new();
        references.drain(|page| told.push(page));
        assert_eq!(told, (1000 - SLOTS as u32..1000).collect::<Vec<_>>());
        assert_eq!(references.count(), 1000);
    }
}
