//! Who has been granted how much, who gets more and who gives way.
//!
//! A member that fills its grant and waits for memory, or grows, wants more. What is free goes to it first; then what
//! others have been granted and do not use; then others give by the core's own rule ([`gifts`]). `min` and `low` hold
//! as the kernel's documentation says. Of what they do not protect, the oldest generation goes first, if it is older
//! than what the wanting member itself would evict. Each round moves a small part, so that births, which change as
//! memory moves, steer it. Members below their protection come before others, and have room to grow before they need it.
//! What they lack beyond that they are given between rounds ([`Ledger::answer`]): they wait for it, and evict nothing of
//! their own, while others have memory that is protected less.
//!
//! Invariants: no grant falls below its member's `min`. The sum of [`Entry::committed`] never exceeds the pool, but for
//! what members claim that kept a grant while the daemon was away: then all that answer give in proportion to what they
//! have beyond their protection, and if that is not enough, beyond their `min`; if their `min`s exceed the pool, so does
//! the sum ([`Ledger::mins_beyond_pool`]). Cost: a look at each member for each
//! member that wants more, in each round.
//!
//! ```
//! use refault_pool::shared::ledger::{Ledger, Terms};
//!
//! let mut ledger = Ledger::new(256 << 20, 0, None);
//! ledger.join(7, Terms::default(), 0);
//! ledger.round(0, 0);
//! let member = &ledger.members()[&7];
//! assert!(member.grant > 0 && member.committed <= ledger.committed());
//! assert_eq!(ledger.committed() + ledger.free(), ledger.pool());
//! ```

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::mem;

use refault_config::units::bytes_text;
use refault_core::policy::giving::{Group, Standing, effective, gifts};

pub use super::entry::{Entry, Figures, MAX_PARTS, MIN_GRANT, Terms};
use super::entry::{MAX_BYTES, MIN_GROWTH, Squeeze};

const MIB: u64 = 1 << 20;
/// What a member begins with, if that is free.
const FIRST_GRANT: u64 = 32 * MIB;
/// For this time, in nanoseconds, a member keeps the memory that it needs to begin, used or not.
const GRACE: u64 = 60_000_000_000;

/// Why a budget cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// No member has that number.
    #[error("no such member")]
    NoMember,
    /// The member is never to have less than this number of bytes.
    #[error("below the least that the member is to have, {}", bytes_text(*.0))]
    BelowLeast(u64),
    /// The pool has this number of bytes.
    #[error("more than the pool's {}", bytes_text(*.0))]
    AbovePool(u64),
}

/// See the module.
#[derive(Debug, Default)]
pub struct Ledger {
    pool: u64,
    min_ttl: u64,
    proactive: Option<f64>,
    members: BTreeMap<u64, Entry>,
    /// Bytes that are kept for a member that is about to begin, in this round.
    reserved: u64,
}

impl Ledger {
    /// For a pool of `pool` bytes; generations younger than `min_ttl` nanoseconds are not taken. `proactive`: the share
    /// of time in which a member may wait, to which each is squeezed.
    pub fn new(pool: u64, min_ttl: u64, proactive: Option<f64>) -> Ledger {
        Ledger { pool: pool.min(MAX_BYTES), min_ttl, proactive, members: BTreeMap::new(), reserved: 0 }
    }

    /// Bytes of the pool.
    pub fn pool(&self) -> u64 {
        self.pool
    }

    /// The members.
    pub fn members(&self) -> &BTreeMap<u64, Entry> {
        &self.members
    }

    /// Bytes that members may be using.
    pub fn committed(&self) -> u64 {
        self.members.values().map(|member| member.committed).sum()
    }

    /// Bytes that can be granted.
    pub fn free(&self) -> u64 {
        self.pool.saturating_sub(self.committed())
    }

    /// Bytes that its members' `min`s are together, if the pool has less: a daemon was started again with less memory.
    /// Nothing is taken below them, so more is granted than there is.
    pub fn mins_beyond_pool(&self) -> Option<u64> {
        Some(self.floors()).filter(|floors| *floors > self.pool)
    }

