//! `refault-bench pool`: four programs that share one memory, divided three ways.
//!
//! Four programs run together. One memcached is read as fast as it answers, another now and then. A compiler is started
//! again and again, and a scan goes round at a fixed speed. They run under the kernel's cgroups, one each below a
//! parent with the only limit, and zram; under `refault run --memory` with a quarter each; and in a pool. The kernel's
//! side runs first. What zram took beside the limit is added to the limit, and that is what the other two sides may use
//! in all; a cgroup also counts code, stacks and page tables, so the kernel's side gets an allowance for each program.
//!
//! What counts is what each program got done in the counted seconds, as all four run. The sum is over the programs of
//! what each did as a share of what it did under the fixed division: a unit that they have in common.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use clap::Args;
use refault_console::text::{align_numbers, number, plain_table};
use refault_console::{Failure, Format, say, with_output};
use serde_json::json;

use super::median;
use crate::live::tool;
use crate::memcached::{self, Server};
use crate::pager::kernel::Kernel;
use crate::pager::sources::with_numbers;
use crate::random::Random;

/// Bytes that the kernel's side gets for each program on top of the memory that is divided.
const ALLOWANCE: u64 = 8 << 20;
/// Reads per second of the memcached that is read now and then.
const SLOW_READS: f64 = 200.0;
/// Bytes per second that the scan goes at most.
const SCAN_SPEED: u64 = 100 << 20;
/// What each program has, in hundredths of the memory that is divided.
const HOT_PERCENT: u64 = 45;
const SLOW_PERCENT: u64 = 45;
const SCAN_PERCENT: u64 = 50;
/// Functions of the file that is compiled.
const FUNCTIONS: usize = 400;
const FILE: &str = include_str!("../programs/pool_file.c");
const PART: &str = include_str!("../programs/pool_part.c");
/// Programs of a run.
const PROGRAMS: [&str; 4] = ["memcached, hot", "memcached, slow", "compiler", "scan"];
const UNITS: [&str; 4] = ["reads per second", "reads per second", "files per minute", "MiB per second"];

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo refault-bench pool                     four programs, three divisions, some four minutes
  refault-bench pool --sides fixed,pool       without root

Needs memcached and cc; the kernel's side also root, zram and a memory cgroup, which it removes afterwards. Wants a quiet
machine. The hot memcached's clients take what processor time they get.")]
/// Divide one memory among four programs: fixed parts, the kernel's cgroups, a pool
pub struct PoolArgs {
    /// Memory that is divided; the other sides get what zram takes besides
    #[arg(long, value_name = "MIB", default_value_t = 320, value_parser = clap::value_parser!(u64).range(64..=65_536))]
    memory_mib: u64,
    /// Seconds counted per run
    #[arg(long, value_name = "S", default_value_t = 20.0)]
    seconds: f64,
    /// Seconds before counting starts
    #[arg(long, value_name = "S", default_value_t = 20.0)]
    warm_up: f64,
    /// Runs of each side, in turn; the median counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// How memory is divided
    #[arg(long, value_enum, value_delimiter = ',', default_value = "kernel,fixed,pool")]
    sides: Vec<Side>,
    /// How to write what came out
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    format: Format,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Cgroups below one limit, and zram
    Kernel,
    /// A quarter each under `refault run --memory`
    Fixed,
    /// A pool
    Pool,
}
super::shown_by_name!(Side);

/// What the programs of one run got done, in [`UNITS`], and what the memcacheds' slowest answers took in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Done {
    rates: [f64; 4],
    p99_ms: [f64; 2],
}

