//! The SQLite extension held to SQLite's own behaviour: the same scripts through its default VFS and through refault's,
//! results byte for byte.

mod common;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::archive;

/// The extension, built for this test; `None` where SQLite is not installed.
fn extension(directory: &Path) -> Option<PathBuf> {
    let there =
        Path::new("/usr/include/sqlite3ext.h").exists() && Command::new("sqlite3").arg("-version").output().is_ok();
    if !there {
        refault_testing::skip_required("sqlite3 and libsqlite3-dev are not installed");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/sqlite-extension");
    let built =
        Command::new(script).arg("--out").arg(directory).arg("--archive").arg(archive()).output().expect("runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(directory.join("refault_vfs.so"))
}

/// A shell on a database, through refault's VFS if there is an extension.
fn shell(extension: Option<&Path>, database: &Path, memory: &str) -> Child {
    let mut command = Command::new("sqlite3");
    command.args(["-batch", "-bail", ":memory:"]).env("REFAULT_MEMORY", memory);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("sqlite3 starts");
    let input = child.stdin.as_mut().expect("a pipe");
    match extension {
        Some(extension) => {
            let (extension, database) = (extension.display(), database.display());
            writeln!(input, ".load {extension} sqlite3_refaultvfs_init\n.open 'file:{database}?vfs=refault'")
                .expect("writes")
        }
        None => writeln!(input, ".open 'file:{}'", database.display()).expect("writes"),
    }
    child
}

/// What a script prints.
fn run(extension: Option<&Path>, database: &Path, script: &str) -> String {
    let mut child = shell(extension, database, "1048576");
    child.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("writes");
    let output = child.wait_with_output().expect("ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

const LOAD: &str = "
CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT, price REAL, body BLOB);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
INSERT INTO item SELECT i, 'item ' || (i * 7919 % 20011), i * 0.25, zeroblob(i % 400) FROM n;
CREATE INDEX by_name ON item(name);
SELECT count(*), sum(price), total(length(body)) FROM item;
";

/// New orders, payments and deletions over the items, in transactions of which some are rolled back.
const MIX: &str = "
CREATE TABLE orders(id INTEGER PRIMARY KEY, item INTEGER, amount INTEGER, paid INTEGER DEFAULT 0);
BEGIN; INSERT INTO orders(item, amount) SELECT id, id % 9 FROM item WHERE id % 3 = 0; COMMIT;
BEGIN; UPDATE orders SET paid = 1 WHERE amount > 4; DELETE FROM item WHERE id % 11 = 0; COMMIT;
BEGIN; DELETE FROM orders; ROLLBACK;
SAVEPOINT a; UPDATE item SET name = name || '!' WHERE id % 5 = 0; ROLLBACK TO a; RELEASE a;
UPDATE item SET body = zeroblob(2000) WHERE id % 17 = 0;
SELECT i.name, o.amount FROM orders o JOIN item i ON i.id = o.item WHERE o.paid ORDER BY i.name LIMIT 200;
DELETE FROM item WHERE id > 15000;
VACUUM;
PRAGMA integrity_check;
SELECT count(*), sum(amount), sum(paid) FROM orders;
SELECT sum(price), max(name) FROM item;
";

#[test]
fn every_journal_mode_prints_and_leaves_the_same() {
    let directory = scratch();
    let Some(extension) = extension(directory.path()) else { return };
    let modes = ["delete", "truncate", "persist", "memory", "wal"].map(|mode| (mode, 4096));
    let sizes = [("delete", 512), ("delete", 65536), ("wal", 512), ("wal", 65536)];
    let directory = directory.path();
    let compare = |(mode, page_size)| {
        let script = format!("PRAGMA page_size = {page_size};\nPRAGMA journal_mode = {mode};\n{LOAD}{MIX}");
        let ours = directory.join(format!("{mode}-{page_size}-ours.db"));
        let theirs = directory.join(format!("{mode}-{page_size}-theirs.db"));
        assert_eq!(run(Some(&extension), &ours, &script), run(None, &theirs, &script), "{mode} {page_size}");
        let (ours, theirs) = (std::fs::read(ours).expect("reads"), std::fs::read(theirs).expect("reads"));
        assert!(ours == theirs, "the files of {mode} with pages of {page_size} bytes differ");
    };
    // Most of the time goes into waiting for the disk.
    std::thread::scope(|scope| {
        for one in modes.into_iter().chain(sizes) {
            scope.spawn(move || compare(one));
        }
    });
}

#[test]
fn the_cache_is_used_and_tells_its_figures() {
    let directory = scratch();
    let Some(extension) = extension(directory.path()) else { return };
    let database = directory.path().join("data.db");
    run(None, &database, LOAD);
    let script = "PRAGMA cache_size = 10;\nSELECT sum(length(body)) FROM item;\nSELECT sum(length(name)) FROM item;\n\
                  SELECT name || '=' || value FROM refault_stats;\n";
    let printed = run(Some(&extension), &database, script);
    let value = |name: &str| -> u64 {
        let line = printed.lines().find_map(|line| line.strip_prefix(&format!("{name}="))).expect("a row");
        line.parse().expect("a number")
    };
    assert_eq!(value("memory_bytes"), 1 << 20);
    assert!(value("resident_bytes") <= 1 << 20 && value("misses") + value("read_ahead") > 100, "{printed}");
}

#[test]
fn other_processes_are_noticed() {
    let directory = scratch();
    let Some(extension) = extension(directory.path()) else { return };
    for mode in ["delete", "wal"] {
        let database = directory.path().join(format!("{mode}.db"));
        run(None, &database, &format!("PRAGMA journal_mode = {mode};\n{LOAD}"));
        // A connection of ours reads, somebody else's writes and checkpoints, ours reads again; and the other way
        // round.
        let mut reader = shell(Some(&extension), &database, "16777216");
        let mut input = reader.stdin.take().expect("a pipe");
        let mut output = std::io::BufRead::lines(std::io::BufReader::new(reader.stdout.take().expect("a pipe")));
        for turn in 1..20 {
            let change =
                format!("UPDATE item SET price = {turn}, body = zeroblob({turn});\nPRAGMA wal_checkpoint(TRUNCATE);");
            run(if turn % 4 == 3 { Some(&extension) } else { None }, &database, &change);
            writeln!(input, "SELECT min(price), max(price), min(length(body)), max(length(body)) FROM item;")
                .expect("writes");
            input.flush().expect("writes");
            let line = output.next().expect("a line").expect("text");
            assert_eq!(line, format!("{turn}.0|{turn}.0|{turn}|{turn}"), "{mode}");
        }
        drop(input);
        assert!(reader.wait().expect("ends").success());
        assert_eq!(run(None, &database, "PRAGMA integrity_check;"), "ok\n");
    }
}

#[test]
fn a_crash_in_the_middle_loses_nothing_that_was_committed() {
    let directory = scratch();
    let Some(extension) = extension(directory.path()) else { return };
    for (turn, mode) in ["delete", "truncate", "wal", "persist"].into_iter().cycle().take(12).enumerate() {
        let database = directory.path().join(format!("crash-{turn}.db"));
        run(
            Some(&extension),
            &database,
            &format!("PRAGMA journal_mode = {mode};\nCREATE TABLE t(id INTEGER PRIMARY KEY, x);"),
        );
        let mut child = shell(Some(&extension), &database, "1048576");
        let mut input = child.stdin.take().expect("a pipe");
        let mut output = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("a pipe")));
        let mut committed = 0;
        for batch in 0..4 + turn * 2 {
            let rows = format!(
                "BEGIN; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) \
                 INSERT INTO t(x) SELECT zeroblob(i % 300) FROM n; COMMIT; SELECT {batch};"
            );
            writeln!(input, "{rows}").expect("writes");
            input.flush().expect("writes");
            committed = output.next().expect("a line").expect("text").parse::<u64>().expect("a number") + 1;
        }
        writeln!(
            input,
            "BEGIN; UPDATE t SET x = zeroblob(700); DELETE FROM t WHERE id % 2; COMMIT; UPDATE t SET x = 1;"
        )
        .expect("writes");
        input.flush().expect("writes");
        std::thread::sleep(std::time::Duration::from_millis(turn as u64 * 3));
        child.kill().expect("kills");
        child.wait().expect("ends");
        let check = "PRAGMA integrity_check; SELECT count(*) FROM t;";
        let printed = run(None, &database, check);
        let rows: u64 = printed.lines().nth(1).expect("a count").parse().expect("a number");
        assert!(printed.starts_with("ok\n"), "{mode}: {printed}");
        // The transaction that was under way is there as a whole or not at all.
        assert!(rows == committed * 500 || rows == committed * 250, "{mode}: {rows} rows of {}", committed * 500);
        assert_eq!(run(Some(&extension), &database, check), printed);
    }
}
