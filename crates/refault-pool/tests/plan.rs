//! The solver held to exhaustive search, which tries every host and every division for every job.

use proptest::prelude::*;
use refault_pool::plan::{Packing, PlanError};

/// Places the jobs from `job` on with what is left of each host.
fn exhaustive(misses: &[Vec<u64>], left: &mut Vec<usize>) -> Option<u64> {
    let Some((first, rest)) = misses.split_first() else { return Some(0) };
    let mut best: Option<u64> = None;
    for host in 0..left.len() {
        for units in 1..=left[host] {
            left[host] -= units;
            if let Some(others) = exhaustive(rest, left) {
                let sum = first[units - 1] + others;
                best = Some(best.map_or(sum, |best| best.min(sum)));
            }
            left[host] += units;
        }
    }
    best
}

fn jobs() -> impl Strategy<Value = (usize, Vec<Vec<u64>>)> {
    (1..4usize, 1..5usize, 1..5usize).prop_flat_map(|(hosts, jobs, units)| {
        (Just(hosts), proptest::collection::vec(proptest::collection::vec(0..1000u64, units), jobs))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_plan_is_as_good_as_the_best_there_is((hosts, misses) in jobs()) {
        let units = misses[0].len();
        let best = exhaustive(&misses, &mut vec![units; hosts]);
        match (Packing { hosts, misses: &misses }).solve() {
            Err(error) => {
                prop_assert_eq!(error, PlanError::TooMany { jobs: misses.len(), hosts, units });
                prop_assert_eq!(best, None);
            }
            Ok(plan) => {
                prop_assert!(plan.proved);
                prop_assert_eq!(Some(plan.misses), best);
                let mut used = vec![0; hosts];
                for (placement, misses) in plan.placements.iter().zip(&misses) {
                    used[placement.host] += placement.units;
                    prop_assert!(placement.units >= 1);
                    prop_assert_eq!(placement.misses, misses[placement.units - 1]);
                }
                prop_assert!(used.iter().all(|used| *used <= units), "{:?}", used);
            }
        }
    }

    #[test]
    fn without_the_search_through_all_a_plan_is_a_plan_and_seldom_worse((hosts, misses) in jobs()) {
        let packing = Packing { hosts, misses: &misses };
        if let (Ok(quick), Ok(best)) = (packing.solve_within(0), packing.solve()) {
            prop_assert!(quick.misses >= best.misses);
            prop_assert!(!quick.proved || quick.misses == best.misses);
        }
    }
}

#[test]
fn moves_and_swaps_alone_find_the_best_of_most_small_cases() {
    let mut random = 1u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % 1000
    };
    let (mut cases, mut found) = (0, 0);
    for _ in 0..200 {
        let mut misses: Vec<Vec<u64>> = (0..6).map(|_| (0..8).map(|_| next()).collect()).collect();
        misses.iter_mut().for_each(|curve| curve.sort_unstable_by_key(|misses| std::cmp::Reverse(*misses)));
        let packing = Packing { hosts: 3, misses: &misses };
        let (quick, best) = (packing.solve_within(0).expect("it fits"), packing.solve().expect("it fits"));
        assert!(best.proved);
        cases += 1;
        found += u32::from(quick.misses == best.misses);
    }
    println!("{found} of {cases}");
    assert!(found * 10 >= cases * 9, "{found} of {cases}");
}

#[test]
fn what_cannot_be_placed_is_refused() {
    assert_eq!(Packing { hosts: 0, misses: &[vec![1]] }.solve(), Err(PlanError::Empty));
    assert_eq!(Packing { hosts: 1, misses: &[] }.solve(), Err(PlanError::Empty));
    assert_eq!(Packing { hosts: 1, misses: &[vec![1], vec![1, 2]] }.solve(), Err(PlanError::Lengths));
    let two = [vec![1], vec![1]];
    assert_eq!(Packing { hosts: 1, misses: &two }.solve(), Err(PlanError::TooMany { jobs: 2, hosts: 1, units: 1 }));
}
