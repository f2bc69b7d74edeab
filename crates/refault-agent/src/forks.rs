//! `fork` and what is made of it: the child's memory becomes the child's own before anything else runs in it.
//!
//! libc's `fork` touches memory that it allocated (open streams, name service tables) in the child before any handler can
//! run, so it cannot be used as it is. This `fork` keeps the list of the program's handlers itself (libc's
//! `__register_atfork` is interposed) and uses libc's `_Fork`, which does what a copy of a process needs and nothing more; what
//! libc's would put in order in the child is done here too ([`crate::libc_state`]). `vfork`, `posix_spawn`, `system` and `popen` borrow the parent's memory until
//! the `exec` and are not touched.

use std::ffi::CStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{c_char, c_int, c_void, pid_t};
use refault_store::ErrorNumber;

use crate::{agent, heap, libc_state};

type Handler = Option<unsafe extern "C" fn()>;

struct Handlers {
    prepare: Handler,
    parent: Handler,
    child: Handler,
    /// The library that has registered them, as it calls itself.
    library: usize,
}

static HANDLERS: Mutex<Vec<Handlers>> = Mutex::new(Vec::new());
/// Serialises forks.
static FORKING: Mutex<()> = Mutex::new(());
static REAL: AtomicUsize = AtomicUsize::new(0);

