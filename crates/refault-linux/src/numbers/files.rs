//! What the kernel says of files: kinds, file systems, and the structures of `stat`, `statfs` and `getdents64`.

crate::numbers::constants! {
    S_IFMT: u32 = 0o170_000, "The bits of a mode that say what a file is.";
    S_IFIFO: u32 = 0o010_000, "A pipe.";
    S_IFCHR: u32 = 0o020_000, "A device of characters.";
    S_IFBLK: u32 = 0o060_000, "A device of blocks.";
    S_IFREG: u32 = 0o100_000, "A regular file.";
    S_IFSOCK: u32 = 0o140_000, "A socket.";
    S_IRUSR: u32 = 0o400, "Its owner may read it.";
    S_IWUSR: u32 = 0o200, "Its owner may write to it.";
    DT_LNK: u8 = 10, "Of an entry of a directory: a symbolic link.";
    PROC_SUPER_MAGIC: u64 = 0x9fa0, "The file system of `/proc`.";
    PID_FS_MAGIC: u64 = 0x5049_4446, "The file system of descriptors of processes.";
    MEM_MAJOR: u64 = 1, "Of devices: memory, zeros, random bytes.";
    TTY_MAJOR: u64 = 4, "Of devices: consoles and serial lines.";
    TTYAUX_MAJOR: u64 = 5, "Of devices: the terminal that a process has.";
    UNIX98_PTY_SLAVE_MAJOR: u64 = 136, "Of devices: the first of eight numbers of pseudo-terminals.";
    UNIX98_PTY_MAJOR_COUNT: u64 = 8, "Of devices: how many numbers pseudo-terminals have.";
}

crate::numbers::places! {
    "struct dirent": {
        DIRENT_BYTES = 16 "d_reclen";
        DIRENT_KIND = 18 "d_type";
        DIRENT_NAME = 19 "d_name";
    }
}

/// What `fstat` and its like say of a file (`struct stat`).
#[cfg(target_arch = "x86_64")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Stat {
    /// The device that it lies on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// Names that it has.
    pub links: u64,
    /// What it is ([`S_IFMT`]) and who may do what with it.
    pub mode: u32,
    /// Its user, its group, and four bytes of nothing.
    pub owners: [u32; 3],
    /// The device that it is.
    pub represents: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// Blocks, and times.
    pub rest: [u64; 11],
}

/// What `fstat` and its like say of a file (`struct stat`).
#[cfg(target_arch = "aarch64")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Stat {
    /// The device that it lies on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// What it is ([`S_IFMT`]) and who may do what with it.
    pub mode: u32,
    /// Names that it has, its user and its group.
    pub owners: [u32; 3],
    /// The device that it is.
    pub represents: u64,
    /// Eight bytes of nothing.
    pub pad: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// Blocks, and times.
    pub rest: [u64; 9],
}

impl Stat {
    /// What tells it from every other file: its device and its number.
    pub fn identity(&self) -> [u64; 2] {
        [self.device, self.inode]
    }
}

/// The first number of a device, of twelve bits.
pub const fn major(device: u64) -> u64 {
    const BITS: u32 = 12;
    const SHIFT: u32 = 8;
    device >> SHIFT & ((1 << BITS) - 1)
}

/// What `fstatfs` says of a file system (`struct statfs`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StatFs {
    /// Which it is ([`PROC_SUPER_MAGIC`]).
    pub kind: u64,
    /// Blocks and files, free and not.
    pub rest: [u64; 14],
}
