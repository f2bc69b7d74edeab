//! `refault monitor -- PROGRAM`: the monitor over a program's memory while it runs.
//!
//! The monitor works inside the program ([`refault_paging::Watch`]) and writes the regions of each aggregation to a file; this
//! command reads it when the program has ended, and says what was hot when, how much memory was in use, and what it cost.
//! The program's output is its own: tables go to standard error or to `--out`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use refault_console::{Contents, Failure, Format, say, say_text};
use refault_sim::monitoring::heat_map::{HeatMap, text_one};
use serde_json::{Value, json};

use super::MonitorArgs;
use super::kernel::Kernel;
use crate::inherited::Unnamed;
use crate::launch::{self, Launch};
use refault_console::text::{align_numbers, grouped, plain_table};
use refault_lab::size::{Size, bytes_text};

/// Cells that addresses are divided into before they become columns.
const CELLS: usize = 512;
/// Columns of the map on a terminal and in the report.
pub const COLUMNS: usize = 64;
/// Moments that the map shows before it is shrunk.
const MOMENTS: u64 = 96;
/// Rows of the map on a terminal.
const ROWS: usize = 24;
/// Rows of the table of hot and cold memory.
const REGIONS: usize = 12;

/// A region as the monitor saw it at the end of an aggregation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// First address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// Checks of the aggregation that found an access.
    pub nr_accesses: u32,
    /// Aggregations for which the pattern has been kept.
    pub age: u32,
}

impl Seen {
    fn size(&self) -> u64 {
        self.end - self.start
    }
}

/// An aggregation.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Nanoseconds of the monotonic clock.
    pub now_ns: u64,
    /// Checks of an aggregation.
    pub window: u32,
    /// Microseconds between two checks.
    pub sample_us: u64,
    /// In order of address.
    pub regions: Vec<Seen>,
}

/// What was seen of a process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Its id.
    pub pid: u64,
    /// Aggregations, in order.
    pub snapshots: Vec<Snapshot>,
    /// The last sums of monitor and schemes.
    pub sums: Value,
}

/// Reads the monitor's file: processes, the one with most to see first.
pub fn read(text: &str) -> Vec<Process> {
    let mut processes: BTreeMap<(u64, u64), Process> = BTreeMap::new();
    for line in text.lines() {
        // The last line of a process that was killed may be cut.
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        let number = |key: &str| line[key].as_u64().unwrap_or(0);
        let process = processes.entry((number("pid"), number("birth"))).or_default();
        process.pid = number("pid");
        let Some(regions) = line["regions"].as_array() else {
            process.sums = line;
            continue;
        };
        let seen = |region: &Value| Seen {
            start: region[0].as_u64().unwrap_or(0),
            end: region[1].as_u64().unwrap_or(0),
            nr_accesses: region[2].as_u64().unwrap_or(0) as u32,
            age: region[3].as_u64().unwrap_or(0) as u32,
        };
        let regions = regions.iter().map(seen).filter(|region| region.start < region.end).collect();
        let (window, sample_us) = (number("window").max(1) as u32, number("sample_us"));
        process.snapshots.push(Snapshot { now_ns: number("now_ns"), window, sample_us, regions });
    }
    let mut processes: Vec<Process> = processes.into_values().collect();
    processes.sort_by_key(|process| std::cmp::Reverse(process.weight()));
    processes
}

impl Process {
    /// Accessed bytes, summed over aggregations.
    fn weight(&self) -> u128 {
        let regions = self.snapshots.iter().flat_map(|snapshot| &snapshot.regions);
        regions.map(|region| u128::from(region.size()) * u128::from(region.nr_accesses)).sum()
    }

    /// The aggregations from the second on, if there are some: in the first, regions are those of the address space, and
    /// one access makes gigabytes that were only reserved look used.
    fn settled(&self) -> &[Snapshot] {
        if self.snapshots.len() > 2 { &self.snapshots[1..] } else { &self.snapshots }
    }

    /// The regions in which some access was found: ranges of addresses, in order. An estimate: a check looks at one page
    /// of a region, and its neighbours are taken to be alike.
    pub fn places(&self) -> Vec<std::ops::Range<u64>> {
        let mut ranges: Vec<_> = self
            .settled()
            .iter()
            .flat_map(|snapshot| &snapshot.regions)
            .filter(|region| region.nr_accesses > 0)
            .map(|region| region.start..region.end)
            .collect();
        ranges.sort_by_key(|range| range.start);
        let mut places: Vec<std::ops::Range<u64>> = Vec::new();
        for range in ranges {
            match places.last_mut().filter(|last| range.start <= last.end) {
                Some(last) => last.end = last.end.max(range.end),
                None => places.push(range),
            }
        }
        places
    }

