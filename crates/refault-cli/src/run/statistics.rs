//! `--stats FILE`: the counters of each process of the tree as JSON lines, read from the segment that they share.
//!
//! Each process has a line at each interval and a last one when it has ended, however it ended. Names are the core's
//! where the core has one. What only several lines together can say is kept here: the rate of refaults, the pressure,
//! the advice. Cost: nothing in the program but what it counts anyway; here some microseconds per line.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use refault_console::{Failure, say};
use refault_core::Counters;
use refault_core::pressure::{self, PressureAverages};
use refault_core::statistics::{self as names, Statistic};
use refault_paging::figures::Published;
use refault_paging::{PAGE, Shared};
use serde_json::{Map, Value, json};

use super::advice::{Recent, Window};
use super::sums::Sums;
use super::totals::Totals;
use super::what_if::WhatIf;

/// Looks per second at who waits.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The file, and what the lines before said.
pub(super) struct Statistics {
    file: File,
    shared: &'static Shared,
    begun: Instant,
    interval: Duration,
    written: Instant,
    /// A line could not be written, which has been said.
    incomplete: bool,
    histories: BTreeMap<i32, History>,
    /// Of the whole tree, as the last line that was written says; none in a look that has written none yet.
    totals: Option<Totals>,
    is_current: bool,
    recent: Recent,
    lately: Totals,
    /// What monitors came to.
    sums: Option<Sums>,
    /// What other policies and sizes would miss.
    what_if: Option<WhatIf>,
    /// That the budget is far too small, in words.
    thrashing: Option<String>,
}

/// What the lines of a process before say.
struct History {
    /// The turn of its slot: another process may have its number.
    turn: u32,
    pressure: Pressure,
    refaults: Window<u64>,
}

/// Shares of time in which some, or all, threads waited for pages that had been there.
struct Pressure {
    looks: u64,
    full_looks: u64,
    /// Nanoseconds: some, full.
    totals: [u64; 2],
    folded: [u64; 2],
    folded_at: Instant,
    averages: [PressureAverages; 2],
}

