//! How far a call has come that is made in pieces.

use refault_linux::sockets::{MSGHDR_CONTROL_BYTES, MSGHDR_FLAGS, MSGHDR_NAME_BYTES};

use crate::frame;

/// A `struct msghdr`: name, its bytes, vectors, their number, control, its bytes, flags.
pub(super) type Header = [usize; 7];

/// What a call that is made in pieces has done so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Progress {
    /// Bytes, or messages of a `sendmmsg` that go whole.
    pub(super) done: usize,
    /// Messages of a `sendmmsg` before the one of which `done` bytes are sent, and where the program wants to know of
    /// those.
    pub(super) before: usize,
    pub(super) length_at: usize,
    /// The header of a message that is received, and the program's, which is to say the same.
    pub(super) headers: [usize; 2],
}

impl Progress {
    /// What the program is to be told of a call that ends here, its last piece having this result if it was made.
    /// `None`: of that piece alone.
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
    pub(super) fn tell_of_message(self) {
        let [ours, theirs] = self.headers;
        if theirs == 0 {
            return;
        }
        if let Some([_, name_bytes, .., control_bytes, flags]) = frame::read::<Header>(ours) {
            frame::write(theirs + MSGHDR_NAME_BYTES, &(name_bytes as u32));
            frame::write(theirs + MSGHDR_CONTROL_BYTES, &control_bytes);
            frame::write(theirs + MSGHDR_FLAGS, &(flags as u32));
        }
    }
}
