//! Readahead: which pages are read together with one that is missing (spec: overview §10).
//!
//! Pure arithmetic on windows; the callers read what is not in memory yet. Each open file and each task's swapped
//! memory has its own state. The simulated machine and the replay of traces share it. Cost: O(1) per miss, and a look at
//! up to a window of pages before one that follows no read.
//!
//! Kernel: `page_cache_sync_ra`, `page_cache_async_ra`, `get_init_ra_size`, `get_next_ra_size` in `mm/readahead.c`;
//! `do_sync_mmap_readahead` in `mm/filemap.c`; `swap_vma_readahead`, `swap_cluster_readahead`, `__swapin_nr_pages` in
//! `mm/swap_state.c`.
//!
//! ```
//! use refault_core::memory::readahead::FileWindow;
//!
//! let mut file = FileWindow::default();
//! let first = file.miss(0, 1000, 32, |_| 0);
//! assert_eq!((first.start, first.len, first.marker), (0, 4, Some(1)));
//! // The reader has come to the marked page.
//! assert_eq!(file.marked(1, 1000, 32).len, 8);
//! ```

/// A stretch of pages to read, in offsets from the start of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first page.
    pub start: u64,
    /// How many pages, none of them behind the end of the file.
    pub len: u64,
    /// Reading this page starts the next window.
    pub marker: Option<u64>,
}

/// Readahead state of one open file.
#[derive(Clone, Debug, Default)]
pub struct FileWindow {
    /// Where the last window ended.
    end: u64,
    /// Size of the last window.
    size: u64,
    /// Page of the last read.
    last: Option<u64>,
    /// Misses less hits of mapped accesses: beyond 100 nothing is read around.
    pub misses: i32,
}

/// Net misses of a mapping after which reading around stops.
const MISSES_LIMIT: i32 = 100;

impl FileWindow {
    /// Reading page `at` of a file of `pages` was a miss; `cached` tells how many pages directly before it are in
    /// memory, at most `max`.
    pub fn miss(&mut self, at: u64, pages: u64, max: u64, cached: impl Fn(u64) -> u64) -> Window {
        let continues = self.last.is_some_and(|last| at >= last && at - last <= 1);
        self.last = Some(at);
        if at == 0 || continues {
            // One page asked for: 4 if the largest window is 32 pages or more, else 2 or the largest.
            let len = if 1 <= max / 32 {
                4
            } else if 1 <= max / 4 {
                2
            } else {
                max
            };
            return self.set(at, len, Some(at + 1), pages);
        }
        let before = cached(max);
        if before <= 1 {
            return Window { start: at, len: 1, marker: None };
        }
        let doubled = if before >= at { before * 2 } else { before };
        let len = (doubled + 1).min(max);
        self.set(at, len, Some(at + len - 1), pages)
    }

    /// The marked page `at` was read: the next window.
    pub fn marked(&mut self, at: u64, pages: u64, max: u64) -> Window {
        self.last = Some(at);
        let start = if self.size == 0 { at + 1 } else { self.end };
        let size = self.size.max(1);
        let len = if size < max / 16 {
            size * 4
        } else if size <= max / 2 {
            size * 2
        } else {
            max
        };
        self.set(start, len, Some(start), pages)
    }

    /// A page was read that was there and not marked.
    pub fn hit(&mut self, at: u64) {
        self.last = Some(at);
    }

    /// A mapped access missed page `at`.
    pub fn mapped_miss(&mut self, at: u64, pages: u64, max: u64) -> Window {
        self.misses = (self.misses + 1).min(MISSES_LIMIT * 10);
        if self.misses > MISSES_LIMIT {
            return Window { start: at, len: 1, marker: None };
        }
        let start = at.saturating_sub(max / 2);
        let marker = start + max - (max / 4).max(1);
        self.set(start, max, Some(marker), pages)
    }

    fn set(&mut self, start: u64, len: u64, marker: Option<u64>, pages: u64) -> Window {
        let len = len.min(pages.saturating_sub(start));
        (self.end, self.size) = (start + len, len);
        Window { start, len, marker: marker.filter(|m| *m >= start && *m < start + len) }
    }
}

/// Readahead state of a task's swapped memory.
#[derive(Clone, Debug, Default)]
pub struct SwapWindow {
    last: Option<u32>,
    size: u32,
    /// Pages read ahead that were used since the last miss.
    pub hits: u32,
}

impl SwapWindow {
    /// How many pages to read for a miss at `at`, with at most `1 << cluster`.
    pub fn miss(&mut self, at: u32, cluster: u32) -> u32 {
        let most = 1u32 << cluster;
        let hits = std::mem::take(&mut self.hits);
        let size = match self.last {
            None => most,
            Some(last) if hits == 0 => {
                if at.abs_diff(last) == 1 {
                    2
                } else {
                    1
                }
            }
            Some(_) => (hits + 2).next_power_of_two().max(4),
        };
        let size = size.min(most).max(self.size / 2).max(1);
        (self.last, self.size) = (Some(at), size);
        size
    }

    /// The aligned or centred window of `len` pages around `at`.
    pub fn around(at: u32, len: u32, pages: u32) -> std::ops::Range<u32> {
        let start = at.saturating_sub(len / 2);
        start..(start + len).min(pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequential_reader_gets_growing_windows() {
        let mut file = FileWindow::default();
        assert_eq!(file.miss(0, 1000, 32, |_| 0), Window { start: 0, len: 4, marker: Some(1) });
        assert_eq!(file.marked(1, 1000, 32), Window { start: 4, len: 8, marker: Some(4) });
        assert_eq!(file.marked(4, 1000, 32), Window { start: 12, len: 16, marker: Some(12) });
        assert_eq!(file.marked(12, 1000, 32), Window { start: 28, len: 32, marker: Some(28) });
        assert_eq!(file.marked(28, 1000, 32), Window { start: 60, len: 32, marker: Some(60) });
    }

    #[test]
    fn a_random_reader_gets_what_it_asked_for() {
        let mut file = FileWindow::default();
        assert_eq!(file.miss(500, 1000, 32, |_| 0), Window { start: 500, len: 1, marker: None });
        assert_eq!(file.miss(20, 1000, 32, |_| 1), Window { start: 20, len: 1, marker: None });
    }

    #[test]
    fn a_mostly_cached_file_pulls_in_windows() {
        let mut file = FileWindow::default();
        assert_eq!(file.miss(500, 1000, 32, |_| 10), Window { start: 500, len: 11, marker: Some(510) });
    }

    #[test]
    fn windows_end_with_the_file() {
        let mut file = FileWindow::default();
        assert_eq!(file.miss(0, 2, 32, |_| 0).len, 2);
        assert_eq!(file.mapped_miss(90, 100, 32), Window { start: 74, len: 26, marker: Some(98) });
    }

    #[test]
    fn reading_around_stops_after_a_hundred_misses() {
        let mut file = FileWindow::default();
        (0..100).for_each(|i| assert!(file.mapped_miss(i * 7 % 1000 + 50, 100_000, 32).len > 1));
        assert_eq!(file.mapped_miss(5, 100_000, 32).len, 1);
    }

    #[test]
    fn swap_windows_follow_their_use() {
        let mut window = SwapWindow::default();
        assert_eq!(window.miss(100, 3), 8, "the first one is the largest");
        assert_eq!(window.miss(500, 3), 4, "not below half of the last");
        assert_eq!(window.miss(900, 3), 2);
        window.hits = 3;
        assert_eq!(window.miss(901, 3), 8);
    }
}
