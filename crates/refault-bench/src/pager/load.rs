//! The program that is measured: an array of records and threads that touch it. It knows nothing of pagers and runs the
//! same way under the agent, in a memory cgroup, and free.
//!
//! Each 64-byte record is 8 bytes of number, 16 random bytes and 40 bytes that its neighbours share, so pages compress
//! to about half, as tables of records do. Every word can be computed from its place, and every word that is read is
//! compared: a lost write ends the program.
//!
//! Protocol: the line [`READY`] on standard output when the measured time begins, and one JSON line when it is over;
//! then it waits for the end of its standard input, so that its parent can inspect the memory.

use std::io::Write;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use refault_pager::Latencies;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use crate::random::{Random, mix};
use refault_console::Failure;

/// What is said when the measured time begins.
pub const READY: &str = "begins";

const WORDS_A_PAGE: usize = 512;
const WORDS_A_RECORD: usize = 8;

/// How the array is touched.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// 8-byte reads, all places alike.
    Uniform,
    /// Zipf(1.0) over scattered pages, one access in ten a write.
    Zipf,
    /// From the beginning to the end, again and again; an operation is a page.
    Scan,
}

#[derive(Args, Debug)]
/// The load of `refault bench pager`
pub struct LoadArgs {
    #[arg(long, value_enum)]
    pattern: Pattern,
    #[arg(long)]
    bytes: usize,
    #[arg(long, default_value_t = 1)]
    threads: usize,
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Time each operation; otherwise one in 64
    #[arg(long)]
    time_all: bool,
}

/// What one thread did in the measured time.
struct Done {
    operations: u64,
    latencies: Latencies,
}

/// Runs the load.
pub fn run(args: &LoadArgs) -> Result<(), Failure> {
    let pages = (args.bytes / 4096).max(1);
    let mut words = vec![0u64; pages * WORDS_A_PAGE];
    for (index, word) in words.iter_mut().enumerate() {
        *word = word_at(index);
    }
    let parts = words.len() / args.threads.max(1);
    let before = std::sync::Mutex::new(None);
    let begin = Instant::now();
    let warm = begin + Duration::from_secs_f64(args.warm_up);
    let end = warm + Duration::from_secs_f64(args.seconds);
    let shared = Shared { args, warm, end, cpu_before: &before };
    let done: Vec<Done> = std::thread::scope(|scope| {
        // Writers write only their own part; readers read everything of theirs, so no lock is needed.
        let threads: Vec<_> = words
            .chunks_mut(parts)
            .take(args.threads.max(1))
            .enumerate()
            .map(|(number, part)| scope.spawn(move || shared.touch(number as u64, number * parts, part)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("invariant: a load that reads wrong words ends"))
            .collect()
    });
    let cpu = cpu_seconds() - before.lock().expect("invariant: nothing panics under this lock").unwrap_or(0.0);
    let all = Latencies::default();
    for one in &done {
        all.add(&one.latencies);
    }
    let line = json!({
        "operations": done.iter().map(|one| one.operations).sum::<u64>(),
        "seconds": args.seconds,
        "cpu_seconds": cpu,
        "latencies_ns": all.counts().buckets().collect::<Vec<_>>(),
        "max_ns": all.maximum(),
    });
    println!("{line}");
    let _ = std::io::stdout().flush();
    let mut rest = String::new();
    let _ = std::io::stdin().read_line(&mut rest);
    Ok(())
}

#[derive(Clone, Copy)]
struct Shared<'a> {
    args: &'a LoadArgs,
    warm: Instant,
    end: Instant,
    cpu_before: &'a std::sync::Mutex<Option<f64>>,
}

impl Shared<'_> {
    fn touch(&self, number: u64, first: usize, part: &mut [u64]) -> Done {
        let mut random = Random::new(number + 1);
        let mut done = Done { operations: 0, latencies: Latencies::default() };
        let pages = part.len() / WORDS_A_PAGE;
        // Ranks are spread over the pages by a multiplication that visits each page once.
        let spread = odd_step(pages);
        let mut next = 0;
        let mut measured = false;
        let mut last = Instant::now();
        loop {
            // One timestamp an operation, or one for 64 operations.
            let together = if self.args.time_all { 1 } else { 64 };
            for _ in 0..together {
                match self.args.pattern {
                    Pattern::Uniform => read(part, first, random.below(part.len())),
                    Pattern::Zipf => {
                        let page = random.zipf(pages) * spread % pages;
                        let at = page * WORDS_A_PAGE + random.below(WORDS_A_PAGE);
                        if random.below(10) == 0 {
                            part[at] = std::hint::black_box(word_at(first + at));
                        } else {
                            read(part, first, at);
                        }
                    }
                    Pattern::Scan => {
                        let page = &part[next * WORDS_A_PAGE..(next + 1) * WORDS_A_PAGE];
                        let sum = page.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
                        std::hint::black_box(sum);
                        read(part, first, next * WORDS_A_PAGE + random.below(WORDS_A_PAGE));
                        next = (next + 1) % pages;
                    }
                }
            }
            let now = Instant::now();
            if measured {
                done.operations += together;
                done.latencies.record((now - last) / together as u32);
                if now >= self.end {
                    return done;
                }
            } else if now >= self.warm {
                measured = true;
                let mut before = self.cpu_before.lock().expect("invariant: nothing panics under this lock");
                if before.is_none() {
                    println!("{READY}");
                    *before = Some(cpu_seconds());
                }
            }
            last = now;
        }
    }
}

/// Reads a word and ends the program if it is wrong.
fn read(part: &[u64], first: usize, at: usize) {
    let found = std::hint::black_box(part[at]);
    if found != word_at(first + at) {
        eprintln!("refault: word {} is {found:#x}: memory was lost", first + at);
        std::process::abort();
    }
}

/// The word that belongs at a place.
fn word_at(index: usize) -> u64 {
    let record = (index / WORDS_A_RECORD) as u64;
    match index % WORDS_A_RECORD {
        0 => record,
        field @ (1 | 2) => mix(record << 2 | field as u64),
        field => 0x2020_6e6f_6d6d_6f63 + field as u64,
    }
}

/// An odd number near the golden section of `pages` that shares no factor with it.
pub fn odd_step(pages: usize) -> usize {
    let gcd = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let mut step = (pages as f64 * 0.618) as usize | 1;
    while gcd(step, pages) != 1 {
        step += 2;
    }
    step
}

/// Seconds of processor time of this process, all threads.
fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_visit_every_page() {
        for pages in [1usize, 2, 96, 131_072] {
            let step = odd_step(pages);
            let seen: std::collections::HashSet<_> = (0..pages).map(|rank| rank * step % pages).collect();
            assert_eq!(seen.len(), pages);
        }
    }
}
