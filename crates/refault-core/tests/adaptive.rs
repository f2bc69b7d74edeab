//! The adaptive policy against its reference model, against LRU, and against sequences made to hurt it.

#[path = "adaptive/model.rs"]
mod model;

use crate::harness::{Driver, PAGES, Step, equals_model, follows_model, forgets, hostile_steps, steps, survives};
use proptest::prelude::*;
use refault_core::adaptive::Way;
use refault_core::textbook::{Lirs, Lru};
use refault_core::{Adaptive, AdaptiveMapped, AdaptiveParams, PageId, Policy};

/// All parts off but some.
fn only(recency: bool, reuse: bool, frequency: bool, guard: bool) -> AdaptiveParams {
    AdaptiveParams { recency, reuse, frequency, guard, ..AdaptiveParams::default() }
}

fn without_frees(steps: &[Step]) -> Vec<Step> {
    steps.iter().filter(|step| matches!(step, Step::Access(_))).cloned().collect()
}

fn misses<P: Policy>(policy: P, capacity: usize, sequence: &[PageId]) -> u64 {
    let mut driver = Driver::new(policy, capacity);
    sequence.iter().map(|page| u64::from(!driver.access(*page))).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn equals_its_model(capacity in 1..40usize, steps in steps()) {
        let steps = without_frees(&steps);
        equals_model(<Adaptive>::default(), model::Adaptive::new(capacity, true), capacity, &steps);
        let unguarded = only(true, true, true, false);
        equals_model(<Adaptive>::new(unguarded), model::Adaptive::new(capacity, false), capacity, &steps);
        let head_start = 0.25;
        let policy = <Adaptive>::new(AdaptiveParams { head_start, ..AdaptiveParams::default() });
        let mut slow = model::Adaptive::new(capacity, true);
        slow.head_start = head_start;
        equals_model(policy, slow, capacity, &steps);
    }

    /// Memory without accessed bits, which the policy never asks for them.
    #[test]
    fn equals_its_model_where_hits_are_not_seen(capacity in 1..40usize, steps in steps()) {
        let steps = without_frees(&steps);
        for guard in [true, false] {
            let mut driver = Driver::new(AdaptiveMapped::new(only(true, true, true, guard)), capacity);
            driver.memory.is_blind = true;
            follows_model(driver, model::Adaptive::without_bits(capacity, guard), &steps);
        }
    }

    /// Times and the clock of departures start again in the middle.
    #[test]
    fn renumbering_changes_nothing(capacity in 1..40usize, steps in steps()) {
        let policy = <Adaptive>::renumbering_at(AdaptiveParams::default(), 80, (1 << 30) - 20);
        let (mut driver, mut plain) = (Driver::new(policy, capacity), Driver::new(<Adaptive>::default(), capacity));
        for step in &steps {
            match *step {
                Step::Access(page) => prop_assert_eq!(driver.access(page), plain.access(page)),
                Step::Free(page) if plain.memory.resident[page as usize] => {
                    driver.free(page);
                    plain.free(page);
                }
                _ => {}
            }
            prop_assert_eq!(&driver.memory.evicted, &plain.memory.evicted);
        }
    }

    /// With recency alone it is LRU, frees included.
    #[test]
    fn recency_alone_is_lru(capacity in 1..40usize, steps in steps()) {
        let (mut driver, mut lru) =
            (Driver::new(<Adaptive>::new(only(true, false, false, true)), capacity), Driver::new(Lru::default(), capacity));
        for step in &steps {
            match *step {
                Step::Access(page) => prop_assert_eq!(driver.access(page), lru.access(page)),
                Step::Free(page) if lru.memory.resident[page as usize] => {
                    driver.free(page);
                    lru.free(page);
                }
                _ => {}
            }
        }
        prop_assert_eq!(driver.memory.evicted, lru.memory.evicted);
    }

    #[test]
    fn refusals(steps in hostile_steps()) {
        survives(<Adaptive>::default(), &steps);
        survives(<Adaptive>::renumbering_at(AdaptiveParams::default(), 80, (1 << 30) - 20), &steps);
        survives(AdaptiveMapped::default(), &steps);
        for (recency, reuse, frequency) in [(true, false, false), (false, true, false), (false, false, true)] {
            survives(<Adaptive>::new(only(recency, reuse, frequency, false)), &steps);
        }
    }

    /// Whatever queues and lists the page before stood on.
    #[test]
    fn ids_of_forgotten_pages(steps in hostile_steps()) {
        for (recency, reuse, frequency) in
            [(true, true, true), (true, false, false), (false, true, false), (false, false, true)]
        {
            for guard in [true, false] {
                forgets(|| <Adaptive>::new(only(recency, reuse, frequency, guard)), &steps);
            }
        }
    }

    /// The bound that the module argues for, after every access: 1.02 times LRU's misses, and what it starts with. Work
    /// of another kind follows, for which nothing that was learned holds.
    #[test]
    fn the_loss_to_lru_is_bounded(capacity in 1..40usize, first in steps(), then in steps(), head_start in 0..3) {
        let steps = without_frees(&first).into_iter().chain(without_frees(&then).into_iter().rev());
        let head_start = f64::from(head_start) / 4.0;
        let policy = <Adaptive>::new(AdaptiveParams { head_start, ..AdaptiveParams::default() });
        let (mut own, mut lru) = (Driver::new(policy, capacity), Driver::new(Lru::default(), capacity));
        let (mut misses, mut of_lru) = (0u64, 0u64);
        for step in steps {
            let Step::Access(page) = step else { continue };
            misses += u64::from(!own.access(page));
            of_lru += u64::from(!lru.access(page));
            let most = 1.02 * of_lru as f64 + head_start * capacity as f64;
            prop_assert!(misses as f64 <= most, "{misses} misses, {of_lru} by LRU, memory {capacity}, {head_start}");
        }
    }
}