    /// Frequencies over time (down) and the places that were ever accessed (across).
    pub fn heat_map(&self) -> HeatMap {
        let places = self.places();
        let total: u64 = places.iter().map(|place| place.end - place.start).sum();
        let mut map = HeatMap::new(COLUMNS);
        let snapshots = self.settled();
        let (Some(first), Some(last)) = (snapshots.first(), snapshots.last()) else { return map };
        let start = first.now_ns.saturating_sub(u64::from(first.window) * first.sample_us * 1000);
        let span = last.now_ns.saturating_sub(start);
        // Aggregations may be of different length: each moment shows the one that it lies in.
        let moments = (0..MOMENTS).map(|moment| start + span * (2 * moment + 1) / (2 * MOMENTS));
        for moment in moments {
            let at = snapshots.partition_point(|snapshot| snapshot.now_ns < moment);
            let snapshot = snapshots.get(at).unwrap_or(last);
            let mut counts = vec![0; CELLS];
            for region in snapshot.regions.iter().filter(|region| region.nr_accesses > 0) {
                let (from, to) = (offset(&places, region.start), offset(&places, region.end));
                if from == to {
                    continue;
                }
                let cell = |offset: u64| (u128::from(offset) * CELLS as u128 / u128::from(total.max(1))) as usize;
                let (from, to) = (cell(from).min(CELLS - 1), cell(to).clamp(1, CELLS));
                counts[from..to.max(from + 1)].iter_mut().for_each(|count| *count = (*count).max(region.nr_accesses));
            }
            map.push_pages(&counts, snapshot.window);
        }
        map
    }

    /// Bytes in regions with an access, a value for each aggregation, ascending.
    pub fn working_sets(&self) -> Vec<u64> {
        let used =
            |snapshot: &Snapshot| snapshot.regions.iter().filter(|region| region.nr_accesses > 0).map(Seen::size).sum();
        let mut sizes: Vec<u64> = self.settled().iter().map(used).collect();
        sizes.sort_unstable();
        sizes
    }

    /// The regions of the last aggregation but one (in the last, the program may already be ending), hottest first, then
    /// coldest last; empty ends of the address space left out.
    pub fn hot_and_cold(&self) -> (Option<&Snapshot>, Vec<Seen>) {
        let snapshot = self.snapshots.iter().rev().nth(1).or(self.snapshots.last());
        let Some(snapshot) = snapshot else { return (None, Vec::new()) };
        let places = self.places();
        let touched = |region: &&Seen| {
            let at = places.partition_point(|place| place.end <= region.start);
            places.get(at).is_some_and(|place| place.start < region.end)
        };
        let mut regions: Vec<Seen> = snapshot.regions.iter().filter(touched).copied().collect();
        regions.sort_by_key(|region| (std::cmp::Reverse(region.nr_accesses), region.age, region.start));
        (Some(snapshot), regions)
    }

    /// Share of one processor that the monitor took.
    pub fn monitor_cpu(&self) -> Option<f64> {
        let monitor = &self.sums["monitor"];
        let (cpu, elapsed) = (monitor["cpu_ns"].as_f64()?, monitor["elapsed_ns"].as_f64()?);
        (elapsed > 0.0).then_some(cpu / elapsed)
    }
}

/// Bytes of `places` below an address.
fn offset(places: &[std::ops::Range<u64>], address: u64) -> u64 {
    places.iter().map(|place| address.clamp(place.start, place.end) - place.start).sum()
}

