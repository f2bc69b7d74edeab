//! What can be chosen about the classic lists.

use crate::parameter::{Parameter, ParameterError, Parameters, parse_switch, parse_whole};
use crate::reclaim::cpu_batch::KERNEL_BATCH;

/// Which rule judges whether a refaulting page was evicted too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefaultRule {
    /// Refault distance on a clock of evictions and activations (spec: workingset §4, profile W).
    Mainline,
    /// Position in an imaginary list of evicted pages (spec: workingset §5, profile S).
    ShadowLru,
    /// No refault is close: what the rules add, taken away. Not a kernel's; a control for experiments.
    Never,
}

/// Parameters of [`super::Classic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassicParams {
    /// The refault rule.
    pub rule: RefaultRule,
    /// How willingly anonymous memory is swapped rather than file pages dropped: 0..=200, default 60.
    pub swappiness: u16,
    /// Pages a per-CPU batch holds back before they reach the lists: 31 in 6.12, 15 in 6.1, 0 for none.
    pub batch: usize,
    /// Lowest bits of the clock that shadow entries do not keep (0 on every real machine).
    pub bucket_order: u32,
    /// [`RefaultRule::ShadowLru`] only: one clock a type instead of a shared one, as the author's later tree has it.
    pub per_type_age: bool,
    /// Costs as kernel 6.1 noted them: pages only, no factor for I/O, none for rotation (spec: classic §13).
    pub plain_costs: bool,
    /// Shadow entries take room, and those that a group has too many of are lost (spec: workingset §8).
    pub shadow_nodes: bool,
}

impl Default for ClassicParams {
    fn default() -> ClassicParams {
        ClassicParams {
            rule: RefaultRule::Mainline,
            swappiness: 60,
            batch: KERNEL_BATCH,
            bucket_order: 0,
            per_type_age: false,
            plain_costs: false,
            shadow_nodes: false,
        }
    }
}

impl ClassicParams {
    /// The defaults without activation on refault.
    pub fn without_refault_activation() -> ClassicParams {
        ClassicParams { rule: RefaultRule::Never, ..ClassicParams::default() }
    }

    /// The defaults with the Shadow LRU rule.
    pub fn shadow_lru() -> ClassicParams {
        ClassicParams { rule: RefaultRule::ShadowLru, ..ClassicParams::default() }
    }
}

impl Parameters for ClassicParams {
    const LIST: &'static [Parameter] = &[
        Parameter {
            name: "swappiness",
            default: "60",
            values: "0 to 200",
            meaning: "how willingly anonymous pages are swapped rather than file pages dropped; 100 is even-handed",
        },
        Parameter {
            name: "batch",
            default: "31",
            values: "0 to 255",
            meaning: "pages that a CPU holds back before they reach the lists; 31 in 6.12, 15 in 6.1",
        },
        Parameter {
            name: "plain_costs",
            default: "no",
            values: "yes or no",
            meaning: "balance anon and file by pages alone, as 6.1 did, instead of by pages and I/O",
        },
        Parameter {
            name: "per_type_age",
            default: "no",
            values: "yes or no",
            meaning: "Shadow LRU only: a clock for each of anon and file instead of one for both",
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
            "swappiness" => self.swappiness = parse_whole(value, 0, 200).ok_or_else(invalid)? as u16,
            "batch" => self.batch = parse_whole(value, 0, 255).ok_or_else(invalid)? as usize,
            "plain_costs" => self.plain_costs = parse_switch(value).ok_or_else(invalid)?,
            "shadow_nodes" => self.shadow_nodes = parse_switch(value).ok_or_else(invalid)?,
            "per_type_age" => self.per_type_age = parse_switch(value).ok_or_else(invalid)?,
            _ => return Err(ParameterError::unknown(name, Self::LIST)),
        }
        Ok(())
    }
}
