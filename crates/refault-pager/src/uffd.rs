//! A thin userfaultfd: the descriptor, its messages and the ioctls that the pager uses.
//!
//! Structures and numbers are the kernel's user-space interface (`linux/userfaultfd.h`, userfaultfd(2)). Nothing here
//! decides anything. Negative results inside the structures (`copy = -EAGAIN`) are turned into errors, never into
//! lengths. Cost: one system call each.
//!
//! ```
//! use refault_pager::uffd::feature;
//!
//! assert_eq!(feature::unknown(feature::SIGBUS | 1 << 63), 1 << 63);
//! ```

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::descriptor::Descriptor;
use crate::pte_lock::PteLock;

/// `UFFD_FEATURE_*` bits.
pub mod feature {
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
        let mut names: Vec<String> = known.map(|(_, name)| (*name).to_owned()).collect();
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

const API: u64 = 0xaa;
const REGISTER_MISSING: u64 = 1;
const REGISTER_WP: u64 = 2;
const COPY_MODE_WP: u64 = 2;
const WRITEPROTECT_WP: u64 = 1;
const WRITEPROTECT_DONTWAKE: u64 = 2;
const EVENT_PAGEFAULT: u8 = 0x12;
const FLAG_WRITE: u64 = 1;
const FLAG_WP: u64 = 2;

const fn iowr<T>(number: u64) -> u64 {
    3 << 30 | (size_of::<T>() as u64) << 16 | 0xaa << 8 | number
}
const fn ior<T>(number: u64) -> u64 {
    2 << 30 | (size_of::<T>() as u64) << 16 | 0xaa << 8 | number
}

#[repr(C)]
struct ApiArguments {
    api: u64,
    features: u64,
    ioctls: u64,
}
#[repr(C)]
#[derive(Clone, Copy)]
struct Range {
    start: u64,
    len: u64,
}
#[repr(C)]
struct Register {
    range: Range,
    mode: u64,
    ioctls: u64,
}
#[repr(C)]
struct Copy {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    copy: i64,
}
#[repr(C)]
struct ZeroPage {
    range: Range,
    mode: u64,
    zeropage: i64,
}
#[repr(C)]
struct WriteProtect {
    range: Range,
    mode: u64,
}
#[repr(C)]
struct Poison {
    range: Range,
    mode: u64,
    updated: i64,
}

const UFFDIO_API: u64 = iowr::<ApiArguments>(0x3f);
const UFFDIO_REGISTER: u64 = iowr::<Register>(0x00);
const UFFDIO_UNREGISTER: u64 = ior::<Range>(0x01);
const UFFDIO_WAKE: u64 = ior::<Range>(0x02);
const UFFDIO_COPY: u64 = iowr::<Copy>(0x03);
const UFFDIO_ZEROPAGE: u64 = iowr::<ZeroPage>(0x04);
const UFFDIO_WRITEPROTECT: u64 = iowr::<WriteProtect>(0x06);
const UFFDIO_POISON: u64 = iowr::<Poison>(0x08);
/// `_IO(0xaa, 0)` on `/dev/userfaultfd`.
const USERFAULTFD_IOC_NEW: u64 = 0xaa << 8;

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

/// An open userfaultfd.
pub struct Uffd {
    fd: Descriptor,
    features: u64,
    access: Access,
}

impl Uffd {
    /// Opens a descriptor that also handles accesses made by the kernel on behalf of the program, by the system call or
    /// by the device node. The error is the system call's (EPERM: not allowed; ENOSYS: not built).
    pub fn open() -> io::Result<(OwnedFd, Access)> {
        // SAFETY: the call takes flags only.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        if fd >= 0 {
            // SAFETY: a fresh descriptor that nobody else owns.
            return Ok((unsafe { OwnedFd::from_raw_fd(fd as i32) }, Access::SystemCall));
        }
        let error = io::Error::last_os_error();
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
        let Ok(device) = rustix::fs::open("/dev/userfaultfd", flags, rustix::fs::Mode::empty()) else {
            return Err(error);
        };
        // SAFETY: the ioctl takes flags only.
        let fd = unsafe { libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW, libc::O_CLOEXEC) };
        if fd < 0 {
            return Err(error);
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok((unsafe { OwnedFd::from_raw_fd(fd) }, Access::Device))
    }

