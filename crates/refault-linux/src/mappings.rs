//! The kernel's list of this process's mappings, asked for one at a time (`PROCMAP_QUERY`, Linux 6.11).
//!
//! ```
//! use refault_linux::mappings::Mappings;
//! use refault_linux::{PAGE, sys};
//!
//! let at = sys::map(4 * PAGE);
//! if let Some(mappings) = Mappings::open() {
//!     let (start, end) = mappings.around(at + PAGE).expect("it was mapped");
//!     assert!(start <= at && at + 4 * PAGE <= end);
//! }
//! ```

use core::ffi::CStr;

use crate::flags::{O_RDONLY, PROT_EXEC, PROT_READ, PROT_WRITE};
use crate::numbers::own as number;
use crate::{proc, sys};

/// See the module. Cost: four system calls for one that is opened, asked and dropped.
pub struct Mappings(i32);

impl Mappings {
    /// `None` where it is not to be had. Who took an older kernel's refusal for an answer would find nothing mapped.
    pub fn open() -> Option<Mappings> {
        Mappings::of(proc::MAPS)
    }

    fn of(path: &CStr) -> Option<Mappings> {
        let descriptor = sys::open(path, O_RDONLY);
        let mappings = (descriptor >= 0).then_some(Mappings(descriptor as i32))?;
        // There is always something: this code.
        mappings.next(0).is_some().then_some(mappings)
    }

    /// The mapping that an address lies in, or the next one: start and end.
    pub fn next(&self, address: usize) -> Option<(usize, usize)> {
        self.ask(address).map(|[start, end, _]| (start, end))
    }

    /// Where the mapping ends that an address lies in, and its rights ([`crate::flags::PROT_READ`] and its like).
    pub fn rights(&self, address: usize) -> Option<(usize, usize)> {
        // The kernel's flags of a mapping are those of its rights, in the same order.
        const RIGHTS: usize = PROT_READ | PROT_WRITE | PROT_EXEC;
        let [start, end, flags] = self.ask(address)?;
        (start <= address).then_some((end, flags & RIGHTS))
    }

    /// Start, end and flags.
    fn ask(&self, address: usize) -> Option<[usize; 3]> {
        const QUERY: usize = 0xc068_6611;
        const COVERING_OR_NEXT: u64 = 0x10;
        let mut query = [0u64; 13];
        let bytes = size_of_val(&query) as u64;
        query[..3].copy_from_slice(&[bytes, COVERING_OR_NEXT, address as u64]);
        // SAFETY: reads and writes the structure that is passed, whose size it says, and no name.
        let error =
            unsafe { sys::call(number::SYS_ioctl, [self.0 as usize, QUERY, query.as_mut_ptr() as usize, 0, 0, 0]) };
        (error == 0).then(|| [query[3], query[4], query[5]].map(|word| word as usize))
    }

    /// The mapping that an address lies in.
    pub fn around(&self, address: usize) -> Option<(usize, usize)> {
        self.next(address).filter(|(start, _)| *start <= address)
    }

    /// Where it ends.
    pub fn end_of(&self, address: usize) -> Option<usize> {
        self.around(address).map(|(_, end)| end)
    }
}

impl Drop for Mappings {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's.
        unsafe { sys::close(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE;

    #[test]
    fn a_kernel_without_the_query_is_no_kernel_without_mappings() {
        // A file that opens and does not know the query is what older kernels have.
        assert!(Mappings::of(c"/dev/null").is_none());
        let at = sys::map(PAGE);
        assert!(Mappings::open().is_none_or(|mappings| mappings.around(at).is_some()));
    }
}
