//! What children share is free only when all have given it up: one gives up what another has given up.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};

use refault_linux::calls::{SYS_exit_group, SYS_fork, SYS_mmap, SYS_wait4};
use refault_linux::flags::{MAP_ANONYMOUS, MAP_SHARED, PROT_READ, PROT_WRITE};
use refault_linux::sys;
use refault_linux::uffd::Uffd;
use refault_paging::stores::Stores;
use refault_paging::{Account, Attributes, Engine, EngineOptions, Outcome, PAGE, Shared};

const PAGES: usize = 1000;
/// Pages that calls of the first child hold.
const HELD: usize = 300;
/// Turns: all children are there, the first makes room (and the next after it), all end.
const READY: u32 = 3;
const ROOM: u32 = 10;
const ENDS: u32 = 20;

/// Whose turn it is, and a word for each page of the two children that make room.
struct Between {
    turn: AtomicU32,
    absent: [[AtomicU32; PAGES]; 2],
}

/// Memory that a child has in common with its parent.
fn common(bytes: usize) -> usize {
    // SAFETY: a fresh shared mapping.
    let at =
        unsafe { sys::call(SYS_mmap, [0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, usize::MAX, 0]) };
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
        sys::sleep(1_000_000);
    }
}

/// A child that does nothing but have its parent's memory, or that makes room in its turn.
fn child(engine: &mut Engine, start: usize, between: &Between, makes_room: Option<usize>) -> isize {
    engine.before_fork();
    // SAFETY: the child does what is below and ends.
    let child = unsafe { sys::call(SYS_fork, [0; 6]) };
    if child != 0 {
        engine.has_forked(child);
        return child;
    }
    let ready = Uffd::open().is_ok_and(|uffd| engine.after_fork(uffd).is_ok());
    between.turn.fetch_add(1, Ordering::Release);
    let Some(number) = makes_room.filter(|_| ready) else {
        waits_for(&between.turn, ENDS);
        // SAFETY: exit_group.
        unsafe { sys::call(SYS_exit_group, [1; 6]) };
        unreachable!();
    };
    waits_for(&between.turn, ROOM + number as u32);
    if number == 0 {
        // By their policies alone both would give up the first pages: so would this one, but for its calls.
        engine.hold(start, HELD * PAGE, false);
    }
    engine.give_room();
    for (absent, is) in between.absent[number].iter().zip(absent(start)) {
        absent.store(u32::from(is), Ordering::Relaxed);
    }
    between.turn.fetch_add(1, Ordering::Release);
    waits_for(&between.turn, ENDS);
    // SAFETY: exit_group.
    unsafe { sys::call(SYS_exit_group, [0; 6]) };
    unreachable!()
}

#[test]
fn a_child_gives_up_what_another_has_given_up() {
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
        // SAFETY: the page is there now, and only this test knows of it.
        unsafe { *word = page + 1 };
    }
    // The third keeps all of it: nothing that one of the others gives up is the other's own.
    let children = [Some(0), Some(1), None].map(|makes_room| child(&mut engine, start, between, makes_room));
    waits_for(&between.turn, READY);
    // SAFETY: the pages are the engine's, and this process does not use them from now on.
    unsafe { sys::discard(start, PAGES * PAGE) };
    engine.discard(start, PAGES * PAGE);
    shared.set_limit((PAGES * PAGE / 2) as u64);
    between.turn.store(ROOM, Ordering::Release);
    waits_for(&between.turn, ROOM + 2);
    between.turn.store(ENDS, Ordering::Release);
    for child in children {
        // SAFETY: waits for the child.
        unsafe { sys::call(SYS_wait4, [child as usize, 0, 0, 0, 0, 0]) };
    }
    let [first, second] =
        [0, 1].map(|number| between.absent[number].each_ref().map(|absent| absent.load(Ordering::Relaxed) != 0));
    let count = |of: &[bool]| of.iter().filter(|absent| **absent).count();
    let both = first.iter().zip(&second).filter(|(first, second)| **first && **second).count();
    // Others go when there are none of those left.
    let all = count(&first).min(count(&second));
    assert!(all > 100 && count(&first) <= PAGES - HELD, "{} and {} pages", count(&first), count(&second));
    assert!(both == all, "{both} of {} and {} pages", count(&first), count(&second));
}
