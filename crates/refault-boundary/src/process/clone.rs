//! Processes and threads: `fork`, `vfork`, `clone`, `clone3`, and their ends.
//!
//! A child that shares memory begins on a stack of the agent's, where a copy of its parent's frame lies. From there it
//! continues with its own stack pointer. So neither side relies on what the other does with the program's stack. A
//! child with memory of its own returns from the handler as the parent does, with a userfaultfd of its own.

use std::arch::global_asm;
use std::mem::size_of;
use std::sync::atomic::{AtomicBool, Ordering};

use refault_linux::calls::{SYS_clone, SYS_clone3, SYS_dup3, SYS_execve, SYS_exit_group, SYS_setrlimit, SYS_vfork};
use refault_linux::clone::{
    CLONE_CLEAR_SIGHAND, CLONE_FILES, CLONE_NEWPID, CLONE_SIGHAND, CLONE_THREAD, CLONE_VFORK, CLONE_VM,
};
use refault_linux::errno::{E2BIG, EAGAIN, EFAULT, EINVAL};
use refault_linux::flags::{O_CLOEXEC, RLIMIT_NOFILE};
use refault_linux::uffd::Uffd;
use refault_linux::{END_OF_ADDRESSES, PAGE, signals::SIGCHLD, sys};

use crate::engine_lock::paging;
use crate::frame::{self, Context, Frame, VECTORS_LIE_AT, register};
use crate::library::report;
use crate::memory::addresses::give_addresses_back;
use crate::memory::heap;
use crate::patched::fast;
use crate::patched::sites;
use crate::patched::switch;
use crate::signals;
use crate::thread::Thread;
use crate::user_dispatch::dispatch_on;

/// Bytes of the first form of `clone3`'s arguments, and of the longest that any kernel looks at.
const MIN_ARGUMENTS: usize = 64;
const MAX_ARGUMENTS: usize = 4096;
/// `clone` takes the flags of 32 bits only.
const FLAGS_OF_CLONE: usize = u32::MAX as usize;

/// Children of this process may be in another namespace of process numbers than itself.
static SENDS_CHILDREN_ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// `clone3`'s arguments, as far as they are known here (`struct clone_args`, up to `cgroup`).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CloneArguments {
    flags: u64,
    pub(crate) pidfd: u64,
    pub(crate) child_tid: u64,
    pub(crate) parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_bytes: u64,
    tls: u64,
    set_tid: u64,
    set_tid_count: u64,
    cgroup: u64,
}

impl CloneArguments {
    /// What the program passes at `at`, in `bytes` bytes: what it does not pass is 0.
    ///
    /// # Errors
    /// What the kernel says: they are too few or too many, not there, or of a kernel that knows more than this agent.
    pub(crate) fn read(at: usize, bytes: usize) -> Result<CloneArguments, isize> {
        let known = size_of::<CloneArguments>();
        match bytes {
            ..MIN_ARGUMENTS => return Err(EINVAL),
            MIN_ARGUMENTS..=MAX_ARGUMENTS => {}
            _ => return Err(E2BIG),
        }
        let mut words = [0u64; size_of::<CloneArguments>() / size_of::<u64>()];
        if !frame::copy(words.as_mut_ptr() as usize, at, bytes.min(known)) {
            return Err(EFAULT);
        }
        for further in at + known.min(bytes)..at + bytes {
            match frame::read::<u8>(further) {
                Some(0) => {}
                Some(_) => return Err(E2BIG),
                None => return Err(EFAULT),
            }
        }
        let [flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_bytes, tls, set_tid, set_tid_count, cgroup] =
            words;
        Ok(CloneArguments {
            flags,
            pidfd,
            child_tid,
            parent_tid,
            exit_signal,
            stack,
            stack_bytes,
            tls,
            set_tid,
            set_tid_count,
            cgroup,
        })
    }

    /// Whether the kernel takes the stack that is passed: a place and a size, or neither.
    fn has_sound_stack(&self) -> bool {
        let end = self.stack.checked_add(self.stack_bytes);
        (self.stack == 0) == (self.stack_bytes == 0) && end.is_some_and(|end| end < END_OF_ADDRESSES as u64)
    }
}

