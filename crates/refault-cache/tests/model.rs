//! The cache against a vector of bytes. Each run has any policy and any order of reads, writes and reopening, with and
//! without cached or compressed pages. Some transfers fall short and some calls fail.

use crate::common::*;
use proptest::prelude::*;
use refault_cache::{CacheOptions, CachedFile, PageCache, WriteBack};
use std::sync::atomic::Ordering;

#[derive(Clone, Debug)]
enum Op {
    Read { at: u64, len: usize },
    Write { at: u64, len: usize, value: u8 },
    SetLen(u64),
    Sync,
    Evict { at: u64, len: usize },
    Reload,
    Reopen,
}

/// 300 pages, the last of them not whole, under a cache of 64.
const LENGTH: u64 = 300 * PAGE as u64 - 700;

fn op() -> impl Strategy<Value = Op> {
    let at = prop_oneof![4 => 0..LENGTH, 4 => 0..(40 * PAGE as u64), 1 => (LENGTH - 9000)..(LENGTH + 20_000)];
    let len = prop_oneof![3 => 1..200usize, 3 => Just(PAGE), 2 => 1..(12 * PAGE), 1 => 1..(80 * PAGE)];
    prop_oneof![
        6 => (at.clone(), len.clone()).prop_map(|(at, len)| Op::Read { at, len }),
        2 => (at.clone(), len.clone(), any::<u8>()).prop_map(|(at, len, value)| Op::Write { at, len, value }),
        1 => (at.clone(), len.clone()).prop_map(|(at, len)| Op::Evict { at, len }),
        2 => (at.prop_map(|at| at / PAGE as u64 * PAGE as u64), len, any::<u8>())
            .prop_map(|(at, len, value)| Op::Write { at, len: len.next_multiple_of(PAGE), value }),
        1 => (0..LENGTH + 50_000).prop_map(Op::SetLen),
        1 => Just(Op::Sync),
        1 => Just(Op::Reload),
        1 => Just(Op::Reopen),
    ]
}

fn contents() -> Vec<u8> {
    (0..LENGTH).map(|at| (at / 4096 * 7 + at % 251) as u8).collect()
}

fn written(len: usize, value: u8) -> Vec<u8> {
    (0..len).map(|at| value.wrapping_add(at as u8)).collect()
}

fn apply_write(model: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let end = at as usize + bytes.len();
    let size = model.len().max(end);
    model.resize(size, 0);
    model[at as usize..end].copy_from_slice(bytes);
}

/// Another program writes to a range, as far as the file goes: a byte of each page.
fn change(memory: &Memory, model: &mut [u8], range: std::ops::Range<usize>) {
    let mut below = memory.bytes.lock().unwrap();
    let end = range.end.min(model.len());
    for at in (range.start..end).step_by(PAGE) {
        below[at] = below[at].wrapping_add(1);
        model[at] = below[at];
    }
}

fn open(cache: &PageCache, memory: &Memory) -> CachedFile {
    cache.attach(Box::new(memory.clone())).expect("opens")
}

