//! The results of `refault bench pager`: a table with what was aimed at and what was lost, CSV, or JSON.

use std::io::Write;

use serde_json::{Value, json};

use super::{ALLOWANCE, Measured, Plan, Row, RowResult};
use refault_console::text::{align_numbers, grouped, plain_table};

impl RowResult {
    fn medians(&self) -> (Measured, Option<Measured>) {
        (Measured::median(&self.ours), (!self.theirs.is_empty()).then(|| Measured::median(&self.theirs)))
    }

    fn other(&self) -> &'static str {
        if self.row == Row::Fits { "alone" } else { "zram" }
    }
}

/// Writes both sides of each row, ratio and aim, and then everything in which we lose.
pub fn write_table(out: &mut dyn Write, results: &[RowResult], plan: &Plan) -> std::io::Result<()> {
    let runs = results.first().map_or(0, |result| result.ours.len());
    let times = |time: fn(&Plan, Row) -> f64| {
        let rows: Vec<_> =
            results.iter().map(|result| format!("{} {} s", result.row, time(plan, result.row))).collect();
        rows.join(", ")
    };
    let (seconds, warm_up) = (times(Plan::seconds), times(Plan::warm_up));
    writeln!(out, "median of {runs} interleaved runs: {seconds}; after a warm-up: {warm_up}")?;
    let mut table = plain_table();
    table.set_header([
        "row",
        "resident",
        "side",
        "operations/s",
        "p50 µs",
        "p99 µs",
        "max µs",
        "fault p99 µs",
        "CPU s",
        "resident MiB",
        "compressed MiB",
        "metadata B/page",
        "ratio",
        "at least",
        "",
    ]);
    for result in results {
        let (ours, theirs) = result.medians();
        let ratio = theirs.as_ref().map(|theirs| ours.operations_per_second / theirs.operations_per_second);
        let options: Vec<_> = plan.with.iter().map(|one| one.to_string_lossy().into_owned()).collect();
        let own = format!("refault {}", options.join(" "));
        let mut lines = vec![(own.trim_end(), &ours)];
        lines.extend(theirs.as_ref().map(|theirs| (result.other(), theirs)));
        for (index, (side, measured)) in lines.into_iter().enumerate() {
            let first = |text: String| if index == 0 { text } else { String::new() };
            let met = ratio.map_or("", |ratio| if ratio >= result.row.aim() { "yes" } else { "no" });
            table.add_row([
                first(result.row.to_string()),
                first(format!("{} %", result.row.percent())),
                side.to_owned(),
                grouped(measured.operations_per_second as u64),
                format!("{:.1}", measured.p50_ns / 1e3),
                format!("{:.1}", measured.p99_ns / 1e3),
                format!("{:.0}", measured.max_ns / 1e3),
                or_dash(measured.fault_p99_ns / 1e3, 1),
                format!("{:.2}", measured.cpu_seconds),
                or_dash(measured.resident_bytes / f64::from(1 << 20), 0),
                or_dash(measured.compressed_bytes / f64::from(1 << 20), 0),
                or_dash(measured.metadata_bytes_per_page, 1),
                first(ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"))),
                first(result.row.aim().to_string()),
                first(met.to_owned()),
            ]);
        }
    }
    align_numbers(&mut table);
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    for result in results {
        let kills = result.medians().1.map_or(0.0, |theirs| theirs.kills);
        if kills > 0.0 {
            writeln!(
                out,
                "note: {}: the kernel killed the program for lack of memory {kills} times; those runs were repeated",
                result.row
            )?;
        }
        for loss in losses(result) {
            writeln!(out, "loss: {}: {loss}", result.row)?;
        }
    }
    writeln!(
        out,
        "\nCPU s: processor time of the program with all its threads in the counted time, the kernel's reclaim in it included. \
         Compressed memory lies outside the budget on both sides; the cgroup's limit is {} MiB above the budget for what ours \
         does not count (code, stacks, page tables). p50, p99, max: of one operation, seen by the program (memcached: by its \
         clients). Fault p99: with F faults on stored pages (major faults) among N operations, the latency that 0.01 F of the N \
         exceed, which 99 of 100 faults cannot exceed; B/page: bookkeeping for each managed page; the kernel's is not known.",
        ALLOWANCE >> 20
    )
}

fn or_dash(value: f64, digits: usize) -> String {
    if value.is_nan() { "–".to_owned() } else { format!("{value:.digits$}") }
}

/// In what ours is worse, in words. One percent is noise.
fn losses(result: &RowResult) -> Vec<String> {
    let (ours, Some(theirs)) = result.medians() else { return Vec::new() };
    let mut losses = Vec::new();
    let mut compare = |what: &str, ours: f64, theirs: f64| {
        if ours > theirs * 1.01 && theirs > 0.0 {
            losses.push(format!("{what} {:.2} times {}'s", ours / theirs, result.other()));
        }
    };
    compare("time an operation is", 1.0 / ours.operations_per_second, 1.0 / theirs.operations_per_second);
    compare("p50 is", ours.p50_ns, theirs.p50_ns);
    compare("p99 is", ours.p99_ns, theirs.p99_ns);
    compare("the longest operation takes", ours.max_ns, theirs.max_ns);
    compare("p99 of a fault is", ours.fault_p99_ns, theirs.fault_p99_ns);
    let cpu = |side: &Measured| side.cpu_seconds / side.operations_per_second;
    compare("processor time an operation is", cpu(&ours), cpu(&theirs));
    compare("compressed memory is", ours.compressed_bytes, theirs.compressed_bytes);
    losses
}

/// One row a run, with all fields.
pub fn write_csv(out: &mut dyn Write, results: &[RowResult]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["row", "side", "run"].iter().chain(&Measured::FIELDS))?;
    for result in results {
        for (side, runs) in [("refault", &result.ours), (result.other(), &result.theirs)] {
            for (number, run) in runs.iter().enumerate() {
                let mut record = vec![result.row.to_string(), side.to_owned(), number.to_string()];
                let text = |value: &f64| if value.is_nan() { String::new() } else { value.to_string() };
                record.extend(run.values().iter().map(text));
                csv.write_record(&record)?;
            }
        }
    }
    csv.flush()
}

/// Everything: all runs, medians, ratios, aims.
pub fn write_json(out: &mut dyn Write, results: &[RowResult], plan: &Plan) -> std::io::Result<()> {
    let object = |run: &Measured| -> Value {
        Measured::FIELDS.iter().zip(run.values()).map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
    };
    let rows: Vec<Value> = results
        .iter()
        .map(|result| {
            let (ours, theirs) = result.medians();
            let ratio = theirs.as_ref().map(|theirs| ours.operations_per_second / theirs.operations_per_second);
            json!({
                "row": result.row.to_string(),
                "resident_percent": result.row.percent(),
                "options": plan.with.iter().map(|one| one.to_string_lossy()).collect::<Vec<_>>(),
                "against": result.other(),
                "warm_up_seconds": plan.warm_up(result.row),
                "seconds": plan.seconds(result.row),
                "aim": result.row.aim(),
                "ratio": ratio,
                "refault": object(&ours),
                "other": theirs.as_ref().map(object),
                "refault_runs": result.ours.iter().map(object).collect::<Vec<_>>(),
                "other_runs": result.theirs.iter().map(object).collect::<Vec<_>>(),
                "losses": losses(result),
            })
        })
        .collect();
    serde_json::to_writer(&mut *out, &json!({ "rows": rows }))?;
    writeln!(out)
}
