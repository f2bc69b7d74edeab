//! `refault run`: an unmodified program under a memory budget.
//!
//! The command looks at the program and the machine, and says in one line what stands in the way, if anything does. It
//! starts the program with the agent preloaded ([`tree`]): exit status, signals, terminal and output are the program's
//! own.

pub mod advice;
mod ask;
pub(crate) mod backend;
#[allow(unsafe_code)] // System calls on signals and processes, each with its reason.
pub(crate) mod child;
mod control;
pub mod escaped;
pub(crate) mod kernel;
mod looks;
mod measured;
mod member_name;
mod needs;
mod observed;
mod seat;
mod statistics;
pub mod summary;
mod sums;
mod telling;
pub mod totals;
pub mod tree;
mod unmanaged;
#[cfg(feature = "tui")]
mod watch;
#[cfg(not(feature = "tui"))]
#[path = "run/watch/absent.rs"]
mod watch;
mod what_if;

use std::cell::Cell;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use refault_console::{Failure, Share, say};

use refault_kernel::Places;
use refault_paging::MIN_PROGRAM_BYTES;

use self::backend::{Backend, Wanted};

use crate::launch::{self, MonitorOptions};
use refault_lab::size::Bytes;

/// Runs a program in less memory than it asks for
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault run --memory 512M -- python3 analysis.py
  refault run --memory 512M --watch -- node server.js
  refault run --memory 60M,80M,100M --runs 5 -- python3 analysis.py
  refault run --memory 2G --stats run.jsonl -- redis-server --save ''
  refault run --memory 1G --store pool -- sort big.txt
  refault run --memory 400M --summary made.json -- make -j2
  refault run --pool web --low 200M -- redis-server --save ''     a share of what `refault pool` hands out

The private anonymous memory of the program and of the programs it starts is managed, whether libc, another allocator or
a runtime asks for it. What does not fit is compressed. What does not compress goes to a file without a name, encrypted
with a key that lives only in the processes. Resident and compressed pages and the tool's own memory count, over the
program and its children together. Thread stacks, code, files, shared memory and huge pages are not counted; a line names
them at the end if they exceed a tenth. No privilege is needed.

With --backend kernel the kernel pages: a memory cgroup and swap on zram, made for the run and removed after it. That
holds any program and all its memory, files' pages included, and needs the right to make a cgroup.

--watch draws on the terminal of standard error until the program ends; keys go to the program. What the program
writes to that terminal is held meanwhile and shown then: it sees a file, not a terminal. Redirect its output to
see it earlier. Exit status and signals are the program's, as without --watch.

