//! A program and its children under one budget: memory is taken where the kernel is asked for it.
//!
//! The command makes the segment in which the processes of the tree count what they use, and finds a directory for the
//! file. It starts the program as its child and waits for it. As it outlives all of them it can say at the end what
//! happened, however they ended.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use refault_console::{Failure, say};
use refault_paging::Shared;
use refault_paging::tree::is_elsewhere;

use super::Children;
use super::advice::curve::Curve;
use super::advice::thrash::{Seen, Thrash};
use super::child::{Child, End, News};
use super::control::{self, Control};
use super::escaped::{Watcher, bury_elsewhere};
use super::seat::{Bell, Seat};
use super::statistics::Statistics;
use super::summary::Summary;
use super::sums::Sums;
use super::telling::Telling;
use super::totals::{self, Totals};
use super::watch::{self, Watch};
use super::what_if::WhatIf;
use crate::inherited::Inherited;
use crate::launch::{Launch, MonitorOptions};

/// Looks at the tree.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Looks for processes that were killed.
const BURY_EVERY: Duration = Duration::from_secs(1);

/// A program that is about to run under a budget.
pub struct Tree<'a> {
    /// The program and its arguments.
    pub program: &'a [OsString],
    /// Bytes that it and its children may use.
    pub memory: u64,
    /// Compressed pages and the agent's own memory do not count.
    pub resident_only: bool,
    /// The policy.
    pub policy: &'a str,
    /// `--store`.
    pub store: Option<&'a str>,
    /// Whose the budget is.
    pub children: Children,
    /// `--stats`, and how often.
    pub stats: Option<&'a Path>,
    /// Milliseconds between two lines of them.
    pub stats_interval: u64,
    /// `--what-if`.
    pub what_if: bool,
    /// `--curve`: milliseconds between two looks.
    pub curve: Option<u64>,
    /// `--memory-control`.
    pub control: Option<&'a Path>,
    /// `--grow`, in bytes.
    pub grow: Option<u64>,
    /// The place in a pool, which decides about the budget.
    pub seat: Cell<Option<Seat>>,
    /// `--watch`, and there is a terminal.
    pub watch: bool,
    /// `--summary`.
    pub summary: Option<&'a Path>,
    /// `--quiet`.
    pub quiet: bool,
    /// Why the pager keeps the budget; empty where that needs no words.
    pub reason: String,
    /// `--scheme` and `--set`, and the share of one processor that the monitor may use.
    pub monitor: Option<(&'a MonitorOptions, f64)>,
}

