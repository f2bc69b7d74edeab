//! Finding AES keys in a dump of memory.
//!
//! A cipher keeps its expanded key, 176 bytes for a key of 128 bits and 240 for one of 256. Each word of it follows
//! from earlier ones (FIPS 197, section 5.2). Random bytes obey that with probability 2^-32 per word, so a place that
//! obeys it throughout holds a key. (The idea is that of Halderman and others, "Lest We Remember", 2008, without their
//! tolerance for decay.)
//!
//! Cost: a few instructions per byte of the dump.

/// Places of expanded AES keys of 128 and 256 bits in these bytes, at multiples of four.
pub fn expanded_keys(memory: &[u8]) -> Vec<usize> {
    let substitution = substitution_box();
    let holds = |start: usize, key_words: usize, all_words: usize| {
        let word =
            |index: usize| -> Option<[u8; 4]> { memory.get(start + 4 * index..start + 4 * index + 4)?.try_into().ok() };
        let mut round_constant = 1u8;
        (key_words..all_words).all(|index| {
            let (Some(mut last), Some(base), Some(this)) = (word(index - 1), word(index - key_words), word(index))
            else {
                return false;
            };
            if index % key_words == 0 {
                last.rotate_left(1);
                last = last.map(|byte| substitution[usize::from(byte)]);
                last[0] ^= round_constant;
                round_constant = double(round_constant);
            } else if key_words == 8 && index % 8 == 4 {
                last = last.map(|byte| substitution[usize::from(byte)]);
            }
            (0..4).all(|byte| this[byte] == last[byte] ^ base[byte])
        })
    };
    (0..memory.len()).step_by(4).filter(|&start| holds(start, 4, 44) || holds(start, 8, 60)).collect()
}

/// Twice a polynomial in the field of AES.
fn double(byte: u8) -> u8 {
    byte << 1 ^ if byte & 0x80 == 0 { 0 } else { 0x1b }
}

/// The inverse in the field of AES, then the affine map of section 5.1.1.
fn substitution_box() -> [u8; 256] {
    let product = |mut left: u8, mut right: u8| {
        let mut sum = 0;
        while right != 0 {
            sum ^= if right & 1 == 0 { 0 } else { left };
            left = double(left);
            right >>= 1;
        }
        sum
    };
    let mut table = [0; 256];
    for (byte, entry) in (0u8..=255).zip(&mut table) {
        let inverse = (0u8..=255).find(|&other| product(byte, other) == 1).unwrap_or(0);
        *entry = (1..5).fold(inverse, |sum, turns| sum ^ inverse.rotate_left(turns)) ^ 0x63;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expanded key of FIPS 197, appendix A.1, first and last words checked against it.
    fn expanded_128() -> Vec<u8> {
        let substitution = substitution_box();
        let mut words: Vec<[u8; 4]> =
            [0x2b7e_1516u32, 0x28ae_d2a6, 0xabf7_1588, 0x09cf_4f3c].map(u32::to_be_bytes).to_vec();
        let mut constant = 1;
        for index in 4..44 {
            let mut last = words[index - 1];
            if index % 4 == 0 {
                last.rotate_left(1);
                last = last.map(|byte| substitution[usize::from(byte)]);
                last[0] ^= constant;
                constant = double(constant);
            }
            let base = words[index - 4];
            words.push(std::array::from_fn(|byte| last[byte] ^ base[byte]));
        }
        assert_eq!(words[4], 0xa0fa_fe17u32.to_be_bytes());
        assert_eq!(words[43], 0xb663_0ca6u32.to_be_bytes());
        words.concat()
    }

    #[test]
    fn the_key_of_the_standard_is_found_where_it_lies_and_nowhere_else() {
        let mut memory: Vec<u8> = (0..100_000u32).flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
        assert_eq!(expanded_keys(&memory), Vec::<usize>::new());
        let key = expanded_128();
        memory[40_000..40_000 + key.len()].copy_from_slice(&key);
        assert_eq!(expanded_keys(&memory), [40_000]);
        memory[40_100] ^= 1;
        assert_eq!(expanded_keys(&memory), Vec::<usize>::new());
    }

    #[test]
    fn zeros_are_no_key() {
        assert_eq!(expanded_keys(&[0; 4096]), Vec::<usize>::new());
    }
}
