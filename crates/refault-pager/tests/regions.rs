//! Regions on this machine: contents survive eviction, budgets hold, calls do what they say.

mod common;

use std::time::Duration;

use common::*;
use refault_pager::{AccessSource, Budget, BudgetBounds, Hint, Pager, PagerOptions, Region};
use refault_store::codec::Codec;
use refault_store::{FileStoreOptions, IoEngine, TieredStoreOptions};

/// Writes and checks pages at random, never keeping more than the budget resident.
fn churn(pager: &Pager, pages: usize, steps: usize, seed: u64) {
    let mut region = pager.region(pages * PAGE).expect("a region");
    let mut versions = vec![0u64; pages];
    let mut random = Random::new(seed);
    for step in 0..steps {
        let number = random.index(pages);
        let page = &mut region[number * PAGE..][..PAGE];
        check_page(page, number, versions[number]);
        if random.index(2) == 0 {
            versions[number] += 1;
            write_page(page, number, versions[number]);
        }
        if step % 1024 == 0 {
            assert!(pager.budget().used_bytes() <= pager.budget().maximum_bytes());
        }
    }
    for (number, version) in versions.iter().enumerate() {
        check_page(&region[number * PAGE..][..PAGE], number, *version);
    }
    drop(region);
    let report = pager.report();
    assert_eq!(report.resident_bytes, 0, "{report:?}");
    assert_eq!(report.store.pool_pages + report.store.file_pages + report.store.same_filled_pages, 0);
    assert_eq!((report.lost, report.counters.limit_overruns), (0, 0));
    assert!(report.counters.pswpout > 0, "nothing was evicted: {report:?}");
}

#[test]
fn contents_survive_in_every_fault_mode_and_policy() {
    if skipped() {
        return;
    }
    for fault_mode in both_modes() {
        for policy in policies() {
            let options = PagerOptions { fault_mode, policy: policy.to_owned(), ..options() };
            churn(&pager(4, options.clone()), 4096, 6_000, 1);
            // What comes back is the only information.
            let blind = pager(4, PagerOptions { access_source: AccessSource::RefaultOnly, ..options });
            assert_eq!(blind.access_source(), AccessSource::RefaultOnly);
            churn(&blind, 4096, 6_000, 2);
        }
    }
}

#[test]
fn contents_survive_in_every_store() {
    if skipped() {
        return;
    }
    let file = |engine, encrypt| {
        Some((std::env::temp_dir(), FileStoreOptions { limit: 64 << 20, encrypt, engine: Some(engine) }))
    };
    for (pool_limit, file) in [
        (1 << 30, None),
        (0, file(IoEngine::Psync, false)),
        (0, file(IoEngine::Psync, true)),
        (2 << 20, file(IoEngine::Uring, true)),
    ] {
        let store = TieredStoreOptions { pool_limit, codec: Codec::Lz4, file };
        let Ok(pager) = Pager::new(Budget::new(4 << 20), PagerOptions { store, ..options() }) else {
            refault_testing::skip_required("a store is not available here");
            continue;
        };
        churn(&pager, 2048, 10_000, 2);
    }
}

#[test]
fn system_calls_touch_evicted_memory() {
    if skipped() {
        return;
    }
    let pager = pager(2, options());
    let mut region = pager.region(8 * MIB).expect("a region");
    let file = tempfile(&(0..8 * MIB).map(|n| (n / 7) as u8).collect::<Vec<_>>());
    use std::os::unix::fs::FileExt;
    file.read_exact_at(&mut region, 0).expect("reads into memory that is evicted meanwhile");
    let copy = tempfile(&[]);
    copy.write_all_at(&region, 0).expect("writes from evicted memory");
    let mut back = vec![0; 8 * MIB];
    copy.read_exact_at(&mut back, 0).expect("reads");
    assert!(back.iter().enumerate().all(|(n, byte)| *byte == (n / 7) as u8));
}

fn tempfile(contents: &[u8]) -> std::fs::File {
    use std::io::Write;
    let path = std::env::temp_dir().join(format!("refault-{}-{}", std::process::id(), contents.len()));
    let mut file =
        std::fs::File::options().create(true).truncate(true).read(true).write(true).open(&path).expect("opens");
    std::fs::remove_file(path).expect("removes");
    file.write_all(contents).expect("writes");
    file
}

