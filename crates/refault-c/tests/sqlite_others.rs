//! The SQLite extension beside others: connections of other processes through SQLite's default VFS, forks, failures of
//! the disk, names that change, and configurations that cannot be had.

mod common;
#[path = "common/sqlite.rs"]
mod shell;

use std::fs::FileTimes;
use std::io::IoSliceMut;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use refault_testing::Random;
use rustix::io::{ReadWriteFlags, preadv2};
use shell::{Shell, extension, open, run, scratch};

/// Two thousand rows that begin with `old`, on many pages.
const ROWS: &str = "
CREATE TABLE t(id INTEGER PRIMARY KEY, x);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
INSERT INTO t SELECT i, 'old-' || i || hex(zeroblob(100)) FROM n;
";
/// How many rows there are, and how many of them begin with `new`.
const COUNT: &str = "SELECT count(*), sum(x LIKE 'new%') FROM t;";
/// Everything of the table that tells rows apart.
const ALL: &str = "SELECT id, substr(x, 1, 12), length(x) FROM t ORDER BY id;";

/// A new database through the extension and, by another process, through the default VFS: both without checkpoints of
/// their own and with hardly a page in SQLite's own cache.
fn two(extension: &Path, database: &Path, script: &str) -> (Shell, Shell) {
    run(None, database, script);
    let mut two = (Shell::open(Some(extension), database), Shell::open(None, database));
    for shell in [&mut two.0, &mut two.1] {
        shell.expect("PRAGMA wal_autocheckpoint = 0;\nPRAGMA cache_size = 5;", "0");
    }
    two
}

/// A C program or library of `tests/c`.
fn compiled(directory: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    let out = directory.join(source).with_extension("out");
    let mut command = Command::new("cc");
    command.args(["-O1", "-Wall", "-Wextra", "-o"]).arg(&out).arg(from).args(flags);
    let output = command.output().expect("cc starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    out
}

#[track_caller]
fn wait_for(path: &Path) {
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < Duration::from_secs(30), "{} has not come", path.display());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ours commits, the other one changes another page and checkpoints it, so ours may not bring the page back as it
/// knew it.
#[test]
fn a_checkpoint_keeps_what_others_have_checkpointed() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let database = directory.path().join("data.db");
    let (mut ours, mut other) = two(extension, &database, &format!("PRAGMA journal_mode = wal;{ROWS}"));
    ours.expect(COUNT, "2000|0");
    ours.expect("UPDATE t SET x = 'A' || substr(x, 2) WHERE id = 3;", "");
    other.expect("UPDATE t SET x = 'new' || substr(x, 4) WHERE id = 1000;", "");
    assert!(other.ask("PRAGMA wal_checkpoint(passive);").starts_with("0|"));
    other.expect("UPDATE t SET x = 'new' || substr(x, 4) WHERE id = 1990;", "");
    assert!(ours.ask("PRAGMA wal_checkpoint(passive);").starts_with("0|"));
    assert_eq!(ours.ask(COUNT), other.ask(COUNT));
    assert_eq!(ours.ask(ALL), other.ask(ALL));
    // The page of row 1000 is written anew, from what ours knows of it.
    ours.expect("UPDATE t SET x = 'A' || substr(x, 2) WHERE id = 1001;\nPRAGMA wal_checkpoint(truncate);", "0|0|0");
    for shell in [&mut ours, &mut other] {
        shell.expect(COUNT, "2000|2");
        shell.expect("PRAGMA integrity_check;", "ok");
    }
}

