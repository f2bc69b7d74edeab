//! Address spaces, their mappings and page-table entries.
//!
//! A *mapping* shows a whole segment in an address space and has one byte per page for its page-table entries.
//! Invariant: an entry is present only while its page is resident. Cost: mapping is one byte, unmapping one a mapping
//! of the segment.
//!
//! Kernel: `try_to_unmap`, `folio_referenced` in `mm/rmap.c`; `zap_present_folio_ptes` in `mm/memory.c`.

use refault_core::PageId;

use super::{MachineMemory, REGION_PAGES};
use crate::machine::group::GroupId;

/// Bits of a page-table entry.
pub mod entry {
    /// The page is there.
    pub const PRESENT: u8 = 1;
    /// Accessed.
    pub const YOUNG: u8 = 2;
    /// May be written without a fault.
    pub const WRITABLE: u8 = 4;
}

/// A segment in an address space.
#[derive(Debug)]
pub struct Mapping {
    /// What is mapped, from its first page to its last.
    pub segment: usize,
    /// Where.
    pub address_space: usize,
    /// Page-table entries; see [`entry`].
    pub entries: Vec<u8>,
    /// Accessed bits of the 2 MiB regions.
    pub regions: Vec<bool>,
    /// Key of the first region.
    pub region_base: u64,
    /// Program text.
    pub executable: bool,
    /// Accesses through it say how soon the page is wanted again: not so where the program said that it reads at
    /// random. Without, accessed bits are neither counted nor cleared (spec: overview §2).
    pub recency: bool,
}

/// What a task sees.
#[derive(Debug)]
pub struct AddressSpace {
    /// The group its anonymous memory is charged to.
    pub group: GroupId,
    /// Its mappings.
    pub mappings: Vec<usize>,
    /// Exists.
    pub alive: bool,
    /// Nodes whose walks have not looked at it since it last ran: a bit each.
    pub used: u64,
    /// Number of joinings before it, over all address spaces.
    pub joined: u64,
}

impl MachineMemory {
    /// Adds an address space that charges its memory to `group`.
    pub fn add_address_space(&mut self, group: GroupId) -> usize {
        self.joinings += 1;
        self.address_spaces.push(AddressSpace {
            group,
            mappings: Vec::new(),
            alive: true,
            used: u64::MAX,
            joined: self.joinings,
        });
        self.address_spaces.len() - 1
    }

    /// A killed or ended program starts again in the same place.
    pub fn revive(&mut self, address_space: usize) {
        self.joinings += 1;
        let space = &mut self.address_spaces[address_space];
        (space.alive, space.joined, space.used) = (true, self.joinings, u64::MAX);
    }

    /// Maps a whole segment into an address space.
    pub fn add_mapping(&mut self, address_space: usize, segment: usize, executable: bool) -> usize {
        let pages = self.segments[segment].pages as usize;
        let index = self.mappings.len();
        let regions = pages.div_ceil(REGION_PAGES);
        self.mappings.push(Mapping {
            segment,
            address_space,
            entries: vec![0; pages],
            regions: vec![false; regions],
            region_base: self.next_region,
            executable,
            recency: true,
        });
        self.next_region += regions as u64;
        self.segments[segment].mappings.push(index);
        self.address_spaces[address_space].mappings.push(index);
        index
    }

    /// Maps a resident page; young, and writable if `write`.
    #[inline]
    pub fn map(&mut self, mapping: usize, page: PageId, write: bool, young: bool) {
        let target = &mut self.mappings[mapping];
        let offset = (page - self.segments[target.segment].first) as usize;
        let mut bits = target.entries[offset] | entry::PRESENT;
        if young {
            bits |= entry::YOUNG;
            target.regions[offset / REGION_PAGES] = true;
        }
        if write {
            bits |= entry::WRITABLE;
        }
        target.entries[offset] = bits;
    }

    /// Clears all entries of a page; how many there were.
    pub(super) fn unmap(&mut self, page: PageId) -> u64 {
        let segment = self.segment_of[page as usize / REGION_PAGES] as usize;
        let segment = &self.segments[segment];
        let offset = (page - segment.first) as usize;
        let mut cleared = 0;
        for &mapping in &segment.mappings {
            let bits = &mut self.mappings[mapping].entries[offset];
            cleared += u64::from(*bits & entry::PRESENT != 0);
            *bits = 0;
        }
        self.unmapped += cleared;
        cleared
    }

    /// Whether any entry maps the page.
    pub fn mapped(&self, page: PageId) -> bool {
        let segment = self.segment(page);
        let offset = (page - segment.first) as usize;
        segment.mappings.iter().any(|m| self.mappings[*m].entries[offset] & entry::PRESENT != 0)
    }
}

impl Mapping {
    /// Page-table entries of mapping `mapping` from `start` to `end` whose page is young and wanted: clears the bit and
    /// reports them. Returns how many.
    pub(super) fn harvest(
        mapping: &mut Mapping,
        first: PageId,
        range: std::ops::Range<usize>,
        mut report: impl FnMut(PageId) -> bool,
    ) -> u32 {
        const WANTED: u8 = entry::PRESENT | entry::YOUNG;
        let mut found = 0;
        for (offset, bits) in mapping.entries[range.clone()].iter_mut().enumerate() {
            if *bits & WANTED == WANTED && report(first + (range.start + offset) as PageId) {
                *bits &= !entry::YOUNG;
                found += 1;
            }
        }
        found
    }
}
