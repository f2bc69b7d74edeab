//! Reads that are polled for: any runtime, or none, can have many of them under way from one thread.
//!
//! What is in the cache is there at the first poll. The rest is a chain of steps in the background. Each begins the
//! read of what is missing next, or is parked at a page that another thread reads. A parked step continues when that
//! page has been read. With io_uring ([`crate::io::background::ring`]) no thread waits for any of them; otherwise, and
//! where a step would have to write pages back first, a thread makes the rest of the read as [`CachedFile::read_at`]
//! does.
//!
//! Invariants: a read that was begun is finished, whether its future is polled or dropped, and its file and cache live
//! until then; a step never waits, so a file whose last owner is a step is closed by a thread. Cost: of a hit as
//! [`CachedFile::read_at`] and two allocations; of a miss some boxes and a lock per page besides.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use refault_store::PAGE_SIZE;

use crate::error::ReadError;
use crate::file::CachedFile;
use crate::file::fill::{Attempt, submit};
use crate::io::run::{Fault, Run};

const PAGE: u64 = PAGE_SIZE as u64;
const UNBROKEN: &str = "invariant: nothing panics under this lock";

/// A read under way, from [`CachedFile::read_at_async`]. Gives the buffer back with what [`CachedFile::read_at`] says
/// of it.
#[derive(Debug)]
#[must_use = "a read's outcome is there when its future is polled"]
pub struct Reading(Arc<Mutex<State>>);

#[derive(Debug)]
enum State {
    Waits(Option<Waker>),
    Done(Vec<u8>, Result<usize, ReadError>),
    Taken,
}

impl Future for Reading {
    type Output = (Vec<u8>, Result<usize, ReadError>);

    /// # Panics
    /// If it is polled again after it was ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Wakers are the caller's code: they are made and dropped without the lock.
        let waker = context.waker().clone();
        let mut state = self.0.lock().expect(UNBROKEN);
        let before = match std::mem::replace(&mut *state, State::Taken) {
            State::Done(buffer, outcome) => return Poll::Ready((buffer, outcome)),
            State::Waits(before) => before,
            State::Taken => panic!("a read is polled again after it was ready"),
        };
        *state = State::Waits(Some(waker));
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl CachedFile {
    /// Reads as [`CachedFile::read_at`] does, into a buffer that the future gives back. This thread does not wait for
    /// the device, unless the system gives no other thread. The read begins now, not when the future is polled first;
    /// one that is dropped is finished all the same.
    ///
    /// ```no_run
    /// # async fn header() -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    ///
    /// let cache = refault_cache::PageCache::new(&refault_cache::CacheOptions::default())?;
    /// let file = Arc::new(cache.open("data.bin".as_ref())?);
    /// // Both are on their way at once.
    /// let (first, second) = (file.read_at_async(vec![0; 64], 0), file.read_at_async(vec![0; 64], 1 << 30));
    /// let (header, outcome) = first.await;
    /// outcome?;
    /// # second.await.1?;
    /// # Ok(header)
    /// # }
    /// ```
    pub fn read_at_async(self: &Arc<Self>, mut buffer: Vec<u8>, offset: u64) -> Reading {
        let found = self.read_found_at(&mut buffer, offset);
        let wanted = self.len().saturating_sub(offset).min(buffer.len() as u64) as usize;
        if found >= wanted {
            return Reading(Arc::new(Mutex::new(State::Done(buffer, Ok(found)))));
        }
        if let Err(error) = self.origin.check() {
            return Reading(Arc::new(Mutex::new(State::Done(buffer, Err(ReadError::Io { offset, error })))));
        }
        let state = Arc::new(Mutex::new(State::Waits(None)));
        let step =
            Step { file: Held::new(self), buffer, offset, done: found, wanted, asked: None, state: Arc::clone(&state) };
        if !self.shared.readers.start() {
            // The ring's thread could not hand on what has to wait.
            step.wait();
        } else if self.shared.background.is_threadless(&self.opened) {
            step.go_on();
        } else {
            step.file.shared.readers.clone().submit(Box::new(move || step.wait()));
        }
        Reading(state)
    }
}

/// A read between two completions.
struct Step {
    file: Held,
    buffer: Vec<u8>,
    offset: u64,
    /// Bytes that were read, and are to be.
    done: usize,
    wanted: usize,
    /// The page that the cache was told of last.
    asked: Option<u64>,
    state: Arc<Mutex<State>>,
}

impl Step {
    /// Reads on until something has to be waited for. Never called under a lock.
    fn go_on(mut self) {
        loop {
            let read =
                self.file.read_found_at(&mut self.buffer[self.done..self.wanted], self.offset + self.done as u64);
            self.done += read;
            if self.done >= self.wanted {
                return self.finish(Ok(()));
            }
            let at = self.offset + self.done as u64;
            let (index, within) = (at / PAGE, (at % PAGE) as usize);
            if at >= self.file.len() {
                // It was cut off meanwhile.
                return self.finish(Ok(()));
            }
            let file = self.file.clone();
            let mut engine = file.shared.engine();
            let page = match engine.page(file.opened.number, index) {
                Ok(page) => page,
                Err(error) => {
                    drop(engine);
                    return self.finish(Err(error));
                }
            };
            if self.asked.replace(index) != Some(index) {
                engine.asked(page, false);
            }
            match file.attempt(engine, page, index, false, within, &mut self.buffer[self.done..self.wanted]) {
                Attempt::Read(bytes) => self.done += bytes,
                Attempt::Busy(engine) => return file.shared.park(engine, page, Box::new(move || self.go_on())),
                Attempt::Full(engine) if engine.filling > 0 => {
                    return file.shared.park_for_room(engine, Box::new(move || self.go_on()));
                }
                Attempt::Full(engine) => {
                    drop(engine);
                    // Pages have to be written first, or there is no room at all.
                    return file.shared.readers.clone().submit(Box::new(move || self.wait()));
                }
                Attempt::Fill(mut engine, mut run) => {
                    if run.is_in_memory(|page| engine.pages.is_packed(page)) {
                        let unpacked = file.unpack(engine, &mut run);
                        match file.end_run(run, 1, unpacked, within, &mut self.buffer[self.done..self.wanted]) {
                            Ok(bytes) => self.done += bytes,
                            Err(error) => return self.finish(Err(error)),
                        }
                        continue;
                    }
                    let (wanted, jobs) = file.begin_run(&mut engine, &mut run, within, self.wanted - self.done);
                    drop(engine);
                    file.put_away(&mut run);
                    let opened = Arc::clone(&file.opened);
                    let done = Box::new(move |run, outcome| self.arrived(run, wanted, outcome));
                    file.shared.background.read(opened, run, done);
                    return submit(jobs);
                }
            }
        }
    }

