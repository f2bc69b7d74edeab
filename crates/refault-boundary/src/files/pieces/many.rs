//! `sendmmsg` in pieces.

use refault_linux::calls::SYS_sendmmsg;
use refault_linux::sockets::{MMSGHDR, MSG_NOSIGNAL, MSGHDR, UIO_MAXIOV};

use super::{Header, goes_on, has_timeout, most_held, opened};
use super::{Kind, Message, Progress, Way, bytes_of_message, bytes_taken, is_forbidden, make_piece, read_vectors};
use crate::engine_lock;
use crate::files::opened::SENDS;
use crate::frame::{self, Context};
use crate::mapping::managed::ALWAYS_WHOLE;
use crate::thread::Thread;

/// `sendmmsg`: as many messages at a time as may be held, and in pieces what is larger.
pub(super) fn send(thread: &mut Thread, context: &mut Context, arguments: [usize; 6]) -> Option<isize> {
    let [descriptor, messages, count, flags, ..] = arguments;
    let count = count.min(UIO_MAXIOV);
    let most = most_held();
    let at = |index: usize| messages.wrapping_add(index * MMSGHDR);
    let bytes_at = |index| bytes_of_message(at(index));
    let all = (0..count).map(bytes_at).fold(0, usize::saturating_add);
    if all <= ALWAYS_WHOLE || all <= most {
        return None;
    }
    let opened = opened(descriptor);
    let kind = opened.kind;
    if kind == Kind::Stream && has_timeout(descriptor, SENDS) {
        return None;
    }
    let mut sent = 0;
    while sent < count && (sent == 0 || opened.is_still(descriptor) && goes_on(descriptor, SENDS)) {
        let flags = if sent == 0 || kind != Kind::Stream { flags } else { flags | MSG_NOSIGNAL };
        let large = large_message(thread, descriptor, at(sent), flags, most).filter(|_| kind == Kind::Stream);
        let (result, wanted) = if let Some((message, wanted)) = large {
            let so_far = Progress { before: sent, length_at: at(sent) + MSGHDR, ..Progress::default() };
            let bytes = super::send(thread, context, &message, Way { opened, done: 0 }, so_far);
            if is_forbidden(bytes) && sent == 0 {
                return None;
            }
            if bytes >= 0 {
                frame::write(at(sent) + MSGHDR, &(bytes as u32));
            }
            (bytes.min(1), wanted)
        } else {
            let (mut together, mut held) = (0, 0usize);
            while sent + together < count && (together == 0 || held.saturating_add(bytes_at(sent + together)) <= most) {
                held = held.saturating_add(bytes_at(sent + together));
                together += 1;
            }
            engine_lock::hold(thread, at(sent), together * MMSGHDR, true);
            for index in sent..sent + together {
                crate::calls::holding::hold_message(thread, at(index), false);
            }
            let part = [descriptor, at(sent), together, flags, 0, 0];
            let progress = Progress { done: sent, ..Progress::default() };
            let result = make_piece(thread, context, SYS_sendmmsg, &part, progress);
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
        if frame::read::<u32>(at(sent - 1) + MSGHDR) != Some(wanted as u32) {
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
    let [_, _, vectors, count, ..] = header;
    read_vectors(thread, vectors, count)?;
    let bytes = bytes_taken(thread);
    let message = Message { descriptor, flags, header, from: at };
    (bytes > most && message.is_sent_in_pieces()).then_some((message, bytes))
}
