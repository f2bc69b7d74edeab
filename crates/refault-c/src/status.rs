//! What every call answers.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// What came of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum refault_status {
    /// It did what it should.
    REFAULT_OK = 0,
    /// An argument is null, too large, or not understood.
    REFAULT_BAD_ARGUMENT = 1,
    /// The handle was closed, or never was one of this type.
    REFAULT_BAD_HANDLE = 2,
    /// The system refused: `refault_error_number()` says why.
    REFAULT_SYSTEM = 3,
    /// There is not enough memory, or no frame or address is free.
    REFAULT_NO_ROOM = 4,
    /// The object is in use: close what depends on it first.
    REFAULT_BUSY = 5,
    /// refault failed inside; its state may be wrong. Please report it.
    REFAULT_INTERNAL = 6,
}

pub(crate) use refault_status::*;

/// A failure on its way to the caller.
pub(crate) struct Failure {
    status: refault_status,
    number: c_int,
    message: String,
}

impl Failure {
    pub(crate) fn new(status: refault_status, message: impl Into<String>) -> Failure {
        Failure { status, number: 0, message: message.into() }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Failure {
        Failure::new(REFAULT_BAD_ARGUMENT, message)
    }

    /// With the number that `refault_error_number()` answers.
    pub(crate) fn numbered(self, number: c_int) -> Failure {
        Failure { number, ..self }
    }

    /// The same of a file: what the system refused is told with its name.
    pub(crate) fn on(mut self, path: &Path) -> Failure {
        if matches!(self.status, REFAULT_SYSTEM | REFAULT_NO_ROOM) {
            self.message = format!("{}: {}", path.display(), self.message);
        }
        self
    }

    /// What the system said, in a sentence.
    pub(crate) fn system(source: &io::Error, message: impl Into<String>) -> Failure {
        Failure { number: source.raw_os_error().unwrap_or(0), ..Failure::new(REFAULT_SYSTEM, message) }
    }
}

thread_local! {
    static LAST: RefCell<(c_int, CString)> = RefCell::default();
}

/// Runs the body of a call: failures and panics become a status, their sentence is kept for this thread.
pub(crate) fn guarded(body: impl FnOnce() -> Result<(), Failure>) -> refault_status {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return REFAULT_OK,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(REFAULT_INTERNAL, "refault failed inside: a panic, whose text is on standard error"),
    };
    // Gone where a thread is ending: then the status has to do.
    let _ = LAST.try_with(|last| {
        *last.borrow_mut() = (failure.number, CString::new(failure.message.replace('\0', "?")).unwrap_or_default());
    });
    failure.status
}

/// The sentence of this thread's last failure: what failed, where, what to do. Empty if nothing failed. It is valid
/// until the next failure of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn refault_error_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().1.as_ptr()).unwrap_or(c"".as_ptr())
}

/// The `errno` of this thread's last failure, or 0 if the system had no part in it. A file without direct I/O has `EINVAL`.
#[unsafe(no_mangle)]
pub extern "C" fn refault_error_number() -> c_int {
    LAST.try_with(|last| last.borrow().0).unwrap_or(0)
}

/// The version of the library, such as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn refault_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("the version has no zero byte"),
    };
    VERSION.as_ptr()
}

/// A text of the caller.
///
/// # Safety
/// `text` is null or ends with a zero byte, and does not change during the call.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| Failure::argument(format!("{what} is not UTF-8")))
}

/// A path of the caller, whatever its bytes.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn path(path: *const c_char) -> Result<PathBuf, Failure> {
    use std::os::unix::ffi::OsStrExt;
    if path.is_null() {
        return Err(Failure::argument("the path is null"));
    }
    // SAFETY: the caller's.
    let path = unsafe { CStr::from_ptr(path) };
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(path.to_bytes())))
}

/// Writes a result.
///
/// # Safety
/// `out` is null or can be written to.
pub(crate) unsafe fn give<T>(out: *mut T, value: T, what: &str) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Failure::argument(format!("nowhere to put {what}: the pointer is null")));
    }
    // SAFETY: the caller's.
    unsafe { out.write(value) };
    Ok(())
}
