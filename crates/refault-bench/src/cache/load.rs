//! The reads that are measured, over whatever serves them, and the hidden program that lets the kernel's page cache
//! serve them inside a memory cgroup.
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
use serde::{Deserialize, Serialize};

use crate::pager::load::odd_step;
use crate::random::Random;
use refault_console::Failure;

/// Bytes of a read.
pub const PAGE: usize = 4096;

/// How the file is read, a page at a time.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Zipf(1.0) over scattered pages
    Zipf,
    /// All pages alike
    Uniform,
    /// From beginning to end, again and again
    Scan,
}

crate::shown_by_name!(Pattern);

#[derive(Args, Debug, Clone)]
/// The load of `refault bench cache`, read through the kernel's page cache
pub struct LoadArgs {
    #[arg(long)]
    pub file: PathBuf,
    #[arg(long, value_enum)]
    pub pattern: Pattern,
    #[arg(long)]
    pub threads: usize,
    #[arg(long)]
    pub warm_up: f64,
    #[arg(long)]
    pub seconds: f64,
}

/// What happened in the measured time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// Page reads per second.
    pub operations_per_second: f64,
    /// Pages that were read from the file, of 100 reads. Those that came along count.
    pub pages_read_percent: f64,
    /// Evicted pages that were found before their frame was reused, of 100 reads. None where there is no such thing.
    pub reactivated_percent: Option<f64>,
    /// Median time of a read, nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile of the same.
    pub p99_ns: u64,
}

/// Fills a page from an offset.
pub type ReadPage<'a> = dyn Fn(&mut [u8], u64) -> Result<(), Failure> + Sync + 'a;

/// Reads that are counted at least: shares of fewer say little.
const MIN_READS: u64 = 1000;

/// Reads pages in threads. `read` fills a page; `counts` says how many pages were read from the file and reactivated so
/// far. Where reads are slow it warms up until as many pages were read as the file has, and counts at least
/// [`MIN_READS`].
pub fn measure(
    args: &LoadArgs,
    pages: usize,
    read: &ReadPage<'_>,
    counts: &dyn Fn() -> (u64, Option<u64>),
) -> Result<Figures, Failure> {
    const WARMING: u8 = 0;
    const MEASURING: u8 = 1;
    const DONE: u8 = 2;
    let phase = AtomicU8::new(WARMING);
    let reads: Vec<AtomicU64> = (0..args.threads.max(1)).map(|_| AtomicU64::new(0)).collect();
    let work = |number: usize| -> Result<Latencies, Failure> {
        let latencies = Latencies::default();
        let mut random = Random::new(number as u64 + 1);
        let mut next = number * pages / args.threads.max(1);
        let step = odd_step(pages);
        let mut buffer = vec![0; PAGE];
        let mut last = Instant::now();
        loop {
            let page = match args.pattern {
                Pattern::Zipf => random.zipf(pages) * step % pages,
                Pattern::Uniform => random.below(pages),
                Pattern::Scan => {
                    next = (next + 1) % pages;
                    next
                }
            };
            read(&mut buffer, (page * PAGE) as u64)?;
            if buffer[..8] != (page as u64).to_le_bytes() {
                return Err(Failure::failed("a wrong page was read", args.file.display(), format!("page {page}")));
            }
            // No other thread writes it.
            reads[number].store(reads[number].load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            let now = Instant::now();
            match phase.load(Ordering::Relaxed) {
                WARMING => {}
                MEASURING => latencies.record(now - last),
                _ => return Ok(latencies),
            }
            last = now;
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..reads.len()).map(|number| scope.spawn(move || work(number))).collect();
        let all_reads = || reads.iter().map(|reads| reads.load(Ordering::Relaxed)).sum::<u64>();
        let pause = |seconds, least| {
            let end = all_reads() + least;
            std::thread::sleep(Duration::from_secs_f64(seconds));
            // A thread that ended has failed.
            while all_reads() < end && !threads.iter().any(|thread| thread.is_finished()) {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        pause(args.warm_up, pages as u64);
        let (before, start) = (counts(), Instant::now());
        phase.store(MEASURING, Ordering::Relaxed);
        pause(args.seconds, MIN_READS);
        phase.store(DONE, Ordering::Relaxed);
        let (after, passed) = (counts(), start.elapsed().as_secs_f64());
        let all = Latencies::default();
        for thread in threads {
            all.add(&thread.join().expect("invariant: readers do not panic")?);
        }
        let operations = all.count().max(1) as f64;
        let percent = |count: u64| 100.0 * count as f64 / operations;
        Ok(Figures {
            operations_per_second: operations / passed,
            pages_read_percent: percent(after.0 - before.0),
            reactivated_percent: after.1.zip(before.1).map(|(after, before)| percent(after - before)),
            p50_ns: all.quantile(0.5),
            p99_ns: all.quantile(0.99),
        })
    })
}

/// Reads through the kernel's page cache and prints the figures.
pub fn run(args: &LoadArgs) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::failed("reading", args.file.display(), error);
    let file = File::open(&args.file).map_err(failed)?;
    let pages = file.metadata().map_err(failed)?.len() as usize / PAGE;
    let read = |buffer: &mut [u8], offset| file.read_exact_at(buffer, offset).map_err(failed);
    let figures = measure(args, pages, &read, &|| (pages_from_disk(), None))?;
    serde_json::to_writer(std::io::stdout(), &figures).map_err(|error| failed(error.into()))?;
    println!();
    Ok(())
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
    Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?)
}
