//! The kernels' list systems against slow, obvious models written from their description, step by step, and against a
//! memory that refuses.

#[path = "kernel/classic_model.rs"]
mod classic_model;
#[path = "kernel/driver.rs"]
mod driver;
#[path = "kernel/memory.rs"]
mod memory;
#[path = "kernel/mglru_model.rs"]
mod mglru_model;
#[path = "kernel/tree.rs"]
mod tree;

use classic_model::ClassicModel;
use driver::{Driver, Inspect, Leftover, Step, churn, equals_model, scenario, survives};
use memory::World;
use mglru_model::MglruModel;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use refault_core::classic::RefaultRule;
use refault_core::mglru::{Aging, RefaultDistance, Version};
use refault_core::policy::{GenerationSize, Lists};
use refault_core::{Classic, ClassicParams, Counters, LruvecId, Mglru, MglruParams, PageType};

impl Inspect for Classic {
    fn sizes(&self, lruvec: LruvecId) -> Vec<u64> {
        PageType::ALL
            .iter()
            .map(|t| self.list_sizes(lruvec, *t))
            .flat_map(|(inactive, active)| [inactive, active])
            .collect()
    }
}

impl Inspect for ClassicModel {
    fn sizes(&self, lruvec: LruvecId) -> Vec<u64> {
        PageType::ALL
            .iter()
            .map(|t| self.list_sizes(lruvec, *t))
            .flat_map(|(inactive, active)| [inactive, active])
            .collect()
    }

    fn check(&self) {
        ClassicModel::check(self);
    }
}

/// Generations, and both sides of their boundary between active and inactive.
fn generation_sizes(generations: Vec<GenerationSize>, sizes: impl Fn(PageType) -> (u64, u64)) -> Vec<u64> {
    let generations = generations.into_iter().flat_map(|g| [g.seq, g.pages[0], g.pages[1]]);
    generations.chain(PageType::ALL.map(sizes).into_iter().flat_map(|(inactive, active)| [inactive, active])).collect()
}

impl Inspect for Mglru {
    fn sizes(&self, lruvec: LruvecId) -> Vec<u64> {
        generation_sizes(self.generations(lruvec), |t| self.list_sizes(lruvec, t))
    }
}

impl Inspect for MglruModel {
    fn sizes(&self, lruvec: LruvecId) -> Vec<u64> {
        generation_sizes(self.generations(lruvec), |t| self.list_sizes(lruvec, t))
    }

    fn check(&self) {
        MglruModel::check(self);
    }
}

/// How many generations there may be, the kernel's most often.
fn window() -> impl Strategy<Value = (u64, u64)> {
    let others = (2..=5u64).prop_flat_map(|min| (Just(min), min + 2..=7));
    prop_oneof![2 => Just((2, 4)), 1 => others]
}

fn mglru_params() -> impl Strategy<Value = MglruParams> {
    let swappiness = prop_oneof![1 => Just(0u16), 1 => Just(1), 3 => Just(60), 1 => Just(200), 3 => 0..=200u16];
    let rules = prop_oneof![
        3 => Just((Version::V6_12, RefaultDistance::Generation)),
        2 => Just((Version::V6_12, RefaultDistance::Evictions)),
        1 => Just((Version::V6_12, RefaultDistance::Unified)),
        3 => Just((Version::V7_2, RefaultDistance::Generation)),
    ];
    let batch = prop_oneof![Just(0usize), Just(31), Just(15)];
    (
        rules,
        swappiness,
        prop_oneof![3 => Just(4usize), 1 => 1..4usize],
        batch,
        prop::bool::weighted(0.8),
        any::<[bool; 3]>(),
        prop::bool::weighted(0.8),
        [prop::bool::weighted(0.8), prop::bool::weighted(0.8), prop::bool::weighted(0.8)],
        window(),
    )
        .prop_map(|(rules, swappiness, tiers, batch, walks, of_pages, protects_frequent, later, window)| {
            let [region_bits, reads_start_oldest, swap_cache] = of_pages;
            let [by_sizes, filters, look_around] = later;
            let (min_generations, max_generations) = window;
            let (version, refault) = rules;
            MglruParams {
                version,
                refault,
                swappiness,
                tiers,
                batch,
                walks,
                region_bits,
                aging: if by_sizes { Aging::Sizes } else { Aging::Exhausted },
                filters,
                look_around,
                reads_start_oldest,
                protects_frequent,
                max_generations,
                min_generations,
                swap_cache,
                shadow_nodes: false,
            }
        })
}

fn classic_params() -> impl Strategy<Value = ClassicParams> {
    let swappiness = prop_oneof![Just(0u16), Just(60), Just(100), Just(200), 0..=200u16];
    let rule =
        prop_oneof![4 => Just(RefaultRule::Mainline), 4 => Just(RefaultRule::ShadowLru), 1 => Just(RefaultRule::Never)];
    let batch = prop_oneof![Just(0usize), Just(31), Just(15)];
    (rule, swappiness, batch, prop_oneof![3 => Just(0u32), 1 => 1..4u32], any::<bool>(), any::<bool>()).prop_map(
        |(rule, swappiness, batch, bucket_order, per_type_age, plain_costs)| ClassicParams {
            rule,
            swappiness,
            batch,
            bucket_order,
            per_type_age,
            plain_costs,
            shadow_nodes: false,
        },
    )
}

