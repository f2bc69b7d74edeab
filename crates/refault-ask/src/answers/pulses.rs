//! What kernels have answered about programs under a limit that pulses: a table that ships with this crate, a table of the
//! user's own in the cache, and the model beside them.
//!
//! ```
//! use refault_ask::answers::pulses::{Answer, shipped};
//!
//! assert!(shipped().iter().all(|answer| answer.counters.len() == 4)); // without pressure, with it, sorted, never sorted
//! ```

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use refault_core::classic::ClassicParams;
use refault_core::monitor::Profile;
use refault_lab::LabError;
use refault_lab::experiment::Values;
use refault_lab::experiments::lru_sort::pulsed::Outcome;
use refault_lab::experiments::lru_sort::{VARIANTS, Variant};

use super::{append, own_rows};
use crate::job::pulse::{COUNTERS, KDAMOND, Pulse};
use crate::job::{Counters, Lists};
use crate::kernel::version_of;

/// A kernel's answer about a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The kernel's release.
    pub kernel: String,
    /// Which lists.
    pub lists: Lists,
    /// What was asked.
    pub pulse: Pulse,
    /// How the guest was run: `kvm`, `emulation`.
    pub by: String,
    /// What was counted in each of [`VARIANTS`].
    pub counters: Vec<Counters>,
}

/// Bytes that guests have, for the model: what its monitor looks through.
const RAM: u64 = 384 << 20;
const KEYS: [&str; 9] = ["kernel", "lists", "program", "pages", "seconds", "seed", "swappiness", "by", "variant"];
const SHIPPED: &str = include_str!("../../data/pulses.csv");

impl Answer {
    /// A figure of a variant by its name of [`refault_lab::experiments::lru_sort::pulsed::METRICS`].
    pub fn metric(&self, variant: Variant, name: &str) -> Option<f64> {
        let counters = self.counters.get(VARIANTS.iter().position(|of| *of == variant)?)?;
        let value = |counter: &str| counters.get(counter).map(|value| *value as f64);
        match name {
            "runtime_seconds" => Some(value("run_us")? / 1e6),
            "pgmajfaults" => value("pgmajfault"),
            "memory_psi_some_us" => value("pressure_some_us"),
            "monitor_cpu" => Some(100.0 * value(KDAMOND)? / value("run_us")?.max(1.0)),
            _ => None,
        }
    }

    /// The figure under pressure without and with sorting; of the monitor, with it.
    pub fn values(&self, metric: &str) -> Option<Values> {
        let after = self.metric(Variant::Plrus, metric)?;
        if metric == "monitor_cpu" {
            return Some(Values::after_only(after));
        }
        Some(Values::of(self.metric(Variant::Mprs, metric)?, after))
    }

    /// What the model says of the same, without and with sorting; `None` for generations, which it has not under this limit.
    ///
    /// # Errors
    /// There is no such program.
    pub fn model(&self) -> Result<Option<Model>, LabError> {
        if self.lists == Lists::Generations {
            return Ok(None);
        }
        let pulsed = self.pulse.pulsed()?;
        let (profile, lists) = of_version(version_of(&self.kernel));
        let of = |variant| pulsed.model(variant, profile, lists, RAM);
        Ok(Some(Model { pressed: of(Variant::Mprs)?, sorted: of(Variant::Plrus)? }))
    }
}

/// What the model says of a program under pressure.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    pressed: Outcome,
    sorted: Outcome,
}

impl Model {
    /// As [`Answer::values`].
    pub fn values(&self, metric: &str) -> Option<Values> {
        let after = self.sorted.metric(metric)?;
        let is_level = metric == "monitor_cpu";
        Some(if is_level { Values::after_only(after) } else { Values::of(self.pressed.metric(metric)?, after) })
    }
}

/// The monitor and the classic lists of a kernel, by its version.
fn of_version(version: &str) -> (Profile, ClassicParams) {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    match (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) {
        (..6, _) | (6, ..=2) => {
            (Profile::K60, ClassicParams { batch: 15, plain_costs: true, ..ClassicParams::default() })
        }
        (6, _) => (Profile::K612, ClassicParams::default()),
        _ => (Profile::K72, ClassicParams::default()),
    }
}

/// The answers that ship with this crate.
pub fn shipped() -> &'static [Answer] {
    static ANSWERS: OnceLock<Vec<Answer>> = OnceLock::new();
    ANSWERS.get_or_init(|| read(SHIPPED.as_bytes()).expect("invariant: a test reads the table"))
}

fn own(cache: &Path) -> PathBuf {
    cache.join("pulses.csv")
}

/// The latest answer of a kernel (its release, or any of a version) on these lists: the user's own, or a shipped one.
///
/// # Errors
/// The user's table cannot be read.
pub fn find(cache: &Path, kernel: &str, lists: Lists, pulse: &Pulse) -> Result<Option<Answer>, LabError> {
    let kept = own_rows(&own(cache), read)?;
    let is_it = |answer: &&Answer| {
        let same_kernel = answer.kernel == kernel || version_of(&answer.kernel) == kernel;
        same_kernel && (answer.lists, &answer.pulse) == (lists, pulse)
    };
    Ok(shipped().iter().chain(&kept).rev().find(is_it).cloned())
}

/// Adds answers to the user's own.
///
/// # Errors
/// The table cannot be written.
pub fn keep(cache: &Path, answers: &[Answer]) -> Result<(), LabError> {
    append(&own(cache), |bytes, header| write(bytes, answers, header))
}

