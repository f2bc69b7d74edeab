//! The table of system calls: what each needs of managed memory, what is done before and after.
//!
//! A call's buffers are brought in before it is made and held until it has returned, so the kernel never meets a
//! missing page, a call that consumes is never repeated, and a call that waits (a futex, a `read`) finds its memory
//! where it was. Calls that are not in the table have one page held at each argument that is a managed address; one
//! that says EFAULT all the same is made again with more.

use refault_linux::calls::*;
use refault_paging::sys;

use crate::entry;
use crate::frame::{self, ARGUMENTS, Context, Frame, Info, register};
use crate::memory_calls as memory;
use crate::thread::{Remade, Thread};
use crate::{clone, compat, descriptors, fast, locks, memory_files, pieces, pointed, signals, sites, tracing};

const EFAULT: isize = -14;
const ENOSYS: isize = -38;
const EBADF: isize = -9;
const ENOMEM: isize = -12;
const EINVAL: isize = -22;
/// The bit of a number by which a call is one of x32.
const X32: usize = 1 << 30;
/// Bytes held at an argument of which nothing is known.
const UNKNOWN: usize = 4096;
/// Bytes held when that was not enough.
const MORE: usize = 1 << 20;

/// A call of the program's that the kernel has taken for made although nobody made it: the thread is put back before it.
///
/// The kernel says by SIGSYS that a call has come. It keeps one signal of a number pending per thread: where another
/// SIGSYS, of whoever sent one to this thread, is pending but not delivered yet, the call's own is dropped. The program
/// would go on behind its call with the call's number for a result. Such a call is known by what the instruction leaves
/// in two registers, which [`enter`] changes in each call that comes to it.
pub(crate) fn find_lost(thread: &Thread, context: &mut Context) {
    use register::{FLAGS, R11, RCX, RIP};
    const SYSCALL: u16 = 0x050f;
    let registers = &mut context.registers;
    let after = registers[RIP];
    if registers[RCX] == after
        && registers[R11] == registers[FLAGS]
        && thread.is_dispatched
        && !entry::is_own_code(after as usize)
        && frame::read::<u16>((after as usize).wrapping_sub(2)) == Some(SYSCALL)
    {
        registers[RIP] = after - 2;
    }
}

/// A call of the program's has come.
pub(crate) fn enter(thread: &mut Thread, info: &Info, context: &mut Context) {
    use register::{RAX, RCX, RIP};
    thread.is_of_32_bits = compat::is_call(info, context);
    if thread.is_of_32_bits {
        fast::arrived(thread, context);
        entry::follow_the_budget();
        let result = compat::serve(thread, context);
        context.registers[RAX] = result as u64;
        return signals::deliver_kept(thread, context);
    }
    // What tells a call that was served from one that was lost.
    context.registers[RCX] = 0;
    if !fast::arrived(thread, context) {
        let number = context.registers[RAX] as usize;
        let arguments = ARGUMENTS.map(|place| context.registers[place] as usize);
        if number == SYS_rt_sigreturn {
            if !signals::resume(thread, context) {
                crate::report::end(format_args!("a signal handler returned to a frame that is not there"));
            }
        } else {
            entry::follow_the_budget();
            let sets_filter = number == SYS_prctl && arguments[0] == 22 || number == SYS_seccomp && arguments[0] < 2;
            let refused = if sets_filter { pointed::refused_filter(number, arguments) } else { None };
            if sets_filter && refused.is_none() && give_up(thread, context) {
                // The program makes it by itself: the filter may forbid the return from here (`rt_sigreturn`).
                context.registers[RIP] -= 2;
                return signals::deliver_kept(thread, context);
            }
            let result = match refused {
                Some(error) => error,
                None if sets_filter => ENOMEM,
                None => serve(thread, context, number, arguments),
            };
            context.registers[RAX] = result as u64;
            sites::caught(thread, context.registers[RIP] as usize);
        }
        sites::step_over(context);
    }
    signals::deliver_kept(thread, context);
}

