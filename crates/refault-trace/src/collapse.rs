//! Successive accesses to one page as one, which is a write if any of them is.
//!
//! Sizes and times of the single accesses are gone then; a block's span of time stays.

use crate::Entry;
use crate::error::TraceError;
use crate::reader::{Details, ObjectPages, TimeSpan, TraceReader};
use crate::remark::Remark;

/// Collapses what another reader hands out.
pub(crate) struct Collapsed {
    inner: Box<dyn TraceReader>,
    block: Vec<Entry>,
    /// Held back to see whether the next access is to the same page.
    held: Option<Entry>,
}

impl Collapsed {
    pub(crate) fn new(inner: Box<dyn TraceReader>) -> Collapsed {
        Collapsed { inner, block: Vec::new(), held: None }
    }
}

impl TraceReader for Collapsed {
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
        out.clear();
        while out.is_empty() {
            if self.inner.read_block(&mut self.block)? == 0 {
                out.extend(self.held.take());
                break;
            }
            for entry in &self.block {
                match &mut self.held {
                    Some(held) if held.0 | Entry::WRITE == entry.0 | Entry::WRITE => held.0 |= entry.0,
                    held => out.extend(held.replace(*entry)),
                }
            }
        }
        Ok(out.len())
    }

    fn progress(&self) -> Option<f64> {
        self.inner.progress()
    }

    fn block_time(&self) -> Option<TimeSpan> {
        self.inner.block_time()
    }

    fn details(&self) -> Details {
        self.inner.details()
    }

    fn remarks(&self) -> Vec<Remark> {
        self.inner.remarks()
    }

    fn objects(&self) -> Option<ObjectPages> {
        self.inner.objects()
    }
}
