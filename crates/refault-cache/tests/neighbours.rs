//! A write puts exactly what was written into the file: what another program has put beside it, or behind it, stays,
//! and no file becomes shorter.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::common::device::device;
use crate::common::*;
use refault_cache::{CacheOptions, CachedFile, OpenError, PageCache, WriteBack};
use refault_testing::Random;

/// Ways to write.
#[derive(Clone, Copy, Debug)]
enum Way {
    Through,
    Back,
    Buffered,
}

const WAYS: [Way; 3] = [Way::Through, Way::Back, Way::Buffered];

/// 64 pages at least.
fn a_cache(way: Way) -> PageCache {
    let write_back = matches!(way, Way::Back).then(WriteBack::default);
    let options = CacheOptions { memory: 256 << 10, policy: "lru".into(), write_back, ..CacheOptions::default() };
    PageCache::new(&options).expect("a cache")
}

/// A file of these bytes, where there is direct I/O, by a cache and by another program.
fn both(bytes: &[u8], way: Way) -> Option<(tempfile::TempDir, PathBuf, CachedFile, File)> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = directory.path().join("data");
    std::fs::write(&path, bytes).expect("writes");
    let buffered = matches!(way, Way::Buffered);
    let file = match a_cache(way).options().write(true).buffered_writes(buffered).open(&path) {
        Err(OpenError::NoDirect(path)) => {
            refault_testing::skip_required(format_args!("no direct I/O at {}", path.display()));
            return None;
        }
        opened => opened.expect("opens"),
    };
    let other = File::options().read(true).write(true).open(&path).expect("opens");
    Some((directory, path, file, other))
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("reads")
}

#[test]
fn a_write_leaves_what_another_program_has_appended() {
    for way in WAYS {
        for (length, appended) in [(100, 50), (PAGE, 50), (PAGE - 1, PAGE), (3 * PAGE + 7, 5 * PAGE), (0, 10)] {
            let Some((_directory, path, file, other)) = both(&vec![1; length], way) else { return };
            let mut byte = [0];
            file.read_at(&mut byte, 0).expect("reads");
            other.write_all_at(&vec![2; appended], length as u64).expect("appends");
            file.write_at(&[3], 0).expect("writes");
            file.sync().expect("syncs");
            let mut expected = [vec![1; length], vec![2; appended]].concat();
            expected[0] = 3;
            assert!(read(&path) == expected, "{way:?} {length} {appended}: {} bytes", read(&path).len());
            // One that makes the file longer than this cache knows it to be, and not longer than it is.
            file.write_at(&[4; 3], length as u64 + 2).expect("writes");
            file.sync().expect("syncs");
            expected[length + 2..length + 5].fill(4);
            assert!(read(&path) == expected, "{way:?} {length} {appended}: {} bytes", read(&path).len());
            // One that begins far behind.
            file.write_at(&[5; 3], (20 * PAGE) as u64 + 9).expect("writes");
            drop(file);
            expected.resize(20 * PAGE + 9, 0);
            expected.extend([5; 3]);
            assert!(read(&path) == expected, "{way:?} {length} {appended}: {} bytes", read(&path).len());
        }
    }
}

#[test]
fn a_write_leaves_what_another_program_has_put_beside_it() {
    for way in WAYS {
        let Some((_directory, path, file, other)) = both(&vec![b'.'; 4 * PAGE], way) else { return };
        let mut all = vec![0; 4 * PAGE];
        file.read_at(&mut all, 0).expect("reads");
        // More parts of a page than are told apart.
        for part in 0..20_u64 {
            other.write_all_at(b"theirs", PAGE as u64 + part * 200).expect("writes");
            file.write_at(b"ours", PAGE as u64 + part * 200 + 100).expect("writes");
        }
        // Over the ends of pages.
        other.write_all_at(b"theirs", 3 * PAGE as u64 - 30).expect("writes");
        file.write_at(&[b'o'; PAGE + 20], 2 * PAGE as u64 - 10).expect("writes");
        file.sync().expect("syncs");
        let mut expected = vec![b'.'; 4 * PAGE];
        for part in 0..20 {
            expected[PAGE + part * 200..][..6].copy_from_slice(b"theirs");
            expected[PAGE + part * 200 + 100..][..4].copy_from_slice(b"ours");
        }
        expected[2 * PAGE - 10..][..PAGE + 20].fill(b'o');
        let found = read(&path);
        let at = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        assert!(at.is_none() && found.len() == expected.len(), "{way:?}: byte {at:?}");
    }
}

