//! The page daemon: what one pass does to the queues, and when the next one comes (spec: freebsd §3).
//!
//! Kernel: `vm_pageout_worker`, `vm_pageout_scan`, `vm_pageout_flush` in `sys/vm/vm_pageout.c`.

use super::laundry::LAUNDRY_WEIGHT;
use super::queues::{ACT_ADVANCE, ACT_DECLINE, ACT_INIT, ACT_MAX, Queue};
use super::{Freebsd, Version};
use crate::memory::{Eviction, IoState, Memory, PageTables, in_use, launder, needs_write};
use crate::page::PageId;

/// Clusters that a first pass writes at most.
const LAUNDER_FIRST: u32 = 32;
/// Clusters that a later pass writes at most.
const LAUNDER_LATER: u32 = 10_000;
/// Mappings after which the walk for references stops.
const MAX_REFERENCES: u32 = 5;
/// Time in which the whole active queue is looked at once without a shortage, in seconds.
const ACTIVE_PERIOD: u64 = 600;

/// What a pass did.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    /// Pages let go.
    freed: u32,
    /// Some page is nearer to going than before.
    progress: bool,
}

/// What the inactive scan leaves to the active scan.
struct InactiveScan {
    freed: u32,
    progress: bool,
    /// Pages that could not go although they should have.
    additional: i64,
}

impl Freebsd {
    /// Fewer frames are available than the daemon rests with.
    pub fn below_min(&self) -> bool {
        self.available() < self.targets.free_min
    }

    /// Faults have to wait.
    pub fn severe(&self) -> bool {
        self.available() < self.targets.free_severe
    }

    /// The daemon is to be woken.
    pub fn paging_needed(&self) -> bool {
        self.available() < self.targets.wakeup_threshold
    }

    /// Frames that the daemon still wants.
    fn paging_target(&self) -> i64 {
        self.targets.free_target as i64 - self.available() as i64
    }

    /// One pass over the queues. Pass 0 is the idle one, which frees nothing; from pass 2 on dirty pages get no second
    /// chance. `elapsed` is the time since the pass before, in nanoseconds (version 10 looks at a share of the active
    /// queue that goes by it). Returns the pages let go.
    pub fn scan<M: Memory>(&mut self, pass: u32, elapsed: u64, memory: &mut M) -> u32 {
        self.vm.page_daemon_wakeups += u64::from(pass > 0);
        self.pass(pass, elapsed, memory).freed
    }

    /// Passes until the daemon would rest: pages were freed and the minimum is reached, or nothing comes of it.
    pub(super) fn run_daemon<M: Memory>(&mut self, memory: &mut M) -> u32 {
        let mut freed = 0;
        for pass in 1.. {
            self.vm.page_daemon_wakeups += 1;
            let done = self.pass(pass, 0, memory);
            freed += done.freed;
            if (freed > 0 && !self.below_min()) || (pass > 1 && !done.progress) {
                break;
            }
        }
        freed
    }

    fn pass<M: Memory>(&mut self, pass: u32, elapsed: u64, memory: &mut M) -> Pass {
        let deficit = if pass > 0 { std::mem::take(&mut self.deficit) as i64 } else { 0 };
        let shortage = match self.params.version {
            _ if pass == 0 => 0,
            Version::V12 => self.controller.output(self.targets.free_target, self.available()) + deficit,
            Version::V10 | Version::V2015 => self.paging_target() + deficit,
        };
        let mut inactive = self.scan_inactive(pass, shortage, memory);
        if self.params.version == Version::V12 {
            self.launderer.freed += u64::from(inactive.freed);
            let missing = shortage - i64::from(inactive.freed);
            if missing > 0 {
                let laundered = self.launder(missing as u64, memory);
                inactive.progress |= laundered.written > 0;
                inactive.freed += laundered.freed;
            }
            self.launder_in_background(elapsed, memory);
        }
        let progress = self.scan_active(pass, elapsed, deficit + inactive.additional, memory);
        Pass { freed: inactive.freed, progress: progress || inactive.progress }
    }

