//! Stores that fail: nothing is lost that can be kept, and what is lost is said, never replaced by other bytes.

mod common;

use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use common::*;
use refault_pager::{Budget, FaultMode, OnFull, Pager, PagerOptions};
use refault_store::codec::Codec;
use refault_store::{
    CompressedPool, FaultPlan, FaultyDevice, FileDevice, FileStore, FileStoreOptions, Page, Scratch, Slot, Store,
    StoreError, Tier, TieredStore, TieredStoreOptions, Usage,
};

fn over(plan: FaultPlan, pages: u64) -> Arc<dyn Store> {
    over_with(plan, pages, false)
}

fn over_with(plan: FaultPlan, pages: u64, encrypt: bool) -> Arc<dyn Store> {
    let device = FileDevice::create(&std::env::temp_dir(), None).expect("a file");
    let options = FileStoreOptions { limit: pages * PAGE as u64, encrypt, engine: None };
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
    in_child_with(test, 1)
}

/// The same; the child is told a number.
fn in_child_with(test: &str, number: usize) -> std::process::Output {
    Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("REFAULT_CHILD", number.to_string())
        .output()
        .expect("runs")
}

/// The number, in a child.
fn child() -> Option<usize> {
    std::env::var("REFAULT_CHILD").ok()?.parse().ok()
}