/// Runs the command.
pub fn run(args: &PoolArgs) -> Result<(), Failure> {
    let mut total = args.memory_mib << 20;
    let mut all: Vec<(Side, Vec<Done>)> = args.sides.iter().map(|side| (*side, Vec::new())).collect();
    // The others' memory depends on what zram takes.
    all.sort_by_key(|(side, _)| *side != Side::Kernel);
    for number in 0..args.runs {
        for (side, done) in &mut all {
            say(format_args!("run {} of {}: {side}", number + 1, args.runs));
            let outcome = match side {
                Side::Kernel => {
                    let (outcome, compressed) = under_the_kernel(args)?;
                    total = total.max((args.memory_mib << 20) + compressed);
                    outcome
                }
                Side::Fixed => fixed(args, total)?,
                Side::Pool => pool(args, total)?,
            };
            done.push(outcome);
        }
    }
    let middle = |done: &[Done], of: &dyn Fn(&Done) -> f64| median(done.iter().map(of).collect());
    let rates: Vec<(Side, [f64; 4], [f64; 2])> = all
        .iter()
        .map(|(side, done)| {
            let rates = std::array::from_fn(|index| middle(done, &|one| one.rates[index]));
            (*side, rates, std::array::from_fn(|index| middle(done, &|one| one.p99_ms[index])))
        })
        .collect();
    with_output(None, |out| match args.format {
        Format::Table => write_table(out, total, &rates),
        Format::Csv => {
            writeln!(out, "side,program,unit,rate")?;
            rates.iter().try_for_each(|(side, rates, _)| {
                (0..4).try_for_each(|at| writeln!(out, "{side},\"{}\",{},{}", PROGRAMS[at], UNITS[at], rates[at]))
            })
        }
        Format::Json => {
            let sides: Vec<_> = rates
                .iter()
                .map(|(side, rates, p99)| json!({"side": side.to_string(), "rates": rates, "p99_ms": p99}))
                .collect();
            let made = json!({"memory_bytes": total, "programs": PROGRAMS, "units": UNITS, "sides": sides});
            serde_json::to_writer_pretty(&mut *out, &made)?;
            writeln!(out)
        }
    })
}

fn write_table(out: &mut dyn Write, total: u64, sides: &[(Side, [f64; 4], [f64; 2])]) -> std::io::Result<()> {
    let mut table = plain_table();
    let header = ["program", "unit"].map(str::to_owned).into_iter();
    table.set_header(header.chain(sides.iter().map(|(side, ..)| side.to_string())));
    for (at, program) in PROGRAMS.iter().enumerate() {
        let row = [(*program).to_owned(), UNITS[at].to_owned()].into_iter();
        table.add_row(row.chain(sides.iter().map(|(_, rates, _)| number(rates[at]))));
    }
    for (at, program) in PROGRAMS[..2].iter().enumerate() {
        let row = [(*program).to_owned(), "ms, 99 of 100 answers".to_owned()].into_iter();
        table.add_row(row.chain(sides.iter().map(|(.., p99)| number(p99[at]))));
    }
    if let Some((_, fixed, _)) = sides.iter().find(|(side, ..)| *side == Side::Fixed) {
        let row = ["all".to_owned(), "sum of shares of fixed".to_owned()].into_iter();
        let sum = |rates: &[f64; 4]| rates.iter().zip(fixed).map(|(rate, fixed)| rate / fixed).sum::<f64>();
        // What got nothing done under the fixed division is no unit.
        let text = |sum: f64| if sum.is_finite() { format!("{sum:.2}") } else { "–".to_owned() };
        table.add_row(row.chain(sides.iter().map(|(_, rates, _)| text(sum(rates)))));
    }
    align_numbers(&mut table);
    writeln!(out, "{table}")?;
    writeln!(out, "{} MiB in all.", total >> 20)
}

/// The kernel's side, and the most bytes that zram took.
fn under_the_kernel(args: &PoolArgs) -> Result<(Done, u64), Failure> {
    let memory = args.memory_mib << 20;
    let kernel = Kernel::new(memory + ALLOWANCE * PROGRAMS.len() as u64, memory * 4)?;
    let commands = ["hot", "slow", "compiler", "scan"].map(|name| kernel.command_in(name));
    let [hot, slow, compiler, scan] = commands;
    let done = drive(args, [hot?, slow?, compiler?, scan?])?;
    if kernel.kills() > 0 {
        say(format_args!("the kernel killed {} programs of this run for want of memory", kernel.kills()));
    }
    Ok((done, kernel.peak_compressed()))
}