/// Below, whole pages of 4 KiB are written: the end of the file must not come back as it was.
#[test]
fn a_checkpoint_of_small_pages_keeps_the_rows_that_others_have_added() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let database = directory.path().join("data.db");
    let script = format!("PRAGMA page_size = 1024;\nPRAGMA journal_mode = wal;{ROWS}");
    let (mut ours, mut other) = two(extension, &database, &script);
    ours.expect(COUNT, "2000|0");
    ours.expect("UPDATE t SET x = 'A' || substr(x, 2) WHERE id = 3;", "");
    other.expect(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200) \
         INSERT INTO t SELECT NULL, 'B-' || i || hex(zeroblob(100)) FROM n;",
        "",
    );
    assert!(other.ask("PRAGMA wal_checkpoint(passive);").starts_with("0|"));
    other.expect("UPDATE t SET x = 'new' || substr(x, 4) WHERE id BETWEEN 1985 AND 2003;", "");
    assert!(ours.ask("PRAGMA wal_checkpoint(passive);").starts_with("0|"));
    for shell in [&mut other, &mut ours] {
        shell.expect(COUNT, "2200|19");
        shell.expect("PRAGMA integrity_check;", "ok");
    }
    assert_eq!(ours.ask(ALL), other.ask(ALL));
}

/// SQLite has read the WAL's header and has its lock; the checkpoint ends before it reads how much of the WAL is in the
/// database.
#[test]
fn a_checkpoint_in_the_middle_of_a_read_s_beginning_is_noticed() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let (database, hold) = (directory.path().join("data.db"), directory.path().join("hold"));
    run(None, &database, &format!("PRAGMA journal_mode = wal;{ROWS}"));
    let held = compiled(directory.path(), "hold_read.c", &["-shared", "-fPIC"]);
    let hold_text = hold.to_str().expect("text");
    let mut ours = Shell::start(&[("REFAULT_MEMORY", "1048576"), ("HOLD", hold_text)]);
    ours.load(extension);
    ours.expect(&format!(".load {} sqlite3_heldvfs_init", held.display()), "");
    ours.expect(&open(&database, "vfs=held"), "");
    let mut other = Shell::open(None, &database);
    ours.expect("PRAGMA wal_autocheckpoint = 0;\nPRAGMA cache_size = 5;", "0");
    ours.expect(COUNT, "2000|0");
    other.expect("PRAGMA wal_autocheckpoint = 0;\nUPDATE t SET x = 'new' || substr(x, 4);", "0");
    std::fs::write(&hold, "").expect("writes");
    ours.send(format_args!("{COUNT}\n.print done"));
    wait_for(&directory.path().join("hold.in"));
    let checkpoint = other.ask("PRAGMA wal_checkpoint(passive);");
    std::fs::remove_file(&hold).expect("removes");
    let [busy, log, done] = checkpoint.split('|').collect::<Vec<_>>()[..] else { panic!("{checkpoint}") };
    assert!(busy == "0" && log == done && done != "0", "the checkpoint is to be whole: {checkpoint}");
    assert_eq!(ours.answer(), "2000|2000");
    ours.expect(COUNT, "2000|2000");
}

/// What ours has written and could not bring to the disk, others take back.
#[test]
fn a_commit_that_the_disk_refused_is_gone_when_others_have_rolled_it_back() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let (database, fail) = (directory.path().join("data.db"), directory.path().join("fail"));
    let failing = compiled(directory.path(), "sync_fails.c", &["-shared", "-fPIC"]);
    run(None, &database, ROWS);
    let environment = [
        ("REFAULT_MEMORY", "1048576"),
        ("LD_PRELOAD", failing.to_str().expect("text")),
        ("FAIL", fail.to_str().expect("text")),
    ];
    let mut ours = Shell::open_with(Some(extension), &database, &environment);
    ours.expect(COUNT, "2000|0");
    std::fs::write(&fail, "").expect("writes");
    let refused = ours.ask("UPDATE t SET x = 'AAA' || substr(x, 4);");
    assert!(refused.contains("disk I/O error"), "the fault was not met: {refused}");
    let mut other = Shell::open(None, &database);
    other.expect("SELECT count(*), sum(x LIKE 'old%'), sum(x LIKE 'AAA%') FROM t;", "2000|2000|0");
    other.expect(
        "UPDATE t SET x = 'new' || substr(x, 4);\nDELETE FROM t WHERE id BETWEEN 500 AND 1500;\nVACUUM;\n\
         PRAGMA integrity_check;",
        "ok",
    );
    std::fs::remove_file(&fail).expect("removes");
    // The first answer may be an error that the fault has left; then all is as the other one has it.
    ours.ask(COUNT);
    ours.expect(COUNT, "999|999");
    assert_eq!(ours.ask(ALL), other.ask(ALL));
    // Nor does it bring anything back when it closes the file.
    ours.send(".quit");
    assert_eq!(ours.line(), None);
    other.expect(COUNT, "999|999");
    other.expect("PRAGMA integrity_check;", "ok");
}

