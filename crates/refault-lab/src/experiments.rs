//! Published experiments, run again on the simulated machine.
//!
//! Each room holds one document's experiments: the workloads with what they rest on, the published figures, and how
//! ours are taken. Sizes are scaled: memory and everything that must keep its proportion to it shrink by the same
//! factor, times and costs do not. Every figure is taken after a warm-up, over the rest of the run, and with several
//! seeds, each in three ways: before, after, and with the mechanism under test switched off inside "after" (the null).
//!
//! ```
//! use refault_lab::experiments::{Options, Size};
//!
//! let options = Options::new(Size::Quick, 1);
//! assert_eq!((options.seeds, options.null), (5, false));
//! ```

pub mod figures;
pub mod freepool;
pub mod lru_sort;
pub mod mglru_fio;
pub mod mglru_refault;
pub mod mglru_v1;
pub mod published;
pub mod shadow_lru;

use refault_core::{Counters, Policy};
use refault_trace::{Source, WorkloadSpec};

use crate::experiment::{Chart, Experiment, Series, Study, Trial, over_seeds};
use refault_sim::machine::Machine;
use refault_sim::machine::config::{FileConfig, GroupConfig, MachineConfig, PhaseConfig, TaskConfig};
use refault_sim::machine::costs::{Ledger, Work};
use refault_sim::machine::device::DeviceModel;
use refault_sim::machine::group::GroupLimits;
use refault_sim::machine::report::{Report, Sample, Statistics};

/// How large an experiment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// For tests: seconds. Figures are rough.
    Small,
    /// Ends within a few minutes.
    Quick,
    /// Nearer to the published size.
    Full,
}

/// How an experiment is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How large.
    pub size: Size,
    /// The first seed of all random choices; the others follow it.
    pub seed: u64,
    /// How many seeds, at least two; with one nothing can be told from chance.
    pub seeds: u64,
    /// Measure the null with further seeds and put it in the place of ours.
    pub null: bool,
}

impl Options {
    /// Five seeds, of the small size two.
    pub fn new(size: Size, seed: u64) -> Options {
        let seeds = if size == Size::Small { 2 } else { 5 };
        Options { size, seed, seeds, null: false }
    }

    /// The one of three values that belongs to the size.
    pub(crate) fn pick<T>(&self, small: T, quick: T, full: T) -> T {
        match self.size {
            Size::Small => small,
            Size::Quick => quick,
            Size::Full => full,
        }
    }

    fn seeds(&self) -> Vec<u64> {
        (0..self.seeds.max(2)).map(|at| self.seed + at).collect()
    }

    /// Seeds that no other part of the experiment has.
    fn other_seeds(&self) -> Vec<u64> {
        self.seeds().iter().map(|seed| other_seed(*seed) + 1).collect()
    }
}

/// The seed of a null that is "before" with other random choices.
pub(crate) fn other_seed(seed: u64) -> u64 {
    seed + 500_000
}

/// Is told how far an experiment is, from 0 to 1.
pub type Progress<'a> = &'a (dyn Fn(f64) + Sync);

/// An experiment and, with [`Options::null`], the same rows with the null of further seeds in the place of ours.
pub(crate) struct Measurement {
    pub experiment: Experiment,
    pub null: Option<Experiment>,
}

impl Measurement {
    /// What was asked for.
    fn asked(self) -> Experiment {
        self.null.unwrap_or(self.experiment)
    }
}

/// Runs a study over the seeds of `options` and makes the experiment of it; `finish` has the rows and adds what people
/// read.
pub(crate) fn run_seeds<E: Send>(
    options: &Options,
    progress: Progress,
    study: impl Fn(u64, Progress) -> Result<Study, E> + Sync,
    finish: impl FnOnce(&mut Experiment),
) -> Result<Measurement, E> {
    let part = if options.null { 0.5 } else { 1.0 };
    let measured = over_seeds(&options.seeds(), &|share| progress(share * part), &study)?;
    let mut experiment = Experiment {
        here: Vec::new(),
        kernels: Vec::new(),
        experiment: String::new(),
        seed: options.seed,
        scale: 1.0,
        rows: measured.figures.iter().map(|figure| figure.row()).collect(),
        verdict: String::new(),
        remarks: Vec::new(),
        charts: measured.charts,
    };
    finish(&mut experiment);
    let mut null = None;
    if options.null {
        let others = over_seeds(&options.other_seeds(), &|share| progress(0.5 + share * 0.5), &study)?;
        null = Some(experiment.clone().of_the_null(&others.figures));
    }
    progress(1.0);
    Ok(Measurement { experiment, null })
}