/// Serves one of the four calls. Returns what the parent, or a child with memory of its own, is to see.
pub(crate) fn serve(thread: &mut Thread, context: &mut Context, number: usize, arguments: [usize; 6]) -> isize {
    match number {
        SYS_clone => {
            let [flags, stack, parent, child, tls, _] = arguments;
            let flags = (flags & FLAGS_OF_CLONE) as u64;
            start(thread, context, Kind::Clone { flags, stack, rest: [parent, child, tls] })
        }
        SYS_clone3 => match CloneArguments::read(arguments[0], arguments[1]) {
            Ok(passed) => {
                let ids = (passed.set_tid_count as usize).saturating_mul(size_of::<i32>()).min(MAX_ARGUMENTS);
                crate::engine_lock::hold(thread, passed.set_tid as usize, ids, false);
                let bytes = arguments[1].min(size_of::<CloneArguments>());
                start(thread, context, Kind::Clone3 { arguments: passed, bytes })
            }
            Err(error) => error,
        },
        SYS_vfork => start(
            thread,
            context,
            Kind::Clone { flags: CLONE_VM | CLONE_VFORK | SIGCHLD as u64, stack: 0, rest: [0; 3] },
        ),
        _ => start(thread, context, Kind::Clone { flags: SIGCHLD as u64, stack: 0, rest: [0; 3] }),
    }
}

enum Kind {
    Clone { flags: u64, stack: usize, rest: [usize; 3] },
    Clone3 { arguments: CloneArguments, bytes: usize },
}

impl Kind {
    fn flags(&self) -> u64 {
        match self {
            Kind::Clone { flags, .. } => *flags,
            Kind::Clone3 { arguments, .. } => arguments.flags,
        }
    }

    /// The child's stack pointer, if it has another.
    fn stack(&self) -> Option<usize> {
        match self {
            Kind::Clone { stack, .. } => (*stack != 0).then_some(*stack),
            Kind::Clone3 { arguments, .. } => {
                (arguments.stack != 0).then(|| (arguments.stack + arguments.stack_bytes) as usize)
            }
        }
    }

    /// Whether the child is to have no actions of its parent's. The kernel refuses that where both have the same ones.
    fn clears_actions(&self) -> bool {
        self.flags() & (CLONE_CLEAR_SIGHAND | CLONE_SIGHAND) == CLONE_CLEAR_SIGHAND
    }

    /// Whether the kernel refuses the call for what is passed beside the flags, which the agent replaces.
    fn is_refused(&self) -> bool {
        matches!(self, Kind::Clone3 { arguments, .. } if !arguments.has_sound_stack())
    }

    /// The arguments of `clone3` for the kernel: with a stack of the agent's, if there is any, and with the agent's own
    /// handlers, whatever becomes of the program's.
    fn for_kernel(arguments: &CloneArguments, clears: bool, stack: usize) -> CloneArguments {
        const ROOM: u64 = PAGE as u64;
        let (stack, stack_bytes) = if stack == 0 { (0, 0) } else { (stack as u64 - ROOM, ROOM) };
        let flags = if clears { arguments.flags & !CLONE_CLEAR_SIGHAND } else { arguments.flags };
        CloneArguments { flags, stack, stack_bytes, ..*arguments }
    }

    /// Makes the call; a child that shares memory begins on the agent's `stack`.
    fn call(&self, stack: usize, child: usize) -> isize {
        match self {
            Kind::Clone { flags, rest: [parent, tid, tls], .. } => {
                // SAFETY: a child on a stack of its own, or with memory of its own.
                unsafe { frame::refault_clone(SYS_clone, *flags as usize, stack, *parent, *tid, *tls, child) }
            }
            Kind::Clone3 { arguments, bytes } => {
                let passed = Kind::for_kernel(arguments, self.clears_actions(), stack);
                let at = &raw const passed as usize;
                // SAFETY: as above.
                unsafe { frame::refault_clone(SYS_clone3, at, *bytes, 0, 0, 0, child) }
            }
        }
    }
}

fn start(thread: &mut Thread, context: &mut Context, kind: Kind) -> isize {
    if kind.is_refused()
        && let Kind::Clone3 { arguments, bytes } = &kind
    {
        // SAFETY: the kernel says what is wrong with it, and makes no child.
        return unsafe { sys::make(SYS_clone3, [std::ptr::from_ref(arguments) as usize, *bytes, 0, 0, 0, 0]) };
    }
    if kind.flags() & CLONE_VM == 0 { fork(thread, context, kind) } else { share(thread, context, &kind) }
}

