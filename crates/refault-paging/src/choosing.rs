//! Choosing: the policy of a process, what it is told of pages, and the pages that it gives up.
//!
//! Invariants: the policy knows a page exactly as long as it is in memory; it never gives up a page that a call in
//! progress holds, nor one twice. Nothing here moves a page. Cost: a call through a table of methods per decision.

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::PAGE;
    use crate::page::Pages;
    use crate::page::ranges::Attributes;
    use crate::page::table::State;

    const START: usize = 1 << 30;
    const PAGES: usize = 150;

    /// What happens.
    #[derive(Clone, Debug)]
    enum Event {
        ComeIn(usize),
        Free(usize),
        Hold(usize),
        Choose(usize),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            5 => (0..PAGES).prop_map(Event::ComeIn),
            1 => (0..PAGES).prop_map(Event::Free),
            1 => (0..PAGES).prop_map(Event::Hold),
            1 => (1..40usize).prop_map(Event::Choose),
        ]
    }

    /// Policies that need not hear of each access.
    fn names() -> Vec<&'static str> {
        let all = ["fifo", "clock", "sieve", "s3fifo", "mglru", "mglru{cyclic=yes}", "adaptive-mapped{cyclic=yes}"];
        let names: Vec<_> = all.into_iter().filter(|name| Choosing::new((*name).to_owned()).is_ok()).collect();
        assert!(names.len() >= 4, "{names:?}");
        names
    }

    /// Takes what is chosen out of memory, beside the model, whose pages are in memory, held or not.
    fn choose(wanted: usize, choosing: &mut Choosing, pages: &mut Pages, model: &mut BTreeMap<usize, bool>) -> usize {
        let mut chosen = choosing.begin();
        choosing.choose(wanted, pages.table(), &mut chosen);
        for (id, shadow) in &chosen {
            let page = (pages.address(*id) - START) / PAGE;
            assert_eq!(model.remove(&page), Some(false), "page {page} is in memory, held by no call, and chosen once");
            pages.set(*id, State::Parked(0), *shadow);
        }
        let many = chosen.len();
        choosing.end(chosen);
        many
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Beside a map of what is in memory: under any policy what is chosen is there, free and named once, and all of
        /// it is chosen in the end.
        #[test]
        fn what_is_chosen_is_in_memory_free_and_named_once(
            name in proptest::sample::select(names()),
            events in proptest::collection::vec(event(), 1..400),
        ) {
            let mut choosing = Choosing::new(name.to_owned()).expect("a policy");
            let mut pages = Pages::default();
            pages.insert(START, START + PAGES * PAGE, Attributes { protection: Attributes::READ_WRITE, ..Attributes::default() });
            choosing.set_capacity(PAGES);
            let mut model: BTreeMap<usize, bool> = BTreeMap::new();
            for event in events {
                match event {
                    Event::ComeIn(page) if !model.contains_key(&page) => {
                        let (id, grown) = pages.make(START + page * PAGE);
                        grown.into_iter().for_each(|ids| choosing.knows(ids));
                        let entry = pages.entry(id);
                        let shadow = matches!(entry.state(), State::Parked(_)).then(|| entry.shadow());
                        pages.came_in(id);
                        choosing.admit(id, shadow, pages.table());
                        model.insert(page, false);
                    }
                    Event::Free(page) if model.contains_key(&page) => {
                        let (id, _) = pages.find(START + page * PAGE).expect("the model has it");
                        choosing.freed(id);
                        pages.set(id, State::Untouched, Shadow::NONE);
                        if model.remove(&page) == Some(true) {
                            // What is held is the address: the call ends.
                            pages.release(START + page * PAGE);
                        }
                    }
                    Event::Hold(page) => {
                        if let Some(held) = model.get_mut(&page) {
                            let (id, _) = pages.find(START + page * PAGE).expect("the model has it");
                            pages.hold(id, if *held { -1 } else { 1 });
                            *held = !*held;
                        }
                    }
                    Event::Choose(wanted) => drop(choose(wanted, &mut choosing, &mut pages, &mut model)),
                    _ => {}
                }
            }
            for (page, held) in &mut model {
                if std::mem::take(held) {
                    let (id, _) = pages.find(START + page * PAGE).expect("the model has it");
                    pages.hold(id, -1);
                }
            }
            let mut fruitless = 0;
            while !model.is_empty() && fruitless < 64 {
                let many = choose(32, &mut choosing, &mut pages, &mut model);
                fruitless = if many == 0 { fruitless + 1 } else { 0 };
            }
            prop_assert!(model.is_empty(), "{name}: {model:?} stay for ever");
            prop_assert_eq!(pages.in_memory(), 0);
        }
    }
}
