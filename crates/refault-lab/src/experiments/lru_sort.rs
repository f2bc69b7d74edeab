//! `refault reproduce lru-sort`: proactive sorting of LRU lists under a pulsing limit, over 24 workloads.
//!
//! Four variants of each workload: `orig` has the relaxed limit all the time. `mprs` has 75 % of the resident size for
//! 1 s and 200 % for 10 s, repeated. `plrus` has the same with the radically tuned schemes: prioritise from 20 % of the
//! checks on, deprioritise after 5 s without one, 20 ms per second each. `null` has the same monitor without schemes:
//! it samples and never acts. The programs are laws of access ([`workloads`]); the lists are the classic policy's; the
//! monitor and the schemes are the ones everybody else uses.
//!
//! Default: each run is simulated for some cycles and extrapolated by its progress; `full` runs longer on finer pages.
//! Cost: see [`host`].
//!
//! Source: the posting of 13 June 2022 (spec: numbers-damon-freebsd §1, lru_sort §1.7, §5).
//!
//! ```
//! use refault_core::monitor::Profile;
//! use refault_core::schemes::Scheme;
//! use refault_lab::experiments::lru_sort::{Options, radical_schemes};
//!
//! assert_eq!(Options::quick(1).profile, Profile::K518); // the kernel of the posting
//! assert_eq!(radical_schemes().map(|scheme| scheme.action.name()), ["lru_prio", "lru_deprio"]);
//! ```

mod host;
mod program;
mod published;
pub mod pulsed;
mod summary;
mod workloads;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use refault_core::classic::ClassicParams;
use refault_core::monitor::Profile;
use refault_core::schemes::{
    Action, Bounds, Pattern, Quota, SchemeError, SchemeSettings, WatermarkMetric, Watermarks, Weights,
};

use crate::Experiment;
use host::{Host, LimitCycle, Outcome, Setup};
use program::Program;
use published::{Published, TABLE};
use refault_sim::monitoring::costs::Costs;
use workloads::{WORKLOADS, Workload};

pub use summary::{SLOW_DOWN, summarise};

/// How much is simulated.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed of the first repeat.
    pub seed: u64,
    /// Repeats with different seeds.
    pub repeats: u64,
    /// Most simulated pages of a program.
    pub pages: u64,
    /// Wall time in s of a run after which it is extrapolated.
    pub wall_limit: f64,
    /// Whose rules.
    pub profile: Profile,
    /// What things cost.
    pub costs: Costs,
    /// Tries after which the writer of the limit gives up.
    pub writer_tries: u32,
    /// Threads.
    pub jobs: usize,
    /// Measure the null with further seeds and put it in the place of ours.
    pub null: bool,
}

impl Options {
    /// What ends within two minutes.
    pub fn quick(seed: u64) -> Options {
        Options {
            seed,
            repeats: 10,
            pages: 4096,
            wall_limit: 110.0,
            profile: Profile::K518,
            costs: Costs::default(),
            writer_tries: host::WRITER_TRIES,
            null: false,
            jobs: std::thread::available_parallelism().map_or(1, |n| n.get()),
        }
    }

    /// Larger: finer pages and ten cycles of the limit.
    pub fn full(seed: u64) -> Options {
        Options { pages: 8192, wall_limit: 330.0, repeats: 25, ..Options::quick(seed) }
    }

    /// For tests: seconds.
    pub fn small(seed: u64) -> Options {
        Options { pages: 256, wall_limit: 13.0, repeats: 3, ..Options::quick(seed) }
    }
}

/// The variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// No pressure.
    Orig,
    /// Pulsing limit.
    Mprs,
    /// Pulsing limit and sorting.
    Plrus,
    /// Pulsing limit and a monitor that never acts.
    Null,
}

impl Variant {
    /// As the document calls it.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Orig => "orig",
            Variant::Mprs => "mprs",
            Variant::Plrus => "plrus",
            Variant::Null => "null",
        }
    }
}

/// All of them, in the order of [`Outcomes`].
pub const VARIANTS: [Variant; 4] = [Variant::Orig, Variant::Mprs, Variant::Plrus, Variant::Null];

/// What a sensitivity row needs.
const PRESSURE: [Variant; 2] = [Variant::Orig, Variant::Mprs];

/// The cycle of the document.
pub const CYCLE: LimitCycle = LimitCycle { tight: 0.75, tight_seconds: 1.0, relaxed: 2.0, relaxed_seconds: 10.0 };

/// The two schemes of the document, hot first.
pub fn radical_schemes() -> [SchemeSettings; 2] {
    let scheme = |action, pattern| SchemeSettings {
        pattern,
        quota: Quota {
            time_ms: 20,
            reset_interval_ms: 1000,
            weights: Weights { size: 0, nr_accesses: 3, age: 7 },
            ..Quota::default()
        },
        watermarks: Watermarks {
            metric: WatermarkMetric::FreeMemRate,
            interval: 5_000_000,
            high: 1000,
            mid: 999,
            low: 0,
        },
        ..SchemeSettings::new(action)
    };
    let size = Bounds::at_least(4096);
    [
        scheme(Action::LruPrio, Pattern { size, nr_accesses: Bounds::at_least(4), age: Bounds::ANY }),
        scheme(Action::LruDeprio, Pattern { size, nr_accesses: Bounds { min: 0, max: 0 }, age: Bounds::at_least(50) }),
    ]
}

