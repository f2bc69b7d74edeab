//! Reads that are polled for: many at once from one thread, finished whichever thread waits, with the contents of any
//! other read.

use std::collections::BTreeSet;
use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::pin;
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use crate::common::*;
use refault_cache::{Advice, Backing, CacheOptions, IoEngine, MakeError, OpenError, PageCache, ReadError, WriteBack};

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

/// A file whose reads return only when as many of them have come as the barrier counts.
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
    file.advise(Advice::Random);
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
        let mut random = Random::new(3);
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
fn futures_unpack_what_is_compressed() {
    let bytes = contents(300);
    let cache = compressing_cache(64, "mglru", None, Some(0.5));
    let file = Arc::new(cache.attach(Box::new(Memory::with(bytes.clone()))).expect("opens"));
    file.advise(Advice::Random);
    let mut random = Random::new(4);
    for _ in 0..500 {
        // Several at once, so that pages are compressed while others are asked for.
        let places: Vec<_> = (0..8).map(|_| random.below(299 * PAGE as u64) as usize).collect();
        let readings: Vec<_> = places.iter().map(|at| file.read_at_async(vec![0; PAGE], *at as u64)).collect();
        for (at, reading) in places.iter().zip(readings) {
            let (buffer, outcome) = wait(reading);
            assert_eq!((outcome.expect("reads"), &buffer[..]), (PAGE, &bytes[*at..at + PAGE]));
        }
    }
    let report = cache.report();
    assert!(report.unpacked > 100 && report.compressed_pages > 0, "{report:?}");
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
        assert!(begun.elapsed().as_secs() < 20, "{} bytes of a file that no caller has", left());
        std::thread::yield_now();
    }
}

/// Does something that may never come to its end, and says whether it has.
fn ends(work: impl FnOnce() + Send + 'static) -> bool {
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        work();
        let _ = ended.send(());
    });
    end.recv_timeout(std::time::Duration::from_secs(20)).is_ok()
}

/// A waker that panics; without a word, because that is as it should be.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        std::panic::resume_unwind(Box::new("a waker"));
    }
}

#[test]
fn a_waker_that_panics_takes_no_other_read_with_it() {
    for (io, _) in engines() {
        let options = CacheOptions { memory: 256 * KIB, io, read_ahead: Some(0), ..CacheOptions::default() };
        let Some((_cache, file, _kept)) = over_a_file(&contents(500), options) else { continue };
        let waker = Waker::from(Arc::new(Panics));
        // More than there are threads that wait.
        let mut begun: Vec<_> = (0..100).map(|page| file.read_at_async(vec![0; 1], page * PAGE as u64)).collect();
        for reading in &mut begun {
            let _ = std::pin::Pin::new(reading).poll(&mut Context::from_waker(&waker));
        }
        assert!(
            ends(move || {
                for page in 0..500 {
                    wait(file.read_at_async(vec![0; 1], page * PAGE as u64)).1.expect("reads");
                }
            }),
            "reads that no thread finishes"
        );
    }
}

/// A file of which the first read at each of some offsets panics.
struct Fragile(Memory, Mutex<BTreeSet<u64>>);

