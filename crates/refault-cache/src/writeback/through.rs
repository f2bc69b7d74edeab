//! What was written through and is not durable yet.
//!
//! A page that was written through may be evicted at once: the device has it. A device that then fails to make it
//! durable may have lost it. What is still in memory as it was written can be written again, so it becomes dirty; what
//! was evicted since cannot, and is *lost*. From then on every [`crate::CachedFile::sync`] says so. That ends when each
//! lost page was written anew as a whole. It also ends when the caller has said that it goes on with what the device
//! has ([`crate::CachedFile::reload`]). So no sync says that something is durable which is not.
//!
//! Invariants: a page has its flag ([`crate::engine::pages`]) only if it is listed here and its frame has had its
//! contents since; everything is under the engine's lock. Cost: some 160 bytes per page written since the last sync,
//! for twice as many pages as there are frames at most. Beyond these, spans of pages are remembered, with the gaps
//! between them if there are too many. O(log n) per page written.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;

use foldhash::fast::RandomState;
use refault_store::PAGE_SIZE;

use crate::writeback::dirty::At;
use crate::writeback::parts::Parts;
use crate::writeback::spans::Spans;

const PAGE: u64 = PAGE_SIZE as u64;

/// Of a file.
#[derive(Default)]
struct Fate {
    /// How often the device failed to make what it has durable.
    failures: u64,
    /// Pages whose last contents may be neither on the device nor in memory.
    lost: Spans,
    /// How often pages that were lost were written anew.
    mended: u64,
    /// Some of that was lost, and no caller has been told.
    untold: bool,
    /// Pages that are not listed were written, or lie between such.
    unlisted: Spans,
    /// The last of those with this number.
    last_unlisted: u64,
}

/// Spans of pages that are not listed.
const MAX_SPANS: usize = 1024;

/// A page that the device has, but not for certain.
#[derive(Clone, Copy)]
pub(crate) struct Listed {
    pub(crate) at: At,
    /// The numbers of its first and last writes.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// What was written of it.
    pub(crate) parts: Parts,
}

pub(crate) struct Through {
    pages: BTreeMap<At, Listed>,
    files: HashMap<u32, Fate, RandomState>,
    /// Pages that are listed.
    most: usize,
}

impl Through {
    pub(crate) fn new(frames: u32) -> Through {
        Through { pages: BTreeMap::new(), files: HashMap::default(), most: (2 * frames as usize).max(1024) }
    }

    pub(crate) fn close(&mut self, file: u32) {
        self.cut(file, 0);
        self.files.remove(&file);
    }

    /// A file has become shorter: pages from an index on are gone.
    pub(crate) fn cut(&mut self, file: u32, index: u64) {
        self.take(file, |listed| listed.at.1 >= index);
        if let Some(fate) = self.files.get_mut(&file) {
            fate.lost.cut(index);
            fate.unlisted.cut(index);
        }
    }

    /// How often the device failed to make a file durable. Who writes through compares that afterwards: what a device
    /// takes while it fails may be lost.
    pub(crate) fn failures(&self, file: u32) -> u64 {
        self.files.get(&file).map_or(0, |fate| fate.failures)
    }

    /// The device has taken a page. `is_kept` says of a page whether its frame has what was written; the others are no
    /// longer listed if there are too many.
    pub(crate) fn written(&mut self, new: Listed, is_kept: impl Fn(At) -> bool) {
        let listed = self.pages.entry(new.at).or_insert(new);
        (listed.first, listed.last) = (listed.first.min(new.first), new.last);
        listed.parts = listed.parts.and(new.parts);
        if self.pages.len() <= self.most {
            return;
        }
        let files = &mut self.files;
        self.pages.retain(|(file, index), listed| {
            let kept = is_kept(listed.at);
            if !kept {
                let fate = files.entry(*file).or_default();
                fate.unlisted.insert(*index..*index + 1);
                fate.last_unlisted = fate.last_unlisted.max(listed.last);
            }
            kept
        });
        files.values_mut().filter(|fate| fate.unlisted.len() > 2 * MAX_SPANS).for_each(|fate| {
            fate.unlisted.coarsen(MAX_SPANS);
        });
    }

