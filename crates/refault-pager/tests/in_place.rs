//! Accesses to evicted pages that are served in the stored copy, live.
#![cfg(target_arch = "x86_64")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::*;
use refault_pager::{FaultMode, Hint, PagerOptions, Region};
use refault_store::TieredStoreOptions;
use refault_store::codec::Codec;

fn in_place() -> PagerOptions {
    PagerOptions { policy: "lrfu".to_owned(), fault_mode: FaultMode::InThread, in_place: true, ..options() }
}

/// A word by one plain load.
fn load(region: &Region, at: usize) -> u64 {
    // SAFETY: inside the region (the slice sees to that), which is plain memory; aligned.
    unsafe { region[at..at + 8].as_ptr().cast::<u64>().read_volatile() }
}

/// The word that [`fill`] leaves at a place.
fn word_at(at: usize) -> u64 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

fn fill(region: &mut Region) {
    for (index, word) in region.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&word_at(index * 8).to_le_bytes());
    }
}

/// Loads from random places, until the policy has seen enough of them.
fn read_at_random(region: &Region, reads: usize, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..reads {
        let at = random.below(region.len() / 8) * 8;
        assert_eq!(load(region, at), word_at(at), "at {at:#x}");
    }
}

#[test]
fn scattered_reads_are_served_in_place_and_right() {
    if skipped() {
        return;
    }
    let pager = pager(4, in_place());
    let mut region = pager.region(16 * MIB).expect("a region");
    fill(&mut region);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let region = &region;
            scope.spawn(move || read_at_random(region, 30_000, seed));
        }
    });
    let report = pager.report();
    assert!(report.read_in_place > 10_000, "{report:?}");
    assert!(report.resident_bytes <= report.budget_bytes, "{report:?}");
    // They are major faults that bring nothing in.
    let brought_in = report.counters.pswpin - report.prefetched;
    let in_place = report.read_in_place + report.written_in_place;
    assert_eq!(report.counters.pgmajfault, brought_in + in_place, "{report:?}");
    assert_eq!(report.lost, 0);
}

#[test]
fn what_is_read_again_and_again_comes_in() {
    if skipped() {
        return;
    }
    let pager = pager(4, in_place());
    let mut region = pager.region(16 * MIB).expect("a region");
    fill(&mut region);
    read_at_random(&region, 30_000, 1);
    // A new working set of half of memory.
    let mut random = Random(2);
    let pages: Vec<usize> = (0..512).map(|_| random.below(4096)).collect();
    let mut read = |rounds: usize| {
        for _ in 0..rounds * pages.len() {
            let at = pages[random.below(pages.len())] * PAGE + random.below(512) * 8;
            assert_eq!(load(&region, at), word_at(at));
        }
    };
    read(40);
    let before = pager.report().counters.pgmajfault;
    read(20);
    let faults = pager.report().counters.pgmajfault - before;
    assert!(faults < 512, "{faults} faults in 10,240 reads of 512 pages of 1024");
}

#[test]
fn pages_that_are_read_whole_come_in() {
    if skipped() {
        return;
    }
    let pager = pager(4, PagerOptions { detect_cycles: false, ..in_place() });
    let mut region = pager.region(16 * MIB).expect("a region");
    fill(&mut region);
    let mut random = Random(7);
    let mut read_pages = |pages: usize| {
        for _ in 0..pages {
            let page = random.below(4096) * PAGE;
            (page..page + PAGE).step_by(8).for_each(|at| assert_eq!(load(&region, at), word_at(at)));
        }
    };
    read_pages(20_000);
    let before = pager.report();
    read_pages(20_000);
    let after = pager.report();
    // One try in seventeen, once it was seen that it does not pay.
    let tried = after.read_in_place - before.read_in_place;
    let faults = after.counters.pgmajfault - before.counters.pgmajfault;
    assert!(tried * 4 < faults, "{tried} of {faults}");
}

/// The same instruction, whoever calls.
#[inline(never)]
fn store(region: &mut Region, at: usize, value: u64) {
    // SAFETY: inside the region, aligned.
    unsafe { region[at..at + 8].as_mut_ptr().cast::<u64>().write_volatile(value) };
}

