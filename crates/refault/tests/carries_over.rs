//! "A result on a trace carries over" for the page cache: the same reads and writes of whole pages through the replay
//! and through a live [`PageCache`] make the same hits and misses. They agree access by access, and the counters agree
//! too. The test covers every policy that both run but three that depend on the number of pages.
//!
//! The cache is the one that users have: its own engine, page numbers and frames, over a file in memory that counts
//! what it is asked for. One thread and no readahead, which the replay does not have.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use refault::cache::{Backing, CacheOptions, PageCache};
use refault::policy::registry::{self, BuildContext, FrontEnd};
use refault::sim::flat_memory::Swap;
use refault::sim::{LayoutBuilder, Limits, named};
use refault::trace::{Entry, Kind};
use refault_testing::Random;

const PAGE: usize = 4096;
const PAGES: u64 = 1800;
const CAPACITY: u64 = 700;
/// These depend on how many pages there are, which the replay knows before the first access and the cache learns as the
/// file is read: the first two look at accessed bits a share of the page numbers at a time. Where there are page
/// tables, the share is of these. The third has a sketch of that size.
const DEPEND_ON_PAGES: [&str; 3] = ["lrfu", "adaptive-mapped", "wtinylfu"];

/// A file in memory. Clones are the same file.
#[derive(Clone)]
struct Bytes {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Pages read.
    reads: Arc<AtomicU64>,
}

impl Backing for Bytes {
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let bytes = self.bytes.lock().expect("no test panics under it");
        let mut at = offset as usize;
        for slice in into {
            let length = slice.len();
            slice.copy_from_slice(&bytes[at..at + length]);
            at += length;
            self.reads.fetch_add((length / PAGE) as u64, Ordering::Relaxed);
        }
        Ok(at - offset as usize)
    }

    fn write(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let mut bytes = self.bytes.lock().expect("no test panics under it");
        let mut at = offset as usize;
        for slice in from {
            bytes[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
        Ok(at - offset as usize)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(PAGES * PAGE as u64)
    }

    fn set_len(&self, _bytes: u64) -> io::Result<()> {
        unreachable!("nothing is written beyond the end")
    }
}

/// All pages in order, so that numbers of pages agree; then hot pages, cold pages, phases and a scan that does not fit.
fn accesses() -> Vec<(u64, bool)> {
    let mut random = Random::new(11);
    let mut random = |below| random.below(below);
    let mut accesses: Vec<(u64, bool)> = (0..PAGES).map(|page| (page, false)).collect();
    for phase in 0..2 {
        for _ in 0..6_000 {
            let page = match random(4) {
                0 => random(PAGES),
                1 => phase * 500 + random(400),
                _ => phase * 900 + random(100),
            };
            accesses.push((page, random(4) == 0));
        }
        accesses.extend((0..3000).map(|n| (300 + n % 1000, false)));
    }
    accesses
}

#[test]
fn replay_and_page_cache_agree_on_every_access_and_on_the_counters() {
    let accesses = accesses();
    let entries: Vec<Entry> = accesses.iter().map(|(page, write)| Entry::new(*page, Kind::Fd, *write)).collect();
    let mut builder = LayoutBuilder::new();
    builder.observe(&entries);
    let layout = builder.finish().expect("few pages");
    let mut block = Vec::new();
    layout.translate(&entries, &mut block);
    let policies = registry::all(FrontEnd::PageCache);
    for spec in policies.filter(|spec| !DEPEND_ON_PAGES.contains(&spec.entry.name)) {
        let limits = Limits { memory_pages: CAPACITY as usize, swap: Swap { pages: 0, synchronous: true } };
        let mut replay = named::replay(&spec, &BuildContext::default(), &layout, limits);
        let options = CacheOptions {
            memory: CAPACITY * PAGE as u64,
            policy: spec.label.clone(),
            read_ahead: Some(0),
            ..CacheOptions::default()
        };
        let cache = PageCache::new(&options).expect("a cache");
        let below =
            Bytes { bytes: Arc::new(Mutex::new(vec![0; PAGES as usize * PAGE])), reads: Arc::new(AtomicU64::new(0)) };
        let file = cache.attach(Box::new(below.clone())).expect("a file");
        let mut written = vec![0; PAGES as usize];
        let mut buffer = vec![0; PAGE];
        for (number, (access, (page, write))) in block.iter().zip(&accesses).enumerate() {
            let (misses, reads) = (replay.outcome().counters.file_reads, below.reads.load(Ordering::Relaxed));
            replay.run(std::slice::from_ref(access));
            let what = format!("{} at access {number}, page {page}", spec.label);
            if *write {
                written[*page as usize] = number as u8;
                buffer.fill(number as u8);
                file.write_at(&buffer, page * PAGE as u64).expect("written");
            } else {
                file.read_at(&mut buffer, page * PAGE as u64).expect("read");
                assert!(buffer.iter().all(|byte| *byte == written[*page as usize]), "contents: {what}");
            }
            let (missed, read) = (replay.outcome().counters.file_reads - misses, below.reads.load(Ordering::Relaxed));
            assert_eq!(read - reads, missed, "a miss or none: {what}");
            assert_eq!(
                cache.report().resident_bytes,
                replay.memory().resident() as u64 * PAGE as u64,
                "number of victims: {what}"
            );
        }
        let (outcome, report) = (replay.outcome(), cache.report());
        assert!(outcome.misses > 3000, "{}: the test must evict", spec.label);
        assert_eq!(report.counters, outcome.counters, "{}", spec.label);
    }
}
