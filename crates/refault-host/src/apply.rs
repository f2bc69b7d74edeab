//! Brings groups down to the limits that would do, step by step, and takes that back when they suffer.
//!
//! In version 2 a step lowers `memory.high`, which makes the kernel reclaim and kills nothing. In version 1 a limit kills, so
//! the soft limit is lowered, and what is above it is reclaimed as `refault reclaim` does it. How large a step is, the
//! controller of proactive reclaim says ([`refault_pool::pressure`]), which begins anew more carefully after a group has
//! suffered: waited for memory, or brought back more than [`MAX_REFAULTS`] pages per second. A group of version 1 tells no
//! waiting unless its processes are in one of version 2 as well; then steps rest while the host waits. If asked to, groups that are idle are
//! left out of that and are parked: reclaimed to a share at once ([`park`]).
//!
//! Invariants: no limit goes below what a group accessed in the last two windows, and what is charged to it anyway; none goes
//! above what it was. What a limit was stands in the [`journal`] before it is changed, and is put back at the end,
//! or by the next start.

pub mod journal;
pub mod park;

use std::collections::HashMap;
use std::fs;
use std::io;

use refault_pool::pressure::{Controller, Stalls};
use refault_pool::reclaim::cgroup::Cgroup;

use self::journal::{Change, Journal};
use self::park::{Decision, Parking, Rule, Seen};
use crate::host::Row;

/// Pages per second that come back from which on a group suffers.
pub const MAX_REFAULTS: f64 = 256.0;
/// The same while something of the host waits: in version 1 a group has no pressure of its own, and others may wait.
const MAX_REFAULTS_BESIDE: f64 = 16.0;
/// What a group that suffers gets back of what is charged to it.
const BACK: f64 = 0.1;
/// A share of the target at which steps are next to nothing.
const JUST_BELOW: f64 = 0.999_999_999;
const PAGE: u64 = 4096;
const HIGH: &str = "memory.high";
const SOFT: &str = "memory.soft_limit_in_bytes";
const MAX: &str = "memory.limit_in_bytes";

/// A limit that was changed, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The group's path.
    pub path: String,
    /// The limit before, or what was charged if there was none.
    pub from_bytes: u64,
    /// The limit now.
    pub to_bytes: u64,
}

/// An idle group that was reclaimed to a share, or would be.
#[derive(Clone, Debug, PartialEq)]
pub struct Parked {
    /// The group's path.
    pub path: String,
    /// For how long it was idle.
    pub idle_seconds: f64,
    /// By how much its charge fell; in a dry run what would be asked for. 0 if nothing can go.
    pub given_bytes: u64,
    /// What is charged above the share and was not asked for: it is locked or accessed, or swap has no room.
    pub stays_bytes: u64,
}

/// What was done to a group, or would be.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Its limit was changed.
    Limit(Step),
    /// It was parked.
    Parked(Parked),
    /// The parked group of this path has woken: it has no limit of ours.
    Woke(String),
}

/// What is known of a group whose limit is set.
#[derive(Debug)]
struct Held {
    controller: Controller,
    limit_bytes: u64,
    /// In version 1, of the group of version 2 that its processes are in.
    stalls: Option<Stalls>,
    /// What its last two windows ask for: seconds of the newer one, and bytes of both.
    window_seconds: f64,
    floors: [u64; 2],
    parking: Parking,
}

/// Sets limits.
#[derive(Debug)]
pub struct Control {
    journal: Option<Journal>,
    pressure: f64,
    rule: Option<Rule>,
    host: Option<Stalls>,
    held: HashMap<u64, Held>,
}

impl Control {
    /// Lets a group wait for memory for this share of time. Without a journal nothing is changed.
    pub fn new(journal: Option<Journal>, pressure: f64) -> Control {
        Control { journal, pressure, rule: None, host: Stalls::of_host().ok(), held: HashMap::new() }
    }

    /// Parks idle groups by this rule.
    pub fn park(self, rule: Rule) -> Control {
        Control { rule: Some(rule), ..self }
    }

