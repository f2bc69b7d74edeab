//! A counting Bloom filter that estimates how often a key was counted.
//!
//! Each key has `hashes` counters, found by double hashing with XXH64 (public specification, xxhash.com) under two
//! seeds; adding increments them all, the estimate is the smallest. Estimates never fall short of the truth until
//! counters are halved. Counters have 16 bits; where one is nearly full all are halved.

/// Seeds of the two hashes, as in the reference simulator, so that equal keys meet equal counters.
const SEEDS: [u64; 2] = [0x1234_5678, 0x1234_4321];

/// A counter that is halved; one key may meet a counter more than once and adds at most as often as there are hashes.
const FULL: u16 = u16::MAX - 64;

/// Bits per key and hashes of a Bloom filter with 1 % false positives.
const DOOR_BITS: usize = 10;
const DOOR_HASHES: u64 = 7;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Sketch {
    counters: Vec<u16>,
    hashes: u32,
}

impl Sketch {
    /// Counters for `entries` keys at a false positive rate of `error` (the sizes of a Bloom filter).
    pub(super) fn new(entries: usize, error: f64) -> Sketch {
        let (counters, hashes) = Self::sizes(entries, error);
        Sketch { counters: vec![0; counters], hashes }
    }

    /// Counters and hashes for `entries` keys.
    pub(super) fn sizes(entries: usize, error: f64) -> (usize, u32) {
        let counters_per_entry = -error.ln() / (std::f64::consts::LN_2 * std::f64::consts::LN_2);
        let hashes = (std::f64::consts::LN_2 * counters_per_entry).ceil() as u32;
        let wanted = (counters_per_entry * entries as f64).ceil() as usize;
        let counters = if wanted < hashes as usize { 2 * hashes as usize } else { wanted };
        (counters.min(i32::MAX as usize), hashes)
    }

    /// Counters, to tell whether a new capacity needs another sketch.
    pub(super) fn len(&self) -> usize {
        self.counters.len()
    }

    /// Counts the key once.
    pub(super) fn add(&mut self, key: u64) {
        let mut full = false;
        for at in self.places(key) {
            let counter = &mut self.counters[at];
            *counter += 1;
            full |= *counter >= FULL;
        }
        if full {
            self.halve();
        }
    }

    /// Counts the key once in the smallest of its counters only ("minimal increment"), up to `most`.
    pub(super) fn add_minimal(&mut self, key: u64, most: u16) {
        let estimate = self.estimate(key);
        if estimate < most {
            for at in self.places(key) {
                self.counters[at] = self.counters[at].max(estimate + 1);
            }
        }
    }

    /// How often the key was counted, at most.
    pub(super) fn estimate(&self, key: u64) -> u16 {
        self.places(key).map(|at| self.counters[at]).min().unwrap_or(0)
    }

    /// Halves every counter: the past counts less.
    pub(super) fn halve(&mut self) {
        self.counters.iter_mut().for_each(|counter| *counter >>= 1);
    }

    pub(super) fn metadata_bytes(&self) -> usize {
        self.counters.capacity() * size_of::<u16>()
    }

    fn places(&self, key: u64) -> impl Iterator<Item = usize> + use<> {
        let [first, step] = SEEDS.map(|seed| xxh64(key, seed) as u32);
        let counters = self.counters.len() as u32;
        (0..self.hashes).map(move |i| (first.wrapping_add(i.wrapping_mul(step)) % counters) as usize)
    }
}

/// A Bloom filter in front of the sketch: keys counted once need no counters.
#[derive(Clone, Debug, Default)]
pub(super) struct Doorkeeper {
    bits: Vec<u64>,
}

impl Doorkeeper {
    /// Bits for `entries` keys at a false positive rate of about 1 %.
    pub(super) fn new(entries: usize) -> Doorkeeper {
        Doorkeeper { bits: vec![0; (entries * DOOR_BITS).div_ceil(64).max(1)] }
    }

    /// Lets a key in; false if it was in before.
    pub(super) fn insert(&mut self, key: u64) -> bool {
        let was_in = self.contains(key);
        for at in self.places(key) {
            self.bits[at / 64] |= 1 << (at % 64);
        }
        !was_in
    }

    /// Whether the key was let in; true for some that were not.
    pub(super) fn contains(&self, key: u64) -> bool {
        self.places(key).all(|at| self.bits[at / 64] >> (at % 64) & 1 == 1)
    }

    /// Empties the filter.
    pub(super) fn clear(&mut self) {
        self.bits.fill(0);
    }

    pub(super) fn metadata_bytes(&self) -> usize {
        self.bits.capacity() * size_of::<u64>()
    }

    fn places(&self, key: u64) -> impl Iterator<Item = usize> + use<> {
        let [first, step] = SEEDS.map(|seed| xxh64(key, seed));
        let bits = 64 * self.bits.len() as u64;
        (0..DOOR_HASHES).map(move |i| (first.wrapping_add(i.wrapping_mul(step | 1)) % bits) as usize)
    }
}

/// XXH64 of one 8-byte word.
fn xxh64(word: u64, seed: u64) -> u64 {
    const P1: u64 = 0x9E37_79B1_85EB_CA87;
    const P2: u64 = 0xC2B2_AE3D_27D4_EB4F;
    const P3: u64 = 0x1656_67B1_9E37_79F9;
    const P4: u64 = 0x85EB_CA77_C2B2_AE63;
    const P5: u64 = 0x27D4_EB2F_1656_67C5;
    let lane = word.wrapping_mul(P2).rotate_left(31).wrapping_mul(P1);
    let mut hash = seed.wrapping_add(P5).wrapping_add(8) ^ lane;
    hash = hash.rotate_left(27).wrapping_mul(P1).wrapping_add(P4);
    hash = (hash ^ (hash >> 33)).wrapping_mul(P2);
    hash = (hash ^ (hash >> 29)).wrapping_mul(P3);
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nearly_full_counter_halves_all() {
        let mut sketch = Sketch::new(100, 0.001);
        (0..20_000).for_each(|_| sketch.add(7));
        (0..u32::from(FULL) + 10).for_each(|_| sketch.add(8));
        assert!(sketch.estimate(8) < FULL);
        assert!((9_990..=10_010).contains(&sketch.estimate(7)), "halved once: {}", sketch.estimate(7));
    }

    #[test]
    fn hashes_are_those_of_the_specification() {
        // From the reference implementation of XXH64, little-endian input.
        assert_eq!(xxh64(0, 0), xxhash_rust::xxh64::xxh64(&[0; 8], 0));
        assert_eq!(xxh64(0x0102_0304_0506_0708, 42), xxhash_rust::xxh64::xxh64(&[8, 7, 6, 5, 4, 3, 2, 1], 42));
    }
}
