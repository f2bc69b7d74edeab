//! Calls whose buffers are larger than what may be held at once: they are made in pieces, of a quarter of the budget
//! each.
//!
//! A call that is held whole needs memory beside the budget, and never ends where signals come faster than its memory can
//! be brought in: each sends the thread back before the call. What goes through in pieces has made progress by then,
//! which the program is told.
//!
//! Only what the kernel itself may do in part goes so: files, pipes and terminals, and sockets without bounds between
//! messages. A message that has bounds goes whole, as does whatever asks for more than bytes in order (urgent
//! or zero-copy data, a look ahead, credentials), a socket whose waits are limited, because the limit is one for all
//! of the call, and an append of up to half of the budget, which another writer may not come between. What comes along with the bytes
//! (descriptors, the end of a record) goes with the first piece or with the last.
//!
//! Invariant: the program is told what it would be told of a call that was interrupted at the same byte, and a signal
//! of a broken connection comes only if nothing was sent. Cost: `fstat` and a look at the socket, where a buffer is
//! managed and larger than 64 KiB.

use refault_paging::sys;

use crate::calls::{make, plain};
use crate::entry;
use crate::frame::{self, Context};
use crate::memory_calls::{is_managed, most_held};
use crate::thread::Thread;

const READ: usize = 0;
const WRITE: usize = 1;
const PREAD: usize = 17;
const PWRITE: usize = 18;
const READV: usize = 19;
const WRITEV: usize = 20;
const SENDTO: usize = 44;
const RECVFROM: usize = 45;
const SENDMSG: usize = 46;
const RECVMSG: usize = 47;
const PREADV: usize = 295;
const PWRITEV: usize = 296;
const SENDMMSG: usize = 307;
const PREADV2: usize = 327;
const PWRITEV2: usize = 328;

/// Buffers that are always held whole.
pub(crate) const ALWAYS_WHOLE: usize = 64 << 10;
/// What the kernel moves by one call at most.
const MAX_BY_ONE_CALL: usize = 0x7fff_f000;
/// Vectors of a call, as the kernel limits them, and of one piece.
const MAX_VECTORS: usize = 1024;
const MAX_IN_PIECE: usize = 64;
/// Messages of one `sendmmsg`.
const MAX_MESSAGES: usize = 1024;
/// Bytes of a message's header, and of that of `sendmmsg`, in which the bytes that were sent follow.
const HEADER: usize = 56;
const HEADER_OF_MANY: usize = 64;

const MSG_DONTWAIT: usize = 0x40;
const MSG_EOR: usize = 0x80;
const MSG_WAITALL: usize = 0x100;
const MSG_NOSIGNAL: usize = 0x4000;
const MSG_MORE: usize = 0x8000;
const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
const SENT_IN_PIECES: usize = MSG_DONTWAIT | MSG_EOR | MSG_NOSIGNAL | MSG_MORE;
const RECEIVED_IN_PIECES: usize = MSG_DONTWAIT | MSG_WAITALL | MSG_NOSIGNAL | MSG_CMSG_CLOEXEC;
/// Of a `preadv2` or `pwritev2`: RWF_HIPRI, DSYNC, SYNC, NOWAIT, APPEND, NOAPPEND, DONTCACHE.
const FLAGS_OF_FILES: usize = 0x1 | 0x2 | 0x4 | 0x8 | APPENDS | 0x20 | 0x80;
const APPENDS: usize = 0x10;

/// A `struct msghdr`: name, its bytes, vectors, their number, control, its bytes, flags.
type Header = [usize; 7];

/// What a call that is made in pieces has done so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Progress {
    /// Bytes, or messages of a `sendmmsg` that go whole.
    done: usize,
    /// Messages of a `sendmmsg` before the one of which `done` bytes are sent, and where the program wants to know of those.
    before: usize,
    length_at: usize,
    /// The header of a message that is received, and the program's, which is to say the same.
    headers: [usize; 2],
}