    /// Takes a step for each of these groups, which have none below them.
    ///
    /// # Errors
    /// The journal cannot be written. Groups that are gone are left out, and so are those of other users.
    pub fn step(&mut self, rows: &[&Row]) -> io::Result<Vec<Event>> {
        let of_host = self.host.as_mut().and_then(|stalls| stalls.share().ok()).unwrap_or(0.0);
        let ids: std::collections::HashSet<u64> = rows.iter().map(|row| row.id).collect();
        self.held.retain(|id, _| ids.contains(id));
        let mut events = Vec::new();
        for row in rows {
            let Some(proposal) = row.proposal else { continue };
            let usage = row.figures.usage_bytes;
            let held = self.held.entry(row.id).or_insert_with(|| Held {
                controller: Controller::new(self.pressure),
                limit_bytes: usage,
                stalls: None,
                window_seconds: 0.0,
                floors: [0; 2],
                parking: Parking::default(),
            });
            let is_new_window = held.see(proposal.window_seconds, proposal.high_bytes);
            let refaults = row.refaults_per_second.unwrap_or(0.0);
            let own = row.pressure.or_else(|| held.own_pressure(row));
            if let Some(rule) = &self.rule {
                // The host's pressure does not say which group waits.
                let wants_more = refaults >= MAX_REFAULTS || own.is_some_and(|share| share >= self.pressure);
                let floor = held.floors[0].max(held.floors[1]);
                let seen = Seen::of(row, proposal.window_seconds, is_new_window, floor, wants_more);
                let decision = held.parking.decide(rule, &seen);
                if decision != Decision::Step {
                    match held.follow(decision, self.journal.as_mut(), row) {
                        Ok(event) => events.extend(event),
                        Err(error) if self.journal.as_ref().is_some_and(Journal::has_failed) => return Err(error),
                        Err(_) => {}
                    }
                    continue;
                }
            }
            let pressure = pressure_of(own, of_host, refaults, self.pressure);
            let to_bytes = held.next(usage, pressure);
            let from_bytes = held.limit_bytes;
            if to_bytes == from_bytes {
                continue;
            }
            if let Some(journal) = &mut self.journal {
                match set(journal, row, to_bytes) {
                    Ok(()) => {}
                    Err(error) if journal.has_failed() => return Err(error),
                    Err(_) => continue,
                }
            }
            held.limit_bytes = to_bytes;
            events.push(Event::Limit(Step { path: row.path.clone(), from_bytes, to_bytes }));
        }
        Ok(events)
    }

    /// Puts back what was changed; answers how many limits.
    ///
    /// # Errors
    /// A limit cannot be put back; it stays in the journal.
    pub fn end(self) -> io::Result<usize> {
        self.journal.map_or(Ok(0), Journal::put_back)
    }
}

impl Held {
    /// The share of time since the last step in which something of a group of version 1 waited; none if its processes are in no group
    /// of version 2, which tells it.
    fn own_pressure(&mut self, row: &Row) -> Option<f64> {
        if let Some(Ok(share)) = self.stalls.as_mut().map(Stalls::share) {
            return Some(share);
        }
        let processes = fs::read_to_string(row.directory.join("cgroup.procs")).ok()?;
        let stalls = Stalls::of_process(processes.lines().next()?.parse().ok()?).ok()?;
        self.stalls = (!stalls.path().starts_with("/proc")).then_some(stalls);
        self.stalls.as_ref().map(|_| 0.0)
    }

    /// What a window asks for. The same window is seen at many steps; answers whether this is the first.
    fn see(&mut self, window_seconds: f64, bytes: u64) -> bool {
        let is_new = (self.window_seconds - window_seconds).abs() > f64::EPSILON;
        if is_new {
            (self.window_seconds, self.floors) = (window_seconds, [bytes, self.floors[0]]);
        }
        // What is charged anyway changes within a window.
        self.floors[0] = self.floors[0].max(bytes);
        is_new
    }

    /// Does what was decided; without a journal nothing is changed.
    fn follow(&mut self, decision: Decision, journal: Option<&mut Journal>, row: &Row) -> io::Result<Option<Event>> {
        let usage = row.figures.usage_bytes;
        let event = match decision {
            Decision::Step | Decision::Leave => None,
            Decision::Wake => {
                self.controller = Controller::new(self.controller.target());
                journal.map_or(Ok(()), |journal| journal.lift(&row.directory, row.id))?;
                Some(Event::Woke(row.path.clone()))
            }
            Decision::Park { bytes, stays_bytes } => {
                let is_dry = journal.is_none();
                let given = journal.map_or(Ok(bytes), |journal| take(journal, row, bytes))?;
                self.parking.parked(usage, if is_dry { usage } else { usage.saturating_sub(given) });
                let idle_seconds = self.parking.idle_seconds();
                Some(Event::Parked(Parked { path: row.path.clone(), idle_seconds, given_bytes: given, stays_bytes }))
            }
        };
        if self.parking.is_lifted() {
            self.limit_bytes = usage;
        }
        Ok(event)
    }

    /// The limit after this step.
    fn next(&mut self, usage: u64, pressure: f64) -> u64 {
        let floor = self.floors[0].max(self.floors[1]);
        let less = self.controller.step(usage, pressure);
        if pressure >= self.controller.target() {
            let back = (usage as f64 * BACK) as u64;
            return self.limit_bytes.max(usage.saturating_add(back));
        }
        if usage <= floor || less < PAGE {
            return self.limit_bytes.max(floor);
        }
        self.limit_bytes.min(usage).saturating_sub(less).max(floor)
    }
}

