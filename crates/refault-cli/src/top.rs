//! `refault top`: what a program under `refault run --stats FILE`, or a page cache, is doing, live in the terminal.
//!
//! The command follows the statistics file, so it can be started and ended at any time and needs no rights over the
//! program. [`log_tail`] reads, [`screen`] draws, of page caches [`cache`]; `refault run --watch` does the same from
//! inside. Of a pool the daemon is asked, and [`members`] draws.

mod cache;
mod log_tail;
mod members;
pub mod screen;
mod what_if;

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{ArgGroup, Args};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use refault_paging::settings::{AgentSettings, VARIABLE};

use crate::launched;
use crate::pool::{place, status::status};
pub use log_tail::{LogTail, View};
use refault_console::{Failure, with_output};

/// How the view is left.
const LEAVE: &str = "q ends this view, not the program";
/// Between two pictures.
const REDRAW: Duration = Duration::from_millis(250);
/// Between two questions to a pool's daemon.
const ASK_EVERY: Duration = Duration::from_secs(1);

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault run --memory 512M --stats run.jsonl -- python3 analysis.py &
  refault top run.jsonl           follow it; q ends the view, not the program
  refault top $!                  the same by process id
  refault top --once run.jsonl    one picture as text; of a run that has ended, its memory when it was fullest
  REFAULT_CACHE_STATS=cache.jsonl server & refault top cache.jsonl
                                  a page cache of a program that uses refault's
  refault top --pool web          the members of a pool, those that use most first

Generations are the policy's: age since they were made, size, oldest first. Pressure is the share of time in which
some (or all) threads waited for memory. The advice is the budget at which 99 of 100 of the last ten seconds' refaults
would not have happened.")]
/// Watch a program that runs under a budget, or the members of a pool
#[command(group(ArgGroup::new("watched").required(true).args(["source", "pool"])))]
pub struct TopArgs {
    /// The statistics file, or the process id of a program that writes one
    #[arg(value_name = "FILE|PID", conflicts_with = "pool")]
    source: Option<String>,
    /// Show the members of this pool instead
    #[arg(long, value_name = "NAME", conflicts_with = "pid")]
    pool: Option<String>,
    /// Show this process; otherwise the one with the most resident memory
    #[arg(long, value_name = "PID")]
    pid: Option<u64>,
    /// Print the latest state once, as text
    #[arg(long)]
    once: bool,
    /// Columns of that text
    #[arg(long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u16).range(40..=400))]
    width: u16,
}

/// Runs the command.
pub fn run(args: &TopArgs) -> Result<(), Failure> {
    if let Some(name) = &args.pool {
        return watch_pool(name, args);
    }
    let path = file_of(args.source.as_deref().expect("invariant: required unless a pool is named"))?;
    let mut tail = LogTail::open(&path, args.pid)?;
    tail.read()?;
    if args.once || !std::io::stdout().is_terminal() {
        let Some(view) = tail.view() else {
            return Err(Failure::usage("no statistics yet", path.display(), "wait for its first line"));
        };
        return with_output(None, |out| out.write_all(screen::text(&view, args.width).as_bytes()));
    }
    in_terminal(|frame| {
        tail.read()?;
        let note = LEAVE.to_owned();
        let view = tail.view().map(|view| View { note, ..view });
        screen::draw(frame, view.as_ref());
        Ok(())
    })
}

fn watch_pool(name: &str, args: &TopArgs) -> Result<(), Failure> {
    let place = place(name)?;
    let first = status(&place)?;
    if args.once || !std::io::stdout().is_terminal() {
        return with_output(None, |out| out.write_all(members::text(&first, args.width).as_bytes()));
    }
    let mut last = (Instant::now(), first, "");
    in_terminal(|frame| {
        if last.0.elapsed() >= ASK_EVERY {
            // While the daemon is away its last answer stands, and is said to be old.
            last = match status(&place) {
                Ok(status) => (Instant::now(), status, ""),
                Err(_) => (Instant::now(), last.1.clone(), "; the daemon does not answer"),
            };
        }
        members::draw(frame, &last.1, &format!("{LEAVE}{}", last.2));
        Ok(())
    })
}

/// Draws again and again until the view is left.
fn in_terminal(mut draw: impl FnMut(&mut ratatui::Frame<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut terminal =
        ratatui::try_init().map_err(|error| Failure::failed("cannot use the terminal", "standard output", error))?;
    let result = draw_until_left(&mut terminal, &mut draw);
    ratatui::restore();
    result
}

fn draw_until_left(
    terminal: &mut ratatui::DefaultTerminal,
    draw: &mut impl FnMut(&mut ratatui::Frame<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let trouble = |error: std::io::Error| Failure::failed("cannot use the terminal", "standard output", error);
    loop {
        let mut drawn = Ok(());
        terminal.draw(|frame| drawn = draw(frame)).map_err(trouble)?;
        drawn?;
        let until = Instant::now() + REDRAW;
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
    let environment = std::fs::read(&place).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::usage("no such process", source, remedy),
        _ => Failure::usage("cannot look at process", source, format!("{error}; {remedy}")),
    })?;
    let value = |name: &[u8]| environment.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(name));
    let settings = value(VARIABLE.as_bytes()).and_then(|value| value.strip_prefix(b"="));
    let of_cache = || value(b"REFAULT_CACHE_STATS=").filter(|file| !file.is_empty());
    let stats = settings.and_then(AgentSettings::stats_of);
    match stats.or_else(|| of_cache().map(|file| OsStr::from_bytes(file).to_owned())) {
        Some(stats) => Ok(as_seen_by(source, Path::new(&stats))),
        None if settings.is_some() => {
            Err(Failure::usage("it writes no statistics", source, "start it with refault run --stats FILE"))
        }
        None => {
            let program = source.parse().ok().and_then(launched::program_of);
            let of_program = program.map(|program| file_of(&program.to_string()));
            // A program whose budget the kernel keeps knows nothing of it.
            let none = || Err(Failure::usage("not run by refault", source, remedy));
            match (of_program, stats_of_command(source)) {
                (Some(Ok(stats)), _) => Ok(stats),
                (_, Some(stats)) => Ok(as_seen_by(source, &stats)),
                (of_program, None) => of_program.unwrap_or_else(none),
            }
        }
    }
}

/// The statistics file that a process was told to write by its command line, if it is a `refault run`.
fn stats_of_command(process: &str) -> Option<PathBuf> {
    let text = std::fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let own = text.split(|byte| *byte == 0).map(OsStr::from_bytes).take_while(|word| *word != "--");
    let words: Vec<&OsStr> = own.skip(1).collect();
    let is_run = words.first().is_some_and(|word| *word == "run");
    let joined = words.iter().find_map(|word| word.as_bytes().strip_prefix(b"--stats=")).map(OsStr::from_bytes);
    let apart = || words.iter().position(|word| *word == "--stats").and_then(|at| words.get(at + 1).copied());
    joined.or_else(apart).filter(|_| is_run).map(PathBuf::from)
}

/// A path that a process was given: what it has open under this name, or else what is there from where it is now.
fn as_seen_by(process: &str, path: &Path) -> PathBuf {
    if path.is_absolute() {
        return path.to_owned();
    }
    let named = path.strip_prefix(".").unwrap_or(path);
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let is_it = |target: &PathBuf| target.ends_with(named) && target.is_file();
    if let Some(target) = open.filter_map(|link| std::fs::read_link(link.path()).ok()).find(is_it) {
        return target;
    }
    std::fs::read_link(format!("/proc/{process}/cwd")).map_or(path.to_owned(), |directory| directory.join(path))
}
