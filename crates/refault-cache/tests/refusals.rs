//! Devices that refuse: each error is told to who writes the file that it concerns, and what is lost is told until it
//! is mended.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::common::PAGE;
use crate::common::device::{Device, device};
use refault_cache::{Backing, CacheOptions, CachedFile, PageCache, WriteBack};

/// 64 pages, of which 25 may be dirty; 12 are written at a time.
fn cache(write_back: bool) -> PageCache {
    let ratios = WriteBack { background_ratio: 0.2, ratio: 0.4, expire: Duration::from_millis(20) };
    let options = CacheOptions {
        memory: 64 * PAGE as u64,
        policy: "lru".into(),
        write_back: write_back.then_some(ratios),
        ..CacheOptions::default()
    };
    PageCache::new(&options).expect("a cache")
}

fn open(cache: &PageCache, device: &Device) -> CachedFile {
    cache.attach(Box::new(device.clone())).expect("opens")
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_error_is_told_once_to_the_file_that_it_concerns_and_to_no_other() {
    let (bad, good) = (device(1, 96), device(2, 96));
    let cache = cache(true);
    let (refused, well) = (open(&cache, &bad), open(&cache, &good));
    bad.0.lock().unwrap().fail_writes = true;
    refused.write_at(&[1; 20 * PAGE], 0).expect("stays in memory");
    // The one takes most of what may be dirty, and cannot be written.
    for page in 0..96 {
        well.write_at(&[page as u8 + 1; PAGE], page * PAGE as u64).expect("another file's device is well");
    }
    well.sync().expect("another file's device is well");
    assert!(good.0.lock().unwrap().durable.chunks(PAGE).zip(1u8..).all(|(page, value)| *page == [value; PAGE]));
    bad.0.lock().unwrap().fail_writes = false;
    // What the background had begun has ended.
    std::thread::sleep(Duration::from_millis(20));
    let told = refused.sync().expect_err("it was refused meanwhile");
    assert_eq!(told.raw_os_error(), Some(28), "{told}");
    refused.sync().expect("it is told once");
    assert_eq!(bad.0.lock().unwrap().durable[..20 * PAGE], [1; 20 * PAGE], "and nothing is lost");
}

#[test]
fn a_writer_that_is_refused_leaves_an_earlier_refusal_to_the_sync() {
    let bad = device(17, 96);
    let cache = cache(true);
    let file = open(&cache, &bad);
    bad.0.lock().unwrap().fail_writes = true;
    file.write_at(&[1; 8 * PAGE], 0).expect("stays in memory");
    wait_until("the background tries", || bad.0.lock().unwrap().refused > 0);
    let refused = (8..96).any(|page| file.write_at(&[2; PAGE], page * PAGE as u64).is_err());
    assert!(refused, "more may not wait");
    bad.0.lock().unwrap().fail_writes = false;
    // The background has left the device alone since it was refused, and was not refused once more.
    wait_until("the background writes it well", || cache.report().dirty_bytes < 8 * PAGE as u64);
    let told = file.sync().expect_err("the background was refused what this waits for");
    assert_eq!(told.raw_os_error(), Some(28), "{told}");
    file.sync().expect("it is told once");
}

/// Writes 64 pages through, which a sync that fails makes dirty: all frames; and the device takes none of them again.
fn fill_all_of_memory(file: &CachedFile, device: &Device) {
    file.write_at(&[1; 64 * PAGE], 0).expect("goes through");
    {
        let mut medium = device.0.lock().unwrap();
        (medium.fail_sync, medium.fail_writes) = (true, true);
    }
    file.sync().expect_err("the device fails");
}

#[test]
fn readers_of_other_files_go_on_when_a_sync_has_made_all_of_memory_dirty() {
    let (bad, good) = (device(3, 96), device(4, 96));
    let cache = cache(false);
    let (refused, well) = (open(&cache, &bad), open(&cache, &good));
    fill_all_of_memory(&refused, &bad);
    let mut seen = vec![0; 96 * PAGE];
    well.read_at(&mut seen, 0).expect("it has nothing to do with that");
    assert!(seen == good.0.lock().unwrap().current);
    bad.0.lock().unwrap().fail_writes = false;
    // What had to go is told until it is written anew.
    for _ in 0..3 {
        let error = refused.sync().expect_err("pages are lost");
        assert!(error.to_string().contains("had left memory") || error.raw_os_error() == Some(28), "{error}");
    }
    refused.write_at(&[2; 64 * PAGE], 0).expect("goes through");
    refused.sync().expect("nothing is missing");
    assert_eq!(bad.0.lock().unwrap().durable[..64 * PAGE], [2; 64 * PAGE]);
}

#[test]
fn a_reload_tells_of_a_loss_that_no_sync_has_told_of() {
    let device = device(5, 96);
    let cache = cache(true);
    let file = open(&cache, &device);
    file.set_write_through(true);
    file.write_at(&[1; PAGE], 0).expect("goes through");
    file.evict(0..PAGE as u64);
    file.set_write_through(false);
    device.0.lock().unwrap().fail_sync = true;
    file.write_at(&[2; PAGE], PAGE as u64).expect("stays in memory");
    wait_until("no thread syncs in the background", || !device.0.lock().unwrap().fail_sync);
    wait_until("it stays dirty", || cache.report().dirty_bytes == 0);
    let told = file.reload().expect_err("a page is lost");
    assert!(told.to_string().contains("the page at byte 0, which had left memory"), "{told}");
    file.reload().expect("who was told may go on");
    // The error of the background's, and no other.
    assert_eq!(file.sync().expect_err("it is told once").raw_os_error(), Some(5));
    file.sync().expect("nothing is missing");
}

#[test]
fn a_write_through_that_fails_over_a_page_that_is_not_durable_leaves_one_truth() {
    let device = device(6, 96);
    let ratios = WriteBack { expire: Duration::from_secs(600), ..WriteBack::default() };
    let options = CacheOptions { memory: 64 * PAGE as u64, write_back: Some(ratios), ..CacheOptions::default() };
    let cache = PageCache::new(&options).expect("a cache");
    let file = open(&cache, &device);
    file.write_at(&[1; 2 * PAGE], 0).expect("stays in memory");
    file.reload().expect("writes it, and makes nothing durable");
    assert_eq!(device.0.lock().unwrap().current[0], 1);
    file.set_write_through(true);
    device.0.lock().unwrap().fail_writes = true;
    file.write_at(&[2; 2 * PAGE], 0).expect_err("the device takes half of it");
    assert_eq!(device.0.lock().unwrap().current[0], 2);
    device.0.lock().unwrap().fail_writes = false;
    let mut seen = [0; 2 * PAGE];
    file.read_at(&mut seen, 0).expect("reads");
    file.sync().expect("the device is well");
    assert_eq!(device.0.lock().unwrap().durable[..2 * PAGE], seen, "what a reader saw is what is durable");
}

#[test]
fn what_was_lost_beyond_what_is_listed_is_mended_by_writing_it_anew() {
    let device = device(7, 1600);
    let cache = cache(false);
    let file = open(&cache, &device);
    let write = |value: u8| {
        (0..1600).for_each(|page| file.write_at(&[value; PAGE], page * PAGE as u64).expect("goes through"));
    };
    write(1);
    device.0.lock().unwrap().fail_sync = true;
    file.sync().expect_err("the device fails");
    file.sync().expect_err("pages are lost");
    write(2);
    file.sync().expect("all of it was written anew");
    assert!(device.0.lock().unwrap().durable.iter().all(|byte| *byte == 2));
}

#[test]
fn a_device_that_refuses_for_a_moment_costs_waiting_and_no_page() {
    let (bad, good) = (device(8, 96), device(9, 96));
    let cache = cache(false);
    let (refused, well) = (open(&cache, &bad), open(&cache, &good));
    fill_all_of_memory(&refused, &bad);
    let again = bad.clone();
    let mended = std::thread::spawn(move || {
        wait_until("no thread asks it to write", || again.0.lock().unwrap().refused > 0);
        again.0.lock().unwrap().fail_writes = false;
    });
    let mut seen = vec![0; 96 * PAGE];
    well.read_at(&mut seen, 0).expect("a frame comes free when the device is well");
    assert!(seen == good.0.lock().unwrap().current);
    mended.join().unwrap();
    assert_eq!(refused.sync().expect_err("it was refused meanwhile").raw_os_error(), Some(28));
    refused.sync().expect("nothing is missing");
    assert!(bad.0.lock().unwrap().durable[..64 * PAGE] == [1; 64 * PAGE]);
}

#[test]
fn a_new_length_leaves_what_was_refused_before_to_the_next_sync() {
    let device = device(10, 96);
    let cache = cache(true);
    let file = open(&cache, &device);
    device.0.lock().unwrap().fail_writes = true;
    file.write_at(&[1; PAGE], 95 * PAGE as u64).expect("stays in memory");
    wait_until("no thread writes in the background", || device.0.lock().unwrap().refused > 0);
    device.0.lock().unwrap().fail_writes = false;
    // What the background had begun has ended.
    std::thread::sleep(Duration::from_millis(20));
    file.write_at(&[2; PAGE], 95 * PAGE as u64).expect("stays in memory");
    file.set_len(95 * PAGE as u64 + 100).expect("the device is well");
    assert_eq!(file.sync().expect_err("it was refused meanwhile").raw_os_error(), Some(28));
    file.sync().expect("it is told once");
}

/// A device whose first write, or first sync, waits for a word and fails then.
#[derive(Clone)]
struct Gate(Arc<(Mutex<State>, Condvar)>);

struct State {
    fails: &'static str,
    waits: bool,
    open: bool,
}

impl Gate {
    fn new(fails: &'static str) -> Gate {
        Gate(Arc::new((Mutex::new(State { fails, waits: false, open: false }), Condvar::new())))
    }

    fn pass(&self, what: &str) -> io::Result<()> {
        let mut state = self.0.0.lock().unwrap();
        if state.fails != what {
            return Ok(());
        }
        state.waits = true;
        let mut state = self.0.1.wait_while(state, |state| !state.open).unwrap();
        state.fails = "nothing";
        Err(io::Error::from_raw_os_error(5))
    }

    fn open(&self) {
        self.0.0.lock().unwrap().open = true;
        self.0.1.notify_all();
    }
}

impl Backing for Gate {
    fn read(&self, into: &mut [IoSliceMut<'_>], _: u64) -> io::Result<usize> {
        Ok(into.iter().map(|slice| slice.len()).sum())
    }
    fn write(&self, from: &[IoSlice<'_>], _: u64) -> io::Result<usize> {
        self.pass("write")?;
        Ok(from.iter().map(|slice| slice.len()).sum())
    }
    fn sync(&self) -> io::Result<()> {
        self.pass("sync")
    }
    fn len(&self) -> io::Result<u64> {
        Ok(64 * PAGE as u64)
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn who_waits_for_what_the_background_is_refused_is_told() {
    for round in 0..60 {
        let gate = Gate::new(if round % 2 == 0 { "write" } else { "sync" });
        let cache = cache(true);
        let file = cache.attach(Box::new(gate.clone())).expect("opens");
        file.write_at(&[1; PAGE], 0).expect("stays in memory");
        wait_until("no thread writes in the background", || gate.0.0.lock().unwrap().waits);
        std::thread::scope(|scope| {
            // It waits for the background, and what it does itself then goes well.
            let sync = scope.spawn(|| file.sync());
            std::thread::sleep(Duration::from_millis(3));
            gate.open();
            let told = sync.join().unwrap().expect_err("it was refused meanwhile");
            assert_eq!(told.raw_os_error(), Some(5), "round {round}");
        });
        file.sync().expect("it is told once");
    }
}

#[test]
fn no_sync_comes_between_a_loss_that_is_made_good_and_what_makes_it_good() {
    for round in 0..400 {
        let device = device(11 + round, 96);
        let cache = cache(true);
        let file = open(&cache, &device);
        file.set_write_through(true);
        file.write_at(&[1; PAGE], 0).expect("goes through");
        file.evict(0..PAGE as u64);
        device.0.lock().unwrap().fail_sync = true;
        file.sync().expect_err("the device fails");
        file.sync().expect_err("a page is lost");
        file.set_write_through(false);
        let turn = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while turn.load(Ordering::SeqCst) == 0 {}
                file.write_at(&[2; PAGE], 0).expect("stays in memory");
            });
            while file.sync().is_err() {
                turn.store(1, Ordering::SeqCst);
            }
            let durable = device.0.lock().unwrap().durable[0];
            assert_eq!(durable, 2, "round {round}: a sync says that nothing is missing");
        });
    }
}

/// What a sync that failed may have lost is as the device has it. The cache does not write it later: other programs may
/// have written there.
#[test]
fn a_file_that_forgets_is_not_written_after_a_sync_that_failed() {
    for (seed, through) in [(21, true), (22, false)] {
        let device = device(seed, 96);
        let cache = cache(!through);
        let file = open(&cache, &device);
        file.forget_on_failure();
        file.write_at(&[1; 8 * PAGE], 0).expect("goes through, or stays in memory");
        // One that has left memory by the time.
        file.evict(0..PAGE as u64);
        device.0.lock().unwrap().fail_sync = true;
        file.sync().expect_err("the device fails");
        // Others begin where the device is, as a journal does.
        let others = vec![9; 8 * PAGE];
        device.0.lock().unwrap().current[..8 * PAGE].copy_from_slice(&others);
        let mut seen = vec![0; 8 * PAGE];
        file.read_at(&mut seen, 0).expect("reads");
        assert!(seen == others, "through: {through}");
        assert_eq!(cache.report().dirty_bytes, 0);
        file.reload().expect("nothing is told twice");
        file.sync().expect("nothing is missing");
        drop(file);
        assert!(device.0.lock().unwrap().current[..8 * PAGE] == others, "through: {through}");
    }
}

/// The descriptor is closed when the file is: later, it would take other locks of the process with it.
#[test]
fn nobody_has_the_backing_when_a_file_is_closed() {
    let device = device(23, 96);
    let cache = cache(false);
    for turn in 0..300 {
        let file = open(&cache, &device);
        file.prefetch(0..96 * PAGE as u64);
        if turn % 2 == 0 {
            file.read_at(&mut [0; 8 * PAGE], 0).expect("reads");
        }
        drop(file);
        assert_eq!(std::sync::Arc::strong_count(&device.0), 1, "turn {turn}");
    }
}

/// A device whose writes a signal interrupts, every other one.
struct Interrupted(Device, AtomicU32);

impl Backing for Interrupted {
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.0.read(into, offset)
    }
    fn write(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        match self.1.fetch_add(1, Ordering::SeqCst) % 2 {
            0 => Err(io::ErrorKind::Interrupted.into()),
            _ => self.0.write(from, offset),
        }
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }
}

#[test]
fn a_signal_is_no_refusal() {
    let device = device(24, 96);
    let file = cache(true).attach(Box::new(Interrupted(device.clone(), AtomicU32::new(0)))).expect("opens");
    file.write_at(&[1; PAGE], 0).expect("stays in memory");
    file.sync().expect("nothing was refused");
    assert_eq!(device.0.lock().unwrap().durable[0], 1);
}
