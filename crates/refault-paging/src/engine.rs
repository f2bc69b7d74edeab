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
//! assert!(engine.manage(start, 16 * PAGE, Attributes { protection: 3, ..Attributes::default() }));
//! // A touch would raise SIGBUS; its handler calls this with the address.
//! assert_eq!(engine.fault(start, true), Outcome::Served);
//! // SAFETY: the page is there now.
//! unsafe { *(start as *mut u8) = 7 };
//! assert_eq!(engine.fault(PAGE, true), Outcome::NotManaged);
//! # Ok(())
//! # }
//! ```

mod fault;
mod forks;
mod guard;
pub(crate) mod process_monitor;
mod reclaim;
mod sampling;
mod sharing;
mod spare;
mod unwritten;

use std::collections::BTreeMap;

use refault_core::policy::{Admission, PolicyError};
use refault_core::{PageId, PageType, Shadow};
use refault_store::{Page, Scratch};

use crate::PAGE;
use crate::choosing::policies::{self, PagingPolicy, Victims};
use crate::choosing::streams::Streams;
use crate::counts::own::Own;
use crate::figures::{Statistics, Usage};
use crate::moving::aside::Aside;
use crate::moving::staging::Staging;
use crate::moving::way_back::WayBack;
use crate::page::ranges::{Attributes, Ranges};
use crate::page::table::{State, Table};
use crate::stores::Stores;
use crate::stores::copies::Copies;
use crate::tree::account::Account;
use crate::tree::dropped::Hand;
use refault_linux::sys;
use refault_linux::uffd::Uffd;

/// Pages that are brought in at once at most.
pub(crate) const MAX_WINDOW: usize = 32;

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
    uffd: Uffd,
    ranges: Ranges,
    table: Table,
    policy: PagingPolicy,
    policy_name: String,
    staging: Staging,
    store: Stores,
    copies: Copies,
    /// Pages set aside, if anybody looks for accesses.
    aside: Option<Box<Aside>>,
    scratch: Scratch,
    account: Account,
    resident_only: bool,
    resident: usize,
    chosen: Vec<(PageId, Shadow)>,
    buffer: Vec<Page>,
    streams: Streams,
    capacity: usize,
    /// Page ids that the policy knows of.
    known_pages: usize,
    /// Bytes of the agent's heap and the like.
    own_bytes: fn() -> usize,
    /// See [`crate::counts::own`].
    own: Own,
    /// See [`Engine::give_up`].
    given_up: bool,
    /// Pages may be guarded: see `guard`.
    guards: bool,
    /// See [`Engine::threads`].
    several_threads: bool,
    /// See [`crate::moving::way_back`].
    way_back: WayBack,
    /// See [`Engine::make_spare`].
    keeps_spares: bool,
    /// Bytes that a lock being made adds to those that are locked.
    about_to_lock: usize,
    /// Pages went since this was last asked that others have still.
    left_to_others: bool,
    /// Resident pages that were shared when that was last looked at, and when that was, in nanoseconds.
    shared: usize,
    looked: u64,
    /// See [`crate::tree::dropped`].
    hand: Hand,
    /// Addresses of stored pages, one in 32, and how many had been stored then.
    followed: BTreeMap<usize, u64>,
    /// Pages that were stored already when it was forked: its parent has them too.
    inherited_stored: u64,
    /// When the fault path last called [`Engine::publish`], in nanoseconds.
    published: u64,
    /// Why the last page was lost: the kernel's number, 0 for contents that are not what was stored.
    pub last_error: isize,
    /// See [`Statistics`].
    pub statistics: Statistics,
}

