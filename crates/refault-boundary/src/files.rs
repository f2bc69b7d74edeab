//! Calls that read and write files: in pieces under a budget, and what they are opened on.

pub(crate) mod descriptors;
pub(crate) mod memory_files;
pub(crate) mod opened;
pub(crate) mod pieces;
pub(crate) mod progress;
