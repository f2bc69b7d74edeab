//! What every experiment of the simulated machine must have, at the smallest scale: rows that the null cannot pass, and
//! figures that are what their mechanism makes them.

use super::*;
use crate::experiment::{Judgement, Row};

type Run = fn(&Options, Progress) -> Result<Measurement, String>;

fn row<'a>(experiment: &'a Experiment, name: &str, metric: &str) -> &'a Row {
    let found = experiment.rows.iter().find(|row| row.name == name && row.metric.starts_with(metric));
    found.unwrap_or_else(|| panic!("no row {name} {metric}"))
}

/// Runs an experiment; at most one judged row in ten agrees under the null, which is measured with seeds of its own.
fn checked(run: Run, seeds: u64) -> Experiment {
    let options = Options { null: true, seeds, ..Options::new(Size::Small, 1) };
    let told = |share| assert!((0.0..=1.0).contains(&share), "{share}");
    let Measurement { experiment, null } = run(&options, &told).unwrap();
    let null = null.expect("it was asked for");
    figures::is_recorded(&experiment);
    assert!(10 * null.score().agree <= experiment.score().judged, "{:?} {:?}", null.score(), experiment.score());
    assert!(!experiment.verdict.contains("NaN") && null.verdict.contains("null"), "{}", experiment.verdict);
    experiment
}

#[test]
fn shadow_lru_judges_no_fitted_throughput_and_finds_the_worst_case() {
    let experiment = checked(shadow_lru::measurement, 2);
    let published = experiment.rows.iter().filter(|row| row.published.before.is_some());
    assert!(published.clone().count() == 5 && published.clone().all(|row| row.judgement == Judgement::Fitted));
    let name = "hot 0.3, then a loop over 1.25 of memory";
    let hits = row(&experiment, name, "hit ratio").ours;
    assert!(hits.after < hits.before.map(|hits| hits / 2.0), "{hits:?}");
    let refaults = row(&experiment, name, "workingset_refault_file");
    let activated = row(&experiment, name, "workingset_activate_file");
    assert_eq!(activated.ours.after, refaults.ours.after, "the redesign activates every page that comes back");
    assert_eq!(activated.null.after, Some(0.0), "the null activates none");
    // The loop alone: what comes back finds no active list, so that none of it is held, under either rule.
    for figure in ["hit ratio", "workingset_activate_file"] {
        let held = row(&experiment, "a loop over 1.25 of memory", figure).ours;
        assert_eq!((held.before, held.after), (Some(0.0), Some(0.0)), "{figure}");
    }
}

#[test]
fn the_redesign_is_measured_without_the_fix_that_competed_with_it() {
    // Of two seeds of so small a machine the null may lie on one side by chance.
    let experiment = checked(mglru_refault::measurement, 5);
    let fix = row(&experiment, "fio zipf 0.5: fix of Dec 2023", "hit ratio");
    assert_eq!(fix.judgement, Judgement::Agrees, "{fix:?}");
    // The same baseline for both, and neither is the other.
    let redesign = row(&experiment, "fio zipf 0.5: refault distance", "hit ratio");
    assert_eq!(redesign.ours.before, fix.ours.before);
    assert_ne!(redesign.ours.after, fix.ours.after);
    assert_eq!(row(&experiment, "fio zipf 0.5: refault distance", "throughput").judgement, Judgement::Fitted);
}

#[test]
fn generations_hardly_move_pages_between_lists_for_uniform_reads() {
    let experiment = checked(mglru_fio::measurement, 2);
    for name in ["kswapd", "kswapd, moving a page costs a third", "kswapd, moving a page costs three times"] {
        let moving = row(&experiment, name, "moving pages between lists");
        assert_eq!(moving.judgement, Judgement::Agrees, "{moving:?}");
        // Measured, not written down: sorting into generations is work, if little.
        assert!(moving.ours.after > Some(0.0), "{moving:?}");
    }
    for metric in ["pgactivate", "pgdeactivate"] {
        assert_eq!(row(&experiment, "fio thread and kswapd", metric).agrees, None, "zero by construction");
    }
    // Four kswapds wait for the lock of one file's tree; one does not, nor do four with files of their own.
    for name in ["one file on four nodes, then on one", "four nodes, one file, then a file for each reader"] {
        let waiting = row(&experiment, name, "waiting for the lock");
        assert!(waiting.judgement == Judgement::Agrees && waiting.ours.before > Some(1.0), "{waiting:?}");
    }
    // The answers about batches fit together: the one kswapd works, sleeps or waits for a CPU.
    let of = |metric: &str| {
        let ours = row(&experiment, "all", metric).ours;
        [ours.before, ours.after].map(|value| value.expect("both ran"))
    };
    let [passes, cpu] = ["passes of kswapd", "CPU of a pass"].map(of);
    let [wake_ups, sleep] = ["wake-ups of kswapd", "sleep of kswapd"].map(of);
    for at in 0..2 {
        let second = (passes[at] * cpu[at] + wake_ups[at] * sleep[at]) / 1e6;
        assert!(
            sleep[at] > 0.0 && (0.8..1.01).contains(&second),
            "{second} s: {passes:?} {cpu:?} {wake_ups:?} {sleep:?}"
        );
    }
}

