//! The multi-gen LRU with refault distances (2023): file reads of three times memory, and a store with idle anonymous
//! memory. Four policies in the order in which the discussion prints them: the unpatched multi-gen LRU, the redesign,
//! the competing fix, and the multi-gen LRU switched off.
//!
//! The redesign was posted on the unpatched multi-gen LRU, against the fix: so it runs here without either part of the
//! fix. The null is "before" with other random choices: for each row, the change not made.
//!
//! Source: the cover letter of September 2023 and the discussion that followed it; spec: numbers §2, §3, §8 (R2, R5).
//!
//! ```no_run
//! use refault_lab::experiments::{Options, Size, mglru_refault};
//!
//! let experiment = mglru_refault::run(&Options::new(Size::Small, 1), &|_| {})?;
//! println!("{} of {} judged figures agree", experiment.score().agree, experiment.score().judged);
//! # Ok::<(), String>(())
//! ```

use refault_core::mglru::RefaultDistance;
use refault_core::{Classic, ClassicParams, Mglru, MglruParams};

use super::{
    ENDLESS, Measured, Measurement, Options, Progress, charts, device, endless, file, fio_jobs, limited, measure,
    other_seed, per, run_seeds, trial, workload,
};
use crate::experiment::{Chart, Experiment, Figure, Rule, Study, Trial, Values};
use refault_sim::machine::config::{MachineConfig, PhaseConfig, TaskConfig};
use refault_sim::machine::device::DeviceModel;

/// What a miss costs there beyond allocation, reclaim and the copy, in nanoseconds: 8 CPUs and 6548 MiB/s are 4.8 us
/// per operation. A hit takes 1.6 us of them (the uniform run of the same author that fits in memory). The share of
/// misses that the sum needs is our own, so that absolute throughput is fitted; changes of throughput are measured with
/// two other costs as well.
const MISS: u64 = 5_300;

/// The other costs of a miss, from a third to three times as much.
const OTHER_MISSES: [(u64, &str); 2] = [(MISS / 3, "a third"), (MISS * 3, "three times")];

/// Reads of each page of the fio files, warm-up included. The published runs read each page about that often before
/// they measure (five minutes at 1.6 M reads/s): after a few reads the lists are still far from where they end.
const READS_PER_PAGE: u64 = 150;

/// The redesign, the fix and the classic lists, each against the unpatched multi-gen LRU.
const NAMES: [&str; 3] = ["refault distance", "fix of Dec 2023", "multi-gen LRU off"];

/// Every page alike, as fio names it.
const UNIFORM: &str = "random";

/// Distribution, name, and MiB/s: unpatched, then as [`NAMES`].
const FIO: [(&str, &str, [f64; 4]); 2] = [
    ("zipf:0.5", "zipf 0.5", [6548.0, 7270.0, 7098.0, 6525.0]),
    (UNIFORM, "uniform", [5975.0, 5987.0, 5839.0, 5689.0]),
];

/// Runs the experiment.
///
/// # Errors
/// A machine that does not fit together, which is a defect.
pub fn run(options: &Options, progress: Progress) -> Result<Experiment, String> {
    measurement(options, progress).map(Measurement::asked)
}

pub(super) fn measurement(options: &Options, progress: Progress) -> Result<Measurement, String> {
    let shrink = options.pick(512, 64, 4);
    let study = |seed: u64, progress: Progress| study(shrink, &Options { seed, ..*options }, progress);
    run_seeds(options, progress, study, |experiment| {
        experiment.experiment = "mglru-refault".into();
        experiment.scale = 1.0 / shrink as f64;
        experiment.verdict = verdict(experiment);
        experiment.remarks = REMARKS.map(str::to_string).to_vec();
    })
}

