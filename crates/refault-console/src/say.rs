//! What is told beside the results, on standard error.
//!
//! A standard error that is closed, full or a pipe without a reader must change nothing: what cannot be told is not
//! told. `eprintln!` would end the program.

use std::fmt;
use std::io::Write;

/// Writes a line to standard error, headed by the program's name.
pub fn say(line: impl fmt::Display) {
    say_as("refault", line);
}

/// Writes a text of whole lines to standard error as it is.
pub fn say_text(text: &[u8]) {
    let _ = std::io::stderr().lock().write_all(text);
}

/// As [`say`], for a program with another name.
pub fn say_as(program: &str, line: impl fmt::Display) {
    let line = crate::in_words(&format!("{program}: {line}\n"));
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}
