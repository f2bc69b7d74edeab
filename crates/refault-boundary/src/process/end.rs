//! The end of a process, as the program asks for it.

use crate::engine_lock;
use crate::process::observer;

/// The program ends: what it counted stays in the segment.
pub(crate) fn finish() {
    observer::finish();
    let mut paging = engine_lock::paging();
    paging.publish();
    let statistics = *paging.statistics();
    paging.account().leave(&statistics);
}