/// Page by page to the device it would take many times as long as with the default VFS.
#[test]
fn the_kernel_gathers_the_pages_of_a_checkpoint_and_of_a_commit() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    for mode in ["wal", "delete"] {
        let database = directory.path().join(format!("{mode}.db"));
        let (mut ours, mut other) = two(extension, &database, &format!("PRAGMA journal_mode = {mode};{ROWS}"));
        // SQLite asks for no sync, after which the kernel would drop its copies.
        ours.expect("PRAGMA synchronous = off;\nUPDATE t SET x = 'new' || substr(x, 4);", "");
        if mode == "wal" {
            assert!(ours.ask("PRAGMA wal_checkpoint(passive);").starts_with("0|"));
        }
        let file = std::fs::File::open(&database).expect("opens");
        // Its last page: no process has read it since, and nothing is read ahead so far from what is.
        let (mut byte, at) = ([0], file.metadata().expect("is there").len() - 4096);
        let read = preadv2(&file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT);
        assert_eq!(read, Ok(1), "{mode}: the kernel's page cache is passed by");
        // Nothing more is needed for others to see it, not even that it ends in peace.
        ours.kill();
        other.expect(COUNT, "2000|2000");
        other.expect("PRAGMA integrity_check;", "ok");
    }
}

/// SQLite is told, and the WAL stays what counts for each later connection.
#[test]
fn a_checkpoint_that_the_disk_refused_leaves_everything_in_the_wal() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let failing = compiled(directory.path(), "sync_fails.c", &["-shared", "-fPIC"]);
    for is_killed in [false, true] {
        let database = directory.path().join(format!("{is_killed}.db"));
        let fail = directory.path().join("fail");
        run(None, &database, &format!("PRAGMA journal_mode = wal;{ROWS}"));
        let environment = [
            ("REFAULT_MEMORY", "1048576"),
            ("LD_PRELOAD", failing.to_str().expect("text")),
            ("FAIL", fail.to_str().expect("text")),
        ];
        let mut ours = Shell::open_with(Some(extension), &database, &environment);
        ours.expect("PRAGMA wal_autocheckpoint = 0;\nPRAGMA cache_size = 5;", "0");
        ours.expect("UPDATE t SET x = 'new' || substr(x, 4);", "");
        let log = database.with_extension("db-wal");
        let before = std::fs::metadata(&log).expect("is there").len();
        std::fs::write(&fail, "").expect("writes");
        let refused = ours.ask("PRAGMA wal_checkpoint(truncate);");
        assert!(refused.contains("disk I/O error"), "the fault was not met: {refused}");
        assert_eq!(std::fs::metadata(&log).expect("is there").len(), before, "the log is needed");
        std::fs::remove_file(&fail).expect("removes");
        let mut other = Shell::open(None, &database);
        if is_killed {
            ours.kill();
        } else {
            ours.expect(COUNT, "2000|2000");
            other.expect("DELETE FROM t WHERE id > 1000;\nPRAGMA wal_checkpoint(truncate);", "0|0|0");
            ours.expect(COUNT, "1000|1000");
            ours.expect("PRAGMA wal_checkpoint(truncate);\nPRAGMA integrity_check;", "0|0|0\nok");
            ours.send(".quit");
            assert_eq!(ours.line(), None);
        }
        other.expect(COUNT, if is_killed { "2000|2000" } else { "1000|1000" });
        other.expect("PRAGMA wal_checkpoint(truncate);\nPRAGMA integrity_check;", "0|0|0\nok");
    }
}

