//! One experiment, several seeds: run side by side, figures put together.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Chart, Figure};

/// What one seed of an experiment came to.
#[derive(Clone, Debug, Default)]
pub struct Study {
    /// The same figures in the same order for every seed, one trial each.
    pub figures: Vec<Figure>,
    /// Pictures; those of the first seed are kept.
    pub charts: Vec<Chart>,
}

/// Runs a study with each seed, several at a time, and puts the trials of each figure together. The result does not
/// depend on the number of threads. `progress` is told the share that is done.
///
/// # Errors
/// The first failure of a study.
pub fn over_seeds<E: Send>(
    seeds: &[u64],
    progress: &(dyn Fn(f64) + Sync),
    study: impl Fn(u64, &(dyn Fn(f64) + Sync)) -> Result<Study, E> + Sync,
) -> Result<Study, E> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(vec![0.0; seeds.len()]);
    let results = Mutex::new(Vec::new());
    let work = || {
        while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            let at = seeds.iter().position(|other| *other == seed).unwrap_or(0);
            let result = study(seed, &|share| {
                let mut done = done.lock().expect("invariant: no thread panics with it");
                done[at] = share;
                progress(done.iter().sum::<f64>() / done.len() as f64);
            });
            results.lock().expect("invariant: no thread panics with it").push((at, result));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(seeds.len());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut results = results.into_inner().expect("invariant: no thread panics with it");
    results.sort_by_key(|(at, _)| *at);
    let mut together = Study::default();
    for (at, result) in results {
        let study = result?;
        if at == 0 {
            together = study;
            continue;
        }
        debug_assert_eq!(together.figures.len(), study.figures.len());
        for (sum, figure) in together.figures.iter_mut().zip(study.figures) {
            sum.trials.extend(figure.trials);
        }
    }
    Ok(together)
}

#[cfg(test)]
mod tests {
    use super::super::Trial;
    use super::*;

    #[test]
    fn trials_stand_in_the_order_of_their_seeds() {
        let study = |seed: u64, progress: &(dyn Fn(f64) + Sync)| {
            progress(1.0);
            let trial = Trial { before: 1.0, after: seed as f64, null: None };
            Ok::<_, String>(Study { figures: vec![Figure::unpublished("w", "m", "u", trial)], charts: Vec::new() })
        };
        let together = over_seeds(&[5, 3, 9, 4], &|share| assert!(share <= 1.0), study).unwrap();
        let after: Vec<f64> = together.figures[0].trials.iter().map(|trial| trial.after).collect();
        assert_eq!(after, [5.0, 3.0, 9.0, 4.0]);
        let failing = |seed: u64, _: &(dyn Fn(f64) + Sync)| if seed == 9 { Err("no") } else { Ok(Study::default()) };
        assert_eq!(over_seeds(&[3, 9], &|_| {}, failing).unwrap_err(), "no");
    }
}
