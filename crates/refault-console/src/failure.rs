//! Why a command ends without its result, told in one line.
//!
//! Every message has the shape `refault: what failed: where: what to do`. The exit code tells scripts whose fault it
//! is: 2 means that the request or the input cannot be used as it is, 1 that the work itself failed.

use std::fmt;
use std::process::ExitCode;

use crate::say;
use refault_core::policy::PolicyError;
use refault_lab::LabError;
use refault_trace::TraceError;

/// The end of a command that did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// The request or the input cannot be used: exit code 2.
    Usage(String),
    /// The work failed: exit code 1.
    Failed(String),
    /// A program that was run ended with this exit code, which becomes ours without a word.
    Exit(u8),
    /// The reader of the output has gone. Not worth a word: exit code 0, as for other filters.
    BrokenPipe,
}

impl Failure {
    /// Wrong usage or unreadable input: `what` is wrong, `place` says where, `remedy` what to do about it.
    pub fn usage(what: impl fmt::Display, place: impl fmt::Display, remedy: impl fmt::Display) -> Failure {
        Failure::Usage(in_words(&format!("{what}: {place}: {remedy}")))
    }

    /// The work itself failed.
    pub fn failed(what: impl fmt::Display, place: impl fmt::Display, remedy: impl fmt::Display) -> Failure {
        Failure::Failed(in_words(&format!("{what}: {place}: {remedy}")))
    }

    /// Writing a result failed.
    pub fn write(place: impl fmt::Display, error: &std::io::Error) -> Failure {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Failure::BrokenPipe;
        }
        Failure::failed("cannot write", place, format!("{error}; choose another place or make room"))
    }

    /// What is said, without the program's name.
    pub fn line(&self) -> &str {
        match self {
            Failure::Usage(line) | Failure::Failed(line) => line,
            Failure::BrokenPipe | Failure::Exit(_) => "",
        }
    }

    /// Prints the line and answers the exit code.
    pub fn report(&self) -> ExitCode {
        match self {
            Failure::Usage(line) => {
                say(one_line(line));
                ExitCode::from(2)
            }
            Failure::Failed(line) => {
                say(one_line(line));
                ExitCode::from(1)
            }
            Failure::Exit(code) => ExitCode::from(*code),
            Failure::BrokenPipe => ExitCode::SUCCESS,
        }
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Failure {
        match &error {
            TraceError::Workload { .. } => Failure::usage("cannot use workload", error, "see 'refault workloads'"),
            TraceError::Open { .. } | TraceError::Io { .. } => {
                Failure::usage("cannot read trace", error, "name a file that can be read")
            }
            TraceError::Unsuitable { .. } | TraceError::Limit { .. } => {
                Failure::Usage(format!("cannot read trace: {error}"))
            }
            _ => Failure::usage("cannot read trace", error, "'refault trace info --help' says how traces are read"),
        }
    }
}

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Failure {
        Failure::Usage(error.to_string())
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Failure {
        match error {
            LabError::Trace(error) => error.into(),
            LabError::Policy(_) | LabError::Request { .. } => Failure::Usage(in_words(&error.to_string())),
            LabError::Failed { .. } | LabError::Cancelled => Failure::Failed(in_words(&error.to_string())),
        }
    }
}

/// Errors of the system in strerror's words alone, without Rust's ` (os error 2)`.
pub fn in_words(text: &str) -> String {
    const MARK: &str = " (os error ";
    let mut words = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(MARK) {
        let (front, back) = rest.split_at(at);
        let number = &back[MARK.len()..];
        let digits = number.bytes().take_while(u8::is_ascii_digit).count();
        let behind = number[digits..].strip_prefix(')').filter(|_| digits > 0);
        words.push_str(if behind.is_some() { front } else { &rest[..at + MARK.len()] });
        rest = behind.unwrap_or(number);
    }
    words + rest
}

/// Control characters of names and arguments must not break the one line (or the terminal).
fn one_line(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_are_in_words() {
        let error = std::io::Error::from_raw_os_error(2);
        let failure = Failure::usage("cannot read", "a (os error x)", format!("{error}; name a file"));
        assert_eq!(failure.line(), "cannot read: a (os error x): No such file or directory; name a file");
        assert_eq!(Failure::write("b", &error).line().matches("os error").count(), 0);
    }

    #[test]
    fn a_message_stays_on_one_line() {
        assert_eq!(one_line("a\nb\x1b[31m"), "a\\nb\\u{1b}[31m");
    }
}
