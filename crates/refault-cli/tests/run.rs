//! `refault run` with real programs: results as without it, budgets kept, obstacles named.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{skipped, text};
use serde_json::Value;

fn refault(memory: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refault"));
    command.args(["run", "--memory", memory]).args(arguments);
    command
}

fn output(command: &mut Command) -> Output {
    command.output().expect("refault starts")
}

fn succeeds(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{:?}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("refault-run-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Scratch(path)
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        std::fs::write(self.path(name), contents).expect("writes");
        self.path(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn last_line(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("statistics");
    serde_json::from_str(text.lines().last().expect("a line")).expect("JSON")
}

#[test]
fn exit_status_signals_and_output_are_the_programs_own() {
    if skipped(&["sh"]) {
        return;
    }
    let run = |script: &str| output(&mut refault("64M", &["--", "sh", "-c", script]));
    let done = run("echo out; echo err >&2; exit 7");
    assert_eq!((done.status.code(), text(&done.stdout)), (Some(7), "out\n".into()));
    let said = text(&done.stderr);
    assert!(said.starts_with("err\nrefault: peak ") && said.lines().count() == 2, "{said}");
    assert_eq!(run("kill -TERM $$").status.signal(), Some(libc_sigterm()));
}

const fn libc_sigterm() -> i32 {
    15
}

#[test]
fn obstacles_are_told_apart() {
    if skipped(&["gcc"]) {
        return;
    }
    let scratch = Scratch::new("obstacles");
    let source = scratch.write("static.c", "int main(void){return 0;}");
    let program = scratch.path("static");
    let gcc = Command::new("gcc").arg("-static").arg("-o").arg(&program).arg(&source).output().expect("gcc starts");
    if gcc.status.success() {
        let refused = output(&mut refault("64M", &["--backend", "pager", "--", program.to_str().expect("text")]));
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).contains("statically linked"), "{}", text(&refused.stderr));
    } else {
        refault_testing::skip_required("gcc cannot link statically here");
    }
    let refused = output(&mut refault("64M", &["--", "no-such-program"]));
    assert_eq!(refused.status.code(), Some(2));
    let refused = output(&mut refault("64M", &["--", source.to_str().expect("text")]));
    assert!(text(&refused.stderr).contains("name its interpreter before it"), "{}", text(&refused.stderr));
    let refused = output(&mut refault("64M", &["--policy", "lru", "--", "true"]));
    assert_eq!(refused.status.code(), Some(2));
    for (policy, why) in [
        ("lrfu{half_life=0}", "half_life=0 is not allowed: a number from 0.01 to 100"),
        ("mglru{window=1}", "no parameter 'window'"),
        ("clock{hands=2}", "there are none"),
        ("lrfu{half_life=2", "unbalanced braces"),
    ] {
        let refused = output(&mut refault("64M", &["--policy", policy, "--", "true"]));
        assert_eq!(refused.status.code(), Some(2), "{policy}");
        assert!(text(&refused.stderr).contains(why), "{}", text(&refused.stderr));
    }
    assert_eq!(
        succeeds(&mut refault("64M", &["--policy", "lrfu{half_life=8,interval=10%}", "--", "echo", "on"])),
        "on\n"
    );
    let refused = output(&mut refault("64M", &["--store", "attic", "--", "true"]));
    assert_eq!(refused.status.code(), Some(2));
    let within = ["--", env!("CARGO_BIN_EXE_refault"), "run", "--memory", "8M", "--", "true"];
    let refused = output(&mut refault("64M", &within));
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("this is under 'refault run' already"), "{}", text(&refused.stderr));
}

const KEEPS_ITS_MEMORY: &str = include_str!("scripts/keeps_its_memory.py");

#[test]
fn python_forks_threads_and_subprocesses_keep_their_memory() {
    if skipped(&["python3"]) {
        return;
    }
    let scratch = Scratch::new("python");
    let script = scratch.write("script.py", KEEPS_ITS_MEMORY);
    for extra in [&["--store", "pool"][..], &["--store", "file=/var/tmp"], &["--policy", "clock"]] {
        let stats = scratch.path("stats");
        let mut command = refault("16M", extra);
        command.arg("--stats").arg(&stats).arg("--").arg("python3").arg(&script);
        assert_eq!(succeeds(&mut command), "whole\n");
        let line = last_line(&stats);
        assert!(line["pswpout"].as_u64() > Some(1000) && line["lost"] == 0, "{line}");
        assert!(line["resident_bytes"].as_u64() <= line["budget_bytes"].as_u64(), "{line}");
    }
}