#[test]
fn several_threads_write_while_pages_are_evicted() {
    if skipped() {
        return;
    }
    for fault_mode in both_modes() {
        let pager = pager(2, PagerOptions { fault_mode, ..options() });
        let mut region = pager.region(8 * MIB).expect("a region");
        // Each thread owns one word of each page, so pages are shared and words are not.
        let words: &[std::sync::atomic::AtomicU64] = {
            let (start, words, end) = {
                // SAFETY: atomics have the layout of their integers; the region is zeroed memory.
                unsafe { region.align_to_mut() }
            };
            assert!(start.is_empty() && end.is_empty());
            words
        };
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || {
                    let mut random = Random::new(thread as u64);
                    let mut counts = vec![0u64; 2048];
                    for _ in 0..20_000 {
                        let page = random.index(2048);
                        let word = &words[page * 512 + thread * 100];
                        counts[page] += 1;
                        let before = word.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        assert_eq!(before + 1, counts[page], "a write was lost");
                    }
                });
            }
        });
    }
}

#[test]
fn same_filled_pages_take_no_space() {
    if skipped() {
        return;
    }
    let pager = pager(1, options());
    let mut region = pager.region(16 * MIB).expect("a region");
    for (number, page) in region.chunks_exact_mut(PAGE).enumerate() {
        page.fill((number % 256) as u8);
    }
    let report = pager.report();
    assert_eq!((report.store.pool_pages, report.store.pool_bytes), (0, 0));
    assert!(report.store.same_filled_pages >= 15 * 256);
    for (number, page) in region.chunks_exact(PAGE).enumerate() {
        assert!(page.iter().all(|byte| *byte == (number % 256) as u8));
    }
}

#[test]
fn clean_pages_of_the_file_are_not_written_again() {
    if skipped() {
        return;
    }
    let file = FileStoreOptions { limit: 64 << 20, encrypt: false, engine: Some(IoEngine::Psync) };
    let store = TieredStoreOptions { pool_limit: 0, codec: Codec::Lz4, file: Some((std::env::temp_dir(), file)) };
    let pager = pager(2, PagerOptions { store, ..options() });
    let mut region = pager.region(8 * MIB).expect("a region");
    for (number, page) in region.chunks_exact_mut(PAGE).enumerate() {
        write_page(page, number * 4 + 3, 1);
    }
    let mut random = Random::new(5);
    let mut read_at_random = |region: &Region| {
        for _ in 0..10_000 {
            let number = random.index(2048);
            check_page(&region[number * PAGE..][..PAGE], number * 4 + 3, 1);
        }
    };
    read_at_random(&region);
    let before = pager.report();
    read_at_random(&region);
    let after = pager.report();
    assert!(after.clean_evictions - before.clean_evictions > 1000, "{after:?}");
    let written = after.counters.pswpout - before.counters.pswpout;
    assert!(written < 600, "{written} clean pages were written again");
}

#[test]
fn discard_makes_zeros_and_frees_space() {
    if skipped() {
        return;
    }
    let pager = pager(2, options());
    let mut region = pager.region(8 * MIB).expect("a region");
    for (number, page) in region.chunks_exact_mut(PAGE).enumerate() {
        write_page(page, number, 1);
    }
    region.discard(MIB + 1..7 * MIB);
    for (number, page) in region.chunks_exact(PAGE).enumerate() {
        let discarded = (257..7 * 256).contains(&number);
        check_page(page, number, if discarded { 0 } else { 1 });
    }
    region.discard(0..8 * MIB);
    let report = pager.report();
    assert_eq!((report.resident_bytes, report.store.pool_pages), (0, 0));
}

#[test]
fn resize_returns_when_it_is_true() {
    if skipped() {
        return;
    }
    let pager = pager(16, options());
    let mut region = pager.region(16 * MIB).expect("a region");
    for (number, page) in region.chunks_exact_mut(PAGE).enumerate() {
        write_page(page, number, 1);
    }
    for mib in [1, 12, 3] {
        pager.resize((mib * MIB) as u64, Duration::from_secs(20)).expect("resizes");
        assert!(pager.report().resident_bytes <= (mib * MIB) as u64);
        for (number, page) in region.chunks_exact(PAGE).enumerate() {
            check_page(page, number, 1);
        }
    }
    region.pin(0..2 * MIB).expect("pins");
    let error = pager.resize(MIB as u64, Duration::from_millis(50)).expect_err("pinned memory cannot go");
    assert!(error.to_string().contains("pinned"), "{error}");
}

