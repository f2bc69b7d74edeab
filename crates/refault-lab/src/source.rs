//! Where accesses come from: whatever can be read from the beginning as often as needed.
//!
//! ```
//! use refault_lab::source::{Accesses, Source};
//!
//! let source = Source::workload("zipf:theta=1,pages=100,accesses=1000".parse().expect("a workload"));
//! let accesses: &dyn Accesses = &source;
//! let mut block = Vec::new();
//! assert!(accesses.open()?.read_block(&mut block)? > 0);
//! # Ok::<(), refault_lab::LabError>(())
//! ```

use refault_trace::shards::PageSample;
use refault_trace::{Entry, TraceError};
pub use refault_trace::{Source, TraceReader};

use crate::error::LabError;

/// Something that accesses can be read from, again and again.
pub trait Accesses: Sync {
    /// What to call it in a table.
    fn name(&self) -> String;
    /// Starts a pass from the beginning.
    fn open(&self) -> Result<Box<dyn TraceReader>, LabError>;
}

impl Accesses for Source {
    fn name(&self) -> String {
        Source::name(self)
    }

    fn open(&self) -> Result<Box<dyn TraceReader>, LabError> {
        Ok(Source::open(self)?)
    }
}

/// The accesses to a sample of a source's pages.
pub struct SampledSource {
    /// The whole.
    pub source: Source,
    /// Which pages are taken.
    pub sample: PageSample,
}

impl Accesses for SampledSource {
    fn name(&self) -> String {
        self.source.name()
    }

    fn open(&self) -> Result<Box<dyn TraceReader>, LabError> {
        let whole = self.source.open()?;
        Ok(Box::new(SampledReader { whole, sample: self.sample, buffer: Vec::new() }))
    }
}

struct SampledReader {
    whole: Box<dyn TraceReader>,
    sample: PageSample,
    buffer: Vec<Entry>,
}

impl TraceReader for SampledReader {
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
        out.clear();
        while out.is_empty() {
            let block = self.whole.next_block(&mut self.buffer)?;
            if block.is_empty() {
                break;
            }
            out.extend(block.iter().copied().filter(|entry| self.sample.contains(*entry)));
        }
        Ok(out.len())
    }

    fn progress(&self) -> Option<f64> {
        self.whole.progress()
    }
}
