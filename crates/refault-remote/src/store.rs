//! A store, the thread that its requests run on, and their limits.
//!
//! Requests of all objects of a store share one runtime with one thread, because they wait far more than they compute;
//! callers wait for them in their own threads, inside another runtime too. Cost: a thread per store.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{GetOptions, GetResult, ObjectMeta, ObjectStore, RetryConfig};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use url::Url;

use crate::error::{MakeError, OpenError};
use crate::http::{Answered, Connector, client_options, s3};
use crate::object::RemoteObject;
use crate::request::{Fault, again, fault, get, gone, may_change_unseen, stands_for_bytes};
use crate::tier::{Tier, is_full};

/// How objects are fetched and kept.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// Requests under way at a time, for all objects of a store; 16 by default.
    pub in_flight: usize,
    /// Ranges wanted together whose gap is at most this many bytes are one request; 128 KiB by default.
    pub gap: u64,
    /// Bytes of a request at most, unless the cache asks for more at once; 8 MiB by default.
    pub request: u64,
    /// How often a request that failed is tried again; 4 by default.
    pub retries: u32,
    /// How long is waited before the first of these, doubled for each further one; 50 ms by default. A server that asks
    /// for more by `Retry-After` gets it, up to a minute, if the store was opened by a URL.
    pub retry_after: Duration,
    /// How long a server may send nothing before its answer counts as failed, of stores that are opened by a URL; 30 s
    /// by default. An answer that keeps coming may take as long as it wants.
    pub silence: Duration,
    /// A directory for one local file per object that keeps what was fetched, and outlives the process. None by
    /// default.
    pub directory: Option<PathBuf>,
    /// Bytes of such a file at most; 1 GiB by default.
    pub local_bytes: u64,
    /// Bytes that are fetched and kept together where there is a local file, a multiple of 4 KiB; 64 KiB by default.
    pub block: u32,
}

impl Default for RemoteOptions {
    fn default() -> RemoteOptions {
        RemoteOptions {
            in_flight: 16,
            gap: 128 << 10,
            request: 8 << 20,
            retries: 4,
            retry_after: Duration::from_millis(50),
            silence: Duration::from_secs(30),
            directory: None,
            local_bytes: 1 << 30,
            block: 64 << 10,
        }
    }
}

/// What a store's objects have fetched since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteCounts {
    /// Requests for bytes, repeated ones included.
    pub requests: u64,
    /// Requests that were repeated.
    pub retries: u64,
    /// Bytes that came.
    pub fetched_bytes: u64,
    /// Bytes that local files had instead.
    pub local_bytes: u64,
    /// Blocks of local files that were damaged, and fetched again.
    pub damaged_blocks: u64,
    /// Objects that were opened without a local file in spite of [`RemoteOptions::directory`]: the disk was full, or
    /// the object had no strong ETag and a last change within a minute before, or at an unknown time.
    pub not_kept: u64,
    /// Bytes of answers that were held at a time at most, before they were in the cache.
    pub most_held_bytes: u64,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) requests: AtomicU64,
    retries: AtomicU64,
    pub(crate) fetched: AtomicU64,
    held: AtomicU64,
    most_held: AtomicU64,
    pub(crate) local: AtomicU64,
    pub(crate) damaged: AtomicU64,
    not_kept: AtomicU64,
}

