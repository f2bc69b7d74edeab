//! The program's signals.
//!
//! The kernel delivers every signal that the program handles to the agent, on the agent's stack; the agent then makes
//! the frame that the kernel would have made, on the stack where the program wants it, after bringing that stack in. So
//! a stack may be evicted, and may be as small as the program likes.
//!
//! Invariants: SIGSYS, SIGBUS and SIGSEGV are never blocked but while the agent works (SIGBUS and SIGSEGV not even
//! then). They always come to the agent, until they are given back ([`give_back`]). The program sees the actions, masks
//! and alternate stacks that it has set. A signal that comes while a call waits ends it as it would have ended the
//! program's own.

pub(crate) mod early;
pub(crate) mod native;
pub(crate) mod sets;

use std::sync::atomic::{AtomicUsize, Ordering};

use refault_linux::calls::{
    SYS_rt_sigaction, SYS_rt_sigpending, SYS_rt_sigprocmask, SYS_rt_sigtimedwait, SYS_rt_tgsigqueueinfo,
    SYS_sigaltstack,
};
use refault_linux::errno::{EFAULT, EINVAL, ENOMEM, EPERM};
use refault_linux::lock::{Held, Lock};
use refault_linux::signals::*;
use refault_linux::sys;

use crate::frame::register;
use crate::frame::{self, AlternateStack, Context, Frame, Info, MAX_VECTOR_BYTES, SYSCALL_BYTES, VECTORS_LIE_AT};
use crate::library::report;
use crate::thread::Thread;
use sets::{ALL, ALWAYS_OPEN, Action, Actions, bit};

/// Of a signal's flags, those that the kernel is to know.
const KERNEL_FLAGS: u64 = SA_NOCLDSTOP | SA_NOCLDWAIT | SA_RESTART;
/// All flags that the kernel knows (Linux 5.11 and later).
const KNOWN_FLAGS: u64 =
    KERNEL_FLAGS | SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESETHAND | SA_RESTORER | SA_EXPOSE_TAGBITS;
/// The signals that a program can have an action for, as `rt_sigaction` numbers them.
const NUMBERS: std::ops::RangeInclusive<i32> = 1..=SIGNALS as i32;

/// The agent's handler of every signal.
static HANDLER: AtomicUsize = AtomicUsize::new(0);

fn set_kernel_action(signal: i32, action: &Action) -> isize {
    // SAFETY: the action is either none or the agent's handler.
    let error = unsafe {
        sys::call(SYS_rt_sigaction, [signal as usize, std::ptr::from_ref(action) as usize, 0, SET_BYTES, 0, 0])
    };
    // The kernel takes each action of each signal that it is given here; without them no fault and no call is served.
    report::needs("a signal cannot be taken over", error)
}

fn agent_action(flags: u64) -> Action {
    let flags = flags & KERNEL_FLAGS | SA_SIGINFO | SA_ONSTACK | SA_RESTORER | SA_NODEFER;
    Action {
        handler: HANDLER.load(Ordering::Relaxed),
        flags,
        restorer: frame::refault_restorer as *const () as usize,
        mask: ALL,
    }
}

/// Held while an action is read or changed, in the program's table and in the kernel: otherwise two threads that change
/// one at once could leave the action of one here and that of the other there.
static CHANGING: Lock<()> = Lock::new(());

/// No other thread reads or changes actions while the result lives. A child that borrows the memory may be killed at
/// any time, so it takes no lock; nearly all have actions of their own.
fn change_actions(thread: &Thread) -> Option<Held<'static, ()>> {
    // A thread whose calls do not come here may have been forked while another held it.
    (!thread.is_vm_child && thread.is_dispatched).then(|| CHANGING.lock())
}

/// A thread's actions, for a child that has its own from now on. Between this and the child's beginning another thread
/// may change one: the child has the kernel's new one then, and the old one here.
pub(crate) fn copy(thread: &mut Thread) -> Actions {
    let _changing = change_actions(thread);
    thread.actions().clone()
}