impl Tree<'_> {
    /// Runs the program; ends as it ended.
    ///
    /// # Errors
    /// It could not be started, or its exit code.
    pub fn run(&self) -> Result<(), Failure> {
        let telling = Telling::begin(self.program, self.summary, self.stats, self.control, self.quiet)?;
        let (child, end, summary) = self.attend()?;
        telling.end(&summary)?;
        child.end_as(end.status)
    }

    /// Starts the program and sees to it until its end.
    fn attend(&self) -> Result<(Child, End, Summary), Failure> {
        let (mut launch, shared) = self.prepare()?;
        // Emptied only now: statistics of an earlier run are kept where this one cannot begin.
        if let Some(stats) = self.stats {
            std::fs::File::create(stats).map_err(|error| Failure::write(stats.display(), &error))?;
        }
        let name = Path::new(&self.program[0]).display().to_string();
        let failed = |error| Failure::failed("cannot execute", &name, error);
        let followed = if self.watch { Some(watch::Statistics::new(self.stats)?) } else { None };
        let lines = followed.as_ref().map(watch::Statistics::path).or(self.stats);
        let mut seat = self.seat.take();
        if let Some(seat) = &mut seat {
            seat.observe(&mut launch, self.policy)?;
        }
        let what_if = (self.what_if && lines.is_some()).then(|| WhatIf::of(&mut launch, self.memory)).transpose()?;
        let curve = self.curve.map(|interval| Curve::of(&mut launch, interval)).transpose()?;
        let sums = if self.monitor.is_some() && lines.is_some() { Some(Sums::of(&mut launch)?) } else { None };
        let mut aside = Aside {
            shared,
            statistics: lines
                .map(|path| {
                    Statistics::append_to(path, shared, Duration::from_millis(self.stats_interval), sums, what_if)
                })
                .transpose()?,
            control: self.control.map(Control::new),
            thrash: if seat.is_some() { Thrash::new(None).in_pool() } else { Thrash::new(self.grow) },
            says_nothing: self.quiet || self.watch,
            seat,
            watch: followed.as_ref().map(|statistics| Watch::new(&name, statistics)).transpose()?,
            curve,
            largest_budget: shared.limit_bytes(),
            buried: Instant::now(),
        };
        aside.count_itself();
        shared.collects.store(u32::from(aside.statistics.is_some()), Ordering::Relaxed);
        let mut command = launch.command();
        if let Some(watch) = &aside.watch {
            watch.hold(&mut command).map_err(failed)?;
        }
        let begun = Instant::now();
        let child = Child::spawn(command).map_err(failed)?;
        if self.children == Children::Shared {
            let bell = aside.seat.as_ref().map(Seat::bell).transpose().map_err(failed)?;
            super::ask::begin(shared, move || bell.iter().for_each(Bell::ring));
        }
        let watcher = Watcher::begin(child.id(), shared);
        let end = loop {
            let heard = aside.seat.as_ref().map_or_else(Vec::new, Seat::descriptors);
            match child.attend_with(Some(aside.tick()), &heard).map_err(failed)? {
                News::Ended(end) => break end,
                News::Stopped => {
                    if let Some(watch) = &mut aside.watch {
                        watch.close();
                    }
                    child.stop_along();
                }
                News::Runs => aside.look(false),
            }
        };
        let ran = begun.elapsed();
        let escaped = watcher.seen(shared);
        let largest_budget_bytes = aside.largest_budget;
        let (totals, curve) = aside.end();
        let summary = Summary::of(self.program, &end, ran, shared, totals, escaped);
        let summary = Summary { backend_reason: self.reason.clone(), curve, largest_budget_bytes, ..summary };
        Ok((child, end, summary))
    }

    fn prepare(&self) -> Result<(Launch, &'static Shared), Failure> {
        let mut launch = Launch::new(self.program, self.memory)?;
        let file = directory(self.store)?.map(PathBuf::into_os_string);
        // For `refault top`, which looks at the environment of processes.
        let stats = self.stats.map(|stats| std::path::absolute(stats).unwrap_or_else(|_| stats.to_owned()));
        let settings = launch.settings();
        settings.policy = self.policy.to_owned();
        (settings.file, settings.stats) = (file, stats.map(PathBuf::into_os_string));
        (settings.own, settings.resident_only) = (self.children == Children::Own, self.resident_only);
        if let Some((options, most_cpu)) = self.monitor {
            launch.monitor(options, self.policy, most_cpu)?;
        }
        let most = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if most.is_some_and(|most| most < Shared::BYTES as u64) {
            let remedy = format!("the processes share one of {} KiB: ulimit -f unlimited", Shared::BYTES >> 10);
            return Err(Failure::usage("too little", "the limit on file sizes (ulimit -f)", remedy));
        }
        let no_segment = |error| Failure::failed("cannot make", "the segment that counts the budget", error);
        let segment =
            Inherited::segment("refault-budget", Shared::BYTES as u64, self.memory / PAGE).map_err(no_segment)?;
        let shared =
            Shared::map(segment.number()).map_err(|number| no_segment(std::io::Error::from_raw_os_error(number)))?;
        shared.is_in_this_namespace();
        launch.share_segment(segment);
        Ok((launch, shared))
    }
}

/// What is done while the program runs.
struct Aside<'a> {
    shared: &'static Shared,
    statistics: Option<Statistics>,
    control: Option<Control<'a>>,
    thrash: Thrash,
    /// `--quiet`, or the terminal is drawn on.
    says_nothing: bool,
    seat: Option<Seat>,
    watch: Option<Watch<'a>>,
    curve: Option<Curve>,
    /// In bytes: grants and `--memory-control` change it.
    largest_budget: u64,
    /// When processes were last looked for that were killed.
    buried: Instant,
}

