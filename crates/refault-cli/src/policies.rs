//! `refault policies`: what can be compared, and which published variant each default is.

use clap::Args;
use serde_json::{Value, json};

use refault_console::Failure;
use refault_console::{Format, with_output};
use refault_lab::registry::POLICIES;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault policies
  refault policies --format json
  refault compare --policy 'lru,s3fifo{small=0.2}'      how parameters are given")]
/// List the policies, their variants and their parameters
pub struct PoliciesArgs {
    /// How to write the list
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// Runs the command.
pub fn run(args: &PoliciesArgs) -> Result<(), Failure> {
    with_output(None, |out| match args.format {
        Format::Table => write_table(out),
        Format::Csv => write_csv(out),
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &json!({ "policies": entries() }))?;
            writeln!(out)
        }
    })
}

fn write_table(out: &mut dyn std::io::Write) -> std::io::Result<()> {
    for family in ["textbook", "bound", "kernel"] {
        let mut entries = POLICIES.iter().filter(|entry| entry.family == family).peekable();
        if entries.peek().is_none() {
            continue;
        }
        let heading = match family {
            "kernel" => "As kernels do it (limits in pages of data; reclaim in batches):",
            "bound" => "A bound, to see what is left to gain (no program can run it):",
            _ => "Textbook (one page is one unit; memory starts empty; a first access is a miss):",
        };
        writeln!(out, "{heading}\n")?;
        for entry in entries {
            writeln!(out, "  {:<15} {}", entry.name, entry.description)?;
            writeln!(out, "  {:<15} variant: {}", "", entry.variant)?;
            for p in entry.parameters {
                writeln!(out, "  {:<15}   {}={} ({}): {}", "", p.name, p.default, p.values, p.meaning)?;
            }
        }
        writeln!(out)?;
    }
    writeln!(out, "Parameters go in braces: --policy 'name{{key=value,key=value}},name'.")
}

fn write_csv(out: &mut dyn std::io::Write) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["policy", "parameter", "default", "values", "meaning"])?;
    for entry in POLICIES {
        csv.write_record([entry.name, "", "", "", entry.description])?;
        for p in entry.parameters {
            csv.write_record([entry.name, p.name, p.default, p.values, p.meaning])?;
        }
    }
    csv.flush()
}

fn entries() -> Vec<Value> {
    let parameter = |p: &refault_core::parameter::Parameter| json!({ "name": p.name, "default": p.default, "values": p.values, "meaning": p.meaning });
    POLICIES
        .iter()
        .map(|entry| {
            json!({
                "name": entry.name,
                "family": entry.family,
                "description": entry.description,
                "variant": entry.variant,
                "needs_future": entry.needs_future(),
                "parameters": entry.parameters.iter().map(parameter).collect::<Vec<_>>(),
            })
        })
        .collect()
}
