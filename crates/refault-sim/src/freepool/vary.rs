//! One assumption at a time: what each of them does to the rows that depend on it.

use std::sync::Mutex;

use refault_core::{Freebsd, FreebsdParams};
use serde::Serialize;

use super::assumptions::Assumptions;
use super::build::{self, BuildRun};
use super::database;
use super::{Options, PUBLISHED_FRAMES, THREADS, VARIANTS};

/// What came out of one figure under one assumption.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Variation {
    /// What is assumed.
    pub assumption: String,
    /// The figure.
    pub figure: &'static str,
    /// Means over the repeats, before and after.
    pub means: [f64; 2],
    /// After over before.
    pub ratio: f64,
    /// Standard error of the ratio, from the repeats.
    pub ratio_error: f64,
}

type Figure = (&'static str, f64);

/// Varies the database's assumptions (`database`) or the build's: those whose names hold `only`, each alone. At least two repeats.
pub fn vary(options: &Options, database: bool, only: &str, progress: &(dyn Fn(f64) + Sync)) -> Vec<Variation> {
    let mut variations = if database { of_database() } else { of_build() };
    variations.retain(|(name, _)| name.contains(only));
    let frames = (PUBLISHED_FRAMES * options.scale.clamp(1.0 / 256.0, 1.0)) as u32;
    let repeats = options.repeats.max(2);
    let all = variations.len() * repeats * 2;
    let (next, done) = (Mutex::new(0), Mutex::new(vec![Vec::new(); all]));
    let work = || {
        loop {
            let number = {
                let mut next = next.lock().expect("invariant: no thread panics with it");
                *next += 1;
                *next - 1
            };
            if number >= all {
                return;
            }
            let (variation, repeat, variant) = (number / (repeats * 2), number / 2 % repeats, number % 2);
            let params = FreebsdParams { cache_pool: VARIANTS[variant], ..FreebsdParams::default() };
            let seed = options.seed.wrapping_add(repeat as u64);
            let assumptions = &variations[variation].1;
            let figures = if database {
                let run = database::run(frames, Freebsd::new(params), seed, assumptions, &|_| {});
                let cached = run.counters.pages_cached as f64;
                let share = 100.0 * run.counters.pages_reactivated as f64 / cached.max(1.0);
                let large = mean_large(&run.samples);
                vec![
                    ("reactivated, % of pages cached", share),
                    ("free frames in blocks of 16 and more, %", large),
                    ("free frames that hold a cached page, %", mean_cached(&run.samples)),
                ]
            } else {
                of_run(&build::run(frames, Freebsd::new(params), seed, assumptions, &|_| {}))
            };
            done.lock().expect("invariant: no thread panics with it")[number] = figures;
            progress((number + 1) as f64 / all as f64);
        }
    };
    std::thread::scope(|scope| (0..THREADS.min(all)).for_each(|_| drop(scope.spawn(work))));
    let done = done.into_inner().expect("invariant: no thread panics with it");
    let mut results = Vec::new();
    for ((assumption, _), runs) in variations.iter().zip(done.chunks(repeats * 2)) {
        for at in 0..runs[0].len() {
            let of = |variant: usize| -> Vec<f64> { runs[variant..].iter().step_by(2).map(|run| run[at].1).collect() };
            let (before, after) = (of(0), of(1));
            let means = [mean(&before), mean(&after)];
            let ratio = means[1] / means[0];
            // Of a quotient of independent means, to first order.
            let relative = |values: &[f64], mean: f64| error(values) / mean;
            let ratio_error = ratio * relative(&before, means[0]).hypot(relative(&after, means[1]));
            results.push(Variation {
                assumption: assumption.clone(),
                figure: runs[0][at].0,
                means,
                ratio,
                ratio_error,
            });
        }
    }
    results
}

fn of_database() -> Vec<(String, Assumptions)> {
    let usual = Assumptions::default();
    let mut list = vec![("as it is".to_string(), usual)];
    for buffers in [0.05, 0.125, 0.4] {
        list.push((format!("own buffers {buffers} of memory"), Assumptions { buffers, ..usual }));
    }
    list.push(("one process".into(), Assumptions { backends: 1, ..usual }));
    for read_ahead in [2, 14] {
        list.push((format!("{read_ahead} pages read ahead"), Assumptions { read_ahead, ..usual }));
    }
    for daemon_lag in [0.1, 0.5, 0.7] {
        list.push((
            format!("the daemon looks {daemon_lag} of its threshold late"),
            Assumptions { daemon_lag, ..usual },
        ));
    }
    let fell = Assumptions { memory_fell: true, ..usual };
    list.push(("what was free once fell to the kernel".into(), fell));
    list.push((
        "what was free once fell to the kernel, and came back".into(),
        Assumptions { memory_returns: true, ..fell },
    ));
    for transactions in [60, 240] {
        list.push((format!("{transactions} transactions a frame"), Assumptions { transactions, ..usual }));
    }
    list
}

fn of_build() -> Vec<(String, Assumptions)> {
    let usual = Assumptions::default();
    let mut list = vec![("as it is".to_string(), usual)];
    for mapped_from in [1, 16, u32::MAX] {
        let name =
            if mapped_from == u32::MAX { "nothing mapped".into() } else { format!("mapped from {mapped_from} pages") };
        list.push((name, Assumptions { mapped_from, ..usual }));
    }
    for idle_programs in [0.003, 0.03] {
        list.push((format!("idle programs {idle_programs} of memory"), Assumptions { idle_programs, ..usual }));
    }
    for idle_touches in [10, 500] {
        list.push((format!("idle programs touch one page in {idle_touches}"), Assumptions { idle_touches, ..usual }));
    }
    for sources in [0.16, 0.32] {
        list.push((format!("sources {sources} of memory"), Assumptions { sources, ..usual }));
    }
    list.push(("the daemon looks 0.5 of its threshold late".into(), Assumptions { daemon_lag: 0.5, ..usual }));
    list
}

fn of_run(run: &BuildRun) -> Vec<Figure> {
    let c = &run.counters;
    let later = &run.iterations[1..];
    let of = |what: fn(&build::Iteration) -> u64| later.iter().map(what).sum::<u64>() as f64 / later.len() as f64;
    vec![
        ("reactivated, % of pages cached", 100.0 * c.pages_reactivated as f64 / (c.pages_cached as f64).max(1.0)),
        ("swap page-ins", c.swap_pageins as f64),
        ("swap page-outs", c.swap_pageouts as f64),
        ("vnode page-ins", c.vnode_pageins as f64),
        ("disk reads, an iteration", of(|i| i.disk_reads)),
        ("disk reads through the buffer cache, an iteration", of(build::Iteration::buffered_reads)),
    ]
}

fn mean_large(samples: &[super::sample::Sample]) -> f64 {
    super::sample::mean(samples, |sample| 100.0 * (1.0 - sample.all.unusable_free_index(4)))
}

fn mean_cached(samples: &[super::sample::Sample]) -> f64 {
    super::sample::mean(samples, |sample| 100.0 * f64::from(sample.cached) / (sample.all.free_frames() as f64).max(1.0))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Standard error of the mean.
fn error(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() as f64 - 1.0) / values.len() as f64).sqrt()
}
