//! Who has been granted how much, who gets more and who gives way.
//!
//! A member that fills its grant and waits for memory, or grows, wants more. What is free goes to it first; then what
//! others have been granted and do not use; then the member gives whose oldest generation is oldest, by the core's own
//! comparison ([`gives_first`]), if that is older than what the wanting member itself would evict. Each round moves a
//! small part, so that births, which change as memory moves, steer it.
//!
//! Invariant: the sum of [`Entry::committed`] never exceeds the pool, but for what members claim that kept a grant
//! while the daemon was away: then all that answer give, in proportion to what they have beyond their `min`. Cost: a look at each member for each round.
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

use std::collections::BTreeMap;

use refault_config::units::bytes_text;
use refault_core::memory::Protection;
use refault_core::policy::giving::{DEFAULT_WEIGHT, Group, gives_first, has_outlived};

use crate::pressure::Controller;

const MIB: u64 = 1 << 20;
/// More than any machine has; what members say is cut to it, so that sums stay numbers.
const MAX_BYTES: u64 = 1 << 48;
/// The least that a program can run in.
pub const MIN_GRANT: u64 = 4 * MIB;
/// What a member begins with, if that is free.
const FIRST_GRANT: u64 = 32 * MIB;
/// The part of a grant that moves in a round, and the least.
const STEP: (u64, u64) = (8, 2 * MIB);
/// Nanoseconds between two steps towards the pressure that members may have: shorter times hold too few waits to tell.
const SQUEEZE_EVERY: u64 = 1_000_000_000;
/// The least that a squeezed member gets more: first what was taken last, then twice as much each time.
const MIN_RAISE: u64 = MIB / 4;
/// Bytes of new memory in a round that are growth.
const MIN_GROWTH: u64 = MIB / 4;
/// So many times the target pressure is answered in each round.
const ALARM: f64 = 10.0;
/// A member that leaves no more than this part of its grant, or no more than this, fills it: a program that waits for
/// memory keeps some room for the next pages, of 16 MiB 1.3 were seen. Less than [`SLACK`], or a member would want more
/// and give some back at once.
const ROOM: (u64, u64) = (10, 2 * MIB);
/// Room beyond what a member uses that is left to it when unused memory is taken back: 1/8, and the least.
const SLACK: (u64, u64) = (8, 8 * MIB);
/// So long, in nanoseconds, a member that began with what it needs is left it, used or not.
const GRACE: u64 = 60_000_000_000;
/// A generation must be so much older than those of the member that wants its memory.
const OLDER: (u128, u128) = (5, 4);

/// Parts of a member's memory that heat is said of.
pub const MAX_PARTS: usize = 48;
/// Policies that a member is compared by.
const MAX_POLICIES: usize = 8;
/// Bytes of a policy's name.
const MAX_NAME: usize = 64;

/// What a member asked for when it joined, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Terms {
    /// Never less than that.
    pub min: u64,
    /// Not less than that while others have something to give.
    pub low: u64,
    /// Never more than that; none: the pool.
    pub max: Option<u64>,
    /// Twice the weight makes its generations count as half as old.
    pub weight: u32,
    /// It begins with so much, and not before that is free.
    #[serde(default)]
    pub needs: u64,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { min: MIN_GRANT, low: 0, max: None, weight: DEFAULT_WEIGHT, needs: 0 }
    }
}

/// Why a budget cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// Nobody has that number.
    #[error("no such member")]
    NoMember,
    /// The member is never to have less than so many bytes.
    #[error("below the least that the member is to have, {}", bytes_text(*.0))]
    BelowLeast(u64),
    /// The pool has so many bytes.
    #[error("more than the pool's {}", bytes_text(*.0))]
    AbovePool(u64),
}

/// What a member says of itself.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Number of the grant that it keeps to, see [`Entry::turn`].
    pub turn: u64,
    /// Bytes that it keeps to now.
    pub limit: u64,
    /// Bytes that its programs use.
    pub charge: u64,
    /// Bytes of them where they belong.
    pub resident: u64,
    /// Bytes of compressed memory.
    pub compressed: u64,
    /// Bytes that are out of memory, before compression.
    pub stored: u64,
    /// Faults so far.
    pub faults: u64,
    /// Pages that came back so far.
    pub refaults: u64,
    /// Nanoseconds that threads waited so far for pages that had been there.
    pub waited: u64,
    /// Nanoseconds that half, and 99 of 100, of the faults did not exceed.
    pub fault_p50: u64,
    /// See `fault_p50`.
    pub fault_p99: u64,
    /// Generations, oldest first: birth on the monotonic clock in nanoseconds, bytes.
    pub generations: Vec<[u64; 2]>,
    /// Processes that run in it.
    pub processes: Vec<i32>,
    /// Bytes with which 99 of 100 pages that came back lately would have stayed; none if hardly any came back.
    pub would_stop_refaulting_at: Option<u64>,
    /// By parts of its memory in the order of addresses, [`MAX_PARTS`] at most: how many of 100 pages were accessed
    /// lately. Empty if nobody looks.
    pub heat: Vec<u8>,
    /// Other policies, and how often each would have faulted lately for each fault of the member's own. Empty if nobody
    /// looks, or hardly any page was missed.
    pub policies: Vec<(String, f64)>,
}

