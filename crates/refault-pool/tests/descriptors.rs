//! A daemon that has few descriptors. By itself, because the limit is the process's.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use refault_pool::shared::daemon::{Daemon, PoolOptions};
use refault_pool::shared::place::Place;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const MIB: u64 = 1 << 20;
static NEVER: AtomicBool = AtomicBool::new(false);

#[test]
fn a_crowd_of_connections_takes_no_descriptor_that_looks_at_members_need_and_the_soft_limit_is_raised() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = Place::within(&directory.path().join("pools"), "t").expect("a name");
    let options =
        PoolOptions { memory: 64 * MIB, min_ttl: Duration::ZERO, proactive: None, members: Default::default() };
    let daemon = Daemon::open(place.clone(), options).expect("a pool");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/member.py");
    let mut command = Command::new("python3");
    command.args([script, place.socket().to_str().expect("UTF-8"), "crowds", "100"]);
    let Ok(mut member) = command.stdout(Stdio::piped()).spawn() else {
        return refault_testing::skip("python3 is not installed");
    };
    setrlimit(Resource::Nofile, Rlimit { current: Some(40), maximum: Some(56) }).expect("lower is allowed");
    let server = Arc::clone(&daemon);
    std::thread::spawn(move || server.run(&NEVER, |_| ()));
    let mut said = BufReader::new(member.stdout.take().expect("a pipe")).lines();
    for words in ["joined", "crowded"] {
        assert_eq!(said.next().expect("a line").expect("UTF-8"), words);
    }
    assert_eq!(getrlimit(Resource::Nofile).current, Some(56));
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        let status = daemon.status();
        assert!(status.members.len() == 1 && status.committed_bytes >= 32 * MIB, "{status:?}");
        std::fs::File::open("/proc/self/stat").expect("a descriptor is left");
        std::thread::sleep(Duration::from_millis(20));
    }
    member.kill().and_then(|()| member.wait()).expect("it ran");
    while !daemon.status().members.is_empty() {
        assert!(Instant::now() < until + Duration::from_secs(10), "what it had comes back");
        std::thread::sleep(Duration::from_millis(20));
    }
}
