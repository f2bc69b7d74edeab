//! The blocks of one job, as fio 3.33 chooses them.
//!
//! A skewed law draws a rank, and fio multiplies it by a constant, so that near ranks lie apart: ranks collide, and
//! some blocks are never asked for. fio's `random` asks for each block once before it asks for one again. It begins
//! every such pass with the same seed, so that all passes are alike.

use super::distribution::Distribution;
use super::draws::Draws;

/// Ranks whose weights are summed at most; further ones weigh nothing.
const MAX_WEIGHED: u64 = 10_000_000;
/// What a rank is multiplied by: the golden ratio's fraction of 2^64.
const SPREAD: u64 = 0x61C8_8646_80B5_83EB;
/// Draws whose mean stands for a normal one.
const NORMAL_DRAWS: u64 = 12;

/// Where a job is.
pub(super) struct Blocks {
    count: u64,
    choice: Choice,
}

enum Choice {
    InTurn { next: u64 },
    Uniform(Draws),
    Pass { draws: Draws, thread: u32, free: FreeBlocks },
    Zoned { draws: Draws, zones: Draws, shares: Vec<[u64; 2]> },
    Skewed { draws: Draws, law: Law, offset: u64 },
}

enum Law {
    Zipf { zeta: f64, second: f64, alpha: f64, eta: f64 },
    Pareto { power: f64 },
    Normal { deviation: u64 },
}

impl Blocks {
    /// Blocks in order, again and again.
    pub(super) fn in_turn(count: u64) -> Blocks {
        Blocks { count, choice: Choice::InTurn { next: 0 } }
    }

    /// Those of a law; `map`: each once per pass, which only `random` takes.
    pub(super) fn random(law: &Distribution, count: u64, thread: u32, name: &str, map: bool) -> Blocks {
        let (law, center) = match law {
            Distribution::Random => {
                let draws = Draws::of_blocks(thread);
                let choice = match map {
                    true => Choice::Pass { draws, thread, free: FreeBlocks::new(count as usize) },
                    false => Choice::Uniform(draws),
                };
                return Blocks { count, choice };
            }
            Distribution::Zoned(shares) => {
                let (draws, zones) = (Draws::of_blocks(thread), Draws::of_zones(thread));
                return Blocks { count, choice: Choice::Zoned { draws, zones, shares: shares.clone() } };
            }
            Distribution::Zipf { theta, center } => (Law::zipf(*theta, count), center),
            Distribution::Pareto { power, center } => (Law::Pareto { power: power.ln() / (1.0 - power).ln() }, center),
            Distribution::Normal { deviation, center } => {
                let deviation = (count as f64 * deviation / 100.0).ceil() as u64;
                (Law::Normal { deviation: deviation.min(count / 2) }, center)
            }
        };
        let mut draws = Draws::of_name(name, thread);
        let normal = matches!(law, Law::Normal { .. });
        // Only the normal law begins without a first draw.
        let first = if normal { 0 } else { u64::from(draws.next()) };
        let offset = match center {
            // The mean of a normal law is the middle. A negative offset wraps at 32 bits, as fio's does.
            Some(center) if normal => u64::from((count as f64 * (center - 0.5)) as i64 as u32),
            Some(center) => (count as f64 * center) as u64,
            None => first,
        };
        Blocks { count, choice: Choice::Skewed { draws, law, offset } }
    }

    /// The next block, counted from 0.
    pub(super) fn next(&mut self) -> u64 {
        let count = self.count;
        match &mut self.choice {
            Choice::InTurn { next } => {
                let block = *next;
                *next = if block + 1 == count { 0 } else { block + 1 };
                block
            }
            Choice::Uniform(draws) => draws.below(count),
            Choice::Pass { draws, thread, free } => {
                if free.left == 0 {
                    free.reset();
                    *draws = Draws::of_blocks(*thread);
                }
                free.take(draws.below(count) as usize)
            }
            Choice::Zoned { draws, zones, shares } => {
                let mut drawn = zones.below(100);
                let mut before = 0;
                let mut size = 0;
                for [accesses, share] in shares.iter() {
                    size = *share;
                    if drawn < *accesses {
                        break;
                    }
                    drawn -= accesses;
                    before += share;
                }
                before * count / 100 + draws.below(size * count / 100)
            }
            Choice::Skewed { draws, law, offset } => {
                law.rank(draws, count).wrapping_mul(SPREAD).wrapping_add(*offset) % count
            }
        }
    }
}

impl Law {
    fn zipf(theta: f64, count: u64) -> Law {
        let zeta = (1..=count.min(MAX_WEIGHED)).map(|rank| (1.0 / rank as f64).powf(theta)).fold(0.0, |a, b| a + b);
        let second = 1.0 + 0.5f64.powf(theta);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - second / zeta);
        Law::Zipf { zeta, second, alpha: 1.0 / (1.0 - theta), eta }
    }

    /// The next rank, counted from 0: Gray's approximation for Zipf's law (SIGMOD 1994).
    fn rank(&self, draws: &mut Draws, count: u64) -> u64 {
        match *self {
            Law::Zipf { zeta, second, alpha, eta } => {
                let unit = draws.unit();
                match unit * zeta {
                    weight if weight < 1.0 => 0,
                    weight if weight < second => 1,
                    _ => (count as f64 * (eta * unit - eta + 1.0).powf(alpha)) as u64,
                }
            }
            Law::Pareto { power } => ((count - 1) as f64 * draws.unit().powf(power)) as u64,
            Law::Normal { deviation } => {
                let sum: u64 = (0..NORMAL_DRAWS).map(|_| u64::from(draws.next()) % (count + 1)).sum();
                let mean = sum.div_ceil(NORMAL_DRAWS);
                if deviation == 0 {
                    return mean;
                }
                let mut apart = draws.below(deviation) as i64 - (deviation / 2) as i64;
                while apart != 0 && mean.wrapping_add_signed(apart) >= count {
                    apart /= 2;
                }
                mean.wrapping_add_signed(apart)
            }
        }
    }
}

/// Which blocks a pass has not asked for yet: each block names one from which to look on, itself if it is free.
struct FreeBlocks {
    next: Vec<u32>,
    left: usize,
}

impl FreeBlocks {
    fn new(count: usize) -> FreeBlocks {
        FreeBlocks { next: (0..=count as u32).collect(), left: count }
    }

    fn reset(&mut self) {
        *self = FreeBlocks::new(self.next.len() - 1);
    }

    /// Takes the block, or the next free one behind it, or the first of all. One must be free.
    fn take(&mut self, block: usize) -> u64 {
        let mut found = self.find(block);
        if found + 1 == self.next.len() {
            found = self.find(0);
        }
        self.next[found] = found as u32 + 1;
        self.left -= 1;
        found as u64
    }

    /// The first free block from there, or one beyond the last. Halves the way for the next search.
    fn find(&mut self, mut block: usize) -> usize {
        while self.next[block] as usize != block {
            self.next[block] = self.next[self.next[block] as usize];
            block = self.next[block] as usize;
        }
        block
    }
}
