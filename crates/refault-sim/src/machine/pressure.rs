//! Memory pressure: the time in which tasks waited for memory (spec: overview §7).
//!
//! For each CPU the *some* clock runs while at least one of its tasks is stalled. The *full* clock runs while one is
//! stalled and none that is not stalled could run. Every two seconds the clocks of all CPUs are combined, weighted by
//! how long each CPU was not idle. They are folded into the core's averages over 10, 60 and 300 seconds.
//!
//! Invariant: `full <= some <= elapsed time`. Cost: O(1) per change of a task's state, O(CPUs) every two seconds.
//!
//! Kernel: `psi_memstall_enter`, `psi_group_change`, `collect_percpu_times`, `update_averages` in `kernel/sched/psi.c`.
//!
//! ```
//! use refault_sim::machine::pressure::Trigger;
//!
//! let trigger: Trigger = "some 70000 1000000".parse()?;
//! assert_eq!((trigger.stall, trigger.window), (70_000_000, 1_000_000_000)); // 70 ms within a second
//! # Ok::<(), String>(())
//! ```

use std::str::FromStr;

pub use refault_core::pressure::PERIOD;
use refault_core::pressure::PressureAverages;

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
    /// some, full.
    averages: [PressureAverages; 2],
    /// some, full; nanoseconds.
    totals: [u64; 2],
    /// The part of `totals` that the averages have not seen yet.
    since_fold: [u64; 2],
}

impl Pressure {
    /// No pressure yet, time 0.
    pub fn new(cpus: usize) -> Pressure {
        Pressure {
            cpus: vec![CpuClocks::default(); cpus],
            folded_at: 0,
            averages: Default::default(),
            totals: [0; 2],
            since_fold: [0; 2],
        }
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

    /// Brings the totals up to `now`. Any number of times between two folds.
    pub fn collect(&mut self, now: u64) {
        let (mut weight, mut some, mut full) = (0u128, 0u128, 0u128);
        for clocks in &mut self.cpus {
            clocks.advance(now);
            let share = u128::from(clocks.not_idle);
            weight += share;
            some += share * u128::from(clocks.some);
            full += share * u128::from(clocks.full);
            (clocks.not_idle, clocks.some, clocks.full) = (0, 0, 0);
        }
        for (kind, weighted) in [some, full].into_iter().enumerate() {
            let time = (weighted / weight.max(1)) as u64;
            self.totals[kind] += time;
            self.since_fold[kind] += time;
        }
    }

    /// Brings totals and averages up to `now`. Called every [`PERIOD`].
    pub fn fold(&mut self, now: u64) {
        self.collect(now);
        let period = now - self.folded_at;
        self.folded_at = now;
        for (averages, stalled) in self.averages.iter_mut().zip(&mut self.since_fold) {
            averages.fold(std::mem::take(stalled), period);
        }
    }

    /// Nanoseconds of *some* (0) or *full* (1) up to the last collection.
    fn total(&self, full: bool) -> u64 {
        self.totals[usize::from(full)]
    }

    /// The *some* line, averages as of the last fold.
    pub fn some(&self) -> PressureLine {
        self.line(0)
    }

    /// The *full* line, averages as of the last fold.
    pub fn full(&self) -> PressureLine {
        self.line(1)
    }

    fn line(&self, kind: usize) -> PressureLine {
        PressureLine { averages: self.averages[kind].percent(), total_us: self.totals[kind] / 1000 }
    }
}

/// Watches for a certain stall within a certain time, as the kernel's triggers do: written into a pressure file as
/// `some 70000 1000000`, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Watches *full* instead of *some*.
    pub full: bool,
    /// The shortest stall that it reports, nanoseconds.
    pub stall: u64,
    /// The time within which that stall must fall, nanoseconds: half a second to ten.
    pub window: u64,
}

impl FromStr for Trigger {
    type Err = String;

