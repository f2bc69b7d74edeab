//! The thread that writes in the background: when more is dirty than the background ratio, and what has waited too
//! long.

use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use crate::io::refusal::PAUSE;
use crate::writeback::limits::Limits;

/// How often is looked for what has waited too long: the kernel's `dirty_writeback_centisecs`.
const INTERVAL: Duration = Duration::from_secs(5);

const UNBROKEN: &str = "invariant: nothing panics under this lock";

/// What has dirty pages.
pub(crate) trait WritesBack: Send + Sync + 'static {
    /// Writes what is to be written now. `tick`: what has waited too long is looked for. False if the device refuses.
    fn write_in_background(&self, limits: &Limits, tick: bool) -> bool;
}

#[derive(Default)]
struct State {
    wanted: bool,
    closed: bool,
    started: bool,
}

/// The thread that writes in the background, once there is something to write.
#[derive(Clone, Default)]
pub(crate) struct Flusher(Arc<(Mutex<State>, Condvar)>);

impl Flusher {
    /// Starts the thread. Without one, writers write when they reach the limit.
    pub(crate) fn start<C: WritesBack>(&self, cache: &Arc<C>, limits: Limits) {
        let mut state = self.0.0.lock().expect(UNBROKEN);
        if !state.started {
            let (flusher, cache) = (self.clone(), Arc::downgrade(cache));
            let thread = std::thread::Builder::new().name("refault-write".into());
            state.started = thread.spawn(move || flusher.work(&cache, &limits)).is_ok();
        }
    }

    pub(crate) fn wake(&self) {
        let mut state = self.0.0.lock().expect(UNBROKEN);
        if !state.wanted {
            state.wanted = true;
            self.0.1.notify_one();
        }
    }

    fn work(&self, cache: &Weak<impl WritesBack>, limits: &Limits) {
        let (lock, wake) = &*self.0;
        let interval = INTERVAL.min(limits.expire.max(Duration::from_millis(10)));
        let mut state = lock.lock().expect(UNBROKEN);
        loop {
            let tick = if state.wanted {
                false
            } else {
                let (after, timeout) = wake.wait_timeout(state, interval).expect(UNBROKEN);
                state = after;
                timeout.timed_out()
            };
            if state.closed {
                return;
            }
            state.wanted = false;
            drop(state);
            let Some(cache) = cache.upgrade() else { return };
            let went_well = cache.write_in_background(limits, tick);
            drop(cache);
            if !went_well {
                // The device refuses: what is dirty stays so, and the next sync says so.
                std::thread::sleep(PAUSE);
            }
            state = lock.lock().expect(UNBROKEN);
        }
    }

    /// The cache is gone.
    pub(crate) fn close(&self) {
        if let Ok(mut state) = self.0.0.lock() {
            state.closed = true;
        }
        self.0.1.notify_one();
    }
}
