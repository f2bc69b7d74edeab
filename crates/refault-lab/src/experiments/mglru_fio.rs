//! The profile comparison of the multi-gen LRU's second posting (2021): uniform random reads by descriptor.
//!
//! Every page is equal, so activating on the second access and deactivating before eviction is work for nothing. Shares
//! of CPU are taken from the machine's ledger of work; the functions of the profile map to kinds of work as the rows
//! say.
//!
//! Source: the v2 thread of April 2021; spec: numbers §4.

use refault_core::{Classic, ClassicParams, Mglru, MglruParams};

use super::{Measured, Options, Progress, agreement, charts, device, fio_jobs, measure, only};
use crate::experiment::{Agreement, Experiment, Row, Values};
use refault_sim::machine::config::MachineConfig;
use refault_sim::machine::costs::Work;
use refault_sim::machine::device::DeviceModel;

/// Runs the experiment.
///
/// # Errors
/// A machine that does not fit together, which is a defect.
pub fn run(options: &Options, progress: Progress) -> Result<Experiment, String> {
    let memory: u64 = if options.full { 1 << 20 } else { 1 << 16 };
    // As many requests in flight as the published run's queues hold: each is a reader of its own here.
    let mut config = MachineConfig {
        cpus: 4,
        nodes: vec![memory],
        file_device: DeviceModel { parallel: 512, ..device("nvme") },
        ..MachineConfig::default()
    };
    fio_jobs(&mut config, 0, 128, memory * 3 / 128, "uniform:", options.seed);
    config.duration = Some(memory * 100_000);
    let warm_up = memory * 30_000;
    let before = measure(config.clone(), Classic::new(ClassicParams::default()), warm_up)?;
    progress(0.5);
    let after = measure(config, Mglru::new(MglruParams::default()), warm_up)?;
    progress(1.0);
    let rows = rows(&before, &after);
    let (agree, judged) = agreement(&rows);
    let zero = after.counters.pgactivate == 0 && after.counters.pgdeactivate == 0;
    let verdict = format!(
        "{agree} of {judged} rows agree in direction and size; after the change activations and deactivations are \
         {}exactly zero.",
        if zero { "" } else { "NOT " }
    );
    Ok(Experiment {
        experiment: "mglru-fio".into(),
        seed: options.seed,
        scale: memory as f64 / (1u64 << 21) as f64,
        rows,
        verdict,
        remarks: vec![
            "Policies: classic (Linux 6.12) before, mglru (Linux 6.12) after; set three times memory.".into(),
            "Memory of the published host is not stated; the scale is taken against 8 GiB.".into(),
            "The published kernel's shares include lock contention and tree walks that the cost model folds into 'batch'.".into(),
            "shrink_page_list and isolation: without an active list to shrink, the shares of what is left rise by a tenth each; published they rise by less, because generations' sizes then cost 4 % that the model does not charge.".into(),
            "Page allocation: the published 12 and 9 % are mostly allocations that stalled in reclaim of their own; here kswapd keeps up (allocstall 0), so that the share is that of the allocation alone.".into(),

        ],
        charts: charts("uniform random reads", &[("classic", &before), ("multi-gen LRU", &after)]),
    })
}

fn rows(before: &Measured, after: &Measured) -> Vec<Row> {
    let counters = (&before.counters, &after.counters);
    let share = |m: &Measured, work: Work| {
        let kswapd = &m.report.ledgers[0];
        100.0 * kswapd.0[work as usize] as f64 / kswapd.total().max(1) as f64
    };
    // Multi-gen LRU has no active list to shrink; what it sorts is a row of its own.
    let active = Values { before: Some(share(before, Work::Sort)), after: Some(0.0), ratio: Some(0.0) };
    let published = Values { before: Some(6.53), after: Some(0.0), ratio: Some(0.0) };
    let mut shrink_active = Row::unpublished("kswapd", "shrink_active_list, share of CPU", "%", active);
    shrink_active.published = published;
    shrink_active.agrees = Some(share(before, Work::Sort) > 0.0 && counters.1.pgdeactivate == 0);
    let gone = |metric: &str, published_before: Option<f64>, values: (u64, u64)| {
        let mut row =
            Row::unpublished("fio thread and kswapd", metric, "pages", Values::of(values.0 as f64, values.1 as f64));
        row.published = only(published_before, Some(0.0));
        row.agrees = Some(values.0 > 0 && values.1 == 0);
        row
    };
    let allocation = |m: &Measured| {
        let stalls = m.report.ledgers[1].total() as f64;
        let allocations = m.report.counters.file_reads as f64 * 150.0;
        let tasks: u64 = m.report.tasks.iter().map(|task| task.cpu_time).sum();
        100.0 * (stalls + allocations) / tasks.max(1) as f64
    };
    let kswapd_share = |metric: &str, work: Work, b: f64, a: f64| {
        Row::judged(
            "kswapd",
            metric,
            "%",
            Values::of(b, a),
            Values::of(share(before, work), share(after, work)),
            Agreement { unchanged_within: 0.10, size_within: 4.0 },
        )
    };
    vec![
        shrink_active,
        gone("pgactivate", None, (counters.0.pgactivate, counters.1.pgactivate)),
        gone("pgdeactivate", None, (counters.0.pgdeactivate, counters.1.pgdeactivate)),
        kswapd_share("shrink_page_list, share of CPU", Work::Batch, 75.67, 77.82),
        kswapd_share("isolation, share of CPU", Work::Isolate, 12.62, 12.54),
        Row::judged(
            "fio thread",
            "page allocation with its stalls, share of CPU",
            "%",
            Values::of(12.03, 9.45),
            Values::of(allocation(before), allocation(after)),
            Agreement { unchanged_within: 0.02, size_within: 4.0 },
        ),
        Row::unpublished(
            "kswapd",
            "sorting into generations, share of CPU",
            "%",
            Values::of(0.0, share(after, Work::Sort)),
        ),
        Row::unpublished(
            "all",
            "throughput",
            "k IOPS",
            Values::of(before.per_second() / 1e3, after.per_second() / 1e3),
        ),
        Row::unpublished(
            "all",
            "pgrefill",
            "pages",
            Values::of(counters.0.pgrefill as f64, counters.1.pgrefill as f64),
        ),
        Row::unpublished(
            "all",
            "pgscan / pgsteal",
            "ratio",
            Values::of(ratio(counters.0.pgscan, counters.0.pgsteal), ratio(counters.1.pgscan, counters.1.pgsteal)),
        ),
        Row::unpublished("all", "kswapd CPU", "s", Values::of(before.reclaim_cpu[0], after.reclaim_cpu[0])),
        Row::unpublished(
            "all",
            "allocstall",
            "times",
            Values::of(before.report.statistics.allocstall as f64, after.report.statistics.allocstall as f64),
        ),
        Row::unpublished(
            "all",
            "hit ratio",
            "ratio",
            Values::of(1.0 - before.loads() / before.operations, 1.0 - after.loads() / after.operations),
        ),
    ]
}

fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}