    /// Bytes that are never taken of members that have begun.
    fn floors(&self) -> u64 {
        self.members.values().filter(|member| member.grant > 0).map(Entry::floor).sum()
    }

    /// Whether a member could ever be granted what it asks for at least.
    pub fn could_hold(&self, terms: &Terms) -> bool {
        let floors: u64 = self.members.values().map(Entry::floor).sum();
        floors.saturating_add(terms.floor().max(terms.needs)) <= self.pool
    }

    /// A member joins, and has this already: 0 unless it kept a grant while the daemon was away.
    pub fn join(&mut self, id: u64, terms: Terms, has: u64) {
        // It may be using all of it, also if the pool has become smaller.
        let has = has.min(MAX_BYTES);
        let budget = self.members.get(&id).filter(|_| has > 0).and_then(|before| before.budget);
        // Its min holds also if the pool has become smaller than that.
        let terms = Terms { min: terms.min.min(MAX_BYTES), needs: terms.needs.min(self.pool), ..terms };
        let entry = Entry {
            terms,
            asked: terms,
            budget: None,
            grant: has,
            turn: 1,
            committed: has,
            figures: Figures { turn: 1, limit: has, charge: has, ..Figures::default() },
            answers: true,
            pressure: 0.0,
            faulted: has == 0,
            grows: false,
            evicts: false,
            used_at: None,
            grown_at: None,
            given: (0, 0),
            gives_unused: false,
            is_refused: false,
            grace_until: 0,
            lowering_since: None,
            before: Figures::default(),
            squeeze: self.proactive.map(Squeeze::towards),
        };
        self.members.insert(id, entry);
        self.keep_budget(id, budget);
    }

    /// A member has this budget from the time before the daemon was started, set by hand.
    pub fn keep_budget(&mut self, id: u64, budget: Option<u64>) {
        if let (Some(member), Some(bytes)) = (self.members.get_mut(&id), budget) {
            let bytes = bytes.max(member.floor());
            member.budget = Some(bytes);
            member.terms = Terms { max: Some(bytes), low: member.asked.low.min(bytes), ..member.asked };
        }
    }

    /// A member and all of its processes are gone.
    pub fn leave(&mut self, id: u64) {
        self.members.remove(&id);
    }

    /// A member answers, or does not.
    pub fn answers(&mut self, id: u64, answers: bool) {
        if let Some(member) = self.members.get_mut(&id) {
            member.answers = answers;
        }
    }

    /// A member's budget is set by hand: its `max`, and its `low` as far as that is more. It is the most that it may
    /// have; who needs it more is given of it as before. None lifts it: what the member asked for holds again.
    ///
    /// # Errors
    /// There is no such member, or `bytes` is below its least or above the pool. Nothing has changed then.
    pub fn set_budget(&mut self, id: u64, bytes: Option<u64>) -> Result<(), BudgetError> {
        let pool = self.pool;
        let member = self.members.get_mut(&id).ok_or(BudgetError::NoMember)?;
        let Some(bytes) = bytes else {
            (member.budget, member.terms) = (None, member.asked);
            return Ok(());
        };
        if bytes < member.floor() {
            return Err(BudgetError::BelowLeast(member.floor()));
        }
        if bytes > pool {
            return Err(BudgetError::AbovePool(pool));
        }
        member.set_grant(member.grant.min(bytes));
        self.keep_budget(id, Some(bytes));
        Ok(())
    }

