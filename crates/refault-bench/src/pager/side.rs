//! One run of a row on one side: start the program, let it work, look at its memory, end it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use refault_pager::HistogramCounts;
use serde_json::Value;

use super::backend::{Backend, refault};
use super::deadline::Deadline;
use super::kernel::Kernel;
use super::load::READY;
use super::programs::Prepared;
use super::rows::{Kind, Row};
use super::{ALLOWANCE, Measured, Other, Plan};
use crate::live::tool;
use crate::memcached::{self, Server};
use refault_console::Failure;

/// Runs that the kernel may kill before the row is given up.
const MAX_KILLS: u32 = 10;
/// A load under the kernel backend that takes longer than usual by this factor is ended.
const MAX_SLOWER: f64 = 10.0;
/// Seconds that a load may take until it begins.
const SETTING_UP: f64 = 10.0;

/// What a row runs, ready to be run on either side.
pub struct Subject {
    place: Place,
    /// Bytes that the program occupies when nothing limits it: what percentages are of.
    bytes: u64,
    program: Option<Prepared>,
}

impl Subject {
    /// Makes it ready. `Err(Ok(reason))`: what the row needs is not installed.
    pub fn new(row: Row, plan: &Plan) -> Result<Subject, Result<String, Failure>> {
        let place = Place::new().map_err(Err)?;
        let mut subject = Subject { place, bytes: row.bytes(plan.quick), program: None };
        match row.kind() {
            Kind::Memcached => subject.bytes = memcached_bytes(row, plan, &subject.place).map_err(Err)?,
            Kind::Program => {
                subject.program = Some(super::programs::prepare(row, plan, &subject.place.path)?);
                subject.bytes = 0;
            }
            Kind::Load(..) | Kind::Idle => {}
        }
        Ok(subject)
    }

    /// Bytes that the kernel's side may have resident.
    pub fn resident(&self, row: Row) -> u64 {
        self.program.as_ref().map_or(self.bytes * row.percent() / 100, |program| program.resident(row))
    }

    /// Bytes that do not fit there.
    pub fn rest(&self, row: Row) -> u64 {
        self.bytes.saturating_sub(self.resident(row))
    }

    /// A run under `refault run` with `total` bytes of memory in all.
    pub fn ours(&self, row: Row, backend: Backend, total: u64, plan: &Plan) -> Result<Measured, Failure> {
        if matches!(row.kind(), Kind::Idle) {
            return super::idle::measure(Some(backend), plan);
        }
        if let Some(program) = &self.program {
            return program.ours(row, backend, total, plan, &self.place.path);
        }
        let stats = self.place.path.join("stats");
        let mut command = refault(&plan.with, backend, total)?;
        command.arg("--stats").arg(&stats).args(["--stats-interval", "200", "--"]);
        drive(row, plan, &self.place, command, &mut Ours { stats, lines_before: 0, backend })
    }

    /// A run in a cgroup with zram, or, where everything fits, of the program alone.
    pub fn theirs(&self, row: Row, plan: &Plan) -> Result<Other, Failure> {
        if matches!(row.kind(), Kind::Idle) {
            return super::idle::measure(None, plan).map(Other::Ran);
        }
        if let Some(program) = &self.program {
            return program.theirs(row);
        }
        if row == Row::Fits {
            let measured = drive(row, plan, &self.place, Command::new("env"), &mut NoSampler)?;
            let resident_bytes = self.bytes as f64;
            return Ok(Other::Ran(Measured { resident_bytes, total_bytes: resident_bytes, ..measured }));
        }
        let (mut kills, mut most) = (0, 0);
        loop {
            let kernel = Kernel::new(self.resident(row) + ALLOWANCE, self.bytes * 2)?;
            let mut sampler = Cgroup { kernel: &kernel, faults_before: 0.0 };
            let outcome = drive(row, plan, &self.place, kernel.command(), &mut sampler);
            match outcome {
                // The kernel's reclaim gives up now and then although swap is nearly empty, and kills. Such a run says
                // nothing about speed: it is repeated, and told.
                Err(_) if kernel.kills() > 0 => {
                    kills += 1;
                    most = most.max(kernel.peak_compressed());
                    if kills == MAX_KILLS {
                        return Ok(Other::Killed { kills, compressed: most });
                    }
                }
                Err(failure) => return Err(failure),
                Ok(mut measured) => {
                    measured.kills = f64::from(kills);
                    return Ok(Other::Ran(measured));
                }
            }
        }
    }
}

/// Bytes that memcached occupies when nothing limits it.
fn memcached_bytes(row: Row, plan: &Plan, place: &Place) -> Result<u64, Failure> {
    let socket = place.socket();
    let server = Server::start(&mut server_command(Command::new("memcached"), row, plan, place), &socket)?;
    memcached::fill(&socket, &memcached_plan(row, plan))?;
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap_or_default();
    server.end();
    let kilobytes = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or("0");
    let kilobytes: u64 = kilobytes.trim().trim_end_matches(" kB").parse().unwrap_or(0);
    Ok(kilobytes << 10)
}

