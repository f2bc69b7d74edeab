//! The access monitor beside the machine: a kernel thread of its own that looks at the tasks' memory by regions, and
//! schemes that act on what it finds.
//!
//! Addresses are page ids times the page size: the memory of each task and each file lies in one piece, in the order of
//! the scenario. The physical view spans all of it and asks every mapping of a page; the virtual view of a task spans
//! its memory and the files it maps, and asks its own page table. Reads through descriptors leave no trace that the
//! monitor sees (spec: damon §4.2, as under the multi-gen LRU).
//!
//! A check takes the accessed bit; a hint stays behind that reclaim's next reference check counts, so that monitoring
//! alone does not make pages cold (spec: damon §4.2). Generations' walks do not see the hint.
//!
//! Cost: as the monitor's and the schemes', each answer O(mappings of a page). Its simulated CPU time, from the
//! machine's costs, passes on a CPU and is not spent by tasks.
//!
//! Kernel: `damon_pa_mkold`, `damon_pa_young` in `mm/damon/paddr.c`; `damon_va_check_accesses` in `mm/damon/vaddr.c`;
//! `kdamond_fn` in `mm/damon/core.c`.

use std::ops::Range;

use refault_core::PageId;
use refault_core::monitor::{AccessSampler, Monitor, Profile, View};
use refault_core::policy::SortRule;
use refault_core::schemes::modules::loaded::{LoadedLruSort, WriteError};
use refault_core::schemes::{Action, Folio, Kdamond, Metric, Next, Scheme, SchemeActor};
use serde_json::Value;

use super::Machine;
use super::memory::{MachineMemory, entry, state};
use super::policy::MachinePolicy;
use super::pressure::activity;
use super::task::Task;
use crate::monitoring::config::Config;

const PAGE: u64 = 4096;

/// What the monitoring thread runs.
enum KdamondContext {
    /// What the scenario's `[monitor]` says, from start to end.
    Configured(Box<Kdamond>),
    /// The module `lru-sort`, whose files events write to.
    Loaded(Box<LoadedLruSort>),
}

impl KdamondContext {
    fn begin(&mut self, ops: &mut DamonOps<'_>) -> Next {
        match self {
            KdamondContext::Configured(kdamond) => kdamond.begin(ops),
            KdamondContext::Loaded(module) => module.begin(ops),
        }
    }

    fn finish(&mut self, now: u64, ops: &mut DamonOps<'_>) {
        match self {
            KdamondContext::Configured(kdamond) => kdamond.finish(now, ops, &mut ()),
            KdamondContext::Loaded(module) => module.finish(now, ops),
        }
    }

    /// `None`: the module is off.
    fn kdamond(&self) -> Option<&Kdamond> {
        match self {
            KdamondContext::Configured(kdamond) => Some(kdamond),
            KdamondContext::Loaded(module) => module.kdamond(),
        }
    }

    fn schemes(&self) -> &[Scheme] {
        match self {
            KdamondContext::Configured(kdamond) => kdamond.schemes(),
            KdamondContext::Loaded(module) => module.schemes(),
        }
    }
}

/// The monitoring thread.
pub(super) struct KdamondTask {
    context: KdamondContext,
    config: Config,
    rule: SortRule,
    /// The address space of each target; none in the physical view.
    spaces: Vec<usize>,
    /// Group of each path that filters and goals name.
    groups: Vec<usize>,
    sampling: bool,
    /// CPU time in ns.
    work: u64,
}

/// What the monitor and its schemes came to.
#[derive(Clone, Debug)]
pub struct MonitorReport {
    /// Checks made; 0 if the module is off.
    pub checks: u64,
    /// Regions at the end.
    pub nr_regions: usize,
    /// CPU time of monitoring, nanoseconds.
    pub monitor_cpu: u64,
    /// CPU time of the schemes, nanoseconds.
    pub schemes_cpu: u64,
    /// The schemes with their statistics.
    pub schemes: Vec<Scheme>,
    /// The same as the JSON tree of DAMON's user-space tool.
    pub tree: Value,
}

