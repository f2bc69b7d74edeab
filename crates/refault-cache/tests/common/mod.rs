//! What the tests share: a file in memory that can be slow and fail on purpose, and random numbers.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod counting;
pub mod device;
pub mod mounts;

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use refault_cache::{Backing, CacheOptions, CachedFile, PageCache};
use refault_core::policy::registry::{self, FrontEnd};
pub use refault_testing::Random;

/// Every policy that a page cache can run.
pub fn policies() -> impl Iterator<Item = &'static str> {
    registry::all(FrontEnd::PageCache).map(|spec| spec.entry.name)
}

pub const PAGE: usize = 4096;
pub const KIB: u64 = 1024;

/// A file in memory. Clones are the same file.
#[derive(Clone, Default)]
pub struct Memory {
    pub bytes: Arc<Mutex<Vec<u8>>>,
    pub faults: Arc<Faults>,
    pub exact: bool,
}

/// A file that takes no memory: what reads bring is made up, and what is written is forgotten.
pub struct MadeUp<F> {
    pub pages: u64,
    /// Fills the buffers of a read at an offset.
    pub fill: F,
}

impl<F: Fn(&mut [IoSliceMut<'_>], u64) + Send + Sync> Backing for MadeUp<F> {
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        (self.fill)(into, offset);
        Ok(into.iter().map(|slice| slice.len()).sum())
    }

    fn write(&self, from: &[IoSlice<'_>], _: u64) -> io::Result<usize> {
        Ok(from.iter().map(|slice| slice.len()).sum())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.pages * PAGE as u64)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Faults: each field says in how many calls one goes wrong (0: none).
#[derive(Default)]
pub struct Faults {
    pub calls: AtomicU64,
    pub failing_reads: AtomicU64,
    pub failing_writes: AtomicU64,
    pub short: AtomicU64,
    /// The error of a call that wrote a part before.
    pub torn_writes: AtomicU64,
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    /// Microseconds that a call takes.
    pub slow: AtomicU64,
}

impl Faults {
    fn strikes(&self, every: &AtomicU64) -> bool {
        let every = every.load(Ordering::Relaxed);
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        // Scattered, but the same in each run with one thread.
        every != 0 && Random::new(call).next().is_multiple_of(every)
    }
    fn sleep(&self) {
        let micros = self.slow.load(Ordering::Relaxed);
        if micros > 0 {
            std::thread::sleep(std::time::Duration::from_micros(micros));
        }
    }
}

fn broken() -> io::Error {
    io::Error::from_raw_os_error(5)
}

impl Memory {
    pub fn with(bytes: Vec<u8>) -> Memory {
        Memory { bytes: Arc::new(Mutex::new(bytes)), faults: Arc::default(), exact: false }
    }

    /// One that takes bytes at any place.
    pub fn exact(bytes: Vec<u8>) -> Memory {
        Memory { exact: true, ..Memory::with(bytes) }
    }
}

impl Backing for Memory {
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.faults.sleep();
        self.faults.reads.fetch_add(1, Ordering::Relaxed);
        assert!(offset.is_multiple_of(512) && into.iter().all(|slice| slice.as_ptr().addr().is_multiple_of(512)));
        if self.faults.strikes(&self.faults.failing_reads) {
            return Err(broken());
        }
        let short = self.faults.strikes(&self.faults.short);
        let bytes = self.bytes.lock().unwrap();
        let mut at = (offset as usize).min(bytes.len());
        let start = at;
        for slice in into {
            let part = slice.len().min(bytes.len() - at);
            // Short by a part of a sector even.
            let part = if short && part > 700 { part / 2 + 100 } else { part };
            slice[..part].copy_from_slice(&bytes[at..at + part]);
            at += part;
            if part < slice.len() {
                break;
            }
        }
        Ok(at - start)
    }

    fn write(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.faults.sleep();
        self.faults.writes.fetch_add(1, Ordering::Relaxed);
        let in_sectors = offset.is_multiple_of(512) && from.iter().all(|slice| slice.len().is_multiple_of(512));
        assert!(in_sectors || self.exact);
        if self.faults.strikes(&self.faults.failing_writes) {
            return Err(broken());
        }
        let torn = self.faults.strikes(&self.faults.torn_writes);
        let short = self.faults.strikes(&self.faults.short);
        let mut bytes = self.bytes.lock().unwrap();
        let mut at = offset as usize;
        let parts = if torn { from.len() / 2 } else { from.len() };
        for slice in &from[..parts] {
            let end = at + slice.len();
            let size = bytes.len().max(end);
            bytes.resize(size, 0);
            bytes[at..end].copy_from_slice(slice);
            at = end;
            if short {
                break;
            }
        }
        if torn { Err(broken()) } else { Ok(at - offset as usize) }
    }

    fn takes_any_bytes(&self) -> bool {
        self.exact
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.bytes.lock().unwrap().resize(bytes as usize, 0);
        Ok(())
    }
}

pub fn cache(pages: u64, policy: &str, keep_evicted: Option<f64>) -> PageCache {
    compressing_cache(pages, policy, keep_evicted, None)
}

/// A cache of `pages` pages as they are, and `compressed` of all its memory for others.
pub fn compressing_cache(pages: u64, policy: &str, keep_evicted: Option<f64>, compressed: Option<f64>) -> PageCache {
    let memory = ((pages * PAGE as u64) as f64 / (1.0 - compressed.unwrap_or(0.0))).ceil() as u64;
    let options = CacheOptions { memory, policy: policy.into(), keep_evicted, compressed, ..CacheOptions::default() };
    PageCache::new(&options).expect("a cache")
}

/// The byte at a place, if the file reaches there.
pub fn byte(file: &CachedFile, at: u64) -> Option<u8> {
    let mut seen = [0];
    let bytes = file.read_at(&mut seen, at).expect("reads");
    (bytes == 1).then_some(seen[0])
}
