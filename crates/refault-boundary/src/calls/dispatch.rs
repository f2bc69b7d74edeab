//! System calls of the program: each is served as its row of the table says ([`crate::table`]).
//!
//! The agent brings a call's memory in before it makes the call, and holds it until the call has returned. So the
//! kernel never meets a missing page, and a call that consumes is never repeated. A call that waits (a futex, a `read`)
//! finds its memory where it was.

use refault_linux::calls::*;
use refault_linux::errno::{EBADF, EFAULT, EINVAL, ENOSYS};
use refault_linux::options::*;

use crate::calls::holding::{self, OwnMemory, hold_for_good};
use crate::calls::leaving;
use crate::calls::make::{make, plain};
use crate::calls::pointed;
use crate::calls::tracing;
use crate::engine_lock;
use crate::files::descriptors;
use crate::files::memory_files;
use crate::files::pieces;
use crate::frame::{self, Context, register};
use crate::mapping::locks;
use crate::mapping::memory_calls as memory;
use crate::patched::switch;
use crate::process::{clone, robust};
use crate::signals;
use crate::table::{self, By, Row};
use crate::thread::Thread;
use crate::user_dispatch;

/// The result of a call about descriptors, of which the agent's own copy of the standard error follows the program's.
fn follows(thread: &Thread, number: usize, arguments: [usize; 6], result: isize) -> isize {
    if result >= 0 && descriptors::changes_standard_error(number, arguments) {
        descriptors::follow_standard_error(thread);
    }
    result
}

/// Serves a call by its number and arguments, as its row says.
pub(crate) fn serve(thread: &mut Thread, context: &mut Context, number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, ..] = arguments;
    // Of x32 or of a newer kernel: as a kernel without it.
    let Some(row) = table::of(number) else { return ENOSYS };
    leaving::before(thread, number, arguments);
    match row.by {
        By::Kernel | By::Transfer => waiting(thread, context, row, arguments),
        By::AtOnce => plain(number, arguments),
        By::Absent => ENOSYS,
        By::Descriptor if descriptors::is_about_own(number, arguments) => EBADF,
        // It names no memory, and is over at once but for what is left to write.
        By::Descriptor if row.memory.is_empty() => follows(thread, number, arguments, plain(number, arguments)),
        By::Descriptor => waiting(thread, context, row, arguments),
        By::DescriptorRange => follows(thread, number, arguments, descriptors::close_range(a, b, c)),
        By::Folder if descriptors::is_folder_of_proc(a) => list(thread, context, row, arguments),
        By::Folder => waiting(thread, context, row, arguments),
        By::Actions => signals::set_action(thread, arguments),
        By::Mask => signals::set_mask(thread, &mut context.mask, arguments),
        By::Pending => signals::pending(thread, context.mask, arguments),
        By::AlternateStack => signals::set_alternate(thread, context.registers[register::RSP] as usize, arguments),
        // Its frame is the program's, which `enter` has.
        By::Return => ENOSYS,
        By::Mapping => memory::serve(number, arguments).unwrap_or(ENOSYS),
        By::Moving => crate::mapping::moves::remap(arguments),
        By::Advice => {
            holding::hold(thread, row, &arguments);
            match crate::mapping::advice::advise_list(arguments) {
                Some(result) => {
                    engine_lock::release(thread);
                    result
                }
                None => waiting(thread, context, row, arguments),
            }
        }
        By::Lock => locks::lock(number, arguments),
        By::LockAll => locks::lock_all(arguments),
        By::UnlockAll => locks::unlock_all(),
        By::Personality => memory::set_personality(arguments),
        By::WrittenLater => {
            row.each(&arguments, &mut |(start, bytes, _)| holding::hold_for_good(start, bytes));
            let result = plain(number, arguments);
            if number == SYS_set_robust_list && result == 0 {
                robust::has(thread, a);
            }
            result
        }
        By::Child => {
            hold_thread_words(number, arguments);
            holding::hold(thread, row, &arguments);
            let pid = clone::serve(thread, context, number, arguments);
            engine_lock::release(thread);
            pid
        }
        By::Program => {
            let error = clone::execute(thread, context, number, arguments);
            engine_lock::release(thread);
            error
        }
        By::ThreadEnd if !thread.is_vm_child => clone::end_thread(thread, a),
        By::ThreadEnd => plain(SYS_exit_group, arguments),
        By::ProcessEnd => {
            if !thread.is_vm_child {
                crate::process::end::finish();
            }
            plain(number, arguments)
        }
        // From here on every signal stops this process for its tracer, the agent's too. It is about to execute.
        By::Trace if a == PTRACE_TRACEME => {
            engine_lock::paging().account().is_deaf();
            user_dispatch::dispatch_off(thread);
            plain(number, arguments)
        }
        By::Trace if thread.is_vm_child => {
            holding::hold(thread, row, &arguments);
            let result = tracing::serve(arguments);
            engine_lock::release(thread);
            result
        }
        By::Trace => waiting(thread, context, row, arguments),
        // Another user of what the agent stands on.
        By::ProcessOption if number == SYS_prctl && a == PR_SET_SYSCALL_USER_DISPATCH => EINVAL,
        By::ProcessOption => {
            if number == SYS_prctl && a == PR_SET_TSC {
                refault_linux::clock::forget_counter();
            }
            waiting(thread, context, row, arguments)
        }
        By::Device if pointed::is_refused(b, c) => EINVAL,
        By::Device => waiting(thread, context, row, arguments),
        By::OtherMemory => match crate::calls::visits::serve(thread, number, arguments) {
            Some(result) => result,
            None => waiting(thread, context, row, arguments),
        },
        // The register by which patched sites find their thread.
        By::Register if a == ARCH_SET_GS => {
            switch::turn_off();
            plain(number, arguments)
        }
        By::Register if a == ARCH_GET_GS && switch::is_on() => {
            if frame::write(b, &0u64) {
                0
            } else {
                EFAULT
            }
        }
        By::Register => waiting(thread, context, row, arguments),
        By::Namespace => {
            clone::may_send_children_elsewhere();
            waiting(thread, context, row, arguments)
        }
    }
}

