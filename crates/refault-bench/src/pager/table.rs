//! The results of `refault-bench pager`: a table with what was aimed at and what was lost, CSV, or JSON.
//!
//! Lines of the table and of CSV are written as soon as a row is measured, so the columns' widths do not depend on it.

use std::io::Write;

use serde_json::{Value, json};

use super::rows::{Kind, Row};
use super::{ALLOWANCE, Measured, Plan, RowResult, peers};
use crate::piecemeal::Results;
use refault_console::Format;
use refault_console::text::grouped;

impl RowResult {
    fn medians(&self) -> (Measured, Option<Measured>) {
        let ours = if self.ours.is_empty() { Measured::unknown() } else { Measured::median(&self.ours) };
        (ours, (!self.theirs.is_empty()).then(|| Measured::median(&self.theirs)))
    }

    /// Under the kernel backend, where it is measured.
    fn in_kernel(&self) -> Option<Measured> {
        (!self.kernel.runs.is_empty()).then(|| Measured::median(&self.kernel.runs))
    }

    fn other(&self) -> &'static str {
        if self.is_against_itself() { "alone" } else { "zram" }
    }

    /// Operations of ours for one of the other side's.
    fn ratio(&self) -> Option<f64> {
        let (ours, theirs) = self.medians();
        theirs.map(|theirs| ours.operations_per_second / theirs.operations_per_second)
    }

    /// The same under the kernel backend.
    fn kernel_ratio(&self) -> Option<f64> {
        let (kernel, theirs) = (self.in_kernel()?, self.medians().1?);
        Some(kernel.operations_per_second / theirs.operations_per_second)
    }
}

/// The table's columns, and how wide they are where what they hold is no wider. The second, which names the options, is at
/// least so wide.
const COLUMNS: [(&str, usize); 15] = [
    ("row", 9),
    ("side", 7),
    ("operations/s", 12),
    ("spread", 21),
    ("p50 µs", 7),
    ("p99 µs", 8),
    ("max µs", 8),
    ("fault p99 µs", 12),
    ("CPU s", 6),
    ("resident MiB", 12),
    ("compressed MiB", 14),
    ("total MiB", 9),
    ("ratio", 5),
    ("at least", 8),
    ("", 3),
];

/// The results so far.
pub struct Table {
    format: Format,
    plan: Plan,
    runs: u32,
    rows: Vec<RowResult>,
}

impl Table {
    /// Of no row yet.
    pub fn new(format: Format, plan: &Plan, runs: u32) -> Table {
        Table { format, plan: plan.clone(), runs, rows: Vec::new() }
    }

    /// Our side as it is called: with its options.
    fn own(&self) -> String {
        let options: Vec<_> = self.plan.with.iter().map(|one| one.to_string_lossy().into_owned()).collect();
        format!("refault {}", options.join(" ")).trim_end().to_owned()
    }

    fn line(&self, out: &mut dyn Write, cells: &[String; COLUMNS.len()]) -> std::io::Result<()> {
        let mut line = format!(" {:1$}", cells[0], COLUMNS[0].1);
        let own = self.own().chars().count();
        for (index, (cell, (_, width))) in cells.iter().zip(COLUMNS).enumerate().skip(1) {
            let width = if index == 1 { width.max(own) } else { width };
            line += &format!("  {cell:>width$}");
        }
        writeln!(out, "{}", line.trim_end())
    }
}

impl Results for Table {
    type Piece = RowResult;

    fn open(&mut self, out: &mut dyn Write) -> std::io::Result<()> {
        match self.format {
            Format::Table => {
                writeln!(out, "{}", peers::describe(self.plan.kernel_missing.as_deref(), ALLOWANCE))?;
                writeln!(out, "medians of {} interleaved runs; spread: the least and the most", self.runs)?;
                self.line(out, &COLUMNS.map(|(name, _)| name.to_owned()))
            }
            Format::Csv => {
                let mut csv = csv::Writer::from_writer(out);
                csv.write_record(["row", "side", "run"].iter().chain(&Measured::FIELDS))?;
                csv.flush()
            }
            Format::Json => Ok(()),
        }
    }

