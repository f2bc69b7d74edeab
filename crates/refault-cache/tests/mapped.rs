//! An exerciser: random operations on a file by two handles of a cache, beside a model. Another reader has mapped the
//! file, as programs do that know nothing of the cache. After each sync, reload and close the mapping has the model's
//! bytes. It has them after each write where others are promised to see it at once: without write-back. A thread touches
//! the mapping all the while, so that the kernel has pages of the file in the way of direct writes. A mapping is never
//! read beyond the file's end.
//!
//! A seed is a history; threads decide the rest. `REFAULT_EXERCISE_SEEDS=1000` tries more of them. Each message names
//! the seed and the step.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{PAGE, Random};
use refault_cache::{CacheOptions, CachedFile, OpenError, PageCache, WriteBack};

/// Pages of memory, and of the longest file.
const MEMORY: usize = 64;
const MAX_LENGTH: usize = 150 * PAGE;
const STEPS: usize = 400;

/// How the cache's writes reach the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Through,
    Back,
    /// By the kernel's page cache.
    Buffered,
    /// The same below a cache that writes back.
    BackBuffered,
}

impl Door {
    fn writes_back(self) -> bool {
        matches!(self, Door::Back | Door::BackBuffered)
    }

    fn cache(self) -> PageCache {
        let options = CacheOptions {
            memory: (MEMORY * PAGE) as u64,
            policy: "lru".into(),
            write_back: self.writes_back().then(WriteBack::default),
            ..CacheOptions::default()
        };
        PageCache::new(&options).expect("a cache")
    }

    fn open(self, cache: &PageCache, path: &Path) -> CachedFile {
        let buffered = matches!(self, Door::Buffered | Door::BackBuffered);
        cache.options().write(true).buffered_writes(buffered).open(path).expect("opens")
    }
}

/// A file as a reader sees it who has mapped it.
struct Mapped {
    base: *const u8,
    length: usize,
}

// SAFETY: the pages are read only, and the mapping belongs to no thread.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps the bytes that the file has.
    fn new(file: &File) -> Mapped {
        let length = file.metadata().expect("asks").len() as usize;
        if length == 0 {
            return Mapped { base: std::ptr::null(), length };
        }
        // SAFETY: a mapping of its own, at no address in particular.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert!(base != libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Mapped { base: base.cast(), length }
    }

    fn byte(&self, at: usize) -> u8 {
        assert!(at < self.length);
        // SAFETY: within the mapping, and its callers know that the file reaches there. Others write to the file, so
        // the byte is read once, and as it is.
        unsafe { self.base.add(at).read_volatile() }
    }

    fn bytes(&self, range: Range<usize>) -> Vec<u8> {
        assert!(range.end <= self.length);
        let mut copy = vec![0; range.len()];
        // SAFETY: as above. Nothing writes to the file meanwhile: its callers have synced, or it is theirs alone.
        unsafe { std::ptr::copy_nonoverlapping(self.base.wrapping_add(range.start), copy.as_mut_ptr(), range.len()) };
        copy
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: it is this one's, and no reference to it is left.
            unsafe { libc::munmap(self.base.cast_mut().cast(), self.length) };
        }
    }
}

/// What the reader beside has, and how much of it is inside the file.
struct Beside {
    file: File,
    view: RwLock<(Mapped, usize)>,
    ended: AtomicBool,
    touched: AtomicU64,
}

impl Beside {
    fn new(path: &Path) -> Beside {
        let file = File::open(path).expect("opens");
        let mapped = Mapped::new(&file);
        let length = mapped.length;
        Beside { file, view: RwLock::new((mapped, length)), ended: AtomicBool::new(false), touched: AtomicU64::new(0) }
    }

    /// Has pages of the file brought into the kernel's page cache, and into the page table.
    fn touch(&self, seed: u64) {
        let mut random = Random::new(seed);
        while !self.ended.load(Ordering::Relaxed) {
            let view = self.view.read().expect("nothing panics under this lock");
            if view.1 > 0 {
                std::hint::black_box(view.0.byte(random.index(view.1)));
                self.touched.fetch_add(1, Ordering::Relaxed);
            }
            drop(view);
            std::thread::yield_now();
        }
    }

    /// Nothing is touched beyond a length, before the file has it.
    fn shrinks(&self, length: usize) {
        let mut view = self.view.write().expect("nothing panics under this lock");
        view.1 = view.1.min(length);
    }

    /// Where the mapping differs from the model in a range. What was mapped before the file grew is left as it is, and
    /// what has come is mapped beside it; now and then all is mapped anew.
    fn difference(&self, model: &[u8], range: Range<usize>, anew: bool) -> Option<String> {
        let length = self.file.metadata().expect("asks").len() as usize;
        if length != model.len() {
            return Some(format!("{length} bytes instead of {}", model.len()));
        }
        if anew || self.view.read().expect("nothing panics under this lock").0.length < length {
            *self.view.write().expect("nothing panics under this lock") = (Mapped::new(&self.file), length);
        }
        let mut view = self.view.write().expect("nothing panics under this lock");
        view.1 = length;
        let range = range.start.min(length)..range.end.min(length);
        let seen = view.0.bytes(range.clone());
        let at = seen.iter().zip(&model[range.clone()]).position(|(seen, model)| seen != model)?;
        let place = range.start + at;
        Some(format!("byte {place} (page {}) is {}, not {}", place / PAGE, seen[at], model[place]))
    }
}