#[test]
fn a_file_that_was_renamed_while_open_is_still_seen_to_change() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let (old, new) = (directory.path().join("old.db"), directory.path().join("new.db"));
    run(None, &old, ROWS);
    let mut ours = Shell::open(Some(extension), &old);
    ours.expect("PRAGMA cache_size = 5;", "");
    ours.expect(COUNT, "2000|0");
    std::fs::rename(&old, &new).expect("renames");
    // A second connection of the same process, by the new name: the file is the same, and so is what is cached of it.
    ours.expect(&format!(".connection 1\n{}", open(&new, "vfs=refault")), "");
    ours.expect(COUNT, "2000|0");
    let mut other = Shell::open(None, &new);
    other.expect("UPDATE t SET x = 'new' || substr(x, 4);\nDELETE FROM t WHERE id > 1500;", "");
    ours.expect(COUNT, "1500|1500");
    ours.expect("INSERT INTO t(x) SELECT 'more' || hex(zeroblob(300)) FROM t LIMIT 300;", "");
    for shell in [&mut other, &mut ours] {
        shell.expect(COUNT, "1800|1500");
        shell.expect("PRAGMA integrity_check;", "ok");
    }
}

/// As where the clock has not ticked between two writes.
#[test]
fn a_change_that_leaves_size_and_time_as_they_were_is_noticed() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let database = directory.path().join("data.db");
    let (mut ours, mut other) = two(extension, &database, ROWS);
    ours.expect(COUNT, "2000|0");
    let before = std::fs::metadata(&database).expect("is there");
    other.expect("UPDATE t SET x = 'new' || substr(x, 4);", "");
    let times = FileTimes::new()
        .set_accessed(before.accessed().expect("a time"))
        .set_modified(before.modified().expect("a time"));
    std::fs::File::options().write(true).open(&database).expect("opens").set_times(times).expect("sets");
    let after = std::fs::metadata(&database).expect("is there");
    let told = |file: &std::fs::Metadata| (file.len(), file.mtime(), file.mtime_nsec());
    assert_eq!(told(&before), told(&after), "the test is to leave these as they were");
    ours.expect(COUNT, "2000|2000");
}

#[test]
fn a_child_after_fork_opens_and_reads() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let database = directory.path().join("data.db");
    run(None, &database, ROWS);
    let program = compiled(directory.path(), "sqlite_fork.c", &["-lsqlite3"]);
    let output = Command::new(program).arg(extension).arg(&database).output().expect("starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let total = run(None, &database, "SELECT count(*) || ' ' || sum(length(x)) FROM t;");
    assert_eq!((&*out, &*err), (&*format!("parent: {total}\nchild: {total}\n"), ""));
}

/// Names and values.
type Environment = &'static [(&'static str, &'static str)];

