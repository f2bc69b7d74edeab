//! The work that is measured, over whatever serves it, and the hidden program that lets the kernel's page cache serve it
//! inside a memory cgroup.
//!
//! Every page of the file begins with its number, and every read is compared: a wrong page ends the benchmark.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use refault_pager::Latencies;
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

use crate::pager::load::{cpu_seconds, odd_step};
use crate::random::Random;
use refault_console::{Failure, with_output};

/// Bytes of a read.
pub const PAGE: usize = 4096;

/// The exponent of skewed reads.
const EXPONENT: f64 = 1.2;

/// The exponent of skewed hits: with it caches of objects are compared most.
const HITS_EXPONENT: f64 = 0.9;

/// Pages that a thread draws before its hits and goes through again and again: a draw takes longer than a hit.
const DRAWN_HITS: usize = 1 << 18;

/// Writes of a thread between two of its syncs.
const WRITES_PER_SYNC: u64 = 1000;

/// Hits between two looks at the clock, which takes as long as one.
const HITS_PER_LOOK: u64 = 64;

/// What is done, a page at a time.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Read scattered pages, Zipf(1.2)
    Zipf,
    /// Read all pages alike
    Uniform,
    /// Read twice the memory from beginning to end, again and again, each thread from a place of its own
    Scan,
    /// As zipf, but three in ten are written, in memory first, and each thousand writes are synced
    Mixed,
    /// Copy pages that are all in memory
    Hits,
    /// See such pages where they are (the kernel's are copied)
    Pinned,
    /// As hits, but of half of memory, Zipf(0.9)
    SkewedHits,
    /// As pinned, but of half of memory, Zipf(0.9)
    SkewedPinned,
}

crate::shown_by_name!(Pattern);

impl Pattern {
    /// Numbers of threads with which it is done.
    pub fn threads(self) -> &'static [u32] {
        match self {
            Pattern::Zipf | Pattern::Uniform => &[2],
            Pattern::Mixed => &[1],
            Pattern::Scan | Pattern::Hits | Pattern::Pinned | Pattern::SkewedHits | Pattern::SkewedPinned => &[1, 2],
        }
    }

    /// Pages of the file that are used, of `file` pages, with `memory` pages in memory.
    pub fn pages(self, file: usize, memory: usize) -> usize {
        match self {
            Pattern::Zipf | Pattern::Uniform | Pattern::Mixed => file,
            Pattern::Scan => file.min(2 * memory),
            Pattern::Hits | Pattern::Pinned => file.min(memory / 4),
            Pattern::SkewedHits | Pattern::SkewedPinned => file.min(memory / 2),
        }
    }

    /// Whether all pages that are used are in memory.
    pub fn hits(self) -> bool {
        matches!(self, Pattern::Hits | Pattern::Pinned | Pattern::SkewedHits | Pattern::SkewedPinned)
    }

    /// Whether pages are copied; else they are seen where they are.
    pub fn copies(self) -> bool {
        !matches!(self, Pattern::Pinned | Pattern::SkewedPinned)
    }

    /// The pages of the hits that a thread has, in turn and again and again.
    fn drawn(self, pages: usize, random: &mut Random) -> Vec<u32> {
        let step = odd_step(pages);
        let mut draw = || match self {
            Pattern::SkewedHits | Pattern::SkewedPinned => random.zipf_of(pages, HITS_EXPONENT) * step % pages,
            _ => random.below(pages),
        };
        if self.hits() { (0..DRAWN_HITS).map(|_| draw() as u32).collect() } else { Vec::new() }
    }
}

#[derive(Args, Debug, Clone)]
/// The load of `refault-bench cache`, through the kernel's page cache
pub struct LoadArgs {
    #[arg(long)]
    pub file: PathBuf,
    #[arg(long, value_enum)]
    pub pattern: Pattern,
    /// Pages of the file that are used
    #[arg(long)]
    pub pages: usize,
    #[arg(long)]
    pub threads: u32,
    #[arg(long)]
    pub warm_up: f64,
    #[arg(long)]
    pub seconds: f64,
}

