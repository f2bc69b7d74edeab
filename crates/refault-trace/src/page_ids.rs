//! Dense numbers for the pages of a trace, in the order of their first access.
//!
//! Anonymous and file pages of one number are different pages. Cost: low page numbers index a table (4 bytes per number
//! up to the highest seen). Others are looked up in a hash map (some 16 bytes per page).
//!
//! ```
//! use refault_trace::page_ids::PageIds;
//! use refault_trace::{Entry, Kind};
//!
//! let mut ids = PageIds::new();
//! let first = ids.id(Entry::new(1 << 40, Kind::Anon, false));
//! assert_eq!(first, Some(0)); // dense, in the order of first accesses
//! assert_eq!(ids.len(), 1);
//! ```

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::{Entry, Kind};

/// Page numbers below this are looked up in a table.
const DIRECT: u64 = 1 << 24;
const NONE: u32 = u32::MAX;
/// Pages numbered at most.
pub const MAX_PAGES: u32 = 1 << 31;

/// Numbers the pages of a trace from 0 as they appear.
#[derive(Default)]
pub struct PageIds {
    /// Anonymous pages, then file pages.
    direct: [Vec<u32>; 2],
    far: HashMap<u64, u32, FixedState>,
    next: u32,
}

impl PageIds {
    /// No pages yet.
    pub fn new() -> PageIds {
        PageIds::default()
    }

    /// Distinct pages so far: ids are below this.
    pub fn len(&self) -> usize {
        self.next as usize
    }

    /// Whether there has been no page.
    pub fn is_empty(&self) -> bool {
        self.next == 0
    }

    /// The id of an entry's page, a new one if the page is new. `None` if [`MAX_PAGES`] have ids already.
    #[inline]
    pub fn id(&mut self, entry: Entry) -> Option<u32> {
        let (page, is_file) = (entry.page(), entry.kind() != Some(Kind::Anon));
        let table = &self.direct[usize::from(is_file)];
        match table.get(page as usize) {
            Some(id) if *id != NONE => Some(*id),
            _ => self.find(page, is_file),
        }
    }

    #[cold]
    #[inline(never)]
    fn find(&mut self, page: u64, is_file: bool) -> Option<u32> {
        let new = Some(self.next).filter(|id| *id < MAX_PAGES);
        if page < DIRECT {
            let table = &mut self.direct[usize::from(is_file)];
            if table.len() as u64 <= page {
                table.resize((page + 1).next_power_of_two() as usize, NONE);
            }
            table[page as usize] = new?;
        } else {
            let key = page | if is_file { 1 << Entry::KIND_SHIFT } else { 0 };
            if let Some(id) = self.far.get(&key) {
                return Some(*id);
            }
            self.far.insert(key, new?);
        }
        self.next += 1;
        new
    }
}

/// Page numbers below this can stand for themselves.
const AS_THEY_ARE: u64 = 1 << 22;

/// Numbers the pages of a trace so that different pages have different numbers, at least cost. If the first page has a
/// low number, low numbers of its kind stand for themselves. So the only table to be looked into is that of what is
/// kept by number. Numbers are not dense, but below [`LooseIds::end`].
#[derive(Default)]
pub struct LooseIds {
    /// Whether the pages that stand for themselves are file pages; `None`: there are none.
    files: Option<bool>,
    /// The other pages, numbered from [`AS_THEY_ARE`] on, or from 0 if they are all.
    others: PageIds,
    end: usize,
}

impl LooseIds {
    /// No pages yet.
    pub fn new() -> LooseIds {
        LooseIds::default()
    }

    /// All numbers so far are below this.
    pub fn end(&self) -> usize {
        self.end
    }

    /// The number of an entry's page. `None` if [`MAX_PAGES`] do not stand for themselves.
    #[inline]
    pub fn id(&mut self, entry: Entry) -> Option<u32> {
        let (page, is_file) = (entry.page(), entry.kind() != Some(Kind::Anon));
        if self.end == 0 {
            self.files = (page < AS_THEY_ARE).then_some(is_file);
        }
        let id = match self.files {
            None => self.others.id(entry)?,
            Some(files) if page < AS_THEY_ARE && files == is_file => page as u32,
            Some(_) => self.others.id(entry)? + AS_THEY_ARE as u32,
        };
        self.end = self.end.max(id as usize + 1);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loose_numbers_are_the_pages_own_or_their_own() {
        let mut ids = LooseIds::new();
        let mut id = |page, kind| ids.id(Entry::new(page, kind, false)).expect("few pages");
        assert_eq!([id(7, Kind::Fd), id(3, Kind::Mapped), id(7, Kind::Mapped)], [7, 3, 7]);
        // Not the same page, although it has the same number; and one too far away.
        let others = [id(7, Kind::Anon), id(AS_THEY_ARE, Kind::Fd), id(1 << 40, Kind::Anon), id(7, Kind::Anon)];
        assert_eq!(others, [0, 1, 2, 0].map(|id| id + AS_THEY_ARE as u32));
        assert_eq!(ids.end(), AS_THEY_ARE as usize + 3);
        let mut ids = LooseIds::new();
        let mut id = |page| ids.id(Entry::new(page, Kind::Anon, false)).expect("few pages");
        assert_eq!([id(1 << 40), id(5), id(1 << 40)], [0, 1, 0], "the first page is far away");
    }
}