/// The share of time that a group waits, as far as it shows: at least the target if it suffers. Where it has none of its own, the
/// host's holds up its steps, and it suffers only if it brings back pages too.
fn pressure_of(own: Option<f64>, of_host: f64, refaults: f64, target: f64) -> f64 {
    let most = if own.is_none() && of_host >= target { MAX_REFAULTS_BESIDE } else { MAX_REFAULTS };
    let pressure = own.unwrap_or(of_host.min(target * JUST_BELOW));
    if refaults >= most { pressure.max(target) } else { pressure }
}

/// Sets the limit of a group, which is in the journal before.
fn set(journal: &mut Journal, row: &Row, bytes: u64) -> io::Result<()> {
    let (file, is_first) = if row.cgroup_version == 1 { (SOFT, true) } else { (HIGH, false) };
    let path = row.directory.join(file);
    let before = journal.note(change(row, file))?;
    // Never above what it was.
    let most = journal::limit(&before).unwrap_or(u64::MAX);
    let text = if bytes >= most { before } else { bytes.to_string() };
    fs::write(path, text)?;
    journal.has_changed(&change(row, file));
    if is_first && row.figures.usage_bytes > bytes {
        reclaim(journal, row, row.figures.usage_bytes - bytes)?;
    }
    Ok(())
}

/// Takes memory of a group that is parked, and the limit that steps had set off it; answers by how much its charge fell.
fn take(journal: &mut Journal, row: &Row, bytes: u64) -> io::Result<u64> {
    let given = if bytes == 0 { 0 } else { reclaim(journal, row, bytes)? };
    journal.lift(&row.directory, row.id)?;
    Ok(given)
}

/// Version 1 reclaims by its limit, which is in the journal before.
fn reclaim(journal: &mut Journal, row: &Row, bytes: u64) -> io::Result<u64> {
    if row.cgroup_version == 1 {
        journal.note(change(row, MAX))?;
    }
    let given = Cgroup::open(&row.directory)?.reclaim(bytes);
    journal.has_changed(&change(row, MAX));
    given
}

fn change(row: &Row, file: &str) -> Change {
    Change { directory: row.directory.clone(), id: row.id, file: file.to_owned(), before: String::new(), left: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn held(limit: u64, floor: u64) -> Held {
        Held {
            controller: Controller::new(0.01),
            limit_bytes: limit,
            stalls: None,
            window_seconds: 1.0,
            floors: [floor, 0],
            parking: Parking::default(),
        }
    }

    #[test]
    fn steps_end_at_what_the_last_two_windows_asked_for() {
        let mut group = held(1000 * MIB, 600 * MIB);
        group.see(2.0, 300 * MIB);
        let mut usage = 1000 * MIB;
        for _ in 0..200 {
            group.limit_bytes = group.next(usage, 0.0);
            usage = usage.min(group.limit_bytes);
            assert!(group.limit_bytes >= 600 * MIB);
        }
        assert_eq!(usage, 600 * MIB);
        group.see(3.0, 300 * MIB);
        (0..200).for_each(|_| {
            group.limit_bytes = group.next(usage, 0.0);
            usage = usage.min(group.limit_bytes);
        });
        assert_eq!(usage, 300 * MIB, "the window that asked for more is two windows ago");
    }

    #[test]
    fn a_group_that_suffers_for_long_has_a_tenth_of_room_and_no_more() {
        let mut group = held(800 * MIB, 100 * MIB);
        for _ in 0..100 {
            group.limit_bytes = group.next(800 * MIB, 0.5);
        }
        assert_eq!(group.limit_bytes, 880 * MIB);
    }

    #[test]
    fn others_that_wait_are_no_reason_to_give_memory_back() {
        let suffers = |own, of_host, refaults| pressure_of(own, of_host, refaults, 0.01) >= 0.01;
        assert!(!suffers(None, 0.5, 0.0) && suffers(None, 0.5, 20.0) && !suffers(None, 0.001, 20.0));
        assert!(suffers(Some(0.02), 0.0, 0.0) && !suffers(Some(0.0), 0.5, 20.0));
        assert!(suffers(None, 0.0, 300.0) && suffers(Some(0.0), 0.0, 300.0));
        // A group that may or may not wait keeps what it has.
        let mut group = held(800 * MIB, 100 * MIB);
        assert_eq!(group.next(800 * MIB, pressure_of(None, 0.5, 0.0, 0.01)), 800 * MIB);
    }

    #[test]
    fn a_group_that_suffers_gets_memory_back_and_smaller_steps() {
        let mut group = held(800 * MIB, 100 * MIB);
        let first = group.next(800 * MIB, 0.0);
        assert_eq!(first, 784 * MIB);
        group.limit_bytes = first;
        let back = group.next(780 * MIB, 0.5);
        assert!(back > 850 * MIB, "{}", back / MIB);
        group.limit_bytes = back;
        let after = (0..5).map(|_| group.next(800 * MIB, 0.0)).find(|limit| *limit < back).expect("it goes on");
        assert!(after > 784 * MIB && after < 800 * MIB, "{}", after / MIB);
    }
}
