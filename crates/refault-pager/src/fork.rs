//! Forks: a child gets memory of its own, with the contents of the moment.
//!
//! The regions' mapping is shared memory, so a child that inherited it would write into its parent. It is therefore not
//! inherited at all; what the child gets instead is made around the fork by three calls:
//!
//! - [`Pager::before_fork`] in the parent closes the gate (no page is on its way) and write-protects what is resident.
//!   So other threads of the parent cannot change the picture while the child copies it.
//! - [`Pager::after_fork_in_child`] copies the resident pages into a memfd of the child and makes the stores the
//!   child's own. The compressed pool is private memory and was inherited; a file is copied. Then the call opens a
//!   userfaultfd and starts threads.
//! - [`Pager::after_fork_in_parent`] waits for that and lets the parent go on.
//!
//! [`Pager::take_along_in_forks`] has libc's `fork` call them.
//!
//! Cost: the parent stands still while the resident pages, and the slots of a file store, are copied (some 0.5 ms a
//! MiB). The child has a budget of its own, as large as the parent's. `vfork` and `posix_spawn` need none of this: they
//! borrow the parent's memory until the `exec`.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use refault_core::PageId;
use refault_store::PAGE_SIZE;

use crate::engine::for_runs;
use crate::pager::{Inner, Pager};
use crate::pte_lock::PteLock;
use crate::state::State;

/// What connects a parent and its child while the child copies.
pub struct ForkTicket {
    done: OwnedFd,
    child_end: OwnedFd,
    protected: bool,
}

impl Pager {
    /// To be called by the forking thread right before `fork`. Until one of the other calls, no thread can fault.
    /// `other_threads` is how many threads of the process never write to regions, besides the pager's own.
    pub fn before_fork(&self, other_threads: usize) -> io::Result<ForkTicket> {
        // SAFETY: the array has room for both descriptors.
        let (done, child_end) = unsafe {
            let mut ends = [0; 2];
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
                return Err(io::Error::last_os_error());
            }
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        let inner = self.inner();
        inner.gate.close();
        let own = inner.threads.lock().expect("invariant: nothing panics under this lock").len() + other_threads;
        // A program with one thread stands in `fork` and needs no protection.
        let protected = crate::proc_stat::threads().is_none_or(|all| all > own + 1);
        if protected {
            inner.for_resident_runs(|first, pages| {
                if let Err(error) =
                    inner.uffd.protect(&PteLock::lock(), inner.arena.address(first), pages as usize * PAGE_SIZE)
                {
                    crate::report::end_for("write-protecting memory for a fork", &error);
                }
            });
        }
        Ok(ForkTicket { done, child_end, protected })
    }

    /// To be called in the parent after `fork`, whether it worked or not.
    pub fn after_fork_in_parent(&self, ticket: ForkTicket) {
        let inner = self.inner();
        drop(ticket.child_end);
        let mut byte = [0];
        while let Err(rustix::io::Errno::INTR) = rustix::io::read(&ticket.done, &mut byte) {}
        if ticket.protected {
            inner.for_resident_runs(|first, pages| {
                // Pages that are equal to their slot stay protected.
                let kept = |page| inner.word(page).load().kept();
                let plain: Vec<PageId> = (first..first + pages).filter(|page| !kept(*page)).collect();
                for_runs(&plain, |first, pages| {
                    let _ =
                        inner.uffd.unprotect(&PteLock::lock(), inner.arena.address(first), pages as usize * PAGE_SIZE);
                });
            });
        }
        inner.gate.open();
        // Threads that waited for a write look again.
        let _ = inner.uffd.wake(inner.arena.base(), inner.arena.len());
    }

    /// To be called in the child after `fork`, before anything touches a region.
    pub fn after_fork_in_child(&self, ticket: ForkTicket) -> io::Result<()> {
        let inner = self.inner();
        let high = inner.arena.high();
        let resident = |page: &PageId| inner.word(*page).load().state() == State::Resident;
        inner.arena.replace_after_fork((0..high).filter(resident))?;
        inner.store.after_fork()?;
        inner.uffd.renew()?;
        inner.uffd.register(inner.arena.base(), inner.arena.len())?;
        for page in 0..high {
            let seen = inner.word(page).load();
            if seen.state() == State::Lost {
                inner.uffd.poison(inner.arena.address(page), PAGE_SIZE)?;
            } else if seen.kept() {
                inner.uffd.protect(&PteLock::lock(), inner.arena.address(page), PAGE_SIZE)?;
            }
        }
        inner.engine().bits().reopen_after_fork();
        inner.pressure.forget_waits();
        inner.pin_slots.forget();
        inner.evictor_signal.store(0, Ordering::SeqCst);
        inner.keeper.forget();
        inner.read_ahead.forget();
        // The parent's threads are not here: nothing is to be joined.
        std::mem::forget(std::mem::take(
            &mut *inner.threads.lock().expect("invariant: nothing panics under this lock"),
        ));
        inner.gate.open();
        crate::threads::start(inner)?;
        drop(ticket);
        Ok(())
    }
}

impl Inner {
    fn for_resident_runs(&self, mut run: impl FnMut(PageId, u32)) {
        let high = self.arena.high();
        let mut start = None;
        for page in 0..=high {
            let resident = page < high && self.word(page).load().state() == State::Resident;
            match (resident, start) {
                (true, None) => start = Some(page),
                (false, Some(first)) => {
                    run(first, page - first);
                    start = None;
                }
                _ => {}
            }
        }
    }
}

impl AsFd for ForkTicket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.child_end.as_fd()
    }
}
