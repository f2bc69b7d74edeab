//! An object, as the page cache reads it.
//!
//! Without a local file exactly those ranges are fetched that are wanted, joined where they lie near each other. With
//! one, whole blocks are: those that it has are read from it, the others fetched, and each block by one thread at a
//! time, for which others wait.

use std::collections::HashSet;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};

use object_store::ObjectMeta;
use refault_cache::{Backing, ReadPiece};

use crate::ranges::coalesce;
use crate::request::Fault;
use crate::store::Inner;
use crate::tier::{Found, Tier};

const UNBROKEN: &str = "invariant: nothing panics under this lock";

/// An object of a store, as it was when it was opened. Read only.
pub struct RemoteObject {
    store: Arc<Inner>,
    meta: ObjectMeta,
    tier: Option<Tier>,
    /// Blocks that a thread fetches.
    fetching: Mutex<HashSet<u64>>,
    fetched: Condvar,
}

/// Where the bytes go that pieces want of an object: into these as they come, so that none are held.
struct Wanted<'a, 'b> {
    pieces: &'a mut [ReadPiece<'b>],
    /// Of each piece: the part that the object has.
    ranges: Vec<Range<u64>>,
    /// Of each piece: the bytes that came, or why some did not.
    outcomes: Vec<Result<u64, Fault>>,
}

impl Wanted<'_, '_> {
    /// What a range of the object has, or why that is not known. No byte comes twice.
    fn take(&mut self, range: &Range<u64>, came: Result<&[u8], &Fault>) {
        for ((piece, wanted), outcome) in self.pieces.iter_mut().zip(&self.ranges).zip(&mut self.outcomes) {
            let part = wanted.start.max(range.start)..wanted.end.min(range.end);
            if part.is_empty() {
                continue;
            }
            match (came, &mut *outcome) {
                (Ok(bytes), Ok(done)) => {
                    let from = (part.start - range.start) as usize;
                    let bytes = &bytes[from..from + (part.end - part.start) as usize];
                    copy(bytes, &mut piece.0, (part.start - wanted.start) as usize);
                    *done += bytes.len() as u64;
                }
                (Err(fault), Ok(_)) => *outcome = Err(fault.clone()),
                (_, Err(_)) => {}
            }
        }
    }

    /// What [`Backing::read`] says of each piece.
    fn finish(self) -> Vec<io::Result<usize>> {
        let outcome = |(outcome, range): (Result<u64, Fault>, Range<u64>)| match outcome {
            Ok(done) if done == range.end - range.start => Ok(done as usize),
            Ok(_) => Err(io::Error::new(ErrorKind::UnexpectedEof, "a part of the range did not come")),
            Err(fault) => Err(io::Error::from(&fault)),
        };
        self.outcomes.into_iter().zip(self.ranges).map(outcome).collect()
    }
}

