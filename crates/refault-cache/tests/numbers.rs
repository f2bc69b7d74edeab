//! Page numbers that are used again. Pages of files that are much larger than what records may take are whole, and
//! never another's. They are as they were written last, in memory and on the device.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{PAGE, Random, policies};
use refault_cache::{Backing, CacheOptions, CachedFile, PageCache, WriteBack};

/// 256 frames.
const MEMORY: u64 = 1 << 20;
/// Many times the numbers that a cache of that size gives.
const PAGES: u64 = 1 << 20;

/// A page that holds its number and version in every word.
fn page_of(number: u64, version: u64) -> [u8; PAGE] {
    let mut page = [0; PAGE];
    page.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&(number << 32 | version).to_le_bytes()));
    page
}

fn version_of(number: u64, page: &[u8; PAGE]) -> u64 {
    let version = u64::from_le_bytes(page[..8].try_into().expect("8 bytes")) & u64::from(u32::MAX);
    assert!(*page == page_of(number, version), "page {number} is torn or another's");
    version
}

/// A file of pages of version 0, but for those that were written; clones are the same. A sync that fails loses what was
/// written since the last one that succeeded.
#[derive(Clone, Default)]
struct Versions {
    durable: Arc<Mutex<HashMap<u64, u64>>>,
    written: Arc<Mutex<HashMap<u64, u64>>>,
    fails: Arc<AtomicBool>,
}

impl Versions {
    fn version(&self, number: u64) -> u64 {
        let of = |pages: &Mutex<HashMap<u64, u64>>| pages.lock().unwrap().get(&number).copied();
        of(&self.written).or_else(|| of(&self.durable)).unwrap_or(0)
    }
}

impl Backing for Versions {
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        for (number, slice) in (offset / PAGE as u64..).zip(into.iter_mut()) {
            let page = page_of(number, self.version(number));
            slice.copy_from_slice(&page);
        }
        Ok(into.iter().map(|slice| slice.len()).sum())
    }
    fn write(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        for (number, slice) in (offset / PAGE as u64..).zip(from) {
            let version = version_of(number, (&**slice).try_into().expect("whole pages"));
            self.written.lock().unwrap().insert(number, version);
        }
        Ok(from.iter().map(|slice| slice.len()).sum())
    }
    fn sync(&self) -> io::Result<()> {
        let written = std::mem::take(&mut *self.written.lock().unwrap());
        if self.fails.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.durable.lock().unwrap().extend(written);
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(PAGES * PAGE as u64)
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

fn read(file: &CachedFile, number: u64) -> u64 {
    let mut page = [0; PAGE];
    assert_eq!(file.read_at(&mut page, number * PAGE as u64).expect("reads"), PAGE);
    version_of(number, &page)
}

fn write(file: &CachedFile, number: u64, version: u64) {
    file.write_at(&page_of(number, version), number * PAGE as u64).expect("writes");
}

/// Reads 30,000 pages here and there: enough that all numbers are used again.
fn use_all_numbers_again(file: &CachedFile, seed: u64) {
    let mut random = Random::new(seed);
    for _ in 0..30_000 {
        read(file, random.below(PAGES));
    }
}

fn options(policy: &str) -> CacheOptions {
    CacheOptions { memory: MEMORY, policy: policy.into(), ..CacheOptions::default() }
}

#[test]
fn every_policy_goes_on_with_numbers_that_are_used_again() {
    for policy in policies().map(str::to_owned).chain(["adaptive{cyclic=yes}".into(), "mglru{cyclic=yes}".into()]) {
        let cache = PageCache::new(&options(&policy)).expect("a cache");
        let [first, second] = [(); 2].map(|()| cache.attach(Box::new(Versions::default())).expect("opens"));
        let mut random = Random::new(3);
        let mut versions = [HashMap::new(), HashMap::new()];
        let mut metadata = 0;
        for step in 0..40_000u64 {
            let which = random.below(2) as usize;
            let file = [&first, &second][which];
            // A hot set, scans, and anywhere.
            let number = match random.below(8) {
                0 => random.below(100),
                1 => step % 4000,
                _ => random.below(PAGES),
            };
            match random.below(16) {
                0 => {
                    write(file, number, step);
                    versions[which].insert(number, step);
                }
                1 => file.evict(number * PAGE as u64..(number + 9) * PAGE as u64),
                _ => {
                    let expected = versions[which].get(&number).copied().unwrap_or(0);
                    assert_eq!(read(file, number), expected, "{policy}, step {step}, page {number}");
                }
            }
            if step == 20_000 {
                metadata = cache.report().metadata_bytes;
            }
        }
        let report = cache.report();
        // What was written through and not synced is listed, of twice as many pages as there are frames at most.
        assert!(report.metadata_bytes < metadata + metadata / 4, "{policy}: {metadata} bytes before, {report:?}");
        assert!(report.memory_bytes >= MEMORY * 3 / 4, "{policy}: {report:?}");
        // Some policies evict a quarter of so few frames at once.
        let used = report.resident_bytes + report.cached_bytes;
        assert!(used > report.memory_bytes / 2, "{policy}: {report:?}");
        drop(first);
        // Numbers of a closed file are another's.
        let third = cache.attach(Box::new(Versions::default())).expect("opens");
        use_all_numbers_again(&third, 4);
        assert_eq!(read(&second, 77), versions[1].get(&77).copied().unwrap_or(0));
    }
}

/// Readers without the lock, writers, and pages that come and go under other numbers.
#[test]
fn threads_never_find_another_page() {
    let lru = || options("lru");
    let kinds = [
        lru(),
        options("mglru"),
        CacheOptions { compressed: Some(0.25), ..lru() },
        CacheOptions { keep_evicted: Some(0.1), ..lru() },
        CacheOptions { write_back: Some(WriteBack::default()), ..options("s3fifo") },
    ];
    for options in kinds {
        let cache = PageCache::new(&options).expect("a cache");
        let file = cache.attach(Box::new(Versions::default())).expect("opens");
        const HOT: u64 = 64;
        let acknowledged: Vec<AtomicU64> = (0..HOT).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (file, acknowledged) = (&file, &acknowledged);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    for step in 1..20_000u64 {
                        // Hot pages lie far apart, so that each has a group of its own.
                        let hot = random.below(HOT);
                        match random.below(8) {
                            0..4 => drop(read(file, random.below(PAGES))),
                            4 => {
                                let own = hot / 4 * 4 + thread;
                                write(file, own * 999, step);
                                acknowledged[own as usize].store(step, Ordering::SeqCst);
                            }
                            5 => {
                                let pin =
                                    file.pin(hot * 999 * PAGE as u64..(hot * 999 + 1) * PAGE as u64).expect("pins");
                                version_of(hot * 999, pin.as_slice().expect("a page").try_into().expect("whole"));
                            }
                            6 if step % 64 == 0 => file.evict(hot * 999 * PAGE as u64..(hot + 9) * 999 * PAGE as u64),
                            _ => {
                                let least = acknowledged[hot as usize].load(Ordering::SeqCst);
                                let version = read(file, hot * 999);
                                assert!(version >= least, "page {hot}: {version}, {least} was acknowledged");
                            }
                        }
                    }
                });
            }
        });
        for (hot, version) in acknowledged.iter().enumerate() {
            assert_eq!(read(&file, hot as u64 * 999), version.load(Ordering::SeqCst));
        }
    }
}

