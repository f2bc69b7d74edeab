//! What comes out of a run: totals, latencies, samples over time, kills, listings.
//!
//! ```
//! use refault_core::policy::PolicySpec;
//! use refault_sim::machine::scenario::Scenario;
//! use refault_sim::named;
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
//! let report = named::machine(&PolicySpec::parse("classic")?, scenario.config)?.run()?;
//! assert!(report.fields().iter().any(|(name, value)| name == "pswpin" && *value > 0.0));
//! assert!(report.reclaim_work().total() > 0); // nanoseconds of CPU time
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use refault_core::Counters;
use refault_core::policy::GenerationSize;
use serde::Serialize;

use super::background::Kswapd;
use super::costs::{Ledger, WORK_NAMES};
use super::frames::{FramesReport, FramesSample};
use super::group::GroupEvents;
pub use super::happenings::{Happened, Happening};
pub use super::latency::{Latencies, Latency, LatencySummary};
use super::monitoring::KdamondTask;
pub use super::monitoring::MonitorReport;
pub use super::performance::Performance;
use super::pressure::PressureLine;
use super::task::Life;
use super::{End, Machine, happenings};

/// Counts that are not in [`Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// Direct reclaims begun.
    pub allocstall: u64,
    /// Tasks held back while kswapd worked below half of `min`.
    pub direct_throttles: u64,
    /// Tasks killed.
    pub oom_kills: u64,
    /// Page faults that were completed.
    pub pgfault: u64,
    /// Pages examined by kswapd, and by allocating tasks; what limits and commands examine is in neither
    /// (spec: overview §6).
    pub pgscan: [u64; 2],
    /// Pages freed by kswapd, and by allocating tasks.
    pub pgsteal: [u64; 2],
    /// Balance attempts of all kswapds.
    pub pageoutrun: u64,
    /// Passes of kswapds over their nodes.
    pub kswapd_passes: u64,
    /// Nanoseconds from the end of a kswapd's attempt to the beginning of its next, summed. All kswapds count, but not
    /// the last attempt of each. A kswapd sleeps for most of this time.
    pub kswapd_slept: u64,
    /// kswapd was woken within its nap.
    pub kswapd_low_wmark_hit_quickly: u64,
    /// kswapd found its node unbalanced when it wanted to sleep or to sleep on.
    pub kswapd_high_wmark_hit_quickly: u64,
    /// Pages written back to files by the flusher.
    pub written_back: u64,
}

impl Statistics {
    /// What was counted after `start`.
    pub fn since(&self, start: &Statistics) -> Statistics {
        let pair = |now: [u64; 2], then: [u64; 2]| [now[0] - then[0], now[1] - then[1]];
        Statistics {
            allocstall: self.allocstall - start.allocstall,
            direct_throttles: self.direct_throttles - start.direct_throttles,
            oom_kills: self.oom_kills - start.oom_kills,
            pgfault: self.pgfault - start.pgfault,
            pgscan: pair(self.pgscan, start.pgscan),
            pgsteal: pair(self.pgsteal, start.pgsteal),
            pageoutrun: self.pageoutrun - start.pageoutrun,
            kswapd_passes: self.kswapd_passes - start.kswapd_passes,
            kswapd_slept: self.kswapd_slept - start.kswapd_slept,
            kswapd_low_wmark_hit_quickly: self.kswapd_low_wmark_hit_quickly - start.kswapd_low_wmark_hit_quickly,
            kswapd_high_wmark_hit_quickly: self.kswapd_high_wmark_hit_quickly - start.kswapd_high_wmark_hit_quickly,
            written_back: self.written_back - start.written_back,
        }
    }

    /// Names and values, in a fixed order.
    pub fn fields(&self) -> [(&'static str, u64); 14] {
        [
            ("allocstall", self.allocstall),
            ("direct_throttles", self.direct_throttles),
            ("oom_kills", self.oom_kills),
            ("pgfault", self.pgfault),
            ("pgscan_kswapd", self.pgscan[0]),
            ("pgscan_direct", self.pgscan[1]),
            ("pgsteal_kswapd", self.pgsteal[0]),
            ("pgsteal_direct", self.pgsteal[1]),
            ("pageoutrun", self.pageoutrun),
            ("kswapd_passes", self.kswapd_passes),
            ("kswapd_slept_ns", self.kswapd_slept),
            ("kswapd_low_wmark_hit_quickly", self.kswapd_low_wmark_hit_quickly),
            ("kswapd_high_wmark_hit_quickly", self.kswapd_high_wmark_hit_quickly),
            ("written_back", self.written_back),
        ]
    }
}

/// A kill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kill {
    /// When, nanoseconds.
    pub at: u64,
    /// Whom.
    pub task: String,
    /// Its memory, in pages.
    pub pages: u64,
    /// The group that was out of memory.
    pub group: String,
}

