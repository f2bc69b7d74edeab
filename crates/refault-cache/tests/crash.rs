//! Nothing that was acknowledged is lost. The device keeps writes in its own memory, and may lose, reorder or tear them
//! in a crash. It may refuse writes, run full, and fail to make them durable once, losing some on the way.
//!
//! After every operation the power is cut in thought: each byte that the device then has must be one that was there at
//! the last successful sync, or that was written since.

use crate::common;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::device::Device;
use crate::common::*;
use refault_cache::{CacheOptions, CachedFile, PageCache, WriteBack};

const SECTOR: usize = 512;
const PAGES: usize = 96;

/// What each byte may be after a crash.
struct Reference {
    /// What a reader sees.
    now: Vec<u8>,
    /// What was there at the last successful sync.
    synced: Vec<u8>,
    /// What was written since then, and where.
    since: Vec<(usize, Vec<u8>)>,
    /// A sync has failed and none has succeeded since: what had left memory may be gone, and a reader may see that.
    failed: bool,
}

impl Reference {
    fn write(&mut self, at: usize, bytes: &[u8]) {
        let size = self.now.len().max(at + bytes.len());
        self.now.resize(size, 0);
        self.now[at..at + bytes.len()].copy_from_slice(bytes);
        self.since.push((at, bytes.to_vec()));
    }

    fn sync(&mut self) {
        self.synced.clone_from(&self.now);
        self.since.clear();
        self.failed = false;
    }

    /// What a reader sees from a byte on.
    fn read(&self, at: usize, seen: &[u8]) {
        if self.failed {
            seen.iter()
                .zip(at..)
                .for_each(|(byte, at)| assert!(self.may_be(at, *byte), "byte {at}: {byte} was never there"));
        } else {
            assert!(*seen == self.now[at..at + seen.len()], "an acknowledged write is gone");
        }
    }

    /// Whether a byte was there at the last sync or since.
    fn may_be(&self, at: usize, byte: u8) -> bool {
        self.synced.get(at).copied().unwrap_or(0) == byte
            || self.since.iter().any(|(start, bytes)| at >= *start && bytes.get(at - start) == Some(&byte))
    }

    fn check(&self, image: &[u8]) {
        for (number, sector) in image.chunks(SECTOR).enumerate() {
            let start = number * SECTOR;
            if self.synced.get(start..start + sector.len()) == Some(sector) {
                continue;
            }
            for (place, byte) in sector.iter().enumerate() {
                let at = start + place;
                assert!(self.may_be(at, *byte), "byte {at}: {byte} was never there since the last sync");
            }
        }
    }
}

fn open(device: &Device, policy: &str, write_back: Option<WriteBack>) -> (PageCache, CachedFile) {
    open_compressing(device, policy, write_back, None)
}

/// 64 pages as they are, and `compressed` of all memory for others.
fn open_compressing(
    device: &Device,
    policy: &str,
    write_back: Option<WriteBack>,
    compressed: Option<f64>,
) -> (PageCache, CachedFile) {
    let memory = ((64 * PAGE) as f64 / (1.0 - compressed.unwrap_or(0.0))).ceil() as u64;
    let options = CacheOptions { memory, policy: policy.into(), write_back, compressed, ..CacheOptions::default() };
    let cache = PageCache::new(&options).expect("a cache");
    let file = cache.attach(Box::new(device.clone())).expect("opens");
    (cache, file)
}

fn device(seed: u64) -> Device {
    common::device::device(seed, PAGES)
}

fn write_back() -> Option<WriteBack> {
    Some(WriteBack { background_ratio: 0.2, ratio: 0.4, ..WriteBack::default() })
}

/// What a history came to.
#[derive(Debug, Default)]
struct Outcome {
    /// Pages that were unpacked.
    unpacked: u64,
    /// Syncs that failed and were made good by the next.
    made_good: u64,
    /// Times that a sync said that something is lost for good.
    lost: u64,
}

