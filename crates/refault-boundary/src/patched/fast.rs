//! Calls that need no signal: what a patched call site of a library jumps to (see [`crate::patched::sites`]).
//!
//! A call that is caught costs a signal, two changes of the mask and the way back. From a patched site the thread comes
//! here by a jump, with its registers as they were. Here the agent puts its vectors aside and holds the memory that the
//! call needs. It makes the call from its own code, where the kernel lets it pass. Then the thread goes on behind its
//! site. Signal actions and masks and the calls that change mappings the agent serves in phase 1. Whatever is not plain
//! goes to the `syscall` of the site's stub, which the kernel catches as before. That is a call that is not in the
//! list, more memory than may be held, or a page that was missing.
//!
//! The program's signals are open all the while. So each step is one of four phases, and who interrupts it looks there:
//!
//! | phase | what runs | a signal of the program's |
//! |---|---|---|
//! | 0 | the program, stubs, first and last instructions | comes as if at the site or behind it |
//! | 1, 3 | the agent, before and after the call; it may hold its locks | is sent again and blocked; the thread leaves by a caught call, which opens it |
//! | 2 | the call | ends the call as it would have ended the program's own |
//!
//! Invariants: the program never sees an address of a stub or of these instructions; a call is made once; nothing is
//! held when the thread goes on. Cost: some 0.2 µs beside the call and the lock.

use std::arch::global_asm;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

use refault_linux::calls::{SYS_arch_prctl, SYS_rt_sigaction, SYS_rt_sigprocmask};
use refault_linux::errno::{EFAULT, EINTR};
use refault_linux::options::{ARCH_SET_GS, AT_HWCAP2, HWCAP2_FSGSBASE};
use refault_linux::sys;

use crate::calls::holding;
use crate::engine_lock;
use crate::frame::{ARGUMENTS, Context, Info, SYSCALL_BYTES, register};
use crate::library::report;
use crate::patched::fast_call::Fast;
use crate::patched::sites;
use crate::patched::switch::{OFF, is_served};
use crate::signals;
use crate::signals::sets::{ALWAYS_OPEN, bit};
use crate::thread::{BLOCK, Remade, TOP, Thread};

/// The agent works, before or after the call.
const BEFORE: u32 = 1;
/// Between the memory's being held and the result's being noted.
const CALL: u32 = 2;
const AFTER: u32 = 3;
/// The parts of a thread's extended state that compiled code changes: SSE, AVX and AVX-512.
const VECTOR_PARTS: u32 = 0xe6;

macro_rules! place {
    ($field:ident) => {
        TOP + offset_of!(Thread, fast) + offset_of!(Fast, $field)
    };
}

