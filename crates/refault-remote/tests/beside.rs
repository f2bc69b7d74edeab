//! The benchmark `beside`, small: what its sides fetch is what can be said of them beforehand.

mod common;
#[path = "../benches/beside/rounds.rs"]
#[allow(dead_code, reason = "the benchmark uses the rest")]
mod rounds;
#[path = "../benches/beside/sides.rs"]
mod sides;
#[path = "../benches/beside/table.rs"]
mod table;
#[path = "../benches/beside/work.rs"]
mod work;

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use common::{MIB, contents};
use rounds::{AGAIN, Settings};
use sides::{Figures, Fsspec, Place, Side};
use work::{Size, Work};

const OBJECT: u64 = 8 * MIB as u64;
const SIZE: Size = Size { object: OBJECT, reads: 120, scanned: OBJECT / 4 };

fn place(python: Option<PathBuf>) -> (tempfile::TempDir, Place) {
    let home = tempfile::tempdir().expect("a directory");
    let place = Place::new(contents(OBJECT as usize, 1), home.path(), python).expect("serves");
    (home, place)
}

/// Bytes of the pages that some work reads, each once.
fn pages(work: &Work) -> u64 {
    let mut pages: Vec<u64> = work
        .steps
        .iter()
        .flatten()
        .flat_map(|range: &Range<u64>| range.start / 4096..range.end.div_ceil(4096))
        .collect();
    pages.sort_unstable();
    pages.dedup();
    pages.len() as u64 * 4096
}

#[test]
fn object_store_fetches_each_read_and_a_cache_each_page_once() {
    let (home, place) = place(None);
    let run = |side: &Side, work: &Work| place.run(side, work, home.path()).expect("reads what is there");
    let ours = Side::Refault { memory: 2 * OBJECT, local: false };
    for work in Work::all(SIZE) {
        let (all, different) = work.bytes();
        assert!(all > different || work.name == "scan", "{}: {all} {different}", work.name);
        if work.steps.iter().all(|step| step.len() == 1) {
            let Figures { requests, bytes, .. } = run(&Side::ObjectStore, &work);
            assert_eq!((requests, bytes), (work.steps.len() as u64, all), "{}", work.name);
        }
        if work.is_scan {
            let Figures { requests, bytes, .. } = run(&Side::ObjectStoreStream, &work);
            assert_eq!((requests, bytes), (1, all));
        }
        let once = run(&ours, &work);
        if work.name == "random reads" {
            assert_eq!(once.bytes, pages(&work));
        }
        let twice = Work { steps: [&work.steps[..], &work.steps[..]].concat(), ..work };
        let twice_run = run(&ours, &twice);
        assert_eq!(twice_run.bytes, once.bytes, "{}: what fits is fetched once", twice.name);
        assert_eq!(twice_run.requests, once.requests, "{}", twice.name);
    }
}

#[test]
fn a_local_file_fetches_nothing_after_a_restart_and_the_rows_say_who_starts_anew() {
    let settings = Settings {
        size: SIZE,
        memory: MIB as u64,
        latency: Duration::ZERO,
        pace: 0,
        request: 8 << 20,
        runs: 1,
        only: None,
        python: None,
    };
    let (text, rows) = rounds::run(&settings, |_| {}).expect("all sides read what is there");
    assert!(text.contains("object_store 0.") && text.contains("fsspec was not asked"), "{text}");
    let again: Vec<_> = rows.iter().filter(|row| row.work == AGAIN).collect();
    let ran: Vec<_> = again.iter().filter_map(|row| Some((&row.side, row.runs.as_ref().ok()?))).collect();
    assert!(again.len() == 3 && ran.len() == 1 && ran[0].0.contains("local file"), "{ran:?}");
    assert_eq!((ran[0].1[0].requests, ran[0].1[0].bytes), (1, 0), "its length and version alone");
    let markdown = table::markdown(&rows);
    assert_eq!(markdown.matches("starts anew").count(), 2, "{markdown}");
    assert_eq!(table::json(&text, &rows)["rows"].as_array().map(Vec::len), Some(rows.len()));
}

#[test]
fn bytes_that_are_wrong_are_no_result() {
    let (home, place) = place(None);
    let mut changed = place.contents.to_vec();
    changed.iter_mut().for_each(|byte| *byte ^= 1);
    place.server.change(changed);
    for side in Side::all(MIB as u64, false) {
        let error = place.run(&side, &Work::all(SIZE)[2], home.path()).expect_err("another object");
        assert!(error.to_string().starts_with("wrong bytes"), "{}: {error}", side.name());
    }
}

/// `scripts/dev/beside-remote` makes an environment with fsspec.
#[test]
fn fsspec_without_a_cache_fetches_each_read_and_reads_the_same() {
    let python = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/beside-remote/bin/python"));
    if !python.with_file_name("../made").exists() {
        refault_testing::skip("no environment with fsspec: scripts/dev/beside-remote makes one");
        return;
    }
    let (_home, place) = place(Some(python));
    assert!(place.versions().expect("is there").contains("fsspec 2"));
    let [random, columns, _] = &Work::all(SIZE)[..] else { panic!("three pieces of work") };
    for side in Side::all(MIB as u64, true) {
        let is_bare = matches!(&side, Side::Fsspec(Fsspec { cache: "none", .. }));
        // What has no cache asks for columns together.
        for work in [random].into_iter().chain(is_bare.then_some(columns)).filter(|work| side.does(work)) {
            let kept = tempfile::tempdir().expect("a directory");
            let figures = place.run(&side, work, kept.path()).expect("reads what is there");
            if is_bare {
                assert_eq!(figures.bytes, work.bytes().0, "{}", work.name);
            }
        }
    }
}
