//! The pager: an arena, its page table, a policy, a store, a budget, and the threads that serve them.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use refault_core::PageId;
use refault_store::{PAGE_SIZE, Slot, Store, StoreError, TieredStore};

use crate::accessed::AccessSource;
use crate::arena::Arena;
use crate::budget::Budget;
use crate::copies::Copies;
use crate::distance::Distances;
use crate::engine::Engine;
use crate::fault_kind::FaultLatencies;
use crate::fault_scratch::{FaultScratch, Spare};
use crate::fork_gate::{ForkGate, ReadGuard};
use crate::mlock::Pins;
use crate::options::{OnFull, PagerOptions};
use crate::pin_slots::PinSlots;
use crate::pressure::Pressure;
use crate::ranges::Ranges;
use crate::read_ahead::ReadAhead;
use crate::state::PageWord;
use crate::table::PageTable;
use crate::threads;
use crate::uffd::Uffd;
use crate::zap::Zapper;

/// What to do where there is no userfaultfd to be had.
fn refusal(error: &io::Error) -> String {
    if error.raw_os_error() == Some(libc::ENOSYS) {
        format!("there is no userfaultfd here ({error}): the kernel was built without it, or an emulator hides it")
    } else {
        format!(
            "userfaultfd is not permitted here ({error}): run as root or with CAP_SYS_PTRACE, or set vm.unprivileged_userfaultfd=1, or give this user access to /dev/userfaultfd"
        )
    }
}

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PagerError {
    /// The kernel refuses userfaultfd to this process, or has none.
    #[error("{}", refusal(.0))]
    NotPermitted(io::Error),
    /// The kernel is too old or was built without something.
    #[error("this kernel's userfaultfd lacks {0}; Linux 5.19 or later is needed")]
    MissingFeature(&'static str),
    /// No such policy, or not one for live memory.
    #[error(transparent)]
    Policy(#[from] refault_core::policy::PolicyError),
    /// The budget already has a pager.
    #[error("this budget already belongs to a pager: make a child of it")]
    BudgetTaken,
    /// The arena has no run of addresses of this length.
    #[error("no {0} bytes of addresses are left in the pager's arena")]
    NoAddresses(u64),
    /// Part of a range is not in use.
    #[error("{bytes} bytes at {address:#x} are not all in use")]
    NotTaken {
        /// Where it starts.
        address: usize,
        /// How long it is.
        bytes: u64,
    },
    /// Resizing, pinning or prefetching could not be completed.
    #[error("{resident} bytes are resident and cannot be evicted, {wanted} are allowed: {why}")]
    StillResident {
        /// Bytes that stayed.
        resident: u64,
        /// Bytes wanted at most.
        wanted: u64,
        /// What stands in the way.
        why: &'static str,
    },
    /// A file could not be used.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A page's contents were lost.
    #[error("page at {address:#x}: {error}")]
    Lost {
        /// Where the page is.
        address: usize,
        /// What the store said.
        error: StoreError,
    },
    /// Another system call failed.
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
}

/// Counts of what the pager itself did. Pages unless said otherwise.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) fills: AtomicU64,
    pub(crate) zero_fills: AtomicU64,
    pub(crate) prefetched: AtomicU64,
    pub(crate) read_ahead: AtomicU64,
    pub(crate) copies_given_up: AtomicU64,
    pub(crate) protect_faults: AtomicU64,
    pub(crate) stored: AtomicU64,
    pub(crate) clean_evictions: AtomicU64,
    pub(crate) direct_reclaims: AtomicU64,
    pub(crate) limit_overruns: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) discarded: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) demoted: AtomicU64,
}

/// Reports wait here until a thread holds the engine.
const REPORTS: usize = 1 << 14;

/// Victims that a round of background eviction asks for at most.
const RECLAIM_GOAL: u64 = 128;

/// Victims that a fault asks for which has to make room itself.
pub(crate) const DIRECT_GOAL: u32 = 32;

/// Times that a fault finds nothing to evict before it counts as being out of room: some 5 ms.
const MAX_FRUITLESS_WAITS: u32 = 32;

