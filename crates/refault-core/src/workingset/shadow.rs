//! The packing of shadow entries (spec: workingset §1).
//!
//! From the lowest bit: one tag bit, always set; one bit "the page had been part of the working set"; 22 bits that name
//! the lruvec (6 for the node and 16 for the memory cgroup in the kernel); the other 40 bits are the policy's value.
//!
//! Kernel: `pack_shadow`, `unpack_shadow` in `mm/workingset.c`.
//!
//! ```
//! use refault_core::workingset::shadow::ShadowFields;
//!
//! let fields = ShadowFields { workingset: true, lruvec: 3, value: 1000 };
//! assert_eq!(ShadowFields::unpack(fields.pack()), fields);
//! ```

use crate::page::{LruvecId, Shadow};

const TAG: u64 = 1;
const WORKINGSET_SHIFT: u32 = 1;
const LRUVEC_SHIFT: u32 = 2;
const LRUVEC_BITS: u32 = 22;
const VALUE_SHIFT: u32 = LRUVEC_SHIFT + LRUVEC_BITS;

/// Bits of the value field.
pub const VALUE_BITS: u32 = 64 - VALUE_SHIFT;
/// The largest value.
pub const VALUE_MASK: u64 = (1 << VALUE_BITS) - 1;

/// A shadow entry taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowFields {
    /// The page had been part of the working set (for the multi-gen LRU: had references beyond the first).
    pub workingset: bool,
    /// The lruvec on whose behalf the page was evicted (classic), or its own (multi-gen LRU).
    pub lruvec: LruvecId,
    /// The policy's value; higher bits than [`VALUE_BITS`] are dropped when packing.
    pub value: u64,
}

impl ShadowFields {
    /// Packs the fields into a word that is never [`Shadow::NONE`].
    #[inline]
    pub fn pack(self) -> Shadow {
        Shadow(
            TAG | u64::from(self.workingset) << WORKINGSET_SHIFT
                | u64::from(self.lruvec) << LRUVEC_SHIFT
                | self.value << VALUE_SHIFT,
        )
    }

    /// Takes a word apart.
    #[inline]
    pub fn unpack(shadow: Shadow) -> ShadowFields {
        ShadowFields {
            workingset: shadow.0 >> WORKINGSET_SHIFT & 1 != 0,
            lruvec: (shadow.0 >> LRUVEC_SHIFT) as LruvecId,
            value: shadow.0 >> VALUE_SHIFT,
        }
    }
}

/// `now - then` on a clock of which only the lowest `bits` bits, rounded down by `order` bits, were stored as `then`.
#[inline]
pub fn distance(now: u64, stored: u64, order: u32, bits: u32) -> u64 {
    now.wrapping_sub(stored << order) & ((1 << bits) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_survive_packing() {
        let fields = ShadowFields { workingset: true, lruvec: 65_535, value: VALUE_MASK };
        assert_eq!(ShadowFields::unpack(fields.pack()), fields);
        let plain = ShadowFields { workingset: false, lruvec: 0, value: 0 };
        assert_eq!(ShadowFields::unpack(plain.pack()), plain);
        assert_ne!(plain.pack(), Shadow::NONE);
    }

    #[test]
    fn distance_wraps_and_rounds_down() {
        assert_eq!(distance(10, (1 << VALUE_BITS) - 5, 0, VALUE_BITS), 15);
        // A reading of 7 stored with order 2 comes back as 4: the distance is overestimated by 3.
        assert_eq!(distance(107, 7 >> 2, 2, VALUE_BITS), 103);
    }
}
