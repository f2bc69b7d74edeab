//! `refault reclaim`: memory of programs that are not ours goes where the kernel puts it, as much as does no harm.

use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{ArgGroup, Args};
use refault_config::Config;
use refault_console::{Failure, Format, ResultArgs, Share, say, with_output};
use refault_core::monitor::Attributes;
use refault_lab::size::bytes_text;
use refault_pool::reclaim::generations::Generations;
use refault_pool::reclaim::pages::Pages;
use refault_pool::reclaim::regions::Regions;
use refault_pool::reclaim::schemes::refusal;
use refault_pool::reclaim::session::{Goal, Session, Step, Target, is_gone};
use refault_pool::reclaim::swap::Swap;
use serde_json::json;

use crate::monitor::kernel::{Kernel, SYSFS};
use crate::wss::{interrupts, is_of_kernel, not_seen, of_kernel, sleep, time};

/// Between two lines that say how it stands.
const SAY_EVERY: Duration = Duration::from_secs(10);

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault reclaim --pid $(pidof node) --pressure 0.1% --dry-run     what the first minute would take away
  refault reclaim --pid $(pidof node) --pressure 0.1%               until Ctrl-C
  refault reclaim --pid 4711 --idle 60s --for 10m
  refault reclaim --cgroup /sys/fs/cgroup/system.slice/web.service --pressure 0.1%
  refault reclaim --pid 4711 --scheme cold.toml                     schemes as in docs/guide/monitor.md

Pages go to the host's swap or zram, file pages to their files; they come back when they are accessed. Nothing else is
changed: where a cgroup has no memory.reclaim (version 1), its limit is lowered and put back at once. With --pressure, each
second takes at most 2 % of what is resident. It takes less as the share of time in which something waits nears the
target, and nothing above it. With --idle and --scheme, ages of a process are DAMON's, by region, where this kernel has it
and a kdamond is free. With --idle, those of a cgroup are the kernel's generations (lru_gen), where it has them and shows
them to root; the kernel also evicts them. Else they come from its idle-page bitmap, by page, and else from accessed bits of whole mappings, which
are cleared and read. It says which.
Needs root, or the process's user with CAP_SYS_NICE.")]
/// Reclaim memory from a running program or control group that was not started by refault
#[command(group(ArgGroup::new("target").required(true).args(["pid", "cgroup"])))]
#[command(group(ArgGroup::new("goal").required(true).args(["pressure", "idle", "scheme"])))]
pub struct ReclaimArgs {
    /// The process
    #[arg(long, value_name = "PID", value_parser = crate::launched::process)]
    pid: Option<u32>,
    /// The directory of a control group, version 1 or 2
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Reclaim until something waits for memory for this share of the time
    #[arg(long, value_name = "PERCENT")]
    pressure: Option<Share>,
    /// Reclaim pages that were idle for at least this long
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    idle: Option<Duration>,
    /// Reclaim what the schemes of this file say: TOML, or the JSON of DAMON's user-space tool
    #[arg(long, value_name = "FILE")]
    scheme: Option<PathBuf>,
    /// Look and decide for a minute, or as --for says, and move nothing; looks at ages clear accessed bits all the same
    #[arg(long)]
    dry_run: bool,
    /// End after this time [default: when it is interrupted or the program ends]
    #[arg(long = "for", value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    length: Option<Duration>,
    /// Where ages come from [default: the first of the first two, pages and mappings that can be had]
    #[arg(long, value_enum, value_name = "SOURCE", conflicts_with = "pressure")]
    ages: Option<AgeSource>,
    #[command(flatten)]
    result: ResultArgs,
}

/// Who knows for how long memory was idle.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum AgeSource {
    /// The kernel's monitor (DAMON), by region, of a process
    Kernel,
    /// The kernel's generations (lru_gen), of a control group and with --idle
    Generations,
    /// The kernel's idle-page bitmap, by page
    Pages,
    /// Accessed bits, by mapping
    Mappings,
}

/// A kdamond of our own that monitors a process.
struct KernelRegions {
    kernel: Kernel,
    pid: u32,
    attributes: Attributes,
}

