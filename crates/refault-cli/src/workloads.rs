//! `refault workloads`: what can be generated.

use std::io::Write;

use clap::Args;
use serde_json::json;

use crate::source::BUILT_IN;
use refault_console::Failure;
use refault_console::{Format, with_output};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault workloads
  refault compare --workload zipf:theta=1.2,pages=256K,accesses=10M,kind=fd
  refault trace generate scanhot:pages=64K,hot=8K scan.u64.zst")]
/// List the workloads that can be generated, and their parameters
pub struct WorkloadsArgs {
    /// Output format
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    format: Format,
}

/// Runs the command.
pub fn run(args: &WorkloadsArgs) -> Result<(), Failure> {
    with_output(None, |out| match args.format {
        Format::Table => write_table(out),
        Format::Csv => write_csv(out),
        Format::Json => write_json(out),
    })
}

fn write_table(out: &mut dyn Write) -> std::io::Result<()> {
    for workload in refault_trace::workloads() {
        writeln!(out, "{}\n  {}", workload.name, workload.purpose)?;
        for p in workload.parameters {
            writeln!(out, "    {:<10} {} (default {})", p.name, p.meaning, p.default)?;
        }
        writeln!(out)?;
    }
    writeln!(
        out,
        "Numbers take K, M and G (powers of 1024). The same text gives the same accesses, on every machine."
    )?;
    writeln!(out, "\n'refault compare' without arguments runs:")?;
    BUILT_IN.iter().try_for_each(|spec| writeln!(out, "  {spec}"))
}

fn write_csv(out: &mut dyn Write) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["workload", "parameter", "default", "meaning"])?;
    for workload in refault_trace::workloads() {
        csv.write_record([workload.name, "", "", workload.purpose])?;
        for p in workload.parameters {
            csv.write_record([workload.name, p.name, p.default, p.meaning])?;
        }
    }
    csv.flush()
}

fn write_json(out: &mut dyn Write) -> std::io::Result<()> {
    let workloads: Vec<_> = refault_trace::workloads()
        .iter()
        .map(|workload| {
            let parameters: Vec<_> = workload
                .parameters
                .iter()
                .map(|p| json!({ "name": p.name, "default": p.default, "meaning": p.meaning }))
                .collect();
            json!({ "name": workload.name, "purpose": workload.purpose, "parameters": parameters })
        })
        .collect();
    serde_json::to_writer_pretty(&mut *out, &json!({ "workloads": workloads, "built_in": BUILT_IN }))?;
    writeln!(out)
}