/// A child with memory of its own.
fn fork(thread: &mut Thread, context: &mut Context, kind: Kind) -> isize {
    let observer = crate::process::observer::stand_still();
    let mut paging = paging();
    if kind.flags() & CLONE_FILES != 0 {
        crate::process::owner::shares_descriptors();
    }
    paging.before_fork();
    let blocks = Thread::stand_still();
    let actions = crate::signals::stand_still();
    let heap = heap::stand_still();
    let child = match &kind {
        Kind::Clone { flags, rest: [parent, tid, tls], .. } => {
            // SAFETY: the child has memory of its own and goes on here.
            unsafe { sys::make(SYS_clone, [*flags as usize, 0, *parent, *tid, *tls, 0]) }
        }
        Kind::Clone3 { arguments, bytes } => {
            let passed = Kind::for_kernel(arguments, kind.clears_actions(), 0);
            // SAFETY: as above.
            unsafe { sys::make(SYS_clone3, [&raw const passed as usize, *bytes, 0, 0, 0, 0]) }
        }
    };
    drop(heap);
    drop(actions);
    drop(blocks);
    if child != 0 {
        paging.has_forked(child);
        return child;
    }
    if kind.flags() & CLONE_NEWPID != 0 || SENDS_CHILDREN_ELSEWHERE.swap(false, Ordering::Relaxed) {
        sys::forget_pid_namespace();
    }
    if kind.clears_actions() {
        signals::clear(thread.actions());
        signals::clear_in_kernel();
    }
    crate::process::owner::owns_memory();
    crate::mapping::locks::forked(&mut paging);
    crate::engine_lock::is_child();
    let old = paging.uffd().descriptor();
    let refusal = |error| match crate::files::descriptors::are_lacking(error) {
        true => "no descriptor is left for userfaultfd (ulimit -n)",
        false => "userfaultfd is refused",
    };
    let has_own_descriptors = kind.flags() & CLONE_FILES == 0;
    let ready = open_in_child(old, has_own_descriptors).map_err(refusal).and_then(|uffd| paging.after_fork(uffd));
    if let Err(why) = ready {
        report::end(format_args!("a forked child cannot be managed: {why}"));
    }
    drop(paging);
    thread.only();
    observer.in_child();
    dispatch_on();
    if let Some(stack) = kind.stack() {
        context.registers[register::RSP] = stack as u64;
    }
    0
}

/// A userfaultfd for a forked child, in the place of its parent's if that can be, and whatever the limit of
/// descriptors. Where the child has the table of descriptors that its parent has, the parent's stays where it is.
fn open_in_child(old: i32, has_own_descriptors: bool) -> Result<Uffd, isize> {
    let limits @ [_, most] = sys::limits(RLIMIT_NOFILE);
    let set = |limits: [u64; 2]| {
        // SAFETY: setrlimit reads two words.
        unsafe { sys::call(SYS_setrlimit, [RLIMIT_NOFILE, limits.as_ptr() as usize, 0, 0, 0, 0]) };
    };
    let new = Uffd::open().or_else(|_| {
        set([most, most]);
        let new = Uffd::open();
        set(limits);
        new
    });
    let new = match new {
        // Where the parent's is, there is room when it is closed.
        Err(error) if has_own_descriptors && crate::files::descriptors::are_lacking(error) => {
            Uffd::from_descriptor(old).close();
            let new = Uffd::open()?;
            if new.descriptor() == old {
                return Ok(new);
            }
            new
        }
        new => new?,
    };
    if !has_own_descriptors {
        let high = crate::files::descriptors::adopt(new.descriptor());
        return Ok(Uffd::from_descriptor(high));
    }
    // SAFETY: the parent's descriptor is replaced by the child's.
    if unsafe { sys::call(SYS_dup3, [new.descriptor() as usize, old as usize, O_CLOEXEC, 0, 0, 0]) } >= 0 {
        new.close();
        return Ok(Uffd::from_descriptor(old));
    }
    // Above the limit: another number, and the parent's is not ours any more.
    Uffd::from_descriptor(old).close();
    crate::files::descriptors::closed(old);
    crate::files::descriptors::keep(new.descriptor());
    Ok(new)
}

