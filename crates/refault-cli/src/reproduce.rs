//! `refault reproduce`: published experiments, run again.
//!
//! The lab has the list of them. Each answers with an [`Experiment`]: published figures, ours and the null's side by
//! side.

pub mod ask;
mod figures;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use refault_console::{Contents, Failure, Format, Progress, ResultArgs, say, with_output};
use refault_lab::Experiment;
use refault_lab::experiment::{Asked, Here, MeasuredHere, Row, Values};
use refault_lab::experiments::Size;
use refault_lab::experiments::published::{self, EXPERIMENTS, Request};

use refault_console::text::{WIDE, broken, cell, number, plain_table};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault reproduce list                       what there is
  refault reproduce published                  every published figure: kernel, model, verdict, what we believe
  refault reproduce freepool                   a table, and refault-freepool.html
  refault reproduce freepool --format json --seed 7
  refault reproduce mglru-refault --here       also with a real file, through the page cache and the kernel's
  refault reproduce freepool --null            what a mechanism that does nothing would score
  refault reproduce freepool --full            at a larger scale; takes long")]
/// Run a published experiment again, and print its figures beside ours
pub struct ReproduceArgs {
    /// The experiment; 'list' lists them, 'published' all published figures with what became of them
    #[arg(value_name = "NAME")]
    name: String,
    /// Run at a larger scale instead of one that ends within a few minutes
    #[arg(long)]
    full: bool,
    /// Run at a scale that ends within seconds, to see the report: its figures say little
    #[arg(long, conflicts_with = "full")]
    small: bool,
    /// Put the null in the place of ours: the run with the mechanism under test switched off, with seeds of its own. What
    /// agrees then is no evidence
    #[arg(long)]
    null: bool,
    /// Measure the model's rows on this machine too, by refault-bench: real files and programs, under refault and under
    /// the kernel. Takes two or three minutes; the kernel's side needs root
    #[arg(long, conflicts_with = "null")]
    here: bool,
    /// The first of the seeds of all random choices; the same seed gives the same figures
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    result: ResultArgs,
    /// Where to write figures and pictures as one HTML file [default: refault-NAME.html]
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &ReproduceArgs) -> Result<(), Failure> {
    if args.name == "list" {
        return with_output(None, |out| {
            EXPERIMENTS.iter().try_for_each(|entry| writeln!(out, "{:<16} {}", entry.name, entry.about))
        });
    }
    if args.name == figures::NAME {
        if args.small || args.full || args.null || args.here || args.report.is_some() {
            let remedy = "leave out --small, --full, --null, --here and --report, or name an experiment";
            return Err(Failure::usage("the list of published figures runs nothing", "reproduce published", remedy));
        }
        return figures::run(&args.result);
    }
    let entry = published::find(&args.name)?;
    let mut outputs = args.result.outputs();
    let (format, out) = args.result.claim(&mut outputs)?;
    let report = args.report.clone().unwrap_or_else(|| PathBuf::from(format!("refault-{}.html", entry.name)));
    let written = outputs.claim("--report", Some(&report), Contents::Html)?;
    let progress = Progress::part("simulating");
    let size = match (args.small, args.full) {
        (true, _) => Size::Small,
        (_, true) => Size::Full,
        _ => Size::Quick,
    };
    let estimate = Estimate::begin(entry.name);
    let mut experiment = entry.run(&Request { size, null: args.null, seed: args.seed }, &|part| {
        progress.set(part);
        progress.aside(|| estimate.hear(part));
    })?;
    drop(progress);
    if args.here {
        let measured = measure_here(entry.name, args.small)?;
        experiment.here = measured.rows;
        experiment.remarks.extend(measured.remarks);
    }
    experiment.kernels =
        refault_ask::published::asked(&experiment, &Progress::new("replaying what kernels were asked"))?;
    with_output(out, |out| match format {
        Format::Table => write_table(out, &experiment),
        Format::Csv => write_csv(out, &experiment),
        Format::Json => {
            serde_json::to_writer(&mut *out, &experiment)?;
            writeln!(out)
        }
    })?;
    if let Some(written) = written {
        crate::report::write_experiment(written, &experiment, entry.about)?;
        say(format_args!("report written to {}", report.display()));
    }
    Ok(())
}

