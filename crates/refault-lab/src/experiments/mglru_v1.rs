//! The multi-gen LRU's first posting (2021): scanning, page-table walks, CPU, pressure and kills under anonymous
//! memory.
//!
//! Tabs: a browser with many tabs that are visited in turn, and a busy process beside them. Phone: apps launched in
//! turn, more than memory and swap hold. Both swap to compressed memory and have a killer in user space that ends what
//! has not run for longest when memory pressure gets high. Server: several groups with their own limits on one machine.
//! The null is the classic lists with other random choices.
//!
//! Source: the cover letter of 13 March 2021; spec: numbers §5, mglru §17. The letter gives no memory sizes and no
//! command lines.
//!
//! ```no_run
//! use refault_lab::experiments::{Options, Size, mglru_v1};
//!
//! let experiment = mglru_v1::run(&Options::new(Size::Small, 1), &|_| {})?;
//! println!("{} of {} judged figures agree", experiment.score().agree, experiment.score().judged);
//! # Ok::<(), String>(())
//! ```

use refault_core::{Classic, ClassicParams, Mglru, MglruParams};

use super::{
    ENDLESS, Measured, Measurement, Options, Progress, charts, device, endless, file, limited, measure, other_seed,
    per, run_seeds, trial, workload,
};
use crate::experiment::{Direction, Experiment, Figure, Rule, Study, Values};
use refault_sim::machine::config::{MachineConfig, PhaseConfig, TaskConfig, WhenKilled};
use refault_sim::machine::costs::{Costs, Work};
use refault_sim::machine::pressure::Trigger;

/// Runs the experiment.
///
/// # Errors
/// A machine that does not fit together, which is a defect.
pub fn run(options: &Options, progress: Progress) -> Result<Experiment, String> {
    measurement(options, progress).map(Measurement::asked)
}

pub(super) fn measurement(options: &Options, progress: Progress) -> Result<Measurement, String> {
    let memory = options.pick(1u64 << 12, 1 << 14, 1 << 19);
    let study = |seed: u64, progress: Progress| study(memory, &Options { seed, ..*options }, progress);
    run_seeds(options, progress, study, |experiment| {
        experiment.experiment = "mglru-v1".into();
        experiment.scale = memory as f64 / (1u64 << 20) as f64;
        experiment.verdict = verdict(experiment);
        experiment.remarks = REMARKS.map(str::to_string).to_vec();
    })
}

const REMARKS: [&str; 8] = [
    "Policies: classic (Linux 6.12) before; after, the posting as far as 6.12's rules can be set to it: \
     mglru{tiers=1,reads_start_oldest=yes,aging=exhausted,filters=no,look_around=no}. Its number of generations is \
     not known, 4 here, 7 in the rows that say so; kswapd does not age ahead of need. Classic has improved since v5.11 (anonymous pages start \
     inactive since 5.9).",
    "Memory sizes are not published; the scale is taken against 4 GiB. Anonymous memory of the tabs is 2.2 times \
     memory, compressed swap is large enough for it and takes no memory itself.",
    "Kills: whenever tasks stall for 70 ms within a second (some; the default of Android's low-memory killer), the tab \
     or app that has not run for longest is killed, and starts cold at its next visit.",
    "The phone has 4 GiB at full size, because stalls are measured against the killer's fixed times: 30 apps of 5 % of \
     memory each, swap for half of memory.",
    "pgscan / pgsteal of about 7 is an average over a fleet of which neither loads nor kernels are published, and a \
     property of the classic lists alone: shown, not judged.",
    "The published shares before and after are of two machines (a typical profile with compressed swap; a laptop), so \
     that only their direction is judged.",
    "CPU times come from the cost model, whose figures are estimates: a reverse-map walk of 130 ns against 2 ns for an \
     entry of a table. The rows with other costs say how far the conclusion hangs on that.",
    "Refaults hardly change: tabs are visited in turn, so that what comes next was used longest ago and no order of \
     eviction saves much.",
];

