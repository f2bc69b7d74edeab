//! Nanoseconds to allocate and to free a frame, on a pool of 2^22 frames (16 GiB).
//!
//! `cargo bench -p refault-bench --bench frame_allocator -- [PART OF A PATTERN'S NAME]`. Each pattern is run five
//! times; the fastest and the median count.

use std::hint::black_box;
use std::time::Instant;

use refault_core::frames::{CachedFrames, FrameAllocator, FreePool, FreePools};

const FRAMES: u32 = 1 << 22;
const REPEATS: usize = 5;

fn main() {
    println!("{:<58} {:>12} {:>12} {:>12}", "pattern, 2^22 frames", "operations", "best ns/op", "median ns/op");
    measure("allocate all, one by one", || {
        let mut a = FrameAllocator::new(FRAMES, FreePools::THREE, 12);
        timed(u64::from(FRAMES), || {
            (0..FRAMES).for_each(|_| {
                black_box(a.allocate(FreePool::Default, 0));
            })
        })
    });
    measure("free all, in order", || {
        let (mut a, held) = full();
        timed(u64::from(FRAMES), || held.iter().for_each(|f| a.free(*f, 0)))
    });
    measure("allocate and free the same, nothing else allocated", || {
        let mut a = FrameAllocator::new(FRAMES, FreePools::THREE, 12);
        timed(2 * u64::from(FRAMES), || {
            for _ in 0..FRAMES {
                let frame = a.allocate(FreePool::Default, 0).expect("free frames are left");
                a.free(black_box(frame), 0);
            }
        })
    });
    measure("allocate and free the same, three quarters allocated", || {
        let mut a = three_quarters().0;
        timed(2 * u64::from(FRAMES), || {
            for _ in 0..FRAMES {
                let frame = a.allocate(FreePool::Default, 0).expect("free frames are left");
                a.free(black_box(frame), 0);
            }
        })
    });
    measure("oldest freed, new allocated, three quarters allocated", || {
        let (mut a, mut held) = three_quarters();
        let operations = 1 << 21;
        timed(2 * operations as u64, || {
            for at in 0..operations {
                let at = at % held.len();
                a.free(held[at], 0);
                held[at] = a.allocate(FreePool::Default, 0).expect("free frames are left");
            }
        })
    });
    // The caller's own list of frames is shuffled beforehand and read in order: what it takes to find a random entry in
    // it is not the allocator's.
    measure("random freed, new allocated, three quarters allocated", || {
        let (mut a, mut held) = three_quarters();
        shuffle(&mut held);
        let operations = 1 << 21;
        timed(2 * operations, || {
            for frame in &mut held[..operations as usize] {
                a.free(*frame, 0);
                *frame = a.allocate(FreePool::Default, 0).expect("free frames are left");
            }
        })
    });
    measure("free all, in random order", || {
        let (mut a, mut held) = full();
        shuffle(&mut held);
        timed(u64::from(FRAMES), || held.iter().for_each(|f| a.free(*f, 0)))
    });
    measure("cache a random page, reactivate another", || {
        let pages = FRAMES / 2;
        let mut frames = CachedFrames::new(FRAMES, FreePools::THREE);
        frames.grow(pages as usize);
        (0..pages).for_each(|page| assert!(frames.allocate(page).is_some()));
        (0..pages).step_by(2).for_each(|page| frames.cache(page));
        let operations = 1 << 20;
        let mut random = 88172645463325252u64;
        timed(operations, || {
            for _ in 0..operations {
                let page = (next(&mut random) % u64::from(pages)) as u32;
                if black_box(frames.reactivate(page)).is_none() {
                    frames.cache(page);
                }
            }
        })
    });
    let bytes = FrameAllocator::new(FRAMES, FreePools::THREE, 12).metadata_bytes();
    println!("metadata: {:.1} bytes per frame", bytes as f64 / f64::from(FRAMES));
}

/// Everything allocated, in the order of allocation.
fn full() -> (FrameAllocator, Vec<u32>) {
    let mut a = FrameAllocator::new(FRAMES, FreePools::THREE, 12);
    let held = (0..FRAMES).map(|_| a.allocate(FreePool::Default, 0).expect("free frames are left")).collect();
    (a, held)
}

/// A random quarter free: the state of a machine that has run for a while.
fn three_quarters() -> (FrameAllocator, Vec<u32>) {
    let (mut a, mut held) = full();
    let mut random = 2463534242u64;
    for _ in 0..FRAMES / 4 {
        let at = next(&mut random) as usize % held.len();
        a.free(held.swap_remove(at), 0);
    }
    (a, held)
}

fn shuffle(frames: &mut [u32]) {
    let mut random = 88172645463325252u64;
    for last in (1..frames.len()).rev() {
        frames.swap(last, next(&mut random) as usize % (last + 1));
    }
}

fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn timed(operations: u64, run: impl FnOnce()) -> (u64, f64) {
    let start = Instant::now();
    run();
    (operations, start.elapsed().as_nanos() as f64 / operations as f64)
}

fn measure(name: &str, mut run: impl FnMut() -> (u64, f64)) {
    if std::env::args().skip(1).find(|arg| !arg.starts_with("--")).is_some_and(|wanted| !name.contains(&wanted)) {
        return;
    }
    let mut results: Vec<_> = (0..REPEATS).map(|_| run()).collect();
    results.sort_by(|a, b| a.1.total_cmp(&b.1));
    println!("{name:<58} {:>12} {:>12.1} {:>12.1}", results[0].0, results[0].1, results[REPEATS / 2].1);
}
