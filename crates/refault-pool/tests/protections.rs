//! `min` and `low` in a pool are `memory.min` and `memory.low` of the kernel's documentation: each of its sentences
//! with simulated members that sleep, go through their memory without end, fork, hang or lie.

use proptest::prelude::*;
use refault_pool::shared::ledger::{Figures, Ledger, MIN_GRANT, Terms};

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
const ROUND: u64 = SECOND / 5;

/// What a program does with its memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// It wrote its memory once and touches it no more, until it is woken.
    Sleeps,
    /// It touches all of it again and again; its oldest generation is so old at any time.
    Touches { age: u64 },
    /// It says that it waits, that all it has is new, and never that it gave what it was asked for.
    Lies,
}

struct Program {
    way: Way,
    size: u64,
    charge: u64,
    /// Some of its memory was taken; one that sleeps does not want it back.
    has_lost: bool,
    born: u64,
    figures: Figures,
}

impl Program {
    fn new(way: Way, mib: u64) -> Program {
        Program { way, size: mib * MIB, charge: 0, has_lost: false, born: 0, figures: Figures::default() }
    }

    fn run(&mut self, grant: u64, turn: u64, now: u64) -> Figures {
        if self.way == Way::Lies && self.figures.turn > 0 {
            self.figures.faults += 1_000_000;
            self.figures.waited += 1_000 * SECOND;
            (self.figures.charge, self.figures.lacks) = (u64::MAX, u64::MAX);
            self.figures.generations = vec![[now + SECOND, u64::MAX]];
            return self.figures.clone();
        }
        let before = self.charge;
        self.has_lost |= grant < before;
        let is_awake = self.way != Way::Sleeps || !self.has_lost;
        self.charge = if is_awake { self.size } else { before }.min(grant);
        if self.charge > before {
            self.born = now;
        }
        let figures = &mut self.figures;
        (figures.turn, figures.limit, figures.charge) = (turn, grant, self.charge);
        if is_awake && self.charge < self.size {
            figures.faults += 100;
            figures.waited += SECOND / 50;
        }
        let birth = match self.way {
            Way::Touches { age } => now.saturating_sub(age),
            _ => self.born,
        };
        figures.generations = vec![[birth, self.charge]];
        figures.clone()
    }
}

struct Pool {
    ledger: Ledger,
    programs: Vec<Program>,
    now: u64,
}

impl Pool {
    fn new(mib: u64) -> Pool {
        Pool { ledger: Ledger::new(mib * MIB, SECOND, None), programs: Vec::new(), now: 1000 * SECOND }
    }

    fn join(&mut self, way: Way, mib: u64, min: u64, low: u64) {
        // One that lies takes what it is let.
        let max = (way == Way::Lies).then_some(60 * MIB);
        let terms = Terms { min: min * MIB, low: low * MIB, max, ..Terms::default() };
        self.ledger.join(self.programs.len() as u64, terms, 0);
        self.programs.push(Program::new(way, mib));
    }

    /// Rounds, after each of which no member has less than its min.
    fn run(&mut self, rounds: u64) {
        for _ in 0..rounds {
            self.now += ROUND;
            for (id, program) in self.programs.iter_mut().enumerate() {
                let member = &self.ledger.members()[&(id as u64)];
                let figures = program.run(member.grant, member.turn, self.now);
                self.ledger.report(id as u64, figures);
            }
            self.ledger.round(self.now, ROUND);
            assert!(self.ledger.committed() <= self.ledger.pool());
            for member in self.ledger.members().values().filter(|member| member.grant > 0) {
                assert!(member.grant >= member.terms.min.max(MIN_GRANT));
            }
        }
    }

    /// MiB that each uses.
    fn used(&self) -> Vec<u64> {
        self.programs.iter().map(|program| program.charge / MIB).collect()
    }
}

const YOUNG: Way = Way::Touches { age: SECOND / 4 };
const OLD: Way = Way::Touches { age: 30 * SECOND };

#[test]
fn a_sleeping_member_within_its_low_keeps_all_while_others_have_memory_young_or_old() {
    for others in [YOUNG, OLD] {
        let mut pool = Pool::new(200);
        pool.join(Way::Sleeps, 90, 0, 100);
        pool.run(50);
        pool.join(others, 150, 0, 0);
        pool.join(others, 150, 0, 0);
        pool.run(1000);
        let used = pool.used();
        assert_eq!(used[0], 90, "{used:?}");
        assert!(used[1] + used[2] >= 92, "what is left is used: {used:?}");
    }
}

