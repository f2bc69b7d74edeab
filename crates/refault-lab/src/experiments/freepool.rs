//! The experiment of retiring the free pool of cached pages, run again.
//!
//! FreeBSD's code review "Retire VM_FREEPOOL_CACHE" of June 2015 measured what is lost when evicted clean pages share
//! their free queues with all other free frames: fewer of them are reactivated, so a little more is read; free memory
//! is a little less fragmented (spec: numbers-damon-freebsd §2, freebsd §5). Four workloads, each before and after:
//!
//! - `build`: seven builds in a loop in memory that does not quite hold them ([`build`]);
//! - `database`: a read-only database of three times memory ([`database`]), and `database-after-shortage`, the same
//!   where the kernel has once taken every frame that was free;
//! - `serial-read`: a mapped file that fits, read again and again ([`serial`]);
//! - `contiguous`: a driver asks for frames in a row while a program uses all of memory ([`contiguous`]). It is also
//!   run where no pages are evicted for it.
//!
//! They run on a [`machine`] of their own whose page queues and frames are the ones of `refault-core`. Everything is a
//! share of memory; `scale` is memory over the published machine's 629 591 pages. Repeats with different seeds give
//! means; rows with the suffix `_spread` give how far iterations lie apart. The null is "before" with other random
//! choices: the pool not retired.
//!
//! ```
//! use refault_lab::experiments::freepool::Options;
//!
//! assert_eq!(Options::full().scale, 1.0); // the published machine's memory; the default is a thirty-second of it
//! assert!(Options::default().scale < Options::full().scale);
//! ```

mod assumptions;
mod build;
mod contiguous;
#[cfg(test)]
mod counting;
mod database;
mod high_order;
mod machine;
mod page_daemon;
mod policies;
mod published;
mod rows;
mod sample;
mod serial;
mod store;

use std::sync::Mutex;

use refault_core::{Freebsd, FreebsdParams};

pub use assumptions::Assumptions;
pub use policies::{Evicted, Figures, Workload, side_by_side};

use crate::experiment::Experiment;
use build::BuildRun;
use contiguous::ContiguousRun;
use database::DatabaseRun;

/// Pages of the published machine.
const PUBLISHED_FRAMES: f64 = 629_591.0;
/// Threads that simulate at the same time.
const THREADS: usize = 2;

/// How to run it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Memory over the published machine's, above 0 and at most 1. The work grows with its power of 1.5.
    pub scale: f64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Runs of the build and of the database with different seeds, at least 1.
    pub repeats: usize,
    /// Measure the null with further seeds and put it in the place of ours.
    pub null: bool,
}

impl Default for Options {
    /// A thirty-second of the published memory, five repeats: about a minute on two cores.
    fn default() -> Options {
        Options { scale: 1.0 / 32.0, seed: 1, repeats: 5, null: false }
    }
}

impl Options {
    /// The published size: about an hour on two cores.
    pub fn full() -> Options {
        Options { scale: 1.0, ..Options::default() }
    }

    /// For tests and looks at the report: seconds.
    pub fn small() -> Options {
        Options { scale: 1.0 / 256.0, repeats: 3, ..Options::default() }
    }
}

/// Whether the pool is there, and whether random choices are other ones: before, after, null.
const VARIANTS: [(bool, bool); 3] = [(true, false), (false, false), (true, true)];

/// Everything that was measured, `[before, after, null]`.
struct Measured {
    build: [Vec<BuildRun>; 3],
    database: [Vec<DatabaseRun>; 3],
    /// The same where the kernel has once taken every free frame.
    after_shortage: [Vec<DatabaseRun>; 3],
    contiguous: [Vec<ContiguousRun>; 3],
    /// The same without letting pages go.
    not_grown: Vec<ContiguousRun>,
    serial: rows::Serial,
}

/// Runs all three workloads, before and after. `progress` is told the share of the work that is done.
pub fn run(options: &Options, progress: &(dyn Fn(f64) + Sync)) -> Experiment {
    let options = Options { scale: options.scale.clamp(1.0 / 256.0, 1.0), repeats: options.repeats.max(1), ..*options };
    let frames = (PUBLISHED_FRAMES * options.scale) as u32;
    let half = if options.null { 0.5 } else { 1.0 };
    let measured = measure(&options, frames, &Assumptions::default(), &|share| progress(share * half));
    let experiment = rows::experiment(&options, frames, &measured);
    if !options.null {
        return experiment;
    }
    let others = Options { seed: options.seed + options.repeats as u64, ..options };
    let measured = measure(&others, frames, &Assumptions::default(), &|share| progress(0.5 + share * half));
    experiment.of_the_null(&rows::figures(&measured))
}

