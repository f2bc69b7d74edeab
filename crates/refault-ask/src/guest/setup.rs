//! What has to be there before a replay: file systems, modules, settings, swap, and a clean slate for each one.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::system::{RebootCommand, init_module, reboot};

use super::kernel_files::{tell, tell_if_there, text};

/// The order in which modules are loaded, in the initial file system: one name per line.
pub const ORDER: &str = "refault-ask/order";
/// Modules, by name.
pub const MODULES: &str = "refault-ask/modules";
/// Disks with the tree of files that a program runs in, one for each kind of lists.
pub(super) const DISKS: [&str; 2] = ["vda", "vdb"];
use crate::job::program::Program;
use crate::job::{Job, Lists};

/// The group of the replay.
pub(super) const GROUP: &str = "/sys/fs/cgroup/asked";
/// Where the disk with the file is mounted, and the disks with the file and with the accesses.
pub(super) const DATA: &str = "/data";
pub(super) const DATA_DISK: &str = "vda";
pub(super) const SEQUENCE: &str = "/dev/vdb";
const SWAP: &str = "/dev/zram0";
const ZRAM: &str = "/sys/block/zram0";
const PAGE: usize = 4096;

const MOUNTS: [(&str, &str, &str); 6] = [
    ("proc", "/proc", "proc"),
    ("sysfs", "/sys", "sysfs"),
    ("devtmpfs", "/dev", "devtmpfs"),
    ("cgroup2", "/sys/fs/cgroup", "cgroup2"),
    ("debugfs", "/sys/kernel/debug", "debugfs"),
    ("tmpfs", "/tmp", "tmpfs"),
];

pub(super) fn mount_all() -> Result<(), String> {
    for (kind, place, name) in MOUNTS {
        mount(name, place, kind, MountFlags::empty(), c"").map_err(|error| format!("{place}: {error}"))?;
    }
    Ok(())
}

pub(super) fn load_modules() -> Result<(), String> {
    for name in text(&format!("/{ORDER}"))?.lines() {
        let path = format!("/{MODULES}/{name}");
        let contents = std::fs::read(&path).map_err(|error| format!("{path}: {error}"))?;
        // A module that is there already, or is part of the image, is no failure; what it is for is missed later.
        let _ = init_module(&contents, c"");
    }
    Ok(())
}

/// Settings for all replays: what would bring pages in without being asked for is off.
pub(super) fn settle() {
    tell_if_there("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
    tell_if_there("/sys/kernel/mm/transparent_hugepage/enabled", "never");
    tell_if_there("/sys/module/damon_stat/parameters/enabled", "N");
    tell_if_there("/sys/kernel/debug/fault_around_bytes", "4096");
    tell_if_there("/proc/sys/vm/page-cluster", "0");
    tell_if_there("/sys/kernel/mm/swap/vma_ra_enabled", "false");
    tell_if_there(&format!("/sys/block/{DATA_DISK}/queue/read_ahead_kb"), "0");
}

/// Settings for programs: those of the kernel, but groups can have limits, and the machine can talk to itself.
pub(super) fn settle_for_programs() {
    tell_if_there("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
    tell_if_there("/sys/module/damon_stat/parameters/enabled", "N");
    raise_loopback();
}

/// Sets the network device up by which processes of one machine talk to each other. Without it, those that do so fail
/// and say it.
fn raise_loopback() {
    let Ok(socket) = std::net::UdpSocket::bind("0.0.0.0:0") else { return };
    // SAFETY: all fields of this struct, and of the union in it, may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (room, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *room = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the call reads a struct of this type, which lives for the call; the descriptor is open.
    unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request) };
}

/// The tree of files on a disk, with what programs expect in it: the kernel's own file systems, and names of streams.
const MOUNTS_OF_PROGRAMS: [(&str, &str); 4] =
    [("proc", "proc"), ("sysfs", "sys"), ("devtmpfs", "dev"), ("tmpfs", "dev/shm")];

/// Lists, swap, the tree of files and the group of a program.
pub(super) fn prepare_program(program: &Program, lists: Lists, disk: &str) -> Result<(), String> {
    choose(lists)?;
    tell("/proc/sys/vm/swappiness", &program.swappiness.to_string())?;
    add_swap(program.swap / PAGE as u64)?;
    let mounted = mount(format!("/dev/{disk}").as_str(), DATA, "ext4", MountFlags::NOATIME, c"");
    mounted.map_err(|error| format!("the disk with the program cannot be mounted, as ext4: {error}"))?;
    for (kind, place) in MOUNTS_OF_PROGRAMS {
        let place = format!("{DATA}/{place}");
        std::fs::create_dir_all(&place).map_err(|error| format!("{place}: {error}"))?;
        mount(kind, place.as_str(), kind, MountFlags::empty(), c"").map_err(|error| format!("{place}: {error}"))?;
    }
    for (name, target) in [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        // The file system of devices is the same one the second time, and has them.
        let _ = std::os::unix::fs::symlink(target, format!("{DATA}/dev/{name}"));
    }
    make_group()?;
    tell(&format!("{GROUP}/memory.max"), &program.limit.to_string())?;
    tell_if_there("/proc/sys/vm/drop_caches", "3");
    Ok(())
}

