//! `refault-stress`: proves on this machine that nothing is lost.
//!
//! Runs a program ([`churn`]) under `refault run` with less memory than it has, while the budget is changed all the
//! time. Every kind of store and both ways of serving faults have their turn. Each word that the program reads is
//! compared with what it wrote last. Ends with exit code 1 and the command that repeats it as soon as something is
//! wrong.

mod block;
mod churn;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::Value;

#[derive(Parser, Debug)]
#[command(
    name = "refault-stress",
    version,
    about = "Put every kind of store and both fault modes under churn, and check each word",
    after_help = "\
Examples:
  refault-stress                           a minute, all ways in turn
  refault-stress --hours 8                 over night
  refault-stress --only encrypted --seed 7 --seconds 60

Each way is a line with its seed. The operations of each thread follow from the seed; which pages are evicted meanwhile
does not, so a failure may take several runs to come again."
)]
struct StressArgs {
    /// Seconds in all
    #[arg(long, value_name = "N", default_value_t = 60.0, conflicts_with = "hours")]
    seconds: f64,
    /// Hours in all
    #[arg(long, value_name = "N")]
    hours: Option<f64>,
    /// Turns for each way, however long that takes
    #[arg(long, value_name = "N", conflicts_with_all = ["seconds", "hours"])]
    rounds: Option<usize>,
    /// Seconds before the next way has its turn
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    turn: f64,
    /// Seed of the first turn; each turn adds one. Otherwise from the clock
    #[arg(long)]
    seed: Option<u64>,
    /// MiB that the program has; a sixth to a half of it may be resident
    #[arg(long, value_name = "MIB", default_value_t = 48)]
    size: usize,
    /// Threads of the program
    #[arg(long, value_name = "N", default_value_t = 3)]
    threads: u64,
    /// Only ways whose name holds this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(clap::Subcommand, Debug)]
enum Role {
    #[command(hide = true)]
    Churn(churn::ChurnArgs),
}

/// A way to run the program.
struct Way {
    name: String,
    flags: Vec<String>,
}

fn ways() -> Vec<Way> {
    let ways: [(&str, &[&str]); 6] = [
        ("pool", &["--store", "pool"]),
        ("pool, then file", &[]),
        ("pool, clock", &["--store", "pool", "--policy", "clock"]),
        ("pool, lrfu", &["--store", "pool", "--policy", "lrfu"]),
        ("pool, cyclic scans looked for", &["--store", "pool", "--policy", "mglru{cyclic=yes}"]),
        ("a budget for each process", &["--children", "own"]),
    ];
    let way = |(name, flags): &(&str, &[&str])| Way {
        name: (*name).to_owned(),
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
    };
    ways.iter().map(way).collect()
}

/// Runs the program named by the command line.
pub fn main() -> ExitCode {
    let args = StressArgs::parse();
    if let Some(Role::Churn(args)) = &args.role {
        churn::run(args);
        return ExitCode::SUCCESS;
    }
    match drive(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            refault_console::say_as("refault-stress", line);
            ExitCode::from(1)
        }
    }
}

fn drive(args: &StressArgs) -> Result<(), String> {
    let me = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let refault = me.with_file_name("refault");
    if !refault.is_file() {
        return Err(format!("no such program: {}: build refault beside this program", refault.display()));
    }
    let directory = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
    let mut ways = ways();
    if let Some(part) = &args.only {
        ways.retain(|way| way.name.contains(part.as_str()));
    }
    if ways.is_empty() {
        return Err("no way has this name: see the names without --only".to_owned());
    }
    let clock = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let seeds = args.seed.unwrap_or(clock)..;
    let turns = args.rounds.map_or(usize::MAX, |rounds| rounds * ways.len());
    let all = Duration::from_secs_f64(args.hours.map_or(args.seconds, |hours| hours * 3600.0).clamp(0.0, 1e9));
    let start = Instant::now();
    for (seed, way) in seeds.zip(ways.iter().cycle()).take(turns) {
        let left = all.saturating_sub(start.elapsed()).as_secs_f64();
        let left = if args.rounds.is_some() { f64::MAX } else { left };
        if left <= 0.0 {
            break;
        }
        let turn = Turn { args, way, seed, seconds: args.turn.min(left), directory: directory.path() };
        turn.run(&refault, &me)?;
    }
    println!("nothing was lost");
    Ok(())
}

/// One run of the program.
struct Turn<'a> {
    args: &'a StressArgs,
    way: &'a Way,
    seed: u64,
    seconds: f64,
    directory: &'a Path,
}

impl Turn<'_> {
    fn bytes(&self) -> usize {
        self.args.size << 20
    }

    fn run(&self, refault: &Path, me: &Path) -> Result<(), String> {
        let (stats, control) = (self.directory.join("stats"), self.directory.join("budget"));
        let _ = std::fs::remove_file(&control);
        let mut command = Command::new(refault);
        command.args(["run", "--quiet", "--memory", &(self.bytes() / 3).to_string(), "--stats"]).arg(&stats);
        command.arg("--memory-control").arg(&control).args(&self.way.flags).arg("--").arg(me).arg("churn");
        command.args(["--seed", &self.seed.to_string(), "--seconds", &self.seconds.to_string()]);
        command.args(["--pages", &(self.bytes() / 4096).to_string(), "--threads", &self.args.threads.to_string()]);
        let ended = AtomicBool::new(false);
        let output = std::thread::scope(|scope| {
            scope.spawn(|| self.change_budget(&control, &ended));
            let output = command.output();
            ended.store(true, Ordering::Relaxed);
            output
        });
        let output = output.map_err(|error| format!("cannot start {}: {error}", refault.display()))?;
        self.judge(&output, &stats)
    }

    /// A sixth to a half of what the program has.
    fn change_budget(&self, control: &Path, ended: &AtomicBool) {
        let mut state = self.seed;
        while !ended.load(Ordering::Relaxed) {
            state = crate::random::mix(state);
            let bytes = self.bytes() / 6 + state as usize % (self.bytes() / 3);
            let new: PathBuf = control.with_extension("new");
            // Renamed, so that no reader sees half a number.
            let _ = std::fs::write(&new, bytes.to_string()).and_then(|()| std::fs::rename(&new, control));
            std::thread::sleep(Duration::from_millis(150));
        }
    }

    fn judge(&self, output: &Output, stats: &Path) -> Result<(), String> {
        let repeat = format!(
            "refault-stress --only '{}' --seed {} --seconds {} --size {} --threads {}",
            self.way.name, self.seed, self.seconds, self.args.size, self.args.threads
        );
        let said = String::from_utf8_lossy(&output.stderr);
        let done: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        let Some(done) = done.filter(|_| output.status.success()) else {
            return Err(format!("{}: {}: {}; again: {repeat}", self.way.name, output.status, said.trim()));
        };
        let text = std::fs::read_to_string(stats).unwrap_or_default();
        let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let last = lines.rfind(|line| line["last"] == true).unwrap_or_default();
        if last["lost"] != 0 {
            return Err(format!(
                "{}: {} pages were lost: {}; again: {repeat}",
                self.way.name,
                last["lost"],
                said.trim()
            ));
        }
        println!(
            "seed {}: {}: {} operations, {} pages checked, {} forks, {} pages evicted, {} brought back",
            self.seed,
            self.way.name,
            done["operations"],
            done["checks"],
            done["forks"],
            last["pswpout"].as_u64().unwrap_or(0) + last["clean_evictions"].as_u64().unwrap_or(0),
            last["pswpin"],
        );
        Ok(())
    }
}
