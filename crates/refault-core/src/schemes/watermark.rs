//! When a scheme runs at all (spec: damos §9).
//!
//! Kernel: `struct damos_watermarks` in `include/linux/damon.h`; `damos_wmark_wait_us` in `mm/damon/core.c`.

/// What is compared with the levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WatermarkMetric {
    /// Nothing: the scheme always runs.
    #[default]
    None,
    /// Free memory in 1/1000 of all.
    FreeMemRate,
}

impl WatermarkMetric {
    /// The name used in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            WatermarkMetric::None => "none",
            WatermarkMetric::FreeMemRate => "free_mem_rate",
        }
    }
}

/// Three levels in 1/1000: a scheme is off above `high` and below `low`, and comes on again below `mid`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// What is compared.
    pub metric: WatermarkMetric,
    /// Time in µs between two looks while off.
    pub interval: u64,
    /// Above this there is no need.
    pub high: u64,
    /// Below this there is need again.
    pub mid: u64,
    /// Below this it is too late.
    pub low: u64,
}

impl Watermarks {
    /// The state that follows `activated` at a value, and how long to wait until the next look; 0: run now.
    pub fn next(&self, activated: bool, value: u64) -> (bool, u64) {
        if self.metric == WatermarkMetric::None {
            return (activated, 0);
        }
        let outside = value > self.high || value < self.low;
        let not_yet = value >= self.mid && !activated;
        if outside || not_yet { (false, self.interval) } else { (true, 0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worked_sequence_switches_as_described() {
        let marks = Watermarks { metric: WatermarkMetric::FreeMemRate, interval: 5, high: 200, mid: 150, low: 50 };
        let mut on = true;
        let states: Vec<bool> = [180, 201, 180, 149, 190, 49, 50]
            .into_iter()
            .map(|free| {
                let (next, wait) = marks.next(on, free);
                assert_eq!(wait, if next { 0 } else { 5 });
                on = next;
                on
            })
            .collect();
        assert_eq!(states, [true, false, false, true, true, false, true]);
        assert_eq!(Watermarks::default().next(true, 0), (true, 0));
    }
}