#[test]
fn a_member_below_its_low_takes_what_is_not_protected_however_young_and_no_more() {
    let mut pool = Pool::new(200);
    pool.join(YOUNG, 150, 0, 0);
    pool.join(YOUNG, 150, 0, 0);
    pool.run(100);
    pool.join(Way::Sleeps, 90, 0, 100);
    pool.run(200);
    assert_eq!(pool.used()[2], 90, "{:?}", pool.used());
    // One that wants more than its low gets no younger memory than its own beyond it.
    pool.join(OLD, 150, 0, 60);
    pool.run(400);
    let used = pool.used();
    assert!(used[2] == 90 && (58..=66).contains(&used[3]), "{used:?}");
}

#[test]
fn within_min_nothing_is_taken_though_nothing_else_is_left() {
    let mut pool = Pool::new(200);
    pool.join(Way::Sleeps, 90, 90, 0);
    pool.join(Way::Sleeps, 90, 0, 90);
    pool.run(50);
    pool.join(YOUNG, 150, 0, 150);
    pool.run(400);
    let used = pool.used();
    assert_eq!(used[0], 90, "{used:?}");
    assert!(used[1] <= 5 && used[2] >= 100, "no unprotected memory is left, so the older low gives: {used:?}");
}

#[test]
fn lows_beyond_the_pool_hold_against_what_is_unprotected_and_the_oldest_of_them_gives_first() {
    let mut pool = Pool::new(200);
    pool.join(YOUNG, 150, 0, 100);
    pool.join(YOUNG, 150, 0, 100);
    pool.join(YOUNG, 150, 0, 0);
    pool.run(400);
    let used = pool.used();
    assert!(used[0].min(used[1]) >= 94 && used[2] == 4, "the unprotected one comes down to its min: {used:?}");
    pool.join(Way::Sleeps, 50, 0, 100);
    pool.run(1000);
    let used = pool.used();
    assert!(
        used[0].min(used[1]) >= 90 && used[2] == 4 && used[3] <= 8,
        "what sleeps gives to what is in use: {used:?}"
    );
}

#[test]
fn protections_beyond_a_smaller_pool_hold_in_proportion() {
    let mut ledger = Ledger::new(100 * MIB, SECOND, None);
    let low = |mib: u64| Terms { low: mib * MIB, ..Terms::default() };
    ledger.join(0, low(150), 150 * MIB);
    ledger.join(1, low(50), 50 * MIB);
    ledger.join(2, Terms::default(), 60 * MIB);
    ledger.round(1000 * SECOND, ROUND);
    let grants: Vec<u64> = ledger.members().values().map(|member| member.grant / MIB).collect();
    // The third comes down to its min, and the others give the rest.
    assert!((71..=73).contains(&grants[0]) && (22..=24).contains(&grants[1]) && grants[2] == 4, "{grants:?}");
    let mut ledger = Ledger::new(200 * MIB, SECOND, None);
    ledger.join(0, low(100), 110 * MIB);
    ledger.join(1, Terms::default(), 110 * MIB);
    ledger.round(1000 * SECOND, ROUND);
    let grants: Vec<u64> = ledger.members().values().map(|member| member.grant / MIB).collect();
    assert!(grants[0] > 107 && (90..=92).contains(&grants[1]), "in proportion to the overage: {grants:?}");
}

#[test]
fn a_member_that_forks_is_protected_as_a_whole() {
    let mut pool = Pool::new(200);
    pool.join(Way::Sleeps, 20, 0, 100);
    pool.join(YOUNG, 250, 0, 0);
    pool.run(100);
    for children in 1..=4 {
        // A child has written as much as its parent.
        pool.programs[0].size = (20 + children * 18) * MIB;
        pool.run(50);
        assert_eq!(pool.used()[0], 20 + children * 18, "{:?}", pool.used());
    }
    pool.run(400);
    assert_eq!(pool.used()[0], 92, "{:?}", pool.used());
}

/// A ledger with members of these terms and figures, after as many rounds in which each does what it is granted.
fn steady(members: &[(Terms, Figures)], rounds: u64, mut says: impl FnMut(u64, &mut Figures, u64)) -> Vec<u64> {
    let mut ledger = Ledger::new(64 * MIB, SECOND, None);
    let mut figures: Vec<Figures> = members.iter().map(|(_, figures)| figures.clone()).collect();
    for (id, (terms, figures)) in members.iter().enumerate() {
        ledger.join(id as u64, *terms, figures.charge);
    }
    let mut now = 1000 * SECOND;
    for _ in 0..rounds {
        now += ROUND;
        for (id, figures) in figures.iter_mut().enumerate() {
            let member = &ledger.members()[&(id as u64)];
            (figures.turn, figures.limit) = (member.turn, member.grant);
            figures.charge = figures.charge.min(member.grant);
            says(id as u64, figures, now);
            ledger.report(id as u64, figures.clone());
        }
        ledger.round(now, ROUND);
    }
    ledger.members().values().map(|member| member.grant).collect()
}

