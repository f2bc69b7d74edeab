//! What a guest is told to do and what it says: lines of text, a word and its value.

pub mod program;
pub mod pulse;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Counters that an answer has, by the kernel's names where it has one. All but the last two are differences over what
/// was counted.
pub const COUNTERS: [&str; 24] = [
    "loads",
    "file_reads",
    "pswpin",
    "pswpout",
    "first_touches",
    "pgscan",
    "pgsteal",
    "pgscan_kswapd",
    "pgscan_direct",
    "pgactivate",
    "pgdeactivate",
    "pgrefill",
    "pgmajfault",
    "workingset_refault_anon",
    "workingset_refault_file",
    "workingset_activate_anon",
    "workingset_activate_file",
    "workingset_restore_anon",
    "workingset_restore_file",
    "kswapd_us",
    "pressure_some_us",
    "pressure_full_us",
    "resident_anon",
    "resident_file",
];

/// Values by their names, of [`COUNTERS`].
pub type Counters = BTreeMap<String, u64>;

/// Which lists a kernel keeps pages on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lists {
    /// An active and an inactive list.
    Classic,
    /// The multi-gen LRU.
    Generations,
}

impl Lists {
    /// As in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Lists::Classic => "classic",
            Lists::Generations => "generations",
        }
    }
}

impl FromStr for Lists {
    type Err = String;

    fn from_str(text: &str) -> Result<Lists, String> {
        [Lists::Classic, Lists::Generations]
            .into_iter()
            .find(|lists| lists.name() == text)
            .ok_or_else(|| format!("'{text}' is neither classic nor generations"))
    }
}

/// A replay under a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Pages of data that may be in memory.
    pub limit: u64,
    /// The kernel's inclination to swap, 0 to 200.
    pub swappiness: u64,
    /// Pages of anonymous memory.
    pub anon: u64,
    /// Pages of the file.
    pub file: u64,
    /// Whether the file is read through a mapping, at least in part.
    pub mapped: bool,
    /// Accesses in all.
    pub accesses: u64,
    /// Of these at the start, not counted.
    pub warm_up: u64,
}

impl Job {
    /// Pages of the kernel's own that grow with the data and count against the limit: page tables, and nodes of the tree
    /// in which a file's pages are found.
    pub fn extra(&self) -> u64 {
        const TABLE: u64 = 512;
        /// Pages of a file for which a page's worth of nodes is taken: seven nodes of 64 entries.
        const NODES: u64 = 448;
        let tables = |pages: u64| pages / TABLE + 2;
        let anon = if self.anon > 0 { tables(self.anon) } else { 0 };
        let mapped = if self.mapped { tables(self.file) } else { 0 };
        4 + anon + self.file / NODES + mapped
    }

    fn fields(&self) -> [(&'static str, u64); 7] {
        [
            ("limit", self.limit),
            ("swappiness", self.swappiness),
            ("anon", self.anon),
            ("file", self.file),
            ("mapped", u64::from(self.mapped)),
            ("accesses", self.accesses),
            ("warm_up", self.warm_up),
        ]
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fields().iter().try_for_each(|(name, value)| writeln!(f, "{name} {value}"))
    }
}

impl FromStr for Job {
    type Err = String;

    fn from_str(text: &str) -> Result<Job, String> {
        let mut values = BTreeMap::new();
        for line in text.lines() {
            let (name, value) = line.split_once(' ').ok_or_else(|| format!("'{line}' has no value"))?;
            values.insert(name, value.parse::<u64>().map_err(|_| format!("'{line}' has no number"))?);
        }
        let value = |name: &str| values.get(name).copied().ok_or_else(|| format!("no {name}"));
        Ok(Job {
            limit: value("limit")?,
            swappiness: value("swappiness")?,
            anon: value("anon")?,
            file: value("file")?,
            mapped: value("mapped")? != 0,
            accesses: value("accesses")?,
            warm_up: value("warm_up")?,
        })
    }
}

/// A line of the guest's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// It runs.
    Begun,
    /// This many accesses of a run are done, or a program has run for this many seconds.
    Done(u64),
    /// A counter of the run.
    Counted(String, u64),
    /// A line that a program wrote.
    Printed(String),
    /// A run is over.
    Ended,
    /// Something failed.
    Failed(String),
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Said::Begun => write!(f, "begun"),
            Said::Done(accesses) => write!(f, "done {accesses}"),
            Said::Counted(name, value) => write!(f, "count {name} {value}"),
            Said::Printed(line) => write!(f, "printed {}", line.replace('\n', " ")),
            Said::Ended => write!(f, "ended"),
            Said::Failed(why) => write!(f, "failed {}", why.replace('\n', " ")),
        }
    }
}

impl FromStr for Said {
    type Err = ();

    fn from_str(line: &str) -> Result<Said, ()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "begun" => Ok(Said::Begun),
            "done" => rest.parse().map(Said::Done).map_err(|_| ()),
            "count" => {
                let (name, value) = rest.split_once(' ').ok_or(())?;
                Ok(Said::Counted(name.to_owned(), value.parse().map_err(|_| ())?))
            }
            "printed" => Ok(Said::Printed(rest.to_owned())),
            "ended" => Ok(Said::Ended),
            "failed" => Ok(Said::Failed(rest.to_owned())),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_lines_are_read_as_they_are_written() {
        let job = Job { limit: 100, swappiness: 60, anon: 1024, file: 448, mapped: true, accesses: 9, warm_up: 3 };
        assert_eq!(job.to_string().parse(), Ok(job.clone()));
        assert_eq!(job.extra(), 4 + 4 + 1 + 2);
        assert!(
            "limit".parse::<Job>().is_err() && "limit x".parse::<Job>().is_err() && "limit 1".parse::<Job>().is_err()
        );
        let lines = [
            Said::Begun,
            Said::Done(7),
            Said::Counted("pgscan".into(), 8),
            Said::Printed("IOPS=12k, BW=3MiB/s".into()),
            Said::Ended,
            Said::Failed("it is so".into()),
        ];
        for line in lines {
            assert_eq!(line.to_string().parse(), Ok(line));
        }
        assert!("[    0.1] the kernel's".parse::<Said>().is_err() && "done x".parse::<Said>().is_err());
        assert!("mglru".parse::<Lists>().is_err());
    }
}
