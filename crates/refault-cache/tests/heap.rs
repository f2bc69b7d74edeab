//! What a cache holds besides its frames, seen from outside: this program's allocator counts, and what the report says
//! is held to that.

mod common;

use std::io::IoSliceMut;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::counting::{Counting, HELD};
use common::{MadeUp, PAGE};
use refault_cache::{CacheOptions, CachedFile, PageCache, WriteBack};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Pages of a file that takes no time and no memory.
const PAGES: u64 = 1 << 18;

/// What is held of the heap, beside what the report says of it.
fn compare(what: &str, cache: &PageCache, before: usize) {
    let held = HELD.load(Ordering::Relaxed).saturating_sub(before);
    let said = cache.report().metadata_bytes as usize;
    println!("{what}: {held} bytes of heap, {said} said, {:.1} per page", held as f64 / PAGES as f64);
    // Beyond what grows: rings of hits, threads, readahead's notes.
    assert!(held <= said + (128 << 10), "{what}: {held} bytes are held, {said} said");
    assert!(said <= held + held / 20 + (128 << 10), "{what}: {said} bytes are said, {held} held");
}

/// What is held when threads of an earlier cache have given back what is theirs: when it has not changed for a while.
fn at_rest() -> usize {
    let (mut held, mut same) = (HELD.load(Ordering::Relaxed), 0);
    while same < 10 {
        std::thread::sleep(Duration::from_millis(20));
        let now = HELD.load(Ordering::Relaxed);
        (same, held) = (if now == held { same + 1 } else { 0 }, now);
    }
    held
}

fn with(policy: &str, compressed: Option<f64>, write_back: bool, work: impl FnOnce(&PageCache, &CachedFile, usize)) {
    let before = at_rest();
    let options = CacheOptions {
        memory: 8 << 20,
        policy: policy.into(),
        compressed,
        read_ahead: Some(0),
        write_back: write_back.then(WriteBack::default),
        ..CacheOptions::default()
    };
    let cache = PageCache::new(&options).expect("a cache");
    let file = cache.attach(Box::new(MadeUp { pages: PAGES, fill: |_: &mut [IoSliceMut<'_>], _| {} })).expect("opens");
    work(&cache, &file, before);
}

/// One test: what others allocate at the same time would count.
#[test]
fn the_report_says_what_is_held_besides_frames() {
    let mut bytes = [0; 8];
    for policy in ["lru", "mglru", "adaptive"] {
        with(policy, None, false, |cache, file, before| {
            // Each page once, in an order that is no stream's.
            for page in 0..PAGES {
                let page = page * 7919 % PAGES;
                file.read_at(&mut bytes, page * PAGE as u64).expect("reads");
            }
            compare(policy, cache, before);
        });
    }
    with("lru", Some(0.25), false, |cache, file, before| {
        for page in 0..PAGES / 4 {
            file.read_at(&mut bytes, (page * 7919 % PAGES) * PAGE as u64).expect("reads");
        }
        compare("lru, compressed", cache, before);
    });
    with("lru", None, true, |cache, file, before| {
        for page in 0..200 {
            file.write_at(&[1; PAGE], page * 7919 * PAGE as u64).expect("stays in memory");
        }
        compare("lru, written back", cache, before);
    });
    with("lru", None, false, |cache, file, before| {
        for page in 0..4000 {
            file.write_at(&[1; PAGE], page * PAGE as u64).expect("goes through");
        }
        compare("lru, written through", cache, before);
    });
}
