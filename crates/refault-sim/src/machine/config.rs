//! What a simulated machine is made of: the checked form of a scenario, free of files and text.
//!
//! ```
//! use refault_sim::machine::config::{MachineConfig, PhaseConfig};
//! use refault_trace::Source;
//!
//! let workload = Source::workload("zipf:theta=1,pages=100,accesses=1000".parse()?);
//! assert_eq!(PhaseConfig::new(workload, None).file, None); // anonymous memory, or what the workload says
//! assert!(MachineConfig::default().parent_of("a/b").is_err()); // group a does not exist
//! # Ok::<(), refault_trace::TraceError>(())
//! ```

use refault_core::frames::MAX_ORDER;
use refault_trace::generate::Generator;
use refault_trace::{Kind, Source, WorkloadSpec};

use super::commands::Command;
use super::costs::Costs;
use super::device::DeviceModel;
use super::frames::KeepsEvicted;
use super::group::{GroupId, GroupLimits};
use super::high_order::BufferConfig;
use super::pressure::Trigger;
use crate::monitoring::config::Config;

/// A machine with everything that runs on it. Sizes in pages, times in nanoseconds.
#[derive(Clone, Debug)]
pub struct MachineConfig {
    /// CPUs, at least 1.
    pub cpus: usize,
    /// Managed pages of each memory node, at least one node.
    pub nodes: Vec<u64>,
    /// `min_free_kbytes`; 0 for the kernel's default.
    pub min_free_kbytes: u64,
    /// `watermark_scale_factor`, in ten-thousandths.
    pub watermark_scale_factor: u64,
    /// Groups below the root, parents before children.
    pub groups: Vec<GroupConfig>,
    /// `memory_recursiveprot`.
    pub recursive_protection: bool,
    /// Holds the files.
    pub file_device: DeviceModel,
    /// Holds swap; none without.
    pub swap_device: Option<DeviceModel>,
    /// Swap slots.
    pub swap_pages: u64,
    /// Largest readahead window of files; 0 for none.
    pub readahead: u32,
    /// Pages mapped around a fault on a cached file page.
    pub fault_around: u32,
    /// Swap readahead is at most `1 << page_cluster` pages.
    pub page_cluster: u32,
    /// Percent of the memory that can be dirty before writeback starts.
    pub dirty_background_ratio: u64,
    /// Percent of the memory that can be dirty before writers wait.
    pub dirty_ratio: u64,
    /// Time between two rounds of writeback.
    pub writeback_interval: u64,
    /// Age at which a dirty page is written.
    pub dirty_expire: u64,
    /// `lru_gen/min_ttl_ms`, in nanoseconds; 0 for none.
    pub min_ttl: u64,
    /// CPU time of each operation of reclaim.
    pub costs: Costs,
    /// A buddy allocator below each node, and what is kept of evicted pages; none: free frames are only counted.
    pub frames: Option<KeepsEvicted>,
    /// Contiguous buffers that are asked for again and again; they need frames.
    pub buffers: Vec<BufferConfig>,
    /// Files, by name.
    pub files: Vec<FileConfig>,
    /// Tasks.
    pub tasks: Vec<TaskConfig>,
    /// What happens at given times.
    pub events: Vec<(u64, Command)>,
    /// Time between two samples of all counters; 0 for none.
    pub sample_interval: u64,
    /// Latencies of reclaim before this time, a warm-up's, are left out of the report.
    pub latencies_from: u64,
    /// The run ends here even if tasks would go on.
    pub duration: Option<u64>,
    /// A user-space killer ends the task that has not run for longest whenever this trigger fires; none without one.
    /// Phones and browsers do so with apps and tabs in the background.
    pub kill_trigger: Option<Trigger>,
    /// Monitors the tasks' memory and acts on what it finds; none without one.
    pub monitor: Option<Config>,
    /// Seed of the monitor's random choices, unless it names its own.
    pub monitor_seed: u64,
    /// Restarts of killed tasks, over all tasks, after which the run ends with an out-of-memory report.
    pub restarts: u64,
}

impl Default for MachineConfig {
    fn default() -> MachineConfig {
        MachineConfig {
            cpus: 1,
            nodes: vec![1 << 18],
            min_free_kbytes: 0,
            watermark_scale_factor: 10,
            groups: Vec::new(),
            recursive_protection: true,
            file_device: DeviceModel::preset("nvme").expect("invariant: a preset"),
            swap_device: None,
            swap_pages: 0,
            readahead: 32,
            fault_around: 16,
            page_cluster: 3,
            dirty_background_ratio: 10,
            dirty_ratio: 20,
            writeback_interval: 5_000_000_000,
            dirty_expire: 30_000_000_000,
            min_ttl: 0,
            costs: Costs::default(),
            frames: None,
            buffers: Vec::new(),
            files: Vec::new(),
            tasks: Vec::new(),
            events: Vec::new(),
            sample_interval: 0,
            latencies_from: 0,
            duration: None,
            kill_trigger: None,
            monitor: None,
            monitor_seed: 1,
            restarts: 1_000,
        }
    }
}

