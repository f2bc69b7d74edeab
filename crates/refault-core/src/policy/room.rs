//! Making room for a page: ask the policy, look, ask again.
//!
//! Every front-end with a limit brings a missing page in by the same steps (spec: overview §4.6): [`make_room`], then
//! [`Policy::admit`](super::Policy::admit), then the access. A policy may free nothing in one call and something in the
//! next: its pages were all accessed, and it had to look at them once. So a front-end asks again, and stops after a
//! number of fruitless calls. What it does then is its own business.
//!
//! ```
//! use refault_core::memory::{Eviction, Memory, References};
//! use refault_core::policy::room::{MAX_FRUITLESS_CALLS, make_room};
//! use refault_core::policy::{Admission, ReclaimRequest};
//! use refault_core::textbook::Fifo;
//! use refault_core::{PageId, PageType, Policy, Shadow};
//!
//! struct Resident(usize);
//!
//! impl Memory for Resident {
//!     fn take_references(&mut self, _page: PageId) -> References {
//!         References::default()
//!     }
//!     fn evict(&mut self, _page: PageId, _shadow: Shadow) -> Eviction {
//!         self.0 -= 1;
//!         Eviction::Freed { pages_written: 0 }
//!     }
//!     fn is_resident(&self, _page: PageId) -> bool {
//!         true
//!     }
//! }
//!
//! let (mut policy, mut memory) = (Fifo::default(), Resident(8));
//! policy.grow(8);
//! for page in 0..8 {
//!     policy.admit(page, &Admission::fault(PageType::Anon), &mut memory);
//! }
//! let request = ReclaimRequest { target: 0, goal: 1, incoming: None };
//! let room = make_room(&mut policy, &request, &mut memory, MAX_FRUITLESS_CALLS, |memory| memory.0 <= 5);
//! assert_eq!((room.made, room.calls, room.freed), (true, 3, 3));
//! ```

use super::{DynPolicy, ReclaimRequest};
use crate::memory::Memory;

/// Fruitless calls after which a front-end without a better idea gives up: the kernel's number before it kills a task
/// (`MAX_RECLAIM_RETRIES` in `mm/internal.h`; `try_charge_memcg` in `mm/memcontrol.c`).
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
