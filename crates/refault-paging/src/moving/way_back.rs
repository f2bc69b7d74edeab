//! How pages come back in a program of several threads: moved, or copied.
//!
//! To move a page within a process is to tell every processor that is in the process. That costs little while the other
//! threads sleep, and more than a copy while they run. The kernel does not tell which they do. So both are timed, and
//! now and then the one that seems dearer is tried.
//!
//! Invariant: what is dearer than it was is noticed at the first page or two, what is cheaper after some dozens of
//! trials. Only pages that come back from the staging area are tried; what is read back follows. Cost: two looks at the
//! clock per page.

/// One page in this many is a trial.
const TRIAL: u32 = 256;
/// Nanoseconds that a page counts for at most: the thread may have been preempted.
const MAX_TIME: u64 = 20_000;
/// The part of a new time in the average.
const WEIGHT: f32 = 1.0 / 16.0;

/// See the module.
pub(crate) struct WayBack {
    /// Nanoseconds per page, on average.
    moved: f32,
    copied: f32,
    turn: u32,
}

impl Default for WayBack {
    fn default() -> WayBack {
        // Where nothing is known, other threads run.
        WayBack { moved: MAX_TIME as f32 / 2.0, copied: 0.0, turn: 0 }
    }
}

impl WayBack {
    /// Whether moving a page seems to be cheaper.
    pub(crate) fn is_moving_cheaper(&self) -> bool {
        self.moved < self.copied
    }

    /// Whether the next page is to be moved: the cheaper way, or a trial of the other.
    pub(crate) fn next_is_moved(&mut self) -> bool {
        self.turn = self.turn.wrapping_add(1);
        self.is_moving_cheaper() ^ self.turn.is_multiple_of(TRIAL)
    }

    /// A page came back in `nanoseconds` nanoseconds.
    pub(crate) fn took(&mut self, moved: bool, nanoseconds: u64) {
        let average = if moved { &mut self.moved } else { &mut self.copied };
        *average += (nanoseconds.min(MAX_TIME) as f32 - *average) * WEIGHT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages that were moved of `pages`, where a move takes `move_takes` ns and a copy 1,500 ns.
    fn moved_of(way: &mut WayBack, pages: u32, move_takes: u64) -> u32 {
        (0..pages)
            .filter(|_| {
                let moved = way.next_is_moved();
                way.took(moved, if moved { move_takes } else { 1_500 });
                moved
            })
            .count() as u32
    }

    #[test]
    fn the_cheaper_way_is_found_and_the_dearer_one_left_at_once() {
        let mut way = WayBack::default();
        let pages = 100 * TRIAL;
        assert!(moved_of(&mut way, pages, 16_000) <= pages / TRIAL);
        // Other threads sleep.
        moved_of(&mut way, pages, 1_000);
        assert!(moved_of(&mut way, pages, 1_000) >= pages - pages / TRIAL);
        // And run.
        assert!(moved_of(&mut way, TRIAL, 16_000) <= 3);
    }

    #[test]
    fn a_thread_that_was_preempted_changes_little() {
        let mut way = WayBack::default();
        moved_of(&mut way, 100 * TRIAL, 1_000);
        assert!(way.is_moving_cheaper());
        way.took(true, 10_000_000_000);
        moved_of(&mut way, 20 * TRIAL, 1_000);
        assert!(way.is_moving_cheaper());
    }
}