#[test]
fn a_budget_beyond_all_memory_is_one() {
    assert_eq!(succeeds(&mut refault("200T", &["--", "echo", "ran"])), "ran\n");
}

#[test]
fn numpy_arrays_larger_than_the_budget() {
    let has_numpy = |python: &&str| {
        let found = Command::new(python).args(["-c", "import numpy"]).output();
        found.is_ok_and(|output| output.status.success())
    };
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(|python| has_numpy(python)) else {
        refault_testing::skip_required("no python3 with numpy");
        return;
    };
    if skipped(&[]) {
        return;
    }
    let script = "import numpy as np; a = np.arange(8_000_000); b = a[::-1].copy(); a += b; print(a.min(), a.max())";
    assert_eq!(succeeds(&mut refault("64M", &["--", python, "-c", script])), "7999999 7999999\n");
}

#[test]
fn sort_compiles_and_databases_give_the_same_results() {
    if skipped(&["sort", "sqlite3"]) {
        return;
    }
    let scratch = Scratch::new("tools");
    let lines: String = (0..200_000u64).map(|n| format!("{}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    let input = scratch.write("lines", lines);
    let input = input.to_str().expect("text");
    let plain = Command::new("sort").args(["-S", "64M", input]).output().expect("sort starts");
    assert!(succeeds(&mut refault("8M", &["--", "sort", "-S", "64M", "--parallel=2", input])) == text(&plain.stdout));

    let query = "pragma cache_size=100000; create table t(a integer primary key, b blob);
        with recursive c(x) as (select 1 union all select x+1 from c where x<60000) insert into t select x, randomblob(500) from c;
        select count(*), sum(length(b)) from t; select count(*) from t where length(b)=500;";
    assert_eq!(succeeds(&mut refault("8M", &["--", "sqlite3", ":memory:", query])), "60000|30000000\n60000\n");
}

const MAPS_OF_STRINGS: &str = include_str!("c/maps_of_strings.cc");

#[test]
fn a_compiler_and_what_it_compiles() {
    if skipped(&["g++"]) {
        return;
    }
    let scratch = Scratch::new("cplusplus");
    let source = scratch.write("mt.cpp", MAPS_OF_STRINGS);
    let program = scratch.path("mt");
    let (source, program) = (source.to_str().expect("text"), program.to_str().expect("text"));
    succeeds(&mut refault("48M", &["--", "g++", "-O1", "-pthread", "-o", program, source]));
    assert_eq!(succeeds(&mut refault("16M", &["--", program])), "bad 0\n");
    assert_eq!(succeeds(&mut refault("16M", &["--", program])), "bad 0\n");
}

const MAPPING_CALLS: &str = include_str!("c/mapping_calls.c");

#[test]
fn the_calls_of_semantics_behave_as_written() {
    if skipped(&["gcc"]) {
        return;
    }
    let scratch = Scratch::new("mappings");
    let source = scratch.write("mappings.c", MAPPING_CALLS);
    let program = scratch.path("mappings");
    let gcc = Command::new("gcc").arg("-o").arg(&program).arg(&source).output().expect("gcc starts");
    assert!(gcc.status.success(), "{}", text(&gcc.stderr));
    let program = program.to_str().expect("text");
    for extra in [&["--store", "pool"][..], &["--store", "file=/var/tmp"]] {
        let mut arguments = extra.to_vec();
        arguments.extend(["--", program]);
        assert_eq!(succeeds(&mut refault("6M", &arguments)), "whole\n");
    }
}

#[test]
fn stressors_that_verify() {
    if skipped(&["stress-ng"]) {
        return;
    }
    let arguments = ["--vm", "1", "--vm-bytes", "48M", "--vm-ops", "150", "--verify", "--timeout", "10"];
    let mut command = refault("24M", &["--", "stress-ng"]);
    succeeds(command.args(arguments));
}

/// Starts a server, calls `work` when its socket answers, and ends it.
fn with_server(mut command: Command, socket: &Path, work: impl FnOnce(std::os::unix::net::UnixStream)) {
    let mut server = command.stdout(std::process::Stdio::null()).spawn().expect("starts");
    let connect = || {
        for _ in 0..200 {
            if let Ok(stream) = std::os::unix::net::UnixStream::connect(socket) {
                return Some(stream);
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        None
    };
    let stream = connect();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(stream.expect("the server answers"))));
    let _ = server.kill();
    let _ = server.wait();
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn memcached_keeps_its_values() {
    if skipped(&["memcached"]) {
        return;
    }
    use std::io::{BufRead, BufReader, Read, Write};
    let scratch = Scratch::new("memcached");
    let socket = scratch.path("socket");
    let mut command = refault("24M", &["--", "memcached", "-u", "root", "-m", "128", "-t", "2", "-s"]);
    command.arg(&socket);
    with_server(command, &socket, |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().expect("clones"));
        let value = |n: usize| format!("{n}-").repeat(2000)[..2000].to_owned();
        let mut line = String::new();
        for n in 0..20_000 {
            write!(stream, "set k{n} 0 0 2000\r\n{}\r\n", value(n)).expect("writes");
            line.clear();
            reader.read_line(&mut line).expect("answers");
            assert_eq!(line, "STORED\r\n");
        }
        for n in (0..20_000).step_by(7) {
            write!(stream, "get k{n}\r\n").expect("writes");
            line.clear();
            reader.read_line(&mut line).expect("answers");
            assert!(line.starts_with("VALUE"), "{line}");
            let mut body = vec![0; 2007];
            reader.read_exact(&mut body).expect("answers");
            assert!(body[..2000] == *value(n).as_bytes(), "value {n}");
        }
    });
}

#[test]
fn redis_saves_in_a_forked_child() {
    if skipped(&["redis-server"]) {
        return;
    }
    use std::io::{BufRead, BufReader, Write};
    let scratch = Scratch::new("redis");
    let socket = scratch.path("socket");
    let server = |memory: Option<&str>| {
        let mut command = match memory {
            Some(memory) => refault(memory, &["--", "redis-server"]),
            None => Command::new("redis-server"),
        };
        command.args(["--port", "0", "--save", "", "--enable-debug-command", "yes", "--unixsocket"]).arg(&socket);
        command.arg("--dir").arg(&scratch.0);
        command
    };
    let ask = |stream: &mut std::os::unix::net::UnixStream, command: &str| {
        write!(stream, "{command}\r\n").expect("writes");
        let mut reader = BufReader::new(stream.try_clone().expect("clones"));
        let mut line = String::new();
        reader.read_line(&mut line).expect("answers");
        if let Some(len) = line.strip_prefix('$').and_then(|len| len.trim().parse::<usize>().ok()) {
            let mut body = vec![0; len + 2];
            std::io::Read::read_exact(&mut reader, &mut body).expect("answers");
            return text(&body);
        }
        line
    };
    let mut digest = String::new();
    with_server(server(Some("16M")), &socket, |mut stream| {
        assert!(ask(&mut stream, "debug populate 20000 key 2000").starts_with("+OK"));
        digest = ask(&mut stream, "debug digest");
        assert!(ask(&mut stream, "bgsave").starts_with("+Background"));
        for _ in 0..400 {
            if ask(&mut stream, "info persistence").contains("rdb_bgsave_in_progress:0") {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert!(ask(&mut stream, "info persistence").contains("rdb_last_bgsave_status:ok"));
        assert_eq!(ask(&mut stream, "debug digest"), digest);
    });
    let _ = std::fs::remove_file(&socket);
    with_server(server(None), &socket, |mut stream| {
        let mut loaded = ask(&mut stream, "debug digest");
        for _ in 0..100 {
            if !loaded.contains("LOADING") {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
            loaded = ask(&mut stream, "debug digest");
        }
        assert_eq!(loaded, digest, "what the child saved is what the parent had");
    });
}

#[test]
fn unworkable_options_are_refused_in_one_line() {
    if skipped(&["true"]) {
        return;
    }
    for (arguments, named) in [
        (&["--memory", "64K"][..], "at least 2M"),
        (&["--memory", "2097151"], "at least 2M"),
        (&["--memory", "64M", "--children", "none"], "shared"),
        (&["--memory", "64M", "--store", "file=/proc"], "/proc"),
        (&["--memory", "64M", "--set", "seed=1"], "--scheme"),
        (&["--memory", "64M", "--grow", "32M"], "more than the budget begins with"),
        (&["--memory", "64M", "--memory-control", "/no/such/place"], "/no/such"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_refault"));
        let refused = output(command.arg("run").args(arguments).args(["--", "true"]));
        let said = text(&refused.stderr);
        assert_eq!((refused.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
        assert!(said.contains(named), "{arguments:?}: {said}");
    }
}

#[test]
fn a_shell_gets_on_with_very_little() {
    if skipped(&["bash", "timeout"]) {
        return;
    }
    let script = "a=(); for i in {1..20000}; do a+=($i); done; echo ${#a[@]} $(echo child)";
    let arguments = ["--", "timeout", "-s", "KILL", "60", "bash", "-c", script];
    assert_eq!(succeeds(&mut refault("3M", &arguments)), "20000 child\n");
}
