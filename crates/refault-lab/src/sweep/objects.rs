//! Policies at several sizes of memory over a trace of objects, which come and go whole.
//!
//! The results have the shape of a sweep's: misses count objects, bytes stand beside them, and memory is bytes. Shares
//! are of the bytes of all distinct objects, each at its largest. An object that says no size is as large as before, or
//! a page.
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
use refault_trace::remark::{Doubt, Remark};
use refault_trace::{ObjectPages, Reading, UNKNOWN_BYTES};

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
/// The trace cannot be read, is empty or of no objects with sizes; a policy cannot hold objects.
pub fn sweep(source: &dyn Accesses, sweep: &Sweep, progress: &dyn Progress) -> Result<TraceRuns, LabError> {
    let layout = layout_of(source)?;
    let (bytes, mut reading) = footprint(source, &layout)?;
    let mut sizes = Sizes::new(&layout);
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
        sizes.complete(&mut block);
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

/// The size that each object had last.
struct Sizes {
    /// With one more; 0 before the first.
    last: Vec<u64>,
    changed: u64,
}

impl Sizes {
    fn new(layout: &Layout) -> Sizes {
        Sizes { last: vec![0; layout.ids()], changed: 0 }
    }

    /// Puts sizes where a block says none, and calls `seen` with each object and its size.
    fn walk(&mut self, block: &mut Block, mut seen: impl FnMut(usize, u64)) {
        block.bytes.resize(block.accesses.len(), UNKNOWN_BYTES);
        for (access, size) in block.accesses.iter().zip(&mut block.bytes) {
            let last = &mut self.last[access.page() as usize];
            let before = last.checked_sub(1);
            if *size == UNKNOWN_BYTES {
                *size = before.unwrap_or(PAGE_BYTES);
            }
            self.changed += u64::from(before.is_some_and(|before| before != *size));
            *last = *size + 1;
            seen(access.page() as usize, *size);
        }
    }

    fn complete(&mut self, block: &mut Block) {
        self.walk(block, |_, _| {});
    }
}

/// Bytes of all distinct objects at their largest, and what the reader had to say.
fn footprint(source: &dyn Accesses, layout: &Layout) -> Result<(u64, Reading), LabError> {
    let (mut decoder, mut block) = (Decoder::new(source)?, Block::default());
    let (mut sizes, mut largest) = (Sizes::new(layout), vec![0; layout.ids()]);
    loop {
        decoder.fill(layout, &mut block)?;
        let is_told = |objects: ObjectPages| !objects.sized && (objects.bytes.is_some() || !block.accesses.is_empty());
        if !decoder.reader.objects().is_some_and(is_told) {
            let remedy = "compare it without --objects-whole";
            return Err(LabError::request("not a trace of objects with sizes", source.name(), remedy));
        }
        if block.accesses.is_empty() {
            break;
        }
        sizes.walk(&mut block, |object, size| largest[object] = size.max(largest[object]));
    }
    let mut reading = Reading::of(&*decoder.reader);
    // Figures of bytes leave none out here.
    for remark in &mut reading.remarks {
        if remark.doubt == Doubt::UnsizedAccesses {
            *remark = Remark::counted(Doubt::UnsizedObjects, remark.count).expect("invariant: it has words");
        }
    }
    reading.remarks.extend(Remark::counted(Doubt::ChangedSizes, sizes.changed));
    Ok((largest.iter().fold(0, |sum: u64, size| sum.saturating_add(*size)), reading))
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
                read_ahead: None,
            },
            bytes: Some(ByteCounts { all: self.replay.bytes() - all, missed: self.replay.bytes_missed() - missed }),
            metadata_bytes: self.replay.metadata_bytes(),
            wall: self.wall,
            samples: Vec::new(),
        }
    }
}
