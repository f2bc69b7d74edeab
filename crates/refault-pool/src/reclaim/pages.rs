//! For how long no process has accessed each page of a process, from the kernel's idle-page bitmap
//! (`/sys/kernel/mm/page_idle/bitmap`, CONFIG_IDLE_PAGE_TRACKING).
//!
//! A look finds the frames of the process's pages (`pagemap`) and asks which of those marked idle at the look before
//! are so still. Then it marks all of them. An access by any process takes the mark away. A read of a file's page by a
//! call does too where the kernel's generations are off. Of a compound page only the first small page has a mark. The rest of it is as idle as that,
//! or counts as accessed if the first is not mapped before it. Marking clears accessed bits; the kernel's own reclaim
//! is told which had been set. The bitmap is one for all: if another program marks a page that was accessed since our
//! mark, it is taken for idle.
//!
//! Needs root, which alone is shown frames. Cost of a look: three reads and a write of eight bytes for each page, less
//! where frames lie side by side. In the kernel it costs a walk to the mappings of each page. Four bytes are kept for
//! each page.
//!
//! ```
//! use refault_pool::mappings::mappings;
//! use refault_pool::reclaim::pages::Pages;
//!
//! let pid = std::process::id();
//! match Pages::open(pid) {
//!     Ok(mut pages) => {
//!         pages.look(&mappings(pid)?)?; // marks what is there
//!         let idle = pages.look(&mappings(pid)?)?.iter().filter(|aged| !aged.idle.is_zero()).count();
//!         println!("{idle} runs of pages were not accessed since");
//!     }
//!     Err(error) => println!("by mapping then: {error}"),
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use refault_linux::pagemap::{self, is_exclusive, is_of_file, is_present};

use super::Addresses;
use super::idle::Aged;
use crate::mappings::{Mapping, mappings};

/// Where the marks are.
pub const FILE: &str = "/sys/kernel/mm/page_idle/bitmap";
const PAGE: u64 = refault_linux::PAGE as u64;
/// Pages whose last access is kept together.
const CHUNK: u64 = 512;
/// Bytes of a process that are looked at together: compound pages lie within it, and what is known of it meanwhile is
/// small.
const BATCH: u64 = 64 << 20;
/// Bits of a `kpageflags` entry: not the first of a compound page; the page of zeros, which is no process's memory.
const TAIL: u64 = 1 << 16;
const ZERO: u64 = 1 << 24;
/// The page was not there at the last look.
const UNSEEN: u32 = u32::MAX;

/// The pages of a process and their ages.
#[derive(Debug)]
pub struct Pages {
    pagemap: File,
    flags: File,
    bitmap: File,
    begun: Instant,
    /// By number of the chunk: when each page was last found accessed, in milliseconds since `begun`.
    accessed: HashMap<u64, Box<[u32; CHUNK as usize]>>,
}

/// A page in memory.
#[derive(Clone, Copy, Debug)]
struct Page {
    start: u64,
    entry: u64,
    flags: u64,
    idle: bool,
}

impl Page {
    fn frame(&self) -> u64 {
        pagemap::frame(self.entry)
    }
}

