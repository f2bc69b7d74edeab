//! `refault size`: how much memory a program needs, in one command.
//!
//! The program is run alone and under refault with ample memory, recorded, and then run under the budgets at which the
//! recording says that something changes, and between them until the smallest one that does is known to a tenth. All is
//! repeated in turn. [`trial`] is one run, [`ladder`] what the runs come to, [`prediction`] what the recording says,
//! [`words`] the sentences, [`write`] the tables.
//!
//! Cost: some eight to forty times the program's own time; what takes ten times as long as alone is ended.

pub mod ladder;
mod listening;
pub mod prediction;
mod server;
pub mod trial;
pub mod words;
pub mod write;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use refault_console::{Contents, Failure, Progress, ResultArgs, Share, say, with_output};
use refault_lab::size::{PAGE_BYTES, Size};
use refault_paging::MIN_PROGRAM_BYTES;

use crate::launch;
use ladder::{Ladder, Row, Rung, refinement};
use prediction::Prediction;
use server::Server;
use trial::{How, Runner};

/// Programs that take longer than these seconds are run so many times.
const RUNS: [(f64, u32); 3] = [(30.0, 2), (5.0, 3), (0.0, 5)];
/// A program that takes less seconds is run once before anything is measured, so that its files are in memory.
const WARM_UP_SECONDS: f64 = 30.0;
/// Budgets added between too little and enough.
const REFINEMENTS: u32 = 4;
/// Nothing is waited for longer.
const MAX_TIME: Duration = Duration::from_secs(30 * 86_400);
/// How close too little and enough are in the end.
const CLOSENESS: f64 = 1.1;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault size -- python3 analysis.py
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
    /// Budgets to run the program under [default: those that its recording suggests, and what lies between them]
    #[arg(long, value_name = "SIZE,SIZE…", value_delimiter = ',')]
    budgets: Vec<Size>,
    /// Runs under each budget [default: 5; 3 or 2 for a program that takes longer than 5 or 30 s]
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
    /// End a run that takes so many times as long as the program alone
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
    pub give_up: u32,
}

/// Runs the command.
pub fn run(args: &SizeArgs) -> Result<(), Failure> {
    launch::check_policy(&args.policy)?;
    check_budgets(&args.budgets)?;
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
    };
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

/// What is to be run.
pub struct Plan {
    /// How much longer the program may take, as a part of its time.
    pub slowdown: f64,
    /// Budgets; none: those that the recording suggests.
    pub budgets: Vec<Size>,
    /// Runs under each; `None`: as the program's time allows.
    pub runs: Option<u32>,
    /// A run is ended after so many times the program's time alone.
    pub give_up: u32,
    /// Whether the program is recorded, so that there is a prediction.
    pub records: bool,
}

impl Plan {
    /// Runs everything.
    ///
    /// # Errors
    /// The program cannot be run or managed, fails, or the command was interrupted.
    pub fn carry_out(&self, runner: &Runner, policy: &str) -> Result<Study, Failure> {
        let progress = Progress::part("measuring");
        let mut alone = runner.run(How::Alone, None)?;
        if alone.seconds < WARM_UP_SECONDS {
            alone = runner.run(How::Alone, None)?;
        }
        let rounds = self
            .runs
            .unwrap_or_else(|| RUNS.iter().find(|(least, _)| alone.seconds >= *least).map_or(1, |(_, runs)| *runs));
        let limit = Duration::from_secs_f64(alone.seconds * f64::from(self.give_up));
        let machine = launch::machine_bytes();
        let ample = runner.run(How::Under(machine), Some(limit * 10))?;
        if ample.given_up {
            let what = "it did not end with all the memory of the machine";
            let remedy =
                "under refault it takes more than --give-up times ten of its time alone, so no budget can be judged";
            return Err(Failure::failed(what, runner.command_line(), remedy));
        }
        let mut ladder = Ladder {
            slowdown: self.slowdown,
            alone: Row { rung: Rung::Alone, outcomes: vec![alone] },
            ample: Row { rung: Rung::Ample(machine), outcomes: vec![ample] },
            budgets: Vec::new(),
            seconds_per_page: None,
        };
        progress.set(0.05);
        let mut recorded = 0.0;
        let prediction = if self.records {
            let steps = || {
                recorded += 0.05;
                progress.set(0.05 + recorded);
            };
            Prediction::record(runner, alone.seconds, steps).map_err(|failure| failure.line().to_owned())
        } else {
            Err("the program was not recorded".to_owned())
        };
        ladder.seconds_per_page = prediction.as_ref().ok().and_then(|prediction| prediction.seconds_per_page);
        if let Err(failure) = &prediction
            && self.records
        {
            say(format_args!("there is no prediction: {failure}"));
        }
        let budgets = self.first_budgets(&ladder, &prediction, alone.seconds)?;
        let steps = (budgets.len() as u32 + REFINEMENTS + 2) * rounds;
        let mut done = 0;
        let mut run = |ladder: &mut Ladder, rung: Rung| {
            let outcome = runner.run(rung.how(), Some(limit))?;
            ladder.row(rung).outcomes.push(outcome);
            done += 1;
            progress.set(0.2 + 0.8 * (f64::from(done) / f64::from(steps.max(1))).min(1.0));
            Ok::<(), Failure>(())
        };
        for bytes in budgets {
            run(&mut ladder, Rung::Budget(bytes))?;
        }
        if self.budgets.is_empty() {
            for _ in 0..REFINEMENTS {
                let Some(bytes) = refinement(&ladder, MIN_PROGRAM_BYTES, CLOSENESS) else { break };
                run(&mut ladder, Rung::Budget(bytes))?;
            }
        }
        for round in 1..rounds {
            for rung in ladder.round(round) {
                run(&mut ladder, rung)?;
            }
        }
        Ok(Study {
            program: runner.command_line(),
            load: runner.server.as_ref().map(|server| server.load.clone()),
            policy: policy.to_owned(),
            ladder,
            prediction,
            give_up: self.give_up,
        })
    }

    /// The budgets that are run in any case, the largest first.
    fn first_budgets(
        &self,
        ladder: &Ladder,
        prediction: &Result<Prediction, String>,
        alone: f64,
    ) -> Result<Vec<u64>, Failure> {
        let least = MIN_PROGRAM_BYTES;
        let peak = ladder.ample.peak_bytes();
        let mut budgets = match (self.budgets.is_empty(), prediction) {
            (false, _) => {
                let in_bytes = |size: &Size| match size {
                    Size::Share(_) => {
                        let remedy = "write bytes such as 512M: the program's statistics name no peak";
                        let peak = peak.ok_or_else(|| Failure::usage("a share of nothing", "--budgets", remedy))?;
                        Ok(size.pages(peak / PAGE_BYTES))
                    }
                    size => Ok(size.pages(1)),
                };
                let pages: Result<Vec<u64>, Failure> = self.budgets.iter().map(in_bytes).collect();
                pages?.iter().map(|pages| pages * PAGE_BYTES).collect()
            }
            (true, Ok(prediction)) => prediction.budgets(alone, self.slowdown, least),
            // Without a recording: parts of the peak.
            (true, Err(_)) => peak.map_or(Vec::new(), |peak| {
                [0.9, 0.6, 0.3].map(|part| ladder::round_up((peak as f64 * part) as u64)).into_iter().collect()
            }),
        };
        budgets.retain(|bytes| *bytes >= least);
        budgets.sort_unstable_by_key(|bytes| std::cmp::Reverse(*bytes));
        budgets.dedup();
        Ok(budgets)
    }
}
