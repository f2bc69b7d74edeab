//! The policies that can decide over live memory, by name.
//!
//! A program's accesses to its own memory are not reported one by one, so policies that must hear of every hit (LRU, ARC and
//! the like) cannot run here; they are refused by name.

use refault_core::Policy;
use refault_core::classic::{Classic, ClassicParams};
use refault_core::mglru::{Mglru, MglruParams};
use refault_core::policy::HitReport;
use refault_core::textbook::{Clock, Fifo, Lrfu, Sieve};

use crate::engine::{Reclaimer, Reclaiming};

/// The names that [`crate::PagerOptions::policy`] takes, the default first.
pub const POLICIES: &[&str] = &["mglru", "classic", "lrfu", "clock", "sieve", "fifo"];

/// Whether a policy has lists that schemes can sort.
pub(crate) fn sorts(name: &str) -> bool {
    matches!(name, "mglru" | "classic")
}

pub(crate) fn by_name(name: &str) -> Option<Box<dyn Reclaimer>> {
    match name {
        "fifo" => live(Fifo::default()),
        "lrfu" => live(Lrfu::default()),
        "clock" => live(Clock::default()),
        "sieve" => live(Sieve::default()),
        "mglru" => live(Mglru::new(MglruParams::default())),
        "classic" => live(Classic::new(ClassicParams::default())),
        _ => None,
    }
}

fn live<P: Policy + Send + 'static>(policy: P) -> Option<Box<dyn Reclaimer>> {
    (P::HITS != HitReport::EachAccess).then(|| Box::new(Reclaiming(policy)) as Box<dyn Reclaimer>)
}
