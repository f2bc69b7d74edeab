//! The module `lru-sort` as a running kernel has it loaded: its parameters are files, written one at a time; `enabled`
//! starts and stops its worker, `commit_inputs` puts what was written in force (spec: lru_sort §1.1).
//!
//! A value takes effect when the worker is started or told to read its inputs, not when it is written. What happens to
//! the schemes' windows, sums and statistics meanwhile, who hears of a refused value, and which files there are, differ
//! by profile.
//!
//! Invariants: `kdamond_pid` is −1 exactly while no worker runs; a worker's schemes are hot and cold, in this order.
//! Cost: as the kdamond's; reading and writing a file is O(parameters).
//!
//! Kernel: `damon_lru_sort_enabled_store`, `damon_lru_sort_handle_commit_inputs`, `damon_lru_sort_turn` in
//! `mm/damon/lru_sort.c`.
//!
//! ```
//! use refault_core::monitor::Profile;
//! use refault_core::schemes::modules::loaded::{LoadedLruSort, WriteError};
//!
//! let mut module = LoadedLruSort::new(Profile::K72, 0..1 << 30, 1);
//! assert_eq!(module.read("kdamond_pid").as_deref(), Some("-1"));
//! assert_eq!(module.write("commit_inputs", "Y", false, 0), Err(WriteError::Invalid)); // never started
//! module.write("enabled", "Y", false, 0)?;
//! assert_eq!(module.read("monitor_region_end").as_deref(), Some("1073741824")); // the range that was chosen
//! assert_eq!(module.write("kdamond_pid", "1", false, 0), Err(WriteError::ReadOnly));
//! # Ok::<(), WriteError>(())
//! ```

use std::ops::Range;

use super::lru_sort::LruSort;
use super::{Common, ModuleError};
use crate::monitor::{AccessSampler, Monitor, Profile, Region, Target, View};
use crate::schemes::{Kdamond, Next, Observer, Scheme, SchemeActor, SchemeStatistics};

/// Statistics before the first worker.
const NOTHING: SchemeStatistics = SchemeStatistics {
    nr_tried: 0,
    sz_tried: 0,
    nr_applied: 0,
    sz_applied: 0,
    sz_ops_filter_passed: 0,
    qt_exceeds: 0,
    nr_snapshots: 0,
};

/// Why a write was refused, as the kernel refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The profile has no such file (`ENOENT`).
    Unknown,
    /// It is only for reading (`EACCES`).
    ReadOnly,
    /// It cannot be read as the file's type, or not now (`EINVAL`).
    Invalid,
    /// Another worker of the monitor runs (`EBUSY`).
    Busy,
    /// The parameters do not go together.
    Refused(ModuleError),
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WriteError::Unknown => f.write_str("No such file or directory"),
            WriteError::ReadOnly => f.write_str("Permission denied"),
            WriteError::Invalid => f.write_str("Invalid argument"),
            WriteError::Busy => f.write_str("Device or resource busy"),
            WriteError::Refused(error) => write!(f, "Invalid argument ({error})"),
        }
    }
}

impl std::error::Error for WriteError {}

/// The worker, while it runs.
struct Running {
    kdamond: Kdamond,
    pid: u32,
    /// It waits for the watermarks.
    waits: bool,
}

