//! The policy of a process, by name, behind one object: what the engine asks, and what the policy may ask back.

use refault_core::memory::{Eviction, References, SwapSpace};
use refault_core::policy::registry::{BuildContext, FrontEnd, PolicySpec, Visitor, visit};
use refault_core::policy::{Policy, PolicyError};
use refault_core::{DynPolicy, LruvecId, Memory, PageId, Shadow};

use crate::page::table::{State, Table};

/// What a policy sees of memory: nothing but who may not go. What was accessed it learns from what comes back.
pub(crate) struct Victims<'a> {
    pub(crate) table: &'a Table,
    pub(crate) chosen: &'a mut Vec<(PageId, Shadow)>,
}

impl Memory for Victims<'_> {
    fn take_references(&mut self, _page: PageId) -> References {
        References::default()
    }

    fn has_accessed_bits(&self) -> bool {
        false
    }

    fn is_mapped(&self, _page: PageId) -> bool {
        true
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.table.knows(page) && matches!(self.table.entry(page).state(), State::Resident | State::SetAside)
    }

    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        let entry = self.table.entry(page);
        debug_assert!(matches!(entry.state(), State::Resident | State::SetAside));
        if entry.state() == State::Resident && entry.must_stay() {
            return Eviction::Kept;
        }
        debug_assert!(self.chosen.iter().all(|(chosen, _)| *chosen != page), "a page is chosen twice");
        self.chosen.push((page, shadow));
        Eviction::Freed { pages_written: 1 }
    }

    fn now(&self) -> u64 {
        refault_linux::sys::now()
    }

    fn swap(&mut self) -> Option<&mut impl SwapSpace> {
        Some(self)
    }
}

impl SwapSpace for Victims<'_> {
    fn free_swap(&self, _lruvec: LruvecId) -> u64 {
        u64::MAX / 4
    }

    fn needs_write(&self, _page: PageId) -> bool {
        true
    }
}

/// A policy over the engine's memory.
pub(crate) type PagingPolicy = Box<dyn for<'a> DynPolicy<Victims<'a>> + Send>;

/// Whether a policy has lists that schemes can sort.
pub(crate) fn sorts(policy: &str) -> bool {
    make(policy).is_ok_and(|mut policy| policy.sorts())
}

/// The policy that `name{key=value,…}` stands for.
pub(crate) fn make(policy: &str) -> Result<PagingPolicy, PolicyError> {
    struct IntoBox;
    impl Visitor for IntoBox {
        type Output = PagingPolicy;
        fn visit<P: Policy + Send + 'static>(self, policy: P) -> PagingPolicy {
            Box::new(policy)
        }
    }
    let spec = PolicySpec::parse_for(policy, FrontEnd::Pager)?;
    Ok(visit(&spec, &BuildContext::default(), IntoBox))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE;
    use crate::page::table::CHUNK_PAGES;

    const AT: usize = 5 * CHUNK_PAGES * PAGE;

    /// A policy that remembers what came in last asks about pages whose mapping has gone.
    #[test]
    fn a_page_that_went_with_its_chunk_is_not_resident() {
        let mut table = Table::default();
        let (page, _) = table.make(AT);
        table.set(page, State::Resident, Shadow::NONE);
        let resident = |table: &Table| Victims { table, chosen: &mut Vec::new() }.is_resident(page);
        assert!(resident(&table));
        table.set(page, State::Untouched, Shadow::NONE);
        assert!(!resident(&table));
        table.drop_if_empty(AT);
        assert!(!resident(&table) && !table.knows(page));
    }
}