/// The generations of an lruvec at some time, as a command asked for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// When, nanoseconds.
    pub at: u64,
    /// The listing in the kernel's layout, one lruvec after the other.
    pub text: String,
}

/// All counters at one time.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When, nanoseconds.
    pub at: u64,
    /// Counters since the start.
    pub counters: Counters,
    /// Further counts since the start.
    pub statistics: Statistics,
    /// Pages on active and inactive lists, or in the two youngest and the older generations; none for policies without.
    pub active_inactive: Option<[u64; 2]>,
    /// Operations since the start.
    pub operations: u64,
    /// Free frames of all nodes.
    pub free: u64,
    /// Pages of files in memory.
    pub file_pages: u64,
    /// Dirty file pages.
    pub dirty: u64,
    /// Swap slots in use.
    pub swap_used: u64,
    /// Memory pressure, *some*, as of the last fold.
    pub some: PressureLine,
    /// Memory pressure, *full*, as of the last fold.
    pub full: PressureLine,
    /// Work of kswapd, direct and limit reclaim since the start, nanoseconds by kind.
    pub ledgers: [Ledger; 3],
    /// How often tasks began their first phase.
    pub starts: u64,
    /// CPU time of all tasks since the start, nanoseconds.
    pub task_cpu: u64,
    /// Usage of each group, the root first.
    pub usage: Vec<u64>,
    /// Generations of each lruvec, oldest first; empty for policies without.
    pub generations: Vec<Vec<GenerationSize>>,
    /// Free memory by order, where there are frames.
    pub frames: Option<FramesSample>,
}

/// How cold the coldest pages of an lruvec are: what groups and nodes are compared by, to take memory from
/// the right one or to place a job (spec: mglru §15).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LruvecAge {
    /// The group's path.
    pub group: String,
    /// The node.
    pub node: usize,
    /// Time since the birth of the oldest generation that holds pages, nanoseconds.
    pub age: u64,
    /// Pages in that generation.
    pub pages: u64,
}

/// A group at the end.
#[derive(Clone, Debug)]
pub struct GroupReport {
    /// Its path.
    pub name: String,
    /// Pages charged.
    pub usage: u64,
    /// Swap slots in use.
    pub swap_usage: u64,
    /// Its events.
    pub events: GroupEvents,
    /// Major faults of its tasks.
    pub major_faults: u64,
    /// What its tasks and those of the groups below it did.
    pub performance: Performance,
}

/// A task at the end.
#[derive(Clone, Debug)]
pub struct TaskReport {
    /// Its name.
    pub name: String,
    /// The group it is in, `/` for the root.
    pub group: String,
    /// When it was to start, nanoseconds.
    pub start: u64,
    /// Latencies of its operations, as in [`Performance`].
    pub latency: LatencySummary,
    /// Accesses done.
    pub accesses: u64,
    /// Operations done.
    pub operations: u64,
    /// When it was done, if it is; nanoseconds.
    pub finished_at: Option<u64>,
    /// How often it was killed.
    pub kills: u64,
    /// How often it began its first phase.
    pub starts: u64,
    /// Time stalled for memory, nanoseconds.
    pub stalled: u64,
    /// Time waited for a device or for memory, the stalls included, nanoseconds.
    pub waited: u64,
    /// CPU time, nanoseconds.
    pub cpu_time: u64,
    /// Major faults.
    pub major_faults: u64,
}

