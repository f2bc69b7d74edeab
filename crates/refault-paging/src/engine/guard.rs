//! Guarding what a fork has shared, so that no page is copied before there is room for it.
//!
//! After a fork the kernel copies a page when either side writes to it, and does not tell the process. So both sides
//! protect their resident pages against writing (`UFFDIO_WRITEPROTECT`, user-mode faults only, no privilege). The first
//! write to one comes here as a fault, room is made and charged, and only then the kernel may copy. What else ceases to
//! be shared is counted where that happens: evicted or unmapped pages, places of the staging area, memory of the
//! compressed pool. When no relative is left to share with, the engine lifts the guard as a whole.
//!
//! Invariants: a page that the table calls guarded is resident, and no call in progress holds it for writing; a page
//! that is not guarded is this process's own, or was charged as if it were. Cost: a walk through the page tables per
//! fork on both sides, and a fault per first write, for neighbours in a row together. Source: the kernel's
//! documentation of userfaultfd.

use super::{Engine, MAX_WINDOW, Outcome};
use crate::PAGE;
use crate::page::pagemap::Pagemap;
use crate::page::table::State;
use refault_linux::errno::ENOMEM;

impl Engine {
    /// Guards every resident page that no call holds.
    pub(crate) fn guard_all(&mut self) {
        self.keep_listed();
        for (start, end, _) in self.pages.ranges() {
            // Pages that are not there are no reason to stop a run.
            let (mut run, mut any, mut at) = (start, false, start);
            while let Some((known, chunk_end)) = self.pages.next_known(at, end) {
                for address in (known..chunk_end).step_by(PAGE) {
                    let Some((page, entry)) = self.pages.find(address) else { continue };
                    if entry.state() != State::Resident {
                        continue;
                    }
                    if !entry.is_held() {
                        // In a child most are guarded already, and what is written to the kernel copies.
                        if !entry.is_guarded() {
                            self.pages.guard(page, true);
                        }
                        any = true;
                    } else {
                        self.protect(run, address, any);
                        (run, any) = (address + PAGE, false);
                    }
                }
                at = chunk_end;
            }
            self.protect(run, end, any);
        }
        self.sharing.starts();
    }

    fn protect(&self, start: usize, end: usize, any: bool) {
        if any && start < end {
            self.moving.protect(start, end - start, true);
        }
    }

    /// Lifts the guard as a whole if no relative is left to share with.
    pub(crate) fn lift_guard_if_alone(&mut self) {
        if self.sharing.guards() && !self.account.has_relatives() {
            self.lift_guard();
        }
    }

    /// Nothing is shared any more.
    fn lift_guard(&mut self) {
        self.sharing.ends();
        self.contents.unshare();
        for (start, end, _) in self.pages.ranges() {
            let mut at = start;
            let mut any = false;
            while let Some((known, chunk_end)) = self.pages.next_known(at, end) {
                for address in (known..chunk_end).step_by(PAGE) {
                    if let Some((page, entry)) = self.pages.find(address)
                        && entry.is_guarded()
                    {
                        self.pages.guard(page, false);
                        any = true;
                    }
                }
                at = chunk_end;
            }
            if any {
                self.moving.protect(start, end - start, false);
            }
        }
    }

    /// Whether the page at an address may not be written to yet.
    pub(crate) fn is_guarded(&self, address: usize) -> bool {
        self.sharing.guards() && self.pages.find(address).is_some_and(|(_, entry)| entry.is_guarded())
    }

