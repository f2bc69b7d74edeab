//! `refault scenario`: a simulated machine described in a TOML file, run under one or more policies.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use refault_console::{Contents, Failure, ForceArgs, Format, Output, Outputs, Progress, say, with_output};
use refault_sim::machine::End;
use refault_sim::machine::device::PRESETS;
use refault_sim::machine::report::{MonitorReport, Report};
use refault_sim::machine::scenario::Scenario;
use refault_sim::named::{self, DynMachine};
use serde_json::{Map, Value, json};

use crate::monitor::{SCHEME_COLUMNS, scheme_cells};
use refault_console::text::number;
use refault_console::text::{align_numbers, plain_table};
use refault_core::policy::registry::{FrontEnd, PolicySpec};
use refault_lab::policies::parse_policies_for;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault scenario init > machine.toml              an example to begin with
  refault scenario check machine.toml               whether it can be run, without running it
  refault scenario machine.toml                     as the file says; a table of all counters
  refault scenario machine.toml --policy classic,mglru
  refault scenario machine.toml --samples over-time.csv --report machine.html
  refault scenario devices                          the preset devices, their numbers and where they come from")]
/// Run a simulated machine (tasks, groups, devices, events) described in a TOML file
pub struct ScenarioArgs {
    /// The scenario; or 'init' prints an example, 'check FILE' looks for mistakes, 'devices' lists the preset devices
    #[arg(value_name = "FILE|init|check|devices")]
    file: PathBuf,
    /// What is to be checked
    #[arg(value_name = "FILE")]
    checked: Option<PathBuf>,
    /// Policies instead of the file's, as classic or mglru{tiers=1}
    #[arg(long, value_name = "P,P…")]
    policy: Vec<String>,
    /// How to write the counters
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    format: Format,
    /// Write the counters to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write all counters over time as CSV (needs sample = "…" in the scenario)
    #[arg(long, value_name = "FILE.csv")]
    samples: Option<PathBuf>,
    /// Write pictures of the counters over time as one HTML file (needs sample = "…" in the scenario)
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
}

/// A policy's run.
pub struct PolicyRun {
    /// The policy as asked for.
    pub policy: String,
    /// What came out.
    pub report: Report,
}

/// What `refault scenario init` prints.
const EXAMPLE: &str = include_str!("scenario/example.toml");

/// The machine of a scenario under a policy.
fn machine(scenario: &Scenario, file: &Path, spec: &PolicySpec) -> Result<Box<dyn DynMachine>, Failure> {
    named::machine(spec, scenario.config.clone())
        .map_err(|reason| Failure::usage("cannot build the machine", file.display(), reason))
}

/// Runs the command.
pub fn run(args: &ScenarioArgs) -> Result<(), Failure> {
    if args.file.as_os_str() == "devices" {
        return list_devices();
    }
    if args.file.as_os_str() == "init" {
        return with_output(None, |out| out.write_all(EXAMPLE.as_bytes()));
    }
    match (&args.checked, args.file.as_os_str() == "check") {
        (Some(file), true) => return check(args, file),
        (None, true) => return Err(Failure::usage("nothing to check", "scenario check", "name a file behind it")),
        (Some(other), false) => {
            let remedy = "give one scenario; 'check' before it only looks for mistakes";
            return Err(Failure::usage("one scenario too many", other.display(), remedy));
        }
        (None, false) => {}
    }
    let scenario = read(&args.file)?;
    let policies = policies(args, &scenario)?;
    if (args.samples.is_some() || args.report.is_some()) && scenario.config.sample_interval == 0 {
        let remedy = "add sample = \"1s\" to [machine]";
        return Err(Failure::usage("nothing is sampled over time", args.file.display(), remedy));
    }
    let mut outputs = Outputs::new(args.force);
    outputs.reads(&args.file);
    let out = outputs.claim("--out", args.out.as_deref(), args.format.into())?;
    let samples = outputs.claim("--samples", args.samples.as_deref(), Contents::Csv)?;
    let written = outputs.claim("--report", args.report.as_deref(), Contents::Html)?;
    let progress = Progress::part("simulating");
    let mut runs = Vec::new();
    for (index, spec) in policies.iter().enumerate() {
        let report = machine(&scenario, &args.file, spec)?
            .run()
            .map_err(|error| Failure::usage("cannot read a trace", error, "check the scenario's traces"))?;
        runs.push(PolicyRun { policy: spec.label.clone(), report });
        progress.set((index + 1) as f64 / policies.len() as f64);
    }
    drop(progress);
    with_output(out, |out| match args.format {
        Format::Table => write_table(out, &runs),
        Format::Csv => write_csv(out, &runs),
        Format::Json => write_json(out, &runs),
    })?;
    if let Some(samples) = samples {
        write_samples(samples, &runs)?;
    }
    if let Some(written) = written {
        let path = written.path().display().to_string();
        crate::report::write_scenario(written, &args.file.display().to_string(), &runs)?;
        say(format_args!("report written to {path}"));
    }
    match runs.iter().find(|run| run.report.end == End::OutOfMemory) {
        Some(run) => Err(out_of_memory(run)),
        None => Ok(()),
    }
}

