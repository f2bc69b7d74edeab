//! What the agent takes of a process beside its pages and what they are compressed to.
//!
//! The agent knows what it has mapped, and of that it touches a part: tables are made larger ahead, and buffers are there
//! before they are used. A process alone is charged for all that is mapped. In a tree of many, where that would be as
//! much as the programs have, the kernel is asked what is in memory: at a fork on both sides, and now and then from then on.
//!
//! Invariants: what was mapped since the last look counts whole; what is touched between two looks of what was there already does not
//! count before the second. Cost: a walk through the page tables of the agent's own memory, twenty times per second at most.

use crate::engine::Engine;
use refault_linux::sys;

/// Nanoseconds between two looks.
const LOOK_EVERY: u64 = 50_000_000;

/// See the module. In bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Own {
    /// Says what is in memory.
    touched: Option<fn() -> usize>,
    /// When that was last asked (0: never), the answer, and what was mapped then.
    looked: u64,
    there: usize,
    mapped: usize,
}

impl Own {
    /// What is in memory now, when so much is mapped.
    fn of(&self, mapped: usize) -> usize {
        match self.looked {
            0 => mapped,
            _ => mapped.min(self.there + mapped.saturating_sub(self.mapped)),
        }
    }
}

impl Engine {
    /// Says how to find out how much of the agent's memory, the stores' tables included, was ever touched.
    pub fn looks_at_own_with(&mut self, touched: fn() -> usize) {
        self.own.touched = Some(touched);
    }

    fn mapped_bytes(&self) -> usize {
        (self.own_bytes)() + self.store.seal_bytes() as usize
    }

    /// Bytes that are neither pages nor compressed ones.
    pub(crate) fn own_bytes(&self) -> usize {
        self.own.of(self.mapped_bytes())
    }

    /// At a fork: looks what of them is in memory, from now on again and again.
    pub(crate) fn look_at_own(&mut self) {
        if let Some(touched) = self.own.touched {
            let mapped = self.mapped_bytes();
            self.own = Own { looked: sys::now(), there: touched(), mapped, ..self.own };
        }
    }

    pub(crate) fn look_at_own_again(&mut self) {
        if self.own.looked != 0 && sys::now().saturating_sub(self.own.looked) >= LOOK_EVERY {
            self.look_at_own();
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
