//! fio's jobs as a workload: the blocks that fio 3.33 asks for with the same options, in the same order for each job.
//!
//! Options have fio's names and defaults, except for those that only concern how I/O is made; these are not taken. The
//! order among jobs is one block of each in turn, which real threads keep only on average. [`draws`] are the random
//! numbers, [`distribution`] the laws as text, [`blocks`] the laws at work, [`reader`] the accesses.
//!
//! Source: fio's documentation and its logs of I/O (`--write_iolog`), which the tests compare with.

mod blocks;
mod distribution;
mod draws;
mod reader;

use std::fmt;

use self::blocks::Blocks;
use self::distribution::Distribution;
pub(crate) use self::reader::FioReader;
use super::workload::Parameter;

/// Bytes of a page.
const PAGE: u64 = 4096;
const MAX_JOBS: u64 = 1 << 16;
/// Blocks of all files together of which each is asked for once per pass: the tables take four bytes for each.
const MAX_MAPPED: u64 = 1 << 28;
const MIN_BLOCK_SIZE: u64 = 512;
/// Below this number of blocks fio's normal law may look for a block for ever.
const MIN_NORMAL_BLOCKS: u64 = 64;

/// The options of a fio job and its clones.
#[derive(Clone, Debug, PartialEq)]
pub struct FioJobs {
    direction: Direction,
    law: Distribution,
    /// Bytes that are asked for at a time.
    block_size: u64,
    /// Bytes of each file that are read, from `offset` on.
    size: u64,
    /// Bytes that a job asks for, 0 for `size`.
    io_size: u64,
    /// Requests of a job at most, 0 for no limit.
    number_ios: u64,
    loops: u64,
    offset: u64,
    numjobs: u64,
    /// Only the blocks of this one, counted from 0.
    job: Option<u64>,
    norandommap: bool,
    name: String,
    filename: String,
    directory: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Direction {
    Read,
    Write,
    RandRead,
    RandWrite,
}

const DIRECTIONS: [(&str, Direction); 4] = [
    ("read", Direction::Read),
    ("write", Direction::Write),
    ("randread", Direction::RandRead),
    ("randwrite", Direction::RandWrite),
];

impl Direction {
    fn writes(self) -> bool {
        matches!(self, Direction::Write | Direction::RandWrite)
    }

    fn random(self) -> bool {
        matches!(self, Direction::RandRead | Direction::RandWrite)
    }
}

/// An option of fio's: its meaning and what it is if not given.
const fn option(name: &'static str, meaning: &'static str, default: &'static str) -> Parameter {
    Parameter { name, aliases: &[], meaning, default }
}

/// What a specification may say beside `kind`.
pub(super) const PARAMETERS: &[Parameter] = &[
    option("rw", "randread, randwrite, read or write", "randread"),
    option("random_distribution", "random, zipf:T, pareto:P, normal:D, zoned:A/S:... as fio has them", "random"),
    option("bs", "bytes of a request: a multiple of 4096 or a divisor of it", "4k"),
    option("size", "bytes of each file that are asked for", "256m"),
    option("io_size", "bytes that a job asks for in all", "size"),
    option("number_ios", "requests of a job at most, 0: no limit", "0"),
    option("loops", "how often a job is done", "1"),
    option("offset", "where in each file the bytes begin", "0"),
    option("numjobs", "jobs, each with a file NAME.JOB.0", "1"),
    option("norandommap", "1: random blocks may repeat before all were asked for", "0"),
    option("name", "the job's name, of which its files' names are made", "refault"),
    option("filename", "one file for all jobs; the laws zipf, pareto and normal depend on the name", "none"),
    option("directory", "folder of the files, a part of their names", "none"),
    option("job", "only the blocks of this job, from 0", "all"),
    option("thread", "fio's number of the first job's thread", "1"),
    Parameter { name: "kind", aliases: &["type"], meaning: "anon, fd or mapped", default: "fd" },
];

/// Why an option that fio knows is not taken, if there is something to say.
pub(super) fn refusal(key: &str) -> Option<&'static str> {
    Some(match key {
        "randseed" | "randrepeat" | "allrandrepeat" => {
            "is not taken: blocks are those of fio's default, randrepeat=1, where seeds follow from thread and file name"
        }
        "random_generator" => "is not taken: blocks are those of fio's default generator, tausworthe",
        "runtime" | "time_based" | "ramp_time" => {
            "ends by the clock, which a trace has not; io_size, number_ios and loops say how much is asked for"
        }
        "rwmixread" | "rwmixwrite" | "percentage_random" => "is not taken: a job only reads or only writes here",
        "nrfiles" | "filesize" | "file_service_type" => "is not taken: each job has one file of offset + size bytes",
        "ioengine" | "iodepth" | "direct" | "buffered" | "group_reporting" | "thinktime" => {
            "does not change which blocks are asked for; leave it out"
        }
        _ => return None,
    })
}

