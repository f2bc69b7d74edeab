//! The daemon with processes that join by hand: what they had comes back when the last of them is gone, and not before.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use refault_pool::shared::daemon::{Daemon, PoolOptions};
use refault_pool::shared::place::Place;
use refault_pool::shared::protocol::{Answer, MAX_LINE, Request, receive, send};
use refault_testing::skip;
use rustix::process::{Pid, Signal, kill_process};

const MIB: u64 = 1 << 20;
static NEVER: AtomicBool = AtomicBool::new(false);

fn pool(memory: u64) -> (tempfile::TempDir, Place, Arc<Daemon>) {
    let directory = tempfile::tempdir().expect("a directory");
    let place = Place::within(&directory.path().join("pools"), "t").expect("a name");
    let daemon = open(&place, memory);
    let server = Arc::clone(&daemon);
    std::thread::spawn(move || server.run(&NEVER, |_| ()));
    (directory, place, daemon)
}

fn open(place: &Place, memory: u64) -> Arc<Daemon> {
    let options = PoolOptions { memory, min_ttl: Duration::ZERO, proactive: None, members: Default::default() };
    Daemon::open(place.clone(), options).expect("a pool")
}

/// What the pool says about a member's budget.
fn set_budget(place: &Place, pid: u64, bytes: impl Into<Option<u64>>) -> Option<Answer> {
    let stream = UnixStream::connect(place.socket()).expect("it listens");
    send(&stream, &Request::Budget { pid, bytes: bytes.into() }).expect("it reads");
    receive(&mut BufReader::new(&stream), MAX_LINE).expect("an answer")
}

/// A process, and those before it by which it was started, ended with the test.
struct Script {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Script {
    fn start(place: &Place, before: &[&str], what: &[&str]) -> Script {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/member.py");
        let socket = place.socket();
        let words = [before, &["python3", script, socket.to_str().expect("UTF-8")], what].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let says = BufReader::new(child.stdout.take().expect("a pipe"));
        Script { child, says }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).expect("it says something");
        line.trim().to_owned()
    }

