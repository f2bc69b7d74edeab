//! The ledger with simulated members: who gives way, and that the sum never exceeds the pool whatever they do.

use proptest::prelude::*;
use refault_pool::shared::ledger::{BudgetError, Figures, Ledger, MIN_GRANT, Terms};

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

/// A program that uses what it may, up to its size; if it is cut, the oldest generation goes.
struct Program {
    size: u64,
    charge: u64,
    /// Its oldest generation is so old at any time; hot programs make new ones all the time.
    age: u64,
    figures: Figures,
}

impl Program {
    fn new(size: u64, age: u64) -> Program {
        Program { size, charge: 0, age, figures: Figures::default() }
    }

    fn run(&mut self, grant: u64, turn: u64, now: u64) -> Figures {
        self.figures.turn = turn;
        self.charge = self.size.min(grant);
        self.figures.limit = grant;
        self.figures.charge = self.charge;
        self.figures.stored = self.size - self.charge;
        if self.size > grant {
            self.figures.faults += 100;
            self.figures.waited += SECOND / 50;
        }
        self.figures.generations = vec![[now.saturating_sub(self.age), self.charge]];
        self.figures.clone()
    }
}

fn run(ledger: &mut Ledger, programs: &mut [Program], rounds: u64) {
    run_after(0, ledger, programs, rounds);
}

/// The same, behind `before` rounds.
fn run_after(before: u64, ledger: &mut Ledger, programs: &mut [Program], rounds: u64) {
    for round in before + 1..=before + rounds {
        let now = 1000 * SECOND + round * SECOND / 5;
        for (id, program) in programs.iter_mut().enumerate() {
            let (grant, turn) = (ledger.members()[&(id as u64)].grant, ledger.members()[&(id as u64)].turn);
            ledger.report(id as u64, program.run(grant, turn, now));
        }
        ledger.round(now, SECOND / 5);
        assert!(ledger.committed() <= ledger.pool());
    }
}

fn grants(ledger: &Ledger) -> Vec<u64> {
    ledger.members().values().map(|member| member.grant / MIB).collect()
}

#[test]
fn the_hot_one_grows_at_the_cost_of_the_cold_one_down_to_its_protection() {
    let mut ledger = Ledger::new(400 * MIB, SECOND, None);
    let terms = Terms { low: 60 * MIB, ..Terms::default() };
    ledger.join(0, terms, 0);
    let mut programs = vec![Program::new(390 * MIB, 60 * SECOND)];
    run(&mut ledger, &mut programs, 100);
    assert!(grants(&ledger)[0] >= 389, "{:?}", grants(&ledger));
    ledger.join(1, Terms::default(), 0);
    programs.push(Program::new(1000 * MIB, 3 * SECOND));
    run(&mut ledger, &mut programs, 400);
    let [cold, hot] = grants(&ledger)[..] else { panic!("two members") };
    assert!(
        cold == 60 && hot >= 335,
        "{cold} and {hot}: low is spared while the hot one has memory of its own to evict"
    );
    // Alone again, it has what it brings back in turn, though it grows no more.
    ledger.leave(1);
    programs.pop();
    run_after(400, &mut ledger, &mut programs, 100);
    assert!(grants(&ledger)[0] >= 389, "{:?}", grants(&ledger));
}

#[test]
fn equally_old_generations_are_not_moved_about() {
    let mut ledger = Ledger::new(400 * MIB, SECOND, None);
    let mut programs = vec![Program::new(1000 * MIB, 5 * SECOND), Program::new(1000 * MIB, 5 * SECOND)];
    (0..2).for_each(|id| ledger.join(id, Terms::default(), 0));
    run(&mut ledger, &mut programs, 100);
    let settled = grants(&ledger);
    run(&mut ledger, &mut programs, 100);
    assert_eq!(grants(&ledger), settled);
    assert!(settled.iter().sum::<u64>() >= 398, "{settled:?}");
}

#[test]
fn young_generations_are_a_working_set_and_nobody_takes_them() {
    let mut ledger = Ledger::new(400 * MIB, 10 * SECOND, None);
    let mut programs = vec![Program::new(300 * MIB, 9 * SECOND), Program::new(1000 * MIB, SECOND)];
    ledger.join(0, Terms::default(), 300 * MIB);
    ledger.join(1, Terms::default(), 0);
    run(&mut ledger, &mut programs, 200);
    assert!(grants(&ledger)[0] >= 299, "{:?}", grants(&ledger));
}

