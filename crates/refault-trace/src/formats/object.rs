//! Objects of caches as pages.
//!
//! An object is one page, whatever its size, unless objects have sizes: then each gets as many successive pages of its
//! own as its bytes need, in the order of first appearance. An object that has grown gets new pages: a cache would
//! write it anew. Names that are no numbers are hashed into 56 bits: two of n fall together with a probability of about
//! n²/2^57. Cost of sizes: some 40 bytes per object.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use xxhash_rust::xxh3::xxh3_64;

use super::numbers::{decimal, page};
use super::request::Weight;
use crate::Entry;
use crate::formats::PAGE_BYTES;

/// Finds the pages of objects.
pub(crate) struct Objects {
    /// First page and number of pages of each object, if objects have sizes.
    places: Option<HashMap<u64, (u64, u64), FixedState>>,
    next_page: u64,
    limit: u64,
}

/// First page, number of pages, and what they weigh.
pub(crate) type Pages = (u64, u64, Weight);

impl Objects {
    /// `limit` is the bytes an object may have.
    pub(crate) fn new(have_sizes: bool, limit: u64) -> Objects {
        Objects { places: have_sizes.then(HashMap::default), next_page: 0, limit }
    }

    /// What an object is, for people.
    pub(crate) fn described(&self) -> String {
        match self.places {
            None => "one page each, whatever the size".to_owned(),
            Some(_) => "as many pages as their sizes need".to_owned(),
        }
    }

    /// The pages of an object of `size` bytes, if its size is known.
    pub(crate) fn pages(&mut self, object: u64, size: Option<u64>) -> Result<Pages, String> {
        if let Some(size) = size.filter(|size| *size > self.limit) {
            return Err(format!("an object of {size} bytes is beyond the limit of {}", self.limit));
        }
        let Some(places) = &mut self.places else {
            return Ok((page(object)?, 1, size.map_or(Weight::Unknown, Weight::Page)));
        };
        let size = size.ok_or("objects are to have sizes, but this one has none")?;
        let pages = size.div_ceil(PAGE_BYTES).max(1);
        let place = places.entry(object).or_insert((0, 0));
        if place.1 < pages {
            *place = (self.next_page, pages);
            self.next_page += pages;
        }
        page(place.0 + pages)?;
        Ok((place.0, pages, Weight::range(0, size)))
    }
}

/// The number of an object that is named by a text: its own if it is a decimal number of at most 56 bits, else a hash.
pub(crate) fn named(key: &[u8]) -> u64 {
    let own = decimal(key).filter(|number| *number <= Entry::MAX_PAGE && (key.len() == 1 || key[0] != b'0'));
    own.unwrap_or_else(|| xxh3_64(key) >> (u64::BITS - Entry::MAX_PAGE.count_ones()))
}

/// The number of an object that has one, folded into 56 bits if it is larger (a hash).
pub(crate) fn numbered(object: u64) -> u64 {
    if object <= Entry::MAX_PAGE {
        return object;
    }
    // The top bits of a product with an odd number depend on all bits of the other factor.
    object.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - Entry::MAX_PAGE.count_ones())
}
