//! A device that fails on purpose: the test of every error path, available to users for their own tests.
//!
//! Invariants: with the same plan and the same calls the same faults happen; a fault that the device does not report
//! (a torn write, a flipped bit) damages only what that call touched.
//!
//! ```
//! use refault_store::FaultPlan;
//!
//! let plan = FaultPlan::default(); // nothing fails until the plan says so
//! assert_eq!(format!("{plan:?}"), format!("{:?}", FaultPlan::default()));
//! ```

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::device::{Device, Job};

/// How often what goes wrong, in calls out of 65536.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// Seed of the schedule.
    pub seed: u64,
    /// A write answers EIO and writes nothing.
    pub write_error: u16,
    /// A read answers EIO.
    pub read_error: u16,
    /// A write answers ENOSPC and writes nothing.
    pub no_space: u16,
    /// A write writes a part and says so.
    pub short_write: u16,
    /// A write writes only its first half and claims to have written all.
    pub torn_write: u16,
    /// A write claims to have written all and wrote nothing.
    pub lost_write: u16,
    /// A read returns a part and says so.
    pub short_read: u16,
    /// A read returns with one bit flipped.
    pub bit_flip: u16,
    /// A call takes this long.
    pub delay: Option<Duration>,
}

/// How often what went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    /// Faults that the device reported: errors and short counts.
    pub reported: u64,
    /// Faults that it did not report: torn and lost writes, flipped bits.
    pub silent: u64,
}

/// A device over another one, with faults.
pub struct FaultyDevice {
    inner: Box<dyn Device>,
    plan: FaultPlan,
    random: Mutex<fastrand::Rng>,
    reported: AtomicU64,
    silent: AtomicU64,
}

impl FaultyDevice {
    /// Puts faults before a device.
    pub fn new(inner: Box<dyn Device>, plan: FaultPlan) -> FaultyDevice {
        let random = Mutex::new(fastrand::Rng::with_seed(plan.seed));
        FaultyDevice { inner, plan, random, reported: AtomicU64::new(0), silent: AtomicU64::new(0) }
    }

    /// Faults so far.
    pub fn injected(&self) -> Injected {
        Injected { reported: self.reported.load(Ordering::Relaxed), silent: self.silent.load(Ordering::Relaxed) }
    }

    /// A number below `bound`, which is not 0.
    fn below(&self, bound: usize) -> usize {
        self.random.lock().expect("invariant: nothing panics under this lock").usize(..bound)
    }

    fn happens(&self, rate: u16) -> bool {
        rate > 0 && self.below(1 << 16) < usize::from(rate)
    }

    fn reports(&self, rate: u16) -> bool {
        self.happens(rate) && self.reported.fetch_add(1, Ordering::Relaxed) < u64::MAX
    }

    fn hides(&self, rate: u16) -> bool {
        self.happens(rate) && self.silent.fetch_add(1, Ordering::Relaxed) < u64::MAX
    }
}

impl Device for FaultyDevice {
    unsafe fn write(&self, jobs: &mut [Job]) {
        if let Some(delay) = self.plan.delay {
            std::thread::sleep(delay);
        }
        for job in jobs {
            if self.reports(self.plan.write_error) {
                job.result = -libc::EIO;
                continue;
            }
            if self.reports(self.plan.no_space) {
                job.result = -libc::ENOSPC;
                continue;
            }
            if self.hides(self.plan.lost_write) {
                job.result = job.len as i32;
                continue;
            }
            let torn = self.hides(self.plan.torn_write);
            let len = match (torn, self.reports(self.plan.short_write)) {
                (true, _) => job.len / 2,
                (false, true) => self.below(job.len.max(1)) & !511,
                (false, false) => job.len,
            };
            if len == 0 {
                job.result = 0;
                continue;
            }
            let mut part = [Job { offset: job.offset, buffer: job.buffer, len, result: 0 }];
            // SAFETY: a prefix of the caller's buffer, valid as long as the caller's.
            unsafe { self.inner.write(&mut part) };
            job.result = if torn && part[0].result == len as i32 { job.len as i32 } else { part[0].result };
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(delay) = self.plan.delay {
            std::thread::sleep(delay);
        }
        if self.reports(self.plan.read_error) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let read = self.inner.read(offset, buffer)?;
        if read > 0 && self.hides(self.plan.bit_flip) {
            let bit = self.below(read * 8);
            buffer[bit / 8] ^= 1 << (bit % 8);
        }
        if read > 0 && self.reports(self.plan.short_read) {
            return Ok(self.below(read));
        }
        Ok(read)
    }

    fn punch(&self, offset: u64, len: u64) {
        self.inner.punch(offset, len);
    }

    fn after_fork(&self, pieces: &mut dyn Iterator<Item = (u64, usize)>) -> io::Result<()> {
        self.inner.after_fork(pieces)
    }

    fn describe(&self) -> String {
        format!("{}, with injected faults", self.inner.describe())
    }
}
