//! Integration tests, linked once: a module per file.

mod adaptive;
mod estimate;
mod frames;
mod freebsd;
mod freebsd_laundry;
#[path = "textbook/harness.rs"]
mod harness;
mod kernel;
mod sorting;
mod spec_examples;
mod textbook;