/// What of a loop is kept doubles with each pass; with a quarter of memory at stake from the start most is there at
/// once.
#[test]
fn a_head_start_keeps_a_loop_from_the_second_pass_on() {
    let capacity = 40;
    let hits = |head_start, passes| {
        let policy = <Adaptive>::new(AdaptiveParams { head_start, ..AdaptiveParams::default() });
        60 * u64::from(passes) - misses(policy, capacity, &cycle(0, 60, passes))
    };
    let (plain, ahead) = ([2, 3].map(|passes| hits(0.0, passes)), [2, 3].map(|passes| hits(0.25, passes)));
    assert!(plain[0] <= 2 && plain[1] <= 8, "{plain:?}");
    assert!(ahead[0] >= 25 && ahead[1] >= 60, "{ahead:?}");
}

/// A loop over `length` pages from `first` on.
fn cycle(first: PageId, length: PageId, times: PageId) -> Vec<PageId> {
    (0..length * times).map(|at| first + at % length).collect()
}

/// Each way's worst case, and the loss against the best way there.
#[test]
fn on_each_ways_worst_case_it_is_near_the_best() {
    let capacity = 20;
    // Recency: a loop that does not fit. Reuse distance keeps a part of it.
    let loops = cycle(0, 30, 100);
    // Reuse distance and frequency: the pages in use change at once, again and again.
    let phases: Vec<PageId> = (0..40).flat_map(|phase| cycle(phase % 3 * 20, 18, 6)).collect();
    // Frequency: pages that were popular for long are never used again.
    let faded: Vec<PageId> = cycle(0, 18, 200).into_iter().chain(cycle(20, 19, 60)).collect();
    for (name, sequence, near) in [("loop", loops, 1.06), ("phases", phases, 1.02), ("faded", faded, 1.02)] {
        let alone =
            [(true, false, false), (false, true, false), (false, false, true)].map(|(recency, reuse, frequency)| {
                misses(<Adaptive>::new(only(recency, reuse, frequency, false)), capacity, &sequence)
            });
        let own = misses(<Adaptive>::default(), capacity, &sequence);
        let (best, worst) = (*alone.iter().min().expect("three"), *alone.iter().max().expect("three"));
        println!("{name}: recency, reuse distance, frequency {alone:?}, adaptive {own}");
        assert!(worst as f64 > 1.1 * best as f64, "{name} is no way's worst case: {alone:?}");
        assert!(own as f64 <= near * best as f64 + capacity as f64, "{name}: {own} misses where {alone:?}");
    }
}

