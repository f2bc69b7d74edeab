//! The machine of the free-pool experiments: frames, objects, faults, a buffer cache, one disk and the page daemon.
//!
//! The page queues are `refault_core::freebsd` (or another policy, see [`super::page_daemon`]), the frames
//! `refault_core::frames`; here is what surrounds them (spec: freebsd §1, §3.4, §6): which task faults, what a fault
//! reads ahead, when a request is refused, and when the daemon wakes. Time is simulated. A [`Burst`] is a stretch of
//! one task's execution; what it computes and what it waits for move its clock. The daemon runs at once when it is
//! woken from its rest and has its own CPU.
//!
//! Scale: a machine of a sixteenth of the memory does a sixteenth of the requests in the same time. So that what
//! happens once per second means the same, time is not scaled; instead each page and each request stands for as many of
//! the published machine, and costs as much as those.
//!
//! Left out: superpage reservations (allocations are single frames), copy on write, the time a page is busy while it is
//! written, other file systems' metadata.
//!
//! Invariants: available frames are the same for policy and frames; a resident page has a frame; a page is in the
//! buffer cache only while it is wired.
//!
//! Kernel: `vm_page_alloc` in `sys/vm/vm_page.c`; `vm_fault_hold` in `sys/vm/vm_fault.c`; `vm_pageout_worker` in
//! `sys/vm/vm_pageout.c`.

use std::collections::VecDeque;

use refault_core::PageId;
use refault_core::PageType;
use refault_core::frames::{Frame, FreePool, Placement};
use refault_core::freebsd::{Behind, DaemonLoop, DaemonStep, MapEntry, Version, VmCounters};
use refault_core::policy::Admission;

use super::PUBLISHED_FRAMES;
use super::page_daemon::PageDaemon;
use super::store::{Disk, Store};

/// Nanoseconds of simulated time.
pub(super) type Nanos = u64;

/// What a fault that reads nothing costs. Nanoseconds, as the following.
const SOFT_FAULT: f64 = 800.0;
/// Zeroing a page.
const ZERO_FILL: f64 = 700.0;
/// What a fault or read that calls the disk costs beside the wait.
const HARD_FAULT: f64 = 12_000.0;
/// Copying a page between the buffer cache and a program.
const COPY_PAGE: f64 = 900.0;
/// The page daemon's look at a page.
const EXAMINE: f64 = 200.0;
/// Share of memory that the buffer cache wires at most: one in this many frames.
const BUFFER_SHARE: usize = 20;
/// Pages of the largest disk request.
pub(super) const MAX_REQUEST: u64 = 32;
/// Pages that a swap-in reads on each side at most.
const SWAP_AROUND: u32 = 7;
/// Daemon passes after which a request that gets no frame is given up; the workloads are sized so that it never is.
const MAX_WAITS: u32 = 10_000;
/// Times that pages are let go for a request of frames in a row that may wait.
const MAX_GROWTHS: u32 = 3;
/// Frames that a request of the kernel leaves.
const SYSTEM_RESERVE: u64 = 2;

/// A stretch of one task's execution.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Burst {
    /// Now, for this task.
    pub at: Nanos,
    /// Time on a processor in the program.
    pub user: Nanos,
    /// Time on a processor in the kernel.
    pub system: Nanos,
    /// Time it waited for the disk or for memory.
    pub waited: Nanos,
}

impl Burst {
    pub fn starting(at: Nanos) -> Burst {
        Burst { at, ..Burst::default() }
    }

    pub fn compute(&mut self, nanos: Nanos) {
        self.user += nanos;
        self.at += nanos;
    }

    fn kernel(&mut self, nanos: f64) {
        self.system += nanos as Nanos;
        self.at += nanos as Nanos;
    }

    fn wait_until(&mut self, time: Nanos) {
        self.waited += time.saturating_sub(self.at);
        self.at = self.at.max(time);
    }
}

/// A task's mapping of an object.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub object: usize,
    entry: MapEntry,
    task: u8,
}

impl Mapping {
    pub fn task(&self) -> u8 {
        self.task
    }
}

