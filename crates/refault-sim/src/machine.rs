//! The simulated machine: tasks on CPUs, memory on nodes, groups with limits, devices, and time.
//!
//! It is driven by events and deterministic: the same configuration gives the same run. Hits are not events: a task
//! runs through its accesses, which only set bits. It runs until it misses, until its time slice ends, or until it is
//! [`LOOKAHEAD`] ahead of the clock. Everything that allocates, reclaims or waits happens in the order of time.
//!
//! ```text
//! events ─▶ CPU ─▶ task: hits … miss ─▶ fault ─▶ allocation ─┬─▶ direct reclaim ─┐
//!                  kswapd: balance pass ─────────────────────┴─▶ limit reclaim ──┴─▶ Policy ◀─▶ MachineMemory
//! ```
//!
//! Invariants: a CPU runs at most one thread and has then exactly one event pending; a frame is free, holds one
//! resident page, or belongs to a buffer; usage of the root group = resident pages. Cost: a hit is a few nanoseconds, a
//! miss a few heap operations; nothing is proportional to untouched memory.
//!
//! Source: spec: overview §3–§7, §10.
//!
//! ```
//! use refault_core::{Mglru, MglruParams};
//! use refault_sim::machine::Machine;
//! use refault_sim::machine::scenario::Scenario;
//!
//! let scenario = Scenario::parse(
//!     r#"
//!     [machine]
//!     memory = "16M"
//!     swap = "64M"
//!     swap_device = "zram-lz4"
//!     [[task]]
//!     name = "reader"
//!     [[task.workload]]
//!     spec = "uniform:pages=8192,accesses=20000,kind=anon"
//!     "#,
//!     "example.toml",
//! )?;
//! let mut machine = Machine::new(scenario.config, Mglru::new(MglruParams::default()))?;
//! let report = machine.run()?;
//! assert!(report.counters.pswpin > 0 && report.elapsed > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod commands;
pub mod config;
pub mod costs;
pub mod device;
pub mod frames;
pub mod group;
pub mod happenings;
pub mod high_order;
pub mod latency;
mod listings;
pub mod memory;
pub mod node;
pub mod pressure;
pub mod report;
pub mod scenario;

mod allocation;
mod background;
mod fault;
mod kill;
mod monitoring;
mod performance;
mod policy;
mod scheduler;
mod task;
pub mod tree_lock;
mod writeback;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use refault_core::policy::{HitReport, Policy};
use refault_core::{Counters, PageId};
use refault_trace::TraceError;

use background::Kswapd;
use commands::Command;
use config::{FileConfig, MachineConfig};
use costs::{Ledger, Work};
use device::Device;
use frames::{KeepsEvicted, MachineFrames};
use group::Groups;
use happenings::Happening;
use memory::{Completion, MachineMemory};
use monitoring::KdamondTask;
use node::{Node, Watermarks};
use policy::MachinePolicy;
use pressure::{ArmedTrigger, Pressure};
use report::{Latencies, Report, Sample};
use scheduler::{Cpu, Thread};
use task::Task;
use writeback::Due;

/// How far a task's hits may run ahead of the clock, in nanoseconds.
const LOOKAHEAD: u64 = 100_000;
/// Time slice of a thread when others wait, in nanoseconds.
const SLICE: u64 = 3_000_000;
/// Events between two questions whether to go on: some 0.1 ms.
const EVENTS_PER_LOOK: u32 = 256;

/// What happens at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The thread on this CPU goes on.
    Cpu(usize),
    /// A sleeping thread wakes, unless it woke since (the second number is the sleep's).
    Wake(usize, u64),
    /// A request to a device is done: index into the machine's requests.
    Done(usize),
    /// Dirty pages may have become old.
    Writeback,
    /// Pressure averages are due.
    Pressure,
    /// The killer looks at the pressure.
    Trigger,
    /// Counters are sampled.
    Sample,
    /// A scripted command is due.
    Command(usize),
    /// A contiguous buffer is asked for: index of its configuration.
    Buffer(usize),
    /// A contiguous buffer is given back: index of those ever held.
    Release(usize),
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All tasks did all they had to do.
    Finished,
    /// The configured duration is over.
    Duration,
    /// Tasks were killed and restarted too often, or none was left: the report lists them.
    OutOfMemory,
}

/// The reclaiming context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaimer {
    /// A node's kswapd.
    Background,
    /// An allocating task.
    Direct,
    /// A task that hit a group's limit, or a command.
    Limit,
}