/// What a child that shares memory needs to begin.
pub(crate) struct Birth {
    thread: *mut Thread,
    context: *mut Context,
    /// It has none of its parent's actions.
    clears_actions: bool,
}

/// A thread, or a child that borrows the memory until it executes.
fn share(thread: &mut Thread, context: &mut Context, kind: &Kind) -> isize {
    let flags = kind.flags();
    let is_thread = flags & CLONE_THREAD != 0;
    let is_alone = thread.is_last();
    let actions =
        if flags & CLONE_SIGHAND != 0 { thread.actions } else { Box::into_raw(Box::new(crate::signals::copy(thread))) };
    if is_thread && is_alone && !thread.is_vm_child {
        sites::before_threads(context.registers[register::RIP] as usize);
    }
    if is_thread {
        paging().threads(true);
        if flags & CLONE_FILES == 0 {
            crate::calls::leaving::parts();
        }
    }
    if kind.clears_actions() {
        // SAFETY: made above, for the child alone.
        signals::clear(unsafe { &mut *actions });
    }
    let again = || give_addresses_back(&mut paging()).then(|| Thread::new(actions)).flatten();
    let Some(child) = Thread::new(actions).or_else(again) else { return EAGAIN };
    child.is_vm_child = !is_thread;
    child.hidden = thread.hidden;
    if flags & CLONE_VFORK != 0 {
        child.alternate = thread.alternate;
    }
    /// Bytes between the frame and the stack's end.
    const ABOVE: usize = 256;
    // The child's frame, on its own block: the parent's with another result and stack.
    let (start, bytes) = child.stack();
    let vector_bytes = context.vector_bytes();
    let vectors = (start + bytes - ABOVE - vector_bytes) & !(VECTORS_LIE_AT - 1);
    let place = (vectors - size_of::<Frame>() - size_of::<Birth>() - VECTORS_LIE_AT) & !(VECTORS_LIE_AT - 1);
    let frame_at = (place + size_of::<Birth>()).next_multiple_of(16) + 8;
    let copy = (frame_at + 8) as *mut Context;
    // SAFETY: the block is the child's and no thread runs on it.
    unsafe {
        std::ptr::copy_nonoverlapping(context.vectors as *const u8, vectors as *mut u8, vector_bytes);
        *copy = *context;
        (*copy).vectors = if vector_bytes == 0 { 0 } else { vectors };
        (*copy).registers[register::RAX] = 0;
        if let Some(stack) = kind.stack() {
            (*copy).registers[register::RSP] = stack as u64;
        }
        (*copy).stack = frame::AlternateStack { start, flags: 0, unused: 0, bytes };
        *(place as *mut Birth) = Birth { thread: child, context: copy, clears_actions: kind.clears_actions() };
    }
    if !is_thread {
        let mut paging = paging();
        // Without other threads nothing is evicted meanwhile but by the child.
        if !is_alone {
            paging.before_sharing();
        }
        crate::process::owner::lends_memory();
    }
    let pid = kind.call(place - VECTORS_LIE_AT, place);
    if !is_thread && (pid < 0 || flags & CLONE_VFORK != 0) {
        crate::process::owner::has_memory_back();
    }
    if pid < 0 || flags & CLONE_VFORK != 0 {
        // It never was, or has left this memory.
        child.end();
        if flags & CLONE_SIGHAND == 0 {
            // SAFETY: made above; the child does not use it any more.
            drop(unsafe { Box::from_raw(actions) });
        }
    }
    pid
}

global_asm!(
    ".text",
    ".globl refault_clone",
    ".hidden refault_clone",
    // refault_clone(number, a, b, c, d, e, child, child_stack): the child begins in refault_child(child) on its stack.
    "refault_clone:",
    "  push %r12",
    "  push %r13",
    "  mov 24(%rsp), %r12",
    "  mov %rdi, %rax",
    "  mov %rsi, %rdi",
    "  mov %rdx, %rsi",
    "  mov %rcx, %rdx",
    "  mov %r8, %r10",
    "  mov %r9, %r8",
    "  syscall",
    "  test %rax, %rax",
    "  jz 1f",
    "  pop %r13",
    "  pop %r12",
    "  ret",
    "1: mov %r12, %rdi",
    "  xor %ebp, %ebp",
    "  call {child}",
    "  ud2",
    child = sym child,
    options(att_syntax)
);

