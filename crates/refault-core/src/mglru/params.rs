//! What can be chosen about the multi-gen LRU.

use crate::mglru::generation::{MAX_TIERS, MAX_WIDTH};
use crate::parameter::{Parameter, ParameterError, Parameters, parse_switch, parse_whole};
use crate::reclaim::cpu_batch::KERNEL_BATCH;

/// Which kernel's rules apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Linux 6.12 (profile M).
    V6_12,
    /// Linux 7.2 (profile N, spec: mglru §16).
    V7_2,
}

/// What a shadow entry holds and how a refault is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefaultDistance {
    /// The generation the page was evicted from (spec: workingset §7).
    Generation,
    /// A clock of evictions as well, which protects file pages whose reuse distance exceeds memory
    /// (spec: workingset §6, profile MK). 6.12 rules only.
    Evictions,
    /// The same with one comparison, active and inactive being the young and old generations (spec: workingset §6.1).
    Unified,
}

/// When eviction waits for a new generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aging {
    /// When no cold generation is left, or the sizes of three are out of proportion (spec: mglru §6.3). 7.2 has a test
    /// of its own, whatever is set here.
    Sizes,
    /// Only when no cold generation is left, as first posted in 2021 (spec: mglru §17).
    Exhausted,
}

/// Parameters of [`super::Mglru`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MglruParams {
    /// Which kernel's rules.
    pub version: Version,
    /// How refaults are judged.
    pub refault: RefaultDistance,
    /// How willingly anonymous memory is swapped rather than file pages dropped: 0..=200, default 60.
    pub swappiness: u16,
    /// Tiers of file-descriptor accesses told apart: 1 (no protection at all) to 4.
    pub tiers: usize,
    /// Pages a per-CPU batch holds back before they reach the lists: 31 in 6.12 and 7.2, 0 for none.
    pub batch: usize,
    /// Aging walks page tables; otherwise it only makes generations (bit 0x2 of `lru_gen/enabled`).
    pub walks: bool,
    /// Walks skip 2 MiB regions whose second-level accessed bit is clear (bit 0x4 of `lru_gen/enabled`).
    pub region_bits: bool,
    /// What makes eviction wait for a new generation.
    pub aging: Aging,
    /// Walks skip regions that the last one, or a look-around, did not find worth it; not so before 2022.
    pub filters: bool,
    /// A reference check looks at the neighbours of a young entry; not so before 2022.
    pub look_around: bool,
    /// Pages read through descriptors always start in the oldest generation, as before December 2023; since then in the
    /// second oldest where there are four (spec: mglru §4). 6.12 rules only.
    pub reads_start_oldest: bool,
    /// Pages with five accesses through descriptors are moved on whatever the controller says; not so before December
    /// 2023 (spec: mglru §9.3 row 3). No effect with one tier.
    pub protects_frequent: bool,
    /// The widest window of generations (`MAX_NR_GENS`): 4, or up to 7, and at least two more than `min_generations`.
    /// The narrower, the sooner pages that walks found idle are merged with older ones.
    pub max_generations: u64,
    /// 7.2: what comes back from swap is in the swap cache until it is mapped. What waits to be activated is within
    /// reach of a scan (spec: mglru §16.5, §16.6).
    pub swap_cache: bool,
    /// Shadow entries take room, and those that a group has too many of are lost (spec: workingset §8, mglru §16.14).
    pub shadow_nodes: bool,
    /// The narrowest window (`MIN_NR_GENS`): 2, or up to 5. Reclaim never evicts from this number of the youngest
    /// generations.
    pub min_generations: u64,
}

impl Default for MglruParams {
    fn default() -> MglruParams {
        MglruParams {
            version: Version::V6_12,
            refault: RefaultDistance::Generation,
            swappiness: 60,
            tiers: MAX_TIERS,
            batch: KERNEL_BATCH,
            walks: true,
            region_bits: true,
            aging: Aging::Sizes,
            filters: true,
            look_around: true,
            reads_start_oldest: false,
            protects_frequent: true,
            max_generations: 4,
            swap_cache: false,
            shadow_nodes: false,
            min_generations: 2,
        }
    }
}

impl MglruParams {
    /// The defaults with protection by refault distance.
    pub fn with_refault_distance() -> MglruParams {
        MglruParams { refault: RefaultDistance::Evictions, ..MglruParams::default() }
    }

    /// As first posted in March 2021, as far as 6.12's rules can be set to it: no tiers, reads start in the oldest
    /// generation, no filters, no look-around, its own aging test (spec: mglru §17). What remains of 6.12 are four
    /// generations, the order of groups, and that kswapd does not age ahead of need.
    pub fn first_posting() -> MglruParams {
        MglruParams {
            tiers: 1,
            reads_start_oldest: true,
            protects_frequent: false,
            aging: Aging::Exhausted,
            filters: false,
            look_around: false,
            ..MglruParams::default()
        }
    }

    /// As released before December 2023: without the two corrections for file pages that were evicted too early.
    pub fn before_2024() -> MglruParams {
        MglruParams { reads_start_oldest: true, protects_frequent: false, ..MglruParams::default() }
    }
}

