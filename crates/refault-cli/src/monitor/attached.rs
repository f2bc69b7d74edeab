//! `refault monitor --pid`: a program that runs already, monitored from outside.
//!
//! refault's own monitor works inside the program and must be there from its start. From outside there are two. The
//! kernel's monitor, DAMON, needs root, a free kdamond, and a kernel with its operations on virtual addresses. The
//! program's user can read the accessed bits of its page tables, summed up by mapping ([`refault_pool::mappings`]). The
//! second sees no less than all accesses of an interval, but not where in a mapping they were: bytes are known, places
//! are mappings.
//!
//! Cost: DAMON's own, which `top` shows as kdamond; for mappings a walk over the page tables per interval, which is
//! stretched until it stays within `--monitor-cpu`.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use refault_config::Config;
use refault_console::{Contents, Failure, say};
use refault_core::monitor::Attributes;
use refault_pool::mappings::{self, Mapping};
use refault_pool::reclaim::session::is_gone;
use serde_json::json;

use super::kernel::{Kernel, SYSFS};
use super::live::write_recording;
use super::recording::{Most, Process, Recording, Seen, Snapshot};
use super::{MonitorArgs, Source};
use crate::wss::{interrupts, not_seen, sleep};

/// Between two looks at mappings unless the configuration says otherwise.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often the kernel's monitor is asked whether an aggregation is over.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// Parts that a mapping's accessed share is counted in.
const PARTS: u32 = 100;

/// What monitors.
enum MonitorSource {
    Kernel(Box<Kernel>, Attributes),
    Mappings(Mappings),
}

impl MonitorSource {
    fn name(&self) -> &'static str {
        match self {
            MonitorSource::Kernel(..) => "the kernel's monitor (DAMON)",
            MonitorSource::Mappings(_) => "accessed bits of its mappings (clear_refs and smaps)",
        }
    }
}

/// Monitors a process until it ends, the time is over or a signal interrupts, and says what was seen.
pub fn run(args: &MonitorArgs, pid: u32) -> Result<(), Failure> {
    let config = args.monitor.read()?;
    if !config.schemes.is_empty() {
        let remedy = "refault reclaim --pid runs schemes on a program that is not refault's own";
        return Err(Failure::usage("nothing acts here", "--pid with schemes", remedy));
    }
    let mut outputs = args.outputs();
    let output = args.claim_recording(&mut outputs)?;
    let report = outputs.claim("--report", args.report.as_deref(), Contents::Html)?;
    let program = program_of(pid)?;
    let mut monitor = source_of(args, &config, pid)?;
    let source = monitor.name();
    say(format_args!("accesses: {source}; Ctrl-C ends it"));
    let asked = interrupts();
    let end = args.duration.map(|time| Instant::now() + time);
    loop {
        let wait = match &mut monitor {
            MonitorSource::Kernel(kernel, attributes) => {
                kernel.monitor(pid, attributes);
                if is_alive(pid) { Some(ASK_EVERY) } else { None }
            }
            MonitorSource::Mappings(mappings) => mappings.wait(),
        };
        let Some(wait) = wait else { break };
        let left = end.map_or(wait, |end| end.saturating_duration_since(Instant::now()).min(wait));
        if left.is_zero() || !sleep(left, &asked) {
            break;
        }
        if let MonitorSource::Mappings(mappings) = &mut monitor
            && let Err(error) = mappings.look()
        {
            if is_gone(&error) || !is_alive(pid) {
                break;
            }
            return Err(not_seen(pid, &error));
        }
    }
    let process = match monitor {
        MonitorSource::Kernel(kernel, _) => kernel.finish(),
        MonitorSource::Mappings(mappings) => mappings.finish(),
    };
    if process.snapshots.is_empty() {
        let remedy = "it ended, or was interrupted, before the first interval was over";
        return Err(Failure::failed("nothing was monitored", pid, remedy));
    }
    let recording = Recording { program, source: source.to_owned(), processes: vec![process], ..Recording::default() };
    write_recording(args, &recording, output, report, true)
}

/// The command line of a process.
fn program_of(pid: u32) -> Result<String, Failure> {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(|error| not_seen(pid, &error))?;
    let words: Vec<_> = command.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        let remedy = "it has ended or is the kernel's; name a program that runs";
        return Err(Failure::usage("a process without memory of its own", pid, remedy));
    }
    Ok(words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" "))
}

/// A process that has ended has no command line, also while its parent has not asked for it.
fn is_alive(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|command| !command.is_empty())
}

/// The kernel's monitor where it can be had, or what was asked for.
fn source_of(args: &MonitorArgs, config: &Config, pid: u32) -> Result<MonitorSource, Failure> {
    let instead = if args.source.is_some() { "use --source mappings" } else { "until then its mappings are looked at" };
    let kernel = || -> Result<MonitorSource, Failure> {
        let mut kernel = Kernel::claim(Path::new(SYSFS), instead)?;
        kernel.begin(pid, &config.attributes).map_err(|error| {
            let why = format!("it does not take process {pid}: {error}");
            Failure::failed("the kernel's monitor cannot be used", why, instead)
        })?;
        Ok(MonitorSource::Kernel(Box::new(kernel), config.attributes))
    };
    let mappings = || -> Result<MonitorSource, Failure> {
        let interval = match args.monitor.set.iter().any(|key| key.contains("aggr_us")) || args.monitor.file.is_some() {
            true => Duration::from_micros(config.attributes.aggr_interval),
            false => INTERVAL,
        };
        Ok(MonitorSource::Mappings(
            Mappings::begin(pid, interval, args.monitor_cpu.0).map_err(|error| not_seen(pid, &error))?,
        ))
    };
    match args.source {
        Some(Source::Kernel) => kernel(),
        Some(Source::Mappings) => mappings(),
        Some(Source::Refault) => {
            let remedy = "start the program with refault monitor -- PROGRAM, or use --source kernel or mappings";
            Err(Failure::usage("refault's monitor must be in a program from its start", format!("--pid {pid}"), remedy))
        }
        None => kernel().or_else(|failure| {
            say(format_args!("{}", failure.line()));
            mappings()
        }),
    }
}

