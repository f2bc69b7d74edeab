//! Dirty file pages and their way to the device.
//!
//! A page written to becomes dirty once; a flusher writes the oldest ones when they are older than the expiry time or
//! when there are more than the background ratio allows. Writers wait above the second ratio. Pages are written in the
//! order in which they became dirty, at most [`IN_FLIGHT`] at a time.
//!
//! Kernel: `balance_dirty_pages` in `mm/page-writeback.c`; `wb_workfn` in `fs/fs-writeback.c`.

use std::collections::VecDeque;

use refault_core::PageId;

use super::Machine;
use super::fault::{Outcome, Wait};
use super::memory::state;

/// Pages that writeback keeps in flight.
const IN_FLIGHT: u64 = 1024;
/// How long a writer waits before it looks again, in nanoseconds.
const WRITER_WAIT: u64 = 10_000_000;

/// Which dirty pages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Those that are old, and those beyond the background ratio.
    Aged,
    /// All: reclaim met nothing else.
    AllDirty,
}

/// The queue of dirty pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Flusher {
    /// Page and when it became dirty, oldest first. Pages that were written or freed since are skipped.
    queue: VecDeque<(PageId, u64)>,
    /// Pages written.
    pub written: u64,
}

impl Machine {
    /// A page in the cache was written to.
    pub(super) fn dirty_file_page(&mut self, page: PageId, outcome: &mut Outcome) {
        if self.memory.mark_dirty(page) {
            self.writeback.queue.push_back((page, self.now));
        }
        let can_be_dirty = self.dirtyable();
        if self.memory.dirty > can_be_dirty * self.config.dirty_background_ratio / 100 {
            self.flush(Due::Aged);
        }
        let waiting = self.memory.dirty + self.memory.writeback;
        if waiting > can_be_dirty * self.config.dirty_ratio / 100 && self.memory.writeback > 0 && outcome.wait.is_none()
        {
            let until = self.now + outcome.cpu + outcome.stall + WRITER_WAIT;
            outcome.wait = Some(Wait { until, stalled: false });
        }
    }

    /// Memory that could be dirty: free frames and file pages.
    fn dirtyable(&self) -> u64 {
        self.memory.file_pages + self.memory.nodes.iter().map(|node| node.free).sum::<u64>()
    }

    /// Writes what is due.
    pub(super) fn flush(&mut self, due: Due) {
        let background = self.dirtyable() * self.config.dirty_background_ratio / 100;
        while self.memory.writeback < IN_FLIGHT {
            let Some(&(page, since)) = self.writeback.queue.front() else { break };
            let dirty = self.memory.has(page, state::RESIDENT | state::DIRTY);
            if dirty
                && due == Due::Aged
                && since + self.config.dirty_expire > self.now
                && self.memory.dirty <= background
            {
                break;
            }
            self.writeback.queue.pop_front();
            // A page whose last write is still in flight is written again later.
            if dirty && self.memory.has(page, state::WRITEBACK) {
                self.writeback.queue.push_back((page, self.now));
                break;
            }
            if dirty {
                self.memory.write_file_page(page);
                self.writeback.written += 1;
            }
        }
        // The flusher's CPU time on synchronous devices is its own thread's; it competes with no other thread here.
        self.memory.ledger = super::costs::Ledger::default();
        self.collect_completions();
    }

    /// The write of a page has ended.
    pub(super) fn write_done(&mut self, page: PageId) {
        if self.memory.has(page, state::WRITEBACK) {
            self.memory.end_write(page);
            if self.memory.has(page, state::RESIDENT) {
                self.policy.write_finished(page);
            }
        }
        if self.memory.dirty > 0 && self.memory.writeback < IN_FLIGHT / 2 {
            self.flush(Due::Aged);
        }
    }
}
