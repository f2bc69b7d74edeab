//! A program that reads through the C library or the SQLite extension is a reader below: an overlay copies nothing up, a
//! lease stays, and a file system that takes no writes, or a program that runs, can be read.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::archive;
use crate::shell::{extension, scratch};

const HERE: &str = env!("CARGO_MANIFEST_DIR");
/// What `only_reads` prints of a file of at least four bytes: a line for each way to open it.
const ONLY_READ: &str = "4 bytes, 0 writers\n";
const WAYS: usize = 5;
/// Status of the programs here where the system does not let them do what they are for.
const CANNOT: i32 = 77;

/// A C program of `tests/c`, linked with the library.
fn built(directory: &Path, name: &str) -> PathBuf {
    let program = directory.join(name);
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]).arg(Path::new(HERE).join("include"));
    command.arg(Path::new(HERE).join("tests/c").join(name).with_extension("c")).arg(archive());
    let output = command.args(["-lgcc_s", "-lm", "-ldl", "-lrt", "-lutil", "-o"]).arg(&program).output().expect("cc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// What a command prints, errors among it. None, and a skip, where the system does not let it run.
#[track_caller]
fn printed(command: &mut Command) -> Option<String> {
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(CANNOT) || said.starts_with("unshare: ") {
        refault_testing::skip(format_args!("no mounts or leases here: {said}"));
        return None;
    }
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).expect("text") + &said)
}

/// The same of a command in a file system over `lower` of a directory: `overlay`, `full` or `readonly`.
#[track_caller]
fn mounted<T: AsRef<OsStr>>(kind: &str, directory: &Path, command: &[T]) -> Option<String> {
    let script = Path::new(HERE).join("tests/scripts/mounted.sh");
    printed(Command::new(script).arg(kind).arg(directory).args(command))
}

/// SQLite's shell with the extension and a database, read by SQL.
fn reader(extension: &Path, database: &str, mode: &str) -> Vec<OsString> {
    let load = format!(".load {} sqlite3_refaultvfs_init", extension.display());
    let open = format!(".open file:{database}?vfs=refault{mode}");
    let asks = "SELECT sum(x) FROM t; SELECT value > 0 FROM refault_stats WHERE name = 'misses';";
    ["sqlite3", "-batch", ":memory:", &load, &open, asks].map(OsString::from).to_vec()
}

/// What it prints.
const READ: &str = "49995000\n1\n";

