//! An open file, as the cache's threads see it: what is below, how long it is, and what was refused.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use crate::io::backing::Backing;
use crate::io::caught::Caught;
use crate::io::refusal::Refusal;

/// How long it is waited for others to let go of a file that is closed: they do not wait for anything.
const MAX_LETTING_GO: Duration = Duration::from_secs(1);

/// What others have done to a file.
#[derive(Default)]
pub(crate) struct Changed {
    /// Another program has changed it, and it was not reloaded since.
    pub(crate) pending: bool,
    /// How often it was reloaded for that.
    pub(crate) times: u64,
}

/// What the cache's threads need of an open file, and what its handles share.
pub(crate) struct Opened {
    pub(crate) number: u32,
    /// What panics there is an error.
    pub(crate) backing: Caught,
    pub(crate) length: AtomicU64,
    /// Held by writes that touch the end of the file, across their I/O: they follow each other.
    pub(crate) tail: Mutex<()>,
    /// Shared by writes; a change of the length has it alone.
    pub(crate) resizing: RwLock<()>,
    /// Held while the device makes the file durable: who comes second knows how it went.
    pub(crate) settling: Mutex<()>,
    /// Pages that were read ahead and evicted before they were asked for.
    pub(crate) unread: AtomicU32,
    /// What its device has refused, until each handle was told.
    pub(crate) refusal: Refusal,
    /// See [`crate::CachedFile::forget_on_failure`].
    pub(crate) forgets: AtomicBool,
    /// What others have done to it.
    pub(crate) changed: Mutex<Changed>,
}

impl Opened {
    /// A file of `bytes` bytes.
    pub(crate) fn new(number: u32, backing: Box<dyn Backing>, bytes: u64) -> Opened {
        Opened {
            number,
            length: AtomicU64::new(bytes),
            backing: Caught(backing),
            tail: Mutex::default(),
            resizing: RwLock::default(),
            settling: Mutex::default(),
            unread: AtomicU32::new(0),
            refusal: Refusal::default(),
            forgets: AtomicBool::new(false),
            changed: Mutex::default(),
        }
    }

    /// Whether what the device may have lost is forgotten.
    pub(crate) fn forgets(&self) -> bool {
        self.forgets.load(Ordering::Relaxed)
    }

    pub(crate) fn len(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }
}

/// Bytes of what is below a file.
pub(crate) fn length_of(backing: &dyn Backing) -> io::Result<u64> {
    let bytes = backing.len()?;
    if bytes > i64::MAX as u64 {
        let what = format!("a length of {bytes} bytes: no file has more than {}", i64::MAX);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// The thread that read last may hold a descriptor still. Closed later, it would take locks with it that this process
/// has on the file by then (fcntl(2)).
pub(crate) fn waits_for_others<T>(shared: &Arc<T>) {
    if Arc::strong_count(shared) == 1 {
        return;
    }
    let until = Instant::now() + MAX_LETTING_GO;
    while Arc::strong_count(shared) > 1 && Instant::now() < until {
        std::thread::yield_now();
    }
}
