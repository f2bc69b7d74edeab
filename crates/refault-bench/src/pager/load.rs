//! The program that is measured: an array of records and threads that touch it. It knows nothing of pagers and runs the
//! same way under the agent, in a memory cgroup, and free.
//!
//! Each 64-byte record is 8 bytes of number, 16 random bytes and 40 bytes that its neighbours share. So pages compress
//! to about half, as tables of records do; the B-tree's records are three of them and 8 bytes more. Every word can be
//! computed from its place, and every word that is read is compared: a lost write ends the program. All threads touch
//! all pages.
//!
//! Protocol: the line [`READY`] on standard output when the measured time begins, and one JSON line when it is over;
//! then it waits for the end of its standard input, so that its parent can inspect the memory.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use refault_pager::Latencies;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use crate::random::{Random, mix};
use refault_console::Failure;

/// What is said when the measured time begins.
pub const READY: &str = "begins";

const WORDS_PER_PAGE: usize = 512;
const WORDS_PER_RECORD: usize = 8;
/// Of a value in the B-tree: 200 bytes.
const WORDS_PER_VALUE: usize = 25;

/// How the array is touched.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// 8-byte reads, all places alike.
    Uniform,
    /// Zipf(1.0) over scattered pages: reads of whole records, one access in ten the write of a word.
    Zipf,
    /// From the beginning to the end, again and again; an operation is a page.
    Scan,
    /// Zipf(1.0) over scattered keys of a B-tree with 200-byte values: look-ups, one in ten a change.
    Btree,
}

#[derive(Args, Debug)]
/// The load of `refault-bench pager`
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
    if args.pattern == Pattern::Btree {
        let mut tree = Tree::new(args.bytes);
        return report(args, |clock| vec![clock.run(1, |random| tree.touch(random))]);
    }
    let pages = (args.bytes / 4096).max(1);
    let words: Vec<AtomicU64> = (0..pages * WORDS_PER_PAGE).map(|index| AtomicU64::new(word_at(index))).collect();
    report(args, |clock| {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..args.threads.max(1))
                .map(|number| {
                    let mut array = Array::new(&words, args.pattern);
                    scope.spawn(move || clock.run(number as u64 + 1, |random| array.touch(random)))
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("invariant: a load that reads wrong words ends"))
                .collect()
        })
    })
}

/// Runs all threads and says what they did.
fn report(args: &LoadArgs, all: impl FnOnce(Clock) -> Vec<Done>) -> Result<(), Failure> {
    let before = std::sync::Mutex::new(None);
    let warm = Instant::now() + Duration::from_secs_f64(args.warm_up);
    let end = warm + Duration::from_secs_f64(args.seconds);
    let done = all(Clock { args, warm, end, cpu_before: &before });
    let cpu = cpu_seconds() - before.lock().expect("invariant: nothing panics under this lock").unwrap_or(0.0);
    let latencies = Latencies::default();
    for one in &done {
        latencies.add(&one.latencies);
    }
    let line = json!({
        "operations": done.iter().map(|one| one.operations).sum::<u64>(),
        "seconds": args.seconds,
        "cpu_seconds": cpu,
        "latencies_ns": latencies.counts().buckets().collect::<Vec<_>>(),
        "max_ns": latencies.maximum(),
    });
    say(&line);
    let mut rest = String::new();
    let _ = std::io::stdin().read_line(&mut rest);
    Ok(())
}

/// Says one thing to the process that started this one. If that is gone, this process ends.
fn say(line: &dyn std::fmt::Display) {
    let mut output = std::io::stdout().lock();
    if writeln!(output, "{line}").and_then(|()| output.flush()).is_err() {
        std::process::exit(1);
    }
}

/// When to count.
#[derive(Clone, Copy)]
struct Clock<'a> {
    args: &'a LoadArgs,
    warm: Instant,
    end: Instant,
    cpu_before: &'a std::sync::Mutex<Option<f64>>,
}

