//! A trace against a policy under a memory limit, with the order of events of a memory cgroup's limit reclaim
//! (spec: overview §4.6).
//!
//! One missing page: room is made, the slot's shadow is taken, the page is admitted, then accessed. The limit is
//! exceeded only when nothing can be evicted at all, which [`Counters::limit_overruns`] counts.
//!
//! Kernel: `try_charge_memcg` in `mm/memcontrol.c`; `filemap_add_folio`, `filemap_read` in `mm/filemap.c`.
//!
//! ```
//! use refault_core::textbook::Fifo;
//! use refault_sim::flat_memory::Swap;
//! use refault_sim::{LayoutBuilder, Limits, Replay};
//! use refault_trace::{Entry, Kind};
//!
//! let entries: Vec<Entry> = (0..30).map(|n| Entry::new(n % 3, Kind::Fd, false)).collect();
//! let mut builder = LayoutBuilder::new();
//! builder.observe(&entries);
//! let layout = builder.finish()?;
//! let mut replay = Replay::new(&layout, Fifo::default(), Limits { memory_pages: 2, swap: Swap::default() });
//! let mut accesses = Vec::new();
//! layout.translate(&entries, &mut accesses);
//! replay.run(&accesses);
//! assert_eq!(replay.outcome().hits, 0); // three pages in turn, room for two
//! # Ok::<(), refault_sim::layout::LayoutError>(())
//! ```

mod read_ahead;

use refault_core::frames::{CachedFrames, KeepEvicted};
use refault_core::policy::room::{MAX_FRUITLESS_CALLS, make_room};
use refault_core::policy::{Admission, Bypass, CachedPages, DescriptorReads, HitReport, ReclaimRequest};
use refault_core::{Counters, Memory, PageId, PageType, Policy};

use crate::flat_memory::{FlatMemory, Swap};
use crate::layout::{Access, Layout};
use read_ahead::ReadAhead;
pub use read_ahead::ReadAheadCounts;

/// Frames that [`CachedFrames`] can name.
const MAX_FRAMES: usize = (1 << 31) - 1;

/// Accesses whose records are read together before they are reported one by one.
const REPORT_AHEAD: usize = 32;

/// Accesses looked at together before they are replayed: a bit each in a word.
const LOOK_AHEAD: usize = 64;

/// What a replay may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Pages that may be resident, at least 1.
    pub memory_pages: usize,
    /// Where anonymous pages go.
    pub swap: Swap,
}

/// What came out of a replay.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Accesses replayed.
    pub accesses: u64,
    /// Accesses that found their page in memory.
    pub hits: u64,
    /// Accesses that did not, first touches included.
    pub misses: u64,
    /// The policy's and the memory's counters.
    pub counters: Counters,
    /// Pages in memory at the end.
    pub resident: usize,
    /// What was read ahead, if the replay reads ahead.
    pub read_ahead: Option<ReadAheadCounts>,
}

/// A policy, its memory and its limit. Feed it blocks of accesses; ask it for the outcome at any time.
pub struct Replay<P: Policy> {
    policy: P,
    memory: FlatMemory,
    limit: usize,
    /// Resident pages at which room is made: the limit, or less for policies that keep a reserve.
    threshold: usize,
    /// The frames, for policies whose evicted pages stay cached.
    frames: Option<CachedFrames>,
    accesses: u64,
    misses: u64,
    /// Times room was made.
    reclaims: u64,
    descriptor_reads: DescriptorReads,
    /// Readahead, if there is any.
    ahead: Option<Box<ReadAhead>>,
}

/// Resident pages at which room is made.
fn reclaim_threshold<P: Policy>(policy: &P, memory_pages: usize) -> usize {
    policy.cached_pages().map_or(memory_pages, |cached| cached.reclaim_threshold(memory_pages))
}

impl<P: Policy> Replay<P> {
    /// Empty memory with a policy over it.
    pub fn new(layout: &Layout, mut policy: P, limits: Limits) -> Replay<P> {
        policy.grow(layout.ids());
        policy.set_capacity(limits.memory_pages);
        // Frames that can never be used need no record.
        let frames = limits.memory_pages.min(2 * layout.ids()).min(MAX_FRAMES) as u32;
        let frames = policy.cached_pages().and_then(CachedPages::pools).map(|pools| {
            let mut frames = CachedFrames::new(frames, pools);
            frames.grow(layout.ids());
            frames
        });
        Replay {
            threshold: reclaim_threshold(&policy, limits.memory_pages),
            frames,
            policy,
            memory: FlatMemory::new(layout, limits.swap),
            limit: limits.memory_pages,
            accesses: 0,
            misses: 0,
            reclaims: 0,
            descriptor_reads: DescriptorReads::default(),
            ahead: None,
        }
    }

