//! What the agents of a running program write of the pages that it accesses: pieces as in [`crate::record`], of a sample
//! of the pages, read as they come.
//!
//! Invariant: the file that agents append to is bounded. Cost: in the program what [`Sample::most_cpu`] allows.

use std::fs::File;
use std::io::{Read, Seek};

use refault_console::Failure;
use refault_paging::settings::RecordSettings;

use crate::inherited::Unnamed;
use crate::launch::Launch;
use crate::record::Piece;

/// The file is emptied when it is larger.
const MAX_FILE: u64 = 1 << 20;

/// What is looked at, and how often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// One page in `2^shift`.
    pub(super) shift: u32,
    /// Milliseconds between two looks, at least.
    pub(super) interval_ms: u64,
    /// The share of one processor that looks may cost; they are made less often until that is kept.
    pub(super) most_cpu: f64,
}

/// See the module.
pub(super) struct Looks {
    _place: Unnamed,
    file: File,
    pending: Vec<u8>,
}

impl Looks {
    /// Has the agents of a program that is about to be started look.
    ///
    /// # Errors
    /// A file cannot be had.
    pub(super) fn of(launch: &mut Launch, sample: Sample) -> Result<Looks, Failure> {
        let place = Unnamed::new()?;
        let (out, most_cpu) = (launch.output(place.path())?, Some(sample.most_cpu));
        let Sample { interval_ms, shift, .. } = sample;
        launch.settings().record = Some(RecordSettings { out, interval_ms, shift, most_cpu });
        // For writing too: it is emptied here.
        let file = File::options().read(true).write(true).open(place.path());
        let file = file.map_err(|error| Failure::write("a temporary file", &error))?;
        Ok(Looks { _place: place, file, pending: Vec::new() })
    }

    /// Hands on the pieces that were written since the last call. False if nothing was.
    pub(super) fn take(&mut self, mut take: impl FnMut(&Piece<'_>)) -> bool {
        // What cannot be read now may be read the next time.
        let read = self.file.read_to_end(&mut self.pending);
        if self.file.metadata().is_ok_and(|metadata| metadata.len() > MAX_FILE) && self.file.set_len(0).is_ok() {
            let _ = self.file.rewind();
        }
        if !read.is_ok_and(|bytes| bytes > 0) {
            return false;
        }
        let mut at = 0;
        let pending = std::mem::take(&mut self.pending);
        while let Ok(Some(piece)) = Piece::at(&pending, &mut at) {
            take(&piece);
        }
        // What is no piece is the rest of one that was cut off when the file was emptied.
        let is_whole = Piece::at(&pending, &mut { at }).is_ok();
        self.pending = if is_whole { pending[at..].to_vec() } else { Vec::new() };
        true
    }
}
