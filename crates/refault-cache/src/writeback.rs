//! Pages that were written to: until they are durable, and what fails on the way.

pub(crate) mod account;
pub(crate) mod dirty;
pub(crate) mod flusher;
pub(crate) mod limits;
pub(crate) mod parts;
pub(crate) mod spans;
pub(crate) mod through;
