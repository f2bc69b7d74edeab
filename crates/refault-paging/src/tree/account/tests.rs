use std::alloc::{Layout, alloc_zeroed};

use super::*;
use crate::tree::share;

fn segment(pages: u64) -> &'static Shared {
    // SAFETY: atomics for which zeros are values; it is never freed.
    let shared = unsafe { &*alloc_zeroed(Layout::new::<Shared>()).cast::<Shared>() };
    shared.limit.store(pages, Ordering::Relaxed);
    shared
}

fn joined(shared: &'static Shared) -> Account {
    // SAFETY: the segment is never freed.
    unsafe { Account::join(shared, None) }
}

#[test]
fn the_sum_never_exceeds_the_limit_whoever_reserves_at_once() {
    let shared = segment(1000);
    // So that even one alone is refused now and then.
    let mut idle = joined(shared);
    assert!(idle.reserve(600));
    let threads: Vec<_> = (0..4u64)
        .map(|seed| {
            let mut account = joined(shared);
            std::thread::spawn(move || {
                let (mut random, mut refused) = (seed + 1, 0);
                for _ in 0..50_000 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    refused += u32::from(!account.reserve(random >> 33 & 511));
                    assert!(shared.total.load(Ordering::Relaxed) <= 1000);
                }
                account.charge(0);
                refused
            })
        })
        .collect();
    let refused: u32 = threads.into_iter().map(|thread| thread.join().expect("ends")).sum();
    assert!(refused > 0 && shared.peak.load(Ordering::Relaxed) <= 1000);
    assert_eq!(shared.total.load(Ordering::Relaxed), 600);
}

