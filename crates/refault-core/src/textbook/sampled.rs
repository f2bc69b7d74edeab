//! Policies that look at a few pages drawn at random and evict the worst of them: Hyperbolic and LHD.
//!
//! Invariant: `pages` holds each page in memory once, and `places` says where. The page that came last takes the place
//! of one that goes, so that a draw is an index. A seed gives the same draws for ever.
//!
//! Cost: 4 bytes per page id and 4 to 8 per page in memory; O(1) to add, remove and draw.

mod hyperbolic;
mod lhd;

pub use hyperbolic::{Hyperbolic, HyperbolicParams};
pub use lhd::{Lhd, LhdParams};

use super::evict;
use crate::counters::Counters;
use crate::memory::Memory;
use crate::monitor::Random;
use crate::page::{NO_PAGE, PageId};

/// The pages in memory, in an order from which can be drawn.
#[derive(Clone, Debug, Default)]
struct Sampled {
    pages: Vec<PageId>,
    places: Vec<u32>,
}

impl Sampled {
    fn contains(&self, page: PageId) -> bool {
        self.places[page as usize] != NO_PAGE
    }

    fn insert(&mut self, page: PageId) {
        self.places[page as usize] = self.pages.len() as u32;
        self.pages.push(page);
    }

    fn remove(&mut self, page: PageId) {
        let place = std::mem::replace(&mut self.places[page as usize], NO_PAGE);
        self.pages.swap_remove(place as usize);
        if let Some(moved) = self.pages.get(place as usize) {
            self.places[*moved as usize] = place;
        }
    }

    /// One of at least one.
    fn draw(&self, random: &mut Random) -> PageId {
        self.pages[random.within(0, self.pages.len() as u64) as usize]
    }

    /// Evicts the page chosen or, if memory keeps that, the first that it lets go. The page stays in the sample.
    fn evict<M: Memory>(&self, chosen: PageId, memory: &mut M, counters: &mut Counters) -> Option<PageId> {
        if evict(chosen, memory, counters) {
            return Some(chosen);
        }
        self.pages.iter().copied().find(|page| *page != chosen && evict(*page, memory, counters))
    }

    fn grow(&mut self, pages: usize) {
        self.places.resize(pages.max(self.places.len()), NO_PAGE);
    }

    fn metadata_bytes(&self) -> usize {
        (self.pages.capacity() + self.places.capacity()) * size_of::<u32>()
    }
}
