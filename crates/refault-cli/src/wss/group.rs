//! The working set of a control group: by the kernel's generations, or by the accessed bits of its processes.

use std::path::Path;
use std::time::Duration;

use refault_console::{Failure, say};
use refault_pool::reclaim::cgroup::Cgroup;
use refault_pool::reclaim::generations::Generations;
use refault_pool::wss;

use super::write::{Subject, length_text};
use super::{Measured, interrupts, sleep, so_far};

/// Who knows what a group accesses.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The kernel's generations (lru_gen)
    Generations,
    /// Accessed bits of the group's own processes
    Processes,
}

/// Measures windows of these lengths, which ascend.
pub(super) fn measure(
    path: &Path,
    source: Option<Source>,
    ages: &[Duration],
) -> Result<(Subject, Vec<Measured>), Failure> {
    let group = Cgroup::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::usage(
            "no memory cgroup",
            path.display(),
            "name a directory with memory.reclaim or memory.limit_in_bytes",
        ),
        _ => Failure::failed("may not look at", path.display(), format!("{error}; be root, or its owner")),
    })?;
    let generations = if source == Some(Source::Processes) { None } else { Some(Generations::open(path)) };
    let generations = match (generations, source) {
        (Some(Err(error)), Some(_)) => {
            let remedy = format!("{error}; or use --source processes");
            return Err(Failure::failed("no generations of", path.display(), remedy));
        }
        (Some(Err(error)), None) => {
            say(format_args!("no generations of {}: {error}", path.display()));
            None
        }
        (Some(Ok(generations)), _) => Some(generations),
        (None, _) => None,
    };
    let unseen = |error: std::io::Error| {
        Failure::failed("cannot look at", path.display(), format!("{error}; be root, and name a group with processes"))
    };
    let words = generations.as_ref().map_or(wss::SOURCE.to_owned(), Generations::words);
    let lists = generations.as_ref().map_or(Ok(Vec::new()), Generations::lists).map_err(unseen)?;
    let takes =
        length_text(if generations.is_some() { ages.iter().sum() } else { ages.last().copied().unwrap_or_default() });
    say(format_args!("accesses: {words}; it takes {takes}; Ctrl-C ends it with what is known"));
    let (asked, mut windows) = (interrupts(), Vec::new());
    let wait = |left| sleep(left, &asked);
    let seen = |window| {
        say(so_far(&window));
        windows.push(Measured::of(window));
    };
    let measured = match &generations {
        Some(generations) => wss::by_generation(generations, || group.swapped_bytes(), ages, wait, seen),
        None => wss::measure_all(|| group.processes().unwrap_or_default(), ages, wait, seen),
    };
    match measured {
        Err(error) if windows.is_empty() => return Err(unseen(error)),
        Err(_) => say(format_args!("{} is gone: what follows is known of it", path.display())),
        Ok(()) if windows.len() < ages.len() => say("interrupted: longer windows are left out"),
        Ok(()) => {}
    }
    if windows.is_empty() {
        return Err(Failure::Exit(1));
    }
    Ok((Subject::Group { path: path.display().to_string(), source: words, lists }, windows))
}