/// The actions of a child that begins without its parent's (CLONE_CLEAR_SIGHAND): what is ignored stays ignored, and
/// nothing else is left of them.
pub(crate) fn clear(actions: &mut Actions) {
    for action in &mut actions.0 {
        *action = Action { handler: if action.handler == SIG_IGN { SIG_IGN } else { SIG_DFL }, ..Action::default() };
    }
}

/// The kernel's part of [`clear`], by the child: the agent's own handlers stay. Its signals are blocked but for those.
pub(crate) fn clear_in_kernel() {
    for signal in NUMBERS.filter(|signal| ![SIGKILL, SIGSTOP].contains(signal) && ALWAYS_OPEN & bit(*signal) == 0) {
        let mut present = Action::default();
        // SAFETY: reads the present action.
        unsafe { sys::call(SYS_rt_sigaction, [signal as usize, 0, &raw mut present as usize, SET_BYTES, 0, 0]) };
        if present.handler > SIG_IGN || present.flags != 0 {
            let handler = if present.handler == SIG_IGN { SIG_IGN } else { SIG_DFL };
            set_kernel_action(signal, &Action { handler, ..Action::default() });
        }
    }
}

/// No thread changes actions while the result lives: for the moment of a fork.
pub(crate) fn stand_still() -> Held<'static, ()> {
    CHANGING.lock()
}

/// Takes over the signals that are the agent's, which `handler` is called for from then on.
pub(crate) fn install(actions: &mut Actions, handler: usize) {
    HANDLER.store(handler, Ordering::Relaxed);
    for signal in NUMBERS {
        let action = &mut actions.0[signal as usize];
        let at = std::ptr::from_mut(action);
        // SAFETY: reads the present action.
        unsafe { sys::call(SYS_rt_sigaction, [signal as usize, 0, at as usize, SET_BYTES, 0, 0]) };
        if action.handler > SIG_IGN {
            set_kernel_action(signal, &agent_action(action.flags));
        }
    }
    for signal in OPEN {
        set_kernel_action(signal, &agent_action(SA_RESTART));
    }
}

/// What the first thread has set before the agent began, by constructors of libraries or by what executed the program:
/// an alternate stack, and blocked signals that must be open from now on.
pub(crate) fn adopt(thread: &mut Thread) {
    let (mut stack, mut before) = (AlternateStack::default(), 0u64);
    let open = ALWAYS_OPEN;
    // SAFETY: asks for the stack; reads a word and writes one.
    unsafe {
        sys::call(SYS_sigaltstack, [0, &raw mut stack as usize, 0, 0, 0, 0]);
        let (new, old) = (&raw const open as usize, &raw mut before as usize);
        sys::call(SYS_rt_sigprocmask, [SIG_UNBLOCK, new, old, SET_BYTES, 0, 0]);
    }
    thread.alternate = stack;
    thread.hidden = before & ALWAYS_OPEN;
}

/// Lets the kernel know which of the agent's signals the program ignores: they stay ignored in the program that this
/// thread, the only one, is about to execute. [`execution_failed`] takes it back.
pub(crate) fn leave_ignored(thread: &mut Thread) {
    for signal in OPEN.into_iter().filter(|signal| thread.actions().0[*signal as usize].handler == SIG_IGN) {
        set_kernel_action(signal, &Action { handler: SIG_IGN, ..Action::default() });
    }
}

/// See [`leave_ignored`].
pub(crate) fn execution_failed() {
    for signal in OPEN {
        set_kernel_action(signal, &agent_action(SA_RESTART));
    }
}

