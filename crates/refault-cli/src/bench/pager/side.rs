//! One run of a row on one side: start the program, let it work, look at its memory, end it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::kernel::Kernel;
use super::{ALLOWANCE, Measured, Plan, Row, memcached};
use crate::failure::Failure;

/// Runs that the kernel may kill before the row is given up.
const MOST_KILLS: u32 = 8;

/// Bytes that the row's program occupies when nothing limits it: what percentages are of.
pub fn program_bytes(row: Row, plan: &Plan) -> Result<u64, Failure> {
    if row.pattern().is_some() {
        return Ok(row.bytes(plan.quick));
    }
    let place = Place::new()?;
    let mut server = start(&mut server_command(Command::new("memcached"), row, plan, &place))?;
    let filled = memcached::wait(&place.socket(), &mut server)
        .and_then(|()| memcached::fill(&place.socket(), &memcached_plan(row, plan)));
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap_or_default();
    memcached::stop(server);
    filled?;
    let kilobytes = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or("0");
    let kilobytes: u64 = kilobytes.trim().trim_end_matches(" kB").parse().unwrap_or(0);
    Ok(kilobytes << 10)
}

/// A run under `refault run`.
pub fn ours(row: Row, bytes: u64, plan: &Plan) -> Result<Measured, Failure> {
    let place = Place::new()?;
    let me = me()?;
    let stats = place.path.join("stats");
    let mut command = Command::new(&me);
    command.args(["run", "--memory", &(bytes * row.percent() / 100).to_string(), "--stats"]).arg(&stats);
    command.args(["--stats-interval", "200"]).args(&plan.with).arg("--");
    let mut measured = drive(row, plan, &place, command, |measured| {
        // The next line is written after the counted time.
        let seen = last_line(&stats).map_or(0, |line| line.1);
        for _ in 0..100 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            if let Some((line, count)) = last_line(&stats)
                && count > seen
            {
                let field = |name: &str| line[name].as_f64().unwrap_or(0.0);
                measured.resident_bytes = field("resident_bytes");
                measured.compressed_bytes = field("pool_bytes");
                measured.metadata_bytes_per_page = field("metadata_bytes") / field("managed_pages").max(1.0);
                return;
            }
        }
    })?;
    if measured.resident_bytes == 0.0 {
        measured.resident_bytes = f64::NAN;
    }
    Ok(measured)
}

/// A run in a cgroup with zram, or, where everything fits, of the program alone.
pub fn theirs(row: Row, bytes: u64, plan: &Plan) -> Result<Measured, Failure> {
    let place = Place::new()?;
    if row == Row::Fits {
        let command = Command::new("env");
        let mut measured = drive(row, plan, &place, command, |_| {})?;
        (measured.resident_bytes, measured.metadata_bytes_per_page) = (bytes as f64, f64::NAN);
        return Ok(measured);
    }
    let mut kills = 0;
    loop {
        let kernel = Kernel::new(bytes * row.percent() / 100 + ALLOWANCE, bytes * 2)?;
        let outcome = drive(row, plan, &place, kernel.command(), |measured| {
            measured.resident_bytes = kernel.resident_bytes() as f64;
            measured.compressed_bytes = kernel.compressed_bytes() as f64;
        });
        match outcome {
            // The kernel's reclaim gives up now and then although swap is nearly empty, and kills. Such a run says nothing
            // about speed: it is repeated, and told.
            Err(_) if kernel.kills() > 0 && kills < MOST_KILLS => kills += 1,
            Err(failure) => return Err(failure),
            Ok(mut measured) => {
                measured.metadata_bytes_per_page = f64::NAN;
                measured.kills = f64::from(kills);
                return Ok(measured);
            }
        }
    }
}

