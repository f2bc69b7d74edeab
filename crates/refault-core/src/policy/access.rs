//! What a policy is told of an access, by how it learns of hits.

use super::HitReport;
use crate::page::{NO_PAGE, PageId};

/// What a front-end does about an access through a file descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessReport {
    /// Nothing.
    Nothing,
    /// It sets the page's accessed bit, which the policy takes by [`crate::Memory::take_references`].
    SetBit,
    /// It calls [`super::Policy::accessed`].
    Tell,
}

/// The kernel's rule about repeated reads through file descriptors (spec: classic §3): a read of the page that was read
/// last says nothing new, and writes do not count. One per reader; O(1).
#[derive(Clone, Copy, Debug)]
pub struct DescriptorReads {
    last: PageId,
}

impl Default for DescriptorReads {
    fn default() -> DescriptorReads {
        DescriptorReads { last: NO_PAGE }
    }
}

impl DescriptorReads {
    /// Whether a policy that learns of hits as [`HitReport::Kernel`] is told of this access.
    #[inline]
    pub fn counts(&mut self, page: PageId, write: bool) -> bool {
        let counts = !write && page != self.last;
        if counts {
            self.last = page;
        }
        counts
    }

    /// What is done about an access under any policy. `hit`: the page was resident before it.
    #[inline]
    pub fn report(&mut self, hits: HitReport, page: PageId, write: bool, hit: bool) -> AccessReport {
        match hits {
            HitReport::Kernel if self.counts(page, write) => AccessReport::Tell,
            HitReport::AccessedBit if hit => AccessReport::SetBit,
            HitReport::EachAccess if hit => AccessReport::Tell,
            _ => AccessReport::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_read_says_nothing_and_a_write_never_does() {
        let mut reads = DescriptorReads::default();
        let told = [(1, false), (1, false), (2, false), (1, false), (3, true), (1, false)];
        let told = told.map(|(page, write)| reads.report(HitReport::Kernel, page, write, true) == AccessReport::Tell);
        assert_eq!(told, [true, false, true, true, false, false]);
    }

    #[test]
    fn the_access_that_brings_a_page_in_is_a_hit_for_the_kernels_policies_alone() {
        let report = |hits, hit| DescriptorReads::default().report(hits, 0, false, hit);
        assert_eq!(report(HitReport::Kernel, false), AccessReport::Tell);
        for hits in [HitReport::AccessedBit, HitReport::EachAccess, HitReport::Never] {
            assert_eq!(report(hits, false), AccessReport::Nothing);
        }
        assert_eq!(report(HitReport::AccessedBit, true), AccessReport::SetBit);
        assert_eq!(report(HitReport::EachAccess, true), AccessReport::Tell);
        assert_eq!(report(HitReport::Never, true), AccessReport::Nothing);
    }
}
