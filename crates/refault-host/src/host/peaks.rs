//! What the vertical pod autoscaler would take for a group's target, from the same working set that it sees.
//!
//! Its recommender keeps the peak of each day, weighs it half as much for each day that it is old, and puts it into buckets of
//! sizes that grow by 5 %. The target is the upper end of the bucket in which the 90th percentile lies, and 15 % more. It takes
//! at least 250 MiB for a pod, which is left out here, and sees the eight last days.

use std::collections::VecDeque;
use std::time::Duration;

const DAY: u64 = 24 * 3600;
const MAX_DAYS: usize = 8;
/// The size of the first bucket, in bytes, and by what each is larger than the one before.
const FIRST: f64 = 1e7;
const GROWTH: f64 = 1.05;
/// Where the last bucket begins, at most.
const MAX_START: f64 = 1e12;
const PERCENTILE: f64 = 0.9;
const MARGIN: f64 = 0.15;

/// The peaks of days, the newest last.
#[derive(Debug, Default)]
pub(super) struct Peaks {
    days: VecDeque<(u64, u64)>,
}

impl Peaks {
    /// The working set was this large, this long after the first was seen.
    pub(super) fn see(&mut self, time: Duration, bytes: u64) {
        let day = time.as_secs() / DAY;
        match self.days.back_mut() {
            Some((last, most)) if *last == day => *most = bytes.max(*most),
            _ => self.days.push_back((day, bytes)),
        }
        if self.days.len() > MAX_DAYS {
            self.days.pop_front();
        }
    }

    /// None before anything was seen.
    pub(super) fn target_bytes(&self) -> Option<u64> {
        let newest = self.days.back()?.0;
        let mut all: Vec<(f64, f64)> = self
            .days
            .iter()
            .map(|(day, bytes)| {
                (bucket_end(*bytes as f64), 0.5_f64.powi((newest - day).try_into().unwrap_or(i32::MAX)))
            })
            .collect();
        all.sort_by(|one, two| one.0.total_cmp(&two.0));
        let wanted = all.iter().map(|one| one.1).sum::<f64>() * PERCENTILE;
        let mut weight = 0.0;
        let end = all.iter().find(|one| {
            weight += one.1;
            weight >= wanted
        });
        Some((end.or(all.last())?.0 * (1.0 + MARGIN)).round() as u64)
    }
}

/// The upper end of a value's bucket.
fn bucket_end(bytes: f64) -> f64 {
    let start = |number: f64| FIRST * (GROWTH.powf(number) - 1.0) / (GROWTH - 1.0);
    let number = |bytes: f64| ((bytes * (GROWTH - 1.0) / FIRST + 1.0).ln() / GROWTH.ln()).floor();
    start(number(bytes.min(MAX_START)) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_grow_by_a_twentieth() {
        for (bytes, end) in [(0.0, 1e7), (9e6, 1e7), (1.1e7, 2.05e7), (2.1e7, 3.1525e7)] {
            assert!((bucket_end(bytes) - end).abs() < 1.0, "{bytes}: {}", bucket_end(bytes));
        }
        assert!((1e12..1.06e12).contains(&bucket_end(1e15)));
    }

    #[test]
    fn the_target_is_the_peak_of_a_day_and_forgets_slowly() {
        let mut peaks = Peaks::default();
        assert_eq!(peaks.target_bytes(), None);
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        // Usage falls, and the day's peak stays.
        peaks.see(hours(0), 15_000_000);
        peaks.see(hours(1), 3_000_000);
        assert_eq!(peaks.target_bytes(), Some(23_575_000));
        // Days on which it was small: the large peak is the percentile until it weighs less than a tenth.
        for day in 1..=3 {
            peaks.see(hours(24 * day), 3_000_000);
            let is_large = day < 3;
            assert_eq!(peaks.target_bytes(), Some(if is_large { 23_575_000 } else { 11_500_000 }), "{day}");
        }
        for day in 4..20 {
            peaks.see(hours(24 * day), 1);
        }
        assert_eq!(peaks.days.len(), MAX_DAYS);
    }
}
