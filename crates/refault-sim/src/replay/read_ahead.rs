//! A replay that reads ahead: pages of files come in before they are accessed, as the kernel has them come
//! ([`refault_core::memory::readahead`]; spec: overview §10).
//!
//! A trace does not say which descriptor reads, so each file or disk has one reader with one window. It ends behind the
//! last of its pages that the trace accesses. Windows are at most a quarter of memory: what the kernel holds locked
//! while it is read cannot push itself out. Anonymous pages come in alone, as from a device that answers at once.
//!
//! Invariants: the first access to a page that was read ahead is to a textbook policy the access that it was read for,
//! as in the page cache; to a kernel's policy it is an access. What is evicted before it was accessed is counted as
//! unused. Cost: a byte per page id, and a few steps per access of a file.

use refault_core::memory::readahead::{FileWindow, Window};
use refault_core::policy::{Admission, HitReport};
use refault_core::{PageId, PageType, Policy};

use super::{Outcome, Replay};
use crate::layout::{Access, FILE_PAGES, Layout};

/// Pages that were read ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadAheadCounts {
    /// Pages that came in before they were accessed.
    pub pages: u64,
    /// Those of them that were evicted before they were accessed.
    pub unused: u64,
}

impl ReadAheadCounts {
    /// What was counted since.
    pub fn since(&self, before: &ReadAheadCounts) -> ReadAheadCounts {
        ReadAheadCounts { pages: self.pages - before.pages, unused: self.unused - before.unused }
    }
}

mod bits {
    /// An access of the page starts the next window.
    pub const MARKED: u8 = 1;
    /// The page was read ahead and has not been accessed since.
    pub const UNUSED: u8 = 2;
}

/// A file, or a disk.
struct File {
    /// The first id, and the one after the last.
    ids: std::ops::Range<PageId>,
    /// Pages up to the last that is accessed.
    pages: u64,
    window: FileWindow,
}

/// State of a replay that reads ahead.
pub(super) struct ReadAhead {
    /// The largest window.
    window: u64,
    /// Ascending by ids.
    files: Vec<File>,
    /// Offset in its file of each id from `base` on.
    offsets: Vec<u64>,
    base: PageId,
    flags: Vec<u8>,
    counts: ReadAheadCounts,
}

impl ReadAhead {
    pub(super) fn new(layout: &Layout, window: u32) -> ReadAhead {
        let (base, end) = (layout.file_base(), layout.ids() as PageId);
        let numbers: Vec<u64> = (base..end).map(|id| layout.page_number(id)).collect();
        let of_one_file = numbers.chunk_by(|one, next| one / FILE_PAGES == next / FILE_PAGES);
        let mut first = base;
        let files = of_one_file.map(|numbers| {
            let ids = first..first + numbers.len() as PageId;
            first = ids.end;
            let last = numbers.last().expect("invariant: a part has a number");
            File { ids, pages: last % FILE_PAGES + 1, window: FileWindow::default() }
        });
        ReadAhead {
            window: u64::from(window),
            files: files.collect(),
            offsets: numbers.iter().map(|number| number % FILE_PAGES).collect(),
            base,
            flags: vec![0; numbers.len()],
            counts: ReadAheadCounts::default(),
        }
    }

    fn file_of(&mut self, page: PageId) -> &mut File {
        let at = self.files.partition_point(|file| file.ids.end <= page);
        &mut self.files[at]
    }

    fn offset(&self, page: PageId) -> u64 {
        self.offsets[(page - self.base) as usize]
    }

    /// Pages directly before one that are in memory, at most `most`. What cannot come in has no id.
    fn cached_before(&self, page: PageId, most: u64, is_resident: impl Fn(PageId) -> bool) -> u64 {
        let offset = self.offset(page);
        let before = (self.base..page).rev().zip(1..=most.min(offset));
        let is_cached = |(page, back): &(PageId, u64)| self.offset(*page) + back == offset && is_resident(*page);
        before.take_while(is_cached).count() as u64
    }

    /// The ids of a window's pages, in the file of a page. What lies farther from all accesses than windows reach has none.
    fn ids_of(&mut self, page: PageId, window: Window) -> std::ops::Range<PageId> {
        let ids = self.file_of(page).ids.clone();
        let offsets = &self.offsets[(ids.start - self.base) as usize..(ids.end - self.base) as usize];
        let id = |offset: u64| ids.start + offsets.partition_point(|each| *each < offset) as PageId;
        id(window.start)..id(window.start + window.len)
    }

    /// Takes a flag away. True if it was there.
    fn take(&mut self, page: PageId, flag: u8) -> bool {
        let flags = &mut self.flags[(page - self.base) as usize];
        let had = *flags & flag != 0;
        *flags &= !flag;
        had
    }

    fn set(&mut self, page: PageId, flag: u8) {
        self.flags[(page - self.base) as usize] |= flag;
    }

    /// A page comes in, whatever it was before.
    fn comes(&mut self, page: PageId) {
        self.take(page, bits::MARKED);
        self.counts.unused += u64::from(self.take(page, bits::UNUSED));
    }