    /// What the running kernel offers: asked on a descriptor of its own, because the question can be put only once.
    pub fn offered_features() -> io::Result<(u64, Access)> {
        let (fd, access) = Uffd::open()?;
        let mut arguments = ApiArguments { api: API, features: 0, ioctls: 0 };
        // SAFETY: the structure is the one this ioctl takes.
        unsafe { ioctl(&fd, UFFDIO_API, &mut arguments) }?;
        Ok((arguments.features, access))
    }

    /// Opens a descriptor with these features.
    pub fn new(features: u64) -> io::Result<Uffd> {
        let (fd, access) = Uffd::open()?;
        let mut arguments = ApiArguments { api: API, features, ioctls: 0 };
        // SAFETY: the structure is the one this ioctl takes.
        unsafe { ioctl(&fd, UFFDIO_API, &mut arguments) }?;
        Ok(Uffd { fd: Descriptor::new(fd), features, access })
    }

    /// In a child after a fork: a descriptor for this process, with the same features.
    pub(crate) fn renew(&self) -> io::Result<()> {
        let (fd, _) = Uffd::open()?;
        let mut arguments = ApiArguments { api: API, features: self.features, ioctls: 0 };
        // SAFETY: the structure is the one this ioctl takes.
        unsafe { ioctl(&fd, UFFDIO_API, &mut arguments) }?;
        self.fd.replace(fd);
        Ok(())
    }

    /// The features that were asked for.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// How the descriptor was obtained.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Delivers missing and write-protect faults of a range.
    pub fn register(&self, start: usize, len: usize) -> io::Result<()> {
        let mut arguments = Register { range: range(start, len), mode: REGISTER_MISSING | REGISTER_WP, ioctls: 0 };
        // SAFETY: the structure is the one this ioctl takes.
        unsafe { ioctl(&self.fd, UFFDIO_REGISTER, &mut arguments) }
    }

    /// Ends that; whoever waits is woken.
    pub fn unregister(&self, start: usize, len: usize) -> io::Result<()> {
        // SAFETY: the structure is the one this ioctl takes.
        unsafe { ioctl(&self.fd, UFFDIO_UNREGISTER, &mut range(start, len)) }
    }