/// A quarter each.
fn fixed(args: &PoolArgs, total: u64) -> Result<Done, Failure> {
    let command = || {
        let mut command = Command::new(tool::refault()?);
        command.args(["run", "--quiet", "--memory", &(total / PROGRAMS.len() as u64).to_string(), "--"]);
        Ok::<_, Failure>(command)
    };
    drive(args, [command()?, command()?, command()?, command()?])
}

/// A pool of all.
fn pool(args: &PoolArgs, total: u64) -> Result<Done, Failure> {
    let place = tempfile::tempdir().map_err(|error| Failure::write("a temporary directory", &error))?;
    let mut daemon = Command::new(tool::refault()?);
    daemon.args(["pool", "--memory", &total.to_string(), "--name", "bench"]);
    daemon.env("XDG_RUNTIME_DIR", place.path()).stderr(Stdio::null());
    let daemon = daemon.spawn().map_err(|error| Failure::failed("cannot start", "refault pool", error))?;
    let _daemon = Ended(daemon);
    let until = Instant::now() + Duration::from_secs(5);
    while !place.path().join("refault/bench.sock").exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let command = || {
        let mut command = Command::new(tool::refault()?);
        command.args(["run", "--quiet", "--pool", "bench", "--"]).env("XDG_RUNTIME_DIR", place.path());
        Ok::<_, Failure>(command)
    };
    drive(args, [command()?, command()?, command()?, command()?])
}

/// Runs the four programs behind these commands.
fn drive(args: &PoolArgs, [hot, slow, mut compiler, mut scan]: [Command; 4]) -> Result<Done, Failure> {
    let place = tempfile::tempdir().map_err(|error| Failure::write("a temporary directory", &error))?;
    let memory = args.memory_mib << 20;
    let source = place.path().join("source.c");
    std::fs::write(&source, source_text()).map_err(|error| Failure::write(source.display(), &error))?;
    let server = |mut command: Command, name: &str, percent: u64| {
        let socket = place.path().join(name);
        command.arg("memcached").args(memcached::arguments(&socket, memory * percent / 100));
        let server = Server::start(&mut command, &socket)?;
        Ok::<_, Failure>((socket, server))
    };
    let plan = |percent: u64, deviation: f64, clients: u64, pace: Option<f64>| memcached::Plan {
        values: memory * percent / 100 / memcached::VALUE as u64,
        deviation,
        warm_up: args.warm_up,
        seconds: args.seconds,
        clients,
        pace,
    };
    let (hot_plan, slow_plan) = (plan(HOT_PERCENT, 0.17, 1, None), plan(SLOW_PERCENT, 0.03, 1, Some(SLOW_READS)));
    let (hot_socket, hot) = server(hot, "hot", HOT_PERCENT)?;
    memcached::fill(&hot_socket, &hot_plan)?;
    let (slow_socket, slow) = server(slow, "slow", SLOW_PERCENT)?;
    memcached::fill(&slow_socket, &slow_plan)?;
    let compile = "while cc -O2 -c -o \"$1\" \"$0\"; do echo; done";
    // The last one may find its directory gone.
    compiler.stderr(Stdio::null()).args(["sh", "-c", compile]).arg(&source).arg(place.path().join("source.o"));
    let compiler = Counted::start(compiler, "cc")?;
    scan.arg(tool::me()?).args(["pool-scan", &(memory * SCAN_PERCENT / 100).to_string()]);
    let scan = Counted::start(scan, "the scan")?;
    let counts = || [compiler.count.load(Ordering::Relaxed), scan.count.load(Ordering::Relaxed)];
    // Both memcacheds' clients begin together, and count in the same seconds as the others.
    let (barrier, started) = (Barrier::new(2), AtomicU64::new(0));
    let begun = Instant::now();
    let begins = || started.store(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
    let read = |socket: &Path, plan: &memcached::Plan, server: &Server, begins: &(dyn Fn() + Sync)| {
        barrier.wait();
        memcached::read(socket, plan, server, begins)
    };
    let (hot_seen, slow_seen, others) = std::thread::scope(|scope| {
        let hot = scope.spawn(|| read(&hot_socket, &hot_plan, &hot, &begins));
        let slow = scope.spawn(|| read(&slow_socket, &slow_plan, &slow, &|| {}));
        while started.load(Ordering::Relaxed) == 0 && !hot.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (before, at) = (counts(), Instant::now());
        let hot = hot.join().expect("invariant: a client reports its errors");
        let (after, seconds) = (counts(), at.elapsed().as_secs_f64());
        let slow = slow.join().expect("invariant: a client reports its errors");
        (hot, slow, [(after[0] - before[0]) as f64 / seconds, (after[1] - before[1]) as f64 / seconds])
    });
    let (hot_seen, slow_seen) = (hot_seen?, slow_seen?);
    drop((compiler, scan));
    hot.end();
    slow.end();
    let per_second = |seen: &memcached::Seen| seen.operations as f64 / args.seconds;
    let p99 = |seen: &memcached::Seen| seen.latencies.counts().quantile(0.99) as f64 / 1e6;
    Ok(Done {
        rates: [per_second(&hot_seen), per_second(&slow_seen), others[0] * 60.0, others[1]],
        p99_ms: [p99(&hot_seen), p99(&slow_seen)],
    })
}

/// A program that writes a line whenever it has got something done, and does not outlive this.
struct Counted {
    _child: Ended,
    count: Arc<AtomicU64>,
}

impl Counted {
    fn start(mut command: Command, what: &str) -> Result<Counted, Failure> {
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| Failure::failed("cannot start", what, error))?;
        let output = child.stdout.take().expect("invariant: the output was asked for");
        let count = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&count);
        std::thread::spawn(move || {
            for _ in BufReader::new(output).lines().map_while(Result::ok) {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(Counted { _child: Ended(child), count })
    }
}

/// A process that does not outlive this value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // `refault run` passes it on to its program, and is waited for until that has ended.
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), rustix::process::Signal::TERM);
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A C file that a compiler needs some tens of MiB and about a second for.
fn source_text() -> String {
    let part = |number: usize| {
        with_numbers(PART, &[("NUMBER", number), ("FACTOR", number * 2 + 3), ("DIVISOR", number % 29 + 2)])
    };
    FILE.replace("PARTS\n", &(0..FUNCTIONS).map(part).collect::<String>())
}

