//! What a fault that needs the pager reads around the page, and what it does with the pages behind a sequential reader
//! (spec: freebsd §6). Pages and page indices throughout; the pager and the pages already there clip it further.
//!
//! Kernel: `vm_fault_hold`, `vm_fault_dontneed`, `vm_fault_cache_behind` in `sys/vm/vm_fault.c`.

use super::Version;

/// The window after a first sequential fault.
const AHEAD_MIN: u64 = 7;
/// The largest window: 128 KiB less the page itself.
const AHEAD_MAX: u64 = 31;
/// Pages read before the page by a fault that is not sequential, version 10.
const BEHIND_MAX: u64 = 8;
/// Pages of an aligned cluster, version 2015.
const CLUSTER: u64 = 16;
/// Pages that version 10 lets go behind a sequential reader, and behind one that said it would be.
const CACHE_BEHIND: [u64; 2] = [80, 32];
/// Pages of a chunk that is given up behind a sequential reader: the larger of 1 MiB and the smallest superpage.
const CHUNK: u64 = 512;
/// The window a new map entry starts with.
const FIRST_WINDOW: u64 = 15;

/// What a program said about its accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advice {
    /// Nothing.
    #[default]
    Normal,
    /// It reads in order.
    Sequential,
    /// It reads in no order.
    Random,
}

/// What becomes of the pages behind the fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Nothing.
    Keep,
    /// The resident pages before the fault, back to the first that is not resident and at most this many, are treated
    /// by [`super::Freebsd::cache_behind`].
    Cache(u64),
    /// The resident pages of these object indices are treated by [`super::Freebsd::dont_need`].
    DontNeed(std::ops::Range<u64>),
}

/// The pages to read with one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Pages before it.
    pub behind: u64,
    /// Pages after it.
    pub ahead: u64,
    /// What becomes of the pages behind.
    pub then: Behind,
}

/// A stretch of an address space that maps pages of an object, with its memory of sequential faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// Object indices mapped.
    pub indices: std::ops::Range<u64>,
    /// Virtual page number of the first.
    pub address: u64,
    /// Advice given.
    pub advice: Advice,
    next_read: u64,
    window: u64,
}

impl MapEntry {
    /// A new mapping, which expects to be read from its start.
    pub fn new(indices: std::ops::Range<u64>, address: u64) -> MapEntry {
        MapEntry { next_read: indices.start, indices, address, advice: Advice::Normal, window: FIRST_WINDOW }
    }

    /// Plans the read of a fault at `index`, and remembers it. `index` must be mapped.
    pub fn plan(&mut self, index: u64, version: Version) -> Cluster {
        debug_assert!(self.indices.contains(&index));
        let sequential = index == self.next_read;
        match version {
            Version::V10 => self.plan_v10(index, sequential),
            Version::V2015 | Version::V12 => self.plan_v2015(index, sequential),
        }
    }

    /// The read is done: `ahead` pages after `index` came with it.
    pub fn was_read(&mut self, index: u64, ahead: u64) {
        self.next_read = index + 1 + ahead;
    }

    fn plan_v10(&mut self, index: u64, sequential: bool) -> Cluster {
        let (before, after) = self.around(index);
        let then = |pages| if sequential { Behind::Cache(pages) } else { Behind::Keep };
        let cluster = match self.advice {
            Advice::Random => Cluster { behind: 0, ahead: 0, then: Behind::Keep },
            Advice::Sequential => Cluster { behind: 0, ahead: AHEAD_MAX.min(after), then: then(CACHE_BEHIND[1]) },
            Advice::Normal if sequential => {
                let then = if self.window == AHEAD_MAX { then(CACHE_BEHIND[0]) } else { Behind::Keep };
                let ahead = (self.window + before.min(BEHIND_MAX)).min(AHEAD_MAX).min(after);
                Cluster { behind: 0, ahead, then }
            }
            Advice::Normal => {
                Cluster { behind: before.min(BEHIND_MAX), ahead: AHEAD_MIN.min(after), then: Behind::Keep }
            }
        };
        self.window = cluster.ahead;
        cluster
    }