/// What `refault-bench here` measures on this machine: the program of benchmarks, which shows its own progress.
fn measure_here(name: &str, is_small: bool) -> Result<MeasuredHere, Failure> {
    let failed = |why: &dyn std::fmt::Display| Failure::failed("measuring here failed", "refault-bench here", why);
    let mut command = Command::new(crate::program::bench::find()?);
    command.args(["here", name]).stdin(Stdio::null()).stderr(Stdio::inherit());
    if is_small {
        command.args(["--memory-mib", "4", "--seconds", "1"]);
    }
    let output = command.output().map_err(|error| failed(&error))?;
    if !output.status.success() {
        return Err(failed(&output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(&error))
}

/// Says how long something takes, as soon as that can be told.
struct Estimate {
    begun: Instant,
    said: AtomicBool,
}

impl Estimate {
    /// The least part done, and the least time, by which the rest is judged.
    const MIN_PART: f64 = 0.02;
    const MIN_TIME: Duration = Duration::from_millis(300);

    fn begin(name: &str) -> Estimate {
        say(format_args!("running {name}; how long it takes is said in a moment"));
        Estimate { begun: Instant::now(), said: AtomicBool::new(false) }
    }

    /// `part` of the work is done, of 1.
    fn hear(&self, part: f64) {
        let spent = self.begun.elapsed();
        if part >= Estimate::MIN_PART && spent >= Estimate::MIN_TIME && !self.said.swap(true, Ordering::Relaxed) {
            say(format_args!("it takes about {:.0} s in all", (spent.as_secs_f64() / part).ceil()));
        }
    }
}

/// Room for a figure's name and unit beside its numbers; a longer one has a line of its own above them.
const LABEL: usize = 36;

/// The numbers of the rows as a table, below each workload's name, with what each is before it.
fn lines_of(rows: &[Row]) -> String {
    let mut table = plain_table();
    table.set_header(&HEADINGS[3..]);
    for row in rows {
        table.add_row(&cells(row)[3..]);
    }
    for column in 0..HEADINGS.len() - 4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
    }
    let mut numbers = table.lines();
    let mut text = format!("{:LABEL$}{}\n", "", numbers.next().unwrap_or_default().trim_end());
    let mut workload = "";
    for (row, line) in rows.iter().zip(numbers) {
        if row.name != workload {
            workload = &row.name;
            text += &format!("{workload}\n");
        }
        let label = format!("  {} ({})", row.metric, row.unit);
        let label = if label.chars().count() < LABEL { label } else { format!("{label}\n{:LABEL$}", "") };
        text += &format!("{label:LABEL$}{}\n", line.trim_end());
    }
    text
}

fn write_table(out: &mut dyn std::io::Write, experiment: &Experiment) -> std::io::Result<()> {
    writeln!(out, "{}\n", broken(&experiment.verdict, WIDE))?;
    writeln!(out, "{}: scale {}, first seed {}\n", experiment.experiment, number(experiment.scale), experiment.seed)?;
    writeln!(out, "{}", lines_of(&experiment.rows))?;
    if !experiment.here.is_empty() {
        writeln!(out, "{}\n", here_table(experiment).trim_fmt())?;
    }
    if !experiment.kernels.is_empty() {
        writeln!(out, "{}\n{}\n", kernels_table(experiment).trim_fmt(), broken(KERNELS_EXPLANATION, WIDE))?;
    }
    writeln!(out, "{EXPLANATION}")?;
    experiment.remarks.iter().try_for_each(|remark| writeln!(out, "{}", broken(remark, WIDE)))
}

/// What the cells of a row of this machine's are: the model's and the document's ratio stand beside.
pub const HERE_HEADINGS: [&str; 10] =
    ["on this machine", "figure", "unit", "before", "after", "ratio", "spread", "published", "model", "by"];

/// A row of this machine's as text, with the ratios of the same workload and figure where the experiment has them.
pub fn here_cells(row: &Here, experiment: &Experiment) -> Vec<String> {
    let text = |value: Option<f64>| value.map_or("–".to_string(), number);
    let mut cells = vec![row.name.clone(), row.metric.clone(), row.unit.clone()];
    cells.extend([row.values.before, row.values.after, row.values.ratio].map(text));
    cells.push(row.spread.map_or("–".to_string(), |spread| format!("{:.1} %", 100.0 * spread)));
    let same = experiment.rows.iter().find(|of_model| (&of_model.name, &of_model.metric) == (&row.name, &row.metric));
    let compared = same.filter(|_| row.values.ratio.is_some());
    cells.extend([compared.and_then(|row| row.published.ratio), compared.and_then(|row| row.ours.ratio)].map(text));
    cells.push(row.side.clone());
    cells
}

/// What was measured on this machine.
fn here_table(experiment: &Experiment) -> comfy_table::Table {
    let mut table = plain_table();
    table.set_header(HERE_HEADINGS);
    for row in &experiment.here {
        table.add_row(here_cells(row, experiment));
    }
    for column in 3..9 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
    }
    table
}

