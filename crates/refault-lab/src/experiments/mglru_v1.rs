//! The multi-gen LRU's first posting (2021): scanning, page-table walks, CPU, pressure and kills under anonymous
//! memory.
//!
//! Tabs: a browser with many tabs that are visited in turn, and a busy process beside them. Phone: apps launched in
//! turn, more than memory and swap hold. Both swap to compressed memory and have a killer in user space that ends what
//! has not run for longest when memory pressure gets high. Server: several groups with their own limits on one machine.
//!
//! Source: the cover letter of 13 March 2021; spec: numbers §5. It gives no memory sizes and no command lines.

use refault_core::{Classic, ClassicParams, Mglru, MglruParams};

use super::{
    ENDLESS, Measured, Options, Progress, agreement, charts, device, endless, file, limited, measure, only, workload,
};
use crate::experiment::{Agreement, Experiment, Row, Values};
use refault_sim::machine::config::{MachineConfig, PhaseConfig, TaskConfig, WhenKilled};
use refault_sim::machine::costs::Work;
use refault_sim::machine::pressure::Trigger;

/// Runs the experiment.
///
/// # Errors
/// A machine that does not fit together, which is a defect.
pub fn run(options: &Options, progress: Progress) -> Result<Experiment, String> {
    let memory: u64 = if options.full { 1 << 19 } else { 1 << 16 };
    // As posted: generations without tiers.
    let v1 = MglruParams { tiers: 1, reads_start_oldest: true, ..MglruParams::default() };
    let tabs = tabs(memory, options);
    let warm_up = tabs.duration.unwrap_or(0) / 4;
    let before = measure(tabs.clone(), Classic::new(ClassicParams::default()), warm_up)?;
    progress(0.15);
    let after = measure(tabs, Mglru::new(v1), warm_up)?;
    progress(0.3);
    let phone = phone(options);
    let warm_up = phone.duration.unwrap_or(0) / 4;
    let phone_before = measure(phone.clone(), Classic::new(ClassicParams::default()), warm_up)?;
    progress(0.5);
    let phone_after = measure(phone, Mglru::new(v1), warm_up)?;
    progress(0.7);
    let server = server(memory, options);
    let warm_up = server.duration.unwrap_or(0) / 4;
    let server_before = measure(server.clone(), Classic::new(ClassicParams::default()), warm_up)?;
    progress(0.85);
    let server_after = measure(server, Mglru::new(v1), warm_up)?;
    progress(1.0);
    let mut rows = tab_rows(&before, &after);
    rows.extend(phone_rows(&phone_before, &phone_after));
    rows.extend(server_rows(&server_before, &server_after));
    let (agree, judged) = agreement(&rows);
    let verdict = format!(
        "{agree} of {judged} rows agree in direction and size (a factor of four of the change); kswapd CPU changes by \
         {:+.0} % (published −51 %).",
        100.0 * (after.reclaim_cpu[0] / before.reclaim_cpu[0].max(1e-9) - 1.0)
    );
    Ok(Experiment {
        experiment: "mglru-v1".into(),
        seed: options.seed,
        scale: memory as f64 / (1u64 << 20) as f64,
        rows,
        verdict,
        remarks: vec![
            "Policies: classic (Linux 6.12) before; mglru{tiers=1,reads_start_oldest=yes} after, the nearest to the posting. Classic has improved since v5.11 (anonymous pages start inactive since 5.9).".into(),
            "Memory sizes are not published; the scale is taken against 4 GiB. Anonymous memory of the tabs is 2.2 times memory, compressed swap is large enough for it and takes no memory itself.".into(),
            "Kills: whenever tasks stall for 70 ms within a second (some; the default of Android's low-memory killer), the tab or app that has not run for longest is killed, and starts cold at its next visit.".into(),
            "The phone has 4 GiB at full size, because stalls are measured against the killer's fixed times: 30 apps of 5 % of memory each, swap for half of memory.".into(),
            "pgscan / pgsteal of about 7 is an average over a fleet of which neither loads nor kernels are published; classic here scans two to three pages for one, whose references come from the accesses alone.".into(),
            "Refaults hardly change: tabs are visited in turn, so that what comes next was used longest ago and no order of eviction saves much.".into(),
            "Shares of CPU come from the cost model; 'page_vma_mapped_walk' is the reverse-map part, 'walk_pte_range' the page-table walks.".into(),
        ],
        charts: [
            charts("browser tabs", &[("classic", &before), ("multi-gen LRU", &after)]),
            charts("phone apps", &[("classic", &phone_before), ("multi-gen LRU", &phone_after)]),
            charts("server", &[("classic", &server_before), ("multi-gen LRU", &server_after)]),
        ]
        .concat(),
    })
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
    let memory: u64 = 1 << 20;
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
    let pages = memory / 20;
    for app in 0..count {
        let seed = options.seed * 1000 + app;
        let launch = format!("cyclic:pages={},accesses={},writes=0.25,seed={seed}", pages / 2, pages / 2);
        let code = format!("zipf:theta=0.9,pages={},accesses=20000,kind=mapped,seed={seed}", memory / 16);
        let work =
            format!("hotcold:pages={pages},hot={},hot_share=0.75,accesses=200000,writes=0.25,seed={seed}", pages / 4);
        config.tasks.push(TaskConfig {
            name: format!("app.{app}"),
            start: app * visit,
            cpu_per_access: 5_000,
            accesses_per_operation: pages / 2 + 220_000,
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
    config.duration = Some(count * visit * if options.full { 12 } else { 4 });
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
    config.duration = Some(memory * 60_000);
    config
}

const LOOSE: Agreement = Agreement { unchanged_within: 0.02, size_within: 4.0 };

fn tab_rows(before: &Measured, after: &Measured) -> Vec<Row> {
    let name = "browser tabs";
    let mut rows = vec![scan_ratio(name, before, after)];
    rows.extend(shares(name, before, after));
    let judged = |metric: &str, unit: &str, change: f64, b: f64, a: f64| {
        Row::judged(name, metric, unit, Values::ratio_only(change), Values::of(b, a), LOOSE)
    };
    let p99 = |m: &Measured| m.report.direct.p99_ns as f64 / 1e3;
    let per_operation = |value: f64, m: &Measured| value / m.operations.max(1.0);
    rows.extend([
        judged("kswapd CPU", "s", 0.49, before.reclaim_cpu[0], after.reclaim_cpu[0]),
        judged("pressure full", "us", 0.48, before.pressure_full_us, after.pressure_full_us),
        judged("direct reclaim latency p99", "us", 0.78, p99(before), p99(after)),
        judged("refaults", "pages", 0.93, before.refaults(), after.refaults()),
        Row::unpublished(name, "kills", "tabs", Values::of(kills(before), kills(after))),
        Row::unpublished(name, "cold starts", "tabs", Values::of(starts(before), starts(after))),
        Row::unpublished(name, "pressure some", "us", Values::of(some(before), some(after))),
        Row::unpublished(
            name,
            "direct reclaim latency p50",
            "us",
            Values::of(before.report.direct.p50_ns as f64 / 1e3, after.report.direct.p50_ns as f64 / 1e3),
        ),
        Row::unpublished(
            name,
            "direct reclaim latency max",
            "us",
            Values::of(before.report.direct.max_ns as f64 / 1e3, after.report.direct.max_ns as f64 / 1e3),
        ),
        Row::unpublished(
            name,
            "allocstall",
            "times",
            Values::of(before.report.statistics.allocstall as f64, after.report.statistics.allocstall as f64),
        ),
        Row::unpublished(
            name,
            "pswpin per operation",
            "pages",
            Values::of(
                per_operation(before.counters.pswpin as f64, before),
                per_operation(after.counters.pswpin as f64, after),
            ),
        ),
        Row::unpublished(name, "operations", "", Values::of(before.operations, after.operations)),
    ]);
    rows
}

fn kills(m: &Measured) -> f64 {
    m.report.statistics.oom_kills as f64
}

/// Starts after the first: what was killed and came back.
fn starts(m: &Measured) -> f64 {
    m.report.tasks.iter().map(|task| task.starts.saturating_sub(1)).sum::<u64>() as f64
}

fn some(m: &Measured) -> f64 {
    m.report.some.total_us as f64
}

fn phone_rows(before: &Measured, after: &Measured) -> Vec<Row> {
    let name = "phone apps";
    let judged = |metric: &str, change: f64, b: f64, a: f64| {
        Row::judged(name, metric, "apps", Values::ratio_only(change), Values::of(b, a), LOOSE)
    };
    let row = |metric: &str, unit: &str, b: f64, a: f64| Row::unpublished(name, metric, unit, Values::of(b, a));
    vec![
        judged("kills", 0.82, kills(before), kills(after)),
        judged("cold starts", 0.84, starts(before), starts(after)),
        row("launches", "", before.operations, after.operations),
        row("kswapd CPU", "s", before.reclaim_cpu[0], after.reclaim_cpu[0]),
        row("pressure some", "us", some(before), some(after)),
        row("pressure full", "us", before.pressure_full_us, after.pressure_full_us),
        row(
            "direct reclaim latency p99",
            "us",
            before.report.direct.p99_ns as f64 / 1e3,
            after.report.direct.p99_ns as f64 / 1e3,
        ),
        row("refaults", "pages", before.refaults(), after.refaults()),
    ]
}

fn server_rows(before: &Measured, after: &Measured) -> Vec<Row> {
    let name = "server, five groups";
    let mut rows = vec![scan_ratio(name, before, after)];
    rows.extend(shares(name, before, after).into_iter().map(|row| Row {
        published: Values::NONE,
        agrees: None,
        ..row
    }));
    rows.extend([
        Row::unpublished(name, "kswapd CPU", "s", Values::of(before.reclaim_cpu[0], after.reclaim_cpu[0])),
        Row::unpublished(name, "pressure full", "us", Values::of(before.pressure_full_us, after.pressure_full_us)),
        Row::unpublished(name, "refaults", "pages", Values::of(before.refaults(), after.refaults())),
        Row::unpublished(name, "throughput", "operations/s", Values::of(before.per_second(), after.per_second())),
    ]);
    rows
}

/// Pages scanned for each page reclaimed: about seven on the fleet.
fn scan_ratio(name: &str, before: &Measured, after: &Measured) -> Row {
    let ratio = |m: &Measured| m.counters.pgscan as f64 / m.counters.pgsteal.max(1) as f64;
    let ours = Values::of(ratio(before), ratio(after));
    let mut row = Row::unpublished(name, "pgscan / pgsteal", "ratio", ours);
    row.published = only(Some(7.0), None);
    // There is no published value after the change: compared is the one before, up to a factor of two.
    row.agrees = Some((3.5..=14.0).contains(&ratio(before)));
    row
}

fn shares(name: &str, before: &Measured, after: &Measured) -> Vec<Row> {
    let share = |m: &Measured, work: Work| {
        let kswapd = &m.report.ledgers[0];
        100.0 * kswapd.0[work as usize] as f64 / kswapd.total().max(1) as f64
    };
    let row = |metric: &str, work: Work, published: Values| {
        Row::judged(name, metric, "%", published, Values::of(share(before, work), share(after, work)), LOOSE)
    };
    let walks = |m: &Measured| m.counters.walk_entries as f64 / m.counters.pgsteal.max(1) as f64;
    let checks = |m: &Measured| m.counters.reference_checks as f64 / m.counters.pgsteal.max(1) as f64;
    vec![
        row("reverse-map walks, share of kswapd CPU", Work::ReverseMap, Values::of(31.03, 4.54)),
        row("compression, share of kswapd CPU", Work::Write, Values::of(25.59, 49.36)),
        Row {
            published: only(None, Some(3.47)),
            ..row("page-table walks, share of kswapd CPU", Work::TableWalk, Values::NONE)
        },
        Row::unpublished(
            name,
            "reverse-map walks per reclaimed page",
            "walks",
            Values::of(checks(before), checks(after)),
        ),
        Row::unpublished(
            name,
            "page-table entries walked per reclaimed page",
            "entries",
            Values::of(walks(before), walks(after)),
        ),
    ]
}
