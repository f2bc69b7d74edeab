//! `refault monitor report`: what a recording of the monitor (`--format raw`) holds, asked later: the heat map, the
//! working set, what schemes did, as a whole or for a part of time and addresses.

use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use refault_console::{Contents, Failure, Format, ResultArgs, read_text, say, with_output};

use super::recording::{Process, Recording};
use super::show;
use crate::wss::moment;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault monitor --out app.raw -- python3 analysis.py
  refault monitor report heats app.raw
  refault monitor report heats app.raw --from 10s --to 20s --addresses 0x7f0000000000-0x7f0010000000
  refault monitor report wss app.raw --format csv
  refault monitor report schemes app.raw
  refault monitor report all app.raw --report app.html")]
/// Say what a recording of the monitor holds
pub struct QueryArgs {
    /// What is to be said
    #[arg(value_enum, ignore_case = true)]
    what: What,
    /// The recording, as `refault monitor --format raw --out FILE` wrote it
    file: PathBuf,
    /// The process [default: the one with most to see]
    #[arg(long, value_name = "PID")]
    pid: Option<u64>,
    /// Leave out what came before, such as 10s, counted from the first aggregation
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    from: Option<Duration>,
    /// Leave out what came after
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    to: Option<Duration>,
    /// Only these addresses, the last one not included
    #[arg(long, value_name = "START-END", value_parser = addresses)]
    addresses: Option<Range<u64>>,
    #[command(flatten)]
    result: ResultArgs,
    /// Write a report with the pictures too
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// How often which memory was accessed, over time
    Heats,
    /// How large the working set was
    Wss,
    /// What schemes did
    Schemes,
    /// All of it, and hot and cold memory
    All,
}

/// `0x7f00-0x7fff`.
fn addresses(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| match text.trim().strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.trim().parse().ok(),
    };
    let ends = text.split_once('-').and_then(|(start, end)| number(start).zip(number(end)));
    ends.filter(|(start, end)| start < end)
        .map(|(start, end)| start..end)
        .ok_or_else(|| format!("'{text}' is not a range of addresses: write 0x7f0000000000-0x7f0010000000"))
}

/// Runs the command.
pub fn run(args: &QueryArgs) -> Result<(), Failure> {
    let text = read_text(&args.file)
        .map_err(|error| Failure::usage("cannot read the recording", args.file.display(), error))?;
    let mut recording = Recording::read(&text)
        .map_err(|why| Failure::usage("cannot read the recording", args.file.display(), format!("it {why}")))?;
    if let Some(pid) = args.pid {
        recording.processes.retain(|process| process.pid == pid);
    }
    recording.processes.truncate(if args.pid.is_some() || args.what != What::All { 1 } else { usize::MAX });
    let seconds =
        args.from.map_or(0.0, |from| from.as_secs_f64())..args.to.map_or(f64::INFINITY, |to| to.as_secs_f64());
    let addresses = args.addresses.clone().unwrap_or(0..u64::MAX);
    let cut = |process: Process| process.within(seconds.clone(), &addresses);
    recording.processes = recording.processes.into_iter().map(cut).collect();
    recording.kernel = recording.kernel.take().map(cut);
    let Some(process) = recording.processes.first().filter(|process| !process.snapshots.is_empty()) else {
        let remedy = "no process or no time of it is left; ask for more";
        return Err(Failure::usage("nothing was recorded there", args.file.display(), remedy));
    };
    if args.what == What::Schemes && process.sums["schemes"].as_array().is_none_or(Vec::is_empty) {
        let remedy = "record with --scheme or --config";
        return Err(Failure::usage("the recording has no schemes", args.file.display(), remedy));
    }
    let mut outputs = args.result.outputs();
    outputs.reads(&args.file);
    let (format, out) = args.result.claim(&mut outputs)?;
    let report = outputs.claim("--report", args.report.as_deref(), Contents::Html)?;
    with_output(out, |out| match format {
        Format::Table => write_table(out, args.what, &recording, process),
        Format::Csv => match args.what {
            What::Heats | What::All => show::regions_csv(out, process),
            What::Wss => show::working_set_csv(out, process),
            What::Schemes => show::schemes_csv(out, process, &recording.actions),
        },
        Format::Json => {
            let json = match args.what {
                What::Heats => show::heats_json(process),
                What::Wss => show::working_set_json(process),
                What::Schemes => show::schemes_json(process, &recording.actions),
                What::All => show::to_json(&recording),
            };
            serde_json::to_writer_pretty(&mut *out, &json)?;
            writeln!(out)
        }
    })?;
    if let Some(report) = report {
        let path = report.path().display().to_string();
        crate::report::write_monitor(report, &recording)?;
        say(format_args!("report written to {path}"));
    }
    Ok(())
}

fn write_table(out: &mut dyn Write, what: What, recording: &Recording, process: &Process) -> std::io::Result<()> {
    match what {
        What::Heats => {
            show::head(out, recording)?;
            show::heats(out, process, recording.kernel.as_ref())
        }
        What::Wss => {
            show::head(out, recording)?;
            show::working_set(out, process)
        }
        What::Schemes => show::write_schemes(out, process, &recording.actions),
        What::All => show::table(out, recording),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_addresses_are_read() {
        assert_eq!(addresses("0x1000-0x2000"), Ok(4096..8192));
        assert_eq!(addresses("4096 - 8192"), Ok(4096..8192));
        for text in ["", "0x1000", "0x2000-0x1000", "a-b", "0x1000-0x1000"] {
            assert!(addresses(text).is_err(), "{text}");
        }
    }
}
