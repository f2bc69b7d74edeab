//! The profile comparison of the multi-gen LRU's second posting (2021): uniform random reads by descriptor.
//!
//! Every page is equal, so activating on the second access and deactivating before eviction is work for nothing. Shares
//! of CPU are taken from the machine's ledger of work; the functions of the profile map to kinds of work as the rows
//! say. What a function did under one policy is compared with whatever does its work under the other: moving pages
//! between lists is one kind of work, whether it shrinks an active list or sorts into generations. The null is the
//! classic lists with other random choices.
//!
//! Source: the v2 thread of April 2021; spec: numbers §4.
//!
//! ```no_run
//! use refault_lab::experiments::{Options, Size, mglru_fio};
//!
//! let experiment = mglru_fio::run(&Options::new(Size::Small, 1), &|_| {})?;
//! println!("{} of {} judged figures agree", experiment.score().agree, experiment.score().judged);
//! # Ok::<(), String>(())
//! ```

use refault_core::{Classic, ClassicParams, Mglru, MglruParams};

use super::{
    Measured, Measurement, Options, Progress, charts, device, fio_jobs, measure, other_seed, per, run_seeds, trial,
};
use crate::experiment::{Direction, Experiment, Figure, Rule, Study, Values};
use refault_sim::machine::config::MachineConfig;
use refault_sim::machine::costs::{Costs, Work};
use refault_sim::machine::device::DeviceModel;

/// Runs the experiment.
///
/// # Errors
/// A machine that does not fit together, which is a defect.
pub fn run(options: &Options, progress: Progress) -> Result<Experiment, String> {
    measurement(options, progress).map(Measurement::asked)
}

pub(super) fn measurement(options: &Options, progress: Progress) -> Result<Measurement, String> {
    let memory = options.pick(1u64 << 11, 1 << 14, 1 << 20);
    let study = |seed: u64, progress: Progress| study(memory, seed, progress);
    run_seeds(options, progress, study, |experiment| {
        experiment.experiment = "mglru-fio".into();
        experiment.scale = memory as f64 / (1u64 << 21) as f64;
        experiment.verdict = format!("{}.", experiment.score());
        experiment.remarks = REMARKS.map(str::to_string).to_vec();
    })
}

const REMARKS: [&str; 7] = [
    "Policies: classic (Linux 6.12) before, mglru (Linux 6.12) after; set three times memory. Memory of the published \
     host is not stated; the scale is taken against 8 GiB.",
    "pgactivate and pgdeactivate are zero under the multi-gen LRU by construction: no read through a descriptor \
     activates a page there. They are shown and not judged.",
    "Moving pages between lists is active-list shrinking before and sorting into generations after. The published \
     profile has no entry for the latter; it prints 4.35 % for keeping the sizes of generations, which the model does \
     not charge.",
    "Costs of operations are estimates; the rows with a third and three times the cost of moving a page say how far \
     the conclusion hangs on the one that decides it.",
    "The published kernel's shares include tree walks that the cost model folds into 'batch'.",
    "Waiting for the lock of a file's tree is modelled between kswapds: each holds it for 80 ns per page that it takes \
     out, and waits as in a closed queue. Readers that put pages in take it too, and are left out.",
    "Page allocation: the share is that of allocations and of the reclaim that they do themselves (row allocstall). \
     The published 12 and 9 % hold a host's page allocator, of which the model has one cost for each page.",
];

/// Random reads of three times memory.
fn machine(memory: u64, seed: u64, costs: Costs) -> MachineConfig {
    // As many requests in flight as the published run's queues hold: each is a reader of its own here.
    let mut config = MachineConfig {
        cpus: 4,
        nodes: vec![memory],
        file_device: DeviceModel { parallel: 512, ..device("nvme") },
        duration: Some(memory * 100_000),
        costs,
        ..MachineConfig::default()
    };
    fio_jobs(&mut config, 0, 128, memory * 3 / 128, "random", seed);
    config
}