/// One history; the power is cut after each operation.
fn history(seed: u64, operations: usize, write_back: Option<WriteBack>, compressed: Option<f64>) -> Outcome {
    let mut outcome = Outcome::default();
    let through = write_back.is_none();
    let policy = ["mglru", "lru", "s3fifo", "classic", "adaptive", "freebsd"][seed as usize % 6];
    let device = device(seed);
    let (cache, file) = open_compressing(&device, policy, write_back, compressed);
    let contents = device.0.lock().unwrap().current.clone();
    let mut reference = Reference { now: contents.clone(), synced: contents, since: Vec::new(), failed: false };
    let mut random = Random::new(seed);
    for _ in 0..operations {
        match random.below(20) {
            0..12 => {
                let at = random.below((PAGES * PAGE) as u64) as usize;
                let at = if random.below(3) == 0 { at / PAGE * PAGE } else { at };
                let length = [1, 100, PAGE, 3 * PAGE, 20 * PAGE][random.below(5) as usize];
                let bytes = vec![random.next() as u8; length];
                let went_well = file.write_at(&bytes, at as u64).is_ok();
                reference.write(at, &bytes);
                if !went_well {
                    // Refused: each byte is old or new, and a reader says which.
                    let mut seen = vec![0; reference.now.len()];
                    let read = file
                        .read_at(&mut seen, 0)
                        .unwrap_or_else(|error| panic!("{policy} {seed}: {error} {:?}", cache.report()));
                    reference.now.truncate(read);
                    let end = (at + length).min(read);
                    reference.now[at.min(end)..end].copy_from_slice(&seen[at.min(end)..end]);
                    reference.read(0, &seen[..read]);
                }
            }
            12..14 => {
                let length = device.0.lock().unwrap().current.len() as u64;
                let at = random.below(length);
                let mut seen = vec![0; 5000];
                let read = file
                    .read_at(&mut seen, at)
                    .unwrap_or_else(|error| panic!("{policy} {seed}: {error} {:?}", cache.report()));
                reference.read(at as usize, &seen[..read]);
            }
            14 => device.0.lock().unwrap().fail_sync = true,
            15 => {
                let mut medium = device.0.lock().unwrap();
                medium.fail_writes = !medium.fail_writes;
            }
            kind => {
                let sync = || if kind == 16 { file.sync_range(0..u64::MAX) } else { file.sync() };
                if sync().is_ok() {
                    reference.sync();
                } else if through && !device.0.lock().unwrap().fail_writes {
                    reference.failed = true;
                    match sync() {
                        Ok(()) => outcome.made_good += 1,
                        Err(error) => {
                            assert!(error.to_string().contains("had left memory"), "{error}");
                            outcome.lost += 1;
                            assert!(sync().is_err(), "no write has mended it");
                            mend(&file, &mut reference, random.below(2) == 0);
                            sync().expect("a caller that goes on can");
                        }
                    }
                    reference.sync();
                } else {
                    reference.failed = through;
                }
            }
        }
        let image = device.0.lock().unwrap().crash();
        reference.check(&image);
    }
    // The device recovers: one sync may still tell of what went wrong, the next one makes everything durable.
    device.0.lock().unwrap().fail_writes = false;
    if file.sync().is_err() && file.sync().is_err() {
        assert!(through, "the device is well again");
        mend(&file, &mut reference, true);
        file.sync().expect("the device is well again");
    }
    reference.sync();
    let image = device.0.lock().unwrap().crash();
    reference.check(&image);
    assert!(image == reference.now, "what was acknowledged is there");
    Outcome { unpacked: cache.report().unpacked, ..outcome }
}

/// What the device has lost is written anew, or the caller goes on with what is there.
fn mend(file: &CachedFile, reference: &mut Reference, anew: bool) {
    if anew {
        let all = reference.now.clone();
        reference.write(0, &all);
        file.write_at(&all, 0).expect("the device is well");
    } else {
        file.reload().expect("the device is well");
        let mut seen = vec![0; reference.now.len()];
        assert_eq!(file.read_at(&mut seen, 0).expect("reads"), seen.len());
        reference.read(0, &seen);
        reference.now = seen;
    }
}

/// Of a history.
const OPERATIONS: usize = 100;

/// `REFAULT_CRASH_POINTS` asks for more than the usual number.
#[test]
fn what_was_synced_survives_a_crash_at_any_point() {
    let points: usize = std::env::var("REFAULT_CRASH_POINTS").map_or(10_000, |text| text.parse().expect("a number"));
    for seed in 1..=points.div_ceil(OPERATIONS) as u64 {
        assert_eq!(
            history(seed, OPERATIONS, write_back(), None).unpacked,
            0,
            "nothing is compressed unless that is asked for"
        );
    }
}

