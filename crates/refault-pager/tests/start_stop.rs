//! A thousand pagers come and go and leave nothing: an own process, so that exact counts mean something.
//!
//! Every cycle makes a pager in one of several shapes (fault mode, stores, policy, options) and fills more memory than
//! fits. It evicts, checks what comes back, uses the calls of a region, and drops everything. In a warm-up each shape
//! comes once. After that the counts of descriptors, threads, mappings, live heap blocks and bytes must be exactly what
//! they were. So must locked memory and the thread's signals. `REFAULT_CYCLES` sets another number of cycles.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use common::*;
use refault_pager::{Budget, BudgetBounds, FaultMode, Hint, Pager, PagerOptions};
use refault_store::codec::Codec;
use refault_store::{FileStoreOptions, IoEngine, TieredStoreOptions};

/// Live blocks and bytes of the heap.
static BLOCKS: AtomicI64 = AtomicI64::new(0);
static BYTES: AtomicI64 = AtomicI64::new(0);

struct Counting;

// SAFETY: everything is the system allocator's; counting does not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BLOCKS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: promised by the caller.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BLOCKS.fetch_sub(1, Ordering::Relaxed);
        BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: promised by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        BLOCKS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: promised by the caller.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        BYTES.fetch_add(size as i64 - layout.size() as i64, Ordering::Relaxed);
        // SAFETY: promised by the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

/// Live blocks and bytes.
fn heap() -> (i64, i64) {
    (BLOCKS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed))
}

/// What must not change at all either.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    descriptors: BTreeMap<String, String>,
    threads: usize,
    /// Mappings by their name and rights: how many runs of them.
    mappings: BTreeMap<String, usize>,
    /// Blocked, ignored and caught signals of this thread; locked memory.
    status: Vec<String>,
}

/// KiB that are resident and that are mapped.
fn sizes(status: &str) -> (u64, u64) {
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).expect("the kernel says");
        line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
    };
    (field("VmRSS:"), field("VmSize:"))
}