    /// Whether [`Uffd::read`] waits for a message or fails with EAGAIN.
    pub fn set_blocking(&self, blocking: bool) -> io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(&self.fd)?;
        Ok(rustix::fs::fcntl_setfl(
            &self.fd,
            if blocking { flags - rustix::fs::OFlags::NONBLOCK } else { flags | rustix::fs::OFlags::NONBLOCK },
        )?)
    }

    /// Reads waiting messages, blocking until there is one.
    pub fn read(&self, messages: &mut [Message]) -> io::Result<usize> {
        // SAFETY: messages are plain bytes that the kernel fills in whole.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(messages.as_mut_ptr().cast::<u8>(), size_of_val(messages)) };
        Ok(rustix::io::read(&self.fd, bytes)? / size_of::<Message>())
    }

    /// Allocates, fills and maps missing pages at `address` in one step and wakes whoever waits for them; with
    /// `protect`, the next write is a write-protect fault.
    ///
    /// # Safety
    /// `source` must be readable for `len` bytes.
    pub unsafe fn copy(&self, address: usize, source: *const u8, len: usize, protect: bool) -> io::Result<()> {
        let mode = if protect { COPY_MODE_WP } else { 0 };
        in_steps(len, |done, step| {
            let (dst, src) = ((address + done) as u64, source as u64 + done as u64);
            let mut arguments = Copy { dst, src, len: step as u64, mode, copy: 0 };
            // SAFETY: the structure is the one this ioctl takes; the source is readable (promised by the caller).
            let outcome = unsafe { ioctl(&self.fd, UFFDIO_COPY, &mut arguments) };
            advance(outcome, arguments.copy)
        })
    }

    /// Maps zeroed pages and wakes whoever waits for them.
    pub fn zero(&self, address: usize, len: usize) -> io::Result<()> {
        in_steps(len, |done, step| {
            let mut arguments = ZeroPage { range: range(address + done, step), mode: 0, zeropage: 0 };
            // SAFETY: the structure is the one this ioctl takes.
            let outcome = unsafe { ioctl(&self.fd, UFFDIO_ZEROPAGE, &mut arguments) };
            advance(outcome, arguments.zeropage)
        })
    }

    /// Makes writes to a range wait.
    pub(crate) fn protect(&self, _turn: &PteLock, address: usize, len: usize) -> io::Result<()> {
        self.write_protect(address, len, WRITEPROTECT_WP)
    }

    /// Lifts that without waking anybody.
    pub(crate) fn unprotect(&self, _turn: &PteLock, address: usize, len: usize) -> io::Result<()> {
        self.write_protect(address, len, WRITEPROTECT_DONTWAKE)
    }

    fn write_protect(&self, address: usize, len: usize, mode: u64) -> io::Result<()> {
        loop {
            let mut arguments = WriteProtect { range: range(address, len), mode };
            // SAFETY: the structure is the one this ioctl takes.
            match unsafe { ioctl(&self.fd, UFFDIO_WRITEPROTECT, &mut arguments) } {
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                outcome => return outcome,
            }
        }
    }

    /// Wakes whoever waits for a range, to look again.
    pub fn wake(&self, address: usize, len: usize) -> io::Result<()> {
        // SAFETY: the structure is the one this ioctl takes.
        unsafe { ioctl(&self.fd, UFFDIO_WAKE, &mut range(address, len)) }
    }

    /// Makes accesses to missing pages end in SIGBUS.
    pub fn poison(&self, address: usize, len: usize) -> io::Result<()> {
        let mut arguments = Poison { range: range(address, len), mode: 0, updated: 0 };
        // SAFETY: the structure is the one this ioctl takes.
        unsafe { ioctl(&self.fd, UFFDIO_POISON, &mut arguments) }
    }

    /// The descriptor, to wait on.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.fd)
    }
}

fn range(start: usize, len: usize) -> Range {
    Range { start: start as u64, len: len as u64 }
}

/// Does `len` bytes in calls that may stop in the middle. The kernel refuses a range that crosses two of its areas, and
/// programs split areas by `mprotect`, `mbind` and the like: then it is done page by page.
fn in_steps(len: usize, mut step: impl FnMut(usize, usize) -> io::Result<usize>) -> io::Result<()> {
    let mut most = len;
    let mut done = 0;
    while done < len {
        match step(done, most.min(len - done)) {
            Ok(more) => done += more,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) && most > refault_store::PAGE_SIZE => {
                most = refault_store::PAGE_SIZE;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Bytes done by a call that may stop in the middle. EAGAIN without progress is tried again.
fn advance(outcome: io::Result<()>, done: i64) -> io::Result<usize> {
    match outcome {
        Err(error) if error.raw_os_error() != Some(libc::EAGAIN) => Err(error),
        _ => Ok(usize::try_from(done).unwrap_or(0)),
    }
}

/// # Safety
/// `T` must be the structure that `request` takes.
unsafe fn ioctl<T>(fd: &impl AsRawFd, request: u64, arguments: &mut T) -> io::Result<()> {
    // SAFETY: `arguments` is a live structure of the type that the request takes (promised by the caller).
    if unsafe { libc::ioctl(fd.as_raw_fd(), request, arguments as *mut T) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::feature::*;

    #[test]
    fn features_have_names_and_unknown_ones_are_told() {
        assert_eq!(names(POISON | RWP | 1 << 40 | 1 << 41), "poison, read-write-protect, 0x30000000000");
        assert_eq!((names(0), unknown(RWP | RWP_ASYNC | MOVE), unknown(1 << 63)), (String::new(), 0, 1 << 63));
        let mut bits: Vec<u64> = NAMES.iter().map(|(bit, _)| *bit).collect();
        bits.dedup();
        assert!(bits.len() == NAMES.len() && bits.iter().all(|bit| bit.is_power_of_two()));
    }
}
