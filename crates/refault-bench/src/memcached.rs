//! memcached as a load: a real server behind a Unix socket, filled with values once, read by threads here.
//!
//! Keys are drawn from a normal distribution around the middle of the key space, as memcached's usual load generators
//! do. Each answer's length and first bytes are compared with what was stored, and every sixteenth answer as a whole.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use refault_pager::Latencies;

use super::random::Random;
use refault_console::Failure;

/// Bytes of a value.
pub const VALUE: usize = 2000;
/// Threads that ask, as a rule.
pub const CLIENTS: u64 = 2;

/// What is asked of the server.
pub struct Plan {
    /// Values to store.
    pub values: u64,
    /// Standard deviation of the keys, as a share of all.
    pub deviation: f64,
    /// Seconds before counting starts.
    pub warm_up: f64,
    /// Seconds that are counted.
    pub seconds: f64,
    /// Threads that ask.
    pub clients: u64,
    /// Questions per second of each, if not as many as are answered.
    pub pace: Option<f64>,
}

/// What the clients saw.
pub struct Seen {
    /// Answers in the counted time.
    pub operations: u64,
    /// How long each took.
    pub latencies: Latencies,
    /// Processor seconds of the server in the counted time.
    pub server_cpu: f64,
}

/// Arguments of the server.
pub fn arguments(socket: &Path, bytes: u64) -> Vec<String> {
    let megabytes = (bytes >> 20) * 2 + 64;
    // One size of slabs, made for these values, so that a page holds little else.
    let own = format!("-u root -U 0 -p 0 -t 2 -c 64 -n 2000 -f 1.05 -o hashpower=19 -m {megabytes} -s");
    own.split(' ').map(str::to_owned).chain([socket.display().to_string()]).collect()
}

/// A server, ended when it is dropped.
pub struct Server(Child);

