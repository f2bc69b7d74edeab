//! One program of the experiment at any size, as a real kernel is asked about it: its accesses, for those who make
//! them, and what was published. It also has what the model says of the same law on the classic lists of that kernel.
//!
//! The module `damon_lru_sort` sorts, with [`sorting`]'s parameters: the document's thresholds, and its two quotas as
//! the one that the module halves.
//!
//! ```
//! use refault_lab::experiments::lru_sort::{Variant, pulsed::Pulsed};
//!
//! let pulsed = Pulsed::new("parsec3/freqmine", 4096, 22, 1)?;
//! let mut filled = 0;
//! let mut accesses = pulsed.accesses();
//! accesses.touches(0, accesses.filled_at(), &mut |_| filled += 1);
//! assert_eq!(filled, 4096);
//! assert!(pulsed.published("pgmajfaults").is_some_and(|values| values.ratio.is_some()));
//! # Ok::<(), refault_lab::LabError>(())
//! ```

use refault_core::classic::ClassicParams;
use refault_core::monitor::Profile;
use refault_core::schemes::SchemeSettings;
use refault_core::schemes::modules::lru_sort::LruSort;
use refault_core::schemes::modules::{Common, ModuleWatermarks};
use refault_sim::monitoring::costs::Costs;

pub use super::host::Outcome;
use super::host::{CHUNK, Host, Setup, WRITER_TRIES};
use super::program::Program;
use super::published::TABLE;
use super::workloads::WORKLOADS;
use super::{CYCLE, Variant};
use crate::LabError;
use crate::experiment::Values;

/// What is measured of a program, by the names of the experiment's rows, with units.
pub const METRICS: [(&str, &str); 4] = [
    ("runtime_seconds", "s"),
    ("pgmajfaults", "faults"),
    ("memory_psi_some_us", "us"),
    ("monitor_cpu", "% of one CPU"),
];

/// Times as long as the run takes that a model's run may take before the rest is extrapolated.
const MAX_SLOW_DOWN: f64 = 20.0;
const PAGE: u64 = 4096;
const SECOND: u64 = 1_000_000_000;

/// A program at a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulsed {
    /// Which of [`programs`].
    at: usize,
    /// Its pages, 64 to 2^22 (16 GiB).
    pub pages: u64,
    /// Seconds of its own time after its memory is filled, 1 to 3,600.
    pub seconds: u64,
    /// Of all random choices.
    pub seed: u64,
}

/// The names of the programs.
pub fn programs() -> impl Iterator<Item = &'static str> {
    WORKLOADS.iter().map(|workload| workload.name)
}

/// The pages that a program has in the document.
pub fn published_pages(name: &str) -> Option<u64> {
    TABLE.iter().find(|row| row.name == name).map(|row| row.rss_kib / 4)
}

/// The module's parameters that make it sort as the document's schemes do: prioritise from 20 % of the checks on,
/// deprioritise after 5 s without one, 20 ms of each second for each, however much memory is free.
pub fn sorting() -> LruSort {
    LruSort {
        common: Common::default(),
        hot_thres_access_freq: 200,
        cold_min_age: 5_000_000,
        quota_ms: 40,
        quota_reset_interval_ms: 1000,
        wmarks: ModuleWatermarks { wmarks_interval: 5_000_000, wmarks_high: 1000, wmarks_mid: 999, wmarks_low: 0 },
        ..LruSort::default()
    }
}

impl Pulsed {
    /// A program by its name in the document.
    ///
    /// # Errors
    /// There is none of that name, or pages or seconds are out of their ranges.
    pub fn new(name: &str, pages: u64, seconds: u64, seed: u64) -> Result<Pulsed, LabError> {
        const MIN_PAGES: u64 = 64;
        const MAX_PAGES: u64 = 1 << 22;
        const MAX_SECONDS: u64 = 3600;
        let Some(at) = programs().position(|program| program == name) else {
            let names: Vec<&str> = programs().collect();
            return Err(LabError::request(
                "no program of the experiment",
                name,
                format!("name one of {}", names.join(", ")),
            ));
        };
        if !(MIN_PAGES..=MAX_PAGES).contains(&pages) || !(1..=MAX_SECONDS).contains(&seconds) {
            let remedy = format!("{MIN_PAGES} to {MAX_PAGES} pages, 1 to {MAX_SECONDS} s");
            return Err(LabError::request(
                "no size that a program can have",
                format_args!("{pages} pages, {seconds} s"),
                remedy,
            ));
        }
        Ok(Pulsed { at, pages, seconds, seed })
    }

