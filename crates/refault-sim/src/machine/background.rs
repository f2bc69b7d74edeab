//! kswapd: one thread per node that reclaims until the node is balanced (spec: overview §4.2).
//!
//! Each pass takes effect at once and then its CPU time passes, so that allocations go on between two passes.
//!
//! Kernel: `kswapd`, `balance_pgdat`, `kswapd_shrink_node`, `kswapd_try_to_sleep` in `mm/vmscan.c`.

use refault_core::policy::BackgroundPass;

use super::costs::Work;
use super::pressure::activity;
use super::{Event, Machine, Reclaimer};

/// Priority of a balance attempt's first pass.
const DEFAULT_PRIORITY: u8 = 12;
/// Smallest goal of a pass.
const SWAP_CLUSTER_MAX: u64 = 32;
/// How long a balanced kswapd naps before it sleeps deeply, in nanoseconds.
const NAP: u64 = 100_000_000;

/// How long it waits for writes when it came round to pages in flight again, in nanoseconds. The kernel waits up to
/// 100 ms, and less if writes end.
const WRITES_NAP: u64 = 10_000_000;

/// State of one kswapd.
#[derive(Clone, Debug, Default)]
pub(super) struct Kswapd {
    /// The pass to come; none between balance attempts.
    attempt: Option<Attempt>,
    /// Tasks held back until it makes progress.
    pub throttled: Vec<usize>,
    napping: bool,
    /// Attempts.
    pub pageoutrun: u64,
    /// Passes of all attempts.
    pub passes: u64,
    /// When the last attempt ended.
    ended: Option<u64>,
    /// Time between attempts, nanoseconds.
    pub slept: u64,
    /// Woken or unbalanced again within the nap.
    pub low_wmark_hit_quickly: u64,
    /// Unbalanced again at the end of the nap.
    pub high_wmark_hit_quickly: u64,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    priority: u8,
    reclaimed: u64,
    /// Some pass spared anonymous memory for the sake of cold file pages, in vain.
    cache_trim_failed: bool,
    /// Passes no longer spare it.
    no_cache_trim: bool,
}

impl Attempt {
    fn new(no_cache_trim: bool) -> Attempt {
        Attempt { priority: DEFAULT_PRIORITY, reclaimed: 0, cache_trim_failed: false, no_cache_trim }
    }
}

impl Kswapd {
    /// In the middle of a balance attempt.
    pub fn is_working(&self) -> bool {
        self.attempt.is_some()
    }
}

impl Machine {
    /// An allocation found the node below its low mark.
    pub(super) fn wake_kswapd(&mut self, node: usize, at: u64) {
        if self.memory.nodes[node].is_hopeless() || self.memory.nodes[node].is_balanced() {
            return;
        }
        let thread = self.tasks.len() + node;
        if self.threads[thread].asleep {
            let kswapd = &mut self.kswapds[node];
            if std::mem::take(&mut kswapd.napping) {
                kswapd.low_wmark_hit_quickly += 1;
            }
            self.wake(thread, at);
        }
    }

    /// kswapd has a CPU.
    pub(super) fn run_kswapd(&mut self, cpu: usize, node: usize) {
        let thread = self.tasks.len() + node;
        let now = self.now;
        if self.kswapds[node].attempt.is_none() {
            let state = &mut self.kswapds[node];
            if std::mem::take(&mut state.napping) && !self.memory.nodes[node].is_balanced() {
                state.high_wmark_hit_quickly += 1;
            }
            if self.memory.nodes[node].is_balanced() || self.memory.nodes[node].is_hopeless() {
                self.set_activity(thread, now, activity::RUNNING);
                return self.sleep(cpu, now, u64::MAX, 0);
            }
            let state = &mut self.kswapds[node];
            state.attempt = Some(Attempt::new(false));
            state.pageoutrun += 1;
            state.slept += state.ended.take().map_or(0, |ended| now - ended);
        }
        if self.yield_cpu(cpu, now) {
            return;
        }
        self.set_activity(thread, now, activity::RUNNING | activity::STALLED);
        let mut attempt = self.kswapds[node].attempt.expect("invariant: set above");
        if self.memory.nodes[node].is_balanced() {
            return self.end_attempt(cpu, node, true);
        }
        if attempt.priority == 0 {
            if attempt.reclaimed > 0 {
                return self.end_attempt(cpu, node, false);
            }
            if attempt.no_cache_trim || !attempt.cache_trim_failed {
                self.memory.nodes[node].failures += 1;
                return self.end_attempt(cpu, node, false);
            }
            attempt = Attempt::new(true);
        }
        let goal = self.memory.nodes[node].watermarks.high.max(SWAP_CLUSTER_MAX);
        let root = self.memory.lruvec_of(0, node);
        let before = self.policy.counters().pgsteal;
        self.memory.reference_scope = None;
        self.memory.groups.compute_protection(0);
        let pass = BackgroundPass {
            root,
            goal,
            priority: attempt.priority,
            min_ttl: self.config.min_ttl,
            no_cache_trim: attempt.no_cache_trim,
        };
        let outcome = self.policy.background_pass(&pass, &mut self.memory);
        let mut cost = self.book_reclaim(Reclaimer::Background);
        let waited = self.wait_for_trees(node, cost);
        self.ledgers[Reclaimer::Background as usize].book(Work::Lock, waited);
        cost += waited;
        self.kswapds[node].passes += 1;
        debug_assert!(self.policy.counters().pgsteal >= before);
        attempt.priority = outcome.priority.min(attempt.priority);
        attempt.reclaimed += outcome.reclaimed;
        attempt.cache_trim_failed |= outcome.cache_trim_failed;
        self.after_reclaim(outcome.reclaimed);
        if outcome.reclaimed > 0 {
            self.memory.nodes[node].failures = 0;
            self.release_throttled(node);
        }
        let done = outcome.scanned.max(outcome.reclaimed) >= goal;
        if !done || outcome.reclaimed == 0 {
            attempt.priority -= 1;
        }
        self.kswapds[node].attempt = Some(attempt);
        self.threads[thread].cpu_time += cost;
        if outcome.waits_for_writes && self.memory.writeback > 0 {
            // The write of a page ends sooner, as a rule, and wakes no task here: look again after a tick.
            self.sleep(cpu, now + cost, now + cost + WRITES_NAP, 0);
        } else {
            self.at(now + cost, Event::Cpu(cpu));
        }
        if outcome.starved {
            self.kill_in(0);
        }
    }

    fn end_attempt(&mut self, cpu: usize, node: usize, balanced: bool) {
        let thread = self.tasks.len() + node;
        self.kswapds[node].attempt = None;
        self.kswapds[node].ended = Some(self.now);
        self.release_throttled(node);
        self.policy.background_done(self.memory.lruvec_of(0, node), balanced);
        self.set_activity(thread, self.now, activity::RUNNING);
        if balanced || self.memory.nodes[node].is_hopeless() {
            self.kswapds[node].napping = true;
            return self.sleep(cpu, self.now, self.now + NAP, 0);
        }
        self.kswapds[node].high_wmark_hit_quickly += 1;
        // No progress: another thread has to run before a page can be freed.
        let nap = if self.memory.writeback > 0 { NAP / 10 } else { 1_000 };
        self.sleep(cpu, self.now, self.now + nap, 0);
    }

    fn release_throttled(&mut self, node: usize) {
        for task in std::mem::take(&mut self.kswapds[node].throttled) {
            self.wake(task, self.now);
        }
    }
}
