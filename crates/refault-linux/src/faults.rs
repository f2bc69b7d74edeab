//! Calls of our own that fail when a test says so. Only in builds with debug assertions; elsewhere nothing of it
//! exists.
//!
//! One fault is set per process: which call, from which of its calls on, how many times, and the error. It stands in
//! one word of text, so that a launcher's environment can carry it to the programs that it starts.
//!
//! Invariants: a call that fails this way is not made; calls of the program that is managed are never refused here.
//! Cost: one load per call.
//!
//! ```
//! # #[cfg(debug_assertions)] {
//! use refault_linux::{calls, errno, faults::Fault, sys};
//!
//! let fault = Fault { number: calls::SYS_madvise, argument: None, from: 1, times: 1, error: errno::ENOMEM };
//! assert_eq!(Fault::parse(&fault.text()), Some(fault));
//! fault.set();
//! let page = sys::map(4096);
//! // SAFETY: the mapping is ours.
//! assert_eq!(unsafe { sys::discard(page, 4096) }, errno::ENOMEM);
//! // SAFETY: as above.
//! assert_eq!(unsafe { sys::discard(page, 4096) }, 0);
//! # }
//! ```

use alloc::format;
use alloc::string::String;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicIsize, AtomicUsize, Ordering};

use crate::calls;
use crate::numbers::own as number;

/// The variable of the environment that holds a fault's text.
pub const VARIABLE: &str = "REFAULT_FAULT";

/// A call that fails. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The call's number.
    pub number: usize,
    /// Only calls with this value as this argument (0 to 5) count: a request of `ioctl`, an advice of `madvise`.
    pub argument: Option<(usize, usize)>,
    /// The first call that fails, from 1.
    pub from: i64,
    /// How many fail, from there on.
    pub times: i64,
    /// The negative error number.
    pub error: isize,
}

/// No call has this number.
const NONE: usize = usize::MAX;

static NUMBER: AtomicUsize = AtomicUsize::new(NONE);
static INDEX: AtomicUsize = AtomicUsize::new(NONE);
static VALUE: AtomicUsize = AtomicUsize::new(0);
/// Calls that come before the first that fails.
static BEFORE: AtomicI64 = AtomicI64::new(0);
static TIMES: AtomicI64 = AtomicI64::new(0);
static ERROR: AtomicIsize = AtomicIsize::new(0);

impl Fault {
    /// As six numbers with commas between them.
    pub fn text(&self) -> String {
        let (index, value) = self.argument.unwrap_or((NONE, 0));
        let Fault { number, from, times, error, .. } = self;
        format!("{number},{index},{value},{from},{times},{error}")
    }

    /// From such a text.
    pub fn parse(text: &str) -> Option<Fault> {
        let mut parts = text.split(',');
        let mut next = || parts.next();
        let (number, index, value) = (next()?.parse().ok()?, next()?.parse().ok()?, next()?.parse().ok()?);
        let (from, times, error) = (next()?.parse().ok()?, next()?.parse().ok()?, next()?.parse().ok()?);
        let argument = (index < 6).then_some((index, value));
        (from > 0 && error < 0).then_some(Fault { number, argument, from, times, error })
    }

    /// The calls of this process fail so from now on.
    pub fn set(&self) {
        let (index, value) = self.argument.unwrap_or((NONE, 0));
        INDEX.store(index, Ordering::Relaxed);
        VALUE.store(value, Ordering::Relaxed);
        BEFORE.store(self.from - 1, Ordering::Relaxed);
        TIMES.store(self.times, Ordering::Relaxed);
        ERROR.store(self.error, Ordering::Relaxed);
        NUMBER.store(self.number, Ordering::Release);
    }
}

/// The error that a call is to fail with. The first time it says so on the standard error, for a test to know.
pub(crate) fn of(called: usize, arguments: &[usize; 6]) -> Option<isize> {
    if NUMBER.load(Ordering::Acquire) != called {
        return None;
    }
    let index = INDEX.load(Ordering::Relaxed);
    let is_asked_for = arguments.get(index).is_none_or(|value| *value == VALUE.load(Ordering::Relaxed));
    if !is_asked_for || BEFORE.fetch_sub(1, Ordering::Relaxed) > 0 {
        return None;
    }
    let left = TIMES.fetch_sub(1, Ordering::Relaxed);
    if left <= 0 {
        return None;
    }
    if !SAID.swap(true, Ordering::Relaxed) {
        say(called);
    }
    Some(ERROR.load(Ordering::Relaxed))
}

/// Whether it was said in this process.
static SAID: AtomicBool = AtomicBool::new(false);

/// In pieces: the heap may be what fails, or be locked.
fn say(called: usize) {
    for piece in ["injected: ", calls::name(called).unwrap_or("a call"), "\n"] {
        // SAFETY: only reads the piece.
        unsafe { crate::sys::make(number::SYS_write, [2, piece.as_ptr() as usize, piece.len(), 0, 0, 0]) };
    }
}