impl Default for FioJobs {
    fn default() -> FioJobs {
        FioJobs {
            direction: Direction::RandRead,
            law: Distribution::Random,
            block_size: PAGE,
            size: 256 << 20,
            io_size: 256 << 20,
            number_ios: 0,
            loops: 1,
            offset: 0,
            numjobs: 1,
            job: None,
            norandommap: false,
            name: "refault".into(),
            filename: String::new(),
            directory: String::new(),
        }
    }
}

impl FioJobs {
    /// Takes an option; `io_size` not given must be set to 0 before, for [`FioJobs::settle`].
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let wrong = |expected: &str| format!("{name}={value}: {expected}");
        let number = || bytes(value).ok_or_else(|| wrong("expected a whole number, as 4096, 4k or 24m"));
        match name {
            "rw" => {
                let known = DIRECTIONS.iter().find(|(text, _)| *text == value);
                self.direction = known.ok_or_else(|| wrong("expected randread, randwrite, read or write"))?.1;
            }
            "random_distribution" => self.law = Distribution::parse(value).map_err(|reason| wrong(&reason))?,
            "bs" => self.block_size = number()?,
            "size" => self.size = number()?,
            "io_size" => self.io_size = number()?,
            "number_ios" => self.number_ios = number()?,
            "loops" => self.loops = number()?,
            "offset" => self.offset = number()?,
            "numjobs" => self.numjobs = number()?,
            "job" if value.is_empty() => self.job = None,
            "job" => self.job = Some(number()?),
            "norandommap" => match value {
                "0" => self.norandommap = false,
                "1" => self.norandommap = true,
                _ => return Err(wrong("expected 0 or 1")),
            },
            "name" => self.name = value.into(),
            "filename" if value.contains(':') => return Err(wrong("one file is taken, not a list")),
            "filename" => self.filename = value.into(),
            "directory" => self.directory = value.into(),
            other => unreachable!("invariant: option {other} is listed"),
        }
        Ok(())
    }

    /// Nothing said of `io_size` yet.
    pub(super) fn unsettle(&mut self) {
        self.io_size = 0;
    }

    /// Fills in what follows from other options.
    pub(super) fn settle(&mut self) {
        if self.io_size == 0 {
            self.io_size = self.size;
        }
    }

    /// Writes the value of an option.
    pub(super) fn write(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name {
            "rw" => {
                let known = DIRECTIONS.iter().find(|(_, direction)| *direction == self.direction);
                write!(f, "{}", known.expect("invariant: every direction is listed").0)
            }
            "random_distribution" => write!(f, "{}", self.law),
            "bs" => write!(f, "{}", self.block_size),
            "size" => write!(f, "{}", self.size),
            "io_size" => write!(f, "{}", self.io_size),
            "number_ios" => write!(f, "{}", self.number_ios),
            "loops" => write!(f, "{}", self.loops),
            "offset" => write!(f, "{}", self.offset),
            "numjobs" => write!(f, "{}", self.numjobs),
            "job" => self.job.map_or(Ok(()), |job| write!(f, "{job}")),
            "norandommap" => write!(f, "{}", u8::from(self.norandommap)),
            "name" => write!(f, "{}", self.name),
            "filename" => write!(f, "{}", self.filename),
            "directory" => write!(f, "{}", self.directory),
            other => unreachable!("invariant: option {other} is listed"),
        }
    }

    /// Says what is wrong with the options taken together, if anything.
    pub(super) fn check(&self) -> Result<(), String> {
        let between = |name: &str, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(format!("{name} must be from {low} to {high}, not {value}"))
        };
        let size = self.block_size;
        if size < MIN_BLOCK_SIZE || !(size.is_multiple_of(PAGE) || PAGE.is_multiple_of(size)) {
            return Err(format!("bs must be a multiple of {PAGE} or a divisor from {MIN_BLOCK_SIZE} on, not {size}"));
        }
        for (name, value) in [("size", self.size), ("offset", self.offset)] {
            if !value.is_multiple_of(size) {
                return Err(format!("{name} must be a multiple of bs ({size}), not {value}"));
            }
        }
        between("size / bs", self.count(), 1, u64::from(u32::MAX))?;
        between("numjobs", self.numjobs, 1, MAX_JOBS)?;
        between("loops", self.loops, 1, u64::MAX)?;
        if let Some(job) = self.job {
            between("job", job, 0, self.numjobs - 1)?;
        }
        if self.loops > 1 && self.io_size > self.size {
            return Err("loops and an io_size beyond size do not go together: fio 3.33 ends such jobs early".into());
        }
        if matches!(self.law, Distribution::Normal { .. }) && self.count() < MIN_NORMAL_BLOCKS {
            return Err(format!("a normal law needs {MIN_NORMAL_BLOCKS} blocks: with fewer fio 3.33 may hang"));
        }
        let mapped = self.count().saturating_mul(self.jobs().count() as u64);
        if self.mapped() && mapped > MAX_MAPPED {
            return Err(format!("the map of {mapped} blocks is too large: {MAX_MAPPED} fit, norandommap=1 has no map"));
        }
        Ok(())
    }

    /// Pages of all files, as far as they are used.
    pub(super) fn pages(&self) -> u64 {
        let files = if self.filename.is_empty() { self.jobs().count() as u64 } else { 1 };
        self.file_pages().saturating_mul(files)
    }

    /// Accesses of all jobs.
    pub(super) fn accesses(&self) -> u64 {
        let asked = self.io_size.div_ceil(self.block_size.max(1));
        let asked = if self.number_ios == 0 { asked } else { asked.min(self.number_ios) };
        let pages = (self.block_size / PAGE).max(1);
        let jobs = self.jobs().count() as u64;
        asked.saturating_mul(self.loops).saturating_mul(pages).saturating_mul(jobs)
    }

    /// Blocks to choose from.
    fn count(&self) -> u64 {
        self.size / self.block_size
    }

    fn file_pages(&self) -> u64 {
        self.offset.saturating_add(self.size).div_ceil(PAGE)
    }

    /// Whether each block is asked for once before one is asked for again.
    fn mapped(&self) -> bool {
        self.direction.random() && self.law == Distribution::Random && !self.norandommap
    }

    /// The jobs that are asked for.
    fn jobs(&self) -> std::ops::Range<u64> {
        self.job.map_or(0..self.numjobs, |job| job..job.saturating_add(1))
    }

    /// The blocks of a job. fio numbers the threads of clones backwards: the last clone follows the first job.
    fn blocks(&self, job: u64, thread: u64) -> Blocks {
        if !self.direction.random() {
            return Blocks::in_turn(self.count());
        }
        let thread = thread.wrapping_add(if job == 0 { 0 } else { self.numjobs - job }) as u32;
        let file = match self.filename.as_str() {
            "" => format!("{}.{job}.0", self.name),
            filename => filename.into(),
        };
        let path = if self.directory.is_empty() { file } else { format!("{}/{file}", self.directory) };
        Blocks::random(&self.law, self.count(), thread, &path, self.mapped())
    }
}

/// A number with one of fio's suffixes, powers of 1024.
fn bytes(text: &str) -> Option<u64> {
    let suffix = text.chars().last()?.to_ascii_lowercase();
    let shift = match "kmgt".find(suffix) {
        Some(place) => 10 * (place + 1),
        None => 0,
    };
    let digits = if shift > 0 { &text[..text.len() - 1] } else { text };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}
