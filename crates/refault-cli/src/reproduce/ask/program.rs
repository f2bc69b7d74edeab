//! `refault ask … -- PROGRAM`: what real kernels do with a program in little memory. There is no model beside it, as a
//! program is no sequence of accesses.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use refault_ask::emulator::program::{Asked, Disk, Outcome, ask};
use refault_ask::emulator::tree::find;
use refault_ask::job::Lists;
use refault_ask::job::program::{Program, counters};
use refault_ask::kernel::{Kernel, modules, version_of};
use refault_console::text::{align_numbers, grouped, plain_table};
use refault_console::{Failure, Format, Progress, say, with_output};
use refault_lab::size::{PAGE_BYTES, Size};

use super::args::AskArgs;
use crate::source::kernels::command_line;

/// Room for what is swapped, as many times the limit and at least this.
const SWAP: u64 = 8;
const MIN_SWAP: u64 = 512 << 20;
/// Less than this no program starts in.
const MIN_MEMORY: u64 = 1 << 20;
/// What a program takes from here; the rest of its environment is the guest's.
const INHERITED: [&str; 4] = ["PATH", "LD_LIBRARY_PATH", "LANG", "PYTHONPATH"];
/// Counters that a table shows even if they are 0 everywhere, and others that it shows if they are not.
const ALWAYS_SHOWN: [&str; 5] = ["run_us", "cpu_us", "loads", "pgscan", "pgsteal"];
const SHOWN: [&str; 12] = [
    "file_reads",
    "pswpin",
    "pswpout",
    "file_writes",
    "pgactivate",
    "pgdeactivate",
    "pgmajfault",
    "workingset_refault_file",
    "workingset_refault_anon",
    "pressure_full_us",
    "kswapd_us",
    "oom_kill",
];
/// Of a program's last lines, how many a table shows.
const LINES: usize = 5;

/// A program's run on one kind of lists of a kernel.
struct Row {
    kernel: String,
    lists: Lists,
    by: &'static str,
    outcome: Outcome,
}

/// Runs the command about a program.
pub(super) fn run(args: &AskArgs) -> Result<(), Failure> {
    let mut outputs = args.result.outputs();
    let (format, out) = args.result.claim(&mut outputs)?;
    let (program, with) = (program(args)?, with(args)?);
    let asked = Asked { program: &program, with: &with, patience: Duration::from_secs(60 * args.minutes) };
    let disk = Disk::new(&asked)?;
    let cache = refault_ask::cache_directory();
    let lists = args.lists.all();
    let mut rows = Vec::new();
    for name in &args.kernels {
        let mut kernel = Kernel::find(name, &cache, args.again, &|line| say(line))?;
        if !kernel.is_new && !kernel.modules.contains_key(modules::FOR_PROGRAMS) {
            // It was kept when guests had no use for disks that can be written.
            kernel = Kernel::find(name, &cache, true, &|line| say(line))?;
        }
        let release = kernel.release.clone();
        say(format_args!(
            "{release} runs {} ({} MiB with what it needs)",
            args.program[0],
            disk.bytes.div_ceil(1 << 20)
        ));
        let (progress, begun) = (Progress::part("asking"), Instant::now());
        let (accelerator, outcomes) = ask(&kernel, &asked, &disk, &lists, &|ended, seconds| {
            progress.set(ended as f64 / lists.len() as f64);
            progress.says(format!("asking; {} lists, {seconds} s of the guest's time", lists[ended].name()));
        })?;
        drop(progress);
        let by = accelerator.name();
        say(format_args!("{release} answered in {:.0} s ({by})", begun.elapsed().as_secs_f64()));
        rows.extend(outcomes.into_iter().zip(&lists).map(|(outcome, lists)| Row {
            kernel: release.clone(),
            lists: *lists,
            by,
            outcome,
        }));
    }
    with_output(out, |out| match format {
        Format::Table => write_table(out, args, &program, &rows),
        Format::Csv => write_csv(out, args, &program, &rows),
        Format::Json => write_json(out, args, &program, &rows),
    })?;
    rows.iter().find_map(|row| failed(row, &program)).map_or(Ok(()), Err)
}

