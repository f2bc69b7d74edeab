//! Frames in a row asked for while a program uses all of memory: the one case that the discussion says could lose.
//!
//! A program touches a mapped file of twice memory, nine in ten touches in a part that would just fit. A driver asks
//! for a mebibyte of frames in a row again and again, holds it for a while and gives it back. Memory is full, so
//! between the attempts of a request clean pages are evicted in masses, whatever their references. The expectation is
//! that the program's own pages come back before their frames are reused (spec: freebsd §3.5).
//!
//! The control is the same without letting pages go between attempts: a request gets what lies in a row by chance.

use refault_core::freebsd::VmCounters;
use refault_core::monitor::Random;

use super::machine::{Burst, Machine};
use super::page_daemon::PageDaemon;

/// The file over memory.
const FILE: f64 = 2.0;
/// The part that is touched most, over memory.
const HOT: f64 = 0.9;
/// One touch in this many goes anywhere in the file.
const COLD_EVERY: u64 = 10;
/// Touches for each frame of memory; the first third is not counted.
const TOUCHES: u64 = 24;
/// Part of the time between two requests that the frames are held: what is given back is used before the next one.
const HELD: u64 = 8;
/// Frames in a row: 1 MiB.
const ROW: u32 = 256;
/// What the program computes for a touch, in nanoseconds.
const COMPUTE: u64 = 20_000;

/// What the workload came to after memory had filled.
#[derive(Clone, Debug, Default)]
pub(super) struct ContiguousRun {
    pub counters: VmCounters,
    pub pages_read: u64,
    /// Requests for frames in a row, and those that got them.
    pub asked: u64,
    pub granted: u64,
}

/// Runs it. `grows`: pages are let go between the attempts of a request.
pub(super) fn run(frames: u32, policy: Box<dyn PageDaemon>, seed: u64, grows: bool) -> ContiguousRun {
    let mut machine = Machine::new(frames, policy, 0.0);
    let mut random = Random::new(seed);
    let pages = |share: f64| (f64::from(frames) * share) as u32;
    let file = machine.add_object(pages(FILE), false);
    let mut mapping = machine.map(file, 0);
    let mut burst = Burst::default();
    let mut run = ContiguousRun::default();
    let mut warm = None;
    let mut held = None;
    let total = TOUCHES * u64::from(frames);
    let period = u64::from(frames);
    for touch in 0..total {
        if touch == total / 3 {
            warm = Some((machine.counters(), machine.store.disk.pages_read));
            (run.asked, run.granted) = (0, 0);
        }
        machine.advance(burst.at);
        let anywhere = random.within(0, COLD_EVERY) == 0;
        let page = random.within(0, u64::from(pages(if anywhere { FILE } else { HOT })));
        machine.touch(&mut mapping, page as u32, false, &mut burst);
        burst.compute(COMPUTE);
        if touch % period == period / HELD
            && let Some(first) = held.take()
        {
            machine.free_row(first, ROW);
        }
        if touch % period == 0 && touch >= total / 4 {
            run.asked += 1;
            held = machine.allocate_row(ROW, grows, &mut burst);
            run.granted += u64::from(held.is_some());
        }
    }
    let (counters, pages_read) = warm.unwrap_or_default();
    run.counters = machine.counters().since(&counters);
    run.pages_read = machine.store.disk.pages_read - pages_read;
    run
}

#[cfg(test)]
mod tests {
    use super::*;
    use refault_core::{Freebsd, FreebsdParams};

    /// Without letting pages go, requests fail and hardly a page is cached; with it, they are granted, and pages come
    /// back from the frames that were not needed.
    #[test]
    fn letting_pages_go_gets_frames_in_a_row() {
        let run = |grows| run(8000, Box::new(Freebsd::new(FreebsdParams::default())), 1, grows);
        let (with, without) = (run(true), run(false));
        assert!(with.granted > without.granted, "{} of {} instead of {}", with.granted, with.asked, without.granted);
        let [cached, before] = [&with, &without].map(|run| run.counters.pages_cached);
        assert!(cached > 2 * before, "{cached} cached pages instead of {before}");
        assert!(with.counters.pages_reactivated > 2 * without.counters.pages_reactivated);
    }
}