/// Runs the program and says what was seen.
pub fn run(args: &MonitorArgs) -> Result<(), Failure> {
    launch::check_policy(&args.policy)?;
    let memory = match args.memory {
        Size::Share(_) => launch::machine_bytes(),
        size => size.pages(1).saturating_mul(refault_lab::size::PAGE_BYTES),
    };
    let mut outputs = args.outputs();
    let output = outputs.claim("--out", args.out.as_deref(), args.format.into())?;
    let report = outputs.claim("--report", args.report.as_deref(), Contents::Html)?;
    let mut launch = Launch::new(&args.program, memory)?;
    let found = Unnamed::new()?;
    launch.push("policy", &args.policy);
    launch.output("monitor-out", found.path())?;
    let config = launch.monitor(&args.monitor, &args.policy, args.monitor_cpu.0)?;
    let mut kernel = args.source.kernel_too().then(|| Kernel::claim(Path::new(super::kernel::SYSFS))).transpose()?;
    let code = launch.run_with(|pid| {
        if let Some(kernel) = &mut kernel {
            kernel.watch(pid, &config.attributes);
        }
    })?;
    let text = std::fs::read_to_string(found.path()).map_err(|error| Failure::write("a temporary file", &error))?;
    let processes = read(&text);
    let command = args.program.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let Some(process) = processes.first().filter(|process| !process.snapshots.is_empty()) else {
        let remedy = "it ended before the first aggregation was over, or executes a program that cannot be managed";
        return Err(Failure::failed("nothing was monitored", command, remedy));
    };
    let kernel = kernel.map(|kernel| kernel.finish()).filter(|kernel| !kernel.snapshots.is_empty());
    let actions: Vec<&str> = config.schemes.iter().map(|scheme| scheme.action.name()).collect();
    let write = |out: &mut dyn Write| match args.format {
        Format::Table => write_table(out, process, kernel.as_ref(), &command, processes.len(), &actions),
        Format::Csv => write_csv(out, process),
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &to_json(&command, &processes, kernel.as_ref(), &actions))?;
            writeln!(out)
        }
    };
    match output {
        Some(output) => output.write(write)?,
        None => {
            let mut text = Vec::new();
            write(&mut text).map_err(|error| Failure::write("memory", &error))?;
            say_text(&text);
        }
    }
    if let Some(report) = report {
        let path = report.path().display().to_string();
        crate::report::write_monitor(report, &command, process, kernel.as_ref())?;
        say(format_args!("report written to {path}"));
    }
    if code == 0 { Ok(()) } else { Err(Failure::Exit(code)) }
}

/// The value below which a share of sorted values lies.
pub fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let index = (sorted.len().saturating_sub(1)) * percent / 100;
    sorted.get(index).copied().unwrap_or(0)
}

/// Aggregations after which regions have usually settled: fewer are said to be too few.
const MIN_AGGREGATIONS: usize = 20;

/// Percentiles that are shown of the working set.
pub const PERCENTILES: [usize; 7] = [0, 10, 25, 50, 75, 90, 100];

fn write_table(
    out: &mut dyn Write,
    process: &Process,
    kernel: Option<&Process>,
    command: &str,
    processes: usize,
    actions: &[&str],
) -> std::io::Result<()> {
    let others = if processes > 1 { format!("; {} processes more", processes - 1) } else { String::new() };
    writeln!(
        out,
        "{command}: process {}, {} aggregations{others}\n",
        process.pid,
        grouped(process.snapshots.len() as u64)
    )?;
    let map = process.heat_map().shrunk(ROWS);
    writeln!(out, "{}", beside(&text_one(&map), kernel.map(|kernel| text_one(&kernel.heat_map().shrunk(ROWS)))))?;
    let places: u64 = process.places().iter().map(|place| place.end - place.start).sum();
    writeln!(
        out,
        "Time downwards, {:.1} s; across the regions in which some access was found, {} in all, in order of address.\n\
         That is an estimate: a check looks at one page of a region. 9: accessed in every check, '.': in none.\n",
        seconds(process),
        bytes_text(places)
    )?;
    let sizes = process.working_sets();
    let mut table = plain_table();
    table.set_header(["working set, percentile", "bytes"]);
    for percent in PERCENTILES {
        table.add_row([format!("{percent}"), bytes_text(percentile(&sizes, percent))]);
    }
    align_numbers(&mut table);
    writeln!(out, "{}\n", table.trim_fmt())?;
    if process.snapshots.len() < MIN_AGGREGATIONS {
        let seen = process.snapshots.len();
        writeln!(out, "Too short to tell: {seen} aggregations, and regions need some {MIN_AGGREGATIONS} to settle.\n")?;
    }
    let (snapshot, regions) = process.hot_and_cold();
    if let Some(snapshot) = snapshot {
        write_regions(out, snapshot, &regions)?;
    }
    if let Some(cpu) = process.monitor_cpu() {
        let monitor = &process.sums["monitor"];
        writeln!(
            out,
            "\nThe monitor took {:.2} % of one processor: {} checks, intervals at the end {} ms and {} ms.",
            cpu * 100.0,
            grouped(monitor["checks"].as_u64().unwrap_or(0)),
            monitor["sample_us"].as_u64().unwrap_or(0) as f64 / 1000.0,
            monitor["aggr_us"].as_u64().unwrap_or(0) as f64 / 1000.0,
        )?;
    }
    write_schemes(out, &process.sums, actions)
}

