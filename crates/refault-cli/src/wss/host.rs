//! `refault host`: what each control group of the host needs, and what limits would do.

mod apply;
mod files;
mod write;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use refault_console::{Failure, Format, Output, ResultArgs, Share, say, with_output};
use refault_host::apply::journal;
use refault_host::apply::park::Rule;
use refault_host::history::History;
use refault_host::host::{AGES, Host, Report};

use crate::wss::{interrupts, sleep, time};

/// The description of the JSON.
const SCHEMA: &str = include_str!("../../../../docs/reference/host.schema.json");
/// Windows that are measured once, unless told otherwise.
const ONCE: usize = 2;
/// The root counts too little itself to be opened by every user.
const BE_ROOT: &str = "be root";

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault host --once                          10 seconds, then a table
  refault host --once --ages 1s,1m --json      the same for programs; --schema describes it
  refault host --history host.sqlite           a table each minute; figures are kept in a file
  refault host --group /system.slice --once    a group and those below it
  refault host --files /srv /home              the files of which most is cached, and their groups
  refault host --drop /srv/old.log --yes       let go of what is cached of a file
  refault host --apply                         what limits would be lowered; --yes lowers them
  refault host --apply --park 30m              also what idle groups would give back

Columns: usage is what is charged to a group and those below it. Parts of it are anonymous memory (anon), files, shared
memory (shm) and what the compressed pool takes (zip). A time heads what was accessed within that time. Rf/s are pages per
second that came back soon after they were evicted. Psi is the percent of the time in which something waited for memory.
High is the limit that would do, by the longest time that is known. Saves is what is charged beyond it.

Working sets come from the kernel's generations where it has them and shows them to root. Else they come from its monitor (DAMON),
where no other program uses that. Else they come from page tables, whose accessed bits are cleared. Page tables do not show reads by calls: of files that
no process maps, those count that the kernel lists as active. What several groups map counts for each there. Memory that has no place
in swap counts whole in High.

--files opens files and never reads them: cachestat tells what is cached, mincore before Linux 6.5. Age is that of the last access or
change that the file's times tell; most mounts keep the first access of a day.

--apply lowers memory.high of groups that have none below them, in version 1 the soft limit and what is charged above it.
It goes step by step, never below what a group accessed in the last two windows of --floor. A group that waits, or brings back 256 pages per
second, gets memory back. At the end all limits are what they were; after a kill the next start puts them back.

