//! `refault policies`: what can be compared, and which published variant each default is.

use clap::Args;
use serde_json::{Value, json};

use refault_console::Failure;
use refault_console::{Format, with_output};
use refault_core::policy::FrontEnd;
use refault_core::policy::registry::{Fact, Family, POLICIES, PolicyEntry};
use refault_lab::policies::parse_policies;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault policies
  refault policies mglru lirs                           these alone
  refault policies --format json
  refault compare --policy 'lru,s3fifo{small=0.2}'      how parameters are given")]
/// List the policies, their variants and their parameters
pub struct PoliciesArgs {
    /// Say what these are; all if none is named
    #[arg(value_name = "POLICY")]
    names: Vec<String>,
    /// Output format
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    format: Format,
}

/// Runs the command.
pub fn run(args: &PoliciesArgs) -> Result<(), Failure> {
    let entries = entries(&args.names)?;
    with_output(None, |out| match args.format {
        Format::Table => write_table(out, &entries),
        Format::Csv => write_csv(out, &entries),
        Format::Json => {
            let policies: Vec<Value> = entries.iter().map(|entry| object(entry)).collect();
            serde_json::to_writer_pretty(&mut *out, &json!({ "policies": policies }))?;
            writeln!(out)
        }
    })
}

/// The policies of these names, or all.
fn entries(names: &[String]) -> Result<Vec<&'static PolicyEntry>, Failure> {
    if names.is_empty() {
        return Ok(POLICIES.iter().collect());
    }
    let named = parse_policies(names)?;
    Ok(POLICIES.iter().filter(|entry| named.iter().any(|spec| spec.entry.name == entry.name)).collect())
}

fn write_table(out: &mut dyn std::io::Write, entries: &[&'static PolicyEntry]) -> std::io::Result<()> {
    for family in [Family::Own, Family::Textbook, Family::Bound, Family::Kernel] {
        let mut entries = entries.iter().filter(|entry| entry.family == family).peekable();
        if entries.peek().is_none() {
            continue;
        }
        let heading = match family {
            Family::Own => "This project's (finds out while it runs which way of choosing suits):",
            Family::Kernel => "As kernels do it (limits in pages of data; reclaim in batches):",
            Family::Bound => "A bound, to see what is left to gain (no program can run it):",
            Family::Textbook => "Textbook (one page is one unit; memory starts empty; a first access is a miss):",
        };
        writeln!(out, "{heading}\n")?;
        for entry in entries {
            writeln!(out, "  {:<15} {}", entry.name, entry.description)?;
            writeln!(out, "  {:<15} variant: {}", "", entry.variant)?;
            writeln!(out, "  {:<15} {}", "", places(entry))?;
            for p in entry.all_parameters() {
                writeln!(out, "  {:<15}   {}={} ({}): {}", "", p.name, p.default, p.values, p.meaning)?;
            }
        }
        writeln!(out)?;
    }
    writeln!(out, "Parameters go in braces: --policy 'name{{key=value,key=value}},name'.")
}

/// What it costs and where it runs.
fn places(entry: &'static PolicyEntry) -> String {
    let runs: Vec<_> =
        FrontEnd::ALL.into_iter().filter(|at| entry.refusal(*at).is_none()).map(FrontEnd::name).collect();
    match entry.metadata_bytes_per_page() {
        Some(bytes) => format!("{bytes:.1} bytes per page; runs in {}", runs.join(", ")),
        None => format!("runs in {}", runs.join(", ")),
    }
}

fn write_csv(out: &mut dyn std::io::Write, entries: &[&'static PolicyEntry]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["policy", "parameter", "default", "values", "meaning"])?;
    for entry in entries {
        csv.write_record([entry.name, "", "", "", entry.description])?;
        for p in entry.all_parameters() {
            csv.write_record([entry.name, p.name, p.default, p.values, p.meaning])?;
        }
    }
    csv.flush()
}

fn object(entry: &'static PolicyEntry) -> Value {
    let parameter = |p: &refault_core::parameter::Parameter| json!({ "name": p.name, "default": p.default, "values": p.values, "meaning": p.meaning });
    json!({
        "name": entry.name,
        "family": entry.family.name(),
        "aliases": entry.aliases,
        "description": entry.description,
        "variant": entry.variant,
        "needs_future": entry.is(Fact::NeedsFuture),
        "metadata_bytes_per_page": entry.metadata_bytes_per_page(),
        "front_ends": FrontEnd::ALL.map(|front_end| json!({ "name": front_end.name(), "refusal": entry.refusal(front_end) })),
        "parameters": entry.all_parameters().map(parameter).collect::<Vec<_>>(),
    })
}
