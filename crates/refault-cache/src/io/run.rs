//! A run of pages that is read together, and what becomes of it.

use std::io;

use refault_core::PageId;
use refault_core::frames::Frame;
use refault_store::Page;

use crate::engine::compressed::{Leftover, Outcome};
use crate::error::ReadError;

/// Pages that follow each other in the file, busy on the account of the thread that has the run.
pub(crate) struct Run {
    /// The first one's place in the file.
    pub(crate) index: u64,
    /// Numbers, and the frames they are to be read into.
    pub(crate) pages: Vec<(PageId, Frame)>,
    /// Evicted pages whose bytes are in those frames until they are filled.
    pub(crate) leftovers: Vec<Leftover>,
    /// What came of compressing these.
    pub(crate) put_away: Vec<(Leftover, Outcome)>,
    /// The contents are in memory, and in the frame if this is true.
    pub(crate) unpacked: bool,
    /// They were in a frame that is free.
    pub(crate) found: Option<Box<Page>>,
}

impl Run {
    pub(crate) fn new(index: u64, pages: Vec<(PageId, Frame)>) -> Run {
        Run { index, pages, leftovers: Vec::new(), put_away: Vec::new(), unpacked: false, found: None }
    }

    /// Whether the one page of the run need not be read from its file. `is_packed`: the page is compressed.
    pub(crate) fn is_in_memory(&self, is_packed: impl FnOnce(PageId) -> bool) -> bool {
        self.unpacked || self.found.is_some() || is_packed(self.pages[0].0)
    }
}

/// Why a run of pages was not read.
pub(crate) enum Fault {
    Io(io::Error),
    Short,
}

impl Fault {
    pub(crate) fn at(self, offset: u64) -> ReadError {
        match self {
            Fault::Io(error) => ReadError::Io { offset, error },
            Fault::Short => ReadError::Short { offset },
        }
    }
}

/// What becomes of a run that was read, or not. Called by a thread of the cache's own, or by the caller's if there is
/// none; it must not wait for other reads.
pub(crate) type Done = Box<dyn FnOnce(Run, Result<(), Fault>) + Send>;
