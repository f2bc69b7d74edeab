//! The userfaultfd of a process: the descriptor, its messages and its requests.
//!
//! Two ways to have one: [`Uffd::open`] delivers faults of user mode as SIGBUS in the thread that faults and needs no
//! privilege; [`Uffd::open_all`] delivers faults of the kernel too, where the caller may.
//!
//! Invariants: errors are the kernel's numbers, negative; a request that says "try again" is repeated at most
//! [`RETRIES`] times; a request that did part of its work is continued. Nothing here decides anything. Cost: one system
//! call per request. Source: `linux/userfaultfd.h`, userfaultfd(2).
//!
//! ```
//! use refault_linux::uffd::{Refusal, Uffd, feature};
//!
//! match Uffd::probe() {
//!     Ok(()) => println!("memory can be managed here"),
//!     Err(Refusal::Filter(error)) => println!("a system-call filter says {error}"),
//!     Err(Refusal::Kernel) => println!("the kernel is older than 6.8"),
//! }
//! assert_eq!(feature::unknown(feature::SIGBUS | 1 << 63), 1 << 63);
//! ```

use crate::errno::{EAGAIN, EEXIST, EINVAL};
use crate::flags::{F_GETFL, F_SETFL, O_CLOEXEC, O_NONBLOCK, O_RDWR};
use crate::numbers::own as number;
use crate::{PAGE, sys};

/// `UFFD_FEATURE_*` bits.
pub mod feature {
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    /// Write protection of any kind.
    pub const PAGEFAULT_FLAG_WP: u64 = 1 << 0;
    /// Missing faults on shared memory.
    pub const MISSING_SHMEM: u64 = 1 << 5;
    /// Faults become SIGBUS in the faulting thread.
    pub const SIGBUS: u64 = 1 << 7;
    /// Messages carry the thread.
    pub const THREAD_ID: u64 = 1 << 8;
    /// Write protection of shared memory.
    pub const WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
    /// Messages carry the address as it was accessed, not that of its page.
    pub const EXACT_ADDRESS: u64 = 1 << 11;
    /// `UFFDIO_POISON`.
    pub const POISON: u64 = 1 << 14;
    /// Write-protect faults resolved by the kernel.
    pub const WP_ASYNC: u64 = 1 << 15;
    /// `UFFDIO_MOVE`.
    pub const MOVE: u64 = 1 << 16;
    /// Read-write protection: tracking of accesses, in kernels after 7.1 (bits as in the posted series of 2026).
    pub const RWP: u64 = 1 << 17;
    /// Faults of read-write protection resolved by the kernel.
    pub const RWP_ASYNC: u64 = 1 << 18;
    /// Their names, for reports.
    pub const NAMES: [(u64, &str); 19] = [
        (1 << 0, "write-protect"),
        (1 << 1, "fork-event"),
        (1 << 2, "remap-event"),
        (1 << 3, "remove-event"),
        (1 << 4, "missing-hugetlbfs"),
        (1 << 5, "missing-shmem"),
        (1 << 6, "unmap-event"),
        (1 << 7, "sigbus"),
        (1 << 8, "thread-id"),
        (1 << 9, "minor-hugetlbfs"),
        (1 << 10, "minor-shmem"),
        (1 << 11, "exact-address"),
        (1 << 12, "write-protect-shmem"),
        (1 << 13, "write-protect-unpopulated"),
        (1 << 14, "poison"),
        (1 << 15, "write-protect-async"),
        (1 << 16, "move"),
        (1 << 17, "read-write-protect"),
        (1 << 18, "read-write-protect-async"),
    ];

    /// The names of some features, separated by commas; those without a name here as one number.
    pub fn names(bits: u64) -> String {
        let known = NAMES.iter().filter(|(bit, _)| bits & bit != 0);
        let mut names: Vec<String> = known.map(|(_, name)| String::from(*name)).collect();
        let unknown = unknown(bits);
        if unknown != 0 {
            names.push(format!("{unknown:#x}"));
        }
        names.join(", ")
    }

    /// The features of these that have no name here: the kernel is newer.
    pub fn unknown(bits: u64) -> u64 {
        NAMES.iter().fold(bits, |rest, (bit, _)| rest & !bit)
    }
}