#[test]
fn what_is_not_used_is_given_to_who_needs_it() {
    let mut ledger = Ledger::new(400 * MIB, SECOND, None);
    let mut programs = vec![Program::new(20 * MIB, 0), Program::new(1000 * MIB, SECOND)];
    ledger.join(0, Terms::default(), 300 * MIB);
    ledger.join(1, Terms::default(), 0);
    run(&mut ledger, &mut programs, 200);
    let [small, large] = grants(&ledger)[..] else { panic!("two members") };
    assert!((20..=30).contains(&small) && large >= 368, "{small} and {large}");
}

/// A small grant is never filled to the last page; the member that waits must not be left there.
#[test]
fn who_waits_with_a_tenth_of_its_grant_unfilled_gets_what_others_do_not_use() {
    let mut ledger = Ledger::new(200 * MIB, SECOND, None);
    ledger.join(0, Terms::default(), 178 * MIB);
    ledger.join(1, Terms::default(), 17 * MIB);
    let mut waited = 0;
    for round in 1..=50 {
        let now = 1000 * SECOND + round * SECOND / 5;
        for (id, used) in [(0, 100 * MIB), (1, ledger.members()[&1].grant * 92 / 100)] {
            let (grant, turn) = (ledger.members()[&id].grant, ledger.members()[&id].turn);
            let charge = used.min(grant);
            let generations = vec![[now - 2 * SECOND, charge]];
            waited += id * SECOND / 10;
            let waited = id * waited;
            ledger.report(id, Figures { turn, limit: grant, charge, waited, generations, ..Figures::default() });
        }
        ledger.round(now, SECOND / 5);
    }
    let [idle, needy] = grants(&ledger)[..] else { panic!("two members") };
    assert!(idle >= 100 && needy >= 80, "{idle} and {needy}");
}

#[test]
fn a_proactive_pool_keeps_programs_at_their_working_sets() {
    let mut ledger = Ledger::new(400 * MIB, SECOND, Some(0.001));
    let mut programs = vec![Program::new(100 * MIB, SECOND)];
    ledger.join(0, Terms::default(), 400 * MIB);
    run(&mut ledger, &mut programs, 300);
    for _ in 0..100 {
        run(&mut ledger, &mut programs, 1);
        assert!((90..=120).contains(&grants(&ledger)[0]), "{:?}", grants(&ledger));
    }
}

/// A program of which a part is used all the time, and the rest compresses to a third: it waits the longer, the more of
/// that part is not in memory.
struct Worker {
    size: u64,
    hot: u64,
    figures: Figures,
}

impl Worker {
    fn run(&mut self, grant: u64, turn: u64) -> Figures {
        let all_stored = self.size / 3;
        // In threes of pages, so that a third of the rest is whole pages too.
        let resident = self.size.min(grant.saturating_sub(all_stored) * 3 / 2) / 12_288 * 12_288;
        let missing = self.hot.saturating_sub(resident);
        self.figures.turn = turn;
        self.figures.limit = grant;
        self.figures.charge = resident + (self.size - resident) / 3;
        self.figures.faults += missing >> 12;
        // In a fifth of a second: all of it, if a tenth is missing.
        self.figures.waited += (SECOND / 5).min(SECOND * 2 * missing / self.hot);
        self.figures.generations = vec![[1, self.figures.charge]];
        self.figures.clone()
    }
}

/// Runs for `rounds` rounds, a fifth of a second each; the charge after each in bytes.
fn squeezed(ledger: &mut Ledger, worker: &mut Worker, begin: u64, rounds: u64) -> Vec<f64> {
    let round = |round| {
        let now = 1000 * SECOND + (begin + round) * SECOND / 5;
        let (grant, turn) = (ledger.members()[&0].grant, ledger.members()[&0].turn);
        ledger.report(0, worker.run(grant, turn));
        ledger.round(now, SECOND / 5);
        worker.figures.charge as f64
    };
    (0..rounds).map(round).collect()
}

