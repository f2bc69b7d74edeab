//! Each call that the cache makes of what is below fails once, or falls short. What a sync has acknowledged is there.
//! What was told as failed may be tried again, and the sync after that makes all of it durable.

use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::device::{Device, device};
use crate::common::*;
use refault_cache::{Backing, CacheOptions, CachedFile, PageCache, WriteBack};

const PAGES: usize = 40;

/// What becomes of the call whose turn it is.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Number(i32),
    /// A read or write transfers a part.
    Short,
}

/// A device, of whose calls one fails.
struct Once {
    device: Device,
    calls: Arc<AtomicU64>,
    turn: u64,
    fault: Fault,
}

impl Once {
    fn strikes(&self) -> io::Result<bool> {
        match (self.calls.fetch_add(1, Ordering::Relaxed) == self.turn, self.fault) {
            (true, Fault::Number(number)) => Err(io::Error::from_raw_os_error(number)),
            (is_it, _) => Ok(is_it),
        }
    }
}

impl Backing for Once {
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        match self.strikes()? {
            true => self.device.read(&mut [IoSliceMut::new(&mut into[0][..PAGE / 2])], offset),
            false => self.device.read(into, offset),
        }
    }

    fn write(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let half = from[0].len() / 2;
        match self.strikes()? {
            true if half > 0 => self.device.write(&[IoSlice::new(&from[0][..half])], offset),
            _ => self.device.write(from, offset),
        }
    }

    fn takes_any_bytes(&self) -> bool {
        self.device.takes_any_bytes()
    }

    fn lengthen(&self, range: Range<u64>) -> io::Result<()> {
        self.strikes()?;
        self.device.lengthen(range)
    }

    fn sync(&self) -> io::Result<()> {
        self.strikes()?;
        self.device.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.strikes()?;
        self.device.len()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.strikes()?;
        self.device.set_len(bytes)
    }
}

/// Writes again until it is told that it went well; what was refused may be there in part meanwhile.
fn insist<T, E: std::fmt::Display>(mut call: impl FnMut() -> Result<T, E>) -> T {
    match call() {
        Ok(value) => value,
        Err(_) => call().unwrap_or_else(|error| panic!("one call alone fails: {error}")),
    }
}

/// The device has durably what was written.
fn is_durable(device: &Device, model: &[u8], what: &str) {
    let medium = device.0.lock().unwrap();
    let at = medium.durable.iter().zip(model).position(|(found, expected)| found != expected);
    assert!(at.is_none() && medium.durable.len() == model.len(), "{what}: byte {at:?}, {} bytes", medium.durable.len());
}

/// Syncs; what the device has lost that had left memory is written anew, as the error says.
fn sync(file: &CachedFile, model: &[u8]) {
    if file.sync().is_err()
        && let Err(error) = file.sync()
    {
        assert!(error.to_string().contains("had left memory"), "one call alone fails: {error}");
        file.write_at(model, 0).expect("the device is well");
        file.sync().expect("the device is well");
    }
}

fn write(file: &CachedFile, model: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    insist(|| file.write_at(bytes, at as u64));
    model.resize(model.len().max(at + bytes.len()), 0);
    model[at..at + bytes.len()].copy_from_slice(bytes);
}

/// The calls that a history makes, of which one fails.
fn history(seed: u64, write_back: bool, turn: u64, fault: Fault) -> u64 {
    let what = format!("{seed} {write_back}: {fault:?} at call {turn}");
    let expire = Duration::from_secs(600);
    let write_back = write_back.then_some(WriteBack { expire, background_ratio: 0.5, ratio: 0.5 });
    let options = CacheOptions {
        memory: 64 * PAGE as u64,
        policy: "lru".into(),
        read_ahead: Some(0),
        write_back,
        ..CacheOptions::default()
    };
    let cache = PageCache::new(&options).expect("a cache");
    let device = device(seed, PAGES);
    let mut model = device.0.lock().unwrap().current.clone();
    let calls = Arc::new(AtomicU64::new(0));
    let below = || Box::new(Once { device: device.clone(), calls: calls.clone(), turn, fault });
    let file = insist(|| cache.attach(below()));
    // Whole pages, parts of one, of several, over the end, and far behind it.
    write(&file, &mut model, 2 * PAGE, &[1; 2 * PAGE]);
    write(&file, &mut model, 5 * PAGE + 100, &[2; 50]);
    write(&file, &mut model, 7 * PAGE - 9, &[3; PAGE + 20]);
    sync(&file, &model);
    is_durable(&device, &model, &what);
    write(&file, &mut model, 5 * PAGE + 300, &[4; 50]);
    write(&file, &mut model, PAGES * PAGE - 10, &[5; 30]);
    write(&file, &mut model, (PAGES + 3) * PAGE + 10, &[6; 3000]);
    let mut seen = vec![0; model.len()];
    assert_eq!(insist(|| file.read_at(&mut seen, 0)), model.len(), "{what}");
    assert!(seen == model, "{what}: a reader sees something else");
    sync(&file, &model);
    is_durable(&device, &model, &what);
    for bytes in [PAGES * PAGE - 700, PAGES * PAGE + 20] {
        insist(|| file.set_len(bytes as u64));
        model.resize(bytes, 0);
    }
    write(&file, &mut model, 100, &[7; 30]);
    insist(|| file.reload());
    assert_eq!(file.len(), model.len() as u64, "{what}");
    sync(&file, &model);
    is_durable(&device, &model, &what);
    drop(file);
    calls.load(Ordering::Relaxed)
}

#[test]
fn each_call_fails_in_turn_and_nothing_that_was_acknowledged_is_lost() {
    let faults = [Fault::Number(libc::EIO), Fault::Number(libc::ENOSPC), Fault::Number(libc::EINTR), Fault::Short];
    // An even device takes whole pages, an odd one any bytes.
    for (seed, write_back) in [(2, false), (2, true), (3, false), (3, true)] {
        let calls = history(seed, write_back, u64::MAX, Fault::Short);
        assert!(calls > 15, "{calls}");
        for turn in 0..calls {
            faults.iter().for_each(|fault| {
                history(seed, write_back, turn, *fault);
            });
        }
    }
}
