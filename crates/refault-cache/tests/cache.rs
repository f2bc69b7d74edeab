//! What the cache promises besides the bytes: hits without I/O, cached pages, readahead, direct files, errors that name
//! what is wrong.

use crate::common::*;
use refault_cache::{Advice, CacheOptions, MakeError, OpenError, PageCache, ReadError, WhatIf, WriteBack, WriteError};
use refault_core::policy::registry::{Family, entry};
use std::io::IoSliceMut;
use std::sync::atomic::Ordering;

fn pages(count: u64) -> Memory {
    Memory::with((0..count * PAGE as u64).map(|at| (at / PAGE as u64) as u8).collect())
}

fn read(file: &refault_cache::CachedFile, page: u64) {
    let mut buffer = [0; 8];
    assert_eq!(file.read_at(&mut buffer, page * PAGE as u64).expect("reads"), 8);
    assert_eq!(buffer, [page as u8; 8]);
}

#[test]
fn resident_pages_are_not_read_again() {
    for policy in policies() {
        let memory = pages(40);
        let cache = cache(64, policy, None);
        let file = cache.attach(Box::new(memory.clone())).expect("opens");
        (0..3).for_each(|_| (0..40).for_each(|page| read(&file, page)));
        let report = cache.report();
        assert_eq!(report.counters.file_reads, 40, "{policy}");
        assert_eq!(report.hits + report.misses, 120, "{policy}");
        assert_eq!(report.misses + report.read_ahead, 40, "{policy}");
        assert!(memory.faults.reads.load(Ordering::Relaxed) < 10, "readahead brings many with one call");
    }
}

#[test]
fn evicted_pages_come_back_without_io_only_if_asked_for() {
    for keep in [None, Some(0.0), Some(0.25)] {
        for policy in policies() {
            let memory = pages(1000);
            let cache = cache(256, policy, keep);
            let file = cache.attach(Box::new(memory)).expect("opens");
            // Nothing in the background: what is free for a moment there is found or not by chance.
            file.advise(Advice::Random);
            let mut random = Random::new(3);
            (0..20_000).for_each(|_| read(&file, random.below(1000)));
            let report = cache.report();
            // Policies that evict one page at a time leave no frame free by themselves.
            let one_by_one = entry(policy).expect("known").family != Family::Kernel;
            let kept = keep.is_some() || policy == "freebsd";
            let found = if one_by_one { keep > Some(0.0) } else { kept };
            let c = report.counters;
            assert_eq!(c.pages_cached > 0, kept, "{policy}");
            assert_eq!(c.pages_reactivated > 0, found, "{policy} {keep:?}");
            assert_eq!(report.misses + report.read_ahead, c.file_reads, "{policy}");
            assert!(report.resident_bytes + report.cached_bytes <= report.memory_bytes);
            assert_eq!(c.limit_overruns, 0, "{policy}");
        }
    }
}

/// Pages that differ, and compress to about a third.
fn text(pages: usize) -> Memory {
    let word = |at: usize| if at.is_multiple_of(3) { Random::new(at as u64).next() } else { (at / 512) as u64 };
    Memory::with((0..pages * PAGE / 8).flat_map(|at| word(at).to_le_bytes()).collect())
}

#[test]
fn evicted_pages_that_compress_are_read_once() {
    for policy in policies() {
        let memory = text(200);
        // 128 frames, and as much memory that has room for some 300 compressed pages.
        let cache = compressing_cache(128, policy, None, Some(0.5));
        let file = cache.attach(Box::new(memory.clone())).expect("opens");
        file.advise(Advice::Random);
        let mut random = Random::new(5);
        let mut buffer = vec![0; PAGE];
        for _ in 0..10_000 {
            let at = random.below(200) * PAGE as u64;
            file.read_at(&mut buffer, at).expect("reads");
            let bytes = memory.bytes.lock().unwrap();
            assert!(buffer == bytes[at as usize..at as usize + PAGE], "{policy}: page {}", at / PAGE as u64);
        }
        let report = cache.report();
        // 200 once each; some that found no room in the tier, too.
        assert!(report.counters.file_reads < 300, "{policy}: {report:?}");
        assert!(report.unpacked > 500 && report.compressed_pages > 0, "{policy}: {report:?}");
        assert_eq!(report.hits + report.misses, 10_000, "{policy}");
        assert!(report.compressed_bytes <= 128 * PAGE as u64, "{policy}: {report:?}");
        assert!(report.resident_bytes + report.compressed_bytes <= report.memory_bytes, "{policy}: {report:?}");
        file.evict(0..u64::MAX);
        assert_eq!(cache.report().compressed_pages, 0, "{policy}: evicted pages are gone from both tiers");
    }
}

