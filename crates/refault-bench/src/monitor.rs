//! `refault-bench monitor`: what monitoring a live program costs, in processor time and in the program's speed.
//!
//! The same program, the same budget into which it fits, with and without a monitor at default settings, interleaved.

use std::ffi::OsString;

use refault_console::{Failure, Format, say, with_output};
use serde_json::json;

use super::live::{Measured, Setup, Work, middle, run as run_once};

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  refault-bench monitor                     4 GiB, five runs with and five without
  refault-bench monitor --mib 512 --runs 9")]
/// Measure what monitoring a program costs
pub struct MonitorArgs {
    /// MiB that the program has
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(16..=65_536))]
    mib: u64,
    /// Seconds of work a run
    #[arg(long, value_name = "N", default_value_t = 8.0)]
    seconds: f64,
    /// Runs of each, interleaved
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    runs: u64,
    /// How to write what came out
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    format: Format,
}

/// Runs the command.
pub fn run(args: &MonitorArgs) -> Result<(), Failure> {
    let config = tempfile::NamedTempFile::new().map_err(|error| Failure::write("a temporary file", &error))?;
    // Defaults, and nothing to act.
    std::fs::write(config.path(), "ops = \"paddr\"\n").map_err(|error| Failure::write("a temporary file", &error))?;
    let monitoring: Vec<OsString> = vec!["--scheme".into(), config.path().into()];
    let memory = (args.mib << 20) * 11 / 10 + (64 << 20);
    let once = |flags: &[OsString]| {
        run_once(&Setup { work: Work::Phases, mib: args.mib, seconds: args.seconds, flags, memory, pulse: None })
    };
    let mut with: Vec<Measured> = Vec::new();
    let mut without: Vec<Measured> = Vec::new();
    for round in 0..args.runs {
        say(format_args!("run {} of {}", round + 1, args.runs));
        if round % 2 == 0 {
            without.push(once(&[])?);
            with.push(once(&monitoring)?);
        } else {
            with.push(once(&monitoring)?);
            without.push(once(&[])?);
        }
    }
    let ratios = middle(with.iter().zip(&without).map(|(with, without)| with.operations / without.operations.max(1.0)));
    let cpu = middle(with.iter().map(|run| run.monitor_cpu * 100.0));
    let [plain, monitored] = [&without, &with].map(|runs| middle(runs.iter().map(|run| run.operations)));
    with_output(None, |out| match args.format {
        Format::Json => {
            let result = json!({
                "mib": args.mib, "runs": args.runs, "seconds": args.seconds,
                "operations_per_second_without": plain, "operations_per_second_with": monitored,
                "ratio": ratios, "monitor_cpu_percent": cpu,
            });
            writeln!(out, "{result:#}")
        }
        _ => {
            writeln!(
                out,
                "a program of {} MiB that fits, {} interleaved runs of {} s; median (least–most)",
                args.mib, args.runs, args.seconds
            )?;
            writeln!(
                out,
                "operations per second without a monitor  {:.0} ({:.0}–{:.0})",
                plain[0], plain[1], plain[2]
            )?;
            writeln!(
                out,
                "operations per second with a monitor     {:.0} ({:.0}–{:.0})",
                monitored[0], monitored[1], monitored[2]
            )?;
            writeln!(
                out,
                "ratio of pairs                         {:.3} ({:.3}–{:.3})",
                ratios[0], ratios[1], ratios[2]
            )?;
            writeln!(out, "monitor, % of one processor            {:.2} ({:.2}–{:.2})", cpu[0], cpu[1], cpu[2])
        }
    })
}
