//! What is known of all groups at one moment, as it is shown and kept.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::windows::{self, Window};
use super::{Host, Room, time_run};
use crate::curve::{Measured, Point, curve};
use crate::figures::Figures;
use crate::name::{self, Kind, Name};
use crate::proposal::{Proposal, propose};

/// The version of the report's form.
const VERSION: u32 = 1;

/// A report. docs/reference/host.schema.json describes it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Of the form.
    pub version: u32,
    /// When, in seconds since 1970.
    pub time_seconds: u64,
    /// Where working sets come from, in words.
    pub source: String,
    /// The lengths of windows, in seconds.
    pub ages_seconds: Vec<f64>,
    /// Share of a processor that looks and reports took so far.
    pub processor_share: f64,
    /// One for each group, each after the one above it.
    pub groups: Vec<Row>,
}

/// What is known of a group and those below it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its path below the root of the hierarchy, printable.
    pub path: String,
    /// What it is.
    #[serde(flatten)]
    pub name: Name,
    /// Of control groups: 1 or 2.
    pub cgroup_version: u8,
    /// What its orchestrator calls the container.
    pub hostname: Option<String>,
    /// The name of its first process.
    pub program: Option<String>,
    /// Its own processes.
    pub processes: u64,
    /// What the kernel says.
    #[serde(flatten)]
    pub figures: Figures,
    /// What cadvisor and the kubelet call the working set: usage without files that the kernel would evict first.
    pub kubelet_working_set_bytes: u64,
    /// What the vertical pod autoscaler would take for its target, by its defaults, from what this command saw.
    pub vpa_target_bytes: Option<u64>,
    /// By age; none where no such window has ended.
    pub working_sets: Vec<Option<WorkingSet>>,
    /// Pages per second that came back soon after they were evicted.
    pub refaults_per_second: Option<f64>,
    /// Share of time in which something waited for memory; none in version 1.
    pub pressure: Option<f64>,
    /// What limits would cost.
    pub curve: Vec<Point>,
    /// Limits that would do; none for the root, and before a window has ended.
    pub proposal: Option<Proposal>,
    /// The inode of the group's directory.
    #[serde(skip)]
    pub id: u64,
    /// The group's directory.
    #[serde(skip)]
    pub directory: std::path::PathBuf,
}

/// A working set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WorkingSet {
    /// How long its window was.
    pub seconds: f64,
    /// Bytes accessed in it.
    pub bytes: u64,
    /// By how much it may be larger.
    pub error_bytes: u64,
}

impl Host {
    /// What is known now. Groups that are gone are forgotten.
    pub fn report(&mut self) -> Report {
        let began = time_run();
        let groups = self.groups().unwrap_or_default();
        let ids: std::collections::HashSet<u64> = groups.iter().map(|group| group.id).collect();
        self.known.retain(|id, _| ids.contains(id));
        let room = Room::of_host();
        let mut rows = Vec::with_capacity(groups.len());
        for group in &groups {
            let Some(figures) = self.figures(group) else { continue };
            let known = self.known.entry(group.id).or_default();
            let stays_bytes = room.stays_bytes(&group.directory, &figures.stat);
            let needed: Vec<Option<Window>> =
                known.measured.iter().map(|one| one.map(|window| window.needed(stays_bytes))).collect();
            let together = windows::together(&known.measured);
            let mut working_sets: Vec<Option<WorkingSet>> =
                together.iter().map(|one| one.map(WorkingSet::of)).collect();
            working_sets.resize(self.ages.len(), None);
            let processes = group.processes();
            let name = name::of_path(&group.path);
            let is_contained = matches!(name.kind, Kind::Container | Kind::Pod);
            let other_bytes = figures.other_bytes();
            rows.push(Row {
                path: group.path.clone(),
                cgroup_version: group.version,
                hostname: if is_contained { name::hostname(&processes) } else { None },
                program: processes.first().and_then(|pid| name::program(*pid)),
                processes: processes.len() as u64,
                figures,
                kubelet_working_set_bytes: figures.usage_less_inactive_file_bytes(),
                vpa_target_bytes: known.peaks.target_bytes(),
                working_sets,
                refaults_per_second: known.refaults_per_second,
                pressure: known.pressure,
                curve: curve(&windows::together(&needed).into_iter().flatten().collect::<Vec<_>>(), other_bytes),
                proposal: match name.kind {
                    Kind::Host => None,
                    _ => propose(&each(&needed), figures.usage_bytes, other_bytes),
                },
                name,
                id: group.id,
                directory: group.directory.clone(),
            });
        }
        let took = time_run().saturating_sub(began);
        self.spent += took;
        self.rounds.spent_beside(took);
        Report {
            version: VERSION,
            time_seconds: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            source: self.words(),
            ages_seconds: self.ages.iter().map(std::time::Duration::as_secs_f64).collect(),
            processor_share: self.share(),
            groups: rows,
        }
    }
}

fn each(windows: &[Option<Window>]) -> Vec<Measured> {
    windows.iter().flatten().map(|window| window.measured).collect()
}

impl WorkingSet {
    fn of(measured: Measured) -> WorkingSet {
        WorkingSet { seconds: measured.window.as_secs_f64(), bytes: measured.bytes, error_bytes: measured.error_bytes }
    }
}
