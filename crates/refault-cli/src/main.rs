//! The command line of refault: page reclaim policies over traces.
//!
//! One file per subcommand; results go to standard output or `--out`, everything else to standard error. Exit codes:
//! 0 done, 1 failed, 2 wrong usage or unreadable input, with one line that says what, where and what to do.
#![deny(unsafe_code)]
// What the commands share is not all used by a build without some of them.
#![cfg_attr(not(all(feature = "manual", feature = "tui", feature = "web")), allow(dead_code))]

mod compare;
#[cfg(feature = "manual")]
mod completions;
mod dask;
mod doctor;
mod embedded;
mod history;
mod inherited;
mod launch;
mod launched;
mod mistyped;
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
#[cfg(feature = "web")]
mod serve;
mod size;
mod source;
mod tables;
#[cfg(feature = "tui")]
mod top;
mod trace;
mod workloads;
mod wss;

use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use refault_console::command::{is_answer, reflowed, refusal};
use refault_console::{Failure, with_output};

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
    #[cfg(feature = "tui")]
    Top(top::TopArgs),
    #[cfg(not(feature = "tui"))]
    Top(mistyped::absent::AbsentArgs),
    Pool(pool::PoolArgs),
    #[cfg(feature = "web")]
    Serve(serve::ServeArgs),
    #[cfg(not(feature = "web"))]
    Serve(mistyped::absent::AbsentArgs),
    Wss(wss::WssArgs),
    Host(wss::host::HostArgs),
    Why(wss::why::WhyArgs),
    Reclaim(reclaim::ReclaimArgs),
    Report(run_report::ReportArgs),
    Record(record::RecordArgs),
    Doctor(doctor::DoctorArgs),
    Ask(reproduce::ask::AskArgs),
    Compare(compare::CompareArgs),
    Mrc(mrc::MrcArgs),
    Trace(trace::TraceArgs),
    Monitor(monitor::MonitorArgs),
    Reproduce(reproduce::ReproduceArgs),
    Scenario(scenario::ScenarioArgs),
    Policies(policies::PoliciesArgs),
    Workloads(workloads::WorkloadsArgs),
    Bench(program::bench::BenchArgs),
    #[cfg(feature = "manual")]
    Completions(completions::CompletionsArgs),
    #[cfg(not(feature = "manual"))]
    Completions(mistyped::absent::AbsentArgs),
    #[cfg(feature = "manual")]
    Man(completions::ManArgs),
    #[cfg(not(feature = "manual"))]
    Man(mistyped::absent::AbsentArgs),
    #[command(hide = true)]
    KernelKeeper(run::kernel::KeeperArgs),
}

