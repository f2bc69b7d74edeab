//! Programs of a tree that run without being managed: which, why and how often, as those say that execute them.
//!
//! Invariants: a place is written once, by the process that has claimed it, and read when it is whole. Cost: a look at
//! the places that are in use per program that is not managed; what finds no place is counted.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Programs that are named; others are counted.
pub const MAX_PROGRAMS: usize = 24;
/// Bytes of a name; what is longer is cut.
pub const MAX_NAME_BYTES: usize = 48;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const WHOLE: u32 = 2;

/// See the module.
#[repr(C)]
pub struct Unmanaged {
    programs: [Program; MAX_PROGRAMS],
    others: AtomicU32,
}

#[repr(C)]
struct Program {
    state: AtomicU32,
    kind: AtomicU32,
    times: AtomicU32,
    name: [AtomicU64; MAX_NAME_BYTES / 8],
}

type Words = [u64; MAX_NAME_BYTES / 8];

fn words(name: &[u8]) -> Words {
    let mut bytes = [0; MAX_NAME_BYTES];
    let len = name.len().min(MAX_NAME_BYTES);
    bytes[..len].copy_from_slice(&name[..len]);
    let mut words = Words::default();
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("invariant: pieces of eight"));
    }
    words
}

impl Program {
    fn is(&self, kind: u32, name: &Words) -> bool {
        self.kind.load(Ordering::Relaxed) == kind
            && self.name.iter().zip(name).all(|(word, wanted)| word.load(Ordering::Relaxed) == *wanted)
    }
}

impl Unmanaged {
    /// A program of this name is executed and will not be managed, for a reason of this kind.
    pub fn note(&self, kind: u32, name: &[u8]) {
        let name = words(name);
        for program in &self.programs {
            match program.state.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => {
                    program.kind.store(kind, Ordering::Relaxed);
                    program.name.iter().zip(name).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
                    program.times.store(1, Ordering::Relaxed);
                    program.state.store(WHOLE, Ordering::Release);
                    return;
                }
                Err(WHOLE) if program.is(kind, &name) => {
                    program.times.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(_) => {}
            }
        }
        self.others.fetch_add(1, Ordering::Relaxed);
    }

    /// It was not executed after all.
    pub fn take_back(&self, kind: u32, name: &[u8]) {
        let name = words(name);
        let is_it = |program: &&Program| program.state.load(Ordering::Acquire) == WHOLE && program.is(kind, &name);
        match self.programs.iter().find(is_it) {
            Some(program) => program.times.fetch_sub(1, Ordering::Relaxed),
            None => self.others.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// Shows each program: kind, name, how often it was executed.
    pub fn each(&self, mut show: impl FnMut(u32, &[u8], u32)) {
        for program in &self.programs {
            let times = program.times.load(Ordering::Relaxed);
            if program.state.load(Ordering::Acquire) != WHOLE || times == 0 {
                continue;
            }
            let mut name = [0; MAX_NAME_BYTES];
            for (bytes, word) in name.chunks_exact_mut(8).zip(&program.name) {
                bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            }
            let len = name.iter().position(|byte| *byte == 0).unwrap_or(MAX_NAME_BYTES);
            show(program.kind.load(Ordering::Relaxed), &name[..len], times);
        }
    }

    /// Programs that found no place, each time counted.
    pub fn others(&self) -> u32 {
        self.others.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(unmanaged: &Unmanaged) -> Vec<(u32, String, u32)> {
        let mut seen = Vec::new();
        unmanaged.each(|kind, name, times| seen.push((kind, String::from_utf8_lossy(name).into_owned(), times)));
        seen
    }

    #[test]
    fn each_program_has_one_place_and_those_without_are_counted() {
        // SAFETY: atomics, for which zeros are values.
        let unmanaged: Unmanaged = unsafe { core::mem::zeroed() };
        unmanaged.note(1, b"busybox");
        unmanaged.note(1, b"busybox");
        unmanaged.note(2, b"busybox");
        unmanaged.note(1, &[b'a'; 60]);
        let long = "a".repeat(MAX_NAME_BYTES);
        assert_eq!(seen(&unmanaged), [(1, "busybox".into(), 2), (2, "busybox".into(), 1), (1, long, 1)]);
        unmanaged.take_back(2, b"busybox");
        assert_eq!(seen(&unmanaged).len(), 2);
        for number in 0..MAX_PROGRAMS {
            unmanaged.note(3, number.to_string().as_bytes());
        }
        assert_eq!((seen(&unmanaged).len(), unmanaged.others()), (MAX_PROGRAMS - 1, 3));
    }
}