/// What was written through under a number that is another page's by now is lost with the device. The other page is not
/// taken for it.
#[test]
fn a_failed_sync_finds_pages_whose_numbers_are_used_again() {
    let below = Versions::default();
    let cache = PageCache::new(&options("lru")).expect("a cache");
    let file = cache.attach(Box::new(below.clone())).expect("opens");
    let mut last = BTreeMap::new();
    let mut random = Random::new(9);
    for version in 1..4 {
        for _ in 0..120 {
            let number = random.below(PAGES);
            write(&file, number, version);
            last.insert(number, version);
        }
        use_all_numbers_again(&file, version);
    }
    // Some that were lost by then are in memory as they were read, some as they were written.
    let some: Vec<u64> = last.keys().copied().step_by(7).collect();
    some.iter().for_each(|number| assert_eq!(read(&file, *number), last[number]));
    for number in random_numbers(&mut random, 40) {
        write(&file, number, 9);
        last.insert(number, 9);
    }
    below.fails.store(true, Ordering::SeqCst);
    file.sync().expect_err("the device fails");
    below.fails.store(false, Ordering::SeqCst);
    let error = file.sync().expect_err("most pages had left memory").to_string();
    assert!(error.contains("write it anew"), "{error}");
    let missing =
        |below: &Versions| last.iter().filter(|(number, version)| below.version(**number) != **version).count();
    let lost = missing(&below);
    assert!((300..=360).contains(&lost), "{lost}: those that were in memory as they were written are there again");
    // What readers see is what the device has.
    for number in last.keys() {
        assert_eq!(read(&file, *number), below.version(*number), "page {number}");
    }
    last.iter().for_each(|(number, version)| write(&file, *number, *version));
    file.sync().expect("all was written anew");
    assert_eq!(missing(&below), 0);
    assert!(below.written.lock().unwrap().is_empty(), "and is durable");
}

/// What finds no room asks for no numbers: it would cost others theirs, and the cache what it knows of them.
#[test]
fn a_prefetch_without_room_takes_no_numbers() {
    let kinds = [options("lru"), options("adaptive"), CacheOptions { keep_evicted: Some(0.1), ..options("mglru") }];
    for options in kinds {
        let cache = PageCache::new(&options).expect("a cache");
        let file = cache.attach(Box::new(Versions::default())).expect("opens");
        let mut pins = Vec::new();
        // Nothing can go, and there is no frame for more.
        while let Ok(pin) = file.pin(pins.len() as u64 * PAGE as u64..(pins.len() as u64 + 1) * PAGE as u64) {
            pins.push(pin);
        }
        let before = cache.report();
        for start in (4096..PAGES).step_by(4096) {
            file.prefetch(start * PAGE as u64..(start + 16) * PAGE as u64);
        }
        let after = cache.report();
        assert_eq!(
            after.metadata_bytes, before.metadata_bytes,
            "{}: records of pages that did not come",
            options.policy
        );
        assert_eq!((after.read_ahead, after.memory_bytes), (before.read_ahead, before.memory_bytes));
        // Where there is room again, they come.
        drop(pins);
        file.prefetch(4096 * PAGE as u64..4112 * PAGE as u64);
        (4096..4112).for_each(|number| assert_eq!(read(&file, number), 0));
        assert_eq!(cache.report().read_ahead, before.read_ahead + 16);
    }
}

fn random_numbers(random: &mut Random, count: usize) -> Vec<u64> {
    (0..count).map(|_| random.below(PAGES)).collect()
}
