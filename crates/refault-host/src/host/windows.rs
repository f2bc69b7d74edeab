//! What windows of several lengths say together, which were measured at different times.
//!
//! A longer window holds at least what a shorter one does that ended within it or after it. A shorter one that ended
//! before a longer one began is old: since then no more was accessed than the longer one says.

use std::time::Instant;

use crate::curve::Measured;

/// A window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) measured: Measured,
    /// Of it, the least that is no page of a file on disk.
    pub(super) swap_backed_bytes: u64,
    pub(super) ended: Instant,
}

impl Window {
    /// What must be in memory, if this much of what is no file's stays there whatever the limit is.
    pub(super) fn needed(&self, stays_bytes: u64) -> Window {
        let idle = stays_bytes.saturating_sub(self.swap_backed_bytes);
        let measured = Measured { bytes: self.measured.bytes.saturating_add(idle), ..self.measured };
        Window { measured, ..*self }
    }

    /// Whether this one was over when the other began.
    fn is_before(&self, other: &Window) -> bool {
        self.ended + other.measured.window <= other.ended
    }
}

/// Working sets by age, none smaller than a shorter one's.
pub(super) fn together(windows: &[Option<Window>]) -> Vec<Option<Measured>> {
    let mut all: Vec<Option<Measured>> = windows.iter().map(|one| one.map(|window| window.measured)).collect();
    for at in (0..windows.len()).rev() {
        let Some(window) = windows[at] else { continue };
        let newer = (at + 1..windows.len()).filter(|longer| windows[*longer].is_some_and(|it| window.is_before(&it)));
        let least = newer.filter_map(|longer| Some(all[longer]?.bytes)).min();
        if let (Some(one), Some(least)) = (all[at].as_mut(), least) {
            one.bytes = one.bytes.min(least);
        }
    }
    let mut most = 0;
    for one in all.iter_mut().flatten() {
        one.bytes = one.bytes.max(most);
        most = one.bytes;
    }
    all
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_stays_in_memory_is_needed_and_counts_once() {
        let measured = Measured { window: Duration::from_secs(1), bytes: 50, error_bytes: 7 };
        let window = Window { measured, swap_backed_bytes: 30, ended: Instant::now() };
        let needed = [0, 30, 100].map(|stays| window.needed(stays).measured);
        assert_eq!(needed.map(|one| (one.bytes, one.error_bytes)), [(50, 7), (50, 7), (120, 7)]);
    }

    #[test]
    fn a_longer_window_is_never_smaller() {
        let start = Instant::now();
        let window = |seconds: u64, ended: u64, bytes: u64| {
            let measured = Measured { window: Duration::from_secs(seconds), bytes, error_bytes: 0 };
            Some(Window { measured, swap_backed_bytes: 0, ended: start + Duration::from_secs(ended) })
        };
        let bytes = |windows: &[Option<Window>]| -> Vec<Option<u64>> {
            together(windows).into_iter().map(|one| one.map(|measured| measured.bytes)).collect()
        };
        // They began together, and the group shrank while the longer one went on.
        assert_eq!(bytes(&[window(10, 110, 90), window(60, 160, 40)]), [Some(90), Some(90)]);
        // The longer one began when the shorter one was over: that one is old.
        assert_eq!(bytes(&[window(10, 50, 90), window(60, 160, 40)]), [Some(40), Some(40)]);
        assert_eq!(bytes(&[window(10, 100, 90), window(60, 160, 40)]), [Some(40), Some(40)]);
        // The longer one is old, and the group grew.
        assert_eq!(bytes(&[window(10, 300, 90), None, window(60, 160, 40)]), [Some(90), None, Some(90)]);
        // All at once: the first is older than the second, which is older than nothing.
        let all = [window(1, 10, 70), window(10, 30, 50), window(60, 60, 55)];
        assert_eq!(bytes(&all), [Some(50), Some(50), Some(55)]);
        assert_eq!(bytes(&[]), []);
    }
}