fn read(file: &Path) -> Result<Scenario, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage("cannot read the scenario", file.display(), error))?;
    Scenario::parse(&text, &file.display().to_string())
        .map_err(|error| Failure::usage("scenario", error, "correct it and run again"))
}

/// Builds the machine under each of its policies, and runs none.
fn check(args: &ScenarioArgs, file: &Path) -> Result<(), Failure> {
    let scenario = read(file)?;
    let policies = policies(args, &scenario)?;
    for spec in &policies {
        machine(&scenario, file, spec)?;
    }
    let names: Vec<&str> = policies.iter().map(|spec| spec.label.as_str()).collect();
    with_output(None, |out| {
        writeln!(out, "{}: no mistakes found; it can be run under {}", file.display(), names.join(", "))
    })
}

/// The policies asked for, the file's, or the multi-gen LRU.
fn policies(args: &ScenarioArgs, scenario: &Scenario) -> Result<Vec<PolicySpec>, Failure> {
    let asked = match (&args.policy[..], &scenario.policy) {
        ([], Some((named, line))) => {
            let place = format!("{}:{line}: policy", args.file.display());
            parse_policies_for(std::slice::from_ref(named), FrontEnd::Machine)
                .map_err(|failure| Failure::usage("scenario", place, failure))?
        }
        ([], None) => parse_policies_for(&["mglru".to_string()], FrontEnd::Machine)?,
        (asked, _) => parse_policies_for(asked, FrontEnd::Machine)?,
    };
    Ok(asked)
}

fn out_of_memory(run: &PolicyRun) -> Failure {
    let last = run.report.kills.last().map_or("nobody".to_string(), |kill| {
        format!("{} with {} pages at {} s in {}", kill.task, kill.pages, number(kill.at as f64 / 1e9), kill.group)
    });
    Failure::failed(
        "out of memory",
        format!("{}: {} kills, the last one {last}", run.policy, run.report.kills.len()),
        "the tasks need more than memory and swap hold: give the machine more, or the tasks less",
    )
}

fn list_devices() -> Result<(), Failure> {
    with_output(None, |out| {
        let mut table = plain_table();
        table.set_header(["device", "read us", "write us", "read us/page", "write us/page", "parallel", "source"]);
        let us = |ns: u64| number(ns as f64 / 1e3);
        for preset in &PRESETS {
            let model = &preset.model;
            let parallel = if model.synchronous { "caller".to_string() } else { model.parallel.to_string() };
            table.add_row([
                preset.name.to_string(),
                us(model.read_latency),
                us(model.write_latency),
                us(model.read_page),
                us(model.write_page),
                parallel,
                preset.source.to_string(),
            ]);
        }
        writeln!(out, "{}", table.trim_fmt())
    })
}

fn write_table(out: &mut dyn Write, runs: &[PolicyRun]) -> std::io::Result<()> {
    let mut table = plain_table();
    table.set_header(std::iter::once("counter").chain(runs.iter().map(|run| run.policy.as_str())));
    let fields: Vec<_> = runs.iter().map(|run| run.report.fields()).collect();
    for (index, (name, _)) in fields[0].iter().enumerate() {
        table.add_row(std::iter::once(name.clone()).chain(fields.iter().map(|f| number(f[index].1))));
    }
    for column in 1..=runs.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
    }
    writeln!(out, "{}", table.trim_fmt())?;
    for run in runs {
        for group in &run.report.groups[1..] {
            let e = group.events;
            writeln!(
                out,
                "{} {}: {} pages, {} in swap, events low {} high {} max {} oom {} oom_kill {}",
                run.policy, group.name, group.usage, group.swap_usage, e.low, e.high, e.max, e.oom, e.oom_kill
            )?;
        }
        if run.report.lruvecs.len() > 1 {
            writeln!(out, "{}: coldest pages by group and node", run.policy)?;
            for lruvec in &run.report.lruvecs {
                let age = number(lruvec.age as f64 / 1e9);
                writeln!(out, "  {} node {}: {} pages, {age} s", lruvec.group, lruvec.node, lruvec.pages)?;
            }
        }
        for kill in &run.report.kills {
            let at = number(kill.at as f64 / 1e9);
            writeln!(out, "{}: at {at} s {} was killed ({} pages)", run.policy, kill.task, kill.pages)?;
        }
        if let Some(monitor) = &run.report.monitor {
            write_monitor(out, run, monitor)?;
        }
        for listing in &run.report.listings {
            writeln!(out, "{}: at {} s\n{}", run.policy, number(listing.at as f64 / 1e9), listing.text)?;
        }
    }
    Ok(())
}

