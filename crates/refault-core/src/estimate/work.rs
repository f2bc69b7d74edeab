//! What the estimator may do per access, counted instead of timed.
//!
//! A unit is a step of one miniature, about 10 ns: to look an object up, to bring one in, to evict one. Work is looked at
//! in windows, so that a rate that was just lowered shows what it brings before it is lowered again.

/// Units per access on average. They cost less than what an access may, because each access costs something itself.
const PER_ACCESS: f64 = 1.5;
/// Units beside those, with many objects in the sample.
const AT_FIRST: f64 = (1 << 18) as f64;
/// Units beside those while objects are few, where a smaller sample would be a bad one.
const FOR_FEW: f64 = (1 << 24) as f64;
/// Objects that are few.
const FEW: usize = 12 << 10;
/// Checks in a window.
const WINDOW: u32 = 4;

/// See the module.
#[derive(Default)]
pub(super) struct Work {
    /// In this window.
    done: f64,
    accesses: f64,
    checks: u32,
    /// Units done beside those for accesses, in earlier windows.
    beside: f64,
}

impl Work {
    #[inline]
    pub(super) fn asked(&mut self) {
        self.accesses += 1.0;
    }

    #[inline]
    pub(super) fn did(&mut self, units: u32) {
        self.done += f64::from(units);
    }

    /// A check: whether a window ends in which a sample of so many objects cost too much.
    pub(super) fn is_too_much(&mut self, objects: usize) -> bool {
        self.checks += 1;
        if self.checks < WINDOW {
            return false;
        }
        let too_much = self.done - self.accesses * PER_ACCESS;
        let allowed = if objects > FEW { AT_FIRST } else { FOR_FEW };
        *self = Work { beside: (self.beside + too_much).max(0.0), ..Work::default() };
        too_much > 0.0 && self.beside > allowed
    }
}