With --scheme a monitor in each process finds out which memory is in use and lets the schemes act on it.")]
#[command(group(ArgGroup::new("limit").required(true).args(["memory", "resident", "pool"])))]
pub struct RunArgs {
    /// Bytes that the program and its children may use together, such as 512M or 2G; at least 2M. Several, such as
    /// 60M,80M,100M: the program is run alone and under each of them in turn, and compared in a table
    #[arg(long, value_name = "SIZE[,SIZE…]")]
    memory: Option<BudgetList>,
    /// Runs per budget, and without one; prints a table that compares them [default with several budgets: as
    /// `refault size`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// How much longer the program may take in that table [default: 5%]
    #[arg(long, value_name = "PERCENT")]
    slowdown: Option<Share>,
    /// What keeps the budget; auto says at the end if it took the kernel, and why
    #[arg(long, value_enum, default_value = "auto")]
    backend: Wanted,
    /// Bytes that may be resident, compressed memory not counted: for experiments
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["memory", "runs", "slowdown"])]
    resident: Option<Bytes>,
    #[command(flatten)]
    pool: seat::SeatArgs,
    /// Policy that decides what stays, with parameters as in `refault compare`, such as 'lrfu{half_life=8}' [default:
    /// adaptive-mapped{cyclic=yes}; with --pool or --scheme, which want generations, mglru{cyclic=yes}]
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Where evicted pages go: pool (compressed memory alone) or file=DIR (compressed memory, then a file in DIR).
    /// Without it the file is in /var/tmp, the home or the present directory, whichever is on a disk
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Whether the program's children share its budget or have one each
    #[arg(long, value_enum, default_value = "shared")]
    children: Children,
    /// Write counters as JSON lines to this file
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// Time between two lines of the statistics, such as 200ms or 1s; milliseconds without a unit; from 1ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::wss::interval, allow_hyphen_values = true)]
    stats_interval: u64,
    /// Estimate misses of other policies at half, once and twice the budget from a sample of the pages (about 10 %
    /// slower)
    #[arg(long, conflicts_with_all = ["observe", "scheme", "runs"])]
    what_if: bool,
    /// Find out how many pages would come back with less memory, by looks at least this far apart, for --summary
    #[arg(long, value_name = "TIME", hide = true, requires = "summary", conflicts_with_all = ["observe", "scheme", "runs", "what_if"], value_parser = crate::wss::interval)]
    curve: Option<u64>,
    /// Write what happened to this file as JSON when the program has ended
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// Say nothing at the end
    #[arg(long)]
    quiet: bool,
    /// Show the program while it runs, as `refault top` does; its output to the same terminal is shown when it has
    /// ended
    #[arg(long)]
    watch: bool,
    /// A file that holds the budget in bytes while the program runs: write a number to it to change the budget
    #[arg(long, value_name = "FILE")]
    memory_control: Option<PathBuf>,
    /// Raise a budget that is far too small step by step, up to this, and say to what
    #[arg(long, value_name = "MAX", conflicts_with_all = ["pool", "resident", "runs"])]
    grow: Option<Bytes>,
    /// Monitor the program and let schemes act on it, as this file says: TOML, or the JSON of DAMON's user-space tool
    #[arg(long, value_name = "FILE")]
    scheme: Option<PathBuf>,
    /// Change one key of that file
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// What the monitor may use of one processor; its intervals grow until that is kept
    #[arg(long, value_name = "PERCENT", default_value = "1%", requires = "scheme")]
    monitor_cpu: Share,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// The value of `--memory`: the first budget, and more of them to compare with.
#[derive(Clone, Debug, PartialEq)]
struct BudgetList(u64, Vec<u64>);

impl RunArgs {
    /// The options that only the pager has, as they were given.
    fn of_the_pager(&self) -> Option<&'static str> {
        let options = [
            ("--resident", self.resident.is_some()),
            ("--pool", self.pool.pool.is_some()),
            ("--policy", self.policy.is_some()),
            ("--store", self.store.is_some()),
            ("--children own", self.children == Children::Own),
            ("--what-if", self.what_if),
            ("--curve", self.curve.is_some()),
            ("--watch", self.watch),
            ("--scheme", self.scheme.is_some()),
        ];
        options.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
    }

    /// The policy that was named, or the one that suits the rest.
    fn policy(&self) -> &str {
        let wants_generations = self.pool.pool.is_some() || self.scheme.is_some();
        let usual = if wants_generations { launch::GENERATIONS_POLICY } else { launch::DEFAULT_POLICY };
        self.policy.as_deref().unwrap_or(usual)
    }
}

impl BudgetList {
    fn all(&self) -> impl Iterator<Item = u64> {
        std::iter::once(self.0).chain(self.1.iter().copied())
    }
}

impl std::str::FromStr for BudgetList {
    type Err = String;

    fn from_str(text: &str) -> Result<BudgetList, String> {
        let mut budgets = text.split(',').map(|part| part.parse::<Bytes>().map(|Bytes(bytes)| bytes));
        let first = budgets.next().unwrap_or(Err("give a size".to_owned()))?;
        Ok(BudgetList(first, budgets.collect::<Result<_, _>>()?))
    }
}

/// Whose the budget is.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// One for the program and its children together
    Shared,
    /// One each
    Own,
}

