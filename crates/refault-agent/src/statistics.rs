//! The statistics file: one JSON object a line, with the counters under the core's names.
//!
//! A thread writes a line at each interval, and one is written when the program ends. Lines of a program and its children go
//! to the same file, each with its process id. The same thread follows the budget's control file.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use refault_core::Counters;
use refault_pager::{FaultTimes, HistogramCounts, Report};

use crate::Agent;
use crate::control::Control;
use crate::output::{Output, Slot};
use crate::pressure::{Pressure, nobody_runs};

static FILE: Slot = Slot::new();
static START: OnceLock<Instant> = OnceLock::new();
/// Taken with `try_lock` only: a fork may leave it locked in the child, which gets along without.
static HISTORY: Mutex<Option<History>> = Mutex::new(None);

/// Looks a second at who waits.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Looks at the control file.
const CONTROL_EVERY: Duration = Duration::from_millis(100);
/// Refault distances of this long decide the advice.
const WINDOW: Duration = Duration::from_secs(10);
/// Refaults of followed pages below which there is no advice: each stands for 32.
const FEWEST: u64 = 4;

/// What the lines before say.
struct History {
    pressure: Pressure,
    /// Distances and refaults at earlier moments, oldest first.
    earlier: VecDeque<(Instant, HistogramCounts, u64)>,
    /// The most bytes that the program has had.
    everything: u64,
}

/// The file, if it could be opened.
fn file() -> Option<&'static Output> {
    FILE.get()?.as_ref()
}

/// Opens the file and starts the thread; in a forked child only the thread.
pub(crate) fn start(agent: &'static Agent) -> std::io::Result<()> {
    if agent.config.stats.is_none() && agent.config.control.is_none() {
        return Ok(());
    }
    START.get_or_init(Instant::now);
    let place = agent.config.stats.as_ref();
    let file = place.and_then(|place| Output::in_slot(&FILE, agent, place, "there are no statistics"));
    if file.is_none() && agent.config.control.is_none() {
        return Ok(());
    }
    if let Ok(mut history) = HISTORY.try_lock() {
        *history = Some(History { pressure: Pressure::new(), earlier: VecDeque::new(), everything: 0 });
    }
    crate::own_threads::start("refault-stats", move || run(agent))
}

fn run(agent: &'static Agent) {
    let tick = if file().is_some() { LOOK_EVERY } else { CONTROL_EVERY };
    let mut control = Control::default();
    let (mut written, mut controlled) = (Instant::now(), Instant::now());
    loop {
        std::thread::sleep(tick.min(agent.config.interval));
        if file().is_some() {
            if agent.pager.is_stalled() {
                let nobody = nobody_runs();
                if let Ok(mut history) = HISTORY.try_lock()
                    && let Some(history) = history.as_mut()
                {
                    history.pressure.saw_stall(nobody);
                }
            }
            if written.elapsed() >= agent.config.interval {
                written = Instant::now();
                write_line(agent, false);
            }
        }
        if let Some(path) = agent.config.control.as_ref().filter(|_| controlled.elapsed() >= CONTROL_EVERY) {
            controlled = Instant::now();
            control.look(agent, path);
        }
    }
}

/// The line of a program that ends.
pub(crate) fn write_last(agent: &Agent) {
    write_line(agent, true);
}

fn write_line(agent: &Agent, last: bool) {
    if let Some(file) = file() {
        file.append(line(agent, last).as_bytes());
    }
}