/// Gives the only thread's signals back to the kernel as the program has set them. Its calls do not come here any more:
/// what it says of them from now on would meet the agent's handler and stack otherwise. The stack and the mask are set
/// when the thread goes on at `context`. Nothing is managed any more, and no process asks this one for room
/// ([`refault_paging::Account::is_deaf`]). No signal needs to be served, so all are blocked until then. None meets the
/// program's action while the agent works.
pub(crate) fn give_back(thread: &mut Thread, context: &mut Context) {
    exchange_mask(!0);
    take_requests(thread);
    for signal in NUMBERS.filter(|signal| ![SIGKILL, SIGSTOP].contains(signal)) {
        let action = thread.actions().0[signal as usize];
        if action.handler > SIG_IGN || ALWAYS_OPEN & bit(signal) != 0 {
            set_kernel_action(signal, &action);
        }
    }
    set_kernel_stack(&thread.alternate, context.registers[register::RSP] as usize);
    context.stack = thread.alternate;
    context.mask |= thread.hidden;
    // What was kept for this thread waits in the kernel from now on.
    let kept = thread.kept.swap(0, Ordering::SeqCst);
    for (at, _) in OPEN.iter().enumerate().filter(|(_, signal)| kept & bit(**signal) != 0) {
        send_again(&thread.kept_infos[at]);
    }
}

/// Takes the requests for room that have come while SIGSYS was blocked: the program's action would end the process.
/// What other senders have sent is kept. One may be pending for the thread and one for the process.
fn take_requests(thread: &mut Thread) {
    let (set, at_once) = (bit(SIGSYS), [0u64; 2]);
    for _ in 0..2 {
        let mut info = Info { signal: 0, error: 0, code: 0, pad: 0, address: 0, rest: [0; 13] };
        let at = [&raw const set as usize, &raw mut info as usize, at_once.as_ptr() as usize];
        // SAFETY: reads a word and two, writes the 128 bytes of `info`.
        let taken = unsafe { sys::call(SYS_rt_sigtimedwait, [at[0], at[1], at[2], SET_BYTES, 0, 0]) };
        if taken != SIGSYS as isize {
            return;
        }
        if !info.asks_for_room()
            && let Some(place) = kept_at(SIGSYS)
        {
            store(thread, &info, place);
        }
    }
}

/// Tells the kernel of an alternate stack while this thread is on the one that it has. The kernel refuses that to a
/// thread whose stack pointer is there, so the pointer is `elsewhere` for the moment of the call.
pub(crate) fn set_kernel_stack(stack: &AlternateStack, elsewhere: usize) {
    // SAFETY: nothing uses the stack between the two moves: all signals are blocked, and the one instruction between
    // them is the call, for which the kernel reads `stack` alone.
    unsafe {
        std::arch::asm!("xchg rsp, {elsewhere}", "syscall", "xchg rsp, {elsewhere}",
            elsewhere = inout(reg) elsewhere => _, inlateout("rax") SYS_sigaltstack => _, in("rdi") stack, in("rsi") 0usize,
            lateout("rcx") _, lateout("r11") _);
    }
}

/// `rt_sigaction`.
pub(crate) fn set_action(thread: &mut Thread, [signal, new, old, bytes, ..]: [usize; 6]) -> isize {
    if bytes != SET_BYTES || !(1..=SIGNALS).contains(&signal) {
        return EINVAL;
    }
    let mut action = Action::default();
    if new != 0 {
        let Some(wanted) = frame::read::<Action>(new) else { return EFAULT };
        // As the kernel remembers it: by what is missing a program finds out what is supported.
        action =
            Action { flags: wanted.flags & KNOWN_FLAGS, mask: wanted.mask & !(bit(SIGKILL) | bit(SIGSTOP)), ..wanted };
    }
    let changing = change_actions(thread);
    let before = thread.actions().0[signal];
    if new != 0 {
        if [SIGKILL, SIGSTOP].contains(&(signal as i32)) {
            return EINVAL;
        }
        if ALWAYS_OPEN & bit(signal as i32) == 0 {
            let kernel = if action.handler > SIG_IGN {
                agent_action(action.flags)
            } else {
                Action {
                    flags: action.flags & KERNEL_FLAGS | SA_RESTORER,
                    restorer: frame::refault_restorer as *const () as usize,
                    ..action
                }
            };
            thread.actions().0[signal] = action;
            let error = set_kernel_action(signal as i32, &kernel);
            if error != 0 {
                thread.actions().0[signal] = before;
                return error;
            }
        } else {
            thread.actions().0[signal] = action;
        }
    }
    drop(changing);
    if old != 0 && !frame::write(old, &before) {
        return EFAULT;
    }
    0
}