#[test]
fn the_share_for_compressed_pages_is_part_of_the_limit() {
    let make = |memory, compressed| PageCache::new(&CacheOptions { memory, compressed, ..CacheOptions::default() });
    for share in [None, Some(0.0), Some(1e-6), Some(0.1), Some(0.3), Some(0.75)] {
        for memory in [1 << 21, (1 << 21) + 5000, 3_333_333] {
            let report = make(memory, share).expect("a cache").report();
            assert!(report.memory_bytes <= memory, "{share:?} of {memory}: {report:?}");
            assert!(report.memory_bytes + 65_536 > memory, "{share:?} of {memory}: {report:?}");
        }
    }
    for bad in [-0.1, 0.76, f64::NAN, f64::INFINITY] {
        assert!(matches!(make(1 << 21, Some(bad)), Err(MakeError::BadCompressed(_))), "{bad}");
    }
    for share in [0.0, 1e-6, 0.3, 0.75] {
        for memory in [0, 1, 64 * PAGE as u64 - 1] {
            let Err(MakeError::TooSmall(_, least)) = make(memory, Some(share)) else { panic!("{memory} are too few") };
            make(least, Some(share)).expect("what was said to be enough");
        }
    }
}

#[test]
fn several_buffers_are_filled_one_after_the_other_up_to_the_end() {
    let cache = cache(64, "lru", None);
    let file = cache.attach(Box::new(pages(3))).expect("opens");
    let (mut whole, mut first, mut rest) = (vec![0; 3 * PAGE], vec![0; PAGE + 100], vec![0; 3 * PAGE]);
    assert_eq!(file.read_at(&mut whole, 0).expect("reads"), 3 * PAGE);
    let mut buffers = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut rest)];
    assert_eq!(file.read_vectored_at(&mut buffers, 50).expect("reads"), 3 * PAGE - 50);
    assert_eq!(first, whole[50..PAGE + 150]);
    assert_eq!(rest[..2 * PAGE - 150], whole[PAGE + 150..]);
}

#[test]
fn no_policy_runs_out_of_room() {
    for policy in policies() {
        for keep in [None, Some(0.5)] {
            let cache = cache(64, policy, keep);
            let file = cache.attach(Box::new(pages(500))).expect("opens");
            // A scan, with a few pages that are read all the time.
            for page in 0..500 {
                read(&file, page);
                (0..4).for_each(|hot| read(&file, hot));
            }
            let report = cache.report();
            assert_eq!(report.counters.limit_overruns, 0, "{policy} {keep:?}: {report:?}");
        }
    }
}

#[test]
fn a_failed_readahead_does_not_fail_the_read() {
    let memory = pages(100);
    let cache = cache(64, "lru", None);
    let file = cache.attach(Box::new(memory.clone())).expect("opens");
    (0..8).for_each(|page| read(&file, page));
    // The file ends before a window does that is not on its way yet, unknown to the cache: the window cannot be read,
    // its first pages can.
    memory.bytes.lock().unwrap().truncate(25 * PAGE);
    (8..25).for_each(|page| read(&file, page));
    let error = file.read_at(&mut [0; 8], 30 * PAGE as u64).expect_err("that is gone");
    assert!(matches!(error, ReadError::Short { offset } if offset == 30 * PAGE as u64), "{error}");
}

