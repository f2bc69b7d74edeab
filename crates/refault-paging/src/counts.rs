//! What a process counts of itself.

pub(crate) mod own;
