//! Addresses of pages whose ids are not their addresses, and the blocks that they lie in.

use refault_core::PageId;

use crate::layout::Layout;

/// The address of an id, or for the unused ids below the first file page the one after the anonymous mapping.
pub(super) fn address_or_gap(layout: &Layout, id: PageId) -> u64 {
    let anon_end = if layout.distinct_anon() == 0 { 0 } else { layout.mapping(0).end };
    if id < layout.file_base() && u64::from(id) >= layout.distinct_anon() && layout.is_anon_sparse() {
        anon_end
    } else {
        layout.address(id)
    }
}

/// Numbers the blocks of `block_pages` pages that addresses (ascending) fall into, and counts them.
pub(super) fn number_blocks(addresses: &[u64], block_pages: u64) -> (Vec<u32>, usize) {
    let mut last = None;
    let mut count = 0u32;
    let table = addresses
        .iter()
        .map(|address| {
            let block = address / block_pages;
            if last != Some(block) {
                last = Some(block);
                count += 1;
            }
            count - 1
        })
        .collect();
    (table, count as usize)
}
