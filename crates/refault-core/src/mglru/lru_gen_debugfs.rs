//! Commands of the kernel's debugging interface: make a generation, evict generations (spec: mglru §15).
//!
//! Kernel: `lru_gen_seq_write`, `run_cmd`, `run_aging`, `run_eviction` in `mm/vmscan.c`.

use crate::memory::Memory;
use crate::mglru::Mglru;
use crate::mglru::aging::governing;
use crate::mglru::generation::MAX_BATCH;
use crate::policy::{EvictGenerations, GenerationError, NewGeneration};
use crate::reclaim::control::ScanControl;

impl Mglru {
    pub(super) fn command_new_generation<M: Memory>(
        &mut self,
        request: &NewGeneration,
        memory: &mut M,
    ) -> Result<(), GenerationError> {
        let lruvec = &self.lruvecs[request.lruvec as usize];
        if request.seq < lruvec.max_seq {
            // 6.12 takes a generation that is there for success (spec: mglru §15, §16.12).
            return if self.is_7_2() { Err(GenerationError::Exists) } else { Ok(()) };
        }
        if request.seq > lruvec.max_seq {
            return Err(GenerationError::Seq);
        }
        let full = lruvec.generations(governing(request.can_anon)) == lruvec.window.max;
        if !self.is_7_2() && !request.force && full {
            return Err(GenerationError::Full);
        }
        self.drain_batches();
        self.walk_context = true;
        self.try_new_generation(request.lruvec, request.can_anon, request.force, memory);
        self.walk_context = false;
        Ok(())
    }

    pub(super) fn command_evict<M: Memory>(
        &mut self,
        request: &EvictGenerations,
        memory: &mut M,
    ) -> Result<u64, GenerationError> {
        let lruvec = &self.lruvecs[request.lruvec as usize];
        if request.seq + lruvec.window.min > lruvec.max_seq {
            return Err(GenerationError::Seq);
        }
        let mut control = ScanControl::for_limit(request.lruvec, 0);
        control.swappiness = request.swappiness;
        self.drain_batches();
        self.walk_context = true;
        let swappiness = self.usable_swappiness(request.lruvec, &control, memory);
        let governing = governing(swappiness != 0).index();
        while self.lruvecs[request.lruvec as usize].min_seq[governing] <= request.seq
            && control.reclaimed < request.pages
        {
            if self.evict_step(request.lruvec, swappiness, MAX_BATCH, &mut control, memory) == 0 {
                break;
            }
        }
        self.walk_context = false;
        Ok(control.reclaimed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Eviction, PageTables, References, RegionKey, Walk};
    use crate::mglru::{MglruParams, Version};
    use crate::page::{LruvecId, PageId, PageType, Shadow};
    use crate::policy::{Admission, Policy};

    const REGION: RegionKey = 7;

    /// One address space with one region that was not accessed; notes whether it was looked into.
    struct Idle {
        looked_into: bool,
    }

    impl Memory for Idle {
        fn take_references(&mut self, _: PageId) -> References {
            References::default()
        }
        fn evict(&mut self, _: PageId, _: Shadow) -> Eviction {
            Eviction::Kept
        }
        fn is_resident(&self, _: PageId) -> bool {
            true
        }
        fn page_tables(&mut self) -> Option<&mut impl PageTables> {
            Some(self)
        }
    }

    impl PageTables for Idle {
        fn walk<V: Walk>(&mut self, _: LruvecId, visitor: &mut V) -> bool {
            visitor.starts();
            self.looked_into = visitor.forced() && visitor.enters(REGION, Some(false), false);
            true
        }
    }

    fn request(seq: u64, force: bool) -> NewGeneration {
        NewGeneration { lruvec: 0, seq, can_anon: true, force }
    }

    #[test]
    fn a_forced_generation_looks_everywhere_and_another_does_not() {
        for force in [true, false] {
            // 7.2 refuses no command for the number of generations, so that both can be asked for.
            let mut mglru = Mglru::new(MglruParams { version: Version::V7_2, ..MglruParams::default() });
            let (mut memory, youngest) = (Idle { looked_into: !force }, mglru.lruvecs[0].max_seq);
            mglru.command_new_generation(&request(youngest, force), &mut memory).unwrap();
            assert_eq!((memory.looked_into, mglru.lruvecs[0].max_seq), (force, youngest + 1));
        }
    }

    #[test]
    fn a_generation_that_is_there_is_success_in_6_12_and_an_error_in_7_2() {
        for (version, expected) in [(Version::V6_12, Ok(())), (Version::V7_2, Err(GenerationError::Exists))] {
            let mut mglru = Mglru::new(MglruParams { version, ..MglruParams::default() });
            let (mut memory, youngest) = (Idle { looked_into: false }, mglru.lruvecs[0].max_seq);
            assert_eq!(mglru.command_new_generation(&request(youngest - 1, true), &mut memory), expected);
            // Four generations: 6.12 does not merge two of them unless it is forced to.
            let full = if version == Version::V7_2 { Ok(()) } else { Err(GenerationError::Full) };
            assert_eq!(mglru.command_new_generation(&request(youngest, false), &mut memory), full);
        }
    }

    /// A generation for each page that is faulted in: how many there are then, and how many can be evicted.
    fn aged(min_generations: u64, max_generations: u64) -> (u64, u64) {
        let params = MglruParams { batch: 0, min_generations, max_generations, ..MglruParams::default() };
        let mut mglru = Mglru::new(params);
        let mut memory = Idle { looked_into: false };
        mglru.grow(8);
        for page in 0..8 {
            mglru.admit(page, &Admission::fault(PageType::Anon), &mut memory);
            let seq = mglru.lruvecs[0].max_seq;
            mglru.command_new_generation(&request(seq, true), &mut memory).unwrap();
        }
        let lruvec = &mglru.lruvecs[0];
        let evictable = (lruvec.min_seq[0]..)
            .take_while(|seq| {
                let request = EvictGenerations { lruvec: 0, seq: *seq, swappiness: None, pages: 0 };
                mglru.command_evict(&request, &mut memory).is_ok()
            })
            .count();
        (mglru.lruvecs[0].generations(PageType::Anon), evictable as u64)
    }

    #[test]
    fn there_are_as_many_generations_as_parameters_say() {
        assert_eq!(aged(2, 4), (4, 2));
        assert_eq!(aged(2, 7), (7, 5));
        assert_eq!(aged(4, 7), (7, 3));
        assert_eq!(aged(9, 90), (7, 2), "the nearest that there can be");
    }
}
