//! The working set of a process that is known: this binary again, as a child that touches a part of its memory.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use refault_pool::wss::measure;

const MIB: u64 = 1 << 20;
const ALL: u64 = 96 * MIB;
const HOT: u64 = 24 * MIB;
const WARM: u64 = 40 * MIB;

/// Not a test: what the child does. Touches [`HOT`] of [`ALL`] all the time, [`WARM`] once after two seconds.
#[test]
fn child() {
    if std::env::var_os("REFAULT_WSS_CHILD").is_none() {
        return;
    }
    // SAFETY: asks the kernel for small pages only, so that what is touched is known to the page.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    let mut memory = vec![1u8; ALL as usize];
    println!("\nready");
    let begun = Instant::now();
    let mut warm = false;
    while begun.elapsed() < Duration::from_secs(60) {
        let touched =
            if begun.elapsed() > Duration::from_secs(2) && !std::mem::replace(&mut warm, true) { WARM } else { HOT };
        memory[..touched as usize].iter_mut().step_by(4096).for_each(|byte| *byte = std::hint::black_box(*byte));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn windows_hold_what_is_known_to_be_touched() {
    let mut child = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "child", "--nocapture"])
        .env("REFAULT_WSS_CHILD", "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("this binary again");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert!(lines.any(|line| line.expect("text") == "ready"));
    let lengths = [Duration::from_secs(1), Duration::from_secs(4)];
    let mut windows = Vec::new();
    let wait = |time| {
        std::thread::sleep(time);
        true
    };
    let measured = measure(child.id(), &lengths, wait, |window| windows.push(window));
    child.kill().expect("it runs");
    child.wait().expect("it ran");
    measured.expect("our own child");
    // What else the child touches, code and stack, is far less than that.
    let more = 2 * MIB;
    for (window, touched) in windows.iter().zip([HOT, WARM]) {
        let accessed = window.accessed_bytes;
        assert!((touched..touched + more).contains(&accessed), "{} MiB, not {} MiB", accessed / MIB, touched / MIB);
        assert!(window.resident_bytes >= ALL && window.idle_bytes() >= ALL - touched - more, "{window:?}");
    }
    assert_eq!(windows.len(), 2);
}
