//! `refault why`: the last kills for memory, what other rules would have chosen, and what would have prevented them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use refault_console::{Failure, Format, ResultArgs, say, with_output};
use refault_host::history::{History, Sample};
use refault_host::why::verdict::verdicts;
use refault_host::why::{Kill, Killer, Level, Limit, kmsg, log, replay};
use refault_host::{figures, tree};
use refault_lab::size::bytes_text;
use serde_json::{Value, json};

/// The history before a kill that is looked at.
const BEFORE: Duration = Duration::from_secs(3600);

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault why                            the last ten kills of the kernel's log
  refault why --history host.sqlite      with what refault host had recorded
  journalctl -o short-monotonic | refault why --log /dev/stdin
  refault why --last 1 --json

The log's kills are those of the kernel, systemd-oomd and earlyoom. Of each it says who was killed, which limit was reached
and what memory was at that time. It says which process the rules of the kernel, of Android's lmkd and of systemd-oomd
would have chosen, and what would have prevented the kill. Where log and history do not show enough for that, it says that nothing can be said.")]
/// Say why processes were killed for memory, and what would have prevented it
pub struct WhyArgs {
    /// A file with the log's lines [default: the kernel's log, /dev/kmsg]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// The history that refault host --history keeps
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// How many kills to show
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    last: u32,
    /// Write JSON, as --format json does
    #[arg(long, conflicts_with = "format")]
    json: bool,
    #[command(flatten)]
    result: ResultArgs,
}

/// A kill with what the history says of the time before it.
struct Case {
    kill: Kill,
    time_seconds: Option<u64>,
    before: Vec<Sample>,
}

/// Runs the command.
pub fn run(args: &WhyArgs) -> Result<(), Failure> {
    let mut outputs = args.result.outputs();
    args.log.iter().chain(&args.history).for_each(|path| outputs.reads(path));
    let (format, out) = args.result.claim(&mut outputs)?;
    let format = if args.json { Format::Json } else { format };
    let lines = match &args.log {
        Some(path) => std::fs::read(path)
            .map_err(|error| Failure::usage("cannot read", path.display(), format!("{error}; name a log's file")))?,
        None => kmsg::read(Path::new(kmsg::FILE)).map_err(|error| {
            Failure::failed("cannot read", kmsg::FILE, format!("{error}; be root, or name a log with --log FILE"))
        })?,
    };
    let history = match &args.history {
        // One that is not there is not made.
        Some(path) if !path.exists() => {
            return Err(Failure::usage("no history", path.display(), "make it with refault host --history FILE"));
        }
        Some(path) => Some(History::open(path).map_err(|error| Failure::failed("no history", path.display(), error))?),
        None => None,
    };
    let mut kills = log::kills(&lines);
    kills.drain(..kills.len().saturating_sub(args.last as usize));
    // Times of a file may be those of another host, or of another start of this one.
    let booted = if args.log.is_none() { boot_seconds() } else { None };
    let mut cases = Vec::new();
    for kill in kills {
        let time_seconds = booted.zip(kill.seconds_after_boot).map(|(boot, after)| (boot + after).ceil() as u64);
        let group = kill.group.as_deref().or(kill.victim_group.as_deref()).unwrap_or("/");
        let before = match (&history, time_seconds) {
            (Some(history), Some(time)) => {
                let mut all = history.since(group, time.saturating_sub(BEFORE.as_secs())).map_err(|error| {
                    Failure::failed(
                        "cannot read the history",
                        args.history.as_ref().map_or("".into(), |path| path.display().to_string()),
                        error,
                    )
                })?;
                all.retain(|sample| sample.time_seconds <= time);
                all
            }
            _ => Vec::new(),
        };
        cases.push(Case { kill, time_seconds, before });
    }
    let counted = if args.log.is_none() { counted() } else { Vec::new() };
    with_output(out, |out| match format {
        Format::Json => {
            let counted: Vec<Value> =
                counted.iter().map(|(path, kills)| json!({"group": path, "kills": kills})).collect();
            let all: Vec<Value> = cases.iter().map(Case::json).collect();
            serde_json::to_writer(&mut *out, &json!({"version": 1, "kills": all, "counted": counted}))?;
            writeln!(out)
        }
        Format::Csv => write_csv(out, &cases),
        Format::Table => {
            for case in &cases {
                case.write(out)?;
            }
            if cases.is_empty() {
                writeln!(out, "the log holds no kills for memory")?;
            }
            for (path, kills) in &counted {
                writeln!(out, "{path}: {kills} killed for its limit since it was made, by the kernel's count")?;
            }
            Ok(())
        }
    })
}

/// When this host started, in seconds since 1970.
fn boot_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    let up: f64 = text.split(' ').next()?.parse().ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(now.as_secs_f64() - up)
}

