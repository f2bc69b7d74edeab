//! `refault bench`: how fast this build is on this machine.

mod calibrate;
mod live;
mod lru_sort;
mod monitor;
mod sim;

use clap::{Args, Subcommand};

use crate::failure::Failure;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault bench sim                              the speed table, on 100 million accesses
  refault bench sim --accesses 10000000 --runs 5
  refault bench lru-sort                         sorting for live programs under a pulsing budget
  refault bench monitor                          what monitoring a live program costs
  refault bench calibrate                        costs for the simulated machine, measured here")]
/// Measure speed
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand, Debug)]
enum BenchCommand {
    Calibrate(calibrate::CalibrateArgs),
    LruSort(lru_sort::LruSortArgs),
    Monitor(monitor::MonitorArgs),
    #[command(hide = true)]
    Program(live::program::ProgramArgs),
    Sim(sim::SimArgs),
}

/// Runs the command.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    match &args.command {
        BenchCommand::Calibrate(args) => calibrate::run(args),
        BenchCommand::LruSort(args) => lru_sort::run(args),
        BenchCommand::Monitor(args) => monitor::run(args),
        BenchCommand::Program(args) => live::program::be(args),
        BenchCommand::Sim(args) => sim::run(args),
    }
}