/// Gives this thread another mask. Returns the one it had.
pub(crate) fn exchange_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    let (new, old) = (&raw const mask as usize, &raw mut before as usize);
    // SAFETY: reads a word and writes one.
    let error = unsafe { sys::call(SYS_rt_sigprocmask, [SIG_SETMASK, new, old, SET_BYTES, 0, 0]) };
    report::needs("signals cannot be blocked", error);
    before
}

/// `rt_sigprocmask`: `own` is the mask that the thread goes on with.
pub(crate) fn set_mask(thread: &mut Thread, own: &mut u64, [how, new, old, bytes, ..]: [usize; 6]) -> isize {
    if bytes != SET_BYTES {
        return EINVAL;
    }
    let before = *own | thread.hidden;
    if new != 0 {
        let Some(set) = frame::read::<u64>(new) else { return EFAULT };
        let mask = match how {
            SIG_BLOCK => before | set,
            SIG_UNBLOCK => before & !set,
            SIG_SETMASK => set,
            _ => return EINVAL,
        } & !(bit(SIGKILL) | bit(SIGSTOP));
        thread.hidden = mask & ALWAYS_OPEN;
        *own = mask & !ALWAYS_OPEN;
    }
    if old != 0 && !frame::write(old, &before) {
        return EFAULT;
    }
    0
}

/// `rt_sigpending`, of a thread whose mask is `mask`: what the kernel has of the signals that the program blocks, and
/// what is kept here for this thread.
pub(crate) fn pending(thread: &Thread, mask: u64, [set, bytes, ..]: [usize; 6]) -> isize {
    if bytes > SET_BYTES {
        return EINVAL;
    }
    let mut pending = 0u64;
    // SAFETY: writes a word.
    unsafe { sys::call(SYS_rt_sigpending, [&raw mut pending as usize, SET_BYTES, 0, 0, 0, 0]) };
    let shown = pending & (mask | thread.hidden) | thread.kept.load(Ordering::SeqCst) & thread.hidden;
    if frame::copy(set, &raw const shown as usize, bytes) { 0 } else { EFAULT }
}

/// `sigaltstack`, of a thread whose stack pointer is `at`.
pub(crate) fn set_alternate(thread: &mut Thread, at: usize, [new, old, ..]: [usize; 6]) -> isize {
    let mut before = thread.alternate;
    if before.flags & SS_DISABLE == 0 && is_on(&before, at) {
        before.flags |= SS_ONSTACK;
    }
    if new != 0 {
        let Some(stack) = frame::read::<AlternateStack>(new) else { return EFAULT };
        if before.flags & SS_ONSTACK != 0 && before.flags & SS_AUTODISARM == 0 {
            return EPERM;
        }
        match stack.flags & !SS_AUTODISARM {
            SS_DISABLE => thread.alternate = AlternateStack { flags: SS_DISABLE, ..AlternateStack::default() },
            0 | SS_ONSTACK if stack.bytes < MINSIGSTKSZ => return ENOMEM,
            0 | SS_ONSTACK => thread.alternate = AlternateStack { flags: stack.flags & SS_AUTODISARM, ..stack },
            _ => return EINVAL,
        }
    }
    if old != 0 && !frame::write(old, &before) {
        return EFAULT;
    }
    0
}

fn is_on(stack: &AlternateStack, at: usize) -> bool {
    at > stack.start && at - stack.start <= stack.bytes
}

