//! What things cost in nanoseconds: the program's faults, reclaim, and the monitor's own work.
//!
//! The primitives are those of the simulated machine (reverse map 130, unmapping 90, removal 160, examining 35, moving
//! 25, a fault 450, a frame 150; LZ4 of a heap-like page 4500 in, 1000 out, 300 around each). They add up to 1.9 µs for
//! a page that comes back and 5.05 µs for one that goes. A kernel takes longer. A fault on compressed swap under a
//! limit, with the eviction it causes, was measured at 20 to 24 µs. That was in a virtual machine, as the published one
//! was. [`Costs::default`] keeps the measured sum and splits what the primitives do not explain evenly between the two;
//! [`Costs::primitives`] leaves it out. Which of the two is right decides how far pressure slows programs down.
//!
//! ```
//! use refault_sim::monitoring::costs::Costs;
//!
//! // What primitives explain is less than what was measured as a whole.
//! assert!(Costs::primitives().swap_in < Costs::default().swap_in);
//! ```

/// Nanoseconds of each operation on one page of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// First touch of a page: fault, frame, zeros.
    pub zero_fill: u64,
    /// A page comes back from compressed memory: fault, frame, decompression.
    pub swap_in: u64,
    /// The part of `swap_in` in which the contents are read: what a pressure stall counts (spec: overview §7).
    pub swap_read: u64,
    /// A page goes to compressed memory: unmapped, compressed, removed.
    pub swap_out: u64,
    /// A page is looked at by reclaim: isolated, tested, its reverse map followed.
    pub scan: u64,
    /// A check of the monitor at an address with a page: made old once, asked once.
    pub check: u64,
    /// The same where there is none.
    pub check_nothing: u64,
    /// Handling one region in a merge or split.
    pub region: u64,
    /// Waking up and going to sleep, once per interval.
    pub wake: u64,
    /// A scheme moves a page in its lists.
    pub sort_page: u64,
    /// A scheme finds no page at an address.
    pub sort_nothing: u64,
    /// What a check that finds an access costs the program: its next access walks the page table again.
    pub accessed_bit: u64,
}

impl Costs {
    /// Only what the primitives add up to.
    pub fn primitives() -> Costs {
        Costs { swap_in: 1900, swap_out: 5050, ..Costs::default() }
    }
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            zero_fill: 700,
            swap_in: 9300,
            swap_read: 1300,
            swap_out: 12_500,
            scan: 190,
            check: 330,
            check_nothing: 70,
            region: 20,
            wake: 2400,
            sort_page: 60,
            sort_nothing: 8,
            accessed_bit: 100,
        }
    }
}
