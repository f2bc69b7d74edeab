//! Each counter of `vmstat -s` goes up when the specification says, and only then (spec: freebsd §7).

use refault_core::freebsd::{Freebsd, FreebsdParams, Version, VmCounters};
use refault_core::memory::PageTables;

use super::machine::{Burst, Machine};
use super::store::Store;

const FRAMES: u32 = 8000;

fn machine(params: FreebsdParams) -> Machine {
    Machine::new(FRAMES, Box::new(Freebsd::new(params)), 0.0)
}

/// What a step counted. Names and values of what is not zero.
fn counted(machine: &mut Machine, step: impl FnOnce(&mut Machine)) -> Vec<(&'static str, u64)> {
    let before = machine.counters();
    step(machine);
    let counted = machine.counters().since(&before).values();
    VmCounters::LABELS.iter().copied().zip(counted).filter(|(_, value)| *value > 0).collect()
}

/// A machine in which most of a large file was read through a mapping that is gone, so that the daemon ran; the file's
/// number.
fn pressed(params: FreebsdParams) -> (Machine, usize) {
    let mut machine = machine(params);
    let file = machine.add_object(3 * FRAMES, false);
    let mut mapping = machine.map(file, 0);
    let mut burst = Burst::default();
    for page in 0..3 * FRAMES {
        machine.touch(&mut mapping, page, false, &mut burst);
    }
    machine.unmap(mapping);
    (machine, file)
}

fn first_cached(machine: &Machine, file: usize) -> u32 {
    let object = *machine.store.object(file);
    let found = (0..object.pages).find(|index| machine.store.frames.is_cached(object.first + index));
    found.expect("the daemon cached pages")
}

#[test]
fn a_new_page_of_anonymous_memory_is_a_fault_and_a_zero_fill() {
    let mut machine = machine(FreebsdParams::default());
    let memory = machine.add_object(10, true);
    let mut mapping = machine.map(memory, 0);
    let step = |machine: &mut Machine| machine.touch(&mut mapping, 3, true, &mut Burst::default());
    assert_eq!(counted(&mut machine, step), [("total VM faults taken", 1), ("zero fill pages zeroed", 1)]);
    let again = |machine: &mut Machine| machine.touch(&mut mapping, 3, true, &mut Burst::default());
    assert_eq!(counted(&mut machine, again), [], "a hit");
}

#[test]
fn a_page_that_another_mapping_brought_in_is_a_soft_fault() {
    let mut machine = machine(FreebsdParams::default());
    let file = machine.add_object(10, false);
    let (mut one, mut other) = (machine.map(file, 0), machine.map(file, 1));
    machine.touch(&mut one, 3, false, &mut Burst::default());
    let step = |machine: &mut Machine| machine.touch(&mut other, 3, false, &mut Burst::default());
    assert_eq!(counted(&mut machine, step), [("total VM faults taken", 1)]);
}

/// Since 2015 a fault that finds its page resident only maps it; version 10 has no such fast fault: the page ends at the
/// newest end of the active queue (spec: freebsd §1).
#[test]
fn a_soft_fault_activates_in_version_10_only() {
    for (version, moves) in [(Version::V10, true), (Version::V2015, false), (Version::V12, false)] {
        let params = if version == Version::V12 { FreebsdParams::laundry() } else { FreebsdParams::default() };
        let mut machine = machine(FreebsdParams { version, ..params });
        let file = machine.add_object(10, false);
        let (mut one, mut other) = (machine.map(file, 0), machine.map(file, 1));
        machine.touch(&mut one, 0, false, &mut Burst::default());
        // The page asked for is active; the nine that were read ahead are not.
        assert_eq!(machine.policy.active_inactive(), Some([1, 9]), "{version:?}");
        machine.touch(&mut other, 5, false, &mut Burst::default());
        let expected = if moves { [2, 8] } else { [1, 9] };
        assert_eq!(machine.policy.active_inactive(), Some(expected), "{version:?}: it was inactive");
        machine.touch(&mut other, 5, false, &mut Burst::default());
        assert_eq!(machine.policy.active_inactive(), Some(expected), "{version:?}: mapped already, no fault");
        machine.touch(&mut other, 0, false, &mut Burst::default());
        assert_eq!(machine.policy.active_inactive(), Some(expected), "{version:?}: it was active");
    }
}

