//! What the policies with several lists keep of a page: its links and which list they belong to.

use crate::lists::linked::{Link, Linked};
use crate::page::PageId;

/// Links and `state`, which says at least which list the page is on. 12 bytes while the state has at most four.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot<S> {
    link: Link,
    pub(super) state: S,
}

impl<S> Linked for Slot<S> {
    #[inline]
    fn newer(&self) -> PageId {
        self.link.newer()
    }
    #[inline]
    fn older(&self) -> PageId {
        self.link.older()
    }
    #[inline]
    fn set_newer(&mut self, page: PageId) {
        self.link.set_newer(page);
    }
    #[inline]
    fn set_older(&mut self, page: PageId) {
        self.link.set_older(page);
    }
}
