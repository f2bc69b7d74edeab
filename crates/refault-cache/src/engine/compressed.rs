//! Evicted pages that stay in memory, compressed: a second tier within the same limit.
//!
//! A page that is evicted leaves its bytes in a frame that is free. The thread that gets the frame for another page
//! compresses them first, without the lock, into a pool of the store's ([`refault_store::CompressedPool`]); a page that
//! is in the pool is unpacked where others are read from the file, and leaves the pool. When the pool is full, the
//! pages that were put there first go. Only frames that a call waits for are looked at: what readahead brings pushes
//! out pages for good, so that a scan costs no compression and does not fill the pool.
//!
//! Invariants: a resident page has no copy here. A page that is written or forgotten loses its copy in the same moment,
//! also while it is being compressed. Bytes of a frame count as a page's only from its eviction until the frame is
//! taken for another. A page that is asked for before that is copied from there. Everything but [`Pool`] is under the
//! engine's lock. Cost: 8 bytes per page number, 4 per frame, 16 per page in the pool (32 while many have gone); per
//! miss of a call some 4 µs of compression, or 1 µs of unpacking instead of a read. Files that do not compress are
//! found out: then one page of 32 is tried.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use refault_core::PageId;
use refault_core::frames::Frame;
use refault_core::page::NO_PAGE;
use refault_store::codec::Codec;
use refault_store::{CompressedPool, Page, Scratch, Slot, Store, same_filled};

/// Pages of a run whose frames are looked at, at most: longer ones are sequential.
pub(crate) const MAX_RUN: usize = 8;
/// Pages that did not compress, one after the other, after which few are tried.
const PATIENCE: u32 = 64;
/// One page in this many is tried then.
const PROBE: u32 = 32;
/// The oldest pages that go when one finds no room.
const MAKE_ROOM: usize = 4;

const UNBROKEN: &str = "invariant: nothing panics under this lock";

/// Where an evicted page's bytes are: the tag in the upper bits, its value below.
const TAG_SHIFT: u32 = 60;
const NOWHERE: u64 = 0;
/// In the frame of this number, which is free.
const IN_FRAME: u64 = 1 << TAG_SHIFT;
/// Being compressed, by who has this ticket.
const UNDER_WAY: u64 = 2 << TAG_SHIFT;
/// In this slot of the pool.
const IN_POOL: u64 = 3 << TAG_SHIFT;
const TAG: u64 = 15 << TAG_SHIFT;

/// What needs no lock: the pool, and what threads compress with.
pub(crate) struct Pool {
    pool: CompressedPool,
    scratches: Mutex<Vec<Scratch>>,
    /// Pages in a row that did not compress.
    refused: AtomicU32,
    skipped: AtomicU32,
}

impl Pool {
    /// Bytes that one takes at least.
    pub(crate) const MIN_BYTES: u64 = 16 << 10;

    pub(crate) fn new(bytes: u64) -> io::Result<Pool> {
        Ok(Pool {
            pool: CompressedPool::with_blocks_for(bytes, bytes)?,
            scratches: Mutex::default(),
            refused: AtomicU32::new(0),
            skipped: AtomicU32::new(0),
        })
    }

    /// Bytes that its blocks may take.
    pub(crate) fn limit(&self) -> u64 {
        self.pool.limit()
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> u64 {
        self.pool.bytes()
    }

    fn with_scratch<T>(&self, work: impl FnOnce(&mut Scratch) -> T) -> T {
        let mut scratch = self.scratches.lock().expect(UNBROKEN).pop().unwrap_or_default();
        let outcome = work(&mut scratch);
        self.scratches.lock().expect(UNBROKEN).push(scratch);
        outcome
    }

    /// Whether it is likely to be worth the time.
    fn is_worth_trying(&self) -> bool {
        self.refused.load(Ordering::Relaxed) < PATIENCE
            || self.skipped.fetch_add(1, Ordering::Relaxed).is_multiple_of(PROBE)
    }

    /// Puts a page away.
    pub(crate) fn put(&self, page: &Page) -> Outcome {
        if !self.is_worth_trying() {
            return Outcome::Refused;
        }
        if let Some(slot) = same_filled::detect(page) {
            return Outcome::Kept(slot);
        }
        self.with_scratch(|scratch| {
            let (codec, bytes) = scratch.compress(page, Codec::Lz4);
            if codec == Codec::Raw {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return Outcome::Refused;
            }
            self.refused.store(0, Ordering::Relaxed);
            self.pool.put_compressed(codec, bytes).map_or(Outcome::NoRoom, Outcome::Kept)
        })
    }

    /// Unpacks a page and gives its slot up. False if the pool's memory was damaged.
    pub(crate) fn take(&self, slot: Slot, into: &mut Page) -> bool {
        let read = self.with_scratch(|scratch| self.pool.read(slot, into, scratch)).is_ok();
        self.release(slot);
        read
    }

    fn release(&self, slot: Slot) {
        if slot.tier() == refault_store::Tier::Pool {
            self.pool.release(slot);
        }
    }
}

/// What came of putting a page away.
#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    Kept(Slot),
    /// It does not compress.
    Refused,
    NoRoom,
}

