//! Ages by region that another monitor keeps, such as the kernel's: finer than mappings, so that the idle part of a
//! large heap is seen.
//!
//! Where a region begins or ends within a mapping the mapping is cut; what lies in no region counts as just accessed.
//! Cost: one walk over mappings and regions, which both ascend.
//!
//! ```
//! use std::time::Duration;
//!
//! use refault_pool::mappings::Mapping;
//! use refault_pool::reclaim::regions::cut;
//!
//! let heap = Mapping { start: 0, end: 64 << 12, resident_bytes: 64 << 12, reclaimable: true, ..Mapping::default() };
//! let idle = Duration::from_secs(60);
//! let aged = cut(&[heap], &[(0..48 << 12, idle), (48 << 12..64 << 12, Duration::ZERO)]);
//! assert_eq!((aged[0].idle, aged[0].mapping.end), (idle, 48 << 12));
//! assert_eq!((aged[1].idle, aged[1].mapping.resident_bytes), (Duration::ZERO, 16 << 12));
//! ```

use std::io;
use std::time::Duration;

use super::Addresses;
use super::idle::Aged;
use crate::mappings::Mapping;

/// Who knows for how long parts of a process were not accessed.
pub trait Regions {
    /// Regions, ascending, and for how long no process has accessed each; 0 if one did at the last look.
    ///
    /// # Errors
    /// The process has ended, or it is monitored no longer.
    fn look(&mut self) -> io::Result<Vec<(Addresses, Duration)>>;

    /// What it is, in words.
    fn words(&self) -> String;
}

/// Mappings, which ascend, cut where regions do: each part with its region's idle time, and with as much of the
/// mapping's memory as it is a part of it.
pub fn cut(mappings: &[Mapping], regions: &[(Addresses, Duration)]) -> Vec<Aged> {
    let mut aged = Vec::with_capacity(mappings.len());
    let mut first = 0;
    for mapping in mappings {
        while regions.get(first).is_some_and(|(region, _)| region.end <= mapping.start) {
            first += 1;
        }
        let mut at = mapping.start;
        for (region, idle) in regions[first..].iter().take_while(|(region, _)| region.start < mapping.end) {
            let (start, end) = (region.start.max(at), region.end.min(mapping.end));
            if at < start {
                aged.push(part(mapping, at..start, Duration::ZERO));
            }
            if start < end {
                aged.push(part(mapping, start..end, *idle));
                at = end;
            }
        }
        if at < mapping.end {
            aged.push(part(mapping, at..mapping.end, Duration::ZERO));
        }
    }
    aged
}

fn part(mapping: &Mapping, range: Addresses, idle: Duration) -> Aged {
    let bytes = range.end - range.start;
    let share = |of: u64| (u128::from(of) * u128::from(bytes) / u128::from(mapping.end - mapping.start)) as u64;
    let resident_bytes = share(mapping.resident_bytes);
    let mapping = Mapping {
        start: range.start,
        end: range.end,
        resident_bytes,
        accessed_bytes: if idle.is_zero() { resident_bytes } else { 0 },
        anonymous_bytes: share(mapping.anonymous_bytes),
        shared_bytes: share(mapping.shared_bytes),
        swap_bytes: share(mapping.swap_bytes),
        reclaimable: mapping.reclaimable,
    };
    Aged { mapping, idle }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_of_a_mapping_is_in_one_part_and_has_its_regions_age() {
        let mapping =
            |start, end| Mapping { start, end, resident_bytes: end - start, reclaimable: true, ..Mapping::default() };
        let mappings = [mapping(10, 20), mapping(30, 50), mapping(60, 61)];
        let seconds = Duration::from_secs;
        // Before, across a border, within, and a gap that no region covers.
        let regions = [(0..5, seconds(9)), (15..32, seconds(1)), (40..45, seconds(2)), (45..46, seconds(0))];
        let made: Vec<(u64, u64, u64)> = cut(&mappings, &regions)
            .iter()
            .map(|aged| {
                assert_eq!(aged.mapping.resident_bytes, aged.mapping.end - aged.mapping.start);
                assert_eq!(aged.mapping.accessed_bytes > 0, aged.idle.is_zero());
                (aged.mapping.start, aged.mapping.end, aged.idle.as_secs())
            })
            .collect();
        let expected =
            [(10, 15, 0), (15, 20, 1), (30, 32, 1), (32, 40, 0), (40, 45, 2), (45, 46, 0), (46, 50, 0), (60, 61, 0)];
        assert_eq!(made, expected);
        assert!(cut(&[], &regions).is_empty() && cut(&mappings, &[]).len() == 3);
    }
}