/// A signal for the program has come that is not kept; `context` is what it interrupted: the program, or a call that
/// waits for it. Does not return in the second case.
pub(crate) fn arrive(thread: &mut Thread, info: &Info, context: &mut Context) {
    let signal = info.signal;
    let rip = context.registers[register::RIP] as usize;
    // By the stack: what the agent calls of libc (a copy) is not its own code.
    if !thread.is_at_work(context) {
        deliver(thread, info, context);
        return;
    }
    // SAFETY: written by the call that was interrupted.
    let waiting = unsafe { std::ptr::read_volatile(&raw const thread.waiting) };
    let Some(window) = frame::Window::of(rip).filter(|_| !waiting.is_null()) else {
        // While the agent works. A signal that a process has sent waits until the agent is done; to block it would let
        // the agent's own faults end the process.
        if info.code <= 0 && keep_for_now(thread, info) {
            return;
        }
        send_again(info);
        context.mask |= bit(signal);
        return;
    };
    let is_made = rip >= window.after || rip == window.call && thread.remade.was_made(context, window.after as u64);
    if !is_made && early::put_aside(thread, info, context) {
        return;
    }
    // SAFETY: the frame lies further up on this stack.
    let outer = unsafe { &mut *waiting };
    thread.waiting = std::ptr::null_mut();
    let first = early::take(thread);
    if first.is_some() {
        send_again(info);
    }
    let info = &first.unwrap_or(*info);
    let signal = info.signal;
    let result = match rip {
        _ if rip == window.call => thread.remade.said(restarts(thread, signal)),
        _ if rip < window.after => None,
        _ if rip == window.after => Some(context.registers[register::RAX]),
        _ => Some(context.registers[register::R12]),
    };
    let registers = &outer.context.registers;
    let number = registers[register::RAX] as usize;
    let arguments = frame::ARGUMENTS.map(|place| registers[place] as usize);
    let is_missing = |result: u64| !thread.is_of_32_bits && result as isize == EFAULT;
    let again = result.is_some_and(is_missing) && crate::calls::holding::lacked_memory(thread, number, arguments);
    crate::engine_lock::release(thread);
    if let Some(result) = result.filter(|_| !thread.is_of_32_bits) {
        crate::files::memory_files::was_made(number, arguments, result as isize);
    }
    // Pieces of it that were made before are not made again.
    let told = std::mem::take(&mut thread.progress).told(result.map(|result| result as isize));
    match (told, result) {
        (Some(told), _) => outer.context.registers[register::RAX] = told as u64,
        // Not made yet, to be made again, or a page was missing: the program is before its instruction again.
        (None, None) => outer.context.registers[register::RIP] -= SYSCALL_BYTES as u64,
        (None, Some(_)) if again => outer.context.registers[register::RIP] -= SYSCALL_BYTES as u64,
        (None, Some(result)) => outer.context.registers[register::RAX] = result,
    }
    deliver(thread, info, &mut outer.context);
    // SAFETY: the frame is whole; nothing below it is needed.
    unsafe { frame::refault_resume(&outer.context) }
}

/// Whether the program's action for a signal says that calls are made again behind it.
pub(crate) fn restarts(thread: &mut Thread, signal: i32) -> bool {
    thread.actions().0[signal as usize].flags & SA_RESTART != 0
}

/// The signals of [`ALWAYS_OPEN`], in the order in which what is kept of them lies.
const OPEN: [i32; 3] = [SIGBUS, SIGSEGV, SIGSYS];

/// Where what is kept of a signal lies.
fn kept_at(signal: i32) -> Option<usize> {
    OPEN.iter().position(|open| *open == signal)
}

