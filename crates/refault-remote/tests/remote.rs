//! The page cache above objects of an HTTP server that is slow, refuses, breaks off, and changes them; and of an S3
//! emulation, where one is there.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::{Server, contents};
use refault_cache::{CacheOptions, CachedFile, PageCache};
use refault_remote::{RemoteOptions, RemoteStore};
use refault_testing::Random;

const MIB: usize = 1 << 20;

fn options() -> RemoteOptions {
    RemoteOptions { retry_after: Duration::from_millis(1), ..RemoteOptions::default() }
}

fn cache(memory: usize) -> PageCache {
    PageCache::new(&CacheOptions { memory: memory as u64, policy: "lru".into(), ..CacheOptions::default() })
        .expect("a cache")
}

fn open(server: &Server, options: &RemoteOptions, memory: usize) -> (RemoteStore, PageCache, CachedFile) {
    let remote = RemoteStore::from_url(&server.url(), options).expect("a store");
    let cache = cache(memory);
    let file = cache.attach(Box::new(remote.open("object").expect("is there"))).expect("opens");
    (remote, cache, file)
}

/// Reads at random, by several threads, and compares.
fn read_all_over(file: &CachedFile, expected: &[u8], reads: usize) {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for _ in 0..reads {
                    let at = random.below(expected.len() as u64) as usize;
                    let mut seen = vec![0; [1, 100, 4096, 70_000][random.below(4) as usize]];
                    let read = file.read_at(&mut seen, at as u64).expect("reads");
                    assert_eq!(read, seen.len().min(expected.len() - at));
                    assert!(seen[..read] == expected[at..at + read], "{read} bytes at {at}");
                }
            });
        }
    });
}

#[test]
fn what_is_read_is_what_the_server_has_though_it_fails() {
    let expected = contents(3 * MIB + 1234, 1);
    for local in [false, true] {
        let server = Server::start(expected.clone());
        let directory = tempfile::tempdir().expect("a directory");
        let directory = local.then(|| directory.path().to_owned());
        server.served.refused.store(7, Ordering::Relaxed);
        server.served.broken.store(9, Ordering::Relaxed);
        let options = RemoteOptions { retries: 12, directory, ..options() };
        let (remote, cache, file) = open(&server, &options, MIB);
        read_all_over(&file, &expected, 100);
        let counts = remote.counts();
        assert!(counts.retries > 5, "{counts:?}: nothing has failed");
        assert_eq!(counts.damaged_blocks, 0);
        assert_eq!(counts.local_bytes > 0, local);
        assert!(cache.report().misses > 0);
    }
}

#[test]
fn a_server_that_stays_down_is_told_after_the_limit_and_asked_again_later() {
    let server = Server::start(contents(MIB, 2));
    let (remote, _cache, file) = open(&server, &RemoteOptions { retries: 3, ..options() }, MIB);
    server.served.refused.store(1, Ordering::Relaxed);
    let before = server.served.requests.load(Ordering::Relaxed);
    let error = file.read_at(&mut [0; 10], 5000).expect_err("it is down");
    assert!(error.to_string().contains("503"), "{error}");
    assert_eq!(server.served.requests.load(Ordering::Relaxed) - before, 4, "one try and three more");
    assert_eq!(remote.counts().retries, 3);
    server.served.refused.store(0, Ordering::Relaxed);
    file.read_at(&mut [0; 10], 5000).expect("it is well again");
    let missing = remote.open("nothing").map(drop).expect_err("not there");
    assert!(missing.to_string().starts_with("nothing: "), "{missing}");
    drop(server);
}

#[test]
fn an_object_that_changes_is_an_error_and_never_a_mixture() {
    for careless in [0, 1] {
        let (old, new) = (contents(MIB, 3), contents(MIB, 4));
        let server = Server::start(old.clone());
        server.served.careless.store(careless, Ordering::Relaxed);
        let (remote, _cache, file) = open(&server, &options(), MIB);
        let mut seen = vec![0; 4096];
        file.read_at(&mut seen, 0).expect("reads");
        server.change(new.clone());
        let error = file.read_at(&mut seen, 500_000).expect_err("another version");
        assert!(error.to_string().contains("object was changed after it was opened"), "{error}");
        assert_eq!(remote.counts().retries, 0, "that does not pass");
        file.read_at(&mut seen, 0).expect("it is in memory");
        assert!(seen == old[..4096], "what is in memory is of the version that was opened");
        let again = cache(MIB).attach(Box::new(remote.open("object").expect("is there"))).expect("opens");
        again.read_at(&mut seen, 500_000 / 4096 * 4096).expect("reads");
        assert!(seen == new[500_000 / 4096 * 4096..][..4096]);
    }
}

