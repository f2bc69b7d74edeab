//! Reading evicted pages where they are: a load that finds a page which is worth less than those in memory gets its bytes from
//! the compressed copy, and the page stays out ([`PagerOptions::read_in_place`]).
//!
//! The thread that faults has the instruction at hand ([`crate::load`]); it decompresses the page into a buffer of
//! its own, takes the bytes from there, and goes on behind the instruction. No frame is filled, none is freed for it, no
//! page-table entry changes. What a page must be worth is the policy's business ([`refault_core::Policy::STAYS_OUT`]): a
//! reference served like this counts in the page's shadow entry, and the page comes in when it is worth it. So does one that is
//! touched again shortly after, and where that happens more often than not nothing is read in place for a while. Stores, and
//! loads that this module does not know, bring the page in.
//!
//! Invariants: bytes are taken while this thread owns the page, so that nobody can write to it; only the instruction that
//! faulted is carried out, and only if all its bytes lie in the page that it faulted on. Cost: a signal, reading the store, 1 KiB
//! a pager; a fault that it does not serve pays some 20 ns.
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
use crate::state::State;
use crate::trial::Trial;
use crate::worker::Worker;

/// Places in which pages that were just read are remembered.
const RECENT: usize = 256;

/// References after which the evictor is woken to tell the policy of them.
const MANY: u32 = 1024;

/// Reads out of eight after which the page may be touched again at once: such a one costs half of what another saves.
const MOST_AGAIN: u32 = 4;

pub(crate) struct InPlace {
    stays_out: Option<fn(Shadow, Bar) -> Option<Shadow>>,
    /// The bar, as of some moment. A pair of different moments is a bar too, only not the best.
    now: AtomicU64,
    least: AtomicU64,
    /// References that the policy has not heard of.
    untold: AtomicU32,
    /// Pages (plus one) that were just read, each in the place of its hash.
    recent: [AtomicU32; RECENT],
    trial: Trial,
}

impl InPlace {
    /// `None`: pages are not read in place.
    pub(crate) fn new(stays_out: Option<fn(Shadow, Bar) -> Option<Shadow>>) -> InPlace {
        if stays_out.is_some() {
            crate::interrupted::prepare();
        }
        InPlace {
            stays_out,
            now: AtomicU64::new(0),
            least: AtomicU64::new(0),
            untold: AtomicU32::new(0),
            recent: [const { AtomicU32::new(0) }; RECENT],
            trial: Trial::new(MOST_AGAIN),
        }
    }

    /// Whether any page may be read in place.
    pub(crate) fn is_on(&self) -> bool {
        self.stays_out.is_some() && self.least.load(Ordering::Relaxed) > 0
    }

    /// Whether there is much to tell the policy.
    pub(crate) fn has_news(&self) -> bool {
        self.untold.load(Ordering::Relaxed) >= MANY
    }

    /// Tells the policy what happened, and hears from it what pages must be worth.
    pub(crate) fn tell(&self, engine: &mut Engine) {
        if self.stays_out.is_some() {
            let references = self.untold.swap(0, Ordering::Relaxed);
            let bar = engine.referenced_outside(references as usize);
            self.now.store(bar.now, Ordering::Relaxed);
            self.least.store(bar.least, Ordering::Relaxed);
        }
    }

    /// What the shadow entry of a page becomes that is to stay out.
    fn stays_out(&self, page: PageId, shadow: Option<Shadow>) -> Option<Shadow> {
        let bar = Bar { now: self.now.load(Ordering::Relaxed), least: self.least.load(Ordering::Relaxed) };
        let referenced = self.stays_out?(shadow?, bar)?;
        let recent = &self.recent[(page.wrapping_mul(0x9e37_79b9) >> 24) as usize];
        if recent.load(Ordering::Relaxed) == page + 1 {
            recent.store(0, Ordering::Relaxed);
            self.trial.lost();
            return None;
        }
        if !self.trial.next() {
            return None;
        }
        recent.store(page + 1, Ordering::Relaxed);
        Some(referenced)
    }
}

impl Inner {
    /// Reads an evicted page into the worker's first buffer and lets it stay where it is, if that is best. False if it is
    /// not, or the page is not evicted, or cannot be read.
    pub(crate) fn read_in_place(&self, page: PageId, worker: &mut Worker, streams: &Streams) -> bool {
        let word = self.word(page);
        let seen = word.load();
        let slot = Slot::from_bits(seen.slot());
        // A page that was read from a file is worth a frame.
        if seen.state() != State::Stored || slot.tier() == Tier::File {
            return false;
        }
        // Of a page that is read in order all is read, and its successors are to come along.
        let in_order = streams.lead_to(page)
            || matches!(self.ranges.hint(page), Hint::Sequential | Hint::Cyclic)
            || self.cycles.covers(page);
        if in_order {
            return false;
        }
        let Some(shadow) = self.in_place.stays_out(page, self.table.shadow(page)) else { return false };
        if !word.begin(seen, State::Filling) {
            return false;
        }
        let _stall = self.pressure.stall();
        // One that fails is found out again by the fault that brings the page in, which knows what to do.
        let read = self.store.read(slot, &mut worker.pages[0], &mut worker.scratch).is_ok();
        if read {
            self.table.set_shadow(page, shadow);
        }
        if word.finish_read(seen.slot()) {
            let _ = self.uffd.wake(self.arena.address(page), refault_store::PAGE_SIZE);
        }
        if read {
            self.counts.read_in_place.fetch_add(1, Ordering::Relaxed);
            // As if it had come in and gone at once.
            self.distances.returned(page);
            self.distances.evicted(page);
            if self.in_place.untold.fetch_add(1, Ordering::Relaxed) + 1 == MANY {
                crate::threads::wake_evictor(self);
            }
        }
        read
    }
}