/// A store of objects. Clones are the same.
#[derive(Clone)]
pub struct RemoteStore(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    store: Arc<dyn ObjectStore>,
    /// Whether its answers come through [`Connector`].
    ours: bool,
    /// What tells it from other stores in the local files: the URL, or what the store says of itself.
    identity: String,
    /// Below which objects are found.
    prefix: Path,
    pub(crate) options: RemoteOptions,
    permits: Arc<Semaphore>,
    pub(crate) counts: Arc<Counts>,
    /// There until the value is dropped.
    runtime: Option<Runtime>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Also where waiting is not allowed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl RemoteStore {
    /// Objects of any store. A store that repeats requests itself does so within each try of this. Stores that print
    /// alike count as one in the local files: give each a directory of its own.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn new(store: Arc<dyn ObjectStore>, options: &RemoteOptions) -> Result<RemoteStore, MakeError> {
        let identity = store.to_string();
        RemoteStore::below(store, false, identity, Path::default(), options)
    }

    /// Objects below a URL: `file:///DIRECTORY`, `http://HOST/DIRECTORY/`, `s3://BUCKET/DIRECTORY`; the latter takes
    /// endpoint, region and keys from the environment, as `AWS_ENDPOINT_URL` and the like. An endpoint `http:` needs no
    /// `AWS_ALLOW_HTTP`, unless that says no.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn from_url(url: &str, options: &RemoteOptions) -> Result<RemoteStore, MakeError> {
        let failed = |source| MakeError::Url { url: url.to_owned(), source };
        let unknown = |why: String| MakeError::Unknown { url: url.to_owned(), why };
        let parsed = Url::parse(url).map_err(|error| unknown(error.to_string()))?;
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let client = client_options(options.silence);
        // Whatever the process has chosen before holds.
        let _ = rustls::crypto::ring::default_provider().install_default();
        match parsed.scheme() {
            "file" => {
                let root = parsed.to_file_path().map_err(|()| unknown("not a path".to_owned()))?;
                let store = LocalFileSystem::new_with_prefix(root).map_err(failed)?;
                RemoteStore::new(Arc::new(store), options)
            }
            "http" | "https" => {
                let client = client.with_allow_http(parsed.scheme() == "http");
                let http = HttpBuilder::new().with_url(url).with_http_connector(Connector);
                let http = http.with_retry(retry).with_client_options(client).build().map_err(failed)?;
                RemoteStore::below(Arc::new(http), true, parsed.to_string(), Path::default(), options)
            }
            "s3" => {
                let bucket = parsed.host_str().unwrap_or("");
                let variables = std::env::vars_os()
                    .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
                let (s3, endpoint) = s3(variables, client);
                let s3 = s3.with_bucket_name(bucket).with_retry(retry).with_http_connector(Connector);
                let store = s3.build().map_err(failed)?;
                let prefix = Path::from_url_path(parsed.path()).map_err(|error| unknown(error.to_string()))?;
                RemoteStore::below(Arc::new(store), true, format!("{endpoint} s3://{bucket}"), prefix, options)
            }
            other => Err(unknown(format!("no store is called {other}"))),
        }
    }

    fn below(
        store: Arc<dyn ObjectStore>,
        ours: bool,
        identity: String,
        prefix: Path,
        options: &RemoteOptions,
    ) -> Result<RemoteStore, MakeError> {
        if options.in_flight == 0 || options.in_flight > Semaphore::MAX_PERMITS {
            return Err(MakeError::BadOption("at least one request must be allowed at a time"));
        }
        if options.silence.is_zero() {
            return Err(MakeError::BadOption("a server must be allowed to be silent for some time"));
        }
        if options.block == 0 || !options.block.is_multiple_of(4096) {
            return Err(MakeError::BadOption("blocks of the local file must be multiples of 4096 bytes"));
        }
        if options.directory.is_some() && options.local_bytes < u64::from(options.block) * 2 + 8192 {
            return Err(MakeError::BadOption("the local file must have room for two blocks and 8 KiB"));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("refault-remote")
            .enable_all()
            .build()
            .map_err(MakeError::Runtime)?;
        let permits = Arc::new(Semaphore::new(options.in_flight));
        let (options, counts) = (options.clone(), Arc::default());
        Ok(RemoteStore(Arc::new(Inner {
            store,
            ours,
            identity,
            prefix,
            options,
            permits,
            counts,
            runtime: Some(runtime),
        })))
    }

    /// An object, as it is now: asks for its length and version. For [`refault_cache::PageCache::attach`].
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(&self, path: &str) -> Result<RemoteObject, OpenError> {
        let failed = |message| OpenError::Store { path: path.to_owned(), message };
        let relative = Path::parse(path).map_err(|error| failed(error.to_string()))?;
        let path_there = self.0.prefix.parts().chain(relative.parts()).collect::<Path>();
        let (mut meta, mut answered) = self.0.head(&path_there).map_err(|fault| failed(fault.message))?;
        // Not for ever: an answer that a proxy keeps may have such a time, and no other, for long.
        for _ in 0..3 {
            if !may_change_unseen(&meta, answered) {
                break;
            }
            std::thread::sleep(Duration::from_secs(1));
            (meta, answered) = self.0.head(&path_there).map_err(|fault| failed(fault.message))?;
        }
        if meta.e_tag.is_none() && meta.last_modified.timestamp() == 0 {
            let why =
                "the store names no version of it, neither ETag nor Last-Modified: what is read could be of several";
            return Err(failed(why.to_owned()));
        }
        if meta.size > i64::MAX as u64 {
            return Err(failed(format!(
                "the store says that it has {} bytes: no file has more than {}",
                meta.size,
                i64::MAX
            )));
        }
        let tier = match &self.0.options.directory {
            Some(directory) if stands_for_bytes(&meta, answered) => {
                let options = &self.0.options;
                match Tier::open(directory, &self.0.identity, &meta, options.block, options.local_bytes) {
                    Ok(tier) => Some(tier),
                    Err((_, error)) if is_full(&error) => None,
                    Err((path, error)) => return Err(OpenError::Tier { path, error }),
                }
            }
            _ => None,
        };
        if tier.is_none() && self.0.options.directory.is_some() {
            self.0.counts.not_kept.fetch_add(1, Ordering::Relaxed);
        }
        Ok(RemoteObject::new(self.0.clone(), meta, tier))
    }

    /// What was fetched so far.
    pub fn counts(&self) -> RemoteCounts {
        let counts = &self.0.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RemoteCounts {
            requests: read(&counts.requests),
            retries: read(&counts.retries),
            fetched_bytes: read(&counts.fetched),
            local_bytes: read(&counts.local),
            damaged_blocks: read(&counts.damaged),
            not_kept: read(&counts.not_kept),
            most_held_bytes: read(&counts.most_held),
        }
    }
}

