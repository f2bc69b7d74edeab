//! First in, first out. A hit does nothing.

use crate::counters::Counters;
use crate::list::{Link, List};
use crate::memory::{Eviction, Memory};
use crate::page::{PageId, Shadow};
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};

/// One list; the oldest page goes. 8 bytes a page id.
#[derive(Default)]
pub struct Fifo {
    links: Vec<Link>,
    list: List,
    counters: Counters,
}

impl Policy for Fifo {
    const HITS: HitReport = HitReport::Never;

    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, _memory: &mut M) {
        self.list.push_head(&mut self.links, page);
    }

    fn freed(&mut self, page: PageId) {
        self.list.remove(&mut self.links, page);
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let mut freed = 0;
        // A page that cannot go is moved to the head; each page is tried once.
        for _ in 0..self.list.len() {
            if freed == request.goal {
                break;
            }
            let Some(page) = self.list.pop_tail(&mut self.links) else { break };
            self.counters.pgscan += 1;
            match memory.evict(page, Shadow::NONE) {
                Eviction::Freed { .. } => {
                    self.counters.pgsteal += 1;
                    freed += 1;
                }
                _ => self.list.push_head(&mut self.links, page),
            }
        }
        freed
    }

    fn grow(&mut self, pages: usize) {
        self.links.resize(pages, Link::default());
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.links.capacity() * size_of::<Link>()
    }
}
