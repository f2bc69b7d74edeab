//! `cyclic=yes` in the cache, whose page numbers do not follow the places of pages in their files.

use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{MadeUp, Memory, PAGE, Random};
use refault_cache::{CacheOptions, CachedFile, PageCache};

/// 1024 frames.
const MEMORY: u64 = 4 << 20;
const FRAMES: u64 = MEMORY / PAGE as u64;

/// What is done before a scan.
type Before = dyn Fn(&PageCache, &CachedFile);

fn options(policy: &str, read_ahead: u32) -> CacheOptions {
    CacheOptions { memory: MEMORY, policy: policy.into(), read_ahead: Some(read_ahead), ..CacheOptions::default() }
}

fn open(cache: &PageCache, pages: u64) -> CachedFile {
    cache.attach(Box::new(Memory::with(vec![0; pages as usize * PAGE]))).expect("opens")
}

fn read(file: &CachedFile, index: u64) {
    file.read_at(&mut [0; 8], index * PAGE as u64).expect("reads");
}

/// Reads of `passes` whole passes over a file that had to ask the device.
fn misses(cache: &PageCache, file: &CachedFile, passes: u64) -> u64 {
    let pages = file.len() / PAGE as u64;
    let before = cache.report().counters.file_reads;
    (0..passes).flat_map(|_| 0..pages).for_each(|index| read(file, index));
    cache.report().counters.file_reads - before
}

/// A file of a half more than memory, whose pages got their numbers in whatever order.
fn scanned(policy: &str, before: &Before) -> (u64, u64) {
    let cache = PageCache::new(&options(policy, 0)).expect("a cache");
    let file = open(&cache, FRAMES * 3 / 2);
    before(&cache, &file);
    // Until it is found.
    misses(&cache, &file, 12);
    (misses(&cache, &file, 10), 10 * file.len() / PAGE as u64)
}

fn at_random(file: &CachedFile, seed: u64) {
    let mut random = Random::new(seed);
    let pages = file.len() / PAGE as u64;
    (0..4 * pages).for_each(|_| read(file, random.below(pages)));
}

/// Room for all pages of a window is made before the first of them is there; each counts as one access all the same.
#[test]
fn the_adaptive_policy_learns_of_a_loop_whose_pages_are_read_ahead() {
    let read = |policy| {
        let cache = PageCache::new(&options(policy, 64)).expect("a cache");
        let file = open(&cache, FRAMES * 3 / 2);
        misses(&cache, &file, 12);
        (misses(&cache, &file, 10), 10 * file.len() / PAGE as u64)
    };
    let (lru, all) = read("lru");
    assert!(lru >= all, "{lru} of {all}");
    let (adaptive, _) = read("adaptive");
    assert!(adaptive < all * 3 / 4, "{adaptive} of {all}");
}