const REMARKS: [&str; 8] = [
    "Policies, in the order printed: mglru{reads_start_oldest=yes,protects_frequent=no}; the same with \
     refault=evictions, which is what the redesign was posted on; mglru, which has both parts of the fix; classic.",
    "The redesign's last patch was not retrievable; refault=evictions is the form its author ships \
     (spec: workingset §6).",
    "Hit ratios are judged by the direction of the published throughput: a hit saves a read, and nothing else in the \
     model depends on the policy by as much.",
    "Throughput rests on what a miss costs, which was set from the published baseline: fitted. Rows with a third and \
     with three times that cost say how far a conclusion hangs on it.",
    "The store rows stand in for MongoDB replicas under TPC-C STOCK_LEVEL on a machine without limits, which kswapd \
     reclaims: idle anonymous memory of half of memory, file reads over twice memory. Only the direction is judged: \
     the published factor is that of a database that collapsed.",
    "Uniform reads: every order of eviction hits a third here, as it must; the published 2 to 5 percent between \
     policies are costs of locks and lists that the model does not have. These figures are not comparable.",
    "Multi-gen LRU off, zipf 0.5: published equal to unpatched; the unpatched form is a single queue here, and a \
     kernel's readers also map and age pages of their own.",
    "Refaults of the redesign against the fix: published in equal time at unequal speed; ours are per operation, so \
     that speed does not enter. The published pair is divided by its own rates (1862 k and 1830 k reads/s).",
];

fn verdict(experiment: &Experiment) -> String {
    let hits = |which: &str| experiment.rows.iter().find(|row| row.name == format!("fio zipf 0.5: {which}"));
    let after = |which: &str| hits(which).and_then(|row| row.ours.after).unwrap_or(0.0);
    format!(
        "{}; hit ratios of zipf 0.5: refault distance {:.4}, fix {:.4}, unpatched {:.4}, off {:.4}.",
        experiment.score(),
        after(NAMES[0]),
        after(NAMES[1]),
        hits(NAMES[0]).and_then(|row| row.ours.before).unwrap_or(0.0),
        after(NAMES[2])
    )
}

/// What the four policies measured, and what two of them did with other random choices.
struct Runs {
    /// Unpatched, then as [`NAMES`].
    policies: [Measured; 4],
    /// Unpatched again.
    null: Measured,
    /// The fix again.
    fix_null: Measured,
}

impl Runs {
    /// One of [`NAMES`] against the unpatched multi-gen LRU.
    fn against_unpatched(&self, after: usize, figure: impl Fn(&Measured) -> f64) -> Trial {
        trial(&self.policies[0], &self.policies[after + 1], &self.null, figure)
    }

    /// The redesign against the fix.
    fn against_the_fix(&self, figure: impl Fn(&Measured) -> f64) -> Trial {
        trial(&self.policies[2], &self.policies[1], &self.fix_null, figure)
    }

    fn labelled(&self) -> Vec<(&'static str, &Measured)> {
        ["unpatched", NAMES[0], NAMES[1], NAMES[2]].into_iter().zip(&self.policies).collect()
    }
}

/// The redesign as posted: on the multi-gen LRU as released, without the fix that competed with it.
fn redesign() -> MglruParams {
    MglruParams { refault: RefaultDistance::Evictions, ..MglruParams::before_2024() }
}

/// `config` makes the machine for a seed.
fn runs(config: &dyn Fn(u64) -> MachineConfig, options: &Options, progress: &dyn Fn(f64)) -> Result<Runs, String> {
    let (first, other) = (config(options.seed), config(other_seed(options.seed)));
    let mut done = 0.0;
    let mut mglru = |config: &MachineConfig, params| {
        let measured = measure(config.clone(), Mglru::new(params), warm_up(config));
        done += 1.0;
        progress(done / 6.0);
        measured
    };
    let unpatched = mglru(&first, MglruParams::before_2024())?;
    let redesigned = mglru(&first, redesign())?;
    let fixed = mglru(&first, MglruParams::default())?;
    let null = mglru(&other, MglruParams::before_2024())?;
    let fix_null = mglru(&other, MglruParams::default())?;
    let off = measure(first.clone(), Classic::new(ClassicParams::default()), warm_up(&first))?;
    progress(1.0);
    Ok(Runs { policies: [unpatched, redesigned, fixed, off], null, fix_null })
}