/// Serves a call by its number and arguments.
pub(crate) fn serve(thread: &mut Thread, context: &mut Context, number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, ..] = arguments;
    match number {
        // Of x32: as a kernel without it.
        _ if number & X32 != 0 => ENOSYS,
        SYS_rt_sigaction => signals::set_action(thread, arguments),
        SYS_rt_sigprocmask => signals::set_mask(thread, &mut context.mask, arguments),
        SYS_rt_sigpending => signals::pending(thread, context.mask, arguments),
        SYS_sigaltstack => signals::set_alternate(thread, context.registers[register::RSP] as usize, arguments),
        SYS_mmap..=SYS_brk | SYS_madvise | SYS_shmat | SYS_pkey_mprotect => {
            memory::serve(number, arguments).unwrap_or(ENOSYS)
        }
        SYS_mremap => crate::moves::remap(arguments),
        sys::nr::PROCESS_MADVISE => {
            entry::hold(thread, b, c.min(1024) * size_of::<[usize; 2]>(), false);
            match crate::advice::advise_list(arguments) {
                Some(result) => {
                    entry::release(thread);
                    result
                }
                None => waiting(thread, context, number, arguments),
            }
        }
        SYS_mlock | SYS_munlock | SYS_mlock2 => locks::lock(number, arguments),
        SYS_mlockall => locks::lock_all(arguments),
        SYS_munlockall => locks::unlock_all(),
        SYS_personality => memory::set_personality(arguments),
        SYS_rseq | SYS_set_robust_list => {
            hold_for_good(a, b.min(4096));
            plain(number, arguments)
        }
        SYS_set_tid_address => {
            hold_for_good(a, 4);
            plain(number, arguments)
        }
        SYS_clone | SYS_fork | SYS_vfork | SYS_clone3 => {
            hold_thread_words(number, arguments);
            hold_unknown(thread, arguments, UNKNOWN);
            let pid = clone::serve(thread, context, number, arguments);
            entry::release(thread);
            pid
        }
        SYS_execve | SYS_execveat => {
            let error = clone::execute(thread, context, number, arguments);
            entry::release(thread);
            error
        }
        SYS_exit if !thread.is_vm_child => clone::end_thread(thread, a),
        SYS_exit => plain(SYS_exit_group, arguments),
        SYS_exit_group => {
            if !thread.is_vm_child {
                crate::start::finish();
            }
            plain(number, arguments)
        }
        // Buffers that the kernel fills later: not here.
        SYS_io_setup | SYS_io_uring_setup => ENOSYS,
        SYS_close if descriptors::is_own(a) => EBADF,
        SYS_dup | SYS_fcntl if descriptors::is_own(a) => EBADF,
        SYS_dup2 | SYS_dup3 if descriptors::is_own(a) || descriptors::is_own(b) => EBADF,
        SYS_fstat | SYS_newfstatat | SYS_statx if descriptors::asks_about_own(number, arguments) => EBADF,
        SYS_close_range => descriptors::close_range(a, b, c),
        SYS_getdents64 if descriptors::is_folder_of_proc(a) => list(thread, context, number, arguments),
        // PTRACE_TRACEME: from here on every signal stops this process for its tracer, ours too. It is about to
        // execute.
        SYS_ptrace if a == 0 => {
            entry::paging().account().is_deaf();
            entry::dispatch_off(thread);
            plain(number, arguments)
        }
        tracing::PTRACE if thread.is_vm_child => {
            hold_unknown(thread, arguments, UNKNOWN);
            pointed::hold_all(thread, arguments, UNKNOWN);
            let result = tracing::serve(arguments);
            entry::release(thread);
            result
        }
        // Another user of what the agent stands on.
        SYS_prctl if a == 59 => EINVAL,
        SYS_ioctl if pointed::is_refused(b, c) => EINVAL,
        // The register by which patched sites find their thread.
        SYS_arch_prctl if a == fast::ARCH_SET_GS => {
            fast::turn_off();
            plain(number, arguments)
        }
        SYS_arch_prctl if a == fast::ARCH_GET_GS && fast::is_on() => {
            if frame::write(b, &0u64) {
                0
            } else {
                EFAULT
            }
        }
        SYS_unshare | SYS_setns => {
            clone::may_send_children_elsewhere();
            waiting(thread, context, number, arguments)
        }
        // Neither waits nor touches memory.
        SYS_close | SYS_lseek | SYS_sched_yield | SYS_getpid | SYS_getuid | SYS_getgid | SYS_geteuid | SYS_getegid
        | SYS_getppid | SYS_getpgrp | SYS_setsid | SYS_gettid => plain(number, arguments),
        _ => waiting(thread, context, number, arguments),
    }
}

