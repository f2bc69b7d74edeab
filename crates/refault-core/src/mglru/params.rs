//! What can be chosen about the multi-gen LRU.

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
    /// Ageing walks page tables; otherwise it only makes generations (bit 0x2 of `lru_gen/enabled`).
    pub walks: bool,
    /// Walks skip 2 MiB regions whose second-level accessed bit is clear (bit 0x4 of `lru_gen/enabled`).
    pub region_bits: bool,
}

impl Default for MglruParams {
    fn default() -> MglruParams {
        MglruParams {
            version: Version::V6_12,
            refault: RefaultDistance::Generation,
            swappiness: 60,
            tiers: generation_tiers(),
            batch: KERNEL_BATCH,
            walks: true,
            region_bits: true,
        }
    }
}

impl MglruParams {
    /// The defaults with protection by refault distance.
    pub fn with_refault_distance() -> MglruParams {
        MglruParams { refault: RefaultDistance::Evictions, ..MglruParams::default() }
    }
}

const fn generation_tiers() -> usize {
    super::generation::MAX_TIERS
}
