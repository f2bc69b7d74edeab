//! What kernels have answered: a table that ships with this crate, and a table of the user's own in the cache.
//!
//! An answer is known again by its kernel, its lists, the digest of the accesses, and what was asked of them.
//!
//! ```
//! use refault_ask::answers::{Answer, shipped};
//!
//! let first: &Answer = &shipped()[0];
//! assert!(first.counters["loads"] > 0);
//! ```

pub mod pulses;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use refault_lab::LabError;

use crate::job::{COUNTERS, Counters, Lists};
use crate::kernel::version_of;

/// A kernel's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The kernel's release, or as much of it as was noted.
    pub kernel: String,
    /// Which lists.
    pub lists: Lists,
    /// What the accesses are called.
    pub workload: String,
    /// Their digest.
    pub digest: u64,
    /// How many they are.
    pub accesses: u64,
    /// Pages that they touch.
    pub distinct: u64,
    /// Of the accesses at the start, not counted.
    pub warm_up: u64,
    /// Pages of data in memory.
    pub limit: u64,
    /// The inclination to swap.
    pub swappiness: u64,
    /// How the guest was run: `kvm`, `emulation`.
    pub by: String,
    /// What was counted; what was not is absent.
    pub counters: Counters,
}

const KEYS: [&str; 10] =
    ["kernel", "lists", "workload", "digest", "accesses", "distinct", "warm_up", "limit", "swappiness", "by"];
const SHIPPED: &str = include_str!("../data/answers.csv");

/// The answers that ship with this crate.
pub fn shipped() -> &'static [Answer] {
    static ANSWERS: OnceLock<Vec<Answer>> = OnceLock::new();
    ANSWERS.get_or_init(|| read(SHIPPED.as_bytes()).expect("invariant: a test reads the table"))
}

/// Where the user's own answers are.
fn own(cache: &Path) -> PathBuf {
    cache.join("answers.csv")
}

/// The user's own answers, none if there is no table.
///
/// # Errors
/// The table cannot be read.
pub fn kept(cache: &Path) -> Result<Vec<Answer>, LabError> {
    own_rows(&own(cache), read)
}

/// Adds answers to the user's own.
///
/// # Errors
/// The table cannot be written.
pub fn keep(cache: &Path, answers: &[Answer]) -> Result<(), LabError> {
    append(&own(cache), |bytes, header| write(bytes, answers, header))
}

/// The rows of a table of the user's own; none if there is no table yet.
fn own_rows<T>(path: &Path, read: impl FnOnce(std::fs::File) -> Result<Vec<T>, String>) -> Result<Vec<T>, LabError> {
    let Ok(file) = std::fs::File::open(path) else { return Ok(Vec::new()) };
    read(file).map_err(|why| LabError::failed(format!("damaged answers: {why}"), path.display(), "remove the file"))
}

/// Appends to a table of the user's own what `write` makes; it is told whether the table still needs its header.
fn append(path: &Path, write: impl FnOnce(&mut Vec<u8>, bool) -> std::io::Result<()>) -> Result<(), LabError> {
    let add = || -> std::io::Result<()> {
        std::fs::create_dir_all(path.parent().unwrap_or(path))?;
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        let mut bytes = Vec::new();
        write(&mut bytes, file.metadata()?.len() == 0)?;
        file.write_all(&bytes)
    };
    add().map_err(|error| {
        let remedy = "make room or set XDG_CACHE_HOME to a directory that can be written";
        LabError::failed(format!("cannot keep the answer: {error}"), path.display(), remedy)
    })
}

/// Writes answers as CSV.
///
/// # Errors
/// They cannot be written.
pub fn write(out: &mut dyn Write, answers: &[Answer], header: bool) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    if header {
        csv.write_record(KEYS.iter().chain(&COUNTERS))?;
    }
    for answer in answers {
        let keys = [
            answer.kernel.clone(),
            answer.lists.name().to_owned(),
            answer.workload.clone(),
            format!("{:016x}", answer.digest),
            answer.accesses.to_string(),
            answer.distinct.to_string(),
            answer.warm_up.to_string(),
            answer.limit.to_string(),
            answer.swappiness.to_string(),
            answer.by.clone(),
        ];
        let counters = COUNTERS.iter().map(|name| answer.counters.get(*name).map_or(String::new(), u64::to_string));
        csv.write_record(keys.into_iter().chain(counters))?;
    }
    csv.flush()
}

