//! What the policy may ask of the memory, and how it evicts: [`Memory`] for the machine.
//!
//! Callbacks take effect at once; the CPU time they stand for goes to the ledger, to be charged to the policy's
//! caller. Cost: `evict` is O(mappings of the segment); a walk is one byte per entry of the regions entered.
//! Kernel: `folio_referenced`, `try_to_unmap` in `mm/rmap.c`; `pageout`, `__remove_mapping`, `walk_mm`,
//! `lru_gen_look_around` in `mm/vmscan.c`.
//! Source: spec: overview §5 (rows 10 to 19), mglru §7, §8.

use refault_core::memory::{
    Eviction, Groups, IoState, LookAround, Memory, Neighbourhood, NodeFrames, PageTables, Protection, References,
    SwapSpace, Walk, Writeback,
};
use refault_core::{LruvecId, PageId, Shadow};

use super::{MachineMemory, Mapping, REGION_PAGES, entry, state};
use crate::machine::costs::Work;

/// Entries that a window of [`PageTables::look_around`] has at most.
const WINDOW: usize = 64;

impl Memory for MachineMemory {
    fn take_references(&mut self, page: PageId) -> References {
        let mut references = References::default();
        let bits = &mut self.state[page as usize];
        if *bits & (state::TOUCHED | state::HINT) != 0 {
            *bits &= !(state::TOUCHED | state::HINT);
            references.mappings = 1;
        }
        let segment = &self.segments[self.segment_of[page as usize / REGION_PAGES] as usize];
        let offset = (page - segment.first) as usize;
        let mut followed = 0;
        for &index in &segment.mappings {
            let mapping = &mut self.mappings[index];
            let bits = mapping.entries[offset];
            if bits & entry::PRESENT == 0 || !mapping.recency {
                continue;
            }
            if let Some(scope) = self.reference_scope {
                let group = self.address_spaces[mapping.address_space].group;
                if group != scope && !self.groups.is_below(group, scope) {
                    continue;
                }
            }
            followed += 1;
            if bits & entry::YOUNG != 0 {
                mapping.entries[offset] = bits & !entry::YOUNG;
                references.mappings += 1;
                references.executable |= mapping.executable;
            }
        }
        if references.mappings > 0 {
            self.state[page as usize] &= !state::IDLE;
        }
        self.ledger.book(Work::ReverseMap, followed * self.costs.reverse_map);
        references
    }

    #[inline]
    fn prefetch_hint(&self, page: PageId) -> u64 {
        let at = page as usize;
        let segment = &self.segments[self.segment_of[at / REGION_PAGES] as usize];
        let offset = at - segment.first as usize;
        let entries = segment.mappings.iter().map(|mapping| self.mappings[*mapping].entries[offset]);
        let entries = entries.fold(0, |sum, bits| sum ^ u64::from(bits));
        entries ^ u64::from(self.state[at]) ^ u64::from(self.lruvec[at]) ^ self.shadows[at]
    }

    #[inline]
    fn is_resident(&self, page: PageId) -> bool {
        self.state[page as usize] & state::RESIDENT != 0
    }

    #[inline]
    fn is_mapped(&self, page: PageId) -> bool {
        self.mapped(page)
    }

    #[inline]
    fn io_state(&self, page: PageId) -> IoState {
        let bits = self.state[page as usize];
        let mut io = IoState::CLEAN;
        if bits & state::LOCKED != 0 {
            io = io.with(IoState::LOCKED);
        }
        if bits & state::WRITEBACK != 0 {
            io = io.with(IoState::WRITEBACK);
        }
        if bits & state::DIRTY != 0 && self.is_file(page) {
            io = io.with(IoState::DIRTY);
        }
        io
    }

    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        let bits = self.state[page as usize];
        debug_assert!(bits & state::RESIDENT != 0, "page {page} is evicted twice");
        if bits & (state::LOCKED | state::WRITEBACK) != 0 {
            return Eviction::Kept;
        }
        let mut pages_written = 0;
        if self.is_file(page) {
            if bits & state::DIRTY != 0 {
                self.counters.nr_vmscan_write += 1;
                self.write_file_page(page);
                if self.has(page, state::WRITEBACK) {
                    return Eviction::WriteStarted;
                }
                pages_written = 1;
            }
        } else if bits & state::SLOT == 0 || bits & state::DIRTY != 0 {
            if bits & state::SLOT == 0 && !self.take_slot(page) {
                return Eviction::Refused;
            }
            let cleared = self.unmap(page);
            self.ledger.book(Work::Batch, cleared * self.costs.unmap);
            if !self.swap_out(page) {
                return Eviction::WriteStarted;
            }
            pages_written = 1;
        }
        let cleared = self.unmap(page);
        self.ledger.book(Work::Batch, cleared * self.costs.unmap + self.costs.remove_page);
        if self.is_file(page) {
            self.note_removed(page);
        }
        let slot = self.state[page as usize] & state::SLOT;
        self.release_frame(page, state::SEEN | slot);
        self.shadows[page as usize] = shadow.0;
        Eviction::Freed { pages_written }
    }

    #[inline]
    fn now(&self) -> u64 {
        self.now
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
    fn groups(&mut self) -> Option<&mut impl Groups> {
        Some(self)
    }

    #[inline]
    fn writeback(&mut self) -> Option<&mut impl Writeback> {
        Some(self)
    }
}

impl SwapSpace for MachineMemory {
    #[inline]
    fn free_swap(&self, lruvec: LruvecId) -> u64 {
        (self.swap.pages - self.swap.used).min(self.groups.swap_headroom(self.group_of(lruvec)))
    }

