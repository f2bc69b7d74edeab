//! A program under a limit that pulses, as lines of text: a word and its value.
//!
//! ```
//! use refault_ask::job::pulse::Pulse;
//!
//! let pulse = Pulse { program: "parsec3/canneal".into(), pages: 4096, seconds: 22, seed: 1, swappiness: 60 };
//! assert_eq!(pulse.to_string().parse(), Ok(pulse));
//! ```

use std::fmt;
use std::str::FromStr;

use refault_lab::experiments::lru_sort::pulsed::Pulsed;

/// The first line, which tells this job from the others.
const FIRST: &str = "pulse";

/// Counters that an answer has, by the kernel's names where it has one: all are differences over a whole run. `oom` is how
/// often a charge or a limit found nothing to evict, after which the program faults again. Of the
/// monitor, its processor time and the bytes that its module says to have moved as hot and as cold.
pub const COUNTERS: [&str; 18] = [
    "run_us",
    "loads",
    "pswpin",
    "pswpout",
    "pgmajfault",
    "pgscan",
    "pgsteal",
    "pgactivate",
    "pgdeactivate",
    "workingset_refault_anon",
    "workingset_activate_anon",
    "pressure_some_us",
    "pressure_full_us",
    "oom",
    GIVEN_UP,
    KDAMOND,
    "hot_bytes",
    "cold_bytes",
];

/// How often the limit was not lowered, as nothing more could be evicted.
pub const GIVEN_UP: &str = "limits_given_up";
/// Processor time of the monitor's thread, in microseconds.
pub const KDAMOND: &str = "kdamond_us";

/// A program of the experiment, its limit at 75 % of its size for a second and at 200 % for ten, again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// One of [`refault_lab::experiments::lru_sort::pulsed::programs`].
    pub program: String,
    /// Its pages.
    pub pages: u64,
    /// Seconds of its own time after its memory is filled.
    pub seconds: u64,
    /// Of its random choices.
    pub seed: u64,
    /// The kernel's inclination to swap, 0 to 200.
    pub swappiness: u64,
}

impl Pulse {
    /// Whether a text is about such a program.
    pub fn is_told_by(text: &str) -> bool {
        text.lines().next() == Some(FIRST)
    }

    /// The program with its accesses, its model and what was published.
    ///
    /// # Errors
    /// There is no such program, or it is too small.
    pub fn pulsed(&self) -> Result<Pulsed, refault_lab::LabError> {
        Pulsed::new(&self.program, self.pages, self.seconds, self.seed)
    }

    fn numbers(&self) -> [(&'static str, u64); 4] {
        [("pages", self.pages), ("seconds", self.seconds), ("seed", self.seed), ("swappiness", self.swappiness)]
    }
}

impl fmt::Display for Pulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{FIRST}\nprogram {}", self.program)?;
        self.numbers().iter().try_for_each(|(name, value)| writeln!(f, "{name} {value}"))
    }
}

impl FromStr for Pulse {
    type Err = String;

    fn from_str(text: &str) -> Result<Pulse, String> {
        let mut lines = text.lines();
        if lines.next() != Some(FIRST) {
            return Err("no pulse".to_owned());
        }
        let mut pulse = Pulse::default();
        for line in lines {
            let (name, value) = line.split_once(' ').ok_or_else(|| format!("'{line}' has no value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("'{line}' has no number"));
            match name {
                "program" => pulse.program = value.to_owned(),
                "pages" => pulse.pages = number()?,
                "seconds" => pulse.seconds = number()?,
                "seed" => pulse.seed = number()?,
                "swappiness" => pulse.swappiness = number()?,
                _ => return Err(format!("'{name}' is nothing that a pulse has")),
            }
        }
        Ok(pulse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_pulse_is_refused() {
        for wrong in ["", "limit 1\n", "pulse\npages x\n", "pulse\nseconds\n", "pulse\ncolour 7\n"] {
            assert!(wrong.parse::<Pulse>().is_err(), "{wrong:?}");
        }
        assert!(Pulse::is_told_by("pulse\npages 7\n") && !Pulse::is_told_by("program\n"));
        assert!("pulse\npages 4096\n".parse::<Pulse>().expect("read").pulsed().is_err(), "it has no name");
    }
}
