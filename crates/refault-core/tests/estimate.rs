//! What the estimator says, beside slow models of caches of objects with sizes and beside exact replays of pages; and
//! what it takes.

#[path = "estimate/model.rs"]
mod model;

use model::Model;
use proptest::prelude::*;
use refault_core::estimate::{Estimate, EstimateError, Estimator, MAX_CACHES, MEMORY_BYTES, POLICIES};
use refault_core::miniature::Miniatures;

/// Largest difference of a miss ratio.
const ONE_POINT: f64 = 0.01;

fn assert_equals_models(caches: &[u64], accesses: &[(u64, u64)]) {
    let mut estimator = Estimator::new(&POLICIES, caches).expect("policies and sizes that there are");
    let mut models: Vec<Model> =
        POLICIES.iter().flat_map(|policy| caches.iter().map(|cache| Model::new(policy, *cache))).collect();
    for (object, size) in accesses {
        estimator.access(*object, *size);
        // A size of 0 counts as a byte.
        models.iter_mut().for_each(|model| model.access(*object, (*size).max(1)));
    }
    assert_eq!(estimator.rate(), 1.0);
    let bytes: u64 = accesses.iter().map(|(_, size)| (*size).max(1)).sum();
    for (estimate, model) in estimator.estimates().into_iter().zip(models) {
        let exact = (model.misses as f64 / accesses.len() as f64, model.missed_bytes as f64 / bytes as f64);
        assert_eq!((estimate.miss_ratio, estimate.byte_miss_ratio), exact, "{estimate:?}");
    }
}

proptest! {
    #[test]
    fn estimates_of_all_objects_are_exact(
        caches in prop::collection::vec(0_u64..60, 1..=8),
        accesses in prop::collection::vec((0_u64..24, 0_u64..3), 1..1500),
        large in prop::collection::vec(0_u64..40, 24),
    ) {
        // An object keeps its size, but for a few that change it now and then.
        let sized: Vec<(u64, u64)> = accesses
            .iter()
            .map(|(object, change)| (*object, large[*object as usize] / 2 + if object.is_multiple_of(6) { *change } else { 0 }))
            .collect();
        assert_equals_models(&caches, &sized);
    }
}

/// Pages in an order of its own for each kind; the same every time.
fn workload(kind: &str, pages: u64, accesses: u64) -> Vec<u64> {
    let mut state = 1_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let skewed = |share: f64| (share.powi(4) * pages as f64) as u64;
    let page = |access: u64| match kind {
        "skewed" => skewed(random()),
        "loop" => access % pages,
        "scan beside hot" if access.is_multiple_of(2) => skewed(random()) / 8,
        "scan beside hot" => pages + access / 2 % pages,
        _ => (random() * pages as f64) as u64,
    };
    (0..accesses).map(page).collect()
}

/// The largest differences from the replay of all pages, for eight sizes.
fn differences(accesses: &[u64], pages: u64, seed: u64) -> (f64, Vec<(Estimate, f64)>) {
    let caches: Vec<u64> = [1, 2, 5, 10, 20, 40, 60, 80].iter().map(|percent| pages * percent / 100).collect();
    let mut estimator = Estimator::within(&POLICIES, &caches, MEMORY_BYTES, seed).expect("room");
    let mut exact = Miniatures::new(&POLICIES, &caches, 0).expect("policies of ours");
    for page in accesses {
        estimator.access(*page, 1);
        exact.accessed(u32::try_from(*page).expect("a few pages"), false);
    }
    let rows = estimator.estimates().into_iter().zip(exact.estimates());
    let rows = rows.map(|(estimate, exact)| {
        assert_eq!((estimate.policy, estimate.cache_bytes), (exact.policy, exact.memory_pages));
        (estimate, estimate.miss_ratio - exact.miss_ratio())
    });
    (estimator.rate(), rows.collect())
}

#[test]
fn a_sample_estimates_within_a_point() {
    for (kind, pages) in [("skewed", 150_000), ("scan beside hot", 100_000), ("loop", 120_000), ("uniform", 200_000)] {
        let accesses = workload(kind, pages, 900_000);
        let (rate, rows) = differences(&accesses, pages, 0);
        assert!(rate < 0.5, "{kind}: a sample is asked about, not {rate}");
        let off: Vec<_> = rows.iter().filter(|(_, off)| off.abs() > ONE_POINT).collect();
        assert!(off.is_empty(), "{kind} at a rate of {rate}: {off:?}");
    }
}

#[test]
fn few_objects_are_estimated_for_ever() {
    // Too much work for all of them all the time, and a part of them would be a bad sample.
    for (kind, pages) in [("skewed", 5000), ("uniform", 3000)] {
        let (rate, rows) = differences(&workload(kind, pages, 4_000_000), pages, 1);
        assert!(rate < 0.5, "{kind}: it rests, not {rate}");
        let off: Vec<_> = rows.iter().filter(|(_, off)| off.abs() > ONE_POINT).collect();
        assert!(off.is_empty(), "{kind} at a rate of {rate}: {off:?}");
    }
}

#[test]
fn pages_of_one_size_are_replayed_as_the_policies_of_the_registry_do() {
    for kind in ["skewed", "scan beside hot", "loop", "uniform"] {
        let (rate, rows) = differences(&workload(kind, 3000, 60_000), 3000, 7);
        assert_eq!(rate, 1.0);
        assert!(rows.iter().all(|(_, off)| *off == 0.0), "{kind}: {rows:?}");
    }
}

