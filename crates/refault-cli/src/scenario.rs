//! `refault scenario`: a simulated machine described in a TOML file, run under one or more policies.

mod table;
mod write;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use clap::Args;
use refault_console::{Contents, Failure, Format, Progress, ResultArgs, read_text, say, with_output};
use refault_lab::scenarios::{self, Case, Request};
use refault_sim::machine::End;
use refault_sim::machine::device::PRESETS;
use refault_trace::{Reading, Source};

use crate::source::say_remarks;
use refault_console::text::number;
use refault_console::text::plain_table;
use refault_lab::size::Size;

pub use table::{PERFORMANCE_COLUMNS, figure, performance_cells};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault scenario init > machine.toml              an example to begin with
  refault scenario check machine.toml               whether it can be run, without running it
  refault scenario machine.toml                     as the file says; tables of tasks, groups and counters
  refault scenario machine.toml --policy classic,mglru --memory 32M,64M,50% --seeds 5
  refault scenario machine.toml --samples over-time.csv --report machine.html
  refault scenario machine.toml --tasks tasks.csv --events events.jsonl
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
    /// Memory of the machine instead of the file's, as 64M or 50% of the file's; nodes keep their shares of it
    #[arg(long, value_name = "SIZE,SIZE…", value_delimiter = ',')]
    memory: Vec<Size>,
    /// Runs of each with random numbers of their own; tables say mean and standard deviation
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,
    /// Refuse traces of which anything was left out, reordered or assumed [default: say so, a line each]
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    result: ResultArgs,
    /// Write all counters over time as CSV (needs sample = "…" in the scenario)
    #[arg(long, value_name = "FILE.csv")]
    samples: Option<PathBuf>,
    /// Write throughput, latency percentiles and waiting of each task and group as CSV
    #[arg(long, value_name = "FILE.csv")]
    tasks: Option<PathBuf>,
    /// Write what happened (starts, ends, kills, commands and what they did), a line of JSON for each event
    #[arg(long, value_name = "FILE.jsonl")]
    events: Option<PathBuf>,
    /// Write pictures of the counters over time as one HTML file (needs sample = "…" in the scenario)
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &ScenarioArgs) -> Result<(), Failure> {
    if args.file.as_os_str() == "devices" {
        return list_devices();
    }
    if args.file.as_os_str() == "init" {
        return with_output(None, |out| out.write_all(scenarios::EXAMPLE.as_bytes()));
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
    let request = read(args, &args.file)?;
    say_traces(args, &request)?;
    if (args.samples.is_some() || args.report.is_some()) && request.scenario.config.sample_interval == 0 {
        let remedy = "add sample = \"1s\" to [machine]";
        return Err(Failure::usage("nothing is sampled over time", args.file.display(), remedy));
    }
    let mut outputs = args.result.outputs();
    outputs.reads(&args.file);
    let (format, out) = args.result.claim(&mut outputs)?;
    let samples = outputs.claim("--samples", args.samples.as_deref(), Contents::Csv)?;
    let tasks = outputs.claim("--tasks", args.tasks.as_deref(), Contents::Csv)?;
    let events = outputs.claim("--events", args.events.as_deref(), Contents::Json)?;
    let written = outputs.claim("--report", args.report.as_deref(), Contents::Html)?;
    let progress = Progress::parts("simulating");
    let cases = scenarios::run(&request, &progress)?;
    drop(progress);
    with_output(out, |out| match format {
        Format::Table => table::write(out, &cases),
        Format::Csv => write::csv(out, &cases),
        Format::Json => write::json(out, &cases),
    })?;
    if let Some(samples) = samples {
        write::samples(samples, &cases)?;
    }
    if let Some(tasks) = tasks {
        write::tasks(tasks, &cases)?;
    }
    if let Some(events) = events {
        write::events(events, &cases)?;
    }
    if let Some(written) = written {
        let path = written.path().display().to_string();
        crate::report::write_scenario(written, &args.file.display().to_string(), &cases)?;
        say(format_args!("report written to {path}"));
    }
    match cases.iter().find(|case| case.runs.iter().any(|run| run.end == End::OutOfMemory)) {
        Some(case) => Err(out_of_memory(case)),
        None => Ok(()),
    }
}

fn read(args: &ScenarioArgs, file: &Path) -> Result<Request, Failure> {
    let text = read_text(file).map_err(|error| Failure::usage("cannot read the scenario", file.display(), error))?;
    Ok(Request::new(&text, &file.display().to_string(), &args.policy, &args.memory, args.seeds)?)
}

/// Says what readers left out or assumed of the traces that tasks replay, by a pass over each. A pipe is read once
/// only, by its task: of that nothing is said but this.
fn say_traces(args: &ScenarioArgs, request: &Request) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    for phase in request.scenario.config.tasks.iter().flat_map(|task| &task.phases) {
        let Source::File { path, .. } = &phase.workload else { continue };
        if !seen.insert(path) {
            continue;
        }
        if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            if args.strict {
                let remedy = "give a file: --strict reads a trace before it is replayed";
                return Err(Failure::usage("cannot read trace twice", path.display(), remedy));
            }
            say(format_args!("{}: no file, so nothing is said of what readers assume", path.display()));
            continue;
        }
        let (mut reader, mut block) = (phase.workload.open()?, Vec::new());
        let progress = Progress::new("reading");
        progress.add(reader.total().unwrap_or(0));
        while reader.read_block(&mut block)? > 0 {
            progress.advance(block.len() as u64);
        }
        drop(progress);
        let reading = Reading::of(&*reader);
        if let Some(remark) = reading.remarks.first().filter(|_| args.strict) {
            return Err(Failure::usage("cannot read trace", path.display(), format!("refused by --strict: {remark}")));
        }
        let name = phase.workload.name();
        say_remarks(&name, &reading);
        if let Some(note) = reading.note() {
            say(format_args!("{name}: {note}"));
        }
    }
    Ok(())
}

/// Builds the machine under each of its policies, and runs none.
fn check(args: &ScenarioArgs, file: &Path) -> Result<(), Failure> {
    let request = read(args, file)?;
    request.check()?;
    say_traces(args, &request)?;
    let names: Vec<&str> = request.policies.iter().map(|spec| spec.label.as_str()).collect();
    with_output(None, |out| {
        writeln!(out, "{}: no mistakes found; it can be run under {}", file.display(), names.join(", "))
    })
}

fn out_of_memory(case: &Case) -> Failure {
    let run = case.runs.iter().find(|run| run.end == End::OutOfMemory).unwrap_or(case.first());
    let last = run.kills.last().map_or("none".to_string(), |kill| {
        format!("{} with {} pages at {} s in {}", kill.task, kill.pages, number(kill.at as f64 / 1e9), kill.group)
    });
    Failure::failed(
        "out of memory",
        format!("{}: {} kills, the last one {last}", case.name(), run.kills.len()),
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