impl KdamondTask {
    /// A monitor over the machine's memory. Says what has no effect here, with the key.
    pub fn new(
        config: &Config,
        tasks: &[Task],
        memory: &MachineMemory,
        sorts: bool,
        seed: u64,
    ) -> Result<KdamondTask, String> {
        let mut config = config.clone();
        for (index, scheme) in config.schemes.iter().enumerate() {
            if let Some(reason) = refusal(&scheme.action, sorts) {
                return Err(format!("monitor.schemes[{index}].action: {} {reason}", scheme.action.name()));
            }
            let by_group =
                |metric: &Metric| matches!(metric, Metric::NodeMemcgUsedBp { .. } | Metric::NodeMemcgFreeBp { .. });
            if memory.nodes.len() > 1 && scheme.quota.goals.iter().any(|goal| by_group(&goal.metric)) {
                return Err(format!(
                    "monitor.schemes[{index}].quotas.goals: a group's share is known on a machine of one node only"
                ));
            }
        }
        let groups = config.memcg_paths.iter().map(|path| {
            let found = memory.groups.iter().position(|group| group.name == *path);
            found.ok_or_else(|| format!("monitor: there is no group '{path}'"))
        });
        let groups = groups.collect::<Result<Vec<_>, _>>()?;
        let mut spaces = Vec::new();
        match config.view {
            View::Physical => {}
            View::FixedVirtual => {
                return Err("monitor.ops: fvaddr needs addresses that are known beforehand; use vaddr".into());
            }
            View::Virtual => {
                for (index, target) in config.targets.iter_mut().enumerate() {
                    let task = target.pid.and_then(|pid| usize::try_from(pid).ok()?.checked_sub(1));
                    let task = task.and_then(|at| tasks.get(at)).ok_or_else(|| {
                        format!("monitor.targets[{index}].pid: is the number of a task, from 1 to {}", tasks.len())
                    })?;
                    target.ranges = ranges(memory, task.address_space);
                    spaces.push(task.address_space);
                }
                if config.targets.is_empty() {
                    return Err("monitor.targets: vaddr needs at least one, with the number of a task as pid".into());
                }
            }
        }
        let everything = 0..memory.page_ids() as u64 * PAGE;
        let kdamond = config.kdamond(everything, seed, 0).map_err(|error| format!("monitor: {error}"))?;
        let context = KdamondContext::Configured(Box::new(kdamond));
        let rule = if config.profile == Profile::K72 { SortRule::Activate } else { SortRule::MarkAccessed };
        Ok(KdamondTask { context, config, rule, spaces, groups, sampling: false, work: 0 })
    }

    /// The module `lru-sort` of 7.2 over all of memory, off until an event enables it.
    pub fn loaded(memory: &MachineMemory, sorts: bool, seed: u64) -> Result<KdamondTask, String> {
        if let Some(reason) = refusal(&Action::LruPrio, sorts) {
            return Err(format!("lru_sort: {reason}"));
        }
        let everything = 0..memory.page_ids() as u64 * PAGE;
        let module = LoadedLruSort::new(Profile::K72, everything, seed);
        Ok(KdamondTask {
            context: KdamondContext::Loaded(Box::new(module)),
            config: Config::default(),
            rule: SortRule::Activate,
            spaces: Vec::new(),
            groups: Vec::new(),
            sampling: false,
            work: 0,
        })
    }

    pub fn report(&self) -> MonitorReport {
        let kdamond = self.context.kdamond();
        let monitor = kdamond.map(Kdamond::monitor);
        MonitorReport {
            checks: monitor.map_or(0, |monitor| monitor.counters().checks),
            nr_regions: monitor.map_or(0, Monitor::nr_regions),
            monitor_cpu: monitor.map_or(0, Monitor::work_ns),
            schemes_cpu: kdamond.map_or(0, Kdamond::schemes_ns),
            schemes: self.context.schemes().to_vec(),
            tree: self.config.to_json(kdamond.map(Kdamond::schemes)),
        }
    }
}

/// Why an action has no effect in the machine.
fn refusal(action: &Action, sorts: bool) -> Option<&'static str> {
    match action {
        Action::Stat | Action::Pageout => None,
        Action::LruPrio | Action::LruDeprio | Action::Cold => (!sorts).then_some(Action::NEEDS_LISTS),
        Action::Willneed => Some("has no effect here: contents come in when they are accessed"),
        Action::Hugepage | Action::Nohugepage => Some("has no effect here: the monitor sees small pages only"),
        Action::MigrateHot { .. } | Action::MigrateCold { .. } => {
            Some("has no effect here: all nodes of the machine are equally fast")
        }
    }
}

