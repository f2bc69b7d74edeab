//! `refault monitor`: monitor access patterns by regions, hold what is found against what was accessed, and let schemes
//! act on it.
//!
//! Without schemes it prints how much of the truth the monitor finds at how many checks; with schemes it replays the
//! pattern under a policy and a limit and prints what they did.

mod attached;
pub mod kernel;
mod live;
mod query;
pub mod recording;
mod show;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use refault_console::{
    Contents, Failure, ForceArgs, Format, Output, Outputs, Progress, Share, format_of, read_text, say, with_output,
};
use refault_core::monitor::Attributes;
use refault_core::schemes::Scheme;
use refault_sim::flat_memory::Swap;
use refault_sim::layout::LayoutBuilder;
use refault_sim::monitoring::accuracy::{self, Found};
use refault_sim::monitoring::config::Config;
use refault_sim::monitoring::heat_map::{svg_pair, text_pair};
use refault_sim::monitoring::monitored::MonitoredReplay;
use refault_sim::monitoring::pattern::Pattern;
use refault_sim::{Limits, Outcome, named};
use refault_trace::Entry;
use serde_json::{Value, json};

use crate::launch::MonitorOptions;
use refault_console::text::{align_numbers, grouped, plain_table};
use refault_core::policy::registry::{BuildContext, Fact, FrontEnd, NEEDS_FUTURE, PolicySpec};
use refault_lab::policies::parse_policies_for;
use refault_lab::size::{PAGE_BYTES, Size};

/// Rows of the map on a terminal.
const MAP_ROWS: usize = 24;
/// Rows of the map in a picture.
const PICTURE_ROWS: usize = 80;
/// Most pages whose exact history is kept: 128 GiB of them take 700 MB.
const MAX_PAGES: u64 = 1 << 25;
/// Entries replayed at a time.
const BLOCK: u64 = 1 << 16;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault monitor                                     how much of the built-in patterns is found at how many checks
  refault monitor --pattern stairs --max-regions 100 --picture stairs.svg
  refault monitor --pattern my.masim --set 'intervals.sample_us=10 ms' --set 'intervals.aggr_us=200 ms'
  refault monitor --pattern hot-spot --memory 60% --scheme 'pageout nr_accesses=0 age=5s..'
  refault monitor --pattern hot-spot --policy 'mglru{version=7.2}' --config sorting.toml --format json
  refault monitor --report app.html -- python3 analysis.py      a live program: what is hot when, and how much
  refault monitor --memory 64M -- python3 analysis.py           the same under a budget
  refault monitor --out app.raw -- python3 analysis.py          the same to be asked later
  refault monitor report heats app.raw                          by refault monitor report --help
  refault monitor --pid 4711 --for 30s                          a program that runs already

Schemes on one line: ACTION [sz_bytes=MIN..MAX] [nr_accesses=MIN..MAX] [age=MIN..MAX] [quota=TIME,SIZE,WINDOW]
[weights=SIZE,FREQUENCY,AGE] [wmarks=METRIC,INTERVAL,HIGH,MID,LOW] [apply=TIME]. docs/reference/monitor.md has the keys of
files, which may be TOML or the JSON of DAMON's user-space tool.")]
#[command(args_conflicts_with_subcommands = true)]
/// Monitor access patterns by regions, and run schemes on what is found
pub struct MonitorArgs {
    #[command(subcommand)]
    command: Option<MonitorCommand>,
    /// A built-in pattern (stairs, zigzag, hot-spot, uniform) or a file in masim's format [default: all built-in ones]
    #[arg(long, value_name = "NAME|FILE")]
    pattern: Vec<String>,
    /// Most regions, one run for each
    #[arg(long, value_name = "N,N…", value_delimiter = ',')]
    max_regions: Vec<usize>,
    #[command(flatten)]
    monitor: MonitorOptions,
    /// The policy whose pages schemes act on
    #[arg(long, value_name = "P", default_value = "classic")]
    policy: String,
    /// The limit under which schemes act, or under which the program runs
    #[arg(long, value_name = "SIZE", default_value = "100%")]
    memory: Size,
    /// Accesses that the program makes per second
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    speed: u64,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How to write what came out [default: by the name of --out, else table]
    #[arg(long, value_enum, ignore_case = true)]
    format: Option<RecordingFormat>,
    /// Write it to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Draw the true heat map beside the monitored one, of the last run
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,
    /// Write a report of a program: heat map over time, working set, hot and cold memory
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// What the monitor of a program may use of one processor; its intervals grow until that is kept
    #[arg(long, value_name = "PERCENT", default_value = "1%")]
    monitor_cpu: Share,
    /// What monitors a program [default: refault's monitor; with --pid the kernel's if it can be had, else mappings]
    #[arg(long, value_enum, ignore_case = true)]
    source: Option<Source>,
    /// Monitor a process that runs already, until it ends, --for is over, or Ctrl-C
    #[arg(long, value_name = "PID", value_parser = crate::launched::process, conflicts_with_all = ["pattern", "max_regions", "picture", "memory", "speed", "seed", "policy", "program"])]
    pid: Option<u32>,
    /// How long to monitor a process that runs already, such as 30s
    #[arg(long = "for", value_name = "TIME", value_parser = crate::wss::time, allow_hyphen_values = true, requires = "pid")]
    duration: Option<Duration>,
    /// A program and its arguments, monitored while it runs instead of a pattern
    #[arg(last = true, value_name = "PROGRAM", conflicts_with_all = ["pattern", "max_regions", "picture", "speed", "seed"])]
    program: Vec<OsString>,
    #[command(flatten)]
    force: ForceArgs,
}