--park takes no step with a group while it is idle. Once idle for that time, measured by windows of --floor, it is reclaimed to
its share, with the same floor. It then has no limit, so that it has room as soon as it wakes. What goes only to swap stays where swap has
no room, and a line says so.")]
/// Show what each control group of this host needs
pub struct HostArgs {
    /// Measure once, show it and end
    #[arg(long)]
    once: bool,
    /// From one table to the next
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = time, allow_hyphen_values = true, conflicts_with = "once")]
    interval: Duration,
    /// Lengths of the windows [default: 1s,10s,1m,10m,1h; with --once 1s,10s]
    #[arg(long, value_name = "TIME,TIME…", value_delimiter = ',', value_parser = time, allow_hyphen_values = true)]
    ages: Vec<Duration>,
    /// Where working sets come from [default: the first that can be had]
    #[arg(long, value_enum, value_name = "SOURCE")]
    source: Option<Accesses>,
    /// The path of a group, such as /system.slice: show it and those below it
    #[arg(long, value_name = "PATH")]
    group: Option<String>,
    /// Keep the figures in this SQLite file
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Write JSON, as --format json does
    #[arg(long, conflicts_with_all = ["csv", "format"])]
    json: bool,
    /// Write CSV, as --format csv does
    #[arg(long, conflicts_with = "format")]
    csv: bool,
    /// Show the files of which most is cached, below these paths [default: all mounts]
    #[arg(long, value_name = "PATH", num_args = 0.., conflicts_with_all = ["once", "history", "group", "ages"])]
    files: Option<Vec<PathBuf>>,
    /// How many files to show
    #[arg(long, value_name = "NUMBER", default_value_t = 20, requires = "files")]
    top: usize,
    /// Let go of what is cached of a file, or of all files below a directory
    #[arg(long, value_name = "PATH", conflicts_with_all = ["files", "keep", "apply"])]
    drop: Option<PathBuf>,
    /// Read a file, or all files below a directory, and keep them in memory until interrupted
    #[arg(long, value_name = "PATH", conflicts_with_all = ["files", "apply"])]
    keep: Option<PathBuf>,
    /// Bring groups down to the limits that would do; without --yes a dry run
    #[arg(long, conflicts_with_all = ["once", "history", "ages", "files"])]
    apply: bool,
    /// Do what --drop, --keep or --apply says, without asking
    #[arg(long)]
    yes: bool,
    /// With --apply: lower no limit below what a group accessed within this time
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time, allow_hyphen_values = true, requires = "apply")]
    floor: Duration,
    /// With --apply: the share of time for which a group may wait for memory
    #[arg(long, value_name = "PERCENT", default_value = "0.1%", requires = "apply")]
    pressure: Share,
    /// With --apply: reclaim at once what groups that have been idle for this time do not use
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, requires = "apply")]
    park: Option<Duration>,
    /// With --park: a group is idle if it accesses at most this share of its charge, and keeps as much
    #[arg(long, value_name = "PERCENT", default_value = "10%", requires = "park")]
    park_to: Share,
    /// With --apply: end after this time [default: when it is interrupted]
    #[arg(long = "for", value_name = "TIME", value_parser = time, allow_hyphen_values = true, requires = "apply")]
    length: Option<Duration>,
    /// With --apply: the file that holds what limits were
    #[arg(long, value_name = "FILE", default_value = journal::FILE, requires = "apply")]
    journal: PathBuf,
    /// Print the JSON schema of the JSON and end
    #[arg(long)]
    schema: bool,
    #[command(flatten)]
    result: ResultArgs,
}

/// Who knows what is accessed.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Accesses {
    /// The kernel's generations (lru_gen)
    Generations,
    /// The kernel's monitor (DAMON), page by page of physical memory; also reads by calls, if there are no generations
    Kernel,
    /// Accessed bits of the processes' page tables
    Processes,
}

/// Runs the command.
pub fn run(args: &HostArgs) -> Result<(), Failure> {
    if args.schema {
        return with_output(None, |out| out.write_all(SCHEMA.as_bytes()));
    }
    let mut outputs = args.result.outputs();
    let (format, out) = args.result.claim(&mut outputs)?;
    let format = match (args.json, args.csv) {
        (true, _) => Format::Json,
        (_, true) => Format::Csv,
        _ => format,
    };
    if let Some(paths) = &args.files {
        return files::show(paths, args.top, format, out);
    }
    if args.drop.is_some() || args.keep.is_some() {
        return files::change(args.drop.as_ref(), args.keep.as_ref(), args.yes);
    }
    if args.apply {
        let park = args.park.map(|idle| Rule { idle, share: args.park_to.0 });
        let wishes =
            apply::Wishes { journal: &args.journal, pressure: args.pressure, park, yes: args.yes, length: args.length };
        return apply::run(&mut opened(args)?, &wishes);
    }
    if out.is_some() && !args.once {
        return Err(Failure::usage(
            "--out holds one table",
            "--out",
            "add --once, or keep the figures with --history FILE",
        ));
    }
    let mut history = args.history.as_ref().map(|path| open(path)).transpose()?;
    let mut host = opened(args)?;
    let asked = interrupts();
    if args.once {
        let takes = ages(args).last().copied().unwrap_or_default();
        say(format_args!("accesses: {}; it takes {}", host.words(), humantime::format_duration(takes)));
        host.report(); // Rates are since this.
        while host.rounds() == 0 {
            if !sleep(host.due().saturating_duration_since(Instant::now()), &asked) {
                return Err(Failure::Exit(1));
            }
            host.step().map_err(|error| unseen(&error))?;
        }
        tell_of_others(&host, &mut 0);
        let report = host.report();
        keep(&mut history, args, &report)?;
        return show(out, format, &report);
    }
    say(format_args!("accesses: {}; Ctrl-C ends it", host.words()));
    let mut next = Instant::now() + args.interval;
    host.report();
    let mut told = 0;
    loop {
        let due = host.due().min(next);
        if !sleep(due.saturating_duration_since(Instant::now()), &asked) {
            return Ok(());
        }
        if host.due() <= Instant::now() {
            host.step().map_err(|error| unseen(&error))?;
        }
        if next <= Instant::now() {
            next = Instant::now() + args.interval;
            tell_of_others(&host, &mut told);
            let report = host.report();
            keep(&mut history, args, &report)?;
            show(None, format, &report)?;
        }
    }
}