    /// What happened so far.
    fn counts(&self, is_resident: impl Fn(PageId) -> bool) -> ReadAheadCounts {
        let gone = |(page, flags): (PageId, &u8)| flags & bits::UNUSED != 0 && !is_resident(page);
        let gone = (self.base..).zip(&self.flags).filter(|each| gone(*each)).count();
        ReadAheadCounts { unused: self.counts.unused + gone as u64, ..self.counts }
    }
}

impl<P: Policy> Replay<P> {
    /// Reads ahead from now on, in windows of at most this many pages; the layout was made for it
    /// ([`crate::LayoutBuilder::reads_ahead`]). Slower than without.
    pub fn read_ahead(&mut self, layout: &Layout, window: u32) {
        self.ahead = Some(Box::new(ReadAhead::new(layout, window)));
    }

    /// Adds what was read ahead.
    pub(super) fn with_read_ahead(&self, outcome: Outcome) -> Outcome {
        let counts = self.ahead.as_ref().map(|ahead| ahead.counts(|page| self.memory.is_resident(page)));
        Outcome { read_ahead: counts, ..outcome }
    }

    /// Replays accesses with readahead.
    pub(super) fn run_with_read_ahead(&mut self, block: &[Access], ahead: &mut ReadAhead) {
        for access in block {
            self.accesses += 1;
            if self.memory.is_file(access.page()) {
                self.file_access(*access, ahead);
            } else {
                self.access_alone(*access);
            }
        }
    }

    fn file_access(&mut self, access: Access, ahead: &mut ReadAhead) {
        let (page, by_descriptor) = (access.page(), access.is_fd());
        if P::HITS == HitReport::Kernel && !by_descriptor && self.memory.touch_mapped(page, access.write()) {
            return;
        }
        let found = self.memory.is_resident(page);
        let offset = ahead.offset(page);
        let most = ahead.window.min(self.limit as u64 / 4).max(1);
        let first_use = found && ahead.take(page, bits::UNUSED);
        if !found && by_descriptor && access.write() {
            ahead.comes(page);
            self.miss(access);
        } else if !found {
            let cached = ahead.cached_before(page, most, |page| self.memory.is_resident(page));
            let file = ahead.file_of(page);
            let window = match by_descriptor {
                true => file.window.miss(offset, file.pages, most, |_| cached),
                false => file.window.mapped_miss(offset, file.pages, most),
            };
            self.read_window(window, access, true, ahead);
        } else {
            let file = ahead.file_of(page);
            if !by_descriptor {
                file.window.misses = (file.window.misses - 1).max(0);
            }
            if ahead.take(page, bits::MARKED) {
                let file = ahead.file_of(page);
                let window = file.window.marked(offset, file.pages, most);
                self.read_window(window, access, false, ahead);
            }
        }
        if by_descriptor {
            ahead.file_of(page).window.hit(offset);
        }
        // A policy that keeps few new pages may have evicted it for its own window.
        if self.memory.is_resident(page) {
            self.tell(access, found, first_use);
        }
    }

    /// The access itself, once its page is in memory.
    fn tell(&mut self, access: Access, found: bool, first_use: bool) {
        let page = access.page();
        match P::HITS {
            HitReport::Kernel if !access.is_fd() => self.memory.map(page, access.write()),
            HitReport::Kernel => {
                if self.descriptor_reads.counts(page, access.write()) {
                    self.policy.accessed(page, &mut self.memory);
                }
            }
            HitReport::AccessedBit if found && !first_use => _ = self.memory.touch_any(page),
            // It leaves an entry that a walk can find young later.
            HitReport::AccessedBit if !access.is_fd() => self.memory.map_old(page),
            HitReport::EachAccess if found && !first_use => self.policy.accessed(page, &mut self.memory),
            HitReport::AccessedBit | HitReport::EachAccess | HitReport::Never => {}
        }
    }

    /// Brings in what is missing of a window; the access itself waits for its page if it is `missed`.
    fn read_window(&mut self, window: Window, access: Access, missed: bool, ahead: &mut ReadAhead) {
        let page = access.page();
        let mut room = true;
        for each in ahead.ids_of(page, window) {
            if self.memory.is_resident(each) {
                continue;
            }
            if each == page && missed {
                ahead.comes(page);
                self.miss(access);
            } else {
                // Reading ahead is given up where there is no room, but the page that is waited for may still lie ahead.
                room = room && self.bring_ahead(each, access, ahead);
            }
            if window.marker == Some(ahead.offset(each)) && self.memory.is_resident(each) {
                ahead.set(each, bits::MARKED);
            }
        }
    }

    /// Brings in a page that is not accessed. False if there is no room for it: one call that frees nothing is enough.
    fn bring_ahead(&mut self, page: PageId, access: Access, ahead: &mut ReadAhead) -> bool {
        if self.memory.resident() >= self.threshold && !self.make_room(page, 0) {
            return false;
        }
        ahead.comes(page);
        let by_fault = !access.is_fd();
        let admission = if by_fault { Admission::fault(PageType::File) } else { Admission::read(PageType::File) };
        let shadow = if P::CACHES_PAGES && self.take_frame(page) {
            None
        } else {
            self.memory.counters_mut().file_reads += 1;
            ahead.counts.pages += 1;
            ahead.set(page, bits::UNUSED);
            self.memory.take_shadow(page)
        };
        self.policy.admit(page, &admission.with_shadow(shadow), &mut self.memory);
        self.memory.insert(page);
        true
    }
}
