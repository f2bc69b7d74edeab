// Sorts 8 million pseudo-random words and prints a digest of every thousandth.
fn main() {
    let mut state = 0x243f_6a88_85a3_08d3u64;
    let mut words: Vec<u64> = (0..8_000_000)
        .map(|_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            state >> 20
        })
        .collect();
    words.sort_unstable();
    let digest = words.iter().step_by(1000).fold(0u64, |digest, word| digest.rotate_left(7) ^ word);
    println!("{digest:016x}");
}
