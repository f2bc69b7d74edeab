//! The rest of a call that the tree's request for memory has ended in its middle.
//!
//! A call that waits until all is through, or fills whatever it is given, ends when a signal comes to its thread. It
//! says what was done until then. The request for memory is a signal of which the program sees nothing, so the agent
//! makes the rest behind it, in pieces. The agent asks nothing before the call, and nothing after it unless the tree
//! asked for memory meanwhile.
//!
//! Invariant: a byte is moved once; a call that would say less alone (what there is to read, what a pipe has room for)
//! says it here.

use refault_linux::calls::*;
use refault_linux::sockets::MSG_WAITALL;

use super::{Kind, Progress, Way, bytes_taken, make_all, make_piece, opened, take};
use crate::engine_lock;
use crate::frame::Context;
use crate::thread::Thread;

/// Goes on with a call that was made whole, or in one piece. The tree's request for memory may have ended it in its
/// middle, after `done` bytes. Returns the bytes that are done in all then. What the call waits for it still waits for;
/// a signal of the program's ends it where it is.
pub(crate) fn go_on(
    thread: &mut Thread,
    context: &mut Context,
    number: usize,
    arguments: [usize; 6],
    done: usize,
) -> usize {
    if matches!(number, SYS_getrandom | SYS_sendfile) {
        return fill_on(thread, context, number, arguments, done);
    }
    let reads = matches!(number, SYS_read | SYS_readv | SYS_pread64 | SYS_preadv | SYS_preadv2);
    let receives = matches!(number, SYS_recvfrom | SYS_recvmsg);
    let writes =
        matches!(number, SYS_write | SYS_writev | SYS_pwrite64 | SYS_pwritev | SYS_pwritev2 | SYS_sendto | SYS_sendmsg);
    let Some(message) = (reads || receives || writes).then(|| take(thread, number, arguments)).flatten() else {
        return done;
    };
    if done >= bytes_taken(thread) {
        return done;
    }
    let way = Way { opened: opened(message.descriptor), done };
    let goes_on = match way.opened.kind {
        // No signal ends these.
        Kind::File | Kind::Whole => false,
        Kind::Memory => true,
        // What there is was read.
        Kind::Pipe | Kind::Stream => !reads && (!receives || message.flags & MSG_WAITALL != 0),
    };
    let all = if goes_on { make_all(thread, context, number, arguments, &message, way) } else { None };
    all.map_or(done, |all| usize::try_from(all).unwrap_or(done))
}

/// [`go_on`] for the calls that have one buffer or none: they end when a signal comes, after a page or more.
fn fill_on(thread: &mut Thread, context: &mut Context, number: usize, arguments: [usize; 6], mut done: usize) -> usize {
    loop {
        let mut rest = arguments;
        let left = if number == SYS_sendfile { 3 } else { 1 };
        rest[left] = arguments[left].saturating_sub(done);
        // To a pipe as much is sent as there is room for.
        if rest[left] == 0 || number == SYS_sendfile && opened(arguments[0]).kind != Kind::Stream {
            return done;
        }
        if number == SYS_sendfile {
            engine_lock::hold(thread, arguments[2], size_of::<usize>(), true);
        } else {
            rest[0] += done;
            engine_lock::hold(thread, rest[0], rest[1], true);
        }
        thread.was_asked = false;
        let result = make_piece(thread, context, number, &rest, Progress { done, ..Progress::default() });
        if result <= 0 {
            return done;
        }
        done += result as usize;
        if !thread.was_asked {
            return done;
        }
    }
}
