//! What of a group stays in memory whatever limit it has: what is locked, and what goes only to swap where that has no room.
//!
//! Each group is asked alone. Swap that is free counts for each.

use std::path::Path;

use refault_pool::reclaim::groups::{swap_room_bytes, swappiness};
use refault_pool::reclaim::swap::Swap;

use crate::figures::Stat;

/// The room in swap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    free_bytes: u64,
}

impl Room {
    pub(crate) fn of_host() -> Room {
        Room { free_bytes: Swap::of_host().map_or(0, |swap| swap.free_bytes()) }
    }

    /// How much a group may swap: the host's swap, what it may have of it, and whether the kernel swaps to shrink it.
    pub(crate) fn of_group(self, directory: &Path) -> u64 {
        let most = if swappiness(directory) == 0 { 0 } else { self.free_bytes };
        swap_room_bytes(directory).unwrap_or(u64::MAX).min(most)
    }

    /// What stays of a group.
    pub(crate) fn stays_bytes(self, directory: &Path, stat: &Stat) -> u64 {
        stat.swap_backed_bytes().saturating_sub(self.of_group(directory)).max(stat.unevictable_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_swap_has_no_room_for_stays() {
        let group = tempfile::tempdir().expect("a directory");
        let write = |file: &str, text: &str| std::fs::write(group.path().join(file), text).expect("room");
        write("cgroup.procs", "");
        write("memory.swappiness", "60");
        let stat = Stat { anonymous_bytes: 500, shared_bytes: 100, file_bytes: 900, ..Stat::default() };
        let stays = |free_bytes: u64, stat: &Stat| Room { free_bytes }.stays_bytes(group.path(), stat);
        assert_eq!([stays(0, &stat), stays(250, &stat), stays(9000, &stat)], [600, 350, 0]);
        let locked = Stat { unevictable_bytes: 400, ..stat };
        assert_eq!([stays(0, &locked), stays(9000, &locked)], [600, 400]);
        write("memory.swap.max", "200");
        assert_eq!(stays(9000, &stat), 400);
        write("memory.swappiness", "0");
        assert_eq!(stays(9000, &stat), 600);
    }
}
