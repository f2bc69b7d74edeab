//! The kernel refuses io_uring's calls, each in turn: to make a ring, to register memory, to take requests, of which it
//! may take a part. Threads do then what the ring does not: no read and no write fails, and none waits for ever.
//!
//! This program's `syscall` stands before libc's, by which io_uring is called.

use std::ffi::c_long;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::{PAGE, Random};
use refault_cache::{CacheOptions, IoEngine, MakeError, OpenError, PageCache, WriteBack};
use refault_store::{FileStore, FileStoreOptions, Page, Scratch, Store, StoreError};

/// The kernel takes half of the requests, and waits for none.
const SHORT: i32 = -1;
const ALWAYS: u64 = 1 << 40;
/// Pages of the file, and bytes of memory, which has room for half of them.
const PAGES: u64 = 128;
const MEMORY: u64 = PAGES / 2 * PAGE as u64;

/// The calls that fail, from which of them on, of how many, with which number.
static FAILING: AtomicI64 = AtomicI64::new(0);
static TURN: AtomicU64 = AtomicU64::new(0);
static TIMES: AtomicU64 = AtomicU64::new(0);
static ERROR: AtomicI32 = AtomicI32::new(0);
/// Such calls so far, and those that have failed.
static CALLS: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);

type Call = unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;

/// libc's.
fn below() -> Call {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    if FOUND.load(Ordering::Relaxed) == 0 {
        // SAFETY: the name ends with a zero.
        FOUND.store(unsafe { libc::dlsym(libc::RTLD_NEXT, c"syscall".as_ptr()) } as usize, Ordering::Relaxed);
    }
    // SAFETY: it is called with its number of words.
    unsafe { std::mem::transmute::<usize, Call>(FOUND.load(Ordering::Relaxed)) }
}

/// # Safety
/// As of libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    // SAFETY: passed on, with fewer requests at most.
    let call = |b, c, d| unsafe { below()(number, a, b, c, d, e, f) };
    if number != FAILING.load(Ordering::Relaxed) {
        return call(b, c, d);
    }
    let (turn, ours) = (TURN.load(Ordering::Relaxed), CALLS.fetch_add(1, Ordering::Relaxed));
    let error = ERROR.load(Ordering::Relaxed);
    // Who hands nothing over is refused nothing.
    if ours < turn || ours - turn >= TIMES.load(Ordering::Relaxed) || number == libc::SYS_io_uring_enter && b == 0 {
        return call(b, c, d);
    }
    FAILED.fetch_add(1, Ordering::Relaxed);
    if error == SHORT && b > 1 {
        // IORING_ENTER_GETEVENTS
        return call(b / 2, 0, d & !1);
    }
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = if error == SHORT { libc::EAGAIN } else { error } };
    -1
}

/// Some of these calls fail from now on.
fn fail(number: c_long, error: i32, turn: u64, times: u64) {
    FAILING.store(0, Ordering::Relaxed);
    for (place, value) in [(&TURN, turn), (&TIMES, times), (&CALLS, 0), (&FAILED, 0)] {
        place.store(value, Ordering::Relaxed);
    }
    ERROR.store(error, Ordering::Relaxed);
    FAILING.store(number, Ordering::Relaxed);
}

fn options(io: IoEngine, write_back: bool) -> CacheOptions {
    let write_back = write_back.then(WriteBack::default);
    CacheOptions { memory: MEMORY, policy: "lru".into(), io, write_back, ..CacheOptions::default() }
}

/// What all of some futures bring, in order.
fn all<F: Future + Unpin>(futures: Vec<F>) -> Vec<F::Output> {
    let mut context = Context::from_waker(Waker::noop());
    let mut done = Vec::new();
    for mut future in futures {
        done.push(loop {
            match std::pin::Pin::new(&mut future).poll(&mut context) {
                Poll::Ready(output) => break output,
                Poll::Pending => std::thread::yield_now(),
            }
        });
    }
    done
}