/// An observer of a running program.
trait Sampler {
    /// The counted time begins.
    fn begins(&mut self);
    /// It is over after `seconds` seconds, and the program still lives. Returns the faults on stored pages in it; not a
    /// number if they are not known.
    fn ends(&mut self, seconds: f64, measured: &mut Measured) -> f64;
    /// Whether the program runs under `refault run`.
    fn is_ours(&self) -> bool {
        false
    }
    /// The longest that the run may take.
    fn time(&self, _row: Row, _plan: &Plan) -> Option<Duration> {
        None
    }
}

/// Looks at the statistics of `refault run`.
struct Ours {
    stats: PathBuf,
    lines_before: usize,
    backend: Backend,
}

impl Sampler for Ours {
    fn is_ours(&self) -> bool {
        true
    }

    fn time(&self, row: Row, plan: &Plan) -> Option<Duration> {
        let usual = plan.warm_up(row) + plan.seconds(row);
        (self.backend == Backend::Kernel).then(|| Duration::from_secs_f64(MAX_SLOWER * (usual + SETTING_UP)))
    }

    fn begins(&mut self) {
        self.lines_before = lines(&self.stats).len();
    }

    fn ends(&mut self, seconds: f64, measured: &mut Measured) -> f64 {
        let within = lines(&self.stats);
        // The next line is written after the counted time.
        let mut after = None;
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(20));
            let now = lines(&self.stats);
            if now.len() > within.len() {
                after = now.into_iter().nth(within.len());
                break;
            }
        }
        let field = |line: &Value, name: &str| line[name].as_f64().unwrap_or(f64::NAN);
        let none = Value::Null;
        let after = after.as_ref().unwrap_or(&none);
        measured.resident_bytes = field(after, "resident_bytes");
        measured.compressed_bytes = field(after, "compressed_bytes");
        measured.metadata_bytes_per_page = field(after, "metadata_bytes") / field(after, "managed_pages").max(1.0);
        measured.total_bytes = measured.resident_bytes + measured.compressed_bytes + field(after, "metadata_bytes");
        // The rate in the lines that lie within the counted time.
        match within.get(self.lines_before..) {
            Some([first, .., last]) => {
                let passed = field(last, "seconds") - field(first, "seconds");
                (field(last, "pgmajfault") - field(first, "pgmajfault")) / passed * seconds
            }
            _ => f64::NAN,
        }
    }
}

/// Looks at a cgroup.
struct Cgroup<'a> {
    kernel: &'a Kernel,
    faults_before: f64,
}

impl Sampler for Cgroup<'_> {
    fn begins(&mut self) {
        self.faults_before = self.kernel.major_faults();
    }

    fn ends(&mut self, _seconds: f64, measured: &mut Measured) -> f64 {
        measured.resident_bytes = self.kernel.anonymous_bytes() as f64;
        measured.compressed_bytes = self.kernel.compressed_bytes() as f64;
        measured.total_bytes = measured.resident_bytes + measured.compressed_bytes;
        self.kernel.major_faults() - self.faults_before
    }
}

/// The program alone.
struct NoSampler;

impl Sampler for NoSampler {
    fn begins(&mut self) {}

    fn ends(&mut self, _seconds: f64, _measured: &mut Measured) -> f64 {
        0.0
    }
}

/// Runs the row's program behind `command`.
fn drive(
    row: Row,
    plan: &Plan,
    place: &Place,
    mut command: Command,
    sampler: &mut dyn Sampler,
) -> Result<Measured, Failure> {
    let Kind::Load(pattern, threads) = row.kind() else {
        command.arg("memcached");
        return drive_memcached(row, plan, place, command, sampler);
    };
    let pattern = clap::ValueEnum::to_possible_value(&pattern).expect("invariant: no pattern is hidden");
    command.arg(tool::me()?).args(["pager-load", "--pattern", pattern.get_name()]);
    command.args(["--bytes", &row.bytes(plan.quick).to_string(), "--threads", &threads.to_string()]);
    command.args(["--warm-up", &plan.warm_up(row).to_string(), "--seconds", &plan.seconds(row).to_string()]);
    if row != Row::Fits {
        command.arg("--time-all");
    }
    let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut load = Ended(started.map_err(|error| Failure::failed("cannot start", row, error))?);
    let deadline = deadline(&load.0, row, plan, sampler)?;
    let output = load.0.stdout.take().expect("invariant: the output was asked for");
    let mut output = BufReader::new(output).lines().map_while(Result::ok);
    if output.next().as_deref() == Some(READY) {
        sampler.begins();
    }
    let line = output.next().unwrap_or_default();
    let Ok(result) = serde_json::from_str::<Value>(&line) else {
        let status = load.0.wait().map(|status| status.to_string()).unwrap_or_default();
        if let Some(failure) = passed(deadline.as_ref(), row, plan, sampler) {
            return Err(failure);
        }
        return Err(Failure::failed("the load ended without a result", row, status));
    };
    let field = |name: &str| result[name].as_f64().unwrap_or(0.0);
    let pairs = result["latencies_ns"].as_array().into_iter().flatten();
    let latencies: HistogramCounts = pairs.filter_map(|pair| Some((pair[0].as_u64()?, pair[1].as_u64()?))).collect();
    let mut measured = Measured {
        operations_per_second: field("operations") / field("seconds"),
        cpu_seconds: field("cpu_seconds"),
        ..Measured::unknown()
    };
    let faults = sampler.ends(plan.seconds(row), &mut measured);
    measured.set_latencies(&latencies, field("max_ns"), faults);
    Ok(measured)
}

