//! System calls that are given managed memory, where faults are served in the thread that takes them.
//!
//! There the kernel cannot wait for a page: a call that touches an evicted one fails with EFAULT. So the functions of libc
//! through which programs make the usual calls stand here too: before the call what it is given is brought in, and it is not evicted
//! until the call returns ([`Pager::hold`]). A page that the call still cannot touch (it is protected, say, or there was too much for
//! one hold) is touched here and the call is made again. With handlers, and for memory that is not managed, calls go straight
//! to libc.
//!
//! Not covered: calls by number (`syscall`, assembly), structures behind `ioctl` and `fcntl`, and calls that libc makes for
//! itself, but [`crate::malloc`] sees to it that buffers which libc allocates, such as those of C streams, are not managed.
//!
//! Invariant: the call is made by libc's own function, so that it stays a point of cancellation.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::{
    c_char, c_int, c_void, iovec, mode_t, msghdr, nfds_t, off_t, sigset_t, size_t, sockaddr, socklen_t, ssize_t,
};
use refault_pager::Touched;

/// Times that a call is made again after EFAULT.
const ATTEMPTS: usize = 100;

/// Bytes of a path at most.
const PATH: usize = libc::PATH_MAX as usize;

/// Whether faults are served in the thread, so that calls need care.
static CARE: AtomicBool = AtomicBool::new(false);

/// Calls are taken care of from now on.
pub(crate) fn take_care() {
    CARE.store(true, Ordering::Release);
}

/// What functions return, as far as errors go.
trait Outcome: Copy {
    fn failed(self) -> bool;
}

impl Outcome for c_int {
    fn failed(self) -> bool {
        self == -1
    }
}

impl Outcome for ssize_t {
    fn failed(self) -> bool {
        self == -1
    }
}

/// Elements that were read or written: fewer than asked for is no error by itself.
impl Outcome for size_t {
    fn failed(self) -> bool {
        false
    }
}

impl Outcome for *mut c_void {
    fn failed(self) -> bool {
        self.is_null()
    }
}

/// Makes a call while what it is given is in memory.
fn with<T: Outcome, I: Iterator<Item = Touched>>(touched: impl Fn() -> I, call: impl Fn() -> T) -> T {
    let agent = if CARE.load(Ordering::Relaxed) { crate::agent() } else { None };
    let Some(agent) = agent else { return call() };
    let _held = agent.pager.hold(touched());
    for _ in 0..ATTEMPTS {
        let outcome = call();
        // SAFETY: errno is this thread's.
        if !outcome.failed() || unsafe { *libc::__errno_location() } != libc::EFAULT {
            return outcome;
        }
        // All of it, so that the next attempt gets further.
        let managed = touched().filter(|touched| agent.pager.touch(*touched)).count();
        if managed == 0 {
            // SAFETY: errno is this thread's.
            unsafe { *libc::__errno_location() = libc::EFAULT };
            return outcome;
        }
    }
    call()
}

fn read_from<T>(pointer: *const T, bytes: usize) -> Touched {
    Touched { address: pointer as usize, len: bytes, written: false }
}

fn written_to<T>(pointer: *mut T, bytes: usize) -> Touched {
    Touched { address: pointer as usize, len: bytes, written: true }
}

fn value<T>(pointer: *mut T) -> Touched {
    written_to(pointer, size_of::<T>())
}

fn value_read<T>(pointer: *const T) -> Touched {
    read_from(pointer, size_of::<T>())
}

/// A path, whose end is found by reading it.
fn path(path: *const c_char) -> Touched {
    if path.is_null() {
        return read_from(path, 0);
    }
    // SAFETY: a path is a string in C (promised by the caller of whoever calls this).
    let len = unsafe { libc::strnlen(path, PATH) };
    read_from(path, len + 1)
}

/// A string.
fn string(text: *const c_char) -> Touched {
    // SAFETY: a string in C (promised by the caller of whoever calls this).
    read_from(text, if text.is_null() { 0 } else { unsafe { libc::strlen(text) + 1 } })
}

