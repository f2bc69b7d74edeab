//! The working set of a running process: how much memory it accesses within a second, ten seconds, a minute.
//!
//! The accessed bits are cleared once ([`clear_accessed`]); what is accessed a time later is the working set of a
//! window that long (Denning, *The working set model for program behavior*, CACM 1968). The rest has been idle for at
//! least that time. [`measure`] has windows that begin together, [`follow`] begins them again and again for as long as
//! a program runs; [`by_generation`] has them one after the other, for a control group. Cost: one walk over the page
//! tables for each window; nothing in the process.
//!
//! ```
//! use std::time::Duration;
//!
//! use refault_pool::wss::measure;
//!
//! let lengths = [Duration::from_millis(10), Duration::from_millis(30)];
//! let mut windows = Vec::new();
//! let sleep = |pause| {
//!     std::thread::sleep(pause);
//!     true
//! };
//! measure(std::process::id(), &lengths, sleep, |window| windows.push(window))?;
//! assert!(windows[1].length > windows[0].length && windows[1].accessed_bytes <= windows[1].resident_bytes);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::time::{Duration, Instant};

use crate::mappings::{Sums, clear_accessed, mappings};
use crate::reclaim::generations::{Generations, accessed_since, pages, youngest};
use crate::reclaim::session::is_gone;

const PAGE: u64 = refault_linux::PAGE as u64;
/// Where the figures come from, in words for people.
pub const SOURCE: &str = "accessed bits of its page tables (clear_refs and smaps)";

/// What was accessed within a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// How long it is, as measured.
    pub length: Duration,
    /// Bytes accessed in it: the working set.
    pub accessed_bytes: u64,
    /// Bytes in memory at its end.
    pub resident_bytes: u64,
    /// Bytes of them that are no file's.
    pub anonymous_bytes: u64,
    /// Bytes in swap at its end.
    pub swap_bytes: u64,
}

impl Window {
    fn new(length: Duration, sums: Sums) -> Window {
        Window {
            length,
            accessed_bytes: sums.accessed_bytes,
            resident_bytes: sums.resident_bytes,
            anonymous_bytes: sums.anonymous_bytes,
            swap_bytes: sums.swap_bytes,
        }
    }

    /// Bytes in memory that were not accessed.
    pub fn idle_bytes(&self) -> u64 {
        self.resident_bytes.saturating_sub(self.accessed_bytes)
    }
}

/// Measures windows that begin now, of these lengths, which ascend. `wait` sleeps; it answers false to end early. Each
/// window is handed to `seen` as soon as it is over.
///
/// # Errors
/// There is no such process (any more), or it belongs to another user.
pub fn measure(
    pid: u32,
    lengths: &[Duration],
    wait: impl FnMut(Duration) -> bool,
    seen: impl FnMut(Window),
) -> io::Result<()> {
    measure_all(|| vec![pid], lengths, wait, seen)
}

/// As [`measure`], of several processes together: `processes` says which they are now. A page that several of them map
/// counts for each.
///
/// # Errors
/// None of the processes is there (any more), or they belong to another user.
pub fn measure_all(
    mut processes: impl FnMut() -> Vec<u32>,
    lengths: &[Duration],
    mut wait: impl FnMut(Duration) -> bool,
    mut seen: impl FnMut(Window),
) -> io::Result<()> {
    any(&processes(), |pid| clear_accessed(pid).map(|()| Sums::default()))?;
    let begun = Instant::now();
    for length in lengths {
        if !wait(length.saturating_sub(begun.elapsed())) {
            return Ok(());
        }
        let sums = any(&processes(), |pid| mappings(pid).map(|mappings| Sums::of(&mappings)))?;
        seen(Window::new(begun.elapsed(), sums));
    }
    Ok(())
}

/// Measures windows of a control group, of these lengths, one after the other: the kernel makes a generation at the end
/// of each and keeps four, so windows that began together would soon be one. `swapped` says what is in swap. Pages
/// count once, however many processes map them; pages of files that are read by calls count as idle.
///
/// # Errors
/// The group is gone, or the kernel shows or makes no generations.
pub fn by_generation(
    group: &Generations,
    swapped: impl Fn() -> u64,
    lengths: &[Duration],
    mut wait: impl FnMut(Duration) -> bool,
    mut seen: impl FnMut(Window),
) -> io::Result<()> {
    group.age(Duration::ZERO)?;
    for length in lengths {
        let (begun, before) = (Instant::now(), youngest(&group.lists()?));
        if !wait(*length) {
            return Ok(());
        }
        let length = begun.elapsed();
        group.age(Duration::ZERO)?;
        let lists = group.lists()?;
        let (anonymous, file) = pages(&lists);
        seen(Window {
            length,
            accessed_bytes: accessed_since(&lists, &before) * PAGE,
            resident_bytes: (anonymous + file) * PAGE,
            anonymous_bytes: anonymous * PAGE,
            swap_bytes: swapped(),
        });
    }
    Ok(())
}

/// Measures windows of a program, which may be several processes, from its start to its end, in rounds. A round has the
/// windows whose lengths are no longer than the program ran before it, and the first in any case. `lengths` ascend.
/// `processes` says which they are now; a page that several of them map counts for each. `wait` sleeps, and answers
/// false to end. Each window is handed to `seen` with the place of its length.
///
/// # Errors
/// None of the processes is there (any more), or they belong to another user.
pub fn follow(
    mut processes: impl FnMut() -> Vec<u32>,
    lengths: &[Duration],
    mut wait: impl FnMut(Duration) -> bool,
    mut seen: impl FnMut(usize, Window),
) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        let before = begun.elapsed();
        any(&processes(), |pid| clear_accessed(pid).map(|()| Sums::default()))?;
        let cleared = Instant::now();
        for (index, length) in lengths.iter().enumerate() {
            if index > 0 && *length > before {
                break;
            }
            if !wait(length.saturating_sub(cleared.elapsed())) {
                return Ok(());
            }
            let length = cleared.elapsed();
            let sums = any(&processes(), |pid| mappings(pid).map(|mappings| Sums::of(&mappings)))?;
            if sums == Sums::default() {
                return Ok(()); // It has ended and was not waited for.
            }
            seen(index, Window::new(length, sums));
        }
    }
}

/// Does this to each process, and adds up what came of it. Those that have ended are left out; fails if it could be
/// done to none.
fn any(processes: &[u32], mut what: impl FnMut(u32) -> io::Result<Sums>) -> io::Result<Sums> {
    let (mut sum, mut done) = (Sums::default(), false);
    let mut trouble = io::Error::from(io::ErrorKind::NotFound);
    for pid in processes {
        match what(*pid) {
            Ok(sums) => (sum, done) = (sum + sums, true),
            Err(error) if is_gone(&error) => {}
            Err(error) => trouble = error,
        }
    }
    if done { Ok(sum) } else { Err(trouble) }
}

/// A process and all that it started, and those started, as far as their parents are there. Reads the state of every
/// process of the machine.
pub fn with_children(pid: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let stat = std::fs::read(entry.path().join("stat")).unwrap_or_default();
        // The name may hold anything, parentheses included; state and parent follow it.
        let stat = String::from_utf8_lossy(&stat);
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
        parents.extend(parent.map(|parent| (parent, child)));
    }
    let mut all = vec![pid];
    let mut next = 0;
    while next < all.len() {
        let children = parents.iter().filter(|(parent, _)| *parent == all[next]).map(|(_, child)| *child);
        all.extend(children.collect::<Vec<_>>());
        next += 1;
    }
    all
}
