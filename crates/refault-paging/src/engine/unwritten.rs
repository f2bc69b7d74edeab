//! Memory that was never written to: what is read of it is left to the kernel.
//!
//! The kernel joins neighbouring mappings by their `anon_vma`, which a mapping gets by the first write to it: one
//! without is joined with whatever fits beside it, and forgets where it came from when it moves. The program sees that:
//! `mremap` of a range that is not one mapping says EFAULT. A userfaultfd gives a mapping its `anon_vma` with whatever
//! it fills, zeros for a read too. So where nothing was written to yet, the pages that are read are unregistered for a
//! moment, and the kernel maps its own zeros there.
//!
//! Invariants: only pages without contents are unregistered, under the engine's lock. A thread that touches one
//! meanwhile finds what it would have found alone, and what it writes stays. A range that is not called written may
//! have been written to all the same, which costs time. The kernel does not tell of a write to a page that was read
//! before. A range that is called written is of mappings that were. A forked child has what its parent has in memory of
//! these, and of others only what the page tables say. A page that is zeros still when it leaves memory is forgotten,
//! because to bring it back would be to fill it. Cost: three calls for the first write to a mapping. A window of what
//! was not written to costs three calls instead of one, and a look at each page of it that leaves. Without
//! `PROCMAP_QUERY` (before Linux 6.11) nothing is called written. Source: what the kernel's `mm/vma.c`, `mm/memory.c`
//! and `mm/userfaultfd.c` do.

use super::Engine;
use crate::PAGE;
use crate::page::pagemap::Pagemap;
use crate::page::table::State;
use refault_linux::errno::EEXIST;
use refault_linux::mappings::Mappings;

/// Pages that are asked about at once.
const AT_ONCE: usize = 64;

impl Engine {
    /// Whether nothing was written to the range that an address lies in, as far as is known.
    pub(crate) fn was_never_written(&self, address: usize) -> bool {
        self.pages.was_never_written(address)
    }

    /// The mapping that an address lies in was written to. What else the range is made of is other mappings, or will be
    /// found out.
    pub(crate) fn is_written(&mut self, address: usize) {
        if self.was_never_written(address)
            && let Some((start, end, _)) = self.pages.range(address)
            && let Some((first, last)) = Mappings::open().and_then(|mappings| mappings.around(address))
        {
            self.pages.change(start.max(first), end.min(last), |attributes| attributes.written = true);
        }
    }

    /// Has the kernel map zeros where pages without contents are read: the one at `address` and those around it, for
    /// which there is room. False if that page is not there then.
    pub(crate) fn map_zeros(&mut self, address: usize, first: usize, pages: usize) -> bool {
        let (bytes, end) = (pages * PAGE, first + pages * PAGE);
        let is_open = self.moving.unregister(first, bytes);
        let are_there = is_open && refault_linux::sys::populate(first, bytes) == 0;
        if !self.moving.register(first, bytes) {
            // The kernel lacks memory for it. What it does not tell of cannot be managed.
            for page in (first..end).step_by(PAGE).filter(|page| !self.moving.register(*page, PAGE)) {
                self.pages.remove(page, page + PAGE);
            }
        }
        let mut is_there = true;
        for page in (first..end).step_by(PAGE) {
            let error = if are_there { 0 } else { self.moving.fill_zeros(page, 1, false) };
            if (error >= 0 || error == EEXIST) && self.manages(page, PAGE) {
                self.fresh(page, 1);
            } else if page == address && self.manages(page, PAGE) {
                is_there = false;
            }
        }
        self.went_to(first, pages);
        is_there
    }

    /// Whether a page that was moved to a place is zeros still: then the place holds nothing any more. If it is not,
    /// its range was written to.
    pub(crate) fn is_zeros_still(&mut self, address: usize, place: u32) -> bool {
        // SAFETY: the place holds a page, which stays there while it is looked at.
        if unsafe { self.moving.page(place) }.0.as_chunks::<8>().0.iter().any(|word| u64::from_ne_bytes(*word) != 0) {
            self.is_written(address);
            return false;
        }
        self.unpark_for_good(place);
        true
    }

    /// In a forked child: the kernel does not copy the page tables of what was only read.
    pub(crate) fn drop_what_was_not_copied(&mut self, start: usize, end: usize) {
        let pagemap = Pagemap::open();
        let mut at = start;
        while let Some((known, _)) = self.pages.next_known(at, end) {
            let last = (known + AT_ONCE * PAGE).min(end);
            let there = pagemap.there(known, (last - known) / PAGE);
            for (index, address) in (known..last).step_by(PAGE).enumerate() {
                if there >> index & 1 == 0
                    && let Some((page, entry)) = self.pages.find(address)
                    && entry.state() == State::Resident
                {
                    self.drop_page(page, State::Resident);
                }
            }
            at = last;
        }
    }
}