    /// A resident page is about to be written to: makes room for the copy and charges it, for its guarded neighbours
    /// too where writes go on in a row.
    pub(crate) fn may_write(&mut self, address: usize) -> Outcome {
        self.lift_guard_if_alone();
        let Some((page, entry)) = self.pages.find(address) else { return Outcome::Served };
        if !entry.is_guarded() {
            // Protected by what the kernel does with a mapping that moves, or not any more.
            return self.opens(address, 1);
        }
        let (first, pages) = self.guarded_window(address);
        // What makes room may take the others, but not this one.
        self.pages.hold(page, 1);
        self.make_room(pages);
        self.pages.hold(page, -1);
        let (shared, mut copied) = (Pagemap::open().shared(first, pages), 0);
        for index in 0..pages {
            if let Some((page, entry)) = self.pages.find(first + index * PAGE)
                && entry.is_guarded()
            {
                self.pages.guard(page, false);
                copied += shared >> index & 1;
            }
        }
        self.account.unshared(copied);
        self.went_to(first, pages);
        self.opens(first, pages)
    }

    /// Lets resident pages be written to. Without memory for it the write would be tried for ever.
    fn opens(&mut self, first: usize, pages: usize) -> Outcome {
        let error = self.moving.open(first, pages * PAGE);
        if error == ENOMEM {
            self.counts.failed(error);
            return Outcome::Lost;
        }
        Outcome::Served
    }

    /// The guarded pages in a row from an address on, as many as were written to before and twice as many again.
    fn guarded_window(&mut self, address: usize) -> (usize, usize) {
        let (first, pages) = self.window(address, |_, state| state == State::Resident);
        let pages = pages.min(MAX_WINDOW);
        let is_guarded = |index: usize| self.is_guarded(address + index * PAGE);
        if first == address {
            (first, (1..pages).take_while(|index| is_guarded(*index)).count() + 1)
        } else {
            (address, 1)
        }
    }

    /// Whether a page that may be evicted is shared still. One that is not is guarded no more.
    pub(crate) fn is_shared(&mut self, address: usize, pagemap: &Pagemap) -> bool {
        if !self.is_guarded(address) {
            return false;
        }
        let shared = pagemap.shared(address, 1) != 0;
        if !shared && let Some((page, _)) = self.pages.find(address) {
            self.pages.guard(page, false);
            self.moving.protect(address, PAGE, false);
        }
        shared
    }

    /// Looks which guarded pages are this process's own by now, and guards those no more. Returns how many are shared
    /// still.
    pub(crate) fn unguard_own(&mut self) -> usize {
        let pagemap = Pagemap::open();
        let all = self.pages.ranges();
        let mut left = 0;
        for (start, end, _) in all {
            let mut at = start;
            while let Some((known, chunk_end)) = self.pages.next_known(at, end) {
                left += self.unguard_own_of(known, chunk_end, &pagemap);
                at = chunk_end;
            }
        }
        left
    }

    /// The same in a part of one chunk.
    fn unguard_own_of(&mut self, start: usize, end: usize, pagemap: &Pagemap) -> usize {
        let pages = (end - start) / PAGE;
        let guarded = (0..pages)
            .filter(|index| self.is_guarded(start + index * PAGE))
            .fold(0, |bits, index| bits | 1u64 << index);
        if guarded == 0 {
            return 0;
        }
        let own = guarded & !pagemap.shared(start, pages);
        let mut index = 0;
        while own >> index != 0 {
            index += (own >> index).trailing_zeros();
            let run = (own >> index).trailing_ones();
            let first = start + index as usize * PAGE;
            for address in (first..first + run as usize * PAGE).step_by(PAGE) {
                if let Some((page, _)) = self.pages.find(address) {
                    self.pages.guard(page, false);
                }
            }
            self.moving.protect(first, run as usize * PAGE, false);
            index += run;
            if index == 64 {
                break;
            }
        }
        (guarded & !own).count_ones() as usize
    }

    /// A page that was guarded is this process's own from now on, or leaves its memory. Whether it was.
    pub(crate) fn unguard(&mut self, address: usize) -> bool {
        let guarded = self.pages.find(address).filter(|(_, entry)| entry.is_guarded());
        if let Some((page, _)) = guarded {
            self.pages.guard(page, false);
            self.account.unshared(1);
        }
        guarded.is_some()
    }
}
