//! Commands at given times: limits change, generations are made, evicted or listed (spec: mglru §15, overview §4.3).
//!
//! The two commands on generations take the text that the kernel's debugging interface takes:
//! `+ memcg_id node_id seq [swappiness [force]]` and `- memcg_id node_id seq [swappiness [nr_to_reclaim]]`.
//!
//! Kernel: `memory_max_write`, `memory_high_write`, `memory_reclaim` in `mm/memcontrol.c`; `lru_gen_seq_write` in
//! `mm/vmscan.c`.
//!
//! ```
//! use refault_sim::machine::commands::{Command, Setting};
//!
//! // At some time of a run, the first group below the root is limited to 16 MiB, as by a write to its memory.max.
//! let command = Command::Set(1, Setting::Max, 4096);
//! assert_eq!(command, Command::Set(1, Setting::Max, 16 * 256));
//! ```

use std::fmt;
use std::str::FromStr;

use refault_core::policy::room::MAX_FRUITLESS_CALLS;
use refault_core::policy::{Enabled, EvictGenerations, NewGeneration};

use super::fault::Outcome;
use super::group::{GroupId, UNLIMITED};
use super::happenings::Happened;
use super::report::Listing;
use super::{Machine, Reclaimer};

/// Which of a group's settings changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// `memory.max`.
    Max,
    /// `memory.high`.
    High,
    /// `memory.low`.
    Low,
    /// `memory.min`.
    Min,
    /// `memory.swap.max`.
    SwapMax,
}

impl Setting {
    /// Its file in a control group.
    pub fn name(self) -> &'static str {
        match self {
            Setting::Max => "memory.max",
            Setting::High => "memory.high",
            Setting::Low => "memory.low",
            Setting::Min => "memory.min",
            Setting::SwapMax => "memory.swap.max",
        }
    }
}

/// Something that happens at a time of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A group's limit or protection becomes this number of pages.
    Set(GroupId, Setting, u64),
    /// `memory.reclaim`: pages to reclaim from the group, with a swappiness of their own (0..=200) if given.
    Reclaim(GroupId, u64, Option<u16>),
    /// A line for the debugging interface of the multi-gen LRU.
    Generations(GenerationCommand),
    /// `lru_gen/enabled`: generations or the classic lists, walks, second-level accessed bits.
    Enabled(Enabled),
    /// A value is written to a file of the module `lru-sort`.
    LruSort(String, String),
    /// The generations of all lruvecs are listed in the report, as `lru_gen` or, in full, as `lru_gen_full` lists them.
    List(Listed),
}

/// How generations are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// Those in the window, with their pages.
    Brief,
    /// With what tiers and walks have counted, and with those that have left the window.
    Full,
}

/// `seq` of a command: a number, or the current one, which a script cannot know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seq {
    /// That number.
    Is(u64),
    /// `max` less a number: the youngest generation and those before it.
    BelowMax(u64),
}

/// A parsed line for the debugging interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationCommand {
    /// `+`: make a generation.
    New {
        /// Number of the group; the root is 0.
        group: GroupId,
        /// Number of the node.
        node: usize,
        /// Must be the youngest generation.
        seq: Seq,
        /// Whether anonymous memory may be aged: a swappiness other than 0.
        can_anon: bool,
        /// Also if there are as many generations as there can be.
        force: bool,
    },
    /// `-`: evict generations.
    Evict {
        /// Number of the group.
        group: GroupId,
        /// Number of the node.
        node: usize,
        /// Up to and including this generation.
        seq: Seq,
        /// 0..=200; none for the policy's own.
        swappiness: Option<u16>,
        /// Stop after this number of pages.
        pages: u64,
    },
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seq::Is(number) => write!(f, "{number}"),
            Seq::BelowMax(0) => f.write_str("max"),
            Seq::BelowMax(below) => write!(f, "max-{below}"),
        }
    }
}

