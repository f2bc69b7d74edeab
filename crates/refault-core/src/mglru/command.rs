//! Commands of the kernel's debugging interface: make a generation, evict generations (spec: mglru §15).
//!
//! Kernel: `lru_gen_seq_write`, `run_cmd`, `run_aging`, `run_eviction` in `mm/vmscan.c`.

use crate::memory::Memory;
use crate::mglru::Mglru;
use crate::mglru::aging::governing;
use crate::mglru::generation::{MAX_BATCH, MAX_GENERATIONS, MIN_GENERATIONS};
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
            return Ok(());
        }
        if request.seq > lruvec.max_seq {
            return Err(GenerationError::Seq);
        }
        if !request.force && lruvec.generations(governing(request.can_anon)) == MAX_GENERATIONS {
            return Err(GenerationError::Full);
        }
        self.drain_batches();
        self.walk_context = true;
        self.try_new_generation(request.lruvec, request.can_anon, memory);
        self.walk_context = false;
        Ok(())
    }

    pub(super) fn command_evict<M: Memory>(
        &mut self,
        request: &EvictGenerations,
        memory: &mut M,
    ) -> Result<u64, GenerationError> {
        if request.seq + MIN_GENERATIONS > self.lruvecs[request.lruvec as usize].max_seq {
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