/// See the module.
pub(super) struct Machine {
    pub policy: Box<dyn PageDaemon>,
    pub store: Store,
    daemon: DaemonLoop,
    daemon_rests: bool,
    daemon_next: Nanos,
    daemon_last: Nanos,
    /// Processor time of the daemon.
    pub daemon_time: Nanos,
    /// Pages wired by the buffer cache, oldest first; entries of files that were deleted stay until they come out.
    buffers: VecDeque<PageId>,
    most_buffers: usize,
    kernel_frames: u64,
    /// Frames that are taken before a woken daemon runs.
    daemon_lag: u64,
    /// Pages of the published machine that a page stands for.
    stands_for: f64,
}

impl Machine {
    /// A machine with free memory only.
    /// `daemon_lag`: see [`super::Assumptions`].
    pub fn new(frames: u32, mut policy: Box<dyn PageDaemon>, daemon_lag: f64) -> Machine {
        let stands_for = PUBLISHED_FRAMES / f64::from(frames);
        policy.set_capacity(frames as usize);
        let version = policy.version();
        Machine {
            daemon_lag: (policy.targets().wakeup_threshold as f64 * daemon_lag) as u64,
            store: Store::new(frames, policy.cached_pools(), Disk::rotating(stands_for)),
            policy,
            daemon: DaemonLoop::new(version),
            daemon_rests: true,
            daemon_next: 1_000_000_000,
            daemon_last: 0,
            daemon_time: 0,
            buffers: VecDeque::new(),
            most_buffers: frames as usize / BUFFER_SHARE,
            kernel_frames: 0,
            stands_for,
        }
    }

    /// A file or a piece of anonymous memory; returns its number.
    pub fn add_object(&mut self, pages: u32, anon: bool) -> usize {
        let object = self.store.add_object(pages, anon);
        self.policy.grow(self.store.pages());
        object
    }

    /// All counters of the specification.
    pub fn counters(&self) -> VmCounters {
        let mut counters = self.store.vm;
        counters.add(&self.policy.vm_counters());
        let cached = self.store.frames.counters();
        counters.pages_cached += cached.cached;
        counters.pages_reactivated += cached.reactivated;
        counters
    }

    /// Evicted pages that were read again.
    pub fn refaults(&self) -> u64 {
        self.store.returned - self.store.frames.counters().reactivated
    }

    /// Lets the daemon do what it does until `now` without being woken.
    pub fn advance(&mut self, now: Nanos) {
        while self.daemon_next <= now {
            self.run_daemon(self.daemon_next);
        }
    }

    pub fn map(&mut self, object: usize, task: u8) -> Mapping {
        let pages = u64::from(self.store.object(object).pages);
        self.store.object_mut(object).users += 1;
        // Objects lie at superpage boundaries of the address space, as large mappings do.
        Mapping { object, entry: MapEntry::new(0..pages, 512), task }
    }

    /// Ends a mapping. What the task referenced is remembered (spec: freebsd §1).
    pub fn unmap(&mut self, mapping: Mapping) {
        let object = *self.store.object(mapping.object);
        let bit = 1 << mapping.task;
        for page in object.first..object.first + object.pages {
            if self.store.mapped[page as usize] & bit != 0 {
                if self.store.young[page as usize] & bit != 0 {
                    self.policy.accessed(page, &mut self.store);
                }
                self.store.mapped[page as usize] &= !bit;
                self.store.young[page as usize] &= !bit;
            }
        }
        self.store.object_mut(mapping.object).users -= 1;
    }

    /// An access through a mapping.
    #[inline]
    pub fn touch(&mut self, mapping: &mut Mapping, index: u32, write: bool, burst: &mut Burst) {
        let page = self.store.object(mapping.object).first + index;
        let bit = 1u8 << mapping.task;
        if self.store.mapped[page as usize] & bit == 0 {
            self.fault(mapping, index, page, burst);
            self.store.mapped[page as usize] |= bit;
        }
        self.store.young[page as usize] |= bit;
        if write {
            self.store.set_dirty(page);
        }
    }

