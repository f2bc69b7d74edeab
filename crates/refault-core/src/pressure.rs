//! Averages of pressure: the share of the last 10, 60 and 300 seconds in which something waited for memory
//! (spec: overview §7), for every front-end that keeps such a clock.
//!
//! Invariant: an average lies between 0 and the highest share folded in, which is at most 100 %. Cost: O(1) per fold,
//! 24 bytes; whole numbers only, with the fixed-point factors of the kernel.
//!
//! Kernel: `update_averages`, `calc_avgs` in `kernel/sched/psi.c`; `calc_load` in `include/linux/sched/loadavg.h`.
//!
//! ```
//! use refault_core::pressure::{PERIOD, PressureAverages};
//!
//! let mut averages = PressureAverages::default();
//! for _ in 0..30 {
//!     averages.fold(PERIOD / 4, PERIOD); // a quarter of each two seconds was lost
//! }
//! let [avg10, _, avg300] = averages.percent();
//! assert!((avg10 - 25.0).abs() < 0.1 && avg300 < avg10);
//! ```

/// Nanoseconds between two folds for which the factors are made.
pub const PERIOD: u64 = 2_000_000_000;
/// One in the averages' fixed point.
const FIXED_ONE: u64 = 2048;
/// What remains of an average after a period, over 10, 60 and 300 s.
const DECAY: [u64; 3] = [1677, 1981, 2034];

/// Averages over 10, 60 and 300 seconds of one kind of stall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PressureAverages {
    /// In 1/2048 of a percent.
    averages: [u64; 3],
}

impl PressureAverages {
    /// Folds in `stalled` of the `period` nanoseconds since the last fold, which should be [`PERIOD`] or somewhat more;
    /// no time at all changes nothing.
    pub fn fold(&mut self, stalled: u64, period: u64) {
        if period == 0 {
            return;
        }
        let percent = (u128::from(stalled.min(period)) * 100 * u128::from(FIXED_ONE) / u128::from(period)) as u64;
        for (average, decay) in self.averages.iter_mut().zip(DECAY) {
            let mut sum = *average * decay + percent * (FIXED_ONE - decay);
            // Rising averages round up, so that they reach what they approach.
            if percent >= *average {
                sum += FIXED_ONE - 1;
            }
            *average = sum / FIXED_ONE;
        }
    }

    /// Percent of the last 10, 60 and 300 seconds.
    pub fn percent(&self) -> [f64; 3] {
        self.averages.map(|average| average as f64 / FIXED_ONE as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_period_counts_by_the_windows_length() {
        let mut averages = PressureAverages::default();
        averages.fold(PERIOD / 2, PERIOD);
        let [ten, sixty, most] = averages.percent();
        assert!((ten - 50.0 * 371.0 / 2048.0).abs() < 0.001 && ten > sixty && sixty > most && most > 0.0);
    }

    #[test]
    fn a_constant_share_is_reached_and_forgotten() {
        let mut averages = PressureAverages::default();
        (0..2000).for_each(|_| averages.fold(2 * PERIOD, PERIOD));
        assert_eq!(averages.percent(), [100.0; 3], "no more than all of the time");
        (0..10_000).for_each(|_| averages.fold(0, PERIOD));
        assert_eq!(averages.percent(), [0.0; 3]);
        averages.fold(1, 0);
        assert_eq!(averages, PressureAverages::default());
    }
}
