//! The SQLite extension held to SQLite's own behaviour: the same scripts through its default VFS and through refault's,
//! results byte for byte.

mod common;
#[path = "common/rights.rs"]
mod rights;
#[path = "common/sqlite.rs"]
mod shell;

use std::path::Path;

use shell::{Shell, extension, open, run, scratch};

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

/// What a script prints through a VFS, and then the database, and how long its journal and its WAL are, which stay.
fn printed_and_left(extension: Option<&Path>, database: &Path, parameters: &str, script: &str) -> (String, Left) {
    let mut shell = Shell::start(&[("REFAULT_MEMORY", "1048576")]);
    if let Some(extension) = extension {
        shell.load(extension);
    }
    shell.expect(&open(database, parameters), "");
    let printed = shell.ask(format_args!(".filectrl persist_wal 1\n{script}"));
    shell.close();
    let length = |what: &str| {
        let mut name = database.as_os_str().to_owned();
        name.push(what);
        std::fs::metadata(name).map_or(0, |file| file.len())
    };
    (printed, (std::fs::read(database).expect("reads"), length("-journal"), length("-wal")))
}

/// A database, and the bytes of its journal and of its WAL.
type Left = (Vec<u8>, u64, u64);

#[test]
fn every_journal_mode_prints_and_leaves_the_same() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let modes = ["delete", "truncate", "persist", "memory", "wal"].map(|mode| (mode, 4096));
    let sizes = [("delete", 512), ("persist", 1024), ("delete", 65536), ("wal", 512), ("wal", 2048), ("wal", 65536)];
    let directory = directory.path();
    let compare = |(mode, page_size)| {
        let script = format!("PRAGMA page_size = {page_size};\nPRAGMA journal_mode = {mode};\n{LOAD}{MIX}");
        let ours = directory.join(format!("{mode}-{page_size}-ours.db"));
        let theirs = directory.join(format!("{mode}-{page_size}-theirs.db"));
        let (our_print, (our_file, our_journal, our_wal)) =
            printed_and_left(Some(extension), &ours, "vfs=refault", &script);
        let (print, (file, journal, wal)) = printed_and_left(None, &theirs, "", &script);
        assert_eq!(our_print, print, "{mode} {page_size}");
        assert!(our_file == file, "the files of {mode} with pages of {page_size} bytes differ");
        assert!((our_journal, our_wal) == (journal, wal), "the journals of {mode} {page_size} differ");
        assert!((mode == "persist") == (journal > 0) && (mode == "wal") == (wal > 0), "the journals are to stay");
    };
    // Most of the time goes into waiting for the disk.
    std::thread::scope(|scope| {
        for one in modes.into_iter().chain(sizes) {
            scope.spawn(move || compare(one));
        }
    });
}

#[test]
fn the_file_grows_by_the_chunks_that_were_asked_for() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    for mode in ["delete", "wal"] {
        let script = format!("PRAGMA journal_mode = {mode};\n.filectrl chunk_size 1048576\n{LOAD}{MIX}");
        let [ours, theirs] = ["ours", "theirs"].map(|who| directory.path().join(format!("{mode}-{who}.db")));
        let (our_print, (our_file, ..)) = printed_and_left(Some(extension), &ours, "vfs=refault", &script);
        let (print, (file, ..)) = printed_and_left(None, &theirs, "", &script);
        assert_eq!(our_print, print, "{mode}");
        assert_eq!(file.len() % 1_048_576, 0, "{mode}");
        assert!(our_file == file, "{mode}: {} bytes, by the default VFS {}", our_file.len(), file.len());
    }
}

#[test]
fn what_is_no_database_is_refused_as_by_the_default_vfs() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    // A single byte is an empty database; more are none.
    for content in [None, Some("x"), Some("xS"), Some("SQLite format 3")] {
        let answer = |parameters| {
            let path = directory.path().join("data.db");
            match content {
                None => std::fs::create_dir(&path).expect("a directory"),
                Some(content) => std::fs::write(&path, content).expect("writes"),
            }
            let mut shell = Shell::start(&[("REFAULT_MEMORY", "1048576")]);
            shell.load(extension);
            // A directory can only be opened to be read.
            let mode = if content.is_none() { "mode=ro" } else { "mode=rwc" };
            let printed = shell.ask(open(&path, &format!("{mode}&{parameters}")))
                + &shell.ask("CREATE TABLE t(x);\nINSERT INTO t VALUES('there');\nSELECT x FROM t;");
            drop(shell);
            let removed = if path.is_dir() { std::fs::remove_dir(&path) } else { std::fs::remove_file(&path) };
            removed.expect("removes");
            printed.replace(parameters, "")
        };
        let theirs = answer("");
        assert_eq!(theirs == "there", content == Some("x"), "{content:?}: {theirs}");
        assert_eq!(answer("vfs=refault"), theirs, "{content:?}");
    }
}

