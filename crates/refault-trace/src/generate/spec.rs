//! Specifications of workloads: `name:key=value,key=value`.

use std::fmt;
use std::str::FromStr;

use super::fio::{self, FioJobs};
use super::workload::{Generator, Parameter, workloads};
use crate::similar::or_meant;
use crate::{Entry, Kind, TraceError};

/// Pages a workload that permutes or weighs them may have: its tables take up to 20 bytes per page.
const MAX_TABLE_PAGES: u64 = 1 << 28;
/// Accesses of a workload at most, some months of work.
const MAX_ACCESSES: u64 = 1 << 43;
const MAX_PHASES: u64 = 1 << 20;
const MAX_THETA: f64 = 10.0;

/// The exponent of a Zipf distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Exponent {
    /// A multiple of 1/5, for which tables are the same on every machine.
    Fifths(u8),
    /// Any other number.
    Real(f64),
}

impl Exponent {
    /// `theta` in fifths if it is a multiple of 0.2. It must be from 0 to 10.
    pub fn new(theta: f64) -> Exponent {
        let fifths = (theta * 5.0).round();
        if (theta * 5.0 - fifths).abs() < 1e-9 { Exponent::Fifths(fifths as u8) } else { Exponent::Real(theta) }
    }

    /// As a number.
    pub fn theta(self) -> f64 {
        match self {
            Exponent::Fifths(fifths) => f64::from(fifths) / 5.0,
            Exponent::Real(theta) => theta,
        }
    }
}

/// A workload with all its parameters. Those that the generator does not take have their defaults and mean nothing.
///
/// From text by [`FromStr`]: `zipf:theta=1.2,pages=256K,accesses=10M`; numbers take the suffixes K, M and G (powers of
/// 1024). [`fmt::Display`] gives the canonical text, which parses to the same workload.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadSpec {
    /// How pages are chosen.
    pub generator: Generator,
    /// Pages to choose from.
    pub pages: u64,
    /// Length of the trace.
    pub accesses: u64,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Kind of the accesses, where the generator does not say.
    pub kind: Kind,
    /// Exponent of the Zipf distribution.
    pub theta: Exponent,
    /// Pages of the hot set.
    pub hot: u64,
    /// Hot sets over the length of the trace.
    pub phases: u64,
    /// Pages of the stream between two reads of a page.
    pub gap: u64,
    /// How often the hot set is read first.
    pub rounds: u64,
    /// Share of the accesses that go to the hot set or to anonymous memory, in 16ths.
    pub hot_sixteenths: u64,
    /// Share of the accesses to anonymous memory that write, in 16ths.
    pub write_sixteenths: u64,
    /// Pages of anonymous memory, where there are two types.
    pub anon_pages: u64,
    /// Pages of the file, where there are two types.
    pub file_pages: u64,
    /// fio's options, of which `pages` and `accesses` follow there; `seed` is the number of fio's first thread.
    pub fio: FioJobs,
}

impl WorkloadSpec {
    /// A workload with its defaults.
    pub fn new(generator: Generator) -> WorkloadSpec {
        let pages = 1 << 16;
        let mut spec = WorkloadSpec {
            generator,
            pages,
            accesses: 1_000_000,
            seed: 1,
            kind: Kind::Anon,
            theta: Exponent::Fifths(5),
            hot: pages / 8,
            phases: 1,
            gap: 64,
            rounds: 8,
            hot_sixteenths: 12,
            write_sixteenths: 0,
            anon_pages: pages / 2,
            file_pages: pages / 2,
            fio: FioJobs::default(),
        };
        if generator == Generator::Fio {
            spec.kind = Kind::Fd;
            spec.settle_fio();
        }
        spec
    }

    /// Sets what follows from fio's options.
    fn settle_fio(&mut self) {
        self.fio.settle();
        (self.pages, self.accesses) = (self.fio.pages(), self.fio.accesses());
    }

    /// Whether the generator takes a parameter.
    pub(crate) fn takes(&self, name: &str) -> bool {
        self.generator.workload().parameters.iter().any(|parameter| parameter.name == name)
    }