/// `getdents64` of a folder of `/proc`: nothing is not the end if all that was there is the agent's.
fn list(thread: &mut Thread, context: &mut Context, number: usize, arguments: [usize; 6]) -> isize {
    loop {
        let bytes = waiting(thread, context, number, arguments);
        if bytes <= 0 {
            return bytes;
        }
        let left = descriptors::leave_out_own(arguments[0], arguments[1], bytes as usize);
        if left > 0 {
            return left as isize;
        }
    }
}

pub(crate) fn plain(number: usize, arguments: [usize; 6]) -> isize {
    // SAFETY: the program's own call.
    unsafe { sys::call(number, arguments) }
}

/// Makes a call that may wait, with its memory held and the program's signals open.
fn waiting(thread: &mut Thread, context: &mut Context, number: usize, mut arguments: [usize; 6]) -> isize {
    if let Some(result) = memory_files::serve(thread, number, arguments) {
        return result;
    }
    if let Some(result) = pieces::serve(thread, context, number, arguments) {
        memory_files::was_made(number, arguments, result);
        return result;
    }
    let (mut own, as_passed) = (OwnMemory::default(), arguments);
    hold_arguments(thread, number, &mut arguments, &mut own);
    thread.was_asked = false;
    let mut result = make(thread, context, number, &arguments);
    if result == EFAULT && lacked_memory(thread, number, arguments) {
        result = make(thread, context, number, &arguments);
    }
    entry::release(thread);
    memory_files::was_made(number, as_passed, result);
    if result > 0 && std::mem::take(&mut thread.was_asked) {
        result = pieces::go_on(thread, context, number, as_passed, result as usize) as isize;
    }
    result
}

/// Calls that may have taken something before they say EFAULT: not to be made twice. All their memory is in the table.
fn consumes(number: usize) -> bool {
    matches!(
        number,
        SYS_read
            | SYS_readv
            | SYS_accept
            | SYS_recvfrom
            | SYS_recvmsg
            | SYS_wait4
            | SYS_msgrcv
            | SYS_rt_sigtimedwait
            | SYS_mq_timedreceive
            | SYS_waitid
            | SYS_accept4
            | SYS_recvmmsg
    )
}

/// Whether a call that says EFAULT may have met a page that was out, and so is to be made again: it is one that takes
/// nothing, and more of its memory had to be brought in, which is held from now on, or another thread may have brought it
/// in meanwhile. All others have their EFAULT from the kernel, and it stays.
pub(crate) fn lacked_memory(thread: &mut Thread, number: usize, arguments: [usize; 6]) -> bool {
    if consumes(number) {
        return false;
    }
    let before = brought_in();
    hold_unknown(thread, arguments, MORE);
    pointed::hold_all(thread, arguments, MORE);
    brought_in() != before || !thread.is_last()
}

/// Pages brought in so far.
fn brought_in() -> u64 {
    let paging = entry::paging();
    paging.statistics.first_touches + paging.statistics.rescued + paging.statistics.read_back
}