/// Everything about a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Why it ended.
    pub end: End,
    /// Simulated time, nanoseconds.
    pub elapsed: u64,
    /// Accesses of all tasks.
    pub accesses: u64,
    /// Operations of all tasks.
    pub operations: u64,
    /// The policy's counters and the machine's.
    pub counters: Counters,
    /// Further counts.
    pub statistics: Statistics,
    /// Balance attempts of all kswapds.
    pub pageoutrun: u64,
    /// Work of kswapd, direct and limit reclaim, nanoseconds by kind.
    pub ledgers: [Ledger; 3],
    /// CPU time of all kswapds, nanoseconds.
    pub kswapd_cpu: u64,
    /// Direct reclaim after the configuration's `latencies_from`.
    pub direct: LatencySummary,
    /// Limit reclaim after the same time.
    pub limit: LatencySummary,
    /// Memory pressure, *some*.
    pub some: PressureLine,
    /// Memory pressure, *full*.
    pub full: PressureLine,
    /// Time the CPUs were busy, nanoseconds, all together.
    pub cpu_busy: u64,
    /// Pages written back to files by the flusher.
    pub written_back: u64,
    /// Tasks.
    pub tasks: Vec<TaskReport>,
    /// The same for all copies of each task together.
    pub task_sets: Vec<Performance>,
    /// Groups, the root first.
    pub groups: Vec<GroupReport>,
    /// All lruvecs that hold pages, coldest first; empty for policies without generations.
    pub lruvecs: Vec<LruvecAge>,
    /// Kills in order.
    pub kills: Vec<Kill>,
    /// Counters over time.
    pub samples: Vec<Sample>,
    /// Listings that commands asked for.
    pub listings: Vec<Listing>,
    /// What happened, in the order of time: starts, ends and kills of tasks, and what commands did.
    pub happenings: Vec<Happening>,
    /// The monitor, if there was one.
    pub monitor: Option<MonitorReport>,
    /// Free memory by order and requests for more than one frame, where there are frames.
    pub frames: Option<FramesReport>,
}

impl Report {
    /// Operations per simulated second.
    pub fn operations_per_second(&self) -> f64 {
        self.operations as f64 * 1e9 / self.elapsed.max(1) as f64
    }

    /// Refaults of both types.
    pub fn refaults(&self) -> u64 {
        self.counters.workingset_refault_anon + self.counters.workingset_refault_file
    }

    /// Pages examined for each page freed.
    pub fn scan_ratio(&self) -> f64 {
        self.counters.pgscan as f64 / self.counters.pgsteal.max(1) as f64
    }

    /// Work of all reclaimers.
    pub fn reclaim_work(&self) -> Ledger {
        let mut sum = Ledger::default();
        self.ledgers.iter().for_each(|ledger| sum.add(ledger));
        sum
    }

    /// Name and value of every scalar, in a fixed order: the rows of a table and the fields of JSON.
    pub fn fields(&self) -> Vec<(String, f64)> {
        let mut fields: Vec<(String, f64)> = vec![
            ("elapsed_seconds".into(), self.elapsed as f64 / 1e9),
            ("accesses".into(), self.accesses as f64),
            ("operations".into(), self.operations as f64),
            ("operations_per_second".into(), self.operations_per_second()),
        ];
        fields.extend(Counters::NAMES.iter().zip(self.counters.values()).map(|(n, v)| (n.to_string(), v as f64)));
        for (name, value) in [
            ("pgpgin_kib", 4 * (self.counters.file_reads + self.counters.pswpin)),
            ("pgpgout_kib", 4 * (self.written_back + self.counters.nr_vmscan_write + self.counters.pswpout)),
            ("kswapd_cpu_ns", self.kswapd_cpu),
            ("direct_reclaim_cpu_ns", self.ledgers[1].total()),
            ("limit_reclaim_cpu_ns", self.ledgers[2].total()),
            ("direct_reclaim_p50_ns", self.direct.p50_ns),
            ("direct_reclaim_p99_ns", self.direct.p99_ns),
            ("direct_reclaim_max_ns", self.direct.max_ns),
            ("limit_reclaim_p50_ns", self.limit.p50_ns),
            ("limit_reclaim_p99_ns", self.limit.p99_ns),
            ("limit_reclaim_max_ns", self.limit.max_ns),
            ("pressure_some_us", self.some.total_us),
            ("pressure_full_us", self.full.total_us),
            ("cpu_busy_ns", self.cpu_busy),
        ] {
            fields.push((name.into(), value as f64));
        }
        fields.extend(self.statistics.fields().map(|(name, value)| (name.to_string(), value as f64)));
        if let Some(monitor) = &self.monitor {
            let of_monitor = [
                ("monitor_cpu_ns", monitor.monitor_cpu),
                ("schemes_cpu_ns", monitor.schemes_cpu),
                ("monitor_checks", monitor.checks),
            ];
            fields.extend(of_monitor.map(|(name, value)| (name.into(), value as f64)));
        }
        for (name, value) in WORK_NAMES.iter().zip(self.reclaim_work().0) {
            fields.push((format!("reclaim_{name}_ns"), value as f64));
        }
        fields.extend(self.frames.iter().flat_map(FramesReport::fields));
        fields
    }

