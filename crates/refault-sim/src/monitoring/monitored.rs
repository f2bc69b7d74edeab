//! A replay with a monitor and its schemes over it: what the simulated memory answers to checks, and what acting means.
//!
//! Time comes from the accesses: the program makes a fixed number per second. Pages have one address each, their id
//! times the page size, so the physical and the virtual view are the same here. Checks use the page's accessed bit, so
//! that accesses cost nothing extra; a bit taken is still counted by reclaim's next reference check. Reads through
//! descriptors leave no bit and are invisible, as they are to a kernel's monitor under the multi-gen LRU (spec: damon
//! §4.2).
//!
//! The monitor's own time is modelled, so that quotas by time are deterministic. It is 330 ns per check with a page, 70
//! ns without, 60 ns per page sorted (see [`crate::monitoring::costs`]); the real time is measured beside it.
//!
//! ```
//! use refault_core::policy::PolicySpec;
//! use refault_core::policy::registry::BuildContext;
//! use refault_sim::flat_memory::Swap;
//! use refault_sim::monitoring::config::Config;
//! use refault_sim::monitoring::monitored::MonitoredReplay;
//! use refault_sim::{LayoutBuilder, Limits, named};
//! use refault_trace::{Entry, Kind};
//!
//! let entries: Vec<Entry> = (0..20_000).map(|n| Entry::new(n % 100, Kind::Anon, false)).collect();
//! let mut builder = LayoutBuilder::new();
//! builder.observe(&entries);
//! let layout = builder.finish()?;
//! let limits = Limits { memory_pages: 50, swap: Swap { pages: 100, synchronous: true } };
//! let replay = named::replay(&PolicySpec::parse("classic")?, &BuildContext::default(), &layout, limits);
//! let config = Config::parse("nr_regions = { min = 10, max = 20 }\n", "example")?;
//! let mut monitored = MonitoredReplay::new(replay, 50, layout.ids() as u64, &config, 10_000, 1)?;
//! let mut accesses = Vec::new();
//! layout.translate(&entries, &mut accesses);
//! monitored.run(&accesses, &mut ());
//! assert!(monitored.kdamond().monitor().counters().checks > 0); // in two seconds of the program
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ops::Range;
use std::time::{Duration, Instant};

use refault_core::PageId;
use refault_core::monitor::{AccessSampler, Profile};
use refault_core::policy::SortRule;
use refault_core::schemes::{Action, Folio, Kdamond, Next, Observer, SchemeActor};

use super::config::{Config, ConfigError};
use crate::flat_memory::FlatMemory;
use crate::layout::Access;
use crate::monitoring::costs::Costs;
use crate::named::{DynReplay, ReplayedPolicy};
use crate::replay::Outcome;

const PAGE: u64 = 4096;

/// See the module.
pub struct MonitoredReplay {
    replay: Box<dyn DynReplay>,
    kdamond: Kdamond,
    rule: SortRule,
    memory_pages: u64,
    ids: u64,
    accesses_per_second: u64,
    /// Time in µs at the end of the wait under way.
    now: u64,
    /// Accesses left until then.
    left: u64,
    sampling: bool,
    ended: bool,
    work: u64,
    spent: Duration,
}

