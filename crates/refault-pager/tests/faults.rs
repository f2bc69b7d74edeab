//! Stores that fail: nothing is lost that can be kept, and what is lost is said, never replaced by other bytes.

mod common;

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;

use common::*;
use refault_pager::{Budget, OnFull, Pager, PagerOptions};
use refault_store::codec::Codec;
use refault_store::{
    CompressedPool, FaultPlan, FaultyDevice, FileDevice, FileStore, FileStoreOptions, Page, Scratch, Slot, Store,
    StoreError, TieredStore, TieredStoreOptions, Usage,
};

fn over(plan: FaultPlan, pages: u64) -> Arc<dyn Store> {
    let device = FileDevice::create(&std::env::temp_dir(), None).expect("a file");
    let options = FileStoreOptions { limit: pages * PAGE as u64, encrypt: false, engine: None };
    let file = FileStore::on(Box::new(FaultyDevice::new(Box::new(device), plan)), &options).expect("a store");
    Arc::new(TieredStore::with(None, Some(file), Codec::Lz4))
}

fn fill_and_check(pager: &Pager, pages: usize) {
    let mut region = pager.region(pages * PAGE).expect("a region");
    for round in 1..4 {
        for (number, page) in region.chunks_exact_mut(PAGE).enumerate() {
            check_page(page, number, round - 1);
            write_page(page, number, round);
        }
    }
}

#[test]
fn failing_writes_lose_nothing() {
    if skipped() {
        return;
    }
    let plan = FaultPlan { write_error: 6000, no_space: 6000, short_write: 12000, ..FaultPlan::default() };
    let pager =
        Pager::with_store(Budget::new(2 << 20), options(), over(plan, 4096), "test".to_owned()).expect("a pager");
    fill_and_check(&pager, 1500);
    let report = pager.report();
    assert!(report.store_refusals > 0 && report.lost == 0, "{report:?}");
}

#[test]
fn a_full_store_loses_nothing_and_is_counted() {
    if skipped() {
        return;
    }
    let pool = CompressedPool::new(1 << 20).expect("a pool");
    let store = Arc::new(TieredStore::with(Some(pool), None, Codec::Lz4));
    let pager = Pager::with_store(Budget::new(2 << 20), options(), store, "test".to_owned()).expect("a pager");
    fill_and_check(&pager, 2000);
    let report = pager.report();
    assert!(report.counters.limit_overruns > 0 && report.store_refusals > 0 && report.lost == 0, "{report:?}");
}

/// Runs one test of this binary again in a process of its own that is expected to die.
fn in_child(test: &str) -> std::process::Output {
    Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("REFAULT_CHILD", "1")
        .output()
        .expect("runs")
}

fn is_child() -> bool {
    std::env::var_os("REFAULT_CHILD").is_some()
}

#[test]
fn a_page_that_does_not_come_back_raises_sigbus_and_says_so() {
    if skipped() {
        return;
    }
    if is_child() {
        let plan = FaultPlan { bit_flip: 65535, ..FaultPlan::default() };
        let pager =
            Pager::with_store(Budget::new(1 << 20), options(), over(plan, 4096), "test".to_owned()).expect("a pager");
        fill_and_check(&pager, 1000);
        unreachable!("a damaged page was read");
    }
    let output = in_child("a_page_that_does_not_come_back_raises_sigbus_and_says_so");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{message}");
    assert!(message.contains("is lost and raises SIGBUS"), "{message}");
}

#[test]
fn on_full_end_ends_the_program_with_a_message() {
    if skipped() {
        return;
    }
    if is_child() {
        let store = Arc::new(TieredStore::with(None, None, Codec::Lz4));
        let options = PagerOptions { on_full: OnFull::End, ..options() };
        let pager = Pager::with_store(Budget::new(1 << 20), options, store, "test".to_owned()).expect("a pager");
        fill_and_check(&pager, 1000);
        unreachable!("nothing can be evicted");
    }
    let output = in_child("on_full_end_ends_the_program_with_a_message");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{message}");
    assert!(message.contains("the store is full"), "{message}");
}

