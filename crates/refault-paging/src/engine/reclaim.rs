//! Making room: pages leave for the staging area, and from there for the stores.
//!
//! Invariants: a page that cannot be moved (pinned, shared with a child and not writable, locked) stays resident and is
//! the policy's again; pages are stored in the order in which they were parked. Cost: one `UFFDIO_MOVE` a run of
//! neighbours, one compression per page, one `madvise` per batch that leaves no
//! spare memory.

use refault_core::{PageId, Shadow};
use refault_store::{Page, Slot};

use super::Engine;
use crate::PAGE;
use crate::choosing::Chosen;
use crate::contents::Contents;
use crate::page::pagemap::Pagemap;
use crate::page::table::State;
use crate::tree::MIN_PAGES;
use crate::tree::plea::Waiting;
use refault_linux::errno::EBUSY;
use refault_linux::sys;

/// Pages that are stored at once.
pub(crate) const BATCH: usize = 32;
/// Compressed pages take at most this part of the budget. Where accesses are uniform, it pays to compress whatever
/// compresses to less than 7/8 before anything goes to the file. The file is seven times slower. The rest of the budget
/// is for accesses that are not uniform.
const MAX_POOL_SHARE: (u64, u64) = (3, 4);
/// From this part of the budget on new ones are compressed harder, and from this one on those that are there. Only to
/// keep them out of the file: the memory that it saves is not worth its time (docs/explain/run.md has figures).
const DENSE_SHARE: (u64, u64) = (11, 16);
const MAX_LOOSE_SHARE: (u64, u64) = (23, 32);
/// With fewer compressed pages it is not known to what pages compress: to half, then.
const MIN_KNOWN: u64 = 64;
/// This part of what is in memory is parked. The longer a page stays so, the surer it is that the program does not need
/// it.
const PARKED_SHARE: usize = 8;
/// Batches that are parked for one that is stored, while too few are.
const MAX_PARKS: usize = 4;
/// Pages that stay in memory whatever the budget says: with fewer, every access of a program would fault. Where even
/// what is compressed does not fit (`--store pool`), the budget is exceeded by them.
const MIN_RESIDENT: usize = 64;
/// Nanoseconds between two batches of pages that others have still.
const LEFT_NAP: u64 = 500_000;
/// Rounds without progress after which the budget is exceeded.
const MAX_IDLE_ROUNDS: u32 = 4;

impl Engine {
    /// Makes room for `pages` more pages, and reserves them. Exceeds the limit by what cannot be had.
    pub(crate) fn make_room(&mut self, pages: usize) {
        self.lift_guard_if_alone();
        self.look_at_own_again();
        let (mut idle, mut naps) = (0, 0);
        while !self.given_up {
            let wanted = self.charge() + pages as u64;
            if self.fits_or_is_given(wanted) {
                return;
            }
            self.account.ask(wanted);
            if !self.has_something_to_give(wanted) {
                if !self.account.wait_for_room(naps) {
                    break;
                }
                naps += 1;
            } else if !self.shrink(&mut idle) {
                break;
            } else if self.sharing.take_left_to_others() {
                // They are asked for it meanwhile: this process is not to give up all that it has before they begin.
                sys::sleep(LEFT_NAP);
            }
        }
        self.account.charge(self.charge() + pages as u64);
    }

    /// Comes down to what this process may use, which has become less, or which it has come to exceed.
    pub(crate) fn give_way(&mut self) {
        let mut idle = 0;
        // What it shares with children becomes its own as they write, which no call made room for.
        while !self.given_up && !self.fits_or_is_given(self.charge()) && self.charge() > self.account.least() {
            if !self.shrink(&mut idle) {
                break;
            }
        }
        self.account.charge(self.charge());
    }

    /// Whether a process that wants `wanted` pages has more than next to nothing that it could evict itself.
    pub(crate) fn has_something_to_give(&self, wanted: u64) -> bool {
        wanted > self.account.least() + (self.own_bytes() / PAGE) as u64
    }

