//! Many policies at many memory sizes over one trace.
//!
//! The trace is decoded twice whatever the number of runs: once to find its layout, once, block by block, to feed all
//! simulations. While the simulations work on a block, the next one is decoded. If the simulations would need more
//! memory than [`Sweep::memory_budget`], they are fed in groups, with one more pass per group.
//!
//! Invariant: each simulation sees every access once and in order, and depends on nothing but the trace, its policy
//! and its size; so the results do not depend on `jobs`, on groups, or on which thread did what.
//!
//! ```
//! use refault_lab::policies::parse_policies;
//! use refault_lab::sweep::{Sweep, sweep};
//! use refault_trace::Source;
//!
//! let source = Source::workload("zipf:theta=1,pages=500,accesses=10000".parse().unwrap());
//! let plan = Sweep::new(parse_policies(&["fifo,opt".into()])?, vec!["10%".parse().unwrap(), "50p".parse().unwrap()]);
//! let runs = sweep(&source, &plan, &())?.runs;
//! assert_eq!(runs.len(), 4);
//! assert!(runs.iter().all(|run| run.miss_ratio() > 0.0));
//! # Ok::<(), refault_lab::LabError>(())
//! ```

mod blocks;
pub mod objects;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rayon::prelude::*;
use refault_core::policy::GenerationSize;
use refault_core::policy::registry::{BuildContext, Fact, PolicySpec};
use refault_core::textbook::NextUse;
use refault_sim::flat_memory::Swap;
use refault_sim::named::{self, DynReplay};
use refault_sim::{Layout, LayoutBuilder, Limits, Outcome};

use crate::error::LabError;
use crate::meminfo;
use crate::progress::Progress;

use crate::size::{Size, bytes_text};
use crate::source::Accesses;
pub(crate) use blocks::{Block, Decoder};
use refault_trace::Reading;

/// Bytes a simulation needs for each page id, for grouping only: what the most expensive policies take.
const BYTES_PER_PAGE: u64 = 64;

/// Points over a run's time that reports show, and in whose number the leaders of `adaptive` are told.
pub const SAMPLES: u64 = 120;

/// What to run over a trace.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The policies, in the order of the results.
    pub policies: Vec<PolicySpec>,
    /// The sizes, in the order of the results of a policy.
    pub sizes: Vec<Size>,
    /// Where anonymous pages go.
    pub swap: Option<Size>,
    /// Threads.
    pub jobs: usize,
    /// Points in time at which the state of a run is kept, evenly over its accesses; 0 keeps none.
    pub samples: u64,
    /// Bytes that simulations of one group may need together.
    pub memory_budget: u64,
    /// Accesses at the start that fill the memories and are not counted.
    pub warm_up: WarmUp,
    /// Pages of the largest window of readahead; `None`: pages come in when they are accessed.
    pub read_ahead: Option<u32>,
}

/// The start of a trace, as a number of accesses or as a share of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WarmUp {
    /// This number of accesses.
    Accesses(u64),
    /// This part of all accesses, from 0 to less than 1.
    Share(f64),
}

impl WarmUp {
    pub(crate) fn accesses(self, of: u64) -> u64 {
        match self {
            WarmUp::Accesses(accesses) => accesses,
            WarmUp::Share(share) => (of as f64 * share) as u64,
        }
    }
}

/// The state of a run at some point in time.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Accesses until then.
    pub accesses: u64,
    /// Misses until then.
    pub misses: u64,
    /// The generations then, oldest first; empty for policies without.
    pub generations: Vec<GenerationSize>,
    /// Which way of choosing victims held then; `None` for policies that have but one.
    pub leader: Option<&'static str>,
}

/// A policy at a size on a trace, and what came of it.
#[derive(Clone, Debug)]
pub struct Run {
    /// The policy with its parameters.
    pub policy: String,
    /// Whether the policy knows the future.
    pub needs_future: bool,
    /// Pages that could be resident.
    pub memory_pages: u64,
    /// The counts, without those of the warm-up.
    pub outcome: Outcome,
    /// Bytes of the accesses counted, and of those that missed, if the trace says how many each stands for.
    pub bytes: Option<ByteCounts>,
    /// Bytes of metadata the policy and the simulated memory held at the end.
    pub metadata_bytes: usize,
    /// Time spent in the simulation alone.
    pub wall: Duration,
    /// The state over time.
    pub samples: Vec<Sample>,
}