/// Undoes [`prepare_program`], with the processes that are left.
pub(super) fn clear_program() {
    tell_if_there(&format!("{GROUP}/cgroup.kill"), "1");
    for (_, place) in MOUNTS_OF_PROGRAMS.iter().rev() {
        let _ = unmount(format!("{DATA}/{place}"), UnmountFlags::DETACH);
    }
    let _ = unmount(DATA, UnmountFlags::DETACH);
    for _ in 0..LOOKS {
        if std::fs::remove_dir(GROUP).is_ok() {
            break;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    clear();
}

/// How often, and how far apart, a group is looked at until the last of its processes is gone.
const LOOKS: u32 = 100;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

fn choose(lists: Lists) -> Result<(), String> {
    const ENABLED: &str = "/sys/kernel/mm/lru_gen/enabled";
    match lists {
        Lists::Generations => tell(ENABLED, "y").map_err(|_| "this kernel has no multi-gen LRU".to_owned())?,
        Lists::Classic => tell_if_there(ENABLED, "n"),
    }
    tell_if_there("/sys/kernel/mm/lru_gen/min_ttl_ms", "0");
    Ok(())
}

fn make_group() -> Result<(), String> {
    std::fs::create_dir(GROUP).map_err(|error| format!("this kernel has no groups with memory limits: {error}"))
}

/// Lists, swap, the file and the group of one replay.
pub(super) fn prepare(job: &Job, lists: Lists) -> Result<(), String> {
    choose(lists)?;
    tell("/proc/sys/vm/swappiness", &job.swappiness.to_string())?;
    if job.anon > 0 {
        add_swap(job.anon)?;
    }
    if job.file > 0 {
        let device = format!("/dev/{DATA_DISK}");
        let mounted = mount(device.as_str(), DATA, "iso9660", MountFlags::RDONLY | MountFlags::NOATIME, c"");
        mounted.map_err(|error| format!("the disk with the file cannot be mounted: {error}"))?;
    }
    make_group()
}

/// Fresh compressed swap with room for the whole of the data.
fn add_swap(pages: u64) -> Result<(), String> {
    if !Path::new(ZRAM).exists() {
        return Err("this kernel has no zram, which anonymous memory is swapped to".to_owned());
    }
    let _ = tell(&format!("{ZRAM}/reset"), "1");
    let bytes = (pages + 1024) * PAGE as u64;
    tell(&format!("{ZRAM}/disksize"), &bytes.to_string())?;
    // The header of a swap area: a version, the last page, and at the end of the first page what it is.
    let mut header = vec![0u8; PAGE];
    header[1024..1028].copy_from_slice(&1u32.to_ne_bytes());
    header[1028..1032].copy_from_slice(&((bytes / PAGE as u64 - 1) as u32).to_ne_bytes());
    header[PAGE - 10..].copy_from_slice(b"SWAPSPACE2");
    let written = OpenOptions::new().write(true).open(SWAP).and_then(|device| device.write_all_at(&header, 0));
    written.map_err(|error| format!("{SWAP}: {error}"))?;
    let path = CString::new(SWAP).expect("invariant: no zero byte");
    // SAFETY: the path is a string that ends with a zero byte and lives for the call.
    if unsafe { libc::swapon(path.as_ptr(), 0) } != 0 {
        return Err(format!("no swap: {}", std::io::Error::last_os_error()));
    }
    Ok(())
}

/// Undoes [`prepare`], as far as it was done.
pub(super) fn clear() {
    let _ = std::fs::remove_dir(GROUP);
    let _ = unmount(DATA, UnmountFlags::empty());
    let path = CString::new(SWAP).expect("invariant: no zero byte");
    // SAFETY: as in `add_swap`.
    unsafe { libc::swapoff(path.as_ptr()) };
    tell_if_there("/proc/sys/vm/drop_caches", "3");
}

/// Ends the guest.
pub(super) fn power_off() -> ! {
    rustix::fs::sync();
    let _ = reboot(RebootCommand::PowerOff);
    loop {
        std::thread::park();
    }
}
