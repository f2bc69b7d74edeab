//! Requests to the window on pools (HTTP), and what members say to a pool's daemon: any bytes are a request or a named
//! problem, and no member's words make the others' memory more than the pool.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refault_pool::serve::http;
use refault_pool::shared::ledger::Ledger;
use refault_pool::shared::protocol::{MAX_LINE, Request, Wishes, receive};

const POOL: u64 = 1 << 30;
const ROUND: u64 = 200_000_000;

fuzz_target!(|bytes: &[u8]| {
    window(bytes);
    daemon(bytes);
});

fn window(bytes: &[u8]) {
    match http::parse(bytes) {
        Ok(Some(request)) => {
            assert!(request.body.len() <= http::MAX_REQUEST);
            assert!(!request.path.contains('?') && request.host().is_none_or(|host| !host.contains('\n')));
            assert!(request.bearer().is_none_or(|token| token.trim() == token));
            // Nothing that has not arrived yet takes a request back, and it is none before it has arrived.
            let longer = [bytes, b"GET / HTTP/1.1\r\n\r\n"].concat();
            assert_eq!(http::parse(&longer), Ok(Some(request)));
        }
        Ok(None) => {}
        Err(problem) => assert!(problem.status() >= 400 && problem.words().ends_with('\n')),
    }
}

fn daemon(bytes: &[u8]) {
    let mut ledger = Ledger::new(POOL, ROUND, (bytes.len() % 2 == 1).then_some(0.01));
    let (mut from, mut id, mut claimed) = (bytes, 0, false);
    for round in 1..100 {
        match receive::<Request>(&mut from, MAX_LINE) {
            Ok(Some(Request::Join { wishes, has, .. })) => {
                id += 1;
                let terms = wishes.terms(Wishes::default());
                if has > 0 || ledger.could_hold(&terms) {
                    ledger.join(id, terms, has);
                    // What was granted by a daemon before is believed.
                    claimed |= has > 0;
                }
            }
            Ok(Some(Request::Report(figures))) => ledger.report(id, *figures),
            Ok(Some(Request::Budget { pid, bytes })) => { let _ = ledger.set_budget(pid % 4, bytes); },
            Ok(Some(Request::Status)) => ledger.leave(id),
            Ok(Some(Request::History)) => {}
            Ok(None) | Err(_) => break,
        }
        ledger.round(round * ROUND, ROUND);
        assert!(claimed || ledger.committed() <= POOL, "{}", ledger.committed());
    }
}
