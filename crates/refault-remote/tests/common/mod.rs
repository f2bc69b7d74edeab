//! A small HTTP server with ranges, on loopback, that can be slow, fail, and change what it serves.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use refault_cache::{CacheOptions, CachedFile, PageCache};
use refault_remote::{RemoteOptions, RemoteStore};
use refault_testing::Random;

pub const MIB: usize = 1 << 20;

/// What fails is asked for again at once.
pub fn options() -> RemoteOptions {
    RemoteOptions { retry_after: Duration::from_millis(1), ..RemoteOptions::default() }
}

/// The object of a server through a cache of its own.
pub fn open(server: &Server, options: &RemoteOptions) -> (RemoteStore, CachedFile) {
    let remote = RemoteStore::from_url(&server.url(), options).expect("a store");
    let cache = PageCache::new(&CacheOptions { memory: MIB as u64, policy: "lru".into(), ..CacheOptions::default() })
        .expect("a cache");
    let file = cache.attach(Box::new(remote.open("object").expect("is there"))).expect("opens");
    (remote, file)
}

/// Header lines that name a version: whether HEAD asks, and its number.
pub type Naming = fn(bool, u64) -> String;

/// One object, `/object`, and what goes wrong with it.
#[derive(Default)]
pub struct Served {
    pub bytes: Mutex<(Arc<Vec<u8>>, u64)>,
    /// Milliseconds before each answer.
    pub latency: AtomicU64,
    /// One request in this many gets a 503; 0: none.
    pub refused: AtomicU64,
    /// One answer in this many breaks off in the middle; 0: none.
    pub broken: AtomicU64,
    /// `If-Match` is not looked at.
    pub careless: AtomicU64,
    /// What the object is said to have instead of its length; 0: that.
    pub claimed: AtomicU64,
    /// Answers name no version.
    pub nameless: AtomicU64,
    /// What names a version, instead of the usual lines.
    pub named: Mutex<Option<Naming>>,
    /// The status line, and headers, of every answer with bytes, which then has none.
    pub instead: Mutex<Option<&'static str>>,
    /// How far the range that answers name lies behind the one that was asked for.
    pub shifted: AtomicU64,
    /// Answers do not say how long they are.
    pub endless: AtomicU64,
    /// Bytes that an answer has after those that were asked for.
    pub too_many: AtomicU64,
    /// Milliseconds before each tenth of an answer's bytes.
    pub drip: AtomicU64,
    /// Bytes per second that a connection carries at most; 0: as many as there can be.
    pub pace: AtomicU64,
    pub requests: AtomicU64,
    /// Bytes of objects that were sent.
    pub sent: AtomicU64,
    under_way: AtomicUsize,
    /// Connections that clients have open.
    pub connections: AtomicUsize,
    /// Most requests at a time.
    pub most: AtomicUsize,
}

pub struct Server {
    pub served: Arc<Served>,
    pub address: SocketAddr,
}

pub fn contents(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..bytes.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).take(bytes).collect()
}