/// Runs the row's program behind `command`; `look` is called when the counted time is over and the program still lives.
fn drive(
    row: Row,
    plan: &Plan,
    place: &Place,
    mut command: Command,
    look: impl FnOnce(&mut Measured),
) -> Result<Measured, Failure> {
    let Some((pattern, threads)) = row.pattern() else {
        command.arg("memcached");
        let mut server = start(&mut server_command(command, row, plan, place))?;
        let outcome = drive_memcached(row, plan, place, &mut server, look);
        memcached::stop(server);
        return outcome;
    };
    let pattern = clap::ValueEnum::to_possible_value(&pattern).expect("invariant: no pattern is hidden");
    command.arg(me()?).args(["bench", "pager-load", "--pattern", pattern.get_name()]);
    command.args(["--bytes", &row.bytes(plan.quick).to_string(), "--threads", &threads.to_string()]);
    command.args(["--warm-up", &plan.warm_up.to_string(), "--seconds", &plan.seconds.to_string()]);
    if row != Row::Fits {
        command.arg("--time-all");
    }
    let mut load = Ended(start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?);
    let output = load.0.stdout.take().expect("invariant: the output was asked for");
    let mut line = String::new();
    let _ = BufReader::new(output).read_line(&mut line);
    let Ok(result) = serde_json::from_str::<Value>(&line) else {
        let status = load.0.wait().map(|status| status.to_string()).unwrap_or_default();
        return Err(Failure::failed("the load ended without a result", row, status));
    };
    let field = |name: &str| result[name].as_f64().unwrap_or(0.0);
    let mut measured = Measured {
        operations_per_second: field("operations") / field("seconds"),
        p50_ns: field("p50_ns"),
        p99_ns: field("p99_ns"),
        max_ns: field("max_ns"),
        cpu_seconds: field("cpu_seconds"),
        ..Measured::default()
    };
    look(&mut measured);
    Ok(measured)
}

fn drive_memcached(
    row: Row,
    plan: &Plan,
    place: &Place,
    server: &mut Child,
    look: impl FnOnce(&mut Measured),
) -> Result<Measured, Failure> {
    let (socket, wanted) = (place.socket(), memcached_plan(row, plan));
    memcached::wait(&socket, server)?;
    memcached::fill(&socket, &wanted)?;
    let seen = memcached::read(&socket, &wanted, server.id())?;
    let mut measured = Measured {
        operations_per_second: seen.operations as f64 / wanted.seconds,
        p50_ns: seen.latencies.quantile(0.5) as f64,
        p99_ns: seen.latencies.quantile(0.99) as f64,
        max_ns: seen.latencies.maximum() as f64,
        cpu_seconds: seen.server_cpu,
        ..Measured::default()
    };
    look(&mut measured);
    Ok(measured)
}

fn memcached_plan(row: Row, plan: &Plan) -> memcached::Plan {
    memcached::Plan {
        values: row.bytes(plan.quick) / memcached::VALUE as u64,
        warm_up: plan.warm_up,
        seconds: plan.seconds,
    }
}

fn server_command(mut command: Command, row: Row, plan: &Plan, place: &Place) -> Command {
    command.args(memcached::arguments(&place.socket(), row.bytes(plan.quick)));
    command
}

fn start(command: &mut Command) -> Result<Child, Failure> {
    command.spawn().map_err(|error| {
        let program = command.get_program().to_string_lossy().into_owned();
        Failure::failed("cannot start", program, format!("{error}; the memcached row needs memcached installed"))
    })
}

fn me() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::failed("cannot find this program", "/proc/self/exe", error))
}

/// The last whole line of a statistics file, and how many there are.
fn last_line(path: &Path) -> Option<(Value, usize)> {
    let text = std::fs::read_to_string(path).ok()?;
    let whole = &text[..text.rfind('\n')?];
    Some((serde_json::from_str(whole.lines().last()?).ok()?, whole.lines().count()))
}

/// A process that does not outlive this value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory for a run's socket and statistics.
struct Place {
    path: PathBuf,
}

impl Place {
    fn new() -> Result<Place, Failure> {
        let path = std::env::temp_dir().join(format!("refault-bench-pager-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| Failure::write(path.display(), &error))?;
        Ok(Place { path })
    }

    fn socket(&self) -> PathBuf {
        self.path.join("socket")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
