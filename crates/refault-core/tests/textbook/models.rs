//! The reference models: each policy in the words of its page, with plain vectors and linear searches.

use std::collections::VecDeque;

use refault_core::PageId;

use crate::harness::Model;

fn remove(queue: &mut VecDeque<PageId>, page: PageId) -> bool {
    let before = queue.len();
    queue.retain(|p| *p != page);
    before != queue.len()
}

/// Pages in order; the front goes first.
pub struct Fifo {
    pub capacity: usize,
    pub queue: VecDeque<PageId>,
    pub moves_on_hit: bool,
}

impl Model for Fifo {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        if self.queue.contains(&page) {
            if self.moves_on_hit {
                remove(&mut self.queue, page);
                self.queue.push_back(page);
            }
            return Vec::new();
        }
        let victims = if self.queue.len() == self.capacity { self.queue.pop_front() } else { None };
        self.queue.push_back(page);
        victims.into_iter().collect()
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.queue.contains(&page)
    }

    fn free(&mut self, page: PageId) {
        remove(&mut self.queue, page);
    }
}

/// A ring of frames with a hand: another formulation than the queue of the implementation. Freed frames are closed up.
pub struct ClockRing {
    pub capacity: usize,
    /// Page and accessed bit; the hand is at index 0, and new pages go to the end, just behind the hand.
    pub frames: Vec<(PageId, bool)>,
}

impl Model for ClockRing {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        if let Some(frame) = self.frames.iter_mut().find(|f| f.0 == page) {
            frame.1 = true;
            return Vec::new();
        }
        let mut victims = Vec::new();
        if self.frames.len() == self.capacity {
            let first_clear = self.frames.iter().position(|f| !f.1);
            let passed = first_clear.unwrap_or(self.frames.len());
            self.frames[..passed].iter_mut().for_each(|f| f.1 = false);
            self.frames.rotate_left(passed);
            victims.push(self.frames.remove(0).0);
        }
        self.frames.push((page, false));
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.frames.iter().any(|f| f.0 == page)
    }

    fn free(&mut self, page: PageId) {
        self.frames.retain(|f| f.0 != page);
    }
}
