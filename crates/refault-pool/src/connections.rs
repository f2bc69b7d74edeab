//! Connections that come in, each served by a thread of its own.
//!
//! Invariant: no more than [`Bounds::most`] are served at once; those beyond are closed as they come. Cost: a thread
//! with a stack of [`Bounds::stack_bytes`] for each connection.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What is waited for after a connection could not be taken: for want of descriptors, say.
const PAUSE: Duration = Duration::from_millis(100);

/// How connections are served.
pub(crate) struct Bounds {
    /// Connections at once.
    pub most: usize,
    /// The name of their threads.
    pub thread: &'static str,
    /// The stack of each.
    pub stack_bytes: usize,
}

/// Serves each connection that comes in. Whatever goes wrong with one, the others go on.
pub(crate) fn serve_each<S: Send + 'static>(
    incoming: impl Iterator<Item = io::Result<S>>,
    bounds: &Bounds,
    serve: impl Fn(S) -> io::Result<()> + Send + Sync + 'static,
) {
    let (open, serve) = (Arc::new(AtomicUsize::new(0)), Arc::new(serve));
    for stream in incoming {
        let Ok(stream) = stream else {
            std::thread::sleep(PAUSE);
            continue;
        };
        // It counts until the thread drops it, by whatever way, or until there is no thread to do so.
        let open = Open::new(&open);
        if open.others >= bounds.most {
            continue;
        }
        let serve = Arc::clone(&serve);
        let thread = std::thread::Builder::new().name(bounds.thread.into()).stack_size(bounds.stack_bytes);
        let _ = thread.spawn(move || {
            let _open = open;
            // The connection is over, however it ended.
            let _ = serve(stream);
        });
    }
}

/// A connection that counts.
struct Open {
    count: Arc<AtomicUsize>,
    others: usize,
}

impl Open {
    fn new(count: &Arc<AtomicUsize>) -> Open {
        Open { others: count.fetch_add(1, Ordering::Relaxed), count: Arc::clone(count) }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn no_more_than_the_bound_are_served_at_once_and_a_panic_frees_its_place() {
        let (ended, ends) = mpsc::channel::<()>();
        let (told, tell) = mpsc::channel();
        let ends = std::sync::Mutex::new(ends);
        let bounds = Bounds { most: 2, thread: "test", stack_bytes: 128 << 10 };
        // Without room: what was offered before is dealt with when the next is taken.
        let (offer, offers) = mpsc::sync_channel::<io::Result<u32>>(0);
        let server = std::thread::spawn(move || {
            serve_each(offers.into_iter(), &bounds, move |number| {
                told.send(number).expect("the test listens");
                ends.lock().map(|ends| ends.recv()).expect("no panic under the lock").expect("the test says when");
                if number == 1 { panic!("a connection goes wrong") } else { Ok(()) }
            });
        });
        for number in [1, 2, 3] {
            offer.send(Ok(number)).expect("it serves");
        }
        let mut first: Vec<u32> = tell.iter().take(2).collect();
        first.sort_unstable();
        assert_eq!(first, [1, 2]);
        offer.send(Err(io::ErrorKind::Other.into())).expect("it serves");
        ended.send(()).expect("they wait");
        ended.send(()).expect("they wait");
        // The places are free once the threads are gone.
        let mut fourth = None;
        for _ in 0..100 {
            offer.send(Ok(4)).expect("it serves");
            fourth = tell.recv_timeout(Duration::from_millis(100)).ok();
            if fourth.is_some() {
                break;
            }
        }
        assert_eq!(fourth, Some(4), "the third was closed, and two places are free again");
        drop(offer);
        for _ in 0..200 {
            let _ = ended.send(());
        }
        server.join().expect("ends");
    }
}