impl Statistics {
    /// Appends to a file that exists.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn append_to(
        path: &Path,
        shared: &'static Shared,
        interval: Duration,
        sums: Option<Sums>,
        what_if: Option<WhatIf>,
    ) -> Result<Statistics, Failure> {
        let file = File::options().append(true).open(path).map_err(|error| Failure::write(path.display(), &error))?;
        let now = Instant::now();
        Ok(Statistics {
            file,
            shared,
            begun: now,
            interval,
            written: now,
            incomplete: false,
            histories: BTreeMap::new(),
            totals: None,
            is_current: false,
            recent: Recent::default(),
            lately: Totals::default(),
            sums,
            what_if,
            thrashing: None,
        })
    }

    /// Whether lines are due.
    pub(super) fn is_due(&self) -> bool {
        self.written.elapsed() >= self.interval
    }

    /// How long to sleep before the next look.
    pub(super) fn tick(&self) -> Duration {
        LOOK_EVERY.min(self.interval)
    }

    /// Each line from now on says that the budget is far too small.
    pub(super) fn thrashes(&mut self, line: String) {
        self.thrashing = Some(line);
    }

    /// A look at the tree begins: takes up what agents have said of accesses.
    pub(super) fn begin_look(&mut self) {
        self.is_current = false;
        if let Some(what_if) = &mut self.what_if {
            what_if.look();
        }
    }

    /// Looks at whether a process waits.
    pub(super) fn look(&mut self, process: i32, turn: u32, figures: &Published) {
        if figures.is_stalled() {
            let full = !others_run(process);
            let pressure = &mut self.history(process, turn).pressure;
            pressure.looks += 1;
            pressure.full_looks += u64::from(full);
        }
    }

    fn history(&mut self, process: i32, turn: u32) -> &mut History {
        let fresh = || History { turn, pressure: Pressure::new(), refaults: Window::default() };
        let history = self.histories.entry(process).or_insert_with(fresh);
        if history.turn != turn {
            *history = fresh();
        }
        history
    }

    /// The lines of this interval are written.
    pub(super) fn wrote(&mut self) {
        self.written = Instant::now();
    }

    /// What the last line said of the whole tree; none if no line was written.
    pub(super) fn into_totals(self) -> Option<Totals> {
        self.totals
    }

    /// The totals of this look, found out once.
    fn look_at_totals(&mut self) {
        if !std::mem::replace(&mut self.is_current, true) {
            let totals = Totals::of(self.shared);
            self.lately = self.recent.look(&totals, self.shared.needed().counts());
            self.totals = Some(totals);
        }
    }

    /// Writes the line of a process. A full disk is no reason to end the program, and is said once.
    pub(super) fn write(&mut self, process: i32, turn: u32, figures: &Published, last: bool) {
        self.look_at_totals();
        let seconds = (self.begun.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
        let interval_ms = self.interval.as_millis() as u64;
        let mut line = Map::new();
        line.insert("pid".to_owned(), process.into());
        insert(&mut line, names::SECONDS, seconds);
        line.insert("last".to_owned(), last.into());
        insert(&mut line, names::BUDGET, self.shared.limit_bytes());
        append_figures(&mut line, figures);
        line.insert("interval_ms".to_owned(), interval_ms.into());
        self.history(process, turn).append(&mut line, figures);
        insert(&mut line, names::FOLLOWED_REFAULTS, self.lately.followed_refaults);
        insert(&mut line, names::ADVICE_BYTES, self.lately.would_stop_refaulting_at_bytes);
        line.insert(names::ADVICE.name.to_owned(), json!(self.lately.advice));
        line.insert("run".to_owned(), json!(self.totals));
        if let Some(thrashing) = &self.thrashing {
            line.insert(names::THRASHING.name.to_owned(), thrashing.clone().into());
        }
        if let Some(latest) = self.sums.as_mut().and_then(|sums| sums.latest(process)) {
            for key in ["monitor", "schemes"] {
                line.insert(key.to_owned(), latest[key].clone());
            }
        }
        if let Some(what_if) = &mut self.what_if {
            // A process that has ended has said its last.
            what_if.look();
            what_if.append(&mut line);
        }
        if last {
            self.histories.remove(&process);
        }
        let mut text = Value::Object(line).to_string();
        text.push('\n');
        if let Err(error) = self.file.write_all(text.as_bytes())
            && !std::mem::replace(&mut self.incomplete, true)
        {
            say(format_args!("the statistics are incomplete: {error}"));
        }
    }
}

fn insert(line: &mut Map<String, Value>, statistic: Statistic, value: impl Into<Value>) {
    line.insert(statistic.name.to_owned(), value.into());
}