/// A filter is about to be set, which may forbid what the agent needs: from here on the program has its memory, its calls
/// and, if it has one thread, its signals as the kernel gives them. False if its memory cannot be had.
fn give_up(thread: &mut Thread, context: &mut Context) -> bool {
    let mut paging = entry::paging();
    // Before: what is asked from here on would be asked of the program's own action.
    paging.account().is_deaf();
    if let Err(why) = paging.give_up() {
        paging.account().is_not_deaf();
        drop(paging);
        crate::report::say(format_args!("a system-call filter is refused: {why}"));
        return false;
    }
    drop(paging);
    entry::dispatch_off(thread);
    if thread.is_last() {
        signals::give_back(thread, context);
    }
    true
}

/// Words that the kernel writes to by itself, later: they stay where they are for good.
fn hold_for_good(start: usize, bytes: usize) {
    if start != 0 {
        let mut paging = entry::paging();
        if paging.manages(start, bytes) {
            paging.hold_for_call(start, bytes, true);
        }
    }
}

/// What the kernel writes when a thread begins and ends.
fn hold_thread_words(number: usize, [a, b, c, d, ..]: [usize; 6]) {
    if number == SYS_clone {
        hold_for_good(c, 4);
        hold_for_good(d, 4);
    } else if number == SYS_clone3
        && let Ok(passed) = clone::CloneArguments::read(a, b)
    {
        for word in [passed.pidfd, passed.child_tid, passed.parent_tid] {
            hold_for_good(word as usize, size_of::<i32>());
        }
    }
}

pub(crate) fn make(thread: &mut Thread, context: &mut Context, number: usize, arguments: &[usize; 6]) -> isize {
    let place = std::ptr::from_mut(context) as usize - std::mem::offset_of!(Frame, context);
    if matches!(number, SYS_poll | SYS_epoll_wait | SYS_epoll_pwait) {
        thread.began = sys::now();
    }
    thread.remade = Remade::No;
    let thread = std::ptr::from_mut(thread);
    // SAFETY: the program's own call. A signal that comes meanwhile reads what is written here and leaves through it,
    // which the compiler cannot know: the pointer is handed to the call, so that nothing may be moved across it.
    unsafe {
        std::ptr::write_volatile(&raw mut (*thread).waiting, place as *mut Frame);
        let result = frame::refault_waiting_call(number, arguments, &context.mask, &signals::ALL, thread.cast());
        std::ptr::write_volatile(&raw mut (*thread).waiting, std::ptr::null_mut());
        (*thread).waiting_mask = None;
        result
    }
}

/// [`make`] for a call of 32 bits, by the gate that it came by.
pub(crate) fn make_by_gate(thread: &mut Thread, context: &mut Context, number: usize, arguments: &[usize; 6]) -> isize {
    let place = std::ptr::from_mut(context) as usize - std::mem::offset_of!(Frame, context);
    thread.remade = Remade::No;
    let thread = std::ptr::from_mut(thread);
    // SAFETY: as in `make`.
    unsafe {
        std::ptr::write_volatile(&raw mut (*thread).waiting, place as *mut Frame);
        let result = frame::refault_gate_call(number, arguments, &context.mask, &signals::ALL, thread.cast());
        std::ptr::write_volatile(&raw mut (*thread).waiting, std::ptr::null_mut());
        result
    }
}