/// Keeps a signal that was sent to this thread while the program has it blocked. The kernel would: here it is open,
/// because the agent's own work raises it. One that is kept already takes in the next, as in the kernel.
pub(crate) fn keep(thread: &mut Thread, info: &Info) -> bool {
    let Some(at) = kept_at(info.signal) else { return false };
    let mask = thread.waiting_mask.unwrap_or(thread.hidden);
    if info.code > 0 || mask & bit(info.signal) == 0 {
        return false;
    }
    store(thread, info, at);
    true
}

/// Keeps a signal of those that are always open while the agent works: it is delivered when this is over.
/// False if it is none of them.
pub(crate) fn keep_for_now(thread: &mut Thread, info: &Info) -> bool {
    let at = kept_at(info.signal);
    at.inspect(|at| store(thread, info, *at)).is_some()
}

fn store(thread: &mut Thread, info: &Info, at: usize) {
    // In this order: this may have interrupted the agent where it delivers what was kept.
    if thread.kept.load(Ordering::SeqCst) & bit(info.signal) == 0 {
        thread.kept_infos[at] = *info;
        thread.kept.fetch_or(bit(info.signal), Ordering::SeqCst);
    }
}

/// Delivers what was kept and is open now: the program has changed its mask, a handler has returned, or the agent has
/// done. Not while the agent works.
pub(crate) fn deliver_kept(thread: &mut Thread, context: &mut Context) {
    if thread.kept.load(Ordering::Relaxed) == 0 || thread.is_at_work(context) {
        return;
    }
    for (at, signal) in OPEN.into_iter().enumerate() {
        if thread.kept.load(Ordering::SeqCst) & !thread.hidden & bit(signal) != 0 {
            let info = thread.kept_infos[at];
            thread.kept.fetch_and(!bit(signal), Ordering::SeqCst);
            deliver(thread, &info, context);
        }
    }
}

/// Delivers what was put aside before a call that is over now.
pub(crate) fn deliver_early(thread: &mut Thread, context: &mut Context) {
    if let Some(info) = early::take(thread) {
        deliver(thread, &info, context);
    }
}

/// Lets the program's handler run when `context` is resumed.
fn deliver(thread: &mut Thread, info: &Info, context: &mut Context) {
    crate::patched::sites::show(context);
    let signal = info.signal;
    let changing = change_actions(thread);
    let action = thread.actions().0[signal as usize];
    let caused = info.code > 0 && ALWAYS_OPEN & bit(signal) != 0;
    let blocked = thread.hidden & bit(signal) != 0;
    if action.handler <= SIG_IGN || (caused && blocked) {
        if action.handler == SIG_IGN && !caused {
            return;
        }
        end_by(signal, info);
        return;
    }
    if action.flags & SA_RESETHAND != 0 {
        thread.actions().0[signal as usize] = Action::default();
        if ALWAYS_OPEN & bit(signal) == 0 {
            set_kernel_action(signal, &Action::default());
        }
    }
    drop(changing);
    let saved_mask = context.mask | thread.hidden;
    let during = thread.waiting_mask.take().unwrap_or(saved_mask);
    let at = context.registers[register::RSP] as usize;
    let alternate = thread.alternate;
    let switches = action.flags & SA_ONSTACK != 0 && alternate.flags & SS_DISABLE == 0 && !is_on(&alternate, at);
    let top = if switches { alternate.start + alternate.bytes } else { at - RED_ZONE };
    let bytes = context.vector_bytes();
    let vectors = (top - bytes) & !(VECTORS_LIE_AT - 1);
    let place = ((vectors - size_of::<Frame>()) & !15) - 8;
    let mut shown = alternate;
    if is_on(&alternate, at) && alternate.flags & SS_DISABLE == 0 {
        shown.flags |= SS_ONSTACK;
    }
    let mut made = Frame { restorer: action.restorer, context: *context, info: *info };
    made.context.link = 0;
    made.context.stack = shown;
    made.context.vectors = if bytes == 0 { 0 } else { vectors };
    made.context.mask = saved_mask;
    // Once calls do not come here nothing is managed.
    if thread.is_dispatched {
        crate::engine_lock::hold(thread, place, top - place, true);
    }
    let written = frame::write(place, &made) && (bytes == 0 || frame::copy(vectors, context.vectors, bytes));
    if thread.is_dispatched {
        crate::engine_lock::release(thread);
    }
    if !written {
        end_by(SIGSEGV, &Info { signal: SIGSEGV, ..*info });
        return;
    }
    if alternate.flags & SS_AUTODISARM != 0 {
        thread.alternate = AlternateStack { flags: SS_DISABLE, ..AlternateStack::default() };
    }
    let mut mask = during | action.mask;
    if action.flags & SA_NODEFER == 0 {
        mask |= bit(signal);
    }
    mask &= !(bit(SIGKILL) | bit(SIGSTOP));
    thread.hidden = mask & ALWAYS_OPEN;
    context.mask = mask & !ALWAYS_OPEN;
    let registers = &mut context.registers;
    registers[register::RIP] = action.handler as u64;
    registers[register::RSP] = place as u64;
    registers[register::RDI] = signal as u64;
    registers[register::RSI] = (place + std::mem::offset_of!(Frame, info)) as u64;
    registers[register::RDX] = (place + std::mem::offset_of!(Frame, context)) as u64;
    registers[register::RAX] = 0;
    registers[register::FLAGS] &= !(FLAG_DIRECTION | FLAG_RESUME | FLAG_TRAP);
    context.clear_vectors();
}

