//! The monitor's seeded generator: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), written here so that a seed means the
//! same for ever.
//!
//! Kernel: `damon_rand` in `include/linux/damon.h`.

/// A stream of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `low..high`; `low` if the range is empty (spec: damon §3, the current form).
    #[inline]
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        let span = high.saturating_sub(low);
        let x = self.bits();
        if span < 1 << 32 {
            low + (((x >> 32) * span) >> 32)
        } else {
            low + ((u128::from(x) * u128::from(span)) >> 64) as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn stream_is_pinned_and_within_bounds() {
        let mut random = Random::new(1);
        assert_eq!(
            [random.bits(), random.bits(), random.bits()],
            [0x910a_2dec_8902_5cc1, 0xbeeb_8da1_658e_ec67, 0xf893_a2ee_fb32_555e]
        );
        let mut seen = [0u32; 9];
        for _ in 0..9000 {
            seen[(random.within(1, 10) - 1) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (850..1150).contains(&n)), "{seen:?}");
        for _ in 0..1000 {
            let v = random.within(5, 5 + (1 << 40));
            assert!((5..5 + (1 << 40)).contains(&v));
        }
        assert_eq!(random.within(7, 7), 7);
    }
}