global_asm!(
    ".text",
    ".globl refault_fast, refault_fast_look, refault_fast_not, refault_fast_begun, refault_fast_call, refault_fast_after, refault_fast_made, refault_fast_left, refault_fast_end",
    ".hidden refault_fast, refault_fast_look, refault_fast_not, refault_fast_begun, refault_fast_call, refault_fast_after, refault_fast_made, refault_fast_left, refault_fast_end",
    // %rcx: the stub's `syscall`. Phase 0; free are %rcx, %r11 and the flags, as after any call.
    "refault_fast:",
    "  cmpl $0, {off}(%rip)",
    "  jne 9f",
    "  rdgsbase %r11",
    "  test ${low}, %r11d",
    "  jne 9f",
    // A program that has changed the register may have left there what is no memory.
    "refault_fast_look:",
    "  cmp %r11, {block}(%r11)",
    "  jne 9f",
    "  cmpl $0, {phase}(%r11)",
    "  jne 9f",
    "  mov %rcx, {slow}(%r11)",
    "  mov %rax, {number}(%r11)",
    "  mov %rdi, {arguments}(%r11)",
    "  mov %rsi, {arguments}+8(%r11)",
    "  mov %rdx, {arguments}+16(%r11)",
    "  mov %r10, {arguments}+24(%r11)",
    "  mov %r8, {arguments}+32(%r11)",
    "  mov %r9, {arguments}+40(%r11)",
    "  mov %rsp, {stack}(%r11)",
    "  movl ${before_phase}, {phase}(%r11)",
    "  jmp refault_fast_begun",
    // To be made by a caught call, with the registers as they were.
    "8: mov {slow}(%r11), %rcx",
    "  movl $0, {phase}(%r11)",
    "refault_fast_not:",
    "9: jmp *%rcx",
    // Phase 1, on the block's stack.
    "refault_fast_begun:",
    "  lea {top}(%r11), %rsp",
    "  mov ${parts}, %eax",
    "  xor %edx, %edx",
    "  xsavec {vectors}(%r11)",
    "  lea {top}(%r11), %rdi",
    "  call {before}",
    "  mov %eax, %esi",
    "  rdgsbase %r11",
    "  mov ${parts}, %eax",
    "  xor %edx, %edx",
    "  xrstor {vectors}(%r11)",
    "  test %esi, %esi",
    "  mov {number}(%r11), %rax",
    "  mov {arguments}(%r11), %rdi",
    "  mov {arguments}+8(%r11), %rsi",
    "  mov {arguments}+16(%r11), %rdx",
    "  mov {arguments}+24(%r11), %r10",
    "  mov {arguments}+32(%r11), %r8",
    "  mov {arguments}+40(%r11), %r9",
    "  mov {stack}(%r11), %rsp",
    "  je 8b",
    "  js 6f",
    // Phase 2: from here on a signal ends it.
    "  movl ${call_phase}, {phase}(%r11)",
    "  cmpl $0, {detour}(%r11)",
    "  jne 8b",
    "refault_fast_call:",
    "  syscall",
    "refault_fast_after:",
    "  rdgsbase %r11",
    "  mov %rax, {result}(%r11)",
    "  movl ${after_phase}, {phase}(%r11)",
    // Phase 3.
    "refault_fast_made:",
    "  cmp ${efault}, %rax",
    "  je 1f",
    // Without the lock's being taken; the flag says that the call is made.
    "  cmpl $1, {is_holding}(%r11)",
    "  jne 2f",
    "1: lea {top}(%r11), %rsp",
    "  mov ${parts}, %eax",
    "  xor %edx, %edx",
    "  xsavec {vectors}(%r11)",
    "  lea {top}(%r11), %rdi",
    "  call {after}",
    "  mov %eax, %esi",
    "  rdgsbase %r11",
    "  mov ${parts}, %eax",
    "  xor %edx, %edx",
    "  xrstor {vectors}(%r11)",
    "  test %esi, %esi",
    "2: mov {number}(%r11), %rax",
    "  mov {arguments}(%r11), %rdi",
    "  mov {arguments}+8(%r11), %rsi",
    "  mov {arguments}+16(%r11), %rdx",
    "  mov {arguments}+24(%r11), %r10",
    "  mov {arguments}+32(%r11), %r8",
    "  mov {arguments}+40(%r11), %r9",
    "  mov {stack}(%r11), %rsp",
    "  je 8b",
    // What the agent has served comes here in phase 1.
    "6: mov {result}(%r11), %rax",
    "  mov {slow}(%r11), %rcx",
    "  movl $0, {phase}(%r11)",
    // Phase 0, with the result in %rax.
    "refault_fast_left:",
    "  cmpl $0, {detour}(%r11)",
    "  jne 7f",
    "  add ${instruction}, %rcx",
    "  jmp *%rcx",
    "7: movl $1, {is_finished}(%r11)",
    "  jmp *%rcx",
    "refault_fast_end:",
    off = sym OFF,
    efault = const EFAULT,
    before_phase = const BEFORE,
    call_phase = const CALL,
    after_phase = const AFTER,
    instruction = const SYSCALL_BYTES,
    low = const BLOCK - 1,
    top = const TOP,
    parts = const VECTOR_PARTS,
    block = const place!(block),
    phase = const place!(phase),
    is_holding = const place!(is_holding),
    is_finished = const place!(is_finished),
    detour = const place!(detour),
    slow = const place!(slow),
    number = const place!(number),
    arguments = const place!(arguments),
    stack = const place!(stack),
    result = const place!(result),
    vectors = const place!(vectors),
    before = sym before,
    after = sym after,
    options(att_syntax)
);

unsafe extern "C" {
    fn refault_fast();
    fn refault_fast_look();
    fn refault_fast_not();
    fn refault_fast_begun();
    fn refault_fast_call();
    fn refault_fast_after();
    fn refault_fast_made();
    fn refault_fast_left();
    fn refault_fast_end();
}

/// Whether the kernel has what this needs: reading `%gs`'s base in user mode.
pub(crate) fn is_possible() -> bool {
    // SAFETY: a function of a number that looks through what the kernel has left at the program's start.
    unsafe { getauxval(AT_HWCAP2 as u64) & HWCAP2_FSGSBASE as u64 != 0 }
}

