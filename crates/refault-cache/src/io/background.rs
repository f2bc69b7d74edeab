//! Reads that no call waits for: readahead, prefetches, further runs of a call that misses in several places,
//! and reads whose futures are polled for.
//!
//! Which of two engines does them is said in the cache's report. One is `preadv` by a few threads, each of which waits
//! for the device. The other is io_uring, where that was asked for, with one thread for all of them
//! ([`crate::io::background::ring`]). Files that have no descriptor ([`crate::Backing::descriptor`]) are read by the
//! threads in either case.
//!
//! Threads are the default, because nothing of them outlives the program. The kernel releases a ring with reads under
//! way some time after its program has ended. Until then the file system cannot be unmounted. A file has no ring of its
//! own.

pub(crate) mod ring;
pub(crate) mod workers;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use refault_core::frames::Frame;

use crate::engine::buffers::Buffers;
use crate::error::MakeError;
use crate::io::background::ring::Ring;
use crate::io::background::workers::{Job, Workers};
use crate::io::backing::{Backing, Piece};
use crate::io::direct::DirectFile;
use crate::io::opened::Opened;
use crate::io::run::{Done, Run};
use crate::io::runs::read_run;
use crate::options::IoEngine;

/// Threads that read ahead, where threads do it, and that write together.
const MAX_THREADS: usize = 4;
/// Pieces that are worth threads of their own, which are made for them.
const MIN_TOGETHER: usize = 8;
/// Threads that wait for files whose reads take long ([`crate::Backing::reads_together`]).
const MAX_WAITING: usize = 32;

pub(crate) struct Background {
    ring: Option<Ring>,
    threads: Workers,
    /// Where each read waits long, and has its own limits.
    waiting: Workers,
    buffers: Arc<Buffers>,
    /// Why there is no ring although one was wanted.
    why: Option<io::Error>,
}

impl Background {
    /// # Errors
    /// [`MakeError::NoUring`] if nothing else is to be used.
    pub(crate) fn new(engine: IoEngine, buffers: Arc<Buffers>) -> Result<Background, MakeError> {
        let threads = Workers::new("refault-ahead", MAX_THREADS);
        let ring = match engine {
            IoEngine::Threads => None,
            IoEngine::Auto | IoEngine::Uring => Some(Ring::new(buffers.clone(), threads.clone())),
        };
        let (ring, why) = match ring {
            None => (None, None),
            Some(Ok(ring)) => (Some(ring), None),
            Some(Err(error)) if engine == IoEngine::Uring => return Err(MakeError::NoUring(error)),
            Some(Err(error)) => (None, Some(error)),
        };
        let waiting = Workers::new("refault-wait", MAX_WAITING);
        Ok(Background { ring, threads, waiting, buffers, why })
    }

    /// The engine's name, and why it is not the other where that was wanted.
    pub(crate) fn name(&self) -> String {
        match (&self.ring, &self.why) {
            (Some(_), _) => "io_uring".to_owned(),
            (None, None) => "preadv".to_owned(),
            (None, Some(error)) => format!("preadv (io_uring: {error})"),
        }
    }

    /// Bytes of frames that the kernel keeps mapped for io_uring.
    pub(crate) fn registered_bytes(&self) -> u64 {
        self.ring.as_ref().map_or(0, Ring::registered_bytes)
    }

    /// Whether reads of this file wait in no thread.
    pub(crate) fn is_threadless(&self, file: &Opened) -> bool {
        self.ring.is_some() && file.backing.descriptor().is_some()
    }

    /// Reads a run and passes it on.
    pub(crate) fn read(&self, file: Arc<Opened>, run: Run, done: Done) {
        match &self.ring {
            Some(ring) if file.backing.descriptor().is_some() => ring.read(file, run, done),
            _ => {
                let buffers = self.buffers.clone();
                let threads = if file.backing.reads_together() { &self.waiting } else { &self.threads };
                threads.submit(Box::new(move || {
                    let outcome = read_run(&file, &buffers, &run);
                    drop(file);
                    done(run, outcome);
                }));
            }
        }
    }

    /// Does something that may wait for a network, soon.
    pub(crate) fn together(&self, job: Job) {
        self.waiting.submit(job);
    }

    /// Does something that waits for nothing, soon.
    pub(crate) fn run(&self, job: Job) {
        match &self.ring {
            Some(ring) => ring.run(job),
            None => self.threads.submit(job),
        }
    }

    /// The system gets the memory of frames back that are not used again.
    pub(crate) fn give_back(&self, frames: Vec<Frame>) {
        match &self.ring {
            _ if frames.is_empty() => {}
            Some(ring) => ring.give_back(frames),
            None => frames.into_iter().for_each(|frame| self.buffers.give_back(frame)),
        }
    }

    /// Writes several pieces at the same time, if that can be. Returns what [`Backing::write`] says of each.
    pub(crate) fn write_many(backing: &dyn Backing, pieces: &[Piece<'_>]) -> Vec<io::Result<usize>> {
        if pieces.len() < MIN_TOGETHER || !backing.direct().is_some_and(DirectFile::writes_directly) {
            return backing.write_many(pieces);
        }
        let next = AtomicUsize::new(0);
        let written: Vec<OnceLock<io::Result<usize>>> = pieces.iter().map(|_| OnceLock::new()).collect();
        let work = || {
            while let number = next.fetch_add(1, Ordering::Relaxed)
                && let Some((slices, offset)) = pieces.get(number)
            {
                written[number].get_or_init(|| backing.write(slices, *offset));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..MAX_THREADS {
                let thread = std::thread::Builder::new().name("refault-write".into());
                // Those that there are write it all, this one at least.
                if thread.spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
        written.into_iter().map(|written| written.into_inner().expect("invariant: each was written by one")).collect()
    }

    /// The cache is gone.
    pub(crate) fn close(&self) {
        self.threads.close();
        self.waiting.close();
        if let Some(ring) = &self.ring {
            ring.close();
        }
    }
}
