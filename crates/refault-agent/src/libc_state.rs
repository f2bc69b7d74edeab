//! What libc's own `fork` puts in order in the child, and its `_Fork` does not: locks that other threads held at that moment, and
//! the lists of threads that are not there any more. Without it a child could not start a thread, or write to a stream.
//!
//! Streams are reached by functions that libc exports. The lists of threads and the locks of the dynamic linker are not public: libc
//! says where the lists are to debuggers (`_thread_db_…`, for libthread_db), and the rest lies beside them. What was found is held
//! against what it must contain while the program has one thread; if that is not so, nothing is touched, and a fork at the moment
//! at which another thread is created may leave its child waiting, and its parent with it.
//!
//! Invariant: runs while the process has one thread. Cost: nothing but in a fork.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{c_int, pthread_mutex_t};

/// A list's head, or a thread's place in one: the addresses of the next and the one before.
type Link = [usize; 2];

/// What the dynamic linker keeps about threads, in the order in which glibc 2.34 and later have it.
#[repr(C)]
#[derive(Debug, PartialEq)]
struct Stacks {
    used: Link,
    of_programs: Link,
    cached: Link,
    bytes_cached: usize,
    in_flight: usize,
    lock: c_int,
}

struct Layout {
    stacks: *mut Stacks,
    /// Bytes from the start of libc's record of a thread to its link, and to the kernel's id.
    link: usize,
    tid: usize,
    /// How many threads there are, as far as the end of the program goes: the last one ends it.
    count: *const AtomicU32,
    /// Locks of the dynamic linker: the first, and how many.
    mutexes: (*mut pthread_mutex_t, usize),
}

// SAFETY: addresses of variables of libc's.
unsafe impl Send for Layout {}
// SAFETY: as above; they are written to only where one thread runs.
unsafe impl Sync for Layout {}

static LAYOUT: OnceLock<Option<Layout>> = OnceLock::new();
static STREAMS: OnceLock<Option<Streams>> = OnceLock::new();

/// Looks for all of it. Called when the agent starts, and while no thread runs beside this one.
pub(crate) fn find() {
    // SAFETY: no other thread runs.
    LAYOUT.get_or_init(|| unsafe { Layout::find() });
    STREAMS.get_or_init(Streams::find);
}

/// In the child of a fork: the threads of the parent are gone, and nobody holds a lock of the dynamic linker's. `is_first` says
/// whether the thread that forked was the first of its process, `is_missing` which addresses lead to memory that is not served yet.
///
/// # Safety
/// One thread runs.
pub(crate) unsafe fn forget_other_threads(is_first: bool, is_missing: impl Fn(usize) -> bool) {
    let Some(Some(layout)) = LAYOUT.get() else { return };
    // SAFETY: promised by the caller; what lies there was looked at when the agent started.
    unsafe {
        let this = layout.link_of_this_thread();
        layout.end_used(this, is_missing);
        layout.stacks.write(Stacks::of_one_thread(layout.stacks, this, is_first));
        let list = if is_first { &raw const (*layout.stacks).of_programs } else { &raw const (*layout.stacks).used };
        (this as *mut Link).write([list as usize; 2]);
        (*layout.count).store(1, Ordering::Relaxed);
        for index in 0..layout.mutexes.1 {
            layout.mutexes.0.add(index).write(libc::PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP);
        }
    }
}

/// This thread is none of the program's, which ends with the last of its own.
pub(crate) fn forget_this_thread() {
    if let Some(Some(layout)) = LAYOUT.get() {
        // SAFETY: libc's counter, which it changes by atomic operations only.
        unsafe { (*layout.count).fetch_sub(1, Ordering::Relaxed) };
    }
}

/// In the child of a fork, once its memory is served: nobody holds the lock of a stream.
///
/// # Safety
/// No other thread uses streams.
pub(crate) unsafe fn unlock_streams() {
    if let Some(Some(streams)) = STREAMS.get() {
        // SAFETY: promised by the caller.
        unsafe { streams.unlock() };
    }
}

