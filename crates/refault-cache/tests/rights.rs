//! A file is opened with the rights that were asked for, and with no more, whatever lies below.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::mounts::Mounted;
use crate::common::*;
use refault_cache::{CacheOptions, CachedFile, OpenError, PageCache, WriteBack, WriteError};
use rustix::fs::OFlags;

const EBADF: i32 = libc::EBADF;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn a_cache() -> PageCache {
    cache(64, "lru", None)
}

/// Opens what must be there, where there is direct I/O.
fn opened(outcome: Result<CachedFile, OpenError>) -> Option<CachedFile> {
    match outcome {
        Err(OpenError::NoDirect(path)) => {
            refault_testing::skip_required(format_args!("no direct I/O at {}", path.display()));
            None
        }
        outcome => Some(outcome.expect("opens")),
    }
}

/// Flags of this process's descriptors of a file.
fn flags_below(path: &Path) -> Vec<OFlags> {
    let path = path.canonicalize().expect("it is there");
    let mut flags = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").expect("proc").flatten() {
        if std::fs::read_link(entry.path()).is_ok_and(|target| target == path) {
            let info = Path::new("/proc/self/fdinfo").join(entry.file_name());
            let text = std::fs::read_to_string(info).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags").trim().to_owned();
            flags.push(OFlags::from_bits_retain(u32::from_str_radix(&line, 8).expect("octal")));
        }
    }
    flags
}

/// How many of them may write.
fn writers_below(path: &Path) -> usize {
    flags_below(path).iter().filter(|flags| flags.intersects(OFlags::WRONLY | OFlags::RDWR)).count()
}

/// An overlay whose lower layer has one file of `bytes` bytes; its upper layer lies in `upper`.
fn overlay(home: &Path, upper: &Path, bytes: usize) -> Option<(Mounted, PathBuf)> {
    let lower = home.join("lower");
    std::fs::create_dir_all(&lower).expect("a directory");
    std::fs::write(lower.join("data"), vec![7; bytes]).expect("writes");
    let (top, work) = (upper.join("top"), upper.join("work"));
    std::fs::create_dir_all(&top).and_then(|()| std::fs::create_dir_all(&work)).expect("directories");
    let options = format!("lowerdir={},upperdir={},workdir={}", lower.display(), top.display(), work.display());
    let merged = home.join("merged");
    let mounted = Mounted::new(&["-t", "overlay", "overlay", "-o", &options], &merged)?;
    Some((mounted, merged.join("data")))
}

#[test]
fn who_reads_has_no_descriptor_for_writing_and_who_writes_has_one() {
    let directory = directory();
    let path = directory.path().join("data");
    std::fs::write(&path, vec![1; 3 * PAGE + 5]).expect("writes");
    let cache = a_cache();
    let Some(reader) = opened(cache.open(&path)) else { return };
    assert_eq!((byte(&reader, 0), flags_below(&path).len(), writers_below(&path)), (Some(1), 1, 0));
    drop(reader);
    for buffered in [false, true] {
        let demand = cache.options().write_on_demand(true).buffered_writes(buffered).open(&path).expect("opens");
        assert_eq!((byte(&demand, 0), writers_below(&path)), (Some(1), 0), "nothing is written yet");
        demand.write_at(&[2; 5], 3).expect("writes");
        demand.set_len(3 * PAGE as u64 + 6).expect("lengthens");
        demand.sync().expect("syncs");
        assert_eq!(writers_below(&path), 1);
        drop(demand);
        assert_eq!(std::fs::read(&path).expect("reads")[..9], [1, 1, 1, 2, 2, 2, 2, 2, 1]);
        assert!(flags_below(&path).is_empty(), "closed");

        let writer = cache.options().write(true).buffered_writes(buffered).open(&path).expect("opens");
        assert_eq!((flags_below(&path).len(), writers_below(&path)), (1, 1));
        writer.set_len(3 * PAGE as u64 + 5).expect("cuts");
        writer.write_at(&[1; 9], 0).expect("writes");
        assert_eq!(flags_below(&path).len(), if buffered { 2 } else { 1 }, "the kernel gathers by one of its own");
    }
}