/// A file and where its pages are.
#[derive(Debug)]
struct File {
    config: FileConfig,
    segment: usize,
    first: PageId,
}

/// See the module.
pub struct Machine {
    policy: Box<dyn MachinePolicy + Send>,
    /// The policy's, asked for at each fault.
    hit_report: HitReport,
    memory: MachineMemory,
    config: MachineConfig,
    files: Vec<File>,
    tasks: Vec<Task>,
    /// Tasks first, then one kswapd per node, then the monitor if there is one.
    threads: Vec<Thread>,
    kswapds: Vec<Kswapd>,
    kdamond: Option<KdamondTask>,
    cpus: Vec<Cpu>,
    run_queue: VecDeque<usize>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    now: u64,
    requests: Vec<Completion>,
    free_requests: Vec<usize>,
    /// Reads on their way: first page, pages, time of arrival.
    reading: Vec<(PageId, u32, u64)>,
    pressure: Pressure,
    killer: Option<ArmedTrigger>,
    writeback: writeback::Flusher,
    living: usize,
    restarts_left: u64,
    end: Option<End>,
    failure: Option<TraceError>,
    /// Work by reclaimer, in the order of [`Reclaimer`].
    ledgers: [Ledger; 3],
    /// Locks of files' trees that kswapds hold now and then.
    tree_locks: Vec<tree_lock::Hold>,
    counted: Counters,
    latencies: Latencies,
    statistics: report::Statistics,
    samples: Vec<Sample>,
    kills: Vec<report::Kill>,
    listing: Vec<report::Listing>,
    happenings: Vec<Happening>,
    /// Buffers ever held, and the time that requesters waited.
    buffers: Vec<high_order::Held>,
    buffer_stalled: u64,
}

