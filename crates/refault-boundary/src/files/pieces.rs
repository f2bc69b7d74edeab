//! Calls whose buffers are larger than what may be held at once: they are made in pieces. A piece is a quarter of the
//! budget, or half of what the process can keep in memory if others leave it less. The rest of a call that the tree's
//! request for memory has ended in its middle is made in pieces too ([`go_on`]). That is a call that waits until all is
//! through (what is written, sent, or received with MSG_WAITALL), or that fills whatever it is given.
//!
//! A call that is held whole needs memory beside the budget, and never ends where signals come faster than its memory
//! can be brought in: each sends the thread back before the call. What goes through in pieces has made progress by
//! then, which the program is told.
//!
//! Only what the kernel itself may do in part goes so: files, pipes and terminals, and sockets without bounds between
//! messages. A message that has bounds goes whole. So does whatever asks for more than bytes in order (urgent or
//! zero-copy data, a look ahead, credentials). A call on a socket whose waits are limited goes whole, because the limit
//! is one for all of the call. So does an append of up to half of the budget, which another writer may not come
//! between. So do writes to files whose size is limited, and direct ones that the kernel may refuse for their bounds.
//! What comes along with the bytes (descriptors, the end of a record) goes with the first piece or with the last.
//!
//! Invariants: the program is told what it would be told of a call that was interrupted at the same byte. A signal of a
//! broken connection comes only if nothing was sent. A number that means another file meanwhile ends the call. Cost:
//! `fstat` and a look at the socket, where a buffer is managed and larger than 64 KiB.

mod many;
mod rest;

use refault_linux::END_OF_ADDRESSES;
use refault_linux::calls::*;
use refault_linux::errno::{EFAULT, ENOSYS, EPERM};
use refault_linux::flags::{
    O_APPEND, O_DIRECT, RWF_APPEND, RWF_DONTCACHE, RWF_DSYNC, RWF_HIPRI, RWF_NOAPPEND, RWF_NOWAIT, RWF_SYNC, SEEK_CUR,
};
use refault_linux::sockets::{
    ADDRESS, MSG_CMSG_CLOEXEC, MSG_DONTWAIT, MSG_EOR, MSG_MORE, MSG_NOSIGNAL, MSG_WAITALL, MSGHDR_VECTORS, SCM_RIGHTS,
    SOL_SOCKET,
};
use refault_paging::PAGE;

use crate::calls::make::{make, plain};
use crate::engine_lock;
use crate::files::opened::{
    Kind, Opened, RECEIVES, SENDS, file_size_is_limited, goes_on, has_timeout, opened, status_flags,
};
use crate::files::progress::{Header, Progress};
use crate::frame::{self, Context};
use crate::mapping::managed::{ALWAYS_WHOLE, is_managed, most_held, quarter_of_budget};
use crate::table::{MAX_CONTROL, MAX_VECTORS};
use crate::thread::Thread;

pub(crate) use rest::go_on;

/// What the kernel moves by one call at most.
const MAX_BY_ONE_CALL: usize = 0x7fff_f000;
/// Vectors of one piece.
const MAX_IN_PIECE: usize = 64;

const SENT_IN_PIECES: usize = MSG_DONTWAIT | MSG_EOR | MSG_NOSIGNAL | MSG_MORE;
const RECEIVED_IN_PIECES: usize = MSG_DONTWAIT | MSG_WAITALL | MSG_NOSIGNAL | MSG_CMSG_CLOEXEC;
/// Of a `preadv2` or `pwritev2`.
const FLAGS_OF_FILES: usize = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND | RWF_NOAPPEND | RWF_DONTCACHE;

/// What the pieces of a call have in common: what its descriptor means, and the bytes that were moved before the first
/// of them.
#[derive(Clone, Copy)]
struct Way {
    opened: Opened,
    done: usize,
}

/// Makes a call in pieces. `None`: it is to be made whole.
pub(crate) fn serve(thread: &mut Thread, context: &mut Context, number: usize, arguments: [usize; 6]) -> Option<isize> {
    if number == SYS_sendmmsg {
        return many::send(thread, context, arguments);
    }
    if !exceeds(number, arguments) {
        return None;
    }
    let message = take(thread, number, arguments)?;
    if bytes_taken(thread) <= most_held() || !thread.vectors.iter().any(|[start, bytes]| is_managed(*start, *bytes)) {
        return None;
    }
    let way = Way { opened: opened(message.descriptor), done: 0 };
    make_all(thread, context, number, arguments, &message, way)
}

