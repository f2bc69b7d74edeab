//! What is pinned stays as it was, whatever happens to the file, the page and the cache; and nothing stays behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::*;
use refault_cache::{Advice, CacheOptions, PageCache, ReadError};

fn page(at: u64) -> u64 {
    at * PAGE as u64
}

/// A file whose every page begins with its number.
fn numbered(count: u64) -> Memory {
    let mut bytes = vec![0; count as usize * PAGE];
    for number in 0..count {
        bytes[number as usize * PAGE..][..8].copy_from_slice(&number.to_le_bytes());
    }
    Memory::with(bytes)
}

#[test]
fn pinned_pages_are_not_evicted_and_every_policy_goes_on_around_them() {
    for policy in policies() {
        for keep in [None, Some(0.25)] {
            let cache = cache(64, policy, keep);
            let file = cache.attach(Box::new(numbered(600))).expect("opens");
            let pinned: Vec<_> = (0..20).map(|n| file.pin(page(n * 7)..page(n * 7) + 8).expect("pins")).collect();
            for number in 0..600 {
                let mut buffer = [0; 8];
                file.read_at(&mut buffer, page(number)).expect("reads");
                assert_eq!(u64::from_le_bytes(buffer), number, "{policy}");
            }
            for (n, pin) in pinned.iter().enumerate() {
                assert_eq!(pin.as_slice(), Some(&(n as u64 * 7).to_le_bytes()[..]), "{policy}");
            }
            drop(pinned);
            drop(file);
            let report = cache.report();
            assert_eq!((report.resident_bytes, report.cached_bytes, report.orphan_bytes), (0, 0, 0), "{policy}");
        }
    }
}

/// It would be found out when everything else had gone, and others had found no room meanwhile.
#[test]
fn what_cannot_be_pinned_costs_nobody_a_page() {
    let cache = cache(64, "lru", None);
    let file = cache.attach(Box::new(numbered(1000))).expect("opens");
    let read_hot = || (0..32).for_each(|number| drop(file.pin(page(number)..page(number) + 8).expect("pins")));
    read_hot();
    let before = cache.report().counters;
    for range in [0..u64::MAX, page(100)..page(200), page(3)..page(67) + 1] {
        assert!(matches!(file.pin(range), Err(ReadError::NoRoom)));
    }
    read_hot();
    let after = cache.report().counters;
    assert_eq!((after.file_reads, after.pgsteal), (before.file_reads, before.pgsteal));
}

#[test]
fn a_pin_shows_what_was_there_when_it_was_made() {
    let cache = cache(64, "lru", None);
    let file = cache.attach(Box::new(numbered(100))).expect("opens");
    let before = file.pin(page(3)..page(5)).expect("pins");
    assert_eq!(before.len(), 2 * PAGE);
    assert!(before.as_slice().is_none() && before.slices().count() == 2);
    file.write_at(&[9; 3 * PAGE], page(2)).expect("writes");
    let after = file.pin(page(3)..page(3) + 8).expect("pins");
    let numbers: Vec<u64> =
        before.slices().map(|slice| u64::from_le_bytes(slice[..8].try_into().expect("8 bytes"))).collect();
    assert_eq!(numbers, [3, 4], "the old contents");
    assert_eq!(after.as_slice(), Some(&[9; 8][..]), "the new ones");
    assert_eq!(cache.report().orphan_bytes, page(2));
    drop(before);
    assert_eq!(cache.report().orphan_bytes, 0);
    file.set_len(page(1)).expect("cuts off");
    assert_eq!(after.as_slice(), Some(&[9; 8][..]), "what was cut off is there as long as the pin");
    assert!(file.pin(page(3)..page(4)).expect("nothing there").is_empty());
    drop(after);
    assert_eq!(cache.report().orphan_bytes, 0);
}

#[test]
fn a_memory_that_is_pinned_whole_is_full_and_says_so() {
    let cache = cache(64, "mglru", None);
    let file = cache.attach(Box::new(numbered(200))).expect("opens");
    let mut pins: Vec<_> = (0..64).map(|n| file.pin(page(n)..page(n) + 1).expect("pins")).collect();
    assert!(matches!(file.read_at(&mut [0], page(100)), Err(ReadError::NoRoom)));
    // What is pinned can be read, and written through.
    file.read_at(&mut [0], page(5)).expect("reads");
    file.write_at(&[1; 8], page(5)).expect("writes");
    pins.pop();
    let read = file.read_at(&mut [0], page(100));
    assert!(read.is_ok(), "{read:?}");
}

#[test]
fn a_range_spans_pages_and_ends_with_the_file() {
    let cache = cache(64, "lru", None);
    let bytes: Vec<u8> = (0..10 * PAGE + 100).map(|at| (at / 7) as u8).collect();
    let file = cache.attach(Box::new(Memory::with(bytes.clone()))).expect("opens");
    for (from, to) in [(0, 1), (5, 5), (4095, 4097), (100, 9000), (40_000, 100_000), (41_059, 41_060), (50_000, 60_000)]
    {
        let pinned = file.pin(from..to).expect("pins");
        let seen: Vec<u8> = pinned.slices().flatten().copied().collect();
        let end = (to as usize).min(bytes.len());
        assert_eq!(seen, bytes[(from as usize).min(end)..end], "{from}..{to}");
        assert_eq!(pinned.len(), seen.len());
        assert!(pinned.as_slice().is_none_or(|slice| slice == seen));
    }
}

