//! Forks that no caller prepares: libc's own `fork` takes pagers along, whatever other threads do, and whatever a child
//! closes before it calls `exec`.

mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use refault_pager::{Budget, Pager, PagerOptions};

/// Four times what is resident.
const PAGES: usize = 512;

struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_fork_takes_pagers_along_while_a_thread_faults_with_a_lock_that_the_forking_thread_takes() {
    let make = || Pager::new(Budget::new((PAGES / 4 * PAGE) as u64), PagerOptions::default());
    let (Ok(first), Ok(second)) = (make(), make()) else {
        refault_testing::skip_required("userfaultfd is not available here");
        return;
    };
    let mut regions = [&first, &second].map(|pager| pager.region(PAGES * PAGE).expect("a region"));
    for (pager, region) in [&first, &second].iter().zip(&mut regions) {
        pager.take_along_in_forks().expect("libc has room for the handlers");
        region.fill(7);
    }
    // As an interpreter's lock: held by the thread that runs, through faults and forks.
    let interpreter = Mutex::new(());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also when an assertion fails: the thread would be waited for otherwise.
        let _stops = Stops(&stop);
        scope.spawn(|| {
            let mut page = 0;
            while !stop.load(Ordering::Relaxed) {
                let _lock = interpreter.lock().expect("no thread panics");
                page = (page + 131) % PAGES;
                assert!(regions.iter().all(|region| region[page * PAGE] == 7));
            }
        });
        for _ in 0..20 {
            let lock = interpreter.lock().expect("no thread panics");
            // SAFETY: the child only reads regions, and ends without returning.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let whole = regions.iter().all(|region| region.iter().all(|byte| *byte == 7));
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(i32::from(!whole)) };
            }
            drop(lock);
            let mut status = 0;
            // SAFETY: waits for the child that was just made.
            let waited = unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!((waited, status), (child, 0), "the child is whole");
        }
    });
}

/// The status of a child that has touched the first pages, has closed all descriptors but 0, 1 and 2, and ends by `end`.
fn status_of_a_child_that_closes(region: &[u8], end: impl Fn(&[u8]) -> i32) -> i32 {
    // SAFETY: the child reads the region, makes system calls, and ends without returning.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // Keeps a handler busy up to the moment of the call.
        let is_whole = (0..8).all(|page| region[page * PAGE] == 7);
        // SAFETY: closes descriptors, as subprocess libraries do; then the child ends.
        unsafe {
            libc::close_range(3, libc::c_uint::MAX, 0);
            libc::_exit(if is_whole { end(region) } else { 99 });
        }
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(waited, child);
    status
}

#[test]
fn a_child_may_close_all_descriptors_before_it_calls_exec_but_reads_no_wrong_contents_then() {
    let Ok(pager) = Pager::new(Budget::new((PAGES / 4 * PAGE) as u64), PagerOptions::default()) else {
        refault_testing::skip_required("userfaultfd is not available here");
        return;
    };
    let mut region = pager.region(PAGES * PAGE).expect("a region");
    pager.take_along_in_forks().expect("libc has room for the handlers");
    region.fill(7);
    for _ in 0..100 {
        let status = status_of_a_child_that_closes(&region, |_| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            0
        });
        assert_eq!(status, 0, "the child gets as far as exec");
    }
    for _ in 0..5 {
        let status = status_of_a_child_that_closes(&region, |region| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            i32::from(region.iter().any(|byte| *byte != 7))
        });
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT, "it reads on: {status:#x}");
    }
}

#[test]
fn the_regions_of_many_pagers_are_where_they_were_in_a_child() {
    let make = || Pager::new(Budget::new((PAGES / 4 * PAGE) as u64), PagerOptions::default());
    let mut pagers = Vec::new();
    for _ in 0..8 {
        let Ok(pager) = make() else {
            refault_testing::skip_required("userfaultfd is not available here");
            return;
        };
        pager.take_along_in_forks().expect("libc has room for the handlers");
        pagers.push(pager);
    }
    let mut regions: Vec<_> = pagers.iter().map(|pager| pager.region(PAGES * PAGE).expect("a region")).collect();
    regions.iter_mut().for_each(|region| region.fill(7));
    for _ in 0..5 {
        // SAFETY: the child only reads regions, and ends without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let whole = regions.iter().all(|region| region.iter().all(|byte| *byte == 7));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!whole)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child that was just made.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!((waited, status), (child, 0), "the child is whole");
    }
}
