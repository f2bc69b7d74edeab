//! Scenario files: a machine, its groups, files, tasks and events as TOML.
//!
//! Sizes are text: bytes with `K`, `M`, `G` (powers of 1024) or pages with `p`. Times are text with `ns`, `us`, `ms`,
//! `s` or `m`. Unknown keys are errors. Every error is one line with file, line and key.
//!
//! ```
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
//! assert_eq!(scenario.config.tasks.len(), 1);
//! let error = Scenario::parse("[machine]\nmemory = \"16Q\"\n", "wrong.toml").unwrap_err();
//! assert_eq!((error.line, error.file.as_str()), (2, "wrong.toml"));
//! # Ok::<(), refault_sim::machine::scenario::ScenarioError>(())
//! ```

mod frames;
mod quantities;
mod tables;

use toml::Spanned;

use refault_trace::{Kind, ObjectsAs, Options, Source, WorkloadSpec};

use super::commands::{Command, Listed, Setting};
use super::config::{FileConfig, GroupConfig, MachineConfig, PhaseConfig, TaskConfig, WhenKilled, pages_by_type};
use super::device::{DeviceModel, PRESETS};
use super::group::{GroupLimits, UNLIMITED};
use crate::monitoring::config::Config;
use quantities::{Size, Time};
use tables::{DeviceTable, Document, EventTable, GroupTable, TaskTable, WorkloadTable};

/// A checked scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The machine and what runs on it.
    pub config: MachineConfig,
    /// The policy it names, if it names one, and the line where.
    pub policy: Option<(String, usize)>,
}

/// What is wrong with a scenario, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {key}: {reason}")]
pub struct ScenarioError {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// The key, or the table it is missing from.
    pub key: String,
    /// What is wrong, and what to do.
    pub reason: String,
}

/// Shortest time between two samples, in nanoseconds: each is kept until the end of the run.
const MIN_SAMPLE: u64 = 1_000_000;

/// Turns positions into errors.
struct Place<'a> {
    file: &'a str,
    text: &'a str,
}

impl Place<'_> {
    fn line_of(&self, at: usize) -> usize {
        self.text[..at.min(self.text.len())].matches('\n').count() + 1
    }

    fn error(&self, at: usize, key: &str, reason: impl Into<String>) -> ScenarioError {
        let (key, reason) = (one_line(key), one_line(&reason.into()));
        ScenarioError { file: self.file.into(), line: self.line_of(at), key, reason }
    }

    fn of_toml(&self, error: &toml::de::Error) -> ScenarioError {
        let at = error.span().map_or(0, |span| span.start);
        let line = self.text[..at.min(self.text.len())].rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[line..].lines().next().unwrap_or("");
        let key = line.split('=').next().unwrap_or("").trim();
        self.error(at, if key.is_empty() { "scenario" } else { key }, in_words(error.message()))
    }
}

/// What the reader of TOML says, without the names of Rust's types.
fn in_words(message: &str) -> String {
    let number = "a whole number, 0 or more";
    let numbers = ["usize", "u64", "u32", "u16", "u8"].map(|name| format!("expected {name}"));
    let plain =
        numbers.iter().fold(message.replace('\n', " "), |text, name| text.replace(name, &format!("expected {number}")));
    plain.replace("expected a boolean", "expected true or false")
}

