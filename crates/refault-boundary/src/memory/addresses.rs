//! Addresses that the agent reserves, and gives back where a program's are limited.

use refault_linux::flags::{RLIMIT_AS, RLIMIT_DATA};
use refault_linux::{END_OF_ADDRESSES, sys};
use refault_paging::{Engine, PAGE};

use crate::memory::area;

/// More addresses than there are.
const UNLIMITED: u64 = END_OF_ADDRESSES as u64;

/// Bytes of addresses for the compressed pool under a budget. It never takes more memory than that, but the budget may
/// be raised; where addresses are limited, twice what it is now has to do.
pub(crate) fn addresses_for_pool(memory: u64) -> u64 {
    match addresses() {
        UNLIMITED.. => (memory * 8).max(1 << 30),
        limited => (memory * 2).min(limited / 4),
    }
}

/// Bytes of addresses for the agent's own memory under a budget. Its tables take some 64 for 4096 that the program
/// maps, and those of a file up to an eighth of the budget.
pub(crate) fn addresses_for_own(memory: u64) -> usize {
    match addresses() {
        UNLIMITED.. => (1 << 30) + memory as usize / 2,
        limited => (limited / 16) as usize,
    }
}

/// The program, or its parent, may have limited its addresses since it began, and a mapping was refused: what the
/// compressed pool and the agent have reserved beyond what they need, and never used, is for the program. Whether that
/// was any.
pub(crate) fn give_addresses_back(paging: &mut Engine) -> bool {
    addresses() < UNLIMITED && {
        let memory = paging.account().tree_limit() * PAGE as u64;
        let own = area::give_addresses_back(addresses_for_own(memory));
        let keep = addresses_for_pool(memory);
        paging.give_addresses_back(keep) || own
    }
}

/// Bytes of addresses that this process may have: those for the compressed pool count, used or not.
fn addresses() -> u64 {
    let ([data, _], [all, _]) = (sys::limits(RLIMIT_DATA), sys::limits(RLIMIT_AS));
    data.min(all)
}
