//! Which requests fetch some ranges: those that lie near each other are one.
//!
//! Invariants: every byte that is wanted is in exactly one request; requests are ascending and do not overlap; none is
//! longer than `most`, unless one wanted range alone is. Cost: O(n log n).

use std::ops::Range;

/// Joins ranges whose gaps are at most `gap` bytes.
pub(crate) fn coalesce(wanted: &[Range<u64>], gap: u64, most: u64) -> Vec<Range<u64>> {
    let mut sorted: Vec<Range<u64>> = wanted.iter().filter(|range| !range.is_empty()).cloned().collect();
    sorted.sort_by_key(|range| (range.start, range.end));
    let mut requests: Vec<Range<u64>> = Vec::new();
    for mut range in sorted {
        if let Some(last) = requests.last_mut() {
            if range.start <= last.end.saturating_add(gap) && range.end.max(last.end) - last.start <= most {
                last.end = last.end.max(range.end);
                continue;
            }
            // What two ranges share is fetched once.
            range.start = range.start.max(last.end);
        }
        if !range.is_empty() {
            requests.push(range);
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use refault_testing::Random;

    use super::*;

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "ranges are meant")]
    fn near_ranges_are_one_request_and_far_ones_are_not() {
        assert_eq!(coalesce(&[100..200, 0..50, 250..300], 50, 1000), [0..300]);
        assert_eq!(coalesce(&[100..200, 0..49, 251..300], 50, 1000), [0..49, 100..200, 251..300]);
        assert_eq!(coalesce(&[0..10, 0..10, 5..7, 20..20], 0, 1000), [0..10]);
        assert_eq!(
            coalesce(&[0..60, 50..120], 0, 100),
            [0..60, 60..120],
            "no request is too long, no byte comes twice"
        );
        assert_eq!(coalesce(&[u64::MAX - 1..u64::MAX], u64::MAX, 1), [u64::MAX - 1..u64::MAX]);
    }

    #[test]
    fn every_byte_that_is_wanted_is_in_one_request() {
        let mut random = Random::new(1);
        for _ in 0..1000 {
            let range = |random: &mut Random| {
                let start = random.below(200);
                start..start + random.below(30)
            };
            let wanted: Vec<Range<u64>> = (0..random.below(8)).map(|_| range(&mut random)).collect();
            let gap = random.below(20);
            let requests = coalesce(&wanted, gap, 60);
            assert!(requests.windows(2).all(|two| two[0].end <= two[1].start), "{wanted:?} {requests:?}");
            for byte in 0..230 {
                let is_wanted = wanted.iter().any(|range| range.contains(&byte));
                let fetched = requests.iter().any(|range| range.contains(&byte));
                assert!(fetched || !is_wanted, "{wanted:?} {requests:?}");
            }
            assert!(requests.iter().all(|range| range.end - range.start <= 60));
        }
    }
}