fn program(args: &AskArgs) -> Result<Program, Failure> {
    let limit = match args.memory {
        Some(Size::Bytes(bytes)) => bytes,
        Some(Size::Pages(pages)) => pages * PAGE_BYTES,
        _ => {
            let remedy = "say how much memory its group may have: --memory 24M";
            return Err(Failure::usage("a program has no pages to take a share of", &args.program[0], remedy));
        }
    };
    if limit < MIN_MEMORY {
        let remedy = "give it at least 1M";
        return Err(Failure::usage("too little for any program to start in", format_args!("--memory {limit}"), remedy));
    }
    let name = &args.program[0];
    let Some(path) = find(OsStr::new(name)) else {
        return Err(Failure::usage("program not found", name, "name one that is here, or its path"));
    };
    let path = text(&path)?;
    let directory =
        std::env::current_dir().map_err(|error| Failure::failed(error, ".", "go to a directory that is there"))?;
    let mut environment = vec!["HOME=/tmp".to_owned(), "USER=root".to_owned()];
    environment.extend(INHERITED.iter().filter_map(|name| Some(format!("{name}={}", std::env::var(name).ok()?))));
    Ok(Program {
        limit,
        swap: (SWAP * limit).max(MIN_SWAP),
        swappiness: args.swappiness,
        directory: text(&directory)?,
        arguments: std::iter::once(path).chain(args.program[1..].iter().cloned()).collect(),
        environment,
    })
}

fn text(path: &Path) -> Result<String, Failure> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Failure::usage("not a name in UTF-8", path.display(), "give the file or directory another name"))
}

/// What goes into the guest beside the program: what is named, and files that its arguments name.
fn with(args: &AskArgs) -> Result<Vec<PathBuf>, Failure> {
    let mut paths = Vec::new();
    for name in &args.with {
        let found = find(name.as_os_str()).or_else(|| std::path::absolute(name).ok().filter(|path| path.exists()));
        let remedy = "name a file or directory that is here, or a program";
        paths.push(found.ok_or_else(|| Failure::usage("--with: not found", name.display(), remedy))?);
    }
    let named = args.program[1..].iter().map(Path::new).filter(|path| path.is_file());
    paths.extend(named.filter_map(|path| std::path::absolute(path).ok()));
    Ok(paths)
}

/// Why a program's run is no answer to count on.
fn failed(row: &Row, program: &Program) -> Option<Failure> {
    let version = version_of(&row.kernel);
    let place = format!("{} on kernel {version}, {} lists", program.arguments[0], row.lists.name());
    let words: Vec<&str> = row.outcome.printed.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
    let last = words.last().map_or("it wrote nothing".to_owned(), |line| format!("its last words: {line}"));
    let killed = row.outcome.counters.get("oom_kill").copied().unwrap_or(0);
    let what = match row.outcome.ended {
        _ if killed > 0 => format!("the guest killed {killed} of its processes, as there was no memory left; {last}"),
        Ok(0) => return None,
        Ok(status) => format!("it ended with status {status}; {last}"),
        Err(signal) => format!("it died of signal {signal}; {last}"),
    };
    let all = words.join("\n");
    let says = |parts: &[&str]| parts.iter().any(|part| all.contains(part));
    let remedy = if killed > 0 {
        "give it more by --memory"
    } else if says(&["Network is unreachable", "name resolution", "resolve host", "Name or service not known"]) {
        "the guest has no network but its own machine (127.0.0.1)"
    } else if says(&["No such file", "not found", "cannot open shared object", "No module named"]) {
        "add the file, directory or program that it misses by --with"
    } else if says(&["No space left"]) {
        "the guest's disk has 2 GiB of room: have it write less"
    } else {
        "try it here first; files that it opens are added by --with"
    };
    Some(Failure::failed(what, place, remedy))
}

