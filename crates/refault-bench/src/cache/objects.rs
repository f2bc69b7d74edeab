//! A cache of objects beside the page cache: the same hits from `quick_cache`, which keeps each page as an object of its own
//! that readers share. It reads no file, so it is told of all pages before.
//!
//! Its pages lie in the heap, in pages of 4 KiB of the system's, where the frames of the page cache lie in huge ones: that
//! is how such a cache is used.

use std::sync::Arc;

use quick_cache::sync::Cache;

use super::load::{Figures, LoadArgs, PAGE, Served, measure, number_of};
use refault_console::Failure;

struct Objects {
    pages: Cache<u64, Arc<[u8; PAGE]>>,
    copies: bool,
}

impl Objects {
    fn new(load: &LoadArgs) -> Objects {
        // It has shards, each with a share of the capacity, into which pages do not fall evenly.
        let pages = Cache::new(2 * load.pages);
        for number in 0..load.pages as u64 {
            let mut page = [0; PAGE];
            page[..8].copy_from_slice(&number.to_le_bytes());
            pages.insert(number, Arc::new(page));
        }
        Objects { pages, copies: load.pattern.copies() }
    }
}

impl Served for Objects {
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<u64, Failure> {
        let number = offset / PAGE as u64;
        let Some(page) = self.pages.get(&number) else {
            return Err(Failure::failed("quick_cache", "its memory", format!("page {number} is not there")));
        };
        Ok(number_of(&page[..], buffer, self.copies))
    }
}

/// Does work that reads only what is in memory.
pub fn run(load: &LoadArgs) -> Result<Figures, Failure> {
    measure(load, &Objects::new(load))
}
