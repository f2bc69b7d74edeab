//! The kernel's error numbers in the words of `strerror`, without the C library.
//!
//! `strerror` looks up translations in tables that programs allocate. The fault path, and a forked child without memory
//! of its own, must not touch those. The words are glibc's in the C locale, so that operators can search for them.

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
            libc::EPERM => "Operation not permitted",
            libc::EACCES => "Permission denied",
            libc::ENOENT => "No such file or directory",
            libc::EINTR => "Interrupted system call",
            libc::EIO => "Input/output error",
            libc::EBADF => "Bad file descriptor",
            libc::EAGAIN => "Resource temporarily unavailable",
            libc::ENOMEM => "Cannot allocate memory",
            libc::EFAULT => "Bad address",
            libc::EEXIST => "File exists",
            libc::EINVAL => "Invalid argument",
            libc::EMFILE => "Too many open files",
            libc::ENFILE => "Too many open files in system",
            libc::EFBIG => "File too large",
            libc::ENOSPC => "No space left on device",
            libc::EROFS => "Read-only file system",
            libc::ENOSYS => "Function not implemented",
            libc::EDQUOT => "Disk quota exceeded",
            libc::ESRCH => "No such process",
            _ => "Unknown error",
        };
        write!(f, "{words} (os error {})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_strerror_has_them_and_show_the_number() {
        assert_eq!(ErrorNumber(libc::ENOSPC).to_string(), "No space left on device (os error 28)");
        assert_eq!(ErrorNumber(9999).to_string(), "Unknown error (os error 9999)");
        assert_eq!(ErrorNumber::from(&std::io::Error::from_raw_os_error(libc::EMFILE)), ErrorNumber(libc::EMFILE));
    }
}
