//! Accesses to evicted pages where they are: an instruction that finds a page which is worth less than twice what went last
//! has its bytes from the stored copy, or in it, and the page stays out ([`PagerOptions::in_place`]).
//!
//! The thread that faults has the instruction at hand ([`crate::interrupted`]); it reads the page into a buffer of its own, takes
//! the bytes from there, and goes on behind the instruction. What it writes it puts into the buffer and stores that
//! anew. No frame is filled, none is freed for it, no page-table entry changes. What a page must be worth is the policy's
//! business ([`refault_core::policy::Bypass`]): a reference served like this counts in the page's shadow entry, and the page comes in when it
//! is worth it. So does one that is touched again shortly after, in whatever way; an instruction to which that happens with
//! more than three pages in eight brings its pages in for a while, because what one does with its pages it mostly goes on
//! doing (Wu et al., *SHiP: Signature-based Hit Predictor*, MICRO 2011). Nothing is done in place while there is room, or where pages
//! are accessed in order.
//!
//! Invariants: bytes are taken and put while this thread owns the page, so that nobody else can; only the instruction that
//! faulted is carried out, and only if all its bytes lie in the page that it faulted on; none is once the program has taken access
//! rights away, because a write that the kernel has let through could come after that. Cost: a signal, reading the store (and
//! writing it), 10 KiB a pager; a fault that it does not serve pays some 20 ns, or, where code is protected by keys, a system call if its page
//! was worth a look.
//!
//! [`PagerOptions::in_place`]: crate::PagerOptions::in_place

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use refault_core::policy::{AdmissionFilter, AdmissionThreshold};
use refault_core::{PageId, Shadow};
use refault_store::{Slot, StoreError, Tier};

use crate::engine::Engine;
use crate::fault::Streams;
use crate::interrupted::Interrupted;
use crate::pager::Inner;
use crate::region::Hint;
use crate::state::State;
use crate::trial::Trial;
use crate::worker::Worker;

/// Places in which pages that were just accessed in place are remembered.
const RECENT: usize = 256;

/// References after which the evictor is woken to tell the policy of them.
const MANY: u32 = 1024;

/// Accesses out of eight whose page may be touched again at once: such a one costs as much as another saves.
const MOST_AGAIN: u32 = 3;

/// Trials, each for the instructions of a hash.
const TRIALS: usize = 256;

/// Accesses in place after which it is looked how many were in vain.
const WINDOW: u32 = 256;

/// Reserves of free memory from which on a page that comes in costs no eviction that would not be made anyway.
const ROOM: i64 = 4;

/// A page that was just accessed in place. What it says may belong to different pages where two threads meet, which costs a page a wrong worth.
#[derive(Default)]
struct Recent {
    /// Plus one; 0: none.
    page: AtomicU32,
    /// Its shadow entry without that reference.
    before: AtomicU64,
    /// The trial of the instruction.
    trial: AtomicU32,
}

pub(crate) struct InPlace {
    filter: Option<AdmissionFilter>,
    /// The admission threshold, as of some moment. A pair of different moments is a threshold too, only not the best.
    clock: AtomicU64,
    min_rank: AtomicU64,
    /// References that the policy has not heard of.
    untold: AtomicU32,
    /// Each in the place of its hash.
    recent: Vec<Recent>,
    trials: Vec<Trial>,
    /// Access rights are taken away: nothing is done in place any more.
    ended: AtomicBool,
    /// Threads that are at an access.
    inside: AtomicU32,
}

impl InPlace {
    /// `None`: nothing is done in place.
    pub(crate) fn new(filter: Option<AdmissionFilter>) -> InPlace {
        if filter.is_some() {
            crate::interrupted::prepare();
        }
        let (places, trials) = if filter.is_some() { (RECENT, TRIALS) } else { (0, 0) };
        InPlace {
            filter,
            clock: AtomicU64::new(0),
            min_rank: AtomicU64::new(0),
            untold: AtomicU32::new(0),
            recent: std::iter::repeat_with(Recent::default).take(places).collect(),
            trials: std::iter::repeat_with(|| Trial::new(WINDOW, MOST_AGAIN)).take(trials).collect(),
            ended: AtomicBool::new(false),
            inside: AtomicU32::new(0),
        }
    }

