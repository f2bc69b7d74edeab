//! Visits: a process of the tree reads or writes memory of another through the kernel (`process_vm_readv`,
//! `/proc/PID/mem`). The kernel says EFAULT or EIO for a page that is out. Only the other's agent can bring it in.
//!
//! The visitor says which range it needs. The host brings that in, holds it until the visitor says that its call was
//! made, and lets go. Who wants to be a visitor of a process waits until the one before has left.
//!
//! States of a visit: [`FREE`] → [`TAKEN`] by a visitor → [`POSTED`] → [`COMING`] by the host → [`HELD`] → [`OVER`] →
//! [`FREE`]. Invariants: each change is made by one side alone, and by exchange where the other may give up at that
//! moment; a host never waits longer than [`MAX_STAY`], so a visitor that dies takes nothing with it.
//! Cost: a look at one word for a process that is asked; a signal and some tens of microseconds for a visit.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::tree::{Shared, Slot};
use refault_linux::sys;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const POSTED: u32 = 2;
const COMING: u32 = 3;
const HELD: u32 = 4;
const OVER: u32 = 5;

/// Nanoseconds for which a visitor waits for a host that does not come, and a host for a visitor that does not leave.
const MAX_WAIT: u64 = 300_000_000;
const MAX_STAY: u64 = 1_000_000_000;
/// Nanoseconds of one wait: after it a visitor asks once more, and looks who wants to visit itself.
const STEP: u64 = 2_000_000;

/// What a visitor wants of a process. All zeros: there is none.
#[repr(C)]
pub(crate) struct Visit {
    state: AtomicU32,
    /// 1: it writes.
    writes: AtomicU32,
    start: AtomicU64,
    bytes: AtomicU64,
}

impl Visit {
    /// The slot has a new process.
    pub(crate) fn forget(&self) {
        self.state.store(FREE, Ordering::Release);
    }

    fn passes(&self, from: u32, to: u32) -> bool {
        let is_changed = self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if is_changed {
            sys::wake_everywhere(&self.state);
        }
        is_changed
    }
}

/// A range that another process holds for this one, until this is dropped.
pub struct Visiting<'a> {
    visit: &'a Visit,
}

impl Drop for Visiting<'_> {
    fn drop(&mut self) {
        // A host that has waited too long has let go already.
        self.visit.passes(HELD, OVER);
    }
}

/// A range that a visitor waits for. The host brings it in, calls [`Visitor::arrives`], and before it lets go
/// [`Visitor::leaves`].
pub struct Visitor<'a> {
    visit: &'a Visit,
    /// Address of the first byte.
    pub start: usize,
    /// How many.
    pub bytes: usize,
    /// Whether it is written to.
    pub writes: bool,
}

impl Visitor<'_> {
    /// The range is held.
    pub fn arrives(&self) {
        self.visit.passes(COMING, HELD);
    }

    /// Waits until the visitor has made its call, or for a second. A host that visits another process meanwhile waits
    /// only when it has left that one: two that visit each other would wait for ever.
    pub fn leaves(self) {
        let until = sys::now() + MAX_STAY;
        while self.visit.state.load(Ordering::Acquire) == HELD && sys::now() < until {
            sys::wait_everywhere_for(&self.visit.state, HELD, STEP);
        }
        if !self.visit.passes(OVER, FREE) {
            self.visit.passes(HELD, FREE);
        }
    }
}

impl Shared {
    /// Whether a process of this number, in the caller's namespace, is in the tree.
    pub fn has_process(&self, process: i32) -> bool {
        self.slot_of(process).is_some()
    }

    fn slot_of(&self, process: i32) -> Option<&Slot> {
        let known = self.known_as(process);
        self.in_use().find(|slot| slot.process.load(Ordering::Acquire) == known)
    }

