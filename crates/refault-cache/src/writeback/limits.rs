//! How much may wait to be written.

use std::time::Duration;

/// How much may wait to be written, in pages, and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// From here on pages are written in the background.
    pub(crate) background: u32,
    /// Writers write themselves before they exceed this.
    pub(crate) most: u32,
    /// Dirty pages are written after this time in any case.
    pub(crate) expire: Duration,
}
