//! What the agent says: on the program's standard error, by a copy. A program that closes its own has none from then
//! on, whatever file it opens next.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicI32, Ordering};

use refault_linux::calls::SYS_exit_group;
use refault_linux::{errno, sys};

static DESCRIPTOR: AtomicI32 = AtomicI32::new(STANDARD_ERROR);

/// The standard error, as a program begins with it.
pub(crate) const STANDARD_ERROR: i32 = 2;

/// Says everything on this descriptor from now on; on none, if it is negative. Returns the one before, which no other
/// caller gets.
pub(crate) fn use_descriptor(descriptor: i32) -> i32 {
    DESCRIPTOR.swap(descriptor, Ordering::Relaxed)
}

struct Line {
    text: [u8; 400],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let bytes = text.as_bytes();
        let room = bytes.len().min(self.text.len() - self.len);
        self.text[self.len..self.len + room].copy_from_slice(&bytes[..room]);
        self.len += room;
        Ok(())
    }
}

/// Says one line.
pub(crate) fn say(what: fmt::Arguments<'_>) {
    let mut line = Line { text: [0; 400], len: 0 };
    let _ = writeln!(line, "refault: {what}");
    sys::write(DESCRIPTOR.load(Ordering::Relaxed), &line.text[..line.len]);
}

/// What a call of the agent's own has said, without which it cannot go on: it ends the process in words if the call
/// failed.
pub(crate) fn needs(what: &str, result: isize) -> isize {
    if result < 0 {
        end(format_args!("{what}: {}", errno::text(result)));
    }
    result
}

/// Says why, and ends the process: going on would be a lie.
pub(crate) fn end(what: fmt::Arguments<'_>) -> ! {
    say(what);
    loop {
        // SAFETY: ends the process.
        unsafe { sys::call(SYS_exit_group, [1, 0, 0, 0, 0, 0]) };
    }
}
