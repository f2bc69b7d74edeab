//! From the wish for a frame to a charged frame: watermarks, direct reclaim, limits (spec: overview §4, §4.1, §4.3).
//!
//! Kernel: `__alloc_pages_slowpath`, `__alloc_pages_direct_reclaim`, `should_reclaim_retry` in `mm/page_alloc.c`;
//! `try_to_free_pages`, `throttle_direct_reclaim` in `mm/vmscan.c`; `try_charge_memcg`, `mem_cgroup_handle_over_high`
//! in `mm/memcontrol.c`.

use refault_core::policy::room::MAX_FRUITLESS_CALLS;
use refault_core::policy::{ProactiveRequest, ReclaimRequest};
use refault_core::{LruvecId, PageId};

use super::fault::{Outcome, Refused, Wait};
use super::group::GroupId;
use super::writeback::Due;
use super::{Machine, Reclaimer};

/// How long a task waits when reclaim freed nothing but writes are on their way, in nanoseconds.
const WRITE_WAIT: u64 = 1_000_000;
/// How long a task is held back at most while background reclaim works below half of `min`, in nanoseconds.
const THROTTLE: u64 = 1_000_000_000;
/// Reclaims in one go before other events get their turn.
const RECLAIMS_AT_ONCE: u32 = 8;
/// Longest delay of a task whose group exceeds `high`, in nanoseconds.
const MAX_HIGH_DELAY: u64 = 2_000_000_000;
/// Delays up to this are not worth sleeping for, in nanoseconds.
const MIN_HIGH_DELAY: u64 = 10_000_000;
/// One tick of 250 in a second, in nanoseconds: what a reclaimer sleeps because of congestion.
const TICK: u64 = 4_000_000;
/// Pages that one charge beyond `high` counts for.
const HIGH_BATCH: u64 = 64;

impl Machine {
    /// Finds a frame and charges it to `group`. The node it is on.
    pub(super) fn charge(
        &mut self,
        id: usize,
        group: GroupId,
        speculative: bool,
        incoming: PageId,
        outcome: &mut Outcome,
    ) -> Result<usize, Refused> {
        let node = self.find_frame(id, speculative, incoming, outcome)?;
        let mut tries = 0;
        while let Some(full) = self.memory.groups.over_limit(group, 1) {
            self.memory.groups.count_event(full, |events| events.max += 1);
            self.memory.counters.limit_hits += 1;
            let freed = self.reclaim_group(full, 1, incoming, outcome);
            if freed > 0 || self.memory.groups.over_limit(full, 1).is_none() {
                continue;
            }
            if speculative {
                return Err(Refused::Later);
            }
            if self.memory.writeback > 0 {
                self.wait_for_writes(outcome);
                return Err(Refused::Later);
            }
            tries += 1;
            if tries > MAX_FRUITLESS_CALLS {
                tries = 0;
                self.memory.groups.count_event(full, |events| events.oom += 1);
                self.kill_in(full);
                if self.is_killed(id) {
                    return Err(Refused::Killed);
                }
            }
        }
        self.memory.groups.charge(group, 1);
        if let Some(over) = self.memory.groups.over_high(group) {
            self.work_off_high(id, over, incoming, outcome);
        }
        Ok(node)
    }

    /// A node with a free frame above its minimum.
    fn find_frame(
        &mut self,
        id: usize,
        speculative: bool,
        incoming: PageId,
        outcome: &mut Outcome,
    ) -> Result<usize, Refused> {
        let home = self.tasks[id].node;
        if self.memory.nodes[home].free > self.memory.nodes[home].watermarks.low {
            return Ok(home);
        }
        let nodes = self.memory.nodes.len();
        let order = (0..nodes).map(|i| (home + i) % nodes);
        if let Some(node) = order.clone().find(|n| self.memory.nodes[*n].free > self.memory.nodes[*n].watermarks.low) {
            return Ok(node);
        }
        for node in order.clone() {
            self.wake_kswapd(node, self.now);
        }
        for _ in 0..RECLAIMS_AT_ONCE {
            let usable = |n: &usize| self.memory.nodes[*n].free > self.memory.nodes[*n].watermarks.min;
            if let Some(node) = order.clone().find(usable) {
                self.tasks[id].tries = 0;
                return Ok(node);
            }
            if self.throttle_direct(id, outcome) {
                return Err(Refused::Later);
            }
            let freed = self.direct_reclaim(home, incoming, outcome);
            if freed == 0 {
                if speculative {
                    return Err(Refused::Later);
                }
                if self.memory.writeback > 0 {
                    self.wait_for_writes(outcome);
                    return Err(Refused::Later);
                }
                self.tasks[id].tries += 1;
                if self.tasks[id].tries > MAX_FRUITLESS_CALLS {
                    self.tasks[id].tries = 0;
                    self.kill_in(0);
                    if self.is_killed(id) {
                        return Err(Refused::Killed);
                    }
                }
            }
        }
        // Frames are freed but do not suffice: let time pass and try again.
        if outcome.stall == 0 {
            self.wait_for_writes(outcome);
        }
        Err(Refused::Later)
    }