    /// Whether this process may use `pages` pages, which it reserves then.
    pub(crate) fn fits(&mut self, pages: u64) -> bool {
        pages <= self.account.limit() && self.account.reserve(pages)
    }

    /// The same; where a pool protects what the tree lacks, others give it first.
    pub(crate) fn fits_or_is_given(&mut self, pages: u64) -> bool {
        let mut waiting = Waiting::default();
        loop {
            if self.fits(pages) {
                return true;
            }
            if !self.account.waits_for_pool(pages, &mut waiting) {
                return false;
            }
        }
    }

    /// One step towards using less. False: it is of no use to go on.
    pub(crate) fn shrink(&mut self, idle: &mut u32) -> bool {
        self.set_capacity(self.account.limit());
        if self.moving.drop_spares() > 0 {
            self.account.lower(self.charge());
            return true;
        }
        // Where what is resident cannot go, all that is compressed has to.
        let shrinks = self.demote()
            || (self.pages.in_memory() + self.moving.memory() > MIN_RESIDENT && self.reclaim() > 0)
            || self.demote_to(0, 0);
        if shrinks {
            *idle = 0;
            // Known at once: others that lack it are not to make room for it too.
            self.account.unshared(self.contents.take_unshared());
            if self.sharing.guards() {
                // Others give up what this process shares with them, which is more of its own then.
                self.account.look_at_common(self.charge());
            }
            self.account.lower(self.charge());
            return true;
        }
        if self.moving.husks() > 0 {
            self.moving.drop_husks();
            return true;
        }
        self.account.bury();
        *idle += 1;
        *idle < MAX_IDLE_ROUNDS
    }

    /// Comes down to what may be used, which has become less.
    pub fn give_room(&mut self) {
        self.give_way();
        self.settle();
    }

    /// Pages in which all that is in memory can be held compressed, as well as what is compressed already, without
    /// anything going to the file.
    pub(crate) fn tight(&self) -> u64 {
        let stored = self.contents.stored();
        let per_page =
            if stored.compressed < MIN_KNOWN { PAGE as u64 / 2 } else { stored.pool_bytes / stored.compressed };
        // For what others are charged for this process pays nothing.
        let in_memory = (self.pages.in_memory() + self.moving.parked()) as u64;
        let pool = stored.pool_bytes + in_memory.saturating_sub(self.account.lent() as u64) * per_page;
        let fixed = (self.own_bytes() + self.pages.locked_bytes()) as u64;
        // Twice what it cannot do without: with less it would wait for others.
        (pool * MAX_POOL_SHARE.1 / MAX_POOL_SHARE.0 + fixed) / PAGE as u64 + 2 * MIN_PAGES
    }

    /// Pages that this process can keep in memory now if nothing is compressed. That is its limit, less the agent's own
    /// memory, locked memory, and shared pages that others are charged for. The last are there whatever the process
    /// does.
    pub fn can_keep(&self) -> usize {
        let fixed = (self.own_bytes() + self.pages.locked_bytes()) / PAGE;
        (self.account.limit() as usize).saturating_sub(fixed + self.account.lent() as usize)
    }

    fn set_capacity(&mut self, limit: u64) {
        let pages = (limit as usize)
            .saturating_sub(self.charge() as usize - self.pages.in_memory() - self.moving.memory())
            .max(64);
        self.choosing.set_capacity(pages);
    }

    /// One step towards keeping compressed pages to their part of the budget. Returns whether anything was done.
    fn demote(&mut self) -> bool {
        // Of what is left for pages that come and go: what the agent takes itself is no part of it, nor what is locked.
        let fixed = (self.own_bytes() + self.pages.locked_bytes()) as u64;
        let budget = (self.account.limit() * PAGE as u64).saturating_sub(fixed);
        let share = |(part, whole): (u64, u64)| budget * part / whole;
        self.contents.compress_hard_from(share(DENSE_SHARE));
        self.demote_to(share(MAX_LOOSE_SHARE), share(MAX_POOL_SHARE))
    }