impl Stacks {
    /// Where these are, and no thread exists but the one with a link at `this`.
    fn of_one_thread(here: *const Stacks, this: usize, is_first: bool) -> Stacks {
        // SAFETY: addresses of fields; nothing is read.
        let (used, of_programs, cached) =
            unsafe { (&raw const (*here).used, &raw const (*here).of_programs, &raw const (*here).cached) };
        let (only, empty) = ([this; 2], |list: *const Link| [list as usize; 2]);
        Stacks {
            used: if is_first { empty(used) } else { only },
            of_programs: if is_first { only } else { empty(of_programs) },
            cached: empty(cached),
            bytes_cached: 0,
            in_flight: 0,
            lock: 0,
        }
    }
}

impl Layout {
    /// # Safety
    /// One thread runs.
    unsafe fn find() -> Option<Layout> {
        let (start, bytes) = symbol_and_size(c"_rtld_global")?;
        let (used, of_programs) =
            (offset(c"_thread_db_rtld_global__dl_stack_used")?, offset(c"_thread_db_rtld_global__dl_stack_user")?);
        let fits =
            of_programs == used + size_of::<Link>() && used + size_of::<Stacks>() <= bytes && start.is_multiple_of(8);
        if !fits || !used.is_multiple_of(8) {
            return None;
        }
        let stacks = (start + used) as *mut Stacks;
        // SAFETY: inside the dynamic linker's variable, which is aligned; plain numbers.
        let words = unsafe { std::slice::from_raw_parts(start as *const u64, used / 8) };
        let (link, tid) = (offset(c"_thread_db_pthread_list")?, offset(c"_thread_db_pthread_tid")?);
        let count = symbol(c"__nptl_nthreads")? as *const AtomicU32;
        let layout = Layout { stacks, link, tid, count, mutexes: unlocked_mutexes(words)? };
        let expected = Stacks::of_one_thread(stacks, layout.link_of_this_thread(), true);
        // SAFETY: as above; nobody changes it meanwhile (promised by the caller).
        let (found, own_id, threads) =
            unsafe { (stacks.read(), ((this_thread() + tid) as *const i32).read(), (*count).load(Ordering::Relaxed)) };
        let own_id_expected = rustix::thread::gettid().as_raw_nonzero().get();
        (found == expected && own_id == own_id_expected && threads == 1).then_some(layout)
    }

    fn link_of_this_thread(&self) -> usize {
        this_thread() + self.link
    }

    /// Says of the threads on stacks of libc's that they are gone, for whoever joins them. Others lie in memory of the program's, and libc
    /// leaves them alone too.
    ///
    /// # Safety
    /// One thread runs, in a process forked from one with these lists.
    unsafe fn end_used(&self, this: usize, is_missing: impl Fn(usize) -> bool) {
        // SAFETY: the links of a list lead to others (promised by the caller), in memory of libc's.
        unsafe {
            let used = &raw mut (*self.stacks).used;
            self.finish_in_flight(is_missing);
            let mut at = (*used)[0];
            while at != used as usize {
                if at != this {
                    ((at - self.link + self.tid) as *mut c_int).write(0);
                }
                at = (*(at as *const Link))[0];
            }
        }
    }

    /// Finishes what another thread was doing to the lists: the lowest bit says that it was adding.
    ///
    /// # Safety
    /// As for [`Layout::end_used`].
    unsafe fn finish_in_flight(&self, is_missing: impl Fn(usize) -> bool) {
        // SAFETY: as there.
        unsafe {
            let in_flight = (*self.stacks).in_flight;
            let link = (in_flight & !1) as *mut Link;
            // Threads whose own stacks are managed memory are in the program's list, which nobody walks.
            if link.is_null() || is_missing(link as usize) || (*link).iter().any(|link| is_missing(*link)) {
                return;
            }
            if in_flight & 1 == 0 {
                let [next, before] = *link;
                (*(next as *mut Link))[1] = before;
                (*(before as *mut Link))[0] = next;
                return;
            }
            for list in [&raw mut (*self.stacks).used, &raw mut (*self.stacks).cached] {
                let first = (*list)[0] as *mut Link;
                if (*first)[1] != list as usize {
                    *link = [first as usize, list as usize];
                    (*list)[0] = link as usize;
                }
            }
        }
    }
}

