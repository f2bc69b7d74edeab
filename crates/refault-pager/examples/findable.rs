//! What it gains that evicted pages keep their frame until it is needed, and what it costs.
//!
//! `cargo run --release -p refault-pager --example findable [ACCESSES]`: random accesses with a preference (zipf 0.9) to
//! four times the budget, one in ten a write, for shares of the budget from none to half. Each share runs five times in
//! turn; the median is shown. The accessing thread is bound to one processor, where its handler follows it: the scheduler's moods
//! differ by more than what is measured.

use std::time::Instant;

use refault_pager::{Budget, Pager, PagerOptions};

const PAGE: usize = 4096;
const BUDGET: usize = 64 << 20;
const PAGES: usize = 4 * BUDGET / PAGE;
const SHARES: [f64; 5] = [0.0, 0.01, 0.05, 0.1, 0.25];
const POLICIES: [&str; 2] = ["mglru", "clock"];
const REPEATS: usize = 5;

fn main() {
    let accesses: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let order = zipf(accesses);
    println!(
        "{:<8} {:>6} {:>12} {:>12} {:>12} {:>12} {:>14} {:>10}",
        "policy", "share", "ns/access", "read back", "cached", "reactivated", "reactivated, %", "pool, MiB"
    );
    for policy in POLICIES {
        let mut runs = vec![Vec::new(); SHARES.len()];
        for _ in 0..REPEATS {
            for (share, runs) in SHARES.iter().zip(&mut runs) {
                runs.push(run(policy, *share, &order));
            }
        }
        for (share, runs) in SHARES.iter().zip(&mut runs) {
            runs.sort_by(|a, b| a[0].total_cmp(&b[0]));
            let [time, read, cached, reactivated, pool] = runs[REPEATS / 2];
            println!(
                "{policy:<8} {:>5.0}% {time:>12.0} {read:>12.0} {cached:>12.0} {reactivated:>12.0} {:>14.1} {pool:>10.1}",
                share * 100.0,
                100.0 * reactivated / cached.max(1.0)
            );
        }
    }
}

/// Nanoseconds an access; pages read back, cached, reactivated; MiB of compressed pool at the end.
fn run(policy: &str, share: f64, order: &[u32]) -> [f64; 5] {
    let options = PagerOptions { policy: policy.into(), keep_evicted: share, ..PagerOptions::default() };
    let pager = Pager::new(Budget::new(BUDGET as u64), options).expect("a pager");
    // Only now, so that the pager's threads may run elsewhere.
    let all = rustix::thread::sched_getaffinity(None).expect("a set of processors");
    let mut one = rustix::thread::CpuSet::new();
    one.set(0);
    rustix::thread::sched_setaffinity(None, &one).expect("processor 0");
    let mut region = pager.region(PAGES * PAGE).expect("a region");
    for page in 0..PAGES {
        for word in 0..64 {
            region[page * PAGE + word * 64] = (page * 31 + word * 7) as u8;
        }
    }
    let before = pager.report().counters;
    let start = Instant::now();
    let mut sum = 0u64;
    for (number, page) in order.iter().enumerate() {
        let at = *page as usize * PAGE;
        if number % 10 == 0 {
            region[at + 1] = number as u8;
        } else {
            sum += u64::from(region[at]);
        }
    }
    let time = start.elapsed().as_nanos() as f64 / order.len() as f64;
    std::hint::black_box(sum);
    rustix::thread::sched_setaffinity(None, &all).expect("the same processors as before");
    let report = pager.report();
    let counters = report.counters.since(&before);
    let pool = report.store.pool_bytes as f64 / (1 << 20) as f64;
    [time, counters.pswpin as f64, counters.pages_cached as f64, counters.pages_reactivated as f64, pool]
}

/// Page numbers, scattered, with frequencies falling as rank to the power of -0.9.
fn zipf(accesses: usize) -> Vec<u32> {
    let mut sums = Vec::with_capacity(PAGES);
    let mut sum = 0.0;
    for rank in 1..=PAGES {
        sum += (rank as f64).powf(-0.9);
        sums.push(sum);
    }
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    (0..accesses)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let target = (state >> 11) as f64 / (1u64 << 53) as f64 * sum;
            let rank = sums.partition_point(|s| *s < target).min(PAGES - 1);
            (rank * 40_503 % PAGES) as u32
        })
        .collect()
}