/// Runs the command; returns only if the program could not be started, or with how it ended.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    if let Some(budgets) = &args.memory
        && (args.runs.is_some() || !budgets.1.is_empty())
    {
        return measured::run(args, budgets);
    }
    if args.slowdown.is_some() {
        let remedy = "it is for the table of several runs: give several budgets, or --runs";
        return Err(Failure::usage("without effect", "--slowdown", remedy));
    }
    if args.watch && cfg!(not(feature = "tui")) {
        return Err(crate::mistyped::absent::without("refault run --watch", "tui"));
    }
    let watching = args.watch && std::io::stderr().is_terminal();
    if args.watch && !watching {
        say("--watch needs a terminal at standard error and there is none: running without");
    }
    if args.what_if && args.stats.is_none() && !watching {
        let remedy = "its answers are in the statistics: give --stats FILE, or --watch";
        return Err(Failure::usage("without effect", "--what-if", remedy));
    }
    if args.what_if && args.children == Children::Own {
        let remedy = "it asks about one budget for all: leave out --children own";
        return Err(Failure::usage("not possible together", "--what-if and --children own", remedy));
    }
    if args.scheme.is_none() && !args.set.is_empty() {
        return Err(Failure::usage("nothing to change", "--set", "name a configuration with --scheme FILE"));
    }
    if let (Some(grow), Some(budgets)) = (args.grow, &args.memory)
        && grow.0 <= budgets.0
    {
        return Err(Failure::usage("without effect", "--grow", "give more than the budget begins with"));
    }
    let policy = args.policy();
    launch::check_policy(policy)?;
    let needs_pager = args.of_the_pager();
    if let (Some(option), Wanted::Kernel) = (needs_pager, args.backend) {
        let remedy = "the kernel's backend has none of the pager's own: leave it out, or --backend kernel";
        return Err(Failure::usage("not possible together", format_args!("--backend kernel and {option}"), remedy));
    }
    let chosen = backend::choose(&args.program, args.backend, needs_pager.is_some(), &Places::default());
    if let (Backend::Kernel, Some(budgets)) = (chosen.backend, &args.memory) {
        check_memory("--memory", budgets.0)?;
        let run = kernel::InGroup {
            program: &args.program,
            memory: budgets.0,
            stats: args.stats.as_deref(),
            stats_interval: Duration::from_millis(args.stats_interval),
            control: args.memory_control.as_deref(),
            grow: args.grow.map(|grow| grow.0),
            summary: args.summary.as_deref(),
            quiet: args.quiet,
            reason: chosen.reason,
        };
        return run.run();
    }
    let seat = args.pool.join(&args.program, args.store.as_deref())?;
    let (option, memory) = match (&args.memory, args.resident, &seat) {
        (Some(budgets), ..) => ("--memory", budgets.0),
        (None, Some(resident), _) => ("--resident", resident.0),
        (None, None, seat) => ("--pool", seat.as_ref().expect("invariant: one of the three is required").grant()),
    };
    check_memory(option, memory)?;
    let options = MonitorOptions { file: args.scheme.clone(), set: args.set.clone(), scheme: Vec::new() };
    let tree = tree::Tree {
        program: &args.program,
        memory,
        resident_only: args.resident.is_some(),
        policy,
        store: args.store.as_deref(),
        children: args.children,
        stats: args.stats.as_deref(),
        stats_interval: args.stats_interval,
        what_if: args.what_if,
        curve: args.curve,
        control: args.memory_control.as_deref(),
        grow: args.grow.map(|grow| grow.0),
        seat: Cell::new(seat),
        watch: watching,
        summary: args.summary.as_deref(),
        quiet: args.quiet,
        reason: String::new(),
        monitor: args.scheme.is_some().then_some((&options, args.monitor_cpu.0)),
    };
    // Where the pager cannot and the kernel might, it is said what it lacks for that.
    tree.run().map_err(|failure| match failure {
        Failure::Failed(line) if !chosen.reason.is_empty() => {
            Failure::Failed(format!("{line}; kernel backend: {}", chosen.reason))
        }
        other => other,
    })
}

fn check_memory(option: &str, memory: u64) -> Result<(), Failure> {
    if memory < MIN_PROGRAM_BYTES {
        return Err(Failure::usage("too little", option, "give at least 2M: with less a program may make no progress"));
    }
    Ok(())
}