struct Panics;

impl Store for Panics {
    fn write(&self, _pages: &[&Page], _scratch: &mut Scratch, _slots: &mut [Result<Slot, StoreError>]) {
        panic!("on purpose");
    }
    fn read(&self, _slot: Slot, _into: &mut Page, _scratch: &mut Scratch) -> Result<(), StoreError> {
        panic!("on purpose");
    }
    fn release(&self, _slot: Slot) {}
    fn usage(&self) -> Usage {
        Usage::default()
    }
}

#[test]
fn the_death_of_a_pager_thread_ends_the_program_instead_of_hanging_it() {
    if skipped() {
        return;
    }
    if is_child() {
        let pager =
            Pager::with_store(Budget::new(1 << 20), options(), Arc::new(Panics), "test".to_owned()).expect("a pager");
        fill_and_check(&pager, 1000);
        unreachable!("nothing can be evicted");
    }
    let output = in_child("the_death_of_a_pager_thread_ends_the_program_instead_of_hanging_it");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{message}");
    assert!(message.contains("a thread of the pager died"), "{message}");
}

#[test]
fn kill_leaves_nothing_behind() {
    if skipped() {
        return;
    }
    let directory = std::env::temp_dir().join("refault-kill-test");
    if is_child() {
        let options = FileStoreOptions { limit: 64 << 20, encrypt: false, engine: None };
        let file = FileStore::create(&directory, &options).expect("a file");
        let store = Arc::new(TieredStore::with(None, Some(file), Codec::Lz4));
        let pager =
            Pager::with_store(Budget::new(1 << 20), common::options(), store, "test".to_owned()).expect("a pager");
        loop {
            fill_and_check(&pager, 2000);
        }
    }
    std::fs::create_dir_all(&directory).expect("a directory");
    for round in 0..3 {
        let mut child = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", "kill_leaves_nothing_behind", "--test-threads=1"])
            .env("REFAULT_CHILD", "1")
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("runs");
        std::thread::sleep(std::time::Duration::from_millis(150 + 70 * round));
        child.kill().expect("kills");
        let status = child.wait().expect("waits");
        assert_eq!(status.signal(), Some(libc::SIGKILL), "it should have been busy");
        assert!(!std::path::Path::new(&format!("/proc/{}", child.id())).exists());
        assert_eq!(std::fs::read_dir(&directory).expect("lists").count(), 0);
    }
    std::fs::remove_dir(directory).expect("is empty");
}

#[test]
fn on_full_block_waits_until_something_is_discarded() {
    if skipped() {
        return;
    }
    let store = TieredStoreOptions { pool_limit: 1 << 20, codec: Codec::Lz4, file: None };
    let pager = pager(2, PagerOptions { store, on_full: OnFull::Block, ..options() });
    let mut spare = pager.region(MIB).expect("a region");
    let pages = 4 * MIB / PAGE;
    let mut region = pager.region(pages * PAGE).expect("a region");
    // Random contents: the pool holds hardly more than its size.
    let noise = |page: &mut [u8], number: usize| {
        let mut random = Random(number as u64);
        page.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()));
    };
    spare.chunks_exact_mut(PAGE).enumerate().for_each(|(number, page)| noise(page, number));
    let written = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let written = &written;
        let writer = scope.spawn(move || {
            for (number, page) in region[..3 * MIB - MIB / 2].chunks_exact_mut(PAGE).enumerate() {
                noise(page, 1000 + number);
                written.store(number + 1, std::sync::atomic::Ordering::SeqCst);
            }
        });
        let stuck_at = loop {
            let before = written.load(std::sync::atomic::Ordering::SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(400));
            if before == written.load(std::sync::atomic::Ordering::SeqCst) {
                break before;
            }
        };
        assert!(stuck_at < (3 * MIB - MIB / 2) / PAGE, "nothing had to wait");
        assert!(pager.budget().used_bytes() <= pager.budget().maximum_bytes(), "the budget is kept while waiting");
        spare.discard(0..MIB);
        writer.join().expect("goes on after the discard");
    });
}