    /// Says what is wrong with the numbers taken together, if anything.
    pub(crate) fn check(&self) -> Result<(), String> {
        let between = |name: &str, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(format!("{name} must be from {low} to {high}, not {value}"))
        };
        if self.generator == Generator::Fio {
            self.fio.check()?;
            between("thread", self.seed, 1, u64::from(u32::MAX))?;
            between("pages of all files", self.pages, 1, Entry::MAX_PAGE)?;
        }
        between("accesses", self.accesses, 1, MAX_ACCESSES)?;
        between("writes", self.write_sixteenths, 0, 16)?;
        between("hot_share", self.hot_sixteenths, 0, 16)?;
        let theta = self.theta.theta();
        if !(0.0..=MAX_THETA).contains(&theta) {
            return Err(format!("theta must be from 0 to {MAX_THETA}, not {theta}"));
        }
        let table = matches!(self.generator, Generator::Zipf | Generator::HotCold | Generator::Mixed);
        let most = if table { MAX_TABLE_PAGES } else { Entry::MAX_PAGE };
        if self.takes("pages") {
            between("pages", self.pages, 1, most)?;
        }
        if self.takes("apages") {
            between("apages", self.anon_pages, 1, most)?;
            between("fpages", self.file_pages, 1, Entry::MAX_PAGE)?;
        }
        match self.generator {
            Generator::HotCold => between("hot", self.hot, 1, self.pages)?,
            Generator::ScanHot | Generator::TwoPass | Generator::HotThenCyclic
                if !(1..self.pages).contains(&self.hot) =>
            {
                return Err(format!("hot must be at least 1 and below pages ({}), not {}", self.pages, self.hot));
            }
            _ => {}
        }
        between("phases", self.phases, 1, MAX_PHASES)?;
        between("gap", self.gap, 0, Entry::MAX_PAGE)?;
        between("rounds", self.rounds, 0, u64::from(u32::MAX))
    }

    fn set(&mut self, parameter: &Parameter, key: &str, value: &str) -> Result<(), String> {
        let wrong = |expected: &str| format!("{key}={value}: {expected}");
        let number = || whole(value).ok_or_else(|| wrong("expected a whole number, as 65536, 64K or 1M"));
        match parameter.name {
            "thread" => self.seed = number()?,
            "kind" => self.kind = kind(value).ok_or_else(|| wrong("kinds are anon, fd and mapped"))?,
            name if self.generator == Generator::Fio => self.fio.set(name, value)?,
            "pages" => self.pages = number()?,
            "accesses" => self.accesses = number()?,
            "seed" => self.seed = number()?,
            "hot" => self.hot = number()?,
            "phases" => self.phases = number()?,
            "gap" => self.gap = number()?,
            "rounds" => self.rounds = number()?,
            "apages" => self.anon_pages = number()?,
            "fpages" => self.file_pages = number()?,
            "theta" if key == "s5" => {
                let fifths = number()?;
                let fifths = u8::try_from(fifths).map_err(|_| wrong("must be from 0 to 50"))?;
                self.theta = Exponent::Fifths(fifths);
            }
            "theta" => {
                let theta: f64 = value.parse().map_err(|_| wrong("expected a number such as 0.99"))?;
                if !(0.0..=MAX_THETA).contains(&theta) {
                    return Err(wrong("must be from 0 to 10"));
                }
                self.theta = Exponent::new(theta);
            }
            name @ ("writes" | "hot_share") => {
                let share = if key == name { sixteenths(value) } else { whole(value).filter(|share| *share <= 16) };
                let share = share.ok_or_else(|| {
                    wrong(if key == name {
                        "expected a multiple of 1/16 from 0 to 1, as 0.25"
                    } else {
                        "must be from 0 to 16"
                    })
                })?;
                *(if name == "writes" { &mut self.write_sixteenths } else { &mut self.hot_sixteenths }) = share;
            }
            name => unreachable!("invariant: parameter {name} is listed"),
        }
        Ok(())
    }

    fn parse(text: &str) -> Result<WorkloadSpec, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let Some(workload) = workloads().iter().find(|workload| workload.name == name.trim()) else {
            let names: Vec<_> = workloads().iter().map(|workload| workload.name).collect();
            let meant = or_meant(name.trim(), &names, "there are");
            return Err(format!("no workload is called '{}': {meant}", name.trim()));
        };
        let mut spec = WorkloadSpec::new(workload.generator);
        spec.fio.unsettle();
        let (mut hot_given, mut seen) = (false, Vec::new());
        let mut total = None;
        for item in rest.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let flag = (spec.generator == Generator::Fio && item == "norandommap").then_some((item, "1"));
            let Some((key, value)) = item.split_once('=').or(flag) else {
                return Err(format!("'{item}' is not of the form key=value"));
            };
            let (key, value) = (key.trim(), value.trim());
            let named = |parameter: &&Parameter| parameter.name == key || parameter.aliases.contains(&key);
            let Some(parameter) = workload.parameters.iter().find(named) else {
                if spec.generator == Generator::Fio
                    && let Some(reason) = fio::refusal(key)
                {
                    return Err(format!("{key} {reason}"));
                }
                if key == "pages" && spec.takes("apages") {
                    // The sum of the two types, as the published generator takes it.
                    total = Some(whole(value).ok_or_else(|| format!("{key}={value}: expected a whole number"))?);
                    continue;
                }
                let keys: Vec<_> = workload.parameters.iter().map(|parameter| parameter.name).collect();
                let meant = or_meant(key, &keys, "it takes");
                return Err(format!("'{}' has no parameter '{key}': {meant}", workload.name));
            };
            if seen.contains(&parameter.name) {
                return Err(format!("{key} is given twice"));
            }
            seen.push(parameter.name);
            spec.set(parameter, key, value)?;
            hot_given |= parameter.name == "hot";
        }
        spec.fio.settle();
        if spec.generator == Generator::Fio {
            spec.settle_fio();
        }
        if !hot_given && spec.generator != Generator::Fio {
            spec.hot = (spec.pages / 8).max(1);
        }
        if let Some(total) = total
            && Some(total) != spec.anon_pages.checked_add(spec.file_pages)
        {
            return Err(format!("pages={total} is not apages + fpages; leave it out"));
        }
        spec.check()?;
        Ok(spec)
    }
}

