//! How much a scheme may do: windows, limits by time and size, goals, and which regions come first (spec: damos §6,
//! §7).
//!
//! Kernel: `struct damos_quota` in `include/linux/damon.h`; `damos_adjust_quota`, `damos_set_effective_quota` in
//! `mm/damon/core.c`.

use super::goal::{Goal, Tuner};
use super::score::Weights;
use crate::monitor::Profile;

/// What the user says. All zero: no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// CPU time in ms per window; 0: no limit by time.
    pub time_ms: u64,
    /// Bytes per window; 0: no limit by size.
    pub size: u64,
    /// Length of a window in ms; `u64::MAX`: it never ends.
    pub reset_interval_ms: u64,
    /// Which fitting regions come first. All zero: by address.
    pub weights: Weights,
    /// What the quota is tuned towards; empty: nothing.
    pub goals: Vec<Goal>,
    /// How it is tuned.
    pub tuner: Tuner,
    /// What bytes that could not be acted upon are charged, as numerator and denominator; 0/0: in full.
    pub fail_charge: (u64, u64),
}

/// What became of a quota so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaState {
    /// Bytes of this window in force.
    pub effective_size: u64,
    /// Bytes charged in this window.
    pub charged: u64,
    /// Start of this window in ms; `None` before the first.
    pub charged_from: Option<u64>,
    /// Bytes charged in finished windows.
    pub total_charged: u64,
    /// Nanoseconds of all windows.
    pub total_charged_ns: u64,
    /// Where the last full window stopped: target and address. Passes go on behind it.
    pub resume: Option<(usize, u64)>,
    /// Lowest score that is admitted.
    pub min_score: u32,
    /// The goals' size in 1/10 000 byte.
    goal_size: u64,
}

impl Quota {
    /// Whether the user asked for any limit.
    pub fn is_set(&self) -> bool {
        self.time_ms != 0 || self.size != 0 || !self.goals.is_empty()
    }

    /// Windows end after this many ms; `None`: never. The kernels keep 32 bits (spec: damos §7.1).
    fn window_ms(&self) -> Option<u64> {
        let low = self.reset_interval_ms as u32;
        (low < 1 << 31).then_some(u64::from(low))
    }
}

impl QuotaState {
    /// Keeps what was charged, the window and where it stopped, and forgets the rest: no limit until the next window.
    pub(crate) fn forget_goals_and_limit(&mut self) {
        (self.effective_size, self.min_score, self.goal_size) = (0, 0, 0);
    }

    /// Whether a limit is in force.
    pub(crate) fn limits(&self, quota: &Quota, profile: Profile) -> bool {
        self.effective_size != 0 || profile.is_current() && quota.is_set()
    }

    /// Whether nothing more may be done in this window.
    pub(crate) fn is_full(&self, quota: &Quota, profile: Profile, unit: u64) -> bool {
        if !self.limits(quota, profile) {
            return false;
        }
        self.charged >= self.effective_size || profile.is_current() && self.effective_size - self.charged < unit
    }

    /// Charges a region of `size` bytes of which `applied` were acted upon.
    pub(crate) fn charge(&mut self, quota: &Quota, profile: Profile, size: u64, applied: u64) {
        let (numerator, denominator) = quota.fail_charge;
        let charge = if !profile.is_current() || denominator == 0 || applied > size {
            size
        } else {
            applied + (u128::from(size - applied) * u128::from(numerator) / u128::from(denominator)) as u64
        };
        self.charged = self.charged.saturating_add(charge);
    }

    /// Opens a window if it is time. Returns whether the one that ended was full. `score` reads the goals.
    pub(crate) fn turn_window(
        &mut self,
        quota: &mut Quota,
        profile: Profile,
        unit: u64,
        now_ms: u64,
        mut score: impl FnMut(&mut [Goal]) -> u64,
    ) -> bool {
        if self.charged_from.is_none() && profile.has_apply_interval() {
            self.charged_from = Some(now_ms);
            if profile.is_current() {
                self.effective_size = self.next_effective_size(quota, profile, unit, &mut score);
            }
        }
        let over = match (self.charged_from, quota.window_ms()) {
            // The oldest profiles start far in the past.
            (None, _) => true,
            (Some(_), None) => false,
            (Some(from), Some(window)) => now_ms.saturating_sub(from) >= window,
        };
        if !over {
            return false;
        }
        let full = self.is_full(quota, profile, unit);
        self.total_charged = self.total_charged.saturating_add(self.charged);
        self.charged_from = Some(now_ms);
        self.charged = 0;
        self.effective_size = self.next_effective_size(quota, profile, unit, &mut score);
        full
    }

    /// The smallest of what goals, time and size allow (spec: damos §7.2).
    fn next_effective_size(
        &mut self,
        quota: &mut Quota,
        profile: Profile,
        unit: u64,
        score: &mut impl FnMut(&mut [Goal]) -> u64,
    ) -> u64 {
        if quota.time_ms == 0 && quota.goals.is_empty() {
            return quota.size;
        }
        let mut size = u64::MAX;
        if !quota.goals.is_empty() {
            self.goal_size = quota.tuner.next(self.goal_size, score(&mut quota.goals), quota.size);
            size = self.goal_size / 10_000;
        }
        if quota.time_ms != 0 {
            let by_time = self.bytes_per_ms().saturating_mul(quota.time_ms);
            size = match profile {
                Profile::K518 => size.min(by_time),
                Profile::K60 => size.min(by_time.max(unit)),
                Profile::K612 => size.min(by_time).max(unit),
                Profile::K72 => size.min(by_time.max(unit)),
            };
        }
        if quota.size != 0 { size.min(quota.size) } else { size }
    }

