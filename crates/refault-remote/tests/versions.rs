//! Whether an object that changes is noticed, by servers that name its versions in several ways.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{MIB, Naming, Server, contents, open, options};
use refault_remote::{RemoteCounts, RemoteOptions, RemoteStore};

/// A server whose answers name versions in such lines.
fn server(bytes: Vec<u8>, named: Naming) -> Server {
    let server = Server::start(bytes);
    *server.served.named.lock().expect("no test panics under it") = Some(named);
    server.served.careless.store(1, Ordering::Relaxed);
    server
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

/// What was fetched for one read of the whole object by each of two stores in turn, with a local file.
fn fetched_twice(named: Naming, changes: bool) -> (Vec<u8>, [RemoteCounts; 2]) {
    let server = server(contents(MIB, 4), named);
    let directory = tempfile::tempdir().expect("a directory");
    let options = RemoteOptions { directory: Some(directory.path().to_owned()), ..options() };
    let mut seen = vec![0; MIB];
    let counts = [0, 1].map(|turn| {
        if changes && turn == 1 {
            server.change(contents(MIB, 5));
        }
        let (remote, file) = open(&server, &options);
        assert_eq!(file.read_at(&mut seen, 0).expect("reads"), MIB);
        remote.counts()
    });
    (seen, counts)
}

#[test]
fn what_may_be_another_version_at_the_same_time_is_not_kept() {
    let young =
        |_, _| "Date: Tue, 01 Jan 2019 00:00:59 GMT\r\nLast-Modified: Tue, 01 Jan 2019 00:00:00 GMT\r\n".to_owned();
    let weak = |_, _| "ETag: W/\"a\"\r\nLast-Modified: Tue, 01 Jan 2999 00:00:00 GMT\r\n".to_owned();
    let timeless = |_, _| "ETag: W/\"a\"\r\n".to_owned();
    for named in [young as Naming, weak, timeless] {
        let (seen, counts) = fetched_twice(named, true);
        assert!(seen == contents(MIB, 5), "bytes of the version before");
        assert_eq!(counts.map(|counts| counts.not_kept), [1, 1]);
    }
    let old =
        |_, _| "Date: Tue, 01 Jan 2019 00:01:00 GMT\r\nLast-Modified: Tue, 01 Jan 2019 00:00:00 GMT\r\n".to_owned();
    let dateless = |_, _| "Last-Modified: Tue, 01 Jan 2019 00:00:00 GMT\r\n".to_owned();
    let strong = |_, _| {
        "ETag: \"a\"\r\nDate: Tue, 01 Jan 2019 00:00:59 GMT\r\nLast-Modified: Tue, 01 Jan 2019 00:00:00 GMT\r\n"
            .to_owned()
    };
    for named in [old as Naming, dateless, strong] {
        let (seen, counts) = fetched_twice(named, false);
        assert!(seen == contents(MIB, 4));
        assert_eq!(counts.map(|counts| counts.not_kept), [0, 0]);
        assert_eq!(counts[1].requests, 0, "it was kept");
    }
}

#[test]
fn an_object_is_read_without_a_local_file_where_the_disk_is_full() {
    let expected = contents(MIB, 6);
    let server = Server::start(expected.clone());
    let directory = tempfile::tempdir().expect("a directory");
    let options = RemoteOptions { directory: Some(directory.path().to_owned()), ..options() };
    drop(open(&server, &options));
    let path = std::fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_file(&path).expect("is removed");
    std::os::unix::fs::symlink("/dev/full", &path).expect("stands for a full disk");
    let (remote, file) = open(&server, &options);
    let mut seen = vec![0; MIB];
    assert_eq!(file.read_at(&mut seen, 0).expect("reads"), MIB);
    assert!(seen == expected);
    assert_eq!(remote.counts().not_kept, 1);
    std::fs::remove_file(&path).expect("is removed");
    std::fs::create_dir(&path).expect("is made");
    let refused = remote.open("object").map(drop).expect_err("no full disk");
    assert!(refused.to_string().contains("local file of cached blocks"), "{refused}");
}

#[test]
fn an_object_that_was_changed_this_second_is_opened_in_the_next() {
    static SECOND: AtomicU64 = AtomicU64::new(0);
    let named = |head: bool, _| {
        let second = if head { SECOND.fetch_add(1, Ordering::Relaxed) } else { SECOND.load(Ordering::Relaxed) };
        let time = "Tue, 01 Jan 2019 00:00:0";
        format!("Date: {time}{second} GMT\r\nLast-Modified: {time}0 GMT\r\n")
    };
    let server = server(contents(MIB, 7), named);
    let remote = RemoteStore::from_url(&server.url(), &options()).expect("a store");
    let start = Instant::now();
    remote.open("object").map(drop).expect("is there");
    assert_eq!(server.served.requests.load(Ordering::Relaxed), 2, "asked again when a change shows");
    assert!(start.elapsed() >= Duration::from_secs(1));
}