/// One line on standard error.
pub(crate) fn say(message: &str) {
    let line = format!("refault: {message}\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}

/// Finds libc's `_Fork`. Called when the agent starts, because looking it up allocates.
pub(crate) fn register() {
    const NAME: &CStr = c"_Fork";
    // SAFETY: looks up a name.
    let real = unsafe { libc::dlsym(libc::RTLD_NEXT, NAME.as_ptr()) };
    if real.is_null() {
        crate::end("this libc has no _Fork (glibc 2.34 or later is needed)");
    }
    REAL.store(real as usize, Ordering::Release);
}

/// What pthread_atfork(3) calls.
#[unsafe(no_mangle)]
pub extern "C" fn __register_atfork(prepare: Handler, parent: Handler, child: Handler, library: *mut c_void) -> c_int {
    unsafe extern "C" {
        fn __cxa_atexit(call: unsafe extern "C" fn(*mut c_void), argument: *mut c_void, library: *mut c_void) -> c_int;
    }
    {
        let _signals = crate::block_signals();
        if let Ok(mut handlers) = HANDLERS.lock() {
            handlers.push(Handlers { prepare, parent, child, library: library as usize });
        }
    }
    if library.is_null() {
        return 0;
    }
    // SAFETY: libc calls this when the library goes, or the program ends.
    unsafe { __cxa_atexit(forget_library, library, library) }
}

/// A library goes, and its handlers with it.
unsafe extern "C" fn forget_library(library: *mut c_void) {
    let _signals = crate::block_signals();
    if let Ok(mut handlers) = HANDLERS.lock() {
        handlers.retain(|handlers| handlers.library != library as usize);
    }
}

/// Calls the handlers of one kind. They may register others, so the list is not held meanwhile; nor may a signal handler that
/// forks find it held.
fn run(backwards: bool, kind: impl Fn(&Handlers) -> Handler) {
    let quietly = |look: &dyn Fn(&[Handlers]) -> Handler| {
        let _signals = crate::block_signals();
        HANDLERS.lock().ok().and_then(|handlers| look(&handlers))
    };
    let count = {
        let _signals = crate::block_signals();
        HANDLERS.lock().map_or(0, |handlers| handlers.len())
    };
    for index in 0..count {
        let index = if backwards { count - 1 - index } else { index };
        let handler = quietly(&|handlers| handlers.get(index).and_then(&kind));
        if let Some(handler) = handler {
            // SAFETY: the program registered this function to be called here.
            unsafe { handler() };
        }
    }
}

/// fork(2).
#[unsafe(no_mangle)]
pub extern "C" fn fork() -> pid_t {
    run(true, |handlers| handlers.prepare);
    let pid = _Fork();
    if pid == 0 {
        run(false, |handlers| handlers.child);
    } else {
        run(false, |handlers| handlers.parent);
    }
    pid
}

/// `_Fork`: without handlers.
#[unsafe(no_mangle)]
pub extern "C" fn _Fork() -> pid_t {
    let real = match REAL.load(Ordering::Acquire) {
        // Before the agent has started there is nothing to take care of.
        // SAFETY: a plain fork by the system call.
        0 => return unsafe { libc::syscall(libc::SYS_fork) as pid_t },
        // SAFETY: the address of libc's function of this type.
        address => unsafe { std::mem::transmute::<usize, extern "C" fn() -> pid_t>(address) },
    };
    let Some(agent) = agent() else { return real() };
    if crate::inside::lives_in_managed_memory(agent) {
        // The child would have no stack until its memory is its own, and nobody serves this one's faults until then.
        say("a thread whose stack lies in managed memory cannot fork (EAGAIN)");
        return crate::mappings::fail(libc::EAGAIN);
    }
    // A signal handler that ran now could touch memory while nobody serves faults.
    let signals = crate::block_signals();
    let one_at_a_time = FORKING.lock();
    let handlers = HANDLERS.lock();
    let ticket = match agent.pager.before_fork(crate::own_threads::count()) {
        Ok(ticket) => ticket,
        Err(error) => {
            say(&format!("a fork is refused (EAGAIN): {}", ErrorNumber::from(&error)));
            return crate::mappings::fail(libc::EAGAIN);
        }
    };
    let rights = crate::mappings::Rights::now(agent);
    let is_first = rustix::thread::gettid() == rustix::process::getpid();
    heap::lock();
    let pid = real();
    // SAFETY: errno is this thread's.
    let errno = unsafe { *libc::__errno_location() };
    heap::unlock();
    if pid == 0 {
        // SAFETY: the child has one thread.
        unsafe { libc_state::forget_other_threads(is_first, |address| agent.pager.owns(address)) };
        heap::disown_threads();
        crate::own_threads::forget();
        let unmanaged = crate::Unmanaged::begin();
        let opening = crate::descriptors::Opening::begin();
        if let Err(error) = agent.pager.after_fork_in_child(ticket) {
            // The words of the C library may lie in memory that is not there.
            let why = ErrorNumber::from(&error);
            crate::end(&format!("a forked child cannot get memory of its own: {why}"));
        }
        rights.restore();
        crate::start_observers(agent);
        drop(opening);
        drop(unmanaged);
        // SAFETY: the agent's threads use no streams.
        unsafe { libc_state::unlock_streams() };
    } else {
        agent.pager.after_fork_in_parent(ticket);
    }
    drop(handlers);
    drop(one_at_a_time);
    drop(signals);
    // SAFETY: errno is this thread's.
    unsafe { *libc::__errno_location() = errno };
    pid
}

/// daemon(3): libc's would use libc's `fork`.
#[unsafe(no_mangle)]
pub extern "C" fn daemon(keep_directory: c_int, keep_streams: c_int) -> c_int {
    match fork() {
        -1 => return -1,
        0 => {}
        // SAFETY: as daemon(3) does.
        _ => unsafe { libc::_exit(0) },
    }
    // SAFETY: system calls on descriptors and the working directory, as daemon(3) does.
    unsafe {
        if libc::setsid() == -1 {
            return -1;
        }
        if keep_directory == 0 {
            libc::chdir(c"/".as_ptr());
        }
        if keep_streams == 0 {
            let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            if null == -1 {
                return -1;
            }
            (0..3).for_each(|stream| {
                libc::dup2(null, stream);
            });
            if null > 2 {
                libc::close(null);
            }
        }
    }
    0
}

/// forkpty(3): libc's would use libc's `fork`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkpty(
    leader: *mut c_int,
    name: *mut c_char,
    settings: *const libc::termios,
    size: *const libc::winsize,
) -> pid_t {
    let mut follower = -1;
    // SAFETY: promised by the caller.
    if unsafe { libc::openpty(leader, &mut follower, name, settings.cast_mut(), size.cast_mut()) } == -1 {
        return -1;
    }
    let pid = fork();
    // SAFETY: the descriptors were just opened.
    unsafe {
        match pid {
            -1 => {
                libc::close(*leader);
                libc::close(follower);
            }
            0 => {
                libc::close(*leader);
                if libc::login_tty(follower) == -1 {
                    libc::_exit(1);
                }
            }
            _ => {
                libc::close(follower);
            }
        }
    }
    pid
}
