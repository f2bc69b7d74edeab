//! All groups of a host, looked at again and again.
//!
//! Windows are measured in rounds ([`rounds`]): a caller sleeps until [`Host::due`] and calls [`Host::step`], and asks for a
//! [`Report`] whenever it likes. What is known of a group goes when the group goes. Cost: see the crate; rounds rest
//! until looks and reports have taken at most [`MAX_SHARE`] of a processor, by the time that the thread ran.

mod peaks;
mod report;
mod rounds;
mod windows;

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use peaks::Peaks;
pub use report::{Report, Row, WorkingSet};
pub use rounds::MAX_SHARE;
use rounds::{Next, Rounds};
use windows::Window;

use crate::accessed::{Accessed, Source};
use crate::curve::Measured;
use crate::figures::{self, Figures};
use crate::tree::{self, Group};

/// The lengths of windows that are measured unless told otherwise.
pub const AGES: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(600),
    Duration::from_secs(3600),
];
/// Rates are over at least this.
const MIN_RATE: Duration = Duration::from_millis(500);

/// What is known of a group.
#[derive(Debug, Default)]
struct Known {
    /// By age.
    measured: Vec<Option<Window>>,
    /// What was measured last left out processes.
    is_in_part: bool,
    figures: Option<(Instant, Figures)>,
    refaults_per_second: Option<f64>,
    pressure: Option<f64>,
    peaks: Peaks,
}

/// A host.
#[derive(Debug)]
pub struct Host {
    ages: Vec<Duration>,
    source: Source,
    instead: Option<String>,
    /// The path of the group that alone is looked at, with those below it.
    within: Option<String>,
    rounds: Rounds,
    known: HashMap<u64, Known>,
    begun: Instant,
    spent: Duration,
}

impl Host {
    /// The host, with windows of these lengths, which ascend.
    ///
    /// # Errors
    /// There are no memory cgroups.
    pub fn open(ages: &[Duration]) -> io::Result<Host> {
        let groups = tree::groups()?;
        let (source, instead) = Source::best(&groups[0].directory);
        Ok(Host {
            ages: ages.to_vec(),
            source,
            instead: instead.map(|error| error.to_string()),
            within: None,
            rounds: Rounds::new(ages.to_vec()),
            known: HashMap::new(),
            begun: Instant::now(),
            spent: Duration::ZERO,
        })
    }

    /// Looks at the group of this path and at those below it only.
    ///
    /// # Errors
    /// There is no such group.
    pub fn within(&mut self, path: &str) -> io::Result<()> {
        self.within = Some(path.trim_end_matches('/').to_owned());
        match self.groups() {
            Ok(groups) if groups.is_empty() => Err(io::Error::from(io::ErrorKind::NotFound)),
            other => other.map(drop),
        }
    }

    /// Measures all lengths in each round, also at the beginning.
    pub fn measure_all_at_once(&mut self) {
        self.rounds.all_at_once();
    }

    /// Takes the page tables for a source, even if the machine permits a better one.
    pub fn take_page_tables(&mut self) {
        (self.source, self.instead) = (Source::PageTables, None);
    }

    /// Where working sets come from, in words.
    pub fn words(&self) -> String {
        self.source.words()
    }

    /// Why they do not come from a better source.
    pub fn instead_of(&self) -> Option<&str> {
        self.instead.as_deref()
    }

    /// When something is to be done.
    pub fn due(&self) -> Instant {
        self.rounds.due()
    }

    /// Rounds that are over.
    pub fn rounds(&self) -> u64 {
        self.rounds.done()
    }

    /// Groups that something is remembered of.
    pub fn known(&self) -> usize {
        self.known.len()
    }

    /// Groups of which no working set is known, because processes hold their memory at which this one may not look.
    pub fn in_part(&self) -> usize {
        self.known.values().filter(|known| known.is_in_part).count()
    }

    /// Share of a processor that looks and reports took so far.
    pub fn share(&self) -> f64 {
        self.spent.as_secs_f64() / self.begun.elapsed().as_secs_f64().max(1e-3)
    }

    /// Begins or ends a window.
    ///
    /// # Errors
    /// There are no memory cgroups any more, or this user may look at no process.
    pub fn step(&mut self) -> io::Result<()> {
        let began = time_run();
        let groups = self.groups()?;
        match self.rounds.next() {
            Next::Begin => {
                self.source.begin(&groups)?;
                self.rounds.begun(Instant::now());
            }
            Next::End(age) => {
                let window = self.rounds.window();
                let accessed = self.source.look(&groups)?;
                self.remember(&groups, age, window, &accessed);
                if self.rounds.ended(self.source.follows()) {
                    self.source.begin(&groups)?;
                    self.rounds.begun(Instant::now());
                }
            }
        }
        let took = time_run().saturating_sub(began);
        self.spent += took;
        self.rounds.spent(took);
        Ok(())
    }

