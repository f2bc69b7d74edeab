//! Every textbook policy against its reference model, step by step, and against a memory that refuses.

#[path = "textbook/harness.rs"]
mod harness;
#[path = "textbook/models.rs"]
mod models;

use harness::{equals_model, hostile_steps, steps, survives};
use proptest::prelude::*;
use refault_core::textbook::{Clock, Fifo, Lru};
use std::collections::VecDeque;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn fifo(capacity in 1..40usize, steps in steps()) {
        let model = models::Fifo { capacity, queue: VecDeque::new(), moves_on_hit: false };
        equals_model(Fifo::default(), model, capacity, &steps);
    }

    #[test]
    fn lru(capacity in 1..40usize, steps in steps()) {
        let model = models::Fifo { capacity, queue: VecDeque::new(), moves_on_hit: true };
        equals_model(Lru::default(), model, capacity, &steps);
    }

    #[test]
    fn clock(capacity in 1..40usize, steps in steps()) {
        equals_model(Clock::default(), models::ClockRing { capacity, frames: Vec::new() }, capacity, &steps);
    }

    #[test]
    fn refusals(steps in hostile_steps()) {
        survives(Fifo::default(), &steps);
        survives(Lru::default(), &steps);
        survives(Clock::default(), &steps);
    }
}
