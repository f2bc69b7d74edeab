//! The segment of a tree as memory: how large it is, how it is laid out, how a process comes by it.
//!
//! `refault run` makes it and every process of the tree maps it. The command and the preloaded library each map it by
//! their own build's idea of it. The library may be another build's: named by hand, or left behind by an installation.
//! So the command passes the number of its layout on ([`Shared::LAYOUT`]), and the library takes no other.

use core::mem::offset_of;

use refault_store::noted;

use crate::figures::Published;
use crate::tree::{MAKE_ROOM, SLOTS, Shared, Slot};
use refault_linux::calls::SYS_mmap;
use refault_linux::errno::EINVAL;
use refault_linux::flags::{MAP_SHARED, PROT_READ, PROT_WRITE};
use refault_linux::sys;

/// To be raised when a field of the segment comes to mean something else without changing its place.
const REVISION: usize = 4;

impl Shared {
    /// Bytes of a segment.
    pub const BYTES: usize = size_of::<Shared>().next_multiple_of(crate::PAGE);

    /// What the places and meanings of all fields come to: differs between builds that would not understand each other.
    pub const LAYOUT: u64 = mixed(&[
        REVISION,
        MAKE_ROOM,
        SLOTS,
        size_of::<Shared>(),
        size_of::<Slot>(),
        size_of::<Published>(),
        offset_of!(Shared, ended),
        offset_of!(Shared, token),
        offset_of!(Shared, plea),
        offset_of!(Shared, slots),
        offset_of!(Shared, dropped),
        offset_of!(Shared, figures),
        offset_of!(Shared, unmanaged),
        offset_of!(Slot, charged),
    ]);

    /// Maps a segment that was made with [`Shared::BYTES`] bytes of zeros, for as long as this process lives.
    ///
    /// # Errors
    /// There are no addresses, or the descriptor is none of a segment: the kernel's number.
    pub fn map(descriptor: i32) -> Result<&'static Shared, i32> {
        let status = sys::status(descriptor as usize).map_err(|error| -error as i32)?;
        // Another file may have the number by now.
        if status.bytes != Shared::BYTES as u64 {
            return Err(-EINVAL as i32);
        }
        // SAFETY: a fresh shared mapping.
        let at = unsafe {
            sys::call(SYS_mmap, [0, Shared::BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor as usize, 0])
        };
        if at <= 0 {
            return Err(-at as i32);
        }
        noted::note(at as usize, Shared::BYTES);
        // SAFETY: atomics for which zeros are values; nothing unmaps it.
        Ok(unsafe { &*(at as *const Shared) })
    }
}

/// FNV-1a, word by word.
const fn mixed(words: &[usize]) -> u64 {
    let (mut hash, mut index) = (0xcbf2_9ce4_8422_2325, 0);
    while index < words.len() {
        hash = (hash ^ words[index] as u64).wrapping_mul(0x100_0000_01b3);
        index += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_file_that_is_no_segment_is_not_written_to() {
        let path = std::env::temp_dir().join(format!("refault-segment-{}", std::process::id()));
        let file = std::fs::File::options().create_new(true).read(true).write(true).open(&path).expect("a file");
        std::fs::remove_file(&path).expect("it was made");
        file.set_len(3 * crate::PAGE as u64).expect("room");
        assert_eq!(Shared::map(file.as_raw_fd()).map(|_| ()), Err(22));
        assert_eq!(Shared::map(-1).map(|_| ()), Err(9));
        file.set_len(Shared::BYTES as u64).expect("room");
        let shared = Shared::map(file.as_raw_fd()).expect("a segment");
        assert_eq!(shared.limit.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn every_word_of_a_layout_counts() {
        assert_ne!(mixed(&[1, 2, 3]), mixed(&[1, 3, 2]));
        assert_ne!(mixed(&[1, 2, 3]), mixed(&[1, 2, 4]));
    }
}
