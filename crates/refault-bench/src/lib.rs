//! The program `refault-bench`: how fast this build is on this machine.
//!
//! Each subcommand is a module with its own loads and its own table; [`here`] measures rows of published experiments,
//! [`stress`] is the program `refault-stress`. Loads are programs of their own: this one, started again by a hidden
//! subcommand, so that what is measured runs in a process that nothing else disturbs.
//!
//! Cost: seconds to minutes, as each subcommand's help says; nothing here is on any path of the product.
//!
//! ```
//! use clap::Parser;
//! use refault_bench::Bench;
//!
//! // `Bench::run` would then measure.
//! assert!(Bench::try_parse_from(["refault-bench", "sim", "--accesses", "1000", "--runs", "2"]).is_ok());
//! assert!(Bench::try_parse_from(["refault-bench", "sim", "--runs", "many"]).is_err());
//! ```

mod cache;
mod calibrate;
mod estimate;
mod frames;
pub mod here;
mod live;
mod lru_sort;
mod machine;
mod memcached;
mod monitor;
mod pager;
mod piecemeal;
mod pool;
mod random;
mod sim;
pub mod stress;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use refault_console::Failure;
use refault_console::command::{is_answer, reflowed, refusal};

#[derive(Parser, Debug)]
#[command(
    name = "refault-bench",
    version,
    about = "Measure the speed of refault on this machine",
    after_help = "\
Examples:
  refault-bench sim                              the speed table, on 100 million accesses
  refault-bench sim --accesses 10000000 --runs 5
  refault-bench lru-sort                         sorting for live programs under a pulsing budget
  refault-bench monitor                          what monitoring a live program costs
  refault-bench machine                          the simulated machine's, and that idle memory costs nothing
  refault-bench pager --against zram             `refault run` beside the kernel's own swap (root)
  refault-bench pool                             one memory, four programs: fixed parts, cgroups, a pool (root)
  refault-bench frames                           five policies over the same frames, side by side
  refault-bench cache                            the page cache, beside the kernel's in a cgroup (root)
  refault-bench opens                            opening and closing a file in it, beside open(2)
  refault-bench estimate TRACE                   what estimates of live caches cost, and their errors
  refault-bench calibrate                        costs for the simulated machine, measured here"
)]
/// The command line of `refault-bench`.
pub struct Bench {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand, Debug)]
enum BenchCommand {
    Cache(cache::CacheArgs),
    #[command(hide = true)]
    CacheLoad(cache::load::LoadArgs),
    Calibrate(calibrate::CalibrateArgs),
    Estimate(estimate::EstimateArgs),
    LruSort(lru_sort::LruSortArgs),
    Monitor(monitor::MonitorArgs),
    #[command(hide = true)]
    Program(live::program::ProgramArgs),
    Machine(machine::MachineArgs),
    Opens(cache::opens::OpensArgs),
    Pager(pager::PagerArgs),
    #[command(hide = true)]
    PagerLoad(pager::load::LoadArgs),
    Pool(pool::PoolArgs),
    #[command(hide = true)]
    PoolScan(pool::ScanArgs),
    Frames(frames::FramesArgs),
    Here(here::HereArgs),
    #[command(hide = true)]
    HereBuildLoad(here::BuildLoad),
    #[command(hide = true)]
    HereLoad(here::Load),
    Sim(sim::SimArgs),
}

impl Bench {
    /// Runs the command.
    ///
    /// # Errors
    /// Wrong usage, or a load or a program that failed.
    pub fn run(&self) -> Result<(), Failure> {
        match &self.command {
            BenchCommand::Cache(args) => cache::run(args),
            BenchCommand::CacheLoad(args) => cache::load::run(args),
            BenchCommand::Calibrate(args) => calibrate::run(args),
            BenchCommand::Estimate(args) => estimate::run(args),
            BenchCommand::LruSort(args) => lru_sort::run(args),
            BenchCommand::Monitor(args) => monitor::run(args),
            BenchCommand::Program(args) => live::program::execute(args),
            BenchCommand::Machine(args) => machine::run(args),
            BenchCommand::Opens(args) => cache::opens::run(args),
            BenchCommand::Pager(args) => pager::run(args),
            BenchCommand::PagerLoad(args) => pager::load::run(args),
            BenchCommand::Pool(args) => pool::run(args),
            BenchCommand::PoolScan(args) => pool::scan(args),
            BenchCommand::Frames(args) => frames::run(args),
            BenchCommand::Here(args) => here::run(args),
            BenchCommand::HereBuildLoad(load) => here::run_build_load(load),
            BenchCommand::HereLoad(load) => here::run_load(load),
            BenchCommand::Sim(args) => sim::run(args),
        }
    }
}

/// The program: reads its command line, and runs the command.
pub fn main() -> ExitCode {
    let parsed = reflowed(Bench::command()).try_get_matches().and_then(|matches| Bench::from_arg_matches(&matches));
    let result = match parsed {
        Ok(bench) => bench.run(),
        Err(error) if is_answer(&error) || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // Standard output may be closed: then there is none to tell.
            let _ = error.print();
            return ExitCode::from(if is_answer(&error) { 0 } else { 2 });
        }
        Err(error) => Err(Failure::usage("wrong usage", refusal(&error), "see 'refault-bench --help'")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Choices of the command line are shown by the name under which they are chosen.
macro_rules! shown_by_name {
    ($choice:ty) => {
        impl std::fmt::Display for $choice {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let value = clap::ValueEnum::to_possible_value(self).expect("invariant: no choice is hidden");
                f.write_str(value.get_name())
            }
        }
    };
}
use shown_by_name;

/// The value in the middle, or the mean of the two there.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!((median(vec![3.0, 1.0, 2.0]), median(vec![4.0, 1.0])), (2.0, 2.5));
    }
}
