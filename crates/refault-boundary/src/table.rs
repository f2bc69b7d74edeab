//! The table of system calls: a row of each, with the memory that it reads and writes, how it is made, and whether it
//! may be made twice. The rows are in [`rows`], the memory of calls that lead on by a structure in [`requests`],
//! [`devices`] and [`programs`].
//!
//! What a row names is brought in before its call is made and held until it has returned. So the kernel meets no page
//! that is out, and an EFAULT is the program's own. A call is made again after EFAULT only where its row says why that
//! changes nothing.
//!
//! Invariant: each call up to [`refault_linux::calls::MAX`] has one row, in order. A number without a row is of a newer
//! kernel: it is answered with ENOSYS, as a kernel that has it not does, and programs go on as they do there.
//! Cost: a look in an array; each span that a row names takes the engine's lock once.

mod devices;
mod programs;
mod requests;
mod row;
mod rows;

use refault_linux::calls::MAX;

pub(crate) use row::{By, Bytes, MAX_CONTROL, MAX_VECTORS, Memory, Row, Span, TEXT, Twice, message};
use row::{NAME, row, vectors};

/// Where each number's row is; 0: it has none, otherwise one more than its place.
static PLACES: [u16; MAX + 1] = {
    let (mut places, mut at) = ([0u16; MAX + 1], 0);
    while at < rows::ROWS.len() {
        places[rows::ROWS[at].number] = at as u16 + 1;
        at += 1;
    }
    places
};

/// The row of a call.
pub(crate) fn of(number: usize) -> Option<&'static Row> {
    let place = usize::from(*PLACES.get(number)?);
    rows::ROWS.get(place.wrapping_sub(1))
}

#[cfg(test)]
mod page;
#[cfg(test)]
mod tests;