/// The same reads on four nodes, each with its kswapd, of one file or of a file for each reader.
fn four_nodes(memory: u64, seed: u64, nodes: usize, one_file: bool) -> MachineConfig {
    let mut config = machine(memory, seed, Costs::default());
    config.cpus = 8;
    config.nodes = vec![memory / nodes as u64; nodes];
    let share = config.files[0].pages;
    for (job, task) in config.tasks.iter_mut().enumerate() {
        task.node = job % nodes;
        if one_file {
            for phase in &mut task.phases {
                (phase.file, phase.offset) = (Some(0), job as u32 * share);
            }
        }
    }
    if one_file {
        config.files.truncate(1);
        config.files[0].pages = share * config.tasks.len() as u32;
    }
    config
}

/// The thread's dispute: four kswapds that take pages of one file out of its tree wait for its lock; with one node, or
/// with several files, they do not.
fn contention(memory: u64, seed: u64) -> Result<Vec<Figure>, String> {
    let warm_up = memory * 30_000;
    let run = |seed: u64, nodes: usize, one_file: bool| {
        let config = four_nodes(memory, seed, nodes, one_file);
        measure(config, Classic::new(ClassicParams::default()), warm_up)
    };
    let waits = |m: &Measured| m.kswapd_share(Work::Lock);
    let four = run(seed, 4, true)?;
    let null = run(other_seed(seed), 4, true)?;
    let vanishes = Rule::Statement(Direction::Vanishes);
    let mut figures = Vec::new();
    for (name, other) in [
        ("one file on four nodes, then on one", run(seed, 1, true)?),
        ("four nodes, one file, then a file for each reader", run(seed, 4, false)?),
    ] {
        figures.push(Figure::new(name, WAITING, "%", Values::NONE, vanishes, trial(&four, &other, &null, waits)));
    }
    let generations = four_nodes(memory, seed, 4, true);
    let generations = measure(generations, Mglru::new(MglruParams::default()), warm_up)?;
    let both = trial(&four, &generations, &null, waits);
    figures.push(Figure::new("four nodes, one file", WAITING, "%", Values::NONE, Rule::Unjudged, both));
    Ok(figures)
}

const WAITING: &str = "waiting for the lock of the file's tree, share of kswapd's CPU";

/// Classic lists, generations, and classic lists with other random choices.
fn three(memory: u64, seed: u64, costs: &Costs) -> Result<[Measured; 3], String> {
    let warm_up = memory * 30_000;
    let config = |seed| machine(memory, seed, costs.clone());
    let classic = || Classic::new(ClassicParams::default());
    Ok([
        measure(config(seed), classic(), warm_up)?,
        measure(config(seed), Mglru::new(MglruParams::default()), warm_up)?,
        measure(config(other_seed(seed)), classic(), warm_up)?,
    ])
}

fn study(memory: u64, seed: u64, progress: Progress) -> Result<Study, String> {
    let costs = Costs::default();
    let runs = three(memory, seed, &costs)?;
    progress(1.0 / 4.0);
    let mut figures = rows(&runs, &costs);
    figures.extend(contention(memory, seed)?);
    progress(1.0 / 2.0);
    for (done, (list_move, how_much)) in
        [(costs.list_move / 3, "a third"), (costs.list_move * 3, "three times")].into_iter().enumerate()
    {
        let [before, after, null] = three(memory, seed, &Costs { list_move, ..costs.clone() })?;
        progress((done as f64 + 3.0) / 4.0);
        let figure = Figure::new(
            &format!("kswapd, moving a page costs {how_much}"),
            MOVING,
            "%",
            Values::of(6.53, 0.0),
            Rule::Statement(Direction::Vanishes),
            trial(&before, &after, &null, |m| m.kswapd_share(Work::Sort)),
        );
        figures.push(figure.shown_again());
    }
    let [before, after, _] = &runs;
    let charts = charts("uniform random reads", &[("classic", before), ("multi-gen LRU", after)]);
    Ok(Study { figures, charts })
}