fn check_gauges(cache: &PageCache) {
    let report = cache.report();
    assert!(report.resident_bytes + report.cached_bytes <= report.memory_bytes, "{report:?}");
    let counters = report.counters;
    assert!(counters.pages_reactivated <= counters.pages_cached, "{report:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_policy_shows_the_bytes_that_were_written(
        policy in 0..policies().count(),
        keep in prop_oneof![Just(None), Just(Some(0.0)), Just(Some(0.1)), Just(Some(0.5))],
        short in prop_oneof![Just(0u64), Just(3)],
        write_back in any::<bool>(),
        exact in any::<bool>(),
        compressed in prop_oneof![Just(None), Just(Some(0.3)), Just(Some(0.6))],
        ops in proptest::collection::vec(op(), 1..120),
    ) {
        let memory = if exact { Memory::exact(contents()) } else { Memory::with(contents()) };
        memory.faults.short.store(short, Ordering::Relaxed);
        let mut model = contents();
        let options = CacheOptions {
            memory: 64 * PAGE as u64 * if compressed.is_some() { 3 } else { 1 },
            policy: policies().nth(policy).expect("below their number").into(),
            keep_evicted: keep,
            write_back: write_back.then(WriteBack::default),
            compressed,
            ..CacheOptions::default()
        };
        let cache = PageCache::new(&options).expect("a cache");
        let mut file = open(&cache, &memory);
        for op in ops {
            match op {
                Op::Read { at, len } => {
                    let mut buffer = vec![1; len];
                    let read = file.read_at(&mut buffer, at).expect("reads");
                    let from = (at as usize).min(model.len());
                    prop_assert_eq!(&buffer[..read], &model[from..(from + len).min(model.len())]);
                }
                Op::Write { at, len, value } => {
                    let bytes = written(len, value);
                    file.write_at(&bytes, at).expect("writes");
                    apply_write(&mut model, at, &bytes);
                    prop_assert_eq!(file.len(), model.len() as u64);
                }
                Op::SetLen(bytes) => {
                    file.set_len(bytes).expect("sets the length");
                    model.resize(bytes as usize, 0);
                    prop_assert_eq!(file.len(), bytes);
                }
                Op::Sync => file.sync().expect("syncs"),
                Op::Evict { at, len } => {
                    file.sync().expect("syncs");
                    file.evict(at..at + len as u64);
                    // Who looks again sees what another program wrote there.
                    let end = (at as usize + len).min(model.len().next_multiple_of(PAGE)) / PAGE * PAGE;
                    change(&memory, &mut model, (at as usize).next_multiple_of(PAGE)..end);
                }
                Op::Reload => {
                    file.sync().expect("syncs");
                    let end = model.len();
                    change(&memory, &mut model, 0..end);
                    file.reload().expect("reloads");
                }
                Op::Reopen => {
                    drop(file);
                    let report = cache.report();
                    prop_assert_eq!((report.resident_bytes, report.cached_bytes, report.compressed_pages), (0, 0, 0));
                    file = open(&cache, &memory);
                }
            }
            check_gauges(&cache);
        }
        // What is below is what was written, to the byte.
        file.sync().expect("syncs");
        prop_assert_eq!(&*memory.bytes.lock().unwrap(), &model);
    }

    #[test]
    fn failures_lose_nothing_that_was_acknowledged(
        policy in 0..policies().count(),
        keep in prop_oneof![Just(None), Just(Some(0.0)), Just(Some(0.25))],
        compressed in prop_oneof![Just(None), Just(Some(0.4))],
        ops in proptest::collection::vec(op(), 1..120),
    ) {
        let memory = Memory::with(contents());
        memory.faults.failing_reads.store(5, Ordering::Relaxed);
        memory.faults.failing_writes.store(7, Ordering::Relaxed);
        memory.faults.torn_writes.store(7, Ordering::Relaxed);
        memory.faults.short.store(11, Ordering::Relaxed);
        let mut model = contents();
        let cache = compressing_cache(64, policies().nth(policy).expect("below their number"), keep, compressed);
        let file = open(&cache, &memory);
        let mut failures = 0;
        for op in ops {
            match op {
                Op::Read { at, len } => {
                    let mut buffer = vec![1; len];
                    match file.read_at(&mut buffer, at) {
                        Ok(read) => {
                            let from = (at as usize).min(model.len());
                            prop_assert_eq!(&buffer[..read], &model[from..(from + len).min(model.len())]);
                        }
                        Err(_) => failures += 1,
                    }
                }
                Op::Write { at, len, value } => {
                    let bytes = written(len, value);
                    if file.write_at(&bytes, at).is_ok() {
                        apply_write(&mut model, at, &bytes);
                    } else {
                        failures += 1;
                        // Pages of the write are old or new, as the device says; every other byte is as it was.
                        let below = memory.bytes.lock().unwrap().clone();
                        let (first, end) = (at as usize / PAGE * PAGE, (at as usize + len).next_multiple_of(PAGE));
                        let mut new = model.clone();
                        apply_write(&mut new, at, &bytes);
                        let size = below.len();
                        prop_assert!(size >= model.len() && size <= new.len().max(model.len()));
                        model.resize(size, 0);
                        new.resize(size, 0);
                        for page in (0..size).step_by(PAGE) {
                            let range = page..(page + PAGE).min(size);
                            if page < first || page >= end {
                                prop_assert!(below[range.clone()] == model[range.clone()], "a page beside the write");
                            } else {
                                let (old, all) = (&model[range.clone()], &new[range.clone()]);
                                prop_assert!(below[range.clone()] == *old || below[range.clone()] == *all, "torn");
                            }
                        }
                        model = below;
                        prop_assert_eq!(file.len(), model.len() as u64);
                    }
                }
                Op::SetLen(bytes) => {
                    file.set_len(bytes).expect("sets the length");
                    model.resize(bytes as usize, 0);
                }
                Op::Evict { at, len } => file.evict(at..at + len as u64),
                Op::Reload => file.reload().expect("nothing waits to be written"),
                Op::Sync | Op::Reopen => {}
            }
            check_gauges(&cache);
        }
        // Nothing stays busy or lost: with the faults gone everything can be read.
        for every in [&memory.faults.failing_reads, &memory.faults.short] {
            every.store(0, Ordering::Relaxed);
        }
        let mut all = vec![0; model.len()];
        prop_assert_eq!(file.read_at(&mut all, 0).expect("reads"), model.len());
        prop_assert!(all == model);
        drop((file, failures));
        prop_assert_eq!(cache.report().resident_bytes, 0);
    }
}