#[test]
fn sizes_and_misses_may_go_together_in_a_sample() {
    // Large objects are asked for once, small ones often: the ratios of accesses and of bytes are far apart.
    let pages = 150_000;
    let accesses = workload("scan beside hot", pages, 900_000);
    let size = |page: u64| if page >= pages { 4000 + page % 1000 } else { 100 + page % 7 };
    let caches = [100_000_000, 300_000_000];
    let mut estimator = Estimator::within(&["fifo"], &caches, 512 << 10, 0).expect("room");
    let (mut exact, mut all) = ([(0_u64, 0_u64); 2], 0);
    let mut states = caches.map(|_| (std::collections::HashSet::new(), std::collections::VecDeque::new(), 0));
    for page in &accesses {
        let size = size(*page);
        estimator.access(*page, size);
        all += size;
        for ((resident, queue, used), (capacity, (misses, bytes))) in
            states.iter_mut().zip(caches.iter().zip(&mut exact))
        {
            if resident.insert(*page) {
                (*misses, *bytes, *used) = (*misses + 1, *bytes + size, *used + size);
                queue.push_back((*page, size));
                while *used > *capacity {
                    let (oldest, its) = queue.pop_front().expect("it holds more than it may");
                    resident.remove(&oldest);
                    *used -= its;
                }
            }
        }
    }
    assert!(estimator.rate() < 0.5);
    for (estimate, (misses, bytes)) in estimator.estimates().into_iter().zip(exact) {
        let ratios = [misses as f64 / accesses.len() as f64, bytes as f64 / all as f64];
        assert!(ratios[1] - ratios[0] > 0.2, "they are far apart: {ratios:?}");
        let off = [estimate.miss_ratio - ratios[0], estimate.byte_miss_ratio - ratios[1]];
        assert!(off.iter().all(|off| off.abs() <= ONE_POINT), "{estimate:?}, exact {ratios:?}");
    }
}

#[test]
fn memory_is_bounded_whatever_is_asked_for() {
    let caches: Vec<u64> = (0..MAX_CACHES as u32).map(|cache| 1 << (8 + cache)).collect();
    for limit in [MEMORY_BYTES, 1 << 20] {
        let mut estimator = Estimator::within(&POLICIES, &caches, limit, 3).expect("room");
        for access in 0..2_000_000_u64 {
            // New objects all the time beside old ones, so that queues fill, and caches of every size have something to
            // do.
            estimator.access(if access.is_multiple_of(3) { access / 40 } else { access }, access % 4);
            assert!(
                !access.is_multiple_of(64) || estimator.memory_bytes() <= limit,
                "{} of {limit}",
                estimator.memory_bytes()
            );
        }
        assert!(estimator.rate() < 0.1 && estimator.memory_bytes() > limit / 4);
    }
}

#[test]
fn objects_that_come_and_go_do_not_empty_the_sample() {
    let mut estimator = Estimator::new(&["lru"], &[5000]).expect("room");
    (0..3_000_000_u64).for_each(|access| estimator.access(access, 1));
    assert!(estimator.rate() > 0.1, "{}: what no cache holds makes room for others", estimator.rate());
    assert_eq!(estimator.estimates()[0].miss_ratio, 1.0);
}

#[test]
fn extreme_sizes_do_no_harm() {
    let caches = [0, 1, 4096, u64::MAX - 1, u64::MAX];
    let mut estimator = Estimator::new(&POLICIES, &caches).expect("room");
    assert!(estimator.estimates().iter().all(|estimate| estimate.miss_ratio == 0.0), "nothing was asked for");
    for access in 0..300_000_u64 {
        let size = [0, 1, u64::MAX, u64::MAX - 1, 1 << 40, 7][access as usize % 6];
        estimator.access(access * access % 99_991, size);
        estimator.access(access % 10, size);
    }
    for estimate in estimator.estimates() {
        assert!((0.0..=1.0).contains(&estimate.miss_ratio), "{estimate:?}");
        assert!((0.0..=1.0).contains(&estimate.byte_miss_ratio), "{estimate:?}");
        assert!(estimate.cache_bytes > 0 || estimate.miss_ratio == 1.0, "nothing fits in nothing: {estimate:?}");
    }
}

#[test]
fn counting_begins_anew_with_warm_caches() {
    let mut estimator = Estimator::new(&["lru"], &[100, 1000]).expect("room");
    (0..500).for_each(|object| estimator.access(object, 1));
    estimator.restart();
    (0..500).for_each(|object| estimator.access(object, 1));
    let ratios: Vec<f64> = estimator.estimates().iter().map(|estimate| estimate.miss_ratio).collect();
    assert_eq!(ratios, [1.0, 0.0]);
}

#[test]
fn what_cannot_be_estimated_is_refused_with_a_way_out() {
    let refused =
        |policies: &[&str], caches: &[u64]| Estimator::new(policies, caches).err().map(|error| error.to_string());
    assert_eq!(
        refused(&["opt"], &[1]).as_deref(),
        Some("no estimates of this policy: 'opt': choose from lru, fifo, clock, s3fifo")
    );
    assert_eq!(refused(&["lru"], &[]).as_deref(), Some("0 sizes of the cache: give 1 to 16, in bytes"));
    assert!(refused(&["lru"], &[1; MAX_CACHES + 1]).is_some() && refused(&[], &[1]).is_some());
    let Err(EstimateError::Memory { least, given: 10 }) = Estimator::within(&["lru"], &[1], 10, 0) else {
        panic!("ten bytes do not do");
    };
    assert!(Estimator::within(&["lru"], &[1], least, 0).is_ok());
}