    /// The program's name.
    pub fn name(&self) -> &'static str {
        WORKLOADS[self.at].name
    }

    /// The program's accesses.
    pub fn accesses(&self) -> Program {
        let fill = 0.5 + (self.pages * PAGE) as f64 / f64::from(1 << 30);
        Program::new(self.pages, fill, WORKLOADS[self.at].phases, self.seed)
    }

    /// Nanoseconds of the program's own time until it ends.
    pub fn length(&self) -> u64 {
        self.accesses().filled_at() + self.seconds * SECOND
    }

    /// What the document says of a metric, under pressure without sorting and with it; of the monitor, with it.
    pub fn published(&self, metric: &str) -> Option<Values> {
        let row = &TABLE[self.at];
        match metric {
            "runtime_seconds" => Some(Values::of(row.runtime[1], row.runtime[2])),
            "pgmajfaults" => Some(Values::of(row.major_faults[0], row.major_faults[1])),
            "memory_psi_some_us" => Some(Values::of(row.stall_ms[0] * 1000.0, row.stall_ms[1] * 1000.0)),
            "monitor_cpu" => Some(Values::after_only(row.worker_percent)),
            _ => None,
        }
    }

    /// What the model says: classic lists of a kernel (`lists`) that sorts by `profile`, in a machine of `ram` bytes.
    ///
    /// # Errors
    /// The profile refuses the module's parameters.
    pub fn model(
        &self,
        variant: Variant,
        profile: Profile,
        lists: ClassicParams,
        ram: u64,
    ) -> Result<Outcome, LabError> {
        let refused = |error: &dyn std::fmt::Display| LabError::request(error, profile.name(), "name another kernel");
        let (_, schemes) = sorting().build(profile).map_err(|error| refused(&error))?;
        let settings: Vec<SchemeSettings> = schemes.iter().map(|scheme| scheme.settings().clone()).collect();
        let monitor = match variant {
            Variant::Orig | Variant::Mprs => None,
            Variant::Plrus => Some((profile, &settings[..])),
            Variant::Null => Some((profile, &settings[..0])),
        };
        let chunks = ram.div_ceil(CHUNK).max((self.pages * PAGE).div_ceil(CHUNK));
        let setup = Setup {
            factor: 1,
            resident_size: self.pages,
            length: self.length(),
            cycle: (variant != Variant::Orig).then_some(CYCLE),
            monitor,
            writer_tries: WRITER_TRIES,
            costs: Costs::default(),
            wall_limit: self.length() as f64 / SECOND as f64 * MAX_SLOW_DOWN,
            ram: chunks * CHUNK,
            lists,
            seed: self.seed ^ 0x5eed,
        };
        Host::new(self.accesses(), setup).run().map_err(|error| refused(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_modelled_at_its_size() {
        let pulsed = Pulsed::new("parsec3/canneal", 2048, 33, 1).expect("a program");
        let of = |variant| pulsed.model(variant, Profile::K612, ClassicParams::default(), 256 << 20).expect("modelled");
        let [orig, mprs] = [Variant::Orig, Variant::Mprs].map(of);
        assert_eq!(orig.major_faults, 0.0);
        assert!(mprs.major_faults > 512.0 && mprs.runtime > orig.runtime, "{mprs:?}");
        let sorted = of(Variant::Plrus);
        assert!(sorted.metric("monitor_cpu").is_some_and(|percent| percent > 0.0), "{sorted:?}");
        assert!(METRICS.iter().all(|(name, _)| pulsed.published(name).is_some() && sorted.metric(name).is_some()));
    }

    #[test]
    fn what_is_no_program_is_refused() {
        let said = Pulsed::new("parsec3/ferret", 2048, 33, 1).expect_err("none").to_string();
        assert!(said.contains("parsec3/canneal"), "{said}");
        for (pages, seconds) in [(8, 33), (64, 0), (1 << 40, 33), (64, u64::MAX)] {
            assert!(Pulsed::new("parsec3/canneal", pages, seconds, 1).is_err(), "{pages} {seconds}");
        }
    }
}