impl Progress {
    /// What the program is to be told of a call that ends here, its last piece having this result if it was made. `None`: of
    /// that piece alone.
    pub(crate) fn told(self, result: Option<isize>) -> Option<isize> {
        if result.is_some_and(|result| result >= 0) {
            self.tell_of_message();
        }
        let all = self.done as isize + result.unwrap_or(0).max(0);
        let (any, told) = match self.length_at {
            0 => (self.done > 0, all),
            at if all > 0 => {
                frame::write(at, &(all as u32));
                (true, self.before as isize + 1)
            }
            _ => (self.before > 0, self.before as isize),
        };
        any.then_some(told)
    }

    /// A message was received by way of a header of the agent's.
    fn tell_of_message(self) {
        let [ours, theirs] = self.headers;
        if theirs == 0 {
            return;
        }
        if let Some([_, name_bytes, .., control_bytes, flags]) = frame::read::<Header>(ours) {
            frame::write(theirs + 8, &(name_bytes as u32));
            frame::write(theirs + 40, &control_bytes);
            frame::write(theirs + 48, &(flags as u32));
        }
    }
}

/// What a descriptor is, as far as it decides what of it may go in pieces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Its reads and writes are whole unless it ends, and no signal ends them.
    File,
    /// A device that reads as a file, and is interrupted as a pipe.
    Memory,
    /// What is there is read; what is written waits until all is. Terminals and what has no kind (`inotify`) as well.
    Pipe,
    Stream,
    /// Its messages have bounds, or nothing is known.
    Whole,
}

/// Makes a call in pieces. `None`: it is to be made whole.
pub(crate) fn serve(thread: &mut Thread, context: &mut Context, number: usize, arguments: [usize; 6]) -> Option<isize> {
    if number == SENDMMSG {
        return send_many(thread, context, arguments);
    }
    if !exceeds(number, arguments) {
        return None;
    }
    let [descriptor, a, b, c, _, flags] = arguments;
    let mut header = Header::default();
    match number {
        READ | WRITE | PREAD | PWRITE | SENDTO | RECVFROM => set_vectors(thread, &[[a, b]])?,
        SENDMSG | RECVMSG => {
            header = frame::read(a)?;
            read_vectors(thread, header[2], header[3])?;
        }
        _ => read_vectors(thread, a, b)?,
    }
    let flags = match number {
        SENDMSG | RECVMSG => b,
        SENDTO | RECVFROM => c,
        PREADV2 | PWRITEV2 => flags,
        _ => 0,
    };
    let most = most_held();
    let total = thread.vectors.iter().map(|[_, bytes]| bytes).sum::<usize>();
    if total <= most || !thread.vectors.iter().any(|[start, bytes]| is_managed(*start, *bytes)) {
        return None;
    }
    let kind = kind_of(descriptor);
    let message = Message { descriptor, flags, header, from: a };
    match kind {
        Kind::Whole => None,
        Kind::Stream => match number {
            READ | READV => Some(receive_some(thread, context, number, arguments, most)),
            RECVFROM | RECVMSG if !message.is_received_in_pieces() => None,
            RECVFROM => Some(receive_from(thread, context, arguments, most)),
            RECVMSG => Some(receive(thread, context, &message, most)),
            WRITE | WRITEV | SENDTO | SENDMSG if !message.is_sent_in_pieces() => None,
            SENDTO => {
                let header = [arguments[4], arguments[5], 0, 0, 0, 0, 0];
                Some(send(thread, context, &Message { header, ..message }, most, Progress::default()))
            }
            WRITE | WRITEV | SENDMSG => Some(send(thread, context, &message, most, Progress::default())),
            _ => None,
        },
        _ => transfer(thread, context, number, arguments, flags, kind, most),
    }
}