fn is_child() -> bool {
    child().is_some()
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

/// A store whose memory is damaged after some of the writes: bits flip in the compressed pool.
struct DamagedPool {
    store: TieredStore,
    /// One page in this many is damaged.
    every: u64,
    written: AtomicU64,
    damaged: Mutex<HashSet<u64>>,
    /// Reads of damaged pages.
    failed: AtomicU64,
}

impl DamagedPool {
    fn new(codec: Codec, every: u64) -> DamagedPool {
        let pool = CompressedPool::new(64 << 20).expect("a pool");
        let store = TieredStore::with(Some(pool), None, codec);
        DamagedPool { store, every, written: AtomicU64::new(0), damaged: Mutex::default(), failed: AtomicU64::new(0) }
    }
}

impl Store for DamagedPool {
    fn write(&self, pages: &[&Page], scratch: &mut Scratch, slots: &mut [Result<Slot, StoreError>]) {
        self.store.write(pages, scratch, slots);
        for slot in slots.iter().flatten().filter(|slot| slot.tier() == Tier::Pool) {
            let number = self.written.fetch_add(1, Ordering::Relaxed);
            if number.is_multiple_of(self.every) {
                // Behind the header, where there is payload whatever the size.
                self.store.pool().expect("a pool").flip_bit(*slot, 128 + (number as usize * 37) % 64);
                self.damaged.lock().expect("whole").insert(slot.bits());
            }
        }
    }
    fn read(&self, slot: Slot, into: &mut Page, scratch: &mut Scratch) -> Result<(), StoreError> {
        let read = self.store.read(slot, into, scratch);
        let damaged = self.damaged.lock().expect("whole").contains(&slot.bits());
        assert_eq!(read.is_err(), damaged, "{read:?}");
        self.failed.fetch_add(u64::from(damaged), Ordering::Relaxed);
        read
    }
    fn release(&self, slot: Slot) {
        self.damaged.lock().expect("whole").remove(&slot.bits());
        self.store.release(slot);
    }
    fn usage(&self) -> Usage {
        self.store.usage()
    }
}

#[test]
fn a_flipped_bit_in_the_pool_raises_sigbus_and_says_so() {
    if skipped() {
        return;
    }
    let name = "a_flipped_bit_in_the_pool_raises_sigbus_and_says_so";
    let ways: Vec<(Codec, FaultMode)> = [Codec::Lz4, Codec::Zstd, Codec::Words]
        .into_iter()
        .flat_map(|codec| both_modes().map(|mode| (codec, mode)))
        .collect();
    if let Some(way) = child() {
        let (codec, fault_mode) = ways[way];
        let store = Arc::new(DamagedPool::new(codec, 1));
        let options = PagerOptions { fault_mode, ..options() };
        let pager = Pager::with_store(Budget::new(1 << 20), options, store, "test".to_owned()).expect("a pager");
        fill_and_check(&pager, 1000);
        unreachable!("a damaged page was read");
    }
    for (way, (codec, mode)) in ways.iter().enumerate() {
        let output = in_child_with(name, way);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{codec:?} {mode:?}: {message}");
        assert!(message.contains("compressed pool does not match its checksum"), "{message}");
    }
}

/// Reads each page by a system call, which answers an error where a thread would be killed. Returns the pages that are
/// whole; the others must answer an error.
fn whole_pages(region: &refault_pager::Region, version: u64) -> usize {
    use std::os::unix::fs::FileExt;
    let copy = rustix::fs::memfd_create("copy", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
    let copy = std::fs::File::from(copy);
    let mut found = [0; PAGE];
    let mut whole = 0;
    for (number, page) in region.chunks_exact(PAGE).enumerate() {
        match copy.write_at(page, 0) {
            Ok(PAGE) => {
                copy.read_exact_at(&mut found, 0).expect("reads");
                check_page(&found, number, version);
                whole += 1;
            }
            Ok(part) => panic!("page {number}: a part of {part} bytes was read"),
            Err(error) => {
                let errno = error.raw_os_error();
                assert!(matches!(errno, Some(libc::EFAULT | libc::EHWPOISON | libc::EIO)), "page {number}: {error}");
            }
        }
    }
    whole
}

/// Writes pages, evicts them all, and looks which come back. Returns how many did not, and how many the pager says.
fn lost_pages(store: Arc<dyn Store>, pages: usize) -> (usize, u64) {
    let pager = Pager::with_store(Budget::new(1 << 20), options(), store, "test".to_owned()).expect("a pager");
    let mut region = pager.region(pages * PAGE).expect("a region");
    region.chunks_exact_mut(PAGE).enumerate().for_each(|(number, page)| write_page(page, number, 1));
    region.evict(0..pages * PAGE);
    let lost = pages - whole_pages(&region, 1);
    let said = pager.report().lost;
    // What was lost is zeros once it is discarded.
    region.discard(0..pages * PAGE);
    assert!(region.iter().all(|byte| *byte == 0));
    (lost, said)
}

#[test]
fn each_damaged_page_of_the_pool_is_lost_alone() {
    if skipped() {
        return;
    }
    for codec in [Codec::Lz4, Codec::Zstd, Codec::Words] {
        let store = Arc::new(DamagedPool::new(codec, 50));
        let (lost, said) = lost_pages(store.clone(), 2000);
        let failed = store.failed.load(Ordering::Relaxed);
        assert!(
            lost >= 20 && lost as u64 == failed && said == failed,
            "{lost} lost, {failed} reads failed, said {said}"
        );
    }
}

#[test]
fn each_damaged_page_of_the_file_is_lost_alone_encrypted_or_not() {
    if skipped() {
        return;
    }
    let plans = [
        FaultPlan { bit_flip: 1500, ..FaultPlan::default() },
        FaultPlan { torn_write: 6000, ..FaultPlan::default() },
        FaultPlan { lost_write: 6000, ..FaultPlan::default() },
        FaultPlan { read_error: 1500, ..FaultPlan::default() },
        FaultPlan { short_read: 1500, ..FaultPlan::default() },
    ];
    for (plan, encrypt) in plans.iter().flat_map(|plan| [(plan, false), (plan, true)]) {
        let (lost, said) = lost_pages(over_with(plan.clone(), 4096, encrypt), 2000);
        let never = plan.short_read > 0 || plan.read_error > 0;
        // A read that fails or comes up short may be tried again; what was damaged on the way is gone.
        assert!(never || (lost > 10 && lost < 1900), "{plan:?}: {lost}");
        assert_eq!(lost as u64, said, "{plan:?}, encrypted {encrypt}");
    }
}

#[test]
fn slow_stores_lose_nothing() {
    if skipped() {
        return;
    }
    let plan = FaultPlan { delay: Some(std::time::Duration::from_micros(500)), ..FaultPlan::default() };
    for fault_mode in both_modes() {
        let store = over(plan.clone(), 4096);
        let options = PagerOptions { fault_mode, ..options() };
        let pager = Pager::with_store(Budget::new(1 << 20), options, store, "test".to_owned()).expect("a pager");
        fill_and_check(&pager, 500);
        assert_eq!(pager.report().lost, 0);
    }
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
        let mut random = Random::new(number as u64);
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
