//! Who looks for accesses: the recorder of `refault record`, and the monitor of `refault monitor` and `run --scheme`.
//!
//! Both work in one thread of the agent's, which the program's libc does not know: it has all signals blocked, its
//! calls go to the kernel unseen, and it touches no managed memory. A forked child gets one of its own; a program that
//! is executed begins anew.
//!
//! The recorder writes a piece per interval: a header of nine little-endian 64-bit words, then a word per page. The
//! header has a mark, the process id, when the agent started, the interval's begin and end, and the bytes of what
//! follows. Then come nanoseconds of processor time that the look took, pages, and nanoseconds that the faults of pages
//! set aside took. A page's word is its number times two, plus one if its first access was a write. Where there is no
//! room for a piece, zeros stand in its place and in that of the next header. The monitor writes a JSON line per
//! aggregation, and one per second with what monitor and schemes came to so far. Times are nanoseconds of the monotonic
//! clock.
//!
//! Invariants: the observer's lock is taken before the engine's. Cost: [`refault_paging::Engine::look`] and
//! [`ProcessMonitor::step`].

use std::sync::atomic::{AtomicBool, Ordering};

use refault_config::Config;
use refault_core::monitor::{Region, View};
use refault_core::schemes::{self, Scheme};
use refault_linux::calls::{SYS_clone, SYS_exit, SYS_prctl, SYS_rt_sigprocmask};
use refault_linux::clone::{CLONE_FILES, CLONE_FS, CLONE_SIGHAND, CLONE_SYSVSEM, CLONE_THREAD, CLONE_VM};
use refault_linux::errno::ENOMEM;
use refault_linux::lock::{Held, Lock};
use refault_linux::options::PR_SET_NAME;
use refault_linux::signals::{SET_BYTES, SIG_SETMASK};
use refault_linux::{errno, sys};
use refault_paging::settings::{AgentSettings, MonitorSettings, Output};
use refault_paging::tree::OWN_THREAD;
use refault_paging::{Engine, PAGE, ProcessMonitor};
use serde::Serialize;

use crate::engine_lock::paging;
use crate::files::descriptors;
use crate::library::report;
use crate::memory::area;

/// First word of a piece.
const MARK: u64 = u64::from_le_bytes(*b"rfrecord");
const MILLISECOND: u64 = 1_000_000;
/// Nanoseconds between two lines with what the monitor came to.
const SUMS_EVERY: u64 = 1_000_000_000;
/// Looks of a record that is to cost little are never further apart, in nanoseconds.
const MAX_INTERVAL: u64 = 10_000_000_000;
/// Nanoseconds that delivering a fault to the thread that it happened to counts for.
const DELIVERY: u64 = 2_000;

static OBSERVER: Lock<Option<Observer>> = Lock::new(None);
static RUNS: AtomicBool = AtomicBool::new(false);

struct Observer {
    record: Option<Record>,
    monitor: Option<Monitor>,
    birth: u64,
}

struct Record {
    out: i32,
    /// Nanoseconds, now and at least.
    interval: u64,
    min_interval: u64,
    most_cpu: Option<f64>,
    begin: u64,
    /// Nanoseconds that faults had taken by then.
    waited: u64,
    touched: Vec<usize>,
}

struct Monitor {
    config: Config,
    most_cpu: f64,
    /// Whether the user said where to look.
    stays: bool,
    /// Where aggregations go, and where sums do.
    out: Option<i32>,
    sums: Option<i32>,
    watch: Option<ProcessMonitor>,
    said: u64,
}

/// Begins to look, if that was asked for. Before the program's calls come to the agent.
///
/// # Errors
/// Says what is not to be had or not understood.
pub(crate) fn begin(settings: &AgentSettings) -> Result<(), String> {
    let record = settings.record.as_ref().map(|record| {
        let out = descriptors::output(&record.out).ok_or("the record cannot be opened")?;
        let (interval, most_cpu) = (record.interval_ms * MILLISECOND, record.most_cpu);
        let (begin, waited, touched) = (sys::now(), 0, Vec::new());
        Ok::<_, &str>(Record { out, interval, min_interval: interval, most_cpu, begin, waited, touched })
    });
    let monitor = settings.monitor.as_ref().map(Monitor::new);
    let (record, monitor) = (record.transpose()?, monitor.transpose()?);
    if record.is_none() && monitor.is_none() {
        return Ok(());
    }
    let shift = settings.record.as_ref().map_or(0, |record| record.shift);
    paging().note_accesses_aside(record.is_some(), shift)?;
    *OBSERVER.lock() = Some(Observer { record, monitor, birth: sys::now() });
    start()
}

