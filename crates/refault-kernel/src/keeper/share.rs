//! What of the devices' memory counts for which group.
//!
//! Swap is the machine's: pages of every group are on every keeper's device. The kernel counts for a group how many
//! pages are swapped, but not what they take compressed. A keeper measures what a page of its group takes while no
//! other keeper is there, and its journal tells the others. What is not accounted for by that is shared by number of
//! pages. The shares of all groups are together what all devices take, whatever was measured.

/// Pages of a group that are on devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Swapped {
    /// Bytes, before compression.
    pub(super) bytes: u64,
    /// Bytes that a page takes compressed, as measured while the group was alone.
    pub(super) stored_per_page: Option<u32>,
}

impl Swapped {
    /// Bytes that they take, if pages are as they were when they were measured.
    fn stored(&self) -> Option<f64> {
        self.stored_per_page.map(|each| self.bytes as f64 / crate::PAGE as f64 * f64::from(each))
    }
}

/// What counts for a group, of `used` bytes that all devices take.
pub(super) fn share(used: u64, own: Swapped, others: &[Swapped]) -> u64 {
    let all = || std::iter::once(&own).chain(others);
    let measured: f64 = all().filter_map(Swapped::stored).sum();
    let unmeasured: f64 = all().filter(|group| group.stored_per_page.is_none()).map(|group| group.bytes as f64).sum();
    let used = used as f64;
    let part = match own.stored() {
        // Pages have changed since they were measured, or all were measured and their sum is not quite what is used.
        Some(stored) if measured > used || unmeasured == 0.0 => {
            if measured > 0.0 {
                stored / measured * used
            } else {
                used / (others.len() + 1) as f64
            }
        }
        Some(stored) => stored,
        None if unmeasured > 0.0 => (used - measured).max(0.0) * own.bytes as f64 / unmeasured,
        // Nothing of it is swapped, nor of any other that was not measured.
        None => (used - measured).max(0.0),
    };
    part as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn group(pages: u64, stored_per_page: Option<u32>) -> Swapped {
        Swapped { bytes: pages * crate::PAGE, stored_per_page }
    }

    #[test]
    fn what_was_measured_counts_and_the_rest_goes_by_pages() {
        let (own, other) = (group(1000, Some(500)), group(500, None));
        assert_eq!(share(2_000_000, own, &[other]), 500_000);
        assert_eq!(share(2_000_000, other, &[own]), 1_500_000);
        // Two that were not measured are as large as each other, page by page.
        let third = group(1000, None);
        assert_eq!(share(2_000_000, third, &[own, other]), 1_000_000);
        // Alone: everything.
        assert_eq!(share(7_000_000, own, &[]), 7_000_000);
        assert_eq!(share(7_000_000, other, &[]), 7_000_000);
        // Both measured, and both have grown in the same measure.
        assert_eq!(share(3_000_000, own, &[group(500, Some(2000))]), 1_000_000);
    }

    fn groups() -> impl Strategy<Value = Vec<Swapped>> {
        let one = (0u64..1 << 20, prop::option::of(1u32..4097)).prop_map(|(pages, each)| group(pages, each));
        prop::collection::vec(one, 1..6)
    }

    proptest! {
        #[test]
        fn shares_are_together_what_is_used(groups in groups(), used in 0u64..1 << 40) {
            let shares: Vec<u64> = (0..groups.len()).map(|at| {
                let mut others = groups.clone();
                let own = others.remove(at);
                share(used, own, &others)
            }).collect();
            let sum: u64 = shares.iter().sum();
            // Each is cut to whole bytes. More can be counted, never less: what nothing accounts for is everyone's.
            prop_assert!(sum + groups.len() as u64 >= used, "{shares:?} of {used}");
            let has_pages = groups.iter().all(|group| group.bytes > 0);
            prop_assert!(!has_pages || sum <= used, "{shares:?} of {used}");
        }
    }
}
