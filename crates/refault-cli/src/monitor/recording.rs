//! What a monitor saw of a program's memory: regions over time, in memory and as a file that is asked later.
//!
//! The file ([`Recording::write`], `--format raw`) is lines of JSON. A head has the program and what monitored it. The
//! lines that the monitor writes while it works follow: one for each aggregation of each process, and what monitor and
//! schemes came to.
//!
//! What is known and what is guessed: a check that finds an access knows of one page; the region around it is taken to
//! be alike. Two things bound the guess. The first aggregation says nothing, because its regions are those of the
//! address space. And of a region counts at most what the monitor says can have been accessed: what was touched by
//! then, or what is known to have been accessed.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;

use refault_sim::monitoring::heat_map::HeatMap;
use serde_json::{Value, json};

/// Cells that addresses are divided into before they become columns.
const CELLS: usize = 512;
/// Columns of the map on a terminal and in the report.
pub const COLUMNS: usize = 64;
/// Moments that the map shows before it is shrunk.
const MOMENTS: u64 = 96;
/// The version of the file.
const VERSION: u64 = 1;

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
    /// What of it can have been accessed; none where the source does not say.
    pub most: Option<Most>,
}

/// What of a region can have been accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// This number of bytes …
    pub bytes: u64,
    /// … from this address …
    pub from: u64,
    /// … to this one.
    pub to: u64,
}

impl Seen {
    /// Bytes.
    pub fn size(&self) -> u64 {
        self.end - self.start
    }

    /// Bytes of it that were accessed, at most.
    fn used(&self) -> u64 {
        if self.nr_accesses == 0 { 0 } else { self.most.map_or(self.size(), |most| most.bytes) }
    }

    /// Where they lie.
    fn place(&self) -> Range<u64> {
        self.most.map_or(self.start..self.end, |most| most.from..most.to)
    }
}

/// An aggregation.
#[derive(Clone, Debug, PartialEq)]
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    /// Its id.
    pub pid: u64,
    /// When it began to be this program: a process that executes another is two, of one id. 0 where the source names
    /// none.
    pub birth: u64,
    /// Aggregations, in order.
    pub snapshots: Vec<Snapshot>,
    /// The last sums of monitor and schemes.
    pub sums: Value,
}

/// What was seen of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The program, or what else was monitored.
    pub program: String,
    /// What monitored it.
    pub source: String,
    /// The schemes' actions, in order.
    pub actions: Vec<String>,
    /// The process with most to see first.
    pub processes: Vec<Process>,
    /// The same by the kernel's monitor, if it was asked too.
    pub kernel: Option<Process>,
}

impl Recording {
    /// Reads a file that [`Recording::write`] wrote.
    ///
    /// # Errors
    /// It is no such file: says why.
    pub fn read(text: &str) -> Result<Recording, String> {
        let head: Value = text
            .lines()
            .next()
            .and_then(|line| serde_json::from_str(line).ok())
            .filter(|head: &Value| head["refault_monitor"].is_u64())
            .ok_or("is not a recording of refault monitor (--format raw)")?;
        if head["refault_monitor"] != VERSION {
            return Err(format!("has version {}, this refault reads {VERSION}", head["refault_monitor"]));
        }
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let actions = head["actions"].as_array().into_iter().flatten().map(word).collect();
        let (kernel, own): (Vec<&str>, Vec<&str>) = text.lines().skip(1).partition(|line| line.contains(KERNEL_LINE));
        Ok(Recording {
            program: word(&head["program"]),
            source: word(&head["source"]),
            actions,
            processes: read(&own.join("\n")),
            kernel: read(&kernel.join("\n")).into_iter().next(),
        })
    }

    /// Writes it as a file that can be asked later.
    ///
    /// # Errors
    /// As the writer.
    pub fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let (program, source, actions) = (&self.program, &self.source, &self.actions);
        writeln!(
            out,
            "{}",
            json!({"refault_monitor": VERSION, "program": program, "source": source, "actions": actions})
        )?;
        self.processes.iter().try_for_each(|process| process.write(out, false))?;
        self.kernel.iter().try_for_each(|process| process.write(out, true))
    }
}

/// What a line holds that comes from the kernel's monitor.
const KERNEL_LINE: &str = "\"by_kernel\":true";

