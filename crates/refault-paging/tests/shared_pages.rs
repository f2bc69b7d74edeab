//! What a parent and its children share is free only when all have given it up: a child gives up what its parent has.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};

use refault_paging::stores::Stores;
use refault_paging::uffd::Uffd;
use refault_paging::{Account, Attributes, Engine, EngineOptions, Outcome, PAGE, Shared, sys};

const PAGES: usize = 1000;
/// Pages that the parent's calls hold.
const HELD: usize = 300;

/// A word for each page of the child's and one that says whose turn it is.
struct Between {
    turn: AtomicU32,
    absent: [AtomicU32; PAGES],
}

/// Memory that a child has in common with its parent.
fn common(bytes: usize) -> usize {
    // SAFETY: a fresh shared mapping.
    let at = unsafe { sys::call(sys::nr::MMAP, [0, bytes, 3, 0x21, usize::MAX, 0]) };
    assert!(at > 0, "{at}");
    at as usize
}

/// Whether each of the pages is out of this process's memory.
fn absent(start: usize) -> Vec<bool> {
    let mut entries = vec![0; PAGES * 8];
    let pagemap = std::fs::File::open("/proc/self/pagemap").expect("opens");
    pagemap.read_exact_at(&mut entries, (start / PAGE * 8) as u64).expect("reads");
    entries.chunks_exact(8).map(|entry| entry[7] & 0x80 == 0).collect()
}

fn waits_for(turn: &AtomicU32, value: u32) {
    while turn.load(Ordering::Acquire) != value {
        sys::nap(1_000_000);
    }
}

#[test]
fn a_child_gives_up_what_its_parent_has_given_up() {
    let Ok(uffd) = Uffd::open() else { return refault_testing::skip_required("userfaultfd is refused") };
    // SAFETY: fresh mappings of atomics, for which zeros are values; they are never given up.
    let (shared, between) =
        unsafe { (&*(common(Shared::BYTES) as *const Shared), &*(common(size_of::<Between>()) as *const Between)) };
    shared.set_limit(3 * (PAGES * PAGE) as u64);
    // SAFETY: the segment stays mapped.
    let account = unsafe { Account::join(shared, None) };
    let store = Stores::new(1 << 30, shared.limit_bytes(), None, 0).expect("a store");
    let options = EngineOptions { policy: "fifo".into(), store, account, resident_only: false };
    let mut engine = Engine::new(uffd, options, || 0).expect("an engine");
    let start = sys::map(PAGES * PAGE);
    assert!(engine.manage(start, PAGES * PAGE, Attributes { protection: 3, ..Attributes::default() }));
    for page in 0..PAGES {
        let word = (start + page * PAGE) as *mut usize;
        assert_eq!(engine.fault(word as usize, true), Outcome::Served);
        // SAFETY: the page is there now, and nobody else knows of it.
        unsafe { *word = page + 1 };
    }
    // Another child has all of it too, and keeps it: nothing that the parent gives up is the first's own.
    engine.before_fork();
    // SAFETY: the child waits and ends.
    let sleeper = unsafe { sys::call(57, [0; 6]) };
    if sleeper == 0 {
        waits_for(&between.turn, 3);
        // SAFETY: exit_group.
        unsafe { sys::call(231, [0; 6]) };
    }
    engine.has_forked(sleeper);
    engine.before_fork();
    // SAFETY: the child does what is below and ends.
    let child = unsafe { sys::call(57, [0; 6]) };
    if child == 0 {
        let ready = Uffd::open().is_ok_and(|uffd| engine.after_fork(uffd).is_ok());
        between.turn.store(1, Ordering::Release);
        waits_for(&between.turn, 2);
        if ready {
            engine.give_room();
            for (absent, is) in between.absent.iter().zip(absent(start)) {
                absent.store(u32::from(is), Ordering::Relaxed);
            }
        }
        between.turn.store(3, Ordering::Release);
        // SAFETY: exit_group.
        unsafe { sys::call(231, [0; 6]) };
    }
    engine.has_forked(child);
    waits_for(&between.turn, 1);
    // By its policy alone the child would give up the first: so would the parent, but for its calls.
    assert!(engine.hold(start, HELD * PAGE, false));
    shared.set_limit((PAGES * PAGE / 2) as u64);
    engine.give_room();
    between.turn.store(2, Ordering::Release);
    waits_for(&between.turn, 3);
    for child in [child, sleeper] {
        // SAFETY: waits for the child.
        unsafe { sys::call(61, [child as usize, 0, 0, 0, 0, 0]) };
    }
    let parents = absent(start);
    let childs: Vec<bool> = between.absent.iter().map(|absent| absent.load(Ordering::Relaxed) != 0).collect();
    let count = |of: &[bool]| of.iter().filter(|absent| **absent).count();
    let both = parents.iter().zip(&childs).filter(|(parents, childs)| **parents && **childs).count();
    assert!(count(&parents) > 100, "{} of the parent's", count(&parents));
    // Others go when there are none of those left.
    let all = count(&parents).min(count(&childs));
    assert!(both > 100 && both == all, "{both} of {} of the child's", count(&childs));
}
