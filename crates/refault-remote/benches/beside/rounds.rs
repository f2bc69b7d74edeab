//! All sides do all work, in turn.

use std::path::PathBuf;
use std::time::Duration;

use crate::common::contents;
use crate::sides::{Failure, Figures, Place, Side};
use crate::table::Row;
use crate::work::{Size, Work};

/// What is measured.
#[derive(Clone, Debug)]
pub struct Settings {
    pub size: Size,
    /// Bytes of memory of each side that takes a limit.
    pub memory: u64,
    /// How long the server waits before each answer.
    pub latency: Duration,
    /// Bytes per second of a connection at most; 0: as many as there can be.
    pub pace: u64,
    /// Bytes of a request of this crate at most.
    pub request: u64,
    pub runs: u32,
    /// The work whose names begin so alone.
    pub only: Option<String>,
    /// One with fsspec and aiohttp.
    pub python: Option<PathBuf>,
}

/// The work's name when a new process does it again.
pub const AGAIN: &str = "the random reads after a restart";

/// What came of it, with a line of settings and versions. `tell` hears what is done.
pub fn run(settings: &Settings, tell: impl Fn(&str)) -> Result<(String, Vec<Row>), Failure> {
    let home = tempfile::tempdir()?;
    let object = contents(settings.size.object as usize, 1);
    let mut place = Place::new(object, home.path(), settings.python.clone())?;
    place.options.request = settings.request;
    let served = &place.server.served;
    served.latency.store(settings.latency.as_millis() as u64, std::sync::atomic::Ordering::Relaxed);
    served.pace.store(settings.pace, std::sync::atomic::Ordering::Relaxed);
    let sides = Side::all(settings.memory, settings.python.is_some());
    let mut all = Work::all(settings.size);
    all.retain(|work| settings.only.as_ref().is_none_or(|only| work.name.starts_with(only)));
    // By work, by side; then those that come again.
    let mut runs: Vec<Vec<(Vec<Figures>, Vec<Figures>)>> =
        all.iter().map(|_| vec![Default::default(); sides.len()]).collect();
    for round in 1..=settings.runs {
        for (work, runs) in all.iter().zip(&mut runs) {
            for (side, (first, again)) in sides.iter().zip(runs) {
                if !side.does(work) {
                    continue;
                }
                let kept = tempfile::tempdir_in(home.path())?;
                first.push(place.run(side, work, kept.path())?);
                tell(&format!("run {round}, {}, {}: {:.2} s", work.name, side.name(), first[first.len() - 1].seconds));
                if side.keeps() {
                    again.push(place.run(side, work, kept.path())?);
                }
            }
        }
    }
    let mut rows = Vec::new();
    for (work, runs) in all.iter().zip(runs) {
        let (all_bytes, different) = work.bytes();
        let mib = |bytes: u64| bytes as f64 / 1e6;
        let named = format!(
            "{}: {} reads, {:.1} MB, {:.1} MB different",
            work.name,
            work.steps.iter().map(Vec::len).sum::<usize>(),
            mib(all_bytes),
            mib(different)
        );
        let mut later = Vec::new();
        for (side, (first, again)) in sides.iter().zip(runs) {
            if !first.is_empty() {
                rows.push(Row { work: named.clone(), side: side.name(), runs: Ok(first) });
            }
            if work.comes_again && side.does(work) {
                let runs = if side.keeps() { Ok(again) } else { Err("starts anew, as above") };
                later.push(Row { work: AGAIN.into(), side: side.name(), runs });
            }
        }
        // Those that take part come first.
        later.sort_by_key(|row| row.runs.is_err());
        rows.extend(later);
    }
    let versions = if settings.python.is_some() { place.versions()? } else { "fsspec was not asked".into() };
    let text = format!(
        "{} MiB, {} MiB of memory, {} ms before each answer, {} MB/s for each connection, runs in turn: {}. refault {}, object_store {}, {versions}.",
        settings.size.object >> 20,
        settings.memory >> 20,
        settings.latency.as_millis(),
        settings.pace / 1_000_000,
        settings.runs,
        env!("CARGO_PKG_VERSION"),
        object_store_version()
    );
    Ok((text, rows))
}

/// As the workspace's lock file has it.
fn object_store_version() -> String {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap_or_default();
    let version = lock
        .split_once("name = \"object_store\"\nversion = \"")
        .and_then(|(_, rest)| Some(rest.split_once('"')?.0.to_owned()));
    version.unwrap_or_else(|| "of an unknown version".into())
}