impl Pages {
    /// For a process; its first look marks pages, and finds all accessed.
    ///
    /// # Errors
    /// The kernel has no such bitmap, or shows no frames to this user: says which. Or there is no such process.
    pub fn open(pid: u32) -> io::Result<Pages> {
        let bitmap = File::options().read(true).write(true).open(FILE).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                io::Error::other("this kernel has no idle-page bitmap (CONFIG_IDLE_PAGE_TRACKING)")
            }
            _ => io::Error::other(format!("{FILE}: {error}; be root")),
        })?;
        let flags = File::open("/proc/kpageflags")
            .map_err(|error| io::Error::other(format!("/proc/kpageflags: {error}; be root")))?;
        let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
        let pages = Pages::of(pagemap, flags, bitmap);
        pages.check(&mappings(pid)?)?;
        Ok(pages)
    }

    fn of(pagemap: File, flags: File, bitmap: File) -> Pages {
        Pages { pagemap, flags, bitmap, begun: Instant::now(), accessed: HashMap::new() }
    }

    /// Frames are 0 to whom they are not shown.
    fn check(&self, mappings: &[Mapping]) -> io::Result<()> {
        for mapping in mappings.iter().filter(|mapping| mapping.resident_bytes > 0 && mapping.reclaimable) {
            let end = mapping.end.min(mapping.start + BATCH);
            if let Some(page) = self.present(&(mapping.start..end))?.first() {
                let hidden = "the kernel does not show the frames of pages to this user (CAP_SYS_ADMIN); be root";
                return if page.frame() == 0 { Err(io::Error::other(hidden)) } else { Ok(()) };
            }
        }
        Ok(())
    }

    /// In words, what it is.
    pub fn words() -> String {
        format!("the idle-page bitmap ({FILE}), by page")
    }

    /// Looks at what was accessed since the last look, and marks all pages again. Of mappings that can go, each run of
    /// pages that are alike is an entry; of the others, each mapping, as just accessed.
    ///
    /// # Errors
    /// The process has ended.
    pub fn look(&mut self, mappings: &[Mapping]) -> io::Result<Vec<Aged>> {
        let now = self.begun.elapsed().as_millis().min(u128::from(UNSEEN - 1)) as u32;
        self.look_at(mappings, now)
    }

    fn look_at(&mut self, mappings: &[Mapping], now: u32) -> io::Result<Vec<Aged>> {
        let before = std::mem::take(&mut self.accessed);
        let mut aged = Vec::with_capacity(mappings.len());
        for mapping in mappings {
            if !mapping.reclaimable || mapping.resident_bytes == 0 {
                aged.push(Aged { mapping: mapping.clone(), idle: Duration::ZERO });
                continue;
            }
            let mut at = mapping.start;
            while at < mapping.end {
                let end = ((at / BATCH + 1) * BATCH).min(mapping.end);
                let mut pages = self.present(&(at..end))?;
                self.find_idle(&mut pages)?;
                self.mark(&pages)?;
                for page in pages.iter().filter(|page| page.flags & ZERO == 0) {
                    let idle = self.idle_of(page, &before, now);
                    add(&mut aged, mapping, page, idle);
                }
                at = end;
            }
        }
        Ok(aged)
    }

    /// For how long a page is idle, which is kept for the next look.
    fn idle_of(&mut self, page: &Page, before: &HashMap<u64, Box<[u32; CHUNK as usize]>>, now: u32) -> Duration {
        let (number, at) = (page.start / PAGE / CHUNK, (page.start / PAGE % CHUNK) as usize);
        let last = before.get(&number).map_or(UNSEEN, |chunk| chunk[at]);
        // Another program may have marked what was not there at the last look.
        let last = if page.idle && last != UNSEEN { last } else { now };
        self.accessed.entry(number).or_insert_with(|| Box::new([UNSEEN; CHUNK as usize]))[at] = last;
        Duration::from_millis(u64::from(now - last))
    }

    /// The pages in memory, by address.
    fn present(&self, range: &Addresses) -> io::Result<Vec<Page>> {
        let (mut pages, mut at) = (Vec::new(), range.start);
        let mut buffer = [0; CHUNK as usize * 8];
        while at < range.end {
            let end = (at + CHUNK * PAGE).min(range.end);
            let entries = &mut buffer[..((end - at) / PAGE) as usize * 8];
            self.pagemap.read_exact_at(entries, at / PAGE * 8)?;
            for (index, entry) in pagemap::entries(entries).enumerate() {
                if is_present(entry) {
                    pages.push(Page { start: at + index as u64 * PAGE, entry, flags: 0, idle: false });
                }
            }
            at = end;
        }
        Ok(pages)
    }

    /// Finds flags and marks.
    fn find_idle(&self, pages: &mut [Page]) -> io::Result<()> {
        let order = by_frame(pages);
        let frames: Vec<u64> = order.iter().map(|index| pages[*index].frame()).collect();
        let flags = read_at(&self.flags, &frames)?;
        let places: Vec<u64> = frames.iter().map(|frame| frame / 64).collect();
        let marks = read_at(&self.bitmap, &places)?;
        let mut previous: Option<(u64, bool)> = None;
        for (place, index) in order.into_iter().enumerate() {
            let (frame, page) = (frames[place], &mut pages[index]);
            page.flags = flags[place];
            page.idle = if page.flags & TAIL == 0 {
                marks[place] >> (frame % 64) & 1 == 1
            } else {
                previous.is_some_and(|(before, idle)| idle && (before + 1 == frame || before == frame))
            };
            previous = Some((frame, page.idle));
        }
        Ok(())
    }

    /// Marks pages as idle; the kernel leaves alone what a zero stands for.
    fn mark(&self, pages: &[Page]) -> io::Result<()> {
        let mut marks: Vec<(u64, u64)> = Vec::new();
        for index in by_frame(pages) {
            let page = &pages[index];
            if page.flags & (TAIL | ZERO) != 0 {
                continue;
            }
            let (place, bit) = (page.frame() / 64, 1 << (page.frame() % 64));
            match marks.last_mut().filter(|(last, _)| *last == place) {
                Some((_, bits)) => *bits |= bit,
                None => marks.push((place, bit)),
            }
        }
        for run in marks.chunk_by(|one, next| one.0 + 1 == next.0) {
            let bytes: Vec<u8> = run.iter().flat_map(|(_, bits)| bits.to_ne_bytes()).collect();
            write_at(|bytes, at| self.bitmap.write_at(bytes, at), &bytes, run[0].0 * 8)?;
        }
        Ok(())
    }
}