/// A memory control group.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// Path from the root, as `/db/cache`; the parent is the path without its last part.
    pub name: String,
    /// Its limits.
    pub limits: GroupLimits,
}

/// A file.
#[derive(Clone, Debug)]
pub struct FileConfig {
    /// What tasks call it.
    pub name: String,
    /// Its size.
    pub pages: u32,
    /// Mappings of it are program text.
    pub executable: bool,
}

/// A task: one address space, one thread.
#[derive(Clone, Debug)]
pub struct TaskConfig {
    /// For reports.
    pub name: String,
    /// What it and its copies, which follow one another, are called together; none if it has no copies.
    pub copy_of: Option<String>,
    /// Index into [`MachineConfig::groups`] plus one; 0 is the root.
    pub group: usize,
    /// The node it allocates from first.
    pub node: usize,
    /// When it starts.
    pub start: u64,
    /// CPU time of one access, apart from what the kernel does for it.
    pub cpu_per_access: u64,
    /// Accesses of one operation, the unit that throughput is counted in.
    pub accesses_per_operation: u64,
    /// Pause after an operation.
    pub think: u64,
    /// Pages of anonymous memory its address space has.
    pub anon_pages: u32,
    /// Share of its 2 MiB of anonymous memory that are asked for as huge pages, 0 to 1; above 0 it needs frames.
    pub huge_pages: f64,
    /// What it does, in turn.
    pub phases: Vec<PhaseConfig>,
    /// How often it does all of it.
    pub rounds: u64,
    /// What happens when it is killed.
    pub when_killed: WhenKilled,
}

impl Default for TaskConfig {
    fn default() -> TaskConfig {
        TaskConfig {
            name: "task".into(),
            copy_of: None,
            group: 0,
            node: 0,
            start: 0,
            cpu_per_access: 100,
            accesses_per_operation: 1,
            think: 0,
            anon_pages: 0,
            huge_pages: 0.0,
            phases: Vec::new(),
            rounds: 1,
            when_killed: WhenKilled::Stop,
        }
    }
}

/// After a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenKilled {
    /// It is gone.
    Stop,
    /// It starts again from its first phase after that time: a cold start.
    Restart(u64),
}

/// One phase of a task.
#[derive(Clone, Debug)]
pub struct PhaseConfig {
    /// Which pages it accesses and how.
    pub workload: Source,
    /// Index into [`MachineConfig::files`] of the file that accesses of a file kind go to.
    pub file: Option<usize>,
    /// Added to every page number.
    pub offset: u32,
    /// Part of the file accesses that write through the descriptor, in 1/256.
    pub fd_write: u8,
    /// The program says that it reads at random: no readahead, neither through a descriptor (`POSIX_FADV_RANDOM`) nor
    /// through a mapping (`MADV_RANDOM`), whose accessed bits then say nothing to kernels.
    pub random: bool,
    /// Pause before the phase starts.
    pub pause: u64,
    /// Replaces the task's CPU time of one access.
    pub cpu_per_access: Option<u64>,
}

impl PhaseConfig {
    /// A phase that does what the workload says on the given file, if it needs one.
    pub fn new(workload: Source, file: Option<usize>) -> PhaseConfig {
        PhaseConfig { workload, file, offset: 0, fd_write: 0, random: false, pause: 0, cpu_per_access: None }
    }
}

impl PhaseConfig {
    /// Whether the phase may access its file through a mapping.
    pub(super) fn maps_file(&self) -> bool {
        self.file.is_some() && may_map(&self.workload)
    }
}

/// Whether a source may access pages through a mapping; what a file holds is not known before it is read.
fn may_map(source: &Source) -> bool {
    match source {
        Source::Workload(spec) => spec.kind == Kind::Mapped,
        Source::File { .. } | Source::Custom(_) => true,
        Source::Part { whole, .. } => may_map(whole),
    }
}

/// Smallest limit of a group: one batch of reclaim.
pub const MIN_LIMIT: u64 = 32;
/// Between the seeds of two runs: more than a task has copies, each of which has a seed of its own.
const SEEDS_PER_RUN: u64 = 1 << 17;
/// Smallest node: below it the watermarks leave nothing.
pub const MIN_NODE: u64 = 256;