    fn from_str(text: &str) -> Result<Trigger, String> {
        let usage = || format!("'{text}': expected some or full, stall and window in us, as 'some 70000 1000000'");
        let words: Vec<&str> = text.split_whitespace().collect();
        let &[kind, stall, window] = &words[..] else { return Err(usage()) };
        let number = |word: &str| word.parse::<u64>().map_err(|_| usage());
        let (stall, window) = (number(stall)?, number(window)?);
        if !(500_000..=10_000_000).contains(&window) || stall == 0 || stall > window {
            return Err(format!(
                "'{text}': the window must be from 500000 to 10000000 us, the stall from 1 to the window"
            ));
        }
        match kind {
            "some" | "full" => Ok(Trigger { full: kind == "full", stall: stall * 1000, window: window * 1000 }),
            _ => Err(usage()),
        }
    }
}

/// A [`Trigger`] at work. The stall within the window is what came since the window began, and of the window before the
/// share that it still overlaps.
#[derive(Clone, Copy, Debug)]
pub struct ArmedTrigger {
    trigger: Trigger,
    started: u64,
    total_at_start: u64,
    stall_before: u64,
    fired: Option<u64>,
}

impl ArmedTrigger {
    /// Begins at time 0.
    pub fn new(trigger: Trigger) -> ArmedTrigger {
        ArmedTrigger { trigger, started: 0, total_at_start: 0, stall_before: 0, fired: None }
    }

    /// Nanoseconds between two looks.
    pub fn interval(&self) -> u64 {
        self.trigger.window / 10
    }

    /// Looks at the totals, which must have been collected at `now`. True if the stall was reached; once per window
    /// at most.
    pub fn fires(&mut self, now: u64, pressure: &Pressure) -> bool {
        let window = self.trigger.window;
        let elapsed = now - self.started;
        let mut stall = pressure.total(self.trigger.full) - self.total_at_start;
        if elapsed > window {
            (self.started, self.total_at_start, self.stall_before) = (now, pressure.total(self.trigger.full), stall);
        } else {
            stall += (u128::from(self.stall_before) * u128::from(window - elapsed) / u128::from(window)) as u64;
        }
        if stall < self.trigger.stall || self.fired.is_some_and(|at| now < at + window) {
            return false;
        }
        self.fired = Some(now);
        true
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
        assert_eq!(pressure.full().total_us, 1_000_000, "no other task could run");
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
    fn looking_in_between_does_not_change_the_averages() {
        let run = |looks: u64| {
            let mut pressure = Pressure::new(1);
            pressure.change(0, 0, 0, RUNNING | STALLED);
            (1..=looks).for_each(|look| pressure.collect(PERIOD / 2 * look / looks.max(1)));
            pressure.change(0, PERIOD / 2, RUNNING | STALLED, RUNNING);
            pressure.fold(PERIOD);
            (pressure.some(), pressure.full())
        };
        assert_eq!(run(0), run(7));
    }

    #[test]
    fn a_trigger_fires_once_per_window_and_only_for_enough_stall() {
        let trigger: Trigger = "some 100000 1000000".parse().unwrap();
        let looks = |stall_ms: u64| {
            let (mut pressure, mut armed) = (Pressure::new(1), ArmedTrigger::new(trigger));
            let mut fired = Vec::new();
            pressure.change(0, 0, 0, RUNNING);
            for look in 1..=30 {
                let now = look * armed.interval();
                // Stalled for a part of each interval.
                pressure.change(0, now - stall_ms * 1_000_000, RUNNING, RUNNING | STALLED);
                pressure.change(0, now, RUNNING | STALLED, RUNNING);
                pressure.collect(now);
                if armed.fires(now, &pressure) {
                    fired.push(now / 1_000_000);
                }
            }
            fired
        };
        assert_eq!(looks(8), Vec::<u64>::new(), "80 ms per second are not enough");
        assert_eq!(looks(25), [400, 1400, 2400]);
        for wrong in
            ["", "some", "much 1 1000000", "some 0 1000000", "some 1 400000", "full 2000000 1000000", "some a b"]
        {
            assert!(wrong.parse::<Trigger>().is_err(), "{wrong:?}");
        }
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