/// The places of pages, by frame.
fn by_frame(pages: &[Page]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..pages.len()).collect();
    order.sort_unstable_by_key(|index| pages[*index].frame());
    order
}

/// Words of a file at places that ascend; what lies side by side is read at once. Where the file ends there are zeros.
fn read_at(file: &File, places: &[u64]) -> io::Result<Vec<u64>> {
    let mut found = Vec::with_capacity(places.len());
    for run in places.chunk_by(|one, next| *next <= one + 1) {
        let first = run[0];
        let mut bytes = vec![0; ((run[run.len() - 1] - first) as usize + 1) * 8];
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read_at(&mut bytes[filled..], first * 8 + filled as u64)? {
                0 => break,
                read => filled += read,
            }
        }
        let read: Vec<u64> = pagemap::entries(&bytes).collect();
        found.extend(run.iter().map(|place| read[(place - first) as usize]));
    }
    Ok(found)
}

/// Writes words. Of a last word that memory does not fill the kernel takes the bits, and says that it wrote nothing; it
/// does not show it either ([`read_at`]), so the pages there always count as accessed.
fn write_at(mut write: impl FnMut(&[u8], u64) -> io::Result<usize>, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match write(bytes, at)? {
            0 if bytes.len() == 8 => return Ok(()),
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => (bytes, at) = (&bytes[written..], at + written as u64),
        }
    }
    Ok(())
}