/// Bytes that accesses stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteCounts {
    /// Of all accesses.
    pub all: u64,
    /// Of those that missed.
    pub missed: u64,
}

impl ByteCounts {
    /// Bytes missed in bytes accessed, 0 to 1.
    pub fn miss_ratio(&self) -> f64 {
        if self.all == 0 { 0.0 } else { self.missed as f64 / self.all as f64 }
    }
}

impl Run {
    /// Misses in accesses, 0 to 1.
    pub fn miss_ratio(&self) -> f64 {
        self.outcome.misses as f64 / self.outcome.accesses as f64
    }

    /// Simulated accesses per second of `wall`.
    pub fn accesses_per_second(&self) -> f64 {
        self.outcome.accesses as f64 / self.wall.as_secs_f64().max(1e-9)
    }
}

/// What a sweep found about one trace.
#[derive(Clone, Debug)]
pub struct TraceRuns {
    /// The name of the trace.
    pub trace: String,
    /// Accesses in it.
    pub accesses: u64,
    /// Distinct pages in it.
    pub distinct_pages: u64,
    /// Distinct anonymous pages.
    pub distinct_anon: u64,
    /// What was left out or assumed, and what objects were taken for.
    pub reading: Reading,
    /// All runs: policies in order, sizes in order within.
    pub runs: Vec<Run>,
}

impl Sweep {
    /// These policies at these sizes with ample swap, on all processors, without samples, in half of the memory that is
    /// available.
    pub fn new(policies: Vec<PolicySpec>, sizes: Vec<Size>) -> Sweep {
        let swap = Some(Size::Pages(u64::from(u32::MAX)));
        Sweep {
            policies,
            sizes,
            swap,
            jobs: jobs(None),
            samples: 0,
            memory_budget: memory_budget(),
            warm_up: WarmUp::Accesses(0),
            read_ahead: None,
        }
    }
}

/// Threads to use: as asked, else one per core.
pub fn jobs(asked: Option<u16>) -> usize {
    asked.map_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()), usize::from)
}

/// Half of the memory that is available, or 1 GiB where the system does not say.
pub fn memory_budget() -> u64 {
    meminfo::of_this_machine("MemAvailable").map_or(1 << 30, |available| available / 2)
}

/// Sweeps over all traces: one after the other with all threads where a trace keeps them busy, else side by side.
/// The results are in the order of the sources; of several failures the first source's is told.
pub fn run_all<A: Accesses>(sources: &[A], plan: &Sweep, progress: &dyn Progress) -> Result<Vec<TraceRuns>, LabError> {
    let runs_a_trace = plan.policies.len() * plan.sizes.len();
    if runs_a_trace >= plan.jobs { one_by_one(sources, plan, progress) } else { side_by_side(sources, plan, progress) }
}

/// While the simulations of a trace run, the first pass over the next one does too.
fn one_by_one<A: Accesses>(sources: &[A], plan: &Sweep, progress: &dyn Progress) -> Result<Vec<TraceRuns>, LabError> {
    threads(plan.jobs)?.install(|| {
        let mut done = Vec::with_capacity(sources.len());
        let mut layout = sources.first().map(|first| first_pass(first, plan.read_ahead, &|| false));
        for (index, source) in sources.iter().enumerate() {
            let Some(this) = layout else { break };
            let this = this?;
            let next = sources.get(index + 1);
            let failed = AtomicBool::new(false);
            let ends = || failed.load(Ordering::Relaxed) || progress.is_cancelled();
            let (runs, ahead) = rayon::join(
                || simulate(source, this, plan, progress).inspect_err(|_| failed.store(true, Ordering::Relaxed)),
                || next.map(|next| first_pass(next, plan.read_ahead, &ends)),
            );
            done.push(runs?);
            layout = ahead;
        }
        Ok(done)
    })
}