/// Whether a call is made by the kernel as it stands: nothing of its arguments is replaced, nothing beside it is done, and
/// it may be made from a patched site.
pub(crate) fn is_plain(number: usize, arguments: [usize; 6]) -> bool {
    let [a, b, c, d, mask, _] = arguments;
    match number {
        // read, write, pread64, pwrite64, readv, writev, sendto, recvfrom, sendmsg, recvmsg: what is larger may go in pieces.
        SYS_read | SYS_write | SYS_pread64..=SYS_writev if memory_files::may_be_open() => false,
        SYS_read | SYS_write | SYS_pread64..=SYS_writev | SYS_sendto..=SYS_recvmsg => {
            !pieces::exceeds(number, arguments)
        }
        SYS_close | SYS_dup | SYS_fcntl => !descriptors::is_own(a),
        SYS_getdents64 => !descriptors::is_folder_of_proc(a),
        SYS_fstat | SYS_newfstatat | SYS_statx => !descriptors::asks_about_own(number, arguments),
        SYS_dup2 | SYS_dup3 => !descriptors::is_own(a) && !descriptors::is_own(b),
        SYS_ioctl => !pointed::is_refused(b, c),
        // Without a mask.
        SYS_epoll_pwait => mask == 0,
        SYS_ppoll => d == 0,
        SYS_open
        | SYS_stat
        | SYS_lstat..=SYS_lseek
        | SYS_access
        | SYS_sched_yield
        | SYS_getpid
        | SYS_shutdown
        | SYS_getsockname
        | SYS_getpeername
        | SYS_setsockopt
        | SYS_getsockopt
        | SYS_wait4
        | SYS_uname
        | SYS_getcwd
        | SYS_readlink
        | SYS_gettimeofday
        | SYS_getrusage
        | SYS_geteuid
        | SYS_getppid
        | SYS_gettid
        | SYS_futex
        | SYS_clock_gettime
        | SYS_epoll_wait
        | SYS_epoll_ctl
        | SYS_openat
        | SYS_readlinkat
        | SYS_faccessat
        | SYS_timerfd_settime
        | SYS_accept4
        | SYS_pipe2
        | SYS_getrandom
        | SYS_faccessat2 => true,
        _ => false,
    }
}

/// Holds what a plain call needs. False if the call is to be made otherwise.
pub(crate) fn hold_for(thread: &mut Thread, number: usize, arguments: [usize; 6]) -> bool {
    let (mut held, mut own) = (arguments, OwnMemory::default());
    hold_arguments(thread, number, &mut held, &mut own);
    if matches!(number, SYS_poll | SYS_epoll_wait | SYS_epoll_pwait) {
        thread.began = sys::now();
    }
    held == arguments
}

/// Copies that replace what the program has passed.
#[derive(Default)]
struct OwnMemory {
    mask: u64,
    pair: [usize; 2],
    /// How long to sleep, and what is left of that.
    time: [u64; 2],
    rest: [u64; 2],
}

fn hold_unknown(thread: &mut Thread, arguments: [usize; 6], bytes: usize) {
    let mut paging = entry::paging();
    for address in arguments {
        if (4096..1 << 47).contains(&address) && paging.manages(address, 1) {
            let end = paging.range(address).map_or(address, |(_, end, _)| end);
            let held = bytes.min(end - address);
            paging.hold_for_call(address, held, true);
            thread.holds.push((address, held));
        } else if (4096..1 << 47).contains(&address) && paging.manages(address, UNKNOWN) {
            paging.hold_for_call(address, UNKNOWN, true);
            thread.holds.push((address, UNKNOWN));
        }
    }
}

/// Whether [`hold_arguments`] names all memory of a call, or there is none: the frequent ones, and those that have an address
/// at which nothing is read.
fn is_all_known(number: usize, arguments: &[usize; 6]) -> bool {
    match number {
        SYS_read | SYS_write | SYS_pread64..=SYS_writev | SYS_sendmsg | SYS_recvmsg | SYS_poll | SYS_epoll_wait => true,
        SYS_close | SYS_lseek | SYS_sched_yield | SYS_getpid | SYS_shutdown | SYS_getppid | SYS_gettid => true,
        // Of a range the kernel is told or asked where it is, not what is in it.
        SYS_msync | SYS_mincore => true,
        // Without an address or a mask.
        SYS_sendto | SYS_recvfrom | SYS_epoll_pwait => arguments[4] == 0,
        _ => false,
    }
}

