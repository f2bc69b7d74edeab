//! The textbook policies: one page is one unit, memory starts empty, nothing is known of kinds or mappings.

pub mod fifo;

pub use fifo::Fifo;
