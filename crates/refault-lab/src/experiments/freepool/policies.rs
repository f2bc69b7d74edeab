//! The kernels' policies side by side over the same frames: what none of the documents compares.
//!
//! Three workloads of the free-pool experiment on its machine. Each runs under FreeBSD's queues and under Linux's
//! policies with FreeBSD's targets ([`super::page_daemon::Watermarked`]). A fourth has huge pages and contiguous
//! buffers, on the simulated machine ([`super::high_order`]). Each with evicted pages gone, cached in shared pools, and
//! cached in a pool of their own.

use refault_core::frames::FreePools;
use refault_core::parameter::fill;
use refault_core::policy::HitReport;
use refault_core::policy::registry::{BuildContext, Fact, PolicySpec, Visitor, visit};
use refault_core::{Freebsd, FreebsdParams, Policy};
use refault_sim::machine::Machine;
use refault_sim::named;
use serde::Serialize;

use super::assumptions::Assumptions;
use super::build::{self, BuildRun, ITERATIONS, Iteration};
use super::database::{self, DatabaseRun};
use super::page_daemon::{PageDaemon, Watermarked};
use super::sample::{Sample, mean};
use super::serial::{self, SerialRun};
use super::{Options, PUBLISHED_FRAMES, high_order};

/// What they are compared on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// The build in a loop; an iteration after the first.
    Build,
    /// The read-only database; all of it after memory has filled.
    Database,
    /// The mapped file that fits; a reading after the first.
    SerialRead,
    /// Readers, a program on huge pages, programs that come and go, and contiguous buffers; the whole run.
    HighOrder,
}

impl Workload {
    /// All, in the order of the table.
    pub const ALL: [Workload; 4] = [Workload::Build, Workload::Database, Workload::SerialRead, Workload::HighOrder];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Build => "build",
            Workload::Database => "database",
            Workload::SerialRead => "serial-read",
            Workload::HighOrder => "high-order",
        }
    }
}

/// What becomes of evicted pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evicted {
    /// They are gone.
    Gone,
    /// Cached until their frame is reused, among the other free frames.
    SharedPools,
    /// Cached, in a free pool of their own.
    OwnPool,
}

impl Evicted {
    /// All, in the order of the table.
    pub const ALL: [Evicted; 3] = [Evicted::Gone, Evicted::SharedPools, Evicted::OwnPool];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Evicted::Gone => "gone",
            Evicted::SharedPools => "shared-pools",
            Evicted::OwnPool => "own-pool",
        }
    }

    pub(super) fn pools(self) -> Option<FreePools> {
        match self {
            Evicted::Gone => None,
            Evicted::SharedPools => Some(FreePools::TWO),
            Evicted::OwnPool => Some(FreePools::THREE),
        }
    }

    /// FreeBSD's parameters for it.
    fn freebsd(self, params: FreebsdParams) -> FreebsdParams {
        FreebsdParams { cached_pages: self != Evicted::Gone, cache_pool: self == Evicted::OwnPool, ..params }
    }
}

/// What a workload came to under one policy: means over repeats. Counts of pages unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Read from files and swap.
    pub pages_read: f64,
    /// Of those, evicted before.
    pub refaults: f64,
    /// Written to swap.
    pub swap_pages_out: f64,
    /// Looked at by reclaim.
    pub examined: f64,
    /// Evicted pages that came back without I/O.
    pub reactivated: f64,
    /// Time that tasks waited for the disk or for memory, in seconds, added up.
    pub stall_seconds: f64,
    /// Simulated seconds.
    pub elapsed_seconds: f64,
    /// Mean size of a free block, over time.
    pub free_block_mean: f64,
    /// Share of the free memory that a request of 16 pages cannot use, over time.
    pub unusable_free_index_order_4: f64,
    /// Share of the free memory that a request of 2 MiB cannot use, over time.
    pub unusable_free_index_order_9: f64,
    /// Huge pages not given, % of those asked for; 0 where none are.
    pub thp_fallback_percent: f64,
    /// Contiguous buffers not given, % of those asked for.
    pub buffers_failed_percent: f64,
    /// Contiguous buffers given only after reclaim, % of those asked for.
    pub buffers_stalled_percent: f64,
}

macro_rules! each_field {
    ($with:ident) => {
        $with!(
            pages_read,
            refaults,
            swap_pages_out,
            examined,
            reactivated,
            stall_seconds,
            elapsed_seconds,
            free_block_mean,
            unusable_free_index_order_4,
            unusable_free_index_order_9,
            thp_fallback_percent,
            buffers_failed_percent,
            buffers_stalled_percent
        )
    };
}

impl Figures {
    /// Names and values, in the order of a table.
    pub fn fields(&self) -> Vec<(&'static str, f64)> {
        macro_rules! list { ($($field:ident),*) => { vec![$((stringify!($field), self.$field)),*] }; }
        each_field!(list)
    }