#[test]
fn a_store_that_ends_a_list_is_judged_apart_from_one_within() {
    if skipped() {
        return;
    }
    let pager = pager(4, PagerOptions { detect_cycles: false, ..in_place() });
    let mut region = pager.region(16 * MIB).expect("a region");
    fill(&mut region);
    let mut random = Random(9);
    let mut walk_and_take_out = |region: &mut Region, times: usize| {
        for _ in 0..times {
            // The end of a list is looked at next.
            let end = random.below(4096) * PAGE;
            store(region, end, 0);
            (end + 8..end + PAGE).step_by(8).for_each(|at| assert_eq!(load(region, at), word_at(at)));
            let neighbour = random.below(4096) * PAGE;
            store(region, neighbour, word_at(neighbour) | 1);
        }
    };
    walk_and_take_out(&mut region, 20_000);
    let before = pager.report();
    walk_and_take_out(&mut region, 10_000);
    let after = pager.report();
    // Judged together, both are tried one time in seventeen.
    let written = after.written_in_place - before.written_in_place;
    assert!(written > 2000, "{written}, {after:?}");
}

#[test]
fn scattered_writes_are_served_in_place_and_none_is_lost() {
    if skipped() {
        return;
    }
    for keep_clean in [None, Some(true)] {
        let pager = pager(4, PagerOptions { keep_clean, ..in_place() });
        let mut region = pager.region(16 * MIB).expect("a region");
        let words: Vec<&AtomicU64> = region
            .chunks_exact_mut(8)
            // SAFETY: aligned, inside the region, and only accessed like this.
            .map(|word| unsafe { &*word.as_ptr().cast::<AtomicU64>() })
            .collect();
        let own = |thread: usize| words.iter().skip(thread).step_by(3);
        for (number, word) in words.iter().enumerate() {
            word.store(number as u64, Ordering::Relaxed);
        }
        // Threads share pages and no words.
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let words: Vec<&AtomicU64> = own(thread).copied().collect();
                scope.spawn(move || {
                    let mut random = Random(thread as u64);
                    let mut written: Vec<u64> = (0..words.len()).map(|at| (3 * at + thread) as u64).collect();
                    for round in 0..30_000 {
                        let (at, other) = (random.below(words.len()), random.below(words.len()));
                        written[at] = random.next() ^ round;
                        words[at].store(written[at], Ordering::Relaxed);
                        assert_eq!(words[other].load(Ordering::Relaxed), written[other]);
                    }
                    let whole =
                        words.iter().zip(&written).all(|(word, written)| word.load(Ordering::Relaxed) == *written);
                    assert!(whole, "a write was lost");
                });
            }
        });
        let report = pager.report();
        assert!(report.written_in_place > 5000 && report.read_in_place > 5000 && report.lost == 0, "{report:?}");
        assert!(report.resident_bytes <= report.budget_bytes, "{report:?}");
    }
}

#[test]
fn a_store_that_the_full_pool_does_not_take_brings_the_page_in() {
    if skipped() {
        return;
    }
    let store = TieredStoreOptions { pool_limit: 6 << 20, codec: Codec::Lz4, file: None };
    let pager = pager(4, PagerOptions { store, ..in_place() });
    let mut region = pager.region(8 * MIB).expect("a region");
    let mut random = Random(3);
    let mut expected = vec![0u64; MIB];
    let word = |region: &mut Region, at: usize| region[at * 8..].as_mut_ptr().cast::<u64>();
    for round in 0..60_000 {
        let at = if round < 2048 { round * 512 } else { random.below(MIB) };
        expected[at] = random.next();
        // SAFETY: inside the region, aligned.
        unsafe { word(&mut region, at).write_volatile(expected[at]) };
    }
    for (at, expected) in expected.iter().enumerate() {
        // SAFETY: as above.
        assert_eq!(unsafe { word(&mut region, at).read_volatile() }, *expected, "word {at}");
    }
    let report = pager.report();
    assert!(report.written_in_place > 0 && report.lost == 0, "{report:?}");
}

#[test]
fn pages_that_are_written_after_a_load_come_in() {
    if skipped() {
        return;
    }
    let pager = pager(4, in_place());
    let mut region = pager.region(16 * MIB).expect("a region");
    fill(&mut region);
    let mut random = Random(8);
    let mut read_and_write = |region: &mut Region, times: usize| {
        for _ in 0..times {
            let at = random.below(16 * MIB / 8) * 8;
            let word = load(region, at);
            assert_eq!(word, word_at(at));
            // SAFETY: inside the region, aligned.
            unsafe { region[at..].as_mut_ptr().cast::<u64>().write_volatile(word) };
        }
    };
    read_and_write(&mut region, 20_000);
    let before = pager.report();
    read_and_write(&mut region, 60_000);
    let after = pager.report();
    let tried = after.read_in_place - before.read_in_place;
    let faults = after.counters.pgmajfault - before.counters.pgmajfault;
    assert!(tried * 4 < faults, "{tried} of {faults}");
}

