//! Which pages go and which come along.

pub(crate) mod policies;
pub(crate) mod streams;