#[derive(clap::Subcommand, Debug)]
enum MonitorCommand {
    Report(query::QueryArgs),
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// refault's monitor, in the program from its start
    Refault,
    /// The kernel's (DAMON; needs root and a free kdamond), for a program that is started beside refault's
    Kernel,
    /// The accessed bits of a running process by mapping, as its user
    Mappings,
}

/// How results are written.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum RecordingFormat {
    /// Aligned columns for people.
    Table,
    /// One row per run, or of a program one row per region and aggregation, with a header.
    Csv,
    /// One object with all runs.
    Json,
    /// All that was seen of a program, for `refault monitor report`.
    Raw,
}

/// Runs the command.
pub fn run(args: &MonitorArgs) -> Result<(), Failure> {
    if let Some(MonitorCommand::Report(query)) = &args.command {
        return query::run(query);
    }
    if let Some(pid) = args.pid {
        return attached::run(args, pid);
    }
    if !args.program.is_empty() {
        return live::run(args);
    }
    if args.source.is_some() {
        return Err(Failure::usage(
            "nothing to monitor",
            "--source",
            "name a program after --, or a process with --pid",
        ));
    }
    if args.recording_format() == RecordingFormat::Raw {
        let remedy = "name a program after --, or write --format json";
        return Err(Failure::usage("a pattern has no recording", "--format raw", remedy));
    }
    if args.report.is_some() {
        let remedy = "name a program after --, or draw a pattern with --picture";
        return Err(Failure::usage("an option without effect", "--report", remedy));
    }
    let config = args.monitor.read()?;
    let patterns = read_patterns(&args.pattern)?;
    if config.schemes.is_empty() { measure(args, &config, &patterns) } else { act(args, &config, &patterns) }
}

fn read_patterns(names: &[String]) -> Result<Vec<(String, Pattern)>, Failure> {
    let built_in = Pattern::NAMES.map(str::to_owned);
    let names = if names.is_empty() { &built_in[..] } else { names };
    names.iter().map(|name| Ok((name.clone(), read_pattern(name)?))).collect()
}

fn read_pattern(name: &str) -> Result<Pattern, Failure> {
    if let Some(pattern) = Pattern::from_name(name) {
        return Ok(pattern);
    }
    let text = read_text(Path::new(name)).map_err(|error| {
        let remedy = format!("{error}; name a file in masim's format or one of {}", Pattern::NAMES.join(", "));
        Failure::usage("cannot read pattern", name, remedy)
    })?;
    Pattern::parse(&text).map_err(|error| Failure::Usage(format!("bad pattern: {name}: {error}")))
}

/// The outputs of a pattern's run.
fn claim(args: &MonitorArgs) -> Result<(Option<Output>, Option<Output>), Failure> {
    let mut outputs = args.outputs();
    let out = args.claim_recording(&mut outputs)?;
    Ok((out, outputs.claim("--picture", args.picture.as_deref(), Contents::Svg)?))
}

