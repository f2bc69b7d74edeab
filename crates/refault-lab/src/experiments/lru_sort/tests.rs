//! The experiment's parts together, on a small scale.

use super::*;
use crate::experiment::Judgement;

fn small(pages: u64) -> Options {
    Options { pages, wall_limit: 24.0, repeats: 1, ..Options::quick(3) }
}

fn outcome(name: &str, variant: Variant, options: &Options) -> Outcome {
    let at = WORKLOADS.iter().position(|workload| workload.name == name).expect("a workload of the table");
    run_one(&WORKLOADS[at], &TABLE[at], variant, 0, options).unwrap()
}

#[test]
fn without_pressure_a_program_takes_its_time_and_swaps_nothing() {
    for (workload, row) in WORKLOADS.iter().zip(&TABLE) {
        let outcome = outcome(workload.name, Variant::Orig, &small(512));
        assert_eq!((outcome.major_faults, outcome.stall_us), (0.0, 0.0), "{}", workload.name);
        // Filling the memory costs time of its own.
        let expected = row.runtime[0] + row.rss_kib as f64 / 4.0 * 700e-9;
        assert!(
            (outcome.runtime - expected).abs() < 0.02 * expected,
            "{} {} {expected}",
            workload.name,
            outcome.runtime
        );
    }
}

#[test]
fn cold_memory_is_evicted_for_nothing_and_swept_memory_is_not() {
    let options = small(1024);
    let freqmine = outcome("parsec3/freqmine", Variant::Mprs, &options);
    assert_eq!(freqmine.major_faults, 0.0, "93 % is cold");
    let streamcluster = outcome("parsec3/streamcluster", Variant::Mprs, &options);
    assert!(streamcluster.major_faults > 1e6 && streamcluster.runtime > 1.2 * 666.68, "{streamcluster:?}");
    assert!(streamcluster.lowering_share > 0.1, "the limit hardly comes down: {streamcluster:?}");
}

#[test]
fn the_monitor_stays_within_its_budget_and_sorts() {
    for name in ["parsec3/canneal", "splash2x/barnes", "parsec3/swaptions"] {
        let outcome = outcome(name, Variant::Plrus, &small(1024));
        // 2 % for each scheme, one window more at the ends, and the checks.
        assert!(outcome.kdamond_share < 0.06, "{name} {outcome:?}");
        assert!(outcome.regions >= 10.0 && outcome.regions <= 1000.0, "{name} {outcome:?}");
    }
    let canneal = outcome("parsec3/canneal", Variant::Plrus, &small(1024));
    assert!(canneal.sorted_bytes[0] > 0.0, "{canneal:?}");
}

#[test]
fn a_seed_names_a_run_and_threads_do_not_matter() {
    let options = Options { repeats: 2, pages: 256, wall_limit: 13.0, jobs: 1, ..Options::quick(9) };
    let alone = simulate(&options, &VARIANTS, &|_| {}).unwrap();
    let together = simulate(&Options { jobs: 3, ..options.clone() }, &VARIANTS, &|_| {}).unwrap();
    assert_eq!(alone, together);
    let other = simulate(&Options { seed: 10, ..options }, &VARIANTS, &|_| {}).unwrap();
    assert_ne!(alone, other);
}

#[test]
fn the_experiment_has_the_published_rows_and_a_verdict() {
    let experiment = run(&Options::small(1), &|share| assert!(share <= 1.0)).unwrap();
    crate::experiments::figures::is_recorded(&experiment);
    let row = |name: &str, metric: &str| {
        experiment.rows.iter().find(|row| row.name == name && row.metric == metric).expect("a row")
    };
    let average = row("average", "runtime_seconds");
    assert_eq!((average.published.before, average.published.after), (Some(292.83), Some(281.87)));
    // The published gain lies within the spread between published campaigns: no run of ours can be a yes or a no.
    assert_eq!((average.agrees, average.judgement), (None, Judgement::NullAgrees));
    assert_eq!(row("average", "monitor_cpu").published.after, Some(2.61));
    assert!(row("average", "monitor_cpu").null.after < row("average", "monitor_cpu").ours.after);
    for workload in &WORKLOADS {
        assert!(row(workload.name, "runtime_seconds").ours.ratio.unwrap() > 0.0);
    }
    assert!(experiment.verdict.contains("carries it") && !experiment.verdict.contains("NaN"), "{}", experiment.verdict);
    assert_eq!(experiment.charts[0].series[1].points.len(), 24);
    let null = run(&Options { null: true, ..Options::small(1) }, &|_| {}).unwrap();
    assert!(10 * null.score().agree <= experiment.score().judged, "{:?} {:?}", null.score(), experiment.score());
}

#[test]
fn the_null_samples_as_often_and_sorts_nothing() {
    let options = Options { pages: 1024, wall_limit: 24.0, repeats: 1, ..Options::quick(3) };
    let null = outcome("splash2x/barnes", Variant::Null, &options);
    let sorted = outcome("splash2x/barnes", Variant::Plrus, &options);
    assert_eq!(null.sorted_bytes, [0.0, 0.0]);
    assert!(null.kdamond_share > 0.0 && null.kdamond_share < sorted.kdamond_share, "{null:?} {sorted:?}");
    let without = outcome("splash2x/barnes", Variant::Mprs, &options);
    assert!((null.major_faults - without.major_faults).abs() <= 0.02 * without.major_faults.max(1.0));
}

#[test]
fn a_run_is_pinned() {
    let outcome = outcome("splash2x/ocean_cp", Variant::Plrus, &small(1024));
    let found = (
        format!("{:.3}", outcome.runtime),
        outcome.major_faults.round(),
        format!("{:.4}", outcome.kdamond_share),
        outcome.sorted_bytes.map(|bytes| bytes / 4096.0),
    );
    assert_eq!(found, ("94.666".into(), 729_110.0, "0.0166".into(), [0.0, 960_512.0]));
}
