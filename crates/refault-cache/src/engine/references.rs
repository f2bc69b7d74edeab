//! Hits on their way to the policy.
//!
//! A hit takes no lock: its page is noted in one of some rings, which threads share as little as they can. The thread
//! that holds the engine's lock next tells the policy of all of them, in each ring's order. With one thread the policy
//! hears of every hit before it decides anything, as if there were no rings. With several, a ring that is not emptied
//! in time forgets its oldest hits: the policy then knows of fewer than there were.
//!
//! Among threads that all find what they read, one empties the rings of all: the thread that did so last. What the
//! policy writes down stays in the caches of its processor, and the others are not held up. Another takes over when its
//! ring is nearly full.
//!
//! Invariants: rings are emptied under the engine's lock; the count of hits is exact. Cost: one addition and one store
//! per hit; 640 bytes per ring.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use refault_core::PageId;
use refault_core::page::NO_PAGE;

const RINGS: usize = 16;
const SLOTS: u64 = 128;
/// Hits of a ring after which its thread looks whether rings should be emptied.
const BATCH: u64 = 32;
/// Hits of a ring from which on any thread empties the rings: it can try once more if another has the lock.
const FULL: u64 = SLOTS - BATCH;

#[repr(align(128))]
struct Ring {
    /// Hits noted.
    noted: AtomicU64,
    /// Hits told; changed under the engine's lock.
    told: AtomicU64,
    slots: [AtomicU32; SLOTS as usize],
}

pub(crate) struct References {
    rings: [Ring; RINGS],
    /// The ring of who emptied them last, to have room for its hits.
    teller: AtomicUsize,
}

thread_local! {
    static RING: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Threads that have been given a ring, in all caches.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The ring of this thread.
fn ring() -> usize {
    RING.with(|ring| {
        if ring.get() == usize::MAX {
            ring.set(NEXT.fetch_add(1, Ordering::Relaxed) % RINGS);
        }
        ring.get()
    })
}

impl References {
    pub(crate) fn new() -> References {
        let rings = [const {
            Ring {
                noted: AtomicU64::new(0),
                told: AtomicU64::new(0),
                slots: [const { AtomicU32::new(NO_PAGE) }; SLOTS as usize],
            }
        }; RINGS];
        References { rings, teller: AtomicUsize::new(0) }
    }

    /// A hit. True if it is time for this thread to empty the rings.
    #[inline]
    pub(crate) fn note(&self, page: PageId) -> bool {
        let own = ring();
        let ring = &self.rings[own];
        let number = ring.noted.fetch_add(1, Ordering::Relaxed);
        ring.slots[(number % SLOTS) as usize].store(page, Ordering::Release);
        number % BATCH == BATCH - 1
            && (self.teller.load(Ordering::Relaxed) == own
                || number.saturating_sub(ring.told.load(Ordering::Relaxed)) >= FULL - 1)
    }

    /// This thread empties the rings because of its own hits.
    pub(crate) fn tells(&self) {
        let own = ring();
        // Read more often than written.
        if self.teller.load(Ordering::Relaxed) != own {
            self.teller.store(own, Ordering::Relaxed);
        }
    }

    /// Empties the rings. Only under the engine's lock.
    pub(crate) fn drain(&self, mut tell: impl FnMut(PageId)) {
        // A few where few threads read.
        for ring in &self.rings[..NEXT.load(Ordering::Relaxed).min(RINGS)] {
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
        self.rings.iter().map(|ring| ring.noted.load(Ordering::Relaxed)).sum()
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
    fn one_thread_tells_for_all_and_no_hit_is_lost() {
        let references = References::new();
        let mut told = Vec::new();
        const BATCHES: u64 = 36;
        std::thread::scope(|scope| {
            let ((start, started), (end, ended)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
            let other = &references;
            // Batch by batch, how often it is to empty the rings.
            scope.spawn(move || {
                for first in started {
                    let asked = (first..first + BATCH as u32).filter(|page| other.note(*page)).count();
                    end.send(asked).expect("the test goes on");
                }
            });
            for batch in 0..BATCHES {
                start.send((batch * BATCH) as u32).expect("the thread goes on");
                let asked = ended.recv().expect("the thread goes on");
                if batch < BATCHES / 2 {
                    // Alone, it is asked when its ring is full.
                    assert_eq!(asked, usize::from(batch % 3 == 2), "batch {batch}");
                    if asked > 0 {
                        references.drain(|page| told.push(page));
                    }
                    continue;
                }
                assert_eq!(asked, 0, "two threads tell");
                references.tells();
                let own = (0..BATCH as u32).filter(|page| references.note(1_000_000 + page)).count();
                assert_eq!(own, 1, "no thread tells");
                references.drain(|page| told.push(page));
            }
        });
        told.retain(|page| *page < 1_000_000);
        assert_eq!(told, (0..(BATCHES * BATCH) as u32).collect::<Vec<_>>());
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
