//! `refault host --apply`: brings groups down to the limits that would do.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use refault_console::{Failure, Share, say};
use refault_host::apply::journal::Journal;
use refault_host::apply::park::Rule;
use refault_host::apply::{Control, Event, Parked, Step};
use refault_host::host::{Host, Report, Row};
use refault_lab::size::bytes_text;
use refault_pool::reclaim::swap::Swap;

use super::unseen;
use crate::wss::{interrupts, sleep};

/// Between two steps.
const STEP_EVERY: Duration = Duration::from_secs(1);
/// Between two lines of what was done.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// What is asked for.
pub(super) struct Wishes<'a> {
    /// The journal's file.
    pub journal: &'a PathBuf,
    /// The share of time that a group may wait.
    pub pressure: Share,
    /// Which idle groups are parked.
    pub park: Option<Rule>,
    /// Changes are made, not only told.
    pub yes: bool,
    /// It ends after this time.
    pub length: Option<Duration>,
}

/// Steps until an interrupt, and puts back what was changed.
pub(super) fn run(host: &mut Host, wishes: &Wishes<'_>) -> Result<(), Failure> {
    let failed = |what: &str, error: std::io::Error| Failure::failed(what, wishes.journal.display(), error);
    let journal = match wishes.yes {
        true => {
            let journal = Journal::open(wishes.journal).map_err(|error| failed("no journal", error))?;
            let left = journal.changes().len();
            if left > 0 {
                let count =
                    journal.put_back().map_err(|error| failed("cannot put back what was left changed", error))?;
                say(format_args!("put back {count} of {left} limits that an earlier run had left changed"));
                Some(Journal::open(wishes.journal).map_err(|error| failed("no journal", error))?)
            } else {
                Some(journal)
            }
        }
        false => {
            say("a dry run: nothing is changed; add --yes to change limits");
            let left = Journal::left(wishes.journal);
            if left > 0 {
                let limits = if left == 1 { "limit" } else { "limits" };
                say(format_args!("a run that was killed has left {left} {limits} changed: --yes puts them back first"));
            }
            None
        }
    };
    let mut control = Control::new(journal, wishes.pressure.0);
    if let Some(rule) = wishes.park {
        control = control.park(rule);
    }
    let (asked, begun) = (interrupts(), Instant::now());
    let (mut next, mut said) = (begun, begun);
    let mut first: HashMap<u64, u64> = HashMap::new();
    let mut limits: HashMap<String, Step> = HashMap::new();
    let (mut last, mut trouble) = (None, None);
    while wishes.length.is_none_or(|length| begun.elapsed() < length) {
        if !sleep(host.due().min(next).saturating_duration_since(Instant::now()), &asked) {
            break;
        }
        if host.due() <= Instant::now()
            && let Err(error) = host.step()
        {
            trouble = Some(unseen(&error));
            break;
        }
        if next > Instant::now() {
            continue;
        }
        next = Instant::now() + STEP_EVERY;
        let report = host.report();
        for row in &report.groups {
            first.entry(row.id).or_insert(row.figures.usage_bytes);
        }
        let events = match control.step(&ends(&report)) {
            Ok(events) => events,
            Err(error) => {
                trouble = Some(failed("cannot note changes", error));
                break;
            }
        };
        for event in events {
            match event {
                Event::Limit(step) => drop(limits.insert(step.path.clone(), step)),
                Event::Parked(parked) => {
                    limits.remove(&parked.path);
                    say(parked_text(&parked, wishes.yes));
                }
                Event::Woke(path) => say(format_args!("{path}: awake again; no limit is set for two windows")),
            }
        }
        if said.elapsed() >= SAY_EVERY {
            said = Instant::now();
            tell(&limits);
            limits.clear();
        }
        last = Some(report);
    }
    tell(&limits);
    let now = last.iter().flat_map(ends).map(|row| (row.id, row.figures.usage_bytes));
    let saved: u64 = now.map(|(id, usage)| first.get(&id).map_or(0, |first| first.saturating_sub(usage))).sum();
    let count = control.end().map_err(|error| failed("cannot put back", error))?;
    if wishes.yes {
        let limits = if count == 1 { "limit was" } else { "limits were" };
        say(format_args!("groups use {} less than at first; {count} {limits} put back", bytes_text(saved)));
    } else {
        say("nothing was changed");
    }
    trouble.map_or(Ok(()), Err)
}

/// The groups that have none below them, without the root.
fn ends(report: &Report) -> Vec<&Row> {
    let is_above = |row: &Row| {
        let below = format!("{}/", row.path);
        report.groups.iter().any(|other| other.path.starts_with(&below))
    };
    report.groups.iter().filter(|row| row.path != "/" && !is_above(row)).collect()
}

fn parked_text(parked: &Parked, yes: bool) -> String {
    let idle = humantime::format_duration(Duration::from_secs(parked.idle_seconds as u64));
    let mut text = format!("{}: idle for {idle}", parked.path);
    text += &match (parked.given_bytes, yes) {
        (0, _) => ", nothing can be parked".to_owned(),
        (bytes, true) => format!(", parked: {} given back", bytes_text(bytes)),
        (bytes, false) => format!(", would be parked: {} given back", bytes_text(bytes)),
    };
    if parked.stays_bytes > 0 {
        let swap = Swap::of_host().map_or_else(|error| error.to_string(), |swap| swap.words());
        let stays = bytes_text(parked.stays_bytes);
        text += &format!("; {stays} stay: locked, in use or without room in swap ({swap})");
    }
    text
}

fn tell(limits: &HashMap<String, Step>) {
    let mut all: Vec<&Step> = limits.values().collect();
    all.sort_by(|one, two| one.path.cmp(&two.path));
    for step in all {
        say(format_args!("{}: limit {}", step.path, bytes_text(step.to_bytes)));
    }
}
