//! A program that takes io_uring from itself after it has opened its files, as sandboxes do: threads read from then on.

use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::common::*;
use refault_cache::{CacheOptions, IoEngine, MakeError, OpenError, PageCache};

/// The system call that hands requests over says EPERM from now on, in all threads.
fn forbid_io_uring_enter() -> bool {
    let allows = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let filter = [
        // The call's number.
        allows(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        allows(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_io_uring_enter as u32),
        allows(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        allows(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the program outlives the call, which only reads it.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_TSYNC,
                std::ptr::from_ref(&program),
            ) == 0
    }
}

fn reads(file: &refault_cache::CachedFile, pages: std::ops::Range<u64>) {
    file.prefetch(pages.start * PAGE as u64..pages.end * PAGE as u64);
    for page in pages {
        let mut byte = [0];
        file.read_at(&mut byte, page * PAGE as u64).expect("reads");
        assert_eq!(u64::from(byte[0]), page % 251);
    }
}

#[test]
fn reads_go_on_when_the_kernel_takes_requests_no_more() {
    let path = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    let bytes: Vec<u8> = (0..500 * PAGE).map(|at| (at / PAGE % 251) as u8).collect();
    std::fs::write(path.path(), bytes).expect("writes");
    let open = |path: &Path| {
        // Only what is asked for: nothing is under way when the call is forbidden, which the kernel could not tell of
        // any more.
        let io = IoEngine::Uring;
        let options = CacheOptions { memory: 1 << 20, read_ahead: Some(0), io, ..CacheOptions::default() };
        let cache =
            PageCache::new(&options).inspect_err(|error| assert!(matches!(error, MakeError::NoUring(_)))).ok()?;
        let file = cache.open(path).inspect_err(|error| assert!(matches!(error, OpenError::NoDirect(_)))).ok()?;
        Some(file)
    };
    let (Some(begun), Some(new)) = (open(path.path()), open(path.path())) else {
        return refault_testing::skip_required("no io_uring, or no direct I/O");
    };
    // One ring has been at work, and one begins when it is too late.
    reads(&begun, 0..100);
    if !forbid_io_uring_enter() {
        return refault_testing::skip_required("no seccomp");
    }
    let (ended, end) = channel();
    std::thread::spawn(move || {
        for file in [begun, new] {
            reads(&file, 100..500);
            drop(file);
        }
        ended.send(()).expect("the test waits");
    });
    end.recv_timeout(Duration::from_secs(20)).expect("reads that no thread finishes");
}