/// Takes a call's vectors, and what else it says of what it moves. `None`: the kernel refuses it.
pub(crate) fn take(thread: &mut Thread, number: usize, arguments: [usize; 6]) -> Option<Message> {
    let [descriptor, a, b, c, name, last] = arguments;
    let mut header = Header::default();
    match number {
        SYS_read | SYS_write | SYS_pread64 | SYS_pwrite64 | SYS_sendto | SYS_recvfrom => {
            set_vectors(thread, &[[a, b]])?
        }
        SYS_sendmsg | SYS_recvmsg => {
            header = frame::read(a)?;
            read_vectors(thread, header[2], header[3])?;
        }
        _ => read_vectors(thread, a, b)?,
    }
    if number == SYS_sendto {
        [header[0], header[1]] = [name, last];
    }
    let flags = match number {
        SYS_sendmsg | SYS_recvmsg => b,
        SYS_sendto | SYS_recvfrom => c,
        SYS_preadv2 | SYS_pwritev2 => last,
        _ => 0,
    };
    Some(Message { descriptor, flags, header, from: a })
}

pub(crate) fn bytes_taken(thread: &Thread) -> usize {
    thread.vectors.iter().map(|[_, bytes]| bytes).sum()
}

/// Makes what is left of a call whose vectors are the thread's, in pieces. `None`: it is to be made whole.
fn make_all(
    thread: &mut Thread,
    context: &mut Context,
    number: usize,
    arguments: [usize; 6],
    message: &Message,
    way: Way,
) -> Option<isize> {
    match way.opened.kind {
        Kind::Whole => None,
        Kind::Stream => match number {
            SYS_read | SYS_readv => Some(receive_some(thread, context, number, arguments)),
            SYS_recvfrom | SYS_recvmsg if !message.is_received_in_pieces() => None,
            SYS_recvfrom => Some(receive_from(thread, context, arguments, way)),
            SYS_recvmsg => Some(receive(thread, context, message, way)),
            SYS_write | SYS_writev | SYS_sendto | SYS_sendmsg if !message.is_sent_in_pieces() => None,
            SYS_sendmsg => Some(send(thread, context, message, way, Progress::default())),
            SYS_write | SYS_writev | SYS_sendto => {
                let result = send(thread, context, message, way, Progress::default());
                (!is_forbidden(result)).then_some(result)
            }
            _ => None,
        },
        _ => transfer(thread, context, number, arguments, message.flags, way),
    }
}

/// Whether a filter that the program runs under forbids `sendmsg`, which is not what the program has called. Nothing
/// was sent: its own call is made, whole.
fn is_forbidden(result: isize) -> bool {
    matches!(result, EPERM | ENOSYS)
}

/// Whether a call's buffers are larger than what is always held whole: the calls of [`serve`] but for `sendmmsg`.
pub(crate) fn exceeds(number: usize, [_, a, b, ..]: [usize; 6]) -> bool {
    match number {
        SYS_read | SYS_write | SYS_pread64 | SYS_pwrite64 | SYS_sendto | SYS_recvfrom => b > ALWAYS_WHOLE,
        SYS_readv | SYS_writev | SYS_preadv | SYS_pwritev | SYS_preadv2 | SYS_pwritev2 => bytes_of(a, b) > ALWAYS_WHOLE,
        SYS_sendmsg | SYS_recvmsg => bytes_of_message(a) > ALWAYS_WHOLE,
        _ => false,
    }
}

fn bytes_of(vectors: usize, count: usize) -> usize {
    let mut all = 0usize;
    frame::each_vector(vectors, count.min(MAX_VECTORS), |[_, bytes]| all = all.saturating_add(bytes));
    all
}

fn bytes_of_message(header: usize) -> usize {
    frame::read::<[usize; 2]>(header.wrapping_add(MSGHDR_VECTORS))
        .map_or(0, |[vectors, count]| bytes_of(vectors, count))
}