/// It has all that it is granted, faults all the time, and its oldest generation is as old as one round.
fn thrashes(figures: &mut Figures, now: u64) {
    (figures.charge, figures.resident) = (figures.limit, figures.limit);
    (figures.faults, figures.waited) = (figures.faults + 1000, figures.waited + ROUND / 2);
    figures.generations = vec![[now - ROUND, figures.charge]];
}

fn has(mib: u64) -> Figures {
    Figures { charge: mib * MIB, resident: mib * MIB, ..Figures::default() }
}

#[test]
fn one_that_sleeps_unprotected_gives_all_beyond_its_min_though_it_says_no_generations() {
    let members = [(Terms::default(), has(24)), (Terms::default(), has(20)), (Terms::default(), has(20))];
    let grants = steady(&members, 300, |id, figures, now| {
        if id > 0 {
            thrashes(figures, now);
        }
    });
    assert!(grants[0] <= 5 * MIB && grants[1] + grants[2] >= 58 * MIB, "{grants:?}");
}

#[test]
fn one_without_generations_that_faults_all_the_time_counts_as_just_used() {
    let members = [(Terms::default(), has(24)), (Terms::default(), has(40))];
    let grants = steady(&members, 300, |id, figures, now| {
        thrashes(figures, now);
        if id == 0 {
            figures.generations.clear();
        }
    });
    assert!(grants[0] >= 24 * MIB, "{grants:?}");
}

#[test]
fn within_its_low_a_member_that_grows_has_room_before_it_needs_it_and_one_that_sleeps_has_next_to_none() {
    let low = |mib: u64| Terms { low: mib * MIB, ..Terms::default() };
    let grants = |low, grows: bool| {
        steady(&[(low, has(16)), (Terms::default(), has(48))], 100, |id, figures, now| {
            if id > 0 {
                thrashes(figures, now);
            } else if grows {
                // It allocates a MiB, and frees it again.
                let used = (16 + now / ROUND % 2) * MIB;
                (figures.charge, figures.resident) = (used, used);
            }
        })
    };
    assert!((24..=26).contains(&(grants(low(48), true)[0] / MIB)), "{:?}", grants(low(48), true));
    assert!((17..=18).contains(&(grants(low(48), false)[0] / MIB)), "{:?}", grants(low(48), false));
    // No further than its low.
    assert_eq!(grants(low(18), true)[0] / MIB, 18);
}

/// A ledger in which one member with `low` has filled its grant, and another, with `other_low`, all the rest.
fn full(low: u64, other_low: u64) -> Ledger {
    let mut ledger = Ledger::new(64 * MIB, SECOND, None);
    ledger.join(0, Terms { low: low * MIB, ..Terms::default() }, 16 * MIB);
    ledger.join(1, Terms { low: other_low * MIB, ..Terms::default() }, 48 * MIB);
    for id in 0..2 {
        says(&mut ledger, id, 0);
    }
    assert_eq!((ledger.free(), ledger.is_pleaded()), (0, false));
    ledger
}

/// A member says that it has all of its grant, and what it lacks.
fn says(ledger: &mut Ledger, id: u64, lacks: u64) {
    let member = &ledger.members()[&id];
    let (turn, grant) = (member.turn, member.grant);
    ledger.report(id, Figures { turn, limit: grant, charge: grant, resident: grant, lacks, ..Figures::default() });
}

#[test]
fn what_a_member_lacks_within_its_low_it_is_given_between_rounds_by_one_that_is_not_protected() {
    let mut ledger = full(40, 0);
    let now = 1000 * SECOND;
    let mut before = ledger.members()[&0].grant;
    // A page is lacked each time. It is given 2 MiB or more, or all that is left of its low.
    for _ in 0..20 {
        says(&mut ledger, 0, 4096);
        assert!(ledger.is_pleaded());
        ledger.answer(now);
        assert_eq!(ledger.members()[&0].grant, before, "the other has not confirmed yet");
        assert!(ledger.is_pleaded(), "it still waits");
        says(&mut ledger, 1, 0);
        ledger.answer(now);
        assert!(!ledger.is_pleaded() && ledger.take_refused().is_empty());
        let grant = ledger.members()[&0].grant;
        assert!(grant >= (before + 2 * MIB).min(40 * MIB), "{before}, then {grant}");
        assert!(ledger.committed() <= ledger.pool());
        before = grant;
        if grant == 40 * MIB {
            break;
        }
    }
    assert_eq!(before, 40 * MIB);
    // Beyond it, it is compared with others in rounds.
    says(&mut ledger, 0, 4096);
    ledger.answer(now);
    assert_eq!((ledger.take_refused(), ledger.members()[&1].grant), (vec![0], 24 * MIB));
}