#[test]
fn a_squeezed_steady_member_stays_within_five_percent_and_a_phase_change_is_answered_within_ten_seconds() {
    let mut ledger = Ledger::new(1000 * MIB, SECOND, Some(0.001));
    ledger.join(0, Terms::default(), 0);
    let mut worker = Worker { size: 600 * MIB, hot: 200 * MIB, figures: Figures::default() };
    // Three minutes until it is where it is to be.
    squeezed(&mut ledger, &mut worker, 0, 900);
    let steady = squeezed(&mut ledger, &mut worker, 900, 1500);
    // The hot part, and a third of the rest.
    let ideal = (200 * MIB + 400 * MIB / 3) as f64;
    let mean = steady.iter().sum::<f64>() / steady.len() as f64;
    assert!((0.97..1.05).contains(&(mean / ideal)), "{} MiB, ideal {}", mean / MIB as f64, ideal / MIB as f64);
    for charge in &steady {
        assert!((charge / mean - 1.0).abs() < 0.05, "{} of {} MiB", charge / MIB as f64, mean / MIB as f64);
    }
    worker.hot = 400 * MIB;
    let grown = *squeezed(&mut ledger, &mut worker, 2400, 50).last().expect("rounds");
    assert!(grown >= 0.95 * (400 * MIB + 200 * MIB / 3) as f64, "{} MiB after ten seconds", grown / MIB as f64);
    // The other way it is followed at 2 % per second, which begins within ten.
    worker.hot = 100 * MIB;
    let shrunk = *squeezed(&mut ledger, &mut worker, 2450, 150).last().expect("rounds");
    assert!(shrunk < 0.95 * grown, "{} of {} MiB after half a minute", shrunk / MIB as f64, grown / MIB as f64);
}

#[test]
fn a_budget_by_hand_holds_and_nonsense_is_refused() {
    let mut ledger = Ledger::new(400 * MIB, SECOND, None);
    let mut programs = vec![Program::new(1000 * MIB, SECOND)];
    ledger.join(0, Terms::default(), 0);
    run(&mut ledger, &mut programs, 50);
    assert_eq!(ledger.set_budget(0, Some(100 * MIB)), Ok(()));
    run(&mut ledger, &mut programs, 50);
    assert_eq!(grants(&ledger), [100]);
    assert_eq!(ledger.set_budget(0, Some(500 * MIB)), Err(BudgetError::AbovePool(400 * MIB)));
    assert_eq!(ledger.set_budget(0, Some(1)), Err(BudgetError::BelowLeast(MIN_GRANT)));
    assert_eq!(ledger.set_budget(7, Some(100 * MIB)), Err(BudgetError::NoMember));
}

#[test]
fn a_budget_below_what_the_member_is_to_have_is_refused_in_words_and_changes_nothing() {
    let mut ledger = Ledger::new(400 * MIB, SECOND, None);
    let terms = Terms { min: 64 * MIB, low: 100 * MIB, ..Terms::default() };
    ledger.join(0, terms, 200 * MIB);
    let refused = ledger.set_budget(0, Some(32 * MIB)).expect_err("less than its min");
    assert_eq!(refused.to_string(), "below the least that the member is to have, 64 MiB");
    assert_eq!((ledger.members()[&0].terms, ledger.members()[&0].grant), (terms, 200 * MIB));
    // What is not to be taken from it is no more than what it may have.
    ledger.set_budget(0, Some(80 * MIB)).expect("enough");
    let member = &ledger.members()[&0];
    assert_eq!((member.terms.max, member.terms.low, member.grant), (Some(80 * MIB), 80 * MIB, 80 * MIB));
    // A larger one leaves what was asked for, and without any all of that holds again.
    ledger.set_budget(0, Some(120 * MIB)).expect("enough");
    let member = &ledger.members()[&0];
    assert_eq!((member.terms.max, member.terms.low), (Some(120 * MIB), 100 * MIB));
    assert_eq!(ledger.set_budget(0, None), Ok(()));
    assert_eq!((ledger.members()[&0].terms, ledger.members()[&0].budget), (terms, None));
    assert_eq!(ledger.set_budget(7, None), Err(BudgetError::NoMember));
}

#[test]
fn a_budget_by_hand_outlives_that_its_member_joins_again_but_is_not_for_the_next_of_that_number() {
    let mut ledger = Ledger::new(400 * MIB, SECOND, None);
    ledger.join(0, Terms::default(), 200 * MIB);
    ledger.set_budget(0, Some(100 * MIB)).expect("enough");
    ledger.join(0, Terms::default(), 100 * MIB);
    assert_eq!(ledger.members()[&0].terms.max, Some(100 * MIB));
    let mut programs = vec![Program::new(1000 * MIB, SECOND)];
    run(&mut ledger, &mut programs, 50);
    assert_eq!(grants(&ledger), [100]);
    ledger.join(0, Terms::default(), 0);
    assert_eq!((ledger.members()[&0].terms.max, ledger.members()[&0].budget), (None, None));
}

