//! Advice that pages are not needed soon (spec: freebsd §3.3, §3.5, §6).
//!
//! Kernel: `vm_page_advise`, `vm_page_try_to_cache` in `sys/vm/vm_page.c`; `vm_pageout_grow_cache` in
//! `sys/vm/vm_pageout.c`.

use super::{Freebsd, Queue};
use crate::memory::{Eviction, IoState, Memory, launder, needs_write};
use crate::page::{PageId, Shadow};

/// Running counts in which these bits are clear leave the page alone: 16 of 512.
const SPARED: u32 = 0x1f0;
/// Running counts in which these bits are clear put the page at the newest end: another 48 of 512.
const NEWEST: u32 = 0x070;
/// Activation count from which a spared page loses one.
const SPARED_DECLINE_FROM: u16 = 5;

impl Freebsd {
    /// A resident page behind a sequential reader, or one that a program says it does not need: to the oldest end of
    /// the inactive queue if clean, to the newest if it has to be written (spec: freebsd §6). Its references are
    /// forgotten.
    pub fn dont_need<M: Memory>(&mut self, page: PageId, memory: &mut M) {
        memory.take_references(page);
        let mut newest = needs_write(memory, page);
        if self.params.sparing_dont_need {
            let count = self.dont_need_count;
            self.dont_need_count = count.wrapping_add(1);
            let record = self.queues.record_mut(page);
            if count & SPARED == 0 || record.queue == Some(Queue::Inactive) {
                record.act_count -= u16::from(record.act_count >= SPARED_DECLINE_FROM);
                return;
            }
            newest |= count & NEWEST == 0;
        }
        self.queues.record_mut(page).referenced = false;
        if newest {
            self.deactivate(page);
        } else if self.params.sparing_dont_need {
            self.deactivate_oldest(page);
        } else {
            // Without the running count a clean page is moved even if it is inactive already.
            self.deactivate(page);
            if self.queues.record(page).wirings == 0 {
                self.queues.requeue_oldest(page, Queue::Inactive);
            }
        }
    }

    /// Lets a page go at once if it is clean and not held, as advice on a file range does. Returns whether it went.
    pub fn try_to_let_go<M: Memory>(&mut self, page: PageId, memory: &mut M) -> bool {
        let held = IoState::LOCKED.with(IoState::WRITEBACK).with(IoState::UNEVICTABLE).with(IoState::DIRTY);
        if self.queues.record(page).wirings > 0 || memory.io_state(page).any(held) || needs_write(memory, page) {
            return false;
        }
        let gone = matches!(memory.evict(page, Shadow::NONE), Eviction::Freed { .. });
        if gone {
            self.let_go(page);
        }
        gone
    }

    /// Treats a page behind a sequential reader as version 10 does: clean pages go at once, dirty ones are deactivated.
    pub fn cache_behind<M: Memory>(&mut self, page: PageId, memory: &mut M) {
        memory.take_references(page);
        self.queues.record_mut(page).referenced = false;
        if !self.try_to_let_go(page, memory) {
            self.deactivate(page);
        }
    }

    /// Lets go of pages whose frames `in_range` wants, whatever their references, in the hope that frames in a row come
    /// free: what is done between the attempts of a contiguous allocation. Attempt 0 takes clean inactive pages,
    /// 1 writes dirty ones as well, 2 takes the active queue too. Returns the pages let go. O(queues).
    pub fn grow_cache<M: Memory>(
        &mut self,
        attempt: u32,
        mut in_range: impl FnMut(PageId) -> bool,
        memory: &mut M,
    ) -> u32 {
        let mut pages: Vec<PageId> = self.queues.iter(Queue::Inactive).collect();
        if attempt >= 2 {
            pages.extend(self.queues.iter(Queue::Active));
        }
        pages.retain(|page| in_range(*page));
        let mut gone = 0;
        for page in pages {
            if attempt >= 1 && needs_write(memory, page) {
                launder(memory, page);
            }
            gone += u32::from(self.try_to_let_go(page, memory));
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::freebsd::FreebsdParams;
    use crate::memory::{References, Writeback};
    use crate::policy::{Admission, Policy};
    use crate::{Memory, PageType};

    /// Twelve pages, all of them referenced.
    #[derive(Default)]
    struct Pages {
        dirty: [bool; 12],
        gone: Vec<PageId>,
        written: Vec<PageId>,
    }

    impl Memory for Pages {
        fn take_references(&mut self, _page: PageId) -> References {
            References { mappings: 1, ..References::default() }
        }
        fn evict(&mut self, page: PageId, _shadow: Shadow) -> Eviction {
            self.gone.push(page);
            Eviction::Freed { pages_written: 0 }
        }
        fn is_resident(&self, page: PageId) -> bool {
            !self.gone.contains(&page)
        }
        fn io_state(&self, page: PageId) -> IoState {
            if self.dirty[page as usize] { IoState::DIRTY } else { IoState::CLEAN }
        }
        fn writeback(&mut self) -> Option<&mut impl Writeback> {
            Some(self)
        }
    }

    impl Writeback for Pages {
        fn launder(&mut self, page: PageId) -> Option<u32> {
            self.dirty[page as usize] = false;
            self.written.push(page);
            Some(1)
        }
    }

    /// Spec: freebsd §3.5: first clean inactive pages, then dirty ones are written as well, then the active queue; only
    /// in the range, and whatever their references. Even pages are inactive and odd ones active; 4 to 7 are dirty, and
    /// 8 to 11 out of range, but for 9, which is wired.
    #[test]
    fn each_attempt_takes_more_of_what_lies_in_range() {
        let mut policy = Freebsd::new(FreebsdParams::default());
        let mut pages = Pages::default();
        policy.grow(12);
        policy.set_capacity(12);
        for page in 0..12 {
            let read = Admission::read(PageType::File);
            let admission = if page % 2 == 0 { read } else { Admission::fault(PageType::File) };
            policy.admit(page, &admission, &mut pages);
            policy.accessed(page, &mut pages);
        }
        pages.dirty[4..8].fill(true);
        policy.wire(9);
        let expected: [(&[PageId], &[PageId]); 3] = [(&[0, 2], &[]), (&[4, 6], &[4, 6]), (&[1, 3, 5, 7], &[5, 7])];
        for (attempt, (gone, written)) in expected.into_iter().enumerate() {
            let available = policy.available();
            let count = policy.grow_cache(attempt as u32, |page| page < 8 || page == 9, &mut pages);
            assert_eq!((&pages.gone[..], &pages.written[..]), (gone, written), "attempt {attempt}");
            assert_eq!((count as usize, policy.available() - available), (gone.len(), gone.len() as u64));
            (pages.gone, pages.written) = (Vec::new(), Vec::new());
        }
    }
}
