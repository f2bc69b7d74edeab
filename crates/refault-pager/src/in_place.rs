//! Reading evicted pages where they are: a load that finds a page which is worth less than those in memory gets its bytes from
//! the compressed copy, and the page stays out ([`PagerOptions::read_in_place`]).
//!
//! The thread that faults has the instruction at hand ([`crate::load`]); it decompresses the page into a buffer of
//! its own, takes the bytes from there, and goes on behind the instruction. No frame is filled, none is freed for it, no
//! page-table entry changes. What a page must be worth is the policy's business ([`refault_core::Policy::STAYS_OUT`]): a
//! reference served like this counts in the page's shadow entry, and the page comes in when it is worth it. So does one that is
//! touched again shortly after, in whatever way; where that happens to more than three pages in eight nothing is read in place for a while. Nor is
//! it while there is room. Stores, and
//! loads that this module does not know, bring the page in.
//!
//! Invariants: bytes are taken while this thread owns the page, so that nobody can write to it; only the instruction that
//! faulted is carried out, and only if all its bytes lie in the page that it faulted on. Cost: a signal, reading the store, 4 KiB
//! a pager; a fault that it does not serve pays some 20 ns, or, where code is protected by keys, a system call if its page
//! was worth a look.
//!
//! [`PagerOptions::read_in_place`]: crate::PagerOptions::read_in_place

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use refault_core::policy::Bar;
use refault_core::{PageId, Shadow};
use refault_store::{Slot, Tier};

use crate::engine::Engine;
use crate::fault::Streams;
use crate::pager::Inner;
use crate::region::Hint;
use crate::state::{State, Word};
use crate::trial::Trial;
use crate::worker::Worker;

/// Places in which pages that were just read are remembered.
const RECENT: usize = 256;

/// References after which the evictor is woken to tell the policy of them.
const MANY: u32 = 1024;

/// Reads out of eight whose page may be touched again at once: such a one costs as much as another saves.
const MOST_AGAIN: u32 = 3;

/// Reserves of free memory from which on a page that comes in costs no eviction that would not be made anyway.
const ROOM: i64 = 4;

type StaysOut = fn(Shadow, Bar) -> Option<Shadow>;

/// A page that was just read. The two belong to different pages where two threads meet, which costs a page a wrong worth.
#[derive(Default)]
struct Recent {
    /// Plus one; 0: none.
    page: AtomicU32,
    /// Its shadow entry without that reference.
    before: AtomicU64,
}

pub(crate) struct InPlace {
    stays_out: Option<StaysOut>,
    /// The bar, as of some moment. A pair of different moments is a bar too, only not the best.
    now: AtomicU64,
    least: AtomicU64,
    /// References that the policy has not heard of.
    untold: AtomicU32,
    /// Each in the place of its hash.
    recent: Vec<Recent>,
    trial: Trial,
}

impl InPlace {
    /// `None`: pages are not read in place.
    pub(crate) fn new(stays_out: Option<StaysOut>) -> InPlace {
        if stays_out.is_some() {
            crate::interrupted::prepare();
        }
        let places = if stays_out.is_some() { RECENT } else { 0 };
        InPlace {
            stays_out,
            now: AtomicU64::new(0),
            least: AtomicU64::new(0),
            untold: AtomicU32::new(0),
            recent: std::iter::repeat_with(Recent::default).take(places).collect(),
            trial: Trial::new(MOST_AGAIN),
        }
    }

    /// Whether there is much to tell the policy.
    pub(crate) fn has_news(&self) -> bool {
        self.untold.load(Ordering::SeqCst) >= MANY
    }

    /// Tells the policy what happened, and hears from it what pages must be worth.
    pub(crate) fn tell(&self, engine: &mut Engine) {
        if self.stays_out.is_some() {
            let references = self.untold.swap(0, Ordering::SeqCst);
            let bar = engine.referenced_outside(references as usize);
            self.now.store(bar.now, Ordering::Relaxed);
            self.least.store(bar.least, Ordering::Relaxed);
        }
    }

