//! Making a failing sequence small: fewer operations first, then smaller numbers.
//!
//! Runs of operations are left out, half of them at first, then fewer (delta debugging, Zeller and Hildebrandt 2002); a
//! block is replaced by what is in it; numbers are lowered. Whatever still fails is kept.

use std::time::Instant;

use super::sequence::{Operation, Sequence};
use crate::ProofError;

/// The smallest sequence that was found to fail before the deadline. `fails` is asked once per candidate.
///
/// # Errors
/// Those of `fails`.
pub fn smallest(
    mut sequence: Sequence,
    deadline: Instant,
    mut fails: impl FnMut(&Sequence) -> Result<bool, ProofError>,
) -> Result<Sequence, ProofError> {
    loop {
        let before = sequence.clone();
        let mut length = sequence.len().max(1);
        while length >= 1 {
            let mut start = 0;
            while start < sequence.len() {
                if Instant::now() >= deadline {
                    return Ok(sequence);
                }
                let candidate = without(&sequence, start, length);
                if candidate != sequence && fails(&candidate)? {
                    sequence = candidate;
                } else {
                    start += length;
                }
            }
            length /= 2;
        }
        let mut index = 0;
        while index < sequence.len() {
            for candidate in simpler(&sequence, index) {
                if Instant::now() >= deadline {
                    return Ok(sequence);
                }
                if fails(&candidate)? {
                    sequence = candidate;
                    break;
                }
            }
            index += 1;
        }
        if sequence == before {
            return Ok(sequence);
        }
    }
}

/// The sequence without `length` operations from the one at `start` on, counted in the order of the text.
fn without(sequence: &Sequence, start: usize, length: usize) -> Sequence {
    fn kept(sequence: &Sequence, next: &mut usize, left_out: &std::ops::Range<usize>) -> Sequence {
        let mut all = Vec::new();
        for operation in &sequence.0 {
            let out = left_out.contains(next);
            *next += 1;
            let blocks: Vec<Sequence> = operation.blocks.iter().map(|block| kept(block, next, left_out)).collect();
            if !out {
                all.push(Operation { blocks, ..operation.clone() });
            } else if !blocks.iter().all(Sequence::is_empty) && left_out.len() == 1 {
                // The block goes, what is in it stays.
                all.extend(blocks.into_iter().flat_map(|block| block.0));
            }
        }
        Sequence(all)
    }
    kept(sequence, &mut 0, &(start..start + length))
}

/// Sequences with smaller numbers in the operation at an index.
fn simpler(sequence: &Sequence, index: usize) -> Vec<Sequence> {
    fn at<'a>(sequence: &'a mut Sequence, left: &mut usize) -> Option<&'a mut Operation> {
        for operation in &mut sequence.0 {
            if *left == 0 {
                return Some(operation);
            }
            *left -= 1;
            for block in &mut operation.blocks {
                if let Some(found) = at(block, left) {
                    return Some(found);
                }
            }
        }
        None
    }
    let mut probe = sequence.clone();
    let Some(numbers) = at(&mut probe, &mut index.clone()).map(|operation| operation.arguments.clone()) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for (position, &number) in numbers.iter().enumerate() {
        for smaller in [0, 1, number / 2, number.saturating_sub(1)] {
            if smaller < number {
                let mut candidate = sequence.clone();
                if let Some(operation) = at(&mut candidate, &mut index.clone()) {
                    operation.arguments[position] = smaller;
                }
                all.push(candidate);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::super::sequence::Random;
    use super::*;

    #[test]
    fn what_has_no_part_in_a_failure_is_left_out() {
        let far = Instant::now() + Duration::from_secs(60);
        for seed in 0..20 {
            let sequence = Sequence::random(&mut Random::new(seed), 160, &BTreeSet::new());
            let fails = |candidate: &Sequence| {
                let text = candidate.to_string();
                let position = |name| text.lines().position(|line| line.split(' ').next() == Some(name));
                Ok(matches!((position("write"), position("read")), (Some(write), Some(read)) if write < read))
            };
            if !fails(&sequence).expect("it cannot fail") {
                continue;
            }
            let small = smallest(sequence, far, fails).expect("nothing can go wrong");
            assert_eq!(small.len(), 2, "{small}");
            assert!(small.0.iter().all(|operation| operation.arguments.iter().all(|&number| number == 0)), "{small}");
        }
    }
}