/// No program is to believe that a cache is there which is not, or that it has a size which it has not.
#[test]
fn a_configuration_that_cannot_be_had_fails_the_open() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let database = directory.path().join("data.db");
    run(None, &database, "CREATE TABLE t(x);");
    let start = |environment: Environment, parameters: &str| {
        let mut shell = Shell::start(environment);
        shell.load(extension);
        let printed = shell.ask(open(&database, &format!("vfs=refault{parameters}")));
        (shell, printed)
    };
    let wrong: [(Environment, &str); 9] = [
        (&[], "&refault_policy=nosuch"),
        (&[], "&refault_memory=1000"),
        (&[], "&refault_memory=much"),
        (&[], "&refault_memory=-1"),
        (&[("REFAULT_MEMORY", "256 apples")], ""),
        (&[("REFAULT_MEMORY", "1000")], ""),
        (&[("REFAULT_MEMORY", "0")], ""),
        (&[("REFAULT_MEMORY", "99999999999999999999")], ""),
        (&[("REFAULT_POLICY", "nosuch")], ""),
    ];
    for (environment, parameters) in wrong {
        let (_, printed) = start(environment, parameters);
        assert!(printed.contains("unable to open database file"), "{environment:?} {parameters}: {printed}");
    }
    // What can be had is had, and the URI counts first.
    let right: [(Environment, &str, u64); 5] = [
        (&[("REFAULT_POLICY", "s3fifo")], "", 64 << 20),
        (&[("REFAULT_MEMORY", "256M")], "", 256 << 20),
        (&[("REFAULT_MEMORY", "1048576")], "", 1 << 20),
        (&[("REFAULT_MEMORY", "1048576"), ("REFAULT_POLICY", "nosuch")], "&refault_policy=s3fifo", 1 << 20),
        (&[("REFAULT_MEMORY", "1000")], "&refault_memory=2048K", 2 << 20),
    ];
    for (environment, parameters, bytes) in right {
        let (mut shell, printed) = start(environment, parameters);
        assert_eq!(printed, "", "{environment:?} {parameters}");
        assert_eq!(shell.ask(".vfsname").trim(), "refault", "{environment:?} {parameters}");
        let memory = shell.ask("SELECT value FROM refault_stats WHERE name = 'memory_bytes';");
        let memory: u64 = memory.parse().unwrap_or_else(|_| panic!("{memory}"));
        // What the cache's records take is taken off.
        assert!(memory <= bytes && memory > bytes / 10 * 9, "{environment:?} {parameters}: {memory} bytes");
    }
}

#[test]
fn a_file_system_without_direct_io_is_left_to_the_default_vfs() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let no_direct_io = compiled(directory.path(), "no_direct_io.c", &["-shared", "-fPIC"]);
    let environment = [("REFAULT_MEMORY", "1048576"), ("LD_PRELOAD", no_direct_io.to_str().expect("text"))];
    let database = directory.path().join("data.db");
    for mode in ["delete", "wal"] {
        let mut ours = Shell::open_with(Some(extension), &database, &environment);
        ours.expect(&format!("PRAGMA journal_mode = {mode};"), mode);
        ours.expect(&format!("DROP TABLE IF EXISTS t;{ROWS}{COUNT}"), "2000|0");
        // There is a cache, and nothing goes through it.
        ours.expect("SELECT value FROM refault_stats WHERE name = 'memory_bytes';", "1048576");
        ours.expect("SELECT sum(value) FROM refault_stats WHERE name IN ('resident_bytes', 'hits', 'misses');", "0");
        run(None, &database, "UPDATE t SET x = 'new' || substr(x, 4);");
        ours.expect(COUNT, "2000|2000");
        ours.close();
    }
    // A file system in memory, whatever it can do here.
    if let Ok(memory) = tempfile::tempdir_in("/dev/shm") {
        let database = memory.path().join("data.db");
        run(Some(extension), &database, ROWS);
        let mut other = Shell::open(None, &database);
        other.expect("UPDATE t SET x = 'new' || substr(x, 4) WHERE id <= 10;", "");
        assert_eq!(run(Some(extension), &database, &format!("{COUNT}\nPRAGMA integrity_check;")), "2000|10\nok");
    }
}