#[test]
fn while_there_is_room_pages_come_in() {
    if skipped() {
        return;
    }
    let pager = pager(4, in_place());
    let mut region = pager.region(16 * MIB).expect("a region");
    fill(&mut region);
    read_at_random(&region, 20_000, 9);
    let before = pager.report().read_in_place;
    assert!(before > 5000, "{before}");
    pager.resize(32 * MIB as u64, std::time::Duration::from_secs(5)).expect("more");
    read_at_random(&region, 20_000, 10);
    assert_eq!(pager.report().read_in_place, before);
    let faults = pager.report().counters.pgmajfault;
    read_at_random(&region, 20_000, 10);
    assert_eq!(pager.report().counters.pgmajfault, faults);
}

#[test]
fn nothing_is_done_in_place_once_rights_are_taken_away() {
    if skipped() {
        return;
    }
    let pager = pager(4, in_place());
    let mut region = pager.region(16 * MIB).expect("a region");
    fill(&mut region);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (region, stop) = (&region, &stop);
            scope.spawn(move || {
                let mut seeds = seed..;
                while !stop.load(Ordering::Relaxed) {
                    read_at_random(region, 100, 2 * seeds.next().expect("there is no end") + seed);
                }
            });
        }
        while pager.report().read_in_place < 5000 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        pager.end_in_place();
        let before = pager.report();
        std::thread::sleep(std::time::Duration::from_millis(300));
        let after = pager.report();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(after.read_in_place, before.read_in_place);
        assert!(after.counters.pswpin > before.counters.pswpin);
    });
}

#[test]
fn what_is_read_in_order_is_not_read_in_place() {
    if skipped() {
        return;
    }
    for hint in [Hint::Normal, Hint::Sequential, Hint::Cyclic] {
        let pager = pager(4, in_place());
        let mut region = pager.region(16 * MIB).expect("a region");
        region.hint(hint);
        fill(&mut region);
        for _ in 0..6 {
            (0..16 * MIB).step_by(64).for_each(|at| assert_eq!(load(&region, at), word_at(at)));
        }
        let report = pager.report();
        assert!(report.read_in_place < 400, "{hint:?}: {report:?}");
    }
}

#[test]
fn a_reader_never_sees_an_older_value_than_before() {
    if skipped() {
        return;
    }
    let pager = pager(1, in_place());
    let mut region = pager.region(8 * MIB).expect("a region");
    region.chunks_exact_mut(PAGE).enumerate().for_each(|(number, page)| write_page(&mut page[64..], number, 1));
    let words: Vec<&AtomicU64> = region
        .chunks_exact(PAGE)
        // SAFETY: aligned, inside the region, and only accessed like this from here on.
        .map(|page| unsafe { &*page.as_ptr().cast::<AtomicU64>() })
        .collect();
    words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (words, stop) = (&words, &stop);
            scope.spawn(move || {
                let mut random = Random(seed);
                let mut seen = vec![0; words.len()];
                while !stop.load(Ordering::Relaxed) {
                    let number = random.below(words.len());
                    let value = words[number].load(Ordering::Acquire);
                    assert!(value >= seen[number], "page {number}: {value} after {}", seen[number]);
                    seen[number] = value;
                }
            });
        }
        let mut random = Random(99);
        let mut written = vec![0u64; words.len()];
        for _ in 0..40_000 {
            let number = random.below(words.len());
            assert_eq!(words[number].load(Ordering::Acquire), written[number], "page {number}: a write was lost");
            written[number] += 1;
            words[number].store(written[number], Ordering::Release);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let report = pager.report();
    assert!(report.read_in_place > 1000 && report.lost == 0, "{report:?}");
}

/// Each kind of load, as compilers make them.
macro_rules! one_load {
    ($name:ident, $result:ty, $instruction:literal) => {
        fn $name(from: *const u8) -> $result {
            let result: $result;
            // SAFETY: reads at most eight bytes there.
            unsafe { std::arch::asm!($instruction, from = in(reg) from, to = out(reg) result, options(readonly)) };
            result
        }
    };
}

