//! What a source says of a group.

/// What was accessed of a group and those below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accessed {
    /// Bytes that are no file's.
    pub anonymous_bytes: u64,
    /// Bytes of files and of shared memory.
    pub file_bytes: u64,
    /// By how much the sum may be larger: processes that share memory may access different parts of it.
    pub error_bytes: u64,
    /// The source counts pages that are charged to the group, and only those.
    pub is_by_charge: bool,
    /// Processes hold its memory at which this one may not look, of other users, PID namespaces or groups: what they access
    /// is not in the sums.
    pub is_in_part: bool,
}

impl Accessed {
    pub(super) fn add(&mut self, other: Accessed) {
        self.anonymous_bytes = self.anonymous_bytes.saturating_add(other.anonymous_bytes);
        self.file_bytes = self.file_bytes.saturating_add(other.file_bytes);
        self.error_bytes = self.error_bytes.saturating_add(other.error_bytes);
        self.is_by_charge |= other.is_by_charge;
        self.is_in_part |= other.is_in_part;
    }
}