/// What happened in the measured time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// Page reads and writes per second.
    pub operations_per_second: f64,
    /// Pages that were read from the file, of 100 reads and writes. Those that came along count.
    pub pages_read_percent: f64,
    /// Evicted pages that were found before their frame was reused, of 100. None where there is no such thing.
    pub reactivated_percent: Option<f64>,
    /// Processor time of all threads per read or write, microseconds; the load's own included.
    pub cpu_us: f64,
    /// Median time of a read or write, nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile of the same. The thousandth write's includes the sync.
    pub p99_ns: u64,
}

/// What serves the work.
pub trait Served: Sync {
    /// Reads a page, with the help of a buffer or not, and returns the number that it begins with.
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<u64, Failure>;
    /// Writes a page. What serves hits alone is never asked to.
    fn write(&self, _bytes: &[u8], _offset: u64) -> Result<(), Failure> {
        unreachable!("invariant: hits are reads")
    }
    /// Makes durable what was written.
    fn sync(&self) -> Result<(), Failure> {
        unreachable!("invariant: hits are reads")
    }
    /// Pages read from the file so far; and reactivated, where there is such a thing. None, where there is no file.
    fn counts(&self) -> (u64, Option<u64>) {
        (0, None)
    }
}

/// The number that a page in memory begins with, once it is copied into the buffer, or as it is seen.
pub fn number_of(page: &[u8], buffer: &mut [u8], copies: bool) -> u64 {
    if !copies {
        return page_number(page);
    }
    buffer.copy_from_slice(page);
    page_number(buffer)
}

/// The number that a page begins with.
pub fn page_number(page: &[u8]) -> u64 {
    page.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}

/// Reads and writes counted at least: shares of fewer say little.
const MIN_OPERATIONS: u64 = 1000;

const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const DONE: u8 = 2;

/// Does the work in threads. Warms up at least until each thread could have read each page that is used once, and counts
/// at least [`MIN_OPERATIONS`].
pub fn measure(args: &LoadArgs, served: &dyn Served) -> Result<Figures, Failure> {
    let phase = AtomicU8::new(WARMING);
    let done: Vec<AtomicU64> = (0..args.threads.max(1)).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        let start = |number| {
            let (phase, done) = (&phase, &done);
            scope.spawn(move || work(args, served, number, phase, &done[number]))
        };
        let threads: Vec<_> = (0..done.len()).map(start).collect();
        let so_far = || done.iter().map(|done| done.load(Ordering::Relaxed)).sum::<u64>();
        let pause = |seconds, enough: &dyn Fn() -> bool| {
            std::thread::sleep(Duration::from_secs_f64(seconds));
            // A thread that ended has failed.
            while !enough() && !threads.iter().any(|thread| thread.is_finished()) {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        pause(args.warm_up, &|| done.iter().all(|done| done.load(Ordering::Relaxed) >= args.pages as u64));
        let (counts, counted, cpu, start) = (served.counts(), so_far(), cpu_seconds(), Instant::now());
        phase.store(MEASURING, Ordering::Relaxed);
        pause(args.seconds, &|| so_far() >= counted + MIN_OPERATIONS);
        phase.store(DONE, Ordering::Relaxed);
        let operations = (so_far() - counted).max(1) as f64;
        let (passed, cpu, now) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu, served.counts());
        let all = Latencies::default();
        for thread in threads {
            all.add(&thread.join().expect("invariant: the load's threads do not panic")?);
        }
        let percent = |count: u64| 100.0 * count as f64 / operations;
        Ok(Figures {
            operations_per_second: operations / passed,
            pages_read_percent: percent(now.0 - counts.0),
            reactivated_percent: now.1.zip(counts.1).map(|(now, before)| percent(now - before)),
            cpu_us: cpu * 1e6 / operations,
            p50_ns: all.quantile(0.5),
            p99_ns: all.quantile(0.99),
        })
    })
}

