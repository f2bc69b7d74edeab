//! The limits that a group would do with.
//!
//! `high` is a sum: the most that may have been accessed in a window that is known, what is charged whatever is
//! accessed, and a margin. What was measured of a window counts with its error. `max` leaves room above it, in which
//! the kernel reclaims instead of killing, and is never below what the group is known to have accessed. A limit is
//! proposed, never a promise: what a program accesses less often than the window is long comes back from disk or swap.
//!
//! ```
//! use std::time::Duration;
//!
//! use refault_host::curve::Measured;
//! use refault_host::proposal::propose;
//!
//! let ten_minutes = Measured { window: Duration::from_secs(600), bytes: 100 << 20, error_bytes: 0 };
//! let proposal = propose(&[ten_minutes], 400 << 20, 10 << 20).expect("a window is known");
//! assert!(proposal.high_bytes > 110 << 20 && proposal.max_bytes > proposal.high_bytes);
//! assert_eq!(proposal.saves_bytes, (400 << 20) - proposal.high_bytes);
//! ```

use serde::Serialize;

use crate::curve::Measured;

/// The margin of `high`, a share of it.
const MARGIN: f64 = 0.05;
/// The smallest margin of `high`: the kernel charges pages in batches for each processor.
const MIN_MARGIN_BYTES: u64 = 4 << 20;
/// The room of `max` above `high`, a share of it.
const ROOM: f64 = 0.1;
/// The smallest room above `high`.
const MIN_ROOM_BYTES: u64 = 16 << 20;
const PAGE: u64 = 4096;

/// Limits, and what they come from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Proposal {
    /// For `memory.high`, or the soft limit of version 1.
    pub high_bytes: u64,
    /// For `memory.max`, or the limit of version 1.
    pub max_bytes: u64,
    /// What is charged now and would not be.
    pub saves_bytes: u64,
    /// The longest window that it comes from, in seconds.
    pub window_seconds: f64,
}

/// Proposes limits; none if no window is known. `other_bytes` is charged whatever is accessed.
pub fn propose(measured: &[Measured], usage_bytes: u64, other_bytes: u64) -> Option<Proposal> {
    let longest = measured.last()?;
    let most = measured.iter().map(|one| one.bytes.saturating_add(one.error_bytes)).max()?;
    let needed = most.saturating_add(other_bytes);
    let high_bytes = with_room(needed, MARGIN, MIN_MARGIN_BYTES);
    Some(Proposal {
        high_bytes,
        max_bytes: with_room(high_bytes, ROOM, MIN_ROOM_BYTES),
        saves_bytes: usage_bytes.saturating_sub(high_bytes),
        window_seconds: longest.window.as_secs_f64(),
    })
}

/// Bytes and a share more, whole pages.
fn with_room(bytes: u64, share: f64, least: u64) -> u64 {
    let room = ((bytes as f64 * share) as u64).max(least);
    bytes.saturating_add(room).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX / PAGE * PAGE)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_proposal_is_never_below_what_was_accessed_or_could_have_been() {
        let at = |seconds, bytes, error_bytes| Measured { window: Duration::from_secs(seconds), bytes, error_bytes };
        // A window in the past may have held more than a longer one that ended later.
        let proposal = propose(&[at(1, 900 << 20, 50 << 20), at(60, 300 << 20, 0)], 1 << 30, 30 << 20).expect("known");
        assert!(proposal.high_bytes >= 980 << 20 && proposal.high_bytes.is_multiple_of(PAGE), "{proposal:?}");
        assert_eq!(
            (proposal.saves_bytes, proposal.window_seconds),
            ((1 << 30) - proposal.high_bytes.min(1 << 30), 60.0)
        );
        let small = propose(&[at(1, 0, 0)], 0, 0).expect("known");
        assert_eq!((small.high_bytes, small.max_bytes, small.saves_bytes), (4 << 20, 20 << 20, 0));
        assert_eq!(propose(&[], 7, 7), None);
        let huge = propose(&[at(1, u64::MAX, u64::MAX)], u64::MAX, u64::MAX).expect("known");
        assert!(huge.high_bytes.is_multiple_of(PAGE) && huge.max_bytes >= huge.high_bytes);
    }
}
