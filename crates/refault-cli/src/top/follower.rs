//! Follows a statistics file: the latest line of each process that writes to it.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use refault_console::Failure;

/// Refault rates kept for the curve.
const HISTORY: usize = 240;

/// The latest line of a process, and where it comes from.
pub struct View<'a> {
    /// The command that shows it.
    pub command: &'static str,
    /// The file, or the program.
    pub source: &'a str,
    /// The line.
    pub line: &'a Value,
    /// Refaults a second in the lines before, oldest first.
    pub rates: Vec<u64>,
    /// Processes that write to the file.
    pub processes: usize,
    /// A line of the command's own; may be empty.
    pub note: String,
}

struct Process {
    line: Value,
    rates: VecDeque<u64>,
}

/// Reads what is appended to a statistics file.
pub struct Follower {
    path: PathBuf,
    source: String,
    file: std::fs::File,
    pending: Vec<u8>,
    /// Lines taken so far.
    lines: u64,
    wanted: Option<u64>,
    processes: BTreeMap<u64, Process>,
}

impl Follower {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(path: &Path, wanted: Option<u64>) -> Result<Follower, Failure> {
        let file = std::fs::File::open(path).map_err(|error| {
            Failure::usage("cannot read", path.display(), format!("{error}; name the file of refault run --stats"))
        })?;
        let source = path.display().to_string();
        Ok(Follower {
            path: path.to_owned(),
            source,
            file,
            pending: Vec::new(),
            lines: 0,
            wanted,
            processes: BTreeMap::new(),
        })
    }

    /// Takes in what was appended.
    ///
    /// # Errors
    /// It is no statistics.
    pub fn read(&mut self) -> Result<(), Failure> {
        self.file
            .read_to_end(&mut self.pending)
            .map_err(|error| Failure::usage("cannot read", self.path.display(), error))?;
        // Whole lines are taken where they lie, and what is left moves to the front once: linear in what was read.
        let whole = self.pending.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let pending = std::mem::take(&mut self.pending);
        self.pending.extend_from_slice(&pending[whole..]);
        for line in pending[..whole].split_inclusive(|byte| *byte == b'\n') {
            self.lines += 1;
            let parsed = serde_json::from_slice::<Value>(line).ok().filter(|line| line["resident_bytes"].is_u64());
            let Some(line) = parsed else {
                let place = format!("{}: line {}", self.path.display(), self.lines);
                let remedy = "it is no statistics; name the file of refault run --stats";
                return Err(Failure::usage("cannot read", place, remedy));
            };
            let pid = line["pid"].as_u64().unwrap_or(0);
            let process =
                self.processes.entry(pid).or_insert_with(|| Process { line: Value::Null, rates: VecDeque::new() });
            if process.rates.len() == HISTORY {
                process.rates.pop_front();
            }
            process.rates.push_back(line["refaults_per_second"].as_f64().unwrap_or(0.0).round() as u64);
            process.line = line;
        }
        Ok(())
    }

    /// The wanted process, or else the running one with the most resident memory.
    pub fn view(&self) -> Option<View<'_>> {
        let live = |process: &&Process| process.line["last"] != Value::Bool(true);
        let size = |process: &&Process| process.line["resident_bytes"].as_u64();
        let process = match self.wanted {
            Some(pid) => self.processes.get(&pid),
            None => {
                let running = self.processes.values().filter(live).max_by_key(size);
                running.or_else(|| self.processes.values().max_by_key(size))
            }
        }?;
        Some(View {
            command: "refault top",
            source: &self.source,
            line: &process.line,
            rates: process.rates.iter().copied().collect(),
            processes: self.processes.len(),
            note: String::new(),
        })
    }
}
