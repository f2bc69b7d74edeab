//! What a file is known by, whatever its names.

use rustix::fs::{FileType, Stat};

/// What a file is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// Device and number.
    File(u64, u64),
    /// A block device, whatever its node.
    Device(u64),
}

impl Key {
    pub(crate) fn of(stat: &Stat) -> Key {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => Key::Device(stat.st_rdev),
            _ => Key::File(stat.st_dev, stat.st_ino),
        }
    }
}