impl Held {
    fn now() -> Held {
        let mut descriptors = BTreeMap::new();
        for entry in std::fs::read_dir("/proc/self/fd").expect("lists").flatten() {
            let target = std::fs::read_link(entry.path()).map_or("gone".to_owned(), |path| path.display().to_string());
            // The one that lists.
            if !target.starts_with("/proc/") {
                descriptors.insert(entry.file_name().display().to_string(), target);
            }
        }
        let mut mappings = BTreeMap::new();
        let mut before = ("", "");
        let maps = std::fs::read_to_string("/proc/self/maps").expect("reads");
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let (start, end) = words.next().and_then(|range| range.split_once('-')).expect("a range");
            let rights = words.next().expect("rights");
            let kind = format!("{rights} {}", words.nth(3).unwrap_or("anonymous"));
            // The kernel may leave neighbours apart that a part of the heap was between.
            if before != (start, rights) {
                *mappings.entry(kind).or_insert(0) += 1;
            }
            before = (end, rights);
        }
        let threads = std::fs::read_dir("/proc/self/task").expect("lists").count();
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("reads");
        let kept = |line: &&str| {
            ["SigBlk", "SigIgn", "SigCgt", "VmLck", "Cpus_allowed:"].iter().any(|it| line.starts_with(it))
        };
        let status = status.lines().filter(kept).map(str::to_owned).collect();
        Held { descriptors, threads, mappings, status }
    }

    /// The same once it is `right`: the kernel puts threads away a moment after they were joined.
    fn once(right: impl Fn(&Held) -> bool) -> Held {
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            let now = Held::now();
            if right(&now) || Instant::now() > deadline {
                return now;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn file(engine: IoEngine, encrypt: bool) -> Option<(std::path::PathBuf, FileStoreOptions)> {
    Some((std::env::temp_dir(), FileStoreOptions { limit: 16 << 20, encrypt, engine: Some(engine) }))
}

/// The shapes that pagers take turns in.
fn shapes() -> Vec<PagerOptions> {
    let stores = [
        TieredStoreOptions { pool_limit: 1 << 30, codec: Codec::Lz4, file: None },
        TieredStoreOptions { pool_limit: 0, codec: Codec::Lz4, file: file(IoEngine::Psync, true) },
        TieredStoreOptions { pool_limit: 1 << 30, codec: Codec::Zstd, file: None },
        TieredStoreOptions { pool_limit: 256 << 10, codec: Codec::Lz4, file: file(IoEngine::Uring, false) },
    ];
    let modes = [FaultMode::Handler { threads: 1 }, FaultMode::InThread, FaultMode::Handler { threads: 3 }];
    let mut shapes = Vec::new();
    for store in &stores {
        for fault_mode in modes {
            let number = shapes.len();
            let options = PagerOptions {
                store: store.clone(),
                fault_mode,
                policy: policies().nth(number % policies().count()).expect("below their number").to_owned(),
                address_space: 64 << 20,
                ..PagerOptions::default()
            };
            // Where io_uring is not to be had, its place is another's.
            if Pager::new(Budget::new(BUDGET), options.clone()).is_ok() {
                shapes.push(options);
            } else {
                refault_testing::skip_required(format_args!("{:?} is not available here", options.store));
            }
        }
    }
    shapes
}

/// A child of `fork` gets memory of its own and ends.
fn fork_once(pager: &Pager, region: &mut [u8]) {
    let ticket = pager.before_fork(0).expect("a fork can be prepared");
    // SAFETY: the child goes on with what the pager made its own, and ends without returning.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let whole = pager.after_fork_in_child(ticket).is_ok() && region.chunks_exact(PAGE).all(|page| page[0] == 7);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!whole)) };
    }
    pager.after_fork_in_parent(ticket);
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!((waited, status), (child, 0), "the child is whole");
}

/// Two thirds of what a cycle fills.
const BUDGET: u64 = 128 * PAGE as u64;

/// Makes a pager, works with it and drops everything.
fn cycle(number: usize, options: &PagerOptions) {
    const PAGES: usize = 192;
    let root = Budget::new(BUDGET);
    let budget = if number.is_multiple_of(2) { root.clone() } else { root.child(BudgetBounds::default()) };
    let pager = Pager::new(budget, options.clone()).expect("a pager");
    let mut region = pager.region(PAGES * PAGE).expect("a region");
    for (page, bytes) in region.chunks_exact_mut(PAGE).enumerate() {
        bytes[..64].fill((page + number) as u8 | 1);
        bytes[PAGE - 1] = page as u8;
    }
    for (page, bytes) in region.chunks_exact(PAGE).enumerate() {
        assert!(bytes[0] == (page + number) as u8 | 1 && bytes[PAGE - 1] == page as u8, "page {page}");
    }
    assert!(pager.report().counters.pswpout > 0 && pager.report().counters.pswpin > 0, "it paged");
    match number % 5 {
        0 => {
            region.pin(0..8 * PAGE).expect("pins");
            region.unpin(0..8 * PAGE);
        }
        1 => pager.resize(BUDGET / 2, Duration::from_secs(20)).expect("resizes"),
        2 => {
            region.evict(0..PAGES * PAGE);
            assert!(region.prefetch(0..16 * PAGE) > 0);
        }
        3 => {
            region.hint(Hint::Cyclic);
            std::hint::black_box(region.iter().step_by(PAGE).map(|byte| u64::from(*byte)).sum::<u64>());
        }
        _ => {
            let text = pager.file_region(&std::env::current_exe().expect("a path")).expect("a region");
            assert_eq!(&text[1..4], b"ELF");
        }
    }
    if number % 50 == 49 && matches!(options.fault_mode, FaultMode::Handler { .. }) {
        region.fill(7);
        fork_once(&pager, &mut region);
    }
    // The last handle is a region in one half of the cycles, the pager in the other.
    if number.is_multiple_of(3) {
        drop(pager);
        region.discard(0..PAGES / 2 * PAGE);
    } else {
        drop(region);
        let report = pager.report();
        assert_eq!((report.resident_bytes, report.lost, report.counters.limit_overruns), (0, 0, 0), "{report:?}");
    }
    drop(root);
}

#[test]
fn a_thousand_pagers_come_and_go_and_leave_nothing() {
    if skipped() {
        return;
    }
    // One heap for all threads: otherwise its mappings depend on which of them allocated at the same time.
    // SAFETY: sets a parameter of the C library's allocator.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    let cycles = std::env::var("REFAULT_CYCLES").map_or(1000, |text| text.parse().expect("a number of cycles"));
    let shapes = shapes();
    // Until all has happened several times, forks too: what is resident of the heap and of stacks goes on growing until
    // then, and no further.
    for number in 0..(shapes.len() * 10).max(400) {
        cycle(number, &shapes[number % shapes.len()]);
    }
    let status = || {
        // What is free in the heap need not be resident.
        // SAFETY: gives free memory of the C library's allocator back.
        unsafe { libc::malloc_trim(0) };
        std::fs::read_to_string("/proc/self/status").expect("reads")
    };
    let heap_before = heap();
    let held = Held::once(|now| *now == Held::now());
    let before = sizes(&status());
    let start = Instant::now();
    for number in 0..cycles {
        cycle(number, &shapes[number % shapes.len()]);
    }
    let each = start.elapsed() / cycles as u32;
    let after = sizes(&status());
    assert_eq!(Held::once(|now| *now == held), held);
    drop(held);
    assert_eq!(heap(), heap_before, "live blocks and bytes of the heap");
    println!("{cycles} cycles, {each:?} each; resident and mapped KiB before and after: {before:?} {after:?}");
    assert!(after.0 <= before.0 + 512, "resident KiB: {before:?} → {after:?}");
    assert!(after.1 <= before.1 + 1024, "mapped KiB: {before:?} → {after:?}");
}
