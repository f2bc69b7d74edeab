//! Where the kernel enters the agent: one handler for every signal.
//!
//! SIGSYS brings a system call of the program, SIGBUS a page that is missing, everything else is the program's. The
//! handler runs on the agent's stack of the thread, with all signals blocked that the agent's own work cannot raise.

use refault_linux::errno::{self, EINTR};
use refault_linux::signals::{BUS_ADRALN, FAULT_PRESENT, FAULT_WRITE, FLAG_ALIGNMENT, SYS_USER_DISPATCH};
use refault_paging::Outcome;

use crate::engine_lock::{self, paging};
use crate::frame::{self, Context, Info, register};
use crate::library::processor;
use crate::patched::fast;
use crate::process::adoption::{self, Arrival};
use crate::signals;
use crate::signals::early;
use crate::signals::sets::{SIGBUS, SIGSEGV, SIGSYS};
use crate::thread::Thread;

/// Faults in a row at one address that find the page there, before something is wrong.
const MAX_SPURIOUS: u32 = 100_000;

/// The handler of every signal.
pub(crate) extern "C" fn on_signal(signal: i32, info: *mut Info, context: *mut Context) {
    // SAFETY: the kernel passes its frame.
    let (info, context) = unsafe { (&*info, &mut *context) };
    if signals::native::pass_on(signal, info, context) {
        return;
    }
    let (thread, is_asked) = match adoption::arrive(signal, info, context) {
        Arrival::Answered => return,
        Arrival::Adopted(thread) => (thread, false),
        Arrival::Asked => (Thread::of(std::ptr::from_mut(context) as usize), true),
        Arrival::Known => (Thread::of(std::ptr::from_mut(context) as usize), info.asks_for_room()),
    };
    if context.registers[register::FLAGS] & FLAG_ALIGNMENT != 0 {
        refuse_no_alignment(thread, context);
        if signal == SIGBUS && info.code == BUS_ADRALN && thread.is_at_work(context) {
            return;
        }
    }
    if !thread.is_at_work(context) {
        thread.entered = context;
    }
    let rip = context.registers[register::RIP] as usize;
    if signal == SIGSYS && info.code == SYS_USER_DISPATCH {
        return crate::calls::enter::enter(thread, info, context);
    }
    crate::calls::enter::find_lost(thread, context);
    match signal {
        SIGSYS if is_asked => return make_room(thread, context),
        SIGSYS if early::is_timer(info) => {
            if let Some(info) = early::end_call(thread, context) {
                signals::arrive(thread, &info, context);
            }
            return;
        }
        SIGBUS if info.code > 0 => {
            let error = context.registers[register::ERROR];
            if serve(thread, info.address, error & FAULT_WRITE != 0, error & FAULT_PRESENT != 0) {
                return signals::deliver_kept(thread, context);
            }
        }
        SIGSEGV if info.code > 0 && (processor::answer(context) || fast::is_not_ours(context)) => return,
        SIGSEGV if info.code > 0 && brought_in_for_old_page(thread, context) => {
            return signals::deliver_kept(thread, context);
        }
        _ => {}
    }
    let copying = frame::refault_safe_copy as *const () as usize..frame::refault_safe_copy_end as *const () as usize;
    if (signal == SIGBUS || signal == SIGSEGV) && info.code > 0 && copying.contains(&rip) {
        context.registers[register::RIP] = frame::refault_safe_copy_failed as *const () as u64;
        return;
    }
    if !signals::keep(thread, info) && crate::patched::fast::settle(thread, info, context) {
        signals::arrive(thread, info, context);
    }
    signals::deliver_kept(thread, context);
}

/// The budget has shrunk, or others lack memory, and this thread was asked for some. A call that it waits in and that
/// the signal has ended is made again, so that the program sees nothing of it.
fn make_room(thread: &mut Thread, context: &mut Context) {
    if !crate::patched::fast::make_room(thread, context) {
        return;
    }
    let rip = context.registers[register::RIP] as usize;
    let Some(window) = frame::Window::of(rip) else { return };
    thread.remade = thread.remade.after_a_request(context, window.call as u64, window.after as u64);
    let is_over = rip == window.after;
    thread.was_asked |= is_over && !window.is_gate && context.registers[register::RAX] as i64 > 0;
    if is_over && context.registers[register::RAX] as isize == EINTR {
        let number = context.registers[if window.is_gate { register::R14 } else { register::RBX }];
        if !window.is_gate {
            crate::calls::holding::again(thread, context, number as usize);
        }
        context.registers[register::RIP] = window.call as u64;
        context.registers[register::RAX] = number;
    }
}

/// The program has asked the processor to refuse addresses that are not aligned, and the kernel leaves that to its
/// handlers. The agent has such addresses. Where it was called by a jump and met the refusal, the program has lost its
/// wish when it goes on.
fn refuse_no_alignment(thread: &Thread, context: &mut Context) {
    // SAFETY: clears a flag that the compiler knows nothing of.
    unsafe {
        core::arch::asm!("pushfq", "and dword ptr [rsp], {keep}", "popfq", keep = const !(FLAG_ALIGNMENT as i32));
    }
    if thread.is_at_work(context) {
        context.registers[register::FLAGS] &= !FLAG_ALIGNMENT;
    }
}

/// The page of calls that old programs jump to (`[vsyscall]`): the kernel makes them, and ends a program whose memory is
/// missing. Whether that memory was out, and is there now; then the program jumps there again.
fn brought_in_for_old_page(thread: &mut Thread, context: &Context) -> bool {
    const PAGE_OF_CALLS: usize = 0xffff_ffff_ff60_0000;
    const GET_TIME_OF_DAY: usize = PAGE_OF_CALLS;
    const TIME: usize = PAGE_OF_CALLS + 0x400;
    const GET_CPU: usize = PAGE_OF_CALLS + 0x800;
    let [rip, first, second] =
        [register::RIP, register::RDI, register::RSI].map(|place| context.registers[place] as usize);
    let bytes = match rip {
        GET_TIME_OF_DAY => [2 * size_of::<usize>(), size_of::<usize>()],
        TIME => [size_of::<usize>(), 0],
        GET_CPU => [size_of::<u32>(); 2],
        _ => return false,
    };
    let before = paging().statistics().brought_in();
    for (start, bytes) in [first, second].into_iter().zip(bytes).filter(|(start, _)| *start != 0) {
        engine_lock::hold(thread, start, bytes, true);
    }
    engine_lock::release(thread);
    paging().statistics().brought_in() != before
}

/// Serves a fault, of a page that is missing or that is guarded. False if it is not ours.
fn serve(thread: &mut Thread, address: usize, write: bool, is_guarded: bool) -> bool {
    let mut paging = paging();
    let before = paging.statistics().brought_in();
    let outcome = paging.fault(address, write);
    let after = paging.statistics().brought_in();
    let why = paging.last_error();
    drop(paging);
    if before == after && outcome == Outcome::Served && !is_guarded {
        let (at, times) = thread.spurious;
        thread.spurious = if at == address { (at, times + 1) } else { (address, 0) };
        if times == MAX_SPURIOUS {
            crate::library::report::end(format_args!(
                "the page at {address:#x} is missing, but the agent did not evict it: it was discarded behind its back"
            ));
        }
    }
    if outcome == Outcome::Lost {
        crate::library::report::say(format_args!(
            "a page at {address:#x} is lost, its contents cannot be brought back: {}",
            errno::text(why)
        ));
    }
    outcome == Outcome::Served
}