fn line(agent: &Agent, last: bool) -> String {
    let report = agent.pager.report();
    let mut line = String::with_capacity(4096);
    let seconds = START.get().map_or(0.0, |start| start.elapsed().as_secs_f64());
    let _ = write!(line, "{{\"pid\":{},\"seconds\":{seconds:.3},\"last\":{last}", std::process::id());
    let page = refault_store::PAGE_SIZE as u64;
    let store = &report.store;
    let values: [(&str, u64); 28] = [
        ("budget_bytes", report.budget_bytes),
        ("resident_bytes", report.resident_bytes),
        ("compressed_bytes", store.pool_bytes),
        ("stored_bytes", (store.same_filled_pages + store.pool_pages + store.file_pages) * page),
        ("same_filled_pages", store.same_filled_pages),
        ("pool_pages", store.pool_pages),
        ("pool_bytes", store.pool_bytes),
        ("file_pages", store.file_pages),
        ("file_bytes", store.file_bytes),
        ("metadata_bytes", report.metadata_bytes),
        ("managed_pages", report.managed_pages),
        ("unmanaged_mmap_bytes", crate::mappings::UNMANAGED_BYTES.load(Ordering::Relaxed)),
        ("zero_fills", report.zero_fills),
        ("prefetched", report.prefetched),
        ("protect_faults", report.protect_faults),
        ("clean_evictions", report.clean_evictions),
        ("direct_reclaims", report.direct_reclaims),
        ("store_refusals", report.store_refusals),
        ("discarded", report.discarded),
        ("lost", report.lost),
        ("cyclic_pages", report.cyclic_pages),
        ("cycles_found", report.cycles_found),
        ("faults", report.faults.count),
        ("fault_p50_ns", report.faults.p50_ns),
        ("fault_p99_ns", report.faults.p99_ns),
        ("fault_max_ns", report.faults.max_ns),
        ("page_bytes", page),
        ("interval_ms", agent.config.interval.as_millis() as u64),
    ];
    for (name, value) in values {
        let _ = write!(line, ",\"{name}\":{value}");
    }
    for (name, value) in Counters::NAMES.iter().zip(report.counters.values()) {
        let _ = write!(line, ",\"{name}\":{value}");
    }
    let _ = write!(line, ",\"access_source\":\"{}\"", agent.pager.access_source().name());
    append_faults(&mut line, &report);
    append_generations(&mut line, &report);
    append_history(&mut line, &report);
    if let Some(monitor) = &agent.config.monitor {
        crate::watching::append_sums(&mut line, monitor.config.schemes.len());
    }
    line.push_str("}\n");
    line
}

fn append_faults(line: &mut String, report: &Report) {
    line.push_str(",\"faults_by_origin\":{");
    for (index, (origin, times)) in report.faults_by_origin.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let FaultTimes { count, p50_ns, p99_ns, max_ns } = times;
        let _ = write!(
            line,
            "{comma}\"{}\":{{\"faults\":{count},\"p50_ns\":{p50_ns},\"p99_ns\":{p99_ns},\"max_ns\":{max_ns}}}",
            origin.name()
        );
    }
    line.push('}');
}

fn append_generations(line: &mut String, report: &Report) {
    line.push_str(",\"generations\":[");
    for (index, generation) in report.generations.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let age = report.now.saturating_sub(generation.birth) / 1_000_000;
        let pages = generation.pages[0] + generation.pages[1];
        let _ = write!(line, "{comma}{{\"seq\":{},\"age_ms\":{age},\"pages\":{pages}}}", generation.seq);
    }
    line.push(']');
}

/// What depends on the lines before: rate of refaults, pressure, advice.
fn append_history(line: &mut String, report: &Report) {
    let Ok(mut history) = HISTORY.try_lock() else { return };
    let Some(history) = history.as_mut() else { return };
    let now = Instant::now();
    history.pressure.update(report.some_us, now);
    let _ = write!(line, ",\"pressure\":{}", history.pressure.json());
    let refaults = report.counters.pswpin;
    while history.earlier.len() > 1 && now - history.earlier[1].0 >= WINDOW {
        history.earlier.pop_front();
    }
    let before = history.earlier.front().map(|(at, counts, refaults)| (now - *at, counts, *refaults));
    let (rate, window) = match before {
        Some((passed, counts, earlier)) => {
            let seconds = passed.as_secs_f64().max(0.001);
            (refaults.saturating_sub(earlier) as f64 / seconds, report.distances.since(counts))
        }
        None => (0.0, report.distances.clone()),
    };
    let _ = write!(line, ",\"refaults_per_second\":{rate:.1},\"followed_refaults\":{}", window.count());
    let stored = report.store.same_filled_pages + report.store.pool_pages + report.store.file_pages;
    let has = report.resident_bytes + stored * refault_store::PAGE_SIZE as u64;
    history.everything = history.everything.max(has);
    match advice(report.budget_bytes, history.everything, &window) {
        Some(bytes) => _ = write!(line, ",\"would_stop_refaulting_at_bytes\":{bytes}"),
        None => line.push_str(",\"would_stop_refaulting_at_bytes\":null"),
    }
    history.earlier.push_back((now, report.distances.clone(), refaults));
}

/// The budget at which 99 of 100 of the latest refaults would not have happened: the budget and their distance, but never
/// more than the program has ever had. `None`: nothing comes back.
fn advice(budget: u64, everything: u64, window: &HistogramCounts) -> Option<u64> {
    (window.count() >= FEWEST).then(|| {
        let missing = window.quantile(0.99) * refault_store::PAGE_SIZE as u64;
        // A reserve of a 64th is kept free.
        (budget + missing).min((everything + everything / 64).max(budget))
    })
}