    /// A run that was read has come, or not.
    fn arrived(self, run: Run, wanted: usize, outcome: Result<(), Fault>) {
        if outcome.is_ok() {
            self.take(run, wanted, outcome);
        } else {
            // The page alone may be read still, and that takes its time.
            let readers = self.file.shared.readers.clone();
            readers.submit(Box::new(move || self.take(run, wanted, outcome)));
        }
    }

    fn take(mut self, run: Run, wanted: usize, outcome: Result<(), Fault>) {
        let within = ((self.offset + self.done as u64) % PAGE) as usize;
        let out = &mut self.buffer[self.done..self.wanted];
        match self.file.end_run(run, wanted, outcome, within, out) {
            Ok(bytes) => {
                self.done += bytes;
                self.go_on();
            }
            Err(error) => self.finish(Err(error)),
        }
    }

    /// Reads on in this thread, which may wait.
    fn wait(mut self) {
        let outcome = self.file.read_at(&mut self.buffer[self.done..self.wanted], self.offset + self.done as u64);
        if let Ok(read) = outcome {
            self.done += read;
        }
        self.finish(outcome.map(drop));
    }

    fn finish(self, outcome: Result<(), ReadError>) {
        let Step { buffer, done, state, .. } = self;
        let outcome = outcome.map(|()| done);
        let before = std::mem::replace(&mut *state.lock().expect(UNBROKEN), State::Done(buffer, outcome));
        if let State::Waits(Some(waker)) = before {
            // The thread has others' reads as well, and outlives a waker that panics.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }
}

/// A step's share of its file. Closing a file waits for its reads, which a step must not: if it was the last owner, a
/// thread does that.
struct Held(Option<Arc<CachedFile>>);

impl Held {
    fn new(file: &Arc<CachedFile>) -> Held {
        Held(Some(Arc::clone(file)))
    }
}

impl Clone for Held {
    fn clone(&self) -> Held {
        Held(self.0.clone())
    }
}

impl std::ops::Deref for Held {
    type Target = CachedFile;

    fn deref(&self) -> &CachedFile {
        self.0.as_ref().expect("invariant: there until it is dropped")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(file) = self.0.take() else { return };
        let readers = file.shared.readers.clone();
        if let Some(file) = Arc::into_inner(file) {
            readers.submit(Box::new(move || drop(file)));
        }
    }
}