/// One run of one workload.
///
/// # Errors
/// If the profile refuses the schemes.
pub fn run_one(
    workload: &Workload,
    row: &Published,
    variant: Variant,
    repeat: u64,
    options: &Options,
) -> Result<Outcome, SchemeError> {
    let small_pages = row.rss_kib / 4;
    let factor = small_pages.div_ceil(options.pages).next_power_of_two();
    let pages = (small_pages / factor).max(1);
    let seed = options.seed.wrapping_mul(0x9e37_79b9).wrapping_add(repeat);
    let fill = 0.5 + row.rss_kib as f64 / (1 << 20) as f64;
    let schemes = radical_schemes();
    let monitor = match variant {
        Variant::Orig | Variant::Mprs => None,
        Variant::Plrus => Some((options.profile, &schemes[..])),
        Variant::Null => Some((options.profile, &schemes[..0])),
    };
    let setup = Setup {
        factor,
        resident_size: pages,
        length: (row.runtime[0] * 1e9) as u64,
        cycle: (variant != Variant::Orig).then_some(CYCLE),
        monitor,
        writer_tries: options.writer_tries,
        costs: options.costs,
        wall_limit: options.wall_limit,
        ram: host::RAM,
        // Batches and costs as they were in the kernel of the posting.
        lists: ClassicParams { batch: 15, plain_costs: true, ..ClassicParams::default() },
        seed: seed ^ 0x5eed,
    };
    // The same program under all variants.
    Host::new(Program::new(pages, fill, workload.phases, seed), setup).run()
}

/// All outcomes: workload, variant in the order of [`VARIANTS`], repeat. A variant that was not run has none.
pub type Outcomes = Vec<[Vec<Outcome>; 4]>;

/// Runs everything. `progress` is told how many runs are done.
///
/// # Errors
/// If the profile refuses the schemes.
pub fn simulate(
    options: &Options,
    variants: &[Variant],
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Outcomes, SchemeError> {
    let repeats = options.repeats as usize;
    let a_workload = variants.len() * repeats;
    let total = WORKLOADS.len() * a_workload;
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let results = Mutex::new(vec![Outcome::default(); total]);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= total {
                        return;
                    }
                    let (workload, rest) = (index / a_workload, index % a_workload);
                    let (variant, repeat) = (variants[rest / repeats], (rest % repeats) as u64);
                    match run_one(&WORKLOADS[workload], &TABLE[workload], variant, repeat, options) {
                        Ok(outcome) => results.lock().expect("invariant: no panic with the lock held")[index] = outcome,
                        Err(error) => {
                            *failure.lock().expect("invariant: no panic with the lock held") = Some(error);
                            return;
                        }
                    }
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    if let Some(error) = failure.into_inner().expect("invariant: no panic with the lock held") {
        return Err(error);
    }
    let results = results.into_inner().expect("invariant: no panic with the lock held");
    let by_variant = |chunk: &[Outcome]| {
        let at = |variant: Variant| variants.iter().position(|run| *run == variant);
        VARIANTS.map(|variant| at(variant).map_or(Vec::new(), |at| chunk[at * repeats..][..repeats].to_vec()))
    };
    Ok(results.chunks(a_workload).map(by_variant).collect())
}

/// The experiment: runs, the sensitivity to what decides the slow-down, rows. `progress` is told the share that is
/// done.
///
/// # Errors
/// If the profile refuses the schemes.
pub fn run(options: &Options, progress: &(dyn Fn(f64) + Sync)) -> Result<Experiment, SchemeError> {
    let few = Options { repeats: options.repeats.div_ceil(5).max(2), ..options.clone() };
    let primitives = Options { costs: Costs::primitives(), ..few.clone() };
    let stubborn = Options { writer_tries: summary::STUBBORN_TRIES, ..few.clone() };
    let (all, part) = (WORKLOADS.len() * 4 * options.repeats as usize, WORKLOADS.len() * 2 * few.repeats as usize);
    let total = (all * (1 + usize::from(options.null)) + 2 * part) as f64;
    let primitives = simulate(&primitives, &PRESSURE, &|done| progress(done as f64 / total))?;
    let stubborn = simulate(&stubborn, &PRESSURE, &|done| progress((part + done) as f64 / total))?;
    let outcomes = simulate(options, &VARIANTS, &|done| progress((2 * part + done) as f64 / total))?;
    let experiment = summarise(options, &outcomes, [&primitives, &stubborn]);
    if !options.null {
        return Ok(experiment);
    }
    let others = Options { seed: super::other_seed(options.seed), ..options.clone() };
    let outcomes = simulate(&others, &VARIANTS, &|done| progress((2 * part + all + done) as f64 / total))?;
    Ok(experiment.of_the_null(&summary::figures(&others, &outcomes, [&primitives, &stubborn])))
}

#[cfg(test)]
mod tests;