    /// Calls `access`, unless nothing is done in place any more.
    fn unless_ended<T>(&self, access: impl FnOnce() -> Option<T>) -> Option<T> {
        self.inside.fetch_add(1, Ordering::SeqCst);
        let outcome = if self.ended.load(Ordering::SeqCst) { None } else { access() };
        self.inside.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    /// Nothing is done in place from now on. Returns when nobody is at it.
    pub(crate) fn end(&self) {
        if self.filter.is_some() && !self.ended.swap(true, Ordering::SeqCst) {
            self.min_rank.store(0, Ordering::Relaxed);
        }
        while self.inside.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }

    /// Whether there is much to tell the policy.
    pub(crate) fn has_news(&self) -> bool {
        self.untold.load(Ordering::SeqCst) >= MANY
    }

    /// Tells the policy what happened, and hears from it what pages must be worth.
    pub(crate) fn tell(&self, engine: &mut Engine) {
        if self.filter.is_some() {
            let references = self.untold.swap(0, Ordering::SeqCst);
            let threshold = engine.bypassed(references as usize);
            self.clock.store(threshold.clock, Ordering::Relaxed);
            let min_rank = if self.ended.load(Ordering::Relaxed) { 0 } else { threshold.min_rank };
            self.min_rank.store(min_rank, Ordering::Relaxed);
        }
    }

    /// What the shadow entry of a page becomes that is to stay out.
    fn referenced(&self, shadow: Option<Shadow>) -> Option<Shadow> {
        let min_rank = self.min_rank.load(Ordering::Relaxed);
        let threshold = AdmissionThreshold { clock: self.clock.load(Ordering::Relaxed), min_rank };
        self.filter.filter(|_| min_rank > 0)?(shadow?, threshold)
    }

    fn recent(&self, page: PageId) -> Option<&Recent> {
        self.recent.get((page.wrapping_mul(0x9e37_79b9) >> 24) as usize)
    }

    fn was_just_accessed(&self, page: PageId) -> bool {
        self.recent(page).is_some_and(|recent| recent.page.load(Ordering::Relaxed) == page + 1)
    }
}

impl Inner {
    /// Whether an access to this page may be served in place. Changes nothing.
    pub(crate) fn may_stay_out(&self, page: PageId) -> bool {
        let Some(_) = self.in_place.referenced(self.table.shadow(page)) else { return false };
        let seen = self.word(page).load();
        // A page that was read from a file is worth a frame.
        seen.state() == State::Stored
            && Slot::from_bits(seen.slot()).tier() != Tier::File
            && !self.in_place.was_just_accessed(page)
            && self.budget.tightest().1 < ROOM * self.reserve()
    }

    /// Carries out an instruction on an evicted page and lets that stay where it is, if that is best. False, and nothing done, if it is
    /// not, or the page is not evicted, or cannot be read or stored.
    pub(crate) fn access_in_place(
        &self,
        page: PageId,
        instruction: &mut Interrupted<'_>,
        worker: &mut Worker,
        streams: &Streams,
    ) -> bool {
        // Of a page that is accessed in order all is, and its successors are to come along.
        let in_order = streams.lead_to(page)
            || matches!(self.ranges.hint(page), Hint::Sequential | Hint::Cyclic)
            || self.cycles.covers(page);
        let (word, seen) = (self.word(page), self.word(page).load());
        let trial = instruction.hash() % TRIALS as u32;
        if in_order || !self.may_stay_out(page) || !self.in_place.trials[trial as usize].next() {
            return false;
        }
        if seen.state() != State::Stored || !word.begin(seen, State::Filling) {
            return false;
        }
        let access = || self.access_owned(page, seen.slot(), instruction, worker);
        let stored = self.in_place.unless_ended(access);
        if let (Some(_), Some(recent)) = (stored, self.in_place.recent(page)) {
            recent.trial.store(trial, Ordering::Relaxed);
        }
        let waited = match stored {
            Some(slot) => word.finish_accessed(slot),
            None => word.finish(State::Stored, seen.slot(), false),
        };
        if waited {
            let _ = self.uffd.wake(self.arena.address(page), refault_store::PAGE_SIZE);
        }
        if stored.is_some() && self.in_place.untold.fetch_add(1, Ordering::SeqCst) + 1 >= MANY {
            crate::threads::wake_evictor(self);
        }
        stored.is_some()
    }

    /// Carries out an instruction on a stored page that this thread owns, and notes the reference; the page's slot from now on. What
    /// fails is found out again by the fault that brings the page in, which knows what to do.
    fn access_owned(
        &self,
        page: PageId,
        slot: u64,
        instruction: &mut Interrupted<'_>,
        worker: &mut Worker,
    ) -> Option<u64> {
        let before = self.table.shadow(page)?;
        let referenced = self.in_place.referenced(Some(before))?;
        let _stall = self.pressure.stall();
        let contents = &mut worker.pages[0];
        self.store.read(Slot::from_bits(slot), contents, &mut worker.scratch).ok()?;
        let (slot, count) = if instruction.writes() {
            instruction.write(contents);
            let mut stored = [Err(StoreError::Full(""))];
            self.store.write(&[contents], &mut worker.scratch, &mut stored);
            let new = stored[0].ok()?.bits();
            self.release(slot);
            self.counts.stored.fetch_add(1, Ordering::Relaxed);
            instruction.end();
            (new, &self.counts.written_in_place)
        } else if instruction.read(contents) {
            (slot, &self.counts.read_in_place)
        } else {
            return None;
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.table.set_shadow(page, referenced);
        if let Some(recent) = self.in_place.recent(page) {
            recent.before.store(before.0, Ordering::Relaxed);
            recent.page.store(page + 1, Ordering::Relaxed);
        }
        // As if it had come in and gone at once.
        self.distances.returned(page);
        self.distances.evicted(page);
        Some(slot)
    }

    /// A stored page that this thread owns comes in. If it was just accessed in place, that was in vain, and both are one
    /// reference.
    pub(crate) fn note_comes_in(&self, page: PageId) {
        if self.in_place.was_just_accessed(page)
            && let Some(recent) = self.in_place.recent(page)
        {
            recent.page.store(0, Ordering::Relaxed);
            self.table.set_shadow(page, Shadow(recent.before.load(Ordering::Relaxed)));
            self.in_place.trials[recent.trial.load(Ordering::Relaxed) as usize].lost();
        }
    }
}
