//! A disk that refuses, below the kernel's file system. What a sync has acknowledged is on the disk. An error comes
//! from the call that it concerns. When the disk is well again so is the file.

mod common;
#[path = "common/faulty.rs"]
mod faulty;

use std::collections::HashSet;
use std::path::PathBuf;

use common::PAGE;
use faulty::Faulty;
use refault_cache::{CacheOptions, CachedFile, IoEngine, PageCache, ReadError, WriteBack, WriteError};

const PAGES: usize = 200;
const BAD: [usize; 3] = [3, 40, 199];

/// How writes reach the disk.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Through,
    Back,
    Buffered,
}

const MODES: [Mode; 3] = [Mode::Through, Mode::Back, Mode::Buffered];

/// A page of a file, unlike all others.
fn page(number: usize, value: u8) -> Vec<u8> {
    let mut page = vec![value; PAGE];
    page[..8].copy_from_slice(&(number as u64).to_le_bytes());
    page
}

/// A file on a faulty disk, and where each of its pages lies there.
struct Case {
    faulty: Faulty,
    path: PathBuf,
    blocks: Vec<usize>,
    _directory: tempfile::TempDir,
}

impl Case {
    fn new() -> Option<Case> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let faulty = Faulty::new(directory.path())?;
        let path = faulty.path().join("data");
        let bytes: Vec<u8> = (0..PAGES).flat_map(|number| page(number, 1)).collect();
        std::fs::write(&path, &bytes).and_then(|()| std::fs::File::open(&path)?.sync_all()).expect("writes");
        let blocks = faulty.disk().blocks_of(|number| page(number, 1), PAGES);
        Some(Case { faulty, path, blocks, _directory: directory })
    }

    /// A cache of `pages` pages, and the file in it.
    fn open(&self, pages: u64, mode: Mode, io: IoEngine) -> (PageCache, CachedFile) {
        let write_back = (mode == Mode::Back).then(WriteBack::default);
        let memory = pages * PAGE as u64;
        let options = CacheOptions { memory, policy: "lru".into(), write_back, io, ..CacheOptions::default() };
        let cache = PageCache::new(&options).expect("a cache");
        let file = cache.options().write(true).buffered_writes(mode == Mode::Buffered).open(&self.path);
        (cache, file.expect("the file system does direct I/O"))
    }

    fn bad_blocks(&self) -> HashSet<usize> {
        BAD.iter().map(|page| self.blocks[*page]).collect()
    }

    /// The first page that the disk has otherwise.
    fn differs(&self, value: impl Fn(usize) -> u8) -> Option<usize> {
        let disk = self.faulty.disk();
        (0..PAGES).find(|number| disk.bytes[self.blocks[*number] * PAGE..][..PAGE] != page(*number, value(*number)))
    }
}

/// Writes all pages; those that were refused.
fn write(file: &CachedFile, value: u8, error: i32) -> HashSet<usize> {
    let mut refused = HashSet::new();
    for number in 0..PAGES {
        match file.write_at(&page(number, value), (number * PAGE) as u64) {
            Ok(()) => {}
            Err(WriteError::Io { offset, error: said }) => {
                assert_eq!(said.raw_os_error(), Some(error), "{said}");
                assert!(offset as usize <= number * PAGE, "{offset}");
                refused.insert(number);
            }
            Err(other) => panic!("{other}"),
        }
    }
    refused
}

