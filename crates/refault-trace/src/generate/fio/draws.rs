//! The random numbers that fio 3.33 draws, and the seeds that it gives them with its default options.
//!
//! The generator is Tausworthe's with three words, taus88 (L'Ecuyer, Mathematics of Computation 65, 1996). The seeds
//! were found by searching for those that give the blocks of fio's own logs.

/// Steps that a new generator makes before its first number counts.
const WARM_UP: usize = 6;
/// What the first word is made of.
const FIRST_WORD: u32 = 53;
const MULTIPLIER: u32 = 69_069;
/// Seed of the blocks of the first job.
const BLOCK_SEED: u32 = 0xB189_9BED;
/// What fio's seeds begin with, what each is multiplied by for the next, and how often before the first counts.
const SEEDS_START: u32 = 0x89;
const SEEDS_FACTOR: u32 = 0x9E37_0001;
const SEEDS_SKIPPED: u32 = 4;
/// Which of fio's seeds is that of the zones.
const ZONE_SEED: u32 = 16;
/// What the hash of a name begins with.
const NAME_START: u32 = 0x61C8_8647;
/// Bytes of a name that one step of its hash takes.
const NAME_STEP: usize = 12;

/// A generator.
#[derive(Clone, Debug)]
pub(super) struct Draws([u32; 3]);

impl Draws {
    /// One with that seed.
    pub(super) fn new(seed: u32) -> Draws {
        let mut words = [0; 3];
        let mut last = FIRST_WORD;
        for (word, least) in words.iter_mut().zip([1, 7, 15]) {
            last = last.wrapping_mul(MULTIPLIER) ^ seed;
            // A word below this would stay zero in the bits that matter.
            last = if last < least { last + least } else { last };
            *word = last;
        }
        let mut draws = Draws(words);
        for _ in 0..WARM_UP {
            draws.next();
        }
        draws
    }

    /// The one that chooses blocks of a thread, counted from 1.
    pub(super) fn of_blocks(thread: u32) -> Draws {
        Draws::new(BLOCK_SEED.wrapping_mul(thread))
    }

    /// The one that chooses zones.
    pub(super) fn of_zones(thread: u32) -> Draws {
        let factor = SEEDS_FACTOR.wrapping_pow(SEEDS_SKIPPED + ZONE_SEED);
        Draws::new(SEEDS_START.wrapping_mul(factor).wrapping_mul(thread).wrapping_add(ZONE_SEED))
    }

    /// The one of a skewed law, which depends on the file's name.
    pub(super) fn of_name(name: &str, thread: u32) -> Draws {
        Draws::new(hash_of_name(name.as_bytes()).wrapping_mul(thread))
    }

    /// 32 random bits.
    #[inline]
    pub(super) fn next(&mut self) -> u32 {
        let [a, b, c] = self.0;
        let step = |word: u32, left: u32, right: u32, unused: u32, shift: u32| {
            ((word >> unused << unused) << shift) ^ (((word << left) ^ word) >> right)
        };
        self.0 = [step(a, 13, 19, 1, 12), step(b, 2, 25, 3, 4), step(c, 3, 11, 4, 17)];
        self.0[0] ^ self.0[1] ^ self.0[2]
    }

    /// A number from 0 to 1, 1 excluded.
    #[inline]
    pub(super) fn fraction(&mut self) -> f64 {
        f64::from(self.next()) / (f64::from(u32::MAX) + 1.0)
    }

    /// A number from 0 to 1, both included.
    #[inline]
    pub(super) fn unit(&mut self) -> f64 {
        f64::from(self.next()) / f64::from(u32::MAX)
    }

    /// A number below `n`, below 2^32.
    #[inline]
    pub(super) fn below(&mut self, n: u64) -> u64 {
        (n as f64 * self.fraction()) as u64
    }
}

/// Bob Jenkins' hash of 2006 (lookup3), except that fio takes one byte of four where the name is longer than a step.
fn hash_of_name(name: &[u8]) -> u32 {
    let start = NAME_START.wrapping_add(name.len() as u32);
    let [mut a, mut b, mut c] = [start; 3];
    let mut rest = name;
    while rest.len() > NAME_STEP {
        a = a.wrapping_add(u32::from(rest[0]));
        b = b.wrapping_add(u32::from(rest[4]));
        c = c.wrapping_add(u32::from(rest[8]));
        for [first, second, third] in [[4, 6, 8], [16, 19, 4]] {
            a = a.wrapping_sub(c) ^ c.rotate_left(first);
            c = c.wrapping_add(b);
            b = b.wrapping_sub(a) ^ a.rotate_left(second);
            a = a.wrapping_add(c);
            c = c.wrapping_sub(b) ^ b.rotate_left(third);
            b = b.wrapping_add(a);
        }
        rest = &rest[NAME_STEP..];
    }
    if rest.is_empty() {
        return c;
    }
    let mut last = [0; NAME_STEP];
    last[..rest.len()].copy_from_slice(rest);
    let word = |at: usize| u32::from_le_bytes([last[at], last[at + 1], last[at + 2], last[at + 3]]);
    a = a.wrapping_add(word(0));
    b = b.wrapping_add(word(4));
    c = c.wrapping_add(word(8));
    let mixed = |word: u32, with: u32, by: u32| (word ^ with).wrapping_sub(with.rotate_left(by));
    c = mixed(c, b, 14);
    a = mixed(a, c, 11);
    b = mixed(b, a, 25);
    c = mixed(c, b, 16);
    a = mixed(a, c, 4);
    b = mixed(b, a, 14);
    mixed(c, b, 24)
}