    /// Brings a page in that has no entry in the task's page table.
    fn fault(&mut self, mapping: &mut Mapping, index: u32, page: PageId, burst: &mut Burst) {
        self.store.vm.faults += 1;
        burst.kernel(SOFT_FAULT * self.stands_for);
        if self.store.is_resident(page) {
            // A fast fault: mapped, and nothing else. Version 10 has none: the page ends at the newest end of the
            // active queue (spec: freebsd §1).
            if self.policy.version() == Version::V10 {
                self.policy.faulted(page);
            }
            return;
        }
        self.wait_while(burst, |policy| policy.severe());
        if self.store.frames.is_cached(page) {
            self.wait_while(burst, |policy| policy.available() <= policy.targets().free_reserved);
            self.store.frames.reactivate(page);
            self.admit(page, true);
            self.wake_daemon_if_needed(burst.at);
            return;
        }
        let anon = self.store.object(mapping.object).anon;
        self.allocate(page, true, burst);
        if anon && !self.store.is_on_swap(page) {
            burst.kernel(ZERO_FILL * self.stands_for);
            self.store.vm.zero_fills += 1;
            self.admit(page, true);
            self.wake_daemon_if_needed(burst.at);
            return;
        }
        burst.kernel(HARD_FAULT * self.stands_for);
        self.store.vm.hard_faults += 1;
        self.admit(page, true);
        let pages = if anon {
            let pages = self.read_around(mapping.object, index, SWAP_AROUND, SWAP_AROUND, true, burst).0;
            self.store.vm.swap_pageins += 1;
            self.store.vm.swap_pages_in += pages;
            pages
        } else {
            let cluster = mapping.entry.plan(u64::from(index), self.policy.version());
            self.leave_behind(mapping.object, index, &cluster.then);
            let (behind, ahead) = (cluster.behind as u32, cluster.ahead as u32);
            let (pages, ahead) = self.read_around(mapping.object, index, behind, ahead, false, burst);
            mapping.entry.was_read(u64::from(index), ahead);
            self.store.vm.vnode_pageins += 1;
            self.store.vm.vnode_pages_in += pages;
            pages
        };
        burst.wait_until(self.store.disk.read(burst.at, pages));
    }

    /// Gives frames to the neighbours that are read with a page, as far as they are neither resident nor cached and
    /// memory allows. Returns the pages of the request, the first included, and those ahead.
    fn read_around(
        &mut self,
        object: usize,
        index: u32,
        behind: u32,
        ahead: u32,
        swap: bool,
        burst: &mut Burst,
    ) -> (u64, u64) {
        let object = *self.store.object(object);
        let mut read = |machine: &mut Machine, at: u32| {
            let page = object.first + at;
            let wanted = !machine.store.is_resident(page)
                && !machine.store.frames.is_cached(page)
                && (!swap || machine.store.is_on_swap(page))
                && machine.policy.available() > machine.policy.targets().free_reserved;
            if wanted {
                machine.allocate(page, true, burst);
                machine.admit(page, false);
                machine.wake_daemon_if_needed(burst.at);
            }
            wanted
        };
        let before = (1..=behind.min(index)).take_while(|n| read(self, index - n)).count();
        let after = (1..=ahead.min(object.pages - 1 - index)).take_while(|n| read(self, index + n)).count();
        (1 + before as u64 + after as u64, after as u64)
    }

    /// What a sequential fault does with the pages behind it.
    fn leave_behind(&mut self, object: usize, index: u32, behind: &Behind) {
        let first = self.store.object(object).first;
        match behind {
            Behind::Keep => {}
            Behind::Cache(most) => {
                for at in (index.saturating_sub(*most as u32)..index).rev() {
                    if !self.store.is_resident(first + at) {
                        break;
                    }
                    self.policy.cache_behind(first + at, &mut self.store);
                }
            }
            Behind::DontNeed(range) => {
                for at in range.clone() {
                    let page = first + at as u32;
                    if self.store.is_resident(page) {
                        self.policy.dont_need(page, &mut self.store);
                    }
                }
            }
        }
    }

