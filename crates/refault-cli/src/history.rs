//! A statistics file from beginning to end: what a run and each of its processes used, waited for and did.
//!
//! Each process counts from its own start, and a process that executes another program begins again with a new start
//! under the same id; such a part is a *life* here. Counters of a run are the sums over its lives, peaks are those of
//! the largest. Cost: linear in the file; one small record per line is kept.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::run::advice::Advice;
use crate::run::totals::Totals;
use refault_console::Failure;
use refault_core::statistics;

/// One line: what the pictures need of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Seconds since the process's agent started.
    pub seconds: f64,
    /// Managed bytes that were resident.
    pub resident_bytes: u64,
    /// Bytes that might be resident.
    pub budget_bytes: u64,
    /// Bytes of contents that were not resident.
    pub stored_bytes: u64,
    /// Bytes that the compressed pool took.
    pub compressed_bytes: u64,
    /// Faults so far.
    pub faults: u64,
    /// Pages that came back so far.
    pub refaults: u64,
    /// Pages stored so far.
    pub stored: u64,
    /// Seconds that threads waited for pages so far.
    pub waited_seconds: f64,
    /// Pages that came back, per second, in the last ten seconds.
    pub refaults_per_second: f64,
    /// The budget that would have stopped refaults at that moment.
    pub advice_bytes: Option<u64>,
}

/// A process from the start of its agent to the program's end or to the next program it executes.
#[derive(Debug)]
pub struct Life {
    /// Its process id.
    pub pid: u64,
    /// Its lines, in the order of time.
    pub moments: Vec<Moment>,
    /// Its last line as it was written.
    pub last: Value,
}

impl Life {
    /// Whether the backend counted how long threads waited.
    pub fn counts_waiting(&self) -> bool {
        !self.last[statistics::WAITED.name].is_null() || !self.last["pressure"].is_null()
    }

    /// The most that was resident in any line, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        self.moments.iter().map(|moment| moment.resident_bytes).max().unwrap_or(0)
    }

    /// Its last line.
    pub fn end(&self) -> Moment {
        self.moments.last().copied().unwrap_or_default()
    }

    /// The most that any line advised, in bytes.
    pub fn advice_bytes(&self) -> Option<u64> {
        self.moments.iter().filter_map(|moment| moment.advice_bytes).max()
    }
}

/// A whole statistics file.
#[derive(Debug, Default)]
pub struct History {
    /// Processes, in the order of their first lines.
    pub lives: Vec<Life>,
    /// What the last line says of the whole run, if it does.
    run: Option<Totals>,
}