/// A third of the run.
fn warm_up(config: &MachineConfig) -> u64 {
    config.duration.unwrap_or(0) / 3
}

fn hit_ratio(m: &Measured) -> f64 {
    1.0 - per(m.loads(), m.operations)
}

fn throughput(m: &Measured) -> f64 {
    m.per_second() * 4096.0 / 1_048_576.0
}

fn study(shrink: u64, options: &Options, progress: Progress) -> Result<Study, String> {
    let mut study = Study::default();
    for (index, (distribution, name, published)) in FIO.into_iter().enumerate() {
        let part = |done: f64| progress((index as f64 + done) / 4.0);
        let runs = runs(&|seed| fio(shrink, distribution, MISS, seed), options, &part)?;
        study.charts.extend(charts(&format!("fio {name}"), &runs.labelled()));
        for (after, after_name) in NAMES.iter().enumerate() {
            let title = format!("fio {name}: {after_name}");
            let published = Values::of(published[0], published[after + 1]);
            let change = Values { ratio: published.ratio, ..Values::NONE };
            let hits = runs.against_unpatched(after, hit_ratio);
            // Every order of eviction hits as often where all pages are equal: the document measures locks there.
            let rule = if distribution == UNIFORM { Rule::Incomparable } else { Rule::DIRECTION };
            study.figures.push(Figure::new(&title, "hit ratio", "ratio", change, rule, hits));
            // The hit ratio's row stands for the figure.
            let speed = runs.against_unpatched(after, throughput);
            let speed = Figure::new(&title, "throughput", "MiB/s", published, Rule::Fitted, speed);
            study.figures.push(speed.shown_again());
        }
        if index == 0 {
            // What two kernels can be asked: the unpatched multi-gen LRU is in none that is kept up.
            let hits = trial(&runs.policies[2], &runs.policies[3], &runs.fix_null, hit_ratio);
            let title = format!("fio {name}: {} against the fix", NAMES[2]);
            let change = Values::ratio_only(FIO[0].2[3] / FIO[0].2[2]);
            let pair = Figure::new(&title, "hit ratio", "ratio", change, Rule::DIRECTION, hits);
            study.figures.push(pair.shown_again());
            let refaults = runs.against_the_fix(|m| per(m.refaults(), m.operations));
            study.figures.push(Figure::new(
                "fio: refault distance against the fix",
                "workingset_refault per operation",
                "pages",
                Values::ratio_only((628_192_729.0 / 1862.0) / (596_790_506.0 / 1830.0)),
                Rule::CHANGE,
                refaults,
            ));
        }
    }
    study.figures.extend(sensitivity(shrink, options)?);
    progress(0.75);
    let (figures, pictures) = store(options, shrink, &|done| progress((3.0 + done) / 4.0))?;
    study.figures.extend(figures);
    study.charts.extend(pictures);
    progress(1.0);
    Ok(study)
}

/// Reads of three times the limit.
fn fio(shrink: u64, distribution: &str, miss: u64, seed: u64) -> MachineConfig {
    let limit = (1u64 << 20) / shrink;
    let mut config = MachineConfig {
        cpus: 8,
        nodes: vec![limit * 4],
        file_device: DeviceModel { read_latency: miss, ..device("ramdisk") },
        groups: vec![limited("/fio", limit)],
        // Three times the limit in pages, and a read every 600 ns.
        duration: Some(limit * 3 * READS_PER_PAGE * 600),
        ..MachineConfig::default()
    };
    fio_jobs(&mut config, 1, 12, limit / 4, distribution, seed);
    config
}

