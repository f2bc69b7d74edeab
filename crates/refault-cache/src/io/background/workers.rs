//! A few threads of the cache's own, for work that no call waits for.
//!
//! Threads are started when there is work for them, and end with their cache. Cost: one thread at least once there was
//! work; a lock and a box per job.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};

/// Something to do.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

/// The threads and what they have to do. Clones are the same.
#[derive(Clone)]
pub(crate) struct Workers {
    queue: Arc<(Mutex<Queue>, Condvar)>,
    name: &'static str,
    most: usize,
}

const UNBROKEN: &str = "invariant: nothing panics under this lock";

impl Workers {
    /// At most `most` threads of this name.
    pub(crate) fn new(name: &'static str, most: usize) -> Workers {
        Workers { queue: Arc::default(), name, most }
    }

    /// Does a job in the background; here, if the system gives no thread.
    pub(crate) fn submit(&self, job: Job) {
        let (queue, wake) = &*self.queue;
        let mut queue = queue.lock().expect(UNBROKEN);
        queue.jobs.push_back(job);
        if queue.idle >= queue.jobs.len() || queue.threads == self.most {
            drop(queue);
            wake.notify_one();
            return;
        }
        if !self.spawn(&mut queue) && queue.threads == 0 {
            let job = queue.jobs.pop_back();
            drop(queue);
            job.into_iter().for_each(|job| job());
        }
    }

    /// Whether there is a thread from now on, so that no job is done by who submits it.
    pub(crate) fn start(&self) -> bool {
        let mut queue = self.queue.0.lock().expect(UNBROKEN);
        queue.threads > 0 || self.spawn(&mut queue)
    }

    fn spawn(&self, queue: &mut Queue) -> bool {
        let workers = self.clone();
        let thread = std::thread::Builder::new().name(self.name.into()).spawn(move || workers.work());
        queue.threads += usize::from(thread.is_ok());
        thread.is_ok()
    }

    fn work(&self) {
        let (lock, wake) = &*self.queue;
        let mut queue = lock.lock().expect(UNBROKEN);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job();
                queue = lock.lock().expect(UNBROKEN);
            } else if queue.closed {
                return;
            } else {
                queue.idle += 1;
                queue = wake.wait(queue).expect(UNBROKEN);
                queue.idle -= 1;
            }
        }
    }

    /// The cache is gone: threads end when there is nothing left to do.
    pub(crate) fn close(&self) {
        let (queue, wake) = &*self.queue;
        if let Ok(mut queue) = queue.lock() {
            queue.closed = true;
        }
        wake.notify_all();
    }
}
