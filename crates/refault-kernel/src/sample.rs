//! What a group under a budget uses, and has used, at one moment.

use serde::{Deserialize, Serialize};

/// Figures of the group; bytes unless their names say otherwise.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default)]
pub struct Sample {
    /// What is allowed now.
    pub budget_bytes: u64,
    /// Charged to the group: resident memory, files' pages and page tables.
    pub resident_bytes: u64,
    /// Memory that its swapped pages take on zram.
    pub compressed_bytes: u64,
    /// Contents that are in swap and not in memory, before compression.
    pub swapped_bytes: u64,
    /// The tool's own memory and the device's tables.
    pub own_bytes: u64,
    /// The most that the three came to.
    pub peak_bytes: u64,
    /// The most that they would have come to if nothing had been compressed.
    pub peak_with_stored_bytes: u64,
    /// Page faults.
    pub faults: u64,
    /// Pages written to swap; with swap of the machine's none is known.
    pub stored: Option<u64>,
    /// Pages brought back from there.
    pub refaults: Option<u64>,
    /// Nanoseconds in which threads waited for memory; version 1 does not count them.
    pub waited_ns: Option<u64>,
    /// Nanoseconds in which its living processes computed in user mode.
    pub user_ns: u64,
    /// Nanoseconds in which all its threads slept of their own will, as seen 20 times per second.
    pub asleep_ns: u64,
    /// Processes in the group.
    pub processes: u64,
    /// Programs that the kernel killed.
    pub kills: u64,
    /// Threads wait, and no room was found for them: memory does not compress into the budget.
    pub is_full: bool,
}

impl Sample {
    /// What is used now, as the budget counts it.
    pub fn total_bytes(&self) -> u64 {
        self.resident_bytes + self.compressed_bytes + self.own_bytes
    }

    /// Takes up the most that an earlier one saw.
    pub(crate) fn keep_peaks(&mut self, before: &Sample) {
        self.peak_bytes = self.total_bytes().max(before.peak_bytes);
        let with_stored = self.resident_bytes + self.swapped_bytes + self.own_bytes;
        self.peak_with_stored_bytes = with_stored.max(before.peak_with_stored_bytes).max(self.peak_bytes);
    }
}