/// Takes the program's vectors, as the kernel does at a call's beginning. `None`: it refuses them.
fn read_vectors(thread: &mut Thread, vectors: usize, count: usize) -> Option<()> {
    if count > MAX_VECTORS {
        return None;
    }
    let taken = &mut thread.vectors;
    taken.clear();
    frame::each_vector(vectors, count, |vector| taken.push(vector)).then_some(())?;
    check_vectors(thread)
}

fn set_vectors(thread: &mut Thread, vectors: &[[usize; 2]]) -> Option<()> {
    thread.vectors.clear();
    thread.vectors.extend_from_slice(vectors);
    check_vectors(thread)
}

/// What the kernel refuses, it is to refuse whole; what it would not take of them is cut off.
fn check_vectors(thread: &mut Thread) -> Option<()> {
    let mut left = MAX_BY_ONE_CALL;
    for [start, bytes] in &mut thread.vectors {
        start.checked_add(*bytes).filter(|end| *end <= END_OF_ADDRESSES)?;
        *bytes = (*bytes).min(left);
        left -= *bytes;
    }
    Some(())
}

/// The next piece of the thread's vectors, behind `done` bytes: its vectors, how many, and its bytes.
pub(crate) fn piece(thread: &Thread, done: usize) -> ([[usize; 2]; MAX_IN_PIECE], usize, usize) {
    let (most, mut before, mut all, mut count) = (most_held(), 0, 0, 0);
    let mut taken = [[0; 2]; MAX_IN_PIECE];
    for [start, bytes] in &thread.vectors {
        let skipped = done.saturating_sub(before).min(*bytes);
        before += bytes;
        let part = (bytes - skipped).min(most - all);
        if part > 0 && count < MAX_IN_PIECE {
            taken[count] = [start + skipped, part];
            count += 1;
            all += part;
        } else if part > 0 {
            break;
        }
    }
    (taken, count, all)
}

pub(crate) fn hold_piece(thread: &mut Thread, vectors: &[[usize; 2]], write: bool) {
    for [start, bytes] in vectors {
        engine_lock::hold(thread, *start, *bytes, write);
    }
}

/// Makes a piece's call, so that a signal which ends it tells the program what was done before.
fn make_piece(
    thread: &mut Thread,
    context: &mut Context,
    number: usize,
    arguments: &[usize; 6],
    progress: Progress,
) -> isize {
    thread.progress = progress;
    let result = make(thread, context, number, arguments);
    thread.progress = Progress::default();
    engine_lock::release(thread);
    result
}

/// Reads and writes of files, pipes and terminals.
fn transfer(
    thread: &mut Thread,
    context: &mut Context,
    number: usize,
    arguments: [usize; 6],
    flags: usize,
    Way { opened, mut done }: Way,
) -> Option<isize> {
    let kind = opened.kind;
    let [descriptor, _, _, position, ..] = arguments;
    let total = bytes_taken(thread);
    let reads = matches!(number, SYS_read | SYS_readv | SYS_pread64 | SYS_preadv | SYS_preadv2);
    let places = matches!(number, SYS_pread64 | SYS_pwrite64 | SYS_preadv | SYS_pwritev)
        || matches!(number, SYS_preadv2 | SYS_pwritev2) && position != usize::MAX;
    if flags & !FLAGS_OF_FILES != 0 {
        return None;
    }
    if kind == Kind::File && !file_goes_in_pieces(thread, descriptor, reads, flags, total <= 2 * quarter_of_budget()) {
        return None;
    }
    while done < total && (done == 0 || opened.is_still(descriptor)) {
        let (vectors, count, bytes) = piece(thread, done);
        hold_piece(thread, &vectors[..count], reads);
        let mut part = arguments;
        [part[1], part[2]] = if matches!(number, SYS_read | SYS_write | SYS_pread64 | SYS_pwrite64) {
            vectors[0]
        } else {
            [vectors.as_ptr() as usize, count]
        };
        if places {
            part[3] = position.wrapping_add(done);
        }
        thread.was_asked = false;
        let result = if kind == Kind::File {
            let result = plain(number, part);
            engine_lock::release(thread);
            result
        } else {
            make_piece(thread, context, number, &part, Progress { done, ..Progress::default() })
        };
        if result == EFAULT && done > 0 && kind == Kind::File && status_flags(descriptor) & O_DIRECT != 0 {
            // The kernel finds out before it says that anything was moved, and leaves the position where it was.
            if !places {
                plain(SYS_lseek, [descriptor, done.wrapping_neg(), SEEK_CUR, 0, 0, 0]);
            }
            return Some(EFAULT);
        }
        if result <= 0 {
            return Some(if done > 0 { done as isize } else { result });
        }
        done += result as usize;
        // What is read of a pipe is what there is. What is written waits until all is written, unless it must not wait,
        // which the next piece says; part of a piece is written when this thread is asked for memory meanwhile.
        let ends = match kind {
            Kind::File => (result as usize) < bytes,
            Kind::Memory => reads && (result as usize) < bytes && !thread.was_asked,
            _ => reads,
        };
        if ends {
            break;
        }
    }
    Some(done as isize)
}