fn side_by_side<A: Accesses>(sources: &[A], plan: &Sweep, progress: &dyn Progress) -> Result<Vec<TraceRuns>, LabError> {
    let at_once = plan.jobs.min(sources.len()).max(1);
    let share = Sweep {
        jobs: (plan.jobs / at_once).max(1),
        memory_budget: plan.memory_budget / at_once as u64,
        ..plan.clone()
    };
    let queue = Mutex::new(sources.iter().enumerate());
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("invariant: no thread panics with the queue").next();
                    let Some((index, source)) = next else { break };
                    let result = sweep(source, &share, progress);
                    let failed = result.is_err();
                    done.lock().expect("invariant: no thread panics with the results").push((index, result));
                    if failed {
                        break;
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().expect("invariant: no thread panics with the results");
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Runs a sweep over one trace.
pub fn sweep(source: &dyn Accesses, sweep: &Sweep, progress: &dyn Progress) -> Result<TraceRuns, LabError> {
    threads(sweep.jobs)?.install(|| simulate(source, first_pass(source, sweep.read_ahead, &|| false)?, sweep, progress))
}

pub(crate) fn threads(jobs: usize) -> Result<rayon::ThreadPool, LabError> {
    let built = rayon::ThreadPoolBuilder::new().num_threads(jobs).build();
    built.map_err(|error| LabError::failed("cannot start threads", error, "lower --jobs"))
}

/// All but the first pass.
fn simulate(
    source: &dyn Accesses,
    (layout, reading): (Layout, Reading),
    sweep: &Sweep,
    progress: &dyn Progress,
) -> Result<TraceRuns, LabError> {
    let hashes_pages = sweep.policies.iter().any(|spec| spec.entry.is(Fact::HashesPages));
    let context = BuildContext {
        next_use: future(source, sweep, &layout)?,
        page_numbers: hashes_pages.then(|| layout.page_numbers().into()),
    };
    let warm_up = sweep.warm_up.accesses(layout.accesses());
    if warm_up >= layout.accesses() {
        let what = format!("{} has {} accesses", source.name(), layout.accesses());
        return Err(LabError::request("nothing is left after the warm-up", what, "warm up with fewer"));
    }
    let mut planned = plan(sweep, &layout);
    if planned.is_empty() {
        return Err(LabError::request("nothing to simulate", "no policy or no size of memory", "name one of each"));
    }
    progress.add(layout.accesses() * planned.len() as u64);
    let bytes_each = (layout.ids() as u64 * BYTES_PER_PAGE).max(1);
    let group = (sweep.memory_budget / bytes_each).clamp(1, planned.len() as u64) as usize;
    let mut runs = Vec::with_capacity(planned.len());
    while !planned.is_empty() {
        let rest = planned.split_off(group.min(planned.len()));
        let group = std::mem::replace(&mut planned, rest);
        // Memory is zeroed when it is first touched and given back at the end: work for all threads.
        let mut running: Vec<Running> = group.into_par_iter().map(|plan| plan.start(&layout, &context)).collect();
        feed(source, &layout, &mut running, progress)?;
        runs.par_extend(running.into_par_iter().map(Running::finish));
    }
    Ok(TraceRuns {
        trace: source.name(),
        accesses: layout.accesses(),
        distinct_pages: layout.distinct_pages(),
        distinct_anon: layout.distinct_anon(),
        reading,
        runs,
    })
}

/// Where a trace's pages lie and how many it has, by one pass.
///
/// # Errors
/// The trace cannot be read, is empty, or has more pages than can be numbered.
pub fn layout_of(source: &dyn Accesses) -> Result<Layout, LabError> {
    Ok(layout_and_reading_of(source)?.0)
}

/// The same, and what was left out or assumed.
///
/// # Errors
/// As [`layout_of`].
pub fn layout_and_reading_of(source: &dyn Accesses) -> Result<(Layout, Reading), LabError> {
    first_pass(source, None, &|| false)
}

/// The first pass, and what the reader had to say; cancelled as soon as `ends` says that the caller wants it no more.
fn first_pass(
    source: &dyn Accesses,
    read_ahead: Option<u32>,
    ends: &dyn Fn() -> bool,
) -> Result<(Layout, Reading), LabError> {
    let mut reader = source.open()?;
    let mut buffer = Vec::new();
    let mut builder = LayoutBuilder::new();
    builder.reads_ahead(read_ahead.unwrap_or(0));
    loop {
        let block = reader.next_block(&mut buffer)?;
        if block.is_empty() {
            break;
        }
        builder.observe(block);
        if ends() {
            return Err(LabError::Cancelled);
        }
    }
    let layout = builder.finish().map_err(|error| {
        LabError::request("trace too large", source.name(), format!("{error}; sample it with --sample"))
    })?;
    if layout.accesses() == 0 {
        return Err(LabError::request("trace is empty", source.name(), "a trace has at least one access"));
    }
    let reading = Reading::of(&*reader);
    if read_ahead.is_some() {
        has_neighbours(source, &layout, &reading)?;
    }
    Ok((layout, reading))
}

/// Readahead follows offsets: where nothing lies beside another, it would tell nothing.
fn has_neighbours(source: &dyn Accesses, layout: &Layout, reading: &Reading) -> Result<(), LabError> {
    let what = match (&reading.objects, layout.distinct_file()) {
        (Some(_), _) => "it is a trace of objects, none of which lies beside another",
        (None, 0) => "all of its accesses are to anonymous memory; --kind says otherwise",
        (None, _) => return Ok(()),
    };
    let name = format!("{}: {what}", source.name());
    Err(LabError::request("nothing can be read ahead", name, "compare it without --readahead"))
}

/// What opt must know: one more pass, and 8 bytes per access.
fn future(source: &dyn Accesses, sweep: &Sweep, layout: &Layout) -> Result<Option<Arc<NextUse>>, LabError> {
    if !sweep.policies.iter().any(|spec| spec.entry.is(Fact::NeedsFuture)) {
        return Ok(None);
    }
    let remedy = "name policies without opt, or take a part of the trace";
    if layout.accesses().saturating_mul(8) > sweep.memory_budget {
        let what = format!("{} (needs {})", source.name(), bytes_text(layout.accesses().saturating_mul(8)));
        return Err(LabError::request("not enough memory for opt to look ahead", what, remedy));
    }
    let mut decoder = Decoder::new(source)?;
    let mut block = Block::default();
    let mut pages = Vec::with_capacity(layout.accesses() as usize);
    loop {
        decoder.fill(layout, &mut block)?;
        if block.accesses.is_empty() {
            break;
        }
        pages.extend(block.accesses.iter().map(|access| access.page()));
    }
    let next_use = NextUse::new(pages).map_err(|error| LabError::request("trace too long", error, remedy))?;
    Ok(Some(Arc::new(next_use)))
}

/// The last pass: every block to every simulation.
fn feed(
    source: &dyn Accesses,
    layout: &Layout,
    running: &mut [Running],
    progress: &dyn Progress,
) -> Result<(), LabError> {
    let mut decoder = Decoder::new(source)?;
    let mut block = Block::default();
    let mut next = Block::default();
    decoder.fill(layout, &mut block)?;
    block.leave_out_unknown();
    while !block.accesses.is_empty() {
        // The longest first, one by one to the thread that is free: so threads end a block at the same time.
        let mut longest_first: Vec<&mut Running> = running.iter_mut().collect();
        longest_first.sort_by_key(|run| std::cmp::Reverse(run.wall));
        let (decoded, ()) = rayon::join(
            || decoder.fill(layout, &mut next).map(|()| next.leave_out_unknown()),
            || longest_first.into_iter().par_bridge().for_each(|run| run.advance(&block)),
        );
        decoded?;
        if progress.is_cancelled() {
            return Err(LabError::Cancelled);
        }
        progress.advance(block.accesses.len() as u64 * running.len() as u64);
        std::mem::swap(&mut block, &mut next);
    }
    Ok(())
}

/// A simulation that has not been given its memory yet.
struct Planned<'a> {
    spec: &'a PolicySpec,
    memory_pages: u64,
    swap: Swap,
    sample_every: u64,
    warm_up: u64,
    read_ahead: Option<u32>,
}

fn plan<'a>(sweep: &'a Sweep, layout: &Layout) -> Vec<Planned<'a>> {
    let distinct = layout.distinct_pages();
    let swap = match sweep.swap {
        None => Swap { pages: 0, synchronous: true },
        Some(size) => Swap { pages: size.pages(distinct), synchronous: true },
    };
    let sample_every = if sweep.samples == 0 { u64::MAX } else { layout.accesses().div_ceil(sweep.samples) };
    let warm_up = sweep.warm_up.accesses(layout.accesses());
    let runs = sweep.policies.iter().flat_map(|spec| sweep.sizes.iter().map(move |size| (spec, size)));
    let read_ahead = sweep.read_ahead;
    let planned = |(spec, size): (_, &Size)| Planned {
        spec,
        memory_pages: size.pages(distinct),
        swap,
        sample_every,
        warm_up,
        read_ahead,
    };
    runs.map(planned).collect()
}

