//! Which pages are dirty, being written, or written and not yet durable.
//!
//! A page that was written to is *dirty* until its write to the file begins. Once the device has taken it, it is
//! *unstable* until the device was told to make what it has durable: a device that fails at that may have lost it. So
//! the page must be there to be written again (as an NFS client keeps its unstable writes). Neither can be evicted.
//!
//! Invariants: the flags of [`crate::engine::pages`] and the maps here say the same; everything is under the engine's
//! lock.
//! Cost: some 150 bytes per dirty or unstable page; O(log n) per change.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use refault_core::PageId;

use crate::io::opened::Opened;
use crate::writeback::parts::Parts;

/// A page of a file: file number and place.
pub(crate) type At = (u32, u64);

/// A dirty page.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) page: PageId,
    /// Of the first write that the device has not taken. Numbers rise.
    pub(crate) number: u64,
    since: Instant,
    /// The device may have lost it while it was being written.
    suspect: bool,
    /// Only the failure of a sync has made it dirty: its writer had it on the device.
    again: bool,
    /// What was written of it.
    pub(crate) parts: Parts,
}

#[derive(Default)]
pub(crate) struct Dirty {
    pages: BTreeMap<At, Entry>,
    writing: BTreeMap<At, Entry>,
    /// With the number that [`Dirty::finish`] gave.
    unstable: BTreeMap<At, (Entry, u64)>,
    number: u64,
    files: HashMap<u32, Arc<Opened>, RandomState>,
}

fn of(file: u32, range: Range<u64>) -> Range<At> {
    (file, range.start)..(file, range.end.max(range.start))
}

impl Dirty {
    /// A file whose pages may become dirty.
    pub(crate) fn open(&mut self, number: u32, file: Arc<Opened>) {
        self.files.insert(number, file);
    }

    pub(crate) fn close(&mut self, number: u32) {
        self.files.remove(&number);
    }

    /// Pages that cannot go because of writes.
    pub(crate) fn total(&self) -> u32 {
        (self.pages.len() + self.writing.len() + self.unstable.len()) as u32
    }

