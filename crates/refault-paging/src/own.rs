//! What the agent takes of a process beside its pages and what they are compressed to.
//!
//! The agent knows what it has mapped, and of that it touches a part: tables are made larger ahead, and buffers are
//! there before they are used. A process alone is charged for all that is mapped. In a tree of many, and where tables are
//! those of a large budget, that would be as much as the programs have: the kernel is asked what is in memory, at a fork
//! on both sides or at the start, and now and then from then on.
//!
//! Invariants: what was mapped since the last look counts whole; what is touched between two looks of what was there
//! already does not count before the second. Cost: a walk through the page tables of the agent's own memory, twenty
//! times per second at most.

use refault_linux::sys;

/// Nanoseconds between two looks.
const LOOK_EVERY: u64 = 50_000_000;

/// See the module. In bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// Says what the agent has mapped for its heap and the like.
    maps: fn() -> usize,
    /// Says what of all its memory is in memory.
    touched: Option<fn() -> usize>,
    /// When that was last asked (0: never), the answer, and what was mapped then.
    looked: u64,
    there: usize,
    mapped: usize,
}

impl Own {
    /// Nothing was looked at yet.
    pub(crate) fn new(maps: fn() -> usize) -> Own {
        Own { maps, touched: None, looked: 0, there: 0, mapped: 0 }
    }

    /// Says how to find out what is in memory.
    pub(crate) fn look_with(&mut self, touched: fn() -> usize) {
        self.touched = Some(touched);
    }

    /// What counts now, when the stores' tables have mapped `tables` beside the rest.
    pub(crate) fn bytes(&self, tables: u64) -> usize {
        self.of((self.maps)() + tables as usize)
    }

    fn of(&self, mapped: usize) -> usize {
        match self.looked {
            0 => mapped,
            _ => mapped.min(self.there + mapped.saturating_sub(self.mapped)),
        }
    }

    /// Looks what is in memory, from now on again and again.
    pub(crate) fn look(&mut self, tables: u64) {
        if let Some(touched) = self.touched {
            let mapped = (self.maps)() + tables as usize;
            (self.looked, self.there, self.mapped) = (sys::now(), touched(), mapped);
        }
    }

    /// Looks again if that is due.
    #[inline]
    pub(crate) fn look_again(&mut self, tables: impl FnOnce() -> u64) {
        if self.looked != 0 && sys::now().saturating_sub(self.looked) >= LOOK_EVERY {
            self.look(tables());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_counts_until_it_is_looked_at_and_whole_where_it_is_new() {
        let own = Own::new(|| 0);
        assert_eq!(own.of(1000), 1000);
        let own = Own { looked: 1, there: 400, mapped: 1000, ..own };
        assert_eq!([1000, 1100, 900, 300].map(|mapped| own.of(mapped)), [400, 500, 400, 300]);
    }
}