impl MonitoredReplay {
    /// A replay monitored as `config` says. `memory_pages` is its limit, `ids` the number of its page ids.
    ///
    /// # Errors
    /// Names the scheme whose action has no effect here, or the target beyond the memory, and why.
    pub fn new(
        mut replay: Box<dyn DynReplay>,
        memory_pages: u64,
        ids: u64,
        config: &Config,
        accesses_per_second: u64,
        seed: u64,
    ) -> Result<MonitoredReplay, ConfigError> {
        for (index, scheme) in config.schemes.iter().enumerate() {
            if let Some(reason) = refusal(&scheme.action, replay.parts_mut().0.sorts()) {
                let key = format!("schemes[{index}].action");
                return Err(ConfigError {
                    origin: String::new(),
                    key,
                    reason: format!("{} {reason}", scheme.action.name()),
                });
            }
        }
        for (index, target) in config.targets.iter().enumerate() {
            if let Some(range) = target.ranges.iter().find(|range| range.end > ids * PAGE) {
                let key = format!("targets[{index}].regions");
                let reason =
                    format!("{}-{} reaches beyond the memory, which ends at {}", range.start, range.end, ids * PAGE);
                return Err(ConfigError { origin: String::new(), key, reason });
            }
        }
        let kdamond = config.kdamond(0..ids * PAGE, seed, 0)?;
        let rule = if config.profile == Profile::K72 { SortRule::Activate } else { SortRule::MarkAccessed };
        let mut monitored = MonitoredReplay {
            replay,
            kdamond,
            rule,
            memory_pages,
            ids,
            accesses_per_second: accesses_per_second.max(1),
            now: 0,
            left: 0,
            sampling: false,
            ended: false,
            work: 0,
            spent: Duration::ZERO,
        };
        monitored.begin();
        Ok(monitored)
    }

    /// Replays the next accesses, with the monitor's intervals in between. `observer` sees what it finds.
    pub fn run<O: Observer>(&mut self, mut block: &[Access], observer: &mut O) {
        while !block.is_empty() {
            let now = block.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            let (before, after) = block.split_at(now);
            self.replay.run(before);
            self.left -= now as u64;
            block = after;
            if self.left == 0 {
                self.turn(observer);
            }
        }
    }

    /// The wait is over.
    fn turn<O: Observer>(&mut self, observer: &mut O) {
        if self.ended {
            self.left = u64::MAX;
            return;
        }
        if self.sampling {
            let start = Instant::now();
            let now = self.now;
            let (kdamond, mut ops) = self.damon_ops();
            kdamond.finish(now, &mut ops, observer);
            self.work = ops.work;
            self.spent += start.elapsed();
        }
        self.begin();
    }

    fn begin(&mut self) {
        let start = Instant::now();
        let (kdamond, mut ops) = self.damon_ops();
        let next = kdamond.begin(&mut ops);
        self.work = ops.work;
        let wait = match next {
            Next::Sample { wait } | Next::Inactive { wait } => wait,
            Next::Ended => {
                self.ended = true;
                0
            }
        };
        self.sampling = matches!(next, Next::Sample { .. });
        let before = u128::from(self.now) * u128::from(self.accesses_per_second) / 1_000_000;
        self.now = self.now.saturating_add(wait.max(1));
        let after = u128::from(self.now) * u128::from(self.accesses_per_second) / 1_000_000;
        self.left = u64::try_from(after - before).unwrap_or(u64::MAX).max(1);
        self.spent += start.elapsed();
    }

    fn damon_ops(&mut self) -> (&mut Kdamond, DamonOps<'_>) {
        let (policy, memory) = self.replay.parts_mut();
        let ops = DamonOps {
            sorts: policy.sorts(),
            policy,
            memory,
            rule: self.rule,
            memory_pages: self.memory_pages,
            ids: self.ids,
            costs: Costs::default(),
            work: self.work,
        };
        (&mut self.kdamond, ops)
    }

    /// What the replay came to.
    pub fn outcome(&self) -> Outcome {
        self.replay.outcome()
    }

    /// The monitor and its schemes.
    pub fn kdamond(&self) -> &Kdamond {
        &self.kdamond
    }

    /// Real time spent in the monitor and its schemes.
    pub fn spent(&self) -> Duration {
        self.spent
    }

    /// Simulated time in µs.
    pub fn now(&self) -> u64 {
        self.now
    }
}

/// Why an action has no effect in a replay.
fn refusal(action: &Action, sorts: bool) -> Option<&'static str> {
    match action {
        Action::Stat | Action::Pageout => None,
        Action::LruPrio | Action::LruDeprio | Action::Cold => (!sorts).then_some(Action::NEEDS_LISTS),
        Action::Willneed => Some("has no effect here: contents come in when they are accessed"),
        Action::Hugepage | Action::Nohugepage => Some("has no effect here: all pages are small"),
        Action::MigrateHot { .. } | Action::MigrateCold { .. } => Some("has no effect here: there is one node"),
    }
}