/// An evicted page whose bytes are in a frame that is about to be filled. Who drops this gives the bytes up.
#[derive(Clone, Copy)]
pub(crate) struct Leftover {
    pub(crate) frame: Frame,
    pub(crate) page: PageId,
    ticket: u64,
}

pub(crate) struct Compressed {
    pool: Arc<Pool>,
    /// By page.
    places: Vec<u64>,
    /// By frame: the page whose bytes are in it still, if its place says so too.
    leftovers: Vec<PageId>,
    /// Pages in the pool, first in first, with their places; some have gone.
    order: VecDeque<(PageId, u64)>,
    /// Pages in the pool.
    pub(crate) pages: u32,
    tickets: u64,
}

impl Compressed {
    pub(crate) fn new(pool: Arc<Pool>, frames: u32) -> Compressed {
        let leftovers = vec![NO_PAGE; frames as usize];
        Compressed { pool, places: Vec::new(), leftovers, order: VecDeque::new(), pages: 0, tickets: 0 }
    }

    pub(crate) fn grow(&mut self, pages: usize) {
        self.places.resize(pages, NOWHERE);
    }

    /// A clean page has left its frame.
    pub(crate) fn evicted(&mut self, page: PageId, frame: Frame) {
        self.leftovers[frame as usize] = page;
        self.places[page as usize] = IN_FRAME | u64::from(frame);
    }

    /// Whether a page can be had without a read.
    pub(crate) fn has(&self, page: PageId) -> bool {
        self.places[page as usize] & TAG == IN_POOL || self.free_frame(page).is_some()
    }

    /// The free frame that has an evicted page's bytes still.
    pub(crate) fn free_frame(&self, page: PageId) -> Option<Frame> {
        let place = self.places[page as usize];
        let frame = (place & !TAG) as Frame;
        (place & TAG == IN_FRAME && self.leftovers[frame as usize] == page).then_some(frame)
    }

    /// The slot of a page that is in the pool; it is the caller's from now on.
    pub(crate) fn take(&mut self, page: PageId) -> Option<Slot> {
        let place = std::mem::replace(&mut self.places[page as usize], NOWHERE);
        let taken = (place & TAG == IN_POOL).then(|| Slot::from_bits(place & !TAG));
        self.pages -= u32::from(taken.is_some());
        taken
    }

    /// A page is resident, was written, or is gone: its copy is none any more.
    pub(crate) fn forget(&mut self, page: PageId) {
        if let Some(slot) = self.take(page) {
            self.pool.release(slot);
        }
    }

    /// A frame is taken to be filled: the page whose bytes are in it, which is found there no more.
    pub(crate) fn leftover(&mut self, frame: Frame) -> Option<Leftover> {
        let page = std::mem::replace(&mut self.leftovers[frame as usize], NO_PAGE);
        let place = self.places.get_mut(page as usize).filter(|place| **place == IN_FRAME | u64::from(frame))?;
        self.tickets += 1;
        *place = UNDER_WAY | self.tickets;
        Some(Leftover { frame, page, ticket: self.tickets })
    }

    /// Whether a free frame has the bytes of an evicted page that are to be compressed.
    pub(crate) fn has_leftover(&self, frame: Frame) -> bool {
        let place = self.places.get(self.leftovers[frame as usize] as usize);
        place.is_some_and(|place| *place == IN_FRAME | u64::from(frame))
    }

