//! Who reads: this crate, `object_store` by itself, and fsspec, in a process of its own.
//!
//! The clock runs from before the store is made until the last byte was compared with what the object has. Requests and
//! bytes are counted by the server.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use object_store::http::{HttpBuilder, HttpStore};
use object_store::{ClientOptions, GetOptions, GetRange, ObjectStore, ObjectStoreExt};
use refault_cache::{CacheOptions, PageCache};
use refault_remote::{RemoteOptions, RemoteStore};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::common::Server;
use crate::work::Work;

pub type Failure = Box<dyn Error>;

/// How fsspec caches.
#[derive(Clone, Debug, PartialEq)]
pub struct Fsspec {
    pub cache: &'static str,
    /// Bytes of a block.
    pub block: u64,
    /// Blocks in memory at most, where that can be said.
    pub blocks: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Side {
    /// The page cache of `memory` bytes above this crate, with a local file or without.
    Refault {
        memory: u64,
        local: bool,
    },
    ObjectStore,
    /// One request for the whole object, whose answer is read as it comes.
    ObjectStoreStream,
    Fsspec(Fsspec),
}

/// What a run took.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub seconds: f64,
    pub requests: u64,
    pub bytes: u64,
}

impl Side {
    /// Those that take part, with the same memory where they take a limit.
    pub fn all(memory: u64, with_fsspec: bool) -> Vec<Side> {
        const DEFAULT_BLOCK: u64 = 5 << 20;
        const SMALL_BLOCK: u64 = 64 << 10;
        let mut sides = vec![
            Side::Refault { memory, local: false },
            Side::Refault { memory, local: true },
            Side::ObjectStore,
            Side::ObjectStoreStream,
        ];
        let fsspec = |cache, block, limited: bool| {
            Side::Fsspec(Fsspec { cache, block, blocks: limited.then_some((memory / block).max(1)) })
        };
        if with_fsspec {
            sides.extend([
                fsspec("none", DEFAULT_BLOCK, false),
                fsspec("readahead", DEFAULT_BLOCK, false),
                fsspec("blockcache", SMALL_BLOCK, true),
                fsspec("blockcache", DEFAULT_BLOCK, true),
                fsspec("background", DEFAULT_BLOCK, true),
                fsspec("disk", SMALL_BLOCK, false),
            ]);
        }
        sides
    }

    /// Whether something is on disk for the next process.
    pub fn keeps(&self) -> bool {
        match self {
            Side::Refault { local, .. } => *local,
            Side::ObjectStore | Side::ObjectStoreStream => false,
            Side::Fsspec(fsspec) => fsspec.cache == "disk",
        }
    }

    /// Whether it takes part in some work.
    pub fn does(&self, work: &Work) -> bool {
        (work.comes_again || !self.keeps()) && (work.is_scan || *self != Side::ObjectStoreStream)
    }

    pub fn name(&self) -> String {
        match self {
            Side::Refault { local: false, .. } => "refault-remote".into(),
            Side::Refault { local: true, .. } => "refault-remote, local file".into(),
            Side::ObjectStore => "object_store, ranges".into(),
            Side::ObjectStoreStream => "object_store, one stream".into(),
            Side::Fsspec(Fsspec { cache: "none", .. }) => "fsspec, no cache".into(),
            Side::Fsspec(Fsspec { cache: "disk", block, .. }) => format!("fsspec, on disk, {}", size(*block)),
            Side::Fsspec(Fsspec { cache, block, blocks: None }) => format!("fsspec, {cache}, {}", size(*block)),
            Side::Fsspec(Fsspec { cache, block, blocks: Some(blocks) }) => {
                format!("fsspec, {cache}, {blocks} × {}", size(*block))
            }
        }
    }
}

fn size(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}

/// Where all of them read.
pub struct Place {
    pub server: Server,
    /// What the object has, and a file with the same.
    pub contents: Arc<Vec<u8>>,
    pub file: PathBuf,
    /// Of this crate, but for the directory.
    pub options: RemoteOptions,
    pub python: Option<PathBuf>,
}

impl Place {
    /// Serves an object, and writes it to a file in a directory.
    pub fn new(contents: Vec<u8>, directory: &Path, python: Option<PathBuf>) -> Result<Place, Failure> {
        let file = directory.join("object");
        std::fs::write(&file, &contents)?;
        let server = Server::start(contents);
        let contents = server.served.bytes.lock().expect("nothing panics under it").0.clone();
        Ok(Place { server, contents, file, options: RemoteOptions::default(), python })
    }