    fn add(&mut self, out: &mut dyn Write, row: RowResult) -> std::io::Result<()> {
        match self.format {
            Format::Table => lines(self, out, &row)?,
            Format::Csv => write_csv(out, &row)?,
            Format::Json => {}
        }
        self.rows.push(row);
        Ok(())
    }

    fn close(&mut self, out: &mut dyn Write) -> std::io::Result<()> {
        match self.format {
            Format::Table => conclusions(out, &self.rows),
            Format::Csv => Ok(()),
            Format::Json => write_json(out, &self.rows, &self.plan),
        }
    }
}

/// Both sides of a row, ratio and aim.
fn lines(table: &Table, out: &mut dyn Write, result: &RowResult) -> std::io::Result<()> {
    if result.left_out.is_some() || result.row == Row::Idle {
        return remarks(out, result);
    }
    let own = table.own();
    let (ours, theirs) = result.medians();
    let ratio = result.ratio();
    let kernel = result.in_kernel();
    let mut sides = vec![(own.as_str(), &ours, &result.ours, ratio)];
    sides.extend(kernel.as_ref().map(|kernel| ("kernel", kernel, &result.kernel.runs, result.kernel_ratio())));
    sides.extend(theirs.as_ref().map(|theirs| (result.other(), theirs, &result.theirs, None)));
    for (index, (side, median, runs, own_ratio)) in sides.into_iter().enumerate() {
        let first = |text: String| if index == 0 { text } else { String::new() };
        let own_ratio = own_ratio.map(|ratio| format!("{ratio:.2}"));
        let met = ratio.map_or("", |ratio| if ratio >= result.row.aim() { "yes" } else { "no" });
        let cells = [
            first(result.row.to_string()),
            side.to_owned(),
            rate(median.operations_per_second),
            spread(runs),
            or_dash(median.p50_ns / 1e3, 1),
            or_dash(median.p99_ns / 1e3, 1),
            or_dash(median.max_ns / 1e3, 0),
            or_dash(median.fault_p99_ns / 1e3, 1),
            or_dash(median.cpu_seconds, 2),
            or_dash(median.resident_bytes / f64::from(1 << 20), 0),
            or_dash(median.compressed_bytes / f64::from(1 << 20), 0),
            or_dash(median.total_bytes / f64::from(1 << 20), 0),
            own_ratio.unwrap_or_else(|| first("–".to_owned())),
            first(result.row.aim().to_string()),
            first(met.to_owned()),
        ];
        table.line(out, &cells)?;
    }
    Ok(())
}

/// Everything in which we lose, and what the figures mean.
fn conclusions(out: &mut dyn Write, results: &[RowResult]) -> std::io::Result<()> {
    for result in results.iter().filter(|result| result.left_out.is_none() && result.row != Row::Idle) {
        remarks(out, result)?;
    }
    if let Some((mean, worst)) = mean_of(results.iter().filter(|row| row.is_to_zram()).map(RowResult::kernel_ratio)) {
        let better = |row: &RowResult| Some(row.kernel_ratio()?.max(row.ratio()?));
        let (best, least) =
            mean_of(results.iter().filter(|row| row.is_to_zram()).map(better)).unwrap_or((f64::NAN, f64::NAN));
        writeln!(
            out,
            "kernel backend: geometric mean of the ratios {mean:.2}, worst {worst:.2}; of the better backend in each row \
             {best:.2}, worst {least:.2}"
        )?;
    }
    if let Some((mean, worst)) = mean_of_programs(results) {
        writeln!(
            out,
            "programs and the B-tree: geometric mean of the ratios {mean:.2} (aim 1.2), worst {worst:.2} (aim 0.8)"
        )?;
    }
    writeln!(
        out,
        "\noperations/s: of the last five programs, runs per second. CPU s: processor time of the program with all its \
         threads in the counted time, the kernel's reclaim in it included. total: resident, compressed and, on our side, the \
         pager's own; ours was given as much as the kernel's side had in a run before, in anonymous memory and zram (of \
         programs, whose files are charged to the cgroup and not to us: the part that was to be resident, and zram). The \
         cgroup's limit is {} MiB above that part, for what ours does not count (code, files, page tables). p50, p99, max: of one operation, seen by the program \
         (memcached: by its clients). Fault p99: with F faults on stored pages (major faults) among N operations, the latency \
         that 0.01 F of the N exceed, which 99 of 100 faults cannot exceed.",
        ALLOWANCE >> 20
    )
}