/// Two that grow and one that is full and idle, in random order: each step is what the engine does.
#[test]
fn those_that_lack_memory_come_to_have_equal_parts() {
    let shared = segment(4000);
    let (mut full, mut one, mut other) = (joined(shared), joined(shared), joined(shared));
    assert!(full.reserve(3900));
    let long_ago = sys::now() - 100 * share::HALVED_EVERY;
    full.faulted(long_ago);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while one.charged + other.charged < 3500 || one.charged.abs_diff(other.charged) > 400 {
        assert!(std::time::Instant::now() < deadline, "{} {}", one.charged, other.charged);
        for grows in [&mut one, &mut other] {
            let wanted = grows.charged as u64 + 16;
            if wanted > grows.limit() || !grows.reserve(wanted) {
                grows.ask(wanted);
                // It gives up pages of its own meanwhile.
                grows.reserve((wanted - 16).min(grows.limit()));
            }
        }
        full.reserve(full.limit().min(full.charged as u64));
        assert!(shared.total.load(Ordering::Relaxed) <= 4000);
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    assert!(full.charged < 500, "{}", full.charged);
}

#[test]
fn what_a_fork_shares_is_had_once_although_both_have_stored_it() {
    let shared = segment(4000);
    let mut parent = joined(shared);
    let had = || (shared.has.load(Ordering::Relaxed), shared.most.load(Ordering::Relaxed));
    let counts = Statistics::default();
    assert!(parent.reserve(1000));
    parent.has(1000, &counts);
    parent.before_fork(0, 0);
    let mut child = Account { shared, ..parent };
    child.after_fork(1000, 0);
    parent.has_forked(sys::process_id());
    child.has(1010, &counts);
    assert_eq!(had(), (1010, 1010));
    // The child stores some, the parent others, and then what the parent has stored the child stores too.
    child.unshared(300);
    child.stored_apart(300);
    child.has(1010, &counts);
    parent.unshared(400);
    parent.stored_apart(400);
    parent.has(1000, &counts);
    child.has(1010, &counts);
    assert_eq!(had(), (1010, 1010));
    // What it has written to is its own, with more memory too.
    child.unshared(100);
    child.has(1010, &counts);
    assert_eq!(had(), (1110, 1110));
    // What was stored already is had by both as well, in a second child that brings half of it back.
    parent.before_fork(0, 0);
    let mut second = Account { shared, ..parent };
    second.after_fork(600, 400);
    parent.has_forked(sys::process_id());
    (0..2).for_each(|_| second.has(1000, &counts));
    assert_eq!(had().0, 1110);
    second.leave(&counts);
    parent.leave(&counts);
    child.has(1010, &counts);
    assert_eq!(had().0, 1010);
}

#[test]
fn what_is_reserved_for_a_child_is_no_use_of_memory() {
    let shared = segment(4000);
    let mut parent = joined(shared);
    let peak = || shared.peak.load(Ordering::Relaxed);
    assert!(parent.reserve(1000));
    parent.reserves_ahead(true);
    assert!(parent.reserve(2000) && parent.reserve(1000));
    parent.reserves_ahead(false);
    assert_eq!(peak(), 1000);
    assert!(parent.reserve(1001));
    assert_eq!(peak(), 1001);
}

#[test]
fn what_a_child_inherited_is_its_own_once_the_parent_has_given_it_up() {
    let shared = segment(4000);
    let mut parent = joined(shared);
    assert!(parent.reserve(1000));
    // As a fork leaves it: a copy.
    parent.unshared(50);
    parent.before_fork(0, 0);
    assert!(parent.has_relatives(), "the child that is about to be");
    let mut child = Account { shared, ..parent };
    child.after_fork(1000, 0);
    parent.has_forked(sys::process_id());
    let charged = |child: &Account| (child.charged(), shared.total.load(Ordering::Relaxed));
    assert!(child.reserve(1010));
    assert_eq!(charged(&child), (10, 1010));
    // Although the child does nothing.
    parent.unshared(400);
    assert_eq!(charged(&child), (410, 1410));
    // What the parent has instead is not the child's.
    assert!(child.reserve(1010));
    assert_eq!(charged(&child), (410, 1410));
    parent.unshared(300);
    assert!(parent.reserve(300) && child.reserve(1010));
    assert_eq!(charged(&child), (710, 1010));
    // What the child has a copy of is the child's.
    child.unshared(100);
    assert!(child.reserve(1010));
    assert_eq!(charged(&child), (810, 1110));
    parent.leave(&Statistics::default());
    assert!(child.reserve(1010));
    assert_eq!(charged(&child), (1010, 1010));
}

/// A parent that has 1000 pages, and children that it has forked since.
fn family(shared: &'static Shared, children: u32) -> (Account, Vec<Account>) {
    let mut parent = joined(shared);
    assert!(parent.reserve(1000));
    let children = (0..children)
        .map(|_| {
            parent.before_fork(0, 0);
            let mut child = Account { shared, ..parent };
            child.after_fork(1000, 0);
            parent.has_forked(sys::process_id());
            assert!(child.reserve(1000));
            child
        })
        .collect();
    (parent, children)
}

#[test]
fn what_a_parent_gives_up_its_children_are_charged_for_together() {
    let shared = segment(4000);
    let (mut parent, mut children) = family(shared, 2);
    parent.unshared(300);
    assert_eq!(children.iter().map(Account::charged).collect::<Vec<_>>(), [150, 150]);
    children.iter_mut().for_each(|child| child.leave(&Statistics::default()));
    assert_eq!(shared.total.load(Ordering::Relaxed), 1000);
    assert!(!parent.has_relatives());
    // A fork that fails leaves no relative.
    parent.before_fork(0, 0);
    parent.has_forked(-11);
    assert!(!parent.has_relatives());
}

/// Between a fork and the child's first step others run.
#[test]
fn what_is_reserved_for_a_child_nobody_takes_before_it_runs() {
    let shared = segment(4000);
    let (mut parent, mut other) = (joined(shared), joined(shared));
    assert!(parent.reserve(1000 + 100));
    parent.before_fork(100, 0);
    assert!(parent.reserve(1000));
    assert!(other.reserve(without_slack(4000) - 1100) && !other.reserve(without_slack(4000) - 1000));
    let mut child = Account { shared, ..parent };
    child.after_fork(1000, 0);
    parent.has_forked(sys::process_id());
    assert!(child.reserve(1100));
    assert_eq!(child.charged(), 100);
    assert!(shared.peak.load(Ordering::Relaxed) <= 4000);
    child.leave(&Statistics::default());
    // Of a child that does not come to be all is free again.
    assert!(parent.reserve(1100));
    parent.before_fork(100, 0);
    parent.has_forked(-11);
    assert!(parent.reserve(1000));
    assert_eq!(shared.total.load(Ordering::Relaxed), without_slack(4000) as i64 - 100);
}

/// Pages that leave memory come one by one, and each costs memory once, however many processes have it still.
#[test]
fn a_page_that_a_parent_gives_up_is_charged_once_however_many_children_have_it() {
    let shared = segment(4000);
    let (mut parent, mut children) = family(shared, 3);
    (0..300).for_each(|_| parent.unshared(1));
    let charged = |children: &[Account]| children.iter().map(Account::charged).collect::<Vec<_>>();
    assert_eq!(charged(&children), [100, 100, 100]);
    assert!(parent.reserve(700));
    assert_eq!(shared.total.load(Ordering::Relaxed), 1000);
    // One has copies of all: what the others have is charged to them.
    children[1].unshared(1000);
    assert!(children[1].reserve(1000));
    assert_eq!(charged(&children), [100, 1000, 100]);
    (0..300).for_each(|_| parent.unshared(1));
    assert_eq!(charged(&children), [250, 1000, 250]);
}

#[test]
fn nobody_is_asked_that_has_no_more_than_its_part() {
    let shared = segment(4000);
    let (mut full, mut starved) = (joined(shared), joined(shared));
    assert!(full.reserve(3500) && starved.reserve(400));
    assert_eq!(shared.with_too_much().count(), 0, "no process lacks anything");
    starved.ask(600);
    let asked: Vec<_> = shared.with_too_much().collect();
    assert_eq!(asked, [(sys::process_id(), 3500)]);
    assert!(full.limit() < 3500 && full.limit() >= 1900);
    let mut called = false;
    full.is_deaf();
    starved.is_deaf();
    shared.while_it_stays(sys::process_id(), || called = true);
    assert!(!called, "it would not hear it");
}

/// By its number there another process would be asked, or it would be taken for dead.
#[test]
fn a_process_of_another_namespace_is_known_by_no_process_s_number() {
    const MAX_NUMBER: i32 = 1 << 22;
    let shared = segment(4000);
    shared.is_in_this_namespace();
    let number = || shared.living().map(|(slot, _)| slot.process.load(Ordering::Relaxed)).next();
    let mut here = joined(shared);
    assert_eq!(number(), Some(sys::process_id()));
    here.leave(&Statistics::default());
    shared.namespace.fetch_add(1, Ordering::Relaxed);
    let mut elsewhere = joined(shared);
    assert!(number().is_some_and(|number| number > MAX_NUMBER), "{:?}", number());
    assert!(elsewhere.reserve(3000));
    elsewhere.bury();
    assert_eq!(shared.total.load(Ordering::Relaxed), 3000, "no process knows that it is dead");
    elsewhere.leave(&Statistics::default());
    assert_eq!((number(), shared.total.load(Ordering::Relaxed)), (None, 0));
}

#[test]
fn who_is_deaf_from_now_on_waits_for_those_that_ask() {
    let shared = segment(4000);
    let process = joined(shared);
    let (asks, asked) = (std::sync::Barrier::new(2), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            shared.while_it_stays(sys::process_id(), || {
                asks.wait();
                sys::sleep(5_000_000);
                asked.store(true, Ordering::SeqCst);
            });
        });
        asks.wait();
        process.is_deaf();
        assert!(asked.load(Ordering::SeqCst));
    });
    process.is_not_deaf();
    let mut called = false;
    shared.while_it_stays(sys::process_id(), || called = true);
    assert!(called, "it hears it again");
}

