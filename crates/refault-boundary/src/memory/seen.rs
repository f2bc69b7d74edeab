//! Which addresses the program has ever had, to the gibibyte, and memory where it never had any.
//!
//! What the agent maps beyond its area ([`crate::memory::area`]) would lie wherever the kernel finds room. That may be
//! a hole in a range of the program's. A hole is where something of the program's was: so it is looked for where
//! nothing ever was.
//!
//! Invariants: no lock and no allocation; what the program maps is noted before its call returns, and so before a hole
//! can be made in it. Cost: a look at a word per mapping, of 16 KiB of which a page or two are touched.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use refault_linux::calls::SYS_mmap;
use refault_linux::errno::EEXIST;
use refault_linux::flags::{MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use refault_linux::sys;

/// Addresses that are one bit.
const BLOCK: usize = 1 << 30;
/// All addresses that a program has without asking for higher ones.
const BLOCKS: usize = 1 << 17;
/// How far below the agent's area is looked first: the kernel maps what comes next just below it.
const DISTANCE: usize = 1 << 40;
/// Lower addresses are those of programs that are linked to them.
const LOWEST: usize = 1 << 36;
const WORD: usize = u64::BITS as usize;

static SEEN: [AtomicU64; BLOCKS / WORD] = [const { AtomicU64::new(0) }; BLOCKS / WORD];

/// Where is looked next.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The program has mapped `bytes` bytes at `start`.
pub(crate) fn note(start: usize, bytes: usize) {
    note_in(&SEEN, start, bytes);
}

/// The agent's area begins there.
pub(crate) fn begin_below(area: usize) {
    NEXT.store(area.saturating_sub(DISTANCE) & !(BLOCK - 1), Ordering::Relaxed);
}

fn note_in(seen: &[AtomicU64], start: usize, bytes: usize) {
    let end = start.saturating_add(bytes.max(1));
    for block in start / BLOCK..end.div_ceil(BLOCK).min(BLOCKS) {
        let (word, bit) = (&seen[block / WORD], 1 << (block % WORD));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }
}

/// Whether the program never had any of these addresses.
fn is_fresh(seen: &[AtomicU64], start: usize, bytes: usize) -> bool {
    let mut blocks = start / BLOCK..(start + bytes).div_ceil(BLOCK);
    blocks
        .all(|block| seen.get(block / WORD).is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (block % WORD) == 0))
}

/// Maps `bytes` bytes of zeros where the program never had anything; 0 if there is no memory or no such place.
pub(crate) fn map(bytes: usize) -> usize {
    const FLAGS: usize = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    let mut at = NEXT.load(Ordering::Relaxed);
    while at >= LOWEST {
        if is_fresh(&SEEN, at, bytes) {
            // SAFETY: a fresh mapping that replaces none.
            match unsafe { sys::call(SYS_mmap, [at, bytes, PROT_READ | PROT_WRITE, FLAGS, usize::MAX, 0]) } {
                EEXIST => {}
                ..=0 => return 0,
                _ => {
                    NEXT.store(at + bytes, Ordering::Relaxed);
                    return at;
                }
            }
        }
        at = (at & !(BLOCK - 1)).saturating_sub(BLOCK);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_had_is_not_fresh() {
        let seen: Vec<AtomicU64> = (0..BLOCKS / WORD).map(|_| AtomicU64::new(0)).collect();
        note_in(&seen, 5 * BLOCK - 4096, 8192);
        note_in(&seen, 70 * BLOCK, 0);
        for (start, bytes, fresh) in [
            (3 * BLOCK, BLOCK, true),
            (3 * BLOCK, BLOCK + 1, false),
            (4 * BLOCK, 4096, false),
            (6 * BLOCK - 4096, 4096, false),
            (6 * BLOCK, 64 * BLOCK, true),
            (6 * BLOCK, 64 * BLOCK + 1, false),
            (BLOCKS * BLOCK - 4096, 4096, true),
            (BLOCKS * BLOCK - 4096, 8192, false),
        ] {
            assert_eq!(is_fresh(&seen, start, bytes), fresh, "{start:x} {bytes:x}");
        }
        // All there are, and more.
        note_in(&seen, 0, usize::MAX);
        assert!(seen.iter().all(|word| word.load(Ordering::Relaxed) == u64::MAX));
    }

    #[test]
    fn memory_is_where_nothing_was() {
        let area = sys::map(4096);
        begin_below(area);
        let first = map(8192);
        let second = map(8192);
        assert_eq!(second, first + 8192);
        assert!(first.abs_diff(area) >= DISTANCE);
        note(second, 1);
        let third = map(8192);
        assert!(third != 0 && third / BLOCK < first / BLOCK);
    }
}