/// Values that messages repeat may hold any character, escaped in the file.
fn one_line(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

impl Scenario {
    /// Reads a scenario; `file` is what errors call it. Traces it names are not opened.
    ///
    /// # Errors
    /// One line that says what is wrong and where.
    pub fn parse(text: &str, file: &str) -> Result<Scenario, ScenarioError> {
        let place = Place { file, text };
        let document: Document = toml::from_str(text).map_err(|error| place.of_toml(&error))?;
        let machine_at = document.machine.span().start;
        let mut config = machine(&document, &place)?;
        frames::add(&mut config, &document, &place)?;
        for group in &document.group {
            add_group(&mut config, group.get_ref(), &place)?;
        }
        for entry in &document.file {
            let size = &entry.get_ref().size;
            let pages = u32::try_from(size.get_ref().0)
                .map_err(|_| place.error(size.span().start, "size", "a file has at most 16 TiB"))?;
            if pages == 0 {
                return Err(place.error(
                    size.span().start,
                    "size",
                    "the file is empty: give it at least one page (4K)",
                ));
            }
            let entry = entry.get_ref();
            config.files.push(FileConfig { name: entry.name.clone(), pages, executable: entry.executable });
        }
        for task in &document.task {
            add_task(&mut config, task, &place)?;
        }
        for event in &document.event {
            add_event(&mut config, event, &place)?;
        }
        if let Some(monitor) = &document.monitor {
            config.monitor = Some(read_monitor(monitor, &place)?);
        }
        config.check().map_err(|reason| place.error(machine_at, "machine", reason))?;
        let policy = document.machine.get_ref().policy.as_ref();
        let policy = policy.map(|policy| (policy.get_ref().clone(), place.line_of(policy.span().start)));
        Ok(Scenario { config, policy })
    }
}

/// The monitor's own keys are those of its files (docs/guide/monitor.md).
fn read_monitor(table: &Spanned<toml::Table>, place: &Place) -> Result<Config, ScenarioError> {
    let at = table.span().start;
    let tree = serde_json::to_value(table.get_ref()).map_err(|e| place.error(at, "monitor", e.to_string()))?;
    Config::from_tree(tree).map_err(|error| {
        // The key as it stands in the file, if the path's last part can be found behind the table's start.
        let last = error.key.rsplit('.').next().unwrap_or_default().trim_end_matches(['[', ']']);
        let within = if last.is_empty() { None } else { place.text[at..].find(last) };
        place.error(at + within.unwrap_or(0), &format!("monitor.{}", error.key), error.reason)
    })
}

fn machine(document: &Document, place: &Place) -> Result<MachineConfig, ScenarioError> {
    let machine_at = document.machine.span().start;
    let table = document.machine.get_ref();
    let mut config = MachineConfig { costs: document.costs.clone(), ..MachineConfig::default() };
    let mut devices: Vec<(String, DeviceModel)> = PRESETS.iter().map(|p| (p.name.into(), p.model.clone())).collect();
    for device in &document.device {
        let model = device_model(device.get_ref(), &devices, place)?;
        model.check("device").map_err(|reason| place.error(device.span().start, &device.get_ref().name, reason))?;
        devices.push((device.get_ref().name.clone(), model));
    }
    let find = |name: &Spanned<String>, key: &str| {
        let found = devices.iter().rev().find(|(known, _)| known == name.get_ref());
        found.map(|(_, model)| model.clone()).ok_or_else(|| {
            let known: Vec<&str> = devices.iter().map(|(known, _)| known.as_str()).collect();
            let reason = format!("there is no device '{}'; there are {}", name.get_ref(), known.join(", "));
            place.error(name.span().start, key, reason)
        })
    };
    if let Some(cpus) = &table.cpus {
        config.cpus = *cpus.get_ref();
        if config.cpus == 0 {
            return Err(place.error(cpus.span().start, "cpus", "nothing can run without a CPU: at least 1"));
        }
    }
    config.nodes = match (&table.memory, &table.nodes) {
        (Some(memory), None) => vec![memory.get_ref().0],
        (None, Some(nodes)) => nodes.get_ref().iter().map(|size| size.0).collect(),
        _ => return Err(place.error(machine_at, "memory", "give either memory = \"1G\" or nodes = [\"1G\", \"1G\"]")),
    };
    if config.nodes.iter().any(|pages| *pages > u64::from(u32::MAX)) {
        return Err(place.error(machine_at, "memory", "a node has at most 16 TiB"));
    }
    if let Some(name) = &table.file_device {
        config.file_device = find(name, "file_device")?;
    }
    match (&table.swap_device, &table.swap) {
        (Some(name), Some(size)) => {
            config.swap_device = Some(find(name, "swap_device")?);
            config.swap_pages = size.get_ref().0;
            if config.swap_pages == 0 || config.swap_pages > u64::from(u32::MAX) {
                return Err(place.error(size.span().start, "swap", "must be more than nothing and at most 16 TiB"));
            }
        }
        (None, None) => {}
        (Some(name), None) => {
            return Err(place.error(name.span().start, "swap_device", "give the size too: swap = \"2G\""));
        }
        (None, Some(size)) => {
            return Err(place.error(size.span().start, "swap", "give the device too: swap_device = \"zram-lz4\""));
        }
    }
    let small = |size: &Option<Spanned<Size>>, key: &str, default: u32| match size {
        None => Ok(default),
        Some(size) if size.get_ref().0 <= 8192 => Ok(size.get_ref().0 as u32),
        Some(size) => Err(place.error(size.span().start, key, "is at most 32M")),
    };
    config.readahead = small(&table.readahead, "readahead", config.readahead)?;
    config.fault_around = small(&table.fault_around, "fault_around", config.fault_around)?;
    let number = |value: &Option<Spanned<u64>>, default: u64| value.as_ref().map_or(default, |v| *v.get_ref());
    config.page_cluster = table.page_cluster.as_ref().map_or(config.page_cluster, |v| *v.get_ref());
    config.min_free_kbytes = table.min_free.as_ref().map_or(0, |size| size.get_ref().0.saturating_mul(4));
    config.watermark_scale_factor = number(&table.watermark_scale_factor, config.watermark_scale_factor);
    config.dirty_background_ratio = number(&table.dirty_background_ratio, config.dirty_background_ratio);
    config.dirty_ratio = number(&table.dirty_ratio, config.dirty_ratio);
    config.min_ttl = table.min_ttl.map_or(0, |time| time.0);
    config.recursive_protection = table.recursive_protection.unwrap_or(true);
    config.duration = table.duration.map(|time| time.0);
    if let Some(sample) = &table.sample {
        config.sample_interval = sample.get_ref().0;
        if config.sample_interval < MIN_SAMPLE {
            return Err(place.error(sample.span().start, "sample", "counters are sampled at most every 1ms"));
        }
    }
    if let Some(trigger) = &table.kill_trigger {
        let parsed = trigger.get_ref().parse();
        config.kill_trigger =
            Some(parsed.map_err(|reason: String| place.error(trigger.span().start, "kill_trigger", reason))?);
    }
    config.restarts = table.restarts.unwrap_or(config.restarts);
    Ok(config)
}

fn device_model(
    table: &DeviceTable,
    known: &[(String, DeviceModel)],
    place: &Place,
) -> Result<DeviceModel, ScenarioError> {
    let mut model = match &table.base {
        None => known[0].1.clone(),
        Some(base) => {
            known.iter().find(|(name, _)| name == base.get_ref()).map(|(_, model)| model.clone()).ok_or_else(|| {
                place.error(base.span().start, "base", format!("there is no device '{}'", base.get_ref()))
            })?
        }
    };
    let times = [
        (&mut model.read_latency, table.read_latency),
        (&mut model.write_latency, table.write_latency),
        (&mut model.read_page, table.read_page),
        (&mut model.write_page, table.write_page),
    ];
    for (field, value) in times {
        *field = value.map_or(*field, |time| time.0);
    }
    if let Some(bandwidth) = &table.bandwidth {
        let pages = bandwidth.get_ref().0;
        if pages == 0 {
            let reason = "a device without bandwidth never answers: give at least 4K (one page per second)";
            return Err(place.error(bandwidth.span().start, "bandwidth", reason));
        }
        model.read_page = (1_000_000_000 / pages).max(1);
        model.write_page = model.read_page;
    }
    if let Some(parallel) = &table.parallel {
        model.parallel = *parallel.get_ref();
    }
    model.synchronous = table.synchronous.unwrap_or(model.synchronous);
    model.rotating = table.rotating.unwrap_or(model.rotating);
    Ok(model)
}

fn add_group(config: &mut MachineConfig, table: &GroupTable, place: &Place) -> Result<(), ScenarioError> {
    let name = table.name.get_ref().clone();
    config.parent_of(&name).map_err(|reason| place.error(table.name.span().start, "name", reason))?;
    let limit = |size: &Option<Spanned<Size>>, key: &str, smallest: u64, default: u64| match size {
        None => Ok(default),
        Some(size) if size.get_ref().0 >= smallest => Ok(size.get_ref().0),
        Some(size) => {
            let reason = format!("{} pages are less than one batch of reclaim ({smallest} pages)", size.get_ref().0);
            Err(place.error(size.span().start, key, reason))
        }
    };
    let smallest = super::config::MIN_LIMIT;
    let limits = GroupLimits {
        max: limit(&table.max, "max", smallest, UNLIMITED)?,
        high: limit(&table.high, "high", smallest, UNLIMITED)?,
        low: limit(&table.low, "low", 0, 0)?,
        min: limit(&table.min, "min", 0, 0)?,
        swap_max: limit(&table.swap_max, "swap_max", 0, UNLIMITED)?,
    };
    config.groups.push(GroupConfig { name, limits });
    Ok(())
}

fn find_group(config: &MachineConfig, name: &Spanned<String>, place: &Place) -> Result<usize, ScenarioError> {
    if name.get_ref() == "/" {
        return Ok(0);
    }
    let at = config.groups.iter().position(|group| group.name == *name.get_ref());
    at.map(|at| at + 1)
        .ok_or_else(|| place.error(name.span().start, "group", format!("there is no group '{}'", name.get_ref())))
}

fn add_task(config: &mut MachineConfig, task: &Spanned<TaskTable>, place: &Place) -> Result<(), ScenarioError> {
    let (at, table) = (task.span().start, task.get_ref());
    let count = table.count.as_ref().map_or(1, |count| *count.get_ref());
    if !(1..=65_536).contains(&count) {
        return Err(place.error(at, "count", format!("must be from 1 to 65536, not {count}")));
    }
    let memory = match &table.memory {
        Some(size) => Some(u32::try_from(size.get_ref().0).map_err(|_| {
            place.error(size.span().start, "memory", "an address space has at most 16 TiB of anonymous memory")
        })?),
        None => None,
    };
    let group = table.group.as_ref().map_or(Ok(0), |name| find_group(config, name, place))?;
    if table.workload.is_empty() {
        return Err(place.error(at, &table.name, "the task has nothing to do: add a [[task.workload]]"));
    }
    for copy in 0..count {
        let mut anon_pages = memory;
        let mut phases = Vec::new();
        for workload in &table.workload {
            let phase = phase(config, workload, copy, place)?;
            if let Source::Workload(spec) = &phase.workload {
                let needs = pages_by_type(spec)[0] + u64::from(phase.offset);
                if memory.is_none() && pages_by_type(spec)[0] > 0 {
                    let needs = u32::try_from(needs)
                        .map_err(|_| place.error(workload.span().start, "spec", "more than 2^32 pages"))?;
                    anon_pages = Some(anon_pages.unwrap_or(0).max(needs));
                }
            }
            phases.push((phase, workload.span().start));
        }
        let name = if count == 1 { table.name.clone() } else { format!("{}-{copy}", table.name) };
        let node = table.node.as_ref().map_or(copy as usize % config.nodes.len(), |node| *node.get_ref());
        let task = TaskConfig {
            name,
            copy_of: (count > 1).then(|| table.name.clone()),
            group,
            node,
            start: table.start.map_or(0, |time| time.0),
            cpu_per_access: cpu_time(&table.cpu, place)?.unwrap_or(100),
            accesses_per_operation: table.accesses_per_operation.as_ref().map_or(1, |n| *n.get_ref()),
            think: table.think.map_or(0, |time| time.0),
            anon_pages: anon_pages.unwrap_or(0),
            huge_pages: frames::huge_pages(config, table, place)?,
            phases: phases.iter().map(|(phase, _)| phase.clone()).collect(),
            rounds: table.rounds.as_ref().map_or(1, |n| *n.get_ref()),
            when_killed: table.restart_after.map_or(WhenKilled::Stop, |time| WhenKilled::Restart(time.0)),
        };
        for (phase, at) in &phases {
            let is_trace = !matches!(phase.workload, Source::Workload(_));
            if is_trace && phase.file.is_none() && task.anon_pages == 0 {
                let reason = "a trace does not say how much memory it needs: give the [[task]] a memory, such as \"64M\", or \
                              the workload a file";
                return Err(place.error(*at, "trace", reason));
            }
            config.check_phase(&task, phase).map_err(|reason| place.error(*at, &table.name, reason))?;
        }
        config.tasks.push(task);
    }
    Ok(())
}

/// CPU time of an access: with none, time would stand still.
fn cpu_time(time: &Option<Spanned<Time>>, place: &Place) -> Result<Option<u64>, ScenarioError> {
    match time {
        Some(time) if time.get_ref().0 == 0 => {
            Err(place.error(time.span().start, "cpu", "an access takes time: at least 1ns"))
        }
        time => Ok(time.as_ref().map(|time| time.get_ref().0)),
    }
}

fn phase(
    config: &MachineConfig,
    workload: &Spanned<WorkloadTable>,
    copy: u32,
    place: &Place,
) -> Result<PhaseConfig, ScenarioError> {
    let (at, table) = (workload.span().start, workload.get_ref());
    let source = match (&table.spec, &table.trace) {
        (Some(spec), None) => {
            let mut parsed: WorkloadSpec = spec.get_ref().parse().map_err(|error: refault_trace::TraceError| {
                place.error(spec.span().start, "spec", error.to_string())
            })?;
            parsed.seed = parsed.seed.wrapping_add(u64::from(copy));
            Source::workload(parsed)
        }
        (None, Some(trace)) => {
            let kind = match &table.kind {
                None => None,
                Some(kind) => Some(match kind.get_ref().as_str() {
                    "anon" => Kind::Anon,
                    "fd" => Kind::Fd,
                    "mapped" => Kind::Mapped,
                    other => {
                        let reason = format!("'{other}' is not a kind: anon, fd or mapped");
                        return Err(place.error(kind.span().start, "kind", reason));
                    }
                }),
            };
            // Memory is in bytes, so sizes count.
            let objects = ObjectsAs::SizedIfKnown;
            Source::file(trace.get_ref(), Options { kind, objects, ..Options::default() })
        }
        _ => return Err(place.error(at, "workload", "give either spec = \"zipf:…\" or trace = \"file\"")),
    };
    let file = match &table.file {
        None => None,
        Some(name) => Some(config.files.iter().position(|file| file.name == *name.get_ref()).ok_or_else(|| {
            place.error(name.span().start, "file", format!("there is no file '{}': add a [[file]]", name.get_ref()))
        })?),
    };
    let mut phase = PhaseConfig::new(source, file);
    if let Some(offset) = &table.offset {
        phase.offset = u32::try_from(offset.get_ref().0)
            .map_err(|_| place.error(offset.span().start, "offset", "is at most 16 TiB"))?;
    }
    if let Some(share) = &table.fd_write {
        if !(0.0..=1.0).contains(share.get_ref()) {
            return Err(place.error(share.span().start, "fd_write", "must be a share from 0 to 1"));
        }
        phase.fd_write = (share.get_ref() * 255.0) as u8;
    }
    phase.random = table.random;
    phase.pause = table.pause.map_or(0, |time| time.0);
    phase.cpu_per_access = cpu_time(&table.cpu, place)?;
    Ok(phase)
}

fn add_event(config: &mut MachineConfig, event: &Spanned<EventTable>, place: &Place) -> Result<(), ScenarioError> {
    let (start, table) = (event.span().start, event.get_ref());
    let at = table.at.0;
    let before = config.events.len();
    let settings = [
        (table.max, Setting::Max),
        (table.high, Setting::High),
        (table.low, Setting::Low),
        (table.min, Setting::Min),
        (table.swap_max, Setting::SwapMax),
    ];
    for (size, setting) in settings {
        let Some(size) = size else { continue };
        let name = table.group.as_ref().ok_or_else(|| place.error(start, "group", "whose limit? name the group"))?;
        let group = find_group(config, name, place)?;
        if group == 0 {
            return Err(place.error(name.span().start, "group", "the root has no limits"));
        }
        if matches!(setting, Setting::Max | Setting::High) && size.0 < super::config::MIN_LIMIT {
            let reason = format!("{} pages are less than one batch of reclaim", size.0);
            return Err(place.error(start, "max", reason));
        }
        config.events.push((at, Command::Set(group, setting, size.0)));
    }
    if let Some(swappiness) = &table.swappiness
        && (*swappiness.get_ref() > 200 || table.reclaim.is_none())
    {
        let reason = "give a number from 0 to 200, with reclaim";
        return Err(place.error(swappiness.span().start, "swappiness", reason));
    }
    if let Some(size) = &table.reclaim {
        let name = table.group.as_ref().ok_or_else(|| place.error(start, "group", "reclaim from which group?"))?;
        let swappiness = table.swappiness.as_ref().map(|value| *value.get_ref());
        config.events.push((at, Command::Reclaim(find_group(config, name, place)?, size.get_ref().0, swappiness)));
    }
    if let Some(lines) = &table.lru_gen {
        // Separators of the kernel's interface: comma, semicolon, newline.
        for line in lines.get_ref().split([',', ';', '\n']).map(str::trim).filter(|line| !line.is_empty()) {
            let command = line.parse().map_err(|reason: String| place.error(lines.span().start, "lru_gen", reason))?;
            config.events.push((at, Command::Generations(command)));
        }
    }
    if let Some(text) = &table.lru_gen_enabled {
        let enabled = text.get_ref().parse();
        let enabled = enabled.map_err(|reason: String| place.error(text.span().start, "lru_gen_enabled", reason))?;
        config.events.push((at, Command::Enabled(enabled)));
    }
    if let Some(lines) = &table.lru_sort {
        for line in lines.get_ref().split([',', ';', '\n']).map(str::trim).filter(|line| !line.is_empty()) {
            let (file, value) = line.split_once('=').ok_or_else(|| {
                place.error(
                    lines.span().start,
                    "lru_sort",
                    format!("'{line}': expected a file and a value, as enabled=Y"),
                )
            })?;
            config.events.push((at, Command::LruSort(file.trim().to_owned(), value.trim().to_owned())));
        }
    }
    for (asked, listed) in [(table.list, Listed::Brief), (table.list_full, Listed::Full)] {
        if asked {
            config.events.push((at, Command::List(listed)));
        }
    }
    if config.events.len() == before {
        let reason =
            "nothing happens: give a limit, reclaim, lru_gen, lru_gen_enabled, lru_sort, list or list_full = true";
        return Err(place.error(start, "event", reason));
    }
    Ok(())
}
