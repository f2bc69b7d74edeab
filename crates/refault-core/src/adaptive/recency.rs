//! The directory of recency: what LRU would hold.
//!
//! It is also what the guard measures the policy against ([`super::choice`]). Cost: 4 to 12 bytes per page held.

use super::oldest::Oldest;
use super::record::{HELD, Table};
use super::{Directory, Way};
use crate::page::PageId;

const FLAG: u32 = HELD[Way::Recency as usize];

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Recency {
    order: Oldest,
    held: usize,
}

impl Default for Recency {
    fn default() -> Recency {
        Recency { order: Oldest::new(FLAG), held: 0 }
    }
}

impl Directory for Recency {
    fn held(&self) -> usize {
        self.held
    }

    #[inline]
    fn refer(&mut self, page: PageId, _before: u32, table: &mut Table) {
        if !table.at(page).is(FLAG) {
            table.set(page, FLAG);
            self.held += 1;
            self.order.insert(page, self.held, table);
        }
    }

    fn shed(&mut self, table: &mut Table) -> Option<PageId> {
        let page = self.order.find(table)?;
        self.forget(page, table);
        Some(page)
    }

    fn forget(&mut self, page: PageId, table: &mut Table) {
        self.held -= usize::from(table.at(page).is(FLAG));
        table.clear(page, FLAG);
    }

    fn resize(&mut self, _capacity: usize, _table: &mut Table) {}

    fn renumbered(&mut self, _table: &Table) {
        self.order.forget();
    }

    fn bytes(&self) -> usize {
        self.order.bytes()
    }
}