impl KernelRegions {
    /// What cannot be had is refused with what to do `instead`.
    fn begin(pid: u32, attributes: Attributes, instead: &str) -> Result<KernelRegions, Failure> {
        let mut kernel = Kernel::claim(Path::new(SYSFS), instead)?;
        kernel.begin(pid, &attributes).map_err(|error| {
            let remedy = format!("{error}; {instead}");
            Failure::failed("the kernel's monitor does not take process", pid, remedy)
        })?;
        Ok(KernelRegions { kernel, pid, attributes })
    }
}

impl Regions for KernelRegions {
    fn look(&mut self) -> std::io::Result<Vec<(Range<u64>, Duration)>> {
        self.kernel.monitor(self.pid, &self.attributes);
        let aggregation = Duration::from_micros(self.attributes.aggr_interval);
        let regions = self.kernel.latest().iter().map(|region| {
            let idle = if region.nr_accesses == 0 { aggregation.saturating_mul(region.age) } else { Duration::ZERO };
            (region.start..region.end, idle)
        });
        Ok(regions.collect())
    }

    fn words(&self) -> String {
        "a kdamond of our own (DAMON), by region".to_owned()
    }
}

/// What was done.
struct Done {
    target: String,
    words: String,
    swap: String,
    /// Of a dry run.
    would_have_gone_bytes: Option<u64>,
    looks_change: Option<&'static str>,
    seconds: f64,
    steps: Vec<Step>,
    came_back_bytes: u64,
}

/// Runs the command.
pub fn run(args: &ReclaimArgs) -> Result<(), Failure> {
    let mut outputs = args.result.outputs();
    args.scheme.iter().for_each(|path| outputs.reads(path));
    let (format, out) = args.result.claim(&mut outputs)?;
    let (goal, attributes) = goal(args)?;
    let (target, name) = match (&args.cgroup, args.pid) {
        (Some(path), _) => (Target::Cgroup(path.clone()), path.display().to_string()),
        (None, pid) => {
            let pid = pid.expect("invariant: one of the two is required");
            (Target::Process(pid), format!("process {pid}"))
        }
    };
    if let Some(pid) = args.pid.filter(|pid| is_of_kernel(*pid)) {
        return Err(of_kernel(pid));
    }
    let mut session = Session::new(&target, goal, args.dry_run).map_err(|error| refused(args, &error))?;
    if args.pressure.is_none() {
        take_ages(args, &mut session, &attributes)?;
    }
    session.begin().map_err(|error| refused(args, &error))?;
    let swap = Swap::of_host().map_or_else(|error| error.to_string(), |swap| swap.words());
    say(format_args!("{}; swap: {swap}", session.words()));
    let asked = interrupts();
    let begun = Instant::now();
    let length = args.length.or(args.dry_run.then_some(Duration::from_secs(60)));
    let (mut steps, mut said) = (Vec::new(), begun);
    while length.is_none_or(|length| begun.elapsed() < length) && sleep(session.interval(), &asked) {
        match session.step() {
            Ok(step) => steps.push(step),
            Err(error) if is_gone(&error) => {
                say(format_args!("{name} has ended"));
                break;
            }
            Err(error) => return Err(refused(args, &error)),
        }
        if said.elapsed() >= SAY_EVERY {
            said = Instant::now();
            say(line(&steps, args.dry_run.then(|| session.would_have_gone_bytes())));
        }
    }
    let done = Done {
        target: name,
        words: session.words(),
        swap,
        would_have_gone_bytes: args.dry_run.then(|| session.would_have_gone_bytes()),
        looks_change: session.looks_change(),
        seconds: begun.elapsed().as_secs_f64(),
        steps,
        came_back_bytes: session.came_back_bytes(),
    };
    with_output(out, |out| match format {
        Format::Table => done.write_table(out),
        Format::Csv => done.write_csv(out),
        Format::Json => done.write_json(out),
    })
}