    /// What came of compressing a page, which is kept unless it was read, written or forgotten meanwhile.
    pub(crate) fn keep(&mut self, leftover: Leftover, outcome: Outcome) {
        let place = &mut self.places[leftover.page as usize];
        let waits = *place == UNDER_WAY | leftover.ticket;
        match outcome {
            Outcome::Kept(slot) if waits => {
                *place = IN_POOL | slot.bits();
                self.order.push_back((leftover.page, *place));
                self.pages += 1;
                if self.order.len() > 2 * self.pages as usize + 1024 {
                    let places = &self.places;
                    self.order.retain(|(page, place)| places[*page as usize] == *place);
                }
            }
            Outcome::Kept(slot) => self.pool.release(slot),
            Outcome::Refused | Outcome::NoRoom => {
                if waits {
                    *place = NOWHERE;
                }
                if matches!(outcome, Outcome::NoRoom) {
                    self.make_room();
                }
            }
        }
    }

    fn make_room(&mut self) {
        let mut gone = 0;
        while gone < MAKE_ROOM
            && let Some((page, place)) = self.order.pop_front()
        {
            if self.places[page as usize] == place {
                self.forget(page);
                gone += 1;
            }
        }
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        self.places.capacity() * 8 + self.leftovers.capacity() * 4 + self.order.capacity() * 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(value: u8) -> Page {
        let mut page = Page([value; 4096]);
        (0..512).for_each(|at| page.0[at] = at as u8 ^ value);
        page
    }

    #[test]
    fn a_copy_that_is_overtaken_is_not_kept() {
        let pool = Arc::new(Pool::new(1 << 20).expect("addresses"));
        let mut compressed = Compressed::new(pool.clone(), 4);
        compressed.grow(8);
        for overtaken in [false, true] {
            compressed.evicted(5, 2);
            assert!(compressed.has(5) && compressed.free_frame(5) == Some(2));
            let leftover = compressed.leftover(2).expect("its bytes are there");
            assert!(!compressed.has(5) && compressed.leftover(2).is_none(), "a frame's bytes are given away once");
            let outcome = pool.put(&page(9));
            if overtaken {
                // Written while it was compressed.
                compressed.forget(5);
            }
            compressed.keep(leftover, outcome);
            assert_eq!(compressed.has(5), !overtaken);
            if let Some(slot) = compressed.take(5) {
                let mut back = Page::ZERO;
                assert!(pool.take(slot, &mut back) && back.0 == page(9).0);
            }
            assert_eq!(pool.pool.usage().pool_pages, 0);
        }
        // A page that went twice is found where it was last.
        compressed.evicted(5, 2);
        compressed.evicted(5, 3);
        assert!(compressed.leftover(2).is_none() && compressed.free_frame(5) == Some(3));
    }

    #[test]
    fn a_full_pool_loses_the_oldest_and_never_grows() {
        let pool = Arc::new(Pool::new(64 << 10).expect("addresses"));
        let mut compressed = Compressed::new(pool.clone(), 1);
        compressed.grow(1000);
        for number in 0..1000 {
            compressed.evicted(number, 0);
            let leftover = compressed.leftover(0).expect("its bytes are there");
            compressed.keep(leftover, pool.put(&page(number as u8)));
            assert!(pool.bytes() <= 64 << 10);
        }
        assert!(!compressed.has(0) && (990..1000).filter(|page| compressed.has(*page)).count() >= 7);
        assert_eq!(u64::from(compressed.pages), pool.pool.usage().pool_pages);
        assert!(compressed.order.len() < 2100);
    }

    #[test]
    fn a_damaged_copy_is_refused() {
        let pool = Pool::new(1 << 20).expect("addresses");
        let Outcome::Kept(slot) = pool.put(&page(3)) else { panic!("there is room") };
        // A bit of the payload, behind 16 bytes of header.
        pool.pool.flip_bit(slot, 20 * 8);
        let mut back = Page::ZERO;
        assert!(!pool.take(slot, &mut back));
        assert_eq!(pool.pool.usage().pool_pages, 0, "its room is free again");
    }

    #[test]
    fn what_does_not_compress_is_hardly_tried_any_more() {
        let pool = Pool::new(1 << 20).expect("addresses");
        let mut random = 1u64;
        let mut noise = Page::ZERO;
        noise.0.fill_with(|| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 56) as u8
        });
        for _ in 0..PATIENCE {
            assert!(pool.is_worth_trying());
            assert!(matches!(pool.put(&noise), Outcome::Refused));
        }
        assert_eq!((0..320).filter(|_| pool.is_worth_trying()).count(), 10);
        assert!(matches!(pool.put(&page(1)), Outcome::Kept(_)));
        assert!(pool.is_worth_trying());
    }
}