impl MachineConfig {
    /// The same machine with other random numbers: those of generated workloads and of the monitor, unless it names its
    /// own seed. Run 0 is the configuration as it is. What is read from traces stays as it is.
    pub fn with_seed_of_run(mut self, run: u32) -> MachineConfig {
        let step = u64::from(run) * SEEDS_PER_RUN;
        for phase in self.tasks.iter_mut().flat_map(|task| &mut task.phases) {
            if let Source::Workload(spec) = &mut phase.workload {
                spec.seed = spec.seed.wrapping_add(step);
            }
        }
        self.monitor_seed = self.monitor_seed.wrapping_add(step);
        self
    }

    /// Whether [`MachineConfig::with_seed_of_run`] changes anything.
    pub fn is_random(&self) -> bool {
        let mut phases = self.tasks.iter().flat_map(|task| &task.phases);
        let monitor = self.monitor.as_ref().is_some_and(|monitor| monitor.seed.is_none());
        monitor || phases.any(|phase| matches!(phase.workload, Source::Workload(_)))
    }

    /// The same machine with `pages` pages of memory in all, which its nodes share as they share what they have.
    pub fn with_memory(mut self, pages: u64) -> MachineConfig {
        let all = self.nodes.iter().sum::<u64>().max(1);
        let share = |node: u64| (u128::from(node) * u128::from(pages) / u128::from(all)) as u64;
        self.nodes.iter_mut().for_each(|node| *node = share(*node));
        self
    }

    /// The group above the one called `name`.
    ///
    /// # Errors
    /// One line if the name is not a path or its parent does not exist.
    pub fn parent_of(&self, name: &str) -> Result<GroupId, String> {
        let wrong = || format!("group {name}: expected a path from the root such as /db or /db/cache");
        let (above, last) = name.rsplit_once('/').ok_or_else(wrong)?;
        if last.is_empty() || !name.starts_with('/') {
            return Err(wrong());
        }
        if above.is_empty() {
            return Ok(0);
        }
        let at = self.groups.iter().position(|group| group.name == above);
        at.map(|at| at + 1).ok_or_else(|| format!("group {name}: its parent {above} must be listed before it"))
    }

    /// Says what cannot work.
    ///
    /// # Errors
    /// One line that names the value.
    pub fn check(&self) -> Result<(), String> {
        let require = |condition: bool, reason: String| if condition { Ok(()) } else { Err(reason) };
        require((1..=1024).contains(&self.cpus), format!("cpus must be from 1 to 1024, not {}", self.cpus))?;
        require(
            (1..=64).contains(&self.nodes.len()),
            format!("there must be 1 to 64 nodes, not {}", self.nodes.len()),
        )?;
        for pages in &self.nodes {
            require(*pages >= MIN_NODE, format!("a node of {pages} pages is smaller than {MIN_NODE} pages"))?;
        }
        require(
            self.min_free_kbytes / 4 < self.nodes.iter().sum::<u64>() / 2,
            format!("min_free_kbytes {} is more than half of the memory", self.min_free_kbytes),
        )?;
        require(
            (1..=3000).contains(&self.watermark_scale_factor),
            format!("watermark_scale_factor must be from 1 to 3000, not {}", self.watermark_scale_factor),
        )?;
        for (index, group) in self.groups.iter().enumerate() {
            let parent = self.parent_of(&group.name)?;
            require(parent <= index, format!("group {}: its parent must be listed before it", group.name))?;
            require(
                !self.groups[..index].iter().any(|other| other.name == group.name),
                format!("group {} is listed twice", group.name),
            )?;
            check_limit(&group.name, "max", group.limits.max)?;
            check_limit(&group.name, "high", group.limits.high)?;
        }
        let lruvecs = (self.groups.len() + 1) * self.nodes.len();
        require(lruvecs <= 4096, format!("{lruvecs} pairs of group and node are more than 4096"))?;
        self.file_device.check("file device")?;
        if let Some(device) = &self.swap_device {
            device.check("swap device")?;
            require(self.swap_pages > 0, "a swap device needs a size above 0".into())?;
        }
        for file in &self.files {
            require(file.pages > 0, format!("file {} is empty", file.name))?;
        }
        require(self.page_cluster <= 5, format!("page_cluster must be from 0 to 5, not {}", self.page_cluster))?;
        require(
            self.readahead <= 8192 && self.fault_around <= 512,
            "readahead is at most 8192 pages, fault_around at most 512".into(),
        )?;
        require(
            self.dirty_ratio <= 100 && self.dirty_background_ratio <= self.dirty_ratio,
            "dirty_background_ratio must not exceed dirty_ratio, nor that 100".into(),
        )?;
        require(self.writeback_interval > 0, "writeback_interval must not be 0".into())?;
        self.check_buffers()?;
        require(!self.tasks.is_empty(), "there is no task".into())?;
        for task in &self.tasks {
            self.check_task(task).map_err(|reason| format!("task {}: {reason}", task.name))?;
        }
        Ok(())
    }