/// What a row needs to be said in words.
fn remarks(out: &mut dyn Write, result: &RowResult) -> std::io::Result<()> {
    let row = result.row;
    if let Some(reason) = &result.left_out {
        return writeln!(out, "not measured: {row}: {reason}");
    }
    if row == Row::Idle {
        let (ours, Some(alone)) = result.medians() else { return Ok(()) };
        let memory = (ours.resident_bytes - alone.resident_bytes) / f64::from(1 << 20);
        let exec = 1e3 / ours.operations_per_second - 1e3 / alone.operations_per_second;
        writeln!(
            out,
            "idle: to manage a process costs {memory:.2} MiB of private memory (aim: at most 2) and {exec:.2} ms per exec \
             (aim: at most 1)"
        )?;
        let Some(kernel) = result.in_kernel() else { return kernel_remarks(out, result) };
        let memory = (kernel.resident_bytes - alone.resident_bytes) / f64::from(1 << 20);
        let exec = 1e3 / kernel.operations_per_second - 1e3 / alone.operations_per_second;
        writeln!(
            out,
            "idle: under the kernel backend {memory:.2} MiB (aim: 0) and {exec:.2} ms per exec (aim: at most 0.3)"
        )?;
        return kernel_remarks(out, result);
    }
    let kills = result.medians().1.map_or(0.0, |theirs| theirs.kills);
    if result.killed > 0 {
        writeln!(
            out,
            "note: {row}: the kernel killed the program for lack of memory {} times of {0}: no ratio",
            result.killed
        )?;
    } else if kills > 0.0 {
        writeln!(
            out,
            "note: {row}: the kernel killed the program for lack of memory {kills} times; those runs were repeated"
        )?;
    }
    for loss in losses(result) {
        writeln!(out, "loss: {row}: {loss}")?;
    }
    for loss in kernel_losses(result) {
        writeln!(out, "loss: {row}: kernel: {loss}")?;
    }
    kernel_remarks(out, result)
}

/// Why there are fewer runs under the kernel backend, or none.
fn kernel_remarks(out: &mut dyn Write, result: &RowResult) -> std::io::Result<()> {
    let (row, kernel) = (result.row, &result.kernel);
    let Some(why) = &kernel.failed else { return Ok(()) };
    let kills = match kernel.kills {
        0 => String::new(),
        kills => format!("; the kernel killed for lack of memory {kills} times meanwhile"),
    };
    writeln!(out, "note: {row}: kernel: no further run after {}: {why}{kills}", kernel.runs.len())
}

/// Geometric mean and least of the ratios of real programs, if any was measured on both sides.
fn mean_of_programs(results: &[RowResult]) -> Option<(f64, f64)> {
    mean_of(results.iter().filter(|result| result.row.is_in_mean()).map(RowResult::ratio))
}

/// The same of any ratios, those that are known.
fn mean_of(ratios: impl Iterator<Item = Option<f64>>) -> Option<(f64, f64)> {
    let ratios: Vec<f64> = ratios.flatten().collect();
    let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    (!ratios.is_empty()).then(|| ((logarithms / ratios.len() as f64).exp(), least))
}

/// A rate with as many digits as say something.
fn rate(value: f64) -> String {
    if value >= 100.0 { grouped(value as u64) } else { or_dash(value, 3) }
}