/// Where the memory of an address space lies.
fn ranges(memory: &MachineMemory, space: usize) -> Vec<Range<u64>> {
    let segments = memory.address_spaces[space].mappings.iter().map(|at| memory.mappings[*at].segment);
    let mut ranges: Vec<Range<u64>> = segments
        .map(|segment| {
            let segment = &memory.segments[segment];
            let first = u64::from(segment.first);
            first * PAGE..(first + u64::from(segment.pages)) * PAGE
        })
        .filter(|range| !range.is_empty())
        .collect();
    ranges.sort_by_key(|range| range.start);
    ranges
}

impl Machine {
    /// A write to a file of the module `lru-sort`. A kdamond that was started gets a CPU.
    pub(super) fn write_lru_sort(&mut self, file: &str, value: &str) -> Result<(), String> {
        let now = self.now / 1000;
        let Some(task) = &mut self.kdamond else { return Err("the module is not loaded".into()) };
        let KdamondContext::Loaded(module) = &mut task.context else {
            // Modules start as the only users of the monitor.
            return Err(WriteError::Busy.to_string());
        };
        let ran = module.kdamond().is_some();
        let written = module.write(file, value, false, now);
        let runs = module.kdamond().is_some();
        if runs && !ran {
            task.sampling = false;
            self.wake(self.tasks.len() + self.kswapds.len(), self.now);
        }
        written.map_err(|error| error.to_string())
    }

    /// The monitoring thread has a CPU: ends the sampling interval under way and begins the next.
    pub(super) fn run_kdamond(&mut self, cpu: usize, thread: usize) {
        let Some(mut task) = self.kdamond.take() else { return };
        let (now, before) = (self.now, task.work);
        self.set_activity(thread, now, activity::RUNNING);
        let mut ops = DamonOps {
            sorts: self.policy.sorts(),
            policy: &mut *self.policy,
            memory: &mut self.memory,
            rule: task.rule,
            spaces: &task.spaces,
            groups: &task.groups,
            psi_some_us: self.pressure.some().total_us,
            work: task.work,
            freed: 0,
        };
        if task.sampling {
            task.context.finish(now / 1000, &mut ops);
        }
        let next = task.context.begin(&mut ops);
        let (work, freed) = (ops.work, ops.freed);
        task.work = work;
        task.sampling = matches!(next, Next::Sample { .. });
        self.kdamond = Some(task);
        self.collect_completions();
        self.counted = self.policy.counters();
        self.after_reclaim(freed);
        let done = now + (work - before);
        self.threads[thread].cpu_time += work - before;
        let until = match next {
            Next::Sample { wait } | Next::Inactive { wait } => done + wait.max(1) * 1000,
            Next::Ended => u64::MAX,
        };
        self.sleep(cpu, done, until, 0);
    }
}

/// What the monitor sees of the machine, and the schemes' ops.
struct DamonOps<'a> {
    /// The policy's lists can be sorted.
    sorts: bool,
    policy: &'a mut dyn MachinePolicy,
    memory: &'a mut MachineMemory,
    rule: SortRule,
    spaces: &'a [usize],
    groups: &'a [usize],
    psi_some_us: u64,
    work: u64,
    freed: u64,
}

impl DamonOps<'_> {
    /// The resident page at an address.
    fn page(&self, address: u64) -> Option<PageId> {
        let page = address / PAGE;
        let there = page < self.memory.page_ids() as u64
            && self.memory.state[page as usize] & (state::RESIDENT | state::LOCKED) == state::RESIDENT;
        there.then_some(page as PageId)
    }

    /// Clears or asks the accessed bits of a page's mappings; of one address space only, if the target is one. True if
    /// one was set.
    fn accessed_bits(&mut self, target: usize, page: PageId, clear: bool) -> bool {
        let scope = self.spaces.get(target).copied();
        let memory = &mut *self.memory;
        let segment = memory.segment(page);
        let offset = (page - segment.first) as usize;
        let (mut young, mut followed) = (false, 0);
        for at in 0..segment.mappings.len() {
            let index = memory.segment(page).mappings[at];
            let mapping = &mut memory.mappings[index];
            if scope.is_some_and(|scope| mapping.address_space != scope) {
                continue;
            }
            let bits = mapping.entries[offset];
            if bits & entry::PRESENT == 0 {
                continue;
            }
            followed += 1;
            young |= bits & entry::YOUNG != 0;
            if clear {
                mapping.entries[offset] = bits & !entry::YOUNG;
            }
        }
        self.work += self.memory.costs.scan_page + followed * self.memory.costs.reverse_map;
        young
    }

    fn make_page_old(&mut self, target: usize, page: PageId) {
        let young = self.accessed_bits(target, page, true);
        let state = &mut self.memory.state[page as usize];
        *state |= state::IDLE | if young { state::HINT } else { 0 };
    }

    fn is_page_young(&mut self, target: usize, page: PageId) -> bool {
        self.accessed_bits(target, page, false) || self.memory.state[page as usize] & state::IDLE == 0
    }

    /// Evicts a page on request, through the policy's batch stage: it leaves a shadow entry, and a dirty file page
    /// waits for the flusher (spec: damos §3.2, overview §5).
    fn page_out(&mut self, page: PageId) -> bool {
        self.memory.state[page as usize] &= !state::HINT;
        let gone = self.policy.page_out(page, self.memory);
        self.work += std::mem::take(&mut self.memory.ledger).total();
        self.freed += u64::from(gone);
        gone
    }
}

