//! Reads that no call waits for yet: windows of readahead ([`crate::io::background`]).
//!
//! Pages of a window are busy from the moment in which it is made, so a reader that wants one of them waits for it. One
//! that fails leaves its pages missing: a reader that wants one reads it itself and is told what is wrong.

use std::sync::Arc;

use refault_core::PageId;

use crate::file::shared::Shared;
use crate::io::opened::Opened;
use crate::io::run::Fault;
use crate::io::run::Run;
use crate::io::runs::read_runs;

/// A run of pages of a file.
pub(crate) struct AheadRead {
    pub(crate) shared: Arc<Shared>,
    pub(crate) file: Arc<Opened>,
    pub(crate) run: Run,
    /// The page whose reader reads on.
    pub(crate) marked: Option<PageId>,
}

impl AheadRead {
    /// Has it read.
    pub(crate) fn submit(self) {
        let AheadRead { shared, file, run, marked } = self;
        let reader = shared.clone();
        reader.background.read(file, run, Box::new(move |run, outcome| finish(&shared, &run, marked, &outcome)));
    }

    /// Has runs of one file read by one call.
    pub(crate) fn submit_together(jobs: Vec<AheadRead>) {
        let (shared, file) = (jobs[0].shared.clone(), jobs[0].file.clone());
        let reader = shared.clone();
        reader.background.together(Box::new(move || {
            let runs: Vec<&Run> = jobs.iter().map(|job| &job.run).collect();
            let outcomes = read_runs(&file, &shared.buffers, &runs);
            jobs.iter().zip(&outcomes).for_each(|(job, outcome)| finish(&shared, &job.run, job.marked, outcome));
        }));
    }
}

fn finish(shared: &Shared, run: &Run, marked: Option<PageId>, outcome: &Result<(), Fault>) {
    let mut engine = shared.engine();
    for (page, _) in &run.pages {
        if outcome.is_err() {
            engine.abandon_fill(*page);
            continue;
        }
        engine.counts.file_reads += 1;
        engine.counts.read_ahead += 1;
        engine.finish_ahead(*page, Some(*page) == marked);
    }
    drop(engine);
    shared.wake(run.pages.iter().map(|(page, _)| *page));
}
