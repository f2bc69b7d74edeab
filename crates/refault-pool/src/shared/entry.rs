//! A member's page of the ledger: what it asked for, what it said of itself, what it is granted.
//!
//! What a member says is not believed further than it has to be: sizes are cut to [`MAX_BYTES`] and lists to their
//! bounds, so that sums stay numbers. Cost: a few hundred bytes for each member.

use refault_core::memory::Protection;
use refault_core::policy::giving::{DEFAULT_WEIGHT, Group};

use crate::pressure::Controller;

const MIB: u64 = 1 << 20;
/// More than any machine has; what members say is cut to it, so that sums stay numbers.
pub(super) const MAX_BYTES: u64 = 1 << 48;
/// The least that a program can run in.
pub const MIN_GRANT: u64 = 4 * MIB;
/// The part of a grant that moves in a round, and the least.
const STEP: (u64, u64) = (8, 2 * MIB);
/// Nanoseconds between two steps towards the pressure that members may have: shorter times hold too few waits to tell.
const SQUEEZE_EVERY: u64 = 1_000_000_000;
/// The least that a squeezed member gets more: first what was taken last, then twice as much each time.
const MIN_RAISE: u64 = MIB / 4;
/// Bytes of new memory in a round that are growth.
pub(super) const MIN_GROWTH: u64 = MIB / 4;
/// Pressure of this many times the target is answered in each round.
const ALARM: f64 = 10.0;
/// A member that leaves no more than this part of its grant, or no more than this, fills it: a program that waits for
/// memory keeps some room for the next pages, of 16 MiB 1.3 were seen. Less than [`SLACK`], or a member would want more
/// and give some back at once.
const ROOM: (u64, u64) = (10, 2 * MIB);
/// Room beyond what a member uses that is left to it when unused memory is taken back: 1/8, and the least.
const SLACK: (u64, u64) = (8, 8 * MIB);
/// The same of a member within its protection that has not grown for [`STEADY_AFTER`] nanoseconds. What it lacks then
/// it is given at once.
const STEADY_SLACK: (u64, u64) = (64, MIB);
const STEADY_AFTER: u64 = 2_000_000_000;
/// Pleas of which each comes sooner than that after the one before are of one growth, nanoseconds: each is given twice
/// as much as the one before.
const SAME_GROWTH: u64 = 1_000_000_000;
/// After this time, in nanoseconds, the pool does not wait for a member to confirm a lower grant: others give
/// meanwhile.
const MAX_LOWERING: u64 = 2_000_000_000;
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
    /// Not less than that while any member has unprotected memory.
    pub low: u64,
    /// Never more than that; none: the pool.
    pub max: Option<u64>,
    /// Twice the weight makes its generations count as half as old.
    pub weight: u32,
    /// Bytes that it begins with, and not before they are free.
    #[serde(default)]
    pub needs: u64,
}

impl Terms {
    /// Bytes that are never taken of a member that has begun.
    pub fn floor(&self) -> u64 {
        self.min.max(MIN_GRANT)
    }
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { min: MIN_GRANT, low: 0, max: None, weight: DEFAULT_WEIGHT, needs: 0 }
    }
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
    /// The same, first touches included.
    pub waited_in_all: u64,
    /// The most bytes that its programs have used.
    pub peak: u64,
    /// Nanoseconds that half, and 99 of 100, of the faults did not exceed.
    pub fault_p50: u64,
    /// See `fault_p50`.
    pub fault_p99: u64,
    /// Generations, oldest first: birth on the monotonic clock in nanoseconds, bytes.
    pub generations: Vec<[u64; 2]>,
    /// Processes that run in it.
    pub processes: Vec<i32>,
    /// Bytes that its programs wait for now, within its protection.
    pub lacks: u64,
    /// Bytes with which 99 of 100 pages that came back lately would have stayed; none if hardly any came back.
    pub would_stop_refaulting_at: Option<u64>,
    /// By parts of its memory in the order of addresses, [`MAX_PARTS`] at most: how many of 100 pages were accessed
    /// lately. Empty if the member does not look.
    pub heat: Vec<u8>,
    /// Other policies, and how often each would have faulted lately for each fault of the member's own. Empty if the
    /// member does not look, or hardly any page was missed.
    pub policies: Vec<(String, f64)>,
}

