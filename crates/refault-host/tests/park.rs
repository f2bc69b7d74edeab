//! Idle groups are parked, on a directory of files that looks like a group.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use refault_host::apply::journal::Journal;
use refault_host::apply::park::Rule;
use refault_host::apply::{Control, Event, MAX_REFAULTS};
use refault_host::figures;
use refault_host::host::{Row, WorkingSet};
use refault_host::name::of_path;
use refault_host::proposal::Proposal;

const MIB: u64 = 1 << 20;
const RULE: Rule = Rule { idle: Duration::from_secs(600), share: 0.1 };

fn text(directory: &Path, file: &str) -> String {
    fs::read_to_string(directory.join(file)).expect("it is there").trim().to_owned()
}

/// A group of version 2 with 1,000 MiB of files.
fn group(directory: &Path) {
    fs::create_dir_all(directory).expect("room");
    for (file, text) in [
        ("memory.current", (1000 * MIB).to_string()),
        ("memory.stat", format!("anon 0\nfile {}\n", 1000 * MIB)),
        ("memory.high", "max".into()),
        ("memory.reclaim", String::new()),
    ] {
        fs::write(directory.join(file), text).expect("room");
    }
}

/// What is known of it after a window of this length in which it accessed that much.
fn row(directory: &Path, seconds: f64, accessed: u64, refaults_per_second: f64) -> Row {
    let figures = figures::of(directory).expect("a group");
    let high_bytes = accessed * MIB + 4 * MIB;
    Row {
        path: "/idle".into(),
        name: of_path("/idle"),
        cgroup_version: 2,
        hostname: None,
        program: None,
        processes: 1,
        figures,
        kubelet_working_set_bytes: 0,
        vpa_target_bytes: None,
        working_sets: vec![Some(WorkingSet { seconds, bytes: accessed * MIB, error_bytes: 0 })],
        refaults_per_second: Some(refaults_per_second),
        pressure: Some(0.0),
        curve: Vec::new(),
        proposal: Some(Proposal { high_bytes, max_bytes: high_bytes, saves_bytes: 0, window_seconds: seconds }),
        id: fs::metadata(directory).expect("it is there").ino(),
        directory: directory.to_owned(),
    }
}

#[test]
fn an_idle_group_is_reclaimed_to_its_share_without_a_limit_and_returns() {
    let root = tempfile::tempdir().expect("a directory");
    let (directory, journal) = (root.path().join("idle"), root.path().join("journal.json"));
    group(&directory);
    let mut dry = Control::new(None, 0.01).park(RULE);
    let told = dry.step(&[&row(&directory, 601.0, 20, 0.0)]).expect("nothing is written");
    assert!(matches!(&told[..], [Event::Parked(parked)] if parked.given_bytes == 900 * MIB), "{told:?}");
    assert_eq!((text(&directory, "memory.reclaim"), text(&directory, "memory.high")), ("".into(), "max".into()));

    let open = || Journal::open(&journal).expect("made");
    let mut control = Control::new(Some(open()), 0.01).park(RULE);
    let mut step = |seconds, accessed, refaults| {
        control.step(&[&row(&directory, seconds, accessed, refaults)]).expect("the journal is written")
    };
    // While it is busy its limit goes down as any other.
    let busy = step(600.5, 800, 0.0);
    assert!(matches!(&busy[..], [Event::Limit(limit)] if limit.to_bytes < 1000 * MIB), "{busy:?}");
    assert_eq!(text(&directory, "memory.high"), (980 * MIB).to_string());
    // The window before asked for 800 MiB.
    let parked = step(601.0, 20, 0.0);
    assert!(matches!(&parked[..], [Event::Parked(parked)] if parked.stays_bytes == 0), "{parked:?}");
    assert_eq!(text(&directory, "memory.reclaim"), (196 * MIB).to_string());
    assert_eq!(text(&directory, "memory.high"), "max", "what steps had set is lifted");
    assert_eq!(step(601.0, 20, 0.0), []);
    assert_eq!(step(601.0, 20, MAX_REFAULTS), [Event::Woke("/idle".into())]);
    // It is busy, and no step is taken before two windows have ended.
    assert_eq!(step(602.0, 800, 0.0), []);
    assert_eq!(text(&directory, "memory.high"), "max");
    assert!(matches!(&step(603.0, 800, 0.0)[..], [Event::Limit(_)]));

    drop(control); // As a kill does, nothing is put back.
    assert_ne!(text(&directory, "memory.high"), "max");
    assert_eq!(open().put_back().expect("files"), 1);
    assert_eq!(text(&directory, "memory.high"), "max");
}