/// The first two or more unlocked recursive mutexes that lie one behind the other.
fn unlocked_mutexes(words: &[u64]) -> Option<(*mut pthread_mutex_t, usize)> {
    const WORDS: usize = size_of::<pthread_mutex_t>() / 8;
    // SAFETY: a mutex is plain numbers.
    let unlocked: [u64; WORDS] = unsafe { std::mem::transmute(libc::PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP) };
    let is_one = |at: usize| words.get(at..at + WORDS).is_some_and(|words| words == unlocked);
    let first = (0..words.len()).find(|at| is_one(*at) && is_one(at + WORDS))?;
    let count = (0..).take_while(|index| is_one(first + index * WORDS)).count();
    Some((words[first..].as_ptr().cast_mut().cast(), count))
}

/// Streams, as libc lets others walk through them.
struct Streams {
    begin: unsafe extern "C" fn() -> *mut c_void,
    end: unsafe extern "C" fn() -> *mut c_void,
    next: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    stream: unsafe extern "C" fn(*mut c_void) -> *mut Stream,
    unlock_list: unsafe extern "C" fn(),
}

/// The public part of libc's streams as far as their lock, whose layout is part of its binary interface.
#[repr(C)]
struct Stream {
    flags: c_int,
    pointers: [usize; 13],
    descriptor_and_flags: [c_int; 2],
    offset: i64,
    column_and_small_buffer: u64,
    lock: *mut StreamLock,
}

/// The recursive lock of a stream.
#[repr(C)]
struct StreamLock {
    state: c_int,
    count: c_int,
    owner: usize,
}

/// The stream is locked by nobody but the program itself.
const USER_LOCK: c_int = 0x8000;

impl Streams {
    fn find() -> Option<Streams> {
        // SAFETY: libc's functions of these types.
        unsafe {
            Some(Streams {
                begin: std::mem::transmute::<usize, unsafe extern "C" fn() -> *mut c_void>(symbol(c"_IO_iter_begin")?),
                end: std::mem::transmute::<usize, unsafe extern "C" fn() -> *mut c_void>(symbol(c"_IO_iter_end")?),
                next: std::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void) -> *mut c_void>(symbol(
                    c"_IO_iter_next",
                )?),
                stream: std::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void) -> *mut Stream>(symbol(
                    c"_IO_iter_file",
                )?),
                unlock_list: std::mem::transmute::<usize, unsafe extern "C" fn()>(symbol(c"_IO_list_resetlock")?),
            })
        }
    }

    /// # Safety
    /// No other thread uses streams.
    unsafe fn unlock(&self) {
        // SAFETY: libc's functions, and streams as they give them out.
        unsafe {
            (self.unlock_list)();
            let mut at = (self.begin)();
            while at != (self.end)() {
                let stream = (self.stream)(at);
                let lock = (*stream).lock;
                // What this thread holds it gives back itself (a signal handler has forked in the middle of a print).
                if (*stream).flags & USER_LOCK == 0 && !lock.is_null() && (*lock).owner != this_thread() {
                    lock.write(StreamLock { state: 0, count: 0, owner: 0 });
                }
                at = (self.next)(at);
            }
        }
    }
}

fn this_thread() -> usize {
    // SAFETY: always succeeds.
    unsafe { libc::pthread_self() as usize }
}

fn symbol(name: &CStr) -> Option<usize> {
    // SAFETY: looks up a name.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
    (address != 0).then_some(address)
}

/// A variable's address and bytes.
fn symbol_and_size(name: &CStr) -> Option<(usize, usize)> {
    const SYMBOL: c_int = 1;
    unsafe extern "C" {
        fn dladdr1(address: *const c_void, info: *mut libc::Dl_info, extra: *mut *mut c_void, kind: c_int) -> c_int;
    }
    let address = symbol(name)?;
    let mut entry: *mut libc::Elf64_Sym = std::ptr::null_mut();
    // SAFETY: an address inside a loaded object, and live variables for what is known about it.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = dladdr1(address as *const c_void, &mut info, (&raw mut entry).cast(), SYMBOL) != 0;
        let whole = found && !entry.is_null() && info.dli_saddr as usize == address;
        whole.then(|| (address, (*entry).st_size as usize))
    }
}

/// What libc says to debuggers about a field: where it is.
fn offset(name: &CStr) -> Option<usize> {
    // SAFETY: these variables are three 32-bit numbers: bits, elements, offset in bytes.
    symbol(name).map(|address| unsafe { (address as *const [u32; 3]).read()[2] } as usize)
}
