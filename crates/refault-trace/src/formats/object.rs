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
        ObjectPages {
            sized: self.places.is_some(),
            whole: false,
            accesses: self.accesses,
            unsized_accesses: 0,
            bytes: self.bytes,
        }
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

/// A size of 32 bits in a record; -1 says that it is not known.
pub(crate) fn size_of_32_bits(size: u32) -> Option<u64> {
    (size != u32::MAX).then_some(u64::from(size))
}

/// The number of an object that is named by a text: its own if it is a decimal number of at most 56 bits, else a hash.
pub(crate) fn named(key: &[u8]) -> u64 {
    let own = decimal(key).filter(|number| *number <= Entry::MAX_PAGE && (key.len() == 1 || key[0] != b'0'));
    own.unwrap_or_else(|| xxh3_64(key) >> (u64::BITS - Entry::MAX_PAGE.count_ones()))
}

/// How names are spelt that stand for numbers, seen so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Spellings {
    names: u64,
    plain: u64,
    odd: u64,
}

impl Spellings {
    /// Looks at a key.
    pub(crate) fn see(&mut self, key: &[u8]) {
        match () {
            () if is_digits(key) && (key.len() == 1 || key[0] != b'0') => self.plain += 1,
            () if is_odd_number(key) => self.odd += 1,
            // A dash says that there is none.
            () => self.names += u64::from(key.iter().any(u8::is_ascii_alphanumeric) || !key.is_ascii()),
        }
    }

    /// Keys that may be meant to be the number that others are; none where as many are names, of which some consist of
    /// digits by chance.
    pub(crate) fn odd(&self) -> u64 {
        if self.names < self.plain { self.odd } else { 0 }
    }
}

fn is_digits(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

/// Whether a key that is not all digits, or has zeros before them, is how some program writes a number.
fn is_odd_number(key: &[u8]) -> bool {
    let hexadecimal = key.strip_prefix(b"0x").or_else(|| key.strip_prefix(b"0X"));
    if let Some(digits) = hexadecimal {
        return !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    }
    let unsigned = |text: &[u8]| text.iter().take(1).filter(|sign| b"+-".contains(sign)).count();
    let key = &key[unsigned(key)..];
    let (mantissa, exponent) = match memchr::memchr2(b'e', b'E', key) {
        Some(mark) => (&key[..mark], Some(&key[mark + 1..])),
        None => (key, None),
    };
    let has_mantissa = match memchr::memchr(b'.', mantissa) {
        Some(point) => {
            is_digits(&mantissa[..point]) && (point + 1 == mantissa.len() || is_digits(&mantissa[point + 1..]))
        }
        None => is_digits(mantissa),
    };
    has_mantissa && exponent.is_none_or(|exponent| is_digits(&exponent[unsigned(exponent)..]))
}

/// The number of an object that has one, folded into 56 bits if it is larger (a hash).
pub(crate) fn numbered(object: u64) -> u64 {
    if object <= Entry::MAX_PAGE {
        return object;
    }
    // The top bits of a product with an odd number depend on all bits of the other factor.
    object.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - Entry::MAX_PAGE.count_ones())
}