/// What the cells of a kernel's row are; the last is there only if this machine was measured too.
const KERNELS_HEADINGS: [&str; 9] =
    ["asked of kernels", "figure", "release", "published", "before", "after", "kernel", "model", "here"];

/// How to read a table of kernels.
pub const KERNELS_EXPLANATION: &str = "Published, kernel and model, and here where it was measured: the ratio, or after \
    where the document has no before. Before and after are the kernel's. Kernel and model had the same accesses. Never judged: sizes are not the \
    document's.";

/// What kernels were asked as text: headings and rows. A column without any value is left out.
pub fn kernel_lines(asked: &[Asked]) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let columns = KERNELS_HEADINGS.len() - usize::from(asked.iter().all(|row| row.here.is_none()));
    let mut lines: Vec<Vec<String>> = asked.iter().map(kernel_cells).collect();
    lines.iter_mut().for_each(|cells| cells.truncate(columns));
    (KERNELS_HEADINGS[..columns].to_vec(), lines)
}

/// A kernel's row as text.
fn kernel_cells(row: &Asked) -> Vec<String> {
    // What the document has: a ratio, or a level after the change.
    let of = |values: &Values| if row.published.ratio.is_some() { values.ratio } else { values.after };
    let [published, kernel, model] = [&row.published, &row.values, &row.model].map(of);
    // "moves per page" needs no "(moves)".
    let unit = if row.metric.starts_with(&row.unit) { String::new() } else { format!(" ({})", row.unit) };
    let mut cells = vec![row.name.clone(), format!("{}{unit}", row.metric), row.kernel.clone()];
    let here = row.here.as_ref().and_then(of);
    cells.extend([published, row.values.before, row.values.after, kernel, model, here].map(cell));
    cells
}

/// What real kernels were asked.
fn kernels_table(experiment: &Experiment) -> comfy_table::Table {
    let mut table = plain_table();
    let (headings, rows) = kernel_lines(&experiment.kernels);
    let columns = headings.len();
    table.set_header(headings);
    for cells in rows {
        table.add_row(cells);
    }
    for column in 3..columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
    }
    table
}

/// What the cells of a row are.
pub const HEADINGS: [&str; 12] =
    ["workload", "figure", "unit", "published", "", "ratio", "ours", "", "ratio", "spread", "null", "agrees"];

/// How to read a table of [`HEADINGS`].
pub const EXPLANATION: &str = "\
Two figures are before and after the change; ratio is after over before. Ours are means over seeds, spread the standard
deviation of the ratio. Null is the ratio with the mechanism under test switched off. 'null too': the null agrees as
well, or might; 'chance': our seeds lie on both sides; neither is yes or no. 'fitted': an input was set so that it comes
out.";

