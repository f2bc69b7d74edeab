//! The command line of refault: page reclaim policies over traces.
//!
//! One file per subcommand; results go to standard output or `--out`, everything else to standard error. Exit codes:
//! 0 done, 1 failed, 2 wrong usage or unreadable input, with one line that says what, where and what to do.
#![deny(unsafe_code)]

mod compare;
mod completions;
mod doctor;
mod embedded;
mod history;
mod inherited;
mod launch;
mod monitor;
mod mrc;
mod policies;
mod pool;
mod program;
mod reclaim;
mod record;
mod report;
mod reproduce;
mod run;
mod run_report;
mod scenario;
mod serve;
mod size;
mod source;
mod tables;
mod top;
mod trace;
mod workloads;
mod wss;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use refault_console::Failure;

#[derive(Parser, Debug)]
#[command(
    name = "refault",
    version,
    about = "Linux-grade page reclaim: simulate policies, run programs in less memory",
    after_help = "\
Examples:
  refault compare                        built-in workloads, all policies; a table and refault-report.html
  refault compare app.u64.zst --memory 10%,25%,50%
  refault policies                       what can be compared
  refault COMMAND --help                 examples for each command
  refault man --out DIRECTORY            the same as manual pages; refault completions SHELL for the shell"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Size(size::SizeArgs),
    Run(run::RunArgs),
    Top(top::TopArgs),
    Pool(pool::PoolArgs),
    Serve(serve::ServeArgs),
    Wss(wss::WssArgs),
    Reclaim(reclaim::ReclaimArgs),
    Report(run_report::ReportArgs),
    Record(record::RecordArgs),
    Doctor(doctor::DoctorArgs),
    Compare(compare::CompareArgs),
    Mrc(mrc::MrcArgs),
    Trace(trace::TraceArgs),
    Monitor(monitor::MonitorArgs),
    Reproduce(reproduce::ReproduceArgs),
    Scenario(scenario::ScenarioArgs),
    Policies(policies::PoliciesArgs),
    Workloads(workloads::WorkloadsArgs),
    Bench(refault_bench::BenchArgs),
    Completions(completions::CompletionsArgs),
    Man(completions::ManArgs),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let result = match &cli.command {
        Command::Size(args) => size::run(args),
        Command::Run(args) => run::run(args),
        Command::Top(args) => top::run(args),
        Command::Pool(args) => pool::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Wss(args) => wss::run(args),
        Command::Reclaim(args) => reclaim::run(args),
        Command::Report(args) => run_report::run(args),
        Command::Record(args) => record::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Mrc(args) => mrc::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Monitor(args) => monitor::run(args),
        Command::Reproduce(args) => reproduce::run(args),
        Command::Scenario(args) => scenario::run(args),
        Command::Policies(args) => policies::run(args),
        Command::Workloads(args) => workloads::run(args),
        Command::Bench(args) => refault_bench::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => completions::run_man(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Help and version as clap prints them; everything else on one line.
fn usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that has gone away does not want the help any more.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            let text = error.render().to_string();
            let mut lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
            let first = lines.next().unwrap_or("").trim_start_matches("error: ").to_string();
            let rest: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with("For more")).collect();
            let what = if rest.is_empty() { first } else { format!("{first}; {}", rest.join("; ")) };
            Failure::usage("wrong usage", what, format!("see 'refault {}--help'", command_named())).report()
        }
    }
}

/// The commands on the command line, each with a space behind it: `trace info `.
fn command_named() -> String {
    let root = Cli::command();
    let (mut command, mut names) = (&root, String::new());
    for argument in std::env::args().skip(1) {
        let Some(found) = command.find_subcommand(&argument) else { break };
        names.push_str(found.get_name());
        names.push(' ');
        command = found;
    }
    names
}