impl Machine {
    /// Puts the machine together. The configuration must have been checked ([`scenario`] does, [`MachineConfig::check`]
    /// for those made by hand).
    ///
    /// # Errors
    /// One line if it does not fit together, or if the policy cannot do what it asks for.
    pub fn new<P: Policy + Send + 'static>(config: MachineConfig, policy: P) -> Result<Machine, String> {
        Machine::under(config, Box::new(policy))
    }

    fn under(config: MachineConfig, mut policy: Box<dyn MachinePolicy + Send>) -> Result<Machine, String> {
        config.check()?;
        let total: u64 = config.nodes.iter().sum();
        let nodes: Vec<Node> = config
            .nodes
            .iter()
            .map(|&managed| {
                Node::new(
                    managed,
                    Watermarks::of(managed, total, config.min_free_kbytes, config.watermark_scale_factor),
                )
            })
            .collect();
        let mut groups = Groups::new(config.recursive_protection);
        for group in &config.groups {
            let parent = config.parent_of(&group.name)?;
            groups.add(group.name.clone(), parent, group.limits);
        }
        let switches = config.events.iter().any(|(_, command)| matches!(command, Command::Enabled(_)));
        if switches && !policy.switches_lists() {
            let needs = "lru_gen_enabled: needs both kernels' lists: name mglru or classic, the one to begin with";
            return Err(needs.to_owned());
        }
        add_lruvecs(&mut *policy, &groups, nodes.len(), &config)?;
        let mut memory = MachineMemory::new(
            nodes,
            groups,
            Device::new(config.file_device.clone()),
            config.swap_device.clone().map(Device::new),
            config.swap_pages,
            config.costs.clone(),
        );
        let too_many = || format!("the files and tasks together have more than {} pages", memory::MAX_PAGES);
        let mut files = Vec::new();
        for file in &config.files {
            let segment = memory.add_segment(file.pages, true).ok_or_else(too_many)?;
            files.push(File { config: file.clone(), segment, first: memory.segments[segment].first });
        }
        let mut tasks = Vec::new();
        for task in &config.tasks {
            tasks.push(Task::new(task, &files, &mut memory).ok_or_else(too_many)?);
        }
        memory.seal();
        if let Some(keeps) = config.frames {
            memory.frames = Some(Box::new(frames_of(&*policy, keeps, &config.nodes, memory.page_ids())));
        }
        policy.grow(memory.page_ids());
        policy.set_capacity(total as usize);
        let cpus = config.cpus;
        let kdamond = config.monitor.as_ref();
        let kdamond = kdamond
            .map(|monitor| KdamondTask::new(monitor, &tasks, &memory, policy.sorts(), config.monitor_seed))
            .transpose()?;
        let writes = config.events.iter().any(|(_, command)| matches!(command, Command::LruSort(..)));
        let kdamond = match kdamond {
            None if writes => Some(KdamondTask::loaded(&memory, policy.sorts(), config.monitor_seed)?),
            kdamond => kdamond,
        };
        let threads = (0..tasks.len() + config.nodes.len() + usize::from(kdamond.is_some()))
            .map(|i| Thread::new(i % cpus))
            .collect();
        let living = tasks.len();
        let mut machine = Machine {
            hit_report: policy.hits(),
            policy,
            memory,
            files,
            threads,
            kswapds: config.nodes.iter().map(|_| Kswapd::default()).collect(),
            kdamond,
            cpus: (0..cpus).map(|_| Cpu::default()).collect(),
            run_queue: VecDeque::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            now: 0,
            requests: Vec::new(),
            free_requests: Vec::new(),
            reading: Vec::new(),
            pressure: Pressure::new(cpus),
            killer: config.kill_trigger.map(ArmedTrigger::new),
            writeback: writeback::Flusher::default(),
            living,
            restarts_left: config.restarts,
            end: None,
            failure: None,
            ledgers: [Ledger::default(); 3],
            tree_locks: Vec::new(),
            counted: Counters::default(),
            latencies: Latencies::default(),
            statistics: report::Statistics::default(),
            samples: Vec::new(),
            kills: Vec::new(),
            listing: Vec::new(),
            happenings: Vec::new(),
            buffers: Vec::new(),
            buffer_stalled: 0,
            tasks,
            config,
        };
        machine.schedule_initial_events();
        Ok(machine)
    }

    fn schedule_initial_events(&mut self) {
        for task in 0..self.tasks.len() {
            let start = self.config.tasks[task].start;
            let sleep = self.threads[task].sleep;
            self.at(start, Event::Wake(task, sleep));
        }
        for index in 0..self.config.events.len() {
            self.at(self.config.events[index].0, Event::Command(index));
        }
        if self.kdamond.is_some() {
            let thread = self.tasks.len() + self.kswapds.len();
            self.at(0, Event::Wake(thread, self.threads[thread].sleep));
        }
        self.schedule_buffers();
        self.at(pressure::PERIOD, Event::Pressure);
        if let Some(killer) = &self.killer {
            self.at(killer.interval(), Event::Trigger);
        }
        self.at(self.config.writeback_interval, Event::Writeback);
        if self.config.sample_interval > 0 {
            self.at(self.config.sample_interval, Event::Sample);
        }
    }

    /// Runs until all tasks are done, the duration is over, or no task can go on.
    ///
    /// # Errors
    /// A trace that cannot be read.
    pub fn run(&mut self) -> Result<Report, TraceError> {
        Ok(self.run_while(&|| true)?.expect("invariant: nothing stops it"))
    }

    /// The same, and none if `go_on` says no; it is asked once per [`EVENTS_PER_LOOK`] events.
    ///
    /// # Errors
    /// A trace that cannot be read.
    pub fn run_while(&mut self, go_on: &dyn Fn() -> bool) -> Result<Option<Report>, TraceError> {
        let mut handled = 0u32;
        while self.end.is_none() && self.living > 0 {
            if handled.is_multiple_of(EVENTS_PER_LOOK) && !go_on() {
                return Ok(None);
            }
            handled = handled.wrapping_add(1);
            let Some(&Reverse((time, _, event))) = self.events.peek() else { break };
            if self.config.duration.is_some_and(|end| time > end) {
                self.now = self.config.duration.unwrap_or(time);
                self.end = Some(End::Duration);
                break;
            }
            self.events.pop();
            self.now = self.now.max(time);
            self.memory.now = self.now;
            self.handle(event);
        }
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        Ok(Some(self.report()))
    }

    /// The memory, to look at its state.
    pub fn memory(&self) -> &MachineMemory {
        &self.memory
    }

    /// The policy's counters and the machine's own.
    pub fn counters(&self) -> Counters {
        let mut counters = self.policy.counters();
        counters.add(&self.memory.counters);
        if let Some(frames) = &self.memory.frames {
            let evicted = frames.evicted();
            counters.pages_cached += evicted.cached;
            counters.pages_reactivated += evicted.reactivated;
        }
        counters
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Cpu(cpu) => self.run_cpu(cpu),
            Event::Wake(thread, sleep) => {
                if self.threads[thread].sleep == sleep {
                    self.wake(thread, self.now);
                }
            }
            Event::Done(request) => self.request_done(request),
            Event::Writeback => {
                self.flush(Due::Aged);
                self.at(self.now + self.config.writeback_interval, Event::Writeback);
            }
            Event::Pressure => {
                self.pressure.fold(self.now);
                self.at(self.now + pressure::PERIOD, Event::Pressure);
            }
            Event::Trigger => self.look_at_pressure(),
            Event::Sample => {
                self.take_sample();
                self.at(self.now + self.config.sample_interval, Event::Sample);
            }
            Event::Command(index) => self.run_command(index),
            Event::Buffer(index) => self.request_buffer(index),
            Event::Release(number) => self.release_buffer(number),
        }
    }

    #[inline]
    fn at(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    /// Time of the next event.
    #[inline]
    fn next_event(&self) -> u64 {
        self.events.peek().map_or(u64::MAX, |Reverse((time, _, _))| *time)
    }

    /// Requests that the memory submitted get their events.
    #[inline]
    fn collect_completions(&mut self) {
        while let Some((time, completion)) = self.memory.completions.pop() {
            let request = match self.free_requests.pop() {
                Some(free) => {
                    self.requests[free] = completion;
                    free
                }
                None => {
                    self.requests.push(completion);
                    self.requests.len() - 1
                }
            };
            self.at(time, Event::Done(request));
        }
    }

    fn request_done(&mut self, request: usize) {
        self.free_requests.push(request);
        match self.requests[request] {
            Completion::Read { first, count } => self.read_done(first, count),
            Completion::Write { page } => self.write_done(page),
        }
    }

    /// Turns what the policy and the memory did since the last call into CPU time, booked to `reclaimer`.
    fn book_reclaim(&mut self, reclaimer: Reclaimer) -> u64 {
        let now = self.policy.counters();
        let done = now.since(&self.counted);
        self.counted = now;
        if reclaimer != Reclaimer::Background {
            self.memory.removed.take();
        }
        if reclaimer != Reclaimer::Limit {
            self.statistics.pgscan[reclaimer as usize] += done.pgscan;
            self.statistics.pgsteal[reclaimer as usize] += done.pgsteal;
        }
        let costs = &self.memory.costs;
        let mut ledger = std::mem::take(&mut self.memory.ledger);
        ledger.book(Work::Isolate, done.pgscan * costs.scan_page);
        ledger.book(
            Work::Sort,
            done.pgrefill * (costs.scan_page + costs.list_move) + done.pgdeactivate * costs.age_nonresident,
        );
        ledger.book(
            Work::Batch,
            done.pgscan * costs.examine_page
                + (done.pgscan.saturating_sub(done.pgsteal)) * costs.list_move
                + done.pgsteal * costs.age_nonresident,
        );
        ledger.book(Work::Other, costs.lruvec_visit);
        self.collect_completions();
        self.ledgers[reclaimer as usize].add(&ledger);
        ledger.total()
    }
}