    /// One step towards a pool of `loose` bytes compressed loosely and `all` in all.
    fn demote_to(&mut self, loose: u64, all: u64) -> bool {
        if self.resident_only {
            return false;
        }
        self.contents.demote(loose, all, &mut self.pages)
    }

    /// One step: parks pages until their part of memory is reached, stores those parked longest. Returns the pages that
    /// left memory.
    pub(crate) fn reclaim(&mut self) -> usize {
        // What is shared is copied to be parked: as little as can be.
        let part = if self.sharing.guards() { 0 } else { PARKED_SHARE };
        let target = (self.pages.in_memory() + self.moving.parked()).checked_div(part).unwrap_or(0).max(BATCH);
        let (mut parked, before) = (0, self.pages.in_memory() + self.moving.memory());
        for _ in 0..MAX_PARKS {
            if self.moving.parked() >= target {
                break;
            }
            parked += self.park();
        }
        let stored = self.store_oldest();
        // Zeros that the program has not written to are not kept.
        let left = before.saturating_sub(self.pages.in_memory() + self.moving.memory());
        if stored == 0 && parked == 0 { self.park() } else { stored.max(left) }
    }

    /// Moves pages that the policy gives up into the staging area. Returns how many.
    ///
    /// What is shared with a parent or child is no gain as long as that has it too: it goes only when there is nothing
    /// else, and only from the parent, which leaves it to its children. What others have given up already goes first
    /// then ([`crate::tree::dropped`]).
    fn park(&mut self) -> usize {
        self.keep_listed();
        let mut chosen = self.choosing.begin();
        let shared = if self.sharing.guards() { self.shared_now() } else { 0 };
        let is_lent = self.sharing.guards() && self.account.is_lent();
        // Where nothing is its own, it need not be looked for.
        let rounds =
            if shared == 0 || shared >= self.pages.in_memory() { 0 } else { self.pages.in_memory() / BATCH + 1 };
        let mut parked = 0;
        for round in 0..=rounds {
            if is_lent && shared >= self.pages.in_memory() {
                break;
            }
            chosen.clear();
            if self.sharing.guards() && round == rounds && !is_lent {
                let dropped = &self.account.shared().dropped;
                self.sharing.choose_dropped(BATCH, dropped, &self.pages, |page| {
                    self.choosing.freed(page);
                    chosen.push((page, Shadow::NONE));
                    chosen.len()
                });
                parked = self.park_these(&mut chosen);
                if parked > 0 {
                    break;
                }
                chosen.clear();
            }
            // Each page that does not go is chosen once: this ends.
            loop {
                self.choosing.choose(BATCH, self.pages.table(), &mut chosen);
                let any = !chosen.is_empty();
                self.keep_immovable(&mut chosen);
                if !any || !chosen.is_empty() {
                    break;
                }
            }
            if self.sharing.guards() && (round < rounds || is_lent) {
                self.keep_shared(&mut chosen);
            }
            if !chosen.is_empty() {
                parked = self.park_these(&mut chosen);
                break;
            }
        }
        self.choosing.end(chosen);
        parked
    }

    /// Takes out of what was chosen what can be neither moved nor copied: it stays, and is not chosen any more. A
    /// policy that gives up the newest pages of a loop would choose it for ever.
    fn keep_immovable(&mut self, chosen: &mut Chosen) {
        chosen.retain(|(page, _)| {
            let range = self.pages.range(self.pages.address(*page));
            // One that is set aside is elsewhere, and taken back first.
            let can_go = self.pages.entry(*page).state() == State::SetAside
                || range.is_some_and(|(.., attributes)| attributes.can_be_evicted());
            if !can_go {
                self.counts.unmovable();
                self.stays(*page);
                self.pages.fix(*page);
            }
            can_go
        });
    }