/// Where a child that shares memory begins, with all signals blocked; without a birth, the agent's own thread.
pub(crate) extern "C" fn child(birth: *const Birth) -> ! {
    if birth.is_null() {
        crate::process::observer::run();
    }
    // SAFETY: written by `share` before the child was.
    unsafe {
        (*(*birth).thread).install_stack();
        if (*birth).clears_actions {
            signals::clear_in_kernel();
        }
        if switch::is_on() {
            fast::install(&*(*birth).thread);
        }
        dispatch_on();
        frame::refault_resume((*birth).context)
    }
}

/// `exit`: this thread ends, and its block is free.
pub(crate) fn end_thread(thread: &mut Thread, status: usize) -> ! {
    if crate::process::observer::runs() && thread.is_last() {
        // The agent's thread would go on without the program.
        crate::process::end::finish();
        // SAFETY: ends the process.
        unsafe { sys::call(SYS_exit_group, [status, 0, 0, 0, 0, 0]) };
    }
    thread.holds = Vec::new();
    // SAFETY: the block is not used after its first word is cleared.
    unsafe { frame::refault_end_thread(thread.used.as_ptr(), status) }
}

/// `unshare` or `setns` is about to be made, which may say in which namespace children are.
pub(crate) fn may_send_children_elsewhere() {
    SENDS_CHILDREN_ELSEWHERE.store(true, Ordering::Relaxed);
}

/// `execve` and `execveat`, with the program's signals as they are.
pub(crate) fn execute(thread: &mut Thread, context: &mut Context, number: usize, arguments: [usize; 6]) -> isize {
    let (path, vectors) = if number == SYS_execve {
        (arguments[0], [arguments[1], arguments[2]])
    } else {
        (arguments[1], [arguments[2], arguments[3]])
    };
    hold_text(thread, path);
    for vector in vectors {
        let mut at = vector;
        while at != 0 {
            // The first word of a page, which may begin in the one before.
            if at == vector || at % PAGE < size_of::<usize>() || at % PAGE > PAGE - size_of::<usize>() {
                crate::engine_lock::hold(thread, at, size_of::<usize>(), false);
            }
            let Some(text) = frame::read::<usize>(at) else { break };
            if text == 0 {
                break;
            }
            hold_text(thread, text);
            at += size_of::<usize>();
        }
    }
    let (arguments, note) = crate::process::execution::prepare(thread, number, arguments);
    let mask = context.mask | thread.hidden;
    if !thread.is_vm_child {
        crate::process::observer::finish();
        let mut paging = paging();
        let statistics = paging.take_statistics();
        paging.account().leave(&statistics);
    }
    paging().account().executes();
    // Other threads must be able to fault until the kernel has ended them.
    let is_alone = thread.is_vm_child || !paging().has_threads();
    if is_alone {
        signals::leave_ignored(thread);
    }
    // SAFETY: the program's own call; on success nothing of this process is left.
    let error = unsafe {
        frame::refault_waiting_call(number, &arguments, &mask, &signals::sets::ALL, std::ptr::from_mut(thread).cast())
    };
    if is_alone {
        signals::execution_failed();
    }
    if !thread.is_vm_child {
        let mut paging = paging();
        paging.account().enter_again();
        // In a slot of its own that knows of nothing.
        paging.note_locks();
    }
    crate::process::execution::failed(thread, note);
    error
}

/// Holds a text of the program's, wherever it ends.
fn hold_text(thread: &mut Thread, text: usize) {
    let mut page = text & !(PAGE - 1);
    if text == 0 {
        return;
    }
    for _ in 0..64 {
        crate::engine_lock::hold(thread, page, PAGE, false);
        let from = page.max(text);
        let mut bytes = [0u8; PAGE];
        let length = page + PAGE - from;
        if !frame::copy(bytes.as_mut_ptr() as usize, from, length) || bytes[..length].contains(&0) {
            return;
        }
        page += PAGE;
    }
}