#[test]
fn the_first_posting_follows_the_reverse_map_less_and_has_no_filters() {
    let experiment = checked(mglru_v1::measurement, 2);
    let walks = row(&experiment, "browser tabs", "reverse-map walks per reclaimed page").ours;
    assert!(walks.ratio < Some(0.8), "{walks:?}");
    let scans = row(&experiment, "browser tabs", "pgscan / pgsteal");
    assert_eq!((scans.published.before, scans.agrees), (Some(7.0), None), "a property of the baseline");
    assert!(row(&experiment, "phone apps", "launches").ours.before > Some(0.0));
}

/// What came before the warm-up's end is in no figure.
#[test]
fn a_warm_up_is_not_measured() {
    let memory = 1 << 10;
    let config = || {
        let mut config = MachineConfig { cpus: 2, nodes: vec![memory], ..MachineConfig::default() };
        fio_jobs(&mut config, 0, 4, memory, "random", 1);
        config.duration = Some(200_000_000);
        config
    };
    let classic = || refault_core::Classic::new(refault_core::ClassicParams::default());
    let all = measure(config(), classic(), 0).unwrap();
    let rest = measure(config(), classic(), 120_000_000).unwrap();
    assert_eq!((all.report.operations, all.ledgers), (rest.report.operations, all.report.ledgers));
    assert!((rest.seconds - 0.08).abs() < 1e-3 && rest.operations < 0.6 * all.operations);
    assert!(rest.ledgers[0].total() > 0 && rest.ledgers[0].total() < all.ledgers[0].total());
    assert!(rest.task_cpu < 0.6 * all.task_cpu);
    assert!(rest.report.direct.count <= all.report.direct.count);
    assert!(measure(config(), classic(), 300_000_000).is_err(), "a run that ends in its warm-up measures nothing");
}

/// Every row of the experiments that the pages of `docs/experiments` show, as a table in Markdown:
/// `EXPERIMENT=mglru-fio SIZE=quick cargo test -p refault-lab --release writes_a_table -- --ignored --nocapture`.
#[test]
#[ignore = "prints what a page shows; nothing is tested"]
fn writes_a_table() {
    let name = std::env::var("EXPERIMENT").expect("EXPERIMENT is set");
    let null = std::env::var_os("NULL").is_some();
    let size = if std::env::var("SIZE").is_ok_and(|size| size == "small") { Size::Small } else { Size::Quick };
    let options = Options { null, ..Options::new(size, 1) };
    let quiet = |_: f64| {};
    let experiment = match name.as_str() {
        "shadow-lru" => shadow_lru::run(&options, &quiet).unwrap(),
        "mglru-refault" => mglru_refault::run(&options, &quiet).unwrap(),
        "mglru-fio" => mglru_fio::run(&options, &quiet).unwrap(),
        "mglru-v1" => mglru_v1::run(&options, &quiet).unwrap(),
        "freepool" => freepool::run(&freepool::Options { null, ..Default::default() }, &quiet),
        _ => {
            let options = match size {
                Size::Small => lru_sort::Options::small(1),
                _ => lru_sort::Options::quick(1),
            };
            lru_sort::run(&lru_sort::Options { null, ..options }, &quiet).unwrap()
        }
    };
    println!("| workload | figure | published | ours | ratio | spread | null | agrees |");
    println!("|---|---|---|---|---|---|---|---|");
    let text = |value: Option<f64>| value.map_or("–".to_string(), short);
    for row in &experiment.rows {
        let published = match (row.published.before, row.published.after, row.published.ratio) {
            (Some(before), Some(after), _) => format!("{} → {}", short(before), short(after)),
            (None, None, Some(ratio)) => format!("× {}", short(ratio)),
            (before, after, _) => text(before.or(after)),
        };
        let ours = match (row.ours.before, row.ours.after) {
            (Some(before), Some(after)) => format!("{} → {}", short(before), short(after)),
            (before, after) => text(before.or(after)),
        };
        println!(
            "| {} | {}, {} | {published} | {ours} | {} | {} | {} | {} |",
            row.name,
            row.metric,
            row.unit,
            text(row.ours.ratio),
            row.spread.map_or("–".into(), |spread| format!("{:.1} %", 100.0 * spread)),
            text(row.null.ratio.or(row.null.after)),
            row.judgement.text()
        );
    }
    println!("\n{}", experiment.verdict);
}

/// Four digits.
fn short(value: f64) -> String {
    let digits = (3 - value.abs().max(1e-6).log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}
