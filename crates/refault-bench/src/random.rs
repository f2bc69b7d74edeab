//! Seeded random numbers for loads, so that every variant does the same work. No tables: those would themselves be
//! paged.

use refault_core::monitor::Random as Bits;

/// A stream of numbers, the core's, drawn from in the ways that loads need.
pub struct Random(Bits);

impl Random {
    /// The stream of a seed.
    pub const fn new(seed: u64) -> Random {
        Random(Bits::new(seed))
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0.bits()
    }

    /// A number below a bound.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// A number in 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A rank below `ranks` whose logarithm is uniform: rank k has the weight ln((k+2)/(k+1)), which is Zipf(1.0) to a
    /// few percent.
    pub fn zipf(&mut self, ranks: usize) -> usize {
        let rank = ((ranks as f64 + 1.0).ln() * self.unit()).exp() - 1.0;
        (rank as usize).min(ranks - 1)
    }

    /// A number below `bound`, normally distributed around its middle; `deviation` is a share of the bound. Drawn again
    /// when it falls outside (Box and Muller's method).
    pub fn gaussian(&mut self, bound: u64, deviation: f64) -> u64 {
        loop {
            let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
            let unit = radius * (std::f64::consts::TAU * self.unit()).cos();
            let number = bound as f64 * (0.5 + unit * deviation);
            if number >= 0.0 && number < bound as f64 {
                return number as u64;
            }
        }
    }
}

/// Scatters the bits of a number.
pub fn mix(value: u64) -> u64 {
    Bits::new(value).bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_zipf() {
        let mut random = Random::new(1);
        let mut counts = [0u32; 1000];
        (0..200_000).for_each(|_| counts[random.zipf(1000)] += 1);
        assert!(counts[0] > counts[9] * 6 && counts[0] < counts[9] * 12, "{} {}", counts[0], counts[9]);
    }

    #[test]
    fn a_gaussian_lies_around_the_middle() {
        let mut random = Random::new(3);
        let numbers: Vec<u64> = (0..20_000).map(|_| random.gaussian(6000, 1.0 / 6.0)).collect();
        let within = |deviations: u64| numbers.iter().filter(|n| n.abs_diff(3000) <= deviations * 1000).count();
        assert!((13_300..14_000).contains(&within(1)), "{}", within(1));
        assert!((18_950..19_250).contains(&within(2)), "{}", within(2));
    }
}