#[test]
fn pinned_pages_stay() {
    if skipped() {
        return;
    }
    let pager = pager(4, options());
    let mut region = pager.region(16 * MIB).expect("a region");
    region.pin(0..2 * MIB).expect("pins");
    assert!(region.pin(0..8 * MIB).is_err());
    // All pins together count, and a page that is pinned already counts once.
    for _ in 0..10 {
        region.pin(0..2 * MIB).expect("is pinned");
        region.pin(2 * MIB..3 * MIB).expect("fits");
        assert!(region.pin(MIB..4 * MIB).is_err());
        region.unpin(2 * MIB..4 * MIB);
    }
    for (number, page) in region.chunks_exact_mut(PAGE).enumerate() {
        write_page(page, number, 1);
    }
    let before = pager.report().counters.pgmajfault;
    for number in 0..512 {
        check_page(&region[number * PAGE..][..PAGE], number, 1);
    }
    assert_eq!(pager.report().counters.pgmajfault, before);
    region.unpin(0..2 * MIB);
    assert!(region.evict(0..2 * MIB) >= 2 * MIB - 64 * PAGE);
    for number in 0..512 {
        check_page(&region[number * PAGE..][..PAGE], number, 1);
    }
    region.pin(4 * MIB..7 * MIB).expect("fits once nothing else is pinned");
}

#[test]
fn prefetch_brings_pages_in_before_they_are_touched() {
    if skipped() {
        return;
    }
    let pager = pager(4, options());
    let mut region = pager.region(8 * MIB).expect("a region");
    for (number, page) in region.chunks_exact_mut(PAGE).enumerate() {
        write_page(page, number, 1);
    }
    region.evict(0..8 * MIB);
    assert!(region.prefetch(MIB..2 * MIB) >= MIB);
    let before = pager.report().counters.pgmajfault;
    for number in 256..512 {
        check_page(&region[number * PAGE..][..PAGE], number, 1);
    }
    assert_eq!(pager.report().counters.pgmajfault, before);
}

#[test]
fn sequences_are_followed_and_hints_obeyed() {
    if skipped() {
        return;
    }
    let faults = |hint| {
        let pager = pager(4, options());
        let mut region = pager.region(8 * MIB).expect("a region");
        region.chunks_exact_mut(PAGE).enumerate().for_each(|(number, page)| write_page(page, number, 1));
        region.evict(0..8 * MIB);
        region.hint(hint);
        let before = pager.report().counters.pgmajfault;
        region.chunks_exact(PAGE).enumerate().for_each(|(number, page)| check_page(page, number, 1));
        pager.report().counters.pgmajfault - before
    };
    let (normal, sequential, random) = (faults(Hint::Normal), faults(Hint::Sequential), faults(Hint::Random));
    assert!(normal < 600 && sequential <= normal && random == 2048, "{normal} {sequential} {random}");
}

#[test]
fn areas_that_a_program_splits_are_served_all_the_same() {
    if skipped() {
        return;
    }
    let pager = pager(2, options());
    let mut region = pager.region(8 * MIB).expect("a region");
    for page in (3..2048).step_by(7) {
        let address = region[page * PAGE..].as_mut_ptr();
        // SAFETY: a page of the region; the rights stay what they need to be, only the kernel's area is split.
        unsafe { libc::mprotect(address.cast(), PAGE, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) };
    }
    region.chunks_exact_mut(PAGE).enumerate().for_each(|(number, page)| write_page(page, number, 1));
    region.chunks_exact(PAGE).enumerate().for_each(|(number, page)| check_page(page, number, 1));
    assert_eq!(pager.report().lost, 0);
}

#[test]
fn what_follows_a_region_is_not_brought_in() {
    if skipped() {
        return;
    }
    let pager = pager(16, options());
    let mut first = pager.region(MIB).expect("a region");
    let second = pager.region(4 * MIB).expect("a region");
    drop(second);
    first.chunks_exact_mut(PAGE).for_each(|page| page[0] = 1);
    assert_eq!(pager.report().resident_bytes, MIB as u64);
    drop(first);
    assert_eq!(pager.report().resident_bytes, 0);
}