/// The adversary makes the sequence while it runs, and asks for a page that memory has just evicted. So it hurts the
/// leading way at once.
#[test]
fn an_adversary_that_watches_costs_no_more_than_the_bound() {
    let capacity = 16;
    let mut driver = Driver::new(<Adaptive>::default(), capacity);
    let mut lru = Driver::new(Lru::default(), capacity);
    let (mut own, mut of_lru) = (0u64, 0u64);
    let mut random = 12345u32;
    for step in 0..30_000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // What LRU still has and the policy gave up, or else anything.
        let missing =
            (0..PAGES).find(|page| lru.memory.resident[*page as usize] && !driver.memory.resident[*page as usize]);
        let page = missing.filter(|_| step % 2 == 0).unwrap_or((random >> 16) % 24);
        own += u64::from(!driver.access(page));
        of_lru += u64::from(!lru.access(page));
        assert!(own as f64 <= 1.02 * of_lru as f64, "{own} misses, LRU {of_lru}, after {step} accesses");
    }
    println!("watched: {own} misses, LRU {of_lru}");
    assert!(own as f64 > 1.01 * of_lru as f64, "this adversary does no harm: {own} misses, LRU {of_lru}");
}

/// Phases that turn against the leader as soon as it leads: a loop for recency, and for the others pages in use that
/// change at once. The loss is held against the way that is best for the sequence as a whole, which is known only
/// afterwards.
#[test]
fn phases_that_flip_after_each_decision_cost_little_against_the_best_way() {
    let capacity = 20;
    let mut driver = Driver::new(<Adaptive>::default(), capacity);
    let (mut sequence, mut own, mut at) = (Vec::new(), 0u64, 0);
    while sequence.len() < 60_000 {
        let page = match driver.policy.leader() {
            Way::Recency => at % 30,
            _ => 30 + (at / 100 % 2) * 16 + at % 16,
        };
        at += 1;
        own += u64::from(!driver.access(page));
        sequence.push(page);
    }
    let alone =
        [(true, false, false), (false, true, false), (false, false, true)].map(|(recency, reuse, frequency)| {
            misses(<Adaptive>::new(only(recency, reuse, frequency, false)), capacity, &sequence)
        });
    let best = *alone.iter().min().expect("three");
    let changes = driver.policy.changes_of_leader();
    println!("flips: recency, reuse distance, frequency {alone:?}, adaptive {own}, {changes} changes of leader");
    assert!(changes > 50, "the sequence flips with the leader: {changes} changes");
    assert!(own as f64 <= 1.05 * best as f64 + capacity as f64, "{own} misses where {alone:?}");
}

/// The leader follows what happens, and says so.
#[test]
fn the_leader_changes_with_the_phase() {
    let capacity = 20;
    let mut driver = Driver::new(<Adaptive>::default(), capacity);
    let mut run = |sequence: &[PageId]| {
        sequence.iter().for_each(|page| {
            driver.access(*page);
        });
        (driver.policy.leader(), driver.policy.changes_of_leader())
    };
    let (leader, changes) = run(&cycle(0, 30, 40));
    assert_ne!(leader, Way::Recency, "recency misses every access of a loop that does not fit");
    let phases: Vec<PageId> = (0..60).flat_map(|phase| cycle(phase % 3 * 20, 18, 4)).collect();
    let (leader, later) = run(&phases);
    assert_eq!(leader, Way::Recency, "no other way drops a phase that is over at once");
    assert!(later > changes);
}

/// Reuse distance alone is LIRS but for the ghosts, which it does not bound: as good on a loop.
#[test]
fn reuse_distance_alone_is_as_good_as_lirs_on_a_loop() {
    let sequence = cycle(0, 40, 50);
    let own = misses(<Adaptive>::new(only(false, true, false, false)), 20, &sequence);
    assert_eq!(own, misses(Lirs::default(), 20, &sequence));
}

/// Accessed bits alone tell enough of a loop to keep a part of it.
#[test]
fn the_mapped_form_beats_lru_on_a_loop() {
    let sequence = cycle(0, 30, 100);
    let own = misses(AdaptiveMapped::default(), 20, &sequence);
    let lru = misses(Lru::default(), 20, &sequence);
    assert!(own * 3 < lru * 2, "{own} misses, LRU {lru}");
}
