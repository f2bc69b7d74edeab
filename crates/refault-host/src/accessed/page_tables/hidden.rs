//! Processes that are in a group and are not seen.
//!
//! `/proc` may be mounted so that a user sees no processes of others: they look as if they had ended, and yet a signal
//! would find them. Groups of version 1 do not list processes of other PID namespaces. Their memory shows: more is charged to
//! the group than its processes map. That is also so of what a process left behind as it moved to another group.
//! Nothing is known of either.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::process::{Pid, test_kill_process};

use crate::figures::{self, Own};
use crate::tree::Group;

/// The inode of the PID namespace that the kernel began with.
const FIRST: u64 = 0xefff_fffc;
/// Of what is charged, the share that counts as mapped though it was not seen.
const SHARE: f64 = 0.05;
const MIN_BYTES: u64 = 4 << 20;
/// What the kernel's sums may be behind by for each processor.
const BEHIND_BYTES: u64 = 64 * 4096;

/// Whether a process is there that could not be looked at for this error.
pub(super) fn is(pid: u32, error: &io::Error) -> bool {
    match error.kind() {
        io::ErrorKind::PermissionDenied => true,
        io::ErrorKind::NotFound => {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            pid.is_some_and(|pid| !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH)))
        }
        _ => false,
    }
}

/// What was seen of a group's processes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) processes: usize,
    /// In memory of what they map: no file's, and of files or shared.
    pub(super) anonymous_bytes: u64,
    pub(super) mapped_bytes: u64,
}

/// The PID namespace of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Namespace {
    /// It has all processes of the host.
    is_first: bool,
    processors: u64,
}

impl Namespace {
    pub(super) fn own() -> Namespace {
        let is_first = fs::metadata("/proc/self/ns/pid").is_ok_and(|data| data.ino() == FIRST);
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        Namespace { is_first, processors }
    }

    /// Whether more is charged to the group itself than what was seen of its processes.
    pub(super) fn holds_memory(&self, group: &Group, seen: Seen) -> bool {
        // Version 2 lists all processes.
        group.version == 1
            && figures::stat(&group.directory).and_then(|stat| stat.own).is_some_and(|own| self.is_more(own, seen))
    }

    fn is_more(&self, charged: Own, seen: Seen) -> bool {
        let is_more = |charged: u64, seen: u64| {
            let allowed = ((charged as f64 * SHARE) as u64).max(MIN_BYTES).max(BEHIND_BYTES * self.processors);
            charged.saturating_sub(seen) > allowed
        };
        if is_more(charged.anonymous_bytes, seen.anonymous_bytes) {
            return true;
        }
        // Elsewhere other groups' processes map files that are charged here.
        let is_empty = seen.processes == 0;
        let is_charged = charged.anonymous_bytes > 0 || charged.mapped_bytes > 0;
        !self.is_first && (is_empty && is_charged || is_more(charged.mapped_bytes, seen.mapped_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_charged_and_not_mapped_by_a_process_that_is_seen_is_hidden() {
        let first = Namespace { is_first: true, processors: 2 };
        let nested = Namespace { is_first: false, processors: 2 };
        let is_more = |place: Namespace, charged: (u64, u64), seen: (usize, u64, u64)| {
            let own = Own { anonymous_bytes: charged.0 * MIB, mapped_bytes: charged.1 * MIB };
            let (processes, anonymous_bytes, mapped_bytes) = (seen.0, seen.1 * MIB, seen.2 * MIB);
            place.is_more(own, Seen { processes, anonymous_bytes, mapped_bytes })
        };
        for place in [first, nested] {
            assert!(!is_more(place, (100, 20), (1, 100, 20)));
            assert!(!is_more(place, (104, 20), (1, 100, 60)), "four more");
            assert!(is_more(place, (106, 20), (1, 100, 20)), "six more");
            assert!(!is_more(place, (1000, 0), (9, 951, 0)), "less than 5 %");
            assert!(is_more(place, (50, 0), (0, 0, 0)));
            assert!(!is_more(place, (0, 0), (0, 0, 0)));
        }
        // A container's group may hold other containers' libraries, a host's may as well.
        assert!(is_more(nested, (0, 60), (1, 0, 20)) && !is_more(first, (0, 60), (1, 0, 20)));
        assert!(is_more(nested, (1, 0), (0, 0, 0)) && !is_more(first, (1, 0), (0, 0, 0)));
        // A host with many processors sums up later.
        assert!(!is_more(Namespace { processors: 128, ..first }, (30, 0), (1, 0, 0)));
    }

    #[test]
    fn a_process_that_is_there_and_not_shown_is_hidden() {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        assert!(is(std::process::id(), &gone()) && is(7, &io::Error::from(io::ErrorKind::PermissionDenied)));
        assert!(!is(u32::MAX, &gone()) && !is(std::process::id(), &io::Error::from_raw_os_error(libc::ESRCH)));
        // As the kernel lists a process of another namespace.
        assert!(!is(0, &gone()));
    }
}
