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

    /// A rank below `ranks` whose weight is `1 / (rank + 1)^exponent`, exactly, for an exponent of more than 0 that is not 1.
    /// By rejection from the integral of that function (Hörmann and Derflinger, ACM TOMACS 6:3, 1996); 1.1 draws in the mean.
    pub fn zipf_of(&mut self, ranks: usize, exponent: f64) -> usize {
        let rest = 1.0 - exponent;
        let integral = |x: f64| (x.powf(rest) - 1.0) / rest;
        let inverse = |y: f64| (1.0 + y * rest).powf(rest.recip());
        let weight = |x: f64| x.powf(-exponent);
        let (low, high) = (integral(1.5) - 1.0, integral(ranks as f64 + 0.5));
        let certain = 2.0 - inverse(integral(2.5) - weight(2.0));
        loop {
            let drawn = high + self.unit() * (low - high);
            let x = inverse(drawn);
            let rank = x.round().clamp(1.0, ranks as f64);
            if rank - x <= certain || drawn >= integral(rank + 0.5) - weight(rank) {
                return rank as usize - 1;
            }
        }
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
    fn ranks_follow_zipf_of_an_exponent() {
        let mut random = Random::new(2);
        let mut counts = [0u32; 100];
        (0..400_000).for_each(|_| counts[random.zipf_of(100, 1.2)] += 1);
        let sum: f64 = (1..=100).map(|rank| f64::from(rank).powf(-1.2)).sum();
        for rank in [0, 1, 2, 9, 99] {
            let expected = 400_000.0 * f64::from(rank + 1).powf(-1.2) / sum;
            let off = (f64::from(counts[rank as usize]) - expected).abs();
            assert!(off < 5.0 * expected.sqrt(), "rank {rank}: {} of {expected}", counts[rank as usize]);
        }
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
