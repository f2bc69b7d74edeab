//! A process's part of what its tree may use together ([`crate::tree`]).
//!
//! Each process has a slot with its charge; the sum is kept beside them. A process that died without giving its charge
//! back is found when another needs room.
//!
//! A page is reserved before it is taken: the sum cannot pass the limit, even if processes reserve at the same time. A
//! process that finds no room says what it would like; [`crate::tree::share`] divides what each may have then.
//!
//! Where it lies: `segment`.
//!
//! Invariants: the sum is that of the slots, up to calls in progress. A process changes no slot but its own, those of
//! the dead and the charges of its children. The sum exceeds the limit only by what processes cannot do without
//! ([`MIN_PAGES`]) or cannot move. Cost: one atomic addition when a charge changes; while a process lacks memory, a
//! look at all slots per request.
//!
//! ```
//! use refault_linux::sys;
//! use refault_paging::{Account, PAGE, Shared};
//!
//! // SAFETY: a fresh mapping of atomics, for which zeros are values; it is never given up.
//! let shared: &Shared = unsafe { &*(sys::map(Shared::BYTES) as *const Shared) };
//! shared.set_limit(1000 * PAGE as u64);
//! // SAFETY: the segment stays mapped.
//! let mut account = unsafe { Account::join(shared, None) };
//! assert!(account.reserve(400));
//! assert!(!account.reserve(4000)); // and nothing changes
//! assert_eq!(shared.living().count(), 1);
//! ```

use core::sync::atomic::Ordering;

use refault_core::Counters;
use refault_core::policy::GenerationSize;

use crate::figures::{Statistics, Usage};
use crate::tree::inherited::Inherited;
use crate::tree::plea::Waiting;
use crate::tree::visit::Visitor;
use crate::tree::{MIN_LOCKED, MIN_PAGES, Shared, Slot, TAKEN, is_elsewhere, without_slack};
use refault_linux::calls::SYS_kill;
use refault_linux::errno::ESRCH;
use refault_linux::sys;

/// A process that has next to nothing waits for others to give it room: [`MAX_NAPS`] of [`NAP`] at most. If that was in
/// vain, it does not try again for [`DISCOURAGED`]. Nanoseconds.
const NAP: u64 = 300_000;
const MAX_NAPS: u32 = 100;
const DISCOURAGED: u64 = 1_000_000_000;
/// Nanoseconds between two times that a process makes known what it lacks.
const ASK_EVERY: u64 = 500_000;
/// Bytes with which a program may get on: the agent alone takes 0.4 MiB of a process that does nothing, and 0.8 of one
/// whose pages go to a file.
pub const MIN_PROGRAM_BYTES: u64 = 2 << 20;

/// A process's part in it.
pub struct Account {
    shared: *const Shared,
    slot: Option<usize>,
    /// [`Slot::turn`] when it got it.
    turn: u32,
    charged: i64,
    /// Pages of its own budget, if it has one.
    own_limit: Option<u64>,
    /// See [`crate::tree::inherited`].
    inherited: Inherited,
    /// Pages that it has ceased to share so far.
    gave: u64,
    /// Pages that it has stored so far and that others know of.
    stored: u64,
    /// Pages that are or were stored here and that others had too, those of its parent before the fork among them.
    apart: u64,
    /// What it reserves now is for a child that may never use it.
    ahead: bool,
    /// It may have children that share pages with it.
    has_heirs: bool,
    /// The slot of a child that is about to be.
    birth: Option<usize>,
    /// When it last said what it lacks, and until when it does not wait for others.
    said: u64,
    discouraged: u64,
}

// SAFETY: the segment holds atomics only and stays mapped.
unsafe impl Send for Account {}

impl Account {
    /// Joins a tree.
    ///
    /// # Safety
    /// The segment stays mapped as long as the process lives.
    pub unsafe fn join(shared: *const Shared, own_limit: Option<u64>) -> Account {
        let mut account = Account {
            shared,
            slot: None,
            turn: 0,
            charged: 0,
            own_limit,
            inherited: Inherited::default(),
            gave: 0,
            stored: 0,
            apart: 0,
            ahead: false,
            has_heirs: false,
            birth: None,
            said: 0,
            discouraged: 0,
        };
        account.enter();
        account
    }

