//! A disk that fails on purpose, as the kernel sees one: an ext4 on a loop device, whose image a FUSE server of this
//! process holds in memory. So each error takes the whole way of a real one: file system, block layer, device.
//!
//! The file system has no journal, so that it goes on after an error as long as it is not asked for its own blocks.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyWrite, Request, WriteFlags,
};

use crate::common::PAGE;
use crate::common::mounts::{Mounted, are_own, went_well};

const IMAGE: usize = 16 << 20;
const TTL: Duration = Duration::from_secs(3600);

/// What the disk holds, and what it refuses. Blocks are of a page.
#[derive(Default)]
pub struct Disk {
    pub bytes: Vec<u8>,
    /// Blocks that cannot be written, and the error's number.
    pub unwritable: (HashSet<usize>, i32),
    /// Blocks that cannot be read, likewise.
    pub unreadable: (HashSet<usize>, i32),
    /// The error of each flush.
    pub flush: Option<i32>,
    /// Errors that were given.
    pub refused: u64,
}

impl Disk {
    /// Everything works from now on.
    pub fn mend(&mut self) {
        *self = Disk { bytes: std::mem::take(&mut self.bytes), refused: self.refused, ..Disk::default() };
    }

    /// Where each page of a file lies that has its number and one value in each.
    pub fn blocks_of(&self, page: impl Fn(usize) -> Vec<u8>, pages: usize) -> Vec<usize> {
        let at = |number: usize| {
            let wanted = page(number);
            let mut blocks = self.bytes.chunks(PAGE).enumerate().filter(|(_, block)| *block == wanted);
            let found = blocks.next().expect("it was written").0;
            assert!(blocks.next().is_none(), "no other block is like page {number}");
            found
        };
        (0..pages).map(at).collect()
    }

    fn refuses(&mut self, (blocks, number): &(HashSet<usize>, i32), offset: u64, bytes: usize) -> Option<Errno> {
        let mut range = offset as usize / PAGE..(offset as usize + bytes).div_ceil(PAGE);
        let hit = range.any(|block| blocks.contains(&block));
        self.refused += u64::from(hit);
        hit.then(|| Errno::from_i32(*number))
    }
}

struct Server(Arc<Mutex<Disk>>);

impl Server {
    fn attributes(&self, ino: INodeNo) -> FileAttr {
        let is_root = ino == INodeNo::ROOT;
        FileAttr {
            ino,
            size: if is_root { 0 } else { IMAGE as u64 },
            blocks: (IMAGE / 512) as u64,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_root { FileType::Directory } else { FileType::RegularFile },
            perm: if is_root { 0o755 } else { 0o644 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: PAGE as u32,
            flags: 0,
        }
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == "image" {
            true => reply.entry(&TTL, &self.attributes(INodeNo(2)), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(ino));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut disk = self.0.lock().unwrap();
        let end = (offset as usize + size as usize).min(IMAGE);
        let from = (offset as usize).min(end);
        let unreadable = std::mem::take(&mut disk.unreadable);
        let refused = disk.refuses(&unreadable, offset, end - from);
        disk.unreadable = unreadable;
        match refused {
            Some(error) => reply.error(error),
            None => reply.data(&disk.bytes[from..end]),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut disk = self.0.lock().unwrap();
        let unwritable = std::mem::take(&mut disk.unwritable);
        let refused = disk.refuses(&unwritable, offset, data.len());
        disk.unwritable = unwritable;
        match refused {
            Some(error) => reply.error(error),
            None => {
                disk.bytes[offset as usize..][..data.len()].copy_from_slice(data);
                reply.written(data.len() as u32);
            }
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let mut disk = self.0.lock().unwrap();
        disk.refused += u64::from(disk.flush.is_some());
        match disk.flush {
            Some(number) => reply.error(Errno::from_i32(number)),
            None => reply.ok(),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
}

/// The disk, with a file system that is mounted as long as this lives.
pub struct Faulty {
    // In the order in which they go.
    mounted: Option<Mounted>,
    device: Option<String>,
    session: Option<BackgroundSession>,
    disk: Arc<Mutex<Disk>>,
}

impl Faulty {
    /// None, and a skip, where there is no FUSE or no loop device.
    pub fn new(directory: &Path) -> Option<Faulty> {
        let skipped = |what: &str| {
            refault_testing::skip(what);
            None
        };
        let (image, served) = (directory.join("template"), directory.join("served"));
        File::create(&image).and_then(|file| file.set_len(IMAGE as u64)).expect("an image");
        let options = ["-q", "-F", "-b", "4096", "-O", "^has_journal", "-E", "lazy_itable_init=0"];
        if !are_own() || !went_well(Command::new("mkfs.ext4").args(options).arg(&image)) {
            return skipped("no mounts, or no mkfs.ext4");
        }
        let disk = Disk { bytes: std::fs::read(&image).expect("an image"), ..Disk::default() };
        let disk = Arc::new(Mutex::new(disk));
        std::fs::create_dir(&served).expect("a directory");
        let Ok(session) = fuser::spawn_mount(Server(disk.clone()), &served, &Config::default()) else {
            return skipped("no FUSE");
        };
        let mut faulty = Faulty { mounted: None, device: None, session: Some(session), disk };
        // Past the kernel's cache of the image.
        let looped =
            Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(served.join("image")).output();
        let Some(device) = looped.ok().filter(|output| output.status.success()) else {
            return skipped("no loop device");
        };
        let device = String::from_utf8_lossy(&device.stdout).trim().to_owned();
        faulty.device = Some(device.clone());
        faulty.mounted = Mounted::new(&["-o", "noatime", &device], &directory.join("disk"));
        // From now on it goes with its last user.
        let _ = Command::new("losetup").args(["--detach", &device]).output();
        faulty.mounted.is_some().then_some(faulty)
    }

    pub fn path(&self) -> PathBuf {
        self.mounted.as_ref().expect("it is mounted").0.clone()
    }

    pub fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap()
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        // What is unmounted writes what it has.
        self.disk.lock().unwrap_or_else(std::sync::PoisonError::into_inner).mend();
        drop(self.mounted.take());
        let is_looped = |device: &String| went_well(Command::new("losetup").arg(device));
        for _ in 0..100 {
            if !self.device.as_ref().is_some_and(is_looped) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(self.session.take());
    }
}
