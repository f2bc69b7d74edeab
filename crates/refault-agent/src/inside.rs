//! What must not happen to a thread of the program while it is in the pager.
//!
//! Inside, it holds locks that whoever serves faults needs. A signal handler of the program would touch managed memory, and
//! wait for itself; a cancellation would leave the locks held.

use libc::c_int;

use refault_pager::BlockedSignals;

use crate::Agent;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// While it lives, no signal handler runs in this thread and nobody cancels it.
pub(crate) struct InPager {
    _signals: BlockedSignals,
    cancellation: c_int,
}

impl InPager {
    pub(crate) fn begin(_agent: &Agent) -> InPager {
        let mut cancellation = 0;
        // SAFETY: concerns this thread only and takes a pointer to a live variable.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut cancellation) };
        InPager { _signals: crate::block_signals(), cancellation }
    }
}

impl Drop for InPager {
    fn drop(&mut self) {
        // SAFETY: as above; the state is the one before.
        unsafe { pthread_setcancelstate(self.cancellation, std::ptr::null_mut()) };
    }
}