    /// The segment.
    pub fn shared(&self) -> &Shared {
        // SAFETY: it stays mapped (promised to `join`).
        unsafe { &*self.shared }
    }

    fn enter(&mut self) {
        let number = self.shared().known_as(sys::process_id());
        self.slot = self.take_slot(number, 0);
        self.entered();
        self.gave = 0;
        self.faulted(sys::now());
    }

    /// Remembers which turn of its slot is this process's: who was taken for dead has it no more.
    fn entered(&mut self) {
        self.turn = self.slot.map_or(0, |slot| self.shared().slots[slot].turn.load(Ordering::Relaxed));
    }

    /// A free slot, for a process or [`TAKEN`], whose parent is `lender` ([`Slot::lender`]).
    fn take_slot(&self, process: i32, lender: u64) -> Option<usize> {
        let slots = &self.shared().slots;
        let free = |slot: &Slot| slot.process.compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let slot = slots.iter().position(free).or_else(|| {
            // No reader has come yet for the figures of those that have ended.
            self.shared().collect(|_, _, _| {});
            slots.iter().position(free)
        })?;
        slots[slot].turn.fetch_add(1, Ordering::Relaxed);
        slots[slot].wanted.store(0, Ordering::Relaxed);
        slots[slot].said.store(0, Ordering::Relaxed);
        slots[slot].tight.store(i64::MAX, Ordering::Relaxed);
        slots[slot].gave.store(0, Ordering::Relaxed);
        slots[slot].has.store(0, Ordering::Relaxed);
        slots[slot].apart.store(0, Ordering::Relaxed);
        slots[slot].lender.store(lender, Ordering::Relaxed);
        slots[slot].lent.store(0, Ordering::Relaxed);
        slots[slot].locked.store(0, Ordering::Relaxed);
        slots[slot].own.store(0, Ordering::Relaxed);
        slots[slot].deaf.store(0, Ordering::Relaxed);
        slots[slot].asking.store(0, Ordering::Relaxed);
        slots[slot].visit.forget();
        self.shared().used.fetch_max(slot as u32 + 1, Ordering::Relaxed);
        slots[slot].process.store(process, Ordering::Release);
        Some(slot)
    }

    /// What tells this process's children from those of others.
    fn lender_word(&self) -> Option<u64> {
        let slot = self.slot?;
        Some(Slot::lender_word(slot, self.shared().slots[slot].turn.load(Ordering::Relaxed)))
    }

    /// What tells a process and those that descend from it by forks from others.
    pub(crate) fn family(&self) -> u64 {
        self.lender_word().unwrap_or(1)
    }

    /// Pages charged to this process. Its parent may charge it too.
    fn charged(&self) -> i64 {
        self.slot.map_or(self.charged, |slot| self.shared().slots[slot].charged.load(Ordering::Relaxed))
    }

    /// Makes the counts known.
    pub fn publish(&self, statistics: &Statistics) {
        if let Some(slot) = self.slot {
            self.shared().figures[slot].statistics.store(statistics);
        }
    }

    /// Makes known what is in memory: pages where they belong, pages in the staging area, bytes of the pool; and in how
    /// many pages all of it could be held compressed.
    pub fn publish_memory(&mut self, resident: u64, parked: u64, pool: u64, tight: u64) {
        if let Some(slot) = self.slot {
            self.shared().slots[slot].tight.store(tight as i64, Ordering::Relaxed);
            self.shared().figures[slot].usage.store_memory(resident, parked, pool);
        }
    }

    /// Makes known where memory is and what the policy says.
    pub fn publish_state(
        &self,
        usage: &Usage,
        counters: &Counters,
        generations: &[GenerationSize],
        leader: Option<&str>,
    ) {
        if let Some(slot) = self.slot {
            let figures = &self.shared().figures[slot];
            figures.usage.store(usage);
            figures.store_policy(counters, generations, leader);
        }
    }

    /// A thread waits for a page that was there before, or does no longer.
    pub fn stalls(&self, stalls: bool) {
        if let Some(slot) = self.slot {
            self.shared().figures[slot].stalled.store(u32::from(stalls), Ordering::Relaxed);
        }
    }

    /// A page has come back that was stored when this clock was at `then`.
    pub fn came_back(&self, then: u64, statistics: &Statistics) {
        if self.slot.is_some() {
            let distance = self.stored_by_all(statistics).saturating_sub(then);
            self.shared().needed.count_among_others(self.tree_limit() + distance);
        }
    }