impl Planned<'_> {
    fn start(self, layout: &Layout, context: &BuildContext) -> Running {
        let memory_pages = usize::try_from(self.memory_pages).unwrap_or(usize::MAX);
        let limits = Limits { memory_pages, swap: self.swap };
        let mut simulation = named::replay(self.spec, context, layout, limits);
        if let Some(window) = self.read_ahead {
            simulation.read_ahead(layout, window);
        }
        Running {
            policy: self.spec.label.clone(),
            needs_future: self.spec.entry.is(Fact::NeedsFuture),
            memory_pages: self.memory_pages,
            simulation,
            wall: Duration::ZERO,
            sample_every: self.sample_every,
            until_sample: self.sample_every,
            samples: Vec::new(),
            until_warm: self.warm_up,
            cold: None,
            bytes: None,
        }
    }
}

/// A simulation under way.
struct Running {
    policy: String,
    needs_future: bool,
    memory_pages: u64,
    simulation: Box<dyn DynReplay>,
    wall: Duration,
    sample_every: u64,
    until_sample: u64,
    samples: Vec<Sample>,
    /// Accesses of the warm-up still to come.
    until_warm: u64,
    /// The outcome at the end of the warm-up, if there is one.
    cold: Option<Outcome>,
    /// Since the warm-up, of accesses that say their bytes; `None` as long as none does.
    bytes: Option<ByteCounts>,
}

