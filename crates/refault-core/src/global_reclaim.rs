//! What a machine asks of a policy beyond limits: reclaim of whole nodes, and commands on generations.
//!
//! Kernel: `balance_pgdat`, `shrink_node`, `lru_gen_seq_write` in `mm/vmscan.c`.
//! Source: spec: overview §4.1, §4.2; mglru §13, §15.

use std::fmt;

use crate::page::LruvecId;

/// One pass of background reclaim over a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackgroundPass {
    /// The root lruvec of the node; everything below it is reclaimed from.
    pub root: LruvecId,
    /// Pages wanted: the high watermark.
    pub goal: u64,
    /// Pressure, 12 (least) to 1.
    pub priority: u8,
    /// Generations younger than this, in the front-end's time, are the working set: if no lruvec of the node has an
    /// older one, the pass says so. 0 for none (`lru_gen/min_ttl_ms`).
    pub min_ttl: u64,
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassOutcome {
    /// Pages freed.
    pub reclaimed: u64,
    /// Pages that entered the batch stage.
    pub scanned: u64,
    /// The priority that the pass ended with: policies may start harder than asked.
    pub priority: u8,
    /// Everything is younger than `min_ttl`: somebody should be killed rather than evict the working set.
    pub starved: bool,
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
    /// Stop after so many pages.
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
}

impl fmt::Display for GenerationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GenerationError::Unsupported => "the policy has no generations",
            GenerationError::Seq => "the sequence number is out of the range that the command takes",
            GenerationError::Full => "there are as many generations as there can be; force it to merge the oldest two",
        })
    }
}

impl std::error::Error for GenerationError {}
