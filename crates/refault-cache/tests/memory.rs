//! `memory` counts everything: what a program has more of with a cache than without is `memory` and 2 MiB at most,
//! however much is read. Seen from outside: memory as the kernel has it, without files that are mapped, and what is
//! held of the heap.

mod common;

use std::io::IoSliceMut;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use common::counting::{Counting, HELD};
use common::{MadeUp, PAGE, Random};
use refault_cache::{Advice, CacheOptions, IoEngine, MakeError, OpenError, PageCache, WhatIf, WriteBack};
use refault_testing::skip_required;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MEMORY: usize = 16 << 20;
/// What comes on top of `memory` at most.
const BESIDES: usize = 2 << 20;
/// Records for which no frame gives way.
const FREE_RECORDS: usize = 1 << 20;
/// The file is 64 times as large.
const PAGES: u64 = 64 * (MEMORY / PAGE) as u64;

/// Pages begin with their numbers.
fn number(into: &mut [IoSliceMut<'_>], offset: u64) {
    for (page, slice) in (offset / PAGE as u64..).zip(into.iter_mut()) {
        slice.fill(page as u8);
        slice[..8].copy_from_slice(&page.to_le_bytes());
    }
}

/// A figure of the kernel's, in bytes.
fn field(path: &str, name: &str) -> usize {
    let text = std::fs::read_to_string(path).expect("this system has it");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("it says so");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
}

/// Bytes of memory that this program has and that no file has.
fn anonymous() -> usize {
    field("/proc/self/smaps_rollup", "Anonymous:")
}

/// Reads here and there, and writes one page of `writes` (0: none). What simulations take beyond a quarter of the
/// frames comes on top: it is counted, and only where they were asked for.
fn holds_to_its_memory(what: &str, options: CacheOptions, writes: u64) {
    let (before, held_before) = (anonymous(), HELD.load(Ordering::Relaxed));
    let options = CacheOptions { memory: MEMORY as u64, ..options };
    let simulates = !options.what_if.policies.is_empty();
    let compressed = (MEMORY as f64 * options.compressed.unwrap_or(0.0)) as usize;
    let cache = PageCache::new(&options).expect("a cache");
    let file = cache.attach(Box::new(MadeUp { pages: PAGES, fill: number })).expect("opens");
    let (mut random, mut bytes, whole) = (Random::new(7), [0; 8], [1; PAGE]);
    let (mut most, mut most_held) = (0, 0);
    for step in 0..PAGES * 3 / 2 {
        let page = random.below(PAGES);
        if writes > 0 && step % writes == 0 {
            let mut whole = whole;
            whole[..8].copy_from_slice(&page.to_le_bytes());
            file.write_at(&whole, page * PAGE as u64).expect("writes");
        } else {
            file.read_at(&mut bytes, page * PAGE as u64).expect("reads");
            assert_eq!(u64::from_le_bytes(bytes), page, "{what}: another page's contents");
        }
        if step % 8192 == 0 {
            most = most.max(anonymous().saturating_sub(before));
            most_held = most_held.max(HELD.load(Ordering::Relaxed).saturating_sub(held_before));
        }
    }
    let report = cache.report();
    println!(
        "{what}: {} KiB resident at most, {} KiB of heap; {} KiB for pages, {} of them in use, {} KiB of records",
        most >> 10,
        most_held >> 10,
        report.memory_bytes >> 10,
        report.resident_bytes >> 10,
        report.metadata_bytes >> 10
    );
    assert_eq!(report.would_miss.is_empty(), !simulates, "{what}: {report:?}");
    let records = (report.metadata_bytes as usize).saturating_sub(FREE_RECORDS + MEMORY / 4);
    let besides = BESIDES + if simulates { records } else { 0 };
    assert!(most <= MEMORY + besides, "{what}: {most} bytes more are resident");
    let all = report.memory_bytes as usize + most_held;
    assert!(all <= MEMORY + besides, "{what}: {all} bytes are for pages and of the heap");
    // What is for pages as they are is used for these.
    assert!(report.memory_bytes as usize >= MEMORY * 3 / 4, "{what}: {report:?}");
    let frames = report.memory_bytes - compressed as u64;
    assert!(report.resident_bytes + report.cached_bytes >= frames * 9 / 10, "{what}: {report:?}");
}

/// Futures, whose reads go into memory that is registered with io_uring: the kernel holds that whatever becomes of the
/// mapping, so it is given up before frames give way.
fn gives_back_what_is_registered() {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    file.as_file().set_len(PAGES * PAGE as u64).expect("a hole");
    let pinned = || field("/proc/self/status", "VmPin:");
    let (before, pinned_before) = (anonymous(), pinned());
    let options =
        CacheOptions { memory: MEMORY as u64, policy: "lru".into(), io: IoEngine::Uring, ..CacheOptions::default() };
    let cache = match PageCache::new(&options) {
        Err(MakeError::NoUring(error)) => return skip_required(format_args!("no io_uring: {error}")),
        made => made.expect("a cache"),
    };
    let cached = match cache.open(file.path()) {
        Err(OpenError::NoDirect(path)) => return skip_required(format_args!("no direct I/O at {}", path.display())),
        opened => Arc::new(opened.expect("opens")),
    };
    cached.advise(Advice::Random);
    let read = |pages: &mut dyn Iterator<Item = u64>| {
        let readings: Vec<_> = pages.map(|page| cached.read_at_async(vec![1; 8], page * PAGE as u64)).collect();
        for reading in readings {
            let (bytes, outcome) = wait(reading);
            assert_eq!((outcome.expect("reads"), bytes), (8, vec![0; 8]));
        }
    };
    (0..MEMORY as u64 / PAGE as u64).step_by(64).for_each(|page| read(&mut (page..page + 64)));
    let registered = cache.report().registered_bytes;
    let mut random = Random::new(1);
    for _ in 0..PAGES / 4 / 64 {
        read(&mut (0..64).map(|_| random.below(PAGES)));
    }
    // The ring's thread gives it back before it reads what comes later.
    let report = cache.report();
    let (most, kept) = (anonymous().saturating_sub(before), pinned().saturating_sub(pinned_before));
    println!("{registered} bytes registered, then {}; {kept} bytes are pinned", report.registered_bytes);
    assert!(report.memory_bytes < MEMORY as u64 && most <= MEMORY + BESIDES, "{most} bytes more, {report:?}");
    assert!(registered == 0 || report.registered_bytes < registered, "{registered} before, {report:?}");
    assert!(kept as u64 <= report.registered_bytes + (64 << 10), "{kept} bytes are pinned, {report:?}");
}

fn wait<F: Future>(future: F) -> F::Output {
    let waker = Waker::noop();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

/// One test: what others have at the same time would count.
#[test]
fn a_file_that_is_64_times_as_large_is_read_within_memory() {
    for policy in ["lru", "mglru{cyclic=yes}", "adaptive{head_start=25%}"] {
        holds_to_its_memory(policy, CacheOptions { policy: policy.into(), ..CacheOptions::default() }, 0);
    }
    let lru = || CacheOptions { policy: "lru".into(), ..CacheOptions::default() };
    holds_to_its_memory("compressed", CacheOptions { compressed: Some(0.25), ..lru() }, 0);
    holds_to_its_memory("kept", CacheOptions { keep_evicted: Some(0.05), ..lru() }, 0);
    holds_to_its_memory("written through", lru(), 10);
    holds_to_its_memory("written back", CacheOptions { write_back: Some(WriteBack::default()), ..lru() }, 10);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let statistics = || Some(directory.path().join("cache.jsonl"));
    holds_to_its_memory("with statistics", CacheOptions { statistics: statistics(), ..CacheOptions::default() }, 0);
    let what_if = WhatIf { policies: vec!["adaptive".into()], memory: Vec::new() };
    let asked = CacheOptions { statistics: statistics(), what_if, ..CacheOptions::default() };
    holds_to_its_memory("asked about other sizes", asked, 0);
    gives_back_what_is_registered();
}