impl Figures {
    /// Bytes of the program's memory, wherever it is.
    fn all_bytes(&self) -> u64 {
        self.resident.saturating_add(self.stored)
    }

    fn bounded(mut self) -> Figures {
        self.heat.truncate(MAX_PARTS);
        self.policies.truncate(MAX_POLICIES);
        // What was said becomes labels.
        self.policies.retain(|(name, times)| times.is_finite() && name.len() <= MAX_NAME);
        let own = [&mut self.limit, &mut self.charge, &mut self.resident, &mut self.compressed, &mut self.stored];
        let generations = self.generations.iter_mut().map(|[_, bytes]| bytes);
        own.into_iter()
            .chain(generations)
            .chain(&mut self.would_stop_refaulting_at)
            .for_each(|bytes| *bytes = (*bytes).min(MAX_BYTES));
        self
    }
}

/// A member's page of the ledger.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What it asked for.
    pub terms: Terms,
    /// The budget that was set by hand, if one was: `terms` holds it too, and it outlives that the member joins again.
    pub budget: Option<u64>,
    /// Bytes that it is to keep to.
    pub grant: u64,
    /// Grants that it has had: tells a confirmation of this one from that of an earlier one of the same size.
    pub turn: u64,
    /// Bytes that it may be using: its grant, or more until it has confirmed to be below a lower one.
    pub committed: u64,
    /// What it said last.
    pub figures: Figures,
    /// It answers. What does not keeps what it has.
    pub answers: bool,
    /// Share of time in which its threads waited, of the last round; more than 1 if several did.
    pub pressure: f64,
    /// It faulted in the last round.
    faulted: bool,
    /// It has more memory, stored or not, than at the round before.
    grows: bool,
    /// Until then what it needs is not taken as unused.
    grace_until: u64,
    /// The figures at the round before.
    before: Figures,
    squeeze: Option<Squeeze>,
}

/// What keeps a member at the pressure that it may have.
#[derive(Clone, Debug)]
struct Squeeze {
    controller: Controller,
    target: f64,
    /// When a second of waiting was added up last, and what had been waited by then.
    since: Option<(u64, u64)>,
    /// Pressure of that second.
    pressure: f64,
    /// Bytes that it gets if it waits too long.
    raise: u64,
    /// It was added up in this round.
    is_due: bool,
}

impl Squeeze {
    fn look(&mut self, waited: u64, now: u64) {
        // The first time there is nothing to compare with.
        let (since, before) = *self.since.get_or_insert((now, waited));
        let elapsed = now.saturating_sub(since);
        self.is_due = elapsed >= SQUEEZE_EVERY;
        if self.is_due {
            let so_far = waited.saturating_sub(before);
            (self.pressure, self.since) = (so_far as f64 / elapsed as f64, Some((now, waited)));
        }
    }
}

impl Entry {
    fn set_grant(&mut self, bytes: u64) {
        if bytes != self.grant {
            self.grant = bytes;
            self.turn += 1;
        }
    }

    /// Whether it uses what it has.
    fn is_full(&self) -> bool {
        self.grant.saturating_sub(self.figures.charge) <= (self.grant / ROOM.0).max(ROOM.1)
    }

    fn wants(&self, pool: u64) -> bool {
        let waits = match &self.squeeze {
            // It is to wait a little; and what it has new is used until it is found idle.
            Some(squeeze) => {
                let is_above = squeeze.is_due && squeeze.pressure > squeeze.target;
                is_above || self.pressure > ALARM * squeeze.target || self.grows
            }
            None => self.faulted || self.pressure > 0.0,
        };
        self.answers && self.grant < self.most(pool) && self.is_full() && waits
    }

    /// How much more it gets at once.
    fn wanted(&self) -> u64 {
        let Some(squeeze) = self.squeeze.as_ref().filter(|_| !self.grows) else { return self.step() };
        squeeze.raise.clamp(MIN_RAISE, self.step())
    }