impl History {
    /// The largest budget, or grant, that a line names, in bytes.
    pub fn largest_budget(&self) -> u64 {
        let moments = self.lives.iter().flat_map(|life| &life.moments);
        moments.map(|moment| moment.budget_bytes).max().unwrap_or(0)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or a line in it is not of statistics. Lines that were written in part are left out: the disk
    /// was full, or, of a last line, its writer died.
    pub fn read(path: &Path) -> Result<History, Failure> {
        let unreadable = |error: std::io::Error| {
            Failure::usage("cannot read", path.display(), format!("{error}; name the file of refault run --stats"))
        };
        let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
        let (mut history, mut line, mut number) = (History::default(), Vec::new(), 0u64);
        loop {
            line.clear();
            number += 1;
            if file.read_until(b'\n', &mut line).map_err(unreadable)? == 0 || line.last() != Some(&b'\n') {
                return Ok(history);
            }
            match read_line(&line) {
                Line::Whole(value) => history.add(value),
                Line::Torn => {}
                Line::Other => return Err(no_statistics(path, number)),
            }
        }
    }

    fn add(&mut self, value: Value) {
        self.run = totals(&value).or(self.run);
        let (pid, moment) = (value["pid"].as_u64().unwrap_or(0), moment(&value));
        // A process that executes another program starts its clock again.
        let same = |life: &&mut Life| life.pid == pid;
        match self.lives.iter_mut().rev().find(same).filter(|life| life.end().seconds <= moment.seconds) {
            Some(life) => {
                life.moments.push(moment);
                life.last = value;
            }
            None => self.lives.push(Life { pid, moments: vec![moment], last: value }),
        }
    }

    /// The life with the highest peak.
    pub fn largest(&self) -> Option<&Life> {
        self.lives.iter().max_by_key(|life| life.peak_bytes())
    }

    /// What the run came to, as its own last line says; of statistics that do not say, sums, and the most that was resident
    /// of the largest process in any line. Nothing if no line was written.
    pub fn totals(&self) -> Option<Totals> {
        let largest = self.largest()?;
        let sum = || {
            let mut totals = Totals {
                budget_bytes: largest.end().budget_bytes,
                peak_bytes: largest.peak_bytes(),
                would_stop_refaulting_at_bytes: largest.advice_bytes(),
                ..Totals::default()
            };
            if totals.would_stop_refaulting_at_bytes.is_some() {
                totals.advice = Advice::More;
            }
            for end in self.lives.iter().map(Life::end) {
                totals.faults += end.faults;
                totals.refaults += end.refaults;
                totals.stored += end.stored;
                totals.waited_seconds += end.waited_seconds;
            }
            totals
        };
        Some(self.run.unwrap_or_else(sum))
    }
}

/// What a line says of the whole run that it is of; nothing in statistics of other things than runs.
pub fn totals(line: &Value) -> Option<Totals> {
    Totals::deserialize(line.get("run")?).ok()
}

/// What a line of a file is.
pub enum Line {
    /// One of statistics.
    Whole(Value),
    /// A part of one, as a disk leaves it that was full.
    Torn,
    /// Something else.
    Other,
}

/// What a line is. Of one that was written in part, and in which another writer's follows, it is the latter.
pub fn read_line(line: &[u8]) -> Line {
    let parse = |text: &[u8]| serde_json::from_slice::<Value>(text).ok().filter(|line| line["resident_bytes"].is_u64());
    if let Some(value) = parse(line) {
        return Line::Whole(value);
    }
    let is_object = serde_json::from_slice::<Value>(line).is_ok();
    if is_object || !line.starts_with(b"{\"") {
        return if line == b"\n" { Line::Torn } else { Line::Other };
    }
    let begins = line.windows(2).enumerate().skip(1).filter(|(_, two)| *two == b"{\"");
    begins.map(|(at, _)| &line[at..]).find_map(parse).map_or(Line::Torn, Line::Whole)
}

/// Why a file is not read.
pub fn no_statistics(path: &Path, line: u64) -> Failure {
    let place = format!("{}: line {line}", path.display());
    Failure::usage("cannot read", place, "it is not a file of statistics; name that of refault run --stats")
}

/// Pages that came back from a store.
///
/// Runs say so. Of regions the policy's refaults are taken, where it counts them: `pswpin` holds first touches that were
/// brought in ahead too.
fn refaults(line: &Value) -> u64 {
    let count = |statistic: &str| line[statistic].as_u64();
    let by_policy = ["workingset_refault_anon", "workingset_refault_file"].map(|key| count(key).unwrap_or(0));
    let of_region = || Some(by_policy.iter().sum()).filter(|refaults| *refaults > 0).or(count("pswpin"));
    count(statistics::REFAULTS.name).or_else(of_region).unwrap_or(0)
}

fn moment(line: &Value) -> Moment {
    let count = |key: &str| line[key].as_u64().unwrap_or(0);
    let waited_again = || line["pressure"]["some"]["total_us"].as_u64().unwrap_or(0) as f64 / 1e6;
    Moment {
        seconds: line["seconds"].as_f64().unwrap_or(0.0),
        resident_bytes: count("resident_bytes"),
        budget_bytes: count("budget_bytes"),
        stored_bytes: count("stored_bytes"),
        compressed_bytes: count("compressed_bytes"),
        faults: count("faults"),
        refaults: refaults(line),
        stored: count("pswpout"),
        waited_seconds: line[statistics::WAITED.name].as_f64().unwrap_or_else(waited_again),
        refaults_per_second: line[statistics::REFAULTS_PER_SECOND.name].as_f64().unwrap_or(0.0),
        advice_bytes: line[statistics::ADVICE_BYTES.name].as_u64(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_came_back_is_what_the_run_says_under_every_policy() {
        let back = |line: Value| moment(&line).refaults;
        // A policy without the kernel's counters, and one with them.
        let run = |by_policy: u64| json!({"refaults": 65_779, "workingset_refault_anon": by_policy, "pswpin": 65_779});
        assert_eq!(back(run(0)), 65_779);
        assert_eq!(back(run(81_873)), 65_779);
        let region = |by_policy: u64| json!({"workingset_refault_anon": by_policy, "pswpin": 9});
        assert_eq!((back(region(0)), back(region(7))), (9, 7));
    }

    #[test]
    fn the_totals_are_those_of_the_last_line() {
        let mut history = History::default();
        let with = |refaults: u64| {
            let mut line = line(1, refaults as f64, 10, 5);
            line["run"] = json!({"peak_bytes": 99, "refaults": refaults});
            line
        };
        [with(3), with(8)].into_iter().for_each(|line| history.add(line));
        let totals = history.totals().expect("lines");
        assert_eq!((totals.peak_bytes, totals.refaults, totals.faults), (99, 8, 0));
    }

    fn line(pid: u64, seconds: f64, resident: u64, back: u64) -> Value {
        json!({"pid": pid, "seconds": seconds, "resident_bytes": resident, "workingset_refault_anon": back, "faults": back + 1,
            "pressure": {"some": {"total_us": 500_000}}, "would_stop_refaulting_at_bytes": 7 + resident})
    }

    #[test]
    fn a_process_that_executes_another_program_begins_again() {
        let mut history = History::default();
        for value in [line(1, 1.0, 10, 5), line(2, 0.5, 70, 1), line(1, 2.0, 30, 9), line(1, 0.1, 20, 2)] {
            history.add(value);
        }
        let pids: Vec<u64> = history.lives.iter().map(|life| life.pid).collect();
        assert_eq!(pids, [1, 2, 1]);
        let totals = history.totals().expect("lines");
        assert_eq!((totals.peak_bytes, totals.refaults, totals.faults), (70, 9 + 1 + 2, 15));
        assert_eq!((totals.waited_seconds, totals.would_stop_refaulting_at_bytes), (1.5, Some(77)));
    }

    #[test]
    fn a_line_without_an_end_is_left_out_and_a_wrong_one_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("run.jsonl");
        std::fs::write(&path, format!("{}\n{{\"pid\":1,\"resid", line(1, 1.0, 10, 5))).expect("writes");
        assert_eq!(History::read(&path).expect("reads").lives.len(), 1);
        // The disk was full, and another process wrote when there was room again.
        let two = [line(1, 1.0, 10, 5), line(2, 1.0, 10, 5)];
        std::fs::write(&path, format!("{}\n{{\"pid\":1,\"resid{}\n\n{{\"p\n", two[0], two[1])).expect("writes");
        assert_eq!(History::read(&path).expect("reads").lives.len(), 2);
        std::fs::write(&path, format!("{}\nnonsense\n", line(1, 1.0, 10, 5))).expect("writes");
        let failure = History::read(&path).expect_err("a wrong line");
        assert!(failure.line().contains("run.jsonl: line 2"), "{}", failure.line());
    }
}