/// Each has cells of its own, of 64 bytes, in the same pages; both append.
#[test]
fn two_programs_write_their_own_cells_of_the_same_pages() {
    const CELL: usize = 64;
    for (way, seed) in WAYS.into_iter().zip(1..) {
        let Some((_directory, path, file, other)) = both(&[0; 1000], way) else { return };
        let (mut random, mut model) = (Random::new(seed), vec![0; 1000]);
        for step in 0..4000 {
            let (cell, cells) = (random.index(100 * PAGE / CELL), 1 + random.index(3));
            let value = 1 + random.below(250) as u8;
            let is_ours = random.below(2) == 0;
            // Cells that follow each other belong to the two in turns.
            for cell in (cell..cell + 2 * cells).filter(|cell| cell.is_multiple_of(2) == is_ours) {
                let at = cell * CELL;
                let bytes = [value; CELL];
                match is_ours {
                    true => file.write_at(&bytes, at as u64).expect("writes"),
                    false => other.write_all_at(&bytes, at as u64).expect("writes"),
                }
                model.resize(model.len().max(at + CELL), 0);
                model[at..at + CELL].copy_from_slice(&bytes);
            }
            match random.below(200) {
                0 => file.sync().expect("syncs"),
                1 => {
                    file.reload().expect("reloads");
                    let mut all = vec![0; model.len() + 1];
                    assert_eq!(file.read_at(&mut all, 0).expect("reads"), model.len(), "{way:?} {step}");
                    assert!(all[..model.len()] == model, "{way:?} {step}");
                }
                _ => {}
            }
        }
        file.sync().expect("syncs");
        let found = read(&path);
        let at = found.iter().zip(&model).position(|(found, expected)| found != expected);
        assert!(at.is_none() && found.len() == model.len(), "{way:?}: byte {at:?}, {} bytes", found.len());
    }
}

/// What a sync may have lost is written again: what was written, and not what another has put beside it meanwhile.
#[test]
fn what_is_written_again_after_a_failed_sync_is_what_was_written() {
    for way in [Way::Through, Way::Back] {
        let device = device(1, 8);
        let file = a_cache(way).attach(Box::new(device.clone())).expect("opens");
        let before = device.0.lock().unwrap().current.clone();
        file.write_at(b"ours", 5000).expect("writes");
        file.write_at(b"ours as well", 3 * PAGE as u64 - 5).expect("writes");
        {
            // Durable at once.
            let mut medium = device.0.lock().unwrap();
            medium.current[5100..5106].copy_from_slice(b"theirs");
            medium.durable[5100..5106].copy_from_slice(b"theirs");
            medium.fail_sync = true;
        }
        file.sync().expect_err("the device fails");
        {
            let mut medium = device.0.lock().unwrap();
            medium.current[5200..5206].copy_from_slice(b"theirs");
        }
        file.sync().expect("it is well again");
        let mut expected = before;
        expected[5000..5004].copy_from_slice(b"ours");
        expected[5200..5206].copy_from_slice(b"theirs");
        expected[3 * PAGE - 5..][..12].copy_from_slice(b"ours as well");
        let medium = device.0.lock().unwrap();
        let found = |range: std::ops::Range<usize>| (medium.durable[range.clone()] == expected[range.clone()], range);
        for range in [5000..5004, 5004..5100, 5200..5206, 5206..8192, 3 * PAGE - 5..3 * PAGE + 7] {
            let (same, range) = found(range);
            assert!(same, "{way:?}: {range:?}");
        }
    }
}
