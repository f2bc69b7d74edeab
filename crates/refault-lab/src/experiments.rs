//! Published experiments, run again on the simulated machine.
//!
//! Each room holds one document's experiments: the workloads with what they rest on, the published figures, and how
//! ours are taken. Sizes are scaled: memory and everything that must keep its proportion to it shrink by the same
//! factor, times and costs do not. Figures are taken after a warm-up, over the rest of the run.

pub mod freepool;
pub mod lru_sort;
pub mod mglru_fio;
pub mod mglru_refault;
pub mod mglru_v1;
pub mod shadow_lru;

use refault_core::{Counters, Policy};
use refault_trace::{Source, WorkloadSpec};

use crate::experiment::{Chart, Row, Series, Values};
use refault_sim::machine::Machine;
use refault_sim::machine::config::{FileConfig, GroupConfig, MachineConfig, PhaseConfig, TaskConfig};
use refault_sim::machine::device::DeviceModel;
use refault_sim::machine::group::GroupLimits;
use refault_sim::machine::report::{Report, Sample};

/// How an experiment is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// At the larger scale.
    pub full: bool,
    /// Of all random choices.
    pub seed: u64,
}

/// Is told how far an experiment is, from 0 to 1.
pub type Progress<'a> = &'a (dyn Fn(f64) + Sync);

/// Accesses of a task that runs until the time is over.
const ENDLESS: u64 = 1 << 42;

/// Samples of a warm-up; as often until the end.
const SAMPLES: u64 = 12;

/// What happened after the warm-up.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub report: Report,
    /// Counted after the warm-up.
    pub counters: Counters,
    pub operations: f64,
    pub seconds: f64,
    pub pressure_full_us: f64,
    /// CPU of kswapd, direct and limit reclaim after the warm-up, seconds.
    pub reclaim_cpu: [f64; 3],
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
}

/// Runs a machine; `warm_up` and the configuration's duration say what is measured.
pub(crate) fn measure<P: Policy>(mut config: MachineConfig, policy: P, warm_up: u64) -> Result<Measured, String> {
    config.sample_interval = warm_up / SAMPLES;
    let report = Machine::new(config, policy)?.run().map_err(|error| error.to_string())?;
    let start = report.samples.get(SAMPLES as usize - 1);
    let (from, counted, done) = start.map_or((0, Counters::default(), 0), |s| (s.at, s.counters, s.operations));
    let cpu_before = start.map_or([0; 3], |s| s.reclaim_cpu);
    let cpu = [0, 1, 2].map(|i| (report.ledgers[i].total() - cpu_before[i]) as f64 / 1e9);
    Ok(Measured {
        counters: report.counters.since(&counted),
        operations: (report.operations - done) as f64,
        seconds: (report.elapsed - from) as f64 / 1e9,
        pressure_full_us: (report.full.total_us - start.map_or(0, |s| s.full.total_us)) as f64,
        reclaim_cpu: cpu,
        report,
    })
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

/// The jobs of a fio run: each reads single pages of its own file at random, without readahead.
pub(crate) fn fio_jobs(config: &mut MachineConfig, group: usize, jobs: u64, pages: u64, distribution: &str, seed: u64) {
    for job in 0..jobs {
        let index = config.files.len();
        config.files.push(file(&format!("fio.{job}"), pages));
        let spec = format!("{distribution},pages={pages},accesses={ENDLESS},kind=fd,seed={}", seed * 1000 + job);
        let phase = PhaseConfig { random: true, ..PhaseConfig::new(workload(&spec), Some(index)) };
        let task = endless(format!("fio.{job}"), group, phase);
        // With a read that hits this makes the 8 / 5137.5 k seconds of CPU that the published hosts take (spec: numbers
        // §1, fio 1, where everything fits).
        config.tasks.push(TaskConfig { cpu_per_access: 1_000, ..task });
    }
}

/// How many of the judged rows agree, for the verdict.
pub(crate) fn agreement(rows: &[Row]) -> (usize, usize) {
    let judged = rows.iter().filter(|row| row.agrees.is_some()).count();
    (rows.iter().filter(|row| row.agrees == Some(true)).count(), judged)
}

/// A published value whose counterpart is not known.
pub(crate) fn only(before: Option<f64>, after: Option<f64>) -> Values {
    Values { before, after, ratio: None }
}

/// Pictures of runs over time: refaults, CPU in reclaim, throughput. `workload` names what they ran.
pub(crate) fn charts(workload: &str, runs: &[(&str, &Measured)]) -> Vec<Chart> {
    type Figure = fn(&Sample) -> f64;
    let figures: [(&str, &str, Figure); 3] = [
        ("refaults", "pages per second", |sample| {
            (sample.counters.workingset_refault_anon + sample.counters.workingset_refault_file) as f64
        }),
        ("CPU in reclaim", "CPUs", |sample| sample.reclaim_cpu.iter().sum::<u64>() as f64 / 1e9),
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