/// See the module.
pub struct LoadedLruSort {
    profile: Profile,
    /// All of memory, bytes.
    memory: Range<u64>,
    seed: u64,
    /// As the files have them; the worker has them in force once it has read them.
    written: LruSort,
    addr_unit: u64,
    worker: Option<Running>,
    /// The schemes of the last worker.
    kept: Option<[Scheme; 2]>,
    commit: bool,
    last_pid: u32,
    /// The statistics' files, which are refreshed now and then.
    statistics: [(&'static str, u64); 10],
}

impl LoadedLruSort {
    /// Loaded with the kernel's defaults, not running. `memory`: addresses of all memory, in bytes.
    pub fn new(profile: Profile, memory: Range<u64>, seed: u64) -> LoadedLruSort {
        LoadedLruSort {
            profile,
            memory,
            seed,
            written: LruSort::default(),
            addr_unit: 1,
            worker: None,
            kept: None,
            commit: false,
            last_pid: 0,
            statistics: LruSort::statistics(&NOTHING, &NOTHING),
        }
    }

    /// Reads a file. `None`: the profile has no such file.
    pub fn read(&self, name: &str) -> Option<String> {
        let flag = |on: bool| Some(if on { "Y".to_owned() } else { "N".to_owned() });
        match name {
            "enabled" => return flag(self.worker.is_some()),
            "commit_inputs" if self.profile != Profile::K518 => return flag(self.commit),
            "kdamond_pid" => {
                return Some(self.worker.as_ref().map_or("-1".to_owned(), |worker| worker.pid.to_string()));
            }
            "addr_unit" if self.profile.is_current() => return Some(self.addr_unit.to_string()),
            _ => {}
        }
        if let Some((_, value)) = self.statistics.iter().find(|(known, _)| *known == name) {
            return Some(value.to_string());
        }
        let mut written = self.written.clone();
        Some(match self.field(&mut written, name)? {
            Field::Number(number) => number.to_string(),
            Field::Count(count) => count.to_string(),
            Field::Flag(on) => return flag(*on),
        })
    }

    /// Writes a file at `now` (µs). `others_run`: another worker of the monitor runs.
    ///
    /// # Errors
    /// See [`WriteError`]; nothing but a worker that has to stop has changed then.
    pub fn write(&mut self, name: &str, value: &str, others_run: bool, now: u64) -> Result<(), WriteError> {
        let value = value.trim();
        match name {
            "enabled" => return self.enable(flag(value)?, others_run, now),
            "commit_inputs" if self.profile != Profile::K518 => return self.ask_for_commit(flag(value)?),
            "kdamond_pid" => return Err(WriteError::ReadOnly),
            "addr_unit" if self.profile.is_current() => {
                self.addr_unit = number(value)?.max(1);
                return Ok(());
            }
            name if self.statistics.iter().any(|(known, _)| *known == name) => return Err(WriteError::ReadOnly),
            _ => {}
        }
        let mut written = self.written.clone();
        match self.field(&mut written, name).ok_or(WriteError::Unknown)? {
            Field::Number(field) => *field = number(value)?,
            Field::Count(field) => *field = usize::try_from(number(value)?).map_err(|_| WriteError::Invalid)?,
            Field::Flag(field) => *field = flag(value)?,
        }
        self.written = written;
        Ok(())
    }

    /// The worker's monitor and schemes, while it runs.
    pub fn kdamond(&self) -> Option<&Kdamond> {
        self.worker.as_ref().map(|worker| &worker.kdamond)
    }

    /// The schemes of the worker, or of the last one; none before the first.
    pub fn schemes(&self) -> &[Scheme] {
        match (&self.worker, &self.kept) {
            (Some(worker), _) => worker.kdamond.schemes(),
            (None, Some(kept)) => kept,
            (None, None) => &[],
        }
    }

    /// [`Kdamond::begin`] of the worker; [`Next::Ended`] while none runs.
    pub fn begin<E: AccessSampler + SchemeActor>(&mut self, env: &mut E) -> Next {
        if self.worker.as_ref().is_some_and(|worker| worker.waits) {
            self.turn();
        }
        let Some(worker) = &mut self.worker else { return Next::Ended };
        let next = worker.kdamond.begin(env);
        worker.waits = matches!(next, Next::Inactive { .. });
        next
    }

    /// [`Kdamond::finish`] of the worker, if one runs.
    pub fn finish<E: AccessSampler + SchemeActor>(&mut self, now: u64, env: &mut E) {
        let Some(worker) = &mut self.worker else { return };
        let mut aggregations = Aggregations(0);
        worker.kdamond.finish(now, env, &mut aggregations);
        if aggregations.0 > 0 {
            self.turn();
        } else if self.profile.is_current() {
            self.refresh_statistics();
        }
    }

    /// What the worker does after an aggregation and after a sleep for the watermarks.
    fn turn(&mut self) {
        self.refresh_statistics();
        if std::mem::take(&mut self.commit) {
            // The answer reaches no caller: a refused value ends the worker, which is what is seen of it.
            let _ = self.commit_inputs();
        }
    }

    fn enable(&mut self, on: bool, others_run: bool, now: u64) -> Result<(), WriteError> {
        if !on {
            self.stop();
            return Ok(());
        }
        if self.worker.is_some() {
            return Ok(());
        }
        let started = if others_run { Err(WriteError::Busy) } else { self.start(now) };
        // Up to 6.1 the worker starts later, and the writer never hears of it.
        if self.profile.keeps_elapsed_time() { Ok(()) } else { started }
    }

    fn ask_for_commit(&mut self, on: bool) -> Result<(), WriteError> {
        if !self.profile.is_current() {
            self.commit = on;
            return Ok(());
        }
        match (on, &self.worker) {
            (false, _) => Ok(()),
            (true, None) => Err(WriteError::Invalid),
            (true, Some(_)) => self.commit_inputs(),
        }
    }

    /// The inputs in bytes, whatever unit addresses are written in.
    fn inputs(&self) -> LruSort {
        let common = &self.written.common;
        let bytes = |address: u64| address.saturating_mul(self.addr_unit);
        let (start, end) = (bytes(common.monitor_region_start), bytes(common.monitor_region_end));
        LruSort {
            common: Common { monitor_region_start: start, monitor_region_end: end, ..common.clone() },
            ..self.written.clone()
        }
    }

    fn start(&mut self, now: u64) -> Result<(), WriteError> {
        let inputs = self.inputs();
        let (attributes, mut schemes) = inputs.build(self.profile).map_err(WriteError::Refused)?;
        let range = inputs.common.range(self.memory.clone());
        let mut target = Target::over(range.clone(), attributes.min_region_size).map_err(|_| WriteError::Invalid)?;
        target.start_in_pieces(self.profile, attributes.min_nr_regions, attributes.min_region_size);
        if let Some(kept) = self.kept.take() {
            self.carry_over(&kept, &mut schemes);
        }
        let monitor = Monitor::new(self.profile, attributes, vec![target], self.seed);
        let monitor = monitor.map_err(|error| WriteError::Refused(error.into()))?;
        self.last_pid += 1;
        let kdamond = Kdamond::new(monitor, View::Physical, schemes.into(), now);
        self.worker = Some(Running { kdamond, pid: self.last_pid, waits: false });
        self.note_range(&range);
        Ok(())
    }

    fn stop(&mut self) {
        if let Some(worker) = self.worker.take() {
            let [hot, cold] = worker.kdamond.schemes() else { unreachable!("invariant: two schemes") };
            self.kept = Some([hot.clone(), cold.clone()]);
        }
    }

    fn commit_inputs(&mut self) -> Result<(), WriteError> {
        let committed = self.try_commit();
        if committed.is_err() {
            self.stop();
        }
        committed
    }

    fn try_commit(&mut self) -> Result<(), WriteError> {
        let inputs = self.inputs();
        let (attributes, mut schemes) = inputs.build(self.profile).map_err(WriteError::Refused)?;
        let range = inputs.common.range(self.memory.clone());
        let Some(mut worker) = self.worker.take() else { return Ok(()) };
        self.carry_over(worker.kdamond.schemes(), &mut schemes);
        for (new, old) in schemes.iter_mut().zip(worker.kdamond.schemes()) {
            (new.activated, new.next_apply) = (old.activated, old.next_apply);
        }
        worker.kdamond.replace_schemes(schemes.into());
        let ranged = worker.kdamond.set_ranges(std::slice::from_ref(&range)).is_ok();
        let set = worker.kdamond.set_attributes(attributes).map_err(|error| WriteError::Refused(error.into()));
        self.worker = Some(worker);
        self.note_range(&range);
        if ranged { set } else { Err(WriteError::Invalid) }
    }

    /// What goes on where it was when the schemes are made anew: everything since 6.12; before only what was charged,
    /// so that there is no limit until the next window begins.
    fn carry_over(&self, old: &[Scheme], new: &mut [Scheme; 2]) {
        for (new, old) in new.iter_mut().zip(old) {
            new.quota = old.quota.clone();
            if self.profile.keeps_elapsed_time() {
                new.quota.forget_goals_and_limit();
            } else {
                new.statistics = old.statistics;
            }
        }
    }

    /// The files of the range read back what was chosen.
    fn note_range(&mut self, range: &Range<u64>) {
        self.written.common.monitor_region_start = range.start / self.addr_unit;
        self.written.common.monitor_region_end = range.end / self.addr_unit;
    }

    fn refresh_statistics(&mut self) {
        let Some(worker) = &self.worker else { return };
        let [hot, cold] = worker.kdamond.schemes() else { unreachable!("invariant: two schemes") };
        self.statistics = LruSort::statistics(hot.statistics(), cold.statistics());
        for (name, value) in &mut self.statistics {
            if name.starts_with("bytes_") {
                *value /= self.addr_unit;
            }
        }
    }

    /// The parameter of a name, if the profile has it.
    fn field<'a>(&self, module: &'a mut LruSort, name: &str) -> Option<Field<'a>> {
        let newer = ["active_mem_bp", "filter_young_pages", "autotune_monitoring_intervals"];
        if newer.contains(&name) && !self.profile.is_current() {
            return None;
        }
        let (common, wmarks) = (&mut module.common, &mut module.wmarks);
        Some(match name {
            "hot_thres_access_freq" => Field::Number(&mut module.hot_thres_access_freq),
            "cold_min_age" => Field::Number(&mut module.cold_min_age),
            "quota_ms" => Field::Number(&mut module.quota_ms),
            "quota_reset_interval_ms" => Field::Number(&mut module.quota_reset_interval_ms),
            "active_mem_bp" => Field::Number(&mut module.active_mem_bp),
            "filter_young_pages" => Field::Flag(&mut module.filter_young_pages),
            "wmarks_interval" => Field::Number(&mut wmarks.wmarks_interval),
            "wmarks_high" => Field::Number(&mut wmarks.wmarks_high),
            "wmarks_mid" => Field::Number(&mut wmarks.wmarks_mid),
            "wmarks_low" => Field::Number(&mut wmarks.wmarks_low),
            "sample_interval" => Field::Number(&mut common.sample_interval),
            "aggr_interval" => Field::Number(&mut common.aggr_interval),
            "min_nr_regions" => Field::Count(&mut common.min_nr_regions),
            "max_nr_regions" => Field::Count(&mut common.max_nr_regions),
            "monitor_region_start" => Field::Number(&mut common.monitor_region_start),
            "monitor_region_end" => Field::Number(&mut common.monitor_region_end),
            "autotune_monitoring_intervals" => Field::Flag(&mut common.autotune_monitoring_intervals),
            _ => return None,
        })
    }
}