    /// The measured throughput; 4 MiB per ms until there is a measurement.
    fn bytes_per_ms(&self) -> u64 {
        if self.total_charged_ns == 0 {
            return 4096 * 1024;
        }
        let rate = u128::from(self.total_charged) * 1_000_000 / u128::from(self.total_charged_ns);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// Bytes by score, and the score from which on a quota reaches (spec: damos §7.4).
pub(crate) struct Histogram([u64; 100]);

impl Histogram {
    pub fn new() -> Histogram {
        Histogram([0; 100])
    }

    pub fn add(&mut self, score: u32, size: u64) {
        self.0[score as usize] = self.0[score as usize].saturating_add(size);
    }

    pub fn min_score(&self, quota: u64) -> u32 {
        let top = self.0.iter().rposition(|&size| size > 0).unwrap_or(0);
        let mut sum = 0u64;
        (0..=top)
            .rev()
            .find(|&score| {
                sum = self.0[score].saturating_add(sum);
                sum >= quota
            })
            .unwrap_or(0) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn time_becomes_bytes_by_the_measured_throughput() {
        let mut quota = Quota { time_ms: 5, reset_interval_ms: 1000, ..Quota::default() };
        let mut state = QuotaState::default();
        assert!(!state.turn_window(&mut quota, Profile::K72, 4096, 0, |_| 0));
        assert_eq!(state.effective_size, 20_971_520);
        for (ns, expected) in [(3_000_000, 20_971_520), (12_000_000, 5_242_880)] {
            let mut state =
                QuotaState { charged: 12 * MIB, total_charged_ns: ns, charged_from: Some(0), ..state.clone() };
            assert!(!state.turn_window(&mut quota, Profile::K72, 4096, 1000, |_| 0));
            assert_eq!(state.effective_size, expected);
        }
    }

    #[test]
    fn the_first_window_differs_by_profile() {
        let first = |profile| {
            let mut quota = Quota { size: 10 * MIB, reset_interval_ms: 1000, ..Quota::default() };
            let mut state = QuotaState::default();
            state.turn_window(&mut quota, profile, 4096, 500, |_| 0);
            (state.effective_size, state.limits(&quota, profile))
        };
        assert_eq!(first(Profile::K72), (10 * MIB, true));
        assert_eq!(first(Profile::K612), (0, false), "no limit until the first window is over");
        assert_eq!(first(Profile::K60), (10 * MIB, true));
    }

    #[test]
    fn a_goal_starts_at_two_bytes_and_doubles() {
        let mut quota = Quota {
            size: u64::MAX,
            reset_interval_ms: 1,
            goals: vec![Goal::new(super::super::Metric::UserInput, 1, 0)],
            ..Quota::default()
        };
        let mut state = QuotaState::default();
        let sizes: Vec<u64> = (0..21)
            .map(|window| {
                state.turn_window(&mut quota, Profile::K72, 4096, window, |_| 0);
                state.effective_size
            })
            .collect();
        assert_eq!((sizes[0], sizes[1], sizes[11], sizes[19]), (2, 4, 4096, MIB));
        assert!(QuotaState { effective_size: 2048, ..QuotaState::default() }.is_full(&quota, Profile::K72, 4096));
        state.turn_window(&mut quota, Profile::K72, 4096, 30, |_| 20_000);
        assert_eq!(state.effective_size, 1, "collapses at once");
    }

    #[test]
    fn failures_can_be_charged_less() {
        let quota = Quota { fail_charge: (1, 1024), ..Quota::default() };
        let mut state = QuotaState::default();
        state.charge(&quota, Profile::K72, 1000 * MIB, 700 * MIB);
        assert_eq!(state.charged, 700 * MIB + 300 * 1024);
        let mut state = QuotaState::default();
        state.charge(&quota, Profile::K612, 1000 * MIB, 700 * MIB);
        assert_eq!(state.charged, 1000 * MIB);
    }

    #[test]
    fn windows_of_two_to_the_31_ms_and_more_never_end() {
        let mut quota = Quota { size: 1, reset_interval_ms: u64::MAX, ..Quota::default() };
        let mut state = QuotaState { charged_from: Some(0), ..QuotaState::default() };
        assert!(!state.turn_window(&mut quota, Profile::K72, 4096, u64::MAX, |_| 0));
        assert_eq!(state.charged_from, Some(0));
        quota.reset_interval_ms = 0;
        state.turn_window(&mut quota, Profile::K72, 4096, 5, |_| 0);
        assert_eq!(state.charged_from, Some(5));
    }

    #[test]
    fn the_histogram_admits_from_the_top() {
        let mut histogram = Histogram::new();
        [(80, 10), (60, 30), (24, 500)].into_iter().for_each(|(score, mib)| histogram.add(score, mib * MIB));
        assert_eq!(histogram.min_score(20 * MIB), 60);
        assert_eq!(histogram.min_score(10 * MIB), 80);
        assert_eq!(histogram.min_score(u64::MAX), 0);
        assert_eq!(histogram.min_score(0), 80, "the top class is reached at once");
        assert_eq!(Histogram::new().min_score(5), 0);
    }
}