/// Asks for features.
pub const UFFDIO_API: usize = 0xc018_aa3f;
/// Faults of a range come.
pub const UFFDIO_REGISTER: usize = 0xc020_aa00;
/// They come no more.
pub const UFFDIO_UNREGISTER: usize = 0x8010_aa01;
/// Threads that wait for a range go on.
pub const UFFDIO_WAKE: usize = 0x8010_aa02;
/// A range gets contents.
pub const UFFDIO_COPY: usize = 0xc028_aa03;
/// A range gets zeros.
pub const UFFDIO_ZEROPAGE: usize = 0xc020_aa04;
/// A range gets the pages of another.
pub const UFFDIO_MOVE: usize = 0xc028_aa05;
/// Writes to a range come as faults, or no more.
pub const UFFDIO_WRITEPROTECT: usize = 0xc018_aa06;
const UFFDIO_POISON: usize = 0xc020_aa08;
/// Of `/dev/userfaultfd`: a new descriptor.
const USERFAULTFD_IOC_NEW: usize = 0xaa00;
const UFFD_API: u64 = 0xaa;
const UFFD_USER_MODE_ONLY: usize = 1;
const REGISTER_MODE_MISSING: u64 = 1;
const REGISTER_MODE_WP: u64 = 2;
const COPY_MODE_WP: u64 = 2;
const WRITEPROTECT_MODE_WP: u64 = 1;
const WRITEPROTECT_MODE_DONTWAKE: u64 = 2;
const EVENT_PAGEFAULT: u8 = 0x12;
const FLAG_WRITE: u64 = 1;
const FLAG_WP: u64 = 2;

/// Times that "try again" is believed.
pub const RETRIES: u32 = 64;

/// One message, as the kernel writes it: 32 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u32,
    padding: u32,
}

impl Message {
    /// An empty message, to read into.
    pub const EMPTY: Message = Message { event: 0, reserved: [0; 7], flags: 0, address: 0, thread: 0, padding: 0 };

    /// The fault, if the message is one.
    pub fn fault(&self) -> Option<Fault> {
        (self.event == EVENT_PAGEFAULT).then_some(Fault {
            address: self.address as usize,
            write: self.flags & FLAG_WRITE != 0,
            write_protected: self.flags & FLAG_WP != 0,
            thread: self.thread,
        })
    }
}

/// A fault that waits to be resolved.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Address, rounded down to its page unless [`feature::EXACT_ADDRESS`] was asked for.
    pub address: usize,
    /// The access was a write.
    pub write: bool,
    /// The page is there but write-protected.
    pub write_protected: bool,
    /// The faulting thread, where the kernel tells.
    pub thread: u32,
}

/// How the descriptor was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The system call, with the right to handle faults of the kernel too.
    SystemCall,
    /// `/dev/userfaultfd`.
    Device,
}

/// Why there is no userfaultfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A system-call filter forbids the call, with this error.
    Filter(isize),
    /// The kernel cannot move pages, or raise signals for faults: Linux 6.8 and later can.
    Kernel,
}

/// Whether a page of anonymous memory is in memory.
pub fn is_there(address: usize) -> bool {
    let mut there = 0u8;
    // SAFETY: writes one byte.
    let error = unsafe { sys::call(number::SYS_mincore, [address, PAGE, &raw mut there as usize, 0, 0, 0]) };
    error == 0 && there & 1 != 0
}

/// See the module. The descriptor is not closed on drop: only its owner knows whose number it is then.
#[derive(Clone, Copy, Debug)]
pub struct Uffd(i32);

impl Uffd {
    /// Opens one for the faults of user mode, which become SIGBUS, that can move pages.
    ///
    /// # Errors
    /// The kernel's number: not permitted by a filter, or a kernel without `UFFDIO_MOVE` (before 6.8).
    pub fn open() -> Result<Uffd, isize> {
        let uffd = Uffd::new(UFFD_USER_MODE_ONLY)?;
        match uffd.begin(feature::SIGBUS | feature::MOVE) {
            Ok(_) => Ok(uffd),
            Err(error) => {
                uffd.close();
                Err(error)
            }
        }
    }