impl Server {
    pub fn start(bytes: Vec<u8>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("has one");
        let served = Arc::new(Served { bytes: Mutex::new((Arc::new(bytes), 1)), ..Served::default() });
        let shared = served.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = shared.clone();
                served.connections.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    let _ = serve(&served, stream);
                    served.connections.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Server { served, address }
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Another version of the object, as long as before.
    pub fn change(&self, bytes: Vec<u8>) {
        let mut served = self.served.bytes.lock().expect("no test panics under it");
        *served = (Arc::new(bytes), served.1 + 1);
    }
}

fn strikes(every: &AtomicU64, number: u64) -> bool {
    let every = every.load(Ordering::Relaxed);
    every != 0 && Random::new(number).next().is_multiple_of(every)
}

fn serve(served: &Served, stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let (mut line, mut range, mut tag) = (String::new(), None, None);
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let head = line.starts_with("HEAD");
        let found = line.split(' ').nth(1) == Some("/object");
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "range" => range = Some(value.to_owned()),
                "if-match" => tag = Some(value.to_owned()),
                "content-length" => drop(reader.by_ref().take(value.parse().unwrap_or(0)).read_to_end(&mut Vec::new())),
                _ => {}
            }
        }
        let number = served.requests.fetch_add(1, Ordering::Relaxed);
        served.most.fetch_max(served.under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(served.latency.load(Ordering::Relaxed)));
        let answer = answer(served, number, found, head, range, tag);
        served.under_way.fetch_sub(1, Ordering::SeqCst);
        let (head, body, whole) = answer;
        stream.write_all(head.as_bytes())?;
        let (drip, pace) = (served.drip.load(Ordering::Relaxed), served.pace.load(Ordering::Relaxed));
        let (begun, mut carried) = (Instant::now(), 0);
        for part in body.chunks(if drip == 0 { 64 << 10 } else { body.len().div_ceil(10).max(1) }) {
            std::thread::sleep(Duration::from_millis(drip));
            stream.write_all(part)?;
            served.sent.fetch_add(part.len() as u64, Ordering::Relaxed);
            carried += part.len() as u64;
            let due = if pace == 0 { Duration::ZERO } else { Duration::from_secs_f64(carried as f64 / pace as f64) };
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
        }
        if !whole {
            return Ok(());
        }
    }
}

fn answer(
    served: &Served,
    number: u64,
    found: bool,
    head: bool,
    range: Option<String>,
    tag: Option<String>,
) -> (String, Vec<u8>, bool) {
    let empty = |status: &str| (format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"), Vec::new(), true);
    let (bytes, version) = served.bytes.lock().expect("no test panics under it").clone();
    let own = format!("\"v{version}\"");
    if !found {
        return empty("404 Not Found");
    }
    if strikes(&served.refused, number) {
        return empty("503 Service Unavailable");
    }
    if let Some(instead) = served.instead.lock().expect("no test panics under it").filter(|_| !head) {
        return empty(instead);
    }
    if served.careless.load(Ordering::Relaxed) == 0 && tag.is_some_and(|tag| tag != own) {
        return empty("412 Precondition Failed");
    }
    let parts = range.as_deref().and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let (from, to) = parts.map_or((0, bytes.len()), |(from, to)| {
        let from: usize = from.parse().unwrap_or(0);
        (from, to.parse::<usize>().map_or(bytes.len(), |to| to + 1).min(bytes.len()).max(from))
    });
    let status = if range.is_some() { "206 Partial Content" } else { "200 OK" };
    let claimed = Some(served.claimed.load(Ordering::Relaxed)).filter(|claimed| head && *claimed != 0);
    let too_many = if head { 0 } else { served.too_many.load(Ordering::Relaxed) as usize };
    let length = claimed.unwrap_or((to - from + too_many) as u64);
    let endless = !head && served.endless.load(Ordering::Relaxed) != 0;
    let mut text = format!("HTTP/1.1 {status}\r\n");
    text += &if endless { "Connection: close\r\n".to_owned() } else { format!("Content-Length: {length}\r\n") };
    if let Some(named) = *served.named.lock().expect("no test panics under it") {
        text += &named(head, version);
    } else if served.nameless.load(Ordering::Relaxed) == 0 {
        text += &format!("ETag: {own}\r\nLast-Modified: Tue, 01 Jan 2030 00:00:00 GMT\r\n");
    }
    if range.is_some() {
        let shifted = served.shifted.load(Ordering::Relaxed) as usize;
        text += &format!("Content-Range: bytes {}-{}/{}\r\n", from + shifted, to.max(1) - 1 + shifted, bytes.len());
    }
    text += "\r\n";
    if head {
        return (text, Vec::new(), true);
    }
    let mut body = bytes[from.min(bytes.len())..to].to_vec();
    body.resize(body.len() + too_many, b'x');
    let whole = !strikes(&served.broken, number);
    if !whole {
        body.truncate(body.len() / 2);
    }
    (text, body, whole && !endless)
}