/// Programs and their arguments: an array of strings that ends with a null pointer.
fn strings(array: *const *const c_char) -> impl Iterator<Item = Touched> {
    // SAFETY: null, or an array that ends with null (promised by the caller of whoever calls this).
    let at = move |index| if array.is_null() { std::ptr::null() } else { unsafe { *array.add(index) } };
    let count = (0..).take_while(move |index| !at(*index).is_null()).count();
    std::iter::once(read_from(array, (count + 1) * size_of::<*const c_char>()))
        .chain((0..count).map(move |index| string(at(index))))
}

/// The environment that a program hands on when it does not name another.
fn environment() -> *const *const c_char {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: libc's variable; who changes it while another thread executes a program has lost without the agent too.
    unsafe { environ }
}

/// Vectors and the array that names them.
fn vectors(array: *const iovec, count: usize, written: bool) -> impl Iterator<Item = Touched> {
    let count = if array.is_null() { 0 } else { count.min(1024) };
    let vector = move |index| {
        // SAFETY: the array has that many elements (promised by the caller of whoever calls this).
        let vector = unsafe { *array.add(index) };
        Touched { address: vector.iov_base as usize, len: vector.iov_len, written }
    };
    std::iter::once(read_from(array, count * size_of::<iovec>())).chain((0..count).map(vector))
}

/// A message with all that it points to.
fn message(message: *const msghdr, written: bool) -> impl Iterator<Item = Touched> {
    // SAFETY: null or a whole message (promised by the caller of whoever calls this).
    let parts = unsafe { message.as_ref() }.map(|parts| {
        let name = Touched { address: parts.msg_name as usize, len: parts.msg_namelen as usize, written };
        let control = Touched { address: parts.msg_control as usize, len: parts.msg_controllen, written };
        vectors(parts.msg_iov, parts.msg_iovlen, written).chain([name, control])
    });
    let itself = Touched { address: message as usize, len: size_of::<msghdr>(), written };
    std::iter::once(itself).chain(parts.into_iter().flatten())
}

/// A list of messages.
fn messages(list: *const libc::mmsghdr, count: libc::c_uint, written: bool) -> impl Iterator<Item = Touched> {
    let count = if list.is_null() { 0 } else { count.min(1024) as usize };
    let itself = Touched { address: list as usize, len: count * size_of::<libc::mmsghdr>(), written };
    // SAFETY: the list has that many elements (promised by the caller of whoever calls this).
    let one = move |index| message(unsafe { &raw const (*list.add(index)).msg_hdr }, written);
    std::iter::once(itself).chain((0..count).flat_map(one))
}

/// A value whose length is in a value.
fn sized(pointer: *mut c_void, len: *mut socklen_t) -> impl Iterator<Item = Touched> {
    // SAFETY: null or a length (promised by the caller of whoever calls this).
    let bytes = unsafe { len.as_ref() }.map_or(0, |len| *len as usize);
    [written_to(pointer, bytes), value(len)].into_iter()
}

/// libc's function of a name: found once.
fn libc_function(place: &AtomicUsize, name: &std::ffi::CStr) -> usize {
    let known = place.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: the name is a string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    if found == 0 {
        crate::end("a function of the C library is missing");
    }
    place.store(found, Ordering::Relaxed);
    found
}

/// The signals that a call blocks while it waits, but SIGBUS: a handler that runs meanwhile may touch what is evicted.
fn masked(signals: *const sigset_t, place: &mut MaybeUninit<sigset_t>) -> *const sigset_t {
    if signals.is_null() || !CARE.load(Ordering::Relaxed) {
        return signals;
    }
    // SAFETY: a set (promised by the caller of whoever calls this).
    place.write(unsafe { crate::signals::without_sigbus(signals) })
}

