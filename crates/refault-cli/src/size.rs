//! `refault size`: how much memory a program needs, in one command.
//!
//! The program is run alone, with ample memory, and in less, as long as three times its own time allow. With
//! `--thorough` it is recorded and run under the budgets that the recording suggests. Budgets between them follow until
//! the smallest one that is enough is known to a tenth. What decides is repeated until the answer stands. [`plan`] says
//! what is run, [`trial`] is one run, [`ladder`] what the runs come to. [`prediction`] is what is known before,
//! [`words`] the sentences, [`write`] the tables.
//!
//! Cost: three times the program's own time, with `--thorough` eight to forty; what takes ten times as long as alone is
//! ended.

pub mod ladder;
mod listening;
pub mod plan;
pub mod prediction;
mod server;
pub mod trial;
pub mod words;
pub mod write;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use refault_console::{Contents, Failure, ResultArgs, Share, say, with_output};
use refault_lab::size::{PAGE_BYTES, Size};
use refault_paging::MIN_PROGRAM_BYTES;

use crate::launch;
use ladder::Ladder;
pub use plan::Plan;
use prediction::Prediction;
use server::Server;
use trial::Runner;

/// Nothing is waited for longer.
const MAX_TIME: Duration = Duration::from_secs(30 * 86_400);
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault size -- python3 analysis.py                 a quick answer
  refault size --thorough -- python3 analysis.py      one that says how far it may be off
  refault size --slowdown 20% --report size.html -- ./solver input.dat
  refault size --budgets 50%,75%,100% --runs 3 -- sort big.txt
  refault size --load 'memtier_benchmark -n 2000 --hide-histogram' -- redis-server --save ''

Times are wall-clock times from start to end, or with --load those of the load. Runs read nothing (or --stdin) and
what they print is thrown away. Budgets in % are parts of the peak: the most that was resident with ample memory.")]
/// Find out how much memory a program needs: record it, then run it in less and less
pub struct SizeArgs {
    /// How much longer the program may take
    #[arg(long, value_name = "PERCENT", default_value = "5%")]
    slowdown: Share,
    /// Repeat the runs, under several budgets, until the answer stands
    #[arg(long)]
    thorough: bool,
    /// Budgets to run the program under, thoroughly [default: those that its recording suggests, and what lies between them]
    #[arg(long, value_name = "SIZE,SIZE…", value_delimiter = ',', value_parser = Size::of_peak)]
    budgets: Vec<Size>,
    /// Runs under each budget, thoroughly [default: at most 5; 3 or 2 for a program that takes longer than 5 or 30 s]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// The program is a server: start it, time this shell command, stop it
    #[arg(long, value_name = "COMMAND")]
    load: Option<String>,
    /// The shell command that succeeds when the server can be used [default: when it listens on a socket]
    #[arg(long, value_name = "COMMAND", requires = "load")]
    ready: Option<String>,
    /// How long the server may take to be ready
    #[arg(long, value_name = "TIME", requires = "load", default_value = "30s", value_parser = some_time, allow_hyphen_values = true)]
    ready_timeout: Duration,
    /// How long the load may take while the server has all memory; under a budget --give-up bounds it
    #[arg(long, value_name = "TIME", requires = "load", default_value = "10m", value_parser = some_time, allow_hyphen_values = true)]
    load_timeout: Duration,
    /// What each run reads on standard input [default: nothing]
    #[arg(long, value_name = "FILE")]
    stdin: Option<PathBuf>,
    /// Policy that decides what stays, as in `refault run`
    #[arg(long, value_name = "POLICY", default_value = crate::launch::DEFAULT_POLICY)]
    policy: String,
    /// Write pictures and tables as one HTML file
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    #[command(flatten)]
    result: ResultArgs,
    /// Stop a run after this multiple of the time that the program takes alone
    #[arg(long, value_name = "TIMES", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    give_up: u32,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// A time that something may take.
fn some_time(text: &str) -> Result<Duration, String> {
    if text.parse::<f64>().is_ok() {
        return Err(format!("'{text}' has no unit: write {text}s or {text}m"));
    }
    let milliseconds = refault_config::units::time(text, 1_000_000).map_err(|why| format!("'{text}' {why}"))?;
    match Duration::from_millis(milliseconds) {
        time if time.is_zero() => Err(format!("'{text}' is not a time above zero; write one such as 90s or 10m")),
        time if time > MAX_TIME => Err(format!("'{text}' is more than {} days", MAX_TIME.as_secs() / 86_400)),
        time => Ok(time),
    }
}

/// All that was found out.
pub struct Study {
    /// The program and its arguments.
    pub program: String,
    /// The load, if it is a server.
    pub load: Option<String>,
    /// The policy.
    pub policy: String,
    /// The runs.
    pub ladder: Ladder,
    /// What the recording says, or why there is none.
    pub prediction: Result<Prediction, String>,
    /// What a run was ended after, in times of the program alone.
    pub give_up: f64,
    /// Runs were repeated.
    pub thorough: bool,
    /// The program takes long enough that what may be lost can be measured.
    pub is_measurable: bool,
}

/// Runs the command.
pub fn run(args: &SizeArgs) -> Result<(), Failure> {
    launch::check_policy(&args.policy)?;
    check_budgets(&args.budgets)?;
    launch::check_kernel()?;
    let mut runner = Runner::new(args.program.clone(), vec!["--policy".into(), args.policy.clone().into()])?;
    runner.stdin = args.stdin.clone();
    runner.server = args.load.clone().map(|load| Server {
        load,
        ready: args.ready.clone(),
        ready_timeout: args.ready_timeout,
        load_timeout: args.load_timeout,
    });
    let mut outputs = args.result.outputs();
    args.program.iter().for_each(|argument| outputs.reads(Path::new(argument)));
    args.stdin.iter().for_each(|path| outputs.reads(path));
    let (format, out) = args.result.claim(&mut outputs)?;
    let report = outputs.claim("--report", args.report.as_deref(), Contents::Html)?;
    let plan = Plan {
        slowdown: args.slowdown.0,
        budgets: args.budgets.clone(),
        runs: args.runs,
        give_up: args.give_up,
        records: true,
        thorough: args.thorough || args.runs.is_some() || !args.budgets.is_empty(),
    };
    runner.follows = !plan.thorough;
    let study = plan.carry_out(&runner, &args.policy)?;
    with_output(out, |out| write::write(out, &study, format))?;
    if let Some(report) = report {
        let path = report.path().display().to_string();
        crate::report::write_size(report, &study)?;
        say(format_args!("report written to {path}"));
    }
    Ok(())
}

/// Refuses budgets that are known to be too small before anything is run.
///
/// # Errors
/// Names the budget.
pub fn check_budgets(budgets: &[Size]) -> Result<(), Failure> {
    let too_small = |size: &&Size| match size {
        Size::Share(_) => false,
        size => size.pages(1) * PAGE_BYTES < MIN_PROGRAM_BYTES,
    };
    match budgets.iter().find(too_small) {
        None => Ok(()),
        Some(small) => {
            Err(Failure::usage("too little", small, "give at least 2M: with less a program may make no progress"))
        }
    }
}