/// A budget that counts stored pages leaves at least one page in this many for resident ones, or nothing would run.
const MIN_RESIDENT_PART: u64 = 16;

/// A full store is asked again after this many slots were released …
const FULL_RELEASES: u32 = 64;
/// … or after this many milliseconds.
const FULL_RETRY_MS: u64 = 50;

pub(crate) struct Inner {
    pub(crate) arena: Arena,
    pub(crate) table: Arc<PageTable>,
    pub(crate) uffd: Uffd,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) store_description: String,
    pub(crate) budget: Budget,
    /// The budget's maximum as it was asked for; what is resident may have less, see [`PagerOptions::count_stored`].
    asked_pages: AtomicU64,
    pub(crate) options: PagerOptions,
    pub(crate) ranges: Ranges,
    pub(crate) spare_worker: Spare,
    pub(crate) pin_slots: PinSlots,
    pub(crate) pins: Pins,
    engine: Mutex<Engine>,
    reports: Mutex<Vec<PageId>>,
    drops: Zapper,
    pub(crate) gate: ForkGate,
    pub(crate) read_ahead: ReadAhead,
    pub(crate) copies: Copies,
    pub(crate) counts: Counts,
    pub(crate) fault_latency: FaultLatencies,
    pub(crate) pressure: Pressure,
    pub(crate) distances: Distances,
    oldest_birth: AtomicU64,
    /// The store refused pages; cleared when some space is released.
    full: AtomicBool,
    /// Slots to be released before the store is asked again, and the time (pager's clock) from which it is asked
    /// anyway.
    full_releases: AtomicU32,
    full_retry: AtomicU64,
    start: Instant,
    full_said: AtomicBool,
    pub(crate) stopping: AtomicBool,
    /// Bits of the reserved pages that have ended a handler.
    pub(crate) stopped: AtomicU64,
    /// Futex: 1 while the evictor has work.
    pub(crate) evictor_signal: AtomicU32,
    pub(crate) keeper: threads::Keeper,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Serves regions. Clones are the same pager; it lives as long as its regions.
#[derive(Clone)]
pub struct Pager(pub(crate) Arc<Shared>);

/// Owns the threads: they hold only [`Inner`], so the last handle can stop them.
pub(crate) struct Shared(pub(crate) Arc<Inner>);

impl Pager {
    /// Makes a pager at a budget, with the store of the options.
    pub fn new(budget: Budget, options: PagerOptions) -> Result<Pager, PagerError> {
        let store = TieredStore::new(&options.store).map_err(|error| PagerError::System("making the store", error))?;
        let description = store.describe();
        Pager::with_store(budget, options, Arc::new(store), description)
    }

