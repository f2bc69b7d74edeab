//! A mapped file that fits into memory (six gigabytes of eight), read from start to end again and again.

use refault_core::freebsd::{Freebsd, FreebsdParams};

use super::machine::{Burst, Machine};

/// The file over memory.
const FILE: f64 = 0.75;
/// Readings.
const ITERATIONS: usize = 6;

/// Disk reads of each reading after the first, on average.
pub(super) fn run(frames: u32, params: FreebsdParams) -> f64 {
    let mut machine = Machine::new(frames, Freebsd::new(params));
    let pages = (f64::from(frames) * FILE) as u32;
    let file = machine.add_object(pages, false);
    let mut burst = Burst::default();
    let mut first = 0;
    for iteration in 0..ITERATIONS {
        let mut mapping = machine.map(file, 0);
        for page in 0..pages {
            machine.advance(burst.at);
            machine.touch(&mut mapping, page, false, &mut burst);
        }
        machine.unmap(mapping);
        if iteration == 0 {
            first = machine.store.disk.reads;
        }
    }
    (machine.store.disk.reads - first) as f64 / (ITERATIONS - 1) as f64
}