/// A default VFS without shared memory: a WAL cannot be had, unless by a lock that no other connection shares.
#[test]
fn a_default_vfs_without_shared_memory_does_as_without_us() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let dotfile = compiled(directory.path(), "dotfile_default.c", &["-shared", "-fPIC"]);
    let script = "CREATE TABLE t(x);\nPRAGMA journal_mode = wal;\nINSERT INTO t VALUES(1);\nSELECT x FROM t;\n\
                  PRAGMA integrity_check;";
    let answer = |name: &str, parameters: &str| {
        let mut shell = Shell::start(&[]);
        shell.expect(&format!(".load {} sqlite3_dotfile_init", dotfile.display()), "");
        shell.load(extension);
        shell.expect(&open(&directory.path().join(name), parameters), "");
        shell.ask(script)
    };
    let default = answer("theirs.db", "");
    assert_eq!(default, "delete\n1\nok");
    assert_eq!(answer("ours.db", "vfs=refault"), default);
}

/// The shell's command that runs a script from a file: a test that gives a long one through the pipe waits for its end.
fn read(file: &Path, script: &str) -> String {
    std::fs::write(file, script).expect("writes");
    format!(".read {}", file.display())
}

const COUNTERS: usize = 2000;

/// A transaction, but for its end, that increments up to five counters, which it adds to the sums.
fn increment(random: &mut Random, sums: &mut [u64]) -> String {
    let mut script = String::from("BEGIN IMMEDIATE;");
    for _ in 0..=random.below(5) {
        let row = random.index(COUNTERS);
        sums[row] += 1;
        script.push_str(&format!("\nUPDATE t SET n = n + 1 WHERE id = {row};"));
    }
    script
}

/// In turns at first, which is the same each time, with checkpoints by the one in transactions of the other; then at once.
#[test]
fn two_writers_in_a_wal_of_small_pages_lose_no_update() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let database = directory.path().join("data.db");
    let script = format!(
        "PRAGMA page_size = 512;\nPRAGMA journal_mode = wal;\nCREATE TABLE t(id INTEGER PRIMARY KEY, n, pad);\n\
         WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {COUNTERS} - 1) \
         INSERT INTO t SELECT i, 0, zeroblob(200) FROM n;"
    );
    run(None, &database, &script);
    let mut writers = [Some(extension), None].map(|vfs| Shell::open(vfs, &database));
    for writer in &mut writers {
        writer.ask("PRAGMA wal_autocheckpoint = 10;\nPRAGMA synchronous = off;\nPRAGMA cache_size = 20;");
    }
    let mut sums = vec![0; COUNTERS];
    let are_right = |writers: &mut [Shell], sums: &[u64], when| {
        let wanted: Vec<String> = sums.iter().enumerate().map(|(row, sum)| format!("{row}|{sum}")).collect();
        for writer in writers {
            assert!(writer.ask("SELECT id, n FROM t ORDER BY id;") == wanted.join("\n"), "updates are lost {when}");
            writer.expect("PRAGMA integrity_check;", "ok");
        }
    };
    let mut random = Random::new(1);
    for _ in 0..300 {
        let (one, other) = writers.split_at_mut(1);
        let two = if random.below(2) == 0 { (&mut one[0], &mut other[0]) } else { (&mut other[0], &mut one[0]) };
        two.0.expect(&increment(&mut random, &mut sums), "");
        if random.below(2) == 0 {
            assert!(two.1.ask("PRAGMA wal_checkpoint(passive);").starts_with("0|"));
        }
        two.0.expect("COMMIT;", "");
    }
    are_right(&mut writers, &sums, "in turns");
    std::thread::scope(|scope| {
        let threads = writers.each_mut().map(|writer| {
            let mut random = Random::new(random.next());
            scope.spawn(move || {
                let mut sums = vec![0; COUNTERS];
                for _ in 0..300 {
                    writer.expect(&(increment(&mut random, &mut sums) + "\nCOMMIT;"), "");
                }
                sums
            })
        });
        for thread in threads {
            let more = thread.join().expect("no panic");
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
    });
    are_right(&mut writers, &sums, "at once");
}

