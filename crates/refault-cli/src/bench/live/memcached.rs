//! memcached with 2000-byte values: filled once, then read by two clients over a Unix socket, keys drawn from a Gaussian.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Random, Server, Setup};
use crate::failure::Failure;

const VALUE: usize = 2000;
/// Bytes that memcached takes for a value, its slab class and key included.
const ITEM: u64 = 2300;
const CLIENTS: u64 = 2;

/// Runs the server under `command`; gets a second.
pub(super) fn run(
    command: &mut Command,
    directory: &Path,
    setup: &Setup<'_>,
    begin: impl FnOnce(),
) -> Result<f64, Failure> {
    let failed = |error: std::io::Error| Failure::failed("memcached failed", "its socket", error);
    let socket = directory.join("socket");
    command.arg(super::installed("memcached")?).args(["-u", "root", "-t", "2", "-m"]);
    command.arg((setup.mib * 3 / 2).to_string()).arg("-s").arg(&socket);
    let server = Server::start(command)?;
    let stream = connect(&socket).map_err(failed)?;
    let values = (setup.mib << 20) / ITEM;
    fill(stream, values).map_err(failed)?;
    begin();
    let end = Instant::now() + Duration::from_secs_f64(setup.seconds);
    let start = Instant::now();
    let counts: Vec<std::io::Result<u64>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|seed| {
                scope.spawn({
                    let socket = &socket;
                    move || read(connect(socket)?, values, seed, end)
                })
            })
            .collect();
        clients
            .into_iter()
            .map(|client| client.join().unwrap_or_else(|_| Err(std::io::Error::other("a client died"))))
            .collect()
    });
    let elapsed = start.elapsed().as_secs_f64();
    server.end();
    let mut operations = 0;
    for count in counts {
        operations += count.map_err(failed)?;
    }
    Ok(operations as f64 / elapsed)
}

fn connect(socket: &Path) -> std::io::Result<UnixStream> {
    let mut last = std::io::Error::other("no socket");
    for _ in 0..200 {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(last)
}

fn fill(mut stream: UnixStream, values: u64) -> std::io::Result<()> {
    let mut random = Random(7);
    let mut batch = Vec::new();
    for key in 0..values {
        write!(batch, "set k{key} 0 0 {VALUE} noreply\r\n")?;
        let start = batch.len();
        // Half of it compresses.
        batch.resize(start + VALUE / 2, b'v');
        while batch.len() < start + VALUE {
            let bytes = random.next().to_le_bytes();
            let take = bytes.len().min(start + VALUE - batch.len());
            batch.extend(bytes[..take].iter().map(|byte| byte | 0x20));
        }
        batch.extend(b"\r\n");
        if batch.len() > 1 << 16 {
            stream.write_all(&batch)?;
            batch.clear();
        }
    }
    batch.extend(b"version\r\n");
    stream.write_all(&batch)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map(|_| ())
}

fn read(stream: UnixStream, values: u64, seed: u64, end: Instant) -> std::io::Result<u64> {
    let mut random = Random(seed);
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::with_capacity(1 << 14, stream);
    let mut line = String::new();
    let mut body = vec![0; VALUE + 2 + 5];
    let mut operations = 0;
    while Instant::now() < end {
        writer.write_all(format!("get k{}\r\n", random.gaussian(values)).as_bytes())?;
        line.clear();
        reader.read_line(&mut line)?;
        if line.starts_with("VALUE") {
            reader.read_exact(&mut body)?;
        } else if !line.starts_with("END") {
            return Err(std::io::Error::other(format!("it answered {}", line.trim())));
        }
        operations += 1;
    }
    Ok(operations)
}