#[test]
fn ranges_of_one_call_are_few_requests_and_those_under_way_are_bounded() {
    let expected = contents(16 * MIB, 5);
    let server = Server::start(expected.clone());
    let (_remote, _cache, file) = open(&server, &options(), 32 * MIB);
    let before = server.served.requests.load(Ordering::Relaxed);
    // Twenty columns' chunks near each other, and one far away.
    let mut ranges: Vec<_> = (0..20).map(|number| number * 100_000..number * 100_000 + 20_000).collect();
    ranges.push(12 << 20..(12 << 20) + 5000);
    file.prefetch_ranges(&ranges);
    for range in &ranges {
        let mut seen = vec![0; (range.end - range.start) as usize];
        file.read_at(&mut seen, range.start).expect("reads");
        assert!(seen == expected[range.start as usize..range.end as usize]);
    }
    assert_eq!(server.served.requests.load(Ordering::Relaxed) - before, 2);

    let server = Server::start(expected.clone());
    server.served.latency.store(5, Ordering::Relaxed);
    let (_remote, _cache, file) = open(&server, &RemoteOptions { in_flight: 3, gap: 0, ..options() }, 32 * MIB);
    let ranges: Vec<_> = (0..60).map(|number| number * 200_000..number * 200_000 + 100).collect();
    file.prefetch_ranges(&ranges);
    read_all_over(&file, &expected, 50);
    assert_eq!(server.served.most.load(Ordering::SeqCst), 3);
}

#[test]
fn answers_are_held_one_per_request_under_way_and_no_longer() {
    let expected = contents(16 * MIB, 10);
    for local in [false, true] {
        let server = Server::start(expected.clone());
        let directory = tempfile::tempdir().expect("a directory");
        let directory = local.then(|| directory.path().to_owned());
        let options = RemoteOptions { in_flight: 2, gap: 0, request: 256 << 10, directory, ..options() };
        let (remote, _cache, file) = open(&server, &options, 32 * MIB);
        // With gaps, so that each range is a request.
        let ranges: Vec<_> = (0..60u64).map(|number| number * 262_144..number * 262_144 + 196_608).collect();
        file.prefetch_ranges(&ranges);
        for range in &ranges {
            let mut seen = vec![0; 196_608];
            file.read_at(&mut seen, range.start).expect("reads");
            assert!(seen == expected[range.start as usize..range.end as usize]);
        }
        let counts = remote.counts();
        assert!(counts.most_held_bytes <= 2 * (256 << 10), "{counts:?}");
        assert!(counts.fetched_bytes >= 60 * 196_608, "{counts:?}");
    }
}

#[test]
fn a_request_that_waits_before_it_is_repeated_is_in_nobodys_way() {
    let expected = contents(MIB, 11);
    let server = Server::start(expected.clone());
    let after = Duration::from_secs(4);
    let (remote, _cache, file) = open(&server, &RemoteOptions { in_flight: 1, retry_after: after, ..options() }, MIB);
    server.served.refused.store(1, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| file.read_at(&mut [0; 10], 0));
        while remote.counts().retries == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        server.served.refused.store(0, Ordering::Relaxed);
        let mut seen = [0; 10];
        file.read_at(&mut seen, 500_000).expect("reads");
        assert!(!waits.is_finished(), "the only request that is allowed was held by one that slept");
        assert_eq!(seen, expected[500_000..500_010]);
        waits.join().expect("ends").expect("is repeated");
    });
}

#[test]
fn an_object_longer_than_any_file_is_refused() {
    let server = Server::start(contents(MIB, 12));
    let remote = RemoteStore::from_url(&server.url(), &options()).expect("a store");
    for claimed in [u64::MAX, u64::MAX - 4096, 1 << 63] {
        server.served.claimed.store(claimed, Ordering::Relaxed);
        let refused = remote.open("object").map(drop).expect_err("nothing is as long");
        assert!(refused.to_string().contains(&format!("{claimed} bytes: no file has more")), "{refused}");
    }
    server.served.claimed.store(i64::MAX as u64, Ordering::Relaxed);
    let file = cache(MIB).attach(Box::new(remote.open("object").expect("is there"))).expect("opens");
    file.read_at(&mut [0; 10], i64::MAX as u64 - 5000).expect_err("there is nothing, and no page has such a number");
    file.evict(0..u64::MAX);
    file.prefetch(0..u64::MAX);
}