#[test]
fn what_was_taken_as_unused_is_given_back_to_a_member_that_uses_it_by_now() {
    let mut ledger = Ledger::new(64 * MIB, SECOND, None);
    ledger.join(0, Terms { low: 40 * MIB, ..Terms::default() }, 30 * MIB);
    ledger.join(1, Terms::default(), 34 * MIB);
    let report = |ledger: &mut Ledger, id: u64, charge: u64, lacks: u64| {
        let member = &ledger.members()[&id];
        let (turn, limit) = (member.turn, member.grant);
        let faults = member.figures.faults + 1;
        ledger.report(id, Figures { turn, limit, charge, lacks, faults, ..Figures::default() });
    };
    report(&mut ledger, 0, 10 * MIB, 0);
    report(&mut ledger, 1, 34 * MIB, 0);
    ledger.round(1000 * SECOND, ROUND);
    let lowered = ledger.members()[&0].grant;
    assert!(lowered < 28 * MIB, "{lowered}");
    // It has grown before it heard of that.
    report(&mut ledger, 0, 28 * MIB, MIB);
    ledger.answer(1000 * SECOND);
    assert!(ledger.members()[&0].grant >= lowered + MIB && ledger.take_refused().is_empty());
    assert_eq!(ledger.committed(), 64 * MIB);
}

#[test]
fn one_that_gives_what_is_protected_is_refused_what_it_lacks_and_does_not_keep_another_waiting() {
    let mut ledger = Ledger::new(64 * MIB, SECOND, None);
    ledger.join(0, Terms { low: 40 * MIB, ..Terms::default() }, 16 * MIB);
    ledger.join(1, Terms { low: 60 * MIB, ..Terms::default() }, 48 * MIB);
    let now = 1000 * SECOND;
    let report = |ledger: &mut Ledger, id: u64, charge: u64, lacks: u64| {
        let member = &ledger.members()[&id];
        let (turn, limit) = (member.turn, member.grant);
        // The second has the older memory.
        let generations = vec![[now - (10 + 40 * id) * SECOND, charge]];
        ledger.report(id, Figures { turn, limit, charge, lacks, generations, ..Figures::default() });
    };
    report(&mut ledger, 1, 48 * MIB, 0);
    report(&mut ledger, 0, 16 * MIB, MIB);
    ledger.answer(now);
    let lowered = ledger.members()[&1].grant;
    assert_eq!(lowered, 47 * MIB, "no more than what is lacked");
    // It has not come down yet, and lacks memory itself.
    report(&mut ledger, 1, 48 * MIB, MIB);
    ledger.answer(now);
    assert_eq!((ledger.members()[&1].grant, ledger.take_refused()), (lowered, vec![1]));
    report(&mut ledger, 1, lowered, 0);
    ledger.answer(now);
    assert_eq!((ledger.members()[&0].grant, ledger.committed()), (17 * MIB, 64 * MIB));
}

#[test]
fn a_plea_is_refused_at_once_where_all_that_is_left_is_protected_or_its_turn_is_over() {
    let mut ledger = full(40, 64);
    says(&mut ledger, 0, MIB);
    // The other is as old, and protected as well.
    ledger.answer(1000 * SECOND);
    assert_eq!((ledger.take_refused(), ledger.is_pleaded()), (vec![0], false));
    assert_eq!(ledger.take_refused(), [] as [u64; 0]);
    // What was said of an earlier grant is not lacked any more.
    let mut ledger = full(40, 0);
    let turn = ledger.members()[&0].turn - 1;
    ledger.report(0, Figures { turn, limit: MIB, charge: MIB, lacks: MIB, ..Figures::default() });
    assert!(!ledger.is_pleaded());
}

