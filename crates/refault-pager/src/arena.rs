//! Addresses for regions: one memfd, mapped once, cut into runs of pages.
//!
//! The mapping is what programs see. The pager itself reads and writes pages through the descriptor, which leaves no
//! page-table entries behind and never faults. A page's id is its offset in the memfd, in pages.
//!
//! Invariants: runs handed out do not overlap; the mapping is not inherited by a child of `fork` (a child that shared
//! it would write into its parent). Cost: O(log runs) per run; nothing per page.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use refault_core::PageId;
use refault_store::{PAGE_SIZE, Page};
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::descriptor::{Descriptor, LargeFiles};
use crate::pte_lock::PteLock;

/// Core dumps walk what was ever handed out, in steps of this many pages, and not the whole reservation.
const DUMP_STEP: u32 = 16_384;

pub(crate) struct Arena {
    memfd: Descriptor,
    base: usize,
    pages: u32,
    /// Free runs: first page → length.
    free: Mutex<BTreeMap<u32, u32>>,
    /// Runs that are about to become free: nothing may be brought in ahead of a touch there.
    leaving: Mutex<Vec<(u32, u32)>>,
    /// Pages from here on were never handed out.
    high: AtomicU32,
    /// In a child after `fork`: something is mapped at the addresses, so that nothing else can be.
    held: AtomicBool,
}

impl Arena {
    pub(crate) fn new(pages: u32) -> io::Result<Arena> {
        let len = pages as usize * PAGE_SIZE;
        let memfd = rustix::fs::memfd_create("refault", MemfdFlags::CLOEXEC)?;
        let large = LargeFiles::allow(len as u64)?;
        rustix::fs::ftruncate(&memfd, len as u64)?;
        drop(large);
        let base = map(&memfd, None, len)?;
        let arena = Arena {
            memfd: Descriptor::new(memfd),
            base,
            pages,
            free: Mutex::new(BTreeMap::from([(0, pages)])),
            leaving: Mutex::new(Vec::with_capacity(64)),
            high: AtomicU32::new(0),
            held: AtomicBool::new(false),
        };
        arena.set_advice()?;
        Ok(arena)
    }

    fn set_advice(&self) -> io::Result<()> {
        // SAFETY: advice on a mapping that this value owns; none of it changes contents.
        unsafe {
            rustix::mm::madvise(self.base as *mut _, self.len(), Advice::LinuxNoHugepage)?;
            rustix::mm::madvise(self.base as *mut _, self.len(), Advice::LinuxDontFork)?;
            rustix::mm::madvise(self.base as *mut _, self.len(), Advice::LinuxDontDump)?;
            // Whose entries are dropped is the pager's business: the kernel need not file the page as recently used.
            rustix::mm::madvise(self.base as *mut _, self.len(), Advice::Random)?;
        }
        self.dump(0, self.high());
        Ok(())
    }

    /// Lets core dumps have the pages below `high`, given that they have those below `before`.
    fn dump(&self, before: u32, high: u32) {
        let start = before.next_multiple_of(DUMP_STEP).min(self.pages);
        let end = high.next_multiple_of(DUMP_STEP).min(self.pages);
        if start < end {
            let len = (end - start) as usize * PAGE_SIZE;
            // SAFETY: advice on the arena's own mapping that changes no contents. Refusal costs a dump, nothing else.
            let _ = unsafe { rustix::mm::madvise(self.address(start) as *mut _, len, Advice::LinuxDoDump) };
        }
    }

