//! Every textbook policy against its reference model, step by step, and against a memory that refuses.

#[path = "textbook/models.rs"]
mod models;

use crate::harness;
use crate::harness::{Driver, PAGES, Step, equals_model, forgets, hostile_steps, steps, survives};
use proptest::prelude::*;
use refault_core::policy::registry::{BuildContext, PolicySpec, Visitor, visit};
use refault_core::policy::{Erased, ReclaimRequest};
use refault_core::textbook::{
    Arc, Cacheus, CacheusParams, Clock, ClockPro, Fifo, Hyperbolic, HyperbolicParams, LeCar, LeCarParams, Lfu,
    LfuParams, Lhd, LhdParams, Lirs, LirsParams, LirsVariant, Lrfu, LrfuParams, Lru, LruK, LruKParams, Mq, MqParams,
    NextUse, Opt, S3Fifo, S3FifoParams, S3FifoVariant, Sieve, Slru, SlruParams, TwoQueue, WTinyLfu, WTinyLfuParams,
    WTinyLfuVariant,
};
use refault_core::{PageId, Policy};
use std::collections::{HashMap, VecDeque};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn fifo(capacity in 1..40usize, steps in steps()) {
        let model = models::Fifo { capacity, queue: VecDeque::new(), moves_on_hit: false };
        equals_model(Fifo::default(), model, capacity, &steps);
    }

    #[test]
    fn lru(capacity in 1..40usize, steps in steps()) {
        let model = models::Fifo { capacity, queue: VecDeque::new(), moves_on_hit: true };
        equals_model(Lru::default(), model, capacity, &steps);
        let model = models::Fifo { capacity, queue: VecDeque::new(), moves_on_hit: true };
        equals_model(Lru::renumbering_at(80), model, capacity, &steps);
    }

    #[test]
    fn clock(capacity in 1..40usize, steps in steps()) {
        equals_model(Clock::default(), models::ClockRing { capacity, frames: Vec::new() }, capacity, &steps);
    }

    #[test]
    fn two_queue(capacity in 1..40usize, steps in steps()) {
        equals_model(TwoQueue::default(), models::TwoQueue::new(capacity), capacity, &steps);
    }

    #[test]
    fn arc(capacity in 1..40usize, steps in steps()) {
        equals_model(Arc::default(), models::Arc::new(capacity), capacity, &steps);
    }

    #[test]
    fn sieve(capacity in 1..40usize, steps in steps()) {
        equals_model(Sieve::default(), models::Sieve { capacity, queue: Vec::new(), hand: 0 }, capacity, &steps);
    }

    #[test]
    fn s3fifo(capacity in 1..40usize, steps in steps()) {
        equals_model(S3Fifo::default(), models::S3Fifo::new(capacity, false), capacity, &steps);
        let paper = S3FifoParams { variant: S3FifoVariant::Paper, ..S3FifoParams::default() };
        equals_model(S3Fifo::new(paper), models::S3Fifo::new(capacity, true), capacity, &steps);
    }

    #[test]
    fn lirs(capacity in 1..40usize, hir in prop_oneof![Just(0.01), Just(0.1), Just(0.3)], steps in steps()) {
        for variant in [LirsVariant::LibCacheSim, LirsVariant::Paper] {
            let params = LirsParams { variant, hir, ..LirsParams::default() };
            let model = models::Lirs::new(capacity, hir, variant == LirsVariant::Paper);
            equals_model(Lirs::new(params), model, capacity, &steps);
        }
    }

    #[test]
    fn lrfu(capacity in 1..40usize, steps in steps()) {
        equals_model(Lrfu::default(), models::Lrfu::new(capacity), capacity, &steps);
        let model = models::Lrfu::new(capacity).bypassing();
        equals_model(Lrfu::new(LrfuParams { bypass: true, ..LrfuParams::default() }), model, capacity, &steps);
    }

    #[test]
    fn slru(capacity in 1..40usize, protected in prop_oneof![Just(0.0), Just(0.5), Just(0.8), Just(1.0)], steps in steps()) {
        let protected_limit = (capacity as f64 * protected) as usize;
        let (probationary, protected_pages) = (VecDeque::new(), VecDeque::new());
        let model = models::Slru { capacity, protected_limit, probationary, protected: protected_pages };
        equals_model(Slru::new(SlruParams { protected }), model, capacity, &steps);
    }

    #[test]
    fn lfu(capacity in 1..40usize, aging in any::<bool>(), steps in steps()) {
        let model = models::Lfu { capacity, aging, age: 0, now: 0, pages: HashMap::new() };
        equals_model(Lfu::new(LfuParams { aging }), model, capacity, &steps);
    }

    #[test]
    fn lru_k(capacity in 1..40usize, k in 1..5usize, steps in steps()) {
        let model = models::LruK { capacity, k, now: 0, accesses: HashMap::new(), resident: Vec::new() };
        equals_model(LruK::new(LruKParams { k }), model, capacity, &steps);
    }

    /// As the registry makes it, through [`Erased`].
    #[test]
    fn gdsf(capacity in 1..40usize, steps in steps()) {
        let follows = FollowsModel { model: models::Gdsf::new(capacity), capacity, steps: &steps };
        visit(&PolicySpec::parse("gdsf").expect("it is in the table"), &BuildContext::default(), follows);
    }

    #[test]
    fn mq(
        capacity in 1..40usize,
        queues in 1..6u32,
        lifetime in prop_oneof![1..8u64, 8..200u64],
        history in prop_oneof![Just(0.0), Just(0.5), Just(4.0)],
        steps in steps()
    ) {
        let model = models::Mq::new(capacity, queues, lifetime, (capacity as f64 * history) as usize);
        equals_model(Mq::new(MqParams { queues, lifetime, history }), model, capacity, &steps);
        let model = models::Mq::new(capacity, 8, 10_000, 4 * capacity);
        equals_model(Erased::new(Mq::default()), model, capacity, &steps);
    }

    #[test]
    fn clock_pro(capacity in 1..40usize, steps in steps()) {
        equals_model(ClockPro::default(), models::ClockPro::new(capacity), capacity, &steps);
    }

    #[test]
    fn hyperbolic(capacity in 1..40usize, sample in prop_oneof![1..8u32, Just(64)], seed in 0..4u64, steps in steps()) {
        let model = models::Hyperbolic::new(capacity, sample as usize, seed);
        equals_model(Hyperbolic::new(HyperbolicParams { sample, seed }), model, capacity, &steps);
    }

    #[test]
    fn lhd(
        capacity in 1..40usize,
        sample in 1..20u32,
        newcomers in 0..5u32,
        explorers in prop_oneof![Just(0.0), Just(0.1), Just(0.5)],
        period in 3..30u64,
        ages in prop_oneof![Just(2u32), Just(24), Just(150)],
        steps in steps()
    ) {
        let params = LhdParams { sample, newcomers, explorers, period, ages, seed: 7 };
        let budget = (capacity as f64 * explorers) as usize;
        let model =
            models::Lhd::new(capacity, sample as usize, newcomers as usize, budget, period, u64::from(ages));
        equals_model(Lhd::new(params), model, capacity, &steps);
    }

    #[test]
    fn lecar(
        capacity in 1..40usize,
        rate in prop_oneof![Just(0.0), Just(0.45), Just(5.0)],
        history in prop_oneof![Just(0.0), Just(0.5), Just(1.0)],
        seed in 0..4u64,
        steps in steps()
    ) {
        let model = models::LeCar::new(capacity, rate, (capacity as f64 * history) as usize, seed);
        equals_model(LeCar::new(LeCarParams { rate, history, seed }), model, capacity, &steps);
    }

    #[test]
    fn cacheus(
        capacity in 1..40usize,
        history in prop_oneof![Just(0.0), Just(0.5), Just(1.0)],
        seed in 0..4u64,
        steps in steps()
    ) {
        let model = models::Cacheus::new(capacity, (capacity as f64 * history) as usize, seed);
        equals_model(Cacheus::new(CacheusParams { history, seed }), model, capacity, &steps);
    }

    #[test]
    fn wtinylfu(capacity in 1..40usize, steps in steps()) {
        equals_model(WTinyLfu::default(), models::WTinyLfu::new(capacity, false), capacity, &steps);
        let paper = WTinyLfuParams { variant: WTinyLfuVariant::Paper, ..WTinyLfuParams::default() };
        equals_model(WTinyLfu::new(paper), models::WTinyLfu::new(capacity, true), capacity, &steps);
    }

    #[test]
    fn opt(capacity in 1..40usize, steps in steps()) {
        let sequence = accesses(&steps);
        let model = models::Opt { capacity, sequence: sequence.clone(), now: 0, resident: Vec::new() };
        equals_model(opt_for(sequence), model, capacity, &steps);
    }

    #[test]
    fn ids_of_forgotten_pages(steps in hostile_steps()) {
        forgets(Fifo::default, &steps);
        forgets(Lru::default, &steps);
        forgets(Clock::default, &steps);
        forgets(Sieve::default, &steps);
        forgets(TwoQueue::default, &steps);
        forgets(Arc::default, &steps);
        forgets(S3Fifo::default, &steps);
        forgets(Lirs::default, &steps);
        forgets(Slru::default, &steps);
        forgets(Lfu::default, &steps);
        forgets(LruK::default, &steps);
        forgets(ClockPro::default, &steps);
        forgets(|| Hyperbolic::new(HyperbolicParams { sample: 3, seed: 5 }), &steps);
        forgets(|| Lhd::new(quick_lhd()), &steps);
        forgets(LeCar::default, &steps);
        forgets(Cacheus::default, &steps);
        forgets(|| Erased::new(Mq::new(MqParams { lifetime: 20, ..MqParams::default() })), &steps);
        forgets(|| Lirs::new(LirsParams { variant: LirsVariant::Paper, ..LirsParams::default() }), &steps);
    }

    #[test]
    fn refusals(steps in hostile_steps()) {
        survives(Fifo::default(), &steps);
        survives(Lru::default(), &steps);
        survives(Lru::renumbering_at(80), &steps);
        survives(Clock::default(), &steps);
        survives(TwoQueue::default(), &steps);
        survives(Arc::default(), &steps);
        survives(Sieve::default(), &steps);
        survives(S3Fifo::default(), &steps);
        let paper = S3FifoParams { variant: S3FifoVariant::Paper, ..S3FifoParams::default() };
        survives(S3Fifo::new(paper), &steps);
        survives(Lirs::default(), &steps);
        survives(Lirs::new(LirsParams { variant: LirsVariant::Paper, ..LirsParams::default() }), &steps);
        survives(Lrfu::default(), &steps);
        survives(Slru::default(), &steps);
        survives(Lfu::default(), &steps);
        survives(Lfu::new(LfuParams::with_aging()), &steps);
        survives(LruK::default(), &steps);
        survives(ClockPro::default(), &steps);
        survives(Hyperbolic::new(HyperbolicParams { sample: 3, seed: 5 }), &steps);
        survives(Lhd::new(quick_lhd()), &steps);
        survives(LeCar::default(), &steps);
        survives(Cacheus::default(), &steps);
        survives(Erased::new(Mq::new(MqParams { lifetime: 20, ..MqParams::default() })), &steps);
        survives(WTinyLfu::default(), &steps);
        let paper = WTinyLfuParams { variant: WTinyLfuVariant::Paper, ..WTinyLfuParams::default() };
        survives(WTinyLfu::new(paper), &steps);
        survives(opt_for(accesses(&steps)), &steps);
    }
}