    /// Replays the next accesses.
    pub fn run(&mut self, block: &[Access]) {
        if let Some(mut ahead) = self.ahead.take() {
            self.run_with_read_ahead(block, &mut ahead);
            self.ahead = Some(ahead);
            return;
        }
        match P::HITS {
            HitReport::Kernel => self.run_ahead(block),
            HitReport::AccessedBit => block.iter().for_each(|a| self.bit_access(*a)),
            HitReport::EachAccess => block.chunks(REPORT_AHEAD).for_each(|few| {
                // So that their cache misses overlap. Most policies have nothing to be read.
                let read =
                    |a: &Access| self.policy.prefetch_hint(a.page()) ^ u64::from(self.memory.is_resident(a.page()));
                std::hint::black_box(few.iter().fold(0, |all, a| all ^ read(a)));
                for a in few {
                    if self.memory.is_resident(a.page()) {
                        self.policy.accessed(a.page(), &mut self.memory);
                    } else {
                        self.miss(*a);
                    }
                }
            }),
            HitReport::Never => block.iter().for_each(|a| {
                if !self.memory.is_resident(a.page()) {
                    self.miss(*a);
                }
            }),
        }
        if P::HITS != HitReport::Kernel {
            self.accesses += block.len() as u64;
        }
    }

    /// Replays accesses, each of which stands for its number of `bytes`, and answers the bytes of those that missed.
    /// Slower than [`Replay::run`], and with the same outcome.
    pub fn run_weighed(&mut self, block: &[Access], bytes: &[u64]) -> u64 {
        let mut missed = 0;
        for (access, bytes) in block.iter().zip(bytes) {
            let before = self.misses;
            self.run(std::slice::from_ref(access));
            missed += if self.misses > before { *bytes } else { 0 };
        }
        missed
    }

    /// Another limit from now on. Nothing is reclaimed before the next page is brought in.
    pub fn set_limit(&mut self, memory_pages: usize) {
        self.policy.set_capacity(memory_pages);
        self.limit = memory_pages;
        self.threshold = reclaim_threshold(&self.policy, memory_pages);
    }

    /// [`FlatMemory::set_locked`].
    pub fn set_locked(&mut self, pages: u64) {
        self.memory.set_locked(pages);
    }

    /// What happened so far.
    pub fn outcome(&self) -> Outcome {
        let mut counters = self.policy.counters();
        counters.add(self.memory.counters());
        if let Some(frames) = &self.frames {
            counters.pages_cached += frames.counters().cached;
            counters.pages_reactivated += frames.counters().reactivated;
        }
        self.with_read_ahead(Outcome {
            accesses: self.accesses,
            hits: self.accesses - self.misses,
            misses: self.misses,
            counters,
            resident: self.memory.resident(),
            read_ahead: None,
        })
    }

    /// The policy, to look at its state.
    pub fn policy(&self) -> &P {
        &self.policy
    }

    /// Both, for a monitor whose schemes act on them.
    pub(crate) fn parts_mut(&mut self) -> (&mut P, &mut FlatMemory) {
        (&mut self.policy, &mut self.memory)
    }

    /// The memory, to look at its state.
    pub fn memory(&self) -> &FlatMemory {
        &self.memory
    }

    /// Replays as a kernel does, looking up to 64 accesses ahead for those that change anything: a page that is mapped
    /// and young already has nothing to do, and the cache misses of what page faults will touch overlap. What was
    /// settled stays so until pages are reclaimed.
    fn run_ahead(&mut self, block: &[Access]) {
        let base = self.accesses;
        let mut at = 0;
        while at < block.len() {
            let few = &block[at..block.len().min(at + LOOK_AHEAD)];
            let mut pending = self.look_ahead(few);
            let reclaims = self.reclaims;
            let mut done = few.len();
            while pending != 0 {
                let next = pending.trailing_zeros() as usize;
                pending &= pending - 1;
                self.accesses = base + (at + next) as u64 + 1;
                self.kernel_access(few[next]);
                if self.reclaims != reclaims {
                    done = next + 1;
                    break;
                }
            }
            at += done;
        }
        self.accesses = base + block.len() as u64;
    }

    /// A bit for each access that changes something. Reads what the misses among them will need.
    #[inline]
    fn look_ahead(&self, few: &[Access]) -> u64 {
        let mut pending = 0;
        for (bit, access) in few.iter().enumerate() {
            pending |= u64::from(!self.memory.is_noop(*access)) << bit;
        }
        let (mut left, mut read) = (pending, 0);
        while left != 0 {
            let access = few[left.trailing_zeros() as usize];
            left &= left - 1;
            let page = access.page();
            if !self.memory.is_resident(page) {
                read ^= self.memory.prefetch_hint(page) ^ self.policy.prefetch_hint(page);
            } else if access.is_fd() {
                read ^= self.policy.prefetch_hint(page);
            }
        }
        std::hint::black_box(read);
        pending
    }

    /// An access where policies look at its bit alone.
    #[inline]
    fn bit_access(&mut self, access: Access) {
        // The access that brings a page in is no hit, but it leaves an entry that a walk can find young later.
        if !self.memory.touch_any(access.page()) && self.miss(access) && !access.is_fd() {
            self.memory.map_old(access.page());
        }
    }

