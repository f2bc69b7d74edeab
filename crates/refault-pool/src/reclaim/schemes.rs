//! Schemes of the monitor on mappings: a mapping is a region whose accesses and age are those that the accessed bits
//! show.
//!
//! Its frequency is 0 if no process accessed it since the last look and 1 otherwise. Its age is for how many
//! aggregations it has been idle, 0 if it was accessed. Quotas by size hold; what else a scheme can ask for is refused
//! by [`refusal`].
//!
//! ```
//! use refault_core::schemes::{Action, SchemeSettings};
//! use refault_pool::reclaim::schemes::refusal;
//!
//! assert_eq!(refusal(&SchemeSettings::new(Action::Pageout)), None);
//! let (key, why) = refusal(&SchemeSettings::new(Action::Hugepage)).expect("it cannot be done from outside");
//! assert_eq!(key, "action");
//! assert!(why.contains("pageout or cold"));
//! ```

use std::time::Duration;

use refault_core::monitor::{Profile, Region};
use refault_core::schemes::{Action, Quota, SchemeSettings, Watermarks};

use super::Addresses;
use super::idle::Aged;
use super::process::Advice;

/// One in the moving sum of accesses.
const ONE_BP: u64 = 10_000;

/// Schemes at work.
#[derive(Debug)]
pub struct Schemes {
    schemes: Vec<SchemeSettings>,
    aggregation: Duration,
    profile: Profile,
    /// For each scheme: when its quota's window began, and the bytes charged in it.
    charged: Vec<(Duration, u64)>,
}

/// Why a scheme cannot be carried out on a process that is not ours: the key, and the reason.
pub fn refusal(scheme: &SchemeSettings) -> Option<(&'static str, &'static str)> {
    if advice(&scheme.action).is_none() {
        return Some(("action", "must be pageout or cold for a process that is not ours"));
    }
    let by_size =
        Quota { size: scheme.quota.size, reset_interval_ms: scheme.quota.reset_interval_ms, ..Quota::default() };
    let weights = scheme.quota.weights;
    if scheme.quota != (Quota { weights, ..by_size }) {
        return Some(("quotas", "hold by size only for a process that is not ours"));
    }
    if scheme.watermarks != Watermarks::default() {
        return Some(("watermarks", "are not looked at for a process that is not ours; leave them out"));
    }
    if !scheme.filters.is_empty() {
        return Some(("filters", "need pages, and mappings are looked at; leave them out"));
    }
    None
}

fn advice(action: &Action) -> Option<Advice> {
    match action {
        Action::Pageout => Some(Advice::PageOut),
        Action::Cold => Some(Advice::Cold),
        _ => None,
    }
}

impl Schemes {
    /// Schemes that [`refusal`] has nothing against.
    pub fn new(schemes: Vec<SchemeSettings>, aggregation: Duration, profile: Profile) -> Schemes {
        let charged = vec![(Duration::ZERO, 0); schemes.len()];
        Schemes { schemes, aggregation, profile, charged }
    }

    /// What is to happen to the mappings of a process now, a time after the start.
    pub fn choose(&mut self, aged: &[Aged], now: Duration) -> Vec<(Advice, Vec<Addresses>)> {
        let (aggregation, profile) = (self.aggregation, self.profile);
        let mut chosen = Vec::new();
        for (scheme, (began, charged)) in self.schemes.iter().zip(&mut self.charged) {
            let Some(advice) = advice(&scheme.action) else { continue };
            if (now - *began).as_millis() >= u128::from(scheme.quota.reset_interval_ms) {
                (*began, *charged) = (now, 0);
            }
            let mut ranges = Vec::new();
            for aged in aged.iter().filter(|aged| aged.mapping.reclaimable && aged.mapping.resident_bytes > 0) {
                let within = scheme.quota.size == 0 || *charged + aged.mapping.resident_bytes <= scheme.quota.size;
                if within && scheme.pattern.matches(&region(aged, aggregation), profile) {
                    *charged += aged.mapping.resident_bytes;
                    ranges.push(aged.mapping.start..aged.mapping.end);
                }
            }
            chosen.push((advice, ranges));
        }
        chosen
    }
}

/// A mapping as a region of the monitor.
fn region(aged: &Aged, aggregation: Duration) -> Region {
    let accessed = u32::from(aged.mapping.accessed_bytes > 0);
    let mut region = Region::new(aged.mapping.start, aged.mapping.end);
    (region.nr_accesses, region.nr_accesses_bp) = (accessed, u64::from(accessed) * ONE_BP);
    let aggregations = aged.idle.as_nanos() / aggregation.as_nanos().max(1);
    region.age = aggregations.min(u128::from(u32::MAX)) as u32;
    region
}

#[cfg(test)]
mod tests {
    use refault_core::schemes::{Bounds, Pattern};

    use super::*;
    use crate::mappings::Mapping;

    fn aged(start: u64, pages: u64, accessed_bytes: u64, idle: u64) -> Aged {
        let end = start + pages * 4096;
        let resident_bytes = pages * 4096;
        let mapping = Mapping { start, end, resident_bytes, accessed_bytes, reclaimable: true, ..Mapping::default() };
        Aged { mapping, idle: Duration::from_secs(idle) }
    }

    #[test]
    fn what_fits_the_pattern_goes_up_to_the_quota() {
        let mut scheme = SchemeSettings::new(Action::Pageout);
        scheme.pattern = Pattern { nr_accesses: Bounds { min: 0, max: 0 }, age: Bounds::at_least(5), ..Pattern::ANY };
        scheme.quota = Quota { size: 100 * 4096, reset_interval_ms: 10_000, ..Quota::default() };
        assert_eq!(refusal(&scheme), None);
        let mut schemes = Schemes::new(vec![scheme], Duration::from_secs(1), Profile::default());
        let all = [
            aged(0, 60, 0, 9),
            aged(1 << 20, 60, 0, 9),
            aged(2 << 20, 40, 0, 5),
            aged(3 << 20, 1, 8, 0),
            aged(4 << 20, 1, 0, 4),
        ];
        let first = schemes.choose(&all, Duration::from_secs(1));
        assert_eq!(first, [(Advice::PageOut, vec![0..60 * 4096, (2 << 20)..(2 << 20) + 40 * 4096])]);
        assert_eq!(schemes.choose(&all[1..2], Duration::from_secs(2))[0].1, [], "the window is used up");
        assert_eq!(schemes.choose(&all[1..2], Duration::from_secs(12))[0].1.len(), 1);
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_its_key() {
        let key = |scheme: SchemeSettings| refusal(&scheme).map(|(key, _)| key);
        assert_eq!(key(SchemeSettings::new(Action::Hugepage)), Some("action"));
        let mut scheme = SchemeSettings::new(Action::Cold);
        scheme.quota.time_ms = 5;
        assert_eq!(key(scheme), Some("quotas"));
    }
}
