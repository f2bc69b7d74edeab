//! When samples of what is charged are taken: often where groups are few.

use std::time::{Duration, Instant};

/// Of a processor's time, what samples may take.
const MAX_SHARE: f64 = 0.002;
/// The shortest time from one to the next.
const MIN_EVERY: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(super) struct Samples {
    due: Instant,
}

impl Samples {
    pub(super) fn new() -> Samples {
        Samples { due: Instant::now() + MIN_EVERY }
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// A sample took this long.
    pub(super) fn taken(&mut self, time: Duration) {
        self.due = Instant::now() + time.div_f64(MAX_SHARE).max(MIN_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_take_their_share_and_no_more() {
        let mut samples = Samples::new();
        for (millis, seconds) in [(0, 1), (1, 1), (20, 10)] {
            samples.taken(Duration::from_millis(millis));
            let left = samples.due().duration_since(Instant::now());
            assert!(
                left > Duration::from_millis(seconds * 1000 - 500) && left <= Duration::from_secs(seconds),
                "{left:?}"
            );
        }
    }
}