/// Holds what a call reads and writes, and replaces what it must not be given.
fn hold_arguments(thread: &mut Thread, number: usize, arguments: &mut [usize; 6], own: &mut OwnMemory) {
    let [a, b, c, d, e, f] = *arguments;
    if !is_all_known(number, arguments) {
        hold_unknown(thread, *arguments, UNKNOWN);
    }
    match number {
        // prctl: PR_SET_TSC
        SYS_prctl if a == 26 => refault_paging::clock::forget_counter(),
        SYS_read | SYS_pread64 | SYS_recvfrom | SYS_getdents | SYS_getdents64 | SYS_readlink | SYS_msgrcv
        | SYS_mq_timedreceive => entry::hold(thread, b, c, true),
        SYS_write | SYS_pwrite64 | SYS_sendto | SYS_msgsnd | SYS_mq_timedsend => entry::hold(thread, b, c, false),
        SYS_ioctl => pointed::prepare(thread, b, c),
        SYS_getcwd | SYS_getrandom => entry::hold(thread, a, b, true),
        SYS_readlinkat => entry::hold(thread, c, d, true),
        SYS_setxattr..=SYS_fgetxattr => entry::hold(thread, c, d, true),
        SYS_listxattr..=SYS_flistxattr => entry::hold(thread, b, c, true),
        SYS_readv | SYS_writev | SYS_preadv | SYS_pwritev | SYS_preadv2 | SYS_pwritev2 | SYS_vmsplice => {
            hold_vectors(thread, b, c, matches!(number, SYS_readv | SYS_preadv | SYS_preadv2))
        }
        SYS_process_vm_readv | SYS_process_vm_writev => {
            hold_vectors(thread, b, c, true);
            hold_vectors(thread, d, e, true);
        }
        SYS_sendmsg | SYS_recvmsg => hold_message(thread, b, number == SYS_recvmsg),
        SYS_sendmmsg | SYS_recvmmsg => {
            entry::hold(thread, b, c.min(1024) * 64, true);
            for index in 0..c.min(1024) {
                hold_message(thread, b + index * 64, number == SYS_recvmmsg);
            }
        }
        SYS_poll => entry::hold(thread, a, b.min(1 << 20) * 8, true),
        SYS_ppoll => {
            entry::hold(thread, a, b.min(1 << 20) * 8, true);
            replace_mask(thread, &mut arguments[3], &mut own.mask);
        }
        SYS_epoll_wait => entry::hold(thread, b, c.min(1 << 20) * 12, true),
        SYS_epoll_pwait | SYS_epoll_pwait2 => {
            entry::hold(thread, b, c.min(1 << 20) * 12, true);
            if number == SYS_epoll_pwait2 {
                replace_end(thread, &mut arguments[3], own);
            }
            replace_mask(thread, &mut arguments[4], &mut own.mask);
        }
        // nanosleep, clock_nanosleep for a while: what is left is needed if the call is made again
        SYS_nanosleep => replace_time(arguments, [0, 1], own),
        SYS_clock_nanosleep if b & 1 == 0 => replace_time(arguments, [2, 3], own),
        // rt_sigtimedwait, semtimedop; futex: FUTEX_WAIT, which waits for a while
        SYS_rt_sigtimedwait => replace_end(thread, &mut arguments[2], own),
        SYS_semtimedop => replace_end(thread, &mut arguments[3], own),
        SYS_futex if b & 127 == 0 => replace_end(thread, &mut arguments[3], own),
        SYS_rt_sigsuspend => replace_mask(thread, &mut arguments[0], &mut own.mask),
        SYS_pselect6 => {
            if let Some(pair) = frame::read::<[usize; 2]>(f) {
                own.pair = pair;
                replace_mask(thread, &mut own.pair[0], &mut own.mask);
                arguments[5] = own.pair.as_ptr() as usize;
            }
        }
        SYS_futex_waitv => {
            entry::hold(thread, a, b.min(128) * 24, false);
            for index in 0..b.min(128) {
                if let Some(waiter) = frame::read::<[usize; 3]>(a + index * 24) {
                    entry::hold(thread, waiter[1], 4, true);
                }
            }
        }
        SYS_move_pages => {
            entry::hold(thread, c, b * 8, false);
            entry::hold(thread, d, b * 4, false);
            entry::hold(thread, e, b * 4, true);
        }
        SYS_mincore => entry::hold(thread, c, b / 4096 + 1, true),
        _ => {}
    }
}