impl Parameters for MglruParams {
    const LIST: &'static [Parameter] = &[
        Parameter {
            name: "version",
            default: "6.12",
            values: "6.12, or 7.2 with refault=generation",
            meaning: "which kernel's rules apply",
        },
        Parameter {
            name: "refault",
            default: "generation (mglru), evictions (mglru-refault)",
            values: "generation, or evictions or unified with version=6.12",
            meaning: "what a shadow entry remembers: the generation, or a clock of evictions graded against memory",
        },
        Parameter {
            name: "swappiness",
            default: "60",
            values: "0 to 200",
            meaning: "how willingly anonymous memory is swapped rather than file pages dropped",
        },
        Parameter {
            name: "tiers",
            default: "4",
            values: "1 to 4",
            meaning: "tiers of file-descriptor accesses told apart; 1 protects nothing",
        },
        Parameter {
            name: "batch",
            default: "31",
            values: "0 to 255",
            meaning: "pages a per-CPU batch holds back before they reach the lists; 0 for none",
        },
        Parameter {
            name: "walks",
            default: "yes",
            values: "yes or no",
            meaning: "aging walks page tables (bit 0x2 of lru_gen/enabled)",
        },
        Parameter {
            name: "region_bits",
            default: "yes",
            values: "yes or no",
            meaning: "walks skip 2 MiB regions that were not accessed (bit 0x4 of lru_gen/enabled)",
        },
        Parameter {
            name: "aging",
            default: "sizes",
            values: "sizes or exhausted",
            meaning: "a generation is made when sizes are out of proportion, or only when no cold one is left (2021)",
        },
        Parameter {
            name: "filters",
            default: "yes",
            values: "yes or no",
            meaning: "walks skip regions that were not worth it last time",
        },
        Parameter {
            name: "look_around",
            default: "yes",
            values: "yes or no",
            meaning: "reference checks look at the neighbours of a young entry",
        },
        Parameter {
            name: "reads_start_oldest",
            default: "no",
            values: "yes or no",
            meaning: "pages read through descriptors start in the oldest generation, as before December 2023",
        },
        Parameter {
            name: "protects_frequent",
            default: "yes",
            values: "yes or no",
            meaning: "pages read five times are moved on whatever the controller says; no before December 2023",
        },
        Parameter {
            name: "max_generations",
            default: "4",
            values: "4 to 7, and at least min_generations + 2",
            meaning: "how many generations there are at most (MAX_NR_GENS)",
        },
        Parameter {
            name: "min_generations",
            default: "2",
            values: "2 to 5, and at most max_generations - 2, which is to be set before",
            meaning: "how many of the youngest generations are never evicted from (MIN_NR_GENS)",
        },
        Parameter {
            name: "swap_cache",
            default: "no",
            values: "yes or no",
            meaning: "version=7.2: pages come back through the swap cache, and a scan reaches those that wait to be activated",
        },
        Parameter {
            name: "shadow_nodes",
            default: "no",
            values: "yes or no",
            meaning: "replay: what is known of evicted file pages is bounded, 64 pages at a time, as in kernels",
        },
    ];

    fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        let invalid = || ParameterError::invalid(name, value, Self::LIST);
        match name {
            "version" => {
                self.version = match value {
                    "6.12" => Version::V6_12,
                    "7.2" if self.refault == RefaultDistance::Generation => Version::V7_2,
                    _ => return Err(invalid()),
                }
            }
            "refault" => {
                self.refault = match value {
                    "generation" => RefaultDistance::Generation,
                    "evictions" if self.version == Version::V6_12 => RefaultDistance::Evictions,
                    "unified" if self.version == Version::V6_12 => RefaultDistance::Unified,
                    _ => return Err(invalid()),
                }
            }
            "swappiness" => self.swappiness = parse_whole(value, 0, 200).ok_or_else(invalid)? as u16,
            "tiers" => self.tiers = parse_whole(value, 1, MAX_TIERS as u64).ok_or_else(invalid)? as usize,
            "batch" => self.batch = parse_whole(value, 0, 255).ok_or_else(invalid)? as usize,
            "walks" => self.walks = parse_switch(value).ok_or_else(invalid)?,
            "region_bits" => self.region_bits = parse_switch(value).ok_or_else(invalid)?,
            "aging" => {
                self.aging = match value {
                    "sizes" => Aging::Sizes,
                    "exhausted" => Aging::Exhausted,
                    _ => return Err(invalid()),
                }
            }
            "filters" => self.filters = parse_switch(value).ok_or_else(invalid)?,
            "look_around" => self.look_around = parse_switch(value).ok_or_else(invalid)?,
            "swap_cache" => self.swap_cache = parse_switch(value).ok_or_else(invalid)?,
            "shadow_nodes" => self.shadow_nodes = parse_switch(value).ok_or_else(invalid)?,
            "protects_frequent" => self.protects_frequent = parse_switch(value).ok_or_else(invalid)?,
            "max_generations" => {
                let low = (self.min_generations + 2).max(4);
                self.max_generations = parse_whole(value, low, MAX_WIDTH).ok_or_else(invalid)?;
            }
            "min_generations" => {
                let high = self.max_generations.saturating_sub(2);
                self.min_generations = parse_whole(value, 2, high).ok_or_else(invalid)?;
            }
            "reads_start_oldest" => self.reads_start_oldest = parse_switch(value).ok_or_else(invalid)?,
            _ => return Err(ParameterError::unknown(name, Self::LIST)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_room_for_a_generation_to_evict_and_one_to_merge_into() {
        let set = |values: &[(&str, &str)]| {
            let mut params = MglruParams::default();
            values.iter().try_for_each(|(name, value)| params.set(name, value)).map(|()| params)
        };
        for wrong in
            [("max_generations", "3"), ("max_generations", "8"), ("min_generations", "1"), ("min_generations", "3")]
        {
            assert!(set(&[wrong]).is_err(), "{wrong:?}");
        }
        let params = set(&[("max_generations", "5"), ("min_generations", "3")]).expect("five and three are possible");
        assert_eq!((params.max_generations, params.min_generations), (5, 3));
        assert!(set(&[("max_generations", "6"), ("min_generations", "4"), ("max_generations", "5")]).is_err());
    }
}
