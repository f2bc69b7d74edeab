//! The build in a loop under other policies, on the same machine: what none of the documents compares.

use refault_core::frames::FreePools;
use refault_core::{Classic, ClassicParams, Freebsd, FreebsdParams, Mglru, MglruParams};

use super::build::{self, BuildRun, ITERATIONS, Iteration};
use super::reclaimer::Watermarked;
use super::sample::mean;
use super::{Options, PUBLISHED_FRAMES};

/// What the build came to under one policy: means over the iterations after the first and over repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BuildFigures {
    /// Pages read from files and swap, an iteration.
    pub pages_read: f64,
    /// Pages written to swap, an iteration.
    pub swap_pages_out: f64,
    /// Pages that reclaim looked at, an iteration.
    pub examined: f64,
    /// Evicted pages that came back without I/O, an iteration.
    pub reactivated: f64,
    /// Time that tasks waited for the disk or for memory, in seconds, added up, an iteration.
    pub stall: f64,
    /// Simulated seconds of an iteration.
    pub elapsed: f64,
    /// Mean size of a free block, in pages, over time.
    pub free_block_mean: f64,
    /// Share of the free memory that a request of 16 pages (order 4) cannot use, over time.
    pub unusable_free_index: f64,
}

/// Runs the build in a loop under `freebsd`, `classic`, `classic-shadow`, `mglru` or `mglru-refault`. `keeps_evicted`:
/// the free pools in which evicted pages stay findable until their frame is reused, if they do. `None` for an unknown
/// policy.
pub fn build_under(policy: &str, keeps_evicted: Option<FreePools>, options: &Options) -> Option<BuildFigures> {
    let frames = (PUBLISHED_FRAMES * options.scale) as u32;
    let run = |seed: u64| {
        let quiet = |_: f64| {};
        let classic = |params| build::run(frames, Watermarked::new(Classic::new(params), keeps_evicted), seed, &quiet);
        let mglru = |params| build::run(frames, Watermarked::new(Mglru::new(params), keeps_evicted), seed, &quiet);
        let freebsd = |params| build::run(frames, Freebsd::new(params), seed, &quiet);
        Some(match policy {
            "freebsd" => freebsd(FreebsdParams {
                cached_pages: keeps_evicted.is_some(),
                cache_pool: keeps_evicted.is_some_and(|pools| pools.cache),
                ..FreebsdParams::default()
            }),
            "classic" => classic(ClassicParams::default()),
            "classic-shadow" => classic(ClassicParams::shadow_lru()),
            "mglru" => mglru(MglruParams::default()),
            "mglru-refault" => mglru(MglruParams::with_refault_distance()),
            _ => return None,
        })
    };
    let runs = (0..options.repeats.max(1) as u64)
        .map(|repeat| run(options.seed.wrapping_add(repeat)))
        .collect::<Option<Vec<_>>>()?;
    Some(figures(&runs))
}

fn figures(runs: &[BuildRun]) -> BuildFigures {
    let iteration = |what: fn(&Iteration) -> f64| {
        let later = runs.iter().flat_map(|run| &run.iterations[1..]);
        later.map(what).sum::<f64>() / (runs.len() * (ITERATIONS - 1)) as f64
    };
    let over_time = |what: fn(&super::sample::Sample) -> f64| {
        runs.iter().map(|run| mean(&run.samples, what)).sum::<f64>() / runs.len() as f64
    };
    BuildFigures {
        pages_read: iteration(|i| i.pages_read as f64),
        swap_pages_out: iteration(|i| i.counters.swap_pages_out as f64),
        examined: iteration(|i| i.examined as f64),
        reactivated: iteration(|i| i.counters.pages_reactivated as f64),
        stall: iteration(|i| i.waited as f64 / 1e9),
        elapsed: iteration(|i| i.elapsed as f64 / 1e9),
        free_block_mean: over_time(|s| s.all.mean_block()),
        unusable_free_index: over_time(|s| s.all.unusable_free_index(4)),
    }
}
