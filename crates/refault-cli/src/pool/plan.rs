//! `refault pool plan`: which hosts recorded programs go onto, by their miss-ratio curves.

use std::io::Write;

use clap::Args;
use refault_console::text::{align_numbers, percent_format, plain_table};
use refault_console::{Failure, Format, Progress, ResultArgs, with_output};
use refault_core::policy::registry::Fact;
use refault_lab::curve::{CurvePlan, TraceCurves, curves};
use refault_lab::policies::parse_policies;
use refault_lab::size::{Bytes, PAGE_BYTES, pages_text};
use refault_lab::sweep::{jobs, memory_budget};
use refault_pool::plan::{Packing, Plan};
use serde_json::json;

use crate::source::{SourceArgs, say_remarks};

/// Parts that a host's memory is divided in, if it has as many pages.
const MAX_UNITS: u64 = 128;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault pool plan web.rft db.rft batch.rft --hosts 2 --memory 4G
  refault pool plan *.rft --hosts 4 --memory 16G --policy mglru --format json
  refault record --out web.rft -- node server.js     makes a recording

Misses are those of each trace from its beginning to its end, first touches included; the plan has the fewest in all.
A host's memory is divided in up to 128 parts, of which each program has one at least.")]
/// Place recorded programs on hosts so that they miss as little as possible
pub struct PlanArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Hosts, all alike
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    hosts: u16,
    /// Memory of each
    #[arg(long, value_name = "SIZE")]
    memory: Bytes,
    /// The policy that decides what stays
    #[arg(long, value_name = "POLICY", default_value = "lru")]
    policy: String,
    /// Threads; results do not depend on it [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    #[command(flatten)]
    result: ResultArgs,
}

/// What a plan was made of.
struct Planned {
    traces: Vec<TraceCurves>,
    plan: Plan,
    unit_pages: u64,
    units: u64,
    hosts: usize,
}

/// A line of the answer.
struct Row<'a> {
    host: usize,
    trace: &'a TraceCurves,
    memory_pages: u64,
    misses: u64,
}

/// Runs the command.
pub fn run(args: &PlanArgs) -> Result<(), Failure> {
    if args.source.is_empty() {
        return Err(Failure::usage("nothing to place", "no trace and no workload", "name recordings of programs"));
    }
    let mut outputs = args.result.outputs();
    let sources = args.source.sources(&mut outputs)?;
    let policies = parse_policies(std::slice::from_ref(&args.policy))?;
    if policies.len() != 1 {
        return Err(Failure::usage("not one policy", &args.policy, "name one: a plan is for the policy that will run"));
    }
    if policies.iter().any(|spec| !spec.entry.is(Fact::Stack)) {
        args.source.require_files()?;
    }
    let (format, out) = args.result.claim(&mut outputs)?;
    let pages = args.memory.0 / PAGE_BYTES;
    let units = pages.min(MAX_UNITS);
    let unit_pages = pages / units;
    let plan = CurvePlan { policies, sampling: None, jobs: jobs(args.jobs), memory_budget: memory_budget() };
    let mut traces = Vec::new();
    for source in &sources {
        let sizes = |_| (1..=units).map(|unit| unit * unit_pages).collect();
        let trace = curves(source, &plan, sizes, &Progress::new("drawing curves"))?;
        say_remarks(&trace.trace, &trace.reading);
        traces.push(trace);
    }
    let misses: Vec<Vec<u64>> = traces.iter().map(|trace| misses_of(trace, units, unit_pages)).collect();
    let hosts = usize::from(args.hosts);
    let plan = Packing { hosts, misses: &misses }
        .solve()
        .map_err(|error| Failure::usage("no plan", error, "give more hosts or more memory"))?;
    let planned = Planned { traces, plan, unit_pages, units, hosts };
    with_output(out, |out| match format {
        Format::Table => planned.write_table(out),
        Format::Csv => planned.write_csv(out),
        Format::Json => planned.write_json(out),
    })
}

/// Misses with 1, 2, … units.
fn misses_of(trace: &TraceCurves, units: u64, unit_pages: u64) -> Vec<u64> {
    let misses = |unit: u64| (trace.curves[0].at(unit * unit_pages) * trace.accesses as f64).round() as u64;
    (1..=units).map(misses).collect()
}

