//! `refault pool`: many programs, one memory.

mod plan;

use clap::{Args, Subcommand};
use refault_console::Failure;

/// Share one memory among many programs
#[derive(Args, Debug)]
pub struct PoolArgs {
    #[command(subcommand)]
    command: PoolCommand,
}

#[derive(Subcommand, Debug)]
enum PoolCommand {
    Plan(plan::PlanArgs),
}

/// Runs the command.
pub fn run(args: &PoolArgs) -> Result<(), Failure> {
    match &args.command {
        PoolCommand::Plan(args) => plan::run(args),
    }
}
