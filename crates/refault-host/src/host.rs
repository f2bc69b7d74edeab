//! All groups of a host, looked at again and again.
//!
//! Windows are measured in rounds ([`rounds`]): a caller sleeps until [`Host::due`] and calls [`Host::step`], and asks for a
//! [`Report`] whenever it likes. What is known of a group goes when the group goes. Cost: see the crate; rounds rest
//! until looks and reports have taken at most [`MAX_SHARE`] of a processor, by the time that the thread ran.

mod peaks;
mod report;
mod room;
mod rounds;
mod samples;
mod windows;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use peaks::Peaks;
pub use report::{Report, Row, WorkingSet};
pub(crate) use room::Room;
pub use rounds::MAX_SHARE;
use rounds::{Next, Rounds};
use samples::Samples;
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
    /// The most that was seen charged since the window began, of what is no file's.
    most_bytes: u64,
}

/// A host.
#[derive(Debug)]
pub struct Host {
    ages: Vec<Duration>,
    root: PathBuf,
    source: Source,
    instead: Option<String>,
    /// The path of the group that alone is looked at, with those below it.
    within: Option<String>,
    rounds: Rounds,
    samples: Samples,
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
        let root = groups[0].directory.clone();
        let (source, instead) = Source::best(&root, groups.len());
        Ok(Host {
            ages: ages.to_vec(),
            root,
            source,
            instead,
            within: None,
            rounds: Rounds::new(ages.to_vec()),
            samples: Samples::new(),
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
        let groups = self.groups()?;
        if groups.is_empty() {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        if self.instead.is_some() {
            (self.source, self.instead) = Source::best(&self.root, groups.len());
        }
        Ok(())
    }

    /// Measures all lengths in each round, also at the beginning.
    pub fn measure_all_at_once(&mut self) {
        self.rounds.all_at_once();
    }

    /// Takes the page tables for a source, even if the machine permits a better one.
    pub fn take_page_tables(&mut self) {
        self.take(Source::PageTables);
    }

    /// Takes the kernel's generations for a source.
    ///
    /// # Errors
    /// This kernel has none, or does not show them.
    pub fn take_generations(&mut self) -> io::Result<()> {
        self.take(Source::generations(&self.root)?);
        Ok(())
    }

    /// Takes the kernel's monitor for a source.
    ///
    /// # Errors
    /// It cannot be had.
    pub fn take_monitor(&mut self) -> io::Result<()> {
        self.take(Source::monitor()?);
        Ok(())
    }

    fn take(&mut self, source: Source) {
        (self.source, self.instead) = (source, None);
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
        self.rounds.due().min(self.samples.due())
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

    /// Begins or ends a window, or takes a sample within one.
    ///
    /// # Errors
    /// There are no memory cgroups any more, or this user may look at no process.
    pub fn step(&mut self) -> io::Result<()> {
        let began = time_run();
        let groups = self.groups()?;
        let is_sample = self.rounds.due() > Instant::now();
        if is_sample {
            self.sample(&groups);
            let took = time_run().saturating_sub(began);
            self.spent += took;
            self.samples.taken(took);
            self.rounds.spent_beside(took);
            return Ok(());
        }
        match self.rounds.next() {
            Next::Begin => self.begin(&groups)?,
            Next::End(age) => {
                let window = self.rounds.window();
                match self.source.look(&groups) {
                    Ok(accessed) => {
                        self.remember(&groups, age, window, &accessed);
                        if self.rounds.ended(self.source.follows()) {
                            self.begin(&groups)?;
                        }
                    }
                    Err(error) => {
                        self.fall_back(error)?;
                        self.begin(&groups)?;
                    }
                }
            }
        }
        let took = time_run().saturating_sub(began) + self.source.take_spent();
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

    /// The monitor is one for all programs, and another may have taken it. Page tables are always there.
    fn fall_back(&mut self, error: io::Error) -> io::Result<()> {
        if !matches!(self.source, Source::Monitor(_)) {
            return Err(error);
        }
        (self.source, self.instead) = (Source::PageTables, Some(format!("from DAMON any more: {error}")));
        Ok(())
    }

    fn begin(&mut self, groups: &[Group]) -> io::Result<()> {
        if let Err(error) = self.source.begin(groups) {
            self.fall_back(error)?;
            self.source.begin(groups)?;
        }
        let ids: std::collections::HashSet<u64> = groups.iter().map(|group| group.id).collect();
        self.known.retain(|id, _| ids.contains(id));
        self.known.values_mut().for_each(|known| known.most_bytes = 0);
        self.sample(groups);
        self.rounds.begun(Instant::now());
        Ok(())
    }

    /// Sees what is charged now: memory that is given back before the window ends would leave no trace.
    fn sample(&mut self, groups: &[Group]) {
        for group in groups {
            let Some(stat) = figures::stat(&group.directory) else { continue };
            let known = self.known.entry(group.id).or_default();
            known.most_bytes = known.most_bytes.max(stat.swap_backed_bytes());
        }
    }

    fn remember(&mut self, groups: &[Group], age: usize, window: Duration, accessed: &[Accessed]) {
        for (group, accessed) in groups.iter().zip(accessed) {
            let Some(figures) = self.figures(group) else { continue };
            let known = self.known.entry(group.id).or_default();
            known.measured.resize(self.ages.len(), None);
            let mut measured = measured(*accessed, &figures, window);
            // Whether it was accessed before it was given back is not known.
            let given_back = known.most_bytes.saturating_sub(figures.stat.swap_backed_bytes());
            measured.error_bytes = measured.error_bytes.saturating_add(given_back);
            let swap_backed_bytes = swap_backed(*accessed, &figures);
            // Less than was accessed would be said of it, and a limit that is too small.
            known.measured[age] =
                (!accessed.is_in_part).then(|| Window { measured, swap_backed_bytes, ended: Instant::now() });
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

/// Of what was accessed, the least that is no page of a file on disk.
fn swap_backed(accessed: Accessed, figures: &Figures) -> u64 {
    if accessed.is_by_charge {
        return accessed.anonymous_bytes;
    }
    let stat = &figures.stat;
    let mapped = accessed.file_bytes.min(stat.mapped_bytes);
    accessed.anonymous_bytes.min(stat.anonymous_bytes).saturating_add(mapped.saturating_sub(stat.file_bytes))
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