#[test]
fn a_file_region_reads_its_file_and_keeps_writes_until_sync() {
    if skipped() {
        return;
    }
    let path = std::env::temp_dir().join(format!("refault-region-{}", std::process::id()));
    let bytes = 3 * MIB + 100;
    std::fs::write(&path, (0..bytes).map(|n| (n / PAGE) as u8).collect::<Vec<_>>()).expect("writes");
    let pager = pager(1, options());
    let mut region = pager.file_region(&path).expect("a region");
    assert_eq!(region.len(), bytes);
    let open = std::fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
    let mut open = open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|at| at == path));
    let number = open.next().expect("it is open").file_name();
    let about = std::fs::read_to_string(std::path::Path::new("/proc/self/fdinfo").join(number)).expect("its flags");
    let is_reader = |line: &str| line.starts_with("flags:") && line.ends_with('0');
    assert!(open.next().is_none() && about.lines().any(is_reader), "it is open for reading: {about}");
    for round in 0..2 {
        assert!(region.iter().enumerate().all(|(n, byte)| *byte == (n / PAGE) as u8), "round {round}");
    }
    assert_eq!(pager.report().counters.pswpout, 0, "clean file pages are dropped, not written");
    region[5 * PAGE] = 99;
    region.evict(0..bytes);
    assert_eq!(region[5 * PAGE], 99);
    assert_eq!(std::fs::read(&path).expect("reads")[5 * PAGE], 5);
    region.sync(&path).expect("syncs");
    assert_eq!(std::fs::read(&path).expect("reads")[5 * PAGE], 99);
    std::fs::remove_file(path).expect("removes");
}

#[test]
fn what_is_no_regular_file_makes_no_region() {
    if skipped() {
        return;
    }
    let pager = pager(1, options());
    for (path, why) in [("/", "directory"), ("/dev/zero", "not a regular file"), ("/proc/cpuinfo", "it has contents")] {
        let error = pager.file_region(path.as_ref()).err().expect("no region");
        assert!(error.to_string().contains(path) && error.to_string().contains(why), "{error}");
    }
}

/// False, ten milliseconds later.
fn sleep_a_little() -> bool {
    std::thread::sleep(std::time::Duration::from_millis(10));
    false
}

#[test]
fn pagers_share_a_tree_of_budgets() {
    if skipped() {
        return;
    }
    let root = Budget::new(8 << 20);
    let bounds = |minimum: usize| BudgetBounds { minimum: (minimum * MIB) as u64, ..BudgetBounds::default() };
    let quiet = Pager::new(root.child(bounds(2)), options()).expect("a pager");
    let loud = Pager::new(root.child(bounds(0)), options()).expect("a pager");
    let mut first = quiet.region(6 * MIB).expect("a region");
    first.chunks_exact_mut(PAGE).enumerate().for_each(|(number, page)| write_page(page, number, 1));
    let mut second = loud.region(16 * MIB).expect("a region");
    second.chunks_exact_mut(PAGE).enumerate().for_each(|(number, page)| write_page(page, number, 2));
    assert!(root.used_bytes() <= 8 << 20);
    // The evictors keep a reserve; the sums are taken at different moments until they rest.
    let agrees = || root.used_bytes() == quiet.report().resident_bytes + loud.report().resident_bytes;
    let rested = (0..500).any(|_| agrees() || sleep_a_little());
    assert!(rested, "{} {:?} {:?}", root.used_bytes(), quiet.report(), loud.report());
    assert!(quiet.report().resident_bytes >= 2 << 20, "the minimum was taken");
    first.chunks_exact(PAGE).enumerate().for_each(|(number, page)| check_page(page, number, 1));
    second.chunks_exact(PAGE).enumerate().for_each(|(number, page)| check_page(page, number, 2));
}

extern "C" fn nothing(_signal: i32) {}