impl Server {
    /// Starts `command`, which names memcached and its [`arguments`], and waits until it answers. Its output is thrown
    /// away.
    ///
    /// # Errors
    /// It cannot be started, or ends or stays silent for five seconds.
    pub fn start(command: &mut Command, socket: &Path) -> Result<Server, Failure> {
        let remedy = |error| format!("{error}; memcached must be installed");
        let started = command.stdout(Stdio::null()).spawn();
        let mut server = Server(started.map_err(|error| Failure::failed("cannot start", "memcached", remedy(error)))?);
        let failed = |why: String| Failure::failed("memcached does not answer", socket.display(), why);
        for _ in 0..500 {
            if UnixStream::connect(socket).is_ok() {
                return Ok(server);
            }
            if let Ok(Some(status)) = server.0.try_wait() {
                return Err(failed(format!("it ended with {status}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(failed("five seconds have passed".to_owned()))
    }

    /// Its process.
    pub fn child(&self) -> &Child {
        &self.0
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Asks it to end and waits, so that it writes its last statistics.
    pub fn end(mut self) {
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), rustix::process::Signal::TERM);
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Stores all values.
pub fn fill(socket: &Path, plan: &Plan) -> Result<(), Failure> {
    let mut stream = connect(socket)?;
    let mut batch = Vec::with_capacity(1 << 20);
    for key in 0..plan.values {
        batch.extend_from_slice(format!("set key{key:09} 0 0 {VALUE} noreply\r\n").as_bytes());
        append_value(key, &mut batch);
        batch.extend_from_slice(b"\r\n");
        if batch.len() > 1 << 19 {
            stream.write_all(&batch).map_err(|error| broken(socket, &error))?;
            batch.clear();
        }
    }
    batch.extend_from_slice(b"version\r\n");
    stream.write_all(&batch).map_err(|error| broken(socket, &error))?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(|error| broken(socket, &error))?;
    Ok(())
}

/// Reads from the plan's threads and counts; `begins` is called when counting starts.
pub fn read(socket: &Path, plan: &Plan, server: &Server, begins: impl FnOnce()) -> Result<Seen, Failure> {
    let begin = Instant::now();
    let warm = begin + Duration::from_secs_f64(plan.warm_up);
    let end = warm + Duration::from_secs_f64(plan.seconds);
    let mut cpu_before = 0.0;
    let results: Vec<Result<(u64, Latencies), Failure>> = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..plan.clients).map(|seed| scope.spawn(move || client(socket, plan, seed, warm, end))).collect();
        std::thread::sleep(warm.saturating_duration_since(Instant::now()));
        cpu_before = cpu_seconds(server.id());
        begins();
        clients.into_iter().map(|client| client.join().expect("invariant: a client reports its errors")).collect()
    });
    let server_cpu = cpu_seconds(server.id()) - cpu_before;
    let mut seen = Seen { operations: 0, latencies: Latencies::default(), server_cpu };
    for result in results {
        let (operations, latencies) = result?;
        seen.operations += operations;
        seen.latencies.add(&latencies);
    }
    Ok(seen)
}

fn client(socket: &Path, plan: &Plan, seed: u64, warm: Instant, end: Instant) -> Result<(u64, Latencies), Failure> {
    let stream = connect(socket)?;
    let mut writer = stream.try_clone().map_err(|error| broken(socket, &error))?;
    let mut reader = BufReader::with_capacity(64 << 10, stream);
    let mut random = Random::new(seed + 1);
    let latencies = Latencies::default();
    let (mut operations, mut all) = (0, 0u64);
    let mut line = String::new();
    let mut value = vec![0; VALUE + 7];
    let mut expected = Vec::with_capacity(VALUE);
    let mut due = Instant::now();
    loop {
        if let Some(pace) = plan.pace {
            // Who is late asks on at once, and is not to catch up.
            due = (due + Duration::from_secs_f64(1.0 / pace)).max(Instant::now());
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let key = random.gaussian(plan.values, plan.deviation);
        let start = Instant::now();
        if start >= end {
            return Ok((operations, latencies));
        }
        writer.write_all(format!("get key{key:09}\r\n").as_bytes()).map_err(|error| broken(socket, &error))?;
        line.clear();
        reader.read_line(&mut line).map_err(|error| broken(socket, &error))?;
        if !line.starts_with("VALUE ") {
            return Err(Failure::failed("memcached lost a value", format!("key{key:09}"), line.trim()));
        }
        reader.read_exact(&mut value).map_err(|error| broken(socket, &error))?;
        let took = start.elapsed();
        all += 1;
        expected.clear();
        append_value(key, &mut expected);
        let compared = if all.is_multiple_of(16) { VALUE } else { 16 };
        if value[..compared] != expected[..compared] || value[VALUE..] != *b"\r\nEND\r\n" {
            return Err(Failure::failed("memcached gave a wrong value", format!("key{key:09}"), "memory was lost"));
        }
        if start >= warm {
            operations += 1;
            latencies.record(took);
        }
    }
}

/// A value: half of it random, half shared, as in the array of the other rows.
fn append_value(key: u64, into: &mut Vec<u8>) {
    let mut random = Random::new(key);
    let start = into.len();
    while into.len() < start + VALUE {
        into.extend_from_slice(&key.to_le_bytes());
        into.extend_from_slice(&random.next().to_le_bytes());
        into.extend_from_slice(&random.next().to_le_bytes());
        into.extend_from_slice(b"the part that is the same in each record");
    }
    into.truncate(start + VALUE);
}

fn connect(socket: &Path) -> Result<UnixStream, Failure> {
    UnixStream::connect(socket).map_err(|error| broken(socket, &error))
}

fn broken(socket: &Path, error: &std::io::Error) -> Failure {
    Failure::failed("the connection to memcached broke", socket.display(), error)
}

/// Processor seconds of a process: fields 14 and 15 of its `stat`, in ticks of 10 ms.
fn cpu_seconds(process: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |index: usize| fields.get(index - 3).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(14) + ticks(15)) / rustix::param::clock_ticks_per_second() as f64
}
