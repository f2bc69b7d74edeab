//! Several disks or processes in one trace: each has page numbers from 0, and none may be taken for another's.
//!
//! The first keeps its numbers; each further one gets a range of 2^44 pages (2^56 bytes) of its own above.

use crate::Entry;
use crate::error::quote;

const RANGE_SHIFT: u32 = 44;
const MAX_RANGES: usize = 1 << (Entry::MAX_PAGE.count_ones() - RANGE_SHIFT);

/// The ranges of what has appeared so far.
pub(crate) struct Ranges {
    what: &'static str,
    /// Names as they are written, in order of appearance.
    names: Vec<Vec<u8>>,
}

impl Ranges {
    /// `what` each range belongs to, for errors.
    pub(crate) fn new(what: &'static str) -> Ranges {
        Ranges { what, names: Vec::new() }
    }

    /// Where `pages` from `first_page` of the one called `name` lie.
    pub(crate) fn place(&mut self, name: &[u8], first_page: u64, pages: u64) -> Result<u64, String> {
        if first_page + pages > 1 << RANGE_SHIFT {
            return Err(format!("{} {} has pages beyond 2^56 bytes", self.what, quote(name)));
        }
        let index = match self.names.iter().position(|known| known == name) {
            Some(index) => index,
            None if self.names.len() == MAX_RANGES => return Err(format!("more than {MAX_RANGES} {}s", self.what)),
            None => {
                self.names.push(name.to_owned());
                self.names.len() - 1
            }
        };
        Ok(first_page + ((index as u64) << RANGE_SHIFT))
    }
}