fn main() -> ExitCode {
    // In a guest of `refault ask` this program is the first process.
    refault_ask::guest::run_if_guest();
    if let Err(failure) = mistyped::check(&built(), &words()) {
        return failure.report();
    }
    let parsed = reflowed(Cli::command()).try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let result = match &cli.command {
        Command::Size(args) => size::run(args),
        Command::Run(args) => run::run(args),
        #[cfg(feature = "tui")]
        Command::Top(args) => top::run(args),
        #[cfg(not(feature = "tui"))]
        Command::Top(args) => args.refuse("refault top", "tui"),
        Command::Pool(args) => pool::run(args),
        #[cfg(feature = "web")]
        Command::Serve(args) => serve::run(args),
        #[cfg(not(feature = "web"))]
        Command::Serve(args) => args.refuse("refault serve", "web"),
        Command::Wss(args) => wss::run(args),
        Command::Host(args) => wss::host::run(args),
        Command::Why(args) => wss::why::run(args),
        Command::Reclaim(args) => reclaim::run(args),
        Command::Report(args) => run_report::run(args),
        Command::Record(args) => record::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Mrc(args) => mrc::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Monitor(args) => monitor::run(args),
        Command::Ask(args) => reproduce::ask::run(args),
        Command::Reproduce(args) => reproduce::run(args),
        Command::Scenario(args) => scenario::run(args),
        Command::Policies(args) => policies::run(args),
        Command::Workloads(args) => workloads::run(args),
        Command::Bench(args) => program::bench::run(args),
        #[cfg(feature = "manual")]
        Command::Completions(args) => completions::run(args),
        #[cfg(not(feature = "manual"))]
        Command::Completions(args) => args.refuse("refault completions", "manual"),
        #[cfg(feature = "manual")]
        Command::Man(args) => completions::run_man(args),
        #[cfg(not(feature = "manual"))]
        Command::Man(args) => args.refuse("refault man", "manual"),
        Command::KernelKeeper(args) => run::kernel::keep(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Help and version as clap prints them; everything else on one line.
fn usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        _ if is_answer(error) => match print(&error.render()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.report(),
        },
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            let what = refusal(error);
            // What other tools call an option is not similar.
            let given = error.get(ContextKind::InvalidArg).filter(|_| error.kind() == ErrorKind::UnknownArgument);
            let what = match (given, error.get(ContextKind::SuggestedArg)) {
                (Some(given), None) => match mistyped::meant(&command_given(&built()), &given.to_string()) {
                    Some(meant) => format!(
                        "{}; tip: a similar argument exists: '{meant}'",
                        what.split(';').next().unwrap_or(&what)
                    ),
                    None => what,
                },
                _ => what,
            };
            Failure::usage("wrong usage", what, format!("see 'refault {}--help'", command_named())).report()
        }
    }
}

/// Prints a text of clap's, with its styles where standard output shows them.
fn print(text: &clap::builder::StyledStr) -> Result<(), Failure> {
    let is_plain = anstream::AutoStream::choice(&std::io::stdout()) == anstream::ColorChoice::Never;
    with_output(None, |out| if is_plain { write!(out, "{text}") } else { write!(out, "{}", text.ansi()) })
}

/// The command line's words; what is no text becomes something like it.
fn words() -> Vec<String> {
    std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The whole command, with what clap adds.
fn built() -> clap::Command {
    let mut root = Cli::command();
    root.build();
    root
}

/// The command on the command line.
fn command_given(root: &clap::Command) -> clap::Command {
    let mut command = root;
    for argument in words() {
        let Some(found) = command.find_subcommand(&argument) else { break };
        command = found;
    }
    command.clone()
}

/// The commands on the command line, each with a space behind it: `trace info `.
fn command_named() -> String {
    let root = Cli::command();
    let (mut command, mut names) = (&root, String::new());
    for argument in words() {
        let Some(found) = command.find_subcommand(&argument) else { break };
        names.push_str(found.get_name());
        names.push(' ');
        command = found;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// The words of a line as a shell makes them, up to what it keeps for itself. What a description says begins behind
    /// two blanks.
    fn words_of(line: &str) -> Vec<String> {
        let (mut words, mut quoted) = (vec![String::new()], false);
        let mut rest = line.trim().chars().peekable();
        while let Some(one) = rest.next() {
            match one {
                '\'' => quoted = !quoted,
                '|' | '>' | '&' if !quoted => break,
                ' ' if !quoted && rest.peek() == Some(&' ') => break,
                ' ' if !quoted => words.push(String::new()),
                one => words.last_mut().expect("a word").push(one),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    fn examples(command: &clap::Command, all: &mut Vec<String>) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = help.lines().filter(|line| line.starts_with("  refault ") && !line.contains("COMMAND"));
        all.extend(
            lines.map(|line| {
                line.replace("$(pidof node)", "1").replace("$(pidof redis-server)", "1").replace("$!", "1")
            }),
        );
        command.get_subcommands().for_each(|below| examples(below, all));
    }

    #[test]
    fn every_example_of_the_help_is_taken() {
        let mut all = Vec::new();
        examples(&Cli::command(), &mut all);
        assert!(all.len() > 80, "{all:?}");
        for line in all {
            let taken = Cli::command().try_get_matches_from(words_of(&line));
            assert!(taken.is_ok(), "{line}: {}", taken.expect_err("it is refused"));
        }
    }
}