    /// Asks a process to hold a range of its memory for the caller. `meanwhile` is called now and then while this
    /// waits. `None`: it is not in the tree, does not come, or has another visitor that does not leave. A process does
    /// not come if it is stopped, or waits in a call that cannot be interrupted. Waits for 0.3 s at most.
    pub fn visit(
        &self,
        process: i32,
        start: usize,
        bytes: usize,
        writes: bool,
        mut meanwhile: impl FnMut(),
    ) -> Option<Visiting<'_>> {
        let (slot, until) = (self.slot_of(process)?, sys::now() + MAX_WAIT);
        let (known, visit) = (slot.process.load(Ordering::Relaxed), &slot.visit);
        while visit.state.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            if sys::now() >= until {
                // A visitor that died before it said what it wants.
                visit.passes(TAKEN, FREE);
                return None;
            }
            sys::wait_everywhere_for(&visit.state, visit.state.load(Ordering::Relaxed), STEP);
            meanwhile();
        }
        visit.start.store(start as u64, Ordering::Relaxed);
        visit.bytes.store(bytes as u64, Ordering::Relaxed);
        visit.writes.store(u32::from(writes), Ordering::Relaxed);
        if !visit.passes(TAKEN, POSTED) {
            return None;
        }
        loop {
            match visit.state.load(Ordering::Acquire) {
                HELD => return Some(Visiting { visit }),
                state @ (POSTED | COMING) => {
                    let is_late = sys::now() >= until || slot.process.load(Ordering::Acquire) != known;
                    if is_late && state == POSTED && visit.passes(POSTED, FREE) {
                        return None;
                    }
                    if state == POSTED {
                        self.ask_again();
                    }
                    sys::wait_everywhere_for(&visit.state, state, STEP);
                    meanwhile();
                }
                // The slot has another process by now.
                _ => return None,
            }
        }
    }

    /// Processes that have a visitor who waits, by their numbers here.
    pub fn visited(&self) -> impl Iterator<Item = i32> {
        self.in_use()
            .filter(|slot| slot.visit.state.load(Ordering::Acquire) == POSTED)
            .map(|slot| slot.process.load(Ordering::Relaxed))
            .filter(|process| *process > 0)
    }
}

impl Slot {
    /// Who wants to visit this process.
    pub(crate) fn visitor(&self) -> Option<Visitor<'_>> {
        let visit = &self.visit;
        if visit.state.load(Ordering::Acquire) != POSTED || !visit.passes(POSTED, COMING) {
            return None;
        }
        let [start, bytes] = [&visit.start, &visit.bytes].map(|word| word.load(Ordering::Relaxed) as usize);
        Some(Visitor { visit, start, bytes, writes: visit.writes.load(Ordering::Relaxed) != 0 })
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{Layout, alloc_zeroed};

    use super::*;

    /// A segment with this process in its first slot.
    fn segment() -> &'static Shared {
        // SAFETY: atomics for which zeros are values; it is never freed.
        let shared = unsafe { &*alloc_zeroed(Layout::new::<Shared>()).cast::<Shared>() };
        shared.slots[0].process.store(sys::process_id(), Ordering::Relaxed);
        shared.used.store(1, Ordering::Relaxed);
        shared
    }

    #[test]
    fn a_host_holds_what_a_visitor_names_until_it_leaves() {
        let shared = segment();
        let host = std::thread::spawn(move || {
            let visitor = loop {
                match shared.slots[0].visitor() {
                    Some(visitor) => break visitor,
                    None => std::thread::yield_now(),
                }
            };
            let seen = (visitor.start, visitor.bytes, visitor.writes);
            assert_eq!(shared.visited().count(), 0, "it is on its way");
            visitor.arrives();
            visitor.leaves();
            assert!(shared.slots[0].visitor().is_none(), "each is received once");
            seen
        });
        let visiting = shared.visit(sys::process_id(), 0x5000, 77, true, || {}).expect("the host comes");
        assert_eq!(shared.slots[0].visit.state.load(Ordering::Relaxed), HELD);
        drop(visiting);
        assert_eq!(host.join().expect("no panic"), (0x5000, 77, true));
        assert_eq!(shared.slots[0].visit.state.load(Ordering::Relaxed), FREE);
    }

    #[test]
    fn who_is_not_received_goes_away() {
        let shared = segment();
        assert!(shared.visit(i32::MAX, 0, 1, false, || {}).is_none(), "not in the tree");
        let mut asked = Vec::new();
        let visiting = shared.visit(sys::process_id(), 0, 1, false, || asked.extend(shared.visited()));
        assert!(visiting.is_none() && asked.contains(&sys::process_id()));
        assert_eq!(shared.asked.load(Ordering::Relaxed), 1, "who asks processes was woken");
        assert!(shared.slots[0].visitor().is_none() && shared.visited().next().is_none());
    }

    #[test]
    fn visitors_come_one_after_the_other() {
        let shared = segment();
        let visits = 4;
        let visitors: Vec<_> = (0..visits)
            .map(|place| {
                std::thread::spawn(
                    move || {
                        while shared.visit(sys::process_id(), place << 12, 1, false, || {}).is_none() {}
                    },
                )
            })
            .collect();
        let mut seen = Vec::new();
        while seen.len() < visits {
            if let Some(visitor) = shared.slots[0].visitor() {
                seen.push(visitor.start >> 12);
                visitor.arrives();
                visitor.leaves();
            }
            std::thread::yield_now();
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3]);
        visitors.into_iter().for_each(|visitor| visitor.join().expect("no panic"));
    }
}
