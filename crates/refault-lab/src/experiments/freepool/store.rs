//! What is below the page queues: pages with their mappings and contents, frames, swap and the disk.
//!
//! Kernel: `vm_page_cache`, `vm_page_alloc` in `sys/vm/vm_page.c`.

use refault_core::frames::{CachedFrames, FreePools};
use refault_core::freebsd::VmCounters;
use refault_core::memory::{Eviction, Memory, PageTables, References, SwapSpace, Walk, Writeback};
use refault_core::{LruvecId, PageId, Shadow};

use super::machine::{MAX_REQUEST, Nanos};

/// Pages of a second-level page-table entry.
const REGION: u32 = 512;
/// Pages of a swap write at most.
const SWAP_CLUSTER: u32 = 16;

mod bits {
    pub const RESIDENT: u8 = 1;
    pub const DIRTY: u8 = 2;
    pub const ON_SWAP: u8 = 4;
    pub const BUFFERED: u8 = 8;
    pub const ANON: u8 = 16;
    /// Was evicted, and has not come back since.
    pub const EVICTED: u8 = 32;
}

/// A file or a piece of anonymous memory: pages in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub first: PageId,
    pub pages: u32,
    pub anon: bool,
    /// Mappings of it.
    pub users: u32,
}

/// One disk that serves one request at a time, for files and swap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disk {
    /// Time to get to a request's place.
    pub position: Nanos,
    /// Time to transfer a page.
    pub page: Nanos,
    busy_until: Nanos,
    /// Read requests.
    pub reads: u64,
    /// Pages of those.
    pub pages_read: u64,
    /// Write requests.
    pub writes: u64,
    /// Page after the last one written back: pages in a row share a request.
    write_next: PageId,
    write_run: u64,
}

impl Disk {
    /// A disk of its time: 7200 turns per minute, short seeks (4 ms to a request), 130 MB/s (31.5 µs per page), each
    /// request standing for this many.
    pub fn rotating(stands_for: f64) -> Disk {
        Disk {
            position: (4_000_000.0 * stands_for) as Nanos,
            page: (31_500.0 * stands_for) as Nanos,
            busy_until: 0,
            reads: 0,
            pages_read: 0,
            writes: 0,
            write_next: 0,
            write_run: 0,
        }
    }

    /// Reads pages in a row; returns when they are there.
    pub fn read(&mut self, now: Nanos, pages: u64) -> Nanos {
        self.reads += 1;
        self.pages_read += pages;
        self.serve(now, pages, true)
    }

    /// Writes pages in a row, without waiting.
    pub fn write(&mut self, now: Nanos, pages: u64) {
        self.writes += 1;
        self.serve(now, pages, true);
    }

    fn serve(&mut self, now: Nanos, pages: u64, positions: bool) -> Nanos {
        let position = if positions { self.position } else { 0 };
        self.busy_until = self.busy_until.max(now) + position + pages * self.page;
        self.busy_until
    }
}

/// See the module.
pub(super) struct Store {
    flags: Vec<u8>,
    /// Tasks that map a page, a bit each.
    pub mapped: Vec<u8>,
    /// Accessed bits of those mappings.
    pub young: Vec<u8>,
    /// The mapping at which the next walk over a page's mappings starts.
    next_mapping: Vec<u8>,
    object_of: Vec<u32>,
    shadows: Vec<u64>,
    /// A complete walk has visited all address spaces.
    walked: bool,
    objects: Vec<Object>,
    pub frames: CachedFrames,
    caches: bool,
    pub disk: Disk,
    /// What is counted here: faults and pagers.
    pub vm: VmCounters,
    /// The time of writes that the daemon starts.
    pub now: Nanos,
    /// Evicted pages that came back, read again or reactivated.
    pub returned: u64,
}

impl Store {
    pub fn new(frames: u32, pools: Option<FreePools>, disk: Disk) -> Store {
        Store {
            flags: Vec::new(),
            mapped: Vec::new(),
            young: Vec::new(),
            next_mapping: Vec::new(),
            object_of: Vec::new(),
            shadows: Vec::new(),
            walked: false,
            objects: Vec::new(),
            frames: CachedFrames::new(frames, pools.unwrap_or(FreePools::TWO)),
            caches: pools.is_some(),
            disk,
            vm: VmCounters::default(),
            now: 0,
            returned: 0,
        }
    }