    fn end(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it ran");
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < until, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn lacks(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let lacks = !std::env::split_paths(&path).any(|directory| directory.join(program).is_file());
    if lacks {
        skip(format_args!("{program} is not installed"));
    }
    lacks
}

fn kill(number: &str) {
    let pid = Pid::from_raw(number.parse().expect("a number")).expect("not 0");
    kill_process(pid, Signal::KILL).expect("it runs");
}

#[test]
fn what_a_killed_member_had_stays_in_use_until_the_last_that_descends_from_its_processes_has_ended() {
    if lacks("python3") {
        return;
    }
    let (_directory, place, daemon) = pool(64 * MIB);
    let mut member = Script::start(&place, &[], &["forks"]);
    assert_eq!(member.line(), "joined");
    let child = member.line();
    // Time for the report, and for the one below to be nothing that was reported.
    std::thread::sleep(Duration::from_millis(300));
    let mut stdin = member.child.stdin.take().expect("a pipe");
    stdin.write_all(b"\n").expect("it listens");
    let grandchild = member.line();
    member.end();
    std::thread::sleep(Duration::from_millis(600));
    kill(&child);
    std::thread::sleep(Duration::from_millis(600));
    let committed = daemon.status().committed_bytes;
    assert!(committed >= 32 * MIB, "{committed} while {grandchild} runs");
    kill(&grandchild);
    wait_for("its memory to be free", || daemon.status().committed_bytes == 0);
}

#[test]
fn a_process_of_which_its_member_has_no_number_of_ours_is_found_by_its_descent() {
    if lacks("python3") {
        return;
    }
    let (_directory, place, daemon) = pool(128 * MIB);
    // Another that was killed is looked after meanwhile, more often.
    let mut other = Script::start(&place, &[], &["forks"]);
    assert_eq!(other.line(), "joined");
    let orphan = other.line();
    std::thread::sleep(Duration::from_millis(300));
    other.end();
    let elsewhere = (1 << 30) + 2;
    let mut member = Script::start(&place, &[], &["forks", &elsewhere.to_string()]);
    assert_eq!(member.line(), "joined");
    let child = member.line();
    // Longer than from one look to the next.
    std::thread::sleep(Duration::from_millis(1500));
    member.end();
    std::thread::sleep(Duration::from_millis(600));
    let committed = daemon.status().committed_bytes;
    assert!(committed >= 64 * MIB, "{committed} while {child} and {orphan} run");
    kill(&child);
    kill(&orphan);
    wait_for("its memory to be free", || daemon.status().committed_bytes == 0);
}

#[test]
fn processes_that_a_member_names_and_that_were_there_before_it_do_not_hold_its_memory() {
    if lacks("python3") {
        return;
    }
    let (_directory, place, daemon) = pool(64 * MIB);
    let mut member = Script::start(&place, &[], &["stays", "1", "2", "-1", "0"]);
    assert_eq!((member.line(), member.line()), ("joined".to_owned(), "reported".to_owned()));
    std::thread::sleep(Duration::from_millis(300));
    assert!(daemon.status().committed_bytes >= 32 * MIB);
    member.end();
    wait_for("its memory to be free", || daemon.status().members.is_empty());
}

#[test]
fn numbers_of_another_pid_namespace_are_not_taken_for_ours() {
    if lacks("python3") || lacks("unshare") {
        return;
    }
    let unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"];
    if !Command::new(unshare[0]).args(&unshare[1..]).arg("true").status().is_ok_and(|status| status.success()) {
        return skip("no PID namespaces here");
    }
    let (_directory, place, daemon) = pool(64 * MIB);
    // A process with a number of ours that is younger than the member and stays.
    let mut member = Script::start(&place, &unshare, &["forks"]);
    assert_eq!(member.line(), "joined");
    let members = daemon.status().members;
    let id = *members.keys().next().expect("it joined");
    assert!(id > 2, "as it is called here, not there: {id}");
    member.line();
    std::thread::sleep(Duration::from_millis(1300));
    assert!(daemon.status().committed_bytes >= 32 * MIB);
    // The first process of a namespace takes the others along.
    member.end();
    wait_for("its memory to be free", || daemon.status().members.is_empty());
}

#[test]
fn a_budget_set_by_hand_is_kept_for_the_daemon_after_this_one() {
    if lacks("python3") {
        return;
    }
    let (directory, place, daemon) = pool(64 * MIB);
    let mut member = Script::start(&place, &[], &["stays"]);
    assert_eq!(member.line(), "joined");
    let id = u64::from(member.child.id());
    let below = "below the least that the member is to have, 32 MiB";
    assert_eq!(set_budget(&place, id, 8 * MIB), Some(Answer::Refused(below.to_owned())));
    assert_eq!(set_budget(&place, id, 40 * MIB), Some(Answer::Done));
    let kept = || std::fs::read_to_string(place.state()).is_ok_and(|text| text.contains("\"budget\":41943040"));
    wait_for("it to be written", kept);
    // The next one finds the files of this one; the lock is the first's as long as it runs.
    let next = Place::within(&directory.path().join("next"), "t").expect("a name");
    drop(open(&next, 64 * MIB));
    std::fs::copy(place.state(), next.state()).expect("room");
    let after = open(&next, 64 * MIB);
    let status = &after.status().members[&id];
    assert_eq!((status.terms.max, status.budget_bytes), (Some(40 * MIB), Some(40 * MIB)));
    // Lifted there, what the member asked for holds again.
    let server = Arc::clone(&after);
    std::thread::spawn(move || server.run(&NEVER, |_| ()));
    assert_eq!(set_budget(&next, id, None), Some(Answer::Done));
    let status = &after.status().members[&id];
    assert_eq!((status.terms.max, status.terms.min, status.budget_bytes), (None, 32 * MIB, None));
    drop(daemon);
}
