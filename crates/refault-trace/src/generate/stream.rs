//! Random numbers: independent streams of one seed, told apart by a tag.
//!
//! A counter with odd increment, hashed by the 64-bit finaliser of SplitMix (Steele, Lea and Flood, OOPSLA 2014). The
//! arithmetic is part of what a workload's name means, so it stands here and not in a crate whose next version may draw
//! otherwise.

/// What a stream decides; its number is part of the sequence's definition.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(crate) enum Tag {
    Positions = 1,
    Writes = 2,
    Permutation = 3,
    Mode = 4,
}

#[inline]
const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// One stream.
#[derive(Clone)]
pub(crate) struct Stream {
    state: u64,
}

impl Stream {
    pub(crate) const fn new(seed: u64, tag: Tag) -> Stream {
        Stream { state: mix(seed) ^ mix(tag as u64) }
    }

    /// 64 random bits.
    #[inline]
    pub(crate) const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// A number below `n`: the high half of a 128-bit product.
    #[inline]
    pub(crate) const fn below(&mut self, n: u64) -> u64 {
        ((self.next() as u128 * n as u128) >> 64) as u64
    }

    /// True with a probability of `sixteenths` in 16.
    #[inline]
    pub(crate) const fn chance(&mut self, sixteenths: u64) -> bool {
        (self.next() >> 60) < sixteenths
    }
}

/// The numbers below `n` in random order (Fisher-Yates, from the last place down).
pub(crate) fn permutation(n: u32, seed: u64) -> Vec<u32> {
    let mut stream = Stream::new(seed, Tag::Permutation);
    let mut order: Vec<u32> = (0..n).collect();
    for i in (1..n as usize).rev() {
        let j = stream.below(i as u64 + 1) as usize;
        order.swap(i, j);
    }
    order
}
