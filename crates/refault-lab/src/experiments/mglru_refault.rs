//! The multi-gen LRU with refault distances (2023): file reads of three times memory, and a store with idle anonymous
//! memory. Four policies in the order in which the discussion prints them: the unpatched multi-gen LRU, the redesign,
//! the competing fix, and the multi-gen LRU switched off.
//!
//! Source: the cover letter of September 2023 and the discussion that followed it; spec: numbers §2, §3, §8 (R2, R5).

use refault_core::{Classic, ClassicParams, Mglru, MglruParams};

use super::{
    ENDLESS, Measured, Options, Progress, agreement, charts, device, endless, file, fio_jobs, limited, measure,
    workload,
};
use crate::experiment::{Agreement, Chart, Experiment, Row, Values};
use refault_sim::machine::config::{MachineConfig, PhaseConfig, TaskConfig};
use refault_sim::machine::device::DeviceModel;

/// Under one percent is no change.
const RULE: Agreement = Agreement { unchanged_within: 0.01, size_within: 4.0 };

/// What a miss costs there beyond allocation, reclaim and the copy, in nanoseconds: 8 CPUs and 6548 MiB/s are 4.8 us an
/// operation, of which a hit takes 1.6 us (the uniform run of the same author that fits in memory), at about 51 %
/// misses.
const MISS: u64 = 5_300;

/// Reads of each page of the fio files, warm-up included. The published runs read each page about that often before
/// they measure (five minutes at 1.6 M reads/s): after a few reads the lists are still far from where they end.
const READS_A_PAGE: u64 = 150;

/// The redesign, the fix and the classic lists, each against the unpatched multi-gen LRU.
const NAMES: [&str; 3] = ["refault distance", "fix of Dec 2023", "multi-gen LRU off"];

/// Runs the experiment.
///
/// # Errors
/// A machine that does not fit together, which is a defect.
pub fn run(options: &Options, progress: Progress) -> Result<Experiment, String> {
    let shrink = if options.full { 4 } else { 32 };
    let limit = (1u64 << 20) / shrink;
    let (mut rows, mut pictures) = (Vec::new(), Vec::new());
    let mut order = String::new();
    let fio = [
        ("zipf:theta=0.5", "zipf 0.5", [6548.0, 7270.0, 7098.0, 6525.0]),
        ("uniform:", "uniform", [5975.0, 5987.0, 5839.0, 5689.0]),
    ];
    for (index, (distribution, name, published)) in fio.into_iter().enumerate() {
        let mut config = MachineConfig {
            cpus: 8,
            nodes: vec![limit * 4],
            file_device: DeviceModel { read_latency: MISS, ..device("ramdisk") },
            groups: vec![limited("/fio", limit)],
            ..MachineConfig::default()
        };
        fio_jobs(&mut config, 1, 12, limit / 4, distribution, options.seed);
        // Three times the limit in pages, and a read every 600 ns.
        config.duration = Some(limit * 3 * READS_A_PAGE * 600);
        let warm_up = config.duration.unwrap_or(0) / 3;
        let part = |done: f64| progress((index as f64 + done / 4.0) / 3.0);
        let measured = four(&config, warm_up, &part)?;
        pictures.extend(charts(&format!("fio {name}"), &labelled(&measured)));
        let throughput = |m: &Measured| m.per_second() * 4096.0 / 1048576.0;
        for (after, after_name) in NAMES.iter().enumerate() {
            let published = Values::of(published[0], published[after + 1]);
            let ours = Values::of(throughput(&measured[0]), throughput(&measured[after + 1]));
            rows.push(Row::judged(&format!("fio {name}: {after_name}"), "throughput", "MiB/s", published, ours, RULE));
        }
        let hits = |m: &Measured| 1.0 - m.loads() / m.operations;
        for (after, after_name) in NAMES.iter().enumerate() {
            let ours = Values::of(hits(&measured[0]), hits(&measured[after + 1]));
            rows.push(Row::unpublished(&format!("fio {name}: {after_name}"), "hit ratio", "ratio", ours));
        }
        if index == 0 {
            order = format!(
                "refault distance {:.4}, fix {:.4}, unpatched {:.4}, off {:.4}",
                hits(&measured[1]),
                hits(&measured[2]),
                hits(&measured[0]),
                hits(&measured[3])
            );
        }
        // The published pair of refaults is the redesign against the fix.
        if index == 0 {
            let ours = Values::of(measured[2].refaults(), measured[1].refaults());
            let published = Values::of(596_790_506.0, 628_192_729.0);
            rows.push(Row::judged(
                "fio: refault distance against the fix",
                "workingset_refault",
                "pages",
                published,
                ours,
                RULE,
            ));
        }
    }
    let (store_rows, store_pictures) = store(options, shrink, &|done| progress((2.0 + done / 4.0) / 3.0))?;
    rows.extend(store_rows);
    pictures.extend(store_pictures);
    progress(1.0);
    let (agree, judged) = agreement(&rows);
    Ok(Experiment {
        experiment: "mglru-refault".into(),
        seed: options.seed,
        scale: 1.0 / shrink as f64,
        verdict: format!(
            "{agree} of {judged} rows agree in direction and size (a factor of four of the change); hit ratios of zipf 0.5: \
             {}.",
            order
        ),
        rows,
        remarks: vec![
            "Policies, in the order printed: mglru{reads_start_oldest=yes,protects_frequent=no}, mglru-refault, mglru, classic.".into(),
            "The redesign's last patch was not retrievable; mglru-refault is the form its author ships (workingset.md §6).".into(),
            "The store rows stand in for MongoDB replicas under TPC-C STOCK_LEVEL on a machine without limits, which kswapd reclaims: idle anonymous memory of half of memory, file reads over twice memory. Only the direction is judged: the published factor is that of a database that collapsed.".into(),
            "Uniform reads: every order of eviction hits a third here, as it must; the published 2 to 5 percent between policies are costs of locks and lists that the model does not have.".into(),
            "Multi-gen LRU off, zipf 0.5: published equal to unpatched; ours is above it, because the unpatched form is a single queue here, and a kernel's readers also map and age pages of their own.".into(),
            "Refaults of the redesign against the fix: published in equal time at unequal speed; ours follow hit ratios that differ by a percent, and in the store the device sets the rate of reads.".into(),

        ],
        charts: pictures,
    })
}