/// Reads and writes in all ways; each call has to do what it is for. What a sync has acknowledged is in the file.
fn history(cache: PageCache, path: &Path, seed: u64) {
    let mut model: Vec<u8> = (0..PAGES as usize * PAGE).map(|at| (at / PAGE % 251) as u8).collect();
    std::fs::write(path, &model).expect("writes");
    let file = Arc::new(cache.options().write(true).open(path).expect("opens"));
    let mut random = Random::new(seed);
    for round in 0..3u8 {
        file.prefetch(0..50 * PAGE as u64);
        let places: Vec<u64> = (0..24).map(|_| random.below(PAGES - 3) * PAGE as u64 + 7).collect();
        let reads = places.iter().map(|at| file.read_at_async(vec![0; 2 * PAGE], *at)).collect();
        for (at, (bytes, outcome)) in places.iter().zip(all(reads)) {
            assert_eq!(outcome.expect("a thread reads"), 2 * PAGE);
            assert!(bytes == model[*at as usize..][..2 * PAGE], "{at}");
        }
        for _ in 0..10 {
            let (at, length) = (random.below(PAGES * PAGE as u64 - 9000) as usize, random.below(9000) as usize + 1);
            model[at..at + length].fill(round);
            file.write_at(&model[at..at + length], at as u64).expect("writes");
        }
        let mut seen = vec![0; model.len()];
        // Piece by piece, so that it is read ahead.
        for (piece, at) in seen.chunks_mut(3 * PAGE).zip((0..).step_by(3 * PAGE)) {
            assert_eq!(file.read_at(piece, at).expect("reads"), piece.len());
        }
        assert!(seen == model, "a reader sees something else");
        file.sync().expect("nothing has failed that a thread cannot do");
        assert!(std::fs::read(path).expect("reads") == model, "a sync has acknowledged it");
        file.evict(0..u64::MAX);
    }
    file.reload().expect("reloads");
    assert_eq!(file.len(), model.len() as u64);
}

/// Does something while calls fail, and says how many there were, and how many failed. It may not take for ever.
fn while_failing(what: &str, fault: (c_long, i32, u64, u64), work: impl FnOnce() + Send + 'static) -> (u64, u64) {
    let (ended, end) = channel();
    fail(fault.0, fault.1, fault.2, fault.3);
    let worker = std::thread::spawn(move || {
        work();
        ended.send(()).expect("the test waits");
    });
    let ended = end.recv_timeout(Duration::from_secs(60));
    assert!(ended != Err(RecvTimeoutError::Timeout), "{what}: it has not ended");
    let counts = (CALLS.load(Ordering::Relaxed), FAILED.load(Ordering::Relaxed));
    FAILING.store(0, Ordering::Relaxed);
    if let Err(panic) = worker.join() {
        println!("{what}");
        std::panic::resume_unwind(panic);
    }
    counts
}

/// Each of the first calls of a kind, and then some.
fn turns(calls: u64) -> impl Iterator<Item = u64> {
    (0..calls).filter(|turn| *turn < 4 || turn % 13 == 0)
}