fn write_monitor(out: &mut dyn Write, run: &PolicyRun, monitor: &MonitorReport) -> std::io::Result<()> {
    let elapsed = run.report.elapsed.max(1) as f64;
    writeln!(
        out,
        "{}: monitor with {} regions, {:.2} % of one CPU; schemes {:.2} %",
        run.policy,
        monitor.nr_regions,
        monitor.monitor_cpu as f64 / elapsed * 100.0,
        monitor.schemes_cpu as f64 / elapsed * 100.0,
    )?;
    if monitor.schemes.is_empty() {
        return Ok(());
    }
    let mut table = plain_table();
    table.set_header(SCHEME_COLUMNS);
    for (index, scheme) in monitor.schemes.iter().enumerate() {
        table.add_row(scheme_cells(index, scheme));
    }
    align_numbers(&mut table);
    writeln!(out, "{}", table.trim_fmt())
}

fn write_csv(out: &mut dyn Write, runs: &[PolicyRun]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    for (index, run) in runs.iter().enumerate() {
        let fields = run.report.fields();
        if index == 0 {
            csv.write_record(std::iter::once("policy").chain(fields.iter().map(|(name, _)| name.as_str())))?;
        }
        csv.write_record(std::iter::once(run.policy.clone()).chain(fields.iter().map(|(_, value)| value.to_string())))?;
    }
    csv.flush()
}

fn write_json(out: &mut dyn Write, runs: &[PolicyRun]) -> std::io::Result<()> {
    let runs: Vec<Value> = runs.iter().map(json_run).collect();
    serde_json::to_writer(&mut *out, &json!({ "runs": runs }))?;
    writeln!(out)
}

fn json_run(run: &PolicyRun) -> Value {
    let mut object = Map::new();
    object.insert("policy".into(), json!(run.policy));
    let end = match run.report.end {
        End::Finished => "finished",
        End::Duration => "duration",
        End::OutOfMemory => "out_of_memory",
    };
    object.insert("end".into(), json!(end));
    for (name, value) in run.report.fields() {
        object.insert(name, json!(value));
    }
    let groups: Vec<Value> = (run.report.groups.iter())
        .map(|g| {
            let e = g.events;
            let events = json!({"low": e.low, "high": e.high, "max": e.max, "oom": e.oom, "oom_kill": e.oom_kill});
            json!({"name": g.name, "usage": g.usage, "swap_usage": g.swap_usage, "major_faults": g.major_faults, "events": events})
        })
        .collect();
    object.insert("groups".into(), Value::Array(groups));
    let tasks: Vec<Value> = (run.report.tasks.iter())
        .map(|t| {
            json!({"name": t.name, "accesses": t.accesses, "operations": t.operations, "finished_at_ns": t.finished_at,
                "kills": t.kills, "stalled_ns": t.stalled, "cpu_time_ns": t.cpu_time, "major_faults": t.major_faults})
        })
        .collect();
    object.insert("tasks".into(), Value::Array(tasks));
    object.insert("lruvecs".into(), json!(run.report.lruvecs));
    object.insert("kills".into(), json!(run.report.kills));
    let listings: Vec<Value> = run.report.listings.iter().map(|l| json!({"at_ns": l.at, "text": l.text})).collect();
    object.insert("listings".into(), Value::Array(listings));
    if let Some(monitor) = &run.report.monitor {
        let described = json!({"nr_regions": monitor.nr_regions, "damo": monitor.tree});
        object.insert("monitor".into(), described);
    }
    Value::Object(object)
}

fn write_samples(output: Output, runs: &[PolicyRun]) -> Result<(), Failure> {
    let mut text = String::new();
    for (index, run) in runs.iter().enumerate() {
        for (line_number, line) in run.report.samples_csv().lines().enumerate() {
            match (index, line_number) {
                (0, 0) => text.push_str(&format!("policy,{line}\n")),
                (_, 0) => {}
                _ => text.push_str(&format!("\"{}\",{line}\n", run.policy)),
            }
        }
    }
    output.write(|out| out.write_all(text.as_bytes()))
}
