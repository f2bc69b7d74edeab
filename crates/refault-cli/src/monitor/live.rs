//! `refault monitor -- PROGRAM`: the monitor over a program's memory while it runs.
//!
//! The monitor works inside the program ([`refault_paging::ProcessMonitor`]) and writes the regions of each aggregation
//! to a file; this command reads it when the program has ended, and says what was hot when, how much memory was in use,
//! and what it cost. The program's output is its own: tables go to standard error or to `--out`.

use std::io::Write;
use std::path::Path;

use refault_console::{Contents, Failure, Output, say, say_text};

use super::kernel::{Kernel, SYSFS};
use super::recording::{Recording, read};
use super::{MonitorArgs, RecordingFormat, Source, show};
use crate::inherited::Unnamed;
use crate::launch::{self, Launch};
use refault_lab::size::PAGE_BYTES;

/// Runs the program and says what was seen.
pub fn run(args: &MonitorArgs) -> Result<(), Failure> {
    launch::check_policy(&args.policy)?;
    let memory = args.memory.pages(launch::machine_bytes() / PAGE_BYTES).saturating_mul(PAGE_BYTES);
    let mut outputs = args.outputs();
    let output = args.claim_recording(&mut outputs)?;
    let report = outputs.claim("--report", args.report.as_deref(), Contents::Html)?;
    let mut launch = Launch::new(&args.program, memory)?;
    let found = Unnamed::new()?;
    launch.settings().policy.clone_from(&args.policy);
    let out = launch.output(found.path())?;
    let config = launch.monitor(&args.monitor, &args.policy, args.monitor_cpu.0)?;
    launch.settings().monitor.get_or_insert_default().out = Some(out);
    let mut kernel = match args.source {
        Some(Source::Kernel) => {
            Some(Kernel::claim(Path::new(SYSFS), "leave --source kernel out: refault's own monitor needs none")?)
        }
        Some(Source::Mappings) => {
            let remedy = "leave it out: refault's monitor sees more; it is for programs that run already (--pid)";
            return Err(Failure::usage("an option without effect", "--source mappings", remedy));
        }
        Some(Source::Refault) | None => None,
    };
    let code = launch.run_with(|pid| {
        if let Some(kernel) = &mut kernel {
            kernel.monitor(pid, &config.attributes);
        }
    })?;
    let text = std::fs::read_to_string(found.path()).map_err(|error| Failure::write("a temporary file", &error))?;
    let processes = read(&text);
    let command = args.program.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ");
    if processes.first().is_none_or(|process| process.snapshots.is_empty()) {
        let remedy = "it ended before the first aggregation was over, or executes a program that cannot be managed";
        return Err(Failure::failed("nothing was monitored", command, remedy));
    }
    let recording = Recording {
        program: command,
        source: "refault".to_owned(),
        actions: config.schemes.iter().map(|scheme| scheme.action.name().to_owned()).collect(),
        processes,
        kernel: kernel.map(|kernel| kernel.finish()).filter(|kernel| !kernel.snapshots.is_empty()),
    };
    write_recording(args, &recording, output, report, false)?;
    if code == 0 { Ok(()) } else { Err(Failure::Exit(code)) }
}

/// Writes what was seen to where it was asked for. Without a file it goes to standard error, because standard output is
/// a monitored program's own, or to standard output where there is none.
pub fn write_recording(
    args: &MonitorArgs,
    recording: &Recording,
    output: Option<Output>,
    report: Option<Output>,
    alone: bool,
) -> Result<(), Failure> {
    let write = |out: &mut dyn Write| match args.recording_format() {
        RecordingFormat::Table => show::table(out, recording),
        RecordingFormat::Csv => recording.processes.first().map_or(Ok(()), |process| show::regions_csv(out, process)),
        RecordingFormat::Json => {
            serde_json::to_writer_pretty(&mut *out, &show::to_json(recording))?;
            writeln!(out)
        }
        RecordingFormat::Raw => recording.write(out),
    };
    match output {
        Some(output) => output.write(write)?,
        None if alone => refault_console::with_output(None, write)?,
        None => {
            let mut text = Vec::new();
            write(&mut text).map_err(|error| Failure::write("memory", &error))?;
            say_text(&text);
        }
    }
    if let Some(report) = report {
        let path = report.path().display().to_string();
        crate::report::write_monitor(report, recording)?;
        say(format_args!("report written to {path}"));
    }
    Ok(())
}
