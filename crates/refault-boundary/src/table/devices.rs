//! Memory of `ioctl`: of a request's own structure, and of what it leads to.
//!
//! A request's number says how many bytes its structure has, where it was made by the kernel's rule. What lies beyond it
//! (arrays behind a head, buffers that a word points to) is named here for those requests that are known, and found by the
//! structure's words for all others. Source: the kernel's user headers.

use refault_paging::PAGE;

use super::Span;
use super::requests::led_to;
use crate::frame;

/// Bytes of a structure of which a request says nothing.
const UNKNOWN: usize = PAGE;
/// `FS_IOC_FIEMAP`: a head that says how many extents there is room for behind it.
const FIEMAP: u32 = 0xc020_660b;
/// `FIDEDUPERANGE`: a head that says how many files follow.
const FIDEDUPERANGE: u32 = 0xc018_9436;
/// `SIOCGIFCONF`: bytes and an address.
const SIOCGIFCONF: u32 = 0x8912;
/// Requests to terminals have this in their second byte: none of their structures leads on.
const OF_TERMINALS: u32 = 0x54;
/// Requests to a userfaultfd have this there: they name ranges whose pages are what they are about, and must stay as they
/// are. [`crate::calls::pointed::prepare`] has what they read.
const OF_USERFAULTFDS: u32 = 0xaa;
/// A structure of fewer bytes is taken for one without an address.
const MIN_STRUCTURE: usize = 16;

/// See the module.
pub(super) fn memory([_, request, structure, ..]: &[usize; 6], visit: &mut dyn FnMut(Span)) {
    let request = *request as u32;
    let said = (request >> 16 & 0x3fff) as usize;
    visit((*structure, if said == 0 { UNKNOWN } else { said }, true));
    let half = |place: usize| frame::read::<u32>(structure.wrapping_add(place)).unwrap_or(0) as usize;
    match request {
        FIEMAP => {
            const HEAD: usize = 32;
            const EXTENT: usize = 56;
            const COUNT: usize = 24;
            visit((*structure, HEAD + half(COUNT).min(1 << 20) * EXTENT, true));
        }
        FIDEDUPERANGE => {
            const HEAD: usize = 24;
            const FILE: usize = 32;
            const COUNT: usize = 16;
            visit((*structure, HEAD + (half(COUNT) & 0xffff) * FILE, true));
        }
        SIOCGIFCONF => {
            const ADDRESS: usize = 8;
            if let Some(buffer) = frame::read::<usize>(structure.wrapping_add(ADDRESS)) {
                visit((buffer, half(0).min(1 << 24), true));
            }
        }
        _ if matches!(request >> 8 & 0xff, OF_TERMINALS | OF_USERFAULTFDS) => {}
        _ if said == 0 => led_to(*structure, UNKNOWN, visit),
        _ if said >= MIN_STRUCTURE => led_to(*structure, said, visit),
        _ => {}
    }
}