/// The line that it was parsed from, or one that means the same.
impl fmt::Display for GenerationCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            GenerationCommand::New { group, node, seq, can_anon, force } => {
                write!(f, "+ {group} {node} {seq}")?;
                match (can_anon, force) {
                    (true, true) => Ok(()),
                    (true, false) => f.write_str(" -1 0"),
                    (false, force) => write!(f, " 0 {}", u8::from(force)),
                }
            }
            GenerationCommand::Evict { group, node, seq, swappiness, pages } => {
                write!(f, "- {group} {node} {seq}")?;
                match (swappiness, pages) {
                    (None, u64::MAX) => Ok(()),
                    (Some(swappiness), u64::MAX) => write!(f, " {swappiness}"),
                    (None, pages) => write!(f, " -1 {pages}"),
                    (Some(swappiness), pages) => write!(f, " {swappiness} {pages}"),
                }
            }
        }
    }
}

impl FromStr for GenerationCommand {
    type Err = String;

    fn from_str(line: &str) -> Result<GenerationCommand, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let usage = || {
            format!(
                "'{line}': expected '+ memcg node seq [swappiness [force]]' or '- memcg node seq [swappiness [pages]]'"
            )
        };
        if !(4..=6).contains(&words.len()) {
            return Err(usage());
        }
        let number = |at: usize| words[at].parse::<u64>().map_err(|_| usage());
        let seq = match words[3].strip_prefix("max") {
            Some("") => Seq::BelowMax(0),
            Some(rest) => Seq::BelowMax(rest.strip_prefix('-').and_then(|n| n.parse().ok()).ok_or_else(usage)?),
            None => Seq::Is(number(3)?),
        };
        let swappiness = match words.get(4) {
            None | Some(&"-1") => None,
            Some(word) => match word.parse::<u16>() {
                Ok(value) if value <= 200 => Some(value),
                _ => return Err(format!("'{line}': swappiness must be from 0 to 200, or -1 for the default")),
            },
        };
        let last = if words.len() > 5 { Some(number(5)?) } else { None };
        let (group, node) = (number(1)? as GroupId, number(2)? as usize);
        match words[0] {
            "+" => {
                Ok(GenerationCommand::New { group, node, seq, can_anon: swappiness != Some(0), force: last != Some(0) })
            }
            "-" => Ok(GenerationCommand::Evict { group, node, seq, swappiness, pages: last.unwrap_or(u64::MAX) }),
            _ => Err(usage()),
        }
    }
}

impl Machine {
    pub(super) fn run_command(&mut self, index: usize) {
        let command = self.config.events[index].1.clone();
        match command {
            Command::Set(group, setting, pages) => {
                let name = self.memory.groups[group].name.clone();
                let pages_asked = (pages != UNLIMITED).then_some(pages);
                self.happened(
                    self.now,
                    Happened::LimitSet { group: name, setting: setting.name(), pages: pages_asked },
                );
                self.set_limit(group, setting, pages);
            }
            Command::Reclaim(group, pages, swappiness) => {
                let mut freed = 0;
                let mut fruitless = 0;
                // A quarter of the rest at a time, and up to `MAX_FRUITLESS_CALLS` tries in vain (spec: overview §4.3).
                while freed < pages && fruitless <= MAX_FRUITLESS_CALLS {
                    let step = ((pages - freed) / 4).max(32);
                    let now = self.reclaim_proactively(group, step as u32, swappiness);
                    fruitless += u32::from(now == 0);
                    freed += now;
                }
                let group = self.memory.groups[group].name.clone();
                self.happened(
                    self.now,
                    Happened::Reclaimed { group, asked_pages: pages, freed_pages: freed, swappiness },
                );
            }
            Command::Generations(command) => {
                let done = self.command_generations(command);
                let refused = done.as_ref().err().cloned();
                self.happened(self.now, Happened::Generations { command: command.to_string(), refused });
                if let Err(reason) = done {
                    let text = format!("{command:?}: {reason}\n");
                    self.listing.push(Listing { at: self.now, text });
                }
            }
            Command::Enabled(enabled) => {
                self.policy.set_enabled(enabled, &mut self.memory);
                self.happened(self.now, Happened::ListsSwitched { enabled: enabled.to_string() });
            }
            Command::LruSort(file, value) => {
                let refused = self.write_lru_sort(&file, &value).err();
                if let Some(reason) = &refused {
                    let text = format!("lru_sort {file}={value}: {reason}\n");
                    self.listing.push(Listing { at: self.now, text });
                }
                self.happened(self.now, Happened::ModuleSet { file, value, refused });
            }
            Command::List(listed) => {
                let text = match listed {
                    Listed::Brief => self.list_generations(),
                    Listed::Full => self.list_generations_in_full(),
                };
                self.happened(self.now, Happened::Listed { text: text.clone() });
                self.listing.push(Listing { at: self.now, text });
            }
        }
    }

