//! Memory of `ioctl`: of a request's own structure, and of what it leads to.
//!
//! A request's number says how many bytes its structure has, where it was made by the kernel's rule. A page is held at
//! least, because not all numbers say the whole. What lies beyond it (arrays behind a head, buffers that a word points
//! to) is named here for known requests. For all others it is found by the structure's words. Source: the kernel's user
//! headers.

use refault_linux::requests::*;
use refault_linux::sockets::{IFCONF_BUFFER, SIOCGIFCONF};
use refault_paging::PAGE;

use super::Span;
use super::requests::led_to;
use crate::frame;

/// Bytes of a structure of which a request says nothing, or less.
const UNKNOWN: usize = PAGE;
/// Extents that a request asks for, and bytes of addresses, as far as they are looked at.
const MAX_EXTENTS: usize = 1 << 20;
const MAX_ADDRESSES: usize = 1 << 24;
/// Entries behind a head of a virtual machine's, and bytes of the longest.
const MAX_ENTRIES: usize = 1 << 12;
const MACHINE_ENTRY: usize = 40;
/// A structure of fewer bytes is taken for one without an address.
const MIN_STRUCTURE: usize = 16;

/// See the module.
pub(super) fn memory([_, request, structure, ..]: &[usize; 6], visit: &mut dyn FnMut(Span)) {
    let request = *request as u32;
    let part = |(shift, mask): (u32, u32)| request >> shift & mask;
    let said = part(IOC_SIZE) as usize;
    // Some numbers say the size of a head alone, or of a pointer.
    visit((*structure, said.max(UNKNOWN), true));
    let half = |place: usize| frame::read::<u32>(structure.wrapping_add(place)).unwrap_or(0) as usize;
    match request as usize {
        // A head that says how many extents there is room for behind it.
        FS_IOC_FIEMAP => {
            let extents = half(FIEMAP_COUNT).min(MAX_EXTENTS);
            visit((*structure, FIEMAP_EXTENTS + extents * FIEMAP_EXTENT, true));
        }
        // A head that says how many files follow.
        FIDEDUPERANGE => {
            let files = usize::from(half(DEDUPE_COUNT) as u16);
            visit((*structure, DEDUPE_FILES + files * DEDUPE_FILE, true));
        }
        FS_IOC_GETFSMAP => {
            visit((*structure, FSMAP_RECORDS + half(FSMAP_COUNT).min(MAX_EXTENTS) * FSMAP_RECORD, true));
        }
        // An address, and how many regions there is room for.
        PAGEMAP_SCAN => {
            if let Some([regions, count]) = frame::read::<[usize; 2]>(structure.wrapping_add(SCAN_REGIONS)) {
                visit((regions, count.min(MAX_EXTENTS) * SCAN_REGION, true));
            }
        }
        RNDADDENTROPY => visit((*structure, ENTROPY_BYTES + half(ENTROPY_SIZE).min(MAX_ADDRESSES), false)),
        TUNSETTXFILTER => {
            let addresses = half(TUN_COUNT) & usize::from(u16::MAX);
            visit((*structure, TUN_ADDRESSES + addresses * TUN_ADDRESS, false));
        }
        BTRFS_IOC_TREE_SEARCH_V2 => {
            visit((*structure, SEARCH_BUFFER + half(SEARCH_BYTES).min(MAX_ADDRESSES), true));
        }
        // Bytes of all, head included.
        _ if part(IOC_TYPE) == IOC_OF_MAPPERS => visit((*structure, half(MAPPER_BYTES).min(MAX_ADDRESSES), true)),
        // Most heads say how many entries follow.
        _ if part(IOC_TYPE) == IOC_OF_MACHINES && said <= MIN_STRUCTURE => {
            visit((*structure, said + half(0).min(MAX_ENTRIES) * MACHINE_ENTRY, true));
        }
        // Bytes and an address.
        SIOCGIFCONF => {
            if let Some(buffer) = frame::read::<usize>(structure.wrapping_add(IFCONF_BUFFER)) {
                visit((buffer, half(0).min(MAX_ADDRESSES), true));
            }
        }
        // None of the structures of the first leads on. Those of the second name ranges whose pages are what they are
        // about, and must stay as they are: `crate::calls::pointed::prepare` has what they read.
        _ if part(IOC_TYPE) == IOC_OF_USERFAULTFDS => {}
        _ if part(IOC_TYPE) == IOC_OF_TERMINALS && part(IOC_NUMBER) < IOC_FIRST_OF_TUN => {}
        _ if said == 0 => led_to(*structure, UNKNOWN, visit),
        _ if said >= MIN_STRUCTURE => led_to(*structure, said, visit),
        _ => {}
    }
}
