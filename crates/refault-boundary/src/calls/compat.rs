//! Calls of 32 bits that a program of 64 makes by `int 0x80`.
//!
//! They have numbers and registers of their own ([`refault_linux::i386`]). The kernel says by the signal's architecture
//! which convention a call follows. Each is one of four:
//!
//! - the same as a call of 64 bits, by another number: served as that one;
//! - the same with arguments in another form (a position in two halves, vectors of 32 bits): put into the form of 64 bits
//!   and served as that one;
//! - one whose structures have a form of 32 bits: made by the same gate from the agent's own code, with its memory
//!   held;
//! - one that hands the kernel what the agent must know and cannot have in this form (handlers, frames, filters, robust
//!   lists of 32 bits): ENOSYS, which is said once.
//!
//! Invariants: no other call is made than was asked for; what is mapped lies where 32 bits reach, as it does alone.
//! Calls of x32 (bit 30 of the number) are answered with ENOSYS before they come here, as a kernel without them
//! answers.
//! Cost: a signal per call.

mod same;

use std::sync::atomic::{AtomicBool, Ordering};

use refault_linux::errno::{EFAULT, EINVAL, ENOMEM, ENOSYS};
use refault_linux::flags::*;
use refault_linux::options::{AUDIT_ARCH_I386, PR_SET_SECCOMP, PTRACE_TRACEME};
use refault_linux::requests::SHMAT;
use refault_linux::signals::{SA_NODEFER, SA_RESETHAND, SIG_IGN, SIG_SETMASK};
use refault_linux::sockets::{SYS_RECV, SYS_RECVFROM, SYS_RECVMSG, SYS_SEND, SYS_SENDMSG, SYS_SENDTO};
use refault_linux::{PAGE, calls, i386};
use same::{RENAMED, SAME};

use crate::calls::pointed;
use crate::calls::{dispatch::serve as serve_call, make::make_by_gate};
use crate::engine_lock;
use crate::frame::{self, Context, Info, register};
use crate::library::report;
use crate::mapping::managed::pages;
use crate::table::MAX_VECTORS;
use crate::thread::Thread;

/// `AUDIT_ARCH_I386`: whose convention a dispatched call follows.
const OF_32_BITS: u32 = AUDIT_ARCH_I386 as u32;
/// `int $0x80`.
const GATE: u16 = 0x80cd;
/// Bytes held at an argument of which nothing is known.
const UNKNOWN: usize = PAGE;
const PAGE_BITS: u32 = PAGE.trailing_zeros();
/// Bytes of `struct iovec` of 32 bits, of `struct mmsghdr`, and where in `struct sigaction` the mask lies.
const VECTOR: usize = size_of::<[u32; 2]>();
const MESSAGE_OF_MANY: usize = size_of::<[u32; 8]>();
const MASK_OF_ACTION: usize = size_of::<[u32; 3]>();

/// Whether a dispatched call came by `int 0x80`.
pub(crate) fn is_call(info: &Info, context: &Context) -> bool {
    let architecture = (info.rest[0] >> 32) as u32;
    architecture == OF_32_BITS
        && frame::read::<u16>((context.registers[register::RIP] as usize).wrapping_sub(size_of::<u16>())) == Some(GATE)
}

/// A call's registers, in the order of its arguments.
fn arguments(context: &Context) -> [usize; 6] {
    use register::{RBP, RBX, RCX, RDI, RDX, RSI};
    [RBX, RCX, RDX, RSI, RDI, RBP].map(|place| context.registers[place] as u32 as usize)
}

