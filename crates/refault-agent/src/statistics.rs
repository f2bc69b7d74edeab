//! The statistics file: one JSON object a line, with the counters under the core's names.
//!
//! A thread writes a line at each interval, and one is written when the program ends. Lines of a program and its children go
//! to the same file, each with its process id, by single appending writes.

use std::fmt::Write;
use std::fs::File;
use std::io;
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use refault_core::Counters;

use crate::Agent;

static FILE: OnceLock<Option<Mutex<File>>> = OnceLock::new();
static START: OnceLock<Instant> = OnceLock::new();

pub(crate) fn has_thread(agent: &Agent) -> bool {
    agent.config.stats.is_some()
}

/// Opens the file and starts the thread; in a forked child only the thread.
pub(crate) fn start(agent: &'static Agent) -> io::Result<()> {
    let Some(path) = &agent.config.stats else { return Ok(()) };
    START.get_or_init(Instant::now);
    if FILE.get().is_none() {
        let file = File::options().create(true).append(true).open(path)?;
        let _ = FILE.set(Some(Mutex::new(file)));
    }
    let signals = crate::forks::BlockedSignals::new();
    let runs = std::sync::Arc::new(std::sync::Barrier::new(2));
    let thread_runs = runs.clone();
    let body = move || {
        crate::heap::own_this_thread();
        thread_runs.wait();
        drop(thread_runs);
        loop {
            std::thread::sleep(agent.config.interval);
            write_line(agent, false);
        }
    };
    let started = std::thread::Builder::new().name("refault-stats".to_owned()).spawn(body);
    drop(signals);
    started?;
    runs.wait();
    Ok(())
}

/// The line of a program that ends.
pub(crate) fn write_last(agent: &Agent) {
    write_line(agent, true);
}

fn write_line(agent: &Agent, last: bool) {
    let Some(Some(file)) = FILE.get() else { return };
    let line = line(agent, last);
    if let Ok(file) = file.lock() {
        let _ = rustix::io::write(&*file, line.as_bytes());
    }
}

fn line(agent: &Agent, last: bool) -> String {
    let report = agent.pager.report();
    let mut line = String::with_capacity(2048);
    let seconds = START.get().map_or(0.0, |start| start.elapsed().as_secs_f64());
    let _ = write!(line, "{{\"pid\":{},\"seconds\":{seconds:.3},\"last\":{last}", std::process::id());
    let values: [(&str, u64); 24] = [
        ("budget_bytes", report.budget_bytes),
        ("resident_bytes", report.resident_bytes),
        ("same_filled_pages", report.store.same_filled_pages),
        ("pool_pages", report.store.pool_pages),
        ("pool_bytes", report.store.pool_bytes),
        ("file_pages", report.store.file_pages),
        ("file_bytes", report.store.file_bytes),
        ("metadata_bytes", report.metadata_bytes),
        ("managed_pages", report.managed_pages),
        ("unmanaged_mmap_bytes", crate::mappings::UNMANAGED_BYTES.load(std::sync::atomic::Ordering::Relaxed)),
        ("zero_fills", report.zero_fills),
        ("prefetched", report.prefetched),
        ("protect_faults", report.protect_faults),
        ("clean_evictions", report.clean_evictions),
        ("direct_reclaims", report.direct_reclaims),
        ("store_refusals", report.store_refusals),
        ("discarded", report.discarded),
        ("lost", report.lost),
        ("faults", report.faults),
        ("fault_p50_ns", report.fault_p50_ns),
        ("fault_p99_ns", report.fault_p99_ns),
        ("fault_max_ns", report.fault_max_ns),
        ("page_bytes", refault_store::PAGE_SIZE as u64),
        ("interval_ms", agent.config.interval.as_millis() as u64),
    ];
    for (name, value) in values {
        let _ = write!(line, ",\"{name}\":{value}");
    }
    for (name, value) in Counters::NAMES.iter().zip(report.counters.values()) {
        let _ = write!(line, ",\"{name}\":{value}");
    }
    line.push_str(",\"generations\":[");
    for (index, generation) in report.generations.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let age = report.now.saturating_sub(generation.birth) / 1_000_000;
        let pages = generation.pages[0] + generation.pages[1];
        let _ = write!(line, "{comma}{{\"seq\":{},\"age_ms\":{age},\"pages\":{pages}}}", generation.seq);
    }
    line.push_str("]}\n");
    line
}