    /// From the oldest inactive page on: activate, write, let go (spec: freebsd §3.1).
    fn scan_inactive<M: Memory>(&mut self, pass: u32, mut shortage: i64, memory: &mut M) -> InactiveScan {
        let mut launder_left = if pass > 1 { LAUNDER_LATER } else { LAUNDER_FIRST };
        let mut scan = InactiveScan { freed: 0, progress: false, additional: 0 };
        let mut visits = self.queues.len(Queue::Inactive);
        let mut next = self.queues.oldest(Queue::Inactive);
        while let Some(page) = next
            && visits > 0
            && shortage > 0
        {
            visits -= 1;
            next = self.queues.next(page);
            self.count_scanned(page);
            let io = memory.io_state(page);
            if io.any(IoState::LOCKED.with(IoState::WRITEBACK)) {
                scan.additional += 1;
                continue;
            }
            let in_use = in_use(memory, page);
            let references = self.take_references(page, in_use, memory);
            if references > 0 {
                scan.progress = true;
                if in_use {
                    self.activate(page);
                    let record = self.queues.record_mut(page);
                    record.act_count = record.act_count.saturating_add(references + ACT_ADVANCE);
                } else {
                    self.queues.requeue(page, Queue::Inactive);
                }
                continue;
            }
            if io.any(IoState::UNEVICTABLE) {
                scan.additional += 1;
                continue;
            }
            let dirty = needs_write(memory, page);
            if dirty && self.params.version == Version::V12 {
                self.queues.requeue(page, Queue::Laundry);
                scan.progress = true;
                continue;
            }
            if dirty && !self.queues.record(page).second_chance && pass < 2 {
                self.queues.record_mut(page).second_chance = true;
                self.queues.requeue(page, Queue::Inactive);
                scan.progress = true;
                continue;
            }
            if dirty && launder_left == 0 {
                continue;
            }
            let written = if dirty { launder(memory, page) } else { None };
            let eviction = match written {
                // The page stays, clean once the write has ended, for a later pass.
                Some(0) => Eviction::Refused,
                Some(_) => Eviction::WriteStarted,
                None => memory.evict(page, crate::Shadow::NONE),
            };
            match eviction {
                Eviction::Freed { .. } => {
                    self.let_go(page);
                    scan.freed += 1;
                }
                Eviction::WriteStarted => {}
                Eviction::Kept => {
                    scan.additional += 1;
                    continue;
                }
                Eviction::Refused => {
                    self.queues.requeue(page, Queue::Inactive);
                    continue;
                }
            }
            scan.progress = true;
            shortage -= 1;
            launder_left -= u32::from(dirty);
        }
        scan
    }

    /// From the oldest active page on: move activation counts, deactivate those at zero (spec: freebsd §3.2).
    /// Returns whether any count went down.
    fn scan_active<M: Memory>(&mut self, pass: u32, elapsed: u64, additional: i64, memory: &mut M) -> bool {
        let active = self.queues.len(Queue::Active) as u64;
        let inactive = self.queues.len(Queue::Inactive) as i64;
        let mut need = self.targets.inactive_target as i64 - inactive + self.paging_target() + additional;
        let mut limit = active;
        // Pages looked at whatever is needed.
        let mut least = 0;
        match self.params.version {
            Version::V10 => least = (active as u128 * elapsed as u128 / (ACTIVE_PERIOD as u128 * 1_000_000_000)) as u64,
            Version::V2015 if pass == 0 => {
                limit = active / ACTIVE_PERIOD;
                need = limit as i64;
            }
            Version::V2015 => {}
            Version::V12 if pass == 0 => {
                least = (active as u128 * elapsed as u128 / (ACTIVE_PERIOD as u128 * 1_000_000_000)) as u64;
                need = 0;
            }
            Version::V12 => {
                let laundry = self.queues.len(Queue::Laundry) as i64 / LAUNDRY_WEIGHT;
                let wanted = self.targets.inactive_target as i64 + self.paging_target() - (inactive + laundry);
                need = wanted * LAUNDRY_WEIGHT + additional;
            }
        }
        let mut progress = false;
        let mut scanned = 0;
        while scanned < least.min(active) || (need > 0 && scanned < limit) {
            let Some(page) = self.queues.oldest(Queue::Active) else { break };
            scanned += 1;
            self.vm.page_daemon_pages += 1;
            self.counters.pgrefill += 1;
            let in_use = in_use(memory, page);
            let references = self.take_references(page, in_use, memory);
            let record = self.queues.record_mut(page);
            if references > 0 {
                record.act_count = record.act_count.saturating_add(ACT_ADVANCE + references).min(ACT_MAX);
            } else {
                record.act_count -= record.act_count.min(ACT_DECLINE);
                progress = true;
            }
            if record.act_count == 0 {
                self.deactivate(page);
                need -= 1;
            } else {
                self.queues.requeue(page, Queue::Active);
            }
        }
        progress
    }