/// Ends a run that takes too long.
fn deadline(child: &Child, row: Row, plan: &Plan, sampler: &dyn Sampler) -> Result<Option<Deadline>, Failure> {
    let time = sampler.time(row, plan);
    let deadline = time.map(|time| Deadline::of(child, time)).transpose();
    deadline.map_err(|error| Failure::failed("cannot watch", row, error))
}

/// What is said if it has.
fn passed(deadline: Option<&Deadline>, row: Row, plan: &Plan, sampler: &dyn Sampler) -> Option<Failure> {
    let seconds = sampler.time(row, plan)?.as_secs();
    let failure = || Failure::failed("a run was ended", row, format!("it had no result after {seconds} s"));
    deadline?.has_passed().then(failure)
}

impl Measured {
    /// Takes the latencies of all operations, of which each fault on a stored page made one long.
    fn set_latencies(&mut self, latencies: &HistogramCounts, max_ns: f64, faults: f64) {
        let quantile = |quantile: f64| (latencies.quantile(quantile) as f64).min(max_ns);
        (self.p50_ns, self.p99_ns, self.max_ns) = (quantile(0.5), quantile(0.99), max_ns);
        // No more than a hundredth of the faults can be among the slowest operations that are as many.
        let slowest = 0.01 * faults / latencies.count().max(1) as f64;
        self.fault_p99_ns = if faults > 0.0 { quantile(1.0 - slowest.min(1.0)) } else { f64::NAN };
    }
}

fn drive_memcached(
    row: Row,
    plan: &Plan,
    place: &Place,
    command: Command,
    sampler: &mut dyn Sampler,
) -> Result<Measured, Failure> {
    let (socket, wanted) = (place.socket(), memcached_plan(row, plan));
    let server = Server::start(&mut server_command(command, row, plan, place), &socket)?;
    let deadline = deadline(server.child(), row, plan, sampler)?;
    let seen = memcached::fill(&socket, &wanted)
        .and_then(|()| memcached::read(&socket, &wanted, &server, || sampler.begins()))
        .map_err(|failure| passed(deadline.as_ref(), row, plan, sampler).unwrap_or(failure))?;
    let mut measured = Measured {
        operations_per_second: seen.operations as f64 / wanted.seconds,
        cpu_seconds: seen.server_cpu,
        ..Measured::unknown()
    };
    if sampler.is_ours() {
        // What was started is `refault run`, and the server is its child.
        measured.cpu_seconds = f64::NAN;
    }
    let faults = sampler.ends(plan.seconds(row), &mut measured);
    measured.set_latencies(&seen.latencies.counts(), seen.latencies.maximum() as f64, faults);
    server.end();
    Ok(measured)
}

fn memcached_plan(row: Row, plan: &Plan) -> memcached::Plan {
    memcached::Plan {
        values: row.bytes(plan.quick) / memcached::VALUE as u64,
        deviation: 1.0 / 6.0,
        warm_up: plan.warm_up(row),
        seconds: plan.seconds(row),
        clients: memcached::CLIENTS,
        pace: None,
    }
}

fn server_command(mut command: Command, row: Row, plan: &Plan, place: &Place) -> Command {
    command.args(memcached::arguments(&place.socket(), row.bytes(plan.quick)));
    command
}

/// The whole lines of a statistics file.
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    whole.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// A process that does not outlive this value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where the directory for a run's socket and statistics is.
pub fn place() -> PathBuf {
    std::env::temp_dir().join(format!("refault-bench-pager-{}", std::process::id()))
}

/// A directory for a run's socket and statistics.
struct Place {
    path: PathBuf,
}

impl Place {
    fn new() -> Result<Place, Failure> {
        let path = place();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_operations_hold_the_slowest_faults() {
        // 10,000 operations, 1000 of them faults of 10 to 11 µs; 30 operations are slow for some other reason.
        let mut pairs: Vec<(u64, u64)> = (0..1000).map(|fault| (10_000 + fault, 1)).collect();
        pairs.extend([(100, 8970), (50_000, 30)]);
        let latencies: HistogramCounts = pairs.into_iter().collect();
        let mut measured = Measured::unknown();
        measured.set_latencies(&latencies, 50_000.0, 1000.0);
        // The ten slowest are not faults: which cannot be told from outside, so they bound the faults' percentile.
        assert_eq!(measured.fault_p99_ns, 50_000.0);
        measured.set_latencies(&latencies, 50_000.0, 5000.0);
        assert!((10_990.0..12_500.0).contains(&measured.fault_p99_ns), "{}", measured.fault_p99_ns);
        measured.set_latencies(&latencies, 50_000.0, 0.0);
        assert!(measured.fault_p99_ns.is_nan() && measured.p50_ns < 200.0);
    }
}