#[test]
fn errors_say_what_and_where() {
    let memory = pages(100);
    let cache = cache(64, "mglru", None);
    let file = cache.attach(Box::new(memory.clone())).expect("opens");
    memory.faults.failing_reads.store(1, Ordering::Relaxed);
    let error = file.read_at(&mut [0; 100], 3 * PAGE as u64 + 5).expect_err("fails");
    assert!(matches!(error, ReadError::Io { offset, .. } if offset == 3 * PAGE as u64), "{error}");
    let error = file.write_at(&[1; 10], 5).expect_err("cannot be read before");
    assert!(matches!(error, WriteError::Read(_)), "{error}");
    memory.faults.failing_reads.store(0, Ordering::Relaxed);
    memory.faults.failing_writes.store(1, Ordering::Relaxed);
    let error = file.write_at(&[1; PAGE], 8192).expect_err("fails");
    assert!(matches!(error, WriteError::Io { offset: 8192, .. }), "{error}");
    read(&file, 2);
    let made = |memory, policy: &str, share| {
        PageCache::new(&CacheOptions {
            memory,
            policy: policy.into(),
            keep_evicted: Some(share),
            read_ahead: Some(0),
            ..CacheOptions::default()
        })
        .err()
    };
    assert!(matches!(made(1 << 20, "opt", 0.0), Some(MakeError::Policy(_))));
    assert!(matches!(made(1 << 10, "lru", 0.0), Some(MakeError::TooSmall(..))));
    assert!(matches!(made(1 << 60, "lru", 0.0), Some(MakeError::TooLarge(..))));
    assert!(matches!(made(1 << 20, "lru", 0.9), Some(MakeError::BadShare(_))));
    assert!(matches!(cache.open("/no/such/file".as_ref()), Err(OpenError::Io { .. })));
}

#[test]
fn a_direct_file_keeps_its_length_and_bytes() {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    std::fs::write(file.path(), vec![7u8; 10_000]).expect("writes");
    let cache = cache(64, "mglru", Some(0.1));
    let cached = match cache.options().write(true).open(file.path()) {
        Ok(cached) => cached,
        Err(OpenError::NoDirect(path)) => {
            refault_testing::skip_required(format_args!("no direct I/O at {}", path.display()));
            return;
        }
        Err(error) => panic!("{error}"),
    };
    cached.write_at(&[1, 2, 3], 9_999).expect("writes");
    cached.write_at(&[9; 5000], 4000).expect("writes");
    cached.write_at(&[5; 3], 1 << 20).expect("leaves a hole");
    cached.sync().expect("syncs");
    let mut expected = vec![7u8; 10_000];
    expected.truncate(9_999);
    expected.extend([1, 2, 3]);
    expected[4000..9000].fill(9);
    expected.resize(1 << 20, 0);
    expected.extend([5; 3]);
    let mut seen = vec![0; expected.len() + 100];
    assert_eq!(cached.read_at(&mut seen, 0).expect("reads"), expected.len());
    assert!(seen[..expected.len()] == expected);
    assert!(std::fs::read(file.path()).expect("reads") == expected);
}

/// What the cache says of another size is what a cache of that size does; of another policy, too.
#[test]
fn a_cache_says_what_it_would_miss_with_more_memory() {
    const FRAMES: u64 = 4096;
    let run = |policy: &str, frames: u64, what_if: WhatIf| {
        let options = CacheOptions {
            memory: frames * PAGE as u64,
            policy: policy.into(),
            read_ahead: Some(0),
            what_if,
            ..CacheOptions::default()
        };
        let cache = PageCache::new(&options).expect("options are sound");
        let file = cache.attach(Box::new(Memory::with(vec![0; 16_384 * PAGE]))).expect("opens");
        let (mut random, mut buffer) = (Random::new(11), [0; 8]);
        for _ in 0..200_000 {
            // The smaller of two: low pages are read more often.
            let page = random.below(16_384).min(random.below(16_384));
            file.read_at(&mut buffer, page * PAGE as u64).expect("reads");
        }
        cache.report()
    };
    let what_if = WhatIf { policies: vec!["lru".into(), "s3fifo".into()], memory: Vec::new() };
    let report = run("lru", FRAMES, what_if);
    assert_eq!(report.would_miss.len(), 8, "two policies at half, once, twice and four times the memory");
    for answer in &report.would_miss {
        let truth = run(&answer.policy, answer.memory_bytes / PAGE as u64, WhatIf::default());
        assert!(truth.would_miss.is_empty() && answer.accesses == 200_000);
        let off = (answer.misses as f64 - truth.misses as f64) / 200_000.0;
        assert!(off.abs() <= 0.01, "{answer:?}, and {} in fact", truth.misses);
    }
    let wrong = WhatIf { policies: vec!["opt".into()], memory: Vec::new() };
    let error = PageCache::new(&CacheOptions { what_if: wrong, ..CacheOptions::default() }).err();
    assert!(matches!(error, Some(MakeError::Policy(_))), "{error:?}");
    let small = WhatIf { policies: vec!["lru".into()], memory: vec![100] };
    let error = PageCache::new(&CacheOptions { what_if: small, ..CacheOptions::default() }).err();
    assert!(matches!(error, Some(MakeError::TooSmall(100, _))), "{error:?}");
}

