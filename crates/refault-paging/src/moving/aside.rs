//! Pages set aside to see whether they are touched: accessed bits for recorders and monitors, without privilege.
//!
//! A page is set aside by moving it, whole, to its place in the *mirror* (`UFFDIO_MOVE`), whatever address it has: the
//! place is its id. Who touches it next faults, and it is moved back. It stays the policy's and stays charged
//! meanwhile. Between two looks ([`Engine::look`]) each page that is touched is noted once, in the order of first
//! touches, with whether that was a write.
//!
//! Invariants: a page is in the mirror exactly as long as the table says [`State::SetAside`]; pages in use by a call in
//! progress are not set aside. What cannot be moved (locked, not writable, shared with a child or parent since a fork)
//! stays where it is: its accesses are not seen until it can. Cost: two moves, a fault and some 16 bytes per page and
//! look.

use crate::PAGE;

/// Bytes of addresses of the mirror: pages with higher ids are not set aside.
pub(crate) const MIRROR_BYTES: usize = 256 << 30;
/// Touches of a sample that are kept until the next look: of a program that faults all the time more would be the same.
const MAX_NOTED: usize = 1 << 16;
/// Pages that could not be moved are tried again every so many looks.
pub(crate) const RETRY_EVERY: u64 = 8;

/// See the module.
pub(crate) struct Aside {
    pub(crate) mirror: usize,
    /// Addresses touched since the last look, with the lowest bit for a write.
    pub(crate) touched: Vec<usize>,
    /// Addresses of touched pages that could not be set aside.
    pub(crate) stuck: Vec<usize>,
    pub(crate) looks: u64,
    /// Touches are noted, and nothing comes along with a fault unless only a sample is noted.
    pub(crate) notes: bool,
    /// One page in `2^shift` is noted and set aside again.
    pub(crate) shift: u32,
    /// Pages that were moved back because they were touched, and nanoseconds that this took.
    pub(crate) taken_back: u64,
    pub(crate) waited: u64,
}

impl Aside {
    /// Whether touches of the page at an address are noted, where so many are noted already.
    pub(crate) fn is_noted(&self, address: usize, noted: usize) -> bool {
        let page = (address / PAGE) as u64;
        // Fibonacci hashing: the high bits of a product are scattered.
        let drawn = (page >> self.shift).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let has_room = self.shift == 0 || noted < MAX_NOTED;
        self.notes && has_room && (page ^ drawn) & ((1 << self.shift) - 1) == 0
    }
}
