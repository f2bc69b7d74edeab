//! Signals by number, sets of them, and actions, as the kernel has them.

use refault_linux::signals::SIGNALS;
pub(crate) use refault_linux::signals::{SIGBUS, SIGSEGV, SIGSYS};

/// The signals that stay open: a bit each.
pub(crate) const ALWAYS_OPEN: u64 = bit(SIGSYS) | bit(SIGBUS) | bit(SIGSEGV);
/// What is blocked while the agent works: all but what the agent's own faults raise.
pub(crate) const ALL: u64 = !(bit(SIGBUS) | bit(SIGSEGV));

/// The bit of a signal in a set.
pub(crate) const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// An action, as the kernel has it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Action {
    pub(crate) handler: usize,
    pub(crate) flags: u64,
    pub(crate) restorer: usize,
    pub(crate) mask: u64,
}

/// The program's actions by signal. The first is none's.
#[derive(Clone)]
pub(crate) struct Actions(pub(crate) [Action; SIGNALS + 1]);
