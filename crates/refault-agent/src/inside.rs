//! What must not happen to a thread of the program while it is in the pager.
//!
//! Inside, it holds locks that whoever serves faults needs. A signal handler of the program would touch managed memory, and
//! wait for itself; a cancellation would leave the locks held. And its own stack may be managed memory (`pthread_attr_setstack`,
//! coroutines): so inside it runs on another one ([`stacks`]), and the data that libc keeps for the thread, which lies at the end of
//! such a stack, stays resident meanwhile.
//!
//! Cost: two system calls.

use std::cell::Cell;

use libc::c_int;

use refault_pager::{BlockedSignals, Touched};

use crate::{Agent, stacks};

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;
const PTHREAD_CANCEL_DEFERRED: c_int = 0;

/// While it lives, no signal handler runs in this thread and nobody cancels it.
struct Undisturbed {
    _signals: BlockedSignals,
    cancellation: c_int,
}

impl Undisturbed {
    fn begin() -> Undisturbed {
        let mut cancellation = 0;
        // SAFETY: concerns this thread only and takes a pointer to a live variable.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut cancellation) };
        Undisturbed { _signals: crate::block_signals(), cancellation }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        let mut kind = 0;
        // SAFETY: as above; state and type are those before.
        unsafe {
            // By the type, because to enable asynchronous cancellation ends the thread without its result (glibc 2.34 to 2.40).
            pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &mut kind);
            pthread_setcancelstate(self.cancellation, std::ptr::null_mut());
            if kind != PTHREAD_CANCEL_DEFERRED {
                pthread_setcanceltype(kind, std::ptr::null_mut());
            }
        }
    }
}

/// Runs `work`, which calls the pager, where nothing can make it wait for a fault: it must not use the caller's variables while it
/// is in the pager, so what it needs is to be moved into it.
pub(crate) fn run<T>(agent: &Agent, work: impl FnOnce() -> T) -> T {
    let _undisturbed = Undisturbed::begin();
    let keeps = needs_its_data_kept(agent);
    stacks::off_managed(agent, move || {
        let _kept = keeps.then(|| agent.pager.keep(data_of_this_thread().into_iter()));
        work()
    })
}

fn needs_its_data_kept(agent: &Agent) -> bool {
    agent.pager.owns(this_thread()) && !stacks::is_on_one()
}

/// Whether this thread's stack, or what libc keeps for it, is managed memory.
pub(crate) fn lives_in_managed_memory(agent: &Agent) -> bool {
    agent.pager.owns(this_thread()) || stacks::is_managed(agent)
}

/// The agent's variables of a thread, those of Rust's library included, are fewer bytes.
const OWN_DATA: usize = 512;

/// Where libc keeps the head of its record of a thread, `errno`, and the agent's variables of the thread.
fn data_of_this_thread() -> [Touched; 3] {
    const HEAD: usize = 1024;
    thread_local!(static OWN: Cell<u8> = const { Cell::new(0) });
    let own = OWN.with(|own| own.as_ptr() as usize);
    // SAFETY: always succeeds.
    let errno = unsafe { libc::__errno_location() } as usize;
    let written = |address, len| Touched { address, len, written: true };
    [written(this_thread(), HEAD), written(errno, size_of::<c_int>()), written(own - OWN_DATA, 2 * OWN_DATA)]
}

fn this_thread() -> usize {
    // SAFETY: always succeeds.
    unsafe { libc::pthread_self() as usize }
}
