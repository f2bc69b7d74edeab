//! Policies that learn which of two experts to believe, one for recency and one for frequency: LeCaR and Cacheus.
//!
//! An expert is drawn by weight for each eviction. Pages are remembered by the expert that evicted them; one that comes
//! back lowers that expert's weight. Weights are positive, sum up to 1, and stay between 0.01 and 0.99.

mod cacheus;
mod lecar;
mod rate;

pub use cacheus::{Cacheus, CacheusParams};
pub use lecar::{LeCar, LeCarParams};

use crate::monitor::Random;

const MAX_WEIGHT: f64 = 0.99;

/// Whom to believe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expert {
    Recency,
    Frequency,
}

/// The weight of recency; that of frequency is the rest.
#[derive(Clone, Copy, Debug)]
struct Weights {
    recency: f64,
}

impl Weights {
    const EVEN: Weights = Weights { recency: 0.5 };

    fn draw(self, random: &mut Random) -> Expert {
        if uniform(random) < self.recency { Expert::Recency } else { Expert::Frequency }
    }

    /// An expert's weight is multiplied by e to the power of `-penalty`, before both are scaled to 1 again.
    fn punish(&mut self, expert: Expert, penalty: f64) {
        let (mut recency, mut frequency) = (self.recency, 1.0 - self.recency);
        match expert {
            Expert::Recency => recency *= libm::exp(-penalty),
            Expert::Frequency => frequency *= libm::exp(-penalty),
        }
        self.recency = (recency / (recency + frequency)).clamp(1.0 - MAX_WEIGHT, MAX_WEIGHT);
    }
}

/// From 0 to below 1.
fn uniform(random: &mut Random) -> f64 {
    const BITS: u32 = f64::MANTISSA_DIGITS;
    (random.bits() >> (u64::BITS - BITS)) as f64 / (1u64 << BITS) as f64
}
