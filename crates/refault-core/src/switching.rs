//! Both kernels' list systems over one set of pages, of which one is in force: `lru_gen/enabled`, while running.
//!
//! Writing to that file moves every page between the systems: out of the generations, those of the two youngest onto
//! the active lists and the others onto the inactive ones; into the generations by the rules for pages that come in,
//! active ones into the youngest. What a system knows beside its pages (the window and averages of the one, the clock
//! and costs of the other) waits for its return. A shadow entry is read by whichever system is in force.
//!
//! Pages keep their order: the kernel's lists are emptied from the tail, oldest generation first.
//!
//! Invariants: the system that is not in force has no page and no record. Cost: a switch is O(pages); everything else
//! as the system in force, with one branch before it.
//!
//! Kernel: `lru_gen_change_state`, `enabled_store` in `mm/vmscan.c`.
//! Source: spec: mglru §15, §4, §5.
//!
//! ```
//! use refault_core::policy::{Enabled, PolicySpec};
//! use refault_core::switching::Switching;
//!
//! let policy = Switching::of(&PolicySpec::parse("classic{swappiness=100}")?).expect("a kernel's lists");
//! assert_eq!(policy.enabled().to_string(), "0x0006"); // the classic lists; walks are on for when it is switched
//! assert_eq!("y".parse::<Enabled>()?.to_string(), "0x0007");
//! assert!(Switching::of(&PolicySpec::parse("sieve")?).is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::counters::Counters;
use crate::memory::Memory;
use crate::page::{LruvecId, PageId};
use crate::parameter::fill;
use crate::policy::{
    Admission, BackgroundPass, Enabled, EvictGenerations, GenerationCommands, GenerationDetails, GenerationError,
    GenerationSize, HitReport, Lists, NewGeneration, NodeReclaim, PassOutcome, Policy, PolicySpec, ProactiveRequest,
    ReclaimRequest, SortRule, Sorting, SwitchLists,
};
use crate::reclaim::record::PageRecord;
use crate::{Classic, ClassicParams, Mglru, MglruParams};

/// Pages on their way from one system to the other, on no list.
pub(crate) struct Handover {
    /// What both systems keep of each page.
    pub records: Vec<PageRecord>,
    /// The pages that were on lists, in the order in which they go onto the others.
    pub pages: Vec<PageId>,
}

/// See the module.
pub struct Switching {
    generations: Mglru,
    classic: Classic,
    enabled: Enabled,
}

/// Does the same with whichever system is in force.
macro_rules! in_force {
    ($self:ident, $system:ident => $what:expr) => {
        if $self.enabled.core {
            let $system = &mut $self.generations;
            $what
        } else {
            let $system = &mut $self.classic;
            $what
        }
    };
}

impl Switching {
    /// Both systems, empty.
    pub fn new(generations: MglruParams, classic: ClassicParams, core: bool) -> Switching {
        let enabled = Enabled { core, walks: generations.walks, region_bits: generations.region_bits };
        Switching { generations: Mglru::new(generations), classic: Classic::new(classic), enabled }
    }

    /// Both systems: the one that is specified, in force, and the other with its defaults. Swappiness, batches and
    /// whether shadow entries are bounded are the specified one's in both: they are the kernel's and not a system's.
    /// `None`: it specifies neither.
    pub fn of(spec: &PolicySpec) -> Option<Switching> {
        const CHECKED: &str = "invariant: a specification is checked";
        let (generations, classic) = (MglruParams::default(), ClassicParams::default());
        match spec.entry.name {
            "mglru" | "mglru-refault" => {
                let start = if spec.entry.name == "mglru" { generations } else { MglruParams::with_refault_distance() };
                let own = fill(start, &spec.call).expect(CHECKED);
                let MglruParams { swappiness, batch, shadow_nodes, .. } = own;
                let classic = ClassicParams { swappiness, batch, shadow_nodes, ..classic };
                Some(Switching::new(own, classic, true))
            }
            "classic" | "classic-shadow" => {
                let start = if spec.entry.name == "classic" { classic } else { ClassicParams::shadow_lru() };
                let own = fill(start, &spec.call).expect(CHECKED);
                let ClassicParams { swappiness, batch, shadow_nodes, .. } = own;
                let generations = MglruParams { swappiness, batch, shadow_nodes, ..generations };
                Some(Switching::new(generations, own, false))
            }
            _ => None,
        }
    }

    /// What `lru_gen/enabled` reads.
    pub fn enabled(&self) -> Enabled {
        self.enabled
    }
}

impl SwitchLists for Switching {
    fn set_enabled<M: Memory>(&mut self, enabled: Enabled, memory: &mut M) {
        self.generations.set_walks(enabled.walks, enabled.region_bits);
        match (self.enabled.core, enabled.core) {
            (true, false) => {
                let handover = self.generations.leave();
                self.classic.enter(handover);
            }
            (false, true) => {
                let handover = self.classic.leave();
                self.generations.enter(handover, memory);
            }
            _ => {}
        }
        self.enabled = enabled;
    }
}