impl Figures {
    /// Bytes of the program's memory, wherever it is.
    pub(super) fn all_bytes(&self) -> u64 {
        self.resident.saturating_add(self.stored)
    }

    pub(super) fn bounded(mut self) -> Figures {
        self.heat.truncate(MAX_PARTS);
        self.policies.truncate(MAX_POLICIES);
        // What was said becomes labels.
        self.policies.retain(|(name, times)| times.is_finite() && name.len() <= MAX_NAME);
        let own = [
            &mut self.limit,
            &mut self.charge,
            &mut self.resident,
            &mut self.compressed,
            &mut self.stored,
            &mut self.peak,
            &mut self.lacks,
        ];
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
    /// What holds for it: what it asked for, within a budget that was set by hand.
    pub terms: Terms,
    /// What it asked for when it joined, which holds again when such a budget is lifted.
    pub asked: Terms,
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
    pub(super) faulted: bool,
    /// It has more memory, stored or not, than at the round before.
    pub(super) grows: bool,
    /// It has more memory that is stored than at the round before: its grant is the reason, whatever room it leaves.
    pub(super) evicts: bool,
    /// When it faulted or grew last, as far as rounds tell; none before the first.
    pub(super) used_at: Option<u64>,
    /// When it had more memory than at the round before, stored or not, or more that is stored; none before the first.
    pub(super) grown_at: Option<u64>,
    /// What it was given by its last plea, and when.
    pub(super) given: (u64, u64),
    /// What it has not confirmed to have given was not used.
    pub(super) gives_unused: bool,
    /// Its plea was in vain, which it is to be told.
    pub(super) is_refused: bool,
    /// Until then what it needs is not taken as unused.
    pub(super) grace_until: u64,
    /// Since when it has not confirmed a lower grant.
    pub(super) lowering_since: Option<u64>,
    /// The figures at the round before.
    pub(super) before: Figures,
    pub(super) squeeze: Option<Squeeze>,
}

/// What keeps a member at the pressure that it may have.
#[derive(Clone, Debug)]
pub(super) struct Squeeze {
    pub(super) controller: Controller,
    target: f64,
    /// When a second of waiting was added up last, and what had been waited by then.
    since: Option<(u64, u64)>,
    /// Pressure of that second.
    pub(super) pressure: f64,
    /// Bytes that it gets if it waits too long.
    pub(super) raise: u64,
    /// It was added up in this round.
    pub(super) is_due: bool,
}

impl Squeeze {
    /// Towards this share of time.
    pub(super) fn towards(target: f64) -> Squeeze {
        Squeeze {
            controller: Controller::new(target),
            target: target.max(1e-9),
            since: None,
            pressure: 0.0,
            raise: MIN_RAISE,
            is_due: false,
        }
    }

