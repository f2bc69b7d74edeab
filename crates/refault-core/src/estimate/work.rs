//! What the estimator may do per access, counted instead of timed.
//!
//! A unit is a step of one miniature, about 10 ns: to look an object up, to bring one in, to evict one. Work is looked
//! at in windows, so that what was just changed shows what it brings before it is changed again.

/// Units per access on average. They cost less than what an access may, because each access costs something itself.
const PER_ACCESS: f64 = 1.5;
/// Units beside those, with many objects in the sample.
const AT_FIRST: f64 = (1 << 18) as f64;
/// Units beside those while objects are few, which is better than a part of them.
const FOR_FEW: f64 = (3 << 23) as f64;
/// Objects that are few.
const FEW: usize = 12 << 10;

/// See the module.
#[derive(Default)]
pub(super) struct Work {
    /// In this window.
    done: f64,
    accesses: f64,
    /// Units done beside those for accesses, in earlier windows.
    beside: f64,
}

/// What a window says.
pub(super) enum Verdict {
    /// Too much was done.
    TooMuch,
    /// Less than half of what may be was done.
    Little,
    /// Neither.
    Right,
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

    /// Whether this many objects are few.
    pub(super) fn are_few(objects: usize) -> bool {
        objects <= FEW
    }

    /// Ends a window, with this many objects in the sample.
    pub(super) fn end_window(&mut self, objects: usize) -> Verdict {
        let may = self.accesses * PER_ACCESS;
        let (done, beside) = (self.done, (self.beside + self.done - may).max(0.0));
        *self = Work { beside, ..Work::default() };
        let allowed = if Work::are_few(objects) { FOR_FEW } else { AT_FIRST };
        match done {
            done if done > may && beside > allowed => Verdict::TooMuch,
            done if 2.0 * done < may => Verdict::Little,
            _ => Verdict::Right,
        }
    }
}
