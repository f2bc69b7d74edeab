//! First in, first out. A hit does nothing.
//!
//! Cost: 4 bytes per page id and 4 to 8 per resident page ([`PageQueue`]).

use super::evict;
use crate::counters::Counters;
use crate::lists::queue::PageQueue;
use crate::memory::Memory;
use crate::page::PageId;
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};

/// One queue in order of arrival; the oldest page goes.
#[derive(Clone, Debug, Default)]
pub struct Fifo {
    queue: PageQueue,
    counters: Counters,
}

impl Policy for Fifo {
    const HITS: HitReport = HitReport::Never;

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
        for _ in 0..self.queue.len() {
            if freed == request.goal {
                break;
            }
            let Some(page) = self.queue.pop_tail() else { break };
            if evict(page, memory, &mut self.counters) {
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
