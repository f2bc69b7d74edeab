//! Making room for a page: ask the policy, look, ask again.
//!
//! Every front-end with a limit brings a missing page in by the same steps (spec: overview §4.6): [`make_room`], then
//! [`Policy::admit`](super::Policy::admit), then the access. A policy may free nothing in one call and something in the
//! next (its pages were all accessed, and it had to look at them once), so a front-end asks again, and gives up after a
//! number of fruitless calls; what it does then is its own business.

use super::{DynPolicy, ReclaimRequest};
use crate::memory::Memory;

/// Fruitless calls after which a front-end without a better idea gives up: the kernel's number before it kills a task.
pub const MAX_FRUITLESS_CALLS: u32 = 16;

/// What making room came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// There is room now.
    pub made: bool,
    /// Calls of [`DynPolicy::reclaim`].
    pub calls: u32,
    /// Pages freed by them.
    pub freed: u32,
}

/// Calls the policy until `has_room` says that there is room; it is asked after each call, and not before the first.
/// Gives up at the first fruitless call beyond `max_fruitless`.
///
/// Cost: that of reclaim. Compiled for the policy if its type is known, and one virtual call per reclaim if it is not.
#[inline]
pub fn make_room<M: Memory, P: DynPolicy<M> + ?Sized>(
    policy: &mut P,
    request: &ReclaimRequest,
    memory: &mut M,
    max_fruitless: u32,
    mut has_room: impl FnMut(&M) -> bool,
) -> Room {
    let mut room = Room { made: false, calls: 0, freed: 0 };
    let mut fruitless = 0;
    loop {
        let freed = policy.reclaim(request, memory);
        room.calls += 1;
        room.freed += freed;
        if has_room(memory) {
            room.made = true;
            return room;
        }
        if freed == 0 {
            fruitless += 1;
            if fruitless > max_fruitless {
                return room;
            }
        }
    }
}
