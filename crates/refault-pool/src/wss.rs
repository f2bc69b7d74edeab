//! The working set of a running process: how much memory it accesses within a second, ten seconds, a minute.
//!
//! The accessed bits are cleared once ([`clear_accessed`]); what is accessed a time later is the working set of a
//! window that long (Denning, *The working set model for program behavior*, CACM 1968). The rest has been idle for at
//! least that time. Cost: one walk over the page tables for each window; nothing in the process.
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
    /// Bytes in memory that were not accessed.
    pub fn idle_bytes(&self) -> u64 {
        self.resident_bytes.saturating_sub(self.accessed_bytes)
    }
}

/// Measures windows that begin now, of these lengths, which ascend. `wait` sleeps; it answers false to end early. Each
/// window is handed to `seen` as soon as it is over.
///
/// # Errors
/// There is no such process (any more), or it belongs to somebody else.
pub fn measure(
    pid: u32,
    lengths: &[Duration],
    mut wait: impl FnMut(Duration) -> bool,
    mut seen: impl FnMut(Window),
) -> io::Result<()> {
    clear_accessed(pid)?;
    let begun = Instant::now();
    for length in lengths {
        if !wait(length.saturating_sub(begun.elapsed())) {
            return Ok(());
        }
        let length = begun.elapsed();
        let sums = Sums::of(&mappings(pid)?);
        seen(Window {
            length,
            accessed_bytes: sums.accessed_bytes,
            resident_bytes: sums.resident_bytes,
            anonymous_bytes: sums.anonymous_bytes,
            swap_bytes: sums.swap_bytes,
        });
    }
    Ok(())
}
