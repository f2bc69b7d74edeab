//! Pages of managed memory: what is known of each, the ranges that they lie in, and what the kernel says of them.

pub(crate) mod pagemap;
pub(crate) mod ranges;
pub(crate) mod table;
