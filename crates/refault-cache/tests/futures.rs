//! Reads that are polled for: many at once from one thread, finished whoever waits, with the contents of any other
//! read.

mod common;

use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use common::*;
use refault_cache::{Backing, ReadError};

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls until it is ready, asleep in between.
fn wait<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// A file whose reads return only when so many of them have come.
struct Together(Memory, Barrier);

impl Backing for Together {
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.1.wait();
        self.0.read(into, offset)
    }

    fn write(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.0.write(from, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }
}

fn contents(pages: usize) -> Vec<u8> {
    (0..pages * PAGE).map(|at| (at / 7 % 251) as u8).collect()
}

#[test]
fn one_thread_has_many_reads_under_way() {
    const READS: usize = 16;
    let bytes = contents(64 * READS);
    let cache = cache(4 * KIB, "lru", None);
    let file = Together(Memory::with(bytes.clone()), Barrier::new(READS));
    let file = Arc::new(cache.attach(Box::new(file)).expect("opens"));
    file.advise(refault_cache::Advice::Random);
    // Were one of them made before the next is begun, the file would wait for ever.
    let readings: Vec<_> =
        (0..READS).map(|n| file.read_at_async(vec![0; 100], (n * 64 * PAGE + 4050) as u64)).collect();
    for (n, reading) in readings.into_iter().enumerate() {
        let at = n * 64 * PAGE + 4050;
        // The second page of each is a read of its own, which waits for the others' as well.
        let (buffer, outcome) = wait(reading);
        assert_eq!((outcome.expect("reads"), &buffer[..]), (100, &bytes[at..at + 100]));
    }
    let (buffer, outcome) = wait(file.read_at_async(vec![0; 10], 4050));
    assert_eq!((outcome.expect("is there"), &buffer[..]), (10, &bytes[4050..4060]), "no device is asked");
}

#[test]
fn futures_read_what_any_read_does_at_every_border() {
    let bytes = contents(20);
    for policy in policies() {
        let cache = cache(64, policy, None);
        let file = Arc::new(cache.attach(Box::new(Memory::with(bytes.clone()))).expect("opens"));
        let mut random = Random(3);
        for _ in 0..300 {
            let (at, len) = (random.below(21 * PAGE as u64), random.below(3 * PAGE as u64) as usize);
            let (buffer, outcome) = wait(file.read_at_async(vec![1; len], at));
            let expected = &bytes[(at as usize).min(bytes.len())..(at as usize + len).min(bytes.len())];
            assert_eq!((outcome.expect("reads"), &buffer[..expected.len()]), (expected.len(), expected), "{policy}");
            assert!(buffer.len() == len && buffer[expected.len()..].iter().all(|byte| *byte == 1));
        }
    }
}

#[test]
fn a_future_that_is_dropped_leaves_a_whole_cache_and_errors_are_told() {
    let memory = Memory::with(contents(500));
    let cache = cache(64, "mglru", None);
    let file = Arc::new(cache.attach(Box::new(memory.clone())).expect("opens"));
    for n in 0..200 {
        drop(file.read_at_async(vec![0; PAGE], n * 2 * PAGE as u64));
    }
    memory.faults.failing_reads.store(1, std::sync::atomic::Ordering::Relaxed);
    let failed = wait(file.read_at_async(vec![0; 1], 499 * PAGE as u64)).1;
    assert!(matches!(failed, Err(ReadError::Io { .. })), "{failed:?}");
    memory.faults.failing_reads.store(0, std::sync::atomic::Ordering::Relaxed);
    let (_, outcome) = wait(file.read_at_async(vec![0; 1], 499 * PAGE as u64));
    assert_eq!(outcome.expect("reads"), 1, "nothing is left of the failure");
    drop(file);
    // Reads that are under way have the file still.
    let left = || cache.report().resident_bytes;
    let begun = std::time::Instant::now();
    while left() != 0 {
        assert!(begun.elapsed().as_secs() < 20, "{} bytes of a file that nobody has", left());
        std::thread::yield_now();
    }
}