/// Accesses of a task that runs until the time is over.
const ENDLESS: u64 = 1 << 42;

/// Samples of a warm-up; as often until the end.
const SAMPLES: u64 = 12;

/// What happened after the warm-up: nothing in it counts what came before.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub report: Report,
    pub counters: Counters,
    pub statistics: Statistics,
    pub operations: f64,
    pub seconds: f64,
    pub pressure_some_us: f64,
    pub pressure_full_us: f64,
    /// Work of kswapd, direct and limit reclaim.
    pub ledgers: [Ledger; 3],
    /// CPU of the three, seconds.
    pub reclaim_cpu: [f64; 3],
    /// CPU of the tasks, seconds.
    pub task_cpu: f64,
    /// Starts of tasks after their first.
    pub starts: f64,
}

impl Measured {
    pub fn per_second(&self) -> f64 {
        self.operations / self.seconds
    }

    pub fn refaults(&self) -> f64 {
        (self.counters.workingset_refault_anon + self.counters.workingset_refault_file) as f64
    }

    /// Pages that had to be read, from files or swap.
    pub fn loads(&self) -> f64 {
        (self.counters.pswpin + self.counters.file_reads) as f64
    }

    /// Per cent of kswapd's CPU.
    pub fn kswapd_share(&self, work: Work) -> f64 {
        100.0 * self.ledgers[0].0[work as usize] as f64 / self.ledgers[0].total().max(1) as f64
    }
}

/// Runs a machine; `warm_up` and the configuration's duration say what is measured. A warm-up of 0 measures all.
pub(crate) fn measure<P: Policy + Send + 'static>(
    mut config: MachineConfig,
    policy: P,
    warm_up: u64,
) -> Result<Measured, String> {
    config.sample_interval = warm_up / SAMPLES;
    config.latencies_from = warm_up;
    let report = Machine::new(config, policy)?.run().map_err(|error| error.to_string())?;
    let start = (warm_up > 0).then(|| report.samples.get(SAMPLES as usize - 1)).flatten();
    if warm_up > 0 && start.is_none() {
        return Err(format!("a run of {} ns ended within its warm-up of {warm_up} ns", report.elapsed));
    }
    let ledgers = match start {
        Some(sample) => [0, 1, 2].map(|who| {
            let (all, warm) = (report.ledgers[who].0, sample.ledgers[who].0);
            Ledger(std::array::from_fn(|kind| all[kind] - warm[kind]))
        }),
        None => report.ledgers,
    };
    let count = |of: fn(&Sample) -> u64| start.map_or(0, of);
    let task_cpu: u64 = report.tasks.iter().map(|task| task.cpu_time).sum();
    // What begins at all begins once; a start of a task that had not begun before the warm-up's end is its first.
    let begun = |starts: u64| starts.saturating_sub(report.tasks.len() as u64);
    let starts: u64 = report.tasks.iter().map(|task| task.starts).sum();
    Ok(Measured {
        counters: start.map_or(report.counters, |sample| report.counters.since(&sample.counters)),
        statistics: start.map_or(report.statistics, |sample| report.statistics.since(&sample.statistics)),
        operations: (report.operations - count(|sample| sample.operations)) as f64,
        seconds: (report.elapsed - count(|sample| sample.at)) as f64 / 1e9,
        pressure_some_us: (report.some.total_us - count(|sample| sample.some.total_us)) as f64,
        pressure_full_us: (report.full.total_us - count(|sample| sample.full.total_us)) as f64,
        reclaim_cpu: ledgers.map(|ledger| ledger.total() as f64 / 1e9),
        task_cpu: (task_cpu - count(|sample| sample.task_cpu)) as f64 / 1e9,
        starts: (begun(starts) - begun(count(|sample| sample.starts))) as f64,
        ledgers,
        report,
    })
}

/// A figure of three runs.
pub(crate) fn trial(before: &Measured, after: &Measured, null: &Measured, figure: impl Fn(&Measured) -> f64) -> Trial {
    Trial { before: figure(before), after: figure(after), null: Some(figure(null)) }
}

