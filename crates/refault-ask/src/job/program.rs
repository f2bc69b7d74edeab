//! A program that a guest runs under a limit, as lines of text: a word and its value.
//!
//! ```
//! use refault_ask::job::program::Program;
//!
//! let program = Program { limit: 24 << 20, arguments: vec!["/bin/true".into()], ..Program::default() };
//! assert_eq!(program.to_string().parse(), Ok(program));
//! ```

use std::fmt;
use std::str::FromStr;

use super::COUNTERS;

/// The first line, which tells this job from a replay.
const FIRST: &str = "program";
/// Counters of a program that a replay does not have.
const OWN: [&str; 6] = ["run_us", "cpu_us", "peak_bytes", "file_writes", "pgfault", "oom_kill"];
/// Counters of a replay that a program does not have.
const OF_REPLAYS: [&str; 1] = ["first_touches"];
/// How a program ended is said as one of these two, beside its counters.
pub const EXIT_STATUS: &str = "exit_status";
/// The number of the signal that killed it.
pub const SIGNAL: &str = "signal";

/// Counters that an answer about a program has: the kernel's as for a replay, by the whole group, and before them how
/// long it ran in the guest's time and on its processor, in microseconds, the most bytes that its group was charged,
/// pages written to the disk, faults, and processes killed for want of memory.
pub fn counters() -> impl Iterator<Item = &'static str> {
    OWN.into_iter().chain(COUNTERS.into_iter().filter(|name| !OF_REPLAYS.contains(name)))
}

/// A program under a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// `memory.max` of its group, in bytes.
    pub limit: u64,
    /// Bytes of compressed swap.
    pub swap: u64,
    /// The kernel's inclination to swap, 0 to 200.
    pub swappiness: u64,
    /// Where it runs, in the guest's own tree of files.
    pub directory: String,
    /// The program's file by its whole path, and its arguments.
    pub arguments: Vec<String>,
    /// `NAME=value`.
    pub environment: Vec<String>,
}

impl Program {
    /// Whether a text is about a program, not a replay.
    pub fn is_told_by(text: &str) -> bool {
        text.lines().next() == Some(FIRST)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{FIRST}")?;
        for (name, value) in [("limit", self.limit), ("swap", self.swap), ("swappiness", self.swappiness)] {
            writeln!(f, "{name} {value}")?;
        }
        writeln!(f, "directory {}", on_one_line(&self.directory))?;
        for (name, values) in [("argument", &self.arguments), ("environment", &self.environment)] {
            values.iter().try_for_each(|value| writeln!(f, "{name} {}", on_one_line(value)))?;
        }
        Ok(())
    }
}

impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Program, String> {
        let mut lines = text.lines();
        if lines.next() != Some(FIRST) {
            return Err("no program".to_owned());
        }
        let mut program = Program::default();
        for line in lines {
            let (name, value) = line.split_once(' ').ok_or_else(|| format!("'{line}' has no value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("'{line}' has no number"));
            match name {
                "limit" => program.limit = number()?,
                "swap" => program.swap = number()?,
                "swappiness" => program.swappiness = number()?,
                "directory" => program.directory = as_it_was(value),
                "argument" => program.arguments.push(as_it_was(value)),
                "environment" => program.environment.push(as_it_was(value)),
                _ => return Err(format!("'{name}' is nothing that a program has")),
            }
        }
        if program.arguments.is_empty() { Err("no argument".to_owned()) } else { Ok(program) }
    }
}

/// A value without ends of lines.
fn on_one_line(value: &str) -> String {
    value.replace('\\', r"\\").replace('\n', r"\n").replace('\r', r"\r")
}

fn as_it_was(line: &str) -> String {
    let mut value = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let meant = if character == '\\' { characters.next() } else { None };
        value.push(match meant {
            Some('n') => '\n',
            Some('r') => '\r',
            Some(other) => other,
            None => character,
        });
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_read_as_they_are_written() {
        let script = "memcached -u root &\nsleep 1\r\n printf 'a\\nb' \\\\n ; echo $HOME ";
        let program = Program {
            limit: 24 << 20,
            swap: 1 << 30,
            swappiness: 60,
            directory: "/home/a b".into(),
            arguments: ["/bin/sh", "-c", script, "", "\\"].map(str::to_owned).to_vec(),
            environment: vec!["PATH=/usr/bin:/bin".into(), "EMPTY=".into()],
        };
        let text = program.to_string();
        assert_eq!(text.parse(), Ok(program));
        assert!(Program::is_told_by(&text) && !Program::is_told_by("limit 7\n"));
        for wrong in ["", "limit 1\n", "program\n", "program\nlimit x\nargument a\n", "program\ncolour red\n"] {
            assert!(wrong.parse::<Program>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_program_has_a_replays_counters_and_its_own() {
        let names: Vec<&str> = counters().collect();
        assert_eq!(names.len(), COUNTERS.len() + OWN.len() - OF_REPLAYS.len());
        assert!(names.contains(&"loads") && names.contains(&"oom_kill") && !names.contains(&"first_touches"));
    }
}