    /// Resident pages that a parent or children share, by a look that is not too old.
    fn shared_now(&mut self) -> usize {
        if self.sharing.is_due() {
            let shared = self.unguard_own();
            self.sharing.has_looked(shared);
        }
        self.sharing.pages()
    }

    /// Takes what is shared out of what was chosen: it stays.
    fn keep_shared(&mut self, chosen: &mut Chosen) {
        chosen.retain(|(page, _)| {
            let shared = self.is_guarded(self.pages.address(*page));
            if shared {
                self.stays(*page);
            }
            !shared
        });
    }

    /// The same with pages that are in memory and not the policy's any more.
    pub(crate) fn park_these(&mut self, chosen: &mut [(PageId, Shadow)]) -> usize {
        for (page, _) in chosen.iter() {
            if self.pages.entry(*page).state() == State::SetAside {
                self.take_back(self.pages.address(*page));
            }
        }
        chosen.sort_unstable_by_key(|(page, _)| self.pages.address(*page));
        let (mut at, mut parked) = (0, 0);
        while at < chosen.len() {
            let start = self.pages.address(chosen[at].0);
            let run = chosen[at..]
                .iter()
                .enumerate()
                .take_while(|(i, (page, _))| self.pages.address(*page) == start + i * PAGE)
                .count();
            let Some(moved) = self.move_away(start, run) else {
                chosen[at..].iter().for_each(|(page, _)| self.stays(*page));
                break;
            };
            let moved = moved.unwrap_or_else(|error| self.move_shared(start, error));
            for (page, shadow) in &chosen[at..at + moved] {
                self.parks(*page, *shadow);
            }
            parked += moved;
            at += moved;
            if moved == 0 {
                let page = chosen[at].0;
                self.stays(page);
                self.counts.unmovable();
                if !self.pages.can_be_moved(start) {
                    // The kernel does not discard it, as a mapping that is sealed.
                    self.pages.fix(page);
                }
                at += 1;
            }
        }
        self.counts.parked(parked);
        parked
    }

    /// Moves or copies neighbouring pages to the staging area, whichever their rights allow. As [`Mover::park`].
    ///
    /// [`Mover::park`]: crate::moving::Mover::park
    fn move_away(&mut self, start: usize, pages: usize) -> Option<Result<usize, isize>> {
        match self.pages.range(start) {
            Some((_, end, attributes)) if !attributes.can_be_moved() => {
                let pages = pages.min((end - start) / PAGE);
                // SAFETY: resident managed pages that the policy gives up. Their rights, which change under the lock of
                // this engine alone, let no thread write to them.
                unsafe { self.moving.park_copies(start, pages) }
            }
            // SAFETY: resident managed pages that the policy gives up.
            _ => unsafe { self.moving.park(start, pages) },
        }
    }

    /// A page that was shared with a child or parent at a fork must be written to before it can be moved. Returns 1 if
    /// it was.
    fn move_shared(&mut self, address: usize, error: isize) -> usize {
        if error != EBUSY || !self.pages.can_be_moved(address) {
            return 0;
        }
        let guarded = self.is_guarded(address) && self.is_shared(address, &Pagemap::open());
        if guarded {
            self.moving.protect(address, PAGE, false);
        }
        // An atomic operation of the language that changes nothing may be compiled to one that does not write.
        // SAFETY: the page is resident and writable; nothing changes, even if another thread writes at the same time.
        unsafe { core::arch::asm!("lock or byte ptr [{}], 0", in(reg) address, options(nostack)) };
        // SAFETY: as in `park_these`.
        let moved = unsafe { self.moving.park(address, 1) } == Some(Ok(1));
        if guarded && !moved {
            self.unguard(address);
        }
        usize::from(moved)
    }

