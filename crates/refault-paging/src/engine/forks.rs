//! The engine around a fork: room for the child before, and the same contents under a userfaultfd of the child's own
//! after.
//!
//! Both sides share frames, compressed pages and staging area until one writes to them, and then that side is charged.
//! Invariant: a range of which the child has no mapping any more is not managed there. Cost: room for what the child's
//! agent writes to at once, and one registration for each range.

use super::Engine;
use crate::PAGE;
use crate::page::table::State;
use crate::tree::MIN_PAGES;
use refault_linux::calls::SYS_mincore;
use refault_linux::sys;
use refault_linux::uffd::Uffd;

/// One part in this of the budget is free for a child when it is forked, beside what its agent takes.
const CHILD_PART: usize = 32;

impl Engine {
    /// Right before a fork.
    pub fn before_fork(&mut self) {
        // The tree would charge no process for what one side drops of them.
        self.moving.drop_husks();
        self.moving.drop_spares();
        self.own.look(self.contents.seal_bytes());
        // What is shared cannot be given up by one side alone, so room for the child is made before.
        // More than all that is there cannot change sides.
        let changes = (self.account.tree_limit() as usize / CHILD_PART).min(self.pages.in_memory());
        let for_child = self.own_bytes() / PAGE + MIN_PAGES as usize + changes;
        self.account.reserves_ahead(true);
        self.make_room(for_child);
        self.sharing.join(|| self.account.family());
        let shared = self.shareable();
        self.account.before_fork((self.own_bytes() / PAGE) as u64, shared);
        self.settle();
        self.account.reserves_ahead(false);
        self.contents.before_fork();
        self.moving.share();
        self.guard_all();
    }

    /// Pages that a child shares. What the agent needs itself is written to on both sides soon.
    fn shareable(&self) -> u64 {
        let pool = if self.resident_only { 0 } else { self.contents.pool_bytes() as usize / PAGE };
        (self.pages.in_memory() + self.moving.memory() + pool) as u64
    }

    /// In the parent, after it: the child, or the kernel's error.
    pub fn has_forked(&mut self, child: isize) {
        self.account.has_forked(child as i32);
    }

    /// Right before a child shares this memory that has other descriptors: it must have those of the files.
    pub fn before_sharing(&mut self) {
        self.contents.open_file();
    }

    /// Registers a range whose parts may be gone: a call that changed several mappings may have stopped in the middle.
    /// Those parts are not managed any more.
    fn register_what_is_there(&mut self, start: usize, end: usize) -> Result<(), &'static str> {
        if self.moving.register(start, end - start) {
            return Ok(());
        }
        if end - start > PAGE {
            let middle = start + (end - start) / 2 / PAGE * PAGE;
            self.register_what_is_there(start, middle)?;
            return self.register_what_is_there(middle, end);
        }
        let mut there = 0u8;
        // SAFETY: mincore writes one byte.
        let gone = unsafe { sys::call(SYS_mincore, [start, PAGE, &raw mut there as usize, 0, 0, 0]) } < 0;
        if gone || self.pages.state(start) == State::Untouched {
            self.pages.remove(start, end);
            self.drop_contents(start, end);
            return Ok(());
        }
        Err("a page cannot be registered in the child")
    }

    /// In a forked child, before the program goes on: the same contents under a userfaultfd of its own.
    ///
    /// # Errors
    /// Says what is not to be had.
    pub fn after_fork(&mut self, uffd: Uffd) -> Result<(), &'static str> {
        self.moving.after_fork(uffd)?;
        self.pages.wait_for_nothing();
        let shared = self.shareable();
        self.account.after_fork(shared, self.contents.alone());
        self.contents.after_fork();
        self.counts.take();
        self.arm_mirror()?;
        for (start, end, attributes) in self.pages.ranges() {
            if attributes.not_in_children {
                self.pages.remove(start, end);
                self.drop_contents(start, end);
                continue;
            }
            if attributes.zeros_in_children {
                self.drop_contents(start, end);
                // The kernel keeps guards in the page tables, which the child begins without.
                self.pages.change(start, end, |attributes| (attributes.guard, attributes.written) = (false, false));
            } else if !attributes.written {
                self.drop_what_was_not_copied(start, end);
            }
            self.register_what_is_there(start, end)?;
        }
        // It has lost its guard with its parent's userfaultfd.
        self.guard_all();
        self.settle();
        Ok(())
    }

    /// Nothing of what a parent has locked is locked in this child. The child does not tell the tree, for its slot is
    /// not yet its own.
    pub fn unlock_in_child(&mut self) {
        if self.pages.any_locked() {
            self.pages.lock(0, usize::MAX, false);
        }
        self.pages.change(0, usize::MAX, |attributes| attributes.lock(false));
    }

    /// In a child of a fork: counts what it has written to of its parent's pages, now and then.
    pub fn count_what_was_written(&mut self) {
        if self.account.look_at_common(self.charge()) {
            self.settle();
        }
    }
}
