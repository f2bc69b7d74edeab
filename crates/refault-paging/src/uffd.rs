//! The userfaultfd of a process: user-mode faults only, delivered as SIGBUS in the thread that faults. Needs no
//! privilege.
//!
//! Invariants: errors are the kernel's numbers, negative; a call that says "try again" is repeated a bounded number of
//! times. Source: the kernel's documentation of userfaultfd.
//!
//! ```
//! use refault_paging::uffd::{Refusal, Uffd};
//!
//! match Uffd::probe() {
//!     Ok(()) => println!("memory can be managed here"),
//!     Err(Refusal::Filter(error)) => println!("a system-call filter says {error}"),
//!     Err(Refusal::Kernel) => println!("the kernel is older than 6.8"),
//! }
//! ```

use crate::PAGE;
use crate::sys::{self, nr};

const API: usize = 0xc018_aa3f;
const REGISTER: usize = 0xc020_aa00;
const UNREGISTER: usize = 0x8010_aa01;
const COPY: usize = 0xc028_aa03;
const ZEROPAGE: usize = 0xc020_aa04;
const MOVE: usize = 0xc028_aa05;
const WRITEPROTECT: usize = 0xc018_aa06;
const MODE_MISSING: u64 = 1;
const MODE_WP: u64 = 2;

const FEATURE_SIGBUS: u64 = 1 << 7;
const FEATURE_MOVE: u64 = 1 << 16;
const CLOEXEC_USER_MODE_ONLY: usize = 0o2_000_000 | 1;

/// Error numbers, as the kernel returns them.
pub const EAGAIN: isize = -11;
/// See [`EAGAIN`].
pub const EEXIST: isize = -17;
/// See [`EAGAIN`].
pub const EBUSY: isize = -16;
/// See [`EAGAIN`].
pub const ENOMEM: isize = -12;

/// Times that "try again" is believed.
const RETRIES: u32 = 64;

/// Why there is no userfaultfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A system-call filter forbids the call, with this error.
    Filter(isize),
    /// The kernel cannot move pages, or raise signals for faults: Linux 6.8 and later can.
    Kernel,
}

/// Whether a page of anonymous memory is in memory.
fn is_there(address: usize) -> bool {
    let mut there = 0u8;
    // SAFETY: writes one byte.
    let error = unsafe { sys::call(nr::MINCORE, [address, PAGE, &raw mut there as usize, 0, 0, 0]) };
    error == 0 && there & 1 != 0
}

/// See the module. The descriptor is not closed on drop: only its owner knows whose number it is then.
#[derive(Clone, Copy, Debug)]
pub struct Uffd(i32);

impl Uffd {
    /// Opens one.
    ///
    /// # Errors
    /// The kernel's number: not permitted by a filter, or a kernel without `UFFDIO_MOVE` (before 6.8).
    pub fn open() -> Result<Uffd, isize> {
        // SAFETY: makes a descriptor.
        let fd = unsafe { sys::call(nr::USERFAULTFD, [CLOEXEC_USER_MODE_ONLY, 0, 0, 0, 0, 0]) };
        if fd < 0 {
            return Err(fd);
        }
        let uffd = Uffd(fd as i32);
        let mut api = [0xaau64, FEATURE_SIGBUS | FEATURE_MOVE, 0];
        match uffd.ioctl(API, api.as_mut_ptr()) {
            0 => Ok(uffd),
            error => {
                uffd.close();
                Err(error)
            }
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
            Err(-22) => Err(Refusal::Kernel),
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
        unsafe { sys::call(nr::CLOSE, [self.0 as usize, 0, 0, 0, 0, 0]) };
    }

    fn ioctl(self, request: usize, argument: *mut u64) -> isize {
        // SAFETY: each request below passes the structure it asks for; the memory that the request is about is the
        // caller's.
        unsafe { sys::call(nr::IOCTL, [self.0 as usize, request, argument as usize, 0, 0, 0]) }
    }

    /// From now on missing pages of the range raise SIGBUS, and writes to pages that [`Uffd::protect`] has protected.
    pub fn register(self, start: usize, bytes: usize) -> isize {
        let mut range = [start as u64, bytes as u64, MODE_MISSING | MODE_WP, 0];
        self.ioctl(REGISTER, range.as_mut_ptr())
    }

    /// Missing pages of the range are zeros again.
    pub fn unregister(self, start: usize, bytes: usize) -> isize {
        let mut range = [start as u64, bytes as u64];
        self.ioctl(UNREGISTER, range.as_mut_ptr())
    }

    /// The pages that are there may not be written to until this is called with `on` false. Pages that are not there
    /// are left alone. A system call that would write to one says `EFAULT`.
    pub fn protect(self, start: usize, bytes: usize, on: bool) -> isize {
        self.repeat(|_| {
            let mut argument = [start as u64, bytes as u64, u64::from(on)];
            (self.ioctl(WRITEPROTECT, argument.as_mut_ptr()), 0, bytes)
        })
    }

    /// Fills missing pages with copies. Returns the bytes that are there now, or an error if none.
    ///
    /// # Safety
    /// `from` holds `bytes` bytes.
    pub unsafe fn copy(self, to: usize, from: *const u8, bytes: usize) -> isize {
        self.repeat(|done| {
            let mut argument = [(to + done) as u64, from as u64 + done as u64, (bytes - done) as u64, 0, 0];
            let error = self.ioctl(COPY, argument.as_mut_ptr());
            (error, argument[4] as i64 as isize, bytes)
        })
    }

    /// Fills missing pages with zeros. Returns the bytes that are there now, or an error if none.
    pub fn zero(self, start: usize, bytes: usize) -> isize {
        self.repeat(|done| {
            let mut argument = [(start + done) as u64, (bytes - done) as u64, 0, 0];
            let error = self.ioctl(ZEROPAGE, argument.as_mut_ptr());
            (error, argument[3] as i64 as isize, bytes)
        })
    }

    /// Moves pages to where none are. Returns the bytes moved, from the front, or an error if none. Pages that others
    /// hold (pinned, shared with a child) are `EBUSY`.
    ///
    /// Linux 6.18 can say `EEXIST` of a page that it has just moved: when the page was locked by somebody else, by
    /// compaction or an access check, the kernel tries again by itself, does not forget the first error, and finds the
    /// page at its destination. Such a page counts as moved: it is missing where it was.
    ///
    /// # Safety
    /// Both ranges are mappings whose contents the caller may move.
    pub unsafe fn relocate(self, to: usize, from: usize, bytes: usize) -> isize {
        self.repeat(|done| {
            let mut argument = [(to + done) as u64, (from + done) as u64, (bytes - done) as u64, 0, 0];
            let error = self.ioctl(MOVE, argument.as_mut_ptr());
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
}
