//! Shadow entries of a flat memory: four bytes per page, more for the few that need it.
//!
//! Entries of the root lruvec whose value is below 2^30 (the first billion evictions of a replay) are stored with their
//! lruvec left out; all others in a table beside. Set and take are O(1); nothing is allocated before the first entry.

use std::collections::HashMap;

use refault_core::{PageId, Shadow};

/// Bits that stay below the value: tag and workingset.
const FLAGS: u32 = 2;
/// Where the value starts in a [`Shadow`]; the bits between belong to the lruvec.
const VALUE_SHIFT: u32 = 24;
/// Stands for an entry in the table beside. Its tag bit is clear, which no packed entry's is.
const ELSEWHERE: u32 = 2;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Shadows {
    packed: Vec<u32>,
    wide: HashMap<PageId, u64>,
}

impl Shadows {
    /// Leaves an entry in the slot of one of `pages` pages.
    #[inline]
    pub fn set(&mut self, page: PageId, shadow: Shadow, pages: usize) {
        if self.packed.is_empty() {
            self.packed.resize(pages, 0);
        }
        self.packed[page as usize] = pack(shadow.0).unwrap_or_else(|| {
            self.wide.insert(page, shadow.0);
            ELSEWHERE
        });
    }

    /// The entry in a slot.
    #[inline]
    pub fn get(&self, page: PageId) -> Option<Shadow> {
        match *self.packed.get(page as usize)? {
            0 => None,
            ELSEWHERE => self.wide.get(&page).copied().map(Shadow),
            packed => Some(Shadow(unpack(packed))),
        }
    }

    /// Takes the entry out of a slot.
    #[inline]
    pub fn take(&mut self, page: PageId) -> Option<Shadow> {
        match std::mem::take(self.packed.get_mut(page as usize)?) {
            0 => None,
            ELSEWHERE => self.wide.remove(&page).map(Shadow),
            packed => Some(Shadow(unpack(packed))),
        }
    }

    /// Touches a slot.
    #[inline]
    pub fn peek(&self, page: PageId) -> u32 {
        self.packed.get(page as usize).copied().unwrap_or(0)
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.packed.capacity() * size_of::<u32>() + self.wide.capacity() * size_of::<(PageId, u64)>()
    }
}

#[inline]
fn pack(word: u64) -> Option<u32> {
    let packed = (word >> VALUE_SHIFT) << FLAGS | word & ((1 << FLAGS) - 1);
    let narrow = packed as u32;
    (u64::from(narrow) == packed && unpack(narrow) == word && word & 1 != 0).then_some(narrow)
}

#[inline]
fn unpack(packed: u32) -> u64 {
    u64::from(packed >> FLAGS) << VALUE_SHIFT | u64::from(packed & ((1 << FLAGS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_comes_back_whole() {
        let mut shadows = Shadows::default();
        assert_eq!(shadows.take(3), None);
        let words = [1, 3, 1 << VALUE_SHIFT | 1, ((1 << 54) - (1 << 24)) | 3, (7 << 2) | 1, u64::MAX, 1 << 60 | 1, 2];
        for (page, word) in words.iter().enumerate() {
            shadows.set(page as PageId, Shadow(*word), words.len());
        }
        for (page, word) in words.iter().enumerate() {
            assert_eq!(shadows.get(page as PageId), Some(Shadow(*word)), "{word:#x}");
            assert_eq!(shadows.take(page as PageId), Some(Shadow(*word)), "{word:#x}");
            assert_eq!(shadows.take(page as PageId), None);
        }
    }
}
