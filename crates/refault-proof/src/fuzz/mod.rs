//! Random memory calls beside the bare kernel.
//!
//! A [`sequence`] is made from a seed. It has `mmap`, `munmap`, `mremap`, `mprotect`, `madvise`, `mlock`, `brk`,
//! `fork`, `vfork`, `clone`, `exec`, reads and writes, and memory that is handed to system calls. `c/walker.c` carries
//! it out alone and under `refault run`, and prints results, errno, faults and contents; both must print the same. A
//! sequence that does not is made as small as it will go ([`shrink`]).
//!
//! Where the budget has no room for what is to be locked the tool says ENOMEM. That is right only where a model of what
//! is locked ([`locked`]) says so. The whole sequence must also be the same with [`ROOM`] times the budget; such
//! sequences are counted.
//!
//! A sequence that differs from itself without the tool says nothing about the tool; it is counted and left out. One that
//! does not end is looked at before it is ended ([`crate::look`]): one that stands still is a fault of the tool, one
//! that only wants a processor is let go on.

mod locked;
pub mod sequence;
pub mod shrink;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::ProofError;
use crate::look::Look;
use crate::probe::compile;
use crate::trial::{self, Limit, Trial};
use sequence::{Random, Sequence};

/// The budget that is small enough to evict most of the window, in MiB.
pub const MEMORY_MIB: u64 = 6;
/// A sequence may take this time, of the clock if it stands still and of processor time if it does not.
pub const LIMIT: Duration = Duration::from_secs(20);
/// In `ROOM` times the budget there is room for all that a sequence locks.
const ROOM: u64 = 8;
/// Operations of a sequence, at most.
const MAX_OPERATIONS: usize = 160;
/// How long one failing sequence is made smaller.
const SHRINKING_TIME: Duration = Duration::from_secs(40);
/// How often a sequence is run again to find out whether it always differs.
const REPEATS: u32 = 3;

/// Sequences that differed once, or that reach what random ones seldom do, by what goes wrong there.
pub const FOUND: [(&str, &str); 19] = [
    ("a guard stayed behind when its page moved", include_str!("../../sequences/moved_guard.txt")),
    (
        "what is mapped locked was filled as a part of its neighbours",
        include_str!("../../sequences/mapped_locked_apart.txt"),
    ),
    (
        "what is locked untouched was filled as a part of its neighbours",
        include_str!("../../sequences/locked_apart.txt"),
    ),
    ("what a call may not touch was filled", include_str!("../../sequences/untouchable.txt")),
    ("what is managed in part did not move", include_str!("../../sequences/half_managed.txt")),
    ("a range in several mappings did not move", include_str!("../../sequences/moved_with_gaps.txt")),
    ("a mapping that was populated was not joined with the one before", include_str!("../../sequences/populated.txt")),
    ("advice that a locked or foreign mapping ended was not noted", include_str!("../../sequences/stopped_advice.txt")),
    ("what was beside a mapping that moved was lost", include_str!("../../sequences/moved_beside.txt")),
    ("what had moved was lost when a fork ceased to share it", include_str!("../../sequences/moved_then_shared.txt")),
    ("children that share memory evict", include_str!("../../sequences/borrowed_memory.txt")),
    ("what was not made executable was let go", include_str!("../../sequences/behind_hole.txt")),
    ("a range was brought in by a question about it", include_str!("../../sequences/asked_about.txt")),
    ("what was beside a locked range that moved stayed locked", include_str!("../../sequences/unlocked_beside.txt")),
    ("what was left unlocked was joined with what lies beside it", include_str!("../../sequences/unlocked_apart.txt")),
    (
        "what lay behind a range that moved into its own mapping was unlocked",
        include_str!("../../sequences/unlocked_before.txt"),
    ),
    ("what a child left behind was another mapping", include_str!("../../sequences/left_in_a_child.txt")),
    ("what was only read was taken for written to", include_str!("../../sequences/only_read.txt")),
    ("a page could not be locked beside a parent", include_str!("../../sequences/lock_in_a_child.txt")),
];

/// What is tried.
#[derive(Debug, Clone)]
pub struct Tool {
    /// The binary.
    pub refault: PathBuf,
    /// Its `--memory`, in MiB.
    pub memory_mib: u64,
    /// More options for `refault run`.
    pub options: Vec<String>,
    /// Operations that the sequences do without, by name.
    pub without: BTreeSet<String>,
    /// A sequence may take this time, as [`Limit::Processor`] has it.
    pub limit: Duration,
}

impl Tool {
    /// A binary with the usual budget and all operations.
    pub fn new(refault: &Path) -> Tool {
        let (options, without) = (Vec::new(), BTreeSet::new());
        Tool { refault: refault.to_owned(), memory_mib: MEMORY_MIB, options, without, limit: LIMIT }
    }
}