/// A row as text: workload, figure, unit, published before, after and ratio, ours, spread, the null's ratio, agreement.
pub fn cells(row: &Row) -> Vec<String> {
    let text = cell;
    let values = |v: &Values| [v.before, v.after, v.ratio].map(text);
    let mut cells = vec![row.name.clone(), row.metric.clone(), row.unit.clone()];
    cells.extend(values(&row.published));
    cells.extend(values(&row.ours));
    cells.push(row.spread.map_or("–".to_string(), |spread| format!("{:.1} %", 100.0 * spread)));
    // A level has no ratio: the null's level then.
    cells.push(text(row.null.ratio.or(row.null.after)));
    cells.push(row.judgement.text().to_string());
    cells
}

fn write_csv(out: &mut dyn std::io::Write, experiment: &Experiment) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let mut header = vec!["experiment", "seed", "scale", "name", "metric", "unit"];
    header.extend(["published_before", "published_after", "published_ratio"]);
    header.extend(["ours_before", "ours_after", "ours_ratio", "null_before", "null_after", "null_ratio"]);
    header.extend(["spread", "agrees", "judgement", "here_before", "here_after", "here_ratio", "here_by"]);
    header.extend(["kernel", "kernel_before", "kernel_after", "kernel_ratio"]);
    csv.write_record(header)?;
    for row in &experiment.rows {
        let text = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        let mut record = vec![
            experiment.experiment.clone(),
            experiment.seed.to_string(),
            experiment.scale.to_string(),
            row.name.clone(),
            row.metric.clone(),
            row.unit.clone(),
        ];
        for values in [&row.published, &row.ours, &row.null] {
            record.extend([values.before, values.after, values.ratio].map(text));
        }
        record.push(text(row.spread));
        record.push(row.agrees.map_or(String::new(), |agrees| agrees.to_string()));
        record.push(row.judgement.name().to_string());
        record.extend(std::iter::repeat_n(String::new(), 8));
        csv.write_record(record)?;
    }
    // What was measured here has rows of its own, since it need not be what the model's rows are.
    for row in &experiment.here {
        let text = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        let mut record = vec![experiment.experiment.clone(), String::new(), String::new()];
        record.extend([&row.name, &row.metric, &row.unit].map(String::clone));
        record.extend(std::iter::repeat_n(String::new(), 9));
        record.extend([text(row.spread), String::new(), String::new()]);
        record.extend([row.values.before, row.values.after, row.values.ratio].map(text));
        record.push(row.side.clone());
        record.extend(std::iter::repeat_n(String::new(), 4));
        csv.write_record(record)?;
    }
    // So has what kernels were asked: ours are the model over the same accesses.
    for row in &experiment.kernels {
        let text = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        let three = |values: &Values| [values.before, values.after, values.ratio].map(text);
        let mut record = vec![experiment.experiment.clone(), String::new(), String::new()];
        record.extend([&row.name, &row.metric, &row.unit].map(String::clone));
        record.extend([&row.published, &row.model].into_iter().flat_map(three));
        record.extend(std::iter::repeat_n(String::new(), 6));
        record.extend(row.here.as_ref().map_or_else(Default::default, three));
        record.extend([String::new(), row.kernel.clone()]);
        record.extend(three(&row.values));
        csv.write_record(record)?;
    }
    csv.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_of_this_machine_stands_where_it_was_measured() {
        let row = Asked {
            name: "w".into(),
            metric: "m".into(),
            unit: "pages".into(),
            kernel: "6.12".into(),
            published: Values::of(4.0, 2.0),
            values: Values::of(8.0, 4.0),
            model: Values::of(6.0, 3.0),
            here: None,
        };
        let (headings, lines) = kernel_lines(std::slice::from_ref(&row));
        assert_eq!((headings.last(), lines[0].len()), (Some(&"model"), headings.len()));
        let (headings, lines) = kernel_lines(&[row.clone(), Asked { here: Some(Values::of(1.0, 0.25)), ..row }]);
        assert_eq!(headings.last(), Some(&"here"));
        let of_here: Vec<&str> = lines.iter().map(|cells| cells[headings.len() - 1].as_str()).collect();
        assert_eq!(of_here, ["–", "0.25"]);
    }
}
