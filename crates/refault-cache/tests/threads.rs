//! Many threads over few frames: every page is always whole and never older than what was acknowledged.

use crate::common::*;
use refault_cache::CachedFile;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGES: u64 = 400;

/// A page that holds its number and version in every word. It compresses to some half.
fn page_of(number: u64, version: u64) -> Vec<u8> {
    let seed = number << 32 | version;
    let mut random = Random::new(seed);
    let word = |at: usize| if at.is_multiple_of(3) { random.next() } else { seed };
    let mut bytes: Vec<u8> = (0..PAGE / 8 - 1).map(word).flat_map(u64::to_le_bytes).collect();
    bytes.extend(version.to_le_bytes());
    bytes
}

fn version_of(number: u64, bytes: &[u8]) -> u64 {
    let version = u64::from_le_bytes(bytes[PAGE - 8..].try_into().expect("8 bytes"));
    assert!(bytes == page_of(number, version), "page {number} is torn or another's");
    version
}

fn read(file: &CachedFile, number: u64) -> std::io::Result<u64> {
    let mut bytes = vec![0; PAGE];
    match file.read_at(&mut bytes, number * PAGE as u64) {
        Ok(read) => assert_eq!(read, PAGE),
        Err(_) => return Err(std::io::ErrorKind::Other.into()),
    }
    Ok(version_of(number, &bytes))
}

fn churn(policy: &str, keep: Option<f64>, compressed: Option<f64>, faults: bool) {
    let memory = Memory::with((0..PAGES).flat_map(|number| page_of(number, 1)).collect());
    memory.faults.slow.store(20, Ordering::Relaxed);
    if faults {
        memory.faults.failing_reads.store(13, Ordering::Relaxed);
        memory.faults.failing_writes.store(13, Ordering::Relaxed);
        memory.faults.short.store(17, Ordering::Relaxed);
    }
    let cache = compressing_cache(64, policy, keep, compressed);
    let file = cache.attach(Box::new(memory.clone())).expect("opens");
    // What was acknowledged, and what was begun, of each page. One thread writes a page.
    let acknowledged: Vec<AtomicU64> = (0..PAGES).map(|_| AtomicU64::new(1)).collect();
    let begun: Vec<AtomicU64> = (0..PAGES).map(|_| AtomicU64::new(1)).collect();
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let (file, acknowledged, begun) = (&file, &acknowledged, &begun);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for step in 0..600 {
                    let number = if random.below(2) == 0 { random.below(PAGES) } else { random.below(30) };
                    match random.below(8) {
                        0 if thread < 3 => {
                            let number = number / 3 * 3 % (PAGES - 3) + thread;
                            let version = begun[number as usize].fetch_add(1, Ordering::SeqCst) + 1;
                            if file.write_at(&page_of(number, version), number * PAGE as u64).is_ok() {
                                acknowledged[number as usize].store(version, Ordering::SeqCst);
                            }
                        }
                        1 => {
                            // A run, so that windows of readers and writers meet.
                            let first = step * 5 % (PAGES - 20);
                            (first..first + 20).for_each(|number| {
                                let _ = read(file, number);
                            });
                        }
                        _ => {
                            let least = acknowledged[number as usize].load(Ordering::SeqCst);
                            if let Ok(version) = read(file, number) {
                                let most = begun[number as usize].load(Ordering::SeqCst);
                                assert!((least..=most).contains(&version), "{number}: {version} of {least}..={most}");
                            }
                        }
                    }
                }
            });
        }
    });
    let report = cache.report();
    assert!(report.waits > 0 && report.misses > 0 && report.hits > 0, "{report:?}");
    // More than a batch of free frames would give.
    assert_eq!(report.unpacked > 100 && report.compressed_pages > 0, compressed.is_some(), "{report:?}");
    assert!(report.resident_bytes + report.compressed_bytes <= report.memory_bytes, "{report:?}");
    for every in [&memory.faults.failing_reads, &memory.faults.short] {
        every.store(0, Ordering::Relaxed);
    }
    for number in 0..PAGES {
        let version = read(&file, number).expect("reads");
        assert!(version >= acknowledged[number as usize].load(Ordering::SeqCst));
    }
    drop(file);
    let report = cache.report();
    assert_eq!((report.resident_bytes, report.cached_bytes, report.compressed_pages), (0, 0, 0), "{report:?}");
}

#[test]
fn pages_are_whole_and_never_old() {
    for (policy, keep) in policies().zip([None, Some(0.25)].iter().cycle()) {
        churn(policy, *keep, None, false);
    }
}

#[test]
fn compressed_pages_are_whole_and_never_old() {
    for (policy, keep) in policies().zip([None, Some(0.25)].iter().cycle()) {
        churn(policy, *keep, Some(0.5), false);
    }
}

#[test]
fn pages_stay_whole_on_failing_devices() {
    for (policy, keep) in
        ["mglru", "classic", "freebsd", "arc", "lru"].iter().zip([Some(0.25), None, Some(0.0)].iter().cycle())
    {
        churn(policy, *keep, None, true);
        churn(policy, *keep, Some(0.5), true);
    }
}

/// A page that many want is read once.
#[test]
fn readers_wait_for_a_page_that_is_being_read() {
    let memory = Memory::with(vec![0; 1 << 20]);
    memory.faults.slow.store(100_000, Ordering::Relaxed);
    let cache = cache(64, "mglru", None);
    let file = cache.attach(Box::new(memory.clone())).expect("opens");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| file.read_at(&mut [0; 100], 5 * PAGE as u64).expect("reads"));
        }
    });
    assert_eq!(memory.faults.reads.load(Ordering::Relaxed), 1);
    let report = cache.report();
    assert_eq!((report.misses, report.hits), (1, 7));
}

/// A call of some hundred KiB waits for the device once; what it has read is found without waiting.
#[test]
fn the_pages_of_a_call_are_read_together() {
    let memory = Memory::with((0..1 << 20).map(|at| (at / 7) as u8).collect());
    let cache = cache(2048, "mglru", None);
    let file = cache.attach(Box::new(memory.clone())).expect("opens");
    let mut buffer = vec![0; 200 * PAGE];
    assert_eq!(file.read_found_at(&mut buffer, 100), 0);
    assert_eq!(file.read_at(&mut buffer, 100).expect("reads"), 200 * PAGE);
    assert_eq!(memory.faults.reads.load(Ordering::Relaxed), 1);
    let mut again = vec![0; 300 * PAGE];
    let found = file.read_found_at(&mut again, 100);
    assert_eq!(found, 201 * PAGE - 100, "the last page is there whole, the next is not");
    assert_eq!(again[..buffer.len()], buffer[..]);
    assert_eq!(file.read_found_at(&mut again, 2 << 20), 0, "nothing is beyond the end");
}

/// A read that waits for the device does not block hits.
#[test]
fn hits_do_not_wait_for_misses() {
    let memory = Memory::with(vec![0; 1 << 20]);
    let cache = cache(64, "lru", None);
    let file = cache.attach(Box::new(memory.clone())).expect("opens");
    file.read_at(&mut [0; 1], 0).expect("reads");
    memory.faults.slow.store(500_000, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| file.read_at(&mut [0; 1], 100 * PAGE as u64).expect("reads"));
        while memory.faults.reads.load(Ordering::Relaxed) + cache.report().misses < 3 {
            std::thread::yield_now();
        }
        (0..1000).for_each(|_| {
            file.read_at(&mut [0; 1], 0).expect("reads");
        });
        assert!(!slow.is_finished(), "a thousand hits are faster than half a second");
    });
}
