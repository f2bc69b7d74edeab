//! How long faults take, by what they had to do.
//!
//! Cost: one more load of the page's state word per fault, and 15 KiB per pager.

use std::time::Duration;

use refault_store::{Slot, Tier};

use crate::latency::Latencies;
use crate::state::{State, Word};

/// What a fault had to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// A first touch: zeros, or the region's file.
    Fresh,
    /// A page that was stored as its one word.
    SameFilled,
    /// A page of the compressed pool.
    Pool,
    /// A page of the file.
    File,
    /// Anything else: the first write to a page that is equal to its slot, or another thread was at work on the page.
    Other,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [FaultKind; 5] =
        [FaultKind::Fresh, FaultKind::SameFilled, FaultKind::Pool, FaultKind::File, FaultKind::Other];

    /// The name in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            FaultKind::Fresh => "fresh",
            FaultKind::SameFilled => "same_filled",
            FaultKind::Pool => "pool",
            FaultKind::File => "file",
            FaultKind::Other => "other",
        }
    }
}

impl From<Word> for FaultKind {
    /// What a fault that finds the page like this will have to do.
    fn from(word: Word) -> FaultKind {
        match word.state() {
            State::Fresh => FaultKind::Fresh,
            State::Stored => match Slot::from_bits(word.slot()).tier() {
                Tier::SameFilled => FaultKind::SameFilled,
                Tier::Pool => FaultKind::Pool,
                Tier::File => FaultKind::File,
            },
            _ => FaultKind::Other,
        }
    }
}

/// A histogram for each kind.
#[derive(Default)]
pub(crate) struct FaultLatencies([Latencies; FaultKind::ALL.len()]);

impl FaultLatencies {
    pub(crate) fn record(&self, kind: FaultKind, duration: Duration) {
        self.0[kind as usize].record(duration);
    }

    pub(crate) fn of(&self, kind: FaultKind) -> &Latencies {
        &self.0[kind as usize]
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
