//! An object, as the page cache reads it.
//!
//! Without a local file exactly those ranges are fetched that are wanted, joined where they lie near each other. With
//! one, whole blocks are: those that it has are read from it, the others fetched, and each block by one thread at a
//! time, for which others wait.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};

use bytes::Bytes;
use object_store::ObjectMeta;
use refault_cache::{Backing, ReadPiece};

use crate::ranges::coalesce;
use crate::store::{Fault, Inner};
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

/// What was brought, by where it begins: its end, and its bytes.
type Brought = BTreeMap<u64, (u64, Result<Bytes, Fault>)>;

impl RemoteObject {
    pub(crate) fn new(store: Arc<Inner>, meta: ObjectMeta, tier: Option<Tier>) -> RemoteObject {
        RemoteObject { store, meta, tier, fetching: Mutex::default(), fetched: Condvar::new() }
    }

    /// Its version's tag, if the store has given one.
    pub fn e_tag(&self) -> Option<&str> {
        self.meta.e_tag.as_deref()
    }

    fn bring(&self, wanted: &[Range<u64>]) -> Brought {
        let mut brought = Brought::new();
        match &self.tier {
            None => self.fetch(wanted, &mut brought),
            Some(tier) => self.bring_blocks(tier, wanted, &mut brought),
        }
        brought
    }

    fn fetch(&self, wanted: &[Range<u64>], brought: &mut Brought) {
        let options = &self.store.options;
        let requests = coalesce(wanted, options.gap, options.request);
        let outcomes = self.store.fetch(&self.meta, &requests);
        brought.extend(requests.into_iter().zip(outcomes).map(|(range, outcome)| (range.start, (range.end, outcome))));
    }

    fn bring_blocks(&self, tier: &Tier, wanted: &[Range<u64>], brought: &mut Brought) {
        let blocks = |range: &Range<u64>| range.start / tier.block..range.end.div_ceil(tier.block);
        let mut missing: Vec<u64> = wanted.iter().flat_map(blocks).collect();
        missing.sort_unstable();
        missing.dedup();
        let mut twice = false;
        while !missing.is_empty() {
            missing.retain(|number| !self.find_block(tier, *number, brought));
            // Who waited for others and does not find it has been unlucky, and fetches it in any case.
            let mine: Vec<u64> = {
                let mut fetching = self.fetching.lock().expect(UNBROKEN);
                let free = |number: &u64| fetching.insert(*number) || twice;
                missing.iter().copied().filter(free).collect()
            };
            self.fetch_blocks(tier, &mine, brought);
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

    fn find_block(&self, tier: &Tier, number: u64, brought: &mut Brought) -> bool {
        let range = self.range(tier, number);
        let mut bytes = Vec::new();
        match tier.read(number, &mut bytes, (range.end - range.start) as usize) {
            Found::Whole => {
                self.store.counts.local.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                brought.insert(range.start, (range.end, Ok(bytes.into())));
                return true;
            }
            Found::Damaged => {
                self.store.counts.damaged.fetch_add(1, Ordering::Relaxed);
            }
            Found::Missing => {}
        }
        false
    }

    /// Fetches blocks in ascending order, and keeps them with what lies between them.
    fn fetch_blocks(&self, tier: &Tier, numbers: &[u64], brought: &mut Brought) {
        let mut fetched = Brought::new();
        let ranges: Vec<Range<u64>> = numbers.iter().map(|number| self.range(tier, *number)).collect();
        self.fetch(&ranges, &mut fetched);
        for (start, (end, outcome)) in fetched {
            let first = start / tier.block;
            for number in first..end.div_ceil(tier.block) {
                let range = self.range(tier, number);
                let part = outcome
                    .as_ref()
                    .map_err(Fault::clone)
                    .map(|bytes| bytes.slice((range.start - start) as usize..(range.end - start) as usize));
                if let Ok(bytes) = &part {
                    tier.write(number, bytes);
                }
                brought.entry(range.start).or_insert((range.end, part));
            }
        }
    }

    /// The part of a piece that the object has.
    fn within(&self, piece: &ReadPiece<'_>) -> Range<u64> {
        let wanted: u64 = piece.0.iter().map(|slice| slice.len() as u64).sum();
        piece.1.min(self.meta.size)..piece.1.saturating_add(wanted).min(self.meta.size)
    }

    fn copy(&self, brought: &Brought, piece: &mut ReadPiece<'_>) -> io::Result<usize> {
        let range = self.within(piece);
        let mut at = range.start;
        for slice in &mut piece.0 {
            let mut done = 0;
            while done < slice.len() && at < range.end {
                let Some((start, (end, outcome))) = brought.range(..=at).next_back().filter(|(_, (end, _))| *end > at)
                else {
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, "a part of the range did not come"));
                };
                let bytes = outcome.as_ref().map_err(io::Error::from)?;
                let part = (slice.len() - done).min((end.min(&range.end) - at) as usize);
                let from = (at - start) as usize;
                slice[done..done + part].copy_from_slice(&bytes[from..from + part]);
                (done, at) = (done + part, at + part as u64);
            }
        }
        Ok((at - range.start) as usize)
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
        let wanted: Vec<Range<u64>> =
            pieces.iter().map(|piece| self.within(piece)).filter(|range| !range.is_empty()).collect();
        let brought = self.bring(&wanted);
        pieces.iter_mut().map(|piece| self.copy(&brought, piece)).collect()
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
