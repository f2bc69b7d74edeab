//! Reads that nobody waits for yet: windows of readahead, by a few threads of the cache's own.
//!
//! Threads are started when there is work for them, and end with their cache. Pages of a job are busy from the moment in
//! which it is made, so whoever wants one of them waits for it. A job that fails leaves its pages missing: who wants one
//! reads it himself and is told what is wrong. Cost: one thread at least while there are streams; a lock per job.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};

use refault_core::PageId;

use crate::file::{Opened, Shared};
use crate::fill::{Run, read_run};

/// Threads at most.
const MAX_THREADS: usize = 4;

/// A run of pages of a file.
pub(crate) struct Job {
    pub(crate) shared: Arc<Shared>,
    pub(crate) file: Arc<Opened>,
    pub(crate) run: Run,
    /// The page whose reader reads on.
    pub(crate) marked: PageId,
}

impl Job {
    fn run(self) {
        let pages = &self.run.pages;
        let outcome = read_run(&self.file, &self.shared.buffers, &self.run);
        let mut engine = self.shared.engine();
        for (page, _) in pages {
            if outcome.is_err() {
                engine.abandon_fill(*page);
                continue;
            }
            engine.counts.file_reads += 1;
            engine.counts.read_ahead += 1;
            engine.finish_fill(*page, false);
            engine.pages.set_ahead(*page, *page == self.marked);
        }
        drop(engine);
        self.shared.wake(pages.iter().map(|(page, _)| *page));
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

/// The threads and what they have to do.
#[derive(Clone, Default)]
pub(crate) struct Pool(Arc<(Mutex<Queue>, Condvar)>);

const UNBROKEN: &str = "invariant: nothing panics under this lock";

impl Pool {
    /// Does a job in the background; here, if the system gives no thread.
    pub(crate) fn submit(&self, job: Job) {
        let (queue, wake) = &*self.0;
        let mut queue = queue.lock().expect(UNBROKEN);
        queue.jobs.push_back(job);
        if queue.idle >= queue.jobs.len() || queue.threads == MAX_THREADS {
            drop(queue);
            wake.notify_one();
            return;
        }
        let pool = self.clone();
        let thread = std::thread::Builder::new().name("refault-ahead".into()).spawn(move || pool.work());
        if thread.is_ok() {
            queue.threads += 1;
        } else if queue.threads == 0 {
            let job = queue.jobs.pop_back();
            drop(queue);
            job.into_iter().for_each(Job::run);
        }
    }

    fn work(&self) {
        let (lock, wake) = &*self.0;
        let mut queue = lock.lock().expect(UNBROKEN);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job.run();
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

    /// The cache is gone: threads end.
    pub(crate) fn close(&self) {
        let (queue, wake) = &*self.0;
        if let Ok(mut queue) = queue.lock() {
            queue.closed = true;
        }
        wake.notify_all();
    }
}
