//! `refault-bench frames`: the kernels' policies side by side over the same frames.
//!
//! Four workloads, five policies, and evicted pages that are gone, cached among the other free frames, or cached in
//! a pool of their own. What is simulated is stated in `refault_lab::experiments::freepool`; the figures do not depend
//! on this machine.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Mutex;

use clap::{Args, ValueEnum};
use refault_core::policy::registry::{self, FrontEnd, PolicySpec};
use refault_lab::experiments::freepool::{Evicted, Figures, Options, Workload, side_by_side};
use refault_lab::policies::parse_policies_for;
use serde_json::json;

use refault_console::Failure;
use refault_console::Progress;
use refault_console::text::number;
use refault_console::text::plain_table;
use refault_console::{Format, with_output};

/// Runs at the same time.
const THREADS: usize = 2;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault-bench frames                            all workloads: the tables of docs/explain/choosing.md
  refault-bench frames --workload high-order --format csv
  refault-bench frames --workload build --repeats 1")]
/// Compare the kernels' policies over the same frames
pub struct FramesArgs {
    /// Only this workload
    #[arg(long, value_enum)]
    workload: Option<WorkloadName>,
    /// Policies separated by commas, with parameters in braces [default: all that the experiment can run]
    #[arg(long = "policy", value_name = "POLICY")]
    policies: Vec<String>,
    /// Runs of each row with different seeds; the table shows the mean
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    repeats: u32,
    /// Seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Output format
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WorkloadName {
    Build,
    Database,
    SerialRead,
    HighOrder,
}

impl WorkloadName {
    fn workload(self) -> Workload {
        match self {
            WorkloadName::Build => Workload::Build,
            WorkloadName::Database => Workload::Database,
            WorkloadName::SerialRead => Workload::SerialRead,
            WorkloadName::HighOrder => Workload::HighOrder,
        }
    }
}

/// A row: what was run, and what came out.
struct Row {
    workload: Workload,
    policy: String,
    evicted: Evicted,
    figures: Figures,
}

/// Runs the command.
pub fn run(args: &FramesArgs) -> Result<(), Failure> {
    let workloads: Vec<Workload> = match args.workload {
        Some(name) => vec![name.workload()],
        None => Workload::ALL.into(),
    };
    let policies = match &args.policies[..] {
        [] => registry::all(FrontEnd::FreePool).collect(),
        asked => parse_policies_for(asked, FrontEnd::FreePool)?,
    };
    let rows = measure(&workloads, &policies, args);
    with_output(None, |out| match args.format {
        Format::Table => write_tables(out, &workloads, &rows, args),
        Format::Csv => write_csv(out, &rows),
        Format::Json => {
            let rows: Vec<_> = rows.iter().map(json_row).collect();
            serde_json::to_writer(&mut *out, &json!({ "seed": args.seed, "repeats": args.repeats, "rows": rows }))?;
            writeln!(out)
        }
    })
}

fn measure(workloads: &[Workload], policies: &[PolicySpec], args: &FramesArgs) -> Vec<Row> {
    let mut work = VecDeque::new();
    for workload in workloads {
        for policy in policies {
            Evicted::ALL.iter().for_each(|evicted| work.push_back((*workload, policy, *evicted)));
        }
    }
    let (all, work, rows) =
        (work.len(), Mutex::new(work.into_iter().enumerate().collect::<VecDeque<_>>()), Mutex::new(Vec::new()));
    let options = Options { seed: args.seed, repeats: args.repeats as usize, ..Options::default() };
    let progress = Progress::part("simulating");
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(all) {
            scope.spawn(|| {
                loop {
                    let next = work.lock().expect("invariant: no thread panics with it").pop_front();
                    let Some((number, (workload, policy, evicted))) = next else { return };
                    let figures = side_by_side(workload, policy, evicted, &options);
                    let mut rows = rows.lock().expect("invariant: no thread panics with it");
                    rows.push((number, Row { workload, policy: policy.label.clone(), evicted, figures }));
                    progress.set(rows.len() as f64 / all as f64);
                }
            });
        }
    });
    let mut rows = rows.into_inner().expect("invariant: no thread panics with it");
    rows.sort_by_key(|(number, _)| *number);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn write_tables(out: &mut dyn Write, workloads: &[Workload], rows: &[Row], args: &FramesArgs) -> std::io::Result<()> {
    for workload in workloads {
        let mut table = plain_table();
        let rows: Vec<&Row> = rows.iter().filter(|row| row.workload == *workload).collect();
        // Columns in which nothing ever happens say nothing.
        let shown: Vec<usize> = (0..Figures::default().fields().len())
            .filter(|at| rows.iter().any(|row| row.figures.fields()[*at].1 != 0.0))
            .collect();
        let names = Figures::default().fields();
        table.set_header(["policy", "evicted"].into_iter().chain(shown.iter().map(|at| names[*at].0)));
        for row in rows {
            let fields = row.figures.fields();
            let names = [row.policy.clone(), row.evicted.name().to_string()];
            table.add_row(names.into_iter().chain(shown.iter().map(|at| number(fields[*at].1))));
        }
        for column in 2..2 + shown.len() {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(comfy_table::CellAlignment::Right);
            }
        }
        writeln!(out, "{}\n\n{}\n", workload.name(), table.trim_fmt())?;
    }
    writeln!(
        out,
        "Means of {} runs, seed {} and following. Pages unless the name says otherwise.",
        args.repeats, args.seed
    )
}

fn write_csv(out: &mut dyn Write, rows: &[Row]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let names = Figures::default().fields();
    csv.write_record(["workload", "policy", "evicted"].into_iter().chain(names.iter().map(|(name, _)| *name)))?;
    for row in rows {
        let first = [row.workload.name(), &row.policy, row.evicted.name()].map(String::from);
        csv.write_record(first.into_iter().chain(row.figures.fields().iter().map(|(_, value)| value.to_string())))?;
    }
    csv.flush()
}

fn json_row(row: &Row) -> serde_json::Value {
    json!({ "workload": row.workload, "policy": row.policy, "evicted": row.evicted, "figures": row.figures })
}