    /// Says why a buffer cannot be asked for.
    pub(super) fn check_buffers(&self) -> Result<(), String> {
        let require = |condition: bool, reason: String| if condition { Ok(()) } else { Err(reason) };
        for buffer in &self.buffers {
            let of = |reason: String| format!("buffer {}: {reason}", buffer.name);
            require(self.frames.is_some(), of("contiguous frames need frames = true".into()))?;
            require(
                buffer.order <= MAX_ORDER,
                of(format!("order must be from 0 to {MAX_ORDER}, not {}", buffer.order)),
            )?;
            require(buffer.node < self.nodes.len(), of(format!("there is no node {}", buffer.node)))?;
            require(buffer.every > 0, of("the time between two requests (every) must not be 0".into()))?;
            let most = buffer.hold.div_ceil(buffer.every).saturating_add(1).saturating_mul(1 << buffer.order);
            require(
                most < self.nodes[buffer.node] / 2,
                of(format!("up to {most} pages are held at a time, more than half of its node: hold them shorter")),
            )?;
        }
        if self.frames.is_some() && self.nodes.iter().any(|pages| *pages >= 1 << 31) {
            return Err("a node with frames has less than 8 TiB".into());
        }
        Ok(())
    }

    fn check_task(&self, task: &TaskConfig) -> Result<(), String> {
        let require = |condition: bool, reason: String| if condition { Ok(()) } else { Err(reason) };
        require(
            (0.0..=1.0).contains(&task.huge_pages),
            format!("huge_pages must be a share from 0 to 1, not {}", task.huge_pages),
        )?;
        require(task.huge_pages == 0.0 || self.frames.is_some(), "huge_pages need frames = true".into())?;
        require(task.group <= self.groups.len(), format!("there is no group {}", task.group))?;
        require(task.node < self.nodes.len(), format!("there is no node {}", task.node))?;
        require(task.accesses_per_operation > 0, "an operation must have at least one access".into())?;
        require(!task.phases.is_empty(), "it has nothing to do (no workload)".into())?;
        require(task.rounds > 0, "it must do its workloads at least once".into())?;
        let stands_still = task.cpu_per_access == 0 || task.phases.iter().any(|phase| phase.cpu_per_access == Some(0));
        require(!stands_still, "an access takes time: at least 1 ns of CPU".into())?;
        task.phases.iter().try_for_each(|phase| self.check_phase(task, phase))
    }

    /// Says why a phase cannot work in a task.
    pub(super) fn check_phase(&self, task: &TaskConfig, phase: &PhaseConfig) -> Result<(), String> {
        if phase.file.is_some_and(|file| file >= self.files.len()) {
            return Err("there is no such file".into());
        }
        let Source::Workload(spec) = &phase.workload else { return Ok(()) };
        self.check_workload(task, phase, spec).map_err(|reason| format!("workload {spec}: {reason}"))
    }

    fn check_workload(&self, task: &TaskConfig, phase: &PhaseConfig, spec: &WorkloadSpec) -> Result<(), String> {
        let needs = pages_by_type(spec);
        let last = |pages: u64| pages + if pages > 0 { u64::from(phase.offset) } else { 0 };
        if last(needs[0]) > u64::from(task.anon_pages) {
            return Err(format!(
                "needs {} pages of anonymous memory, but the address space has {}",
                last(needs[0]),
                task.anon_pages
            ));
        }
        if needs[1] > 0 {
            let file = phase.file.ok_or("reads a file, but none is named")?;
            let file = &self.files[file];
            if last(needs[1]) > u64::from(file.pages) {
                return Err(format!("needs {} pages of file {}, which has {}", last(needs[1]), file.name, file.pages));
            }
        }
        Ok(())
    }
}

fn check_limit(group: &str, name: &str, pages: u64) -> Result<(), String> {
    if pages >= MIN_LIMIT {
        return Ok(());
    }
    Err(format!("group {group}: {name} = {pages} pages is below one batch of reclaim ({MIN_LIMIT} pages)"))
}

/// Pages of anonymous memory and of a file that a workload accesses.
pub(super) fn pages_by_type(spec: &WorkloadSpec) -> [u64; 2] {
    match spec.generator {
        Generator::Mixed | Generator::IdleAnon => [spec.anon_pages, spec.file_pages],
        _ if spec.kind == Kind::Anon => [spec.pages, 0],
        _ => [0, spec.pages],
    }
}