    /// A clock: pages that all processes have stored so far, this one's (`statistics`) up to now; of a budget of its
    /// own, those of this process alone.
    pub fn stored_by_all(&self, statistics: &Statistics) -> u64 {
        if self.own_limit.is_some() {
            return statistics.stored;
        }
        self.shared().stored.load(Ordering::Relaxed) + statistics.stored.saturating_sub(self.stored)
    }

    /// Pages are stored that a fork shares. With more memory they would be shared still.
    pub fn stored_apart(&mut self, pages: u64) {
        self.apart += pages;
        if let Some(slot) = self.slot {
            self.shared().slots[slot].apart.store(self.apart, Ordering::Relaxed);
        }
    }

    /// What is reserved from now on is for a child that may never use it, or is not any more: it is no use of memory.
    pub fn reserves_ahead(&mut self, ahead: bool) {
        self.ahead = ahead;
    }

    /// This process has `pages` pages in memory and out of it, the agent's among them, if those count that it shares.
    pub fn has(&mut self, pages: u64, statistics: &Statistics) {
        let shared = self.shared();
        let new = statistics.stored.saturating_sub(self.stored);
        if new > 0 {
            shared.stored.fetch_add(new, Ordering::Relaxed);
        }
        if let Some(slot) = self.slot {
            let common = self.inherited.common(shared, self.apart);
            let pages = (pages as i64 - common).max(0);
            let change = pages - shared.slots[slot].has.swap(pages, Ordering::Relaxed);
            if change != 0 {
                shared.have(change);
            }
        }
        self.stored = statistics.stored;
    }

    /// A fault took `nanoseconds` nanoseconds.
    pub fn took(&self, nanoseconds: u64) {
        if let Some(slot) = self.slot {
            self.shared().figures[slot].times.count(nanoseconds);
        }
    }

    /// Right before a fork. The child has a slot already, so that no process takes this one for one without children.
    /// Of what this process has reserved, `pages` are the child's from now on: others may take what is free now before
    /// it runs. It shares `shared` pages with this one.
    pub fn before_fork(&mut self, pages: u64, shared: u64) {
        self.inherited.lends();
        self.has_heirs = true;
        self.birth = self.lender_word().and_then(|word| self.take_slot(TAKEN, word));
        if let (Some(own), Some(birth)) = (self.slot, self.birth) {
            let slots = &self.shared().slots;
            let pages = (pages as i64).min(self.charged()).max(0);
            slots[birth].lent.store(shared as i64, Ordering::Relaxed);
            slots[birth].charged.fetch_add(pages, Ordering::Relaxed);
            slots[own].charged.fetch_sub(pages, Ordering::Relaxed);
            self.charged = self.charged();
        }
    }

