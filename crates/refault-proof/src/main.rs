//! `refault-proof`: the gauntlet, the probes and the fuzzer by hand, for runs that are longer than a test's.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use refault_proof::gauntlet::{Attempt, Gauntlet};
use refault_proof::{ProofError, fuzz, probe};

#[derive(Parser)]
#[command(version, about = "Proves `refault run` from outside")]
struct Arguments {
    /// The binary to try
    #[arg(long, value_name = "FILE", default_value = "target/release/refault")]
    refault: PathBuf,
    /// Options for `refault run`
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    with: Vec<String>,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Real programs alone and under the tool
    Gauntlet {
        /// Run only these
        names: Vec<String>,
        /// Those that take long, too
        #[arg(long)]
        long: bool,
    },
    /// Any shell command alone and under the tool, with parts of the memory that it has alone
    Try {
        /// Budgets in percent of it
        #[arg(long, value_delimiter = ',', default_value = "33,50,200", value_name = "PERCENT,…")]
        percent: Vec<u64>,
        /// What to give to the shell
        command: String,
    },
    /// Small C programs that show one thing each
    Probes {
        /// Run only these
        names: Vec<String>,
        /// Programs that `compile` has made, instead of compiling them
        #[arg(long, value_name = "DIR")]
        compiled: Option<PathBuf>,
    },
    /// Compile the probes' programs, for a machine without a compiler
    Compile {
        /// Where to put them
        directory: PathBuf,
    },
    /// Random memory calls beside the bare kernel
    Fuzz {
        /// Where the random numbers start
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// For how long
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// The budget in MiB
        #[arg(long, default_value_t = fuzz::MEMORY_MIB)]
        memory: u64,
        /// Stop after this number of different failures
        #[arg(long, default_value_t = 1)]
        failures: usize,
        /// Seconds that a sequence may take: of the clock if it stands still, else of processor time
        #[arg(long, default_value_t = fuzz::LIMIT.as_secs())]
        limit: u64,
        /// Leave out these operations
        #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
        without: Vec<String>,
        /// Run this sequence instead, and show where it differs
        #[arg(long, value_name = "FILE")]
        replay: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.what {
        What::Gauntlet { names, long } => gauntlet(&arguments, names, *long),
        What::Try { percent, command } => attempt(&arguments, command, percent),
        What::Probes { names, compiled } => probes(&arguments, names, compiled.as_deref()),
        What::Compile { directory } => probe::compile_all(directory).map(|()| true),
        What::Fuzz { seed, seconds, memory, failures, limit, without, replay } => {
            let without = without.iter().cloned().collect();
            let (refault, options) = (arguments.refault.clone(), arguments.with.clone());
            let limit = Duration::from_secs(*limit);
            let tool = fuzz::Tool { refault, memory_mib: *memory, options, without, limit };
            match replay {
                Some(file) => replay_sequence(&tool, file),
                None => random_sequences(&tool, *seed, Duration::from_secs(*seconds), *failures),
            }
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("refault-proof: {error}");
            ExitCode::from(2)
        }
    }
}

fn gauntlet(arguments: &Arguments, names: &[String], long: bool) -> Result<bool, ProofError> {
    let gauntlet = Gauntlet::new()?;
    let (mut right, mut within, mut ran) = (0, 0, 0);
    for program in gauntlet.programs() {
        let wanted = if names.is_empty() { long || !program.long } else { names.contains(&program.name) };
        if !wanted {
            continue;
        }
        match gauntlet.run(program, &arguments.refault, &arguments.with)? {
            Attempt::Ran(row) => {
                println!("{:11} {row}", program.name);
                ran += 1;
                right += usize::from(row.is_right());
                within += usize::from(row.keeps_its_bound());
            }
            Attempt::Missing(what) => println!("{:11} missing: {what}", program.name),
            Attempt::Unusable(why) => println!("{:11} unusable: {why}", program.name),
        }
    }
    println!("{right} of {ran} right, {within} within their budget");
    Ok(right == ran)
}

fn attempt(arguments: &Arguments, command: &str, percent: &[u64]) -> Result<bool, ProofError> {
    let mut all = true;
    Gauntlet::new()?.attempt(command, (&arguments.refault, &arguments.with), percent, |row| {
        println!("{row}");
        all &= row.is_right() && row.keeps_its_bound();
    })?;
    Ok(all)
}

fn probes(arguments: &Arguments, names: &[String], compiled: Option<&Path>) -> Result<bool, ProofError> {
    let bench = compiled.map_or_else(probe::Bench::new, probe::Bench::of)?;
    let mut all = true;
    for probe in probe::PROBES.iter().filter(|probe| names.is_empty() || names.iter().any(|name| name == probe.name)) {
        match bench.run(probe, &arguments.refault, &arguments.with)? {
            probe::Attempt::Ran(result) => {
                all &= result.is_right();
                println!("{:34} {result}", probe.name);
            }
            probe::Attempt::Skipped(why) => println!("{:34} skipped: {why}", probe.name),
        }
    }
    Ok(all)
}

fn random_sequences(tool: &fuzz::Tool, seed: u64, time: Duration, failures: usize) -> Result<bool, ProofError> {
    let fuzzer = fuzz::Fuzzer::new(tool)?;
    let report = fuzzer.run(seed, time, failures, |failure| println!("{failure}\n"))?;
    println!("{report}");
    Ok(report.failures.is_empty())
}

fn replay_sequence(tool: &fuzz::Tool, file: &Path) -> Result<bool, ProofError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| ProofError::Io { what: format!("cannot read {}", file.display()), error })?;
    match fuzz::Fuzzer::new(tool)?.compare(&text)? {
        None => {
            println!("the same alone and managed");
            Ok(true)
        }
        Some(difference) => {
            println!("{difference}");
            Ok(false)
        }
    }
}