unsafe extern "C" {
    fn getauxval(kind: u64) -> u64;
}

/// Lets the thread that calls be found by `%gs`.
pub(crate) fn install(thread: &Thread) {
    let block = std::ptr::from_ref(thread) as usize & !(BLOCK - 1);
    // SAFETY: the program does not use the register; if it begins to, `turn_off` is called.
    let error = unsafe { sys::call(SYS_arch_prctl, [ARCH_SET_GS, block, 0, 0, 0, 0]) };
    // Sites that are rewritten find their thread by it.
    report::needs("a thread's register gs cannot be set", error);
}

/// Answers of [`before`]: the stub makes the call; it is to be made here; the agent has served it.
const BY_STUB: i32 = 0;
const HERE: i32 = 1;
const SERVED: i32 = -1;

/// Whether a fault is of the look that finds out whose the register is: it is not the agent's. The call is made by its
/// stub then.
pub(crate) fn is_not_ours(context: &mut Context) -> bool {
    let is_look = context.registers[register::RIP] == refault_fast_look as *const () as u64;
    if is_look {
        context.registers[register::RIP] = refault_fast_not as *const () as u64;
    }
    is_look
}

/// Before the call.
extern "C" fn before(thread: &mut Thread) -> i32 {
    let number = thread.fast.number;
    let arguments = thread.fast.arguments;
    if thread.is_vm_child {
        return BY_STUB;
    }
    if is_served(number) {
        engine_lock::follow_the_budget();
        let result = match number {
            SYS_rt_sigaction => Some(signals::set_action(thread, arguments)),
            SYS_rt_sigprocmask => set_mask(thread, arguments),
            _ => crate::mapping::memory_calls::serve(number, arguments),
        };
        let Some(result) = result else { return BY_STUB };
        thread.fast.result = result as i64;
        return SERVED;
    }
    let Some(row) = crate::calls::plain::plain_row(number, arguments) else { return BY_STUB };
    engine_lock::follow_the_budget();
    (thread.was_asked, thread.remade) = (false, Remade::No);
    if !holding::prepare_plain(thread, row, arguments) {
        return BY_STUB;
    }
    let is_looked_at = crate::files::memory_files::may_open(number);
    thread.fast.is_holding = u32::from(is_looked_at || !thread.holds.is_empty());
    HERE
}

/// `rt_sigprocmask`. The mask that the kernel has is the program's, as long as no signal was put off. `None` if one
/// was, or is kept: it may have to come now.
fn set_mask(thread: &mut Thread, arguments: [usize; 6]) -> Option<isize> {
    if thread.kept.load(Ordering::SeqCst) != 0 {
        return None;
    }
    let mut mask = signals::exchange_mask(signals::sets::ALL);
    if thread.fast.detour != 0 {
        signals::exchange_mask(mask);
        return None;
    }
    let result = signals::set_mask(thread, &mut mask, arguments);
    signals::exchange_mask(mask);
    if thread.kept.load(Ordering::SeqCst) & !thread.hidden != 0 {
        // One that came meanwhile is let through now: it comes before the call has returned.
        thread.fast.detour = 1;
    }
    Some(result)
}

/// After the call: 0 if it is to be made again, by the stub.
extern "C" fn after(thread: &mut Thread) -> u32 {
    let again = lacked_memory(thread, thread.fast.result);
    engine_lock::release(thread);
    crate::files::memory_files::was_made(thread.fast.number, thread.fast.arguments, thread.fast.result as isize);
    u32::from(!again)
}

/// Whether the call is to be made again, for a page of it was out.
fn lacked_memory(thread: &mut Thread, result: i64) -> bool {
    let (number, arguments) = (thread.fast.number, thread.fast.arguments);
    result as isize == EFAULT && holding::lacked_memory(thread, number, arguments)
}

/// A caught call has come, perhaps one that began here. True if it is made already.
pub(crate) fn arrived(thread: &mut Thread, context: &mut Context) -> bool {
    engine_lock::release(thread);
    open(thread, context);
    if thread.fast.is_finished == 0 {
        return false;
    }
    thread.fast.is_finished = 0;
    let (number, arguments, mut result) = (thread.fast.number, thread.fast.arguments, thread.fast.result);
    if result > 0 && std::mem::take(&mut thread.was_asked) {
        context.registers[register::RAX] = number as u64;
        result = crate::files::pieces::go_on(thread, context, number, arguments, result as usize) as i64;
    }
    context.registers[register::RAX] = result as u64;
    true
}