/// Serves a call. Returns its result.
pub(crate) fn serve(thread: &mut Thread, context: &mut Context) -> isize {
    let number = context.registers[register::RAX] as u32 as usize;
    let passed = arguments(context);
    let [a, b, c, d, e, f] = passed;
    let wide = |low: usize, high: usize| low | high << 32;
    let signed = |word: usize| word as i32 as usize;
    let mut native = |number, arguments| serve_call(thread, context, number, arguments);
    match number {
        i386::SYS_waitpid => native(calls::SYS_wait4, [a, b, c, 0, 0, 0]),
        i386::SYS_wait4 if d == 0 => native(calls::SYS_wait4, passed),
        i386::SYS_lseek => native(calls::SYS_lseek, [a, signed(b), c, 0, 0, 0]),
        i386::SYS_truncate => native(calls::SYS_truncate, [a, signed(b), 0, 0, 0, 0]),
        i386::SYS_ftruncate => native(calls::SYS_ftruncate, [a, signed(b), 0, 0, 0, 0]),
        i386::SYS_truncate64 => native(calls::SYS_truncate, [a, wide(b, c), 0, 0, 0, 0]),
        i386::SYS_ftruncate64 => native(calls::SYS_ftruncate, [a, wide(b, c), 0, 0, 0, 0]),
        i386::SYS_pread64 => native(calls::SYS_pread64, [a, b, c, wide(d, e), 0, 0]),
        i386::SYS_pwrite64 => native(calls::SYS_pwrite64, [a, b, c, wide(d, e), 0, 0]),
        i386::SYS_readahead => native(calls::SYS_readahead, [a, wide(b, c), d, 0, 0, 0]),
        i386::SYS_fallocate => native(calls::SYS_fallocate, [a, b, wide(c, d), wide(e, f), 0, 0]),
        i386::SYS_fadvise64 => native(calls::SYS_fadvise64, [a, wide(b, c), d, e, 0, 0]),
        i386::SYS_fadvise64_64 => native(calls::SYS_fadvise64, [a, wide(b, c), wide(d, e), f, 0, 0]),
        i386::SYS_sync_file_range => native(calls::SYS_sync_file_range, [a, wide(b, c), wide(d, e), f, 0, 0]),
        i386::SYS_mmap2 => native(calls::SYS_mmap, [a, b, c, low(d), signed(e), f << PAGE_BITS]),
        i386::SYS_mmap => match frame::read::<[u32; 6]>(a).map(|words| words.map(|word| word as usize)) {
            Some([at, bytes, protection, flags, descriptor, offset]) => {
                native(calls::SYS_mmap, [at, bytes, protection, low(flags), signed(descriptor), offset])
            }
            None => EFAULT,
        },
        i386::SYS_mremap => remap(thread, context, passed),
        i386::SYS_time => {
            let now = native(calls::SYS_time, [0; 6]);
            if a == 0 || frame::write(a, &(now as u32)) { now } else { EFAULT }
        }
        i386::SYS_nanosleep => sleep(thread, context, passed),
        i386::SYS_futex => futex(thread, context, passed),
        i386::SYS_readv => by_vectors(thread, context, calls::SYS_readv, passed, &[1]),
        i386::SYS_writev => by_vectors(thread, context, calls::SYS_writev, passed, &[1]),
        i386::SYS_vmsplice => by_vectors(thread, context, calls::SYS_vmsplice, passed, &[1]),
        i386::SYS_process_madvise => by_vectors(thread, context, calls::SYS_process_madvise, passed, &[1]),
        i386::SYS_process_vm_readv => by_vectors(thread, context, calls::SYS_process_vm_readv, passed, &[1, 3]),
        i386::SYS_process_vm_writev => by_vectors(thread, context, calls::SYS_process_vm_writev, passed, &[1, 3]),
        i386::SYS_preadv => by_vectors(thread, context, calls::SYS_preadv, [a, b, c, wide(d, e), 0, 0], &[1]),
        i386::SYS_pwritev => by_vectors(thread, context, calls::SYS_pwritev, [a, b, c, wide(d, e), 0, 0], &[1]),
        i386::SYS_preadv2 => by_vectors(thread, context, calls::SYS_preadv2, [a, b, c, wide(d, e), 0, f], &[1]),
        i386::SYS_pwritev2 => by_vectors(thread, context, calls::SYS_pwritev2, [a, b, c, wide(d, e), 0, f], &[1]),
        i386::SYS_execve => execute(thread, context, calls::SYS_execve, passed, [1, 2]),
        i386::SYS_execveat => execute(thread, context, calls::SYS_execveat, passed, [2, 3]),
        i386::SYS_clone if a as u64 & refault_linux::clone::CLONE_SETTLS == 0 => {
            native(calls::SYS_clone, [a, b, c, e, 0, 0])
        }
        i386::SYS_fcntl | i386::SYS_fcntl64 if !is_about_locks(b) => native(calls::SYS_fcntl, passed),
        i386::SYS_prctl if a != PR_SET_SECCOMP => native(calls::SYS_prctl, passed),
        i386::SYS_prctl => EINVAL,
        i386::SYS_ptrace if a == PTRACE_TRACEME => native(calls::SYS_ptrace, passed),
        i386::SYS_signal => set_action(thread, context, a, [b as u32, (SA_RESETHAND | SA_NODEFER) as u32, 0], 0),
        i386::SYS_rt_sigaction if e == 0 || d == size_of::<u64>() => rt_action(thread, context, passed),
        i386::SYS_rt_sigaction => EINVAL,
        i386::SYS_sigprocmask => set_mask(thread, context, passed),
        i386::SYS_ioctl if pointed::is_refused(b, c) => EINVAL,
        i386::SYS_ipc if usize::from(a as u16) == SHMAT => refuse(number),
        i386::SYS_clone
        | i386::SYS_sigaction
        | i386::SYS_sigreturn
        | i386::SYS_rt_sigreturn
        | i386::SYS_restart_syscall
        | i386::SYS_sigaltstack
        | i386::SYS_sgetmask
        | i386::SYS_ssetmask
        | i386::SYS_sigsuspend
        | i386::SYS_set_robust_list
        | i386::SYS_get_robust_list
        | i386::SYS_seccomp
        | i386::SYS_vm86
        | i386::SYS_vm86old => refuse(number),
        _ => match [SAME, RENAMED].into_iter().flatten().find(|(of_32, _)| *of_32 == number) {
            Some((_, number)) => native(*number, passed),
            None => by_gate(thread, context, number, passed),
        },
    }
}