/// Whether a file's bytes may go in pieces. `is_small`: an append may be held whole.
fn file_goes_in_pieces(thread: &Thread, descriptor: usize, reads: bool, flags: usize, is_small: bool) -> bool {
    let status = status_flags(descriptor);
    let appends = flags & RWF_APPEND != 0 || status & O_APPEND != 0;
    let fits_blocks = || thread.vectors.iter().all(|[start, bytes]| (start | bytes).is_multiple_of(PAGE));
    let is_held_whole = || appends && is_small || file_size_is_limited();
    (status & O_DIRECT == 0 || fits_blocks()) && (reads || !is_held_whole())
}

/// A message, or what `write` sends.
#[derive(Clone, Copy)]
pub(crate) struct Message {
    descriptor: usize,
    flags: usize,
    header: Header,
    /// The header's address, of what is received by one.
    from: usize,
}

impl Message {
    fn is_sent_in_pieces(&self) -> bool {
        let [_, _, _, _, control, control_bytes, _] = self.header;
        let goes_with_the_first = control == 0
            || control_bytes == 0
            || frame::read::<(usize, [u32; 2])>(control).is_some_and(|(bytes, kind)| {
                kind.map(|word| word as usize) == [SOL_SOCKET, SCM_RIGHTS]
                    && bytes.checked_next_multiple_of(size_of::<usize>()).is_some_and(|bytes| bytes >= control_bytes)
            });
        self.flags & !SENT_IN_PIECES == 0 && goes_with_the_first && !has_timeout(self.descriptor, SENDS)
    }

    fn is_received_in_pieces(&self) -> bool {
        let waits_for_all = self.flags & MSG_WAITALL != 0;
        let [.., control, control_bytes, _] = self.header;
        let has_control = control != 0 && control_bytes != 0;
        let is_whole = || has_control || has_timeout(self.descriptor, RECEIVES);
        self.flags & !RECEIVED_IN_PIECES == 0 && !(waits_for_all && is_whole())
    }
}

/// Sends the thread's vectors on a stream, by messages.
fn send(
    thread: &mut Thread,
    context: &mut Context,
    message: &Message,
    Way { opened, mut done }: Way,
    so_far: Progress,
) -> isize {
    let total = bytes_taken(thread);
    let [name, name_bytes, _, _, control, control_bytes, _] = message.header;
    while done < total && (done == 0 || opened.is_still(message.descriptor) && goes_on(message.descriptor, SENDS)) {
        let (mut vectors, count, bytes) = piece(thread, done);
        let mut header = [0, 0, vectors.as_mut_ptr() as usize, count, 0, 0, 0];
        let mut flags = message.flags;
        if done == 0 {
            engine_lock::hold(thread, name, (name_bytes as u32 as usize).min(ADDRESS), false);
            engine_lock::hold(thread, control, control_bytes.min(MAX_CONTROL), false);
            [header[0], header[1], header[4], header[5]] = [name, name_bytes, control, control_bytes];
        } else {
            flags |= MSG_NOSIGNAL;
        }
        if done + bytes < total {
            flags &= !MSG_EOR;
        }
        hold_piece(thread, &vectors[..count], false);
        let arguments = [message.descriptor, header.as_ptr() as usize, flags, 0, 0, 0];
        let result = make_piece(thread, context, SYS_sendmsg, &arguments, Progress { done, ..so_far });
        if result <= 0 {
            return if done > 0 { done as isize } else { result };
        }
        done += result as usize;
    }
    done as isize
}