/// What was put off may come now; `context` goes on with the program's mask.
fn open(thread: &mut Thread, context: &mut Context) {
    if thread.fast.detour == 0 {
        return;
    }
    thread.fast.detour = 0;
    context.mask &= !std::mem::take(&mut thread.fast.postponed);
    if std::mem::take(&mut thread.fast.wants_room) {
        crate::calls::visits::answer();
    }
}

/// A process of the tree wants room. False if this thread cannot give any now: it does when it leaves.
pub(crate) fn make_room(thread: &mut Thread, context: &mut Context) -> bool {
    if matches!(thread.fast.phase, BEFORE | AFTER) {
        thread.fast.wants_room = true;
        thread.fast.detour = 1;
        return false;
    }
    crate::calls::visits::answer();
    if thread.fast.phase == CALL {
        let (call, after) = (refault_fast_call as *const () as u64, refault_fast_after as *const () as u64);
        thread.remade = thread.remade.after_a_request(context, call, after);
    }
    let is_over =
        thread.fast.phase == CALL && context.registers[register::RIP] == refault_fast_after as *const () as u64;
    let result = context.registers[register::RAX] as i64;
    if is_over && result > 0 {
        // It may have been ended in its middle: it goes on by a caught call.
        thread.was_asked = true;
        thread.fast.detour = 1;
    }
    if is_over && result as isize == EINTR {
        holding::again(thread, context, thread.fast.number);
        context.registers[register::RIP] = refault_fast_call as *const () as u64;
        context.registers[register::RAX] = thread.fast.number as u64;
    }
    true
}

/// A signal for the program has come. False if it was put off. Otherwise `context` is the program's: before its call,
/// or behind it.
pub(crate) fn settle(thread: &mut Thread, info: &Info, context: &mut Context) -> bool {
    use register::{RAX, RCX, RIP};
    let within = |from: unsafe extern "C" fn(), to: unsafe extern "C" fn(), at: u64| {
        (from as *const () as u64..to as *const () as u64).contains(&at)
    };
    let rip = context.registers[RIP];
    match thread.fast.phase {
        // The agent's own doing.
        BEFORE | AFTER if info.code > 0 && ALWAYS_OPEN & bit(info.signal) != 0 => return true,
        BEFORE | AFTER => {
            thread.fast.detour = 1;
            if !signals::keep_for_now(thread, info) {
                signals::send_again(info);
                context.mask |= bit(info.signal);
                thread.fast.postponed |= bit(info.signal);
            }
            return false;
        }
        // Not the call: a handler of the agent's that has interrupted it and has not looked yet.
        CALL if thread.is_at_work(context) => return true,
        CALL => {
            let slow = thread.fast.slow;
            thread.fast.phase = 0;
            let result = if rip == refault_fast_call as *const () as u64 {
                thread.remade.said(signals::restarts(thread, info.signal))
            } else {
                within(refault_fast_after, refault_fast_made, rip).then_some(context.registers[RAX])
            };
            let again = result.is_some_and(|result| lacked_memory(thread, result as i64));
            engine_lock::release(thread);
            if let Some(result) = result {
                crate::files::memory_files::was_made(thread.fast.number, thread.fast.arguments, result as isize);
            }
            // A timeout may have been shortened for a call that was made again.
            for (place, argument) in ARGUMENTS.into_iter().zip(thread.fast.arguments) {
                context.registers[place] = argument as u64;
            }
            match result {
                Some(result) if !again => {
                    sites::put_behind(context, slow, result);
                }
                // Not made yet, to be made again, or a page was missing.
                _ => {
                    context.registers[RAX] = thread.fast.number as u64;
                    context.registers[RIP] = sites::of(slow) as u64;
                }
            }
        }
        _ if within(refault_fast, refault_fast_begun, rip) => {
            context.registers[RIP] = sites::of(context.registers[RCX] as usize) as u64;
        }
        _ if within(refault_fast_left, refault_fast_end, rip) => {
            thread.fast.is_finished = 0;
            let (slow, result) = (thread.fast.slow, context.registers[RAX]);
            sites::put_behind(context, slow, result);
        }
        _ if sites::is_stub(rip as usize) => {
            if thread.fast.is_finished != 0 {
                thread.fast.is_finished = 0;
                let (slow, result) = (thread.fast.slow, thread.fast.result as u64);
                sites::put_behind(context, slow, result);
            }
            sites::show(context);
        }
        _ => return true,
    }
    open(thread, context);
    true
}
