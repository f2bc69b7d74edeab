//! One file is one file. Handles of it in one cache share pages, length, what waits to be written and what is durable.
//! The names that they were opened by and the rights that they have make no difference. Each handle is told once of
//! what the device refuses.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::common::mounts::Mounted;
use crate::common::*;
use refault_cache::{CacheOptions, CachedFile, OpenError, PageCache, WriteBack, WriteError};
use refault_testing::Random;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// 64 pages.
fn a_cache(write_back: bool) -> PageCache {
    let write_back = write_back.then(WriteBack::default);
    let options =
        CacheOptions { memory: 64 * PAGE as u64, policy: "lru".into(), write_back, ..CacheOptions::default() };
    PageCache::new(&options).expect("a cache")
}

/// A directory with a file of these bytes, where there is direct I/O.
fn with_file(bytes: &[u8]) -> Option<(tempfile::TempDir, PathBuf)> {
    let directory = directory();
    let path = directory.path().join("data");
    std::fs::write(&path, bytes).expect("writes");
    match a_cache(false).open(&path) {
        Err(OpenError::NoDirect(path)) => {
            refault_testing::skip_required(format_args!("no direct I/O at {}", path.display()));
            None
        }
        opened => opened.map(|_| Some((directory, path))).expect("opens"),
    }
}

fn bytes_at(file: &CachedFile, at: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let read = file.read_at(&mut bytes, at).expect("reads");
    bytes.truncate(read);
    bytes
}

#[test]
fn what_one_handle_writes_another_finds_and_does_not_undo() {
    for write_back in [false, true] {
        let Some((directory, path)) = with_file(&[b'.'; 2 * PAGE]) else { return };
        let link = directory.path().join("link");
        std::fs::hard_link(&path, &link).expect("links");
        let symlink = directory.path().join("symlink");
        std::os::unix::fs::symlink(&path, &symlink).expect("links");
        let cache = a_cache(write_back);
        let open = |path: &Path| cache.options().write(true).open(path).expect("opens");
        let (one, two) = (open(&path), open(&link));
        let reader = cache.open(&symlink).expect("opens");
        for file in [&one, &two, &reader] {
            assert_eq!(bytes_at(file, 0, 2 * PAGE), [b'.'; 2 * PAGE]);
        }
        one.write_at(b"AAAA", 0).expect("writes");
        one.sync().expect("syncs");
        assert_eq!((bytes_at(&two, 0, 4), bytes_at(&reader, 0, 4)), (b"AAAA".to_vec(), b"AAAA".to_vec()));
        two.write_at(b"BBBB", 100).expect("writes");
        // Through the handle that cannot write: what is durable is the file.
        reader.sync().expect("syncs");
        let below = std::fs::read(&path).expect("reads");
        assert_eq!((&below[..4], &below[100..104]), (&b"AAAA"[..], &b"BBBB"[..]));
        assert_eq!(cache.report().dirty_bytes, 0);
        let report = cache.report();
        assert_eq!((report.resident_bytes, report.misses), (2 * PAGE as u64, 2), "its pages are there, and read, once");
        // Lengths too.
        two.set_len(10).expect("cuts");
        assert_eq!((one.len(), reader.len(), bytes_at(&reader, 5, 100).len()), (10, 10, 5));
        one.write_at(b"longer", 3 * PAGE as u64).expect("writes");
        assert_eq!((two.len(), reader.len()), (3 * PAGE as u64 + 6, 3 * PAGE as u64 + 6));
        // A new name, and the first handle gone.
        let renamed = directory.path().join("renamed");
        std::fs::rename(&path, &renamed).expect("renames");
        drop(one);
        let three = open(&renamed);
        assert_eq!(bytes_at(&three, 3 * PAGE as u64, 6), b"longer");
        assert!(
            matches!(reader.write_at(&[1], 0), Err(WriteError::NotForWriting { .. })),
            "rights are each handle's own"
        );
    }
}

