//! Lengths that change, or do not, while others read and sync: what is found afterwards is what the file has.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::common::device::device;
use crate::common::*;
use refault_cache::{Backing, CacheOptions, CachedFile, PageCache, WriteBack};

/// What is called, and where.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Read(u64),
    SetLen,
    Sync,
}

/// A file that asks the test before it does anything.
struct Asks<B, F> {
    file: B,
    before: F,
}

impl<B: Backing, F: Fn(Call) -> io::Result<()> + Send + Sync> Backing for Asks<B, F> {
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        (self.before)(Call::Read(offset))?;
        self.file.read(into, offset)
    }

    fn write(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.file.write(from, offset)
    }

    fn sync(&self) -> io::Result<()> {
        (self.before)(Call::Sync)?;
        self.file.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        (self.before)(Call::SetLen)?;
        self.file.set_len(bytes)
    }
}

/// Where one thread stops until the test lets it go on.
struct Stop(Mutex<(Sender<()>, Receiver<()>)>);

/// The test's end of it.
struct Stopped(Receiver<()>, Sender<()>);

fn stop() -> (Stop, Stopped) {
    let ((stops, stopped), (go, goes)) = (channel(), channel());
    (Stop(Mutex::new((stops, goes))), Stopped(stopped, go))
}

impl Stop {
    fn stop(&self) {
        let ends = self.0.lock().unwrap();
        // A test that has ended waits for nothing.
        if ends.0.send(()).is_ok() {
            let _ = ends.1.recv();
        }
    }
}

impl Stopped {
    fn wait(&self) {
        self.0.recv().expect("a call stops");
    }

    fn go_on(&self) {
        self.1.send(()).expect("a call waits");
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::Error::from_raw_os_error(5))
}

const AT: u64 = 2 * PAGE as u64;

/// Readers stay below the new length while the system is asked for it. What they bring in then ends there.
#[test]
fn a_length_that_is_refused_leaves_nothing_cut_off_that_readers_brought_in_meanwhile() {
    let (stop, stopped) = stop();
    let before = move |call| {
        if call == Call::SetLen {
            stop.stop();
            return refused();
        }
        Ok(())
    };
    let cache = cache(64, "lru", None);
    let backing = Asks { file: Memory::with(vec![7; 64 * PAGE]), before };
    let file = cache.attach(Box::new(backing)).expect("opens");
    std::thread::scope(|scope| {
        let cut = scope.spawn(|| file.set_len(AT + 100));
        stopped.wait();
        assert_eq!((byte(&file, AT + 99), byte(&file, AT + 100)), (Some(7), None));
        stopped.go_on();
        cut.join().expect("ends").expect_err("it is refused");
    });
    assert_eq!(file.len(), 64 * PAGE as u64);
    assert_eq!(byte(&file, AT + 100), Some(7), "a zero that the file does not have");
}

/// What a sync could not make durable is dirty again, or told of as long as it is missing.
#[test]
fn a_page_that_is_cut_in_two_while_a_sync_fails_is_not_lost_in_silence() {
    let ((sets, set), (syncs, synced)) = (stop(), stop());
    let fails = Mutex::new(true);
    let before = move |call| {
        match call {
            Call::SetLen => sets.stop(),
            Call::Sync if std::mem::take(&mut *fails.lock().unwrap()) => {
                syncs.stop();
                return refused();
            }
            _ => {}
        }
        Ok(())
    };
    let cache = cache(64, "lru", None);
    let file = cache.attach(Box::new(Asks { file: device(31, 8), before })).expect("opens");
    file.write_at(&[9; PAGE], AT).expect("goes through");
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| file.sync());
        synced.wait();
        let cut = scope.spawn(|| file.set_len(AT + 100));
        set.wait();
        synced.go_on();
        sync.join().expect("ends").expect_err("the device fails");
        set.go_on();
        cut.join().expect("ends").expect("it is cut");
    });
    drop(set);
    file.sync().expect_err("what was written before the end may be gone, and memory does not have it");
    file.write_at(&[8; 100], AT).expect("goes through");
    file.sync().expect("all of it was written anew");
}

fn write_back() -> PageCache {
    PageCache::new(&CacheOptions { memory: 1 << 20, write_back: Some(WriteBack::default()), ..CacheOptions::default() })
        .expect("a cache")
}