/// Flags of `mmap` by which the address is one of 32 bits.
fn low(flags: usize) -> usize {
    if flags & MAP_FIXED == 0 { flags | MAP_32BIT } else { flags }
}

/// A call that cannot be served in its form: as if the kernel had none of that number. Said once.
fn refuse(number: usize) -> isize {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        let name = i386::name(number).unwrap_or("a call without a name");
        report::say(format_args!(
            "process {} has called {name} by int 0x80: answered with Function not implemented",
            refault_linux::sys::process_id()
        ));
    }
    ENOSYS
}

/// The locks of `fcntl`, whose structures are of 32 bits.
fn is_about_locks(command: usize) -> bool {
    matches!(command, F_GETLK..=F_SETLKW | i386::F_GETLK64..=i386::F_SETLKW64 | F_OFD_GETLK..=F_OFD_SETLKW)
}

/// Makes a call as it came, with a page held at each argument that may be an address.
fn by_gate(thread: &mut Thread, context: &mut Context, number: usize, arguments: [usize; 6]) -> isize {
    for address in arguments.into_iter().filter(|address| *address >= UNKNOWN) {
        engine_lock::hold(thread, address, UNKNOWN, true);
    }
    if number == i386::SYS_ioctl {
        pointed::prepare(thread, arguments[1], arguments[2]);
    }
    if let Some(pointers) = pointers_of(number, arguments) {
        pointers.into_iter().for_each(|[start, bytes]| engine_lock::hold(thread, start, bytes, true));
    }
    let result = make_by_gate(thread, context, number, &arguments);
    engine_lock::release(thread);
    result
}

/// What the structures at a call's arguments lead to: of messages, and of what `socketcall` is given.
fn pointers_of(number: usize, [a, b, c, ..]: [usize; 6]) -> Option<Vec<[usize; 2]>> {
    const CONTAINS_MESSAGE: [usize; 2] = [SYS_SENDMSG, SYS_RECVMSG];
    const CONTAINS_BUFFER: [usize; 4] = [SYS_SEND, SYS_RECV, SYS_SENDTO, SYS_RECVFROM];
    match number {
        i386::SYS_sendmsg | i386::SYS_recvmsg => message(b),
        i386::SYS_sendmmsg | i386::SYS_recvmmsg | i386::SYS_recvmmsg_time64 => {
            let count = c.min(MAX_VECTORS);
            let mut all = vec![[b, count * MESSAGE_OF_MANY]];
            all.extend((0..count).filter_map(|index| message(b + index * MESSAGE_OF_MANY)).flatten());
            Some(all)
        }
        i386::SYS_socketcall => {
            let words = frame::read::<[u32; 6]>(b)?.map(|word| word as usize);
            let mut all: Vec<_> = words.into_iter().filter(|word| *word >= UNKNOWN).map(|at| [at, UNKNOWN]).collect();
            if CONTAINS_MESSAGE.contains(&a) {
                all.extend(message(words[1])?);
            } else if CONTAINS_BUFFER.contains(&a) {
                all.push([words[1], words[2]]);
            }
            Some(all)
        }
        _ => None,
    }
}