/// The redesign's change of throughput at other costs of a miss.
fn sensitivity(shrink: u64, options: &Options) -> Result<Vec<Figure>, String> {
    let (distribution, name, published) = FIO[0];
    let rows = OTHER_MISSES.map(|(miss, how_much)| {
        let config = |seed| fio(shrink, distribution, miss, seed);
        let run = |seed: u64, params| {
            let config = config(seed);
            let warm_up = warm_up(&config);
            measure(config, Mglru::new(params), warm_up)
        };
        let before = run(options.seed, MglruParams::before_2024())?;
        let after = run(options.seed, redesign())?;
        let null = run(other_seed(options.seed), MglruParams::before_2024())?;
        Ok(Figure::new(
            &format!("fio {name}: {}, a miss costs {how_much}", NAMES[0]),
            "throughput",
            "MiB/s",
            Values::of(published[0], published[1]),
            Rule::CHANGE,
            trial(&before, &after, &null, throughput),
        )
        .shown_again())
    });
    rows.into_iter().collect()
}

/// A store whose files are read beyond memory while old anonymous memory lies idle.
fn store_machine(shrink: u64, seed: u64) -> MachineConfig {
    let memory = (1u64 << 23) / (shrink * 8);
    let mut config = MachineConfig {
        cpus: 8,
        nodes: vec![memory],
        file_device: device("nvme"),
        swap_device: Some(device("zram-lz4")),
        swap_pages: memory,
        ..MachineConfig::default()
    };
    let (idle, pages) = (memory / 2, memory * 2);
    config.files.push(file("data", pages));
    let filler = PhaseConfig::new(workload(&format!("cyclic:pages={idle},accesses={idle},writes=1")), None);
    let rest = PhaseConfig { pause: 1 << 60, ..PhaseConfig::new(workload("cyclic:pages=1,accesses=1"), None) };
    config.tasks.push(TaskConfig {
        name: "idle".into(),
        anon_pages: idle as u32,
        phases: vec![filler, rest],
        ..TaskConfig::default()
    });
    for client in 0..30 {
        let seed = seed * 1000 + client;
        let spec = format!("zipf:theta=0.4,pages={pages},accesses={ENDLESS},kind=fd,seed={seed}");
        let phase = PhaseConfig { random: true, ..PhaseConfig::new(workload(&spec), Some(0)) };
        let task = endless(format!("client.{client}"), 0, phase);
        config.tasks.push(TaskConfig {
            start: 100_000_000,
            cpu_per_access: 2_000,
            accesses_per_operation: 200,
            ..task
        });
    }
    // Long enough for each page of the file to be read about a hundred times.
    config.duration = Some(memory * 400_000);
    config
}

fn store(options: &Options, shrink: u64, progress: &dyn Fn(f64)) -> Result<(Vec<Figure>, Vec<Chart>), String> {
    let runs = runs(&|seed| store_machine(shrink, seed), options, progress)?;
    let mut figures = Vec::new();
    for ((after, name), published) in NAMES.iter().enumerate().zip([Some(2542.0), Some(1594.0), None]) {
        let (published, rule) = match published {
            Some(value) => (Values::of(500.0, value), Rule::DIRECTION),
            None => (Values::NONE, Rule::Unjudged),
        };
        figures.push(Figure::new(
            &format!("store: {name}"),
            "transactions",
            "published: in 900 s, ours: per s",
            published,
            rule,
            runs.against_unpatched(after, Measured::per_second),
        ));
    }
    let mut pair = |metric: &str, published: Values, rule: Rule, pick: fn(&Measured) -> u64| {
        let trial = runs.against_the_fix(|m| pick(m) as f64);
        figures.push(Figure::new("store: refault distance against the fix", metric, "pages", published, rule, trial));
    };
    let file = Values::of(20_335_355.0, 22_751_782.0);
    pair("workingset_refault_file", file, Rule::DIRECTION, |m| m.counters.workingset_refault_file);
    let anon = Values::of(35_277.0, 10_512.0);
    pair("workingset_refault_anon", anon, Rule::DIRECTION, |m| m.counters.workingset_refault_anon);
    // Of the whole run: idle memory goes out once, and that may be before the measured part.
    pair("pswpout, of the whole run", Values::NONE, Rule::Unjudged, |m| m.report.counters.pswpout);
    Ok((figures, charts("store", &runs.labelled())))
}
