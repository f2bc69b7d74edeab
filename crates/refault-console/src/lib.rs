//! What refault's commands say to a person: failures in one line with their exit codes, progress, tables, outputs.
//!
//! Every command and benchmark shares this crate, so that they fail, count and write alike. Nothing here decides
//! anything about memory.
//!
//! ```
//! use refault_console::Failure;
//!
//! let failure = Failure::usage("no such policy", "'lru2'", "did you mean 'lru'?");
//! assert_eq!(failure.line(), "no such policy: 'lru2': did you mean 'lru'?");
//! ```
#![forbid(unsafe_code)]

pub mod command;
mod failure;
mod input;
pub mod output;
mod progress;
mod say;
mod share;
pub mod text;

pub use failure::{Failure, in_words};
pub use input::read_text;
pub use output::{Contents, ForceArgs, Format, Output, Outputs, ResultArgs, format_of, with_output};
pub use progress::Progress;
pub use say::{say, say_as, say_text};
pub use share::Share;