    /// Makes a pager over a given store.
    pub fn with_store(
        budget: Budget,
        options: PagerOptions,
        store: Arc<dyn Store>,
        store_description: String,
    ) -> Result<Pager, PagerError> {
        let policy = crate::policies::make(&options.policy)?;
        let uffd = crate::probe::open(&options)?;
        let pages = (options.address_space / PAGE_SIZE as u64).clamp(512, u64::from(u32::MAX - 1)) as u32;
        let system = |what| move |error| PagerError::System(what, error);
        let arena = Arena::new(pages).map_err(|error| match error.raw_os_error() {
            Some(libc::EFBIG) => PagerError::System(
                "memory lies in a file without a name, and the limit on file sizes (ulimit -f) is too low",
                error,
            ),
            _ => PagerError::System("reserving addresses (ulimit -v limits them)", error),
        })?;
        let table = Arc::new(PageTable::new(pages).map_err(system("reserving the page table"))?);
        uffd.register(arena.base(), arena.len()).map_err(system("registering with userfaultfd"))?;
        let start = Instant::now();
        let mut engine = Engine::new(policy, table.clone(), arena.base(), options.access_source, start);
        engine.set_capacity(budget.maximum_pages().min(u64::from(u32::MAX)) as usize);
        let inner = Arc::new(Inner {
            pin_slots: PinSlots::new(crate::user_buffer::SLOTS),
            pins: Pins::default(),
            arena,
            table,
            uffd,
            store,
            store_description,
            asked_pages: AtomicU64::new(budget.maximum_pages()),
            budget,
            options,
            ranges: Ranges::default(),
            spare_worker: Spare::default(),
            engine: Mutex::new(engine),
            reports: Mutex::new(Vec::with_capacity(REPORTS)),
            drops: Zapper::new(),
            gate: ForkGate::default(),
            read_ahead: ReadAhead::default(),
            copies: Copies::new(pages),
            counts: Counts::default(),
            fault_latency: FaultLatencies::default(),
            pressure: Pressure::new(),
            distances: Distances::new(pages),
            oldest_birth: AtomicU64::new(0),
            full: AtomicBool::new(false),
            full_releases: AtomicU32::new(0),
            full_retry: AtomicU64::new(0),
            start,
            full_said: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            stopped: AtomicU64::new(0),
            evictor_signal: AtomicU32::new(0),
            keeper: threads::Keeper::default(),
            threads: Mutex::new(Vec::new()),
        });
        if !inner.budget.attach(&inner) {
            return Err(PagerError::BudgetTaken);
        }
        threads::start(&inner).map_err(system("starting threads"))?;
        Ok(Pager(Arc::new(Shared(inner))))
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0.0
    }

    /// The budget that bounds this pager.
    pub fn budget(&self) -> &Budget {
        &self.inner().budget
    }

    /// Bytes that the budget was made with, or was given by [`Pager::resize`]. The budget's own maximum is less while
    /// pages are stored, if they are counted ([`PagerOptions::count_stored`]).
    pub fn bound_bytes(&self) -> u64 {
        self.inner().bound_bytes()
    }

    /// Changes the budget's maximum while programs run, and returns when it is true: at most `bytes` are resident.
    /// The error says what stayed if that is not reached in `patience`.
    pub fn resize(&self, bytes: u64, patience: Duration) -> Result<(), PagerError> {
        let inner = self.inner();
        inner.asked_pages.store(bytes / PAGE_SIZE as u64, Ordering::Release);
        inner.budget.set_maximum_pages(bytes / PAGE_SIZE as u64);
        inner.count_stored();
        let gate = inner.enter();
        // As many as the new budget allows are kept from now on.
        inner.give_up_copies();
        inner.engine().set_capacity((bytes / PAGE_SIZE as u64).min(u64::from(u32::MAX)) as usize);
        drop(gate);
        let start = Instant::now();
        let mut worker = inner.spare_worker.borrow();
        loop {
            inner.count_stored();
            let excess = inner.budget.used_pages().saturating_sub(inner.budget.maximum_pages());
            if excess == 0 {
                return Ok(());
            }
            let freed = {
                let _gate = inner.enter();
                match inner.budget.victim() {
                    Some(victim) => victim.reclaim(excess.min(RECLAIM_GOAL) as u32, &mut worker),
                    None => 0,
                }
            };
            if start.elapsed() > patience {
                return Err(PagerError::StillResident {
                    resident: inner.budget.used_bytes(),
                    wanted: bytes,
                    why: if inner.is_full() { "the store is full" } else { "pinned, or in use faster than evicted" },
                });
            }
            if freed == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// How accesses are found out here.
    pub fn access_source(&self) -> AccessSource {
        let _gate = self.inner().enter();
        self.inner().engine().source()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        threads::stop(&self.0);
    }
}

impl Inner {
    pub(crate) fn word(&self, page: PageId) -> &PageWord {
        self.table.word(page)
    }

    pub(crate) fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().expect("invariant: a panic of a policy ends the program")
    }

    pub(crate) fn bound_bytes(&self) -> u64 {
        match self.options.count_stored {
            true => self.asked_pages.load(Ordering::Acquire).saturating_mul(PAGE_SIZE as u64),
            false => self.budget.maximum_bytes(),
        }
    }

    /// Leaves room in the budget for what is stored in memory, if that counts.
    pub(crate) fn count_stored(&self) {
        if self.options.count_stored {
            let asked = self.asked_pages.load(Ordering::Acquire);
            let stored = self.store.usage().pool_bytes.div_ceil(PAGE_SIZE as u64);
            self.budget.set_maximum_pages(asked.saturating_sub(stored).max(asked / MIN_RESIDENT_PART).max(1));
        }
    }

    /// Taken once by everything that changes pages or looks at the policy.
    pub(crate) fn enter(&self) -> ReadGuard<'_> {
        self.gate.enter()
    }