impl MonitorArgs {
    /// How results are written: as asked, or by the name of the file. One that is called `raw`, or ends so, is a
    /// recording.
    fn recording_format(&self) -> RecordingFormat {
        let named = |path: &PathBuf| {
            let raw = path.extension().or(path.file_name()).is_some_and(|name| name == "raw");
            match format_of(Some(path)) {
                _ if raw => RecordingFormat::Raw,
                Format::Table => RecordingFormat::Table,
                Format::Csv => RecordingFormat::Csv,
                Format::Json => RecordingFormat::Json,
            }
        };
        self.format.or(self.out.as_ref().map(named)).unwrap_or(RecordingFormat::Table)
    }

    /// Claims `--out`.
    fn claim_recording(&self, outputs: &mut Outputs) -> Result<Option<Output>, Failure> {
        let contents = match self.recording_format() {
            RecordingFormat::Table => Contents::Table,
            RecordingFormat::Csv => Contents::Csv,
            RecordingFormat::Json | RecordingFormat::Raw => Contents::Json,
        };
        outputs.claim("--out", self.out.as_deref(), contents)
    }

    /// Outputs, kept apart from what is read.
    fn outputs(&self) -> Outputs {
        let mut outputs = Outputs::new(self.force);
        self.pattern.iter().for_each(|pattern| outputs.reads(Path::new(pattern)));
        self.program.iter().for_each(|argument| outputs.reads(Path::new(argument)));
        outputs
    }
}

/// One row of the accuracy table.
struct Measured {
    pattern: String,
    max_nr_regions: usize,
    found: Found,
}

fn measure(args: &MonitorArgs, config: &Config, patterns: &[(String, Pattern)]) -> Result<(), Failure> {
    let (out, picture) = claim(args)?;
    if config.attributes.intervals_goal.is_some() {
        let remedy = "leave intervals_goal out: the truth is counted in fixed intervals";
        return Err(Failure::usage("cannot measure", "self-tuned intervals", remedy));
    }
    let numbers = match (&args.max_regions[..], config.attributes == default_attributes()) {
        ([], true) => vec![20, 100, 1000],
        ([], false) => vec![config.attributes.max_nr_regions],
        (given, _) => given.to_vec(),
    };
    let progress = Progress::part("monitoring");
    let mut rows = Vec::new();
    for (name, pattern) in patterns {
        if pattern.pages() > MAX_PAGES {
            let place = format!("{name}: {} pages", grouped(pattern.pages()));
            return Err(Failure::usage("pattern too large", place, format!("use at most {}", grouped(MAX_PAGES))));
        }
        for &max_nr_regions in &numbers {
            let attributes = Attributes { max_nr_regions, ..config.attributes };
            if max_nr_regions < attributes.min_nr_regions {
                let remedy = format!(
                    "it is below the least, {}; give more, or --set nr_regions.min=N",
                    attributes.min_nr_regions
                );
                return Err(Failure::usage("bad number of regions", format!("--max-regions {max_nr_regions}"), remedy));
            }
            attributes.check(config.profile).map_err(|error| {
                Failure::usage("bad number of regions", format!("--max-regions {max_nr_regions}"), error)
            })?;
            let options = accuracy::Options {
                profile: config.profile,
                attributes,
                accesses_per_second: args.speed,
                seed: config.seed.unwrap_or(args.seed),
            };
            rows.push(Measured { pattern: name.clone(), max_nr_regions, found: accuracy::measure(pattern, &options) });
            progress.set(rows.len() as f64 / (patterns.len() * numbers.len()) as f64);
        }
    }
    drop(progress);
    with_output(out, |out| match args.recording_format() {
        RecordingFormat::Table => write_accuracy(out, &rows, patterns.len() == 1),
        RecordingFormat::Csv => write_accuracy_csv(out, &rows),
        RecordingFormat::Json | RecordingFormat::Raw => {
            let rows: Vec<Value> = rows.iter().map(accuracy_json).collect();
            serde_json::to_writer_pretty(&mut *out, &json!({ "profile": config.profile.name(), "runs": rows }))?;
            writeln!(out)
        }
    })?;
    if let (Some(picture), Some(last)) = (picture, rows.last()) {
        let title = format!("{}, at most {} regions", last.pattern, last.max_nr_regions);
        let svg = svg_pair(&title, &last.found.truth.shrunk(PICTURE_ROWS), &last.found.found.shrunk(PICTURE_ROWS));
        let path = picture.path().display().to_string();
        picture.write(|out| out.write_all(svg.as_bytes()))?;
        say(format_args!("picture written to {path}"));
    }
    Ok(())
}