fn spread(runs: &[Measured]) -> String {
    let rates = runs.iter().map(|run| run.operations_per_second);
    let (least, most) = (rates.clone().fold(f64::INFINITY, f64::min), rates.fold(0.0, f64::max));
    format!("{}–{}", rate(least), rate(most))
}

fn or_dash(value: f64, digits: usize) -> String {
    if value.is_nan() { "–".to_owned() } else { format!("{value:.digits$}") }
}

/// In what ours is worse, in words.
fn losses(result: &RowResult) -> Vec<String> {
    let (ours, Some(theirs)) = result.medians() else { return Vec::new() };
    worse(&ours, &theirs, result.other())
}

/// In what the kernel backend is.
fn kernel_losses(result: &RowResult) -> Vec<String> {
    let (Some(kernel), Some(theirs)) = (result.in_kernel(), result.medians().1) else { return Vec::new() };
    worse(&kernel, &theirs, result.other())
}

/// One percent is noise.
fn worse(ours: &Measured, theirs: &Measured, other: &str) -> Vec<String> {
    let mut losses = Vec::new();
    let mut compare = |what: &str, ours: f64, theirs: f64| {
        if ours > theirs * 1.01 && theirs > 0.0 {
            losses.push(format!("{what} {:.2} times {}'s", ours / theirs, other));
        }
    };
    compare("time an operation is", 1.0 / ours.operations_per_second, 1.0 / theirs.operations_per_second);
    compare("p50 is", ours.p50_ns, theirs.p50_ns);
    compare("p99 is", ours.p99_ns, theirs.p99_ns);
    compare("the longest operation takes", ours.max_ns, theirs.max_ns);
    compare("p99 of a fault is", ours.fault_p99_ns, theirs.fault_p99_ns);
    let cpu = |side: &Measured| side.cpu_seconds / side.operations_per_second;
    compare("processor time an operation is", cpu(ours), cpu(theirs));
    compare("compressed memory is", ours.compressed_bytes, theirs.compressed_bytes);
    losses
}

/// One line per run of a row, with all fields.
fn write_csv(out: &mut dyn Write, result: &RowResult) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    for (side, runs) in [("refault", &result.ours), ("kernel", &result.kernel.runs), (result.other(), &result.theirs)] {
        for (number, run) in runs.iter().enumerate() {
            let mut record = vec![result.row.to_string(), side.to_owned(), number.to_string()];
            let text = |value: &f64| if value.is_nan() { String::new() } else { value.to_string() };
            record.extend(run.values().iter().map(text));
            csv.write_record(&record)?;
        }
    }
    csv.flush()
}

/// Whether a row counts operations for a time.
fn counted(row: Row) -> bool {
    matches!(row.kind(), Kind::Load(..) | Kind::Memcached)
}

