//! The arithmetic of scanning: how long an inactive list should be, and how a scan is divided between anonymous and
//! file pages. It also says what is left to scan once the goal is met (spec: classic §6, §9, §10). Pure functions,
//! O(1).
//!
//! Kernel: `inactive_is_low`, `get_scan_count`, `shrink_lruvec` in `mm/vmscan.c`.

use crate::classic::lruvec::list_index;
use crate::page::PageType;

/// The ratio of inactive to active is set by the size in units of 1 GiB.
const GIGABYTE_SHIFT: u32 = 18;

/// Whether an inactive list is too short beside the active list of its type (spec: classic §6).
pub(super) fn inactive_is_low(inactive: u64, active: u64) -> bool {
    let gigabytes = (inactive + active) >> GIGABYTE_SHIFT;
    let ratio = if gigabytes > 0 { (10 * gigabytes).isqrt() } else { 1 };
    inactive * ratio < active
}

/// The parts of a scan that anonymous and file pages get, by swappiness and by what each has cost (spec: classic §9).
pub(super) fn shares(swappiness: u64, [anon_cost, file_cost]: [u64; 2]) -> [u64; 2] {
    let total = anon_cost + file_cost;
    let (anon_cost, file_cost) = (total + anon_cost, total + file_cost);
    let total = anon_cost + file_cost;
    [swappiness * (total + 1) / (anon_cost + 1), (200 - swappiness) * (total + 1) / (file_cost + 1)]
}

/// What is left to scan of each list after the goal was met: the type with less left is dropped, the other scanned down
/// to the same share. `None`: nothing, because one type is through (spec: classic §10).
pub(super) fn rest_after_goal(targets: &[u64; 4], left: &[u64; 4]) -> Option<[u64; 4]> {
    let of_type = |amounts: &[u64; 4], page_type: PageType| {
        amounts[list_index(page_type, false)] + amounts[list_index(page_type, true)]
    };
    let (anon, file) = (of_type(left, PageType::Anon), of_type(left, PageType::File));
    if anon == 0 || file == 0 {
        return None;
    }
    let (small, rest) = if file > anon { (PageType::Anon, anon) } else { (PageType::File, file) };
    let percent = rest * 100 / (of_type(targets, small) + 1);
    let mut remaining = [0; 4];
    for active in [false, true] {
        let list = list_index(small.other(), active);
        let scanned = targets[list] - left[list];
        remaining[list] = (targets[list] * (100 - percent) / 100).saturating_sub(scanned);
    }
    Some(remaining)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inactive_share_shrinks_with_size() {
        assert!(inactive_is_low(100_000, 350_000));
        assert!(!inactive_is_low(1000, 1000), "strict");
        assert!(inactive_is_low(0, 1));
        assert!(!inactive_is_low(0, 0));
        for (gigabytes, ratio) in [(1u64, 3u64), (10, 10), (100, 31), (1024, 101), (10_240, 320)] {
            let pages = gigabytes << GIGABYTE_SHIFT;
            let inactive = pages / (ratio + 1);
            assert!(!inactive_is_low(inactive + 1, pages - inactive - 1), "{gigabytes} GiB");
            assert!(inactive_is_low(inactive - 1, pages - inactive + 1), "{gigabytes} GiB");
        }
    }

    #[test]
    fn costs_move_the_scan_to_the_other_type() {
        assert_eq!(shares(60, [3000, 1000]), [102, 335]);
        assert_eq!(shares(60, [0, 0]), [60, 140]);
        let [anon, file] = shares(60, [3000, 1000]);
        let scan = |pages: u64, part| (pages >> 10) * part / (anon + file);
        assert_eq!(
            [scan(200_000, anon), scan(100_000, anon), scan(300_000, file), scan(400_000, file)],
            [45, 22, 223, 298]
        );
        // The three priorities of the worked hit of young anonymous pages (spec: overview §4.6).
        for (cost, parts) in [(0, (60, 200)), (4, (86, 450)), (10, (88, 482)), (21, (89, 496))] {
            let [anon, file] = shares(60, [cost, 0]);
            assert_eq!((anon, anon + file), parts, "anon cost {cost}");
        }
    }

    #[test]
    fn the_type_with_the_smaller_remainder_is_dropped() {
        let targets = [45, 22, 223, 298];
        let after_one_round = [13, 0, 191, 266];
        assert_eq!(rest_after_goal(&targets, &after_one_round), Some([0, 0, 148, 209]));
        assert_eq!(rest_after_goal(&targets, &[0, 0, 116, 177]), None);
        assert_eq!(rest_after_goal(&[0, 0, 50, 40], &[0, 0, 18, 8]), None, "no swap: ends with the goal");
    }
}
