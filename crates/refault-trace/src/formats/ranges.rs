//! Several disks or processes in one trace: each has page numbers from 0, and none may be taken for another's.
//!
//! The first keeps its numbers; each further one gets a range of its own above: of 2^44 pages (2^56 bytes), or, where
//! there may be thousands, of 2^36 pages (2^48 bytes).

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::Entry;
use crate::error::quote;

const WIDE_SHIFT: u32 = 44;
const DISKS_SHIFT: u32 = 36;

/// The ranges of what has appeared so far.
pub(crate) struct Ranges {
    what: &'static str,
    shift: u32,
    /// Names as they are written, with their order of appearance.
    names: HashMap<Vec<u8>, u64, FixedState>,
}

impl Ranges {
    /// `what` each range belongs to, for errors.
    pub(crate) fn new(what: &'static str) -> Ranges {
        Ranges { what, shift: WIDE_SHIFT, names: HashMap::default() }
    }

    /// For up to a million, each of at most 256 TiB.
    pub(crate) fn many(what: &'static str) -> Ranges {
        Ranges { shift: DISKS_SHIFT, ..Ranges::new(what) }
    }

    /// Where `pages` from `first_page` of the one called `name` lie.
    pub(crate) fn place(&mut self, name: &[u8], first_page: u64, pages: u64) -> Result<u64, String> {
        if first_page.saturating_add(pages) > 1 << self.shift {
            let bits = self.shift + 12;
            return Err(format!("{} {} has pages beyond 2^{bits} bytes", self.what, quote(name)));
        }
        let known = self.names.len() as u64;
        let index = match self.names.get(name) {
            Some(index) => *index,
            None if known >> (Entry::MAX_PAGE.count_ones() - self.shift) > 0 => {
                return Err(format!("more than {known} {}s", self.what));
            }
            None => *self.names.entry(name.to_owned()).or_insert(known),
        };
        Ok(first_page + (index << self.shift))
    }

    /// The number, by appearance, of the one that a page of a wide range belongs to.
    pub(crate) fn index_of(page: u64) -> usize {
        (page >> WIDE_SHIFT) as usize
    }

    /// The number of the one called `name`, if it has appeared.
    pub(crate) fn index(&self, name: &[u8]) -> Option<usize> {
        self.names.get(name).map(|index| *index as usize)
    }

    /// How many there are, for people.
    pub(crate) fn described(&self) -> String {
        match self.names.len() {
            0 | 1 => "1".to_owned(),
            several => format!("{several}, each with a range of pages of its own"),
        }
    }
}
