//! What a descriptor means, as far as it decides whether a call may be made in pieces ([`crate::files::pieces`]).
//!
//! Everything is asked of the kernel anew: descriptors change their meaning without the agent's knowing. Cost: one system
//! call each, three for a socket.

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
    const MEMORY_DEVICES: u64 = 1;
    const TERMINALS: [u64; 10] = [4, 5, 136, 137, 138, 139, 140, 141, 142, 143];
    let Some(status) = status_of(descriptor) else {
        // The first piece is refused.
        return Opened { kind: Kind::Pipe, identity: None };
    };
    let device = status[5] >> 8 & 0xfff;
    let kind = match status[3] as u32 & 0o170_000 {
        0o100_000 | 0o060_000 => Kind::File,
        0o010_000 => Kind::Pipe,
        0o140_000 if is_stream(descriptor) => Kind::Stream,
        0o020_000 if device == MEMORY_DEVICES => Kind::Memory,
        0o020_000 if TERMINALS.contains(&device) => Kind::Pipe,
        0o020_000 | 0o140_000 => Kind::Whole,
        _ => Kind::Pipe,
    };
    Opened { kind, identity: Some([status[0], status[1]]) }
}

impl Opened {
    /// Whether the descriptor means the same file still: another thread may have closed it, or put another in its place.
    /// (What happens between this and the piece is not seen.)
    pub(crate) fn is_still(self, descriptor: usize) -> bool {
        status_of(descriptor).map(|status| [status[0], status[1]]) == self.identity
    }
}

/// `fstat`'s words.
fn status_of(descriptor: usize) -> Option<[u64; 18]> {
    const FSTAT: usize = 5;
    let mut status = [0u64; 18];
    // SAFETY: fstat writes 144 bytes.
    let error = unsafe { sys::call(FSTAT, [descriptor, status.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    (error == 0).then_some(status)
}

/// The flags with which a file is open.
pub(crate) fn status_flags(descriptor: usize) -> usize {
    const FCNTL: usize = 72;
    const GETFL: usize = 3;
    usize::try_from(plain(FCNTL, [descriptor, GETFL, 0, 0, 0, 0])).unwrap_or(0)
}

/// Whether this process may not make files as large as it likes: what is written beyond that is cut off, and a signal comes only
/// for a call that begins there.
pub(crate) fn file_size_is_limited() -> bool {
    const GETRLIMIT: usize = 97;
    const RLIMIT_FSIZE: usize = 1;
    let mut limit = [usize::MAX; 2];
    // SAFETY: getrlimit writes two words.
    unsafe { sys::call(GETRLIMIT, [RLIMIT_FSIZE, limit.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    limit[0] != usize::MAX
}

/// Whether a stream goes on in one direction, so that the next piece takes no error which the program is to be told by a
/// call that says nothing else. An error alone may be no more than messages that wait to be read (time stamps, say), and what is
/// hung up may have more to read; a connection that is broken has both.
pub(crate) fn goes_on(descriptor: usize, direction: Direction) -> bool {
    const POLL: usize = 7;
    const ERROR: usize = 0x8;
    const HUNG_UP: usize = 0x10;
    let mut asked = descriptor & 0xffff_ffff;
    plain(POLL, [&raw mut asked as usize, 1, 0, 0, 0, 0]);
    let ends = if direction == SENDS { HUNG_UP } else { ERROR | HUNG_UP };
    asked >> 48 & ends != ends
}

/// A direction of a connection, as the option that limits how long its calls wait.
pub(crate) type Direction = usize;
/// `SO_RCVTIMEO`.
pub(crate) const RECEIVES: Direction = 20;
/// `SO_SNDTIMEO`.
pub(crate) const SENDS: Direction = 21;

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
    const SO_PROTOCOL: usize = 38;
    const SOCK_STREAM: u32 = 1;
    // None of its own (UNIX's, virtual machines'), TCP, MPTCP: others may keep bounds for all that.
    const OF_BYTES: [u32; 3] = [0, 6, 262];
    option::<u32>(descriptor, SO_TYPE) == SOCK_STREAM && OF_BYTES.contains(&option::<u32>(descriptor, SO_PROTOCOL))
}

/// Whether calls on a socket wait for a limited time.
pub(crate) fn has_timeout(descriptor: usize, direction: Direction) -> bool {
    option::<[u64; 2]>(descriptor, direction) != [0; 2]
}
