//! Dense numbers for the pages of a trace, in the order of their first access.
//!
//! Anonymous and file pages of one number are different pages. Cost: low page numbers index a table (4 bytes per number
//! up to the highest seen), others are looked up in a hash map (some 16 bytes per page).
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
