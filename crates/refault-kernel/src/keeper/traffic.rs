//! How many of a group's pages went to swap, and came back.
//!
//! Alone the devices say it. While other keepers are there, their pages are on the same devices: then major faults of the
//! group stand for what came back, and growth of what it has in swap for what went. Both are less than the truth, since
//! pages that come along are no faults, and a page that goes while another comes back is no growth.

use crate::device::Transfers;

/// What a group counts by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Own {
    /// Major faults so far.
    pub major_faults: u64,
    /// Pages that are in swap.
    pub swapped: u64,
}

/// The sums so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    devices: Transfers,
    own: Own,
    sums: Transfers,
}

impl Traffic {
    /// Takes up what was counted since the last look; the sums.
    pub(super) fn look(&mut self, devices: Transfers, own: Own, is_alone: bool) -> Transfers {
        let (before, had) = (std::mem::replace(&mut self.devices, devices), std::mem::replace(&mut self.own, own));
        let new = match is_alone {
            true => Transfers {
                read: devices.read.saturating_sub(before.read),
                written: devices.written.saturating_sub(before.written),
            },
            false => Transfers {
                read: own.major_faults.saturating_sub(had.major_faults),
                written: own.swapped.saturating_sub(had.swapped),
            },
        };
        self.sums = self.sums.plus(new);
        self.sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_of_others_is_not_the_groups() {
        let mut traffic = Traffic::default();
        let devices = |read, written| Transfers { read, written };
        let own = |major_faults, swapped| Own { major_faults, swapped };
        assert_eq!(traffic.look(devices(10, 30), own(8, 20), true), devices(10, 30));
        // Others read and write a hundred thousand pages each.
        assert_eq!(traffic.look(devices(100_010, 100_030), own(9, 25), false), devices(11, 35));
        assert_eq!(traffic.look(devices(200_010, 200_030), own(9, 15), false), devices(11, 35));
        // They are gone.
        assert_eq!(traffic.look(devices(200_012, 200_031), own(11, 14), true), devices(13, 36));
    }
}
