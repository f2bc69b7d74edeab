//! The environment that the agent gives a program.

/// The environment with which a program starts instead of the one that it was given. A thread has one while it
/// executes.
#[derive(Default)]
pub(crate) struct Environment {
    /// Addresses of its texts, and a zero.
    pub(super) texts: Vec<usize>,
    /// The one text that is not the program's.
    pub(super) _own: Vec<u8>,
}