/// Readers with and without copies, writers, evictions and changes of length, all at once: every page that is seen is
/// whole, and a pin never changes.
#[test]
fn pins_hold_under_writers_and_evictions() {
    const PAGES: u64 = 200;
    let whole = |bytes: &[u8]| bytes.iter().all(|byte| *byte == bytes[0]);
    for policy in ["lru", "mglru", "s3fifo", "adaptive", "freebsd"] {
        let cache = cache(64, policy, None);
        let file = cache.attach(Box::new(Memory::with(vec![0; PAGES as usize * PAGE]))).expect("opens");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (file, stop) = (&file, &stop);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    while !stop.load(Ordering::Relaxed) {
                        let value = random.next() as u8;
                        file.write_at(&[value; PAGE], page(random.below(PAGES))).expect("writes");
                        if random.below(50) == 0 {
                            file.evict(page(10)..page(60));
                        }
                    }
                });
            }
            for thread in 2..4 {
                let (file, stop, cache) = (&file, &stop, &cache);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    let mut pins = std::collections::VecDeque::new();
                    while !stop.load(Ordering::Relaxed) {
                        let number = random.below(PAGES);
                        let pin = file
                            .pin(page(number)..page(number + 1))
                            .unwrap_or_else(|error| panic!("{policy}: {error} {:?}", cache.report()));
                        let first = pin.as_slice().expect("one page")[0];
                        pins.push_back((pin, first));
                        if pins.len() > 8 {
                            let (pin, first) = pins.pop_front().expect("more than eight");
                            let slice = pin.as_slice().expect("one page");
                            assert!(whole(slice) && slice[0] == first, "a pinned page has changed");
                        }
                        let mut buffer = [0; PAGE];
                        file.read_at(&mut buffer, page(random.below(PAGES))).expect("reads");
                        assert!(whole(&buffer), "a torn page");
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(400));
            stop.store(true, Ordering::Relaxed);
        });
        drop(file);
        let report = cache.report();
        assert_eq!((report.resident_bytes, report.cached_bytes, report.orphan_bytes), (0, 0, 0), "{report:?}");
    }
}

#[test]
fn what_was_prefetched_is_there() {
    let memory = numbered(100);
    let cache = cache(64, "mglru", None);
    let file = cache.attach(Box::new(memory.clone())).expect("opens");
    file.advise(Advice::Random);
    file.prefetch(page(10)..page(30));
    for number in 10..30 {
        file.read_at(&mut [0; 8], page(number)).expect("reads");
    }
    let report = cache.report();
    assert_eq!((report.misses, report.read_ahead, report.hits), (0, 20, 20));
    assert_eq!(memory.faults.reads.load(Ordering::Relaxed), 1, "one read for all");
    for number in 40..60 {
        file.read_at(&mut [0; 8], page(number)).expect("reads");
    }
    assert_eq!(cache.report().read_ahead, 20, "random reads read nothing ahead");
    file.evict(page(10)..page(30));
    assert_eq!(cache.report().resident_bytes, page(20));
}

#[test]
fn missing_pages_of_one_call_are_read_together() {
    let memory = numbered(200);
    let cache = cache(128, "lru", None);
    let file = cache.attach(Box::new(memory.clone())).expect("opens");
    file.advise(Advice::Random);
    let mut buffer = vec![0; 40 * PAGE];
    file.read_at(&mut buffer, page(20)).expect("reads");
    assert_eq!(memory.faults.reads.load(Ordering::Relaxed), 1);
    let report = cache.report();
    assert_eq!((report.misses, report.read_ahead), (40, 0));
    file.read_at(&mut buffer, page(20)).expect("reads");
    assert_eq!((cache.report().hits, memory.faults.reads.load(Ordering::Relaxed)), (40, 1));
}

/// The first window of large reads is longer than one call to the device brings: the rest of it is on its way too.
#[test]
fn no_gap_follows_the_first_window_of_large_reads() {
    let memory = numbered(8192);
    let options =
        CacheOptions { memory: page(16384), policy: "lru".into(), read_ahead: Some(2048), ..CacheOptions::default() };
    let cache = PageCache::new(&options).expect("a cache");
    let file = cache.attach(Box::new(memory.clone())).expect("opens");
    let mut buffer = vec![0; 256 * PAGE];
    for call in 0..32 {
        file.read_at(&mut buffer, page(256 * call)).expect("reads");
    }
    assert_eq!(cache.report().misses, 2 * 256, "the first two calls wait: {:?}", cache.report());
}

/// The reader of a stream waits for the device at its beginning only; what follows is on its way before it is asked
/// for.
#[test]
fn streams_forward_backward_and_with_gaps_are_read_ahead() {
    for step in [1i64, -1, 5] {
        let memory = numbered(2000);
        let options =
            CacheOptions { memory: page(512), policy: "lru".into(), read_ahead: Some(32), ..CacheOptions::default() };
        let cache = PageCache::new(&options).expect("a cache");
        let file = cache.attach(Box::new(memory.clone())).expect("opens");
        let mut at = if step < 0 { 1500 } else { 100 };
        for _ in 0..200 {
            let mut buffer = [0; 8];
            file.read_at(&mut buffer, page(at as u64)).expect("reads");
            assert_eq!(u64::from_le_bytes(buffer), at as u64);
            at += step;
        }
        let report = cache.report();
        assert!(report.misses <= 6, "step {step}: {report:?}");
        assert!(report.counters.file_reads <= 300, "step {step} reads what no call asks for: {report:?}");
    }
}