/// `getdents64` of a folder of `/proc`: nothing is not the end if all that was there is the agent's.
fn list(thread: &mut Thread, context: &mut Context, row: &Row, arguments: [usize; 6]) -> isize {
    loop {
        let bytes = waiting(thread, context, row, arguments);
        if bytes <= 0 {
            return bytes;
        }
        let left = descriptors::leave_out_own(arguments[0], arguments[1], bytes as usize);
        if left > 0 {
            return left as isize;
        }
    }
}

/// Makes a call that may wait, with its memory held and the program's signals open.
fn waiting(thread: &mut Thread, context: &mut Context, row: &Row, mut arguments: [usize; 6]) -> isize {
    let number = row.number;
    if let Some(result) = memory_files::serve(thread, number, arguments) {
        return result;
    }
    if let Some(result) = pieces::serve(thread, context, number, arguments) {
        memory_files::was_made(number, arguments, result);
        return result;
    }
    let (mut own, as_passed) = (OwnMemory::default(), arguments);
    holding::prepare(thread, row, &mut arguments, &mut own);
    thread.was_asked = false;
    let mut result = make(thread, context, number, &arguments);
    if result == EFAULT && holding::lacked_memory(thread, number, arguments) {
        result = make(thread, context, number, &arguments);
    }
    engine_lock::release(thread);
    memory_files::was_made(number, as_passed, result);
    if result > 0 && std::mem::take(&mut thread.was_asked) {
        result = pieces::go_on(thread, context, number, as_passed, result as usize) as isize;
    }
    result
}

/// A filter is about to be set, which may forbid what the agent needs: from here on the program has its memory, its
/// calls and, if it has one thread, its signals as the kernel gives them. False if its memory cannot be had.
pub(crate) fn give_up(thread: &mut Thread, context: &mut Context) -> bool {
    let mut paging = engine_lock::paging();
    // Before: what is asked from here on would be asked of the program's own action.
    paging.account().is_deaf();
    if let Err(why) = paging.give_up() {
        paging.account().is_not_deaf();
        drop(paging);
        crate::library::report::say(format_args!("a system-call filter is refused: {why}"));
        return false;
    }
    drop(paging);
    user_dispatch::dispatch_off(thread);
    if thread.is_last() {
        signals::give_back(thread, context);
    } else {
        signals::native::may_be(thread);
    }
    true
}

/// What the kernel writes when a thread begins and ends.
fn hold_thread_words(number: usize, [a, b, c, d, ..]: [usize; 6]) {
    if number == SYS_clone {
        hold_for_good(c, size_of::<i32>());
        hold_for_good(d, size_of::<i32>());
    } else if number == SYS_clone3
        && let Ok(passed) = clone::CloneArguments::read(a, b)
    {
        for word in [passed.pidfd, passed.child_tid, passed.parent_tid] {
            hold_for_good(word as usize, size_of::<i32>());
        }
    }
}
