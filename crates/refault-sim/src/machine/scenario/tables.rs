//! The tables of a scenario file, as they stand there. What they mean is checked by [`super`].

use serde::Deserialize;
use toml::Spanned;

use super::quantities::{Size, Time};
use crate::machine::costs::Costs;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) machine: Spanned<MachineTable>,
    #[serde(default)]
    pub(super) costs: Costs,
    #[serde(default)]
    pub(super) device: Vec<Spanned<DeviceTable>>,
    #[serde(default)]
    pub(super) group: Vec<Spanned<GroupTable>>,
    #[serde(default)]
    pub(super) file: Vec<Spanned<FileTable>>,
    #[serde(default)]
    pub(super) task: Vec<Spanned<TaskTable>>,
    #[serde(default)]
    pub(super) buffer: Vec<Spanned<super::frames::BufferTable>>,
    #[serde(default)]
    pub(super) event: Vec<Spanned<EventTable>>,
    pub(super) monitor: Option<Spanned<toml::Table>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MachineTable {
    pub(super) cpus: Option<Spanned<usize>>,
    pub(super) memory: Option<Spanned<Size>>,
    pub(super) nodes: Option<Spanned<Vec<Size>>>,
    pub(super) policy: Option<Spanned<String>>,
    pub(super) file_device: Option<Spanned<String>>,
    pub(super) swap_device: Option<Spanned<String>>,
    pub(super) swap: Option<Spanned<Size>>,
    pub(super) readahead: Option<Spanned<Size>>,
    pub(super) fault_around: Option<Spanned<Size>>,
    pub(super) page_cluster: Option<Spanned<u32>>,
    pub(super) min_free: Option<Spanned<Size>>,
    pub(super) watermark_scale_factor: Option<Spanned<u64>>,
    pub(super) dirty_background_ratio: Option<Spanned<u64>>,
    pub(super) dirty_ratio: Option<Spanned<u64>>,
    pub(super) min_ttl: Option<Time>,
    pub(super) recursive_protection: Option<bool>,
    pub(super) duration: Option<Time>,
    pub(super) sample: Option<Spanned<Time>>,
    pub(super) restarts: Option<u64>,
    pub(super) kill_trigger: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) frames: bool,
    pub(super) keep_evicted: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceTable {
    pub(super) name: String,
    pub(super) base: Option<Spanned<String>>,
    pub(super) read_latency: Option<Time>,
    pub(super) write_latency: Option<Time>,
    pub(super) read_page: Option<Time>,
    pub(super) write_page: Option<Time>,
    /// Pages per second in both directions, as a size.
    pub(super) bandwidth: Option<Spanned<Size>>,
    pub(super) parallel: Option<Spanned<u32>>,
    pub(super) synchronous: Option<bool>,
    pub(super) rotating: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupTable {
    pub(super) name: Spanned<String>,
    pub(super) max: Option<Spanned<Size>>,
    pub(super) high: Option<Spanned<Size>>,
    pub(super) low: Option<Spanned<Size>>,
    pub(super) min: Option<Spanned<Size>>,
    pub(super) swap_max: Option<Spanned<Size>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileTable {
    pub(super) name: String,
    pub(super) size: Spanned<Size>,
    #[serde(default)]
    pub(super) executable: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskTable {
    pub(super) name: String,
    pub(super) count: Option<Spanned<u32>>,
    pub(super) group: Option<Spanned<String>>,
    pub(super) node: Option<Spanned<usize>>,
    pub(super) start: Option<Time>,
    pub(super) cpu: Option<Spanned<Time>>,
    pub(super) think: Option<Time>,
    pub(super) accesses_per_operation: Option<Spanned<u64>>,
    pub(super) memory: Option<Spanned<Size>>,
    pub(super) rounds: Option<Spanned<u64>>,
    pub(super) restart_after: Option<Time>,
    pub(super) huge_pages: Option<Spanned<f64>>,
    #[serde(default)]
    pub(super) workload: Vec<Spanned<WorkloadTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkloadTable {
    pub(super) spec: Option<Spanned<String>>,
    pub(super) trace: Option<Spanned<String>>,
    pub(super) kind: Option<Spanned<String>>,
    pub(super) file: Option<Spanned<String>>,
    pub(super) offset: Option<Spanned<Size>>,
    pub(super) fd_write: Option<Spanned<f64>>,
    #[serde(default)]
    pub(super) random: bool,
    pub(super) pause: Option<Time>,
    pub(super) cpu: Option<Spanned<Time>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventTable {
    pub(super) at: Time,
    pub(super) group: Option<Spanned<String>>,
    pub(super) max: Option<Size>,
    pub(super) high: Option<Size>,
    pub(super) low: Option<Size>,
    pub(super) min: Option<Size>,
    pub(super) swap_max: Option<Size>,
    pub(super) reclaim: Option<Spanned<Size>>,
    pub(super) swappiness: Option<Spanned<u16>>,
    pub(super) lru_gen: Option<Spanned<String>>,
    pub(super) lru_gen_enabled: Option<Spanned<String>>,
    pub(super) lru_sort: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) list: bool,
    #[serde(default)]
    pub(super) list_full: bool,
}