    /// In the parent: the child is there, or the kernel's error. The child may have said so itself.
    pub fn has_forked(&mut self, child: i32) {
        if let Some(slot) = self.birth.take() {
            let Slot { process, charged, .. } = &self.shared().slots[slot];
            if child <= 0 {
                self.shared().total.fetch_sub(charged.swap(0, Ordering::Relaxed), Ordering::Relaxed);
            }
            let number = if child > 0 { self.shared().known_as(child) } else { 0 };
            let _ = process.compare_exchange(TAKEN, number, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// In a forked child: of what it has, `pages` are shared with the parent. They stay charged to the parent as long
    /// as that has them too. Beside them both have `stored` that are out of memory.
    pub fn after_fork(&mut self, pages: u64, stored: u64) {
        let turn = |slot: usize| self.shared().slots[slot].turn.load(Ordering::Relaxed);
        let lender = self.slot.map_or((0, 0), |slot| (slot, turn(slot)));
        self.inherited = Inherited::new(pages as i64, stored as i64, lender, self.gave, self.apart);
        self.apart = stored;
        (self.charged, self.stored, self.has_heirs) = (0, 0, false);
        match self.birth.take() {
            Some(slot) => {
                // The parent may have said so already, by a number that is as good or better: of a child that is the
                // first of its namespace it knows the one outside.
                let number = self.shared().known_as(sys::process_id());
                let process = &self.shared().slots[slot].process;
                let _ = process.compare_exchange(TAKEN, number, Ordering::AcqRel, Ordering::Relaxed);
                (self.slot, self.gave) = (Some(slot), 0);
                self.entered();
                self.faulted(sys::now());
            }
            None => self.enter(),
        }
    }

    /// Whether this process may share pages with a parent or with children.
    pub fn has_relatives(&mut self) -> bool {
        if self.has_heirs && self.birth.is_none() {
            self.has_heirs = self.lender_word().is_some_and(|word| self.shared().heirs(word).next().is_some());
        }
        self.has_heirs || self.inherited.is_any()
    }

    /// Whether others are charged for pages that this process has.
    pub fn is_lent(&self) -> bool {
        self.inherited.held(self.shared()) > 0
    }

    /// Pages that were shared are this process's own from now on, or have left its memory: whom they are left to is
    /// charged for them.
    pub fn unshared(&mut self, pages: u64) {
        if pages == 0 {
            return;
        }
        self.inherited.unshared(pages);
        let (Some(slot), true) = (self.slot, self.has_heirs) else { return };
        self.gave += pages;
        let shared = self.shared();
        shared.slots[slot].gave.store(self.gave, Ordering::Relaxed);
        let Some(word) = self.lender_word() else { return };
        // By equal parts: what they share with each other is not known here. Pages come one by one as a rule, so each
        // time another heir is the first; who has none of the parent's any more is none of them.
        let with_any = || shared.heirs(word).filter(|heir| heir.lent.load(Ordering::Relaxed) > 0);
        let heirs = with_any().count();
        let (first, mut rest) = ((self.gave / pages) as usize % heirs.max(1), pages as i64);
        for (index, heir) in with_any().chain(with_any()).skip(first).take(heirs).enumerate() {
            let less = |lent: i64| Some((lent - pages as i64).max(0));
            let lent = heir.lent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).unwrap_or(0);
            let part = (rest as u64).div_ceil((heirs - index) as u64) as i64;
            let part = part.min(lent);
            rest -= part;
            heir.charged.fetch_add(part, Ordering::Relaxed);
            shared.total.fetch_add(part, Ordering::Relaxed);
            if heir.lender.load(Ordering::Relaxed) == word && heir.process.load(Ordering::Acquire) != 0 {
                shared.raise_peak();
            } else {
                // It has ended at this moment, and given back what it knew of.
                heir.charged.fetch_sub(part, Ordering::Relaxed);
                shared.total.fetch_sub(part, Ordering::Relaxed);
            }
        }
    }

    /// Looks, now and then, how much of what was inherited is still shared. `all`: pages that this process has,
    /// inherited or not. True if it did.
    pub fn look_at_common(&mut self, all: u64) -> bool {
        let gave = self.inherited.is_without_look(self.shared());
        self.inherited.look(all as i64, gave)
    }

    /// Pages of this process that others are charged for.
    pub(crate) fn lent(&self) -> i64 {
        self.inherited.lent(self.shared())
    }

    /// This process needs its memory: it has faulted.
    pub fn faulted(&self, now: u64) {
        if let Some(slot) = self.slot {
            self.shared().slots[slot].faulted.store(now, Ordering::Relaxed);
        }
    }

    /// Pages that this process may use now: what is free beside its own, or less, while it has more than its part and
    /// others lack memory.
    pub fn limit(&self) -> u64 {
        let limit = self.to_give_out();
        if self.own_limit.is_some() {
            return limit + self.lent() as u64;
        }
        let shared = self.shared();
        let others = shared.total.load(Ordering::Relaxed) - self.charged();
        let free = limit as i64 - others.max(0);
        let allowed = match self.slot {
            Some(slot) if shared.lacking.load(Ordering::Relaxed) != 0 => shared.allowed(slot, limit, sys::now()),
            _ => free,
        };
        free.min(allowed).max(MIN_PAGES as i64) as u64 + self.lent() as u64
    }

    /// Pages with which this process has nothing that it could give up.
    pub fn least(&self) -> u64 {
        MIN_PAGES + self.lent() as u64
    }

    /// The limit without the slack, and without what the command takes.
    fn to_give_out(&self) -> u64 {
        self.own_limit.map_or_else(|| self.shared().to_give_out(), without_slack)
    }

    /// Uses `pages` pages from now on, if that does not exceed what all may use.
    pub fn reserve(&mut self, pages: u64) -> bool {
        let limit = self.to_give_out() as i64;
        let pages = (pages as i64 - self.lent()).max(0);
        let change = pages - self.charged();
        if change > 0 {
            if self.own_limit.is_some() {
                if pages > limit {
                    return false;
                }
                self.shared().total.fetch_add(change, Ordering::Relaxed);
            } else {
                let more = |total: i64| (total + change <= limit).then_some(total + change);
                if self.shared().total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
                    return false;
                }
            }
            self.charged_now(pages, change);
        } else {
            self.charge((pages + self.lent()) as u64);
        }
        true
    }

    /// Pages by which all would use more than they may, if this process used `pages` pages.
    pub(crate) fn lacks(&self, pages: u64) -> u64 {
        if self.own_limit.is_some() {
            return 0;
        }
        let change = pages as i64 - self.lent() - self.charged();
        (self.shared().total.load(Ordering::Relaxed) + change - self.to_give_out() as i64).max(0) as u64
    }

    /// Naps for the pool to raise the limit, so that this process may have `pages` pages. False: that is of no use.
    pub(crate) fn waits_for_pool(&self, pages: u64, waiting: &mut Waiting) -> bool {
        let shared = self.shared();
        let limit = shared.limit.load(Ordering::Relaxed);
        shared.plea.waits(limit, || self.lacks(pages), || shared.ask_again(), waiting)
    }

    /// This process would like to have `pages` pages and does not find room: others with more than their part give it.
    pub fn ask(&mut self, pages: u64) {
        let (shared, Some(slot)) = (self.shared(), self.slot) else { return };
        if self.own_limit.is_some() {
            return;
        }
        let now = sys::now();
        let own = &shared.slots[slot];
        own.faulted.store(now, Ordering::Relaxed);
        if now.saturating_sub(self.said) < ASK_EVERY {
            return;
        }
        let wanted = pages as i64 - self.lent();
        // More than that one page: who asks grows, and each request costs others a look.
        own.wanted.store(wanted + (wanted / 4).max(MIN_PAGES as i64 / 2), Ordering::Relaxed);
        own.said.store(now, Ordering::Relaxed);
        let others = shared
            .in_use()
            .enumerate()
            .any(|(index, other)| index != slot && other.charged.load(Ordering::Relaxed) > MIN_PAGES as i64);
        if others {
            shared.lacking.store(now, Ordering::Relaxed);
            shared.ask_again();
        }
        self.said = now;
    }

    /// Naps, for others to give room. False: they did not, and it is of no use to wait any longer.
    pub fn wait_for_room(&mut self, naps: u32) -> bool {
        let now = sys::now();
        if self.own_limit.is_some() || self.slot.is_none() || now < self.discouraged {
            return false;
        }
        if naps == MAX_NAPS {
            self.discouraged = now + DISCOURAGED;
            return false;
        }
        self.bury();
        sys::sleep(NAP);
        true
    }

    /// The program has `pages` pages locked, and the agent takes `own` of this process.
    pub fn locks(&self, pages: u64, own: u64) {
        if let Some(slot) = self.slot {
            self.shared().slots[slot].own.store(own, Ordering::Relaxed);
            self.shared().slots[slot].locked.store(pages, Ordering::Relaxed);
        }
    }

    /// Whether this process, of which the agent takes `own`, can lock `pages` pages beside what others have locked and
    /// cannot do without. They count as locked from then on, so that two processes that lock at once do not take the
    /// same room. [`MIN_LOCKED`] always can.
    pub fn may_lock(&self, pages: u64, own: u64) -> bool {
        let Some(slot) = self.slot.filter(|_| self.own_limit.is_none()) else {
            return pages <= MIN_LOCKED || pages + MIN_PAGES + own <= self.to_give_out();
        };
        let shared = self.shared();
        shared.slots[slot].own.store(own, Ordering::Relaxed);
        let before = shared.slots[slot].locked.swap(pages, Ordering::SeqCst);
        let mut fits = pages <= MIN_LOCKED || shared.unmovable() <= self.to_give_out();
        if !fits {
            // Some of it may be of processes that have been killed.
            // From another namespace those here look dead.
            if !is_elsewhere(shared.known_as(sys::process_id())) {
                shared.bury(is_gone);
            }
            fits = shared.unmovable() <= self.to_give_out();
        }
        if !fits {
            self.locks(before, own);
        }
        fits
    }

    /// What the tree may use.
    pub fn tree_limit(&self) -> u64 {
        self.own_limit.unwrap_or_else(|| self.shared().limit.load(Ordering::Relaxed))
    }

    /// This process uses no more pages than this now.
    pub fn lower(&mut self, pages: u64) {
        if pages as i64 - self.lent() < self.charged() {
            self.charge(pages);
        }
    }

    /// This process uses `pages` pages now.
    pub fn charge(&mut self, pages: u64) {
        let pages = (pages as i64 - self.lent()).max(0);
        let change = pages - self.charged();
        if change != 0 {
            self.shared().total.fetch_add(change, Ordering::Relaxed);
        }
        self.charged_now(pages, change);
    }

    /// The total has been changed already.
    fn charged_now(&mut self, pages: i64, change: i64) {
        self.charged = pages;
        let shared = self.shared();
        if change > 0 && !self.ahead {
            shared.raise_peak();
        }
        if let Some(slot) = self.slot {
            let slot = &shared.slots[slot];
            // Added, because the parent may have added something at this moment.
            slot.charged.fetch_add(change, Ordering::Relaxed);
            if self.inherited.is_any() || slot.lent.load(Ordering::Relaxed) != 0 {
                slot.lent.store(self.inherited.held(shared), Ordering::Relaxed);
            }
        }
    }

    /// The process ends, or becomes another program.
    pub fn leave(&mut self, statistics: &Statistics) {
        self.publish(statistics);
        // What was lent is not used any more either.
        self.inherited = Inherited::default();
        self.charge(0);
        if let Some(slot) = self.slot.take() {
            let place = &self.shared().slots[slot];
            let process = place.process.load(Ordering::Acquire);
            // A process that was taken for dead by mistake has lost its slot, perhaps to another.
            if process > 0 && place.turn.load(Ordering::Relaxed) == self.turn {
                self.shared().have(-place.has.swap(0, Ordering::Relaxed));
                self.shared().end(slot, process);
            }
            self.while_asked(slot);
        }
    }

    /// Another process that waits for memory of this one.
    pub fn visitor(&self) -> Option<Visitor<'static>> {
        // SAFETY: the segment stays mapped as long as the process lives (promised to `join`).
        let shared: &'static Shared = unsafe { &*self.shared };
        shared.slots[self.slot?].visitor()
    }

