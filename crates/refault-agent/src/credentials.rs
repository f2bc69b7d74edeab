//! Credentials: what a thread of the program sets for itself is set for the agent's threads too.
//!
//! The kernel keeps credentials a thread. libc changes user and group in all threads of a process, and ends the process if that
//! does not work alike in each; but capabilities and what becomes of them are changed in one thread only. Programs that
//! have but one rely on that: they keep the right to change their group beyond a change of the user. With the agent
//! such a program has several threads, and would be ended. So `capset`, and those `prctl` that decide what a change of
//! the user leaves, are repeated in the agent's threads, by a signal that libc keeps for itself and nobody can block.
//!
//! Nothing is repeated in other threads of the program: what they may do is its business. On other processors than x86-64 nothing
//! is repeated at all.

use std::ffi::{c_int, c_long, c_ulong};

/// What capset(2) takes first.
#[repr(C)]
pub struct Header {
    version: u32,
    pid: c_int,
}

/// capset(2).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn capset(header: *mut Header, sets: *const u32) -> c_int {
    /// The first version has sets of one half; the later ones' lower halves come first.
    const FIRST_VERSION: u32 = 0x1998_0330;
    // SAFETY: passed on as it came.
    let result = unsafe { libc::syscall(libc::SYS_capset, header, sets) } as c_int;
    if result == 0 && crate::agent().is_some() {
        // SAFETY: the kernel has just read both, so they are there.
        unsafe {
            let words = if (*header).version == FIRST_VERSION { 3 } else { 6 };
            repeat::capabilities((*header).version, std::slice::from_raw_parts(sets, words));
        }
    }
    result
}

/// prctl(2). In C it takes any number of arguments, which are passed as five would be.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    // SAFETY: passed on as it came.
    let result = unsafe { libc::syscall(libc::SYS_prctl, c_long::from(option), a, b, c, d) } as c_int;
    if result == 0 && matches!(option, libc::PR_SET_KEEPCAPS | libc::PR_SET_SECUREBITS) && crate::agent().is_some() {
        repeat::call([libc::SYS_prctl as usize, option as usize, a as usize]);
    }
    result
}

#[cfg(not(target_arch = "x86_64"))]
mod repeat {
    pub(super) fn capabilities(_version: u32, _sets: &[u32]) {}
    pub(super) fn call(_call: [usize; 3]) {}
}

#[cfg(target_arch = "x86_64")]
mod repeat {
    use std::ffi::{c_int, c_void};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use crate::{block_signals, heap};

    /// The signal by which libc cancels threads. It is delivered whatever a thread blocks.
    const SIGNAL: c_int = 32;
    /// Longer than a thread ever needs to take a signal.
    const PATIENCE: Duration = Duration::from_millis(500);

    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    /// Number and arguments of the system call.
    static CALL: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
    /// Header and sets of capset(2), which outlive the call.
    static HEADER: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];
    static SETS: [AtomicU32; 6] = [const { AtomicU32::new(0) }; 6];
    /// Threads that have made it.
    static DONE: AtomicU32 = AtomicU32::new(0);

    pub(super) fn capabilities(version: u32, sets: &[u32]) {
        HEADER[0].store(version, Ordering::Relaxed);
        SETS.iter().zip(sets).for_each(|(place, word)| place.store(*word, Ordering::Relaxed));
        call([libc::SYS_capset as usize, HEADER.as_ptr() as usize, SETS.as_ptr() as usize]);
    }

    /// Lets the agent's threads make a system call with two arguments, the others zeros.
    pub(super) fn call(call: [usize; 3]) {
        let _signals = block_signals();
        // Never waited for: in the child of a fork it may stay locked.
        let Ok(_lock) = ONE_AT_A_TIME.try_lock() else { return };
        CALL.iter().zip(call).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        DONE.store(0, Ordering::SeqCst);
        let before = set_action(&Action::new());
        let mut told = 0;
        for thread in heap::own_thread_ids() {
            // SAFETY: a signal to one thread of this process.
            told += u32::from(unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, SIGNAL) } == 0);
        }
        let deadline = Instant::now() + PATIENCE;
        while DONE.load(Ordering::SeqCst) < told && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(20));
        }
        // The default action would end the program if a thread took the signal later; libc puts its own in force when it
        // needs it.
        if before.handler != libc::SIG_DFL {
            set_action(&before);
        }
    }

    /// `struct sigaction` as the kernel has it: libc's function refuses the signals that libc keeps for itself.
    #[repr(C)]
    struct Action {
        handler: usize,
        flags: u64,
        restorer: usize,
        mask: u64,
    }

    impl Action {
        fn new() -> Action {
            const SA_RESTORER: u64 = 0x0400_0000;
            Action {
                handler: on_signal as *const () as usize,
                flags: libc::SA_RESTART as u64 | SA_RESTORER,
                restorer: restore as *const () as usize,
                mask: u64::MAX,
            }
        }
    }

    /// Puts an action in force and returns the one before.
    fn set_action(action: &Action) -> Action {
        let mut before = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
        let (new, old): (*const Action, *mut Action) = (action, &mut before);
        // SAFETY: both structures are the kernel's and live; the handler only makes a system call.
        unsafe {
            let (new, old) = (new.cast::<c_void>(), old.cast::<c_void>());
            libc::syscall(libc::SYS_rt_sigaction, SIGNAL, new, old, size_of::<u64>());
        }
        before
    }

    /// Returns from a signal handler.
    #[unsafe(naked)]
    extern "C" fn restore() {
        std::arch::naked_asm!("mov eax, 15", "syscall")
    }

    extern "C" fn on_signal(_signal: c_int) {
        // Somebody may just cancel a thread of the program.
        if !heap::is_own_thread() {
            return;
        }
        let [number, a, b] = std::array::from_fn(|word| CALL[word].load(Ordering::Relaxed));
        // SAFETY: changes this thread's credentials as another thread's were; pointers are to statics. errno is put back.
        unsafe {
            let errno = *libc::__errno_location();
            libc::syscall(number as i64, a, b, 0, 0, 0);
            *libc::__errno_location() = errno;
        }
        DONE.fetch_add(1, Ordering::SeqCst);
    }
}
