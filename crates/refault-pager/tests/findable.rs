//! Evicted pages that stay findable, on this machine: contents survive whatever happens to a page that waits, budgets
//! hold, touched pages come back without being read, and slots are not lost.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::*;
use refault_pager::{Pager, PagerOptions};
use refault_store::codec::Codec;
use refault_store::{FileStoreOptions, TieredStoreOptions};

/// Checks and rewrites pages at random, most of them among a quarter; discards some. Ends with everything given back.
fn churn(pager: &Pager, pages: usize, steps: usize) -> refault_pager::Report {
    let mut region = pager.region(pages * PAGE).expect("a region");
    let mut versions = vec![0u64; pages];
    let mut random = Random(7);
    for step in 0..steps {
        let number = if random.below(4) == 0 { random.below(pages) } else { random.below(pages / 4) };
        check_page(&region[number * PAGE..][..PAGE], number, versions[number]);
        match random.below(16) {
            0..4 => {
                versions[number] += 1;
                write_page(&mut region[number * PAGE..][..PAGE], number, versions[number]);
            }
            4 => {
                region.discard(number * PAGE..(number + 1) * PAGE);
                versions[number] = 0;
            }
            _ => {}
        }
        if step % 512 == 0 {
            assert!(pager.budget().used_bytes() <= pager.budget().maximum_bytes());
        }
    }
    let before = pager.report();
    drop(region);
    let report = pager.report();
    assert_eq!(report.resident_bytes, 0, "{report:?}");
    assert_eq!(report.store.pool_pages + report.store.file_pages + report.store.same_filled_pages, 0, "{report:?}");
    assert_eq!((report.lost, report.counters.limit_overruns), (0, 0));
    before
}

#[test]
fn contents_survive_in_every_fault_mode_policy_and_share() {
    if skipped() {
        return;
    }
    for fault_mode in both_modes() {
        for (policy, keep_evicted) in
            ["mglru", "classic", "lrfu", "clock", "sieve", "fifo"].iter().zip([0.05, 0.25, 0.5].iter().cycle())
        {
            let options =
                PagerOptions { fault_mode, policy: (*policy).to_owned(), keep_evicted: *keep_evicted, ..options() };
            let report = churn(&pager(4, options), 2048, 12_000);
            assert!(report.counters.pages_cached > 0, "{policy}: {report:?}");
            assert!(report.counters.pages_reactivated > 0, "{policy}: {report:?}");
            assert!(report.counters.pages_reactivated <= report.counters.pages_cached);
        }
    }
}

#[test]
fn contents_survive_in_a_file_store() {
    if skipped() {
        return;
    }
    let file = FileStoreOptions { limit: 64 << 20, encrypt: false, engine: None };
    let store = TieredStoreOptions { pool_limit: 0, codec: Codec::Lz4, file: Some((std::env::temp_dir(), file)) };
    let report = churn(&pager(4, PagerOptions { store, keep_evicted: 0.25, ..options() }), 2048, 8_000);
    assert!(report.counters.pages_reactivated > 0, "{report:?}");
}

#[test]
fn without_the_option_nothing_is_kept() {
    if skipped() {
        return;
    }
    let report = churn(&pager(4, options()), 2048, 6_000);
    assert_eq!((report.counters.pages_cached, report.counters.pages_reactivated), (0, 0));
}

/// What the option is for: a page that waits and is read is there, and no store is read for it.
#[test]
fn a_touched_page_is_not_read_from_the_store() {
    if skipped() {
        return;
    }
    let reads = |keep_evicted: f64| {
        let pager = pager(8, PagerOptions { policy: "fifo".into(), keep_evicted, ..options() });
        let pages = 8 * MIB / PAGE;
        let Ok(mut region) = pager.region(2 * pages * PAGE) else { panic!("a region") };
        (0..2 * pages).for_each(|page| write_page(&mut region[page * PAGE..][..PAGE], page, 1));
        let mut random = Random(3);
        for _ in 0..40_000 {
            // Half of the accesses go to what a fifo evicts all the same.
            let page = if random.below(2) == 0 { random.below(pages / 2) } else { random.below(2 * pages) };
            check_page(&region[page * PAGE..][..PAGE], page, 1);
        }
        pager.report().counters
    };
    let (gone, kept) = (reads(0.0), reads(0.25));
    assert!(kept.pswpin < gone.pswpin, "{} against {}", kept.pswpin, gone.pswpin);
}

/// Waiting pages count as resident: a budget that shrinks is kept.
#[test]
fn waiting_pages_give_way_when_the_budget_shrinks() {
    if skipped() {
        return;
    }
    let pager = pager(8, PagerOptions { keep_evicted: 0.5, ..options() });
    let mut region = pager.region(16 * MIB).expect("a region");
    (0..4096).for_each(|page| write_page(&mut region[page * PAGE..][..PAGE], page, 1));
    pager.resize(2 * MIB as u64, Duration::from_secs(20)).expect("everything can be evicted");
    assert!(pager.budget().used_bytes() <= 2 * MIB as u64);
    (0..4096).for_each(|page| check_page(&region[page * PAGE..][..PAGE], page, 1));
}

/// Writers and readers run into pages that are being stored, wait, or leave.
#[test]
fn threads_write_while_pages_wait() {
    if skipped() {
        return;
    }
    for fault_mode in both_modes() {
        let pager = pager(2, PagerOptions { fault_mode, keep_evicted: 0.4, ..options() });
        let mut region = pager.region(8 * MIB).expect("a region");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (number, part) in region.chunks_mut(2 * MIB).enumerate() {
                let stop = &stop;
                scope.spawn(move || {
                    let mut random = Random(number as u64);
                    let mut versions = vec![1u64; 512];
                    (0..512).for_each(|page| write_page(&mut part[page * PAGE..][..PAGE], page, 1));
                    for _ in 0..6_000 {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        let among = [512, 64][random.below(2)];
                        let page = random.below(among);
                        check_page(&part[page * PAGE..][..PAGE], page, versions[page]);
                        if random.below(3) == 0 {
                            versions[page] += 1;
                            write_page(&mut part[page * PAGE..][..PAGE], page, versions[page]);
                        }
                    }
                });
            }
        });
        assert!(pager.report().counters.pages_reactivated > 0);
    }
}