/// The accessed bits of a process, by mapping.
struct Mappings {
    interval: Duration,
    most_cpu: f64,
    begun: Instant,
    /// Time spent looking.
    spent: Duration,
    /// By first address: whether it was accessed at the last look, and for how many looks that has been so.
    ages: HashMap<u64, (bool, u32)>,
    process: Process,
}

impl Mappings {
    fn begin(pid: u32, interval: Duration, most_cpu: f64) -> io::Result<Mappings> {
        let begun = Instant::now();
        mappings::clear_accessed(pid)?;
        let process = Process { pid: u64::from(pid), ..Process::default() };
        Ok(Mappings { interval, most_cpu, begun, spent: begun.elapsed(), ages: HashMap::new(), process })
    }

    /// How long until the next look: longer than asked for as long as looking takes more than it may.
    fn wait(&self) -> Option<Duration> {
        let due = self.spent.div_f64(self.most_cpu.max(1e-6)).saturating_sub(self.begun.elapsed());
        Some(self.interval.max(due))
    }

    /// Looks at what was accessed since the last look.
    fn look(&mut self) -> io::Result<()> {
        let before = Instant::now();
        let pid = self.process.pid as u32;
        let found = mappings::mappings(pid)?;
        if found.is_empty() {
            // What is left of a process that has ended.
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        mappings::clear_accessed(pid)?;
        let length = self.begun.elapsed().as_micros() as u64 - self.last_us();
        let snapshot = Snapshot {
            now_ns: self.begun.elapsed().as_nanos() as u64,
            window: PARTS,
            sample_us: length / u64::from(PARTS),
            regions: self.regions(&found),
        };
        self.process.snapshots.push(snapshot);
        self.spent += before.elapsed();
        Ok(())
    }

    fn last_us(&self) -> u64 {
        self.process.snapshots.last().map_or(0, |snapshot| snapshot.now_ns / 1000)
    }

    /// Mappings with memory as regions: their accesses are the part of it that was accessed.
    fn regions(&mut self, found: &[Mapping]) -> Vec<Seen> {
        let mut ages = HashMap::with_capacity(found.len());
        let regions = found
            .iter()
            .filter(|mapping| mapping.resident_bytes > 0)
            .map(|mapping| {
                let accessed = mapping.accessed_bytes > 0;
                let (was, age) = self.ages.get(&mapping.start).copied().unwrap_or((accessed, 0));
                let age = if was == accessed { age + 1 } else { 0 };
                ages.insert(mapping.start, (accessed, age));
                let parts = (mapping.accessed_bytes * u64::from(PARTS)).div_ceil(mapping.resident_bytes);
                Seen {
                    start: mapping.start,
                    end: mapping.end,
                    nr_accesses: parts.min(u64::from(PARTS)) as u32,
                    age,
                    most: Some(Most { bytes: mapping.accessed_bytes, from: mapping.start, to: mapping.end }),
                }
            })
            .collect();
        self.ages = ages;
        regions
    }

    fn finish(mut self) -> Process {
        let elapsed = self.begun.elapsed();
        let interval = elapsed.as_micros() as u64 / self.process.snapshots.len().max(1) as u64;
        self.process.sums = json!({
            "pid": self.process.pid,
            "monitor": {
                "cpu_ns": self.spent.as_nanos() as u64,
                "elapsed_ns": elapsed.as_nanos() as u64,
                "checks": self.process.snapshots.len(),
                "sample_us": interval,
                "aggr_us": interval,
            },
            "schemes": [],
        });
        self.process
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_as_hot_as_the_part_of_it_that_was_accessed() {
        let mut monitored = Mappings::begin(std::process::id(), INTERVAL, 0.01).expect("our own");
        let mapping = |accessed_bytes, resident_bytes| Mapping {
            start: 4096,
            end: 1 << 20,
            accessed_bytes,
            resident_bytes,
            ..Mapping::default()
        };
        let mut seen = |accessed, resident| {
            let regions = monitored.regions(&[mapping(accessed, resident)]);
            regions.first().map(|seen| (seen.nr_accesses, seen.age, seen.most.map(|most| most.bytes)))
        };
        assert_eq!(seen(4096, 8192), Some((50, 1, Some(4096))));
        assert_eq!(seen(1, 1 << 19), Some((1, 2, Some(1))), "what was accessed at all counts");
        assert_eq!(seen(0, 8192), Some((0, 0, Some(0))));
        assert_eq!(seen(0, 8192), Some((0, 1, Some(0))));
        assert_eq!(seen(0, 0), None);
        // Looking took a tenth of a second in all: with 1 % that is enough for ten seconds.
        monitored.spent = Duration::from_millis(100);
        assert!(monitored.wait().is_some_and(|wait| wait > Duration::from_secs(9)));
    }
}
