//! Objects of caches as pages.
//!
//! An object is one page, whatever its size, unless objects have sizes: then each gets as many successive pages of its
//! own as its bytes need, in the order of first appearance. An object that has grown gets new pages: a cache would
//! write it anew; one that has shrunk is accessed in its first ones. Names that are no numbers are hashed into 56 bits:
//! two of n fall together with a probability of about n²/2^57. Cost of sizes: some 48 bytes per object.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use xxhash_rust::xxh3::xxh3_64;

use super::numbers::{decimal, page};
use super::request::Weight;
use crate::Entry;
use crate::formats::PAGE_BYTES;
use crate::reader::{ObjectPages, ObjectsAs, Options};
use crate::remark::{Counts, Doubt};

/// Bytes of an object, at most, whatever it is taken for: more is a negative size, or no size.
const MAX_BYTES: u64 = 1 << 50;

/// Finds the pages of objects.
pub(crate) struct Objects {
    /// First page and number of pages of each object, and its last size, if objects have sizes.
    places: Option<HashMap<u64, Place, FixedState>>,
    next_page: u64,
    limit: u64,
    /// Whether an object without a size is an error.
    needs_sizes: bool,
    skip_size_zero: bool,
    accesses: u64,
    /// Bytes of all accesses whose object has a size.
    bytes: Option<u64>,
    counts: Counts,
}

#[derive(Clone, Copy, Default)]
struct Place {
    first_page: u64,
    pages: u64,
    bytes: u64,
}

/// First page, number of pages, and what they weigh; no pages if the record is left out.
pub(crate) type Pages = (u64, u64, Weight);

impl Objects {
    pub(crate) fn new(options: &Options) -> Objects {
        Objects {
            places: (options.objects != ObjectsAs::OnePageEach).then(HashMap::default),
            next_page: 0,
            limit: options.limits.request_bytes,
            needs_sizes: options.objects == ObjectsAs::Sized,
            skip_size_zero: options.skip_size_zero,
            accesses: 0,
            bytes: None,
            counts: Counts::default(),
        }
    }

    /// The trace says no sizes: without being told otherwise, each object is one page.
    pub(crate) fn without_sizes(&mut self) {
        if !self.needs_sizes {
            self.places = None;
        }
    }

    /// What an object is, for people.
    pub(crate) fn described(&self) -> String {
        match self.places {
            None => "one page each, whatever the size".to_owned(),
            Some(_) => "as many pages as their sizes need".to_owned(),
        }
    }

    /// What objects were taken for.
    pub(crate) fn pages_of_all(&self) -> ObjectPages {
        ObjectPages { sized: self.places.is_some(), whole: false, accesses: self.accesses, bytes: self.bytes }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The last record counts `times` more.
    pub(crate) fn repeat(&mut self, times: u64, size: Option<u64>) {
        self.accesses = self.accesses.saturating_add(times);
        self.bytes = self.bytes.map(|bytes| bytes.saturating_add(size.unwrap_or(0).saturating_mul(times)));
    }

    /// The pages of an object of `size` bytes, if its size is known.
    pub(crate) fn pages(&mut self, object: u64, size: Option<u64>) -> Result<Pages, String> {
        // Where sizes are no pages, they cost nothing.
        if let Some(size) = size.filter(|size| *size > self.limit && (self.places.is_some() || *size > MAX_BYTES)) {
            return Err(format!(
                "an object of {size} bytes is beyond the limit of {}: --objects-one-page-each takes any, and so does \
                 compare --objects-whole",
                self.limit
            ));
        }
        if size == Some(0) {
            if self.skip_size_zero {
                self.counts.add(Doubt::EmptyObjectsLeftOut);
                return Ok((0, 0, Weight::Unknown));
            }
            self.counts.add(Doubt::EmptyObjects);
        }
        self.accesses += 1;
        let mut count = |size: u64| self.bytes = Some(self.bytes.unwrap_or(0).saturating_add(size));
        let Some(places) = &mut self.places else {
            size.into_iter().for_each(&mut count);
            return Ok((page(object)?, 1, size.map_or(Weight::Unknown, Weight::Page)));
        };
        if size.is_none() {
            if self.needs_sizes {
                return Err("objects are to have sizes, but this one has none".to_owned());
            }
            self.counts.add(Doubt::UnsizedObjects);
        }
        let place = places.entry(object).or_default();
        // A request that found nothing may say no size of an object that is known.
        let known = Some(place.bytes).filter(|_| place.pages > 0);
        let bytes = size.or(known).unwrap_or(PAGE_BYTES);
        count(bytes);
        let pages = bytes.div_ceil(PAGE_BYTES).max(1);
        if place.pages > 0 && place.bytes != bytes {
            self.counts.add(Doubt::ChangedSizes);
        }
        if place.pages < pages {
            (place.first_page, place.pages) = (self.next_page, pages);
            self.next_page += pages;
        }
        place.bytes = bytes;
        page(place.first_page + pages)?;
        Ok((place.first_page, pages, Weight::range(0, bytes)))
    }
}

/// The number of an object that is named by a text: its own if it is a decimal number of at most 56 bits, else a hash.
pub(crate) fn named(key: &[u8]) -> u64 {
    let own = decimal(key).filter(|number| *number <= Entry::MAX_PAGE && (key.len() == 1 || key[0] != b'0'));
    own.unwrap_or_else(|| xxh3_64(key) >> (u64::BITS - Entry::MAX_PAGE.count_ones()))
}

/// How names are spelt that stand for numbers, seen so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Spellings {
    names: bool,
    plain: bool,
    odd: u64,
}

impl Spellings {
    /// Looks at a key.
    pub(crate) fn see(&mut self, key: &[u8]) {
        let is_digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        let hexadecimal = key.strip_prefix(b"0x").or_else(|| key.strip_prefix(b"0X"));
        let point = memchr::memchr(b'.', key).map(|point| (&key[..point], &key[point + 1..]));
        match () {
            () if is_digits(key) && (key.len() == 1 || key[0] != b'0') => self.plain = true,
            () if is_digits(key) => self.odd += 1,
            () if hexadecimal.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) => self.odd += 1,
            () if point.is_some_and(|(whole, part)| is_digits(whole) && is_digits(part)) => self.odd += 1,
            () => self.names = true,
        }
    }

    /// Keys that may be meant to be the number that others are; none where keys are names.
    pub(crate) fn odd(&self) -> u64 {
        if self.plain && !self.names { self.odd } else { 0 }
    }
}

/// The number of an object that has one, folded into 56 bits if it is larger (a hash).
pub(crate) fn numbered(object: u64) -> u64 {
    if object <= Entry::MAX_PAGE {
        return object;
    }
    // The top bits of a product with an odd number depend on all bits of the other factor.
    object.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - Entry::MAX_PAGE.count_ones())
}
