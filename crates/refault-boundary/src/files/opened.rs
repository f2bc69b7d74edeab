//! What a descriptor means, as far as it decides whether a call may be made in pieces ([`crate::files::pieces`]).
//!
//! Everything is asked of the kernel anew: descriptors change their meaning without the agent's knowing. Cost: one
//! system call each, three for a socket.

use refault_linux::calls::{SYS_fcntl, SYS_getsockopt, SYS_poll};
use refault_linux::files::{
    MEM_MAJOR, S_IFBLK, S_IFCHR, S_IFIFO, S_IFMT, S_IFREG, S_IFSOCK, Stat, TTY_MAJOR, TTYAUX_MAJOR,
    UNIX98_PTY_MAJOR_COUNT, UNIX98_PTY_SLAVE_MAJOR, major,
};
use refault_linux::flags::{F_GETFL, POLLERR, POLLHUP, RLIMIT_FSIZE};
use refault_linux::sockets::{
    IPPROTO_IP, IPPROTO_MPTCP, IPPROTO_TCP, SO_PROTOCOL, SO_RCVTIMEO, SO_SNDTIMEO, SO_TYPE, SOCK_STREAM, SOL_SOCKET,
};
use refault_linux::sys;

use crate::calls::make::plain;

/// What a descriptor means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) kind: Kind,
    /// The device and the number of the file, if the kernel says them.
    identity: Option<[u64; 2]>,
}

/// What a file is, as far as it decides what of it may go in pieces.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
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

pub(crate) fn opened(descriptor: usize) -> Opened {
    const LAST_TERMINALS: u64 = UNIX98_PTY_SLAVE_MAJOR + UNIX98_PTY_MAJOR_COUNT - 1;
    let Ok(status) = sys::status(descriptor) else {
        // The first piece is refused.
        return Opened { kind: Kind::Pipe, identity: None };
    };
    let is_terminal = |device| matches!(device, TTY_MAJOR | TTYAUX_MAJOR | UNIX98_PTY_SLAVE_MAJOR..=LAST_TERMINALS);
    let device = major(status.represents);
    let kind = match status.mode & S_IFMT {
        S_IFREG | S_IFBLK => Kind::File,
        S_IFIFO => Kind::Pipe,
        S_IFSOCK if is_stream(descriptor) => Kind::Stream,
        S_IFCHR if device == MEM_MAJOR => Kind::Memory,
        S_IFCHR if is_terminal(device) => Kind::Pipe,
        S_IFCHR | S_IFSOCK => Kind::Whole,
        _ => Kind::Pipe,
    };
    Opened { kind, identity: Some(status.identity()) }
}

impl Opened {
    /// Whether the descriptor means the same file still: another thread may have closed it, or put another in its
    /// place. (What happens between this and the piece is not seen.)
    pub(crate) fn is_still(self, descriptor: usize) -> bool {
        sys::status(descriptor).ok().as_ref().map(Stat::identity) == self.identity
    }
}

/// The flags with which a file is open.
pub(crate) fn status_flags(descriptor: usize) -> usize {
    usize::try_from(plain(SYS_fcntl, [descriptor, F_GETFL, 0, 0, 0, 0])).unwrap_or(0)
}

/// Whether this process may not make files as large as it likes: what is written beyond that is cut off, and a signal
/// comes only for a call that begins there.
pub(crate) fn file_size_is_limited() -> bool {
    let [limit, _] = sys::limits(RLIMIT_FSIZE);
    limit != u64::MAX
}

/// Whether a stream goes on in one direction. So the next piece takes no error that the program is to be told by a call
/// that says nothing else. An error alone may be no more than messages that wait to be read (time stamps, say). A
/// stream that is hung up may have more to read. A broken connection has both the error and the hang-up.
pub(crate) fn goes_on(descriptor: usize, direction: Direction) -> bool {
    /// `struct pollfd`: the descriptor, what else is asked for, and the answer.
    const ANSWER_SHIFT: u32 = 48;
    let mut asked = descriptor as u32 as usize;
    plain(SYS_poll, [&raw mut asked as usize, 1, 0, 0, 0, 0]);
    let ends = if direction == SENDS { POLLHUP } else { POLLERR | POLLHUP };
    asked >> ANSWER_SHIFT & ends != ends
}

/// A direction of a connection, as the option that limits how long its calls wait.
pub(crate) type Direction = usize;
/// Receiving.
pub(crate) const RECEIVES: Direction = SO_RCVTIMEO;
/// Sending.
pub(crate) const SENDS: Direction = SO_SNDTIMEO;

/// Reads an option of a socket's own level.
fn option<T: Default>(descriptor: usize, name: usize) -> T {
    let (mut value, mut bytes) = (T::default(), size_of::<T>() as u32);
    let at = [&raw mut value as usize, &raw mut bytes as usize];
    // SAFETY: writes no more than `bytes` to `value`, whose types are integers and arrays of them.
    unsafe { sys::call(SYS_getsockopt, [descriptor, SOL_SOCKET, name, at[0], at[1], 0]) };
    value
}

/// Whether a socket has no bounds between messages.
fn is_stream(descriptor: usize) -> bool {
    // None of its own (UNIX's, virtual machines'), TCP, MPTCP: others may keep bounds for all that.
    const OF_BYTES: [usize; 3] = [IPPROTO_IP, IPPROTO_TCP, IPPROTO_MPTCP];
    let said = |name: usize| option::<u32>(descriptor, name) as usize;
    said(SO_TYPE) == SOCK_STREAM && OF_BYTES.contains(&said(SO_PROTOCOL))
}

/// Whether calls on a socket wait for a limited time.
pub(crate) fn has_timeout(descriptor: usize, direction: Direction) -> bool {
    option::<[u64; 2]>(descriptor, direction) != [0; 2]
}
