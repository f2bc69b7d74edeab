//! A mapped file that fits into memory (six gigabytes of eight), read from start to end again and again.

use super::machine::{Burst, Machine, Nanos};
use super::page_daemon::PageDaemon;
use super::sample::{Sample, Sampler};

/// The file over memory.
const FILE: f64 = 0.75;
/// Readings.
const ITERATIONS: usize = 6;

/// What the readings after the first came to.
pub(super) struct SerialRun {
    /// Pages read from the disk in a reading.
    pub pages_read: f64,
    pub refaults: f64,
    pub reactivated: f64,
    /// Pages that reclaim looked at.
    pub examined: f64,
    /// Nanoseconds of a reading, and what of it the reader waited.
    pub elapsed: f64,
    pub waited: f64,
    pub samples: Vec<Sample>,
}

/// Pages of the file.
pub(super) fn pages(frames: u32) -> f64 {
    (f64::from(frames) * FILE).floor()
}

/// Runs the readings.
pub(super) fn run(frames: u32, policy: Box<dyn PageDaemon>) -> SerialRun {
    let mut machine = Machine::new(frames, policy, 0.0);
    let mut sampler = Sampler::new(1_000_000_000);
    let pages = pages(frames) as u32;
    let file = machine.add_object(pages, false);
    let mut burst = Burst::default();
    let mut first = [0; 6];
    let so_far = |machine: &Machine, burst: &Burst| {
        let disk = &machine.store.disk;
        let reactivated = machine.store.frames.counters().reactivated;
        let examined = machine.policy.examined();
        [disk.pages_read, machine.refaults(), reactivated, examined, burst.at as Nanos, burst.waited]
    };
    for iteration in 0..ITERATIONS {
        let mut mapping = machine.map(file, 0);
        for page in 0..pages {
            machine.advance(burst.at);
            machine.touch(&mut mapping, page, false, &mut burst);
            sampler.sample(burst.at, machine.store.frames.allocator(), machine.store.frames.cached());
        }
        machine.unmap(mapping);
        if iteration == 0 {
            first = so_far(&machine, &burst);
        }
    }
    let last = so_far(&machine, &burst);
    let mean = |at: usize| (last[at] - first[at]) as f64 / (ITERATIONS - 1) as f64;
    SerialRun {
        pages_read: mean(0),
        refaults: mean(1),
        reactivated: mean(2),
        examined: mean(3),
        elapsed: mean(4),
        waited: mean(5),
        samples: sampler.samples,
    }
}