/// The parts of a message whose header has 32 bits.
fn message(header: usize) -> Option<Vec<[usize; 2]>> {
    let [name, name_bytes, vectors, count, control, control_bytes, _] =
        frame::read::<[u32; 7]>(header)?.map(|word| word as usize);
    let mut all = read_vectors(vectors, count)?;
    all.extend([[name, name_bytes], [control, control_bytes], [vectors, count.min(MAX_VECTORS) * VECTOR]]);
    Some(all)
}

/// Vectors of 32 bits, as those of 64.
fn read_vectors(vectors: usize, count: usize) -> Option<Vec<[usize; 2]>> {
    let at = |index: usize| frame::read::<[u32; 2]>(vectors.wrapping_add(index * VECTOR));
    (0..count.min(MAX_VECTORS)).map(|index| at(index).map(|pair| pair.map(|word| word as usize))).collect()
}

/// A call that takes vectors, at each of these arguments and with their number behind: as the one of 64 bits.
fn by_vectors(
    thread: &mut Thread,
    context: &mut Context,
    number: usize,
    mut arguments: [usize; 6],
    at: &[usize],
) -> isize {
    let mut lists = Vec::new();
    for place in at {
        if arguments[place + 1] > MAX_VECTORS {
            return EINVAL;
        }
        let Some(list) = read_vectors(arguments[*place], arguments[place + 1]) else { return EFAULT };
        // A length that is negative in 32 bits.
        if list.iter().any(|[_, bytes]| *bytes > i32::MAX as usize) {
            return EINVAL;
        }
        arguments[*place] = list.as_ptr() as usize;
        lists.push(list);
    }
    serve_call(thread, context, number, arguments)
}

/// `execve` and `execveat`, with lists of addresses of 32 bits.
fn execute(
    thread: &mut Thread,
    context: &mut Context,
    number: usize,
    mut arguments: [usize; 6],
    at: [usize; 2],
) -> isize {
    const MAX_TEXTS: usize = 1 << 20;
    let mut lists = Vec::new();
    for place in at {
        if arguments[place] == 0 {
            continue;
        }
        let mut list = Vec::new();
        loop {
            let Some(text) = frame::read::<u32>(arguments[place] + list.len() * size_of::<u32>()) else {
                return EFAULT;
            };
            list.push(text as usize);
            if text == 0 || list.len() == MAX_TEXTS {
                break;
            }
        }
        arguments[place] = list.as_ptr() as usize;
        lists.push(list);
    }
    serve_call(thread, context, number, arguments)
}

/// `mremap`: where it would move to an address of its choice, that is one of 32 bits.
fn remap(thread: &mut Thread, context: &mut Context, [old, bytes, new_bytes, flags, new, _]: [usize; 6]) -> isize {
    let mut native = |number, arguments| serve_call(thread, context, number, arguments);
    if flags & (MREMAP_MAYMOVE | MREMAP_FIXED) != MREMAP_MAYMOVE {
        return native(calls::SYS_mremap, [old, bytes, new_bytes, flags, new, 0]);
    }
    let in_place = if flags & MREMAP_DONTUNMAP == 0 {
        native(calls::SYS_mremap, [old, bytes, new_bytes, flags & !MREMAP_MAYMOVE, 0, 0])
    } else {
        ENOMEM
    };
    if in_place != ENOMEM {
        return in_place;
    }
    const FLAGS: usize = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_32BIT;
    let reserve = [0, pages(new_bytes), 0, FLAGS, usize::MAX, 0];
    let at = native(calls::SYS_mmap, reserve);
    if at < 0 {
        return at;
    }
    let moved = native(calls::SYS_mremap, [old, bytes, new_bytes, flags | MREMAP_FIXED, at as usize, 0]);
    if moved < 0 {
        native(calls::SYS_munmap, [at as usize, pages(new_bytes), 0, 0, 0, 0]);
    }
    moved
}