#[test]
fn pages_stay_when_a_file_is_closed_and_its_descriptor_does_not() {
    let directory = directory();
    let path = directory.path().join("data");
    std::fs::write(&path, vec![1; 40 * PAGE]).expect("writes");
    let cache = a_cache();
    let Some(reader) = opened(cache.open(&path)) else { return };
    let mut all = vec![0; 40 * PAGE];
    reader.read_at(&mut all, 0).expect("reads");
    let kept = reader.keep_pages().expect("a file of the system");
    reader.prefetch(0..40 * PAGE as u64);
    assert_eq!(flags_below(&path).len(), 1);
    drop(reader);
    assert!(flags_below(&path).is_empty(), "nothing is open");
    let before = cache.report();
    assert_eq!(before.resident_bytes, 40 * PAGE as u64);
    // Who opens it again finds them, by one descriptor for each handle at most.
    let (one, two) = (cache.open(&path).expect("opens"), cache.open(&path).expect("opens"));
    assert_eq!((byte(&one, 5), byte(&two, 39 * PAGE as u64)), (Some(1), Some(1)));
    assert_eq!((cache.report().misses, flags_below(&path).len()), (before.misses, 2));
    // In any order.
    drop(one);
    two.evict(0..u64::MAX);
    assert_eq!(byte(&two, 5), Some(1), "what reads is open as long as there is a handle");
    drop(two);
    assert!(flags_below(&path).is_empty());
    // Those of writers go too.
    for buffered in [false, true] {
        let writer = cache.options().write(true).buffered_writes(buffered).open(&path).expect("opens");
        let demand = cache.options().write_on_demand(true).open(&path).expect("opens");
        writer.write_at(&[2], 5).expect("writes");
        demand.write_at(&[3; PAGE], 0).expect("writes");
        drop((writer, demand));
        assert!(flags_below(&path).is_empty(), "nothing is open");
        let again = cache.open(&path).expect("opens");
        assert_eq!((byte(&again, 5), flags_below(&path).len(), writers_below(&path)), (Some(3), 1, 0));
        again.sync().expect("syncs");
    }
    drop(kept);
    assert!(flags_below(&path).is_empty());
    assert_eq!(cache.report().resident_bytes, 0);
}

#[test]
fn a_file_whose_pages_are_kept_stays_open_while_something_of_it_is_not_durable() {
    let directory = directory();
    let path = directory.path().join("data");
    std::fs::write(&path, vec![1; 4 * PAGE]).expect("writes");
    let options =
        CacheOptions { memory: 64 * PAGE as u64, write_back: Some(WriteBack::default()), ..CacheOptions::default() };
    let cache = PageCache::new(&options).expect("a cache");
    let Some(writer) = opened(cache.options().write(true).open(&path)) else { return };
    writer.write_at(&[2; PAGE], 0).expect("waits");
    let kept = writer.keep_pages().expect("a file of the system");
    drop(writer);
    assert_eq!(std::fs::read(&path).expect("reads")[0], 2, "closed, it is written");
    assert_eq!(flags_below(&path).len(), 1, "and could be made durable");
    let again = cache.open(&path).expect("opens");
    again.sync().expect("syncs");
    drop(again);
    assert!(flags_below(&path).is_empty());
    assert_eq!(byte(&cache.open(&path).expect("opens"), 0), Some(2));
    drop(kept);
}

#[test]
fn a_file_whose_pages_are_kept_gives_its_space_back_and_another_of_its_name_is_another() {
    let directory = directory();
    let Some(small) = Mounted::small(directory.path()) else { return };
    let path = small.0.join("data");
    let cache = a_cache();
    let free = || rustix::fs::statvfs(&small.0).expect("mounted").f_bfree;
    let empty = free();
    for value in 1..=20 {
        std::fs::write(&path, vec![value; 8 * PAGE]).expect("writes");
        let Some(reader) = opened(cache.open(&path)) else { return };
        assert_eq!((byte(&reader, 0), byte(&reader, 8 * PAGE as u64 - 1)), (Some(value), Some(value)));
        // Its number is the next one's.
        let kept = reader.keep_pages().expect("a file of the system");
        drop(reader);
        std::fs::remove_file(&path).expect("removes");
        rustix::fs::sync();
        assert_eq!(free(), empty, "round {value}");
        std::fs::write(&path, vec![value + 100; 8 * PAGE]).expect("writes");
        let again = cache.open(&path).expect("opens");
        assert_eq!((byte(&again, 0), byte(&again, 8 * PAGE as u64 - 1)), (Some(value + 100), Some(value + 100)));
        drop((again, kept));
        std::fs::remove_file(&path).expect("removes");
    }
}

#[test]
fn a_write_through_a_handle_for_reading_is_refused_in_words() {
    let directory = directory();
    let path = directory.path().join("data");
    std::fs::write(&path, vec![1; 100]).expect("writes");
    let Some(reader) = opened(a_cache().open(&path)) else { return };
    let error = reader.write_at(&[2], 50).expect_err("it is for reading");
    assert!(matches!(error, WriteError::NotForWriting { offset: 50 }), "{error:?}");
    assert!(error.to_string().contains("opened for reading only"), "{error}");
    assert_eq!(reader.set_len(5).expect_err("it is for reading").raw_os_error(), Some(EBADF));
    reader.sync().expect("there is nothing to be done");
    drop(reader);
    assert_eq!(std::fs::read(&path).expect("reads"), vec![1; 100]);
}