/// The scan itself: reads its memory from one end to the other, and a line for each MiB.
#[derive(Args, Debug)]
pub struct ScanArgs {
    bytes: u64,
}

/// Runs as the scan.
pub fn scan(args: &ScanArgs) -> Result<(), Failure> {
    const MIB: usize = 1 << 20;
    let mut memory = vec![0u8; args.bytes as usize / MIB * MIB];
    let mut random = Random::new(1);
    for page in memory.chunks_exact_mut(4096) {
        page[..2048].chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()));
        page[2048..].fill(1);
    }
    let mut out = std::io::stdout();
    let (begun, mut scanned, mut sum) = (Instant::now(), 0u64, 0u64);
    let mut late = Duration::ZERO;
    loop {
        for part in memory.chunks_exact(MIB) {
            let due = Duration::from_secs_f64(scanned as f64 / SCAN_SPEED as f64) + late;
            match due.checked_sub(begun.elapsed()) {
                Some(early) => std::thread::sleep(early),
                // What was missed is not caught up.
                None => late += begun.elapsed() - due,
            }
            sum = part.iter().step_by(512).fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)));
            scanned += MIB as u64;
            if writeln!(out, "{}", sum & 1).and_then(|()| out.flush()).is_err() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_the_fixed_division_is_the_number_of_programs() {
        let mut out = Vec::new();
        let sides =
            [(Side::Fixed, [100.0, 50.0, 2.0, 10.0], [1.0, 2.0]), (Side::Pool, [300.0, 50.0, 2.0, 5.0], [0.5, 2.0])];
        write_table(&mut out, 64 << 20, &sides).expect("memory");
        let text = String::from_utf8(out).expect("text");
        let last = text.lines().find(|line| line.contains("sum of shares")).expect("a last row");
        assert!(last.contains("4.00") && last.contains("5.50"), "{text}");
    }
}