#[test]
fn a_file_that_was_opened_for_reading_is_written_by_a_handle_that_may() {
    let Some((_directory, path)) = with_file(&[1; PAGE]) else { return };
    for buffered in [false, true] {
        let cache = a_cache(false);
        let reader = cache.open(&path).expect("opens");
        assert_eq!(byte(&reader, 0), Some(1));
        let writer = cache.options().write(true).buffered_writes(buffered).open(&path).expect("opens");
        writer.write_at(&[2; PAGE + 1], 0).expect("writes");
        assert_eq!((byte(&reader, 0), byte(&reader, PAGE as u64)), (Some(2), Some(2)));
        drop(writer);
        let demand = cache.options().write_on_demand(true).open(&path).expect("opens");
        demand.write_at(&[3], 5).expect("writes");
        assert_eq!(byte(&reader, 5), Some(3));
        drop(demand);
        assert_eq!(std::fs::read(&path).expect("reads")[4..7], [2, 3, 2]);
        reader.reload().expect("reloads");
        assert_eq!((byte(&reader, 4), byte(&reader, 5)), (Some(2), Some(3)));
        std::fs::write(&path, [1; PAGE]).expect("writes");
    }
}

#[test]
fn who_opens_a_file_finds_what_others_have_done_to_it_since() {
    let Some((_directory, path)) = with_file(&[1; PAGE]) else { return };
    let cache = a_cache(false);
    let first = cache.open(&path).expect("opens");
    assert_eq!((byte(&first, 0), first.len()), (Some(1), PAGE as u64));
    std::fs::write(&path, [2; 2 * PAGE + 7]).expect("another program");
    let second = cache.open(&path).expect("opens");
    assert_eq!((byte(&second, 0), second.len()), (Some(2), 2 * PAGE as u64 + 7));
    assert!(first.reload_if_changed().expect("asks"), "the first is told of it as well");
    assert!(!first.reload_if_changed().expect("asks") && !second.reload_if_changed().expect("asks"), "once");
}

#[test]
fn a_number_that_is_used_again_is_another_file() {
    let Some((_directory, path)) = with_file(&[1; PAGE]) else { return };
    let cache = a_cache(true);
    let mut seen = std::collections::HashSet::new();
    for round in 2..200_u8 {
        let file = cache.options().write(true).open(&path).expect("opens");
        file.write_at(&[round], 0).expect("waits");
        seen.insert(std::fs::metadata(&path).expect("it is there").ino());
        std::fs::remove_file(&path).expect("removes");
        drop(file);
        std::fs::write(&path, [round; PAGE]).expect("writes");
        let file = cache.open(&path).expect("opens");
        assert_eq!((byte(&file, 0), byte(&file, 9), file.len()), (Some(round), Some(round), PAGE as u64));
    }
    if seen.len() == 198 {
        refault_testing::skip("this file system uses no number again");
    }
}

#[test]
fn a_file_that_is_opened_while_it_is_closed_has_all_that_was_written() {
    let Some((_directory, path)) = with_file(&[0; 32 * PAGE]) else { return };
    let cache = a_cache(true);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (cache, path) = (&cache, &path);
            scope.spawn(move || {
                for round in 1..200_u8 {
                    let at = thread * 8 * PAGE as u64 + u64::from(round) * 100;
                    let file = cache.options().write(true).open(path).expect("opens");
                    file.write_at(&[round; 100], at).expect("waits");
                    drop(file);
                    let file = cache.open(path).expect("opens");
                    assert_eq!(bytes_at(&file, at, 100), [round; 100], "{thread} {round}");
                }
            });
        }
    });
    let below = std::fs::read(&path).expect("reads");
    for (thread, round) in (0..4).flat_map(|thread| (1..200).map(move |round| (thread, round))) {
        let at = thread * 8 * PAGE + round * 100;
        assert!(below[at..at + 100].iter().all(|byte| usize::from(*byte) == round), "{thread} {round}");
    }
}