impl Backing for Fragile {
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let panics = self.1.lock().unwrap().remove(&offset);
        if panics { std::panic::resume_unwind(Box::new("a file")) } else { self.0.read(into, offset) }
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

#[test]
fn what_panics_below_a_file_is_an_error_of_the_read_and_leaves_no_page_busy() {
    let cache = cache(64, "lru", None);
    let page = |page: u64| page * PAGE as u64;
    let fragile = Mutex::new((0..9).map(|at| page(2 * at)).collect());
    let file = cache.attach(Box::new(Fragile(Memory::with(contents(100)), fragile))).expect("opens");
    assert!(
        ends(move || {
            let file = Arc::new(file);
            let failed = file.read_at(&mut [0], 0).expect_err("it panics");
            assert!(failed.to_string().contains("panicked"), "{failed}");
            // As many as there are threads that read ahead, and some more.
            (1..9).for_each(|at| file.prefetch(page(2 * at)..page(2 * at + 1)));
            for at in 0..100 {
                wait(file.read_at_async(vec![0; 1], page(at))).1.expect("reads");
                file.read_at(&mut [0], page(at)).expect("reads");
            }
        }),
        "a page that no thread gives back"
    );
}

/// A cache of this engine over a real file; none where the kernel or the file system has not what it takes.
fn over_a_file(
    bytes: &[u8],
    options: CacheOptions,
) -> Option<(PageCache, Arc<refault_cache::CachedFile>, tempfile::NamedTempFile)> {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    std::fs::write(file.path(), bytes).expect("writes");
    let cache = match PageCache::new(&options) {
        Ok(cache) => cache,
        Err(MakeError::NoUring(error)) => {
            refault_testing::skip_required(format_args!("no io_uring: {error}"));
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    match cache.options().write(true).open(file.path()) {
        Ok(cached) => Some((cache, Arc::new(cached), file)),
        Err(OpenError::NoDirect(path)) => {
            refault_testing::skip_required(format_args!("no direct I/O at {}", path.display()));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn engines() -> [(IoEngine, &'static str); 2] {
    [(IoEngine::Uring, "io_uring"), (IoEngine::Threads, "preadv")]
}

#[test]
fn both_engines_read_a_file_as_it_is_with_a_thousand_reads_under_way() {
    let bytes = contents(3000);
    let bytes = &bytes[..bytes.len() - 777];
    for (io, name) in engines() {
        let options = CacheOptions { memory: 1 << 20, io, ..CacheOptions::default() };
        let Some((cache, file, _kept)) = over_a_file(bytes, options) else { return };
        assert_eq!(cache.report().io, name);
        let mut random = Random::new(9);
        for turn in 0..4 {
            file.advise(if turn % 2 == 0 { Advice::Random } else { Advice::Normal });
            let places: Vec<(usize, usize)> = (0..1000)
                .map(|n| match turn {
                    // Everywhere, all on a few pages, in order, and over the end.
                    0 => (random.below(bytes.len() as u64) as usize, random.below(40_000) as usize),
                    1 => (random.below(5 * PAGE as u64) as usize, 3000),
                    2 => (n * 3 * PAGE, 3 * PAGE),
                    _ => (bytes.len() - random.below(20_000) as usize, 30_000),
                })
                .collect();
            let readings: Vec<_> =
                places.iter().map(|(at, len)| file.read_at_async(vec![0; *len], *at as u64)).collect();
            for ((at, len), reading) in places.into_iter().zip(readings) {
                let (buffer, outcome) = wait(reading);
                let expected = &bytes[at.min(bytes.len())..(at + len).min(bytes.len())];
                assert_eq!(outcome.expect("reads"), expected.len(), "{name} {turn}");
                assert!(buffer[..expected.len()] == *expected, "{name}: {len} bytes at {at}");
            }
        }
        let report = cache.report();
        assert_eq!(report.misses + report.read_ahead, report.counters.file_reads, "{name}");
        assert!(report.resident_bytes <= 1 << 20 && report.registered_bytes <= 1 << 20, "{report:?}");
        drop(file);
        let begun = std::time::Instant::now();
        while cache.report().resident_bytes != 0 {
            assert!(begun.elapsed().as_secs() < 20, "a closed file's pages stay");
            std::thread::yield_now();
        }
    }
}

/// A call that misses here and there has all of it read at the same time, and what it says is right.
#[test]
fn a_call_with_gaps_reads_what_is_missing_together() {
    let bytes = contents(2000);
    for (io, name) in engines() {
        let options = CacheOptions { memory: 4 << 20, io, policy: "lru".into(), ..CacheOptions::default() };
        let Some((cache, file, _kept)) = over_a_file(&bytes, options) else { return };
        file.advise(Advice::Random);
        let mut seen = vec![0; 48 * PAGE];
        for start in (0..1900).step_by(48) {
            for page in (start..start + 48).step_by(3) {
                file.read_at(&mut [0; 1], (page * PAGE) as u64).expect("reads");
            }
            let read = file.read_at(&mut seen, (start * PAGE) as u64).expect("reads");
            assert!(seen[..read] == bytes[start * PAGE..start * PAGE + read], "{name} {start}");
        }
        let report = cache.report();
        assert_eq!(report.counters.file_reads, 48 * 40, "{name}: each page once");
    }
}

#[test]
fn futures_wait_for_writers_and_room_and_see_what_was_written() {
    let mut bytes = contents(400);
    for (io, name) in engines() {
        let options =
            CacheOptions { memory: 256 << 10, io, write_back: Some(WriteBack::default()), ..CacheOptions::default() };
        let Some((_cache, file, _kept)) = over_a_file(&bytes, options) else { return };
        let mut random = Random::new(4);
        for turn in 0..300u64 {
            let at = random.below((bytes.len() - 9000) as u64) as usize;
            let written = vec![turn as u8; 1 + random.below(9000) as usize];
            file.write_at(&written, at as u64).expect("writes");
            bytes[at..at + written.len()].copy_from_slice(&written);
            let places: Vec<usize> = (0..20).map(|_| random.below((bytes.len() - 5000) as u64) as usize).collect();
            let readings: Vec<_> = places.iter().map(|at| file.read_at_async(vec![0; 5000], *at as u64)).collect();
            for (at, reading) in places.iter().zip(readings) {
                let (buffer, outcome) = wait(reading);
                assert_eq!(outcome.expect("reads"), 5000);
                assert!(buffer[..] == bytes[*at..at + 5000], "{name} {turn}");
            }
        }
        file.sync().expect("syncs");
    }
}

/// A device that refuses, and a file that others cut off: the same words from either engine.
#[test]
fn both_engines_say_what_a_file_refuses() {
    for (io, name) in engines() {
        let options = CacheOptions { memory: 1 << 20, io, ..CacheOptions::default() };
        let Some((cache, file, kept)) = over_a_file(&contents(600), options) else { return };
        file.advise(Advice::Random);
        kept.as_file().set_len(500 * PAGE as u64).expect("cuts");
        let (_, outcome) = wait(file.read_at_async(vec![0; 5000], 550 * PAGE as u64));
        assert!(
            matches!(outcome, Err(ReadError::Short { offset }) if offset == 550 * PAGE as u64),
            "{name} {outcome:?}"
        );
        assert_eq!(wait(file.read_at_async(vec![0; 5000], 400 * PAGE as u64)).1.expect("is there"), 5000);
        // A descriptor that cannot be read from stands in for a device that fails.
        let closed = std::fs::File::options().write(true).open(kept.path()).expect("opens");
        let refused = Arc::new(cache.attach(Box::new(WriteOnly(Arc::new(closed)))).expect("attaches"));
        let (_, outcome) = wait(refused.read_at_async(vec![0; 9000], 4096));
        assert!(
            matches!(&outcome, Err(ReadError::Io { offset: 4096, error }) if error.raw_os_error() == Some(9)),
            "{name} {outcome:?}"
        );
        assert_eq!(cache.report().counters.limit_overruns, 0);
    }
}

/// A file that is open for writing only.
struct WriteOnly(Arc<std::fs::File>);

impl Backing for WriteOnly {
    fn read(&self, _: &mut [IoSliceMut<'_>], _: u64) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(9))
    }

    fn write(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(9))
    }

    fn descriptor(&self) -> Option<Arc<std::fs::File>> {
        Some(self.0.clone())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.0.metadata().map(|metadata| metadata.len())
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
}
