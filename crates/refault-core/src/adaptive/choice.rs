//! Who leads, and how far the leader may be followed.
//!
//! **Leader.** Each directory's misses are counted, older ones for less; the directory with the fewest leads. So a
//! change of mind takes as many misses as the difference has to make up: few when one way suddenly misses everything.
//!
//! **Guard.** Following a leader means evicting pages that LRU would hold, each of which may have to be read back. They
//! are a stake, and what may be staked is what the policy has won against LRU so far and a fiftieth of LRU's misses.
//! While there is no more to stake, victims are pages that LRU does not hold either, which cannot add to the loss.
//!
//! With *M* misses of its own, *L* of LRU, and *A* absent pages (LRU holds them, memory does not), no step under the
//! guard raises *M − L + A*: if both miss, both numbers grow; if only the policy does, the page was absent and no
//! longer is. A step that follows the leader raises it by one at most, and is taken only where it ends within 0.02 *L*.
//! So *M ≤ 1.02 L* for every sequence, at every time, as long as memory keeps its size.
//!
//! The price is paid where a leader is right at once: what is kept of a loop doubles with each pass or faster, and does
//! not start at its full size. A policy that stakes more than this has a sequence on which it breaks the bound: the one
//! that asks for all absent pages next.
//!
//! Cost: O(1) per miss of any directory.

use super::Way;

/// References that some directory missed after which an earlier one counts for 1/e: in memory sizes, and at most.
const RECENT_MEMORY_SIZES: f64 = 2.0;
const MAX_RECENT: f64 = 50_000.0;
/// Misses by which another directory must be better to lead: the odd page decides nothing.
const MIN_LEAD: f64 = 4.0;
/// Share of LRU's misses that may be lost to it.
const TOLERATED_LOSS: f64 = 0.02;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub leader: Way,
    /// Who may lead.
    candidates: [bool; 3],
    guarded: bool,
    /// Misses of each directory, older ones for less.
    recent: [f64; 3],
    /// What a miss counts for after the next one.
    fading: f64,
    /// Misses of each directory in all.
    misses: [u64; 3],
    /// The policy's own.
    own_misses: u64,
    /// Pages that recency holds and memory does not.
    pub absent: u64,
    pub changes: u64,
}

impl Choice {
    pub fn new(candidates: [bool; 3], guarded: bool) -> Choice {
        let first = [Way::ReuseDistance, Way::Frequency, Way::Recency];
        let leader = first.into_iter().find(|way| candidates[*way as usize]).unwrap_or(Way::Recency);
        Choice {
            leader,
            candidates,
            guarded,
            recent: [0.0; 3],
            fading: 0.0,
            misses: [0; 3],
            own_misses: 0,
            absent: 0,
            changes: 0,
        }
    }

    pub fn resize(&mut self, capacity: usize) {
        self.fading = 1.0 - 1.0 / (RECENT_MEMORY_SIZES * capacity as f64).clamp(1.0, MAX_RECENT);
    }

    /// A reference that some directories missed: counts it, and may change the leader.
    pub fn directories_missed(&mut self, missed: [bool; 3]) {
        for way in Way::ALL {
            let miss = missed[way as usize];
            self.misses[way as usize] += u64::from(miss);
            self.recent[way as usize] = self.recent[way as usize] * self.fading + f64::from(u8::from(miss));
        }
        let mut best = self.leader;
        for way in Way::ALL {
            if self.candidates[way as usize] && self.recent[way as usize] < self.recent[best as usize] {
                best = way;
            }
        }
        if self.recent[best as usize] + MIN_LEAD < self.recent[self.leader as usize] {
            self.leader = best;
            self.changes += 1;
        }
    }

    /// A reference to a page that was not in memory.
    pub fn missed(&mut self) {
        self.own_misses += 1;
    }

    /// Whose directory the next victim must not be in.
    pub fn chooser(&self) -> Way {
        if self.guarded && self.stake() > self.tolerated() { Way::Recency } else { self.leader }
    }

    /// What is lost to LRU if each absent page is asked for, the next victim included.
    fn stake(&self) -> f64 {
        self.own_misses as f64 - self.misses[Way::Recency as usize] as f64 + self.absent as f64 + 1.0
    }

    /// What may be lost.
    fn tolerated(&self) -> f64 {
        TOLERATED_LOSS * self.misses[Way::Recency as usize] as f64
    }
}
