//! A process that is forked while a cache is open: the child is told, and what it closes is its own.

mod common;

use std::io::IoSliceMut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use refault_cache::{CacheOptions, CachedFile, IoEngine, PageCache, ReadError, WriteBack};

const MIB: usize = 1 << 20;
const MEMORY: usize = 16 * MIB;

fn open(io: IoEngine) -> (PageCache, Arc<CachedFile>) {
    let options =
        CacheOptions { memory: MEMORY as u64, io, write_back: Some(WriteBack::default()), ..CacheOptions::default() };
    let cache = PageCache::new(&options).expect("a cache");
    let fill = |into: &mut [IoSliceMut<'_>], offset: u64| {
        for (slice, page) in into.iter_mut().zip(offset / PAGE as u64..) {
            slice.fill(page as u8);
        }
    };
    let made_up = MadeUp { pages: (4 * MEMORY / PAGE) as u64, fill };
    let file = cache.attach(Box::new(made_up)).expect("opens");
    (cache, Arc::new(file))
}

fn read_all(file: &CachedFile) {
    let mut part = vec![0; MIB];
    for at in (0..4 * MEMORY).step_by(MIB) {
        file.read_at(&mut part, at as u64).expect("reads");
        assert_eq!(part[0], (at / PAGE) as u8);
    }
}

/// Forks; the child says by its exit status what came of `work`. It allocates, and waits for no other thread's locks:
/// libc's own are well after a fork.
fn child(work: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child does what the test names, and ends without running anything of the parent's.
    match unsafe { libc::fork() } {
        0 => {
            let well = work();
            // SAFETY: it ends the process.
            unsafe { libc::_exit(i32::from(!well)) }
        }
        child => child,
    }
}

/// Whether a child ends well, and soon.
fn ends_well(child: i32) -> bool {
    let begun = Instant::now();
    let mut status = 0;
    // SAFETY: the child is this process's own.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        if begun.elapsed() > Duration::from_secs(20) {
            // SAFETY: as above.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    status == 0
}

// One test: a fork copies what the others' threads have locked.
#[test]
fn a_child_is_told_that_the_cache_is_its_parents() {
    for io in [IoEngine::Auto, IoEngine::Threads] {
        let (cache, file) = open(io);
        read_all(&file);
        file.write_at(&[0; PAGE], 0).expect("stays in memory");
        let pinned = file.pin(0..1).expect("pins");
        let told = child(|| {
            let (mut byte, last) = ([0], 4 * MEMORY as u64 - 1);
            let is_told = |error: ReadError| error.to_string().contains("forked");
            // One that is in memory, one that is not, and all else that there is to do.
            let reads = [0, last].map(|at| file.read_at(&mut byte, at).err().is_some_and(is_told));
            let others = [
                file.write_at(&byte, 0).is_err(),
                file.sync().is_err(),
                file.set_len(0).is_err(),
                file.reload().is_err(),
                file.pin(0..1).is_err(),
                file.read_found_at(&mut byte, last) == 0,
                pinned.as_slice() == Some(&[0]),
                cache.attach(Box::new(Memory::default())).is_err(),
            ];
            file.prefetch(0..last);
            file.evict(0..last);
            reads.into_iter().chain(others).all(|is_so| is_so)
        });
        assert!(ends_well(told), "{io:?}");
        drop(pinned);

        // It closes what it has, and writes nothing of it; so does this process then.
        let closes = child(move || {
            drop((file, cache));
            true
        });
        assert!(ends_well(closes), "{io:?}");
    }
}