fn append_figures(line: &mut Map<String, Value>, figures: &Published) {
    let (counts, usage) = (figures.statistics.load(), figures.usage.load());
    let page = PAGE as u64;
    let values = [
        (names::RESIDENT, (usage.resident_pages + usage.parked_pages) * page),
        (names::PARKED, usage.parked_pages * page),
        (names::COMPRESSED, usage.pool_bytes),
        (names::STORED_BYTES, (usage.same_filled_pages + usage.pool_pages + usage.file_pages) * page),
        (names::SAME_FILLED_PAGES, usage.same_filled_pages),
        (names::POOL_PAGES, usage.pool_pages),
        (names::FILE_PAGES, usage.file_pages),
        (names::FILE_BYTES, usage.file_pages * page),
        (names::METADATA, usage.own_bytes),
        (names::MANAGED_PAGES, usage.managed_bytes / page),
        (names::FIRST_TOUCHES, counts.first_touches),
        (names::RESCUED, counts.rescued),
        (names::STORED, counts.stored),
        (names::REFAULTS, counts.read_back),
        (names::PREFETCHED, counts.prefetched),
        (names::UNMOVABLE, counts.unmovable),
        (names::LOST, counts.lost),
        (names::FAULTS, counts.faults),
        (names::FAULT_P50, figures.times.quantile(0.5)),
        (names::FAULT_P99, figures.times.quantile(0.99)),
        (names::FAULT_MAX, figures.times.most()),
    ];
    values.into_iter().for_each(|(statistic, value)| insert(line, statistic, value));
    insert(line, names::WAITED, counts.waited as f64 / 1e9);
    line.insert("page_bytes".to_owned(), page.into());
    let mut counters = figures.counters();
    let mut add = |name: &str, value: u64| {
        if let Some(index) = Counters::NAMES.iter().position(|known| *known == name) {
            counters[index] += value;
        }
    };
    add("pgmajfault", counts.read_back - counts.prefetched.min(counts.read_back));
    add("pswpin", counts.read_back);
    add("pswpout", counts.stored);
    line.extend(Counters::NAMES.iter().zip(counters).map(|(name, value)| ((*name).to_owned(), value.into())));
    line.insert("access_source".to_owned(), "parking".into());
    let now = refault_linux::sys::now();
    let generations = figures.generations().map(
        |[seq, birth, pages]| json!({"seq": seq, "age_ms": now.saturating_sub(birth) / 1_000_000, "pages": pages}),
    );
    line.insert("generations".to_owned(), generations.collect::<Vec<_>>().into());
    line.insert("leader".to_owned(), figures.leader().map(|way| way.name()).into());
}

impl History {
    /// What depends on the lines before: pressure, rate of refaults.
    fn append(&mut self, line: &mut Map<String, Value>, figures: &Published) {
        let counts = figures.statistics.load();
        self.pressure.update(counts.waited_again, Instant::now());
        line.insert("pressure".to_owned(), self.pressure.json());
        let began = self.refaults.look(counts.read_back);
        let rate = began.map_or(0.0, |(seconds, before)| counts.read_back.saturating_sub(before) as f64 / seconds);
        insert(line, names::REFAULTS_PER_SECOND, (rate * 10.0).round() / 10.0);
    }
}

impl Pressure {
    fn new() -> Pressure {
        Pressure {
            looks: 0,
            full_looks: 0,
            totals: [0; 2],
            folded: [0; 2],
            folded_at: Instant::now(),
            averages: [PressureAverages::default(); 2],
        }
    }

    /// Takes the process's clock over, and folds the averages when it is time.
    fn update(&mut self, some: u64, now: Instant) {
        let added = some.saturating_sub(self.totals[0]);
        self.totals[0] = some;
        self.totals[1] += (added * self.full_looks).checked_div(self.looks).unwrap_or(0);
        if added > 0 {
            (self.looks, self.full_looks) = (0, 0);
        }
        let period = now.saturating_duration_since(self.folded_at).as_nanos() as u64;
        if period < pressure::PERIOD {
            return;
        }
        self.folded_at = now;
        for kind in 0..2 {
            self.averages[kind].fold(self.totals[kind] - self.folded[kind], period);
            self.folded[kind] = self.totals[kind];
        }
    }

    fn json(&self) -> Value {
        let line = |kind: usize| {
            let [ten, sixty, most] = self.averages[kind].percent().map(|percent| (percent * 100.0).round() / 100.0);
            json!({"avg10": ten, "avg60": sixty, "avg300": most, "total_us": self.totals[kind] / 1000})
        };
        json!({"some": line(0), "full": line(1)})
    }
}

/// Whether a thread of a process runs, besides the one that brings a page in.
fn others_run(process: i32) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return false };
    let runs = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let (_, rest) = stat.rsplit_once(") ")?;
        Some(rest.starts_with('R'))
    };
    tasks.flatten().filter_map(runs).filter(|runs| *runs).count() > 1
}
