//! Reclaim until a target of pressure is reached, and no further: the controller of proactive reclaim, and where
//! pressure is read.
//!
//! Each step asks for a part of what is resident; the part shrinks as pressure nears the target (Weiner and others,
//! *TMO: transparent memory offloading in datacenters*, ASPLOS 2022, section 3.3). Where a step exceeds the target, the
//! next ones begin smaller and grow back slowly. So a steady program is not made to wait again and again.
//!
//! Invariant: a step asks for at most [`MAX_STEP`] of what is resident, and for nothing while pressure is above the
//! target. Cost: one small file read for each step.
//!
//! ```
//! use refault_pool::pressure::Controller;
//!
//! let mut controller = Controller::new(0.01); // up to 1 % of the time may be spent waiting
//! assert_eq!(controller.step(1 << 30, 0.0), (1 << 30) / 50); // 2 % of what is resident
//! assert_eq!(controller.step(1 << 30, 0.02), 0); // too much waiting: a pause, and smaller steps afterwards
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The largest part of resident memory that one step asks for. Together with the rest of the loop it bounds how far
/// resident memory swings around where pressure begins.
pub const MAX_STEP: f64 = 0.02;
/// The smallest part of [`MAX_STEP`] after steps that went too far.
const MIN_SCALE: f64 = 1.0 / 64.0;
/// What a calm step gives back of the scale.
const GROWTH: f64 = 1.15;
/// Steps that are left out after one that went too far, at most: what went has to come back first.
const MAX_PAUSE: u32 = 5;

/// How much to reclaim, step by step.
#[derive(Clone, Debug)]
pub struct Controller {
    target: f64,
    scale: f64,
    pause: u32,
}

impl Controller {
    /// For a share of time (0 to 1) in which something may wait for memory.
    pub fn new(target: f64) -> Controller {
        Controller { target, scale: 1.0, pause: 0 }
    }

    /// The share of time that it was made for.
    pub fn target(&self) -> f64 {
        self.target
    }

    /// The bytes to reclaim now, from what is resident and the share of time since the last step in which something
    /// waited.
    pub fn step(&mut self, resident_bytes: u64, pressure: f64) -> u64 {
        if pressure >= self.target {
            self.scale = (self.scale / 2.0).max(MIN_SCALE);
            self.pause = (self.pause + 1).min(MAX_PAUSE);
            return 0;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return 0;
        }
        let room = 1.0 - pressure / self.target;
        let bytes = (resident_bytes as f64 * MAX_STEP * self.scale * room) as u64;
        self.scale = (self.scale * GROWTH).min(1.0);
        bytes
    }
}

/// A file of the kernel that says how long something waited for memory.
#[derive(Debug)]
pub struct Stalls {
    path: PathBuf,
    total: Duration,
    read: Instant,
}

impl Stalls {
    /// That of a cgroup's directory.
    ///
    /// # Errors
    /// The kernel keeps no pressure there.
    pub fn of_cgroup(directory: &Path) -> io::Result<Stalls> {
        Stalls::open(directory.join("memory.pressure"))
    }

    /// That of the host.
    ///
    /// # Errors
    /// The kernel keeps no pressure.
    pub fn of_host() -> io::Result<Stalls> {
        Stalls::open(PathBuf::from("/proc/pressure/memory"))
    }

    /// The narrowest that a process counts to: of its cgroup if that is not the root, else of the host.
    ///
    /// # Errors
    /// The kernel keeps no pressure.
    pub fn of_process(pid: u32) -> io::Result<Stalls> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
        let group = groups.lines().find_map(|line| line.strip_prefix("0::")).filter(|group| *group != "/");
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        let own = group.and_then(|group| {
            roots.iter().find_map(|root| Stalls::of_cgroup(&Path::new(root).join(group.trim_start_matches('/'))).ok())
        });
        own.map_or_else(Stalls::of_host, Ok)
    }

    fn open(path: PathBuf) -> io::Result<Stalls> {
        let total = read_total(&path)?;
        Ok(Stalls { path, total, read: Instant::now() })
    }

    /// Which file it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The share of time since the last call in which some thread waited, 0 to 1.
    ///
    /// # Errors
    /// The cgroup is gone.
    pub fn share(&mut self) -> io::Result<f64> {
        let (total, now) = (read_total(&self.path)?, Instant::now());
        let waited = total.saturating_sub(self.total).as_secs_f64();
        let share = waited / now.duration_since(self.read).as_secs_f64().max(1e-3);
        (self.total, self.read) = (total, now);
        Ok(share.min(1.0))
    }
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=MICROSECONDS`.
fn read_total(path: &Path) -> io::Result<Duration> {
    let text = fs::read_to_string(path)?;
    let total = text.lines().find_map(|line| line.strip_prefix("some ")?.rsplit_once("total=")?.1.parse().ok());
    total.map(Duration::from_micros).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A program that waits the more, the less of its working set is resident, and brings back what it misses within a
    /// step.
    struct Program {
        working_set: u64,
        resident: u64,
    }

    impl Program {
        fn run(&mut self, controller: &mut Controller) {
            let missing = self.working_set.saturating_sub(self.resident);
            let pressure = missing as f64 / self.working_set as f64;
            self.resident += missing;
            self.resident -= controller.step(self.resident, pressure);
        }
    }

    #[test]
    fn a_steady_program_keeps_its_working_set_within_five_percent() {
        let mut controller = Controller::new(0.001);
        let mut program = Program { working_set: 300 * MIB, resident: 1000 * MIB };
        (0..200).for_each(|_| program.run(&mut controller));
        for step in 0..1000 {
            program.run(&mut controller);
            let swing = program.resident as f64 / (300 * MIB) as f64;
            assert!((0.95..=1.05).contains(&swing), "step {step}: {swing}");
        }
    }

    #[test]
    fn a_program_that_needs_more_has_it_within_ten_steps_and_one_that_needs_less_is_followed() {
        let mut controller = Controller::new(0.001);
        let mut program = Program { working_set: 300 * MIB, resident: 300 * MIB };
        (0..100).for_each(|_| program.run(&mut controller));
        program.working_set = 600 * MIB;
        (0..10).for_each(|_| program.run(&mut controller));
        assert!(program.resident >= 570 * MIB, "{}", program.resident / MIB);
        program.working_set = 300 * MIB;
        (0..10).for_each(|_| program.run(&mut controller));
        assert!(program.resident < 600 * MIB, "reclaim goes on within ten steps");
        (0..200).for_each(|_| program.run(&mut controller));
        assert!(program.resident <= 315 * MIB, "{}", program.resident / MIB);
    }

    #[test]
    fn nothing_is_asked_for_above_the_target() {
        let mut controller = Controller::new(0.01);
        assert_eq!(controller.step(1000 * MIB, 0.01), 0);
        assert_eq!(controller.step(0, 0.0), 0);
        let mut calm = Controller::new(0.01);
        assert_eq!(calm.step(1000 * MIB, 0.0), 20 * MIB);
    }

    #[test]
    fn pressure_is_a_share_of_time() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("memory.pressure");
        std::fs::write(&file, "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\nfull avg10=0 total=9\n").expect("room");
        let mut stalls = Stalls::of_cgroup(directory.path()).expect("a file");
        std::fs::write(&file, "some avg10=0.00 total=60000005\n").expect("room");
        assert_eq!(stalls.share().expect("read"), 1.0, "no more than all of the time");
        assert_eq!(stalls.share().expect("read"), 0.0);
        std::fs::write(&file, "nonsense").expect("room");
        assert!(stalls.share().is_err());
    }
}