fn verdict(experiment: &Experiment) -> String {
    let change = |name: &str| {
        let row = experiment.rows.iter().find(|row| row.name == name && row.metric == KSWAPD_CPU);
        100.0 * (row.and_then(|row| row.ours.ratio).unwrap_or(1.0) - 1.0)
    };
    format!(
        "{}; kswapd CPU of the tabs changes by {:+.0} % (published −51 %), by {:+.0} % if a reverse-map walk costs a \
         third and by {:+.0} % if a table entry costs three times as much.",
        experiment.score(),
        change(TABS),
        change(CHEAP_MAP),
        change(DEAR_ENTRY)
    )
}

const TABS: &str = "browser tabs";
const CHEAP_MAP: &str = "browser tabs, reverse map a third";
const DEAR_ENTRY: &str = "browser tabs, table entry three times";
const SEVEN: &str = "browser tabs, seven generations";
const KSWAPD_CPU: &str = "kswapd CPU";

/// Classic lists, the posting, and classic lists with other random choices. A quarter is warm-up.
fn three(config: &dyn Fn(u64) -> MachineConfig, seed: u64) -> Result<[Measured; 3], String> {
    let classic = || Classic::new(ClassicParams::default());
    let first = config(seed);
    let warm_up = first.duration.unwrap_or(0) / 4;
    Ok([
        measure(first.clone(), classic(), warm_up)?,
        measure(first, Mglru::new(MglruParams::first_posting()), warm_up)?,
        measure(config(other_seed(seed)), classic(), warm_up)?,
    ])
}

fn study(memory: u64, options: &Options, progress: Progress) -> Result<Study, String> {
    let mut study = Study::default();
    let costs = Costs::default();
    let tabs_with = |costs: &Costs| {
        let costs = costs.clone();
        move |seed| MachineConfig { costs: costs.clone(), ..tabs(memory, &Options { seed, ..*options }) }
    };
    let runs = three(&tabs_with(&costs), options.seed)?;
    study.figures.extend(tab_figures(&runs));
    study.charts.extend(charts(TABS, &[("classic", &runs[0]), ("multi-gen LRU", &runs[1])]));
    progress(0.13);
    study.figures.extend(seven_generations(&tabs_with(&costs), options.seed, &runs)?);
    progress(0.17);
    let other_costs = [
        (CHEAP_MAP, Costs { reverse_map: costs.reverse_map / 3, ..costs.clone() }),
        (DEAR_ENTRY, Costs { table_entry: costs.table_entry * 3, ..costs.clone() }),
    ];
    for (name, costs) in other_costs {
        let runs = three(&tabs_with(&costs), options.seed)?;
        let again = figure(&runs, name, KSWAPD_CPU, "s", Values::ratio_only(0.49), Rule::CHANGE, &kswapd_cpu);
        study.figures.push(again.shown_again());
    }
    progress(0.4);
    let runs = three(&|seed| phone(&Options { seed, ..*options }), options.seed)?;
    study.figures.extend(phone_figures(&runs));
    study.charts.extend(charts("phone apps", &[("classic", &runs[0]), ("multi-gen LRU", &runs[1])]));
    progress(0.8);
    let runs = three(&|seed| server(memory, &Options { seed, ..*options }), options.seed)?;
    study.figures.extend(server_figures(&runs));
    study.charts.extend(charts("server", &[("classic", &runs[0]), ("multi-gen LRU", &runs[1])]));
    progress(1.0);
    Ok(study)
}

/// The posting's number of generations was set when the kernel was built and is not known: as many as there can be here.
fn seven_generations(
    config: &dyn Fn(u64) -> MachineConfig,
    seed: u64,
    [before, _, null]: &[Measured; 3],
) -> Result<[Figure; 2], String> {
    let config = config(seed);
    let warm_up = config.duration.unwrap_or(0) / 4;
    let params = MglruParams { max_generations: 7, ..MglruParams::first_posting() };
    let after = measure(config, Mglru::new(params), warm_up)?;
    let own = |metric: &str, unit: &str, of: &dyn Fn(&Measured) -> f64| {
        Figure::new(SEVEN, metric, unit, Values::NONE, Rule::Unjudged, trial(before, &after, null, of))
    };
    Ok([own(KSWAPD_CPU, "s", &kswapd_cpu), own("refaults", "pages", &Measured::refaults)])
}