#[test]
fn a_read_copies_nothing_up_in_an_overlay_and_a_write_does() {
    let home = directory();
    let upper = home.path().join("upper");
    let Some((_mounted, path)) = overlay(home.path(), &upper, 1 << 20) else { return };
    let (cache, copy) = (a_cache(), upper.join("top/data"));
    let Some(reader) = opened(cache.open(&path)) else { return };
    assert_eq!(byte(&reader, 5), Some(7));
    drop(reader);
    let demand = cache.options().write_on_demand(true).open(&path).expect("opens");
    assert_eq!(byte(&demand, 5), Some(7));
    assert!(!copy.exists(), "reading has copied the file up");
    demand.write_at(&[8], 5).expect("writes");
    demand.sync().expect("syncs");
    assert!(copy.exists());
    assert_eq!((byte(&demand, 5), byte(&demand, 6)), (Some(8), Some(7)));
    demand.reload().expect("reloads");
    assert_eq!((byte(&demand, 5), byte(&demand, 6)), (Some(8), Some(7)), "the descriptor that reads sees it");
    drop(demand);
    assert_eq!(std::fs::read(&copy).expect("reads")[4..7], [7, 8, 7]);
    assert_eq!(std::fs::read(home.path().join("lower/data")).expect("reads")[5], 7);
}

#[test]
fn a_file_of_an_overlay_is_read_where_the_upper_layer_is_full() {
    let home = directory();
    // 1 MiB, of a file of 4.
    let upper = home.path().join("upper");
    let Some(_tmpfs) = Mounted::new(&["-t", "tmpfs", "-o", "size=1m", "tmpfs"], &upper) else { return };
    let Some((_mounted, path)) = overlay(home.path(), &upper, 4 << 20) else { return };
    let cache = a_cache();
    let Some(reader) = opened(cache.open(&path)) else { return };
    assert_eq!(byte(&reader, (4 << 20) - 1), Some(7));
    drop(reader);
    let demand = cache.options().write_on_demand(true).open(&path).expect("opens");
    assert_eq!(byte(&demand, 5), Some(7));
    let error = demand.write_at(&[8], 5).expect_err("there is no room for a copy");
    assert!(matches!(&error, WriteError::Io { error, .. } if error.raw_os_error() == Some(libc::ENOSPC)), "{error}");
    assert_eq!(byte(&demand, 5), Some(7));
    assert!(matches!(cache.options().write(true).open(&path), Err(OpenError::Io { .. })));
}

#[test]
fn a_file_on_a_read_only_mount_is_read_and_not_written() {
    let home = directory();
    let (from, at) = (home.path().join("from"), home.path().join("at"));
    std::fs::create_dir(&from).expect("a directory");
    std::fs::write(from.join("data"), vec![5; 5000]).expect("writes");
    let Some(_bound) = Mounted::new(&["--bind", from.to_str().expect("text")], &at) else { return };
    let remounted = Command::new("mount").args(["-o", "remount,bind,ro"]).arg(&at).status();
    assert!(remounted.is_ok_and(|status| status.success()), "what was mounted can be made read-only");
    let (cache, path) = (a_cache(), at.join("data"));
    let Some(reader) = opened(cache.open(&path)) else { return };
    assert_eq!(byte(&reader, 4999), Some(5));
    let refused = |error: &std::io::Error| error.raw_os_error() == Some(libc::EROFS);
    let error = cache.options().write(true).open(&path).map(drop).expect_err("nothing is written there");
    assert!(matches!(&error, OpenError::Io { error, .. } if refused(error)), "{error}");
    let demand = cache.options().write_on_demand(true).open(&path).expect("it can be read");
    assert_eq!(byte(&demand, 0), Some(5));
    let error = demand.write_at(&[1], 0).expect_err("nothing is written there");
    assert!(matches!(&error, WriteError::Io { error, .. } if refused(error)), "{error}");
}

#[test]
fn a_program_runs_while_it_is_read_and_is_read_while_it_runs() {
    let directory = directory();
    let program = directory.path().join("sleep");
    std::fs::copy("/bin/sleep", &program).expect("a program");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("sets");
    let cache = a_cache();
    let Some(reader) = opened(cache.open(&program)) else { return };
    assert_eq!(byte(&reader, 1), Some(b'E'));
    let mut running = Command::new(&program).arg("60").spawn().expect("it runs while it is read");
    let again = cache.open(&program).map(|file| byte(&file, 1));
    let written = cache.options().write(true).open(&program).map(drop);
    running.kill().and_then(|()| running.wait()).expect("it was running");
    assert_eq!(again.expect("it is read while it runs"), Some(b'E'));
    let busy = |error: &std::io::Error| error.raw_os_error() == Some(libc::ETXTBSY);
    assert!(matches!(&written, Err(OpenError::Io { error, .. }) if busy(error)), "{written:?}");
}

