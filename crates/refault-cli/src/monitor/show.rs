//! What was seen of a program, for people (a map, the working set, hot and cold memory) and for programs (CSV, JSON).

use std::io::Write;
use std::ops::Range;

use refault_console::text::{align_numbers, grouped, plain_table};
use refault_lab::size::bytes_text;
use refault_sim::monitoring::heat_map::text_one;
use serde_json::{Value, json};

use super::recording::{COLUMNS, PERCENTILES, Process, Recording, Seen, Snapshot, offset, percentile};

/// Rows of the map on a terminal.
const ROWS: usize = 24;
/// Rows of the table of hot and cold memory.
const REGIONS: usize = 12;
/// Ranges that are named below the map.
const PLACES: usize = 8;
/// Aggregations after which regions have usually settled: fewer are said to be too few.
const MIN_AGGREGATIONS: usize = 20;

/// Seconds after which the monitor's share of a processor means something: its start is dear.
const MIN_SECONDS: f64 = 0.25;

/// Everything as tables. Without a process that was seen, only who was monitored.
pub fn table(out: &mut dyn Write, recording: &Recording) -> std::io::Result<()> {
    let Some(process) = recording.processes.first() else { return head(out, recording) };
    head(out, recording)?;
    heats(out, process, recording.kernel.as_ref())?;
    working_set(out, process)?;
    if process.snapshots.len() < MIN_AGGREGATIONS {
        let seen = process.snapshots.len();
        writeln!(out, "Too short to tell: {seen} aggregations, and regions need some {MIN_AGGREGATIONS} to settle.\n")?;
    }
    regions(out, process)?;
    if let Some(cpu) = process.monitor_cpu().filter(|_| process.seconds() >= MIN_SECONDS) {
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
    let unseen = unseen_percent(process);
    if unseen >= 1.0 {
        writeln!(
            out,
            "{unseen:.0} % of the checks met pages that cannot be monitored (shared since a fork, locked, or in use by a \
             call):\nthey count as not accessed, although they may have been."
        )?;
    }
    let mut schemes = Vec::new();
    write_schemes(&mut schemes, process, &recording.actions)?;
    if !schemes.is_empty() {
        writeln!(out)?;
    }
    out.write_all(&schemes)
}

/// Percent of the checks that could not see whether their page was accessed.
fn unseen_percent(process: &Process) -> f64 {
    let monitor = &process.sums["monitor"];
    let count = |name: &str| monitor[name].as_u64().unwrap_or(0) as f64;
    count("unseen_checks") * 100.0 / count("checks").max(1.0)
}

/// Who was monitored, and by what.
pub fn head(out: &mut dyn Write, recording: &Recording) -> std::io::Result<()> {
    // An argument may be a whole script.
    let program = recording.program.replace(char::is_control, " ");
    let Some(process) = recording.processes.first() else { return writeln!(out, "{program}") };
    let others = match recording.processes.len() - 1 {
        0 => String::new(),
        1 => "; 1 process more".to_owned(),
        more => format!("; {more} processes more"),
    };
    let by = if recording.source.is_empty() { String::new() } else { format!(", by {}", recording.source) };
    writeln!(
        out,
        "{program}: process {}, {} aggregations{by}{others}\n",
        process.pid,
        grouped(process.snapshots.len() as u64)
    )
}

/// The heat map, with that of the kernel's monitor beside it if there is one, and where its columns lie.
pub fn heats(out: &mut dyn Write, process: &Process, kernel: Option<&Process>) -> std::io::Result<()> {
    let map = process.heat_map().shrunk(ROWS);
    writeln!(out, "{}", beside(&text_one(&map), kernel.map(|kernel| text_one(&kernel.heat_map().shrunk(ROWS)))))?;
    let places = process.places();
    let bytes: u64 = places.iter().map(|place| place.end - place.start).sum();
    writeln!(
        out,
        "Time downwards, {:.1} s; across where some access was found, {} in all, in order of address:",
        process.seconds(),
        bytes_text(bytes)
    )?;
    for line in axis(&places, bytes) {
        writeln!(out, "  {line}")?;
    }
    let estimate = if process.is_bounded() {
        "An estimate within what was touched by then: a check looks at one page of a region."
    } else {
        "That is an estimate: a check looks at one page of a region."
    };
    writeln!(out, "{estimate} 9: accessed in every check, '.': in none.\n")
}

/// Which columns show which addresses: the largest places, in order.
fn axis(places: &[Range<u64>], bytes: u64) -> Vec<String> {
    let size = |place: &Range<u64>| place.end - place.start;
    let mut largest: Vec<&Range<u64>> = places.iter().collect();
    largest.sort_by_key(|place| std::cmp::Reverse(size(place)));
    largest.truncate(PLACES);
    largest.sort_by_key(|place| place.start);
    let column = |below: u64| (u128::from(below) * COLUMNS as u128 / u128::from(bytes.max(1))) as usize;
    let mut lines: Vec<String> = largest
        .iter()
        .map(|place| {
            let (from, to) = (column(offset(places, place.start)), column(offset(places, place.end)));
            let last = to.max(from + 1).min(COLUMNS);
            format!(
                "columns {:2} to {last:2}: {:#x} to {:#x}, {}",
                from + 1,
                place.start,
                place.end,
                bytes_text(size(place))
            )
        })
        .collect();
    if places.len() > PLACES {
        let shown: u64 = largest.iter().map(|place| size(place)).sum();
        let more = places.len() - PLACES;
        lines.push(format!("and {more} smaller ranges of {} in all, between them", bytes_text(bytes - shown)));
    }
    lines
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

/// How large the working set was in how many of the aggregations.
pub fn working_set(out: &mut dyn Write, process: &Process) -> std::io::Result<()> {
    let sizes = process.working_sets();
    let mut table = plain_table();
    table.set_header(["working set, percentile", "bytes"]);
    for percent in PERCENTILES {
        table.add_row([format!("{percent}"), bytes_text(percentile(&sizes, percent))]);
    }
    align_numbers(&mut table);
    writeln!(out, "{}\n", table.trim_fmt())
}

/// Hot and cold memory at the end.
pub fn regions(out: &mut dyn Write, process: &Process) -> std::io::Result<()> {
    let (Some(snapshot), regions) = process.hot_and_cold() else { return Ok(()) };
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

/// The statistics of schemes, as the kernel calls them.
const SCHEME_NAMES: [&str; 6] = ["nr_tried", "sz_tried", "nr_applied", "sz_applied", "qt_exceeds", "nr_snapshots"];

/// What each scheme did: its name and its statistics.
fn schemes(process: &Process, actions: &[String]) -> Vec<(String, [u64; 6])> {
    let schemes = process.sums["schemes"].as_array().into_iter().flatten().enumerate();
    schemes
        .map(|(index, scheme)| {
            let name = format!("{index} {}", actions.get(index).map_or("", String::as_str));
            (name, SCHEME_NAMES.map(|name| scheme[name].as_u64().unwrap_or(0)))
        })
        .collect()
}

/// What schemes did; nothing without schemes.
pub fn write_schemes(out: &mut dyn Write, process: &Process, actions: &[String]) -> std::io::Result<()> {
    let schemes = schemes(process, actions);
    if schemes.is_empty() {
        return Ok(());
    }
    let mut table = plain_table();
    table.set_header(["scheme"].into_iter().chain(SCHEME_NAMES));
    for (name, values) in schemes {
        table.add_row([name].into_iter().chain(values.map(|value| value.to_string())));
    }
    align_numbers(&mut table);
    writeln!(out, "{}", table.trim_fmt())
}

/// The same as CSV.
pub fn schemes_csv(out: &mut dyn Write, process: &Process, actions: &[String]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["scheme", "action"].into_iter().chain(SCHEME_NAMES))?;
    for (index, (_, values)) in schemes(process, actions).into_iter().enumerate() {
        let action = actions.get(index).cloned().unwrap_or_default();
        csv.write_record([index.to_string(), action].into_iter().chain(values.map(|value| value.to_string())))?;
    }
    csv.flush()
}

/// A row for each region and aggregation.
pub fn regions_csv(out: &mut dyn Write, process: &Process) -> std::io::Result<()> {
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

/// A row for each aggregation: its end and the bytes accessed in it.
pub fn working_set_csv(out: &mut dyn Write, process: &Process) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["seconds", "working_set_bytes"])?;
    for (seconds, bytes) in process.working_set_over_time() {
        csv.write_record([format!("{seconds:.3}"), bytes.to_string()])?;
    }
    csv.flush()
}

/// The working set for programs.
pub fn working_set_json(process: &Process) -> Value {
    let over_time = process.working_set_over_time().into_iter();
    json!({
        "pid": process.pid,
        "working_set_bytes": percentiles(process),
        "over_time": over_time.map(|(seconds, bytes)| json!({"seconds": seconds, "bytes": bytes})).collect::<Vec<_>>(),
    })
}

/// The heat map for programs: rows are moments, from the first, columns the places one after the other.
pub fn heats_json(process: &Process) -> Value {
    let place = |place: &Range<u64>| json!({"start": place.start, "end": place.end});
    json!({
        "pid": process.pid,
        "seconds": process.seconds(),
        "places": process.places().iter().map(place).collect::<Vec<_>>(),
        "heat_map": process.heat_map().shrunk(ROWS).rows(),
    })
}

/// What schemes did, for programs.
pub fn schemes_json(process: &Process, actions: &[String]) -> Value {
    json!({"pid": process.pid, "actions": actions, "schemes": process.sums["schemes"]})
}

fn percentiles(process: &Process) -> serde_json::Map<String, Value> {
    let sizes = process.working_sets();
    PERCENTILES.iter().map(|percent| (percent.to_string(), json!(percentile(&sizes, *percent)))).collect()
}

/// Everything for programs.
pub fn to_json(recording: &Recording) -> Value {
    let one = |process: &Process| {
        let first = process.snapshots.first().map_or(0, |snapshot| snapshot.now_ns);
        let snapshots = process.snapshots.iter().map(|snapshot| snapshot_json(snapshot, first));
        json!({
            "pid": process.pid,
            "monitor_cpu_share": process.monitor_cpu(),
            "bounded": process.is_bounded(),
            "working_set_bytes": percentiles(process),
            "heat_map": process.heat_map().shrunk(ROWS).rows(),
            "monitor": process.sums["monitor"],
            "schemes": process.sums["schemes"],
            "snapshots": snapshots.collect::<Vec<_>>(),
        })
    };
    json!({
        "program": recording.program,
        "source": recording.source,
        "actions": recording.actions,
        "processes": recording.processes.iter().map(one).collect::<Vec<_>>(),
        "kernel": recording.kernel.as_ref().map(one),
    })
}

fn snapshot_json(snapshot: &Snapshot, first: u64) -> Value {
    let region = |region: &Seen| {
        let mut object =
            json!({"start": region.start, "end": region.end, "nr_accesses": region.nr_accesses, "age": region.age});
        if let Some(most) = region.most {
            object["accessed_bytes_at_most"] = json!(most.bytes);
        }
        object
    };
    json!({
        "seconds": (snapshot.now_ns - first) as f64 / 1e9,
        "window": snapshot.window,
        "sample_us": snapshot.sample_us,
        "regions": snapshot.regions.iter().map(region).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::recording::{read, tests::text};
    use super::*;

    #[test]
    fn tables_and_json_hold_what_was_seen() {
        let processes = read(&text());
        let recording = Recording {
            program: "prog -c\n1".into(),
            source: "refault".into(),
            actions: vec!["stat".into()],
            kernel: Some(processes[1].clone()),
            processes,
        };
        let mut out = Vec::new();
        table(&mut out, &recording).expect("writes");
        let table = String::from_utf8(out).expect("text");
        for part in [
            "prog -c 1: process 7, 4 aggregations, by refault; 1 process more",
            "kernel (DAMON)",
            "working set",
            "0x100000",
            "0.50 %",
            "columns  1 to 32: 0x1000 to 0x2000, 4 KiB",
            "Too short to tell",
        ] {
            assert!(table.contains(part), "{part}\n{table}");
        }
        let json = to_json(&recording);
        assert_eq!(json["processes"][0]["working_set_bytes"]["50"], 4096);
        assert_eq!(json["processes"][0]["snapshots"][0]["regions"][0]["nr_accesses"], 20);
    }
}