    pub fn add_object(&mut self, pages: u32, anon: bool) -> usize {
        let first = self.flags.len() as PageId;
        let number = self.objects.len();
        self.objects.push(Object { first, pages, anon, users: u32::from(anon) });
        let end = self.flags.len() + pages as usize;
        self.flags.resize(end, if anon { bits::ANON } else { 0 });
        self.mapped.resize(end, 0);
        self.young.resize(end, 0);
        self.next_mapping.resize(end, 0);
        self.object_of.resize(end, number as u32);
        self.shadows.resize(end, 0);
        self.frames.grow(end);
        number
    }

    pub fn pages(&self) -> usize {
        self.flags.len()
    }

    #[inline]
    pub fn object(&self, object: usize) -> &Object {
        &self.objects[object]
    }

    pub fn object_mut(&mut self, object: usize) -> &mut Object {
        &mut self.objects[object]
    }

    #[inline]
    pub fn is_resident(&self, page: PageId) -> bool {
        self.has(page, bits::RESIDENT)
    }

    pub fn is_anon(&self, page: PageId) -> bool {
        self.has(page, bits::ANON)
    }

    pub fn is_on_swap(&self, page: PageId) -> bool {
        self.has(page, bits::ON_SWAP)
    }

    #[inline]
    pub fn is_buffered(&self, page: PageId) -> bool {
        self.has(page, bits::BUFFERED)
    }

    pub fn set_buffered(&mut self, page: PageId, buffered: bool) {
        self.flags[page as usize] &= !bits::BUFFERED;
        self.flags[page as usize] |= if buffered { bits::BUFFERED } else { 0 };
    }

    #[inline]
    pub fn set_dirty(&mut self, page: PageId) {
        self.flags[page as usize] |= bits::DIRTY;
    }

    pub fn insert(&mut self, page: PageId) {
        debug_assert!(!self.is_resident(page));
        self.returned += u64::from(self.has(page, bits::EVICTED));
        self.flags[page as usize] &= !bits::EVICTED;
        self.flags[page as usize] |= bits::RESIDENT;
    }

    /// The page has no contents any more.
    pub fn forget(&mut self, page: PageId) {
        self.flags[page as usize] &= bits::ANON;
        self.mapped[page as usize] = 0;
        self.young[page as usize] = 0;
        self.shadows[page as usize] = 0;
    }

    /// What a policy left in the page's place when it was evicted.
    pub fn take_shadow(&mut self, page: PageId) -> Option<Shadow> {
        let word = std::mem::take(&mut self.shadows[page as usize]);
        (word != 0).then_some(Shadow(word))
    }

    /// Writes a dirty page of a file that leaves the buffer cache; pages in a row share a request.
    pub fn write_back(&mut self, page: PageId) {
        if !self.has(page, bits::DIRTY) {
            return;
        }
        self.flags[page as usize] &= !bits::DIRTY;
        let joins = self.disk.write_next == page && self.disk.write_run < MAX_REQUEST;
        self.disk.write_run = if joins { self.disk.write_run + 1 } else { 1 };
        self.disk.writes += u64::from(!joins);
        self.disk.serve(self.now, 1, !joins);
        self.disk.write_next = page + 1;
    }

    #[inline]
    fn has(&self, page: PageId, bit: u8) -> bool {
        self.flags[page as usize] & bit != 0
    }

    /// Whether a page can be written to swap together with a neighbour.
    fn joins_cluster(&self, page: PageId) -> bool {
        const WANTED: u8 = bits::RESIDENT | bits::DIRTY;
        self.flags[page as usize] & WANTED == WANTED && self.young[page as usize] == 0
    }
}

impl Memory for Store {
    fn take_references(&mut self, page: PageId) -> References {
        let mappings = std::mem::take(&mut self.young[page as usize]).count_ones();
        References { mappings, ..References::default() }
    }

    #[inline]
    fn is_resident(&self, page: PageId) -> bool {
        Store::is_resident(self, page)
    }

    fn is_mapped(&self, page: PageId) -> bool {
        self.mapped[page as usize] != 0
    }