/// Transfers between rows with a log of them, whose last row is printed after each.
fn transfers(random: &mut Random, count: usize) -> String {
    let mut script = String::new();
    for _ in 0..count {
        let (from, to, amount) = (random.below(500), random.below(500), random.below(50));
        let pad = random.below(2000);
        script.push_str(&format!(
            "BEGIN IMMEDIATE;\nUPDATE t SET n = n - {amount} WHERE id = {from};\n\
             UPDATE t SET n = n + {amount}, pad = zeroblob({pad}) WHERE id = {to};\n\
             INSERT INTO l(a, b, k) VALUES({from}, {to}, {amount});\nCOMMIT;\nSELECT last_insert_rowid();\n"
        ));
    }
    script
}

#[test]
fn writers_that_are_killed_beside_each_other_lose_nothing_that_was_committed() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let mut random = Random::new(7);
    for (mode, page_size) in [("wal", 512), ("wal", 4096), ("delete", 1024), ("truncate", 4096)] {
        let database = directory.path().join(format!("{mode}-{page_size}.db"));
        let script = format!(
            "PRAGMA page_size = {page_size};\nPRAGMA journal_mode = {mode};\n\
             CREATE TABLE t(id INTEGER PRIMARY KEY, n, pad);\n\
             CREATE TABLE l(id INTEGER PRIMARY KEY AUTOINCREMENT, a, b, k);\n\
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 499) \
             INSERT INTO t SELECT i, 0, zeroblob(200) FROM n;"
        );
        run(None, &database, &script);
        for round in 0..5 {
            let vfs: &[_] = if round % 3 == 0 { &[Some(extension)] } else { &[Some(extension), None] };
            let mut writers: Vec<_> = vfs.iter().map(|vfs| Shell::open(*vfs, &database)).collect();
            for (number, writer) in writers.iter_mut().enumerate() {
                writer.ask("PRAGMA wal_autocheckpoint = 20;\nPRAGMA synchronous = off;\nPRAGMA cache_size = 5;");
                // More than it comes to before it is killed.
                let script = transfers(&mut random, 5000);
                writer.send(read(&directory.path().join(format!("{number}.sql")), &script));
            }
            // Killed in the middle of something. What is acknowledged is in the kernel's hands: no power fails here.
            let commits = 20 + random.below(40);
            let mut acknowledged = 0;
            for commit in 0..commits {
                let writer = &mut writers[commit as usize % vfs.len()];
                let line = writer.line().expect("it runs");
                acknowledged = acknowledged.max(line.parse().unwrap_or_else(|_| panic!("{line}")));
            }
            std::thread::sleep(Duration::from_micros(random.below(3000)));
            writers.into_iter().for_each(Shell::kill);
            let checker = if random.below(2) == 0 { Some(extension) } else { None };
            let check = "PRAGMA integrity_check;\nSELECT max(id) FROM l;\n\
                         SELECT count(*) FROM t LEFT JOIN (SELECT id, sum(k) AS total FROM \
                         (SELECT b AS id, k FROM l UNION ALL SELECT a, -k FROM l) GROUP BY id) USING(id) \
                         WHERE n <> coalesce(total, 0);";
            let printed = Shell::open(checker, &database).ask(check);
            let [integrity, last, wrong] = printed.lines().collect::<Vec<_>>()[..] else { panic!("{printed}") };
            let what = format!("{mode}, pages of {page_size} bytes, round {round}");
            assert_eq!((integrity, wrong), ("ok", "0"), "{what}");
            assert!(last.parse::<u64>().expect("a number") >= acknowledged, "{what}: {last} of {acknowledged}");
        }
    }
}