impl Running {
    fn advance(&mut self, block: &Block) {
        let (mut at, accesses) = (0, block.accesses.len());
        while at < accesses {
            let warm = if self.until_warm > 0 { self.until_warm } else { u64::MAX };
            let length = self.until_sample.min(warm).min((accesses - at) as u64) as usize;
            let now = &block.accesses[at..at + length];
            let start = Instant::now();
            if block.bytes.is_empty() {
                self.simulation.run(now);
            } else {
                let bytes = &block.bytes[at..at + length];
                let missed = self.simulation.run_weighed(now, bytes);
                let counts = self.bytes.get_or_insert_default();
                if self.until_warm == 0 {
                    counts.all += bytes.iter().sum::<u64>();
                    counts.missed += missed;
                }
            }
            self.wall += start.elapsed();
            self.until_sample -= length as u64;
            if self.until_sample == 0 {
                self.sample();
                self.until_sample = self.sample_every;
            }
            if self.until_warm > 0 {
                self.until_warm -= length as u64;
                self.cold = Some(self.simulation.outcome()).filter(|_| self.until_warm == 0);
            }
            at += length;
        }
    }

    fn sample(&mut self) {
        let outcome = self.simulation.outcome();
        let policy = self.simulation.policy();
        let (generations, leader) = (policy.generations(0), policy.leader());
        self.samples.push(Sample { accesses: outcome.accesses, misses: outcome.misses, generations, leader });
    }

    fn finish(mut self) -> Run {
        let outcome = self.simulation.outcome();
        let sampled_until = self.samples.last().map_or(0, |sample| sample.accesses);
        if self.sample_every != u64::MAX && sampled_until < outcome.accesses {
            self.sample();
        }
        let outcome = match self.cold {
            None => outcome,
            Some(cold) => Outcome {
                accesses: outcome.accesses - cold.accesses,
                hits: outcome.hits - cold.hits,
                misses: outcome.misses - cold.misses,
                counters: outcome.counters.since(&cold.counters),
                read_ahead: outcome.read_ahead.zip(cold.read_ahead).map(|(all, cold)| all.since(&cold)),
                resident: outcome.resident,
            },
        };
        Run {
            bytes: self.bytes.filter(|bytes| bytes.all > 0),
            policy: self.policy,
            needs_future: self.needs_future,
            memory_pages: self.memory_pages,
            outcome,
            metadata_bytes: self.simulation.policy().metadata_bytes() + self.simulation.memory().metadata_bytes(),
            wall: self.wall,
            samples: self.samples,
        }
    }
}
