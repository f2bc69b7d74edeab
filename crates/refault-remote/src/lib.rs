//! Objects in stores behind the page cache.
//!
//! A [`RemoteObject`] is a [`refault_cache::Backing`]: [`refault_cache::PageCache::attach`] puts the cache above it.
//! What the cache misses is fetched by ranges from any [`object_store::ObjectStore`] (S3, HTTP, a local file):
//!
//! ```text
//! CachedFile ──▶ pages missing ──▶ RemoteObject: local file? ──▶ read, checksum
//!                                      └─ no ─▶ ranges that lie near each other: one GET (If-Match), retried
//! ```
//!
//! What it promises:
//!
//! - **The object is the one that was opened**: each request carries the object's ETag if it is strong, and each
//!   answer's ETag, time of the last change and length are compared. An object that was changed meanwhile is an error
//!   in words, never a mixture of both, as far as these tell it. Without a strong ETag it is the time, in whole
//!   seconds. An object that was changed in the second in which it is opened is opened in the next. What was changed
//!   less than a minute before is not kept in a local file. A change that leaves tag, time and length alike is not
//!   noticed.
//! - **Requests are few and bounded**: ranges that are wanted together ([`refault_cache::CachedFile::prefetch_ranges`],
//!   windows of readahead) and lie near each other are fetched by one request; no more than
//!   [`RemoteOptions::in_flight`] are under way at a time, for all objects of a [`RemoteStore`].
//! - **Failures that pass are tried again**, [`RemoteOptions::retries`] times, a little later each time. Then the read
//!   fails with the store's words, and a later one tries again. Answers that will not become right are not asked for
//!   again; slow ones are waited for as long as bytes come.
//! - **The local file is never trusted**: each block carries a checksum that knows object, version and place. A block
//!   that is torn, flipped or another object's is fetched again. It needs no recovery after a crash.
//!
//! Objects are read only: writes fail.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use refault_cache::{CacheOptions, PageCache};
//! use refault_remote::{RemoteOptions, RemoteStore};
//!
//! let remote = RemoteStore::from_url("http://127.0.0.1:9000/data/", &RemoteOptions::default())?;
//! let cache = PageCache::new(&CacheOptions::default())?;
//! let file = cache.attach(Box::new(remote.open("large.bin")?))?;
//! let mut block = vec![0; 100];
//! file.read_at(&mut block, 1 << 30)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod error;
mod http;
mod object;
mod ranges;
mod request;
mod store;
mod tier;

pub use error::{MakeError, OpenError};
pub use object::RemoteObject;
pub use store::{RemoteCounts, RemoteOptions, RemoteStore};