impl Policy for Switching {
    const HITS: HitReport = HitReport::Kernel;
    const RECLAIM_BATCH: u32 = Mglru::RECLAIM_BATCH;

    fn admit<M: Memory>(&mut self, page: PageId, admission: &Admission, memory: &mut M) {
        in_force!(self, system => system.admit(page, admission, memory));
    }

    fn accessed<M: Memory>(&mut self, page: PageId, memory: &mut M) {
        in_force!(self, system => system.accessed(page, memory));
    }

    fn freed(&mut self, page: PageId) {
        in_force!(self, system => system.freed(page));
    }

    fn forgotten(&mut self, page: PageId) {
        in_force!(self, system => system.forgotten(page));
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        in_force!(self, system => system.reclaim(request, memory))
    }

    fn grow(&mut self, pages: usize) {
        in_force!(self, system => system.grow(pages));
    }

    fn set_capacity(&mut self, pages: usize) {
        self.generations.set_capacity(pages);
        self.classic.set_capacity(pages);
    }

    fn counters(&self) -> Counters {
        let mut counters = self.generations.counters();
        counters.add(&self.classic.counters());
        counters
    }

    fn metadata_bytes(&self) -> usize {
        self.generations.metadata_bytes() + self.classic.metadata_bytes()
    }

    fn nodes(&mut self) -> Option<&mut impl NodeReclaim> {
        Some(self)
    }

    fn generation_commands(&mut self) -> Option<&mut impl GenerationCommands> {
        Some(self)
    }

    fn sorting(&mut self) -> Option<&mut impl Sorting> {
        Some(self)
    }

    fn lists(&self) -> Option<&impl Lists> {
        Some(self)
    }
}

impl NodeReclaim for Switching {
    fn add_lruvec(&mut self, parent: Option<LruvecId>) -> LruvecId {
        let id = self.generations.add_lruvec(parent);
        assert_eq!(self.classic.add_lruvec(parent), id, "invariant: both systems have the same lruvecs");
        id
    }

    fn reclaim_nodes<M: Memory>(&mut self, roots: &[LruvecId], memory: &mut M) -> u32 {
        in_force!(self, system => system.reclaim_nodes(roots, memory))
    }

    fn background_pass<M: Memory>(&mut self, pass: &BackgroundPass, memory: &mut M) -> PassOutcome {
        in_force!(self, system => system.background_pass(pass, memory))
    }

    fn background_done(&mut self, root: LruvecId, balanced: bool) {
        in_force!(self, system => system.background_done(root, balanced));
    }

    fn reclaim_proactively<M: Memory>(&mut self, request: &ProactiveRequest, memory: &mut M) -> u32 {
        in_force!(self, system => system.reclaim_proactively(request, memory))
    }

    fn page_out<M: Memory>(&mut self, page: PageId, memory: &mut M) -> bool {
        in_force!(self, system => system.page_out(page, memory))
    }

    fn write_finished(&mut self, page: PageId) {
        in_force!(self, system => system.write_finished(page));
    }

    fn made_evictable(&mut self, page: PageId) {
        in_force!(self, system => system.made_evictable(page));
    }

    fn is_workingset(&self, page: PageId) -> bool {
        if self.enabled.core { self.generations.is_workingset(page) } else { self.classic.is_workingset(page) }
    }
}

impl GenerationCommands for Switching {
    /// With the classic lists in force there are no generations to make or evict.
    fn new_generation<M: Memory>(&mut self, request: &NewGeneration, memory: &mut M) -> Result<(), GenerationError> {
        if !self.enabled.core {
            return Err(GenerationError::Unsupported);
        }
        self.generations.new_generation(request, memory)
    }

    fn evict_generations<M: Memory>(
        &mut self,
        request: &EvictGenerations,
        memory: &mut M,
    ) -> Result<u64, GenerationError> {
        if !self.enabled.core {
            return Err(GenerationError::Unsupported);
        }
        self.generations.evict_generations(request, memory)
    }

    fn switch_lists(&mut self) -> Option<&mut impl SwitchLists> {
        Some(self)
    }
}

impl Sorting for Switching {
    fn prioritise<M: Memory>(&mut self, page: PageId, rule: SortRule, memory: &mut M) {
        in_force!(self, system => system.prioritise(page, rule, memory));
    }

    fn deprioritise<M: Memory>(&mut self, page: PageId, rule: SortRule, memory: &mut M) {
        in_force!(self, system => system.deprioritise(page, rule, memory));
    }
}

impl Lists for Switching {
    /// The window is listed whichever system is in force, empty where the classic lists are.
    fn generations(&self, lruvec: LruvecId) -> Vec<GenerationSize> {
        self.generations.generations(lruvec)
    }

    fn generation_details(&self, lruvec: LruvecId) -> Vec<GenerationDetails> {
        self.generations.generation_details(lruvec)
    }

