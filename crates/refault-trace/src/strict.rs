//! Around a reader: the remark that its format is a guess, and the error that remarks are where they are refused.
//!
//! Cost: a virtual call for each block.

use std::path::PathBuf;

use crate::error::TraceError;
use crate::reader::{Details, ObjectPages, TimeSpan, TraceReader};
use crate::remark::{Doubt, Remark};
use crate::{Entry, Format};

/// Remarks that nothing but the contents said the format.
pub(crate) struct Guessed {
    pub(crate) inner: Box<dyn TraceReader>,
    pub(crate) format: Format,
}

/// Refuses a trace, at the end of a pass, of which there are remarks.
pub(crate) struct Strict {
    pub(crate) inner: Box<dyn TraceReader>,
    /// Of the trace, for the error.
    pub(crate) name: PathBuf,
}

impl Strict {
    /// The error, if there are remarks.
    fn checked(&self, read: usize) -> Result<(), TraceError> {
        let remarks = self.inner.remarks();
        let Some(first) = remarks.first().filter(|_| read == 0) else { return Ok(()) };
        let more = if remarks.len() > 1 { format!(" (and {} more remarks)", remarks.len() - 1) } else { String::new() };
        Err(TraceError::unsuitable(&self.name, format!("refused by --strict: {first}{more}")))
    }
}

macro_rules! as_inner {
    () => {
        fn total(&self) -> Option<u64> {
            self.inner.total()
        }

        fn progress(&self) -> Option<f64> {
            self.inner.progress()
        }

        fn block_time(&self) -> Option<TimeSpan> {
            self.inner.block_time()
        }

        fn block_bytes(&self) -> Option<&[u64]> {
            self.inner.block_bytes()
        }

        fn block_times(&self) -> Option<&[u64]> {
            self.inner.block_times()
        }

        fn details(&self) -> Details {
            self.inner.details()
        }

        fn objects(&self) -> Option<ObjectPages> {
            self.inner.objects()
        }
    };
}

impl TraceReader for Guessed {
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
        self.inner.read_block(out)
    }

    fn next_block<'a>(&'a mut self, buffer: &'a mut Vec<Entry>) -> Result<&'a [Entry], TraceError> {
        self.inner.next_block(buffer)
    }

    fn remarks(&self) -> Vec<Remark> {
        let name = self.format.name();
        let text = format!("the contents alone say that its format is {name}: --trace-format {name} says so too");
        let guess = Remark::with_text(Doubt::FormatByContents, 1, text);
        std::iter::once(guess).chain(self.inner.remarks()).collect()
    }

    as_inner!();
}

impl TraceReader for Strict {
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
        let read = self.inner.read_block(out)?;
        self.checked(read)?;
        Ok(read)
    }

    fn remarks(&self) -> Vec<Remark> {
        self.inner.remarks()
    }

    as_inner!();
}