/// Two blocks of lines side by side, the second if there is one.
fn beside(left: &str, right: Option<String>) -> String {
    let Some(right) = right else { return left.trim_end().to_owned() };
    let mut text = format!("{:<COLUMNS$}  {}\n", "refault", "kernel (DAMON)");
    let mut right = right.lines();
    for line in left.lines() {
        text.push_str(&format!("{line:<COLUMNS$}  {}\n", right.next().unwrap_or_default()));
    }
    text
}

fn write_regions(out: &mut dyn Write, snapshot: &Snapshot, regions: &[Seen]) -> std::io::Result<()> {
    let mut table = plain_table();
    table.set_header(["start", "size", "accessed in % of checks", "for"]);
    let half = REGIONS / 2;
    let shown: Vec<&Seen> = if regions.len() <= REGIONS {
        regions.iter().collect()
    } else {
        regions[..half].iter().chain(&regions[regions.len() - half..]).collect()
    };
    for region in shown {
        let age = f64::from(region.age) * f64::from(snapshot.window) * snapshot.sample_us as f64 / 1e6;
        table.add_row([
            format!("{:#x}", region.start),
            bytes_text(region.size()),
            format!("{:.0}", f64::from(region.nr_accesses) * 100.0 / f64::from(snapshot.window)),
            format!("{age:.1} s"),
        ]);
    }
    align_numbers(&mut table);
    writeln!(out, "{}", table.trim_fmt())?;
    let rest = regions.len().saturating_sub(REGIONS);
    let cut = if rest > 0 { format!("; {rest} between them are not shown") } else { String::new() };
    writeln!(out, "Regions at the end, hottest first, coldest last{cut}.")
}

fn write_schemes(out: &mut dyn Write, sums: &Value, actions: &[&str]) -> std::io::Result<()> {
    let none = Vec::new();
    let schemes = sums["schemes"].as_array().unwrap_or(&none);
    if schemes.is_empty() {
        return Ok(());
    }
    let mut table = plain_table();
    const NAMES: [&str; 6] = ["nr_tried", "sz_tried", "nr_applied", "sz_applied", "qt_exceeds", "nr_snapshots"];
    table.set_header(["scheme"].into_iter().chain(NAMES));
    for (index, scheme) in schemes.iter().enumerate() {
        let name = format!("{index} {}", actions.get(index).unwrap_or(&""));
        let cells = NAMES.iter().map(|name| scheme[name].as_u64().unwrap_or(0).to_string());
        table.add_row([name].into_iter().chain(cells));
    }
    align_numbers(&mut table);
    writeln!(out, "\n{}", table.trim_fmt())
}

/// Seconds from the first aggregation to the last.
pub fn seconds(process: &Process) -> f64 {
    let ends = process.snapshots.first().zip(process.snapshots.last());
    ends.map_or(0.0, |(first, last)| last.now_ns.saturating_sub(first.now_ns) as f64 / 1e9)
}

fn write_csv(out: &mut dyn Write, process: &Process) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["pid", "seconds", "start", "end", "nr_accesses", "window", "age"])?;
    let first = process.snapshots.first().map_or(0, |snapshot| snapshot.now_ns);
    for snapshot in &process.snapshots {
        let seconds = format!("{:.3}", (snapshot.now_ns - first) as f64 / 1e9);
        for region in &snapshot.regions {
            let numbers =
                [region.start, region.end, region.nr_accesses.into(), snapshot.window.into(), region.age.into()];
            let numbers = numbers.into_iter().map(|number| number.to_string());
            csv.write_record([process.pid.to_string(), seconds.clone()].into_iter().chain(numbers))?;
        }
    }
    csv.flush()
}

