//! When there are few objects and much work: all objects, part of the time.
//!
//! A smaller sample of few objects says little. So the miniatures rest instead: for some time they see nothing, then
//! they go on from where they were. In the first quarter of a burst they forget that they rested. After it misses count
//! again. A burst is long beside what the caches hold.

/// Accesses of a burst for each object in the sample.
const PER_OBJECT: u64 = 32;
/// Objects below which a burst is as long as for this many.
const MIN_OBJECTS: u64 = 512;
/// The longest rest: one burst of this many.
const MAX_FACTOR: u64 = 128;

/// What becomes of an access.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The miniatures do not see it.
    Rest,
    /// They see it, and what they miss does not count.
    WarmUp,
    /// It counts.
    Count,
}

/// See the module.
pub(super) struct Turns {
    /// One burst in this many; 1 is always.
    factor: u64,
    burst: u64,
    turn: Turn,
    left: u64,
}

impl Turns {
    pub(super) const ALWAYS: Turns = Turns { factor: 1, burst: 0, turn: Turn::Count, left: 0 };

    /// Whether there are none.
    #[inline]
    pub(super) fn is_always(&self) -> bool {
        self.factor == 1
    }

    /// The part of the accesses that count.
    pub(super) fn share(&self) -> f64 {
        if self.is_always() { 1.0 } else { 0.75 / self.factor as f64 }
    }

    /// The next access: its turn, and whether the turns have been once around.
    #[inline]
    pub(super) fn next(&mut self) -> (Turn, bool) {
        if self.is_always() {
            return (Turn::Count, false);
        }
        let now = self.turn;
        self.left -= 1;
        if self.left > 0 {
            return (now, false);
        }
        (self.turn, self.left) = match now {
            Turn::Rest => (Turn::WarmUp, self.burst / 4),
            Turn::WarmUp => (Turn::Count, self.burst - self.burst / 4),
            Turn::Count => (Turn::Rest, self.burst * (self.factor - 1)),
        };
        (now, now == Turn::Count)
    }

    /// Twice as much rest, with this many objects in the sample.
    pub(super) fn rest_more(&mut self, objects: usize) {
        let burst = PER_OBJECT * (objects as u64).max(MIN_OBJECTS);
        let factor = (2 * self.factor).min(MAX_FACTOR);
        *self = Turns { factor, burst, turn: Turn::Rest, left: burst * (factor - 1) };
    }

    /// Half as much.
    pub(super) fn rest_less(&mut self) {
        self.factor = (self.factor / 2).max(1);
        (self.turn, self.left) = (Turn::WarmUp, (self.burst / 4).max(1));
    }
}