fn bytes(random: &mut Random, length: usize) -> Vec<u8> {
    let first = random.next();
    (0..length as u64).map(|at| (first.wrapping_add(at.wrapping_mul(first | 1)) >> 8) as u8).collect()
}

/// Returns whether the file system takes part.
fn history(door: Door, seed: u64) -> bool {
    let mut random = Random::new(seed);
    let length = random.index(MAX_LENGTH);
    let mut model = bytes(&mut random, length);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = directory.path().join("data");
    std::fs::write(&path, &model).expect("writes");
    let cache = door.cache();
    if let Err(OpenError::NoDirect(path)) = cache.open(&path) {
        refault_testing::skip_required(format_args!("no direct I/O at {}", path.display()));
        return false;
    }
    let beside = Beside::new(&path);
    std::thread::scope(|scope| {
        scope.spawn(|| beside.touch(seed));
        // Ends the thread also where an assertion fails.
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _ends = Ends(&beside.ended);
        let mut handles = [door.open(&cache, &path), door.open(&cache, &path)];
        let mut through = [!door.writes_back(); 2];
        for step in 0..STEPS {
            let turn = random.index(2);
            let (at, length) = (random.index(MAX_LENGTH), 1 + random.index(if step % 16 == 0 { 40 } else { 3 } * PAGE));
            // Whole pages go another way than parts of them.
            let (at, length) = match random.below(3) {
                0 => (at / PAGE * PAGE, length.next_multiple_of(PAGE)),
                _ => (at, length),
            };
            let anew = random.below(8) == 0;
            let told = |differs: Option<String>, after: &str| {
                assert!(differs.is_none(), "{door:?}, seed {seed}, step {step}, after {after}: {}", differs.unwrap());
            };
            let file = &handles[turn];
            match random.below(32) {
                0..12 => {
                    let new = bytes(&mut random, length);
                    file.write_at(&new, at as u64).expect("writes");
                    model.resize(model.len().max(at + length), 0);
                    model[at..at + length].copy_from_slice(&new);
                    // What waits of the pages at its edges waits on.
                    if through[turn] {
                        told(beside.difference(&model, at..at + length, anew), "a write");
                    }
                }
                12..14 => {
                    beside.shrinks(at);
                    file.set_len(at as u64).expect("sets");
                    model.resize(at, 0);
                    // The length is there at once, and what a shorter file has lost does not come back.
                    told(beside.difference(&model, 0..0, anew), "a change of the length");
                }
                14..17 => {
                    file.sync().expect("syncs");
                    told(beside.difference(&model, 0..MAX_LENGTH * 2, anew), "a sync");
                    assert_eq!(cache.report().dirty_bytes, 0);
                }
                17..19 => {
                    file.sync_range(at as u64..(at + length) as u64).expect("syncs");
                    told(beside.difference(&model, at..at + length, anew), "a sync of a range");
                }
                19 => {
                    file.reload().expect("reloads");
                    told(beside.difference(&model, 0..MAX_LENGTH * 2, anew), "a reload");
                }
                20 => file.evict(at as u64..(at + length) as u64),
                21 => file.prefetch(at as u64..(at + length) as u64),
                22 if door.writes_back() => {
                    through[turn] = random.below(2) == 0;
                    file.set_write_through(through[turn]);
                }
                23 => {
                    // The last handle writes what waits, as each does of which there is no other.
                    let [one, two] = handles;
                    drop((one, two));
                    told(beside.difference(&model, 0..MAX_LENGTH * 2, anew), "a close");
                    handles = [door.open(&cache, &path), door.open(&cache, &path)];
                    through = [!door.writes_back(); 2];
                }
                24..26 => {
                    let end = (at + length).min(model.len());
                    if at < end {
                        let pinned = file.pin(at as u64..end as u64).expect("reads");
                        let seen: Vec<u8> = pinned.slices().flatten().copied().collect();
                        assert!(seen == model[at..end], "{door:?}, seed {seed}, step {step}: a pin at {at}");
                    }
                }
                _ => {
                    let mut seen = vec![0; length];
                    let read = file.read_at(&mut seen, at as u64).expect("reads");
                    let end = (at + length).min(model.len());
                    let right = seen[..read] == model[at.min(end)..end];
                    assert!(right, "{door:?}, seed {seed}, step {step}: the cache at {at}");
                }
            }
            assert_eq!(handles[1 - turn].len(), model.len() as u64, "{door:?}, seed {seed}, step {step}");
        }
        handles[0].sync().expect("syncs");
        assert_eq!(beside.difference(&model, 0..MAX_LENGTH * 2, true), None, "{door:?}, seed {seed}, at the end");
    });
    assert!(beside.touched.load(Ordering::Relaxed) > 0, "nothing was mapped");
    true
}

#[test]
fn a_reader_that_maps_the_file_finds_what_was_synced() {
    let seeds = std::env::var("REFAULT_EXERCISE_SEEDS").map_or(12, |text| text.parse().expect("a number"));
    for seed in 1..=seeds {
        for door in [Door::Through, Door::Back, Door::Buffered, Door::BackBuffered] {
            if !history(door, seed) {
                return;
            }
        }
    }
}