    /// The samples as CSV, one row per sample.
    pub fn samples_csv(&self) -> String {
        use std::fmt::Write;
        let mut text = String::from(
            "seconds,operations,free,file_pages,dirty,swap_used,some_avg10,some_us,full_avg10,full_us,kswapd_cpu_ns,direct_reclaim_cpu_ns,limit_reclaim_cpu_ns",
        );
        for name in Counters::NAMES {
            text.push(',');
            text.push_str(name);
        }
        for (name, _) in self.statistics.fields() {
            let _ = write!(text, ",{name}");
        }
        text.push_str(",nr_active,nr_inactive");
        for group in &self.groups {
            let _ = write!(text, ",usage:{}", group.name);
        }
        for name in self.frames.iter().flat_map(|_| FramesSample::names()) {
            let _ = write!(text, ",{name}");
        }
        text.push('\n');
        for sample in &self.samples {
            let _ = write!(
                text,
                "{},{},{},{},{},{},{:.2},{},{:.2},{}",
                sample.at as f64 / 1e9,
                sample.operations,
                sample.free,
                sample.file_pages,
                sample.dirty,
                sample.swap_used,
                sample.some.averages[0],
                sample.some.total_us,
                sample.full.averages[0],
                sample.full.total_us
            );
            let reclaim_cpu = sample.ledgers.map(|ledger| ledger.total());
            let rest = reclaim_cpu
                .iter()
                .chain(&sample.counters.values())
                .chain(&sample.statistics.fields().map(|(_, value)| value))
                .chain(&sample.active_inactive.unwrap_or_default())
                .chain(&sample.usage)
                .copied()
                .collect::<Vec<_>>();
            for value in rest {
                let _ = write!(text, ",{value}");
            }
            for value in sample.frames.iter().flat_map(FramesSample::columns) {
                let _ = write!(text, ",{value}");
            }
            text.push('\n');
        }
        text
    }
}

/// States kept over time, some 40 MiB of them.
const MAX_SAMPLES: usize = 1 << 16;

impl Machine {
    /// Notes the state. Beyond [`MAX_SAMPLES`], every second one is dropped and the interval doubles, so that a machine
    /// may run for any time.
    pub(super) fn take_sample(&mut self) {
        if self.samples.len() == MAX_SAMPLES {
            let mut index = 0;
            self.samples.retain(|_| {
                index += 1;
                index % 2 == 0
            });
            self.config.sample_interval *= 2;
        }
        self.pressure.collect(self.now);
        let lruvecs = self.memory.groups.len() * self.memory.nodes.len();
        self.samples.push(Sample {
            at: self.now,
            counters: self.counters(),
            statistics: self.statistics(),
            active_inactive: self.policy.active_inactive(),
            operations: self.tasks.iter().map(|task| task.operations).sum(),
            free: self.memory.nodes.iter().map(|node| node.free).sum(),
            file_pages: self.memory.file_pages,
            dirty: self.memory.dirty,
            swap_used: self.memory.swap.used,
            some: self.pressure.some(),
            full: self.pressure.full(),
            ledgers: self.ledgers,
            starts: self.tasks.iter().map(|task| task.starts).sum(),
            task_cpu: self.threads[..self.tasks.len()].iter().map(|thread| thread.cpu_time).sum(),
            usage: self.memory.groups.iter().map(|group| group.usage).collect(),
            generations: (0..lruvecs).map(|lruvec| self.policy.generations(lruvec as u16)).collect(),
            frames: self.memory.frames.as_ref().map(|frames| frames.sample()),
        });
    }