/// The signal does what it does without a handler: as soon as the handler returns, or the instruction is tried again.
fn end_by(signal: i32, info: &Info) {
    set_kernel_action(signal, &Action::default());
    if info.code <= 0 || info.signal != signal {
        send_again(&Info { signal, ..*info });
    }
}

/// Sends this thread a signal, with what it says.
pub(crate) fn send_again(info: &Info) {
    let (process, thread) = (sys::process_id() as usize, refault_linux::sys::thread_id());
    // SAFETY: reads the 128 bytes of `info`.
    unsafe {
        sys::call(
            SYS_rt_tgsigqueueinfo,
            [process, thread, info.signal as usize, std::ptr::from_ref(info) as usize, 0, 0],
        )
    };
}

/// `rt_sigreturn`: `context` becomes what the frame under the program's stack pointer says. False if it is not there.
pub(crate) fn resume(thread: &mut Thread, context: &mut Context) -> bool {
    let at = context.registers[register::RSP] as usize;
    let Some(saved) = frame::read::<Context>(at) else { return false };
    let (own, room) = (context.vectors, context.vector_bytes());
    let bytes = saved.vector_bytes_of_program().min(room);
    let copied = saved.vectors != 0 && bytes > 0 && frame::copy(own, saved.vectors, bytes);
    *context = Context { stack: context.stack, vectors: own, flags: context.flags, ..saved };
    if !copied {
        context.clear_vectors();
    }
    thread.hidden = saved.mask & ALWAYS_OPEN;
    context.mask = saved.mask & !ALWAYS_OPEN;
    if saved.stack.flags & SS_DISABLE != 0 || saved.stack.bytes >= MINSIGSTKSZ {
        thread.alternate = AlternateStack { flags: saved.stack.flags & !SS_ONSTACK, ..saved.stack };
    }
    true
}

impl Context {
    /// [`Context::vector_bytes`] of a frame that lies in the program's memory.
    fn vector_bytes_of_program(&self) -> usize {
        if self.vectors == 0 {
            return 0;
        }
        let at = |place: usize| frame::read::<u32>(self.vectors + place);
        match (at(FPSTATE_MAGIC), at(FPSTATE_BYTES)) {
            (Some(FP_XSTATE_MAGIC1), Some(bytes)) => (bytes as usize).clamp(FPSTATE_LEGACY, MAX_VECTOR_BYTES),
            (Some(_), _) => FPSTATE_LEGACY,
            _ => 0,
        }
    }
}
