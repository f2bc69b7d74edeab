//! Ranks of pages whose references lose their worth with time. A rank is the logarithm of the sum of what all
//! references are worth. Its base is what a step of the clock is worth.
//!
//! Invariant: the tables are what the compiler has computed, so nothing of it is done at run time. Cost: a byte per
//! step.

/// What a reference adds to a rank that is `distance` steps away from that of a single reference. A reference loses
/// half its worth in `half_life` steps. The sum is `half_life` × log2(1 + 2^(−`distance` / `half_life`)), rounded.
const fn sum(distance: usize, half_life: usize) -> u8 {
    const TERMS: i32 = 16;
    const LN_2: f64 = std::f64::consts::LN_2;
    // e^(−x) as the sixteenth power of e^(−x/16), which its series gives quickly.
    let part = -(distance as f64) / half_life as f64 * LN_2 / 16.0;
    let (mut share, mut term, mut index) = (1.0, 1.0, 1);
    while index <= TERMS {
        term *= part / index as f64;
        share += term;
        index += 1;
    }
    let mut squarings = 4;
    while squarings > 0 {
        share *= share;
        squarings -= 1;
    }
    // ln(1 + s) is twice the inverse hyperbolic tangent of s / (2 + s), which is a third at most.
    let base = share / (2.0 + share);
    let (mut tangent, mut power, mut odd) = (0.0, base, 1);
    while odd < 2 * TERMS {
        tangent += power / odd as f64;
        power *= base * base;
        odd += 2;
    }
    (2.0 * tangent / LN_2 * half_life as f64 + 0.5) as u8
}

/// Steps from which on a reference adds nothing.
pub(crate) const fn steps(half_life: usize) -> usize {
    let mut distance = 0;
    while sum(distance, half_life) > 0 {
        distance += 1;
    }
    distance
}

/// What a reference adds to a rank, by its distance in steps; further away nothing. `STEPS` is [`steps`] of the
/// half-life.
pub(crate) const fn sums<const STEPS: usize>(half_life: usize) -> [u8; STEPS] {
    let mut sums = [0; STEPS];
    let mut distance = 0;
    while distance < STEPS {
        sums[distance] = sum(distance, half_life);
        distance += 1;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_logarithms_of_sums_of_worths() {
        for half_life in [1, 7, 52, 64, 200] {
            let exact = |distance: usize| {
                let share = (-(distance as f64) / half_life as f64).exp2();
                (share.ln_1p() / std::f64::consts::LN_2 * half_life as f64).round() as u8
            };
            let steps = steps(half_life);
            assert_eq!((exact(steps - 1), exact(steps)), (1, 0), "half-life {half_life}");
            for distance in 0..steps {
                assert_eq!(sum(distance, half_life), exact(distance), "half-life {half_life}, distance {distance}");
            }
        }
    }
}
