//! `refault top` of a page cache: what a program's cache writes about itself, and whether what it says of other sizes
//! is what a replay of the same accesses misses.

use std::io::{self, IoSlice, IoSliceMut};

use assert_cmd::Command;
use refault_cache::{Backing, CacheOptions, PageCache, WhatIf};
use refault_core::policy::{BuildContext, FrontEnd, PolicySpec, registry};
use refault_sim::flat_memory::Swap;
use refault_sim::{LayoutBuilder, Limits, named};
use refault_testing::Random;
use refault_trace::{Entry, Kind};

const PAGE: u64 = 4096;
/// Enough that the answers come from a part of the pages.
const FRAMES: u64 = 32_768;
const PAGES: u64 = 131_072;
const ACCESSES: usize = 600_000;

/// A file that takes no time.
struct Zeros;

impl Backing for Zeros {
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let wanted: usize = into.iter().map(|slice| slice.len()).sum();
        Ok(wanted.min((PAGES * PAGE).saturating_sub(offset) as usize))
    }
    fn write(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(PAGES * PAGE)
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

/// The smaller of two: low pages are read more often.
fn accesses() -> Vec<u64> {
    let mut random = Random::new(11);
    (0..ACCESSES).map(|_| random.below(PAGES).min(random.below(PAGES))).collect()
}

/// Misses of a replay of the recorded accesses.
fn replayed(policy: &str, accesses: &[u64], memory_pages: usize) -> u64 {
    let entries: Vec<Entry> = accesses.iter().map(|page| Entry::new(*page, Kind::Fd, false)).collect();
    let mut builder = LayoutBuilder::new();
    builder.observe(&entries);
    let layout = builder.finish().expect("few pages");
    let mut translated = Vec::new();
    layout.translate(&entries, &mut translated);
    let spec = PolicySpec::parse_for(policy, FrontEnd::PageCache).expect("a policy");
    let limits = Limits { memory_pages, swap: Swap::default() };
    let mut replay = named::replay(&spec, &BuildContext::default(), &layout, limits);
    replay.run(&translated);
    replay.outcome().misses
}

#[test]
fn a_cache_is_watched_and_what_it_says_of_other_sizes_is_what_a_replay_misses() {
    let directory = tempfile::tempdir().expect("a directory");
    let statistics = directory.path().join("cache.jsonl");
    let accesses = accesses();
    for policy in ["lru", "s3fifo"] {
        let _ = std::fs::remove_file(&statistics);
        let options = CacheOptions {
            memory: FRAMES * PAGE,
            policy: policy.into(),
            read_ahead: Some(0),
            what_if: WhatIf { policies: vec![policy.into()], memory: Vec::new() },
            statistics: Some(statistics.clone()),
            ..CacheOptions::default()
        };
        let cache = PageCache::new(&options).expect("a cache");
        let file = cache.attach(Box::new(Zeros)).expect("opens");
        for page in &accesses {
            file.read_at(&mut [0; 8], page * PAGE).expect("reads");
        }
        let report = cache.report();
        // Frames gave way to what is kept of pages: some more are missed than with all of them, and no more than with
        // those that are left.
        let [all, left] =
            [FRAMES, report.memory_bytes / PAGE].map(|frames| replayed(policy, &accesses, frames as usize));
        assert!(left > all && (all..=left).contains(&report.misses), "{all} to {left}, {} missed", report.misses);
        let answers = &report.would_miss;
        assert_eq!(answers.len(), 4, "half, once, twice and four times its memory");
        for answer in answers {
            let truth = replayed(policy, &accesses, (answer.memory_bytes / PAGE) as usize);
            let off = (answer.misses as f64 - truth as f64) / accesses.len() as f64;
            assert!(off.abs() <= 0.01, "{answer:?}: a replay misses {truth}");
        }
        drop((file, cache));
        let output = Command::cargo_bin("refault")
            .expect("the command")
            .args(["top", "--once", "--width", "110"])
            .arg(&statistics)
            .output()
            .expect("runs");
        let shown = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let double = &answers[2];
        let ratio = 100.0 - double.misses as f64 * 100.0 / double.accesses as f64;
        let own = 100.0 * report.hits as f64 / accesses.len() as f64;
        for part in [
            "page cache".to_owned(),
            format!("at {} MiB    the ratio would be {ratio:.2} %", (2 * FRAMES * PAGE) >> 20),
            format!("{own:.2} % of 600,000 pages"),
        ] {
            assert!(shown.contains(&part), "{part} is not in\n{shown}");
        }
    }
}

#[test]
fn every_policy_can_be_watched_and_a_file_that_cannot_be_written_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = |policy: &str, file: &str| {
        PageCache::new(&CacheOptions {
            policy: policy.into(),
            what_if: WhatIf { policies: vec![policy.into()], memory: Vec::new() },
            statistics: Some(directory.path().join(file)),
            ..CacheOptions::default()
        })
    };
    for spec in registry::all(FrontEnd::PageCache) {
        open(spec.entry.name, "cache.jsonl").expect("a cache that says what it would miss");
    }
    let text = std::fs::read_to_string(directory.path().join("cache.jsonl")).expect("lines");
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert!(line["last"] == true && line["would_miss"][3]["policy"] == line["policy"], "{line}");
    }
    assert_eq!(text.lines().count(), registry::all(FrontEnd::PageCache).count());
    let error = open("lru", "no/cache.jsonl").map(drop).expect_err("no such directory");
    assert!(error.to_string().contains("cannot write statistics of the page cache"), "{error}");
}

/// Not a test: a program with a cache, in a directory of its own, until it is killed.
#[test]
fn server() {
    if std::env::var_os("REFAULT_CACHE_TOP_SERVER").is_none() {
        return;
    }
    let cache = PageCache::new(&CacheOptions::default()).expect("a cache");
    let file = cache.attach(Box::new(Zeros)).expect("opens");
    std::env::set_current_dir("/").expect("it is there");
    loop {
        file.read_at(&mut [0; 8], 0).expect("reads");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn a_relative_file_is_the_programs_whatever_runs_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = std::process::Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "server"])
        .current_dir(&directory)
        .env("REFAULT_CACHE_TOP_SERVER", "1")
        .env("REFAULT_CACHE_STATS", "./cache.jsonl")
        .env("REFAULT_CACHE_WHAT_IF", "lru s3fifo")
        // As under `refault run` without --stats.
        .env("REFAULT_AGENT", "layout=0\x1fmemory=1")
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let statistics = directory.path().join("cache.jsonl");
    while !std::fs::metadata(&statistics).is_ok_and(|file| file.len() > 0) && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let command = || Command::cargo_bin("refault").expect("the command");
    let pid = server.id().to_string();
    let output = command().args(["top", "--once", "--width", "120", &pid]).output().expect("runs");
    server.kill().expect("it runs");
    server.wait().expect("it ran");
    let shown = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && shown.contains(&format!("process {pid}, page cache 0, ")), "{shown}{said}");
    for policy in ["lru", "s3fifo"] {
        assert!(shown.contains(&format!("under {policy}, without readahead")), "{policy} was asked about: {shown}");
    }
    // It was killed: some seconds later that is to be seen.
    std::thread::sleep(std::time::Duration::from_secs(5));
    let output = command().args(["top", "--once", "--width", "120"]).arg(&statistics).output().expect("runs");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("page cache 0, silent for "), "{shown}");
}
