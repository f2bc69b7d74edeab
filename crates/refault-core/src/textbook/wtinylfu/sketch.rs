//! A counting Bloom filter that estimates how often a key was counted.
//!
//! Each key has `hashes` counters, found by double hashing with XXH64 (public specification, xxhash.com) under two
//! seeds; adding increments them all, the estimate is the smallest. Estimates never fall short of the truth until
//! counters are halved. Counters have 16 bits; where one would overflow all are halved.

/// Seeds of the two hashes, as in the reference simulator, so that equal keys meet equal counters.
const SEEDS: [u64; 2] = [0x1234_5678, 0x1234_4321];

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Sketch {
    counters: Vec<u16>,
    hashes: u32,
}

impl Sketch {
    /// Counters for `entries` keys at a false positive rate of `error` (the sizes of a Bloom filter).
    pub(super) fn new(entries: usize, error: f64) -> Sketch {
        let counters_per_entry = -error.ln() / (std::f64::consts::LN_2 * std::f64::consts::LN_2);
        let hashes = (std::f64::consts::LN_2 * counters_per_entry).ceil() as u32;
        let wanted = (counters_per_entry * entries as f64).ceil() as usize;
        let counters = if wanted < hashes as usize { 2 * hashes as usize } else { wanted };
        Sketch { counters: vec![0; counters.min(i32::MAX as usize)], hashes }
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
            full |= *counter == u16::MAX;
        }
        if full {
            self.halve();
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
