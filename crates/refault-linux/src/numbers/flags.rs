//! Flags and small numbers that system calls take: of mappings, opened files, futexes and clocks.

macro_rules! flags {
    ($($name:ident = $number:expr, $text:literal;)*) => {
        $(#[doc = $text] pub const $name: usize = $number;)*
    };
}

flags! {
    PROT_READ = 1, "The mapping can be read.";
    PROT_WRITE = 2, "The mapping can be written to.";
    PROT_EXEC = 4, "The mapping can be executed.";
    MAP_SHARED = 1, "Writes are seen by all that map it.";
    MAP_PRIVATE = 2, "Writes are seen by this process alone.";
    MAP_FIXED = 0x10, "At this address, whatever is there.";
    MAP_ANONYMOUS = 0x20, "Of no file.";
    MAP_NORESERVE = 0x4000, "No swap is reserved.";
    MAP_FIXED_NOREPLACE = 0x10_0000, "At this address, if nothing is there.";
    O_RDONLY = 0, "To read.";
    O_RDWR = 2, "To read and to write.";
    O_NONBLOCK = 0o4000, "Calls that would wait fail with EAGAIN.";
    O_CLOEXEC = 0o2_000_000, "A program that is executed does not have it.";
    AT_FDCWD = -100isize as usize, "Paths begin in the working directory.";
    F_GETFD = 1, "Of fcntl: the flags of a descriptor.";
    F_GETFL = 3, "Of fcntl: the flags of an opened file.";
    F_SETFL = 4, "Of fcntl: sets them.";
    F_DUPFD_CLOEXEC = 1030, "Of fcntl: the same file under a number from this on.";
    RLIMIT_FSIZE = 1, "Bytes that a file may have.";
    CLOCK_MONOTONIC = 1, "Time since the machine's start.";
    CLOCK_THREAD_CPUTIME_ID = 3, "Processor time of this thread.";
    FUTEX_WAIT = 0, "Waits while a word has a value.";
    FUTEX_WAKE = 1, "Wakes threads that wait for a word.";
    FUTEX_PRIVATE_FLAG = 128, "No other process has the word.";
    PIDFD_SELF_THREAD_GROUP = -10001isize as usize, "In the place of a process's descriptor: this process.";
    SIGKILL = 9, "Ends a process.";
    SIG_SETMASK = 2, "The signals that are blocked are these.";
}
