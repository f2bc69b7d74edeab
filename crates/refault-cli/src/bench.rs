//! `refault bench`: how fast this build is on this machine.

mod calibrate;
mod sim;

use clap::{Args, Subcommand};

use crate::failure::Failure;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault bench sim                              the speed table, on 100 million accesses
  refault bench sim --accesses 10000000 --runs 5
  refault bench calibrate                        costs for the simulated machine, measured here")]
/// Measure speed
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand, Debug)]
enum BenchCommand {
    Calibrate(calibrate::CalibrateArgs),
    Sim(sim::SimArgs),
}

/// Runs the command.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    match &args.command {
        BenchCommand::Calibrate(args) => calibrate::run(args),
        BenchCommand::Sim(args) => sim::run(args),
    }
}