    /// A page that the device took while it failed, and that no frame has.
    pub(crate) fn lose(&mut self, at: At) {
        let fate = self.files.entry(at.0).or_default();
        fate.lost.insert(at.1..at.1.saturating_add(1));
        fate.untold = true;
    }

    /// All of a page is written anew: what it was before is no longer missed.
    pub(crate) fn overwritten(&mut self, at: At) {
        let Some(fate) = self.files.get_mut(&at.0) else { return };
        // Most files have lost nothing.
        // A sync that has begun before looks for what this write makes durable later.
        if !fate.unlisted.is_empty() && fate.unlisted.remove(at.1) {
            fate.mended += 1;
        }
        if !fate.lost.is_empty() && fate.lost.remove(at.1) {
            fate.mended += 1;
        }
    }

    /// How often pages of a file that were lost were written anew. Who syncs compares that afterwards: a page that is
    /// mended meanwhile is neither lost nor durable.
    pub(crate) fn mended(&self, file: u32) -> u64 {
        self.files.get(&file).map_or(0, |fate| fate.mended)
    }

    /// The device has made durable what it had of a file, whose writes had ended with a number up to `until`. Returns
    /// the pages that are durable now.
    pub(crate) fn settle(&mut self, file: u32, until: u64) -> Vec<At> {
        if let Some(fate) = self.files.get_mut(&file)
            && fate.last_unlisted <= until
        {
            fate.unlisted = Spans::default();
        }
        self.take(file, |listed| listed.last <= until).into_iter().map(|listed| listed.at).collect()
    }

    fn take(&mut self, file: u32, which: impl Fn(&Listed) -> bool) -> Vec<Listed> {
        let of = self.pages.range((file, 0)..=(file, u64::MAX)).map(|(_, listed)| *listed);
        let taken: Vec<Listed> = of.filter(which).collect();
        for listed in &taken {
            self.pages.remove(&listed.at);
        }
        taken
    }

    /// A page is dirty now, and its frame has all that was written to it. Returns what was listed of it, if it is not
    /// durable.
    pub(crate) fn supersede(&mut self, at: At) -> Option<Listed> {
        self.pages.remove(&at)
    }

    /// It could not. Returns all pages that were listed: the caller knows which of them are kept.
    pub(crate) fn fail(&mut self, file: u32) -> Vec<Listed> {
        let fate = self.files.entry(file).or_default();
        fate.failures += 1;
        fate.untold |= !fate.unlisted.is_empty();
        fate.lost.take_from(&mut fate.unlisted);
        self.take(file, |_| true)
    }

    /// A caller was told that the device failed.
    pub(crate) fn told(&mut self, file: u32) {
        if let Some(fate) = self.files.get_mut(&file) {
            fate.untold = false;
        }
    }

    /// The caller goes on with what the device has. A loss that no caller has been told of is told now instead.
    pub(crate) fn accept(&mut self, file: u32) -> io::Result<()> {
        if self.files.get(&file).is_some_and(|fate| fate.untold) {
            self.check(file, 0..u64::MAX)?;
        }
        self.forgive(file);
        Ok(())
    }

    /// No caller misses what was lost of a file.
    pub(crate) fn forgive(&mut self, file: u32) {
        if let Some(fate) = self.files.get_mut(&file) {
            fate.lost = Spans::default();
            fate.untold = false;
        }
    }

    /// What was lost in a range of a file, in words, which the caller passes on.
    pub(crate) fn check(&mut self, file: u32, range: Range<u64>) -> io::Result<()> {
        let Some(fate) = self.files.get_mut(&file) else { return Ok(()) };
        let Some(first) = fate.lost.first(range.clone()) else { return Ok(()) };
        if fate.lost.is_within(&range) {
            fate.untold = false;
        }
        Err(io::Error::other(format!(
            "the device failed to make the page at byte {}, which had left memory, durable before: write it anew, or \
             reload the file to go on with what the device has",
            first.saturating_mul(PAGE)
        )))
    }

    pub(crate) fn bytes(&self) -> usize {
        let spans: usize = self.files.values().map(|fate| fate.lost.len() + fate.unlisted.len()).sum();
        // The nodes of a tree that grows at its end are half full.
        2 * self.pages.len() * size_of::<(At, Listed)>() + spans * 16
    }
}
