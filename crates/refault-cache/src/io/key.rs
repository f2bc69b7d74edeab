//! What a file is known by, whatever its names.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// What a file is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// Device and number.
    File(u64, u64),
    /// A block device, whatever its node.
    Device(u64),
}

impl Key {
    pub(crate) fn of(metadata: &Metadata) -> Key {
        match metadata.file_type().is_block_device() {
            true => Key::Device(metadata.rdev()),
            false => Key::File(metadata.dev(), metadata.ino()),
        }
    }
}