    fn now(&self) -> u64 {
        self.now
    }

    /// A page goes: cached if its contents can be had again, else freed (spec: freebsd §3.3). FreeBSD's daemon has
    /// written it before; for other policies it is written here.
    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        debug_assert!(self.is_resident(page));
        if self.has(page, bits::DIRTY) {
            if self.is_anon(page) {
                self.launder(page);
            } else {
                self.write_back(page);
            }
        }
        self.shadows[page as usize] = shadow.0;
        self.flags[page as usize] &= !(bits::RESIDENT | bits::BUFFERED);
        self.flags[page as usize] |= bits::EVICTED;
        self.mapped[page as usize] = 0;
        self.young[page as usize] = 0;
        if self.caches && (!self.is_anon(page) || self.is_on_swap(page)) {
            self.frames.cache(page);
        } else {
            self.frames.free(page);
        }
        Eviction::Freed { pages_written: 0 }
    }

    #[inline]
    fn page_tables(&mut self) -> Option<&mut impl PageTables> {
        Some(self)
    }

    #[inline]
    fn swap(&mut self) -> Option<&mut impl SwapSpace> {
        Some(self)
    }

    #[inline]
    fn writeback(&mut self) -> Option<&mut impl Writeback> {
        Some(self)
    }
}

impl SwapSpace for Store {
    fn free_swap(&self, _lruvec: LruvecId) -> u64 {
        u64::from(u32::MAX)
    }

    fn needs_write(&self, page: PageId) -> bool {
        self.has(page, bits::DIRTY)
    }
}

impl PageTables for Store {
    /// All mappings, 2 MiB at a time; there is no accessed bit above the page.
    fn walk<V: Walk>(&mut self, _lruvec: LruvecId, visitor: &mut V) -> bool {
        let forced = !std::mem::replace(&mut self.walked, true);
        for number in 0..self.objects.len() {
            let object = self.objects[number];
            if object.users == 0 {
                continue;
            }
            let end = object.first + object.pages;
            for start in (object.first..end).step_by(REGION as usize) {
                if !visitor.enters(u64::from(start), None, forced) {
                    continue;
                }
                let stop = (start + REGION).min(end);
                let mut young = 0;
                for page in start..stop {
                    if self.young[page as usize] != 0 && visitor.eligible(page) {
                        self.young[page as usize] = 0;
                        young += 1;
                        visitor.young(page);
                    }
                }
                visitor.leaves(u64::from(start), stop - start, young);
            }
        }
        true
    }

    fn take_references_up_to(&mut self, page: PageId, limit: u32) -> Option<References> {
        let start = self.next_mapping[page as usize];
        let young = &mut self.young[page as usize];
        let mut mappings = 0;
        for slot in (0..8).map(|at| (start + at) % 8) {
            if mappings < limit && *young >> slot & 1 != 0 {
                *young &= !(1 << slot);
                mappings += 1;
                self.next_mapping[page as usize] = (slot + 1) % 8;
            }
        }
        Some(References { mappings, ..References::default() })
    }
}

impl Writeback for Store {
    fn in_use(&self, page: PageId) -> bool {
        self.objects[self.object_of[page as usize] as usize].users > 0
    }

    /// Writes a dirty anonymous page to swap with its dirty neighbours. Dirty file pages are the buffer cache's.
    fn launder(&mut self, page: PageId) -> Option<u32> {
        if !self.is_anon(page) {
            return Some(0);
        }
        let object = self.objects[self.object_of[page as usize] as usize];
        let mut start = page;
        while start > object.first && page - start + 1 < SWAP_CLUSTER && self.joins_cluster(start - 1) {
            start -= 1;
        }
        let mut end = page + 1;
        while end < object.first + object.pages && end - start < SWAP_CLUSTER && self.joins_cluster(end) {
            end += 1;
        }
        for page in start..end {
            self.flags[page as usize] &= !bits::DIRTY;
            self.flags[page as usize] |= bits::ON_SWAP;
        }
        self.vm.swap_pageouts += 1;
        self.vm.swap_pages_out += u64::from(end - start);
        self.disk.write(self.now, u64::from(end - start));
        Some(end - start)
    }
}
