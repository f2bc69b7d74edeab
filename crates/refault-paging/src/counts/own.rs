//! What the agent takes of a process beside its pages and what they are compressed to.
//!
//! The agent knows what it has mapped, and of that it touches a part: tables are made larger ahead, and buffers are there
//! before they are used. A process alone is charged for all that is mapped. In a tree of many, where that would be as
//! much as the programs have, the kernel is asked what is in memory: at a fork on both sides, and now and then from then on.
//!
//! Invariants: what was mapped since the last look counts whole; what is touched between two looks of what was there already does not
//! count before the second. Cost: a walk through the page tables of the agent's own memory, twenty times per second at most.

/// Nanoseconds between two looks.
pub(crate) const LOOK_EVERY: u64 = 50_000_000;

/// See the module. In bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Own {
    /// Says what is in memory.
    pub(crate) touched: Option<fn() -> usize>,
    /// When that was last asked (0: never), the answer, and what was mapped then.
    pub(crate) looked: u64,
    pub(crate) there: usize,
    pub(crate) mapped: usize,
}

impl Own {
    /// What is in memory now, when so much is mapped.
    pub(crate) fn of(&self, mapped: usize) -> usize {
        match self.looked {
            0 => mapped,
            _ => mapped.min(self.there + mapped.saturating_sub(self.mapped)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_counts_until_it_is_looked_at_and_whole_where_it_is_new() {
        let own = Own::default();
        assert_eq!(own.of(1000), 1000);
        let own = Own { looked: 1, there: 400, mapped: 1000, ..own };
        assert_eq!([1000, 1100, 900, 300].map(|mapped| own.of(mapped)), [400, 500, 400, 300]);
    }
}