fn to_json(command: &str, processes: &[Process], kernel: Option<&Process>, actions: &[&str]) -> Value {
    let one = |process: &Process| {
        let first = process.snapshots.first().map_or(0, |snapshot| snapshot.now_ns);
        let sizes = process.working_sets();
        let percentiles: serde_json::Map<String, Value> =
            PERCENTILES.iter().map(|percent| (percent.to_string(), json!(percentile(&sizes, *percent)))).collect();
        let snapshots = process.snapshots.iter().map(|snapshot| {
            let region = |region: &Seen| {
                json!({"start": region.start, "end": region.end, "nr_accesses": region.nr_accesses, "age": region.age})
            };
            json!({
                "seconds": (snapshot.now_ns - first) as f64 / 1e9,
                "window": snapshot.window,
                "sample_us": snapshot.sample_us,
                "regions": snapshot.regions.iter().map(region).collect::<Vec<_>>(),
            })
        });
        json!({
            "pid": process.pid,
            "monitor_cpu_share": process.monitor_cpu(),
            "working_set_bytes": percentiles,
            "heat_map": process.heat_map().shrunk(ROWS).rows(),
            "monitor": process.sums["monitor"],
            "schemes": process.sums["schemes"],
            "snapshots": snapshots.collect::<Vec<_>>(),
        })
    };
    json!({
        "program": command,
        "actions": actions,
        "processes": processes.iter().map(one).collect::<Vec<_>>(),
        "kernel": kernel.map(one),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        let line = |pid: u64, at: u64, regions: &str| {
            format!(
                "{{\"pid\":{pid},\"birth\":1,\"now_ns\":{at},\"target\":0,\"window\":20,\"sample_us\":5000,\"regions\":[{regions}]}}\n"
            )
        };
        let mut text = line(9, 0, "[0,4096,0,3]");
        // The first aggregation takes the whole address space for one region: it says nothing yet.
        text += &line(7, 0, "[0,4294967296,20,0]");
        text += &line(7, 100_000_000, "[4096,8192,20,1],[8192,1048576,0,4],[1048576,1052672,5,2]");
        text += &line(7, 200_000_000, "[4096,8192,0,1],[8192,1048576,0,5],[1048576,1052672,20,0]");
        text += &line(7, 300_000_000, "[4096,8192,0,2],[8192,1048576,0,6],[1048576,1052672,20,1]");
        text += "{\"pid\":7,\"birth\":1,\"monitor\":{\"cpu_ns\":5,\"elapsed_ns\":1000,\"checks\":60},\"schemes\":[]}\n{\"pid\":7,\"bir";
        text
    }

    #[test]
    fn the_busiest_process_comes_first_and_gaps_take_no_room() {
        let processes = read(&text());
        assert_eq!(processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [7, 9]);
        let process = &processes[0];
        assert_eq!(process.places(), [4096..8192, 1_048_576..1_052_672]);
        let map = process.heat_map();
        let row = |index: usize| (map.rows()[index][0], map.rows()[index][COLUMNS - 1]);
        assert_eq!((map.rows().len(), row(0), row(95)), (96, (1.0, 0.25), (0.0, 1.0)));
        assert_eq!(process.working_sets(), [4096, 4096, 8192]);
        assert_eq!(percentile(&process.working_sets(), 100), 8192);
        assert_eq!(process.monitor_cpu(), Some(0.005));
        let (_, regions) = process.hot_and_cold();
        assert_eq!(regions.iter().map(|region| region.nr_accesses).collect::<Vec<_>>(), [20, 0]);
        assert!((seconds(process) - 0.3).abs() < 1e-9);
    }

    #[test]
    fn tables_and_json_hold_what_was_seen() {
        let processes = read(&text());
        let mut out = Vec::new();
        write_table(&mut out, &processes[0], Some(&processes[1]), "prog", 2, &["stat"]).expect("writes");
        let table = String::from_utf8(out).expect("text");
        for part in
            ["prog: process 7, 4 aggregations; 1 processes more", "kernel (DAMON)", "working set", "0x100000", "0.50 %"]
        {
            assert!(table.contains(part), "{part}\n{table}");
        }
        let json = to_json("prog", &processes, None, &[]);
        assert_eq!(json["processes"][0]["working_set_bytes"]["50"], 4096);
        assert_eq!(json["processes"][0]["snapshots"][0]["regions"][0]["nr_accesses"], 20);
    }
}
