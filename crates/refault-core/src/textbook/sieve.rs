//! SIEVE: FIFO in which a hand looks for a page that was not accessed, and accessed pages stay where they are.
//!
//! The hand moves from the oldest page towards the newest; it clears set bits and evicts the first page whose bit is
//! clear, then waits there. At the newest page it starts again at the oldest. New pages enter at the head, behind the
//! hand's next steps, so a page that survives sifts old from new. A hit only sets a bit, which the memory does.
//!
//! The reference simulator and the paper agree.
//!
//! Cost: 8 bytes per page id; the bit is the memory's.
//! Source: Zhang et al., *SIEVE is Simpler than LRU*, NSDI 2024, algorithm 1.

use super::evict;
use crate::counters::Counters;
use crate::lists::linked::{Link, Linked, List};
use crate::memory::Memory;
use crate::page::{NO_PAGE, PageId};
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};

/// See the module.
#[derive(Clone, Debug)]
pub struct Sieve {
    links: Vec<Link>,
    list: List,
    /// The page to look at next; [`NO_PAGE`] is the oldest.
    hand: PageId,
    counters: Counters,
}

impl Default for Sieve {
    fn default() -> Sieve {
        Sieve { links: Vec::new(), list: List::default(), hand: NO_PAGE, counters: Counters::default() }
    }
}

impl Policy for Sieve {
    const HITS: HitReport = HitReport::AccessedBit;

    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, _memory: &mut M) {
        self.list.push_head(&mut self.links, page);
    }

    fn freed(&mut self, page: PageId) {
        if self.hand == page {
            self.hand = self.links[page as usize].newer();
        }
        self.list.remove(&mut self.links, page);
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let mut freed = 0;
        // Twice around: once to clear all bits, once to find what can go.
        for _ in 0..2 * self.list.len() {
            if freed == request.goal {
                break;
            }
            let at_hand = (self.hand != NO_PAGE).then_some(self.hand);
            let Some(page) = at_hand.or(self.list.tail()) else { break };
            self.hand = self.links[page as usize].newer();
            self.counters.reference_checks += 1;
            if memory.take_references(page).mappings == 0 && evict(page, memory, &mut self.counters) {
                self.list.remove(&mut self.links, page);
                freed += 1;
            }
        }
        freed
    }

    fn grow(&mut self, pages: usize) {
        self.links.resize(pages.max(self.links.len()), Link::default());
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.links.capacity() * size_of::<Link>()
    }
}