    /// Takes down what a member says.
    pub fn report(&mut self, id: u64, figures: Figures) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let figures = figures.bounded();
        // The turn alone may be that of a grant by the daemon before this one.
        if figures.turn == member.turn && figures.limit <= member.grant && figures.charge <= member.grant {
            member.committed = member.grant;
        }
        member.figures = figures;
    }

    /// One round, `elapsed` nanoseconds after the last; `now` is on the monotonic clock. Afterwards each member is to
    /// be told its grant.
    pub fn round(&mut self, now: u64, elapsed: u64) {
        self.reserved = 0;
        let mut freshly_joined = Vec::new();
        for (id, member) in &mut self.members {
            let waited = member.figures.waited.saturating_sub(member.before.waited);
            member.pressure = waited as f64 / elapsed.max(1) as f64;
            member.faulted = member.grant == 0 || member.figures.faults > member.before.faults;
            member.grows = member.figures.all_bytes() > member.before.all_bytes() + MIN_GROWTH;
            member.evicts = member.figures.stored > member.before.stored;
            if member.faulted || member.grows || member.used_at.is_none() {
                member.used_at = Some(now);
            }
            if member.grows || member.evicts || member.grown_at.is_none() {
                member.grown_at = Some(now);
            }
            member.before = member.figures.clone();
            if let Some(squeeze) = &mut member.squeeze {
                squeeze.look(member.figures.waited, now);
            }
            if member.grant == 0 {
                freshly_joined.push(*id);
            }
            let is_confirmed = member.committed <= member.grant;
            member.lowering_since = (!is_confirmed).then(|| member.lowering_since.unwrap_or(now));
        }
        self.fit();
        // Who waits to begin goes first, then who is below its protection, then whose generations are youngest: who has
        // older ones would have to give.
        let pool = self.pool;
        let wants = |(_, member): &(&u64, &Entry)| member.grant > 0 && member.wants(pool, now);
        let order = |member: &Entry| (Reverse(member.protection().claim()), member.group().weighted_age(now));
        let mut wanting: Vec<(u64, _)> =
            self.members.iter().filter(wants).map(|(id, member)| (*id, order(member))).collect();
        wanting.sort_by_key(|(_, order)| *order);
        for id in freshly_joined {
            self.begin(id, now);
        }
        for (id, _) in wanting {
            self.give_more(id, now);
        }
        self.answer(now);
        self.squeeze();
    }

    /// Whether a member waits for memory within its protection: [`Ledger::answer`] is to be called when any member has
    /// said something, and not at the next round only.
    pub fn is_pleaded(&self) -> bool {
        self.members.values().any(Entry::pleads)
    }

    /// Gives members what they wait for within their protection: what is free, or others are asked to give it. Who is
    /// least protected waits longest. Afterwards members are to be told their grants, and what is refused.
    pub fn answer(&mut self, now: u64) {
        let mut pleading: Vec<(u64, Standing)> =
            self.members.iter().filter(|(_, member)| member.pleads()).map(claim_of).collect();
        pleading.sort_by_key(|(_, claim)| Reverse(*claim));
        for (id, _) in pleading {
            self.answer_one(id, now);
        }
    }

    /// Members whose pleas were in vain since this was asked last.
    pub fn take_refused(&mut self) -> Vec<u64> {
        let refused =
            self.members.iter_mut().filter_map(|(id, member)| mem::take(&mut member.is_refused).then_some(*id));
        refused.collect()
    }

    fn answer_one(&mut self, id: u64, now: u64) {
        let member = &self.members[&id];
        let wanted = member.plea(now).min(member.protected(self.pool).saturating_sub(member.grant));
        let needed = member.figures.lacks.min(wanted);
        let is_confirmed = member.committed == member.grant;
        let there = match is_confirmed {
            true => self.free().saturating_sub(self.reserved),
            // It has begun to use, meanwhile, what it was taken to leave unused: it keeps that.
            false if member.gives_unused => member.committed - member.grant,
            // Others that are protected as well wait for what it is to give first.
            false => 0,
        };
        let given = wanted.min(there);
        let lacks = is_confirmed && given < needed;
        if lacks && (self.is_lowering(now) || self.take_all(id, (needed, wanted), given, now)) {
            return;
        }
        if given > 0 {
            self.raise(id, given);
        }
        if let Some(member) = self.members.get_mut(&id) {
            (member.given, member.is_refused, member.figures.lacks) = ((given, now), given == 0, 0);
        }
    }

    /// Lowers grants of as many others as that takes, beside what is `there`. Whether there was anything to take.
    fn take_all(&mut self, to: u64, (needed, wanted): (u64, u64), mut there: u64, now: u64) -> bool {
        let (before, mut protected) = (self.granted(), needed.saturating_sub(there));
        while there < wanted {
            let granted = self.granted();
            self.take(to, protected, wanted - there, now);
            // Who has just been asked may have more that is not protected.
            protected = 0;
            match granted - self.granted() {
                0 => break,
                bytes => there += bytes,
            }
        }
        self.granted() < before
    }

    /// Bytes that members are to keep to.
    fn granted(&self) -> u64 {
        self.members.values().map(|member| member.grant).sum()
    }

    /// Lowers grants if members may be using more than there is: a daemon was started again with less memory. Members
    /// that do not answer keep what they have, so the others give for them too: first what is not protected, where
    /// protections that exceed the pool hold in proportion, then down to their `min`.
    fn fit(&mut self) {
        let silent: u64 = self.members.values().filter(|member| !member.answers).map(|member| member.committed).sum();
        let left = self.pool.saturating_sub(silent);
        let answer = |member: &&Entry| member.answers;
        let granted: u64 = self.members.values().filter(answer).map(|member| member.grant).sum();
        let protected: u64 =
            self.members.values().filter(answer).map(|member| member.grant.min(member.terms.low)).sum();
        let low = |member: &Entry| effective(member.grant, granted, member.terms.low, left, protected, false);
        self.give_in_proportion(|member| member.floor().max(low(member)), left);
        self.give_in_proportion(Entry::floor, left);
    }

    /// Lowers the grants of members that answer to `most` together, if they exceed it, each in proportion to what it
    /// has beyond what it keeps.
    fn give_in_proportion(&mut self, keeps: impl Fn(&Entry) -> u64, most: u64) {
        let answer = |member: &&mut Entry| member.answers;
        // What was lowered already and is not confirmed yet is on its way.
        let granted: u64 = self.members.values_mut().filter(answer).map(|member| member.grant).sum();
        let missing = granted.saturating_sub(most);
        let spare = |member: &Entry| member.grant.saturating_sub(keeps(member));
        let all: u64 = self.members.values_mut().filter(answer).map(|member| spare(member)).sum();
        if missing == 0 || all == 0 {
            return;
        }
        for member in self.members.values_mut().filter(answer) {
            let part = u128::from(missing.min(all)) * u128::from(spare(member));
            member.set_grant(member.grant - part.div_ceil(u128::from(all)) as u64);
        }
    }

    /// A member that has nothing yet is granted its first memory, or room is made for it.
    fn begin(&mut self, id: u64, now: u64) {
        let free = self.free().saturating_sub(self.reserved);
        let member = &self.members[&id];
        let least = member.floor().max(member.terms.needs);
        if self.floors() + least > self.pool {
            // No memory of others would be enough.
            return;
        }
        if free < least && member.terms.needs > member.floor() {
            self.gather(least, now);
        } else if free >= least {
            let first =
                (free / 2).max(FIRST_GRANT).max(member.terms.low).min(free).min(member.most(self.pool)).max(least);
            self.raise(id, first);
            if let Some(member) = self.members.get_mut(&id) {
                member.grace_until = now.saturating_add(GRACE);
            }
        } else if !self.is_lowering(now) {
            // What is free is kept for it. It is let in whatever the ages are: it is below its min.
            self.reserved = self.reserved.max(least);
            self.take(id, least - free, FIRST_GRANT.max(least) - free, now);
        }
    }

    /// For a member that begins only when `least` bytes are free: takes what others do not use, once that is enough.
    /// Keeps what is free for it meanwhile.
    fn gather(&mut self, least: u64, now: u64) {
        let free = self.free();
        let idle = |member: &&mut Entry| member.answers && member.grant > 0;
        // What was lowered and is not confirmed yet is on its way.
        let coming: u64 = self.members.values().map(|member| member.committed.saturating_sub(member.grant)).sum();
        let unused: u64 = self.members.values_mut().filter(idle).map(|member| member.unused(now)).sum();
        if free + coming + unused < least {
            return;
        }
        self.reserved = least;
        let mut missing = least.saturating_sub(free + coming);
        for member in self.members.values_mut().filter(idle) {
            let bytes = member.unused(now).min(missing);
            member.set_grant(member.grant - bytes);
            member.gives_unused = bytes > 0;
            missing -= bytes;
        }
    }

    /// More for a member that wants it.
    fn give_more(&mut self, id: u64, now: u64) {
        let member = &self.members[&id];
        let wanted = member.wanted().min(member.most(self.pool) - member.grant);
        let granted = wanted.min(self.free().saturating_sub(self.reserved));
        if granted > 0 && member.committed == member.grant {
            self.raise(id, granted);
            if let Some(squeeze) = self.members.get_mut(&id).and_then(|member| member.squeeze.as_mut()) {
                squeeze.raise = squeeze.raise.saturating_mul(2).min(MAX_BYTES);
            }
        } else if granted == 0 && !self.is_lowering(now) {
            // Beyond its protection it is to be compared with others anew.
            let protected = member.terms.low.saturating_sub(member.grant);
            let wanted = if protected > 0 { wanted.min(protected) } else { wanted };
            self.take(id, wanted, wanted, now);
        }
    }

    /// Some member has not confirmed a lower grant yet: what is on its way is waited for. A member that takes too long
    /// is not: it may hang, or lie.
    fn is_lowering(&self, now: u64) -> bool {
        self.members.values().any(|member| member.is_lowering(now))
    }

    fn raise(&mut self, id: u64, bytes: u64) {
        let free = self.free();
        if let Some(member) = self.members.get_mut(&id) {
            debug_assert!(member.grant + bytes <= member.committed + free);
            member.set_grant(member.grant + bytes);
            member.committed = member.committed.max(member.grant);
        }
    }

    /// Lowers grants of others, to raise that of `to` when they are confirmed: by `wanted` where that costs unprotected
    /// memory, or none, and by no more than `needed` of what is protected.
    fn take(&mut self, to: u64, needed: u64, wanted: u64, now: u64) {
        let others = self.members.iter().filter(|(id, member)| **id != to && member.can_give());
        let others: Vec<(u64, &Entry)> = others.map(|(id, member)| (*id, member)).collect();
        if let Some((id, bytes)) =
            others.iter().map(|(id, member)| (*id, member.unused(now))).max_by_key(|(_, bytes)| *bytes)
            && bytes > 0
        {
            self.lower(id, bytes.min(wanted));
            if let Some(member) = self.members.get_mut(&id) {
                member.gives_unused = true;
            }
            return;
        }
        let groups: Vec<Group> = others.iter().map(|(_, member)| member.group()).collect();
        let needy = self.members[&to].group();
        let gifts_of = |bytes| gifts(&needy, &groups, bytes, self.min_ttl, now);
        let mut gifts = gifts_of(wanted);
        if gifts.level != Standing::Open {
            gifts = gifts_of(needed);
        }
        let parts: Vec<(u64, u64)> =
            others.iter().zip(gifts.bytes).map(|((id, member), bytes)| (*id, bytes.min(member.step()))).collect();
        for (id, bytes) in parts {
            self.lower(id, bytes);
        }
    }

    fn lower(&mut self, id: u64, bytes: u64) {
        if let Some(member) = self.members.get_mut(&id) {
            member.set_grant(member.grant.saturating_sub(bytes).max(member.floor()).min(member.grant));
        }
    }

    /// Squeezes each member towards the pressure that it may have.
    fn squeeze(&mut self) {
        for member in self.members.values_mut().filter(|member| member.answers && member.grant > 0) {
            let floor = member.floor().max(member.terms.low);
            let Some(squeeze) = member.squeeze.as_mut().filter(|squeeze| squeeze.is_due) else { continue };
            let bytes = squeeze.controller.step(member.figures.charge, squeeze.pressure);
            if bytes > 0 && member.committed == member.grant {
                squeeze.raise = bytes;
                let aim = member.figures.charge.saturating_sub(bytes).max(floor);
                member.set_grant(member.grant.min(aim).max(floor.min(member.grant)));
            }
        }
    }
}

/// A member and how well its next byte would be protected.
fn claim_of((id, member): (&u64, &Entry)) -> (u64, Standing) {
    (*id, member.protection().claim())
}