/// Whether a call's buffers are larger than what is always held whole: the calls of [`serve`] but for `sendmmsg`.
pub(crate) fn exceeds(number: usize, [_, a, b, ..]: [usize; 6]) -> bool {
    match number {
        READ | WRITE | PREAD | PWRITE | SENDTO | RECVFROM => b > ALWAYS_WHOLE,
        READV | WRITEV | PREADV | PWRITEV | PREADV2 | PWRITEV2 => bytes_of(a, b) > ALWAYS_WHOLE,
        SENDMSG | RECVMSG => bytes_of_message(a) > ALWAYS_WHOLE,
        _ => false,
    }
}

fn bytes_of(vectors: usize, count: usize) -> usize {
    let mut all = 0usize;
    frame::each_vector(vectors, count.min(MAX_VECTORS), |[_, bytes]| all = all.saturating_add(bytes));
    all
}

fn bytes_of_message(header: usize) -> usize {
    frame::read::<[usize; 2]>(header.wrapping_add(16)).map_or(0, |[vectors, count]| bytes_of(vectors, count))
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
        start.checked_add(*bytes).filter(|end| *end <= 1 << 47)?;
        *bytes = (*bytes).min(left);
        left -= *bytes;
    }
    Some(())
}

/// The next piece of the thread's vectors, behind `done` bytes: its vectors, how many, and its bytes.
fn piece(thread: &Thread, done: usize, most: usize) -> ([[usize; 2]; MAX_IN_PIECE], usize, usize) {
    let (mut before, mut all, mut count) = (0, 0, 0);
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

fn hold_piece(thread: &mut Thread, vectors: &[[usize; 2]], write: bool) {
    for [start, bytes] in vectors {
        entry::hold(thread, *start, *bytes, write);
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
    entry::release(thread);
    result
}

/// Reads and writes of files, pipes and terminals.
fn transfer(
    thread: &mut Thread,
    context: &mut Context,
    number: usize,
    arguments: [usize; 6],
    flags: usize,
    kind: Kind,
    most: usize,
) -> Option<isize> {
    let [descriptor, _, _, position, ..] = arguments;
    let total = thread.vectors.iter().map(|[_, bytes]| bytes).sum::<usize>();
    let reads = matches!(number, READ | READV | PREAD | PREADV | PREADV2);
    let places = matches!(number, PREAD | PWRITE | PREADV | PWRITEV)
        || matches!(number, PREADV2 | PWRITEV2) && position != usize::MAX;
    if flags & !FLAGS_OF_FILES != 0 {
        return None;
    }
    if !reads && kind == Kind::File && total <= 2 * most && (flags & APPENDS != 0 || appends(descriptor)) {
        return None;
    }
    let mut done = 0;
    while done < total {
        let (vectors, count, bytes) = piece(thread, done, most);
        hold_piece(thread, &vectors[..count], reads);
        let mut part = arguments;
        [part[1], part[2]] = if matches!(number, READ | WRITE | PREAD | PWRITE) {
            vectors[0]
        } else {
            [vectors.as_ptr() as usize, count]
        };
        if places {
            part[3] = position.wrapping_add(done);
        }
        let result = if kind == Kind::File {
            let result = plain(number, part);
            entry::release(thread);
            result
        } else {
            make_piece(thread, context, number, &part, Progress { done, ..Progress::default() })
        };
        if result <= 0 {
            return Some(if done > 0 { done as isize } else { result });
        }
        done += result as usize;
        // What is read of a pipe is what there is. What is written waits until all is written, unless it must not wait,
        // which the next piece says; part of a piece is written when this thread is asked for memory meanwhile.
        let ends = match kind {
            Kind::File => (result as usize) < bytes,
            Kind::Memory => reads && (result as usize) < bytes,
            _ => reads,
        };
        if ends {
            break;
        }
    }
    Some(done as isize)
}

/// A message, or what `write` sends.
#[derive(Clone, Copy)]
struct Message {
    descriptor: usize,
    flags: usize,
    header: Header,
    /// The header's address, of what is received by one.
    from: usize,
}

impl Message {
    fn is_sent_in_pieces(&self) -> bool {
        const RIGHTS: usize = 1 << 32 | 1;
        let [_, _, _, _, control, control_bytes, _] = self.header;
        let goes_with_the_first = control == 0
            || control_bytes == 0
            || frame::read::<[usize; 2]>(control)
                .is_some_and(|[bytes, kind]| kind == RIGHTS && bytes.next_multiple_of(8) >= control_bytes);
        self.flags & !SENT_IN_PIECES == 0 && goes_with_the_first && !has_limit(self.descriptor, 21)
    }

    fn is_received_in_pieces(&self) -> bool {
        let waits_for_all = self.flags & MSG_WAITALL != 0;
        let has_control = self.header[4] != 0 && self.header[5] != 0;
        self.flags & !RECEIVED_IN_PIECES == 0 && !(waits_for_all && (has_control || has_limit(self.descriptor, 20)))
    }
}

/// Sends the thread's vectors on a stream, by messages.
fn send(thread: &mut Thread, context: &mut Context, message: &Message, most: usize, so_far: Progress) -> isize {
    let total = thread.vectors.iter().map(|[_, bytes]| bytes).sum::<usize>();
    let [name, name_bytes, _, _, control, control_bytes, _] = message.header;
    let mut done = 0;
    while done < total && (done == 0 || goes_on(message.descriptor, true)) {
        let (mut vectors, count, bytes) = piece(thread, done, most);
        let mut header = [0, 0, vectors.as_mut_ptr() as usize, count, 0, 0, 0];
        let mut flags = message.flags;
        if done == 0 {
            entry::hold(thread, name, name_bytes & 0xffff_ffff, false);
            entry::hold(thread, control, control_bytes.min(1 << 24), false);
            [header[0], header[1], header[4], header[5]] = [name, name_bytes, control, control_bytes];
        } else {
            flags |= MSG_NOSIGNAL;
        }
        if done + bytes < total {
            flags &= !MSG_EOR;
        }
        hold_piece(thread, &vectors[..count], false);
        let arguments = [message.descriptor, header.as_ptr() as usize, flags, 0, 0, 0];
        let result = make_piece(thread, context, SENDMSG, &arguments, Progress { done, ..so_far });
        if result <= 0 {
            return if done > 0 { done as isize } else { result };
        }
        done += result as usize;
    }
    done as isize
}

/// One piece of what a stream has.
fn receive_some(
    thread: &mut Thread,
    context: &mut Context,
    number: usize,
    arguments: [usize; 6],
    most: usize,
) -> isize {
    let (vectors, count, _) = piece(thread, 0, most);
    hold_piece(thread, &vectors[..count], true);
    let mut part = arguments;
    [part[1], part[2]] = if number == READ { vectors[0] } else { [vectors.as_ptr() as usize, count] };
    make_piece(thread, context, number, &part, Progress::default())
}

/// `recvfrom` on a stream.
fn receive_from(thread: &mut Thread, context: &mut Context, arguments: [usize; 6], most: usize) -> isize {
    let [descriptor, start, total, flags, name, name_bytes] = arguments;
    let total = total.min(MAX_BY_ONE_CALL);
    let mut done = 0;
    while done < total && (done == 0 || goes_on(descriptor, false)) {
        let bytes = (total - done).min(most);
        entry::hold(thread, start + done, bytes, true);
        let mut part = [descriptor, start + done, bytes, flags, 0, 0];
        if done == 0 {
            let room = frame::read::<u32>(name_bytes).unwrap_or(0) as usize;
            entry::hold(thread, name_bytes, 4, true);
            entry::hold(thread, name, room.min(128), true);
            [part[4], part[5]] = [name, name_bytes];
        }
        let progress = Progress { done, ..Progress::default() };
        let result = make_piece(thread, context, RECVFROM, &part, progress);
        if result <= 0 {
            return if done > 0 { done as isize } else { result };
        }
        done += result as usize;
        // Part of a piece is received when this thread is asked for memory meanwhile: the next one says whether it was the end.
        if flags & MSG_WAITALL == 0 {
            break;
        }
    }
    done as isize
}

/// `recvmsg` on a stream.
fn receive(thread: &mut Thread, context: &mut Context, message: &Message, most: usize) -> isize {
    let total = thread.vectors.iter().map(|[_, bytes]| bytes).sum::<usize>();
    let [name, name_bytes, _, _, control, control_bytes, _] = message.header;
    let mut done = 0;
    while done < total && (done == 0 || goes_on(message.descriptor, false)) {
        let (mut vectors, count, _) = piece(thread, done, most);
        entry::hold(thread, name, name_bytes & 0xffff_ffff, true);
        entry::hold(thread, control, control_bytes.min(1 << 24), true);
        hold_piece(thread, &vectors[..count], true);
        let mut header = [name, name_bytes, vectors.as_mut_ptr() as usize, count, control, control_bytes, 0];
        let ours = header.as_mut_ptr() as usize;
        let progress = Progress { done, headers: [ours, message.from], ..Progress::default() };
        let arguments = [message.descriptor, ours, message.flags, 0, 0, 0];
        let result = make_piece(thread, context, RECVMSG, &arguments, progress);
        if result >= 0 {
            progress.tell_of_message();
        }
        if result <= 0 {
            return if done > 0 { done as isize } else { result };
        }
        done += result as usize;
        // Part of a piece is received when this thread is asked for memory meanwhile: the next one says whether it was the end.
        if message.flags & MSG_WAITALL == 0 {
            break;
        }
    }
    done as isize
}

/// `sendmmsg`: as many messages at a time as may be held, and in pieces what is larger.
fn send_many(thread: &mut Thread, context: &mut Context, arguments: [usize; 6]) -> Option<isize> {
    let [descriptor, messages, count, flags, ..] = arguments;
    let count = count.min(MAX_MESSAGES);
    let most = most_held();
    let at = |index: usize| messages.wrapping_add(index * HEADER_OF_MANY);
    let bytes_at = |index| bytes_of_message(at(index));
    let all = (0..count).map(bytes_at).fold(0, usize::saturating_add);
    if all <= ALWAYS_WHOLE || all <= most {
        return None;
    }
    let kind = kind_of(descriptor);
    if kind == Kind::Stream && has_limit(descriptor, 21) {
        return None;
    }
    let mut sent = 0;
    while sent < count && (sent == 0 || goes_on(descriptor, true)) {
        let flags = if sent == 0 || kind != Kind::Stream { flags } else { flags | MSG_NOSIGNAL };
        let large = large_message(thread, descriptor, at(sent), flags, most).filter(|_| kind == Kind::Stream);
        let (result, wanted) = if let Some((message, wanted)) = large {
            let so_far = Progress { before: sent, length_at: at(sent) + HEADER, ..Progress::default() };
            let bytes = send(thread, context, &message, most, so_far);
            if bytes >= 0 {
                frame::write(at(sent) + HEADER, &(bytes as u32));
            }
            (bytes.min(1), wanted)
        } else {
            let (mut together, mut held) = (0, 0usize);
            while sent + together < count && (together == 0 || held.saturating_add(bytes_at(sent + together)) <= most) {
                held = held.saturating_add(bytes_at(sent + together));
                together += 1;
            }
            entry::hold(thread, at(sent), together * HEADER_OF_MANY, true);
            for index in sent..sent + together {
                crate::calls::hold_message(thread, at(index), false);
            }
            let part = [descriptor, at(sent), together, flags, 0, 0];
            let progress = Progress { done: sent, ..Progress::default() };
            let result = make_piece(thread, context, SENDMMSG, &part, progress);
            if result >= 0 && (result as usize) < together {
                return Some(sent as isize + result);
            }
            (result, bytes_at(sent + together - 1))
        };
        if result <= 0 {
            return Some(if sent > 0 { sent as isize } else { result });
        }
        sent += result as usize;
        // Part of a message is the end.
        if frame::read::<u32>(at(sent - 1) + HEADER) != Some(wanted as u32) {
            break;
        }
    }
    Some(sent as isize)
}

/// A message of a `sendmmsg` that is to go in pieces, its vectors being the thread's then, and its bytes.
fn large_message(
    thread: &mut Thread,
    descriptor: usize,
    at: usize,
    flags: usize,
    most: usize,
) -> Option<(Message, usize)> {
    let header = frame::read::<Header>(at)?;
    read_vectors(thread, header[2], header[3])?;
    let bytes = thread.vectors.iter().map(|[_, bytes]| bytes).sum::<usize>();
    let message = Message { descriptor, flags, header, from: at };
    (bytes > most && message.is_sent_in_pieces()).then_some((message, bytes))
}

fn kind_of(descriptor: usize) -> Kind {
    const FSTAT: usize = 5;
    const MEMORY_DEVICES: u64 = 1;
    const TERMINALS: [u64; 10] = [4, 5, 136, 137, 138, 139, 140, 141, 142, 143];
    let mut status = [0u64; 18];
    // SAFETY: fstat writes 144 bytes.
    if unsafe { sys::call(FSTAT, [descriptor, status.as_mut_ptr() as usize, 0, 0, 0, 0]) } != 0 {
        // The first piece is refused.
        return Kind::Pipe;
    }
    let device = status[5] >> 8 & 0xfff;
    match status[3] as u32 & 0o170_000 {
        0o100_000 | 0o060_000 => Kind::File,
        0o010_000 => Kind::Pipe,
        0o140_000 if is_stream(descriptor) => Kind::Stream,
        0o020_000 if device == MEMORY_DEVICES => Kind::Memory,
        0o020_000 if TERMINALS.contains(&device) => Kind::Pipe,
        0o020_000 | 0o140_000 => Kind::Whole,
        _ => Kind::Pipe,
    }
}

/// Whether what is written to a file goes to its end.
fn appends(descriptor: usize) -> bool {
    const FCNTL: usize = 72;
    const GETFL: usize = 3;
    const APPEND: isize = 0o2000;
    let flags = plain(FCNTL, [descriptor, GETFL, 0, 0, 0, 0]);
    flags >= 0 && flags & APPEND != 0
}

/// Whether a connection has no error that the next piece would take. It is the program's to be told of one, by a call that
/// says nothing else. Who sends is stopped by the other side's end as well; who receives may have more to read.
fn goes_on(descriptor: usize, sends: bool) -> bool {
    const POLL: usize = 7;
    const ERROR: usize = 0x8;
    const HUNG_UP: usize = 0x10;
    let mut asked = descriptor & 0xffff_ffff;
    plain(POLL, [&raw mut asked as usize, 1, 0, 0, 0, 0]);
    let ends = if sends { ERROR | HUNG_UP } else { ERROR };
    asked >> 48 & ends == 0
}

/// Reads an option of a socket's own level.
fn option<T: Default>(descriptor: usize, name: usize) -> T {
    const GETSOCKOPT: usize = 55;
    const SOL_SOCKET: usize = 1;
    let (mut value, mut bytes) = (T::default(), size_of::<T>() as u32);
    let at = [&raw mut value as usize, &raw mut bytes as usize];
    // SAFETY: writes no more than `bytes` to `value`, whose types are integers and arrays of them.
    unsafe { sys::call(GETSOCKOPT, [descriptor, SOL_SOCKET, name, at[0], at[1], 0]) };
    value
}

/// Whether a socket has no bounds between messages.
fn is_stream(descriptor: usize) -> bool {
    const SO_TYPE: usize = 3;
    const SOCK_STREAM: u32 = 1;
    option::<u32>(descriptor, SO_TYPE) == SOCK_STREAM
}

/// Whether a socket's calls wait for a limited time: `SO_RCVTIMEO` (20) or `SO_SNDTIMEO` (21).
fn has_limit(descriptor: usize, name: usize) -> bool {
    option::<[u64; 2]>(descriptor, name) != [0; 2]
}
