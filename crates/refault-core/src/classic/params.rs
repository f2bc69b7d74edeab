//! What can be chosen about the classic lists.

use crate::reclaim::cpu_batch::KERNEL_BATCH;

/// Which rule judges whether a refaulting page was evicted too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefaultRule {
    /// Refault distance on a clock of evictions and activations (spec: workingset §4, profile W).
    Mainline,
    /// Position in an imaginary list of evicted pages (spec: workingset §5, profile S).
    ShadowLru,
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
        }
    }
}

impl ClassicParams {
    /// The defaults with the Shadow LRU rule.
    pub fn shadow_lru() -> ClassicParams {
        ClassicParams { rule: RefaultRule::ShadowLru, ..ClassicParams::default() }
    }
}