/// The first fault at the start of a mapping is sequential; before April 2015 it reads 15 pages ahead, after it 23; a
/// fault elsewhere reads 7 ahead and 8 behind, or the aligned 16 around it (spec: freebsd §6).
#[test]
fn a_fault_on_a_file_is_one_operation_of_many_pages() {
    for (version, start, elsewhere) in [(Version::V10, 16, 16), (Version::V2015, 24, 16)] {
        let mut machine = machine(FreebsdParams { version, ..FreebsdParams::default() });
        let file = machine.add_object(1000, false);
        let mut mapping = machine.map(file, 0);
        for (index, pages) in [(0, start), (500, elsewhere)] {
            let reads = machine.store.disk.reads;
            let step = |machine: &mut Machine| machine.touch(&mut mapping, index, false, &mut Burst::default());
            assert_eq!(
                counted(&mut machine, step),
                [
                    ("vnode pager pageins", 1),
                    ("vnode pager pages paged in", pages),
                    ("total VM faults taken", 1),
                    ("page ins", 1)
                ],
                "{version:?} at {index}"
            );
            assert_eq!(machine.store.disk.reads, reads + 1);
        }
    }
}

#[test]
fn reads_and_writes_through_the_buffer_cache_are_neither_faults_nor_pager_operations() {
    let mut machine = machine(FreebsdParams::default());
    let file = machine.add_object(1000, false);
    assert_eq!(counted(&mut machine, |m| m.read(file, 0..10, &mut Burst::default())), []);
    assert_eq!(machine.store.disk.reads, 1);
    assert_eq!(counted(&mut machine, |m| m.write(file, 100..900, &mut Burst::default())), []);
    assert!(machine.store.disk.writes > 0, "the buffer cache wrote what it let go of");
}

#[test]
fn a_cached_page_that_is_touched_is_reactivated_by_a_soft_fault() {
    let (mut machine, file) = pressed(FreebsdParams::default());
    let index = first_cached(&machine, file);
    let mut mapping = machine.map(file, 0);
    let reads = machine.store.disk.reads;
    let step = |machine: &mut Machine| machine.touch(&mut mapping, index, false, &mut Burst::default());
    assert_eq!(counted(&mut machine, step), [("pages reactivated", 1), ("total VM faults taken", 1)]);
    let index = first_cached(&machine, file);
    let step = |machine: &mut Machine| machine.read(file, index..index + 1, &mut Burst::default());
    assert_eq!(counted(&mut machine, step), [("pages reactivated", 1)], "read() finds it too");
    assert_eq!(machine.store.disk.reads, reads);
}

/// Read-ahead and read-behind stop at a cached page (spec: freebsd §3.4, IFNOTCACHED).
#[test]
fn reading_ahead_stops_at_a_cached_page() {
    let (mut machine, file) = pressed(FreebsdParams::default());
    let object = *machine.store.object(file);
    let gone = |index: u32| {
        let page = object.first + index;
        !machine.store.is_resident(page) && !machine.store.frames.is_cached(page)
    };
    let at = (1..object.pages).find(|index| {
        !index.is_multiple_of(16) && gone(index - 1) && machine.store.frames.is_cached(object.first + index)
    });
    let at = at.expect("a cached page after one that is gone");
    let mut mapping = machine.map(file, 0);
    machine.touch(&mut mapping, at - 1, false, &mut Burst::default());
    assert!(machine.store.is_resident(object.first + at - 1));
    assert!(machine.store.frames.is_cached(object.first + at), "still cached");
}

#[test]
fn cached_pages_are_all_accounted_for() {
    let (mut machine, file) = pressed(FreebsdParams::default());
    let add_up = |machine: &Machine| {
        let cached = machine.store.frames.counters();
        let still = u64::from(machine.store.frames.cached());
        assert_eq!(machine.counters().pages_cached, cached.reactivated + cached.overwritten + cached.discarded + still);
        assert!(cached.overwritten > 0 && still > 0);
    };
    add_up(&machine);
    // Its object goes: cached pages turn free without being freed; resident ones are freed, each once.
    let resident = {
        let object = *machine.store.object(file);
        (0..object.pages).filter(|index| machine.store.is_resident(object.first + index)).count() as u64
    };
    assert_eq!(counted(&mut machine, |m| m.discard(file)), [("pages freed", resident)]);
    assert_eq!(machine.store.frames.cached(), 0);
}

