//! A call has come: of 64 bits or of 32, from a patched site, a return from a signal, a filter; the rest is dispatched.

use refault_linux::calls::SYS_rt_sigreturn;
use refault_linux::errno::ENOMEM;

use crate::calls::compat;
use crate::calls::dispatch::{give_up, serve};
use crate::calls::pointed;
use crate::engine_lock;
use crate::frame::{self, ARGUMENTS, Context, Info, SYSCALL, SYSCALL_BYTES, register};
use crate::patched::fast;
use crate::patched::sites;
use crate::signals;
use crate::thread::Thread;
use crate::user_dispatch;

/// A lost call: the kernel has taken it for made and did not make it. The thread is put back before it.
///
/// The kernel says by SIGSYS that a call has come. It keeps one signal of a number pending per thread: where another
/// SIGSYS, whichever process sent it, is pending but not delivered yet, the call's own is dropped. The program
/// would go on behind its call with the call's number for a result. Such a call is known by what the instruction leaves
/// in two registers, which [`enter`] changes in each call that comes to it.
pub(crate) fn find_lost(thread: &Thread, context: &mut Context) {
    use register::{FLAGS, R11, RCX, RIP};
    let registers = &mut context.registers;
    let after = registers[RIP];
    if registers[RCX] == after
        && registers[R11] == registers[FLAGS]
        && thread.is_dispatched
        && !user_dispatch::is_own_code(after as usize)
        && frame::read::<u16>((after as usize).wrapping_sub(SYSCALL_BYTES)) == Some(SYSCALL)
    {
        registers[RIP] = after - SYSCALL_BYTES as u64;
    }
}

/// A call of the program's has come.
pub(crate) fn enter(thread: &mut Thread, info: &Info, context: &mut Context) {
    use register::{RAX, RCX, RIP};
    thread.is_of_32_bits = compat::is_call(info, context);
    if thread.is_of_32_bits {
        fast::arrived(thread, context);
        engine_lock::follow_the_budget();
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
                crate::library::report::end(format_args!("a signal handler returned to a frame that is not there"));
            }
        } else {
            engine_lock::follow_the_budget();
            let sets_filter = pointed::sets_filter(number, arguments);
            let refused = if sets_filter { pointed::refused_filter(number, arguments) } else { None };
            if sets_filter && refused.is_none() && give_up(thread, context) {
                // The program makes it by itself: the filter may forbid the return from here (`rt_sigreturn`).
                context.registers[RIP] -= SYSCALL_BYTES as u64;
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
    signals::deliver_early(thread, context);
    signals::deliver_kept(thread, context);
}