    /// Reads a stretch of a file through the buffer cache.
    pub fn read(&mut self, object: usize, range: std::ops::Range<u32>, burst: &mut Burst) {
        let mut missing = 0;
        for index in range {
            let present = self.buffer(object, index, burst);
            if (present && missing > 0) || missing == MAX_REQUEST {
                burst.wait_until(self.store.disk.read(burst.at, missing));
                missing = 0;
            }
            missing += u64::from(!present);
            burst.kernel(COPY_PAGE * self.stands_for);
        }
        if missing > 0 {
            burst.kernel(HARD_FAULT * self.stands_for);
            burst.wait_until(self.store.disk.read(burst.at, missing));
        }
    }

    /// Writes a stretch of a file through the buffer cache, page by page as a whole: nothing is read.
    pub fn write(&mut self, object: usize, range: std::ops::Range<u32>, burst: &mut Burst) {
        for index in range {
            self.buffer(object, index, burst);
            let page = self.store.object(object).first + index;
            self.store.set_dirty(page);
            burst.kernel(COPY_PAGE * self.stands_for);
        }
    }

    /// Puts a page of a file into the buffer cache. False if its contents are not in memory.
    fn buffer(&mut self, object: usize, index: u32, burst: &mut Burst) -> bool {
        let page = self.store.object(object).first + index;
        if self.store.is_buffered(page) {
            return true;
        }
        let mut present = true;
        if !self.store.is_resident(page) {
            self.wait_while(burst, |policy| policy.available() <= SYSTEM_RESERVE);
            if self.store.frames.reactivate(page).is_none() {
                self.allocate(page, false, burst);
                present = false;
            }
            self.admit(page, false);
        }
        self.policy.accessed(page, &mut self.store);
        // Wired before the daemon may look at it.
        self.policy.wire(page);
        self.wake_daemon_if_needed(burst.at);
        self.store.set_buffered(page, true);
        self.buffers.push_back(page);
        while self.buffers.len() > self.most_buffers {
            let oldest = self.buffers.pop_front().expect("invariant: the buffer cache is over its limit");
            self.release_buffer(oldest);
        }
        present
    }

    /// The buffer cache lets go of a page: written if dirty, then inactive, or gone at once if memory is severely
    /// short.
    fn release_buffer(&mut self, page: PageId) {
        if !self.store.is_buffered(page) {
            return;
        }
        self.store.set_buffered(page, false);
        self.store.write_back(page);
        self.policy.unwire(page);
        if self.policy.severe() {
            self.policy.try_to_let_go(page, &mut self.store);
        }
    }

    /// Deletes the contents of a file, or ends a piece of anonymous memory. It must not be mapped.
    pub fn discard(&mut self, object: usize) {
        let object = *self.store.object(object);
        for page in object.first..object.first + object.pages {
            if self.store.is_resident(page) {
                self.policy.freed(page);
                self.store.frames.free(page);
            } else if self.store.frames.is_cached(page) {
                self.store.frames.discard(page);
            }
            self.store.forget(page);
        }
        self.freed_outside();
    }

    /// Takes frames for the kernel itself.
    pub fn allocate_kernel(&mut self, frames: u32, burst: &mut Burst) -> Vec<Frame> {
        (0..frames)
            .map(|_| {
                self.wait_while(burst, |policy| policy.available() <= SYSTEM_RESERVE);
                let frame = self.store.frames.allocate_block(FreePool::Direct, 0);
                self.kernel_frames += 1;
                self.policy.set_taken(self.kernel_frames);
                self.wake_daemon_if_needed(burst.at);
                frame.expect("invariant: available frames can be allocated")
            })
            .collect()
    }

    /// Gives back frames of the kernel.
    pub fn free_kernel(&mut self, frames: Vec<Frame>) {
        self.kernel_frames -= frames.len() as u64;
        self.policy.set_taken(self.kernel_frames);
        frames.into_iter().for_each(|frame| self.store.frames.free_block(frame, 0));
        self.freed_outside();
    }