#[test]
fn the_cache_is_used_and_tells_its_figures() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let database = directory.path().join("data.db");
    run(None, &database, LOAD);
    let script = "PRAGMA cache_size = 10;\nSELECT sum(length(body)) FROM item;\nSELECT sum(length(name)) FROM item;\n\
                  SELECT name || '=' || value FROM refault_stats;\n";
    let printed = run(Some(extension), &database, script);
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
    let Some(extension) = extension() else { return };
    for mode in ["delete", "wal"] {
        let database = directory.path().join(format!("{mode}.db"));
        run(None, &database, &format!("PRAGMA journal_mode = {mode};\n{LOAD}"));
        // A connection of ours reads, one of SQLite's own writes and checkpoints, ours reads again; and the other way
        // round.
        let mut reader = Shell::open_with(Some(extension), &database, &[("REFAULT_MEMORY", "16777216")]);
        for turn in 1..20 {
            let change =
                format!("UPDATE item SET price = {turn}, body = zeroblob({turn});\nPRAGMA wal_checkpoint(TRUNCATE);");
            run(if turn % 4 == 3 { Some(extension) } else { None }, &database, &change);
            let line = reader.ask("SELECT min(price), max(price), min(length(body)), max(length(body)) FROM item;");
            assert_eq!(line, format!("{turn}.0|{turn}.0|{turn}|{turn}"), "{mode}");
        }
        reader.close();
        assert_eq!(run(None, &database, "PRAGMA integrity_check;"), "ok");
    }
}

#[test]
fn without_locks_other_processes_are_noticed_too() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let database = directory.path().join("data.db");
    run(None, &database, "CREATE TABLE t(x); INSERT INTO t VALUES(0);");
    let mut reader = Shell::start(&[]);
    reader.load(extension);
    reader.expect(&open(&database, "vfs=refault&nolock=1"), "");
    for turn in 1..20 {
        run(None, &database, &format!("UPDATE t SET x = {turn};"));
        reader.expect("SELECT x FROM t;", &turn.to_string());
    }
    reader.close();
}

#[test]
fn a_crash_in_the_middle_loses_nothing_that_was_committed() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    for (turn, mode) in ["delete", "truncate", "wal", "persist"].into_iter().cycle().take(12).enumerate() {
        let database = directory.path().join(format!("crash-{turn}.db"));
        run(
            Some(extension),
            &database,
            &format!("PRAGMA journal_mode = {mode};\nCREATE TABLE t(id INTEGER PRIMARY KEY, x);"),
        );
        let mut writer = Shell::open(Some(extension), &database);
        let mut committed = 0;
        for batch in 0..4 + turn * 2 {
            let rows = format!(
                "BEGIN; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) \
                 INSERT INTO t(x) SELECT zeroblob(i % 300) FROM n; COMMIT; SELECT {batch};"
            );
            committed = writer.ask(rows).parse::<u64>().expect("a number") + 1;
        }
        writer.send("BEGIN; UPDATE t SET x = zeroblob(700); DELETE FROM t WHERE id % 2; COMMIT; UPDATE t SET x = 1;");
        std::thread::sleep(std::time::Duration::from_millis(turn as u64 * 3));
        writer.kill();
        let check = "PRAGMA integrity_check; SELECT count(*) FROM t;";
        let printed = run(None, &database, check);
        let rows: u64 = printed.lines().nth(1).expect("a count").parse().expect("a number");
        assert!(printed.starts_with("ok\n"), "{mode}: {printed}");
        // The transaction that was under way is there as a whole or not at all.
        assert!(rows == committed * 500 || rows == committed * 250, "{mode}: {rows} rows of {}", committed * 500);
        assert_eq!(run(Some(extension), &database, check), printed);
    }
}

/// The system ends a process's locks of a file when any descriptor of it is closed: SQLite's default VFS sees to its own
/// descriptors, and ours are closed when no connection has a lock.
#[test]
fn a_lock_stays_while_other_connections_of_the_process_come_and_go() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    for mode in ["delete", "wal"] {
        let database = directory.path().join(format!("{mode}.db"));
        run(None, &database, &format!("PRAGMA journal_mode = {mode};CREATE TABLE t(x);INSERT INTO t VALUES (1);"));
        let (mut ours, mut other) = (Shell::open(Some(extension), &database), Shell::open(None, &database));
        other.expect(".timeout 0", "");
        let begins = "BEGIN IMMEDIATE;\nROLLBACK;";
        for rights in ["vfs=refault", "vfs=refault&mode=ro"] {
            ours.expect("BEGIN IMMEDIATE;\nUPDATE t SET x = x + 1;\nSELECT x FROM t;", "2");
            // A reader that comes and goes.
            ours.expect(&format!(".connection 1\n{}\nSELECT x FROM t;", open(&database, rights)), "1");
            ours.expect("SELECT count(*) > 0 FROM refault_stats;\n.connection 0\n.connection close 1", "1");
            assert!(other.ask(begins).contains("database is locked"), "{mode} {rights}: the lock has gone");
            ours.expect("ROLLBACK;", "");
            other.expect(begins, "");
        }
    }
}