/// A lock of the whole file as fcntl(2) knows them, of this process; or who has one that is in the way of it.
fn posix_lock(file: &File, command: i32, kind: i32) -> libc::flock {
    // SAFETY: all zeros are a value of it.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    // SAFETY: a descriptor, a number, and a structure that lives.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), command, &mut lock) }, 0, "{}", std::io::Error::last_os_error());
    lock
}

/// A close of any descriptor of a file releases this process's locks of it.
#[test]
fn locks_of_the_process_outlive_what_a_cache_does_with_an_open_file() {
    let directory = directory();
    let path = directory.path().join("data");
    std::fs::write(&path, vec![1; 9 * PAGE]).expect("writes");
    let (holder, looker) = (File::options().read(true).write(true).open(&path).expect("opens"), File::open(&path));
    let looker = looker.expect("opens");
    // A lock of an open file, which this process's own are in the way of, is asked for and not taken.
    let is_locked = || posix_lock(&looker, libc::F_OFD_GETLK, libc::F_WRLCK).l_type != libc::F_UNLCK as libc::c_short;
    for buffered in [false, true] {
        let (cache, other) = (a_cache(), a_cache());
        let Some(reader) = opened(cache.open(&path)) else { return };
        posix_lock(&holder, libc::F_SETLK, libc::F_WRLCK);
        let mut handles = Vec::new();
        for cache in [&cache, &other] {
            let demand = cache.options().write_on_demand(true).buffered_writes(buffered);
            let writer = cache.options().write(true).buffered_writes(buffered);
            for options in [demand, writer, cache.options()] {
                let file = options.open(&path).expect("opens");
                assert_eq!(byte(&file, 0), Some(1));
                if file.is_writable() {
                    file.write_at(&[1; 2 * PAGE + 9], 5).expect("writes");
                    file.set_len(9 * PAGE as u64 + 1).expect("lengthens");
                    file.sync().expect("syncs");
                    file.reload().expect("reloads");
                }
                assert!(is_locked());
                handles.push(file);
            }
        }
        reader.evict(0..u64::MAX);
        assert_eq!(byte(&reader, 8 * PAGE as u64), Some(1));
        assert!(is_locked());
        drop(handles);
        posix_lock(&holder, libc::F_SETLK, libc::F_UNLCK);
    }
}

#[test]
fn an_open_that_is_refused_ends_no_lock_of_the_process() {
    let directory = directory();
    let program = directory.path().join("sleep");
    std::fs::copy("/bin/sleep", &program).expect("a program");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("sets");
    let (holder, looker) = (File::open(&program).expect("opens"), File::open(&program).expect("opens"));
    let cache = a_cache();
    let Some(reader) = opened(cache.open(&program)) else { return };
    let mut running = Command::new(&program).arg("60").spawn().expect("it runs");
    posix_lock(&holder, libc::F_SETLK, libc::F_RDLCK);
    let refused = |buffered| a_cache().options().write(true).buffered_writes(buffered).open(&program).is_err();
    let demand = cache.options().write_on_demand(true).open(&program).expect("it can be read");
    let outcome = (refused(false), refused(true), demand.write_at(&[1], 0).is_err());
    let lock = posix_lock(&looker, libc::F_OFD_GETLK, libc::F_WRLCK).l_type;
    running.kill().and_then(|()| running.wait()).expect("it was running");
    assert_eq!(outcome, (true, true, true), "a program that runs is not written");
    assert_eq!(lock, libc::F_RDLCK as libc::c_short, "it is still there");
    drop((reader, demand));
}

#[test]
fn a_leased_file_is_read_and_its_lease_stays() {
    let directory = directory();
    let path = directory.path().join("data");
    std::fs::write(&path, vec![3; PAGE]).expect("writes");
    let holder = File::open(&path).expect("opens");
    // SAFETY: a descriptor and numbers.
    let lease = |command, argument: i32| unsafe { libc::fcntl(holder.as_raw_fd(), command, argument) };
    if lease(libc::F_SETLEASE, libc::F_RDLCK) != 0 {
        return refault_testing::skip("this file system grants no leases");
    }
    let Some(reader) = opened(a_cache().open(&path)) else { return };
    assert_eq!(byte(&reader, 0), Some(3));
    assert_eq!(lease(libc::F_GETLEASE, 0), libc::F_RDLCK, "it was broken");
}
