//! A process from its start to the next program: children, programs executed, observers.

pub(crate) mod clone;
pub(crate) mod environment;
pub(crate) mod execution;
pub(crate) mod observer;
pub(crate) mod start;