#[test]
fn without_cached_pages_the_daemon_frees() {
    let (with, _) = pressed(FreebsdParams::default());
    let (without, _) = pressed(FreebsdParams { cached_pages: false, ..FreebsdParams::default() });
    let (with, without) = (with.counters(), without.counters());
    assert!(with.pages_cached > 0 && with.pages_freed == 0);
    assert!(without.pages_cached == 0 && without.pages_freed > 0);
    for counters in [with, without] {
        assert!(counters.page_daemon_wakeups > 0);
        assert!(counters.page_daemon_pages >= counters.pages_cached + counters.pages_freed);
    }
}

/// A dirty page is written with up to 15 neighbours, one request; what comes back is one request too, of at most 7
/// pages on each side.
#[test]
fn swap_counts_requests_and_their_pages() {
    let mut machine = machine(FreebsdParams::default());
    let memory = machine.add_object(2 * FRAMES, true);
    let mut mapping = machine.map(memory, 0);
    let mut burst = Burst::default();
    for page in 0..2 * FRAMES {
        machine.touch(&mut mapping, page, true, &mut burst);
    }
    let counters = machine.counters();
    assert!(counters.swap_pageouts > 0);
    assert!((1..=16).contains(&(counters.swap_pages_out / counters.swap_pageouts)));
    assert_eq!((counters.swap_pageins, counters.vnode_pageins), (0, 0));
    let first = machine.store.object(memory).first;
    let away = (0..2 * FRAMES).find(|index| {
        let page = first + index;
        !machine.store.is_resident(page) && !machine.store.frames.is_cached(page) && machine.store.is_on_swap(page)
    });
    let away = away.expect("pages were swapped out");
    let before = machine.counters();
    machine.touch(&mut mapping, away, false, &mut burst);
    let counted = machine.counters().since(&before);
    assert_eq!((counted.faults, counted.hard_faults, counted.swap_pageins, counted.zero_fills), (1, 1, 1, 0));
    assert!((1..=15).contains(&counted.swap_pages_in));
}

/// The daemon's targets are crossed from above: not woken before, woken once then (spec: freebsd §2, §3).
#[test]
fn the_daemon_is_woken_at_the_threshold() {
    let mut machine = machine(FreebsdParams::default());
    let threshold = machine.policy.targets().wakeup_threshold as u32;
    let memory = machine.add_object(FRAMES, true);
    let mut mapping = machine.map(memory, 0);
    let mut burst = Burst::default();
    for page in 0..FRAMES - threshold {
        machine.touch(&mut mapping, page, true, &mut burst);
    }
    assert_eq!(machine.counters().page_daemon_wakeups, 0);
    machine.touch(&mut mapping, FRAMES - threshold, true, &mut burst);
    assert!(machine.counters().page_daemon_wakeups > 0);
}

/// The worked example of spec: freebsd §3.1: of seven mappings whose accessed bits are set one look finds five, the
/// next two.
#[test]
fn a_look_finds_five_references_and_leaves_the_others() {
    let mut machine = machine(FreebsdParams::default());
    let text = machine.add_object(1, false);
    let page = machine.store.object(text).first;
    machine.store.young[page as usize] = 0b111_1111;
    let take = |store: &mut Store, limit| store.take_references_up_to(page, limit).expect("its walk stops").mappings;
    let looks = [0; 3].map(|_| take(&mut machine.store, 5));
    assert_eq!(looks, [5, 2, 0]);
    // The walk goes on behind the last one that it reached: a page that is touched again does not hide the others.
    machine.store.young[page as usize] = 0b111_1111;
    assert_eq!(take(&mut machine.store, 5), 5);
    let left = machine.store.young[page as usize];
    machine.store.young[page as usize] |= !left & 0b111_1111;
    assert_eq!(take(&mut machine.store, 2), 2);
    assert_eq!(machine.store.young[page as usize] & left, 0, "the two that were left come first");
}