    /// Frames in a row for the kernel. Between the attempts pages are let go, whatever their references, if `grows`:
    /// clean inactive ones, then dirty ones too, then active ones (spec: freebsd §3.5).
    pub fn allocate_row(&mut self, frames: u32, grows: bool, burst: &mut Burst) -> Option<Frame> {
        for attempt in 0..=MAX_GROWTHS {
            if self.policy.available() > SYSTEM_RESERVE + u64::from(frames)
                && let Some(first) = self.store.frames.allocate_contiguous(frames, &Placement::ANYWHERE)
            {
                self.kernel_frames += u64::from(frames);
                self.policy.set_taken(self.kernel_frames);
                self.wake_daemon_if_needed(burst.at);
                return Some(first);
            }
            if !grows || attempt == MAX_GROWTHS {
                break;
            }
            let examined = self.policy.grow_cache(attempt, &mut self.store);
            burst.kernel(f64::from(examined) * EXAMINE * self.stands_for);
            self.freed_outside();
        }
        None
    }

    /// Gives back frames in a row.
    pub fn free_row(&mut self, first: Frame, frames: u32) {
        self.kernel_frames -= u64::from(frames);
        self.policy.set_taken(self.kernel_frames);
        self.store.frames.free_range(first, first + frames);
        self.freed_outside();
    }

    /// Gives a page a frame, waiting for the daemon if there is none for its class.
    fn allocate(&mut self, page: PageId, user: bool, burst: &mut Burst) {
        let reserve = if user { self.policy.targets().free_reserved } else { SYSTEM_RESERVE };
        self.wait_while(burst, |policy| policy.available() <= reserve);
        let frame = self.store.frames.allocate(page);
        debug_assert!(frame.is_some(), "invariant: available frames can be allocated");
    }

    fn admit(&mut self, page: PageId, in_fault: bool) {
        let page_type = if self.store.is_anon(page) { PageType::Anon } else { PageType::File };
        let admission = if in_fault { Admission::fault(page_type) } else { Admission::read(page_type) };
        let admission = admission.with_shadow(self.store.take_shadow(page));
        self.policy.admit(page, &admission, &mut self.store);
        self.store.insert(page);
        debug_assert_eq!(self.policy.available(), u64::from(self.store.frames.available()));
    }

    /// Waits for passes of the daemon while the condition holds.
    fn wait_while(&mut self, burst: &mut Burst, mut blocked: impl FnMut(&dyn PageDaemon) -> bool) {
        for _ in 0..MAX_WAITS {
            if !blocked(&*self.policy) {
                return;
            }
            self.policy.refused(1);
            self.daemon.wake();
            if !self.daemon_rests {
                burst.wait_until(self.daemon_next);
            }
            self.run_daemon(burst.at);
        }
        unreachable!("invariant: the workloads leave pages that the daemon can let go");
    }

    fn wake_daemon_if_needed(&mut self, now: Nanos) {
        if self.policy.paging_needed() {
            self.daemon.wake();
            if self.daemon_rests && self.policy.available() + self.daemon_lag < self.policy.targets().wakeup_threshold {
                self.run_daemon(now);
            }
        }
    }

    /// Frames came free otherwise than by the daemon.
    fn freed_outside(&mut self) {
        self.daemon.page_freed(self.policy.below_min());
    }

    fn run_daemon(&mut self, now: Nanos) {
        self.store.now = now;
        loop {
            let pass = self.daemon.begin_scan();
            let elapsed = now.saturating_sub(self.daemon_last);
            self.daemon_last = now.max(self.daemon_last);
            let examined = self.policy.examined();
            if self.policy.scan(pass, elapsed, &mut self.store) > 0 {
                self.daemon.page_freed(self.policy.below_min());
            }
            let examined = self.policy.examined() - examined;
            self.daemon_time += (examined as f64 * EXAMINE * self.stands_for) as Nanos;
            let (rests, sleep) = match self.daemon.after_scan(self.policy.below_min(), self.policy.paging_needed()) {
                DaemonStep::Scan => continue,
                DaemonStep::Pause(time) => (false, time),
                DaemonStep::Rest(time) => (true, time),
            };
            self.daemon_rests = rests;
            self.daemon_next = now + sleep;
            return;
        }
    }
}