/// Adds a page: to the run before it, if they are alike and side by side.
fn add(aged: &mut Vec<Aged>, mapping: &Mapping, page: &Page, idle: Duration) {
    let end = page.start + PAGE;
    let anonymous_bytes = if is_of_file(page.entry) { 0 } else { PAGE };
    let shared_bytes = if is_exclusive(page.entry) { 0 } else { PAGE };
    let accessed_bytes = if idle.is_zero() { PAGE } else { 0 };
    let alike = |run: &&mut Aged| {
        let of = &run.mapping;
        of.end == page.start
            && of.start >= mapping.start
            && run.idle == idle
            && (of.anonymous_bytes > 0) == (anonymous_bytes > 0)
            && (of.shared_bytes > 0) == (shared_bytes > 0)
    };
    if let Some(run) = aged.last_mut().filter(alike) {
        let of = &mut run.mapping;
        of.end = end;
        of.resident_bytes += PAGE;
        of.anonymous_bytes += anonymous_bytes;
        of.shared_bytes += shared_bytes;
        of.accessed_bytes += accessed_bytes;
        return;
    }
    let mapping = Mapping {
        start: page.start,
        end,
        resident_bytes: PAGE,
        accessed_bytes,
        anonymous_bytes,
        shared_bytes,
        swap_bytes: 0,
        reclaimable: true,
    };
    aged.push(Aged { mapping, idle });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files like the kernel's: pages from address 0 on, by frame and bits of `pagemap`; the bitmap keeps what is
    /// written, as if nothing were accessed.
    fn pages(entries: &[u64], flags: &[(u64, u64)]) -> Pages {
        let file = |words: &[(u64, u64)]| {
            let file = tempfile::tempfile().expect("a file");
            for (place, word) in words {
                file.write_all_at(&word.to_ne_bytes(), place * 8).expect("room");
            }
            file
        };
        let entries: Vec<(u64, u64)> = entries.iter().enumerate().map(|(at, entry)| (at as u64, *entry)).collect();
        Pages::of(file(&entries), file(flags), file(&[]))
    }

    fn heap(pages: u64) -> Mapping {
        Mapping { start: 0, end: pages * PAGE, resident_bytes: pages * PAGE, reclaimable: true, ..Mapping::default() }
    }

    /// First page, number of pages and milliseconds of each run.
    fn runs(aged: &[Aged]) -> Vec<(u64, u64, u128)> {
        aged.iter()
            .map(|aged| {
                let (start, end) = (aged.mapping.start / PAGE, aged.mapping.end / PAGE);
                assert_eq!(aged.mapping.resident_bytes, (end - start) * PAGE);
                assert_eq!(aged.mapping.accessed_bytes > 0, aged.idle.is_zero());
                (start, end - start, aged.idle.as_millis())
            })
            .collect()
    }

    const MINE: u64 = pagemap::entry(true, false, true, 0);
    const OF_FILE: u64 = pagemap::entry(false, true, false, 0);
    const PRESENT: u64 = pagemap::entry(true, false, false, 0);

    #[test]
    fn pages_are_idle_since_they_were_last_found_accessed() {
        let mut pages = pages(&[MINE | 130, MINE | 3, 0, MINE | 4, MINE | 131], &[]);
        let heap = [heap(5)];
        assert_eq!(runs(&pages.look_at(&heap, 0).expect("files")), [(0, 2, 0), (3, 2, 0)]);
        assert_eq!(runs(&pages.look_at(&heap, 500).expect("files")), [(0, 2, 500), (3, 2, 500)]);
        // An access takes the mark of frame 3 away.
        pages.bitmap.write_all_at(&(1u64 << 4).to_ne_bytes(), 0).expect("room");
        assert_eq!(runs(&pages.look_at(&heap, 900).expect("files")), [(0, 1, 900), (1, 1, 0), (3, 2, 900)]);
        assert_eq!(runs(&pages.look_at(&heap, 1000).expect("files")), [(0, 1, 1000), (1, 1, 100), (3, 2, 1000)]);
        // What comes back in another frame was accessed, whichever program marked that frame.
        pages.pagemap.write_all_at(&(MINE | 7).to_ne_bytes(), 2 * 8).expect("room");
        pages.bitmap.write_all_at(&u64::MAX.to_ne_bytes(), 0).expect("room");
        let aged = pages.look_at(&heap, 1100).expect("files");
        assert_eq!(runs(&aged), [(0, 1, 1100), (1, 1, 200), (2, 1, 0), (3, 2, 1100)]);
    }

    #[test]
    fn no_marks_but_those_of_the_process_are_made() {
        let mut pages = pages(&[MINE | 65, MINE | 1, MINE | 200], &[]);
        pages.look_at(&[heap(3)], 0).expect("files");
        let marks = read_at(&pages.bitmap, &[0, 1, 2, 3]).expect("a file");
        assert_eq!(marks, [1 << 1, 1 << 1, 0, 1 << (200 - 192)]);
    }

    #[test]
    fn a_compound_page_is_as_idle_as_its_first_and_a_page_of_zeros_is_none() {
        // Frames 8 to 10 are compound, 21 belongs to one whose first is not mapped; 30 is the page of zeros.
        let flags = [(9, TAIL), (10, TAIL), (21, TAIL), (30, ZERO)];
        let mut pages = pages(&[MINE | 8, MINE | 9, MINE | 10, MINE | 21, MINE | 30], &flags);
        pages.look_at(&[heap(5)], 0).expect("files");
        assert_eq!(runs(&pages.look_at(&[heap(5)], 10).expect("files")), [(0, 3, 10), (3, 1, 0)]);
        assert_eq!(read_at(&pages.bitmap, &[0]).expect("a file"), [1 << 8], "tails have no marks");
    }

    #[test]
    fn what_is_a_files_and_what_others_map_is_told_apart() {
        let mut pages = pages(&[MINE | 1, MINE | OF_FILE | 2, PRESENT | 3], &[]);
        let aged = pages.look_at(&[heap(3)], 0).expect("files");
        let kinds: Vec<(u64, u64)> =
            aged.iter().map(|aged| (aged.mapping.anonymous_bytes, aged.mapping.shared_bytes)).collect();
        assert_eq!(kinds, [(PAGE, 0), (0, 0), (PAGE, PAGE)]);
        let locked = Mapping { reclaimable: false, ..heap(3) };
        assert_eq!(pages.look_at(std::slice::from_ref(&locked), 5).expect("files")[0].mapping, locked);
    }

    #[test]
    fn the_last_word_may_be_one_that_memory_does_not_fill() {
        let mut seen = Vec::new();
        // As the kernel does for 130 frames: two words are filled.
        let mut kernel = |bytes: &[u8], at: u64| {
            seen.push((bytes.len(), at));
            Ok((16 - at as usize).min(bytes.len()))
        };
        write_at(&mut kernel, &[1; 24], 0).expect("all of it is there");
        assert!(write_at(&mut kernel, &[1; 16], 16).is_err(), "no frames");
        assert_eq!(seen, [(24, 0), (8, 16), (16, 16)]);
    }

    #[test]
    fn frames_that_are_not_shown_are_refused() {
        let hidden = pages(&[MINE], &[]);
        assert!(hidden.check(&[heap(1)]).expect_err("no frames").to_string().contains("does not show the frames"));
        assert!(pages(&[0, MINE | 9], &[]).check(&[heap(2)]).is_ok());
    }
}
