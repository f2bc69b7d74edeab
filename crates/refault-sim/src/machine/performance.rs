//! What tasks did together: the copies of one, or those of a group and of the groups below it.
//!
//! ```
//! use refault_sim::machine::report::Performance;
//!
//! let two = Performance { operations: 3_000, span_ns: 1_500_000_000, ..Performance::default() };
//! assert_eq!(two.operations_per_second(), 2_000.0);
//! ```

use serde::Serialize;

use super::Machine;
use super::latency::{LatencySummary, OperationLatency};

/// What some tasks did together: the copies of one, or those of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Performance {
    /// What they are called together.
    pub name: String,
    /// How many they are.
    pub tasks: u64,
    /// Accesses done.
    pub accesses: u64,
    /// Operations done.
    pub operations: u64,
    /// Time from the first one's start to the last one's end, or the run's; nanoseconds.
    pub span_ns: u64,
    /// From the beginning of an operation to the end of its last access, time without a CPU included; the pause after
    /// it is not.
    pub latency: LatencySummary,
    /// Time stalled for memory, nanoseconds, all together.
    pub stalled_ns: u64,
    /// Time waited for a device or for memory, the stalls included, nanoseconds, all together.
    pub waited_ns: u64,
    /// CPU time, nanoseconds, all together.
    pub cpu_time_ns: u64,
    /// Major faults.
    pub major_faults: u64,
    /// How often one of them was killed.
    pub kills: u64,
}

impl Performance {
    /// Operations per simulated second of [`Performance::span_ns`].
    pub fn operations_per_second(&self) -> f64 {
        self.operations as f64 * 1e9 / self.span_ns.max(1) as f64
    }
}

impl Machine {
    /// What the copies of each task did, in the order of the tasks.
    pub(super) fn performance_of_tasks(&self) -> Vec<Performance> {
        self.task_sets().into_iter().map(|(name, ids)| self.performance(name, &ids)).collect()
    }

    /// What the tasks of each group and of those below it did, the root first.
    pub(super) fn performance_of_groups(&self) -> Vec<Performance> {
        let groups = &self.memory.groups;
        let below = |group| (0..self.tasks.len()).filter(move |id| groups.is_below(self.tasks[*id].group, group));
        (0..groups.len())
            .map(|group| self.performance(groups[group].name.clone(), &below(group).collect::<Vec<_>>()))
            .collect()
    }

    /// Tasks that are copies of one, by its name.
    fn task_sets(&self) -> Vec<(String, Vec<usize>)> {
        let mut sets: Vec<(String, Vec<usize>)> = Vec::new();
        for (id, task) in self.config.tasks.iter().enumerate() {
            let name = task.copy_of.as_ref().unwrap_or(&task.name);
            match sets.last_mut().filter(|(last, _)| last == name && task.copy_of.is_some()) {
                Some((_, ids)) => ids.push(id),
                None => sets.push((name.clone(), vec![id])),
            }
        }
        sets
    }

    /// What these tasks did together.
    fn performance(&self, name: String, ids: &[usize]) -> Performance {
        let mut sum = Performance { name, tasks: ids.len() as u64, ..Performance::default() };
        let mut latency = OperationLatency::default();
        let (mut from, mut to) = (u64::MAX, 0);
        for &id in ids {
            let (task, config) = (&self.tasks[id], &self.config.tasks[id]);
            sum.accesses += task.accesses;
            sum.operations += task.operations;
            sum.stalled_ns += task.stalled;
            sum.waited_ns += task.waited;
            sum.cpu_time_ns += self.threads[id].cpu_time;
            sum.major_faults += task.major_faults;
            sum.kills += task.kills;
            latency.add(&task.latency);
            from = from.min(config.start);
            to = to.max(task.finished_at.unwrap_or(self.now));
        }
        sum.span_ns = to.saturating_sub(from);
        sum.latency = latency.summary();
        sum
    }
}
