//! The monitor's thread: watches the program's memory by regions and lets schemes act on it.
//!
//! Each aggregation becomes a JSON line of the monitor's file, if there is one; each second a line with what the monitor and
//! the schemes came to so far. The statistics show the same sums ([`sums`]).

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use refault_core::monitor::Region;
use refault_core::schemes::{Observer, Scheme};
use refault_pager::Watch;

use crate::Agent;
use crate::output::{Output, Slot};

static FILE: Slot = Slot::new();

/// Schemes whose sums are shown.
const SCHEMES: usize = 16;
/// `cpu_ns`, `elapsed_ns`, `checks`, `regions`, `sample_us`, `aggr_us`.
static MONITOR: [AtomicU64; 6] = [const { AtomicU64::new(0) }; 6];
static STATISTICS: [[AtomicU64; 7]; SCHEMES] = [const { [const { AtomicU64::new(0) }; 7] }; SCHEMES];

/// Names of the monitor's sums, in their order.
const MONITOR_NAMES: [&str; 6] = ["cpu_ns", "elapsed_ns", "checks", "regions", "sample_us", "aggr_us"];
/// Names of a scheme's sums, those of the kernel's statistics.
const SCHEME_NAMES: [&str; 7] =
    ["nr_tried", "sz_tried", "nr_applied", "sz_applied", "sz_ops_filter_passed", "qt_exceeds", "nr_snapshots"];

pub(crate) fn start(agent: &'static Agent) -> std::io::Result<()> {
    let Some(monitor) = &agent.config.monitor else { return Ok(()) };
    if let Some(place) = &agent.config.monitor_out {
        let _ = Output::in_slot(&FILE, agent, place, "the monitor's findings are not written");
    }
    crate::own_threads::start("refault-monitor", move || {
        let ranges = agent.pager.ranges(monitor.config.view);
        let kdamond = match monitor.config.kdamond_over(&ranges, u64::from(std::process::id()), 0) {
            Ok(kdamond) => kdamond,
            Err(error) => return crate::forks::say(&format!("nothing is monitored: {error}")),
        };
        match Watch::new(&agent.pager, kdamond, monitor.most_cpu) {
            Ok(mut watch) => run(&mut watch),
            Err(why) => crate::forks::say(&format!("nothing is monitored: {why}")),
        }
    })
}

fn run(watch: &mut Watch) {
    let mut lines = Lines { birth: crate::recording::now(), window: 0, sample: 0 };
    let mut said = Instant::now();
    loop {
        let attributes = watch.kdamond().monitor().attributes();
        lines.window = attributes.max_nr_accesses();
        lines.sample = attributes.sample_interval;
        let Some(wait) = watch.step(&mut lines) else { return };
        if said.elapsed() >= Duration::from_secs(1) || said.elapsed() + wait > Duration::from_secs(2) {
            said = Instant::now();
            publish(watch);
            if let Some(Some(file)) = FILE.get() {
                let mut line = format!("{{\"pid\":{},\"birth\":{}", std::process::id(), lines.birth);
                append_sums(&mut line, watch.kdamond().schemes().len());
                line.push_str("}\n");
                file.append(line.as_bytes());
            }
        }
        std::thread::sleep(wait);
    }
}

fn publish(watch: &Watch) {
    let kdamond = watch.kdamond();
    let attributes = kdamond.monitor().attributes();
    let values = [
        watch.cpu_ns(),
        watch.elapsed().as_nanos() as u64,
        kdamond.monitor().counters().checks,
        kdamond.monitor().nr_regions() as u64,
        attributes.sample_interval,
        attributes.aggr_interval,
    ];
    MONITOR.iter().zip(values).for_each(|(place, value)| place.store(value, Ordering::Relaxed));
    for (places, scheme) in STATISTICS.iter().zip(kdamond.schemes()) {
        places.iter().zip(scheme_values(scheme)).for_each(|(place, value)| place.store(value, Ordering::Relaxed));
    }
}

fn scheme_values(scheme: &Scheme) -> [u64; 7] {
    let s = scheme.statistics();
    [s.nr_tried, s.sz_tried, s.nr_applied, s.sz_applied, s.sz_ops_filter_passed, s.qt_exceeds, s.nr_snapshots]
}

/// Appends `,"monitor":{…},"schemes":[…]` as of the last second.
pub(crate) fn append_sums(line: &mut String, schemes: usize) {
    line.push_str(",\"monitor\":{");
    for (index, (name, place)) in MONITOR_NAMES.iter().zip(&MONITOR).enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(line, "{comma}\"{name}\":{}", place.load(Ordering::Relaxed));
    }
    line.push_str("},\"schemes\":[");
    for (index, places) in STATISTICS.iter().take(schemes).enumerate() {
        line.push_str(if index == 0 { "{" } else { ",{" });
        for (at, (name, place)) in SCHEME_NAMES.iter().zip(places).enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(line, "{comma}\"{name}\":{}", place.load(Ordering::Relaxed));
        }
        line.push('}');
    }
    line.push(']');
}

/// Writes the regions of each aggregation.
struct Lines {
    birth: u64,
    window: u32,
    sample: u64,
}

impl Observer for Lines {
    fn aggregated(&mut self, target: usize, regions: &[Region]) {
        let Some(Some(file)) = FILE.get() else { return };
        let mut line = String::with_capacity(64 + regions.len() * 40);
        let _ = write!(
            line,
            "{{\"pid\":{},\"birth\":{},\"now_ns\":{},\"target\":{target},\"window\":{},\"sample_us\":{},\"regions\":[",
            std::process::id(),
            self.birth,
            crate::recording::now(),
            self.window,
            self.sample
        );
        for (index, region) in regions.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let (start, end) = (region.start, region.end);
            let _ = write!(line, "{comma}[{start},{end},{},{}]", region.nr_accesses, region.age);
        }
        line.push_str("]}\n");
        file.append(line.as_bytes());
    }
}
