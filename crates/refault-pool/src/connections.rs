//! Connections that come in, each served by a thread of its own, and places that clients share.
//!
//! Invariants: no more than [`Places::new`] allows are served at once, neither in all nor of one client; those beyond
//! are handed to who refuses them. A place is free again when it is dropped, however its thread ends. Cost: a thread
//! with a stack of [`Threads::stack_bytes`] for each connection, and one entry for each client that has a place.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is waited for after a connection could not be taken: for want of descriptors, say.
const PAUSE: Duration = Duration::from_millis(100);

/// Threads that serve connections.
pub(crate) struct Threads {
    /// Their name.
    pub name: &'static str,
    /// The stack of each.
    pub stack_bytes: usize,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Full {
    /// All are taken.
    All,
    /// This client has its share.
    Client,
}

/// Places, of which each client has a share at most.
pub(crate) struct Places<K> {
    most: usize,
    share: usize,
    taken: Mutex<Taken<K>>,
}

struct Taken<K> {
    all: usize,
    by_client: HashMap<K, usize>,
}

impl<K: Eq + Hash + Clone> Places<K> {
    /// Places in all, and for one client.
    pub(crate) fn new(most: usize, share: usize) -> Arc<Places<K>> {
        Arc::new(Places { most, share, taken: Mutex::new(Taken { all: 0, by_client: HashMap::new() }) })
    }

    /// A place for a client.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn take(self: &Arc<Self>, client: K) -> Result<Place<K>, Full> {
        let mut taken = self.taken();
        let has = taken.by_client.get(&client).copied().unwrap_or(0);
        if has >= self.share {
            return Err(Full::Client);
        }
        if taken.all >= self.most {
            return Err(Full::All);
        }
        taken.all += 1;
        taken.by_client.insert(client.clone(), has + 1);
        Ok(Place { of: Arc::clone(self), client })
    }

    #[cfg(any(feature = "serve", test))]
    /// How many are taken.
    pub(crate) fn count(&self) -> usize {
        self.taken().all
    }

    fn taken(&self) -> MutexGuard<'_, Taken<K>> {
        // Nothing that is done under the lock panics half-way.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place that is taken.
pub(crate) struct Place<K: Eq + Hash + Clone> {
    of: Arc<Places<K>>,
    /// Who has it.
    pub client: K,
}

impl<K: Eq + Hash + Clone> Drop for Place<K> {
    fn drop(&mut self) {
        let mut taken = self.of.taken();
        taken.all -= 1;
        let left = taken.by_client.get(&self.client).map_or(0, |has| has - 1);
        if left == 0 {
            taken.by_client.remove(&self.client);
        } else {
            taken.by_client.insert(self.client.clone(), left);
        }
    }
}

/// Serves each connection that comes in and has a place. Whatever goes wrong with one, the others go on.
pub(crate) fn serve_each<S: Send + 'static, K: Eq + Hash + Clone + Send + Sync + 'static>(
    incoming: impl Iterator<Item = io::Result<S>>,
    threads: &Threads,
    places: &Arc<Places<K>>,
    client: impl Fn(&S) -> K,
    refuse: impl Fn(S, Full),
    serve: impl Fn(S, Place<K>) -> io::Result<()> + Send + Sync + 'static,
) {
    let serve = Arc::new(serve);
    for stream in incoming {
        let Ok(stream) = stream else {
            std::thread::sleep(PAUSE);
            continue;
        };
        // It is taken until the thread drops it, by whatever way, or until there is no thread to do so.
        let place = match places.take(client(&stream)) {
            Ok(place) => place,
            Err(full) => {
                refuse(stream, full);
                continue;
            }
        };
        let serve = Arc::clone(&serve);
        let thread = std::thread::Builder::new().name(threads.name.into()).stack_size(threads.stack_bytes);
        let _ = thread.spawn(move || {
            // The connection is over, however it ended.
            let _ = serve(stream, place);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_client_has_its_share_and_leaves_the_rest_to_others() {
        let places = Places::new(5, 3);
        let mut first: Vec<_> = (0..3).map(|_| places.take("first").expect("its share")).collect();
        assert_eq!(places.take("first").err(), Some(Full::Client));
        let second: Vec<_> = (0..2).map(|_| places.take("second").expect("two are left")).collect();
        assert_eq!((places.take("second").err(), places.take("third").err()), (Some(Full::All), Some(Full::All)));
        assert_eq!(places.take("first").err(), Some(Full::Client), "it would have to wait for its own");
        first.pop();
        assert_eq!(places.count(), 4);
        first.push(places.take("first").expect("one of its own is free"));
        drop(second);
        drop(first);
        assert!(places.count() == 0 && places.taken().by_client.is_empty(), "who has gone is forgotten");
    }

    #[test]
    fn no_more_than_the_bound_are_served_at_once_and_a_panic_frees_its_place() {
        let (ended, ends) = mpsc::channel::<()>();
        let (told, tell) = mpsc::channel();
        let (refused, refusals) = mpsc::channel();
        let ends = Mutex::new(ends);
        let threads = Threads { name: "test", stack_bytes: 128 << 10 };
        let places = Places::new(2, 2);
        // Without room: what was offered before is dealt with when the next is taken.
        let (offer, offers) = mpsc::sync_channel::<io::Result<u32>>(0);
        let server = std::thread::spawn(move || {
            let refuse = move |number, full| refused.send((number, full)).expect("the test listens");
            serve_each(
                offers.into_iter(),
                &threads,
                &places,
                |_| (),
                refuse,
                move |number, _place| {
                    told.send(number).expect("the test listens");
                    ends.lock().map(|ends| ends.recv()).expect("no panic under the lock").expect("the test says when");
                    if number == 1 { panic!("a connection goes wrong") } else { Ok(()) }
                },
            );
        });
        for number in [1, 2, 3] {
            offer.send(Ok(number)).expect("it serves");
        }
        let mut first: Vec<u32> = tell.iter().take(2).collect();
        first.sort_unstable();
        assert_eq!(first, [1, 2]);
        offer.send(Err(io::ErrorKind::Other.into())).expect("it serves");
        assert_eq!(refusals.recv().expect("it was refused"), (3, Full::Client));
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
        assert_eq!(fourth, Some(4), "the third was refused, and two places are free again");
        drop(offer);
        for _ in 0..200 {
            let _ = ended.send(());
        }
        server.join().expect("ends");
    }
}