#[test]
fn handlers_end_whatever_interrupts_the_thread_that_ends_them() {
    use std::os::unix::thread::JoinHandleExt;
    if skipped() {
        return;
    }
    // SAFETY: a handler that does nothing, for a signal that nothing else here uses.
    unsafe { libc::signal(libc::SIGUSR2, nothing as *const () as usize) };
    let options = || PagerOptions {
        fault_mode: refault_pager::FaultMode::Handler { threads: 4 },
        address_space: 64 << 20,
        ..options()
    };
    let ends = std::thread::spawn(move || (0..150).for_each(|_| drop(pager(1, options()))));
    while !ends.is_finished() {
        // SAFETY: the thread was not joined yet.
        unsafe { libc::pthread_kill(ends.as_pthread_t(), libc::SIGUSR2) };
        std::thread::yield_now();
    }
    ends.join().expect("every pager ended");
}

/// Fills of stored pages per scan over a region with this hint, three quarters of which fit.
fn fills_of_a_scan(hint: Hint) -> u64 {
    fills_of_scans(hint, 5, options()).0
}

/// The same for at most `scans` scans, and the state at the end. Three scans are made after the one in which the range
/// was found to be cyclic, and then no more. It is the median of the last three. Asked for a few pages where no page of
/// the scan can go, the multi-gen LRU evicts hundreds now and then. The scan that follows brings them in.
fn fills_of_scans(hint: Hint, scans: usize, options: PagerOptions) -> (u64, refault_pager::Report) {
    let pages = 8 * MIB / PAGE;
    let pager = pager(6, options);
    let mut region = pager.region(pages * PAGE).expect("a region");
    region.hint(hint);
    for page in 0..pages {
        write_page(&mut region[page * PAGE..(page + 1) * PAGE], page, 1);
    }
    let (mut report, mut end, mut fills) = (pager.report(), scans, Vec::new());
    while fills.len() < end {
        let before = report.counters.pswpin;
        (0..pages).for_each(|page| check_page(&region[page * PAGE..(page + 1) * PAGE], page, 1));
        report = pager.report();
        fills.push(report.counters.pswpin - before);
        if report.cycles_found > 0 && end == scans {
            end = fills.len() + 3;
        }
    }
    let last = fills.last_chunk_mut::<3>().expect("three scans at least");
    last.sort_unstable();
    (last[1], report)
}

#[test]
fn a_cyclic_range_keeps_what_fits() {
    if skipped() {
        return;
    }
    let pages = (8 * MIB / PAGE) as u64;
    let (cyclic, sequential) = (fills_of_a_scan(Hint::Cyclic), fills_of_a_scan(Hint::Sequential));
    // A quarter does not fit; the reserve and what is left alone behind the scan come on top.
    assert!((pages / 5..pages / 2).contains(&cyclic), "{cyclic} of {pages} pages came in again");
    assert!(sequential > cyclic * 3 / 2, "{sequential} without the hint, {cyclic} with it");
}

#[test]
fn scans_again_and_again_are_found_out_and_other_orders_are_not() {
    if skipped() {
        return;
    }
    let pages = (8 * MIB / PAGE) as u64;
    for fault_mode in both_modes() {
        for policy in policies() {
            let options =
                |cyclic| PagerOptions { fault_mode, policy: format!("{policy}{{cyclic={cyclic}}}"), ..options() };
            // After three scans as a rule. The multi-gen LRU ages while it is scanned, so some scans in a row may find
            // most of the range in memory. Then it takes until a whole one came back twice.
            let (with, report) = fills_of_scans(Hint::Normal, 32, options("yes"));
            let (without, blind) = fills_of_scans(Hint::Normal, 8, options("no"));
            let what = format!("{fault_mode:?} {policy}: {with} of {pages} pages came in again, {without} without");
            println!("{what}, {} found", report.cycles_found);
            assert_eq!((blind.cycles_found, blind.cyclic_pages), (0, 0), "{what}");
            // Where a scan brings back less than most of the range, there is nothing to be found out.
            assert!(report.cycles_found > 0 || without < pages * 3 / 4, "{what}");
            assert!(with < pages / 2 || report.cycles_found == 0, "{what}");
        }
        let pager = pager(2, PagerOptions { fault_mode, ..options() });
        let mut region = pager.region(8 * MIB).expect("a region");
        let mut random = Random::new(3);
        for step in 0..40_000usize {
            let uniform = random.index(2048);
            // One half uniform, one half skewed to the beginning.
            let page = if step % 2 == 0 { uniform } else { uniform * random.index(2048) / 2048 };
            region[page * PAGE] = region[page * PAGE].wrapping_add(1);
        }
        assert_eq!(pager.report().cycles_found, 0, "{fault_mode:?}");
        assert!(pager.report().counters.pswpin > 5000);
    }
}