/// A part of a whole, 0 of nothing.
pub(crate) fn per(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// A workload from its text.
pub(crate) fn workload(text: &str) -> Source {
    let spec: WorkloadSpec = text.parse().expect("invariant: the experiments' workloads are valid");
    Source::workload(spec)
}

/// A file of that many pages.
pub(crate) fn file(name: &str, pages: u64) -> FileConfig {
    FileConfig { name: name.into(), pages: pages as u32, executable: false }
}

/// A group directly below the root with a limit.
pub(crate) fn limited(name: &str, pages: u64) -> GroupConfig {
    GroupConfig { name: name.into(), limits: GroupLimits { max: pages, ..GroupLimits::default() } }
}

/// A task that does one thing until the time is over.
pub(crate) fn endless(name: String, group: usize, phase: PhaseConfig) -> TaskConfig {
    TaskConfig { name, group, rounds: u64::MAX, phases: vec![phase], ..TaskConfig::default() }
}

/// A preset device.
pub(crate) fn device(name: &str) -> DeviceModel {
    DeviceModel::preset(name).expect("invariant: a preset's name")
}

/// The workload of one job of a fio run: single pages of its own file, as `fio --norandommap` chooses them. `law` is
/// fio's `random_distribution`. Seed 1 makes fio's own sequence; others number the threads further on.
pub fn fio_job(law: &str, jobs: u64, job: u64, pages: u64, reads: u64, seed: u64) -> String {
    let (size, io_size, thread) = (pages * 4096, reads * 4096, seed.saturating_sub(1) * 1000 + 1);
    format!(
        "fio:random_distribution={law},norandommap=1,size={size},io_size={io_size},numjobs={jobs},job={job},\
         thread={thread}"
    )
}

/// The jobs of a fio run: each reads single pages of its own file at random, without readahead.
pub(crate) fn fio_jobs(config: &mut MachineConfig, group: usize, jobs: u64, pages: u64, distribution: &str, seed: u64) {
    for job in 0..jobs {
        let index = config.files.len();
        config.files.push(file(&format!("fio.{job}"), pages));
        let spec = fio_job(distribution, jobs, job, pages, ENDLESS, seed);
        let phase = PhaseConfig { random: true, ..PhaseConfig::new(workload(&spec), Some(index)) };
        let task = endless(format!("fio.{job}"), group, phase);
        // With a read that hits this makes the 8 / 5137.5 k seconds of CPU that the published hosts take (spec: numbers
        // §1, fio 1, where everything fits).
        config.tasks.push(TaskConfig { cpu_per_access: 1_000, ..task });
    }
}

/// Pictures of runs over time: refaults, CPU in reclaim, throughput. `workload` names what they ran.
pub(crate) fn charts(workload: &str, runs: &[(&str, &Measured)]) -> Vec<Chart> {
    type Figure = fn(&Sample) -> f64;
    let figures: [(&str, &str, Figure); 3] = [
        ("refaults", "pages per second", |sample| {
            (sample.counters.workingset_refault_anon + sample.counters.workingset_refault_file) as f64
        }),
        ("CPU in reclaim", "CPUs", |sample| sample.ledgers.iter().map(Ledger::total).sum::<u64>() as f64 / 1e9),
        ("throughput", "operations per second", |sample| sample.operations as f64),
    ];
    let chart = |(title, unit, figure): (&str, &str, Figure)| Chart {
        title: format!("{workload}: {title}"),
        x_axis: "simulated time, s".into(),
        y_axis: unit.into(),
        stacked: false,
        series: runs.iter().map(|(name, run)| rate(name, &run.report.samples, figure)).collect(),
    };
    figures.into_iter().map(chart).collect()
}

/// What a figure grew by in each second between two samples.
fn rate(name: &str, samples: &[Sample], figure: fn(&Sample) -> f64) -> Series {
    let points = samples.windows(2).map(|pair| {
        let seconds = (pair[1].at - pair[0].at) as f64 / 1e9;
        (pair[1].at as f64 / 1e9, (figure(&pair[1]) - figure(&pair[0])) / seconds)
    });
    Series { name: name.into(), points: points.collect() }
}

#[cfg(test)]
mod tests;