/// Takes ages from whom the command names, or else from the first that can be had; who cannot, is said.
fn take_ages(args: &ReclaimArgs, session: &mut Session, attributes: &Attributes) -> Result<(), Failure> {
    let wanted = |source| args.ages.is_none_or(|named| named == source);
    let mut failures = Vec::new();
    let instead = if args.ages.is_some() { "use --ages mappings" } else { "until then others are asked" };
    match (args.pid, &args.cgroup) {
        (Some(pid), _) if wanted(AgeSource::Kernel) => match KernelRegions::begin(pid, *attributes, instead) {
            Ok(regions) => {
                session.take_ages_from(Box::new(regions));
                return Ok(());
            }
            Err(failure) => failures.push(failure),
        },
        (None, Some(path)) if wanted(AgeSource::Generations) && args.idle.is_some() => match Generations::open(path) {
            Ok(generations) => {
                session.take_ages_from_generations(generations);
                return Ok(());
            }
            Err(error) => {
                let remedy = format!("{error}; {instead}");
                failures.push(Failure::failed("no generations of", path.display(), remedy));
            }
        },
        _ => {
            if let Some(refusal) = out_of_place(args) {
                return Err(refusal);
            }
        }
    }
    if wanted(AgeSource::Pages) {
        // Whether they can be had is the same for all processes.
        match Pages::open(args.pid.unwrap_or_else(std::process::id)) {
            Ok(_) => {
                session.take_ages_by_page();
                return Ok(());
            }
            Err(error) => {
                let remedy = format!("{error}; {instead}");
                failures.push(Failure::failed("no ages by page", "--ages pages", remedy));
            }
        }
    }
    match args.ages {
        Some(AgeSource::Mappings) => Ok(()),
        Some(_) => Err(failures.remove(0)),
        // What is used instead, is said later.
        None => {
            failures.iter().for_each(|failure| say(format_args!("{}", failure.line())));
            Ok(())
        }
    }
}

/// Why a source is none for what is to be done.
fn out_of_place(args: &ReclaimArgs) -> Option<Failure> {
    match args.ages? {
        AgeSource::Kernel => Some(Failure::usage(
            "not for control groups",
            "--ages kernel",
            "a kdamond monitors one process; leave it out",
        )),
        AgeSource::Generations if args.pid.is_some() => Some(Failure::usage(
            "not for processes",
            "--ages generations",
            "they are of control groups: name one with --cgroup",
        )),
        AgeSource::Generations => Some(Failure::usage(
            "not for schemes",
            "--ages generations",
            "they have no addresses, which schemes go by; use --idle",
        )),
        AgeSource::Pages | AgeSource::Mappings => None,
    }
}

/// What is to be reached, and how the kernel's monitor would look.
fn goal(args: &ReclaimArgs) -> Result<(Goal, Attributes), Failure> {
    // A large heap with many small busy parts needs regions that are small.
    let fine = Attributes { min_nr_regions: 100, max_nr_regions: 2000, ..Attributes::default() };
    if let Some(share) = args.pressure {
        return Ok((Goal::Pressure(share.0), fine));
    }
    if let Some(idle) = args.idle {
        return Ok((Goal::Idle(idle), fine));
    }
    let path = args.scheme.as_ref().expect("invariant: one of the three is required");
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::usage("cannot read", path.display(), format!("{error}; name a file that can be read"))
    })?;
    let config = Config::parse(&text, &path.display().to_string())
        .map_err(|error| Failure::Usage(format!("bad configuration: {error}")))?;
    if config.schemes.is_empty() {
        return Err(Failure::usage(
            "no schemes",
            path.display(),
            "give one at least: docs/guide/monitor.md shows some",
        ));
    }
    for (index, scheme) in config.schemes.iter().enumerate() {
        if let Some((key, reason)) = refusal(scheme) {
            return Err(Failure::Usage(format!("bad configuration: schemes[{index}].{key}: {key} {reason}")));
        }
    }
    let aggregation = Duration::from_micros(config.attributes.aggr_interval);
    Ok((Goal::Schemes(config.schemes, aggregation, config.profile), config.attributes))
}

/// Why the target cannot be reclaimed from.
fn refused(args: &ReclaimArgs, error: &std::io::Error) -> Failure {
    match (&args.cgroup, args.pid) {
        (Some(path), _) if error.kind() == std::io::ErrorKind::NotFound => Failure::usage(
            "no memory cgroup",
            path.display(),
            "name a directory with memory.reclaim or memory.limit_in_bytes",
        ),
        (Some(path), _) => {
            Failure::failed("cannot reclaim from", path.display(), format!("{error}; be root, or its owner"))
        }
        (None, Some(pid)) if error.raw_os_error() == Some(libc::EPERM) => {
            let remedy = format!("{error}; be root, or its user with CAP_SYS_NICE");
            Failure::failed("may not reclaim from process", pid, remedy)
        }
        (None, pid) => not_seen(pid.unwrap_or(0), error),
    }
}

