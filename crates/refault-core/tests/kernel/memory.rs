//! Memory that keeps books of everything: mappings with accessed bits, address spaces with regions, page states,
//! swap slots, refusals, and a log of what a policy asked for.
//!
//! The fast policy and its model each get one; the driver does the same to both.

use refault_core::memory::{
    Eviction, IoState, LookAround, Memory, Neighbourhood, PageTables, References, SwapSpace, Walk,
};
use refault_core::{LruvecId, PageId, PageType, Shadow};

/// Pages of a 2 MiB region.
const REGION_PAGES: u64 = 512;
/// Entries that one look-around sees at most.
const WINDOW: u64 = 64;

/// What stays the same in a scenario.
#[derive(Clone, Debug)]
pub struct World {
    /// Page ids `0..anon` are anonymous, `anon..anon + file` belong to a file.
    pub anon: u32,
    pub file: u32,
    /// Distance of neighbouring ids in the address space: 1 packs them, more leaves gaps.
    pub stride: u64,
    /// One file page in `executable` is executable (0: none).
    pub executable: u32,
    /// Swap slots.
    pub swap: u64,
    /// A page swapped in keeps its slot until it is written to.
    pub keeps_slots: bool,
    /// Swap writes take time: the first eviction of a dirty page only starts the write.
    pub slow_swap: bool,
    /// Page tables can be walked.
    pub walkable: bool,
    /// Second-level entries have accessed bits.
    pub region_bits: bool,
    /// Memory cgroups below the root, which get pages in turn (0: all belong to the root).
    pub groups: u16,
}

impl World {
    pub fn pages(&self) -> u32 {
        self.anon + self.file
    }

    pub fn page_type(&self, page: PageId) -> PageType {
        if page < self.anon { PageType::Anon } else { PageType::File }
    }

    /// The group that a page is charged to: runs of eight pages in turn, so that windows have pages of several.
    pub fn lruvec(&self, page: PageId) -> LruvecId {
        (page / 8 % (u32::from(self.groups) + 1)) as LruvecId
    }

    fn is_executable(&self, page: PageId) -> bool {
        self.page_type(page) == PageType::File && self.executable > 0 && page.is_multiple_of(self.executable)
    }

    fn address(&self, page: PageId) -> u64 {
        let apart = if self.page_type(page) == PageType::Anon { 0 } else { 1 << 30 };
        apart + u64::from(page) * self.stride
    }

    /// First and last address of the mapping that holds the page, end exclusive.
    fn mapping(&self, page: PageId) -> (u64, u64) {
        let (first, last) = match self.page_type(page) {
            PageType::Anon => (0, self.anon - 1),
            PageType::File => (self.anon, self.pages() - 1),
        };
        (self.address(first), self.address(last) + 1)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Slot {
    pub resident: bool,
    /// Two places where the page may be mapped, and their accessed bits.
    pub mapped: [bool; 2],
    pub young: [bool; 2],
    pub dirty: bool,
    pub writeback: bool,
    pub locked: bool,
    pub unevictable: bool,
    pub refusal: Option<Eviction>,
    pub has_swap_slot: bool,
    pub shadow: Option<Shadow>,
}

/// What a policy asked for, and what it said about regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    References(PageId),
    LookAround(PageId),
    Walk { lruvec: LruvecId, region: u64, entered: bool },
}

pub struct TestMemory {
    pub world: World,
    pub slots: Vec<Slot>,
    swap_used: u64,
    /// Regions whose second-level accessed bit is set, for each group's address space.
    young_regions: Vec<(LruvecId, u64)>,
    /// By group: the address space ran since the last walk; it was walked before.
    ran: Vec<bool>,
    walked: Vec<bool>,
    pub evicted: Vec<PageId>,
    pub asked: Vec<Asked>,
}

impl TestMemory {
    pub fn new(world: World) -> TestMemory {
        let groups = usize::from(world.groups) + 1;
        TestMemory {
            slots: vec![Slot::default(); world.pages() as usize],
            swap_used: 0,
            young_regions: Vec::new(),
            ran: vec![false; groups],
            walked: vec![false; groups],
            evicted: Vec::new(),
            asked: Vec::new(),
            world,
        }
    }

    pub fn slot(&mut self, page: PageId) -> &mut Slot {
        &mut self.slots[page as usize]
    }

    pub fn resident(&self, page: PageId) -> bool {
        self.slots[page as usize].resident
    }

    /// Resident pages of the groups.
    pub fn usage(&self, groups: &[LruvecId]) -> usize {
        (0..self.world.pages()).filter(|p| self.resident(*p) && groups.contains(&self.world.lruvec(*p))).count()
    }