/// Where the output under the tool leaves that of the bare kernel.
#[derive(Debug, Clone)]
pub struct Difference {
    /// The output before, the same on both sides.
    same: Vec<String>,
    alone: String,
    managed: String,
    /// What the tool or the walker said.
    message: String,
    /// What its threads did, where it did not end.
    look: Option<Look>,
}

impl Difference {
    fn between(alone: &Trial, managed: &Trial) -> Option<Difference> {
        if alone.agrees(managed) {
            return None;
        }
        let lines = |trial: &Trial| -> Vec<String> {
            let text = String::from_utf8_lossy(&trial.output).into_owned();
            text.lines().map(str::to_owned).chain([format!("({})", trial.end)]).collect()
        };
        let (ours, theirs) = (lines(alone), lines(managed));
        let same = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
        let line = |lines: &[String]| lines.get(same).cloned().unwrap_or_default();
        Some(Difference {
            same: ours[..same].to_vec(),
            alone: line(&ours),
            managed: line(&theirs),
            message: managed.last_message(),
            look: managed.look.clone(),
        })
    }

    /// Both lines without their numbers in the sequence.
    fn lines(&self) -> [String; 2] {
        [&self.alone, &self.managed].map(|line| line.trim_start_matches(|c: char| c.is_ascii_digit()).trim().to_owned())
    }

    /// Whether all that differs is that there was no room to lock as much.
    fn is_refused_lock(&self, sequence: &str, memory_mib: u64) -> bool {
        let lines = self.lines();
        let is_refusal = match [lines[0].as_str(), lines[1].as_str()] {
            ["lock = 0", "lock = -1 errno 12"] | ["map = there", "map = -1 errno 11"] => true,
            [alone, "remap = -1 errno 11"] => alone == "remap = there" || alone == "remap = moved back",
            _ => false,
        };
        is_refusal && locked::may_be_refused(sequence, &self.same, &self.alone, memory_mib)
    }

    /// The operation whose line differs; failures with the same one are likely to have one cause.
    pub fn operation(&self) -> String {
        let word = |line: &str| line.split_whitespace().nth(1).unwrap_or("end").to_owned();
        if self.alone.starts_with("window") { "window".into() } else { word(&self.alone) }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.same[self.same.len().saturating_sub(2)..] {
            writeln!(to, "    both:    {line}")?;
        }
        writeln!(to, "    alone:   {}", self.alone)?;
        write!(to, "    managed: {}", self.managed)?;
        if !self.message.is_empty() {
            write!(to, "\n    said:    {}", self.message)?;
        }
        if let Some(look) = &self.look {
            write!(to, "\n{look}")?;
        }
        Ok(())
    }
}

/// A sequence that ends differently under the tool.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed that it was made from.
    pub seed: u64,
    /// It, made small.
    pub sequence: Sequence,
    /// What differs.
    pub difference: Difference,
    /// In how many of [`REPEATS`] more runs it differed.
    pub repeated: u32,
}

impl fmt::Display for Failure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(to, "seed {} (again in {} of {REPEATS} runs):", self.seed, self.repeated)?;
        for line in self.sequence.to_string().lines() {
            writeln!(to, "  {line}")?;
        }
        write!(to, "{}", self.difference)
    }
}

/// What came of a number of sequences.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Sequences that were compared.
    pub sequences: u64,
    /// Their operations.
    pub operations: u64,
    /// Sequences that differ from themselves without the tool.
    pub unsteady: u64,
    /// Sequences in which the budget had no room for what was to be locked, the same in a larger one.
    pub refused: u64,
    /// Sequences that differ under the tool, by the lines in which they do: alone, and managed.
    pub differ: BTreeMap<[String; 2], u64>,
    /// Those of them that were made small: one per operation whose line differs, and all that did not end.
    pub failures: Vec<Failure>,
}

impl fmt::Display for Report {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sequences, operations) = (self.sequences, self.operations);
        write!(to, "{sequences} sequences, {operations} operations: {} differ", self.differ.values().sum::<u64>())?;
        if self.unsteady > 0 {
            write!(to, "; {} were not the same twice without the tool", self.unsteady)?;
        }
        if self.refused > 0 {
            write!(to, "; in {} there was no room for what was to be locked", self.refused)?;
        }
        for ([alone, managed], times) in &self.differ {
            write!(to, "\n{times} times: alone {alone}, managed {managed}")?;
        }
        Ok(())
    }
}

/// The compiled walker and where its sequences lie.
pub struct Fuzzer {
    tool: Tool,
    directory: TempDir,
    walker: PathBuf,
}

