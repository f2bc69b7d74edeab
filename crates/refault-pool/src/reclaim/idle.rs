//! For how long a process has not accessed each of its mappings, from accessed bits that are cleared and read again and
//! again.
//!
//! The kernel sums the bits up by mapping, so a mapping with one busy page is busy. Cost: see [`crate::mappings`].
//!
//! ```
//! use refault_pool::reclaim::idle::Ages;
//!
//! let mut ages = Ages::begin(std::process::id())?;
//! let aged = ages.look()?;
//! assert!(aged.iter().any(|aged| aged.mapping.accessed_bytes > 0 && aged.idle.is_zero()));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use crate::mappings::{Mapping, clear_accessed, mappings};

/// The mappings of a process and their ages.
#[derive(Debug)]
pub struct Ages {
    pid: u32,
    /// By first address: when the mapping was last seen accessed, or first seen at all.
    accessed: HashMap<u64, Instant>,
    looked: Instant,
}

/// A mapping and for how long the process has not accessed it.
#[derive(Clone, Debug)]
pub struct Aged {
    /// The mapping.
    pub mapping: Mapping,
    /// Idle for at least this time.
    pub idle: Duration,
}

impl Ages {
    /// Begins now: everything counts as just accessed.
    ///
    /// # Errors
    /// There is no such process, or it belongs to another user.
    pub fn begin(pid: u32) -> io::Result<Ages> {
        clear_accessed(pid)?;
        Ok(Ages { pid, accessed: HashMap::new(), looked: Instant::now() })
    }

    /// Looks at what was accessed since the last look, and clears the bits.
    ///
    /// # Errors
    /// The process has ended.
    pub fn look(&mut self) -> io::Result<Vec<Aged>> {
        let mappings = mappings(self.pid)?;
        clear_accessed(self.pid)?;
        let now = Instant::now();
        let aged = self.age(mappings, now);
        self.looked = now;
        Ok(aged)
    }

    fn age(&mut self, mappings: Vec<Mapping>, now: Instant) -> Vec<Aged> {
        let mut accessed = HashMap::with_capacity(mappings.len());
        let aged = mappings
            .into_iter()
            .map(|mapping| {
                // It was idle since the look before, at which the bits were cleared.
                let before = self.accessed.get(&mapping.start).copied().unwrap_or(self.looked);
                let last = if mapping.accessed_bytes > 0 { now } else { before };
                accessed.insert(mapping.start, last);
                Aged { mapping, idle: now.saturating_duration_since(last) }
            })
            .collect();
        self.accessed = accessed;
        aged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_idle_since_the_look_before_it_was_found_untouched() {
        let begun = Instant::now();
        let mut ages = Ages { pid: 0, accessed: HashMap::new(), looked: begun };
        let mapping = |accessed_bytes| vec![Mapping { start: 4096, accessed_bytes, ..Mapping::default() }];
        let mut idle = |seconds, accessed| {
            let now = begun + Duration::from_secs(seconds);
            let aged = ages.age(mapping(accessed), now);
            ages.looked = now;
            aged[0].idle.as_secs()
        };
        assert_eq!([idle(5, 0), idle(10, 0), idle(15, 8), idle(20, 0), idle(30, 0)], [5, 10, 0, 5, 15]);
    }
}