#[test]
fn one_that_evicts_its_own_fills_its_grant_whatever_room_it_leaves() {
    // Processes that a fork leaves keep room each: of 32 MiB, 5 are never charged.
    let low = Terms { low: 48 * MIB, max: Some(48 * MIB), ..Terms::default() };
    let mut stored = 0;
    let grants = steady(&[(low, has(32)), (Terms::default(), has(32))], 100, |id, figures, now| {
        if id > 0 {
            return thrashes(figures, now);
        }
        stored += MIB;
        (figures.charge, figures.resident, figures.stored) = (figures.limit - 5 * MIB, figures.limit - 5 * MIB, stored);
        figures.faults += 1000;
    });
    assert_eq!(grants[0] / MIB, 48, "{grants:?}");
}

#[test]
fn who_lies_gets_nothing_of_what_is_protected_and_keeps_nobody_waiting() {
    let mut pool = Pool::new(200);
    pool.join(Way::Sleeps, 60, 0, 80);
    pool.run(20);
    pool.join(Way::Lies, 0, 0, 0);
    pool.run(300);
    assert_eq!(pool.used()[0], 60, "{:?}", pool.used());
    // It has taken what is left and gives nothing back; another gets its low from what others have.
    pool.join(OLD, 150, 0, 0);
    pool.run(20);
    pool.join(YOUNG, 40, 0, 40);
    pool.run(300);
    let used = pool.used();
    assert!(used[0] == 60 && used[3] == 40, "{used:?}");
}

#[derive(Clone, Debug)]
enum Event {
    Join { id: u64, min: u64, low: u64 },
    Says { id: u64, confirms: bool, charge: u64, faults: u64, age: u64 },
    Silence(u64),
    Rounds(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let id = 0..4u64;
    let charge = prop_oneof![0..200 * MIB, any::<u64>()];
    prop_oneof![
        1 => (id.clone(), 0..60u64, 0..200u64).prop_map(|(id, min, low)| Event::Join { id, min: min * MIB, low: low * MIB }),
        4 => (id.clone(), prop::bool::weighted(0.9), charge, any::<u64>(), any::<u64>())
            .prop_map(|(id, confirms, charge, faults, age)| Event::Says { id, confirms, charge, faults, age }),
        1 => id.prop_map(Event::Silence),
        4 => (1..15u64).prop_map(Event::Rounds),
    ]
}

proptest! {
    /// Whatever members say: `min` holds, and what a member uses within its `low` is not taken while another that can
    /// be asked has memory beyond its own protection.
    #[test]
    fn whatever_is_said_protections_hold(events in proptest::collection::vec(event(), 1..80)) {
        let mut ledger = Ledger::new(256 * MIB, SECOND, None);
        let mut now = 1000 * SECOND;
        for event in events {
            match event {
                Event::Join { id, min, low } => {
                    let terms = Terms { min, low, ..Terms::default() };
                    if !ledger.members().contains_key(&id) && ledger.could_hold(&terms) {
                        ledger.join(id, terms, 0);
                    }
                }
                Event::Silence(id) => ledger.answers(id, false),
                Event::Says { id, confirms, charge, faults, age } => {
                    let Some(member) = ledger.members().get(&id) else { continue };
                    let turn = if confirms { member.turn } else { 0 };
                    let charge = if confirms { charge.min(member.grant) } else { charge };
                    let limit = member.grant;
                    let generations = vec![[now.saturating_sub(age % (100 * SECOND)), charge]];
                    ledger.answers(id, true);
                    let lacks = faults % (4 * MIB);
                    ledger.report(id, Figures { turn, limit, charge, faults, waited: faults, generations, lacks, ..Figures::default() });
                }
                Event::Rounds(count) => for turn in 0..count {
                    now += ROUND;
                    let before = ledger.members().clone();
                    // Members are answered in between too.
                    if turn == 0 && count % 2 == 0 { ledger.answer(now) } else { ledger.round(now, ROUND) };
                    let protected = |terms: &Terms| terms.low.max(terms.min).max(MIN_GRANT);
                    let gives = |(id, member): (&u64, &refault_pool::shared::ledger::Entry)| {
                        let after = &ledger.members()[id];
                        member.answers && member.committed == member.grant && after.grant > protected(&member.terms)
                    };
                    for (id, member) in ledger.members() {
                        prop_assert!(member.grant == 0 || member.grant >= member.terms.min.max(MIN_GRANT));
                        let was = &before[id];
                        let used = was.figures.charge.min(was.grant).min(protected(&member.terms));
                        if member.grant < used {
                            let open: Vec<u64> = before.iter().filter(|one| gives(*one)).map(|(id, _)| *id).collect();
                            prop_assert!(open.is_empty(), "{id} fell to {} of {used}, {open:?} are open", member.grant);
                        }
                    }
                    prop_assert!(ledger.committed() <= ledger.pool());
                },
            }
        }
    }
}