    /// This process, or a child that shares its memory, is about to become another program.
    pub fn executes(&self) {
        self.shared().executes();
    }

    /// This process does not hear [`crate::tree::MAKE_ROOM`] any more. Who is about to ask it has asked when this
    /// returns: at once as a rule, after 30 ms at most.
    pub fn is_deaf(&self) {
        if let Some(slot) = self.slot {
            self.shared().slots[slot].deaf.store(1, Ordering::SeqCst);
            self.while_asked(slot);
        }
    }

    /// It does after all.
    pub fn is_not_deaf(&self) {
        if let Some(slot) = self.slot {
            self.shared().slots[slot].deaf.store(0, Ordering::SeqCst);
        }
    }

    /// Naps while another process is about to ask the process of a slot.
    fn while_asked(&self, slot: usize) {
        let mut naps = 0;
        while self.shared().slots[slot].asking.load(Ordering::SeqCst) != 0 && naps < MAX_NAPS {
            sys::sleep(NAP);
            naps += 1;
        }
    }

    /// It did not become another program after all.
    pub fn enter_again(&mut self) {
        self.enter();
    }

    /// Gives back what processes had that are dead. At most ten times per second.
    pub fn bury(&self) {
        let shared = self.shared();
        let (now, looked) = (sys::now(), shared.looked.load(Ordering::Relaxed));
        if now.saturating_sub(looked) < 100_000_000
            || shared.looked.compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        shared.bury(is_gone);
    }
}

/// Whether there is no such process. One that has ended and was not waited for is there; one elsewhere may be there.
fn is_gone(process: i32) -> bool {
    if is_elsewhere(process) {
        return false;
    }
    // SAFETY: signal 0 asks only.
    unsafe { sys::call(SYS_kill, [process as usize, 0, 0, 0, 0, 0]) == ESRCH }
}

#[cfg(test)]
mod tests;