/// Handles by all kinds of names and rights, beside a plain model.
#[test]
fn handles_agree_with_one_file() {
    for seed in 1..=24 {
        let Some((directory, path)) = with_file(&[0; 3000]) else { return };
        let (mut random, mut model) = (Random::new(seed), vec![0; 3000]);
        let cache = a_cache(seed % 2 == 0);
        let mut names = vec![path];
        let mut handles: Vec<CachedFile> = Vec::new();
        for step in 0..600 {
            let name = names[random.index(names.len())].clone();
            let new = directory.path().join(format!("name{step}"));
            match random.below(24) {
                0 => std::fs::hard_link(&name, &new).map(|()| names.push(new)).expect("links"),
                1 => {
                    let place = random.index(names.len());
                    // What points to a name that goes leads nowhere.
                    std::fs::rename(&names[place], &new).expect("renames");
                    names[place] = new;
                }
                2 if names.len() > 1 => {
                    let name = names.swap_remove(random.index(names.len()));
                    std::fs::remove_file(name).expect("removes");
                }
                3..6 if handles.len() < 8 => {
                    let options = cache.options();
                    let options = match random.below(3) {
                        0 => options,
                        1 => options.write(true),
                        _ => options.write_on_demand(true),
                    };
                    // By a symbolic link sometimes.
                    let by = if random.below(2) == 0 {
                        std::os::unix::fs::symlink(&name, &new).expect("links");
                        &new
                    } else {
                        &name
                    };
                    handles.push(options.buffered_writes(random.below(6) == 0).open(by).expect("opens"));
                }
                6 if !handles.is_empty() => drop(handles.swap_remove(random.index(handles.len()))),
                kind if !handles.is_empty() => {
                    let file = &handles[random.index(handles.len())];
                    let (at, length) = (random.index(60 * PAGE), 1 + random.index(2 * PAGE));
                    match kind {
                        7..14 => {
                            let bytes = vec![random.next() as u8; length];
                            match file.write_at(&bytes, at as u64) {
                                Err(WriteError::NotForWriting { .. }) => assert!(!file.is_writable()),
                                outcome => {
                                    outcome.expect("writes");
                                    assert!(file.is_writable());
                                    model.resize(model.len().max(at + length), 0);
                                    model[at..at + length].copy_from_slice(&bytes);
                                }
                            }
                        }
                        14 if file.is_writable() => {
                            model.resize(at, 0);
                            file.set_len(at as u64).expect("sets");
                        }
                        15 => {
                            file.sync().expect("syncs");
                            assert!(std::fs::read(&name).expect("reads") == model, "{seed} {step}");
                            assert_eq!(cache.report().dirty_bytes, 0);
                        }
                        16 => file.reload().expect("reloads"),
                        _ => {
                            let end = (at + length).min(model.len());
                            assert!(bytes_at(file, at as u64, length) == model[at.min(end)..end], "{seed} {step} {at}");
                        }
                    }
                    assert!(handles.iter().all(|file| file.len() == model.len() as u64), "{seed} {step}");
                }
                _ => {}
            }
        }
        drop(handles);
        assert!(std::fs::read(&names[0]).expect("reads") == model, "{seed}");
        assert_eq!(cache.report().resident_bytes, 0, "its pages leave with the last handle");
    }
}

#[test]
fn each_handle_is_told_once_and_the_first_sync_with_room_is_clean() {
    let directory = directory();
    let Some(small) = Mounted::small(directory.path()) else { return };
    let path = small.0.join("data");
    // Holes, which take room when they are written.
    std::fs::File::create(&path).and_then(|file| file.set_len(64 * PAGE as u64)).expect("creates");
    let cache = a_cache(true);
    let open = || cache.options().write(true).open(&path);
    let (one, two) = match (open(), open()) {
        (Ok(one), Ok(two)) => (one, two),
        (Err(error), _) | (_, Err(error)) => return refault_testing::skip(error),
    };
    small.fill();
    for page in [1, 9, 17] {
        one.write_at(&[page as u8; PAGE], page * PAGE as u64).expect("waits");
    }
    for _ in 0..3 {
        assert_eq!(one.sync().expect_err("no room").raw_os_error(), Some(libc::ENOSPC));
    }
    let late = cache.open(&path).expect("opens");
    small.empty();
    one.sync().expect("it was told, and there is room");
    assert_eq!(two.sync().expect_err("the other was not told yet").raw_os_error(), Some(libc::ENOSPC));
    two.sync().expect("once");
    late.sync().expect("it was opened after that");
    let below = std::fs::read(&path).expect("reads");
    assert!([1, 9, 17].iter().all(|page| below[page * PAGE] == *page as u8));
}