impl AccessSampler for DamonOps<'_> {
    fn prepare(&mut self, target: usize, address: u64) {
        match self.page(address) {
            Some(page) => self.make_page_old(target, page),
            None => self.work += self.memory.costs.scan_page,
        }
    }

    fn accessed(&mut self, target: usize, address: u64) -> bool {
        let Some(page) = self.page(address) else {
            self.work += self.memory.costs.scan_page;
            return false;
        };
        self.is_page_young(target, page)
    }

    fn is_valid(&self, target: usize) -> bool {
        self.spaces.get(target).is_none_or(|space| self.memory.address_spaces[*space].alive)
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
        self.work += self.memory.costs.table_entry;
        let page = self.page(address)?;
        let group = self.memory.group_of(self.memory.lruvec[page as usize]);
        Some(Folio {
            page,
            size: PAGE,
            at_head: true,
            anon: !self.memory.is_file(page),
            active: false,
            mapped: self.memory.mapped(page),
            memcg: self.groups.iter().position(|named| *named == group).map(|at| at as u32),
        })
    }

    fn is_young(&mut self, folio: &Folio) -> bool {
        self.is_page_young(usize::MAX, folio.page)
    }

    fn make_old(&mut self, folio: &Folio) {
        self.make_page_old(usize::MAX, folio.page);
    }

    fn act(&mut self, action: &Action, folio: &Folio) -> u64 {
        self.work += self.memory.costs.scan_page + self.memory.costs.list_move;
        match action {
            Action::LruPrio => self.policy.sort(folio.page, true, self.rule, self.memory),
            Action::LruDeprio => self.policy.sort(folio.page, false, self.rule, self.memory),
            Action::Pageout => return if self.page_out(folio.page) { folio.size } else { 0 },
            _ => return 0,
        }
        self.work += std::mem::take(&mut self.memory.ledger).total();
        folio.size
    }

    fn advise(&mut self, action: &Action, target: usize, range: Range<u64>) -> bool {
        for address in (range.start..range.end).step_by(PAGE as usize) {
            let Some(folio) = self.folio(target, address) else { continue };
            match action {
                Action::Cold => {
                    self.make_page_old(target, folio.page);
                    self.policy.sort(folio.page, false, self.rule, self.memory);
                    self.work += std::mem::take(&mut self.memory.ledger).total();
                }
                Action::Pageout => _ = self.act(action, &folio),
                _ => return false,
            }
        }
        true
    }

    fn free_permille(&self) -> u64 {
        let (managed, free) =
            self.memory.nodes.iter().fold((0, 0), |(managed, free), node| (managed + node.managed, free + node.free));
        free * 1000 / managed.max(1)
    }

    fn psi_some_us(&self) -> u64 {
        self.psi_some_us
    }

    fn node_memory(&self, node: u32) -> Option<(u64, u64)> {
        self.memory.nodes.get(node as usize).map(|node| (node.managed, node.free))
    }

    fn node_memcg_pages(&self, node: u32, memcg: u32) -> Option<u64> {
        let group = *self.groups.get(memcg as usize)?;
        (node == 0).then(|| self.memory.groups[group].usage)
    }

    fn active_inactive(&self) -> Option<[u64; 2]> {
        self.policy.active_inactive()
    }

    fn node_of(&self, address: u64) -> Option<u32> {
        self.page(address).map(|page| self.memory.node_of(self.memory.lruvec[page as usize]) as u32)
    }
}
