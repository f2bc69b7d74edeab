//! Evicted pages that stay cached, under a limit (policies `freebsd` and `freebsd-nocache`).

use proptest::prelude::*;
use refault_core::{Freebsd, FreebsdParams};
use refault_sim::flat_memory::Swap;
use refault_sim::{Access, Layout, LayoutBuilder, Limits, Replay};
use refault_testing::Random;
use refault_trace::{Entry, Kind};

fn replay(entries: &[Entry], params: FreebsdParams, memory_pages: usize, swap_pages: u64) -> Replay<Freebsd> {
    let mut builder = LayoutBuilder::default();
    builder.observe(entries);
    let layout: Layout = builder.finish().expect("few pages");
    let mut accesses: Vec<Access> = Vec::new();
    layout.translate(entries, &mut accesses);
    let swap = Swap { pages: swap_pages, ..Swap::default() };
    let mut replay = Replay::new(&layout, Freebsd::new(params), Limits { memory_pages, swap });
    for block in accesses.chunks(64) {
        replay.run(block);
        let policy = replay.policy();
        assert!(replay.memory().resident() as u64 + policy.available() >= memory_pages as u64);
    }
    replay
}

/// A loop over slightly more than memory, read through descriptors.
fn scan_loop(pages: u64, rounds: u64) -> Vec<Entry> {
    (0..rounds).flat_map(|_| (0..pages).map(|page| Entry::new(page, Kind::Fd, false))).collect()
}

#[test]
fn cached_pages_save_reads() {
    // 4000 frames of which the daemon keeps 77 to 127 free; the loop is longer than what can be resident by less.
    let entries = scan_loop(3960, 20);
    let with = replay(&entries, FreebsdParams::default(), 4000, 0).outcome();
    let without = replay(&entries, FreebsdParams::no_cache(), 4000, 0).outcome();
    assert_eq!((without.counters.pages_cached, without.counters.pages_reactivated), (0, 0));
    assert!(without.misses > with.misses, "{} and {} misses", with.misses, without.misses);
    assert_eq!(with.misses, 3960, "all contents fit into the frames: only the first round reads");
    assert!(with.counters.pages_reactivated > 0);
    assert_eq!(with.counters.file_reads, with.misses);
}

#[test]
fn cached_anonymous_pages_need_no_swap_in() {
    let entries: Vec<_> = (0..20).flat_map(|_| (0..3960).map(|page| Entry::new(page, Kind::Anon, true))).collect();
    let with = replay(&entries, FreebsdParams::default(), 4000, 1 << 20).outcome();
    let without = replay(&entries, FreebsdParams::no_cache(), 4000, 1 << 20).outcome();
    assert_eq!(with.counters.pswpin, 0);
    assert!(without.counters.pswpin > 0 && with.counters.pswpout > 0);
}

#[test]
fn random_pages_over_twice_the_memory_are_seldom_found() {
    let mut random = Random::new(1);
    let entries: Vec<_> = (0..200_000).map(|_| Entry::new(random.below(8000), Kind::Fd, false)).collect();
    let out = replay(&entries, FreebsdParams::default(), 4000, 0).outcome();
    let share = out.counters.pages_reactivated as f64 / out.counters.pages_cached as f64;
    assert!(share > 0.0 && share < 0.05, "{share}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Any limit, any mix: it ends, and hits, misses and cached pages add up.
    #[test]
    fn every_limit_works(
        limit in 1..300usize, swap in prop_oneof![Just(0u64), Just(20), Just(1 << 20)], variant in 0..3u8,
        raw in prop::collection::vec((0..400u64, 0..3u8, any::<bool>()), 1..1500),
    ) {
        let entries: Vec<_> = raw
            .iter()
            .map(|(page, kind, write)| Entry::new(*page, [Kind::Anon, Kind::Fd, Kind::Mapped][*kind as usize], *write))
            .collect();
        let params = match variant {
            0 => FreebsdParams::default(),
            1 => FreebsdParams { cache_pool: false, ..FreebsdParams::default() },
            _ => FreebsdParams::no_cache(),
        };
        let out = replay(&entries, params, limit, swap).outcome();
        prop_assert_eq!(out.hits + out.misses, entries.len() as u64);
        if out.counters.limit_overruns == 0 {
            prop_assert!(out.resident <= limit);
            prop_assert_eq!(out.resident as u64 + out.counters.pgsteal, out.misses + out.counters.pages_reactivated);
        }
        if params.cached_pages {
            prop_assert!(out.counters.pages_cached <= out.counters.pgsteal);
            prop_assert!(out.counters.pages_reactivated <= out.counters.pages_cached);
        }
    }
}
