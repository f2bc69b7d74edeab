//! What a cache says of itself.

pub(crate) mod statistics;
pub(crate) mod what_if;