/// When the killers of tabs and apps act: the default of Android's low-memory killer (`ro.lmk.psi_partial_stall_ms`).
const KILLER: Trigger = Trigger { full: false, stall: 70_000_000, window: 1_000_000_000 };

/// Tabs visited in turn, and a process that is always busy.
fn tabs(memory: u64, options: &Options) -> MachineConfig {
    let mut config = MachineConfig {
        cpus: 4,
        nodes: vec![memory],
        file_device: device("nvme"),
        swap_device: Some(device("zram-lz4")),
        swap_pages: memory * 3,
        kill_trigger: Some(KILLER),
        ..MachineConfig::default()
    };
    config.files.push(file("program", memory / 8));
    config.files[0].executable = true;
    let (count, visit) = (44, memory * 3_000);
    let pages = memory * 22 / 10 / count;
    for tab in 0..count {
        let seed = options.seed * 1000 + tab;
        // A visit touches all of the tab's memory once and half of it again and again.
        let touch = format!("cyclic:pages={pages},accesses={pages},writes=0.5,seed={seed}");
        let use_it = format!(
            "hotcold:pages={pages},hot={},hot_share=0.875,accesses={},writes=0.25,seed={seed}",
            pages / 2,
            pages * 12
        );
        let code = format!("zipf:theta=0.9,pages={},accesses={},kind=mapped,seed={seed}", memory / 8, pages);
        config.tasks.push(TaskConfig {
            name: format!("tab.{tab}"),
            start: tab * visit,
            cpu_per_access: 600,
            accesses_per_operation: pages * 14,
            anon_pages: pages as u32,
            rounds: u64::MAX,
            phases: vec![
                PhaseConfig::new(workload(&touch), None),
                PhaseConfig::new(workload(&code), Some(0)),
                PhaseConfig::new(workload(&use_it), None),
                PhaseConfig {
                    pause: (count - 4) * visit,
                    ..PhaseConfig::new(workload("cyclic:pages=1,accesses=1"), None)
                },
            ],
            when_killed: WhenKilled::Restart((count / 2) * visit),
            ..TaskConfig::default()
        });
    }
    let busy = memory / 10;
    let phase = PhaseConfig::new(
        workload(&format!("zipf:theta=0.8,pages={busy},accesses={ENDLESS},writes=0.25,seed={}", options.seed)),
        None,
    );
    let task = endless("browser".into(), 0, phase);
    config.tasks.push(TaskConfig {
        anon_pages: busy as u32,
        cpu_per_access: 500,
        accesses_per_operation: 1000,
        ..task
    });
    config.duration = Some(count * visit * 5);
    config.restarts = 1_000_000;
    config
}

/// Apps launched in turn on a phone of 4 GiB. A launch reads half of the app's memory, then works for about a second.
fn phone(options: &Options) -> MachineConfig {
    let memory: u64 = options.pick(1 << 15, 1 << 20, 1 << 20);
    let mut config = MachineConfig {
        cpus: 8,
        nodes: vec![memory],
        file_device: device("nvme"),
        swap_device: Some(device("zram-lz4")),
        swap_pages: memory / 2,
        kill_trigger: Some(KILLER),
        restarts: 1_000_000,
        ..MachineConfig::default()
    };
    config.files.push(file("libraries", memory / 16));
    config.files[0].executable = true;
    let (count, visit) = (30, 1_500_000_000);
    // About a second of work.
    let work_accesses = options.pick(20_000, 200_000, 200_000);
    let pages = memory / 20;
    for app in 0..count {
        let seed = options.seed * 1000 + app;
        let launch = format!("cyclic:pages={},accesses={},writes=0.25,seed={seed}", pages / 2, pages / 2);
        let code =
            format!("zipf:theta=0.9,pages={},accesses={},kind=mapped,seed={seed}", memory / 16, work_accesses / 10);
        let work = format!(
            "hotcold:pages={pages},hot={},hot_share=0.75,accesses={work_accesses},writes=0.25,seed={seed}",
            pages / 4
        );
        config.tasks.push(TaskConfig {
            name: format!("app.{app}"),
            start: app * visit,
            cpu_per_access: 1_000_000_000 / work_accesses,
            accesses_per_operation: pages / 2 + work_accesses * 11 / 10,
            anon_pages: pages as u32,
            rounds: u64::MAX,
            phases: vec![
                PhaseConfig { cpu_per_access: Some(500), ..PhaseConfig::new(workload(&launch), None) },
                PhaseConfig::new(workload(&code), Some(0)),
                PhaseConfig::new(workload(&work), None),
                PhaseConfig {
                    pause: (count - 1) * visit,
                    ..PhaseConfig::new(workload("cyclic:pages=1,accesses=1"), None)
                },
            ],
            when_killed: WhenKilled::Restart(count / 2 * visit),
            ..TaskConfig::default()
        });
    }
    config.duration = Some(count * visit * options.pick(4, 4, 12));
    config
}