    /// The page comes in.
    pub fn bring_in(&mut self, page: PageId) {
        let keeps = self.world.keeps_slots;
        let anon = self.world.page_type(page) == PageType::Anon;
        let slot = self.slot(page);
        assert!(!slot.resident);
        *slot = Slot { resident: true, has_swap_slot: slot.has_swap_slot, refusal: slot.refusal, ..Slot::default() };
        slot.dirty = anon && !slot.has_swap_slot;
        if slot.has_swap_slot && !keeps {
            self.release_swap_slot(page);
        }
    }

    /// An access through one of the two mappings.
    pub fn touch(&mut self, page: PageId, mapping: usize, write: bool) {
        let group = self.world.lruvec(page);
        let region = (group, self.world.address(page) / REGION_PAGES);
        if !self.young_regions.contains(&region) {
            self.young_regions.push(region);
        }
        self.ran[usize::from(group)] = true;
        let keeps = self.world.keeps_slots;
        let slot = self.slot(page);
        slot.mapped[mapping] = true;
        slot.young[mapping] = true;
        slot.dirty |= write;
        // A page that was found in the swap cache leaves it there only where slots are kept.
        if slot.has_swap_slot && (write || !keeps && !slot.writeback) {
            self.release_swap_slot(page);
        }
    }

    /// The page goes with its contents; its slot goes too.
    pub fn drop_page(&mut self, page: PageId) {
        if self.slot(page).has_swap_slot {
            self.release_swap_slot(page);
        }
        *self.slot(page) = Slot { refusal: self.slots[page as usize].refusal, ..Slot::default() };
    }

    fn release_swap_slot(&mut self, page: PageId) {
        self.slot(page).has_swap_slot = false;
        self.slot(page).dirty = true;
        self.swap_used -= 1;
    }

    /// Clears the accessed bits of a page's entries and says whether one was set.
    fn take_young(&mut self, page: PageId) -> bool {
        std::mem::take(&mut self.slot(page).young) != [false; 2]
    }

    /// Present entries with addresses in the range and pages of the group, in the order of addresses.
    fn mapped_in(&self, group: LruvecId, start: u64, end: u64) -> Vec<PageId> {
        (0..self.world.pages())
            .filter(|p| {
                let address = self.world.address(*p);
                self.world.lruvec(*p) == group
                    && (start..end).contains(&address)
                    && self.resident(*p)
                    && self.slots[*p as usize].mapped != [false; 2]
            })
            .collect()
    }
}

impl Memory for TestMemory {
    fn take_references(&mut self, page: PageId) -> References {
        assert!(self.resident(page), "reference check of page {page}, which is not resident");
        let slot = self.slot(page);
        let mappings = slot.young.iter().filter(|y| **y).count() as u32;
        slot.young = [false; 2];
        if self.slots[page as usize].mapped != [false; 2] {
            self.asked.push(Asked::References(page));
        }
        References { mappings, executable: mappings > 0 && self.world.is_executable(page), locked: false }
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.resident(page)
    }

    fn is_mapped(&self, page: PageId) -> bool {
        self.slots[page as usize].mapped != [false; 2]
    }

    fn io_state(&self, page: PageId) -> IoState {
        let slot = &self.slots[page as usize];
        let mut state = IoState::CLEAN;
        for (set, bit) in [
            (slot.dirty, IoState::DIRTY),
            (slot.writeback, IoState::WRITEBACK),
            (slot.locked, IoState::LOCKED),
            (slot.unevictable, IoState::UNEVICTABLE),
        ] {
            state = if set { state.with(bit) } else { state };
        }
        state
    }

    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        let anon = self.world.page_type(page) == PageType::Anon;
        let (free_slots, slow) = (self.world.swap - self.swap_used, self.world.slow_swap);
        let slot = self.slot(page);
        assert!(slot.resident, "eviction of page {page}, which is not resident");
        assert!(!slot.writeback && !slot.locked && !slot.unevictable, "page {page} may not be evicted: {slot:?}");
        if let Some(refusal) = slot.refusal {
            slot.writeback = refusal == Eviction::WriteStarted;
            return refusal;
        }
        if !anon && slot.dirty || anon && !slot.has_swap_slot && free_slots == 0 {
            return Eviction::Refused;
        }
        let mut pages_written = 0;
        if anon {
            pages_written = u32::from(slot.dirty);
            let takes_slot = !std::mem::replace(&mut slot.has_swap_slot, true);
            if slow && slot.dirty {
                slot.writeback = true;
                self.swap_used += u64::from(takes_slot);
                return Eviction::WriteStarted;
            }
            self.swap_used += u64::from(takes_slot);
        }
        let slot = self.slot(page);
        *slot = Slot { has_swap_slot: anon, shadow: Some(shadow), refusal: slot.refusal, ..Slot::default() };
        self.evicted.push(page);
        Eviction::Freed { pages_written }
    }