    /// The most that it may be granted.
    fn most(&self, pool: u64) -> u64 {
        self.terms.max.unwrap_or(pool).min(pool).max(self.terms.min)
    }

    fn step(&self) -> u64 {
        (self.grant / STEP.0).max(STEP.1)
    }

    fn floor(&self) -> u64 {
        self.terms.min.max(MIN_GRANT)
    }

    /// Bytes that it was granted beyond the least that it is to have.
    fn spare(&self) -> u64 {
        self.grant.saturating_sub(self.floor())
    }

    /// Bytes that it was granted and does not use; taking them costs it nothing.
    fn unused(&self, now: u64) -> u64 {
        let used = self.figures.charge;
        let needs = if now < self.grace_until { self.terms.needs } else { 0 };
        let keeps = (used + (used / SLACK.0).max(SLACK.1)).max(self.floor()).max(needs);
        self.grant.saturating_sub(keeps)
    }

    /// As the core compares it; what it has been granted and does not use is no usage.
    fn group(&self) -> Group {
        // Without generations it counts as just used.
        let birth = self.figures.generations.iter().find(|[_, bytes]| *bytes > 0).map_or(u64::MAX, |[birth, _]| *birth);
        let protection = Protection { usage: self.grant, min: self.floor(), low: self.terms.low };
        Group { protection, birth, evictable: self.grant - self.floor().min(self.grant), weight: self.terms.weight }
    }
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
    /// For a pool of so many bytes; generations younger than `min_ttl` nanoseconds are not taken. `proactive`: the
    /// share of time in which a member may wait, to which each is squeezed.
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

    /// Whether a member could ever be granted what it asks for at least.
    pub fn could_hold(&self, terms: &Terms) -> bool {
        let floors: u64 = self.members.values().map(Entry::floor).sum();
        floors.saturating_add(terms.min.max(MIN_GRANT).max(terms.needs)) <= self.pool
    }

    /// A member joins, and has this already: 0 unless it kept a grant while the daemon was away.
    pub fn join(&mut self, id: u64, terms: Terms, has: u64) {
        // It may be using all of it, also if the pool has become smaller.
        let has = has.min(MAX_BYTES);
        let budget = self.members.get(&id).filter(|_| has > 0).and_then(|before| before.budget);
        let terms = Terms { min: terms.min.min(self.pool), needs: terms.needs.min(self.pool), ..terms };
        let entry = Entry {
            terms,
            budget: None,
            grant: has,
            turn: 1,
            committed: has,
            figures: Figures { turn: 1, limit: has, charge: has, ..Figures::default() },
            answers: true,
            pressure: 0.0,
            faulted: has == 0,
            grows: false,
            grace_until: 0,
            before: Figures::default(),
            squeeze: self.proactive.map(|target| Squeeze {
                controller: Controller::new(target),
                target: target.max(1e-9),
                since: None,
                pressure: 0.0,
                raise: MIN_RAISE,
                is_due: false,
            }),
        };
        self.members.insert(id, entry);
        self.keep_budget(id, budget);
    }

