//! The agent's own memory, and what is mapped beside it.

pub(crate) mod area;
pub(crate) mod heap;
pub(crate) mod mappings;
pub(crate) mod seen;