/// A sleep is told a time of the agent's, which may be changed, and where to write what is left.
fn replace_time(arguments: &mut [usize; 6], [time, rest]: [usize; 2], own: &mut OwnMemory) {
    if let Some(wanted) = frame::read::<[u64; 2]>(arguments[time]) {
        own.time = wanted;
        arguments[time] = own.time.as_ptr() as usize;
        if arguments[rest] == 0 {
            arguments[rest] = own.rest.as_mut_ptr() as usize;
        }
    }
}

/// A call that waits for a while is told a time of the agent's, which may be changed: the kernel does not say what is left.
fn replace_end(thread: &mut Thread, time: &mut usize, own: &mut OwnMemory) {
    if let Some(wanted) = frame::read::<[u64; 2]>(*time) {
        own.time = wanted;
        *time = own.time.as_ptr() as usize;
        thread.began = sys::now();
    }
}

/// Prepares a call that was ended to let this thread make room for being made again: it waits for what is left of its
/// time.
pub(crate) fn again(thread: &mut Thread, context: &mut Context, number: usize) {
    use register::{R10, RDI, RDX, RSI};
    let registers = &mut context.registers;
    let relative = registers[RSI] & 1 == 0;
    match number {
        SYS_nanosleep => _ = frame::copy(registers[RDI] as usize, registers[RSI] as usize, 16),
        SYS_clock_nanosleep if relative => _ = frame::copy(registers[RDX] as usize, registers[R10] as usize, 16),
        SYS_rt_sigtimedwait => shorten(thread, registers[RDX] as usize),
        SYS_semtimedop | SYS_epoll_pwait2 => shorten(thread, registers[R10] as usize),
        SYS_futex if registers[RSI] & 127 == 0 => shorten(thread, registers[R10] as usize),
        SYS_poll | SYS_epoll_wait | SYS_epoll_pwait => {
            let timeout = &mut registers[if number == SYS_poll { RDX } else { R10 }];
            let milliseconds = *timeout as i32;
            if milliseconds > 0 {
                // Rounded up: never less than was asked for.
                let passed = (sys::now() - thread.began) / 1_000_000;
                let left = (milliseconds as u64).saturating_sub(passed);
                thread.began += passed * 1_000_000;
                *timeout = left;
            }
        }
        _ => {}
    }
}

/// Takes off a time of [`replace_end`] what has passed of it.
fn shorten(thread: &mut Thread, time: usize) {
    const SECOND: u64 = 1_000_000_000;
    if let Some([seconds, nanoseconds]) = frame::read::<[u64; 2]>(time) {
        let passed = sys::now() - thread.began;
        let left = seconds.saturating_mul(SECOND).saturating_add(nanoseconds).saturating_sub(passed);
        thread.began += passed;
        frame::write(time, &[left / SECOND, left % SECOND]);
    }
}

/// A mask that a call sets while it waits must leave the agent's signals open.
fn replace_mask(thread: &mut Thread, argument: &mut usize, own: &mut u64) {
    if *argument == 0 {
        return;
    }
    if let Some(mask) = frame::read::<u64>(*argument) {
        *own = mask & !signals::ALWAYS_OPEN;
        thread.waiting_mask = Some(mask);
        *argument = std::ptr::from_ref(own) as usize;
    }
}

fn hold_vectors(thread: &mut Thread, vectors: usize, count: usize, write: bool) {
    let count = count.min(1024);
    entry::hold(thread, vectors, count * 16, false);
    frame::each_vector(vectors, count, |[start, bytes]| entry::hold(thread, start, bytes.min(1 << 40), write));
}

/// Holds what a message is, or what it is to be written to.
pub(crate) fn hold_message(thread: &mut Thread, message: usize, write: bool) {
    entry::hold(thread, message, 56, write);
    let Some([name, name_bytes, vectors, count, control, control_bytes, _]) = frame::read::<[usize; 7]>(message) else {
        return;
    };
    entry::hold(thread, name, name_bytes & 0xffff_ffff, write);
    hold_vectors(thread, vectors, count, write);
    entry::hold(thread, control, control_bytes.min(1 << 24), write);
}
