//! Generations: what they hold, and commands on them as the kernel's `lru_gen` debugfs file takes.
//!
//! Kernel: `lru_gen_seq_write`, `lru_gen_seq_show` in `mm/vmscan.c`.
//! Source: spec: mglru §13, §15.
//!
//! ```
//! use refault_core::policy::generations::{active_inactive, generations};
//! use refault_core::{Classic, ClassicParams, Mglru, MglruParams};
//!
//! assert!(generations(&Mglru::new(MglruParams::default()), 0).len() >= 2); // there are always two, though empty
//! assert_eq!(active_inactive(&Classic::new(ClassicParams::default())), Some([0, 0]));
//! ```

use std::fmt;
use std::str::FromStr;

use super::{Absent, CyclicScans, Policy};
use crate::memory::Memory;
use crate::page::LruvecId;

/// One generation of an lruvec, oldest first, as the kernel's debugging interface lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationSize {
    /// Sequence number.
    pub seq: u64,
    /// Time of creation, in the front-end's clock.
    pub birth: u64,
    /// Pages by type (anon, file).
    pub pages: [u64; 2],
}

/// What the controller keeps of one tier and type, shown at one generation (`lru_gen_full`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TierHistory {
    /// Nothing is kept of this generation.
    #[default]
    None,
    /// At the youngest: what is averaged over those that are gone.
    Averages {
        /// Refaults.
        refaulted: u64,
        /// Refaults, evictions and protections together.
        total: u64,
    },
    /// At the type's oldest: what was counted since it became the oldest.
    Current {
        /// Refaults.
        refaulted: u64,
        /// Evictions.
        evicted: u64,
        /// Pages moved on instead of evicted.
        protected: u64,
    },
}

/// What page-table walks of an lruvec have met since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkStatistics {
    /// Entries looked at.
    pub leaf_total: u64,
    /// Of these, those found accessed.
    pub leaf_young: u64,
    /// Regions that the filter of the walk held.
    pub regions_found: u64,
    /// Regions put into the filter of the next walk.
    pub regions_added: u64,
}

/// One generation as `lru_gen_full` lists it, which reaches back to those that have left the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerationDetails {
    /// Number, birth and pages.
    pub size: GenerationSize,
    /// By type (anon, file): it has left that type's window; the pages are what its slot holds now.
    pub gone: [bool; 2],
    /// By tier, then by type.
    pub tiers: Vec<[TierHistory; 2]>,
    /// At the youngest generation.
    pub walks: Option<WalkStatistics>,
}

/// Sizes of lists and what is known of scans, for front-ends that show them or balance them.
pub trait Lists {
    /// The generations of an lruvec, oldest first; empty for policies without generations.
    fn generations(&self, lruvec: LruvecId) -> Vec<GenerationSize> {
        let _ = lruvec;
        Vec::new()
    }

    /// The same with what the controller and walks know (spec: mglru §15, `lru_gen_full`).
    fn generation_details(&self, lruvec: LruvecId) -> Vec<GenerationDetails> {
        let _ = lruvec;
        Vec::new()
    }

    /// Which of several ways of choosing victims holds now, for policies that change between them.
    fn leader(&self) -> Option<&'static str> {
        None
    }

    /// Pages on the active and on the inactive lists, both types together, for the goals that balance them
    /// (spec: damos §7.3). `None` without such lists.
    fn active_inactive(&self) -> Option<[u64; 2]> {
        None
    }

    /// What is known of cyclic scans. `None`: they are not treated specially.
    fn cyclic_scans(&self) -> Option<&CyclicScans> {
        None
    }
}

/// [`Lists::generations`], empty without lists.
pub fn generations<P: Policy>(policy: &P, lruvec: LruvecId) -> Vec<GenerationSize> {
    policy.lists().map_or_else(Vec::new, |lists| lists.generations(lruvec))
}

/// [`Lists::generation_details`], empty without lists.
pub fn generation_details<P: Policy>(policy: &P, lruvec: LruvecId) -> Vec<GenerationDetails> {
    policy.lists().map_or_else(Vec::new, |lists| lists.generation_details(lruvec))
}

/// [`Lists::leader`], `None` without lists.
pub fn leader<P: Policy>(policy: &P) -> Option<&'static str> {
    policy.lists()?.leader()
}

/// [`Lists::active_inactive`], `None` without lists.
pub fn active_inactive<P: Policy>(policy: &P) -> Option<[u64; 2]> {
    policy.lists()?.active_inactive()
}