/// Everything: all runs, medians, ratios, aims.
fn write_json(out: &mut dyn Write, results: &[RowResult], plan: &Plan) -> std::io::Result<()> {
    let object = |run: &Measured| -> Value {
        Measured::FIELDS.iter().zip(run.values()).map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
    };
    let rows: Vec<Value> = results
        .iter()
        .map(|result| {
            let (ours, theirs) = result.medians();
            json!({
                "row": result.row.to_string(),
                "left_out": result.left_out,
                "resident_percent": result.row.percent(),
                "resident_bytes": result.resident,
                "budget_bytes": result.budget,
                "killed": result.killed,
                "options": plan.with.iter().map(|one| one.to_string_lossy()).collect::<Vec<_>>(),
                "against": result.other(),
                "warm_up_seconds": counted(result.row).then(|| plan.warm_up(result.row)),
                "seconds": counted(result.row).then(|| plan.seconds(result.row)),
                "aim": result.row.aim(),
                "ratio": result.ratio(),
                "refault": object(&ours),
                "other": theirs.as_ref().map(object),
                "refault_runs": result.ours.iter().map(object).collect::<Vec<_>>(),
                "other_runs": result.theirs.iter().map(object).collect::<Vec<_>>(),
                "losses": losses(result),
                "kernel": result.in_kernel().as_ref().map(object),
                "kernel_runs": result.kernel.runs.iter().map(object).collect::<Vec<_>>(),
                "kernel_budget_bytes": (result.kernel.budget > 0).then_some(result.kernel.budget),
                "kernel_ratio": result.kernel_ratio(),
                "kernel_kills": result.kernel.kills,
                "kernel_failed": result.kernel.failed,
                "kernel_losses": kernel_losses(result),
            })
        })
        .collect();
    let mean = mean_of_programs(results);
    let all = json!({
        "sides": peers::describe(plan.kernel_missing.as_deref(), ALLOWANCE),
        "kernel_missing": plan.kernel_missing,
        "rows": rows,
        "programs": mean.map(|(mean, worst)| json!({ "geometric_mean": mean, "worst": worst })),
    });
    serde_json::to_writer(&mut *out, &all)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::super::InKernel;
    use super::*;

    fn run(operations_per_second: f64) -> Measured {
        Measured { operations_per_second, p50_ns: 1e9 / operations_per_second, ..Measured::unknown() }
    }

    fn printed(kernel: InKernel, kernel_missing: Option<&str>) -> String {
        let plan = Plan {
            seconds: None,
            warm_up: None,
            quick: false,
            python: "python3".into(),
            with: Vec::new(),
            kernel_missing: kernel_missing.map(str::to_owned),
        };
        let mut table = Table::new(Format::Table, &plan, 1);
        let (ours, theirs) = (vec![run(300.0)], vec![run(200.0)]);
        let (row, left_out) = (Row::Zipf, None);
        let result = RowResult { row, ours, theirs, killed: 0, budget: 1, resident: 1, left_out, kernel };
        let mut out = Vec::new();
        table.open(&mut out).and_then(|()| table.add(&mut out, result)).and_then(|()| table.close(&mut out)).unwrap();
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_kernel_backend_has_a_line_a_ratio_and_losses_of_its_own() {
        let text = printed(InKernel { runs: vec![run(180.0)], budget: 1, ..InKernel::default() }, None);
        let sides: Vec<Vec<&str>> = text
            .lines()
            .skip_while(|line| !line.trim_start().starts_with("zipf"))
            .take(3)
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!((sides[0][1], sides[1][0], sides[2][0]), ("refault", "kernel", "zram"), "{text}");
        assert_eq!(sides[0][sides[0].len() - 3..], ["1.50", "1.5", "yes"], "{text}");
        assert_eq!((sides[1][1], sides[1].last()), ("180", Some(&"0.90")), "{text}");
        assert!(text.contains("kernel: `refault run --backend kernel`"), "{text}");
        assert!(text.contains("loss: zipf: kernel: time an operation is 1.11 times zram's"), "{text}");
        let means =
            "kernel backend: geometric mean of the ratios 0.90, worst 0.90; of the better backend in each row 1.50";
        assert!(text.contains(means), "{text}");
    }

    #[test]
    fn where_the_kernel_backend_cannot_work_the_reason_is_said_and_the_rest_is_measured() {
        let text = printed(InKernel::default(), Some("kernel backend: no right to make a cgroup"));
        let words = "no `refault run --backend kernel`: kernel backend: no right to make a cgroup";
        assert!(text.lines().next().is_some_and(|line| line.contains(words)), "{text}");
        let lines = text.lines().skip_while(|line| !line.trim_start().starts_with("zipf"));
        assert!(lines.take(2).last().is_some_and(|line| line.trim_start().starts_with("zram")), "{text}");
        assert!(!text.contains("kernel backend: geometric mean"), "{text}");
    }

    #[test]
    fn a_run_that_failed_under_the_kernel_backend_is_told_with_its_kills() {
        let failed = Some("a run went wrong: zipf: signal 9".to_owned());
        let text = printed(InKernel { kills: 2, failed, budget: 1, ..InKernel::default() }, None);
        let note = "note: zipf: kernel: no further run after 0: a run went wrong: zipf: signal 9; the kernel killed for lack \
                    of memory 2 times meanwhile";
        assert!(text.contains(note), "{text}");
    }
}