    /// One run, from nothing but what is in the directory.
    pub fn run(&self, side: &Side, work: &Work, kept: &Path) -> Result<Figures, Failure> {
        let served = &self.server.served;
        let (requests, bytes) = (served.requests.load(Ordering::SeqCst), served.sent.load(Ordering::SeqCst));
        let seconds = match side {
            Side::Refault { memory, local } => {
                let options = RemoteOptions { directory: local.then(|| kept.to_owned()), ..self.options.clone() };
                self.refault(*memory, &options, work)?
            }
            Side::ObjectStore => self.object_store(work)?,
            Side::ObjectStoreStream => self.object_store_stream(work)?,
            Side::Fsspec(fsspec) => self.fsspec(fsspec, work, kept)?,
        };
        // What was asked for and not waited for counts too.
        let end = Instant::now();
        while served.connections.load(Ordering::SeqCst) > 0 {
            if end.elapsed() > Duration::from_secs(60) {
                return Err(format!("{}: a connection stays open", side.name()).into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let since = |count: u64, before: u64| count - before;
        Ok(Figures {
            seconds,
            requests: since(served.requests.load(Ordering::SeqCst), requests),
            bytes: since(served.sent.load(Ordering::SeqCst), bytes),
        })
    }

    fn compare(&self, seen: &[u8], start: u64) -> Result<(), Failure> {
        let right = self.contents.get(start as usize..start as usize + seen.len()) == Some(seen);
        if right { Ok(()) } else { Err(format!("wrong bytes at {start}").into()) }
    }

    fn refault(&self, memory: u64, options: &RemoteOptions, work: &Work) -> Result<f64, Failure> {
        let mut buffer = Vec::new();
        let begun = Instant::now();
        let remote = RemoteStore::from_url(&self.server.url(), options)?;
        let cache = PageCache::new(&CacheOptions { memory, ..CacheOptions::default() })?;
        let file = cache.attach(Box::new(remote.open("object")?))?;
        for step in &work.steps {
            if step.len() > 1 {
                file.prefetch_ranges(step);
            }
            for range in step {
                buffer.resize((range.end - range.start) as usize, 0);
                if file.read_at(&mut buffer, range.start)? != buffer.len() {
                    return Err(format!("{range:?} is not whole").into());
                }
                self.compare(&buffer, range.start)?;
            }
        }
        Ok(begun.elapsed().as_secs_f64())
    }

    fn store(&self) -> Result<(Runtime, HttpStore), Failure> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = ClientOptions::new().with_allow_http(true);
        let store = HttpBuilder::new().with_url(self.server.url()).with_client_options(client).build()?;
        Ok((tokio::runtime::Builder::new_current_thread().enable_all().build()?, store))
    }

    fn object_store_stream(&self, work: &Work) -> Result<f64, Failure> {
        let end = work.steps.last().and_then(|step| step.last()).map_or(0, |range| range.end);
        let begun = Instant::now();
        let (runtime, store) = self.store()?;
        let options = GetOptions::new().with_range(Some(GetRange::Bounded(0..end)));
        let mut stream = runtime.block_on(store.get_opts(&"object".into(), options))?.into_stream();
        let mut at = 0;
        while let Some(bytes) = runtime.block_on(stream.next()) {
            let bytes = bytes?;
            self.compare(&bytes, at)?;
            at += bytes.len() as u64;
        }
        if at == end { Ok(begun.elapsed().as_secs_f64()) } else { Err(format!("{at} bytes came").into()) }
    }

    fn object_store(&self, work: &Work) -> Result<f64, Failure> {
        let begun = Instant::now();
        let (runtime, store) = self.store()?;
        let path = "object".into();
        for step in &work.steps {
            let came = match step.as_slice() {
                [range] => vec![runtime.block_on(store.get_range(&path, range.clone()))?],
                ranges => runtime.block_on(store.get_ranges(&path, ranges))?,
            };
            for (range, bytes) in step.iter().zip(&came) {
                if bytes.len() as u64 != range.end - range.start {
                    return Err(format!("{range:?} is not whole").into());
                }
                self.compare(bytes, range.start)?;
            }
        }
        Ok(begun.elapsed().as_secs_f64())
    }

    fn fsspec(&self, fsspec: &Fsspec, work: &Work, kept: &Path) -> Result<f64, Failure> {
        let url = format!("{}object", self.server.url());
        let answer = self.ask_python(&json!({
            "url": url, "object": self.file, "steps": work.json(), "cache": fsspec.cache, "block": fsspec.block,
            "blocks": fsspec.blocks, "directory": kept,
        }))?;
        Ok(answer["seconds"].as_f64().ok_or("scripts/dev/beside_remote.py says no time")?)
    }

    /// What fsspec and aiohttp are there, in which Python.
    pub fn versions(&self) -> Result<String, Failure> {
        let answer = self.ask_python(&json!({}))?;
        Ok(answer["versions"].as_str().ok_or("scripts/dev/beside_remote.py says no versions")?.to_owned())
    }

    fn ask_python(&self, job: &Value) -> Result<Value, Failure> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/dev/beside_remote.py");
        let python = self.python.as_ref().ok_or("fsspec needs --python")?;
        let mut child = Command::new(python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        serde_json::to_writer(child.stdin.take().expect("is a pipe"), job)?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            return Err(format!("scripts/dev/beside_remote.py: {}", output.status).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}