    pub(super) fn look(&mut self, waited: u64, now: u64) {
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
    pub(super) fn set_grant(&mut self, bytes: u64) {
        if bytes != self.grant {
            (self.grant, self.gives_unused) = (bytes, false);
            self.turn += 1;
        }
    }

    /// Whether it uses what it has.
    pub(super) fn is_full(&self) -> bool {
        self.grant.saturating_sub(self.figures.charge) <= (self.grant / ROOM.0).max(ROOM.1)
    }

    pub(super) fn wants(&self, pool: u64, now: u64) -> bool {
        let waits = match &self.squeeze {
            // It is to wait a little; and what it has new is used until it is found idle.
            Some(squeeze) => {
                let is_above = squeeze.is_due && squeeze.pressure > squeeze.target;
                is_above || self.pressure > ALARM * squeeze.target || self.grows
            }
            None => self.faulted || self.pressure > 0.0,
        };
        // Of what is protected it leaves less room, and asks for more by itself; not for what it brings back in turn.
        let lacks = !self.is_steady(now) || self.brings_back();
        let wants = (self.is_full() && lacks || self.evicts) && waits;
        self.answers && self.grant < self.most(pool) && (wants || self.protected_room(now) > 0)
    }

    /// Within its protection, and it has not grown lately.
    fn is_steady(&self, now: u64) -> bool {
        let is_idle = self.grown_at.is_some_and(|grown| now.saturating_sub(grown) >= STEADY_AFTER);
        is_idle && self.grant <= self.terms.low.max(self.floor())
    }

    /// It faulted in the last round, and has memory that is stored, which may be what it faulted on.
    fn brings_back(&self) -> bool {
        self.faulted && self.figures.stored > 0
    }

    /// Bytes up to which what it lacks is given to it at once.
    pub(super) fn protected(&self, pool: u64) -> u64 {
        self.terms.low.max(self.floor()).min(self.most(pool))
    }

    /// It says that it lacks memory, and knows of its last grant.
    pub(super) fn pleads(&self) -> bool {
        self.answers && self.grant > 0 && self.figures.lacks > 0 && self.figures.turn == self.turn
    }

    /// What a plea is answered with, if there is as much: what is lacked, or more while it grows.
    pub(super) fn plea(&self, now: u64) -> u64 {
        let (bytes, at) = self.given;
        let more = if now.saturating_sub(at) < SAME_GROWTH { bytes.saturating_mul(2) } else { 0 };
        more.clamp(STEP.1, self.step()).max(self.figures.lacks)
    }

    /// What it lacks of the room beyond its use that is left to members, up to its `low`: what it grows by within its
    /// protection need not wait for others to give, nor evict its own.
    fn protected_room(&self, now: u64) -> u64 {
        self.terms.low.min(self.kept(now)).saturating_sub(self.grant)
    }

    /// How much more it gets at once.
    pub(super) fn wanted(&self) -> u64 {
        let Some(squeeze) = self.squeeze.as_ref().filter(|_| !self.grows) else { return self.step() };
        squeeze.raise.clamp(MIN_RAISE, self.step())
    }

    /// The most that it may be granted.
    pub(super) fn most(&self, pool: u64) -> u64 {
        self.terms.max.unwrap_or(pool).min(pool).max(self.terms.min)
    }

    pub(super) fn step(&self) -> u64 {
        (self.grant / STEP.0).max(STEP.1)
    }

    pub(super) fn floor(&self) -> u64 {
        self.terms.floor()
    }

    /// Its grant was lowered and it has not confirmed it yet; other members wait for that memory.
    pub(super) fn is_lowering(&self, now: u64) -> bool {
        let is_in_time = self.lowering_since.is_none_or(|since| now.saturating_sub(since) < MAX_LOWERING);
        self.answers && self.committed > self.grant && is_in_time
    }

    /// It can be asked for memory: it answers, and has confirmed what it was asked for before.
    pub(super) fn can_give(&self) -> bool {
        self.answers && self.grant > 0 && self.committed == self.grant
    }

    /// Bytes that it was granted and does not use; taking them costs it nothing.
    pub(super) fn unused(&self, now: u64) -> u64 {
        let needs = if now < self.grace_until { self.terms.needs } else { 0 };
        self.grant.saturating_sub(self.kept(now).max(needs))
    }

    /// What it uses and the room that is left to it beyond.
    fn kept(&self, now: u64) -> u64 {
        let used = self.figures.charge;
        let (part, least) = if self.is_steady(now) { STEADY_SLACK } else { SLACK };
        (used + (used / part).max(least)).max(self.floor())
    }

    pub(super) fn protection(&self) -> Protection {
        Protection { usage: self.grant, min: self.floor(), low: self.terms.low }
    }

    /// As the core compares it. It may use its grant at any time, so that is its usage; what it does not use is taken
    /// before members are compared.
    pub(super) fn group(&self) -> Group {
        // Without generations all it has is as old as its last fault.
        let oldest = self.figures.generations.iter().find(|[_, bytes]| *bytes > 0);
        let birth = oldest.map_or(self.used_at.unwrap_or(u64::MAX), |[birth, _]| *birth);
        Group { protection: self.protection(), birth, evictable: self.grant, weight: self.terms.weight }
    }
}