/// One piece of what a stream has.
fn receive_some(thread: &mut Thread, context: &mut Context, number: usize, arguments: [usize; 6]) -> isize {
    let (vectors, count, _) = piece(thread, 0);
    hold_piece(thread, &vectors[..count], true);
    let mut part = arguments;
    [part[1], part[2]] = if number == SYS_read { vectors[0] } else { [vectors.as_ptr() as usize, count] };
    make_piece(thread, context, number, &part, Progress::default())
}

/// Whether a call that receives waits for more after a piece of `bytes` bytes, of which `result` came.
fn receives_more(thread: &mut Thread, flags: usize, result: usize, bytes: usize) -> bool {
    // A short piece is the end, of which the kernel alone knows (a message with descriptors, urgent data). It need not
    // be the end if this thread was asked for memory while it waited.
    let was_asked = std::mem::take(&mut thread.was_asked);
    flags & MSG_WAITALL != 0 && (result == bytes || was_asked)
}

/// `recvfrom` on a stream.
fn receive_from(
    thread: &mut Thread,
    context: &mut Context,
    arguments: [usize; 6],
    Way { opened, mut done }: Way,
) -> isize {
    let [descriptor, start, total, flags, name, name_bytes] = arguments;
    let total = total.min(MAX_BY_ONE_CALL);
    while done < total && (done == 0 || opened.is_still(descriptor) && goes_on(descriptor, RECEIVES)) {
        let bytes = (total - done).min(most_held());
        engine_lock::hold(thread, start + done, bytes, true);
        let mut part = [descriptor, start + done, bytes, flags, 0, 0];
        if done == 0 {
            let room = frame::read::<u32>(name_bytes).unwrap_or(0) as usize;
            engine_lock::hold(thread, name_bytes, size_of::<u32>(), true);
            engine_lock::hold(thread, name, room.min(ADDRESS), true);
            [part[4], part[5]] = [name, name_bytes];
        }
        thread.was_asked = false;
        let result = make_piece(thread, context, SYS_recvfrom, &part, Progress { done, ..Progress::default() });
        if result <= 0 {
            return if done > 0 { done as isize } else { result };
        }
        done += result as usize;
        if !receives_more(thread, flags, result as usize, bytes) {
            break;
        }
    }
    done as isize
}

/// `recvmsg` on a stream.
fn receive(thread: &mut Thread, context: &mut Context, message: &Message, way: Way) -> isize {
    let Way { opened, mut done } = way;
    let total = bytes_taken(thread);
    let [name, name_bytes, _, _, control, control_bytes, _] = message.header;
    while done < total && (done == 0 || opened.is_still(message.descriptor) && goes_on(message.descriptor, RECEIVES)) {
        let (mut vectors, count, bytes) = piece(thread, done);
        engine_lock::hold(thread, name, (name_bytes as u32 as usize).min(ADDRESS), true);
        engine_lock::hold(thread, control, control_bytes.min(MAX_CONTROL), true);
        hold_piece(thread, &vectors[..count], true);
        let mut header = [name, name_bytes, vectors.as_mut_ptr() as usize, count, control, control_bytes, 0];
        let ours = header.as_mut_ptr() as usize;
        let progress = Progress { done, headers: [ours, message.from], ..Progress::default() };
        let arguments = [message.descriptor, ours, message.flags, 0, 0, 0];
        thread.was_asked = false;
        let result = make_piece(thread, context, SYS_recvmsg, &arguments, progress);
        // The end of a connection says nothing of what came before.
        if result > 0 || result == 0 && done == 0 {
            progress.tell_of_message();
        }
        if result <= 0 {
            return if done > 0 { done as isize } else { result };
        }
        done += result as usize;
        if !receives_more(thread, message.flags, result as usize, bytes) {
            break;
        }
    }
    done as isize
}