/// What a configuration that says nothing of intervals and regions has.
fn default_attributes() -> Attributes {
    Attributes { ops_update_interval: 1_000_000, ..Attributes::default() }
}

/// The columns of the accuracy table, as CSV and JSON name them, with a row's values.
fn figures(row: &Measured) -> [(&'static str, Option<f64>); 9] {
    let accuracy = &row.found.accuracy;
    [
        ("checks_per_second", Some(row.found.checks_per_second())),
        ("share_of_page_checks", Some(row.found.cost_share())),
        ("peak_regions", Some(row.found.counters.peak_regions as f64)),
        ("events_found", accuracy.events_found()),
        ("events_right", accuracy.events_right()),
        ("hot_found", accuracy.hot_found()),
        ("hot_right", accuracy.hot_right()),
        ("mean_error", Some(accuracy.mean_error())),
        ("seconds", Some(row.found.seconds)),
    ]
}

fn write_accuracy(out: &mut dyn std::io::Write, rows: &[Measured], map: bool) -> std::io::Result<()> {
    let mut table = plain_table();
    table.set_header([
        "pattern",
        "max regions",
        "checks/s",
        "of page checks %",
        "peak regions",
        "events found %",
        "right %",
        "hot found %",
        "right %",
        "mean error %",
    ]);
    for row in rows {
        let [checks, cost, peak, shares @ .., _] = figures(row).map(|(_, value)| value);
        let percent = |value: Option<f64>| value.map_or("–".to_string(), |value| format!("{:.1}", value * 100.0));
        let mut cells = vec![row.pattern.clone(), row.max_nr_regions.to_string()];
        cells.push(grouped(checks.unwrap_or(0.0).round() as u64));
        cells.push(format!("{:.3}", cost.unwrap_or(0.0) * 100.0));
        cells.push(grouped(peak.unwrap_or(0.0) as u64));
        cells.extend(shares.map(percent));
        table.add_row(cells);
    }
    align_numbers(&mut table);
    writeln!(out, "{}\n", table.trim_fmt())?;
    writeln!(
        out,
        "Event: a page accessed in a sampling interval. Found: share of the true events that the monitor has; right: share of\n\
         its events that are true. Hot: in at least half of the checks of an aggregation. Mean error: distance of true and\n\
         monitored frequency. Page checks: what looking at every page in every interval would take."
    )?;
    if let (true, Some(last)) = (map, rows.last()) {
        let shrink = |map: &refault_sim::monitoring::heat_map::HeatMap| map.shrunk(MAP_ROWS);
        writeln!(out, "\n{}", text_pair(&shrink(&last.found.truth), &shrink(&last.found.found)))?;
        writeln!(out, "Addresses from left to right, time downwards; 9: accessed in every check, '.': never.")?;
    }
    Ok(())
}

fn write_accuracy_csv(out: &mut dyn std::io::Write, rows: &[Measured]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let mut header = vec!["pattern".to_string(), "max_nr_regions".to_string()];
    header.extend(rows.first().map(figures).into_iter().flatten().map(|(name, _)| name.to_string()));
    csv.write_record(header)?;
    for row in rows {
        let mut record = vec![row.pattern.clone(), row.max_nr_regions.to_string()];
        record.extend(figures(row).map(|(_, value)| value.map_or(String::new(), |value| value.to_string())));
        csv.write_record(record)?;
    }
    csv.flush()
}

fn accuracy_json(row: &Measured) -> Value {
    let mut made =
        json!({ "pattern": row.pattern, "max_nr_regions": row.max_nr_regions, "checks": row.found.counters.checks });
    for (name, value) in figures(row) {
        made[name] = json!(value);
    }
    made
}

/// What a replay with schemes came to.
struct Acted {
    pattern: String,
    memory_pages: u64,
    outcome: Outcome,
    schemes: Vec<Scheme>,
    checks: u64,
    /// Modelled CPU share of the monitor and of its schemes.
    monitor_share: f64,
    schemes_share: f64,
    /// Real seconds: all, and the monitor's part.
    wall_seconds: f64,
    monitor_seconds: f64,
}

fn act(args: &MonitorArgs, config: &Config, patterns: &[(String, Pattern)]) -> Result<(), Failure> {
    if args.picture.is_some() {
        let remedy = "leave the schemes out: the picture is of what the monitor finds alone";
        return Err(Failure::usage("an option without effect", "--picture", remedy));
    }
    let (out, _) = claim(args)?;
    if args.picture.is_some() || !args.max_regions.is_empty() {
        let remedy = "leave the schemes out, or set nr_regions.max in the configuration";
        return Err(Failure::usage("cannot measure accuracy", "--picture and --max-regions with schemes", remedy));
    }
    let policies = parse_policies_for(std::slice::from_ref(&args.policy), FrontEnd::Replay)?;
    let [spec] = &policies[..] else {
        return Err(Failure::usage("too many policies", format!("--policy {}", args.policy), "name one"));
    };
    if spec.entry.is(Fact::NeedsFuture) {
        return Err(Failure::usage("cannot monitor", format!("--policy {}", args.policy), NEEDS_FUTURE));
    }
    let progress = Progress::part("replaying");
    let mut results = Vec::new();
    for (name, pattern) in patterns {
        results.push(MonitoredRun { args, config, name, pattern }.replay(spec)?);
        progress.set(results.len() as f64 / patterns.len() as f64);
    }
    drop(progress);
    with_output(out, |out| match args.recording_format() {
        RecordingFormat::Table => write_acted(out, &results),
        RecordingFormat::Csv => write_acted_csv(out, &results),
        RecordingFormat::Json | RecordingFormat::Raw => {
            let runs: Vec<Value> = results.iter().map(|acted| acted_json(acted, config)).collect();
            serde_json::to_writer_pretty(&mut *out, &json!({ "policy": spec.label, "runs": runs }))?;
            writeln!(out)
        }
    })
}

/// Replays a pattern under a policy with the schemes over it.
struct MonitoredRun<'a> {
    args: &'a MonitorArgs,
    config: &'a Config,
    name: &'a str,
    pattern: &'a Pattern,
}

