//! What live tests share: a skip with a reason, and pages whose contents say who they are.
#![allow(dead_code, reason = "each test binary uses a part")]

use refault_core::policy::registry::{self, FrontEnd};
use refault_pager::{Budget, FaultMode, Pager, PagerOptions};
use refault_store::TieredStoreOptions;
use refault_store::codec::Codec;
pub use refault_testing::Random;

/// Every policy that can run over live memory.
pub fn policies() -> impl Iterator<Item = &'static str> {
    registry::all(FrontEnd::Pager).map(|spec| spec.entry.name)
}

pub const PAGE: usize = 4096;
pub const MIB: usize = 1 << 20;

/// True, with one line that says why, where userfaultfd is not to be had.
pub fn skipped() -> bool {
    match refault_pager::probe::Capabilities::probe().userfaultfd {
        Ok(_) => false,
        Err(error) => {
            refault_testing::skip_required(format_args!("no userfaultfd here: {error}"));
            true
        }
    }
}

pub fn options() -> PagerOptions {
    PagerOptions {
        store: TieredStoreOptions { pool_limit: 1 << 30, codec: Codec::Words, file: None },
        address_space: 4 << 30,
        ..PagerOptions::default()
    }
}

pub fn pager(budget_mib: usize, options: PagerOptions) -> Pager {
    Pager::new(Budget::new((budget_mib * MIB) as u64), options).expect("a pager")
}

pub fn both_modes() -> [FaultMode; 3] {
    [FaultMode::Handler { threads: 1 }, FaultMode::Handler { threads: 2 }, FaultMode::InThread]
}

/// Fills a page with words that depend on its number and version; some pages compress, some do not, some are one value.
pub fn write_page(page: &mut [u8], number: usize, version: u64) {
    let mut random = Random::new((number as u64) << 32 | version);
    for (index, word) in page.chunks_exact_mut(8).enumerate() {
        let value = match number % 4 {
            0 => version,
            1 | 2 if index % 8 != 0 => (number as u64) << 20 | version,
            _ => random.next(),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// Panics unless the page is exactly what [`write_page`] left; version 0 is a page of zeros.
pub fn check_page(page: &[u8], number: usize, version: u64) {
    if version == 0 {
        assert!(page.iter().all(|byte| *byte == 0), "page {number} should be zeros");
        return;
    }
    let mut expected = [0; PAGE];
    write_page(&mut expected, number, version);
    assert!(page == expected, "page {number} is not version {version}");
}