impl Clock<'_> {
    /// Does operations until the end.
    fn run(&self, seed: u64, mut operation: impl FnMut(&mut Random)) -> Done {
        let mut random = Random::new(seed);
        let mut done = Done { operations: 0, latencies: Latencies::default() };
        let mut measured = false;
        let mut last = Instant::now();
        // One timestamp an operation, or one for 64 operations.
        let together = if self.args.time_all { 1 } else { 64 };
        loop {
            for _ in 0..together {
                operation(&mut random);
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
                    say(&READY);
                    *before = Some(cpu_seconds());
                }
            }
            last = now;
        }
    }
}

/// The array, as one thread touches it.
struct Array<'a> {
    words: &'a [AtomicU64],
    pattern: Pattern,
    pages: usize,
    /// Ranks are spread over the pages by a multiplication that visits each page once.
    step: usize,
    next: usize,
}

impl<'a> Array<'a> {
    fn new(words: &'a [AtomicU64], pattern: Pattern) -> Array<'a> {
        let pages = words.len() / WORDS_PER_PAGE;
        Array { words, pattern, pages, step: odd_step(pages), next: 0 }
    }

    fn touch(&mut self, random: &mut Random) {
        let words = self.words;
        match self.pattern {
            Pattern::Zipf => {
                let page = random.zipf(self.pages) * self.step % self.pages;
                let at = page * WORDS_PER_PAGE + random.below(WORDS_PER_PAGE);
                if random.below(10) == 0 {
                    words[at].store(std::hint::black_box(word_at(at)), Ordering::Relaxed);
                } else {
                    let record = at / WORDS_PER_RECORD * WORDS_PER_RECORD;
                    (record..record + WORDS_PER_RECORD).for_each(|at| read(words, at));
                }
            }
            Pattern::Scan => {
                let page = self.next * WORDS_PER_PAGE;
                let sum = words[page..page + WORDS_PER_PAGE]
                    .iter()
                    .fold(0u64, |sum, word| sum.wrapping_add(word.load(Ordering::Relaxed)));
                std::hint::black_box(sum);
                read(words, page + random.below(WORDS_PER_PAGE));
                self.next = (self.next + 1) % self.pages;
            }
            Pattern::Uniform | Pattern::Btree => read(words, random.below(words.len())),
        }
    }
}

/// A B-tree of records.
struct Tree {
    records: BTreeMap<u64, [u64; WORDS_PER_VALUE]>,
    step: usize,
}

impl Tree {
    /// `bytes` bytes of records, put in in scattered order, so that its nodes lie where they were split.
    fn new(bytes: usize) -> Tree {
        let count = (bytes / (WORDS_PER_VALUE * 8)).max(1);
        let step = odd_step(count);
        let records = (0..count).map(|rank| (rank * step % count) as u64).map(|key| (key, value_of(key))).fold(
            BTreeMap::new(),
            |mut tree, (key, value)| {
                tree.insert(key, value);
                tree
            },
        );
        Tree { records, step }
    }

    fn touch(&mut self, random: &mut Random) {
        let count = self.records.len();
        let key = (random.zipf(count) * self.step % count) as u64;
        let value = self.records.get_mut(&key).expect("invariant: every key below the count was put in");
        if *value != value_of(key) {
            eprintln!("refault: the record of key {key} is wrong: memory was lost");
            std::process::abort();
        }
        if random.below(10) == 0 {
            *value = std::hint::black_box(value_of(key));
        }
    }
}

/// The value that belongs to a key.
fn value_of(key: u64) -> [u64; WORDS_PER_VALUE] {
    std::array::from_fn(|index| word_at(key as usize * 4 * WORDS_PER_RECORD + index))
}

/// Reads a word and ends the program if it is wrong.
fn read(words: &[AtomicU64], at: usize) {
    let found = words[at].load(Ordering::Relaxed);
    if found != word_at(at) {
        eprintln!("refault: word {at} is {found:#x}: memory was lost");
        std::process::abort();
    }
}

/// The word that belongs at a place.
fn word_at(index: usize) -> u64 {
    let record = (index / WORDS_PER_RECORD) as u64;
    match index % WORDS_PER_RECORD {
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
pub fn cpu_seconds() -> f64 {
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
