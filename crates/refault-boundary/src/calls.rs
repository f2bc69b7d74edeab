//! Calls of the program, each served as its row of the table says: found, its memory held, made.

pub(crate) mod advice;
pub(crate) mod compat;
pub(crate) mod dispatch;
pub(crate) mod holding;
pub(crate) mod locks;
pub(crate) mod make;
pub(crate) mod memory_calls;
pub(crate) mod moves;
pub(crate) mod pointed;
pub(crate) mod tracing;
pub(crate) mod visits;