impl Planned {
    /// By host, and there in the order in which the traces were named.
    fn rows(&self) -> Vec<Row<'_>> {
        let placed = self.traces.iter().zip(&self.plan.placements);
        let mut rows: Vec<Row<'_>> = placed
            .map(|(trace, placement)| Row {
                host: placement.host + 1,
                trace,
                memory_pages: placement.units as u64 * self.unit_pages,
                misses: placement.misses,
            })
            .collect();
        rows.sort_by_key(|row| row.host);
        rows
    }

    fn spare_pages(&self, host: usize) -> u64 {
        let used = self.plan.placements.iter().filter(|placement| placement.host + 1 == host);
        (self.units - used.map(|placement| placement.units as u64).sum::<u64>()) * self.unit_pages
    }

    fn write_table(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let rows = self.rows();
        let ratios = rows.iter().flat_map(|row| [row.miss_ratio(), row.trace.first_touches()]);
        let percent = percent_format(ratios);
        let mut table = plain_table();
        table.set_header(["program", "host", "memory", "misses %", "with ample memory %"]);
        for row in &rows {
            table.add_row([
                row.trace.trace.clone(),
                row.host.to_string(),
                pages_text(row.memory_pages),
                percent(row.miss_ratio()),
                percent(row.trace.first_touches()),
            ]);
        }
        align_numbers(&mut table);
        for line in table.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        let spare: Vec<String> = (1..=self.hosts)
            .filter(|host| self.spare_pages(*host) > 0)
            .map(|host| format!("host {host} {}", pages_text(self.spare_pages(host))))
            .collect();
        writeln!(out)?;
        if !spare.is_empty() {
            writeln!(out, "To spare: {}.", spare.join(", "))?;
        }
        let best = if self.plan.proved {
            format!("No plan in parts of {} has fewer", pages_text(self.unit_pages))
        } else {
            "The best plan found; not all were tried".to_owned()
        };
        writeln!(out, "{best}: {} misses in all.", refault_console::text::grouped(self.plan.misses))
    }

    fn write_csv(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record([
            "trace",
            "policy",
            "host",
            "memory_pages",
            "memory_bytes",
            "accesses",
            "misses",
            "miss_ratio",
        ])?;
        for row in self.rows() {
            csv.write_record([
                row.trace.trace.as_str(),
                &row.trace.curves[0].policy,
                &row.host.to_string(),
                &row.memory_pages.to_string(),
                &(row.memory_pages * PAGE_BYTES).to_string(),
                &row.trace.accesses.to_string(),
                &row.misses.to_string(),
                &row.miss_ratio().to_string(),
            ])?;
        }
        csv.flush()
    }

    fn write_json(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let rows = self.rows();
        let of_host = |host: usize| -> Vec<_> {
            let rows = rows.iter().filter(|row| row.host == host);
            rows.map(|row| {
                json!({
                    "trace": row.trace.trace,
                    "policy": row.trace.curves[0].policy,
                    "memory_pages": row.memory_pages,
                    "memory_bytes": row.memory_pages * PAGE_BYTES,
                    "accesses": row.trace.accesses,
                    "misses": row.misses,
                    "miss_ratio": row.miss_ratio(),
                    "first_touches": row.trace.first_touches(),
                })
            })
            .collect()
        };
        let hosts: Vec<_> = (1..=self.hosts)
            .map(|host| {
                json!({"host": host, "spare_bytes": self.spare_pages(host) * PAGE_BYTES, "programs": of_host(host)})
            })
            .collect();
        let memory = self.units * self.unit_pages * PAGE_BYTES;
        let object = json!({
            "memory_bytes": memory,
            "misses": self.plan.misses,
            "proved": self.plan.proved,
            "hosts": hosts,
        });
        serde_json::to_writer(&mut *out, &object)?;
        writeln!(out)
    }
}

impl Row<'_> {
    fn miss_ratio(&self) -> f64 {
        self.misses as f64 / self.trace.accesses as f64
    }
}
