//! Flags and small numbers that system calls take: of mappings, opened files, limits, futexes and
//! clocks.

crate::numbers::constants! {
    usize;
    PROT_READ = 1, "The mapping can be read.";
    PROT_WRITE = 2, "The mapping can be written to.";
    PROT_EXEC = 4, "The mapping can be executed.";
    MAP_SHARED = 1, "Writes are seen by all that map it.";
    MAP_PRIVATE = 2, "Writes are seen by this process alone.";
    MAP_FIXED = 0x10, "At this address, whatever is there.";
    MAP_ANONYMOUS = 0x20, "Of no file.";
    MAP_32BIT = 0x40, "In the first two gigabytes.";
    MAP_GROWSDOWN = 0x100, "A stack, which grows by being touched below its start.";
    MAP_LOCKED = 0x2000, "Its pages are brought in and stay.";
    MAP_NORESERVE = 0x4000, "No swap is reserved.";
    MAP_POPULATE = 0x8000, "Its pages are brought in at once.";
    MAP_STACK = 0x2_0000, "A thread's stack.";
    MAP_HUGETLB = 0x4_0000, "Of huge pages that are set aside.";
    MAP_FIXED_NOREPLACE = 0x10_0000, "At this address, if nothing is there.";
    MREMAP_MAYMOVE = 1, "The mapping may move.";
    MREMAP_FIXED = 2, "It moves to this address, whatever is there.";
    MREMAP_DONTUNMAP = 4, "An empty mapping stays where it was.";
    MS_ASYNC = 1, "Of msync: nothing is waited for.";
    IPC_STAT = 2, "Of shmctl: what a segment is.";
    CLOSE_RANGE_UNSHARE = 2, "Of close_range: in a table of descriptors of its own.";
    MLOCK_ONFAULT = 1, "Of mlock2: pages stay once they are touched.";
    MCL_CURRENT = 1, "Of mlockall: what is mapped now.";
    MCL_FUTURE = 2, "Of mlockall: what is mapped from now on.";
    MCL_ONFAULT = 4, "Of mlockall: pages stay once they are touched.";
    READ_IMPLIES_EXEC = 0x40_0000, "A personality: what can be read can be executed.";
    O_RDONLY = 0, "To read.";
    O_WRONLY = 1, "To write.";
    O_RDWR = 2, "To read and to write.";
    O_APPEND = 0o2000, "Writes go to the end.";
    O_NONBLOCK = 0o4000, "Calls that would wait fail with EAGAIN.";
    O_CLOEXEC = 0o2_000_000, "A program that is executed does not have it.";
    AT_FDCWD = -100isize as usize, "Paths begin in the working directory.";
    AT_EMPTY_PATH = 0x1000, "An empty path is what the descriptor is of.";
    SEEK_CUR = 1, "Of lseek: from where the file is.";
    RWF_HIPRI = 0x1, "Of preadv2: the device is polled.";
    RWF_DSYNC = 0x2, "Of pwritev2: as of a file with O_DSYNC.";
    RWF_SYNC = 0x4, "Of pwritev2: as of a file with O_SYNC.";
    RWF_NOWAIT = 0x8, "Of preadv2: fails with EAGAIN where it would wait.";
    RWF_APPEND = 0x10, "Of pwritev2: to the end.";
    RWF_NOAPPEND = 0x20, "Of pwritev2: not to the end, whatever the file's flags.";
    RWF_DONTCACHE = 0x80, "Of preadv2: the cache does not keep it.";
    F_GETFD = 1, "Of fcntl: the flags of a descriptor.";
    F_GETFL = 3, "Of fcntl: the flags of an opened file.";
    F_SETFL = 4, "Of fcntl: sets them.";
    F_GETLK = 5, "Of fcntl: who has a lock.";
    F_SETLK = 6, "Of fcntl: takes a lock or gives it up.";
    F_SETLKW = 7, "Of fcntl: waits for a lock.";
    F_SETOWN_EX = 15, "Of fcntl: whom signals of a descriptor go to.";
    F_GETOWN_EX = 16, "Of fcntl: asks that.";
    F_GETOWNER_UIDS = 17, "Of fcntl: the users of that.";
    F_OFD_GETLK = 36, "Of fcntl: who has a lock of an opened file.";
    F_OFD_SETLK = 37, "Of fcntl: takes such a lock or gives it up.";
    F_OFD_SETLKW = 38, "Of fcntl: waits for such a lock.";
    F_DUPFD_CLOEXEC = 1030, "Of fcntl: the same file under a number from this on.";
    F_GET_RW_HINT = 1035, "Of fcntl: how long a file's data are said to live.";
    F_SET_FILE_RW_HINT = 1038, "Of fcntl: says that of an opened file.";
    RLIMIT_FSIZE = 1, "Bytes that a file may have.";
    RLIMIT_DATA = 2, "Bytes of a process's private writable mappings.";
    RLIMIT_NOFILE = 7, "One more than the highest descriptor.";
    RLIMIT_MEMLOCK = 8, "Bytes that a process may lock.";
    RLIMIT_AS = 9, "Bytes of a process's mappings.";
    POLLERR = 0x8, "Of poll: an error waits.";
    POLLHUP = 0x10, "Of poll: the other side has hung up.";
    P_PID = 1, "Of waitid: the process of this number.";
    WUNTRACED = 2, "Of waitid: children that have stopped.";
    WEXITED = 4, "Of waitid: children that have ended.";
    WNOWAIT = 0x0100_0000, "Of waitid: they can be waited for again.";
    __WALL = 0x4000_0000, "Of waitid: children of every kind.";
    CLOCK_MONOTONIC = 1, "Time since the machine's start.";
    CLOCK_THREAD_CPUTIME_ID = 3, "Processor time of this thread.";
    TIMER_ABSTIME = 1, "Of clock_nanosleep: until a time, not for one.";
    FUTEX_WAIT = 0, "Waits while a word has a value.";
    FUTEX_WAKE = 1, "Wakes threads that wait for a word.";
    FUTEX_REQUEUE = 3, "Wakes some, and lets the others wait for another word.";
    FUTEX_CMP_REQUEUE = 4, "The same while the word has a value.";
    FUTEX_WAKE_OP = 5, "Changes a second word, and wakes by what it was.";
    FUTEX_LOCK_PI = 6, "Takes a lock that lends its holder priority.";
    FUTEX_WAIT_BITSET = 9, "Waits for a wake with one of these bits.";
    FUTEX_WAIT_REQUEUE_PI = 11, "Waits for a word, and then for a lock.";
    FUTEX_CMP_REQUEUE_PI = 12, "Lets those wait for the lock.";
    FUTEX_LOCK_PI2 = 13, "FUTEX_LOCK_PI by a clock that can be chosen.";
    FUTEX_PRIVATE_FLAG = 128, "No other process has the word.";
    PIDFD_SELF_THREAD = -10000isize as usize, "In the place of a process's descriptor: this thread.";
    PIDFD_SELF_THREAD_GROUP = -10001isize as usize, "In the place of a process's descriptor: this process.";
    CAP_IPC_LOCK = 14, "The capability to lock more than the limit.";
}

/// The bits of a futex's operation that say what it does, without its flags.
pub const FUTEX_OPERATION: usize = 127;
/// `O_DIRECTORY`: nothing but a directory.
#[cfg(target_arch = "x86_64")]
pub const O_DIRECTORY: usize = 0o200_000;
/// `O_DIRECT`: past the cache.
#[cfg(target_arch = "x86_64")]
pub const O_DIRECT: usize = 0o40_000;
/// `O_PATH`: a place in the tree of files, of which nothing is read.
pub const O_PATH: usize = 0o10_000_000;
/// `O_TMPFILE`: a file without a name, in this directory.
#[cfg(target_arch = "x86_64")]
pub const O_TMPFILE: usize = 0o20_000_000 | O_DIRECTORY;
/// `_LINUX_CAPABILITY_VERSION_3`: two words of each set.
pub const CAPABILITIES_OF_64_BITS: usize = 0x2008_0522;
