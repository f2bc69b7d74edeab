//! Sequences of faults: what comes along, what another thread reads ahead, and which pages keep their copies meanwhile.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::*;
use refault_pager::{Budget, FaultMode, Hint, Pager, PagerOptions, Region, Report};
use refault_store::codec::Codec;
use refault_store::{CompressedPool, TieredStore};

/// Pages of a region, half of which are resident.
const PAGES: usize = 8192;

fn half_resident(pager: &Pager) -> Region {
    let mut region = pager.region(PAGES * PAGE).expect("a region");
    region.chunks_exact_mut(PAGE).enumerate().for_each(|(number, page)| write_page(page, number, 1));
    region
}

/// Waits until what was asked for before has been read.
fn settle(pager: &Pager) {
    let (mut read, mut looks) = (pager.report().prefetched, 0);
    while looks < 5 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        let now = pager.report().prefetched;
        looks = if now == read { looks + 1 } else { 0 };
        read = now;
    }
}

/// What happens while all pages are read in this order, which must have the contents of version 1.
fn read(pager: &Pager, region: &Region, order: impl Iterator<Item = usize>) -> [u64; 4] {
    settle(pager);
    let counts =
        |report: Report| [report.counters.pgmajfault, report.prefetched, report.read_ahead, report.clean_evictions];
    let before = counts(pager.report());
    order.for_each(|number| check_page(&region[number * PAGE..][..PAGE], number, 1));
    let after = counts(pager.report());
    std::array::from_fn(|index| after[index] - before[index])
}

#[test]
fn sequences_come_along_in_any_direction_and_are_read_ahead() {
    if skipped() {
        return;
    }
    let strided = |stride: usize| (0..stride).flat_map(move |first| (first..PAGES).step_by(stride));
    for fault_mode in both_modes() {
        let pager = pager(16, PagerOptions { fault_mode, ..options() });
        let region = half_resident(&pager);
        let orders: [(&str, Box<dyn Iterator<Item = usize>>); 4] = [
            ("forwards", Box::new(0..PAGES)),
            ("backwards", Box::new((0..PAGES).rev())),
            ("every third", Box::new(strided(3))),
            ("two at once", Box::new((0..PAGES / 2).flat_map(|page| [page, PAGES - 1 - page]))),
        ];
        for (name, order) in orders {
            let [faults, along, ahead, _] = read(&pager, &region, order);
            let what = format!("{fault_mode:?}, {name}: {faults} faults, {along} came along, {ahead} were read ahead");
            println!("{what}");
            assert!(along > 4 * faults, "{what}");
            // The reader is a thread of the handlers' mode.
            assert_eq!(ahead > 0, fault_mode != FaultMode::InThread, "{what}");
        }
    }
}

#[test]
fn nothing_is_read_ahead_without_order_or_in_a_small_budget() {
    if skipped() {
        return;
    }
    let large = pager(16, options());
    let region = half_resident(&large);
    let mut random = Random::new(5);
    let order: Vec<usize> = (0..20_000).map(|_| random.index(PAGES)).collect();
    let [faults, along, ahead, _] = read(&large, &region, order.into_iter());
    assert!(faults > 5000 && along < faults / 20 && ahead == 0, "{faults} {along} {ahead}");
    let small = pager(2, options());
    let region = half_resident(&small);
    let [_, _, ahead, _] = read(&small, &region, 0..PAGES);
    assert_eq!(ahead, 0);
}

#[test]
fn copies_grow_old_when_no_sequence_goes_on_any_more() {
    if skipped() {
        return;
    }
    // Some thousand pages have copies after this. A large region of its own is what is read in no order then.
    let pager = pager(24, options());
    let region = half_resident(&pager);
    region.hint(Hint::Cyclic);
    for _ in 0..4 {
        read(&pager, &region, 0..PAGES);
    }
    region.hint(Hint::Random);
    settle(&pager);
    let before = pager.report();
    let mut random = Random::new(5);
    // As often as pages may come in before a copy is old, and again: most of these accesses bring one in.
    let limit = 24 * MIB / PAGE / 8;
    for _ in 0..6 * limit {
        let number = random.index(PAGES);
        check_page(&region[number * PAGE..][..PAGE], number, 1);
    }
    let after = pager.report();
    let came_in = after.counters.pgmajfault - before.counters.pgmajfault;
    assert!(came_in > limit as u64, "{came_in}");
    assert!(after.copies_given_up > before.copies_given_up + 16, "{after:?}");
}

