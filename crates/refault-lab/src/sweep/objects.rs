//! Policies at several sizes of memory over a trace of objects, which come and go whole.
//!
//! The results have the shape of a sweep's: misses count objects, bytes stand beside them, and memory is bytes. Shares
//! are of the bytes of all distinct objects, as they were at first sight.
//!
//! ```
//! use refault_lab::sweep::objects::{all_policies, sweep};
//! use refault_lab::sweep::Sweep;
//! use refault_trace::{Options, Source};
//!
//! let trace = tempfile::NamedTempFile::with_suffix(".csv")?;
//! std::fs::write(trace.path(), "object,size\n1,100\n2,9000\n1,100\n2,9000\n")?;
//! let source = Source::file(trace.path(), Options::default());
//! let runs = sweep(&source, &Sweep::new(all_policies(), vec!["8192".parse()?]), &())?.runs;
//! let gdsf = runs.iter().find(|run| run.policy == "gdsf").expect("it holds objects");
//! assert_eq!((gdsf.outcome.misses, gdsf.bytes.expect("sizes").missed), (3, 18_100)); // the large object never fits
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::time::{Duration, Instant};

use rayon::prelude::*;
use refault_core::policy::FrontEnd;
use refault_core::policy::registry::{Fact, PolicySpec, all};
use refault_sim::objects::ObjectReplay;
use refault_sim::{Layout, Outcome};
use refault_trace::{ObjectPages, Reading};

use super::{Block, ByteCounts, Decoder, Run, Sweep, TraceRuns, layout_of, threads};
use crate::error::LabError;
use crate::progress::Progress;
use crate::size::PAGE_BYTES;
use crate::source::Accesses;

/// The policies that hold objects of any size, with their defaults.
pub fn all_policies() -> Vec<PolicySpec> {
    all(FrontEnd::Replay).filter(|spec| spec.entry.is(Fact::Objects)).collect()
}

/// Runs a sweep over one trace, whose reader must take an object for one page and say its size. Memory is in whole pages,
/// swap and samples are not used. Cost: three passes.
///
/// # Errors
/// The trace cannot be read, is empty or says no sizes; a policy cannot hold objects.
pub fn sweep(source: &dyn Accesses, sweep: &Sweep, progress: &dyn Progress) -> Result<TraceRuns, LabError> {
    let layout = layout_of(source)?;
    let (bytes, mut reading) = footprint(source, &layout)?;
    let warm_up = sweep.warm_up.accesses(layout.accesses());
    if warm_up >= layout.accesses() {
        let what = format!("{} has {} accesses", source.name(), layout.accesses());
        return Err(LabError::request("nothing is left after the warm-up", what, "warm up with fewer"));
    }
    let pages = bytes.div_ceil(PAGE_BYTES).max(1);
    let of = |spec: &PolicySpec, memory_pages: u64| -> Result<Running, LabError> {
        let replay = ObjectReplay::new(spec, layout.ids(), memory_pages.saturating_mul(PAGE_BYTES));
        let remedy = "leave it out, or let objects have pages";
        let replay = replay
            .ok_or_else(|| LabError::request("a policy that cannot hold objects of any size", &spec.label, remedy))?;
        let cold = replay.outcome();
        Ok(Running { policy: spec.label.clone(), memory_pages, replay, cold, cold_bytes: [0, 0], wall: Duration::ZERO })
    };
    let plan = sweep.policies.iter().flat_map(|spec| sweep.sizes.iter().map(move |size| (spec, size.pages(pages))));
    let mut running = plan.map(|(spec, memory_pages)| of(spec, memory_pages)).collect::<Result<Vec<_>, LabError>>()?;
    progress.add(layout.accesses() * running.len() as u64);
    let (mut decoder, mut block, mut done) = (Decoder::new(source)?, Block::default(), 0);
    let pool = threads(sweep.jobs)?;
    loop {
        decoder.fill(&layout, &mut block)?;
        if block.accesses.is_empty() {
            break;
        }
        let cold = warm_up.saturating_sub(done).min(block.accesses.len() as u64) as usize;
        pool.install(|| running.par_iter_mut().for_each(|run| run.advance(&block, cold)));
        done += block.accesses.len() as u64;
        progress.advance(block.accesses.len() as u64 * running.len() as u64);
        if progress.is_cancelled() {
            return Err(LabError::Cancelled);
        }
    }
    reading.objects = reading.objects.map(|objects| ObjectPages { sized: true, whole: true, ..objects });
    Ok(TraceRuns {
        trace: source.name(),
        accesses: layout.accesses(),
        distinct_pages: pages,
        distinct_anon: 0,
        reading,
        runs: running.into_iter().map(Running::finish).collect(),
    })
}

/// Bytes of all distinct objects as they were at first sight, and what the reader had to say.
fn footprint(source: &dyn Accesses, layout: &Layout) -> Result<(u64, Reading), LabError> {
    let (mut decoder, mut block) = (Decoder::new(source)?, Block::default());
    let mut seen = vec![false; layout.ids()];
    let mut bytes = 0u64;
    loop {
        decoder.fill(layout, &mut block)?;
        if block.accesses.is_empty() {
            return Ok((bytes, Reading::of(&*decoder.reader)));
        }
        let reading = Reading::of(&*decoder.reader);
        if block.bytes.is_empty() || reading.objects.is_none_or(|objects| objects.sized) {
            let remedy = "compare it without --objects-whole";
            return Err(LabError::request("not a trace of objects with sizes", source.name(), remedy));
        }
        for (access, size) in block.accesses.iter().zip(&block.bytes) {
            if !std::mem::replace(&mut seen[access.page() as usize], true) {
                bytes = bytes.saturating_add(*size);
            }
        }
    }
}

struct Running {
    policy: String,
    memory_pages: u64,
    replay: ObjectReplay,
    /// At the end of the warm-up.
    cold: Outcome,
    cold_bytes: [u64; 2],
    wall: Duration,
}

impl Running {
    /// Replays a block, of which the first `cold` accesses are not counted.
    fn advance(&mut self, block: &Block, cold: usize) {
        let start = Instant::now();
        for (at, (access, bytes)) in block.accesses.iter().zip(&block.bytes).enumerate() {
            self.replay.access(access.page(), *bytes);
            if at + 1 == cold {
                self.cold = self.replay.outcome();
                self.cold_bytes = [self.replay.bytes(), self.replay.bytes_missed()];
            }
        }
        self.wall += start.elapsed();
    }

    fn finish(self) -> Run {
        let outcome = self.replay.outcome();
        let [all, missed] = self.cold_bytes;
        Run {
            policy: self.policy,
            needs_future: false,
            memory_pages: self.memory_pages,
            outcome: Outcome {
                accesses: outcome.accesses - self.cold.accesses,
                hits: outcome.hits - self.cold.hits,
                misses: outcome.misses - self.cold.misses,
                counters: outcome.counters.since(&self.cold.counters),
                resident: outcome.resident,
            },
            bytes: Some(ByteCounts { all: self.replay.bytes() - all, missed: self.replay.bytes_missed() - missed }),
            metadata_bytes: self.replay.metadata_bytes(),
            wall: self.wall,
            samples: Vec::new(),
        }
    }
}