    /// Opens one for the faults of the kernel too, by the system call or by the device node. It can do nothing before
    /// [`Uffd::begin`].
    ///
    /// # Errors
    /// The system call's number: EPERM, the caller may not; ENOSYS, the kernel is built without it; EMFILE, ENFILE and
    /// ENOMEM.
    pub fn open_all() -> Result<(Uffd, Access), isize> {
        let refused = match Uffd::new(0) {
            Ok(uffd) => return Ok((uffd, Access::SystemCall)),
            Err(error) => error,
        };
        let device = sys::open(c"/dev/userfaultfd", O_RDWR);
        if device < 0 {
            return Err(refused);
        }
        // SAFETY: the request takes flags only, and makes a descriptor.
        let fd = unsafe { sys::call(number::SYS_ioctl, [device as usize, USERFAULTFD_IOC_NEW, O_CLOEXEC, 0, 0, 0]) };
        // SAFETY: it was opened here.
        unsafe { sys::close(device as i32) };
        if fd < 0 { Err(refused) } else { Ok((Uffd(fd as i32), Access::Device)) }
    }

    fn new(flags: usize) -> Result<Uffd, isize> {
        // SAFETY: makes a descriptor.
        let fd = unsafe { sys::call(number::SYS_userfaultfd, [O_CLOEXEC | flags, 0, 0, 0, 0, 0]) };
        if fd < 0 { Err(fd) } else { Ok(Uffd(fd as i32)) }
    }

    /// Asks for features, once per descriptor. Returns all that the kernel offers.
    ///
    /// # Errors
    /// EINVAL: the kernel has not all of them.
    pub fn begin(self, features: u64) -> Result<u64, isize> {
        let mut api = [UFFD_API, features, 0];
        match self.ioctl(UFFDIO_API, api.as_mut_ptr()) {
            0 => Ok(api[1]),
            error => Err(error),
        }
    }

    /// Whether one can be opened here, and is what is needed.
    ///
    /// # Errors
    /// Why not.
    pub fn probe() -> Result<(), Refusal> {
        match Uffd::open() {
            Ok(uffd) => {
                uffd.close();
                Ok(())
            }
            // Faults of user mode alone need no privilege, so only a filter can refuse them. Which number a filter
            // answers with is its author's choice; a kernel without the call says ENOSYS too.
            Err(EINVAL) => Err(Refusal::Kernel),
            Err(error) => Err(Refusal::Filter(error)),
        }
    }

    /// The descriptor.
    pub fn descriptor(self) -> i32 {
        self.0
    }

    /// The same context under another number.
    pub fn from_descriptor(descriptor: i32) -> Uffd {
        Uffd(descriptor)
    }

    /// Closes the descriptor.
    pub fn close(self) {
        // SAFETY: the descriptor is this value's.
        unsafe { sys::close(self.0) };
    }

    fn ioctl(self, request: usize, argument: *mut u64) -> isize {
        // SAFETY: each request below passes the structure it asks for; the memory that the request is about is the
        // caller's.
        unsafe { sys::call(number::SYS_ioctl, [self.0 as usize, request, argument as usize, 0, 0, 0]) }
    }

    /// From now on missing pages of the range raise SIGBUS, and writes to pages that [`Uffd::protect`] has protected.
    pub fn register(self, start: usize, bytes: usize) -> isize {
        let mut range = [start as u64, bytes as u64, REGISTER_MODE_MISSING | REGISTER_MODE_WP, 0];
        self.ioctl(UFFDIO_REGISTER, range.as_mut_ptr())
    }

    /// Missing pages of the range are zeros again; threads that wait for one are woken.
    pub fn unregister(self, start: usize, bytes: usize) -> isize {
        let mut range = [start as u64, bytes as u64];
        self.ioctl(UFFDIO_UNREGISTER, range.as_mut_ptr())
    }

    /// The pages that are there may not be written to until this is called with `on` false, which wakes the threads
    /// that wait. Pages that are not there are left alone. A system call that would write to one says `EFAULT`.
    pub fn protect(self, start: usize, bytes: usize, on: bool) -> isize {
        self.write_protect(start, bytes, if on { WRITEPROTECT_MODE_WP } else { 0 })
    }

    /// Lifts the protection of [`Uffd::protect`] without waking a thread.
    pub fn unprotect_silently(self, start: usize, bytes: usize) -> isize {
        self.write_protect(start, bytes, WRITEPROTECT_MODE_DONTWAKE)
    }

    fn write_protect(self, start: usize, bytes: usize, mode: u64) -> isize {
        self.repeat(|_| {
            let mut argument = [start as u64, bytes as u64, mode];
            (self.ioctl(UFFDIO_WRITEPROTECT, argument.as_mut_ptr()), 0, bytes)
        })
    }