/// What was written back and is not durable yet is dropped by a reload as anything else.
#[test]
fn a_reload_finds_what_others_wrote_where_this_cache_has_written_back() {
    let (memory, cache) = (Memory::with(vec![7; 64 * PAGE]), write_back());
    let file = cache.attach(Box::new(memory.clone())).expect("opens");
    file.write_at(&[8; PAGE], AT).expect("stays in memory");
    file.reload().expect("is written");
    assert_eq!(memory.bytes.lock().unwrap()[AT as usize], 8);
    memory.bytes.lock().unwrap()[AT as usize] = 9;
    file.reload().expect("reloads");
    assert_eq!(byte(&file, AT), Some(9), "what another program has written");
}

/// A reader sees the end of the file as it was or as it is, and no zeros between the two.
#[test]
fn a_reload_of_a_longer_file_shows_no_zeros_that_it_does_not_have() {
    let memory = Memory::with(vec![7; AT as usize + 100]);
    let (reads, read) = stop();
    let first = Mutex::new(true);
    let before = move |call| {
        if call == Call::Read(0) && std::mem::take(&mut *first.lock().unwrap()) {
            reads.stop();
        }
        Ok(())
    };
    let cache = cache(64, "lru", None);
    let file = cache.attach(Box::new(Asks { file: memory.clone(), before })).expect("opens");
    file.advise(refault_cache::Advice::Random);
    assert_eq!(byte(&file, AT), Some(7));
    memory.bytes.lock().unwrap().resize(3 * PAGE, 7);
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| byte(&file, 0));
        read.wait();
        let reload = scope.spawn(|| file.reload());
        // It waits for the read that is under way.
        while cache.report().waits == 0 {
            std::thread::yield_now();
        }
        let seen = byte(&file, AT + 200);
        read.go_on();
        reload.join().expect("ends").expect("reloads");
        seen
    });
    assert!(matches!(seen, None | Some(7)), "a zero that the file does not have");
    assert_eq!(byte(&file, AT + 200), Some(7));
}

/// A device whose length is its own, and no whole number of pages.
struct Fixed(Memory);

const SECTORS: u64 = AT + 512;

impl Backing for Fixed {
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.0.read(into, offset)
    }

    fn write(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        if offset + from.iter().map(|slice| slice.len() as u64).sum::<u64>() > SECTORS {
            return Err(io::Error::from_raw_os_error(28));
        }
        self.0.write(from, offset)
    }

    fn takes_any_bytes(&self) -> bool {
        true
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(SECTORS)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(22))
    }
}

/// Writes all of it but the first byte, up to its end.
fn is_written_to_its_end(file: &CachedFile, read_all: impl Fn() -> Vec<u8>) {
    let bytes: Vec<u8> = (0..SECTORS - 1).map(|at| (at / 100) as u8 | 1).collect();
    file.write_at(&bytes, 1).expect("writes");
    file.sync().expect("all of it is on the device");
    assert!(read_all()[1..] == bytes);
}

#[test]
fn a_device_is_written_to_its_end_that_lies_within_a_page() {
    for options in [None, Some(WriteBack::default())] {
        let memory = Memory::exact(vec![0; SECTORS as usize]);
        let cache = PageCache::new(&CacheOptions { write_back: options, ..CacheOptions::default() }).expect("a cache");
        let file = cache.attach(Box::new(Fixed(memory.clone()))).expect("opens");
        is_written_to_its_end(&file, || memory.bytes.lock().unwrap().clone());
    }
}

/// A loop device over a file, as long as this lives.
struct Loop(String);

impl Loop {
    fn over(path: &std::path::Path) -> Option<Loop> {
        let made = std::process::Command::new("losetup").args(["--find", "--show"]).arg(path).output().ok()?;
        made.status.success().then(|| Loop(String::from_utf8_lossy(&made.stdout).trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_block_device_is_written_to_its_end_that_lies_within_a_page() {
    let disk = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    disk.as_file().set_len(SECTORS).expect("its length");
    let Some(device) = Loop::over(disk.path()) else {
        return refault_testing::skip("losetup makes no device");
    };
    for options in [None, Some(WriteBack::default())] {
        let cache = PageCache::new(&CacheOptions { write_back: options, ..CacheOptions::default() }).expect("a cache");
        let file = cache.options().write(true).open(device.0.as_ref()).expect("opens");
        assert_eq!(file.len(), SECTORS);
        is_written_to_its_end(&file, || std::fs::read(&device.0).expect("reads"));
    }
}
