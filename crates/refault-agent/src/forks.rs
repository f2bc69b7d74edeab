//! What happens around `fork`: the child's memory becomes the child's own before anything else runs in it.
//!
//! The handlers are registered when the agent starts, before the program's own, so they are the last before the fork and the
//! first after it.

use std::cell::UnsafeCell;

use refault_pager::ForkTicket;

use crate::{agent, heap, statistics};

struct Ticket(UnsafeCell<Option<ForkTicket>>);

// SAFETY: used only by the forking thread between `before` and one of the other handlers, while the pager's gate is closed.
unsafe impl Sync for Ticket {}

static TICKET: Ticket = Ticket(UnsafeCell::new(None));

pub(crate) fn register() {
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// One line on standard error.
pub(crate) fn say(message: &str) {
    let line = format!("refault: {message}\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}

unsafe extern "C" fn before() {
    let Some(agent) = agent() else { return };
    match agent.pager.before_fork(usize::from(statistics::has_thread(agent))) {
        // SAFETY: the gate is closed, so no other thread is here.
        Ok(ticket) => unsafe { *TICKET.0.get() = Some(ticket) },
        Err(error) => crate::end(&format!("a fork cannot be prepared: {error}")),
    }
    heap::lock();
}

fn take_ticket() -> Option<ForkTicket> {
    // SAFETY: the gate is still closed, and only the forking thread gets here.
    unsafe { (*TICKET.0.get()).take() }
}

unsafe extern "C" fn in_parent() {
    let Some(agent) = agent() else { return };
    heap::unlock();
    if let Some(ticket) = take_ticket() {
        agent.pager.after_fork_in_parent(ticket);
    }
}

unsafe extern "C" fn in_child() {
    let Some(agent) = agent() else { return };
    heap::unlock();
    let Some(ticket) = take_ticket() else { return };
    heap::disown_threads();
    let _unmanaged = crate::Unmanaged::begin();
    if let Err(error) = agent.pager.after_fork_in_child(ticket) {
        crate::end(&format!("a forked child cannot get memory of its own: {error}"));
    }
    let _ = statistics::start(agent);
}
