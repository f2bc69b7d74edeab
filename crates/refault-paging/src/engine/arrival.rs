//! Pages arrive: which of them come in with a fault, and what is told to whom when they are there.

use refault_core::{PageId, Shadow};

use super::{Engine, MAX_WINDOW};
use crate::PAGE;
use crate::page::ranges::Attributes;
use crate::page::table::State;

impl Engine {
    /// The id of the page at an address; the policy knows of it afterwards.
    pub(crate) fn page_id(&mut self, address: usize) -> PageId {
        let (page, grown) = self.pages.make(address);
        if let Some(pages) = grown {
            self.choosing.knows(pages);
        }
        page
    }

    /// A page is resident now.
    pub(crate) fn admit(&mut self, page: PageId, shadow: Option<Shadow>) {
        self.pages.came_in(page);
        self.choosing.admit(page, shadow, self.pages.table());
    }

    /// The pages to bring in for a fault at an address: those in a row that are `alike`, as many as were asked for
    /// before in this direction and twice as many again. The first address, and how many.
    pub(crate) fn window(&mut self, address: usize, alike: impl Fn(usize, State) -> bool) -> (usize, usize) {
        let (start, end, _) = self.pages.range(address).unwrap_or((address, address + PAGE, Attributes::default()));
        let max_window = if self.notes_all_touches() { 1 } else { MAX_WINDOW };
        let (most, backward) = self.choosing.window(address, max_window);
        let neighbour = |index: usize| if backward { address - index * PAGE } else { address + index * PAGE };
        let room = if backward { (address - start) / PAGE + 1 } else { (end - address).div_ceil(PAGE) };
        let pages =
            1 + (1..most.min(room)).take_while(|index| alike(*index, self.pages.state(neighbour(*index)))).count();
        let first = if backward { address - (pages - 1) * PAGE } else { address };
        (first, pages)
    }

    /// What a fault's window has become.
    pub(crate) fn went_to(&mut self, first: usize, pages: usize) {
        self.choosing.went_to(first, pages);
        if pages > 1 {
            self.came_along(first, pages);
        }
    }

    /// Pages that were untouched are resident now.
    pub(crate) fn fresh(&mut self, first: usize, pages: usize) {
        for index in 0..pages {
            let page = self.page_id(first + index * PAGE);
            self.admit(page, None);
        }
        self.counts.first_touches(pages);
    }

    /// A stored page is in memory again.
    pub(crate) fn came_back(&mut self, address: usize) {
        if let Some(then) = self.contents.came_back(address) {
            self.account.came_back(then, self.counts.statistics());
        }
    }
}
