//! What a page of a group takes compressed, by a look at some that are in memory.
//!
//! Alone a keeper measures that on its devices. Beside others it cannot: the devices hold pages of all. Pages in memory
//! stand for those that are swapped. None is brought back for it, but one that is swapped in the moment of the look.
//! Cost: some hundred reads of 8 bytes, and 64 pages read and compressed, together about a millisecond.

use std::fs::File;
use std::os::unix::fs::FileExt;

use refault_linux::{pagemap, proc};

use crate::PAGE;
use crate::places::Places;

/// Pages that are read, at most and at least.
const MAX_PAGES: usize = 64;
const MIN_PAGES: usize = 16;
/// Addresses that are tried: most of a sparse mapping is empty.
const MAX_TRIES: u64 = 1024;
/// Processes that are looked at.
const MAX_PROCESSES: usize = 16;
/// What compresses to more than this many bytes is stored as it is, since the kernel's classes of sizes end there.
const MAX_COMPRESSED: usize = 3264;

/// Bytes that a page of these processes takes compressed on the mean. `turn` chooses the pages. `None` if too few can be
/// read, for want of rights or of pages in memory.
pub(super) fn stored_per_page(places: &Places, processes: &[i32], turn: u64) -> Option<u32> {
    let opened: Vec<Opened> = processes.iter().take(MAX_PROCESSES).filter_map(|one| Opened::of(places, *one)).collect();
    let all: u64 = opened.iter().map(|one| one.pages).sum();
    // The golden section: each turn tries other addresses, all of them evenly spread.
    let shift = (turn as f64 * 0.618_033_988_75).fract();
    let tried = (0..MAX_TRIES).filter_map(|at| {
        let page = ((at as f64 + shift) / MAX_TRIES as f64 * all as f64) as u64;
        let (one, page) = nth(&opened, |one| one.pages, page)?;
        one.stored(page)
    });
    let sizes: Vec<usize> = tried.take(MAX_PAGES).collect();
    (sizes.len() >= MIN_PAGES).then(|| (sizes.iter().sum::<usize>() / sizes.len()) as u32)
}

/// The part in which a page lies that is counted over all of them, and which of its pages it is.
fn nth<T>(parts: &[T], pages: impl Fn(&T) -> u64, mut page: u64) -> Option<(&T, u64)> {
    for part in parts {
        match page.checked_sub(pages(part)) {
            None => return Some((part, page)),
            Some(rest) => page = rest,
        }
    }
    None
}

/// A process, and its mappings of anonymous memory that it may write to.
struct Opened {
    memory: File,
    pagemap: File,
    /// First address and pages.
    mappings: Vec<(u64, u64)>,
    pages: u64,
}

impl Opened {
    fn of(places: &Places, process: i32) -> Option<Opened> {
        let text = places.read(format!("/proc/{process}/maps")).ok()?;
        let of_program = proc::mappings(&text).filter(|(_, rest)| is_anonymous(rest));
        let mappings: Vec<(u64, u64)> =
            of_program.map(|((start, end), _)| (start as u64, (end - start) as u64 / PAGE)).collect();
        let open = |name: &str| File::open(places.at(format!("/proc/{process}/{name}"))).ok();
        let pages = mappings.iter().map(|(_, pages)| pages).sum();
        Some(Opened { memory: open("mem")?, pagemap: open("pagemap")?, mappings, pages })
    }

    /// What a page takes, counted over all mappings; `None` if it is not in memory.
    fn stored(&self, page: u64) -> Option<usize> {
        let ((start, _), page) = nth(&self.mappings, |(_, pages)| *pages, page)?;
        let address = start + page * PAGE;
        let mut entry = [0; pagemap::ENTRY_BYTES];
        self.pagemap.read_exact_at(&mut entry, address / PAGE * pagemap::ENTRY_BYTES as u64).ok()?;
        let entry = u64::from_ne_bytes(entry);
        if !pagemap::is_present(entry) || pagemap::is_of_file(entry) {
            return None;
        }
        let mut contents = [0; PAGE as usize];
        self.memory.read_exact_at(&mut contents, address).ok()?;
        Some(compressed(&contents))
    }
}

/// Whether a mapping, by what stands behind its addresses, is private, may be written to and is of no file.
fn is_anonymous(rest: &str) -> bool {
    let mut words = rest.split_whitespace();
    let rights = words.next().unwrap_or_default();
    rights.starts_with("rw") && rights.ends_with('p') && words.nth(2) == Some("0")
}

/// Bytes that the kernel keeps for a page: none for one that repeats a word.
fn compressed(page: &[u8; PAGE as usize]) -> usize {
    let words = page.as_chunks::<8>().0;
    if words.iter().all(|word| *word == words[0]) {
        return 0;
    }
    let size = lz4_flex::block::compress(page).len();
    if size > MAX_COMPRESSED { page.len() } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_filled_and_random_ones_are_told_apart() {
        let mut state = 88_172_645_463_325_252_u64;
        let mut random = [0; PAGE as usize];
        for word in random.as_chunks_mut::<8>().0 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *word = state.to_ne_bytes();
        }
        assert_eq!((compressed(&[7; PAGE as usize]), compressed(&random)), (0, PAGE as usize));
        let mut half = random;
        half[2048..].fill(0);
        assert!((2000..2400).contains(&compressed(&half)), "{}", compressed(&half));
    }

    #[test]
    fn mappings_of_files_and_of_what_cannot_be_written_are_left_out() {
        assert!(is_anonymous("rw-p 00000000 00:00 0 "));
        assert!(is_anonymous("rw-p 00000000 00:00 0                          [heap]"));
        for other in ["r--p 00000000 00:00 0", "rw-s 00000000 00:01 4 /dev/zero", "rw-p 00000000 fe:00 77 /bin/true"] {
            assert!(!is_anonymous(other), "{other}");
        }
    }

    /// This process's memory, filled so that it outweighs all else that it has.
    #[test]
    fn the_pages_of_a_process_are_looked_at() {
        let mut filled = vec![0u8; 64 << 20];
        let mut state = 1u64;
        for word in filled.as_chunks_mut::<8>().0 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *word = state.to_ne_bytes();
        }
        let process = std::process::id() as i32;
        let each = stored_per_page(&Places::default(), &[process], 3).expect("its own memory can be read");
        assert!(each > 3000, "{each}");
        // A process that there is not has none.
        assert_eq!(stored_per_page(&Places::default(), &[i32::MAX], 3), None);
        drop(filled);
    }
}