fn read(table: impl std::io::Read) -> Result<Vec<Answer>, String> {
    let mut csv = csv::Reader::from_reader(table);
    let names = csv.headers().map_err(|error| error.to_string())?.clone();
    let row = |record: csv::StringRecord| -> Result<Answer, String> {
        let values: BTreeMap<&str, &str> = names.iter().zip(&record).collect();
        let text = |name: &str| values.get(name).copied().ok_or_else(|| format!("no column {name}"));
        let number = |name: &str| text(name)?.parse::<u64>().map_err(|_| format!("{name} is no number"));
        let counted = |name: &&str| Some(((*name).to_owned(), values.get(name)?.parse().ok()?));
        Ok(Answer {
            kernel: text("kernel")?.to_owned(),
            lists: text("lists")?.parse()?,
            workload: text("workload")?.to_owned(),
            digest: u64::from_str_radix(text("digest")?, 16).map_err(|_| "digest is no number".to_owned())?,
            accesses: number("accesses")?,
            distinct: number("distinct")?,
            warm_up: number("warm_up")?,
            limit: number("limit")?,
            swappiness: number("swappiness")?,
            by: text("by")?.to_owned(),
            counters: COUNTERS.iter().filter_map(counted).collect(),
        })
    };
    csv.records().map(|record| row(record.map_err(|error| error.to_string())?)).collect()
}

/// What an answer is looked for by.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// A release (`6.12.117+deb13-amd64`), or a version (`6.12`): then any kernel of it.
    pub kernel: &'a str,
    /// Which lists.
    pub lists: Lists,
    /// The accesses' digest.
    pub digest: u64,
    /// Pages of data in memory.
    pub limit: u64,
    /// The inclination to swap.
    pub swappiness: u64,
    /// Accesses that are not counted.
    pub warm_up: u64,
}

impl Wanted<'_> {
    /// Whether an answer is to this question.
    pub fn is(&self, answer: &Answer) -> bool {
        let same_kernel = answer.kernel == self.kernel || version_of(&answer.kernel) == self.kernel;
        same_kernel
            && (answer.lists, answer.digest, answer.limit) == (self.lists, self.digest, self.limit)
            && (answer.swappiness, answer.warm_up) == (self.swappiness, self.warm_up)
    }

    /// The latest answer of several tables' rows.
    pub fn find<'a>(&self, answers: impl DoubleEndedIterator<Item = &'a Answer>) -> Option<&'a Answer> {
        answers.rev().find(|answer| self.is(answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(kernel: &str, loads: u64) -> Answer {
        Answer {
            kernel: kernel.into(),
            lists: Lists::Generations,
            workload: "fio:a,b".into(),
            digest: 0xfeed,
            accesses: 10,
            distinct: 5,
            warm_up: 2,
            limit: 3,
            swappiness: 60,
            by: "emulation".into(),
            counters: Counters::from([("loads".into(), loads)]),
        }
    }

    #[test]
    fn answers_are_kept_and_found_again() {
        let cache = tempfile::tempdir().expect("a directory");
        assert_eq!(kept(cache.path()).expect("none"), []);
        let all = [answer("6.12.9+deb13-amd64", 7), answer("6.12.117+deb13-amd64", 8), answer("7.2.1-amd64", 9)];
        keep(cache.path(), &all[..1]).expect("kept");
        keep(cache.path(), &all[1..]).expect("kept");
        let kept = kept(cache.path()).expect("a table");
        assert_eq!(kept, all);
        let wanted =
            |kernel| Wanted { kernel, lists: Lists::Generations, digest: 0xfeed, limit: 3, swappiness: 60, warm_up: 2 };
        let loads = |wanted: Wanted| wanted.find(kept.iter()).map(|answer| answer.counters["loads"]);
        assert_eq!((loads(wanted("6.12")), loads(wanted("6.12.9+deb13-amd64"))), (Some(8), Some(7)));
        assert_eq!((loads(wanted("6.1")), loads(Wanted { limit: 4, ..wanted("6.12") })), (None, None));
        assert_eq!(loads(Wanted { lists: Lists::Classic, ..wanted("6.12") }), None);
    }

    #[test]
    fn a_damaged_table_is_said() {
        let cache = tempfile::tempdir().expect("a directory");
        for damaged in ["kernel\n6.12\n", "kernel,lists\n6.12,neither\n", "a,b\n1\n"] {
            std::fs::write(own(cache.path()), damaged).expect("written");
            let said = kept(cache.path()).expect_err("damaged").to_string();
            assert!(said.contains("damaged answers") && said.contains("remove the file"), "{said}");
        }
    }

    /// The table that ships: every row has what it is found by, and no question has two answers of one kernel.
    #[test]
    fn the_shipped_table_is_whole() {
        let answers = shipped();
        for (at, answer) in answers.iter().enumerate() {
            assert!(answer.counters.contains_key("loads") && answer.limit > 0 && answer.digest != 0, "{answer:?}");
            assert!(answer.warm_up < answer.accesses && answer.distinct <= answer.accesses, "{answer:?}");
            let question = |other: &Answer| {
                let Answer { lists, digest, limit, swappiness, warm_up, .. } = *other;
                (other.kernel.clone(), lists, digest, limit, swappiness, warm_up)
            };
            let twice = answers[..at].iter().any(|other| question(other) == question(answer));
            assert!(!twice, "asked twice: {answer:?}");
        }
    }
}