    /// What the shadow entry of a page becomes that is to stay out.
    fn referenced(&self, shadow: Option<Shadow>) -> Option<Shadow> {
        let least = self.least.load(Ordering::Relaxed);
        let bar = Bar { now: self.now.load(Ordering::Relaxed), least };
        self.stays_out.filter(|_| least > 0)?(shadow?, bar)
    }

    fn recent(&self, page: PageId) -> Option<&Recent> {
        self.recent.get((page.wrapping_mul(0x9e37_79b9) >> 24) as usize)
    }

    fn was_just_read(&self, page: PageId) -> bool {
        self.recent(page).is_some_and(|recent| recent.page.load(Ordering::Relaxed) == page + 1)
    }
}

impl Inner {
    /// Whether a load of this page may be served in place. Changes nothing.
    pub(crate) fn may_read_in_place(&self, page: PageId) -> bool {
        let Some(_) = self.in_place.referenced(self.table.shadow(page)) else { return false };
        let seen = self.word(page).load();
        // A page that was read from a file is worth a frame.
        seen.state() == State::Stored
            && Slot::from_bits(seen.slot()).tier() != Tier::File
            && !self.in_place.was_just_read(page)
            && self.budget.tightest().1 < ROOM * self.reserve()
    }

    /// Reads an evicted page into the worker's first buffer and lets it stay where it is, if that is best. False if it is
    /// not, or the page is not evicted, or cannot be read.
    pub(crate) fn read_in_place(&self, page: PageId, worker: &mut Worker, streams: &Streams) -> bool {
        // Of a page that is read in order all is read, and its successors are to come along.
        let in_order = streams.lead_to(page)
            || matches!(self.ranges.hint(page), Hint::Sequential | Hint::Cyclic)
            || self.cycles.covers(page);
        let (word, seen) = (self.word(page), self.word(page).load());
        if in_order || !self.may_read_in_place(page) || !self.in_place.trial.next() {
            return false;
        }
        if seen.state() != State::Stored || !word.begin(seen, State::Filling) {
            return false;
        }
        let read = self.read_owned(page, seen, worker);
        let waited = if read { word.finish_read(seen.slot()) } else { word.finish(State::Stored, seen.slot(), false) };
        if waited {
            let _ = self.uffd.wake(self.arena.address(page), refault_store::PAGE_SIZE);
        }
        if read && self.in_place.untold.fetch_add(1, Ordering::SeqCst) + 1 >= MANY {
            crate::threads::wake_evictor(self);
        }
        read
    }

    /// Reads a stored page that this thread owns, and notes the reference. One that fails is found out again by the fault that
    /// brings the page in, which knows what to do.
    fn read_owned(&self, page: PageId, seen: Word, worker: &mut Worker) -> bool {
        let before = self.table.shadow(page);
        let Some(referenced) = self.in_place.referenced(before) else { return false };
        let _stall = self.pressure.stall();
        let slot = Slot::from_bits(seen.slot());
        if self.store.read(slot, &mut worker.pages[0], &mut worker.scratch).is_err() {
            return false;
        }
        self.table.set_shadow(page, referenced);
        if let (Some(recent), Some(before)) = (self.in_place.recent(page), before) {
            recent.before.store(before.0, Ordering::Relaxed);
            recent.page.store(page + 1, Ordering::Relaxed);
        }
        self.counts.read_in_place.fetch_add(1, Ordering::Relaxed);
        // As if it had come in and gone at once.
        self.distances.returned(page);
        self.distances.evicted(page);
        true
    }

    /// A stored page that this thread owns comes in. If it was just read in place, that was in vain, and both are one reference.
    pub(crate) fn note_comes_in(&self, page: PageId) {
        if self.in_place.was_just_read(page)
            && let Some(recent) = self.in_place.recent(page)
        {
            recent.page.store(0, Ordering::Relaxed);
            self.table.set_shadow(page, Shadow(recent.before.load(Ordering::Relaxed)));
            self.in_place.trial.lost();
        }
    }
}
