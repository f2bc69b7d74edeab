//! Swap slots: which pages have one, where it lies, and writing a page to it.
//!
//! Invariant: a page has a slot iff [`state::SLOT`] is set; `used` counts them. Positions are kept only for devices
//! where they matter (rotating ones). Cost: O(1), but for the search of a free slot on a nearly full rotating device.
//!
//! Kernel: `get_swap_pages` in `mm/swapfile.c`; `add_to_swap` in `mm/swap_state.c`.

use refault_core::PageId;

use super::{Completion, MachineMemory, state};
use crate::machine::costs::Work;
use crate::machine::device::Direction;

/// Swap space.
#[derive(Debug, Default)]
pub struct SwapSpace {
    /// Slots.
    pub pages: u64,
    /// Slots in use.
    pub used: u64,
    /// Next slot number to try, for devices where position matters.
    next: u32,
    /// Slot of each page, where position matters.
    slot_of: Vec<u32>,
    /// Page of each slot, where position matters.
    page_of: Vec<PageId>,
}

impl SwapSpace {
    /// Empty swap space of `pages` slots.
    pub(super) fn new(pages: u64) -> SwapSpace {
        SwapSpace { pages, ..SwapSpace::default() }
    }

    /// From now on it matters where a page lies; pages are below `ids`.
    pub(super) fn keep_positions(&mut self, ids: usize) {
        self.slot_of = vec![u32::MAX; ids];
        self.page_of = vec![PageId::MAX; self.pages as usize];
    }
}

impl MachineMemory {
    /// Gives a page's swap slot back.
    pub fn release_slot(&mut self, page: PageId) {
        debug_assert!(self.has(page, state::SLOT));
        self.state[page as usize] &= !state::SLOT;
        self.swap.used -= 1;
        if !self.swap.slot_of.is_empty() {
            let slot = std::mem::replace(&mut self.swap.slot_of[page as usize], u32::MAX);
            self.swap.page_of[slot as usize] = PageId::MAX;
        }
        let group = self.group_of(self.lruvec[page as usize]);
        self.groups.charge_swap(group, -1);
    }

    pub(super) fn take_slot(&mut self, page: PageId) -> bool {
        let group = self.group_of(self.lruvec[page as usize]);
        if self.swap.used >= self.swap.pages || self.groups.swap_headroom(group) == 0 {
            return false;
        }
        self.swap.used += 1;
        self.groups.charge_swap(group, 1);
        self.state[page as usize] |= state::SLOT;
        if !self.swap.slot_of.is_empty() {
            let slots = self.swap.page_of.len() as u32;
            let mut slot = self.swap.next;
            while self.swap.page_of[slot as usize] != PageId::MAX {
                slot = (slot + 1) % slots;
            }
            self.swap.next = (slot + 1) % slots;
            self.swap.slot_of[page as usize] = slot;
            self.swap.page_of[slot as usize] = page;
        }
        true
    }

    /// Where a page lies on its swap device.
    pub fn swap_position(&self, page: PageId) -> u64 {
        self.swap.slot_of.get(page as usize).map_or(u64::from(page), |slot| u64::from(*slot))
    }

    /// The page in a swap slot, where positions are kept.
    pub fn page_in_slot(&self, slot: u64) -> Option<PageId> {
        self.swap.page_of.get(slot as usize).copied().filter(|page| *page != PageId::MAX)
    }

    /// Writes an anonymous page to its slot; true if it is done already.
    pub(super) fn swap_out(&mut self, page: PageId) -> bool {
        self.counters.pswpout += 1;
        self.state[page as usize] &= !state::DIRTY;
        let position = self.swap_position(page);
        let device = self.swap_device.as_mut().expect("invariant: a page with a slot has a swap device");
        if device.is_synchronous() {
            let cost = device.synchronous_cost(Direction::Write, 1);
            self.ledger.book(Work::Write, cost);
            return true;
        }
        let done = device.submit(self.now, Direction::Write, position, 1);
        self.ledger.book(Work::Write, self.costs.submit);
        self.state[page as usize] |= state::WRITEBACK;
        self.writeback += 1;
        self.completions.push((done, Completion::Write { page }));
        false
    }
}
