//! Signals by number, flags of their actions and stacks, and what lies in a frame of one.

crate::numbers::constants! {
    SIGBUS: i32 = 7, "Memory that is mapped and not there.";
    SIGKILL: i32 = 9, "Ends a process.";
    SIGSEGV: i32 = 11, "Memory that is not mapped, or not for this.";
    SIGCHLD: i32 = 17, "A child has ended or stopped.";
    SIGSTOP: i32 = 19, "Stops a process.";
    SIGSYS: i32 = 31, "A call that is not allowed, or that goes to user space.";
    SI_QUEUE: i32 = -1, "Of a signal's code: a process has sent it with a value.";
    SI_USER: i32 = 0, "Of a signal's code: a process has sent it.";
    BUS_ADRALN: i32 = 1, "Of the code of SIGBUS: an address that is not aligned.";
    SI_TKILL: i32 = -6, "Of a signal's code: a thread has sent it to a thread.";
    SI_TIMER: i32 = -2, "Of a signal's code: a timer has sent it.";
    SIGEV_THREAD_ID: i32 = 4, "A timer's signal goes to a thread.";
    SYS_USER_DISPATCH: i32 = 2, "Of the code of SIGSYS: a call that goes to user space.";
    SIG_BLOCK: usize = 0, "These signals are blocked as well.";
    SIG_UNBLOCK: usize = 1, "These signals are blocked no more.";
    SIG_SETMASK: usize = 2, "The signals that are blocked are these.";
    SA_NOCLDSTOP: u64 = 1, "No signal of a child that stops.";
    SA_NOCLDWAIT: u64 = 2, "Children need no wait.";
    SA_SIGINFO: u64 = 4, "The handler is told why.";
    SA_EXPOSE_TAGBITS: u64 = 0x800, "Tags of addresses stay in what the handler is told.";
    SA_RESTORER: u64 = 0x0400_0000, "The action says what the handler returns to.";
    SA_ONSTACK: u64 = 0x0800_0000, "On the alternate stack.";
    SA_RESTART: u64 = 0x1000_0000, "Calls are made again behind the handler.";
    SA_NODEFER: u64 = 0x4000_0000, "The signal is not blocked by its handler.";
    SA_RESETHAND: u64 = 0x8000_0000, "The action holds once.";
    SS_ONSTACK: u32 = 1, "The thread is on its alternate stack.";
    SS_DISABLE: u32 = 2, "There is no alternate stack.";
    SS_AUTODISARM: u32 = 1 << 31, "There is none while a handler runs.";
    FP_XSTATE_MAGIC1: u32 = 0x4650_5853, "Of a frame's vector state: more than the first 512 bytes is there.";
}

crate::numbers::places! {
    "struct _fpstate": {
        FPSTATE_MXCSR = 24 "mxcsr";
    }
}

/// Signals that there are: their numbers begin at 1.
pub const SIGNALS: usize = 64;
/// Bytes of a set of signals, as every call takes it: a bit for each of [`SIGNALS`].
pub const SET_BYTES: usize = SIGNALS / u8::BITS as usize;
/// The handler of a signal that has none (`SIG_DFL`).
pub const SIG_DFL: usize = 0;
/// The handler of a signal that is ignored (`SIG_IGN`). Higher ones are a program's.
pub const SIG_IGN: usize = 1;
/// Bytes that an alternate stack has at least, as the kernel's headers have it: libc's ask the processor.
pub const MINSIGSTKSZ: usize = 2048;
/// Bytes of a frame's vector state that every processor has.
pub const FPSTATE_LEGACY: usize = 512;
/// Where the kernel says in them what there is beside them (`struct _fpx_sw_bytes`): the last 48.
pub const FPSTATE_MAGIC: usize = FPSTATE_LEGACY - 48;
/// Where it says how many bytes there are in all.
pub const FPSTATE_BYTES: usize = FPSTATE_MAGIC + size_of::<u32>();
/// What the register of vector rounding and exceptions is in a fresh thread.
pub const MXCSR_DEFAULT: u32 = 0x1f80;
/// Bytes below the stack pointer that belong to the code that runs.
pub const RED_ZONE: usize = 128;
/// Of a processor's flags: steps, direction, and one instruction without a breakpoint.
pub const FLAG_TRAP: u64 = 0x100;
/// See [`FLAG_TRAP`]: strings go downwards.
pub const FLAG_DIRECTION: u64 = 0x400;
/// See [`FLAG_TRAP`]: no breakpoint at the next instruction.
pub const FLAG_RESUME: u64 = 0x1_0000;
/// See [`FLAG_TRAP`]: addresses that are not aligned are refused.
pub const FLAG_ALIGNMENT: u64 = 0x4_0000;
/// Of a fault's error code: the page is there, and not for this.
pub const FAULT_PRESENT: u64 = 1;
/// Of a fault's error code: it was a write.
pub const FAULT_WRITE: u64 = 2;
