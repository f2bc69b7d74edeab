//! Who leads, and how far the leader may be followed.
//!
//! **Leader.** Each directory's misses are counted, older ones for less; the directory with the fewest leads. So a
//! change of mind takes as many misses as the difference has to make up: few when one way suddenly misses everything.
//!
//! **Guard.** Following a leader means evicting pages that LRU would hold, each of which may have to be read back. They
//! are a stake, and what may be staked is what the policy has won against LRU so far and a fiftieth of LRU's misses.
//! While there is no more to stake, victims are pages that LRU does not hold either, which cannot add to the loss.
//!
//! The policy has *M* misses of its own and LRU has *L*; *A* pages are absent (LRU holds them, memory does not). No
//! step under the guard raises *M − L + A*: if both miss, both numbers grow; if only the policy does, the page was
//! absent and no longer is. A step that follows the leader raises it by one at most, and is taken only where it ends
//! within 0.02 *L*. So *M ≤ 1.02 L* for every sequence, at every time, as long as memory keeps its size.
//!
//! The price is paid where a leader is right at once: what is kept of a loop doubles with each pass or faster, and does
//! not start at its full size. A caller that would rather have it at once gives a **head start**. That is a share *h*
//! of memory's *C* pages that may be staked before anything was won. Then *M ≤ 1.02 L + h C*. A policy that stakes more
//! than this has a sequence on which it breaks the bound: the one that asks for all absent pages next.
//!
//! **Where hits are not seen** (memory without accessed bits: what is used shows only by what comes back), the policy
//! sees its own misses and no other references. Then *L* counts those of its misses that LRU would have had too, and
//! not what LRU would have missed where memory had the page: *M* never is below it, nothing is ever won, and the guard
//! above would hold for ever. There absent pages are valued by how often such pages were in fact missed, twice that
//! share to be sure. What may be staked is the sum of two parts. One is half of what the leader is ahead of LRU among
//! the references that are seen. The other is a hundredth of LRU's misses. No bound follows.
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
/// The same where hits are not seen.
const TOLERATED_UNSEEN: f64 = 0.01;
/// Share of what a leader is ahead of LRU that may be staked there.
const STAKED_LEAD: f64 = 0.5;
/// How many times as often as they have been, absent pages are expected to be missed.
const CAUTION: f64 = 2.0;
/// Absent pages taken to have been missed before there was any.
const PRIOR: f64 = 2.0;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub leader: Way,
    /// Who may lead.
    candidates: [bool; 3],
    guarded: bool,
    /// See [`super::AdaptiveParams::head_start`].
    head_start: f64,
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
    /// Whether references to resident pages are reported, at once or by accessed bits.
    pub sees_hits: bool,
    /// Absent pages that were referenced, and those that recency let go first; recent ones.
    missed: u64,
    unmissed: u64,
    memory: u64,
    pub changes: u64,
}

impl Choice {
    pub fn new(candidates: [bool; 3], guarded: bool, head_start: f64) -> Choice {
        let first = [Way::ReuseDistance, Way::Frequency, Way::Recency];
        let leader = first.into_iter().find(|way| candidates[*way as usize]).unwrap_or(Way::Recency);
        Choice {
            leader,
            candidates,
            guarded,
            head_start,
            recent: [0.0; 3],
            fading: 0.0,
            misses: [0; 3],
            own_misses: 0,
            absent: 0,
            sees_hits: true,
            missed: 0,
            unmissed: 0,
            memory: 0,
            changes: 0,
        }
    }

    pub fn resize(&mut self, capacity: usize) {
        self.memory = capacity as u64;
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

    /// A reference to a page that was not in memory; `held` by recency, so it was absent.
    pub fn missed(&mut self, held: bool) {
        self.own_misses += 1;
        if held {
            self.missed += 1;
            self.forget_old();
        }
    }

    /// Recency let an absent page go that had not been missed.
    pub fn left_unmissed(&mut self) {
        self.absent -= 1;
        self.unmissed += 1;
        self.forget_old();
    }

    /// Absent pages that were asked for, and that were not.
    pub fn outcomes(&self) -> [u64; 2] {
        [self.missed, self.unmissed]
    }

    pub fn set_outcomes(&mut self, [missed, unmissed]: [u64; 2]) {
        (self.missed, self.unmissed) = (missed, unmissed);
    }

    fn forget_old(&mut self) {
        if self.missed + self.unmissed > self.memory {
            (self.missed, self.unmissed) = (self.missed / 2, self.unmissed / 2);
        }
    }

    /// Whose directory the next victim must not be in.
    pub fn chooser(&self) -> Way {
        let recency = self.misses[Way::Recency as usize];
        let too_much = if self.sees_hits {
            self.stake(1.0) > TOLERATED_LOSS * recency as f64 + self.head_start * self.memory as f64
        } else {
            let lead = recency.saturating_sub(self.misses[self.leader as usize]);
            self.stake(self.value()) > TOLERATED_UNSEEN * recency as f64 + STAKED_LEAD * lead as f64
        };
        if self.guarded && too_much { Way::Recency } else { self.leader }
    }

    /// What an absent page is taken to cost where hits are not seen, in misses.
    fn value(&self) -> f64 {
        let (missed, known) = (self.missed as f64, (self.missed + self.unmissed) as f64);
        (CAUTION * (missed + PRIOR) / (known + PRIOR)).min(1.0)
    }

    /// Misses lost to LRU if each absent page costs `value` misses, the next victim included.
    fn stake(&self, value: f64) -> f64 {
        self.own_misses as f64 + 1.0 - self.misses[Way::Recency as usize] as f64 + value * self.absent as f64
    }
}