#[test]
fn writes_that_a_disk_refuses_are_told_and_nothing_that_a_sync_acknowledged_is_lost() {
    // With memory for all, and for a third.
    for (mode, pages, error) in MODES.into_iter().flat_map(|mode| {
        [(mode, 300, libc::EIO), (mode, 64, libc::EIO), (mode, 300, libc::ENOSPC), (mode, 64, libc::ENOSPC)]
    }) {
        let what = format!("{mode:?}, {pages} pages, error {error}");
        let Some(case) = Case::new() else { return };
        let (_cache, file) = case.open(pages, mode, IoEngine::Threads);
        assert_eq!(write(&file, 2, 0), HashSet::new());
        file.sync().expect("the disk is well");
        assert_eq!(case.differs(|_| 2), None, "{what}: a sync has acknowledged it");

        case.faulty.disk().unwritable = (case.bad_blocks(), error);
        let refused = write(&file, 3, error);
        let synced = file.sync();
        assert!(case.faulty.disk().refused > 0, "{what}");
        match mode {
            Mode::Through => assert_eq!(refused, BAD.into(), "{what}: each by its own call"),
            _ => {
                let said = synced.as_ref().expect_err("it cannot be durable");
                // With write-back such a disk stops writers of its file at the ratio, with its own error.
                assert!(mode == Mode::Back || refused.is_empty(), "{what}: {refused:?}");
                assert!([Some(error), Some(libc::EIO)].contains(&said.raw_os_error()), "{what}: {said}");
            }
        }
        if synced.is_ok() {
            let expected = |number| if refused.contains(&number) { 2 } else { 3 };
            assert_eq!(case.differs(expected), None, "{what}: a sync has acknowledged it");
        }

        // Well again: what was refused, or is told to be lost, is written anew, and the next sync is clean.
        case.faulty.disk().mend();
        for number in &refused {
            file.write_at(&page(*number, 3), (*number * PAGE) as u64).expect("the disk is well");
        }
        if let Err(first) = file.sync()
            && let Err(second) = file.sync()
        {
            assert!(second.to_string().contains("had left memory"), "{what}: {first}; {second}");
            assert_eq!(write(&file, 3, 0), HashSet::new());
            file.sync().expect("it was written anew");
        }
        assert_eq!(case.differs(|_| 3), None, "{what}");
        file.sync().expect("nothing is missing");
    }
}

#[test]
fn a_flush_that_a_disk_refuses_is_told_and_the_next_one_makes_it_good() {
    for mode in MODES {
        let Some(case) = Case::new() else { return };
        let (cache, file) = case.open(300, mode, IoEngine::Threads);
        let other = cache.open(&case.path).expect("opens");
        assert_eq!(write(&file, 2, 0), HashSet::new());
        case.faulty.disk().flush = Some(libc::EIO);
        let said = file.sync().expect_err("the disk may lose it");
        assert_eq!(said.raw_os_error(), Some(libc::EIO), "{mode:?}: {said}");
        assert!(file.sync().is_err(), "{mode:?}: it refuses still");
        case.faulty.disk().mend();
        file.sync().expect("all is in memory, and it was told");
        assert_eq!(case.differs(|_| 2), None, "{mode:?}");
        other.sync().expect_err("each handle is told, once");
        other.sync().expect("it was told");
    }
}

#[test]
fn a_page_that_a_disk_cannot_read_costs_no_other_page() {
    for io in [IoEngine::Threads, IoEngine::Uring] {
        let Some(case) = Case::new() else { return };
        // The kernel may give no ring.
        if io == IoEngine::Uring
            && let Err(error) = PageCache::new(&CacheOptions { io, ..CacheOptions::default() })
        {
            return refault_testing::skip(error);
        }
        case.faulty.disk().unreadable = (case.bad_blocks(), libc::EIO);
        let (cache, file) = case.open(300, Mode::Through, io);
        // In the background first: it keeps to itself what it cannot read.
        file.prefetch(0..(PAGES * PAGE) as u64);
        for round in 0..2 {
            for number in 0..PAGES {
                let mut found = vec![0; PAGE];
                match file.read_at(&mut found, (number * PAGE) as u64) {
                    Ok(bytes) => {
                        assert!(bytes == PAGE && found == page(number, 1) && !BAD.contains(&number), "{number}")
                    }
                    Err(ReadError::Io { offset, error }) => {
                        assert_eq!(
                            (offset as usize, error.raw_os_error()),
                            (number * PAGE, Some(libc::EIO)),
                            "{round}"
                        );
                        assert!(BAD.contains(&number), "{io:?}: {number}");
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
        // Several at once: the call says where it fails.
        let mut all = vec![0; PAGES * PAGE];
        assert!(
            matches!(file.read_at(&mut all, 0), Err(ReadError::Io { offset, .. }) if offset as usize == BAD[0] * PAGE)
        );
        // A part of such a page is not written over what cannot be read, or exactly.
        if file.write_at(&[9; 10], (BAD[1] * PAGE + 100) as u64).is_ok() {
            file.sync().expect("it can be written");
        }
        case.faulty.disk().mend();
        assert_eq!(file.read_at(&mut all, 0).expect("the disk is well"), PAGES * PAGE);
        for number in (0..PAGES).filter(|number| *number != BAD[1]) {
            assert!(all[number * PAGE..][..PAGE] == page(number, 1), "{number}");
        }
        assert_eq!(all[BAD[1] * PAGE..][..100], page(BAD[1], 1)[..100]);
        assert_eq!(cache.report().dirty_bytes, 0);
    }
}
