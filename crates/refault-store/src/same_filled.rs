//! Pages that are one value repeated: most often zeros, often all ones or one number.
//!
//! The value is kept in the slot, which has 52 bits for it. Three forms fit: a 64-bit word that is a sign-extended
//! 52-bit number, a word whose low 12 bits are zero (floating point numbers), and a 32-bit word twice. Other patterns
//! go on to the compressed pool, where they take some 40 bytes. Cost: one comparison of the page with itself, which
//! ends at the first difference.
//!
//! ```
//! use refault_store::{Page, same_filled};
//!
//! let slot = same_filled::detect(&Page([0xaa; 4096])).expect("filled with one value");
//! let mut page = Page::ZERO;
//! same_filled::fill(slot, &mut page);
//! assert_eq!(page.0, [0xaa; 4096]);
//! ```

use crate::{PAGE_SIZE, Page, Slot, Tier};

const FORM_SHIFT: u32 = 52;
const VALUE_MASK: u64 = (1 << FORM_SHIFT) - 1;
const SIGN_EXTENDED: u64 = 0;
const HIGH_BITS: u64 = 1;
const TWICE: u64 = 2;

/// The slot of a page that is one value repeated, if the value fits a slot.
pub fn detect(page: &Page) -> Option<Slot> {
    let first = u64::from_le_bytes(page.0[..8].try_into().ok()?);
    // Pages differ early or in their last word, so this decides most pages in two loads.
    if page.0[PAGE_SIZE - 8..] != page.0[..8] || page.0[8..] != page.0[..PAGE_SIZE - 8] {
        return None;
    }
    let place = if sign_extend(first & VALUE_MASK) == first {
        SIGN_EXTENDED << FORM_SHIFT | (first & VALUE_MASK)
    } else if first & 0xfff == 0 {
        HIGH_BITS << FORM_SHIFT | first >> 12
    } else if first as u32 == (first >> 32) as u32 {
        TWICE << FORM_SHIFT | u64::from(first as u32)
    } else {
        return None;
    };
    Some(Slot::new(Tier::SameFilled, place))
}

/// The value that a same-filled slot stands for.
pub fn value(slot: Slot) -> u64 {
    let value = slot.place() & VALUE_MASK;
    match slot.place() >> FORM_SHIFT {
        SIGN_EXTENDED => sign_extend(value),
        HIGH_BITS => value << 12,
        _ => value << 32 | value,
    }
}

/// Fills a page as it was.
pub fn fill(slot: Slot, page: &mut Page) {
    let word = value(slot).to_le_bytes();
    for chunk in page.0.chunks_exact_mut(8) {
        chunk.copy_from_slice(&word);
    }
}

const fn sign_extend(value: u64) -> u64 {
    ((value << (64 - FORM_SHIFT)) as i64 >> (64 - FORM_SHIFT)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(value: u64) -> Page {
        let mut page = Page::ZERO;
        page.0.chunks_exact_mut(8).for_each(|c| c.copy_from_slice(&value.to_le_bytes()));
        page
    }

    #[test]
    fn common_values_fit() {
        for value in
            [0, u64::MAX, 1, 0x2020_2020_2020_2020, 1.0f64.to_bits(), (-2.5f64).to_bits(), 0xdead_beef_dead_beef]
        {
            let slot = detect(&filled(value)).expect("fits");
            let mut page = Page([7; PAGE_SIZE]);
            fill(slot, &mut page);
            assert!(page.0 == filled(value).0, "{value:#x}");
        }
        assert_eq!(detect(&filled(0x1234_5678_9abc_def1)), None);
    }

    proptest! {
        #[test]
        fn whatever_is_detected_comes_back(value: u64, form in 0u8..4) {
            let value = match form { 0 => value, 1 => value >> 40, 2 => value << 12, _ => (value as u32 as u64) << 32 | value as u32 as u64 };
            if let Some(slot) = detect(&filled(value)) {
                prop_assert_eq!(super::value(slot), value);
                prop_assert_eq!(slot.tier(), Tier::SameFilled);
                prop_assert!(slot.bits() < 1 << Slot::BITS);
            } else {
                prop_assert_eq!(form, 0);
            }
        }

        #[test]
        fn one_changed_byte_is_seen(at in 0usize..PAGE_SIZE, change in 1u8..) {
            let mut page = filled(0);
            page.0[at] ^= change;
            prop_assert_eq!(detect(&page), None);
        }
    }
}
