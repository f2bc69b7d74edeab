//! Groups that appear and vanish while they are looked at.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use refault_host::history::History;
use refault_host::host::Host;
use refault_testing::cgroup::Group;
use refault_testing::skip_required;

#[test]
fn a_thousand_groups_come_and_go_and_none_is_left() {
    let group = match Group::new("churn") {
        Ok(group) => group,
        Err(error) => return skip_required(format_args!("no memory cgroup can be made: {error}")),
    };
    let directory = tempfile::tempdir().expect("a directory");
    let database = directory.path().join("history.sqlite");
    let mut history = History::open(&database).expect("made");
    let mut host = Host::open(&[Duration::from_millis(1)]).expect("groups");
    host.within(group.path()).expect("it was made");
    let ends = AtomicBool::new(false);
    // The database opens files of its own with the first row.
    history.record(&host.report()).expect("room");
    let (mut seen, mut most, mut rows) = (1, 0, 1);
    let handles = || std::fs::read_dir("/proc/self/fd").expect("proc is mounted").count();
    let before = handles();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..50 {
                let all: Vec<PathBuf> =
                    (0..20).map(|number| group.directory().join(format!("{round}-{number}"))).collect();
                all.iter().for_each(|one| std::fs::create_dir(one).expect("a group"));
                all.iter().for_each(|one| std::fs::remove_dir(one).expect("it is empty"));
            }
            ends.store(true, Ordering::Relaxed);
        });
        while !ends.load(Ordering::Relaxed) {
            host.step().expect("groups that are gone are left out");
            let report = host.report();
            most = most.max(report.groups.len());
            rows += report.groups.len();
            seen += 1;
            history.record(&report).expect("room");
        }
    });
    assert!(seen > 1 && most >= 1, "{seen} looks, {most} groups");
    let left: Vec<String> = host.report().groups.into_iter().map(|row| row.path).collect();
    assert_eq!(left, [group.path()]);
    assert_eq!(host.known(), 1, "what is gone is remembered");
    assert_eq!(handles(), before, "files stay open");
    drop(history);
    let kept = rusqlite::Connection::open(&database).expect("made");
    let count = |table: &str| -> i64 {
        kept.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("a table")
    };
    assert_eq!((count("looks"), count("samples")), (seen, rows as i64), "rows are lost");
    assert!(count("groups") <= 1001, "a group has several names");
}
