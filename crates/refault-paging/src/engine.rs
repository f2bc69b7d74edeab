//! The engine: the ranges of a process, what is known of their pages, and the calls that change them.
//!
//! Invariants: the table says [`State::Resident`] of each managed page that has an entry in the page tables, and of no
//! other; a page is the policy's exactly as long as it is resident. All methods are called under one lock.
//!
//! ```
//! use refault_paging::stores::Stores;
//! use refault_linux::uffd::Uffd;
//! use refault_linux::sys;
//! use refault_paging::{Account, Attributes, Engine, EngineOptions, Outcome, PAGE, Shared};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let Ok(uffd) = Uffd::open() else { return Ok(()) }; // a system-call filter, or a kernel before 6.8
//! // SAFETY: a fresh mapping of atomics, for which zeros are values; it is never given up.
//! let shared: &Shared = unsafe { &*(sys::map(Shared::BYTES) as *const Shared) };
//! shared.set_limit(4096 * PAGE as u64);
//! // SAFETY: the segment stays mapped.
//! let account = unsafe { Account::join(shared, None) };
//! let store = Stores::new(1 << 30, shared.limit_bytes(), None, 0)?;
//! let options = EngineOptions { policy: "mglru".into(), store, account, resident_only: false };
//! let mut engine = Engine::new(uffd, options, || 0)?;
//!
//! let start = sys::map(16 * PAGE);
//! assert!(engine.manage(start, 16 * PAGE, Attributes { protection: Attributes::READ_WRITE, ..Attributes::default() }));
//! // A touch would raise SIGBUS; its handler calls this with the address.
//! assert_eq!(engine.fault(start, true), Outcome::Served);
//! // SAFETY: the page is there now.
//! unsafe { *(start as *mut u8) = 7 };
//! assert_eq!(engine.fault(PAGE, true), Outcome::NotManaged);
//! # Ok(())
//! # }
//! ```

mod arrival;
mod fault;
mod forks;
mod guard;
pub(crate) mod listed;
pub(crate) mod process_monitor;
mod reclaim;
mod sampling;
mod spare;
mod unwritten;

use refault_core::{PageId, Shadow};

use crate::PAGE;
use crate::choosing::Choosing;
use crate::contents::Contents;
use crate::counts::Counts;
use crate::figures::{Statistics, Usage};
use crate::moving::Mover;
use crate::moving::aside::Aside;
use crate::own::Own;
use crate::page::Pages;
use crate::page::marks::Marks;
use crate::page::ranges::Attributes;
use crate::page::table::State;
use crate::stores::Stores;
use crate::tree::account::Account;
use crate::tree::shared_pages::SharedPages;
use listed::Lists;
use refault_linux::uffd::Uffd;

/// Pages that are brought in at once at most.
pub(crate) const MAX_WINDOW: usize = crate::moving::MAX_FILLED;
/// Pages of a budget from which on tables are made of which a small program never touches megabytes: 4 GiB.
const LARGE_LIMIT: u64 = 1 << 20;

/// What an engine is made of.
pub struct EngineOptions {
    /// Name of the policy.
    pub policy: String,
    /// Where evicted pages go.
    pub store: Stores,
    /// What may be used.
    pub account: Account,
    /// Only resident and parked pages count.
    pub resident_only: bool,
}

/// What became of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The page is there.
    Served,
    /// The address is not managed.
    NotManaged,
    /// The page is lost: its store could not give it back.
    Lost,
}

/// See the module.
pub struct Engine {
    pages: Pages,
    choosing: Choosing,
    moving: Mover,
    contents: Contents,
    /// Pages set aside, if a monitor looks for accesses.
    aside: Option<Box<Aside>>,
    account: Account,
    resident_only: bool,
    own: Own,
    /// See [`Engine::give_up`].
    given_up: bool,
    sharing: SharedPages,
    lists: Lists,
    /// Bytes that a lock being made adds to those that are locked.
    about_to_lock: usize,
    counts: Counts,
}

