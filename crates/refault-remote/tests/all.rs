//! Integration tests, linked once: a module per file.

mod answers;
mod common;
mod remote;
mod versions;