/// Another process's agent may take more or less than this one's.
#[test]
fn locks_leave_to_each_process_what_its_own_agent_takes() {
    let shared = segment(2000);
    let (large, small) = (joined(shared), joined(shared));
    large.locks(0, 500);
    let free = shared.to_give_out() - 2 * MIN_PAGES - 500 - 100;
    assert!(!small.may_lock(free + 1, 100));
    assert!(small.may_lock(free, 100), "the agent of the other takes 500, not 100, and this one's 100, not 500");
    small.locks(0, 100);
    assert!(!large.may_lock(free + 1, 500) && large.may_lock(free, 500));
}

/// As a limit of the system's leaves something to everybody.
#[test]
fn a_little_can_be_locked_by_each_process_whatever_the_others_do() {
    let shared = segment(1000);
    let all: Vec<Account> = (0..4).map(|_| joined(shared)).collect();
    all.iter().for_each(|process| process.locks(0, 400));
    assert!(shared.unmovable() > shared.to_give_out());
    for process in &all {
        let before = shared.unmovable();
        assert!(process.may_lock(MIN_LOCKED, 400) && shared.unmovable() == before, "it takes nothing of the others");
        assert!(!process.may_lock(MIN_LOCKED + 1, 400));
    }
}

/// The most of the processes and the most of the command are not added where they were at different times.
#[test]
fn the_peak_is_what_all_used_at_one_moment() {
    let shared = segment(1000);
    let peak = || shared.peak.load(Ordering::Relaxed);
    let mut account = joined(shared);
    shared.set_command(10);
    let mut charge = |pages| {
        assert!(account.reserve(pages));
        account.charge(pages);
    };
    charge(800);
    let most = peak();
    assert!(most >= 810, "{most}");
    account.charge(0);
    shared.set_command(500);
    assert_eq!(peak(), most);
}