fn labelled(measured: &[Measured; 4]) -> Vec<(&'static str, &Measured)> {
    ["unpatched", NAMES[0], NAMES[1], NAMES[2]].into_iter().zip(measured).collect()
}

fn four(config: &MachineConfig, warm_up: u64, progress: &dyn Fn(f64)) -> Result<[Measured; 4], String> {
    let unpatched = MglruParams { reads_start_oldest: true, protects_frequent: false, ..MglruParams::default() };
    let first = measure(config.clone(), Mglru::new(unpatched), warm_up)?;
    progress(1.0);
    let second = measure(config.clone(), Mglru::new(MglruParams::with_refault_distance()), warm_up)?;
    progress(2.0);
    let third = measure(config.clone(), Mglru::new(MglruParams::default()), warm_up)?;
    progress(3.0);
    let fourth = measure(config.clone(), Classic::new(ClassicParams::default()), warm_up)?;
    progress(4.0);
    Ok([first, second, third, fourth])
}

/// A store whose files are read beyond memory while old anonymous memory lies idle.
fn store(options: &Options, shrink: u64, progress: &dyn Fn(f64)) -> Result<(Vec<Row>, Vec<Chart>), String> {
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
        let seed = options.seed * 1000 + client;
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
    let duration = memory * 400_000;
    config.duration = Some(duration);
    let measured = four(&config, duration / 3, progress)?;
    let mut rows = Vec::new();
    let direction = Agreement { unchanged_within: 0.01, size_within: f64::INFINITY };
    let published = [Some(2542.0), Some(1594.0), None];
    for (after, name) in NAMES.iter().enumerate() {
        let ours = Values::of(measured[0].per_second(), measured[after + 1].per_second());
        let title = format!("store: {name}");
        rows.push(match published[after] {
            Some(value) => Row::judged(
                &title,
                "transactions",
                "published: in 900 s, ours: per s",
                Values::of(500.0, value),
                ours,
                direction,
            ),
            None => Row::unpublished(&title, "transactions", "per s", ours),
        });
    }
    let pair = |name: &str, published: (f64, f64), pick: fn(&Measured) -> f64| {
        Row::judged(
            "store: refault distance against the fix",
            name,
            "pages",
            Values::of(published.0, published.1),
            Values::of(pick(&measured[2]), pick(&measured[1])),
            direction,
        )
    };
    rows.push(pair("workingset_refault_file", (20_335_355.0, 22_751_782.0), |m| {
        m.counters.workingset_refault_file as f64
    }));
    rows.push(pair("workingset_refault_anon", (35_277.0, 10_512.0), |m| m.counters.workingset_refault_anon as f64));
    rows.push(Row::unpublished(
        "store: refault distance against the fix",
        "pswpout",
        "pages",
        Values::of(measured[2].report.counters.pswpout as f64, measured[1].report.counters.pswpout as f64),
    ));
    Ok((rows, charts("store", &labelled(&measured))))
}