impl Inner {
    /// What an object is now, and when that was said: by the server's clock, or by ours where it does not say.
    fn head(&self, path: &Path) -> Result<(ObjectMeta, DateTime<Utc>), Fault> {
        let (send, receive) = mpsc::channel();
        let (store, ours, path) = (self.store.clone(), self.ours, path.clone());
        let (retries, after) = (self.options.retries, self.options.retry_after);
        self.spawn(async move {
            let options = GetOptions::new().with_head(true);
            let mut outcome = store.get_opts(&path, options.clone()).await;
            for attempt in 0..retries {
                let Some(wait) = outcome.as_ref().err().and_then(|error| again(error, ours)) else { break };
                tokio::time::sleep(after.saturating_mul(1 << attempt.min(10)).max(wait)).await;
                outcome = store.get_opts(&path, options.clone()).await;
            }
            let time = |result: &GetResult| result.extensions.get().map_or_else(Utc::now, |Answered(time)| *time);
            let outcome = outcome.map(|result| (result.meta.clone(), time(&result)));
            let _ = send.send(outcome.map_err(|error| fault(&error, &path)));
        });
        receive.recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Fetches ranges of an object at the same time, as far as that is allowed. Passes each answer on as it comes, with
    /// its place among them. An answer that was not passed on counts as a request under way, so that as many are held
    /// at most; a request that waits before it is repeated does not.
    pub(crate) fn fetch(
        &self,
        meta: &ObjectMeta,
        ranges: &[Range<u64>],
        mut answered: impl FnMut(usize, Result<Bytes, Fault>),
    ) {
        let (send, receive) = mpsc::channel();
        for (place, range) in ranges.iter().cloned().enumerate() {
            let (send, store, ours, meta) = (send.clone(), self.store.clone(), self.ours, meta.clone());
            let (permits, counts) = (self.permits.clone(), self.counts.clone());
            let (retries, after) = (self.options.retries, self.options.retry_after);
            self.spawn(async move {
                let mut permit = permits.clone().acquire_owned().await;
                let mut outcome = get(&*store, ours, &meta, range.clone(), &counts).await;
                for attempt in 0..retries {
                    let Err((_, Some(wait))) = &outcome else { break };
                    let wait = after.saturating_mul(1 << attempt.min(10)).max(*wait);
                    counts.retries.fetch_add(1, Ordering::Relaxed);
                    drop(permit);
                    tokio::time::sleep(wait).await;
                    permit = permits.clone().acquire_owned().await;
                    outcome = get(&*store, ours, &meta, range.clone(), &counts).await;
                }
                if let Ok(bytes) = &outcome {
                    let held = bytes.len() as u64 + counts.held.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    counts.most_held.fetch_max(held, Ordering::Relaxed);
                }
                let _ = send.send((place, outcome.map_err(|(fault, _)| fault), permit));
            });
        }
        drop(send);
        let mut missing = vec![true; ranges.len()];
        for (place, outcome, permit) in receive {
            let bytes = outcome.as_ref().map_or(0, Bytes::len) as u64;
            answered(place, outcome);
            missing[place] = false;
            self.counts.held.fetch_sub(bytes, Ordering::Relaxed);
            drop(permit);
        }
        (0..ranges.len()).filter(|place| missing[*place]).for_each(|place| answered(place, Err(gone())));
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(task);
        }
    }
}