impl MonitoredRun<'_> {
    fn replay(&self, spec: &PolicySpec) -> Result<Acted, Failure> {
        let mut builder = LayoutBuilder::new();
        self.play(|block| builder.observe(block));
        let layout = builder
            .finish()
            .map_err(|error| Failure::usage("too large", self.name, format!("{error}; make its areas smaller")))?;
        let memory_pages = self.args.memory.pages(layout.distinct_pages());
        let limits =
            Limits { memory_pages: usize::try_from(memory_pages).unwrap_or(usize::MAX), swap: Swap::default() };
        let replay = named::replay(spec, &BuildContext::default(), &layout, limits);
        let ids = layout.ids() as u64;
        let mut monitored =
            MonitoredReplay::new(replay, memory_pages, ids, self.config, self.args.speed, self.args.seed)
                .map_err(|error| Failure::Usage(format!("bad configuration: {error}")))?;
        let start = std::time::Instant::now();
        let mut accesses = Vec::new();
        self.play(|block| {
            accesses.clear();
            layout.translate(block, &mut accesses);
            monitored.run(&accesses, &mut ());
        });
        let simulated = monitored.now() as f64 * 1000.0;
        let monitor = monitored.kdamond().monitor();
        Ok(Acted {
            pattern: self.name.to_owned(),
            memory_pages,
            outcome: monitored.outcome(),
            schemes: monitored.kdamond().schemes().to_vec(),
            checks: monitor.counters().checks,
            monitor_share: monitor.work_ns() as f64 / simulated,
            schemes_share: monitored.kdamond().schemes_ns() as f64 / simulated,
            wall_seconds: start.elapsed().as_secs_f64(),
            monitor_seconds: monitored.spent().as_secs_f64(),
        })
    }

    /// Hands out the pattern's accesses, block by block; the same each time.
    fn play(&self, mut take: impl FnMut(&[Entry])) {
        let mut player = self.pattern.start(self.args.speed, self.config.seed.unwrap_or(self.args.seed));
        let mut block = Vec::new();
        loop {
            block.clear();
            player.play(BLOCK, &mut block);
            if block.is_empty() {
                return;
            }
            take(&block);
        }
    }
}

