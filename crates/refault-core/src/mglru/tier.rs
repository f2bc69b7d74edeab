//! The feedback loop: which type to evict from and which tiers to protect (spec: mglru §10).
//!
//! A tier, or a type, that refaults more than the base it is held against is spared. The proportional term is the
//! generation being evicted, the integral term a moving average over those before; there is no derivative.
//!
//! Kernel: `read_ctrl_pos`, `reset_ctrl_pos`, `positive_ctrl_err`, `get_tier_idx`, `get_type_to_scan` in `mm/vmscan.c`.

use crate::mglru::Mglru;
use crate::mglru::generation::{Lruvec, MAX_TIERS, MIN_BATCH};
use crate::page::{LruvecId, PageType};

/// The setting and the measurement that the loop compares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    refaulted: u64,
    total: u64,
    gain: u64,
}

/// Whether the measured rate is no worse than the set point's: then it may be evicted.
#[inline]
fn no_worse(set_point: Position, measured: Position) -> bool {
    measured.refaulted < MIN_BATCH
        || u128::from(measured.refaulted) * u128::from(set_point.total + MIN_BATCH) * u128::from(set_point.gain)
            <= u128::from(set_point.refaulted + 1) * u128::from(measured.total) * u128::from(measured.gain)
}

impl Lruvec {
    /// Refaults and evictions of some tiers of a type, averages included.
    fn position(&self, page_type: PageType, tiers: std::ops::Range<usize>, gain: u64) -> Position {
        let history = &self.history[page_type.index()];
        let mut position = Position { refaulted: 0, total: 0, gain };
        for tier in tiers {
            position.refaulted += history.avg_refaulted[tier] + history.refaulted[tier];
            position.total += history.avg_total[tier] + history.evicted[tier] + history.protected[tier];
        }
        position
    }
}

impl Mglru {
    /// The highest tier of a type that may be evicted.
    pub(super) fn tier_limit(&self, lruvec: LruvecId, page_type: PageType) -> usize {
        let (base_gain, gain) = if self.is_7_2() { (2, 3) } else { (1, 2) };
        let set_point = self.lruvecs[lruvec as usize].position(page_type, 0..1, base_gain);
        self.limit_against(set_point, lruvec, page_type, gain)
    }

    /// The type to evict from and, in 6.12, the tier limit that follows from the comparison.
    pub(super) fn choose_type(&self, lruvec: LruvecId, swappiness: u64) -> (PageType, Option<usize>) {
        let state = &self.lruvecs[lruvec as usize];
        let gains = [swappiness, 200 - swappiness];
        let tiers = if self.is_7_2() { 0..MAX_TIERS } else { 0..1 };
        let anon = state.position(PageType::Anon, tiers.clone(), gains[0]);
        let file = state.position(PageType::File, tiers, gains[1]);
        let chosen = if no_worse(anon, file) { PageType::File } else { PageType::Anon };
        if self.is_7_2() {
            return (chosen, None);
        }
        let set_point = match chosen {
            PageType::File => anon,
            PageType::Anon => file,
        };
        (chosen, Some(self.limit_against(set_point, lruvec, chosen, gains[chosen.index()])))
    }

    /// Tiers above the base are evicted as long as each is no worse than the set point; the first that is worse
    /// protects all above it.
    fn limit_against(&self, set_point: Position, lruvec: LruvecId, page_type: PageType, gain: u64) -> usize {
        let state = &self.lruvecs[lruvec as usize];
        (1..self.params.tiers)
            .find(|&tier| !no_worse(set_point, state.position(page_type, tier..tier + 1, gain)))
            .map_or(MAX_TIERS - 1, |worse| worse - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(refaulted: u64, total: u64, gain: u64) -> Position {
        Position { refaulted, total, gain }
    }

    #[test]
    fn tiers_are_compared_with_twice_the_base_rate() {
        // The two examples of spec: mglru §10.
        assert!(!no_worse(at(500, 10_000, 1), at(900, 4_000, 2)));
        assert!(no_worse(at(500, 10_000, 1), at(300, 4_000, 2)));
    }

    #[test]
    fn types_are_weighed_by_swappiness() {
        assert!(no_worse(at(400, 8_000, 60), at(1_200, 20_000, 140)));
        assert!(!no_worse(at(400, 8_000, 150), at(1_200, 20_000, 50)));
    }

    #[test]
    fn few_refaults_protect_nothing() {
        assert!(no_worse(at(0, 0, 1), at(63, 1, 2)));
        assert!(!no_worse(at(0, 1_000_000, 1), at(64, 64, 2)));
    }
}
