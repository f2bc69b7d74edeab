//! How the lab tells how far it is, and is told to stop.

/// Hears of work to do and work done, both in accesses. `()` hears nothing and never stops.
///
/// The methods are called from several threads, a few times per second and thread at most.
pub trait Progress: Sync {
    /// There are `accesses` more accesses to do.
    fn add(&self, accesses: u64) {
        let _ = accesses;
    }

    /// `accesses` accesses are done.
    fn advance(&self, accesses: u64) {
        let _ = accesses;
    }

    /// Whether the work should end with [`crate::LabError::Cancelled`]. Asked once per block of accesses.
    fn is_cancelled(&self) -> bool {
        false
    }
}

impl Progress for () {}