    #[inline]
    fn has_swap(&self) -> bool {
        self.swap.pages > 0
    }

    #[inline]
    fn needs_write(&self, page: PageId) -> bool {
        let bits = self.state[page as usize];
        bits & state::DIRTY != 0 || (bits & state::SLOT == 0 && !self.is_file(page))
    }
}

impl Writeback for MachineMemory {
    fn wake_flushers(&mut self) {
        self.flushers_woken = true;
    }

    /// Not where background reclaim has given the node up, nor while less than half of what could be reclaimed waits to
    /// be written (spec: classic §10).
    fn congested(&mut self, lruvec: LruvecId) {
        let anon: u64 = if self.swap.used < self.swap.pages {
            self.nodes.iter().map(|node| node.managed - node.free).sum::<u64>().saturating_sub(self.file_pages)
        } else {
            0
        };
        let pending = self.dirty + self.writeback;
        if !self.nodes[self.node_of(lruvec)].is_hopeless() && 2 * pending > self.file_pages + anon {
            self.congestion_ticks += 1;
        }
    }
}

impl PageTables for MachineMemory {
    fn look_around<V: LookAround>(&mut self, page: PageId, visitor: &mut V) -> Option<Neighbourhood> {
        let segment = &self.segments[self.segment_of[page as usize / REGION_PAGES] as usize];
        let (first, at) = (segment.first, (page - segment.first) as usize);
        // The mapping through which the page was found young: the first that has it. For memory that several address
        // spaces share, one of them stands for all.
        let shows = |m: &usize| self.mappings[*m].recency && self.mappings[*m].entries[at] & entry::PRESENT != 0;
        let index = segment.mappings.iter().copied().find(shows)?;
        let mapping = &mut self.mappings[index];
        let region = at / REGION_PAGES;
        let (mut start, mut end) = (region * REGION_PAGES, ((region + 1) * REGION_PAGES).min(mapping.entries.len()));
        if end - start > WINDOW {
            if at - start < WINDOW / 2 {
                end = start + WINDOW;
            } else if end - at < WINDOW / 2 {
                start = end - WINDOW;
            } else {
                (start, end) = (at - WINDOW / 2, at + WINDOW / 2);
            }
        }
        if end - start <= 1 {
            return None;
        }
        let young = Mapping::harvest(mapping, first, start..end, |neighbour| {
            let wanted = neighbour != page && visitor.eligible(neighbour);
            if wanted {
                visitor.young(neighbour);
            }
            wanted
        });
        let entries = (end - start) as u32;
        self.ledger.book(Work::LookAround, u64::from(entries) * self.costs.look_around_entry);
        Some(Neighbourhood { region: mapping.region_base + region as u64, entries, young: young + 1 })
    }

    fn walk<V: Walk>(&mut self, lruvec: LruvecId, visitor: &mut V) -> bool {
        let (group, node_bit) = (self.group_of(lruvec), 1u64 << (self.node_of(lruvec) & 63));
        let seen = self.walked[usize::from(lruvec)];
        let mut entries_seen = 0u64;
        let mut regions_seen = 0u64;
        for space in 0..self.address_spaces.len() {
            let address_space = &mut self.address_spaces[space];
            if !address_space.alive || address_space.group != group {
                continue;
            }
            let forced = address_space.joined > seen;
            if !forced {
                if address_space.used & node_bit == 0 && !visitor.forced() {
                    continue;
                }
                address_space.used &= !node_bit;
            }
            visitor.starts();
            for at in 0..self.address_spaces[space].mappings.len() {
                let index = self.address_spaces[space].mappings[at];
                let mapping = &mut self.mappings[index];
                if !mapping.recency {
                    continue;
                }
                let first = self.segments[mapping.segment].first;
                for region in 0..mapping.regions.len() {
                    let accessed = std::mem::take(&mut mapping.regions[region]);
                    regions_seen += 1;
                    let key = mapping.region_base + region as u64;
                    if !visitor.enters(key, Some(accessed), forced) {
                        continue;
                    }
                    let start = region * REGION_PAGES;
                    let end = (start + REGION_PAGES).min(mapping.entries.len());
                    entries_seen += (end - start) as u64;
                    let young = Mapping::harvest(mapping, first, start..end, |page| {
                        let wanted = visitor.eligible(page);
                        if wanted {
                            visitor.young(page);
                        }
                        wanted
                    });
                    visitor.leaves(key, (end - start) as u32, young);
                }
            }
        }
        self.walked[usize::from(lruvec)] = self.joinings;
        self.ledger
            .book(Work::TableWalk, regions_seen * self.costs.table_region + entries_seen * self.costs.table_entry);
        true
    }
}

impl Groups for MachineMemory {
    #[inline]
    fn protection(&self, lruvec: LruvecId) -> Option<Protection> {
        if !self.groups.are_protected() {
            return None;
        }
        let group = &self.groups[self.group_of(lruvec)];
        group.parent.map(|_| Protection { usage: group.usage, min: group.effective_min, low: group.effective_low })
    }

    #[inline]
    fn node_frames(&self, lruvec: LruvecId) -> NodeFrames {
        let node = &self.nodes[self.node_of(lruvec)];
        NodeFrames { free: node.free, high_watermark: node.watermarks.high }
    }

    fn low_event(&mut self, lruvec: LruvecId) {
        let group = self.group_of(lruvec);
        self.groups.count_event(group, |events| events.low += 1);
    }
}