#[test]
fn what_a_ring_is_refused_threads_do() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = directory.path().join("data");
    std::fs::write(&path, [0; PAGE]).expect("writes");
    match PageCache::new(&options(IoEngine::Uring, false)).map(|cache| cache.open(&path).map(drop)) {
        Ok(Err(OpenError::NoDirect(_))) => return refault_testing::skip_required("no direct I/O"),
        Err(MakeError::NoUring(error)) => return refault_testing::skip_required(error),
        _ => {}
    }
    let (enter, register) = (libc::SYS_io_uring_enter, libc::SYS_io_uring_register);
    let mut failed = 0;
    let mut tries = |fault: (c_long, i32, u64, u64), write_back: bool| {
        let (what, path) = (format!("{fault:?}, write back {write_back}"), path.clone());
        let (calls, refused) = while_failing(&what, fault, move || {
            let cache = PageCache::new(&options(IoEngine::Uring, write_back)).expect("the ring is there");
            history(cache, &path, fault.2);
        });
        failed += u64::from(refused > 0);
        calls
    };
    let errors = [libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::ENOMEM, libc::EIO, libc::EPERM];
    for write_back in [false, true] {
        let calls = tries((enter, 0, ALWAYS, 0), write_back);
        assert!(calls > 10, "{calls}");
        for turn in turns(calls.min(30)) {
            for error in errors.into_iter().chain([SHORT]) {
                tries((enter, error, turn, 1 + turn % 3), write_back);
            }
        }
        // From some call on for ever, whether the kernel has requests by then or none.
        for (error, turn) in errors[1..].iter().flat_map(|error| [0, 5].map(|turn| (*error, turn))) {
            tries((enter, error, turn, ALWAYS), write_back);
        }
        tries((enter, SHORT, 0, 12), write_back);
    }
    for turn in 0..4 {
        tries((register, libc::ENOMEM, turn, 1), false);
        tries((register, libc::EPERM, turn, ALWAYS), false);
    }
    assert!(failed > 80, "{failed}");
    makes(directory.path());
    stores(directory.path());
}

/// No ring is made.
fn makes(directory: &Path) {
    for error in [libc::ENOMEM, libc::EPERM, libc::ENOSYS, libc::EMFILE] {
        let (path, directory) = (directory.join("data"), directory.to_owned());
        while_failing("no ring", (libc::SYS_io_uring_setup, error, 0, ALWAYS), move || {
            let made = PageCache::new(&options(IoEngine::Uring, false)).err();
            assert!(matches!(made, Some(MakeError::NoUring(said)) if said.raw_os_error() == Some(error)));
            let cache = PageCache::new(&options(IoEngine::Auto, false)).expect("threads read");
            assert!(cache.report().io.starts_with("preadv (io_uring: "), "{}", cache.report().io);
            history(cache, &path, 1);
            let options = FileStoreOptions { limit: 1 << 20, encrypt: false, engine: None };
            let store = FileStore::create(&directory, &options).expect("makes");
            assert!(store.describe().contains("pread/pwrite"), "{}", store.describe());
        });
    }
}

/// The file that evicted pages go to: batches of writes are what its ring is for.
fn stores(directory: &Path) {
    let mut pages = vec![Page::ZERO; 300];
    for (number, page) in pages.iter_mut().enumerate() {
        page.0.fill(number as u8);
        page.0[..8].copy_from_slice(&(number as u64).to_le_bytes());
    }
    let pages = Arc::new(pages);
    for error in [libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::ENOMEM, libc::EIO, libc::EPERM, SHORT] {
        for (turn, times) in (0..6).map(|turn| (turn, 1)).chain([(0, 3), (0, ALWAYS), (2, ALWAYS)]) {
            if times == ALWAYS && error == libc::EINTR {
                continue;
            }
            let (pages, directory) = (pages.clone(), directory.to_owned());
            let fault = (libc::SYS_io_uring_enter, error, turn, times);
            let (_, failed) = while_failing(&format!("{fault:?}"), fault, move || {
                let engine = Some(refault_store::IoEngine::Uring);
                let options = FileStoreOptions { limit: 4 << 20, encrypt: false, engine };
                let store = FileStore::create(&directory, &options).expect("makes");
                for _ in 0..3 {
                    let mut slots = vec![Err(StoreError::Full("none")); pages.len()];
                    store.write(&pages.iter().collect::<Vec<_>>(), &mut Scratch::new(), &mut slots);
                    for (page, slot) in pages.iter().zip(&slots) {
                        let mut back = Page::ZERO;
                        store.read(slot.expect("stored"), &mut back, &mut Scratch::new()).expect("reads");
                        assert!(back.0 == page.0);
                    }
                    slots.into_iter().for_each(|slot| store.release(slot.expect("stored")));
                }
            });
            assert!(failed > 0 || error == SHORT, "{fault:?}");
        }
    }
}