/// `PROPTEST_CASES` sets how many scenarios each property gets.
fn config() -> ProptestConfig {
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { ProptestConfig::default().cases } else { 48 };
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

/// What the generated scenarios add up to: a property that never meets an event proves nothing about it.
fn events<P: Inspect>(policy: impl Fn() -> P) -> Counters {
    let mut runner = TestRunner::deterministic();
    let mut total = Counters::default();
    for _ in 0..60 {
        let (world, limit, steps) = scenario(false).new_tree(&mut runner).unwrap().current();
        let mut driver = Driver::new(policy(), &world, limit);
        steps.iter().for_each(|step| {
            driver.apply(step);
        });
        total.add(&driver.policy.counters());
    }
    total
}

/// The counters that are zero although scenarios should move them.
fn silent(total: &Counters, expected: &[&'static str]) -> Vec<&'static str> {
    let silent = Counters::NAMES.iter().zip(total.values()).filter(|(_, value)| *value == 0);
    silent.map(|(name, _)| *name).filter(|name| expected.contains(name)).collect()
}

const COMMON_EVENTS: [&str; 15] = [
    "workingset_refault_anon",
    "workingset_refault_file",
    "workingset_activate_anon",
    "workingset_activate_file",
    "workingset_restore_anon",
    "workingset_restore_file",
    "pgscan",
    "pgscan_anon",
    "pgscan_file",
    "pgsteal",
    "pgsteal_anon",
    "pgsteal_file",
    "pgactivate",
    "pgdeactivate",
    "pgrotated",
];

#[test]
fn scenarios_meet_every_event_of_classic() {
    let total = events(|| Classic::new(ClassicParams::default()));
    assert_eq!(silent(&total, &COMMON_EVENTS), Vec::<&str>::new());
    assert!(total.pgrefill > 0);
}

#[test]
fn scenarios_meet_every_event_of_the_multi_gen_lru() {
    for version in [Version::V6_12, Version::V7_2] {
        let total = events(|| Mglru::new(MglruParams { version, ..MglruParams::default() }));
        assert_eq!(silent(&total, &COMMON_EVENTS), Vec::<&str>::new(), "{version:?}");
        let of_its_own = [total.pgrefill, total.walk_promoted, total.look_around_entries, total.generations_created];
        assert!(of_its_own.iter().all(|events| *events > 0), "{version:?}: {of_its_own:?}");
    }
}

/// A page that cannot go is looked at once, then no more until it can (spec: overview §5 row 3, mglru §9.3).
fn an_unevictable_page_is_culled(policy: impl Inspect) {
    let world = World {
        anon: 1,
        file: 200,
        stride: 1,
        executable: 0,
        swap: 0,
        keeps_slots: false,
        slow_swap: false,
        walkable: true,
        region_bits: true,
        groups: 0,
    };
    let pinned = world.anon + 4;
    let mut driver = Driver::new(policy, &world, usize::MAX);
    for page in world.anon..world.pages() {
        driver.apply(&Step::Read(page));
    }
    driver.apply(&Step::Pin(pinned, true));
    while driver.memory.usage(&[0]) > 1 {
        driver.apply(&Step::Reclaim(0, 32));
        assert!(driver.policy.counters().pgscan < 2000, "only the pinned page is to stay");
    }
    assert!(driver.memory.resident(pinned));
    driver.apply(&Step::Reclaim(0, 32));
    let before = driver.policy.counters();
    for _ in 0..5 {
        driver.apply(&Step::Reclaim(0, 32));
        driver.apply(&Step::Read(pinned));
    }
    let since = driver.policy.counters().since(&before);
    assert_eq!((since.pgscan, since.pgactivate, since.pgrefill), (0, 0, 0), "it is on no list");
    driver.apply(&Step::Pin(pinned, false));
    for _ in 0..3 {
        driver.apply(&Step::Reclaim(0, 32));
    }
    assert!(!driver.memory.resident(pinned), "it can go now");
    assert_eq!(driver.policy.counters().pgsteal, u64::from(world.file));
}

#[test]
fn unevictable_pages_are_looked_at_once() {
    an_unevictable_page_is_culled(Classic::new(ClassicParams { batch: 0, ..ClassicParams::default() }));
    for version in [Version::V6_12, Version::V7_2] {
        let params = MglruParams { batch: 0, version, ..MglruParams::default() };
        an_unevictable_page_is_culled(Mglru::new(params));
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn classic(params in classic_params(), (world, limit, steps) in scenario(true)) {
        equals_model(Classic::new(params), ClassicModel::new(params), &world, limit, &steps);
    }

    #[test]
    fn classic_in_trouble(params in classic_params(), (world, limit, steps) in scenario(false)) {
        equals_model(Classic::new(params), ClassicModel::new(params), &world, limit, &steps);
    }

    #[test]
    fn classic_survives(params in classic_params(), (world, limit, steps) in scenario(false)) {
        // Without swappiness a limit never takes anonymous pages.
        let params = ClassicParams { swappiness: params.swappiness.max(1), ..params };
        survives(Classic::new(params), Leftover { batch: params.batch, swap: 1 }, &world, limit, &steps);
    }

    #[test]
    fn mglru(params in mglru_params(), (world, limit, steps) in scenario(true)) {
        equals_model(Mglru::new(params), MglruModel::new(params), &world, limit, &steps);
    }

    #[test]
    fn mglru_under_churn_of_every_kind(params in mglru_params(), (world, limit, steps) in churn()) {
        equals_model(Mglru::new(params), MglruModel::new(params), &world, limit, &steps);
    }

    #[test]
    fn mglru_in_trouble(params in mglru_params(), (world, limit, steps) in scenario(false)) {
        equals_model(Mglru::new(params), MglruModel::new(params), &world, limit, &steps);
    }

    #[test]
    fn mglru_survives(params in mglru_params(), (world, limit, steps) in scenario(false)) {
        let params = MglruParams { swappiness: params.swappiness.max(1), ..params };
        survives(Mglru::new(params), Leftover { batch: params.batch, swap: 64 }, &world, limit, &steps);
    }
}
