//! Requests for more than one frame, under any policy: a scenario on the simulated machine.
//!
//! The scenario is the file `scenarios/high-order.toml` beside this crate's sources; `refault scenario` runs it too.

use refault_trace::Source;

use super::policies::{Evicted, Figures};
use refault_sim::machine::Machine;
use refault_sim::machine::config::MachineConfig;
use refault_sim::machine::frames::{FramesSample, KeepsEvicted};
use refault_sim::machine::report::Report;
use refault_sim::machine::scenario::Scenario;

/// What runs.
const SCENARIO: &str = include_str!("../../../scenarios/high-order.toml");

/// Runs it on the machine that `make` makes of a configuration. Whether evicted pages stay cached is the frames'
/// affair.
pub(super) fn figures(
    make: impl FnOnce(MachineConfig) -> Result<Machine, String>,
    evicted: Evicted,
    seed: u64,
) -> Figures {
    let scenario = Scenario::parse(SCENARIO, "high-order.toml").expect("invariant: the scenario is tested");
    let mut config = scenario.config;
    config.frames = Some(evicted.pools().map_or(KeepsEvicted::Nothing, KeepsEvicted::Cached));
    for (number, phase) in config.tasks.iter_mut().flat_map(|task| &mut task.phases).enumerate() {
        if let Source::Workload(spec) = &mut phase.workload {
            spec.seed = spec.seed.wrapping_add(seed.wrapping_mul(1_000_003)).wrapping_add(number as u64);
        }
    }
    let mut machine = make(config).expect("invariant: the scenario is tested");
    of_report(&machine.run().expect("invariant: the scenario reads no trace"))
}

fn of_report(report: &Report) -> Figures {
    let samples: Vec<FramesSample> = report.samples.iter().filter_map(|sample| sample.frames).collect();
    let over_time = |what: fn(&FramesSample) -> f64| samples.iter().map(what).sum::<f64>() / samples.len() as f64;
    let counts = report.frames.map(|frames| frames.last.counts).unwrap_or_default();
    let buffer_stall = report.frames.map_or(0, |frames| frames.stalled);
    let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let c = &report.counters;
    Figures {
        pages_read: (c.file_reads + c.pswpin) as f64,
        refaults: counts.pages_read_again as f64,
        swap_pages_out: c.pswpout as f64,
        examined: (c.pgscan + c.pgrefill) as f64,
        reactivated: c.pages_reactivated as f64,
        stall_seconds: (report.tasks.iter().map(|task| task.waited).sum::<u64>() + buffer_stall) as f64 / 1e9,
        elapsed_seconds: report.elapsed as f64 / 1e9,
        free_block_mean: over_time(|s| s.free.mean_block()),
        unusable_free_index_order_4: over_time(|s| s.free.unusable_free_index(4)),
        unusable_free_index_order_9: over_time(|s| s.free.unusable_free_index(9)),
        thp_fallback_percent: percent(counts.thp_fault_fallback, counts.thp_fault_alloc + counts.thp_fault_fallback),
        buffers_failed_percent: percent(counts.buffers_failed, counts.buffers_asked),
        buffers_stalled_percent: percent(counts.buffers_stalled, counts.buffers_asked),
    }
}
