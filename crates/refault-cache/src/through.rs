//! What was written through and is not durable yet.
//!
//! A page that was written through may be evicted at once: the device has it. A device that then fails to make it
//! durable may have lost it. What is still in memory as it was written can be written again, so it becomes dirty; what
//! was evicted since cannot, and is *lost*: from then on every [`crate::CachedFile::sync`] says so, until each lost
//! page was written anew as a whole, or the caller has said that it goes on with what the device has
//! ([`crate::CachedFile::reload`]). So no sync says that something is durable which is not.
//!
//! Invariants: a page has its flag ([`crate::pages`]) only if it is listed here and its frame has had its contents
//! since; everything is under the engine's lock. Cost: some 60 bytes per page written since the last sync, for twice as
//! many pages as there are frames at most (beyond these, which pages were lost is not known); O(log n) per page
//! written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::ops::Range;

use refault_core::PageId;
use refault_store::PAGE_SIZE;

use crate::dirty::At;

const PAGE: u64 = PAGE_SIZE as u64;

/// Of a file.
#[derive(Default)]
struct Fate {
    /// How often the device failed to make what it has durable.
    failures: u64,
    /// Pages whose last contents the device may not have, nor anybody else.
    lost: BTreeSet<u64>,
    /// Pages that are not listed were written, the last one with this number.
    unlisted: Option<u64>,
    /// Some of those may be lost, too.
    lost_unlisted: bool,
}

/// A page that the device has, but not for certain.
#[derive(Clone, Copy)]
pub(crate) struct Listed {
    pub(crate) at: At,
    pub(crate) page: PageId,
    /// The numbers of its first and last writes.
    pub(crate) first: u64,
    pub(crate) last: u64,
}

pub(crate) struct Through {
    pages: BTreeMap<At, Listed>,
    files: HashMap<u32, Fate>,
    /// Pages that are listed.
    most: usize,
}

impl Through {
    pub(crate) fn new(frames: u32) -> Through {
        Through { pages: BTreeMap::new(), files: HashMap::new(), most: (2 * frames as usize).max(1024) }
    }

    pub(crate) fn close(&mut self, file: u32) {
        self.cut(file, 0);
        self.files.remove(&file);
    }

    /// A file has become shorter: pages from an index on are gone.
    pub(crate) fn cut(&mut self, file: u32, index: u64) {
        self.take(file, |listed| listed.at.1 >= index);
        if let Some(fate) = self.files.get_mut(&file) {
            fate.lost.split_off(&index);
        }
    }

    /// How often the device failed to make a file durable. Who writes through compares that afterwards: what a device
    /// takes while it fails may be lost.
    pub(crate) fn failures(&self, file: u32) -> u64 {
        self.files.get(&file).map_or(0, |fate| fate.failures)
    }

    /// The device has taken a page. `is_kept` says of a page whether its frame has what was written; the others are no
    /// longer listed if there are too many.
    pub(crate) fn written(&mut self, new: Listed, is_kept: impl Fn(PageId) -> bool) {
        let listed = self.pages.entry(new.at).or_insert(new);
        (listed.first, listed.last) = (listed.first.min(new.first), new.last);
        if self.pages.len() <= self.most {
            return;
        }
        let files = &mut self.files;
        self.pages.retain(|(file, _), listed| {
            let kept = is_kept(listed.page);
            if !kept {
                let unlisted = &mut files.entry(*file).or_default().unlisted;
                *unlisted = (*unlisted).max(Some(listed.last));
            }
            kept
        });
    }

    /// A page that the device took while it failed, and that no frame has.
    pub(crate) fn lose(&mut self, at: At) {
        self.files.entry(at.0).or_default().lost.insert(at.1);
    }

    /// All of a page is written anew: what it was before is no longer missed. Whether it was.
    pub(crate) fn overwritten(&mut self, at: At) -> bool {
        self.files.get_mut(&at.0).is_some_and(|fate| fate.lost.remove(&at.1))
    }

    /// The device has made durable what it had of a file, whose writes had ended with a number up to `until`. Returns
    /// the pages that are durable now.
    pub(crate) fn settle(&mut self, file: u32, until: u64) -> Vec<PageId> {
        if let Some(fate) = self.files.get_mut(&file)
            && fate.unlisted.is_some_and(|number| number <= until)
        {
            fate.unlisted = None;
        }
        self.take(file, |listed| listed.last <= until).into_iter().map(|listed| listed.page).collect()
    }

    fn take(&mut self, file: u32, which: impl Fn(&Listed) -> bool) -> Vec<Listed> {
        let of = self.pages.range((file, 0)..=(file, u64::MAX)).map(|(_, listed)| *listed);
        let taken: Vec<Listed> = of.filter(which).collect();
        for listed in &taken {
            self.pages.remove(&listed.at);
        }
        taken
    }

    /// A page is dirty now, and its frame has all that was written to it. Returns the number of the first write, if it
    /// is not durable.
    pub(crate) fn supersede(&mut self, at: At) -> Option<u64> {
        self.pages.remove(&at).map(|listed| listed.first)
    }

    /// It could not. Returns all pages that were listed: the caller knows which of them are kept.
    pub(crate) fn fail(&mut self, file: u32) -> Vec<Listed> {
        let fate = self.files.entry(file).or_default();
        fate.failures += 1;
        fate.lost_unlisted |= fate.unlisted.take().is_some();
        self.take(file, |_| true)
    }

    /// The caller goes on with what the device has.
    pub(crate) fn accept(&mut self, file: u32) {
        if let Some(fate) = self.files.get_mut(&file) {
            fate.lost.clear();
            fate.lost_unlisted = false;
        }
    }

    /// What was lost in a range of a file, in words.
    pub(crate) fn check(&self, file: u32, range: Range<u64>) -> io::Result<()> {
        let Some(fate) = self.files.get(&file) else { return Ok(()) };
        let what = match fate.lost.range(range.start..range.end.max(range.start)).next() {
            _ if fate.lost_unlisted => "pages that had left memory".to_owned(),
            Some(first) => format!("the page at byte {}, which had left memory", first.saturating_mul(PAGE)),
            None => return Ok(()),
        };
        Err(io::Error::other(format!(
            "the device failed to make {what}, durable before: write it anew, or reload the file to go on with what the \
             device has"
        )))
    }

    pub(crate) fn bytes(&self) -> usize {
        let lost: usize = self.files.values().map(|fate| fate.lost.len()).sum();
        self.pages.len() * size_of::<(At, Listed)>() + lost * 16
    }
}