/// Frames for the nodes, with the free pools that the policy or the configuration wants for evicted pages.
fn frames_of(policy: &dyn MachinePolicy, keeps: KeepsEvicted, managed: &[u64], page_ids: usize) -> MachineFrames {
    let pools = match keeps {
        KeepsEvicted::AsPolicy => policy.cached_pools(),
        KeepsEvicted::Nothing => None,
        KeepsEvicted::Cached(pools) => Some(pools),
    };
    MachineFrames::new(managed, page_ids, pools)
}

/// Gives the policy an lruvec for each group on each node, in the order of [`MachineMemory::lruvec_of`]. A policy that
/// knows no groups serves one node and the tasks of one group.
fn add_lruvecs(
    policy: &mut dyn MachinePolicy,
    groups: &Groups,
    nodes: usize,
    config: &MachineConfig,
) -> Result<(), String> {
    for (group, member) in groups.iter().enumerate() {
        for node in 0..nodes {
            if group == 0 && node == 0 {
                continue;
            }
            let parent = member.parent.map(|parent| (parent * nodes + node) as u16);
            if policy.add_lruvec(parent).is_none() {
                if nodes == 1 && config.tasks.iter().all(|task| task.group == config.tasks[0].group) {
                    return Ok(());
                }
                return Err(
                    "this policy knows neither groups nor nodes: use one node and put all tasks in one group".into()
                );
            }
        }
    }
    Ok(())
}
