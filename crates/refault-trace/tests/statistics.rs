//! Statistics and sampling against obvious counts of the same trace.

use std::collections::HashSet;

use proptest::prelude::*;
use refault_trace::reuse::{DistanceHistogram, ReuseDistances};
use refault_trace::shards::Shards;
use refault_trace::statistics::{Resolution, StatisticsBuilder, TraceStatistics};
use refault_trace::{Entry, Kind, Options, Source};

fn is_file(entry: &Entry) -> bool {
    entry.kind() != Some(Kind::Anon)
}

fn distinct<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> u64 {
    entries.into_iter().map(|entry| (entry.page(), is_file(entry))).collect::<HashSet<_>>().len() as u64
}

proptest! {
    #[test]
    fn statistics_are_what_counting_gives(
        raw in prop::collection::vec((prop_oneof![0..50u64, 0..=Entry::MAX_PAGE], 0..3usize, any::<bool>()), 1..400),
        columns in 1..20usize, rows in 1..20usize,
    ) {
        let kinds = [Kind::Anon, Kind::Fd, Kind::Mapped];
        let entries: Vec<_> = raw.iter().map(|(page, kind, write)| Entry::new(*page, kinds[*kind], *write)).collect();
        let mut builder = StatisticsBuilder::new(entries.len() as u64, Resolution { columns, rows });
        for part in entries.chunks(37) {
            prop_assert!(builder.observe(part));
        }
        let statistics = builder.finish();
        prop_assert_eq!(statistics.accesses, entries.len() as u64);
        prop_assert_eq!(statistics.distinct_pages, distinct(&entries));
        prop_assert_eq!(statistics.distinct_file_pages, distinct(entries.iter().filter(|entry| is_file(entry))));
        prop_assert_eq!(statistics.distinct_anon_pages + statistics.distinct_file_pages, statistics.distinct_pages);
        prop_assert_eq!(statistics.reads() + statistics.writes(), statistics.accesses);
        for (kind, count) in kinds.iter().zip(statistics.kinds) {
            let of_kind = |write| entries.iter().filter(|e| e.kind() == Some(*kind) && e.write() == write).count() as u64;
            prop_assert_eq!((count.reads, count.writes), (of_kind(false), of_kind(true)));
        }
        prop_assert_eq!(statistics.reuse.accesses(), statistics.accesses);
        prop_assert_eq!(statistics.reuse.cold(), statistics.distinct_pages);

        let span = statistics.heat_map.accesses_per_column as usize;
        prop_assert_eq!(statistics.footprint.len(), entries.len().div_ceil(span));
        for (window, point) in entries.chunks(span).zip(&statistics.footprint) {
            prop_assert_eq!(point.window_pages, distinct(window));
            prop_assert_eq!(point.distinct_pages, distinct(&entries[..point.accesses as usize]));
        }
        prop_assert!(statistics.heat_map.rows.len() <= rows + 1);
        for (column, window) in entries.chunks(span).enumerate() {
            for row in &statistics.heat_map.rows {
                let inside = |e: &&Entry| is_file(e) == row.file && (row.first_page..=row.last_page).contains(&e.page());
                prop_assert_eq!(row.counts[column], window.iter().filter(inside).count() as u64);
            }
        }
        let total: u64 = statistics.heat_map.rows.iter().flat_map(|row| &row.counts).sum();
        prop_assert_eq!(total, statistics.accesses);
    }
}

#[test]
fn many_regions_are_made_coarser_without_losing_accesses() {
    let source = Source::workload("uniform:pages=300000,accesses=200000".parse().expect("valid"));
    let mut last = 0.0;
    let statistics = TraceStatistics::of(&source, Resolution { columns: 7, rows: 10 }, |done| {
        assert!(done >= last, "progress grows");
        last = done;
    })
    .expect("readable");
    let map = &statistics.heat_map;
    assert!((8..=11).contains(&map.rows.len()), "{}", map.rows.len());
    assert_eq!(map.rows.iter().flat_map(|row| &row.counts).sum::<u64>(), 200_000);
    assert!(map.rows.windows(2).all(|rows| rows[0].last_page < rows[1].first_page));
    assert_eq!(statistics.footprint.len(), 7);
}

#[test]
fn traces_of_unknown_length_take_two_passes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("t.txt");
    std::fs::write(&path, "5\n6\n5\n7\n").expect("written");
    let source = Source::file(path, Options::default());
    let statistics = TraceStatistics::of(&source, Resolution { columns: 2, rows: 4 }, |_| {}).expect("readable");
    let windows: Vec<_> = statistics.footprint.iter().map(|point| point.window_pages).collect();
    assert_eq!((statistics.accesses, windows), (4, vec![2, 2]));
}

/// A trace's entries, its exact miss ratios at some sizes, and those sizes.
fn exact() -> (Vec<Entry>, Vec<f64>, Vec<u64>) {
    let source = Source::workload("zipf:theta=0.8,pages=20000,accesses=400000,seed=3".parse().expect("valid"));
    let entries = source.open().expect("valid").read_to_end().expect("generators do not fail");
    let (mut reuse, mut histogram) = (ReuseDistances::new(20_000), DistanceHistogram::new());
    entries.iter().for_each(|entry| histogram.record(reuse.access(entry.page() as u32)));
    let sizes = vec![200, 1000, 4000, 10_000, 20_000];
    let ratios = histogram.lru_misses(&sizes).iter().map(|misses| *misses as f64 / entries.len() as f64).collect();
    (entries, ratios, sizes)
}

#[test]
fn a_sample_of_everything_is_exact() {
    let (entries, exact, sizes) = exact();
    let mut shards = Shards::new(1.0, 2, 1);
    shards.observe(&entries);
    for (estimate, exact) in shards.finish().miss_ratios(&sizes).iter().zip(exact) {
        assert_eq!((estimate.miss_ratio, estimate.standard_error), (exact, Some(0.0)));
    }
}

#[test]
fn samples_estimate_the_curve_and_their_own_error() {
    let (entries, exact, sizes) = exact();
    let mut shards = Shards::new(0.05, 8, 1);
    entries.chunks(1000).for_each(|part| shards.observe(part));
    let curve = shards.finish();
    for sampled in curve.sampled_accesses() {
        assert!((5_000..60_000).contains(&sampled), "{sampled} of 400000");
    }
    for ((estimate, exact), size) in curve.miss_ratios(&sizes).iter().zip(exact).zip(sizes) {
        let error = estimate.standard_error.expect("several samples");
        // 99.9 % of the t distribution with 7 degrees of freedom lies within 5.4.
        let off = (estimate.miss_ratio - exact).abs();
        assert!(off <= 5.4 * error && error < 0.02, "{size}: {estimate:?}, exactly {exact}");
    }
}