/// A column's heading.
fn heading(row: &Row, rows: &[Row]) -> String {
    let version = version_of(&row.kernel);
    // Two kernels of one version are told apart by the whole of their names.
    let is_alone = rows.iter().all(|other| other.kernel == row.kernel || version_of(&other.kernel) != version);
    format!("{} {}", if is_alone { version } else { &row.kernel }, row.lists.name())
}

fn ended(outcome: &Outcome) -> String {
    match outcome.ended {
        Ok(status) => format!("status {status}"),
        Err(signal) => format!("signal {signal}"),
    }
}

fn write_table(out: &mut dyn Write, args: &AskArgs, program: &Program, rows: &[Row]) -> std::io::Result<()> {
    let mut table = plain_table();
    table.set_header(std::iter::once("counter".to_owned()).chain(rows.iter().map(|row| heading(row, rows))));
    let cells = |name: &str, cell: &dyn Fn(&Row) -> String| -> Vec<String> {
        std::iter::once(name.to_owned()).chain(rows.iter().map(cell)).collect()
    };
    for name in counters() {
        let is_zero = rows.iter().all(|row| row.outcome.counters.get(name).is_none_or(|value| *value == 0));
        let is_shown = args.all || ALWAYS_SHOWN.contains(&name) || SHOWN.contains(&name) && !is_zero;
        if is_shown {
            table.add_row(cells(name, &|row| {
                row.outcome.counters.get(name).map_or("–".to_owned(), |value| grouped(*value))
            }));
        }
    }
    table.add_row(cells("ended with", &|row| ended(&row.outcome)));
    align_numbers(&mut table);
    writeln!(out, "{}", table.trim_fmt())?;
    let is_alike = rows.iter().all(|row| row.outcome.printed == rows[0].outcome.printed);
    for row in rows.iter().take(if is_alike { 1 } else { rows.len() }) {
        let lines = &row.outcome.printed;
        if !lines.is_empty() {
            let of = if is_alike { "everywhere".to_owned() } else { heading(row, rows) };
            writeln!(out, "\nWritten last, {of}:")?;
        }
        for line in &lines[lines.len().saturating_sub(LINES)..] {
            writeln!(out, "  {line}")?;
        }
    }
    let line = command_line(args.program.iter().cloned());
    let line = line.strip_prefix("refault ").unwrap_or(&line);
    writeln!(out, "\n{line}: {} bytes for its group, swap compressed in memory.", grouped(program.limit))?;
    writeln!(
        out,
        "No model beside it, as a program is no sequence of accesses: 'refault record --out app.rft -- PROGRAM' makes one,\n\
         and 'refault ask --kernel {} app.rft' asks about that.",
        version_of(&rows[0].kernel)
    )
}

fn write_csv(out: &mut dyn Write, args: &AskArgs, program: &Program, rows: &[Row]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["kernel", "lists", "program", "memory_bytes", "swappiness", "by", "ended", "counter", "value"])?;
    for row in rows {
        for name in counters() {
            csv.write_record([
                row.kernel.clone(),
                row.lists.name().to_owned(),
                args.program.join(" "),
                program.limit.to_string(),
                program.swappiness.to_string(),
                row.by.to_owned(),
                ended(&row.outcome),
                name.to_owned(),
                row.outcome.counters.get(name).map_or(String::new(), u64::to_string),
            ])?;
        }
    }
    csv.flush()
}

fn write_json(out: &mut dyn Write, args: &AskArgs, program: &Program, rows: &[Row]) -> std::io::Result<()> {
    let row = |row: &Row| {
        serde_json::json!({
            "kernel": row.kernel,
            "lists": row.lists.name(),
            "by": row.by,
            "exit_status": row.outcome.ended.ok(),
            "signal": row.outcome.ended.err(),
            "counters": row.outcome.counters,
            "written_last": row.outcome.printed,
        })
    };
    let rows: Vec<serde_json::Value> = rows.iter().map(row).collect();
    let answer = serde_json::json!({
        "program": args.program,
        "memory_bytes": program.limit,
        "swappiness": program.swappiness,
        "answers": rows,
    });
    serde_json::to_writer(&mut *out, &answer)?;
    writeln!(out)
}
