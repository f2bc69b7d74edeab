//! Reads that nobody waits for yet: windows of readahead, by a few threads ([`crate::workers`]).
//!
//! Pages of a window are busy from the moment in which it is made, so a reader that wants one of them waits for it. One
//! that fails leaves its pages missing: a reader that wants one reads it itself and is told what is wrong.

use std::sync::Arc;

use refault_core::PageId;

use crate::file::{Opened, Shared};
use crate::fill::{Run, read_run};

/// Threads that read ahead.
pub(crate) const MAX_THREADS: usize = 4;

/// A run of pages of a file.
pub(crate) struct AheadRead {
    pub(crate) shared: Arc<Shared>,
    pub(crate) file: Arc<Opened>,
    pub(crate) run: Run,
    /// The page whose reader reads on.
    pub(crate) marked: PageId,
}

impl AheadRead {
    /// Reads it.
    pub(crate) fn read(self) {
        let pages = &self.run.pages;
        let outcome = read_run(&self.file, &self.shared.buffers, &self.run);
        let mut engine = self.shared.engine();
        for (page, _) in pages {
            if outcome.is_err() {
                engine.abandon_fill(*page);
                continue;
            }
            engine.counts.file_reads += 1;
            engine.counts.read_ahead += 1;
            engine.finish_fill(*page, false);
            engine.pages.set_ahead(*page, *page == self.marked);
        }
        drop(engine);
        self.shared.wake(pages.iter().map(|(page, _)| *page));
    }
}
