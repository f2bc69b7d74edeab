//! What a policy says of its lists.

use refault_core::policy::GenerationSize;

/// What of a policy is shown besides a report.
pub(crate) struct Lists {
    pub(crate) generations: Vec<GenerationSize>,
    /// On the clock of the generations' births, in nanoseconds.
    pub(crate) now: u64,
    pub(crate) leader: Option<&'static str>,
}
