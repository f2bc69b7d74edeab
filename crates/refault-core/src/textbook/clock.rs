//! Clock, or second chance: the oldest page goes unless its accessed bit is set; then the bit is cleared and the page
//! becomes the newest.
//!
//! A page arrives with its bit clear; the first hit sets it. This is FIFO with reinsertion, which evicts the same pages
//! as a ring of frames with a hand. Policies of this kind are what mapped memory allows: the front-end only sets bits.
//!
//! Cost: 4 bytes per page id and 4 to 8 per resident page ([`PageQueue`]); the bit is the memory's.
//! Source: Corbató, *A Paging Experiment with the Multics System*, 1968.

use super::evict;
use crate::counters::Counters;
use crate::lists::queue::PageQueue;
use crate::memory::Memory;
use crate::page::PageId;
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};

/// One queue in order of arrival or of the last second chance.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    queue: PageQueue,
    counters: Counters,
}

impl Policy for Clock {
    const HITS: HitReport = HitReport::AccessedBit;

    #[inline]
    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, _memory: &mut M) {
        self.queue.push_head(page);
    }

    fn freed(&mut self, page: PageId) {
        self.queue.remove(page);
    }

    #[inline]
    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let mut freed = 0;
        // Twice around: once to clear all bits, once to find what can go.
        for _ in 0..2 * self.queue.len() {
            if freed == request.goal {
                break;
            }
            let Some(page) = self.queue.pop_tail() else { break };
            self.counters.reference_checks += 1;
            if memory.take_references(page).mappings == 0 && evict(page, memory, &mut self.counters) {
                freed += 1;
            } else {
                self.queue.push_head(page);
            }
        }
        freed
    }

    fn grow(&mut self, pages: usize) {
        self.queue.grow(pages);
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.queue.metadata_bytes()
    }
}
