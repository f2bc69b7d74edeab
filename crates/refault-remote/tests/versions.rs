//! Whether an object that changes is noticed, by servers that name its versions in several ways.

mod common;

use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{Naming, Server, contents};
use refault_cache::{CacheOptions, CachedFile, PageCache};
use refault_remote::{RemoteOptions, RemoteStore};

const MIB: usize = 1 << 20;

fn options() -> RemoteOptions {
    RemoteOptions { retry_after: Duration::from_millis(1), ..RemoteOptions::default() }
}

/// A server whose answers name versions in such lines.
fn server(bytes: Vec<u8>, named: Naming) -> Server {
    let server = Server::start(bytes);
    *server.served.named.lock().expect("no test panics under it") = Some(named);
    server.served.careless.store(1, Ordering::Relaxed);
    server
}

fn open(server: &Server, options: &RemoteOptions) -> (RemoteStore, CachedFile) {
    let remote = RemoteStore::from_url(&server.url(), options).expect("a store");
    let cache = PageCache::new(&CacheOptions { memory: MIB as u64, policy: "lru".into(), ..CacheOptions::default() })
        .expect("a cache");
    let file = cache.attach(Box::new(remote.open("object").expect("is there"))).expect("opens");
    (remote, file)
}

/// Reads a part at each end of an object that changes between the two, as long as before.
fn read_two_versions(named: Naming) -> Result<(), String> {
    let server = server(contents(MIB, 1), named);
    let (_remote, file) = open(&server, &options());
    let mut seen = [0; 4096];
    file.read_at(&mut seen, 0).map_err(|error| format!("the first: {error}"))?;
    server.change(contents(MIB, 2));
    file.read_at(&mut seen, MIB as u64 - 4096).map(drop).map_err(|error| error.to_string())
}

#[test]
fn all_that_names_a_version_is_compared() {
    let weak = |_, version| format!("ETag: W/\"a\"\r\nLast-Modified: Tue, 01 Jan 2019 00:00:0{version} GMT\r\n");
    let strong = |_, version| format!("ETag: \"a\"\r\nLast-Modified: Tue, 01 Jan 2019 00:00:0{version} GMT\r\n");
    let tag = |_, version| format!("ETag: W/\"{version}\"\r\nLast-Modified: Tue, 01 Jan 2019 00:00:00 GMT\r\n");
    let time = |_, version| format!("Last-Modified: Tue, 01 Jan 2019 00:00:0{version} GMT\r\n");
    let no_longer = |_, version| match version {
        1 => "ETag: W/\"a\"\r\nLast-Modified: Tue, 01 Jan 2019 00:00:00 GMT\r\n".to_owned(),
        _ => "ETag: W/\"a\"\r\n".to_owned(),
    };
    let all: [Naming; 5] = [weak, strong, tag, time, no_longer];
    for (number, named) in all.into_iter().enumerate() {
        let error = read_two_versions(named).expect_err("a mixture of two versions");
        assert!(error.contains("was changed after it was opened"), "{number}: {error}");
    }
}

#[test]
fn a_tag_that_is_weak_in_some_answers_is_the_same_tag() {
    fn name(weak: bool) -> String {
        let time = "Last-Modified: Tue, 01 Jan 2019 00:00:00 GMT\r\n";
        format!("ETag: {}\"v1\"\r\n{time}", if weak { "W/" } else { "" })
    }
    for named in [(|head, _| name(!head)) as Naming, |head, _| name(head)] {
        let expected = contents(MIB, 3);
        let server = server(expected.clone(), named);
        let (_remote, file) = open(&server, &options());
        let mut seen = [0; 4096];
        file.read_at(&mut seen, 8192).expect("the object is as it was");
        assert!(seen == expected[8192..12288]);
    }
}
