//! Cacheus's learning rate: once per memory size of accesses it follows what the last change did to the hit ratio.
//!
//! Rates and hit ratios are compared after rounding to thousandths, as the authors' simulator does.

use crate::monitor::Random;

const MIN: f64 = 0.001;
const MAX: f64 = 1.0;
/// Periods without hits, or with fewer than before, until the rate starts anew.
const MAX_BAD_PERIODS: u32 = 10;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct LearningRate {
    now: f64,
    /// The rates of the last two periods, the later first.
    before: [f64; 2],
    start: f64,
    period: u64,
    accesses: u64,
    hits: u64,
    hit_ratio: f64,
    periods_without: u32,
    periods_worse: u32,
}

fn thousandths(value: f64) -> f64 {
    (value * 1000.0).round_ties_even() / 1000.0
}

impl LearningRate {
    /// Another size of memory. The rate itself is kept once it was used.
    pub(super) fn set_period(&mut self, pages: usize) {
        self.period = pages.max(1) as u64;
        let start = (2.0 * std::f64::consts::LN_2 / self.period as f64).sqrt();
        self.start = start.clamp(MIN, MAX);
        if self.accesses == 0 {
            (self.now, self.before) = (start, [start, 0.0]);
        }
    }

    pub(super) fn now(&self) -> f64 {
        self.now
    }

    pub(super) fn hit(&mut self) {
        self.hits += 1;
    }

    /// The next access begins.
    pub(super) fn tick(&mut self, random: &mut Random) {
        self.accesses += 1;
        if self.accesses.is_multiple_of(self.period) {
            self.end_period(random);
        }
    }

    fn end_period(&mut self, random: &mut Random) {
        let hit_ratio = thousandths(self.hits as f64 / self.period as f64);
        let gain = thousandths(hit_ratio - self.hit_ratio);
        let change = thousandths(self.before[0]) - thousandths(self.before[1]);
        let direction = change * gain;
        if direction != 0.0 {
            let step = (self.now * change).abs();
            self.now = if direction > 0.0 { (self.now + step).min(MAX) } else { (self.now - step).max(MIN) };
            (self.periods_without, self.periods_worse) = (0, 0);
        } else if gain <= 0.0 {
            self.stagnate(hit_ratio, gain < 0.0, random);
        }
        self.before = [self.now, self.before[0]];
        self.hit_ratio = hit_ratio;
        self.hits = 0;
    }

    /// The rate was not changed, and the hit ratio is not better than before.
    fn stagnate(&mut self, hit_ratio: f64, worse: bool, random: &mut Random) {
        self.periods_without += u32::from(worse || hit_ratio <= 0.0);
        self.periods_worse += u32::from(worse);
        if self.periods_without >= MAX_BAD_PERIODS {
            self.now = self.start;
            self.periods_without = 0;
        } else if worse && self.periods_worse >= MAX_BAD_PERIODS {
            self.now = self.start;
            self.periods_worse = 0;
        } else if worse {
            self.jump(random);
        }
    }

    /// Away from the bounds, or up or down by a quarter at random.
    fn jump(&mut self, random: &mut Random) {
        self.now = if self.now >= MAX {
            0.9
        } else if self.now <= MIN {
            0.005
        } else if random.bits() >> (u64::BITS - 1) == 0 {
            (self.now * 1.25).min(MAX)
        } else {
            (self.now * 0.75).max(MIN)
        };
    }
}