    /// References since the last look: at most one of its own and [`MAX_REFERENCES`] of mappings. Those are cleared;
    /// what the walk over the mappings did not reach counts at the next look.
    pub(super) fn take_references<M: Memory>(&mut self, page: PageId, in_use: bool, memory: &mut M) -> u16 {
        self.counters.reference_checks += 1;
        let own = u16::from(std::mem::take(&mut self.queues.record_mut(page).referenced));
        let mapped = if in_use { take_mapped_references(page, memory) } else { 0 };
        own + mapped as u16
    }

    fn count_scanned(&mut self, page: PageId) {
        self.vm.page_daemon_pages += 1;
        self.counters.pgscan += 1;
        if self.queues.record(page).anon {
            self.counters.pgscan_anon += 1;
        } else {
            self.counters.pgscan_file += 1;
        }
    }

    /// A page's frame is available: the front-end has evicted it.
    pub(super) fn let_go(&mut self, page: PageId) {
        self.counters.pgsteal += 1;
        if self.queues.record(page).anon {
            self.counters.pgsteal_anon += 1;
        } else {
            self.counters.pgsteal_file += 1;
        }
        self.vm.pages_freed += u64::from(!self.params.cached_pages);
        self.forget(page);
    }
}

/// At most [`MAX_REFERENCES`] references of a page's mappings. A memory whose walk cannot stop there clears the others
/// with them.
fn take_mapped_references<M: Memory>(page: PageId, memory: &mut M) -> u32 {
    let stopped = memory.page_tables().and_then(|tables| tables.take_references_up_to(page, MAX_REFERENCES));
    stopped.unwrap_or_else(|| memory.take_references(page)).mappings.min(MAX_REFERENCES)
}

// The counts above rely on it: an activated page is never left at zero.
const _: () = assert!(ACT_INIT > 0);

/// When the page daemon runs: its main loop, for front-ends that have time (spec: freebsd §3). Times in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct DaemonLoop {
    version: Version,
    pass: u32,
    wanted: bool,
}

/// What the daemon does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonStep {
    /// Scan now.
    Scan,
    /// Sleep this long whatever happens, then scan.
    Pause(u64),
    /// Sleep this long, or until woken, then scan.
    Rest(u64),
}

impl DaemonLoop {
    const HALF_SECOND: u64 = 500_000_000;
    /// Version 12 looks ten times per second.
    const TENTH: u64 = 100_000_000;

    /// A daemon that has not run yet.
    pub fn new(version: Version) -> DaemonLoop {
        DaemonLoop { version, pass: 0, wanted: false }
    }

    /// An allocation found too few frames. A daemon that rests is to scan now.
    pub fn wake(&mut self) {
        self.wanted = true;
    }

    /// Whether it was woken since it last had enough.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// A page was let go.
    pub fn page_freed(&mut self, below_min: bool) {
        self.wanted &= below_min;
    }

    /// A scan has ended: what next.
    pub fn after_scan(&mut self, below_min: bool, paging_needed: bool) -> DaemonStep {
        if !below_min && !paging_needed {
            self.wanted = false;
        }
        if !self.wanted {
            if self.version != Version::V10 {
                self.pass = 0;
            }
            DaemonStep::Rest(if self.version == Version::V12 { Self::TENTH } else { 2 * Self::HALF_SECOND })
        } else if self.pass > 1 {
            DaemonStep::Pause(if self.version == Version::V12 { Self::TENTH } else { Self::HALF_SECOND })
        } else {
            DaemonStep::Scan
        }
    }

    /// The sleep has ended: the number of the pass to scan with.
    pub fn begin_scan(&mut self) -> u32 {
        if self.wanted {
            self.pass += 1;
        } else {
            self.pass = 0;
        }
        self.pass
    }
}
