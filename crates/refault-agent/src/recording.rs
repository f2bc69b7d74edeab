//! The recorder: which pages were accessed, interval by interval, for `refault record`.
//!
//! Each interval is one piece of the file: a header of eight little-endian 64-bit words (a mark, the process id, when the agent
//! started, the interval's begin and end, the length of the pieces' runs, nanoseconds of processor time that the recorder
//! took, pages), then runs of pages as pairs of 32-bit words. Times are nanoseconds of the monotonic clock.

use std::sync::atomic::{AtomicBool, Ordering};

use refault_pager::Pager;

use crate::Agent;
use crate::output::{Output, Slot};

/// First word of a piece.
pub(crate) const MARK: u64 = u64::from_le_bytes(*b"rfrecord");

static FILE: Slot = Slot::new();
/// Somebody is collecting.
static BUSY: AtomicBool = AtomicBool::new(false);
static BEGIN: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
static BIRTH: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

fn clock(id: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(id);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub(crate) fn now() -> u64 {
    clock(rustix::time::ClockId::Monotonic)
}

pub(crate) fn start(agent: &'static Agent) -> std::io::Result<()> {
    let Some(place) = &agent.config.record else { return Ok(()) };
    if Output::in_slot(&FILE, agent, place, "there is no record").is_none() {
        return Ok(());
    }
    BUSY.store(false, Ordering::SeqCst);
    BEGIN.store(now(), Ordering::SeqCst);
    BIRTH.store(now(), Ordering::SeqCst);
    crate::own_threads::start("refault-record", move || {
        let mut runs = Vec::with_capacity(1 << 16);
        loop {
            std::thread::sleep(agent.config.record_interval);
            if !piece(&agent.pager, &mut runs) {
                return;
            }
        }
    })
}

/// The rest, when the program ends.
pub(crate) fn write_last(agent: &Agent) {
    if FILE.get().is_some_and(Option::is_some) {
        let mut runs = Vec::new();
        piece(&agent.pager, &mut runs);
    }
}

/// Collects and writes an interval. False if accesses cannot be seen.
fn piece(pager: &Pager, runs: &mut Vec<(u32, u32)>) -> bool {
    let Some(Some(file)) = FILE.get() else { return false };
    if BUSY.swap(true, Ordering::SeqCst) {
        return true;
    }
    let cpu = clock(rustix::time::ClockId::ThreadCPUTime);
    runs.clear();
    let works = pager.take_accessed(runs);
    let end = now();
    let begin = BEGIN.swap(end, Ordering::SeqCst);
    let spent = clock(rustix::time::ClockId::ThreadCPUTime) - cpu;
    let pages: u64 = runs.iter().map(|(_, pages)| u64::from(*pages)).sum();
    if works {
        let header = [
            MARK,
            u64::from(std::process::id()),
            BIRTH.load(Ordering::SeqCst),
            begin,
            end,
            runs.len() as u64 * 8,
            spent,
            pages,
        ];
        let mut bytes = Vec::with_capacity(64 + runs.len() * 8);
        header.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        for (first, pages) in runs.iter() {
            bytes.extend(first.to_le_bytes());
            bytes.extend(pages.to_le_bytes());
        }
        file.append(&bytes);
    }
    BUSY.store(false, Ordering::SeqCst);
    works
}
