//! The floor of what a hit can cost: the same reads from an array.

use super::load::{Figures, LoadArgs, PAGE, Served, measure, number_of};
use refault_console::Failure;

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

/// Numbered pages in memory, in huge pages as the frames of the cache are.
struct Array {
    bytes: Vec<u8>,
    begin: usize,
    copies: bool,
}

impl Array {
    fn new(load: &LoadArgs) -> Array {
        let length = load.pages * PAGE;
        let mut bytes = vec![0u8; length + HUGE];
        let begin = bytes.as_ptr().align_offset(HUGE);
        // SAFETY: of the vector's own memory; it only says how the kernel is to back it. One without huge pages refuses.
        unsafe { libc::madvise(bytes.as_mut_ptr().add(begin).cast(), length, libc::MADV_HUGEPAGE) };
        for (number, page) in bytes[begin..begin + length].chunks_exact_mut(PAGE).enumerate() {
            page[..8].copy_from_slice(&(number as u64).to_le_bytes());
        }
        Array { bytes, begin, copies: load.pattern.copies() }
    }
}

impl Served for Array {
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<u64, Failure> {
        let page = &self.bytes[self.begin + offset as usize..][..PAGE];
        Ok(number_of(page, buffer, self.copies))
    }
}

/// Does work that reads only what is in memory.
pub fn run(load: &LoadArgs) -> Result<Figures, Failure> {
    measure(load, &Array::new(load))
}