impl Aside<'_> {
    /// How long to sleep at most.
    fn tick(&self) -> Duration {
        let ticks = [
            self.statistics.as_ref().map(Statistics::tick),
            self.control.as_ref().map(|_| control::EVERY),
            self.seat.as_ref().map(Seat::tick),
            self.watch.as_ref().map(|_| watch::REDRAW),
        ];
        ticks.into_iter().flatten().min().unwrap_or(LOOK_EVERY)
    }

    /// This command's own memory is part of the budget.
    fn count_itself(&self) {
        self.shared.set_command(super::escaped::own_bytes() / PAGE);
    }

    /// Says that the budget is far too small, and raises it where that is allowed.
    fn look_for_thrashing(&mut self) {
        if !self.thrash.is_due() {
            return;
        }
        let counts = self.shared.statistics();
        let needed = self.shared.needed().counts();
        let seen = Seen { at: Instant::now(), waited_ns: counts.waited_again, refaults: counts.read_back, needed };
        let most = totals::most_bytes(self.shared);
        let Some(thrashing) = self.thrash.look(seen, self.shared.limit_bytes(), most) else { return };
        if let Some(budget) = thrashing.budget {
            self.shared.set_limit(budget);
        }
        if !self.says_nothing {
            say(&thrashing.line);
        }
        if let Some(statistics) = &mut self.statistics {
            statistics.thrashes(thrashing.line);
        }
    }

    /// Looks at the tree, for the last time at its end.
    fn look(&mut self, at_end: bool) {
        if self.buried.elapsed() >= BURY_EVERY {
            self.buried = Instant::now();
            self.count_itself();
            self.shared.bury(is_gone);
        }
        if let Some(control) = &mut self.control {
            control.look(self.shared);
        }
        if let Some(seat) = &mut self.seat {
            seat.look(self.shared);
        }
        self.look_for_thrashing();
        self.largest_budget = self.largest_budget.max(self.shared.limit_bytes());
        if let Some(curve) = &mut self.curve {
            curve.look(self.shared, super::escaped::own_bytes());
        }
        if let Some(statistics) = &mut self.statistics {
            statistics.begin_look();
            let is_due = at_end || statistics.is_due();
            for (slot, figures) in self.shared.living() {
                let (process, turn) = (slot.process.load(Ordering::Relaxed), slot.turn.load(Ordering::Relaxed));
                statistics.look(process, turn, figures);
                if is_due {
                    statistics.write(process, turn, figures, false);
                }
            }
            if is_due {
                statistics.wrote();
            }
            self.shared.collect(|process, turn, figures| statistics.write(process, turn, figures, true));
        }
        if let Some(watch) = &mut self.watch {
            watch.look();
        }
    }

    /// The program has ended: what the run came to, and what it would have with less memory.
    fn end(mut self) -> (Totals, Vec<[u64; 2]>) {
        self.shared.bury(is_gone);
        bury_elsewhere(self.shared);
        self.look(true);
        if let Some(watch) = self.watch {
            watch.end();
        }
        // What the statistics say last is what is said elsewhere, to the last digit.
        let written = self.statistics.and_then(Statistics::into_totals);
        let curve = self.curve.map_or_else(Vec::new, |curve| curve.points());
        (written.unwrap_or_else(|| Totals::of(self.shared)), curve)
    }
}

/// Whether a process has ended, waited for or not. Of one elsewhere that is not known by its number.
fn is_gone(process: i32) -> bool {
    if is_elsewhere(process) {
        return false;
    }
    match std::fs::read_to_string(format!("/proc/{process}/stat")) {
        Ok(stat) => matches!(refault_linux::proc::stat_state(stat.as_bytes()), Some(b'Z' | b'X')),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

const PAGE: u64 = refault_linux::PAGE as u64;

/// Where the file may be: as `--store` says, or the first directory that is on a disk.
fn directory(store: Option<&str>) -> Result<Option<PathBuf>, Failure> {
    let wrong = |store: &str| {
        let remedy = "write pool (compressed memory alone) or file=DIR (compressed memory, then a file)";
        Failure::usage("not a store", store, remedy)
    };
    match store {
        None => {
            let places = [
                Some(PathBuf::from("/var/tmp")),
                std::env::var_os("HOME").map(PathBuf::from),
                std::env::current_dir().ok(),
            ];
            Ok(places.into_iter().flatten().find(|place| is_on_disk(place) && tempfile::tempfile_in(place).is_ok()))
        }
        Some("pool") => Ok(None),
        Some(store) => {
            let place = store.trim_start_matches("pool,").strip_prefix("file=").ok_or_else(|| wrong(store))?;
            if !Path::new(place).is_dir() {
                return Err(Failure::usage("not a directory", place, "--store file=DIR needs one"));
            }
            if let Err(error) = tempfile::tempfile_in(place) {
                let remedy = format!("{error}; --store file=DIR needs a directory in which files can be made");
                return Err(Failure::usage("cannot make a file", place, remedy));
            }
            if !is_on_disk(Path::new(place)) {
                return Err(Failure::usage(
                    "memory, not a disk",
                    place,
                    "--store file=DIR needs a directory on a disk",
                ));
            }
            std::path::absolute(place)
                .map(Some)
                .map_err(|error| Failure::failed("not a directory", OsStr::new(place).display(), error))
        }
    }
}

/// Whether files there take no memory.
fn is_on_disk(place: &Path) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    rustix::fs::statfs(place).is_ok_and(|system| ![TMPFS, RAMFS].contains(&system.f_type))
}