enum Field<'a> {
    Number(&'a mut u64),
    Count(&'a mut usize),
    Flag(&'a mut bool),
}

/// Notices that an aggregation ended.
struct Aggregations(usize);

impl Observer for Aggregations {
    fn aggregated(&mut self, _target: usize, _regions: &[Region]) {
        self.0 += 1;
    }
}

fn number(value: &str) -> Result<u64, WriteError> {
    value.parse().map_err(|_| WriteError::Invalid)
}

fn flag(value: &str) -> Result<bool, WriteError> {
    match value {
        "Y" | "y" | "1" => Ok(true),
        "N" | "n" | "0" => Ok(false),
        _ => Err(WriteError::Invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemes::{Action, Folio};

    const PAGE: u64 = 4096;
    const PAGES: u64 = 4096;
    const HOT: u64 = 1024;

    /// Memory of which the first quarter is always accessed and the rest never.
    struct Quarter {
        sorted: [u64; 2],
        free: u64,
    }

    impl AccessSampler for Quarter {
        fn prepare(&mut self, _target: usize, _address: u64) {}
        fn accessed(&mut self, _target: usize, address: u64) -> bool {
            address < HOT * PAGE
        }
        fn work_ns(&self) -> u64 {
            // Each act takes as long as the last reading of the clock says: a hundredth of a millisecond.
            (self.sorted[0] + self.sorted[1]) * 10_000
        }
    }

    impl SchemeActor for Quarter {
        fn folio(&mut self, _target: usize, address: u64) -> Option<Folio> {
            let page = (address / PAGE) as u32;
            Some(Folio { page, size: PAGE, at_head: true, anon: true, active: false, mapped: true, memcg: None })
        }
        fn is_young(&mut self, _folio: &Folio) -> bool {
            false
        }
        fn make_old(&mut self, _folio: &Folio) {}
        fn act(&mut self, action: &Action, folio: &Folio) -> u64 {
            self.sorted[usize::from(*action == Action::LruDeprio)] += 1;
            folio.size
        }
        fn free_permille(&self) -> u64 {
            self.free
        }
    }

    struct Host {
        module: LoadedLruSort,
        memory: Quarter,
        now: u64,
    }

    impl Host {
        fn new(profile: Profile) -> Host {
            let module = LoadedLruSort::new(profile, 0..PAGES * PAGE, 1);
            Host { module, memory: Quarter { sorted: [0; 2], free: 100 }, now: 0 }
        }

        fn write(&mut self, name: &str, value: &str) -> Result<(), WriteError> {
            self.module.write(name, value, false, self.now)
        }

        fn read(&self, name: &str) -> String {
            self.module.read(name).unwrap_or_else(|| panic!("no {name}"))
        }

        fn run(&mut self, seconds: u64) {
            let end = self.now + seconds * 1_000_000;
            while self.now < end {
                match self.module.begin(&mut self.memory) {
                    Next::Sample { wait } => {
                        self.now += wait;
                        self.module.finish(self.now, &mut self.memory);
                    }
                    Next::Inactive { wait } => self.now += wait,
                    Next::Ended => self.now = end,
                }
            }
        }
    }

    #[test]
    fn a_module_that_is_off_does_nothing_and_on_sorts_what_is_hot() {
        for profile in Profile::ALL {
            let mut host = Host::new(profile);
            host.run(2);
            assert_eq!(host.memory.sorted, [0, 0]);
            host.write("enabled", "Y").unwrap();
            assert_eq!((host.read("enabled").as_str(), host.read("kdamond_pid").as_str()), ("Y", "1"));
            host.run(2);
            assert!(host.memory.sorted[0] > HOT && host.memory.sorted[1] == 0, "{:?}", host.memory.sorted);
            assert!(host.read("nr_lru_sorted_hot_regions").parse::<u64>().unwrap() > 0, "{}", profile.name());
            host.write("enabled", "N").unwrap();
            let sorted = host.memory.sorted;
            host.run(2);
            assert_eq!((host.memory.sorted, host.read("kdamond_pid").as_str()), (sorted, "-1"));
            host.write("enabled", "Y").unwrap();
            assert_eq!(host.read("kdamond_pid"), "2");
        }
    }

    #[test]
    fn what_is_written_waits_for_commit_inputs() {
        for profile in [Profile::K60, Profile::K612, Profile::K72] {
            let mut host = Host::new(profile);
            host.write("enabled", "Y").unwrap();
            host.run(1);
            host.write("cold_min_age", "300000").unwrap();
            host.run(3);
            assert_eq!(host.memory.sorted[1], 0, "two minutes are in force still");
            host.write("commit_inputs", "Y").unwrap();
            let pending = if profile.is_current() { "N" } else { "Y" };
            assert_eq!(host.read("commit_inputs"), pending);
            host.run(3);
            assert_eq!(host.read("commit_inputs"), "N", "the worker took it");
            assert!(host.memory.sorted[1] > 0, "{}: cold memory is deprioritised now", profile.name());
        }
        let mut old = Host::new(Profile::K518);
        assert_eq!(old.write("commit_inputs", "Y"), Err(WriteError::Unknown));
    }

    #[test]
    fn a_refused_value_ends_the_worker() {
        for profile in [Profile::K60, Profile::K612, Profile::K72] {
            let mut host = Host::new(profile);
            host.write("enabled", "Y").unwrap();
            host.run(1);
            host.write("wmarks_low", "900").unwrap();
            let told = host.write("commit_inputs", "Y").is_err();
            assert_eq!(told, profile.is_current(), "only 7.2 tells who wrote");
            host.run(1);
            assert_eq!(host.read("kdamond_pid"), "-1", "{}", profile.name());
        }
    }

    #[test]
    fn another_worker_makes_it_busy() {
        for profile in Profile::ALL {
            let mut module = LoadedLruSort::new(profile, 0..PAGES * PAGE, 1);
            let heard = module.write("enabled", "Y", true, 0);
            let hears = !profile.keeps_elapsed_time();
            assert_eq!(heard, if hears { Err(WriteError::Busy) } else { Ok(()) });
            assert_eq!(module.read("enabled").as_deref(), Some("N"));
        }
    }

    #[test]
    fn statistics_go_on_since_6_12_and_start_anew_before() {
        for profile in [Profile::K60, Profile::K612, Profile::K72] {
            let mut host = Host::new(profile);
            host.write("enabled", "Y").unwrap();
            host.run(2);
            let before: u64 = host.read("nr_lru_sorted_hot_regions").parse().unwrap();
            host.write("enabled", "N").unwrap();
            host.write("enabled", "Y").unwrap();
            host.run(1);
            let after: u64 = host.read("nr_lru_sorted_hot_regions").parse().unwrap();
            assert_eq!(after > before, profile != Profile::K60, "{}: {before}, then {after}", profile.name());
        }
    }

    #[test]
    fn addresses_and_bytes_are_in_the_unit() {
        let mut host = Host::new(Profile::K72);
        host.write("addr_unit", "4096").unwrap();
        host.write("monitor_region_end", "512").unwrap();
        host.write("enabled", "Y").unwrap();
        assert_eq!(host.module.kdamond().unwrap().monitor().size(), 512 * PAGE);
        host.run(2);
        let pages: u64 = host.read("bytes_lru_sorted_hot_regions").parse().unwrap();
        assert_eq!(pages, host.memory.sorted[0], "a page is a unit");
        let mut older = Host::new(Profile::K612);
        assert_eq!(older.write("addr_unit", "4096"), Err(WriteError::Unknown));
    }

    #[test]
    fn commit_inputs_is_taken_after_a_sleep_for_the_watermarks_too() {
        let mut host = Host::new(Profile::K612);
        host.memory.free = 900;
        host.write("enabled", "Y").unwrap();
        host.run(10);
        assert_eq!(host.memory.sorted, [0, 0], "plenty is free");
        for (name, value) in [("wmarks_high", "1000"), ("wmarks_mid", "999"), ("commit_inputs", "Y")] {
            host.write(name, value).unwrap();
        }
        host.run(20);
        assert!(host.memory.sorted[0] > 0 && host.read("commit_inputs") == "N");
    }
}
