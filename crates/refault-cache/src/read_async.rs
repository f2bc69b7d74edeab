//! Reads that are polled for: any runtime, or none, can have many of them under way from one thread.
//!
//! What is in the cache is there at the first poll. What is not is read by one of the cache's threads, which waits for
//! the device in place of the caller's. Invariant: a read that was begun is finished, whether its future is polled or
//! dropped, and its file and cache live until then. Cost: of a hit as [`CachedFile::read_at`] and two allocations; of a
//! miss the passing of a job to a thread and of its outcome back besides.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use refault_store::PAGE_SIZE;

use crate::error::ReadError;
use crate::file::CachedFile;

/// Threads that wait for the device: reads of one cache that are polled for and missed, at once. More wait for a
/// thread.
pub(crate) const MAX_THREADS: usize = 32;

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
        let mut state = self.0.lock().expect(UNBROKEN);
        match std::mem::replace(&mut *state, State::Taken) {
            State::Done(buffer, outcome) => Poll::Ready((buffer, outcome)),
            State::Waits(_) => {
                *state = State::Waits(Some(context.waker().clone()));
                Poll::Pending
            }
            State::Taken => panic!("a read is polled again after it was ready"),
        }
    }
}

impl CachedFile {
    /// Reads as [`CachedFile::read_at`] does, into a buffer that the future gives back, without waiting for the device
    /// in this thread. The read begins now, not when the future is polled first; one that is dropped is finished all
    /// the same.
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
        let found = self.read_found(&mut buffer, offset);
        let wanted = self.len().saturating_sub(offset).min(buffer.len() as u64) as usize;
        if found >= wanted {
            return Reading(Arc::new(Mutex::new(State::Done(buffer, Ok(found)))));
        }
        let state = Arc::new(Mutex::new(State::Waits(None)));
        let (file, reading) = (Arc::clone(self), Arc::clone(&state));
        self.shared.readers.submit(Box::new(move || {
            let outcome = file.read_at(&mut buffer[found..], offset + found as u64).map(|read| found + read);
            let before = std::mem::replace(&mut *reading.lock().expect(UNBROKEN), State::Done(buffer, outcome));
            if let State::Waits(Some(waker)) = before {
                waker.wake();
            }
        }));
        Reading(state)
    }

    /// Reads up to the first page that is not there. Returns the bytes read.
    fn read_found(&self, buffer: &mut [u8], offset: u64) -> usize {
        let wanted = self.len().saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < wanted {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let part = (PAGE_SIZE - within).min(wanted - done);
            if !self.copy_found(at / PAGE, within, &mut buffer[done..done + part]) {
                break;
            }
            done += part;
        }
        done
    }
}