impl FromStr for WorkloadSpec {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<WorkloadSpec, TraceError> {
        WorkloadSpec::parse(text).map_err(|reason| TraceError::Workload { spec: text.to_owned(), reason })
    }
}

impl fmt::Display for WorkloadSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workload = self.generator.workload();
        write!(f, "{}", workload.name)?;
        for (index, parameter) in workload.parameters.iter().enumerate() {
            write!(f, "{}{}=", if index == 0 { ':' } else { ',' }, parameter.name)?;
            match parameter.name {
                "thread" => write!(f, "{}", self.seed)?,
                "kind" => write!(f, "{}", self.kind.name())?,
                name if self.generator == Generator::Fio => self.fio.write(name, f)?,
                "pages" => write!(f, "{}", self.pages)?,
                "accesses" => write!(f, "{}", self.accesses)?,
                "seed" => write!(f, "{}", self.seed)?,
                "hot" => write!(f, "{}", self.hot)?,
                "phases" => write!(f, "{}", self.phases)?,
                "gap" => write!(f, "{}", self.gap)?,
                "rounds" => write!(f, "{}", self.rounds)?,
                "apages" => write!(f, "{}", self.anon_pages)?,
                "fpages" => write!(f, "{}", self.file_pages)?,
                "theta" => write!(f, "{}", self.theta.theta())?,
                "writes" => write!(f, "{}", self.write_sixteenths as f64 / 16.0)?,
                "hot_share" => write!(f, "{}", self.hot_sixteenths as f64 / 16.0)?,
                name => unreachable!("invariant: parameter {name} is listed"),
            }
        }
        Ok(())
    }
}

fn kind(text: &str) -> Option<Kind> {
    match text {
        "0" => Some(Kind::Anon),
        "1" => Some(Kind::Fd),
        "2" => Some(Kind::Mapped),
        _ => Kind::from_name(text),
    }
}

/// A whole number with an optional suffix.
fn whole(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 10),
        b'M' | b'm' => (&text[..text.len() - 1], 20),
        b'G' | b'g' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// A share in 16ths.
fn sixteenths(text: &str) -> Option<u64> {
    let share: f64 = text.parse().ok()?;
    let share = share * 16.0;
    ((0.0..=16.0).contains(&share) && share.fract() == 0.0).then_some(share as u64)
}