impl Fuzzer {
    /// Compiles the walker.
    ///
    /// # Errors
    /// There is no compiler, or no room.
    pub fn new(tool: &Tool) -> Result<Fuzzer, ProofError> {
        let directory = tempfile::tempdir().map_err(ProofError::io("cannot make a temporary directory"))?;
        let walker = compile("walker.c", directory.path())?;
        Ok(Fuzzer { tool: tool.clone(), directory, walker })
    }

    /// Tries sequences from this seed on until the time is over or `max_failures` different failures are found. Making
    /// these small takes time of its own. `found` hears of each failure at once.
    ///
    /// # Errors
    /// The walker cannot be started.
    pub fn run(
        &self,
        seed: u64,
        time: Duration,
        max_failures: usize,
        mut found: impl FnMut(&Failure),
    ) -> Result<Report, ProofError> {
        let mut deadline = Instant::now() + time;
        let mut report = Report::default();
        let (mut seen, mut seen_lines) = (BTreeSet::new(), BTreeSet::new());
        for seed in seed.. {
            if Instant::now() >= deadline || report.failures.len() >= max_failures {
                break;
            }
            let sequence = Sequence::random(&mut Random::new(seed), MAX_OPERATIONS, &self.tool.without);
            report.sequences += 1;
            report.operations += sequence.len() as u64;
            let (difference, refused) = self.try_once(&sequence.to_string())?;
            report.refused += u64::from(refused && difference.is_none());
            let Some(difference) = difference else { continue };
            if self.is_unsteady(&sequence)? {
                report.unsteady += 1;
                continue;
            }
            *report.differ.entry(difference.lines()).or_default() += 1;
            if difference.look.is_some() || seen.insert(difference.operation()) {
                let shrinking = Instant::now();
                let failure = self.shrink(seed, sequence, difference)?;
                // Two sequences that end in the same lines when they are small have one cause, as a rule.
                if failure.difference.look.is_some() || seen_lines.insert(failure.difference.lines()) {
                    found(&failure);
                    report.failures.push(failure);
                }
                deadline += shrinking.elapsed();
            }
        }
        Ok(report)
    }

    /// Carries out one sequence alone and under the tool.
    ///
    /// # Errors
    /// The walker cannot be started.
    pub fn compare(&self, sequence: &str) -> Result<Option<Difference>, ProofError> {
        self.try_once(sequence).map(|(difference, _)| difference)
    }

    /// The same, and whether a lock was refused that may be: then what differs does so in a budget with room for it.
    fn try_once(&self, sequence: &str) -> Result<(Option<Difference>, bool), ProofError> {
        let memory = self.tool.memory_mib;
        let (alone, managed) = (self.walk(sequence, None)?, self.walk(sequence, Some(memory))?);
        let difference = Difference::between(&alone, &managed);
        if !difference.as_ref().is_some_and(|it| it.is_refused_lock(sequence, memory)) {
            return Ok((difference, false));
        }
        Ok((Difference::between(&alone, &self.walk(sequence, Some(ROOM * memory))?), true))
    }

    /// Under the tool with `memory_mib` MiB, or alone.
    fn walk(&self, sequence: &str, memory_mib: Option<u64>) -> Result<Trial, ProofError> {
        let file = self.directory.path().join("sequence");
        std::fs::write(&file, sequence).map_err(ProofError::io(file.display().to_string()))?;
        let mut command = if let Some(memory) = memory_mib {
            let mut command = Command::new(&self.tool.refault);
            command.args(["run", "--memory", &format!("{memory}M")]).args(&self.tool.options);
            command.arg("--").arg(&self.walker);
            command
        } else {
            Command::new(&self.walker)
        };
        trial::run(command.arg(&file).current_dir(self.directory.path()), Limit::Processor(self.tool.limit), false)
    }

    fn is_unsteady(&self, sequence: &Sequence) -> Result<bool, ProofError> {
        let text = sequence.to_string();
        let first = self.walk(&text, None)?;
        for _ in 0..2 {
            if !self.walk(&text, None)?.agrees(&first) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn shrink(&self, seed: u64, sequence: Sequence, difference: Difference) -> Result<Failure, ProofError> {
        let mut repeated = 0;
        for _ in 0..REPEATS {
            repeated += u32::from(self.compare(&sequence.to_string())?.is_some());
        }
        let tries = if repeated == REPEATS { 1 } else { 2 * REPEATS };
        let mut last = difference;
        let deadline = Instant::now() + SHRINKING_TIME;
        let small = shrink::smallest(sequence, deadline, |candidate| {
            for _ in 0..tries {
                if let Some(difference) = self.compare(&candidate.to_string())? {
                    last = difference;
                    return Ok(true);
                }
            }
            Ok(false)
        })?;
        Ok(Failure { seed, sequence: small, difference: last, repeated })
    }
}