impl Engine {
    /// An engine without ranges.
    ///
    /// # Errors
    /// Says what is not to be had.
    pub fn new(uffd: Uffd, options: EngineOptions, own_bytes: fn() -> usize) -> Result<Engine, &'static str> {
        let limit = options.account.tree_limit() as usize;
        let staging = Staging::new((limit / 2).clamp(256, 1 << 20)).ok_or("no addresses are left")?;
        let mut engine = Engine {
            uffd,
            ranges: Ranges::default(),
            table: Table::default(),
            policy: policies::make(&options.policy).map_err(|error| match error {
                PolicyError::Refused { reason, .. } => reason,
                _ => "there is no such policy, or it has no such parameter",
            })?,
            policy_name: options.policy,
            staging,
            store: options.store,
            copies: Copies::new(sys::random()),
            aside: None,
            scratch: Scratch::lean(),
            account: options.account,
            resident_only: options.resident_only,
            resident: 0,
            chosen: Vec::with_capacity(256),
            buffer: vec![Page::ZERO; MAX_WINDOW],
            streams: Streams::new(),
            capacity: 0,
            known_pages: 0,
            own_bytes,
            own: Own::default(),
            given_up: false,
            guards: false,
            several_threads: false,
            way_back: WayBack::default(),
            keeps_spares: false,
            about_to_lock: 0,
            left_to_others: false,
            shared: 0,
            looked: 0,
            hand: Hand::default(),
            followed: BTreeMap::new(),
            inherited_stored: 0,
            published: 0,
            last_error: 0,
            statistics: Statistics::default(),
        };
        engine.arm_staging()?;
        Ok(engine)
    }

    pub(crate) fn arm_staging(&mut self) -> Result<(), &'static str> {
        let (start, bytes) = self.staging.range();
        if self.uffd.register(start, bytes) == 0 { Ok(()) } else { Err("the staging area cannot be registered") }
    }

    /// The policy, as it was asked for.
    pub fn policy_name(&self) -> &str {
        &self.policy_name
    }

    /// What may be used, and by whom.
    pub fn account(&mut self) -> &mut Account {
        &mut self.account
    }

    /// Whether any part of the range is managed.
    pub fn manages(&self, start: usize, bytes: usize) -> bool {
        self.ranges.any(start, start.saturating_add(bytes))
    }

    /// The managed range that an address lies in.
    pub fn range(&self, address: usize) -> Option<(usize, usize, Attributes)> {
        self.ranges.find(address)
    }

    /// Managed parts of a range.
    pub fn parts(&self, start: usize, bytes: usize) -> Vec<(usize, usize, Attributes)> {
        self.ranges.within(start, start.saturating_add(bytes))
    }

    /// Whether any page of the range may have contents.
    pub fn any_contents(&self, start: usize, bytes: usize) -> bool {
        self.table.next_known(start, start.saturating_add(bytes)).is_some()
    }

    /// Bytes under management.
    pub fn managed_bytes(&self) -> usize {
        self.ranges.bytes()
    }

    /// The userfaultfd.
    pub fn uffd(&self) -> Uffd {
        self.uffd
    }

    /// Manages a mapping without contents. False if the kernel does not let us.
    pub fn manage(&mut self, start: usize, bytes: usize, attributes: Attributes) -> bool {
        if bytes == 0 || self.given_up || self.uffd.register(start, bytes) != 0 {
            return false;
        }
        self.ranges.insert(start, start + bytes, attributes);
        true
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
                let known = self.table.next_known(at, end).unwrap_or(end);
                let last = (known + PIECE).min(end);
                for address in (known..last).step_by(PAGE) {
                    // Held, so that none goes for another.
                    if self.table.state(address) != State::Untouched && !self.hold(address, 1, false) {
                        return false;
                    }
                }
                self.uffd.unregister(at, last - at);
                self.forget(at, last - at);
                at = last;
            }
        }
        true
    }

    /// A range is not there any more, or is somebody else's.
    pub fn forget(&mut self, start: usize, bytes: usize) {
        for (from, to, _) in self.ranges.remove(start, start + bytes) {
            self.drop_contents(from, to);
        }
        self.settle();
    }

    /// The pages of a range are zeros from now on, and have no entries.
    pub fn discard(&mut self, start: usize, bytes: usize) {
        for (from, to, _) in self.ranges.within(start, start + bytes) {
            self.drop_contents(from, to);
        }
        self.settle();
    }

    /// The program has said something about a range.
    pub fn change(&mut self, start: usize, bytes: usize, change: impl Fn(&mut Attributes)) {
        self.ranges.change(start, start + bytes, change);
        self.note_locks();
    }

    /// The program may have fewer addresses from now on: the compressed pool keeps so many bytes of them at most, or what it
    /// has used. Whether any were given back.
    pub fn give_addresses_back(&mut self, keep: u64) -> bool {
        self.store.lower_pool_limit(keep)
    }

    /// Whether rights could fill something that is locked.
    pub fn any_unfilled(&self) -> bool {
        self.ranges.any_unfilled()
    }

    /// The program has locked or unlocked what is managed of a range: what is resident of it stays where it is, or may go.
    pub fn lock(&mut self, start: usize, bytes: usize, locked: bool) {
        let were_any = self.ranges.any_locked();
        self.change(start, bytes, |attributes| attributes.lock(locked));
        if locked || were_any {
            self.mark_locked(start, bytes, locked);
        }
    }

    pub(crate) fn mark_locked(&mut self, start: usize, bytes: usize, locked: bool) {
        for (from, to, _) in self.parts(start, bytes) {
            for address in (from..to).step_by(PAGE) {
                if let Some((page, entry)) = self.table.find(address)
                    && entry.state() == State::Resident
                {
                    self.table.lock(page, locked);
                }
            }
        }
    }

    /// Makes known how much is locked, or about to be.
    pub fn note_locks(&self) {
        let pages = (self.ranges.locked_bytes() + self.about_to_lock) / PAGE;
        self.account.locks(pages as u64, (self.own_bytes() / PAGE) as u64);
    }

    /// What [`Engine::may_lock`] or [`Engine::may_lock_more`] has allowed is locked from now on, or will not be.
    pub fn lock_is_decided(&mut self) {
        self.about_to_lock = 0;
    }

    /// Whether the budget has room for what a change would fill of a range and keep in memory, beside all that is locked in
    /// the tree. It counts as locked until [`Engine::lock_is_decided`].
    pub fn may_lock(&mut self, start: usize, bytes: usize, change: impl Fn(&mut Attributes)) -> bool {
        let fills = |(from, to, mut attributes): (usize, usize, Attributes)| {
            let was = attributes.filled;
            change(&mut attributes);
            if attributes.filled && !was { to - from } else { 0 }
        };
        let more = self.parts(start, bytes).into_iter().map(fills).sum::<usize>();
        self.may_lock_more(more)
    }

    /// [`Engine::may_lock`] for so many bytes that are not there yet.
    pub fn may_lock_more(&mut self, more: usize) -> bool {
        let pages = (self.ranges.locked_bytes() + more) / PAGE;
        let fits = more == 0 || self.account.may_lock(pages as u64, (self.own_bytes() / PAGE) as u64);
        self.about_to_lock = if fits { more } else { 0 };
        fits
    }

    pub(crate) fn drop_contents(&mut self, start: usize, end: usize) {
        let mut at = start;
        while let Some(known) = self.table.next_known(at, end) {
            let chunk_end = (known + 1).next_multiple_of(crate::page::table::CHUNK_PAGES * PAGE).min(end);
            for address in (known..chunk_end).step_by(PAGE) {
                if let Some((page, entry)) = self.table.find(address) {
                    self.drop_page(page, entry.state());
                }
            }
            self.table.drop_if_empty(known);
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
                self.policy.freed(page);
                self.resident -= 1;
                self.account.unshared(u64::from(self.table.entry(page).is_guarded()));
                self.drop_copy(page);
            }
            State::Parked(place) => {
                self.unpark_for_good(place);
                self.drop_copy(page);
            }
            State::Stored(slot) => self.store.release(slot),
        }
        self.table.set(page, State::Untouched, Shadow::NONE);
    }

    pub(crate) fn drop_copy(&mut self, page: PageId) {
        if let Some(slot) = self.copies.drop(page) {
            self.store.release(slot);
        }
    }

    pub(crate) fn unpark_for_good(&mut self, place: u32) {
        // SAFETY: the place is in the staging area and its page is nobody's any more.
        unsafe { sys::discard(self.staging.address(place), PAGE) };
        let shared = self.staging.leave(place);
        self.account.unshared(u64::from(shared));
    }

    /// A mapping was moved by the kernel, with what is resident of it; both are of `bytes`. What is parked or stored
    /// goes along.
    pub fn relocate(&mut self, from: usize, to: usize, bytes: usize) {
        let parts = self.ranges.remove(from, from + bytes);
        for (start, end, attributes) in parts {
            let shift = |address: usize| address.wrapping_sub(from).wrapping_add(to);
            self.uffd.register(shift(start), end - start);
            self.ranges.insert(shift(start), shift(end), attributes);
            let mut at = start;
            while let Some(known) = self.table.next_known(at, end) {
                let chunk_end = (known + 1).next_multiple_of(crate::page::table::CHUNK_PAGES * PAGE).min(end);
                for address in (known..chunk_end).step_by(PAGE) {
                    if let Some((page, entry)) = self.table.find(address) {
                        self.relocate_page(page, entry.state(), entry.shadow(), shift(address));
                    }
                }
                self.table.drop_if_empty(known);
                at = chunk_end;
            }
        }
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
                self.statistics.lost += 1;
                self.policy.freed(page);
                self.resident -= 1;
            }
            State::Resident | State::SetAside => {
                let guarded = self.table.entry(page).is_guarded();
                self.policy.freed(page);
                self.resident -= 1;
                self.admit(new, None);
                if guarded {
                    // The kernel forgets that when a mapping moves.
                    self.table.guard(new, true);
                    self.uffd.protect(to, PAGE, true);
                }
                self.look_later(to);
            }
            State::Parked(place) => {
                self.staging.reown(place, to);
                self.table.set(new, state, shadow);
            }
            State::Stored(slot) => {
                self.store.relocate(slot, to);
                self.table.set(new, state, shadow);
            }
            State::Untouched => {}
        }
        self.table.set(page, State::Untouched, Shadow::NONE);
    }

    /// The id of the page at an address; the policy knows of it afterwards.
    pub(crate) fn page_id(&mut self, address: usize) -> PageId {
        let (page, grown) = self.table.make(address);
        if let Some(pages) = grown
            && pages > self.known_pages
        {
            // Ahead, so that the policy's tables are not copied for each chunk.
            self.known_pages = pages + pages / 4;
            self.policy.grow(self.known_pages);
        }
        page
    }

    /// A page is resident now.
    pub(crate) fn admit(&mut self, page: PageId, shadow: Option<Shadow>) {
        self.table.set(page, State::Resident, Shadow::NONE);
        if self.ranges.any_locked() {
            let range = self.ranges.find(self.table.address(page));
            self.table.lock(page, range.is_some_and(|(.., attributes)| attributes.locked));
        }
        self.resident += 1;
        let shadow = shadow.filter(|shadow| *shadow != Shadow::NONE);
        let admission = Admission::fault(PageType::Anon).with_shadow(shadow);
        self.policy.admit(page, &admission, &mut Victims { table: &self.table, chosen: &mut self.chosen });
    }

    /// Pages that this process costs the machine now.
    pub fn charge(&self) -> u64 {
        if self.resident_only {
            return (self.resident + self.staging.occupied()) as u64;
        }
        let own = self.own_bytes() + self.store.pool_bytes() as usize;
        (self.resident + self.staging.occupied() + own / PAGE) as u64
    }

    /// Says how to find out how much of the agent's memory, the stores' tables included, was ever touched.
    pub fn looks_at_own_with(&mut self, touched: fn() -> usize) {
        self.own.touched = Some(touched);
    }

    fn mapped_bytes(&self) -> usize {
        (self.own_bytes)() + self.store.seal_bytes() as usize
    }

    /// Bytes that are neither pages nor compressed ones.
    pub(crate) fn own_bytes(&self) -> usize {
        self.own.of(self.mapped_bytes())
    }

    /// At a fork: looks what of them is in memory, from now on again and again.
    pub(crate) fn look_at_own(&mut self) {
        if let Some(touched) = self.own.touched {
            let mapped = self.mapped_bytes();
            self.own = Own { looked: sys::now(), there: touched(), mapped, ..self.own };
        }
    }

    pub(crate) fn look_at_own_again(&mut self) {
        if self.own.looked != 0 && sys::now().saturating_sub(self.own.looked) >= crate::counts::own::LOOK_EVERY {
            self.look_at_own();
        }
    }

    /// Whether the program has several threads. Pages may then be copied back instead of moved: that needs no word to the
    /// other processors, which costs more than a copy where they are in the program too.
    pub fn threads(&mut self, several: bool) {
        self.several_threads = several;
    }

    /// Makes the charge and the counts known.
    pub(crate) fn settle(&mut self) {
        self.look_at_own_again();
        let charge = self.charge();
        self.account.unshared(self.store.take_unshared());
        self.account.look_at_common(charge);
        if !self.account.reserve(charge) {
            self.give_way();
        }
        self.account.publish(&self.statistics);
        self.note_locks();
        let (resident, parked) = (self.resident as u64, self.staging.live() as u64);
        let tight = self.tight();
        let own = if self.resident_only { 0 } else { (self.own_bytes() / PAGE) as u64 };
        let stored = self.stored_pages().saturating_sub(self.inherited_stored);
        self.account.has(resident + parked + own + stored, &self.statistics);
        self.account.publish_memory(resident, parked, self.store.pool_bytes(), tight);
    }

    /// Makes everything known that takes longer to find out.
    pub fn publish(&mut self) {
        let (counters, generations) = (self.policy.counters(), self.policy.generations(0));
        let usage = self.usage();
        self.account.publish(&self.statistics);
        self.account.publish_state(&usage, &counters, &generations, self.policy.leader());
    }

    /// Pages whose contents are in a store alone.
    pub(crate) fn stored_pages(&self) -> u64 {
        let stored = self.store.stored();
        (stored.same_filled + stored.compressed + stored.in_files).saturating_sub(self.copies.count())
    }

    /// Where memory is.
    pub fn usage(&self) -> Usage {
        let stored = self.store.stored();
        Usage {
            managed_bytes: self.ranges.bytes() as u64,
            resident_pages: self.resident as u64,
            parked_pages: self.staging.live() as u64,
            same_filled_pages: stored.same_filled,
            pool_pages: stored.compressed,
            pool_bytes: stored.pool_bytes,
            file_pages: stored.in_files,
            own_bytes: self.own_bytes() as u64,
            policy_bytes: self.policy.metadata_bytes() as u64,
        }
    }
}
