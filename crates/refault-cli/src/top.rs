//! `refault top`: what a program under `refault run --stats FILE` is doing, live in the terminal.
//!
//! The command follows the statistics file, so it can be started and ended at any time and needs no rights over the program.
//! [`screen`] draws; this file reads.

mod screen;

use std::collections::{BTreeMap, VecDeque};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use serde_json::Value;

use crate::failure::Failure;

/// Refault rates kept for the curve.
const HISTORY: usize = 240;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault run --memory 512M --stats run.jsonl -- python3 analysis.py &
  refault top run.jsonl           follow it; q ends the view, not the program
  refault top 4711                the same by process id
  refault top --once run.jsonl    one picture as text

Generations are the policy's: age since they were made, size, oldest first. Pressure is the share of time in which
some (or all) threads waited for memory. The advice is the budget at which 99 of 100 of the last ten seconds' refaults
would not have happened.")]
/// Watch a program that runs under a budget
pub struct TopArgs {
    /// The statistics file, or the process id of a program that writes one
    #[arg(value_name = "FILE|PID")]
    source: String,
    /// Show this process; otherwise the one with the most resident memory
    #[arg(long, value_name = "PID")]
    pid: Option<u64>,
    /// Print the latest state once, as text
    #[arg(long)]
    once: bool,
    /// Columns of that text
    #[arg(long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u16).range(60..=400))]
    width: u16,
}

/// Runs the command.
pub fn run(args: &TopArgs) -> Result<(), Failure> {
    let path = file_of(&args.source)?;
    let mut follower = Follower::open(&path, args.pid)?;
    follower.read()?;
    if args.once || !std::io::stdout().is_terminal() {
        let Some(view) = follower.view() else {
            return Err(Failure::usage("no statistics yet", path.display(), "wait for its first line"));
        };
        print!("{}", screen::text(&view, args.width));
        return Ok(());
    }
    let mut terminal =
        ratatui::try_init().map_err(|error| Failure::failed("cannot use the terminal", "standard output", error))?;
    let result = follow(&mut terminal, &mut follower);
    ratatui::restore();
    result
}

fn follow(terminal: &mut ratatui::DefaultTerminal, follower: &mut Follower) -> Result<(), Failure> {
    let trouble = |error: std::io::Error| Failure::failed("cannot use the terminal", "standard output", error);
    loop {
        follower.read()?;
        let view = follower.view();
        terminal.draw(|frame| screen::draw(frame, view.as_ref())).map_err(trouble)?;
        let until = Instant::now() + Duration::from_millis(250);
        while event::poll(until.saturating_duration_since(Instant::now())).map_err(trouble)? {
            if let Event::Key(key) = event::read().map_err(trouble)? {
                let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return Ok(());
                }
            }
        }
    }
}

/// The statistics file that an argument means.
fn file_of(source: &str) -> Result<PathBuf, Failure> {
    let path = PathBuf::from(source);
    if path.exists() || source.parse::<u32>().is_err() {
        return Ok(path);
    }
    let place = format!("/proc/{source}/environ");
    let remedy = "give the statistics file, or a process that you may look at";
    let environment = std::fs::read(&place)
        .map_err(|error| Failure::usage("no such process", source, format!("{error}; {remedy}")))?;
    let settings = environment.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(b"REFAULT_AGENT="));
    let Some(settings) = settings else {
        return Err(Failure::usage("not run by refault", source, remedy));
    };
    let stats = settings.split(|byte| *byte == 0x1f).find_map(|pair| pair.strip_prefix(b"stats="));
    match stats {
        Some(stats) => Ok(PathBuf::from(String::from_utf8_lossy(stats).into_owned())),
        None => Err(Failure::usage("it writes no statistics", source, "start it with refault run --stats FILE")),
    }
}

/// The latest line of a process, and where it comes from.
pub struct View<'a> {
    /// The file.
    pub path: &'a Path,
    /// The line.
    pub line: &'a Value,
    /// Refaults a second in the lines before, oldest first.
    pub rates: Vec<u64>,
    /// Processes that write to the file.
    pub processes: usize,
}

struct Process {
    line: Value,
    rates: VecDeque<u64>,
}

/// Reads what is appended to a statistics file.
struct Follower {
    path: PathBuf,
    file: std::fs::File,
    pending: Vec<u8>,
    wanted: Option<u64>,
    processes: BTreeMap<u64, Process>,
}

impl Follower {
    fn open(path: &Path, wanted: Option<u64>) -> Result<Follower, Failure> {
        let file = std::fs::File::open(path).map_err(|error| {
            Failure::usage("cannot read", path.display(), format!("{error}; name the file of refault run --stats"))
        })?;
        Ok(Follower { path: path.to_owned(), file, pending: Vec::new(), wanted, processes: BTreeMap::new() })
    }

    fn read(&mut self) -> Result<(), Failure> {
        self.file
            .read_to_end(&mut self.pending)
            .map_err(|error| Failure::usage("cannot read", self.path.display(), error))?;
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            let parsed = serde_json::from_slice::<Value>(&line).ok().filter(|line| line["resident_bytes"].is_u64());
            let Some(line) = parsed else {
                let remedy = "it holds a line that is no statistics; name the file of refault run --stats";
                return Err(Failure::usage("cannot read", self.path.display(), remedy));
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

    fn view(&self) -> Option<View<'_>> {
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
            path: &self.path,
            line: &process.line,
            rates: process.rates.iter().copied().collect(),
            processes: self.processes.len(),
        })
    }
}