    /// The machine's counts, with what each kswapd and the flusher count for themselves.
    fn statistics(&self) -> Statistics {
        let sum = |count: fn(&Kswapd) -> u64| self.kswapds.iter().map(count).sum();
        Statistics {
            pageoutrun: sum(|kswapd| kswapd.pageoutrun),
            kswapd_passes: sum(|kswapd| kswapd.passes),
            kswapd_slept: sum(|kswapd| kswapd.slept),
            kswapd_low_wmark_hit_quickly: sum(|kswapd| kswapd.low_wmark_hit_quickly),
            kswapd_high_wmark_hit_quickly: sum(|kswapd| kswapd.high_wmark_hit_quickly),
            written_back: self.writeback.written,
            ..self.statistics
        }
    }

    /// Lruvecs by the birth of their oldest generation that holds pages, across groups and nodes.
    pub(super) fn lruvecs_by_age(&self) -> Vec<LruvecAge> {
        let mut lruvecs = Vec::new();
        for (id, group) in self.memory.groups.iter().enumerate() {
            for node in 0..self.memory.nodes.len() {
                let generations = self.policy.generations(self.memory.lruvec_of(id, node));
                let oldest = generations.iter().find(|generation| generation.pages.iter().sum::<u64>() > 0);
                if let Some(oldest) = oldest {
                    let (age, pages) = (self.now.saturating_sub(oldest.birth), oldest.pages.iter().sum());
                    lruvecs.push(LruvecAge { group: group.name.clone(), node, age, pages });
                }
            }
        }
        lruvecs.sort_by_key(|lruvec| std::cmp::Reverse(lruvec.age));
        lruvecs
    }

    pub(super) fn report(&mut self) -> Report {
        self.pressure.collect(self.now);
        let (task_sets, performances) = (self.performance_of_tasks(), self.performance_of_groups());
        let groups = &self.memory.groups;
        let tasks = self.tasks.iter_mut().zip(&self.config.tasks).enumerate().map(|(id, (task, config))| TaskReport {
            name: config.name.clone(),
            group: groups[task.group].name.clone(),
            start: config.start,
            latency: task.latency.summary(),
            accesses: task.accesses,
            operations: task.operations,
            finished_at: task.finished_at,
            kills: task.kills,
            starts: task.starts,
            stalled: task.stalled,
            waited: task.waited,
            cpu_time: self.threads[id].cpu_time,
            major_faults: task.major_faults,
        });
        let tasks: Vec<TaskReport> = tasks.collect();
        // No task is left, and some did not finish: a lack of memory at the end.
        let starved = self.tasks.iter().all(|task| task.life == Life::Over && task.finished_at.is_none());
        let default_end = if starved && !self.tasks.is_empty() { End::OutOfMemory } else { End::Finished };
        let groups = self.memory.groups.iter().zip(performances).map(|(group, performance)| GroupReport {
            performance,
            name: group.name.clone(),
            usage: group.usage,
            swap_usage: group.swap_usage,
            events: group.events,
            major_faults: group.major_faults,
        });
        Report {
            end: self.end.unwrap_or(default_end),
            elapsed: self.now,
            accesses: tasks.iter().map(|task| task.accesses).sum(),
            operations: tasks.iter().map(|task| task.operations).sum(),
            counters: self.counters(),
            statistics: self.statistics(),
            pageoutrun: self.kswapds.iter().map(|kswapd| kswapd.pageoutrun).sum(),
            ledgers: self.ledgers,
            kswapd_cpu: (0..self.kswapds.len()).map(|node| self.threads[self.tasks.len() + node].cpu_time).sum(),
            direct: self.latencies.direct.summary(),
            limit: self.latencies.limit.summary(),
            some: self.pressure.some(),
            full: self.pressure.full(),
            cpu_busy: (0..self.cpus.len()).map(|cpu| self.busy_time(cpu)).sum(),
            written_back: self.writeback.written,
            groups: groups.collect(),
            lruvecs: self.lruvecs_by_age(),
            kills: self.kills.clone(),
            samples: self.samples.clone(),
            listings: self.listing.clone(),
            happenings: happenings::ordered(&self.happenings),
            task_sets,
            monitor: self.kdamond.as_ref().map(KdamondTask::report),
            frames: self.memory.frames.as_ref().map(|frames| frames.report(self.buffer_stalled)),
            tasks,
        }
    }
}