/// Holds a policy of the registry to a model.
struct FollowsModel<'a, T> {
    model: T,
    capacity: usize,
    steps: &'a [Step],
}

impl<T: harness::Model> Visitor for FollowsModel<'_, T> {
    type Output = ();

    fn visit<P: Policy + Send + 'static>(self, policy: P) {
        equals_model(policy, self.model, self.capacity, self.steps);
    }
}

/// LHD that learns within a test.
fn quick_lhd() -> LhdParams {
    LhdParams { sample: 5, newcomers: 3, explorers: 0.2, period: 12, ages: 40, seed: 2 }
}

/// The pages accessed, in order.
fn accesses(steps: &[Step]) -> Vec<PageId> {
    steps.iter().filter_map(|step| if let Step::Access(page) = step { Some(*page) } else { None }).collect()
}

fn opt_for(sequence: Vec<PageId>) -> Opt {
    Opt::new(std::sync::Arc::new(NextUse::new(sequence).unwrap()))
}

/// A new page under the id of a popular one, which was freed, or had gone and was forgotten, is as unknown as any.
#[test]
fn wtinylfu_counts_for_pages_and_not_for_their_ids() {
    for variant in [WTinyLfuVariant::LibCacheSim, WTinyLfuVariant::Paper] {
        for freed in [true, false] {
            let mut driver = Driver::new(WTinyLfu::new(WTinyLfuParams { variant, ..WTinyLfuParams::default() }), 20);
            let access = |driver: &mut Driver<WTinyLfu>, pages: &mut dyn Iterator<Item = PageId>| {
                for page in pages {
                    driver.access(page);
                }
            };
            let fill = |driver: &mut Driver<WTinyLfu>| access(driver, &mut (0..60).map(|step| 1 + step % 20));
            // Twice in a row, and back in between while it is remembered.
            access(&mut driver, &mut (0..40).map(|step| if step % 4 == 3 { 30 + step / 8 } else { 0 }));
            fill(&mut driver);
            access(&mut driver, &mut (0..80).map(|step| if step % 2 == 0 { 0 } else { 30 }));
            assert!(driver.memory.resident[0], "it is popular");
            if freed {
                driver.free(0);
            } else {
                let request = ReclaimRequest { target: 0, goal: PAGES, incoming: None };
                driver.policy.reclaim(&request, &mut driver.memory);
                driver.policy.forgotten(0);
            }
            fill(&mut driver);
            // Another page, which comes in and meets the others when the next comes.
            assert!(!driver.access(0));
            access(&mut driver, &mut (50..54));
            assert!(!driver.memory.resident[0], "{variant:?}, freed: {freed}: it was kept for what another was worth");
        }
    }
}