    fn mean(runs: &[Figures]) -> Figures {
        macro_rules! means {
            ($($field:ident),*) => {
                Figures { $($field: runs.iter().map(|run| run.$field).sum::<f64>() / runs.len() as f64),* }
            };
        }
        each_field!(means)
    }

    fn over_time(self, samples: &[Sample]) -> Figures {
        Figures {
            free_block_mean: mean(samples, |s| s.all.mean_block()),
            unusable_free_index_order_4: mean(samples, |s| s.all.unusable_free_index(4)),
            unusable_free_index_order_9: mean(samples, |s| s.all.unusable_free_index(9)),
            ..self
        }
    }

    fn of_build(run: &BuildRun) -> Figures {
        let later = &run.iterations[1..];
        let mean = |what: fn(&Iteration) -> f64| later.iter().map(what).sum::<f64>() / (ITERATIONS - 1) as f64;
        let figures = Figures {
            pages_read: mean(|i| i.pages_read as f64),
            refaults: mean(|i| i.refaults as f64),
            swap_pages_out: mean(|i| i.counters.swap_pages_out as f64),
            examined: mean(|i| i.examined as f64),
            reactivated: mean(|i| i.counters.pages_reactivated as f64),
            stall_seconds: mean(|i| i.waited as f64 / 1e9),
            elapsed_seconds: mean(|i| i.elapsed as f64 / 1e9),
            ..Figures::default()
        };
        figures.over_time(&run.samples)
    }

    fn of_database(run: &DatabaseRun) -> Figures {
        let figures = Figures {
            pages_read: run.pages_read as f64,
            refaults: run.refaults as f64,
            swap_pages_out: run.counters.swap_pages_out as f64,
            examined: run.examined as f64,
            reactivated: run.counters.pages_reactivated as f64,
            stall_seconds: run.waited as f64 / 1e9,
            elapsed_seconds: run.elapsed as f64 / 1e9,
            ..Figures::default()
        };
        figures.over_time(&run.samples)
    }

    fn of_serial(run: &SerialRun) -> Figures {
        let figures = Figures {
            pages_read: run.pages_read,
            refaults: run.refaults,
            examined: run.examined,
            reactivated: run.reactivated,
            stall_seconds: run.waited / 1e9,
            elapsed_seconds: run.elapsed / 1e9,
            ..Figures::default()
        };
        figures.over_time(&run.samples)
    }
}

/// Runs a workload under a policy that [`refault_core::policy::FrontEnd::FreePool`] can run. `scale` does not change
/// [`Workload::HighOrder`].
pub fn side_by_side(workload: Workload, policy: &PolicySpec, evicted: Evicted, options: &Options) -> Figures {
    let frames = (PUBLISHED_FRAMES * options.scale) as u32;
    let runs: Vec<Figures> = (0..options.repeats.max(1) as u64)
        .map(|repeat| {
            let seed = options.seed.wrapping_add(repeat);
            // The machine's own policy: its daemon and its reserve need no watermarks of the experiment.
            if policy.entry.is(Fact::CachesEvicted) {
                let params = fill(FreebsdParams::default(), &policy.call);
                let freebsd = Freebsd::new(evicted.freebsd(params.expect("invariant: a specification is checked")));
                return match workload {
                    Workload::HighOrder => high_order::figures(|config| Machine::new(config, freebsd), evicted, seed),
                    _ => on_machine(workload, frames, Box::new(freebsd), seed),
                };
            }
            if workload == Workload::HighOrder {
                return high_order::figures(|config| named::machine(policy, config), evicted, seed);
            }
            visit(policy, &BuildContext::default(), Run { workload, frames, evicted, seed })
        })
        .collect();
    Figures::mean(&runs)
}

/// One run under a policy with the experiment's watermarks.
struct Run {
    workload: Workload,
    frames: u32,
    evicted: Evicted,
    seed: u64,
}

impl Visitor for Run {
    type Output = Figures;

    fn visit<P: Policy + Send + 'static>(self, policy: P) -> Figures {
        // Compiled for those policies alone that the experiment can run.
        if const { !matches!(P::HITS, HitReport::Kernel) } {
            unreachable!("invariant: the registry refuses other policies to this front-end");
        }
        let policy = Box::new(Watermarked::new(policy, self.evicted.pools()));
        on_machine(self.workload, self.frames, policy, self.seed)
    }
}

fn on_machine(workload: Workload, frames: u32, policy: Box<dyn PageDaemon>, seed: u64) -> Figures {
    let quiet = |_: f64| {};
    match workload {
        Workload::Database => {
            Figures::of_database(&database::run(frames, policy, seed, &Assumptions::default(), &quiet))
        }
        Workload::SerialRead => Figures::of_serial(&serial::run(frames, policy)),
        _ => Figures::of_build(&build::run(frames, policy, seed, &Assumptions::default(), &quiet)),
    }
}
