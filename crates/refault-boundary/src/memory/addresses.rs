//! Addresses that the agent reserves, and gives back where a program's are limited.

use refault_linux::calls::SYS_getrlimit;
use refault_linux::sys;
use refault_paging::Engine;

use crate::memory::area;

/// More addresses than there are.
const UNLIMITED: u64 = 1 << 47;
const RLIMIT_DATA: usize = 2;
const RLIMIT_AS: usize = 9;

/// Bytes of addresses for the compressed pool under a budget. It never takes more memory than that, but the budget may be
/// raised; where addresses are limited, twice what it is now has to do.
pub(crate) fn addresses_for_pool(memory: u64) -> u64 {
    match addresses() {
        UNLIMITED.. => (memory * 8).max(1 << 30),
        limited => (memory * 2).min(limited / 4),
    }
}

/// Bytes of addresses for the agent's own memory under a budget. Its tables take some 64 for 4096 that the program maps, and
/// those of a file up to an eighth of the budget.
pub(crate) fn addresses_for_own(memory: u64) -> usize {
    match addresses() {
        UNLIMITED.. => (1 << 30) + memory as usize / 2,
        limited => (limited / 16) as usize,
    }
}

/// The program, or its parent, may have limited its addresses since it began, and a mapping was refused: what the compressed
/// pool and the agent have reserved beyond what they need, and never used, is for the program. Whether that was any.
pub(crate) fn give_addresses_back(paging: &mut Engine) -> bool {
    addresses() < UNLIMITED && {
        let memory = paging.account().tree_limit() * 4096;
        let own = area::give_addresses_back(addresses_for_own(memory));
        let keep = addresses_for_pool(memory);
        paging.give_addresses_back(keep) || own
    }
}

/// Bytes of addresses that this process may have: those for the compressed pool count, used or not.
fn addresses() -> u64 {
    let limit = |which: usize| {
        let mut limit = [u64::MAX; 2];
        // SAFETY: getrlimit writes two words.
        unsafe { sys::call(SYS_getrlimit, [which, limit.as_mut_ptr() as usize, 0, 0, 0, 0]) };
        limit[0]
    };
    limit(RLIMIT_DATA).min(limit(RLIMIT_AS))
}
