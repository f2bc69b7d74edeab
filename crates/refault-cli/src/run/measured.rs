//! `refault run` with several budgets, or several runs: what `refault size` measures, for budgets that are given and
//! with every option of `refault run`.

use std::ffi::OsString;

use clap::{ArgAction, CommandFactory};
use refault_console::{Failure, Format, with_output};
use refault_lab::size::{PAGE_BYTES, Size};

use super::{BudgetList, RunArgs};
use crate::size::trial::Runner;
use crate::size::{Plan, check_budgets, write};

/// Options that are this command's own, not those of each run.
const OWN: [&str; 5] = ["memory", "runs", "slowdown", "program", "quiet"];
/// How much longer a program may take, unless it is said.
const SLOWDOWN: f64 = 0.05;
/// Times the program's time alone after which a run is ended.
const GIVE_UP: u32 = 100;

/// Runs the program under each budget in turn, and writes a table.
///
/// # Errors
/// An option has no meaning for several runs, or the program cannot be run.
pub fn run(args: &RunArgs, budgets: &BudgetList) -> Result<(), Failure> {
    let one_run = [
        ("--stats", args.stats.is_some()),
        ("--summary", args.summary.is_some()),
        ("--watch", args.watch),
        ("--what-if", args.what_if),
        ("--memory-control", args.memory_control.is_some()),
    ];
    if let Some((option, _)) = one_run.iter().find(|(_, given)| *given) {
        let remedy = "it is for one run: give one budget and no --runs";
        return Err(Failure::usage("not possible with several runs", option, remedy));
    }
    let budgets = budgets.all().map(|bytes| Size::Pages(bytes / PAGE_BYTES)).collect::<Vec<_>>();
    check_budgets(&budgets)?;
    let runner = Runner::new(args.program.clone(), options()?)?;
    let plan = Plan {
        slowdown: args.slowdown.map_or(SLOWDOWN, |share| share.0),
        budgets,
        runs: args.runs,
        give_up: GIVE_UP,
        records: false,
        thorough: true,
    };
    let study = plan.carry_out(&runner, args.policy())?;
    with_output(None, |out| write::write(out, &study, Format::Table))
}

/// What was given on the command line besides [`OWN`], as each run gets it.
fn options() -> Result<Vec<OsString>, Failure> {
    let mut root = crate::Cli::command();
    root.build();
    let unreadable = |error: clap::Error| Failure::Usage(error.to_string());
    let matches = root.clone().try_get_matches_from(std::env::args_os()).map_err(unreadable)?;
    let (Some(given), Some(command)) = (matches.subcommand_matches("run"), root.find_subcommand("run")) else {
        return Ok(Vec::new());
    };
    let mut options = Vec::new();
    for argument in command.get_arguments() {
        let (id, Some(long)) = (argument.get_id().as_str(), argument.get_long()) else { continue };
        let typed = given.value_source(id) == Some(clap::parser::ValueSource::CommandLine);
        if !typed || OWN.contains(&id) {
            continue;
        }
        if matches!(argument.get_action(), ArgAction::SetTrue) {
            options.push(format!("--{long}").into());
            continue;
        }
        for value in given.get_raw(id).into_iter().flatten() {
            let mut option = OsString::from(format!("--{long}="));
            option.push(value);
            options.push(option);
        }
    }
    Ok(options)
}
