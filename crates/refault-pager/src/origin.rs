//! How long faults take, by what they had to do.
//!
//! Cost: one more load of the page's state word a fault, and 15 KiB a pager.

use std::time::Duration;

use refault_store::{Slot, Tier};

use crate::latency::Latencies;
use crate::state::{State, Word};

/// What a fault had to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A first touch: zeros, or the region's file.
    Fresh,
    /// A page that was stored as its one word.
    SameFilled,
    /// A page of the compressed pool.
    Pool,
    /// A page of the file.
    File,
    /// Anything else: the first write to a page that is equal to its slot, or somebody else was at work on the page.
    Other,
}

impl Origin {
    /// All of them.
    pub const ALL: [Origin; 5] = [Origin::Fresh, Origin::SameFilled, Origin::Pool, Origin::File, Origin::Other];

    /// The name in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Origin::Fresh => "fresh",
            Origin::SameFilled => "same_filled",
            Origin::Pool => "pool",
            Origin::File => "file",
            Origin::Other => "other",
        }
    }
}

impl From<Word> for Origin {
    /// What a fault that finds the page like this will have to do.
    fn from(word: Word) -> Origin {
        match word.state() {
            State::Fresh => Origin::Fresh,
            State::Stored => match Slot::from_bits(word.slot()).tier() {
                Tier::SameFilled => Origin::SameFilled,
                Tier::Pool => Origin::Pool,
                Tier::File => Origin::File,
            },
            _ => Origin::Other,
        }
    }
}

/// A histogram for each origin.
#[derive(Default)]
pub(crate) struct FaultLatencies([Latencies; Origin::ALL.len()]);

impl FaultLatencies {
    pub(crate) fn record(&self, origin: Origin, duration: Duration) {
        self.0[origin as usize].record(duration);
    }

    pub(crate) fn of(&self, origin: Origin) -> &Latencies {
        &self.0[origin as usize]
    }

    /// As they are now, while faults go on: what is computed from it agrees.
    pub(crate) fn snapshot(&self) -> FaultLatencies {
        let now = FaultLatencies::default();
        now.0.iter().zip(&self.0).for_each(|(now, one)| now.add(one));
        now
    }

    /// All together.
    pub(crate) fn all(&self) -> Latencies {
        let all = Latencies::default();
        self.0.iter().for_each(|one| all.add(one));
        all
    }
}