/// What the monitor sees of a replay, and how schemes act on it.
struct DamonOps<'a> {
    /// The policy's lists can be sorted.
    sorts: bool,
    policy: &'a mut dyn ReplayedPolicy,
    memory: &'a mut FlatMemory,
    rule: SortRule,
    memory_pages: u64,
    ids: u64,
    costs: Costs,
    work: u64,
}

impl DamonOps<'_> {
    fn page(&self, address: u64) -> Option<PageId> {
        let page = address / PAGE;
        (page < self.ids && self.memory.is_resident(page as PageId)).then_some(page as PageId)
    }

    /// Evicts a page on request, through the policy's batch stage, so that it leaves a shadow entry (spec: damos §3.2).
    fn page_out(&mut self, page: PageId) -> bool {
        self.policy.page_out(page, self.memory)
    }
}

impl AccessSampler for DamonOps<'_> {
    fn prepare(&mut self, _: usize, address: u64) {
        let page = self.page(address);
        self.work += if page.is_some() { self.costs.check } else { self.costs.check_nothing } / 2;
        if let Some(page) = page {
            self.memory.make_old(page);
        }
    }

    fn accessed(&mut self, _: usize, address: u64) -> bool {
        let page = self.page(address);
        self.work += if page.is_some() { self.costs.check } else { self.costs.check_nothing } / 2;
        page.is_some_and(|page| self.memory.is_young(page))
    }

    fn work_ns(&self) -> u64 {
        self.work
    }
}