    fn command_generations(&mut self, command: GenerationCommand) -> Result<(), String> {
        let (GenerationCommand::New { group, node, seq, .. } | GenerationCommand::Evict { group, node, seq, .. }) =
            command;
        if group >= self.memory.groups.len() || node >= self.memory.nodes.len() {
            return Err(format!("there is no group {group} on a node {node}"));
        }
        let lruvec = self.memory.lruvec_of(group, node);
        let max = self.policy.generations(lruvec).last().map(|generation| generation.seq);
        let max = max.ok_or("the policy has no generations")?;
        let seq = match seq {
            Seq::Is(seq) => seq,
            Seq::BelowMax(by) => max.checked_sub(by).ok_or("there is no such generation")?,
        };
        let result = match command {
            GenerationCommand::New { can_anon, force, .. } => {
                self.policy.new_generation(&NewGeneration { lruvec, seq, can_anon, force }, &mut self.memory)
            }
            GenerationCommand::Evict { swappiness, pages, .. } => {
                self.memory.reference_scope = Some(group);
                let request = EvictGenerations { lruvec, seq, swappiness, pages };
                let result = self.policy.evict_generations(&request, &mut self.memory);
                self.memory.reference_scope = None;
                result.map(|_| ())
            }
        };
        self.book_reclaim(Reclaimer::Limit);
        result.map_err(|error| error.to_string())
    }

    fn set_limit(&mut self, group: GroupId, setting: Setting, pages: u64) {
        let limits = &mut self.memory.groups[group].limits;
        match setting {
            Setting::Max => limits.max = pages,
            Setting::High => limits.high = pages,
            Setting::Low => limits.low = pages,
            Setting::Min => limits.min = pages,
            Setting::SwapMax => limits.swap_max = pages,
        }
        let mut fruitless = 0;
        loop {
            let limit = match setting {
                Setting::Max => self.memory.groups[group].limits.max,
                Setting::High => self.memory.groups[group].limits.high,
                _ => return,
            };
            let excess = self.memory.groups[group].usage.saturating_sub(limit);
            if excess == 0 {
                return;
            }
            let wanted = u32::try_from(excess).unwrap_or(u32::MAX);
            if self.reclaim_group(group, wanted, u32::MAX, &mut Outcome::default()) == 0 {
                fruitless += 1;
            }
            if fruitless > MAX_FRUITLESS_CALLS {
                if setting == Setting::High || self.memory.writeback > 0 || !self.kill_in(group) {
                    return;
                }
                fruitless = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_as_the_kernel_does() {
        assert_eq!(
            "+ 1 0 7".parse(),
            Ok(GenerationCommand::New { group: 1, node: 0, seq: Seq::Is(7), can_anon: true, force: true })
        );
        assert_eq!(
            "+ 1 0 max 0 0".parse(),
            Ok(GenerationCommand::New { group: 1, node: 0, seq: Seq::BelowMax(0), can_anon: false, force: false })
        );
        assert_eq!(
            "- 2 1 max-2 60 1000".parse(),
            Ok(GenerationCommand::Evict {
                group: 2,
                node: 1,
                seq: Seq::BelowMax(2),
                swappiness: Some(60),
                pages: 1000
            })
        );
        for line in ["+ 1 0 7", "+ 1 0 max 0 0", "+ 1 0 max -1 0", "- 2 1 max-2 60 1000", "- 2 1 3", "- 2 1 3 -1 50"] {
            let command: GenerationCommand = line.parse().expect("a line of the kernel's");
            assert_eq!(command.to_string().parse(), Ok(command), "{line}");
        }
        for wrong in ["", "+", "* 1 0 7", "- 1 0 7 201", "+ a 0 7", "+ 1 0 7 60 1 1", "+ 1 0 max+1"] {
            assert!(wrong.parse::<GenerationCommand>().is_err(), "{wrong:?}");
        }
    }
}
