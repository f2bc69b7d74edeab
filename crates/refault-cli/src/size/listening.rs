//! Whether a server can be reached yet: some process of its group listens on a socket.
//!
//! Sockets that listen are in `/proc/net/{tcp,tcp6,unix}` with their inodes; whose they are say the links in
//! `/proc/PID/fd`. Cost: a walk over `/proc`, some milliseconds; asked some fifty times per second while a server
//! starts.

use std::collections::HashSet;
use std::fs;

/// The state of a TCP socket that listens, as the kernel prints it.
const LISTEN: &str = "0A";
/// The flag of a Unix socket that listens (`SO_ACCEPTCON`), as the kernel prints it.
const ACCEPTS: &str = "00010000";

/// Whether a process of this group listens on a socket.
pub fn is_listening(group: u32) -> bool {
    let listening = inodes();
    !listening.is_empty() && members(group).into_iter().any(|pid| has_one_of(pid, &listening))
}

fn inodes() -> HashSet<String> {
    let mut inodes = HashSet::new();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        inodes.extend(text.lines().skip(1).filter_map(tcp_listener));
    }
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    inodes.extend(text.lines().skip(1).filter_map(unix_listener));
    inodes
}

fn tcp_listener(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    (*words.get(3)? == LISTEN).then(|| words.get(9).map(|inode| (*inode).to_owned()))?
}

fn unix_listener(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    (*words.get(3)? == ACCEPTS).then(|| words.get(6).map(|inode| (*inode).to_owned()))?
}

/// The processes whose group this is.
fn members(group: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| group_of(*pid) == Some(group)).collect()
}

fn group_of(pid: u32) -> Option<u32> {
    const GROUP: usize = 5;
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    refault_linux::proc::stat_field(text.as_bytes(), GROUP)
}

fn has_one_of(pid: u32, inodes: &HashSet<String>) -> bool {
    let Ok(links) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    links.flatten().filter_map(|link| fs::read_link(link.path()).ok()).any(|target| {
        let target = target.to_string_lossy();
        target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')).is_some_and(|it| inodes.contains(it))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_of_this_group_is_seen() {
        let group = group_of(std::process::id()).expect("this process has a group");
        let _listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
        assert!(is_listening(group));
        assert!(!is_listening(u32::MAX));
    }
}