impl SchemeActor for DamonOps<'_> {
    fn refuses(&self, action: &Action) -> Option<&'static str> {
        refusal(action, self.sorts)
    }

    fn folio(&mut self, _: usize, address: u64) -> Option<Folio> {
        let Some(page) = self.page(address) else {
            self.work += self.costs.sort_nothing;
            return None;
        };
        let anon = !self.memory.is_file(page);
        let mapped = self.memory.has_entry(page);
        Some(Folio { page, size: PAGE, at_head: true, anon, active: false, mapped, memcg: Some(0) })
    }

    fn is_young(&mut self, folio: &Folio) -> bool {
        self.memory.is_young(folio.page)
    }

    fn make_old(&mut self, folio: &Folio) {
        self.memory.make_old(folio.page);
    }

    fn act(&mut self, action: &Action, folio: &Folio) -> u64 {
        self.work += self.costs.sort_page;
        match action {
            Action::LruPrio => self.policy.sort(folio.page, true, self.rule, self.memory),
            Action::LruDeprio => self.policy.sort(folio.page, false, self.rule, self.memory),
            Action::Pageout => {
                self.work += self.costs.swap_out;
                return if self.page_out(folio.page) { folio.size } else { 0 };
            }
            _ => return 0,
        }
        folio.size
    }

    fn advise(&mut self, action: &Action, target: usize, range: Range<u64>) -> bool {
        let pages = range.start / PAGE..(range.end / PAGE).min(self.ids);
        for page in pages {
            let Some(folio) = self.folio(target, page * PAGE) else { continue };
            match action {
                Action::Cold => {
                    self.memory.make_old(folio.page);
                    self.policy.sort(folio.page, false, self.rule, self.memory);
                }
                Action::Pageout => _ = self.act(action, &folio),
                _ => return false,
            }
        }
        true
    }

    fn free_permille(&self) -> u64 {
        let free = self.memory_pages.saturating_sub(self.memory.resident() as u64);
        free * 1000 / self.memory_pages.max(1)
    }

    fn node_memory(&self, node: u32) -> Option<(u64, u64)> {
        let free = self.memory_pages.saturating_sub(self.memory.resident() as u64);
        (node == 0).then_some((self.memory_pages, free))
    }

    fn active_inactive(&self) -> Option<[u64; 2]> {
        self.policy.active_inactive()
    }

    fn node_of(&self, _: u64) -> Option<u32> {
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use refault_core::Policy;
    use refault_core::classic::{Classic, ClassicParams};
    use refault_core::mglru::{Mglru, MglruParams, Version};
    use refault_core::textbook::Fifo;
    use refault_trace::Entry;

    use super::*;
    use crate::flat_memory::Swap;
    use crate::layout::{Layout, LayoutBuilder};
    use crate::monitoring::pattern::Pattern;
    use crate::replay::Limits;
    use crate::replay::Replay;

    const SPEED: u64 = 200_000;

    /// A quarter of the memory hot, the rest filled once.
    fn trace(seconds: u64) -> (Layout, Vec<Access>) {
        let text = format!(
            "cold, 6291456\nhot, 2097152\n\nfill\n100\ncold, 0, 4096, 3\nhot, 0, 4096, 1\n\nrun\n{}\nhot, 1, 0, 1\n",
            seconds * 1000
        );
        let pattern = Pattern::parse(&text).unwrap();
        let mut entries: Vec<Entry> = Vec::new();
        pattern.start(SPEED, 1).play(u64::MAX, &mut entries);
        let mut builder = LayoutBuilder::new();
        builder.observe(&entries);
        let layout = builder.finish().unwrap();
        let mut accesses = Vec::new();
        layout.translate(&entries, &mut accesses);
        (layout, accesses)
    }

    fn monitored<P: Policy + Send + 'static>(
        layout: &Layout,
        policy: P,
        pages: usize,
        config: &Config,
    ) -> Result<MonitoredReplay, ConfigError> {
        let limits = Limits { memory_pages: pages, swap: Swap::default() };
        MonitoredReplay::new(
            Box::new(Replay::new(layout, policy, limits)),
            pages as u64,
            layout.ids() as u64,
            config,
            SPEED,
            7,
        )
    }

    fn config(text: &str) -> Config {
        Config::parse(text, "test").unwrap()
    }

    #[test]
    fn cold_memory_is_paged_out_and_hot_memory_stays() {
        let (layout, accesses) = trace(8);
        let text = "module = \"reclaim\"\nparameters = { min_age = \"2 s\", wmarks_high = 1000, wmarks_mid = 999, wmarks_low = 0 }";
        let mut monitored = monitored(&layout, Classic::new(ClassicParams::default()), 10_000, &config(text)).unwrap();
        monitored.run(&accesses, &mut ());
        let resident = monitored.outcome().resident;
        assert!((512..800).contains(&resident), "{resident} of 2048 pages");
        let statistics = monitored.kdamond().schemes()[0].statistics();
        assert!(statistics.sz_applied >= 1200 * 4096 && statistics.sz_tried >= statistics.sz_applied, "{statistics:?}");
        assert!(monitored.kdamond().schemes_ns() > 0);
    }

    /// Spec: damos §3.2, overview §5: page-out goes through the batch stage, which leaves a shadow entry (row 19).
    #[test]
    fn what_was_paged_out_counts_as_a_refault_when_it_comes_back() {
        fn misses_and_refaults<P: Policy + Send + 'static>(policy: P) -> (u64, u64) {
            let (layout, accesses) = trace(6);
            let text = "module = \"reclaim\"\nparameters = { min_age = \"2 s\", wmarks_high = 1000, wmarks_mid = 999, \
                        wmarks_low = 0 }";
            let mut monitored = monitored(&layout, policy, 10_000, &config(text)).unwrap();
            monitored.run(&accesses, &mut ());
            let before = monitored.outcome();
            assert_eq!(before.counters.pgsteal, 0, "memory is ample: nothing but the scheme evicts");
            // All of it is filled again.
            monitored.run(&accesses[..SPEED as usize / 10], &mut ());
            let since = monitored.outcome().counters.since(&before.counters);
            let refaults = since.workingset_refault_anon + since.workingset_refault_file;
            (monitored.outcome().misses - before.misses, refaults)
        }
        for (misses, refaults) in [
            misses_and_refaults(Classic::new(ClassicParams::default())),
            misses_and_refaults(Mglru::new(MglruParams::default())),
        ] {
            assert!(misses > 1200, "{misses} pages came back");
            assert_eq!(refaults, misses);
        }
    }

    #[test]
    fn sorting_runs_on_lists_and_generations_and_is_refused_elsewhere() {
        let (layout, accesses) = trace(6);
        let text = "module = \"lru-sort\"\nparameters = { cold_min_age = \"2 s\", wmarks_high = 1000, wmarks_mid = 999, wmarks_low = 0 }";
        let mut classic = monitored(&layout, Classic::new(ClassicParams::default()), 10_000, &config(text)).unwrap();
        classic.run(&accesses, &mut ());
        let params = MglruParams { version: Version::V7_2, ..MglruParams::default() };
        let mut mglru = monitored(&layout, Mglru::new(params), 10_000, &config(text)).unwrap();
        mglru.run(&accesses, &mut ());
        for schemes in [classic.kdamond().schemes(), mglru.kdamond().schemes()] {
            assert!(schemes.iter().all(|scheme| scheme.statistics().nr_applied > 0), "{:?}", schemes[0].statistics());
        }
        assert!(classic.outcome().counters.pgactivate >= 300, "{:?}", classic.outcome().counters);
        let Err(error) = monitored(&layout, Fifo::default(), 10_000, &config(text)) else { panic!("must be refused") };
        assert_eq!(
            error.to_string(),
            "schemes[0].action: lru_prio needs a policy with lists to sort; use classic or mglru"
        );
    }

    #[test]
    fn watching_changes_nothing_and_a_seed_names_a_run() {
        let (layout, accesses) = trace(3);
        let text = "nr_regions = { min = 10, max = 100 }";
        let run = |seed: u64| {
            let limits = Limits { memory_pages: 700, swap: Swap::default() };
            let replay = Replay::new(&layout, Classic::new(ClassicParams::default()), limits);
            let ids = layout.ids() as u64;
            let mut monitored = MonitoredReplay::new(Box::new(replay), 700, ids, &config(text), SPEED, seed).unwrap();
            monitored.run(&accesses, &mut ());
            (monitored.outcome().misses, monitored.kdamond().monitor().targets().to_vec())
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1).1, run(2).1);
        let mut alone = Replay::new(
            &layout,
            Classic::new(ClassicParams::default()),
            Limits { memory_pages: 700, swap: Swap::default() },
        );
        alone.run(&accesses);
        assert_eq!(run(1).0, alone.outcome().misses, "a bit that was taken still counts for reclaim");
    }

    #[test]
    fn actions_without_effect_are_refused_with_a_sentence() {
        let (layout, _) = trace(1);
        for (action, ops, reason) in [
            ("migrate_cold", "paddr", "there is one node"),
            ("willneed", "vaddr", "contents come in when they are accessed"),
            ("hugepage", "vaddr", "all pages are small"),
        ] {
            let target = if ops == "vaddr" { "[[targets]]\npid = 1\n" } else { "" };
            let text = format!("ops = \"{ops}\"\n{target}[[schemes]]\naction = \"{action}\"\ntarget_nid = 1\n");
            let Err(error) = monitored(&layout, Classic::new(ClassicParams::default()), 100, &config(&text)) else {
                panic!("{action} must be refused")
            };
            assert!(error.to_string().contains(reason), "{error}");
        }
        let text = "[[targets]]\nregions = [{ start = 0, end = \"max\" }]\n[[schemes]]\naction = \"pageout\"\n";
        let Err(error) = monitored(&layout, Classic::new(ClassicParams::default()), 100, &config(text)) else {
            panic!("must be refused")
        };
        assert!(error.to_string().starts_with("targets[0].regions: 0-18446744073709551615 reaches beyond"), "{error}");
    }
}