    fn parks(&mut self, page: PageId, shadow: Shadow) {
        let address = self.pages.address(page);
        let is_held_by_others = self.unguard(address);
        let place = self.moving.receive(address, is_held_by_others);
        if is_held_by_others {
            self.sharing.left(address, &self.account.shared().dropped);
        }
        if self.was_never_written(address) && self.is_zeros_still(address, place) {
            self.drop_copy(page);
            self.pages.set(page, State::Untouched, Shadow::NONE);
            return;
        }
        self.pages.set(page, State::Parked(place), shadow);
    }

    /// A chosen page stays: the policy thinks it gone.
    fn stays(&mut self, page: PageId) {
        let guarded = self.pages.entry(page).is_guarded();
        self.admit(page, None);
        if guarded {
            self.pages.guard(page, true);
        }
        self.look_later(self.pages.address(page));
    }

    /// Stores what was parked longest and gives its memory back, or keeps it spare. Returns the pages of memory that
    /// this is.
    pub(crate) fn store_oldest(&mut self) -> usize {
        let (first, places) = self.moving.oldest(BATCH);
        let mut emptied = 0;
        while emptied < places {
            let run = (first + emptied as u32..first + places as u32)
                .take_while(|place| self.moving.owner(*place) != 0)
                .count();
            if run == 0 {
                emptied += 1;
                continue;
            }
            let done = self.store_run(first + emptied as u32, run);
            emptied += done;
            if done < run {
                break;
            }
        }
        if emptied == 0 { 0 } else { self.moving.take_back(emptied) }
    }

    /// Stores the pages of neighbouring places; those that still are as they came back need not be. Returns how many,
    /// from the front.
    fn store_run(&mut self, first: u32, places: usize) -> usize {
        let mut pages: [&Page; BATCH] = [&Page::ZERO; BATCH];
        let mut slots = [Slot::from_bits(0); BATCH];
        let mut owners = [0; BATCH];
        let mut done = 0;
        while done < places {
            let (mut many, mut held_by_others) = (0, 0u32);
            let mut kept = None;
            while done + many < places {
                let place = first + (done + many) as u32;
                owners[many] = self.moving.owner(place);
                // SAFETY: the place holds a page, which stays there until it is stored.
                pages[many] = unsafe { self.moving.page(place) };
                let (page, _) = self.pages.find(owners[many]).expect("invariant: a parked page is known");
                kept = self.contents.leave(page, pages[many]).map(|slot| (owners[many], slot));
                if kept.is_some() {
                    break;
                }
                many += 1;
                if self.moving.is_held_by_others(place) {
                    held_by_others |= 1 << (many - 1);
                }
            }
            let written = self.contents.write(&pages[..many], &owners[..many], held_by_others, &mut slots[..many]);
            for index in 0..written {
                self.is_stored(first + (done + index) as u32, owners[index], slots[index]);
            }
            done += written;
            if let Some((owner, slot)) = kept {
                if written < many {
                    // The page before it stays, so this one does.
                    self.contents.release(slot);
                } else {
                    self.contents.is_used_again(owner, slot);
                    self.is_stored(first + done as u32, owner, slot);
                    done += 1;
                }
            }
            if written < many {
                break;
            }
        }
        done
    }

    /// The page of a place has a slot now.
    fn is_stored(&mut self, place: u32, owner: usize, slot: Slot) {
        let (page, entry) = self.pages.find(owner).expect("invariant: a parked page is known");
        self.pages.set(page, State::Stored(slot), entry.shadow());
        let shared = self.moving.is_stored(place);
        self.account.unshared(u64::from(shared));
        self.account.stored_apart(u64::from(shared));
        self.counts.stored();
        self.went(owner);
    }

    /// A page is stored: one in 32 is followed.
    fn went(&mut self, address: usize) {
        if Contents::is_followed(address) {
            self.contents.follow(address, self.account.stored_by_all(self.counts.statistics()));
        }
    }
}
