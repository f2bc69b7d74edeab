//! Stacks for threads of the program whose own one is managed memory, while they are in the pager.
//!
//! A thread that holds what a fault waits for and then finds a page of its stack evicted would wait for itself.
//!
//! Invariant: a stack is one thread's at a time, and nobody who uses one waits for managed memory. Cost: nothing where the stack is not
//! managed; otherwise two atomic operations. There are [`COUNT`], and who finds none free waits for one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::Agent;

/// Stacks at once.
const COUNT: usize = 16;

/// Bytes of a stack. Takes memory only where it is used.
const SIZE: usize = 256 << 10;

/// Bytes below each stack that nobody may touch.
const GUARD: usize = 64 << 10;

static BASE: AtomicUsize = AtomicUsize::new(0);
static TAKEN: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];

/// Runs `work` on a stack that is not managed. All signals that have handlers must be blocked.
pub(crate) fn off_managed<T>(agent: &Agent, work: impl FnOnce() -> T) -> T {
    if !is_managed(agent) {
        return work();
    }
    let stack = Stack::take();
    // SAFETY: a stack of that size with a guard below it, and nobody else's. Nothing leaves `work` but by returning: panics end the
    // program, and the thread is not cancelled inside the pager.
    unsafe { psm::on_stack(stack.lowest(), SIZE, work) }
}

/// Whether this thread's stack is managed memory.
pub(crate) fn is_managed(agent: &Agent) -> bool {
    agent.pager.owns(psm::stack_pointer() as usize)
}

/// Whether this thread runs on one of these stacks.
pub(crate) fn is_on_one() -> bool {
    let base = BASE.load(Ordering::Acquire);
    base != 0 && (psm::stack_pointer() as usize).wrapping_sub(base) < COUNT * (GUARD + SIZE)
}

/// In the child of a fork no other thread runs, and the one that does is on none of them.
pub(crate) fn forget() {
    TAKEN.iter().for_each(|taken| taken.store(false, Ordering::Release));
}

struct Stack(usize);

impl Stack {
    fn take() -> Stack {
        loop {
            let free = |taken: &AtomicBool| !taken.load(Ordering::Relaxed) && !taken.swap(true, Ordering::Acquire);
            match TAKEN.iter().position(free) {
                Some(index) => return Stack(index),
                None => std::thread::yield_now(),
            }
        }
    }

    /// Its lowest address.
    fn lowest(&self) -> *mut u8 {
        (base() + self.0 * (GUARD + SIZE) + GUARD) as *mut u8
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        TAKEN[self.0].store(false, Ordering::Release);
    }
}

/// Where they lie; they are made when the first one is needed.
fn base() -> usize {
    let known = BASE.load(Ordering::Acquire);
    if known != 0 {
        return known;
    }
    let len = COUNT * (GUARD + SIZE);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK;
    // SAFETY: a fresh mapping at an address that the kernel chooses; the rights are changed inside it.
    let made = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), flags).and_then(|made| {
            for index in 0..COUNT {
                let lowest = made.byte_add(index * (GUARD + SIZE) + GUARD);
                rustix::mm::mprotect(lowest, SIZE, MprotectFlags::READ | MprotectFlags::WRITE)?;
            }
            Ok(made)
        })
    };
    let Ok(made) = made else { crate::limits::end_without_addresses() };
    match BASE.compare_exchange(0, made as usize, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => made as usize,
        Err(other) => {
            // SAFETY: another thread was faster, so nobody knows this mapping.
            let _ = unsafe { rustix::mm::munmap(made, len) };
            other
        }
    }
}