    fn leader(&self) -> Option<&'static str> {
        Some(if self.enabled.core { "generations" } else { "classic lists" })
    }

    fn active_inactive(&self) -> Option<[u64; 2]> {
        if self.enabled.core { self.generations.active_inactive() } else { self.classic.active_inactive() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Eviction, References};
    use crate::page::{PageType, Shadow};

    /// Pages that are never referenced and can always go; notes the order in which they do.
    #[derive(Default)]
    struct Cold {
        resident: Vec<bool>,
        gone: Vec<PageId>,
    }

    impl Memory for Cold {
        fn take_references(&mut self, _page: PageId) -> References {
            References::default()
        }
        fn evict(&mut self, page: PageId, _shadow: Shadow) -> Eviction {
            assert!(std::mem::take(&mut self.resident[page as usize]), "page {page} goes twice");
            self.gone.push(page);
            Eviction::Freed { pages_written: 0 }
        }
        fn is_resident(&self, page: PageId) -> bool {
            self.resident[page as usize]
        }
    }

    const PAGES: PageId = 600;

    /// Reads 600 pages of a file, the last 200 twice.
    fn read(policy: &mut Switching) -> Cold {
        policy.grow(PAGES as usize);
        policy.set_capacity(PAGES as usize);
        let mut memory = Cold { resident: vec![true; PAGES as usize], gone: Vec::new() };
        for page in 0..PAGES {
            policy.admit(page, &Admission::read(PageType::File), &mut memory);
            policy.accessed(page, &mut memory);
        }
        for page in PAGES - 200..PAGES {
            policy.accessed(page, &mut memory);
        }
        memory
    }

    fn set(policy: &mut Switching, memory: &mut Cold, text: &str) {
        policy.set_enabled(text.parse().expect("written to the file"), memory);
    }

    #[test]
    fn every_page_moves_and_is_where_its_activity_puts_it() {
        let classic = ClassicParams { batch: 0, ..ClassicParams::default() };
        let mut policy = Switching::new(MglruParams::default(), classic, false);
        let mut memory = read(&mut policy);
        set(&mut policy, &mut memory, "n");
        assert!(policy.generations(0).iter().all(|generation| generation.pages == [0; 2]));
        assert_eq!(policy.active_inactive(), Some([200, 400]), "pages read twice are active");

        set(&mut policy, &mut memory, "y");
        let listed = policy.generations(0);
        assert_eq!(listed.last().map(|youngest| youngest.pages[1]), Some(200), "active pages are in the youngest");
        assert_eq!(listed.iter().map(|generation| generation.pages[1]).sum::<u64>(), 600);
        assert_eq!(policy.classic.active_inactive(), Some([0; 2]));

        set(&mut policy, &mut memory, "0x0000");
        assert_eq!(policy.active_inactive(), Some([200, 400]));
        assert_eq!(policy.enabled().to_string(), "0x0000");
    }

    #[test]
    fn pages_go_in_the_order_of_the_lists_that_they_came_from() {
        let mut policy = Switching::new(MglruParams::default(), ClassicParams::default(), true);
        let mut memory = read(&mut policy);
        set(&mut policy, &mut memory, "n");
        for _ in 0..8 {
            policy.reclaim(&ReclaimRequest { target: 0, goal: 32, incoming: None }, &mut memory);
        }
        assert!(memory.gone.len() >= 256, "{} pages went", memory.gone.len());
        assert!(memory.gone.is_sorted(), "the oldest first: {:?}", memory.gone);
        let stolen = policy.classic.counters().pgsteal;
        assert_eq!((policy.counters().pgsteal, stolen), (memory.gone.len() as u64, memory.gone.len() as u64));
    }

    #[test]
    fn commands_on_generations_need_generations_in_force() {
        let mut policy = Switching::new(MglruParams::default(), ClassicParams::default(), false);
        let mut memory = read(&mut policy);
        let request = NewGeneration { lruvec: 0, seq: 3, can_anon: true, force: true };
        assert_eq!(policy.new_generation(&request, &mut memory), Err(GenerationError::Unsupported));
        set(&mut policy, &mut memory, "1");
        assert_eq!(policy.new_generation(&request, &mut memory), Ok(()));
        assert_eq!(policy.generations(0).last().map(|generation| generation.seq), Some(4));
    }

    #[test]
    fn the_file_takes_what_the_kernel_takes() {
        let shown = |text: &str| text.parse::<Enabled>().map(|enabled| enabled.to_string());
        for (text, expected) in
            [("y", "0x0007"), ("n", "0x0000"), ("5", "0x0005"), ("0x3", "0x0003"), ("255", "0x0007")]
        {
            assert_eq!(shown(text).as_deref(), Ok(expected), "{text}");
        }
        for wrong in ["", "maybe", "-1", "0x"] {
            assert!(shown(wrong).is_err(), "{wrong:?}");
        }
    }
}