/// Functions that stand in for libc's: name, parameters, which of these is a mask of signals, and what the call touches.
macro_rules! calls {
    ($($name:ident($($parameter:ident: $type:ty),*) -> $result:ty $(, masked $mask:ident)? { $touched:expr })*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of libc.")]
            ///
            /// # Safety
            /// As in C.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($parameter: $type),*) -> $result {
                static FUNCTION: AtomicUsize = AtomicUsize::new(0);
                let name = const {
                    let bytes = concat!(stringify!($name), "\0").as_bytes();
                    match std::ffi::CStr::from_bytes_with_nul(bytes) {
                        Ok(name) => name,
                        Err(_) => panic!("a name has no zero in it"),
                    }
                };
                type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
                // SAFETY: libc's function of this name has this type.
                let function = unsafe { std::mem::transmute::<usize, Function>(libc_function(&FUNCTION, name)) };
                $(let mut place = MaybeUninit::uninit(); let $mask = masked($mask, &mut place);)?
                // SAFETY: passed on as it came.
                with(|| ($touched).into_iter(), || unsafe { function($($parameter),*) })
            }
        )*
    };
}

calls! {
    read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t { [written_to(buffer, len)] }
    __read_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t) -> ssize_t { [written_to(buffer, len)] }
    pread(fd: c_int, buffer: *mut c_void, len: size_t, at: off_t) -> ssize_t { [written_to(buffer, len)] }
    pread64(fd: c_int, buffer: *mut c_void, len: size_t, at: off_t) -> ssize_t { [written_to(buffer, len)] }
    __pread64_chk(fd: c_int, buffer: *mut c_void, len: size_t, at: off_t, room: size_t) -> ssize_t {
        [written_to(buffer, len)]
    }
    readv(fd: c_int, array: *const iovec, count: c_int) -> ssize_t { vectors(array, count.max(0) as usize, true) }
    preadv(fd: c_int, array: *const iovec, count: c_int, at: off_t) -> ssize_t {
        vectors(array, count.max(0) as usize, true)
    }
    preadv64(fd: c_int, array: *const iovec, count: c_int, at: off_t) -> ssize_t {
        vectors(array, count.max(0) as usize, true)
    }
    write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t { [read_from(buffer, len)] }
    pwrite(fd: c_int, buffer: *const c_void, len: size_t, at: off_t) -> ssize_t { [read_from(buffer, len)] }
    pwrite64(fd: c_int, buffer: *const c_void, len: size_t, at: off_t) -> ssize_t { [read_from(buffer, len)] }
    writev(fd: c_int, array: *const iovec, count: c_int) -> ssize_t { vectors(array, count.max(0) as usize, false) }
    pwritev(fd: c_int, array: *const iovec, count: c_int, at: off_t) -> ssize_t {
        vectors(array, count.max(0) as usize, false)
    }
    pwritev64(fd: c_int, array: *const iovec, count: c_int, at: off_t) -> ssize_t {
        vectors(array, count.max(0) as usize, false)
    }

    send(socket: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t { [read_from(buffer, len)] }
    sendto(
        socket: c_int, buffer: *const c_void, len: size_t, flags: c_int, address: *const sockaddr, bytes: socklen_t
    ) -> ssize_t { [read_from(buffer, len), read_from(address, bytes as usize)] }
    sendmsg(socket: c_int, parts: *const msghdr, flags: c_int) -> ssize_t { message(parts, false) }
    sendmmsg(socket: c_int, list: *mut libc::mmsghdr, count: libc::c_uint, flags: c_int) -> c_int {
        messages(list, count, false).chain([written_to(list, count as usize * size_of::<libc::mmsghdr>())])
    }
    recv(socket: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t { [written_to(buffer, len)] }
    __recv_chk(socket: c_int, buffer: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t {
        [written_to(buffer, len)]
    }
    recvfrom(
        socket: c_int, buffer: *mut c_void, len: size_t, flags: c_int, address: *mut sockaddr, bytes: *mut socklen_t
    ) -> ssize_t { sized(address.cast(), bytes).chain([written_to(buffer, len)]) }
    __recvfrom_chk(
        socket: c_int, buffer: *mut c_void, len: size_t, room: size_t, flags: c_int, address: *mut sockaddr,
        bytes: *mut socklen_t
    ) -> ssize_t { sized(address.cast(), bytes).chain([written_to(buffer, len)]) }
    recvmsg(socket: c_int, parts: *mut msghdr, flags: c_int) -> ssize_t { message(parts, true) }
    recvmmsg(
        socket: c_int, list: *mut libc::mmsghdr, count: libc::c_uint, flags: c_int, timeout: *mut libc::timespec
    ) -> c_int { messages(list, count, true).chain([value(timeout)]) }
    accept(socket: c_int, address: *mut sockaddr, bytes: *mut socklen_t) -> c_int { sized(address.cast(), bytes) }
    accept4(socket: c_int, address: *mut sockaddr, bytes: *mut socklen_t, flags: c_int) -> c_int {
        sized(address.cast(), bytes)
    }
    connect(socket: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
        [read_from(address, bytes as usize)]
    }
    bind(socket: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int { [read_from(address, bytes as usize)] }
    getsockname(socket: c_int, address: *mut sockaddr, bytes: *mut socklen_t) -> c_int {
        sized(address.cast(), bytes)
    }
    getpeername(socket: c_int, address: *mut sockaddr, bytes: *mut socklen_t) -> c_int {
        sized(address.cast(), bytes)
    }
    getsockopt(socket: c_int, level: c_int, name: c_int, option: *mut c_void, bytes: *mut socklen_t) -> c_int {
        sized(option, bytes)
    }
    setsockopt(socket: c_int, level: c_int, name: c_int, option: *const c_void, bytes: socklen_t) -> c_int {
        [read_from(option, bytes as usize)]
    }

    poll(list: *mut libc::pollfd, count: nfds_t, timeout: c_int) -> c_int {
        [written_to(list, count as usize * size_of::<libc::pollfd>())]
    }
    __poll_chk(list: *mut libc::pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int {
        [written_to(list, count as usize * size_of::<libc::pollfd>())]
    }
    ppoll(
        list: *mut libc::pollfd, count: nfds_t, timeout: *const libc::timespec, signals: *const sigset_t
    ) -> c_int, masked signals {
        [written_to(list, count as usize * size_of::<libc::pollfd>()), value_read(timeout), value_read(signals)]
    }
    __ppoll_chk(
        list: *mut libc::pollfd, count: nfds_t, timeout: *const libc::timespec, signals: *const sigset_t, room: size_t
    ) -> c_int, masked signals {
        [written_to(list, count as usize * size_of::<libc::pollfd>()), value_read(timeout), value_read(signals)]
    }
    select(
        count: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set, except: *mut libc::fd_set,
        timeout: *mut libc::timeval
    ) -> c_int { [value(read), value(write), value(except), value(timeout)] }
    pselect(
        count: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set, except: *mut libc::fd_set,
        timeout: *const libc::timespec, signals: *const sigset_t
    ) -> c_int, masked signals {
        [value(read), value(write), value(except), value_read(timeout), value_read(signals)]
    }
    sigsuspend(signals: *const sigset_t) -> c_int, masked signals { [value_read(signals)] }
    epoll_wait(epoll: c_int, events: *mut libc::epoll_event, count: c_int, timeout: c_int) -> c_int {
        [written_to(events, count.max(0) as usize * size_of::<libc::epoll_event>())]
    }
    epoll_pwait(
        epoll: c_int, events: *mut libc::epoll_event, count: c_int, timeout: c_int, signals: *const sigset_t
    ) -> c_int, masked signals {
        [written_to(events, count.max(0) as usize * size_of::<libc::epoll_event>()), value_read(signals)]
    }
    epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut libc::epoll_event) -> c_int {
        [value_read(event)]
    }

    open(name: *const c_char, flags: c_int, mode: mode_t) -> c_int { [path(name)] }
    open64(name: *const c_char, flags: c_int, mode: mode_t) -> c_int { [path(name)] }
    openat(directory: c_int, name: *const c_char, flags: c_int, mode: mode_t) -> c_int { [path(name)] }
    openat64(directory: c_int, name: *const c_char, flags: c_int, mode: mode_t) -> c_int { [path(name)] }
    stat(name: *const c_char, found: *mut libc::stat) -> c_int { [path(name), value(found)] }
    stat64(name: *const c_char, found: *mut libc::stat64) -> c_int { [path(name), value(found)] }
    lstat(name: *const c_char, found: *mut libc::stat) -> c_int { [path(name), value(found)] }
    lstat64(name: *const c_char, found: *mut libc::stat64) -> c_int { [path(name), value(found)] }
    fstat(fd: c_int, found: *mut libc::stat) -> c_int { [value(found)] }
    fstat64(fd: c_int, found: *mut libc::stat64) -> c_int { [value(found)] }
    fstatat(directory: c_int, name: *const c_char, found: *mut libc::stat, flags: c_int) -> c_int {
        [path(name), value(found)]
    }
    fstatat64(directory: c_int, name: *const c_char, found: *mut libc::stat64, flags: c_int) -> c_int {
        [path(name), value(found)]
    }
    access(name: *const c_char, mode: c_int) -> c_int { [path(name)] }
    readlink(name: *const c_char, buffer: *mut c_char, len: size_t) -> ssize_t {
        [path(name), written_to(buffer, len)]
    }
    getcwd(buffer: *mut c_char, len: size_t) -> *mut c_void { [written_to(buffer, len)] }
    chdir(name: *const c_char) -> c_int { [path(name)] }
    mkdir(name: *const c_char, mode: mode_t) -> c_int { [path(name)] }
    rmdir(name: *const c_char) -> c_int { [path(name)] }
    unlink(name: *const c_char) -> c_int { [path(name)] }
    unlinkat(directory: c_int, name: *const c_char, flags: c_int) -> c_int { [path(name)] }
    rename(from: *const c_char, to: *const c_char) -> c_int { [path(from), path(to)] }
    fopen(name: *const c_char, mode: *const c_char) -> *mut c_void { [path(name)] }
    fopen64(name: *const c_char, mode: *const c_char) -> *mut c_void { [path(name)] }
    opendir(name: *const c_char) -> *mut c_void { [path(name)] }

    execve(name: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int {
        strings(arguments).chain(strings(environment)).chain([path(name)])
    }
    execv(name: *const c_char, arguments: *const *const c_char) -> c_int {
        strings(arguments).chain(strings(environment())).chain([path(name)])
    }
    execvp(name: *const c_char, arguments: *const *const c_char) -> c_int {
        strings(arguments).chain(strings(environment())).chain([path(name)])
    }

    fread(buffer: *mut c_void, size: size_t, count: size_t, stream: *mut libc::FILE) -> size_t {
        [written_to(buffer, size.saturating_mul(count))]
    }
    fread_unlocked(buffer: *mut c_void, size: size_t, count: size_t, stream: *mut libc::FILE) -> size_t {
        [written_to(buffer, size.saturating_mul(count))]
    }
    __fread_chk(buffer: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut libc::FILE) -> size_t {
        [written_to(buffer, size.saturating_mul(count))]
    }
    fwrite(buffer: *const c_void, size: size_t, count: size_t, stream: *mut libc::FILE) -> size_t {
        [read_from(buffer, size.saturating_mul(count))]
    }
    fwrite_unlocked(buffer: *const c_void, size: size_t, count: size_t, stream: *mut libc::FILE) -> size_t {
        [read_from(buffer, size.saturating_mul(count))]
    }
    fputs(text: *const c_char, stream: *mut libc::FILE) -> c_int { [string(text)] }
    puts(text: *const c_char) -> c_int { [string(text)] }

    getrandom(buffer: *mut c_void, len: size_t, flags: libc::c_uint) -> ssize_t { [written_to(buffer, len)] }
    statx(
        directory: c_int, name: *const c_char, flags: c_int, mask: libc::c_uint, found: *mut libc::statx
    ) -> c_int { [path(name), value(found)] }
    nanosleep(wanted: *const libc::timespec, left: *mut libc::timespec) -> c_int { [value_read(wanted), value(left)] }
}
