//! The history: what goes in comes out, a day of 200 groups is small, and foreign files are left alone.

use std::time::Duration;

use refault_host::curve::curve;
use refault_host::figures::{Figures, Stat};
use refault_host::history::{History, HistoryError, KEPT};
use refault_host::host::{AGES, Report, Row, WorkingSet};
use refault_host::name::of_path;

const MIB: u64 = 1 << 20;

/// A report of groups whose figures wander, as those of live ones do.
fn report(groups: u64, minute: u64) -> Report {
    let wander = |group: u64, figure: u64, most: u64| {
        let mixed = (group * 7919 + minute * 104_729 + figure * 1_299_709).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        mixed * 4096 % most
    };
    let row = |group: u64| {
        let path = format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{group:032x}.slice");
        let bytes = |figure: u64| wander(group, figure, 900 * MIB);
        let sets = (0..5).map(|age| {
            let seconds = AGES[age as usize].as_secs_f64();
            Some(WorkingSet { seconds, bytes: bytes(age), error_bytes: 0 })
        });
        let stat = Stat {
            anonymous_bytes: bytes(11),
            file_bytes: bytes(12),
            shared_bytes: bytes(13),
            inactive_file_bytes: bytes(14),
            ..Stat::default()
        };
        let max_bytes = group.is_multiple_of(2).then_some(1 << 30);
        Row {
            name: of_path(&path),
            path,
            cgroup_version: 2,
            hostname: None,
            program: None,
            processes: 1,
            figures: Figures { usage_bytes: bytes(10), stat, max_bytes, ..Figures::default() },
            kubelet_working_set_bytes: 0,
            vpa_target_bytes: None,
            working_sets: sets.collect(),
            refaults_per_second: Some((bytes(15) % 300) as f64),
            pressure: Some(0.012),
            curve: curve(&[], 0),
            proposal: None,
            id: group,
            directory: "/nowhere".into(),
        }
    };
    Report {
        version: 1,
        time_seconds: 1_800_000_000 + minute * 60,
        source: "a test".into(),
        ages_seconds: AGES.iter().map(Duration::as_secs_f64).collect(),
        processor_share: 0.0,
        groups: (0..groups).map(row).collect(),
    }
}

#[test]
fn a_day_of_two_hundred_groups_takes_at_most_20_mib() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("history.sqlite");
    let mut history = History::open(&file).expect("made");
    for minute in 0..24 * 60 {
        history.record(&report(200, minute)).expect("room");
    }
    drop(history);
    let bytes = std::fs::metadata(&file).expect("it is there").len();
    assert!(bytes <= 20 * MIB, "{bytes} bytes");
    assert!(bytes >= 5 * MIB, "{bytes} bytes are too few for what was kept");
}

#[test]
fn what_was_recorded_is_found_by_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("history.sqlite");
    let mut history = History::open(&file).expect("made");
    let reports: Vec<Report> = (0..3).map(|minute| report(2, minute)).collect();
    reports.iter().for_each(|report| history.record(report).expect("room"));
    drop(history);
    let history = History::open(&file).expect("it is one");
    let row = &reports[1].groups[0];
    let near = history.near(&row.path, reports[2].time_seconds - 1).expect("read").expect("known");
    assert_eq!((near.time_seconds, near.usage_bytes), (reports[1].time_seconds, row.figures.usage_bytes));
    assert_eq!(near.working_set_bytes, row.working_sets[4].map(|set| set.bytes));
    assert_eq!((near.max_bytes, near.anonymous_bytes), (Some(1 << 30), row.figures.stat.anonymous_bytes));
    assert_eq!(history.since(&row.path, reports[1].time_seconds).expect("read").len(), 2);
    assert_eq!(history.near(&row.path, reports[0].time_seconds - 1).expect("read"), None);
    assert_eq!(history.near("/elsewhere", u64::MAX / 2).expect("read"), None);
}

#[test]
fn old_rows_go_and_so_do_groups_that_are_gone() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("history.sqlite");
    let mut history = History::open(&file).expect("made");
    let (old, mut new) = (report(3, 0), report(1, 1));
    new.time_seconds = old.time_seconds + KEPT.as_secs() + 1;
    history.record(&old).expect("room");
    history.record(&new).expect("room");
    assert_eq!(history.since(&old.groups[0].path, 0).expect("read").len(), 1);
    assert_eq!(history.since(&old.groups[2].path, 0).expect("read").len(), 0);
    // Names go with some later look, at which old rows go too.
    for _ in 0..60 {
        new.time_seconds += KEPT.as_secs() + 1;
        history.record(&new).expect("room");
    }
    let database = rusqlite::Connection::open(&file).expect("it is one");
    let names: i64 = database.query_row("SELECT count(*) FROM groups", [], |row| row.get(0)).expect("a number");
    assert_eq!(names, 1);
}

#[test]
fn other_databases_and_other_files_are_refused_and_stay_as_they_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let foreign = directory.path().join("foreign.sqlite");
    rusqlite::Connection::open(&foreign).expect("made").execute("CREATE TABLE x (y)", []).expect("room");
    let text = directory.path().join("text");
    std::fs::write(&text, "no database at all, but some text that is longer than the head of one\n".repeat(9))
        .expect("room");
    for file in [foreign, text] {
        let before = std::fs::read(&file).expect("it is there");
        let refused = History::open(&file).expect_err("foreign");
        assert!(matches!(refused, HistoryError::Foreign | HistoryError::Database(_)));
        assert!(!refused.to_string().is_empty());
        assert_eq!(std::fs::read(&file).expect("it is there"), before);
    }
    assert!(History::open(directory.path()).is_err());
}
