//! The three areas of a process: heap side, mapping side, stack side (spec: damon §4.1).
//!
//! Kernel: `damon_va_three_regions`, `__damon_va_three_regions` in `mm/damon/vaddr.c`.

use std::ops::Range;

/// The areas left when the two biggest gaps between the sorted `mappings` are taken out, borders rounded up to
/// `min_region_size`. `None` with fewer than two gaps. Cost: one pass.
pub fn three_areas(mappings: &[Range<u64>], min_region_size: u64) -> Option<[Range<u64>; 3]> {
    let (first, last) = (mappings.first()?, mappings.last()?);
    let (mut biggest, mut second) = (0..0, 0..0);
    let length = |gap: &Range<u64>| gap.end - gap.start;
    for pair in mappings.windows(2) {
        let gap = pair[0].end..pair[1].start.max(pair[0].end);
        if length(&gap) > length(&biggest) {
            second = std::mem::replace(&mut biggest, gap);
        } else if length(&gap) > length(&second) {
            second = gap;
        }
    }
    if length(&second) == 0 {
        return None;
    }
    let (low, high) = if biggest.start < second.start { (biggest, second) } else { (second, biggest) };
    let highest = u64::MAX / min_region_size * min_region_size;
    let up = |address: u64| address.checked_next_multiple_of(min_region_size).unwrap_or(highest);
    Some([up(first.start)..up(low.start), up(low.end)..up(high.start), up(high.end)..up(last.end)])
}

#[cfg(test)]
mod tests {
    use super::three_areas;

    #[test]
    fn the_two_biggest_gaps_are_taken_out() {
        let mappings = [10..20, 20..25, 200..210, 210..220, 221..230, 300..330, 330..334];
        assert_eq!(three_areas(&mappings, 1), Some([10..25, 200..230, 300..334]));
    }

    #[test]
    fn the_earlier_of_equal_gaps_wins_and_fewer_than_two_gaps_fail() {
        assert_eq!(three_areas(&[0..10, 20..30, 40..50, 60..70], 1), Some([0..10, 20..30, 40..70]));
        assert_eq!(three_areas(&[0..10, 20..30], 1), None);
        assert_eq!(three_areas(&[0..10, 10..30, 30..31], 1), None);
        assert_eq!(three_areas(&[], 1), None);
    }

    #[test]
    fn borders_round_up() {
        assert_eq!(
            three_areas(&[1..5000, 20_000..20_001, 90_000..90_001], 4096),
            Some([4096..8192, 20480..20480, 90112..90112])
        );
    }
}
