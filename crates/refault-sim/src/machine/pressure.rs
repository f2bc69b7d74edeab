//! Memory pressure: the time in which tasks waited for memory (spec: overview §7).
//!
//! For each CPU the *some* clock runs while at least one of its tasks is stalled, the *full* clock while one is stalled
//! and none that is not stalled could run. Every two seconds the clocks of all CPUs are combined, weighted by how long
//! each CPU was not idle, and folded into exponential averages over 10, 60 and 300 seconds with the fixed-point factors
//! of the kernel.
//!
//! Invariant: `full <= some <= elapsed time`. Cost: O(1) a change of a task's state, O(CPUs) every two seconds.

/// Nanoseconds between two updates of the averages.
pub const PERIOD: u64 = 2_000_000_000;
/// One in the averages' fixed point.
const FIXED_ONE: u64 = 2048;
/// What remains of an average after a period, over 10, 60 and 300 s.
const DECAY: [u64; 3] = [1677, 1981, 2034];

/// What a task is doing, as far as pressure cares: a set of bits.
pub mod activity {
    /// Runs or wants to.
    pub const RUNNING: u8 = 1;
    /// Lacks memory.
    pub const STALLED: u8 = 2;
    /// Waits for a device.
    pub const WAITING: u8 = 4;
}

/// Clocks of one CPU.
#[derive(Clone, Debug, Default)]
struct CpuClocks {
    running: u32,
    stalled: u32,
    waiting: u32,
    stalled_running: u32,
    since: u64,
    some: u64,
    full: u64,
    not_idle: u64,
}

impl CpuClocks {
    fn advance(&mut self, now: u64) {
        let elapsed = now.saturating_sub(self.since);
        self.since = self.since.max(now);
        if self.running + self.stalled + self.waiting > 0 {
            self.not_idle += elapsed;
        }
        if self.stalled > 0 {
            self.some += elapsed;
            if self.running == self.stalled_running {
                self.full += elapsed;
            }
        }
    }

    fn count(&mut self, activity: u8, by: i32) {
        let add = |counter: &mut u32| *counter = counter.wrapping_add_signed(by);
        if activity & activity::RUNNING != 0 {
            add(&mut self.running);
        }
        if activity & activity::STALLED != 0 {
            add(&mut self.stalled);
            if activity & activity::RUNNING != 0 {
                add(&mut self.stalled_running);
            }
        }
        if activity & activity::WAITING != 0 {
            add(&mut self.waiting);
        }
    }
}

/// One line of a pressure file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PressureLine {
    /// Percent of the last 10, 60 and 300 seconds.
    pub averages: [f64; 3],
    /// Microseconds in all.
    pub total_us: u64,
}

/// Pressure of the whole machine.
#[derive(Clone, Debug)]
pub struct Pressure {
    cpus: Vec<CpuClocks>,
    folded_at: u64,
    /// some, full; in 1/2048 of a percent.
    averages: [[u64; 3]; 2],
    /// some, full; nanoseconds.
    totals: [u64; 2],
}

impl Pressure {
    /// No pressure yet, time 0.
    pub fn new(cpus: usize) -> Pressure {
        Pressure { cpus: vec![CpuClocks::default(); cpus], folded_at: 0, averages: [[0; 3]; 2], totals: [0; 2] }
    }

    /// A task of `cpu` changes from one activity to another at `now`. Times of one CPU should not decrease; a change
    /// that comes late counts from the time already reached.
    #[inline]
    pub fn change(&mut self, cpu: usize, now: u64, from: u8, to: u8) {
        let clocks = &mut self.cpus[cpu];
        clocks.advance(now);
        clocks.count(from, -1);
        clocks.count(to, 1);
    }

    /// Brings totals and averages up to `now`. Called every [`PERIOD`].
    pub fn fold(&mut self, now: u64) {
        let (mut weight, mut some, mut full) = (0u128, 0u128, 0u128);
        for clocks in &mut self.cpus {
            clocks.advance(now);
            let share = u128::from(clocks.not_idle);
            weight += share;
            some += share * u128::from(clocks.some);
            full += share * u128::from(clocks.full);
            (clocks.not_idle, clocks.some, clocks.full) = (0, 0, 0);
        }
        let period = now - self.folded_at;
        if period == 0 {
            return;
        }
        self.folded_at = now;
        for (kind, weighted) in [some, full].into_iter().enumerate() {
            let time = (weighted / weight.max(1)) as u64;
            self.totals[kind] += time;
            let percent = (u128::from(time) * 100 * u128::from(FIXED_ONE) / u128::from(period)) as u64;
            for (average, decay) in self.averages[kind].iter_mut().zip(DECAY) {
                let mut sum = *average * decay + percent * (FIXED_ONE - decay);
                // Rising averages round up, so that they reach what they approach.
                if percent >= *average {
                    sum += FIXED_ONE - 1;
                }
                *average = sum / FIXED_ONE;
            }
        }
    }

    /// The *some* line, as of the last fold.
    pub fn some(&self) -> PressureLine {
        self.line(0)
    }

    /// The *full* line, as of the last fold.
    pub fn full(&self) -> PressureLine {
        self.line(1)
    }

    fn line(&self, kind: usize) -> PressureLine {
        PressureLine {
            averages: self.averages[kind].map(|a| a as f64 / FIXED_ONE as f64),
            total_us: self.totals[kind] / 1000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::activity::*;
    use super::*;

    #[test]
    fn one_cpu_stalled_half_of_the_time() {
        let mut pressure = Pressure::new(1);
        pressure.change(0, 0, 0, RUNNING);
        pressure.change(0, 1_000_000_000, RUNNING, RUNNING | STALLED);
        pressure.change(0, 2_000_000_000, RUNNING | STALLED, RUNNING);
        pressure.fold(PERIOD);
        assert_eq!(pressure.some().total_us, 1_000_000);
        assert_eq!(pressure.full().total_us, 1_000_000, "nobody else could run");
        // One period at 50 %: 50 · (2048 − 1677) / 2048.
        assert!((pressure.some().averages[0] - 50.0 * 371.0 / 2048.0).abs() < 0.01);
    }

    #[test]
    fn a_running_neighbour_prevents_full() {
        let mut pressure = Pressure::new(1);
        pressure.change(0, 0, 0, RUNNING);
        pressure.change(0, 0, 0, STALLED | WAITING);
        pressure.fold(PERIOD);
        assert_eq!((pressure.some().total_us, pressure.full().total_us), (2_000_000, 0));
    }

    #[test]
    fn idle_cpus_do_not_dilute() {
        let mut pressure = Pressure::new(4);
        pressure.change(2, 0, 0, STALLED | WAITING);
        pressure.fold(PERIOD);
        assert_eq!(pressure.full().total_us, 2_000_000);
    }

    #[test]
    fn the_average_reaches_a_constant_load() {
        let mut pressure = Pressure::new(1);
        pressure.change(0, 0, 0, STALLED);
        for i in 1..=200 {
            pressure.fold(i * PERIOD);
        }
        assert_eq!(pressure.some().averages[0], 100.0);
    }
}
