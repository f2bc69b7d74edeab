//! Choosing: the policy of a process, what it is told of pages, and the pages that it gives up.
//!
//! Invariants: the policy knows a page exactly as long as it is in memory; it never gives up a page that a call in progress
//! holds, nor one twice. Nothing here moves a page. Cost: a call through a table of methods per decision.

pub(crate) mod policies;
pub(crate) mod streams;

use refault_core::policy::{Admission, GenerationSize, PolicyError, ReclaimRequest, SortRule};
use refault_core::{Counters, PageId, PageType, Shadow};

use crate::page::table::Table;
use policies::{PagingPolicy, Victims};
use streams::Streams;

/// Pages that a policy has given up, each with what it left to know it by when it comes back.
pub(crate) type Chosen = Vec<(PageId, Shadow)>;

/// See the module.
pub(crate) struct Choosing {
    policy: PagingPolicy,
    name: String,
    /// What was chosen last, kept for its memory.
    chosen: Chosen,
    /// Ids that the policy knows of.
    known_pages: usize,
    /// Pages that it was last told to plan for.
    capacity: usize,
    /// Faults that go on where one ended.
    streams: Streams,
}

impl Choosing {
    /// The policy that `name{key=value,…}` stands for.
    ///
    /// # Errors
    /// Says why it cannot be had.
    pub(crate) fn new(name: String) -> Result<Choosing, &'static str> {
        let policy = policies::make(&name).map_err(|error| match error {
            PolicyError::Refused { reason, .. } => reason,
            _ => "there is no such policy, or it has no such parameter",
        })?;
        Ok(Choosing {
            policy,
            name,
            chosen: Vec::with_capacity(256),
            known_pages: 0,
            capacity: 0,
            streams: Streams::new(),
        })
    }

    /// How many pages to bring in at most for a fault at an address, and whether downwards.
    pub(crate) fn window(&mut self, address: usize, max_window: usize) -> (usize, bool) {
        self.streams.begin(address, max_window)
    }

    /// What the window of the fault has become.
    pub(crate) fn went_to(&mut self, first: usize, pages: usize) {
        self.streams.went_to(first, pages);
    }

    /// The policy, as it was asked for.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// There are this many ids from now on.
    pub(crate) fn knows(&mut self, pages: usize) {
        if pages > self.known_pages {
            // Ahead, so that the policy's tables are not copied for each chunk.
            self.known_pages = pages + pages / 4;
            self.policy.grow(self.known_pages);
        }
    }

    /// The policy plans for this many pages, unless it does for about as many already.
    pub(crate) fn set_capacity(&mut self, pages: usize) {
        if pages.abs_diff(self.capacity) > self.capacity / 16 {
            self.capacity = pages;
            self.policy.set_capacity(pages);
        }
    }

    /// A page has come into memory; `shadow` is what was left of it.
    pub(crate) fn admit(&mut self, page: PageId, shadow: Option<Shadow>, table: &Table) {
        let shadow = shadow.filter(|shadow| *shadow != Shadow::NONE);
        let admission = Admission::fault(PageType::Anon).with_shadow(shadow);
        self.policy.admit(page, &admission, &mut Victims { table, chosen: &mut self.chosen });
    }

    /// A page is not in memory any more, and was not chosen.
    pub(crate) fn freed(&mut self, page: PageId) {
        self.policy.freed(page);
    }

    /// An empty list to choose into, to be given back by [`Choosing::end`].
    pub(crate) fn begin(&mut self) -> Chosen {
        let mut chosen = core::mem::take(&mut self.chosen);
        chosen.clear();
        chosen
    }

    /// See [`Choosing::begin`].
    pub(crate) fn end(&mut self, chosen: Chosen) {
        self.chosen = chosen;
    }

    /// Adds pages that are to go: a batch of the policy's, and at least `wanted` if it has as many.
    pub(crate) fn choose(&mut self, wanted: usize, table: &Table, chosen: &mut Chosen) {
        let goal = self.policy.reclaim_batch().max(wanted as u32);
        let request = ReclaimRequest { target: 0, goal, incoming: None };
        self.policy.reclaim(&request, &mut Victims { table, chosen });
    }

    /// Adds a page that is to go although the policy has not chosen it.
    pub(crate) fn page_out(&mut self, page: PageId, table: &Table, chosen: &mut Chosen) {
        self.policy.page_out(page, &mut Victims { table, chosen });
    }

    /// Puts a page first or last in the policy's lists.
    pub(crate) fn sort(&mut self, page: PageId, first: bool, rule: SortRule, table: &Table) {
        self.policy.sort(page, first, rule, &mut Victims { table, chosen: &mut self.chosen });
    }

    /// Active and inactive pages, if the policy tells.
    pub(crate) fn active_inactive(&self) -> Option<[u64; 2]> {
        self.policy.active_inactive()
    }

    /// The policy's generations.
    pub(crate) fn generations(&self) -> Vec<GenerationSize> {
        self.policy.generations(0)
    }

    /// The expert that a policy of several follows.
    pub(crate) fn leader(&self) -> Option<&'static str> {
        self.policy.leader()
    }

    /// The policy's counters.
    pub(crate) fn counters(&self) -> Counters {
        self.policy.counters()
    }

    /// Bytes that the policy takes.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.policy.metadata_bytes()
    }
}