/// Two pages of a kibibyte and a header: less than a sector of 4 KiB.
#[test]
fn a_short_journal_that_another_left_is_rolled_back() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let database = directory.path().join("data.db");
    let script =
        "PRAGMA page_size = 1024;\nCREATE TABLE t(id INTEGER PRIMARY KEY, x);\nINSERT INTO t VALUES(1, 'old value');";
    run(None, &database, script);
    let mut other = Shell::open(None, &database);
    other.expect("PRAGMA synchronous = off;\nBEGIN IMMEDIATE;\nUPDATE t SET x = 'new value';\nSELECT 1;", "1");
    other.kill();
    let journal = std::fs::metadata(directory.path().join("data.db-journal")).expect("it was left").len();
    assert!((1024..4096).contains(&journal), "{journal} bytes");
    // As if it had written its page before it was killed.
    let mut bytes = std::fs::read(&database).expect("readable");
    let at = bytes.windows(9).position(|text| text == b"old value").expect("it is there");
    bytes[at..at + 3].copy_from_slice(b"new");
    std::fs::write(&database, bytes).expect("writable");
    Shell::open(Some(extension), &database).expect("SELECT x FROM t;", "old value");
}

/// The same for files whose times tell nothing.
fn without_times(extension: &Path, directory: &Path, database: &Path) -> Shell {
    let still = compiled(directory, "times_stand_still.c", &["-shared", "-fPIC"]);
    let environment = [("REFAULT_MEMORY", "1048576"), ("LD_PRELOAD", still.to_str().expect("text"))];
    Shell::open_with(Some(extension), database, &environment)
}

const ONE_MORE: &str = "UPDATE t SET x = 'new' || substr(x, 4) WHERE id = (SELECT min(id) FROM t WHERE x LIKE 'old%');";

/// Each life of a WAL's index begins with zeros. One connection lives through it without having looked.
#[test]
fn what_others_do_between_two_lives_of_the_index_is_noticed() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let database = directory.path().join("data.db");
    run(None, &database, &format!("PRAGMA journal_mode = wal;{ROWS}"));
    let mut ours = without_times(extension, directory.path(), &database);
    for turn in 0..5 {
        ours.expect(&format!(".connection 1\n{}", open(&database, "vfs=refault")), "");
        ours.expect(COUNT, &format!("2000|{turn}"));
        ours.expect(".connection 0\n.connection close 1", "");
        run(None, &database, ONE_MORE);
    }
}

#[test]
fn who_may_only_read_the_index_notices_what_others_do() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let database = directory.path().join("data.db");
    run(None, &database, &format!("PRAGMA journal_mode = wal;{ROWS}"));
    let mut other = Shell::open(None, &database);
    other.expect(COUNT, "2000|0");
    let mut ours = without_times(extension, directory.path(), &database);
    ours.expect(&open(&database, "vfs=refault&readonly_shm=1"), "");
    for turn in 1..6 {
        other.expect(&format!("{ONE_MORE}\nPRAGMA wal_checkpoint(truncate);"), "0|0|0");
        ours.expect(COUNT, &format!("2000|{turn}"));
    }
}

/// What this process writes itself, with whatever locks, drops nothing of its cache.
#[test]
fn own_checkpoints_leave_the_cache_alone() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    for locking in ["normal", "exclusive"] {
        let database = directory.path().join(format!("{locking}.db"));
        run(None, &database, &format!("PRAGMA journal_mode = wal;{ROWS}"));
        let mut ours = Shell::open(Some(extension), &database);
        ours.ask(format_args!("PRAGMA cache_size = 5;\nPRAGMA locking_mode = {locking};\n{COUNT}"));
        ours.ask("PRAGMA wal_autocheckpoint = 10;");
        let misses = |shell: &mut Shell| -> u64 {
            let answer = shell.ask("SELECT value FROM refault_stats WHERE name = 'misses';");
            answer.parse().expect("a number")
        };
        ours.expect(COUNT, "2000|0");
        let before = misses(&mut ours);
        for turn in 1..61 {
            ours.expect(&format!("{ONE_MORE}\n{COUNT}"), &format!("2000|{turn}"));
        }
        let missed = misses(&mut ours) - before;
        assert!(missed < 20, "{locking}: {missed} misses");
    }
}