/// What was read ahead stays until its reader comes, although it is what a loop lets pass: or windows shrink, and each
/// page is a read of its own. Windows may be longer than the share of memory that passes through otherwise, and longer
/// than a thousand pages.
#[test]
fn the_adaptive_policy_keeps_what_is_read_ahead_of_a_loop() {
    for (memory, read_ahead, pages) in [(1 << 20, 32, 1011), (64 << 20, 2048, 32 << 10)] {
        let options = CacheOptions { memory, ..options("adaptive", read_ahead) };
        let cache = PageCache::new(&options).expect("a cache");
        let reads = Arc::new(AtomicU64::new(0));
        let counted = reads.clone();
        let fill = move |_: &mut [IoSliceMut<'_>], _| {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let file = cache.attach(Box::new(MadeUp { pages, fill })).expect("opens");
        misses(&cache, &file, 12);
        reads.store(0, Ordering::Relaxed);
        let (missed, asked) = (misses(&cache, &file, 10), 10 * pages);
        let reads = reads.load(Ordering::Relaxed);
        assert!(missed < asked * 9 / 10, "{missed} of {asked} pages, memory {memory}");
        assert!(reads * 2 < missed, "{reads} reads of {missed} pages, memory {memory}");
    }
}

#[test]
fn a_scan_is_found_whatever_numbers_its_pages_have() {
    for name in ["lru", "clock", "arc", "wtinylfu", "mglru", "adaptive"] {
        let policy = format!("{name}{{cyclic=yes}}");
        let orders: [(&str, &Before); 3] = [
            ("as they lie", &|_, _| {}),
            ("at random", &|_, file| at_random(file, 1)),
            // Numbers of other files' pages before.
            ("used again", &|cache, _| at_random(&open(cache, 4 * FRAMES), 2)),
        ];
        for (order, before) in orders {
            let (missed, asked) = scanned(&policy, before);
            // A third does not fit, and some room is left alone.
            assert!(missed < asked * 6 / 10, "{policy}, {order}: {missed} of {asked}");
        }
    }
    let (missed, asked) = scanned("lru", &|_, _| {});
    assert_eq!(missed, asked, "without cyclic=yes none stays");
}

/// Of what waits for its reader nothing goes, however long the windows are and in whatever order they come in.
#[test]
fn a_long_window_is_no_part_of_what_passes_through() {
    const PAGES: u64 = 16 * FRAMES;
    let options = CacheOptions { memory: 8 * MEMORY, ..options("lru{cyclic=yes}", 1024) };
    let cache = PageCache::new(&options).expect("a cache");
    let file = open(&cache, PAGES);
    // All of memory stays but two windows, and those that the scan stands on.
    let stays = 8 * FRAMES - 2 * 1024 - 128;
    let most = PAGES - stays * 9 / 10;
    let passes: Vec<u64> = (0..24).map(|_| misses(&cache, &file, 1)).collect();
    assert!(passes[14..].iter().sum::<u64>() <= 10 * most, "{most} at most of {PAGES}: {passes:?}");
}

/// Windows that are read ahead come in out of order.
#[test]
fn a_scan_is_found_although_it_is_read_ahead() {
    let cache = PageCache::new(&options("lru{cyclic=yes}", 512)).expect("a cache");
    let file = open(&cache, FRAMES * 3 / 2);
    at_random(&file, 1);
    misses(&cache, &file, 12);
    let (missed, asked) = (misses(&cache, &file, 10), 10 * file.len() / PAGE as u64);
    assert!(missed < asked * 6 / 10, "{missed} of {asked}");
}

/// Reads zeros. Counts the pages that were asked for, the pieces of memory for them, and the pages whose memory lies
/// before that of their predecessor.
fn count(counts: &[AtomicU64; 3], into: &mut [IoSliceMut<'_>]) {
    let pairs = |holds: fn(&[IoSliceMut<'_>]) -> bool| into.windows(2).filter(|pair| holds(pair)).count() as u64;
    let follows = pairs(|pair| pair[0].as_ptr_range().end == pair[1].as_ptr());
    let descends = pairs(|pair| pair[0].as_ptr() > pair[1].as_ptr());
    let pages = into.len() as u64;
    for (count, more) in counts.iter().zip([pages, pages - follows, descends]) {
        count.fetch_add(more, Ordering::Relaxed);
    }
    into.iter_mut().for_each(|slice| slice.fill(0));
}

/// Pages go one by one, in any order; those that come in together lie in order nevertheless, in windows and in long
/// calls. (How many pieces windows have depends on which pages stay. `placement.rs` has a test of its own.)
#[test]
fn what_is_read_together_lies_in_few_pieces() {
    for (read_ahead, at_once, random_before) in [(512, 1, true), (512, 1, false), (0, 64, false)] {
        let options = CacheOptions { memory: 4 * MEMORY, ..options("lru{cyclic=yes}", read_ahead) };
        let cache = PageCache::new(&options).expect("a cache");
        let counts = Arc::new([const { AtomicU64::new(0) }; 3]);
        let counted = counts.clone();
        let fill = move |into: &mut [IoSliceMut<'_>], _| count(&counted, into);
        let file = cache.attach(Box::new(MadeUp { pages: 8 * FRAMES, fill })).expect("opens");
        if random_before {
            at_random(&file, 1);
        }
        let mut bytes = vec![0; at_once * PAGE];
        let mut scans = |passes: u64| {
            for at in (0..passes).flat_map(|_| (0..8 * FRAMES).step_by(at_once)) {
                file.read_at(&mut bytes, at * PAGE as u64).expect("reads");
            }
        };
        scans(15);
        counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        scans(10);
        let [pages, pieces, descents] = [0, 1, 2].map(|at: usize| counts[at].load(Ordering::Relaxed));
        let what = format!("{pages} pages in {pieces} pieces, {at_once} at once, at random before: {random_before}");
        assert!(pages > 5 * FRAMES && descents == 0, "{what}, {descents} out of order");
        assert!(read_ahead > 0 || pieces * 16 <= pages, "{what}");
    }
}