/// Writes answers as CSV: a row for each variant.
///
/// # Errors
/// They cannot be written.
pub fn write(out: &mut dyn Write, answers: &[Answer], header: bool) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    if header {
        csv.write_record(KEYS.iter().chain(&COUNTERS))?;
    }
    for answer in answers {
        for (variant, counters) in VARIANTS.iter().zip(&answer.counters) {
            let Pulse { program, pages, seconds, seed, swappiness } = &answer.pulse;
            let numbers = [pages, seconds, seed, swappiness].map(u64::to_string);
            let mut keys = vec![answer.kernel.clone(), answer.lists.name().to_owned(), program.clone()];
            keys.extend(numbers);
            keys.extend([answer.by.clone(), variant.name().to_owned()]);
            keys.extend(COUNTERS.iter().map(|name| counters.get(*name).map_or(String::new(), u64::to_string)));
            csv.write_record(keys)?;
        }
    }
    csv.flush()
}

fn read(table: impl std::io::Read) -> Result<Vec<Answer>, String> {
    let mut csv = csv::Reader::from_reader(table);
    let names = csv.headers().map_err(|error| error.to_string())?.clone();
    let mut answers: Vec<Answer> = Vec::new();
    for (at, record) in csv.records().enumerate() {
        let record = record.map_err(|error| error.to_string())?;
        let values: BTreeMap<&str, &str> = names.iter().zip(&record).collect();
        let text = |name: &str| values.get(name).copied().ok_or_else(|| format!("no column {name}"));
        let number = |name: &str| text(name)?.parse::<u64>().map_err(|_| format!("{name} is no number"));
        let counted = |name: &&str| Some(((*name).to_owned(), values.get(name)?.parse().ok()?));
        let variant = VARIANTS[at % VARIANTS.len()];
        if text("variant")? != variant.name() {
            return Err(format!("row {at} is not about {}", variant.name()));
        }
        if variant == VARIANTS[0] {
            let [pages, seconds, seed, swappiness] = ["pages", "seconds", "seed", "swappiness"].map(number);
            let pulse = Pulse {
                program: text("program")?.to_owned(),
                pages: pages?,
                seconds: seconds?,
                seed: seed?,
                swappiness: swappiness?,
            };
            let (kernel, lists, by) = (text("kernel")?.to_owned(), text("lists")?.parse()?, text("by")?.to_owned());
            answers.push(Answer { kernel, lists, pulse, by, counters: Vec::new() });
        }
        let answer = answers.last_mut().ok_or("no first row")?;
        answer.counters.push(COUNTERS.iter().filter_map(counted).collect());
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use refault_lab::experiments::lru_sort::pulsed::METRICS;

    fn answer(lists: Lists) -> Answer {
        let pulse = Pulse { program: "parsec3/vips".into(), pages: 1024, seconds: 12, seed: 1, swappiness: 60 };
        let counters = |at: u64| {
            let value = |name: &&str| ((*name).to_owned(), at * 1_000_000);
            COUNTERS.iter().map(value).collect()
        };
        let kernel = "6.12.9-amd64".into();
        Answer { kernel, lists, pulse, by: "emulation".into(), counters: (1..=4).map(counters).collect() }
    }

    #[test]
    fn answers_are_kept_and_found_again() {
        let cache = tempfile::tempdir().expect("a directory");
        let all = [answer(Lists::Classic), answer(Lists::Generations)];
        keep(cache.path(), &all[..1]).expect("kept");
        keep(cache.path(), &all[1..]).expect("kept");
        let of = |kernel, lists, pulse: &Pulse| find(cache.path(), kernel, lists, pulse).expect("a table");
        assert_eq!(of("6.12", Lists::Generations, &all[0].pulse), Some(all[1].clone()));
        assert_eq!(of("6.12.9-amd64", Lists::Classic, &all[0].pulse), Some(all[0].clone()));
        assert_eq!(of("6.1", Lists::Classic, &all[0].pulse), None);
        assert_eq!(of("6.12", Lists::Classic, &Pulse { seed: 2, ..all[0].pulse.clone() }), None);
        std::fs::write(own(cache.path()), "kernel,variant\n6.12,plrus\n").expect("written");
        assert!(find(cache.path(), "6.12", Lists::Classic, &all[0].pulse).is_err(), "the first row is orig's");
    }

    #[test]
    fn figures_are_of_pressure_without_and_with_sorting() {
        let answer = answer(Lists::Classic);
        assert_eq!(answer.values("runtime_seconds"), Some(Values::of(2.0, 3.0)));
        assert_eq!(answer.values("monitor_cpu"), Some(Values::after_only(100.0)));
        let model = answer.model().expect("modelled").expect("of classic lists");
        assert!(METRICS.iter().all(|(name, _)| model.values(name).is_some()));
        assert!(self::answer(Lists::Generations).model().expect("none").is_none());
        assert_eq!(of_version("6.1").0, Profile::K60);
    }

    /// Every shipped answer is whole: without pressure nothing is swapped in, the monitor that never acts moves nothing.
    #[test]
    fn the_shipped_table_is_whole() {
        for version in ["6.12", "7.2"] {
            for lists in [Lists::Classic, Lists::Generations] {
                let is_it = |answer: &&Answer| version_of(&answer.kernel) == version && answer.lists == lists;
                assert!(shipped().iter().any(|answer| is_it(&answer)), "{version}, {} lists", lists.name());
            }
        }
        for answer in shipped() {
            assert!(METRICS.iter().all(|(name, _)| answer.values(name).is_some()), "{answer:?}");
            let of = |variant: usize, name: &str| answer.counters[variant][name];
            assert_eq!((of(0, "pswpin"), of(3, "hot_bytes"), of(3, "cold_bytes")), (0, 0, 0), "{answer:?}");
            assert!((0..4).all(|variant| of(variant, "run_us") > 0), "{answer:?}");
            assert!(answer.pulse.pulsed().is_ok(), "{answer:?}");
        }
    }
}