    /// Wakes the threads that wait for a range, to fault again. Returns 0 or an error.
    pub fn wake(self, start: usize, bytes: usize) -> isize {
        let mut range = [start as u64, bytes as u64];
        self.ioctl(UFFDIO_WAKE, range.as_mut_ptr())
    }

    /// Makes accesses to missing pages end in SIGBUS (Linux 6.6). Returns 0 or an error.
    pub fn poison(self, start: usize, bytes: usize) -> isize {
        let mut argument = [start as u64, bytes as u64, 0, 0];
        self.ioctl(UFFDIO_POISON, argument.as_mut_ptr())
    }

    /// Whether [`Uffd::read`] waits for a message or fails with EAGAIN.
    ///
    /// # Errors
    /// The kernel's number.
    pub fn set_blocking(self, blocking: bool) -> Result<(), isize> {
        let fcntl = |what, flags| {
            // SAFETY: fcntl reads and sets flags, and touches no memory.
            unsafe { sys::call(number::SYS_fcntl, [self.0 as usize, what, flags, 0, 0, 0]) }
        };
        let flags = fcntl(F_GETFL, 0);
        let wanted = if blocking { flags as usize & !O_NONBLOCK } else { flags as usize | O_NONBLOCK };
        let error = if flags < 0 { flags } else { fcntl(F_SETFL, wanted) };
        if error < 0 { Err(error) } else { Ok(()) }
    }

    /// Reads waiting messages, blocking until there is one. The number of messages, or an error.
    pub fn read(self, messages: &mut [Message]) -> isize {
        let bytes = size_of_val(messages);
        // SAFETY: the bytes are those of the messages, which may have any values; the kernel writes whole messages.
        let free = unsafe { core::slice::from_raw_parts_mut(messages.as_mut_ptr().cast(), bytes) };
        let read = sys::read(self.0, free);
        if read < 0 { read } else { read / size_of::<Message>() as isize }
    }

    /// Fills missing pages with copies. Returns the bytes that are there now, or an error if none.
    ///
    /// # Safety
    /// `from` holds `bytes` bytes.
    pub unsafe fn copy(self, to: usize, from: *const u8, bytes: usize) -> isize {
        // SAFETY: promised by the caller.
        unsafe { self.copy_in(to, from, bytes, 0) }
    }

    /// As [`Uffd::copy`]; writes to the pages wait as after [`Uffd::protect`].
    ///
    /// # Safety
    /// `from` holds `bytes` bytes.
    pub unsafe fn copy_protected(self, to: usize, from: *const u8, bytes: usize) -> isize {
        // SAFETY: promised by the caller.
        unsafe { self.copy_in(to, from, bytes, COPY_MODE_WP) }
    }

    /// # Safety
    /// `from` holds `bytes` bytes.
    #[inline]
    unsafe fn copy_in(self, to: usize, from: *const u8, bytes: usize, mode: u64) -> isize {
        self.repeat(|done| {
            let mut argument = [(to + done) as u64, from as u64 + done as u64, (bytes - done) as u64, mode, 0];
            let error = self.ioctl(UFFDIO_COPY, argument.as_mut_ptr());
            (error, argument[4] as i64 as isize, bytes)
        })
    }

    /// Fills missing pages with zeros. Returns the bytes that are there now, or an error if none.
    pub fn zero(self, start: usize, bytes: usize) -> isize {
        self.repeat(|done| {
            let mut argument = [(start + done) as u64, (bytes - done) as u64, 0, 0];
            let error = self.ioctl(UFFDIO_ZEROPAGE, argument.as_mut_ptr());
            (error, argument[3] as i64 as isize, bytes)
        })
    }

    /// Moves pages to where none are. Returns the bytes moved, from the front, or an error if none. Pages that others
    /// hold (pinned, shared with a child) are `EBUSY`.
    ///
    /// Linux 6.18 can say `EEXIST` of a page that it has just moved. When compaction or an access check had locked the
    /// page, the kernel tries again by itself. It does not forget the first error, and finds the page at its
    /// destination. Such a page counts as moved: it is missing where it was.
    ///
    /// # Safety
    /// Both ranges are mappings whose contents the caller may move.
    pub unsafe fn relocate(self, to: usize, from: usize, bytes: usize) -> isize {
        self.repeat(|done| {
            let mut argument = [(to + done) as u64, (from + done) as u64, (bytes - done) as u64, 0, 0];
            let error = self.ioctl(UFFDIO_MOVE, argument.as_mut_ptr());
            let moved = argument[4] as i64 as isize;
            if error == EEXIST && moved <= 0 && !is_there(from + done) {
                return (error, PAGE as isize, bytes);
            }
            (error, moved, bytes)
        })
    }

