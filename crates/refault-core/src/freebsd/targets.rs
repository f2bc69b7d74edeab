//! How many frames the page daemon keeps available (spec: freebsd §2). All in pages, integer arithmetic.
//!
//! Kernel: `vm_pageout_init` in `sys/vm/vm_pageout.c`; `vm_paging_target`, `vm_paging_needed`, `vm_page_count_min`,
//! `vm_page_count_severe` in `sys/sys/vmmeter.h`.

use super::Version;

/// Pages of a cluster that is written together.
const PAGEOUT_PAGE_COUNT: u64 = 16;
/// The same on a small machine.
const SMALL_PAGEOUT_PAGE_COUNT: u64 = 8;
/// Machines below this are small.
const SMALL_MACHINE: u64 = 2000;
/// Frames the daemon itself may need to write: two clusters of a file system's largest block, and two.
const PAGEOUT_FREE_MIN: u64 = 2 * 65536 / 4096 + 2;
/// The part of a small number of frames that the target may be at most, see [`Targets::for_frames`].
const MAX_TARGET: u64 = 16;

/// Thresholds for the frames available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// Below this, requests of pages are refused: what is left is for the daemon and for interrupts.
    pub free_reserved: u64,
    /// Below this, faults wait, and freed pages are let go at once.
    pub free_severe: u64,
    /// Below this, the daemon does not rest.
    pub free_min: u64,
    /// The daemon frees until this is reached.
    pub free_target: u64,
    /// Pages the daemon wants on the inactive queue.
    pub inactive_target: u64,
    /// Below this, the daemon is woken.
    pub wakeup_threshold: u64,
}

impl Targets {
    /// What a machine with this many managed pages computes at boot.
    pub fn at_boot(frames: u64) -> Targets {
        let raw_min = if frames > 1024 { 4 + (frames - 1024) / 200 } else { 4 };
        let page_count = if frames < SMALL_MACHINE { SMALL_PAGEOUT_PAGE_COUNT } else { PAGEOUT_PAGE_COUNT };
        let free_reserved = page_count + PAGEOUT_FREE_MIN + frames / 768;
        let free_target = 4 * raw_min + free_reserved;
        let free_min = raw_min + free_reserved;
        Targets {
            free_reserved,
            free_severe: raw_min / 2 + free_reserved,
            free_min,
            free_target,
            inactive_target: (3 * free_target / 2).min(frames / 3),
            wakeup_threshold: free_min / 10 * 11,
        }
    }

    /// As a version has them: since 12 the daemon is woken at nine tenths of the target (spec: freebsd §9).
    pub fn of_version(self, version: Version) -> Targets {
        match version {
            Version::V12 => Targets { wakeup_threshold: self.free_target / 10 * 9, ..self },
            Version::V10 | Version::V2015 => self,
        }
    }

    /// [`Targets::at_boot`], but for fewer than 928 frames scaled down in proportion, so that the target is at most one
    /// frame in sixteen. The constants of the formulas are made for machines, and would leave a limit of a hundred
    /// pages with forty in use.
    pub fn for_frames(frames: u64) -> Targets {
        let exact = Targets::at_boot(frames);
        let target = frames / MAX_TARGET;
        if exact.free_target <= target {
            return exact;
        }
        let scaled = |value: u64| value * target / exact.free_target;
        Targets {
            free_reserved: scaled(exact.free_reserved),
            free_severe: scaled(exact.free_severe),
            free_min: scaled(exact.free_min),
            free_target: target,
            inactive_target: 3 * target / 2,
            wakeup_threshold: scaled(exact.wakeup_threshold),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_of_the_published_experiment() {
        let targets = Targets::at_boot(629_591);
        assert_eq!(
            targets,
            Targets {
                free_reserved: 869,
                free_severe: 2442,
                free_min: 4015,
                free_target: 13_453,
                inactive_target: 20_179,
                wakeup_threshold: 4411,
            }
        );
        assert_eq!(targets, Targets::for_frames(629_591));
    }

    #[test]
    fn small_limits_keep_most_of_their_frames() {
        assert_eq!(Targets::at_boot(927).free_target, 59);
        assert_eq!(Targets::for_frames(1000), Targets::at_boot(1000));
        for frames in 0..2000 {
            let t = Targets::for_frames(frames);
            assert!(t.free_target <= frames / 16, "{frames}: {t:?}");
            let order = [t.free_reserved, t.free_severe, t.free_min, t.free_target];
            assert!(order.is_sorted() && t.wakeup_threshold <= t.free_target, "{frames}: {t:?}");
        }
    }
}