/// Five jobs in groups of their own, together larger than the machine.
fn server(memory: u64, options: &Options) -> MachineConfig {
    let mut config = MachineConfig {
        cpus: 4,
        nodes: vec![memory],
        file_device: device("nvme"),
        swap_device: Some(device("zram-lz4")),
        swap_pages: memory * 2,
        ..MachineConfig::default()
    };
    config.files.push(file("log", memory / 2));
    for job in 0..5 {
        config.groups.push(limited(&format!("/job{job}"), memory / 2));
        let pages = memory * 3 / 10;
        let seed = options.seed * 1000 + job;
        let spec = format!(
            "hotcold:pages={pages},hot={},hot_share=0.875,phases=64,accesses={},writes=0.25,seed={seed}",
            pages / 4,
            100_000_000
        );
        let task = endless(format!("job{job}"), job as usize + 1, PhaseConfig::new(workload(&spec), None));
        config.tasks.push(TaskConfig {
            anon_pages: pages as u32,
            cpu_per_access: 400,
            accesses_per_operation: 100,
            ..task
        });
    }
    let spec = format!("cyclic:pages={},accesses={ENDLESS},kind=fd", memory / 2);
    let task = endless("reader".into(), 0, PhaseConfig::new(workload(&spec), Some(0)));
    config.tasks.push(TaskConfig { think: 20_000, ..task });
    config.duration = Some(memory * 40_000);
    config
}

/// A figure of three runs.
fn figure(
    [before, after, null]: &[Measured; 3],
    name: &str,
    metric: &str,
    unit: &str,
    published: Values,
    rule: Rule,
    of: &dyn Fn(&Measured) -> f64,
) -> Figure {
    Figure::new(name, metric, unit, published, rule, trial(before, after, null, of))
}

fn kswapd_cpu(m: &Measured) -> f64 {
    m.reclaim_cpu[0]
}

/// The machine records latencies after the warm-up only.
fn p99(m: &Measured) -> f64 {
    m.report.direct.p99_ns as f64 / 1e3
}

fn kills(m: &Measured) -> f64 {
    m.statistics.oom_kills as f64
}

fn tab_figures(runs: &[Measured; 3]) -> Vec<Figure> {
    let judged = |metric: &str, unit: &str, change: f64, of: &dyn Fn(&Measured) -> f64| {
        figure(runs, TABS, metric, unit, Values::ratio_only(change), Rule::CHANGE, of)
    };
    let own = |metric: &str, unit: &str, of: &dyn Fn(&Measured) -> f64| {
        figure(runs, TABS, metric, unit, Values::NONE, Rule::Unjudged, of)
    };
    let mut figures = vec![scan_ratio(TABS, runs)];
    figures.extend(shares(TABS, runs, true));
    figures.extend([
        judged(KSWAPD_CPU, "s", 0.49, &kswapd_cpu),
        judged("pressure full", "us", 0.48, &|m| m.pressure_full_us),
        judged("direct reclaim latency p99", "us", 0.78, &p99),
        judged("refaults", "pages", 0.93, &Measured::refaults),
        own("kills", "tabs", &kills),
        own("cold starts", "tabs", &|m| m.starts),
        own("pressure some", "us", &|m| m.pressure_some_us),
        own("direct reclaim latency p50", "us", &|m| m.report.direct.p50_ns as f64 / 1e3),
        own("allocstall", "times", &|m| m.statistics.allocstall as f64),
        own("pswpin per operation", "pages", &|m| per(m.counters.pswpin as f64, m.operations)),
        own("operations", "", &|m| m.operations),
    ]);
    figures
}