fn measure(options: &Options, frames: u32, assumptions: &Assumptions, progress: &(dyn Fn(f64) + Sync)) -> Measured {
    let tasks: Vec<(usize, usize)> =
        (0..options.repeats).flat_map(|repeat| (0..VARIANTS.len()).map(move |variant| (variant, repeat))).collect();
    let shares = Mutex::new(vec![0.0; tasks.len()]);
    let next = Mutex::new(0);
    let results = Mutex::new(Vec::new());
    let work = || {
        loop {
            let number = {
                let mut next = next.lock().expect("invariant: no thread panics with it");
                *next += 1;
                *next - 1
            };
            let Some((variant, repeat)) = tasks.get(number).copied() else { return };
            let report = |share: f64| {
                let mut shares = shares.lock().expect("invariant: no thread panics with it");
                shares[number] = share;
                progress(shares.iter().sum::<f64>() / shares.len() as f64);
            };
            let (cache_pool, other) = VARIANTS[variant];
            let params = FreebsdParams { cache_pool, ..FreebsdParams::default() };
            let seed = options.seed.wrapping_add(repeat as u64);
            let seed = if other { super::other_seed(seed) } else { seed };
            let build =
                build::run(frames, Box::new(Freebsd::new(params)), seed, assumptions, &|share| report(0.7 * share));
            let database = |assumptions: &Assumptions, from: f64| {
                database::run(frames, Box::new(Freebsd::new(params)), seed, assumptions, &|share| {
                    report(from + 0.15 * share)
                })
            };
            let fallen = Assumptions { memory_fell: true, ..*assumptions };
            let databases = [database(assumptions, 0.7), database(&fallen, 0.85)];
            let row = |grows| contiguous::run(frames, Box::new(Freebsd::new(params)), seed, grows);
            // The control is run once, before the pool's retirement.
            let contiguous = (row(true), (variant == 0).then(|| row(false)));
            report(1.0);
            let mut results = results.lock().expect("invariant: no thread panics with it");
            results.push((variant, repeat, build, databases, contiguous));
        }
    };
    std::thread::scope(|scope| {
        (0..THREADS.min(tasks.len())).for_each(|_| drop(scope.spawn(work)));
    });
    let mut results = results.into_inner().expect("invariant: no thread panics with it");
    results.sort_by_key(|(variant, repeat, ..)| (*variant, *repeat));
    let mut measured = Measured {
        build: Default::default(),
        database: Default::default(),
        after_shortage: Default::default(),
        contiguous: Default::default(),
        not_grown: Vec::new(),
        serial: rows::Serial::measure(frames),
    };
    for (variant, _, build, [database, after_shortage], (grown, not_grown)) in results {
        measured.build[variant].push(build);
        measured.database[variant].push(database);
        measured.after_shortage[variant].push(after_shortage);
        measured.contiguous[variant].push(grown);
        measured.not_grown.extend(not_grown);
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row<'a>(experiment: &'a Experiment, name: &str, metric: &str) -> &'a crate::experiment::Row {
        let found = experiment.rows.iter().find(|row| row.name == name && row.metric == metric);
        found.unwrap_or_else(|| panic!("no row {name} {metric}"))
    }

    /// Small, but the mechanism is there: fewer reactivations where the pool is gone, as many as before in the null.
    #[test]
    fn retiring_the_pool_loses_reactivations() {
        let options = Options { seed: 3, ..Options::small() };
        let experiment = run(&options, &|_| {});
        crate::experiments::figures::is_recorded(&experiment);
        let reactivated = row(&experiment, "build", "reactivated_share");
        assert!(reactivated.ours.ratio.unwrap() < 0.3, "{reactivated:?}");
        assert!(reactivated.null.ratio.unwrap() > 0.5, "{reactivated:?}");
        assert_eq!(row(&experiment, "build", "elapsed").judgement, crate::experiment::Judgement::Fitted);
        assert_eq!(experiment, run(&options, &|_| {}), "the same seed gives the same result");
        let null = run(&Options { null: true, ..options }, &|_| {});
        assert!(10 * null.score().agree <= experiment.score().judged, "{:?}", null.score());
    }

    /// The heuristic under test matters: without it, pages behind the reader are cached, and where they have no pool of
    /// their own the reader's next pages take their frames.
    #[test]
    fn the_serial_reader_finds_its_file_unless_pages_behind_it_are_cached_without_a_pool() {
        let serial = rows::Serial::measure(8000);
        assert_eq!(serial.found[..2], [100.0, 100.0]);
        assert!(serial.found[2] < 100.0, "{serial:?}");
    }
}