/// The same above the compressed tier.
#[test]
fn what_was_synced_survives_above_compressed_pages() {
    let unpacked: u64 = (1..=48).map(|seed| history(seed, OPERATIONS, write_back(), Some(0.25)).unpacked).sum();
    assert!(unpacked > 10_000, "{unpacked} pages: the tier took no part");
}

/// Without write-back pages leave memory before they are durable. A sync that cannot make good what one before has
/// failed to do says so as long as that is true. No sync says otherwise.
#[test]
fn what_a_device_loses_of_writes_that_went_through_is_made_good_or_told() {
    let (mut made_good, mut lost) = (0, 0);
    let points: usize = std::env::var("REFAULT_CRASH_POINTS").map_or(12_000, |text| text.parse().expect("a number"));
    for seed in 1..=points.div_ceil(OPERATIONS) as u64 {
        let compressed = (seed % 4 == 0).then_some(0.25);
        let outcome = history(seed, OPERATIONS, None, compressed);
        (made_good, lost) = (made_good + outcome.made_good, lost + outcome.lost);
    }
    assert!(made_good > 20 && lost > 20, "{made_good} {lost}: one of the two was not tried");
}

#[test]
fn writes_that_go_through_survive_as_well() {
    for (seed, compressed) in (1..10).flat_map(|seed| [(seed, None), (seed, Some(0.25))]) {
        let device = device(seed);
        let (cache, file) = open_compressing(&device, "lru", None, compressed);
        let mut random = Random::new(seed);
        for _ in 0..50 {
            let at = random.below((PAGES * PAGE) as u64);
            file.write_at(&vec![random.next() as u8; 3000], at).expect("writes");
            file.sync().expect("syncs");
            let mut seen = vec![0; device.0.lock().unwrap().current.len()];
            file.read_at(&mut seen, 0).expect("reads");
            let image = device.0.lock().unwrap().crash();
            assert!(image == seen);
        }
        assert_eq!(cache.report().unpacked > 0, compressed.is_some());
    }
}

#[test]
fn a_sync_that_fails_once_says_so_and_the_next_one_has_everything() {
    let device = device(1);
    let (cache, file) = open(&device, "mglru", write_back());
    file.write_at(&[1; 3 * PAGE], 0).expect("stays in memory");
    assert_eq!(cache.report().dirty_bytes, 3 * PAGE as u64);
    assert_eq!(device.0.lock().unwrap().current[0], 0, "nothing was written yet");
    device.0.lock().unwrap().fail_sync = true;
    let error = file.sync().expect_err("the device fails");
    assert_eq!(error.raw_os_error(), Some(5));
    assert_eq!(cache.report().dirty_bytes, 3 * PAGE as u64, "it has to be written again");
    file.sync().expect("the device is well");
    assert_eq!(cache.report().dirty_bytes, 0);
    assert_eq!(device.0.lock().unwrap().durable[..3 * PAGE], [1; 3 * PAGE]);
}

/// Each of several writers hears of a failure that concerns what it wrote, unless it was made good before.
#[test]
fn every_writer_that_syncs_has_its_data_or_an_error() {
    for write_back in [write_back(), None] {
        let device = device(2);
        let (_cache, file) = open(&device, "lru", write_back);
        for round in 0..50u8 {
            device.0.lock().unwrap().fail_sync = round % 2 == 0;
            std::thread::scope(|scope| {
                for writer in 0..3u8 {
                    let (file, device) = (&file, &device);
                    scope.spawn(move || {
                        let at = usize::from(writer) * 5 * PAGE;
                        let bytes = [round ^ writer; 2 * PAGE];
                        file.write_at(&bytes, at as u64).expect("stays in memory, or goes through");
                        if file.sync().is_ok() {
                            let medium = device.0.lock().unwrap();
                            assert_eq!(medium.durable[at..at + 2 * PAGE], bytes, "acknowledged, and lost");
                        }
                    });
                }
            });
        }
    }
}