/// Copies bytes into slices, from a place on that is counted through all of them.
fn copy(mut bytes: &[u8], slices: &mut [IoSliceMut<'_>], mut place: usize) {
    for slice in slices {
        if place >= slice.len() {
            place -= slice.len();
            continue;
        }
        let part = bytes.len().min(slice.len() - place);
        slice[place..place + part].copy_from_slice(&bytes[..part]);
        (bytes, place) = (&bytes[part..], 0);
        if bytes.is_empty() {
            return;
        }
    }
}

impl RemoteObject {
    pub(crate) fn new(store: Arc<Inner>, meta: ObjectMeta, tier: Option<Tier>) -> RemoteObject {
        RemoteObject { store, meta, tier, fetching: Mutex::default(), fetched: Condvar::new() }
    }

    /// Its version's tag, if the store has given one.
    pub fn e_tag(&self) -> Option<&str> {
        self.meta.e_tag.as_deref()
    }

    /// Which requests bring some ranges.
    fn requests(&self, wanted: &[Range<u64>]) -> Vec<Range<u64>> {
        coalesce(wanted, self.store.options.gap, self.store.options.request)
    }

    fn fetch(&self, wanted: &mut Wanted<'_, '_>) {
        let requests = self.requests(&wanted.ranges);
        self.store.fetch(&self.meta, &requests, |place, outcome| {
            wanted.take(&requests[place], outcome.as_deref());
        });
    }

    fn bring_blocks(&self, tier: &Tier, wanted: &mut Wanted<'_, '_>) {
        let blocks = |range: &Range<u64>| range.start / tier.block..range.end.div_ceil(tier.block);
        let mut missing: Vec<u64> = wanted.ranges.iter().filter(|range| !range.is_empty()).flat_map(blocks).collect();
        missing.sort_unstable();
        missing.dedup();
        let mut twice = false;
        while !missing.is_empty() {
            missing.retain(|number| !self.find_block(tier, *number, wanted));
            // Who waited for others and does not find it has been unlucky, and fetches it in any case.
            let mine: Vec<u64> = {
                let mut fetching = self.fetching.lock().expect(UNBROKEN);
                let free = |number: &u64| fetching.insert(*number) || twice;
                missing.iter().copied().filter(free).collect()
            };
            self.fetch_blocks(tier, &mine, wanted);
            missing.retain(|number| mine.binary_search(number).is_err());
            let mut fetching = self.fetching.lock().expect(UNBROKEN);
            fetching.retain(|number| mine.binary_search(number).is_err());
            self.fetched.notify_all();
            while missing.iter().any(|number| fetching.contains(number)) {
                fetching = self.fetched.wait(fetching).expect(UNBROKEN);
            }
            twice = true;
        }
    }

    /// Where a block lies.
    fn range(&self, tier: &Tier, number: u64) -> Range<u64> {
        number * tier.block..((number + 1) * tier.block).min(self.meta.size)
    }

    fn find_block(&self, tier: &Tier, number: u64, wanted: &mut Wanted<'_, '_>) -> bool {
        let range = self.range(tier, number);
        let mut bytes = Vec::new();
        match tier.read(number, &mut bytes, (range.end - range.start) as usize) {
            Found::Whole => {
                self.store.counts.local.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                wanted.take(&range, Ok(&bytes));
                return true;
            }
            Found::Damaged => {
                self.store.counts.damaged.fetch_add(1, Ordering::Relaxed);
            }
            Found::Missing => {}
        }
        false
    }

    /// Fetches blocks, given in ascending order, and keeps them with what lies between them.
    fn fetch_blocks(&self, tier: &Tier, numbers: &[u64], wanted: &mut Wanted<'_, '_>) {
        let ranges: Vec<Range<u64>> = numbers.iter().map(|number| self.range(tier, *number)).collect();
        let requests = self.requests(&ranges);
        self.store.fetch(&self.meta, &requests, |place, outcome| {
            let Range { start, end } = requests[place];
            for number in start / tier.block..end.div_ceil(tier.block) {
                let range = self.range(tier, number);
                let part =
                    outcome.as_ref().map(|bytes| &bytes[(range.start - start) as usize..(range.end - start) as usize]);
                if let Ok(bytes) = part {
                    tier.write(number, bytes);
                }
                if numbers.binary_search(&number).is_ok() {
                    wanted.take(&range, part);
                }
            }
        });
    }

    /// The part of a piece that the object has.
    fn within(&self, piece: &ReadPiece<'_>) -> Range<u64> {
        let wanted: u64 = piece.0.iter().map(|slice| slice.len() as u64).sum();
        piece.1.min(self.meta.size)..piece.1.saturating_add(wanted).min(self.meta.size)
    }
}

fn read_only() -> io::Error {
    io::Error::new(ErrorKind::ReadOnlyFilesystem, "objects in stores are read only")
}

impl Backing for RemoteObject {
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let slices = into.iter_mut().map(|slice| IoSliceMut::new(slice)).collect();
        self.read_many(&mut [(slices, offset)]).pop().unwrap_or(Ok(0))
    }

    fn read_many(&self, pieces: &mut [ReadPiece<'_>]) -> Vec<io::Result<usize>> {
        let ranges: Vec<Range<u64>> = pieces.iter().map(|piece| self.within(piece)).collect();
        let outcomes = vec![Ok(0); ranges.len()];
        let mut wanted = Wanted { pieces, ranges, outcomes };
        match &self.tier {
            None => self.fetch(&mut wanted),
            Some(tier) => self.bring_blocks(tier, &mut wanted),
        }
        wanted.finish()
    }

    fn reads_together(&self) -> bool {
        true
    }

    fn write(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<usize> {
        Err(read_only())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.meta.size)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(read_only())
    }
}