/// A time of 32 bits, as one of 64.
fn read_time(at: usize) -> Option<[i64; 2]> {
    frame::read::<[i32; 2]>(at).map(|time| time.map(i64::from))
}

/// `nanosleep`.
fn sleep(thread: &mut Thread, context: &mut Context, [wanted, left, ..]: [usize; 6]) -> isize {
    let Some(time) = read_time(wanted) else { return EFAULT };
    let mut rest = [0i64; 2];
    let arguments = [time.as_ptr() as usize, &raw mut rest as usize, 0, 0, 0, 0];
    let result = serve_call(thread, context, calls::SYS_nanosleep, arguments);
    if result < 0 && left != 0 && !frame::write(left, &rest.map(|word| word as i32)) {
        return EFAULT;
    }
    result
}

/// `futex`, with a time of 32 bits if it is one that waits.
fn futex(thread: &mut Thread, context: &mut Context, mut arguments: [usize; 6]) -> isize {
    const WAITS: [usize; 5] = [FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI, FUTEX_LOCK_PI2];
    if arguments[3] == 0 || !WAITS.contains(&(arguments[1] & FUTEX_OPERATION)) {
        return serve_call(thread, context, calls::SYS_futex, arguments);
    }
    let Some(time) = read_time(arguments[3]) else { return EFAULT };
    arguments[3] = time.as_ptr() as usize;
    serve_call(thread, context, calls::SYS_futex, arguments)
}

/// `rt_sigaction`: asks, and sets what needs no frame of 32 bits.
fn rt_action(thread: &mut Thread, context: &mut Context, [signal, new, old, ..]: [usize; 6]) -> isize {
    let mut before = [0u64; 4];
    let own = &raw mut before as usize;
    let asked = serve_call(thread, context, calls::SYS_rt_sigaction, [signal, 0, own, size_of::<u64>(), 0, 0]);
    if asked < 0 {
        return asked;
    }
    if new != 0 {
        let (Some(words), Some(mask)) = (frame::read::<[u32; 3]>(new), frame::read::<[u32; 2]>(new + MASK_OF_ACTION))
        else {
            return EFAULT;
        };
        let result = set_action(thread, context, signal, words, u64::from(mask[0]) | u64::from(mask[1]) << 32);
        if result < 0 {
            return result;
        }
    }
    let [handler, flags, restorer, mask] = before;
    let shown = [handler as u32, flags as u32, restorer as u32, mask as u32, (mask >> 32) as u32];
    if old != 0 && !frame::write(old, &shown) { EFAULT } else { 0 }
}

/// Sets an action of 32 bits: a handler would be called with a frame that the agent does not make.
fn set_action(thread: &mut Thread, context: &mut Context, signal: usize, words: [u32; 3], mask: u64) -> isize {
    let [handler, flags, restorer] = words;
    if handler as usize > SIG_IGN {
        return refuse(i386::SYS_rt_sigaction);
    }
    let action = [u64::from(handler), u64::from(flags), u64::from(restorer), mask];
    let at = action.as_ptr() as usize;
    serve_call(thread, context, calls::SYS_rt_sigaction, [signal, at, 0, size_of::<u64>(), 0, 0])
}

/// `sigprocmask`, of the first 32 signals.
fn set_mask(thread: &mut Thread, context: &mut Context, [how, new, old, ..]: [usize; 6]) -> isize {
    const FIRST: u64 = u32::MAX as u64;
    let mut before = 0u64;
    let own = &raw mut before as usize;
    let mut native = |arguments| serve_call(thread, context, calls::SYS_rt_sigprocmask, arguments);
    native([0, 0, own, size_of::<u64>(), 0, 0]);
    if new != 0 {
        let Some(set) = frame::read::<u32>(new) else { return EFAULT };
        let set = if how == SIG_SETMASK { before & !FIRST | u64::from(set) } else { u64::from(set) };
        let result = native([how, &raw const set as usize, 0, size_of::<u64>(), 0, 0]);
        if result < 0 {
            return result;
        }
    }
    if old != 0 && !frame::write(old, &(before as u32)) { EFAULT } else { 0 }
}