/// The columns of a table of schemes.
pub(crate) const SCHEME_COLUMNS: [&str; 8] = [
    "scheme",
    "nr_tried",
    "sz_tried",
    "nr_applied",
    "sz_applied",
    "sz_ops_filter_passed",
    "qt_exceeds",
    "nr_snapshots",
];

/// A scheme's row, with the counts under the kernel's names.
pub(crate) fn scheme_cells(index: usize, scheme: &Scheme) -> [String; 8] {
    let s = scheme.statistics();
    let numbers =
        [s.nr_tried, s.sz_tried, s.nr_applied, s.sz_applied, s.sz_ops_filter_passed, s.qt_exceeds, s.nr_snapshots];
    let mut numbers = numbers.into_iter();
    std::array::from_fn(|column| match column {
        0 => format!("{index} {}", scheme.settings().action.name()),
        _ => numbers.next().unwrap_or(0).to_string(),
    })
}

fn write_acted(out: &mut dyn std::io::Write, results: &[Acted]) -> std::io::Result<()> {
    for acted in results {
        let outcome = &acted.outcome;
        writeln!(
            out,
            "{}: {} of memory, {} accesses, {} misses, {} resident at the end",
            acted.pattern,
            refault_lab::size::pages_text(acted.memory_pages),
            grouped(outcome.accesses),
            grouped(outcome.misses),
            refault_lab::size::pages_text(outcome.resident as u64),
        )?;
        let mut table = plain_table();
        table.set_header(SCHEME_COLUMNS);
        for (index, scheme) in acted.schemes.iter().enumerate() {
            table.add_row(scheme_cells(index, scheme));
        }
        align_numbers(&mut table);
        writeln!(out, "{}", table.trim_fmt())?;
        writeln!(
            out,
            "{} checks; modelled CPU: monitor {:.2} %, schemes {:.2} % of one; {:.2} s replayed, {:.3} s of it monitoring\n",
            grouped(acted.checks),
            acted.monitor_share * 100.0,
            acted.schemes_share * 100.0,
            acted.wall_seconds,
            acted.monitor_seconds,
        )?;
    }
    writeln!(
        out,
        "Sizes in bytes; sums over passes, not distinct bytes. The columns are those of the kernel's statistics."
    )
}

fn write_acted_csv(out: &mut dyn std::io::Write, results: &[Acted]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let mut header = vec!["pattern", "memory_pages", "accesses", "misses"];
    header.extend(SCHEME_COLUMNS);
    csv.write_record(header)?;
    for acted in results {
        for (index, scheme) in acted.schemes.iter().enumerate() {
            let mut record = vec![
                acted.pattern.clone(),
                acted.memory_pages.to_string(),
                acted.outcome.accesses.to_string(),
                acted.outcome.misses.to_string(),
            ];
            record.extend(scheme_cells(index, scheme));
            csv.write_record(record)?;
        }
    }
    csv.flush()
}

fn acted_json(acted: &Acted, config: &Config) -> Value {
    let names = refault_core::Counters::NAMES;
    let counters: serde_json::Map<String, Value> = names
        .iter()
        .zip(acted.outcome.counters.values())
        .map(|(name, value)| ((*name).to_string(), json!(value)))
        .collect();
    json!({
        "pattern": acted.pattern,
        "memory_bytes": acted.memory_pages * PAGE_BYTES,
        "accesses": acted.outcome.accesses,
        "misses": acted.outcome.misses,
        "resident_pages": acted.outcome.resident,
        "checks": acted.checks,
        "monitor_cpu_share": acted.monitor_share,
        "schemes_cpu_share": acted.schemes_share,
        "wall_seconds": acted.wall_seconds,
        "monitor_seconds": acted.monitor_seconds,
        "counters": counters,
        "damo": config.to_json(Some(&acted.schemes)),
    })
}