#[test]
fn a_full_device_loses_nothing_and_stops_writers_in_words() {
    let device = device(3);
    let (cache, file) = open(&device, "lru", write_back());
    device.0.lock().unwrap().fail_writes = true;
    let mut accepted = Vec::new();
    let mut refused = 0;
    for page in 0..PAGES {
        match file.write_at(&[page as u8 + 1; PAGE], (page * PAGE) as u64) {
            Ok(()) => accepted.push(page),
            Err(error) => {
                assert!(error.to_string().contains("No space left on device"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && !accepted.is_empty(), "memory for dirty pages is bounded");
    assert!(cache.report().dirty_bytes <= cache.report().memory_bytes / 2);
    device.0.lock().unwrap().fail_writes = false;
    // What was refused in the background is told once.
    if file.sync().is_err() {
        file.sync().expect("there is room again");
    }
    let medium = device.0.lock().unwrap();
    for page in accepted {
        assert!(
            medium.durable[page * PAGE..][..PAGE].iter().all(|byte| *byte == page as u8 + 1),
            "page {page} is lost"
        );
    }
}

#[test]
fn what_is_dirty_is_written_in_time_without_being_asked_for() {
    let device = device(4);
    let expire = Duration::from_millis(20);
    let (cache, file) = open(&device, "lru", Some(WriteBack { expire, ..WriteBack::default() }));
    file.write_at(&[9; PAGE], 0).expect("stays in memory");
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while device.0.lock().unwrap().durable[0] != 9 {
        assert!(std::time::Instant::now() < deadline, "the cache does not write what has expired");
        std::thread::sleep(Duration::from_millis(5));
    }
    while cache.report().dirty_bytes != 0 {
        assert!(std::time::Instant::now() < deadline, "{:?}", cache.report());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(cache.report().written_back, 1);
}

#[test]
fn a_file_can_write_through_beside_others_that_do_not() {
    let (first, second) = (device(5), device(6));
    let (cache, file) = open(&first, "lru", write_back());
    let other = cache.attach(Box::new(second.clone())).expect("opens");
    other.set_write_through(true);
    file.write_at(&[1; PAGE], 0).expect("stays in memory");
    other.write_at(&[1; PAGE], 0).expect("goes through");
    assert_eq!((first.0.lock().unwrap().current[0], second.0.lock().unwrap().current[0]), (0, 1));
    drop(file);
    assert_eq!(first.0.lock().unwrap().current[..PAGE], [1; PAGE], "a file that is closed is written");
}

/// Many writers beyond what may be dirty, readers, evictions and changes of length: in the end the device has what a
/// reader sees.
#[test]
fn writers_that_outrun_the_device_are_slowed_and_lose_nothing() {
    for policy in ["mglru", "lru", "freebsd", "s3fifo"] {
        let memory = Memory::with(vec![0; 400 * PAGE]);
        memory.faults.slow.store(50, Ordering::Relaxed);
        let options = CacheOptions {
            memory: 64 * PAGE as u64,
            policy: policy.into(),
            write_back: write_back(),
            ..CacheOptions::default()
        };
        let cache = PageCache::new(&options).expect("a cache");
        let file = cache.attach(Box::new(memory.clone())).expect("opens");
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let file = &file;
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    for step in 0..400u64 {
                        // Pages of its own.
                        let page = random.below(100) * 4 + thread;
                        let bytes = [step as u8; 2000];
                        file.write_at(&bytes, page * PAGE as u64 + 1000).expect("writes");
                        let mut seen = [0; 2000];
                        file.read_at(&mut seen, page * PAGE as u64 + 1000).expect("reads");
                        assert_eq!(seen, bytes, "{policy}: a write is gone");
                        match random.below(40) {
                            0 => file.sync().expect("syncs"),
                            1 => file.evict(0..400 * PAGE as u64),
                            2 => file.sync_range(page * PAGE as u64..(page + 1) * PAGE as u64).expect("syncs"),
                            _ => {}
                        }
                    }
                });
            }
        });
        file.sync().expect("syncs");
        let mut seen = vec![0; 400 * PAGE];
        file.read_at(&mut seen, 0).expect("reads");
        assert!(*memory.bytes.lock().unwrap() == seen, "{policy}");
        let report = cache.report();
        assert!(report.written_back > 0 && report.dirty_bytes == 0, "{report:?}");
    }
}
