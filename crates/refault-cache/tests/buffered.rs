//! Writes that go through the kernel's page cache: it has them at once, every reader finds them, and it keeps little of
//! them when they are durable.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::common::PAGE;
use refault_cache::{CacheOptions, CachedFile, OpenError, PageCache};
use refault_testing::Random;
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// 64 pages, without readahead.
fn cache() -> PageCache {
    let options =
        CacheOptions { memory: 64 * PAGE as u64, policy: "lru".into(), read_ahead: Some(0), ..CacheOptions::default() };
    PageCache::new(&options).expect("a cache")
}

fn open(path: &Path) -> CachedFile {
    cache().options().write(true).buffered_writes(true).open(path).expect("opens")
}

/// A file with these bytes, where there is direct I/O, which tmpfs has not.
fn direct_file(bytes: &[u8]) -> Option<(tempfile::TempDir, PathBuf)> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = directory.path().join("data");
    std::fs::write(&path, bytes).expect("writes");
    if let Err(OpenError::NoDirect(path)) = cache().open(&path) {
        refault_testing::skip(format_args!("no direct I/O at {}", path.display()));
        return None;
    }
    Some((directory, path))
}

/// The first byte of a page, if the kernel's page cache has it. It may read it along when it has not.
fn kernels(file: &File, page: usize) -> Option<u8> {
    let mut byte = [0];
    match preadv2(file, &mut [IoSliceMut::new(&mut byte)], (page * PAGE) as u64, ReadWriteFlags::NOWAIT) {
        Ok(1) => Some(byte[0]),
        Err(Errno::AGAIN) => None,
        other => panic!("page {page}: {other:?}"),
    }
}

#[test]
fn the_kernel_has_what_is_written_and_drops_it_when_it_is_durable() {
    let Some((_directory, path)) = direct_file(&vec![1; 2000 * PAGE]) else { return };
    let file = open(&path);
    let other = File::open(&path).expect("opens");
    // The kernel is not to have the file: what is written directly leaves its page cache.
    cache().options().write(true).open(&path).expect("opens").write_at(&vec![1; 2000 * PAGE], 0).expect("writes");
    assert_eq!(kernels(&other, 1000), None, "the test is to begin without");
    file.reload().expect("reloads");

    // Few pages stay.
    file.write_at(&[2; 3 * PAGE], 500 * PAGE as u64).expect("writes");
    assert_eq!(kernels(&other, 501), Some(2));
    file.sync().expect("syncs");
    assert_eq!(kernels(&other, 501), Some(2), "to drop few costs more than they do");
    // Of many, some far from each other, none does.
    for page in (0..2000).step_by(4) {
        file.write_at(&[3; PAGE], (page * PAGE) as u64).expect("writes");
    }
    assert_eq!(kernels(&other, 1600), Some(3));
    file.sync().expect("syncs");
    for page in [1600, 800, 501] {
        assert_eq!(kernels(&other, page), None, "page {page} is in memory twice");
    }
    let mut byte = [0];
    for (page, value) in [(1600, 3), (501, 2), (502, 2), (503, 1), (0, 3), (1, 1)] {
        file.read_at(&mut byte, (page * PAGE) as u64).expect("reads");
        assert_eq!(byte, [value], "page {page}");
    }
}

/// Of every length, at every place: in this cache, which evicts most of it, in one that reads from the device, and by
/// the kernel's.
#[test]
fn every_reader_finds_what_was_written_last() {
    let mut random = Random::new(5);
    let mut model: Vec<u8> = (0..300 * PAGE + 77).map(|_| random.next() as u8).collect();
    let Some((_directory, path)) = direct_file(&model) else { return };
    let (file, other) = (open(&path), File::open(&path).expect("opens"));
    let reader = cache().open(&path).expect("opens");
    for step in 0..3000 {
        match random.below(40) {
            0 => {
                model.resize(random.index(320 * PAGE), 0);
                file.set_len(model.len() as u64).expect("cuts");
            }
            1 => file.sync().expect("syncs"),
            2 => file.reload().expect("reloads"),
            3..20 => {
                let (at, length) = (random.index(310 * PAGE), 1 + random.index(3 * PAGE));
                let bytes = vec![random.next() as u8; length];
                file.write_at(&bytes, at as u64).expect("writes");
                model.resize(model.len().max(at + length), 0);
                model[at..at + length].copy_from_slice(&bytes);
            }
            _ => {
                let (at, mut bytes) = (random.index(model.len() + 1), [0; 5000]);
                let wanted = &model[at..model.len().min(at + bytes.len())];
                let read = file.read_at(&mut bytes, at as u64).expect("reads");
                assert!(bytes[..read] == *wanted, "step {step}: the cache at {at}");
                if step % 2 == 0 {
                    reader.reload().expect("reloads");
                    let read = reader.read_at(&mut bytes, at as u64).expect("reads");
                    assert!(bytes[..read] == *wanted, "step {step}: the device at {at}");
                } else {
                    other.read_exact_at(&mut bytes[..wanted.len()], at as u64).expect("reads");
                    assert!(bytes[..wanted.len()] == *wanted, "step {step}: the kernel at {at}");
                }
            }
        }
        assert_eq!(file.len(), model.len() as u64, "step {step}");
    }
    drop(file);
    assert!(std::fs::read(&path).expect("reads") == model);
}

#[test]
fn own_writes_are_no_change_by_others() {
    let Some((_directory, path)) = direct_file(&vec![1; 8 * PAGE]) else { return };
    let file = open(&path);
    for page in 0..8 {
        file.write_at(&[2; PAGE], page * PAGE as u64).expect("writes");
        assert!(!file.reload_if_changed().expect("asks"), "page {page}");
    }
    file.sync().expect("syncs");
    assert!(!file.reload_if_changed().expect("asks"), "the kernel's own writing");
    File::options().write(true).open(&path).and_then(|other| other.write_at(&[3], 0)).expect("writes");
    assert!(file.reload_if_changed().expect("asks"));
}