/// A database of some pages, made by SQLite's default VFS.
fn database(path: &Path) {
    let rows = "CREATE TABLE t(x); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999) \
                INSERT INTO t SELECT i FROM n;";
    let made = Command::new("sqlite3").arg(path).arg(rows).output().expect("sqlite3");
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn a_program_in_c_that_reads_is_a_reader_below() {
    let directory = scratch();
    let (program, leased) = (built(directory.path(), "only_reads"), built(directory.path(), "leased"));
    let lower = directory.path().join("lower");
    std::fs::create_dir(&lower).expect("a directory");
    std::fs::write(lower.join("data"), [b'x'; 100_000]).expect("writes");
    let only_read = ONLY_READ.repeat(WAYS);
    let command = [program.as_os_str(), "data".as_ref()];
    for kind in ["overlay", "full", "readonly"] {
        let Some(printed) = mounted(kind, directory.path(), &command) else { return };
        assert_eq!(printed, only_read, "{kind}");
    }
    // Where something is written, it is copied or refused: the same handle is a writer from then on.
    let command = [program.as_os_str(), "data".as_ref(), "write".as_ref()];
    for (kind, end) in [
        ("readonly", "written: Read-only file system\n"),
        ("full", "written: No space left on device\n"),
        ("overlay", "written: yes\ncopied up: ./data\n"),
    ] {
        let Some(printed) = mounted(kind, directory.path(), &command) else { return };
        assert_eq!(printed, format!("{only_read}{end}"), "{kind}");
    }
    // A program that runs.
    let Some(said) = printed(Command::new(&program).arg(&program)) else { return };
    assert_eq!(said, only_read);
    let Some(said) = printed(Command::new(&program).arg(&program).arg("write")) else { return };
    assert_eq!(said, format!("{only_read}written: Text file busy\n"));
    let data = lower.join("data");
    let Some(said) = printed(Command::new(leased).arg(&data).arg(program).arg(&data)) else { return };
    assert_eq!(said, format!("{only_read}the lease is held\n"));
}

#[test]
fn a_database_that_is_only_read_is_not_opened_for_writing() {
    let directory = scratch();
    let Some(extension) = extension() else { return };
    let lower = directory.path().join("lower");
    std::fs::create_dir(&lower).expect("a directory");
    database(&lower.join("data.db"));
    for mode in ["&mode=ro", "&mode=ro&immutable=1"] {
        for kind in ["overlay", "full", "readonly"] {
            let Some(printed) = mounted(kind, directory.path(), &reader(extension, "data.db", mode)) else { return };
            assert_eq!(printed, READ, "{kind} {mode}");
        }
        let leased = built(directory.path(), "leased");
        let database = lower.join("data.db");
        let shell = reader(extension, &database.display().to_string(), mode);
        let Some(said) = printed(Command::new(leased).arg(&database).args(shell)) else { return };
        assert_eq!(said, format!("{READ}the lease is held\n"), "{mode}");
    }
    // Without `mode=ro` SQLite itself opens for writing, or for reading where that is refused.
    let Some(printed) = mounted("readonly", directory.path(), &reader(extension, "data.db", "")) else { return };
    assert_eq!(printed, READ);
    let Some(printed) = mounted("overlay", directory.path(), &reader(extension, "data.db", "")) else { return };
    assert_eq!(printed, format!("{READ}copied up: ./data.db\n"));
}

/// fio's engine, built by the script that users build it with; None, and a skip, without fio or its source.
#[track_caller]
fn engine_of_fio(directory: &Path) -> Option<PathBuf> {
    let script = Path::new(HERE).join("../../scripts/fio-engine");
    let mut command = Command::new(script);
    let output =
        command.arg("--out").arg(directory).arg("--archive").arg(archive()).output().expect("the script starts");
    // As the script says of itself.
    const NO_SOURCE: i32 = 3;
    if output.status.code() == Some(NO_SOURCE) || Command::new("fio").arg("--version").output().is_err() {
        refault_testing::skip(format_args!("no fio, or not its source: {}", String::from_utf8_lossy(&output.stderr)));
        return None;
    }
    assert!(output.status.success(), "{output:?}");
    Some(directory.join("refault_fio.so"))
}

/// A job of fio's. Options of an engine follow its name.
fn job(engine: &Path, file: &Path, kind: &str) -> Vec<OsString> {
    let (engine, file) =
        (format!("--ioengine=external:{}", engine.display()), format!("--filename={}", file.display()));
    let kind = format!("--rw={kind}");
    let options =
        ["--bs=4k", "--size=96k", "--thread", "--output-format=terse", "--terse-version=3", &kind, &file, &engine];
    let all = ["fio", "--name=job"].into_iter().chain(options).chain(["--refault_memory=1m"]);
    all.map(OsString::from).collect()
}

/// What fio says of a job: its error, and the KiB that it read.
fn told(printed: &str) -> (String, String) {
    let line = printed.lines().find(|line| line.starts_with("3;fio-")).unwrap_or_else(|| panic!("{printed}"));
    let fields: Vec<&str> = line.split(';').collect();
    (fields[4].to_owned(), fields[5].to_owned())
}

#[test]
fn a_job_of_fio_that_reads_is_a_reader_below() {
    let directory = scratch();
    let Some(engine) = engine_of_fio(directory.path()) else { return };
    let lower = directory.path().join("lower");
    std::fs::create_dir(&lower).expect("a directory");
    std::fs::write(lower.join("data"), [b'x'; 100_000]).expect("writes");
    let read = ("0".to_owned(), "96".to_owned());
    let data = Path::new("data");
    for kind in ["read", "randread"] {
        let command = job(&engine, data, kind);
        for place in ["overlay", "full", "readonly"] {
            let Some(printed) = mounted(place, directory.path(), &command) else { return };
            assert_eq!(told(&printed), read, "{place} {kind}");
            assert!(!printed.contains("copied up"), "{place} {kind}: {printed}");
        }
        // A program that runs, and a file with a lease.
        let program = directory.path().join("sleep");
        std::fs::copy("/bin/sleep", &program).expect("a program");
        let mut running = Command::new(&program).arg("60").spawn().expect("it runs");
        let output = Command::new("fio").args(&job(&engine, &program, kind)[1..]).arg("--size=16k").output();
        running.kill().and_then(|()| running.wait()).expect("it was running");
        let said = String::from_utf8(output.expect("fio").stdout).expect("text");
        assert_eq!(told(&said), ("0".to_owned(), "16".to_owned()), "{kind}: {said}");
        let leased = built(directory.path(), "leased");
        let file = lower.join("data");
        let Some(said) = printed(Command::new(leased).arg(&file).args(job(&engine, &file, kind))) else { return };
        assert_eq!(told(&said), read);
        assert!(said.ends_with("the lease is held\n"), "{kind}: {said}");
    }
    // What writes is a writer, so that the above can fail.
    let Some(printed) = mounted("overlay", directory.path(), &job(&engine, data, "write")) else { return };
    assert!(printed.ends_with("copied up: ./data\n"), "{printed}");
}