#[test]
fn pages_that_pass_through_unwritten_are_not_stored_again() {
    if skipped() {
        return;
    }
    let pager = pager(24, PagerOptions { count_stored: true, ..options() });
    let mut region = half_resident(&pager);
    region.hint(Hint::Cyclic);
    // What came along, and what went unwritten, once a scan has shown what it is.
    let mut sums = [0; 2];
    for scan in 0..4 {
        let stored = pager.report().counters.pswpout;
        let [faults, along, _, clean] = read(&pager, &region, 0..PAGES);
        let stored = pager.report().counters.pswpout - stored;
        println!("{faults} faults, {along} came along, {clean} went unwritten, {stored} were stored");
        if scan > 0 {
            sums = [sums[0] + along, sums[1] + clean];
        }
    }
    assert!(sums[0] > 1500 && sums[1] > sums[0] / 2, "{sums:?}");
    // Writing costs few faults: it is found out soon, and the copies of long ago are given up.
    let faults = pager.report().protect_faults;
    for version in 2..4 {
        for (number, page) in region.chunks_exact_mut(PAGE).enumerate() {
            check_page(page, number, version - 1);
            write_page(page, number, version);
        }
    }
    let report = pager.report();
    assert!((1..PAGES as u64 / 8).contains(&(report.protect_faults - faults)), "{report:?}");
    region.chunks_exact(PAGE).enumerate().for_each(|(number, page)| check_page(page, number, 3));
    drop(region);
    let report = pager.report();
    let stored = report.store.pool_pages + report.store.file_pages + report.store.same_filled_pages;
    assert_eq!((report.resident_bytes, stored, report.lost), (0, 0, 0));
}

/// Ends the other threads.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Readers in several orders, writers, evictions and a store that is full now and then: no write is lost, and no reader
/// sees what was there before.
#[test]
fn sequences_beside_writers_evictions_and_a_full_store_lose_nothing() {
    if skipped() {
        return;
    }
    const WORDS: usize = PAGE / 8;
    for (threads, pool) in [(1, 64 * MIB), (2, 64 * MIB), (1, 20 * MIB)] {
        let store =
            Arc::new(TieredStore::with(Some(CompressedPool::new(pool as u64).expect("a pool")), None, Codec::Lz4));
        let options = PagerOptions { fault_mode: FaultMode::Handler { threads }, count_stored: true, ..options() };
        let pager = Pager::with_store(Budget::new(20 << 20), options, store, "test".to_owned()).expect("a pager");
        let region = half_resident(&pager);
        region.hint(Hint::Cyclic);
        let shared = &region;
        // SAFETY: atomics have the layout of their integers.
        let (_, words, _) = unsafe { shared.align_to::<AtomicU64>() };
        // Each page counts in a word of its own that is zero at first.
        (0..PAGES).for_each(|page| words[page * WORDS].store(0, Ordering::Relaxed));
        let writing = AtomicBool::new(true);
        let mut counts = vec![0u64; PAGES];
        std::thread::scope(|scope| {
            // Also where an assertion fails.
            let _ends = Ends(&writing);
            for reader in 0..2 {
                let writing = &writing;
                scope.spawn(move || {
                    let mut seen = vec![0u64; PAGES];
                    while writing.load(Ordering::Relaxed) {
                        for page in 0..PAGES {
                            let page = if reader == 0 { page } else { PAGES - 1 - page };
                            let now = words[page * WORDS].load(Ordering::Acquire);
                            assert!(now >= seen[page], "page {page} went back");
                            seen[page] = now;
                        }
                    }
                });
            }
            let writing = &writing;
            scope.spawn(move || {
                let mut random = Random::new(11);
                while writing.load(Ordering::Relaxed) {
                    let page = random.index(PAGES);
                    shared.evict(page * PAGE..(page + 64) * PAGE);
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            });
            let mut random = Random::new(12);
            for step in 0..20_000 {
                let page = if step % 3 == 0 { random.index(PAGES) } else { step % PAGES };
                let before = words[page * WORDS].fetch_add(1, Ordering::AcqRel);
                assert_eq!(before, counts[page], "a write to page {page} was lost");
                counts[page] += 1;
            }
        });
        (0..PAGES).for_each(|page| assert_eq!(words[page * WORDS].load(Ordering::Relaxed), counts[page]));
        let report = pager.report();
        assert_eq!(report.lost, 0);
        drop(region);
        let report = pager.report();
        assert_eq!((report.resident_bytes, report.store.pool_pages + report.store.same_filled_pages), (0, 0));
    }
}