    /// A member has this budget from the time before the daemon was started, set by hand.
    pub fn keep_budget(&mut self, id: u64, budget: Option<u64>) {
        if let (Some(member), Some(bytes)) = (self.members.get_mut(&id), budget) {
            let bytes = bytes.max(member.floor());
            member.budget = Some(bytes);
            member.terms.max = Some(bytes);
            member.terms.low = member.terms.low.min(bytes);
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

    /// A member's budget is set by hand: its `max`, and its `low` as far as that is more. It is the most that it may have;
    /// who needs it more is given of it as before.
    ///
    /// # Errors
    /// There is no such member, or it cannot have so little or so much. Nothing has changed then.
    pub fn set_budget(&mut self, id: u64, bytes: u64) -> Result<(), BudgetError> {
        let pool = self.pool;
        let member = self.members.get_mut(&id).ok_or(BudgetError::NoMember)?;
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

    /// One round, so many nanoseconds after the last; `now` is on the monotonic clock. Afterwards each member is to be
    /// told its grant.
    pub fn round(&mut self, now: u64, elapsed: u64) {
        self.reserved = 0;
        let mut freshly_joined = Vec::new();
        for (id, member) in &mut self.members {
            let waited = member.figures.waited.saturating_sub(member.before.waited);
            member.pressure = waited as f64 / elapsed.max(1) as f64;
            member.faulted = member.grant == 0 || member.figures.faults > member.before.faults;
            member.grows = member.figures.all_bytes() > member.before.all_bytes() + MIN_GROWTH;
            member.before = member.figures.clone();
            if let Some(squeeze) = &mut member.squeeze {
                squeeze.look(member.figures.waited, now);
            }
            if member.grant == 0 {
                freshly_joined.push(*id);
            }
        }
        self.fit();
        // Who waits to begin goes first, then whose generations are youngest: who has older ones would have to give.
        let pool = self.pool;
        let wants = |(_, member): &(&u64, &Entry)| member.grant > 0 && member.wants(pool);
        let wanting = self.members.iter().filter(wants);
        let mut wanting: Vec<(u64, u128)> =
            wanting.map(|(id, member)| (*id, member.group().weighted_age(now))).collect();
        wanting.sort_by_key(|(_, age)| *age);
        for id in freshly_joined {
            self.begin(id, now);
        }
        for (id, _) in wanting {
            self.give_more(id, now);
        }
        self.squeeze();
    }

    /// Lowers grants if members may be using more than there is: a daemon was started again with less memory. Members
    /// that do not answer keep what they have, so the others give for them too.
    fn fit(&mut self) {
        let silent: u64 = self.members.values().filter(|member| !member.answers).map(|member| member.committed).sum();
        let answer = |member: &&mut Entry| member.answers;
        let granted: u64 = self.members.values_mut().filter(answer).map(|member| member.grant).sum();
        // What was lowered already and is not confirmed yet is on its way.
        let missing = silent.saturating_add(granted).saturating_sub(self.pool);
        let spare: u64 = self.members.values_mut().filter(answer).map(|member| member.spare()).sum();
        if missing == 0 || spare == 0 {
            return;
        }
        for member in self.members.values_mut().filter(answer) {
            let part = u128::from(missing.min(spare)) * u128::from(member.spare());
            member.set_grant(member.grant - part.div_ceil(u128::from(spare)) as u64);
        }
    }

    /// A member that has nothing yet is granted its first memory, or room is made for it.
    fn begin(&mut self, id: u64, now: u64) {
        let free = self.free();
        let member = &self.members[&id];
        let least = member.floor().max(member.terms.needs);
        if free < least && member.terms.needs > member.floor() {
            self.gather(least, now);
        } else if free >= least {
            let first =
                (free / 2).max(FIRST_GRANT).max(member.terms.low).min(free).min(member.most(self.pool)).max(least);
            self.raise(id, first);
            if let Some(member) = self.members.get_mut(&id) {
                member.grace_until = now.saturating_add(GRACE);
            }
        } else if !self.is_lowering() {
            self.take(id, least - free, now, true);
        }
    }

    /// For a member that begins only when so much is free: takes what others do not use, once that is enough, and keeps
    /// what is free for it meanwhile.
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
        } else if granted == 0 && !self.is_lowering() {
            self.take(id, wanted, now, false);
        }
    }

    /// Some member has not confirmed a lower grant yet: what is on its way is waited for.
    fn is_lowering(&self) -> bool {
        self.members.values().any(|member| member.answers && member.committed > member.grant)
    }

    fn raise(&mut self, id: u64, bytes: u64) {
        debug_assert!(bytes <= self.free());
        if let Some(member) = self.members.get_mut(&id) {
            member.set_grant(member.grant + bytes);
            member.committed = member.committed.max(member.grant);
        }
    }

    /// Lowers the grant of somebody else, to raise that of `to` when it is confirmed.
    fn take(&mut self, to: u64, wanted: u64, now: u64, begins: bool) {
        let others =
            || self.members.iter().filter(move |(id, member)| **id != to && member.answers && member.grant > 0);
        if let Some((id, bytes)) =
            others().map(|(id, member)| (*id, member.unused(now))).max_by_key(|(_, bytes)| *bytes)
            && bytes > 0
        {
            return self.lower(id, bytes.min(wanted));
        }
        let (ids, groups): (Vec<u64>, Vec<Group>) = others().map(|(id, member)| (*id, member.group())).unzip();
        // One that is to begin is let in whatever the ages are.
        let min_ttl = if begins { 0 } else { self.min_ttl };
        let Some(at) = gives_first(&groups, min_ttl, now) else { return };
        let own = self.members[&to].group();
        let is_older = groups[at].weighted_age(now) * OLDER.1 >= own.weighted_age(now) * OLDER.0;
        debug_assert!(begins || has_outlived(groups[at].birth, min_ttl, now));
        if begins || is_older {
            let step = self.members[&ids[at]].step();
            self.lower(ids[at], if begins { wanted.max(step) } else { wanted.min(step) });
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