/// Scattered dirty pages go to a real file, many at the same time, and are what was written.
#[test]
fn a_direct_file_gets_what_was_written_back() {
    const PAGES: usize = 500;
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    let mut expected = vec![0u8; PAGES * PAGE];
    std::fs::write(file.path(), &expected).expect("writes");
    let options = CacheOptions { memory: 1 << 20, write_back: Some(WriteBack::default()), ..CacheOptions::default() };
    let cache = PageCache::new(&options).expect("a cache");
    let cached = match cache.options().write(true).open(file.path()) {
        Ok(cached) => cached,
        Err(OpenError::NoDirect(path)) => {
            refault_testing::skip_required(format_args!("no direct I/O at {}", path.display()));
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let mut random = Random::new(5);
    for turn in 0..2000u64 {
        let at = random.below((PAGES * PAGE - 9000) as u64) as usize;
        let bytes = vec![turn as u8; 1 + random.below(9000) as usize];
        cached.write_at(&bytes, at as u64).expect("writes");
        expected[at..at + bytes.len()].copy_from_slice(&bytes);
        if turn % 500 == 499 {
            cached.sync().expect("syncs");
            assert!(std::fs::read(file.path()).expect("reads") == expected, "after {turn}");
        }
    }
    assert!(cache.report().written_back > 500 && cache.report().dirty_bytes == 0);
}

#[test]
fn changes_by_others_are_told_from_own_writes() {
    let path = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    std::fs::write(path.path(), vec![1u8; 10 * PAGE]).expect("writes");
    for write_back in [None, Some(WriteBack::default())] {
        let cache = PageCache::new(&CacheOptions { write_back, ..CacheOptions::default() }).expect("a cache");
        let file = match cache.options().write(true).open(path.path()) {
            Ok(file) => file,
            Err(OpenError::NoDirect(path)) => {
                refault_testing::skip(format!("{} does no direct I/O", path.display()));
                return;
            }
            Err(error) => panic!("{error}"),
        };
        // Times step by some milliseconds.
        let pause = || std::thread::sleep(std::time::Duration::from_millis(30));
        let byte = |at: u64| {
            let mut seen = [0];
            file.read_at(&mut seen, at).expect("reads");
            seen[0]
        };
        assert!(!file.reload_if_changed().expect("looks"), "as it was opened");
        for value in [2, 3] {
            pause();
            file.write_at(&[value; 3 * PAGE], PAGE as u64).expect("writes");
            file.sync().expect("syncs");
            pause();
            assert!(!file.reload_if_changed().expect("looks"), "the cache has written that itself");
        }
        assert_eq!(byte(8 * PAGE as u64), 1);
        pause();
        let other = std::fs::File::options().write(true).open(path.path()).expect("opens");
        std::os::unix::fs::FileExt::write_all_at(&other, &[9; PAGE], 8 * PAGE as u64).expect("writes");
        other.sync_all().expect("syncs");
        pause();
        // A write of its own after that hides nothing.
        file.write_at(&[4; PAGE], 0).expect("writes");
        file.sync().expect("syncs");
        assert_eq!(byte(8 * PAGE as u64), 1, "no call has asked");
        assert!(file.reload_if_changed().expect("looks"));
        assert_eq!((byte(8 * PAGE as u64), byte(0)), (9, 4));
        assert!(!file.reload_if_changed().expect("looks"), "it is told once");
        other.set_len(9 * PAGE as u64).expect("cuts");
        assert!(file.reload_if_changed().expect("looks"));
        assert_eq!(file.len(), 9 * PAGE as u64);
        drop(file);
        std::fs::write(path.path(), vec![1u8; 10 * PAGE]).expect("writes");
    }
}

#[test]
fn what_has_no_pages_is_refused_and_nobody_waits_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let pipe = directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("coreutils");
    assert!(made.success());
    let cache = PageCache::new(&CacheOptions::default()).expect("a cache");
    for path in [pipe.as_path(), "/dev/null".as_ref()] {
        let error = cache.open(path).map(drop).expect_err("no file");
        assert!(error.to_string().contains("neither a file nor a block device"), "{error}");
    }
    assert!(cache.open(directory.path()).is_err());
}
