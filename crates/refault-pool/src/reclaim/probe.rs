//! Which pages of a process to try next: a hand goes round its mappings, page by page, and leaves out those that came
//! back when they were tried last.
//!
//! A page that was paged out and is present again was needed; it is left alone for [`SPARED_ROUNDS`] rounds. What
//! others learn from accessed bits is learnt here from refaults, so it works where the kernel offers no ages by page.
//! Cost: a byte for each page that was tried, eight bytes read for each page looked at.
//!
//! ```
//! use refault_pool::mappings::mappings;
//! use refault_pool::reclaim::probe::Hand;
//!
//! let pid = std::process::id();
//! let mut hand = Hand::new(pid)?;
//! let ranges = hand.choose(&mappings(pid)?, 1 << 20)?; // a MiB at most
//! assert!(ranges.iter().map(|range| range.end - range.start).sum::<u64>() <= 1 << 20);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use refault_linux::pagemap::{self, is_exclusive, is_present};

use super::Addresses;
use crate::mappings::Mapping;

/// Rounds of the hand for which a page that came back is left alone.
pub const SPARED_ROUNDS: u8 = 8;
/// The page was paged out.
const OUT: u8 = u8::MAX;
const PAGE: u64 = refault_linux::PAGE as u64;
/// Pages looked at together.
const CHUNK: u64 = 512;

/// The hand.
#[derive(Debug)]
pub struct Hand {
    pagemap: File,
    /// Where it stands.
    at: u64,
    /// By first address of a chunk: what is known of its pages.
    known: HashMap<u64, [u8; CHUNK as usize]>,
    came_back: u64,
}

impl Hand {
    /// For a process.
    ///
    /// # Errors
    /// There is no such process, or it belongs to another user.
    pub fn new(pid: u32) -> io::Result<Hand> {
        let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
        Ok(Hand { pagemap, at: 0, known: HashMap::new(), came_back: 0 })
    }

    /// Pages that were found to have come back so far.
    pub fn came_back(&self) -> u64 {
        self.came_back
    }

    /// Ranges of pages to page out now, ascending, of at most `bytes` bytes, in these mappings, which ascend. Goes
    /// round once at most.
    ///
    /// # Errors
    /// The process has ended.
    pub fn choose(&mut self, mappings: &[Mapping], bytes: u64) -> io::Result<Vec<Addresses>> {
        let fits = |mapping: &&Mapping| mapping.reclaimable && mapping.resident_bytes > 0;
        let mut chunks: Vec<Addresses> = mappings.iter().filter(fits).flat_map(chunks_of).collect();
        let first = chunks.partition_point(|chunk| chunk.start < self.at);
        let around = chunks.len().max(1);
        chunks.rotate_left(first % around);
        let (mut ranges, mut left) = (Vec::new(), bytes / PAGE);
        for chunk in chunks {
            if left == 0 {
                break;
            }
            left -= self.choose_in(&chunk, left, &mut ranges)?;
            self.at = chunk.end;
        }
        ranges.sort_by_key(|range: &Addresses| range.start);
        Ok(ranges)
    }

    fn choose_in(&mut self, chunk: &Addresses, most: u64, ranges: &mut Vec<Addresses>) -> io::Result<u64> {
        let mut entries = [0u8; CHUNK as usize * 8];
        let entries = &mut entries[..((chunk.end - chunk.start) / PAGE) as usize * 8];
        self.pagemap.read_exact_at(entries, chunk.start / PAGE * 8)?;
        let known = self.known.entry(chunk.start).or_insert([0; CHUNK as usize]);
        let mut chosen = 0;
        for (page, entry) in pagemap::entries(entries).enumerate() {
            // The kernel leaves pages that other processes map where they are.
            if !is_present(entry) || !is_exclusive(entry) {
                continue;
            }
            let state = &mut known[page];
            if *state == OUT {
                *state = SPARED_ROUNDS;
                self.came_back += 1;
            } else if *state > 0 {
                *state -= 1;
            } else if chosen < most {
                *state = OUT;
                chosen += 1;
                let start = chunk.start + page as u64 * PAGE;
                match ranges.last_mut().filter(|range| range.end == start) {
                    Some(range) => range.end += PAGE,
                    None => ranges.push(start..start + PAGE),
                }
            }
        }
        Ok(chosen)
    }
}

/// The parts of a mapping, at places that do not change when it grows.
fn chunks_of(mapping: &Mapping) -> impl Iterator<Item = Addresses> + use<> {
    let (start, end) = (mapping.start, mapping.end);
    let bytes = CHUNK * PAGE;
    (start / bytes * bytes..end).step_by(bytes as usize).map(move |at| at.max(start)..(at + bytes).min(end))
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // Lists of one range are meant.
mod tests {
    use super::*;

    fn pagemap(present: &[bool]) -> File {
        let file = tempfile::tempfile().expect("a file");
        for (page, present) in present.iter().enumerate() {
            let entry = super::pagemap::entry(*present, false, true, 0);
            file.write_all_at(&entry.to_ne_bytes(), page as u64 * 8).expect("room");
        }
        file
    }

    #[test]
    fn pages_that_come_back_are_spared_and_others_are_tried_in_turn() {
        let mapping = [Mapping {
            start: 0,
            end: 1024 * PAGE,
            resident_bytes: 1024 * PAGE,
            reclaimable: true,
            ..Mapping::default()
        }];
        let mut hand = Hand { pagemap: pagemap(&[true; 1024]), at: 0, known: HashMap::new(), came_back: 0 };
        assert_eq!(hand.choose(&mapping, 100 * PAGE).expect("a file"), [0..100 * PAGE]);
        // The other chunk, then the rest of the first: all of it has come back, so nothing of the hundred is chosen.
        assert_eq!(hand.choose(&mapping, 512 * PAGE).expect("a file"), [512 * PAGE..1024 * PAGE]);
        assert_eq!(hand.choose(&mapping, 412 * PAGE).expect("a file"), [100 * PAGE..512 * PAGE]);
        assert_eq!(hand.came_back(), 100);
        // All are present, so all came back: spared for as many rounds as that.
        for _ in 0..usize::from(SPARED_ROUNDS) {
            assert_eq!(hand.choose(&mapping, 2000 * PAGE).expect("a file"), []);
        }
        assert_ne!(hand.choose(&mapping, 2000 * PAGE).expect("a file"), []);
        assert_eq!(hand.came_back(), 1024);
    }

    #[test]
    fn what_is_not_in_memory_or_cannot_go_is_left_out() {
        let mut hand =
            Hand { pagemap: pagemap(&[false, true, true, false]), at: 0, known: HashMap::new(), came_back: 0 };
        let mut mapping =
            Mapping { start: 0, end: 4 * PAGE, resident_bytes: PAGE, reclaimable: true, ..Mapping::default() };
        assert_eq!(hand.choose(std::slice::from_ref(&mapping), 9 * PAGE).expect("a file"), [PAGE..3 * PAGE]);
        mapping.reclaimable = false;
        assert_eq!(hand.choose(&[mapping], 9 * PAGE).expect("a file"), []);
    }
}