    /// While nearly nothing is free and kswapd is at work, allocating tasks wait for it (spec: overview §4.1).
    fn throttle_direct(&mut self, id: usize, outcome: &mut Outcome) -> bool {
        let home = self.tasks[id].node;
        let node = &self.memory.nodes[home];
        let below_half = node.free <= node.watermarks.min / 2;
        if outcome.stall > 0 || node.is_hopeless() || !below_half || !self.kswapds[home].is_working() {
            return false;
        }
        self.statistics.direct_throttles += 1;
        self.kswapds[home].throttled.push(id);
        outcome.wait = Some(Wait { until: self.now + outcome.cpu + outcome.stall + THROTTLE, stalled: true });
        true
    }

    /// The allocating task reclaims for itself.
    pub(super) fn direct_reclaim(&mut self, home: usize, incoming: PageId, outcome: &mut Outcome) -> u64 {
        let nodes = self.memory.nodes.len();
        let roots: Vec<_> = (0..nodes).map(|i| self.memory.lruvec_of(0, (home + i) % nodes)).collect();
        self.statistics.allocstall += 1;
        self.memory.reference_scope = None;
        self.memory.groups.compute_protection(0);
        let freed = u64::from(self.policy.reclaim_nodes(&roots, Some(incoming), &mut self.memory));
        let cost = self.book_reclaim(Reclaimer::Direct);
        if self.now >= self.config.latencies_from {
            self.latencies.direct.record(cost);
        }
        self.after_reclaim(freed);
        outcome.stall += cost;
        self.wait_for_congestion(outcome);
        freed
    }

    /// Reclaims at least `pages` from a group and all below it, for its limit.
    pub(super) fn reclaim_group(&mut self, group: GroupId, pages: u32, incoming: PageId, outcome: &mut Outcome) -> u64 {
        let goal = self.policy.reclaim_batch().max(pages);
        self.reclaim_subtree(group, goal, outcome, |machine, target| {
            let request = ReclaimRequest { target, goal, incoming: Some(incoming) };
            machine.policy.reclaim(&request, &mut machine.memory)
        })
    }

    /// The same because a user asked for it.
    pub(super) fn reclaim_proactively(&mut self, group: GroupId, pages: u32, swappiness: Option<u16>) -> u64 {
        let goal = self.policy.reclaim_batch().max(pages);
        self.reclaim_subtree(group, goal, &mut Outcome::default(), |machine, target| {
            let request = ProactiveRequest { target, goal, swappiness };
            machine.policy.reclaim_proactively(&request, &mut machine.memory)
        })
    }

    fn reclaim_subtree(
        &mut self,
        group: GroupId,
        goal: u32,
        outcome: &mut Outcome,
        reclaim: impl Fn(&mut Machine, LruvecId) -> u32,
    ) -> u64 {
        self.memory.reference_scope = Some(group);
        self.memory.groups.compute_protection(group);
        let mut freed = 0;
        for node in 0..self.memory.nodes.len() {
            let target = self.memory.lruvec_of(group, node);
            freed += u64::from(reclaim(self, target));
            if freed >= u64::from(goal) {
                break;
            }
        }
        self.memory.reference_scope = None;
        let cost = self.book_reclaim(Reclaimer::Limit);
        if self.now >= self.config.latencies_from {
            self.latencies.limit.record(cost);
        }
        self.after_reclaim(freed);
        outcome.stall += cost;
        self.wait_for_congestion(outcome);
        freed
    }

    /// Reclaim slept because what it met waits for the device.
    fn wait_for_congestion(&mut self, outcome: &mut Outcome) {
        let ticks = std::mem::take(&mut self.memory.congestion_ticks);
        if ticks > 0 && outcome.wait.is_none() {
            let until = self.now + outcome.cpu + outcome.stall + ticks * TICK;
            outcome.wait = Some(Wait { until, stalled: true });
        }
    }

    /// Freed pages give a hopeless node another chance, no matter which task freed them; flushers that reclaim woke
    /// begin to write.
    pub(super) fn after_reclaim(&mut self, freed: u64) {
        if std::mem::take(&mut self.memory.flushers_woken) {
            self.flush(Due::AllDirty);
        }
        if freed > 0 {
            self.memory.nodes.iter_mut().for_each(|node| node.failures = 0);
        }
    }

    fn wait_for_writes(&mut self, outcome: &mut Outcome) {
        outcome.wait = Some(Wait { until: self.now + outcome.cpu + outcome.stall + WRITE_WAIT, stalled: true });
    }

    /// Reclaims what a group has beyond `high`, and delays the task (spec: overview §4.3, "high").
    fn work_off_high(&mut self, id: usize, over: GroupId, incoming: PageId, outcome: &mut Outcome) {
        self.tasks[id].over_high += 1;
        if self.tasks[id].over_high < HIGH_BATCH {
            return;
        }
        let pages = std::mem::take(&mut self.tasks[id].over_high);
        self.memory.groups.count_event(over, |events| events.high += 1);
        self.reclaim_group(over, pages as u32, incoming, outcome);
        let group = &self.memory.groups[over];
        let (usage, high) = (group.usage, group.limits.high.max(1));
        if usage <= high {
            return;
        }
        let excess = (u128::from(usage - high) << 20) / u128::from(high);
        // One second's worth, in nanoseconds, times the square of the excess.
        let delay = ((1_000_000_000u128 * excess * excess) >> 34) * u128::from(pages) / u128::from(HIGH_BATCH);
        let delay = delay.min(u128::from(MAX_HIGH_DELAY)) as u64;
        if delay > MIN_HIGH_DELAY && outcome.wait.is_none() {
            let from = self.now + outcome.cpu + outcome.stall;
            outcome.wait = Some(Wait { until: from + delay, stalled: true });
        }
    }
}
