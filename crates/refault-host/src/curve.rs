//! The curve "limit against refaults per second" of a group, from its working sets by age.
//!
//! Under a limit the pages that stay are those that were accessed last: a limit of the working set of a window of
//! length T keeps what was accessed within T. A page then comes back each time it is accessed after more than T. In a
//! program whose behaviour is steady that happens at the rate at which the working set still grows with the window.
//! This is the slope of w at T (Denning and Schwartz, *Properties of the working-set model*, CACM 1972). Working sets
//! are measured at a few lengths only. w bends downwards, so the slope at one of them lies between those of the two
//! chords that meet there: these are the error that is told.
//!
//! ```
//! use std::time::Duration;
//!
//! use refault_host::curve::{Measured, curve};
//!
//! let at = |seconds, bytes| Measured { window: Duration::from_secs(seconds), bytes, error_bytes: 0 };
//! let points = curve(&[at(1, 4096 * 100), at(11, 4096 * 200)], 0);
//! assert_eq!((points[0].min_refaults_per_second, points[0].max_refaults_per_second), (10.0, 100.0));
//! ```

pub mod proposal;

use std::time::Duration;

use serde::Serialize;

const PAGE: f64 = 4096.0;

/// A working set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The length of its window, as measured.
    pub window: Duration,
    /// Bytes accessed in it.
    pub bytes: u64,
    /// By how much it may be larger, in bytes.
    pub error_bytes: u64,
}

/// A limit and what it would cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The limit, kernel memory included.
    pub limit_bytes: u64,
    /// By how much it would have to be larger at most, because processes may access different parts of what they share.
    pub error_bytes: u64,
    /// Pages per second that would come back, the middle of what is possible.
    pub refaults_per_second: f64,
    /// The least that is possible.
    pub min_refaults_per_second: f64,
    /// The most that is possible.
    pub max_refaults_per_second: f64,
}

/// A point for each working set; they ascend by window. `other_bytes` is charged to the group whatever is accessed. The
/// working set of a longer window is no smaller, so what was measured smaller counts as the one before.
pub fn curve(measured: &[Measured], other_bytes: u64) -> Vec<Point> {
    let mut sets: Vec<Measured> = Vec::with_capacity(measured.len());
    for one in measured {
        let bytes = sets.last().map_or(0, |last| last.bytes).max(one.bytes);
        if sets.last().is_none_or(|last| last.window < one.window) {
            sets.push(Measured { bytes, ..*one });
        }
    }
    let slope = |from: (f64, f64), to: (f64, f64)| (to.1 - from.1) / PAGE / (to.0 - from.0).max(1e-3);
    let place = |set: &Measured| (set.window.as_secs_f64(), set.bytes as f64);
    let mut points: Vec<Point> = Vec::with_capacity(sets.len());
    for (at, set) in sets.iter().enumerate() {
        let before = if at == 0 { (0.0, 0.0) } else { place(&sets[at - 1]) };
        let most = slope(before, place(set));
        // Beyond the longest window nothing was seen: perhaps nothing comes back.
        let least = sets.get(at + 1).map_or(0.0, |next| slope(place(set), place(next))).min(most);
        points.push(Point {
            limit_bytes: set.bytes.saturating_add(other_bytes),
            error_bytes: set.error_bytes,
            refaults_per_second: f64::midpoint(least, most),
            min_refaults_per_second: least,
            max_refaults_per_second: most,
        });
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, bytes: u64) -> Measured {
        Measured { window: Duration::from_secs(seconds), bytes, error_bytes: 7 }
    }

    /// A program that accesses each of n pages at random at a rate r has w(T) = n(1 − e^(−rT/n)); its refaults per
    /// second under a limit of w(T) are r times the share of pages outside it.
    #[test]
    fn the_true_rate_of_random_accesses_lies_within_the_error() {
        for (pages, rate) in [(1000.0_f64, 100.0_f64), (50_000.0, 3_000.0), (10.0, 1.0)] {
            let set = |seconds: u64| pages * (1.0 - (-rate * seconds as f64 / pages).exp());
            let windows = [1, 10, 60, 600, 3600];
            let all: Vec<Measured> = windows.iter().map(|s| at(*s, (set(*s) * 4096.0) as u64)).collect();
            let curve = curve(&all, 0);
            for (point, seconds) in curve.iter().zip(windows) {
                let truth = rate * (1.0 - set(seconds) / pages);
                assert!(
                    point.min_refaults_per_second <= truth + 0.01 && truth <= point.max_refaults_per_second + 0.01,
                    "{pages} {rate} {seconds}: {truth} {point:?}"
                );
            }
            assert!(curve.windows(2).all(|two| two[0].refaults_per_second >= two[1].refaults_per_second));
        }
    }

    #[test]
    fn a_larger_limit_is_never_worse_and_costs_what_is_charged_anyway() {
        let points = curve(&[at(1, 8192), at(10, 4096), at(10, 9000), at(60, 8192 + 4096 * 50)], 1000);
        assert_eq!(points.iter().map(|point| point.limit_bytes).collect::<Vec<_>>(), [9192, 9192, 213_992]);
        assert_eq!((points[1].min_refaults_per_second, points[1].max_refaults_per_second), (0.0, 0.0));
        assert_eq!(points[0].error_bytes, 7);
        assert_eq!(curve(&[], 5), []);
        assert_eq!(curve(&[at(0, 4096)], u64::MAX)[0].limit_bytes, u64::MAX);
    }
}