impl Engine {
    /// An engine without ranges.
    ///
    /// # Errors
    /// Says what is not to be had.
    pub fn new(uffd: Uffd, options: EngineOptions, own_bytes: fn() -> usize) -> Result<Engine, &'static str> {
        let limit = options.account.tree_limit() as usize;
        Ok(Engine {
            pages: Pages::default(),
            choosing: Choosing::new(options.policy)?,
            moving: Mover::new(uffd, (limit / 2).clamp(256, 1 << 20))?,
            contents: Contents::new(options.store, MAX_WINDOW),
            aside: None,
            account: options.account,
            resident_only: options.resident_only,
            own: Own::new(own_bytes),
            given_up: false,
            sharing: SharedPages::default(),
            lists: Lists::default(),
            about_to_lock: 0,
            counts: Counts::default(),
        })
    }

    /// What was counted.
    pub fn statistics(&self) -> &Statistics {
        self.counts.statistics()
    }

    /// Counts from nothing again. Returns what was counted.
    pub fn take_statistics(&mut self) -> Statistics {
        self.counts.take()
    }

    /// Why the last page was lost: the kernel's number, 0 for contents that are not what was stored.
    pub fn last_error(&self) -> isize {
        self.counts.last_error()
    }

    /// The policy, as it was asked for.
    pub fn policy_name(&self) -> &str {
        self.choosing.name()
    }

    /// What may be used, and by whom.
    pub fn account(&mut self) -> &mut Account {
        &mut self.account
    }

    /// Whether any part of the range is managed.
    pub fn manages(&self, start: usize, bytes: usize) -> bool {
        self.pages.any(start, start.saturating_add(bytes))
    }

    /// The managed range that an address lies in.
    pub fn range(&self, address: usize) -> Option<(usize, usize, Attributes)> {
        self.pages.range(address)
    }

    /// Managed parts of a range.
    pub fn parts(&self, start: usize, bytes: usize) -> Vec<(usize, usize, Attributes)> {
        self.pages.parts(start, start.saturating_add(bytes))
    }

    /// Whether any page of the range may have contents.
    pub fn any_contents(&self, start: usize, bytes: usize) -> bool {
        self.pages.next_known(start, start.saturating_add(bytes)).is_some()
    }

    /// Bytes under management.
    pub fn managed_bytes(&self) -> usize {
        self.pages.managed_bytes()
    }

    /// The userfaultfd.
    pub fn uffd(&self) -> Uffd {
        self.moving.uffd()
    }

    /// Manages a mapping without contents. False if the kernel does not let us.
    pub fn manage(&mut self, start: usize, bytes: usize, attributes: Attributes) -> bool {
        if bytes == 0 || self.given_up || !self.moving.register(start, bytes) {
            return false;
        }
        self.pages.insert(start, start + bytes, attributes);
        self.serve_waiting(start, start + bytes);
        true
    }

    /// Whether the program has, or has had, several threads.
    pub fn has_threads(&self) -> bool {
        self.moving.has_threads()
    }

    /// From now on the kernel may keep pages that have left, to read them later: their memory is not used for others.
    pub fn gives_pages_away(&mut self) {
        self.moving.gives_pages_away();
    }

    /// Nothing is managed any more: everything is brought in, whatever the budget says, and stays.
    ///
    /// # Errors
    /// A page cannot be brought in; what was brought in stays managed.
    pub fn give_up(&mut self) -> Result<(), &'static str> {
        // No room is made from here on: what went out would only have to come back.
        self.given_up = true;
        if self.let_go(0, usize::MAX) {
            return Ok(());
        }
        self.given_up = false;
        Err("a page cannot be brought back")
    }

    /// What is managed of a range is brought in and is the program's alone from then on: a piece at a time, so that the
    /// budget is not exceeded by what is managed still. False if a page is lost: it and what follows stay managed.
    pub fn let_go(&mut self, start: usize, bytes: usize) -> bool {
        const PIECE: usize = 64 * PAGE;
        for (mut at, end, _) in self.parts(start, bytes) {
            while at < end {
                let known = self.pages.next_known(at, end).map_or(end, |(known, _)| known);
                let last = (known + PIECE).min(end);
                for address in (known..last).step_by(PAGE) {
                    // Held, so that none goes for another.
                    if self.pages.state(address) != State::Untouched && !self.hold(address, 1, false) {
                        return false;
                    }
                }
                self.moving.unregister(at, last - at);
                self.release(at, last - at);
                self.forget(at, last - at);
                at = last;
            }
        }
        true
    }

    /// Stops managing a range that was unmapped or replaced, and drops its contents.
    pub fn forget(&mut self, start: usize, bytes: usize) {
        for (from, to, _) in self.pages.remove(start, start + bytes) {
            self.drop_contents(from, to);
        }
        self.settle();
    }

    /// The pages of a range are zeros from now on, and have no entries.
    pub fn discard(&mut self, start: usize, bytes: usize) {
        for (from, to, _) in self.pages.parts(start, start + bytes) {
            self.drop_contents(from, to);
        }
        self.serve_waiting(start, start + bytes);
        self.settle();
    }

    /// The program has said something about a range.
    pub fn change(&mut self, start: usize, bytes: usize, change: impl Fn(&mut Attributes)) {
        self.pages.change(start, start + bytes, change);
        self.serve_waiting(start, start + bytes);
        self.note_locks();
    }

    /// The program may have fewer addresses from now on. The compressed pool keeps at most `keep` bytes of them, or
    /// what it has used. Returns whether it gave any back.
    pub fn give_addresses_back(&mut self, keep: u64) -> bool {
        self.contents.lower_pool_limit(keep)
    }

    /// Marks that nothing which is managed has. `None`: each is in use.
    pub fn unused_marks(&self) -> Option<Marks> {
        self.pages.unused_marks()
    }

    /// The program has asked for marks of a range, and the kernel has stopped in the middle.
    pub fn may_be_marked(&mut self, start: usize, bytes: usize, mark: impl Fn(&mut Marks)) {
        for (.., attributes) in self.parts(start, bytes) {
            let mut marks = attributes.marks;
            mark(&mut marks);
            self.pages.may_be_marked(marks);
        }
    }

    /// Whether rights could fill something that is locked.
    pub fn any_unfilled(&self) -> bool {
        self.pages.any_unfilled()
    }

    /// The program has locked or unlocked what is managed of a range: what is resident of it stays where it is, or may
    /// go.
    pub fn lock(&mut self, start: usize, bytes: usize, locked: bool) {
        let were_any = self.pages.any_locked();
        self.change(start, bytes, |attributes| attributes.lock(locked));
        if locked || were_any {
            self.pages.lock(start, start.saturating_add(bytes), locked);
        }
    }

    /// Makes known how much is locked, or about to be.
    pub fn note_locks(&self) {
        let pages = (self.pages.locked_bytes() + self.about_to_lock) / PAGE;
        self.account.locks(pages as u64, (self.own_bytes() / PAGE) as u64);
    }

    /// What [`Engine::may_lock`] or [`Engine::may_lock_more`] has allowed is locked from now on, or will not be.
    pub fn lock_is_decided(&mut self) {
        self.about_to_lock = 0;
    }

    /// Whether the budget has room, beside all that is locked in the tree, for memory that a change would fill and keep
    /// in a range. That memory counts as locked until [`Engine::lock_is_decided`].
    pub fn may_lock(&mut self, start: usize, bytes: usize, change: impl Fn(&mut Attributes)) -> bool {
        let fills = |(from, to, mut attributes): (usize, usize, Attributes)| {
            let was = attributes.filled;
            change(&mut attributes);
            if attributes.filled && !was { to - from } else { 0 }
        };
        let more = self.parts(start, bytes).into_iter().map(fills).sum::<usize>();
        self.may_lock_more(more)
    }

    /// [`Engine::may_lock`] for `more` bytes that are not there yet.
    pub fn may_lock_more(&mut self, more: usize) -> bool {
        let pages = (self.pages.locked_bytes() + more) / PAGE;
        let fits = more == 0 || self.account.may_lock(pages as u64, (self.own_bytes() / PAGE) as u64);
        self.about_to_lock = if fits { more } else { 0 };
        fits
    }

    pub(crate) fn drop_contents(&mut self, start: usize, end: usize) {
        let mut at = start;
        while let Some((known, chunk_end)) = self.pages.next_known(at, end) {
            for address in (known..chunk_end).step_by(PAGE) {
                if let Some((page, entry)) = self.pages.find(address) {
                    self.drop_page(page, entry.state());
                }
            }
            self.pages.drop_if_empty(known);
            at = chunk_end;
        }
    }

    pub(crate) fn drop_page(&mut self, page: PageId, state: State) {
        match state {
            State::Untouched => return,
            State::Resident | State::SetAside => {
                if state == State::SetAside {
                    self.drop_aside(page);
                }
                self.choosing.freed(page);
                self.account.unshared(u64::from(self.pages.entry(page).is_guarded()));
                self.drop_copy(page);
            }
            State::Parked(place) => {
                self.unpark_for_good(place);
                self.drop_copy(page);
            }
            State::Stored(slot) => self.contents.release(slot),
        }
        self.pages.set(page, State::Untouched, Shadow::NONE);
    }

    pub(crate) fn drop_copy(&mut self, page: PageId) {
        self.contents.drop_copy(page);
    }

    pub(crate) fn unpark_for_good(&mut self, place: u32) {
        let shared = self.moving.discard(place);
        self.account.unshared(u64::from(shared));
    }

    /// A mapping was moved by the kernel, with what is resident of it; both are of `bytes`. What is parked or stored
    /// goes along.
    pub fn relocate(&mut self, from: usize, to: usize, bytes: usize) {
        let parts = self.pages.remove(from, from + bytes);
        for (start, end, attributes) in parts {
            let shift = |address: usize| address.wrapping_sub(from).wrapping_add(to);
            self.moving.register(shift(start), end - start);
            self.pages.insert(shift(start), shift(end), attributes);
            let mut at = start;
            while let Some((known, chunk_end)) = self.pages.next_known(at, end) {
                for address in (known..chunk_end).step_by(PAGE) {
                    if let Some((page, entry)) = self.pages.find(address) {
                        self.relocate_page(page, entry.state(), entry.shadow(), shift(address));
                    }
                }
                self.pages.drop_if_empty(known);
                at = chunk_end;
            }
        }
        self.serve_waiting(to, to + bytes);
        self.settle();
    }

    fn relocate_page(&mut self, page: PageId, state: State, shadow: Shadow, to: usize) {
        if state == State::Untouched {
            return;
        }
        self.drop_copy(page);
        let new = self.page_id(to);
        match state {
            State::SetAside if !self.move_from_mirror(page, to) => {
                self.counts.lost();
                self.choosing.freed(page);
            }
            State::Resident | State::SetAside => {
                let guarded = self.pages.entry(page).is_guarded();
                self.choosing.freed(page);
                self.admit(new, None);
                if guarded {
                    // The kernel forgets that when a mapping moves.
                    self.pages.guard(new, true);
                    self.moving.protect(to, PAGE, true);
                }
                self.look_later(to);
            }
            State::Parked(place) => {
                self.moving.reown(place, to);
                self.pages.set(new, state, shadow);
            }
            State::Stored(slot) => {
                self.contents.relocate(slot, to);
                self.pages.set(new, state, shadow);
            }
            State::Untouched => {}
        }
        self.pages.set(page, State::Untouched, Shadow::NONE);
    }

    /// Pages that this process costs the machine now.
    pub fn charge(&self) -> u64 {
        if self.resident_only {
            return (self.pages.in_memory() + self.moving.memory()) as u64;
        }
        let own = self.own_bytes() + self.contents.pool_bytes() as usize;
        (self.pages.in_memory() + self.moving.memory() + own / PAGE) as u64
    }

    /// Says how to find out how much of the agent's memory, the stores' tables included, was ever touched.
    pub fn looks_at_own_with(&mut self, touched: fn() -> usize) {
        self.own.look_with(touched);
        if self.account.tree_limit() >= LARGE_LIMIT {
            self.own.look(self.contents.seal_bytes());
        }
    }

    /// Bytes that are neither pages nor compressed ones.
    pub(crate) fn own_bytes(&self) -> usize {
        self.own.bytes(self.contents.seal_bytes())
    }

    pub(crate) fn look_at_own_again(&mut self) {
        self.own.look_again(|| self.contents.seal_bytes());
    }

    /// Whether the program has several threads. Pages may then be copied back instead of moved: that needs no word to
    /// the other processors, which costs more than a copy where they are in the program too.
    pub fn threads(&mut self, several: bool) {
        self.moving.threads(several);
    }

    /// Makes the charge and the counts known.
    pub(crate) fn settle(&mut self) {
        self.look_at_own_again();
        let charge = self.charge();
        self.account.unshared(self.contents.take_unshared());
        self.account.look_at_common(charge);
        if !self.account.reserve(charge) {
            self.give_way();
        }
        self.account.publish(self.counts.statistics());
        self.note_locks();
        let (resident, parked) = (self.pages.in_memory() as u64, self.moving.parked() as u64);
        let tight = self.tight();
        let own = if self.resident_only { 0 } else { (self.own_bytes() / PAGE) as u64 };
        let stored = self.contents.alone();
        self.account.has(resident + parked + own + stored, self.counts.statistics());
        self.account.publish_memory(resident, parked, self.contents.pool_bytes(), tight);
    }

    /// Makes everything known that takes longer to find out.
    pub fn publish(&mut self) {
        let (counters, generations) = (self.choosing.counters(), self.choosing.generations());
        let usage = self.usage();
        self.account.publish(self.counts.statistics());
        self.account.publish_state(&usage, &counters, &generations, self.choosing.leader());
    }

    /// Where memory is.
    pub fn usage(&self) -> Usage {
        let stored = self.contents.stored();
        Usage {
            managed_bytes: self.pages.managed_bytes() as u64,
            resident_pages: self.pages.in_memory() as u64,
            parked_pages: self.moving.parked() as u64,
            same_filled_pages: stored.same_filled,
            pool_pages: stored.compressed,
            pool_bytes: stored.pool_bytes,
            file_pages: stored.in_files,
            own_bytes: self.own_bytes() as u64,
            policy_bytes: self.choosing.metadata_bytes() as u64,
        }
    }
}