/// Reads the lines of a monitor: processes, the one with most to see first.
pub fn read(text: &str) -> Vec<Process> {
    let mut processes: BTreeMap<(u64, u64), Process> = BTreeMap::new();
    for line in text.lines() {
        // The last line of a process that was killed may be cut.
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        let number = |key: &str| line[key].as_u64().unwrap_or(0);
        let process = processes.entry((number("pid"), number("birth"))).or_default();
        (process.pid, process.birth) = (number("pid"), number("birth"));
        let Some(regions) = line["regions"].as_array() else {
            process.sums = line;
            continue;
        };
        let seen = |region: &Value| Seen {
            start: region[0].as_u64().unwrap_or(0),
            end: region[1].as_u64().unwrap_or(0),
            nr_accesses: region[2].as_u64().unwrap_or(0) as u32,
            age: region[3].as_u64().unwrap_or(0) as u32,
            most: region[4].as_u64().map(|bytes| Most {
                bytes,
                from: region[5].as_u64().unwrap_or(0),
                to: region[6].as_u64().unwrap_or(0),
            }),
        };
        let regions = regions.iter().map(seen).filter(|region| region.start < region.end).collect();
        let (window, sample_us) = (number("window").max(1) as u32, number("sample_us"));
        process.snapshots.push(Snapshot { now_ns: number("now_ns"), window, sample_us, regions });
    }
    let mut processes: Vec<Process> = processes.into_values().collect();
    // A shell that only executes the program is over before its first aggregation.
    processes.sort_by_key(|process| std::cmp::Reverse((process.weight(), process.snapshots.len())));
    processes
}

impl Process {
    /// Its lines, as [`read`] reads them.
    fn write(&self, out: &mut dyn Write, by_kernel: bool) -> std::io::Result<()> {
        let mut line = |mut value: Value| {
            if by_kernel {
                value["by_kernel"] = json!(true);
            }
            writeln!(out, "{value}")
        };
        for snapshot in &self.snapshots {
            let region = |seen: &Seen| match seen.most {
                Some(Most { bytes, from, to }) => {
                    json!([seen.start, seen.end, seen.nr_accesses, seen.age, bytes, from, to])
                }
                None => json!([seen.start, seen.end, seen.nr_accesses, seen.age]),
            };
            line(json!({
                "pid": self.pid,
                "birth": self.birth,
                "now_ns": snapshot.now_ns,
                "window": snapshot.window,
                "sample_us": snapshot.sample_us,
                "regions": snapshot.regions.iter().map(region).collect::<Vec<_>>(),
            }))?;
        }
        if self.sums.is_object() {
            line(self.sums.clone())?;
        }
        Ok(())
    }

    /// Accessed bytes, summed over aggregations.
    fn weight(&self) -> u128 {
        let regions = self.snapshots.iter().flat_map(|snapshot| &snapshot.regions);
        regions.map(|region| u128::from(region.size()) * u128::from(region.nr_accesses)).sum()
    }

    /// The aggregations from the second on, if there are some: in the first, regions are those of the address space,
    /// and one access makes gigabytes that were only reserved look used.
    fn settled(&self) -> &[Snapshot] {
        if self.snapshots.len() > 2 { &self.snapshots[1..] } else { &self.snapshots }
    }

    /// Whether the monitor says what of its regions can have been accessed.
    pub fn is_bounded(&self) -> bool {
        self.snapshots.iter().flat_map(|snapshot| &snapshot.regions).any(|seen| seen.most.is_some())
    }

    /// Where some access was found: ranges of addresses, in order. An estimate: a check looks at one page of a region,
    /// and its neighbours are taken to be alike, as far as they were touched by then.
    pub fn places(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<_> = self
            .settled()
            .iter()
            .flat_map(|snapshot| &snapshot.regions)
            .filter(|region| region.nr_accesses > 0)
            .map(Seen::place)
            .filter(|place| place.start < place.end)
            .collect();
        ranges.sort_by_key(|range| range.start);
        let mut places: Vec<Range<u64>> = Vec::new();
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
                let place = region.place();
                let (from, to) = (offset(&places, place.start), offset(&places, place.end));
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

    /// Bytes accessed in each aggregation, as far as is known, with its end in seconds after the first one's.
    pub fn working_set_over_time(&self) -> Vec<(f64, u64)> {
        let first = self.snapshots.first().map_or(0, |snapshot| snapshot.now_ns);
        let settled = self.settled().iter();
        settled
            .map(|snapshot| {
                let used = snapshot.regions.iter().map(Seen::used).sum();
                ((snapshot.now_ns.saturating_sub(first)) as f64 / 1e9, used)
            })
            .collect()
    }

    /// The same without times, ascending.
    pub fn working_sets(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.working_set_over_time().into_iter().map(|(_, bytes)| bytes).collect();
        sizes.sort_unstable();
        sizes
    }

    /// The regions of the last aggregation but one (in the last, the program may already be ending), hottest first,
    /// then coldest last; empty ends of the address space left out.
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

    /// Seconds from the first aggregation to the last.
    pub fn seconds(&self) -> f64 {
        let ends = self.snapshots.first().zip(self.snapshots.last());
        ends.map_or(0.0, |(first, last)| last.now_ns.saturating_sub(first.now_ns) as f64 / 1e9)
    }

    /// Share of one processor that the monitor took.
    pub fn monitor_cpu(&self) -> Option<f64> {
        let monitor = &self.sums["monitor"];
        let (cpu, elapsed) = (monitor["cpu_ns"].as_f64()?, monitor["elapsed_ns"].as_f64()?);
        (elapsed > 0.0).then_some(cpu / elapsed)
    }

    /// The part of it between two times after the first aggregation, in seconds, and between two addresses.
    pub fn within(mut self, seconds: Range<f64>, addresses: &Range<u64>) -> Process {
        let first = self.snapshots.first().map_or(0, |snapshot| snapshot.now_ns);
        self.snapshots.retain(|snapshot| seconds.contains(&((snapshot.now_ns.saturating_sub(first)) as f64 / 1e9)));
        for snapshot in &mut self.snapshots {
            snapshot.regions.retain_mut(|region| {
                (region.start, region.end) = (region.start.max(addresses.start), region.end.min(addresses.end));
                if let Some(most) = &mut region.most {
                    let from = most.from.max(addresses.start);
                    let to = most.to.min(addresses.end).max(from);
                    *most = Most { bytes: most.bytes.min(to - from), from, to };
                }
                region.start < region.end
            });
        }
        self
    }
}

/// Bytes of `places` below an address.
pub fn offset(places: &[Range<u64>], address: u64) -> u64 {
    places.iter().map(|place| address.clamp(place.start, place.end) - place.start).sum()
}

/// The value below which a share of sorted values lies.
pub fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let index = (sorted.len().saturating_sub(1)) * percent / 100;
    sorted.get(index).copied().unwrap_or(0)
}