#[test]
fn servers_that_call_their_objects_alike_do_not_share_local_files() {
    let all = [contents(MIB, 7), contents(MIB, 8)];
    let directory = tempfile::tempdir().expect("a directory");
    let options = RemoteOptions { directory: Some(directory.path().to_owned()), ..options() };
    for expected in &all {
        // The same name, length, ETag and time.
        let server = Server::start(expected.clone());
        let (_remote, _cache, file) = open(&server, &options, MIB);
        let mut seen = vec![0; expected.len()];
        assert_eq!(file.read_at(&mut seen, 0).expect("reads"), seen.len());
        assert!(seen == *expected, "bytes of another server");
    }
    use std::os::unix::fs::PermissionsExt;
    let files: Vec<_> = std::fs::read_dir(directory.path()).expect("lists").flatten().collect();
    assert_eq!(files.len(), 2);
    for file in files {
        assert_eq!(file.metadata().expect("is there").permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn an_object_without_a_version_is_refused() {
    let server = Server::start(contents(MIB, 9));
    server.served.nameless.store(1, Ordering::Relaxed);
    let remote = RemoteStore::from_url(&server.url(), &options()).expect("a store");
    let refused = remote.open("object").map(drop).expect_err("no reader could tell whether it changes");
    assert!(refused.to_string().contains("neither ETag nor Last-Modified"), "{refused}");
}

#[test]
fn a_local_file_survives_a_restart_and_damage_to_it_is_fetched_again() {
    let expected = contents(4 * MIB, 6);
    let server = Server::start(expected.clone());
    let directory = tempfile::tempdir().expect("a directory");
    let options = RemoteOptions { directory: Some(directory.path().to_owned()), ..options() };
    let whole = |file: &CachedFile| {
        let mut seen = vec![0; expected.len()];
        assert_eq!(file.read_at(&mut seen, 0).expect("reads"), seen.len());
        assert!(seen == expected);
    };
    let (remote, _, file) = open(&server, &options, MIB);
    whole(&file);
    let busy = remote.open("object").map(drop).expect_err("one user of a file");
    assert!(busy.to_string().contains("another user of it is there"), "{busy}");
    drop(file);
    let sent = server.served.sent.load(Ordering::Relaxed);
    assert!(sent >= expected.len() as u64);

    let (remote, _, file) = open(&server, &options, MIB);
    whole(&file);
    assert_eq!(server.served.sent.load(Ordering::Relaxed), sent, "nothing is fetched a second time");
    assert_eq!(remote.counts().requests, 0);
    drop(file);

    let path = std::fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&path).expect("reads");
    let places = [5000, 300_000, 1_000_000];
    places.iter().for_each(|place| bytes[*place] ^= 0x10);
    bytes.truncate(bytes.len() - 100);
    std::fs::write(&path, bytes).expect("writes");
    let (remote, _, file) = open(&server, &options, MIB);
    whole(&file);
    let counts = remote.counts();
    assert_eq!(counts.damaged_blocks, 4, "three flipped, one torn: {counts:?}");
    drop(file);

    server.change(contents(4 * MIB, 7));
    let (_, _, file) = open(&server, &options, MIB);
    let mut seen = vec![0; 100];
    file.read_at(&mut seen, MIB as u64).expect("reads");
    assert!(seen == contents(4 * MIB, 7)[MIB..MIB + 100], "a block of the old version");
}

#[test]
fn files_are_a_store_too_and_objects_are_read_only() {
    let directory = tempfile::tempdir().expect("a directory");
    let expected = contents(300_000, 8);
    std::fs::write(directory.path().join("object"), &expected).expect("writes");
    let url = format!("file://{}", directory.path().display());
    let remote = RemoteStore::from_url(&url, &options()).expect("a store");
    let file = cache(MIB).attach(Box::new(remote.open("object").expect("is there"))).expect("opens");
    read_all_over(&file, &expected, 50);
    let error = file.write_at(b"x", 0).expect_err("read only");
    assert!(error.to_string().contains("objects in stores are read only"), "{error}");
    for url in ["", "ftp://host/x", "s3", "http://"] {
        assert!(RemoteStore::from_url(url, &options()).is_err(), "{url}");
    }
    let wrong = [RemoteOptions { in_flight: 0, ..options() }, RemoteOptions { silence: Duration::ZERO, ..options() }];
    assert!(wrong.iter().all(|wrong| RemoteStore::from_url(&url, wrong).is_err()));
}

/// `scripts/dev/remote-s3` starts an emulation of S3, and runs this.
#[test]
fn an_emulation_of_s3_gives_what_was_put() {
    let Ok(url) = std::env::var("REFAULT_S3_URL") else {
        refault_testing::skip("no emulation of S3: scripts/dev/remote-s3 runs this test with one");
        return;
    };
    let put = std::env::var("REFAULT_S3_OBJECT").expect("the file that was put");
    let expected = std::fs::read(put).expect("reads");
    let remote = RemoteStore::from_url(&url, &options()).expect("a store");
    let file = cache(MIB).attach(Box::new(remote.open("object").expect("is there"))).expect("opens");
    read_all_over(&file, &expected, 100);
    assert!(remote.counts().fetched_bytes > 0);
}