const MOVING: &str = "moving pages between lists (shrink_active_list), share of CPU";

/// Pages moved between lists, or on the same list: activated, and taken from an active list or sorted.
fn moves(m: &Measured) -> f64 {
    per((m.counters.pgactivate + m.counters.pgrefill) as f64, m.counters.pgsteal as f64)
}

fn rows([before, after, null]: &[Measured; 3], costs: &Costs) -> Vec<Figure> {
    let figure = |name: &str, metric: &str, unit: &str, published, rule, of: &dyn Fn(&Measured) -> f64| {
        Figure::new(name, metric, unit, published, rule, trial(before, after, null, of))
    };
    let own = |metric: &str, unit: &str, of: &dyn Fn(&Measured) -> f64| {
        figure("all", metric, unit, Values::NONE, Rule::Unjudged, of)
    };
    let share = |metric: &str, published: Values, rule, work: Work| {
        figure("kswapd", metric, "%", published, rule, &|m| m.kswapd_share(work))
    };
    let absent = Values::after_only(0.0);
    let allocation = |m: &Measured| {
        let stalls = m.ledgers[1].total() as f64;
        let allocations = (m.counters.file_reads * costs.allocate) as f64;
        per(100.0 * (stalls + allocations), m.task_cpu * 1e9)
    };
    vec![
        share(MOVING, Values::of(6.53, 0.0), Rule::Statement(Direction::Vanishes), Work::Sort),
        figure(
            "kswapd and fio thread",
            "moves between lists per reclaimed page",
            "moves",
            Values::NONE,
            Rule::Statement(Direction::Falls),
            &moves,
        ),
        share("shrink_page_list, share of CPU", Values::of(75.67, 77.82), Rule::SHARE, Work::Batch),
        share("isolation, share of CPU", Values::of(12.62, 12.54), Rule::SHARE, Work::Isolate),
        figure(
            "fio thread",
            "page allocation with its stalls, share of CPU",
            "%",
            Values::of(12.03, 9.45),
            Rule::CHANGE,
            &allocation,
        ),
        figure("fio thread and kswapd", "pgactivate", "pages", absent, Rule::Unjudged, &|m| {
            m.counters.pgactivate as f64
        }),
        figure("fio thread and kswapd", "pgdeactivate", "pages", absent, Rule::Unjudged, &|m| {
            m.counters.pgdeactivate as f64
        }),
        own("throughput", "k IOPS", &|m| m.per_second() / 1e3),
        own("pgrefill", "pages", &|m| m.counters.pgrefill as f64),
        own("pgscan / pgsteal", "ratio", &|m| per(m.counters.pgscan as f64, m.counters.pgsteal as f64)),
        own("kswapd CPU", "s", &|m| m.reclaim_cpu[0]),
        own("allocstall", "times", &|m| m.statistics.allocstall as f64),
        // What the thread asks of batches: how much of a pass, how often, how long, and how often it rests.
        own("pages looked at per pass of kswapd", "pages", &|m| {
            per(m.statistics.pgscan[0] as f64, m.statistics.kswapd_passes as f64)
        }),
        own("passes of kswapd", "per second", &|m| per(m.statistics.kswapd_passes as f64, m.seconds)),
        own("CPU of a pass of kswapd", "µs", &|m| per(m.reclaim_cpu[0] * 1e6, m.statistics.kswapd_passes as f64)),
        own("wake-ups of kswapd", "per second", &|m| per(m.statistics.pageoutrun as f64, m.seconds)),
        own("sleep of kswapd between wake-ups", "µs", &|m| {
            per(m.statistics.kswapd_slept as f64 / 1e3, m.statistics.pageoutrun as f64)
        }),
        own("hit ratio", "ratio", &|m| 1.0 - per(m.loads(), m.operations)),
    ]
}
