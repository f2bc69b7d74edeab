//! Errors as a system call returns them: negative.

macro_rules! errors {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        crate::numbers::constants! { isize; $($name = $number, $text;)* }

        /// What `strerror` says of a negative error, of those that have a name here.
        pub fn text(error: isize) -> &'static str {
            let text = match error {
                $($name => $text,)*
                _ => "an error of another kind.",
            };
            text.trim_ascii().strip_suffix('.').unwrap_or(text)
        }
    };
}

errors! {
    EPERM = -1, "Operation not permitted.";
    ENOENT = -2, "No such file or directory.";
    ESRCH = -3, "No such process.";
    EINTR = -4, "Interrupted system call.";
    EIO = -5, "Input/output error.";
    E2BIG = -7, "Argument list too long.";
    EBADF = -9, "Bad file descriptor.";
    EAGAIN = -11, "Resource temporarily unavailable.";
    ENOMEM = -12, "Cannot allocate memory.";
    EFAULT = -14, "Bad address.";
    EBUSY = -16, "Device or resource busy.";
    EEXIST = -17, "File exists.";
    EINVAL = -22, "Invalid argument.";
    ENFILE = -23, "Too many open files in system.";
    EMFILE = -24, "Too many open files.";
    ENOSPC = -28, "No space left on device.";
    ENOSYS = -38, "Function not implemented.";
    ETIMEDOUT = -110, "Connection timed out.";
}