/// Percentiles that are shown of the working set.
pub const PERCENTILES: [usize; 7] = [0, 10, 25, 50, 75, 90, 100];

#[cfg(test)]
pub mod tests {
    use super::*;

    #[test]
    fn a_program_that_executes_another_is_two_in_a_recording_as_well() {
        let line = |birth: u64, at: u64, end: u64| {
            let (window, sample_us) = (20, 5000);
            json!({"pid": 7, "birth": birth, "now_ns": at, "window": window, "sample_us": sample_us,
                "regions": [[0, end, 20, 1]]})
        };
        // The shell that executes the program, then the program; and their sums.
        let lines =
            [line(1, 100, 4096), line(1, 200, 4096), line(2, 300, 8192), line(2, 400, 8192), line(2, 500, 8192)];
        let sums = [1, 2].map(|birth| json!({"pid": 7, "birth": birth, "monitor": {"cpu_ns": birth}, "schemes": []}));
        let text: String = lines.iter().chain(&sums).map(|line| format!("{line}\n")).collect();
        let recording = Recording { processes: read(&text), ..Recording::default() };
        let times = |recording: &Recording| {
            let of = |process: &Process| process.snapshots.iter().map(|snapshot| snapshot.now_ns).collect::<Vec<_>>();
            recording.processes.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(times(&recording), [vec![300, 400, 500], vec![100, 200]]);
        let mut bytes = Vec::new();
        recording.write(&mut bytes).expect("writes");
        assert_eq!(Recording::read(&String::from_utf8(bytes).expect("text")), Ok(recording));
    }

    pub fn text() -> String {
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
        assert!((process.seconds() - 0.3).abs() < 1e-9);
    }

    #[test]
    fn what_was_never_touched_is_not_accessed_however_large_the_region() {
        let aggregation = |at: u64, rest: &str| {
            format!(
                "{{\"pid\":7,\"now_ns\":{at},\"window\":20,\"sample_us\":5000,\"regions\":[[0,4294967296,20,0{rest}]]}}\n"
            )
        };
        let bounded = ",8192,4096,16384";
        let text = [aggregation(1, ""), aggregation(2, bounded), aggregation(3, bounded), aggregation(4, ",0,0,0")];
        let process = &read(&text.concat())[0];
        assert!(process.is_bounded());
        assert_eq!(process.working_sets(), [0, 8192, 8192]);
        assert_eq!((process.places().len(), process.places()[0].clone()), (1, 4096..16_384));
    }

    #[test]
    fn a_recording_is_read_back_as_it_was_and_can_be_cut() {
        let mut processes = read(&text());
        processes[0].snapshots[1].regions[0].most = Some(Most { bytes: 4096, from: 4096, to: 8192 });
        let recording = Recording {
            program: "prog --flag".into(),
            source: "refault".into(),
            actions: vec!["stat".into()],
            kernel: Some(processes[1].clone()),
            processes,
        };
        let mut bytes = Vec::new();
        recording.write(&mut bytes).expect("writes");
        let text = String::from_utf8(bytes).expect("text");
        assert_eq!(Recording::read(&text), Ok(recording.clone()));
        let cut = recording.processes[0].clone().within(0.05..0.25, &(6000..1_050_000));
        assert_eq!((cut.snapshots.len(), cut.snapshots[0].regions[0].start), (2, 6000));
        assert_eq!(cut.snapshots[0].regions[0].most, Some(Most { bytes: 2192, from: 6000, to: 8192 }));
        assert!(Recording::read("{\"pid\":7}\n").is_err() && Recording::read("").is_err());
        assert!(Recording::read("{\"refault_monitor\":2}\n").expect_err("newer").contains("version 2"));
    }
}