    /// Repeats a call that did part of its work or says "try again".
    fn repeat(self, mut attempt: impl FnMut(usize) -> (isize, isize, usize)) -> isize {
        let (mut done, mut tries) = (0, 0);
        loop {
            let (error, moved, bytes) = attempt(done);
            if error == 0 {
                return bytes as isize;
            }
            if moved > 0 {
                done += moved as usize;
                debug_assert!(done.is_multiple_of(PAGE));
                if done >= bytes {
                    return bytes as isize;
                }
                continue;
            }
            if error != EAGAIN || tries == RETRIES {
                return if done > 0 { done as isize } else { error };
            }
            tries += 1;
            core::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::string::String;
    use std::vec::Vec;

    use super::feature::*;
    use super::*;

    const PAGES: usize = 8;

    /// Nothing where pages cannot be moved.
    fn opened() -> Option<Uffd> {
        let opened = Uffd::open();
        if let Err(number) = opened {
            refault_testing::skip_required(format_args!("userfaultfd that moves pages cannot be had: error {number}"));
        }
        opened.ok()
    }

    /// Two registered ranges, the first with contents.
    fn ranges(uffd: Uffd) -> (usize, usize) {
        let bytes = PAGES * PAGE;
        let (from, to) = (sys::map(bytes), sys::map(bytes));
        assert!(from != 0 && to != 0);
        for range in [from, to] {
            assert_eq!(uffd.register(range, bytes), 0);
        }
        let contents: Vec<u8> = (0..bytes).map(|at| (at / PAGE) as u8 + 1).collect();
        // SAFETY: `contents` has as many bytes.
        assert_eq!(unsafe { uffd.copy(from, contents.as_ptr(), bytes) }, bytes as isize);
        (from, to)
    }

    fn first_byte(address: usize) -> u8 {
        // SAFETY: the page is there.
        unsafe { *(address as *const u8) }
    }

    #[test]
    fn a_page_that_the_kernel_moved_and_denied_counts_as_moved() {
        let Some(uffd) = opened() else { return };
        let (from, to) = ranges(uffd);
        // What the kernel leaves behind: two pages are where they were to go, and it says that they are in the way.
        for page in [0, 3] {
            // SAFETY: both are mappings of this test.
            assert_eq!(unsafe { uffd.relocate(to + page * PAGE, from + page * PAGE, PAGE) }, PAGE as isize);
        }
        // SAFETY: as above.
        assert_eq!(unsafe { uffd.relocate(to, from, PAGES * PAGE) }, (PAGES * PAGE) as isize);
        for page in 0..PAGES {
            assert!(!is_there(from + page * PAGE));
            assert_eq!(first_byte(to + page * PAGE), page as u8 + 1);
        }
        uffd.close();
    }

    #[test]
    fn a_page_that_is_in_the_way_is_told() {
        let Some(uffd) = opened() else { return };
        let (from, to) = ranges(uffd);
        // SAFETY: the page is missing, and the source is one page.
        unsafe { uffd.copy(to + 2 * PAGE, [9u8; PAGE].as_ptr(), PAGE) };
        // SAFETY: both are mappings of this test.
        assert_eq!(unsafe { uffd.relocate(to, from, PAGES * PAGE) }, 2 * PAGE as isize);
        // SAFETY: as above.
        assert_eq!(unsafe { uffd.relocate(to + 2 * PAGE, from + 2 * PAGE, PAGE) }, EEXIST);
        assert_eq!((first_byte(to + 2 * PAGE), first_byte(from + 2 * PAGE)), (9, 3));
        uffd.close();
    }

    #[test]
    fn features_have_names_and_unknown_ones_are_told() {
        assert_eq!(names(POISON | RWP | 1 << 40 | 1 << 41), "poison, read-write-protect, 0x30000000000");
        assert_eq!((names(0), unknown(RWP | RWP_ASYNC | MOVE), unknown(1 << 63)), (String::new(), 0, 1 << 63));
        let mut bits: Vec<u64> = NAMES.iter().map(|(bit, _)| *bit).collect();
        bits.dedup();
        assert!(bits.len() == NAMES.len() && bits.iter().all(|bit| bit.is_power_of_two()));
    }
}
