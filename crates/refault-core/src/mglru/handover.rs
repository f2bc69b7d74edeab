//! Pages leave the generations for the classic lists, and come back (`lru_gen/enabled`; spec: mglru §15, §4, §5).
//!
//! Kernel: `drain_evictable`, `fill_evictable` in `mm/vmscan.c`.

use crate::memory::Memory;
use crate::mglru::Mglru;
use crate::page::{PageId, PageType};
use crate::reclaim::record::ACTIVE;
use crate::switching::Handover;

impl Mglru {
    /// Takes every page off its list; those of the two youngest generations are active. Window, averages and filters
    /// stay for the return.
    pub(crate) fn leave(&mut self) -> Handover {
        self.drain_batches();
        let mut pages: Vec<PageId> = Vec::new();
        for lruvec in &self.lruvecs {
            for t in PageType::ALL.map(PageType::index) {
                // All slots, since a page may stand on a list whose generation has left the window.
                let slots = lruvec.window.max;
                for age in (0..slots).rev() {
                    pages.extend(lruvec.lists[lruvec.slot(lruvec.max_seq + slots - age)][t].iter());
                }
            }
        }
        for page in &pages {
            let lruvec = &self.lruvecs[self.records[*page as usize].lruvec as usize];
            let active = [lruvec.youngest(), lruvec.slot(lruvec.max_seq - 1)];
            if self.unlink(*page).is_some_and(|generation| active.contains(&generation)) {
                self.records[*page as usize].set(ACTIVE);
            }
        }
        Handover { records: std::mem::take(&mut self.records), pages }
    }

    /// Takes over pages as if they had just come in: active ones into the youngest generation.
    pub(crate) fn enter<M: Memory>(&mut self, handover: Handover, memory: &M) {
        self.records = handover.records;
        for page in handover.pages {
            self.insert(page, self.insertion(page, memory));
        }
    }

    /// Whether aging walks page tables and whether walks use second-level accessed bits, from now on.
    pub(crate) fn set_walks(&mut self, walks: bool, region_bits: bool) {
        self.params.walks = walks;
        self.params.region_bits = region_bits;
    }
}
