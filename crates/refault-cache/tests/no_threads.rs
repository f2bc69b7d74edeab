//! A system that gives no more threads: what the thread of io_uring must not wait for is done by one that was there
//! before.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use refault_cache::{CacheOptions, IoEngine, MakeError, OpenError, PageCache};

/// Leaves no addresses for the stack of another thread.
fn allow_no_more_threads() {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel says it");
    let line = status.lines().find(|line| line.starts_with("VmSize:")).expect("a field");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number");
    let limit = libc::rlimit { rlim_cur: (kib + 1024) * KIB, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is a variable of this function.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    assert!(std::thread::Builder::new().spawn(|| {}).is_err(), "the test is to have no threads");
}

// One test: the limit is the whole process's.
#[test]
fn a_file_whose_last_owner_is_a_read_is_closed() {
    const PAGES: usize = 4096;
    let path = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    std::fs::write(path.path(), vec![1; PAGES * PAGE]).expect("writes");
    let options = CacheOptions {
        memory: (2 * PAGES * PAGE) as u64,
        io: IoEngine::Uring,
        read_ahead: Some(0),
        ..CacheOptions::default()
    };
    let cache = match PageCache::new(&options) {
        Err(MakeError::NoUring(error)) => {
            return refault_testing::skip_required(format_args!("no io_uring: {error}"));
        }
        made => made.expect("a cache"),
    };
    let open = || match cache.open(path.path()) {
        Err(OpenError::NoDirect(_)) => None,
        opened => Some(Arc::new(opened.expect("opens"))),
    };
    let Some(file) = open() else { return refault_testing::skip_required("no direct I/O here") };
    // The ring's thread begins, and no other.
    file.prefetch(0..PAGE as u64);
    file.read_at(&mut [0], 0).expect("reads");
    drop(file);
    let left = || cache.report().resident_bytes;
    let is_empty_soon = || {
        let begun = Instant::now();
        while left() > 0 && begun.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        left() == 0
    };
    assert!(is_empty_soon());
    allow_no_more_threads();
    for _ in 0..20 {
        let file = open().expect("it was before");
        // The read ends with the first part, while others are under way.
        file.prefetch(0..(PAGES * PAGE) as u64);
        drop(file.read_at_async(vec![0; 1], 0));
        drop(file);
        assert!(is_empty_soon(), "the file is never closed");
    }
}
