//! What the estimator may do per access, counted instead of timed.
//!
//! A unit is a step of one miniature, about 10 ns: to look an object up, to bring one in, to evict one.

/// Units per access on average. They cost less than what an access may, because each access costs something itself.
const PER_ACCESS: f64 = 2.0;
/// Units beside those, with many objects in the sample.
const AT_FIRST: f64 = (1 << 20) as f64;
/// Units beside those while objects are few, where a smaller sample would be a bad one.
const FOR_FEW: f64 = (1 << 24) as f64;
/// Objects that are few.
const FEW: usize = 12 << 10;

/// See the module.
#[derive(Default)]
pub(super) struct Work {
    done: f64,
    accesses: f64,
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

    /// Whether a sample of so many objects costs too much.
    pub(super) fn is_too_much(&self, objects: usize) -> bool {
        let beside = if objects > FEW { AT_FIRST } else { FOR_FEW };
        self.done > self.accesses * PER_ACCESS + beside
    }
}
