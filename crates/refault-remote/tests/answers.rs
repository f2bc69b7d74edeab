//! Answers that are slow, too long, or wrong, and servers that say when they want to be asked again.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::{MIB, Server, contents, open, options};
use refault_remote::RemoteOptions;

#[test]
fn a_server_that_is_slow_is_waited_for_and_one_that_is_silent_is_not() {
    let expected = contents(MIB, 1);
    let server = Server::start(expected.clone());
    let silence = Duration::from_millis(600);
    let (_remote, file) = open(&server, &RemoteOptions { silence, retries: 0, ..options() });
    server.served.drip.store(120, Ordering::Relaxed);
    let mut seen = vec![0; 4096];
    let start = Instant::now();
    file.read_at(&mut seen, 0).expect("bytes come all the time");
    assert!(start.elapsed() > silence, "longer than the limit for silence");
    assert!(seen == expected[..4096]);
    server.served.drip.store(20_000, Ordering::Relaxed);
    let start = Instant::now();
    file.read_at(&mut seen, MIB as u64 / 2).expect_err("nothing comes");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn an_answer_that_is_too_long_is_refused_before_it_is_read() {
    let server = Server::start(contents(MIB, 2));
    let (remote, file) = open(&server, &options());
    let too_many = 256 * MIB as u64;
    server.served.too_many.store(too_many, Ordering::Relaxed);
    let error = file.read_at(&mut [0; 4096], 0).expect_err("more than was asked for");
    assert!(error.to_string().contains("more than"), "{error}");
    let counts = remote.counts();
    assert_eq!((counts.requests, counts.retries), (1, 0), "it does that each time");
    assert!(counts.fetched_bytes < 4 * MIB as u64, "{counts:?}");
}

/// Opens an object, after which the server is spoilt; a read fails with these words, after one request.
fn fails_once(words: &str, spoil: impl FnOnce(&Server)) {
    let server = Server::start(contents(MIB, 3));
    let (remote, file) = open(&server, &options());
    spoil(&server);
    let error = file.read_at(&mut [0; 4096], 8192).expect_err("nothing of use comes");
    assert!(error.to_string().contains(words), "{error}");
    assert_eq!(remote.counts().requests, 1, "the same would come again: {error}");
}

#[test]
fn answers_that_will_not_become_right_are_not_asked_for_again() {
    let instead = |server: &Server, line| *server.served.instead.lock().expect("no test panics under it") = Some(line);
    fails_once("was changed after it was opened", |server| {
        server.change(contents(100, 3));
        instead(server, "416 Range Not Satisfiable\r\nContent-Range: bytes */100");
    });
    fails_once("400", |server| instead(server, "400 Bad Request"));
    fails_once("8192", |server| server.served.shifted.store(4096, Ordering::Relaxed));
    fails_once("where no file does", |server| server.served.shifted.store(u64::MAX - 12_287, Ordering::Relaxed));
    fails_once("Content-Length", |server| server.served.endless.store(1, Ordering::Relaxed));
}

#[test]
fn a_server_is_asked_again_when_it_wants_to_be() {
    for refusal in ["429 Too Many Requests\r\nRetry-After: 1", "503 Service Unavailable\r\nRetry-After: 1"] {
        let expected = contents(MIB, 4);
        let server = Server::start(expected.clone());
        let (remote, file) = open(&server, &options());
        *server.served.instead.lock().expect("no test panics under it") = Some(refusal);
        let start = Instant::now();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut seen = vec![0; 4096];
                file.read_at(&mut seen, 8192).map(|_| seen)
            });
            while remote.counts().retries == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            *server.served.instead.lock().expect("no test panics under it") = None;
            assert!(reader.join().expect("ends").expect("reads") == expected[8192..12288]);
        });
        assert!(start.elapsed() >= Duration::from_secs(1), "{refusal}: {:?}", start.elapsed());
        assert_eq!(remote.counts().requests, 2);
    }
}