    fn plan_v2015(&mut self, index: u64, sequential: bool) -> Cluster {
        let (before, after) = self.around(index);
        let old_window = self.window;
        let in_cluster = index % CLUSTER;
        let (behind, ahead, window) = match self.advice {
            Advice::Random => (0, 0, 0),
            Advice::Sequential => (0, AHEAD_MAX, AHEAD_MAX),
            Advice::Normal if sequential => {
                let window = if old_window == 0 { AHEAD_MIN } else { (AHEAD_MIN + old_window + 1).min(AHEAD_MAX) };
                (0, window, window)
            }
            Advice::Normal => (in_cluster.min(before), CLUSTER - 1 - in_cluster, 0),
        };
        self.window = window;
        let ahead = ahead.min(after);
        let gives_up = match self.advice {
            Advice::Random => false,
            Advice::Sequential => sequential,
            Advice::Normal => sequential && old_window == AHEAD_MAX,
        };
        let then = if gives_up { self.chunk_behind(index, ahead) } else { Behind::Keep };
        Cluster { behind, ahead, then }
    }

    /// The chunk before the current one, if the read ahead reaches the end of the current one.
    fn chunk_behind(&self, index: u64, ahead: u64) -> Behind {
        let address = self.address + (index - self.indices.start);
        let end = address / CHUNK * CHUNK;
        if address - end + ahead + 1 < CHUNK || self.address >= end {
            return Behind::Keep;
        }
        let start = end.saturating_sub(CHUNK).max(self.address);
        let index_of = |address: u64| address - self.address + self.indices.start;
        Behind::DontNeed(index_of(start)..index_of(end))
    }

    /// Pages of the entry before and after an index.
    fn around(&self, index: u64) -> (u64, u64) {
        (index - self.indices.start, self.indices.end - 1 - index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(behind: u64, ahead: u64) -> Cluster {
        Cluster { behind, ahead, then: Behind::Keep }
    }

    #[test]
    fn a_sequential_reader_from_a_fresh_entry_2015() {
        let mut entry = MapEntry::new(0..10_000, 0);
        assert_eq!(entry.plan(0, Version::V2015), keep(0, 23));
        entry.was_read(0, 23);
        assert_eq!(entry.plan(24, Version::V2015), keep(0, 31));
        entry.was_read(24, 31);
        // The window is full, but the first chunk has nothing before it.
        let mut index = 56;
        let mut given_up = Vec::new();
        while index < 3000 {
            let cluster = entry.plan(index, Version::V2015);
            assert_eq!((cluster.behind, cluster.ahead), (0, 31));
            if let Behind::DontNeed(range) = cluster.then {
                assert!(index % 512 >= 480, "at {index}");
                given_up.push(range);
            }
            entry.was_read(index, 31);
            index += 32;
        }
        assert_eq!(given_up, [0..512, 512..1024, 1024..1536, 1536..2048]);
    }

    #[test]
    fn a_sequential_reader_from_a_fresh_entry_10() {
        let mut entry = MapEntry::new(0..10_000, 0);
        assert_eq!(entry.plan(0, Version::V10), keep(0, 15));
        entry.was_read(0, 15);
        assert_eq!(entry.plan(16, Version::V10), keep(0, 23));
        entry.was_read(16, 23);
        assert_eq!(entry.plan(40, Version::V10), keep(0, 31));
        entry.was_read(40, 31);
        assert_eq!(entry.plan(72, Version::V10), Cluster { behind: 0, ahead: 31, then: Behind::Cache(80) });
    }

    #[test]
    fn faults_out_of_order() {
        let mut entry = MapEntry::new(10..1000, 0);
        assert_eq!(entry.plan(103, Version::V2015), keep(7, 8));
        entry.was_read(103, 8);
        assert_eq!(entry.plan(112, Version::V2015), keep(0, 7), "sequential after a random fault starts small");
        assert_eq!(entry.plan(12, Version::V2015), keep(2, 3), "the cluster is clipped to the entry");
        assert_eq!(entry.plan(999, Version::V2015), keep(7, 0));
        assert_eq!(entry.plan(103, Version::V10), keep(8, 7));
        assert_eq!(entry.plan(12, Version::V10), keep(2, 7));
    }

    #[test]
    fn advice() {
        let mut entry = MapEntry::new(0..10_000, 512);
        entry.advice = Advice::Random;
        assert_eq!(entry.plan(0, Version::V2015), keep(0, 0));
        entry.advice = Advice::Sequential;
        entry.was_read(0, 999);
        assert_eq!(
            entry.plan(1000, Version::V2015),
            Cluster { behind: 0, ahead: 31, then: Behind::DontNeed(0..512) },
            "the entry starts at a chunk's boundary"
        );
        assert_eq!(entry.plan(500, Version::V2015), keep(0, 31), "not sequential: nothing is given up");
        entry.was_read(500, 2);
        assert_eq!(entry.plan(503, Version::V10), Cluster { behind: 0, ahead: 31, then: Behind::Cache(32) });
    }
}