    /// In a child after `fork`: takes the old addresses, before an allocation or a thread's stack may. Allocates nothing.
    pub(crate) fn hold_after_fork(&self) -> io::Result<()> {
        if !self.held.load(Ordering::Relaxed) {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
            // SAFETY: a new mapping that replaces nothing, and refuses to.
            unsafe { rustix::mm::mmap_anonymous(self.base as *mut _, self.len(), ProtFlags::empty(), flags) }?;
            self.held.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// In a child after `fork`: puts a fresh memfd under the old addresses and the old descriptor. The pages of
    /// `resident` keep their contents, copied from the parent's memfd. The parent must not run meanwhile.
    pub(crate) fn replace_after_fork(&self, resident: impl Iterator<Item = PageId>) -> io::Result<()> {
        let len = self.len();
        let memfd = rustix::fs::memfd_create("refault", MemfdFlags::CLOEXEC)?;
        let _large = LargeFiles::allow(len as u64)?;
        rustix::fs::ftruncate(&memfd, len as u64)?;
        let mut contents = [Page::ZERO];
        for page in resident {
            self.read(page, &mut contents)?;
            write(&memfd, page, &contents[0])?;
        }
        self.hold_after_fork()?;
        map(&memfd, Some(self.base), len)?;
        self.held.store(false, Ordering::Relaxed);
        self.memfd.replace(memfd);
        self.set_advice()
    }

    pub(crate) fn base(&self) -> usize {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.pages as usize * PAGE_SIZE
    }

    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    pub(crate) fn address(&self, page: PageId) -> usize {
        self.base + page as usize * PAGE_SIZE
    }

    pub(crate) fn page_at(&self, address: usize) -> Option<PageId> {
        (self.base..self.base + self.len()).contains(&address).then(|| ((address - self.base) / PAGE_SIZE) as PageId)
    }

    /// Pages that were ever handed out: ids below this.
    pub(crate) fn high(&self) -> u32 {
        self.high.load(Ordering::Acquire)
    }

    /// Takes the first free run of `pages` whose address is aligned to `align` bytes.
    pub(crate) fn take(&self, pages: u32, align: usize) -> Option<PageId> {
        let mut free = self.free.lock().expect("invariant: nothing panics under this lock");
        let found = free.iter().find_map(|(&start, &len)| {
            let address = self.address(start).next_multiple_of(align.max(PAGE_SIZE));
            let first = ((address - self.base) / PAGE_SIZE) as u64;
            (first + u64::from(pages) <= u64::from(start) + u64::from(len)).then_some((start, len, first as u32))
        });
        let (start, len, first) = found?;
        self.cut(&mut free, start, len, first, pages);
        Some(first)
    }

    fn cut(&self, free: &mut BTreeMap<u32, u32>, start: u32, len: u32, first: u32, pages: u32) {
        free.remove(&start);
        if first > start {
            free.insert(start, first - start);
        }
        if first + pages < start + len {
            free.insert(first + pages, start + len - first - pages);
        }
        let before = self.high.fetch_max(first + pages, Ordering::AcqRel);
        self.dump(before, first + pages);
    }

    /// Calls `work` with the end of the taken pages that start at `first`. If `first` is free, the end is `first`
    /// itself. None of the pages can begin to leave meanwhile.
    pub(crate) fn with_taken<T>(&self, first: PageId, work: impl FnOnce(PageId) -> T) -> T {
        let free = self.free.lock().expect("invariant: nothing panics under this lock");
        let leaving = self.leaving.lock().expect("invariant: nothing panics under this lock");
        let inside = free.range(..first).next_back().is_some_and(|(start, pages)| start + pages > first);
        let mut end = if inside { first } else { free.range(first..).next().map_or(self.pages, |(start, _)| *start) };
        for (start, pages) in leaving.iter() {
            if *start >= first {
                end = end.min(*start);
            } else if start + pages > first {
                end = first;
            }
        }
        work(end)
    }

    /// Says that a run is about to be discarded and given back, and returns the parts of it that are taken: only those
    /// may be.
    pub(crate) fn begin_leaving(&self, first: PageId, pages: u32) -> Vec<(PageId, u32)> {
        let free = self.free.lock().expect("invariant: nothing panics under this lock");
        let mut leaving = self.leaving.lock().expect("invariant: nothing panics under this lock");
        let mut parts = taken_between(&free, first, first + pages);
        // A second thread that gives the same run back at once would give back what another caller has just taken.
        parts.retain(|part| leaving.iter().all(|run| run.0 + run.1 <= part.0 || part.0 + part.1 <= run.0));
        leaving.extend_from_slice(&parts);
        parts
    }

    /// Gives a part back that [`Arena::begin_leaving`] returned. Its pages must be fresh.
    pub(crate) fn give_back(&self, first: PageId, pages: u32) {
        let mut free = self.free.lock().expect("invariant: nothing panics under this lock");
        let mut leaving = self.leaving.lock().expect("invariant: nothing panics under this lock");
        if let Some(index) = leaving.iter().position(|run| *run == (first, pages)) {
            leaving.swap_remove(index);
        }
        let (mut first, mut pages) = (first, pages);
        if let Some((&before, &len)) = free.range(..first).next_back()
            && before + len == first
        {
            free.remove(&before);
            first = before;
            pages += len;
        }
        if let Some(len) = free.remove(&(first + pages)) {
            pages += len;
        }
        free.insert(first, pages);
    }

    /// Reads resident pages through the descriptor, which leaves no page-table entry behind.
    pub(crate) fn read(&self, first: PageId, into: &mut [Page]) -> io::Result<()> {
        // SAFETY: pages are plain bytes without padding.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(into.as_mut_ptr().cast::<u8>(), std::mem::size_of_val(into)) };
        let start = u64::from(first) * PAGE_SIZE as u64;
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pread(&self.memfd, &mut bytes[done..], start + done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => done += read,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Frees the memory of a run of pages and takes them out of the page tables.
    pub(crate) fn punch(&self, _turn: &PteLock, first: PageId, pages: u32) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (offset, len) = (u64::from(first) * PAGE_SIZE as u64, u64::from(pages) * PAGE_SIZE as u64);
        loop {
            match rustix::fs::fallocate(&self.memfd, flags, offset, len) {
                Err(rustix::io::Errno::INTR) => {}
                outcome => return Ok(outcome?),
            }
        }
    }

    /// Drops the page-table entries of a run: contents stay, the next touch is found by the scan.
    pub(crate) fn drop_entries(&self, _turn: &PteLock, first: PageId, pages: u32) {
        // SAFETY: the mapping is shared, so dropping its entries changes no contents.
        let _ = unsafe {
            rustix::mm::madvise(self.address(first) as *mut _, pages as usize * PAGE_SIZE, Advice::LinuxDontNeed)
        };
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping was made here with these bounds and no region lives any more.
        let _ = unsafe { rustix::mm::munmap(self.base as *mut _, self.len()) };
    }
}

/// What lies between free runs, within bounds.
fn taken_between(free: &BTreeMap<u32, u32>, first: PageId, end: PageId) -> Vec<(PageId, u32)> {
    let before = free.range(..first).next_back();
    let mut taken = Vec::new();
    let mut at = first;
    for (&start, &len) in before.into_iter().chain(free.range(first..end)).chain([(&end, &0)]) {
        if start > at {
            taken.push((at, start - at));
        }
        at = at.max(start + len);
    }
    taken
}

/// Maps a memfd anywhere, or at an address where only a mapping that holds the place is.
fn map(memfd: impl AsFd, address: Option<usize>, len: usize) -> io::Result<usize> {
    let fixed = if address.is_some() { MapFlags::FIXED } else { MapFlags::empty() };
    // SAFETY: a new mapping that replaces nothing but what holds its place.
    let mapped = unsafe {
        rustix::mm::mmap(
            address.unwrap_or(0) as *mut _,
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::NORESERVE | fixed,
            memfd,
            0,
        )
    }?;
    Ok(mapped as usize)
}

fn write(memfd: impl AsFd, page: PageId, contents: &Page) -> io::Result<()> {
    let start = u64::from(page) * PAGE_SIZE as u64;
    let mut done = 0;
    while done < PAGE_SIZE {
        match rustix::io::pwrite(&memfd, &contents.0[done..], start + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => done += written,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn runs_never_overlap_and_all_come_back(ops in proptest::collection::vec((any::<u16>(), 1u32..200, 0u32..4), 1..100)) {
            let arena = Arena::new(4096).expect("makes");
            let mut taken: Vec<(u32, u32)> = Vec::new();
            for (pick, pages, align) in ops {
                if pick % 3 == 0 && !taken.is_empty() {
                    let (first, pages) = taken.swap_remove(pick as usize % taken.len());
                    prop_assert_eq!(arena.begin_leaving(first, pages), vec![(first, pages)]);
                    prop_assert_eq!(arena.begin_leaving(first, pages), vec![]);
                    arena.give_back(first, pages);
                    prop_assert_eq!(arena.begin_leaving(first, pages), vec![]);
                } else if let Some(first) = arena.take(pages, PAGE_SIZE << align) {
                    prop_assert_eq!(arena.address(first) % (PAGE_SIZE << align), 0);
                    prop_assert!(taken.iter().all(|(f, n)| first + pages <= *f || f + n <= first));
                    taken.push((first, pages));
                }
            }
            for (first, pages) in taken.drain(..) {
                arena.give_back(first, pages);
            }
            prop_assert_eq!(arena.take(4096, PAGE_SIZE), Some(0));
        }
    }
}