    /// One access, without looking at others.
    fn access_alone(&mut self, access: Access) {
        match P::HITS {
            HitReport::Kernel => self.kernel_access(access),
            HitReport::AccessedBit => self.bit_access(access),
            HitReport::EachAccess if self.memory.is_resident(access.page()) => {
                self.policy.accessed(access.page(), &mut self.memory);
            }
            HitReport::Never if self.memory.is_resident(access.page()) => {}
            HitReport::EachAccess | HitReport::Never => _ = self.miss(access),
        }
    }

    /// An access as the kernel treats it: through a mapping only bits are set, through a descriptor the policy is told.
    #[inline]
    fn kernel_access(&mut self, access: Access) {
        let page = access.page();
        if !access.is_fd() {
            if !self.memory.touch_mapped(page, access.write()) {
                self.fault(access);
            }
            return;
        }
        if !self.memory.is_resident(page) && !self.miss(access) {
            return;
        }
        if self.descriptor_reads.counts(page, access.write()) {
            self.policy.accessed(page, &mut self.memory);
        }
    }

    /// No page-table entry: a minor fault on a cached file page, or a miss.
    fn fault(&mut self, access: Access) {
        if !self.memory.is_resident(access.page()) && !self.miss(access) {
            return;
        }
        self.memory.map(access.page(), access.write());
    }

    /// Brings a page in (spec: overview §4.6, steps 2–5). False if the access was served and the page stays evicted.
    #[inline]
    fn miss(&mut self, access: Access) -> bool {
        let page = access.page();
        if self.memory.resident() >= self.threshold {
            if self.is_bypassed(access) {
                return false;
            }
            let made = self.make_room(page, MAX_FRUITLESS_CALLS);
            self.memory.counters_mut().limit_overruns += u64::from(!made);
        }
        if P::CACHES_PAGES && self.take_frame(page) {
            self.reactivate(access);
            return true;
        }
        self.misses += 1;
        let file = self.memory.is_file(page);
        let overwrites = access.write() && access.is_fd();
        let refault = self.memory.was_seen(page);
        let shadow = self.memory.take_shadow(page);
        let counters = self.memory.counters_mut();
        if file {
            counters.file_reads += u64::from(!overwrites);
        } else {
            counters.pswpin += u64::from(refault);
        }
        counters.pgmajfault += u64::from(!access.is_fd() && (file || refault));
        let keeps_slot = !file && refault && self.memory.keeps_slots();
        let admission = admission(access, file).keeping_slot(keeps_slot).with_shadow(shadow);
        self.policy.admit(page, &admission, &mut self.memory);
        self.memory.insert(page);
        true
    }

    /// Memory is full: whether the policy has the access served without bringing the page in.
    #[inline]
    fn is_bypassed(&mut self, access: Access) -> bool {
        let Some(bypass) = self.policy.bypass() else { return false };
        let page = access.page();
        let Some(shadow) = self.memory.shadow(page) else { return false };
        let Some(updated) = bypass.admission_filter()(shadow, bypass.admission_threshold()) else { return false };
        self.memory.set_shadow(page, updated);
        bypass.bypassed(1, &mut self.memory);
        self.misses += 1;
        self.memory.counters_mut().bypassed += 1;
        true
    }

    /// Gives the page a frame where frames are kept. True if it is the one that still holds the page's contents.
    fn take_frame(&mut self, page: PageId) -> bool {
        let Some(frames) = &mut self.frames else { return false };
        if frames.reactivate(page).is_some() {
            return true;
        }
        // Over the limit there is no frame, and the page cannot be cached later.
        frames.allocate(page);
        false
    }

    /// The page's contents are still in memory: a hit, admitted without I/O.
    fn reactivate(&mut self, access: Access) {
        let page = access.page();
        let file = self.memory.is_file(page);
        let admission = admission(access, file).keeping_slot(!file && self.memory.keeps_slots());
        self.policy.admit(page, &admission, &mut self.memory);
        self.memory.insert(page);
    }

    /// False if nothing can be evicted.
    #[cold]
    fn make_room(&mut self, incoming: PageId, max_fruitless: u32) -> bool {
        self.memory.set_now(self.accesses);
        self.reclaims += 1;
        let request = ReclaimRequest { target: 0, goal: P::RECLAIM_BATCH, incoming: Some(incoming) };
        let (policy, limit) = (&mut self.policy, self.limit);
        let room = if P::CACHES_PAGES
            && let Some(frames) = &mut self.frames
        {
            let memory = &mut KeepEvicted::new(&mut self.memory, frames);
            make_room(policy, &request, memory, max_fruitless, |memory| memory.memory().resident() < limit)
        } else {
            let memory = &mut self.memory;
            make_room(policy, &request, memory, max_fruitless, |memory| memory.resident() < limit)
        };
        let counters = self.memory.counters_mut();
        counters.limit_hits += u64::from(room.calls);
        room.made
    }
}

/// How an access brings its page in.
#[inline]
fn admission(access: Access, file: bool) -> Admission {
    let page_type = if file { PageType::File } else { PageType::Anon };
    match (access.is_fd(), access.write()) {
        (false, _) => Admission::fault(page_type),
        (true, false) => Admission::read(page_type),
        (true, true) => Admission::overwrite(page_type),
    }
}