    /// Background eviction starts when fewer pages than this are left, and ends at twice as many.
    pub(crate) fn reserve(&self) -> i64 {
        if self.options.access_source == AccessSource::Exact {
            return 0;
        }
        (self.budget.tightest().0.maximum_pages() / 128).clamp(1, 2048) as i64
    }

    /// Victims of a round of background eviction: a 16th of a small budget, or a round would take half of what is in
    /// use.
    pub(crate) fn reclaim_goal(&self) -> u32 {
        (self.budget.tightest().0.maximum_pages() / 16).clamp(8, RECLAIM_GOAL) as u32
    }

    /// Makes the budget carry `pages` more, evicting in this thread if the reserve is used up.
    /// `incoming`: what for.
    pub(crate) fn charge(&self, pages: u64, incoming: Option<PageId>, worker: &mut FaultScratch) {
        let mut fruitless = 0u32;
        loop {
            let over = match self.budget.try_charge(pages) {
                Ok(()) => break,
                Err(over) => over,
            };
            self.count_stored();
            self.counts.direct_reclaims.fetch_add(1, Ordering::Relaxed);
            threads::wake_evictor(self);
            let _stall = self.pressure.stall();
            match over.victim().map_or(Some(0), |victim| victim.reclaim_unless_room(incoming, over, worker)) {
                Some(freed) if freed > 0 => fruitless = 0,
                // Another thread has made room meanwhile.
                None => {}
                Some(_) if fruitless < MAX_FRUITLESS_WAITS && !self.is_full() && !self.is_pinned_full() => {
                    // Others are evicting: their pages will be free in a moment.
                    fruitless += 1;
                    std::thread::sleep(Duration::from_micros(u64::from(fruitless) * 10));
                }
                // Only the program can make room by unpinning; it would not get there.
                Some(_) if self.is_pinned_full() && !self.is_full() => {
                    self.counts.limit_overruns.fetch_add(pages, Ordering::Relaxed);
                    self.budget.charge_anyway(pages);
                    break;
                }
                Some(_) => match self.options.on_full {
                    OnFull::Grow => {
                        self.counts.limit_overruns.fetch_add(pages, Ordering::Relaxed);
                        self.budget.charge_anyway(pages);
                        break;
                    }
                    OnFull::Block => std::thread::sleep(Duration::from_millis(1)),
                    OnFull::End => crate::report::end("the store is full and the budget is used up (on-full is `end`)"),
                },
            }
        }
        let (_, room) = self.budget.tightest();
        if room < self.reserve() {
            threads::wake_evictor(self);
        }
    }

    /// Whether pins leave nothing to evict: the budget has shrunk since.
    fn is_pinned_full(&self) -> bool {
        self.pins.count() + self.reserve() as u64 >= self.budget.maximum_pages()
    }

    /// Tells the policy, sooner or later, that a page changed.
    pub(crate) fn report(&self, page: PageId) {
        let full = {
            let mut reports = self.reports.lock().expect("invariant: nothing panics under this lock");
            reports.push(page);
            reports.len() >= REPORTS
        };
        if full {
            let mut engine = self.engine();
            self.take_reports(&mut engine);
        }
    }