#[test]
fn members_that_have_more_than_a_smaller_pool_give_in_proportion_and_keep_their_min() {
    let mut ledger = Ledger::new(160 * MIB, SECOND, None);
    let terms = Terms { min: 60 * MIB, ..Terms::default() };
    ledger.join(0, terms, 70 * MIB);
    ledger.join(1, Terms::default(), 54 * MIB);
    ledger.join(2, Terms::default(), 104 * MIB);
    assert_eq!(ledger.committed(), 228 * MIB, "they may be using all of it");
    ledger.round(1000 * SECOND, SECOND / 5);
    // 68 MiB are missing, and they have 10, 50 and 100 beyond the least.
    let given: Vec<f64> = [70, 54, 104]
        .iter()
        .zip(ledger.members().values())
        .map(|(had, member)| f64::from(*had) - member.grant as f64 / MIB as f64)
        .collect();
    for (given, expected) in given.iter().zip([4.25, 21.25, 42.5]) {
        assert!((given - expected).abs() < 0.01, "{given} of {expected}");
    }
    assert_eq!(ledger.committed(), 228 * MIB, "no member has confirmed yet");
    // What they say of a grant of the daemon before, by its number, confirms none of this one's.
    let turn = ledger.members()[&2].turn;
    ledger.report(2, Figures { turn, limit: 104 * MIB, charge: 10 * MIB, ..Figures::default() });
    assert_eq!(ledger.members()[&2].committed, 104 * MIB);
    let mut programs: Vec<Program> = (0..3).map(|_| Program::new(1000 * MIB, SECOND)).collect();
    run(&mut ledger, &mut programs, 50);
    assert!(grants(&ledger)[0] >= 60, "{:?}", grants(&ledger));
}

#[test]
fn what_silent_members_have_is_given_by_those_that_answer_down_to_their_min() {
    let mut ledger = Ledger::new(100 * MIB, SECOND, None);
    ledger.join(0, Terms::default(), 80 * MIB);
    ledger.join(1, Terms { min: 8 * MIB, ..Terms::default() }, 60 * MIB);
    ledger.answers(0, false);
    ledger.round(1000 * SECOND, SECOND / 5);
    assert_eq!(grants(&ledger), [80, 20]);
    ledger.join(2, Terms { min: 8 * MIB, ..Terms::default() }, 60 * MIB);
    ledger.round(1000 * SECOND, SECOND / 5);
    let [_, one, other] = ledger.members().values().map(|member| member.grant).collect::<Vec<_>>()[..] else {
        panic!("three")
    };
    assert!(one >= 8 * MIB && other >= 8 * MIB && one + other <= 20 * MIB, "{one} and {other}");
}

#[test]
fn a_pool_smaller_than_the_mins_of_its_members_keeps_them_and_says_what_they_are_together() {
    let mut ledger = Ledger::new(64 * MIB, SECOND, None);
    let min = |mib| Terms { min: mib * MIB, ..Terms::default() };
    ledger.join(0, min(40), 60 * MIB);
    assert_eq!(ledger.mins_beyond_pool(), None);
    ledger.join(1, min(40), 50 * MIB);
    // One that came while the other daemon was there and has not begun: there is nothing for it.
    ledger.join(2, min(30), 0);
    assert_eq!(ledger.mins_beyond_pool(), Some(80 * MIB));
    // All want more than they are granted.
    let run = |ledger: &mut Ledger| {
        for round in 1..=50 {
            let now = 1000 * SECOND + round * SECOND / 5;
            let had: Vec<(u64, u64, u64)> =
                ledger.members().iter().map(|(id, one)| (*id, one.grant, one.turn)).collect();
            for (id, grant, turn) in had {
                let figures = Figures { turn, limit: grant, charge: grant, faults: round, ..Figures::default() };
                ledger.report(id, figures);
            }
            ledger.round(now, SECOND / 5);
        }
    };
    run(&mut ledger);
    assert_eq!((grants(&ledger), ledger.mins_beyond_pool()), (vec![40, 40, 0], Some(80 * MIB)));
    assert_eq!(ledger.committed(), 80 * MIB);
    ledger.leave(1);
    assert_eq!(ledger.mins_beyond_pool(), None);
    // The one that waits needs 30 of 64, of which the other keeps 40: nothing is kept free for it.
    run(&mut ledger);
    assert_eq!(grants(&ledger), [64, 0]);
    // One alone keeps a min that the pool does not have.
    let mut ledger = Ledger::new(64 * MIB, SECOND, None);
    ledger.join(0, min(100), 120 * MIB);
    run(&mut ledger);
    assert_eq!((grants(&ledger), ledger.mins_beyond_pool()), (vec![100], Some(100 * MIB)));
}