    fn page_tables(&mut self) -> Option<&mut impl PageTables> {
        Some(self)
    }

    fn swap(&mut self) -> Option<&mut impl SwapSpace> {
        Some(self)
    }
}

impl SwapSpace for TestMemory {
    fn evict_held(&mut self, page: PageId) -> Eviction {
        let anon = self.world.page_type(page) == PageType::Anon;
        let full = self.world.swap == self.swap_used;
        let slot = self.slot(page);
        assert!(slot.resident && !slot.writeback && !slot.locked && !slot.unevictable, "page {page}: {slot:?}");
        if !anon && slot.dirty || anon && !slot.has_swap_slot && full {
            return Eviction::Refused;
        }
        (slot.mapped, slot.young) = ([false; 2], [false; 2]);
        let takes_slot = anon && !std::mem::replace(&mut slot.has_swap_slot, anon);
        self.swap_used += u64::from(takes_slot);
        Eviction::Kept
    }

    fn in_swap_cache(&self, page: PageId) -> Option<bool> {
        Some(self.slots[page as usize].has_swap_slot)
    }

    fn free_swap(&self, _lruvec: LruvecId) -> u64 {
        self.world.swap - self.swap_used
    }

    fn has_swap(&self) -> bool {
        self.world.swap > 0
    }
}

impl PageTables for TestMemory {
    fn look_around<V: LookAround>(&mut self, page: PageId, visitor: &mut V) -> Option<Neighbourhood> {
        self.asked.push(Asked::LookAround(page));
        let address = self.world.address(page);
        let region = address / REGION_PAGES;
        let (mut start, mut end) = self.world.mapping(page);
        start = start.max(region * REGION_PAGES);
        end = end.min((region + 1) * REGION_PAGES);
        if end - start > WINDOW {
            if address - start < WINDOW / 2 {
                end = start + WINDOW;
            } else if end - address < WINDOW / 2 {
                start = end - WINDOW;
            } else {
                (start, end) = (address - WINDOW / 2, address + WINDOW / 2);
            }
        }
        if end - start <= 1 {
            return None;
        }
        let mut young = 1;
        for neighbour in self.mapped_in(self.world.lruvec(page), start, end) {
            let is_young = self.slots[neighbour as usize].young != [false; 2];
            if neighbour != page && is_young && visitor.eligible(neighbour) {
                self.take_young(neighbour);
                visitor.young(neighbour);
                young += 1;
            }
        }
        let region = region_key(self.world.lruvec(page), region);
        Some(Neighbourhood { region, entries: (end - start) as u32, young })
    }

    fn walk<V: Walk>(&mut self, lruvec: LruvecId, visitor: &mut V) -> bool {
        if !self.world.walkable {
            return false;
        }
        let group = usize::from(lruvec);
        let forced = !std::mem::replace(&mut self.walked[group], true);
        if !std::mem::take(&mut self.ran[group]) && !forced {
            return true;
        }
        visitor.starts();
        let mut regions: Vec<u64> =
            self.mapped_in(lruvec, 0, u64::MAX).iter().map(|p| self.world.address(*p) / REGION_PAGES).collect();
        regions.dedup();
        for region in regions {
            let key = (lruvec, region);
            let accessed = self.young_regions.contains(&key);
            self.young_regions.retain(|r| *r != key);
            let accessed = self.world.region_bits.then_some(accessed);
            let key = region_key(lruvec, region);
            let entered = visitor.enters(key, accessed, forced);
            self.asked.push(Asked::Walk { lruvec, region, entered });
            if !entered {
                continue;
            }
            let present = self.mapped_in(lruvec, region * REGION_PAGES, (region + 1) * REGION_PAGES);
            let entries = present.len() as u32;
            let mut young = 0;
            for page in present {
                if self.slots[page as usize].young != [false; 2] && visitor.eligible(page) {
                    self.take_young(page);
                    visitor.young(page);
                    young += 1;
                }
            }
            visitor.leaves(key, entries, young);
        }
        true
    }
}

/// Keys differ between address spaces.
fn region_key(group: LruvecId, region: u64) -> u64 {
    region + (u64::from(group) << 40)
}
