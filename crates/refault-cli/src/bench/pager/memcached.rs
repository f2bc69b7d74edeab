//! The memcached row: a real server behind a Unix socket, loaded with values, read by two threads here.
//!
//! Keys are drawn from a normal distribution around the middle of the key space with a sixth of it as standard deviation, as
//! memcached's usual load generators do. Each answer's length and first bytes are compared with what was stored, and
//! every sixteenth answer as a whole.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use refault_pager::Latencies;

use super::load::Random;
use crate::failure::Failure;

/// Bytes of a value.
pub const VALUE: usize = 2000;
const CLIENTS: u64 = 2;

/// What is asked of the server.
pub struct Plan {
    /// Values to store.
    pub values: u64,
    /// Seconds before counting starts.
    pub warm_up: f64,
    /// Seconds that are counted.
    pub seconds: f64,
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
    let own = format!("-u root -U 0 -p 0 -t 2 -c 64 -n 2000 -f 1.05 -m {megabytes} -s");
    own.split(' ').map(str::to_owned).chain([socket.display().to_string()]).collect()
}

/// Waits until the server answers.
pub fn wait(socket: &Path, server: &mut Child) -> Result<(), Failure> {
    let failed = |why: String| Failure::failed("memcached does not answer", socket.display(), why);
    for _ in 0..500 {
        if UnixStream::connect(socket).is_ok() {
            return Ok(());
        }
        if let Ok(Some(status)) = server.try_wait() {
            return Err(failed(format!("it ended with {status}")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(failed("five seconds have passed".to_owned()))
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

/// Reads from two threads and counts.
pub fn read(socket: &Path, plan: &Plan, server: u32) -> Result<Seen, Failure> {
    let begin = Instant::now();
    let warm = begin + Duration::from_secs_f64(plan.warm_up);
    let end = warm + Duration::from_secs_f64(plan.seconds);
    let mut cpu_before = 0.0;
    let results: Vec<Result<(u64, Latencies), Failure>> = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|seed| scope.spawn(move || client(socket, plan, seed, warm, end))).collect();
        std::thread::sleep(warm.saturating_duration_since(Instant::now()));
        cpu_before = cpu_seconds(server);
        clients.into_iter().map(|client| client.join().expect("invariant: a client reports its errors")).collect()
    });
    let server_cpu = cpu_seconds(server) - cpu_before;
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
    let mut random = Random(seed + 1);
    let latencies = Latencies::default();
    let (mut operations, mut all) = (0, 0u64);
    let mut line = String::new();
    let mut value = vec![0; VALUE + 7];
    let mut expected = Vec::with_capacity(VALUE);
    loop {
        let key = gaussian(&mut random, plan.values);
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

/// A key, normally distributed.
fn gaussian(random: &mut Random, keys: u64) -> u64 {
    loop {
        // Box and Muller.
        let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
        let unit = radius * (std::f64::consts::TAU * random.unit()).cos();
        let key = keys as f64 * (0.5 + unit / 6.0);
        if key >= 0.0 && key < keys as f64 {
            return key as u64;
        }
    }
}

/// A value: half of it random, half shared, as in the array of the other rows.
fn append_value(key: u64, into: &mut Vec<u8>) {
    let mut random = Random(key);
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

/// Ends a server.
pub fn stop(mut server: Child) {
    let _ = Command::new("kill").arg(server.id().to_string()).status();
    for _ in 0..200 {
        if let Ok(Some(_)) = server.try_wait() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = server.kill();
    let _ = server.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lie_around_the_middle() {
        let mut random = Random(3);
        let keys: Vec<u64> = (0..20_000).map(|_| gaussian(&mut random, 6000)).collect();
        let within = |deviations: u64| keys.iter().filter(|key| key.abs_diff(3000) <= deviations * 1000).count();
        assert!((13_300..14_000).contains(&within(1)), "{}", within(1));
        assert!((18_950..19_250).contains(&within(2)), "{}", within(2));
    }
}