/// Keeps the observer from working while the result lives: for the moment of a fork.
pub(crate) fn stand_still() -> StandStill {
    StandStill(OBSERVER.lock())
}

/// See [`stand_still`].
pub(crate) struct StandStill(Held<'static, Option<Observer>>);

impl StandStill {
    /// In a forked child: its memory is looked at as its own.
    pub(crate) fn in_child(mut self) {
        let Some(observer) = self.0.as_mut() else { return };
        let now = sys::now();
        observer.birth = now;
        if let Some(record) = &mut observer.record {
            (record.begin, record.waited) = (now, paging().taken_back().1);
        }
        if let Some(monitor) = &mut observer.monitor {
            (monitor.watch, monitor.said) = (None, 0);
        }
        drop(self);
        if let Err(why) = start() {
            report::say(format_args!("the accesses of a forked child are not seen: {why}"));
        }
    }
}

/// Writes what was seen since the last look: the process ends, or becomes another program.
pub(crate) fn finish() {
    if let Some(observer) = OBSERVER.lock().as_mut() {
        observer.piece();
    }
}

/// Whether the agent has a thread here.
pub(crate) fn runs() -> bool {
    RUNS.load(Ordering::Relaxed)
}

fn start() -> Result<(), String> {
    RUNS.store(true, Ordering::Relaxed);
    start_own_thread().map_err(|error| format!("a thread cannot be made: {}", errno::text(error)))
}

/// What the agent's thread does.
pub(crate) fn run() -> ! {
    let mut name = [0u8; 16];
    name[..OWN_THREAD.len()].copy_from_slice(OWN_THREAD.as_bytes());
    // SAFETY: names this thread; the text ends with a zero.
    unsafe { sys::call(SYS_prctl, [PR_SET_NAME, name.as_ptr() as usize, 0, 0, 0, 0]) };
    loop {
        let wait = OBSERVER.lock().as_mut().and_then(Observer::step);
        let Some(wait) = wait else { break };
        sys::sleep(wait);
    }
    RUNS.store(false, Ordering::Relaxed);
    loop {
        // SAFETY: ends this thread, which has nothing that others wait for.
        unsafe { sys::call(SYS_exit, [0; 6]) };
    }
}

impl Observer {
    /// Does what is due. Nanoseconds until the next time; `None` if there is none.
    fn step(&mut self) -> Option<u64> {
        if let Some(record) = &self.record {
            let (due, now) = (record.begin + record.interval, sys::now());
            if now < due {
                return Some(due - now);
            }
            self.piece();
            return self.record.as_ref().map(|record| record.interval);
        }
        let birth = self.birth;
        self.monitor.as_mut()?.step(birth)
    }

    /// Writes an interval of the record.
    fn piece(&mut self) {
        let Some(record) = &mut self.record else { return };
        let cpu = sys::thread_time();
        record.touched.clear();
        let waited = {
            let mut paging = paging();
            paging.look(&mut record.touched);
            paging.publish();
            paging.taken_back().1
        };
        let (begin, end) = (record.begin, sys::now());
        record.begin = end;
        let spent = sys::thread_time() - cpu;
        let pages = record.touched.len() as u64;
        let faults = waited - std::mem::replace(&mut record.waited, waited);
        if let Some(most) = record.most_cpu {
            let cost = spent + faults + pages * DELIVERY;
            // What was touched is touched again as often if it is looked at half as often.
            let wanted = (cost as f64 / most.max(1e-6)) as u64;
            record.interval = wanted.clamp(record.min_interval, MAX_INTERVAL.max(record.min_interval));
        }
        let header = [MARK, sys::process_id() as u64, self.birth, begin, end, pages * 8, spent, pages, faults];
        let mut bytes = Vec::with_capacity((header.len() + record.touched.len()) * 8);
        header.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        for touch in &record.touched {
            bytes.extend(((touch / PAGE * 2 + touch % 2) as u64).to_le_bytes());
        }
        let written = sys::write(record.out, &bytes).max(0) as usize;
        if written < bytes.len() {
            // What is left of the piece becomes zeros, and so does the header of one that says that something is
            // missing.
            sys::lengthen(record.out, bytes.len() - written + size_of_val(&header));
        }
    }
}

impl Monitor {
    fn new(settings: &MonitorSettings) -> Result<Monitor, String> {
        let text = |error: refault_config::ConfigError| error.to_string();
        let mut config = Config::parse_with(&settings.text, "monitor", &settings.changes).map_err(text)?;
        settings.schemes.iter().try_for_each(|line| config.add_scheme(line)).map_err(text)?;
        let open = |file: &Option<Output>| {
            let opened = file.as_ref().map(descriptors::output);
            opened.map(|opened| opened.ok_or("the monitor's file cannot be opened")).transpose()
        };
        let out = open(&settings.out)?;
        let sums = open(&settings.sums)?.or(out);
        let stays = config.view == View::FixedVirtual && config.targets.iter().any(|target| !target.ranges.is_empty());
        Ok(Monitor { config, most_cpu: settings.most_cpu, stays, out, sums, watch: None, said: 0 })
    }

    fn step(&mut self, birth: u64) -> Option<u64> {
        let mut paging = paging();
        let process = sys::process_id() as u64;
        if self.watch.is_none() {
            // A program that was just executed has no memory yet.
            let Some(ranges) = paging.ranges_in(self.config.view) else {
                return Some(self.config.attributes.sample_interval.max(1) * 1000);
            };
            match self.config.kdamond_over(&ranges, process, 0) {
                Ok(kdamond) => self.watch = Some(ProcessMonitor::new(kdamond, self.most_cpu, !self.stays)),
                Err(error) => {
                    report::say(format_args!("nothing is monitored: {error}"));
                    return None;
                }
            }
        }
        let watch = self.watch.as_mut()?;
        let attributes = *watch.kdamond().monitor().attributes();
        let mut lines = Lines {
            out: self.out,
            process,
            birth,
            window: attributes.max_nr_accesses(),
            sample_us: attributes.sample_interval,
            aggregated: Vec::new(),
        };
        let wait = watch.step(&mut paging, &mut lines)?.as_nanos() as u64;
        let made = lines.made(&paging);
        if sys::now() - self.said >= SUMS_EVERY {
            // What schemes have paged out is known though nothing faults.
            paging.publish();
        }
        drop(paging);
        made.iter().for_each(|line| write_line(self.out, line));
        let now = sys::now();
        if now - self.said >= SUMS_EVERY || now - self.said + wait > 2 * SUMS_EVERY {
            self.said = now;
            write_line(self.sums, &Sums::of(watch, process, birth));
        }
        Some(wait)
    }
}

/// Takes the regions of each aggregation, and makes lines of them.
struct Lines {
    out: Option<i32>,
    process: u64,
    birth: u64,
    window: u32,
    sample_us: u64,
    aggregated: Vec<(usize, Vec<Region>)>,
}

/// A line with the regions of an aggregation.
#[derive(Serialize)]
struct Aggregation {
    pid: u64,
    birth: u64,
    now_ns: u64,
    target: usize,
    window: u32,
    sample_us: u64,
    regions: Vec<Numbers>,
}

/// Start, end, accesses, age; of a region with accesses also the bytes in it that were touched and not given back, and
/// between which addresses they lie: what was only reserved cannot have been accessed.
#[derive(Serialize)]
#[serde(untagged)]
enum Numbers {
    Idle([u64; 4]),
    Accessed([u64; 7]),
}

impl schemes::Observer for Lines {
    fn aggregated(&mut self, target: usize, regions: &[Region]) {
        if self.out.is_some() {
            self.aggregated.push((target, regions.to_vec()));
        }
    }
}

impl Lines {
    /// The lines of what was aggregated, with what the engine knows of the regions.
    fn made(self, paging: &Engine) -> Vec<Aggregation> {
        let numbers = |region: &Region| {
            let [start, end, accesses, age] = [region.start, region.end, region.nr_accesses.into(), region.age.into()];
            if accesses == 0 {
                return Numbers::Idle([start, end, accesses, age]);
            }
            let (bytes, place) = paging.touched_in(start as usize..end as usize);
            Numbers::Accessed([start, end, accesses, age, bytes as u64, place.start as u64, place.end as u64])
        };
        let line = |(target, regions): &(usize, Vec<Region>)| Aggregation {
            pid: self.process,
            birth: self.birth,
            now_ns: sys::now(),
            target: *target,
            window: self.window,
            sample_us: self.sample_us,
            regions: regions.iter().map(numbers).collect(),
        };
        self.aggregated.iter().map(line).collect()
    }
}

/// A line with what monitor and schemes came to so far.
#[derive(Serialize)]
struct Sums {
    pid: u64,
    birth: u64,
    monitor: MonitorSums,
    schemes: Vec<SchemeSums>,
}

#[derive(Serialize)]
struct MonitorSums {
    cpu_ns: u64,
    elapsed_ns: u64,
    checks: u64,
    unseen_checks: u64,
    regions: u64,
    sample_us: u64,
    aggr_us: u64,
}

/// The kernel's names.
#[derive(Serialize)]
struct SchemeSums {
    nr_tried: u64,
    sz_tried: u64,
    nr_applied: u64,
    sz_applied: u64,
    sz_ops_filter_passed: u64,
    qt_exceeds: u64,
    nr_snapshots: u64,
}

impl Sums {
    fn of(watch: &ProcessMonitor, pid: u64, birth: u64) -> Sums {
        let kdamond = watch.kdamond();
        let attributes = kdamond.monitor().attributes();
        let scheme = |scheme: &Scheme| {
            let s = scheme.statistics();
            SchemeSums {
                nr_tried: s.nr_tried,
                sz_tried: s.sz_tried,
                nr_applied: s.nr_applied,
                sz_applied: s.sz_applied,
                sz_ops_filter_passed: s.sz_ops_filter_passed,
                qt_exceeds: s.qt_exceeds,
                nr_snapshots: s.nr_snapshots,
            }
        };
        Sums {
            pid,
            birth,
            monitor: MonitorSums {
                cpu_ns: watch.cpu_ns(),
                elapsed_ns: watch.elapsed_ns(),
                checks: kdamond.monitor().counters().checks,
                unseen_checks: watch.unseen_checks(),
                regions: kdamond.monitor().nr_regions() as u64,
                sample_us: attributes.sample_interval,
                aggr_us: attributes.aggr_interval,
            },
            schemes: kdamond.schemes().iter().map(scheme).collect(),
        }
    }
}

fn write_line(out: Option<i32>, line: &impl Serialize) {
    if let Some(out) = out
        && let Ok(mut text) = serde_json::to_vec(line)
    {
        text.push(b'\n');
        sys::write(out, &text);
    }
}

/// Blocks every signal while `work` runs.
pub(crate) fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let (all, mut before) = (u64::MAX, 0u64);
    // SAFETY: sets this thread's mask and puts it back.
    unsafe {
        let (new, old) = (&raw const all as usize, &raw mut before as usize);
        let error = sys::call(SYS_rt_sigprocmask, [SIG_SETMASK, new, old, SET_BYTES, 0, 0]);
        report::needs("signals cannot be blocked", error);
        let result = work();
        let error = sys::call(SYS_rt_sigprocmask, [SIG_SETMASK, &raw const before as usize, 0, SET_BYTES, 0, 0]);
        report::needs("signals cannot be opened", error);
        result
    }
}

/// Bytes of the stack of the agent's own thread, and of those that it does not use.
const OWN_STACK: usize = 256 << 10;
const ABOVE: usize = 64;

/// Starts [`run`] in a thread that the program does not know of.
///
/// # Errors
/// The kernel's number.
fn start_own_thread() -> Result<(), isize> {
    let stack = area::take(OWN_STACK);
    if stack == 0 {
        return Err(ENOMEM);
    }
    const FLAGS: u64 = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    let top = stack + OWN_STACK - ABOVE;
    // SAFETY: a thread on a stack of its own, with every signal blocked.
    let thread = without_signals(|| unsafe { crate::frame::refault_clone(SYS_clone, FLAGS as usize, top, 0, 0, 0, 0) });
    if thread < 0 {
        // SAFETY: no thread runs on it.
        unsafe { area::give_back(stack, OWN_STACK) };
        return Err(thread);
    }
    Ok(())
}
