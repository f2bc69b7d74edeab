//! Where those wait for the engine that cannot go on: threads, and what goes on in the background.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::engine::Engine;
use crate::io::background::workers::Job;

const UNBROKEN: &str = "invariant: a panic under this lock ends the program";

/// Where threads wait. No system call is made to wake where no thread waits.
#[derive(Default)]
pub(crate) struct Place {
    waiting: AtomicU32,
    changed: Condvar,
    /// What goes on then, in the background.
    parked: Mutex<Vec<Job>>,
}

impl Place {
    /// Counted under the lock: who changes something under the lock later sees it.
    pub(crate) fn wait<'a>(&self, engine: MutexGuard<'a, Engine>) -> MutexGuard<'a, Engine> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let engine = self.changed.wait(engine).expect(UNBROKEN);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        engine
    }

    /// As [`Place::wait`], for something that no thread waits for. Under the engine's lock.
    pub(crate) fn park(&self, job: Job) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.parked.lock().expect(UNBROKEN).push(job);
    }

    /// Wakes who waits in threads; returns the others.
    pub(crate) fn wake(&self) -> Vec<Job> {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        self.changed.notify_all();
        let parked = std::mem::take(&mut *self.parked.lock().expect(UNBROKEN));
        self.waiting.fetch_sub(parked.len() as u32, Ordering::SeqCst);
        parked
    }
}
