//! The kernel's error numbers in words that need nothing of the C library.
//!
//! `strerror` looks for translations in tables that programs allocate. Whoever serves faults, and a forked child without memory
//! of its own, must not touch those.

use std::fmt;

/// An error number, shown in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorNumber(pub i32);

impl From<&std::io::Error> for ErrorNumber {
    fn from(error: &std::io::Error) -> ErrorNumber {
        ErrorNumber(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl fmt::Display for ErrorNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.0 {
            libc::EPERM => "not permitted",
            libc::EACCES => "access denied",
            libc::ENOENT => "no such file or range",
            libc::EINTR => "interrupted",
            libc::EIO => "input/output error",
            libc::EBADF => "not an open descriptor",
            libc::EAGAIN => "no more of it now",
            libc::ENOMEM => "no memory",
            libc::EFAULT => "bad address",
            libc::EEXIST => "already there",
            libc::EINVAL => "invalid",
            libc::EMFILE => "too many open files in the process",
            libc::ENFILE => "too many open files in the system",
            libc::EFBIG => "file too large",
            libc::ENOSPC => "no space left",
            libc::EROFS => "read-only file system",
            libc::ENOSYS => "not in this kernel",
            libc::EDQUOT => "quota used up",
            libc::ESRCH => "no such process",
            _ => "failed",
        };
        write!(f, "{words} (os error {})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_numbers_have_words_and_all_have_the_number() {
        assert_eq!(ErrorNumber(libc::ENOSPC).to_string(), "no space left (os error 28)");
        assert_eq!(ErrorNumber(9999).to_string(), "failed (os error 9999)");
        assert_eq!(ErrorNumber::from(&std::io::Error::from_raw_os_error(libc::EMFILE)), ErrorNumber(libc::EMFILE));
    }
}