    /// Pages that are still to be written.
    pub(crate) fn len(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Bytes of bookkeeping: the nodes of trees that grow at their ends are half full.
    pub(crate) fn bytes(&self) -> usize {
        let one = size_of::<(At, Entry)>();
        2 * ((self.pages.len() + self.writing.len()) * one + self.unstable.len() * (one + 8))
    }

    /// The number of a write that has ended.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// A page that the device had taken and has lost, or may lose, is dirty again. It has the number of the first write
    /// that the device has lost. False if it is being written: then it is dirty after that.
    pub(crate) fn again(&mut self, at: At, page: PageId, number: u64, parts: Parts) -> bool {
        if let Some(entry) = self.writing.get_mut(&at) {
            entry.number = entry.number.min(number);
            entry.parts = entry.parts.and(parts);
            entry.suspect = true;
            return false;
        }
        let entry = Entry { page, number, since: Instant::now(), suspect: false, again: true, parts };
        let entry = self.pages.entry(at).or_insert(entry);
        entry.number = entry.number.min(number);
        entry.parts = entry.parts.and(parts);
        true
    }

    /// The number of the last write.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// A page was written to.
    pub(crate) fn insert(&mut self, at: At, page: PageId, parts: Parts) {
        self.number += 1;
        let number = self.number;
        let new = || Entry { page, number, since: Instant::now(), suspect: false, again: false, parts };
        let entry = self.pages.entry(at).or_insert_with(new);
        entry.again = false;
        entry.parts = entry.parts.and(parts);
    }

    /// More is to be written of a page that waits.
    pub(crate) fn widen(&mut self, at: At, parts: Parts) {
        if let Some(entry) = self.pages.get_mut(&at) {
            entry.parts = entry.parts.and(parts);
        }
    }

    /// What waits to be written of a page.
    pub(crate) fn parts(&self, at: At) -> Option<Parts> {
        self.pages.get(&at).map(|entry| entry.parts)
    }

    /// What waited to be written of a page that is to leave its frame for another.
    pub(crate) fn suspended(&self, at: At) -> Option<Parts> {
        self.writing.get(&at).map(|entry| entry.parts)
    }

    /// A page is gone, or cut off.
    pub(crate) fn forget(&mut self, at: At) {
        self.pages.remove(&at);
        self.unstable.remove(&at);
    }

    /// A page that is being written to is to leave its frame for another: who syncs waits for it meanwhile.
    pub(crate) fn suspend(&mut self, at: At) {
        let unstable = self.unstable.remove(&at).map(|(entry, _)| entry);
        let both = [self.pages.remove(&at), unstable].into_iter().flatten();
        let oldest = both.reduce(|one, other| {
            let oldest = if other.number < one.number { other } else { one };
            Entry { parts: one.parts.and(other.parts), ..oldest }
        });
        if let Some(entry) = oldest {
            self.writing.insert(at, entry);
        }
    }

    /// The number that such a page had, whatever it is now, and what waited of it.
    pub(crate) fn resume(&mut self, at: At) -> Option<(u64, Parts)> {
        self.writing.remove(&at).map(|entry| (entry.number, entry.parts))
    }

    /// The first dirty page of a file in a range.
    pub(crate) fn first(&self, file: u32, range: Range<u64>) -> Option<(u64, Entry)> {
        self.pages.range(of(file, range)).next().map(|((_, index), entry)| (*index, *entry))
    }

    /// The next dirty page after a place, round all files but those whose device refuses.
    pub(crate) fn after(&self, at: At, refused: &[u32]) -> Option<At> {
        let mut starts = [at, (0, 0)].into_iter();
        let mut from = starts.next();
        while let Some(start) = from {
            from = match self.pages.range(start..).next() {
                Some((at, _)) if !refused.contains(&at.0) => return Some(*at),
                Some((at, _)) => at.0.checked_add(1).map(|next| (next, 0)),
                None => starts.next(),
            };
        }
        None
    }

    /// A dirty page that has waited for at least `age`, of a file whose device does not refuse.
    pub(crate) fn expired(&self, age: Duration, refused: &[u32]) -> Option<At> {
        let waits = |(at, entry): &(&At, &Entry)| entry.since.elapsed() >= age && !refused.contains(&at.0);
        self.pages.iter().find(waits).map(|(at, _)| *at)
    }

    /// Dirty pages of a file that their writers had on the device.
    pub(crate) fn lost_by_sync(&self, file: u32) -> impl Iterator<Item = (At, PageId)> {
        let pages = self.pages.range(of(file, 0..u64::MAX)).filter(|(_, entry)| entry.again);
        pages.map(|(at, entry)| (*at, entry.page))
    }

    /// Whether a file has such pages.
    pub(crate) fn may_be_given_up(&self, file: u32) -> bool {
        self.lost_by_sync(file).next().is_some()
    }

    /// Whether pages are being written.
    pub(crate) fn is_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    /// The device may have something else than it had taken: an unstable page is dirty again. Whether it was unstable.
    pub(crate) fn unsettle(&mut self, at: At) -> bool {
        let Some((entry, _)) = self.unstable.remove(&at) else { return false };
        let dirty = self.pages.entry(at).or_insert(entry);
        dirty.number = dirty.number.min(entry.number);
        dirty.parts = dirty.parts.and(entry.parts);
        true
    }

    /// An opened file by its number.
    pub(crate) fn file(&self, number: u32) -> Option<Arc<Opened>> {
        self.files.get(&number).cloned()
    }

    /// Whether the device has pages of a file that are not durable and cannot go.
    pub(crate) fn is_unstable(&self, file: u32) -> bool {
        self.unstable.range(of(file, 0..u64::MAX)).next().is_some()
    }

    /// A file with unstable pages whose device does not refuse.
    pub(crate) fn unstable_file(&self, refused: &[u32]) -> Option<Arc<Opened>> {
        let (file, _) = self.unstable.keys().find(|(file, _)| !refused.contains(file))?;
        self.file(*file)
    }

    /// The write of a page begins.
    pub(crate) fn begin(&mut self, at: At) {
        if let Some(entry) = self.pages.remove(&at) {
            self.writing.insert(at, entry);
        }
    }

    /// The write of a page has ended. Returns whether the device has it; if not, it is dirty as before.
    pub(crate) fn finish(&mut self, at: At, went_well: bool) -> bool {
        let Some(entry) = self.writing.remove(&at) else { return went_well };
        let has = went_well && !entry.suspect;
        if has {
            self.number += 1;
            let earlier = self.unstable.get(&at).map_or(entry.parts, |(earlier, _)| earlier.parts);
            self.unstable.insert(at, (Entry { parts: entry.parts.and(earlier), ..entry }, self.number));
        } else {
            self.pages.insert(at, Entry { suspect: false, ..entry });
        }
        has
    }

    /// A page of a file that is being written in a range and had a write with a number up to `until`.
    pub(crate) fn being_written(&self, file: u32, range: Range<u64>, until: u64) -> Option<PageId> {
        self.writing.range(of(file, range)).find(|(_, entry)| entry.number <= until).map(|(_, entry)| entry.page)
    }

    /// Whether anything of a file in a range is not durable that had a write with a number up to `until`.
    pub(crate) fn any(&self, file: u32, range: Range<u64>, until: u64) -> bool {
        let range = of(file, range);
        self.pages.range(range.clone()).any(|(_, entry)| entry.number <= until)
            || self.writing.range(range.clone()).any(|(_, entry)| entry.number <= until)
            || self.unstable.range(range).any(|(_, (entry, _))| entry.number <= until)
    }

    /// The device has made durable what it had of a file, whose writes had ended with a number up to `until`; or it
    /// could not, and whatever it was given until now is dirty as before, also what is being given to it. Returns the
    /// pages that are not unstable any more.
    pub(crate) fn settle(&mut self, file: u32, until: u64, durable: bool) -> Vec<PageId> {
        let until = if durable { until } else { u64::MAX };
        if !durable {
            self.writing.range_mut(of(file, 0..u64::MAX)).for_each(|(_, entry)| entry.suspect = true);
        }
        let ended = |(_, (_, written)): &(&At, &(Entry, u64))| *written <= until;
        let settled: Vec<(At, Entry)> =
            self.unstable.range(of(file, 0..u64::MAX)).filter(ended).map(|(at, (entry, _))| (*at, *entry)).collect();
        for (at, entry) in &settled {
            self.unstable.remove(at);
            if !durable {
                // Written to since or not, it has waited since its first write.
                let since = self.pages.get(at).copied();
                let again = since.is_none_or(|since| since.again) && entry.again;
                let parts = since.map_or(entry.parts, |since| since.parts.and(entry.parts));
                self.pages.insert(*at, Entry { again, parts, ..*entry });
            }
        }
        settled.into_iter().map(|(_, entry)| entry.page).collect()
    }
}