fn phone_figures(runs: &[Measured; 3]) -> Vec<Figure> {
    let name = "phone apps";
    let judged = |metric: &str, change: f64, of: &dyn Fn(&Measured) -> f64| {
        figure(runs, name, metric, "apps", Values::ratio_only(change), Rule::CHANGE, of)
    };
    let own = |metric: &str, unit: &str, of: &dyn Fn(&Measured) -> f64| {
        figure(runs, name, metric, unit, Values::NONE, Rule::Unjudged, of)
    };
    vec![
        judged("kills", 0.82, &kills),
        judged("cold starts", 0.84, &|m| m.starts),
        own("launches", "", &|m| m.operations),
        own(KSWAPD_CPU, "s", &kswapd_cpu),
        own("pressure some", "us", &|m| m.pressure_some_us),
        own("pressure full", "us", &|m| m.pressure_full_us),
        own("direct reclaim latency p99", "us", &p99),
        own("refaults", "pages", &Measured::refaults),
    ]
}

fn server_figures(runs: &[Measured; 3]) -> Vec<Figure> {
    let name = "server, five groups";
    let own = |metric: &str, unit: &str, of: &dyn Fn(&Measured) -> f64| {
        figure(runs, name, metric, unit, Values::NONE, Rule::Unjudged, of)
    };
    let mut figures = vec![scan_ratio(name, runs)];
    figures.extend(shares(name, runs, false));
    figures.extend([
        own(KSWAPD_CPU, "s", &kswapd_cpu),
        own("pressure full", "us", &|m| m.pressure_full_us),
        own("refaults", "pages", &Measured::refaults),
        own("throughput", "operations/s", &Measured::per_second),
    ]);
    figures
}

/// Pages scanned for each page reclaimed: about seven on the fleet, under the classic lists.
fn scan_ratio(name: &str, runs: &[Measured; 3]) -> Figure {
    let ratio = |m: &Measured| per(m.counters.pgscan as f64, m.counters.pgsteal as f64);
    figure(runs, name, "pgscan / pgsteal", "ratio", Values::before_only(7.0), Rule::Unjudged, &ratio)
}

fn shares(name: &str, runs: &[Measured; 3], judged: bool) -> [Figure; 5] {
    let share = |metric: &str, published: Values, direction: Direction, work: Work| {
        let (published, rule) =
            if judged { (published, Rule::Statement(direction)) } else { (Values::NONE, Rule::Unjudged) };
        figure(runs, name, metric, "%", published, rule, &|m| m.kswapd_share(work))
    };
    let own = |metric: &str, unit: &str, published, of: &dyn Fn(&Measured) -> f64| {
        figure(runs, name, metric, unit, published, Rule::Unjudged, of)
    };
    let table_walks = if judged { Values::after_only(3.47) } else { Values::NONE };
    let per_page = |value: u64, m: &Measured| per(value as f64, m.counters.pgsteal as f64);
    [
        share(
            "reverse-map walks (page_vma_mapped_walk), share of kswapd CPU",
            Values::of(31.03, 4.54),
            Direction::Falls,
            Work::ReverseMap,
        ),
        share("compression, share of kswapd CPU", Values::of(25.59, 49.36), Direction::Rises, Work::Write),
        own("page-table walks (walk_pte_range), share of kswapd CPU", "%", table_walks, &|m| {
            m.kswapd_share(Work::TableWalk)
        }),
        own("reverse-map walks per reclaimed page", "walks", Values::NONE, &|m| {
            per_page(m.counters.reference_checks, m)
        }),
        own("page-table entries walked per reclaimed page", "entries", Values::NONE, &|m| {
            per_page(m.counters.walk_entries, m)
        }),
    ]
}