/// The lengths of windows, ascending.
fn ages(args: &HostArgs) -> Vec<Duration> {
    if args.apply {
        return vec![args.floor];
    }
    let mut ages = match (args.ages.is_empty(), args.once) {
        (false, _) => args.ages.clone(),
        (true, true) => AGES[..ONCE].to_vec(),
        (true, false) => AGES.to_vec(),
    };
    ages.sort_unstable();
    ages.dedup();
    ages
}

fn opened(args: &HostArgs) -> Result<Host, Failure> {
    let mut host =
        Host::open(&ages(args)).map_err(|error| Failure::failed("nothing to look at", "/sys/fs/cgroup", error))?;
    if let Some(group) = &args.group {
        host.within(group).map_err(|_| {
            Failure::usage("no memory cgroup", group, "name its path below the root, such as /system.slice")
        })?;
    }
    let taken = match args.source {
        None => Ok(()),
        Some(Accesses::Generations) => host.take_generations(),
        Some(Accesses::Kernel) => host.take_monitor(),
        Some(Accesses::Processes) => {
            host.take_page_tables();
            Ok(())
        }
    };
    taken.map_err(|error| Failure::failed("no such source", "--source", error))?;
    if args.once || args.apply {
        host.measure_all_at_once();
    }
    if let Some(why) = host.instead_of() {
        say(format_args!("not from {why}"));
    }
    Ok(host)
}

/// Says of how many groups no working set is known, because processes that cannot be looked at hold their memory, if that
/// has changed.
fn tell_of_others(host: &Host, told: &mut usize) {
    let count = host.in_part();
    if count > 0 && count != *told {
        let groups = if count == 1 { "group" } else { "groups" };
        say(format_args!(
            "no working set is known of {count} {groups}: processes of other users, PID namespaces or groups hold their memory; {BE_ROOT} of the host"
        ));
    }
    *told = count;
}

fn unseen(error: &std::io::Error) -> Failure {
    Failure::failed("cannot look at", "the groups' processes", format!("{error}; {BE_ROOT}"))
}

fn open(path: &std::path::Path) -> Result<History, Failure> {
    History::open(path).map_err(|error| Failure::failed("no history", path.display(), error))
}

/// Keeps a report in the history, if there is one.
fn keep(history: &mut Option<History>, args: &HostArgs, report: &Report) -> Result<(), Failure> {
    let (Some(history), Some(path)) = (history, &args.history) else { return Ok(()) };
    history.record(report).map_err(|error| Failure::failed("cannot keep the history", path.display(), error))
}

fn show(out: Option<Output>, format: Format, report: &Report) -> Result<(), Failure> {
    with_output(out, |out| match format {
        Format::Table => write::table(out, report),
        Format::Csv => write::csv(out, report),
        Format::Json => write::json(out, report),
    })
}