/// What one thread does until it is told to end.
fn work(
    args: &LoadArgs,
    served: &dyn Served,
    number: usize,
    phase: &AtomicU8,
    done: &AtomicU64,
) -> Result<Latencies, Failure> {
    let latencies = Latencies::default();
    let mut random = Random::new(number as u64 + 1);
    let (pages, step) = (args.pages, odd_step(args.pages));
    let mut next = number * pages / args.threads.max(1) as usize;
    let drawn = args.pattern.drawn(pages, &mut random);
    let mut buffer = vec![0; PAGE];
    let (mut last, mut operations, mut written) = (Instant::now(), 0, 0);
    let group = if args.pattern.hits() { HITS_PER_LOOK } else { 1 };
    loop {
        next = (next + 1) % pages;
        let page = match args.pattern {
            Pattern::Zipf | Pattern::Mixed => random.zipf_of(pages, EXPONENT) * step % pages,
            Pattern::Uniform => random.below(pages),
            // Once in order, so that all are there.
            pattern if pattern.hits() && operations >= pages as u64 => drawn[operations as usize % DRAWN_HITS] as usize,
            Pattern::Scan | Pattern::Hits | Pattern::Pinned | Pattern::SkewedHits | Pattern::SkewedPinned => next,
        };
        let offset = (page * PAGE) as u64;
        if args.pattern == Pattern::Mixed && random.below(10) < 3 {
            buffer[..8].copy_from_slice(&(page as u64).to_le_bytes());
            served.write(&buffer, offset)?;
            written += 1;
            if written % WRITES_PER_SYNC == 0 {
                served.sync()?;
            }
        } else if served.read(&mut buffer, offset)? != page as u64 {
            return Err(Failure::failed("a wrong page was read", args.file.display(), format!("page {page}")));
        }
        operations += 1;
        if operations % group == 0 {
            // No other thread writes it.
            done.store(operations, Ordering::Relaxed);
            let now = Instant::now();
            match phase.load(Ordering::Relaxed) {
                WARMING => {}
                MEASURING => latencies.record((now - last) / group as u32),
                _ => return Ok(latencies),
            }
            last = now;
        }
    }
}

/// The kernel's page cache.
struct Plain<'a> {
    file: File,
    path: &'a Path,
}

impl Plain<'_> {
    fn failed(&self, error: std::io::Error) -> Failure {
        Failure::failed("the kernel's page cache", self.path.display(), error)
    }
}

impl Served for Plain<'_> {
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<u64, Failure> {
        self.file.read_exact_at(buffer, offset).map_err(|error| self.failed(error))?;
        Ok(page_number(buffer))
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Failure> {
        self.file.write_all_at(bytes, offset).map_err(|error| self.failed(error))
    }

    fn sync(&self) -> Result<(), Failure> {
        self.file.sync_data().map_err(|error| self.failed(error))
    }

    fn counts(&self) -> (u64, Option<u64>) {
        (pages_from_disk(), None)
    }
}

/// Does the work through the kernel's page cache, which is told of reads that are random, and prints the figures.
pub fn run(args: &LoadArgs) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::failed("the kernel's page cache", args.file.display(), error);
    let file = File::options().read(true).write(args.pattern == Pattern::Mixed).open(&args.file).map_err(failed)?;
    if args.pattern != Pattern::Scan {
        fadvise(&file, 0, None, Advice::Random).map_err(|error| failed(error.into()))?;
    }
    let figures = measure(args, &Plain { file, path: &args.file })?;
    with_output(None, |out| {
        serde_json::to_writer(&mut *out, &figures)?;
        writeln!(out)
    })
}

/// Pages that the kernel has read from disks for this process.
pub fn pages_from_disk() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let bytes = text.lines().find_map(|line| line.strip_prefix("read_bytes: ")).and_then(|word| word.parse().ok());
    bytes.unwrap_or(0u64) / PAGE as u64
}

/// Writes a file of numbered pages and takes it out of the kernel's page cache.
pub fn write_file(path: &Path, pages: usize) -> std::io::Result<()> {
    const AT_ONCE: usize = 256;
    let mut file = File::create(path)?;
    let mut bytes = vec![0u8; AT_ONCE * PAGE];
    for first in (0..pages).step_by(AT_ONCE) {
        let count = AT_ONCE.min(pages - first);
        for (place, page) in bytes.chunks_exact_mut(PAGE).enumerate() {
            page[..8].copy_from_slice(&((first + place) as u64).to_le_bytes());
        }
        file.write_all(&bytes[..count * PAGE])?;
    }
    file.sync_all()?;
    forget(path)
}

/// Takes a file out of the kernel's page cache, so that no reader profits from pages charged to others.
pub fn forget(path: &Path) -> std::io::Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}