/// The groups that count kills themselves.
fn counted() -> Vec<(String, u64)> {
    let groups = tree::groups().unwrap_or_else(|error| {
        say(format_args!("kills that groups count are left out: {error}"));
        Vec::new()
    });
    let kills = |group: &tree::Group| figures::of(&group.directory)?.kills.filter(|kills| *kills > 0);
    groups.iter().filter_map(|group| Some((group.path.clone(), kills(group)?))).collect()
}

fn killer(kill: &Kill) -> &'static str {
    match kill.killer {
        Killer::Kernel => "the kernel",
        Killer::SystemdOomd => "systemd-oomd",
        Killer::Earlyoom => "earlyoom",
    }
}

fn level(level: Level) -> String {
    let most = level.limit_bytes.map_or("no limit".to_owned(), bytes_text);
    format!("{} of {most}", bytes_text(level.used_bytes))
}

impl Case {
    fn limit(&self) -> String {
        match (&self.kill.limit, &self.kill.group) {
            (Limit::Group, Some(group)) => format!("the limit of {group}"),
            (Limit::Group, None) => "the limit of a group".to_owned(),
            (Limit::Host, _) => "the host's memory".to_owned(),
            (Limit::Unknown, _) => "a limit that the log does not name".to_owned(),
        }
    }

    fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let (kill, victim) = (&self.kill, &self.kill.victim);
        let when = kill.seconds_after_boot.map_or(String::new(), |seconds| format!(" {seconds:.1} s after the start"));
        let pid = victim.pid.map_or(String::new(), |pid| format!(" ({pid})"));
        writeln!(out, "{}{pid} was killed by {}{when}, for {}", victim.name, killer(kill), self.limit())?;
        if let Some(reason) = &kill.reason {
            writeln!(out, "  its reason: {reason}")?;
        }
        if let Some(group) = kill.victim_group.as_ref().filter(|group| Some(*group) != kill.group.as_ref()) {
            writeln!(out, "  its group: {group}")?;
        }
        if let Some(comm) = &kill.asked_by {
            writeln!(out, "  who asked for memory: {comm}")?;
        }
        if let Some(bytes) = victim.anonymous_bytes {
            let files = bytes_text(victim.file_bytes.unwrap_or(0).saturating_add(victim.shared_bytes.unwrap_or(0)));
            writeln!(out, "  it held: {} anonymous, {files} of files and shared", bytes_text(bytes))?;
        }
        if let Some(memory) = kill.memory {
            writeln!(out, "  memory: {}; swap: {}", level(memory), kill.swap.map_or("none".into(), level))?;
        }
        if let Some(last) = self.before.last() {
            let set = last.working_set_bytes.map_or("unknown".to_owned(), bytes_text);
            let ago = self.time_seconds.unwrap_or(0).saturating_sub(last.time_seconds);
            writeln!(out, "  recorded {ago} s before: usage {}, working set {set}", bytes_text(last.usage_bytes))?;
        }
        for choice in replay::choices(kill) {
            let pid = choice.pid.map_or(String::new(), |pid| format!(" ({pid})"));
            writeln!(out, "  {} would have chosen: {}{pid}", choice.rule, choice.words)?;
        }
        for verdict in verdicts(kill, &self.before) {
            writeln!(out, "  prevented by: {}", verdict.words)?;
        }
        writeln!(out)
    }

    fn json(&self) -> Value {
        let mut all = json!(self.kill);
        all["time_seconds"] = json!(self.time_seconds);
        all["would_choose"] = json!(replay::choices(&self.kill));
        all["prevented_by"] = json!(verdicts(&self.kill, &self.before));
        all["recorded_usage_bytes"] = json!(self.before.last().map(|sample| sample.usage_bytes));
        all
    }
}

fn write_csv(out: &mut dyn Write, cases: &[Case]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record([
        "seconds_after_boot",
        "killer",
        "limit",
        "pid",
        "name",
        "anonymous_bytes",
        "used_bytes",
        "limit_bytes",
        "prevented_by",
    ])?;
    let text = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
    for case in cases {
        let kill = &case.kill;
        let words: Vec<String> = verdicts(kill, &case.before).into_iter().map(|verdict| verdict.words).collect();
        csv.write_record([
            kill.seconds_after_boot.map_or(String::new(), |seconds| seconds.to_string()),
            killer(kill).to_owned(),
            case.limit(),
            text(kill.victim.pid.map(u64::from)),
            kill.victim.name.clone(),
            text(kill.victim.anonymous_bytes),
            text(kill.memory.map(|memory| memory.used_bytes)),
            text(kill.memory.and_then(|memory| memory.limit_bytes)),
            words.join("; "),
        ])?;
    }
    csv.flush()
}
