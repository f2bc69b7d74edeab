//! `refault wss`: the working set of a running process, by age.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use refault_console::text::{align_numbers, plain_table};
use refault_console::{Failure, Format, ResultArgs, say, with_output};
use refault_lab::size::bytes_text;
use refault_pool::reclaim::session::is_gone;
use refault_pool::wss::{self, Window};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};

/// How often an interrupt is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault wss --pid 4711                      after 1 s, 10 s, 1 min and 10 min; Ctrl-C ends it with what is known
  refault wss --pid 4711 --ages 1s,30s --format json
  refault wss --pid $(pidof redis-server) --ages 10s

The working set of a window is what was accessed in it; what was not has been idle for at least that long. The kernel's
accessed bits are cleared once, at the start, and read at the end of each window, so its own reclaim sees the program's
pages as idle until they are accessed again. A huge page counts whole; a file's page counts if any process used it.")]
/// Measure the working set of a running process by age
pub struct WssArgs {
    /// The process
    #[arg(long, value_name = "PID")]
    pid: u32,
    /// Lengths of the windows; all begin together, so the longest is how long it takes
    #[arg(long, value_name = "TIME,TIME…", value_delimiter = ',', default_value = "1s,10s,1m,10m", value_parser = time)]
    ages: Vec<Duration>,
    #[command(flatten)]
    result: ResultArgs,
}

/// A time such as `10s`, above 0.
pub fn time(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err(format!("'{text}' is not a time: write 1s, 500ms or 10m")),
    }
}

/// True once a signal asks this process to end; it does not end by itself any more.
pub fn interrupts() -> Arc<AtomicBool> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Where none can be registered, the signal ends this process, as ever.
        let _ = signal_hook::flag::register(signal, Arc::clone(&asked));
    }
    asked
}

/// Sleeps so long; false: was interrupted.
pub fn sleep(time: Duration, asked: &AtomicBool) -> bool {
    let until = Instant::now() + time;
    while !asked.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
    false
}

/// Why another process could not be looked at.
pub fn not_seen(pid: u32, error: &std::io::Error) -> Failure {
    if is_gone(error) {
        return Failure::usage("no such process", pid, "name one that runs");
    }
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            Failure::failed("may not look at process", pid, format!("{error}; be its user, or root"))
        }
        // What is left of a process that has ended.
        _ => Failure::usage("cannot look at process", pid, format!("{error}; name one that runs")),
    }
}

/// Runs the command.
pub fn run(args: &WssArgs) -> Result<(), Failure> {
    let mut outputs = args.result.outputs();
    let (format, out) = args.result.claim(&mut outputs)?;
    let mut ages = args.ages.clone();
    ages.sort_unstable();
    ages.dedup();
    if let Err(error) = std::fs::metadata(format!("/proc/{}", args.pid)) {
        return Err(not_seen(args.pid, &error));
    }
    say(format_args!("accesses: {}", wss::SOURCE));
    let asked = interrupts();
    let mut windows = Vec::new();
    let measured = wss::measure(args.pid, &ages, |left| sleep(left, &asked), |window| windows.push(window));
    match measured {
        Err(error) if windows.is_empty() => return Err(not_seen(args.pid, &error)),
        Err(_) => say(format_args!("process {} has ended: what follows is known of it", args.pid)),
        Ok(()) if windows.len() < ages.len() => say("interrupted: longer windows are left out"),
        Ok(()) => {}
    }
    if windows.is_empty() {
        return Err(Failure::Exit(1));
    }
    with_output(out, |out| match format {
        Format::Table => write_table(out, &windows),
        Format::Csv => write_csv(out, &windows),
        Format::Json => write_json(out, args.pid, &windows),
    })
}

/// A length as people write it.
fn length_text(length: Duration) -> String {
    // The look itself takes some milliseconds.
    humantime::format_duration(Duration::from_millis((length.as_millis() as u64 + 50) / 100 * 100)).to_string()
}

fn write_table(out: &mut dyn Write, windows: &[Window]) -> std::io::Result<()> {
    let mut table = plain_table();
    table.set_header(["age", "working set", "idle longer", "of resident", ""]);
    for window in windows {
        let share = window.idle_bytes() as f64 / window.resident_bytes.max(1) as f64;
        table.add_row([
            length_text(window.length),
            bytes_text(window.accessed_bytes),
            bytes_text(window.idle_bytes()),
            format!("{:.0} %", share * 100.0),
            "▇".repeat((share * 30.0).round() as usize),
        ]);
    }
    align_numbers(&mut table);
    if let Some(bars) = table.column_mut(4) {
        bars.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    let last = windows[windows.len() - 1];
    writeln!(
        out,
        "\nresident {}, of it anonymous {}; in swap {}",
        bytes_text(last.resident_bytes),
        bytes_text(last.anonymous_bytes),
        bytes_text(last.swap_bytes)
    )
}

fn write_csv(out: &mut dyn Write, windows: &[Window]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record([
        "age_seconds",
        "working_set_bytes",
        "idle_bytes",
        "resident_bytes",
        "anonymous_bytes",
        "swap_bytes",
    ])?;
    for window in windows {
        csv.write_record([
            format!("{:.3}", window.length.as_secs_f64()),
            window.accessed_bytes.to_string(),
            window.idle_bytes().to_string(),
            window.resident_bytes.to_string(),
            window.anonymous_bytes.to_string(),
            window.swap_bytes.to_string(),
        ])?;
    }
    csv.flush()
}

fn write_json(out: &mut dyn Write, pid: u32, windows: &[Window]) -> std::io::Result<()> {
    let ages: Vec<_> = windows
        .iter()
        .map(|window| {
            json!({
                "age_seconds": (window.length.as_secs_f64() * 1000.0).round() / 1000.0,
                "working_set_bytes": window.accessed_bytes,
                "idle_bytes": window.idle_bytes(),
                "resident_bytes": window.resident_bytes,
                "anonymous_bytes": window.anonymous_bytes,
                "swap_bytes": window.swap_bytes,
            })
        })
        .collect();
    serde_json::to_writer(&mut *out, &json!({ "pid": pid, "source": wss::SOURCE, "ages": ages }))?;
    writeln!(out)
}
