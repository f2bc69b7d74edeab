//! Follows a statistics file: the latest line of each process that writes to it.
//!
//! A process that has ended has given its memory back, so its last line says nothing of the run. What is shown of it is
//! its memory when it was fullest, with the counters of its last line. A page cache whose process was killed has no last
//! line: it is *silent*, and those that still write are shown before it. A page cache empties its file when that has
//! become large; the file is read from its beginning then.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::history::{Line, no_statistics, read_line, totals};
use crate::run::totals::Totals;
use refault_console::Failure;

/// Refault rates kept for the curve.
const HISTORY: usize = 240;

/// What a line says of memory at its moment, as against what it counts from the start.
const OF_THE_MOMENT: [&str; 15] = [
    "resident_bytes",
    "memory_bytes",
    "compressed_bytes",
    "stored_bytes",
    "same_filled_pages",
    "pool_pages",
    "file_pages",
    "file_bytes",
    "cached_bytes",
    "compressed_pages",
    "dirty_bytes",
    "metadata_bytes",
    "managed_pages",
    "generations",
    "leader",
];

/// The latest line of a process, and where it comes from.
pub struct View<'a> {
    /// The command that shows it.
    pub command: &'static str,
    /// The file, or the program.
    pub source: &'a str,
    /// The line; of a process that has ended, with its memory when it was fullest.
    pub line: Cow<'a, Value>,
    /// Refaults per second in the lines before, oldest first.
    pub rates: Vec<u64>,
    /// Which way of choosing victims led in how many of the lines, by name; empty where the policy has but one.
    pub leaders: Vec<(&'a str, u64)>,
    /// What the whole run has come to, if the lines say so.
    pub totals: Option<Totals>,
    /// Processes, or page caches, that write to the file.
    pub processes: usize,
    /// A line of the command's own; may be empty.
    pub note: String,
}

/// In the line of a process that has ended: true if its memory was seen at its end alone, because it ended before the
/// first line that is written regularly. It was fuller before; how full is not known.
pub const SEEN_AT_THE_END: &str = "seen_at_the_end";

/// In the line of a page cache that has not written for longer than it should: for how many seconds.
pub const SILENT_SECONDS: &str = "silent_seconds";
/// It writes each second.
const SILENT_AFTER: Duration = Duration::from_secs(4);

#[derive(Default)]
struct Process {
    line: Value,
    /// The line with the most contents, resident and stored.
    fullest: Value,
    rates: VecDeque<u64>,
    /// Lines by the way of choosing that led.
    leaders: BTreeMap<String, u64>,
}

impl Process {
    fn has_ended(&self) -> bool {
        self.line["last"] == Value::Bool(true)
    }

    fn take(&mut self, line: Value) {
        if self.rates.len() == HISTORY {
            self.rates.pop_front();
        }
        let rate = line["refaults_per_second"].as_f64().or_else(|| line["misses_per_second"].as_f64());
        self.rates.push_back(rate.unwrap_or(0.0).round() as u64);
        if contents(&line) >= contents(&self.fullest) {
            self.fullest = line.clone();
        }
        if let Some(leader) = line["leader"].as_str() {
            *self.leaders.entry(leader.to_owned()).or_default() += 1;
        }
        self.line = line;
    }

    /// How long it has not written for, if that is longer than it should be. Lines of programs do not say when they
    /// were written.
    fn silent(&self) -> Option<Duration> {
        let written = Duration::from_millis(self.line["unix_ms"].as_u64()?);
        let silent = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.saturating_sub(written);
        (silent > SILENT_AFTER && !self.has_ended()).then_some(silent)
    }

    fn shown(&self) -> Cow<'_, Value> {
        if let Some(silent) = self.silent() {
            let mut line = self.line.clone();
            line[SILENT_SECONDS] = silent.as_secs().into();
            return Cow::Owned(line);
        }
        if !self.has_ended() {
            return Cow::Borrowed(&self.line);
        }
        let mut line = self.line.clone();
        for key in OF_THE_MOMENT {
            line[key] = self.fullest[key].clone();
        }
        line[SEEN_AT_THE_END] = self.fullest["last"].clone();
        Cow::Owned(line)
    }
}

fn contents(line: &Value) -> u64 {
    line["resident_bytes"].as_u64().unwrap_or(0) + line["stored_bytes"].as_u64().unwrap_or(0)
}

/// Reads what is appended to a statistics file.
pub struct LogTail {
    path: PathBuf,
    source: String,
    file: std::fs::File,
    pending: Vec<u8>,
    /// Lines taken so far.
    lines: u64,
    wanted: Option<u64>,
    totals: Option<Totals>,
    /// By process id, and number of the page cache where the lines are a cache's.
    processes: BTreeMap<(u64, u64), Process>,
}

impl LogTail {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(path: &Path, wanted: Option<u64>) -> Result<LogTail, Failure> {
        let file = std::fs::File::open(path).map_err(|error| {
            Failure::usage("cannot read", path.display(), format!("{error}; name the file of refault run --stats"))
        })?;
        let source = path.display().to_string();
        Ok(LogTail {
            path: path.to_owned(),
            source,
            file,
            pending: Vec::new(),
            lines: 0,
            wanted,
            totals: None,
            processes: BTreeMap::new(),
        })
    }