    /// Brings the policy up to date with all pages that changed.
    pub(crate) fn take_reports(&self, engine: &mut Engine) {
        engine.set_unread(self.read_ahead.pages());
        // In pieces, so that the fault path waits only for a copy and nothing is allocated.
        loop {
            let mut piece = [0; 256];
            let count = {
                let mut reports = self.reports.lock().expect("invariant: nothing panics under this lock");
                let count = reports.len().min(piece.len());
                piece[..count].copy_from_slice(&reports[..count]);
                reports.drain(..count);
                count
            };
            if count == 0 {
                return;
            }
            for page in &piece[..count] {
                engine.reconcile(*page, self.ranges.hint(*page).pattern());
            }
        }
    }

    /// Evicts some `goal` pages that the policy chooses; returns how many left memory.
    pub(crate) fn reclaim(&self, goal: u32, worker: &mut FaultScratch) -> u64 {
        let engine = self.engine();
        self.reclaim_with(engine, goal, None, worker)
    }

    /// The same, or `None` if there is room in `budget` by the time that this thread may choose.
    fn reclaim_unless_room(&self, incoming: Option<PageId>, budget: &Budget, worker: &mut FaultScratch) -> Option<u64> {
        let engine = self.engine();
        if budget.tightest().1 > 0 {
            return None;
        }
        Some(self.reclaim_with(engine, DIRECT_GOAL, incoming, worker))
    }

    fn reclaim_with(
        &self,
        mut engine: MutexGuard<'_, Engine>,
        goal: u32,
        incoming: Option<PageId>,
        worker: &mut FaultScratch,
    ) -> u64 {
        if self.is_full() {
            if (self.start.elapsed().as_millis() as u64) < self.full_retry.load(Ordering::Relaxed) {
                return 0;
            }
            self.full.store(false, Ordering::Relaxed);
        }
        let mut victims = std::mem::take(&mut worker.victims);
        victims.clear();
        self.take_reports(&mut engine);
        engine.choose(goal, incoming, self.is_full(), &mut victims);
        let collected = self.drops.collect(&mut engine);
        drop(engine);
        if collected {
            threads::wake_evictor(self);
        }
        victims.sort_unstable();
        let freed = self.evict(&mut victims, worker);
        worker.victims = victims;
        freed
    }

    /// Drops some of the entries whose access was taken. False if there are no more.
    pub(crate) fn drop_some(&self) -> bool {
        let Some(step) = self.drops.step() else { return false };
        // SAFETY: the runs lie in the arena's mapping, which is shared.
        unsafe { step.drop_entries(self.arena.base()) };
        self.engine().bits().finish_drops(&step);
        true
    }

    /// Notes how old the oldest generation is. Allocates: not for the fault path.
    pub(crate) fn note_oldest_birth(&self) {
        let birth = self.engine().generations().first().map_or(0, |oldest| oldest.birth);
        self.oldest_birth.store(birth, Ordering::Relaxed);
    }

    /// Nanoseconds since the oldest generation was created; 0 for policies without generations.
    pub(crate) fn oldest_generation_age(&self) -> u64 {
        match self.oldest_birth.load(Ordering::Relaxed) {
            0 => 0,
            birth => (self.start.elapsed().as_nanos() as u64).saturating_sub(birth),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    pub(crate) fn note_full(&self, error: StoreError) {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
        self.full.store(true, Ordering::Relaxed);
        self.full_releases.store(FULL_RELEASES, Ordering::Relaxed);
        self.full_retry.store(self.start.elapsed().as_millis() as u64 + FULL_RETRY_MS, Ordering::Relaxed);
        if !self.full_said.swap(true, Ordering::Relaxed) {
            crate::report::say(format_args!("{error}; nothing is evicted until space is released"));
        }
    }

    pub(crate) fn release(&self, slot: u64) {
        self.store.release(Slot::from_bits(slot));
        if self.is_full() && self.full_releases.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.full.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_userfaultfd_is_not_told_to_become_root() {
        let said = |number| PagerError::NotPermitted(io::Error::from_raw_os_error(number)).to_string();
        assert!(said(libc::ENOSYS).contains("built without it") && !said(libc::ENOSYS).contains("root"));
        assert!(said(libc::EPERM).contains("as root or with CAP_SYS_PTRACE"));
    }
}