/// How it stands; of a dry run with what would have gone.
fn line(steps: &[Step], would_have_gone: Option<u64>) -> String {
    let last = steps.last().copied().unwrap_or_default();
    let chosen = would_have_gone.unwrap_or_else(|| steps.iter().map(|step| step.chosen_bytes).sum());
    let pressure = last.pressure.map_or(String::new(), |share| format!(", pressure {:.2} %", share * 100.0));
    format!("resident {}, {} chosen so far{pressure}", bytes_text(last.resident_bytes), bytes_text(chosen))
}

impl Done {
    fn sum(&self, figure: fn(&Step) -> u64) -> u64 {
        self.steps.iter().map(figure).sum()
    }

    fn first(&self) -> Step {
        self.steps.first().copied().unwrap_or_default()
    }

    /// What was to go: of a dry run what would have gone, which is no sum where the same is chosen again at each look.
    fn chosen_bytes(&self) -> u64 {
        self.would_have_gone_bytes.unwrap_or_else(|| self.sum(|step| step.chosen_bytes))
    }

    /// Resident memory after the last step.
    fn left_bytes(&self) -> u64 {
        self.steps.last().map_or(0, |step| step.resident_bytes.saturating_sub(step.reclaimed_bytes))
    }

    fn mean_pressure(&self) -> Option<f64> {
        let all: Vec<f64> = self.steps.iter().filter_map(|step| step.pressure).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    }

    fn write_table(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let chosen = bytes_text(self.chosen_bytes());
        if self.would_have_gone_bytes.is_some() {
            let changed =
                self.looks_change.map_or("nothing was changed".to_owned(), |what| format!("nothing was moved; {what}"));
            writeln!(out, "{}: {chosen} would have gone in {:.0} s; {changed}", self.target, self.seconds)?;
        } else {
            let went = bytes_text(self.sum(|step| step.reclaimed_bytes));
            writeln!(out, "{}: {went} went in {:.0} s, of {chosen} chosen", self.target, self.seconds)?;
        }
        writeln!(out, "resident: {}, then {}", bytes_text(self.first().resident_bytes), bytes_text(self.left_bytes()))?;
        if self.came_back_bytes > 0 {
            writeln!(out, "came back, as far as looked at: {}", bytes_text(self.came_back_bytes))?;
        }
        if let Some(pressure) = self.mean_pressure() {
            writeln!(out, "pressure: {:.3} % of the time on average", pressure * 100.0)?;
        }
        writeln!(out, "{}; swap: {}", self.words, self.swap)
    }

    fn write_csv(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(["step", "resident_bytes", "swap_bytes", "pressure", "chosen_bytes", "reclaimed_bytes"])?;
        for (index, step) in self.steps.iter().enumerate() {
            csv.write_record([
                (index + 1).to_string(),
                step.resident_bytes.to_string(),
                step.swap_bytes.to_string(),
                step.pressure.map_or(String::new(), |share| share.to_string()),
                step.chosen_bytes.to_string(),
                step.reclaimed_bytes.to_string(),
            ])?;
        }
        csv.flush()
    }

    fn write_json(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let object = json!({
            "target": self.target,
            "means": self.words,
            "swap": self.swap,
            "dry_run": self.would_have_gone_bytes.is_some(),
            "accessed_bits_cleared": self.looks_change.is_some(),
            "seconds": self.seconds,
            "resident_before_bytes": self.first().resident_bytes,
            "resident_after_bytes": self.left_bytes(),
            "chosen_bytes": self.chosen_bytes(),
            "reclaimed_bytes": self.sum(|step| step.reclaimed_bytes),
            "came_back_bytes": self.came_back_bytes,
            "mean_pressure": self.mean_pressure(),
            "steps": self.steps.len(),
        });
        serde_json::to_writer(&mut *out, &object)?;
        writeln!(out)
    }
}