    /// Takes in what was appended.
    ///
    /// # Errors
    /// It is no statistics.
    pub fn read(&mut self) -> Result<(), Failure> {
        let unreadable = |error| Failure::usage("cannot read", self.path.display(), error);
        let file = &mut self.file;
        let length = file.metadata().map_err(unreadable)?;
        if length.is_file() && file.stream_position().is_ok_and(|read| read > length.len()) {
            file.rewind().map_err(unreadable)?;
            (self.lines, self.pending) = (0, Vec::new());
        }
        file.read_to_end(&mut self.pending).map_err(unreadable)?;
        // Whole lines are taken where they lie, and what is left moves to the front once: linear in what was read.
        let whole = self.pending.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let pending = std::mem::take(&mut self.pending);
        self.pending.extend_from_slice(&pending[whole..]);
        for line in pending[..whole].split_inclusive(|byte| *byte == b'\n') {
            self.lines += 1;
            let line = match read_line(line) {
                Line::Whole(line) => line,
                Line::Torn => continue,
                Line::Other => return Err(no_statistics(&self.path, self.lines)),
            };
            self.totals = totals(&line).or(self.totals);
            let number = |key: &str| line[key].as_u64().unwrap_or(0);
            self.processes.entry((number("pid"), number("cache"))).or_default().take(line);
        }
        Ok(())
    }

    /// The wanted process, or else the running one with the most resident memory.
    pub fn view(&self) -> Option<View<'_>> {
        let open = |process: &&Process| !process.has_ended();
        let live = |process: &&Process| open(process) && process.silent().is_none();
        let size = |process: &&Process| {
            let line = if process.has_ended() { &process.fullest } else { &process.line };
            line["resident_bytes"].as_u64()
        };
        let wanted = || {
            let these = self.processes.iter().filter(|((pid, _), _)| self.wanted.is_none_or(|wanted| wanted == *pid));
            these.map(|(_, process)| process)
        };
        let largest_open = || wanted().filter(open).max_by_key(size);
        let largest_live = wanted().filter(live).max_by_key(size);
        let process = largest_live.or_else(largest_open).or_else(|| wanted().max_by_key(size))?;
        Some(View {
            command: "refault top",
            source: &self.source,
            line: process.shown(),
            rates: process.rates.iter().copied().collect(),
            leaders: process.leaders.iter().map(|(way, lines)| (way.as_str(), *lines)).collect(),
            totals: self.totals,
            processes: self.processes.len(),
            note: String::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_ended_run_is_shown_as_it_was_when_it_was_fullest() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("run.jsonl");
        let line = |resident: u64, stored: u64, faults: u64, last: bool| {
            json!({"pid": 1, "resident_bytes": resident, "stored_bytes": stored, "generations": [resident],
                "memory_bytes": 100 - faults,
                "leader": if stored > 0 { "recency" } else { "frequency" },
                "faults": faults, "run": {"refaults": faults}, "last": last})
        };
        let lines = [line(50, 0, 1, false), line(60, 40, 2, false), line(60, 10, 3, false), line(2, 0, 4, true)];
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, text).expect("writes");
        let mut tail = LogTail::open(&path, None).expect("opens");
        tail.read().expect("reads");
        let view = tail.view().expect("a process");
        assert_eq!((&view.line["resident_bytes"], &view.line["stored_bytes"]), (&json!(60), &json!(40)));
        assert_eq!((&view.line["faults"], &view.line["generations"]), (&json!(4), &json!([60])));
        assert_eq!(view.line["memory_bytes"], 98, "the room for contents shrinks: it is that of the fullest line");
        assert_eq!(view.leaders, [("frequency", 2), ("recency", 2)]);
        assert_eq!(view.line[SEEN_AT_THE_END], false);
        assert_eq!(view.line["leader"], "recency", "of the fullest line");
        assert_eq!(view.totals.map(|totals| totals.refaults), Some(4));
        std::fs::write(&path, format!("{}\n", line(2, 0, 4, true))).expect("writes");
        let mut tail = LogTail::open(&path, None).expect("opens");
        tail.read().expect("reads");
        assert_eq!(tail.view().expect("a process").line[SEEN_AT_THE_END], true);
    }

    #[test]
    fn who_was_killed_is_silent_lines_in_part_are_left_out_and_an_emptied_file_is_read_anew() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("cache.jsonl");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
        let line = |pid: u64, resident: u64, ago: u64| {
            format!(
                "{}\n",
                json!({"pid": pid, "cache": 0, "resident_bytes": resident, "unix_ms": now - ago * 1000, "last": false})
            )
        };
        let text = line(1, 900, 60) + "{\"pid\":1,\"cache\"" + &line(2, 10, 0) + "{\"pid\":\n";
        std::fs::write(&path, text).expect("writes");
        let mut tail = LogTail::open(&path, None).expect("opens");
        tail.read().expect("reads");
        let view = tail.view().expect("a cache");
        assert_eq!((&view.line["pid"], &view.line[SILENT_SECONDS]), (&json!(2), &Value::Null));
        // One writer has emptied the file.
        std::fs::write(&path, line(2, 11, 0)).expect("writes");
        tail.read().expect("reads");
        assert_eq!(tail.view().expect("a cache").line["resident_bytes"], 11);
        let mut killed = LogTail::open(&path, Some(1)).expect("opens");
        std::fs::write(&path, line(1, 900, 60)).expect("writes");
        killed.read().expect("reads");
        let silent = killed.view().expect("a cache").line[SILENT_SECONDS].as_u64();
        assert!(silent >= Some(60), "{silent:?}");
    }
}