    /// All groups that are looked at.
    fn groups(&self) -> io::Result<Vec<Group>> {
        let all = tree::groups()?;
        let Some(path) = &self.within else { return Ok(all) };
        let is_within = |group: &&Group| {
            group.path.strip_prefix(path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut places = HashMap::new();
        let mut some = Vec::new();
        for (at, group) in all.iter().enumerate().filter(|(_, group)| is_within(group)) {
            places.insert(at, some.len());
            let parent = group.parent.and_then(|parent| places.get(&parent).copied());
            some.push(Group { parent, ..group.clone() });
        }
        Ok(some)
    }

    fn remember(&mut self, groups: &[Group], age: usize, window: Duration, accessed: &[Accessed]) {
        for (group, accessed) in groups.iter().zip(accessed) {
            let Some(figures) = self.figures(group) else { continue };
            let known = self.known.entry(group.id).or_default();
            known.measured.resize(self.ages.len(), None);
            // Less than was accessed would be said of it, and a limit that is too small.
            known.measured[age] = (!accessed.is_in_part)
                .then(|| Window { measured: measured(*accessed, &figures, window), ended: Instant::now() });
            known.is_in_part = accessed.is_in_part;
        }
    }

    /// The figures of a group now, and its rates since they were asked for before.
    fn figures(&mut self, group: &Group) -> Option<Figures> {
        let figures = figures::of(&group.directory)?;
        let known = self.known.entry(group.id).or_default();
        let now = Instant::now();
        known.peaks.see(now.duration_since(self.begun), figures.usage_less_inactive_file_bytes());
        if let Some((then, before)) = known.figures {
            let time = now.duration_since(then);
            if time < MIN_RATE {
                return Some(figures);
            }
            let refaults = figures.stat.refaults.saturating_sub(before.stat.refaults);
            known.refaults_per_second = Some(refaults as f64 / time.as_secs_f64());
            known.pressure = figures
                .stalled_us
                .zip(before.stalled_us)
                .map(|(now, before)| (now.saturating_sub(before) as f64 / 1e6 / time.as_secs_f64()).min(1.0));
        }
        known.figures = Some((now, figures));
        Some(figures)
    }
}

/// For how long this thread ran.
fn time_run() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.try_into().unwrap_or_default()
}

/// The working set of a group: what was accessed, and no more than is charged to it of that kind.
///
/// Page tables do not show reads by calls. Of files that no process maps, those count that the kernel lists as active: it
/// saw them accessed twice, at some time. It does not say how many active pages are mapped, which is an error too. So it
/// is with shared memory that no process maps, such as files of a tmpfs, which it lists among what is no file's.
fn measured(accessed: Accessed, figures: &Figures, window: Duration) -> Measured {
    let stat = &figures.stat;
    if accessed.is_by_charge {
        let bytes = accessed.anonymous_bytes.saturating_add(accessed.file_bytes);
        return Measured { window, bytes, error_bytes: accessed.error_bytes };
    }
    let anonymous = accessed.anonymous_bytes.min(stat.anonymous_bytes);
    // Processes map pages that are charged to other groups: libraries, above all.
    let mapped = accessed.file_bytes.min(stat.mapped_bytes);
    let read = stat.active_file_bytes.saturating_sub(stat.mapped_bytes);
    let read_at_most = stat.active_file_bytes.saturating_sub(mapped.saturating_sub(stat.shared_bytes)).max(read);
    let unmapped = stat.shared_bytes.saturating_sub(stat.mapped_bytes);
    let shared_read = stat.active_anonymous_bytes.saturating_sub(stat.anonymous_bytes).min(unmapped);
    let shared_read_at_most = stat.active_anonymous_bytes.min(unmapped);
    let bytes = anonymous.saturating_add(mapped).saturating_add(read).saturating_add(shared_read);
    let shared =
        accessed.error_bytes.min((stat.anonymous_bytes - anonymous).saturating_add(stat.mapped_bytes - mapped));
    let by_calls = (read_at_most - read).saturating_add(shared_read_at_most - shared_read);
    Measured { window, bytes, error_bytes: shared.saturating_add(by_calls) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Stat;

    const WINDOW: Duration = Duration::from_secs(1);

    fn of(stat: Stat, anonymous_bytes: u64, file_bytes: u64, error_bytes: u64) -> Measured {
        let figures = Figures { usage_bytes: 200, stat, ..Figures::default() };
        measured(Accessed { anonymous_bytes, file_bytes, error_bytes, ..Accessed::default() }, &figures, WINDOW)
    }

    #[test]
    fn no_more_is_accessed_than_is_charged() {
        let stat = Stat { anonymous_bytes: 100, mapped_bytes: 50, file_bytes: 80, ..Stat::default() };
        assert_eq!(of(stat, 70, 90, 500), Measured { window: WINDOW, bytes: 120, error_bytes: 30 });
        let exact = Accessed { anonymous_bytes: 70, file_bytes: 90, is_by_charge: true, ..Accessed::default() };
        assert_eq!(measured(exact, &Figures { stat, ..Figures::default() }, WINDOW).bytes, 160);
    }

    #[test]
    fn files_that_are_read_again_count_and_those_read_once_do_not() {
        let stat = Stat { file_bytes: 60, active_file_bytes: 20, inactive_file_bytes: 40, ..Stat::default() };
        assert_eq!(of(stat, 0, 0, 0), Measured { window: WINDOW, bytes: 20, error_bytes: 0 });
        // Ten of the active ones may be mapped, and none of those was accessed.
        let some = Stat { mapped_bytes: 10, ..stat };
        assert_eq!(of(some, 0, 0, 0), Measured { window: WINDOW, bytes: 10, error_bytes: 10 });
        // The files of a tmpfs, of which ten are mapped; of 50 active pages 30 may be no file's.
        let shared = Stat { shared_bytes: 90, mapped_bytes: 10, active_anonymous_bytes: 50, ..Stat::default() };
        assert_eq!(of(shared, 0, 0, 0), Measured { window: WINDOW, bytes: 50, error_bytes: 0 });
        let both = Stat { anonymous_bytes: 30, ..shared };
        assert_eq!(of(both, 0, 0, 0), Measured { window: WINDOW, bytes: 20, error_bytes: 30 });
    }
}