one_load!(whole, u64, "mov {to}, [{from}]");
one_load!(half, u64, "mov {to:e}, [{from}]");
one_load!(with_zeros, u64, "movzx {to:e}, word ptr [{from}]");
one_load!(with_sign, i64, "movsx {to}, byte ptr [{from}]");
one_load!(with_wide_sign, i64, "movsxd {to}, dword ptr [{from}]");
one_load!(indexed, u64, "lea {to}, [{from} - 32]\nmov {to}, [{to} + 32]");

fn added(from: *const u8) -> u64 {
    let mut sum = 5u64;
    // SAFETY: reads eight bytes there.
    unsafe { std::arch::asm!("add {sum}, [{from}]", from = in(reg) from, sum = inout(reg) sum, options(readonly)) };
    sum
}

fn is_above(from: *const u8, number: u32) -> bool {
    let above: u8;
    // SAFETY: reads four bytes there.
    unsafe {
        std::arch::asm!("cmp dword ptr [{from}], {number:e}", "seta {above}", from = in(reg) from,
            number = in(reg) number, above = out(reg_byte) above, options(readonly));
    }
    above != 0
}

fn vector(from: *const u8) -> [u8; 16] {
    let mut bytes = [0; 16];
    // SAFETY: reads 16 bytes there and writes the array.
    unsafe {
        std::arch::asm!("movups {x}, [{from}]", "movups [{to}], {x}", from = in(reg) from,
            to = in(reg) bytes.as_mut_ptr(), x = out(xmm_reg) _);
    }
    bytes
}

fn double(from: *const u8) -> [u8; 16] {
    let mut bytes = [0; 16];
    // SAFETY: reads eight bytes there and writes the array.
    unsafe {
        std::arch::asm!("movsd {x}, qword ptr [{from}]", "movups [{to}], {x}", from = in(reg) from,
            to = in(reg) bytes.as_mut_ptr(), x = out(xmm_reg) _);
    }
    bytes
}

#[test]
fn each_kind_of_load_finds_what_is_there_also_across_pages() {
    if skipped() {
        return;
    }
    let pager = pager(2, in_place());
    let mut region = pager.region(16 * MIB).expect("a region");
    fill(&mut region);
    let expected: Vec<u8> = (0..16 * MIB).step_by(8).flat_map(|at| word_at(at).to_le_bytes()).collect();
    let mut random = Random(11);
    for round in 0..60_000 {
        // Unaligned, and often on the border of two pages.
        let mut at = random.below(region.len() - 64) + 32;
        if round % 4 == 0 {
            at = at / PAGE * PAGE + PAGE - 1 - random.below(16);
        }
        let at = at.min(region.len() - 16);
        let (from, there) = (region[at..].as_ptr(), &expected[at..]);
        let word = u64::from_le_bytes(there[..8].try_into().unwrap());
        match random.below(10) {
            0 => assert_eq!(whole(from), word),
            1 => assert_eq!(half(from), u64::from(word as u32)),
            2 => assert_eq!(with_zeros(from), u64::from(word as u16)),
            3 => assert_eq!(with_sign(from), i64::from(word as i8)),
            4 => assert_eq!(with_wide_sign(from), i64::from(word as i32)),
            5 => assert_eq!(indexed(from), word),
            6 => assert_eq!(added(from), word.wrapping_add(5)),
            7 => assert_eq!(is_above(from, 1 << 30), word as u32 > 1 << 30),
            8 => assert_eq!(vector(from), there[..16]),
            _ => assert_eq!(double(from), u128::from(word).to_le_bytes()),
        }
    }
    let report = pager.report();
    assert!(report.read_in_place > 10_000, "{report:?}");
}

#[test]
fn with_handlers_and_with_other_policies_pages_come_in() {
    if skipped() {
        return;
    }
    let handler = PagerOptions { fault_mode: FaultMode::Handler { threads: 1 }, ..in_place() };
    let other = PagerOptions { policy: "mglru".to_owned(), ..in_place() };
    for options in [handler, other] {
        let pager = pager(4, options);
        let mut region = pager.region(16 * MIB).expect("a region");
        fill(&mut region);
        read_at_random(&region, 10_000, 4);
        assert_eq!(pager.report().read_in_place, 0);
    }
}