#[derive(Clone, Debug)]
enum Event {
    Join(u64, u64, u64),
    Leave(u64),
    Report { id: u64, obeys: bool, charge: u64, faults: u64, age: u64 },
    Silence(u64),
    Round,
}

fn event() -> impl Strategy<Value = Event> {
    let id = 0..4u64;
    prop_oneof![
        (id.clone(), 0..60u64, 0..100u64).prop_map(|(id, min, low)| Event::Join(id, min * MIB, low * MIB)),
        id.clone().prop_map(Event::Leave),
        (id.clone(), any::<bool>(), 0..400u64, 0..3u64, 0..20u64).prop_map(|(id, obeys, charge, faults, age)| {
            Event::Report { id, obeys, charge: charge * MIB, faults, age }
        }),
        id.prop_map(Event::Silence),
        Just(Event::Round),
        Just(Event::Round),
    ]
}

proptest! {
    #[test]
    fn the_sum_never_exceeds_the_pool(events in proptest::collection::vec(event(), 1..120)) {
        let mut ledger = Ledger::new(256 * MIB, SECOND, None);
        // What each member really keeps to: the last grant that it heard of and obeyed.
        let mut kept = [0u64; 4];
        let mut turns = [0u64; 4];
        let mut now = 1000 * SECOND;
        for event in events {
            match event {
                Event::Join(id, min, low) => {
                    let terms = Terms { min, low, ..Terms::default() };
                    if !ledger.members().contains_key(&id) && ledger.could_hold(&terms) {
                        ledger.join(id, terms, 0);
                        kept[id as usize] = 0;
                        turns[id as usize] = 1;
                    }
                }
                Event::Leave(id) => {
                    ledger.leave(id);
                    kept[id as usize] = 0;
                }
                Event::Silence(id) => ledger.answers(id, false),
                Event::Report { id, obeys, charge, faults, age } => {
                    let Some(member) = ledger.members().get(&id) else { continue };
                    if obeys {
                        kept[id as usize] = member.grant;
                        turns[id as usize] = member.turn;
                    }
                    let limit = kept[id as usize];
                    let figures = Figures {
                        turn: turns[id as usize],
                        limit,
                        charge: charge.min(limit),
                        faults: member.figures.faults + faults,
                        waited: member.figures.waited + faults * 1000,
                        generations: vec![[now - age * SECOND, charge]],
                        ..Figures::default()
                    };
                    ledger.answers(id, true);
                    ledger.report(id, figures);
                }
                Event::Round => {
                    now += SECOND / 5;
                    ledger.round(now, SECOND / 5);
                }
            }
            prop_assert!(ledger.committed() <= ledger.pool());
            prop_assert!(kept.iter().sum::<u64>() <= ledger.pool(), "{kept:?}");
            for member in ledger.members().values() {
                prop_assert!(member.grant <= member.committed);
                prop_assert!(member.grant == 0 || member.grant >= member.terms.min.max(MIN_GRANT));
            }
        }
    }
}

#[test]
fn who_needs_so_much_begins_when_others_do_not_use_it_and_not_before() {
    let mut ledger = Ledger::new(400 * MIB, SECOND, None);
    let mut programs = vec![Program::new(300 * MIB, 0), Program::new(1000 * MIB, 0)];
    ledger.join(0, Terms::default(), 300 * MIB);
    let needs = Terms { needs: 200 * MIB, ..Terms::default() };
    assert!(ledger.could_hold(&needs) && !ledger.could_hold(&Terms { needs: 400 * MIB, ..needs }));
    ledger.join(1, needs, 0);
    run(&mut ledger, &mut programs, 100);
    assert_eq!(grants(&ledger)[1], 0, "100 of 200 MiB are free");
    assert!(grants(&ledger)[0] >= 299, "no member has to give for it: {:?}", grants(&ledger));
    // A third grows into all that is free; the first needs less from now on, and the third would take that too.
    ledger.join(2, Terms::default(), 0);
    programs.push(Program::new(1000 * MIB, 0));
    run(&mut ledger, &mut programs, 50);
    assert_eq!(grants(&ledger)[1], 0);
    programs[0].size = 20 * MIB;
    run(&mut ledger, &mut programs, 2);
    assert!(grants(&ledger)[1] >= 200, "{:?}", grants(&ledger));
    programs[1].size = 10 * MIB;
    run(&mut ledger, &mut programs, 50);
    assert!(grants(&ledger)[1] >= 200, "it may begin slowly: {:?}", grants(&ledger));
    run(&mut ledger, &mut programs, 350);
    assert!(grants(&ledger)[1] < 40, "what it does not use then is for others: {:?}", grants(&ledger));
}