#[test]
fn what_stays_cold_is_stored_one_step_colder() {
    if skipped() {
        return;
    }
    let file = FileStoreOptions { limit: 64 << 20, encrypt: false, engine: None };
    for file in [None, Some((std::env::temp_dir(), file))] {
        let with_file = file.is_some();
        let store = TieredStoreOptions { file, ..options().store };
        let after = Some(std::time::Duration::from_millis(200));
        let pager = pager(2, PagerOptions { store, demote_after: after, ..options() });
        let pages = 8 * MIB / PAGE;
        let mut region = pager.region(pages * PAGE).expect("a region");
        // Half digits, of which only an entropy coder makes much.
        let text = |page: &mut [u8], number: usize| {
            let mut random = Random::new(number as u64);
            page[..PAGE / 2].iter_mut().for_each(|byte| *byte = b'0' + random.index(10) as u8);
            page[PAGE / 2..].fill(b'x');
        };
        region.chunks_exact_mut(PAGE).enumerate().for_each(|(number, page)| text(page, number));
        let before = pager.report();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let done = |report: &refault_pager::Report| {
            let usage = &report.store;
            let colder =
                if with_file { usage.file_pages > 1000 } else { usage.pool_bytes < before.store.pool_bytes * 4 / 5 };
            colder && report.demoted > 1000
        };
        while !done(&pager.report()) {
            assert!(std::time::Instant::now() < deadline, "{:?} after {:?}", pager.report(), before);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let mut expected = vec![0; PAGE];
        for (number, page) in region.chunks_exact(PAGE).enumerate() {
            text(&mut expected, number);
            assert!(page == expected, "page {number}, with a file: {with_file}");
        }
    }
}

/// Pages that compress to a third or so: both what is resident and what is stored must fit.
#[test]
fn a_budget_can_count_what_is_stored_too() {
    if skipped() {
        return;
    }
    let budget = 8 * MIB as u64;
    let pager = Pager::new(Budget::new(budget), PagerOptions { count_stored: true, ..options() }).expect("a pager");
    let mut region = pager.region(14 * MIB).expect("a region");
    let fill = |page: &mut [u8], number: usize| {
        let mut random = Random::new(number as u64 + 1);
        page.chunks_exact_mut(16).for_each(|word| word[..2].copy_from_slice(&random.next().to_le_bytes()[..2]));
    };
    let total = |pager: &Pager| {
        let report = pager.report();
        report.resident_bytes + report.store.pool_bytes
    };
    let mut most = 0;
    for (number, page) in region.chunks_exact_mut(PAGE).enumerate() {
        fill(page, number);
        if number % 64 == 0 {
            most = most.max(total(&pager));
        }
    }
    let mut expected = vec![0; PAGE];
    for (number, page) in region.chunks_exact(PAGE).enumerate() {
        expected.fill(0);
        fill(&mut expected, number);
        assert!(page == expected, "page {number}");
        if number % 64 == 0 {
            most = most.max(total(&pager));
        }
    }
    let report = pager.report();
    assert_eq!((report.budget_bytes, pager.bound_bytes()), (budget, budget));
    assert!(report.store.pool_bytes > budget / 8, "too little is stored to show anything: {report:?}");
    // A round of eviction stores a 16th of the budget at most before it is counted.
    assert!(most <= budget + budget / 16, "{most} of {budget} bytes");
    pager.resize(budget / 2 + budget / 4, Duration::from_secs(10)).expect("it fits compressed");
    assert!(total(&pager) <= budget / 4 * 3 + budget / 16);
    drop(region);
    // With nothing stored all may be resident again but for the block that the pool keeps.
    pager.resize(budget, Duration::from_secs(10)).expect("nothing is resident");
    let kept = pager.report().store.pool_bytes;
    assert!(kept <= budget / 64, "the pool keeps {kept} bytes of nothing");
    assert_eq!(pager.budget().maximum_bytes() + kept, budget);
}