/// `+ memcg node seq [swappiness [force]]`: make a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewGeneration {
    /// Of this lruvec.
    pub lruvec: LruvecId,
    /// The youngest generation; a smaller number does nothing.
    pub seq: u64,
    /// Anonymous memory may be aged.
    pub can_anon: bool,
    /// Also if there are as many generations as there can be.
    pub force: bool,
}

/// `- memcg node seq [swappiness [nr]]`: evict generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictGenerations {
    /// Of this lruvec.
    pub lruvec: LruvecId,
    /// Up to and including this one, which must not be one of the two youngest.
    pub seq: u64,
    /// 0..=200; none for the policy's own.
    pub swappiness: Option<u16>,
    /// Stop after this number of pages.
    pub pages: u64,
}

/// Why a command on generations was refused, as the kernel's interface refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationError {
    /// The policy has no generations.
    Unsupported,
    /// The sequence number is not one the command can take (`EINVAL`).
    Seq,
    /// There are as many generations as there can be (`ERANGE`).
    Full,
    /// The generation was made already (`EEXIST`, 7.2).
    Exists,
}

impl fmt::Display for GenerationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GenerationError::Unsupported => "the policy has no generations",
            GenerationError::Seq => "the sequence number is out of the range that the command takes",
            GenerationError::Exists => "the generation was made already: list the generations for the youngest",
            GenerationError::Full => "there are as many generations as there can be; force it to merge the oldest two",
        })
    }
}

impl std::error::Error for GenerationError {}

/// A policy with generations that can be made and evicted by command.
pub trait GenerationCommands {
    /// Makes a generation, as the kernel's debugging interface does.
    ///
    /// # Errors
    /// See [`GenerationError`].
    fn new_generation<M: Memory>(&mut self, request: &NewGeneration, memory: &mut M) -> Result<(), GenerationError>;

    /// Evicts generations, as the kernel's debugging interface does. Returns the pages freed.
    ///
    /// # Errors
    /// See [`GenerationError`].
    fn evict_generations<M: Memory>(
        &mut self,
        request: &EvictGenerations,
        memory: &mut M,
    ) -> Result<u64, GenerationError>;

    /// Both kernels' lists, which can be changed while running. `None`, the default: the policy has generations only.
    fn switch_lists(&mut self) -> Option<&mut impl SwitchLists> {
        None::<&mut Absent>
    }
}

/// What `lru_gen/enabled` holds (spec: mglru §15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enabled {
    /// 0x1: generations; without it the classic lists.
    pub core: bool,
    /// 0x2: aging walks page tables.
    pub walks: bool,
    /// 0x4: walks skip regions whose second-level accessed bit is clear.
    pub region_bits: bool,
}

impl Enabled {
    const fn from_bits(bits: u64) -> Enabled {
        Enabled { core: bits & 1 != 0, walks: bits & 2 != 0, region_bits: bits & 4 != 0 }
    }
}

/// As the kernel shows it.
impl fmt::Display for Enabled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u8::from(self.core) | u8::from(self.walks) << 1 | u8::from(self.region_bits) << 2;
        write!(f, "{bits:#06x}")
    }
}

/// As the kernel reads it: `y`, `n`, or a number of which bits beyond the three are left out.
impl FromStr for Enabled {
    type Err = String;

    fn from_str(text: &str) -> Result<Enabled, String> {
        let number = match text.strip_prefix("0x") {
            Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok(),
            None => text.parse().ok(),
        };
        match (text, number) {
            ("y" | "Y", _) => Ok(Enabled::from_bits(7)),
            ("n" | "N", _) => Ok(Enabled::from_bits(0)),
            (_, Some(bits)) => Ok(Enabled::from_bits(bits)),
            _ => Err(format!("'{text}': expected y, n or a number from 0 to 7, as 0x0007")),
        }
    }
}

/// A policy that can change between generations and the classic lists ([`crate::switching`]).
pub trait SwitchLists {
    /// A write to `lru_gen/enabled`.
    fn set_enabled<M: Memory>(&mut self, enabled: Enabled, memory: &mut M);
}

impl Lists for Absent {}

impl SwitchLists for Absent {
    fn set_enabled<M: Memory>(&mut self, _enabled: Enabled, _memory: &mut M) {
        match *self {}
    }
}

impl GenerationCommands for Absent {
    fn new_generation<M: Memory>(&mut self, _request: &NewGeneration, _memory: &mut M) -> Result<(), GenerationError> {
        match *self {}
    }
    fn evict_generations<M: Memory>(
        &mut self,
        _request: &EvictGenerations,
        _memory: &mut M,
    ) -> Result<u64, GenerationError> {
        match *self {}
    }
}
