//! System calls on memory of regions whose faults are served in the thread: what is held is there, whatever the evictor
//! does.

mod common;

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use refault_pager::{FaultMode, Pager, PagerOptions, UserBuffer};
use refault_store::codec::Codec;
use refault_store::{FileStoreOptions, TieredStoreOptions};

fn in_thread(store: TieredStoreOptions) -> PagerOptions {
    PagerOptions { fault_mode: FaultMode::InThread, bring_successors: false, store, ..options() }
}

fn pool() -> TieredStoreOptions {
    TieredStoreOptions { pool_limit: 1 << 30, codec: Codec::Lz4, file: None }
}

fn file() -> TieredStoreOptions {
    let file = FileStoreOptions { limit: 256 << 20, encrypt: false, engine: None };
    TieredStoreOptions { pool_limit: 0, codec: Codec::Lz4, file: Some((std::env::temp_dir(), file)) }
}

fn touched(memory: &[u8], written: bool) -> UserBuffer {
    UserBuffer { address: memory.as_ptr() as usize, len: memory.len(), written }
}

fn a_file() -> std::fs::File {
    rustix::fs::memfd_create("copy", rustix::fs::MemfdFlags::CLOEXEC).expect("a file").into()
}

/// `pread` or `pwrite` of a whole buffer, by number.
fn transfer(call: libc::c_long, file: &std::fs::File, memory: *mut u8, len: usize, at: usize) -> isize {
    // SAFETY: the buffer is the caller's; the kernel checks it.
    unsafe { libc::syscall(call, file.as_raw_fd(), memory, len, at) as isize }
}

/// Threads copy their part of a region to a file and back, by calls that are given held memory. Everything is evicted
/// again and again meanwhile.
fn copies_come_back(pager: &Pager) {
    const PART: usize = 256 * PAGE;
    let mut region = pager.region(4 * PART).expect("a region");
    for (number, page) in region.chunks_exact_mut(PAGE).enumerate() {
        write_page(page, number, 1);
    }
    let whole = 0..4 * PART;
    let (memory, copy) = (region.as_mut_ptr() as usize, a_file());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|part| {
                let (copy, pager) = (&copy, &pager);
                scope.spawn(move || {
                    let mut random = Random::new(part as u64);
                    for _ in 0..2000 {
                        let pages = 1 + random.index(8);
                        let at = part * PART + random.index(256 - pages) * PAGE;
                        // SAFETY: this thread's part of the region.
                        let buffer = unsafe { std::slice::from_raw_parts_mut((memory + at) as *mut u8, pages * PAGE) };
                        let (pointer, len) = (buffer.as_mut_ptr(), buffer.len() as isize);
                        let held = pager.pin_user_pages([touched(buffer, false)].into_iter());
                        assert_eq!(transfer(libc::SYS_pwrite64, copy, pointer, buffer.len(), at), len);
                        drop(held);
                        let held = pager.pin_user_pages([touched(buffer, true)].into_iter());
                        assert_eq!(transfer(libc::SYS_pread64, copy, pointer, buffer.len(), at), len);
                        drop(held);
                        for (page, number) in buffer.chunks_exact(PAGE).zip(at / PAGE..) {
                            check_page(page, number, 1);
                        }
                    }
                })
            })
            .collect();
        let (evictor, whole, region) = (&done, whole.clone(), &region);
        scope.spawn(move || {
            while !evictor.load(Ordering::Relaxed) {
                region.evict(whole.clone());
            }
        });
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "a call was given a page that is not there");
    });
    drop(region);
    assert_eq!(pager.report().resident_bytes, 0);
}

#[test]
fn calls_are_given_held_memory_while_everything_is_evicted() {
    if skipped() {
        return;
    }
    for store in [pool(), file()] {
        copies_come_back(&pager(2, in_thread(store)));
    }
}

#[test]
fn what_is_held_stays_and_what_is_too_much_does_not() {
    if skipped() {
        return;
    }
    let pager = pager(16, in_thread(pool()));
    let mut region = pager.region(4 * MIB).expect("a region");
    for (number, page) in region.chunks_exact_mut(PAGE).enumerate() {
        write_page(page, number, 1);
    }
    let whole = 0..region.len();
    region.evict(whole.clone());
    assert_eq!(pager.report().resident_bytes, 0);
    let held = pager.pin_user_pages([touched(&region[..MIB / 2], false), touched(&region[MIB..], true)].into_iter());
    assert_eq!(pager.report().resident_bytes, 3 * MIB as u64 + MIB as u64 / 2);
    region.evict(whole.clone());
    assert_eq!(pager.report().resident_bytes, MIB as u64 / 2);
    drop(held);
    region.evict(whole.clone());
    assert_eq!(pager.report().resident_bytes, 0);
    for (number, page) in region.chunks_exact(PAGE).enumerate() {
        check_page(page, number, 1);
    }
}
